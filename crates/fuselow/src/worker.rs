//! One worker: its thread's requests, from their arrival to their answers.

use super::abi::{self, InHeader, op};
use super::carrier::{Arriving, Buffers, Carrier};
use super::config::Negotiated;
use super::decode::{Body, Dialect, decode};
use super::dispatch;
use super::operation::Operation;
use super::request::Interruption;
use super::uring::Uring;
use super::{FileSystem, NodeId};
use env::Env;
use foldhash::HashMap;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Interrupts kept for requests that have not arrived yet.
const EARLY_COUNT_MAX: usize = 256;
/// How often is looked whether programs were killed whose requests wait.
const KILLED_PAUSE: Duration = Duration::from_secs(2);
/// How long requests that were interrupted by the end of the session may take to notice.
const GRACE: Duration = Duration::from_secs(5);

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    Unmounted,
    /// The connection was cut (`umount -f`, or through `/sys/fs/fuse/connections`) while the mount
    /// was in use; the dead mount was cleared.
    Aborted,
    Stopped,
}

/// What workers tell each other.
enum Mail {
    Interrupt(u64),
    End,
}

#[derive(Default)]
struct Mailbox {
    mail: Mutex<Vec<Mail>>,
    waker: AtomicWaker,
    /// Requests that came to this worker and want an answer. Written by the worker alone.
    requests: AtomicU64,
}

/// What the workers of a session share.
pub(crate) struct Shared {
    boxes: Vec<Mailbox>,
    end: Mutex<Option<End>>,
}

impl Shared {
    pub fn new(worker_count: usize) -> Shared {
        let boxes = (0..worker_count).map(|_| Mailbox::default()).collect();
        Shared { boxes, end: Mutex::new(None) }
    }

    /// Ends the session; the first reason counts.
    pub fn end(&self, why: End) {
        if self.end.lock().replace_if_none(why) {
            self.post(|| Mail::End);
        }
    }

    pub fn ended(&self) -> Option<End> {
        *self.end.lock()
    }

    /// Requests that wanted an answer so far, of all workers.
    pub fn request_count(&self) -> u64 {
        self.boxes.iter().map(|one| one.requests.load(Ordering::Relaxed)).sum()
    }

    fn post(&self, mail: impl Fn() -> Mail) {
        for one in &self.boxes {
            one.mail.lock().push(mail());
            one.waker.wake();
        }
    }
}

trait ReplaceIfNone<T> {
    fn replace_if_none(&mut self, value: T) -> bool;
}

impl<T> ReplaceIfNone<T> for Option<T> {
    fn replace_if_none(&mut self, value: T) -> bool {
        let none = self.is_none();
        if none {
            *self = Some(value);
        }
        none
    }
}

/// A worker's side of the session, without the file system.
pub(crate) struct Core {
    pub env: Env,
    pub dev: Rc<OwnedFd>,
    pub dialect: Dialect,
    pub buffers: Buffers,
    index: usize,
    shared: Arc<Shared>,
    live: RefCell<HashMap<u64, Waiting>>,
    early: RefCell<VecDeque<u64>>,
    ended: Cell<bool>,
}

impl Core {
    pub fn new(
        env: Env,
        dev: OwnedFd,
        index: usize,
        shared: Arc<Shared>,
        agreed: &Negotiated,
    ) -> Core {
        Core {
            env,
            dev: Rc::new(dev),
            dialect: Dialect { setxattr_ext: agreed.setxattr_ext },
            buffers: Buffers::new(agreed.payload_bytes_max()),
            index,
            shared,
            live: RefCell::default(),
            early: RefCell::default(),
            ended: Cell::new(false),
        }
    }

    fn interrupt(&self, unique: u64) {
        if let Some(found) = self.live.borrow().get(&unique) {
            found.interruption.happen();
            return;
        }
        // It may still be on its way to us, or has been answered, or is somebody else's.
        let mut early = self.early.borrow_mut();
        if early.len() == EARLY_COUNT_MAX {
            early.pop_front();
        }
        early.push_back(unique);
    }

    fn interrupt_all(&self) {
        self.ended.set(true);
        for one in self.live.borrow().values() {
            one.interruption.happen();
        }
    }

