//! Keys, and reading what is behind them.

use crate::definition::ATTACHED;
use crate::manifest::{FileManifest, PartName, to_hex};
use crate::store::Store;
use async_recursion::async_recursion as boxed;
use dfs::Dfs;
use dfs::tier::TierRecord;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::time::{SystemTime, UNIX_EPOCH};
use types::{Code, Error, Oid, Result};
use wire::control::{ControlReply, ControlRequest, Subject};

/// Parts on their way at the same time, and most bytes of them.
const PARALLEL: u64 = 4;
const BYTES_ON_THE_WAY: u64 = 256 << 20;

/// How many parts of that size are on their way at the same time.
pub(crate) fn parallel(part_bytes: u64) -> usize {
    (BYTES_ON_THE_WAY / part_bytes.max(1)).clamp(1, PARALLEL) as usize
}

/// Everything of a container.
pub(crate) fn container_prefix(container: &str) -> String {
    format!("containers/{container}/")
}

/// Where trees of a container are; the newest has the greatest name.
pub(crate) fn trees_prefix(container: &str) -> String {
    format!("{}trees/", container_prefix(container))
}

/// Where snapshots of a container are; the newest has the greatest name.
pub(crate) fn snapshots_prefix(container: &str) -> String {
    format!("{}snapshots/", container_prefix(container))
}

/// Where manifests and parts of a container are.
pub(crate) fn files_prefix(container: &str) -> String {
    format!("{}files/", container_prefix(container))
}

/// What begins all keys of one upload of a file. `random` tells uploads apart that run at the same time.
pub(crate) fn upload_prefix(container: &str, oid: Oid, version: u64, random: u64) -> String {
    let object = to_hex(&oid.to_bytes());
    format!("{}{object}/{version:012}-{random:016x}", files_prefix(container))
}

/// The key of a part of an upload.
pub(crate) fn part_key(upload: &str, at: usize) -> String {
    format!("{upload}.{at:06}.part")
}

/// The key of an upload's manifest.
pub(crate) fn manifest_key(upload: &str) -> String {
    format!("{upload}.json")
}

/// Where the part would be if it was sent with the manifest of that key, and not kept from an upload before.
pub(crate) fn part_key_beside(manifest: &str, at: usize) -> Option<String> {
    manifest.strip_suffix(".json").map(|upload| part_key(upload, at))
}

/// The record of a file's copy, if that is in the tier of that name.
pub(crate) fn copy_in(tier: &str, record: Option<TierRecord>) -> Option<TierRecord> {
    record.filter(|record| record.version > 0 && record.tier == tier)
}

/// To be asked before data leave the pool for a tier, or a copy takes the place of one in another tier: programs that began before the container got
/// another tier would bring them back to the one before.
///
/// Errors: `Busy` where it has another one now.
pub(crate) async fn require_attached(fs: &Dfs, tier: &str) -> Result<()> {
    let cont = fs.container();
    let subject = Subject::Cont(cont.pool().name(), cont.name());
    let reply = cont.client().control(&ControlRequest::GetAttrs { subject }).await?;
    let ControlReply::Attrs(attrs) = reply else {
        return Err(Error::new(Code::Proto, "a control reply of the wrong kind"));
    };
    match attrs.get(ATTACHED).map(|name| String::from_utf8_lossy(name)) {
        Some(now) if now == tier => Ok(()),
        now => {
            let now = now.map_or("no tier".into(), |now| format!("tier '{now}'"));
            let text = format!("the container has {now} now, not '{tier}'");
            Err(Error::new(Code::Busy, text))
        }
    }
}

/// The manifest that a file's record names.
pub(crate) async fn manifest_of(store: &Store, record: &TierRecord) -> Result<FileManifest> {
    let manifest = manifest_at(store, &record.manifest, &record.manifest_sum).await?;
    check_fits(&manifest, record)?;
    Ok(manifest)
}

/// The manifest of that key and sum.
pub(crate) async fn manifest_at(store: &Store, key: &str, sum: &[u8; 32]) -> Result<FileManifest> {
    let raw = store.get(key).await?;
    FileManifest::decode(&raw, Some(sum)).map_err(|error| error.context(key))
}

/// `Csum` unless the manifest is of a file as the record has it.
pub(crate) fn check_fits(manifest: &FileManifest, record: &TierRecord) -> Result<()> {
    if (manifest.size, manifest.part_bytes) == (record.size, record.part_bytes) {
        return Ok(());
    }
    let text = format!("the manifest '{}' is not that of the file", record.manifest);
    Err(Error::new(Code::Csum, text))
}

/// A part's bytes, compared with its sum.
pub(crate) async fn part_bytes(store: &Store, name: &PartName) -> Result<Vec<u8>> {
    store.get_part(name).await
}

/// Puts parts without a file, as many at a time as a copy has on its way: for measurements, below `test/`.
#[boxed(?Send)]
pub async fn put_parts(store: &Store, parts: Vec<Vec<u8>>) -> Result<Vec<PartName>> {
    let begun_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_nanos());
    let put = |(at, bytes)| store.put_part(format!("test/{begun_ns:x}/{at}"), bytes);
    let parts = stream::iter(parts.into_iter().enumerate()).map(put);
    parts.buffered(parallel(store.part_bytes())).try_collect().await
}

/// Gets parts in the same way, and drops their bytes; returns how many there were.
#[boxed(?Send)]
pub async fn get_parts(store: &Store, names: &[PartName]) -> Result<u64> {
    let parts = stream::iter(names).map(|name| store.get_part(name));
    let mut parts = parts.buffered(parallel(store.part_bytes()));
    let mut bytes = 0;
    while let Some(part) = parts.try_next().await? {
        bytes += part.len() as u64;
    }
    Ok(bytes)
}
