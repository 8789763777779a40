//! Parts: runs of a file's bytes, as objects of a store.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `AZKPART1` |
//! | 8 | 8 | length of the file's bytes |
//! | 16 | 8 | length of what follows the header |
//! | 24 | 1 | how that is encoded: 0 as it is; 1 compressed (a zstd frame); 2 encrypted; 3 compressed, then encrypted |
//! | 25 | 7 | zero; of an encrypted part the key's id |
//! | 32 | 32 | SHA-256 of the file's bytes; of an encrypted part of what follows the header |
//!
//! Numbers have their least significant byte first. The bytes follow. Of an encrypted part they are a nonce of 12 bytes, and what
//! AES-256-GCM makes of the rest with the first 32 bytes of the header as additional data; its tag of 16 bytes is last. Its sum tells
//! nothing of the file's bytes.

use crate::key::{KEY_ID_BYTES, Key};
use crate::manifest::{PartName, to_hex};
use sha2::{Digest, Sha256};
use std::io::Read;
use types::{Code, Error, Result};

const MAGIC: &[u8; 8] = b"AZKPART1";
/// Size of the header.
pub const HEADER_BYTES: usize = 64;
/// What of the header an encrypted part is bound to.
const BOUND_BYTES: usize = 32;
/// Largest part that is taken, bytes: chunks of 1 GiB are parts of their own.
const PART_BYTES_MAX: u64 = 1 << 30;
/// Compression that saves less than one byte in so many is not worth the reader's time.
const SAVING_MIN: usize = 32;

const COMPRESSED: u8 = 1;
const ENCRYPTED: u8 = 2;

/// SHA-256.
pub fn sum(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// How parts are made.
#[derive(Clone, Default)]
pub struct Coding {
    /// Level of zstd, if parts are compressed.
    pub level: Option<i32>,
    /// The key, if they are encrypted.
    pub key: Option<Key>,
}

/// How a part is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Encoding {
    pub is_compressed: bool,
    pub is_encrypted: bool,
}

impl Encoding {
    /// As manifests have it; `None`: as it is.
    pub fn word(self) -> Option<&'static str> {
        match (self.is_compressed, self.is_encrypted) {
            (false, false) => None,
            (true, false) => Some("zstd"),
            (false, true) => Some("aes-256-gcm"),
            (true, true) => Some("zstd+aes-256-gcm"),
        }
    }

    /// The inverse of [`Encoding::word`]. `Version` for a word that is not known.
    pub fn of_word(word: Option<&str>) -> Result<Encoding> {
        let all = (0..=COMPRESSED | ENCRYPTED).map(Encoding::of_bits);
        all.into_iter().find(|it| it.word() == word).ok_or_else(unknown)
    }

    fn bits(self) -> u8 {
        (u8::from(self.is_compressed) * COMPRESSED) | (u8::from(self.is_encrypted) * ENCRYPTED)
    }

    fn of_bits(bits: u8) -> Encoding {
        let has = |bit: u8| bits & bit != 0;
        Encoding { is_compressed: has(COMPRESSED), is_encrypted: has(ENCRYPTED) }
    }
}

/// A header, as far as it can be judged alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Of the file's bytes.
    pub bytes: u64,
    pub stored_bytes: u64,
    pub encoding: Encoding,
    pub key_id: [u8; KEY_ID_BYTES],
}

/// A part of these bytes that is not encoded.
pub fn encode_plain(bytes: &[u8]) -> Vec<u8> {
    let header = Header {
        bytes: bytes.len() as u64,
        stored_bytes: bytes.len() as u64,
        encoding: Encoding::default(),
        key_id: [0; KEY_ID_BYTES],
    };
    put_together(&header, &sum(bytes), bytes)
}

/// A part of these bytes, and its name in a manifest under a key of the store.
///
/// Errors: `Io` when there is no randomness.
pub fn encode(bytes: &[u8], coding: &Coding, name: String) -> Result<(Vec<u8>, PartName)> {
    let mut encoding = Encoding::default();
    let mut body = std::borrow::Cow::Borrowed(bytes);
    if let Some(level) = coding.level {
        let small = zstd::bulk::compress(bytes, level)
            .map_err(|error| Error::io("compressing a part", error))?;
        if small.len() < bytes.len() - bytes.len() / SAVING_MIN {
            body = small.into();
            encoding.is_compressed = true;
        }
    }
    let (key_id, raw, wanted) = match &coding.key {
        None => {
            let wanted = sum(bytes);
            let stored_bytes = body.len() as u64;
            let key_id = [0; KEY_ID_BYTES];
            let header = Header { bytes: bytes.len() as u64, stored_bytes, encoding, key_id };
            (None, put_together(&header, &wanted, &body), wanted)
        }
        Some(key) => {
            encoding.is_encrypted = true;
            let stored_bytes = Key::sealed_bytes(body.len()) as u64;
            let header =
                Header { bytes: bytes.len() as u64, stored_bytes, encoding, key_id: key.id() };
            let sealed = key.seal(&header.bound(), body.into_owned())?;
            let wanted = sum(&sealed);
            (Some(to_hex(&key.id())), put_together(&header, &wanted, &sealed), wanted)
        }
    };
    let name = PartName {
        key: name,
        bytes: bytes.len() as u64,
        sha256: to_hex(&wanted),
        encoding: encoding.word().map(str::to_string),
        key_id,
    };
    Ok((raw, name))
}

