//! The real environment: tasks, wakes from other threads, timers, descriptors, sources, disk.

use env::{AlignedBuf, Env, FdWatch, OpenOptions, Source};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;
use types::Code;

#[test]
fn tasks_run_in_the_order_they_were_spawned_and_timers_by_deadline() {
    let env = Env::real().unwrap();
    let seen = Rc::new(RefCell::new(Vec::new()));
    for (number, wait_ms) in [(0, 30u64), (1, 10), (2, 20)] {
        let (seen, inner) = (seen.clone(), env.clone());
        env.spawn(async move {
            seen.borrow_mut().push(number);
            inner.sleep(Duration::from_millis(wait_ms)).await;
            seen.borrow_mut().push(10 + number);
        });
    }
    env.block_on(env.sleep(Duration::from_millis(60)));
    assert_eq!(*seen.borrow(), [0, 1, 2, 11, 12, 10]);
    assert_eq!(env.task_count(), 0);
}

/// What one thread notes others compare with their own time.
#[test]
fn threads_have_one_clock() {
    let env = Env::real().unwrap();
    for _ in 0..20 {
        let before = env.now();
        let there = std::thread::spawn(|| Env::real().unwrap().now()).join().unwrap();
        assert!(before <= there && there <= env.now());
    }
}

#[test]
fn a_wake_from_another_thread_ends_the_sleep() {
    let env = Env::real().unwrap();
    for _ in 0..200 {
        let done = Arc::new(AtomicBool::new(false));
        let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
        let (done2, waker2) = (done.clone(), waker.clone());
        let thread = std::thread::spawn(move || {
            loop {
                if let Some(waker) = waker2.lock().unwrap().take() {
                    done2.store(true, Ordering::SeqCst);
                    waker.wake();
                    return;
                }
                std::thread::yield_now();
            }
        });
        env.block_on(std::future::poll_fn(|cx| {
            if done.load(Ordering::SeqCst) {
                return Poll::Ready(());
            }
            *waker.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        }));
        thread.join().unwrap();
    }
}

#[test]
fn timeout_gives_none_when_late_and_the_output_when_not() {
    let env = Env::real().unwrap();
    let late = env.timeout(Duration::from_millis(1), std::future::pending::<()>());
    assert_eq!(env.block_on(late), None);
    let long = Duration::from_secs(3600);
    assert_eq!(env.block_on(env.timeout(long, async { 7 })), Some(7));
    let slept = async {
        env.sleep(Duration::from_millis(1)).await;
        8
    };
    assert_eq!(env.block_on(env.timeout(long, slept)), Some(8));
}

#[test]
fn a_task_may_spawn_and_wake_while_it_is_dropped() {
    struct Dropper(Env, Rc<Cell<u32>>);
    impl Drop for Dropper {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
            let count = self.1.clone();
            self.0.spawn(async move { count.set(count.get() + 100) });
        }
    }
    let env = Env::real().unwrap();
    let count = Rc::new(Cell::new(0));
    let dropper = Dropper(env.clone(), count.clone());
    env.spawn(async move {
        let _held = dropper;
        std::future::pending::<()>().await;
    });
    env.turn(Some(Duration::ZERO));
    env.clear();
    assert_eq!(count.get(), 1);
    assert_eq!(env.task_count(), 0);
    // A slot that was cleared is used again.
    let after = count.clone();
    env.spawn(async move { after.set(1000) });
    env.turn(Some(Duration::ZERO));
    assert_eq!(count.get(), 1000);
}

#[test]
#[should_panic(expected = "from inside a task")]
fn blocking_inside_a_task_is_refused() {
    let env = Env::real().unwrap();
    let inner = env.clone();
    env.block_on(async move { inner.block_on(async {}) });
}

