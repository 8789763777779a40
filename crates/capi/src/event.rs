//! Events and event queues: operations that run while the caller does other things.
//!
//! C owns a `daos_event_t`; what we know of it is an [`Event`] behind a handle kept inside. An
//! operation launched with an event runs in the context of the event's queue, or in that of the
//! launching thread when the event has no queue. It moves on whenever somebody polls the queue,
//! tests an event or waits for anything else in the same context.
//!
//! A parent completes when its own operation (if any) and all its children have. Once the
//! barrier is set, or its own operation launched, it takes no more children until then.
//!
//! Source of the semantics: DAOS's `daos_event.h`.

use crate::ctx::{Afterwards, Ctx, Local};
use crate::ctypes::daos_event_t as UserEvent;
use crate::errno::{DER_CANCELED, Sign};
use crate::{guard, handle};
use futures_util::FutureExt;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use types::{Code, Error, Result};

/// Marks an initialized event.
const MARK: u64 = 0x617a_6b5f_6576_7431;

/// A completion callback: argument, event, result.
pub type Callback = unsafe extern "C" fn(*mut libc::c_void, *mut UserEvent, i32) -> i32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EventState {
    /// Nothing launched, or the result was taken.
    Ready,
    /// Launched (or a barrier set); not all is done.
    Running,
    /// Done; the result waits to be taken.
    Completed,
}

struct Inner {
    state: EventState,
    /// Its own operation is running.
    operating: bool,
    /// Children that run.
    children_running: usize,
    children: Vec<u64>,
    /// First error of the operation or of a child.
    error: i32,
    abort: bool,
    callbacks: Vec<(Callback, usize)>,
    /// The context the operation runs in, for events without a queue.
    ctx: Option<Arc<Ctx>>,
}

/// What we know of an event of C's.
pub struct Event {
    user: guard::User<UserEvent>,
    queue: Option<Arc<Queue>>,
    parent: Option<Arc<Event>>,
    inner: Mutex<Inner>,
}

// SAFETY: the user's memory is written by whoever completes the event, one at a time; see `User`.
unsafe impl Sync for Event {}

/// A queue of events, with a context of its own.
pub struct Queue {
    ctx: Arc<Ctx>,
    done: Mutex<VecDeque<Arc<Event>>>,
    running: Mutex<Vec<Arc<Event>>>,
    /// Events initialized in it and not finalized.
    members: AtomicUsize,
}

impl Queue {
    /// An empty queue, with a context of its own.
    pub fn new() -> Result<Queue> {
        Ok(Queue {
            ctx: Ctx::new()?,
            done: Mutex::default(),
            running: Mutex::default(),
            members: AtomicUsize::new(0),
        })
    }

    pub fn running(&self) -> Vec<*mut UserEvent> {
        self.running.lock().iter().map(|event| event.user.0).collect()
    }

    /// Events that are done and not yet taken.
    pub fn completed(&self) -> Vec<*mut UserEvent> {
        self.done.lock().iter().map(|event| event.user.0).collect()
    }

    /// Takes up to `count_max` events that are done, waiting for the first. With `only_running`
    /// it does not wait when nothing runs.
    pub fn poll(
        &self,
        count_max: usize,
        only_running: bool,
        wait: Option<Duration>,
    ) -> Result<Vec<*mut UserEvent>> {
        if !self.ctx.is_current() {
            return Err(Error::new(
                Code::Closed,
                "the event queue was made before daos_fini or by a parent process",
            ));
        }
        let taken: Option<Vec<Arc<Event>>> = self.ctx.wait(wait, || {
            // In this order: what stops running meanwhile is found done in the next round.
            let idle = only_running && self.running.lock().is_empty();
            let mut done = self.done.lock();
            if done.is_empty() {
                return idle.then(Vec::new);
            }
            let count = done.len().min(count_max);
            Some(done.drain(..count).collect())
        });
        Ok(taken.unwrap_or_default().iter().map(|event| event.take()).collect())
    }

    /// Waits until nothing runs, and forgets what is done.
    pub fn drain(&self) {
        self.ctx.wait(None, || self.running.lock().is_empty().then_some(()));
        self.done.lock().clear();
    }

    /// True when something runs or waits to be taken.
    pub fn is_busy(&self) -> bool {
        !self.running.lock().is_empty() || !self.done.lock().is_empty()
    }

    fn forget(&self, event: &Event) {
        self.done.lock().retain(|other| !std::ptr::eq(&**other, event));
    }

    fn note_running(&self, event: &Arc<Event>) {
        self.running.lock().push(event.clone());
    }

