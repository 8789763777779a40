//! Why a request fails, and the error number the program gets for it.

use fuselow::Errno;
use types::{Code, Error};

/// A failed request.
#[derive(Debug)]
pub enum Fault {
    /// The node is not what it was: the kernel shall look the path up again.
    Gone,
    /// An error of the file system.
    Error(Error),
    /// An error number as it is.
    Os(i32),
}

/// Result of a request.
pub type Answer<T = ()> = Result<T, Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Error(error)
    }
}

impl From<Code> for Fault {
    fn from(code: Code) -> Fault {
        Fault::Error(Error::bare(code))
    }
}

impl Fault {
    /// An error of a request about a node, not a name: that the node is not found says that it
    /// is not what it was.
    pub fn of_node(error: Error) -> Fault {
        if error.code == Code::NonExist { Fault::Gone } else { Fault::Error(error) }
    }

    /// The same for what is such an error already.
    pub fn at_node(self) -> Fault {
        match self {
            Fault::Error(error) => Fault::of_node(error),
            other => other,
        }
    }

    /// What the program gets.
    ///
    /// No answer in time is `ETIMEDOUT`; whatever else is wrong between here and the engines is
    /// `EIO`, because programs know no more of networks than of disks.
    pub fn errno(self) -> Errno {
        let error = match self {
            Fault::Gone => return Errno(libc::ESTALE),
            Fault::Os(number) => return Errno(number),
            Fault::Error(error) => error,
        };
        let number = match error.code {
            Code::Unreach | Code::Closed | Code::Proto | Code::Version | Code::Stale => libc::EIO,
            Code::Canceled => libc::EINTR,
            // The snapshot that is mounted was destroyed.
            Code::BadHandle => libc::ESTALE,
            Code::RecordTooBig => libc::E2BIG,
            Code::KeyTooBig => libc::ENAMETOOLONG,
            code => code.errno(),
        };
        if matches!(number, libc::EIO | libc::ETIMEDOUT) {
            tracing::warn!("request failed: {error}");
        } else {
            tracing::debug!("request answered with error {number}: {error}");
        }
        Errno(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_see_no_network() {
        for (code, number) in [
            (Code::NonExist, libc::ENOENT),
            (Code::TimedOut, libc::ETIMEDOUT),
            (Code::Unreach, libc::EIO),
            (Code::Closed, libc::EIO),
            (Code::Csum, libc::EIO),
            (Code::BadHandle, libc::ESTALE),
            (Code::NoSpace, libc::ENOSPC),
            (Code::Canceled, libc::EINTR),
        ] {
            assert_eq!(Fault::from(code).errno(), Errno(number), "{code:?}");
        }
        assert_eq!(Fault::of_node(Code::NonExist.into()).errno(), Errno(libc::ESTALE));
        assert_eq!(Fault::of_node(Code::NoSpace.into()).errno(), Errno(libc::ENOSPC));
    }
}
