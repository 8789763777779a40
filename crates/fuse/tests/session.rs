//! What a session lives through: signals, forced unmounts, death, many threads, panics.

mod harness;

use fuse::low::{Config, End, MountOptions, Session, Transport};
use harness::{Mount, can_mount, transports};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::yield_now;
use types::{Code, Error};

/// Lets system calls of a thread end with `EINTR` when it gets SIGUSR1.
fn interruptible() {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: the action is initialised, and the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        libc::sigemptyset(&mut action.sa_mask);
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

fn wait_for(counter: &AtomicUsize, count: usize) {
    while counter.load(Ordering::SeqCst) != count {
        yield_now();
    }
}

fn read_first(path: &Path) -> std::io::Result<usize> {
    File::open(path)?.read(&mut [0; 10])
}

/// A request that waits until it is interrupted. (Transfers would not do: the kernel waits for
/// those of its cache, and for direct ones, without heeding signals.)
fn hang(path: &Path) -> std::io::Result<isize> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: both names end with NULs and outlive the call.
    let got =
        unsafe { libc::getxattr(path.as_ptr(), c"user.hang".as_ptr(), std::ptr::null_mut(), 0) };
    if got < 0 { Err(std::io::Error::last_os_error()) } else { Ok(got) }
}

#[test]
fn a_signal_interrupts_a_request_that_waits() {
    interruptible();
    for transport in transports() {
        let mut mount = Mount::new(transport);
        let root = mount.root();
        let reader = std::thread::spawn(move || hang(&root));
        wait_for(&mount.tree.waiting, 1);
        // SAFETY: the thread has not been joined yet.
        unsafe { libc::pthread_kill(reader.as_pthread_t(), libc::SIGUSR1) };
        let error = reader.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINTR), "{transport:?}");
        wait_for(&mount.tree.waiting, 0);
        assert_eq!(mount.end(), End::Unmounted);
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_lock() {
    interruptible();
    for transport in transports() {
        let mut mount = Mount::new(transport);
        let path = mount.path("locked");
        let holder = File::create(&path).unwrap();
        // SAFETY: the file is open.
        assert_eq!(unsafe { libc::flock(holder.as_raw_fd(), libc::LOCK_EX) }, 0);
        let waiter = std::thread::spawn(move || {
            let file = File::open(path).unwrap();
            // SAFETY: the file is open.
            let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
            (result, std::io::Error::last_os_error().raw_os_error())
        });
        wait_for(&mount.tree.waiting, 1);
        // SAFETY: the thread has not been joined yet.
        unsafe { libc::pthread_kill(waiter.as_pthread_t(), libc::SIGUSR1) };
        assert_eq!(waiter.join().unwrap(), (-1, Some(libc::EINTR)), "{transport:?}");
        drop(holder);
        assert_eq!(mount.end(), End::Unmounted);
    }
}

#[test]
fn a_forced_unmount_ends_requests_that_wait() {
    for transport in transports() {
        let mut mount = Mount::new(transport);
        let readers: Vec<_> = (0..20)
            .map(|_| {
                let root = mount.root();
                std::thread::spawn(move || hang(&root))
            })
            .collect();
        wait_for(&mount.tree.waiting, 20);
        let session = mount.session.take().unwrap();
        assert_eq!(session.unmount(false).unwrap_err().code, Code::Busy);
        assert_eq!(session.ended(), None);
        let root = CString::new(mount.root().to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a NUL. It is busy, so it stays mounted, but its connection
        // is cut.
        unsafe { libc::umount2(root.as_ptr(), libc::MNT_FORCE) };
        for reader in readers {
            assert!(reader.join().unwrap().is_err());
        }
        assert_eq!(session.wait(), End::Aborted);
        assert_eq!(mount.tree.waiting.load(Ordering::SeqCst), 0, "a request was forgotten");
        assert!(fs::read_dir(mount.root()).unwrap().next().is_none(), "the mount is still there");
    }
}

#[test]
fn a_panic_is_an_error_of_one_request() {
    for transport in transports() {
        let mut mount = Mount::new(transport);
        fs::write(mount.path("panic"), b"x").unwrap();
        fs::write(mount.path("fine"), b"y").unwrap();
        for _ in 0..3 {
            let error = read_first(&mount.path("panic")).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
            assert_eq!(fs::read(mount.path("fine")).unwrap(), b"y");
        }
        assert_eq!(mount.end(), End::Unmounted);
    }
}

#[test]
fn workers_are_made_told_and_ended() {
    for transport in transports() {
        let mut mount = Mount::with(Config { transport, threads: 3, ..Config::default() });
        fs::write(mount.path("file"), b"x").unwrap();
        assert_eq!(mount.end(), End::Unmounted);
        assert_eq!(mount.tree.shutdowns.load(Ordering::SeqCst), 3);
        assert!(!mount.tree.workers_seen.lock().unwrap().is_empty());
    }
}

#[test]
fn a_file_system_that_cannot_be_made_is_not_mounted() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = Arc::new(AtomicUsize::new(0));
    let config = Config { threads: 2, ..Config::default() };
    let tree = Arc::new(harness::memory::Tree::new());
    let result = Session::start(dir.path(), &config, move |seat| {
        if made.fetch_add(1, Ordering::SeqCst) == 1 {
            return Err(Error::new(Code::NonExist, "no such pool"));
        }
        Ok(harness::memory::MemoryFs { tree: tree.clone(), seat })
    });
    let error = result.err().expect("it was mounted");
    assert_eq!((error.code, &*error.text), (Code::NonExist, "no such pool"));
    fs::write(dir.path().join("file"), b"on the disk below").unwrap();
    assert_eq!(
        Session::start::<harness::memory::MemoryFs>(dir.path(), &config, |_| {
            Err(Error::bare(Code::Io))
        })
        .err()
        .unwrap()
        .code,
        Code::NotEmpty
    );
}

