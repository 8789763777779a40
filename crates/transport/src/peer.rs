//! A client's process, as the engine reaches its memory.
//!
//! Invariants:
//! - Only *kin* is reached: a process of the engine's own user, and only by a thread that has no
//!   right to reach more (`CAP_SYS_PTRACE`). So the kernel refuses, at every single copy, whatever it
//!   would refuse to any program of that user: processes that changed their user or run a set-uid program.
//! - Only the memory that connected is reached. The client keeps a random word where it said in its
//!   introduction; each copy looks at it. A process that has executed another program, or one that
//!   got the number of a process that is gone, does not have it.
//!
//! A read takes the word and the data in one call, so they are of one memory. A write looks at the
//! word just before: in between the process may execute another program, which the kernel then
//! lets us write to only if this user could write to it anyway.

use crate::remote::Cursor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::UCred;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::CapabilitySet;
use std::os::unix::ffi::OsStrExt;
use types::hash::{bytes, mix2};
use types::{Code, Error, HostProcess, Result};

/// Ranges handed to the kernel at once, the word among them; far below its limit of 1,024.
const IOV_COUNT_MAX: usize = 128;
const WORD_BYTES: usize = size_of::<u64>();

/// Where a client keeps its word.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    /// Address in the client; 0: it wants no single copy.
    pub address: u64,
    pub word: u64,
}

/// True when the process of a number has ended on this host, asked for by its parent or not. A number
/// that another process has by now says false.
pub fn has_ended(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Err(error) => error == Errno::SRCH,
        Ok(process) => {
            let mut polled = [PollFd::new(&process, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())) == Ok(1)
        }
    }
}

/// Where numbers of processes mean what they mean to this process.
fn number_space() -> Option<u64> {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(mix2(bytes(&boot), bytes(namespace.as_os_str().as_bytes())))
}

/// When the process or thread of a number began, clock ticks since the boot; `None` when that cannot be seen.
pub fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything. Behind it comes the third of the fields; this is the 22nd.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// The process that has a number on this host now; `None` when that cannot be seen.
pub fn host_process(pid: u32) -> Option<HostProcess> {
    Some(HostProcess { space: number_space()?, pid, began: began(pid)? })
}

/// True when a process is known to have ended; false when it goes on, or cannot be seen from here.
pub fn is_gone(process: &HostProcess) -> bool {
    number_space() == Some(process.space)
        && (has_ended(process.pid)
            || began(process.pid).is_some_and(|began| began != process.began))
}

/// A process whose memory may be reached.
pub(crate) struct Process {
    pid: i32,
    mark: Mark,
}

impl Process {
    /// The process that connected, if it is kin and its memory can be reached.
    pub fn of(peer: &UCred, mark: Mark) -> Option<Process> {
        let pid = peer.pid.as_raw_nonzero().get();
        // A process may always reach itself, whatever its rights.
        let is_self = pid.unsigned_abs() == std::process::id();
        let is_kin = is_self
            || (peer.uid == rustix::process::geteuid()
                && !overrides_memory_check().unwrap_or(true));
        if mark.address == 0 || !is_kin {
            return None;
        }
        let process = Process { pid, mark };
        process.check().ok()?;
        Some(process)
    }

    fn word_there(&self) -> libc::iovec {
        iovec(self.mark.address as usize as *mut libc::c_void, WORD_BYTES)
    }

    /// Checks that the word is in place.
    pub fn check(&self) -> Result<()> {
        self.read_with_word(&mut [iovec(std::ptr::null_mut(), 0)], &[self.word_there()]).map(|_| ())
    }

    /// Reads all of `rooms` from the client, one after the other, moving `cursor`. They are wiped when that fails: it may
    /// have been another memory than the client's.
    pub fn read(&self, cursor: &mut Cursor, rooms: &mut [&mut [u8]]) -> Result<()> {
        let read = self.try_read(cursor, rooms);
        if read.is_err() {
            rooms.iter_mut().for_each(|room| room.fill(0));
        }
        read
    }

    fn try_read(&self, cursor: &mut Cursor, rooms: &mut [&mut [u8]]) -> Result<()> {
        let total: usize = rooms.iter().map(|room| room.len()).sum();
        let mut done = 0;
        while done < total {
            let mut here = [iovec(std::ptr::null_mut(), 0); IOV_COUNT_MAX];
            let all = rooms.iter_mut().map(|room| iovec(room.as_mut_ptr().cast(), room.len()));
            let (here_count, room) = iovecs_after(all, done, &mut here[1..]);
            let mut there = [self.word_there(); IOV_COUNT_MAX];
            let (count, _) = cursor.fill(room, &mut there[1..])?;
            let moved = self.read_with_word(&mut here[..here_count + 1], &there[..count + 1])?;
            if moved == 0 {
                return Err(bad_ranges());
            }
            cursor.advance(moved);
            done += moved;
        }
        Ok(())
    }

