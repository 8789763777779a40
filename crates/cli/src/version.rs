//! `azekura version`: which program this is, and which version of the messages it speaks.

use crate::exit::Outcome;
use crate::session::Session;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use types::{Code, Error, Result};

/// Longest that a program may take to say what it is.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// What is longer is no answer.
const ANSWER_BYTES_MAX: usize = 4096;
/// Pause between two looks whether it has said it.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// Print the version of this program, and of the messages that it speaks
///
/// Programs of one wire version understand each other; engines can be upgraded one after the other between them.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  azekura version --json")]
pub struct VersionArgs {}

/// What a program says of itself: `--json` of it is read by other programs of this kind, of any version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Versions {
    pub version: String,
    /// See [`wire::WIRE_VERSION`].
    pub wire_version: u16,
}

impl Versions {
    /// Of this program.
    pub fn own() -> Versions {
        Versions {
            version: env!("CARGO_PKG_VERSION").to_string(),
            wire_version: wire::WIRE_VERSION,
        }
    }

    /// Of another one, which is asked.
    ///
    /// Errors: `Io` when it does not run, `NotSupported` when it does not say.
    pub fn of(program: &Path) -> Result<Versions> {
        let mut child = Command::new(program)
            .args(["version", "--json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Error::io(format!("starting {}", program.display()), error))?;
        let told = end_of(&mut child)
            .and_then(|said| serde_json::from_str(&said).map_err(|error| error.to_string()));
        told.map_err(|error| {
            let text = format!(
                "'{} version --json' does not say which wire version it speaks: {error}",
                program.display()
            );
            Error::new(Code::NotSupported, text)
        })
    }
}

/// What a process has said when it has ended well.
fn end_of(child: &mut Child) -> std::result::Result<String, String> {
    let give_up_at = Instant::now() + ANSWER_TIME_MAX;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < give_up_at => std::thread::sleep(LOOK_PAUSE),
            Ok(None) => {
                // It has ended already, or cannot be ended: nobody waits for it.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer in {} s", ANSWER_TIME_MAX.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    if !status.success() {
        return Err(format!("it failed ({status})"));
    }
    let Some(mut stream) = child.stdout.take() else { return Ok(String::new()) };
    // A child of its own may have the stream still: nobody waits for that one.
    rustix::io::ioctl_fionbio(&stream, true).map_err(|error| error.to_string())?;
    let mut said = vec![0; ANSWER_BYTES_MAX];
    let mut filled = 0;
    while filled < said.len() {
        match stream.read(&mut said[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    said.truncate(filled);
    String::from_utf8(said).map_err(|error| error.to_string())
}

pub fn run(session: &Session, _: &VersionArgs) -> Outcome {
    let own = Versions::own();
    session.out.show(&own, |out| {
        writeln!(out, "azekura {}, wire version {}", own.version, own.wire_version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(dir: &Path, text: &str) -> std::path::PathBuf {
        let path = dir.join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        // A process that another test has just started may have it open for writing still.
        while Command::new(&path)
            .stdout(Stdio::null())
            .status()
            .is_err_and(|error| error.kind() == ErrorKind::ExecutableFileBusy)
        {}
        path
    }

    #[test]
    fn a_program_says_what_it_is_or_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = serde_json::to_string(&Versions::own()).unwrap();
        let told = Versions::of(&script(dir.path(), &format!("echo '{own}'"))).unwrap();
        assert_eq!(told, Versions::own());
        // A later one may say more.
        let more =
            r#"[ "$*" = "version --json" ] && echo '{"version":"9","wire_version":9,"x":1}'"#;
        let told = Versions::of(&script(dir.path(), more)).unwrap();
        assert_eq!(told, Versions { version: "9".into(), wire_version: 9 });
        for wrong in ["exit 2", "echo azekura 0.1", "true", "sleep 2 &"] {
            let error = Versions::of(&script(dir.path(), wrong)).unwrap_err();
            assert_eq!(error.code, Code::NotSupported, "{error}");
            assert!(error.to_string().contains("wire version"), "{error}");
        }
        let error = Versions::of(&dir.path().join("none")).unwrap_err();
        assert_eq!(error.code, Code::Io, "{error}");
    }
}
