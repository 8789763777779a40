//! An Azekura file system, through the `dfs` library.
//!
//! Directory handles are kept by path, as the DFS backend of IOR and mdtest keeps them: an
//! operation in a directory used before needs no lookup.

use super::{Backend, NewFile};
use crate::place::Where;
use client::{Client, ConnectOptions, SystemAddress};
use dfs::{CreateOptions, Credentials, Dfs, MountFlags, Obj, OpenFlags};
use std::collections::HashMap;
use types::{Code, Error, ObjClass, Result};
use wire::control::{Name, OpenMode};

/// Permission bits of new files and directories, before the umask.
const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

/// One process's mount.
pub struct DfsBackend {
    client: Client,
    dfs: Dfs,
    dirs: HashMap<String, Obj>,
    /// The directory used last; most operations stay in one.
    last: Option<(String, Obj)>,
}

/// The address that a user's text means; empty: the one that is found without it.
pub fn system_address(text: &str) -> Result<SystemAddress> {
    if text.is_empty() { SystemAddress::discover() } else { SystemAddress::parse(text) }
}

impl DfsBackend {
    pub fn connect(place: &Where) -> Result<DfsBackend> {
        let Where::Dfs { system, pool, cont, tcp_only, .. } = place else {
            return Err(Error::inval(format!("{place} is not in a container")));
        };
        let mut options = ConnectOptions::new(system_address(system)?);
        options.tcp_only = *tcp_only;
        let client = Client::connect(options)?;
        let dfs = client.block_on(async {
            let (pool, cont, mode) = (Name::parse(pool), Name::parse(cont), OpenMode::ReadWrite);
            let cont = client.open(&pool, mode, &cont, mode).await?;
            Dfs::mount(&cont, MountFlags::NONE, own_credentials()).await
        })?;
        Ok(DfsBackend { client, dfs, dirs: HashMap::new(), last: None })
    }

    /// The handle of the directory a path is in, and the name in it.
    fn parent<'a>(&mut self, path: &'a str) -> Result<(Obj, &'a str)> {
        let (dir, name) = path
            .rsplit_once('/')
            .ok_or_else(|| Error::inval(format!("'{path}' is not an absolute path")))?;
        if let Some((last, obj)) = &self.last
            && last == dir
        {
            return Ok((obj.clone(), name));
        }
        let obj = match self.dirs.get(dir) {
            Some(obj) => obj.clone(),
            None => {
                let full = if dir.is_empty() { "/" } else { dir };
                let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
                let found = self.client.block_on(self.dfs.lookup(full.as_bytes(), flags));
                let obj = found.map_err(|error| error.context(full))?;
                self.dirs.insert(dir.to_string(), obj.clone());
                obj
            }
        };
        self.last = Some((dir.to_string(), obj.clone()));
        Ok((obj, name))
    }
}

impl Backend for DfsBackend {
    type File = Obj;

    fn forget_dirs(&mut self) {
        self.dirs.clear();
        self.last = None;
    }

    fn make_dir(&mut self, path: &str, class: Option<ObjClass>) -> Result<()> {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        for end in ends {
            let part = &path[..end];
            // The container's own directory is there.
            if part.is_empty() {
                continue;
            }
            let last = end == path.len();
            let (parent, name) = self.parent(part)?;
            if name.is_empty() {
                continue;
            }
            let class = if last { class } else { None };
            let made = self.dfs.mkdir(&parent, name.as_bytes(), DIR_MODE, class);
            match self.client.block_on(made) {
                Ok(_) => {}
                Err(error) if error.code == Code::Exist => {}
                Err(error) => return Err(error.context(format!("making directory {part}"))),
            }
        }
        Ok(())
    }

    fn remove_dir(&mut self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.dirs.remove(path);
        self.last = None;
        self.client
            .block_on(self.dfs.rmdir(&parent, name.as_bytes()))
            .map_err(|error| error.context(format!("removing directory {path}")))
    }

    fn create(&mut self, path: &str, new: &NewFile) -> Result<Obj> {
        let (parent, name) = self.parent(path)?;
        let mut flags = OpenFlags::READ_WRITE | OpenFlags::CREATE;
        if new.exclusive {
            flags = flags | OpenFlags::EXCL;
        }
        let options = CreateOptions { class: new.class, chunk_bytes: new.chunk_bytes };
        self.client
            .block_on(self.dfs.open(&parent, name.as_bytes(), flags, FILE_MODE, &options))
            .map_err(|error| error.context(format!("creating {path}")))
    }

    fn open(&mut self, path: &str) -> Result<Obj> {
        let (parent, name) = self.parent(path)?;
        let options = CreateOptions::default();
        let opened = self.dfs.open(&parent, name.as_bytes(), OpenFlags::READ, 0, &options);
        self.client.block_on(opened).map_err(|error| error.context(format!("opening {path}")))
    }

    fn write_at(&mut self, file: &Obj, offset: u64, data: &[u8]) -> Result<()> {
        let count = self.client.block_on(self.dfs.write(file, offset, data))?;
        if count != data.len() {
            return Err(Error::new(Code::Io, format!("{count} bytes written of {}", data.len())));
        }
        Ok(())
    }

    fn read_at(&mut self, file: &Obj, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.client.block_on(self.dfs.read(file, offset, buf))
    }

    fn sync(&mut self, _file: &Obj) -> Result<()> {
        // Data are as durable as the pool promises when a write returns; this only sends what is
        // held back.
        self.dfs.sync();
        Ok(())
    }

    fn stat(&mut self, path: &str) -> Result<u64> {
        let (parent, name) = self.parent(path)?;
        self.client
            .block_on(self.dfs.stat(&parent, name.as_bytes()))
            .map(|found| found.size)
            .map_err(|error| error.context(format!("reading the attributes of {path}")))
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.client
            .block_on(self.dfs.unlink(&parent, name.as_bytes()))
            .map_err(|error| error.context(format!("removing {path}")))
    }
}

/// The user this process runs as.
fn own_credentials() -> Credentials {
    // SAFETY: these calls only return numbers.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    Credentials::new(uid, gid)
}