#[test]
fn descriptors_report_readiness_and_hangup() {
    let env = Env::real().unwrap();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let watch = env.watch_fd(Rc::new(OwnedFd::from(ours))).unwrap();
    let thread = std::thread::spawn(move || {
        let mut theirs = theirs;
        theirs.write_all(b"hello").unwrap();
    });
    let mut got = Vec::new();
    env.block_on(async {
        loop {
            let mut raw = [0; 3];
            match rustix::io::read(watch.fd(), &mut raw) {
                Ok(0) => return,
                Ok(count) => got.extend_from_slice(&raw[..count]),
                Err(_) => {
                    watch.clear_readable();
                    watch.readable().await;
                }
            }
        }
    });
    assert_eq!(got, b"hello");
    thread.join().unwrap();
}

/// A source fed by another thread through a flag, with an eventfd for when we sleep.
struct Flag {
    raised: Arc<AtomicBool>,
    armed: Arc<AtomicBool>,
    bell: Arc<OwnedFd>,
    /// The bell is watched by itself.
    apart: bool,
    waiting: RefCell<Option<Waker>>,
    seen: Cell<u32>,
}

impl Source for Flag {
    fn poll(&self) -> bool {
        let raised = self.raised.swap(false, Ordering::SeqCst);
        if raised {
            self.seen.set(self.seen.get() + 1);
            if let Some(waker) = self.waiting.take() {
                waker.wake();
            }
        }
        raised
    }
    fn arm(&self) -> bool {
        self.armed.store(true, Ordering::SeqCst);
        self.raised.load(Ordering::SeqCst)
    }
    fn disarm(&self) {
        self.armed.store(false, Ordering::SeqCst);
    }
    fn fd(&self) -> Option<RawFd> {
        (!self.apart).then(|| self.bell.as_raw_fd())
    }
}

impl Flag {
    fn new(apart: bool) -> Rc<Flag> {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        Rc::new(Flag {
            raised: Arc::default(),
            armed: Arc::default(),
            bell: Arc::new(bell),
            apart,
            waiting: RefCell::default(),
            seen: Cell::new(0),
        })
    }
}

/// Beside a source, a thread that never waits does not look at descriptors each time; it must
/// still hear them, and the source, however it polls.
#[test]
fn who_never_waits_hears_descriptors_and_sources() {
    let env = Env::real().unwrap();
    let flag = Flag::new(false);
    env.add_source(flag.clone()).unwrap();
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    let watch = Rc::new(env.watch_fd(Rc::new(OwnedFd::from(a))).unwrap());
    for byte in 0..100u8 {
        let heard = Rc::new(Cell::new(None));
        let (hears, watch) = (heard.clone(), watch.clone());
        env.spawn(async move {
            let mut buf = [0];
            while rustix::io::read(watch.fd(), &mut buf).is_err() {
                watch.clear_readable();
                watch.readable().await;
            }
            hears.set(Some(buf[0]));
        });
        env.turn(Some(Duration::ZERO));
        assert_eq!(heard.get(), None);
        assert_eq!(rustix::io::write(&b, &[byte]).unwrap(), 1);
        let seen = flag.seen.get();
        flag.raised.store(true, Ordering::SeqCst);
        // Only turns that do not wait: either the loop ends, or the test hangs.
        while heard.get().is_none() || flag.seen.get() == seen {
            env.turn(Some(Duration::ZERO));
        }
        assert_eq!(heard.get(), Some(byte));
    }
    let source: Rc<dyn Source> = flag;
    env.remove_source(&source);
}

#[test]
fn a_source_is_heard_spinning_and_sleeping() {
    heard_spinning_and_sleeping(false);
}

/// Nobody empties a bell: each ring is heard.
#[test]
fn a_bell_that_is_watched_apart_ends_each_sleep() {
    heard_spinning_and_sleeping(true);
}

