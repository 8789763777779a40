//! Open objects.
//!
//! A [`Node`] is what this mount knows of one opened object: its id, where its entry was last
//! seen, its inode as last read. All handles of a mount on one object share a node, so a rename
//! or chmod through one of them is seen by the others. An [`Obj`] is a handle: a node and the
//! flags it was opened with.
//!
//! Invariant: for each handle that the servers count for a node, the node gives back exactly
//! one when it is dropped; so a file that was unlinked while open is freed with its last node.

use crate::even::Beside;
use crate::flags::OpenFlags;
use crate::fs::Shared;
use crate::inode::{FileKind, Inode};
use client::ArrayObj;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use types::{Code, Error, Key, ObjClass, Oid, Result};

/// Where an inode is named: the directory's object and the name in it. The root has no name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    pub parent: Oid,
    pub name: Key,
}

/// One opened object of a mount.
pub(crate) struct Node {
    pub fs: Rc<Shared>,
    pub oid: Oid,
    location: RefCell<Location>,
    inode: Cell<Inode>,
    /// Its last name was removed through this mount.
    unlinked: Cell<bool>,
    /// It never had a name and may get one.
    nameless: Cell<bool>,
    /// The next read is to set the access time.
    atime_due: Cell<bool>,
    /// The last read of its data met what is in a tier only: the next one looks there first.
    meets_stubs: Cell<bool>,
    /// Where this mount has made it, and how much of its first part it has written.
    beside: Cell<Option<Beside>>,
    /// Handles the servers count for it.
    handles: Cell<u32>,
}

impl Node {
    pub fn new(fs: Rc<Shared>, location: Location, inode: Inode) -> Node {
        Node {
            fs,
            oid: inode.oid,
            location: RefCell::new(location),
            inode: Cell::new(inode),
            unlinked: Cell::new(false),
            nameless: Cell::new(false),
            atime_due: Cell::new(false),
            meets_stubs: Cell::new(false),
            beside: Cell::new(None),
            handles: Cell::new(0),
        }
    }

    pub fn location(&self) -> Location {
        self.location.borrow().clone()
    }

    pub fn set_location(&self, location: Location) {
        self.location.replace(location);
    }

    pub fn is_at(&self, parent: Oid, name: &[u8]) -> bool {
        let location = self.location.borrow();
        location.parent == parent && &*location.name == name
    }

    pub fn inode(&self) -> Inode {
        self.inode.get()
    }

    pub fn set_inode(&self, inode: Inode) {
        self.inode.set(inode);
    }

    pub fn is_unlinked(&self) -> bool {
        self.unlinked.get()
    }

    pub fn set_unlinked(&self) {
        self.unlinked.set(true);
    }

    pub fn is_nameless(&self) -> bool {
        self.nameless.get()
    }

    pub fn set_nameless(&self) {
        self.unlinked.set(true);
        self.nameless.set(true);
    }

    /// As another mirror of the mount knows it.
    pub fn set_names(&self, unlinked: bool, nameless: bool) {
        self.unlinked.set(unlinked);
        self.nameless.set(nameless);
    }

    /// It has got its first name.
    pub fn set_named(&self, location: Location, inode: Inode) {
        self.set_location(location);
        self.set_inode(inode);
        self.unlinked.set(false);
        self.nameless.set(false);
    }

    /// Says whether the next read is to set the access time; returns what was said before.
    pub fn set_atime_due(&self, due: bool) -> bool {
        self.atime_due.replace(due)
    }

    pub fn meets_stubs(&self) -> bool {
        self.meets_stubs.get()
    }

    pub fn set_meets_stubs(&self, meets: bool) {
        self.meets_stubs.set(meets);
    }

    /// It was made just now.
    pub fn set_beside(&self, beside: Beside) {
        self.beside.set(Some(beside));
    }

    /// Bytes up to `end` were written.
    pub fn count_written(&self, end: u64) {
        let Some(beside) = self.beside.get() else { return };
        let bytes = end.min(self.oid.first_part_bytes().unwrap_or(u64::MAX));
        if bytes > beside.bytes {
            let more = bytes - beside.bytes;
            self.fs.written.borrow_mut().add(beside.dir, beside.group, more);
            self.beside.set(Some(Beside { bytes, ..beside }));
        }
    }

    pub fn add_handle(&self) {
        self.handles.set(self.handles.get() + 1);
    }

    /// True when the servers count a handle of this mount for it.
    pub fn has_handles(&self) -> bool {
        self.handles.get() > 0
    }

    /// The file's data.
    pub fn array(&self) -> ArrayObj {
        self.fs.array(&self.inode())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.fs.forget_node(self.oid);
        for _ in 0..self.handles.get() {
            self.fs.cont.release(self.oid);
        }
    }
}

/// An open file, directory, symbolic link or special file. Closed when dropped.
#[derive(Clone)]
pub struct Obj {
    pub(crate) node: Rc<Node>,
    pub(crate) flags: OpenFlags,
}

impl Obj {
    pub(crate) fn new(node: Rc<Node>, flags: OpenFlags) -> Obj {
        Obj { node, flags }
    }

    /// The object's id, unique in the container for ever.
    pub fn oid(&self) -> Oid {
        self.node.oid
    }

    /// A number for `st_ino`.
    pub fn ino(&self) -> u64 {
        self.node.oid.lo
    }

    /// The directory its entry was last seen in; the root's is itself.
    pub fn parent_oid(&self) -> Oid {
        self.node.location.borrow().parent
    }

    /// The name its entry was last seen under; `/` for the root.
    pub fn name(&self) -> Key {
        self.node.location.borrow().name.clone()
    }

    /// Type and permission bits as last read.
    pub fn mode(&self) -> u32 {
        self.node.inode().mode
    }

    pub fn kind(&self) -> FileKind {
        self.node.inode().kind()
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.node.inode().is_dir()
    }

    /// What it was opened for.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// Chunk of the file, or of files made in the directory, bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.node.fs.chunk_bytes_of(&self.node.inode())
    }

    /// Class of the object; `Inval` when the id has bits this version does not know.
    pub fn class(&self) -> Result<ObjClass> {
        self.node.oid.class()
    }

    /// Class of files made in the directory, if one was set on it.
    pub fn file_class(&self) -> Option<ObjClass> {
        self.node.inode().file_class
    }

    /// True when the file has lost its last name through this mount, or never had one.
    pub fn is_unlinked(&self) -> bool {
        self.node.is_unlinked()
    }

    /// The same object, with flags of its own.
    pub fn dup(&self, flags: OpenFlags) -> Obj {
        Obj { node: self.node.clone(), flags }
    }

    pub(crate) fn require_dir(&self) -> Result<Inode> {
        let inode = self.node.inode();
        if inode.is_dir() { Ok(inode) } else { Err(Error::bare(Code::NotDir)) }
    }

    pub(crate) fn require_regular(&self) -> Result<()> {
        match self.kind() {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::bare(Code::IsDir)),
            _ => Err(Error::bare(Code::Inval)),
        }
    }
}

impl std::fmt::Debug for Obj {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Obj")
            .field("oid", &self.oid())
            .field("location", &self.node.location.borrow())
            .field("flags", &self.flags)
            .finish()
    }
}
