//! Reading: a [`View`] is a look at one container between two changes.
//!
//! A view borrows the shard's state; no await may happen while it lives. What it returns is
//! owned, except the value of [`View::value`], which is the hot path.

use std::cell::Ref;
use std::rc::Rc;

use types::{Code, Epoch, Error, Key, ObjType, Result, Unit, limits};
use wire::obj::{
    ARRAY_RECORD, BEYOND, Cond, FetchIod, FetchWant, Fetched, FetchedIod, ObjectStat, Op,
    QueryFlags, ReadCheck, Recx, Tail,
};
use wire::spread::Spread;
use wire::walk::walk;

use crate::check;
use crate::data_area::Core;
use crate::index::Container;
use crate::index::at::{ArrayRef, ObjectAt};
use crate::index::extent::{ArrayValue, ReadPart};
use crate::index::slot::{AkeyRef, DkeyRef};
use crate::segments::{CodedPart, Segments};
use crate::spread;

/// A look at one container between two changes; nothing may be awaited while it lives.
pub struct View<'a> {
    pub(crate) cont: Ref<'a, Container>,
    /// A snapshot, or zero for the present.
    pub(crate) at: Epoch,
    pub(crate) core: &'a Rc<Core>,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View(container {})", self.cont.id)
    }
}

/// What was found at one akey; the owned form of [`FetchedIod`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchedOwned {
    /// Epoch of the newest change; [`Epoch::ZERO`] when absent.
    pub epoch: Epoch,
    pub value: FetchedValue,
}

/// A fetched value; the owned form of [`Fetched`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FetchedValue {
    /// No such akey.
    Absent,
    Inline(Box<[u8]>),
    /// A single value in the segments, if it fitted.
    Single {
        bytes: u64,
        /// False when it was longer than the caller's room, or not asked for.
        in_bulk: bool,
    },
    /// Records, in the segments.
    Array {
        /// Size of a record.
        record_bytes: u32,
        /// One past the last written record.
        end: u64,
    },
    /// Records, in the segments unless there are holes that the caller must hear of first.
    Sparse {
        /// Size of a record.
        record_bytes: u32,
        /// One past the last written record.
        end: u64,
        /// What of the asked-for ranges was never written.
        holes: Vec<Recx>,
    },
}

impl FetchedOwned {
    /// The form that goes on the wire.
    pub fn as_wire(&self) -> FetchedIod<'_> {
        let value = match &self.value {
            FetchedValue::Absent => Fetched::Absent,
            FetchedValue::Inline(bytes) => Fetched::Inline(bytes),
            FetchedValue::Single { bytes, in_bulk } => {
                Fetched::Single { bytes: *bytes, in_bulk: *in_bulk }
            }
            FetchedValue::Array { record_bytes, end } => {
                Fetched::Array { record_bytes: *record_bytes, end: *end }
            }
            FetchedValue::Sparse { record_bytes, end, holes } => {
                Fetched::Sparse { record_bytes: *record_bytes, end: *end, holes: holes.clone() }
            }
        };
        FetchedIod { epoch: self.epoch, value }
    }
}

/// Answer to a query; the owned form of [`wire::obj::FoundKey`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundOwned {
    /// The dkey found or given.
    pub dkey: Key,
    /// The akey found or given.
    pub akey: Key,
    /// The range found, one extent.
    pub recx: Option<Recx>,
    /// Size of its records; 0 without a range.
    pub record_bytes: u32,
}

impl FoundOwned {
    /// The form that goes on the wire.
    pub fn as_wire(&self) -> wire::obj::FoundKey<'_> {
        wire::obj::FoundKey {
            dkey: &self.dkey,
            akey: &self.akey,
            recx: self.recx,
            record_bytes: self.record_bytes,
        }
    }
}