fn heard_spinning_and_sleeping(apart: bool) {
    let env = Env::real().unwrap();
    let flag = Flag::new(apart);
    env.add_source(flag.clone()).unwrap();
    let _bell = apart.then(|| env.watch_bell(flag.bell.try_clone().unwrap()).unwrap());
    let (raised, armed, bell) = (flag.raised.clone(), flag.armed.clone(), flag.bell.clone());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        let mut round = 0u64;
        while !stopped.load(Ordering::SeqCst) {
            raised.store(true, Ordering::SeqCst);
            if armed.load(Ordering::SeqCst) {
                rustix::io::write(&*bell, &1u64.to_ne_bytes()).unwrap();
            }
            round += 1;
            // Sometimes at once, sometimes long enough for the other side to fall asleep.
            if round.is_multiple_of(8) {
                std::thread::sleep(Duration::from_micros(300));
            } else {
                while raised.load(Ordering::SeqCst) && !stopped.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            }
        }
    });
    for _ in 0..500 {
        let before = flag.seen.get();
        env.block_on(std::future::poll_fn(|cx| {
            if flag.seen.get() > before {
                return Poll::Ready(());
            }
            flag.waiting.replace(Some(cx.waker().clone()));
            Poll::Pending
        }));
    }
    stop.store(true, Ordering::SeqCst);
    thread.join().unwrap();
    let source: Rc<dyn Source> = flag;
    env.remove_source(&source);
    assert!(!env.turn(Some(Duration::from_millis(1))));
}

fn disk_works_in(dir: &Path) {
    let env = Env::real().unwrap();
    let disk = env.disk();
    env.block_on(async {
        disk.create_dir(&dir.join("d")).await.unwrap();
        assert_eq!(disk.create_dir(&dir.join("d")).await.unwrap_err().code, Code::Exist);
        let path = dir.join("d/file");
        let missing = disk.open(&path, OpenOptions::default()).await;
        assert_eq!(missing.err().unwrap().code, Code::NonExist);
        let options = OpenOptions {
            create: true,
            exclusive: true,
            direct: true,
            dsync: true,
            ..OpenOptions::default()
        };
        let file = disk.open(&path, options).await.unwrap();
        file.allocate(0, 1 << 20).await.unwrap();
        assert_eq!(file.len().unwrap(), 1 << 20);
        // More at once than the ring has entries. Completions that overflow the ring stay in the
        // kernel until it is entered again; a loop that only looked at the ring once hung here.
        let writes = (0..600u64).map(|number| {
            let mut buf = AlignedBuf::zeroed(4096);
            buf.fill(number as u8);
            file.write_at(number * 4096, buf)
        });
        for (_, outcome) in futures_util::future::join_all(writes).await {
            outcome.unwrap();
        }
        file.sync().await.unwrap();
        let (buf, count) = file.read_at(0, AlignedBuf::zeroed(601 * 4096)).await;
        assert_eq!(count.unwrap(), 600 * 4096);
        assert!(
            buf[..600 * 4096]
                .chunks(4096)
                .enumerate()
                .all(|(n, c)| c.iter().all(|&b| b == n as u8))
        );
        // A future dropped in flight leaves its buffer with the kernel.
        for _ in 0..50 {
            drop(file.read_at(0, AlignedBuf::zeroed(1 << 20)));
            let mut started = file.read_at(0, AlignedBuf::zeroed(1 << 20));
            let _ = futures_util::poll!(&mut started);
        }
        let (buf, _) = file.read_at(4096, AlignedBuf::zeroed(4096)).await;
        assert_eq!(buf[0], 1);
        disk.rename(&path, &dir.join("d/other")).await.unwrap();
        disk.sync_dir(&dir.join("d")).await.unwrap();
        let names = disk.list(&dir.join("d")).await.unwrap();
        assert_eq!(
            names.iter().map(|e| (&*e.name, e.is_dir)).collect::<Vec<_>>(),
            [("other", false)]
        );
        assert_eq!(disk.remove(&dir.join("d")).await.unwrap_err().code, Code::NotEmpty);
        disk.remove(&dir.join("d/other")).await.unwrap();
        disk.remove(&dir.join("d")).await.unwrap();
        let lock = disk.lock(&dir.join("lock"), "the first").await.unwrap();
        let second = disk.lock(&dir.join("lock"), "the second").await.err().unwrap();
        assert_eq!(second.code, Code::Busy);
        assert!(second.to_string().contains("the first"), "{second}");
        drop(lock);
        disk.lock(&dir.join("lock"), "the third").await.unwrap();
    });
}

#[test]
fn disk_with_direct_io() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    disk_works_in(dir.path());
}

