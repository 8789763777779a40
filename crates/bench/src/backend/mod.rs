//! What a pattern does to a file system, and the file systems it can be done to.
//!
//! Operations take absolute paths, as IOR and mdtest give them to their backends; how a backend
//! finds the parent (the kernel's name cache, cached directory handles) is part of what is
//! measured.

mod dfs;
mod posix;

pub use self::dfs::{DfsBackend, system_address};
pub use posix::PosixBackend;
use types::{ObjClass, Result};

/// What a new file shall be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewFile {
    /// Fail with `Exist` when the name is taken.
    pub exclusive: bool,
    /// Object class; `None`: the directory's. Has no meaning on a POSIX directory.
    pub class: Option<ObjClass>,
    /// Chunk size in bytes; 0: the directory's. Has no meaning on a POSIX directory.
    pub chunk_bytes: u64,
}

/// A file system as seen by one process.
pub trait Backend {
    /// An open file; closed when dropped.
    type File;

    /// Forgets what is remembered of directories: others may have removed and made them anew.
    fn forget_dirs(&mut self);
    /// Makes a directory and those above it; nothing happens when it is there.
    fn make_dir(&mut self, path: &str, class: Option<ObjClass>) -> Result<()>;
    /// Removes an empty directory. `NotEmpty`, `NonExist`.
    fn remove_dir(&mut self, path: &str) -> Result<()>;
    /// Opens a file for writing and makes it if it is missing.
    fn create(&mut self, path: &str, new: &NewFile) -> Result<Self::File>;
    /// Opens a file for reading.
    fn open(&mut self, path: &str) -> Result<Self::File>;
    /// Writes all of `data`.
    fn write_at(&mut self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;
    /// Reads into `buf`; fewer bytes than its length only at the end of the file.
    fn read_at(&mut self, file: &Self::File, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Makes what was written durable.
    fn sync(&mut self, file: &Self::File) -> Result<()>;
    /// Size of a file by its name, bytes.
    fn stat(&mut self, path: &str) -> Result<u64>;
    fn remove(&mut self, path: &str) -> Result<()>;
}
