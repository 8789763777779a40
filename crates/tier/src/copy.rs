//! Keys, and reading what is behind them.

use crate::manifest::{FileManifest, PartName, to_hex};
use crate::store::Store;
use dfs::tier::TierRecord;
use types::{Error, Oid, Result};

/// Everything of a container.
pub(crate) fn container_prefix(container: &str) -> String {
    format!("containers/{container}/")
}

/// Where trees of a container are; the newest has the greatest name.
pub(crate) fn trees_prefix(container: &str) -> String {
    format!("{}trees/", container_prefix(container))
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

/// The manifest that a file's record names.
pub(crate) async fn manifest_of(store: &Store, record: &TierRecord) -> Result<FileManifest> {
    let raw = store.get(&record.manifest).await?;
    let manifest = FileManifest::decode(&raw, Some(&record.manifest_sum))
        .map_err(|error| error.context(&record.manifest))?;
    if (manifest.size, manifest.part_bytes) != (record.size, record.part_bytes) {
        return Err(Error::new(
            types::Code::Csum,
            format!("the manifest '{}' is not that of the file", record.manifest),
        ));
    }
    Ok(manifest)
}

/// A part's bytes, compared with its sum.
pub(crate) async fn part_bytes(store: &Store, name: &PartName) -> Result<Vec<u8>> {
    store.get_part(name).await
}
