//! Sums of whole bulks: chunk after chunk over memory that is cut anywhere.

use types::CsumKind;
use types::sums::{SUM_CHUNK_BYTES, SumRun};

use crate::ZEROS;

/// Walks over memory in pieces of any length.
struct Cursor<'a, P> {
    pieces: &'a [P],
    /// Piece, and byte in it.
    at: (usize, usize),
    /// Holds a chunk that lies in several pieces.
    joined: [u8; SUM_CHUNK_BYTES],
}

impl<P: AsRef<[u8]>> Cursor<'_, P> {
    fn new(pieces: &[P]) -> Cursor<'_, P> {
        Cursor::from(pieces, (0, 0))
    }

    fn from(pieces: &[P], at: (usize, usize)) -> Cursor<'_, P> {
        Cursor { pieces, at, joined: [0; SUM_CHUNK_BYTES] }
    }

    /// The next bytes, at most a chunk, in one slice; `None` when there are fewer.
    fn take(&mut self, bytes: usize) -> Option<&[u8]> {
        let mut filled = 0;
        loop {
            let rest = self.pieces.get(self.at.0)?.as_ref().get(self.at.1..)?;
            let part = rest.len().min(bytes - filled);
            let (piece, start) = self.at;
            self.at = if part == rest.len() { (piece + 1, 0) } else { (piece, start + part) };
            if filled == 0 && part == bytes {
                return self.pieces.get(piece)?.as_ref().get(start..start + part);
            }
            self.joined[filled..filled + part].copy_from_slice(&rest[..part]);
            filled += part;
            if filled == bytes {
                return Some(&self.joined[..bytes]);
            }
        }
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        let mut left = bytes;
        while left > 0 {
            let rest = self.pieces.get(self.at.0)?.as_ref().len() - self.at.1;
            let part = rest.min(left);
            left -= part;
            self.at = match part == rest {
                true => (self.at.0 + 1, 0),
                false => (self.at.0, self.at.1 + part),
            };
        }
        Some(())
    }
}

/// Sums of values that lie one after the other in memory cut anywhere, in the order of their
/// chunks. `None` when the memory is shorter than the values.
pub fn value_sums<P: AsRef<[u8]>>(
    kind: CsumKind,
    values_bytes: impl Iterator<Item = u64>,
    memory: &[P],
) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if kind == CsumKind::Off {
        return Some(out);
    }
    let mut cursor = Cursor::new(memory);
    for bytes in values_bytes {
        out.reserve(kind.sum_count(bytes) as usize * kind.width());
        let mut left = bytes;
        while left > 0 {
            let part = left.min(SUM_CHUNK_BYTES as u64) as usize;
            let chunk = cursor.take(part)?;
            match bytes >= SUM_CHUNK_BYTES as u64 {
                true => crate::push_padded_sum(kind, chunk, &mut out),
                false => crate::push_sum(kind, chunk, &mut out),
            }
            left -= part as u64;
        }
    }
    Some(out)
}

/// Why bytes are not what their sums say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The chunk at this byte of the bulk differs from its sum, or should be zeros and is not.
    Mismatch {
        /// Where the chunk begins in the bulk.
        at: u64,
        bytes: u64,
    },
    /// Runs, sums and memory do not belong together.
    Malformed,
}

/// Checks memory against what is said of it. Runs and sums may come from a stranger.
pub fn check<P: AsRef<[u8]>>(
    kind: CsumKind,
    runs: &[SumRun],
    sums: &[u8],
    memory: &[P],
) -> Result<(), Fault> {
    let mut checking = Checking::new(kind);
    checking.advance(runs, sums, memory, u64::MAX)?;
    checking.is_done(runs, sums).then_some(()).ok_or(Fault::Malformed)
}

/// A [`check`] in steps, of memory that is being filled from its beginning. All steps are given the same runs and sums, and the same memory.
#[derive(Clone, Debug)]
pub struct Checking {
    kind: CsumKind,
    /// Runs that are done, and bytes of the next one.
    run: (usize, usize),
    /// Bytes of sums that are done.
    sums: usize,
    /// Piece of memory, and byte in it.
    at: (usize, usize),
    /// Bytes of the bulk that are done.
    bytes: u64,
}

impl Checking {
    /// Nothing is checked yet.
    pub fn new(kind: CsumKind) -> Checking {
        Checking { kind, run: (0, 0), sums: 0, at: (0, 0), bytes: 0 }
    }

    /// Bytes of the bulk that have been checked.
    pub fn checked_bytes(&self) -> u64 {
        self.bytes
    }

    /// Checks chunks that end within the first `filled` bytes of the bulk; `u64::MAX`: all there are. After a fault there is nothing more to check.
    pub fn advance<P: AsRef<[u8]>>(
        &mut self,
        runs: &[SumRun],
        sums: &[u8],
        memory: &[P],
        filled: u64,
    ) -> Result<(), Fault> {
        let mut cursor = Cursor::from(memory, self.at);
        while let Some(run) = runs.get(self.run.0) {
            let whole = run.bytes() as usize;
            let mut part_max = SUM_CHUNK_BYTES;
            if let SumRun::Summed { first, .. } = *run {
                if first == 0 || first as usize > SUM_CHUNK_BYTES || self.kind == CsumKind::Off {
                    return Err(Fault::Malformed);
                }
                if self.run.1 == 0 {
                    part_max = first as usize;
                }
            }
            while self.run.1 < whole {
                let left = whole - self.run.1;
                let part = match run {
                    SumRun::Bare { .. } => left,
                    _ => left.min(part_max),
                };
                if self.bytes.saturating_add(part as u64) > filled {
                    self.at = cursor.at;
                    return Ok(());
                }
                let good = match run {
                    SumRun::Bare { .. } => cursor.skip(part).map(|()| true),
                    SumRun::Zeros { .. } => cursor.take(part).map(|chunk| chunk == &ZEROS[..part]),
                    SumRun::Summed { .. } => {
                        let rest = sums.get(self.sums..).unwrap_or_default();
                        let sum = rest.get(..self.kind.width()).ok_or(Fault::Malformed)?;
                        self.sums += sum.len();
                        cursor.take(part).map(|chunk| crate::matches(self.kind, chunk, sum))
                    }
                };
                if !good.ok_or(Fault::Malformed)? {
                    return Err(Fault::Mismatch { at: self.bytes, bytes: part as u64 });
                }
                self.run.1 += part;
                self.bytes += part as u64;
                part_max = SUM_CHUNK_BYTES;
            }
            self.run = (self.run.0 + 1, 0);
        }
        self.at = cursor.at;
        Ok(())
    }

