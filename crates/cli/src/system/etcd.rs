//! An etcd of the system's own, to try out a catalog that is in one: one member, on this machine.

use super::dir::{SystemDir, free_address};
use super::process::{Identity, Running, detach};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use types::{Code, Error, Result};

const PID_FILE: &str = "etcd.pid";
/// How long it may take to stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// Two free addresses on this machine, for clients and for members. `NonExist` when etcd is not
/// installed.
pub fn choose_addresses() -> Result<[String; 2]> {
    match Command::new("etcd").arg("--version").stdout(Stdio::null()).status() {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::new(
            Code::NonExist,
            "etcd is not installed (Debian: apt install etcd-server); without --etcd the catalog is in \
             files",
        )),
        Err(error) => Err(Error::io("starting etcd", error)),
        Ok(_) => {
            let client = free_address(&[])?;
            let member = free_address(&[&client])?;
            Ok([client, member])
        }
    }
}

/// Starts it if it does not run, and waits until it takes connections. True when it was started.
pub fn start(system: &SystemDir, addresses: &[String; 2], deadline: Instant) -> Result<bool> {
    let dir = system.etcd();
    if Running::find_in(&dir, PID_FILE).is_some() {
        return Ok(false);
    }
    let doing = |error| Error::io(format!("starting etcd in {}", dir.display()), error);
    fs::create_dir_all(&dir).map_err(doing)?;
    let log_path = dir.join("etcd.log");
    let log = File::options().create(true).append(true).open(&log_path).map_err(doing)?;
    let [client, member] = addresses.each_ref().map(|address| format!("http://{address}"));
    let mut command = Command::new("etcd");
    command
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(["--name", "azekura", "--logger", "zap", "--log-level", "warn"])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &member, "--initial-advertise-peer-urls", &member])
        .args(["--initial-cluster", &format!("azekura={member}")])
        .args(["--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1h"])
        .current_dir(&dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(doing)?)
        .stderr(log);
    detach(&mut command);
    let mut child = command.spawn().map_err(doing)?;
    let gone = || Error::new(Code::Io, format!("etcd has ended; see {}", log_path.display()));
    let identity = Identity::of(child.id()).ok_or_else(gone)?;
    super::dir::write_whole(&dir.join(PID_FILE), identity.line().as_bytes(), 0o644)?;
    while TcpStream::connect(&addresses[0]).is_err() {
        if child.try_wait().map_err(doing)?.is_some() {
            return Err(gone());
        }
        if Instant::now() >= deadline {
            stop(system)?;
            let text = format!("etcd takes no connections in time; see {}", log_path.display());
            return Err(Error::new(Code::TimedOut, text));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

/// Stops it if it runs.
pub fn stop(system: &SystemDir) -> Result<()> {
    let Some(running) = Running::find_in(&system.etcd(), PID_FILE) else { return Ok(()) };
    running.signal(Signal::TERM)?;
    if !running.wait(STOP_TIME_MAX) {
        running.signal(Signal::KILL)?;
        running.wait(STOP_TIME_MAX);
    }
    Ok(())
}
