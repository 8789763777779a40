//! gurt: the small tools that programs take from the same library: memory, hash tables, lists of
//! ranks, environment, log, clock values.
//!
//! Nothing here needs a system, and nothing here knows of clients, pools or files. Memory that
//! goes to C comes from the C allocator ([`alloc`]), so that `free` and `D_FREE` both take it.

pub(crate) mod alloc;
mod backoff;
mod env;
mod hash;
mod hash_lock;
mod hashing;
pub mod heap;
pub mod hhash;
mod hlc;
pub mod log;
mod pointers;
mod random;
pub(crate) mod rank_list;
mod rank_range;
pub mod slab;

use crate::errno::DER_MISC;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a function of this kind ends with: nothing, or a positive DAOS error.
pub(crate) type Outcome<T = ()> = Result<T, c_int>;

/// Runs the body of a function that returns 0 or a negative DAOS error; a panic is `-DER_MISC`.
pub(crate) fn status(body: impl FnOnce() -> Outcome) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(der)) => -der,
        Err(panic) => {
            crate::guard::panicked(&*panic);
            -DER_MISC
        }
    }
}

/// Runs the body of a function that has no error to return; a panic gives `otherwise`.
pub(crate) fn shielded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        crate::guard::panicked(&*panic);
        otherwise
    })
}
