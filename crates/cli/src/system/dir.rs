//! The directory of a one-machine system: what it was made with, and its lock.
//!
//! Invariants: `setup.toml` is written before anything else and changed only when engines are added, so a
//! directory either has it or holds nothing of ours; files appear whole (written beside, then renamed).

use client::{SystemEngine, SystemFile};
use engine::{Bytes, CatalogConfig, CatalogKind, EngineConfig, StoreConfig, TargetConfig};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use types::{Code, Durability, Error, Result};
use uuid::Uuid;

/// Format of `setup.toml`. 1: first release.
const FORMAT: u32 = 1;
/// Longest path of a Unix socket on Linux, bytes, without the closing NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Ports to choose from: below the kernel's default range for outgoing connections, so that
/// none of those takes an engine's port while it is down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// What a system was made with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Format of this file.
    pub format: u32,
    pub engines: u32,
    /// Targets of each.
    pub targets: u32,
    /// Durability of pools whose creator names none.
    pub durability: Durability,
    /// Each target's thread is bound to a core.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pin_targets: bool,
    /// Most that the targets of each engine read and write a second, bytes, one after the other and again from the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates_max: Vec<u64>,
    /// The catalog is in an etcd of the system's own: its addresses for clients and for members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<[String; 2]>,
}

impl Setup {
    /// A system whose targets run on any core.
    pub fn new(engines: u32, targets: u32, durability: Durability) -> Setup {
        Setup {
            format: FORMAT,
            engines,
            targets,
            durability,
            pin_targets: false,
            rates_max: Vec::new(),
            etcd: None,
        }
    }

    /// The most that a target of each engine reads and writes a second, bytes.
    fn rate_max(&self, target: u32) -> Option<u64> {
        self.rates_max.iter().cycle().nth(target as usize).copied()
    }

    /// The core of a target, counted over all engines: one each, again from the first when
    /// there are more targets than cores.
    fn core(&self, engine: u32, target: u32) -> Option<usize> {
        let usable = engine::usable_cores();
        let number = engine as usize * self.targets as usize + target as usize;
        self.pin_targets.then(|| usable[number % usable.len()])
    }
}

/// The directory that `azekura up` keeps a system in.
#[derive(Clone, Debug)]
pub struct SystemDir {
    /// Absolute path.
    pub path: PathBuf,
}

/// Held while `up` or `down` works on a directory.
pub struct Held {
    _lock: File,
}

impl SystemDir {
    /// The directory at an absolute path; need not exist.
    pub fn at(path: PathBuf) -> SystemDir {
        SystemDir { path }
    }

