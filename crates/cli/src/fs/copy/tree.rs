//! Walking over the sources: makes directories and links, hands files to the crew.
//!
//! The walk keeps its own stack, since trees may be deeper than a thread's. Invariant: nothing
//! is made in a directory that the target side does not have yet.

use super::job::{FileJob, Job, Shared, Task, compare_xattrs, copy_attrs};
use super::report::count;
use super::side::{Meta, Side};
use crate::url;
use dfs::FileKind;
use std::collections::HashMap;
use types::{Code, Error, Result};

/// How to walk.
pub struct Walk {
    /// Leave alone files whose size and mtime are the same.
    pub update: bool,
    /// What is done with each file.
    pub task: Task,
}

/// A source and what it becomes.
pub struct Root {
    /// Path on the source side.
    pub from: Vec<u8>,
    /// Path on the target side.
    pub to: Vec<u8>,
    pub meta: Meta,
}

/// A directory whose entries are still to be seen.
struct Dir {
    from: Vec<u8>,
    to: Vec<u8>,
    /// Made just now, so that there is nothing in it.
    is_new: bool,
}

/// One walk.
pub struct Walker<'a> {
    from: Box<dyn Side>,
    to: Box<dyn Side>,
    walk: &'a Walk,
    shared: &'a Shared<'a>,
    stack: Vec<Dir>,
    /// Directories met, parents first; they get their attributes at the end.
    dirs: Vec<(Vec<u8>, Vec<u8>, Meta)>,
    /// First target of files with several names.
    first_names: HashMap<(u64, u64), Vec<u8>>,
    /// First target and further name.
    further_names: Vec<(Vec<u8>, Vec<u8>)>,
    compare_owner: bool,
}