    /// All runs and sums have been used.
    pub fn is_done(&self, runs: &[SumRun], sums: &[u8]) -> bool {
        self.run == (runs.len(), 0) && self.sums == sums.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Cuts data at the given lengths, over and over.
    fn cut<'a>(data: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
        let mut out = Vec::new();
        let mut rest = data;
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                return out;
            }
            let (part, more) = rest.split_at((*length).min(rest.len()));
            out.push(part);
            rest = more;
        }
        out
    }

    proptest! {
        /// The model sums each chunk of each value by itself.
        #[test]
        fn sums_do_not_depend_on_how_memory_is_cut(
            values in prop::collection::vec(0usize..20_000, 1..5),
            lengths in prop::collection::vec(1usize..9_000, 1..4),
            kind in 1usize..5,
            seed in any::<u64>(),
        ) {
            let kind = CsumKind::ALL[kind];
            let total: usize = values.iter().sum();
            let data: Vec<u8> = (0..total).map(|n| types::hash::mix(seed ^ n as u64) as u8).collect();
            let mut want = Vec::new();
            let mut rest = &data[..];
            for bytes in &values {
                let (value, more) = rest.split_at(*bytes);
                rest = more;
                for chunk in value.chunks(SUM_CHUNK_BYTES) {
                    match value.len() < SUM_CHUNK_BYTES {
                        true => crate::push_sum(kind, chunk, &mut want),
                        false => crate::push_padded_sum(kind, chunk, &mut want),
                    }
                }
            }
            let pieces = cut(&data, &lengths);
            let bytes = || values.iter().map(|bytes| *bytes as u64);
            prop_assert_eq!(value_sums(kind, bytes(), &pieces), Some(want));
            if total > 0 {
                prop_assert_eq!(value_sums(kind, bytes(), &pieces[1..]), None);
            }
        }

        #[test]
        fn a_flipped_bit_is_found_where_it_is(
            first in 1usize..4097,
            bytes in 1usize..30_000,
            bare in 0usize..5_000,
            zeros in 1usize..9_000,
            lengths in prop::collection::vec(1usize..9_000, 1..4),
            kind in 1usize..5,
            bit in any::<prop::sample::Index>(),
            steps in prop::collection::vec(1usize..20_000, 0..6),
        ) {
            let kind = CsumKind::ALL[kind];
            let data: Vec<u8> = (0..bytes).map(|n| types::hash::mix(n as u64) as u8).collect();
            let mut sums = Vec::new();
            let head = first.min(bytes);
            crate::push_sum(kind, &data[..head], &mut sums);
            for chunk in data[head..].chunks(SUM_CHUNK_BYTES) {
                crate::push_sum(kind, chunk, &mut sums);
            }
            let runs = [
                SumRun::Bare { bytes: bare as u32 },
                SumRun::Summed { bytes: bytes as u32, first: first as u16 },
                SumRun::Zeros { bytes: zeros as u32 },
            ];
            let mut all = [vec![7; bare], data, vec![0; zeros]].concat();
            prop_assert_eq!(check(kind, &runs, &sums, &cut(&all, &lengths)), Ok(()));
            // Filled bit by bit: what has not come is not looked at, and all that has is in the end.
            let mut memory = vec![0xa5; all.len()];
            let mut checking = Checking::new(kind);
            let mut filled = 0;
            for step in steps.iter().copied().chain([all.len()]) {
                let end = (filled + step).min(all.len());
                memory[filled..end].copy_from_slice(&all[filled..end]);
                filled = end;
                let pieces = cut(&memory, &lengths);
                prop_assert_eq!(checking.advance(&runs, &sums, &pieces, filled as u64), Ok(()));
                prop_assert!(checking.checked_bytes() <= filled as u64);
            }
            prop_assert!(checking.is_done(&runs, &sums));
            prop_assert!(!checking.is_done(&runs, &[&sums[..], &[0]].concat()));
            let at = bare * 8 + bit.index((bytes + zeros) * 8);
            all[at / 8] ^= 1 << (at % 8);
            let found = check(kind, &runs, &sums, &cut(&all, &lengths));
            let Err(Fault::Mismatch { at: start, bytes }) = found else {
                return Err(TestCaseError::fail(format!("{found:?}")));
            };
            prop_assert!((start..start + bytes).contains(&((at / 8) as u64)));
            // Anything missing is noticed, too.
            prop_assert_eq!(
                check(kind, &runs[..2], &sums, &[&all[..bare]]),
                Err(Fault::Malformed)
            );
            prop_assert!(check(kind, &runs, &sums[1..], &[&all]).is_err());
        }
    }
}
