//! A container as a store describes it, to be looked at and read without a pool.
//!
//! Nothing of it changes: what is shown is one tree. Bytes are read in whole parts, each compared with its SHA-256: there is no pool that
//! would know checksums of less.

use crate::manifest::{EntryKind, FileManifest, TreeEntry, from_base64, from_hex, from_text};
use crate::source::Source;
use async_recursion::async_recursion as boxed;
use dfs::tier::{TierAsk, TierRecord, TierSource};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use types::{Code, ContId, Error, Oid, Result};
use wire::obj::Recx;

/// Entries of a tree by number; 0 is the root.
#[derive(Debug)]
pub struct Shown {
    nodes: Vec<Node>,
    /// Names without a copy when the tree was written; they are not shown.
    missing: u64,
}

/// A file, directory or symbolic link.
#[derive(Debug)]
pub struct Node {
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime_ns: i64,
    /// Bytes; of a symbolic link those of its target.
    pub size: u64,
    /// Names that lead to it.
    pub nlink: u32,
    /// Of a directory the one that it is in; the root is in itself.
    pub parent: usize,
    /// Of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What a directory holds, in order.
    children: Vec<(Vec<u8>, usize)>,
    /// Key and SHA-256 of a file's manifest.
    manifest: Option<(String, [u8; 32])>,
}

/// A file that is read.
pub struct OpenFile {
    record: TierRecord,
    /// The part that was read last, and where it begins.
    held: Mutex<Option<(u64, Arc<Vec<u8>>)>>,
}

impl Shown {
    /// What a tree describes.
    ///
    /// Errors: `Csum` for entries that make no tree.
    pub fn new(entries: &[TreeEntry]) -> Result<Shown> {
        let mut shown = Shown { nodes: Vec::new(), missing: 0 };
        let mut directories: HashMap<Vec<u8>, usize> = HashMap::new();
        let mut objects: HashMap<&str, usize> = HashMap::new();
        for entry in entries {
            let path = from_text(&entry.path)?;
            let at = shown.nodes.len();
            if path == b"/" {
                if at > 0 || entry.kind != EntryKind::Directory {
                    return Err(no_tree("its root is not its first directory"));
                }
                shown.nodes.push(node_of(entry, 0)?);
                directories.insert(Vec::new(), 0);
                continue;
            }
            let slash = path.iter().rposition(|&byte| byte == b'/');
            let (dir, name) = path.split_at(slash.ok_or_else(|| no_tree("a path is none"))?);
            let name = &name[1..];
            if name.is_empty() || name == b"." || name == b".." || name.contains(&0) {
                return Err(no_tree("a name is none"));
            }
            let parent = *directories.get(dir).ok_or_else(|| no_tree("a directory is missing"))?;
            let first = entry.object.as_deref().and_then(|object| objects.get(object)).copied();
            let at = match first.filter(|_| entry.kind == EntryKind::File) {
                Some(first) => {
                    shown.nodes[first].nlink += 1;
                    first
                }
                None if entry.kind == EntryKind::File && entry.manifest.is_none() => {
                    shown.missing += 1;
                    continue;
                }
                None => {
                    shown.nodes.push(node_of(entry, parent)?);
                    at
                }
            };
            if let Some(object) = &entry.object {
                objects.insert(object, at);
            }
            if entry.kind == EntryKind::Directory {
                shown.nodes[parent].nlink += 1;
                directories.insert(path.clone(), at);
            }
            shown.nodes[parent].children.push((name.to_vec(), at));
        }
        if shown.nodes.is_empty() {
            return Err(no_tree("it has no root"));
        }
        for node in &mut shown.nodes {
            node.children.sort();
            if node.children.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return Err(no_tree("a name is there twice"));
            }
        }
        Ok(shown)
    }

    /// An entry by its number.
    pub fn node(&self, at: usize) -> Option<&Node> {
        self.nodes.get(at)
    }

    /// How many entries there are.
    pub fn node_count(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let files = self.nodes.iter().filter(|node| node.kind == EntryKind::File);
        files.fold(0, |sum, node| sum.saturating_add(node.size))
    }

    /// Names of files that had no copy, and are not shown.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// What a name in a directory leads to.
    pub fn lookup(&self, dir: usize, name: &[u8]) -> Option<usize> {
        let children = self.children(dir);
        let at = children.binary_search_by(|(other, _)| other.as_slice().cmp(name)).ok()?;
        Some(children[at].1)
    }

    /// Names in a directory, in order, and what they lead to; none in anything else.
    pub fn children(&self, dir: usize) -> &[(Vec<u8>, usize)] {
        self.nodes.get(dir).map_or(&[], |node| &node.children)
    }

    /// Opens a file of the store that is the source's tier of that name.
    ///
    /// Errors: `IsDir` for what is no file; `Csum` for a damaged manifest; those of the store.
    #[boxed(?Send)]
    pub async fn open(&self, source: &Source, tier: &str, at: usize) -> Result<OpenFile> {
        let node = self.nodes.get(at);
        let named = node.and_then(|node| Some((node, node.manifest.as_ref()?)));
        let (node, (key, sum)) = named.ok_or_else(|| Error::bare(Code::IsDir))?;
        let raw = source.store(tier).await?.get(key).await?;
        let manifest = FileManifest::decode(&raw, Some(sum)).map_err(|error| error.context(key))?;
        if manifest.size != node.size {
            return Err(no_tree("a file has another size than its manifest says"));
        }
        let record = TierRecord {
            oid: Oid::NIL,
            version: manifest.version.max(1),
            size: manifest.size,
            part_bytes: manifest.part_bytes,
            upload: None,
            manifest_sum: *sum,
            tier: tier.to_string(),
            manifest: key.clone(),
            synced: Vec::new(),
        };
        Ok(OpenFile { record, held: Mutex::new(None) })
    }
}

