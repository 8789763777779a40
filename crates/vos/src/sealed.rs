//! Small durable facts, each in a file of one block: what it is, its version, a checksum.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, which also says what kind of fact |
//! | 8 | 2 | format version |
//! | 10 | 2 | body bytes |
//! | 12 | 4 | CRC-32C of everything else before the padding |
//! | 16 | … | body (postcard), then zeros up to 4 KiB |

use std::path::Path;
use std::rc::Rc;

use env::{AlignedBuf, Disk, OpenOptions};
use serde::{Deserialize, Serialize};
use types::{Code, Error, Result};
use wire::header::crc;

/// Size of a sealed block.
pub(crate) const SEALED_BYTES: usize = 4096;
const HEAD_BYTES: usize = 16;

/// Encodes a fact. Panics when it does not fit, which is a mistake in this crate.
pub(crate) fn seal<T: Serialize>(magic: [u8; 8], version: u16, fact: &T) -> Vec<u8> {
    let body = wire::encode(fact);
    assert!(body.len() <= SEALED_BYTES - HEAD_BYTES, "a sealed fact must fit one block");
    let mut raw = vec![0; SEALED_BYTES];
    raw[..8].copy_from_slice(&magic);
    raw[8..10].copy_from_slice(&version.to_le_bytes());
    raw[10..12].copy_from_slice(&(body.len() as u16).to_le_bytes());
    raw[HEAD_BYTES..HEAD_BYTES + body.len()].copy_from_slice(&body);
    let sum = checksum(&raw, body.len());
    raw[12..16].copy_from_slice(&sum.to_le_bytes());
    raw
}

/// Decodes a fact. `Csum` when it is damaged or something else, `Version` when it was written
/// by a version that is not known here.
pub(crate) fn unseal<'a, T: Deserialize<'a>>(
    magic: [u8; 8],
    version: u16,
    raw: &'a [u8],
) -> Result<T> {
    let what = magic.escape_ascii();
    let bad = |why: &str| Error::new(Code::Csum, format!("{what}: {why}"));
    let head: &[u8; HEAD_BYTES] = raw.first_chunk().ok_or_else(|| bad("cut short"))?;
    if head[..8] != magic {
        return Err(bad("not found where it should be"));
    }
    let length = u16::from_le_bytes([head[10], head[11]]) as usize;
    let body = raw.get(HEAD_BYTES..HEAD_BYTES + length).ok_or_else(|| bad("cut short"))?;
    let stored = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
    if stored != checksum(raw, length) {
        return Err(bad("checksum mismatch"));
    }
    let found = u16::from_le_bytes([head[8], head[9]]);
    if found != version {
        return Err(other_version(&what.to_string(), found, version));
    }
    wire::decode(body).map_err(|error| bad(&error.to_string()))
}

/// Reads a file of one sealed block.
pub(crate) async fn read_sealed(disk: &Rc<dyn Disk>, path: &Path) -> Result<Vec<u8>> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let file = disk.open(path, options).await?;
    let (buf, result) = file.read_at(0, AlignedBuf::try_zeroed(SEALED_BYTES)?).await;
    let count = result.map_err(|error| error.context(path.display()))?;
    Ok(buf[..count.min(buf.len())].to_vec())
}

/// Writes a file of one sealed block so that after a crash there is the old or the new one.
pub(crate) async fn write_sealed(
    disk: &Rc<dyn Disk>,
    dir: &Path,
    name: &str,
    raw: &[u8],
) -> Result<()> {
    let path = dir.join(name);
    let new = dir.join(format!("{name}.new"));
    let options = OpenOptions { create: true, ..OpenOptions::default() };
    let file = disk.open(&new, options).await?;
    let (_, result) = file.write_at(0, AlignedBuf::copy_of(raw)).await;
    result.map_err(|error| error.context(path.display()))?;
    file.sync().await?;
    disk.rename(&new, &path).await?;
    disk.sync_dir(dir).await
}

/// What is said of a format of another version.
pub(crate) fn other_version(what: &str, found: u16, known: u16) -> Error {
    let advice = if found > known {
        "use a newer release"
    } else {
        "the release that wrote it reads it (version 1: before 0.2): copy the data out with that, \
         then make the target anew"
    };
    let text = format!("{what}: format version {found}, this program reads {known}; {advice}");
    Error::new(Code::Version, text)
}

fn checksum(raw: &[u8], body_bytes: usize) -> u32 {
    let mut covered = Vec::with_capacity(12 + body_bytes);
    covered.extend_from_slice(&raw[..12]);
    covered.extend_from_slice(&raw[HEAD_BYTES..HEAD_BYTES + body_bytes]);
    crc(&covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_comes_back_and_damage_is_noticed() {
        let raw = seal(*b"AZKTHING", 3, &(7u64, 9u32));
        assert_eq!(&raw[..12], b"AZKTHING\x03\0\x02\0");
        assert_eq!(&raw[16..19], &[7, 9, 0]);
        let read = |raw: &[u8], version| unseal::<(u64, u32)>(*b"AZKTHING", version, raw);
        assert_eq!(read(&raw, 3).unwrap(), (7, 9));
        assert_eq!(read(&raw, 4).unwrap_err().code, Code::Version);
        for at in 0..18 {
            let mut damaged = raw.clone();
            damaged[at] ^= 0x10;
            assert_eq!(read(&damaged, 3).unwrap_err().code, Code::Csum, "byte {at}");
        }
    }
}
