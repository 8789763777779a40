//! From a mounted `dfs` to a directory that programs use.

use crate::fs::{MountedFs, Volume, VolumeOptions};
use crate::options::Options;
use dfs::Dfs;
use fuselow::{Config, End, Session, Signals};
use std::path::Path;
use std::sync::Arc;
use types::Result;

/// A file system that programs use through a directory. Dropping it unmounts.
pub struct Mount {
    // Before the file system: requests end first, then the handles of pool and container go.
    session: Session,
    volume: Arc<Volume>,
    _dfs: Dfs,
}

impl Mount {
    /// Mounts `dfs` at a directory and serves it until it is unmounted. `source` is what `df`
    /// shows, usually `azk://POOL/CONT`.
    ///
    /// Errors: those of [`Session::start`]; of the root's lookup.
    pub fn start(dfs: Dfs, dir: &Path, source: String, options: &Options) -> Result<Mount> {
        let config = options.config(source);
        let client = dfs.container().client().clone();
        let volume = client.block_on(Volume::new(&dfs, volume_options(options, &config)))?;
        let volume = Arc::new(volume);
        let served = volume.clone();
        let session =
            Session::start(dir, &config, move |seat| MountedFs::start(served.clone(), &seat))?;
        Ok(Mount { session, volume, _dfs: dfs })
    }

    /// The session with the kernel.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What all threads share.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Waits until somebody unmounts it.
    pub fn wait(self) -> End {
        self.session.wait()
    }

    /// The same; unmounts on SIGTERM, SIGINT and SIGHUP.
    pub fn wait_or_signal(self, signals: &Signals) -> End {
        self.session.wait_or_signal(signals)
    }
}

fn volume_options(options: &Options, config: &Config) -> VolumeOptions {
    VolumeOptions {
        policy: options.policy(),
        kernel_checks: config.mount.default_permissions,
        local_locks: !config.locks,
        posix_acl: config.posix_acl,
        keeps_atime: !config.mount.noatime && !config.mount.read_only,
        timeout: options.patience(),
        threads: config.thread_count(),
    }
}
