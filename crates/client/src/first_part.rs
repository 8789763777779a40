//! Progressive arrays: the first part in the first group, all beyond it over all groups.
//!
//! Whether an array reaches beyond its first part is written down with the first part: an akey of
//! dkey 0 in the object's first unit, the *mark*. It is there before the first byte beyond, is never taken
//! away while the object lives, and is found by the object's id alone, whatever becomes of names. So one request to the
//! first unit tells the size of an array without a mark; an array with one is asked about everywhere, as any striped
//! one.
//!
//! Invariants:
//! - Nothing is written beyond the first part before the mark is acknowledged, and no crash that a pool survives takes a
//!   mark back, whatever its durability.
//! - To ask all units is always right; to ask the first alone only in the request that finds no mark.

use crate::array::{ArrayObj, Loads};
use crate::cont::Container;
use crate::read_from::ReadFrom;
use futures_util::future::try_join_all;
use std::time::Duration;
use types::{Code, Durability, Error, Oid, Result, Unit};
use wire::obj::{
    ARRAY_RECORD, BEYOND, Cond, FetchIod, FetchWant, Fetched, Op, OpReply, Recx, Tail, UpdateIod,
    UpdateValue,
};

/// Marks remembered, by object; a small direct-mapped table.
const MARKS_KNOWN: usize = 1024;

/// Objects that are known to have a mark. Marks stay, so what is known stays true.
#[derive(Default)]
pub(crate) struct KnownMarks(Vec<Oid>);

impl KnownMarks {
    fn slot(oid: Oid) -> usize {
        types::hash::mix2(oid.hi, oid.lo) as usize % MARKS_KNOWN
    }

    fn has(&self, oid: Oid) -> bool {
        self.0.get(KnownMarks::slot(oid)) == Some(&oid)
    }

    fn add(&mut self, oid: Oid) {
        if self.0.is_empty() {
            self.0.resize(MARKS_KNOWN, Oid::NIL);
        }
        self.0[KnownMarks::slot(oid)] = oid;
    }
}

/// Asks for the mark.
pub(crate) fn fetch_mark(oid: Oid) -> Op<'static> {
    let want = FetchWant::Single { bytes_max: 8, inline_bytes_max: 8 };
    let iods = vec![FetchIod { akey: BEYOND, want }];
    Op::Fetch { unit: oid.first_unit(), dkey: &ARRAY_RECORD, cond: Cond::NONE, iods }
}

/// The answer to that.
pub(crate) fn is_marked(reply: Option<&OpReply<'_>>) -> Result<bool> {
    match reply {
        Some(OpReply::Fetched(iods)) => {
            Ok(iods.first().is_some_and(|iod| iod.value != Fetched::Absent))
        }
        _ => Err(Error::new(Code::Proto, "a fetch got an answer of another kind")),
    }
}

impl Container {
    /// True when an array may have something beyond what its first unit tells, as far as is known without asking.
    pub(crate) fn may_reach_beyond(&self, oid: Oid) -> bool {
        oid.first_part_bytes().is_none() || self.marks().borrow().has(oid)
    }

    /// What the first units of progressive arrays know, by one request to each target that has some of them: all that there is to know of those without
    /// a mark. `None` for those with one, and for arrays of other classes.
    pub async fn tails_of_first(&self, oids: &[Oid]) -> Result<Vec<Option<Tail>>> {
        let mut places = Vec::with_capacity(oids.len());
        for (at, oid) in oids.iter().enumerate().filter(|(_, oid)| !self.may_reach_beyond(**oid)) {
            self.learn(*oid).await;
            places.push((oid.first_unit(), at));
        }
        let asked = self.lots(places)?.into_iter().map(|lot| async move {
            let mut batch = self.batch();
            for (unit, _) in &lot {
                batch.op_of_unit(fetch_mark(unit.object));
                batch.op_of_unit(Op::Stat { unit: *unit });
            }
            batch.may_ask_members();
            let result = batch.run().await?;
            let mut told = Vec::with_capacity(lot.len());
            let mut replies = result.replies()?.into_iter();
            for (unit, at) in lot {
                told.push((at, self.unmarked(unit.object, &mut replies)?));
            }
            Ok::<_, Error>(told)
        });
        let mut tails = vec![None; oids.len()];
        for (at, tail) in try_join_all(asked).await?.into_iter().flatten() {
            tails[at] = tail;
        }
        Ok(tails)
    }

