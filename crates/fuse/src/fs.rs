//! The file system of a mount: `dfs` as the kernel wants it.
//!
//! A [`Volume`] is what all threads of a mount share: the table of nodes the kernel knows, the
//! open files, who serves what. Each thread has a [`Worker`] with a client of its own, attached
//! to the pool and the container that were opened once. A request runs on the thread it came
//! to; only giving back an open handle and locking go to a thread of their own ([`mail`]).
//!
//! Invariants:
//! - The engines are asked once for a lookup, a stat, a create, an open; several nodes' views
//!   agree as far as the cache mode says ([`cache`]), and what this mount does itself it sees.
//! - A request is answered within the time-out of the mount, also when no engine answers.
//! - No object is taken for another that has its name now: what lost its name is `ESTALE`, and
//!   the kernel looks the path up again; a file that it finds then is held until it is open ([`replaced`]).

mod ahead;
mod attributes;
pub mod cache;
mod caller;
mod convert;
mod data;
mod directory;
mod fault;
mod files;
mod handles;
mod jobs;
mod listing;
mod locks;
mod mail;
mod names;
mod replaced;
mod serve;
mod table;
mod volume;
mod worker;
mod xattrs;

pub use cache::{CacheMode, CachePolicy};
pub use serve::MountedFs;
pub use volume::{Volume, VolumeOptions};

use worker::Worker;
