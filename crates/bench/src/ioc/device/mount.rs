//! A modelled file system at a directory, from mounting to unmounting.

use super::clockwork::Targets;
use super::fs::ModelFs;
use super::model::Done;
use super::params::Params;
use super::tree::{Maker, Tree};
use fuselow::{Config, MountOptions, Session, Transport};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::{Code, Error, Result};

/// The kernel's door to file systems in user space.
const FUSE_DEVICE: &str = "/dev/fuse";
/// Most targets of one mount.
pub const TARGETS_MAX: u32 = 1024;

/// A mounted file system; dropping it unmounts.
pub struct Mount {
    dir: PathBuf,
    targets: Arc<Targets>,
    session: Option<Session>,
}

impl Mount {
    /// Mounts `count` targets at the directory `dir`: `t0`, `t1`, … appear in it. Data are kept
    /// in memory, or as nameless files in `store`.
    ///
    /// Errors: `NonExist` when this machine has no FUSE device, or without the directory; `NoPerm`
    /// when FUSE may not be used; `Inval` for parameters out of range.
    pub fn start(dir: &Path, params: &Params, count: u32, store: Option<&Path>) -> Result<Mount> {
        params.check()?;
        if count == 0 || count > TARGETS_MAX {
            return Err(Error::inval(format!("targets: want 1 to {TARGETS_MAX}")));
        }
        check_fuse()?;
        if !dir.is_dir() {
            let text = format!("{} is no directory; the device needs one to mount", dir.display());
            return Err(Error::new(Code::NonExist, text));
        }
        let targets = Targets::start(*params, count)
            .map_err(|error| Error::io("starting the modelled device", error))?;
        let targets = Arc::new(targets);
        // SAFETY: these calls only return numbers.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let tree = Tree::new(count, Maker { uid, gid, mode: 0o755 }, store.map(Path::to_path_buf));
        let config = Config {
            mount: MountOptions {
                source: "azekura-ioc-device".into(),
                subtype: "storage-model".into(),
                default_permissions: true,
                nonempty: true,
                ..MountOptions::default()
            },
            threads: 1,
            transport: Transport::Dev,
            // A piece is at most 1 MiB, within what kernels take.
            max_write_bytes: u32::try_from(params.piece_bytes).unwrap_or(u32::MAX),
            readdirplus: false,
            locks: false,
            ..Config::default()
        };
        let fs = ModelFs::new(Arc::clone(&targets), tree);
        let session = Session::start(dir, &config, move |_| Ok(fs.clone()))?;
        Ok(Mount { dir: dir.to_path_buf(), targets, session: Some(session) })
    }

    /// What each target has done so far.
    pub fn done(&self) -> Vec<Done> {
        self.targets.done()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        match session.unmount(false) {
            Ok(()) => {
                session.wait();
            }
            // Somebody still works there: the name goes now, the rest when the last one leaves.
            Err(error) => match session.unmount(true) {
                Ok(()) => drop(std::thread::spawn(move || session.wait())),
                Err(again) => eprintln!("unmounting {}: {error}; {again}", self.dir.display()),
            },
        }
    }
}

/// Whether this machine and user can mount. `NonExist`, `NoPerm`.
pub fn check_fuse() -> Result<()> {
    match std::fs::File::options().read(true).write(true).open(FUSE_DEVICE) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let text = format!("{FUSE_DEVICE} may not be opened by this user: {error}");
            Err(Error::new(Code::NoPerm, text))
        }
        Err(error) => {
            let text = format!(
                "the modelled device needs FUSE, which this machine does not offer: {FUSE_DEVICE}: \
                 {error} (load the kernel module fuse, or give the container the device)"
            );
            Err(Error::new(Code::NonExist, text))
        }
    }
}
