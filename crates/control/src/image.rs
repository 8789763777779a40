//! A catalog, or an engine's copy of one, as it lies in its two files; nothing is changed or locked.

use crate::copies::choose;
use crate::keys;
use crate::records::{self, ContDf, EngineDf, PoolDf, SystemDf};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;
use types::{Code, Error, Rank, Result, TargetId};
use uuid::Uuid;
use wire::map::EngineInfo;

/// A file that somebody writes just now is read again, so often at most, after this pause.
const READS_MAX: usize = 5;
const READ_PAUSE: Duration = Duration::from_millis(100);

/// The entries of a catalog.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CatalogImage {
    pub entries: BTreeMap<String, Vec<u8>>,
}

/// What a system has with an engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    pub rank: Rank,
    pub targets: Vec<TargetId>,
    /// Labels of the pools that have some of these targets.
    pub pools: Vec<String>,
    /// The other engines of the system.
    pub others: Vec<EngineInfo>,
}

impl CatalogImage {
    /// Reads the files `PATH.0` and `PATH.1`; `None` when neither is there. `Csum` when both are damaged, `Version` when one
    /// is of another version.
    pub fn read(path: &Path) -> Result<Option<CatalogImage>> {
        let mut reads = 1;
        loop {
            match CatalogImage::read_once(path) {
                Err(error) if error.code == Code::Csum && reads < READS_MAX => {
                    reads += 1;
                    std::thread::sleep(READ_PAUSE);
                }
                outcome => return outcome,
            }
        }
    }

    fn read_once(path: &Path) -> Result<Option<CatalogImage>> {
        let names = ["0", "1"].map(|end| format!("{}.{end}", path.display()));
        let mut raw = [None, None];
        for (name, raw) in names.iter().zip(&mut raw) {
            *raw = match std::fs::read(name) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(Error::io(format!("reading {name}"), error)),
            };
        }
        let chosen = choose([&names[0], &names[1]], [raw[0].as_deref(), raw[1].as_deref()])?;
        let entries = chosen.found.entries.into_iter();
        let entries = entries.map(|(key, stored)| (key, stored.bytes)).collect();
        Ok(chosen.copy.map(|_| CatalogImage { entries }))
    }

    fn load<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        self.entries.get(key).map(|bytes| records::decode(key, bytes)).transpose()
    }

    fn load_all<T: DeserializeOwned>(&self, prefix: &str) -> Result<Vec<T>> {
        let found = self.entries.range(prefix.to_string()..);
        let found = found.take_while(|(key, _)| key.starts_with(prefix));
        found.map(|(key, bytes)| records::decode(key, bytes)).collect()
    }

    /// A service may work on it (see `closed`).
    pub fn is_open(&self) -> bool {
        !self.entries.contains_key(keys::CLOSED)
    }

    /// The system it is of; `None` when there is none in it.
    pub fn system(&self) -> Result<Option<SystemDf>> {
        self.load(keys::SYSTEM)
    }

    /// Engines with their identities.
    pub fn engines(&self) -> Result<Vec<(Uuid, EngineDf)>> {
        let mut engines = Vec::new();
        for (key, bytes) in &self.entries {
            if let Some(uuid) = key.strip_prefix(keys::ENGINES) {
                let bad =
                    |_| Error::new(Code::Io, format!("catalog entry '{key}' names no engine"));
                engines.push((uuid.parse().map_err(bad)?, records::decode(key, bytes)?));
            }
        }
        engines.sort_by_key(|(_, engine): &(_, EngineDf)| engine.rank);
        Ok(engines)
    }

    /// Pools by number.
    pub fn pools(&self) -> Result<Vec<PoolDf>> {
        self.load_all(keys::POOLS)
    }

    /// Containers of a pool, by number.
    pub fn conts(&self, pool: &PoolDf) -> Result<Vec<ContDf>> {
        self.load_all(&keys::conts(pool.id))
    }

    /// What the system has with an engine; `None` when it does not know it.
    pub fn standing(&self, engine: Uuid) -> Result<Option<Standing>> {
        let mut engines = self.engines()?;
        let Some(at) = engines.iter().position(|(uuid, _)| *uuid == engine) else {
            return Ok(None);
        };
        let (_, own) = engines.remove(at);
        let is_own = |pool: &PoolDf| pool.targets.iter().any(|held| own.targets.contains(&held.id));
        let pools = self.pools()?;
        let pools = pools.iter().filter(|pool| is_own(pool)).map(PoolDf::name).collect();
        let others = engines.iter().map(|(_, engine)| engine.info()).collect();
        Ok(Some(Standing { rank: own.rank, targets: own.targets, pools, others }))
    }
}
