//! `daos_obj_fetch`: akeys of a dkey, read together.
//!
//! All rooms of a request are one row of memory, which the answer fills from its start. Where the
//! answer may not lie as the rooms do, it goes to memory of ours first, and what was found is copied
//! ([`Row::deliver`]): the caller's memory keeps its bytes where there is nothing. That is so after
//! a single value, which may be absent or shorter than its room, and for records with holes. Large
//! reads of records go straight to the caller's memory when a target says that there are none.

use super::iod::{self, Iods, Shape, Supply};
use super::{COND_PER_AKEY, ObjHandle, conds, enter, value_akey_in};
use crate::ctypes::{
    d_sg_list_t, daos_event_t, daos_handle_t, daos_iod_t, daos_iom_t, daos_key_t, daos_recx_t,
};
use crate::errno::Sign;
use crate::event::{fail, launch};
use crate::tx::TxHandle;
use crate::{guard, sgl};
use client::{Anchor, FetchedValue, Object, Tx};
use types::{Code, Error, Oid, Result, limits};
use wire::obj::{Cond, FetchIod, FetchWant, Recx};

/// Conditions a fetch may name.
const ALLOWED: Cond = Cond(Cond::DKEY_FETCH.0 | Cond::AKEY_FETCH.0);
/// A single value up to this size comes in the message when it is the only thing asked for.
const INLINE_BYTES_MAX: u32 = 1024;
/// The same when there are others.
const INLINE_AMONG_OTHERS_BYTES_MAX: u32 = limits::INLINE_BYTES_MAX as u32;
/// Records up to this size in all are copied rather than asked for twice if there are holes.
const COPIED_BYTES_MAX: usize = 64 << 10;
/// `DAOS_IOMF_DETAIL`: all ranges, not only the first and the last.
const IOMF_DETAIL: u32 = 1;
/// Ranges asked for at a time.
const RANGES_PER_PAGE: u32 = 1024;

/// What is known of one descriptor.
struct Asked<'a> {
    akey: &'a [u8],
    shape: Shape,
    recxs: Vec<Recx>,
    /// The akey must exist.
    must_exist: bool,
    /// There is memory to fill.
    wanted: bool,
    /// Size of the value or of a record; 0 when there is none.
    found_bytes: u64,
    /// Bytes up to the last that were filled.
    filled: usize,
    /// Bytes of a hole behind them.
    hole_behind: usize,
}

/// The rooms of one request, and whose they are.
#[derive(Default)]
struct Row<'a> {
    iods: Vec<FetchIod<'a>>,
    owners: Vec<Owner>,
    room: Vec<&'a mut [u8]>,
    bytes: usize,
}

/// Whose room it is: number of the descriptor, bytes, and what is to come into it.
struct Owner {
    asked: usize,
    room: usize,
    shape: Shape,
    /// Records to come.
    recxs: Vec<Recx>,
}

