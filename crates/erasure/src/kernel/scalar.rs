//! The kernel for any processor; also does the ends that are no whole vectors.

use crate::factors::Factors;

/// Bytes of a cell that are done at a time: those of some sources and outputs stay in the first cache.
const BLOCK_BYTES: usize = 4096;

/// Computes the bytes of the outputs from `start` on. Numbers and lengths of the cells fit.
pub fn combine(factors: &Factors, sources: &[&[u8]], outputs: &mut [&mut [u8]], start: usize) {
    let length = outputs.first().map_or(0, |cell| cell.len());
    for from in (start..length).step_by(BLOCK_BYTES) {
        let block = from..length.min(from + BLOCK_BYTES);
        for (row, output) in outputs.iter_mut().enumerate() {
            let output = &mut output[block.clone()];
            output.fill(0);
            for (factor, source) in factors.row(row).iter().zip(sources) {
                let pairs = output.iter_mut().zip(&source[block.clone()]);
                match factor.value {
                    0 => {}
                    1 => pairs.for_each(|(sum, &byte)| *sum ^= byte),
                    _ => pairs.for_each(|(sum, &byte)| *sum ^= factor.times(byte)),
                }
            }
        }
    }
}
