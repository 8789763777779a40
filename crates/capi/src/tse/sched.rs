//! Schedulers and tasks: the machine behind [`super`].
//!
//! A task begins when it was scheduled and all it depends on is complete, in [`Sched::progress`] or at
//! once when its user asks for that. It ends when somebody completes it: its own function, an
//! operation it launched, or the last of the tasks that it came to depend on while it ran.
//!
//! Invariant: no lock is held while a function of C's runs.

use super::{SchedFunction, TaskCallback, TaskFunction, tse_sched_t, tse_task_t};
use crate::ctypes::daos_event_t;
use crate::errno::DER_CANCELED;
use crate::event::{Event, Queue};
use crate::guard::User;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};
use types::Result;

/// Bytes of arguments that a task holds for its user.
pub(super) const ARGUMENT_BYTES: usize = 1024;
/// Completions taken at a time.
const EVENTS_PER_POLL: usize = 64;
/// Pause while only tasks run that other threads are to complete.
const OTHERS_PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TaskState {
    /// Not begun, or begun anew.
    Waiting,
    Running,
    Completed,
}

/// A callback of C's with a copy of its argument.
pub(super) struct Callback {
    pub function: TaskCallback,
    pub argument: Option<Box<[u64]>>,
    /// The argument itself, when there were no bytes of it to copy.
    pub plain: User<c_void>,
}

struct Inner {
    state: TaskState,
    scheduled: bool,
    /// It is among [`Work::sleeping`].
    asleep: bool,
    function: Option<TaskFunction>,
    private: User<c_void>,
    prepare: Vec<Callback>,
    complete: Vec<Callback>,
    dependents: Vec<Arc<Task>>,
    dependencies_left: usize,
    passes_errors_on: bool,
    references: usize,
    arguments: Box<[u64]>,
    /// Of the operation it launched. Stays where it is while the operation runs.
    event: Option<Box<daos_event_t>>,
}

pub(super) struct Task {
    /// What C has of it.
    pub user: User<tse_task_t>,
    pub sched: Arc<Sched>,
    inner: Mutex<Inner>,
}

// SAFETY: C's memory of a task is written by whoever completes it, one at a time.
unsafe impl Sync for Task {}

#[derive(Default)]
struct Work {
    ready: VecDeque<Arc<Task>>,
    /// Tasks that do not begin before a time, which comes first; the number tells those of the same
    /// time apart.
    sleeping: BTreeMap<(Instant, u64), Arc<Task>>,
    slept: u64,
    /// Scheduled and not complete, by address.
    pending: HashMap<usize, Arc<Task>>,
    /// Tasks whose operation runs, by the address of its event.
    operating: HashMap<usize, Arc<Task>>,
    callbacks: Vec<(SchedFunction, User<c_void>)>,
    /// Its user has no more tasks: the callbacks are due when all are complete.
    ending: bool,
    queue: Option<Arc<Queue>>,
}

pub(super) struct Sched {
    /// What C has of it.
    pub user: User<tse_sched_t>,
    work: Mutex<Work>,
}

// SAFETY: as for `Task`.
unsafe impl Sync for Sched {}

impl Sched {
    pub fn new(user: User<tse_sched_t>) -> Sched {
        Sched { user, work: Mutex::default() }
    }

    pub fn add_callback(&self, function: SchedFunction, argument: User<c_void>) {
        self.work.lock().callbacks.push((function, argument));
    }

    /// True when nothing that was scheduled is left.
    pub fn is_idle(&self) -> bool {
        self.work.lock().pending.is_empty()
    }

    fn queue(&self) -> Result<Arc<Queue>> {
        let mut work = self.work.lock();
        if let Some(queue) = &work.queue {
            return Ok(queue.clone());
        }
        let queue = Arc::new(Queue::new()?);
        work.queue = Some(queue.clone());
        Ok(queue)
    }

    /// Runs what can run, without waiting.
    pub fn progress(&self) -> Result<()> {
        loop {
            let mut moved = self.take_completions(Some(Duration::ZERO))?;
            self.wake();
            loop {
                let next = self.work.lock().ready.pop_front();
                let Some(task) = next else { break };
                moved = true;
                task.run();
            }
            if !moved {
                break;
            }
        }
        self.end_if_due();
        Ok(())
    }

    /// Lets tasks begin whose time has come.
    fn wake(&self) {
        let due = {
            let mut work = self.work.lock();
            if work.sleeping.is_empty() {
                return;
            }
            let later = work.sleeping.split_off(&(Instant::now(), u64::MAX));
            std::mem::replace(&mut work.sleeping, later)
        };
        for task in due.into_values() {
            let mut inner = task.inner.lock();
            inner.asleep = false;
            if inner.dependencies_left == 0 {
                drop(inner);
                self.work.lock().ready.push_back(task);
            }
        }
    }