    fn note_done(&self, event: &Arc<Event>) {
        // First there, then away from here: nobody sees it in neither.
        self.done.lock().push_back(event.clone());
        let mut running = self.running.lock();
        if let Some(at) = running.iter().position(|other| Arc::ptr_eq(other, event)) {
            running.swap_remove(at);
        }
    }
}

impl Event {
    /// Initializes an event of C's. A child takes its parent's queue.
    pub fn init(
        user: *mut UserEvent,
        queue: Option<Arc<Queue>>,
        parent: *mut UserEvent,
    ) -> Result<()> {
        if user.is_null() {
            return Err(guard::null());
        }
        let parent = if parent.is_null() { None } else { Some(Event::of(parent)?) };
        let queue = match &parent {
            Some(parent) => parent.queue.clone(),
            None => queue,
        };
        if let Some(parent) = &parent {
            let inner = parent.inner.lock();
            if parent.parent.is_some() {
                return Err(Error::inval("a child event cannot have children"));
            }
            if inner.state != EventState::Ready {
                return Err(Error::inval("the parent event is launched already"));
            }
        }
        if let Some(queue) = &queue {
            queue.members.fetch_add(1, Ordering::Relaxed);
        }
        let event = Arc::new(Event {
            user: guard::User(user),
            queue,
            parent: parent.clone(),
            inner: Mutex::new(Inner {
                state: EventState::Ready,
                operating: false,
                children_running: 0,
                children: Vec::new(),
                error: 0,
                abort: false,
                callbacks: Vec::new(),
                ctx: None,
            }),
        });
        let number = handle::add(event)?;
        if let Some(parent) = parent {
            parent.inner.lock().children.push(number);
        }
        // SAFETY: not NULL; the caller gives memory for an event.
        let mut fresh: UserEvent = unsafe { std::mem::zeroed() };
        fresh.ev_private.space[0] = MARK;
        fresh.ev_private.space[1] = number;
        guard::User(user).set(fresh);
        Ok(())
    }

    /// The event behind C's. `Inval` for NULL or one that was not initialized.
    pub fn of(user: *const UserEvent) -> Result<Arc<Event>> {
        Ok(Event::find(user)?.1)
    }

    fn find(user: *const UserEvent) -> Result<(u64, Arc<Event>)> {
        // SAFETY: the API demands a live event; a wrong mark is told from a right one.
        let user = unsafe { guard::get(user) }?;
        if user.ev_private.space[0] != MARK {
            return Err(Error::inval("the event was not initialized"));
        }
        let number = user.ev_private.space[1];
        match handle::get::<Event>(number) {
            Ok(event) => Ok((number, event)),
            Err(_) => Err(Error::inval("the event was finalized")),
        }
    }

    /// Finalizes an event, and its children. `Busy` while it runs. Once more does nothing.
    pub fn fini(user: *mut UserEvent) -> Result<()> {
        let (number, event) = match Event::find(user) {
            Ok(found) => found,
            Err(_) if is_marked(user) => return Ok(()),
            Err(error) => return Err(error),
        };
        let children = {
            let mut inner = event.inner.lock();
            if inner.state == EventState::Running || inner.children_running > 0 {
                return Err(Error::new(Code::Busy, "the event is running"));
            }
            std::mem::take(&mut inner.children)
        };
        for child in children {
            if let Ok(child) = handle::remove::<Event>(child) {
                child.leave_queue();
            }
        }
        if let Some(parent) = &event.parent {
            parent.inner.lock().children.retain(|child| *child != number);
        }
        event.leave_queue();
        handle::remove::<Event>(number)?;
        Ok(())
    }

