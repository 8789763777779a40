//! Rules for files of any kind: size and names.

use super::lexer::code_only;
use super::{Finding, Repo};

/// Longest file that people are expected to read.
const LINES_MAX: usize = 800;
/// Endings of files that people read.
const READ_BY_PEOPLE: [&str; 7] = [".rs", ".md", ".py", ".sh", ".c", ".h", ".toml"];
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "common", "misc", "helpers", "helper"];

/// Reports over-long files and empty names.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    for (path, text) in &repo.files {
        check_name(path, findings);
        let Some(text) = text else { continue };
        let line_count = text.lines().count();
        if line_count > LINES_MAX && READ_BY_PEOPLE.iter().any(|end| path.ends_with(end)) {
            findings.push(Finding::new(
                path,
                LINES_MAX + 1,
                format!("{line_count} lines, over the limit of {LINES_MAX}"),
                "split it by idea",
            ));
        }
        if path.ends_with(".rs") {
            check_inline_modules(path, text, findings);
        }
    }
}

fn check_name(path: &str, findings: &mut Vec<Finding>) {
    let in_code = path.starts_with("crates/") || path.starts_with("xtask/");
    if !in_code || !(path.ends_with(".rs") || path.ends_with("/Cargo.toml")) {
        return;
    }
    let named = path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    for name in named.filter(|name| EMPTY_NAMES.contains(name)) {
        findings.push(empty_name(path, 1, name));
    }
}

fn check_inline_modules(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (at, line) in code_only(text).lines().enumerate() {
        let words: Vec<&str> = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|w| !w.is_empty())
            .collect();
        for pair in words.windows(2) {
            if pair[0] == "mod" && EMPTY_NAMES.contains(&pair[1]) {
                findings.push(empty_name(path, at + 1, pair[1]));
            }
        }
    }
}

fn empty_name(path: &str, line: usize, name: &str) -> Finding {
    let advice = "name it after what it holds, or put its parts where they are used";
    Finding::new(path, line, format!("module or crate named `{name}`"), advice)
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        findings_of(check, &[(path, text)])
    }

    #[test]
    fn files_over_the_limit_are_reported() {
        let text = |count: usize| "\n".repeat(count);
        assert!(findings("crates/a/src/b.rs", &text(LINES_MAX)).is_empty());
        assert!(findings("Cargo.lock", &text(LINES_MAX + 1)).is_empty());
        let bad = findings("crates/a/src/b.rs", &text(LINES_MAX + 1));
        assert!(bad[0].contains("801 lines, over the limit of 800"), "{bad:?}");
    }

    #[test]
    fn names_that_say_nothing_are_reported() {
        for (path, text) in [
            ("crates/utils/Cargo.toml", ""),
            ("crates/a/src/misc.rs", ""),
            ("crates/a/src/common/mod.rs", ""),
            ("crates/a/src/b.rs", "pub(crate) mod helpers {}"),
            ("crates/a/src/b.rs", "mod util;"),
        ] {
            assert_eq!(findings(path, text).len(), 1, "{path} {text}");
        }
        for (path, text) in
            [("crates/a/src/commonly.rs", "mod commons; // mod utils;"), ("docs/common.md", "")]
        {
            assert_eq!(findings(path, text), Vec::<String>::new(), "{path}");
        }
    }
}
