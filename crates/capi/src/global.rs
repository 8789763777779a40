//! Global handles: open pools, containers and arrays as bytes for another process.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | magic `AZKG` |
//! | 1 | version of this format |
//! | 1 | kind of handle |
//! | rest | postcard of what is known of it |
//!
//! They hold no state of any server: they work after the exporter has closed its own handle.
//! Integers are encoded byte by byte, so the receiver may have another byte order.

use crate::ctypes::d_iov_t;
use crate::guard;
use serde::Serialize;
use serde::de::DeserializeOwned;
use types::{Code, Error, Result};

const MAGIC: &[u8; 4] = b"AZKG";
const VERSION: u8 = 1;

/// What a global handle stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Pool = 1,
    Cont = 2,
    Array = 3,
    /// A mount, with its pool and container or alone.
    Mount = 4,
    /// A file or directory.
    File = 5,
}

/// Bytes for a handle.
pub fn encode<T: Serialize>(kind: Kind, value: &T) -> Result<Vec<u8>> {
    let mut raw = MAGIC.to_vec();
    raw.extend([VERSION, kind as u8]);
    postcard::to_extend(value, raw)
        .map_err(|error| Error::inval(format!("this handle cannot be handed over: {error}")))
}

/// What bytes of [`encode`] stand for. `Inval` for anything else.
pub fn decode<T: DeserializeOwned>(kind: Kind, raw: &[u8]) -> Result<T> {
    let wrong = || Error::inval("these bytes are no global handle of this kind and version");
    let rest = raw.strip_prefix(MAGIC).ok_or_else(wrong)?;
    let rest = rest.strip_prefix(&[VERSION, kind as u8]).ok_or_else(wrong)?;
    postcard::from_bytes(rest).map_err(|_| wrong())
}

/// Gives bytes to C: with no buffer only their number (in `iov_buf_len`), else the bytes (and
/// their number in both lengths). `too_small` is the error for a buffer that is.
///
/// # Safety
/// `glob` is NULL or points to an iov whose buffer is as long as it says.
pub unsafe fn export(raw: &[u8], glob: *mut d_iov_t, too_small: Code) -> Result<()> {
    // SAFETY: the caller's promise.
    let iov = unsafe { glob.as_mut() }.ok_or_else(guard::null)?;
    if iov.iov_buf.is_null() {
        iov.iov_buf_len = raw.len();
        return Ok(());
    }
    if iov.iov_buf_len < raw.len() {
        let given = iov.iov_buf_len;
        iov.iov_buf_len = raw.len();
        let text = format!("the handle is {} bytes, the buffer {given}", raw.len());
        return Err(Error::new(too_small, text));
    }
    // SAFETY: the buffer is long enough.
    unsafe { std::ptr::copy_nonoverlapping(raw.as_ptr(), iov.iov_buf.cast(), raw.len()) };
    iov.iov_buf_len = raw.len();
    iov.iov_len = raw.len();
    Ok(())
}

/// The bytes C gives: `iov_len` of them, or the whole buffer when that is 0.
///
/// # Safety
/// The buffer is NULL or as long as the iov says, and outlives `'a`.
pub unsafe fn import<'a>(glob: &d_iov_t) -> Result<&'a [u8]> {
    let bytes = if glob.iov_len == 0 { glob.iov_buf_len } else { glob.iov_len };
    let bytes_max = glob.iov_buf_len.max(glob.iov_len).min(isize::MAX as usize);
    if glob.iov_buf.is_null() || bytes > bytes_max {
        return Err(guard::null());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(glob.iov_buf.cast(), bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_out_in_two_calls_and_come_back() {
        let raw = encode(Kind::Cont, &(7u64, "x".to_string())).unwrap();
        let mut iov = d_iov_t { iov_buf: std::ptr::null_mut(), iov_buf_len: 0, iov_len: 0 };
        // SAFETY: buffers are as long as the iovs say.
        unsafe {
            export(&raw, &mut iov, Code::Range).unwrap();
            assert_eq!(iov.iov_buf_len, raw.len());
            let mut memory = vec![0u8; raw.len()];
            iov.iov_buf = memory.as_mut_ptr().cast();
            iov.iov_buf_len = raw.len() - 1;
            assert_eq!(export(&raw, &mut iov, Code::Range).unwrap_err().code, Code::Range);
            iov.iov_buf_len = raw.len();
            iov.iov_len = raw.len();
            export(&raw, &mut iov, Code::Range).unwrap();
            let back: (u64, String) = decode(Kind::Cont, import(&iov).unwrap()).unwrap();
            assert_eq!(back, (7, "x".to_string()));
        }
        assert!(decode::<(u64, String)>(Kind::Pool, &raw).is_err());
        for end in 0..raw.len() {
            assert!(decode::<(u64, String)>(Kind::Cont, &raw[..end]).is_err());
        }
    }
}
