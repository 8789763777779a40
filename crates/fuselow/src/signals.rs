//! Signals that end a session, as something to poll.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use types::{Error, Result};

/// SIGTERM, SIGINT and SIGHUP, taken away from their default.
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals for this thread and those it starts from now on: call it before
    /// [`super::Session::start`] and before other threads are started.
    pub fn block() -> Result<Signals> {
        let failed = || Error::io("setting up signals", std::io::Error::last_os_error());
        // SAFETY: the set is initialised by sigemptyset before it is read, and both calls get
        // valid pointers.
        let fd = unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            if libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) != 0 {
                return Err(failed());
            }
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(failed());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// A signal that has arrived.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let bytes = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has room for what is asked for.
        let got = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), bytes) };
        // SAFETY: a whole record was written.
        (got == bytes as isize).then(|| unsafe { info.assume_init() }.ssi_signo)
    }
}
