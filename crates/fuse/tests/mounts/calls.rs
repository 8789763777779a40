//! Calls beyond reading and writing: locks between mounts, space, holes, files without a name,
//! copies, access times.

use crate::system::{self, systems};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use types::Durability;

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// `fcntl` with a lock of an open file; the errno.
fn record_lock(
    file: &File,
    command: i32,
    kind: i32,
    start: i64,
    len: i64,
) -> Result<libc::flock, i32> {
    // SAFETY: plain numbers, all of them allowed to be 0.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    (lock.l_start, lock.l_len) = (start, len);
    // SAFETY: the descriptor is open and the struct outlives the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    match done {
        0 => Ok(lock),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

#[test]
fn locks_hold_between_mounts() {
    for system in systems(Durability::Memory) {
        let (a, b) = (system.mount("cache=none"), system.mount(""));
        let (mine, theirs) = (open(&a.path("f")), open(&b.path("f")));
        flock(&mine, FlockOperation::LockShared).unwrap();
        flock(&theirs, FlockOperation::NonBlockingLockShared).unwrap();
        let refused = flock(&theirs, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
        flock(&theirs, FlockOperation::Unlock).unwrap();
        flock(&mine, FlockOperation::NonBlockingLockExclusive).unwrap();
        // Who waits gets it when it is free; closing frees it.
        let mut waiter = b.shell("flock f true").spawn().unwrap();
        assert!(waiter.try_wait().unwrap().is_none());
        drop(mine);
        assert!(waiter.wait().unwrap().success(), "who waits gets no lock");
        // Byte ranges, of open files so that one process can be several owners.
        let mine = open(&a.path("f"));
        let (set, get) = (libc::F_OFD_SETLK, libc::F_OFD_GETLK);
        record_lock(&mine, set, libc::F_WRLCK, 10, 10).unwrap();
        assert_eq!(record_lock(&theirs, set, libc::F_RDLCK, 15, 1).unwrap_err(), libc::EAGAIN);
        record_lock(&theirs, set, libc::F_WRLCK, 20, 0).unwrap();
        let found = record_lock(&theirs, get, libc::F_RDLCK, 0, 0).unwrap();
        assert_eq!((found.l_type as i32, found.l_start, found.l_len), (libc::F_WRLCK, 10, 10));
        record_lock(&mine, set, libc::F_UNLCK, 12, 2).unwrap();
        record_lock(&theirs, set, libc::F_WRLCK, 12, 2).unwrap();
        assert_eq!(record_lock(&theirs, set, libc::F_WRLCK, 11, 1).unwrap_err(), libc::EAGAIN);
        // A process that waits for a lock can be interrupted.
        let exclusive = open(&a.path("g"));
        flock(&exclusive, FlockOperation::LockExclusive).unwrap();
        b.sh("if timeout 1 flock g true; then exit 1; else test $? -eq 124; fi");
        drop(exclusive);
        b.sh("timeout 60 flock g true");
        // Closing the file gives them back, soon: nobody waits for the last close.
        drop(mine);
        system::eventually("the locks of a closed file are free", || {
            record_lock(&theirs, set, libc::F_WRLCK, 0, 0).is_ok()
        });
        // A mount that goes leaves no locks.
        let left = open(&a.path("left"));
        record_lock(&left, set, libc::F_WRLCK, 0, 0).unwrap();
        let wanted = open(&b.path("left"));
        assert_eq!(record_lock(&wanted, set, libc::F_RDLCK, 0, 0).unwrap_err(), libc::EAGAIN);
        a.mount().session().unmount(true).unwrap();
        drop(left);
        drop(a);
        system::eventually("the locks of a mount that is gone are free", || {
            record_lock(&wanted, set, libc::F_RDLCK, 0, 0).is_ok()
        });
    }
}

#[test]
fn locks_of_processes_go_when_they_close_the_file() {
    for system in systems(Durability::Memory) {
        let (a, b) = (system.mount("cache=none"), system.mount("cache=none"));
        let (mine, theirs) = (open(&a.path("f")), open(&b.path("f")));
        record_lock(&mine, libc::F_SETLK, libc::F_WRLCK, 0, 5).unwrap();
        assert_eq!(
            record_lock(&theirs, libc::F_SETLK, libc::F_WRLCK, 0, 1).unwrap_err(),
            libc::EAGAIN,
            "owners on two mounts are two"
        );
        // Any descriptor of the file.
        drop(File::open(a.path("f")).unwrap());
        record_lock(&theirs, libc::F_SETLK, libc::F_WRLCK, 0, 1).unwrap();
    }
}

/// The kernel does not wait for the answer to the last close of a file, so a program's next lock
/// overtook the end of those of a file it had just closed, now and then.
#[test]
fn locks_of_open_files_are_gone_after_the_last_close() {
    for system in systems(Durability::Memory) {
        let mounted = system.mount("cache=none");
        std::thread::scope(|scope| {
            for who in 0..4 {
                let path = mounted.path(&format!("f{who}"));
                scope.spawn(move || {
                    let next = open(&path);
                    for round in 0..200 {
                        let file = open(&path);
                        record_lock(&file, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0).unwrap();
                        drop(file);
                        let locked = record_lock(&next, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 0);
                        assert_eq!(locked.err(), None, "round {round}");
                        record_lock(&next, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0).unwrap();
                        let file = open(&path);
                        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
                        drop(file);
                        let locked = flock(&next, FlockOperation::NonBlockingLockExclusive);
                        assert!(locked.is_ok(), "round {round}: {locked:?}");
                        flock(&next, FlockOperation::Unlock).unwrap();
                    }
                });
            }
        });
        mounted.unmount();
    }
}

#[test]
fn space_and_holes() {
    for system in systems(Durability::Memory) {
        let mounted = system.mount("");
        let file = open(&mounted.path("f"));
        fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        fallocate(&file, FallocateFlags::KEEP_SIZE, 1 << 20, 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        file.write_all_at(&[7; 300_000], 0).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 100_000, 50_000).unwrap();
        fallocate(&file, FallocateFlags::ZERO_RANGE, 200_000, 10).unwrap();
        let mut expected = vec![7u8; 300_000];
        expected[100_000..150_000].fill(0);
        expected[200_000..200_010].fill(0);
        let mut back = vec![1; 300_000];
        file.read_exact_at(&mut back, 0).unwrap();
        assert!(back == expected);
        let refused = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP));
        use rustix::fs::SeekFrom;
        let seek = |from| rustix::fs::seek(&file, from);
        assert_eq!(seek(SeekFrom::Hole(0)).unwrap(), 100_000);
        assert_eq!(seek(SeekFrom::Data(100_000)).unwrap(), 150_000);
        assert_eq!(seek(SeekFrom::Data(2 << 20)), Err(rustix::io::Errno::NXIO));
        mounted.sh("cp --sparse=always f g && cmp f g");
        // The kernel hands the copy to us.
        let (source, target) = (File::open(mounted.path("f")).unwrap(), open(&mounted.path("h")));
        let (mut from, mut to) = (0, 0);
        while from < 1 << 20 {
            let count = rustix::fs::copy_file_range(
                &source,
                Some(&mut from),
                &target,
                Some(&mut to),
                1 << 20,
            )
            .unwrap();
            assert!(count > 0, "stuck at {from}");
        }
        mounted.sh("cmp f h");
    }
}

