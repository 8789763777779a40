//! What a session lives through: signals, forced unmounts, death, many threads, panics.

mod harness;

use fuselow::background::{self, Role};
use fuselow::{Config, End, MountOptions, NodeId, Session, Signals, Transport};
use harness::{Mount, can_mount, transports};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant};
use types::{Code, Error};

/// How long requests are left alone that the kernel may have queued up.
const ASK_PAUSE: Duration = Duration::from_millis(200);

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
        // It may have succeeded, too, when they left soon enough.
        assert!(matches!(session.wait(), End::Aborted | End::Unmounted));
        assert_eq!(mount.tree.waiting.load(Ordering::SeqCst), 0, "a request was forgotten");
        assert!(fs::read_dir(mount.root()).unwrap().next().is_none(), "the mount is still there");
    }
}

/// A server that ended took the mount away that somebody had made on the same directory since `umount`: the kernel had given it the same number. Programs went on in the directory below.
#[test]
fn a_server_that_ends_leaves_the_next_mount_alone() {
    for transport in transports() {
        let config = Config { transport, ..Config::default() };
        let (first, dir) = Mount::with(config.clone()).into_parts();
        first.unmount(false).unwrap();
        let second = Mount::at(dir, config);
        fs::write(second.path("on the second"), b"x").unwrap();
        assert_eq!(first.wait(), End::Unmounted, "{transport:?}");
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        let root = second.root();
        assert_ne!(device(&root), device(root.parent().unwrap()), "{transport:?}: gone");
        assert_eq!(fs::read(second.path("on the second")).unwrap(), b"x");
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
        let workers: Vec<_> = (0..COUNT)
            .map(|at| {
                let path = mount.path(&format!("file {at}"));
                small_thread(Box::new(move || {
                    fs::write(&path, at.to_string()).unwrap();
                    assert_eq!(fs::read(&path).unwrap(), at.to_string().as_bytes());
                    fs::remove_file(&path).unwrap();
                }))
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());

        wait_for_a_lock(&mount, COUNT);
        assert_eq!(mount.end(), End::Unmounted);
    }
}

fn small_thread(body: Box<dyn FnOnce() + Send>) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new().stack_size(256 << 10).spawn(body).unwrap()
}

/// Waits until so many threads wait for a lock; returns others that ask something meanwhile.
///
/// What comes while a queue has no entry left the kernel hands out when an answer comes back on that CPU, and not when entries are added. These threads come
/// all at once, more than a new queue has entries, and nobody gets an answer before the lock is free: where one of them is left over it waits for the next
/// request of anybody there. So somebody asks, on each CPU, now and then.
fn wait_for_waiters(mount: &Mount, count: usize) -> Vec<std::thread::JoinHandle<()>> {
    let (mut others, mut began) = (Vec::new(), Instant::now());
    while mount.tree.waiting.load(Ordering::SeqCst) != count {
        yield_now();
        if began.elapsed() < ASK_PAUSE {
            continue;
        }
        began = Instant::now();
        for cpu in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let path = mount.path(&format!("asked-{}", others.len()));
            others.push(small_thread(Box::new(move || {
                // SAFETY: a set of CPUs is plain bits, and outlives the call. Where it is refused another CPU asks.
                unsafe {
                    let mut set: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(cpu, &mut set);
                    libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
                }
                assert!(fs::symlink_metadata(path).is_err());
            })));
        }
    }
    others
}

/// Lets many threads wait for one lock, and then has them get it one after the other.
fn wait_for_a_lock(mount: &Mount, count: usize) {
    let path = mount.path("locked");
    let holder = File::create(&path).unwrap();
    // SAFETY: the file is open.
    assert_eq!(unsafe { libc::flock(holder.as_raw_fd(), libc::LOCK_EX) }, 0);
    let waiters: Vec<_> = (0..count)
        .map(|_| {
            let path = path.clone();
            small_thread(Box::new(move || {
                let file = File::open(path).unwrap();
                // SAFETY: the file is open.
                assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
            }))
        })
        .collect();
    let others = wait_for_waiters(mount, count);
    fs::write(mount.path("other"), b"nobody is in the way").unwrap();
    drop(holder);
    waiters.into_iter().chain(others).for_each(|thread| thread.join().unwrap());
}

