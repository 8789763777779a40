//! The process's limit of file sizes (`ulimit -f`), which the kernel keeps for its own files only.

use libc::c_int;
use rustix::process::{Resource, getrlimit};
use std::cell::Cell;
use types::{Code, Error, Result};

/// The limit, bytes; none: any size.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// True when the process may make a file of this size.
pub fn fits(bytes: u64) -> bool {
    limit().is_none_or(|limit| bytes <= limit)
}

/// The limit while one call is carried out.
#[derive(Default)]
pub struct Guard {
    limit: Option<u64>,
    is_hit: Cell<bool>,
}

impl Guard {
    /// As the limit is now.
    pub fn new() -> Guard {
        Guard { limit: limit(), is_hit: Cell::new(false) }
    }

    /// True when there is one: only then sizes need to be known.
    pub fn is_set(&self) -> bool {
        self.limit.is_some()
    }

    /// How many of some bytes may be written at an offset: fewer than all only where the limit is.
    /// `FileTooBig` when none may.
    pub fn cut(&self, offset: u64, bytes: usize) -> Result<usize> {
        let Some(limit) = self.limit.filter(|_| bytes > 0) else { return Ok(bytes) };
        match limit.checked_sub(offset) {
            None | Some(0) => Err(self.hit()),
            Some(left) => Ok(bytes.min(usize::try_from(left).unwrap_or(usize::MAX))),
        }
    }

    /// `FileTooBig` for a file that would grow beyond the limit.
    pub fn check_growth(&self, from: u64, to: u64) -> Result<()> {
        match self.limit {
            Some(limit) if to > from && to > limit => Err(self.hit()),
            _ => Ok(()),
        }
    }

    fn hit(&self) -> Error {
        self.is_hit.set(true);
        Error::bare(Code::FileTooBig)
    }

    /// Tells the thread as the kernel would, once the call is over.
    pub fn tell<T>(&self, result: std::result::Result<T, c_int>) -> std::result::Result<T, c_int> {
        if result.is_err() && self.is_hit.get() {
            // SAFETY: a plain number; what the program does about it is its own.
            unsafe { libc::raise(libc::SIGXFSZ) };
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_cut_where_the_limit_is() {
        let guard = Guard { limit: Some(100), ..Guard::default() };
        assert_eq!(guard.cut(90, 5).unwrap(), 5);
        assert_eq!(guard.cut(90, 10).unwrap(), 10);
        assert_eq!(guard.cut(90, 11).unwrap(), 10);
        assert_eq!(guard.cut(200, 0).unwrap(), 0);
        assert!(!guard.is_hit.get());
        assert!(guard.cut(100, 1).is_err() && guard.is_hit.get());
        assert!(guard.check_growth(300, 200).is_ok() && guard.check_growth(0, 100).is_ok());
        assert!(guard.check_growth(0, 101).is_err());
        assert!(Guard::default().cut(u64::MAX - 1, 9).is_ok());
    }
}
