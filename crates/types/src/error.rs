//! The error every layer speaks: a code the caller can branch on and a sentence a person can
//! act on. It crosses the wire as (code, text).

use serde::{Deserialize, Serialize};
use std::fmt;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, for the caller to branch on. The numbers are part of the wire format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[repr(u16)]
pub enum Code {
    /// The named thing does not exist.
    NonExist = 1,
    /// The named thing exists already.
    Exist = 2,
    /// An argument has no meaning.
    Inval = 3,
    NoSpace = 4,
    /// The caller may not do this.
    NoPerm = 5,
    /// In use by somebody.
    Busy = 6,
    /// The caller's pool map is older than the target's.
    Stale = 7,
    /// No answer in time; the operation may or may not have happened.
    TimedOut = 8,
    /// The target cannot be reached.
    Unreach = 9,
    /// A transaction lost a conflict; run it again.
    TxRestart = 10,
    /// Known but not offered (yet, or by this class).
    NotSupported = 11,
    /// A device or the network failed.
    Io = 12,
    /// A key is longer than the limit.
    KeyTooBig = 13,
    /// A value does not fit the buffer offered for it.
    RecordTooBig = 14,
    /// A directory is not empty.
    NotEmpty = 15,
    /// A message could not be understood.
    Proto = 16,
    /// The two sides speak different versions.
    Version = 17,
    /// Stored bytes do not match their checksum.
    Csum = 18,
    /// The component is shutting down or was closed.
    Closed = 19,
    NotDir = 20,
    IsDir = 21,
    /// A name is too long.
    NameTooLong = 22,
    /// Too many symbolic links.
    TooManyLinks = 23,
    /// The two names are in different file systems.
    CrossDevice = 24,
    /// Access is denied by mode bits or ACL.
    Access = 25,
    /// The file would be larger than supported.
    FileTooBig = 26,
    /// Opened read-only.
    ReadOnly = 27,
    NoAttr = 28,
    /// The output does not fit the space offered.
    Range = 29,
    /// Interrupted or cancelled by the caller.
    Canceled = 30,
    /// Not the kind of handle this call wants.
    BadHandle = 31,
    /// Too many hard links to one file.
    LinkMax = 32,
    /// An object's redundancy is below what its container demands.
    Redundancy = 33,
    /// Out of memory or over a set memory limit.
    NoMem = 34,
    /// A lock is held by somebody else, and the caller does not wait.
    WouldBlock = 35,
    /// Waiting for this lock would never end.
    Deadlock = 36,
    /// The caller holds or waits for as many locks as it may.
    NoLocks = 37,
    /// There is nothing from this offset on.
    NoData = 38,
    /// Another group of the object has these dkeys by now, or has them still: ask where they are.
    Moved = 39,
}

impl Code {
    /// The `errno` a POSIX caller gets.
    pub fn errno(self) -> i32 {
        match self {
            Code::NonExist => 2,
            Code::Exist => 17,
            Code::Inval | Code::Redundancy => 22,
            Code::NoSpace => 28,
            Code::NoPerm => 1,
            Code::Busy => 16,
            Code::Stale | Code::TxRestart | Code::Moved => 11,
            Code::TimedOut => 110,
            Code::Unreach => 113,
            Code::NotSupported => 95,
            Code::Io | Code::Csum => 5,
            Code::KeyTooBig | Code::NameTooLong => 36,
            Code::RecordTooBig => 7,
            Code::NotEmpty => 39,
            Code::Proto | Code::Version => 71,
            Code::Closed => 108,
            Code::NotDir => 20,
            Code::IsDir => 21,
            Code::TooManyLinks => 40,
            Code::CrossDevice => 18,
            Code::Access => 13,
            Code::FileTooBig => 27,
            Code::ReadOnly => 30,
            Code::NoAttr => 61,
            Code::Range => 34,
            Code::Canceled => 125,
            Code::BadHandle => 9,
            Code::LinkMax => 31,
            Code::NoMem => 12,
            Code::WouldBlock => 11,
            Code::Deadlock => 35,
            Code::NoLocks => 37,
            Code::NoData => 6,
        }
    }
}

