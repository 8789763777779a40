//! A modelled file system at a directory, from mounting to unmounting.

use super::clockwork::Targets;
use super::fs::ModelFs;
use super::model::Done;
use super::params::Params;
use super::tree::{Maker, Tree};
use fuser::{BackgroundSession, Config, MountOption, Session};
use std::os::unix::ffi::OsStrExt;
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
    session: Option<BackgroundSession>,
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
        let start = || format!("mounting the modelled device at {}", dir.display());
        let targets = Targets::start(*params, count).map_err(|error| Error::io(start(), error))?;
        let targets = Arc::new(targets);
        // SAFETY: these calls only return numbers.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let tree = Tree::new(count, Maker { uid, gid, mode: 0o755 }, store.map(Path::to_path_buf));
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("azekura-ioc-device".to_string()),
            MountOption::Subtype("storage-model".to_string()),
            MountOption::DefaultPermissions,
        ];
        let fs = ModelFs::new(*params, Arc::clone(&targets), tree);
        let session = Session::new(fs, dir, &config)
            .and_then(Session::spawn)
            .map_err(|error| refused(start(), error))?;
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
        let Err(error) = session.umount_and_join() else { return };
        // Somebody still works there: the name goes now, the rest when the last one leaves.
        if let Err(again) = detach(&self.dir) {
            eprintln!("unmounting {}: {error}; {again}", self.dir.display());
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

fn refused(doing: String, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            Error::new(Code::NoPerm, format!("{doing}: {error}"))
        }
        std::io::ErrorKind::NotFound => Error::new(
            Code::NoPerm,
            format!("{doing}: needs root, or the program fusermount3 ({error})"),
        ),
        _ => Error::io(doing, error),
    }
}

/// Takes the mount away from its directory, whoever still has files open there.
fn detach(dir: &Path) -> std::io::Result<()> {
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: the path is a string with its end.
    if unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EPERM) {
        return Err(error);
    }
    // Mounted by the helper, so the helper has to unmount.
    let status =
        std::process::Command::new("fusermount3").args(["-u", "-z", "--"]).arg(dir).status()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other(format!("{status}"))) }
}
