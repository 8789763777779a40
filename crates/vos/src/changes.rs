//! From the wire's ops to changes of the index, and what may be wrong with ops.
//!
//! Invariant: for ops that passed [`check_shape`], and pieces reserved for them, [`walk`] gives
//! the same changes every time: now, at replay of a prepared transaction, on any machine.

use types::{DkeyKind, Error, Result, Unit, limits};
use wire::obj::{Op, Recx, UpdateValue};

use crate::keys::{check_dkey, check_key};
use crate::payload::Piece;
use crate::record::{ChangeDf, PlaceDf, RunDf};

/// Checks what can be checked without the index: key lengths, sizes, ranges. Returns the bytes of an op in the bulk.
pub(crate) fn check_shape(op: &Op<'_>) -> Result<u64> {
    let unit = op.unit();
    let mut bulk_bytes: u64 = 0;
    match op {
        Op::Update { dkey, iods, .. } => {
            check_dkey(unit, dkey)?;
            for iod in iods {
                check_key(iod.akey)?;
                let bytes = check_value(&iod.value)?;
                bulk_bytes = bulk_bytes.saturating_add(bytes);
            }
        }
        Op::Fetch { dkey, iods, .. } => {
            check_dkey(unit, dkey)?;
            for iod in iods {
                check_key(iod.akey)?;
            }
        }
        Op::PunchDkeys { dkeys, .. } => {
            for dkey in dkeys {
                check_dkey(unit, dkey)?;
            }
        }
        Op::PunchAkeys { dkey, .. } => check_dkey(unit, dkey)?,
        Op::PunchDkeysFrom { .. } if unit.dkey_kind() != DkeyKind::U64 => {
            return Err(Error::inval(format!("object {unit} has no integer dkeys")));
        }
        // What these name is looked for, never stored.
        Op::PunchObj { .. }
        | Op::PunchDkeysFrom { .. }
        | Op::List { .. }
        | Op::Query { .. }
        | Op::Stat { .. }
        | Op::FetchLink { .. }
        | Op::RemoveLink { .. }
        | Op::Open { .. }
        | Op::PunchUnlessOpen { .. }
        | Op::Append { .. }
        | Op::ListRuns { .. }
        | Op::Adopt { .. }
        | Op::FreeClosed { .. } => {}
    }
    Ok(bulk_bytes)
}

pub(crate) fn too_much(bulk_bytes: u64) -> Error {
    Error::inval(format!(
        "{bulk_bytes} bytes in one request are over the limit of {}",
        limits::BULK_BYTES_MAX
    ))
}

/// Checks a value; returns its bytes in the bulk.
fn check_value(value: &UpdateValue<'_>) -> Result<u64> {
    match value {
        UpdateValue::Inline(bytes) if bytes.len() > limits::XATTR_BYTES_MAX => {
            Err(Error::inval(format!(
                "inline value of {} bytes is over the limit of {}; send it as bulk",
                bytes.len(),
                limits::XATTR_BYTES_MAX
            )))
        }
        UpdateValue::Inline(_) => Ok(0),
        UpdateValue::Single { bytes } => Ok(*bytes),
        UpdateValue::Array { record_bytes, recxs } => {
            check_recxs(*record_bytes, recxs)?;
            recxs.iter().try_fold(0u64, |sum, recx| {
                let bytes = recx.count.checked_mul(*record_bytes as u64).ok_or_else(overflow)?;
                sum.checked_add(bytes).ok_or_else(overflow)
            })
        }
        UpdateValue::Zero { record_bytes, recxs } => check_recxs(*record_bytes, recxs).map(|_| 0),
        UpdateValue::PunchRecords { recxs } => check_recxs(1, recxs).map(|_| 0),
        UpdateValue::Coded { record_bytes, count, stripes, .. } => {
            stripes.iter().try_fold(0, |_, stripe| {
                check_recxs(*record_bytes, &[Recx { index: stripe.first, count: *count }])?;
                let bytes = count.checked_mul(*record_bytes as u64);
                let is_whole = bytes.is_some_and(|bytes| {
                    bytes > 0 && bytes.is_multiple_of(stripe.cell_bytes.max(1) as u64)
                });
                is_whole.then_some(0).ok_or_else(|| Error::inval("a stripe of no whole cells"))
            })
        }
    }
}

fn overflow() -> Error {
    Error::inval("a range of records overflows 64 bits")
}

