//! Scatter/gather lists of C's as slices.
//!
//! What a list holds is `iov_len` bytes of each piece; what fits into it is `iov_buf_len` bytes.

use crate::ctypes::{d_iov_t, d_sg_list_t, daos_key_t};
use crate::guard;
use types::{Code, Error, Result, limits};

/// Most bytes of a piece, and of a list; there is no memory beyond.
const BYTES_MAX: usize = isize::MAX as usize;

/// `Inval` for a list of more bytes than there can be.
fn check_total<T: AsRef<[u8]>>(pieces: &[T]) -> Result<()> {
    let add = |sum: usize, piece: &T| sum.checked_add(piece.as_ref().len());
    match pieces.iter().try_fold(0, add) {
        Some(0..=BYTES_MAX) => Ok(()),
        _ => Err(Error::inval("a list of memory names more than there can be")),
    }
}

/// The pieces of a list; none for NULL. `Inval` for a list of pieces that are not there.
///
/// # Safety
/// `sgl` is NULL or a list whose pieces live for `'a` and are used by nobody else.
unsafe fn pieces<'a>(sgl: *mut d_sg_list_t) -> Result<&'a mut [d_iov_t]> {
    // SAFETY: the caller's promise.
    let Some(sgl) = (unsafe { sgl.as_mut() }) else { return Ok(&mut []) };
    if sgl.sg_nr == 0 {
        return Ok(&mut []);
    }
    if sgl.sg_iovs.is_null() {
        return Err(guard::null());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(sgl.sg_iovs, sgl.sg_nr as usize) })
}

/// What a list holds. `Inval` for a piece that holds more than its room, or is NULL and holds
/// something.
///
/// # Safety
/// `sgl` is NULL or a list whose memory is there, unchanged, for `'a`.
pub unsafe fn held<'a>(sgl: *mut d_sg_list_t) -> Result<Vec<&'a [u8]>> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(sgl) }?;
    let slices = pieces.iter().filter(|piece| piece.iov_len > 0).map(|piece| {
        if piece.iov_buf.is_null() || piece.iov_len > piece.iov_buf_len.min(BYTES_MAX) {
            return Err(Error::inval("a piece of memory is NULL or holds more than its room"));
        }
        // SAFETY: not NULL, and the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(piece.iov_buf.cast::<u8>(), piece.iov_len) })
    });
    let slices: Vec<_> = slices.collect::<Result<_>>()?;
    check_total(&slices)?;
    Ok(slices)
}

/// The memory behind what a list holds, for writing: `iov_len` bytes of each piece.
///
/// # Safety
/// `sgl` is NULL or a list whose memory is there and used by nobody else for `'a`.
pub unsafe fn held_mut<'a>(sgl: *mut d_sg_list_t) -> Result<Vec<&'a mut [u8]>> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(sgl) }?;
    let slices = pieces.iter().filter(|piece| piece.iov_len > 0).map(|piece| {
        if piece.iov_buf.is_null() || piece.iov_len > piece.iov_buf_len.min(BYTES_MAX) {
            return Err(Error::inval("a piece of memory is NULL or holds more than its room"));
        }
        // SAFETY: not NULL, and the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(piece.iov_buf.cast::<u8>(), piece.iov_len) })
    });
    let slices: Vec<_> = slices.collect::<Result<_>>()?;
    check_total(&slices)?;
    Ok(slices)
}

/// The room of a list: `iov_buf_len` bytes of each piece. `Inval` for a NULL piece with room.
///
/// # Safety
/// As for [`held_mut`].
pub unsafe fn room<'a>(sgl: *mut d_sg_list_t) -> Result<Vec<&'a mut [u8]>> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(sgl) }?;
    let slices = pieces.iter().filter(|piece| piece.iov_buf_len > 0).map(|piece| {
        if piece.iov_buf.is_null() || piece.iov_buf_len > BYTES_MAX {
            return Err(guard::null());
        }
        let start = piece.iov_buf.cast::<u8>();
        // SAFETY: not NULL, and the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(start, piece.iov_buf_len) })
    });
    let slices: Vec<_> = slices.collect::<Result<_>>()?;
    check_total(&slices)?;
    Ok(slices)
}

