//! What parts of the index count for against the memory tier.
//!
//! Fixed figures near the true cost of each struct with its share of tree nodes and allocator
//! rounding. They are part of what a pool can hold, not of any format, and are the same for
//! both forms of a dkey, so that a count never depends on history.

/// An object, beside its dkeys.
pub(crate) const OBJECT: u64 = 160;
/// A dkey, beside its bytes.
pub(crate) const DKEY: u64 = 56;
/// An akey, beside its bytes.
pub(crate) const AKEY: u64 = 24;
/// An extent of an array, beside inline bytes.
pub(crate) const EXTENT: u64 = 56;
/// A run of a large single value.
pub(crate) const RUN: u64 = 16;
/// The past of an object, beside what is in it.
pub(crate) const PAST: u64 = 120;
/// Numbers about an object at an earlier time.
pub(crate) const FACTS: u64 = 48;
/// A dkey of the past, beside its bytes.
pub(crate) const PAST_DKEY: u64 = 120;
/// An akey of the past, beside its bytes.
pub(crate) const PAST_AKEY: u64 = 120;
/// A removed piece, beside inline bytes and runs.
pub(crate) const PAST_PIECE: u64 = 80;
