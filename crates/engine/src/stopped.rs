//! An engine that does not run, and is kept from it: for tools that work on what it has.

use crate::config::EngineConfig;
use crate::home;
use crate::process::parse_identity;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use types::{Code, Error, Result};
use uuid::Uuid;
use vos::erase::ErasedDevice;

/// What an engine and its tools make in its directory, the identity excepted. The configuration and logs are the administrator's.
const OWN_FILES: [&str; 27] = [
    "catalog.0",
    "catalog.0.new",
    "catalog.1",
    "catalog.1.new",
    "catalog.lock",
    "catalog-copy.0",
    "catalog-copy.0.new",
    "catalog-copy.1",
    "catalog-copy.1.new",
    "catalog-copy.lock",
    "catalog-before-move.0",
    "catalog-before-move.1",
    "engine.pid",
    "engine.pid.new",
    "engine.sock",
    "pool-maps.0",
    "pool-maps.0.new",
    "pool-maps.1",
    "pool-maps.1.new",
    "pool-maps.lock",
    "object-numbers",
    "object-numbers.new",
    "stops-with-all",
    home::FILE_NEW,
    home::FILE,
    "engine.id.new",
    IDENTITY,
];
const IDENTITY: &str = "engine.id";

/// An engine that cannot start while this lives.
pub struct StoppedEngine<'a> {
    config: &'a EngineConfig,
    uuid: Option<Uuid>,
    _lock: Option<File>,
}

impl<'a> StoppedEngine<'a> {
    /// Takes its lock. `Busy` while it runs; `Inval` when the directory is not an engine's. One that has never run has no
    /// identity.
    pub fn hold(config: &'a EngineConfig) -> Result<StoppedEngine<'a>> {
        let path = config.dir.join(IDENTITY);
        let doing = |error| Error::io(format!("reading {}", path.display()), error);
        let lock = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(StoppedEngine { config, uuid: None, _lock: None });
            }
            Err(error) => return Err(doing(error)),
        };
        if lock.try_lock().is_err() {
            let text = format!("the engine in {} runs; stop it first", config.dir.display());
            return Err(Error::new(Code::Busy, text));
        }
        let text = fs::read_to_string(&path).map_err(doing)?;
        let uuid = match text.is_empty() {
            true => None,
            false => Some(
                parse_identity(&text, config.targets.len())
                    .map_err(|error| error.context(path.display().to_string()))?,
            ),
        };
        Ok(StoppedEngine { config, uuid, _lock: Some(lock) })
    }

    /// Which engine it is; `None`: none yet.
    pub fn uuid(&self) -> Option<Uuid> {
        self.uuid
    }

    /// Makes it this engine. `Exist` when it is another one.
    pub fn become_engine(&mut self, uuid: Uuid) -> Result<()> {
        match self.uuid {
            Some(own) if own == uuid => return Ok(()),
            Some(own) => {
                let text = format!("{} is of engine {own} already", self.config.dir.display());
                return Err(Error::new(Code::Exist, text));
            }
            None => {}
        }
        let dir = &self.config.dir;
        let path = dir.join(IDENTITY);
        let doing = |error| Error::io(format!("writing {}", path.display()), error);
        fs::create_dir_all(dir).map_err(doing)?;
        let line = format!("azekura engine 1 {uuid} {}\n", self.config.targets.len());
        let mut file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(doing)?;
        if file.try_lock().is_err() {
            let text = format!("the engine in {} runs; stop it first", dir.display());
            return Err(Error::new(Code::Busy, text));
        }
        file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(doing)?;
        self._lock = Some(file);
        self.uuid = Some(uuid);
        hand_over(dir, &path)
    }

    /// Removes its targets from their devices, then what it has in its directory, its identity last. `by_force`: whosever
    /// targets these are.
    ///
    /// Errors as [`vos::erase::erase`]; what was erased before stays so.
    pub fn erase(self, by_force: bool) -> Result<Vec<ErasedDevice>> {
        // One that has no identity owns nothing.
        let own = self.uuid.map_or([0; 16], Uuid::into_bytes);
        let engine = (!by_force).then_some(own);
        let env = env::Env::real()?;
        let erased = env.block_on(async {
            let mut erased = Vec::new();
            // Parts of a device that several share are cut as its first part says: that goes last.
            for number in (0..self.config.targets.len()).rev() {
                let devices = self.config.devices(number);
                let gone = vos::erase::erase(&env, &devices, engine).await;
                let gone =
                    gone.map_err(|error| error.context(format!("target number {number}")))?;
                erased.splice(0..0, gone);
            }
            Ok::<_, Error>(erased)
        });
        env.clear();
        let erased = erased?;
        for name in OWN_FILES {
            let path = self.config.dir.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io(format!("removing {}", path.display()), error));
                }
                _ => {}
            }
        }
        Ok(erased)
    }
}

/// Gives a file of an engine's directory to whom that belongs: the superuser's tools make files for the engine's user.
pub fn hand_over(dir: &Path, path: &Path) -> Result<()> {
    let failed = |error| Error::io(format!("handing over {}", path.display()), error);
    let of = fs::metadata(dir).map_err(failed)?;
    let now = fs::metadata(path).map_err(failed)?;
    if (now.uid(), now.gid()) == (of.uid(), of.gid()) {
        return Ok(());
    }
    std::os::unix::fs::chown(path, Some(of.uid()), Some(of.gid())).map_err(failed)
}

/// The two files of a catalog in an engine's directory, by the name of the catalog.
pub fn catalog_files(dir: &Path, name: &str) -> [PathBuf; 2] {
    ["0", "1"].map(|end| dir.join(format!("{name}.{end}")))
}
