//! From a path to an entry.
//!
//! Rules are those of POSIX: every directory on the way needs search permission, a component
//! that is not a directory gives `NotDir`, at most 40 symbolic links are followed, a trailing
//! slash demands a directory and follows a link in the last place.

use crate::dir::DirAnchor;
use crate::entry::{Found, reply_kind};
use crate::flags::{Access, OpenFlags};
use crate::fs::Dfs;
use crate::inode::Inode;
use crate::layout::{MARKER, PARENT};
use crate::node::{Location, Obj};
use crate::path;
use async_recursion::async_recursion as boxed;
use types::limits::SYMLINK_DEPTH_MAX;
use types::{Code, Epoch, Error, Key, Oid, Result};
use wire::obj::{Cond, FetchIod, FetchWant, Fetched, Op, OpReply};

/// A directory on the way.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub oid: Oid,
    pub inode: Inode,
    pub location: Location,
}

/// Where a path leads.
pub(crate) struct Walked {
    /// Directories from the start to the one that holds the last component; never empty.
    pub steps: Vec<Step>,
    /// The last component and what is there; `None` when the path ends in the last step itself.
    pub last: Option<(Key, Option<Found>)>,
    /// The path ended in a slash.
    pub wants_dir: bool,
    /// Symbolic links followed.
    pub links: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct WalkHow {
    /// Follow a symbolic link in the last place.
    pub follow: bool,
    /// Register an open handle on what is found.
    pub open: bool,
    /// Symbolic links followed already.
    pub links: usize,
}

impl Step {
    pub fn of(obj: &Obj) -> Step {
        Step { oid: obj.oid(), inode: obj.node.inode(), location: obj.node.location() }
    }
}

impl Dfs {
    /// The root as the start of a walk.
    async fn root_step(&self) -> Result<Step> {
        let inode = self.shared.fetch_root().await?.inode;
        Ok(Step { oid: inode.oid, inode, location: self.shared.root_location() })
    }

    /// The parent of a directory, as `..` of a handle wants it. Markers name the parent but not
    /// its name, so that is looked for among the grandparent's entries: slow, and rare.
    async fn parent_step(&self, oid: Oid) -> Result<Step> {
        let parent = self.parent_of(oid).await?.0;
        if self.shared.is_root(parent) {
            return self.root_step().await;
        }
        let above = self.parent_of(parent).await?.0;
        let mut anchor = DirAnchor::start();
        while !anchor.is_end() {
            for (name, found) in self.shared.read_page(above, &mut anchor, 4096, false).await? {
                if found.inode.oid == parent {
                    let location = Location { parent: above, name };
                    return Ok(Step { oid: parent, inode: found.inode, location });
                }
            }
        }
        Err(Error::bare(Code::NonExist))
    }

    /// The parent in a directory's marker, and the marker's epoch. `NonExist` when the directory
    /// is gone.
    pub(crate) async fn parent_of(&self, oid: Oid) -> Result<(Oid, Epoch)> {
        let mut batch = self.shared.cont.batch();
        let want = FetchWant::Single { bytes_max: 16, inline_bytes_max: 16 };
        let iods = vec![FetchIod { akey: PARENT, want }];
        batch.op(Op::Fetch { unit: oid.first_unit(), dkey: MARKER, cond: Cond::NONE, iods });
        let result = batch.run().await?;
        let replies = result.replies()?;
        let Some(OpReply::Fetched(iods)) = replies.first() else {
            return Err(reply_kind());
        };
        match iods.first().map(|iod| (&iod.value, iod.epoch)) {
            Some((Fetched::Inline(raw), epoch)) => {
                let raw: [u8; 16] = (*raw).try_into().map_err(|_| reply_kind())?;
                Ok((Oid::from_bytes(raw), epoch))
            }
            Some((Fetched::Absent, _)) => Err(Error::bare(Code::NonExist)),
            _ => Err(reply_kind()),
        }
    }

