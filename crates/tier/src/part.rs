//! Parts: runs of a file's bytes, as objects of a store.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `AZKPART1` |
//! | 8 | 8 | length of the file's bytes |
//! | 16 | 8 | length of what follows the header |
//! | 24 | 1 | how that is encoded; 0: as it is |
//! | 25 | 7 | zero |
//! | 32 | 32 | SHA-256 of the file's bytes |
//!
//! Numbers have their least significant byte first. The bytes follow.

use sha2::{Digest, Sha256};
use types::{Code, Error, Result};

const MAGIC: &[u8; 8] = b"AZKPART1";
/// Size of the header.
pub const HEADER_BYTES: usize = 64;
/// Largest part that is taken, bytes: chunks of 1 GiB are parts of their own.
const PART_BYTES_MAX: u64 = 1 << 30;

/// SHA-256.
pub fn sum(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A part of these bytes.
pub fn encode(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    let mut raw = Vec::with_capacity(HEADER_BYTES + bytes.len());
    raw.extend_from_slice(MAGIC);
    raw.extend_from_slice(&length);
    raw.extend_from_slice(&length);
    raw.extend_from_slice(&[0; 8]);
    raw.extend_from_slice(&sum(bytes));
    raw.extend_from_slice(bytes);
    raw
}

/// The bytes of a part, which must have this sum. `Csum` for anything else.
pub fn decode(mut raw: Vec<u8>, wanted: &[u8; 32]) -> Result<Vec<u8>> {
    let length = check_header(&raw)?;
    if raw.len() as u64 != HEADER_BYTES as u64 + length {
        return Err(damaged("is cut off"));
    }
    raw.drain(..HEADER_BYTES);
    if sum(&raw) != *wanted {
        return Err(damaged("has other bytes than were put there"));
    }
    Ok(raw)
}

/// Checks a header; returns the length of the bytes.
pub fn check_header(raw: &[u8]) -> Result<u64> {
    let header = raw.get(..HEADER_BYTES).ok_or_else(|| damaged("is cut off"))?;
    if &header[..8] != MAGIC {
        return Err(damaged("is no part"));
    }
    let number = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&header[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let (plain, stored, encoding) = (number(8), number(16), number(24));
    if encoding != 0 {
        return Err(Error::new(
            Code::Version,
            "a part in the tier is encoded in a way that this version does not know",
        ));
    }
    if plain != stored || plain > PART_BYTES_MAX {
        return Err(damaged("has a damaged header"));
    }
    Ok(plain)
}

fn damaged(what: &str) -> Error {
    Error::new(Code::Csum, format!("a part in the tier {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_part() {
        let raw = encode(b"abc");
        let mut want = b"AZKPART1\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        want.extend_from_slice(&sum(b"abc"));
        want.extend_from_slice(b"abc");
        assert_eq!(raw, want);
        assert_eq!(decode(raw, &sum(b"abc")).unwrap(), b"abc");
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_found() {
        let (whole, wanted) = (encode(b"some bytes"), sum(b"some bytes"));
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            // The sum in the header is for readers without a manifest.
            let is_sum = (32..64).contains(&at);
            assert_eq!(decode(damaged, &wanted).is_err(), !is_sum, "byte {at}");
            assert!(decode(whole[..at].to_vec(), &wanted).is_err(), "cut at {at}");
        }
        assert_eq!(decode(encode(b"other"), &wanted).unwrap_err().code, Code::Csum);
    }
}
