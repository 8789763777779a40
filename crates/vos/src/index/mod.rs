//! The index: containers → objects → dkeys → akeys → values, all in memory.
//!
//! Pure: no I/O, no clock, no log. A change goes in as a [`ChangeDf`] with its epoch; what it
//! does to memory, user bytes and blocks comes out in [`Effects`]. A change never fails: what
//! could be wrong with it was checked before it was logged, and replay applies the same ones.

pub(crate) mod cost;
pub(crate) mod extent;
pub(crate) mod fragment;
pub(crate) mod object;
pub(crate) mod slot;
pub(crate) mod snapshot;

use std::collections::{BTreeMap, HashMap};

use types::{ContId, Epoch, Oid};

use crate::record::{ChangeDf, PlaceDf};
use crate::space::{BlockChange, Run};
use crate::sums::SumPolicy;
use extent::Place;
use object::Object;
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
}

impl Effects {
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
    pub objects: HashMap<Oid, Box<Object>, foldhash::fast::FixedState>,
}

impl Container {
    pub(crate) fn object(&self, oid: Oid) -> Option<&Object> {
        self.objects.get(&oid).map(|object| &**object)
    }
}

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
        let Some(container) = self.conts.get_mut(&cont) else { return };
        let scm_before = effects.scm;
        match *change {
            ChangeDf::Single { oid, dkey, akey, value } => {
                self.dkey_count +=
                    edit(container, &mut self.object_count, oid, effects, |o, fx| {
                        o.set(dkey, akey, NewValue::Single(Single::Inline(value)), epoch, fx)
                    });
            }
            ChangeDf::SingleRuns { oid, dkey, akey, ref runs } => {
                let runs: Box<[Run]> =
                    runs.iter().map(|run| Run { at: run.at, bytes: run.bytes }).collect();
                self.dkey_count +=
                    edit(container, &mut self.object_count, oid, effects, |o, fx| {
                        o.set(dkey, akey, NewValue::Single(Single::Runs(runs)), epoch, fx)
                    });
            }
            ChangeDf::Records { oid, dkey, akey, record_bytes, index, count, place } => {
                let place = match place {
                    PlaceDf::Inline(bytes) => Place::Inline(bytes.into()),
                    PlaceDf::Blocks(at) => Place::Blocks(at),
                    PlaceDf::Zero => Place::Zero,
                };
                let value = NewValue::Records { record_bytes, index, count, place };
                self.dkey_count +=
                    edit(container, &mut self.object_count, oid, effects, |o, fx| {
                        o.set(dkey, akey, value, epoch, fx)
                    });
            }
            ChangeDf::PunchRecords { oid, dkey, akey, index, count } => {
                self.shrink(cont, oid, effects, |object, fx| {
                    object.punch_records(dkey, akey, index, count, epoch, fx)
                });
            }
            ChangeDf::PunchObj { oid } => {
                if let Some(object) = container.objects.remove(&oid) {
                    self.object_count -= 1;
                    self.dkey_count -= object.dkey_count;
                    effects.scm -= cost::OBJECT as i64;
                    object.release(effects);
                }
            }
            ChangeDf::PunchDkey { oid, dkey } => {
                self.shrink(cont, oid, effects, |object, fx| object.punch_dkey(dkey, epoch, fx));
            }
            ChangeDf::PunchDkeysFrom { oid, from } => {
                self.shrink(cont, oid, effects, |object, fx| object.punch_from(from, epoch, fx));
            }
            ChangeDf::PunchAkey { oid, dkey, akey } => {
                self.shrink(cont, oid, effects, |o, fx| o.punch_akey(dkey, akey, epoch, fx));
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

    /// Runs a change that can only remove; an object left without dkeys goes away.
    fn shrink(
        &mut self,
        cont: ContId,
        oid: Oid,
        effects: &mut Effects,
        run: impl FnOnce(&mut Object, &mut Effects),
    ) {
        let Some(container) = self.conts.get_mut(&cont) else { return };
        let Some(object) = container.objects.get_mut(&oid) else { return };
        let (dkeys_before, bytes_before) = (object.dkey_count, effects.bytes);
        run(object, effects);
        object.count_bytes(effects.bytes - bytes_before);
        self.dkey_count -= dkeys_before - object.dkey_count;
        if object.dkey_count == 0 {
            container.objects.remove(&oid);
            self.object_count -= 1;
            effects.scm -= cost::OBJECT as i64;
        }
    }
}

/// Runs a change that adds, making the object if it is not there; returns the dkeys it added.
fn edit(
    container: &mut Container,
    object_count: &mut u64,
    oid: Oid,
    effects: &mut Effects,
    run: impl FnOnce(&mut Object, &mut Effects),
) -> u64 {
    let object = container.objects.entry(oid).or_insert_with(|| {
        *object_count += 1;
        effects.scm += cost::OBJECT as i64;
        Box::new(Object::new(oid.dkey_kind()))
    });
    let (dkeys_before, bytes_before) = (object.dkey_count, effects.bytes);
    run(object, effects);
    object.count_bytes(effects.bytes - bytes_before);
    object.dkey_count - dkeys_before
}
