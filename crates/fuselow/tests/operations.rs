//! Every operation that programs use, through a real mount of an in-memory file system, over both
//! transports.

mod harness;

use fuselow::{Config, End, Transport};
use harness::{Mount, transports};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// The result of a call of libc.
fn checked(result: impl Into<i64>) -> std::io::Result<i64> {
    let result = result.into();
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// Bytes that differ from place to place.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect()
}

/// Runs a test over each transport, and unmounts.
fn on_mounts(test: impl Fn(&Mount)) {
    for transport in transports() {
        let mut mount = Mount::new(transport);
        let uring = transport == Transport::Uring;
        assert_eq!(mount.session().negotiated().uring, uring);
        test(&mount);
        // The kernel releases in the background, and no more once it unmounts.
        while !mount.tree.state().open.is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(mount.end(), End::Unmounted);
    }
}

#[test]
fn files_are_made_written_and_read() {
    on_mounts(|mount| {
        let path = mount.path("a file");
        fs::write(&path, b"some bytes").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"some bytes");
        assert_eq!(mount.tree.file("a file"), b"some bytes");
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.len(), meta.nlink(), meta.mode() & 0o170000), (10, 1, 0o100000));

        let mut appended = OpenOptions::new().append(true).open(&path).unwrap();
        appended.write_all(b", more").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"some bytes, more");
        assert_eq!(
            errno(OpenOptions::new().write(true).create_new(true).open(&path)),
            libc::EEXIST
        );
        File::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);

        let long = mount.path(&"n".repeat(256));
        assert_eq!(errno(File::create(long)), libc::ENAMETOOLONG);
        let longest = mount.path(&"n".repeat(255));
        File::create(&longest).unwrap();
        fs::remove_file(longest).unwrap();

        // It lives until it is closed.
        let mut open = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
        open.write_all(b"still here").unwrap();
        open.rewind().unwrap();
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), open.metadata().unwrap().nlink()), ("still here", 0));
    });
}

#[test]
fn directories_are_made_listed_and_renamed() {
    on_mounts(|mount| {
        let path = |name: &str| mount.path(name);
        fs::create_dir_all(path("a/b/c")).unwrap();
        fs::write(path("a/b/c/file"), b"x").unwrap();
        assert_eq!(errno(fs::remove_dir(path("a/b"))), libc::ENOTEMPTY);
        assert_eq!(errno(fs::create_dir(path("a"))), libc::EEXIST);
        fs::rename(path("a/b"), path("moved")).unwrap();
        assert_eq!(fs::read(path("moved/c/file")).unwrap(), b"x");

        fs::write(path("one"), b"1").unwrap();
        fs::write(path("two"), b"2").unwrap();
        let rename = |from: &str, to: &str, flags: u32| {
            let (from, to) = (c(&path(from)), c(&path(to)));
            let (cwd, flags) = (libc::AT_FDCWD, flags as libc::c_long);
            // SAFETY: both names end with a NUL and outlive the call.
            checked(unsafe {
                libc::syscall(libc::SYS_renameat2, cwd, from.as_ptr(), cwd, to.as_ptr(), flags)
            })
        };
        assert_eq!(errno(rename("one", "two", libc::RENAME_NOREPLACE)), libc::EEXIST);
        rename("one", "two", libc::RENAME_EXCHANGE).unwrap();
        assert_eq!(fs::read(path("one")).unwrap(), b"2");
        fs::rename(path("one"), path("two")).unwrap();
        assert_eq!(fs::read(path("two")).unwrap(), b"2");

        let names: BTreeSet<_> =
            fs::read_dir(mount.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a", "moved", "two"].map(Into::into).into());
        assert!(fs::metadata(path("moved/..")).unwrap().is_dir());
        fs::remove_dir(path("a")).unwrap();
    });
}

#[test]
fn links_and_special_files() {
    on_mounts(|mount| {
        let path = |name: &str| mount.path(name);
        fs::write(path("file"), b"linked").unwrap();
        fs::hard_link(path("file"), path("second")).unwrap();
        assert_eq!(fs::metadata(path("second")).unwrap().nlink(), 2);
        fs::remove_file(path("file")).unwrap();
        assert_eq!(fs::read(path("second")).unwrap(), b"linked");

        std::os::unix::fs::symlink("second", path("symlink")).unwrap();
        assert_eq!(fs::read_link(path("symlink")).unwrap(), Path::new("second"));
        assert_eq!(fs::read(path("symlink")).unwrap(), b"linked");
        let target = "t".repeat(4095);
        std::os::unix::fs::symlink(&target, path("long")).unwrap();
        assert_eq!(fs::read_link(path("long")).unwrap(), Path::new(&target));

        // SAFETY: the name ends with a NUL and outlives the call.
        checked(unsafe { libc::mkfifo(c(&path("fifo")).as_ptr(), 0o640) }).unwrap();
        let meta = fs::metadata(path("fifo")).unwrap();
        assert_eq!(meta.mode() & 0o170777, 0o010640);
    });
}

#[test]
fn attributes_are_changed() {
    on_mounts(|mount| {
        let path = mount.path("file");
        let file = File::create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4711)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4711);
        // SAFETY: geteuid has no arguments.
        if unsafe { libc::geteuid() } == 0 {
            std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
            let meta = fs::metadata(&path).unwrap();
            assert_eq!((meta.uid(), meta.gid()), (12, 34));
        }
        file.set_len(10_000).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
        file.set_len(5).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [0; 5]);
        let time = |secs| libc::timespec { tv_sec: secs, tv_nsec: 123_456_789 };
        // Before 1970, too.
        let times = [time(-5), time(1_000_000_007)];
        // SAFETY: the file is open and there are two times.
        checked(unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) }).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.atime(), meta.atime_nsec()), (-5, 123_456_789));
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_000_000_007, 123_456_789));
    });
}

