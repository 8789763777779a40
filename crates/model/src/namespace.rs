//! A POSIX tree in a few maps.
//!
//! Nodes have numbers that are never reused; calls name an entry by the number of its directory
//! and its name, as the `*at` calls of POSIX do. There are no users: the caller may do
//! everything. A removed directory stays as a number whose every use is `NonExist`.

use std::collections::BTreeMap;
use types::Code;

/// Number of a node.
pub type Ino = u64;

pub const ROOT: Ino = 1;

/// What a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A directory with its entries.
    Dir(BTreeMap<Vec<u8>, Ino>),
    /// A file with its bytes.
    File(Vec<u8>),
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
}

/// A file, directory or symbolic link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// What it is, and what is in it.
    pub kind: Kind,
    /// Names that lead to it; 1 for directories, 0 once removed.
    pub nlink: u32,
    /// Permission bits.
    pub mode: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Directory that a directory is in.
    pub parent: Ino,
}

/// What a rename does where the new name is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rename {
    /// Take the place of what has the name.
    Replace,
    /// Only if nothing has it.
    NoReplace,
    Exchange,
}

/// A tree of nodes below one root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    nodes: BTreeMap<Ino, Node>,
    next: Ino,
}

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace::new()
    }
}

impl Namespace {
    pub fn new() -> Namespace {
        let root = Node {
            kind: Kind::Dir(BTreeMap::new()),
            nlink: 1,
            mode: 0o777,
            xattrs: BTreeMap::new(),
            parent: ROOT,
        };
        Namespace { nodes: [(ROOT, root)].into(), next: ROOT + 1 }
    }

    /// A node, also one without a name.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// A node to change directly: bytes of an open file, mode, attributes.
    pub fn node_mut(&mut self, ino: Ino) -> Option<&mut Node> {
        self.nodes.get_mut(&ino)
    }

