//! From a path of ours to a directory and a name.
//!
//! Rules are those of POSIX, seen from the process: an absolute symbolic link leads from the
//! process's root, so it may lead out of the file system, and so may `..` at the prefix.
//! What is left over then is a path for the kernel.

use crate::mount::{Dir, Mount};
use crate::open::Open;
use crate::path;
use dfs::{FileKind, Obj, OpenFlags};
use std::rc::Rc;
use std::sync::Arc;
use types::limits::{NAME_BYTES_MAX, SYMLINK_DEPTH_MAX};
use types::{Code, Error, Result};

/// Where a path leads.
pub enum End {
    /// To a name in a directory; whether something has it is not known yet.
    Name {
        dir: Rc<Dir>,
        name: Vec<u8>,
        /// The path ends in a slash.
        wants_dir: bool,
    },
    /// To a directory as such: the prefix, `.`, `..`.
    Dir(Rc<Dir>),
    /// To an open file that is no directory, and its object: the path names its descriptor.
    Open(Arc<Open>, Obj),
    /// Out of the file system: a path for the kernel.
    Outside(Vec<u8>),
}

/// The start of a walk.
#[derive(Clone)]
pub struct From {
    /// The directory; none: the prefix.
    pub dir: Option<Rc<Dir>>,
    /// What to walk from there.
    pub text: Vec<u8>,
    /// Symbolic links followed so far.
    pub links: usize,
}

/// Walks to the last name of a path, which is not looked at.
pub async fn walk(mount: &Mount, from: &mut From) -> Result<End> {
    if let Some(end) = quick(mount, from).await? {
        return Ok(end);
    }
    let fs = mount.fs();
    let given = from.dir.is_none().then(|| from.text.clone());
    let links_given = from.links;
    let mut at = match from.dir.take() {
        Some(dir) => dir,
        None => mount.root().await?,
    };
    let mut rest = std::mem::take(&mut from.text);
    loop {
        let (name, tail) = next(&rest);
        if name.is_empty() {
            return Ok(End::Dir(at));
        }
        match name {
            b"." => {
                rest = tail.to_vec();
                continue;
            }
            b".." => {
                if at.path.is_empty() {
                    if !mount.prefix.path.is_empty() {
                        let above = split_last(&mount.prefix.path).0;
                        return Ok(End::Outside(path::join(above, tail)));
                    }
                } else {
                    at = dir_at(mount, split_last(&at.path).0).await?;
                }
                rest = tail.to_vec();
                continue;
            }
            name if name.len() > NAME_BYTES_MAX => return Err(Error::bare(Code::NameTooLong)),
            _ => {}
        }
        if next(tail).0.is_empty() {
            if let Some(text) = given.as_ref().filter(|_| from.links == links_given) {
                let (parent, last) = split_last(text);
                if last == name && !path::has_dot_dot(text) {
                    mount.cache(parent.to_vec(), &at);
                }
            }
            let wants_dir = !tail.is_empty();
            return Ok(End::Name { dir: at, name: name.to_vec(), wants_dir });
        }
        let here = below(&at.path, name);
        if let Some(dir) = mount.cached(&here) {
            at = dir;
            rest = tail.to_vec();
            continue;
        }
        let flags = OpenFlags::PATH | OpenFlags::NOFOLLOW;
        let obj = fs.lookup_rel(&at.obj, name, flags).await?;
        match obj.kind() {
            FileKind::Directory => {
                at = Rc::new(Dir { obj, path: here.clone() });
                mount.cache(here, &at);
                rest = tail.to_vec();
            }
            FileKind::Symlink => {
                let target = fs.readlink(&obj).await?;
                match follow(mount, at, &target, tail, from)? {
                    Some(outside) => return Ok(End::Outside(outside)),
                    None => {
                        at = match from.dir.take() {
                            Some(dir) => dir,
                            None => mount.root().await?,
                        };
                        rest = std::mem::take(&mut from.text);
                    }
                }
            }
            _ => return Err(Error::bare(Code::NotDir)),
        }
    }
}

/// Sets the walk to go on through a symbolic link in `dir`; or the path outside that it leads to.
pub fn follow(
    mount: &Mount,
    dir: Rc<Dir>,
    target: &[u8],
    tail: &[u8],
    from: &mut From,
) -> Result<Option<Vec<u8>>> {
    from.links += 1;
    if from.links > SYMLINK_DEPTH_MAX {
        return Err(Error::bare(Code::TooManyLinks));
    }
    let mut text = target.to_vec();
    if !tail.is_empty() {
        if tail[0] != b'/' {
            text.push(b'/');
        }
        text.extend_from_slice(tail);
    }
    if text.first() != Some(&b'/') {
        from.dir = Some(dir);
        from.text = text;
        return Ok(None);
    }
    let config = crate::config::get().ok_or_else(|| Error::bare(Code::Closed))?;
    match path::below_any(config, &text) {
        Some(spot) if std::ptr::eq(spot.prefix, mount.prefix) => {
            from.dir = None;
            from.text = spot.text;
            Ok(None)
        }
        _ => Ok(Some(text)),
    }
}

/// The most frequent case: the parent was used before, by the same text.
async fn quick(mount: &Mount, from: &From) -> Result<Option<End>> {
    let (parent, name) = split_last(&from.text);
    if name.is_empty() || name == b"." || name == b".." || name.len() > NAME_BYTES_MAX {
        return Ok(None);
    }
    let wants_dir = from.text.last() == Some(&b'/');
    let dir = match &from.dir {
        Some(dir) if parent.is_empty() => dir.clone(),
        Some(_) => return Ok(None),
        None if parent.iter().all(|byte| *byte == b'/') => mount.root().await?,
        None => match mount.cached(parent) {
            Some(dir) => dir,
            None => return Ok(None),
        },
    };
    Ok(Some(End::Name { dir, name: name.to_vec(), wants_dir }))
}

/// The directory at a path without symbolic links, as far as was known.
async fn dir_at(mount: &Mount, physical: &[u8]) -> Result<Rc<Dir>> {
    let fs = mount.fs();
    let mut at = mount.root().await?;
    for name in physical.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let here = below(&at.path, name);
        at = match mount.cached(&here) {
            Some(dir) => dir,
            None => {
                let flags = OpenFlags::PATH | OpenFlags::NOFOLLOW | OpenFlags::DIRECTORY;
                let obj = fs.lookup_rel(&at.obj, name, flags).await?;
                let dir = Rc::new(Dir { obj, path: here.clone() });
                mount.cache(here, &dir);
                dir
            }
        };
    }
    Ok(at)
}

/// A path and a name below it.
pub fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    [path, b"/", name].concat()
}

/// The first name of a path and what follows it.
fn next(path: &[u8]) -> (&[u8], &[u8]) {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    let path = &path[start..];
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    path.split_at(end)
}

/// What is before the last name, without slashes at its end, and the last name.
fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let path = &path[..end];
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let parent = &path[..start];
    let parent_end = parent.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    (&parent[..parent_end], &path[start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split() {
        let cases: [(&str, &str, &str); 6] = [
            ("/a/b", "/a", "b"),
            ("/a//b//", "/a", "b"),
            ("/a", "", "a"),
            ("a", "", "a"),
            ("a/b", "a", "b"),
            ("//", "", ""),
        ];
        for (path, parent, name) in cases {
            let want = (parent.as_bytes(), name.as_bytes());
            assert_eq!(split_last(path.as_bytes()), want, "{path}");
        }
        assert_eq!(next(b"//a/b"), (&b"a"[..], &b"/b"[..]));
        assert_eq!(next(b"//"), (&b""[..], &b""[..]));
    }
}
