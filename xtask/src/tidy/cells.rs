//! Fields that can be changed through a shared reference belong to the module that has them: nobody else sets them, so what they promise is to
//! be read there.
//!
//! What several parts work on together is listed, with the reason.

use super::lexer::code_only;
use super::{Finding, Repo};

/// Where the rule holds.
const PLACES: [&str; 2] = ["crates/engine/src/", "crates/vos/src/"];

/// Fields of the store that are borrowed from outside.
const SHARED: [(&str, &str); 4] = [
    // What all of the store's steps work on. They are short, and nothing is awaited in one.
    ("crates/vos/src/shard.rs", "state"),
    // The allocator of the data area, which payloads, readers, the log and recovery share.
    ("crates/vos/src/data_area.rs", "space"),
    ("crates/vos/src/recovery.rs", "space"),
    // The same of the page area.
    ("crates/vos/src/pages.rs", "space"),
];

/// Reports such fields that others can reach.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    for (path, text) in repo.with_suffix(".rs") {
        if !PLACES.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        for (at, line) in code_only(text).lines().enumerate() {
            let Some(field) = open_cell(line) else { continue };
            if !SHARED.contains(&(path, field)) {
                let advice = "let a type that owns it say what may be done with it";
                findings.push(Finding::new(path, at + 1, format!("`{field}` is open"), advice));
            }
        }
    }
}

/// The name of a field that is a cell and not private.
fn open_cell(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')')?.1,
        None => rest,
    };
    let (name, of) = rest.strip_prefix(' ')?.split_once(": ")?;
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let of = of.trim_start_matches("Rc<");
    (is_name && (of.starts_with("Cell<") || of.starts_with("RefCell<"))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    #[test]
    fn cells_are_private() {
        let good = "struct A {\n    count: Cell<u64>,\n    pub kept: Kept,\n    pub at: Rc<Place>,\n}\n\
                    // pub b: Cell<u64>,\npub fn f(a: &Cell<u64>) {}\npub(crate) fn g(b: u8, c: Cell<u8>) {}\n";
        let bad = "struct B {\n    pub count: Cell<u64>,\n    pub(crate) list: RefCell<Vec<u8>>,\n    \
                   pub(super) is_on: Rc<Cell<bool>>,\n    pub state: RefCell<State>,\n}\n";
        let found = findings_of(
            check,
            &[
                ("crates/engine/src/a.rs", good),
                ("crates/vos/src/shard.rs", bad),
                ("crates/client/src/b.rs", bad),
            ],
        );
        let wanted: Vec<String> = [(2, "count"), (3, "list"), (4, "is_on")]
            .map(|(line, field)| {
                format!(
                    "crates/vos/src/shard.rs:{line}: `{field}` is open: \
                     let a type that owns it say what may be done with it"
                )
            })
            .into();
        assert_eq!(found, wanted);
    }
}
