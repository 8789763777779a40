//! The C library's functions that ours stand in front of, found when the library is loaded.
//!
//! Before that (another library's start-up code may write already) system calls are made
//! directly. Functions of standard I/O have no such stand-in and are looked up then and there.

use libc::{c_char, c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};
use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A stream of standard I/O.
pub type Stream = *mut libc::FILE;

/// The next function of a name behind ours.
pub struct Real<F> {
    address: AtomicPtr<c_void>,
    name: &'static CStr,
    form: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    const fn new(name: &'static CStr) -> Self {
        Self { address: AtomicPtr::new(std::ptr::null_mut()), name, form: PhantomData }
    }

    /// The function, if it has been found.
    #[inline]
    pub fn get(&self) -> Option<F> {
        let address = self.address.load(Ordering::Relaxed);
        // SAFETY: `F` is the function type this static was declared with, and the address that of
        // the function of that name.
        (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
    }

    /// The function, looked for if need be.
    #[inline]
    pub fn find(&self) -> Option<F> {
        self.get().or_else(|| {
            self.look();
            self.get()
        })
    }

    #[cold]
    fn look(&self) {
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
    }
}

macro_rules! real {
    ($($constant:ident $name:literal ($($argument:ty),*) -> $result:ty;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub static $constant: Real<unsafe extern "C-unwind" fn($($argument),*) -> $result> =
                // Made from a literal without a zero of its own, with one added.
                Real::new(match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                });
        )*

        /// Finds all functions. Called once, when the library is loaded.
        pub fn find_all() {
            $($constant.look();)*
        }
    };
}

real! {
    WRITE "write" (c_int, *const c_void, size_t) -> ssize_t;
    PWRITE "pwrite" (c_int, *const c_void, size_t, off_t) -> ssize_t;
    WRITEV "writev" (c_int, *const iovec, c_int) -> ssize_t;
    PWRITEV "pwritev" (c_int, *const iovec, c_int, off_t) -> ssize_t;
    PWRITEV2 "pwritev2" (c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    READ "read" (c_int, *mut c_void, size_t) -> ssize_t;
    PREAD "pread" (c_int, *mut c_void, size_t, off_t) -> ssize_t;
    READV "readv" (c_int, *const iovec, c_int) -> ssize_t;
    PREADV "preadv" (c_int, *const iovec, c_int, off_t) -> ssize_t;
    PREADV2 "preadv2" (c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    READ_CHK "__read_chk" (c_int, *mut c_void, size_t, size_t) -> ssize_t;
    PREAD_CHK "__pread_chk" (c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t;
    COPY_FILE_RANGE "copy_file_range"
        (c_int, *mut off_t, c_int, *mut off_t, size_t, c_uint) -> ssize_t;
    SENDFILE "sendfile" (c_int, c_int, *mut off_t, size_t) -> ssize_t;
    FWRITE "fwrite" (*const c_void, size_t, size_t, Stream) -> size_t;
    FWRITE_UNLOCKED "fwrite_unlocked" (*const c_void, size_t, size_t, Stream) -> size_t;
    FPUTS "fputs" (*const c_char, Stream) -> c_int;
    FPUTS_UNLOCKED "fputs_unlocked" (*const c_char, Stream) -> c_int;
    FFLUSH "fflush" (Stream) -> c_int;
    FFLUSH_UNLOCKED "fflush_unlocked" (Stream) -> c_int;
    FCLOSE "fclose" (Stream) -> c_int;
    FREAD "fread" (*mut c_void, size_t, size_t, Stream) -> size_t;
    FREAD_UNLOCKED "fread_unlocked" (*mut c_void, size_t, size_t, Stream) -> size_t;
    FREAD_CHK "__fread_chk" (*mut c_void, size_t, size_t, size_t, Stream) -> size_t;
    FREAD_UNLOCKED_CHK "__fread_unlocked_chk"
        (*mut c_void, size_t, size_t, size_t, Stream) -> size_t;
}
