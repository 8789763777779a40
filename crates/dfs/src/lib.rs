//! POSIX namespace over objects.
//!
//! A directory is an object with one dkey per entry, a file an array object; there is no
//! metadata server, and this crate keeps no state on the servers but the objects themselves
//! ([`layout`] says how). Every operation here is a future of one thread.
//!
//! What it promises: the errno of POSIX for every case; renames, links and removals that are
//! atomic whatever else happens; files that outlive their last name while they are open; size
//! and mtime that are right although no inode is touched by writes.
//!
//! What it does not do: cache data (mounts do), keep access times unless asked to
//! ([`MountFlags::RELATIME`]).
//! It knows nothing of targets' storage, and of the control plane only how to get object
//! numbers.
//!
//! - [`Dfs`]: a mount as one caller sees it; names relative to an open directory [`Obj`].

pub mod acl;
mod attr;
mod by_object;
pub mod check;
mod conflict;
mod create;
mod cred;
mod dir;
mod entry;
mod even;
mod extents;
mod file;
pub mod find;
pub mod flags;
mod fs;
mod glob;
mod handle;
mod holes;
pub mod inode;
pub mod layout;
pub mod layout_attr;
mod link;
mod lock;
mod many;
pub mod migrate;
mod nameless;
mod node;
mod page;
mod path;
mod remove;
mod rename;
mod share;
pub mod sys;
pub mod tier;
mod transfers;
mod walk;
mod xattr;

pub use attr::{Stat, StatFs};
pub use by_object::{Created, Removed, Renamed, Unnamed};
pub use client::{
    LockAsk, LockBook, LockHolder, LockInterrupt, LockKind, LockMode, LockOwner, LockRange,
};
pub use cred::Credentials;
pub use dir::{DirAnchor, DirEntry};
pub use file::FILE_BYTES_MAX;
pub use flags::{
    Access, AllocateFlags, CreateOptions, MountFlags, NodeKind, OpenFlags, RenameFlags, SetAttr,
    SetTime,
};
pub use fs::{Dfs, FormatOptions};
pub use holes::runs_of_data;
pub use inode::FileKind;
pub use layout_attr::LayoutChange;
pub use node::Obj;
pub use share::SharedObj;
pub use types::{Code, Error, Result};
pub use wire::obj::Recx;
pub use xattr::XattrMode;
