//! The memory allocator of Azekura's programs: whoever links this crate has it.
//!
//! An index in many small pieces, made and dropped on several threads, is what it is good at
//! (`docs/decisions/2026-11-21-allocator.md`). It is a crate for itself because each allocation goes through it: commands are
//! compiled without optimisation (`Cargo.toml`), this is not.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