impl<'a> Walker<'a> {
    /// A walk between two sides of the calling thread.
    pub fn new(
        from: Box<dyn Side>,
        to: Box<dyn Side>,
        walk: &'a Walk,
        shared: &'a Shared<'a>,
    ) -> Walker<'a> {
        Walker {
            from,
            to,
            walk,
            shared,
            stack: Vec::new(),
            dirs: Vec::new(),
            first_names: HashMap::new(),
            further_names: Vec::new(),
            compare_owner: rustix::process::geteuid().is_root(),
        }
    }

    /// Walks over one source.
    pub fn walk(&mut self, root: &Root) {
        // A link given as the target is written through, one found in a tree is replaced.
        let follow = root.meta.kind == FileKind::Regular;
        let begun = self
            .to
            .meta(&root.to, follow)
            .and_then(|there| self.entry(&root.from, &root.to, &root.meta, there.as_ref()));
        self.note(begun);
        while let Some(dir) = self.stack.pop() {
            if self.shared.queue.is_stopped() {
                return;
            }
            let seen = self.dir(&dir);
            self.note(seen);
        }
    }

    fn note(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.shared.fail(error);
        }
    }

    fn dir(&mut self, dir: &Dir) -> Result<()> {
        let entries = self.from.list(&dir.from)?;
        let there: HashMap<Vec<u8>, Meta> = match dir.is_new {
            true => HashMap::new(),
            false => self.to.list(&dir.to)?.into_iter().collect(),
        };
        let first_below = self.stack.len();
        for (name, meta) in entries {
            if self.shared.queue.is_stopped() {
                return Ok(());
            }
            let (from, to) = (url::join(&dir.from, &name), url::join(&dir.to, &name));
            let outcome = self.entry(&from, &to, &meta, there.get(&name));
            self.note(outcome);
        }
        // So that they come off the stack in order.
        self.stack[first_below..].reverse();
        Ok(())
    }

    fn entry(&mut self, from: &[u8], to: &[u8], meta: &Meta, there: Option<&Meta>) -> Result<()> {
        match self.walk.task {
            Task::Copy => self.copy(from, to, meta, there),
            Task::Compare => self.compare(from, to, meta, there),
        }
    }

    fn copy(&mut self, from: &[u8], to: &[u8], meta: &Meta, there: Option<&Meta>) -> Result<()> {
        let is_dir_there = there.is_some_and(|there| there.kind == FileKind::Directory);
        if is_dir_there && meta.kind != FileKind::Directory {
            return Err(self.in_the_way(to, Code::IsDir, "is a directory"));
        }
        match meta.kind {
            FileKind::Directory => {
                if there.is_some() && !is_dir_there {
                    return Err(self.in_the_way(to, Code::NotDir, "is not a directory"));
                }
                if !is_dir_there {
                    self.to.mkdir(to)?;
                }
                self.dirs.push((from.to_vec(), to.to_vec(), *meta));
                let (from, to) = (from.to_vec(), to.to_vec());
                self.stack.push(Dir { from, to, is_new: !is_dir_there });
            }
            FileKind::Regular => return self.copy_file(from, to, meta, there),
            FileKind::Symlink => {
                let target = self.from.readlink(from)?;
                if there.is_some() {
                    self.to.unlink(to)?;
                }
                self.to.symlink(&target, to)?;
                self.to.set_meta(to, meta)?;
                count(&self.shared.tally.symlinks, 1);
            }
            _ => {
                return Err(Error::new(
                    Code::NotSupported,
                    format!("{} is a special file: not copied", self.from.name(from)),
                ));
            }
        }
        Ok(())
    }

    fn copy_file(
        &mut self,
        from: &[u8],
        to: &[u8],
        meta: &Meta,
        there: Option<&Meta>,
    ) -> Result<()> {
        if meta.nlink > 1 {
            if let Some(first) = self.first_names.get(&meta.identity) {
                self.further_names.push((first.clone(), to.to_vec()));
                return Ok(());
            }
            self.first_names.insert(meta.identity, to.to_vec());
        }
        if let Some(there) = there {
            let same = there.kind == FileKind::Regular
                && there.size == meta.size
                && there.mtime_ns == meta.mtime_ns;
            if self.walk.update && same {
                count(&self.shared.tally.skipped, 1);
                return if there.mode == meta.mode { Ok(()) } else { self.to.set_meta(to, meta) };
            }
            if there.kind != FileKind::Regular {
                self.to.unlink(to)?;
            }
        }
        let is_new = there.is_none_or(|there| there.kind != FileKind::Regular);
        self.hand_over(from, to, meta, is_new);
        Ok(())
    }

    /// The target side.
    pub fn to(&self) -> &dyn Side {
        &*self.to
    }

    /// Gives a file to the crew.
    fn hand_over(&self, from: &[u8], to: &[u8], meta: &Meta, is_new: bool) {
        self.shared.progress.expect(meta.size);
        // When everything stops there is nobody to take it.
        self.shared.queue.add(Job::File(FileJob {
            from: from.to_vec(),
            to: to.to_vec(),
            meta: *meta,
            is_new,
        }));
    }

    fn in_the_way(&self, to: &[u8], code: Code, what: &str) -> Error {
        Error::new(code, format!("{} {what}: not replaced", self.to.name(to)))
    }

    fn compare(&mut self, from: &[u8], to: &[u8], meta: &Meta, there: Option<&Meta>) -> Result<()> {
        let Some(there) = there else {
            return Err(Error::new(Code::NonExist, format!("{} is missing", self.to.name(to))));
        };
        let differs = |what: &str, here: String, there: String| {
            Err(Error::new(
                Code::Io,
                format!(
                    "{}: {what} is {there}, that of {} is {here}",
                    self.to.name(to),
                    self.from.name(from)
                ),
            ))
        };
        if there.kind != meta.kind {
            return differs("kind", format!("{:?}", meta.kind), format!("{:?}", there.kind));
        }
        if meta.kind != FileKind::Symlink && there.mode != meta.mode {
            return differs("mode", format!("{:04o}", meta.mode), format!("{:04o}", there.mode));
        }
        if there.mtime_ns != meta.mtime_ns {
            return differs(
                "mtime",
                format!("{} ns", meta.mtime_ns),
                format!("{} ns", there.mtime_ns),
            );
        }
        if self.compare_owner && (there.uid, there.gid) != (meta.uid, meta.gid) {
            let owner = |meta: &Meta| format!("{}:{}", meta.uid, meta.gid);
            return differs("owner", owner(meta), owner(there));
        }
        match meta.kind {
            FileKind::Directory => {
                compare_xattrs(&*self.from, from, &*self.to, to)?;
                let (from, to) = (from.to_vec(), to.to_vec());
                self.stack.push(Dir { from, to, is_new: false });
            }
            FileKind::Regular => {
                if there.size != meta.size {
                    return differs("size", meta.size.to_string(), there.size.to_string());
                }
                self.hand_over(from, to, meta, false);
            }
            FileKind::Symlink => {
                let (here, there) = (self.from.readlink(from)?, self.to.readlink(to)?);
                if here != there {
                    let text = |target: &[u8]| String::from_utf8_lossy(target).into_owned();
                    return differs("target", text(&here), text(&there));
                }
            }
            // Not copied, and that was said.
            _ => {}
        }
        Ok(())
    }

    /// Makes further names, then gives directories their attributes, those below first: making
    /// entries changes a directory's mtime, and its mode may forbid it.
    pub fn finish(&mut self) {
        if self.shared.queue.is_stopped() {
            return;
        }
        for (first, name) in std::mem::take(&mut self.further_names) {
            let linked = self.to.meta(&name, false).and_then(|there| {
                if there.is_some() {
                    self.to.unlink(&name)?;
                }
                self.to.link(&first, &name)
            });
            if linked.is_ok() {
                count(&self.shared.tally.hard_links, 1);
            }
            self.note(linked);
        }
        for (from, to, meta) in std::mem::take(&mut self.dirs).iter().rev() {
            let done = copy_attrs(&*self.from, from, &*self.to, to, meta);
            if done.is_ok() {
                count(&self.shared.tally.directories, 1);
            }
            self.note(done);
        }
    }
}
