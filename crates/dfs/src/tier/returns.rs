//! What has come from a copy and is on its way back into the pool.
//!
//! Readers have their bytes as soon as these are there and compared; putting them back goes on behind them, by one task for each
//! file, so that the file's time of modification is looked at and kept by nobody else of this mount meanwhile.
//!
//! Invariants:
//! - Bytes from here are compared with a stub that was found after they were asked for: what was written since is never hidden by them.
//! - Whoever is to put pieces back and ends, however that comes, takes them out of here and wakes those who wait. What was not put back is
//!   in the tier as before.
//! - Memory is bounded: a reader beyond [`BYTES_MAX`] waits until its own piece is back.

use super::{CopyPiece, TierRecord};
use crate::share::SharedObj;
use futures_channel::oneshot;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::Oid;

/// Bytes on their way back beyond which readers wait: as much as is fetched ahead unless somebody says otherwise.
const BYTES_MAX: u64 = 64 << 20;
/// Records remembered.
const RECORDS_MAX: usize = 1024;

/// Pieces of copies that a mount puts back. Threads that serve one mount share it.
#[derive(Clone, Default)]
pub struct Returns(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    pieces: Vec<Coming>,
    bytes: u64,
    /// Number of the next piece.
    next: u64,
    /// Files whose pieces somebody puts back; and what ends that one's pause.
    running: HashMap<Oid, (SharedObj, Option<oneshot::Sender<()>>)>,
    waiters: Vec<Waiter>,
    /// What files' records said last. Whoever uses one that is older than the copy is told so by the bytes.
    records: HashMap<Oid, Arc<TierRecord>>,
}

struct Coming {
    oid: Oid,
    number: u64,
    /// Reads that found it here.
    used: u64,
    piece: CopyPiece,
}

/// Waits for the pieces of a file that came before a number.
struct Waiter {
    oid: Oid,
    before: u64,
    done: oneshot::Sender<()>,
}

/// Ready, with or without a value, when what it was made for is back or given up.
pub(crate) type Done = oneshot::Receiver<()>;

/// What there is to do after a piece was added.
#[derive(Default)]
pub(crate) struct Added {
    /// Nobody puts the file's pieces back yet: the caller does.
    pub run: Option<Run>,
    /// There is more than there should be: to be waited for before more is asked for.
    pub wait: Option<Done>,
}

impl Returns {
    /// A piece that has all of a range of a file.
    pub(crate) fn find(&self, oid: Oid, range: &Range<u64>) -> Option<CopyPiece> {
        let pieces = &mut self.lock().pieces;
        let found = pieces.iter_mut().find(|one| one.oid == oid && one.piece.covers(range))?;
        found.used += 1;
        Some(found.piece.clone())
    }

    /// Takes a piece of a file to put it back, if none that is here has it already.
    pub(crate) fn add(&self, file: SharedObj, piece: CopyPiece) -> Added {
        let mut state = self.lock();
        let oid = file.oid();
        if state.pieces.iter().any(|one| one.oid == oid && one.piece.covers(&piece.range())) {
            return Added::default();
        }
        let number = state.next;
        state.next += 1;
        state.bytes += piece.bytes.len() as u64;
        state.pieces.push(Coming { oid, number, used: 0, piece });
        let is_new = !state.running.contains_key(&oid);
        if is_new {
            state.running.insert(oid, (file, None));
        }
        let wait = (state.bytes > BYTES_MAX).then(|| state.wait(oid));
        let returns = self.clone();
        let run = is_new.then(|| Run { returns, oid, taken: 0, looked_at: None, is_over: false });
        Added { run, wait }
    }

    /// The file's pieces that are on their way back now: ready when they are. `None` when there are none; else also how the file is known.
    pub(crate) fn pending(&self, oid: Oid) -> Option<(SharedObj, Done)> {
        let mut state = self.lock();
        let (file, _) = state.running.get(&oid)?;
        let file = file.clone();
        Some((file, state.wait(oid)))
    }

    pub(crate) fn record(&self, oid: Oid) -> Option<Arc<TierRecord>> {
        self.lock().records.get(&oid).cloned()
    }