fn put_together(header: &Header, sum: &[u8; 32], body: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(HEADER_BYTES + body.len());
    raw.extend_from_slice(&header.bound());
    raw.extend_from_slice(sum);
    raw.extend_from_slice(body);
    raw
}

/// The file's bytes of a part that a manifest names so.
///
/// Errors: `Csum` for anything else than was put there; `Access` for a part that is encrypted with another key, or without one; `Version` for an
/// encoding that is not known.
pub fn decode(mut raw: Vec<u8>, name: &PartName, key: Option<&Key>) -> Result<Vec<u8>> {
    let wanted = name.sum()?;
    let header = Header::decode(&raw)?;
    let is_named = (header.bytes, header.encoding) == (name.bytes, name.encoding()?);
    if raw.len() as u64 != HEADER_BYTES as u64 + header.stored_bytes {
        return Err(damaged("is cut off"));
    }
    if !is_named {
        return Err(damaged("is not the one that was put there"));
    }
    let bound = header.bound();
    raw.drain(..HEADER_BYTES);
    if header.encoding.is_encrypted {
        if sum(&raw) != wanted {
            return Err(other_bytes());
        }
        let key = match key {
            Some(key) if key.id() == header.key_id => key,
            other => return Err(wrong_key(&header.key_id, other)),
        };
        raw = key.open(&bound, raw).ok_or_else(other_bytes)?;
    }
    if header.encoding.is_compressed {
        raw = decompress(&raw, header.bytes)?;
    }
    if raw.len() as u64 != header.bytes {
        return Err(damaged("has another length than it says"));
    }
    // Of what is encrypted the tag has told.
    if !header.encoding.is_encrypted && sum(&raw) != wanted {
        return Err(other_bytes());
    }
    Ok(raw)
}

/// What a zstd frame holds; not more than `bytes` and one.
fn decompress(frame: &[u8], bytes: u64) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(frame)
        .map_err(|error| Error::io("decompressing a part", error))?;
    let read = decoder.take(bytes + 1).read_to_end(&mut plain);
    read.map_err(|_| damaged("cannot be decompressed"))?;
    Ok(plain)
}

impl Header {
    /// Reads a header.
    ///
    /// Errors: `Csum` for what is none; `Version` for an encoding that is not known.
    pub fn decode(raw: &[u8]) -> Result<Header> {
        let header = raw.get(..HEADER_BYTES).ok_or_else(|| damaged("is cut off"))?;
        if &header[..8] != MAGIC {
            return Err(damaged("is no part"));
        }
        let number = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (bytes, stored_bytes, bits) = (number(8), number(16), header[24]);
        let mut key_id = [0; KEY_ID_BYTES];
        key_id.copy_from_slice(&header[25..32]);
        let encoding = Encoding::of_bits(bits);
        if encoding.bits() != bits {
            return Err(unknown());
        }
        let is_possible = match encoding {
            Encoding { is_compressed: false, is_encrypted: false } => bytes == stored_bytes,
            Encoding { is_compressed: true, is_encrypted: false } => stored_bytes < bytes,
            Encoding { .. } => stored_bytes <= PART_BYTES_MAX * 2,
        };
        let has_key = encoding.is_encrypted || key_id == [0; KEY_ID_BYTES];
        if !is_possible || !has_key || bytes > PART_BYTES_MAX {
            return Err(damaged("has a damaged header"));
        }
        Ok(Header { bytes, stored_bytes, encoding, key_id })
    }