    fn leave_queue(&self) {
        if let Some(queue) = &self.queue {
            queue.forget(self);
            queue.members.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The child after `after` (the first, for NULL); NULL when there is none.
    pub fn next_child(user: *mut UserEvent, after: *mut UserEvent) -> Result<*mut UserEvent> {
        let parent = Event::of(user)?;
        let children = parent.inner.lock().children.clone();
        let mut users = children
            .iter()
            .filter_map(|child| handle::get::<Event>(*child).ok())
            .map(|child| child.user.0);
        if !after.is_null() {
            users.by_ref().find(|child| *child == after);
        }
        Ok(users.next().unwrap_or(std::ptr::null_mut()))
    }

    /// True when the event is finished (or was never launched); takes it out of its queue.
    pub fn test(user: *mut UserEvent, wait: Option<Duration>) -> Result<bool> {
        let event = Event::of(user)?;
        if event.parent.is_some() {
            return Err(Error::new(Code::NoPerm, "a child event cannot be tested"));
        }
        let ctx = match &event.queue {
            Some(queue) => Some(queue.ctx.clone()),
            None => event.inner.lock().ctx.clone(),
        };
        let finished = || {
            let state = event.inner.lock().state;
            (state != EventState::Running).then_some(())
        };
        if let Some(ctx) = ctx
            && finished().is_none()
            && ctx.wait(wait, finished).is_none()
        {
            return Ok(false);
        }
        if finished().is_none() {
            return Ok(false);
        }
        event.take();
        if let Some(queue) = &event.queue {
            queue.forget(&event);
        }
        Ok(true)
    }

    /// Adds a callback for the next completion. `NoPerm` when the event runs.
    pub fn register(user: *mut UserEvent, callback: Callback, argument: usize) -> Result<()> {
        let event = Event::of(user)?;
        let mut inner = event.inner.lock();
        if inner.state == EventState::Running {
            return Err(Error::new(Code::NoPerm, "the event is running"));
        }
        inner.callbacks.push((callback, argument));
        Ok(())
    }

    /// No more children; the event completes when all children have.
    pub fn barrier(user: *mut UserEvent) -> Result<()> {
        let event = Event::of(user)?;
        let mut inner = event.inner.lock();
        if inner.children.is_empty() || event.parent.is_some() {
            return Err(Error::inval("the event has no children"));
        }
        if inner.state != EventState::Ready {
            return Err(Error::new(Code::NoPerm, "the event is launched already"));
        }
        inner.state = EventState::Running;
        inner.error = 0;
        let first = inner.children.first().copied();
        inner.ctx = first
            .and_then(|child| handle::get::<Event>(child).ok())
            .and_then(|child| child.inner.lock().ctx.clone());
        let idle = inner.children_running == 0;
        drop(inner);
        if let Some(queue) = &event.queue {
            queue.note_running(&event);
        }
        if idle {
            event.finish_soon();
        }
        Ok(())
    }

    /// Asks for the operation to be given up. One that has not begun completes as cancelled; one
    /// that has runs to its end, because targets may be writing to the caller's memory.
    pub fn abort(user: *mut UserEvent) -> Result<()> {
        let event = Event::of(user)?;
        let mut inner = event.inner.lock();
        if inner.state == EventState::Running {
            inner.abort = true;
        }
        Ok(())
    }

    fn begin(self: &Arc<Event>, ctx: &Arc<Ctx>) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.state == EventState::Running || inner.operating {
            return Err(Error::new(Code::Busy, "the event is in use by another operation"));
        }
        if inner.state == EventState::Completed {
            return Err(Error::new(Code::Busy, "the event's last result was not taken"));
        }
        inner.state = EventState::Running;
        inner.operating = true;
        inner.abort = false;
        inner.error = 0;
        inner.ctx = Some(ctx.clone());
        drop(inner);
        self.user.with(|user| user.ev_error = 0);
        if let Some(parent) = &self.parent {
            let mut inner = parent.inner.lock();
            inner.children_running += 1;
            inner.ctx.get_or_insert_with(|| ctx.clone());
        } else if let Some(queue) = &self.queue {
            queue.note_running(self);
        }
        Ok(())
    }

    fn aborted(&self) -> bool {
        self.inner.lock().abort
    }

    /// The operation is done.
    fn complete(self: &Arc<Event>, error: i32) {
        let mut inner = self.inner.lock();
        inner.operating = false;
        if inner.error == 0 {
            inner.error = error;
        }
        let waits = inner.children_running > 0;
        drop(inner);
        if !waits {
            self.finish_soon();
        }
    }

    /// Finishes now, or after the callbacks, which need the context's lock to be free.
    fn finish_soon(self: &Arc<Event>) {
        let inner = self.inner.lock();
        let ctx = inner.ctx.clone();
        let has_callbacks = !inner.callbacks.is_empty();
        drop(inner);
        match ctx {
            Some(ctx) if has_callbacks => ctx.afterwards(self.clone()),
            _ => self.finish(),
        }
    }

    fn call_back(self: &Arc<Event>) {
        let (callbacks, error) = {
            let mut inner = self.inner.lock();
            (std::mem::take(&mut inner.callbacks), inner.error)
        };
        self.user.with(|user| user.ev_error = error);
        for (callback, argument) in callbacks {
            // SAFETY: C registered it for this event, with this argument.
            let told = unsafe { callback(argument as *mut libc::c_void, self.user.0, error) };
            let mut inner = self.inner.lock();
            if inner.error == 0 {
                inner.error = told;
            }
        }
        self.finish();
    }

    fn finish(self: &Arc<Event>) {
        let mut inner = self.inner.lock();
        inner.state = EventState::Completed;
        let error = inner.error;
        inner.ctx = None;
        self.user.with(|user| user.ev_error = error);
        if self.parent.is_none()
            && let Some(queue) = &self.queue
        {
            // Still under the lock: who finds it completed finds it in the queue.
            queue.note_done(self);
        }
        drop(inner);
        if let Some(parent) = &self.parent {
            parent.child_done(error);
        }
    }

    fn child_done(self: &Arc<Event>, error: i32) {
        let mut inner = self.inner.lock();
        inner.children_running -= 1;
        if inner.error == 0 {
            inner.error = error;
        }
        let last = inner.children_running == 0;
        let done = last && inner.state == EventState::Running && !inner.operating;
        drop(inner);
        if done {
            self.finish_soon();
        }
    }

    /// The result was seen: the event may be used again.
    fn take(&self) -> *mut UserEvent {
        let mut inner = self.inner.lock();
        if inner.state == EventState::Completed {
            inner.state = EventState::Ready;
        }
        for child in inner.children.clone() {
            if let Ok(child) = handle::get::<Event>(child) {
                child.take();
            }
        }
        self.user.0
    }
}

/// True for an event that was initialized once.
fn is_marked(user: *const UserEvent) -> bool {
    // SAFETY: the API demands an event, finalized or not.
    unsafe { guard::get(user) }.is_ok_and(|event| event.ev_private.space[0] == MARK)
}

impl guard::User<UserEvent> {
    fn with(self, change: impl FnOnce(&mut UserEvent)) {
        // SAFETY: an initialized event stays where it is until it is finalized, and only one
        // thread completes it.
        change(unsafe { &mut *self.0 });
    }
}

/// Callbacks run when the context's lock is free: they may use the API.
impl Afterwards for Event {
    fn run(self: Arc<Self>) {
        self.call_back();
    }
}

/// Runs an operation: to its end in this thread's context when `user` is NULL, else in the
/// background, its result going to the event. The error told at once is the launch's.
///
/// `op` makes the operation's future; it is called inside the context and must not wait.
#[track_caller]
pub fn launch<O, F>(user: *mut UserEvent, sign: Sign, op: O) -> i32
where
    O: FnOnce(Rc<Local>) -> F + 'static,
    F: Future<Output = Result<()>> + 'static,
{
    let place = Location::caller();
    guard::number(sign, || {
        if user.is_null() {
            let ctx = Ctx::of_thread()?;
            let held = ctx.lock();
            let local = held.local().clone();
            let result = local.client.block_on(op(local.clone()));
            drop(local);
            return result;
        }
        let event = Event::of(user)?;
        let ctx = match &event.queue {
            Some(queue) => queue.ctx.clone(),
            // Children run in one context, so that testing their parent moves all of them on.
            None => {
                match event.parent.as_ref().and_then(|parent| parent.inner.lock().ctx.clone()) {
                    Some(ctx) => ctx,
                    None => Ctx::of_thread()?,
                }
            }
        };
        if !ctx.is_current() {
            return Err(Error::new(Code::Closed, "the event's queue is of another process"));
        }
        event.begin(&ctx)?;
        let held = ctx.lock();
        let local = held.local().clone();
        let env = local.client.env().clone();
        env.spawn(async move {
            if event.aborted() {
                let canceled = match sign {
                    Sign::Der => -DER_CANCELED,
                    Sign::Errno => libc::ECANCELED,
                };
                return event.complete(canceled);
            }
            let run = AssertUnwindSafe(async move { op(local).await });
            let result = run.catch_unwind().await;
            let error = match result {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => guard::told_at(place, sign, &error),
                Err(panic) => guard::told_at(place, sign, &guard::panicked(&*panic)),
            };
            event.complete(error);
        });
        // The request goes out now, not when somebody polls.
        env.turn(Some(Duration::ZERO));
        drop(env);
        Ok(())
    })
}

/// Completes an event at once with a result, or returns it when there is no event: for functions
/// that ask nobody.
#[track_caller]
pub fn settle(
    user: *mut UserEvent,
    sign: Sign,
    body: impl FnOnce() -> Result<()> + 'static,
) -> i32 {
    if user.is_null() {
        return guard::number(sign, body);
    }
    launch(user, sign, move |_| async move { body() })
}

/// Tells of an error that was found before anything began: by the event if there is one, whose
/// launch has then succeeded, as in DAOS.
#[track_caller]
pub fn fail(user: *mut UserEvent, sign: Sign, error: Error) -> i32 {
    settle(user, sign, move || Err(error))
}

/// A wait of C's in microseconds: negative for ever.
pub fn wait_of(timeout_us: i64) -> Option<Duration> {
    u64::try_from(timeout_us).ok().map(Duration::from_micros)
}
