//! What callers in C get for an error: `errno` numbers and DAOS error numbers.
//!
//! Source of the numbers: DAOS's `daos_errno.h` (the general block begins at 1000, the storage
//! block at 2000).

use types::Code;

/// Operation is not permitted.
pub const DER_NO_PERM: i32 = 1001;
/// The handle is not one, or not any more.
pub const DER_NO_HDL: i32 = 1002;
/// An argument has no meaning.
pub const DER_INVAL: i32 = 1003;
/// The named thing exists already.
pub const DER_EXIST: i32 = 1004;
/// The named thing does not exist.
pub const DER_NONEXIST: i32 = 1005;
/// A peer cannot be reached.
pub const DER_UNREACH: i32 = 1006;
/// No space left.
pub const DER_NOSPACE: i32 = 1007;
/// Already done.
pub const DER_ALREADY: i32 = 1008;
/// Out of memory.
pub const DER_NOMEM: i32 = 1009;
/// The function does not work here.
pub const DER_NOSYS: i32 = 1010;
/// No answer in time.
pub const DER_TIMEDOUT: i32 = 1011;
/// In use.
pub const DER_BUSY: i32 = 1012;
/// Try again.
pub const DER_AGAIN: i32 = 1013;
/// The two sides speak differently.
pub const DER_PROTO: i32 = 1014;
/// Nothing was initialized.
pub const DER_UNINIT: i32 = 1015;
/// The buffer is too small.
pub const DER_TRUNC: i32 = 1016;
/// The value does not fit its type or its room.
pub const DER_OVERFLOW: i32 = 1017;
/// The operation was cancelled.
pub const DER_CANCELED: i32 = 1018;
/// Something else.
pub const DER_MISC: i32 = 1025;
/// Two things that should be equal differ.
pub const DER_MISMATCH: i32 = 1031;
/// A clock is too far ahead.
pub const DER_HLC_SYNC: i32 = 1037;
/// A device or the network failed.
pub const DER_IO: i32 = 2001;
/// A record does not fit.
pub const DER_REC2BIG: i32 = 2013;
/// The map is old.
pub const DER_STALE: i32 = 2007;
/// Stored bytes do not match their checksum.
pub const DER_CSUM: i32 = 2021;
/// It was given up because somebody wanted that.
pub const DER_OP_CANCELED: i32 = 2027;
/// A transaction must run again.
pub const DER_TX_RESTART: i32 = 2025;
/// A key is longer than the limit.
pub const DER_KEY2BIG: i32 = 2012;
/// Known, and not offered.
pub const DER_NOTSUPPORTED: i32 = 2037;

/// The DAOS error, positive, for one of ours.
pub fn der(code: Code) -> i32 {
    match code {
        Code::NonExist | Code::NoAttr => DER_NONEXIST,
        Code::Exist => DER_EXIST,
        // Not `DER_RF`, by which programs learn that more is lost than the factor allows.
        Code::Inval | Code::Redundancy => DER_INVAL,
        Code::NoSpace => DER_NOSPACE,
        Code::NoPerm | Code::Access | Code::ReadOnly => DER_NO_PERM,
        Code::Busy | Code::NotEmpty => DER_BUSY,
        Code::Stale => DER_STALE,
        Code::TimedOut => DER_TIMEDOUT,
        Code::Unreach => DER_UNREACH,
        Code::TxRestart => DER_TX_RESTART,
        Code::NotSupported => DER_NOSYS,
        Code::Io => DER_IO,
        Code::KeyTooBig | Code::NameTooLong => DER_KEY2BIG,
        Code::RecordTooBig => DER_REC2BIG,
        Code::Proto | Code::Version => DER_PROTO,
        Code::Csum => DER_CSUM,
        Code::Closed => DER_UNINIT,
        Code::NotDir | Code::IsDir | Code::TooManyLinks | Code::CrossDevice => DER_INVAL,
        Code::FileTooBig | Code::LinkMax => DER_OVERFLOW,
        Code::Range => DER_TRUNC,
        Code::Canceled => DER_CANCELED,
        Code::BadHandle => DER_NO_HDL,
        Code::NoMem | Code::NoLocks => DER_NOMEM,
        Code::WouldBlock | Code::Deadlock => DER_AGAIN,
        Code::NoData => DER_NONEXIST,
        Code::Moved => DER_STALE,
    }
}

/// How a function tells of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sign {
    /// 0 or a negative DAOS error.
    Der,
    /// 0 or a positive `errno`.
    Errno,
}

impl Sign {
    /// The number a caller gets for an error.
    pub fn number(self, code: Code) -> i32 {
        match self {
            Sign::Der => -der(code),
            Sign::Errno => match code {
                // A stale or foreign handle is a bad argument to `dfs_*`.
                Code::BadHandle => libc::EBADF,
                code => code.errno(),
            },
        }
    }
}
