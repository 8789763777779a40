//! Sums of the XOR of chunks, from the chunks' own.
//!
//! A CRC is linear but for what it begins and ends with: the sums of an odd number of chunks, all XORed, are the sum of the XORed chunks; of an even number
//! that differs by the sum of zeros. So parity that is the XOR of data need not be read to be summed, and a sum made so also tells parity that was computed
//! wrong.

use crate::ZEROS;
use types::CsumKind;

/// Sums of whole chunks that are each the XOR of one chunk of every list, from the lists' sums. `None` for kinds that are no CRC.
///
/// Panics unless there is a list, and all are of one length.
pub fn xor_sums(kind: CsumKind, lists: &[&[u8]]) -> Option<Vec<u8>> {
    let is_crc = matches!(kind, CsumKind::Crc32c | CsumKind::Crc64);
    if !is_crc {
        return None;
    }
    let (first, others) = lists.split_first().expect("a list");
    let mut out = first.to_vec();
    let xor = |out: &mut [u8], with: &[u8]| out.iter_mut().zip(with).for_each(|(a, b)| *a ^= b);
    for other in others {
        assert_eq!(other.len(), out.len(), "sums of equal cells");
        xor(&mut out, other);
    }
    if lists.len().is_multiple_of(2) {
        let mut of_zeros = Vec::new();
        crate::push_sum(kind, &ZEROS, &mut of_zeros);
        out.chunks_mut(kind.width()).for_each(|sum| xor(sum, &of_zeros));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::sums::SUM_CHUNK_BYTES;

    #[test]
    fn the_sum_of_an_xor_is_that_of_its_bytes() {
        let cell = |seed: usize| -> Vec<u8> {
            (0..3 * SUM_CHUNK_BYTES).map(|at| (at * (seed * 2 + 31) / 7 + seed) as u8).collect()
        };
        let sums_of = |kind, cell: &[u8]| {
            let mut sums = Vec::new();
            cell.chunks(SUM_CHUNK_BYTES).for_each(|chunk| crate::push_sum(kind, chunk, &mut sums));
            sums
        };
        for kind in CsumKind::ALL {
            for count in 1..=16 {
                let cells: Vec<Vec<u8>> = (0..count).map(cell).collect();
                let mut parity = vec![0; cells[0].len()];
                for cell in &cells {
                    parity.iter_mut().zip(cell).for_each(|(a, b)| *a ^= b);
                }
                let lists: Vec<Vec<u8>> = cells.iter().map(|cell| sums_of(kind, cell)).collect();
                let lists: Vec<&[u8]> = lists.iter().map(Vec::as_slice).collect();
                let is_crc = [CsumKind::Crc32c, CsumKind::Crc64].contains(&kind);
                let wanted = is_crc.then(|| sums_of(kind, &parity));
                assert_eq!(xor_sums(kind, &lists), wanted, "{kind}, {count} cells");
            }
        }
    }
}
