//! Two-phase commit: all that is decided about a transaction over several groups, as state machines without I/O or clock.
//!
//! What a target has learned goes in as an event, what it has to do comes out. The driver
//! (`crates/engine/src/commit.rs`) waits, sends, writes, and decides nothing. So all histories of a small
//! world of crashes, lost and late messages, failing logs and changes of leader can be gone through
//! (`crates/twophase/tests/twophase`).
//!
//! | machine | whose |
//! |---|---|
//! | [`Coordinator`] | one transaction, at the leader of its first part's group |
//! | [`Question`] | what that leader says to a participant that asks |
//! | [`Participant`] | one part in doubt, at the target that holds it; what that does when it prepares, and is told |
//!
//! Invariants, of all of them together:
//! - no part takes effect where another one is dropped, and all take effect at one epoch, which is not below the least of any;
//! - a client is told that its transaction is committed only when nothing can undo that;
//! - a decision is forgotten only when nobody holds a part any more: what is not known is aborted.

mod coordinator;
mod participant;
mod pause;
mod question;

pub use coordinator::{Action, Actions, Coordinator, Event, Refusal};
pub use participant::{DoubtAction, DoubtEvent, Firmness, Participant, Told};
pub use pause::Pauses;
pub use question::{Question, QuestionAction};
