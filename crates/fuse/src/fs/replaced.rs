//! Files that are replaced faster than a path is looked up and opened.
//!
//! The kernel opens in two steps: it looks a name up, and then opens the node it was told. A node that lost its name in between is `ESTALE`, and the
//! kernel looks the path up again by itself, once. Where it is replaced again meanwhile the program would see that error, which no local file system
//! gives. So a node that could not be opened for it is noted, and the same program's next looks at that name hold what they find, as long as it takes to
//! open it.
//!
//! Invariants:
//! - A note is good for [`LOOKS`] looks by the thread that it was made for.
//! - What is held is given back after [`HOLD`], whatever the kernel does with it. It is held for one `open` of that thread: for all others the file is what it is, replaced or not.

use super::fault::{Answer, Fault};
use super::table::Inode;
use super::worker::Worker;
use dfs::{Obj, OpenFlags, Stat, Unnamed};
use fuselow::Request;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use types::{Code, Key};

/// How long a file is held for who looked it up; and how long a note is good: the kernel looks again at once, and opens at once.
const HOLD: Duration = Duration::from_millis(200);
/// Looks that a note is good for: the kernel looks whether the name leads where it did, and, as it does not, again where it leads.
const LOOKS: u8 = 2;
/// Notes of all threads; the oldest go first.
const NOTES_MAX: usize = 64;
/// How often what was found is looked up again because it was replaced before it was held.
const TRIES: u32 = 16;

/// In place of the number of a directory or file: objects are counted from 1.
const NOWHERE: u64 = 0;

struct Note {
    /// The thread that was told to look again.
    pid: u32,
    dir: u64,
    name: Key,
    noted_ns: u64,
    looks_left: u8,
}

/// Names that lead to something else each time they are opened.
#[derive(Default)]
pub struct Replaced {
    /// Notes there are: what most look-ups look at.
    count: AtomicUsize,
    notes: Mutex<VecDeque<Note>>,
    /// Objects that are held, and for whom.
    holds: Mutex<Vec<(u32, u64)>>,
    hold_count: AtomicUsize,
}

impl Replaced {
    fn note(&self, note: Note) {
        let mut notes = self.notes.lock();
        if notes.len() == NOTES_MAX {
            notes.pop_front();
        }
        notes.push_back(note);
        self.count.store(notes.len(), Ordering::Relaxed);
    }

    fn add_hold(&self, hold: (u32, u64)) {
        let mut holds = self.holds.lock();
        holds.push(hold);
        self.hold_count.store(holds.len(), Ordering::Relaxed);
    }

    /// Ends a hold; true when it was there.
    fn end_hold(&self, hold: (u32, u64)) -> bool {
        if self.hold_count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut holds = self.holds.lock();
        let before = holds.len();
        // The kernel may have looked twice.
        holds.retain(|known| *known != hold);
        self.hold_count.store(holds.len(), Ordering::Relaxed);
        holds.len() < before
    }

    fn has_hold(&self, hold: (u32, u64)) -> bool {
        self.hold_count.load(Ordering::Relaxed) > 0 && self.holds.lock().contains(&hold)
    }

    /// True when `pid` looks a path up again, whatever that led to before ([`Worker::note_sent`]). It is said of each name on the way.
    fn is_sent(&self, pid: u32, now_ns: u64) -> bool {
        let is_new = |note: &Note| now_ns.saturating_sub(note.noted_ns) < HOLD.as_nanos() as u64;
        self.count.load(Ordering::Relaxed) > 0
            && self
                .notes
                .lock()
                .iter()
                .any(|note| (note.pid, note.dir) == (pid, NOWHERE) && is_new(note))
    }

    /// True when `pid` could not open what it had found by this name a moment ago.
    fn take(&self, pid: u32, dir: u64, name: &[u8], now_ns: u64) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut notes = self.notes.lock();
        notes.retain(|note| now_ns.saturating_sub(note.noted_ns) < HOLD.as_nanos() as u64);
        let found = notes
            .iter_mut()
            .find(|note| (note.pid, note.dir, &note.name[..]) == (pid, dir, name))
            .map(|note| note.looks_left -= 1)
            .is_some();
        notes.retain(|note| note.looks_left > 0);
        self.count.store(notes.len(), Ordering::Relaxed);
        found
    }
}

impl Worker {
    /// Notes that what a program opens has lost its name since it was looked up.
    pub(super) fn note_replaced(&self, req: &Request, obj: &Obj) {
        let (dir, name, noted_ns) = (obj.parent_oid().lo, obj.name(), self.now_ns());
        let note = Note { pid: req.pid(), dir, name, noted_ns, looks_left: LOOKS };
        self.volume.replaced.note(note);
    }

    /// True when the caller's last `open` of this name failed for that, or he was sent to look it up ([`Worker::note_sent`]).
    pub(super) fn was_replaced(&self, req: &Request, dir: u64, name: &[u8]) -> bool {
        let (replaced, now_ns) = (&self.volume.replaced, self.now_ns());
        replaced.take(req.pid(), dir, name, now_ns) || replaced.is_sent(req.pid(), now_ns)
    }

