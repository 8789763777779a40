//! A container as a side of a copy.

use super::side::{Meta, OpenFile, Side};
use crate::fs::remote::Remote;
use dfs::{CreateOptions, FileKind, Obj, OpenFlags, SetAttr, SetTime, Stat, XattrMode};
use std::ops::Range;
use types::{Code, Result};

/// Mode of what is being copied: nobody else's business until it is whole.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;
const USER_PREFIX: &[u8] = b"user.";

/// A container.
pub struct RemoteSide {
    remote: Remote,
    options: CreateOptions,
    is_superuser: bool,
}

impl RemoteSide {
    /// Copies in files of this class and chunk size.
    pub fn new(remote: Remote, options: CreateOptions) -> RemoteSide {
        let is_superuser = remote.dfs().credentials().uid == 0;
        RemoteSide { remote, options, is_superuser }
    }

    fn open_as<'a>(&'a self, path: &'a [u8], flags: OpenFlags) -> Result<Box<dyn OpenFile + 'a>> {
        let file = self.remote.open_file(path, flags)?;
        Ok(Box::new(RemoteFile { remote: &self.remote, path, file }))
    }
}

fn meta_of(stat: &Stat) -> Meta {
    Meta {
        kind: stat.kind(),
        mode: stat.mode & 0o7777,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        mtime_ns: stat.mtime_ns,
        nlink: stat.nlink.into(),
        identity: (stat.oid.hi, stat.oid.lo),
    }
}

struct RemoteFile<'a> {
    remote: &'a Remote,
    path: &'a [u8],
    file: Obj,
}

impl OpenFile for RemoteFile<'_> {
    fn read(&self, offset: u64, memory: &mut [u8]) -> Result<usize> {
        self.remote.read(self.path, &self.file, offset, memory)
    }

    fn write(&self, offset: u64, memory: &[u8]) -> Result<()> {
        self.remote.write(self.path, &self.file, offset, memory)
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.remote.wait(self.path, self.remote.dfs().truncate(&self.file, size))
    }

    fn data_from(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let dfs = self.remote.dfs();
        let sought = async {
            let start = dfs.seek_data(&self.file, offset).await?;
            Ok(start..dfs.seek_hole(&self.file, start).await?)
        };
        match self.remote.wait(self.path, sought) {
            Err(error) if error.code == Code::NoData => Ok(None),
            outcome => outcome.map(Some),
        }
    }
}

impl Side for RemoteSide {
    fn name(&self, path: &[u8]) -> String {
        self.remote.name(path)
    }

    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        Ok(self.remote.try_stat(path, follow)?.as_ref().map(meta_of))
    }

    fn list(&self, dir: &[u8]) -> Result<Vec<(Vec<u8>, Meta)>> {
        let entries = self.remote.list(dir)?;
        Ok(entries.into_iter().map(|(name, stat)| (name, meta_of(&stat))).collect())
    }

    fn readlink(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.remote.readlink(path)
    }

    fn mkdir(&self, path: &[u8]) -> Result<()> {
        self.remote.wait(path, self.remote.sys.mkdir(path, PRIVATE_DIR))
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        self.remote.wait(path, self.remote.sys.symlink(target, path))
    }

    fn link(&self, file: &[u8], path: &[u8]) -> Result<()> {
        self.remote.wait(path, self.remote.sys.link(file, path))
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.remote.wait(path, self.remote.sys.unlink(path))
    }

    fn open<'a>(&'a self, path: &'a [u8]) -> Result<Box<dyn OpenFile + 'a>> {
        self.open_as(path, OpenFlags::READ)
    }

    fn create<'a>(&'a self, path: &'a [u8]) -> Result<Box<dyn OpenFile + 'a>> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        let making = self.remote.sys.open(path, flags, PRIVATE_FILE, &self.options);
        let file = self.remote.wait(path, making)?;
        Ok(Box::new(RemoteFile { remote: &self.remote, path, file }))
    }

    fn reopen<'a>(&'a self, path: &'a [u8]) -> Result<Box<dyn OpenFile + 'a>> {
        self.open_as(path, OpenFlags::WRITE)
    }

    fn set_meta(&self, path: &[u8], meta: &Meta) -> Result<()> {
        let owner = self.is_superuser.then_some((meta.uid, meta.gid));
        let set = SetAttr {
            mode: (meta.kind != FileKind::Symlink).then_some(meta.mode),
            uid: owner.map(|(uid, _)| uid),
            gid: owner.map(|(_, gid)| gid),
            mtime: Some(SetTime::At(meta.mtime_ns)),
            ..SetAttr::default()
        };
        self.remote.wait(path, self.remote.sys.setattr(path, &set, false)).map(|_| ())
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let obj = self.remote.lookup(path, false)?;
        let dfs = self.remote.dfs();
        let mut found = Vec::new();
        for name in self.remote.wait(path, dfs.listxattr(&obj))? {
            if name.starts_with(USER_PREFIX) {
                let value = self.remote.wait(path, dfs.getxattr(&obj, &name))?;
                found.push((name, value));
            }
        }
        found.sort();
        Ok(found)
    }

    fn set_xattr(&self, path: &[u8], name: &[u8], value: &[u8]) -> Result<()> {
        let set = self.remote.sys.setxattr(path, name, value, XattrMode::Set, false);
        self.remote.wait(path, set)
    }
}
