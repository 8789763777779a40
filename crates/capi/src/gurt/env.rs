//! Environment variables, read and changed under one lock.
//!
//! The C library's environment is not safe to change while another thread reads it. Programs that
//! use these functions alone are; values are copied out while the lock is held.

use crate::errno::{DER_INVAL, DER_NOMEM, DER_NONEXIST, DER_TRUNC};
use crate::gurt::{Outcome, alloc, status};
use parking_lot::RwLock;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr::null_mut;

static LOCK: RwLock<()> = RwLock::new(());

/// The value of a variable.
///
/// # Safety
/// The caller gives a string.
unsafe fn value(name: *const c_char) -> Outcome<Vec<u8>> {
    if name.is_null() {
        return Err(DER_INVAL);
    }
    let _held = LOCK.read();
    // SAFETY: the caller gives a string; the value is copied while no one changes it.
    unsafe {
        let found = libc::getenv(name);
        if found.is_null() {
            Err(DER_NONEXIST)
        } else {
            Ok(CStr::from_ptr(found).to_bytes().into())
        }
    }
}

/// A decimal number as `strtoull` takes it: blanks, a sign, digits, nothing else.
fn integer(text: &[u8]) -> Option<(bool, u64)> {
    let digits = text.trim_ascii_start();
    let (negative, digits) = match digits {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((negative, std::str::from_utf8(digits).ok()?.parse().ok()?))
}

/// A number of at most `max`; a negative one counts down from `max` + 1.
///
/// # Safety
/// The caller gives a string.
unsafe fn unsigned(name: *const c_char, max: u64) -> Outcome<u64> {
    // SAFETY: the caller gives a string.
    let text = unsafe { value(name) }?;
    let (negative, magnitude) = integer(&text).ok_or(DER_INVAL)?;
    if magnitude > max {
        return Err(DER_INVAL);
    }
    Ok(if negative { 0u64.wrapping_sub(magnitude) & max } else { magnitude })
}

/// Writes a result; `place` is checked first, so that a NULL is reported before anything else.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
unsafe fn put<T>(place: *mut T, found: impl FnOnce() -> Outcome<T>) -> c_int {
    status(|| {
        if place.is_null() {
            return Err(DER_INVAL);
        }
        let found = found()?;
        // SAFETY: not NULL; the caller wants the result there.
        unsafe { place.write(found) };
        Ok(())
    })
}

/// True when the variable is set.
///
/// # Safety
/// The caller gives NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_isenv_def(name: *const c_char) -> bool {
    // SAFETY: the caller gives NULL or a string.
    unsafe { value(name) }.is_ok()
}

/// The value in a buffer; cut to its size, with `-DER_TRUNC`, when it is longer.
///
/// # Safety
/// The caller gives a string and a buffer of `str_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_getenv_str(
    str_val: *mut c_char,
    str_size: usize,
    name: *const c_char,
) -> c_int {
    status(|| {
        if str_val.is_null() || str_size == 0 {
            return Err(DER_INVAL);
        }
        // SAFETY: the caller gives a string and a buffer of `str_size` bytes.
        unsafe {
            let text = value(name)?;
            let kept = text.len().min(str_size - 1);
            str_val.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), kept);
            str_val.add(kept).write(0);
            if kept < text.len() { Err(DER_TRUNC) } else { Ok(()) }
        }
    })
}

/// A copy of the value, to be given back with `d_freeenv_str`; NULL on any error.
///
/// # Safety
/// The caller gives a string, and room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_agetenv_str(str_val: *mut *mut c_char, name: *const c_char) -> c_int {
    // SAFETY: the caller gives a string, and room for a pointer.
    unsafe {
        if !str_val.is_null() {
            str_val.write(null_mut());
        }
        put(str_val, || {
            let copy = alloc::string(&value(name)?);
            if copy.is_null() { Err(DER_NOMEM) } else { Ok(copy) }
        })
    }
}

/// Gives a copied value back and forgets it.
///
/// # Safety
/// The caller gives back what `d_agetenv_str` gave.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_freeenv_str(str_val: *mut *mut c_char) {
    if str_val.is_null() {
        return;
    }
    // SAFETY: the caller gives back what `d_agetenv_str` gave.
    unsafe {
        alloc::free(*str_val);
        str_val.write(null_mut());
    }
}

