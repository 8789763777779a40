//! Giving up what a copy has.

use crate::copy::{copy_in, manifest_of, parallel, part_bytes, require_attached};
use crate::store::Store;
use async_recursion::async_recursion as boxed;
use dfs::tier::Chunk;
use dfs::{Dfs, Obj};
use futures_util::StreamExt;
use types::{Code, Epoch, Error, Result};

/// What was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Eviction {
    /// Bytes that the pool has no more.
    pub evicted_bytes: u64,
    /// Bytes that stay because the copy does not have them as they are.
    pub dirty_bytes: u64,
}

/// Gives up the chunks of a file that its copy has, each part after it was read back and compared.
///
/// Errors: `NonExist` for a file without a copy in the tier; `Busy` when it is not the container's any more; `Csum` when the copy is damaged: the chunks stay.
#[boxed(?Send)]
pub async fn evict_file(
    fs: &Dfs,
    file: &Obj,
    store: &Store,
    tier: &str,
    progress: &dyn Fn(u64),
) -> Result<Eviction> {
    let record = copy_in(tier, fs.tier_record(file).await?);
    let record = record.ok_or_else(|| {
        let text = format!("the file has no copy in tier '{tier}'; azekura fs tier sync makes one");
        Error::new(Code::NonExist, text)
    })?;
    require_attached(fs, tier).await?;
    let client = fs.container().client();
    let manifest = client.beside_users(manifest_of(store, &record)).await?;
    let survey = fs.tier_survey(file).await?;
    let (mut eviction, mut newest) = (Eviction::default(), Epoch::ZERO);
    let count = survey.chunks.len();
    // Parts with chunks that may go; the others are done.
    let mut going = Vec::new();
    for (at, part) in manifest.parts.iter().enumerate() {
        let from = at as u64 * record.part_bytes;
        let first = (from / survey.chunk_bytes) as usize;
        let end = (from + part.bytes).div_ceil(survey.chunk_bytes) as usize;
        let mut here = (first..end.min(count))
            .filter(|&chunk| survey.may_go(chunk) && survey.is_clean(&record, chunk));
        match here.any(|chunk| !matches!(survey.chunks[chunk], Chunk::Stub { .. })) {
            true => going.push((first, part)),
            false => progress(part.bytes),
        }
    }
    let mut outcome = Ok(());
    let read = |(first, part)| async move {
        (first, part, client.beside_users(part_bytes(store, part)).await)
    };
    // Read back a few at a time, in order.
    let mut read =
        futures_util::stream::iter(going).map(read).buffered(parallel(record.part_bytes));
    while let Some((first, part, bytes)) = read.next().await {
        let evicted = match bytes {
            Ok(bytes) => fs.tier_evict(file, &survey, &record, first, &bytes).await,
            Err(error) => Err(error),
        };
        match evicted {
            Ok(evicted) => {
                eviction.evicted_bytes += evicted.bytes;
                eviction.dirty_bytes += evicted.changed * survey.chunk_bytes;
                newest = newest.max(evicted.epoch);
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
        progress(part.bytes);
    }
    let dirty = (0..survey.chunks.len()).filter(|&chunk| !survey.is_clean(&record, chunk));
    eviction.dirty_bytes += dirty.count() as u64 * survey.chunk_bytes;
    fs.tier_keep_mtime(file, survey.mtime_ns, newest).await?;
    outcome.map(|()| eviction)
}
