//! I/O request coordination: a *coordinator* lets only a few processes at a time write to (or read
//! from) a storage target, because targets grow slower when many do.
//!
//! Usable on any file system and without the rest of Azekura. The idea, the three messages and the
//! minimum size are from "I/O request coordination for parallel file systems" (Ohno, Hori,
//! Ishikawa); reads, jobs, several targets per request and limits that are found by themselves are
//! not in it.
//!
//! | module | what it is |
//! |---|---|
//! | [`message`] | the frames between a client and its coordinator |
//! | [`queue`] | who may go when: a state machine without I/O |
//! | [`pattern`] | patterns for names |
//! | [`server`] | the coordinator |
//! | [`monitor`] | asking a coordinator for its state |
//! | [`load`] | many clients on one thread, for measuring a coordinator |
//! | [`figure`] | from a trace to how long each process waited and wrote |
//! | [`client`] | the connection of a process that does I/O to its coordinator |
//! | [`rules`] | which target a file belongs to, whom to ask, settings |

pub mod client;
pub mod figure;
pub mod load;
pub mod message;
pub mod monitor;
pub mod pattern;
pub mod queue;
pub mod rules;
pub mod server;
