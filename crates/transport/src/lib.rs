//! Connections between clients and engines: shared memory, TCP, simulated.
//!
//! A caller dials ([`connect`]) and makes [`Call`]s; an engine listens ([`Acceptor`]), reads who
//! calls ([`Incomer`]), hands the caller to the thread that serves it ([`Handoff`]) and receives
//! requests there ([`ServerConn`]). On one host the two sides switch to shared memory during the
//! introduction, and large data is copied once, between the engine's buffers and the client's.
//!
//! Invariants:
//! - Nothing a peer sends or writes into shared memory harms this process: every byte is checked
//!   before use, and a breach of the protocol ends that one connection.
//! - An engine touches a client's buffers only while the call that owns them is alive, and only
//!   where the kernel lets any program of the engine's user do so.
//! - When a connection ends, every call on it fails at once.
//!
//! - An engine asks for deferred data before it comes; who waits for it is told when the client
//!   gives up or goes.
//!
//! This crate knows frames and introductions, but not what requests mean.

mod accept;
mod address;
mod answers;
mod bell;
mod conn;
mod deferred;
mod dial;
mod fdpass;
mod for_job;
mod frame;
pub mod fuzz;
mod greetings;
mod ledger;
mod link_speeds;
mod outbox;
mod pacing;
mod peer;
mod remote;
mod ring;
mod server;
mod shm;
mod sim;
mod socket;
mod stream;

pub use accept::{Acceptor, Handoff, HelloInfo, Incomer};
pub use address::Address;
pub use conn::{Answer, Arrivals, Call, Conn, Ending};
pub use dial::{Dial, connect, is_heard, is_refused};
pub use for_job::{current_job, for_job};
pub use ledger::{Ledger, MESSAGE_BYTES_MAX_DEFAULT};
pub use link_speeds::{
    LinkSpeeds, PROBE_BYTES, PROBE_SLICES, TRANSFER_BYTES_MIN, probed_speed, transfer_kb_s,
};
pub use peer::{began, has_ended, host_process, is_gone};
pub use server::{Incoming, IncomingBulk, Responder, ServerConn};
pub use sim::SimNet;