/// Reads `nr` akeys of a dkey. `iod_size` becomes what is stored, 0 for nothing. Without memory
/// only that is told. Memory of what does not exist stays as it is.
///
/// `-DER_REC2BIG` when something does not fit its memory, or records have another size than the
/// one given, with `iod_size` set; `-DER_NONEXIST` when a condition does not hold.
///
/// # Safety
/// All that is pointed to stays there, used by nobody else, until completion.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daos_obj_fetch(
    oh: daos_handle_t,
    th: daos_handle_t,
    flags: u64,
    dkey: *mut daos_key_t,
    nr: u32,
    iods: *mut daos_iod_t,
    sgls: *mut d_sg_list_t,
    ioms: *mut daos_iom_t,
    ev: *mut daos_event_t,
) -> i32 {
    let iods = Iods { first: iods, count: nr, sgls };
    let arguments = guard::catch(|| {
        let handle = ObjHandle::of(oh)?;
        let tx = TxHandle::of(th, &handle.cont)?;
        iods.check()?;
        // SAFETY: the caller's promise.
        let dkey: &'static [u8] = unsafe { sgl::key(dkey) }?;
        Ok((handle, tx, conds(flags, ALLOWED)?, dkey))
    });
    let (handle, tx, cond, dkey) = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return fail(ev, Sign::Der, error),
    };
    let per_akey = flags & COND_PER_AKEY != 0;
    launch(ev, Sign::Der, move |local| async move {
        let (object, tx) = enter(&handle, &tx, &local)?;
        // SAFETY: the caller's promise.
        let mut asked = unsafe { read_iods(handle.oid, &iods, per_akey) }?;
        let looked = probe_unknown(&object, tx.as_ref(), cond, dkey, &iods, &mut asked).await;
        let fetched = match looked {
            Ok(()) => fetch(&object, tx.as_ref(), cond, dkey, &iods, &mut asked).await,
            Err(error) => Err(error),
        };
        let fetched = match fetched {
            Err(error) if error.code == Code::Inval => {
                match why_invalid(&object, dkey, &iods, &mut asked, error).await {
                    // Records have another size than the caller thought: perhaps they fit.
                    Err(error) if error.code == Code::RecordTooBig => {
                        fetch(&object, tx.as_ref(), cond, dkey, &iods, &mut asked).await
                    }
                    outcome => outcome,
                }
            }
            outcome => outcome,
        };
        if matches!(&fetched, Err(error) if error.code != Code::RecordTooBig) {
            return fetched;
        }
        // SAFETY: the caller's promise; no slice is held any more.
        unsafe { tell(&iods, &asked, fetched.is_ok()) };
        fetched?;
        if !ioms.is_null() {
            for (at, one) in asked.iter().enumerate() {
                // SAFETY: as many as iods, by the caller's promise.
                let iom = unsafe { &mut *ioms.add(at) };
                // SAFETY: the caller's promise.
                unsafe { map_ranges(&object, tx.as_ref(), dkey, one, iom) }.await?;
            }
        }
        Ok(())
    })
}

/// # Safety
/// Descriptors live, unchanged but by us, for `'a`.
unsafe fn read_iods<'a>(oid: Oid, iods: &Iods, per_akey: bool) -> Result<Vec<Asked<'a>>> {
    // SAFETY: the caller's promise.
    let all: &'a mut [daos_iod_t] = unsafe { iods.all() };
    let asked = all.iter().enumerate().map(|(at, iod)| {
        let shape = iod::shape(iod)?;
        // SAFETY: the caller's promise.
        let wanted = unsafe { sgl::room(iods.sgl(at)) }?.iter().any(|piece| !piece.is_empty());
        let recxs = match shape {
            // SAFETY: the caller's promise.
            Shape::Array if wanted || !iod.iod_recxs.is_null() => unsafe { iod::recxs(iod) }?,
            _ => Vec::new(),
        };
        let cond = if per_akey { conds(iod.iod_flags, Cond::AKEY_FETCH)? } else { Cond::NONE };
        Ok(Asked {
            // SAFETY: the caller's promise.
            akey: value_akey_in(oid, unsafe { sgl::key(&iod.iod_name) }?)?,
            shape,
            recxs,
            must_exist: cond.has(Cond::AKEY_FETCH),
            wanted,
            found_bytes: if shape == Shape::Array { iod.iod_size } else { 0 },
            filled: 0,
            hole_behind: 0,
        })
    });
    asked.collect()
}