    /// Walks `path` from the directory on top of `steps`; an absolute path starts at the root.
    pub(crate) async fn walk(
        &self,
        mut steps: Vec<Step>,
        path: &[u8],
        how: WalkHow,
    ) -> Result<Walked> {
        path::check(path)?;
        let mut rest = path.to_vec();
        let mut links = how.links;
        let mut last = None;
        let mut wants_dir = path::wants_dir(&rest);
        if steps.is_empty() || rest.first() == Some(&b'/') {
            steps = vec![self.root_step().await?];
        }
        loop {
            let (name, tail) = next_component(&rest);
            let Some(name) = name else {
                return Ok(Walked { steps, last, wants_dir, links });
            };
            let name = Key::new(name);
            let is_last = next_component(tail).0.is_none();
            let tail = tail.to_vec();
            let Some(top) = steps.last() else {
                return Err(Error::bare(Code::Inval));
            };
            if !top.inode.is_dir() {
                return Err(Error::bare(Code::NotDir));
            }
            self.check_access(&top.inode, Access::EXECUTE)?;
            if &*name == b"." {
                rest = tail;
                continue;
            }
            if &*name == b".." {
                let top = top.oid;
                if !self.shared.is_root(top) {
                    steps.pop();
                    if steps.is_empty() {
                        steps.push(self.parent_step(top).await?);
                    }
                }
                rest = tail;
                continue;
            }
            path::check_component(&name)?;
            let dir = top.oid;
            let found = self.shared.fetch_entry(dir, &name, how.open && is_last).await?;
            let follow = !is_last || how.follow || wants_dir;
            match found {
                Some(found) if found.inode.is_symlink() && follow => {
                    links += 1;
                    if links > SYMLINK_DEPTH_MAX {
                        return Err(Error::bare(Code::TooManyLinks));
                    }
                    if found.target.first() == Some(&b'/') {
                        steps = vec![self.root_step().await?];
                    }
                    rest = found.target.into_vec();
                    if is_last {
                        wants_dir |= path::wants_dir(&rest);
                    } else {
                        rest.push(b'/');
                        rest.extend_from_slice(&tail);
                    }
                }
                found if is_last => {
                    if let Some(found) = &found
                        && wants_dir
                        && !found.inode.is_dir()
                    {
                        if found.opened {
                            self.shared.cont.release(found.inode.oid);
                        }
                        return Err(Error::bare(Code::NotDir));
                    }
                    last = Some((name, found));
                    return Ok(Walked { steps, last, wants_dir, links });
                }
                Some(found) if found.inode.is_dir() => {
                    let location = Location { parent: dir, name };
                    let inode = found.inode;
                    steps.push(Step { oid: inode.oid, inode, location });
                    rest = tail;
                }
                Some(_) => return Err(Error::bare(Code::NotDir)),
                None => return Err(Error::bare(Code::NonExist)),
            }
        }
    }

    /// A handle on a directory met on the way.
    pub(crate) fn step_obj(&self, step: &Step, flags: OpenFlags) -> Obj {
        Obj::new(self.shared.node(step.location.clone(), step.inode), flags)
    }

    /// Opens what an absolute path names. Like [`Dfs::open`] without `CREATE`: `EXCL` has no
    /// meaning, `NOFOLLOW` opens a symbolic link itself only with `PATH`.
    #[boxed(?Send)]
    pub async fn lookup(&self, path: &[u8], flags: OpenFlags) -> Result<Obj> {
        let path = path::strip_prefix(path, &self.prefix()).to_vec();
        if path.first() != Some(&b'/') {
            return Err(Error::inval(format!("'{}' is not an absolute path", path.escape_ascii())));
        }
        self.lookup_absolute(&path, flags).await
    }

    /// Opens what an absolute path names that has lost its prefix already.
    pub(crate) async fn lookup_absolute(&self, path: &[u8], flags: OpenFlags) -> Result<Obj> {
        self.lookup_from(Vec::new(), path, flags).await
    }

    /// Opens what a path names, seen from a directory.
    #[boxed(?Send)]
    pub async fn lookup_rel(&self, parent: &Obj, path: &[u8], flags: OpenFlags) -> Result<Obj> {
        parent.require_dir()?;
        self.lookup_from(vec![Step::of(parent)], path, flags).await
    }

    async fn lookup_from(&self, steps: Vec<Step>, path: &[u8], flags: OpenFlags) -> Result<Obj> {
        let flags = flags.without(OpenFlags::CREATE);
        let how = WalkHow {
            follow: !flags.has(OpenFlags::NOFOLLOW),
            open: !flags.has(OpenFlags::PATH),
            links: 0,
        };
        for _ in 0..crate::create::RACES_MAX {
            let walked = self.walk(steps.clone(), path, how).await?;
            let Some(top) = walked.steps.last() else {
                return Err(Error::bare(Code::Inval));
            };
            let Some((name, found)) = walked.last else {
                self.check_open(&top.inode, flags)?;
                return Ok(self.step_obj(top, flags));
            };
            let found = found.ok_or_else(|| Error::bare(Code::NonExist))?;
            let location = Location { parent: top.oid, name };
            if let Some(obj) = self.open_found(location, found, flags).await? {
                return Ok(obj);
            }
        }
        Err(Error::bare(Code::NonExist))
    }
}

/// The first component and what follows it.
fn next_component(path: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let Some(start) = path.iter().position(|&byte| byte != b'/') else {
        return (None, &[]);
    };
    let path = &path[start..];
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    (Some(&path[..end]), &path[end..])
}

#[cfg(test)]
mod tests {
    use super::next_component;

    #[test]
    fn components_come_one_by_one() {
        assert_eq!(next_component(b"//a/b"), (Some(&b"a"[..]), &b"/b"[..]));
        assert_eq!(next_component(b"b"), (Some(&b"b"[..]), &b""[..]));
        assert_eq!(next_component(b"//"), (None, &b""[..]));
    }
}
