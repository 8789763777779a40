//! Naive reference of the object store and of the namespace, for tests.
//!
//! Everything here is written to be seen right at a glance, not to be fast: ordered maps, whole
//! copies, no I/O, no clock. Tests run the same random operations here and on the real thing
//! and compare.
//!
//! - [`objects::ContShard`]: what one target holds, driven by the messages of [`wire::obj`].
//! - [`namespace::Namespace`]: a POSIX tree.

mod answer;
mod kinds;
pub mod namespace;
pub mod objects;

pub use namespace::Namespace;
pub use objects::ContShard;