    /// The earliest time at which a task is to be woken.
    fn next_wake(&self) -> Option<Instant> {
        self.work.lock().sleeping.keys().next().map(|(at, _)| *at)
    }

    /// [`Sched::progress`] until nothing is left, or for so long.
    pub fn progress_for(&self, wait: Option<Duration>) -> Result<()> {
        let until = wait.map(|wait| Instant::now() + wait);
        loop {
            self.progress()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if self.is_idle() || left.is_some_and(|left| left.is_zero()) {
                return Ok(());
            }
            let asleep = self.next_wake().map(|at| at.saturating_duration_since(Instant::now()));
            if self.work.lock().operating.is_empty() {
                let pause = OTHERS_PAUSE.min(asleep.unwrap_or(OTHERS_PAUSE));
                std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
            } else {
                self.take_completions(left.into_iter().chain(asleep).min())?;
            }
        }
    }

    fn take_completions(&self, wait: Option<Duration>) -> Result<bool> {
        let queue = self.work.lock().queue.clone();
        let Some(queue) = queue else { return Ok(false) };
        let done = queue.poll(EVENTS_PER_POLL, true, wait)?;
        for event in &done {
            let task = self.work.lock().operating.remove(&event.addr());
            // SAFETY: the event is the task's, which is in the table until here.
            let error = unsafe { (**event).ev_error };
            let _ = Event::fini(*event);
            if let Some(task) = task {
                task.inner.lock().event = None;
                task.complete(error);
            }
        }
        Ok(!done.is_empty())
    }

    /// No more tasks. With `cancel` those that have not begun do not.
    pub fn end(&self, result: i32, cancel: bool) -> Result<()> {
        self.note_result(result);
        self.work.lock().ending = true;
        if cancel {
            let pending = self.work.lock().pending.clone();
            {
                let mut work = self.work.lock();
                work.ready.clear();
                work.sleeping.clear();
            }
            for task in pending.into_values() {
                let waits = task.inner.lock().state == TaskState::Waiting;
                if waits {
                    task.complete(-DER_CANCELED);
                }
            }
        }
        self.progress()
    }

    /// Waits for operations, and drops what is left.
    pub fn forget(&self) {
        let queue = self.work.lock().queue.take();
        if let Some(queue) = queue {
            queue.drain();
        }
        let work = std::mem::take(&mut *self.work.lock());
        for task in work.operating.values() {
            if let Some(event) = &mut task.inner.lock().event {
                let _ = Event::fini(&raw mut **event);
            }
        }
        for task in work.pending.values() {
            super::release(task);
        }
    }

    fn end_if_due(&self) {
        let callbacks = {
            let mut work = self.work.lock();
            if !work.ending || !work.pending.is_empty() {
                return;
            }
            work.ending = false;
            std::mem::take(&mut work.callbacks)
        };
        for (function, argument) in callbacks.into_iter().rev() {
            // SAFETY: C registered it with this argument; the scheduler's memory is C's until then.
            let told = unsafe { function(argument.0, (*self.user.0).ds_result) };
            self.note_result(told);
        }
    }

    fn note_result(&self, result: i32) {
        // SAFETY: the scheduler's memory is C's, and lives until it is finalized.
        let user = unsafe { &mut *self.user.0 };
        if user.ds_result == 0 {
            user.ds_result = result;
        }
    }
}

impl Task {
    pub fn new(
        user: User<tse_task_t>,
        sched: Arc<Sched>,
        function: Option<TaskFunction>,
        private: User<c_void>,
    ) -> Task {
        let inner = Inner {
            state: TaskState::Waiting,
            scheduled: false,
            asleep: false,
            function,
            private,
            prepare: Vec::new(),
            complete: Vec::new(),
            dependents: Vec::new(),
            dependencies_left: 0,
            passes_errors_on: true,
            references: 1,
            arguments: vec![0; ARGUMENT_BYTES / 8].into(),
            event: None,
        };
        Task { user, sched, inner: Mutex::new(inner) }
    }

    fn result(&self) -> i32 {
        // SAFETY: C's memory of the task lives as long as the task is in the table.
        unsafe { (*self.user.0).dt_result }
    }

    fn note_result(&self, result: i32) {
        // SAFETY: as in `result`.
        let user = unsafe { &mut *self.user.0 };
        if user.dt_result == 0 {
            user.dt_result = result;
        }
    }

    pub fn private(&self) -> User<c_void> {
        self.inner.lock().private
    }