    /// One read of the word and of what follows it in `there`, into what follows the first of `here`; bytes of the latter.
    fn read_with_word(&self, here: &mut [libc::iovec], there: &[libc::iovec]) -> Result<usize> {
        let mut seen = [0u8; WORD_BYTES];
        here[0] = iovec(seen.as_mut_ptr().cast(), WORD_BYTES);
        let (here_count, count) = (here.len() as libc::c_ulong, there.len() as libc::c_ulong);
        // SAFETY: what `here` points to is ours to write: `seen`, and what the caller has borrowed; the kernel checks the
        // other process's ranges.
        let moved = unsafe {
            libc::process_vm_readv(self.pid, here.as_ptr(), here_count, there.as_ptr(), count, 0)
        };
        let moved = match outcome(moved) {
            // Not even the word is there.
            Err(error) if error.code == Code::Proto => return Err(changed()),
            moved => moved?,
        };
        if moved < WORD_BYTES || u64::from_ne_bytes(seen) != self.mark.word {
            return Err(changed());
        }
        Ok(moved - WORD_BYTES)
    }

    /// Writes all of `parts` to the client, moving `cursor`. [`Process::check`] comes first.
    pub fn write(&self, cursor: &mut Cursor, parts: &[&[u8]]) -> Result<()> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let mut done = 0;
        while done < total {
            let mut here = [iovec(std::ptr::null_mut(), 0); IOV_COUNT_MAX];
            let all = parts.iter().map(|part| iovec(part.as_ptr().cast_mut().cast(), part.len()));
            let (here_count, ready) = iovecs_after(all, done, &mut here);
            let mut there = [iovec(std::ptr::null_mut(), 0); IOV_COUNT_MAX];
            let (count, _) = cursor.fill(ready, &mut there)?;
            // SAFETY: what `here` points to is only read; the kernel checks the other process's ranges.
            let moved = unsafe {
                let (here_count, count) = (here_count as libc::c_ulong, count as libc::c_ulong);
                let (here, there) = (here.as_ptr(), there.as_ptr());
                libc::process_vm_writev(self.pid, here, here_count, there, count, 0)
            };
            let moved = outcome(moved)?;
            if moved == 0 {
                return Err(bad_ranges());
            }
            cursor.advance(moved);
            done += moved;
        }
        Ok(())
    }
}

/// What is left of ranges of memory after the first `done` bytes, as many as `out` holds: their number and bytes.
fn iovecs_after(
    all: impl Iterator<Item = libc::iovec>,
    mut done: usize,
    out: &mut [libc::iovec],
) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    for range in all {
        if count == out.len() {
            break;
        }
        let skipped = done.min(range.iov_len);
        done -= skipped;
        if skipped < range.iov_len {
            let left = range.iov_len - skipped;
            out[count] = iovec(range.iov_base.wrapping_byte_add(skipped), left);
            (count, bytes) = (count + 1, bytes + left);
        }
    }
    (count, bytes)
}

fn iovec(start: *mut libc::c_void, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: start, iov_len: bytes }
}

/// `Closed`: this is not, or no more, the memory that connected; the connection is to be ended.
fn changed() -> Error {
    Error::new(Code::Closed, "the client's process is gone or runs another program")
}

fn bad_ranges() -> Error {
    Error::new(Code::Proto, "the client's memory ranges cannot be reached")
}

/// Bytes moved. `Closed` when the process is gone, `NoPerm` when the kernel lets us reach it no more.
fn outcome(moved: isize) -> Result<usize> {
    if let Ok(moved) = usize::try_from(moved) {
        return Ok(moved);
    }
    let error = std::io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::ESRCH) => changed(),
        Some(libc::EPERM) => Error::bare(Code::NoPerm),
        Some(libc::EFAULT) => bad_ranges(),
        _ => Error::new(Code::Proto, format!("copying the client's memory: {error}")),
    })
}

/// True when the kernel would let this thread reach processes of other users.
fn overrides_memory_check() -> Result<bool> {
    rustix::thread::capabilities(None)
        .map(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
        .map_err(|errno| Error::io("asking for this thread's capabilities", errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_has_ended_before_its_parent_asks_how() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = host_process(child.id()).unwrap();
        assert!(!has_ended(child.id()) && !has_ended(std::process::id()) && !is_gone(&process));
        child.kill().unwrap();
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        assert!(is_gone(&process));
        child.wait().unwrap();
        assert!(is_gone(&process));
        assert!(!has_ended(0) && !has_ended(u32::MAX));
        // What began at another time had its number, and what is in another space is not known.
        let own = host_process(std::process::id()).unwrap();
        assert!(!is_gone(&own));
        assert!(is_gone(&HostProcess { began: own.began + 1, ..own }));
        assert!(!is_gone(&HostProcess { space: own.space ^ 1, ..process }));
    }
}