impl OpenFile {
    /// Reads from an offset on; fewer bytes than there is room for are the end of the file.
    ///
    /// Errors: `Csum` when a part is not what was put there: never other bytes.
    #[boxed(?Send)]
    pub async fn read(&self, source: &Source, offset: u64, memory: &mut [u8]) -> Result<usize> {
        let end = self.record.size.min(offset.saturating_add(memory.len() as u64));
        let (mut at, mut rest) = (offset, memory);
        while at < end {
            let (from, part) = self.part(source, at).await?;
            let within = part.get((at - from) as usize..).unwrap_or_default();
            let count = within.len().min(rest.len());
            if count == 0 {
                return Err(no_tree("a part is shorter than its manifest says"));
            }
            let (here, left) = std::mem::take(&mut rest).split_at_mut(count);
            here.copy_from_slice(&within[..count]);
            (at, rest) = (at + count as u64, left);
        }
        Ok(at.saturating_sub(offset) as usize)
    }

    async fn part(&self, source: &Source, at: u64) -> Result<(u64, Arc<Vec<u8>>)> {
        let index = at / self.record.part_bytes * self.record.part_bytes;
        let held = || self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let here = held().clone();
        if let Some(here) = here.filter(|(from, _)| *from == index) {
            return Ok(here);
        }
        let count = self.record.part_bytes.min(self.record.size - index);
        let range = Recx { index, count };
        let ask = TierAsk { cont: ContId(0), record: self.record.clone(), range };
        let part = (index, Arc::new(source.read(ask).await?));
        *held() = Some(part.clone());
        Ok(part)
    }
}

