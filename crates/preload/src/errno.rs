//! The thread's `errno`.

use libc::c_int;

pub fn set(value: c_int) {
    // SAFETY: the address of the thread's own `errno` is always valid.
    unsafe { *libc::__errno_location() = value };
}

pub fn get() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// What a call returns for a result: the value, or -1 and `errno`.
pub fn number<T: From<i8>>(result: Result<T, c_int>) -> T {
    result.unwrap_or_else(|errno| {
        set(errno);
        T::from(-1)
    })
}

/// The same for calls that return 0.
pub fn zero(result: Result<(), c_int>) -> c_int {
    number(result.map(|()| 0))
}
