//! Contexts: a client, what it keeps for open handles, and the lock around both. For ways in whose
//! callers have threads and fork: the C API and the interception library.
//!
//! Clients of the crates below belong to one thread at a time. A context makes "one at a time"
//! true with a lock: whoever holds it is the thread. Each thread that calls has a context
//! of its own, so that threads do not wait for each other; further ones may be made, so that
//! an operation may be launched by one thread and moved on by another.
//!
//! What a handle stands for is known process-wide, to the user of this crate; the objects of the
//! crates below that go with it (pools, containers, mounts, files) are made in a context when it
//! first needs them, without asking anybody: its *mirrors*.
//!
//! Fork: the child must not touch the parent's connections. It sees another generation, leaves
//! the old contexts where they are and makes new ones; handles go on working.

mod awake;
mod fork_lock;

pub use fork_lock::{ForkLock, ForkRwLock};

use client::{Client, ConnectOptions, Patience, SystemAddress};
use foldhash::HashMap;
use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};
use types::{Code, Error, Result};

/// Mirrors kept before closed handles are looked for.
const MIRRORS_BEFORE_SWEEP: usize = 256;

/// What runs inside a context.
pub struct Local {
    pub client: Client,
    ctx: Weak<Ctx>,
    mirrors: RefCell<HashMap<u64, Rc<dyn Any>>>,
    sweep_at: Cell<usize>,
}

impl Local {
    /// The context this is the inside of.
    pub fn ctx(&self) -> Result<Arc<Ctx>> {
        self.ctx.upgrade().ok_or_else(not_initialized)
    }

    /// The mirror of a handle, made when this context first needs it.
    pub fn mirror<T: Any>(&self, handle: u64, make: impl FnOnce() -> Result<T>) -> Result<Rc<T>> {
        let wrong = |_| Error::new(Code::BadHandle, "the handle is of another kind");
        if let Some(found) = self.mirrors.borrow().get(&handle) {
            return found.clone().downcast().map_err(wrong);
        }
        let made = Rc::new(make()?);
        self.keep(handle, made.clone());
        Ok(made)
    }

    /// The mirror of a handle, if this context has one.
    pub fn mirrored<T: Any>(&self, handle: u64) -> Option<Rc<T>> {
        self.mirrors.borrow().get(&handle).cloned()?.downcast().ok()
    }

    /// Keeps a mirror for a handle.
    pub fn keep<T: Any>(&self, handle: u64, mirror: Rc<T>) {
        let mut mirrors = self.mirrors.borrow_mut();
        mirrors.insert(handle, mirror);
        if mirrors.len() < self.sweep_at.get() {
            return;
        }
        // Handles that another context closed. Dropping a mirror may look at others.
        let Some(user) = USER.get() else { return };
        let stale: Vec<u64> =
            mirrors.keys().copied().filter(|handle| !(user.is_live)(*handle)).collect();
        let dropped: Vec<_> = stale.iter().filter_map(|handle| mirrors.remove(handle)).collect();
        self.sweep_at.set((mirrors.len() * 2).max(MIRRORS_BEFORE_SWEEP));
        drop(mirrors);
        drop(dropped);
    }

    /// Drops the mirror of a handle; what it held open is given back.
    pub fn forget(&self, handle: u64) {
        let mirror = self.mirrors.borrow_mut().remove(&handle);
        drop(mirror);
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let mirrors = self.mirrors.take();
        drop(mirrors);
        self.client.flush();
    }
}

/// The `Local` of a context; only the holder of the lock touches it.
struct Locked(Rc<Local>);

impl Drop for Locked {
    fn drop(&mut self) {
        // Tasks hold clones of what is inside; without them it goes with this one.
        self.0.client.env().clear();
    }
}

// SAFETY: everything inside, and every clone of an `Rc` inside (tasks hold some), is reached
// only through `Ctx::lock`, by one thread at a time.
unsafe impl Send for Locked {}

/// A client and the lock around it.
pub struct Ctx {
    locked: Mutex<Locked>,
    /// Threads that wait for the lock while another sits in it waiting for work.
    wanted: AtomicUsize,
    /// Wakes the thread that sits in it.
    bell: Arc<AtomicWaker>,
    generation: u64,
    /// Work that other threads leave for the next one that comes in.
    deferred: Mutex<Vec<Deferred>>,
    /// What shall happen once the lock is free.
    afterwards: Mutex<Vec<Arc<dyn Afterwards>>>,
}

/// Something to be done when a context's lock is free, because it may come back to the context:
/// a callback of the caller's.
pub trait Afterwards: Send + Sync {
    fn run(self: Arc<Self>);
}

type Deferred = Box<dyn FnOnce(&Rc<Local>) + Send>;

/// A context whose lock is held until this is dropped.
pub struct Held<'a> {
    ctx: &'a Ctx,
    guard: Option<MutexGuard<'a, Locked>>,
}

