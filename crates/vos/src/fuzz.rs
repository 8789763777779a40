//! Entry points for fuzzing: everything that decodes bytes from a device. None may panic.

use crate::state::State;

/// A batch of the log, replayed into an empty state.
pub fn wal_batch(bytes: &[u8]) {
    if let Ok(Some((header, _))) = crate::batch::BatchHeader::decode(bytes)
        && let Some(body) = header.body(bytes)
    {
        records(body, header.record_count);
    }
}

/// The records of one batch, without its checksums, replayed into an empty state.
pub fn record(bytes: &[u8]) {
    records(bytes, 64);
}

/// The superblock of a store.
pub fn superblock(bytes: &[u8]) {
    let _ = crate::tier::decode_superblock(bytes);
}

/// The settings of a shard.
pub fn shard_settings(bytes: &[u8]) {
    let _ = crate::store::decode_shard(bytes);
}

/// The head of a log.
pub fn log_head(bytes: &[u8]) {
    let _ = crate::wal::decode_head(bytes);
}

/// The table of a raw device.
pub fn volume_table(bytes: &[u8]) {
    let _ = crate::volume::decode_table(bytes);
}

fn records(body: &[u8], count: u32) {
    let mut state = State::default();
    let _ = state.replay_batch(body, count);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            super::wal_batch(&bytes);
            super::record(&bytes);
            super::superblock(&bytes);
            super::shard_settings(&bytes);
            super::log_head(&bytes);
            super::volume_table(&bytes);
        }
    }
}
