//! The index: containers → objects → dkeys → akeys → values, all in memory.
//!
//! Pure: no I/O, no clock, no log. A change goes in as a [`ChangeDf`] with its epoch; what it
//! does to memory, user bytes and blocks comes out in [`Effects`]. A change never fails: what
//! could be wrong with it was checked before it was logged, and replay applies the same ones.

pub(crate) mod at;
pub(crate) mod cost;
pub(crate) mod extent;
pub(crate) mod fragment;
pub(crate) mod object;
pub(crate) mod past;
pub(crate) mod rollback;
pub(crate) mod slot;
pub(crate) mod snapshot;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use types::{ContId, Epoch, Key, Oid};

use crate::record::{ChangeDf, PlaceDf};
use crate::space::{BlockChange, Run};
use crate::sums::SumPolicy;
use crate::versions::Versions;
use extent::Place;
use object::Object;
use past::{Kept, PastValue, SweepAt, Swept};
use slot::{NewValue, Single};

/// What a change did beside changing the index.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Change of the memory counted.
    pub scm: i64,
    /// Change of the bytes of user data.
    pub bytes: i64,
    /// Change of block references, in order.
    pub blocks: Vec<BlockChange>,
    /// Small neighbours are not joined: a snapshot says how extents were.
    pub keep_apart: bool,
    /// What snapshots of the container see; `None`: it has none.
    pub versions: Option<Rc<Versions>>,
    /// What the change of a dkey has removed and a snapshot sees, until the object takes it.
    pub kept: Vec<Kept>,
}

impl Effects {
    /// True when a snapshot sees what was there from `created` to `destroyed`.
    pub(crate) fn sees(&self, created: Epoch, destroyed: Epoch) -> bool {
        self.versions.as_ref().is_some_and(|versions| versions.sees(created, destroyed))
    }

    /// Keeps what a change at `destroyed` has removed from the head.
    pub(crate) fn keep(&mut self, akey: &[u8], created: Epoch, destroyed: Epoch, value: PastValue) {
        self.kept.push(Kept { akey: Key::new(akey), created, destroyed, value });
    }

    /// Names the akey of what was kept since `from`.
    pub(crate) fn name_kept(&mut self, from: usize, akey: &[u8]) {
        for kept in &mut self.kept[from..] {
            kept.akey = Key::new(akey);
        }
    }

    /// An extent lets go of a run.
    pub(crate) fn release(&mut self, run: Run) {
        let (first, end) = (run.first_block(), run.end_block());
        if first < end {
            self.blocks.push(BlockChange::Unref { first, count: end - first });
        }
    }
}

/// Objects of one container.
#[derive(Debug, Default)]
pub(crate) struct Container {
    /// Sums over its data in the data area.
    pub sums: SumPolicy,
    /// Ghosts included.
    pub objects: HashMap<Oid, Box<Object>, foldhash::fast::FixedState>,
    /// Its snapshots.
    pub versions: Rc<Versions>,
    /// Objects that have a past.
    pub pasts: BTreeSet<Oid>,
    /// Objects with something that nobody sees, to be swept.
    pub unswept: BTreeSet<Oid>,
    /// All objects with a past from here on are to be swept.
    pub sweep_from: Option<Oid>,
}

impl Container {
    /// The object, if it holds anything now.
    pub(crate) fn object(&self, oid: Oid) -> Option<&Object> {
        self.objects.get(&oid).map(|object| &**object).filter(|object| object.dkey_count > 0)
    }

    /// Keeps the list of objects with a past.
    fn note_past(&mut self, oid: Oid) {
        if self.objects.get(&oid).is_some_and(|object| object.past.is_some()) {
            self.pasts.insert(oid);
        } else {
            self.pasts.remove(&oid);
            self.unswept.remove(&oid);
        }
    }
}

/// Objects with more dkeys than this are punched by putting them aside whole.
const PUNCH_DKEYS_MAX: u64 = 1024;

/// Everything a shard knows of its containers.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub conts: BTreeMap<ContId, Container>,
    /// Memory counted; see [`cost`].
    pub scm_bytes: u64,
    /// Objects in all containers.
    pub object_count: u64,
    /// Dkeys in all objects.
    pub dkey_count: u64,
}

