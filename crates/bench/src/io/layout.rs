//! Which bytes of which file a process transfers: pure arithmetic.
//!
//! Invariant: over all processes and transfers every byte of the files is covered exactly once.

use types::hash;

/// The pattern of a run. All counts are at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub processes: u32,
    pub transfer_bytes: u64,
    /// Transfers that follow each other in the file.
    pub transfers_per_block: u64,
    /// Rounds of one block per process.
    pub segments: u64,
    /// A file per process, without the others' blocks.
    pub file_per_process: bool,
}

impl Layout {
    /// Transfers of each process.
    pub fn transfers_per_process(&self) -> u64 {
        self.transfers_per_block * self.segments
    }

    /// Bytes of all processes.
    pub fn bytes_in_all(&self) -> u64 {
        self.transfers_per_process() * self.transfer_bytes * u64::from(self.processes)
    }

    /// Offset of a transfer of process `rank` in its file.
    pub fn offset(&self, rank: u32, transfer: u64) -> u64 {
        let segment = transfer / self.transfers_per_block;
        let in_block = transfer % self.transfers_per_block * self.transfer_bytes;
        let block_bytes = self.transfers_per_block * self.transfer_bytes;
        if self.file_per_process {
            segment * block_bytes + in_block
        } else {
            (segment * u64::from(self.processes) + u64::from(rank)) * block_bytes + in_block
        }
    }
}

/// The numbers below `count` in an order that the seed decides.
pub fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    let mut state = hash::mix(seed);
    // Fisher and Yates; the modulo bias is of no account at these counts.
    for last in (1..order.len()).rev() {
        state = hash::mix(state);
        order.swap(last, (state % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_covered_exactly_once(
            processes in 1u32..6,
            words in 1u64..5,
            transfers_per_block in 1u64..5,
            segments in 1u64..5,
            file_per_process: bool,
        ) {
            let transfer_bytes = words * 8;
            let layout =
                Layout { processes, transfer_bytes, transfers_per_block, segments, file_per_process };
            let files = if file_per_process { processes as usize } else { 1 };
            let bytes_per_file = layout.bytes_in_all() as usize / files;
            let mut hits = vec![vec![0u32; bytes_per_file]; files];
            for rank in 0..processes {
                let file = if file_per_process { rank as usize } else { 0 };
                for transfer in 0..layout.transfers_per_process() {
                    let offset = layout.offset(rank, transfer) as usize;
                    let covered = offset..offset + transfer_bytes as usize;
                    hits[file][covered].iter_mut().for_each(|count| *count += 1);
                }
            }
            prop_assert!(hits.iter().flatten().all(|&count| count == 1));
        }

        #[test]
        fn a_shuffle_loses_and_doubles_nothing(count in 0u64..500, seed: u64) {
            let mut order = shuffled(count, seed);
            order.sort_unstable();
            prop_assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_cyclic_pattern_is_that_of_ior() {
        // IOR -b 47008 -t 47008 -s 3 with 2 tasks.
        let layout = Layout {
            processes: 2,
            transfer_bytes: 47_008,
            transfers_per_block: 1,
            segments: 3,
            file_per_process: false,
        };
        let offsets = |rank| (0..3).map(|n| layout.offset(rank, n)).collect::<Vec<_>>();
        assert_eq!(offsets(0), [0, 94_016, 188_032]);
        assert_eq!(offsets(1), [47_008, 141_024, 235_040]);
    }

    #[test]
    fn blocks_of_several_transfers_stay_together() {
        // IOR -b 4m -t 1m -s 2 with 2 tasks.
        let layout = Layout {
            processes: 2,
            transfer_bytes: 1,
            transfers_per_block: 4,
            segments: 2,
            file_per_process: false,
        };
        let offsets: Vec<u64> = (0..8).map(|n| layout.offset(1, n)).collect();
        assert_eq!(offsets, [4, 5, 6, 7, 12, 13, 14, 15]);
        let own = Layout { file_per_process: true, ..layout };
        assert_eq!(
            (0..8).map(|n| own.offset(1, n)).collect::<Vec<_>>(),
            (0..8).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_shuffle_is_an_order_of_its_own_for_each_seed() {
        assert_eq!(shuffled(50, 3), shuffled(50, 3));
        assert_ne!(shuffled(50, 3), shuffled(50, 4));
        assert_ne!(shuffled(50, 3), (0..50).collect::<Vec<_>>());
    }
}