impl Held<'_> {
    pub fn local(&self) -> &Rc<Local> {
        // Taken only on drop.
        &self.guard.as_ref().expect("held until dropped").0
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some(guard) = self.guard.take() else { return };
        if self.ctx.wanted.load(Ordering::SeqCst) > 0 {
            MutexGuard::unlock_fair(guard);
        } else {
            drop(guard);
        }
        self.ctx.run_afterwards();
    }
}

impl Ctx {
    /// A context with a client of its own, which connects when first used.
    pub fn new() -> Result<Arc<Ctx>> {
        let options = OPTIONS.lock().clone().ok_or_else(not_initialized)?;
        let env = env::Env::real()?;
        let client = Client::new(env.clone(), env::host_identity(), options);
        let bell = Arc::new(AtomicWaker::new());
        let rung = bell.clone();
        env.spawn(futures_util::future::poll_fn(move |cx| {
            rung.register(cx.waker());
            Poll::Pending
        }));
        // The task that the bell wakes must have run once.
        env.turn(Some(Duration::ZERO));
        Ok(Arc::new_cyclic(|ctx| {
            let local = Local {
                client,
                ctx: ctx.clone(),
                mirrors: RefCell::default(),
                sweep_at: Cell::new(MIRRORS_BEFORE_SWEEP),
            };
            Ctx {
                locked: Mutex::new(Locked(Rc::new(local))),
                wanted: AtomicUsize::new(0),
                bell,
                generation: GENERATION.load(Ordering::SeqCst),
                deferred: Mutex::new(Vec::new()),
                afterwards: Mutex::new(Vec::new()),
            }
        }))
    }

    /// Has something done once the lock is free.
    pub fn afterwards(&self, what: Arc<dyn Afterwards>) {
        self.afterwards.lock().push(what);
    }

    /// Does what was to be done once the lock is free, which it must be now.
    pub fn run_afterwards(&self) {
        loop {
            let Some(next) = self.afterwards.lock().pop() else { return };
            next.run();
        }
    }

    /// This thread's context. `Closed` before [`open`].
    pub fn of_thread() -> Result<Arc<Ctx>> {
        let kept = THREAD.try_with(|thread| thread.0.borrow().clone()).ok().flatten();
        if let Some(ctx) = kept
            && ctx.is_current()
        {
            return Ok(ctx);
        }
        let reused = FREE.lock().pop().filter(|ctx| ctx.is_current());
        let ctx = match reused {
            Some(ctx) => ctx,
            None => Ctx::new()?,
        };
        let _ = THREAD.try_with(|thread| {
            if let Some(old) = thread.0.replace(Some(ctx.clone())) {
                old.abandon();
            }
        });
        Ok(ctx)
    }

    /// False in a child for what its parent made, and after [`close`].
    pub fn is_current(&self) -> bool {
        self.generation == GENERATION.load(Ordering::SeqCst)
    }

    /// Lets go of a context of another generation without touching its connections.
    pub fn abandon(self: Arc<Ctx>) {
        if self.generation < FORKED_AT.load(Ordering::SeqCst) {
            std::mem::forget(self);
        }
    }

    /// Waits for the context. The thread that waits for work in it lets others in.
    pub fn lock(&self) -> Held<'_> {
        let guard = match self.locked.try_lock() {
            Some(guard) => guard,
            None => {
                self.wanted.fetch_add(1, Ordering::SeqCst);
                self.bell.wake();
                let guard = self.locked.lock();
                self.wanted.fetch_sub(1, Ordering::SeqCst);
                guard
            }
        };
        let held = Held { ctx: self, guard: Some(guard) };
        let deferred = std::mem::take(&mut *self.deferred.lock());
        for work in deferred {
            work(held.local());
        }
        held
    }

    /// Leaves work for whoever comes in next; now, if nobody is inside.
    pub fn defer(&self, work: impl FnOnce(&Rc<Local>) + Send + 'static) {
        self.deferred.lock().push(Box::new(work));
        if let Some(guard) = self.locked.try_lock() {
            let held = Held { ctx: self, guard: Some(guard) };
            for work in std::mem::take(&mut *self.deferred.lock()) {
                work(held.local());
            }
        }
    }

    /// Moves operations on until `done` says so or the time is over. `None` for `wait`: as long
    /// as it takes. At least one round is run.
    pub fn wait<R>(
        &self,
        wait: Option<Duration>,
        mut done: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        // Who does not wait needs no clock.
        let deadline = wait.filter(|wait| !wait.is_zero()).map(|wait| Instant::now() + wait);
        let left = || match deadline {
            Some(deadline) => Some(deadline.saturating_duration_since(Instant::now())),
            None => wait,
        };
        loop {
            let held = self.lock();
            let env = held.local().client.env().clone();
            env.turn(Some(Duration::ZERO));
            if self.afterwards.lock().is_empty() {
                if let Some(result) = done() {
                    return Some(result);
                }
                let left = left();
                if left != Some(Duration::ZERO) && self.wanted.load(Ordering::SeqCst) == 0 {
                    env.turn(left);
                }
            }
            drop(env);
            // Callbacks run, and others get in, here.
            drop(held);
            if let Some(result) = done() {
                return Some(result);
            }
            if left() == Some(Duration::ZERO) {
                return None;
            }
        }
    }
}