impl Index {
    /// Applies one change; the container must be there (a change of an unknown one is dropped:
    /// replay of a log whose container was destroyed later).
    pub(crate) fn apply(
        &mut self,
        cont: ContId,
        epoch: Epoch,
        change: &ChangeDf<'_>,
        effects: &mut Effects,
    ) {
        let scm_before = effects.scm;
        let Some(container) = self.conts.get(&cont) else { return };
        effects.versions = container.versions.any();
        match *change {
            ChangeDf::Single { oid, dkey, akey, value } => {
                self.edit(cont, oid, epoch, effects, |object, fx| {
                    object.set(dkey, akey, NewValue::Single(Single::Inline(value)), epoch, fx)
                });
            }
            ChangeDf::SingleRuns { oid, dkey, akey, ref runs } => {
                let runs: Box<[Run]> =
                    runs.iter().map(|run| Run { at: run.at, bytes: run.bytes }).collect();
                self.edit(cont, oid, epoch, effects, |object, fx| {
                    object.set(dkey, akey, NewValue::Single(Single::Runs(runs)), epoch, fx)
                });
            }
            ChangeDf::Records { oid, dkey, akey, record_bytes, index, count, place } => {
                let place = match place {
                    PlaceDf::Inline(bytes) => Place::Inline(bytes.into()),
                    PlaceDf::Blocks(at) => Place::Blocks(at),
                    PlaceDf::Zero => Place::Zero,
                };
                let value = NewValue::Records { record_bytes, index, count, place };
                self.edit(cont, oid, epoch, effects, |object, fx| {
                    object.set(dkey, akey, value, epoch, fx)
                });
            }
            ChangeDf::PunchRecords { oid, dkey, akey, index, count } => {
                self.shrink(cont, oid, epoch, effects, |object, fx| {
                    object.punch_records(dkey, akey, index, count, epoch, fx)
                });
            }
            ChangeDf::PunchObj { oid } => self.punch_object(cont, oid, epoch, effects),
            ChangeDf::PunchDkey { oid, dkey } => {
                self.shrink(cont, oid, epoch, effects, |o, fx| o.punch_dkey(dkey, epoch, fx));
            }
            ChangeDf::PunchDkeysFrom { oid, from } => {
                self.shrink(cont, oid, epoch, effects, |o, fx| o.punch_from(from, epoch, fx));
            }
            ChangeDf::PunchAkey { oid, dkey, akey } => {
                self.shrink(cont, oid, epoch, effects, |o, fx| o.punch_akey(dkey, akey, epoch, fx));
            }
        }
        self.count_scm(effects.scm - scm_before);
    }

    /// Follows a change of the memory counted.
    pub(crate) fn count_scm(&mut self, delta: i64) {
        self.scm_bytes = self
            .scm_bytes
            .checked_add_signed(delta)
            .expect("more memory released than was ever counted");
    }

    /// Removes an object. A small one piece by piece; a big one is put aside whole as a *life* at
    /// once, and a sweep gives back what no snapshot sees of it.
    fn punch_object(&mut self, cont: ContId, oid: Oid, epoch: Epoch, effects: &mut Effects) {
        let Some(container) = self.conts.get_mut(&cont) else { return };
        let Some(object) = container.objects.get_mut(&oid) else { return };
        if object.dkey_count <= PUNCH_DKEYS_MAX || effects.keep_apart {
            return self.shrink(cont, oid, epoch, effects, |o, fx| o.clear(epoch, fx));
        }
        self.dkey_count -= object.dkey_count;
        self.object_count -= 1;
        object.end_life(epoch, effects);
        container.unswept.insert(oid);
        container.note_past(oid);
    }

    /// Runs a change that can only remove; an object left without dkeys and past goes away.
    fn shrink(
        &mut self,
        cont: ContId,
        oid: Oid,
        epoch: Epoch,
        effects: &mut Effects,
        run: impl FnOnce(&mut Object, &mut Effects),
    ) {
        let there = self.conts.get(&cont).and_then(|container| container.object(oid)).is_some();
        if there {
            self.edit(cont, oid, epoch, effects, run);
        }
    }

    /// Runs a change of an object, making it if it is not there.
    pub(crate) fn edit(
        &mut self,
        cont: ContId,
        oid: Oid,
        epoch: Epoch,
        effects: &mut Effects,
        run: impl FnOnce(&mut Object, &mut Effects),
    ) {
        let Some(container) = self.conts.get_mut(&cont) else { return };
        let object = container.objects.entry(oid).or_insert_with(|| {
            effects.scm += cost::OBJECT as i64;
            Box::new(Object::new(oid.dkey_kind()))
        });
        let (dkeys_before, bytes_before) = (object.dkey_count, effects.bytes);
        if !effects.keep_apart {
            object.note(epoch, effects);
        }
        run(object, effects);
        let (bytes, dkeys) =
            (effects.bytes - bytes_before, object.dkey_count as i64 - dkeys_before as i64);
        object.count_bytes(bytes);
        if !effects.keep_apart {
            object.note_late(epoch, bytes, dkeys);
        }
        self.dkey_count = self.dkey_count.wrapping_add_signed(dkeys);
        let (was, is) = (dkeys_before > 0, object.dkey_count > 0);
        self.object_count = self.object_count + is as u64 - was as u64;
        if object.is_gone() {
            object.forget_facts(effects);
            container.objects.remove(&oid);
            effects.scm -= cost::OBJECT as i64;
        }
        if effects.versions.is_some() || !container.pasts.is_empty() {
            container.note_past(oid);
        }
    }

    /// Drops what nobody sees of an object: one slice. Where to go on, if there is more.
    pub(crate) fn sweep(
        &mut self,
        cont: ContId,
        oid: Oid,
        at: &SweepAt,
        count: usize,
        effects: &mut Effects,
    ) -> Option<SweepAt> {
        let scm_before = effects.scm;
        let container = self.conts.get_mut(&cont)?;
        let versions = container.versions.clone();
        let mut next = None;
        if let Some(object) = container.objects.get_mut(&oid) {
            if let Swept::More(more) = object.sweep(at, count, &versions, effects) {
                next = Some(more);
            }
            if object.is_gone() {
                object.forget_facts(effects);
                container.objects.remove(&oid);
                effects.scm -= cost::OBJECT as i64;
            }
        }
        if next.is_none() {
            container.unswept.remove(&oid);
        }
        container.note_past(oid);
        self.count_scm(effects.scm - scm_before);
        next
    }
}
