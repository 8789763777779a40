//! The system a suite runs on: started for it, alone in a directory, gone afterwards.

use crate::place::Where;
use crate::servers;
use client::{Client, ConnectOptions, SystemAddress};
use dfs::{Dfs, FormatOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use types::{Code, ContLayout, ContProps, Durability, Error, PlacementRule, Result, TargetId};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode};

/// One engine of two targets, where an experiment is not about more.
const SMALL: Size = Size { engines: 1, targets: 2 };
/// Of a pool's bytes this part is for the index: a suite makes many small files.
const SCM_PERCENT: u8 = 50;

/// How large a system is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub engines: u32,
    /// Of each engine.
    pub targets: u32,
}

/// A pool with a file system in it.
pub struct Files {
    pub label: String,
    pub bytes: u64,
    /// On these targets; none: on all.
    pub targets: Vec<TargetId>,
    pub placement: PlacementRule,
    /// How many engines may be lost.
    pub rd_fac: u8,
}

impl Files {
    /// On all targets, which count alike; without copies.
    pub fn new(label: &str, bytes: u64) -> Files {
        let (label, placement) = (label.to_string(), PlacementRule::default());
        Files { label, bytes, targets: Vec::new(), placement, rd_fac: 0 }
    }
}

/// A running system and a directory beside it for the yardstick.
pub struct Bed {
    binary: PathBuf,
    root: PathBuf,
    up_seconds: f64,
    /// `None` only while the system starts.
    client: Option<Client>,
    targets: Vec<TargetId>,
    durability: Durability,
}

impl Bed {
    /// Starts a system below `dir`, with the command `binary`, whose pools live in memory.
    pub fn start(dir: &Path, binary: &Path) -> Result<Bed> {
        Bed::start_with(dir, binary, Durability::Memory)
    }

    /// The same with pools of another durability.
    pub fn start_with(dir: &Path, binary: &Path, durability: Durability) -> Result<Bed> {
        Bed::start_of(SMALL, dir, binary, durability)
    }

    /// The same of another size.
    pub fn start_of(size: Size, dir: &Path, binary: &Path, durability: Durability) -> Result<Bed> {
        Bed::start_held(size, &[], dir, binary, durability)
    }

    /// The same with targets that read and write no more than so many bytes a second, in turn; none: as fast as they are.
    pub fn start_held(
        size: Size,
        rates_max: &[u64],
        dir: &Path,
        binary: &Path,
        durability: Durability,
    ) -> Result<Bed> {
        let root = dir.join(format!("azekura-bench-{}", std::process::id()));
        std::fs::create_dir(&root)
            .map_err(|error| Error::io(format!("making {}", root.display()), error))?;
        // From here on dropping the bed stops and removes whatever there is.
        let mut bed = Bed {
            binary: binary.to_path_buf(),
            root,
            up_seconds: 0.0,
            client: None,
            targets: Vec::new(),
            durability,
        };
        let before = Instant::now();
        let (engines, targets) = (size.engines.to_string(), size.targets.to_string());
        let kept = durability.to_string();
        let numbers = ["--engines", &engines, "--targets", &targets];
        let rates: Vec<String> = rates_max.iter().map(u64::to_string).collect();
        let (rates, has_rates) = (rates.join(","), !rates.is_empty());
        let held = if has_rates { &["--rate-max", &rates][..] } else { &[] };
        bed.command(&[&["up"], &numbers[..], &["--durability", &kept], held].concat())?;
        bed.up_seconds = before.elapsed().as_secs_f64();
        let address = SystemAddress::from_dir(&bed.system_dir())?;
        let client = Client::connect(ConnectOptions::new(address))?;
        let info = client.block_on(client.system_query())?;
        bed.targets = info.engines.into_iter().flat_map(|(_, targets, _)| targets).collect();
        bed.client = Some(client);
        Ok(bed)
    }

    /// A client of the system.
    pub fn client(&self) -> Result<&Client> {
        let closed = || Error::new(Code::Closed, "the system has not started");
        self.client.as_ref().ok_or_else(closed)
    }

    /// How long `azekura up` took.
    pub fn up_seconds(&self) -> f64 {
        self.up_seconds
    }

    pub fn engine_pids(&self) -> Result<Vec<u32>> {
        let place = Where::Dfs {
            system: self.system_dir().display().to_string(),
            pool: String::new(),
            cont: String::new(),
            dir: "/".to_string(),
            tcp_only: false,
        };
        let pids = servers::local_pids(&place)?;
        if pids.is_empty() {
            return Err(Error::new(Code::Unreach, "no engine answers on its socket"));
        }
        Ok(pids)
    }

