//! `azk://POOL/CONT/PATH`: the name of a file in a container.
//!
//! Pool and container are labels or UUIDs. The path is taken byte by byte: nothing is
//! percent-decoded, so any name a file can have can be written.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use types::{Error, Result};
use wire::control::Name;

const PREFIX: &[u8] = b"azk://";

/// A parsed URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    pub pool: Name,
    pub cont: Name,
    /// Absolute path in it; `/` for the root.
    pub path: Vec<u8>,
}

/// A URL, or a path of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    Remote(Url),
    Local(OsString),
}

impl Url {
    pub fn parse(text: &OsStr) -> Result<Url> {
        let bad = |what: &str| {
            Error::inval(format!(
                "'{}' {what} (want azk://POOL/CONTAINER/PATH)",
                text.to_string_lossy()
            ))
        };
        let rest =
            text.as_bytes().strip_prefix(PREFIX).ok_or_else(|| bad("is not an azk:// URL"))?;
        let mut parts = rest.splitn(3, |&byte| byte == b'/');
        let mut name = |what: &str| match parts.next().map(std::str::from_utf8) {
            Some(Ok(name)) if !name.is_empty() => Ok(Name::parse(name)),
            _ => Err(bad(what)),
        };
        let (pool, cont) = (name("names no pool")?, name("names no container")?);
        let mut path = b"/".to_vec();
        path.extend_from_slice(parts.next().unwrap_or_default());
        Ok(Url { pool, cont, path })
    }

    /// The same container, another path.
    pub fn with_path(&self, path: Vec<u8>) -> Url {
        Url { pool: self.pool.clone(), cont: self.cont.clone(), path }
    }

    /// True when both name the same container by the same names.
    pub fn same_container(&self, other: &Url) -> bool {
        self.pool == other.pool && self.cont == other.cont
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "azk://{}/{}{}", self.pool, self.cont, String::from_utf8_lossy(&self.path))
    }
}

impl FromStr for Url {
    type Err = Error;
    fn from_str(text: &str) -> Result<Url> {
        Url::parse(OsStr::new(text))
    }
}

impl Place {
    /// A URL if it begins like one, else a local path.
    pub fn parse(text: &OsStr) -> Result<Place> {
        if text.as_bytes().starts_with(PREFIX) {
            return Url::parse(text).map(Place::Remote);
        }
        if text.is_empty() {
            return Err(Error::inval("an empty string is not a path"));
        }
        Ok(Place::Local(text.to_os_string()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Remote(url) => url.fmt(f),
            Place::Local(path) => f.write_str(&path.to_string_lossy()),
        }
    }
}

/// `dir` and `name` with one slash between them.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The last component of a path; `None` when it has none or ends in `.` or `..`.
pub fn last_name(path: &[u8]) -> Option<&[u8]> {
    let name = path.split(|&byte| byte == b'/').rfind(|part| !part.is_empty())?;
    (name != b"." && name != b"..").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_parse_with_and_without_a_path() {
        for (text, path) in [
            ("azk://tank/home", "/"),
            ("azk://tank/home/", "/"),
            ("azk://tank/home/a/b c", "/a/b c"),
            ("azk://tank/home//a", "//a"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!(url.pool, Name::Label("tank".into()));
            assert_eq!(url.cont, Name::Label("home".into()));
            assert_eq!(url.path, path.as_bytes(), "{text}");
        }
        let url: Url = "azk://67e55044-10b1-426f-9247-bb680e5fe0c8/c/x".parse().unwrap();
        assert!(matches!(url.pool, Name::Uuid(_)));
        assert_eq!(url.to_string(), "azk://67e55044-10b1-426f-9247-bb680e5fe0c8/c/x");
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, what) in [
            ("azk:/tank/home", "not an azk:// URL"),
            ("azk://", "no pool"),
            ("azk://tank", "no container"),
            ("azk://tank/", "no container"),
            ("azk:///home/x", "no pool"),
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("azk://POOL"), "{text}: {error}");
        }
    }

    #[test]
    fn names_of_any_bytes_survive() {
        let raw = b"azk://p/c/\xff\xfe%20";
        let url = Url::parse(OsStr::from_bytes(raw)).unwrap();
        assert_eq!(url.path, b"/\xff\xfe%20");
    }

    #[test]
    fn paths_join_and_split() {
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(last_name(b"/a/b/"), Some(&b"b"[..]));
        assert_eq!(last_name(b"/"), None);
        assert_eq!(last_name(b"a/."), None);
        assert_eq!(last_name(b".."), None);
    }
}