    /// True for a directory that was not removed.
    pub fn is_live_dir(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|n| n.nlink > 0 && matches!(n.kind, Kind::Dir(_)))
    }

    fn entries(&self, dir: Ino) -> Result<&BTreeMap<Vec<u8>, Ino>, Code> {
        match self.nodes.get(&dir) {
            Some(Node { kind: Kind::Dir(entries), nlink: 1.., .. }) => Ok(entries),
            Some(Node { kind: Kind::Dir(_), .. }) => Err(Code::NonExist),
            _ => Err(Code::NotDir),
        }
    }

    fn entries_mut(&mut self, dir: Ino) -> &mut BTreeMap<Vec<u8>, Ino> {
        match self.nodes.get_mut(&dir).map(|node| &mut node.kind) {
            Some(Kind::Dir(entries)) => entries,
            _ => panic!("{dir} was checked to be a directory"),
        }
    }

    /// The link count that a stat shows: of a directory 2 and one for each directory in it, or 0 when it was removed.
    pub fn link_count(&self, ino: Ino) -> u32 {
        match &self.nodes[&ino] {
            Node { kind: Kind::Dir(entries), nlink: 1.., .. } => {
                2 + entries.values().filter(|ino| self.is_dir(**ino)).count() as u32
            }
            node => node.nlink,
        }
    }

    /// The node an entry names.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino, Code> {
        self.entries(dir)?.get(name).copied().ok_or(Code::NonExist)
    }

    /// Names in a directory, in order.
    pub fn list(&self, dir: Ino) -> Result<Vec<(Vec<u8>, Ino)>, Code> {
        Ok(self.entries(dir)?.iter().map(|(name, ino)| (name.clone(), *ino)).collect())
    }

    pub fn make(&mut self, dir: Ino, name: &[u8], kind: Kind, mode: u32) -> Result<Ino, Code> {
        if self.entries(dir)?.contains_key(name) {
            return Err(Code::Exist);
        }
        let ino = self.next;
        self.next += 1;
        let parent = dir;
        self.nodes.insert(ino, Node { kind, nlink: 1, mode, xattrs: BTreeMap::new(), parent });
        self.entries_mut(dir).insert(name.to_vec(), ino);
        Ok(ino)
    }

    fn is_dir(&self, ino: Ino) -> bool {
        matches!(self.nodes[&ino].kind, Kind::Dir(_))
    }

    fn is_empty_dir(&self, ino: Ino) -> bool {
        matches!(&self.nodes[&ino].kind, Kind::Dir(entries) if entries.is_empty())
    }

    fn drop_name(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.nlink -= 1;
        }
    }

    /// Removes a name of a file or symbolic link.
    pub fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), Code> {
        let ino = self.lookup(dir, name)?;
        if self.is_dir(ino) {
            return Err(Code::IsDir);
        }
        self.entries_mut(dir).remove(name);
        self.drop_name(ino);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), Code> {
        let ino = self.lookup(dir, name)?;
        if !self.is_dir(ino) {
            return Err(Code::NotDir);
        }
        if !self.is_empty_dir(ino) {
            return Err(Code::NotEmpty);
        }
        self.entries_mut(dir).remove(name);
        self.drop_name(ino);
        Ok(())
    }

    /// Gives a file a further name.
    pub fn link(&mut self, dir: Ino, name: &[u8], to: Ino, new: &[u8]) -> Result<(), Code> {
        let ino = self.lookup(dir, name)?;
        if self.is_dir(ino) {
            return Err(Code::NoPerm);
        }
        if self.entries(to)?.contains_key(new) {
            return Err(Code::Exist);
        }
        self.entries_mut(to).insert(new.to_vec(), ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.nlink += 1;
        }
        Ok(())
    }

    /// True when `above` is `below` or one of the directories it is in.
    fn is_above(&self, above: Ino, below: Ino) -> bool {
        let mut at = below;
        while at != above {
            if at == ROOT {
                return false;
            }
            at = self.nodes[&at].parent;
        }
        true
    }

    /// Renames, as `renameat2` does.
    pub fn rename(
        &mut self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new: &[u8],
        how: Rename,
    ) -> Result<(), Code> {
        let ino = self.lookup(from, name)?;
        let old = self.entries(to)?.get(new).copied();
        match how {
            Rename::NoReplace if old.is_some() => return Err(Code::Exist),
            Rename::Exchange if old.is_none() => return Err(Code::NonExist),
            _ => {}
        }
        if old == Some(ino) {
            return Ok(());
        }
        if let (Some(old), Rename::Replace) = (old, how) {
            match (self.is_dir(ino), self.is_dir(old)) {
                (true, false) => return Err(Code::NotDir),
                (false, true) => return Err(Code::IsDir),
                _ => {}
            }
        }
        if self.is_dir(ino) && self.is_above(ino, to) {
            return Err(Code::Inval);
        }
        if let (Some(old), Rename::Exchange) = (old, how) {
            if self.is_dir(old) && self.is_above(old, from) {
                return Err(Code::Inval);
            }
            self.entries_mut(from).insert(name.to_vec(), old);
            self.adopt(old, from);
        } else {
            if let Some(old) = old {
                if self.is_dir(old) && !self.is_empty_dir(old) {
                    return Err(Code::NotEmpty);
                }
                self.drop_name(old);
            }
            self.entries_mut(from).remove(name);
        }
        self.entries_mut(to).insert(new.to_vec(), ino);
        self.adopt(ino, to);
        Ok(())
    }

    fn adopt(&mut self, ino: Ino, parent: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.parent = parent;
        }
    }

    /// Writes into a file; a gap before `offset` becomes zeros.
    pub fn write(&mut self, ino: Ino, offset: usize, data: &[u8]) {
        if let Some(Node { kind: Kind::File(bytes), .. }) = self.nodes.get_mut(&ino) {
            if data.is_empty() {
                return;
            }
            let end = offset + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[offset..end].copy_from_slice(data);
        }
    }

    /// Cuts or extends a file.
    pub fn truncate(&mut self, ino: Ino, size: usize) {
        if let Some(Node { kind: Kind::File(bytes), .. }) = self.nodes.get_mut(&ino) {
            bytes.resize(size, 0);
        }
    }

    /// All paths with what is there, directories first.
    pub fn paths(&self) -> Vec<(Vec<u8>, Ino)> {
        let mut all = Vec::new();
        let mut waiting = vec![(Vec::new(), ROOT)];
        while let Some((path, dir)) = waiting.pop() {
            let Some(Node { kind: Kind::Dir(entries), .. }) = self.nodes.get(&dir) else {
                continue;
            };
            for (name, ino) in entries {
                let path = [&path[..], b"/", name].concat();
                all.push((path.clone(), *ino));
                waiting.push((path, *ino));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_story() {
        let mut tree = Namespace::new();
        let dir = tree.make(ROOT, b"d", Kind::Dir(BTreeMap::new()), 0o755).unwrap();
        let sub = tree.make(dir, b"s", Kind::Dir(BTreeMap::new()), 0o755).unwrap();
        let file = tree.make(sub, b"f", Kind::File(Vec::new()), 0o644).unwrap();
        tree.write(file, 2, b"x");
        assert_eq!(tree.node(file).map(|n| &n.kind), Some(&Kind::File(b"\0\0x".to_vec())));
        assert_eq!(tree.rename(ROOT, b"d", sub, b"x", Rename::Replace), Err(Code::Inval));
        assert_eq!(tree.rename(dir, b"s", ROOT, b"d", Rename::Replace), Err(Code::NotEmpty));
        assert_eq!(tree.link(sub, b"f", ROOT, b"g"), Ok(()));
        assert_eq!(tree.unlink(sub, b"f"), Ok(()));
        assert_eq!(tree.rmdir(dir, b"s"), Ok(()));
        assert_eq!(tree.make(sub, b"y", Kind::File(Vec::new()), 0), Err(Code::NonExist));
        assert_eq!(tree.rename(ROOT, b"d", ROOT, b"g", Rename::Exchange), Ok(()));
        assert_eq!(tree.lookup(ROOT, b"d"), Ok(file));
    }
}
