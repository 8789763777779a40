//! `libazekura_intercept.so`: loaded into any program with `LD_PRELOAD`, it makes calls on files below a
//! prefix go to Azekura inside the process: data and metadata, with a mount behind them or without.
//!
//! | module | what it is |
//! |---|---|
//! | [`hooks`] | the functions that stand in for the C library's, one family per file |
//! | [`config`], [`mountinfo`], [`path`], [`numbered`], [`cwd`] | which paths are ours |
//! | [`table`], [`open`], [`head`], [`about`] | which descriptors are ours, and what they share with other processes |
//! | [`mount`], [`walk`], [`act`], [`caller`] | the way of a call to `dfs` |
//! | [`locks`] | locks of descriptions that several processes have |
//! | [`listing`], [`temporary`], [`program`] | directory streams, temporary names, programs that are executed |
//! | [`size`], [`pending`] | the limit of file sizes, what a stream has not written |
//! | [`inside`], [`report`], [`real`], [`errno`] | being inside, counters and log, the C library |
//!
//! # Invariants
//!
//! - A call that does not concern us reaches the C library with the caller's arguments; on the way
//!   nothing is allocated, no lock is taken, nothing is connected.
//! - A descriptor of ours is a descriptor of the kernel's, so numbers, limits, `dup`, `fork`,
//!   `exec` and sending it to another process are the kernel's business. Who uses it behind our
//!   back gets `EBADF`, never other data.
//! - The program can neither close nor use a descriptor of our connections.
//! - A child made by `fork` does not use its parent's connections, nor keep them open.
//! - What cannot be done goes to the mount, or fails with an errno and a line in the log.
//!
//! # What it does not see
//!
//! Programs linked statically, system calls made directly (Go; by `syscall` some are seen), io_uring and `aio_*`, and calls
//! that the C library makes inside itself; `docs/intercept.md` lists which of those matter.

// A test program must not have its own calls stood in for; without the hooks much is unused.
#![cfg_attr(test, allow(dead_code))]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("file offsets are taken to be 64 bits wide in every form of a call");

mod about;
mod act;
mod caller;
mod config;
mod cwd;
mod head;
#[cfg(not(test))]
mod hooks;
mod inside;
mod listing;
mod locks;
mod mount;
mod mountinfo;
mod numbered;
mod open;
mod path;
mod pending;
mod program;
mod real;
mod report;
mod size;
mod table;
mod temporary;
mod walk;

use preload::errno;
