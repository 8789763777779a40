//! What rules may know about an open file, asked of the system when a rule wants it.

use crate::slot::Scratch;
use coordinate::rules::File;
use coordinate::rules::mount::{self, Mount};
use coordinate::rules::text::Text;
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};
use std::io::Write;

/// Set in the answer of `statx` when it knows the mount.
const STATX_MNT_ID: u32 = 0x1000;
/// The end of the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";
/// Mounts remembered per slot.
const MOUNTS: usize = 4;

/// Status of an open file; none when there is none or when it is not a regular file. It costs no
/// question to a server, and knows nothing of the size.
pub fn regular(fd: BorrowedFd<'_>) -> Option<Statx> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::NLINK | StatxFlags::MNT_ID;
    regular_with(fd, wanted, AtFlags::STATX_DONT_SYNC)
}

fn regular_with(fd: BorrowedFd<'_>, wanted: StatxFlags, how: AtFlags) -> Option<Statx> {
    let status = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | how, wanted).ok()?;
    (u32::from(status.stx_mode) & libc::S_IFMT == libc::S_IFREG).then_some(status)
}

/// Bytes of a regular file behind an offset, or behind the current position.
pub fn bytes_left(fd: BorrowedFd<'_>, offset: Option<u64>) -> u64 {
    let current = || rustix::fs::seek(fd, rustix::fs::SeekFrom::Current(0)).ok();
    let wanted = StatxFlags::TYPE | StatxFlags::SIZE;
    let Some(status) = regular_with(fd, wanted, AtFlags::empty()) else { return 0 };
    let Some(offset) = offset.or_else(current) else { return 0 };
    status.stx_size.saturating_sub(offset)
}

/// Mounts that a slot's calls have met. An id that has been given to another mount is told by the
/// device.
#[derive(Clone, Copy)]
pub struct Mounts {
    known: [Option<Met>; MOUNTS],
    next: usize,
}

/// A mount, and what tells it from others.
#[derive(Clone, Copy)]
struct Met {
    id: u64,
    device: (u32, u32),
    mount: Mount,
}

impl Mounts {
    pub const NONE: Self = Self { known: [None; MOUNTS], next: 0 };
}

/// An open regular file.
pub struct Open<'a> {
    pub fd: BorrowedFd<'a>,
    pub status: &'a Statx,
    /// Room for what the system answers.
    pub scratch: &'a mut Scratch,
    pub mounts: &'a mut Mounts,
}

impl Open<'_> {
    /// The mount's id, asked of `/proc` when `statx` is too old to know.
    fn mount_id(&mut self) -> Option<u64> {
        if self.status.stx_mask & STATX_MNT_ID != 0 {
            return Some(self.status.stx_mnt_id);
        }
        let path = proc_path("fdinfo", self.fd);
        let room = self.scratch.bytes()?;
        let file = open(path.as_bytes())?;
        let got = rustix::io::read(&file, &mut *room).ok()?;
        mount::id_in_fdinfo(room.get(..got)?)
    }
}

impl File for Open<'_> {
    fn path(&mut self) -> Option<&[u8]> {
        let link = proc_path("fd", self.fd);
        let room = self.scratch.bytes()?;
        let link = c_path(link.as_bytes())?;
        let length = rustix::fs::readlinkat_raw(rustix::fs::CWD, link, &mut *room).ok()?;
        let path = room.get(..length)?;
        let gone = self.status.stx_nlink == 0;
        let named = path.strip_suffix(DELETED).filter(|_| gone);
        Some(named.unwrap_or(path))
    }

    fn mount(&mut self) -> Option<&Mount> {
        let id = self.mount_id()?;
        let device = self.device();
        let is_it = |met: &Met| (met.id, met.device) == (id, device);
        let known = self.mounts.known.iter();
        let at = match known.clone().position(|known| known.as_ref().is_some_and(is_it)) {
            Some(at) => at,
            None => {
                let table = open(b"/proc/self/mountinfo\0")?;
                let room = self.scratch.bytes()?;
                let read = |room: &mut [u8]| rustix::io::read(&table, room).unwrap_or(0);
                let mount = mount::find(id, room, read)?;
                let at = self.mounts.next % MOUNTS;
                self.mounts.known[at] = Some(Met { id, device, mount });
                self.mounts.next = at + 1;
                at
            }
        };
        self.mounts.known[at].as_ref().map(|met| &met.mount)
    }

    fn xattr(&mut self, name: &str) -> Option<&[u8]> {
        let mut with_end = Text::<64>::cut(name.as_bytes());
        with_end.push(0);
        let name = c_path(with_end.as_bytes())?;
        let room = self.scratch.bytes()?;
        let length = rustix::fs::fgetxattr(self.fd, name, &mut *room).ok()?;
        room.get(..length)
    }

    fn device(&self) -> (u32, u32) {
        (self.status.stx_dev_major, self.status.stx_dev_minor)
    }

    fn inode(&self) -> u64 {
        self.status.stx_ino
    }
}

