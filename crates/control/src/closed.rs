//! Catalogs that no service may work on: one that has gone elsewhere, or is not whole yet.
//!
//! Invariant: of the two places of a catalog that moves, at most one is open at any time. Whoever begins to serve a catalog
//! looks first.

use crate::catalog::Catalog;
use crate::keys;
use crate::records::{self, RECORD_VERSION, SystemDf};
use async_recursion::async_recursion as boxed;
use serde::{Deserialize, Serialize};
use types::{Error, Result};
use uuid::Uuid;

/// The record of a closed catalog.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClosedDf {
    /// Layout of this struct.
    pub version: u32,
    /// It is being filled; else it has gone elsewhere.
    pub arriving: bool,
    /// Where from, or where to; for people.
    pub place: String,
}

impl ClosedDf {
    pub(crate) fn new(arriving: bool, place: &str) -> ClosedDf {
        ClosedDf { version: RECORD_VERSION, arriving, place: place.to_string() }
    }

    /// Says so.
    pub fn error(&self) -> Error {
        Error::inval(match self.arriving {
            true => format!(
                "the catalog here is not whole: it was being filled from {}; do that again to the end",
                self.place
            ),
            false => format!(
                "the catalog has moved to {}: change [catalog] in the engine's configuration",
                self.place
            ),
        })
    }
}

/// `Inval` when the catalog holds another system than the one that its engine knows to be in, or none; else errors as
/// [`Catalog::get`]. One that knows of none may begin a new one.
///
/// A catalog that is found empty by an engine of a system is not that system's: it would be begun anew, beside the data that
/// there are.
#[boxed(?Send)]
pub async fn check_system(catalog: &dyn Catalog, known: Option<Uuid>) -> Result<()> {
    let Some(known) = known else { return Ok(()) };
    let stored = catalog.get(keys::SYSTEM).await?;
    let here = stored.map(|stored| records::decode::<SystemDf>(keys::SYSTEM, &stored.bytes));
    match here.transpose()? {
        Some(here) if here.uuid == known => Ok(()),
        Some(here) => Err(crate::service::not_of(known, here.uuid)),
        None => Err(Error::inval(format!(
            "the engine is one of system {known}, and the catalog is empty: correct [catalog] in its configuration, or, \
             if the catalog is lost, make it anew ('azekura system recover')"
        ))),
    }
}

/// True when the catalog holds no system, though the engine knows to be in one: what was there is lost.
#[boxed(?Send)]
pub async fn is_lost(catalog: &dyn Catalog, known: Option<Uuid>) -> bool {
    known.is_some() && matches!(catalog.get(keys::SYSTEM).await, Ok(None))
}

/// `Inval` when no service may work on the catalog; else errors as [`Catalog::get`].
#[boxed(?Send)]
pub async fn check_open(catalog: &dyn Catalog) -> Result<()> {
    match catalog.get(keys::CLOSED).await? {
        Some(stored) => Err(records::decode::<ClosedDf>(keys::CLOSED, &stored.bytes)?.error()),
        None => Ok(()),
    }
}
