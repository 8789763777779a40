//! Rules for Rust sources: module headers, reasons for `unsafe`, no unfinished work.

use super::lexer::code_only;
use super::{Finding, Repo};

/// Lines above an `unsafe` in which its reason must begin (a longer comment block counts whole).
const REASON_LINES_MAX: usize = 4;

/// Macros of unfinished work. Written in parts where a comment would be searched too.
const UNFINISHED_MACROS: [&str; 3] = ["dbg", "todo", "unimplemented"];
const UNFINISHED_WORDS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];

/// Reports missing headers, `unsafe` without a reason, and unfinished work.
pub fn check(repo: &Repo, findings: &mut Vec<Finding>) {
    for (path, text) in repo.with_suffix(".rs") {
        if needs_header(path) && !text.starts_with("//!") {
            findings.push(Finding::new(
                path,
                1,
                "no module header",
                "begin the file with `//!` lines: what it is, its invariants, why so",
            ));
        }
        let code = code_only(text);
        let code: Vec<&str> = code.lines().collect();
        let raw: Vec<&str> = text.lines().collect();
        for (at, line) in code.iter().enumerate() {
            unfinished_code(path, at, line, findings);
            if starts_unsafe(&code, at) && !is_explained(&raw, at, is_safety) {
                findings.push(Finding::new(
                    path,
                    at + 1,
                    "`unsafe` without a reason",
                    "write `// SAFETY:` above it (or `# Safety` in the doc of an `unsafe fn`)",
                ));
            }
        }
        for (at, line) in raw.iter().enumerate() {
            for word in UNFINISHED_WORDS.iter().filter(|word| has_word(line, word)) {
                let advice = "do it now, or plan it in docs/plan.md and remove the mark";
                findings.push(Finding::new(path, at + 1, format!("`{word}` left behind"), advice));
            }
        }
    }
}

fn needs_header(path: &str) -> bool {
    path.starts_with("xtask/") || (path.starts_with("crates/") && path.contains("/src/"))
}

fn unfinished_code(path: &str, at: usize, code: &str, findings: &mut Vec<Finding>) {
    for name in UNFINISHED_MACROS {
        if words(code).any(|(end, word)| word == name && code[end..].starts_with('!')) {
            let advice = "finish the work; the main branch holds no stubs";
            findings.push(Finding::new(path, at + 1, format!("`{name}!` left behind"), advice));
        }
    }
    let packed: String = code.split_whitespace().collect();
    if packed.contains("#[ignore") {
        let advice = "make the test run, or remove it: a test that never runs proves nothing";
        findings.push(Finding::new(path, at + 1, "ignored test", advice));
    }
}

/// True when the line holds an `unsafe` block, impl or fn (not a mere mention in a type).
fn starts_unsafe(code: &[&str], at: usize) -> bool {
    words(code[at]).any(|(end, word)| {
        if word != "unsafe" {
            return false;
        }
        // What follows may be on the next line.
        let rest = format!("{} {}", &code[at][end..], code.get(at + 1).unwrap_or(&""));
        let rest = rest.trim_start();
        if rest.starts_with('{') {
            return true;
        }
        let mut next = words(rest);
        let first = next.next().map(|(_, word)| word);
        let (after_fn, named) = match first {
            Some("impl") => return true,
            Some("fn") => (words(rest).next().map_or(0, |(end, _)| end), true),
            Some("extern") => match rest.find("fn") {
                Some(found) => (found + 2, true),
                None => return false,
            },
            _ => return false,
        };
        // `unsafe fn name(…)` defines; `unsafe fn(…)` only names a type.
        named && !rest[after_fn..].trim_start().starts_with('(')
    })
}

fn is_safety(line: &str) -> bool {
    line.contains("SAFETY:") || line.contains("# Safety")
}

