//! Trees: what a container holds, written down beside the copies, so that the store alone restores it.

use crate::copy::trees_prefix;
use crate::manifest::{
    EntryKind, TREE_FORMAT, TreeEntry, TreeHead, encode_tree, to_base64, to_hex, to_text,
};
use crate::store::Store;
use dfs::find::Query;
use dfs::sys::Sys;
use dfs::tier::TierRecord;
use dfs::{Dfs, FileKind, Stat};
use std::collections::{BTreeMap, HashMap};
use types::{Code, Oid, Result};

/// Writes down what the container holds now; returns the key, and how many files had no copy.
///
/// Not one moment's view: what changes meanwhile is in it as it was before or after.
pub async fn put_tree(fs: &Dfs, store: &Store) -> Result<(String, u64)> {
    let prefix = trees_prefix(&fs.container().info().uuid.to_string());
    let (key, made_ns) = next_key(fs, store, &prefix).await?;
    let without = write_tree(fs, store, &key, made_ns, None).await?;
    Ok((key, without))
}

/// The key of what is described now, below a prefix, and its time: that of our clock, or later than all there are. Whatever clocks do, the newest has the
/// greatest name.
pub(crate) async fn next_key(fs: &Dfs, store: &Store, prefix: &str) -> Result<(String, u64)> {
    let time_of = |key: &str| {
        key.strip_prefix(prefix)?.strip_suffix(".jsonl")?.parse::<u64>().ok()?.checked_add(1)
    };
    let there = store.list(prefix).await?;
    let after_ns = there.iter().filter_map(|one| time_of(&one.key)).max().unwrap_or(0);
    let made_ns = fs.container().client().env().wall_ns().max(after_ns);
    Ok((format!("{prefix}{made_ns:020}.jsonl"), made_ns))
}

/// Writes down what a mount shows under a key, with the copies that files' records name, or those of a table by their objects; returns how many
/// files had no copy.
pub(crate) async fn write_tree(
    fs: &Dfs,
    store: &Store,
    key: &str,
    made_ns: u64,
    copies: Option<&HashMap<Oid, TierRecord>>,
) -> Result<u64> {
    let sys = Sys::new(fs.clone());
    let root = fs.root().await?;
    let mut found: Vec<(Vec<u8>, Stat)> = vec![(b"/".to_vec(), fs.ostat(&root).await?)];
    let query = Query { with_stat: true, ..Query::default() };
    fs.find(&root, &query, |one| {
        if let Some(stat) = one.stat {
            found.push(([b"/", &one.path[..]].concat(), stat));
        }
        Ok(())
    })
    .await?;
    // A directory comes before what is in it.
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let (mut entries, mut without) = (Vec::with_capacity(found.len()), 0);
    for (path, stat) in found {
        match entry(&sys, &path, &stat, copies).await {
            Ok(Some(entry)) => {
                let is_file = entry.kind == EntryKind::File;
                without += u64::from(is_file && entry.manifest.is_none());
                entries.push(entry);
            }
            // Removed or renamed since it was seen; or a kind that is not kept.
            Ok(None) => {}
            Err(error) if error.code == Code::NonExist => {}
            Err(error) => return Err(error.context(String::from_utf8_lossy(&path))),
        }
    }
    let info = fs.container().info();
    let head = TreeHead {
        format: TREE_FORMAT.into(),
        container: info.uuid.to_string(),
        label: info.label.clone(),
        made_ns,
    };
    store.put(key.to_string(), encode_tree(&head, &entries)).await?;
    Ok(without)
}

async fn entry(
    sys: &Sys,
    path: &[u8],
    stat: &Stat,
    copies: Option<&HashMap<Oid, TierRecord>>,
) -> Result<Option<TreeEntry>> {
    let kind = match stat.kind() {
        FileKind::Directory => EntryKind::Directory,
        FileKind::Regular => EntryKind::File,
        FileKind::Symlink => EntryKind::Symlink,
        _ => return Ok(None),
    };
    let (fs, obj) = (sys.fs(), sys.lookup(path, false).await?);
    let mut xattrs = BTreeMap::new();
    if kind != EntryKind::Symlink {
        for name in fs.listxattr(&obj).await? {
            let value = fs.getxattr(&obj, &name).await?;
            xattrs.insert(to_text(&name), to_base64(&value));
        }
    }
    let record = match copies {
        Some(copies) => copies.get(&stat.oid).cloned(),
        None => fs.tier_record(&obj).await?.filter(|record| record.version > 0),
    };
    let target = match kind {
        EntryKind::Symlink => Some(to_text(&sys.readlink(path).await?)),
        _ => None,
    };
    Ok(Some(TreeEntry {
        path: to_text(path),
        kind,
        mode: stat.mode & 0o7777,
        uid: stat.uid,
        gid: stat.gid,
        mtime_ns: stat.mtime_ns,
        target,
        object: (stat.nlink > 1 && kind == EntryKind::File).then(|| to_hex(&stat.oid.to_bytes())),
        xattrs,
        size: (kind == EntryKind::File)
            .then(|| record.as_ref().map_or(stat.size, |record| record.size)),
        manifest_sha256: record.as_ref().map(|record| to_hex(&record.manifest_sum)),
        manifest: record.map(|record| record.manifest),
    }))
}

/// Keys of all trees in a store, by the UUID of their container, the oldest first.
pub async fn trees(store: &Store) -> Result<BTreeMap<String, Vec<String>>> {
    described(store, "trees").await
}

/// The same of all snapshots.
pub async fn all_snapshots(store: &Store) -> Result<BTreeMap<String, Vec<String>>> {
    described(store, "snapshots").await
}

async fn described(store: &Store, kind: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let mut trees = BTreeMap::<String, Vec<String>>::new();
    for listed in store.list("containers/").await? {
        let mut parts = listed.key.split('/').skip(1);
        if let (Some(container), Some(of)) = (parts.next(), parts.next())
            && of == kind
        {
            trees.entry(container.to_string()).or_default().push(listed.key);
        }
    }
    trees.values_mut().for_each(|keys| keys.sort());
    Ok(trees)
}