#[test]
fn disk_on_a_memory_file_system() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    disk_works_in(dir.path());
}

/// Counts how often the thread falls asleep, and does something when it has begun to wait.
struct Onlooker {
    sleeps: Cell<u32>,
    looks: Cell<u32>,
    /// What it does, once in each wait; true: it is work of this source.
    act: Box<dyn Fn() -> bool>,
    acts: Cell<bool>,
}

impl Onlooker {
    fn new(act: impl Fn() -> bool + 'static) -> Rc<Onlooker> {
        let (sleeps, looks, acts) = (Cell::new(0), Cell::new(0), Cell::new(false));
        Rc::new(Onlooker { sleeps, looks, act: Box::new(act), acts })
    }
}

impl Source for Onlooker {
    fn poll(&self) -> bool {
        // The first look is that of the round before the wait.
        self.looks.set(self.looks.get() + 1);
        self.looks.get() >= 2 && self.acts.replace(false) && (self.act)()
    }
    fn arm(&self) -> bool {
        self.sleeps.set(self.sleeps.get() + 1);
        self.acts.replace(false) && (self.act)()
    }
    fn disarm(&self) {}
    fn fd(&self) -> Option<RawFd> {
        None
    }
}

/// Waits, over and over, for what `wait` waits for; how many of the waits did without sleeping.
/// How many depends on what else the machine does, but not whether any does.
fn waits_without_sleep(env: &Env, onlooker: &Rc<Onlooker>, mut wait: impl FnMut()) -> u32 {
    const WAITS: u32 = 1000;
    env.add_source(onlooker.clone()).unwrap();
    let mut count = 0;
    for _ in 0..WAITS {
        onlooker.looks.set(0);
        onlooker.acts.set(true);
        let before = onlooker.sleeps.get();
        wait();
        count += u32::from(onlooker.sleeps.get() == before);
    }
    let source: Rc<dyn Source> = onlooker.clone();
    env.remove_source(&source);
    count
}

/// The loop once looked at sources only while it spun: whatever came through a descriptor waited
/// until the spin was over, 100 µs, and found the thread asleep, each time.
#[test]
fn a_waiting_loop_sees_a_ready_descriptor_without_sleeping() {
    let env = Env::real().unwrap();
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    let watch = env.watch_fd(Rc::new(OwnedFd::from(a))).unwrap();
    let onlooker = Onlooker::new(move || {
        assert_eq!(rustix::io::write(&b, b"x").unwrap(), 1);
        false
    });
    let count = waits_without_sleep(&env, &onlooker, || {
        env.block_on(async {
            let mut buf = [0];
            while rustix::io::read(watch.fd(), &mut buf).is_err() {
                watch.clear_readable();
                watch.readable().await;
            }
        });
    });
    assert!(count > 0, "it slept each time");
}

/// While waits end with one descriptor, the loop tries to read that instead of asking whether it can
/// be read; it still hears of all others.
#[test]
fn what_is_expected_is_read_at_once_and_hides_nothing_else() {
    let env = Env::real().unwrap();
    let pair = || {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Rc::new(env.watch_fd(Rc::new(OwnedFd::from(ours))).unwrap()), theirs)
    };
    let take = |watch: &FdWatch| rustix::io::read(watch.fd(), &mut [0; 1][..]).is_ok();
    let ((hot, to_hot), (cold, to_cold)) = (pair(), pair());
    let waits = Rc::new(Cell::new(false));
    let found = Rc::new(Cell::new(0));
    let probe = {
        let (hot, waits, found) = (Rc::downgrade(&hot), waits.clone(), found.clone());
        move || {
            let hot = hot.upgrade().filter(|_| waits.get())?;
            let there = take(&hot);
            if there {
                waits.set(false);
                found.set(found.get() + 1);
                hot.wake_reader();
            }
            Some(there)
        }
    };
    hot.probe_with(probe);
    let onlooker = Onlooker::new(move || {
        assert_eq!(rustix::io::write(&to_hot, b"x").unwrap(), 1);
        false
    });
    waits_without_sleep(&env, &onlooker, || {
        waits.set(true);
        env.block_on(std::future::poll_fn(|cx| {
            if !waits.get() || take(&hot) {
                waits.set(false);
                return Poll::Ready(());
            }
            hot.clear_readable();
            hot.poll_readable(cx)
        }));
    });
    assert!(found.get() > 0, "of a thousand none was read without asking");
    // The first is still expected, and waited for.
    waits.set(true);
    for _ in 0..10 {
        let theirs = to_cold.try_clone().unwrap();
        let again = env.clone();
        env.spawn(async move {
            again.yield_now().await;
            assert_eq!(rustix::io::write(&theirs, b"y").unwrap(), 1);
        });
        env.block_on(async {
            while !take(&cold) {
                cold.clear_readable();
                cold.readable().await;
            }
        });
    }
    drop((hot, cold));
    env.clear();
}

