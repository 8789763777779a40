//! A disk that moves no more than so many bytes a second: one that others use, too, or that stands for a slower one.
//!
//! Reads and writes take their turn on one clock, as on a device that does one thing at a time; what was not used of a second is not
//! saved up for the next.

use env::{AlignedBuf, DirEntry, Disk, Env, File, Lock, OpenOptions, Room};
use futures_util::future::{FutureExt, LocalBoxFuture};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::Result;

/// When the device is done with all that it was given.
struct Pace {
    env: Env,
    bytes_per_s: u64,
    busy_until: Cell<Duration>,
}

impl Pace {
    /// Ends when the device has moved so many bytes more.
    async fn moved(self: Rc<Self>, bytes: usize) {
        let ns = bytes as u128 * 1_000_000_000 / self.bytes_per_s as u128;
        let took = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let until = self.busy_until.get().max(self.env.now()).saturating_add(took);
        self.busy_until.set(until);
        self.env.sleep(until.saturating_sub(self.env.now())).await;
    }
}

struct Paced {
    below: Rc<dyn Disk>,
    pace: Rc<Pace>,
}

/// The disk, with `bytes_per_s` as the most that it moves.
pub(crate) fn at_most(env: &Env, below: Rc<dyn Disk>, bytes_per_s: u64) -> Rc<dyn Disk> {
    let busy_until = Cell::new(Duration::ZERO);
    let pace = Pace { env: env.clone(), bytes_per_s: bytes_per_s.max(1), busy_until };
    Rc::new(Paced { below, pace: Rc::new(pace) })
}

struct PacedFile {
    below: Rc<dyn File>,
    pace: Rc<Pace>,
}

impl Disk for Paced {
    fn open(
        &self,
        path: &Path,
        options: OpenOptions,
    ) -> LocalBoxFuture<'static, Result<Rc<dyn File>>> {
        let (opened, pace) = (self.below.open(path, options), self.pace.clone());
        async move { Ok(Rc::new(PacedFile { below: opened.await?, pace }) as Rc<dyn File>) }
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

impl File for PacedFile {
    fn read_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<usize>)> {
        let (turn, read) = (self.pace.clone().moved(buf.len()), self.below.read_at(offset, buf));
        async move {
            turn.await;
            read.await
        }
        .boxed_local()
    }

    fn write_at(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, Result<()>)> {
        let (turn, write) = (self.pace.clone().moved(buf.len()), self.below.write_at(offset, buf));
        async move {
            turn.await;
            write.await
        }
        .boxed_local()
    }

    fn sync(&self) -> LocalBoxFuture<'static, Result<()>> {
        self.below.sync()
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
    use env::SimWorld;
    use futures_util::future::join_all;

    #[test]
    fn bytes_take_their_time_and_arrive() {
        let world = SimWorld::new(1);
        let env = world.node("n");
        world.block_on(async {
            let disk = at_most(&env, env.disk(), 1 << 20);
            let options = OpenOptions { create: true, ..OpenOptions::default() };
            let file = disk.open(Path::new("/f"), options).await.unwrap();
            let begun = env.now();
            let mut data = AlignedBuf::zeroed(64 << 10);
            data.fill(7);
            // Four at once take as long as four one after the other.
            let all = (0..4).map(|at| file.write_at(at * (64 << 10), AlignedBuf::copy_of(&data)));
            for (_, result) in join_all(all).await {
                result.unwrap();
            }
            let took = env.now() - begun;
            assert!(
                took >= Duration::from_millis(250) && took < Duration::from_millis(260),
                "{took:?}"
            );
            let begun = env.now();
            let (got, result) = file.read_at(64 << 10, AlignedBuf::zeroed(128 << 10)).await;
            assert_eq!(result.unwrap(), 128 << 10);
            assert!(got.iter().all(|byte| *byte == 7));
            assert!(env.now() - begun >= Duration::from_millis(125));
            // A pause is not saved up.
            env.sleep(Duration::from_secs(10)).await;
            let begun = env.now();
            file.write_at(0, AlignedBuf::zeroed(64 << 10)).await.1.unwrap();
            assert!(env.now() - begun >= Duration::from_millis(62));
        });
    }
}
