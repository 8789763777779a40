//! A mount of an experiment's file system: a process of its own, gone with the experiment.

use crate::suite::bed::Bed;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use types::{Code, Error, Result};

/// How long mounting may take.
const MOUNT_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a mount may take to end.
const END_TIME_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// A mount by a process of its own, unmounted when this is dropped.
pub struct Mounted {
    dir: PathBuf,
    system: PathBuf,
    child: Child,
}

impl Mounted {
    /// Mounts a container, without caches, so that every way asks the engines.
    pub fn start(bed: &Bed, pool: &str, cont: &str) -> Result<Mounted> {
        let dir = bed.root().join("mount");
        std::fs::create_dir(&dir)
            .map_err(|error| Error::io(format!("making {}", dir.display()), error))?;
        let child = bed
            .beside()
            .arg("mount")
            .arg(format!("azk://{pool}/{cont}"))
            .arg(&dir)
            .args(["--foreground", "--cache", "none"])
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Error::io("starting the mount", error))?;
        let mut mounted = Mounted { dir, system: bed.system_dir(), child };
        let begun = Instant::now();
        while !is_mounted(&mounted.dir) {
            if let Ok(Some(status)) = mounted.child.try_wait() {
                return Err(Error::new(Code::Io, format!("azekura mount ended: {status}")));
            }
            if begun.elapsed() > MOUNT_TIME_MAX {
                return Err(Error::new(Code::TimedOut, "azekura mount does not get ready"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(mounted)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of the system it shows.
    pub fn system(&self) -> &Path {
        &self.system
    }

    /// Unmounts, and waits for the process.
    pub fn end(mut self) -> Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<()> {
        if !is_mounted(&self.dir) {
            return Ok(());
        }
        let unmounted = [("umount", "-l"), ("fusermount3", "-uz")].iter().any(|(program, flag)| {
            let status = Command::new(program).arg(flag).arg(&self.dir).status();
            status.is_ok_and(|status| status.success())
        });
        let begun = Instant::now();
        while unmounted && begun.elapsed() < END_TIME_MAX {
            if let Ok(Some(_)) = self.child.try_wait() {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(Error::new(Code::Busy, format!("{} could not be unmounted", self.dir.display())))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{error}");
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True when something is mounted at a directory.
fn is_mounted(dir: &Path) -> bool {
    let wanted = dir.display().to_string();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4) == Some(&wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_is_known_by_its_place() {
        assert!(is_mounted(Path::new("/proc")));
        assert!(!is_mounted(Path::new("/proc/self")));
    }
}