/// Notes that the first `bytes` of the room were filled.
///
/// # Safety
/// As for [`held_mut`]; no slice of it is held.
pub unsafe fn note_filled(sgl: *mut d_sg_list_t, bytes: usize) {
    // SAFETY: the caller's promise.
    let Ok(pieces) = (unsafe { pieces(sgl) }) else { return };
    let mut left = bytes;
    let mut used = 0;
    for (at, piece) in pieces.iter_mut().enumerate() {
        piece.iov_len = left.min(piece.iov_buf_len);
        left -= piece.iov_len;
        if piece.iov_len > 0 {
            used = at as u32 + 1;
        }
    }
    // SAFETY: the caller's promise.
    if let Some(sgl) = unsafe { sgl.as_mut() } {
        sgl.sg_nr_out = used;
    }
}

/// Copies bytes into the room that begins `at` bytes into pieces; what does not fit is left out.
pub fn scatter(pieces: &mut [&mut [u8]], mut at: usize, mut bytes: &[u8]) {
    for piece in pieces {
        if at >= piece.len() {
            at -= piece.len();
            continue;
        }
        let (now, rest) = bytes.split_at(bytes.len().min(piece.len() - at));
        piece[at..at + now.len()].copy_from_slice(now);
        bytes = rest;
        at = 0;
        if bytes.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
/// Copies `count` bytes that begin `at` bytes into pieces; fewer if the pieces end.
pub fn gather(pieces: &[&mut [u8]], mut at: usize, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count);
    for piece in pieces {
        if at >= piece.len() {
            at -= piece.len();
            continue;
        }
        let now = (piece.len() - at).min(count - bytes.len());
        bytes.extend_from_slice(&piece[at..at + now]);
        at = 0;
    }
    bytes
}

/// A key. `Inval` for NULL or an empty one, `KeyTooBig` for one over the limit.
///
/// # Safety
/// `key` is NULL or a buffer of `iov_len` bytes that is there, unchanged, for `'a`.
pub unsafe fn key<'a>(key: *const daos_key_t) -> Result<&'a [u8]> {
    // SAFETY: the caller's promise.
    let key = unsafe { guard::get(key) }?;
    if key.iov_buf.is_null() || key.iov_len == 0 {
        return Err(Error::inval("a key is NULL or empty"));
    }
    if key.iov_len > limits::KEY_BYTES_MAX {
        return Err(Error::new(
            Code::KeyTooBig,
            format!("key of {} bytes, over the limit of {}", key.iov_len, limits::KEY_BYTES_MAX),
        ));
    }
    // SAFETY: not NULL, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(key.iov_buf.cast(), key.iov_len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iov(memory: &mut [u8]) -> d_iov_t {
        let bytes = memory.len();
        d_iov_t { iov_buf: memory.as_mut_ptr().cast(), iov_buf_len: bytes, iov_len: bytes }
    }

    #[test]
    fn what_was_filled_is_told_piece_by_piece() {
        let (mut a, mut b, mut c) = ([0u8; 3], [0u8; 4], [0u8; 5]);
        let mut iovs = [iov(&mut a), iov(&mut b), iov(&mut c)];
        let mut sgl = d_sg_list_t { sg_nr: 3, sg_nr_out: 9, sg_iovs: iovs.as_mut_ptr() };
        for (filled, lengths, used) in
            [(0, [0, 0, 0], 0), (3, [3, 0, 0], 1), (5, [3, 2, 0], 2), (12, [3, 4, 5], 3)]
        {
            // SAFETY: a list of live memory.
            unsafe { note_filled(&mut sgl, filled) };
            assert_eq!(iovs.map(|iov| iov.iov_len), lengths);
            assert_eq!(sgl.sg_nr_out, used);
        }
    }

    #[test]
    fn bytes_are_scattered_over_borders_and_gathered_again() {
        let (mut a, mut b, mut c) = ([0u8; 3], [0u8; 1], [0u8; 5]);
        let mut pieces = [&mut a[..], &mut b[..], &mut c[..]];
        for at in 0..9 {
            for count in 0..=9 - at {
                let bytes: Vec<u8> = (0..count as u8).map(|byte| byte + 100).collect();
                scatter(&mut pieces, at, &bytes);
                assert_eq!(gather(&pieces, at, count), bytes, "{count} bytes at {at}");
            }
        }
        scatter(&mut pieces, 8, &[1, 2, 3]);
        assert_eq!(gather(&pieces, 8, 3), [1]);
    }
}
