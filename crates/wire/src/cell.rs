//! Cells of stripes: what members of a group with an erasure code hold of its arrays.
//!
//! The members that hold copies ([`types::Scheme::copies`]) first have all of an array, as groups of copies do. A stripe of it
//! that is written whole is *folded*: cells of it go to all members, and copies of its bytes give way to its name. Cells never
//! change: a stripe that is written anew gets another name, and its old cells go when nothing has that name any more
//! (`docs/decisions/2026-11-23-erasure-codes.md`).

use serde::{Deserialize, Serialize};
use types::{ContId, Epoch, PoolId, TargetId, Unit};

/// Names a stripe of an array, under its dkey and akey.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Stripe {
    /// Its first record, when it was folded.
    pub first: u64,
    /// Newest epoch of its records then: no other contents have it. Of stripes that a writer had kept itself, [`coined`].
    pub version: Epoch,
    /// Bytes of a cell.
    pub cell_bytes: u32,
}

/// From a target that folds, reads or restores stripes to one that holds a cell.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CellRequest<'a> {
    pub pool: PoolId,
    /// The asker's map: who has an older one takes it first.
    pub map_version: u32,
    /// Who asks.
    pub from: TargetId,
    pub cont: ContId,
    /// [`Unit::cell`] is the number of the cell, counted from 1.
    pub unit: Unit,
    #[serde(with = "serde_bytes", borrow)]
    pub dkey: &'a [u8],
    #[serde(with = "serde_bytes", borrow)]
    pub akey: &'a [u8],
    pub stripe: Stripe,
    pub ask: CellAsk,
}

/// What is to be done with a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CellAsk {
    /// Keep it; its bytes are the bulk. The reply is `()`, when it is as durable as the pool promises.
    Put,
    /// Send these bytes of it, as the bulk. The reply is `()`; `NonExist` when it is not there.
    Get { at: u32, bytes: u32 },
}

/// A stripe that a leader knows: its place in the unit, and its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct StripeOf {
    pub dkey: serde_bytes::ByteBuf,
    pub akey: serde_bytes::ByteBuf,
    pub stripe: Stripe,
}

/// Stripes of a unit, some dkeys at a time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StripeList {
    pub stripes: Vec<StripeOf>,
    /// The last dkey looked at: where to go on; `None`: these are all.
    pub next: Option<serde_bytes::ByteBuf>,
}

/// Dkeys of a unit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Dkeys {
    All,
    /// Integer dkeys from this one upwards.
    From(u64),
    These(Vec<serde_bytes::ByteBuf>),
}

/// From the leader of a unit's group: cells of its stripes that have lost their names, to those who keep them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnnamedCells {
    pub cont: ContId,
    /// Cell 0.
    pub unit: Unit,
    /// Only under these.
    pub dkeys: Dkeys,
    /// Stripes under these dkeys that stay: the leader, or a snapshot, names them, or they are just being folded.
    pub stay: Vec<StripeOf>,
    /// Versions of stripes of the unit that the leader has named for clients, as far as it remembers. Others that are [`coined`] may be
    /// about to be named, unless they are old.
    pub once_named: Vec<Epoch>,
}

/// The bit that no epoch has.
const COINED: u64 = 1 << 63;

/// The version of stripes whose cells a client has kept: it is not told the epoch before it names them. `random` is a random
/// number, so that nobody else has it.
pub fn coined(random: u64) -> Epoch {
    Epoch((random | COINED).min(Epoch::MAX.0 - 1))
}

/// True for a version that a client made up.
pub fn is_coined(version: Epoch) -> bool {
    version.0 & COINED != 0 && version != Epoch::MAX
}

/// Bytes of an answer's bulk that the asker gets from cells itself ([`crate::header::FLAG_CELLS`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamedPart {
    pub stripe: Stripe,
    /// First byte in the stripe.
    pub at: u64,
    pub bytes: u64,
}

/// What the members of a unit's group keep their cells as.
pub fn cell_unit(of: Unit, cell: usize) -> Unit {
    Unit { cell: cell as u8 + 1, ..of }
}

/// The akey of a cell.
pub fn cell_akey(akey: &[u8], stripe: &Stripe) -> Vec<u8> {
    let mut name = Vec::with_capacity(CELL_NAME_BYTES + akey.len());
    name.extend_from_slice(&stripe.first.to_be_bytes());
    name.extend_from_slice(&stripe.version.0.to_be_bytes());
    name.extend_from_slice(&stripe.cell_bytes.to_be_bytes());
    name.extend_from_slice(akey);
    name
}

/// The akey and the stripe that the akey of a cell tells; `None` when it is none.
pub fn of_cell_akey(name: &[u8]) -> Option<(&[u8], Stripe)> {
    let (first, rest) = name.split_first_chunk()?;
    let (version, rest) = rest.split_first_chunk()?;
    let (cell_bytes, akey) = rest.split_first_chunk()?;
    let stripe = Stripe {
        first: u64::from_be_bytes(*first),
        version: Epoch(u64::from_be_bytes(*version)),
        cell_bytes: u32::from_be_bytes(*cell_bytes),
    };
    Some((akey, stripe))
}

/// Bytes of a cell's akey before the akey of its array: arrays with longer akeys than fit behind it are not folded.
pub const CELL_NAME_BYTES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cells_tell_their_stripes() {
        let stripe = Stripe { first: 1 << 40, version: Epoch(77), cell_bytes: 65_536 };
        let name = cell_akey(b"akey", &stripe);
        assert_eq!(name.len(), CELL_NAME_BYTES + 4);
        assert_eq!(of_cell_akey(&name), Some((&b"akey"[..], stripe)));
        assert_eq!(of_cell_akey(&name[..CELL_NAME_BYTES - 1]), None);
        assert_eq!(of_cell_akey(&name[..CELL_NAME_BYTES]), Some((&b""[..], stripe)));
    }
}
