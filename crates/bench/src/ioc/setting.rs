//! What the experiments have in common: where they run, with what, how large.

use super::coordination::find_library;
use super::limit::Limit;
use super::round::Plan;
use super::stage::{Ground, Stage};
use crate::report::Machine;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use types::{Error, Result};

/// Most processes of a run.
pub const PROCESSES_MAX: u32 = 4096;
/// The paper's minimum size of a coordinated call.
const MIN_BYTES: u64 = 8_000_000;

/// Where and with what an experiment runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setting {
    /// What is written to.
    pub ground: Ground,
    /// Storage targets; a directory has one `t0`, `t1`, … for each.
    pub targets: u32,
    /// Factor on all sizes; 1: those of the paper.
    pub scale: f64,
    /// Rounds of alternation.
    pub repeat: u32,
    /// Limit of the coordinated side.
    pub limit: Limit,
    /// Calls on fewer bytes do not ask, before scaling.
    pub min_bytes: u64,
    /// Bypass the page cache.
    pub direct: bool,
    /// Wait at the end of each step until the data are on the device.
    pub fsync: bool,
    /// Read everything back and compare.
    pub verify: bool,
    /// Decides the data.
    pub seed: u64,
    /// The `azekura` command; runs coordinator and modelled device.
    pub binary: PathBuf,
    /// The preload library; `None`: look where it is installed or built.
    pub preload: Option<PathBuf>,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            ground: Ground::Model { device: Default::default(), store: None },
            targets: 1,
            scale: 0.0625,
            repeat: 3,
            limit: Limit::Writers(2),
            min_bytes: MIN_BYTES,
            direct: false,
            fsync: true,
            verify: false,
            seed: 1,
            binary: PathBuf::from("azekura"),
            preload: None,
        }
    }
}

impl Setting {
    /// `Inval`, naming the option, when these make no run.
    pub fn check(&self) -> Result<()> {
        if self.targets == 0 || self.targets > super::device::TARGETS_MAX {
            return Err(Error::inval("targets: want 1 to 1,024"));
        }
        if !(self.scale > 0.0 && self.scale <= 1000.0) {
            return Err(Error::inval("scale: want more than 0, at most 1,000"));
        }
        if self.repeat == 0 || self.repeat > 1000 {
            return Err(Error::inval("repeat: want 1 to 1,000"));
        }
        if self.limit == Limit::Off {
            return Err(Error::inval("max-writers: the coordinated side needs a limit"));
        }
        if let Ground::Model { device, .. } = &self.ground {
            device.check()?;
        }
        Ok(())
    }

    /// `Inval` when so many writers for each target are too many processes, or none.
    pub fn check_writers(&self, name: &str, writers: u32) -> Result<()> {
        let processes = writers.checked_mul(self.targets);
        if writers == 0 || processes.is_none_or(|count| count > PROCESSES_MAX) {
            let text = format!("{name}: want 1 or more, {PROCESSES_MAX} processes at most in all");
            return Err(Error::inval(text));
        }
        Ok(())
    }

    /// True on the modelled device, where the project's goals hold.
    pub fn is_modelled(&self) -> bool {
        matches!(self.ground, Ground::Model { .. })
    }

    pub fn set_stage(&self) -> Result<Stage> {
        Stage::set(&self.ground, self.targets, &self.binary)
    }

    /// How to run on a stage.
    pub fn plan<'a>(&self, stage: &'a Stage, pause: Duration) -> Result<Plan<'a>> {
        let preload = match &self.preload {
            Some(library) => std::path::absolute(library)
                .map_err(|error| Error::io(format!("finding {}", library.display()), error))?,
            None => find_library(&self.binary)?,
        };
        if !preload.is_file() {
            // The dynamic linker would only warn, and nothing would be coordinated.
            return Err(Error::inval(format!("library: {} is no file", preload.display())));
        }
        Ok(Plan {
            stage,
            binary: self.binary.clone(),
            preload,
            min_bytes: (self.min_bytes as f64 * self.scale) as u64,
            verify: self.verify,
            pause,
        })
    }

    /// What this is, for people, in a few lines.
    pub fn header(&self, title: &str, machine: &Machine) -> String {
        let mut text = format!(
            "{title}: azekura {} on {} x {}, kernel {}\n",
            machine.version, machine.cpu_count, machine.cpu, machine.kernel
        );
        match &self.ground {
            Ground::Dir(dir) => {
                text += &format!(
                    "on {}, {} target directories; data through the page cache: {}; fsync: {}\n",
                    dir.display(),
                    self.targets,
                    !self.direct,
                    self.fsync
                );
            }
            Ground::Model { device, .. } => {
                text += &format!("on {} modelled targets: {}\n", self.targets, device.text());
            }
        }
        text += &format!(
            "sizes {} x the paper's; {} rounds; coordinated: at most {} writers a target, calls of {} or more",
            self.scale,
            self.repeat,
            self.limit,
            types::size::format((self.min_bytes as f64 * self.scale) as u64),
        );
        if !machine.optimized {
            text += "\nthis is an unoptimized build: its figures say little about speed";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = Setting::default();
        good.check().unwrap();
        for (setting, word) in [
            (Setting { targets: 0, ..good.clone() }, "targets"),
            (Setting { scale: f64::NAN, ..good.clone() }, "scale"),
            (Setting { repeat: 0, ..good.clone() }, "repeat"),
            (Setting { limit: Limit::Off, ..good.clone() }, "max-writers"),
        ] {
            assert!(setting.check().unwrap_err().to_string().contains(word));
        }
        assert!(good.check_writers("writers", 0).is_err());
        assert!(good.check_writers("writers", u32::MAX).is_err());
        good.check_writers("writers", PROCESSES_MAX).unwrap();
    }

    #[test]
    fn a_library_that_is_not_there_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let ground = Ground::Dir(scratch.path().to_path_buf());
        let preload = Some(scratch.path().join("none.so"));
        let setting = Setting { ground, preload, ..Setting::default() };
        let stage = setting.set_stage().unwrap();
        assert!(stage.dir().starts_with(scratch.path()) && stage.dir().join("t0").is_dir());
        let error = setting.plan(&stage, Duration::ZERO).err().unwrap();
        assert!(error.to_string().contains("none.so"));
        let (dir, small) = (stage.dir().to_path_buf(), stage.scratch().to_path_buf());
        std::fs::write(dir.join("t0/left"), "x").unwrap();
        assert!(stage.strike().unwrap().is_none());
        assert!(!dir.exists() && !small.exists());
        let nowhere = Setting { ground: Ground::Dir(dir), ..Setting::default() };
        assert!(nowhere.set_stage().is_err());
    }
}
