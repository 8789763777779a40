//! Shell patterns for names: `*`, `?`, `[a-z]`, `[!a-z]`, `\` before a character.

/// True when the whole name matches. An unclosed bracket is a plain `[`.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Position to go back to: behind the last star, and the name it has been tried against.
    let mut star: Option<(usize, usize)> = None;
    let (mut p, mut n) = (0, 0);
    while n < name.len() {
        let step = if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        } else {
            one(&pattern[p.min(pattern.len())..], name[n])
        };
        match (step, star) {
            (Some(used), _) => {
                p += used;
                n += 1;
            }
            // Let the last star take one byte more.
            (None, Some((behind, at))) => {
                star = Some((behind, at + 1));
                (p, n) = (behind, at + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Length of the pattern's first item if it matches the byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => match bracket(rest, byte) {
            Some((hit, used)) => hit.then_some(1 + used),
            None => (byte == b'[').then_some(1),
        },
        [plain, ..] => (*plain == byte).then_some(1),
        [] => None,
    }
}

/// Whether a bracket expression (behind its `[`) holds the byte, and its length with the `]`.
fn bracket(pattern: &[u8], byte: u8) -> Option<(bool, usize)> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let start = negated as usize;
    let mut at = start;
    let mut hit = false;
    loop {
        match *pattern.get(at..)? {
            // First in the list a `]` is one of its members.
            [b']', ..] if at > start => return Some((hit != negated, at + 1)),
            [low, b'-', high, ..] if high != b']' => {
                hit |= (low..=high).contains(&byte);
                at += 3;
            }
            [member, ..] => {
                hit |= member == byte;
                at += 1;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;
    use proptest::prelude::*;

    #[test]
    fn patterns_of_the_shell() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*01*", "file.mdtest.0.0101", true),
            ("*01*", "file.10", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a", "[a", true),
            (r"\*", "*", true),
            (r"\*", "x", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("", "", true),
            ("", "a", false),
            ("**", "abc", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    /// The definition, by trying everything.
    fn naive(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], _) => name.is_empty(),
            ([b'*', rest @ ..], _) => (0..=name.len()).any(|skip| naive(rest, &name[skip..])),
            ([b'?', rest @ ..], [_, tail @ ..]) => naive(rest, tail),
            ([plain, rest @ ..], [byte, tail @ ..]) => plain == byte && naive(rest, tail),
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn stars_match_as_their_definition_says(pattern in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                naive(pattern.as_bytes(), name.as_bytes())
            );
        }

        #[test]
        fn any_bytes_are_a_pattern(pattern: Vec<u8>, name: Vec<u8>) {
            let _ = matches(&pattern, &name);
        }
    }
}
