//! [`Env`]: what code above the seam is given instead of a clock, a runtime and a disk.

use crate::disk::Disk;
use crate::disk_real::RealDisk;
use crate::real::Real;
use crate::sim::SimNode;
use crate::source::{BellWatch, FdWatch, Interest, Source};
use crate::timer::{Sleep, Timers};
use std::any::TypeId;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::{Code, Error, Result};

#[derive(Clone)]
enum Kind {
    Real(Rc<Real>),
    Sim(Rc<SimNode>),
}

/// The environment of one thread: executor, clock, randomness, disk. Clones are the same one.
///
/// Tasks usually hold a clone, so an `Env` with tasks lives until [`Env::clear`].
#[derive(Clone)]
pub struct Env(Kind);

impl Env {
    /// The real one, for this thread. Fails when the kernel gives no descriptors.
    pub fn real() -> Result<Env> {
        Ok(Env(Kind::Real(Rc::new(Real::new()?))))
    }

    pub(crate) fn sim(node: Rc<SimNode>) -> Env {
        Env(Kind::Sim(node))
    }

    /// The node of a simulated world that this is, if it is one.
    pub fn sim_node(&self) -> Option<&SimNode> {
        match &self.0 {
            Kind::Real(_) => None,
            Kind::Sim(node) => Some(node),
        }
    }

    fn timers(&self) -> &Rc<Timers> {
        match &self.0 {
            Kind::Real(real) => &real.timers,
            Kind::Sim(node) => node.world().timers(),
        }
    }

    /// Monotonic time since some moment before this was made; the same for all environments of a process.
    pub fn now(&self) -> Duration {
        match &self.0 {
            Kind::Real(real) => real.now(),
            Kind::Sim(node) => node.now(),
        }
    }

    /// Time since some moment, by a clock that all threads and processes of the machine share and that goes on while it sleeps: what one
    /// promises another for a time is counted on it.
    pub fn boot_now(&self) -> Duration {
        match &self.0 {
            Kind::Real(_) => crate::real::boot_now(),
            Kind::Sim(node) => node.now(),
        }
    }

    /// Nanoseconds since 1970.
    pub fn wall_ns(&self) -> u64 {
        match &self.0 {
            Kind::Real(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64),
            Kind::Sim(node) => node.wall_ns(),
        }
    }

