//! Sums of bulk data, as they travel with batches and replies. How data are cut in chunks is told by
//! [`types::sums`].

use crate::cell::NamedPart;
use serde::{Deserialize, Serialize};
use types::CsumKind;
use types::sums::SumRun;

/// Sums of the values in the bulk of a batch, value after value and chunk after chunk as
/// [`types::sums`] says, made where the data came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sums<'a> {
    /// That of the container; [`CsumKind::Off`] when there is no bulk.
    pub kind: CsumKind,
    /// One after the other.
    #[serde(with = "serde_bytes", borrow)]
    pub bytes: &'a [u8],
}

impl Sums<'_> {
    pub const NONE: Sums<'static> = Sums { kind: CsumKind::Off, bytes: b"" };
}

/// What is known of the bulk of a reply.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BulkSums<'a> {
    /// That of the container; [`CsumKind::Off`]: nothing is known.
    pub kind: CsumKind,
    /// All of the bulk, in order; empty for [`CsumKind::Off`].
    pub runs: Vec<SumRun>,
    /// Sums of the runs that have any, one after the other.
    #[serde(with = "serde_bytes", borrow)]
    pub sums: &'a [u8],
    /// What the bulk would be, in cells that the asker reads itself: then there is no bulk.
    pub cells: Vec<NamedPart>,
}

impl BulkSums<'_> {
    /// Nothing is known, or there is no bulk.
    pub const NONE: BulkSums<'static> =
        BulkSums { kind: CsumKind::Off, runs: Vec::new(), sums: b"", cells: Vec::new() };
}
