//! The checks of `cargo xtask tidy` and what they work on.
//!
//! Invariants: a check is a pure function of [`Repo`], so its tests need no files; it looks at
//! files that git tracks or would track, never at build output.

mod cells;
mod circles;
mod docs;
mod files;
mod layers;
mod lexer;
mod markdown;
mod rooms;
mod rust;
mod waits;
mod walks;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// Something that breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Finding {
    /// Path from the root of the repository.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    pub what: String,
    /// What the reader should do about it.
    pub advice: String,
}

impl Finding {
    /// A finding at a line counted from 1.
    pub fn new(path: &str, line: usize, what: impl Into<String>, advice: &str) -> Finding {
        Finding { path: path.into(), line, what: what.into(), advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.what, self.advice)
    }
}

/// The text files of the repository, by path from its root with `/` between parts.
#[derive(Default)]
pub struct Repo {
    /// Text of each file; files that are not UTF-8 are there with no text.
    pub files: BTreeMap<String, Option<String>>,
}

impl Repo {
    /// Reads all files that git tracks or would track.
    pub fn read(root: &Path) -> std::io::Result<Repo> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()?;
        if !listed.status.success() {
            return Err(std::io::Error::other(String::from_utf8_lossy(&listed.stderr).trim()));
        }
        let mut repo = Repo::default();
        for path in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|p| !p.is_empty()) {
            match std::fs::read(root.join(path)) {
                Ok(bytes) => {
                    repo.files.insert(path.to_string(), String::from_utf8(bytes).ok());
                }
                // A tracked file that was just removed is no longer part of the repository.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(repo)
    }

    /// Files whose name ends in `suffix`, with their text.
    pub fn with_suffix<'a>(
        &'a self,
        suffix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
        self.files.iter().filter_map(move |(path, text)| {
            path.ends_with(suffix).then_some((path.as_str(), text.as_deref()?))
        })
    }

    /// True when the path is a file, or a folder that holds one.
    pub fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        path.is_empty() || self.files.contains_key(path) || {
            let folder = format!("{path}/");
            self.files.range(folder.clone()..).next().is_some_and(|(at, _)| at.starts_with(&folder))
        }
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Repo {
        Repo {
            files: files
                .iter()
                .map(|(path, text)| (path.to_string(), Some(text.to_string())))
                .collect(),
        }
    }
}

/// Runs every check; findings are sorted by place.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    layers::check(repo, &mut findings);
    rooms::check(repo, &mut findings);
    circles::check(repo, &mut findings);
    rust::check(repo, &mut findings);
    waits::check(repo, &mut findings);
    docs::check(repo, &mut findings);
    markdown::check(repo, &mut findings);
    files::check(repo, &mut findings);
    walks::check(repo, &mut findings);
    cells::check(repo, &mut findings);
    findings.sort();
    findings.dedup();
    findings
}

/// What one check says of these files.
#[cfg(test)]
fn findings_of(check: fn(&Repo, &mut Vec<Finding>), files: &[(&str, &str)]) -> Vec<String> {
    let mut findings = Vec::new();
    check(&Repo::of(files), &mut findings);
    findings.iter().map(Finding::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_as_place_what_and_advice() {
        let finding = Finding::new("a/b.rs", 3, "bad thing", "do better");
        assert_eq!(finding.to_string(), "a/b.rs:3: bad thing: do better");
    }

    #[test]
    fn folders_exist_when_they_hold_a_file() {
        let repo = Repo::of(&[("docs/a.md", ""), ("docs-old/b.md", "")]);
        assert!(repo.has("docs") && repo.has("docs/") && repo.has("docs/a.md"));
        assert!(!repo.has("doc") && !repo.has("docs/b.md"));
    }

    #[test]
    fn this_repository_can_be_read_and_holds_this_file() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let repo = Repo::read(root).unwrap();
        assert!(repo.has("xtask/src/tidy/mod.rs"));
        assert!(!repo.has("target"));
    }
}
