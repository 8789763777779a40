//! Engine processes: starting them in the background, knowing them again, stopping them.
//!
//! Invariant: a process is signalled only through a descriptor that was opened first and whose
//! identity (boot, pid, start time) was compared with the pid file after that, so a recycled
//! pid is never hit.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use types::{Code, Error, Result};

/// A log longer than this, bytes, is put aside when its engine starts.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// Who runs an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub pid: u32,
    /// Start time, clock ticks since boot.
    started_ticks: u64,
    boot: String,
}

impl Identity {
    /// Of a live process; `None` when there is none (a zombie counts as none).
    pub fn of(pid: u32) -> Option<Identity> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command's name is in brackets and may hold anything, also brackets.
        let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
        let (state, started) = (fields.first()?, fields.get(19)?);
        if *state == "Z" || *state == "X" {
            return None;
        }
        Some(Identity { pid, started_ticks: started.parse().ok()?, boot: env::host_identity() })
    }

    /// What a file says of it.
    pub fn line(&self) -> String {
        format!("{} {} {}\n", self.pid, self.started_ticks, self.boot)
    }

    fn parse(text: &str) -> Option<Identity> {
        let mut words = text.split_whitespace();
        let pid = words.next()?.parse().ok()?;
        let started_ticks = words.next()?.parse().ok()?;
        Some(Identity { pid, started_ticks, boot: words.next()?.to_string() })
    }
}

/// The file in which an engine says who runs it. Removed on drop.
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes `DIR/engine.pid` for this process.
    pub fn write(dir: &Path) -> Result<PidFile> {
        let path = dir.join("engine.pid");
        let me = Identity::of(std::process::id())
            .ok_or_else(|| Error::new(Code::Io, "cannot read /proc/self/stat"))?;
        let line = me.line();
        match put(&path, line.as_bytes()) {
            // A killed engine has left its own, and whoever is here holds the engine's lock.
            Err(error) if error.kind() == ErrorKind::StorageFull && path.exists() => {
                put_in_place(&path, line.as_bytes())
            }
            other => other,
        }
        .map_err(|error| Error::io(format!("writing {}", path.display()), error))?;
        Ok(PidFile { path })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Its space is kept for the next one: the file system may be full by then. One that stays
        // names a process that is gone, and is seen to.
        let _ = fs::rename(&self.path, self.path.with_extension("pid.new"));
    }
}

/// Writes a file so that readers see all of it or nothing, in the space of one put aside.
fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("pid.new");
    put_in_place(&fresh, content)?;
    fs::rename(&fresh, path)
}

fn put_in_place(path: &Path, content: &[u8]) -> io::Result<()> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    file.write_all_at(content, 0)?;
    file.set_len(content.len() as u64)?;
    file.sync_all()
}

/// A running engine process.
pub struct Running {
    pub identity: Identity,
    fd: OwnedFd,
}

impl Running {
    /// The process that runs the engine of `dir`, if one does.
    pub fn find(dir: &Path) -> Option<Running> {
        Running::find_in(dir, "engine.pid")
    }

    /// The process that a file of `dir` names.
    pub fn find_in(dir: &Path, file: &str) -> Option<Running> {
        let written = Identity::parse(&fs::read_to_string(dir.join(file)).ok()?)?;
        let pid = Pid::from_raw(i32::try_from(written.pid).ok()?)?;
        let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let identity = Identity::of(written.pid)?;
        (identity == written).then_some(Running { identity, fd })
    }

    /// Asks it to finish (`TERM`), or ends it (`KILL`).
    pub fn signal(&self, signal: Signal) -> Result<()> {
        match rustix::process::pidfd_send_signal(&self.fd, signal) {
            // Gone already: what was wanted.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => {
                Err(Error::io(format!("signalling process {}", self.identity.pid), error.into()))
            }
        }
    }

    /// Waits for its end; false when the time is over first.
    pub fn wait(&self, limit: Duration) -> bool {
        let limit = Timespec {
            tv_sec: limit.as_secs().min(1 << 30) as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut polled = [PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut polled, Some(&limit)) {
                Ok(ready) => return ready > 0,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Identity::of(self.identity.pid).as_ref() != Some(&self.identity),
            }
        }
    }
}

