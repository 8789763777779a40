//! Azekura as a mounted file system.
//!
//! [`low`] speaks the kernel's FUSE protocol and knows nothing of Azekura: requests become async
//! calls of a [`low::FileSystem`]. The file system over `dfs` is built on it.

pub mod low;
