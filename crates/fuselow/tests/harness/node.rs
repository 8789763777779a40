//! The nodes of the in-memory file system: data, names, attributes, locks. No async here.

use fuselow::{Attr, Errno, FileKind, LockKind, LockOwner, LockRequest, NodeId, SetAttr, SetTime};
use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

pub enum Data {
    File(Vec<u8>),
    Directory(Directory),
    Symlink(Vec<u8>),
    Other,
}

#[derive(Default)]
pub struct Directory {
    pub entries: BTreeMap<Vec<u8>, (u64, NodeId)>,
    /// The order in which they are listed: an entry keeps its place as long as it lives.
    pub places: BTreeMap<u64, Vec<u8>>,
    next_place: u64,
}

impl Directory {
    pub fn get(&self, name: &[u8]) -> Option<NodeId> {
        self.entries.get(name).map(|&(_, node)| node)
    }

    pub fn insert(&mut self, name: &[u8], node: NodeId) {
        self.remove(name);
        // 1 and 2 are the dots.
        self.next_place = self.next_place.max(2) + 1;
        self.entries.insert(name.to_vec(), (self.next_place, node));
        self.places.insert(self.next_place, name.to_vec());
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<NodeId> {
        let (place, node) = self.entries.remove(name)?;
        self.places.remove(&place);
        Some(node)
    }
}

pub struct Node {
    pub attr: Attr,
    pub data: Data,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub lookups: u64,
    pub opens: u64,
    pub locks: Vec<LockRequest>,
}

pub fn now() -> (u64, u32) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (since.as_secs(), since.subsec_nanos())
}

impl Node {
    pub fn new(ino: u64, mode: u32, uid: u32, gid: u32, data: Data) -> Node {
        let (secs, ns) = now();
        let attr = Attr {
            ino,
            mode,
            uid,
            gid,
            nlink: if matches!(data, Data::Directory(_)) { 2 } else { 1 },
            atime: secs,
            mtime: secs,
            ctime: secs,
            atime_ns: ns,
            mtime_ns: ns,
            ctime_ns: ns,
            blksize: 4096,
            ..Attr::default()
        };
        Node { attr, data, xattrs: BTreeMap::new(), lookups: 0, opens: 0, locks: Vec::new() }
    }

    pub fn kind(&self) -> FileKind {
        FileKind::of_mode(self.attr.mode).unwrap_or(FileKind::Regular)
    }

    pub fn file(&mut self) -> Result<&mut Vec<u8>, Errno> {
        match &mut self.data {
            Data::File(data) => Ok(data),
            Data::Directory(_) => Err(Errno(libc::EISDIR)),
            _ => Err(Errno::INVAL),
        }
    }

    pub fn directory(&mut self) -> Result<&mut Directory, Errno> {
        match &mut self.data {
            Data::Directory(directory) => Ok(directory),
            _ => Err(Errno(libc::ENOTDIR)),
        }
    }

    /// Size and blocks follow from the data.
    pub fn attr(&self) -> Attr {
        let size = match &self.data {
            Data::File(data) | Data::Symlink(data) => data.len() as u64,
            Data::Directory(directory) => directory.entries.len() as u64,
            Data::Other => 0,
        };
        Attr { size, blocks: size.div_ceil(512), ..self.attr }
    }

    pub fn modified(&mut self) {
        let (secs, ns) = now();
        (self.attr.mtime, self.attr.mtime_ns) = (secs, ns);
        (self.attr.ctime, self.attr.ctime_ns) = (secs, ns);
    }

    pub fn set(&mut self, set: &SetAttr) -> Result<(), Errno> {
        if let Some(size) = set.size {
            self.file()?.resize(size as usize, 0);
            self.modified();
        }
        if let Some(mode) = set.mode {
            self.attr.mode = self.attr.mode & 0o170000 | mode & 0o7777;
        }
        if let Some(uid) = set.uid {
            self.attr.uid = uid;
        }
        if let Some(gid) = set.gid {
            self.attr.gid = gid;
        }
        let time = |time: SetTime| match time {
            SetTime::Now => now(),
            SetTime::At { secs, ns } => (secs as u64, ns),
        };
        if let Some(at) = set.atime {
            (self.attr.atime, self.attr.atime_ns) = time(at);
        }
        if let Some(at) = set.mtime {
            (self.attr.mtime, self.attr.mtime_ns) = time(at);
        }
        (self.attr.ctime, self.attr.ctime_ns) = now();
        Ok(())
    }

    /// A lock of somebody else in the way of this one.
    pub fn conflict(&self, want: &LockRequest) -> Option<LockRequest> {
        let clash = |held: &&LockRequest| {
            held.flock == want.flock
                && held.owner != want.owner
                && held.lock.start <= want.lock.end
                && want.lock.start <= held.lock.end
                && (held.lock.kind == LockKind::Write || want.lock.kind == LockKind::Write)
        };
        self.locks.iter().find(clash).copied()
    }

    /// Takes a lock that nothing is in the way of, or lets go of one.
    pub fn lock(&mut self, want: LockRequest) {
        let mut kept = Vec::new();
        for held in self.locks.drain(..) {
            let apart = held.lock.start > want.lock.end || want.lock.start > held.lock.end;
            if apart || held.owner != want.owner || held.flock != want.flock {
                kept.push(held);
                continue;
            }
            if held.lock.start < want.lock.start {
                let mut left = held;
                left.lock.end = want.lock.start - 1;
                kept.push(left);
            }
            if held.lock.end > want.lock.end {
                let mut right = held;
                right.lock.start = want.lock.end + 1;
                kept.push(right);
            }
        }
        if want.lock.kind != LockKind::Unlock {
            kept.push(want);
        }
        self.locks = kept;
    }

    pub fn unlock_all(&mut self, owner: LockOwner, flock: bool) {
        self.locks.retain(|held| held.owner != owner || held.flock != flock);
    }
}

pub type Nodes = HashMap<NodeId, Node>;
