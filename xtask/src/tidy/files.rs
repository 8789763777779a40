//! Rules for files of any kind: size, names, and words that do not belong in the repository.

use super::lexer::code_only;
use super::{Finding, Repo};

/// Longest file that people are expected to read.
const LINES_MAX: usize = 800;
/// Endings of files that people read.
const READ_BY_PEOPLE: [&str; 7] = [".rs", ".md", ".py", ".sh", ".c", ".h", ".toml"];
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "common", "misc", "helpers", "helper"];

/// Marks of the machine a change was made on. Put together here, so that this file has none.
fn workplace_marks() -> [String; 3] {
    [format!("/{}/", "work"), format!("/{}/", "farm"), format!(".{}", "library")]
}

/// Reports over-long files, empty names and marks of the workplace.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    let marks = workplace_marks();
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
        for (at, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| has_mark(line, mark)) {
                let advice = "name no path of the machine it was made on; use a relative one";
                findings.push(Finding::new(path, at + 1, "path of a workplace", advice));
            }
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

/// True when the mark stands there as the start of a path, not inside a longer one.
fn has_mark(line: &str, mark: &str) -> bool {
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !mark.starts_with('/')
            || !before.is_some_and(|c| c.is_alphanumeric() || "_-.}/~*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(&Repo::of(&[(path, text)]), &mut findings);
        findings.iter().map(Finding::to_string).collect()
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

    #[test]
    fn marks_of_a_workplace_are_reported() {
        for mark in workplace_marks() {
            for text in [format!("{mark}x"), format!("a \"{mark}x\""), format!("dir={mark}")] {
                assert_eq!(findings("docs/a.md", &text).len(), 1, "{text}");
            }
        }
        for good in ["home/work/x", "the work/ folder", "farm", "a library"] {
            assert_eq!(findings("docs/a.md", good), Vec::<String>::new(), "{good}");
        }
    }
}
