//! The index: containers → objects → dkeys → akeys → values, in memory as far as needed.
//!
//! Pure: no I/O, no clock, no log. A change goes in as a [`ChangeDf`] with its epoch; what it
//! does to memory, user bytes and blocks comes out in [`Effects`]. A change never fails: what
//! could be wrong with it was checked before it was logged, and replay applies the same ones.

pub(crate) mod at;
pub(crate) mod bucket;
pub(crate) mod cost;
pub(crate) mod extent;
pub(crate) mod fragment;
pub(crate) mod garbage;
pub(crate) mod install;
pub(crate) mod lost;
pub(crate) mod object;
pub(crate) mod ordered;
pub(crate) mod page;
pub(crate) mod parts;
pub(crate) mod past;
pub(crate) mod residency;
pub(crate) mod rollback;
pub(crate) mod slot;
pub(crate) mod snapshot;
pub(crate) mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use types::{ContId, Epoch, Key, ObjType, Unit};
use wire::obj::ARRAY_RECORD;

use crate::blocks::Run;
use crate::index::versions::Versions;
use crate::record::{ChangeDf, PlaceDf};
use crate::space::BlockChange;
use crate::sums::SumPolicy;
pub(crate) use bucket::Container;
use bucket::Scope;
use extent::Place;
use garbage::Garbage;
use page::{Delta, Ledger, PageId, Probe};
use past::{Kept, PastValue, SweepAt, Swept};
use slot::{NewValue, Single};

/// Goes the ways that a change will go.
pub(crate) fn touch(container: &Container, change: &ChangeDf<'_>) {
    let dkey = |unit: Unit, dkey: &[u8]| {
        container.touch_home(unit);
        if let Some(object) = container.whole(unit) {
            object.dkey(dkey);
        }
    };
    match *change {
        ChangeDf::Single { unit, dkey: key, .. }
        | ChangeDf::SingleRuns { unit, dkey: key, .. }
        | ChangeDf::Records { unit, dkey: key, .. }
        | ChangeDf::PunchRecords { unit, dkey: key, .. }
        | ChangeDf::PunchDkey { unit, dkey: key }
        | ChangeDf::PunchAkey { unit, dkey: key, .. } => dkey(unit, key),
        ChangeDf::PunchDkeysFrom { unit, from } => {
            container.touch_punched(unit);
            dkey(unit, &from.to_le_bytes());
        }
        ChangeDf::PunchObj { unit } => container.touch_punched(unit),
    }
}

/// What a change did beside changing the index.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Change of the memory counted.
    pub scm: i64,
    /// Change of the bytes of user data.
    pub bytes: i64,
    /// Change of block references, in order.
    pub blocks: Vec<BlockChange>,
    /// Small neighbours are not joined: a page says how extents were.
    pub keep_apart: bool,
    /// The change sets a value that lies in the data area.
    pub places_blocks: bool,
    /// What snapshots of the container see; `None`: it has none.
    pub versions: Option<Rc<Versions>>,
    /// What the change of a dkey has removed and a snapshot sees, until the object takes it.
    pub kept: Vec<Kept>,
    /// A value that named a stripe is gone, or part of it, and no snapshot sees it.
    pub unnames: bool,
    /// The unit whose dkeys come from another one with this record, or go there: see [`crate::spread`].
    pub moving: Option<Unit>,
    /// The change in hand is of that unit; each one says so anew.
    pub is_move: bool,
    /// It is of what lies beside an array's data, and tells nothing of them ([`is_record`]); so does this.
    pub is_record: bool,
}

