//! Work beside which a mover copies, gives up and brings back other files, one after the other and without a pause, as patiently as that of an agent does.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use tier::in_background;

/// Numbers of the files that are moved; those of the work are smaller.
const MOVED: std::ops::Range<u32> = 1000..1004;

impl Bench<'_> {
    /// Does some work meanwhile; returns what that returns, and how many bytes were moved.
    pub(super) fn beside_moves(&self, work: impl FnOnce() -> Result<Done>) -> Result<(Done, u64)> {
        let per_file = (self.bytes / MOVED.len() as u64).max(BLOCK);
        let fill = Case {
            kind: Kind::WriteAsync,
            block: BLOCK,
            threads: 1,
            depth: 4,
            rounds: 1,
            time: None,
        };
        let begin = Barrier::new(1);
        self.place.move_some(fill, MOVED, per_file, true, &begin)?;
        let is_over = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            let (place, store, tier) = (&self.place, self.store.patient(), &self.tier);
            let is_over = &is_over;
            let mover = scope.spawn(move || place.keep_moving(&store, tier, per_file, is_over));
            let worked = work();
            is_over.store(true, Ordering::Relaxed);
            let panicked = |_| Error::new(Code::Io, "the mover of the measurement panicked");
            let moved = mover.join().map_err(panicked)?;
            Ok((worked?, moved?))
        });
        for number in MOVED {
            let path = self.place.path(number);
            self.remote.wait(&path, self.remote.sys.unlink(&path))?;
        }
        outcome
    }
}

impl Place<'_> {
    /// Moves files until the work is over; returns how many bytes that were.
    fn keep_moving(
        &self,
        store: &Store,
        tier: &str,
        per_file: u64,
        is_over: &AtomicBool,
    ) -> Result<u64> {
        tier::give_way();
        let remote = Remote::open(self.session, self.url, OpenMode::ReadWrite)?;
        let fs = remote.dfs();
        let mut moved = 0;
        for number in MOVED.cycle() {
            let (path, part_bytes) = (self.path(number), store.part_bytes());
            let file = self.open(&remote, number, OpenFlags::READ_WRITE)?;
            // A byte of each part changes, so that all are sent.
            for at in (0..per_file).step_by(part_bytes as usize) {
                remote.wait(&path, in_background(fs.write(&file, at, &[1])))?;
            }
            let sync = tier::sync_file(fs, &file, store, tier, &|_| {});
            moved += remote.wait(&path, in_background(sync))?.sent_bytes;
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let evict = tier::evict_file(fs, &file, store, &|_| {});
            moved += remote.wait(&path, in_background(evict))?.evicted_bytes;
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            moved += remote.wait(&path, in_background(fs.tier_fetch(&file, &|_| {})))?;
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(moved)
    }
}