    /// Sets the user's data, and returns what it was.
    pub fn set_private(&self, private: User<c_void>) -> User<c_void> {
        std::mem::replace(&mut self.inner.lock().private, private)
    }

    /// Memory of [`ARGUMENT_BYTES`] bytes.
    pub fn arguments(&self) -> *mut c_void {
        self.inner.lock().arguments.as_mut_ptr().cast()
    }

    pub fn keep_errors_here(&self) {
        self.inner.lock().passes_errors_on = false;
    }

    /// Adds callbacks. False when the task is complete.
    pub fn add_callbacks(&self, prepare: Option<Callback>, complete: Option<Callback>) -> bool {
        let mut inner = self.inner.lock();
        if inner.state == TaskState::Completed {
            return false;
        }
        inner.prepare.extend(prepare);
        inner.complete.extend(complete);
        true
    }

    /// From now on it does not end (or begin) before `other` is complete.
    pub fn depend_on(self: &Arc<Task>, other: &Arc<Task>) {
        let mut first = other.inner.lock();
        if first.state == TaskState::Completed {
            return;
        }
        first.dependents.push(self.clone());
        drop(first);
        self.inner.lock().dependencies_left += 1;
    }

    pub fn add_reference(&self) {
        self.inner.lock().references += 1;
    }

    /// Adds a reference, unless the task is complete: it may have no memory any more then.
    fn hold_unless_complete(&self) -> bool {
        let mut inner = self.inner.lock();
        if inner.state == TaskState::Completed {
            return false;
        }
        inner.references += 1;
        true
    }

    /// True when that was the last one.
    pub fn drop_reference(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.references = inner.references.saturating_sub(1);
        inner.references == 0
    }

    /// True when it has not begun.
    pub fn waits(&self) -> bool {
        self.inner.lock().state == TaskState::Waiting
    }

    /// From now on it sleeps, or does not.
    fn sleep(self: &Arc<Task>, inner: &mut Inner, delay: Duration) {
        inner.asleep = false;
        // Beyond what a clock can tell nobody waits for it.
        let far = Duration::from_secs(1 << 32);
        if let Some(at) = Instant::now().checked_add(delay.min(far)).filter(|_| !delay.is_zero()) {
            inner.asleep = true;
            let mut work = self.sched.work.lock();
            work.slept += 1;
            let key = (at, work.slept);
            work.sleeping.insert(key, self.clone());
        }
    }

    /// Lets it begin when it can and the delay is over; with `instant` now, if it can.
    pub fn schedule(self: &Arc<Task>, instant: bool, delay: Duration) {
        {
            let mut inner = self.inner.lock();
            if std::mem::replace(&mut inner.scheduled, true) {
                return;
            }
            self.sched.work.lock().pending.insert(self.user.0.addr(), self.clone());
            self.sleep(&mut inner, delay);
            if inner.asleep {
                return;
            }
            if inner.dependencies_left > 0 {
                return;
            }
        }
        if instant {
            self.run();
        } else {
            self.sched.work.lock().ready.push_back(self.clone());
        }
    }

    fn run(self: &Arc<Task>) {
        // A callback may complete it.
        if !self.hold_unless_complete() {
            return;
        }
        self.run_held();
        super::release(self);
    }

    fn run_held(self: &Arc<Task>) {
        let prepare = {
            let mut inner = self.inner.lock();
            if inner.state != TaskState::Waiting {
                return;
            }
            inner.state = TaskState::Running;
            std::mem::take(&mut inner.prepare)
        };
        if self.result() == 0 {
            for callback in prepare {
                let told = self.call(&callback);
                self.note_result(told);
            }
        }
        let function = {
            let inner = self.inner.lock();
            if inner.state != TaskState::Running {
                return;
            }
            inner.function
        };
        match function {
            Some(function) if self.result() == 0 => {
                // SAFETY: C gave the function for this task.
                unsafe { function(self.user.0) };
            }
            _ => self.complete(0),
        }
    }

    fn call(&self, callback: &Callback) -> i32 {
        let argument = match &callback.argument {
            Some(copy) => copy.as_ptr().cast_mut().cast(),
            None => callback.plain.0,
        };
        // SAFETY: C registered it for this task, with this argument.
        unsafe { (callback.function)(self.user.0, argument) }
    }

    /// Ends it with a result, unless it has one. The last registered callback comes first; one may
    /// begin the task anew.
    pub fn complete(self: &Arc<Task>, result: i32) {
        // A callback may complete it too.
        if !self.hold_unless_complete() {
            return;
        }
        self.complete_held(result);
        super::release(self);
    }

