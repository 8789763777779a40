//! From the options every command shares to connections, pools, containers and mounts.
//!
//! A [`Session`] is plain data and `Send`; what it opens is not: each thread of a parallel
//! command opens its own client from the same session.

use crate::output::Output;
use crate::url::Url;
use client::{Client, ConnectOptions, Container, Pool, SystemAddress};
use dfs::{Credentials, Dfs, FormatOptions, MountFlags};
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{Code, Durability, Error, Result};
use wire::control::{Name, OpenMode, SnapName};

/// Options every command shares.
#[derive(Clone, Debug)]
pub struct Session {
    pub out: Output,
    /// What `--system` (or `--dir`) said.
    pub system: Option<String>,
    /// How long one operation may take, retries included.
    pub timeout: Duration,
    /// The same, if `--timeout` said it.
    pub timeout_said: Option<Duration>,
    /// What is mounted for reading is mounted as this snapshot shows it.
    pub snapshot: Option<SnapName>,
}

/// A mounted container and what it was reached through.
pub struct Mount {
    pub client: Client,
    pub dfs: Dfs,
}

impl Session {
    /// Where the system is: `--system`, else `AZEKURA_SYSTEM`, else the default directory.
    pub fn address(&self) -> Result<SystemAddress> {
        match &self.system {
            Some(text) if is_address(text) => SystemAddress::parse(text),
            Some(dir) => SystemAddress::from_dir(&absolute(Path::new(dir))?),
            None => SystemAddress::discover(),
        }
    }

    /// The directory of the system on this machine.
    ///
    /// Errors: `Inval` when `--system` or `AZEKURA_SYSTEM` names something else.
    pub fn system_dir(&self) -> Result<PathBuf> {
        let from_env = std::env::var("AZEKURA_SYSTEM").ok().filter(|text| !text.is_empty());
        match self.system.clone().or(from_env) {
            Some(text) if is_address(&text) => Err(Error::inval(format!(
                "'{text}' is an address; this command wants the directory of a system"
            ))),
            Some(dir) => absolute(Path::new(&dir)),
            None => SystemAddress::default_dir(),
        }
    }

    /// Connects this thread.
    pub fn connect(&self) -> Result<Client> {
        let mut options = ConnectOptions::new(self.address()?);
        options.timeout = self.timeout;
        Client::connect(options).map_err(|error| {
            let silent = matches!(error.code, Code::Unreach | Code::TimedOut | Code::Closed);
            match self.system_dir() {
                Ok(dir) if silent => error.context(format!(
                    "the system at {0} does not answer (start it with 'azekura up --dir {0}')",
                    dir.display()
                )),
                _ => error,
            }
        })
    }

    /// Connects this thread and opens a pool.
    pub fn open_pool(&self, pool: &Name, mode: OpenMode) -> Result<Pool> {
        let client = self.connect()?;
        client
            .block_on(client.pool_open(pool, mode))
            .map_err(|error| error.context(format!("pool '{pool}'")))
    }

    /// Connects this thread and opens a container.
    pub fn open_cont(&self, pool: &Name, cont: &Name, mode: OpenMode) -> Result<Container> {
        // A container to be alone in does not need a pool alone; one to be written does need a
        // pool that is.
        let pool_mode = match mode {
            OpenMode::ReadOnly => OpenMode::ReadOnly,
            OpenMode::ReadWrite | OpenMode::Exclusive => OpenMode::ReadWrite,
        };
        let client = self.connect()?;
        client.block_on(client.open(pool, pool_mode, cont, mode))
    }

    /// Connects this thread and mounts the file system a URL is in, as the calling user.
    pub fn mount(&self, url: &Url, mode: OpenMode) -> Result<Mount> {
        self.mount_with(url, mode, MountFlags::NONE)
    }

    /// The same, with flags of the mount.
    pub fn mount_with(&self, url: &Url, mode: OpenMode, flags: MountFlags) -> Result<Mount> {
        let mut cont = self.open_cont(&url.pool, &url.cont, mode)?;
        let client = cont.client().clone();
        if let (Some(snapshot), OpenMode::ReadOnly) = (&self.snapshot, mode) {
            cont = client
                .block_on(cont.at_snapshot(snapshot))
                .map_err(|error| error.context(format!("azk://{}/{}", url.pool, url.cont)))?;
        }
        // A pool in memory comes back empty after a restart; its containers are made anew for
        // whoever may write. Elsewhere a missing file system is damage, and an error.
        let is_forgetful = cont.pool().info().durability == Durability::Memory;
        let mounted = client.block_on(async {
            if is_forgetful && mode != OpenMode::ReadOnly {
                Dfs::mount_or_format(&cont, flags, caller(), &root_for_caller()).await
            } else {
                Dfs::mount(&cont, flags, caller()).await
            }
        });
        let dfs =
            mounted.map_err(|error| error.context(format!("azk://{}/{}", url.pool, url.cont)))?;
        Ok(Mount { client, dfs })
    }
}

/// True for the forms of `--system` that are not directories.
fn is_address(text: &str) -> bool {
    text.starts_with("tcp://") || text.starts_with("unix:")
}

/// `path` seen from the current directory, without touching the file system.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::io(format!("'{}'", path.display()), error))
}

/// The root directory of a file system that the caller makes.
pub fn root_for_caller() -> FormatOptions {
    let who = caller();
    FormatOptions { mode: 0o755, uid: who.uid, gid: who.gid }
}

/// Who is calling, with the process's umask.
pub fn caller() -> Credentials {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    // Reading the mask means setting it; nobody makes files in between: set it back at once.
    rustix::process::umask(mask);
    Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: rustix::process::getgroups()
            .unwrap_or_default()
            .into_iter()
            .map(|group| group.as_raw())
            .collect(),
        umask: mask.bits(),
    }
}
