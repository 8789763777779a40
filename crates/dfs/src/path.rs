//! Paths as bytes: splitting, limits.
//!
//! Empty components (`//`, a trailing `/`) mean nothing, except that a trailing slash demands a
//! directory.

use types::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use types::{Code, Error, Result};

/// Checks a path's length and its NUL bytes: `NonExist` when empty, `NameTooLong` beyond
/// `PATH_BYTES_MAX - 1` bytes (POSIX counts the terminating NUL).
pub fn check(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Err(Error::new(Code::NonExist, "the empty path names nothing"));
    }
    if path.len() >= PATH_BYTES_MAX {
        return Err(Error::new(
            Code::NameTooLong,
            format!("path of {} bytes is over the limit of {}", path.len(), PATH_BYTES_MAX - 1),
        ));
    }
    if path.contains(&0) {
        return Err(Error::inval("a path must not contain NUL bytes"));
    }
    Ok(())
}

/// `NameTooLong` for a component over 255 bytes.
pub fn check_component(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::bare(Code::NameTooLong));
    }
    Ok(())
}

/// Splits into everything before the last component, and that component without slashes.
/// The component is `None` for `/` and the like.
pub fn split_last(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    let Some(last) = path.iter().rposition(|&byte| byte != b'/') else {
        return (path, None);
    };
    let start = path[..=last].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    (&path[..start], Some(&path[start..=last]))
}

/// True when the path ends in a slash and so must name a directory.
pub fn wants_dir(path: &[u8]) -> bool {
    path.last() == Some(&b'/')
}

/// The path without `prefix`, which must be whole components; the path itself when it does
/// not begin with it.
pub fn strip_prefix<'a>(path: &'a [u8], prefix: &[u8]) -> &'a [u8] {
    let prefix = match prefix {
        [head @ .., b'/'] => head,
        all => all,
    };
    match path.strip_prefix(prefix) {
        Some(b"") if !prefix.is_empty() => b"/",
        Some(rest) if rest.first() == Some(&b'/') => rest,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path, its parent, its last name.
    type Case = (&'static [u8], &'static [u8], Option<&'static [u8]>);

    #[test]
    fn paths_split_at_their_last_component() {
        let cases: [Case; 8] = [
            (b"/", b"/", None),
            (b"///", b"///", None),
            (b"", b"", None),
            (b"a", b"", Some(b"a")),
            (b"/a", b"/", Some(b"a")),
            (b"/a/", b"/", Some(b"a")),
            (b"/a//b//", b"/a//", Some(b"b")),
            (b"a/b", b"a/", Some(b"b")),
        ];
        for (path, parent, name) in cases {
            assert_eq!(split_last(path), (parent, name), "{}", path.escape_ascii());
        }
    }

    #[test]
    fn limits_are_those_of_posix() {
        assert!(check(&[b'a'; 4095]).is_ok());
        assert_eq!(check(&[b'a'; 4096]).map_err(|e| e.code), Err(Code::NameTooLong));
        assert_eq!(check(b"").map_err(|e| e.code), Err(Code::NonExist));
        assert_eq!(check(b"a\0b").map_err(|e| e.code), Err(Code::Inval));
        assert!(check_component(&[b'a'; 255]).is_ok());
        assert!(check_component(&[b'a'; 256]).is_err());
    }

    #[test]
    fn a_prefix_is_stripped_at_component_borders_only() {
        assert_eq!(strip_prefix(b"/mnt/fs/a", b"/mnt/fs"), b"/a");
        assert_eq!(strip_prefix(b"/mnt/fs/a", b"/mnt/fs/"), b"/a");
        assert_eq!(strip_prefix(b"/mnt/fs", b"/mnt/fs"), b"/");
        assert_eq!(strip_prefix(b"/mnt/fsx/a", b"/mnt/fs"), b"/mnt/fsx/a");
        assert_eq!(strip_prefix(b"/a", b""), b"/a");
    }
}