    /// Makes a pool of `bytes` on all targets, or on the first only, with a file system in it.
    pub fn make_files(&self, label: &str, bytes: u64, one_target: bool) -> Result<Where> {
        let targets = match one_target {
            true => self.targets.iter().take(1).copied().collect(),
            false => Vec::new(),
        };
        self.make(&Files { targets, ..Files::new(label, bytes) })
    }

    /// Makes a pool with a file system in it.
    pub fn make(&self, files: &Files) -> Result<Where> {
        let client = self.client()?;
        let pool = ControlRequest::PoolCreate {
            placement: files.placement,
            label: files.label.clone(),
            bytes: files.bytes,
            scm_percent: SCM_PERCENT,
            durability: self.durability,
            targets: files.targets.clone(),
        };
        // SAFETY: these calls only return numbers.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        client.block_on(async {
            client.pool_create(pool).await?;
            let name = Name::Label(files.label.clone());
            let pool = client.pool_open(&name, OpenMode::ReadWrite).await?;
            let (layout, rd_fac) = (ContLayout::Posix, files.rd_fac);
            let base = ContProps::default();
            let props = ContProps {
                layout,
                rd_fac,
                oclass: base.oclass.at_least(rd_fac),
                dir_oclass: base.dir_oclass.at_least(rd_fac),
                file_oclass: base.file_oclass.at_least(rd_fac),
                ..base
            };
            pool.cont_create("files", Uuid::nil(), props, BTreeMap::new()).await?;
            let cont = pool.cont_open(&Name::Label("files".into()), OpenMode::ReadWrite).await?;
            Dfs::format(&cont, &FormatOptions { mode: 0o755, uid, gid }).await?;
            Ok::<_, Error>(())
        })?;
        Ok(Where::Dfs {
            system: self.system_dir().display().to_string(),
            pool: files.label.clone(),
            cont: "files".to_string(),
            dir: "/bench".to_string(),
            tcp_only: false,
        })
    }

    /// Changes a property of a pool.
    pub fn set_prop(&self, label: &str, name: &str, value: &str) -> Result<()> {
        let client = self.client()?;
        client.block_on(async {
            let pool = Name::Label(label.to_string());
            let pool = client.pool_open(&pool, OpenMode::ReadWrite).await?;
            pool.set_props(BTreeMap::from([(name.to_string(), value.to_string())])).await
        })
    }

    /// Removes a pool, to have its memory back.
    pub fn remove_files(&self, label: &str) -> Result<()> {
        let Some(client) = &self.client else { return Ok(()) };
        client.block_on(client.pool_destroy(Name::Label(label.to_string()), true))
    }

    /// The same kind of memory through the kernel's own file system.
    pub fn yardstick(&self) -> Where {
        Where::Posix(self.root.join("yardstick"))
    }

    /// The directory of the bed, for what an experiment needs beside the system.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A command of the system, for an experiment to run beside it.
    pub fn beside(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("--dir").arg(self.system_dir()).stdin(Stdio::null());
        command
    }

    /// The directory of the system.
    pub fn system_dir(&self) -> PathBuf {
        self.root.join("system")
    }

    /// Runs the command on this system; its output is shown only when it fails.
    fn command(&self, args: &[&str]) -> Result<()> {
        let output = Command::new(&self.binary)
            .arg("--dir")
            .arg(self.system_dir())
            .args(args)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Error::io(format!("starting {}", self.binary.display()), error))?;
        if output.status.success() {
            return Ok(());
        }
        let text = format!(
            "azekura {}: {}\n{}{}",
            args.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        Err(Error::new(Code::Io, text.trim_end()))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.client = None;
        if self.system_dir().exists()
            && let Err(error) = self.command(&["down"])
        {
            // The directory stays, so that somebody can look what keeps the system up.
            eprintln!("stopping the benchmark's system: {error}");
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.root) {
            eprintln!("removing {}: {error}", self.root.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_tells_why_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let error = Bed::start(dir.path(), Path::new("/bin/false")).err().unwrap();
        assert!(error.to_string().contains("azekura up"), "{error}");
        let error = Bed::start(dir.path(), &dir.path().join("nothing")).err().unwrap();
        assert!(error.to_string().contains("nothing"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
