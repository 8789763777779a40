//! Mounting and unmounting: `mount(2)` where we may, `fusermount3` where we may not.

use super::config::MountOptions;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::ffi::{CString, OsString};
use std::fmt::Write as _;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use types::{Code, Error, Result};

pub(crate) const DEVICE: &str = "/dev/fuse";
/// The set-user-id helper of the fuse3 package.
const HELPER: &str = "fusermount3";

/// How long a dead mount may take to say that it is.
const DEAD_TIME_MAX: Duration = Duration::from_secs(3);

/// A mount that was made.
pub(crate) struct Mounted {
    pub path: PathBuf,
    /// Whether we unmount ourselves.
    privileged: bool,
    /// Tells our mount from another one on the same path.
    device_number: Option<String>,
    /// Open as long as the helper shall not unmount on its own.
    _watcher: Option<OwnedFd>,
}

/// Says whether a directory can be mounted on, and returns its absolute path.
///
/// Errors: `NonExist`, `NotDir`, `NotEmpty` (unless `nonempty`), `Access`; `Busy` for a mount
/// whose server is gone, with what clears it.
pub fn check_mount_point(path: &Path, nonempty: bool) -> Result<PathBuf> {
    let shown = path.display();
    let meta = std::fs::metadata(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => {
            Error::new(Code::NonExist, format!("{shown} does not exist: make the directory first"))
        }
        // The second while the kernel is still clearing up after the server.
        Some(libc::ENOTCONN | libc::ECONNABORTED) => stale(path),
        Some(libc::EACCES) => Error::new(Code::Access, format!("{shown}: {error}")),
        _ => Error::io(format!("looking at {shown}"), error),
    })?;
    if !meta.is_dir() {
        return Err(Error::new(Code::NotDir, format!("{shown} is not a directory")));
    }
    let full = path.canonicalize().map_err(|error| Error::io(format!("finding {shown}"), error))?;
    if !nonempty {
        let mut entries = std::fs::read_dir(&full)
            .map_err(|error| Error::io(format!("looking into {shown}"), error))?;
        if entries.next().is_some() {
            let text = format!(
                "{shown} is not empty: its files would be hidden by the mount; \
                 mount elsewhere or with -o nonempty"
            );
            return Err(Error::new(Code::NotEmpty, text));
        }
    }
    Ok(full)
}

fn stale(path: &Path) -> Error {
    let shown = path.display();
    let text = format!(
        "{shown} is a mount whose server is gone: clear it with `umount {shown}` \
         (or `fusermount3 -u {shown}`), then mount again"
    );
    Error::new(Code::Busy, text)
}

/// Mounts `path`, an absolute path. With the mount comes its device, nonblocking.
pub(crate) fn mount(path: &Path, options: &MountOptions) -> Result<(Mounted, OwnedFd)> {
    if !Path::new(DEVICE).exists() {
        let text = "there is no /dev/fuse: load the kernel's module with `modprobe fuse`, or give \
                    the container the device";
        return Err(Error::new(Code::NotSupported, text));
    }
    if rustix::process::geteuid().is_root() && !options.auto_unmount {
        let device = open_device()?;
        match mount_directly(path, options, &device) {
            Ok(()) => {
                let device_number = device_number(path);
                let path = path.to_path_buf();
                let mounted = Mounted { path, privileged: true, device_number, _watcher: None };
                return Ok((mounted, device));
            }
            // Root of a container without CAP_SYS_ADMIN.
            Err(rustix::io::Errno::PERM) => {}
            Err(error) => {
                let doing = format!("mounting {}", path.display());
                return Err(Error::io(doing, error.into()));
            }
        }
    }
    let (device, watcher) = mount_by_helper(path, options)?;
    set_nonblocking(&device)?;
    let watcher = options.auto_unmount.then_some(watcher);
    let mounted = Mounted {
        path: path.to_path_buf(),
        privileged: false,
        device_number: device_number(path),
        _watcher: watcher,
    };
    Ok((mounted, device))
}

/// Opens the device, nonblocking.
pub(crate) fn open_device() -> Result<OwnedFd> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
        .map_err(|error| match error {
            rustix::io::Errno::ACCESS => {
                Error::new(Code::Access, format!("{DEVICE} may not be opened: check its mode"))
            }
            error => Error::io(format!("opening {DEVICE}"), error.into()),
        })
}

fn set_nonblocking(fd: &OwnedFd) -> Result<()> {
    rustix::fs::fcntl_getfl(fd)
        .and_then(|flags| rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK))
        .map_err(|error| Error::io(format!("setting up {DEVICE}"), error.into()))
}