/// True for the record of an array of bytes, which is none of its chunks: facts that others keep there, such as a file's inode. When they were changed only
/// the dkey itself tells.
pub(crate) fn is_record(unit: Unit, dkey: Option<&[u8]>) -> bool {
    dkey == Some(&ARRAY_RECORD) && unit.obj_type() == Some(ObjType::ArrayByte)
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

/// Everything a shard knows of its containers.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub conts: BTreeMap<ContId, Container>,
    /// Memory counted, of all that is there, in memory or not; see [`cost`].
    pub scm_bytes: u64,
    /// Objects in all containers.
    pub object_count: u64,
    /// Dkeys in all objects.
    pub dkey_count: u64,
    /// Sums over the pages.
    pub ledger: Ledger,
    /// What is gone but not given back.
    pub garbage: Garbage,
    /// Looks for what is not in memory.
    pub probe: Rc<Probe>,
    /// Pages that replay has found damaged. They stay absent, or are given up.
    pub lost: BTreeSet<PageId>,
    /// Pages were given up: see [`lost`].
    pub has_given_up: bool,
    /// Numbers of copies that groups here have, or had once, a bit each.
    pub copies_seen: u32,
}

impl Index {
    /// Makes a container, if it is not there.
    pub(crate) fn create_cont(&mut self, cont: ContId, sums: SumPolicy) {
        let probe = &self.probe;
        self.conts.entry(cont).or_insert_with(|| {
            let mut container = Container::new(cont, probe);
            container.sums = sums;
            container
        });
    }

    /// Makes a container unreachable at once; [`Index::reclaim`] gives its space back.
    pub(crate) fn destroy_cont(&mut self, cont: ContId) {
        let Some(container) = self.conts.remove(&cont) else { return };
        for bucket in container.buckets() {
            self.object_count -= bucket.page.counts.objects;
            self.dkey_count -= bucket.page.counts.dkeys;
        }
        for object in container.large.values() {
            self.object_count -= (object.dkey_count > 0) as u64;
            self.dkey_count -= object.dkey_count;
        }
        let absent_scm = self.garbage.take_container(container, &mut self.ledger);
        self.scm_bytes -= absent_scm;
    }

    /// Releases up to `dkeys_max` dkeys that are gone; false when all in memory are.
    pub(crate) fn reclaim(&mut self, dkeys_max: usize, effects: &mut Effects) -> bool {
        let before = effects.scm;
        let more = self.garbage.reclaim(dkeys_max, effects);
        self.count_scm(effects.scm - before);
        self.ledger.count(effects.scm - before, false);
        more
    }

    /// Applies one change; the container must be there (a change of an unknown one is dropped:
    /// replay of a log whose container was destroyed later). What it touches must be in memory.
    pub(crate) fn apply(
        &mut self,
        cont: ContId,
        epoch: Epoch,
        change: &ChangeDf<'_>,
        effects: &mut Effects,
    ) {
        if let Some((unit, ..)) = new_value(change) {
            self.note_copies(unit);
        }
        if change.is_spread_note() {
            effects.moving = Some(change.unit());
        }
        let (unit, dkey) = change.place();
        effects.is_move = effects.moving == Some(unit);
        effects.is_record = is_record(unit, dkey);
        if self.is_lost(cont, change) {
            return;
        }
        let Some(container) = self.conts.get_mut(&cont) else { return };
        let ledger = &mut self.ledger;
        effects.places_blocks = places_blocks(change);
        effects.versions = container.versions.any();
        let delta = if let Some((unit, dkey, akey, value)) = new_value(change) {
            let scope = Scope::Dkey(dkey);
            container.change(unit, scope, true, Some(epoch), ledger, effects, |object, fx| {
                object.set(dkey, akey, value, epoch, fx);
            })
        } else {
            match *change {
                ChangeDf::PunchRecords { unit, dkey, akey, index, count } => {
                    let scope = Scope::Dkey(dkey);
                    container.change(unit, scope, false, Some(epoch), ledger, effects, |o, fx| {
                        o.punch_records(dkey, akey, index, count, epoch, fx);
                    })
                }
                ChangeDf::PunchObj { unit } => {
                    container.punch_object(unit, epoch, ledger, &mut self.garbage, effects)
                }
                ChangeDf::PunchDkey { unit, dkey } => {
                    let scope = Scope::Dkey(dkey);
                    container.change(unit, scope, false, Some(epoch), ledger, effects, |o, fx| {
                        o.punch_dkey(dkey, epoch, fx);
                    })
                }
                ChangeDf::PunchDkeysFrom { unit, from } => {
                    let garbage = &mut self.garbage;
                    container.punch_from(unit, from, epoch, ledger, garbage, effects)
                }
                ChangeDf::PunchAkey { unit, dkey, akey } => {
                    let scope = Scope::Dkey(dkey);
                    container.change(unit, scope, false, Some(epoch), ledger, effects, |o, fx| {
                        o.punch_akey(dkey, akey, epoch, fx);
                    })
                }
                _ => Delta::default(),
            }
        };
        self.count(&delta);
    }

