//! Further targets for a pool.
//!
//! They come in two steps. First they are in the map and hold an empty part, and are told of all containers; then a new
//! placement epoch begins, with which objects are placed over them, too. Objects that are there keep their epoch, and their places.
//! Cut off in between, it is finished by doing it again.

use super::Service;
use super::orders::{Targets, failure, order_each};
use super::pool::{shard_order, target_ids};
use super::weights::{next_epoch, weigh_again};
use crate::records::{PlacementDf, PoolDf, TargetDf};
use crate::store::{Attempts, Tx};
use types::{Code, Error, Result, TargetId};
use wire::control::{ControlReply, MemberState, Name};

impl Service {
    /// Errors: `NonExist` for targets that are not in the system, `Unreach` when one gives no answer: then nothing has changed.
    pub(super) async fn pool_extend(
        &self,
        name: &Name,
        targets: &[TargetId],
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let pool = self.ready_pool(name).await?.record;
        let label = pool.name();
        let added = self.new_targets(&pool, targets).await?;
        let ids: Vec<TargetId> = added.iter().map(|target| target.id).collect();
        let (made, failures) = order_each(orders, ids.iter().copied(), || shard_order(&pool)).await;
        if !failures.is_empty() {
            let doing = format!("pool '{label}' is not extended");
            return Err(failure(&doing, &failures, "mend that or leave those targets out"));
        }
        let mut attempts = Attempts::new();
        let known = loop {
            attempts.next()?;
            let mut pool = self.ready_pool(&Name::Uuid(pool.uuid)).await?;
            let is_new =
                |target: &&TargetDf| !pool.record.targets.iter().any(|t| t.id == target.id);
            let new: Vec<TargetDf> = added.iter().filter(is_new).cloned().collect();
            if new.is_empty() {
                break pool.record;
            }
            let before = pool.record.clone();
            pool.record.map_version += 1;
            let since = pool.record.map_version;
            pool.record.targets.extend(new.into_iter().map(|target| {
                let made = made.iter().find(|(id, _)| *id == target.id);
                let incarnation = made.map_or(0, |(_, reply)| reply.incarnation);
                TargetDf { since, incarnation, ..target }
            }));
            pool.record.targets.sort_unstable_by_key(|target| target.id);
            let tx = Tx::new().replace(&pool);
            if self.commit_map(tx, (&before, &pool.record), orders).await? {
                self.push_maps(std::slice::from_ref(&pool.record), None, orders).await?;
                break pool.record;
            }
        };
        let failures = self.resume_or_note(&known, &ids, orders).await?;
        if !failures.is_empty() {
            let doing = format!("pool '{label}' has further targets, but uses them not yet");
            return Err(failure(&doing, &failures, "extend it again when they answer"));
        }
        self.place_over_all(&pool, orders).await?;
        let now = self.ready_pool(&Name::Uuid(pool.uuid)).await?.record;
        self.push_maps(std::slice::from_ref(&now), None, orders).await?;
        tracing::info!(pool = %label, targets = ?ids, "the pool has further targets");
        Ok(ControlReply::Pool(self.pool_info(&now).await?))
    }

    /// Those that are meant, but those over which objects are placed already.
    async fn new_targets(&self, pool: &PoolDf, wanted: &[TargetId]) -> Result<Vec<TargetDf>> {
        let placed = pool.placements.last();
        let is_placed = |id: TargetId| {
            placed.is_some_and(|set| set.weights.iter().any(|(placed, _)| *placed == id))
        };
        let mut all = Vec::new();
        for engine in self.store.engines().await? {
            let serves = engine.member.state == MemberState::Up && !engine.member.drains;
            if engine.member.drains && engine.targets.iter().any(|id| wanted.contains(id)) {
                return Err(Service::is_emptied(engine.rank));
            }
            let of = engine.targets.iter().filter(|id| match wanted.is_empty() {
                true => serves,
                false => wanted.contains(id),
            });
            all.extend(of.map(|id| TargetDf::new(*id, engine.rank)));
        }
        if let Some(id) = wanted.iter().find(|id| !all.iter().any(|target| target.id == **id)) {
            let text = format!("there is no target {id}; list the engines to see theirs");
            return Err(Error::new(Code::NonExist, text));
        }
        all.retain(|target| !is_placed(target.id));
        if all.is_empty() {
            let text = format!("pool '{}' is on all of these targets already", pool.name());
            return Err(Error::new(Code::Exist, text));
        }
        Ok(all)
    }

    /// Begins a placement epoch over all targets of a pool.
    async fn place_over_all(&self, pool: &PoolDf, orders: &dyn Targets) -> Result<()> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let mut pool = self.ready_pool(&Name::Uuid(pool.uuid)).await?;
            let ids = target_ids(&pool.record);
            let last = pool.record.placements.last();
            // By target: weights made of what is measured now may be others than those of a moment ago.
            let is_over_all = |set: &PlacementDf| set.weights.iter().map(|(id, _)| id).eq(&ids);
            if last.is_some_and(is_over_all) {
                return Ok(());
            }
            let weights = weigh_again(&pool.record, &ids, orders).await?;
            let before = pool.record.clone();
            let epoch = next_epoch(&pool.record)?;
            pool.record.placements.push(PlacementDf { epoch, weights });
            pool.record.map_version += 1;
            let follows = pool.record.balance.is_auto && !pool.record.balance.is_stopped;
            if follows && self.has_room_for_shares(&pool.record, orders).await {
                // Now, and not when shares are looked at next.
                pool.record.balance_wanted = epoch;
            }
            let tx = Tx::new().replace(&pool);
            if self.commit_map(tx, (&before, &pool.record), orders).await? {
                return Ok(());
            }
        }
    }
}