impl View<'_> {
    pub(crate) fn object(&self, unit: Unit) -> Option<ObjectAt<'_>> {
        self.cont.object_at(unit, self.at)
    }

    /// Checks a batch, and has `each` look at every op for itself, all in one pass; returns what it looked at. In the order in which things may be wrong: `Moved`
    /// for what is to be looked for in another unit, `TxRestart` for what was read, the first condition that does not hold, and
    /// the first error of `each`. It is called for ops whose conditions hold, and those before, too. A snapshot has places only: it does not change, and conditions
    /// of fetches are met where they are read.
    pub fn check_each<'o, 'a>(
        &self,
        checks: &[ReadCheck<'_>],
        ops: &'o [Op<'a>],
        mut each: impl FnMut(&'o Op<'a>) -> Result<()>,
    ) -> Result<()> {
        spread::check_reads((&self.cont, self.at), checks, ops)?;
        let has_changed = |check: &ReadCheck<'_>| check::epoch_of(&self.cont, check) != check.seen;
        let mut wrong = match checks.iter().any(has_changed) {
            true => Err(Error::bare(Code::TxRestart)),
            false => Ok(()),
        };
        let mut looked = Ok(());
        for (at, op) in walk(ops).enumerate() {
            spread::check_op((&self.cont, self.at), op, ops)?;
            if wrong.is_ok() && self.at == Epoch::ZERO {
                wrong = check::check_op(&self.cont, op, &ops[..at]);
            }
            if wrong.is_ok() && looked.is_ok() {
                looked = each(op);
            }
        }
        wrong.and(looked)
    }

    /// Reads akeys of a dkey. Values that belong in the bulk are added to `segments`, in order.
    ///
    /// `NonExist` or `Exist` when a condition does not hold; `Inval` for the wrong kind of value
    /// or record size, ranges that overflow, or more than [`limits::BULK_BYTES_MAX`] in all;
    /// `Csum` when something asked for is known to be damaged.
    pub fn fetch(
        &self,
        unit: Unit,
        dkey: &[u8],
        cond: Cond,
        iods: &[FetchIod<'_>],
        segments: &mut Segments,
    ) -> Result<Vec<FetchedOwned>> {
        self.core.activity.note();
        crate::keys::check_dkey(unit, dkey)?;
        segments.kind = self.cont.sums.kind;
        let object = self.object(unit);
        let found = object.and_then(|object| object.dkey(dkey));
        check::check_common(object.is_some(), found, cond)?;
        let mut out = Vec::with_capacity(iods.len());
        let data_wanted = !leaves_data_out(found, iods)?;
        for iod in iods {
            let value = found.and_then(|dkey| dkey.akey(iod.akey));
            check::check_akey(value, cond)?;
            check::check_want(value, &iod.want)?;
            let of = (unit, dkey, iod.akey);
            let mut fetched = match data_wanted {
                true => self.fetch_one(of, value, &iod.want, segments)?,
                false => self.fetch_one(of, value, &FetchWant::Probe, segments)?,
            };
            if let FetchWant::Sparse { recxs, .. } = &iod.want
                && let Some(array) = value.and_then(|value| value.array())
            {
                let holes = holes_of(array, recxs)?;
                let (record_bytes, end) = (array.record_bytes(), array.end());
                fetched.value = FetchedValue::Sparse { record_bytes, end, holes };
            }
            out.push(fetched);
        }
        Ok(out)
    }

    fn fetch_one(
        &self,
        of: (Unit, &[u8], &[u8]),
        value: Option<AkeyRef<'_>>,
        want: &FetchWant,
        segments: &mut Segments,
    ) -> Result<FetchedOwned> {
        let owner = (self.cont.id, of.0.object);
        let Some(value) = value else {
            if let FetchWant::Array { record_bytes, recxs }
            | FetchWant::Sparse { record_bytes, recxs, .. } = want
            {
                // Nothing is there: all asked-for records are zeros.
                let empty = ArrayValue::new((*record_bytes).max(1));
                if *record_bytes > 0 {
                    self.read_array(of, ArrayRef::Head(&empty), recxs, segments)?;
                }
            }
            return Ok(FetchedOwned { epoch: Epoch::ZERO, value: FetchedValue::Absent });
        };
        if let Some(array) = value.array() {
            if let FetchWant::Array { recxs, .. } | FetchWant::Sparse { recxs, .. } = want {
                self.read_array(of, array, recxs, segments)?;
            }
            let (record_bytes, end) = (array.record_bytes(), array.end());
            let value = FetchedValue::Array { record_bytes, end };
            return Ok(FetchedOwned { epoch: array.epoch(), value });
        }
        let fetched = match (value, want) {
            (value, FetchWant::Single { bytes_max, inline_bytes_max }) => {
                let bytes = value.single_bytes();
                match value {
                    AkeyRef::Inline(_, data)
                        if bytes <= *bytes_max && bytes <= *inline_bytes_max as u64 =>
                    {
                        FetchedValue::Inline(data.into())
                    }
                    _ if bytes > *bytes_max => FetchedValue::Single { bytes, in_bulk: false },
                    AkeyRef::Inline(_, data) => {
                        check_room(segments, bytes)?;
                        segments.push_bytes(data);
                        FetchedValue::Single { bytes, in_bulk: true }
                    }
                    _ => {
                        check_room(segments, bytes)?;
                        let mut pushed = Ok(());
                        value.runs(|run| {
                            if pushed.is_ok() {
                                pushed = segments.push_owned(self.core, run, owner);
                            }
                        });
                        pushed?;
                        FetchedValue::Single { bytes, in_bulk: true }
                    }
                }
            }
            (value, _) => FetchedValue::Single { bytes: value.single_bytes(), in_bulk: false },
        };
        Ok(FetchedOwned { epoch: value.epoch(), value: fetched })
    }

    fn read_array(
        &self,
        (unit, dkey, akey): (Unit, &[u8], &[u8]),
        array: ArrayRef<'_>,
        recxs: &[Recx],
        segments: &mut Segments,
    ) -> Result<()> {
        let record_bytes = array.record_bytes();
        let owner = (self.cont.id, unit.object);
        crate::changes::check_recxs(record_bytes, recxs)?;
        for recx in recxs {
            let bytes = recx.count.checked_mul(record_bytes as u64);
            check_room(segments, bytes.unwrap_or(u64::MAX))?;
            let mut pushed = Ok(());
            array.read(recx.index, recx.count, |part| match part {
                ReadPart::Inline(bytes) => segments.push_bytes(bytes),
                ReadPart::Blocks(run) if pushed.is_ok() => {
                    pushed = segments.push_owned(self.core, run, owner);
                }
                ReadPart::Blocks(_) => {}
                ReadPart::Coded(stripe, part) => {
                    let cont = self.cont.id;
                    let (dkey, akey) = (dkey.to_vec(), akey.to_vec());
                    let (at, bytes) = (part.at, part.bytes);
                    segments.push_coded(CodedPart { cont, unit, dkey, akey, stripe, at, bytes });
                }
                ReadPart::Zero(bytes) | ReadPart::Hole(bytes) => segments.push_zeros(bytes),
            });
            pushed?;
        }
        Ok(())
    }

    /// Epoch and bytes of a single value kept in memory; `None` when there is no such value or
    /// it is elsewhere. The hot path for directory entries.
    pub fn value(&self, unit: Unit, dkey: &[u8], akey: &[u8]) -> Option<(Epoch, &[u8])> {
        match self.object(unit)?.dkey(dkey)?.akey(akey)? {
            AkeyRef::Inline(epoch, value) => Some((epoch, value)),
            _ => None,
        }
    }

    /// True when the first unit of a progressive array is marked: other units may hold chunks, too. False for units of all
    /// other objects.
    pub fn reaches_beyond(&self, unit: Unit) -> bool {
        unit.object.first_part_bytes().is_some()
            && self.value(unit, &ARRAY_RECORD, BEYOND).is_some()
    }

    /// True when the object holds at least one dkey here.
    pub fn has_object(&self, unit: Unit) -> bool {
        self.object(unit).is_some()
    }

    /// How far the dkeys of an object have moved, as this unit knows it.
    pub fn spread(&self, unit: Unit) -> Option<Spread> {
        spread::spread_of(&self.cont, unit, self.at)
    }

    /// True for the first unit of an object that is to spread, or to go on with it.
    pub fn wants_to_spread(&self, unit: Unit) -> bool {
        let Some(keys_max) = unit.object.small_keys_max() else { return false };
        let Some(object) = self.object(unit).filter(|_| unit.group == 0 && !unit.is_cell()) else {
            return false;
        };
        match self.spread(unit) {
            Some(spread) => !spread.is_over(),
            // The marker is none of them.
            None => object.facts().dkey_count > keys_max + 1,
        }
    }

    /// Facts about an object; all zero when it is not here.
    pub fn stat(&self, unit: Unit) -> ObjectStat {
        let Some(object) = self.object(unit) else { return ObjectStat::default() };
        let facts = object.facts();
        ObjectStat {
            tail: self.tail(unit).unwrap_or_default(),
            dkey_count: facts.dkey_count,
            counted_links: facts.counted_links,
            keys_epoch: facts.keys_epoch,
        }
    }

    /// Size of the object as an array; `None` when it is not here.
    pub fn tail(&self, unit: Unit) -> Option<Tail> {
        let object = self.object(unit)?;
        let (dkey_max, end) = match object.tail() {
            Some((dkey, end)) => (Some(dkey), end),
            None => (None, 0),
        };
        let facts = object.facts();
        Some(Tail { dkey_max, end, epoch: facts.epoch, bytes_used: facts.bytes_used })
    }

    /// Finds the least or greatest dkey, akey and record range, as `flags` say; what is not to
    /// be found is given. A dkey or akey counts only if the rest is found under it.
    ///
    /// `Inval` for a greatest or least dkey of an object with hashed dkeys.
    pub fn query(
        &self,
        unit: Unit,
        flags: QueryFlags,
        dkey: &[u8],
        akey: &[u8],
    ) -> Result<Option<FoundOwned>> {
        let Some(object) = self.object(unit) else { return Ok(None) };
        let numbers = matches!(unit.obj_type(), Some(ObjType::AkeyU64 | ObjType::MultiU64));
        if !flags.has(QueryFlags::DKEY) {
            crate::keys::check_dkey(unit, dkey)?;
            let found = object.dkey(dkey);
            return Ok(found.and_then(|found| find_in(found, dkey, akey, flags, numbers)));
        }
        let down = object.dkeys_down().ok_or_else(|| {
            Error::inval(format!("object {unit} has hashed dkeys, which have no order"))
        })?;
        let mut walk = if flags.has(QueryFlags::MAX) { down } else { object.dkeys() };
        Ok(walk.find_map(|(name, dkey)| {
            name.with_bytes(|bytes| find_in(dkey, bytes, akey, flags, numbers))
        }))
    }
}