    /// Makes the directory if it is not there, for its owner only.
    pub fn create(&self) -> Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(|error| {
            Error::io(format!("making the directory {}", self.path.display()), error)
        })
    }

    /// Keeps every other `up` and `down` out of an existing directory.
    pub fn lock(&self) -> Result<Held> {
        let path = self.path.join("up.lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| Error::io(format!("opening {}", path.display()), error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Held { _lock: lock }),
            Err(_) => Err(Error::new(
                Code::Busy,
                format!(
                    "another 'azekura up' or 'azekura down' is at work on {}",
                    self.path.display()
                ),
            )),
        }
    }

    /// What the system was made with; `None` when there is none.
    pub fn setup(&self) -> Result<Option<Setup>> {
        let path = self.path.join("setup.toml");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(format!("reading {}", path.display()), error)),
        };
        let setup: Setup = toml::from_str(&text).map_err(|error| {
            Error::inval(format!("{}: {}", path.display(), error.to_string().trim_end()))
        })?;
        if setup.format != FORMAT {
            return Err(Error::new(
                Code::Version,
                format!("{}: format {}, want {FORMAT}", path.display(), setup.format),
            ));
        }
        Ok(Some(setup))
    }

    /// What the system was made with.
    ///
    /// Errors: `NonExist` when there is none.
    pub fn require_setup(&self) -> Result<Setup> {
        self.setup()?.ok_or_else(|| {
            Error::new(
                Code::NonExist,
                format!("no system at {} (start one with 'azekura up')", self.path.display()),
            )
        })
    }

    /// Makes the files of a new system in a directory that holds nothing else.
    pub fn make(&self, setup: Setup) -> Result<Setup> {
        let reading = |error| Error::io(format!("reading {}", self.path.display()), error);
        for entry in fs::read_dir(&self.path).map_err(reading)? {
            let name = entry.map_err(reading)?.file_name();
            if name != "up.lock" && !name.to_string_lossy().starts_with("setup.toml") {
                return Err(Error::inval(format!(
                    "{} holds other things ('{}'); choose an empty directory",
                    self.path.display(),
                    name.to_string_lossy()
                )));
            }
        }
        self.write_setup(&setup)?;
        Ok(setup)
    }

    /// Adds engines to a system that has fewer. Their files are made by [`SystemDir::configs`].
    pub fn grow(&self, setup: Setup, engines: u32) -> Result<Setup> {
        let setup = Setup { engines: engines.max(setup.engines), ..setup };
        self.write_setup(&setup)?;
        Ok(setup)
    }

    fn write_setup(&self, setup: &Setup) -> Result<()> {
        let text = toml::to_string(setup).expect("plain data serializes");
        write_whole(&self.path.join("setup.toml"), text.as_bytes(), 0o644)
    }

    /// Directory of the system's own etcd.
    pub fn etcd(&self) -> PathBuf {
        self.path.join("etcd")
    }

    /// Directory of an engine.
    pub fn engine(&self, index: u32) -> PathBuf {
        self.path.join(format!("engine{index}"))
    }

    /// Makes what is missing of the engines' files; returns their configurations.
    ///
    /// Errors: `Inval` for a configuration with a mistake (the line is named), or one that
    /// belongs to another directory.
    pub fn configs(&self, setup: &Setup) -> Result<Vec<EngineConfig>> {
        let token = self.path.join("token");
        if !token.exists() {
            write_whole(&token, format!("{}\n", Uuid::new_v4().simple()).as_bytes(), 0o600)?;
        }
        let mut configs: Vec<EngineConfig> = Vec::new();
        for index in 0..setup.engines {
            let dir = self.engine(index);
            let path = dir.join("engine.toml");
            if !path.exists() {
                let taken: Vec<&str> = configs.iter().map(|known| known.listen.as_str()).collect();
                let first = configs.first().filter(|_| setup.etcd.is_none());
                let join = first.map(|first| first.listen.clone()).into_iter().collect();
                let config = self.new_config(setup, index, join, &taken)?;
                for device in config.targets.iter().filter_map(|target| target.device.as_ref()) {
                    fs::create_dir_all(device).map_err(|error| {
                        Error::io(format!("making {}", device.display()), error)
                    })?;
                }
                let text = toml::to_string(&config).expect("plain data serializes");
                write_whole(&path, text.as_bytes(), 0o644)?;
            }
            let config = EngineConfig::read(&path)?;
            if config.dir != dir {
                return Err(Error::inval(format!(
                    "{}: dir is {}, but the system is at {}; if you moved it, correct the paths",
                    path.display(),
                    config.dir.display(),
                    self.path.display()
                )));
            }
            // Further ones may have been added since: 'system reload'.
            if config.targets.len() < setup.targets as usize {
                return Err(Error::inval(format!(
                    "{}: {} targets, but the system was made with {} each",
                    path.display(),
                    config.targets.len(),
                    setup.targets
                )));
            }
            if config.unix_path().as_os_str().len() > SOCKET_PATH_BYTES_MAX {
                return Err(Error::new(
                    Code::NameTooLong,
                    format!(
                        "{} is over {SOCKET_PATH_BYTES_MAX} bytes, too long for a socket; \
                         choose a directory with a shorter path",
                        config.unix_path().display()
                    ),
                ));
            }
            configs.push(config);
        }
        Ok(configs)
    }

    fn new_config(
        &self,
        setup: &Setup,
        index: u32,
        join: Vec<String>,
        taken: &[&str],
    ) -> Result<EngineConfig> {
        let dir = self.engine(index);
        let target = |at| TargetConfig {
            device: Some(dir.join(format!("target{at}"))),
            cores: setup.core(index, at).into_iter().collect(),
            rate_max: setup.rate_max(at).map(Bytes),
            ..TargetConfig::default()
        };
        let targets = (0..setup.targets).map(target).collect();
        Ok(EngineConfig {
            dir,
            listen: free_address(taken)?,
            advertise: None,
            join,
            domain: Vec::new(),
            token_file: Some(self.path.join("token")),
            admin_token_file: None,
            insecure: false,
            message_memory: None,
            down_after_s: None,
            failover: true,
            rebuild_after_s: None,
            metrics: None,
            catalog: match &setup.etcd {
                None => CatalogConfig::default(),
                Some([client, _]) => CatalogConfig {
                    kind: CatalogKind::Etcd,
                    endpoints: vec![format!("http://{client}")],
                    ..CatalogConfig::default()
                },
            },
            store: StoreConfig::default(),
            targets,
        })
    }

    /// Tells clients where the engines are.
    pub fn write_system_file(&self, configs: &[EngineConfig]) -> Result<()> {
        let reach = |config: &EngineConfig| SystemEngine {
            unix: config.unix_path(),
            tcp: config.advertise.clone().unwrap_or_else(|| config.listen.clone()),
        };
        let file = SystemFile {
            engines: configs.iter().map(reach).collect(),
            token_file: Some(PathBuf::from("token")),
        };
        // The file system may be full.
        if SystemFile::read(&self.path).is_ok_and(|old| old == file) {
            return Ok(());
        }
        file.write(&self.path)
    }

    /// The secret clients show.
    pub fn token(&self) -> Result<Vec<u8>> {
        let path = self.path.join("token");
        let token = fs::read(&path)
            .map_err(|error| Error::io(format!("reading {}", path.display()), error))?;
        Ok(token.trim_ascii().to_vec())
    }
}

