//! Paths that name a descriptor: `/dev/stdin`, `/dev/fd/N`, `/proc/self/fd/N` and what else leads
//! there.
//!
//! To the kernel they are symbolic links to whatever the descriptor is, and a descriptor of ours is
//! nothing that it could open. So for calls that follow such a link the open file is found here, by
//! the text of the path. Who opens it gets a new description of the same file, as on Linux.

use crate::open::Open;
use crate::path::{self, Spot, Start};
use crate::{config, inside, table};
use libc::{c_char, c_int};
use std::sync::Arc;

/// What a path says about a descriptor.
#[derive(Debug, PartialEq, Eq)]
struct Named<'a> {
    fd: c_int,
    /// It is a name in `/dev` that leads to the link, not the link.
    is_alias: bool,
    /// What follows, with slashes; below a directory perhaps.
    rest: &'a [u8],
}

/// The first name of a path, without `.`, and what follows it.
fn next(mut path: &[u8]) -> (&[u8], &[u8]) {
    loop {
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        let tail = &path[start..];
        let end = tail.iter().position(|byte| *byte == b'/').unwrap_or(tail.len());
        let (name, tail) = tail.split_at(end);
        if name != b"." {
            return (name, tail);
        }
        path = tail;
    }
}

fn number(name: &[u8]) -> Option<c_int> {
    let plain =
        name.iter().all(u8::is_ascii_digit) && (name.len() == 1 || name.first() != Some(&b'0'));
    if plain { std::str::from_utf8(name).ok()?.parse().ok() } else { None }
}

/// Reads an absolute path. `is_self` tells whether a number is that of this process.
fn parse(path: &[u8], is_self: impl Fn(c_int) -> bool) -> Option<Named<'_>> {
    if path.first() != Some(&b'/') {
        return None;
    }
    let (mut name, mut rest) = next(path);
    match name {
        b"dev" => {
            (name, rest) = next(rest);
            let standard = [&b"stdin"[..], b"stdout", b"stderr"];
            if let Some(fd) = standard.iter().position(|one| *one == name) {
                return Some(Named { fd: fd as c_int, is_alias: true, rest });
            }
        }
        b"proc" => {
            (name, rest) = next(rest);
            if name != b"thread-self" {
                if name != b"self" && !number(name).is_some_and(is_self) {
                    return None;
                }
                let (inner, tail) = next(rest);
                if inner == b"task" {
                    // All threads of a process have the same descriptors.
                    let (thread, tail) = next(tail);
                    number(thread)?;
                    rest = tail;
                }
            }
            (name, rest) = next(rest);
        }
        _ => return None,
    }
    if name != b"fd" {
        return None;
    }
    (name, rest) = next(rest);
    Some(Named { fd: number(name)?, is_alias: false, rest })
}

fn read(path: &[u8]) -> Option<(Arc<Open>, Named<'_>)> {
    let own = || rustix::process::getpid().as_raw_nonzero().get();
    let named = parse(path, |number| number == own())?;
    Some((table::get(named.fd)?, named))
}

/// The spot behind an absolute path that leads through a descriptor of ours. `follows`: a link at
/// the end is followed; otherwise only what is below a directory is ours, the link is the kernel's.
pub fn spot(path: &[u8], follows: bool) -> Option<Spot> {
    let (open, named) = read(path)?;
    let is_end = named.rest.iter().all(|byte| *byte == b'/');
    if is_end && !follows && named.rest.is_empty() {
        return None;
    }
    Some(Spot { prefix: open.prefix, start: Start::Dir(open), text: named.rest.to_vec() })
}

/// True for a first name that may lead to a descriptor from some directory: most paths do not, and
/// where a directory is costs a call.
fn may_begin(path: &[u8]) -> bool {
    let (name, _) = next(path);
    const NAMES: [&[u8]; 8] =
        [b"stdin", b"stdout", b"stderr", b"fd", b"self", b"thread-self", b"dev", b"proc"];
    NAMES.contains(&name) || number(name).is_some()
}

/// The same for a path seen from a directory of the kernel's.
pub fn spot_from(dir: c_int, path: &[u8], follows: bool) -> Option<Spot> {
    full(dir, path).and_then(|path| spot(&path, follows))
}

