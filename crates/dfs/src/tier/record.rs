//! What a file's entry says of its copy in a tier, and what stands in a chunk's place in the pool.
//!
//! The record is an extended attribute of the file that programs neither see nor set:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | magic `AZT1` |
//! | 16 | the file's object: a record that was copied to another file means nothing |
//! | 8 | version of the copy, from 1; 0: there is none yet |
//! | 8, 8 | size of the file and of a part in it, bytes |
//! | 8, 8, 8 | an upload that runs: bytes done, bytes in all, when that was (ns since 1970); 0: none |
//! | 32 | SHA-256 of the manifest |
//! | 2, n | name of the tier |
//! | 2, n | key of the manifest in the tier |
//! | 4, 8 n | groups of the object; for each, its newest epoch that the copy has |
//!
//! A *stub* is a single value under the akey that held the chunk's array, so that every operation on
//! records of it fails instead of finding a hole: magic `AZS1`, length and XXH3 of the chunk's bytes.
//!
//! Numbers have their least significant byte first.

use types::{Code, CsumKind, Epoch, Error, Oid, Result};

const MAGIC: &[u8; 4] = b"AZT1";
const STUB_MAGIC: &[u8; 4] = b"AZS1";
/// Size of an encoded [`Stub`].
pub(crate) const STUB_BYTES: usize = 16;

/// A file's copy in a tier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierRecord {
    /// The file's object.
    pub oid: Oid,
    /// Version of the copy, from 1; 0: there is none yet.
    pub version: u64,
    /// Size of the file in the copy, bytes.
    pub size: u64,
    /// Size of all parts but the last, bytes.
    pub part_bytes: u64,
    /// An upload that runs, or ran when its program ended.
    pub upload: Option<Upload>,
    /// SHA-256 of the manifest.
    pub manifest_sum: [u8; 32],
    /// Name of the tier.
    pub tier: String,
    /// Key of the manifest in the tier.
    pub manifest: String,
    /// For each group of the object, its newest epoch that the copy has.
    pub synced: Vec<Epoch>,
}

/// How far an upload is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upload {
    pub done_bytes: u64,
    /// Not 0.
    pub total_bytes: u64,
    /// When that was so, nanoseconds since 1970.
    pub at_ns: u64,
}

impl TierRecord {
    /// The record's bytes.
    ///
    /// Errors: `Range` for names over 65,535 bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut raw = Vec::with_capacity(128 + self.manifest.len() + 8 * self.synced.len());
        raw.extend_from_slice(MAGIC);
        raw.extend_from_slice(&self.oid.to_bytes());
        for number in [self.version, self.size, self.part_bytes] {
            raw.extend_from_slice(&number.to_le_bytes());
        }
        let upload = self.upload.unwrap_or(Upload { done_bytes: 0, total_bytes: 0, at_ns: 0 });
        for number in [upload.done_bytes, upload.total_bytes, upload.at_ns] {
            raw.extend_from_slice(&number.to_le_bytes());
        }
        raw.extend_from_slice(&self.manifest_sum);
        for text in [&self.tier, &self.manifest] {
            let bytes = u16::try_from(text.len())
                .map_err(|_| Error::new(Code::Range, "a name of a tier is too long"))?;
            raw.extend_from_slice(&bytes.to_le_bytes());
            raw.extend_from_slice(text.as_bytes());
        }
        raw.extend_from_slice(&(self.synced.len() as u32).to_le_bytes());
        for epoch in &self.synced {
            raw.extend_from_slice(&epoch.0.to_le_bytes());
        }
        Ok(raw)
    }

    /// The record's bytes, if an attribute has room for them.
    pub(super) fn checked(&self) -> Result<Vec<u8>> {
        let raw = self.encode()?;
        match raw.len() > types::limits::XATTR_BYTES_MAX {
            true => Err(Error::new(
                Code::RecordTooBig,
                "the file is spread over more groups than a record of its copy can name",
            )),
            false => Ok(raw),
        }
    }

    /// The inverse of [`TierRecord::encode`]. `Io` for bytes that are no record.
    pub fn decode(raw: &[u8]) -> Result<TierRecord> {
        decode(raw).ok_or_else(|| {
            Error::new(Code::Io, "a file's record of its copy in a tier cannot be understood")
        })
    }

    /// True when the copy has what a group of the object held at `epoch`.
    pub(crate) fn has(&self, group: u32, epoch: Epoch) -> bool {
        self.synced.get(group as usize).is_some_and(|synced| epoch <= *synced)
    }

    /// True when a group of the object held nothing when the copy was taken.
    pub(crate) fn has_nothing(&self, group: u32) -> bool {
        self.synced.get(group as usize) == Some(&Epoch::ZERO)
    }
}

