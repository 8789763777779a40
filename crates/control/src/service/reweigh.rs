//! Shares of a pool that follow what its targets are worth: a new placement epoch with the weights of now.
//!
//! New objects are placed by it at once; what is there follows when the pool is balanced up to it (`moves`). By itself that happens where the
//! pool says so, and only for changes that are worth it: small ones and such as come soon after the last would move data to and fro.

use super::Service;
use super::orders::Targets;
use super::weights::{next_epoch, weigh_again};
use crate::records::{PlacementDf, PoolDf, StageDf};
use crate::store::{Attempts, Tx};
use async_recursion::async_recursion as boxed;
use placement::{change_percent, least_left_percent};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use types::{PlacementRule, PoolId, Result, TargetId};
use wire::control::{ControlReply, Name, Reweighed, TargetAim, TargetShare};
use wire::map::TargetState;

/// The newest placement epoch of each pool, and since when it is, by the clock of whoever looks.
pub(super) type Newest = RefCell<BTreeMap<PoolId, (u8, Duration)>>;

/// What an administrator asks for is done unless it changes next to nothing, percent of a share.
const BY_HAND_PERCENT: u64 = 1;
/// A target that keeps less than this of its share has become slow, percent.
const LEFT_PERCENT: u64 = 50;
/// Epochs that only administrators begin.
const EPOCHS_BY_HAND: u8 = 32;

impl Service {
    /// Errors: those of targets that do not tell how they stand.
    pub(super) async fn reweigh(
        &self,
        name: &Name,
        is_trial: bool,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let pool = self.ready_pool(name).await?.record;
        let weights = weigh_again(&pool, &placed(&pool), orders).await?;
        let before = newest(&pool);
        let is_news = change_percent(&before, &weights) >= BY_HAND_PERCENT;
        if is_news && !is_trial {
            self.place_by(&pool, weights.clone(), false, orders).await?;
        }
        let share = |(&(target, now), &(_, then)): (&(TargetId, u32), &(TargetId, u32))| {
            TargetShare { target, now, then }
        };
        let shares = before.iter().zip(&weights).map(share).collect();
        Ok(ControlReply::Reweighed(Reweighed { is_news, shares }))
    }

    /// Lets shares follow what targets are worth, and data the shares, in pools that are to do so by themselves. `now` is a clock that only
    /// ever grows.
    ///
    /// Errors: those of the catalog. A pool with targets that do not tell how they stand is left as it is.
    #[boxed(?Send)]
    pub async fn follow_worth(&self, now: Duration, orders: &dyn Targets) -> Result<()> {
        for pool in self.store.pools().await? {
            let pool = pool.record;
            if pool.stage != StageDf::Ready || !pool.balance.is_auto || pool.balance.is_stopped {
                continue;
            }
            let last = pool.placements.last().map_or(0, |set| set.epoch);
            let since = {
                let mut newest = self.newest.borrow_mut();
                let (epoch, since) = newest.entry(pool.id).or_insert((last, now));
                if *epoch != last {
                    (*epoch, *since) = (last, now);
                }
                *since
            };
            if pool.balance_wanted != last && self.has_room_for_shares(&pool, orders).await {
                // Targets that were added, or shares that were changed by hand.
                self.balance(&Name::Uuid(pool.uuid), false).await?;
            }
            // Those that are missing or leave say little about the shares to come.
            let serves = pool
                .targets
                .iter()
                .all(|target| target.state == TargetState::Up && target.aim == TargetAim::Serve);
            let is_still = pool.next.is_none() && pool.balanced == last && serves;
            let age = now.saturating_sub(since);
            if pool.placement == PlacementRule::Equal
                || !is_still
                || last >= u8::MAX - EPOCHS_BY_HAND
            {
                continue;
            }
            let weights = match weigh_again(&pool, &placed(&pool), orders).await {
                Ok(weights) => weights,
                Err(error) => {
                    tracing::debug!(pool = %pool.name(), "shares stay as they are: {error}");
                    continue;
                }
            };
            let before = newest(&pool);
            let percent = change_percent(&before, &weights);
            // What has become slow is not waited for.
            let is_due = age >= Duration::from_secs(pool.balance.interval_s.into())
                || least_left_percent(&before, &weights) < LEFT_PERCENT;
            if is_due && percent >= pool.balance.threshold_percent.max(1).into() {
                tracing::warn!(pool = %pool.name(), "shares of targets change by up to {percent} %: data follow");
                self.place_by(&pool, weights, true, orders).await?;
            }
        }
        Ok(())
    }

    /// Begins a placement epoch with these weights, unless the pool was changed since `seen`.
    async fn place_by(
        &self,
        seen: &PoolDf,
        weights: Vec<(TargetId, u32)>,
        is_balanced: bool,
        orders: &dyn Targets,
    ) -> Result<()> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let mut pool = self.ready_pool(&Name::Uuid(seen.uuid)).await?;
            let was_stopped = is_balanced && pool.record.balance.is_stopped;
            if pool.record.placements != seen.placements || was_stopped {
                return Ok(());
            }
            let before = pool.record.clone();
            let epoch = next_epoch(&before)?;
            pool.record.placements.push(PlacementDf { epoch, weights: weights.clone() });
            pool.record.map_version += 1;
            if is_balanced {
                pool.record.balance_wanted = epoch;
            }
            let tx = Tx::new().replace(&pool);
            if self.commit_map(tx, (&before, &pool.record), orders).await? {
                tracing::info!(pool = %pool.record.name(), "placement epoch {epoch}: {weights:?}");
                return self.push_maps(std::slice::from_ref(&pool.record), None, orders).await;
            }
        }
    }
}

fn newest(pool: &PoolDf) -> Vec<(TargetId, u32)> {
    pool.placements.last().map_or(Vec::new(), |set| set.weights.clone())
}

/// The targets that new objects are placed over.
fn placed(pool: &PoolDf) -> Vec<TargetId> {
    newest(pool).iter().map(|(target, _)| *target).collect()
}
