//! Damage to pages of an engine's index.

use crate::Cluster;
use env::{AlignedBuf, OpenOptions};
use std::path::Path;
use types::Result;

const PAGES: &str = "/target0/pool.1/pages";
const BLOCK: usize = 4096;
/// What an image begins with, where it says what it is, and the first of the kinds that are no part of containers.
const MAGIC: &[u8] = b"AZKP";
const KIND_AT: usize = 32;
const KIND_TABLE: u8 = 2;

/// Flips a bit in every `step`th page of the index that an engine's first target has of the first pool; how many there were. Tables of
/// pages are left alone: without one nothing of the pool is served there.
pub async fn flip_pages(cluster: &Cluster, engine: usize, step: u64) -> Result<u64> {
    let env = cluster.world().node(&Cluster::engine_name(engine));
    let options = OpenOptions { direct: true, dsync: true, ..OpenOptions::default() };
    let file = env.disk().open(Path::new(PAGES), options).await?;
    let bytes = file.len()? as usize;
    let (all, read) = file.read_at(0, AlignedBuf::try_zeroed(bytes)?).await;
    read?;
    let is_page = |block: &[u8]| block.starts_with(MAGIC) && block[KIND_AT] < KIND_TABLE;
    let pages = all.chunks_exact(BLOCK).enumerate().filter(|(_, block)| is_page(block));
    let mut flipped = 0;
    for (at, page) in pages.step_by(step.max(1) as usize) {
        let mut block = AlignedBuf::try_zeroed(BLOCK)?;
        block.copy_from_slice(page);
        block[KIND_AT + 8] ^= 0x10;
        file.write_at((at * BLOCK) as u64, block).await.1?;
        flipped += 1;
    }
    Ok(flipped)
}
