//! What is to be reserved for the updates of a batch, before any of their bytes are there.

use smallvec::SmallVec;
use wire::footprint::Brings;
use wire::obj::UpdateValue;

use crate::index::cost;

/// What updates need.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Memory of the index beside that of values in the bulk, bytes.
    scm_bytes: u64,
    /// Values in the bulk, in its order.
    pub values: SmallVec<[ValueSize; 1]>,
}

/// A value in the bulk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueSize {
    pub bytes: u64,
    /// `None`: a single value.
    pub record_bytes: Option<u32>,
}

impl Needs {
    /// Adds what an operation brings, whose sizes and ranges are possible.
    pub(crate) fn add(&mut self, brings: &Brings<'_>) {
        let Brings::Values { dkey, iods } = brings else { return };
        // A write may cut an extent in two and add one.
        let extents = |count: usize| count as u64 * 2 * cost::EXTENT;
        self.scm_bytes += cost::OBJECT + cost::DKEY + dkey.len() as u64;
        for iod in *iods {
            self.scm_bytes += cost::AKEY + iod.akey.len() as u64;
            match &iod.value {
                UpdateValue::Inline(bytes) => self.scm_bytes += bytes.len() as u64,
                UpdateValue::Single { bytes } => {
                    self.values.push(ValueSize { bytes: *bytes, record_bytes: None });
                }
                UpdateValue::Array { record_bytes, recxs } => {
                    self.scm_bytes += extents(recxs.len());
                    self.values.extend(recxs.iter().map(|recx| ValueSize {
                        bytes: recx.count * *record_bytes as u64,
                        record_bytes: Some(*record_bytes),
                    }));
                }
                UpdateValue::Zero { recxs, .. } => self.scm_bytes += extents(recxs.len()),
                UpdateValue::PunchRecords { .. } => {}
                UpdateValue::Coded { stripes, .. } => {
                    self.scm_bytes += extents(stripes.len()) + stripes.len() as u64 * cost::RUN;
                }
            }
        }
    }

    /// An upper bound of the index memory that the updates add, bytes.
    pub(crate) fn scm_bytes(&self, inline_bytes_max: u64) -> u64 {
        let of = |value: &ValueSize| match value.bytes < inline_bytes_max {
            true => value.bytes,
            false => cost::RUN,
        };
        self.scm_bytes + self.values.iter().map(of).sum::<u64>()
    }
}
