//! Trees: what a container holds, written down beside the copies, so that the store alone restores it.

use crate::copy::{copy_in, snapshots_prefix, trees_prefix};
use crate::manifest::{
    EntryKind, TREE_FORMAT, TreeEntry, TreeHead, encode_tree, to_base64, to_hex, to_text,
};
use crate::part;
use crate::store::Store;
use async_recursion::async_recursion as boxed;
use dfs::find::Query;
use dfs::sys::Sys;
use dfs::tier::TierRecord;
use dfs::{Dfs, FileKind, Stat};
use std::collections::{BTreeMap, HashMap};
use types::{Code, Oid, Result};

/// Writes down what the container holds now; returns the key, and how many files had no copy in the tier.
///
/// Not one moment's view: what changes meanwhile is in it as it was before or after.
#[boxed(?Send)]
pub async fn put_tree(fs: &Dfs, store: &Store, tier: &str) -> Result<(String, u64)> {
    let described = describe(fs, None, Copies::In(tier)).await?;
    Ok((put_described(fs, store, &described).await?, described.without))
}

/// The same, unless it is what was written down before: `known` remembers that. Returns the key, if there is a new one.
pub async fn put_tree_if_changed(
    fs: &Dfs,
    store: &Store,
    tier: &str,
    known: &mut Option<[u8; 32]>,
) -> Result<Option<String>> {
    let described = describe(fs, None, Copies::In(tier)).await?;
    let head = head_of(fs, 0, None);
    let now = part::sum(&encode_tree(&head, &described.entries));
    if known.as_ref() == Some(&now) {
        return Ok(None);
    }
    let key = put_described(fs, store, &described).await?;
    *known = Some(now);
    Ok(Some(key))
}

async fn put_described(fs: &Dfs, store: &Store, described: &Described) -> Result<String> {
    let prefix = trees_prefix(&fs.container().info().uuid.to_string());
    let (key, made_ns) = next_key(fs, store, &prefix).await?;
    let raw = encode_tree(&head_of(fs, made_ns, None), &described.entries);
    store.put(key.clone(), raw).await?;
    Ok(key)
}

/// Removes the oldest trees but `keep` of a container; returns how many. What only they named goes with the next [`crate::gc`].
pub async fn thin_trees(store: &Store, container: &str, keep: usize) -> Result<u64> {
    let mut trees = store.list(&trees_prefix(container)).await?;
    trees.sort_by(|a, b| a.key.cmp(&b.key));
    let old = trees.len().saturating_sub(keep.max(1));
    for tree in &trees[..old] {
        store.delete(&tree.key).await?;
    }
    Ok(old as u64)
}

/// When a container's newest tree was made by its name, or its newest snapshot, nanoseconds since 1970; `None`: there is none.
pub async fn newest_ns(store: &Store, container: &str, of: Descriptions) -> Result<Option<u64>> {
    let prefix = match of {
        Descriptions::Trees => trees_prefix(container),
        Descriptions::Snapshots => snapshots_prefix(container),
    };
    let there = store.list(&prefix).await?;
    Ok(there.iter().filter_map(|one| time_of(&prefix, &one.key)).max())
}

/// The kinds of descriptions that a store has of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Descriptions {
    /// The newest state, for restoring all of it.
    Trees,
    Snapshots,
}

/// The key of what is described now, below a prefix, and its time: that of our clock, or later than all there are. Whatever clocks do, the newest has the
/// greatest name.
pub(crate) async fn next_key(fs: &Dfs, store: &Store, prefix: &str) -> Result<(String, u64)> {
    let there = store.list(prefix).await?;
    let times = there.iter().filter_map(|one| time_of(prefix, &one.key)?.checked_add(1));
    let after_ns = times.max().unwrap_or(0);
    let made_ns = fs.container().client().env().wall_ns().max(after_ns);
    Ok((format!("{prefix}{made_ns:020}.jsonl"), made_ns))
}

/// The time in the key of a description.
fn time_of(prefix: &str, key: &str) -> Option<u64> {
    key.strip_prefix(prefix)?.strip_suffix(".jsonl")?.parse().ok()
}

pub(crate) fn head_of(fs: &Dfs, made_ns: u64, directory: Option<&[u8]>) -> TreeHead {
    let info = fs.container().info();
    TreeHead {
        format: TREE_FORMAT.into(),
        container: info.uuid.to_string(),
        label: info.label.clone(),
        made_ns,
        directory: directory.map(to_text),
    }
}

/// What a mount shows.
pub(crate) struct Described {
    pub entries: Vec<TreeEntry>,
    /// Files that had no copy.
    pub without: u64,
}

/// Which copies a description names.
#[derive(Clone, Copy)]
pub(crate) enum Copies<'a> {
    /// Those of files' records that are in this tier.
    In(&'a str),
    /// These, by their objects.
    These(&'a HashMap<Oid, TierRecord>),
}

/// Looks at all that a mount shows, or at a directory, what is in it, and the directories above it.
pub(crate) async fn describe(
    fs: &Dfs,
    directory: Option<&[u8]>,
    copies: Copies<'_>,
) -> Result<Described> {
    let sys = Sys::new(fs.clone());
    let mut found: Vec<(Vec<u8>, Stat)> = Vec::new();
    let top = directory.unwrap_or(b"/");
    for above in above(top) {
        let dir = sys.lookup(above, false).await?;
        found.push((above.to_vec(), fs.ostat(&dir).await?));
    }
    let query = Query { with_stat: true, ..Query::default() };
    let dir = sys.lookup(top, false).await?;
    fs.find(&dir, &query, |one| {
        if let Some(stat) = one.stat {
            found.push((join(top, &one.path), stat));
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
    Ok(Described { entries, without })
}

/// The root, and each directory on the way to a path, which ends it.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
    let on_the_way = slashes.map(|(at, _)| &path[..at]);
    let last = Some(path).filter(|path| path.len() > 1);
    [&b"/"[..]].into_iter().chain(on_the_way).chain(last)
}

/// A path below a directory, which has no slash at its end.
pub(crate) fn join(directory: &[u8], below: &[u8]) -> Vec<u8> {
    match directory {
        b"/" => [b"/", below].concat(),
        _ => [directory, b"/", below].concat(),
    }
}

async fn entry(
    sys: &Sys,
    path: &[u8],
    stat: &Stat,
    copies: Copies<'_>,
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
        Copies::These(copies) => copies.get(&stat.oid).cloned(),
        Copies::In(tier) => copy_in(tier, fs.tier_record(&obj).await?),
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
#[boxed(?Send)]
pub async fn trees(store: &Store) -> Result<BTreeMap<String, Vec<String>>> {
    described(store, "trees").await
}

/// The same of all snapshots.
#[boxed(?Send)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_above_a_path_come_from_the_root_down() {
        let all = |path: &'static str| -> Vec<&str> {
            above(path.as_bytes()).map(|one| std::str::from_utf8(one).unwrap()).collect()
        };
        assert_eq!(all("/"), ["/"]);
        assert_eq!(all("/a"), ["/", "/a"]);
        assert_eq!(all("/a/bc/d"), ["/", "/a", "/a/bc", "/a/bc/d"]);
        assert_eq!(join(b"/", b"x/y"), b"/x/y");
        assert_eq!(join(b"/a", b"x"), b"/a/x");
    }
}