    /// Seconds since 1970 as of the kernel's last tick: not as exact as [`Env::wall_ns`], and a fraction of its cost.
    pub fn wall_s(&self) -> u64 {
        match &self.0 {
            Kind::Real(_) => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
                u64::try_from(now.tv_sec).unwrap_or(0)
            }
            Kind::Sim(node) => node.wall_ns() / 1_000_000_000,
        }
    }

    /// Random bytes that nobody can foresee, whatever was seen of others; in a simulated world they come from its seed.
    /// `Io` when the kernel gives none.
    pub fn nonce(&self) -> Result<[u8; 32]> {
        match &self.0 {
            Kind::Real(_) => crate::real::os_random(),
            Kind::Sim(node) => {
                let words: [[u8; 8]; 4] = std::array::from_fn(|_| node.random_u64().to_le_bytes());
                Ok(std::array::from_fn(|at| words[at / 8][at % 8]))
            }
        }
    }

    /// A random word; not for secrets.
    pub fn random_u64(&self) -> u64 {
        match &self.0 {
            Kind::Real(real) => real.rng.next_u64(),
            Kind::Sim(node) => node.random_u64(),
        }
    }

    /// Runs a future beside the others. It starts with the next round of the loop.
    pub fn spawn(&self, fut: impl Future<Output = ()> + 'static) {
        match &self.0 {
            Kind::Real(real) => real.exec.spawn(0, Box::pin(fut)),
            Kind::Sim(node) => node.spawn(Box::pin(fut)),
        }
    }

    /// Number of spawned futures that have not ended.
    pub fn task_count(&self) -> usize {
        match &self.0 {
            Kind::Real(real) => real.exec.task_count(),
            Kind::Sim(node) => node.world().exec().task_count(),
        }
    }

    /// Ready after `d`; dropping it cancels it.
    pub fn sleep(&self, d: Duration) -> Sleep {
        let at = match &self.0 {
            Kind::Real(real) => real.now().saturating_add(d),
            Kind::Sim(node) => node.after(d),
        };
        Sleep::new(self.timers().clone(), at)
    }

    /// The output of `fut`, or `None` (and `fut` dropped) when it takes longer than `d`. No timer
    /// is set when `fut` is ready at once.
    pub async fn timeout<F: Future>(&self, d: Duration, fut: F) -> Option<F::Output> {
        let mut fut = pin!(fut);
        let mut sleep: Option<Sleep> = None;
        std::future::poll_fn(move |cx| {
            if let Poll::Ready(output) = fut.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            let sleep = sleep.get_or_insert_with(|| self.sleep(d));
            Pin::new(sleep).poll(cx).map(|()| None)
        })
        .await
    }

    /// Lets other tasks run first.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|cx| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Drives `fut`, and everything spawned, until `fut` is ready. Sleeps when there is nothing
    /// to do. Panics when called from inside a task of the same `Env`. In a simulated world it
    /// panics when nothing can ever happen again.
    pub fn block_on<F: Future>(&self, fut: F) -> F::Output {
        match &self.0 {
            Kind::Real(real) => block_on_real(real, fut),
            Kind::Sim(node) => node.world().block_on(fut),
        }
    }

    /// One round, for event queues: runs ready tasks, polls sources, fires timers. When there
    /// was nothing to do, blocks for at most `wait` (`None`: without limit) until there is, and
    /// then does one more round. True if anything happened.
    pub fn turn(&self, wait: Option<Duration>) -> bool {
        match &self.0 {
            Kind::Real(real) => {
                let _entered = real.exec.enter();
                real.round()
                    || (real.wait(wait) && {
                        real.round();
                        true
                    })
            }
            Kind::Sim(node) => node.world().turn(wait),
        }
    }

    /// Adds polled I/O to the run loop. `NotSupported` in a simulated world, where all I/O is
    /// made of timers.
    pub fn add_source(&self, source: Rc<dyn Source>) -> Result<()> {
        self.real_only("polled sources")?.add_source(source)
    }

    /// Removes polled I/O; no effect when it is not there.
    pub fn remove_source(&self, source: &Rc<dyn Source>) {
        if let Kind::Real(real) = &self.0 {
            real.remove_source(source);
        }
    }

    /// Tracks the readiness of a nonblocking descriptor. `NotSupported` in a simulated world.
    pub fn watch_fd(&self, fd: Rc<OwnedFd>) -> Result<FdWatch> {
        FdWatch::new(self.real_only("file descriptors")?.clone(), fd, Interest::Both)
    }

    /// Has a descriptor end this thread's sleeps by becoming readable, as long as the answer
    /// lives. The work that it announces is found by a polled source, so nobody reads it empty:
    /// each write is an event. `NotSupported` in a simulated world.
    pub fn watch_bell(&self, bell: OwnedFd) -> Result<BellWatch> {
        BellWatch::new(self.real_only("file descriptors")?.clone(), bell)
    }

    /// Tracks when a nonblocking descriptor can be read that is one of several for the same
    /// thing, each watched by a thread of its own (`/dev/fuse`): an event wakes one thread that
    /// sleeps instead of all. Level-triggered: as long as there is something, each look at
    /// descriptors says so, and nobody needs to read until there is nothing.
    /// `NotSupported` in a simulated world.
    pub fn watch_shared_fd(&self, fd: Rc<OwnedFd>) -> Result<FdWatch> {
        FdWatch::new(self.real_only("file descriptors")?.clone(), fd, Interest::SharedRead)
    }

    fn real_only(&self, what: &str) -> Result<&Rc<Real>> {
        match &self.0 {
            Kind::Real(real) => Ok(real),
            Kind::Sim(_) => {
                Err(Error::new(Code::NotSupported, format!("a simulated world has no {what}")))
            }
        }
    }

    /// The one value of type `T` of this thread's `Env`, made when first asked for. For layers
    /// above that share something per thread, such as a doorbell. `NotSupported` in a simulated
    /// world; see [`crate::SimWorld::extension`].
    pub fn extension<T: 'static>(&self, make: impl FnOnce() -> Result<T>) -> Result<Rc<T>> {
        let real = self.real_only("threads")?;
        let found = real.extensions.borrow().get(&TypeId::of::<T>()).cloned();
        if let Some(found) = found.and_then(|any| any.downcast().ok()) {
            return Ok(found);
        }
        let made = Rc::new(make()?);
        real.extensions.borrow_mut().insert(TypeId::of::<T>(), made.clone());
        Ok(made)
    }

    /// The disk. The first call on a thread sets up io_uring.
    pub fn disk(&self) -> Rc<dyn Disk> {
        match &self.0 {
            Kind::Real(real) => {
                if let Some(disk) = &*real.disk.borrow() {
                    return disk.clone();
                }
                let mut disk = RealDisk::new();
                if let Some(ring) = &disk.ring
                    && let Err(error) = real.add_source(ring.clone())
                {
                    tracing::warn!("io_uring cannot be watched, using blocking disk I/O: {error}");
                    disk.ring = None;
                }
                let disk = Rc::new(disk);
                real.disk.replace(Some(disk.clone()));
                disk
            }
            Kind::Sim(node) => Rc::new(node.disk().clone()),
        }
    }

    /// Drops all tasks and, on a real `Env`, all sources: breaks the cycles through which tasks
    /// keep their `Env` alive. Call it when a thread is done.
    pub fn clear(&self) {
        match &self.0 {
            Kind::Real(real) => real.clear(),
            Kind::Sim(node) => node.drop_tasks(),
        }
    }
}

