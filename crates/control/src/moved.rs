//! A catalog goes from one place to another: from files to etcd, or back.
//!
//! Steps: the new place is closed as *arriving*, filled, and compared; the old one is closed; the new one is opened. A move that
//! is cut off is begun again, and goes on if the old place is closed already. What the old place holds stays there,
//! closed.

use crate::catalog::{Catalog, Change, Compare, Revision};
use crate::closed::ClosedDf;
use crate::keys;
use crate::records::{self, SystemDf};
use serde::Serialize;
use std::collections::BTreeMap;
use types::{Code, Error, Result};

/// Entries of one commit, and their bytes: less than what etcd takes in one.
const BATCH_ENTRIES: usize = 100;
const BATCH_BYTES: usize = 256 << 10;

/// A catalog and what to call it.
pub struct Named<'a> {
    pub catalog: &'a dyn Catalog,
    pub name: String,
}

/// What a catalog holds.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CatalogCounts {
    /// Identity of the system.
    pub system: String,
    pub engines: usize,
    pub pools: usize,
    pub containers: usize,
    /// Snapshots, attributes, counters, names: everything.
    pub entries: usize,
}

type Entries = BTreeMap<String, Vec<u8>>;

impl CatalogCounts {
    /// Of these entries.
    pub fn of(entries: &Entries) -> Result<CatalogCounts> {
        let system: Option<SystemDf> = match entries.get(keys::SYSTEM) {
            Some(bytes) => Some(records::decode(keys::SYSTEM, bytes)?),
            None => None,
        };
        let count = |prefix: &str| entries.keys().filter(|key| key.starts_with(prefix)).count();
        Ok(CatalogCounts {
            system: system.map_or_else(String::new, |system| system.uuid.to_string()),
            engines: count(keys::ENGINES),
            pools: count(keys::POOLS),
            containers: count(keys::CONTS),
            entries: entries.len(),
        })
    }
}

/// What is in a place.
struct Found {
    entries: Entries,
    closed: Option<(Revision, ClosedDf)>,
}

async fn look(at: &Named<'_>) -> Result<Found> {
    let failed = |error: Error| error.context(at.name.clone());
    let mut found = Found { entries: Entries::new(), closed: None };
    for (key, stored) in at.catalog.list("").await.map_err(failed)? {
        if key == keys::CLOSED {
            let closed = records::decode(&key, &stored.bytes).map_err(failed)?;
            found.closed = Some((stored.revision, closed));
        } else {
            found.entries.insert(key, stored.bytes);
        }
    }
    Ok(found)
}

async fn commit(to: &Named<'_>, compares: &[Compare], changes: &[Change]) -> Result<()> {
    let failed = |error: Error| error.context(to.name.clone());
    match to.catalog.commit(compares, changes).await.map_err(failed)? {
        true => Ok(()),
        false => Err(Error::new(Code::Busy, format!("{}: somebody else changes it", to.name))),
    }
}

async fn close(at: &Named<'_>, found: &Found, closed: ClosedDf) -> Result<()> {
    let revision = found.closed.as_ref().map_or(Revision::ABSENT, |(revision, _)| *revision);
    let compare = Compare { key: keys::CLOSED.into(), revision };
    commit(at, &[compare], &[Change::Put(keys::CLOSED.into(), records::encode(&closed))]).await
}

/// Opens a place that is whole.
async fn open(at: &Named<'_>) -> Result<()> {
    commit(at, &[], &[Change::Delete(keys::CLOSED.into())]).await
}

/// Makes a closed place hold these entries and no others.
async fn fill(to: &Named<'_>, there: &Entries, wanted: &Entries) -> Result<()> {
    let gone = there.keys().filter(|key| !wanted.contains_key(*key)).cloned().map(Change::Delete);
    let new = wanted.iter().filter(|(key, bytes)| there.get(*key) != Some(bytes));
    let new = new.map(|(key, bytes)| Change::Put(key.clone(), bytes.clone()));
    let (mut batch, mut batch_bytes) = (Vec::new(), 0);
    for change in gone.chain(new) {
        let bytes = match &change {
            Change::Put(key, bytes) => key.len() + bytes.len(),
            Change::Delete(key) | Change::DeletePrefix(key) => key.len(),
        };
        if !batch.is_empty() && (batch.len() == BATCH_ENTRIES || batch_bytes + bytes > BATCH_BYTES)
        {
            commit(to, &[], &std::mem::take(&mut batch)).await?;
            batch_bytes = 0;
        }
        batch.push(change);
        batch_bytes += bytes;
    }
    if !batch.is_empty() {
        commit(to, &[], &batch).await?;
    }
    let found = look(to).await?;
    if found.entries != *wanted {
        let text = format!(
            "{}: what was written is not what is there ({} entries instead of {}); nothing has moved",
            to.name,
            found.entries.len(),
            wanted.len()
        );
        return Err(Error::new(Code::Io, text));
    }
    Ok(())
}

fn check_free(to: &Named<'_>, there: &Found) -> Result<()> {
    if there.closed.is_some() || there.entries.is_empty() {
        return Ok(());
    }
    let counts = CatalogCounts::of(&there.entries)?;
    Err(Error::new(
        Code::Exist,
        format!(
            "{} holds a system already ({}, {} engines, {} pools): nothing was changed; use another place",
            to.name, counts.system, counts.engines, counts.pools
        ),
    ))
}

/// Moves a catalog, of which the caller is the only writer at both places.
///
/// Errors: `NonExist` when there is none at `from`, `Exist` when the new place holds another system, `Inval` when the old one has
/// moved elsewhere; else those of the places. The catalog is then where it was, unless the old place says otherwise: moving
/// again goes on.
pub async fn move_catalog(from: &Named<'_>, to: &Named<'_>) -> Result<CatalogCounts> {
    let (here, there) = (look(from).await?, look(to).await?);
    let counts = CatalogCounts::of(&here.entries)?;
    if counts.system.is_empty() {
        let text = format!("{} holds no system: nothing can be moved", from.name);
        return Err(Error::new(Code::NonExist, text));
    }
    if let Some((_, closed)) = &here.closed {
        let is_going_on = !closed.arriving && closed.place == to.name;
        let is_whole = there.entries == here.entries;
        return match &there.closed {
            Some((_, arriving)) if is_going_on && is_whole && arriving.arriving => {
                open(to).await?;
                Ok(counts)
            }
            _ => Err(closed.error()),
        };
    }
    check_free(to, &there)?;
    close(to, &there, ClosedDf::new(true, &from.name)).await?;
    fill(to, &there.entries, &here.entries).await?;
    close(from, &here, ClosedDf::new(false, &to.name)).await?;
    open(to).await?;
    Ok(counts)
}

/// Makes a place that is empty, or closed, hold this catalog. Errors as [`move_catalog`].
pub async fn make_catalog(to: &Named<'_>, entries: &Entries, from: &str) -> Result<CatalogCounts> {
    let there = look(to).await?;
    check_free(to, &there)?;
    close(to, &there, ClosedDf::new(true, from)).await?;
    fill(to, &there.entries, entries).await?;
    open(to).await?;
    CatalogCounts::of(entries)
}
