//! The chunk format of Higa, Ichikawa and Yamaguchi ("A distributed file system for NVMe SSDs and IEEE 802.3an/bz", 2022,
//! figures 2 and 3): a file is a *header* and *chunks*, each a file of its own.
//!
//! | offset | header | chunk |
//! |---|---|---|
//! | 0 | SHA-256 of all from byte 32 on | the same |
//! | 32 | number of chunks, 8 bytes | bytes of data, 8 bytes; less than 64 MB |
//! | 40 | the checksums of the chunks in order, 32 bytes each | the data |
//!
//! A chunk's checksum is the one that it begins with. A path becomes a UUID by UUIDv5 in the OID namespace; the header is named
//! by that, a chunk by that and its index.
//!
//! Where the paper says nothing, this is what is meant here: numbers have their least significant byte first, a path is the
//! bytes of the absolute path (`/dir/file`), the index follows after a dot and counts from 0, a file of no bytes has no chunks, and
//! 64 MB are 64,000,000 bytes. What the format lacks (names, for a UUID gives none back) is for who writes it.

use sha1::Sha1;
use sha2::{Digest, Sha256};
use types::{Code, Error, Result};
use uuid::Uuid;

/// A SHA-256.
pub type Sum = [u8; SUM_BYTES];

const SUM_BYTES: usize = 32;
const COUNT_OFFSET: usize = SUM_BYTES;
/// What header and chunks begin with, bytes: checksum and count.
pub const HEAD_BYTES: usize = COUNT_OFFSET + size_of::<u64>();
/// Most data of a chunk, bytes.
pub const CHUNK_DATA_MAX: usize = 64_000_000 - 1;
/// Most bytes of a chunk.
pub const CHUNK_BYTES_MAX: usize = HEAD_BYTES + CHUNK_DATA_MAX;

fn sum_of(count: u64, rest: &[u8]) -> Sum {
    Sha256::new().chain_update(count.to_le_bytes()).chain_update(rest).finalize().into()
}

fn head(sum: &Sum, count: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..COUNT_OFFSET].copy_from_slice(sum);
    head[COUNT_OFFSET..].copy_from_slice(&count.to_le_bytes());
    head
}

/// What a chunk of this data begins with, and its checksum. The data follow as they are. Panics when they are more
/// than [`CHUNK_DATA_MAX`], which is a mistake of the caller.
pub fn chunk_head(data: &[u8]) -> ([u8; HEAD_BYTES], Sum) {
    assert!(data.len() <= CHUNK_DATA_MAX, "a chunk has less than 64 MB of data");
    let sum = sum_of(data.len() as u64, data);
    (head(&sum, data.len() as u64), sum)
}

/// The header of a file whose chunks have these checksums.
pub fn encode_header(sums: &[Sum]) -> Vec<u8> {
    let rest = sums.concat();
    let sum = sum_of(sums.len() as u64, &rest);
    let mut raw = head(&sum, sums.len() as u64).to_vec();
    raw.extend_from_slice(&rest);
    raw
}

/// Splits what was read and checks its checksum; `Csum` when it is damaged or something else.
fn open(raw: &[u8]) -> Result<(Sum, u64, &[u8])> {
    let bad = |why: &str| Error::new(Code::Csum, why);
    let (sum, rest) = raw.split_first_chunk().ok_or_else(|| bad("it is cut short"))?;
    let (count, rest) = rest.split_first_chunk().ok_or_else(|| bad("it is cut short"))?;
    let count = u64::from_le_bytes(*count);
    if *sum != sum_of(count, rest) {
        return Err(bad("its SHA-256 does not fit what follows"));
    }
    Ok((*sum, count, rest))
}

/// The checksums of a file's chunks. `Csum` for what is no whole header.
pub fn decode_header(raw: &[u8]) -> Result<Vec<Sum>> {
    let (_, count, rest) = open(raw)?;
    let (sums, stray) = rest.as_chunks::<SUM_BYTES>();
    if !stray.is_empty() || sums.len() as u64 != count {
        let text = format!("it has {} bytes of checksums for {count} chunks", rest.len());
        return Err(Error::new(Code::Csum, text));
    }
    Ok(sums.to_vec())
}

/// The data of the chunk whose checksum a header names. `Csum` when it is damaged, or another one.
pub fn decode_chunk<'a>(raw: &'a [u8], wanted: &Sum) -> Result<&'a [u8]> {
    let (sum, count, data) = open(raw)?;
    if data.len() as u64 != count || data.len() > CHUNK_DATA_MAX {
        let text = format!("it has {} bytes of data and says {count}", data.len());
        return Err(Error::new(Code::Csum, text));
    }
    if sum != *wanted {
        return Err(Error::new(Code::Csum, "it is whole, but not the one that the header names"));
    }
    Ok(data)
}

