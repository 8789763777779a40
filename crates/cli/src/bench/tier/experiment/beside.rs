//! Work beside which a mover copies, gives up and brings back other files, one after the other and without a pause, as patiently as that of an agent does. And the same
//! work beside somebody who does nothing but have the store do as much: what a mover costs itself is the difference.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tier::in_background;

/// Numbers of the files that are moved; those of the work are smaller.
const MOVED: std::ops::Range<u32> = 1000..1004;
/// How soon somebody who waits sees that the work is over.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// What a store had to do while some work went on.
#[derive(Clone, Copy, Default)]
pub(super) struct Load {
    put_bytes: u64,
    got_bytes: u64,
    seconds: f64,
}

impl Load {
    pub(super) fn bytes(&self) -> u64 {
        self.put_bytes + self.got_bytes
    }
}

/// The same while it is counted.
#[derive(Default)]
struct Counts {
    put_bytes: AtomicU64,
    got_bytes: AtomicU64,
}

fn add(count: &AtomicU64, bytes: u64) {
    count.fetch_add(bytes, Ordering::Relaxed);
}

/// Runs `other` in a thread of its own while `work` goes on, and has it end with that; returns what the store had to do until then.
fn beside(
    work: impl FnOnce() -> Result<Done>,
    other: impl FnOnce(&Counts, &AtomicBool) -> Result<()> + Send,
) -> Result<(Done, Load)> {
    let (counts, is_over) = (Counts::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| other(&counts, &is_over));
        let begun = Instant::now();
        let worked = work();
        // What is done after that was done beside nobody.
        let load = Load {
            put_bytes: counts.put_bytes.load(Ordering::Relaxed),
            got_bytes: counts.got_bytes.load(Ordering::Relaxed),
            seconds: begun.elapsed().as_secs_f64(),
        };
        is_over.store(true, Ordering::Relaxed);
        let panicked = |_| Error::new(Code::Io, "who was to be worked beside panicked");
        other.join().map_err(panicked)??;
        Ok((worked?, load))
    })
}

impl Bench<'_> {
    /// Does some work while other files are moved; returns what that returns.
    pub(super) fn beside_moves(&self, work: impl FnOnce() -> Result<Done>) -> Result<(Done, Load)> {
        let (place, store, tier) = (&self.place, self.store.patient(), &self.tier);
        let per_file = self.fill_others()?;
        let outcome = beside(work, |counts, is_over| {
            place.keep_moving(&store, tier, per_file, counts, is_over)
        });
        self.remove_others()?;
        outcome
    }

    /// Does some work while the store has as much to do, spread over the time.
    pub(super) fn beside_store(
        &self,
        load: Load,
        work: impl FnOnce() -> Result<Done>,
    ) -> Result<(Done, Load)> {
        let store = self.store.patient();
        // What was written right before has its price, too.
        self.fill_others()?;
        let outcome = beside(work, |counts, is_over| keep_storing(&store, load, counts, is_over));
        self.remove_others()?;
        outcome
    }

    /// Writes the files that are moved; returns how many bytes each of them has.
    fn fill_others(&self) -> Result<u64> {
        let per_file = (self.bytes / MOVED.len() as u64).max(BLOCK);
        let fill = Case {
            kind: Kind::WriteAsync,
            block: BLOCK,
            threads: 1,
            depth: 4,
            lasts: Duration::ZERO,
            time: None,
        };
        self.place.move_some(fill, MOVED, per_file, true, &Barrier::new(1))?;
        Ok(per_file)
    }

    fn remove_others(&self) -> Result<()> {
        for number in MOVED {
            let path = self.place.path(number);
            self.remote.wait(&path, self.remote.sys.unlink(&path))?;
        }
        Ok(())
    }
}

impl Place<'_> {
    /// Moves files until the work is over.
    fn keep_moving(
        &self,
        store: &Store,
        tier: &str,
        per_file: u64,
        counts: &Counts,
        is_over: &AtomicBool,
    ) -> Result<()> {
        tier::give_way();
        let remote = Remote::open(self.session, self.url, OpenMode::ReadWrite)?;
        let fs = remote.dfs();
        let (put, got) =
            (|bytes| add(&counts.put_bytes, bytes), |bytes| add(&counts.got_bytes, bytes));
        for number in MOVED.cycle() {
            let (path, part_bytes) = (self.path(number), store.part_bytes());
            let moved = in_background(async {
                let flags = OpenFlags::READ_WRITE;
                let file = remote.sys.open(&path, flags, 0o600, &CreateOptions::default()).await?;
                // A byte of each part changes, so that all are sent.
                for at in (0..per_file).step_by(part_bytes as usize) {
                    fs.write(&file, at, &[1]).await?;
                }
                tier::sync_file(fs, &file, store, tier, &put).await?;
                if !is_over.load(Ordering::Relaxed) {
                    tier::evict_file(fs, &file, store, tier, &got).await?;
                }
                if !is_over.load(Ordering::Relaxed) {
                    fs.tier_fetch(&file, &got).await?;
                }
                Ok(())
            });
            remote.wait(&path, moved)?;
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }
}

/// Puts and gets objects until the work is over, as many bytes a second as were put and got before, one after the other.
fn keep_storing(store: &Store, load: Load, counts: &Counts, is_over: &AtomicBool) -> Result<()> {
    tier::give_way();
    if load.put_bytes == 0 {
        return Ok(());
    }
    let part = noise(store.part_bytes() as usize);
    let step_bytes = part.len() as u64;
    let pause = Duration::from_secs_f64(load.seconds * step_bytes as f64 / load.bytes() as f64);
    let key = format!("test/beside-{}", std::process::id());
    let (mut put_bytes, mut got_bytes) = (0, 0);
    let mut next = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        if Instant::now() < next {
            std::thread::sleep(LOOK_PAUSE);
            continue;
        }
        next += pause;
        let share = |bytes: u64, of: u64| bytes as f64 / of.max(1) as f64;
        // What lags behind; there is something to get after the first was put.
        if put_bytes == 0 || share(put_bytes, load.put_bytes) <= share(got_bytes, load.got_bytes) {
            tier::wait(store.put(key.clone(), part.clone()))??;
            put_bytes += step_bytes;
            add(&counts.put_bytes, step_bytes);
        } else {
            got_bytes += tier::wait(store.get(&key))??.len() as u64;
            add(&counts.got_bytes, step_bytes);
        }
    }
    tier::wait(store.delete(&key))?
}
