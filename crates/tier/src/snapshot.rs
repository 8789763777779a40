//! Snapshots in a store: a container as it was at one moment.
//!
//! A snapshot of the pool holds still while what the tier does not have is copied from it, and its names are read ([`prepare_snapshot`]); when it is known that
//! it was there all the time they are written down as a tree is, below `snapshots/` ([`Prepared::put`]). Parts that were copied before are named, not sent again.
//! It stays until it is removed there: [`crate::gc`] keeps all that snapshots name.

use crate::copy::snapshots_prefix;
use crate::gc::files_named;
use crate::manifest::{TreeEntry, TreeHead, decode_tree_head, encode_tree, to_text};
use crate::store::Store;
use crate::sync::copy_shown;
use crate::tree::{Copies, describe, head_of, next_key};
use dfs::sys::Sys;
use dfs::{CreateOptions, Dfs, OpenFlags};
use std::collections::HashMap;
use types::{Code, Error, Result};

/// Bytes that hold a snapshot's head: a label and a path.
const HEAD_BYTES_MAX: u64 = 16 << 10;

/// What a snapshot cost.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Snapshotted {
    /// Key of its description.
    pub key: String,
    pub files: u64,
    /// Bytes that were sent for it: what had changed since files were last copied.
    pub sent_bytes: u64,
}

/// What a snapshot is to say, of files that are in the store by now.
pub struct Prepared {
    entries: Vec<TreeEntry>,
    directory: Option<Vec<u8>>,
    done: Snapshotted,
}

/// Keys of a container's snapshots, the oldest first.
pub async fn snapshots(store: &Store, container: &str) -> Result<Vec<String>> {
    let listed = store.list(&snapshots_prefix(container)).await?;
    let mut keys: Vec<String> = listed.into_iter().map(|one| one.key).collect();
    keys.sort();
    Ok(keys)
}

/// What snapshots say of themselves, the oldest first, with their keys.
///
/// Errors: `Csum` for one that says nothing.
pub async fn snapshot_heads(store: &Store, container: &str) -> Result<Vec<(String, TreeHead)>> {
    let mut listed = store.list(&snapshots_prefix(container)).await?;
    listed.sort_by(|a, b| a.key.cmp(&b.key));
    let mut heads = Vec::with_capacity(listed.len());
    for one in listed {
        let start = match store.get_range(&one.key, 0, one.bytes.min(HEAD_BYTES_MAX)).await {
            // It was removed since it was listed.
            Err(error) if error.code == Code::NonExist => continue,
            outcome => outcome?,
        };
        let head = decode_tree_head(&start).ok_or_else(|| {
            Error::new(Code::Csum, format!("'{}' does not begin as snapshots do", one.key))
        })?;
        heads.push((one.key, head));
    }
    Ok(heads)
}

/// Sends what the tier does not have of what a mount shows that shows a snapshot of the pool, or of that what is in a directory. `progress` is told bytes as
/// they are done.
///
/// Errors: `Access` when something cannot be read: a snapshot is whole or not there.
pub async fn prepare_snapshot(
    shown: &Dfs,
    store: &Store,
    tier: &str,
    directory: Option<&[u8]>,
    progress: &dyn Fn(u64),
) -> Result<Prepared> {
    let sys = Sys::new(shown.clone());
    let (mut done, mut copies) = (Snapshotted::default(), HashMap::new());
    for path in files_named(shown, directory.unwrap_or(b"/")).await? {
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
    let entries = describe(shown, directory, Copies::These(&copies)).await?.entries;
    Ok(Prepared { entries, directory: directory.map(<[u8]>::to_vec), done })
}

impl Prepared {
    /// Writes it down; `shown` is the mount that it was prepared from.
    pub async fn put(self, shown: &Dfs, store: &Store) -> Result<Snapshotted> {
        let prefix = snapshots_prefix(&shown.container().info().uuid.to_string());
        let (key, made_ns) = next_key(shown, store, &prefix).await?;
        let head = head_of(shown, made_ns, self.directory.as_deref());
        store.put(key.clone(), encode_tree(&head, &self.entries)).await?;
        Ok(Snapshotted { key, ..self.done })
    }
}

/// Removes the oldest snapshots but `keep` of a container, or of a directory of it: others stay. Returns how many. What only they named goes with
/// the next [`crate::gc`].
pub async fn thin_snapshots(
    store: &Store,
    container: &str,
    directory: Option<&[u8]>,
    keep: usize,
) -> Result<u64> {
    let directory = directory.map(to_text);
    let mut heads = snapshot_heads(store, container).await?;
    heads.retain(|(_, head)| head.directory == directory);
    let old = heads.len().saturating_sub(keep);
    for (key, _) in heads.drain(..old) {
        store.delete(&key).await?;
    }
    Ok(old as u64)
}
