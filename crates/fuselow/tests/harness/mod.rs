//! What the tests of the mount share.

#![allow(dead_code, reason = "each test uses some of it")]

pub mod memory;
pub mod node;
mod uring;

use fuselow::{Config, Session, Transport};
use memory::{MemoryFs, Tree};
use std::path::PathBuf;
use std::sync::Arc;

/// A mounted in-memory file system.
pub struct Mount {
    pub session: Option<Session>,
    pub tree: Arc<Tree>,
    dir: tempfile::TempDir,
}

/// Whether mounting is possible here; says so when not.
pub fn can_mount() -> bool {
    let can = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !can {
        eprintln!("SKIPPED: /dev/fuse is missing or not ours to open; nothing was tested");
    }
    can
}

/// The transports that can be tested here; says which cannot.
pub fn transports() -> Vec<Transport> {
    if can_mount() { uring::transports() } else { Vec::new() }
}

impl Mount {
    pub fn new(transport: Transport) -> Mount {
        Mount::with(Config { transport, ..Config::default() })
    }

    pub fn with(config: Config) -> Mount {
        Mount::at(tempfile::tempdir().unwrap(), config)
    }

    /// A mount on a directory, which is removed with it.
    pub fn at(dir: tempfile::TempDir, config: Config) -> Mount {
        let tree = Arc::new(Tree::new());
        let shared = tree.clone();
        let session = Session::start(dir.path(), &config, move |seat| {
            Ok(MemoryFs { tree: shared.clone(), seat })
        });
        let session = session.unwrap_or_else(|error| panic!("mounting: {error}"));
        Mount { session: Some(session), tree, dir }
    }

    /// A path below the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().to_path_buf()
    }

    pub fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    /// Its session, and the directory, which stays.
    #[allow(dead_code)] // not every program needs it
    pub fn into_parts(self) -> (Session, tempfile::TempDir) {
        let Mount { session, dir, .. } = self;
        (session.unwrap(), dir)
    }

    /// Unmounts and waits; the mount point stays until this is dropped.
    pub fn end(&mut self) -> fuselow::End {
        let session = self.session.take().unwrap();
        session.unmount(false).unwrap();
        session.wait()
    }
}
