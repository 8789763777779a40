//! One target's objects, by the letter of [`wire::obj`].
//!
//! A batch is checked whole against the state before it, then applied op by op. Array values
//! are kept record by record. Reading ops of a batch see the state before its writes.

mod conditions;

use crate::answer::{Answer, OwnedFetch, OwnedItem, Place};
use std::collections::BTreeMap;
use types::{Code, DkeyKind, Epoch, Error, ObjType, Result, Unit};
use wire::link::{Link, LinkKind};
use wire::obj::{
    Batch, BatchReply, BulkSums, FetchIod, FetchWant, Linked, ListScope, ObjectStat, Op,
    QueryFlags, Recx, Tail, UpdateValue,
};

/// A value of an akey.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Single(Vec<u8>),
    Array { record_bytes: u32, records: BTreeMap<u64, Vec<u8>> },
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Akey {
    epoch: Epoch,
    value: Value,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Dkey {
    epoch: Epoch,
    akeys: BTreeMap<Vec<u8>, Akey>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Object {
    epoch: Epoch,
    keys_epoch: Epoch,
    dkeys: BTreeMap<Vec<u8>, Dkey>,
}

/// What a shard must be told of the world around it.
pub trait Surroundings {
    /// The object's first group is led by this target.
    fn home_here(&self, unit: Unit) -> bool;
    /// All of the object is on this target.
    fn all_here(&self, unit: Unit) -> bool;
    /// Some client holds the object open.
    fn is_open(&self, unit: Unit) -> bool;
}

/// A world of one target where nobody holds anything open.
pub struct Alone;

impl Surroundings for Alone {
    fn home_here(&self, _: Unit) -> bool {
        true
    }
    fn all_here(&self, _: Unit) -> bool {
        true
    }
    fn is_open(&self, _: Unit) -> bool {
        false
    }
}

/// What a batch did, beside its answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// The encoded [`BatchReply`].
    pub reply: Vec<u8>,
    /// Fetched data in order.
    pub bulk: Vec<u8>,
    /// Handles to register.
    pub opened: Vec<Unit>,
    /// Objects to free when nobody holds them open, on all targets.
    pub orphans: Vec<Unit>,
}

/// The objects of one container on one target.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContShard {
    objects: BTreeMap<Unit, Object>,
}

impl Object {
    /// Something under a dkey has changed, or the set of dkeys (`of_keys`). The record of an array of bytes is none of its data.
    fn note(&mut self, unit: Unit, dkey: &[u8], of_keys: bool, epoch: Epoch) {
        if unit.obj_type() == Some(ObjType::ArrayByte) && integer(dkey) == 0 {
            return;
        }
        self.epoch = epoch;
        if of_keys {
            self.keys_epoch = epoch;
        }
    }
}

/// Sort key of a dkey.
fn order(unit: Unit, dkey: &[u8]) -> (u64, Vec<u8>) {
    match unit.dkey_kind() {
        DkeyKind::Hashed => (types::hash::bytes(dkey), dkey.to_vec()),
        DkeyKind::U64 => (integer(dkey), Vec::new()),
        DkeyKind::Lexical => (0, dkey.to_vec()),
    }
}

fn integer(dkey: &[u8]) -> u64 {
    let mut raw = [0; 8];
    let count = dkey.len().min(8);
    raw[..count].copy_from_slice(&dkey[..count]);
    u64::from_le_bytes(raw)
}

