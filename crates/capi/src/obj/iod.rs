//! I/O descriptors of C's, and how transfers are cut into requests.
//!
//! One request moves at most [`limits::BULK_BYTES_MAX`]. Nearly every transfer fits one; ranges
//! of records that do not are cut, single values never are.

use crate::ctypes::{DAOS_IOD_ARRAY, DAOS_IOD_SINGLE, d_sg_list_t, daos_iod_t, daos_recx_t};
use crate::guard;
use types::{Code, Error, Result, limits};
use wire::obj::Recx;

/// What an iod names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Single,
    Array,
}

/// Descriptors and the lists of memory that go with them, as C gave them.
#[derive(Clone, Copy)]
pub(super) struct Iods {
    pub first: *mut daos_iod_t,
    pub count: u32,
    /// NULL, or as many.
    pub sgls: *mut d_sg_list_t,
}

impl Iods {
    /// `Inval` for none at all.
    pub fn check(&self) -> Result<()> {
        if self.first.is_null() || self.count == 0 {
            return Err(Error::inval("at least one akey must be named"));
        }
        Ok(())
    }

    /// The descriptors.
    ///
    /// # Safety
    /// They live and are used by nobody else for `'a`.
    pub unsafe fn all<'a>(&self) -> &'a mut [daos_iod_t] {
        // SAFETY: the caller's promise; checked not to be NULL.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.count as usize) }
    }

    /// The list of memory of one of them; NULL if there is none.
    pub fn sgl(&self, at: usize) -> *mut d_sg_list_t {
        if self.sgls.is_null() {
            return std::ptr::null_mut();
        }
        self.sgls.wrapping_add(at)
    }
}

/// What an iod names; `Inval` for another type, or a single value of several.
pub(super) fn shape(iod: &daos_iod_t) -> Result<Shape> {
    match iod.iod_type {
        DAOS_IOD_SINGLE if iod.iod_nr == 1 => Ok(Shape::Single),
        DAOS_IOD_SINGLE => Err(Error::inval("iod_nr of a single value is 1")),
        DAOS_IOD_ARRAY => Ok(Shape::Array),
        other => Err(Error::inval(format!("iod_type {other} is not one"))),
    }
}

/// The ranges of an iod. `Inval` for none, or ones that overflow.
///
/// # Safety
/// `iod_recxs` is NULL or as long as `iod_nr` says.
pub(super) unsafe fn recxs(iod: &daos_iod_t) -> Result<Vec<Recx>> {
    if iod.iod_recxs.is_null() || iod.iod_nr == 0 {
        return Err(guard::null());
    }
    // SAFETY: the caller's promise.
    let given = unsafe { std::slice::from_raw_parts(iod.iod_recxs, iod.iod_nr as usize) };
    let to_recx = |recx: &daos_recx_t| Recx { index: recx.rx_idx, count: recx.rx_nr };
    let recxs: Vec<Recx> = given.iter().map(to_recx).collect();
    if recxs.iter().any(|recx| recx.end().is_none()) {
        return Err(Error::inval("a range of records ends beyond the last index"));
    }
    Ok(recxs)
}

/// `Inval` for ranges of which two have a record in common: which of its bytes would be written?
pub(super) fn require_apart(recxs: &[Recx]) -> Result<()> {
    let apart = |recxs: &[Recx]| {
        recxs.windows(2).all(|two| two[0].end().is_some_and(|end| end <= two[1].index))
    };
    if apart(recxs) {
        return Ok(());
    }
    let mut sorted: Vec<Recx> = recxs.iter().copied().filter(|recx| recx.count > 0).collect();
    sorted.sort_unstable_by_key(|recx| recx.index);
    match apart(&sorted) {
        true => Ok(()),
        false => Err(Error::inval("two ranges of an update have records in common")),
    }
}

/// Bytes of ranges of records. `RecordTooBig` when that is more than can be addressed.
pub(super) fn bytes_of(recxs: &[Recx], record_bytes: u32) -> Result<usize> {
    recxs
        .iter()
        .try_fold(0u64, |sum, recx| {
            sum.checked_add(recx.count.checked_mul(u64::from(record_bytes))?)
        })
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| Error::new(Code::RecordTooBig, "the ranges hold too many bytes"))
}

/// The size of a record as the store counts it.
pub(super) fn record_bytes(iod_size: u64) -> Result<u32> {
    u32::try_from(iod_size)
        .ok()
        .filter(|bytes| *bytes as usize <= limits::BULK_BYTES_MAX)
        .ok_or_else(|| {
            let text = format!("a record of {iod_size} bytes is over the limit");
            Error::new(Code::RecordTooBig, text)
        })
}