/// Why an operation failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Error {
    /// For the caller to branch on.
    pub code: Code,
    /// What, which object, what to do. May be empty on hot paths.
    pub text: Box<str>,
}

impl Error {
    /// An error with a sentence.
    pub fn new(code: Code, text: impl Into<String>) -> Error {
        Error { code, text: text.into().into_boxed_str() }
    }

    /// An error of the hot path, whose code says all.
    pub fn bare(code: Code) -> Error {
        Error { code, text: Box::from("") }
    }

    /// `Inval` with a sentence.
    pub fn inval(text: impl Into<String>) -> Error {
        Error::new(Code::Inval, text)
    }

    /// `Io` from an operating system error, saying what was being done.
    pub fn io(doing: impl fmt::Display, error: std::io::Error) -> Error {
        let code = match error.raw_os_error() {
            Some(28) => Code::NoSpace,
            _ => Code::Io,
        };
        Error::new(code, format!("{doing}: {error}"))
    }

    /// The same of a file that a user names: one that is missing, may not be read or is there already is that, and no device that fails.
    pub fn named_file(doing: impl fmt::Display, error: std::io::Error) -> Error {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => Code::NonExist,
            std::io::ErrorKind::PermissionDenied => Code::Access,
            std::io::ErrorKind::AlreadyExists => Code::Exist,
            _ => return Error::io(doing, error),
        };
        Error::new(code, format!("{doing}: {error}"))
    }

    /// The same error, saying in front what was being done.
    pub fn context(self, doing: impl fmt::Display) -> Error {
        let text = if self.text.is_empty() {
            format!("{doing}: {}", describe(self.code))
        } else {
            format!("{doing}: {}", self.text)
        };
        Error::new(self.code, text)
    }

    /// The `errno` a POSIX caller gets.
    pub fn errno(&self) -> i32 {
        self.code.errno()
    }
}

impl From<Code> for Error {
    fn from(code: Code) -> Error {
        Error::bare(code)
    }
}

fn describe(code: Code) -> &'static str {
    match code {
        Code::NonExist => "does not exist",
        Code::Exist => "exists already",
        Code::Inval => "invalid argument",
        Code::NoSpace => "no space left",
        Code::NoPerm => "operation not permitted",
        Code::Busy => "in use",
        Code::Stale => "stale pool map",
        Code::TimedOut => "timed out",
        Code::Unreach => "cannot be reached",
        Code::TxRestart => "transaction must be restarted",
        Code::NotSupported => "not supported",
        Code::Io => "input/output error",
        Code::KeyTooBig => "key too long",
        Code::RecordTooBig => "value larger than the buffer",
        Code::NotEmpty => "directory not empty",
        Code::Proto => "malformed message",
        Code::Version => "version mismatch",
        Code::Csum => "checksum mismatch",
        Code::Closed => "closed",
        Code::NotDir => "not a directory",
        Code::IsDir => "is a directory",
        Code::NameTooLong => "name too long",
        Code::TooManyLinks => "too many symbolic links",
        Code::CrossDevice => "different file systems",
        Code::Access => "permission denied",
        Code::FileTooBig => "file too large",
        Code::ReadOnly => "read-only",
        Code::NoAttr => "no such attribute",
        Code::Range => "result too large",
        Code::Canceled => "cancelled",
        Code::BadHandle => "bad handle",
        Code::LinkMax => "too many links",
        Code::Redundancy => "object class is less redundant than the container demands",
        Code::NoMem => "out of memory",
        Code::WouldBlock => "held by somebody else",
        Code::Deadlock => "would wait for ever",
        Code::NoLocks => "too many locks",
        Code::NoData => "nothing from this offset on",
        Code::Moved => "in another group of the object",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() {
            f.write_str(describe(self.code))
        } else {
            f.write_str(&self.text)
        }
    }
}

impl std::error::Error for Error {}
