//! Dropping what a target holds of groups that are not its own any more.
//!
//! It stood in for another one that is back, or was about to. One that is out itself keeps what it has: it may come back, and then
//! needs only what has changed.

use crate::target::{Target, TargetPool};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Error, PoolId, Result, Unit};
use vos::OrphanChange;
use wire::map::PoolMap;
use wire::obj::TxOutcome;

/// Pause before another try.
const PAUSE: Duration = Duration::from_secs(1);

impl Target {
    /// After a change of the map: begins to drop what is of others, where there may be any.
    pub(crate) fn clear_leftovers(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        before: Option<&PoolMap>,
    ) {
        let Ok(map) = ctx.map() else { return };
        if !ctx.is_unsure()
            && let Err(error) = self.drop_parts_of_others(ctx, &map)
        {
            tracing::warn!("target {}: parts of groups of others are held: {error}", self.id);
        }
        let has_moved = before.is_none_or(|before| {
            // What was left to drop when it was lost is not known.
            let moves = |map: &PoolMap| {
                (map.outs.clone(), map.next.clone(), map.balanced, map.next_passed.clone())
            };
            moves(before) != moves(&map) || !placement::is_live(self.id, before)
        });
        if !has_moved || !self.may_clear(ctx, &map) || !ctx.shard.holds_copies() {
            return;
        }
        if !ctx.joining.begin_clearing() {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            while !target.is_done_with(&ctx) {
                let Ok(map) = ctx.map() else { break };
                if !target.may_clear(&ctx, &map) {
                    break;
                }
                match target.clear_once(&ctx, &map).await {
                    // There may be more by now.
                    Ok(_) if ctx.map_version() != map.version => {}
                    Ok(count) => {
                        if count > 0 {
                            let id = target.id;
                            tracing::info!("target {id}: pool {pool}: dropped {count} units");
                        }
                        ctx.joining.end_clearing();
                        target.end_lacking(&ctx, &map);
                        break;
                    }
                    Err(error) => {
                        tracing::info!("target {}: dropping what is of others: {error}", target.id);
                        // timer: a pause before another try.
                        target.env.sleep(PAUSE).await;
                    }
                }
            }
            ctx.joining.end_clearing();
        });
    }

    /// Notes that nothing is missing here, and nothing is here that is not kept up to date, where that is so.
    pub(crate) fn end_lacking(&self, ctx: &TargetPool, map: &PoolMap) {
        let is_settled = map.next.is_none() && self.may_clear(ctx, map);
        if !is_settled || ctx.joining.is_clearing() || !self.are_old_parts_settled(ctx, map) {
            return;
        }
        ctx.joining.forget_doubts();
        if let Err(error) = ctx.shard.end_lacking() {
            // It compares more than it has to, the next time.
            tracing::info!("target {}: noting that nothing is missing: {error}", self.id);
        }
    }

    /// Only where it is settled whose everything is. Who had no room for what it was to take over has to have its room again.
    fn may_clear(&self, ctx: &TargetPool, map: &PoolMap) -> bool {
        let is_going = map.next.iter().flatten().any(|out| out.target == self.id);
        let is_passed = !is_going && map.next_passed.iter().any(|passed| passed.target == self.id);
        (map.next.is_none() || is_passed)
            && placement::is_live(self.id, map)
            && !map.outs.iter().any(|out| out.target == self.id)
            && !ctx.is_unsure()
    }

    /// Drops all of it; how many units there were.
    async fn clear_once(self: &Rc<Self>, ctx: &Rc<TargetPool>, map: &PoolMap) -> Result<u64> {
        self.clear_notes(ctx, map)?;
        let mut count = 0;
        ctx.every_unit(async |cont, unit| {
            let is_strange = match unit.is_cell() {
                true => self.is_strange_cell(map, unit),
                false => self.is_strange(map, unit),
            };
            if is_strange {
                self.clear_unit(ctx, map, cont, unit).await?;
                count += 1;
            }
            Ok(())
        })
        .await?;
        Ok(count)
    }

    async fn clear_unit(
        &self,
        ctx: &TargetPool,
        map: &PoolMap,
        cont: ContId,
        unit: Unit,
    ) -> Result<()> {
        for (dkey, _) in self.keys_here(ctx, cont, unit).await? {
            if ctx.map_version() != map.version {
                return Err(Error::new(Code::Stale, "the pool map has changed meanwhile"));
            }
            ctx.shard.install_dkey(cont, unit, &dkey, &vos::image_of_nothing(unit, &dkey)).await?;
        }
        Ok(())
    }

    /// Drops parts of groups that are not its own any more, at once, whatever else is kept: nobody tells this target how they are decided. Whoever is out and comes back gets what they have changed
    /// with the keys.
    fn drop_parts_of_others(&self, ctx: &TargetPool, map: &PoolMap) -> Result<()> {
        for (tx, _) in ctx.shard.prepared() {
            // Groups of one member each may be in one part, and may have gone to different targets.
            let units = crate::commit::part_units(ctx, tx);
            if !units.is_empty() && units.iter().all(|unit| self.is_strange(map, *unit)) {
                tracing::debug!("target {}: drops part {tx:?} of others", self.id);
                ctx.shard.decide(tx, TxOutcome::Aborted, None, &[])?;
                ctx.undecided.wake(&tx);
            }
        }
        Ok(())
    }

    /// Parts, decisions, answers and nameless objects of others. In one step: no other map comes meanwhile.
    fn clear_notes(&self, ctx: &TargetPool, map: &PoolMap) -> Result<()> {
        let is_strange = |unit: &Unit| self.is_strange(map, *unit);
        self.drop_parts_of_others(ctx, map)?;
        for (tx, _, participants) in ctx.shard.decisions() {
            if participants.first().is_some_and(is_strange) {
                ctx.shard.forget_decision(tx)?;
            }
        }
        for (tx, of) in ctx.shard.shared_replies() {
            if is_strange(&of) {
                ctx.shard.forget_reply(tx)?;
            }
        }
        for (cont, unit) in ctx.shard.orphans() {
            if is_strange(&unit) {
                let payload = self.stage(ctx, &[])?;
                let change = [OrphanChange::Remove(unit)];
                ctx.shard.apply(cont, ctx.shard.last_epoch(), &[], payload, None, &change)?;
            }
        }
        Ok(())
    }
}
