//! A simulated world: several nodes, one thread, one virtual clock, one seed.
//!
//! Invariants: nothing in it reads the real clock or randomness, and collections that are
//! iterated are ordered, so equal seeds give equal runs ([`SimWorld::trace_hash`] proves it). Time
//! stands still while tasks are ready, but for a small cost per round (so that a task that only
//! yields does not stop the clock), and jumps to the next timer when none is.

use crate::Env;
use crate::exec::{Exec, Owner};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;
use crate::timer::Timers;
use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use types::hash;

/// Virtual cost of a round of ready tasks.
const ROUND_COST: Duration = Duration::from_nanos(100);
/// Wall clock at the start of every world: 2025-01-01, seconds since 1970.
const WALL_START_S: u64 = 1_735_689_600;

/// Virtual time and timers, shared by all parts of a world.
#[derive(Default)]
pub(crate) struct SimClock {
    pub now: Cell<Duration>,
    pub timers: Rc<Timers>,
}

struct NodeState {
    owner: Owner,
    name: Rc<str>,
    disk: SimDisk,
    rng: Rng,
    dead: Cell<bool>,
    /// Both outlive a kill.
    wall: Rc<WallClock>,
    monotonic: Rc<MonotonicClock>,
}

/// How the wall clock of a node differs from the world's.
#[derive(Default)]
struct WallClock {
    /// How far it was off at `since`, nanoseconds.
    off_ns: Cell<i64>,
    since: Cell<Duration>,
    /// What it has gained since then, millionths.
    gain_ppm: Cell<i64>,
}

impl WallClock {
    fn off_ns(&self, now: Duration) -> i64 {
        let passed_ns = now.saturating_sub(self.since.get()).as_nanos() as i128;
        let gained_ns = passed_ns * i128::from(self.gain_ppm.get()) / 1_000_000;
        self.off_ns.get().saturating_add(gained_ns as i64)
    }

    fn set(&self, now: Duration, off_ns: i64, gain_ppm: i64) {
        self.off_ns.set(off_ns);
        self.since.set(now);
        self.gain_ppm.set(gain_ppm);
    }
}

/// How the monotonic clock of a node runs: not faster or slower than it is told to.
#[derive(Default)]
struct MonotonicClock {
    /// What it showed at `since`.
    shown: Cell<Duration>,
    since: Cell<Duration>,
    /// What it gains on the world's, millionths; above -1,000,000.
    gain_ppm: Cell<i64>,
}

impl MonotonicClock {
    fn now(&self, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.since.get());
        self.shown.get() + scaled(passed, 1_000_000 + self.gain_ppm.get(), 1_000_000)
    }

    /// How long it takes by the world's clock until it has shown `d` more, at least.
    fn taken(&self, d: Duration) -> Duration {
        match self.gain_ppm.get() {
            0 => d,
            gain => scaled(d, 1_000_000, 1_000_000 + gain).saturating_add(Duration::from_nanos(2)),
        }
    }

    fn set(&self, now: Duration, gain_ppm: i64) {
        self.shown.set(self.now(now));
        self.since.set(now);
        self.gain_ppm.set(gain_ppm);
    }
}

