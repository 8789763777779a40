//! Snapshots in a store: a container as it was at one moment.
//!
//! A snapshot of the pool holds still while what the tier does not have is copied from it; then it is written down as a tree is, below
//! `snapshots/`. Parts that were copied before are named, not sent again. It stays until it is removed there: [`crate::gc`] keeps all
//! that snapshots name.

use crate::copy::container_prefix;
use crate::gc::files_named;
use crate::store::Store;
use crate::sync::copy_shown;
use crate::tree::{next_key, write_tree};
use dfs::sys::Sys;
use dfs::{CreateOptions, Dfs, OpenFlags};
use std::collections::HashMap;
use types::{Error, Result};

/// What a snapshot cost.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Snapshotted {
    /// Key of its description.
    pub key: String,
    pub files: u64,
    /// Bytes that were sent for it: what had changed since files were last copied.
    pub sent_bytes: u64,
}

/// Where snapshots of a container are; the newest has the greatest name.
pub(crate) fn snapshots_prefix(container: &str) -> String {
    format!("{}snapshots/", container_prefix(container))
}

/// Keys of a container's snapshots, the oldest first.
pub async fn snapshots(store: &Store, container: &str) -> Result<Vec<String>> {
    let listed = store.list(&snapshots_prefix(container)).await?;
    let mut keys: Vec<String> = listed.into_iter().map(|one| one.key).collect();
    keys.sort();
    Ok(keys)
}

/// Writes down what a mount shows that shows a snapshot of the pool. `progress` is told bytes as they are done.
///
/// Errors: `Access` when something cannot be read: a snapshot is whole or not there.
pub async fn put_snapshot(
    shown: &Dfs,
    store: &Store,
    tier: &str,
    progress: &dyn Fn(u64),
) -> Result<Snapshotted> {
    let sys = Sys::new(shown.clone());
    let (mut done, mut copies) = (Snapshotted::default(), HashMap::new());
    for path in files_named(shown).await? {
        let file = sys.open(&path, OpenFlags::READ, 0, &CreateOptions::default()).await?;
        if copies.contains_key(&file.oid()) {
            continue;
        }
        let named = |error: Error| error.context(String::from_utf8_lossy(&path));
        let (record, synced) =
            copy_shown(shown, &file, store, tier, progress).await.map_err(named)?;
        done.files += 1;
        done.sent_bytes += synced.sent_bytes;
        copies.insert(file.oid(), record);
    }
    let prefix = snapshots_prefix(&shown.container().info().uuid.to_string());
    let (key, made_ns) = next_key(shown, store, &prefix).await?;
    write_tree(shown, store, &key, made_ns, Some(&copies)).await?;
    done.key = key;
    Ok(done)
}

/// Removes the oldest snapshots of a container's but `keep`; returns how many. What only they named goes with the next [`crate::gc`].
pub async fn thin_snapshots(store: &Store, container: &str, keep: usize) -> Result<u64> {
    let mut keys = snapshots(store, container).await?;
    let old = keys.len().saturating_sub(keep);
    for key in keys.drain(..old) {
        store.delete(&key).await?;
    }
    Ok(old as u64)
}
