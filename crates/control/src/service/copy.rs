//! Copies of the catalog for engines that do not hold it.

use super::stores::serve_order;
use super::{Service, Targets};
use crate::keys;
use crate::records::StageDf;
use async_recursion::async_recursion as boxed;
use types::{ContId, Durability, PoolId, Result, TargetId};
use uuid::Uuid;
use wire::control::ControlReply;
use wire::map::EngineInfo;
use wire::obj::AdminOp;

/// Bytes of a page of a copy; one entry may be more.
const PAGE_BYTES: usize = 1 << 20;

impl Service {
    /// A page of a copy, without what changes with every use.
    pub(super) async fn catalog_copy(&self, known: u64, after: &str) -> Result<ControlReply> {
        // Looked at first: what is read may be newer than that, and is read again then.
        let generation = self.store.generation();
        if known == generation && after.is_empty() {
            return Ok(ControlReply::CatalogCopy {
                generation,
                entries: Vec::new(),
                is_complete: true,
            });
        }
        let mut entries = Vec::new();
        let mut bytes = 0;
        let all = self.store.raw("").await?;
        let is_meant = |key: &str| key > after && !keys::is_of_use_only(key);
        let mut meant = all.into_iter().filter(|(key, _)| is_meant(key)).peekable();
        while let Some((key, value)) = meant.next_if(|_| bytes < PAGE_BYTES) {
            bytes += key.len() + value.len();
            entries.push((key, value));
        }
        Ok(ControlReply::CatalogCopy { generation, entries, is_complete: meant.peek().is_none() })
    }

    /// An engine by its identity; `None` when it has never joined.
    #[boxed(?Send)]
    pub async fn engine(&self, uuid: Uuid) -> Result<Option<(EngineInfo, Vec<TargetId>)>> {
        let found = self.store.engine(uuid).await?;
        Ok(found.map(|found| (found.record.info(), found.record.targets)))
    }

    /// True when there is such a container, ready for use.
    #[boxed(?Send)]
    pub async fn has_cont(&self, pool: PoolId, cont: ContId) -> Result<bool> {
        let found = self.store.cont(pool, cont).await?;
        Ok(found.is_some_and(|found| found.record.stage == StageDf::Ready))
    }

    /// For an engine that starts while the catalog is away, over a copy of it: tells its own targets
    /// what they need to serve what they hold. Nothing is made on devices: it may have been removed since
    /// the copy was made. Pools in memory come back empty, as they do anyway.
    #[boxed(?Send)]
    pub async fn introduce(&self, targets: &[TargetId], orders: &dyn Targets) -> Result<()> {
        for pool in self.store.pools().await? {
            let pool = pool.record;
            if pool.stage != StageDf::Ready {
                continue;
            }
            let id = pool.id;
            let is_memory = pool.durability == Durability::Memory;
            let mut all = vec![AdminOp::SetMap(self.map(&pool).await?)];
            if let Some(admission) = self.admission(id).await? {
                all.push(AdminOp::SetAdmission { pool: id, admission });
            }
            if pool.scrub.revision > 0 {
                all.push(AdminOp::SetScrub { pool: id, scrub: pool.scrub.settings() });
            }
            if pool.cache.revision > 0 {
                all.push(AdminOp::SetCache { pool: id, cache: pool.cache.settings() });
            }
            let conts = if is_memory { self.store.conts(id).await? } else { Vec::new() };
            for cont in conts.iter().map(|cont| &cont.record) {
                if cont.stage == StageDf::Ready {
                    all.push(super::cont::cont_order(&pool, cont));
                }
            }
            for held in pool.targets.iter().filter(|held| targets.contains(&held.id)) {
                let target = held.id;
                for order in std::iter::once(&serve_order(&pool, held)).chain(&all) {
                    if let Err(error) = orders.order(target, order.clone()).await {
                        tracing::warn!(%target, pool = %id, "from the copy of the catalog: {error}");
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}
