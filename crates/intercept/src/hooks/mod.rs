//! The functions that stand in for the C library's, one family per file.
//!
//! Each asks whether the call concerns us and hands it to the real function if not. While the
//! real function runs nothing on our stack needs dropping: a thread may be cancelled there.

mod attr;
mod copy;
mod cwd;
mod data;
mod descriptor;
mod dir;
mod exec;
mod lock;
mod map;
mod names;
mod open;
mod raw;
mod seek;
mod space;
mod start;
mod stat;
mod stream;
mod tree;
mod wait;
mod who;
mod xattr;

use crate::act::Answer;
use crate::errno;
use libc::c_char;

/// What a call returns: the value, or -1 and `errno`; for a path that leads out, what the kernel
/// says to it.
fn finish<T: From<i8>>(
    answer: Result<Answer<T>, libc::c_int>,
    outside: impl FnOnce(*const c_char) -> T,
) -> T {
    match answer {
        Ok(Answer::Done(value)) => value,
        Ok(Answer::Outside(path)) => outside(path.as_ptr()),
        Err(error) => errno::number(Err(error)),
    }
}
