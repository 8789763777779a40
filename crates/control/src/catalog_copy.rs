//! A copy of the catalog, for engines that go on with it while the catalog is away.
//!
//! It is read like the catalog and changed by [`CatalogCopy::replace`] only: what is made or removed
//! has to go to the catalog itself.

use crate::catalog::{Catalog, Change, Compare, Versioned};
use crate::embedded::EmbeddedCatalog;
use async_recursion::async_recursion as boxed;
use futures_util::future::LocalBoxFuture;
use std::collections::BTreeMap;
use std::rc::Rc;
use types::{Code, Error, Result};

/// A copy of the catalog. Clones are the same one.
#[derive(Clone)]
pub struct CatalogCopy(Rc<EmbeddedCatalog>);

impl CatalogCopy {
    /// A copy that is kept there: in files, or in memory.
    pub fn kept_in(catalog: EmbeddedCatalog) -> CatalogCopy {
        CatalogCopy(Rc::new(catalog))
    }

    /// Makes it hold this and nothing else, at once. Errors are those of where it is kept.
    #[boxed(?Send)]
    pub async fn replace(&self, entries: Vec<(String, Vec<u8>)>) -> Result<()> {
        let mut wanted: BTreeMap<String, Vec<u8>> = entries.into_iter().collect();
        let mut changes = Vec::new();
        for (key, held) in self.0.list("").await? {
            match wanted.remove(&key) {
                Some(bytes) if bytes == held.bytes => {}
                Some(bytes) => changes.push(Change::Put(key, bytes)),
                None => changes.push(Change::Delete(key)),
            }
        }
        changes.extend(wanted.into_iter().map(|(key, bytes)| Change::Put(key, bytes)));
        if !changes.is_empty() {
            self.0.commit(&[], &changes).await?;
        }
        Ok(())
    }
}

impl Catalog for CatalogCopy {
    fn get<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Result<Option<Versioned>>> {
        self.0.get(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> LocalBoxFuture<'a, Result<Vec<(String, Versioned)>>> {
        self.0.list(prefix)
    }

    fn commit<'a>(&'a self, _: &'a [Compare], _: &'a [Change]) -> LocalBoxFuture<'a, Result<bool>> {
        let text = "the catalog cannot be reached: nothing can be made or changed";
        Box::pin(async move { Err(Error::new(Code::Unreach, text)) })
    }
}
