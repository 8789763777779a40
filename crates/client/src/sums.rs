//! Sums over the bulk of batches: made from the caller's memory before it is sent, and compared in the
//! caller's memory after it has arrived.

use codec::{Checking, Fault};
use smallvec::SmallVec;
use std::cell::RefCell;
use transport::Arrivals;
use types::sums::SumRun;
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
    Comparison::new(kind).finish(reply, room, bulk_bytes)
}

/// Compares data of a reply with what it says of them: through the stream they take as long to come as most of this.
pub(crate) struct Comparison {
    kind: CsumKind,
    so_far: RefCell<Option<SoFar>>,
}

/// What has been compared of a reply whose data are coming.
struct SoFar {
    runs: Vec<SumRun>,
    sums: Vec<u8>,
    checking: Checking,
    fault: Option<Fault>,
}

impl Comparison {
    /// Nothing has come yet.
    pub fn new(kind: CsumKind) -> Comparison {
        Comparison { kind, so_far: RefCell::default() }
    }

    /// Compares the first `bulk_bytes` of `room` with what an encoded reply says of them, as far as that has not been done.
    ///
    /// `Csum` when they differ; `Proto` when the reply does not speak of these bytes.
    pub fn finish<P: AsRef<[u8]>>(self, reply: &[u8], room: &[P], bulk_bytes: usize) -> Result<()> {
        let reply: BatchReply<'_> = wire::decode(reply)?;
        let sums = reply.sums;
        let covered: u64 = sums.runs.iter().map(|run| run.bytes() as u64).sum();
        let foreign = || Error::new(Code::Proto, "an answer's checksums are not those of its data");
        if sums.kind != self.kind || covered != bulk_bytes as u64 {
            return Err(foreign());
        }
        let so_far = self.so_far.into_inner().map(|so_far| (so_far.checking, so_far.fault));
        let (mut checking, fault) = so_far.unwrap_or_else(|| (Checking::new(self.kind), None));
        let outcome = match fault {
            Some(fault) => Err(fault),
            None => checking.advance(&sums.runs, sums.sums, room, u64::MAX),
        };
        match outcome {
            Ok(()) if checking.is_done(&sums.runs, sums.sums) => Ok(()),
            Err(Fault::Mismatch { at, bytes }) => Err(Error::new(
                Code::Csum,
                format!("{bytes} of {bulk_bytes} bytes, from {at} on, differ from their checksum"),
            )),
            Ok(()) | Err(Fault::Malformed) => Err(foreign()),
        }
    }
}

impl Arrivals for Comparison {
    fn void(&self) {
        self.so_far.take();
    }

    fn begin(&self, body: &[u8]) {
        // What cannot be read is found out by who takes the answer.
        if let Some((0, reply)) = body.split_first()
            && let Ok(reply) = wire::decode::<BatchReply<'_>>(reply)
        {
            let (runs, sums) = (reply.sums.runs, reply.sums.sums.to_vec());
            let checking = Checking::new(self.kind);
            self.so_far.replace(Some(SoFar { runs, sums, checking, fault: None }));
        }
    }

    fn arrived(&self, rooms: &[&mut [u8]], bytes: usize) {
        if let Some(SoFar { runs, sums, checking, fault }) = &mut *self.so_far.borrow_mut()
            && fault.is_none()
        {
            *fault = checking.advance(runs, sums, rooms, bytes as u64).err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::obj::BulkSums;

    const KIND: CsumKind = CsumKind::Crc32c;
    const BYTES: usize = 300_000;

    fn data() -> Vec<u8> {
        (0..BYTES).map(|at| types::hash::mix(at as u64) as u8).collect()
    }

    /// The encoded reply to a read of [`data`], behind its tag.
    fn answer() -> Vec<u8> {
        let mut sums = Vec::new();
        data().chunks(4096).for_each(|chunk| codec::push_sum(KIND, chunk, &mut sums));
        let runs = vec![SumRun::Summed { bytes: BYTES as u32, first: 4096 }];
        let sums = BulkSums { kind: KIND, runs, sums: &sums, cells: Vec::new() };
        let reply = BatchReply { epoch: types::Epoch(1), ops: Vec::new(), sums };
        [&[0][..], &wire::encode(&reply)].concat()
    }

    /// Tells of a try that brings `data`, of which no more than `bytes` come.
    fn arrive(comparison: &Comparison, data: &[u8], bytes: usize) -> Vec<u8> {
        let mut room = vec![0xa5; data.len()];
        comparison.void();
        comparison.begin(&answer());
        for at in (0..bytes).step_by(70_001) {
            let end = (at + 70_001).min(bytes);
            room[at..end].copy_from_slice(&data[at..end]);
            comparison.arrived(&[&mut room], end);
        }
        room
    }

    #[test]
    fn a_flipped_bit_is_found_whenever_it_comes() {
        let (data, answer) = (data(), answer());
        for at in [None, Some(0), Some(150_000), Some(BYTES - 1)] {
            let mut sent = data.clone();
            at.into_iter().for_each(|at: usize| sent[at] ^= 1);
            let comparison = Comparison::new(KIND);
            let mut room = arrive(&comparison, &sent, 250_000);
            room[250_000..].copy_from_slice(&sent[250_000..]);
            let code =
                comparison.finish(&answer[1..], &[&room], BYTES).err().map(|error| error.code);
            assert_eq!(code, at.map(|_| Code::Csum), "{at:?}");
        }
    }

    /// The connection breaks, and the data come once more, over another one: what was compared before counts for nothing.
    #[test]
    fn data_that_come_again_are_compared_again() {
        let (data, answer) = (data(), answer());
        let mut damaged = data.clone();
        damaged[9] ^= 1;
        for (first, second) in [(&data, &damaged), (&damaged, &data)] {
            for is_told in [false, true] {
                let comparison = Comparison::new(KIND);
                arrive(&comparison, first, 200_000);
                // Memory that the engine reaches is told of to nobody.
                comparison.void();
                if is_told {
                    arrive(&comparison, second, 250_000);
                }
                let outcome = comparison.finish(&answer[1..], &[second], BYTES);
                assert_eq!(outcome.is_ok(), second == &data, "{is_told}: {outcome:?}");
            }
        }
    }

    #[test]
    fn an_answer_that_speaks_of_other_bytes_is_refused() {
        let (data, answer) = (data(), answer());
        let comparison = Comparison::new(KIND);
        arrive(&comparison, &data, 250_000);
        let error = comparison.finish(&answer[1..], &[&data[..BYTES - 1]], BYTES - 1).unwrap_err();
        assert_eq!(error.code, Code::Proto);
        assert!(check_reply(KIND, &answer[1..], &[&data], BYTES).is_ok());
    }
}