/// The UUID of a path, which begins with `/`.
pub fn uuid_of(path: &[u8]) -> Uuid {
    use sha1::Digest;
    let sum =
        Sha1::new().chain_update(Uuid::NAMESPACE_OID.as_bytes()).chain_update(path).finalize();
    let mut short = [0; 16];
    short.copy_from_slice(&sum[..16]);
    uuid::Builder::from_sha1_bytes(short).into_uuid()
}

/// Name of a file's header.
pub fn header_name(uuid: Uuid) -> String {
    uuid.to_string()
}

/// Name of one of its chunks.
pub fn chunk_name(uuid: Uuid, index: u64) -> String {
    format!("{uuid}.{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN_CHUNK: &str = concat!(
        "65adf692c83c08eb8ac3907b446057216e159d542b1a0fb78bf3c3d518dab63c0700000000000000",
        "617a656b757261",
    );
    const GOLDEN_HEADER: &str = concat!(
        "660447da9d4f53d45b33d21f4bed791606b39862fd996b1ec5dc1202511032910100000000000000",
        "65adf692c83c08eb8ac3907b446057216e159d542b1a0fb78bf3c3d518dab63c",
    );
    const GOLDEN_EMPTY: &str =
        "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc0000000000000000";
    const GOLDEN_UUID: &str = "d8e3ed1d-bd68-55fd-9337-98478f2f6e6e";

    fn hex(raw: &[u8]) -> String {
        raw.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn chunk(data: &[u8]) -> (Vec<u8>, Sum) {
        let (head, sum) = chunk_head(data);
        ([&head[..], data].concat(), sum)
    }

    /// These bytes are what other programs read; they never change. Made apart from this code, with Python's
    /// `hashlib` and `uuid`.
    #[test]
    fn the_bytes_are_frozen() {
        let (raw, sum) = chunk(b"azekura");
        assert_eq!(hex(&raw), GOLDEN_CHUNK);
        assert_eq!(hex(&encode_header(&[sum])), GOLDEN_HEADER);
        assert_eq!(hex(&encode_header(&[])), GOLDEN_EMPTY);
        let uuid = uuid_of(b"/data/a.txt");
        assert_eq!(header_name(uuid), GOLDEN_UUID);
        assert_eq!(chunk_name(uuid, 12), format!("{GOLDEN_UUID}.12"));
    }

    #[test]
    fn what_is_written_comes_back_and_damage_is_noticed() {
        let (raw, sum) = chunk(b"some data");
        assert_eq!(decode_chunk(&raw, &sum).unwrap(), b"some data");
        let header = encode_header(&[sum, [7; 32]]);
        assert_eq!(decode_header(&header).unwrap(), [sum, [7; 32]]);
        for at in 0..raw.len() {
            let mut bad = raw.clone();
            bad[at] ^= 1;
            assert_eq!(decode_chunk(&bad, &sum).unwrap_err().code, Code::Csum, "byte {at}");
            assert!(decode_chunk(&raw[..at], &sum).is_err(), "cut at {at}");
        }
        for at in 0..header.len() {
            let mut bad = header.clone();
            bad[at] ^= 0x80;
            assert_eq!(decode_header(&bad).unwrap_err().code, Code::Csum, "byte {at}");
            assert!(decode_header(&header[..at]).is_err(), "cut at {at}");
        }
        let (other, _) = chunk(b"other data");
        assert!(decode_chunk(&other, &sum).unwrap_err().text.contains("header names"));
    }

    /// Checksums hold, counts lie: whoever made that was wrong, and nobody may believe it.
    #[test]
    fn counts_that_do_not_fit_are_refused() {
        let lie = |count: u64, rest: &[u8]| {
            let sum = sum_of(count, rest);
            ([&head(&sum, count)[..], rest].concat(), sum)
        };
        let (raw, sum) = lie(3, b"ab");
        assert_eq!(decode_chunk(&raw, &sum).unwrap_err().code, Code::Csum);
        for (count, bytes) in [(2, 32), (1, 33), (u64::MAX, 0), (0, 32)] {
            let (raw, _) = lie(count, &vec![0; bytes]);
            assert_eq!(decode_header(&raw).unwrap_err().code, Code::Csum);
        }
    }
}
