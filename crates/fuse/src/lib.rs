//! Azekura as a mounted file system.
//!
//! [`low`] speaks the kernel's FUSE protocol and knows nothing of Azekura: requests become async
//! calls of a [`low::FileSystem`]. [`fs`] is the file system over `dfs` that is built on it.

pub mod fs;
pub mod low;
pub mod mount;
pub mod options;