/// False for a number that is 0; true for any other value.
///
/// # Safety
/// The caller gives a string, and room for a bool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_getenv_bool(name: *const c_char, bool_val: *mut bool) -> c_int {
    // SAFETY: the caller gives a string, and room for a bool.
    unsafe {
        put(bool_val, || {
            let text = value(name)?;
            // A number too large is not 0 either.
            Ok(integer(&text).is_none_or(|(_, magnitude)| magnitude != 0))
        })
    }
}

/// A value of one character.
///
/// # Safety
/// The caller gives a string, and room for a character.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_getenv_char(name: *const c_char, char_val: *mut c_char) -> c_int {
    // SAFETY: the caller gives a string, and room for a character.
    unsafe {
        put(char_val, || match value(name)?[..] {
            [one] => Ok(one as c_char),
            _ => Err(DER_INVAL),
        })
    }
}

/// A number.
///
/// # Safety
/// The caller gives a string, and room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_getenv_uint(name: *const c_char, uint_val: *mut c_uint) -> c_int {
    // SAFETY: the caller gives a string, and room for a number.
    unsafe { put(uint_val, || Ok(unsigned(name, u32::MAX as u64)? as c_uint)) }
}

/// An older name of `d_getenv_uint`.
///
/// # Safety
/// The caller gives pointers that are NULL or good for what they are used for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_getenv_int(name: *const c_char, uint_val: *mut c_uint) -> c_int {
    // SAFETY: as for the function above.
    unsafe { d_getenv_uint(name, uint_val) }
}

/// A number of 32 bits.
///
/// # Safety
/// The caller gives a string, and room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_getenv_uint32_t(name: *const c_char, uint32_val: *mut u32) -> c_int {
    // SAFETY: the caller gives a string, and room for a number.
    unsafe { put(uint32_val, || Ok(unsigned(name, u32::MAX as u64)? as u32)) }
}

/// A number of 64 bits.
///
/// # Safety
/// The caller gives a string, and room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_getenv_uint64_t(name: *const c_char, uint64_val: *mut u64) -> c_int {
    // SAFETY: the caller gives a string, and room for a number.
    unsafe { put(uint64_val, || unsigned(name, u64::MAX)) }
}

/// `putenv` under the lock: 0, or -1 and `errno`.
///
/// # Safety
/// The caller gives a string that stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_putenv(name: *mut c_char) -> c_int {
    if name.is_null() {
        return invalid();
    }
    let _held = LOCK.write();
    // SAFETY: the caller gives a string that stays.
    unsafe { libc::putenv(name) }
}

/// `setenv` under the lock: 0, or -1 and `errno`.
///
/// # Safety
/// The caller gives two strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_setenv(
    name: *const c_char,
    value: *const c_char,
    overwrite: c_int,
) -> c_int {
    if name.is_null() || value.is_null() {
        return invalid();
    }
    let _held = LOCK.write();
    // SAFETY: the caller gives two strings.
    unsafe { libc::setenv(name, value, overwrite) }
}

/// `unsetenv` under the lock: 0, or -1 and `errno`.
///
/// # Safety
/// The caller gives a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_unsetenv(name: *const c_char) -> c_int {
    if name.is_null() {
        return invalid();
    }
    let _held = LOCK.write();
    // SAFETY: the caller gives a string.
    unsafe { libc::unsetenv(name) }
}

/// `clearenv` under the lock.
#[unsafe(no_mangle)]
pub extern "C" fn d_clearenv() -> c_int {
    let _held = LOCK.write();
    // SAFETY: no pointer goes in.
    unsafe { libc::clearenv() }
}

