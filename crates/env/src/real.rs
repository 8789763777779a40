//! The real run loop: ready tasks, polled sources, timers, epoll.
//!
//! What it does when there is nothing to do is decided in [`crate::idle`]. Never an unbounded
//! spin: that would starve others.

use crate::exec::Exec;
use crate::idle::{FDS_EVERY, Found, Idle, Spin};
use crate::rng::Rng;
use crate::source::{Interest, Readiness, Source};
use crate::timer::Timers;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use types::{Error, Result};

/// A busy loop looks at file descriptors once in this many rounds.
const ROUNDS_PER_EPOLL: u32 = 32;
/// Waits that one descriptor must have ended in a row before it is expected to end the next.
const EXPECTED_AFTER: u32 = 8;
/// Events taken from epoll at once.
const EVENT_COUNT_MAX: usize = 64;
/// Epoll key of doorbells and of sources: there is nothing to look up.
const KEY_NONE: u64 = u64::MAX;

/// Where the clock of all threads begins.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// One thread's run loop.
pub(crate) struct Real {
    pub exec: Exec,
    pub timers: Rc<Timers>,
    pub rng: Rng,
    epoch: Instant,
    epoll: OwnedFd,
    sources: RefCell<Rc<[Rc<dyn Source>]>>,
    watches: RefCell<Vec<Option<Rc<Readiness>>>>,
    free_watches: RefCell<Vec<usize>>,
    watch_count: Cell<usize>,
    /// The descriptor that became readable last, and alone, and how often in a row.
    expected: Cell<(usize, u32)>,
    idle: Idle,
    rounds: Cell<u32>,
    /// When file descriptors were last looked at without waiting.
    fds_seen: Cell<Duration>,
    /// The wait that has just ended has seen that no timer is due.
    no_timer_is_due: Cell<bool>,
    /// Things of layers above, by type.
    pub extensions: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    /// io_uring of this thread, made on first use.
    pub disk: RefCell<Option<Rc<crate::disk_real::RealDisk>>>,
}

/// Held while futures run; see [`Source::hold`].
pub(crate) struct Held<'a>(&'a Real);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.sources.borrow().iter().for_each(|source| source.release());
    }
}

