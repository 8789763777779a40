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

/// How long operations wait for engines that do not answer, seconds; `AZK_PATIENCE_HARD`: for ever.
/// For threads that use the library for the first time afterwards. `-DER_INVAL` for 0.
#[unsafe(no_mangle)]
pub extern "C" fn azk_set_patience(seconds: u32) -> i32 {
    crate::guard::daos(|| match seconds {
        0 => Err(types::Error::inval("operations need some time")),
        seconds => {
            perthread::set_patience(seconds);
            Ok(())
        }
    })
}

/// What the library can do, `AZK_FEATURE_*` bits.
#[unsafe(no_mangle)]
pub extern "C" fn azk_features() -> u64 {
    FEATURES
}
