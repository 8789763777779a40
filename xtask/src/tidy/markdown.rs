//! Documents name only things that exist: links, repository paths, and every crate in the map.
//!
//! Text in fenced code blocks is left alone: examples may name what the reader will make.

use super::{Finding, Repo};

/// Folders of the repository; text in backticks that begins with one is a path in it.
const ROOTS: [&str; 6] = ["crates/", "docs/", "scripts/", "xtask/", ".ci/", ".cargo/"];

/// Reports dead links, dead paths, and crates that the code map leaves out.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    for (path, text) in repo.with_suffix(".md") {
        for (line, content) in prose_lines(text) {
            for span in code_spans(content).filter(|span| is_repo_path(span)) {
                let bare = span.split(':').next().unwrap_or(span);
                if !repo.has(bare) {
                    let advice = "correct the path, or say in words what is planned";
                    let what = format!("`{span}` does not exist");
                    findings.push(Finding::new(path, line, what, advice));
                }
            }
            for target in link_targets(content) {
                if let Some(what) = link_fault(repo, path, text, target) {
                    findings.push(Finding::new(path, line, what, "correct the link"));
                }
            }
        }
    }
    check_code_map(repo, findings);
}

/// Every crate must be named in the code map, or the map rots.
fn check_code_map(repo: &Repo, findings: &mut Vec<Finding>) {
    const MAP: &str = "ARCHITECTURE.md";
    let Some(Some(map)) = repo.files.get(MAP) else { return };
    for (path, _) in repo.with_suffix("/Cargo.toml") {
        let Some(name) = path.strip_prefix("crates/").and_then(|p| p.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        if !map.contains(&format!("`{name}`")) {
            findings.push(Finding::new(
                MAP,
                1,
                format!("the code map does not name the crate `{name}`"),
                "add a line: what it is and what it does not know",
            ));
        }
    }
}

/// Lines outside fenced code blocks, numbered from 1.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((at + 1, line))
    })
}

/// Texts between backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_repo_path(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    ROOTS.iter().any(|root| span.starts_with(root)) && span.chars().all(plain)
}

/// Targets of `[text](target)` outside code spans.
fn link_targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for prose in line.split('`').step_by(2) {
        let mut rest = prose;
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, tail)) = after.split_once(')') else { break };
            // A title may follow the target.
            targets.extend(target.split_whitespace().next());
            rest = tail;
        }
    }
    targets
}

/// What is wrong with a link, if anything. Links to other sites are not followed.
fn link_fault(repo: &Repo, from: &str, text: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(f, a)| (f, Some(a)));
    let dead = || Some(format!("link to `{target}` leads nowhere"));
    let text = if file.is_empty() {
        Some(text)
    } else {
        let Some(path) = resolve(from, file) else { return dead() };
        if !repo.has(&path) {
            return dead();
        }
        repo.files.get(&path).and_then(Option::as_deref).filter(|_| path.ends_with(".md"))
    };
    match (anchor, text) {
        (Some(anchor), Some(text)) if !headings(text).any(|heading| heading == anchor) => dead(),
        _ => None,
    }
}

/// The path a relative link means; `None` when it leaves the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Anchors of a document's headings, as the common renderers make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose_lines(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        line.trim_start_matches('#')
            .trim()
            .to_lowercase()
            .chars()
            .filter(|&c| c.is_alphanumeric() || " -_".contains(c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let files = [
            ("docs/page.md", text),
            ("docs/other.md", "# Other\n\n## Two words, really\n"),
            ("crates/wire/src/lib.rs", ""),
        ];
        findings_of(check, &files)
    }

    #[test]
    fn names_and_links_that_exist_pass() {
        for good in [
            "see `crates/wire/src/lib.rs`, `crates/wire/` and `docs/other.md:3`",
            "see [other](other.md), [up](../crates/wire), [here](#top)\n\n# Top",
            "[two](other.md#two-words-really) [web](https://example.org/x)",
            "`crates/*/src` and `crates/NAME x` are patterns; `a/b` is no path of ours",
            "```\ncrates/none\n[x](none.md)\n`docs/none.md`\n```",
            "code that looks like a link: `a[0](x)`",
        ] {
            assert_eq!(findings(good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn dead_names_and_links_are_reported_with_their_line() {
        for bad in [
            "\n`crates/none/src/lib.rs`",
            "\n`scripts/none.sh`",
            "\n[x](none.md)",
            "\n[x](../../outside.md)",
            "\n[x](/docs/other.md)",
            "\n[x](other.md#nothing-here)",
            "\n[x](#nothing-here)",
        ] {
            let found = findings(bad);
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
            assert!(found[0].starts_with("docs/page.md:2: "), "{found:?}");
        }
    }

    #[test]
    fn the_code_map_names_every_crate() {
        let manifests = [("crates/wire/Cargo.toml", ""), ("crates/vos/Cargo.toml", "")];
        let with_map = |map| {
            let mut files = manifests.to_vec();
            files.push(("ARCHITECTURE.md", map));
            let mut findings = Vec::new();
            check(&Repo::of(&files), &mut findings);
            findings
        };
        assert!(with_map("`wire` and `vos`").is_empty());
        let missing = with_map("`wire` alone");
        assert!(missing.len() == 1 && missing[0].what.contains("`vos`"), "{missing:?}");
    }
}
