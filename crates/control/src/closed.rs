//! Catalogs that no service may work on: one that has gone elsewhere, or is not whole yet.
//!
//! Invariant: of the two places of a catalog that moves, at most one is open at any time. Whoever begins to serve a catalog
//! looks first.

use crate::catalog::Catalog;
use crate::keys;
use crate::records::{self, RECORD_VERSION};
use serde::{Deserialize, Serialize};
use types::{Error, Result};

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

/// `Inval` when no service may work on the catalog; else errors as [`Catalog::get`].
pub async fn check_open(catalog: &dyn Catalog) -> Result<()> {
    match catalog.get(keys::CLOSED).await? {
        Some(stored) => Err(records::decode::<ClosedDf>(keys::CLOSED, &stored.bytes)?.error()),
        None => Ok(()),
    }
}
