//! Cold tier: copies of files in object stores, and a description of them there that needs nothing else.
//!
//! A *tier* is a place in an object store or a directory ([`Definition`]), reached through OpenDAL ([`Store`]). A file's
//! copy is *parts* ([`part`]) and a *manifest* that names them ([`manifest`]); what a container holds is a *tree*.
//! Which of a file's chunks the pool has, and that nobody ever takes a missing one for a hole, is `dfs::tier`'s.
//!
//! Invariants:
//! - Nothing in a store is ever written over: each upload has keys of its own. So a program that is killed at any step
//!   leaves the copy of before whole, and at worst objects that nobody names, for [`gc`].
//! - A manifest is put after all of its parts, the file's record says so after that.
//! - The pool gives up a chunk only after its part was read back and compared ([`evict_file`]).
//! - Secrets are read where a store is opened; they are in no definition, message or log.
//!
//! It knows nothing of commands and of where definitions are kept.

mod agent;
mod copy;
mod credentials;
mod definition;
mod evict;
mod gc;
mod keep;
mod key;
pub mod manifest;
mod mark;
mod mover;
pub mod part;
mod policy;
mod restore;
pub mod s2_chunks;
mod shown;
mod snapshot;
mod source;
mod store;
mod sync;
mod tree;

pub use agent::{Agent, Caller, Syncs};
pub use copy::{get_parts, put_parts};
pub use credentials::Credentials;
pub use definition::{
    ATTACHED, Definition, EARLIER, PART_BYTES_DEFAULT, ZSTD_LEVEL_DEFAULT, attr_name, name_of_attr,
};
pub use evict::{Eviction, evict_file};
pub use gc::{Collected, gc};
pub use keep::{in_background, keep_moving, room};
pub use key::Key;
pub use mover::{Dirty, Move, Moved, Mover, Room, Why};
pub use policy::{Action, CacheMax, Facts, Fill, Policy, Rule, UsesRange, age};
pub use restore::{Restored, restore, restore_file};
pub use shown::{Node, OpenFile, Shown};
pub use snapshot::{
    Prepared, Snapshotted, prepare_snapshot, snapshot_heads, snapshots, thin_snapshots,
};
pub use source::{Counts, Source};
pub use store::{Checked, Store, give_way, wait};
pub use sync::{Synced, sync_file};
pub use tree::{
    Descriptions, all_snapshots, newest_ns, put_tree, put_tree_if_changed, thin_trees, trees,
};