    pub(crate) fn keep_record(&self, record: &Arc<TierRecord>) {
        let records = &mut self.lock().records;
        if records.len() >= RECORDS_MAX {
            records.clear();
        }
        records.insert(record.oid, record.clone());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait(&mut self, oid: Oid) -> Done {
        let (done, wait) = oneshot::channel();
        self.waiters.push(Waiter { oid, before: self.next, done });
        if let Some(nudge) = self.running.get_mut(&oid).and_then(|(_, nudge)| nudge.take()) {
            // Who does not pause any more has no need to know.
            let _ = nudge.send(());
        }
        wait
    }

    /// Forgets pieces of a file before a number, and wakes those who waited for them.
    fn remove(&mut self, oid: Oid, before: u64) {
        let mut removed = 0;
        self.pieces.retain(|one| {
            let stays = one.oid != oid || one.number >= before;
            removed += if stays { 0 } else { one.piece.bytes.len() as u64 };
            stays
        });
        self.bytes -= removed;
        let (pieces, waiters) = (&self.pieces, &mut self.waiters);
        let is_ready = |waiter: &mut Waiter| {
            let mut left = pieces.iter().filter(|one| one.oid == waiter.oid);
            left.all(|one| one.number >= waiter.before)
        };
        for waiter in waiters.extract_if(.., is_ready) {
            // Who does not wait any more has no need to know.
            let _ = waiter.done.send(());
        }
    }
}

/// Held by who puts a file's pieces back.
pub(crate) struct Run {
    returns: Returns,
    oid: Oid,
    /// Pieces before this number were taken.
    taken: u64,
    /// The newest piece, and how often it had been used when it was looked at.
    looked_at: Option<(u64, u64)>,
    /// There was nothing left to take.
    is_over: bool,
}

/// What there is to do next.
pub(crate) enum Next {
    /// To put these back; those before are done with.
    Pieces(Vec<CopyPiece>),
    /// To wait for this, or for a while.
    Pause(Done),
    /// Nothing: the next piece is for somebody else.
    Over,
}

impl Run {
    /// Says that the pieces that were taken before are done with, and asks for more. The newest one stays while it is read and nobody waits: whoever reads the next chunk of it
    /// would wait for the pool.
    pub fn next(&mut self) -> Next {
        let mut state = self.returns.lock();
        state.remove(self.oid, self.taken);
        let mine: Vec<&Coming> = state.pieces.iter().filter(|one| one.oid == self.oid).collect();
        let Some(newest) = mine.last() else {
            self.is_over = true;
            state.running.remove(&self.oid);
            return Next::Over;
        };
        let now = Some((newest.number, newest.used));
        let is_read = self.looked_at != now && !state.waiters.iter().any(|one| one.oid == self.oid);
        let taken = if is_read { newest.number } else { state.next };
        let mine = mine.iter().filter(|one| one.number < taken);
        let pieces: Vec<CopyPiece> = mine.map(|one| one.piece.clone()).collect();
        self.looked_at = now;
        if pieces.is_empty() {
            let (nudge, wait) = oneshot::channel();
            if let Some((_, nudged)) = state.running.get_mut(&self.oid) {
                *nudged = Some(nudge);
            }
            return Next::Pause(wait);
        }
        self.taken = taken;
        Next::Pieces(pieces)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.returns.lock();
        state.running.remove(&self.oid);
        state.remove(self.oid, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::OpenFlags;
    use crate::inode::{Inode, S_IFREG};
    use crate::node::Location;
    use futures_util::FutureExt;
    use types::{Epoch, Key};

    fn file(number: u64) -> SharedObj {
        let oid = Oid { hi: 1, lo: number };
        let inode = Inode {
            oid,
            hard: false,
            has_xattrs: true,
            quiet: false,
            mode: S_IFREG | 0o600,
            uid: 0,
            gid: 0,
            nlink: 1,
            chunk_bytes: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            mtime_epoch: Epoch::ZERO,
            rdev: 0,
            file_class: None,
            dir_class: None,
        };
        let location = Location { parent: oid, name: Key::new(b"f") };
        SharedObj::new(location, inode, OpenFlags::READ)
    }

    fn piece(from: u64, bytes: usize) -> CopyPiece {
        CopyPiece::new(from, Arc::new(vec![1; bytes]))
    }

    /// Where the pieces begin that are to be put back.
    fn taken(run: &mut Run) -> Vec<u64> {
        match run.next() {
            Next::Pieces(pieces) => pieces.iter().map(|piece| piece.from).collect(),
            Next::Pause(_) | Next::Over => Vec::new(),
        }
    }

    /// True when what was waited for is over; false while it is not.
    fn is_done(wait: &mut Done) -> bool {
        wait.now_or_never().is_some()
    }

    #[test]
    fn one_puts_a_files_pieces_back_and_those_who_wait_learn_when() {
        let returns = Returns::default();
        let oid = file(1).oid();
        assert!(returns.pending(oid).is_none());
        let mut run = returns.add(file(1), piece(0, 10)).run.unwrap();
        assert!(returns.add(file(1), piece(10, 10)).run.is_none(), "one for each file");
        assert!(returns.add(file(1), piece(12, 3)).run.is_none());
        let mut other = returns.add(file(2), piece(0, 10)).run.unwrap();
        assert!(returns.find(oid, &(5..10)).is_some() && returns.find(oid, &(5..11)).is_none());
        let (_, mut early) = returns.pending(oid).unwrap();
        // What is here already is not taken once more.
        assert_eq!(taken(&mut run), [0, 10]);
        returns.add(file(1), piece(20, 10));
        let (_, mut late) = returns.pending(oid).unwrap();
        assert!(!is_done(&mut early));
        assert_eq!(taken(&mut run), [20]);
        assert!(is_done(&mut early) && !is_done(&mut late));
        assert!(returns.find(oid, &(5..10)).is_none());
        assert!(matches!(run.next(), Next::Over) && is_done(&mut late));
        assert!(returns.pending(oid).is_none());
        // The end of one is not the end of the next.
        let next = returns.add(file(1), piece(0, 10)).run.unwrap();
        drop(run);
        assert!(returns.pending(oid).is_some());
        drop(next);
        assert!(returns.pending(oid).is_none() && returns.find(oid, &(0..10)).is_none());
        // Nobody reads it.
        assert!(matches!(other.next(), Next::Pause(_)));
        assert_eq!(taken(&mut other), [0]);
        assert!(matches!(other.next(), Next::Over));
        assert_eq!(returns.lock().bytes, 0);
    }

    #[test]
    fn the_newest_piece_stays_while_it_is_read_and_nobody_waits() {
        let returns = Returns::default();
        let oid = file(1).oid();
        let mut run = returns.add(file(1), piece(0, 10)).run.unwrap();
        returns.add(file(1), piece(10, 10));
        assert_eq!(taken(&mut run), [0]);
        for at in 10..13 {
            returns.find(oid, &(at..at + 1)).unwrap();
            assert!(matches!(run.next(), Next::Pause(_)), "byte {at} was read");
        }
        let Next::Pause(mut pause) = ({
            returns.find(oid, &(13..14)).unwrap();
            run.next()
        }) else {
            panic!("it is read still")
        };
        assert!(!is_done(&mut pause));
        let (_, mut wait) = returns.pending(oid).unwrap();
        assert!(is_done(&mut pause), "somebody waits");
        returns.find(oid, &(14..15)).unwrap();
        assert_eq!(taken(&mut run), [10]);
        assert!(matches!(run.next(), Next::Over) && is_done(&mut wait));
    }

    #[test]
    fn beyond_the_limit_readers_wait_for_their_own_piece() {
        let returns = Returns::default();
        let most = BYTES_MAX as usize;
        let first = returns.add(file(1), piece(0, most));
        assert!(first.wait.is_none());
        let second = returns.add(file(2), piece(0, 1));
        let mut wait = second.wait.unwrap();
        drop(first.run);
        assert!(!is_done(&mut wait));
        // Whoever should have put it back has died.
        drop(second.run);
        assert!(is_done(&mut wait));
        assert!(returns.add(file(2), piece(0, 1)).wait.is_none());
    }
}
