//! A mounted container for one thread: [`Sys`] that blocks until each answer is there and names
//! the path in every error.

use crate::session::{Mount, Session};
use crate::url::Url;
use client::Client;
use dfs::sys::Sys;
use dfs::{CreateOptions, Credentials, Dfs, DirAnchor, Obj, OpenFlags, Stat};
use std::future::Future;
use std::time::Duration;
use types::limits::NAME_BYTES_MAX;
use types::{Code, Error, Result};
use wire::control::OpenMode;

/// Entries asked for in one listing request.
const LIST_COUNT: u32 = 512;
/// How long directory handles are used. One that somebody else removes meanwhile is looked up
/// again all the same; one that is moved away is used where it is.
const HANDLES_KEPT: Duration = Duration::from_secs(60);

/// A container's file system by paths.
pub struct Remote {
    /// The file system; declared first so that handles go before the connection.
    pub sys: Sys,
    client: Client,
    /// Names pool and container in messages; its path is not used.
    url: Url,
}

impl Remote {
    /// Mounts the container of `url`.
    pub fn open(session: &Session, url: &Url, mode: OpenMode) -> Result<Remote> {
        Ok(Remote::new(session.mount(url, mode)?, url))
    }

    pub fn new(mount: Mount, url: &Url) -> Remote {
        let Mount { client, dfs, .. } = mount;
        let sys = Sys::new(dfs);
        sys.set_cache_lifetime(HANDLES_KEPT);
        Remote { sys, client, url: url.with_path(Vec::new()) }
    }

    /// The same with modes taken as they are given: for tools that copy them.
    pub fn without_umask(self) -> Remote {
        let who = self.dfs().credentials().clone();
        let dfs = self.dfs().with_credentials(Credentials { umask: 0, ..who });
        let sys = Sys::new(dfs);
        sys.set_cache_lifetime(HANDLES_KEPT);
        Remote { sys, ..self }
    }

    pub fn dfs(&self) -> &Dfs {
        self.sys.fs()
    }

    /// Runs an operation on `path` to its end; an error names the path, and which directory above it is missing.
    pub fn wait<T>(&self, path: &[u8], operation: impl Future<Output = Result<T>>) -> Result<T> {
        let done = self.run(path, operation);
        if done.as_ref().is_err_and(|error| error.code == Code::NonExist)
            && let Some(missing) = self.missing_above(path)
        {
            let text = format!("{}: {} does not exist", self.name(path), self.name(&missing));
            return Err(Error::new(Code::NonExist, text));
        }
        done
    }

    /// The first directory on the way to `path` that is not there.
    fn missing_above(&self, path: &[u8]) -> Option<Vec<u8>> {
        let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        ends.map(|(end, _)| &path[..end])
            .find(|above| {
                let looked = self.client.block_on(self.sys.stat(above));
                looked.is_err_and(|error| error.code == Code::NonExist)
            })
            .map(<[u8]>::to_vec)
    }

    fn run<T>(&self, path: &[u8], operation: impl Future<Output = Result<T>>) -> Result<T> {
        self.client.block_on(operation).map_err(|error| match error.code {
            // The longest name is not something to look up in a manual.
            Code::NameTooLong if error.text.is_empty() => Error::new(
                error.code,
                format!("{}: a name is longer than {NAME_BYTES_MAX} bytes", self.name(path)),
            ),
            _ => error.context(self.name(path)),
        })
    }

    /// A path for messages.
    pub fn name(&self, path: &[u8]) -> String {
        self.url.with_path(path.to_vec()).to_string()
    }

    /// Opens what a path names, to name it in other calls.
    pub fn lookup(&self, path: &[u8], follow: bool) -> Result<Obj> {
        self.wait(path, self.sys.lookup(path, follow))
    }

    /// Opens an existing file.
    pub fn open_file(&self, path: &[u8], flags: OpenFlags) -> Result<Obj> {
        self.wait(path, self.sys.open(path, flags, 0, &CreateOptions::default()))
    }

    /// Attributes; with `follow`, of what a symbolic link leads to.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<Stat> {
        match follow {
            true => self.run(path, self.sys.stat(path)),
            false => self.run(path, self.sys.lstat(path)),
        }
    }

    /// The same; `None` when there is nothing.
    pub fn try_stat(&self, path: &[u8], follow: bool) -> Result<Option<Stat>> {
        match self.stat(path, follow) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.code == Code::NonExist => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All entries of a directory, by name.
    pub fn list(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Stat)>> {
        let dir = self.lookup(path, true)?;
        let mut entries = Vec::new();
        let mut anchor = DirAnchor::start();
        while !anchor.is_end() {
            let batch = self.wait(path, self.dfs().readdirplus(&dir, &mut anchor, LIST_COUNT))?;
            entries.extend(batch.into_iter().map(|(entry, stat)| (entry.name.to_vec(), stat)));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    /// The target of a symbolic link.
    pub fn readlink(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.wait(path, self.sys.readlink(path))
    }

    /// Reads into `memory` from `offset` on; less than all of it only at the end of the file.
    pub fn read(&self, path: &[u8], file: &Obj, offset: u64, memory: &mut [u8]) -> Result<usize> {
        self.wait(path, self.dfs().read(file, offset, memory))
    }

    /// Writes all of `memory` at `offset`.
    pub fn write(&self, path: &[u8], file: &Obj, offset: u64, memory: &[u8]) -> Result<()> {
        self.wait(path, self.dfs().write(file, offset, memory)).map(|_| ())
    }
}
