//! Key-value objects: one value per key, kept as a single value under the empty akey (as
//! in DAOS's KV API).

use crate::object::{Anchor, FetchedValue, Object};
use crate::tx::Tx;
use async_recursion::async_recursion as boxed;
use types::{Code, Error, Key, Result};
use wire::obj::{Cond, FetchIod, FetchWant, UpdateIod, UpdateValue};

const VALUE: &[u8] = b"";
/// Values up to this size travel in the message itself.
const INLINE_BYTES_MAX: usize = 1024;

/// A key-value object: one single value per key.
#[derive(Clone)]
pub struct KvObj {
    /// The object; its type should be one of the `Kv` types.
    pub object: Object,
}

impl KvObj {
    /// Stores a value. `DKEY_INSERT` and `DKEY_UPDATE` conditions apply to the key.
    #[boxed(?Send)]
    pub async fn put(&self, tx: Option<&Tx>, cond: Cond, key: &[u8], value: &[u8]) -> Result<()> {
        let small = value.len() <= INLINE_BYTES_MAX;
        let update = if small {
            UpdateValue::Inline(value)
        } else {
            UpdateValue::Single { bytes: value.len() as u64 }
        };
        let iods = vec![UpdateIod { akey: VALUE, cond: Cond::NONE, value: update }];
        let data: &[&[u8]] = if small { &[] } else { &[value] };
        self.object.update(tx, cond, key, iods, data).await.map(|_| ())
    }

    /// Reads a value; `None` when the key is absent.
    #[boxed(?Send)]
    pub async fn get(&self, tx: Option<&Tx>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut room_bytes = 0;
        loop {
            let mut room = vec![0; room_bytes];
            let want = FetchWant::Single {
                bytes_max: room_bytes.max(INLINE_BYTES_MAX) as u64,
                inline_bytes_max: INLINE_BYTES_MAX as u32,
            };
            let iods = vec![FetchIod { akey: VALUE, want }];
            let found = self.object.fetch(tx, Cond::NONE, key, iods, &mut [&mut room[..]]).await?;
            match found.into_iter().next() {
                Some(FetchedValue::Inline(value)) => return Ok(Some(value)),
                Some(FetchedValue::Single { bytes, fitted: true }) => {
                    room.truncate(bytes as usize);
                    return Ok(Some(room));
                }
                // It grew, or this was the first look: make room and ask again.
                Some(FetchedValue::Single { bytes, fitted: false }) => room_bytes = bytes as usize,
                Some(FetchedValue::Absent) => return Ok(None),
                _ => return Err(Error::new(Code::Inval, "the key holds an array, not a value")),
            }
        }
    }

    /// Size of a value; `None` when the key is absent.
    #[boxed(?Send)]
    pub async fn size(&self, tx: Option<&Tx>, key: &[u8]) -> Result<Option<u64>> {
        let iods = vec![FetchIod {
            akey: VALUE,
            want: FetchWant::Single { bytes_max: 0, inline_bytes_max: 0 },
        }];
        match self.object.fetch(tx, Cond::NONE, key, iods, &mut []).await?.into_iter().next() {
            Some(FetchedValue::Inline(value)) => Ok(Some(value.len() as u64)),
            Some(FetchedValue::Single { bytes, .. }) => Ok(Some(bytes)),
            Some(FetchedValue::Absent) | None => Ok(None),
            Some(FetchedValue::Array { .. } | FetchedValue::Sparse { .. }) => {
                Err(Error::new(Code::Inval, "the key holds an array, not a value"))
            }
        }
    }

    /// Removes a key. With `Cond::PUNCH` it must exist.
    #[boxed(?Send)]
    pub async fn remove(&self, tx: Option<&Tx>, cond: Cond, key: &[u8]) -> Result<()> {
        self.object.punch_dkeys(tx, cond, &[key]).await
    }

    /// Lists keys from `anchor` on.
    #[boxed(?Send)]
    pub async fn list(&self, anchor: &mut Anchor, count_max: u32) -> Result<Vec<Key>> {
        self.object.list_dkeys(None, anchor, count_max).await
    }

    /// Removes the object with all its keys.
    #[boxed(?Send)]
    pub async fn destroy(&self) -> Result<()> {
        self.object.punch(Cond::NONE).await
    }
}
