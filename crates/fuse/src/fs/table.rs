//! What the kernel knows of, process-wide: node number → object.
//!
//! A node's number is its object's number, which is the inode number programs see; numbers are
//! never used twice in a container, so nodes need no generations. The root is node 1 because its
//! object's number is 1. Only a file that the kernel has to take anew ([`Table::renew`]) gets
//! another one: two nodes, one object.
//!
//! Invariants:
//! - A node is here as long as the kernel holds a lookup of it (the root: always).
//! - A file gets another node only while no program has it open by the one that it had, and none can
//!   open it by that from then on: what the kernel keeps of the old node is never written back.
//! - What was read of a node before a change through this mount began never replaces what is
//!   known since: every change takes a number from one counter ([`Table::tick`]), and a reader
//!   says which number it began at.

use dfs::{SharedObj, Stat};
use foldhash::HashMap;
use futures_channel::oneshot;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use types::Key;

/// Independent parts of the table.
const SHARDS: usize = 64;

/// In [`Version`]: when this mount wrote it; the engines' time of that is not known.
const OWN_TIME: i64 = i64::MIN;

/// Nodes of files that got another one are numbered from here: the catalog counts objects from 1, and numbers that are given out without it have the
/// highest bit.
const RENEWED_FROM: u64 = 1 << 62;

/// The size and the mtime of a file that the kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// Who had an object open at a moment.
#[derive(Clone, Copy)]
pub struct Holders {
    opens: u32,
    closes: u64,
}

impl Holders {
    /// True when somebody had.
    pub fn has_any(self) -> bool {
        self.opens > 0
    }

    /// True when more than one had.
    pub fn has_several(self) -> bool {
        self.opens > 1
    }
}

/// One object the kernel knows.
pub struct Inode {
    number: u64,
    state: Mutex<InodeRecord>,
}

struct InodeRecord {
    shared: SharedObj,
    /// The node that look-ups find.
    node: u64,
    /// Handles that programs have open through this mount.
    opens: u32,
    /// Handles that programs have closed so far.
    closes: u64,
    /// The last change of the object through this mount.
    changed: u64,
    /// The last change of a directory's names through this mount.
    names_changed: u64,
    told: Option<Version>,
    /// Names by which the kernel may still find it, although it was told to ask for them again.
    names_left: u32,
    /// When the object was last asked about, nanoseconds since 1970.
    known_ns: u64,
    /// Open files that are being released, and who waits until none is.
    releases: u32,
    released: Vec<oneshot::Sender<()>>,
    /// Open files with a mark of this round ([`Inode::may_close`]).
    closing: u32,
    closing_round: u64,
    /// Of a directory: its attributes, kept up to date over what this mount does, and when they
    /// were asked for.
    attributes: Option<(Stat, u64)>,
}