fn invalid() -> c_int {
    // SAFETY: errno is this thread's.
    unsafe { *libc::__errno_location() = libc::EINVAL };
    -1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null;

    /// One test for all, because the environment is one for the process.
    #[test]
    fn values_are_read_as_programs_expect() {
        let name = c"AZEKURA_TEST_VALUE".as_ptr();
        // SAFETY: strings are literals, the rest are variables.
        unsafe {
            let set = |text: &CStr| assert_eq!(d_setenv(name, text.as_ptr(), 1), 0);
            let (mut flag, mut narrow, mut wide, mut one) = (false, 7u32, 7u64, 0);
            assert!(!d_isenv_def(name));
            assert_eq!(d_getenv_bool(name, &mut flag), -DER_NONEXIST);
            assert_eq!(d_getenv_uint32_t(name, &mut narrow), -DER_NONEXIST);
            for (text, wanted) in [
                (c"0", false),
                (c"00", false),
                (c"1", true),
                (c"-3", true),
                (c"no", true),
                (c"", true),
            ] {
                set(text);
                assert_eq!(d_getenv_bool(name, &mut flag), 0);
                assert_eq!(flag, wanted, "{text:?}");
            }
            for (text, as32, as64) in [
                (c" 12", Some(12), Some(12)),
                (c"+12", Some(12), Some(12)),
                (c"-1", Some(u32::MAX), Some(u64::MAX)),
                (c"4294967295", Some(u32::MAX), Some(u32::MAX as u64)),
                (c"4294967296", None, Some(1 << 32)),
                (c"-4294967296", None, Some(0u64.wrapping_sub(1 << 32))),
                (c"18446744073709551615", None, Some(u64::MAX)),
                (c"18446744073709551616", None, None),
                (c"0x10", None, None),
                (c"12 ", None, None),
                (c"", None, None),
                (c"-", None, None),
            ] {
                set(text);
                let told = d_getenv_uint32_t(name, &mut narrow);
                assert_eq!((told == 0).then_some(narrow), as32, "{text:?}");
                assert_eq!(told, d_getenv_uint(name, &mut narrow));
                assert_eq!(told, d_getenv_int(name, &mut narrow));
                let told = d_getenv_uint64_t(name, &mut wide);
                assert_eq!((told == 0).then_some(wide), as64, "{text:?}");
                assert!(told == 0 || told == -DER_INVAL);
            }
            set(c"word");
            let mut buffer = [1 as c_char; 5];
            assert_eq!(d_getenv_str(buffer.as_mut_ptr(), 5, name), 0);
            assert_eq!(CStr::from_ptr(buffer.as_ptr()), c"word");
            assert_eq!(d_getenv_str(buffer.as_mut_ptr(), 4, name), -DER_TRUNC);
            assert_eq!(CStr::from_ptr(buffer.as_ptr()), c"wor");
            assert_eq!(d_getenv_str(buffer.as_mut_ptr(), 0, name), -DER_INVAL);
            assert_eq!(d_getenv_char(name, &mut one), -DER_INVAL);
            set(c"w");
            assert_eq!(d_getenv_char(name, &mut one), 0);
            assert_eq!(one, b'w' as c_char);
            let mut copy = null_mut();
            assert_eq!(d_agetenv_str(&mut copy, name), 0);
            assert_eq!(CStr::from_ptr(copy), c"w");
            d_freeenv_str(&mut copy);
            assert!(copy.is_null());
            d_freeenv_str(&mut copy);
            assert_eq!(d_setenv(name, c"other".as_ptr(), 0), 0);
            assert_eq!(d_getenv_char(name, &mut one), 0);
            assert_eq!(d_unsetenv(name), 0);
            copy = name.cast_mut();
            assert_eq!(d_agetenv_str(&mut copy, name), -DER_NONEXIST);
            assert!(copy.is_null());

            assert_eq!(d_agetenv_str(&mut copy, null()), -DER_INVAL);
            assert_eq!(d_agetenv_str(null_mut(), name), -DER_INVAL);
            assert_eq!(d_getenv_bool(name, null_mut()), -DER_INVAL);
            assert!(!d_isenv_def(null()));
            assert_eq!(d_setenv(null(), name, 1), -1);
            assert_eq!(d_setenv(c"a=b".as_ptr(), name, 1), -1);
            assert_eq!(d_unsetenv(null()), -1);
            assert_eq!(d_putenv(null_mut()), -1);
            d_freeenv_str(null_mut());
        }
    }
}