/// True when a reason stands on the line, in the lines just above, or in the comment or
/// attribute block that touches them.
pub(super) fn is_explained(raw: &[&str], at: usize, is_reason: fn(&str) -> bool) -> bool {
    let in_block = |line: usize| {
        let text = raw[line].trim_start();
        text.starts_with("//") || text.starts_with("#[")
    };
    let mut above = at;
    while above > 0 {
        let touches = in_block(above - 1) && (above == at || in_block(above));
        if at - above >= REASON_LINES_MAX && !touches {
            break;
        }
        above -= 1;
    }
    raw[above..=at].iter().any(|line| is_reason(line))
}

pub(super) fn has_word(line: &str, wanted: &str) -> bool {
    words(line).any(|(_, word)| word == wanted)
}

/// Identifier-like words of a line, each with the offset where it ends.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    line.split(move |c| !in_word(c))
        .filter(|word| !word.is_empty())
        .map(move |word| (word.as_ptr() as usize - line.as_ptr() as usize + word.len(), word))
}

#[cfg(test)]
mod tests {
    use super::super::findings_of;
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        findings_of(check, &[(path, text)])
    }

    fn body(text: &str) -> Vec<String> {
        findings("crates/a/src/b.rs", &format!("//! Header.\n{text}"))
    }

    #[test]
    fn sources_begin_with_a_header() {
        assert!(findings("crates/a/src/b.rs", "//! What it is.\n").is_empty());
        assert!(findings("crates/a/tests/b.rs", "fn t() {}\n").is_empty());
        for path in ["crates/a/src/b.rs", "xtask/src/c.rs", "crates/a/src/bin/d.rs"] {
            let bad = findings(path, "// Not a header.\nfn f() {}\n");
            assert!(bad[0].starts_with(&format!("{path}:1: no module header")), "{bad:?}");
        }
    }

    #[test]
    fn unsafe_with_a_reason_passes() {
        for good in [
            "// SAFETY: the pointer is ours.\nunsafe { f() }",
            "let x = unsafe { f() }; // SAFETY: ours.",
            "// SAFETY: one\n// two\n// three\n// four\n// five\n// six\nunsafe impl Send for A {}",
            "// SAFETY: ours.\nlet x =\n    g(\n        unsafe { f() },\n    );",
            "/// Does.\n///\n/// # Safety\n///\n/// The caller owns it.\n#[inline]\npub unsafe fn f() {}",
            "/// # Safety\n/// Ours.\npub unsafe extern \"C\" fn f() {}",
            "type F = unsafe fn(u8);",
            "type F = unsafe extern \"C\" fn(u8);",
            "// unsafe { } in a comment",
            "let s = \"unsafe { }\";",
            "let unsafe_count = 1;",
        ] {
            assert_eq!(body(good), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn unsafe_without_a_reason_is_reported() {
        for bad in [
            "unsafe { f() }",
            "let x = unsafe\n{ f() };",
            "unsafe impl Send for A {}",
            "pub unsafe fn f() {}",
            "pub unsafe extern \"C\" fn f() {}",
            "// SAFETY: too far.\nlet a = 1;\nlet b = 2;\nlet c = 3;\nlet d = 4;\nunsafe { f() }",
        ] {
            let found = body(bad);
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
            assert!(found[0].contains("`unsafe` without a reason"));
        }
    }

    #[test]
    fn unfinished_work_is_reported() {
        let word = UNFINISHED_WORDS;
        for bad in [
            "fn f() { dbg!(1); }".to_string(),
            "fn f() { todo!() }".to_string(),
            "fn f() { std::unimplemented!(\"later\") }".to_string(),
            format!("// {}: later", word[0]),
            format!("// {}", word[1]),
            "#[ignore = \"slow\"]\nfn f() {}".to_string(),
            "#[ignore]\nfn f() {}".to_string(),
        ] {
            assert_eq!(body(&bad).len(), 1, "{bad}");
        }
        for good in ["let todo = 1;", "let s = \"todo!()\";", "not_todo!();", "// #[ignore]"] {
            assert_eq!(body(good), Vec::<String>::new(), "{good}");
        }
    }
}
