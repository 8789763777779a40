//! Parts of an object as records, for log compaction, and their replay.
//!
//! A part covers the dkeys after one position up to another. Replay first removes what is in
//! that range, so a part is right whatever came before it: with the whole log it changes
//! nothing, without it makes the state.

use types::{ContId, Epoch, Oid};

use super::extent::Place;
use super::object::{DkeyName, Object, Position};
use super::slot::AkeyRef;
use super::{Container, Effects, Index, cost};
use crate::record::{ChangeDf, PlaceDf, RecordDf, RunDf, TouchDf};

/// A part may grow a little beyond this, bytes.
const PART_BYTES: usize = 64 << 10;

/// One part of an object, ready to be logged.
pub(crate) struct Part {
    /// The last dkey in it; `None` when the object ends here.
    pub to: Option<Vec<u8>>,
    /// The encoded record.
    pub record: Vec<u8>,
}

impl Container {
    /// The part of an object after dkey `from`; an absent object gives an empty part.
    pub(crate) fn part(&self, cont: ContId, oid: Oid, from: Option<&[u8]>) -> Part {
        let mut numbers: Vec<[u8; 8]> = Vec::new();
        let mut taken: Vec<(DkeyName<'_>, super::slot::DkeyRef<'_>)> = Vec::new();
        let mut to = None;
        let mut epochs = (Epoch::ZERO, Epoch::ZERO);
        if let Some(object) = self.object(oid) {
            epochs = (object.epoch, object.keys_epoch);
            let mut bytes = 0;
            let position = from.map_or(Position::Start, Position::After);
            let mut walk = object.dkeys_after(position, (0, u64::MAX)).peekable();
            while let Some((name, dkey)) = walk.next() {
                bytes += name.with_bytes(<[u8]>::len) + weight(dkey);
                taken.push((name, dkey));
                if let DkeyName::Number(number) = name {
                    numbers.push(number.to_le_bytes());
                }
                if bytes >= PART_BYTES && walk.peek().is_some() {
                    to = Some(name.with_bytes(<[u8]>::to_vec));
                    break;
                }
            }
        }
        let mut changes = Vec::new();
        let mut touches = Vec::new();
        for (n, (name, dkey)) in taken.iter().enumerate() {
            let key: &[u8] = match name {
                DkeyName::Bytes(bytes) => bytes,
                DkeyName::Number(_) => &numbers[n],
            };
            let mut last = Epoch::ZERO;
            for (akey, value) in dkey.akeys() {
                last = add_value(oid, key, akey, value, &mut changes, &mut touches);
            }
            if dkey.epoch() != last {
                touches.push(TouchDf::Dkey(key, dkey.epoch()));
            }
        }
        let record = RecordDf::Snapshot {
            cont,
            oid,
            from: &from.map(tagged).unwrap_or_default(),
            to: &to.as_deref().map(tagged).unwrap_or_default(),
            changes,
            touches,
            epochs,
        };
        let mut encoded = Vec::new();
        crate::record::encode_into(&record, &mut encoded);
        Part { to, record: encoded }
    }
}

/// A dkey with one byte in front, so that the empty dkey differs from "no dkey".
fn tagged(dkey: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(dkey.len() + 1);
    out.push(1);
    out.extend_from_slice(dkey);
    out
}

/// Bytes a dkey adds to a part, about.
fn weight(dkey: super::slot::DkeyRef<'_>) -> usize {
    dkey.akeys()
        .map(|(akey, value)| {
            akey.len()
                + 40
                + match value {
                    AkeyRef::Inline(_, bytes) => bytes.len(),
                    AkeyRef::Runs(_, runs) => runs.len() * 12,
                    AkeyRef::Array(array) => array.scm_bytes() as usize,
                }
        })
        .sum()
}

