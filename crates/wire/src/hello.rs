//! The first exchange on every connection: versions, identity, whom the caller wants, and that both know the secret.
//!
//! 1. The engine sends a [`Challenge`].
//! 2. The caller sends a [`ProvenHello`]: who it is, and a proof over that and the challenge.
//! 3. The engine answers with a [`HelloReply`], which has its own proof, or with why not.
//!
//! What the proofs are is in [`crate::proof`]. The secret is never sent.

use serde::{Deserialize, Serialize};
use types::{ClientId, TargetId};

/// Whom a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Service {
    /// The engine's control service.
    Control,
    /// One target of the engine.
    Target(TargetId),
    /// The control service, for an engine that passes requests on: one that does not hold it says so
    /// (`Stale`) and passes nothing on.
    Leader,
}

/// A piece of the client's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RemoteRange {
    /// Virtual address in the client.
    pub address: u64,
    pub bytes: u64,
}

/// Random bytes of one side, other ones for each connection.
pub type Nonce = [u8; 32];

/// Shows that somebody knows a secret: see [`crate::proof`].
pub type Proof = [u8; 32];

/// What the engine says first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Challenge {
    pub nonce: Nonce,
}

/// What a caller says first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProvenHello<'a> {
    /// Its [`Hello`], encoded: the proof is over these bytes.
    #[serde(with = "serde_bytes", borrow)]
    pub hello: &'a [u8],
    /// That it knows the secret of the system; where none is set, the same with an empty one.
    pub proof: Proof,
}

/// Who calls, and whom.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello<'a> {
    /// Who calls; the same over reconnects, so that retries are recognised.
    pub client: ClientId,
    pub service: Service,
    /// The caller's own random bytes, so that no answer to an earlier call is taken for the one to this.
    pub nonce: Nonce,
    /// Name of the job the caller belongs to; may be empty.
    pub job: &'a str,
    /// On one host: the caller's process id.
    pub pid: u32,
    /// On one host: where the caller keeps `memory_word` as long as the connection lives. The engine
    /// looks at it whenever it reaches into the caller's memory, so that it never takes another
    /// program's for it. Address 0: the engine is not to reach it.
    pub memory_word_address: u64,
    /// Random word at that address.
    pub memory_word: u64,
}

/// What the engine answers, inside a `Result`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HelloReply {
    /// Changes whenever the engine process starts, and at a target also when it has given the client
    /// up in between: open handles registered under another one are gone.
    pub incarnation: u64,
    /// The engine reads and writes the caller's memory in place.
    pub remote_bulk: bool,
    /// The engine's version, for people.
    pub engine_version: String,
    /// That the engine knows the secret that the caller has shown to know.
    pub proof: Proof,
}