#[test]
fn extended_attributes() {
    on_mounts(|mount| {
        let path = mount.path("file");
        File::create(&path).unwrap();
        let path = c(&path);
        let name = c(Path::new("user.name/with a slash"));
        let value = pattern(60_000);
        let set = |flags| {
            let (data, bytes) = (value.as_ptr().cast(), value.len());
            // SAFETY: names end with NULs, and the value has as many bytes.
            checked(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), data, bytes, flags) })
        };
        let get = |room: &mut [u8]| {
            let (data, bytes) = (room.as_mut_ptr().cast(), room.len());
            // SAFETY: as above, and the room is writable.
            checked(unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), data, bytes) } as i64)
        };
        assert_eq!(errno(set(libc::XATTR_REPLACE)), libc::ENODATA);
        set(libc::XATTR_CREATE).unwrap();
        assert_eq!(errno(set(libc::XATTR_CREATE)), libc::EEXIST);
        let mut room = vec![0; 60_000];
        assert_eq!(get(&mut []).unwrap(), 60_000);
        assert_eq!(errno(get(&mut room[..59_999])), libc::ERANGE);
        assert_eq!(get(&mut room).unwrap(), 60_000);
        assert!(room == value);
        let mut names = [0u8; 64];
        let (data, bytes) = (names.as_mut_ptr().cast(), names.len());
        // SAFETY: as above.
        let used = unsafe { libc::listxattr(path.as_ptr(), data, bytes) } as usize;
        assert_eq!(&names[..used], b"user.name/with a slash\0");
        // SAFETY: as above.
        checked(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }).unwrap();
        assert_eq!(errno(get(&mut [])), libc::ENODATA);
    });
}

#[test]
fn large_transfers_cached_and_direct() {
    on_mounts(|mount| {
        let data = pattern(5 << 20);
        fs::write(mount.path("large"), &data).unwrap();
        assert!(mount.tree.file("large") == data);
        assert!(fs::read(mount.path("large")).unwrap() == data);

        // Direct: whole pages at aligned addresses, one request after the other or in parallel.
        let mut memory = vec![0u8; (5 << 20) + 4096];
        let at = memory.as_ptr().align_offset(4096);
        let memory = &mut memory[at..at + (5 << 20)];
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).custom_flags(libc::O_DIRECT);
        let file = options.open(mount.path("direct")).unwrap();
        memory.copy_from_slice(&data);
        file.write_all_at(memory, 4096).unwrap();
        assert!(mount.tree.file("direct")[4096..] == data);
        memory.fill(0);
        file.read_exact_at(memory, 4096).unwrap();
        assert!(memory == data);
        // Short at the end of the file.
        assert_eq!(file.read_at(memory, 5 << 20).unwrap(), 4096);
        assert_eq!(file.read_at(memory, 6 << 20).unwrap(), 0);
    });
}

