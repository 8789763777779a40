//! Open objects described without a handle: what another mirror of the same mount, perhaps on
//! another thread, needs to use them.
//!
//! Invariant: an object made from a description gives nothing back to the servers when it is
//! dropped; whoever opened the file keeps it open as long as descriptions of it are in use.

use crate::flags::OpenFlags;
use crate::fs::Dfs;
use crate::inode::{FileKind, Inode};
use crate::node::{Location, Obj};
use types::{Key, ObjClass, Oid};

/// What was known of an open object when it was described. May go to other threads.
#[derive(Clone, Debug)]
pub struct SharedObj {
    pub(crate) location: Location,
    pub(crate) inode: Inode,
    pub(crate) flags: OpenFlags,
    unlinked: bool,
    nameless: bool,
}

impl SharedObj {
    pub(crate) fn new(location: Location, inode: Inode, flags: OpenFlags) -> SharedObj {
        SharedObj { location, inode, flags, unlinked: false, nameless: false }
    }

    pub fn oid(&self) -> Oid {
        self.inode.oid
    }

    /// The directory its entry was last seen in; the root's is itself.
    pub fn parent_oid(&self) -> Oid {
        self.location.parent
    }

    /// The name its entry was last seen under.
    pub fn name(&self) -> &Key {
        &self.location.name
    }

    /// Type and permission bits.
    pub fn mode(&self) -> u32 {
        self.inode.mode
    }

    pub fn kind(&self) -> FileKind {
        self.inode.kind()
    }

    /// What it was opened for.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// The same, opened for something else.
    pub fn with_flags(self, flags: OpenFlags) -> SharedObj {
        SharedObj { flags, ..self }
    }

    /// The same under another name.
    pub fn at(self, parent: Oid, name: &[u8]) -> SharedObj {
        SharedObj { location: Location { parent, name: Key::new(name) }, ..self }
    }

    /// True when its last name was removed through the mount, or it has none yet.
    pub fn is_unlinked(&self) -> bool {
        self.unlinked
    }

    /// Says that its last name was removed.
    pub fn set_unlinked(&mut self) {
        self.unlinked = true;
    }

    /// Says that the file has, or has had, several names. Never becomes false again.
    pub fn set_hard(&mut self, hard: bool) {
        self.inode.hard |= hard;
    }

    /// True when the file has, or has had, several names.
    pub fn is_hard(&self) -> bool {
        self.inode.hard
    }

    /// Takes the attributes of a newer description, whatever name that one has.
    pub fn take_attributes(&mut self, newer: &SharedObj) {
        let hard = self.inode.hard;
        self.inode = newer.inode;
        self.inode.hard |= hard;
    }

    /// False when it is certain that the object has no extended attributes.
    pub fn may_have_xattrs(&self) -> bool {
        self.inode.has_xattrs
    }

    /// Class of files made in the directory, if one was set on it.
    pub fn file_class(&self) -> Option<ObjClass> {
        self.inode.file_class
    }

    /// Class of directories made in the directory, if one was set on it.
    pub fn dir_class(&self) -> Option<ObjClass> {
        self.inode.dir_class
    }
}

impl Obj {
    /// Describes the object as this mount knows it now.
    pub fn share(&self) -> SharedObj {
        SharedObj {
            location: self.node.location(),
            inode: self.node.inode(),
            flags: self.flags,
            unlinked: self.node.is_unlinked(),
            nameless: self.node.is_nameless(),
        }
    }
}

impl Dfs {
    /// An object as described, of a mirror of the same mount. Asks nobody. What this mirror
    /// knows of the object already is not touched.
    pub fn attach(&self, shared: &SharedObj) -> Obj {
        let node = match self.shared.open_node(shared.inode.oid) {
            Some(node) => node,
            None => {
                let node = self.shared.node(shared.location.clone(), shared.inode);
                node.set_names(shared.unlinked, shared.nameless);
                node
            }
        };
        Obj::new(node, shared.flags)
    }

    /// Brings what is known of an open object up to a newer description.
    pub fn refresh(&self, obj: &Obj, shared: &SharedObj) {
        obj.node.set_inode(shared.inode);
        obj.node.set_location(shared.location.clone());
        if shared.unlinked {
            obj.node.set_names(true, shared.nameless);
        } else if obj.node.is_nameless() {
            // Another mirror has given it a name.
            obj.node.set_names(false, false);
        }
    }
}