/// Learns the record size of arrays that are to be read without the caller knowing it.
async fn probe_unknown(
    object: &Object,
    tx: Option<&Tx>,
    cond: Cond,
    dkey: &[u8],
    iods: &Iods,
    asked: &mut [Asked<'_>],
) -> Result<()> {
    let unknown: Vec<usize> = (0..iods.count as usize)
        .filter(|&at| {
            let one = &asked[at];
            one.wanted && one.shape == Shape::Array && one.found_bytes == 0
        })
        .collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let probes =
        unknown.iter().map(|&at| FetchIod { akey: asked[at].akey, want: FetchWant::Probe });
    let found = object.fetch(tx, cond, dkey, probes.collect(), &mut []).await?;
    for (at, value) in unknown.into_iter().zip(found) {
        match value {
            FetchedValue::Array { record_bytes, .. } => asked[at].found_bytes = record_bytes.into(),
            FetchedValue::Absent => asked[at].wanted = false,
            _ => return Err(Error::inval("the akey holds a single value, not an array")),
        }
    }
    Ok(())
}

/// Runs the requests of a fetch, one after the other; nearly always there is one.
async fn fetch(
    object: &Object,
    tx: Option<&Tx>,
    cond: Cond,
    dkey: &[u8],
    iods: &Iods,
    asked: &mut [Asked<'_>],
) -> Result<()> {
    let mut too_big = false;
    // SAFETY: the caller of `daos_obj_fetch` promises the memory until completion.
    let rows = unsafe { rows(iods, asked) }?;
    for mut row in rows {
        let found = row.fetch(object, tx, cond, dkey).await?;
        for (value, owner) in found.iter().zip(&row.owners) {
            let one = &mut asked[owner.asked];
            if *value == FetchedValue::Absent && one.must_exist {
                return Err(Error::new(Code::NonExist, "an akey that must exist does not"));
            }
            match value {
                FetchedValue::Absent => one.found_bytes = 0,
                FetchedValue::Inline(bytes) => {
                    one.found_bytes = bytes.len() as u64;
                    one.filled = bytes.len();
                }
                FetchedValue::Single { bytes, fitted } => {
                    one.found_bytes = *bytes;
                    if *fitted {
                        one.filled = *bytes as usize;
                    } else if one.wanted {
                        too_big = true;
                    }
                }
                FetchedValue::Array { record_bytes, end } => {
                    // Beyond the last record nothing is stored.
                    let beyond = one.recxs.iter().all(|recx| recx.index >= *end);
                    let nothing = beyond && !one.recxs.is_empty();
                    one.found_bytes = if nothing { 0 } else { (*record_bytes).into() };
                }
                FetchedValue::Sparse { record_bytes, holes, .. } => {
                    let record = u64::from(*record_bytes);
                    let behind = (hole_at_end(&owner.recxs, holes) * record) as usize;
                    if behind >= owner.room && owner.room > 0 {
                        one.hole_behind += owner.room;
                    } else {
                        one.filled += one.hole_behind + owner.room - behind;
                        one.hole_behind = behind;
                    }
                    one.found_bytes =
                        if one.filled == 0 && one.hole_behind > 0 { 0 } else { record };
                }
            }
        }
    }
    if too_big {
        return Err(Error::new(Code::RecordTooBig, "a value is longer than the memory for it"));
    }
    Ok(())
}

/// Records at the end of ranges that are a hole, of the holes in the order of the ranges.
fn hole_at_end(recxs: &[Recx], holes: &[Recx]) -> u64 {
    let mut holes = holes.iter().rev();
    let mut records = 0;
    for recx in recxs.iter().rev().filter(|recx| recx.count > 0) {
        match holes.next() {
            Some(hole) if hole.end() == recx.end() && hole.index >= recx.index => {
                records += hole.count;
                if hole.count < recx.count {
                    break;
                }
            }
            _ => break,
        }
    }
    records
}

/// Plans the requests. `RecordTooBig` when records do not fit their memory.
///
/// # Safety
/// The memory is there and used by nobody else for `'a`.
unsafe fn rows<'a>(iods: &Iods, asked: &mut [Asked<'a>]) -> Result<Vec<Row<'a>>> {
    let mut rows: Vec<Row<'a>> = vec![Row::default()];
    let inline = if asked.len() == 1 { INLINE_BYTES_MAX } else { INLINE_AMONG_OTHERS_BYTES_MAX };
    for (at, one) in asked.iter_mut().enumerate() {
        let akey = one.akey;
        if !one.wanted {
            push(&mut rows, FetchIod { akey, want: FetchWant::Probe }, at, 0, one.shape);
            continue;
        }
        // SAFETY: the caller's promise.
        let memory: Vec<&'a mut [u8]> = unsafe { sgl::room(iods.sgl(at)) }?;
        let memory_bytes: usize = memory.iter().map(|piece| piece.len()).sum();
        let mut memory = Supply::new(memory);
        if one.shape == Shape::Single {
            let room = memory_bytes.min(limits::BULK_BYTES_MAX);
            if last(&mut rows).bytes + room > limits::BULK_BYTES_MAX {
                rows.push(Row::default());
            }
            let want = FetchWant::Single { bytes_max: room as u64, inline_bytes_max: inline };
            push(&mut rows, FetchIod { akey, want }, at, room, one.shape);
            memory.take(room, &mut last(&mut rows).room)?;
            last(&mut rows).bytes += room;
            continue;
        }
        let record_bytes = iod::record_bytes(one.found_bytes)?;
        if iod::bytes_of(&one.recxs, record_bytes)? > memory_bytes {
            return Err(Error::new(Code::RecordTooBig, "the records do not fit the memory"));
        }
        let room = limits::BULK_BYTES_MAX - last(&mut rows).bytes;
        for (run, (recxs, bytes)) in
            iod::cut(&one.recxs, record_bytes, room).into_iter().enumerate()
        {
            if run > 0 {
                rows.push(Row::default());
            }
            if recxs.is_empty() && run == 0 && bytes == 0 && !one.recxs.is_empty() {
                continue;
            }
            let want = FetchWant::Sparse { record_bytes, recxs, with_holes: true };
            push(&mut rows, FetchIod { akey, want }, at, bytes, one.shape);
            memory.take(bytes, &mut last(&mut rows).room)?;
            last(&mut rows).bytes += bytes;
        }
    }
    rows.retain(|row| !row.iods.is_empty());
    Ok(rows)
}

