//! Between the kernel's terms and those of `dfs`.

use dfs::{OpenFlags, SetTime, Stat, StatFs};
use fuselow::{Attr, FileKind};

const NS_PER_S: i64 = 1_000_000_000;

/// Transfer size told to programs, bytes. Larger than a page so that standard I/O libraries,
/// which buffer this much, ask less often.
pub const BLOCK_BYTES: u32 = 128 << 10;

/// Attributes for the kernel.
pub fn attr(stat: &Stat, block_bytes: u32) -> Attr {
    let (atime, atime_ns) = split_time(stat.atime_ns);
    let (mtime, mtime_ns) = split_time(stat.mtime_ns);
    let (ctime, ctime_ns) = split_time(stat.ctime_ns);
    Attr {
        ino: stat.ino,
        size: stat.size,
        blocks: stat.stored_bytes.div_ceil(512),
        atime,
        mtime,
        ctime,
        atime_ns,
        mtime_ns,
        ctime_ns,
        mode: stat.mode,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev as u32,
        blksize: block_bytes,
        flags: 0,
    }
}

fn split_time(ns: i64) -> (u64, u32) {
    (ns.div_euclid(NS_PER_S) as u64, ns.rem_euclid(NS_PER_S) as u32)
}

/// A time to set. Times that do not fit nanoseconds since 1970 in 64 bits (the years 1677 to
/// 2262) become the nearest that does, as other file systems do with their limits.
pub fn set_time(time: fuselow::SetTime) -> SetTime {
    match time {
        fuselow::SetTime::Now => SetTime::Now,
        fuselow::SetTime::At { secs, ns } => {
            SetTime::At(secs.saturating_mul(NS_PER_S).saturating_add(ns as i64))
        }
    }
}

pub fn kind(kind: dfs::FileKind) -> FileKind {
    match kind {
        dfs::FileKind::Regular => FileKind::Regular,
        dfs::FileKind::Directory => FileKind::Directory,
        dfs::FileKind::Symlink => FileKind::Symlink,
        dfs::FileKind::Fifo => FileKind::Fifo,
        dfs::FileKind::Socket => FileKind::Socket,
        dfs::FileKind::CharDevice => FileKind::CharDevice,
        dfs::FileKind::BlockDevice => FileKind::BlockDevice,
    }
}

/// What a file is opened for. The kernel sees to access modes, and asks for what a program may
/// not (reading a page before part of it is written), so the mode is kept for the check of
/// permissions only.
pub fn open_flags(flags: fuselow::OpenFlags) -> OpenFlags {
    let mut open = OpenFlags::NOFOLLOW;
    if flags.reads() {
        open = open | OpenFlags::READ;
    }
    if flags.writes() {
        open = open | OpenFlags::WRITE;
    }
    if flags.has(libc::O_EXCL) {
        open = open | OpenFlags::EXCL;
    }
    if flags.has(libc::O_TRUNC) {
        open = open | OpenFlags::TRUNC;
    }
    open
}

/// Space, in blocks of 4 KiB.
pub fn space(space: &StatFs) -> fuselow::StatFs {
    const BLOCK: u64 = 4096;
    // Objects take no fixed room: as many files fit as smallest files would.
    let files_free = space.free_bytes / BLOCK;
    fuselow::StatFs {
        blocks: space.total_bytes / BLOCK,
        blocks_free: space.free_bytes / BLOCK,
        blocks_available: space.available_bytes / BLOCK,
        files: space.object_count + files_free,
        files_free,
        block_bytes: BLOCK as u32,
        name_bytes_max: space.name_bytes_max as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_far_away() {
        assert_eq!(split_time(-1), (u64::MAX, 999_999_999));
        assert_eq!(split_time(1_500_000_000), (1, 500_000_000));
        let at = |secs, ns| set_time(fuselow::SetTime::At { secs, ns });
        assert_eq!(at(-1, 999_999_999), SetTime::At(-1));
        assert_eq!(at(i64::MAX, 5), SetTime::At(i64::MAX));
        assert_eq!(at(i64::MIN, 0), SetTime::At(i64::MIN));
    }

    #[test]
    fn open_bits_translate() {
        let flags =
            |bits: i32| open_flags(fuselow::OpenFlags { bits: bits as u32, kill_suidgid: false });
        assert_eq!(flags(libc::O_RDONLY), OpenFlags::READ | OpenFlags::NOFOLLOW);
        assert_eq!(
            flags(libc::O_WRONLY | libc::O_TRUNC),
            OpenFlags::WRITE | OpenFlags::TRUNC | OpenFlags::NOFOLLOW
        );
        assert!(flags(libc::O_RDWR | libc::O_EXCL).has(OpenFlags::READ_WRITE | OpenFlags::EXCL));
    }
}
