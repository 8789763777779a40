//! What this library is: `azekura.h`.

use std::ffi::{CStr, c_char};

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version holds no zero byte"),
    };

/// `AZK_FEATURE_*`: files, objects, transactions, snapshots, five members to spare.
const FEATURES: u64 = 1 << 0 | 1 << 3 | 1 << 4;

/// Version of the library, static memory.
#[unsafe(no_mangle)]
pub extern "C" fn azk_version() -> *const c_char {
    VERSION.as_ptr()
}

/// What the library can do, `AZK_FEATURE_*` bits.
#[unsafe(no_mangle)]
pub extern "C" fn azk_features() -> u64 {
    FEATURES
}
