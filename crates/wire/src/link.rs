//! Links: single values that name another object.
//!
//! A value that begins with a [`Link`] lets a target that holds the value *and* the object
//! answer about both in one request: a directory entry gives the file's size, removing the
//! entry frees the file. The store knows nothing else about directories.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | format of what follows the link, the owner's business |
//! | 1 | 1 | kind: 0 no object, 1 array of one-byte records |
//! | 2 | 1 | flags: 1 = protected (a plain remove must not take it), 2 = moved, 4 = counted |
//! | 3 | 5 | the owner's |
//! | 8 | 16 | object id |

//!
//! A shard counts the links in it that ask for that: a directory is told how many directories are in it.
//! Links under the empty akey, and those in values of more than [`COUNTED_BYTES_MAX`] bytes, are not counted.
//!
//! A value that an engine has *moved* to another unit ends with eight bytes more: the epoch at which its owner wrote it. Who writes it anew leaves them out.

use types::{Epoch, Oid};

/// Bytes of a link at the start of a value.
pub const LINK_BYTES: usize = 24;

/// Largest value that is counted, bytes: every store keeps these in its index.
pub const COUNTED_BYTES_MAX: usize = 511;

const PROTECTED: u8 = 1;
const MOVED: u8 = 2;
const COUNTED: u8 = 4;

/// What a link points at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkKind {
    /// Nothing that a target should follow.
    None,
    /// An array object of one-byte records, freed with its last link.
    Array,
}

/// A link, decoded from the first bytes of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// What it points at.
    pub kind: LinkKind,
    /// A plain remove must leave it alone and hand back the value.
    pub protected: bool,
    /// Its shard counts it, in [`crate::obj::ObjectStat::counted_links`].
    pub counted: bool,
    pub oid: Oid,
}

impl Link {
    /// Reads the link at the start of a value; `None` when the value is not a link.
    pub fn decode(value: &[u8]) -> Option<Link> {
        let raw: &[u8; LINK_BYTES] = value.get(..LINK_BYTES)?.try_into().ok()?;
        let kind = match raw[1] {
            0 => LinkKind::None,
            1 => LinkKind::Array,
            _ => return None,
        };
        let mut oid = [0; 16];
        oid.copy_from_slice(&raw[8..24]);
        Some(Link {
            kind,
            protected: raw[2] & PROTECTED != 0,
            counted: raw[2] & COUNTED != 0,
            oid: Oid::from_bytes(oid),
        })
    }

    /// Writes the link over the first 24 bytes of `value`, leaving the owner's bytes alone.
    ///
    /// Panics when `value` is shorter than a link.
    pub fn encode_into(&self, value: &mut [u8]) {
        value[1] = match self.kind {
            LinkKind::None => 0,
            LinkKind::Array => 1,
        };
        value[2] =
            if self.protected { PROTECTED } else { 0 } | if self.counted { COUNTED } else { 0 };
        value[8..24].copy_from_slice(&self.oid.to_bytes());
    }
}

/// True for a link that its shard counts.
pub fn is_counted(value: &[u8]) -> bool {
    (LINK_BYTES..=COUNTED_BYTES_MAX).contains(&value.len())
        && value[1] <= 1
        && value[2] & COUNTED != 0
}

/// When the owner has written a value that is there since `epoch`: before that if an engine has moved it.
pub fn written_at(value: &[u8], epoch: Epoch) -> Epoch {
    let is_moved = Link::decode(value).is_some() && value[2] & MOVED != 0;
    match value.last_chunk() {
        Some(tail) if is_moved && value.len() >= LINK_BYTES + tail.len() => {
            Epoch(u64::from_le_bytes(*tail))
        }
        _ => epoch,
    }
}

/// A value that is there since `epoch`, as it is where an engine moves it to. What is no link stays as it is.
pub fn moved(mut value: Vec<u8>, epoch: Epoch) -> Vec<u8> {
    if Link::decode(&value).is_some() && value[2] & MOVED == 0 {
        value[2] |= MOVED;
        value.extend_from_slice(&epoch.0.to_le_bytes());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_round_trip_and_short_values_are_none() {
        let oid = Oid { hi: 5, lo: 6 };
        for (protected, counted) in [(false, false), (false, true), (true, false), (true, true)] {
            let link = Link { kind: LinkKind::Array, protected, counted, oid };
            let mut value = [9; 40];
            link.encode_into(&mut value);
            assert_eq!((Link::decode(&value), is_counted(&value)), (Some(link), counted));
        }
        let link = Link { kind: LinkKind::Array, protected: true, counted: false, oid };
        let mut value = [9; 40];
        link.encode_into(&mut value);
        assert_eq!((value[0], value[7], value[24]), (9, 9, 9));
        assert_eq!(Link::decode(&value[..23]), None);
    }

    #[test]
    fn moved_values_tell_when_they_were_written() {
        let oid = Oid { hi: 5, lo: 6 };
        let link = Link { kind: LinkKind::Array, protected: true, counted: false, oid };
        let mut value = vec![9; 40];
        link.encode_into(&mut value);
        assert_eq!(written_at(&value, Epoch(7)), Epoch(7));
        let once = moved(value.clone(), Epoch(7));
        assert_eq!((once[2], &once[40..]), (3, &7u64.to_le_bytes()[..]));
        assert_eq!((once[0], once[7], &once[24..40]), (9, 9, &[9; 16][..]));
        assert_eq!((Link::decode(&once), written_at(&once, Epoch(8))), (Some(link), Epoch(7)));
        assert_eq!(moved(once.clone(), Epoch(8)), once);
        // Written again.
        link.encode_into(&mut value);
        assert_eq!(written_at(&value, Epoch(9)), Epoch(9));
        assert_eq!(moved(vec![2; 40], Epoch(7)), [2; 40]);
        assert_eq!(written_at(&once[..LINK_BYTES], Epoch(8)), Epoch(8));
    }
}
