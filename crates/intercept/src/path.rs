//! Which paths are ours.
//!
//! Every call with a path passes here, so for paths that are not ours nothing is allocated and no
//! lock is taken. Decided by the text of a path: a symbolic link outside that leads below a prefix
//! is the kernel's to follow, and leads to the mount if there is one. Links inside are followed
//! by [`crate::walk`], which also finds out that a path leaves the file system.

use crate::config::{self, Prefix};
use crate::open::Open;
use crate::{cwd, inside, numbered, table};
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::sync::Arc;

/// Where a path begins.
#[derive(Clone)]
pub enum Start {
    Prefix,
    /// At an open directory.
    Dir(Arc<Open>),
}

/// A path of ours.
#[derive(Clone)]
pub struct Spot {
    pub prefix: &'static Prefix,
    pub start: Start,
    /// What follows, with slashes as given; may be empty.
    pub text: Vec<u8>,
}

impl Spot {
    /// The path as the process names it, for messages and for the mount.
    pub fn full(&self) -> Vec<u8> {
        let mut path = self.prefix.path.clone();
        if let Start::Dir(open) = &self.start {
            path.extend_from_slice(&open.path());
        }
        if !self.text.is_empty() && self.text[0] != b'/' {
            path.push(b'/');
        }
        path.extend_from_slice(&self.text);
        path
    }
}

/// The bytes of a path; none for a null pointer.
///
/// # Safety
/// Null or a string.
pub unsafe fn bytes<'a>(path: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: by the caller's promise.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// A path seen from a directory, if it is ours.
///
/// # Safety
/// `path` is null or a string.
#[inline]
pub unsafe fn locate(dir: c_int, path: *const c_char) -> Option<Spot> {
    // SAFETY: by the caller's promise.
    unsafe { find(dir, path, false) }
}

/// [`locate`] for calls that follow a symbolic link at the end of a path, if they do (`follows`):
/// to them `/dev/stdin` and the like are what the descriptor is.
///
/// # Safety
/// `path` is null or a string.
#[inline]
pub unsafe fn locate_end(dir: c_int, path: *const c_char, follows: bool) -> Option<Spot> {
    // SAFETY: by the caller's promise.
    unsafe { find(dir, path, follows) }
}

/// # Safety
/// `path` is null or a string.
#[inline]
unsafe fn find(dir: c_int, path: *const c_char, follows: bool) -> Option<Spot> {
    let config = config::get()?;
    if inside::is_inside() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let path = unsafe { bytes(path) }?;
    // What is wrong with such a path the kernel says as well.
    if path.is_empty() || path.len() >= PATH_BYTES {
        return None;
    }
    if table::any()
        && let Some(spot) = numbered::spot(path, follows)
    {
        return Some(spot);
    }
    locate_bytes(config, dir, path).or_else(|| {
        // A relative path may lead there as well.
        if table::any() && path[0] != b'/' && !table::is_ours(dir) {
            return numbered::spot_from(dir, path, follows);
        }
        None
    })
}

/// [`locate`] for bytes, whether the thread is inside or not.
pub fn locate_bytes(config: &'static config::Config, dir: c_int, path: &[u8]) -> Option<Spot> {
    if path.first() == Some(&b'/') {
        return below_any(config, path);
    }
    if dir != libc::AT_FDCWD {
        return match table::find(dir) {
            Some(open) => {
                Some(Spot { prefix: open.prefix, start: Start::Dir(open), text: path.to_vec() })
            }
            None => from_above(config, dir, path),
        };
    }
    if cwd::concerns(path) { cwd::locate(config, path) } else { None }
}

/// A path seen from a directory of the kernel's. Asks where that is only when the first name is
/// one on the way to a prefix.
fn from_above(config: &'static config::Config, dir: c_int, path: &[u8]) -> Option<Spot> {
    let first = path.split(|byte| *byte == b'/').next()?;
    let on_the_way = |prefix: &Prefix| prefix.path.split(|byte| *byte == b'/').any(|n| n == first);
    if first.is_empty() || !config.prefixes.iter().any(on_the_way) {
        return None;
    }
    let above = rustix::fs::readlink(format!("/proc/self/fd/{dir}"), Vec::new()).ok()?;
    below_any(config, &join(above.as_bytes(), path))
}

