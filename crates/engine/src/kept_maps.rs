//! The newest pool maps that this engine's targets have, kept in its directory.
//!
//! The copy of the catalog there is as old as the last look at the holder of the control service. An engine that does not reach
//! that one has newer maps from others; started again in this state it goes on with these.
//!
//! A file beside the catalog's own kind: maps of another version of the messages are no maps for this program, and go. What is there
//! is told to targets after what the copy of the catalog means to be there, and as maps of other engines are: newer ones only.

use crate::config::EngineConfig;
use control::{Catalog, Change, EmbeddedCatalog};
use env::Env;
use std::cell::RefCell;
use std::collections::BTreeMap;
use types::{Code, Error, PoolId, Result};
use wire::map::PoolMap;

/// The files' name in the engine's directory.
const NAME: &str = "pool-maps";

/// Maps that are kept.
pub(crate) struct KeptMaps {
    kept: EmbeddedCatalog,
    /// What is there.
    versions: RefCell<BTreeMap<PoolId, u32>>,
}

fn key(pool: PoolId) -> String {
    format!("pool/{}", pool.0)
}

fn encode(map: &PoolMap) -> Vec<u8> {
    let mut raw = wire::WIRE_VERSION.to_le_bytes().to_vec();
    raw.extend(wire::encode(map));
    raw
}

/// A map as it is kept.
///
/// Errors: `Version` when it is of other messages, those of the decoder.
fn decode(raw: &[u8]) -> Result<PoolMap> {
    match raw.split_first_chunk() {
        Some((version, body)) if u16::from_le_bytes(*version) == wire::WIRE_VERSION => {
            wire::decode(body)
        }
        _ => Err(Error::new(Code::Version, "a pool map of another version of the messages")),
    }
}

impl KeptMaps {
    /// Opens those in the engine's directory; what cannot be read is left out. In simulations they are in memory.
    pub async fn open(env: &Env, config: &EngineConfig) -> Result<KeptMaps> {
        let kept = match env.sim_node() {
            None => EmbeddedCatalog::open(&config.dir.join(NAME)).or_else(|error| {
                tracing::warn!("kept pool maps: {error}; going on without");
                EmbeddedCatalog::in_memory()
            })?,
            Some(_) => EmbeddedCatalog::in_memory()?,
        };
        KeptMaps::on(kept).await
    }

    async fn on(kept: EmbeddedCatalog) -> Result<KeptMaps> {
        let maps = KeptMaps { kept, versions: RefCell::default() };
        let versions = maps.all().await?.iter().map(|map| (map.pool, map.version)).collect();
        maps.versions.replace(versions);
        Ok(maps)
    }

    /// All that are kept.
    pub async fn all(&self) -> Result<Vec<PoolMap>> {
        let entries = self.kept.list("pool/").await?;
        let decoded = entries.iter().filter_map(|(key, held)| {
            let map = decode(&held.bytes);
            if let Err(error) = &map {
                tracing::warn!("kept pool maps: {key}: {error}; going on without");
            }
            map.ok()
        });
        Ok(decoded.collect())
    }

    /// Which of these are newer than what is kept, and what is kept of them.
    pub fn older_than(&self, known: &[(PoolId, u32)]) -> Vec<(PoolId, u32)> {
        let versions = self.versions.borrow();
        let mut older = BTreeMap::new();
        for (pool, version) in known {
            let kept = versions.get(pool).copied().unwrap_or(0);
            if kept < *version {
                older.insert(*pool, kept);
            }
        }
        older.into_iter().collect()
    }

    /// Keeps these, where they are newer.
    pub async fn keep(&self, maps: &[PoolMap]) -> Result<()> {
        let is_newer = |map: &&PoolMap| {
            self.versions.borrow().get(&map.pool).is_none_or(|kept| *kept < map.version)
        };
        let newer: Vec<&PoolMap> = maps.iter().filter(is_newer).collect();
        let changes: Vec<Change> =
            newer.iter().map(|map| Change::Put(key(map.pool), encode(map))).collect();
        if changes.is_empty() {
            return Ok(());
        }
        self.kept.commit(&[], &changes).await?;
        self.versions.borrow_mut().extend(newer.iter().map(|map| (map.pool, map.version)));
        Ok(())
    }

    /// Forgets the maps of all other pools than these.
    pub async fn retain(&self, pools: &[PoolId]) -> Result<()> {
        let is_gone = |pool: &&PoolId| !pools.contains(pool);
        let gone: Vec<PoolId> = self.versions.borrow().keys().filter(is_gone).copied().collect();
        if gone.is_empty() {
            return Ok(());
        }
        let changes: Vec<Change> = gone.iter().map(|pool| Change::Delete(key(*pool))).collect();
        self.kept.commit(&[], &changes).await?;
        self.versions.borrow_mut().retain(|pool, _| !gone.contains(pool));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::future::Future;
    use types::Rank;
    use wire::map::EngineInfo;

    /// Nothing waits for anything.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        future.now_or_never().unwrap()
    }

    fn map(pool: u32, version: u32) -> PoolMap {
        let engine = EngineInfo {
            rank: Rank(0),
            tcp: "a:1".into(),
            unix: String::new(),
            host: String::new(),
            domain: Vec::new(),
        };
        PoolMap {
            pool: PoolId(pool),
            version,
            engines: vec![engine],
            targets: Vec::new(),
            placements: Vec::new(),
            outs: Vec::new(),
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        }
    }

    #[test]
    fn the_newest_of_each_pool_is_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            block_on(KeptMaps::on(EmbeddedCatalog::open(&dir.path().join(NAME)).unwrap())).unwrap()
        };
        let kept = open();
        block_on(kept.keep(&[map(1, 3), map(2, 7)])).unwrap();
        block_on(kept.keep(&[map(1, 2), map(2, 9)])).unwrap();
        assert_eq!(
            kept.older_than(&[(PoolId(1), 3), (PoolId(2), 10), (PoolId(3), 1)]),
            [(PoolId(2), 9), (PoolId(3), 0)]
        );
        drop(kept);
        let kept = open();
        assert_eq!(block_on(kept.all()).unwrap(), [map(1, 3), map(2, 9)]);
        assert_eq!(kept.older_than(&[(PoolId(1), 3)]), []);
        block_on(kept.retain(&[PoolId(2)])).unwrap();
        assert_eq!(kept.older_than(&[(PoolId(1), 3)]), [(PoolId(1), 0)]);
        drop(kept);
        assert_eq!(block_on(open().all()).unwrap(), [map(2, 9)]);
    }

    /// Messages that have changed since would be read as something else.
    #[test]
    fn maps_of_another_version_are_left_out() {
        let mut raw = encode(&map(1, 3));
        assert_eq!(decode(&raw), Ok(map(1, 3)));
        raw[0] += 1;
        assert_eq!(decode(&raw).unwrap_err().code, Code::Version);
        assert_eq!(decode(&[5]).unwrap_err().code, Code::Version);
    }
}