fn last<'a, 'b>(rows: &'b mut Vec<Row<'a>>) -> &'b mut Row<'a> {
    if rows.is_empty() {
        rows.push(Row::default());
    }
    let at = rows.len() - 1;
    &mut rows[at]
}

fn push<'a>(rows: &mut Vec<Row<'a>>, iod: FetchIod<'a>, asked: usize, room: usize, shape: Shape) {
    let row = last(rows);
    let recxs = match &iod.want {
        FetchWant::Sparse { recxs, .. } => recxs.clone(),
        _ => Vec::new(),
    };
    row.iods.push(iod);
    row.owners.push(Owner { asked, room, shape, recxs });
}

impl<'a> Row<'a> {
    /// True when the data of the answer lie in the caller's memory as they belong, unless there
    /// are holes: what is shorter than its room comes last.
    fn comes_in_place(&self) -> bool {
        let filled = self.owners.iter().filter(|owner| owner.room > 0);
        let mut singles = filled.enumerate().filter(|(_, owner)| owner.shape == Shape::Single);
        let count = self.owners.iter().filter(|owner| owner.room > 0).count();
        singles.all(|(at, _)| at + 1 == count)
    }

    /// The row's iods, with data or without if there are holes.
    fn iods(&self, data_with_holes: bool) -> Vec<FetchIod<'a>> {
        let mut iods = self.iods.clone();
        for iod in &mut iods {
            if let FetchWant::Sparse { with_holes, .. } = &mut iod.want {
                *with_holes = data_with_holes;
            }
        }
        iods
    }

    /// Asks for the row, and fills the caller's memory with what is there and nothing else.
    async fn fetch(
        &mut self,
        object: &Object,
        tx: Option<&Tx>,
        cond: Cond,
        dkey: &[u8],
    ) -> Result<Vec<FetchedValue>> {
        let records = self.owners.iter().any(|owner| !owner.recxs.is_empty());
        if self.comes_in_place() && (!records || self.bytes > COPIED_BYTES_MAX) {
            let found = object.fetch(tx, cond, dkey, self.iods(false), &mut self.room).await?;
            let found = self.checked(found)?;
            if !self.has_holes(&found) {
                self.deliver_messages(&found);
                return Ok(found);
            }
        }
        let mut scratch = vec![0; self.bytes];
        let found = object.fetch(tx, cond, dkey, self.iods(true), &mut [&mut scratch]).await?;
        let found = self.checked(found)?;
        self.deliver(&found, &scratch).ok_or_else(|| {
            Error::new(Code::Proto, "an answer names other records than were asked for")
        })?;
        Ok(found)
    }

    fn checked(&self, found: Vec<FetchedValue>) -> Result<Vec<FetchedValue>> {
        if found.len() != self.owners.len() {
            return Err(Error::new(Code::Proto, "an answer lacks akeys"));
        }
        Ok(found)
    }

    fn has_holes(&self, found: &[FetchedValue]) -> bool {
        found.iter().zip(&self.owners).any(|(value, owner)| match value {
            FetchedValue::Sparse { holes, .. } => !holes.is_empty(),
            FetchedValue::Absent => owner.room > 0 && owner.shape == Shape::Array,
            _ => false,
        })
    }

    /// Puts what came in the message where it belongs.
    fn deliver_messages(&mut self, found: &[FetchedValue]) {
        let mut belongs = 0;
        for (value, owner) in found.iter().zip(&self.owners) {
            if let FetchedValue::Inline(bytes) = value {
                sgl::scatter(&mut self.room, belongs, bytes);
            }
            belongs += owner.room;
        }
    }

    /// Copies what was found, and nothing else, to where it belongs; `stream` is the answer's data.
    /// `None` when they do not fit together.
    fn deliver(&mut self, found: &[FetchedValue], stream: &[u8]) -> Option<()> {
        self.deliver_messages(found);
        let (mut came, mut belongs) = (0, 0);
        for (value, owner) in found.iter().zip(&self.owners) {
            let room = owner.room;
            match value {
                FetchedValue::Single { bytes, fitted: true } => {
                    let bytes = *bytes as usize;
                    sgl::scatter(&mut self.room, belongs, stream.get(came..)?.get(..bytes)?);
                    came += bytes;
                }
                FetchedValue::Sparse { record_bytes, holes, .. } => {
                    let record = *record_bytes as usize;
                    let mut holes = holes.iter().peekable();
                    let mut at = 0;
                    for recx in &owner.recxs {
                        let end = recx.index + recx.count;
                        let mut index = recx.index;
                        while index < end {
                            // The next hole, if it is in this range; the order is that of ranges.
                            let hole =
                                holes.next_if(|hole| hole.index >= index && hole.index < end);
                            let stop = hole.map_or(end, |hole| hole.index);
                            let bytes = (stop - index) as usize * record;
                            let data = stream.get(came + at..)?.get(..bytes)?;
                            sgl::scatter(&mut self.room, belongs + at, data);
                            let skipped = hole.map_or(0, |hole| hole.count.min(end - stop));
                            at += bytes + skipped as usize * record;
                            index = stop + skipped;
                        }
                    }
                    came += room;
                }
                // They come as zeros.
                FetchedValue::Absent if owner.shape == Shape::Array => came += room,
                _ => {}
            }
            belongs += room;
        }
        Some(())
    }
}

