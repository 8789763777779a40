//! From a mounted `dfs` to a directory that programs use.

use crate::fs::{MountedFs, Volume, VolumeOptions};
use crate::options::Options;
use dfs::Dfs;
use fuselow::{Config, End, Session, Signals};
use std::future::poll_fn;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use types::{Error, Result};

/// How often the session is looked at where its descriptors cannot be waited for.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// A file system that programs use through a directory. Dropping it unmounts.
pub struct Mount {
    // Before the file system: requests end first, then the handles of pool and container go.
    session: Session,
    volume: Arc<Volume>,
    dfs: Dfs,
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
        Ok(Mount { session, volume, dfs })
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
        let Mount { session, volume: _volume, dfs } = self;
        session.wait_by(|fds| idle(&dfs, fds))
    }

    /// The same; unmounts on SIGTERM, SIGINT and SIGHUP.
    pub fn wait_or_signal(self, signals: &Signals) -> End {
        let Mount { session, volume: _volume, dfs } = self;
        session.wait_or_signal_by(signals, |fds| idle(&dfs, fds))
    }
}

/// Waits until one of some descriptors can be read. The client that has the handles of pool and container goes on meanwhile: it asks for them again when
/// the control service has forgotten them.
fn idle(dfs: &Dfs, fds: &[BorrowedFd<'_>]) {
    let client = dfs.container().client();
    let watched = fds
        .iter()
        .map(|fd| {
            let own = fd.try_clone_to_owned().map_err(|error| Error::io("a descriptor", error))?;
            let watch = client.env().watch_shared_fd(Rc::new(own))?;
            // What there is already is an event as well.
            watch.clear_readable();
            Ok(watch)
        })
        .collect::<Result<Vec<_>>>();
    match watched {
        Ok(watched) => {
            client.block_on(poll_fn(|cx| {
                let is_ready = watched.iter().any(|watch| watch.poll_readable(cx).is_ready());
                if is_ready { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        // The session is looked at now and then.
        Err(error) => {
            tracing::debug!("waiting for the end of the mount: {error}");
            client.block_on(client.env().sleep(LOOK_PAUSE));
        }
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
