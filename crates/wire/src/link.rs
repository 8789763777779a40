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
//! | 2 | 1 | flags: 1 = protected (a plain remove must not take it) |
//! | 3 | 5 | the owner's |
//! | 8 | 16 | object id |

use types::Oid;

/// Bytes of a link at the start of a value.
pub const LINK_BYTES: usize = 24;

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
        Some(Link { kind, protected: raw[2] & 1 != 0, oid: Oid::from_bytes(oid) })
    }

    /// Writes the link over the first 24 bytes of `value`, leaving the owner's bytes alone.
    ///
    /// Panics when `value` is shorter than a link.
    pub fn encode_into(&self, value: &mut [u8]) {
        value[1] = match self.kind {
            LinkKind::None => 0,
            LinkKind::Array => 1,
        };
        value[2] = self.protected as u8;
        value[8..24].copy_from_slice(&self.oid.to_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_round_trip_and_short_values_are_none() {
        let link = Link { kind: LinkKind::Array, protected: true, oid: Oid { hi: 5, lo: 6 } };
        let mut value = [9; 40];
        link.encode_into(&mut value);
        assert_eq!(Link::decode(&value), Some(link));
        assert_eq!((value[0], value[7], value[24]), (9, 9, 9));
        assert_eq!(Link::decode(&value[..23]), None);
    }
}