fn node_of(entry: &TreeEntry, parent: usize) -> Result<Node> {
    let target = from_text(entry.target.as_deref().unwrap_or_default())?;
    let mut xattrs = BTreeMap::new();
    for (name, value) in &entry.xattrs {
        xattrs.insert(from_text(name)?, from_base64(value)?);
    }
    let manifest = match (&entry.manifest, &entry.manifest_sha256) {
        (Some(key), Some(sum)) => {
            let sum = from_hex(sum).ok_or_else(|| no_tree("a sum is none"))?;
            Some((key.clone(), sum))
        }
        (None, None) => None,
        _ => return Err(no_tree("a manifest is named by half")),
    };
    let size = match entry.kind {
        EntryKind::File => entry.size.unwrap_or(0),
        EntryKind::Symlink => target.len() as u64,
        EntryKind::Directory => 0,
    };
    Ok(Node {
        kind: entry.kind,
        mode: entry.mode & 0o7777,
        uid: entry.uid,
        gid: entry.gid,
        mtime_ns: entry.mtime_ns,
        size,
        nlink: if entry.kind == EntryKind::Directory { 2 } else { 1 },
        parent,
        target,
        xattrs,
        children: Vec::new(),
        manifest: manifest.filter(|_| entry.kind == EntryKind::File),
    })
}

fn no_tree(what: &str) -> Error {
    Error::new(Code::Csum, format!("a description in the store makes no sense: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: EntryKind) -> TreeEntry {
        let is_file = kind == EntryKind::File;
        TreeEntry {
            path: path.into(),
            kind,
            mode: 0o644,
            uid: 1,
            gid: 2,
            mtime_ns: 3,
            target: (kind == EntryKind::Symlink).then(|| "to".into()),
            object: None,
            xattrs: BTreeMap::new(),
            size: is_file.then_some(7),
            manifest: is_file.then(|| "key".into()),
            manifest_sha256: is_file.then(|| "00".repeat(32)),
        }
    }

    #[test]
    fn names_lead_where_the_tree_says() {
        use EntryKind::{Directory, File, Symlink};
        let with = |object: &str, path: &str| TreeEntry {
            object: Some(object.into()),
            ..entry(path, File)
        };
        let uncopied = TreeEntry { manifest: None, manifest_sha256: None, ..entry("/n", File) };
        let shown = Shown::new(&[
            entry("/", Directory),
            with("o", "/a"),
            entry("/d", Directory),
            entry("/d e", Directory),
            with("o", "/d/b"),
            entry("/d/l", Symlink),
            uncopied,
        ])
        .unwrap();
        let names = |dir| -> Vec<&[u8]> {
            shown.children(dir).iter().map(|(name, _)| name.as_slice()).collect()
        };
        assert_eq!(names(0), [&b"a"[..], b"d", b"d e"]);
        let dir = shown.lookup(0, b"d").unwrap();
        assert_eq!(names(dir), [&b"b"[..], b"l"]);
        assert_eq!(shown.lookup(0, b"a"), shown.lookup(dir, b"b"));
        let file = shown.node(shown.lookup(0, b"a").unwrap()).unwrap();
        assert_eq!((file.nlink, file.size), (2, 7));
        let link = shown.node(shown.lookup(dir, b"l").unwrap()).unwrap();
        assert_eq!((&link.target[..], link.size), (&b"to"[..], 2));
        assert_eq!((shown.lookup(0, b"n"), shown.missing()), (None, 1));
        assert_eq!((shown.node(0).unwrap().nlink, shown.bytes()), (4, 7));
    }

    #[test]
    fn what_makes_no_tree_is_refused() {
        use EntryKind::{Directory, File};
        let root = || entry("/", Directory);
        for wrong in [
            vec![],
            vec![entry("/", File)],
            vec![root(), root()],
            vec![entry("/a", File)],
            vec![root(), entry("/d/a", File)],
            vec![root(), entry("/a", File), entry("/a/b", File)],
            vec![root(), entry("/a", File), entry("/a", File)],
            vec![root(), entry("a", File)],
            vec![root(), entry("/..", Directory)],
            vec![root(), entry("//", Directory)],
            vec![root(), TreeEntry { manifest_sha256: None, ..entry("/a", File) }],
        ] {
            assert_eq!(Shown::new(&wrong).unwrap_err().code, Code::Csum, "{wrong:?}");
        }
    }
}