/// `d` times `by` over `of`.
fn scaled(d: Duration, by: i64, of: i64) -> Duration {
    let ns = d.as_nanos() as i128 * i128::from(by) / i128::from(of);
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

struct World {
    clock: Rc<SimClock>,
    /// Nanoseconds since 1970 when it began.
    wall_start_ns: u64,
    exec: Exec,
    rng: Rng,
    trace: Cell<u64>,
    nodes: RefCell<BTreeMap<Rc<str>, Rc<NodeState>>>,
    owner_last: Cell<Owner>,
    extensions: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    kill_hooks: RefCell<Vec<KillHook>>,
}

type KillHook = Rc<dyn Fn(&str)>;

/// `AZEKURA_SIM_LATER_S` makes all worlds start so much later: what comes from the time of day is another then, as the numbers of objects and where these lie.
fn wall_start_s() -> u64 {
    let later = std::env::var("AZEKURA_SIM_LATER_S").ok().and_then(|text| text.parse::<u64>().ok());
    WALL_START_S + later.unwrap_or(0)
}

/// A simulated world. Clones are the same one.
#[derive(Clone)]
pub struct SimWorld(Rc<World>);

impl SimWorld {
    /// An empty world; everything random in it comes from the seed.
    pub fn new(seed: u64) -> SimWorld {
        types::map::fix_seed();
        SimWorld(Rc::new(World {
            clock: Rc::default(),
            wall_start_ns: wall_start_s() * 1_000_000_000,
            exec: Exec::new(None),
            rng: Rng::new(hash::mix(seed)),
            trace: Cell::new(hash::mix(seed)),
            nodes: RefCell::default(),
            owner_last: Cell::new(0),
            extensions: RefCell::default(),
            kill_hooks: RefCell::default(),
        }))
    }

    /// The environment of a node, which is made when it is new or was killed. A node keeps its
    /// disk over a kill.
    pub fn node(&self, name: &str) -> Env {
        let mut nodes = self.0.nodes.borrow_mut();
        let old = nodes.get(name);
        let state = match old {
            Some(state) if !state.dead.get() => state.clone(),
            _ => {
                let owner = self.0.owner_last.get() + 1;
                self.0.owner_last.set(owner);
                let (disk, wall, monotonic) = match old {
                    Some(state) => {
                        (state.disk.clone(), state.wall.clone(), state.monotonic.clone())
                    }
                    None => {
                        let seed = self.0.rng.next_u64();
                        let disk = SimDisk::new(self.0.clock.clone(), seed);
                        (disk, Rc::default(), Rc::default())
                    }
                };
                let name: Rc<str> = name.into();
                let rng = Rng::new(self.0.rng.next_u64());
                let state = Rc::new(NodeState {
                    owner,
                    name: name.clone(),
                    disk,
                    rng,
                    dead: Cell::new(false),
                    wall,
                    monotonic,
                });
                nodes.insert(name, state.clone());
                state
            }
        };
        Env::sim(Rc::new(SimNode { world: self.clone(), state }))
    }

    /// Kills a node: its tasks are dropped, its disk loses (or tears) what was not durable.
    /// No effect when there is no such live node.
    pub fn kill(&self, name: &str) {
        let state = self.0.nodes.borrow().get(name).cloned();
        if let Some(state) = state
            && !state.dead.replace(true)
        {
            self.trace(hash::bytes(name.as_bytes()));
            self.0.exec.drop_tasks(Some(state.owner));
            self.0.exec.release(state.owner);
            state.disk.crash();
            let hooks = self.0.kill_hooks.borrow().clone();
            for hook in hooks {
                hook(name);
            }
        }
    }

    /// Calls `hook` with the name of every node that is killed from now on, after its tasks are
    /// gone.
    pub fn on_kill(&self, hook: impl Fn(&str) + 'static) {
        self.0.kill_hooks.borrow_mut().push(Rc::new(hook));
    }

    /// The disk of a node, to set faults on; the node is made if it is new.
    pub fn disk(&self, name: &str) -> SimDisk {
        if let Some(state) = self.0.nodes.borrow().get(name) {
            return state.disk.clone();
        }
        match self.node(name).sim_node() {
            Some(node) => node.disk().clone(),
            None => unreachable!("nodes of a simulated world are simulated"),
        }
    }

    /// A node, if it lives, stands still as a stopped process does: time passes, but none of its tasks runs, until [`SimWorld::resume`]
    /// or a kill. Timers that are over and pieces of data that arrive wait for it; what it has sent goes on.
    pub fn pause(&self, name: &str) {
        if let Some(owner) = self.live_owner(name) {
            self.trace(hash::bytes(name.as_bytes()));
            self.0.exec.hold(owner);
        }
    }

    /// A node that stands still goes on where it was; no effect on others.
    pub fn resume(&self, name: &str) {
        if let Some(owner) = self.live_owner(name) {
            self.0.exec.release(owner);
        }
    }

    fn live_owner(&self, name: &str) -> Option<Owner> {
        let nodes = self.0.nodes.borrow();
        nodes.get(name).filter(|state| !state.dead.get()).map(|state| state.owner)
    }

    /// Moves the wall clock of a node, which is made if it is new, so far from the world's, nanoseconds.
    pub fn set_wall_off(&self, name: &str, off_ns: i64) {
        if let Some(node) = self.node(name).sim_node() {
            let wall = &node.state.wall;
            wall.set(self.now(), off_ns, wall.gain_ppm.get());
        }
    }

    /// From now on the wall clock of a node, which is made if it is new, gains so many millionths on the world's; loses them where they
    /// are negative.
    pub fn set_wall_gain(&self, name: &str, gain_ppm: i64) {
        if let Some(node) = self.node(name).sim_node() {
            let (now, wall) = (self.now(), &node.state.wall);
            wall.set(now, wall.off_ns(now), gain_ppm);
        }
    }

    /// From now on the monotonic clock of a node, which is made if it is new, gains so many millionths on the world's; loses them where they
    /// are negative. What is waited for already is not over sooner or later for it.
    ///
    /// Panics when the clock would stand still or go back: a monotonic one does not.
    pub fn set_monotonic_gain(&self, name: &str, gain_ppm: i64) {
        assert!(gain_ppm > -1_000_000, "a monotonic clock goes on");
        if let Some(node) = self.node(name).sim_node() {
            node.state.monotonic.set(self.now(), gain_ppm);
        }
    }

    /// Virtual time since the world began.
    pub fn now(&self) -> Duration {
        self.0.clock.now.get()
    }

    /// Virtual nanoseconds since 1970.
    pub fn wall_ns(&self) -> u64 {
        self.0.wall_start_ns + self.now().as_nanos() as u64
    }

    /// A random word of the world's own.
    pub fn random_u64(&self) -> u64 {
        self.0.rng.next_u64()
    }

    /// Hash over everything that was scheduled so far: equal for equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.0.trace.get()
    }

    /// Adds an event to the trace.
    pub fn trace(&self, word: u64) {
        self.0.trace.set(hash::mix2(self.0.trace.get(), word));
    }

    /// The world's one value of type `T`, made by `T::default` when first asked for. For layers
    /// above, such as a simulated network.
    pub fn extension<T: Default + 'static>(&self) -> Rc<T> {
        let found = self.0.extensions.borrow().get(&TypeId::of::<T>()).cloned();
        if let Some(found) = found.and_then(|any| any.downcast().ok()) {
            return found;
        }
        let made = Rc::new(T::default());
        self.0.extensions.borrow_mut().insert(TypeId::of::<T>(), made.clone());
        made
    }

    /// Drives `fut` and all nodes until `fut` is ready. Panics when nothing can ever happen
    /// again, which is a deadlock in what is simulated.
    pub fn block_on<F: Future>(&self, fut: F) -> F::Output {
        let mut fut = pin!(fut);
        let _entered = self.0.exec.enter();
        self.0.exec.wake_main();
        loop {
            if self.0.exec.main_woken() {
                let mut cx = Context::from_waker(self.0.exec.main_waker());
                if let Poll::Ready(output) = fut.as_mut().poll(&mut cx) {
                    return output;
                }
            }
            if !self.round() && !self.0.exec.main_is_woken() && !self.jump(None) {
                panic!("simulated deadlock: no task is ready and no timer is set");
            }
        }
    }

    /// Lets the world run for a while.
    pub fn run_for(&self, d: Duration) {
        let end = self.now() + d;
        let _entered = self.0.exec.enter();
        while self.now() < end && (self.round() || self.jump(Some(end))) {}
        self.0.clock.now.set(self.now().max(end));
    }

    /// One round for event queues; see [`Env::turn`].
    pub(crate) fn turn(&self, wait: Option<Duration>) -> bool {
        let _entered = self.0.exec.enter();
        if self.round() {
            return true;
        }
        let end = wait.map(|wait| self.now() + wait);
        if self.jump(end) {
            self.round();
            return true;
        }
        if let Some(end) = end {
            self.0.clock.now.set(end);
        }
        false
    }

    /// Runs what is ready; true if anything was.
    fn round(&self) -> bool {
        let clock = &self.0.clock;
        let ran = self.0.exec.run_ready(|key| {
            self.trace(key ^ hash::mix(clock.now.get().as_nanos() as u64));
        });
        if ran {
            clock.now.set(clock.now.get() + ROUND_COST);
        }
        clock.timers.fire(clock.now.get()) || ran
    }

    /// Moves the clock to the next timer if that is not after `end`; true if one fired.
    fn jump(&self, end: Option<Duration>) -> bool {
        let clock = &self.0.clock;
        let Some(next) = clock.timers.next() else { return false };
        if end.is_some_and(|end| next > end) {
            return false;
        }
        clock.now.set(clock.now.get().max(next));
        clock.timers.fire(clock.now.get())
    }

    pub(crate) fn timers(&self) -> &Rc<Timers> {
        &self.0.clock.timers
    }

    pub(crate) fn exec(&self) -> &Exec {
        &self.0.exec
    }

    /// Drops all tasks of all nodes and everything in the world: breaks the cycles through which
    /// they keep it alive.
    pub fn clear(&self) {
        self.0.exec.drop_tasks(None);
        self.0.kill_hooks.take();
        let extensions = self.0.extensions.take();
        drop(extensions);
    }
}