fn mount_directly(
    path: &Path,
    options: &MountOptions,
    device: &OwnedFd,
) -> Result<(), rustix::io::Errno> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    kernel_options(options, &mut data);
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOEXEC, options.noexec);
    flags.set(MountFlags::NOATIME, options.noatime);
    let data = CString::new(data).map_err(|_| rustix::io::Errno::INVAL)?;
    let kind = format!("fuse.{}", options.subtype);
    rustix::mount::mount(options.source.as_str(), path, kind.as_str(), flags, data.as_c_str())
}

/// Options that the kernel's FUSE understands, each with a comma before it.
fn kernel_options(options: &MountOptions, text: &mut String) {
    if options.allow_other {
        text.push_str(",allow_other");
    }
    if options.default_permissions {
        text.push_str(",default_permissions");
    }
    if let Some(bytes) = options.max_read_bytes {
        let _ = write!(text, ",max_read={bytes}");
    }
}

/// The mount options as text for the helper.
fn helper_options(options: &MountOptions) -> String {
    let mut text = String::from(if options.read_only { "ro" } else { "rw" });
    // It sets nosuid and nodev itself for those who are not root.
    for (on, name) in [
        (!options.dev, ",nodev"),
        (!options.suid, ",nosuid"),
        (options.noexec, ",noexec"),
        (options.noatime, ",noatime"),
        (options.auto_unmount, ",auto_unmount"),
    ] {
        if on {
            text.push_str(name);
        }
    }
    kernel_options(options, &mut text);
    let escaped = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let _ = write!(text, ",fsname={escaped},subtype={}", options.subtype);
    text
}

fn mount_by_helper(path: &Path, options: &MountOptions) -> Result<(OwnedFd, OwnedFd)> {
    let doing = || format!("mounting {} with {HELPER}", path.display());
    let failed = |error: rustix::io::Errno| Error::io(doing(), error.into());
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(failed)?;
    let their_number = theirs.as_raw_fd();
    let mut command = Command::new(HELPER);
    command
        .arg("-o")
        .arg(helper_options(options))
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", their_number.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: between fork and exec it calls fcntl only, on a descriptor that is open.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(their_number, libc::F_SETFD, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::new(
            Code::NoPerm,
            format!("{}: only root may mount without {HELPER}: install fuse3", path.display()),
        ),
        _ => Error::io(doing(), error),
    })?;
    drop(theirs);
    let device = receive_descriptor(&ours).map_err(failed)?;
    if options.auto_unmount && device.is_some() {
        // The helper stays and watches the socket. It is reaped by a thread that costs nothing.
        let _ = std::thread::Builder::new().name("azk-fuse-helper".into()).spawn(move || {
            let _ = child.wait();
        });
    } else {
        let output = child.wait_with_output().map_err(|error| Error::io(doing(), error))?;
        if !output.status.success() || device.is_none() {
            let said = String::from_utf8_lossy(&output.stderr);
            let text = format!("{}: {}", doing(), said.trim());
            return Err(Error::new(Code::NoPerm, text));
        }
    }
    match device {
        Some(device) => Ok((device, ours)),
        None => Err(Error::new(Code::NoPerm, format!("{}: it gave up", doing()))),
    }
}

/// Takes the descriptor that the helper sends; `None` when it closes the socket instead.
fn receive_descriptor(socket: &OwnedFd) -> Result<Option<OwnedFd>, rustix::io::Errno> {
    let mut byte = [0u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        );
        match got {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let mut messages = control.drain();
        return Ok(messages.find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        }));
    }
}

impl Mounted {
    /// Whether our mount is the one that is seen on its path, dead: so it is after a forced unmount of a mount that is in use. All descriptors of its
    /// device are closed. Its number says little: the kernel gives it to the next mount, which somebody may have made there by now, and which answers.
    pub fn is_there_dead(&self) -> bool {
        if self.device_number.is_none() || device_number(&self.path) != self.device_number {
            return false;
        }
        let (path, (said, heard)) = (self.path.clone(), channel());
        let ask = move || {
            // Nobody waits any more, maybe.
            let _ = said.send(rustix::fs::statfs(&path));
        };
        let asked = std::thread::Builder::new().name("azk-fuse-dead".into()).spawn(ask);
        // One that says nothing has a server, or will be dead when the process has gone.
        let answer = asked.ok().and_then(|_| heard.recv_timeout(DEAD_TIME_MAX).ok());
        matches!(answer, Some(Err(rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED)))
    }