impl Inode {
    fn new(shared: SharedObj) -> Inode {
        let number = shared.oid().lo;
        let state = InodeRecord {
            shared,
            node: number,
            opens: 0,
            closes: 0,
            changed: 0,
            names_changed: 0,
            told: None,
            names_left: 0,
            known_ns: 0,
            releases: 0,
            released: Vec::new(),
            closing: 0,
            closing_round: 1,
            attributes: None,
        };
        Inode { number, state: Mutex::new(state) }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The node that look-ups find; the kernel may have others, which it had before.
    pub fn node(&self) -> u64 {
        self.state.lock().node
    }

    /// What is known of the object.
    pub fn shared(&self) -> SharedObj {
        self.state.lock().shared.clone()
    }

    /// Takes what was read of the object before `now_ns` by somebody who began at `as_of`. Returns a name that the kernel may still take for one of it,
    /// while it is known by another one now.
    pub fn learn(&self, shared: &SharedObj, as_of: u64, now_ns: u64) -> Option<Place> {
        let mut state = self.state.lock();
        if state.changed > as_of {
            return None;
        }
        let place = |shared: &SharedObj| (shared.parent_oid().lo, shared.name().clone());
        // Names of what has several are not kept.
        let was_kept = !state.shared.is_hard();
        let before = was_kept.then(|| place(&state.shared)).filter(|old| *old != place(shared));
        state.replace(shared);
        state.known_ns = now_ns;
        before
    }

    /// The kernel is about to be told to ask for a name of it again.
    pub fn leaves_name(&self) {
        self.state.lock().names_left += 1;
    }

    /// The kernel has taken that.
    pub fn has_left_name(&self) {
        self.state.lock().names_left -= 1;
    }

    /// True when who opens it may come by a name that is not the one it is known by.
    pub fn has_names_left(&self) -> bool {
        self.state.lock().names_left > 0
    }

    /// True when the object was asked about after `ns`.
    pub fn is_known_since(&self, ns: u64) -> bool {
        self.state.lock().known_ns > ns
    }

    /// Takes what a change through this mount has made of the object, and notes that it changed.
    pub fn change(&self, table: &Table, change: impl FnOnce(&mut SharedObj)) {
        let mut state = self.state.lock();
        change(&mut state.shared);
        state.changed = table.tick();
        state.attributes = None;
    }

    /// Notes that the object's data or attributes are about to change, or have.
    pub fn touch(&self, table: &Table) {
        self.change(table, |_| ());
    }

    /// Notes that names of the directory are about to change. Returns its attributes, for
    /// [`Inode::names_changed`].
    pub fn touch_names(&self, table: &Table) -> Option<(Stat, u64)> {
        let mut state = self.state.lock();
        state.names_changed = table.tick();
        state.changed = state.names_changed;
        state.attributes.take()
    }

    /// Notes that names of the directory have changed: by one change at `changed_ns`, if that is
    /// known, since it had these attributes.
    pub fn names_changed(
        &self,
        table: &Table,
        before: Option<(Stat, u64)>,
        changed_ns: Option<i64>,
    ) {
        self.touch_names(table);
        let (Some((stat, asked_ns)), Some(changed_ns)) = (before, changed_ns) else { return };
        let ctime_ns = stat.ctime_ns.max(changed_ns);
        let stat = Stat { mtime_ns: changed_ns, ctime_ns, ..stat };
        self.state.lock().attributes = Some((stat, asked_ns));
    }

    /// Remembers the attributes of a directory, asked for at `now_ns` by somebody who began at
    /// `as_of`.
    pub fn remember(&self, stat: &Stat, as_of: u64, now_ns: u64) {
        let mut state = self.state.lock();
        if state.changed <= as_of && stat.is_dir() {
            state.attributes = Some((*stat, now_ns));
        }
    }

    /// The attributes of a directory and when they were asked for, if that was after `ns`.
    pub fn remembered(&self, ns: u64) -> Option<(Stat, u64)> {
        self.state.lock().attributes.filter(|(_, asked_ns)| *asked_ns > ns)
    }

    /// True when the object did not change through this mount since `as_of`.
    pub fn unchanged_since(&self, as_of: u64) -> bool {
        self.state.lock().changed <= as_of
    }

    /// True when the directory's names did not change through this mount since `as_of`.
    pub fn names_unchanged_since(&self, as_of: u64) -> bool {
        self.state.lock().names_changed <= as_of
    }

    /// True when some program has it open through this mount.
    pub fn is_open(&self) -> bool {
        self.state.lock().opens > 0
    }

    /// Counts a program's handle.
    pub fn opened(&self) {
        self.state.lock().opens += 1;
    }

    /// Counts the handle of a program that opens it by this node; false when it has another one by now.
    pub fn opened_as(&self, node: u64) -> bool {
        let mut state = self.state.lock();
        state.opens += u32::from(state.node == node);
        state.node == node
    }

    /// Counts a program's handle down; before it is given back.
    pub fn closed(&self) {
        let mut state = self.state.lock();
        state.opens = state.opens.saturating_sub(1);
        state.closes += 1;
    }

    /// Who has it open now.
    pub fn holders(&self) -> Holders {
        let state = self.state.lock();
        Holders { opens: state.opens, closes: state.closes }
    }

    /// True when one of those who had it open then has it open still, as far as is known: what has no name was there all the time.
    pub fn is_held_since(&self, then: Holders) -> bool {
        self.state.lock().closes - then.closes < u64::from(then.opens)
    }

    /// An open file of it is being released, as long as the answer lives.
    pub fn releasing(self: &Arc<Self>) -> Releasing {
        self.state.lock().releases += 1;
        Releasing(self.clone())
    }

    /// A descriptor of an open file was closed. If it was the last, the kernel tells so too
    /// (RELEASE), but nobody waits for that, and what the program asks for next may come first.
    pub fn may_close(&self, mark: &ClosingMark) {
        let mut state = self.state.lock();
        if mark.0.swap(state.closing_round, Ordering::Relaxed) != state.closing_round {
            state.closing += 1;
        }
    }

    /// An open file is used, so it was not closed for good; or its release is counted now.
    pub fn stays_open(&self, mark: &ClosingMark) {
        if mark.0.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = self.state.lock();
        if mark.0.swap(0, Ordering::Relaxed) == state.closing_round {
            state.closing -= 1;
            state.end_wait();
        }
    }

    /// Takes all open files for open: time has shown that their last close was not it.
    pub fn all_stay_open(&self) {
        let mut state = self.state.lock();
        state.closing = 0;
        state.closing_round += 1;
        state.end_wait();
    }

    /// Waits until no open file of it is being released, or may be about to.
    pub async fn releases_over(&self) {
        let over = {
            let mut state = self.state.lock();
            if state.releases == 0 && state.closing == 0 {
                return;
            }
            let (sender, over) = oneshot::channel();
            state.released.push(sender);
            over
        };
        // The sender is dropped, which says it.
        let _ = over.await;
    }

    /// Notes that the file reaches to `end` at least, by a write of this mount: the kernel knows.
    pub fn reaches(&self, end: u64) {
        if let Some(told) = &mut self.state.lock().told {
            told.size = told.size.max(end);
            told.mtime_ns = OWN_TIME;
        }
    }

    /// Size of the file as the kernel believes it.
    pub fn size_told(&self) -> Option<u64> {
        self.state.lock().told.map(|version| version.size)
    }

    /// Notes what the kernel gets; true when it had the same before, so that pages it
    /// kept since are still good.
    pub fn tell(&self, version: Version) -> bool {
        self.state.lock().told.replace(version) == Some(version)
    }

    /// The same of a kernel that writes back: it takes size and times of a file with its first answer, and keeps them itself from then on.
    pub fn tell_first(&self, version: Version) -> bool {
        let mut state = self.state.lock();
        let told = state.told.get_or_insert(version);
        let is_same = *told == version;
        if told.mtime_ns == OWN_TIME {
            told.mtime_ns = version.mtime_ns;
        }
        is_same
    }

    /// True when such a kernel has another size, or time, than the file had for who began to ask at `as_of`, and no program has it open here: it was
    /// changed elsewhere.
    pub fn is_outdated(&self, seen: Version, as_of: u64) -> bool {
        self.state.lock().is_outdated(seen, as_of)
    }
}

/// An open file that is being released.
pub struct Releasing(Arc<Inode>);

impl Drop for Releasing {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.releases -= 1;
        state.end_wait();
    }
}