/// A request that waits holds its entry of an io_uring queue: a queue that began with one entry
/// must grow as they come, or those who wait would keep the unlock from being read.
#[test]
fn queues_grow_with_requests_that_wait() {
    for transport in transports() {
        let mut mount = Mount::with(Config { transport, uring_entries: 1, ..Config::default() });
        for _ in 0..20 {
            wait_for_a_lock(&mount, 50);
        }
        assert_eq!(mount.end(), End::Unmounted);
    }
}

const SERVE: &str = "AZEKURA_TEST_SERVE";
const TRANSPORT: &str = "AZEKURA_TEST_TRANSPORT";

/// Not a test by itself: a server in a process of its own, when other tests start this program
/// with the variables set. It mounts in the background and ends on a signal.
#[test]
fn server() {
    let Ok(dir) = std::env::var(SERVE) else { return };
    let transport = match std::env::var(TRANSPORT).as_deref() {
        Ok("Uring") => Transport::Uring,
        _ => Transport::Dev,
    };
    let signals = Signals::block().unwrap();
    let tree = Arc::new(harness::memory::Tree::new());
    let config = Config { transport, ..Config::default() };
    let session = Session::start(Path::new(&dir), &config, move |seat| {
        Ok(harness::memory::MemoryFs { tree: tree.clone(), seat })
    })
    .unwrap();
    // It touches nothing of its own mount: a dying process waits for the answers to the closing of
    // its files.
    println!("\nready");
    println!("{:?}", session.wait_or_signal(&signals));
}

fn start_server(dir: &Path, transport: Transport) -> (Child, BufReader<ChildStdout>) {
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.args(["--exact", "server", "--nocapture"]).stdout(Stdio::piped());
    server.env(SERVE, dir).env(TRANSPORT, format!("{transport:?}"));
    // A test is not on the main thread, so all threads get the mask from here.
    // SAFETY: blocking signals is all it does, which allocates nothing.
    unsafe { server.pre_exec(|| Signals::block().map(drop).map_err(|_| ErrorKind::Other.into())) };
    let mut server = server.spawn().unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "the server has ended");
    }
    (server, said)
}

/// A server that dies leaves a mount that answers ENOTCONN; `umount` clears it.
#[test]
fn a_killed_server_leaves_a_mount_that_can_be_cleared() {
    for transport in transports() {
        let dir = tempfile::tempdir().unwrap();
        let (mut server, _) = start_server(dir.path(), transport);
        server.kill().unwrap();
        server.wait().unwrap();
        // The kernel clears up after the process in its own time.
        while fs::metadata(dir.path()).err().and_then(|error| error.raw_os_error())
            != Some(libc::ENOTCONN)
        {
            yield_now();
        }
        let error = fuselow::check_mount_point(dir.path(), false).unwrap_err();
        assert_eq!(error.code, Code::Busy);
        assert!(error.text.contains("umount"), "{error}");
        fuselow::unmount(dir.path(), false).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(fuselow::unmount(dir.path(), false).unwrap_err().code, Code::NonExist);
    }
}

/// SIGTERM unmounts; while somebody is inside it takes a second one.
#[test]
fn signals_unmount() {
    for transport in transports() {
        for busy in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let (mut server, mut said) = start_server(dir.path(), transport);
            fs::write(dir.path().join("ready"), b"x").unwrap();
            let terminate = || {
                // SAFETY: the child has not been waited for, so the number is still its.
                unsafe { libc::kill(server.id() as i32, libc::SIGTERM) }
            };
            let inside = busy.then(|| File::open(dir.path().join("ready")).unwrap());
            terminate();
            if inside.is_some() {
                // Still serving; a signal may be missed while another is being dealt with.
                assert_eq!(fs::read(dir.path().join("ready")).unwrap(), b"x");
                while dir.path().join("ready").exists() {
                    terminate();
                    yield_now();
                }
            }
            let mut text = String::new();
            said.read_to_string(&mut text).unwrap();
            let wanted = if busy { "Stopped" } else { "Unmounted" };
            assert!(server.wait().unwrap().success() && text.contains(wanted), "{text}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
            drop(inside);
        }
    }
}