/// Checks ranges of records: no overflow, no empty record.
pub(crate) fn check_recxs(record_bytes: u32, recxs: &[Recx]) -> Result<()> {
    if record_bytes == 0 {
        return Err(Error::inval("records of an array have at least one byte"));
    }
    if recxs.iter().any(|recx| recx.end().is_none()) {
        return Err(overflow());
    }
    Ok(())
}

/// Calls `each` with every change the writing ops make, in order. `Inval` when the pieces are
/// not those of the ops, before the first such op took effect only if it is the first.
pub(crate) fn walk<'a>(
    ops: &[Op<'a>],
    pieces: &'a [Piece],
    each: &mut dyn FnMut(ChangeDf<'a>),
) -> Result<()> {
    let mut pieces = pieces.iter();
    for op in wire::walk::walk(ops) {
        match *op {
            Op::Update { unit, dkey, ref iods, .. } => {
                for iod in iods {
                    let akey = iod.akey;
                    match &iod.value {
                        UpdateValue::Inline(value) => {
                            each(ChangeDf::Single { unit, dkey, akey, value })
                        }
                        UpdateValue::Single { bytes } => {
                            each(single(unit, dkey, akey, *bytes, &mut pieces)?)
                        }
                        UpdateValue::Array { record_bytes, recxs } => {
                            let record_bytes = *record_bytes;
                            for recx in recxs {
                                let (mut index, mut left) = (recx.index, recx.count);
                                while left > 0 {
                                    let piece = pieces.next().ok_or_else(foreign)?;
                                    let count = piece.bytes() / record_bytes as u64;
                                    if count == 0 || count > left {
                                        return Err(foreign());
                                    }
                                    let place = match piece {
                                        Piece::Inline(bytes) => PlaceDf::Inline(bytes),
                                        Piece::Run { run, .. } => PlaceDf::Blocks(run.at),
                                    };
                                    each(ChangeDf::Records {
                                        unit,
                                        dkey,
                                        akey,
                                        record_bytes,
                                        index,
                                        count,
                                        place,
                                    });
                                    index += count;
                                    left -= count;
                                }
                            }
                        }
                        UpdateValue::Zero { record_bytes, recxs } => {
                            for recx in recxs.iter().filter(|recx| recx.count > 0) {
                                each(ChangeDf::Records {
                                    unit,
                                    dkey,
                                    akey,
                                    record_bytes: *record_bytes,
                                    index: recx.index,
                                    count: recx.count,
                                    place: PlaceDf::Zero,
                                });
                            }
                        }
                        UpdateValue::Coded { record_bytes, count, stripes, .. } => {
                            for stripe in stripes {
                                each(ChangeDf::Records {
                                    unit,
                                    dkey,
                                    akey,
                                    record_bytes: *record_bytes,
                                    index: stripe.first,
                                    count: *count,
                                    place: PlaceDf::Coded(*stripe),
                                });
                            }
                        }
                        UpdateValue::PunchRecords { recxs } => {
                            for recx in recxs.iter().filter(|recx| recx.count > 0) {
                                let (index, count) = (recx.index, recx.count);
                                each(ChangeDf::PunchRecords { unit, dkey, akey, index, count });
                            }
                        }
                    }
                }
            }
            Op::PunchObj { unit, .. } => each(ChangeDf::PunchObj { unit }),
            Op::PunchDkeys { unit, ref dkeys, .. } => {
                for dkey in dkeys {
                    let dkey: &'a [u8] = dkey;
                    each(ChangeDf::PunchDkey { unit, dkey });
                }
            }
            Op::PunchDkeysFrom { unit, from } => each(ChangeDf::PunchDkeysFrom { unit, from }),
            Op::PunchAkeys { unit, dkey, ref akeys, .. } => {
                for akey in akeys {
                    let akey: &'a [u8] = akey;
                    each(ChangeDf::PunchAkey { unit, dkey, akey });
                }
            }
            // These change nothing, or have others in their place.
            Op::Fetch { .. }
            | Op::List { .. }
            | Op::Query { .. }
            | Op::Stat { .. }
            | Op::FetchLink { .. }
            | Op::RemoveLink { .. }
            | Op::Open { .. }
            | Op::PunchUnlessOpen { .. }
            | Op::Append { .. }
            | Op::ListRuns { .. }
            | Op::Adopt { .. }
            | Op::FreeClosed { .. } => {}
        }
    }
    if pieces.next().is_some() {
        return Err(foreign());
    }
    Ok(())
}

fn single<'a>(
    unit: Unit,
    dkey: &'a [u8],
    akey: &'a [u8],
    bytes: u64,
    pieces: &mut std::slice::Iter<'a, Piece>,
) -> Result<ChangeDf<'a>> {
    let mut left = bytes;
    let mut runs = Vec::new();
    while left > 0 {
        match pieces.next() {
            Some(Piece::Inline(value)) if runs.is_empty() && value.len() as u64 == bytes => {
                return Ok(ChangeDf::Single { unit, dkey, akey, value });
            }
            Some(Piece::Run { run, .. }) if run.bytes <= left => {
                runs.push(RunDf { at: run.at, bytes: run.bytes });
                left -= run.bytes;
            }
            _ => return Err(foreign()),
        }
    }
    if runs.is_empty() {
        return Ok(ChangeDf::Single { unit, dkey, akey, value: b"" });
    }
    Ok(ChangeDf::SingleRuns { unit, dkey, akey, runs })
}