    /// Takes the mount away. `Busy` when it is in use and `lazy` is false; with `lazy` it is gone
    /// from the name space at once, and from the kernel when nobody uses it any more.
    pub fn unmount(&self, lazy: bool) -> Result<()> {
        unmount_path(&self.path, self.privileged, lazy)
    }
}

/// Unmounts a directory, whoever serves it.
///
/// Errors: `Busy` when in use and not `lazy`; `NonExist` when nothing is mounted there; `NoPerm`.
pub fn unmount(path: &Path, lazy: bool) -> Result<()> {
    unmount_path(path, rustix::process::geteuid().is_root(), lazy)
}

fn unmount_path(path: &Path, privileged: bool, lazy: bool) -> Result<()> {
    let shown = path.display();
    if privileged {
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, lazy);
        return rustix::mount::unmount(path, flags).map_err(|error| match error {
            rustix::io::Errno::BUSY => busy(path),
            rustix::io::Errno::INVAL => nothing_there(path),
            rustix::io::Errno::NOENT => missing(path),
            rustix::io::Errno::PERM => {
                Error::new(Code::NoPerm, format!("unmounting {shown} needs root"))
            }
            error => Error::io(format!("unmounting {shown}"), error.into()),
        });
    }
    let mut args = vec![OsString::from("-u")];
    if lazy {
        args.push("-z".into());
    }
    args.extend(["--".into(), path.as_os_str().to_os_string()]);
    let output = Command::new(HELPER)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::io(format!("running {HELPER} to unmount {shown}"), error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("busy") {
        return Err(busy(path));
    }
    let looked = std::fs::symlink_metadata(path);
    if looked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Err(missing(path));
    }
    // Two releases of the helper, two ways to say it.
    if said.contains("not found in") || said.contains("not mounted") {
        // It looks at what this user has mounted, and at no more.
        return Err(match device_number(path) {
            Some(_) => {
                Error::new(Code::NoPerm, format!("{shown} was mounted by another user, or by root"))
            }
            None => nothing_there(path),
        });
    }
    Err(Error::new(Code::NoPerm, format!("unmounting {shown}: {}", said.trim())))
}

fn nothing_there(path: &Path) -> Error {
    Error::new(Code::NonExist, format!("nothing is mounted on {}", path.display()))
}

fn missing(path: &Path) -> Error {
    Error::new(Code::NonExist, format!("{} does not exist", path.display()))
}

fn busy(path: &Path) -> Error {
    let shown = path.display();
    let text = format!(
        "{shown} is in use: leave it (`fuser -vm {shown}` says who has not), or unmount lazily"
    );
    Error::new(Code::Busy, text)
}

/// `MAJOR:MINOR` of what is mounted on `path` last, from the kernel's table.
pub(crate) fn device_number(path: &Path) -> Option<String> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    let line = table.split(|&byte| byte == b'\n').rev().find(|line| {
        let point = line.split(|&byte| byte == b' ').nth(4);
        point.is_some_and(|point| unescape(point) == path.as_os_str().as_bytes())
    })?;
    let number = line.split(|&byte| byte == b' ').nth(2)?;
    String::from_utf8(number.to_vec()).ok()
}

/// The table has spaces, tabs, newlines and backslashes as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let octal = |digits: &[u8]| {
            let text = std::str::from_utf8(digits.get(..3)?).ok()?;
            u8::from_str_radix(text, 8).ok()
        };
        match (first, octal(tail)) {
            (b'\\', Some(byte)) => {
                plain.push(byte);
                rest = &tail[3..];
            }
            _ => {
                plain.push(*first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_is_told_all_options() {
        let options = MountOptions {
            source: "azk://a,b\\c/d".into(),
            read_only: true,
            allow_other: true,
            max_read_bytes: Some(65536),
            ..MountOptions::default()
        };
        let text = "ro,nodev,nosuid,allow_other,max_read=65536,fsname=azk://a\\,b\\\\c/d,\
                    subtype=azekura";
        assert_eq!(helper_options(&options), text);
    }

    #[test]
    fn mount_points_are_judged() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        assert_eq!(check_mount_point(&file, false).unwrap_err().code, Code::NonExist);
        assert!(check_mount_point(dir.path(), false).is_ok());
        std::fs::write(&file, b"x").unwrap();
        assert_eq!(check_mount_point(&file, false).unwrap_err().code, Code::NotDir);
        assert_eq!(check_mount_point(dir.path(), false).unwrap_err().code, Code::NotEmpty);
        assert!(check_mount_point(dir.path(), true).unwrap().is_absolute());
        assert_eq!(unescape(b"/a\\040b\\134"), b"/a b\\");
    }
}