impl ContShard {
    /// Ids of all objects, in order.
    pub fn units(&self) -> impl Iterator<Item = Unit> + '_ {
        self.objects.keys().copied()
    }

    fn dkey(&self, unit: Unit, dkey: &[u8]) -> Option<&Dkey> {
        self.objects.get(&unit)?.dkeys.get(dkey)
    }

    fn akey(&self, unit: Unit, dkey: &[u8], akey: &[u8]) -> Option<&Akey> {
        self.dkey(unit, dkey)?.akeys.get(akey)
    }

    /// Answers and applies a batch that was checked. `bulk` holds its data.
    pub fn apply(
        &mut self,
        batch: &Batch<'_>,
        mut bulk: &[u8],
        epoch: Epoch,
        around: &dyn Surroundings,
    ) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let before = self.clone();
        let mut answers = Vec::new();
        for op in &batch.ops {
            answers.push(self.apply_op(op, &before, &mut bulk, epoch, around, &mut outcome)?);
        }
        let ops = answers.iter().map(Answer::as_wire).collect();
        outcome.reply = wire::encode(&BatchReply { epoch, ops, sums: BulkSums::NONE });
        Ok(outcome)
    }

    fn apply_op(
        &mut self,
        op: &Op<'_>,
        before: &ContShard,
        bulk: &mut &[u8],
        epoch: Epoch,
        around: &dyn Surroundings,
        outcome: &mut Outcome,
    ) -> Result<Answer> {
        match op {
            Op::Update { unit, dkey, iods, .. } => {
                for iod in iods {
                    self.update(*unit, dkey, iod.akey, &iod.value, bulk, epoch)?;
                }
            }
            Op::Fetch { unit, dkey, iods, .. } => {
                let holes: Vec<Vec<Recx>> =
                    iods.iter().map(|iod| before.holes(*unit, dkey, iod)).collect();
                let told_first = |iod: &FetchIod<'_>, holes: &Vec<Recx>| {
                    matches!(iod.want, FetchWant::Sparse { with_holes: false, .. })
                        && !holes.is_empty()
                };
                let bulk_before = outcome.bulk.len();
                let no_data = iods.iter().zip(&holes).any(|(iod, holes)| told_first(iod, holes));
                let fetched = iods
                    .iter()
                    .zip(holes)
                    .map(|(iod, holes)| {
                        let (epoch, fetched) = before.fetch(*unit, dkey, iod, outcome);
                        let fetched = match (fetched, &iod.want) {
                            (OwnedFetch::Array(record_bytes, end), FetchWant::Sparse { .. }) => {
                                OwnedFetch::Sparse(record_bytes, end, holes)
                            }
                            (OwnedFetch::Inline(value), _) if no_data => {
                                OwnedFetch::Single(value.len() as u64, false)
                            }
                            (OwnedFetch::Single(bytes, _), _) if no_data => {
                                OwnedFetch::Single(bytes, false)
                            }
                            (other, _) => other,
                        };
                        (epoch, fetched)
                    })
                    .collect();
                if no_data {
                    outcome.bulk.truncate(bulk_before);
                }
                return Ok(Answer::Fetched(fetched));
            }
            Op::PunchObj { unit, .. } => {
                self.objects.remove(unit);
            }
            Op::PunchDkeys { unit, dkeys, .. } => {
                for dkey in dkeys {
                    self.punch_dkey(*unit, dkey, epoch);
                }
            }
            Op::PunchDkeysFrom { unit, from } => {
                let all: Vec<Vec<u8>> = self
                    .objects
                    .get(unit)
                    .into_iter()
                    .flat_map(|o| o.dkeys.keys().cloned())
                    .collect();
                for dkey in all.iter().filter(|dkey| integer(dkey) >= *from) {
                    self.punch_dkey(*unit, dkey, epoch);
                }
            }
            Op::PunchAkeys { unit, dkey, akeys, .. } => {
                for akey in akeys {
                    self.punch_akey(*unit, dkey, akey, epoch);
                }
            }
            Op::List { unit, scope, anchor, count_max, .. } => {
                return Ok(before.list(*unit, scope, anchor, *count_max, around));
            }
            Op::Query { unit, flags, dkey, akey } => {
                return Ok(Answer::Found(before.query(*unit, *flags, dkey, akey)));
            }
            Op::Stat { unit } => return Ok(Answer::Stat(before.stat(*unit))),
            Op::FetchLink { unit, dkey, akey, open } => {
                let Some((epoch, value)) = before.single(*unit, dkey, akey) else {
                    return Ok(Answer::Link(None, Epoch::ZERO, None, false));
                };
                let linked = followed(value);
                let opened = *open && linked.is_some_and(|unit| around.home_here(unit));
                if let (true, Some(unit)) = (opened, linked) {
                    outcome.opened.push(unit);
                }
                let tail =
                    linked.filter(|unit| around.all_here(*unit)).map(|o| before.stat(o).tail);
                return Ok(Answer::Link(Some(value.to_vec()), epoch, tail, opened));
            }
            Op::RemoveLink { unit, dkey, akey } => {
                let Some((_, value)) = before.single(*unit, dkey, akey) else {
                    return Ok(Answer::Removed(None, false, Linked::None));
                };
                let value = value.to_vec();
                if Link::decode(&value).is_some_and(|link| link.protected) {
                    return Ok(Answer::Removed(Some(value), false, Linked::None));
                }
                self.punch_dkey(*unit, dkey, epoch);
                let linked = match followed(&value) {
                    None => Linked::None,
                    Some(unit) if !around.home_here(unit) => Linked::Elsewhere,
                    Some(unit) => {
                        self.free(unit, around, outcome);
                        Linked::Freed
                    }
                };
                return Ok(Answer::Removed(Some(value), true, linked));
            }
            Op::Open { unit } => outcome.opened.push(*unit),
            Op::PunchUnlessOpen { unit } => self.free(*unit, around, outcome),
            Op::FreeClosed { unit } if around.is_open(*unit) => {
                return Err(Error::new(Code::Busy, "somebody holds it open"));
            }
            Op::FreeClosed { unit } => outcome.orphans.push(*unit),
            // The engine makes updates of them, or answers itself.
            Op::Append { .. } | Op::ListRuns { .. } | Op::Adopt { .. } => {
                return Err(Error::new(Code::NotSupported, "not part of the model"));
            }
        }
        Ok(Answer::Done)
    }

    fn free(&mut self, unit: Unit, around: &dyn Surroundings, outcome: &mut Outcome) {
        if around.all_here(unit) && !around.is_open(unit) {
            self.objects.remove(&unit);
        } else {
            outcome.orphans.push(unit);
        }
    }

    pub fn punch(&mut self, unit: Unit) {
        self.objects.remove(&unit);
    }

    fn update(
        &mut self,
        unit: Unit,
        dkey: &[u8],
        akey: &[u8],
        value: &UpdateValue<'_>,
        bulk: &mut &[u8],
        epoch: Epoch,
    ) -> Result<()> {
        if let UpdateValue::PunchRecords { recxs } = value {
            return self.punch_records(unit, dkey, akey, recxs, epoch);
        }
        let object = self.objects.entry(unit).or_default();
        object.note(unit, dkey, !object.dkeys.contains_key(dkey), epoch);
        let entry = object.dkeys.entry(dkey.to_vec()).or_default();
        entry.epoch = epoch;
        let mut take = |bytes: usize| -> Result<Vec<u8>> {
            let (piece, rest) = bulk
                .split_at_checked(bytes)
                .ok_or_else(|| Error::inval("the batch has less data than its updates say"))?;
            *bulk = rest;
            Ok(piece.to_vec())
        };
        let new = match value {
            UpdateValue::Inline(bytes) => Value::Single(bytes.to_vec()),
            UpdateValue::Single { bytes } => Value::Single(take(*bytes as usize)?),
            UpdateValue::Array { record_bytes, recxs }
            | UpdateValue::Zero { record_bytes, recxs } => {
                let mut records = match entry.akeys.remove(akey).map(|old| old.value) {
                    Some(Value::Array { record_bytes: old, records }) if old == *record_bytes => {
                        records
                    }
                    Some(_) => return Err(Error::inval("another kind of value is there")),
                    None => BTreeMap::new(),
                };
                for recx in recxs {
                    let end = recx.end().ok_or_else(|| Error::inval("range overflows"))?;
                    for index in recx.index..end {
                        match value {
                            UpdateValue::Array { .. } => {
                                records.insert(index, take(*record_bytes as usize)?);
                            }
                            // Zeros only fill what is not written.
                            _ => {
                                let zeros = || vec![0; *record_bytes as usize];
                                records.entry(index).or_insert_with(zeros);
                            }
                        }
                    }
                }
                Value::Array { record_bytes: *record_bytes, records }
            }
            UpdateValue::PunchRecords { .. } => return Ok(()),
            UpdateValue::Coded { .. } => {
                return Err(Error::inval(
                    "stripes are another way to keep records: no model of them",
                ));
            }
        };
        entry.akeys.insert(akey.to_vec(), Akey { epoch, value: new });
        Ok(())
    }

    fn punch_records(
        &mut self,
        unit: Unit,
        dkey: &[u8],
        akey: &[u8],
        recxs: &[Recx],
        epoch: Epoch,
    ) -> Result<()> {
        let Some(object) = self.objects.get_mut(&unit) else { return Ok(()) };
        let Some(entry) = object.dkeys.get_mut(dkey) else { return Ok(()) };
        let Some(found) = entry.akeys.get_mut(akey) else { return Ok(()) };
        let Value::Array { records, .. } = &mut found.value else {
            return Err(Error::inval("a single value has no records"));
        };
        for recx in recxs {
            let end = recx.end().ok_or_else(|| Error::inval("range overflows"))?;
            records.retain(|index, _| *index < recx.index || *index >= end);
        }
        let empty = records.is_empty();
        (found.epoch, entry.epoch) = (epoch, epoch);
        object.note(unit, dkey, false, epoch);
        if empty {
            self.punch_akey(unit, dkey, akey, epoch);
        }
        Ok(())
    }

    fn punch_dkey(&mut self, unit: Unit, dkey: &[u8], epoch: Epoch) {
        if let Some(object) = self.objects.get_mut(&unit)
            && object.dkeys.remove(dkey).is_some()
        {
            object.note(unit, dkey, true, epoch);
            if object.dkeys.is_empty() {
                self.objects.remove(&unit);
            }
        }
    }

    fn punch_akey(&mut self, unit: Unit, dkey: &[u8], akey: &[u8], epoch: Epoch) {
        let Some(object) = self.objects.get_mut(&unit) else { return };
        let Some(entry) = object.dkeys.get_mut(dkey) else { return };
        if entry.akeys.remove(akey).is_some() {
            entry.epoch = epoch;
            let is_empty = entry.akeys.is_empty();
            object.note(unit, dkey, false, epoch);
            if is_empty {
                self.punch_dkey(unit, dkey, epoch);
            }
        }
    }

    fn single(&self, unit: Unit, dkey: &[u8], akey: &[u8]) -> Option<(Epoch, &[u8])> {
        match self.akey(unit, dkey, akey)? {
            Akey { epoch, value: Value::Single(value) } => Some((*epoch, value)),
            _ => None,
        }
    }

    /// What was never written of the ranges that are asked for by their holes.
    fn holes(&self, unit: Unit, dkey: &[u8], iod: &FetchIod<'_>) -> Vec<Recx> {
        let FetchWant::Sparse { recxs, .. } = &iod.want else { return Vec::new() };
        let records = match self.akey(unit, dkey, iod.akey).map(|found| &found.value) {
            Some(Value::Array { records, .. }) => Some(records),
            _ => None,
        };
        let mut holes: Vec<Recx> = Vec::new();
        for recx in recxs {
            let first = holes.len();
            for index in recx.index..recx.index + recx.count {
                if records.is_some_and(|records| records.contains_key(&index)) {
                    continue;
                }
                match holes[first..].last_mut() {
                    Some(hole) if hole.index + hole.count == index => hole.count += 1,
                    _ => holes.push(Recx { index, count: 1 }),
                }
            }
        }
        holes
    }

    fn fetch(
        &self,
        unit: Unit,
        dkey: &[u8],
        iod: &FetchIod<'_>,
        outcome: &mut Outcome,
    ) -> (Epoch, OwnedFetch) {
        let found = self.akey(unit, dkey, iod.akey);
        if let FetchWant::Array { record_bytes, recxs }
        | FetchWant::Sparse { record_bytes, recxs, .. } = &iod.want
        {
            let (records, stored_bytes) = match found.map(|found| &found.value) {
                Some(Value::Array { records, record_bytes }) => (Some(records), *record_bytes),
                _ => (None, *record_bytes),
            };
            for index in recxs.iter().flat_map(|recx| recx.index..recx.index + recx.count) {
                match records.and_then(|records| records.get(&index)) {
                    Some(record) => outcome.bulk.extend_from_slice(record),
                    None => outcome.bulk.extend(std::iter::repeat_n(0, stored_bytes as usize)),
                }
            }
        }
        let Some(found) = found else {
            return (Epoch::ZERO, OwnedFetch::Absent);
        };
        let fetched = match (&found.value, &iod.want) {
            (Value::Array { record_bytes, records }, _) => {
                let end = records.last_key_value().map_or(0, |(last, _)| last + 1);
                OwnedFetch::Array(*record_bytes, end)
            }
            (Value::Single(value), FetchWant::Single { bytes_max, inline_bytes_max }) => {
                let bytes = value.len() as u64;
                if bytes <= *inline_bytes_max as u64 {
                    OwnedFetch::Inline(value.clone())
                } else if bytes <= *bytes_max {
                    outcome.bulk.extend_from_slice(value);
                    OwnedFetch::Single(bytes, true)
                } else {
                    OwnedFetch::Single(bytes, false)
                }
            }
            (Value::Single(value), _) => OwnedFetch::Single(value.len() as u64, false),
        };
        (found.epoch, fetched)
    }

    /// Facts about an object.
    pub fn stat(&self, unit: Unit) -> ObjectStat {
        let Some(object) = self.objects.get(&unit) else {
            return ObjectStat::default();
        };
        let mut tail = Tail { epoch: object.epoch, ..Tail::default() };
        let mut counted_links = 0;
        for (dkey, entry) in &object.dkeys {
            for (akey, found) in &entry.akeys {
                match &found.value {
                    Value::Single(value) => {
                        tail.bytes_used += value.len() as u64;
                        counted_links += (!akey.is_empty() && wire::link::is_counted(value)) as u64;
                    }
                    Value::Array { record_bytes, records } => {
                        tail.bytes_used += records.len() as u64 * *record_bytes as u64;
                        let dkey = integer(dkey);
                        if akey.is_empty() && tail.dkey_max.is_none_or(|max| dkey >= max) {
                            tail.dkey_max = Some(dkey);
                            tail.end = records.last_key_value().map_or(0, |(last, _)| last + 1);
                        }
                    }
                }
            }
        }
        let dkey_count = object.dkeys.len() as u64;
        ObjectStat { tail, dkey_count, counted_links, keys_epoch: object.keys_epoch }
    }

    fn list(
        &self,
        unit: Unit,
        scope: &ListScope<'_>,
        anchor: &[u8],
        count_max: u32,
        around: &dyn Surroundings,
    ) -> Answer {
        let object = self.objects.get(&unit);
        let keys_epoch = object.map_or(Epoch::ZERO, |object| object.keys_epoch);
        // Every scope becomes a list in order, each item with the key that an anchor names.
        let mut items: Vec<((u64, Vec<u8>), OwnedItem)> = Vec::new();
        match scope {
            ListScope::Dkeys { value_of, follow, hash_range } => {
                for dkey in object.iter().flat_map(|object| object.dkeys.keys()) {
                    let place = order(unit, dkey);
                    if unit.dkey_kind() == DkeyKind::Hashed
                        && !(hash_range.0..=hash_range.1).contains(&place.0)
                    {
                        continue;
                    }
                    let item = match value_of {
                        None => OwnedItem::Key(dkey.clone()),
                        Some(akey) => {
                            let (epoch, value) =
                                self.single(unit, dkey, akey).unwrap_or((Epoch::ZERO, b""));
                            let tail = followed(value)
                                .filter(|unit| *follow && around.all_here(*unit))
                                .map(|unit| self.stat(unit).tail);
                            OwnedItem::Entry(dkey.clone(), value.to_vec(), epoch, tail)
                        }
                    };
                    items.push((place, item));
                }
            }
            ListScope::Akeys { dkey } => {
                for akey in self.dkey(unit, dkey).iter().flat_map(|found| found.akeys.keys()) {
                    items.push(((0, akey.clone()), OwnedItem::Key(akey.clone())));
                }
            }
            ListScope::Recxs { dkey, akey, descending } => {
                if let Some(Akey { epoch, value: Value::Array { record_bytes, records } }) =
                    self.akey(unit, dkey, akey)
                {
                    for recx in runs(records) {
                        let place = if *descending { u64::MAX - recx.index } else { recx.index };
                        items.push((
                            (place, Vec::new()),
                            OwnedItem::Recx(recx, *record_bytes, *epoch),
                        ));
                    }
                }
            }
        }
        items.sort_by(|a, b| a.0.cmp(&b.0));
        let after = (!anchor.is_empty()).then(|| (integer(anchor), anchor[8..].to_vec()));
        let mut rest =
            items.into_iter().filter(|(place, _)| after.as_ref().is_none_or(|a| place > a));
        let mut page = Vec::new();
        let mut last = (0, Vec::new());
        for (place, item) in rest.by_ref().take(count_max.max(1) as usize) {
            last = place;
            page.push(item);
        }
        let next = match rest.next() {
            Some(_) => [&last.0.to_le_bytes()[..], &last.1].concat(),
            None => Vec::new(),
        };
        Answer::Listed(page, next, keys_epoch)
    }

    fn query(&self, unit: Unit, flags: QueryFlags, dkey: &[u8], akey: &[u8]) -> Option<Place> {
        let max = flags.has(QueryFlags::MAX);
        let object = self.objects.get(&unit)?;
        let mut dkeys: Vec<&Vec<u8>> = object.dkeys.keys().collect();
        dkeys.sort_by_key(|dkey| order(unit, dkey));
        if max {
            dkeys.reverse();
        }
        for candidate in dkeys {
            if !flags.has(QueryFlags::DKEY) && candidate != dkey {
                continue;
            }
            let mut akeys: Vec<(&Vec<u8>, &Akey)> = object.dkeys[candidate].akeys.iter().collect();
            if max {
                akeys.reverse();
            }
            for (name, found) in akeys {
                if !flags.has(QueryFlags::AKEY) && name != akey && flags.has(QueryFlags::RECX) {
                    continue;
                }
                if !flags.has(QueryFlags::RECX) {
                    return Some((candidate.clone(), name.clone(), None, 0));
                }
                if let Value::Array { record_bytes, records } = &found.value {
                    let mut all = runs(records);
                    let recx = if max { all.pop() } else { all.into_iter().next() };
                    if recx.is_some() {
                        return Some((candidate.clone(), name.clone(), recx, *record_bytes));
                    }
                }
            }
        }
        None
    }
}