/// Counts forks and [`close`]s: contexts of an older generation are not used any more.
static GENERATION: AtomicU64 = AtomicU64::new(1);
/// Generation since the last fork: contexts before it belong to another process.
static FORKED_AT: AtomicU64 = AtomicU64::new(1);
/// How to connect; set by [`open`].
static OPTIONS: ForkLock<Option<ConnectOptions>> = ForkLock::new(None);
/// What the program asked for; stays over [`close`].
/// Seconds; 0: nothing, the largest number: hard. No lock, because forks do not know of it.
static PATIENCE_SECONDS: AtomicU32 = AtomicU32::new(0);
/// Contexts of threads that ended.
static FREE: ForkLock<Vec<Arc<Ctx>>> = ForkLock::new(Vec::new());

/// The context of a thread, given back when the thread ends.
struct ThreadCtx(RefCell<Option<Arc<Ctx>>>);

impl Drop for ThreadCtx {
    fn drop(&mut self) {
        if let Some(ctx) = self.0.take() {
            if ctx.is_current() {
                FREE.lock().push(ctx);
            } else {
                ctx.abandon();
            }
        }
    }
}

thread_local! {
    static THREAD: ThreadCtx = const { ThreadCtx(RefCell::new(None)) };
}

fn not_initialized() -> Error {
    Error::new(Code::Closed, "no system has been opened")
}

/// What the user of this crate has to say.
pub struct User {
    /// False for handles that were closed: contexts need not keep mirrors of them.
    pub is_live: fn(u64) -> bool,
    /// Before a fork, in the forking thread: take the locks that the child will need.
    pub before_fork: fn(),
    /// After it, on both sides: let them go.
    pub after_fork: fn(),
    /// Runs what is given in a thread of this crate's: one whose calls are not the program's.
    pub as_own_thread: fn(&mut dyn FnMut()),
}

static USER: OnceLock<&'static User> = OnceLock::new();

/// Learns how to connect and lets threads make contexts.
pub fn open(system: SystemAddress, user: &'static User) {
    static FORK: Once = Once::new();
    USER.get_or_init(|| user);
    FORK.call_once(|| {
        // SAFETY: the handlers are of the right type and live as long as the library, which is
        // never unloaded while threads use it.
        unsafe { libc::pthread_atfork(Some(fork_prepare), Some(fork_parent), Some(fork_child)) };
    });
    let mut options = ConnectOptions::new(system);
    if let Some(patience) = asked_patience() {
        options.timeout = patience.limit();
    }
    *OPTIONS.lock() = Some(options);
}

/// How long operations wait for engines, in contexts that are made from now on.
/// Seconds above zero; `u32::MAX`: for ever.
pub fn set_patience(seconds: u32) {
    PATIENCE_SECONDS.store(seconds, Ordering::SeqCst);
    if let (Some(options), Some(patience)) = (&mut *OPTIONS.lock(), asked_patience()) {
        options.timeout = patience.limit();
    }
}

fn asked_patience() -> Option<Patience> {
    match PATIENCE_SECONDS.load(Ordering::SeqCst) {
        0 => None,
        u32::MAX => Some(Patience::Hard),
        seconds => Some(Patience::Soft(Duration::from_secs(seconds as u64))),
    }
}

/// No thread gets a context any more; those that are idle close their connections.
pub fn close() {
    *OPTIONS.lock() = None;
    GENERATION.fetch_add(1, Ordering::SeqCst);
    awake::start_anew();
    let free = std::mem::take(&mut *FREE.lock());
    let own = THREAD.try_with(|thread| thread.0.take()).ok().flatten();
    for ctx in free.into_iter().chain(own) {
        ctx.abandon();
    }
}

/// True between [`open`] and [`close`].
pub fn is_open() -> bool {
    OPTIONS.lock().is_some()
}

/// In a child: what the parent made is left alone. Done by itself after `fork`; for children made
/// in another way.
pub fn start_anew() {
    let generation = GENERATION.fetch_add(1, Ordering::SeqCst) + 1;
    FORKED_AT.store(generation, Ordering::SeqCst);
    awake::start_anew();
    // Locks are the parent's, and so is what is known of them.
    if let Some(options) = &mut *OPTIONS.lock() {
        options.locks = client::LockBook::default();
    }
    for ctx in std::mem::take(&mut *FREE.lock()) {
        std::mem::forget(ctx);
    }
}

extern "C" fn fork_prepare() {
    OPTIONS.hold();
    FREE.hold();
    awake::hold();
    if let Some(user) = USER.get() {
        (user.before_fork)();
    }
}

fn fork_release() {
    if let Some(user) = USER.get() {
        (user.after_fork)();
    }
    // SAFETY: `fork_prepare` ran on this thread, or on the one this is a copy of.
    unsafe {
        awake::release();
        FREE.release();
        OPTIONS.release();
    }
}

extern "C" fn fork_parent() {
    fork_release();
}

extern "C" fn fork_child() {
    fork_release();
    start_anew();
}
