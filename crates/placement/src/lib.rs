//! Where objects live: pure functions from (object id, dkey, pool map) to targets.
//!
//! Every client and every engine computes the same answer, so nobody has to be asked.
//!
//! Invariants:
//! - The answer depends on the object id, on the [`wire::map::PlacementSet`] of the object's
//!   placement epoch, and on which targets are *out* ([`wire::map::OutTarget`]) only. A change of a target's *state* moves nothing; a
//!   change of targets or weights opens a new placement epoch and touches no existing object.
//! - Only integer arithmetic is used, so that every machine draws the same lots for ever.
//!
//! Method: weighted rendezvous hashing with exponential draws, as CRUSH's straw2 buckets have
//! it (Weil et al., "CRUSH", SC 2006; straw2 in Ceph). Unlike CRUSH the hierarchy does not take
//! part in the draw: fault domains only decide which of the drawn targets may sit in one group.
//! So weights are met exactly and no rack-sized bucket has to be balanced.
//!
//! This crate knows no clock, no I/O and no object contents.

mod class;
mod domain;
mod draw;
mod hint;
mod layout;
mod losses;
mod room;
mod score;
mod share;
mod spare;

pub use class::check_class;
pub use hint::{HintTable, hint_beside, hint_for};
pub use layout::{Layout, cell_layout, follows, is_alone, is_live, knows_epoch, layout};
pub use losses::{Losses, has_given_all, losses, lost_for_want_of_room};
pub use room::{Filled, Room, has_room_for_part, room_for_shares, room_without};
pub use score::{
    Measured, WEIGHT_NORM, change_percent, least_left_percent, score, weights, weights_up_to,
};
