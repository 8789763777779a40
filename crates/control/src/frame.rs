//! A commit of the catalog as it lies in a file: a header of 32 bytes, then the changes.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `AZKC` |
//! | 4 | 2 | version |
//! | 6 | 2 | 1: the whole catalog, 2: changes |
//! | 8 | 8 | revision |
//! | 16 | 4 | bytes after the header |
//! | 20 | 4 | CRC-32C of them |
//! | 24 | 4 | zero |
//! | 28 | 4 | CRC-32C of bytes 0..28 |
//!
//! A file begins with the whole catalog; each frame after it has the next revision; zeros follow the
//! last one. What is neither is damage, or was cut off.

use crate::catalog::{Change, Revision, Versioned};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::{Code, Error, Result};
use wire::header::crc;

/// Version of frames and files. 1, a database, was that of the first release.
pub const VERSION: u16 = 2;
const MAGIC: [u8; 4] = *b"AZKC";
const HEADER_BYTES: usize = 32;
const WHOLE: u16 = 1;
const CHANGES: u16 = 2;

/// What a catalog holds, by key.
pub type Entries = BTreeMap<String, Versioned>;

/// An entry of a whole catalog.
#[derive(Serialize, Deserialize)]
struct EntryDf {
    key: String,
    revision: u64,
    bytes: Vec<u8>,
}

/// A change of one key; `None` removes it.
#[derive(Serialize, Deserialize)]
struct ChangeDf {
    key: String,
    bytes: Option<Vec<u8>>,
}

fn frame(kind: u16, revision: u64, body: &[u8]) -> Result<Vec<u8>> {
    let length = u32::try_from(body.len())
        .map_err(|_| Error::new(Code::Io, "a commit of the catalog is over 4 GiB"))?;
    let mut raw = vec![0; HEADER_BYTES];
    raw[..4].copy_from_slice(&MAGIC);
    raw[4..6].copy_from_slice(&VERSION.to_le_bytes());
    raw[6..8].copy_from_slice(&kind.to_le_bytes());
    raw[8..16].copy_from_slice(&revision.to_le_bytes());
    raw[16..20].copy_from_slice(&length.to_le_bytes());
    raw[20..24].copy_from_slice(&crc(body).to_le_bytes());
    let sum = crc(&raw[..28]);
    raw[28..32].copy_from_slice(&sum.to_le_bytes());
    raw.extend_from_slice(body);
    Ok(raw)
}

/// The whole catalog.
pub fn encode_whole(revision: u64, entries: &Entries) -> Result<Vec<u8>> {
    let all: Vec<EntryDf> = entries
        .iter()
        .map(|(key, stored)| EntryDf {
            key: key.clone(),
            revision: stored.revision.0,
            bytes: stored.bytes.clone(),
        })
        .collect();
    frame(WHOLE, revision, &wire::encode(&all))
}

/// The changes of one commit, which name each key.
pub fn encode_changes(revision: u64, changes: &[Change]) -> Result<Vec<u8>> {
    let all: Vec<ChangeDf> = changes
        .iter()
        .map(|change| match change {
            Change::Put(key, bytes) => {
                Ok(ChangeDf { key: key.clone(), bytes: Some(bytes.clone()) })
            }
            Change::Delete(key) => Ok(ChangeDf { key: key.clone(), bytes: None }),
            Change::DeletePrefix(_) => {
                Err(Error::new(Code::Io, "a frame of the catalog names single keys only"))
            }
        })
        .collect::<Result<_>>()?;
    frame(CHANGES, revision, &wire::encode(&all))
}

/// Makes a commit's changes.
pub fn apply(entries: &mut Entries, revision: u64, changes: Vec<Change>) {
    for change in changes {
        match change {
            Change::Put(key, bytes) => {
                entries.insert(key, Versioned { revision: Revision(revision), bytes });
            }
            Change::Delete(key) => {
                entries.remove(&key);
            }
            Change::DeletePrefix(prefix) => entries.retain(|key, _| !key.starts_with(&prefix)),
        }
    }
}

