//! Other programs that an experiment runs for its time: the modelled device, the coordinator.
//!
//! Invariant: they do not outlive it. Each is told to end and waited for when it is dropped; if
//! this process is killed, the kernel tells them.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use types::{Code, Error, Result};

/// How long a program may take to end after it was told to.
const END_MAX: Duration = Duration::from_secs(20);
/// Between looks whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A running program.
pub struct Program {
    name: &'static str,
    child: Child,
}

impl Program {
    /// Starts a program whose output and complaints are kept for [`Program::output`] and
    /// [`Program::complaint`]; it must write little of either.
    pub fn start(name: &'static str, command: &mut Command) -> Result<Program> {
        // SAFETY: prctl is safe to call between fork and exec: it takes no lock and no memory.
        let command = unsafe {
            command.pre_exec(|| {
                match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            })
        };
        let child = command
            // A key pressed for this program is not for that one: it ends with us, in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::io(format!("starting {name}"), error))?;
        Ok(Program { name, child })
    }

    /// What the program writes to its standard output.
    pub fn output(&mut self) -> Result<ChildStdout> {
        let gone = || Error::new(Code::Io, format!("{} was started without pipes", self.name));
        self.child.stdout.take().ok_or_else(gone)
    }

    /// Waits until the program, having ended or about to, says why.
    pub fn ended(&mut self) -> Error {
        match self.child.wait() {
            Ok(status) => self.complaint(status),
            Err(error) => Error::io(format!("waiting for {}", self.name), error),
        }
    }

    /// Tells the program to end and waits for it. Errors when it ends badly or not at all.
    pub fn finish(mut self) -> Result<()> {
        let status = self.end()?;
        if status.success() { Ok(()) } else { Err(self.complaint(status)) }
    }

    fn end(&mut self) -> Result<ExitStatus> {
        let failed = |error| Error::io(format!("ending {}", self.name), error);
        if let Some(status) = self.child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        // SAFETY: a call without pointers; the process is ours and was not yet waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let before = Instant::now();
        while before.elapsed() < END_MAX {
            if let Some(status) = self.child.try_wait().map_err(failed)? {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
        self.child.kill().map_err(failed)?;
        self.child.wait().map_err(failed)?;
        Err(Error::new(Code::TimedOut, format!("{} did not end and was killed", self.name)))
    }

    /// What an ended program had to say, with the code its exit status stands for.
    fn complaint(&mut self, status: ExitStatus) -> Error {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            // What cannot be read is missing from a message, no more.
            let _ = stderr.read_to_string(&mut text);
        }
        let code = match status.code() {
            Some(2) => Code::Inval,
            Some(3) => Code::NonExist,
            Some(8) => Code::NoPerm,
            _ => Code::Io,
        };
        let text = text.trim().trim_start_matches("azekura: ");
        if text.is_empty() {
            return Error::new(code, format!("{} ended ({status})", self.name));
        }
        Error::new(code, format!("{}: {text}", self.name))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `finish`.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    fn shell(script: &str) -> Program {
        Program::start("the script", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn a_program_is_read_told_to_end_and_waited_for() {
        let mut program = shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done");
        let mut line = String::new();
        BufReader::new(program.output().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        program.finish().unwrap();
    }

    #[test]
    fn one_that_ends_by_itself_says_why() {
        let error = shell("echo 'azekura: no such thing' >&2; exit 3").ended();
        assert_eq!(error.code, Code::NonExist);
        assert_eq!(error.to_string(), "the script: no such thing");
        assert_eq!(shell("exit 1").ended().code, Code::Io);
        let none = Program::start("nobody", &mut Command::new("/nonexistent/program"));
        assert!(none.is_err());
    }
}