/// Runs of neighbouring records.
fn runs(records: &BTreeMap<u64, Vec<u8>>) -> Vec<Recx> {
    let mut runs: Vec<Recx> = Vec::new();
    for &index in records.keys() {
        match runs.last_mut() {
            Some(run) if run.index + run.count == index => run.count += 1,
            _ => runs.push(Recx { index, count: 1 }),
        }
    }
    runs
}

/// The object a value's link leads to.
fn followed(value: &[u8]) -> Option<Unit> {
    let link = Link::decode(value)?;
    (link.kind == LinkKind::Array && !link.oid.is_nil()).then(|| link.oid.first_unit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ContId, ObjClass, ObjType, PoolId};
    use wire::obj::{Cond, Listed, OpReply};
    use wire::obj::{Sums, UpdateIod};

    fn run(shard: &mut ContShard, ops: Vec<Op<'_>>, bulk: &[u8], epoch: u64) -> Result<Outcome> {
        let batch = Batch {
            pool: PoolId(1),
            cont: ContId(1),
            at: Epoch::ZERO,
            checks: Vec::new(),
            ops,
            sums: Sums::NONE,
        };
        shard.check(&batch.checks, &batch.ops)?;
        shard.apply(&batch, bulk, Epoch(epoch), &Alone)
    }

    fn write(unit: Unit, dkey: &'static [u8], cond: Cond, recx: Recx) -> Op<'static> {
        let value = UpdateValue::Array { record_bytes: 1, recxs: vec![recx] };
        let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
        Op::Update { unit, dkey, cond, iods }
    }

    #[test]
    fn records_conditions_and_tails() {
        let unit = types::Oid::generate(0, 1, ObjType::ArrayByte, ObjClass::S1, 0).first_unit();
        let dkey = &[2, 0, 0, 0, 0, 0, 0, 0];
        let recx = Recx { index: 3, count: 2 };
        let mut shard = ContShard::default();
        let refused = run(&mut shard, vec![write(unit, dkey, Cond::OBJ_EXISTS, recx)], b"ab", 1);
        assert_eq!(refused.map_err(|error| error.code), Err(Code::NonExist));
        run(&mut shard, vec![write(unit, dkey, Cond::DKEY_INSERT, recx)], b"ab", 2).unwrap();
        let tail = shard.stat(unit).tail;
        assert_eq!((tail.dkey_max, tail.end, tail.epoch), (Some(2), 5, Epoch(2)));
        let again = run(&mut shard, vec![write(unit, dkey, Cond::DKEY_INSERT, recx)], b"ab", 3);
        assert_eq!(again.map_err(|error| error.code), Err(Code::Exist));
        let want = FetchWant::Array { record_bytes: 1, recxs: vec![Recx { index: 2, count: 4 }] };
        let iods = vec![FetchIod { akey: b"", want }];
        let fetch = Op::Fetch { unit, dkey, cond: Cond::NONE, iods };
        assert_eq!(run(&mut shard, vec![fetch], b"", 4).unwrap().bulk, b"\0ab\0");
        run(&mut shard, vec![Op::PunchDkeysFrom { unit, from: 2 }], b"", 5).unwrap();
        assert_eq!(shard.units().count(), 0, "an object without dkeys is gone");
    }

    #[test]
    fn zeros_fill_and_kinds_stay() {
        let unit = types::Oid::generate(0, 1, ObjType::ArrayByte, ObjClass::S1, 0).first_unit();
        let dkey = &[1, 0, 0, 0, 0, 0, 0, 0];
        let update = |value| {
            let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
            Op::Update { unit, dkey, cond: Cond::NONE, iods }
        };
        let mut shard = ContShard::default();
        let recx = Recx { index: 1, count: 1 };
        run(&mut shard, vec![write(unit, dkey, Cond::NONE, recx)], b"x", 1).unwrap();
        let zero = |record_bytes| {
            let recxs = vec![Recx { index: 0, count: 3 }];
            vec![update(UpdateValue::Zero { record_bytes, recxs })]
        };
        run(&mut shard, zero(1), b"", 2).unwrap();
        let want = FetchWant::Array { record_bytes: 1, recxs: vec![Recx { index: 0, count: 3 }] };
        let iods = vec![FetchIod { akey: b"", want }];
        let fetch = Op::Fetch { unit, dkey, cond: Cond::NONE, iods };
        assert_eq!(run(&mut shard, vec![fetch], b"", 3).unwrap().bulk, b"\0x\0");
        let before = shard.clone();
        for ops in [zero(2), vec![update(UpdateValue::Inline(b"v"))]] {
            let refused = run(&mut shard, ops, b"", 4);
            assert_eq!(refused.map_err(|error| error.code), Err(Code::Inval));
            assert_eq!(shard, before);
        }
    }

    #[test]
    fn listings_go_on_from_their_anchor() {
        let unit = types::Oid::generate(0, 1, ObjType::MultiHashed, ObjClass::S1, 0).first_unit();
        let mut shard = ContShard::default();
        for name in [&b"a"[..], b"b", b"c", b"d", b"e"] {
            let value = UpdateValue::Inline(name);
            let iods = vec![UpdateIod { akey: b"i", cond: Cond::NONE, value }];
            run(&mut shard, vec![Op::Update { unit, dkey: name, cond: Cond::NONE, iods }], b"", 1)
                .unwrap();
        }
        let mut seen = Vec::new();
        let mut anchor = Vec::new();
        loop {
            let scope =
                ListScope::Dkeys { value_of: Some(b"i"), follow: false, hash_range: (0, u64::MAX) };
            let list = Op::List { unit, scope, anchor: &anchor, count_max: 2, bytes_max: 1 };
            let outcome = run(&mut shard, vec![list], b"", 2).unwrap();
            let reply: BatchReply<'_> = wire::decode(&outcome.reply).unwrap();
            let OpReply::Listed { items, anchor: next, .. } = &reply.ops[0] else {
                panic!("not a listing");
            };
            for item in items {
                let Listed::Entry { key, value, .. } = item else { panic!("no value") };
                assert_eq!(key, value);
                seen.push(key.to_vec());
            }
            if next.is_empty() {
                break;
            }
            anchor = next.to_vec();
        }
        seen.sort();
        assert_eq!(seen, [b"a", b"b", b"c", b"d", b"e"]);
    }
}