/// What a file holds up to where it ends, or up to what is no frame.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    pub entries: Entries,
    /// Revision of the last frame; `None`: not even the first is whole.
    pub revision: Option<u64>,
    /// Where the last frame ends, bytes.
    pub end: usize,
    /// Only zeros follow.
    pub clean: bool,
}

/// Body of the frame at the beginning of `raw`, with its kind and revision; `None` when there is no
/// whole one.
fn split(raw: &[u8]) -> Result<Option<(u16, u64, &[u8])>> {
    let Some(head) = raw.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let u32_at = |at: usize| u16_at(at) as u32 | (u16_at(at + 2) as u32) << 16;
    let u64_at = |at: usize| u32_at(at) as u64 | (u32_at(at + 4) as u64) << 32;
    if head[..4] != MAGIC || u32_at(28) != crc(&head[..28]) {
        return Ok(None);
    }
    if u16_at(4) != VERSION {
        return Err(Error::new(
            Code::Version,
            format!(
                "the catalog has format {}, this program knows {VERSION}: use the version that \
                 wrote it or a newer one",
                u16_at(4)
            ),
        ));
    }
    let body = raw.get(HEADER_BYTES..).and_then(|rest| rest.get(..u32_at(16) as usize));
    let whole = body.filter(|body| crc(body) == u32_at(20));
    Ok(whole.map(|body| (u16_at(6), u64_at(8), body)))
}

/// Reads a file. `Version` when it is of another version.
pub fn read(raw: &[u8]) -> Result<Found> {
    let mut found = Found::default();
    while let Some((kind, revision, body)) = split(&raw[found.end..])? {
        match (kind, found.revision) {
            (WHOLE, None) => {
                let Ok(all) = wire::decode::<Vec<EntryDf>>(body) else { break };
                for EntryDf { key, revision, bytes } in all {
                    let stored = Versioned { revision: Revision(revision), bytes };
                    found.entries.insert(key, stored);
                }
            }
            (CHANGES, Some(last)) if last.checked_add(1) == Some(revision) => {
                let Ok(all) = wire::decode::<Vec<ChangeDf>>(body) else { break };
                let changes = all.into_iter().map(|change| match change.bytes {
                    Some(bytes) => Change::Put(change.key, bytes),
                    None => Change::Delete(change.key),
                });
                apply(&mut found.entries, revision, changes.collect());
            }
            _ => break,
        }
        found.revision = Some(revision);
        found.end += HEADER_BYTES + body.len();
    }
    found.clean = found.revision.is_some() && raw[found.end..].iter().all(|byte| *byte == 0);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_file() {
        // A change here is a change of format: bump VERSION.
        let put = |key: &str| Change::Put(key.into(), b"value".to_vec());
        let mut entries = Entries::new();
        apply(&mut entries, 6, vec![put("a")]);
        let mut raw = encode_whole(7, &entries).unwrap();
        assert_eq!(raw[..20], *b"AZKC\x02\0\x01\0\x07\0\0\0\0\0\0\0\x0a\0\0\0");
        assert_eq!(raw[32..], *b"\x01\x01a\x06\x05value");
        let changes = [put("b"), Change::Delete("a".into())];
        let more = encode_changes(8, &changes).unwrap();
        assert_eq!(more[..20], *b"AZKC\x02\0\x02\0\x08\0\0\0\0\0\0\0\x0d\0\0\0");
        assert_eq!(more[32..], *b"\x02\x01b\x01\x05value\x01a\0");
        raw.extend_from_slice(&more);
        let end = raw.len();
        raw.resize(end + 100, 0);
        let found = read(&raw).unwrap();
        assert_eq!((found.revision, found.end, found.clean), (Some(8), end, true));
        apply(&mut entries, 8, changes.to_vec());
        assert_eq!(found.entries, entries);
        raw[4] = 3;
        let sum = crc(&raw[..28]);
        raw[28..32].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(read(&raw).unwrap_err().code, Code::Version);
    }
}
