//! Exit codes and failures: one place decides what a failed command returns to the shell.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | failed for any other reason; `fs cp` and `fs check`: something was wrong |
//! | 2 | wrong usage: an option, name, size, class or property that makes no sense |
//! | 3 | not found |
//! | 4 | exists already |
//! | 5 | no space left |
//! | 6 | no answer: unreachable, timed out, stopped |
//! | 7 | in use, or not empty |
//! | 8 | not permitted |
//!
//! Invariant: the numbers never change meaning; scripts depend on them.

use types::{Code, Error};

/// A command that did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// To be reported, then mapped to its exit code.
    Error(Error),
    /// The command has reported what was wrong; only the exit code is left.
    Reported(u8),
    /// Whoever read our output has gone (`azekura … | head`): not an error.
    ReaderGone,
}

/// Result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

/// Exit code for wrong usage.
pub const USAGE: u8 = 2;
/// Exit code for a system that does not answer.
pub const UNREACHABLE: u8 = 6;
/// Exit code for what this user, or the secret that he has, may not do.
pub const FORBIDDEN: u8 = 8;

/// The exit code of an error.
pub fn exit_code(code: Code) -> u8 {
    match code {
        Code::Inval
        | Code::KeyTooBig
        | Code::NameTooLong
        | Code::NotSupported
        | Code::Redundancy => USAGE,
        Code::NonExist | Code::NoAttr => 3,
        Code::Exist => 4,
        Code::NoSpace => 5,
        Code::TimedOut | Code::Unreach | Code::Closed => UNREACHABLE,
        Code::Busy | Code::NotEmpty => 7,
        Code::NoPerm | Code::Access | Code::ReadOnly => FORBIDDEN,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_codes_are_the_ones_used() {
        for (code, exit) in [
            (Code::Io, 1),
            (Code::Inval, 2),
            (Code::NameTooLong, 2),
            (Code::NonExist, 3),
            (Code::Exist, 4),
            (Code::NoSpace, 5),
            (Code::Unreach, 6),
            (Code::TimedOut, 6),
            (Code::Busy, 7),
            (Code::NotEmpty, 7),
            (Code::Access, 8),
        ] {
            assert_eq!(exit_code(code), exit, "{code:?}");
        }
    }
}
