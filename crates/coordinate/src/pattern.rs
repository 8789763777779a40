//! Patterns for names: `*` any characters, `?` one character, all else itself.

use std::fmt;

/// A pattern; matching takes time in proportion to the product of both lengths at worst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern that this text is; every text is one.
    pub fn new(text: &str) -> Pattern {
        Pattern(text.to_string())
    }

    /// True when it matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        let pattern: &[u8] = self.0.as_bytes();
        let (mut at, mut rest) = (0, name);
        // Where to go on when what follows the last star does not match: let it take one more.
        let mut retry: Option<(usize, &str)> = None;
        loop {
            let next = rest.chars().next();
            match (pattern.get(at), next) {
                (Some(b'*'), _) => {
                    at += 1;
                    retry = Some((at, rest));
                    continue;
                }
                (Some(b'?'), Some(one)) => {
                    at += 1;
                    rest = &rest[one.len_utf8()..];
                    continue;
                }
                (Some(_), Some(one)) if self.0[at..].starts_with(one) => {
                    at += one.len_utf8();
                    rest = &rest[one.len_utf8()..];
                    continue;
                }
                (None, None) => return true,
                _ => {}
            }
            let Some((star, taken)) = retry else { return false };
            let Some(one) = taken.chars().next() else { return false };
            rest = &taken[one.len_utf8()..];
            retry = Some((star, rest));
            at = star;
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, as short as it can be said.
    fn naive(pattern: &[char], name: &[char]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, rest) => rest.is_none(),
            (Some(('*', after)), None) => naive(after, name),
            (Some(('*', after)), Some((_, rest))) => naive(after, name) || naive(pattern, rest),
            (Some((one, after)), Some((other, rest))) => {
                (*one == '?' || one == other) && naive(after, rest)
            }
            (Some(_), None) => false,
        }
    }

    proptest::proptest! {
        #[test]
        fn it_means_what_the_definition_says(pattern in "[ab*?é]{0,7}", name in "[abé]{0,9}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = naive(&chars(&pattern), &chars(&name));
            proptest::prop_assert_eq!(Pattern::new(&pattern).matches(&name), expected);
        }
    }
}
