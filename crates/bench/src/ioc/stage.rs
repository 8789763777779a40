//! Where an experiment writes: a directory of any file system, or a modelled device mounted for
//! it; with one directory for each target.
//!
//! Invariant: what the stage made is gone when it is dropped: mount, directories, sockets.

use super::child::Program;
use super::device::{Done, Params, check_fuse};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use types::{Code, Error, Result};

/// What is written to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ground {
    /// A directory of this machine.
    Dir(PathBuf),
    Model {
        device: Params,
        /// Where it keeps data; `None`: in memory.
        store: Option<PathBuf>,
    },
}

/// First line of a device that serves another program.
#[derive(Serialize, Deserialize)]
pub struct DeviceReady {
    /// Where it is mounted.
    pub mounted: PathBuf,
}

/// Last line of a device that serves another program, and the report of any other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeviceReport {
    pub device: Params,
    /// What each target has done.
    pub targets: Vec<Done>,
}

/// A prepared place.
pub struct Stage {
    /// Sockets, traces and the mount are here.
    scratch: PathBuf,
    /// Holds the targets' directories; `scratch` itself while there is no such place yet.
    dir: PathBuf,
    device: Option<Device>,
}

struct Device {
    program: Program,
    lines: BufReader<ChildStdout>,
}

impl Stage {
    /// Prepares the ground for so many targets; `binary` is the `azekura` command.
    ///
    /// Errors: `NonExist` without the directory, or without FUSE for a modelled device; `NoPerm`
    /// when FUSE may not be used.
    pub fn set(ground: &Ground, targets: u32, binary: &Path) -> Result<Stage> {
        if matches!(ground, Ground::Model { .. }) {
            check_fuse()?;
        }
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let name = format!("azekura-ioc-{}-{number}", std::process::id());
        let scratch = std::env::temp_dir().join(&name);
        make_dir(&scratch)?;
        // From here on dropping the stage removes whatever there is.
        let mut stage = Stage { dir: scratch.clone(), scratch, device: None };
        match ground {
            Ground::Dir(dir) => {
                if !dir.is_dir() {
                    let text = format!("{} is no directory", dir.display());
                    return Err(Error::new(Code::NonExist, text));
                }
                let ours = dir.join(name);
                make_dir(&ours)?;
                stage.dir = ours;
                for target in 0..targets {
                    make_dir(&stage.dir.join(format!("t{target}")))?;
                }
            }
            Ground::Model { device, store } => {
                let mount = stage.scratch.join("device");
                make_dir(&mount)?;
                stage.dir = mount;
                let command = device_command(binary, &stage.dir, targets, device, store.as_deref());
                stage.device = Some(Device::start(command)?);
            }
        }
        Ok(stage)
    }

    /// The directory that holds those of the targets.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A directory for sockets and other small things.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Takes everything away; what the modelled device has done, if there was one.
    pub fn strike(mut self) -> Result<Option<DeviceReport>> {
        self.device.take().map(Device::finish).transpose()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let complain = |path: &Path, result: std::io::Result<()>| match result {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                eprintln!("removing {}: {error}", path.display());
                false
            }
            _ => true,
        };
        if let Some(device) = self.device.take()
            && let Err(error) = device.finish()
        {
            eprintln!("stopping the modelled device: {error}");
        }
        let mount = self.scratch.join("device");
        if self.dir != mount && self.dir != self.scratch {
            complain(&self.dir, std::fs::remove_dir_all(&self.dir));
        }
        // An empty directory only: were the device still mounted there, this would fail.
        if complain(&mount, std::fs::remove_dir(&mount)) {
            complain(&self.scratch, std::fs::remove_dir_all(&self.scratch));
        }
    }
}

impl Device {
    fn start(mut command: Command) -> Result<Device> {
        let mut program = Program::start("the modelled device", &mut command)?;
        let mut lines = BufReader::new(program.output()?);
        match next_line::<DeviceReady>(&mut lines)? {
            Some(_) => Ok(Device { program, lines }),
            None => Err(program.ended()),
        }
    }

    fn finish(mut self) -> Result<DeviceReport> {
        self.program.finish()?;
        next_line(&mut self.lines)?
            .ok_or_else(|| Error::new(Code::Proto, "the modelled device ended without a report"))
    }
}

fn next_line<T: serde::de::DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>> {
    let mut line = String::new();
    let count = from
        .read_line(&mut line)
        .map_err(|error| Error::io("listening to the modelled device", error))?;
    if count == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(|error| {
        Error::new(Code::Proto, format!("the modelled device said {line:?}: {error}"))
    })
}

/// `azekura bench ioc device`, serving this program.
fn device_command(
    binary: &Path,
    dir: &Path,
    targets: u32,
    device: &Params,
    store: Option<&Path>,
) -> Command {
    let mut command = Command::new(binary);
    command.args(["bench", "ioc", "device", "--serving"]).arg(dir);
    let options = [
        ("--targets", u64::from(targets).to_string()),
        ("--rate", device.rate_bytes_per_s.to_string()),
        ("--client-rate", device.client_bytes_per_s.to_string()),
        ("--seek-us", (device.seek_ns as f64 / 1e3).to_string()),
        ("--piece", device.piece_bytes.to_string()),
        ("--merge", device.merge_bytes.to_string()),
        ("--window", device.window_bytes.to_string()),
        ("--queue", device.queue_bytes.to_string()),
    ];
    for (name, value) in options {
        command.args([name, &value]);
    }
    if let Some(store) = store {
        command.arg("--store").arg(store);
    }
    command
}

fn make_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir(dir).map_err(|error| Error::io(format!("making {}", dir.display()), error))
}