    /// The header without the sum.
    fn bound(&self) -> [u8; BOUND_BYTES] {
        let mut raw = [0; BOUND_BYTES];
        raw[..8].copy_from_slice(MAGIC);
        raw[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        raw[16..24].copy_from_slice(&self.stored_bytes.to_le_bytes());
        raw[24] = self.encoding.bits();
        raw[25..].copy_from_slice(&self.key_id);
        raw
    }
}

fn unknown() -> Error {
    Error::new(
        Code::Version,
        "a part in the tier is encoded in a way that this version does not know",
    )
}

fn wrong_key(wanted: &[u8; KEY_ID_BYTES], have: Option<&Key>) -> Error {
    let have = match have {
        Some(key) => format!("the tier's key file has key {}", to_hex(&key.id())),
        None => "the tier was added without --key-file".into(),
    };
    Error::new(
        Code::Access,
        format!("a part in the tier is encrypted with key {}; {have}", to_hex(wanted)),
    )
}

fn other_bytes() -> Error {
    damaged("has other bytes than were put there")
}

fn damaged(what: &str) -> Error {
    Error::new(Code::Csum, format!("a part in the tier {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new([byte; 32])
    }

    fn codings() -> Vec<Coding> {
        let mut all = Vec::new();
        for level in [None, Some(3)] {
            for key in [None, Some(key(7))] {
                all.push(Coding { level, key });
            }
        }
        all
    }

    #[test]
    fn golden_bytes_of_a_part() {
        let (raw, name) = encode(b"abc", &Coding::default(), "k".into()).unwrap();
        let mut want = b"AZKPART1\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        want.extend_from_slice(&sum(b"abc"));
        want.extend_from_slice(b"abc");
        assert_eq!((&raw, &raw), (&want, &encode_plain(b"abc")));
        assert_eq!(name.encoding, None);
        assert_eq!(decode(raw, &name, None).unwrap(), b"abc");
    }

    /// Bytes as zstd and AES-256-GCM make them elsewhere: stored parts are read for ever.
    #[test]
    fn golden_bytes_of_encoded_parts_are_read() {
        // `printf 'a%.0s' {1..100} | zstd -3`
        let frame = from("28b52ffd045845000010616101003f012cb3cfdeb1");
        let plain = vec![b'a'; 100];
        let mut compressed =
            from("415a4b5041525431640000000000000015000000000000000100000000000000");
        compressed.extend_from_slice(&sum(&plain));
        compressed.extend_from_slice(&frame);
        let name = PartName {
            key: "k".into(),
            bytes: 100,
            sha256: to_hex(&sum(&plain)),
            encoding: Some("zstd".into()),
            key_id: None,
        };
        assert_eq!(decode(compressed, &name, None).unwrap(), plain);
    }

    fn from(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_found() {
        let bytes = b"some bytes some bytes some bytes some bytes some bytes some bytes";
        for coding in codings() {
            let (whole, name) = encode(bytes, &coding, "k".into()).unwrap();
            let key = coding.key.as_ref();
            assert_eq!(name.encoding().unwrap().is_compressed, coding.level.is_some());
            assert_eq!(decode(whole.clone(), &name, key).unwrap(), bytes);
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 1;
                // The sum in the header is for readers without a manifest.
                let is_sum = (32..64).contains(&at);
                let read = decode(damaged, &name, key);
                assert!(is_sum || read.is_err(), "byte {at}");
                assert!(read.is_err() || read.unwrap() == bytes, "byte {at}");
                assert!(decode(whole[..at].to_vec(), &name, key).is_err(), "cut at {at}");
            }
            let (other, _) = encode(b"other", &coding, "k".into()).unwrap();
            assert_eq!(decode(other, &name, key).unwrap_err().code, Code::Csum);
        }
    }

    #[test]
    fn another_key_or_none_is_told_and_nothing_of_the_bytes_is_in_the_part() {
        let bytes = b"secret secret secret secret";
        let coding = Coding { level: None, key: Some(key(1)) };
        let (raw, name) = encode(bytes, &coding, "k".into()).unwrap();
        let (again, second) = encode(bytes, &coding, "k".into()).unwrap();
        // Neither the part nor its sum tells that the bytes are the same.
        assert!(raw != again && name.sha256 != second.sha256);
        assert!(!raw.windows(6).any(|some| some == b"secret"));
        assert_ne!(name.sha256, to_hex(&sum(bytes)));
        let wrong = decode(raw.clone(), &name, Some(&key(2))).unwrap_err();
        assert_eq!(wrong.code, Code::Access);
        assert!(wrong.text.contains(&to_hex(&key(1).id())), "{wrong}");
        assert!(wrong.text.contains(&to_hex(&key(2).id())), "{wrong}");
        let none = decode(raw, &name, None).unwrap_err();
        assert!(none.code == Code::Access && none.text.contains("--key-file"), "{none}");
    }

    #[test]
    fn what_does_not_get_smaller_stays_as_it_is() {
        let noise: Vec<u8> = (0..64u8).flat_map(|at| sum(&[at])).collect();
        let coding = Coding { level: Some(3), key: None };
        let (raw, name) = encode(&noise, &coding, "k".into()).unwrap();
        assert_eq!((raw, name.encoding), (encode_plain(&noise), None));
        let (raw, name) = encode(&[0; 1 << 20], &coding, "k".into()).unwrap();
        assert!(raw.len() < 1000 && name.encoding.as_deref() == Some("zstd"));
        // A frame of more than was said is not unfolded.
        let mut lies = raw.clone();
        lies[8..16].copy_from_slice(&1000u64.to_le_bytes());
        let name = PartName { bytes: 1000, ..name };
        assert_eq!(decode(lies, &name, None).unwrap_err().code, Code::Csum);
    }
}
