//! Azekura as a mounted file system.
//!
//! [`fuselow`] speaks the kernel's FUSE protocol and knows nothing of Azekura: requests become async
//! calls of a [`fuselow::FileSystem`]. [`fs`] is the file system over `dfs` that is built on it.

pub mod fs;
pub mod mount;
pub mod options;
