//! Who waits for what was in damaged pages of an index.

use client::{Client, Pool};
use std::collections::BTreeMap;
use types::TargetId;
use wire::control::{Name, OpenMode, PoolInfo};
use wire::map::DownReason;

/// By the target that waits: the one whose pages are damaged, itself or another.
pub type PageWaits = BTreeMap<TargetId, TargetId>;

/// Of a pool that is open. Who gives no answer, or is of a version that cannot tell, says nothing: how a pool does is told without that.
pub fn of_open(pool: &Pool) -> PageWaits {
    let waits = pool.client().block_on(pool.page_waits()).unwrap_or_default();
    waits.into_iter().filter_map(|(target, wait)| Some((target, wait??.damaged))).collect()
}

/// Of any pool. Nobody is asked where no target is behind.
pub fn of_pool(client: &Client, info: &PoolInfo) -> PageWaits {
    if !info.map.targets.iter().any(|target| target.reason == Some(DownReason::Behind)) {
        return PageWaits::new();
    }
    match client.block_on(client.pool_open(&Name::Uuid(info.uuid), OpenMode::ReadOnly)) {
        Ok(pool) => of_open(&pool),
        Err(_) => PageWaits::new(),
    }
}
