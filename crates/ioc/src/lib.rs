//! `libazekura_ioc.so`: loaded into any program with `LD_PRELOAD`, it makes large writes (and, by
//! setting, reads) of regular files ask a coordinator first. Neither the program nor the file
//! system needs a change. The idea is that of "I/O request coordination for parallel file systems"
//! (Ohno, Hori, Ishikawa).
//!
//! | module | what it is |
//! |---|---|
//! | [`hooks`] | the functions that stand in for the C library's |
//! | [`gate`] | the sizes from which a call asks; all that most calls ever touch |
//! | [`call`] | a call that asks: before and after its I/O |
//! | [`slot`] | connections and what belongs to them, each used by one thread at a time |
//! | [`file`](mod@file) | what rules may know about an open file |
//! | [`retry`] | when a coordinator that failed is tried again |
//! | [`setup`] | settings, read when the library is loaded |
//! | [`report`] | counters, log lines, the summary |
//! | [`real`] | the C library's functions behind ours |
//!
//! # Invariants
//!
//! - Coordination never changes what a call does: the real function is called once, with the
//!   caller's arguments, and its result and `errno` are handed back. Whatever goes wrong before
//!   it, it is called.
//! - The time a call can lose to a coordinator is bounded by settings, and a coordinator that
//!   failed is not asked again before a pause is over.
//! - After loading, nothing here allocates, takes a lock, or calls into the C library for more
//!   than a system call: a call may come from a signal handler that interrupted anything, `malloc`
//!   included. A handler that interrupts this library in its own thread goes by. (Calls on streams
//!   take the stream's lock; handlers may not make them anyway.)
//! - While the real function runs, no value on our stack needs dropping: a thread may be cancelled
//!   there, and the C library unwinds it. Elsewhere in here it cannot be cancelled.
//! - A child made by `fork` does not use its parent's connections, nor keep them open.
//!
//! # What it does not see
//!
//! Programs linked statically, and I/O that does not go through these functions: `mmap`, `aio_*`,
//! io_uring, system calls made directly (Go), and standard I/O flushed by anything but `fwrite`,
//! `fputs`, `fflush` and `fclose`. They work as without the library.

// A test program must not have its own calls stood in for; without the hooks much is unused.
#![cfg_attr(test, allow(dead_code))]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("file offsets are taken to be 64 bits wide in every form of a call");

mod call;
mod file;
mod gate;
#[cfg(not(test))]
mod hooks;
mod real;
mod report;
mod retry;
mod setup;
mod slot;
