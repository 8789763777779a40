//! Typed reading and writing of the catalog.
//!
//! A [`Loaded`] record remembers the revision it was read at; a [`Tx`] collects what a decision
//! relied on and what it changes. So a commit can fail for one reason only beside failure of the
//! store: somebody else was faster, and the decision must be taken again.

use crate::catalog::{Catalog, Change, Compare, Revision, Versioned};
use crate::keys;
use crate::records::{
    self, AdmissionDf, ContDf, EngineDf, OidsDf, PoolDf, RECORD_VERSION, SnapsDf, SystemDf, TimesDf,
};
use async_recursion::async_recursion as boxed;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use types::{Code, ContId, Error, PoolId, Result};
use uuid::Uuid;

/// A record, and which write of it was read.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    pub key: String,
    pub revision: Revision,
    pub record: T,
}

/// The catalog, in terms of its records.
pub struct Store {
    catalog: Box<dyn Catalog>,
    /// Another number after each commit that changes more than when things were used.
    generation: Cell<u64>,
    call_count: Cell<u64>,
}

impl Store {
    /// Generations are counted from `generation` on: a random one, so that those of an earlier run are
    /// not taken for this one's.
    pub fn new(catalog: Box<dyn Catalog>, generation: u64) -> Store {
        Store { catalog, generation: Cell::new(generation.max(1)), call_count: Cell::new(0) }
    }

    /// The catalog, for one call that is counted.
    fn asked(&self) -> &dyn Catalog {
        self.call_count.set(self.call_count.get() + 1);
        &*self.catalog
    }

    /// How often the catalog was asked.
    pub fn call_count(&self) -> u64 {
        self.call_count.get()
    }

    /// Never 0.
    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// See [`Catalog::term`].
    pub fn term(&self) -> u64 {
        self.catalog.term()
    }

    /// See [`Catalog::is_held`].
    pub fn is_held(&self) -> bool {
        self.catalog.is_held()
    }

    async fn load<T: DeserializeOwned>(&self, key: String) -> Result<Option<Loaded<T>>> {
        let found = self.asked().get(&key).await?;
        found.map(|stored| loaded(key, stored)).transpose()
    }

    async fn load_all<T: DeserializeOwned>(&self, prefix: &str) -> Result<Vec<Loaded<T>>> {
        let found = self.asked().list(prefix).await?;
        found.into_iter().map(|(key, stored)| loaded(key, stored)).collect()
    }

    #[boxed(?Send)]
    pub async fn system(&self) -> Result<Option<Loaded<SystemDf>>> {
        self.load(keys::SYSTEM.to_string()).await
    }

    #[boxed(?Send)]
    pub async fn engine(&self, uuid: Uuid) -> Result<Option<Loaded<EngineDf>>> {
        self.load(keys::engine(uuid)).await
    }

    pub async fn loaded_engines(&self) -> Result<Vec<Loaded<EngineDf>>> {
        self.load_all(keys::ENGINES).await
    }

    /// All engines, by rank.
    #[boxed(?Send)]
    pub async fn engines(&self) -> Result<Vec<EngineDf>> {
        let all = self.loaded_engines().await?;
        let mut engines: Vec<EngineDf> = all.into_iter().map(|loaded| loaded.record).collect();
        engines.sort_unstable_by_key(|engine| engine.rank);
        Ok(engines)
    }

    #[boxed(?Send)]
    pub async fn pool(&self, id: PoolId) -> Result<Option<Loaded<PoolDf>>> {
        self.load(keys::pool(id)).await
    }

    /// All pools, by number.
    #[boxed(?Send)]
    pub async fn pools(&self) -> Result<Vec<Loaded<PoolDf>>> {
        self.load_all(keys::POOLS).await
    }

    /// Settings of admission of a pool; `None` when they were never changed.
    #[boxed(?Send)]
    pub async fn admission(&self, id: PoolId) -> Result<Option<Loaded<AdmissionDf>>> {
        self.load(keys::pool_admission(id)).await
    }

    #[boxed(?Send)]
    pub async fn cont(&self, pool: PoolId, id: ContId) -> Result<Option<Loaded<ContDf>>> {
        self.load(keys::cont(pool, id)).await
    }

    /// All containers of a pool, by number.
    #[boxed(?Send)]
    pub async fn conts(&self, pool: PoolId) -> Result<Vec<Loaded<ContDf>>> {
        self.load_all(&keys::conts(pool)).await
    }

    /// Snapshots of a container; `None` when it never had one.
    pub async fn snaps(&self, pool: PoolId, id: ContId) -> Result<Option<Loaded<SnapsDf>>> {
        self.load(keys::snaps(pool, id)).await
    }

