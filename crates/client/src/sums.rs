//! Sums over the bulk of batches: made from the caller's memory before it is sent, and compared in the
//! caller's memory after it has arrived.

use smallvec::SmallVec;
use types::{Code, CsumKind, Error, Result};
use wire::footprint::Brings;
use wire::obj::{BatchReply, Op, UpdateValue};

/// Sums of what `ops` take from `bulk`. `Inval` when it is too short for them.
pub(crate) fn of_update(kind: CsumKind, ops: &[Op<'_>], bulk: &[&[u8]]) -> Result<Vec<u8>> {
    if kind == CsumKind::Off || bulk.is_empty() {
        return Ok(Vec::new());
    }
    let mut values: SmallVec<[u64; 8]> = SmallVec::new();
    for op in ops {
        let iods = match op.footprint().brings {
            Brings::Values { iods, .. } => iods,
            Brings::Records { count, .. } => {
                values.push(count);
                continue;
            }
            Brings::Nothing => continue,
        };
        for iod in iods {
            match &iod.value {
                UpdateValue::Single { bytes } => values.push(*bytes),
                UpdateValue::Array { record_bytes, recxs } => {
                    let bytes = |count: u64| count.saturating_mul(*record_bytes as u64);
                    values.extend(recxs.iter().map(|recx| bytes(recx.count)));
                }
                _ => {}
            }
        }
    }
    codec::value_sums(kind, values.into_iter(), bulk)
        .ok_or_else(|| Error::inval("the data given are shorter than what is to be written"))
}

/// Compares the first `bulk_bytes` of `room` with what an encoded reply says of them.
///
/// `Csum` when they differ; `Proto` when the reply does not speak of these bytes.
pub(crate) fn check_reply<P: AsRef<[u8]>>(
    kind: CsumKind,
    reply: &[u8],
    room: &[P],
    bulk_bytes: usize,
) -> Result<()> {
    let reply: BatchReply<'_> = wire::decode(reply)?;
    let sums = reply.sums;
    let covered: u64 = sums.runs.iter().map(|run| run.bytes() as u64).sum();
    let foreign = || Error::new(Code::Proto, "an answer's checksums are not those of its data");
    if sums.kind != kind || covered != bulk_bytes as u64 {
        return Err(foreign());
    }
    codec::check(kind, &sums.runs, sums.sums, room).map_err(|fault| match fault {
        codec::Fault::Mismatch { at, bytes } => Error::new(
            Code::Csum,
            format!("{bytes} of {bulk_bytes} bytes, from {at} on, differ from their checksum"),
        ),
        codec::Fault::Malformed => foreign(),
    })
}
