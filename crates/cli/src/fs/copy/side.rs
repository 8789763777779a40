//! One side of a copy: this machine's files, or those of a container.
//!
//! Both implement the same few operations on paths of bytes, so that the copy itself does not
//! know which way it goes. A side belongs to one thread; a [`SideSpec`] opens one per thread.

use super::local::Local;
use super::remote_side::RemoteSide;
use crate::fs::remote::Remote;
use crate::session::Session;
use crate::url::{Place, Url};
use dfs::{CreateOptions, FileKind};
use std::ops::Range;
use types::Result;
use wire::control::{OpenMode, SnapName};

/// What is copied of an entry beside its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Size of a file, bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Names of the file.
    pub nlink: u64,
    /// What two names of one file have in common: device and number, or object.
    pub identity: (u64, u64),
}

/// A file of either side, open for reading or writing.
pub trait OpenFile {
    /// Reads from `offset` on; less than all of `memory` only at the end of the file.
    fn read(&self, offset: u64, memory: &mut [u8]) -> Result<usize>;
    /// Writes all of `memory` at `offset`.
    fn write(&self, offset: u64, memory: &[u8]) -> Result<()>;
    /// Cuts or extends it; new bytes read as zero.
    fn set_size(&self, size: u64) -> Result<()>;
    /// The first stretch of data at or after `offset`; `None`: only a hole follows. Where that is not known all counts as data.
    fn data_from(&self, offset: u64) -> Result<Option<Range<u64>>>;
}

/// One side of a copy.
pub trait Side {
    /// A path for messages.
    fn name(&self, path: &[u8]) -> String;
    /// Attributes; with `follow`, of what a symbolic link leads to. `None` when there is nothing.
    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>>;
    /// Entries of a directory with their attributes, by name.
    fn list(&self, dir: &[u8]) -> Result<Vec<(Vec<u8>, Meta)>>;
    /// Target of a symbolic link.
    fn readlink(&self, path: &[u8]) -> Result<Vec<u8>>;
    /// Makes a directory that only its owner may use yet.
    fn mkdir(&self, path: &[u8]) -> Result<()>;
    /// Makes a symbolic link.
    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()>;
    /// Gives a file a further name.
    fn link(&self, file: &[u8], path: &[u8]) -> Result<()>;
    /// Removes a name of a file.
    fn unlink(&self, path: &[u8]) -> Result<()>;
    /// Opens a file for reading. Symbolic links are followed.
    fn open<'a>(&'a self, path: &'a [u8]) -> Result<Box<dyn OpenFile + 'a>>;
    /// Makes a file that only its owner may use yet, or empties the one that is there.
    fn create<'a>(&'a self, path: &'a [u8]) -> Result<Box<dyn OpenFile + 'a>>;
    /// Opens a file that exists for writing.
    fn reopen<'a>(&'a self, path: &'a [u8]) -> Result<Box<dyn OpenFile + 'a>>;
    /// Gives an entry mode, mtime and, for the superuser, owner and group of `meta`. A symbolic
    /// link itself is changed; its mode has no meaning.
    fn set_meta(&self, path: &[u8], meta: &Meta) -> Result<()>;
    /// User attributes of an entry, by name.
    fn xattrs(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;
    /// Sets a user attribute.
    fn set_xattr(&self, path: &[u8], name: &[u8], value: &[u8]) -> Result<()>;
}

/// How to open a side, for any thread.
#[derive(Clone)]
pub enum SideSpec {
    Local,
    Remote {
        session: Session,
        /// Which container; its path is not used.
        url: Url,
        /// Reads only, or also writes.
        mode: OpenMode,
        /// Class and chunk size of new files.
        options: CreateOptions,
    },
}

impl SideSpec {
    /// The side a place is on.
    pub fn of(
        session: &Session,
        place: &Place,
        mode: OpenMode,
        options: CreateOptions,
    ) -> SideSpec {
        match place {
            Place::Local(_) => SideSpec::Local,
            Place::Remote(url) => {
                SideSpec::Remote { session: session.clone(), url: url.clone(), mode, options }
            }
        }
    }

    /// Opens the side for this thread.
    pub fn open(&self) -> Result<Box<dyn Side>> {
        Ok(match self {
            SideSpec::Local => Box::new(Local::new()),
            SideSpec::Remote { session, url, mode, options } => {
                let remote = Remote::open(session, url, *mode)?.without_umask();
                Box::new(RemoteSide::new(remote, *options))
            }
        })
    }

    /// The snapshot it shows, if it does.
    fn snapshot(&self) -> Option<&SnapName> {
        match self {
            SideSpec::Remote { session, mode: OpenMode::ReadOnly, .. } => session.snapshot.as_ref(),
            _ => None,
        }
    }

    /// True when both are the same container as of the same time, or both this machine.
    pub fn is_same(&self, other: &SideSpec) -> bool {
        match (self, other) {
            (SideSpec::Local, SideSpec::Local) => true,
            (SideSpec::Remote { url: a, .. }, SideSpec::Remote { url: b, .. }) => {
                a.same_container(b) && self.snapshot() == other.snapshot()
            }
            _ => false,
        }
    }
}