fn decode(raw: &[u8]) -> Option<TierRecord> {
    let mut rest = raw.strip_prefix(MAGIC)?;
    let oid = Oid::from_bytes(*take(&mut rest)?);
    let mut number = || take(&mut rest).map(|raw| u64::from_le_bytes(*raw));
    let (version, size, part_bytes) = (number()?, number()?, number()?);
    let (done_bytes, total_bytes, at_ns) = (number()?, number()?, number()?);
    let upload = (total_bytes > 0).then_some(Upload { done_bytes, total_bytes, at_ns });
    let manifest_sum = *take(&mut rest)?;
    let mut text = || {
        let bytes = u16::from_le_bytes(*take(&mut rest)?) as usize;
        let (text, left) = rest.split_at_checked(bytes)?;
        rest = left;
        String::from_utf8(text.to_vec()).ok()
    };
    let (tier, manifest) = (text()?, text()?);
    let groups = u32::from_le_bytes(*take(&mut rest)?) as usize;
    if rest.len() != groups.checked_mul(8)? {
        return None;
    }
    let epochs = rest.chunks_exact(8).map(|raw| raw.try_into().map(u64::from_le_bytes));
    let synced = epochs.map(|epoch| epoch.ok().map(Epoch)).collect::<Option<Vec<Epoch>>>()?;
    let record =
        TierRecord { oid, version, size, part_bytes, upload, manifest_sum, tier, manifest, synced };
    (version == 0 || part_bytes > 0).then_some(record)
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(head)
}

/// What stands in a chunk's place while its bytes are in a tier only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stub {
    pub bytes: u32,
    /// XXH3 of the bytes.
    pub sum: u64,
}

impl Stub {
    /// The stub of a chunk with these bytes.
    pub fn of(chunk: &[u8]) -> Stub {
        let mut sum = [0; 8];
        codec::sum(CsumKind::Xxh3, chunk, &mut sum);
        Stub { bytes: chunk.len() as u32, sum: u64::from_le_bytes(sum) }
    }

    pub fn encode(self) -> [u8; STUB_BYTES] {
        let mut raw = [0; STUB_BYTES];
        raw[..4].copy_from_slice(STUB_MAGIC);
        raw[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        raw[8..].copy_from_slice(&self.sum.to_le_bytes());
        raw
    }

    /// `None` for bytes that are no stub.
    pub fn decode(raw: &[u8]) -> Option<Stub> {
        let mut rest = raw.strip_prefix(STUB_MAGIC)?;
        let bytes = u32::from_le_bytes(*take(&mut rest)?);
        let sum = u64::from_le_bytes(*take(&mut rest)?);
        rest.is_empty().then_some(Stub { bytes, sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> TierRecord {
        TierRecord {
            oid: Oid { hi: 0x0d00_0000_0000_0001, lo: 77 },
            version: 2,
            size: 3,
            part_bytes: 8 << 20,
            upload: Some(Upload { done_bytes: 4, total_bytes: 5, at_ns: 6 }),
            manifest_sum: [7; 32],
            tier: "cold".into(),
            manifest: "c/f/2.json".into(),
            synced: vec![Epoch(8), Epoch(9)],
        }
    }

    #[test]
    fn golden_bytes_of_a_record_and_a_stub() {
        // Stored with files: a change needs a new magic and a reader of this one.
        let mut want = b"AZT1".to_vec();
        want.extend_from_slice(&sample().oid.to_bytes());
        for number in [2u64, 3, 8 << 20, 4, 5, 6] {
            want.extend_from_slice(&number.to_le_bytes());
        }
        want.extend_from_slice(&[7; 32]);
        want.extend_from_slice(b"\x04\0cold\x0a\0c/f/2.json\x02\0\0\0");
        want.extend_from_slice(b"\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0");
        assert_eq!(sample().encode().unwrap(), want);
        assert_eq!(TierRecord::decode(&want).unwrap(), sample());
        for cut in 0..want.len() {
            assert!(TierRecord::decode(&want[..cut]).is_err(), "cut at {cut}");
        }
        let stub = Stub { bytes: 0x0102_0304, sum: 5 };
        assert_eq!(&stub.encode(), b"AZS1\x04\x03\x02\x01\x05\0\0\0\0\0\0\0");
        assert_eq!(Stub::decode(&stub.encode()), Some(stub));
        assert_eq!(Stub::decode(&stub.encode()[..15]), None);
        assert_ne!(Stub::of(b"a"), Stub::of(b"b"));
    }

    #[test]
    fn a_copy_has_what_is_not_newer() {
        let record = sample();
        assert!(record.has(0, Epoch(8)) && !record.has(0, Epoch(9)) && record.has(1, Epoch(9)));
        assert!(!record.has(2, Epoch(1)));
        let record = TierRecord { synced: vec![Epoch(8), Epoch::ZERO], ..record };
        assert!(!record.has_nothing(0) && record.has_nothing(1) && !record.has_nothing(2));
    }
}