fn foreign() -> Error {
    Error::inval("the payload was not staged for these operations")
}

/// Checks that pieces belong to the ops, without any effect.
pub(crate) fn check_pieces(ops: &[Op<'_>], pieces: &[Piece]) -> Result<()> {
    walk(ops, pieces, &mut |_| {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::footprint::{Brings, Changes, Footprint};

    /// Pieces of the size that the bulk of values has.
    fn pieces(of: &Footprint<'_>) -> Vec<Piece> {
        let Brings::Values { iods, .. } = of.brings else { return Vec::new() };
        let bytes_of = |value: &UpdateValue<'_>| match value {
            UpdateValue::Single { bytes } => vec![*bytes],
            UpdateValue::Array { record_bytes, recxs } => {
                recxs.iter().map(|recx| recx.count * *record_bytes as u64).collect()
            }
            UpdateValue::Inline(_)
            | UpdateValue::Zero { .. }
            | UpdateValue::PunchRecords { .. }
            | UpdateValue::Coded { .. } => Vec::new(),
        };
        let all = iods.iter().flat_map(|iod| bytes_of(&iod.value));
        all.map(|bytes| Piece::Inline(vec![7; bytes as usize].into())).collect()
    }

    fn is_within(change: &ChangeDf<'_>, at: &Footprint<'_>) -> bool {
        let (unit, dkey, akey) = match *change {
            ChangeDf::Single { unit, dkey, akey, .. }
            | ChangeDf::SingleRuns { unit, dkey, akey, .. }
            | ChangeDf::Records { unit, dkey, akey, .. }
            | ChangeDf::PunchRecords { unit, dkey, akey, .. }
            | ChangeDf::PunchAkey { unit, dkey, akey } => (unit, Some(dkey), Some(akey)),
            ChangeDf::PunchDkey { unit, dkey } => (unit, Some(dkey), None),
            ChangeDf::PunchObj { unit } | ChangeDf::PunchDkeysFrom { unit, .. } => {
                (unit, None, None)
            }
        };
        let is_named = match at.changes {
            Changes::Nothing | Changes::Unnamed => false,
            Changes::Dkey(named) => dkey == Some(named),
            Changes::Akeys { dkey: of, akeys } => {
                let is_one = |akey: &[u8]| akeys.iter().any(|one| ***one == *akey);
                dkey == Some(of) && akey.is_some_and(is_one)
            }
            Changes::Dkeys(dkeys) => {
                dkey.is_some_and(|dkey| dkeys.iter().any(|one| ***one == *dkey))
            }
            Changes::DkeysFrom(at_least) => {
                matches!(change, ChangeDf::PunchDkeysFrom { from, .. } if *from >= at_least)
            }
            Changes::All => true,
        };
        unit == at.unit && is_named
    }

    #[test]
    fn what_takes_effect_lies_within_the_footprint() {
        for (name, op) in crate::op_samples::ops() {
            let at = op.footprint();
            let mut count = 0;
            let pieces = pieces(&at);
            super::walk(std::slice::from_ref(&op), &pieces, &mut |change| {
                assert!(is_within(&change, &at), "{name}: {change:?} is not within {at:?}");
                count += 1;
            })
            .unwrap();
            // Others are applied in the place of those that are replaced.
            assert_eq!(count > 0, at.is_write() && !at.is_replaced, "{name}");
        }
    }
}
