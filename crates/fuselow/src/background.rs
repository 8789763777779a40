//! A server in the background: the program that starts it returns when the mount is ready, or
//! with the reason why it is not.
//!
//! The process is split before it has threads; the parent waits for one message on a pipe and
//! becomes the answer to the user, the child becomes the server.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use types::{Code, Error, Result};

/// First byte of the message: all is well. Otherwise an error follows.
const READY: u8 = 0;
const FAILED: u8 = 1;

/// Which of the two processes this is.
pub enum Role {
    /// The one that the user waits for. Report this and exit.
    Parent(Result<()>),
    /// The server, in a session of its own.
    Server(Report),
}

/// The server's word to the one who waits. When it is dropped without a word (the server died),
/// that is the error.
pub struct Report(File);

/// Splits the process. To be called before any thread is started. The server keeps its standard
/// streams and working directory until [`Report::ready`], so that early messages are seen.
pub fn split() -> Result<Role> {
    let failed = |error: std::io::Error| Error::io("starting the server in the background", error);
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| failed(error.into()))?;
    // SAFETY: the process has no other threads (demanded above), so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(failed(std::io::Error::last_os_error())),
        0 => {
            drop(reader);
            // Fails only for the leader of a process group, which a fresh child is not.
            let _ = rustix::process::setsid();
            Ok(Role::Server(Report(File::from(writer))))
        }
        _ => {
            drop(writer);
            Ok(Role::Parent(read_report(reader)))
        }
    }
}

fn read_report(reader: OwnedFd) -> Result<()> {
    let mut message = Vec::new();
    File::from(reader)
        .read_to_end(&mut message)
        .map_err(|error| Error::io("waiting for the server", error))?;
    match message.split_first() {
        Some((&READY, _)) => Ok(()),
        Some((&FAILED, raw)) => Err(postcard::from_bytes(raw).unwrap_or_else(|_| died())),
        _ => Err(died()),
    }
}

fn died() -> Error {
    let text = "the server died while it started: run it in the foreground to see why";
    Error::new(Code::Closed, text)
}

impl Report {
    /// Mounted and serving: lets the parent exit with success, and leaves the terminal and the
    /// working directory.
    pub fn ready(mut self) -> Result<()> {
        let failed = |error: std::io::Error| Error::io("leaving the terminal", error);
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| failed(error.into()))?;
        rustix::process::chdir("/").map_err(|error| failed(error.into()))?;
        rustix::stdio::dup2_stdin(&null)
            .and_then(|()| rustix::stdio::dup2_stdout(&null))
            .and_then(|()| rustix::stdio::dup2_stderr(&null))
            .map_err(|error| failed(error.into()))?;
        // A parent that is gone has nobody to tell.
        let _ = self.0.write_all(&[READY]);
        Ok(())
    }

    /// It did not work: lets the parent report why.
    pub fn failed(mut self, error: &Error) {
        let mut message = vec![FAILED];
        message.extend(postcard::to_stdvec(error).unwrap_or_default());
        let _ = self.0.write_all(&message);
    }
}