/// Says that an open file may be about to be released: the round of marks in which that was noted.
#[derive(Default)]
pub struct ClosingMark(AtomicU64);

impl InodeRecord {
    fn is_outdated(&self, seen: Version, as_of: u64) -> bool {
        let differs = |told: Version| {
            told.size != seen.size || ![OWN_TIME, seen.mtime_ns].contains(&told.mtime_ns)
        };
        // What was read before a change of our own is older than that.
        self.opens == 0 && self.changed <= as_of && self.told.is_some_and(differs)
    }

    /// Lets those go on who wait for releases, if none is left.
    fn end_wait(&mut self) {
        if self.releases == 0 && self.closing == 0 {
            self.released.clear();
        }
    }

    fn replace(&mut self, shared: &SharedObj) {
        let (hard, unlinked) = (self.shared.is_hard(), self.shared.is_unlinked());
        self.shared = shared.clone();
        self.shared.set_hard(hard);
        if unlinked {
            self.shared.set_unlinked();
        }
    }
}

struct Known {
    inode: Arc<Inode>,
    lookups: u64,
}

impl Known {
    fn new(shared: &SharedObj) -> Known {
        Known { inode: Arc::new(Inode::new(shared.clone())), lookups: 0 }
    }
}

/// A file with a node that is not its object's number.
struct Renewed {
    inode: Arc<Inode>,
    /// Nodes by which the kernel knows it.
    nodes: u32,
}

/// A directory's number, and a name in it.
pub type Place = (u64, Key);

/// What was looked up.
pub struct Found {
    pub inode: Arc<Inode>,
    /// The node that the kernel holds one lookup more of.
    pub node: u64,
    /// See [`Inode::learn`].
    pub was_at: Option<Place>,
}

/// All nodes the kernel knows.
pub struct Table {
    /// Node → what it is.
    shards: [Mutex<HashMap<u64, Known>>; SHARDS],
    /// Object's number → a file that got another node. Locked before a shard.
    renewed: Mutex<HashMap<u64, Renewed>>,
    renewed_count: AtomicUsize,
    next_node: AtomicU64,
    root: Arc<Inode>,
    clock: AtomicU64,
    /// The last change of nodes that are here no more.
    forgotten: AtomicU64,
}

impl Table {
    /// A table with the root only.
    pub fn new(root: SharedObj) -> Table {
        Table {
            shards: std::array::from_fn(|_| Mutex::default()),
            renewed: Mutex::default(),
            renewed_count: AtomicUsize::new(0),
            next_node: AtomicU64::new(RENEWED_FROM),
            root: Arc::new(Inode::new(root)),
            clock: AtomicU64::new(1),
            forgotten: AtomicU64::new(0),
        }
    }

    fn shard(&self, node: u64) -> &Mutex<HashMap<u64, Known>> {
        &self.shards[node as usize % SHARDS]
    }

    /// The number of the next change.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The number of the last change: take it before reading something.
    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// What the kernel knows by a node.
    pub fn get(&self, node: u64) -> Option<Arc<Inode>> {
        if node == self.root.number {
            return Some(self.root.clone());
        }
        self.shard(node).lock().get(&node).map(|known| known.inode.clone())
    }