/// What the machine's clock shows that goes on while it sleeps.
pub(crate) fn boot_now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl Real {
    pub fn new() -> Result<Real> {
        let doing = "setting up the run loop";
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map(crate::keep)
            .map_err(|error| Error::io(doing, error.into()))?;
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(crate::keep)
            .map_err(|error| Error::io(doing, error.into()))?;
        epoll::add(
            &epoll,
            &doorbell,
            epoll::EventData::new_u64(KEY_NONE),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )
        .map_err(|error| Error::io(doing, error.into()))?;
        Ok(Real {
            exec: Exec::new(Some(doorbell)),
            timers: Rc::default(),
            rng: Rng::new(u64::from_ne_bytes(os_random()?)),
            epoch: *EPOCH,
            epoll,
            sources: RefCell::new(Rc::new([])),
            watches: RefCell::default(),
            free_watches: RefCell::default(),
            watch_count: Cell::new(0),
            expected: Cell::new((0, 0)),
            idle: Idle::new(),
            rounds: Cell::new(0),
            fds_seen: Cell::new(Duration::ZERO),
            no_timer_is_due: Cell::new(false),
            extensions: RefCell::default(),
            disk: RefCell::new(None),
        })
    }

    pub fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    pub fn add_source(&self, source: Rc<dyn Source>) -> Result<()> {
        if let Some(fd) = source.fd() {
            // SAFETY: the source keeps its descriptor open as long as it lives, and we hold it.
            self.add_wake(unsafe { BorrowedFd::borrow_raw(fd) })?;
        }
        let mut all = self.sources.borrow().to_vec();
        all.push(source);
        self.sources.replace(all.into());
        Ok(())
    }

    pub fn remove_source(&self, source: &Rc<dyn Source>) {
        let mut all = self.sources.borrow().to_vec();
        let Some(at) = all.iter().position(|other| Rc::ptr_eq(other, source)) else { return };
        all.remove(at);
        self.sources.replace(all.into());
        if let Some(fd) = source.fd() {
            // SAFETY: the caller holds the source, which keeps its descriptor open.
            self.remove_wake(unsafe { BorrowedFd::borrow_raw(fd) });
        }
    }

    /// Has `fd` end sleeps by becoming readable, each time anew.
    pub fn add_wake(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let events = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(KEY_NONE), events)
            .map_err(|error| Error::io("watching a doorbell", error.into()))
    }

    pub fn remove_wake(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Starts tracking `fd`; returns the slot for [`Real::unwatch`].
    pub fn watch(&self, fd: RawFd, readiness: Rc<Readiness>, interest: Interest) -> Result<usize> {
        let mut watches = self.watches.borrow_mut();
        let slot = self.free_watches.borrow_mut().pop().unwrap_or_else(|| {
            watches.push(None);
            watches.len() - 1
        });
        use epoll::EventFlags as Flags;
        let added = epoll::add(
            &self.epoll,
            // SAFETY: `FdWatch` holds the descriptor open until it calls `unwatch`.
            unsafe { BorrowedFd::borrow_raw(fd) },
            epoll::EventData::new_u64(slot as u64),
            match interest {
                Interest::Both => Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET,
                Interest::SharedRead => Flags::IN | Flags::EXCLUSIVE,
            },
        );
        if let Err(error) = added {
            self.free_watches.borrow_mut().push(slot);
            return Err(Error::io("watching a descriptor", error.into()));
        }
        watches[slot] = Some(readiness);
        self.watch_count.set(self.watch_count.get() + 1);
        Ok(slot)
    }

    pub fn unwatch(&self, fd: RawFd, slot: usize) {
        // SAFETY: `FdWatch` holds the descriptor open while it calls this.
        let _ = epoll::delete(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) });
        self.watches.borrow_mut()[slot] = None;
        if self.expected.get().0 == slot {
            self.expected.set((0, 0));
        }
        self.free_watches.borrow_mut().push(slot);
        self.watch_count.set(self.watch_count.get() - 1);
    }

    /// Runs ready tasks, polls sources, fires timers, once; true if anything happened.
    pub fn round(&self) -> bool {
        let held = self.hold();
        let mut progress = self.exec.run_ready(|_| {});
        drop(held);
        progress |= self.poll_sources().is_some();
        progress |= self.fire_timers();
        let rounds = self.rounds.get() + 1;
        self.rounds.set(rounds);
        let watches = self.watch_count.get() > 0 || self.disk.borrow().is_some();
        if rounds >= ROUNDS_PER_EPOLL && watches {
            progress |= self.poll_fds(Some(Duration::ZERO));
        }
        progress
    }

    /// Futures are about to run; they have when the answer is dropped, by a panic too.
    pub fn hold(&self) -> Held<'_> {
        self.sources.borrow().iter().for_each(|source| source.hold());
        Held(self)
    }

    /// Work of another thread counts before that of a device.
    fn poll_sources(&self) -> Option<Found> {
        let sources = self.sources.borrow().clone();
        let mut found = None;
        for source in sources.iter() {
            if source.poll() {
                match source.is_device() {
                    true => _ = found.get_or_insert(Found::Device),
                    false => found = Some(Found::Source),
                }
            }
        }
        found
    }

    /// A look at the clock costs as much as many an operation's part in a round: not right after one.
    fn fire_timers(&self) -> bool {
        let is_just_seen = self.no_timer_is_due.replace(false);
        !is_just_seen && !self.timers.is_empty() && self.timers.fire(self.now())
    }

    /// Nothing is ready: spins a little, then sleeps until something happens, at most `limit`.
    /// True if something was found.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        if limit == Some(Duration::ZERO) {
            return self.look();
        }
        let start = Instant::now();
        let budget = self.idle.budget();
        let spins = !budget.is_zero() && self.can_be_looked_at();
        if spins
            && let Some(found) = self.spin(start, limit.map_or(budget, |limit| budget.min(limit)))
        {
            self.idle.waited(Duration::ZERO, Some(found));
            return true;
        }
        let spun = start.elapsed();
        let (found, slept) = self.sleep(limit.map(|limit| limit.saturating_sub(spun)));
        let idle = start.elapsed();
        if slept && spins {
            self.idle.slept_after_spin(idle - spun, found);
        }
        self.idle.waited(idle, found);
        found.is_some()
    }

    /// Work can be found without sleeping.
    fn can_be_looked_at(&self) -> bool {
        self.watch_count.get() > 0 || !self.sources.borrow().is_empty()
    }

    /// Looks at file descriptors, but not in each round of a thread that polls in a loop, unless
    /// work comes from there: the sources were looked at already, and a system call would cost
    /// more than all the rest. Such a thread also lets others run now and then: the peer may be
    /// waiting for this very core.
    fn look(&self) -> bool {
        if self.sources.borrow().is_empty() {
            return self.poll_fds(Some(Duration::ZERO));
        }
        let now = self.now();
        let since = now - self.fds_seen.get();
        if since < FDS_EVERY {
            let found = self.idle.descriptors_are_hot()
                && self.probe().unwrap_or_else(|| self.poll_fds(Some(Duration::ZERO)));
            if found {
                self.idle.looked_at_fds(true);
            }
            return found;
        }
        self.fds_seen.set(now);
        let found = self.poll_fds(Some(Duration::ZERO));
        self.idle.looked_at_fds(found);
        if found || since > 2 * FDS_EVERY {
            return found;
        }
        rustix::thread::sched_yield();
        self.poll_sources().is_some() || self.exec.has_work()
    }

    /// Yields and looks until there is work, or for as long as `budget`.
    fn spin(&self, start: Instant, budget: Duration) -> Option<Found> {
        let begun = start.saturating_duration_since(self.epoch);
        let due = self.timers.next().map(|deadline| deadline.saturating_sub(begun));
        let mut spin = Spin::new(&self.idle, budget);
        loop {
            let mut goes_on = true;
            let mut now = start.elapsed();
            if spin.yields() {
                let before = now;
                rustix::thread::sched_yield();
                now = start.elapsed();
                goes_on = spin.yielded(now - before);
            }
            let timer_is_due = due.is_some_and(|due| due <= now);
            let found = self.look_everywhere(|is_hot| spin.looks_at_fds(now, is_hot), timer_is_due);
            self.no_timer_is_due.set(found.is_some() && !timer_is_due);
            if goes_on && found.is_some_and(|found| found != Found::Timer) {
                self.idle.spun_well();
            }
            if found.is_some() || !goes_on || spin.is_over(now) {
                return found;
            }
        }
    }

    fn look_everywhere(
        &self,
        looks_at_fds: impl FnOnce(bool) -> bool,
        timer_is_due: bool,
    ) -> Option<Found> {
        let found = self.poll_sources();
        if found.is_some() {
            return found;
        }
        if self.exec.has_work() {
            return Some(Found::Task);
        }
        if self.watch_count.get() > 0 {
            let is_hot = self.idle.descriptors_are_hot();
            let probed = if is_hot { self.probe() } else { None };
            let found = probed == Some(true)
                || looks_at_fds(is_hot && probed.is_none()) && self.poll_fds(Some(Duration::ZERO));
            if found {
                return Some(Found::Descriptor);
            }
        }
        timer_is_due.then_some(Found::Timer)
    }

    /// Tries to read what is expected next; `None` when nothing is.
    fn probe(&self) -> Option<bool> {
        let (slot, times) = self.expected.get();
        if times < EXPECTED_AFTER {
            return None;
        }
        let readiness = self.watches.borrow().get(slot)?.clone()?;
        let probe = readiness.probe.borrow().clone()?;
        probe()
    }

    /// Learns which descriptor became readable.
    fn expect(&self, slot: usize) {
        let (before, times) = self.expected.get();
        let times = if before == slot { times.saturating_add(1) } else { 1 };
        self.expected.set((slot, times));
    }

    /// Sleeps until there is work, at most `limit`: what there is, and whether it slept indeed.
    fn sleep(&self, limit: Option<Duration>) -> (Option<Found>, bool) {
        let sources = self.sources.borrow().clone();
        let mut raced = None;
        let mut armed_count = 0;
        for source in sources.iter() {
            armed_count += 1;
            if source.arm() {
                raced = Some(if source.is_device() { Found::Device } else { Found::Source });
                break;
            }
        }
        let (mut slept, mut ready) = (false, false);
        if raced.is_none() && self.exec.prepare_sleep() {
            let timer = self.timers.next().map(|deadline| deadline.saturating_sub(self.now()));
            let wait = match (limit, timer) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            slept = true;
            ready = self.poll_fds(wait);
        }
        for source in &sources[..armed_count] {
            source.disarm();
        }
        // All of them are served; the first that holds is what the wait ended with.
        let by_source = self.poll_sources().or(raced);
        let timer_fired = self.fire_timers();
        let found = ready
            .then_some(Found::Descriptor)
            .or(by_source)
            .or(timer_fired.then_some(Found::Timer))
            .or(self.exec.has_work().then_some(Found::Task));
        (found, slept)
    }

    /// Takes events from epoll, waiting at most `wait`.
    fn poll_fds(&self, wait: Option<Duration>) -> bool {
        self.rounds.set(0);
        // To clear it each time would cost as much as the rest of an empty look does on our side.
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENT_COUNT_MAX];
        let timeout = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs().min(i64::MAX as u64 / 2) as i64,
            tv_nsec: wait.subsec_nanos() as _,
        });
        // An error is a signal: look again after whatever the signal asked for is done.
        let events = match epoll::wait(&self.epoll, &mut room[..], timeout.as_ref()) {
            Ok((events, _)) => &*events,
            Err(_) => &[],
        };
        // Awake before tasks are woken, or they would ring for us.
        self.exec.woke();
        let mut found = false;
        for event in events {
            let key = event.data.u64();
            if key == KEY_NONE {
                continue;
            }
            let readiness = self.watches.borrow().get(key as usize).cloned().flatten();
            if let Some(readiness) = readiness {
                use epoll::EventFlags as Flags;
                let flags = { event.flags };
                let both = flags.intersects(Flags::HUP | Flags::ERR);
                if flags.contains(Flags::IN) {
                    self.expect(key as usize);
                }
                readiness.post(
                    both || flags.intersects(Flags::IN | Flags::RDHUP),
                    both || flags.contains(Flags::OUT),
                    both || flags.contains(Flags::RDHUP),
                );
                found = true;
            }
        }
        found
    }

    /// Drops all tasks, sources and the disk.
    pub fn clear(&self) {
        self.exec.drop_tasks(None);
        let sources = self.sources.borrow().clone();
        for source in sources.iter() {
            self.remove_source(source);
        }
        self.disk.replace(None);
        let extensions = self.extensions.take();
        drop(extensions);
    }
}

/// Random bytes of the kernel's. At most 256: so many come in one go.
pub(crate) fn os_random<const N: usize>() -> Result<[u8; N]> {
    const { assert!(N <= 256) };
    let mut raw = [0u8; N];
    // SAFETY: the buffer is valid for its length.
    let count = unsafe { libc::getrandom(raw.as_mut_ptr().cast(), raw.len(), 0) };
    if count != raw.len() as isize {
        return Err(Error::io(
            "asking the kernel for random bytes",
            std::io::Error::last_os_error(),
        ));
    }
    Ok(raw)
}