#[test]
fn a_file_without_a_name_gets_one() {
    for system in systems(Durability::Memory) {
        for options in ["", "cache=none"] {
            let mounted = system.mount(options);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .mode(0o640)
                .custom_flags(libc::O_TMPFILE)
                .open(mounted.dir())
                .unwrap();
            file.write_all_at(b"contents", 0).unwrap();
            assert_eq!(file.metadata().unwrap().nlink(), 0);
            assert_eq!(fs::read_dir(mounted.dir()).unwrap().count(), 0);
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            use rustix::fs::{AtFlags, CWD, linkat};
            linkat(CWD, &path, CWD, mounted.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
            assert_eq!(file.metadata().unwrap().nlink(), 1);
            drop(file);
            assert_eq!(fs::read(mounted.path("named")).unwrap(), b"contents");
            assert_eq!(fs::metadata(mounted.path("named")).unwrap().mode() & 0o777, 0o640);
            fs::remove_file(mounted.path("named")).unwrap();
            mounted.unmount();
        }
    }
}

#[test]
fn reading_sets_access_times_by_the_rule_of_relatime() {
    for system in systems(Durability::Memory) {
        let plain = system.mount("cache=none");
        let path = plain.path("f");
        fs::write(&path, "data").unwrap();
        let before = fs::metadata(&path).unwrap();
        fs::read(&path).unwrap();
        let atime = |path: &std::path::Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.atime(), meta.atime_nsec())
        };
        system::eventually("a read after a write is an access", || {
            atime(&path) > (before.mtime(), before.mtime_nsec())
        });
        let first = atime(&path);
        for _ in 0..3 {
            fs::read(&path).unwrap();
        }
        assert_eq!(atime(&path), first, "a second read within a day changes nothing");
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.mtime(), after.ctime()), (before.mtime(), before.ctime()));
        plain.unmount();
        let never = system.mount("cache=none,noatime");
        fs::write(never.path("f"), "newer").unwrap();
        fs::read(never.path("f")).unwrap();
        assert_eq!(atime(&never.path("f")), first);
    }
}