    fn complete_held(self: &Arc<Task>, result: i32) {
        if self.inner.lock().state == TaskState::Completed {
            return;
        }
        self.note_result(result);
        {
            let mut inner = self.inner.lock();
            if inner.state == TaskState::Waiting {
                inner.state = TaskState::Running;
            }
            if std::mem::replace(&mut inner.asleep, false) {
                let mut work = self.sched.work.lock();
                work.sleeping.retain(|_, task| !Arc::ptr_eq(task, self));
            }
        }
        loop {
            let (callback, dependencies) = {
                let mut inner = self.inner.lock();
                if inner.state == TaskState::Completed {
                    return;
                }
                match inner.complete.pop() {
                    Some(callback) => (callback, inner.dependencies_left),
                    None => {
                        inner.state = TaskState::Completed;
                        break;
                    }
                }
            };
            let told = self.call(&callback);
            self.note_result(told);
            let inner = self.inner.lock();
            // It begins anew, or waits for more tasks before it ends.
            if inner.state == TaskState::Waiting || inner.dependencies_left > dependencies {
                return;
            }
        }
        let (dependents, passes_on) = {
            let mut inner = self.inner.lock();
            (std::mem::take(&mut inner.dependents), inner.passes_errors_on)
        };
        let result = self.result();
        self.sched.note_result(result);
        for dependent in dependents {
            let (free, state, scheduled) = {
                let mut inner = dependent.inner.lock();
                inner.dependencies_left -= 1;
                let scheduled = inner.scheduled && !inner.asleep;
                (inner.dependencies_left == 0, inner.state, scheduled)
            };
            // One that was cancelled may have no memory any more.
            if passes_on && state != TaskState::Completed {
                dependent.note_result(result);
            }
            match state {
                TaskState::Waiting if free && scheduled => {
                    self.sched.work.lock().ready.push_back(dependent);
                }
                TaskState::Running if free => dependent.complete(0),
                _ => {}
            }
        }
        self.sched.work.lock().pending.remove(&self.user.0.addr());
        super::release(self);
    }

    /// Has it run once more, after a delay, and adds a callback for its end. False when it has not begun,
    /// and for a callback of one that is complete.
    pub fn begin_anew(self: &Arc<Task>, callback: Option<Callback>, delay: Duration) -> bool {
        {
            let mut inner = self.inner.lock();
            match inner.state {
                TaskState::Waiting => return false,
                TaskState::Completed if callback.is_some() => return false,
                TaskState::Running => {}
                TaskState::Completed => {
                    // Which its completion gives back.
                    inner.references += 1;
                    self.sched.work.lock().pending.insert(self.user.0.addr(), self.clone());
                }
            }
            inner.state = TaskState::Waiting;
            inner.scheduled = true;
            inner.complete.extend(callback);
            self.clear_result();
            self.sleep(&mut inner, delay);
            if inner.asleep || inner.dependencies_left > 0 {
                return true;
            }
        }
        self.sched.work.lock().ready.push_back(self.clone());
        true
    }

    /// A complete task becomes a new one. False for another.
    pub fn reset(&self, function: Option<TaskFunction>, private: User<c_void>) -> bool {
        let mut inner = self.inner.lock();
        if inner.state != TaskState::Completed {
            return false;
        }
        inner.state = TaskState::Waiting;
        inner.scheduled = false;
        inner.function = function;
        inner.private = private;
        inner.arguments.fill(0);
        inner.prepare.clear();
        inner.complete.clear();
        self.clear_result();
        true
    }

    fn clear_result(&self) {
        // SAFETY: as in `result`.
        unsafe { (*self.user.0).dt_result = 0 };
    }

    /// An event for the operation that the task is to launch.
    pub fn operation(self: &Arc<Task>) -> Result<*mut daos_event_t> {
        let queue = self.sched.queue()?;
        // SAFETY: plain numbers; `Event::init` fills them in.
        let mut event: Box<daos_event_t> = Box::new(unsafe { std::mem::zeroed() });
        let user: *mut daos_event_t = &raw mut *event;
        self.inner.lock().event = Some(event);
        Event::init(user, Some(queue), std::ptr::null_mut())?;
        self.sched.work.lock().operating.insert(user.addr(), self.clone());
        Ok(user)
    }

    /// The operation was launched, or was not and that is the task's result.
    pub fn launched(self: &Arc<Task>, event: *mut daos_event_t, result: i32) {
        if result == 0 {
            return;
        }
        self.sched.work.lock().operating.remove(&event.addr());
        let _ = Event::fini(event);
        self.inner.lock().event = None;
        self.complete(result);
    }
}