/// Writes a file so that readers see all of it or nothing, also after a crash. One that holds it
/// already is left alone.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let has_mode = |meta: fs::Metadata| meta.permissions().mode() & 0o7777 == mode;
    if fs::metadata(path).is_ok_and(has_mode) && fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let doing = |error| Error::io(format!("writing {}", path.display()), error);
    let mut fresh = path.as_os_str().to_os_string();
    fresh.push(".new");
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(mode)
        .open(&fresh)
        .map_err(doing)?;
    // An older file of this name kept its mode.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(|error| doing(error.into()))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(doing)?;
    fs::rename(&fresh, path).map_err(doing)
}

/// A loopback address with a port that nobody listens on now, and that is not in `taken`.
pub fn free_address(taken: &[&str]) -> Result<String> {
    let span = u64::from(PORTS.end - PORTS.start);
    let start = Uuid::new_v4().as_u64_pair().0 % span;
    for step in 0..span {
        let port = PORTS.start + ((start + step) % span) as u16;
        let address = format!("127.0.0.1:{port}");
        if !taken.contains(&address.as_str()) && TcpListener::bind(&address).is_ok() {
            return Ok(address);
        }
    }
    Err(Error::new(Code::Busy, format!("no free TCP port from {} to {}", PORTS.start, PORTS.end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> (tempfile::TempDir, SystemDir) {
        let dir = tempfile::tempdir().unwrap();
        let system = SystemDir::at(dir.path().join("sys"));
        system.create().unwrap();
        (dir, system)
    }

    #[test]
    fn a_new_system_keeps_its_setup_and_ports() {
        let (_guard, system) = fresh();
        assert_eq!(system.setup().unwrap(), None);
        let setup = system.make(Setup::new(3, 2, Durability::Relaxed)).unwrap();
        assert_eq!(system.setup().unwrap(), Some(setup.clone()));
        let first = system.configs(&setup).unwrap();
        assert_eq!(first.len(), 3);
        assert!(first[0].join.is_empty());
        assert_eq!(first[2].join, [first[0].listen.clone()]);
        let mut ports: Vec<&str> = first.iter().map(|config| config.listen.as_str()).collect();
        ports.sort();
        ports.dedup();
        assert_eq!(ports.len(), 3, "each engine has a port of its own");
        assert_eq!(system.configs(&setup).unwrap(), first, "and keeps it");
        assert_eq!(system.token().unwrap(), first[0].token().unwrap());
    }

    #[test]
    fn a_system_that_grows_keeps_what_it_has() {
        let (_guard, system) = fresh();
        let setup = system.make(Setup::new(2, 1, Durability::Wal)).unwrap();
        let before = system.configs(&setup).unwrap();
        let setup = system.grow(setup, 4).unwrap();
        assert_eq!(system.setup().unwrap(), Some(setup.clone()));
        let after = system.configs(&setup).unwrap();
        assert_eq!((after.len(), &after[..2]), (4, &before[..]));
        assert_eq!(after[3].join, [before[0].listen.clone()]);
        let again = system.grow(setup, 3).unwrap();
        assert_eq!(again.engines, 4, "it does not shrink");
    }

    #[test]
    fn pinned_targets_are_spread_over_the_cores() {
        let (_guard, system) = fresh();
        let setup = Setup { pin_targets: true, ..Setup::new(2, 3, Durability::Wal) };
        let setup = system.make(setup).unwrap();
        assert_eq!(system.setup().unwrap(), Some(setup.clone()));
        let configs = system.configs(&setup).unwrap();
        let cores: Vec<usize> =
            configs.iter().flat_map(|config| &config.targets).map(|t| t.cores[0]).collect();
        let usable = engine::usable_cores();
        let want: Vec<usize> = usable.iter().copied().cycle().take(6).collect();
        assert_eq!(cores, want);
    }

    #[test]
    fn a_directory_with_other_things_is_left_alone() {
        let (_guard, system) = fresh();
        fs::write(system.path.join("thesis.tex"), "x").unwrap();
        let error = system.make(Setup::new(1, 1, Durability::Wal)).unwrap_err();
        assert!(error.to_string().contains("thesis.tex"), "{error}");
        assert_eq!(system.setup().unwrap(), None);
    }

    #[test]
    fn typos_in_files_are_named_with_their_line() {
        let (_guard, system) = fresh();
        let setup = system.make(Setup::new(1, 1, Durability::Wal)).unwrap();
        system.configs(&setup).unwrap();
        let path = system.engine(0).join("engine.toml");
        let text = fs::read_to_string(&path).unwrap().replace("listen", "lissten");
        fs::write(&path, text).unwrap();
        let error = system.configs(&setup).unwrap_err().to_string();
        assert!(error.contains("lissten") && error.contains("line 2"), "{error}");
        fs::write(system.path.join("setup.toml"), "format = 1\nengins = 1\n").unwrap();
        let error = system.setup().unwrap_err().to_string();
        assert!(error.contains("engins") && error.contains("line 2"), "{error}");
    }

    #[test]
    fn a_second_worker_is_kept_out() {
        let (_guard, system) = fresh();
        let held = system.lock().unwrap();
        assert_eq!(system.lock().err().unwrap().code, Code::Busy);
        drop(held);
        assert!(system.lock().is_ok());
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_early() {
        let (_guard, system) = fresh();
        let long = SystemDir::at(system.path.join("d".repeat(120)));
        long.create().unwrap();
        let setup = long.make(Setup::new(1, 1, Durability::Wal)).unwrap();
        assert_eq!(long.configs(&setup).unwrap_err().code, Code::NameTooLong);
    }
}
