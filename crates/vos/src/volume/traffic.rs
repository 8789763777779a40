//! What the devices of a target do for those that use it: bytes moved by large transfers, and how long that kept them busy.
//!
//! That tells a device that has become slow without any traffic of its own for it. Small transfers do not count: their rates say
//! little about a device.

use crate::volume::paced::Pace;
use env::{AlignedBuf, DirEntry, Disk, Env, File, Lock, OpenOptions, Room};
use futures_util::future::{FutureExt, LocalBoxFuture};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::Result;

/// Transfers from this size on are large, bytes.
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// What was done since the store was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Moved by large transfers, bytes.
    pub bytes: u64,
    /// While at least one of these, or what makes them durable, was under way.
    pub busy: Duration,
}

/// Counts traffic.
pub(crate) struct Meter {
    env: Env,
    done: Cell<Traffic>,
    under_way: Cell<u32>,
    /// Since when something is.
    since: Cell<Duration>,
}

impl Meter {
    pub(crate) fn new(env: &Env) -> Rc<Meter> {
        let (done, under_way, since) = Default::default();
        Rc::new(Meter { env: env.clone(), done, under_way, since })
    }

    /// Up to now.
    pub(crate) fn traffic(&self) -> Traffic {
        let done = self.done.get();
        match self.under_way.get() {
            0 => done,
            _ => Traffic { busy: done.busy + self.passed(), ..done },
        }
    }

    fn passed(&self) -> Duration {
        self.env.now().saturating_sub(self.since.get())
    }

    /// A transfer has begun; for a large one what to keep until it is over.
    fn begin(self: &Rc<Self>, bytes: usize) -> Option<UnderWay> {
        (bytes >= LARGE_BYTES).then(|| self.enter(bytes))
    }

    fn enter(self: &Rc<Self>, bytes: usize) -> UnderWay {
        if self.under_way.replace(self.under_way.get() + 1) == 0 {
            self.since.set(self.env.now());
        }
        UnderWay { meter: self.clone(), bytes }
    }
}

/// A large transfer; it is over when this is dropped.
struct UnderWay {
    meter: Rc<Meter>,
    bytes: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let (meter, mut done) = (&self.meter, self.meter.done.get());
        done.bytes += self.bytes as u64;
        meter.under_way.set(meter.under_way.get() - 1);
        if meter.under_way.get() == 0 {
            done.busy += meter.passed();
        }
        meter.done.set(done);
    }
}

struct Metered {
    below: Rc<dyn Disk>,
    meter: Rc<Meter>,
    pace: Option<Rc<Pace>>,
}

/// The disk, with what it does counted, and held to a pace if there is one.
pub(crate) fn metered(
    below: Rc<dyn Disk>,
    meter: &Rc<Meter>,
    pace: Option<Rc<Pace>>,
) -> Rc<dyn Disk> {
    Rc::new(Metered { below, meter: meter.clone(), pace })
}

struct MeteredFile {
    below: Rc<dyn File>,
    meter: Rc<Meter>,
    pace: Option<Rc<Pace>>,
    /// Large writes came since it was made durable last.
    is_owed: Cell<bool>,
}

impl MeteredFile {
    /// Ends when the pace lets so many bytes pass; `None`: at once.
    fn turn(&self, bytes: usize) -> Option<impl Future<Output = ()> + 'static> {
        self.pace.clone().map(|pace| pace.moved(bytes))
    }
}

impl Disk for Metered {
    fn open(
        &self,
        path: &Path,
        options: OpenOptions,
    ) -> LocalBoxFuture<'static, Result<Rc<dyn File>>> {
        let (opened, meter) = (self.below.open(path, options), self.meter.clone());
        let pace = self.pace.clone();
        async move {
            let (below, is_owed) = (opened.await?, Cell::new(false));
            Ok(Rc::new(MeteredFile { below, meter, pace, is_owed }) as Rc<dyn File>)
        }
        .boxed_local()
    }

    fn create_dir(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        self.below.create_dir(path)
    }

    fn list(&self, path: &Path) -> LocalBoxFuture<'static, Result<Vec<DirEntry>>> {
        self.below.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> LocalBoxFuture<'static, Result<()>> {
        self.below.rename(from, to)
    }

    fn remove(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        self.below.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> LocalBoxFuture<'static, Result<()>> {
        self.below.sync_dir(path)
    }

    fn room(&self, path: &Path) -> LocalBoxFuture<'static, Result<Room>> {
        self.below.room(path)
    }

    fn lock(&self, path: &Path, note: &str) -> LocalBoxFuture<'static, Result<Box<dyn Lock>>> {
        self.below.lock(path, note)
    }
}