    /// True when a change concerns a page that replay has found damaged.
    pub(crate) fn is_lost(&self, cont: ContId, change: &ChangeDf<'_>) -> bool {
        if self.lost.is_empty() {
            return false;
        }
        let Some(container) = self.conts.get(&cont) else { return false };
        container.probe.begin(0);
        touch(container, change);
        let (missed, _) = container.probe.end();
        missed.iter().any(|id| self.lost.contains(id))
    }

    /// Replay has found a page damaged: it is not to be read any more, after a checkpoint either.
    pub(crate) fn lose(&mut self, id: &PageId) {
        if self.lost.insert(id.clone())
            && let Some(place) = self.page_mut(id).and_then(|page| page.place.as_mut())
        {
            // No image has this checksum and is the one that belongs here.
            place.crc = !place.crc;
        }
    }

    /// Follows a change of a container.
    pub(crate) fn count(&mut self, delta: &Delta) {
        let add = |to: &mut u64, delta: i64| {
            *to = to.checked_add_signed(delta).expect("more removed than was there");
        };
        add(&mut self.object_count, delta.objects);
        add(&mut self.dkey_count, delta.dkeys);
        self.count_scm(delta.scm);
    }

    /// Drops what nobody sees of an object: one slice. Where to go on, if there is more.
    pub(crate) fn sweep(
        &mut self,
        cont: ContId,
        unit: Unit,
        at: &SweepAt,
        count: usize,
        effects: &mut Effects,
    ) -> Option<SweepAt> {
        let container = self.conts.get_mut(&cont)?;
        let versions = container.versions.clone();
        let mut next = None;
        let ledger = &mut self.ledger;
        let delta = container.change(unit, Scope::Past, false, None, ledger, effects, |o, fx| {
            if let Swept::More(more) = o.sweep(at, count, &versions, fx) {
                next = Some(more);
            }
        });
        if next.is_none() {
            container.unswept.remove(&unit);
        }
        container.note_past(unit);
        self.count(&delta);
        next
    }

    /// Follows a change of the memory counted.
    pub(crate) fn count_scm(&mut self, delta: i64) {
        self.scm_bytes = self
            .scm_bytes
            .checked_add_signed(delta)
            .expect("more memory released than was ever counted");
    }
}

/// The value that a change sets, if it does.
pub(crate) fn new_value<'a>(
    change: &ChangeDf<'a>,
) -> Option<(Unit, &'a [u8], &'a [u8], NewValue<'a>)> {
    match *change {
        ChangeDf::Single { unit, dkey, akey, value } => {
            Some((unit, dkey, akey, NewValue::Single(Single::Inline(value))))
        }
        ChangeDf::SingleRuns { unit, dkey, akey, ref runs } => {
            let runs: Box<[Run]> =
                runs.iter().map(|run| Run { at: run.at, bytes: run.bytes }).collect();
            Some((unit, dkey, akey, NewValue::Single(Single::Runs(runs))))
        }
        ChangeDf::Records { unit, dkey, akey, record_bytes, index, count, place } => {
            let place = match place {
                PlaceDf::Inline(bytes) => Place::Inline(bytes.into()),
                PlaceDf::Blocks(at) => Place::Blocks(at),
                PlaceDf::Zero => Place::Zero,
                PlaceDf::Coded(stripe) => Place::Coded(stripe),
            };
            Some((unit, dkey, akey, NewValue::Records { record_bytes, index, count, place }))
        }
        _ => None,
    }
}

/// True when a change sets a value that lies in the data area.
pub(crate) fn places_blocks(change: &ChangeDf<'_>) -> bool {
    matches!(
        change,
        ChangeDf::SingleRuns { .. } | ChangeDf::Records { place: PlaceDf::Blocks(_), .. }
    )
}
