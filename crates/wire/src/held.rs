//! A batch with the bytes that it was decoded from.
//!
//! A [`Batch`] borrows keys and values from its message. Who keeps it, or hands it to another task, would have to decode it there once more, or
//! copy all of it. This keeps both together, so a batch is decoded once wherever it goes.

use crate::obj::{Batch, Request};
use std::fmt;
use types::{Code, Error, Result};

/// A decoded batch and its bytes. It may be moved; what it borrows stays where it is.
pub struct HeldBatch {
    /// Borrows from `bytes`, whatever its type says; dropped before them.
    batch: Batch<'static>,
    /// Never changed, and never given out other than to read.
    bytes: Vec<u8>,
}

impl HeldBatch {
    /// Decodes the body of a [`Request::Batch`]. `Proto` when it is none.
    pub fn of_request(body: Vec<u8>) -> Result<HeldBatch> {
        HeldBatch::hold(body, |body| match crate::decode::<Request<'_>>(body)? {
            Request::Batch(batch) => Ok(batch),
            _ => Err(Error::new(Code::Proto, "not a batch")),
        })
    }

    /// Decodes an encoded [`Batch`]. `Proto` when it is none.
    pub fn of_batch(encoded: Vec<u8>) -> Result<HeldBatch> {
        HeldBatch::hold(encoded, |encoded| crate::decode(encoded))
    }

    fn hold(
        bytes: Vec<u8>,
        decode: impl for<'a> FnOnce(&'a [u8]) -> Result<Batch<'a>>,
    ) -> Result<HeldBatch> {
        // SAFETY: the bytes are on the heap, where they stay when the vector moves. Nobody changes them: the field is private, and given
        // out to read only. They outlive the batch: fields are dropped in their order. `decode` works for any lifetime, so it keeps no
        // reference of this one; and `batch` gives the batch out for as long as `self` is borrowed, no longer.
        let forever: &'static [u8] = unsafe { &*std::ptr::from_ref(&bytes[..]) };
        let batch = decode(forever)?;
        Ok(HeldBatch { batch, bytes })
    }

    /// What they say.
    pub fn batch(&self) -> &Batch<'_> {
        &self.batch
    }

    /// All bytes, of the request or of the batch, whichever it was made from.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for HeldBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.batch.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::obj::{Cond, Op, ReadCheck, ReadScope, Sums, UpdateIod, UpdateValue};
    use types::{ContId, Epoch, Oid, PoolId};

    fn batch() -> Batch<'static> {
        let unit = Oid { hi: 1, lo: 2 }.unit(3);
        let iods =
            vec![UpdateIod { akey: b"akey", cond: Cond::NONE, value: UpdateValue::Inline(b"v") }];
        Batch {
            pool: PoolId(1),
            cont: ContId(2),
            at: Epoch::ZERO,
            checks: vec![ReadCheck { unit, of: ReadScope::Dkey(b"seen"), seen: Epoch(9) }],
            ops: vec![Op::Update { unit, dkey: b"dkey", cond: Cond::NONE, iods }],
            sums: Sums::NONE,
        }
    }

    #[test]
    fn a_batch_says_the_same_wherever_it_is_moved() {
        let of_request = crate::encode(&Request::Batch(batch()));
        let held = [
            HeldBatch::of_request(of_request.clone()).unwrap(),
            HeldBatch::of_batch(crate::encode(&batch())).unwrap(),
        ];
        let moved: Vec<Box<HeldBatch>> = held.into_iter().map(Box::new).collect();
        for held in &moved {
            assert_eq!(*held.batch(), batch());
            let Op::Update { dkey, .. } = &held.batch().ops[0] else { panic!("{held:?}") };
            assert!(held.bytes().as_ptr_range().contains(&dkey.as_ptr()), "a copy of a key");
        }
        assert_eq!(moved[0].bytes(), of_request);
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        for body in [vec![], vec![7], crate::encode(&Request::PoolShardStat { pool: PoolId(1) })] {
            assert_eq!(HeldBatch::of_request(body).unwrap_err().code, Code::Proto);
        }
        assert_eq!(HeldBatch::of_batch(vec![1]).unwrap_err().code, Code::Proto);
    }
}