    /// Notes that a program is to look up once more what it opens, for others have changed it.
    pub(super) fn note_renewed(&self, req: &Request, inode: &Inode) {
        let (dir, name, noted_ns) = (inode.number(), Key::new(b""), self.now_ns());
        let note = Note { pid: req.pid(), dir, name, noted_ns, looks_left: 1 };
        self.volume.replaced.note(note);
    }

    /// Notes that a program is sent to look a path up, whatever that leads to: the kernel may know names of what it found that are others' now.
    pub(super) fn note_sent(&self, req: &Request) {
        let (dir, name, noted_ns) = (NOWHERE, Key::new(b""), self.now_ns());
        let note = Note { pid: req.pid(), dir, name, noted_ns, looks_left: 1 };
        self.volume.replaced.note(note);
    }

    /// True when the caller was: what it opens now is where the path led a moment ago.
    pub(super) fn was_sent(&self, req: &Request) -> bool {
        self.volume.replaced.take(req.pid(), NOWHERE, b"", self.now_ns())
    }

    /// True when the caller has just looked a file up once more, by whatever node: what was changed since then was changed while it is being opened.
    pub(super) fn was_renewed(&self, req: &Request, inode: &Inode) -> bool {
        self.volume.replaced.take(req.pid(), inode.number(), b"", self.now_ns())
    }

    /// Finds a name, and holds the file that it leads to for a while, whether or not it keeps its name. With no other way to be had in time what
    /// was found last is not held.
    pub(super) async fn lookup_held(
        self: &Rc<Self>,
        req: &Request,
        dir: &Obj,
        name: &[u8],
    ) -> Answer<(Obj, Stat)> {
        let mut tries = 0;
        loop {
            let (obj, stat) = self.dfs_for(req).lookup_stat(dir, name).await?;
            if stat.kind() != dfs::FileKind::Regular {
                return Ok((obj, stat));
            }
            tries += 1;
            match self.dfs.open_obj(&obj, OpenFlags::READ, Unnamed::Refused).await {
                Ok((held, stat)) => {
                    self.hold(req, held);
                    return Ok((obj, stat));
                }
                Err(error) if error.code == Code::NonExist && tries < TRIES => {}
                Err(error) if error.code == Code::NonExist => return Ok((obj, stat)),
                Err(error) => return Err(Fault::Error(error)),
            }
        }
    }

    /// Has a file open for [`HOLD`], for the caller's next `open`.
    fn hold(self: &Rc<Self>, req: &Request, held: Obj) {
        let hold = (req.pid(), held.oid().lo);
        self.volume.replaced.add_hold(hold);
        let worker = self.clone();
        self.env().spawn(async move {
            worker.env().sleep(HOLD).await;
            worker.volume.replaced.end_hold(hold);
            drop(held);
            worker.client().flush();
        });
    }

    /// True when a file is held for the caller, who opens it now.
    pub(super) fn take_hold(&self, req: &Request, inode: &Inode) -> bool {
        self.volume.replaced.end_hold((req.pid(), inode.number()))
    }

    /// The same while he only looks at it.
    pub(super) fn has_hold(&self, req: &Request, inode: &Inode) -> bool {
        self.volume.replaced.has_hold((req.pid(), inode.number()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(pid: u32, name: &[u8], noted_ns: u64) -> Note {
        Note { pid, dir: 7, name: Key::new(name), noted_ns, looks_left: LOOKS }
    }

    #[test]
    fn a_note_is_taken_by_whom_it_was_made_for() {
        let replaced = Replaced::default();
        assert!(!replaced.take(1, 7, b"a", 0));
        replaced.note(note(1, b"a", 10));
        assert!(!replaced.take(2, 7, b"a", 20), "another thread");
        assert!(!replaced.take(1, 8, b"a", 20), "another directory");
        assert!(!replaced.take(1, 7, b"b", 20), "another name");
        for _ in 0..LOOKS {
            assert!(replaced.take(1, 7, b"a", 20));
        }
        assert!(!replaced.take(1, 7, b"a", 20));
    }

    #[test]
    fn a_hold_is_for_one_open() {
        let replaced = Replaced::default();
        assert!(!replaced.has_hold((1, 7)) && !replaced.end_hold((1, 7)));
        replaced.add_hold((1, 7));
        assert!(!replaced.has_hold((2, 7)) && !replaced.has_hold((1, 8)));
        assert!(replaced.has_hold((1, 7)));
        assert!(replaced.end_hold((1, 7)));
        assert!(!replaced.has_hold((1, 7)) && !replaced.end_hold((1, 7)));
    }

    #[test]
    fn notes_end_and_are_few() {
        let replaced = Replaced::default();
        replaced.note(note(1, b"a", 10));
        assert!(!replaced.take(1, 7, b"a", 10 + HOLD.as_nanos() as u64));
        assert_eq!(replaced.count.load(Ordering::Relaxed), 0);
        for pid in 0..=NOTES_MAX as u32 {
            replaced.note(note(pid, b"a", 10));
        }
        assert!(!replaced.take(0, 7, b"a", 20), "the oldest is gone");
        assert!(replaced.take(NOTES_MAX as u32, 7, b"a", 20));
    }
}