    /// When a container was used; `None` when nobody has opened it.
    #[boxed(?Send)]
    pub async fn times(&self, pool: PoolId, id: ContId) -> Result<Option<Loaded<TimesDf>>> {
        self.load(keys::times(pool, id)).await
    }

    #[boxed(?Send)]
    pub async fn oids(&self, pool: PoolId, id: ContId) -> Result<Option<Loaded<OidsDf>>> {
        self.load(keys::oids(pool, id)).await
    }

    /// The number behind a label or UUID key.
    #[boxed(?Send)]
    pub async fn number(&self, key: &str) -> Result<Option<u64>> {
        let Some(stored) = self.asked().get(key).await? else { return Ok(None) };
        let text = std::str::from_utf8(&stored.bytes).ok();
        text.and_then(|text| text.parse().ok()).map(Some).ok_or_else(|| {
            Error::new(Code::Io, format!("catalog entry '{key}' is corrupt: not a number"))
        })
    }

    /// Raw values under a prefix, by the rest of their keys.
    #[boxed(?Send)]
    pub async fn raw(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let found = self.asked().list(prefix).await?;
        Ok(found
            .into_iter()
            .map(|(key, stored)| (key[prefix.len()..].to_string(), stored.bytes))
            .collect())
    }

    /// False: something the transaction relied on has changed.
    #[boxed(?Send)]
    pub async fn commit(&self, tx: Tx) -> Result<bool> {
        let outcome = self.asked().commit(&tx.compares, &tx.changes).await;
        let is_of_use_only = tx.changes.iter().all(|change| {
            let (Change::Put(key, _) | Change::Delete(key) | Change::DeletePrefix(key)) = change;
            keys::is_of_use_only(key)
        });
        if outcome != Ok(false) && !is_of_use_only {
            self.generation.set(self.generation.get().wrapping_add(1).max(1));
        }
        outcome
    }
}

fn loaded<T: DeserializeOwned>(key: String, stored: Versioned) -> Result<Loaded<T>> {
    let record = records::decode(&key, &stored.bytes)?;
    Ok(Loaded { key, revision: stored.revision, record })
}

/// A transaction in the making.
#[derive(Default)]
pub struct Tx {
    compares: Vec<Compare>,
    changes: Vec<Change>,
}

impl Tx {
    pub fn new() -> Tx {
        Tx::default()
    }

    /// The record must not have changed since it was read.
    pub fn expect<T>(mut self, loaded: &Loaded<T>) -> Tx {
        self.compares.push(Compare { key: loaded.key.clone(), revision: loaded.revision });
        self
    }

    /// The key must not exist.
    pub fn expect_absent(mut self, key: impl Into<String>) -> Tx {
        self.compares.push(Compare { key: key.into(), revision: Revision::ABSENT });
        self
    }

    pub fn put<T: Serialize>(self, key: impl Into<String>, record: &T) -> Tx {
        self.put_raw(key, records::encode(record))
    }

    pub fn put_raw(mut self, key: impl Into<String>, bytes: Vec<u8>) -> Tx {
        self.changes.push(Change::Put(key.into(), bytes));
        self
    }

    pub fn put_number(self, key: impl Into<String>, number: u64) -> Tx {
        self.put_raw(key, number.to_string().into_bytes())
    }

    /// Writes the record back, provided it has not changed since it was read.
    pub fn replace<T: Serialize>(self, loaded: &Loaded<T>) -> Tx {
        self.expect(loaded).put(loaded.key.clone(), &loaded.record)
    }

    pub fn delete(mut self, key: impl Into<String>) -> Tx {
        self.changes.push(Change::Delete(key.into()));
        self
    }

    /// Removes all keys that begin with this.
    pub fn delete_prefix(mut self, prefix: impl Into<String>) -> Tx {
        self.changes.push(Change::DeletePrefix(prefix.into()));
        self
    }
}

/// How often a decision is taken again when others are faster. With one service in charge a
/// second attempt is rare; this many in a row mean that two services fight over one catalog.
const ATTEMPTS_MAX: usize = 32;

/// Counts attempts of one decision.
pub struct Attempts(usize);

impl Attempts {
    pub fn new() -> Attempts {
        Attempts(0)
    }

    /// `Busy` when there were too many.
    pub fn next(&mut self) -> Result<()> {
        self.0 += 1;
        if self.0 > ATTEMPTS_MAX {
            return Err(Error::new(
                Code::Busy,
                "the catalog keeps changing under this request; check that only one engine serves it, \
                 then try again",
            ));
        }
        Ok(())
    }
}

impl SystemDf {
    /// A system without anything in it.
    pub fn new(uuid: Uuid) -> SystemDf {
        SystemDf {
            version: RECORD_VERSION,
            uuid,
            pool_next: 1,
            target_next: 0,
            rank_next: 0,
            members_version: 0,
        }
    }
}
