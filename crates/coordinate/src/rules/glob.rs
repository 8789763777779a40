//! Patterns of paths and host names.
//!
//! `?` is any byte but `/`; `*` any run of such bytes; `**` any run of bytes, and `**/` at the
//! start or after a `/` also nothing at all, so that `/a/**/b` means `/a/b` too; `[a-z]` and
//! `[!a-z]` are sets, never with `/`; `\` takes the next byte as it is. Nothing else is special.
//!
//! Why not a crate: matching happens where nothing may be allocated. It walks the pattern once
//! and goes back to the last `*`, then to the last `**`; earlier ones need no second try, because
//! a later one reaches whatever they would have reached, and a `*` is fenced in by the slashes
//! around it. Time is at most text times pattern; a test compares with plain recursion.

/// Where to go on when the pattern does not fit: pattern position after the star, text position.
#[derive(Clone, Copy)]
struct Retry {
    pattern: usize,
    text: usize,
    /// The star may only end behind a slash.
    behind_slash: bool,
}

/// True when the whole text fits the pattern.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let (mut star, mut stars): (Option<Retry>, Option<Retry>) = (None, None);
    loop {
        if p == pattern.len() && t == text.len() {
            return true;
        }
        if pattern[p..].starts_with(b"**") {
            let anchored = p == 0 || pattern[p - 1] == b'/';
            let behind_slash = anchored && pattern.get(p + 2) == Some(&b'/');
            p += if behind_slash { 3 } else { 2 };
            stars = Some(Retry { pattern: p, text: t, behind_slash });
            star = None;
            continue;
        }
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some(Retry { pattern: p, text: t, behind_slash: false });
            continue;
        }
        if let Some(length) = text.get(t).and_then(|byte| one(&pattern[p..], *byte)) {
            p += length;
            t += 1;
            continue;
        }
        // One more byte for the last `*`, or else for the last `**`.
        if let Some(at) = star.as_mut().filter(|at| text.get(at.text).is_some_and(|b| *b != b'/')) {
            at.text += 1;
            (p, t) = (at.pattern, at.text);
            continue;
        }
        star = None;
        let Some(at) = stars.as_mut() else { return false };
        let Some(rest) = text.get(at.text..).filter(|rest| !rest.is_empty()) else { return false };
        at.text += match at.behind_slash {
            false => 1,
            true => match rest.iter().position(|byte| *byte == b'/') {
                Some(slash) => slash + 1,
                None => return false,
            },
        };
        (p, t) = (at.pattern, at.text);
    }
}

/// Length of the pattern's first element when it takes this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => (byte != b'/').then_some(1),
        b'[' => match set(pattern, byte) {
            Some((length, inside)) => (inside && byte != b'/').then_some(length),
            None => (byte == b'[').then_some(1),
        },
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        plain => (plain == byte).then_some(1),
    }
}

/// Length of a set and whether the byte is in it; none when the set is not closed.
fn set(pattern: &[u8], byte: u8) -> Option<(usize, bool)> {
    let mut at = 1;
    let negated = pattern.get(at) == Some(&b'!');
    at += usize::from(negated);
    let first = at;
    let mut inside = false;
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((at + 1, inside != negated));
        }
        let range = pattern.get(at + 1) == Some(&b'-') && pattern.get(at + 2)? != &b']';
        let high = if range { pattern[at + 2] } else { low };
        inside |= (low..=high).contains(&byte);
        at += if range { 3 } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_forms_people_type() {
        for (pattern, text, fits) in [
            ("", "", true),
            ("", "a", false),
            ("/scratch/*", "/scratch/a", true),
            ("/scratch/*", "/scratch/a/b", false),
            ("/scratch/**", "/scratch/a/b", true),
            ("/scratch/**/out.*", "/scratch/out.1", true),
            ("/scratch/**/out.*", "/scratch/a/b/out.1", true),
            ("/scratch/**/out.*", "/scratch/a/b/layout.1", false),
            ("**/out.*", "/a/out.1", true),
            ("**", "/anything/at all", true),
            ("node0[0-3]", "node02", true),
            ("node0[0-3]", "node04", false),
            ("node0[!0-3]", "node04", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[", "[", true),
            ("a[!b]c", "a/c", false),
            ("a?c", "a/c", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a**a**/b", "aaa/b", true),
            ("*.nc", ".nc", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_longer_than_its_product() {
        let pattern = b"*a".repeat(200);
        let text = vec![b'a'; 20_000];
        assert!(matches(&pattern, &text));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }

    /// The definition, by trying everything.
    fn naive(pattern: &[u8], text: &[u8], anchored: bool) -> bool {
        let Some(first) = pattern.first() else { return text.is_empty() };
        if pattern.starts_with(b"**/") && anchored {
            let mut ends = (0..=text.len()).filter(|at| *at == 0 || text[at - 1] == b'/');
            return ends.any(|at| naive(&pattern[3..], &text[at..], true));
        }
        if pattern.starts_with(b"**") {
            return (0..=text.len()).any(|at| naive(&pattern[2..], &text[at..], false));
        }
        if *first == b'*' {
            let run = text.iter().take_while(|byte| **byte != b'/').count();
            return (0..=run).any(|at| naive(&pattern[1..], &text[at..], false));
        }
        let fits = text.first().is_some_and(|b| first == b || (*first == b'?' && *b != b'/'));
        fits && naive(&pattern[1..], &text[1..], *first == b'/')
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn as_plain_recursion_has_it(pattern in "[ab/*?]{0,9}", text in "[ab/]{0,9}") {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text), naive(pattern, text, true));
        }
    }
}
