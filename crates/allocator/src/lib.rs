//! The memory allocator of Azekura's programs: whoever links this crate has it.
//!
//! An index in many small pieces, made and dropped on several threads, is what it is good at
//! (`docs/decisions/2026-11-21-allocator.md`). It is a crate for itself because each allocation goes through it: commands are
//! compiled without optimisation (`Cargo.toml`), this is not.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long memory that was freed is kept for the next one that wants some, milliseconds. After the allocator's own second what an engine receives and sends
/// again and again was given back in between, and the kernel cleared it anew.
const PURGE_DELAY_MS: std::ffi::c_long = 10_000;
/// `mi_option_purge_delay` of `mimalloc.h`, which the binding does not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Sets the allocator up: once, when a program begins. What the environment says (`MIMALLOC_PURGE_DELAY`) goes before.
pub fn set_up() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
        // SAFETY: the option exists in the version that is compiled in (see the test); setting it is an atomic store.
        unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, PURGE_DELAY_MS) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: it only reads.
        let value = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        // The allocator's own, by which the number is known.
        assert_eq!(value(), 1_000);
        set_up();
        assert_eq!(value(), PURGE_DELAY_MS);
    }
}