#[test]
fn mount_options_are_shown_and_kept() {
    for transport in transports() {
        let options = MountOptions {
            source: "azk://pool/cont with space".into(),
            read_only: true,
            default_permissions: true,
            noexec: true,
            max_read_bytes: Some(65536),
            ..MountOptions::default()
        };
        let mut mount = Mount::with(Config { mount: options, transport, ..Config::default() });
        let error = fs::write(mount.path("file"), b"x").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EROFS));
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mount.root().canonicalize().unwrap();
        let line = table.lines().find(|line| line.contains(root.to_str().unwrap())).unwrap();
        assert!(line.starts_with("azk://pool/cont\\040with\\040space "), "{line}");
        for shown in
            [" fuse.azekura ", "ro,nosuid,nodev,noexec", "default_permissions", "max_read=65536"]
        {
            assert!(line.contains(shown), "{shown} in {line}");
        }
        assert_eq!(mount.end(), End::Unmounted);
    }
}

/// One thousand threads work at the same time, and one thousand wait for a lock at the same time:
/// nobody's request keeps another's from being answered.
#[test]
fn a_thousand_threads() {
    const COUNT: usize = 1000;
    for transport in transports() {
        let mut mount = Mount::new(transport);
        let small = |body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().stack_size(256 << 10).spawn(body).unwrap()
        };
        let workers: Vec<_> = (0..COUNT)
            .map(|at| {
                let path = mount.path(&format!("file {at}"));
                small(Box::new(move || {
                    fs::write(&path, at.to_string()).unwrap();
                    assert_eq!(fs::read(&path).unwrap(), at.to_string().as_bytes());
                    fs::remove_file(&path).unwrap();
                }))
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());

        let path = mount.path("locked");
        let holder = File::create(&path).unwrap();
        // SAFETY: the file is open.
        assert_eq!(unsafe { libc::flock(holder.as_raw_fd(), libc::LOCK_EX) }, 0);
        let waiters: Vec<_> = (0..COUNT)
            .map(|_| {
                let path = path.clone();
                small(Box::new(move || {
                    let file = File::open(path).unwrap();
                    // SAFETY: the file is open.
                    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
                }))
            })
            .collect();
        wait_for(&mount.tree.waiting, COUNT);
        fs::write(mount.path("other"), b"nobody is in the way").unwrap();
        drop(holder);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(mount.end(), End::Unmounted);
    }
}

/// A server that dies leaves a mount that answers ENOTCONN; `umount` clears it.
#[test]
fn a_killed_server_leaves_a_mount_that_can_be_cleared() {
    const DIR: &str = "AZEKURA_TEST_SERVE";
    const TRANSPORT: &str = "AZEKURA_TEST_TRANSPORT";
    let name = "a_killed_server_leaves_a_mount_that_can_be_cleared";
    if let Ok(dir) = std::env::var(DIR) {
        // The server: a process of its own.
        let transport = match std::env::var(TRANSPORT).as_deref() {
            Ok("Uring") => Transport::Uring,
            _ => Transport::Dev,
        };
        let tree = Arc::new(harness::memory::Tree::new());
        let config = Config { transport, ..Config::default() };
        let session = Session::start(Path::new(&dir), &config, move |seat| {
            Ok(harness::memory::MemoryFs { tree: tree.clone(), seat })
        })
        .unwrap();
        fs::write(Path::new(&dir).join("ready"), b"x").unwrap();
        session.wait();
        return;
    }
    for transport in transports() {
        let dir = tempfile::tempdir().unwrap();
        let mut server = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(DIR, dir.path())
            .env(TRANSPORT, format!("{transport:?}"))
            .spawn()
            .unwrap();
        while !dir.path().join("ready").exists() {
            assert!(server.try_wait().unwrap().is_none(), "the server has ended");
            yield_now();
        }
        server.kill().unwrap();
        server.wait().unwrap();
        // The kernel clears up after the process in its own time.
        while fs::metadata(dir.path()).err().and_then(|error| error.raw_os_error())
            != Some(libc::ENOTCONN)
        {
            yield_now();
        }
        let error = fuse::low::check_mount_point(dir.path(), false).unwrap_err();
        assert_eq!(error.code, Code::Busy);
        assert!(error.text.contains("umount"), "{error}");
        fuse::low::unmount(dir.path(), false).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(fuse::low::unmount(dir.path(), false).unwrap_err().code, Code::Inval);
    }
}
