//! The task queue: one thread runs `!Send` futures, any thread may wake them.
//!
//! Invariants: a future is polled and dropped on its owner's thread only (wakers hold a key,
//! never the future); a task is in the ready queue at most once; tasks run in the order they were
//! woken. A wake from another thread writes the doorbell only when the owner sleeps: the waker
//! stores work, then reads `sleeping`; the owner stores `sleeping`, then looks for work; both
//! sequentially consistent, so one of them sees the other.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// Who a task belongs to, so that a simulated node's tasks can be dropped together.
pub(crate) type Owner = u32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TaskKey {
    index: usize,
    generation: u64,
}

/// The part of an executor that wakers of any thread reach.
#[derive(Default)]
pub(crate) struct Shared {
    queue: Mutex<VecDeque<TaskKey>>,
    has_work: AtomicBool,
    sleeping: AtomicBool,
    doorbell: Option<OwnedFd>,
}

impl Shared {
    fn push(&self, key: TaskKey) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(key);
        self.notify();
    }

    fn notify(&self) {
        self.has_work.store(true, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst)
            && self.sleeping.swap(false, Ordering::SeqCst)
            && let Some(doorbell) = &self.doorbell
        {
            // A full counter means the owner is being woken already.
            let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
        }
    }
}

struct TaskWaker {
    shared: Arc<Shared>,
    key: TaskKey,
    queued: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.shared.push(self.key);
        }
    }
}

/// Waker of the future that `block_on` drives.
struct MainWaker {
    shared: Arc<Shared>,
    woken: AtomicBool,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.shared.notify();
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    generation: u64,
    owner: Owner,
    /// `None` while the task is being polled.
    task: Option<Task>,
    wake: Option<(Arc<TaskWaker>, Waker)>,
    live: bool,
}

/// An executor of one thread.
pub(crate) struct Exec {
    shared: Arc<Shared>,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    batch: RefCell<VecDeque<TaskKey>>,
    /// Owners whose tasks do not run, with those of them that were woken since.
    held: RefCell<BTreeMap<Owner, Vec<TaskKey>>>,
    /// There are some: what every run of a task looks at.
    is_holding: Cell<bool>,
    generation: Cell<u64>,
    main: Arc<MainWaker>,
    main_waker: Waker,
    entered: Cell<bool>,
}

/// Held while a thread is inside the run loop; the loop is not re-entrant.
pub(crate) struct Entered<'a>(&'a Exec);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.entered.set(false);
    }
}

impl Exec {
    /// An executor that is woken through `doorbell` (an eventfd) while it sleeps.
    pub fn new(doorbell: Option<OwnedFd>) -> Exec {
        let shared = Arc::new(Shared { doorbell, ..Shared::default() });
        let main = Arc::new(MainWaker { shared: shared.clone(), woken: AtomicBool::new(false) });
        Exec {
            shared,
            slots: RefCell::default(),
            free: RefCell::default(),
            batch: RefCell::default(),
            held: RefCell::default(),
            is_holding: Cell::new(false),
            generation: Cell::new(0),
            main_waker: Waker::from(main.clone()),
            main,
            entered: Cell::new(false),
        }
    }