/// The helper mounts for those who may not, and watches over the server.
#[test]
fn the_helper_mounts_and_unmounts_when_the_server_dies() {
    if !can_mount() {
        return;
    }
    if Command::new("fusermount3").arg("-V").output().is_err() {
        eprintln!("SKIPPED: there is no fusermount3; mounting through it was not tested");
        return;
    }
    let options = MountOptions { auto_unmount: true, ..MountOptions::default() };
    let mut mount = Mount::with(Config { mount: options, ..Config::default() });
    fs::write(mount.path("file"), b"x").unwrap();
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"x");
    let session = mount.session.take().unwrap();
    session.unmount(false).unwrap();
    assert_eq!(session.wait(), End::Unmounted);
    assert!(fs::read_dir(mount.root()).unwrap().next().is_none());
}

/// What the kernel has cached is asked for again after a notification.
#[test]
fn notifications_are_heeded() {
    for transport in transports() {
        let mut mount = Mount::new(transport);
        mount.tree.cache_for_ever();
        fs::write(mount.path("file"), b"old").unwrap();
        let seen = || fs::read(mount.path("file")).unwrap();
        assert_eq!(seen(), b"old");
        let node = mount.tree.set_file("file", b"NEW");
        assert_eq!(seen(), b"old", "it was not cached");
        let notifier = mount.session().notifier();
        notifier.inval_inode(node, 0, 0);
        notifier.flush();
        assert_eq!(seen(), b"NEW");

        assert!(!mount.path("later").exists());
        mount.tree.fill_one("later");
        assert!(!mount.path("later").exists(), "it was not cached");
        notifier.inval_entry(NodeId::ROOT, b"later");
        notifier.flush();
        assert!(mount.path("later").exists());

        mount.tree.take_name("file");
        assert!(mount.path("file").exists(), "it was not cached");
        notifier.delete(NodeId::ROOT, node, b"file");
        notifier.flush();
        assert!(!mount.path("file").exists());
        assert_eq!(mount.end(), End::Unmounted);
    }
}

const BACKGROUND: &str = "AZEKURA_TEST_BACKGROUND";

/// Not a test by itself: mounts in the background, when another test starts this program with the
/// variable set.
#[test]
fn background_server() {
    let Ok(dir) = std::env::var(BACKGROUND) else { return };
    match background::split().unwrap() {
        Role::Parent(Ok(())) => std::process::exit(0),
        Role::Parent(Err(error)) => {
            println!("{:?}: {error}", error.code);
            std::process::exit(3);
        }
        Role::Server(report) => {
            let tree = Arc::new(harness::memory::Tree::new());
            let session = Session::start(Path::new(&dir), &Config::default(), move |seat| {
                Ok(harness::memory::MemoryFs { tree: tree.clone(), seat })
            });
            match session {
                Err(error) => report.failed(&error),
                Ok(session) => {
                    report.ready().unwrap();
                    session.wait();
                }
            }
            std::process::exit(0);
        }
    }
}

/// The program returns when the mount is there, or with the reason why it is not.
#[test]
fn in_the_background() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "background_server", "--nocapture", "--test-threads=1"]);
        program.env(BACKGROUND, dir.path()).output().unwrap()
    };
    let output = start();
    assert!(output.status.success(), "{output:?}");
    fs::write(dir.path().join("file"), b"served").unwrap();
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"served");
    // Full: the second one must say so.
    let output = start();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("NotEmpty: ") && said.contains("-o nonempty"), "{said}");
    fuselow::unmount(dir.path(), false).unwrap();
}