    /// The node of an object.
    pub fn of_object(&self, number: u64) -> Option<Arc<Inode>> {
        self.get(number).or_else(|| {
            if self.renewed_count.load(Ordering::SeqCst) == 0 {
                return None;
            }
            self.renewed.lock().get(&number).map(|renewed| renewed.inode.clone())
        })
    }

    /// True when an object, whether or not it is known here, did not change through this mount since `as_of`.
    pub fn unchanged_since(&self, number: u64, as_of: u64) -> bool {
        match self.of_object(number) {
            Some(inode) => inode.unchanged_since(as_of),
            None => self.forgotten.load(Ordering::SeqCst) <= as_of,
        }
    }

    /// The node of what was looked up before `now_ns` by somebody who began at `as_of`.
    /// The kernel holds one lookup more from now on.
    pub fn looked_up(&self, shared: &SharedObj, as_of: u64, now_ns: u64) -> Found {
        let number = shared.oid().lo;
        let found = match number == self.root.number {
            true => Found { inode: self.root.clone(), node: number, was_at: None },
            false => self
                .look_up_first(shared)
                .or_else(|| self.look_up_renewed(number))
                .unwrap_or_else(|| self.look_up_any(shared)),
        };
        let was_at = found.inode.learn(shared, as_of, now_ns);
        Found { was_at, ..found }
    }

    /// Counts a lookup of an object's first node, if it has no other.
    fn look_up_first(&self, shared: &SharedObj) -> Option<Found> {
        let number = shared.oid().lo;
        let mut shard = self.shard(number).lock();
        // A file that got another node, and whose first is here no more, was counted before that went.
        if self.renewed_count.load(Ordering::SeqCst) > 0 && !shard.contains_key(&number) {
            return None;
        }
        let known = shard.entry(number).or_insert_with(|| Known::new(shared));
        if known.inode.node() != number {
            return None;
        }
        known.lookups += 1;
        Some(Found { inode: known.inode.clone(), node: number, was_at: None })
    }

    /// Counts a lookup of a file that got another node.
    fn look_up_renewed(&self, number: u64) -> Option<Found> {
        let mut all = self.renewed.lock();
        let renewed = all.get_mut(&number)?;
        let inode = renewed.inode.clone();
        let node = inode.node();
        let mut shard = self.shard(node).lock();
        let known = shard.entry(node).or_insert_with(|| {
            renewed.nodes += 1;
            Known { inode: inode.clone(), lookups: 0 }
        });
        known.lookups += 1;
        Some(Found { inode, node, was_at: None })
    }

    /// Counts a lookup of what is not known, or was forgotten just now.
    fn look_up_any(&self, shared: &SharedObj) -> Found {
        let number = shared.oid().lo;
        let mut shard = self.shard(number).lock();
        let known = shard.entry(number).or_insert_with(|| Known::new(shared));
        known.lookups += 1;
        Found { inode: known.inode.clone(), node: number, was_at: None }
    }

    /// Has the kernel take a file for another one when it looks it up next, and so with the size that it has then: if it has another than was
    /// `seen` by who began at `as_of`, and if no program has the file open. The caller was given a node of it that the kernel has not given back.
    pub fn renew(&self, inode: &Arc<Inode>, seen: Version, as_of: u64) {
        let mut all = self.renewed.lock();
        let mut state = inode.state.lock();
        if !state.is_outdated(seen, as_of) {
            return;
        }
        state.node = self.next_node.fetch_add(1, Ordering::Relaxed);
        state.told = None;
        drop(state);
        all.entry(inode.number).or_insert_with(|| Renewed { inode: inode.clone(), nodes: 1 });
        self.renewed_count.store(all.len(), Ordering::SeqCst);
    }

    /// The kernel gives lookups back.
    pub fn forget(&self, node: u64, lookups: u64) {
        if node == self.root.number {
            return;
        }
        let mut shard = self.shard(node).lock();
        let Some(known) = shard.get_mut(&node) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 {
            return;
        }
        let Some(gone) = shard.remove(&node) else { return };
        let (changed, is_renewed) = {
            let state = gone.inode.state.lock();
            (state.changed, state.node != gone.inode.number)
        };
        // Before anybody can find it missing.
        self.forgotten.fetch_max(changed, Ordering::SeqCst);
        drop(shard);
        if is_renewed {
            self.forget_renewed(gone.inode.number);
        }
    }

    /// One node less of a file that has several.
    fn forget_renewed(&self, number: u64) {
        let mut all = self.renewed.lock();
        let Some(renewed) = all.get_mut(&number) else { return };
        renewed.nodes -= 1;
        if renewed.nodes == 0 {
            all.remove(&number);
            self.renewed_count.store(all.len(), Ordering::SeqCst);
        }
    }

    /// Nodes known, the root not counted.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}