/// Where root has raised the kernel's limit.
#[test]
fn requests_of_several_mebibytes() {
    let limit = fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit").unwrap_or_default();
    if limit.trim().parse::<u32>().unwrap_or(0) < 1024 {
        eprintln!("SKIPPED: requests over 1 MiB need `sysctl fs.fuse.max_pages_limit=1024`");
        return;
    }
    for transport in transports() {
        let config = Config { transport, max_write_bytes: 4 << 20, ..Config::default() };
        let mut mount = Mount::with(config);
        assert_eq!(mount.session().negotiated().max_write_bytes, 4 << 20);
        let data = pattern(9 << 20);
        fs::write(mount.path("large"), &data).unwrap();
        assert!(mount.tree.file("large") == data);
        let mut memory = vec![0u8; (8 << 20) + 4096];
        let at = memory.as_ptr().align_offset(4096);
        let memory = &mut memory[at..at + (8 << 20)];
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let file = file.open(mount.path("large")).unwrap();
        file.read_exact_at(memory, 0).unwrap();
        assert!(memory == &data[..8 << 20]);
        file.write_all_at(memory, 1 << 20).unwrap();
        assert!(mount.tree.file("large")[1 << 20..] == *memory);
        drop(file);
        let largest = mount.tree.largest_write.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(largest, 4 << 20);
        assert_eq!(mount.end(), End::Unmounted);
    }
}

#[test]
fn shared_mappings_reach_the_file() {
    on_mounts(|mount| {
        let path = mount.path("mapped");
        fs::write(&path, pattern(20_000)).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a fresh mapping of a file that is 20,000 bytes long.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), 20_000, prot, flags, file.as_raw_fd(), 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping is that long and nobody else has it.
        let memory = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), 20_000) };
        assert!(memory == pattern(20_000));
        memory[9_000..9_005].copy_from_slice(b"HELLO");
        // SAFETY: our mapping, not used afterwards.
        checked(unsafe { libc::msync(start, 20_000, libc::MS_SYNC) }).unwrap();
        // SAFETY: as above.
        checked(unsafe { libc::munmap(start, 20_000) }).unwrap();
        assert_eq!(&mount.tree.file("mapped")[9_000..9_005], b"HELLO");
    });
}

#[test]
fn allocation_holes_and_copies() {
    on_mounts(|mount| {
        let path = mount.path("file");
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let fd = file.as_raw_fd();
        let allocate = |mode, at, bytes| {
            // SAFETY: the file is open.
            checked(unsafe { libc::fallocate(fd, mode, at, bytes) })
        };
        allocate(0, 0, 40_960).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 40_960);
        file.write_all_at(&pattern(40_960), 0).unwrap();
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        allocate(punch, 8192, 4096).unwrap();
        assert_eq!(fs::read(&path).unwrap()[8192..12_288], [0; 4096]);
        let seek = |at, whence| {
            // SAFETY: the file is open.
            checked(unsafe { libc::lseek(fd, at, whence) })
        };
        assert_eq!(seek(0, libc::SEEK_HOLE).unwrap(), 8192);
        assert_eq!(seek(8192, libc::SEEK_DATA).unwrap(), 12_288);
        assert_eq!(errno(seek(50_000, libc::SEEK_DATA)), libc::ENXIO);

        file.seek(SeekFrom::Start(0)).unwrap();
        let target = File::create(mount.path("copy")).unwrap();
        let (mut from, mut to) = (4096i64, 10i64);
        // SAFETY: both files are open, and the offsets outlive the call.
        let copied = checked(unsafe {
            libc::copy_file_range(fd, &mut from, target.as_raw_fd(), &mut to, 3000, 0)
        } as i64);
        assert_eq!(copied.unwrap(), 3000);
        assert_eq!(mount.tree.file("copy")[10..], pattern(40_960)[4096..7096]);
    });
}

#[test]
fn temporary_files_can_be_named_later() {
    on_mounts(|mount| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600);
        let mut file = options.open(mount.root()).unwrap();
        file.write_all(b"nameless").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let (cwd, to) = (libc::AT_FDCWD, c(&mount.path("named")));
        // SAFETY: both names end with NULs and outlive the call.
        checked(unsafe {
            libc::linkat(cwd, from.as_ptr(), cwd, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        })
        .unwrap();
        assert_eq!(fs::read(mount.path("named")).unwrap(), b"nameless");
    });
}