fn block_on_real<F: Future>(real: &Real, fut: F) -> F::Output {
    let mut fut = pin!(fut);
    let _entered = real.exec.enter();
    real.exec.wake_main();
    loop {
        if real.exec.main_woken() {
            let mut cx = Context::from_waker(real.exec.main_waker());
            let held = real.hold();
            let polled = fut.as_mut().poll(&mut cx);
            drop(held);
            if let Poll::Ready(output) = polled {
                return output;
            }
        }
        if !real.round() && !real.exec.main_is_woken() {
            real.wait(None);
        }
    }
}

/// What tells this host from others: the kernel's boot id. Empty when it cannot be read.
pub fn host_identity() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_string())
        .unwrap_or_default()
}

/// Where a socket is, for others: the host, and the directory by what the kernel knows it as. Namespaces of one kernel, as those of containers, have other
/// directories by the same path.
pub fn socket_place(socket: &Path) -> String {
    match directory_of(socket) {
        Some(directory) => format!("{}/{directory}", host_identity()),
        None => host_identity(),
    }
}

/// The host of a [`socket_place`].
pub fn host_of(place: &str) -> &str {
    place.split_once('/').map_or(place, |(host, _)| host)
}

/// True when a socket that is at `place` is the one by this path, for who is on `host` (or at a place there).
pub fn is_here(place: &str, host: &str, socket: &Path) -> bool {
    let is_same = |directory| directory_of(socket).is_some_and(|here| here == directory);
    host_of(place) == host_of(host)
        && place.split_once('/').is_none_or(|(_, directory)| is_same(directory))
}

fn directory_of(socket: &Path) -> Option<String> {
    let found = rustix::fs::stat(socket.parent()?).ok()?;
    Some(format!("{:x}:{:x}", found.st_dev, found.st_ino))
}

/// Whose process this is: the effective user id.
pub fn user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Containers of one machine have their sockets at one path, in directories of their own: who asked another one's engine got its own answer, and the engine that had died was never missed.
    #[test]
    fn a_path_is_the_one_that_was_meant_where_its_directory_is() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [socket, elsewhere] = [&one, &other].map(|dir| dir.path().join("engine.sock"));
        let (host, place) = (host_identity(), socket_place(&socket));
        assert_eq!(host_of(&place), host);
        assert_eq!(host_of(&host), host);
        for own in [&host, &place, &socket_place(&elsewhere)] {
            assert!(is_here(&place, own, &socket));
            assert!(!is_here(&place, own, &elsewhere));
            // What engines said before.
            assert!(is_here(&host, own, &elsewhere));
        }
        assert!(!is_here(&place, "another", &socket));
        assert!(!is_here("another", &host, &socket));
        drop(one);
        assert!(!is_here(&place, &host, &socket));
    }
}