    /// Interrupts requests of threads that were killed. Kernels do not tell of all of them: over io_uring none is told of
    /// that was killed while its request was handed over (Linux 6.18, `fuse_uring_prepare_send`), and such a thread waits for the answer, for ever on a
    /// hard mount.
    async fn look_for_killed(&self) {
        loop {
            self.env.sleep(KILLED_PAUSE).await;
            let now = self.env.now();
            for one in self.live.borrow().values() {
                if now.saturating_sub(one.since) >= KILLED_PAUSE && is_killed(one.thread) {
                    one.interruption.happen();
                }
            }
        }
    }

    /// Enters a request of a thread among those that can be interrupted.
    pub fn enter(self: &Rc<Self>, unique: u64, thread: u32) -> Live {
        let count = &self.shared.boxes[self.index].requests;
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let interruption = Rc::new(Interruption::default());
        if self.ended.get() {
            interruption.happen();
        }
        let mut early = self.early.borrow_mut();
        if !early.is_empty()
            && let Some(at) = early.iter().position(|&one| one == unique)
        {
            early.remove(at);
            interruption.happen();
        }
        let waiting = Waiting { interruption: interruption.clone(), thread, since: self.env.now() };
        self.live.borrow_mut().insert(unique, waiting);
        Live { core: self.clone(), unique, interruption }
    }
}

/// A request that can be interrupted.
struct Waiting {
    interruption: Rc<Interruption>,
    /// The thread that asks, 0: not known.
    thread: u32,
    since: Duration,
}

/// True when a thread cannot go on but to its end.
fn is_killed(thread: u32) -> bool {
    const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
    if thread == 0 {
        return false;
    }
    let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) else {
        return false;
    };
    let pending = status.lines().filter_map(|line| {
        let (name, set) = line.split_once(':')?;
        let is_pending = matches!(name, "SigPnd" | "ShdPnd");
        is_pending.then(|| u64::from_str_radix(set.trim(), 16).unwrap_or(0))
    });
    pending.fold(0, |all, set| all | set) & SIGKILL != 0
}

/// A request that is being worked on.
pub(crate) struct Live {
    core: Rc<Core>,
    unique: u64,
    pub interruption: Rc<Interruption>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.core.live.borrow_mut().remove(&self.unique);
    }
}

/// Serves until the session ends; then the file system is told.
pub(crate) fn run<F: FileSystem>(core: &Rc<Core>, fs: &Rc<F>, uring: Option<Rc<Uring>>) {
    let env = core.env.clone();
    env.block_on(async {
        if let Some(uring) = &uring {
            let (core, fs) = (core.clone(), fs.clone());
            let serve_slot = move |carrier: Carrier| {
                core.env.spawn(dispatch::serve(core.clone(), fs.clone(), carrier));
            };
            if let Err(error) = uring.start(&env, Box::new(serve_slot)) {
                // The kernel falls back to the device when registering fails.
                tracing::warn!("FUSE over io_uring failed, using /dev/fuse: {error}");
            }
        }
        let device = Rc::new(Cell::new(None));
        let reader = {
            let (core, fs, device) = (core.clone(), fs.clone(), device.clone());
            async move {
                let end = read_device(&core, &fs).await.unwrap_or_else(|error| {
                    tracing::error!("reading {}: {error}", super::mount::DEVICE);
                    End::Stopped
                });
                device.set(Some(end));
                core.shared.end(end);
            }
        };
        env.spawn(reader);
        let watcher = core.clone();
        env.spawn(async move { watcher.look_for_killed().await });
        read_mail(core).await;
        core.interrupt_all();
        wind_down(core, fs).await;
    });
    if let Some(uring) = uring {
        uring.stop(&env);
    }
    env.clear();
}

async fn wind_down<F: FileSystem>(core: &Rc<Core>, fs: &Rc<F>) {
    let env = &core.env;
    let quiet = async {
        while !core.live.borrow().is_empty() {
            env.sleep(Duration::from_millis(2)).await;
        }
    };
    if env.timeout(GRACE, quiet).await.is_none() {
        let count = core.live.borrow().len();
        tracing::warn!(count, "requests that did not end with the session are dropped");
    }
    fs.shutdown().await;
}

