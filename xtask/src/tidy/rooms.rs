//! Which part of a crate may name which: where the compiler sees one crate only.
//!
//! The index of the store is pure: it knows what changes are and which blocks are in use, and neither how anything comes to a
//! device nor who asks. Log and volume know devices, and nothing of what they keep.

use super::lexer::code_only;
use super::rust::has_word;
use super::{Finding, Repo};

/// A folder of sources, what its code may name of its own crate, and words that it must not have.
struct Room {
    path: &'static str,
    names: &'static [&'static str],
    without: &'static [&'static str],
}

const ROOMS: [Room; 3] = [
    Room {
        path: "crates/vos/src/index/",
        names: &["index", "blocks", "change_df", "keys", "record", "space", "sums", "Lsn"],
        without: &["async", "await", "env"],
    },
    Room {
        path: "crates/vos/src/log/",
        names: &["log", "record", "sealed", "space", "unsynced", "Lsn"],
        without: &[],
    },
    Room {
        path: "crates/vos/src/volume/",
        names: &["volume", "blocks", "sealed", "space"],
        without: &[],
    },
];

/// Reports what a part names that it is not to know.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    for (path, text) in repo.with_suffix(".rs") {
        let Some(room) = ROOMS.iter().find(|room| path.starts_with(room.path)) else { continue };
        let code = code_only(text);
        // Tests look at whatever they like.
        let code = without_tests(&code);
        for (line, name) in named_after(code, "crate::") {
            if !room.names.contains(&name.as_str()) {
                let what = format!("`crate::{name}`");
                let advice =
                    format!("below {} know of the crate: {}", room.path, room.names.join(", "));
                findings.push(Finding::new(path, line, what, &advice));
            }
        }
        for (at, line) in code.lines().enumerate() {
            for word in room.without.iter().filter(|word| has_word(line, word)) {
                let advice =
                    "what is here does no I/O: have a caller do it, and take what came of it";
                findings.push(Finding::new(path, at + 1, format!("`{word}`"), advice));
            }
        }
    }
}

/// Code before the tests of its module.
pub(super) fn without_tests(code: &str) -> &str {
    code.split_once("#[cfg(test)]\nmod tests").map_or(code, |(code, _)| code)
}

/// What code names behind `start` (`crate::`), with lines: the first word of each path, also of those in a list.
pub(super) fn named_after(code: &str, start: &str) -> Vec<(usize, String)> {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in code.match_indices(start) {
        // What is in the middle of a path or word begins elsewhere.
        if code[..at].ends_with(|c: char| is_of_name(c) || c == ':') {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        for path in listed(&code[at + start.len()..]) {
            let name: String = path.trim_start().chars().take_while(|c| is_of_name(*c)).collect();
            if !name.is_empty() {
                found.push((line, name));
            }
        }
    }
    found
}

/// The paths that a path goes on with: those of a list in braces, or itself.
fn listed(rest: &str) -> Vec<&str> {
    let Some(list) = rest.strip_prefix('{') else { return vec![rest] };
    let (mut paths, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                paths.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if c == '}' && start == at + 1 {
            break;
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    #[test]
    fn the_index_knows_neither_devices_nor_who_asks() {
        let good = "use super::slot;\nuse crate::record::ChangeDf;\n// crate::shard, async\n\
                    fn f(at: crate::Lsn) {}\n#[cfg(test)]\nmod tests {\n    use crate::shard::PoolShard;\n}\n";
        let bad = "use crate::log::wal::Wal;\nuse crate::{Lsn, shard};\nuse env::File;\n\
                   async fn f() {}\n";
        let found = findings_of(
            check,
            &[
                ("crates/vos/src/index/slot.rs", good),
                ("crates/vos/src/index/page.rs", bad),
                ("crates/vos/src/shard.rs", bad),
            ],
        );
        assert_eq!(found.len(), 4, "{found:?}");
        for (line, what) in
            ["`crate::log`", "`crate::shard`", "`env`", "`async`"].iter().enumerate()
        {
            let start = format!("crates/vos/src/index/page.rs:{}: {what}", line + 1);
            assert!(found[line].starts_with(&start), "{found:?}");
        }
    }

    #[test]
    fn log_and_volume_do_not_know_each_other() {
        let log = "use crate::volume::Raw;\nuse crate::sealed;\n";
        let volume = "use crate::log::wal::Wal;\nuse crate::space::Run;\n";
        let found = findings_of(
            check,
            &[("crates/vos/src/log/wal.rs", log), ("crates/vos/src/volume/tier.rs", volume)],
        );
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn names_of_lists_are_found_at_each_depth() {
        let code =
            "use crate::{a::{b, c}, d, e::f::{g, h}};\nuse other_crate::x;\nlet y = {crate::k};\n";
        let names: Vec<(usize, String)> = named_after(code, "crate::");
        let wanted = [(1, "a"), (1, "d"), (1, "e"), (3, "k")];
        assert_eq!(names, wanted.map(|(line, name)| (line, name.to_string())));
    }
}