    /// Marks the run loop as entered. Panics when it is entered already: blocking inside a task
    /// would stop everything else on the thread.
    pub fn enter(&self) -> Entered<'_> {
        assert!(
            !self.entered.replace(true),
            "block_on or turn was called from inside a task of the same Env"
        );
        Entered(self)
    }

    /// Adds a task; it runs with the next batch.
    pub fn spawn(&self, owner: Owner, task: Task) {
        let generation = self.generation.get() + 1;
        self.generation.set(generation);
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or(slots.len());
        let key = TaskKey { index, generation };
        let waker =
            Arc::new(TaskWaker { shared: self.shared.clone(), key, queued: AtomicBool::new(true) });
        let wake = Some((waker.clone(), Waker::from(waker)));
        let slot = Slot { generation, owner, task: Some(task), wake, live: true };
        if index == slots.len() {
            slots.push(slot);
        } else {
            slots[index] = slot;
        }
        drop(slots);
        self.shared.push(key);
    }

    /// True when a task or the main future waits to run.
    pub fn has_work(&self) -> bool {
        self.shared.has_work.load(Ordering::SeqCst) || !self.batch.borrow().is_empty()
    }

    /// Says that the thread is about to sleep; false when there is work, and then it is not.
    pub fn prepare_sleep(&self) -> bool {
        self.shared.sleeping.store(true, Ordering::SeqCst);
        if self.shared.has_work.load(Ordering::SeqCst) {
            self.shared.sleeping.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// Says that the thread is awake.
    pub fn woke(&self) {
        self.shared.sleeping.store(false, Ordering::SeqCst);
    }

    /// The waker for the main future, and whether that future was woken since the last call.
    pub fn main_woken(&self) -> bool {
        self.main.woken.load(Ordering::Relaxed) && self.main.woken.swap(false, Ordering::AcqRel)
    }

    /// Whether the main future was woken and has not been polled since.
    pub fn main_is_woken(&self) -> bool {
        self.main.woken.load(Ordering::Acquire)
    }

    /// Makes the main future be polled at least once.
    pub fn wake_main(&self) {
        self.main_waker.wake_by_ref();
    }

    /// Waker of the main future.
    pub fn main_waker(&self) -> &Waker {
        &self.main_waker
    }

    fn refill(&self) {
        if self.shared.has_work.load(Ordering::Relaxed)
            && self.shared.has_work.swap(false, Ordering::SeqCst)
        {
            let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let mut batch = self.batch.borrow_mut();
            if batch.is_empty() {
                std::mem::swap(&mut *batch, &mut *queue);
            } else {
                batch.append(&mut queue);
            }
        }
    }

    /// Runs what was ready when called; true if anything ran. `trace` sees each task's key.
    pub fn run_ready(&self, mut trace: impl FnMut(u64)) -> bool {
        self.refill();
        let count = self.batch.borrow().len();
        for _ in 0..count {
            let Some(key) = self.batch.borrow_mut().pop_front() else { break };
            trace(key.generation);
            self.run(key);
        }
        count > 0
    }

    fn run(&self, key: TaskKey) {
        let (mut task, wake) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[key.index];
            if slot.generation != key.generation || !slot.live {
                return;
            }
            if self.is_holding.get()
                && let Some(woken) = self.held.borrow_mut().get_mut(&slot.owner)
            {
                // It counts as queued until it runs, so it is in the list once.
                woken.push(key);
                return;
            }
            let (Some(task), Some(wake)) = (slot.task.take(), slot.wake.take()) else { return };
            (task, wake)
        };
        // Cleared before the poll, so that a wake during it queues the task again.
        wake.0.queued.store(false, Ordering::Release);
        let done = task.as_mut().poll(&mut Context::from_waker(&wake.1)).is_ready();
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[key.index];
        if slot.live && !done {
            slot.task = Some(task);
            slot.wake = Some(wake);
            return;
        }
        slot.live = false;
        slot.generation = 0;
        drop(slots);
        self.free.borrow_mut().push(key.index);
        // The future is dropped here, with no borrow held: its drop may spawn or wake.
        drop(task);
    }

    /// From now on tasks of `owner` are not run.
    pub fn hold(&self, owner: Owner) {
        self.held.borrow_mut().entry(owner).or_default();
        self.is_holding.set(true);
    }

    /// Tasks of `owner` run again, first those that were woken meanwhile, in the order of their wakes.
    pub fn release(&self, owner: Owner) {
        let woken = self.held.borrow_mut().remove(&owner);
        self.is_holding.set(!self.held.borrow().is_empty());
        woken.into_iter().flatten().for_each(|key| self.shared.push(key));
    }

    /// Drops all tasks of `owner`, or of everybody, and those that their drops spawn.
    pub fn drop_tasks(&self, owner: Option<Owner>) {
        while self.drop_pass(owner) {}
    }

    fn drop_pass(&self, owner: Option<Owner>) -> bool {
        let mut any = false;
        let count = self.slots.borrow().len();
        for at in 0..count {
            let doomed = {
                let mut slots = self.slots.borrow_mut();
                let slot = &mut slots[at];
                if !slot.live || owner.is_some_and(|owner| slot.owner != owner) {
                    continue;
                }
                slot.live = false;
                // A task without its future is running right now; `run` drops it when its poll
                // returns.
                let Some(task) = slot.task.take() else { continue };
                slot.generation = 0;
                slot.wake = None;
                task
            };
            self.free.borrow_mut().push(at);
            any = true;
            drop(doomed);
        }
        any
    }

    /// Number of tasks that have not ended.
    pub fn task_count(&self) -> usize {
        self.slots.borrow().iter().filter(|slot| slot.live).count()
    }
}