/// Adds the changes that make one value; returns the dkey epoch they leave behind.
fn add_value<'a>(
    oid: Oid,
    dkey: &'a [u8],
    akey: &'a [u8],
    value: AkeyRef<'a>,
    changes: &mut Vec<(Epoch, ChangeDf<'a>)>,
    touches: &mut Vec<TouchDf<'a>>,
) -> Epoch {
    match value {
        AkeyRef::Inline(epoch, value) => {
            changes.push((epoch, ChangeDf::Single { oid, dkey, akey, value }));
            epoch
        }
        AkeyRef::Runs(epoch, runs) => {
            let runs = runs.iter().map(|run| RunDf { at: run.at, bytes: run.bytes }).collect();
            changes.push((epoch, ChangeDf::SingleRuns { oid, dkey, akey, runs }));
            epoch
        }
        AkeyRef::Array(array) => {
            let mut last = Epoch::ZERO;
            for (index, extent) in array.iter() {
                let place = match &extent.place {
                    Place::Inline(bytes) => PlaceDf::Inline(bytes),
                    Place::Blocks(at) => PlaceDf::Blocks(*at),
                    Place::Zero => PlaceDf::Zero,
                };
                let record_bytes = array.record_bytes;
                let count = extent.count;
                let change =
                    ChangeDf::Records { oid, dkey, akey, record_bytes, index, count, place };
                changes.push((extent.epoch, change));
                last = extent.epoch;
            }
            if array.epoch != last {
                touches.push(TouchDf::Akey(dkey, akey, array.epoch));
            }
            last
        }
    }
}

impl Index {
    /// Replays a part.
    #[expect(clippy::too_many_arguments, reason = "the fields of one record")]
    pub(crate) fn replay_part(
        &mut self,
        cont: ContId,
        oid: Oid,
        from: &[u8],
        to: &[u8],
        changes: &[(Epoch, ChangeDf<'_>)],
        touches: &[TouchDf<'_>],
        epochs: (Epoch, Epoch),
    ) {
        let mut effects = Effects { keep_apart: true, ..Effects::default() };
        if let Some(object) = self.conts.get(&cont).and_then(|c| c.object(oid)) {
            let position = from.get(1..).map_or(Position::Start, Position::After);
            let mut gone = Vec::new();
            for (name, _) in object.dkeys_after(position, (0, u64::MAX)) {
                if to.get(1..).is_some_and(|last| object.is_after(name, last)) {
                    break;
                }
                gone.push(name.with_bytes(<[u8]>::to_vec));
            }
            for dkey in &gone {
                let change = ChangeDf::PunchDkey { oid, dkey };
                self.apply(cont, Epoch::ZERO, &change, &mut effects);
            }
        }
        for (epoch, change) in changes {
            self.apply(cont, *epoch, change, &mut effects);
        }
        let object = self.conts.get_mut(&cont).and_then(|c| c.objects.get_mut(&oid));
        if let Some(object) = object {
            for touch in touches {
                match touch {
                    TouchDf::Akey(dkey, akey, epoch) => object.touch(dkey, Some(akey), *epoch),
                    TouchDf::Dkey(dkey, epoch) => object.touch(dkey, None, *epoch),
                }
            }
            (object.epoch, object.keys_epoch) = epochs;
        }
    }

    /// Counts the memory of all content anew; tests compare it with the running count.
    pub(crate) fn scm_bytes_recounted(&self) -> u64 {
        let mut effects = Effects::default();
        for object in self.conts.values().flat_map(|cont| cont.objects.values()) {
            effects.scm -= cost::OBJECT as i64;
            object.release(&mut effects);
        }
        effects.scm.unsigned_abs()
    }
}

impl Object {
    /// True when `name` comes after `dkey` in this object's order.
    fn is_after(&self, name: DkeyName<'_>, dkey: &[u8]) -> bool {
        self.order_of(name)
            > self.order_of(match name {
                DkeyName::Bytes(_) => DkeyName::Bytes(dkey),
                DkeyName::Number(_) => {
                    DkeyName::Number(super::object::number_of(dkey).unwrap_or(0))
                }
            })
    }
}