/// A fetch was refused: when records have another size than the caller thought, that is told.
async fn why_invalid(
    object: &Object,
    dkey: &[u8],
    iods: &Iods,
    asked: &mut [Asked<'_>],
    error: Error,
) -> Result<()> {
    let probes = asked.iter().map(|one| FetchIod { akey: one.akey, want: FetchWant::Probe });
    let probes = probes.collect();
    let Ok(found) = object.fetch(None, Cond::NONE, dkey, probes, &mut []).await else {
        return Err(error);
    };
    let mut differs = false;
    // SAFETY: the caller of `daos_obj_fetch` promises the descriptors until completion.
    let all = unsafe { iods.all() };
    for ((value, one), iod) in found.iter().zip(asked).zip(all) {
        match (value, one.shape) {
            (FetchedValue::Array { record_bytes, .. }, Shape::Array) => {
                one.found_bytes = (*record_bytes).into();
                differs |= one.found_bytes != iod.iod_size;
            }
            (FetchedValue::Single { bytes, .. }, Shape::Single) => one.found_bytes = *bytes,
            (FetchedValue::Absent, shape) => {
                one.found_bytes = 0;
                one.wanted &= shape == Shape::Single;
            }
            // A value of the other kind.
            _ => return Err(error),
        }
    }
    if differs { Err(Error::new(Code::RecordTooBig, error.text)) } else { Err(error) }
}

/// Tells sizes and, when all went well, what was filled, in the descriptors and lists.
///
/// # Safety
/// They are the caller's and nobody else uses them.
unsafe fn tell(iods: &Iods, asked: &[Asked<'_>], fetched: bool) {
    // SAFETY: the caller's promise.
    let all = unsafe { iods.all() };
    for (at, (iod, one)) in all.iter_mut().zip(asked).enumerate() {
        iod.iod_size = one.found_bytes;
        if fetched && !iods.sgl(at).is_null() && (one.wanted || one.found_bytes == 0) {
            // SAFETY: the caller's promise.
            unsafe { sgl::note_filled(iods.sgl(at), one.filled) };
        }
    }
}

/// Fills in which of the asked-for records exist.
///
/// # Safety
/// `iom.iom_recxs` is NULL or as long as `iom_nr` says.
async unsafe fn map_ranges(
    object: &Object,
    tx: Option<&Tx>,
    dkey: &[u8],
    one: &Asked<'_>,
    iom: &mut daos_iom_t,
) -> Result<()> {
    let none = daos_recx_t { rx_idx: 0, rx_nr: 0 };
    (iom.iom_recx_lo, iom.iom_recx_hi) = (none, none);
    iom.iom_size = one.found_bytes;
    iom.iom_nr_out = 0;
    if one.shape == Shape::Single {
        iom.iom_type = crate::ctypes::DAOS_IOD_SINGLE;
        iom.iom_nr_out = u32::from(one.found_bytes > 0);
        return Ok(());
    }
    iom.iom_type = crate::ctypes::DAOS_IOD_ARRAY;
    let mut ranges: Vec<Recx> = Vec::new();
    let mut anchor = Anchor::start();
    while one.found_bytes > 0 && !anchor.is_end() {
        let page =
            object.list_recxs(tx, dkey, one.akey, false, &mut anchor, RANGES_PER_PAGE).await?;
        for (stored, _, _) in page {
            let end = stored.index + stored.count;
            for wanted in &one.recxs {
                let from = stored.index.max(wanted.index);
                let to = end.min(wanted.index.saturating_add(wanted.count));
                if from < to {
                    ranges.push(Recx { index: from, count: to - from });
                }
            }
        }
    }
    ranges.sort_unstable_by_key(|range| range.index);
    let out = |range: &Recx| daos_recx_t { rx_idx: range.index, rx_nr: range.count };
    iom.iom_nr_out = ranges.len() as u32;
    if let (Some(first), Some(end)) = (ranges.first(), ranges.last()) {
        iom.iom_recx_lo = out(first);
        iom.iom_recx_hi = out(end);
    }
    if iom.iom_flags & IOMF_DETAIL == 0 {
        return Ok(());
    }
    if iom.iom_recxs.is_null() && iom.iom_nr == 0 && !ranges.is_empty() {
        // The caller frees it.
        // SAFETY: plain memory of `malloc`, or NULL.
        let list = unsafe { libc::malloc(ranges.len() * size_of::<daos_recx_t>()) };
        if list.is_null() {
            return Err(Error::new(Code::NoMem, "no memory for the ranges"));
        }
        iom.iom_recxs = list.cast();
        iom.iom_nr = ranges.len() as u32;
    }
    if !iom.iom_recxs.is_null() {
        for (at, range) in ranges.iter().take(iom.iom_nr as usize).enumerate() {
            // SAFETY: `at` is below `iom_nr`, by the caller's promise or as just made.
            unsafe { iom.iom_recxs.add(at).write(out(range)) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_at_the_end_may_go_over_several_ranges() {
        let recx = |index, count| Recx { index, count };
        let ranges = [recx(0, 5), recx(10, 3), recx(20, 2)];
        for (holes, records) in [
            (vec![], 0),
            (vec![recx(1, 2)], 0),
            (vec![recx(21, 1)], 1),
            (vec![recx(11, 2), recx(20, 2)], 4),
            (vec![recx(0, 1), recx(3, 2), recx(10, 3), recx(20, 2)], 7),
            (ranges.to_vec(), 10),
        ] {
            assert_eq!(hole_at_end(&ranges, &holes), records, "{holes:?}");
        }
    }

    /// Values of all kinds and lengths beside each other: each ends up at the start of its own
    /// room, and all other bytes stay as they were.
    #[test]
    fn what_is_found_goes_where_it_belongs_and_the_rest_stays() {
        for lengths in (0..4usize.pow(4)).map(|n| [n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6]) {
            let rooms = [3usize, 4, 3, 5];
            let mut memory = vec![0xee; rooms.iter().sum()];
            let mut wanted = memory.clone();
            let mut stream = Vec::new();
            let mut found = Vec::new();
            let mut owners = Vec::new();
            let mut start = 0;
            for (asked, (&bytes, &room)) in lengths.iter().zip(&rooms).enumerate() {
                let value: Vec<u8> = (1..=bytes as u8).map(|at| at + 10 * asked as u8).collect();
                let mut shape = Shape::Single;
                let mut recxs = Vec::new();
                match asked {
                    1 => {
                        wanted[start..start + bytes].copy_from_slice(&value);
                        found.push(FetchedValue::Inline(value));
                    }
                    2 => {
                        // Record `bytes` of three is a hole; with 3 there is nothing at all.
                        shape = Shape::Array;
                        recxs = vec![Recx { index: 7, count: 1 }, Recx { index: 20, count: 2 }];
                        let indices = [7, 20, 21];
                        let mut data = vec![0; room];
                        for at in (0..room).filter(|at| *at != bytes && bytes < 3) {
                            data[at] = 90 + at as u8;
                            wanted[start + at] = data[at];
                        }
                        stream.extend(data);
                        found.push(match indices.get(bytes) {
                            None => FetchedValue::Absent,
                            Some(index) => FetchedValue::Sparse {
                                record_bytes: 1,
                                end: 22,
                                holes: vec![Recx { index: *index, count: 1 }],
                            },
                        });
                    }
                    _ => {
                        wanted[start..start + bytes].copy_from_slice(&value);
                        found.push(FetchedValue::Single { bytes: bytes as u64, fitted: true });
                        stream.extend(value);
                    }
                }
                owners.push(Owner { asked, room, shape, recxs });
                start += room;
            }
            let (first, second) = memory.split_at_mut(5);
            let mut row = Row { iods: Vec::new(), owners, room: vec![first, second], bytes: 0 };
            row.deliver(&found, &stream).unwrap();
            assert_eq!(memory, wanted, "{lengths:?}");
        }
    }
}
