//! Arrays that know their own shape: record size and chunk size are kept in dkey 0, as
//! in DAOS, so that an array can be opened by its id alone.

use crate::array::ArrayObj;
use crate::cont::Container;
use crate::object::FetchedValue;
use async_recursion::async_recursion as boxed;
use types::{Code, Error, ObjType, Oid, Result};
use wire::obj::{Cond, FetchIod, FetchWant, UpdateIod, UpdateValue};

/// Dkey of the attributes; chunks begin at 1.
const ATTRS_DKEY: [u8; 8] = 0u64.to_le_bytes();
const ATTRS_AKEY: &[u8] = b"array";
/// First word of the attributes, with the version of what follows.
const MAGIC: &[u8; 8] = b"azkarr\0\x01";
const ATTRS_BYTES: usize = 20;

fn encode(record_bytes: u32, chunk_records: u64) -> [u8; ATTRS_BYTES] {
    let mut raw = [0; ATTRS_BYTES];
    raw[..8].copy_from_slice(MAGIC);
    raw[8..12].copy_from_slice(&record_bytes.to_le_bytes());
    raw[12..].copy_from_slice(&chunk_records.to_le_bytes());
    raw
}

fn decode(raw: &[u8]) -> Option<(u32, u64)> {
    let raw: &[u8; ATTRS_BYTES] = raw.try_into().ok()?;
    let record_bytes = u32::from_le_bytes(raw[8..12].try_into().ok()?);
    let chunk_records = u64::from_le_bytes(raw[12..].try_into().ok()?);
    (&raw[..8] == MAGIC && record_bytes > 0 && chunk_records > 0)
        .then_some((record_bytes, chunk_records))
}

impl ArrayObj {
    /// Makes an array and writes down its shape. The id's type is one of an array.
    ///
    /// Errors: `Exist` when the object is an array already; `Inval` for a zero size or an id of
    /// another type.
    #[boxed(?Send)]
    pub async fn create(
        cont: &Container,
        oid: Oid,
        record_bytes: u32,
        chunk_records: u64,
    ) -> Result<ArrayObj> {
        require_attrs(oid)?;
        let array = ArrayObj::open_with_attrs(cont, oid, record_bytes, chunk_records)?;
        let raw = encode(record_bytes, chunk_records);
        let value = UpdateValue::Inline(&raw);
        let iods = vec![UpdateIod { akey: ATTRS_AKEY, cond: Cond::NONE, value }];
        cont.object(oid).update(None, Cond::AKEY_INSERT, &ATTRS_DKEY, iods, &[]).await?;
        Ok(array)
    }

    /// Opens an array by its id. `NonExist` when [`ArrayObj::create`] did not make it.
    #[boxed(?Send)]
    pub async fn open(cont: &Container, oid: Oid) -> Result<ArrayObj> {
        require_attrs(oid)?;
        let want = FetchWant::Single { bytes_max: 64, inline_bytes_max: 64 };
        let iods = vec![FetchIod { akey: ATTRS_AKEY, want }];
        let found = cont.object(oid).fetch(None, Cond::NONE, &ATTRS_DKEY, iods, &mut []).await?;
        match found.first() {
            Some(FetchedValue::Inline(raw)) => {
                let (record_bytes, chunk_records) = decode(raw).ok_or_else(|| {
                    Error::inval(format!("object {oid} holds array attributes of another format"))
                })?;
                ArrayObj::open_with_attrs(cont, oid, record_bytes, chunk_records)
            }
            _ => Err(Error::new(Code::NonExist, format!("object {oid} is not an array"))),
        }
    }

    /// An array whose shape the caller keeps; nothing is read.
    pub fn open_with_attrs(
        cont: &Container,
        oid: Oid,
        record_bytes: u32,
        chunk_records: u64,
    ) -> Result<ArrayObj> {
        if record_bytes == 0 || chunk_records == 0 {
            return Err(Error::inval("records and chunks of an array are not empty"));
        }
        if oid.dkey_kind() != types::DkeyKind::U64 {
            return Err(Error::inval(format!("object {oid} does not order its dkeys as integers")));
        }
        Ok(ArrayObj { cont: cont.clone(), oid, record_bytes, chunk_records })
    }
}

fn require_attrs(oid: Oid) -> Result<()> {
    match oid.obj_type() {
        Some(ObjType::Array | ObjType::ArrayAttr | ObjType::ArrayByte) => Ok(()),
        _ => Err(Error::inval(format!("object {oid} is not of an array's type"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_twenty_known_bytes() {
        let raw = encode(8, 4096);
        assert_eq!(
            raw,
            [97, 122, 107, 97, 114, 114, 0, 1, 8, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0],
            "stored arrays depend on these bytes"
        );
        assert_eq!(decode(&raw), Some((8, 4096)));
        for cut in 0..raw.len() {
            assert_eq!(decode(&raw[..cut]), None);
        }
        assert_eq!(decode(&encode(0, 1)), None);
    }
}