#[test]
fn a_waiting_loop_sees_work_of_a_source_without_sleeping() {
    let env = Env::real().unwrap();
    let waiting: Rc<Cell<Option<Waker>>> = Rc::default();
    let waker = waiting.clone();
    let onlooker = Onlooker::new(move || {
        if let Some(waker) = waker.take() {
            waker.wake();
        }
        true
    });
    let count = waits_without_sleep(&env, &onlooker, || {
        let mut waits = false;
        env.block_on(std::future::poll_fn(|cx| match std::mem::replace(&mut waits, true) {
            true => Poll::Ready(()),
            false => {
                waiting.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }));
    });
    assert!(count > 0, "it slept each time");
}

/// A timer that was due while the thread spun once waited for the end of the spin.
#[test]
fn a_waiting_loop_sees_a_due_timer_without_sleeping() {
    let env = Env::real().unwrap();
    let onlooker = Onlooker::new(|| false);
    let count = waits_without_sleep(&env, &onlooker, || {
        env.block_on(env.sleep(Duration::from_micros(20)));
    });
    assert!(count > 0, "it slept each time");
}

#[test]
fn a_waiting_loop_sees_a_completion_of_the_disk_without_sleeping() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::real().unwrap();
    let options = OpenOptions { create: true, ..OpenOptions::default() };
    let file = env.block_on(env.disk().open(&dir.path().join("f"), options)).unwrap();
    let onlooker = Onlooker::new(|| false);
    let count = waits_without_sleep(&env, &onlooker, || {
        let (_, outcome) = env.block_on(file.write_at(0, AlignedBuf::zeroed(4096)));
        outcome.unwrap();
    });
    assert!(count > 0, "it slept each time");
}

/// A small file system, unmounted at the end.
struct Small(tempfile::TempDir);

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Whoever took a lock emptied its file first. On a full file system the new note then found no room, the
/// lock was refused, and with it the start of an engine.
#[test]
fn a_full_file_system_refuses_no_lock() {
    let small = Small(tempfile::tempdir().unwrap());
    let args = ["-t", "tmpfs", "-o", "size=1m,mode=700", "none"];
    match Command::new("mount").args(args).arg(small.0.path()).output() {
        Ok(output) if output.status.success() => {}
        other => {
            return eprintln!("SKIPPED: a full file system: cannot mount a small one: {other:?}");
        }
    }
    let env = Env::real().unwrap();
    let (old, new) = (small.0.path().join("old"), small.0.path().join("new"));
    env.block_on(async {
        drop(env.disk().lock(&old, "process 1234567").await.unwrap());
        let mut ballast = File::create(small.0.path().join("ballast")).unwrap();
        for piece in [4096, 1] {
            while ballast.write_all(&vec![1; piece]).is_ok() {}
        }
        let _held = env.disk().lock(&old, "process 89").await.unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "process 89");
        // There is no room for its first note.
        let _held_too = env.disk().lock(&new, "process 89").await.unwrap();
        for path in [&old, &new] {
            let Err(error) = env.disk().lock(path, "another").await else {
                panic!("{} was locked twice", path.display());
            };
            assert_eq!(error.code, Code::Busy, "{error}");
        }
    });
}