    /// From the replies to [`fetch_mark`] and to a stat of an array's first unit: what that says, or `None` and a note where there is a mark.
    fn unmarked<'r>(
        &self,
        oid: Oid,
        replies: &mut impl Iterator<Item = OpReply<'r>>,
    ) -> Result<Option<Tail>> {
        let has_mark = is_marked(replies.next().as_ref())?;
        let Some(OpReply::Stat(stat)) = replies.next() else {
            return Err(Error::new(Code::Proto, "a target gave an answer of the wrong kind"));
        };
        if has_mark {
            self.note_mark(oid);
        }
        Ok((!has_mark).then_some(stat.tail))
    }

    pub(crate) fn note_mark(&self, oid: Oid) {
        self.marks().borrow_mut().add(oid);
    }
}

impl ArrayObj {
    /// Records of the first part; none: the array is not progressive.
    pub(crate) fn first_records(&self) -> u64 {
        let bytes = self.oid.first_part_bytes().unwrap_or(0);
        bytes / self.record_bytes as u64
    }

    /// The unit that holds a record of the chunk `dkey`, and those after it in the chunk and in the same part.
    pub(crate) fn unit_at(&self, dkey: u64, record: u64) -> Result<Unit> {
        let index = (dkey - 1).saturating_mul(self.chunk_records).saturating_add(record);
        if index < self.first_records() {
            return Ok(self.oid.first_unit());
        }
        self.cont.known_unit_of(self.oid, &dkey.to_le_bytes())
    }

    /// The unit that holds a record of the chunk `dkey`, which is at least 1, and those after it in the chunk and in the same part.
    ///
    /// Errors: as [`Container::unit_of`].
    pub async fn unit_of(&self, dkey: u64, record: u64) -> Result<Unit> {
        self.cont.learn(self.oid).await;
        self.unit_at(dkey, record)
    }

    /// True when a progressive array has, or is to have, records from `end` - 1 on beyond its first part, and nobody
    /// knows of a mark.
    fn wants_mark(&self, end: u64) -> Result<bool> {
        // Engines fold stripes beyond a first part only, so they must be told also where there is one group.
        let matters = || {
            let is_coded = self.oid.cells().is_some();
            Ok::<_, Error>(is_coded || self.cont.layout(self.oid)?.group_count() > 1)
        };
        Ok(end > self.first_records() && !self.cont.may_reach_beyond(self.oid) && matters()?)
    }

    /// Before anything is written to records below `end`: sees to the mark where it has to be.
    pub(crate) async fn mark_if_beyond(&self, end: u64) -> Result<()> {
        if self.wants_mark(end)? { Box::pin(self.mark()).await } else { Ok(()) }
    }

    /// Marks a progressive array as one that reaches beyond its first part.
    pub async fn mark(&self) -> Result<()> {
        // That it is there says it; it is none of the file's bytes. Of what has an erasure code it tells the first chunk, as a
        // dkey, of which nothing is in the first part.
        let first = self.first_records().div_ceil(self.chunk_records) + 1;
        let (first, is_coded) = (first.to_le_bytes(), self.oid.cells().is_some());
        let value = || UpdateValue::Inline(if is_coded { &first } else { &[] });
        let iods = || vec![UpdateIod { akey: BEYOND, cond: Cond::AKEY_INSERT, value: value() }];
        let env = self.cont.client().env();
        loop {
            let mut batch = self.cont.batch();
            for unit in self.marked_units()? {
                let (dkey, cond, iods) = (&ARRAY_RECORD[..], Cond::NONE, iods());
                batch.op_of_unit(Op::Update { unit, dkey, cond, iods });
            }
            match batch.run().await {
                Err(error) if error.code == Code::TxRestart => {
                    env.sleep(Duration::from_micros(env.random_u64() % 1000)).await;
                }
                // Somebody else has marked it.
                Err(error) if error.code == Code::Exist => break,
                other => {
                    other?;
                    break;
                }
            }
        }
        self.cont.note_mark(self.oid);
        Ok(())
    }