/// `/proc/self/KIND/FD` and a zero.
fn proc_path(kind: &str, fd: BorrowedFd<'_>) -> Text<40> {
    use rustix::fd::AsRawFd;
    let mut room = [0u8; 40];
    let mut rest = &mut room[..];
    let _ = write!(rest, "/proc/self/{kind}/{}\0", fd.as_raw_fd());
    let left = rest.len();
    Text::cut(&room[..room.len() - left])
}

fn c_path(with_end: &[u8]) -> Option<&std::ffi::CStr> {
    std::ffi::CStr::from_bytes_with_nul(with_end).ok()
}

fn open(with_end: &[u8]) -> Option<rustix::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(c_path(with_end)?, flags, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;
    use std::os::fd::AsFd;

    fn with<T>(file: &std::fs::File, look: impl FnOnce(&mut Open<'_>) -> T) -> T {
        let status = regular(file.as_fd()).expect("a regular file");
        let (mut scratch, mut mounts) = (Scratch::NONE, Mounts::NONE);
        let (scratch, mounts) = (&mut scratch, &mut mounts);
        look(&mut Open { fd: file.as_fd(), status: &status, scratch, mounts })
    }

    #[test]
    fn path_mount_device_and_inode_of_a_file() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("a b");
        let file = std::fs::File::create(&path).unwrap();
        with(&file, |open| {
            assert_eq!(open.path().unwrap(), path.as_os_str().as_encoded_bytes());
            let mount = open.mount().expect("/proc is there").to_owned();
            let point = std::str::from_utf8(mount.point.as_bytes()).unwrap();
            assert!(path.starts_with(point), "{point}");
            let again = open.mount().unwrap();
            assert_eq!(again.point.as_bytes(), mount.point.as_bytes());
            let metadata = file.metadata().unwrap();
            assert_eq!(open.inode(), metadata.ino());
            assert_eq!(open.xattr("user.nothing"), None);
        });
        std::fs::remove_file(&path).unwrap();
        with(&file, |open| {
            assert_eq!(open.path().unwrap(), path.as_os_str().as_encoded_bytes(), "deleted");
        });
    }

    #[test]
    fn the_mount_id_in_proc_is_that_of_statx() {
        let file = tempfile::tempfile().unwrap();
        with(&file, |open| {
            let by_statx = open.mount_id().unwrap();
            let mut old = *open.status;
            old.stx_mask &= !STATX_MNT_ID;
            let mut open = Open { status: &old, fd: open.fd, ..reborrow(open) };
            assert_eq!(open.mount_id(), Some(by_statx));
        });
    }

    fn reborrow<'a>(open: &'a mut Open<'_>) -> Open<'a> {
        Open { fd: open.fd, status: open.status, scratch: open.scratch, mounts: open.mounts }
    }

    #[test]
    fn what_is_left_to_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        assert_eq!(bytes_left(file.as_fd(), Some(30)), 70);
        assert_eq!(bytes_left(file.as_fd(), Some(200)), 0);
        file.seek(std::io::SeekFrom::Start(60)).unwrap();
        assert_eq!(bytes_left(file.as_fd(), None), 40);
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(bytes_left(reader.as_fd(), None), 0, "not a regular file");
    }
}