fn record_lock(file: &File, command: i32, kind: i32, start: i64, len: i64) -> std::io::Result<i32> {
    // SAFETY: zeros are a value of the struct.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as i16, libc::SEEK_SET as i16);
    (lock.l_start, lock.l_len) = (start, len);
    // SAFETY: the file is open, and the lock outlives the call.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) })?;
    Ok(lock.l_type.into())
}

#[test]
fn locks_come_to_the_file_system() {
    on_mounts(|mount| {
        let path = mount.path("locked");
        let open =
            || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let (first, second) = (open().unwrap(), open().unwrap());
        // Locks of open files, which can be told apart within one process.
        let (set, get) = (libc::F_OFD_SETLK, libc::F_OFD_GETLK);
        record_lock(&first, set, libc::F_WRLCK, 100, 50).unwrap();
        assert_eq!(errno(record_lock(&second, set, libc::F_RDLCK, 140, 50)), libc::EAGAIN);
        record_lock(&second, set, libc::F_RDLCK, 150, 50).unwrap();
        let there = record_lock(&second, get, libc::F_RDLCK, 0, 0).unwrap();
        assert_eq!(there, libc::F_WRLCK);
        record_lock(&first, set, libc::F_UNLCK, 100, 50).unwrap();
        assert_eq!(record_lock(&second, get, libc::F_WRLCK, 0, 0).unwrap(), libc::F_UNLCK);

        let flock = |file: &File, kind| {
            // SAFETY: the file is open.
            checked(unsafe { libc::flock(file.as_raw_fd(), kind) })
        };
        flock(&first, libc::LOCK_EX).unwrap();
        assert_eq!(errno(flock(&second, libc::LOCK_SH | libc::LOCK_NB)), libc::EAGAIN);
        let waiter = {
            let second = second.try_clone().unwrap();
            std::thread::spawn(move || flock(&second, libc::LOCK_SH))
        };
        while mount.tree.waiting.load(std::sync::atomic::Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        // Closing the file lets go of the lock.
        drop(first);
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn the_rest() {
    on_mounts(|mount| {
        let path = mount.path("file");
        fs::write(&path, b"x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        let name = c(&path);
        // SAFETY: the name ends with a NUL and outlives the calls.
        let access = |mask| checked(unsafe { libc::access(name.as_ptr(), mask) });
        access(libc::R_OK).unwrap();
        assert_eq!(errno(access(libc::W_OK)), libc::EACCES);

        // SAFETY: zeros are a value of the struct, and the name ends with a NUL.
        let found = unsafe {
            let mut found: libc::statvfs = std::mem::zeroed();
            checked(libc::statvfs(name.as_ptr(), &mut found)).unwrap();
            found
        };
        assert_eq!((found.f_bsize, found.f_blocks, found.f_bavail), (4096, 1000, 500));
        assert_eq!((found.f_files, found.f_namemax), (100, 255));

        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        File::open(mount.root()).unwrap().sync_all().unwrap();
        let mut number = 21u32;
        // SAFETY: the command carries one word in and out.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), 0xc004_4101, &mut number) };
        assert_eq!((result, number), (7, 42));
        // SAFETY: an unknown command carries nothing.
        let unknown = unsafe { libc::ioctl(file.as_raw_fd(), 0x4242, 0) };
        assert_eq!(errno(checked(unknown)), libc::ENOTTY);
        let mut fd = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor is given.
        assert_eq!(unsafe { libc::poll(&mut fd, 1, 0) }, 1);
    });
}

/// Directories larger than any request, with and without attributes.
#[test]
fn huge_directories_are_listed_whole() {
    const COUNT: usize = 20_000;
    for transport in transports() {
        for readdirplus in [true, false] {
            let config = Config { transport, readdirplus, ..Config::default() };
            let mut mount = Mount::with(config);
            assert_eq!(mount.session().negotiated().readdirplus, readdirplus);
            mount.tree.fill(COUNT);
            let mut seen = 0;
            for entry in fs::read_dir(mount.root()).unwrap() {
                let entry = entry.unwrap();
                assert!(entry.file_name().to_string_lossy().starts_with("file-"));
                assert!(entry.file_type().unwrap().is_file());
                seen += 1;
            }
            assert_eq!(seen, COUNT);
            assert_eq!(mount.end(), End::Unmounted);
        }
    }
}
