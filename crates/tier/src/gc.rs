//! Collecting objects that nobody names: of uploads that never ended, of versions of before, of files that were removed.

use crate::copy::{copy_in, files_prefix, trees_prefix};
use crate::manifest::{FileManifest, decode_tree};
use crate::snapshot::snapshots;
use crate::store::Store;
use crate::tree::join;
use async_recursion::async_recursion as boxed;
use dfs::find::Query;
use dfs::sys::Sys;
use dfs::{Dfs, FileKind};
use std::collections::HashSet;
use std::time::Duration;
use types::{Code, Error, Result};

/// What was collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Collected {
    pub removed_objects: u64,
    pub removed_bytes: u64,
    pub kept_objects: u64,
    /// Trees that were removed because there are newer ones.
    pub removed_trees: u64,
}

/// Removes from a tier what neither a file of the container, nor a snapshot there, nor one of its newest `trees_kept` trees names, and what is older than
/// `age_s` seconds: younger objects may be of an upload that runs. With `dry_run` only counts.
///
/// Errors: `Busy` for a container with snapshots, which may show files as their copies were; `Csum` when a manifest that is in use cannot be read: then nothing is removed.
#[boxed(?Send)]
pub async fn gc(
    fs: &Dfs,
    store: &Store,
    tier: &str,
    age_s: u64,
    trees_kept: usize,
    dry_run: bool,
) -> Result<Collected> {
    let info = fs.container().info();
    if info.snapshot_count > 0 {
        return Err(Error::new(
            Code::Busy,
            "the container has snapshots, which may need copies that no file needs any more; remove the snapshots first",
        ));
    }
    let container = info.uuid.to_string();
    // Where our clock is ahead of the store's, parts of uploads that run would look old.
    let random = fs.container().client().env().random_u64();
    let now_s = store.clock_s(&format!("test/clock-{random:016x}")).await?;
    // Before the names are looked at: what is put later is not in it.
    let mut objects = store.list(&files_prefix(&container)).await?;
    let mut trees = store.list(&trees_prefix(&container)).await?;
    trees.sort_by(|a, b| b.key.cmp(&a.key));
    let old_trees = trees.split_off(trees.len().min(trees_kept));
    let snapshots = snapshots(store, &container).await?;

    let mut manifests: HashSet<String> = HashSet::new();
    for key in trees.iter().map(|tree| &tree.key).chain(&snapshots) {
        let (_, entries) =
            decode_tree(&store.get(key).await?).map_err(|error| error.context(key))?;
        manifests.extend(entries.into_iter().filter_map(|entry| entry.manifest));
    }
    manifests_in_use(fs, tier, &mut manifests).await?;
    let mut live: HashSet<String> = HashSet::new();
    for key in manifests {
        let raw = store.get(&key).await.map_err(|error| error.context("a manifest in use"))?;
        let manifest = FileManifest::decode(&raw, None).map_err(|error| error.context(&key))?;
        live.extend(manifest.parts.into_iter().map(|part| part.key));
        live.insert(key);
    }

    let is_old = |modified_s: Option<i64>| match (now_s, modified_s) {
        (Some(now_s), Some(at)) => now_s.saturating_sub(at) >= age_s as i64,
        _ => false,
    };
    let mut collected = Collected::default();
    objects.retain(|object| {
        let goes = !live.contains(&object.key) && is_old(object.modified_s);
        collected.kept_objects += u64::from(!goes);
        goes
    });
    for object in &objects {
        if !dry_run {
            store.delete(&object.key).await?;
        }
        collected.removed_objects += 1;
        collected.removed_bytes += object.bytes;
    }
    let (count, bytes) = store.remove_unfinished(Duration::from_secs(age_s), dry_run)?;
    collected.removed_objects += count;
    collected.removed_bytes += bytes;
    for tree in old_trees {
        if !dry_run {
            store.delete(&tree.key).await?;
        }
        collected.removed_trees += 1;
    }
    Ok(collected)
}

/// Paths of all regular files below a directory of a mount, each name of those with several.
///
/// Errors: `Access` when some directories cannot be read.
pub(crate) async fn files_named(fs: &Dfs, directory: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    let query = Query { kind: Some(FileKind::Regular), ..Query::default() };
    let top = Sys::new(fs.clone()).lookup(directory, false).await?;
    let totals = fs
        .find(&top, &query, |found| {
            paths.push(join(directory, &found.path));
            Ok(())
        })
        .await?;
    if totals.denied > 0 {
        return Err(Error::new(
            Code::Access,
            "some directories cannot be read; what is in use is known to the superuser only",
        ));
    }
    Ok(paths)
}

/// Adds the manifests in a tier that files of the container name.
async fn manifests_in_use(fs: &Dfs, tier: &str, manifests: &mut HashSet<String>) -> Result<()> {
    let sys = Sys::new(fs.clone());
    for path in files_named(fs, b"/").await? {
        let record = match sys.lookup(&path, false).await {
            Ok(file) => fs.tier_record(&file).await?,
            Err(error) if error.code == Code::NonExist => {
                // It may have got another name, which was looked at before it had it.
                return Err(Error::new(Code::Busy, "names change meanwhile; collect again later"));
            }
            Err(error) => return Err(error.context(String::from_utf8_lossy(&path))),
        };
        if let Some(record) = copy_in(tier, record) {
            manifests.insert(record.manifest);
        }
    }
    Ok(())
}
