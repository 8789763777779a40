//! A catalog that is older than what engines know of it: a backup was put in its place.
//!
//! Numbers in it would be given out again, for other things than those that have them, and targets that have missed updates since would count as whole.

use crate::catalog::Catalog;
use crate::keys;
use crate::records::{self, PoolDf, SystemDf};
use async_recursion::async_recursion as boxed;
use std::collections::BTreeMap;
use types::{Error, Result};

/// `Inval` when a copy of the catalog is newer than that: something in it, that only grows, has grown further. Else errors as [`Catalog::get`]. A copy of
/// another system, or that cannot be read, says nothing.
#[boxed(?Send)]
pub async fn check_not_older(catalog: &dyn Catalog, copy: &dyn Catalog) -> Result<()> {
    let Ok(Some(known)) = counts(copy).await else { return Ok(()) };
    let Some(here) = counts(catalog).await? else { return Ok(()) };
    if here.system.uuid != known.system.uuid {
        return Ok(());
    }
    let Some((what, here, known)) = first_less(&here, &known) else { return Ok(()) };
    Err(Error::inval(format!(
        "the catalog is older than what this engine knows of it ({what} is {here} here, and was {known}): a backup was put in its place? What was made \
         since would be mistaken for other things. Make it anew from the engines' copies, in another place ('azekura system recover'); to use it as it is \
         all the same, remove catalog-copy.0 and .1 in the directories of all engines, which are to be stopped"
    )))
}

/// What only grows.
struct Counts {
    system: SystemDf,
    pools: BTreeMap<u32, PoolDf>,
}

async fn counts(catalog: &dyn Catalog) -> Result<Option<Counts>> {
    let Some(stored) = catalog.get(keys::SYSTEM).await? else { return Ok(None) };
    let system = records::decode(keys::SYSTEM, &stored.bytes)?;
    let mut pools = BTreeMap::new();
    for (key, stored) in catalog.list(keys::POOLS).await? {
        let pool: PoolDf = records::decode(&key, &stored.bytes)?;
        pools.insert(pool.id.0, pool);
    }
    Ok(Some(Counts { system, pools }))
}

/// The first that is less than it was. Pools that are not there any more were removed, or were made since, which the system's own count tells.
fn first_less(here: &Counts, known: &Counts) -> Option<(String, u64, u64)> {
    let of_system = |counts: &Counts| {
        let system = &counts.system;
        [system.members_version, system.pool_next, system.target_next, system.rank_next]
    };
    let names =
        ["the last change of an engine", "the next pool", "the next target", "the next engine"];
    let pairs = of_system(here).into_iter().zip(of_system(known));
    let mut all: Vec<(String, u64, u64)> = names
        .iter()
        .zip(pairs)
        .map(|(name, (here, known))| (name.to_string(), here.into(), known.into()))
        .collect();
    for (id, known) in &known.pools {
        if let Some(here) = here.pools.get(id) {
            let name = known.name();
            let versions = (here.map_version.into(), known.map_version.into());
            all.push((format!("the map of pool '{name}'"), versions.0, versions.1));
            let next = format!("the next container of pool '{name}'");
            all.push((next, here.cont_next, known.cont_next));
        }
    }
    all.into_iter().find(|(_, here, known)| here < known)
}