impl File for MeteredFile {
    fn read_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<usize>)> {
        let (under_way, turn) = (self.meter.begin(buf.len()), self.turn(buf.len()));
        let read = self.below.read_at(offset, buf);
        // Nothing is to be waited for or noted.
        if under_way.is_none() && turn.is_none() {
            return read;
        }
        async move {
            if let Some(turn) = turn {
                turn.await;
            }
            let outcome = read.await;
            drop(under_way);
            outcome
        }
        .boxed_local()
    }

    fn write_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<()>)> {
        let (under_way, turn) = (self.meter.begin(buf.len()), self.turn(buf.len()));
        let write = self.below.write_at(offset, buf);
        if under_way.is_none() && turn.is_none() {
            return write;
        }
        if under_way.is_some() {
            self.is_owed.set(true);
        }
        async move {
            if let Some(turn) = turn {
                turn.await;
            }
            let outcome = write.await;
            drop(under_way);
            outcome
        }
        .boxed_local()
    }

    fn sync(&self) -> LocalBoxFuture<'static, Result<()>> {
        let sync = self.below.sync();
        if !self.is_owed.replace(false) {
            return sync;
        }
        let under_way = self.meter.enter(0);
        async move {
            let outcome = sync.await;
            drop(under_way);
            outcome
        }
        .boxed_local()
    }

    fn len(&self) -> Result<u64> {
        self.below.len()
    }

    fn is_device(&self) -> bool {
        self.below.is_device()
    }

    fn is_direct(&self) -> bool {
        self.below.is_direct()
    }

    fn set_len(&self, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        self.below.set_len(bytes)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        self.below.allocate(offset, bytes)
    }

    fn discard(&self, offset: u64, bytes: u64) -> LocalBoxFuture<'static, Result<()>> {
        self.below.discard(offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::{DiskFaults, SimWorld};
    use futures_util::future::join_all;

    #[test]
    fn what_is_large_counts_and_for_as_long_as_it_takes() {
        let world = SimWorld::new(1);
        let env = world.node("n");
        let latency = Duration::from_millis(10);
        let slow =
            DiskFaults { latency_min: latency, latency_max: latency, ..DiskFaults::default() };
        world.disk("n").set_faults(slow);
        world.block_on(async {
            let meter = Meter::new(&env);
            let disk = metered(env.disk(), &meter, None);
            let options = OpenOptions { create: true, ..OpenOptions::default() };
            let file = disk.open(Path::new("/f"), options).await.unwrap();
            file.write_at(0, AlignedBuf::zeroed(4096)).await.1.unwrap();
            file.sync().await.unwrap();
            assert_eq!(meter.traffic(), Traffic::default());
            // Four at once keep it busy no longer than one.
            let all = (0..4).map(|at| file.write_at(at << 16, AlignedBuf::zeroed(1 << 16)));
            let begun = env.now();
            join_all(all).await;
            let (took, now) = (env.now() - begun, meter.traffic());
            assert_eq!((now.bytes, now.busy), (4 << 16, took));
            env.sleep(Duration::from_secs(1)).await;
            assert_eq!(meter.traffic(), now);
            let begun = env.now();
            file.sync().await.unwrap();
            let took = took + (env.now() - begun);
            assert_eq!((meter.traffic().bytes, meter.traffic().busy), (4 << 16, took));
            // One that nobody waits for any more is over.
            drop(file.read_at(0, AlignedBuf::zeroed(1 << 16)));
            assert_eq!(meter.under_way.get(), 0);
        });
    }
}