fn full(dir: c_int, path: &[u8]) -> Option<Vec<u8>> {
    if path.first() == Some(&b'/') {
        return Some(path.to_vec());
    }
    if !table::any() || !may_begin(path) {
        return None;
    }
    let above = match dir {
        libc::AT_FDCWD => rustix::fs::readlink("/proc/self/cwd", Vec::new()),
        dir => rustix::fs::readlink(format!("/proc/self/fd/{dir}"), Vec::new()),
    };
    Some(path::join(above.ok()?.as_bytes(), path))
}

/// The open file whose link a path is: not a name in `/dev` that leads to the link.
///
/// # Safety
/// `path` is null or a string.
pub unsafe fn link(dir: c_int, path: *const c_char) -> Option<Arc<Open>> {
    config::get()?;
    if inside::is_inside() || !table::any() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let full = full(dir, unsafe { path::bytes(path) }?)?;
    let (open, named) = read(&full)?;
    (!named.is_alias && named.rest.is_empty()).then_some(open)
}

/// Where symbolic links of the kernel's lead, when that is a descriptor of ours: the kernel has
/// found what it cannot open.
///
/// # Safety
/// `path` is null or a string.
#[cold]
pub unsafe fn behind_links(dir: c_int, path: *const c_char) -> Option<Spot> {
    /// As many as the kernel follows.
    const LINKS_MAX: usize = 40;
    config::get()?;
    if inside::is_inside() || !table::any() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let mut at = unsafe { path::bytes(path) }?.to_vec();
    if at.first() != Some(&b'/') {
        let above = match dir {
            libc::AT_FDCWD => "/proc/self/cwd".to_string(),
            dir => format!("/proc/self/fd/{dir}"),
        };
        at = path::join(rustix::fs::readlink(above, Vec::new()).ok()?.as_bytes(), &at);
    }
    for _ in 0..LINKS_MAX {
        if let Some(spot) = spot(&at, true) {
            return Some(spot);
        }
        let target = rustix::fs::readlink(&at[..], Vec::new()).ok()?;
        at = match target.as_bytes().first() {
            Some(b'/') => target.into_bytes(),
            _ => {
                let end = at.iter().rposition(|byte| *byte == b'/')?;
                path::join(&at[..=end], target.as_bytes())
            }
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_descriptors_are_recognised() {
        type Case = (&'static str, Option<(c_int, bool, &'static str)>);
        let cases: [Case; 24] = [
            ("/dev/stdin", Some((0, true, ""))),
            ("/dev/stdout", Some((1, true, ""))),
            ("//dev/./stderr", Some((2, true, ""))),
            ("/dev/stdin/", Some((0, true, "/"))),
            ("/dev/fd/7", Some((7, false, ""))),
            ("/dev/fd/7/a/b", Some((7, false, "/a/b"))),
            ("/dev/fd", None),
            ("/dev/fd/", None),
            ("/dev/fd/x", None),
            ("/dev/fd/07", None),
            ("/dev/fd/0", Some((0, false, ""))),
            ("/dev/null", None),
            ("/proc/self/fd/12", Some((12, false, ""))),
            ("/proc/thread-self/fd/3", Some((3, false, ""))),
            ("/proc/42/fd/3", Some((3, false, ""))),
            ("/proc/43/fd/3", None),
            ("/proc/self/task/9/fd/3", Some((3, false, ""))),
            ("/proc/42/task/9/fd/3/x", Some((3, false, "/x"))),
            ("/proc/self/task/x/fd/3", None),
            ("/proc/self/fdinfo/3", None),
            ("/proc/self/cwd/fd/3", None),
            ("/proc/fd/3", None),
            ("dev/stdin", None),
            ("/dev/fd/99999999999", None),
        ];
        for (path, want) in cases {
            let found = parse(path.as_bytes(), |number| number == 42);
            let want =
                want.map(|(fd, is_alias, rest)| Named { fd, is_alias, rest: rest.as_bytes() });
            assert_eq!(found, want, "{path}");
        }
    }
}