/// Has a command run in a session of its own, with no descriptors but the standard streams: locks and
/// pipes that our own caller left open must not live as long as it.
pub fn detach(command: &mut Command) {
    // SAFETY: the closure makes two system calls and touches no memory of the parent, so it may
    // run between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            // Where the call is not known they do; that is all.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
}

/// This program, for what it starts.
pub fn own_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Error::io("finding the azekura program", error))
}

/// Starts the engine of `dir` in the background, with a program: own session, standard streams to its log.
/// Returns the process and where in the log it begins.
pub fn spawn(dir: &Path, program: &Path) -> Result<(Child, u64)> {
    let log_path = dir.join("engine.log");
    let opening = |error| Error::io(format!("opening {}", log_path.display()), error);
    if fs::metadata(&log_path).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
        fs::rename(&log_path, dir.join("engine.log.1")).map_err(opening)?;
    }
    let log = File::options().create(true).append(true).open(&log_path).map_err(opening)?;
    let log_start = log.metadata().map_err(opening)?.len();
    let mut command = Command::new(program);
    command
        .arg("engine")
        .arg("--config")
        .arg(dir.join("engine.toml"))
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(opening)?)
        .stderr(log);
    detach(&mut command);
    let child = command
        .spawn()
        .map_err(|error| Error::io(format!("starting {}", program.display()), error))?;
    Ok((child, log_start))
}

/// The last lines of an engine's log from byte `from` on, for an error message.
pub fn log_tail(dir: &Path, from: u64, lines_max: usize) -> String {
    let path = dir.join("engine.log");
    let raw = fs::read(&path).unwrap_or_default();
    let fresh = raw.get(from as usize..).unwrap_or_default();
    let text = String::from_utf8_lossy(fresh);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(lines_max)..].join("\n")
}

/// The directory of an engine that is on this machine, as it is seen from here.
pub fn directory_here(engine: &wire::map::EngineInfo) -> Option<&Path> {
    let socket = Path::new(&engine.unix);
    let is_here = env::is_here(&engine.host, &env::host_identity(), socket);
    socket.parent().filter(|_| is_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_names_its_process_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Running::find(dir.path()).is_none());
        let file = PidFile::write(dir.path()).unwrap();
        let found = Running::find(dir.path()).unwrap();
        assert_eq!(found.identity.pid, std::process::id());
        assert!(!found.wait(Duration::ZERO), "we are still here");
        // The same pid with another start time is somebody else.
        let text = fs::read_to_string(&file.path).unwrap();
        let ticks = found.identity.started_ticks;
        let other = text.replacen(&format!(" {ticks} "), &format!(" {} ", ticks + 1), 1);
        assert_ne!(other, text);
        fs::write(&file.path, other).unwrap();
        assert!(Running::find(dir.path()).is_none());
        drop(file);
        assert!(!dir.path().join("engine.pid").exists());
    }

    #[test]
    fn a_process_that_ended_but_was_not_reaped_is_gone() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let identity = Identity { pid: child.id(), started_ticks: 0, boot: String::new() };
        let running = Running { identity, fd };
        assert!(running.wait(Duration::from_secs(60)));
        assert_eq!(Identity::of(child.id()), None);
        child.wait().unwrap();
    }

    #[test]
    fn the_tail_of_a_log_begins_where_it_was_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("engine.log"), "old\nnew 1\nnew 2\nnew 3\n").unwrap();
        assert_eq!(log_tail(dir.path(), 4, 2), "new 2\nnew 3");
        assert_eq!(log_tail(dir.path(), 4, 9), "new 1\nnew 2\nnew 3");
        assert_eq!(log_tail(dir.path(), 999, 9), "");
    }
}