/// An absolute path below one of the prefixes.
pub fn below_any(config: &'static config::Config, path: &[u8]) -> Option<Spot> {
    config.prefixes.iter().find_map(|prefix| {
        let text = below(&prefix.path, path)?;
        Some(Spot { prefix, start: Start::Prefix, text })
    })
}

/// Room that a path has, with the byte that ends it.
pub const PATH_BYTES: usize = libc::PATH_MAX as usize;

/// What follows a prefix in an absolute path; none when it is not below it.
fn below(prefix: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let mut wanted = prefix.split(|byte| *byte == b'/').filter(|one| !one.is_empty());
    let mut rest = path;
    loop {
        let Some(want) = wanted.next() else { return Some(rest.to_vec()) };
        loop {
            let start = rest.iter().position(|byte| *byte != b'/')?;
            let name = &rest[start..];
            let end = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
            let (name, tail) = name.split_at(end);
            match name {
                b"." => rest = tail,
                b".." => {
                    // By text: what is above a prefix are directories of another file system,
                    // and where links lead there is not known here.
                    let mut room = [0; PATH_BYTES];
                    let plain = lexical(path, &mut room)?;
                    return below(prefix, plain);
                }
                name if name == want => {
                    rest = tail;
                    break;
                }
                // A name before `..` may still be given up.
                _ if has_dot_dot(tail) => {
                    let mut room = [0; PATH_BYTES];
                    let plain = lexical(path, &mut room)?;
                    return below(prefix, plain);
                }
                _ => return None,
            }
        }
    }
}

/// True when a component is `..`.
pub fn has_dot_dot(path: &[u8]) -> bool {
    path.windows(2).any(|two| two == b"..")
        && path.split(|byte| *byte == b'/').any(|name| name == b"..")
}

/// An absolute path without `.`, `..` and empty components, by text. None when it has no room.
pub fn lexical<'a>(path: &[u8], room: &'a mut [u8; PATH_BYTES]) -> Option<&'a [u8]> {
    let mut used = 0;
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => used = room[..used].iter().rposition(|byte| *byte == b'/').unwrap_or(0),
            name => {
                let end = used + 1 + name.len();
                if end > room.len() {
                    return None;
                }
                room[used] = b'/';
                room[used + 1..end].copy_from_slice(name);
                used = end;
            }
        }
    }
    if used == 0 {
        room[0] = b'/';
        used = 1;
    }
    Some(&room[..used])
}

/// Two parts of a path, one slash between.
pub fn join(head: &[u8], tail: &[u8]) -> Vec<u8> {
    let mut path = head.to_vec();
    if path.last() != Some(&b'/') && tail.first() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(tail);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_a_prefix_are_found() {
        let cases: [(&str, &str, Option<&str>); 16] = [
            ("/azk", "/azk", Some("")),
            ("/azk", "/azk/", Some("/")),
            ("/azk", "/azk/a/b", Some("/a/b")),
            ("/azk", "//azk//a", Some("//a")),
            ("/azk", "/./azk/a", Some("/a")),
            ("/azk", "/azkx/a", None),
            ("/azk", "/az", None),
            ("/azk", "/", None),
            ("/azk", "/usr/../azk/a", Some("/a")),
            ("/azk", "/usr/lib/../lib64/x", None),
            ("/azk", "/azk/a/../b", Some("/a/../b")),
            ("/m/azk", "/m/azk/x", Some("/x")),
            ("/m/azk", "/m/x/../azk/x", Some("/x")),
            ("/m/azk", "/m/x", None),
            ("/m/azk", "/..//m/azk", Some("")),
            ("", "/x", Some("/x")),
        ];
        for (prefix, path, want) in cases {
            let found = below(prefix.as_bytes(), path.as_bytes());
            assert_eq!(found.as_deref(), want.map(str::as_bytes), "{path} below {prefix}");
        }
    }

    #[test]
    fn paths_are_cleaned_by_text() {
        for (path, want) in
            [("/a/./b//c", "/a/b/c"), ("/a/../..", "/"), ("/", "/"), ("/a/b/..", "/a"), ("", "/")]
        {
            let mut room = [0; PATH_BYTES];
            assert_eq!(lexical(path.as_bytes(), &mut room), Some(want.as_bytes()), "{path}");
        }
        let mut room = [0; PATH_BYTES];
        assert_eq!(lexical(&[b'a'; 5000], &mut room), None);
    }
}
