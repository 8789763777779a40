//! The next function of a name behind ours.

use libc::{c_int, c_long, c_uint, c_void, size_t, ssize_t};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, found by its name when it is needed first.
pub struct Next {
    /// Null: not looked for yet, or not found.
    address: AtomicPtr<c_void>,
    name: &'static CStr,
}

impl Next {
    /// The function of this name, not found yet.
    pub const fn new(name: &'static CStr) -> Next {
        Next { address: AtomicPtr::new(std::ptr::null_mut()), name }
    }

    /// The function; `None` when there is none of this name.
    ///
    /// # Safety
    ///
    /// `F` is the type of a pointer to that function.
    #[inline]
    pub unsafe fn find<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a pointer to a function") };
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            address = self.look();
        }
        // SAFETY: by the caller's promise, and of one size.
        (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
    }

    #[cold]
    pub fn look(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// What a function that is not there answers: `ENOSYS`, and the value of its type for a failure.
pub fn missing<T: Missing>() -> T {
    crate::errno::set(libc::ENOSYS);
    T::VALUE
}

/// What a function that is not there returns.
pub trait Missing {
    /// The value, which callers take for a failure.
    const VALUE: Self;
}

impl Missing for c_int {
    const VALUE: c_int = -1;
}

impl Missing for c_long {
    const VALUE: c_long = -1;
}

impl Missing for ssize_t {
    const VALUE: ssize_t = -1;
}

impl Missing for size_t {
    const VALUE: size_t = 0;
}

impl Missing for c_uint {
    const VALUE: c_uint = 0;
}

impl Missing for () {
    const VALUE: () = ();
}

impl<T> Missing for *mut T {
    const VALUE: *mut T = std::ptr::null_mut();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_what_is_not_is_not() {
        static STRLEN: Next = Next::new(c"strlen");
        static NOWHERE: Next = Next::new(c"azekura_function_of_no_library");
        type Form = unsafe extern "C-unwind" fn(*const libc::c_char) -> size_t;
        // SAFETY: the form of `strlen`; nothing else is called.
        let length = unsafe { STRLEN.find::<Form>().map(|strlen| strlen(c"four".as_ptr())) };
        assert_eq!(length, Some(4));
        // SAFETY: never called.
        assert!(unsafe { NOWHERE.find::<Form>() }.is_none());
    }
}