/// Cuts ranges into runs of at most [`limits::BULK_BYTES_MAX`], the first of which may have
/// `room` bytes. Gives `(ranges, bytes)` of each run, in order; the first may be empty.
pub(super) fn cut(recxs: &[Recx], record_bytes: u32, room: usize) -> Vec<(Vec<Recx>, usize)> {
    let record = u64::from(record_bytes);
    let mut runs = Vec::with_capacity(1);
    let (mut run, mut run_bytes, mut left) = (Vec::with_capacity(recxs.len()), 0, room as u64);
    for recx in recxs {
        let mut recx = *recx;
        while recx.count > 0 {
            let count = recx.count.min(left / record);
            if count == 0 {
                runs.push((std::mem::take(&mut run), run_bytes));
                (run_bytes, left) = (0, limits::BULK_BYTES_MAX as u64);
                continue;
            }
            run.push(Recx { index: recx.index, count });
            run_bytes += (count * record) as usize;
            left -= count * record;
            recx = Recx { index: recx.index + count, count: recx.count - count };
        }
    }
    runs.push((run, run_bytes));
    runs
}

/// Memory that can be handed out piece by piece.
pub(super) struct Supply<T> {
    pieces: std::vec::IntoIter<T>,
    open: Option<T>,
}

/// Memory that can be cut in two.
pub(super) trait Cut: Sized {
    fn bytes(&self) -> usize;
    fn cut(self, at: usize) -> (Self, Self);
}

impl Cut for &[u8] {
    fn bytes(&self) -> usize {
        self.len()
    }
    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }
}

impl Cut for &mut [u8] {
    fn bytes(&self) -> usize {
        self.len()
    }
    fn cut(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }
}

impl<T: Cut> Supply<T> {
    pub fn new(pieces: Vec<T>) -> Supply<T> {
        Supply { pieces: pieces.into_iter(), open: None }
    }

    /// Moves the next `bytes` bytes to `out`. `RecordTooBig` when there are fewer.
    pub fn take(&mut self, mut bytes: usize, out: &mut Vec<T>) -> Result<()> {
        while bytes > 0 {
            let piece = self.open.take().or_else(|| self.pieces.next()).ok_or_else(|| {
                Error::new(Code::RecordTooBig, "the memory given is smaller than the data named")
            })?;
            if piece.bytes() <= bytes {
                bytes -= piece.bytes();
                out.push(piece);
            } else {
                let (now, rest) = piece.cut(bytes);
                bytes = 0;
                out.push(now);
                self.open = Some(rest);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recx(index: u64, count: u64) -> Recx {
        Recx { index, count }
    }

    #[test]
    fn cut_ranges_are_the_same_records_in_the_same_order() {
        let max = limits::BULK_BYTES_MAX as u64;
        for record in [1u32, 8, 4096, limits::BULK_BYTES_MAX as u32] {
            let per_run = max / u64::from(record);
            let cases = [
                vec![recx(5, 1)],
                vec![recx(0, per_run), recx(1 << 40, per_run)],
                vec![recx(3, 1), recx(7, 2 * per_run + 1), recx(1 << 50, 2)],
            ];
            for (ranges, room) in
                cases.iter().flat_map(|case| [0, 4096, max as usize].map(|room| (case, room)))
            {
                let runs = cut(ranges, record, room);
                let mut joined: Vec<Recx> = Vec::new();
                for (at, (run, bytes)) in runs.iter().enumerate() {
                    assert!(*bytes <= if at == 0 { room } else { max as usize });
                    assert_eq!(*bytes, bytes_of(run, record).unwrap());
                    for next in run {
                        match joined.last_mut() {
                            Some(last) if last.end() == Some(next.index) => {
                                last.count += next.count
                            }
                            _ => joined.push(*next),
                        }
                    }
                }
                assert_eq!(&joined, ranges, "records of {record}, room {room}");
            }
        }
    }

    #[test]
    fn memory_is_handed_out_in_order_whatever_its_borders() {
        let bytes: Vec<u8> = (0..20).collect();
        let mut supply = Supply::new(vec![&bytes[..3], &bytes[3..4], &bytes[4..20]]);
        let mut all: Vec<u8> = Vec::new();
        for count in [0, 2, 2, 5, 11] {
            let mut out: Vec<&[u8]> = Vec::new();
            supply.take(count, &mut out).unwrap();
            assert_eq!(out.concat().len(), count);
            all.extend(out.concat());
        }
        assert_eq!(all, bytes);
        assert_eq!(supply.take(1, &mut Vec::new()).unwrap_err().code, Code::RecordTooBig);
    }
}
