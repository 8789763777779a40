//! Where an array has data: the written ranges of its chunks, as one array.

use types::{DkeyKind, Error, Result, Unit};
use wire::obj::Recx;

use crate::index::extent::Place;
use crate::index::object::{DkeyName, Position};
use crate::view::View;

/// Extents looked at in one call: a target serves nobody else meanwhile.
const EXTENTS_MAX: usize = 65_536;

impl View<'_> {
    /// Written ranges within `within` of an array whose chunk `i` is dkey `i + 1`, akey empty:
    /// ascending, neighbours joined, at most `count_max`; and up to where they are all. Records
    /// that were filled with zeros count as unwritten; a chunk with a single value in place of its array, which
    /// says that the records are kept elsewhere, as written whole.
    ///
    /// `Inval` for an object without integer dkeys, a chunk of no records, a range that overflows.
    pub fn runs(
        &self,
        unit: Unit,
        chunk_records: u64,
        within: Recx,
        count_max: usize,
    ) -> Result<(Vec<Recx>, u64)> {
        let end = within.end().ok_or_else(|| Error::inval("a range of records overflows"))?;
        if chunk_records == 0 || unit.dkey_kind() != DkeyKind::U64 {
            return Err(Error::inval(format!("object {unit} is no array of such chunks")));
        }
        let mut runs: Vec<Recx> = Vec::new();
        let Some(object) = self.object(unit) else { return Ok((runs, end)) };
        let before = (within.index / chunk_records).to_le_bytes();
        let mut looked_at = 0;
        for (name, dkey) in object.dkeys_after(Position::After(&before), (0, u64::MAX)) {
            let DkeyName::Number(number) = name else { break };
            let base = number.checked_sub(1).and_then(|chunk| chunk.checked_mul(chunk_records));
            let Some(base) = base.filter(|base| *base < end) else { break };
            let Some(value) = dkey.akey(b"") else { continue };
            let Some(array) = value.array() else {
                let (from, to) =
                    (base.max(within.index), base.saturating_add(chunk_records).min(end));
                let full = runs.len() >= count_max.max(1);
                match runs.last_mut() {
                    _ if from >= to => {}
                    Some(last) if last.index + last.count == from => last.count += to - from,
                    _ if full => return Ok((runs, from)),
                    _ => runs.push(Recx { index: from, count: to - from }),
                }
                continue;
            };
            for extent in array.from(within.index.saturating_sub(base)) {
                let start = extent.index;
                let from = base.saturating_add(start).max(within.index);
                let to = base.saturating_add(start.saturating_add(extent.count)).min(end);
                if from >= end {
                    break;
                }
                looked_at += 1;
                if *extent.place == Place::Zero || from >= to {
                    continue;
                }
                let full = runs.len() >= count_max.max(1);
                match runs.last_mut() {
                    Some(last) if last.index + last.count == from => last.count += to - from,
                    _ if full => return Ok((runs, from)),
                    _ => runs.push(Recx { index: from, count: to - from }),
                }
                if looked_at >= EXTENTS_MAX {
                    return Ok((runs, to));
                }
            }
        }
        Ok((runs, end))
    }
}
