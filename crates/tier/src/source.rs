//! Reading copies for mounts of this process: what `dfs::tier` asks when somebody reads a chunk that is in a tier only.

use crate::copy::{manifest_of, part_bytes};
use crate::definition::Definition;
use crate::manifest::FileManifest;
use crate::store::Store;
use crate::sync::sync_file;
use dfs::tier::{TierAsk, TierSource};
use dfs::{Dfs, Obj};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use types::{Code, Error, Result};

/// Manifests remembered.
const MANIFESTS_MAX: usize = 64;

/// Finds a tier's definition by its name. Runs on a thread of its own, so it may wait.
pub type Resolve = Box<dyn Fn(&str) -> Result<Definition> + Send + Sync>;

/// Reads copies from the tiers that their records name.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

struct Inner {
    resolve: Resolve,
    stores: Mutex<HashMap<String, Store>>,
    manifests: Mutex<HashMap<String, Arc<FileManifest>>>,
}

impl Source {
    pub fn new(resolve: Resolve) -> Source {
        let (stores, manifests) = Default::default();
        Source(Arc::new(Inner { resolve, stores, manifests }))
    }

    /// The tier of that name, opened once.
    async fn store(&self, tier: &str) -> Result<Store> {
        if let Some(store) = lock(&self.0.stores).get(tier) {
            return Ok(store.clone());
        }
        let (inner, name) = (self.0.clone(), tier.to_string());
        let (send, receive) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let opened = (inner.resolve)(&name).and_then(|definition| Store::open(&definition));
            // Whoever asked may have gone.
            let _ = send.send(opened);
        });
        let opened = receive.await.map_err(|_| Error::new(Code::Io, "a tier was not opened"))?;
        let opened = opened.map_err(|error| error.context(format!("tier '{tier}'")))?;
        lock(&self.0.stores).insert(tier.to_string(), opened.clone());
        Ok(opened)
    }

    async fn read_part(&self, ask: TierAsk) -> Result<Vec<u8>> {
        let record = &ask.record;
        let store = self.store(&record.tier).await?;
        let known = lock(&self.0.manifests).get(&record.manifest).cloned();
        let manifest = match known {
            Some(manifest) => manifest,
            None => {
                let manifest = Arc::new(manifest_of(&store, record).await?);
                let mut manifests = lock(&self.0.manifests);
                if manifests.len() >= MANIFESTS_MAX {
                    manifests.clear();
                }
                manifests.insert(record.manifest.clone(), manifest.clone());
                manifest
            }
        };
        let at = usize::try_from(ask.range.index / record.part_bytes).ok();
        let part = at.and_then(|at| manifest.parts.get(at)).ok_or_else(|| {
            Error::new(Code::Csum, "a file's copy is shorter than its record says")
        })?;
        part_bytes(&store, part).await
    }
}

impl TierSource for Source {
    fn read(&self, ask: TierAsk) -> BoxFuture<'static, Result<Vec<u8>>> {
        let source = self.clone();
        async move { source.read_part(ask).await }.boxed()
    }

    fn sync<'a>(
        &'a self,
        fs: &'a Dfs,
        file: &'a Obj,
        tier: &'a str,
    ) -> LocalBoxFuture<'a, Result<()>> {
        async move {
            let store = self.store(tier).await?;
            sync_file(fs, file, &store, tier, &|_| {}).await.map(|_| ())
        }
        .boxed_local()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