/// What an [`Env`] of a simulated world stands for.
pub struct SimNode {
    world: SimWorld,
    state: Rc<NodeState>,
}

impl SimNode {
    /// The world it is in.
    pub fn world(&self) -> &SimWorld {
        &self.world
    }

    pub fn name(&self) -> &Rc<str> {
        &self.state.name
    }

    pub fn disk(&self) -> &SimDisk {
        &self.state.disk
    }

    /// It was killed; a node of the same name that was made later is another one.
    pub fn is_dead(&self) -> bool {
        self.state.dead.get()
    }

    /// What its monotonic clock shows.
    pub(crate) fn now(&self) -> Duration {
        self.state.monotonic.now(self.world.now())
    }

    /// When its monotonic clock will have shown `d` more, by the world's.
    pub(crate) fn after(&self, d: Duration) -> Duration {
        self.world.now().saturating_add(self.state.monotonic.taken(d))
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        self.world.wall_ns().saturating_add_signed(self.state.wall.off_ns(self.world.now()))
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.state.rng.next_u64()
    }

    pub(crate) fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) {
        // A dead node starts nothing: it is being torn down.
        if !self.is_dead() {
            self.world.0.exec.spawn(self.state.owner, task);
        }
    }

    pub(crate) fn drop_tasks(&self) {
        self.world.0.exec.drop_tasks(Some(self.state.owner));
    }
}
