//! Blanks comments and literals out of Rust source, so that checks see code only.
//!
//! Invariant: the result has the same number of lines as the source, and every character that
//! stays is in its old line and column. A full parser is not needed: the few token kinds that
//! can hide text (comments, strings, characters) are enough.

/// The source with comments, strings and character literals replaced by spaces.
pub fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = hidden_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// End of the comment or literal that starts at `at`; `at` itself when none does.
fn hidden_end(chars: &[char], at: usize) -> usize {
    let next = |offset: usize| chars.get(at + offset).copied();
    let in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match chars[at] {
        '/' if next(1) == Some('/') => {
            chars[at..].iter().position(|&c| c == '\n').map_or(chars.len(), |n| at + n)
        }
        '/' if next(1) == Some('*') => block_comment_end(chars, at),
        '"' => string_end(chars, at + 1),
        '\'' => char_end(chars, at),
        'r' | 'b' | 'c' if !in_word => {
            let mut open = at + 1;
            if chars[at] != 'r' && chars.get(open) == Some(&'r') {
                open += 1;
            }
            let raw = chars[open - 1] == 'r';
            let hashes = chars[open..].iter().take_while(|&&c| c == '#').count();
            if raw && chars.get(open + hashes) == Some(&'"') {
                raw_string_end(chars, open + hashes + 1, hashes)
            } else {
                at
            }
        }
        _ => at,
    }
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                i += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut i: usize) -> usize {
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

fn raw_string_end(chars: &[char], mut i: usize, hashes: usize) -> usize {
    while i < chars.len() {
        let closing = chars[i + 1..].iter().take(hashes).filter(|&&c| c == '#').count();
        if chars[i] == '"' && closing == hashes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    chars.len()
}

/// A quote opens a character literal, unless it opens a lifetime.
fn char_end(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), Some(_)) => {
            chars[at + 3..].iter().position(|&c| c == '\'').map_or(chars.len(), |n| at + 3 + n + 1)
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hides_comments_and_literals_but_not_code() {
        for (source, shown) in [
            ("a // b", "a"),
            ("a /* b /* c */ d */ e", "a e"),
            ("f(\"x \\\" y\", z)", "f( , z)"),
            ("f(r#\"x \" y\"#, z)", "f( , z)"),
            ("f(br\"x\\\", z)", "f( , z)"),
            ("f('\"', '\\'', b)", "f( , , b)"),
            ("fn f<'a>(x: &'a u8) -> &'a u8", "fn f<'a>(x: &'a u8) -> &'a u8"),
            ("for r in list {}", "for r in list {}"),
        ] {
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&code_only(source)), shown, "{source}");
        }
    }

    #[test]
    fn keeps_lines_and_columns() {
        let source = "let a = \"one\ntwo\";\n/* x\n */ b();\n";
        let code = code_only(source);
        assert_eq!(code.lines().count(), source.lines().count());
        assert_eq!(code.lines().nth(3).unwrap().find("b()"), Some(4));
    }

    #[test]
    fn unfinished_literals_end_with_the_text() {
        for source in ["\"abc", "r#\"abc", "/* abc", "'\\", "'", "r", "br#", "\"\\"] {
            assert_eq!(code_only(source).chars().count(), source.chars().count());
        }
    }
}