/// True when a hole was found that the caller must hear of before data come.
fn leaves_data_out(found: Option<DkeyRef<'_>>, iods: &[FetchIod<'_>]) -> Result<bool> {
    for iod in iods {
        let FetchWant::Sparse { recxs, with_holes: false, .. } = &iod.want else { continue };
        let array = found.and_then(|dkey| dkey.akey(iod.akey)).and_then(|value| value.array());
        let any = match array {
            Some(array) => !holes_of(array, recxs)?.is_empty(),
            None => recxs.iter().any(|recx| recx.count > 0),
        };
        if any {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What of the ranges was never written, in their order.
fn holes_of(array: ArrayRef<'_>, recxs: &[Recx]) -> Result<Vec<Recx>> {
    let record = array.record_bytes() as u64;
    crate::changes::check_recxs(array.record_bytes(), recxs)?;
    let mut holes = Vec::new();
    for recx in recxs {
        let mut at = recx.index;
        array.read(recx.index, recx.count, |part| {
            let (bytes, hole) = match part {
                ReadPart::Inline(data) => (data.len() as u64, false),
                ReadPart::Blocks(run) => (run.bytes, false),
                ReadPart::Zero(bytes) | ReadPart::Coded(_, crate::blocks::Run { bytes, .. }) => {
                    (bytes, false)
                }
                ReadPart::Hole(bytes) => (bytes, true),
            };
            let count = bytes / record;
            if hole {
                holes.push(Recx { index: at, count });
            }
            at += count;
        });
    }
    Ok(holes)
}

fn check_room(segments: &Segments, bytes: u64) -> Result<()> {
    if segments.bytes().saturating_add(bytes) > limits::BULK_BYTES_MAX as u64 {
        return Err(Error::new(
            Code::Inval,
            format!("one request reads at most {} bytes", limits::BULK_BYTES_MAX),
        ));
    }
    Ok(())
}

fn find_in(
    found: DkeyRef<'_>,
    dkey: &[u8],
    akey: &[u8],
    flags: QueryFlags,
    numbers: bool,
) -> Option<FoundOwned> {
    let max = flags.has(QueryFlags::MAX);
    let recx_of = |value: AkeyRef<'_>| {
        let array = value.array()?;
        let shown = if max { array.last()? } else { array.first()? };
        Some((Recx { index: shown.index, count: shown.count }, shown.record_bytes))
    };
    let answer = |akey: &[u8], value: Option<AkeyRef<'_>>| {
        let range = match flags.has(QueryFlags::RECX) {
            true => Some(recx_of(value?)?),
            false => None,
        };
        Some(FoundOwned {
            dkey: Key::new(dkey),
            akey: Key::new(akey),
            recx: range.map(|(recx, _)| recx),
            record_bytes: range.map_or(0, |(_, record_bytes)| record_bytes),
        })
    };
    if !flags.has(QueryFlags::AKEY) {
        return answer(akey, found.akey(akey));
    }
    let number = |akey: &[u8]| {
        let value = if numbers { crate::index::object::number_of(akey) } else { None };
        (value, Key::new(akey))
    };
    let candidates = found
        .akeys()
        .filter(|(_, value)| !flags.has(QueryFlags::RECX) || recx_of(*value).is_some());
    let (akey, value) = if max {
        candidates.max_by_key(|(akey, _)| number(akey))?
    } else {
        candidates.min_by_key(|(akey, _)| number(akey))?
    };
    answer(akey, Some(value))
}
