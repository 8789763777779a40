//! A mount that goes on after the command has returned.
//!
//! Invariant: whoever started it is told exactly once how it went: what the server prints first on
//! its standard output, which ends there, is either the report or the error.

use crate::exit::{Failure, Outcome};
use crate::output::warn_line;
use crate::session::Session;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use types::{Code, Error, Result};

/// Starts this command once more as a server, and waits until it is mounted or has failed.
pub fn start(session: &Session, log: Option<&Path>) -> Outcome {
    let program =
        std::env::current_exe().map_err(|error| Error::io("finding the azekura program", error))?;
    let errors = match log {
        None => Stdio::null(),
        Some(path) => File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|error| Error::io(format!("opening {}", path.display()), error))?
            .into(),
    };
    let mut args = crate::names::arguments().map_err(|error| Error::inval(error.to_string()))?;
    let options_end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    args.insert(options_end, "--reporting".into());
    let mut command = Command::new(&program);
    command.args(&args[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    // SAFETY: the closure makes two system calls and touches no memory of the parent, so it may
    // run between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            // Locks and pipes that our own caller left open must not live as long as the mount.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    let mut child = command
        .spawn()
        .map_err(|error| Error::io(format!("starting {}", program.display()), error))?;
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut text)
            .map_err(|error| Error::io("waiting for the mount's server", error))?;
    }
    let Ok(report) = serde_json::from_str::<Value>(&text) else {
        let ended = child.wait().map_or_else(|error| error.to_string(), |end| end.to_string());
        return Err(Error::new(
            Code::Io,
            format!("the mount's server ended ({ended}) without a word; see it with --foreground"),
        )
        .into());
    };
    let Some(error) = report.get("error") else {
        return session.out.show(&report, |out| {
            let word = |name: &str| report[name].as_str().unwrap_or_default().to_string();
            if session.out.quiet {
                return Ok(());
            }
            writeln!(out, "{} is mounted at {}.", word("source"), word("dir"))
        });
    };
    if session.out.json {
        session.out.show(&report, |_| Ok(()))?;
    } else {
        warn_line(format_args!("azekura: {}", error["message"].as_str().unwrap_or_default()));
    }
    let exit = error["exit"].as_u64().and_then(|exit| u8::try_from(exit).ok());
    Err(Failure::Reported(exit.unwrap_or(1)))
}

/// Lets go of the standard output, so that whoever waits there goes on.
pub fn report_is_out() -> Result<()> {
    let null = File::options()
        .write(true)
        .open("/dev/null")
        .map_err(|error| Error::io("opening /dev/null", error))?;
    // SAFETY: both are descriptors of this process; number 1 belongs to the whole program.
    if unsafe { libc::dup2(null.as_raw_fd(), libc::STDOUT_FILENO) } < 0 {
        return Err(Error::io("closing the standard output", std::io::Error::last_os_error()));
    }
    // The directory we were started in is not ours to keep.
    std::env::set_current_dir("/").map_err(|error| Error::io("changing to /", error))
}
