//! Targets that an Azekura mount names for a file.
//!
//! The extended attribute `azekura.targets` holds target names, separated by commas, in the order
//! of the file's chunks. A mount that does not answer it gets its mount point as target.

/// Name of the attribute.
pub const XATTR: &str = "azekura.targets";

/// Calls `visit` with each name. False when the bytes are no list of names: a name has 1 to 64
/// bytes of letters, digits, `.`, `_`, `-` and `/`. Nothing has been visited then.
pub fn targets(value: &[u8], mut visit: impl FnMut(&[u8])) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-/".contains(byte);
    let good = |name: &[u8]| (1..=64).contains(&name.len()) && name.iter().all(plain);
    let names = value.split(|byte| *byte == b',');
    if !names.clone().all(good) {
        return false;
    }
    names.for_each(&mut visit);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_what_is_none() {
        let found = |value: &[u8]| {
            let mut names = Vec::new();
            targets(value, |name| names.push(String::from_utf8(name.to_vec()).unwrap()))
                .then_some(names)
        };
        assert_eq!(found(b"tank/3,tank/7"), Some(vec!["tank/3".to_string(), "tank/7".into()]));
        assert_eq!(found(b"t"), Some(vec!["t".to_string()]));
        for bad in [&b""[..], b",", b"a,", b"a b", b"a\0", &[b'x'; 65]] {
            assert_eq!(found(bad), None);
        }
    }
}