/// Hears what other workers say, until the end.
async fn read_mail(core: &Rc<Core>) {
    let mailbox = &core.shared.boxes[core.index];
    std::future::poll_fn(|cx| {
        mailbox.waker.register(cx.waker());
        let mail = std::mem::take(&mut *mailbox.mail.lock());
        for one in mail {
            match one {
                Mail::Interrupt(unique) => core.interrupt(unique),
                Mail::End => return Poll::Ready(()),
            }
        }
        Poll::Pending
    })
    .await;
}

/// What the run loop has read from the device while the reader waited.
#[derive(Default)]
struct Inbox {
    waits: Cell<bool>,
    read: RefCell<Option<Result<Arriving, Errno>>>,
}

fn read_request(core: &Core) -> Result<Arriving, Errno> {
    let mut arriving = core.buffers.for_request();
    match rustix::io::read(&core.dev, arriving.space()) {
        Ok(count) => {
            arriving.filled(count);
            Ok(arriving)
        }
        Err(error) => {
            core.buffers.give_back(arriving);
            Err(error)
        }
    }
}

/// Takes requests from the device until the session ends.
async fn read_device<F: FileSystem>(core: &Rc<Core>, fs: &Rc<F>) -> types::Result<End> {
    let watch = Rc::new(core.env.watch_shared_fd(core.dev.clone())?);
    let inbox = Rc::new(Inbox::default());
    let probe = {
        let (core, inbox, watch) = (core.clone(), inbox.clone(), Rc::downgrade(&watch));
        move || {
            let watch = watch.upgrade().filter(|_| inbox.waits.get())?;
            let read = read_request(&core);
            let found = !matches!(read, Err(Errno::AGAIN));
            if found {
                inbox.waits.set(false);
                inbox.read.replace(Some(read));
                watch.wake_reader();
            }
            Some(found)
        }
    };
    watch.probe_with(probe);
    loop {
        let read = inbox.read.take();
        match read.unwrap_or_else(|| read_request(core)) {
            Ok(arriving) => {
                if let Some(carrier) = Carrier::from_device(core.clone(), arriving) {
                    take(core, fs, carrier);
                    // What came runs before the next is taken: another worker may take that.
                    core.env.yield_now().await;
                    if core.live.borrow().len() > 1 {
                        continue;
                    }
                    // One program at a time asks, and it waits for the answer.
                }
            }
            Err(Errno::AGAIN) => {}
            // Interrupted before it was taken, or by a signal to us.
            Err(Errno::NOENT | Errno::INTR) => continue,
            Err(Errno::NODEV) => return Ok(End::Unmounted),
            Err(Errno::CONNABORTED | Errno::NOTCONN | Errno::PERM) => return Ok(End::Aborted),
            Err(error) => return Err(types::Error::io("a request", error.into())),
        }
        watch.clear_readable();
        inbox.waits.set(true);
        std::future::poll_fn(|cx| match inbox.read.borrow().is_some() {
            true => Poll::Ready(()),
            false => watch.poll_readable(cx),
        })
        .await;
        inbox.waits.set(false);
    }
}

/// Starts what a request asks for; those without an answer are done at once.
fn take<F: FileSystem>(core: &Rc<Core>, fs: &Rc<F>, mut carrier: Carrier) {
    let header: InHeader = *carrier.header();
    match header.opcode {
        op::FORGET | op::BATCH_FORGET | op::INTERRUPT | op::NOTIFY_REPLY => {
            carrier.no_answer();
            let decoded = carrier.body(core.dialect).and_then(|body: Body<'_>| {
                decode(&header, core.dialect, body).map(|(operation, _)| operation)
            });
            match decoded {
                Ok(Operation::Forget { lookup_count }) => {
                    fs.forget(NodeId(header.nodeid), lookup_count);
                }
                Ok(Operation::BatchForget(forgets)) => {
                    for (node, lookup_count) in forgets {
                        fs.forget(node, lookup_count);
                    }
                }
                Ok(Operation::Interrupt { unique }) => {
                    let unique = unique & !abi::UNIQUE_RESEND;
                    core.shared.post(|| Mail::Interrupt(unique));
                }
                Ok(_) => {}
                Err(error) => tracing::error!(opcode = header.opcode, "malformed: {error:?}"),
            }
        }
        _ => core.env.spawn(dispatch::serve(core.clone(), fs.clone(), carrier)),
    }
}