    /// The first unit, which is asked for the mark. In a pool that acknowledges before it writes a second one: what two
    /// targets decide together is written first, so that no crash of one target takes the mark from data on others.
    fn marked_units(&self) -> Result<Vec<Unit>> {
        let mut units = self.cont.known_units(self.oid)?;
        let is_early = self.cont.pool().info().durability == Durability::Relaxed;
        units.truncate(1 + is_early as usize);
        Ok(units)
    }

    /// True when a progressive array is marked; asks, unless it is known.
    pub async fn is_marked(&self) -> Result<bool> {
        if self.oid.first_part_bytes().is_none() {
            return Ok(false);
        }
        if self.cont.may_reach_beyond(self.oid) {
            return Ok(true);
        }
        let mut batch = self.cont.batch();
        batch.op_of_unit(fetch_mark(self.oid));
        let marked = is_marked(batch.run().await?.replies()?.first())?;
        if marked {
            self.cont.note_mark(self.oid);
        }
        Ok(marked)
    }

    /// Units in which there may be records: those of all groups, or of a progressive array without a mark the first alone.
    pub async fn units_in_use(&self) -> Result<Vec<Unit>> {
        self.cont.learn(self.oid).await;
        if self.cont.may_reach_beyond(self.oid) || self.is_marked().await? {
            return self.cont.known_units(self.oid);
        }
        Ok(vec![self.oid.first_unit()])
    }

    /// What the first unit knows, of a progressive array of which no mark is known; `None` when there is one.
    pub(crate) async fn tail_of_first(&self, from: ReadFrom) -> Result<Option<Tail>> {
        let mut batch = self.cont.batch();
        batch.op_of_unit(fetch_mark(self.oid));
        batch.op_of_unit(Op::Stat { unit: self.oid.first_unit() });
        if from == ReadFrom::Members {
            batch.may_ask_members();
        }
        let result = batch.run().await?;
        self.cont.unmarked(self.oid, &mut result.replies()?.into_iter())
    }

    /// True when a read up to `end` may be one of the first unit alone.
    pub(crate) fn may_be_small(&self, end: u64) -> bool {
        end > self.first_records() && !self.cont.may_reach_beyond(self.oid)
    }

    /// Reads, asking the first unit first: where it has no mark the rest reads as zero. Returns a lower bound of the
    /// size, and the size if it is known.
    pub(crate) async fn read_first(&self, loads: Loads<&mut [u8]>) -> Result<(u64, Option<u64>)> {
        let is_first = |unit: Unit| unit == self.oid.first_unit();
        let (near, far): (Vec<_>, Vec<_>) =
            loads.into_iter().partition(|(load, _)| is_first(load.unit));
        let mut near = near.into_iter();
        let mut size_min = 0;
        let tail = match near.next() {
            Some((load, slices)) => {
                let (end, tail) = self.read_load_marked(load, slices).await?;
                size_min = end;
                tail
            }
            None => self.tail_of_first(ReadFrom::Members).await?,
        };
        let rest = near.map(|(load, slices)| self.read_load(None, load, slices, false));
        for (end, _) in try_join_all(rest).await? {
            size_min = size_min.max(end);
        }
        if let Some(tail) = tail {
            for (_, slices) in far {
                slices.into_iter().for_each(|slice| slice.fill(0));
            }
            let size = self.size_from_tail(&tail).max(size_min);
            return Ok((size, Some(size)));
        }
        let rest = far.into_iter().map(|(load, slices)| self.read_load(None, load, slices, false));
        for (end, _) in try_join_all(rest).await? {
            size_min = size_min.max(end);
        }
        Ok((size_min, None))
    }

    /// Cuts an array of which no mark is known to `size` records, all in the first part; true when there was a mark,
    /// so that the other units are to be cut, too.
    pub(crate) async fn cut_first(&self, size: u64) -> Result<bool> {
        let edge = self.edge(size);
        let mut batch = self.cont.batch();
        batch.op_of_unit(fetch_mark(self.oid));
        self.cut_unit(&mut batch, self.oid.first_unit(), size, &edge)?;
        let marked = is_marked(batch.run().await?.replies()?.first())?;
        if marked {
            self.cont.note_mark(self.oid);
        }
        Ok(marked)
    }
}

/// The end of the last of some ranges that is not empty.
pub(crate) fn end_of(ranges: &[Recx]) -> u64 {
    let ends = ranges.iter().filter(|range| range.count > 0);
    ends.map(|range| range.index.saturating_add(range.count)).max().unwrap_or(0)
}
