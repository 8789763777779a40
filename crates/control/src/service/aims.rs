//! What an administrator wants of targets of a pool: to serve, to be drained, to be left alone.
//!
//! A wish is written down with the target, and takes effect by the moves that follow from it (`moves`). So it holds over
//! restarts of everything, and whoever holds the service then goes on with it.

use super::Service;
use super::orders::{Targets, failure};
use crate::records::{ContPropsDf, PoolDf, TargetDf};
use crate::store::{Attempts, Tx};
use std::collections::BTreeSet;
use types::{Code, Error, PoolId, Rank, Result, TargetId};
use wire::control::{ControlReply, Name, TargetAim};
use wire::map::{DownReason, TargetState};

impl Service {
    /// Errors: `NonExist` for targets that are not in the pool, `Busy` where too few others would be left.
    pub(super) async fn aim(
        &self,
        name: &Name,
        targets: &[TargetId],
        aim: TargetAim,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let mut pool = self.ready_pool(name).await?;
            let label = pool.record.name();
            let is_known = |id: &&TargetId| !pool.record.targets.iter().any(|t| t.id == **id);
            if let Some(id) = targets.iter().find(is_known) {
                let text = format!(
                    "pool '{label}' is not on target {id}; 'azekura pool query' lists its targets"
                );
                return Err(Error::new(Code::NonExist, text));
            }
            if aim != TargetAim::Serve {
                self.check_rest(&pool.record, targets, aim).await?;
            }
            let before = pool.record.clone();
            let version = before.map_version + 1;
            let mut is_new_map = false;
            let meant = pool.record.targets.iter_mut().filter(|held| targets.contains(&held.id));
            let meant: Vec<&mut TargetDf> = meant.filter(|held| held.aim != aim).collect();
            let changed: Vec<TargetId> = meant.iter().map(|held| held.id).collect();
            for target in meant {
                target.aim = aim;
                let serves =
                    target.info().holds_its_part() && target.reason != Some(DownReason::Excluded);
                if aim == TargetAim::Exclude && serves {
                    is_new_map |=
                        target.turn(TargetState::Down, Some(DownReason::Excluded), version);
                }
            }
            if changed.is_empty() && aim != TargetAim::Serve {
                return Ok(ControlReply::Done);
            }
            if is_new_map {
                pool.record.map_version = version;
            }
            let tx = Tx::new().replace(&pool);
            if self.commit_map(tx, (&before, &pool.record), orders).await? {
                tracing::warn!(pool = %label, targets = ?changed, "targets are to do something else: {aim:?}");
                if is_new_map {
                    self.push_maps(std::slice::from_ref(&pool.record), None, orders).await?;
                }
                if aim == TargetAim::Serve {
                    return self.serve_again(&pool.record, targets, orders).await;
                }
                return Ok(ControlReply::Done);
            }
        }
    }

    /// Has targets that were excluded show what they hold.
    async fn serve_again(
        &self,
        pool: &PoolDf,
        targets: &[TargetId],
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let is_out = |target: &&TargetDf| {
            targets.contains(&target.id) && target.reason == Some(DownReason::Excluded)
        };
        let out: Vec<TargetId> = pool.targets.iter().filter(is_out).map(|held| held.id).collect();
        let failures = self.resume_or_note(pool, &out, orders).await?;
        match failures.is_empty() {
            true => Ok(ControlReply::Done),
            false => {
                let doing = format!("targets of pool '{}' are to serve again", pool.name());
                Err(failure(&doing, &failures, "they do as soon as their engines answer"))
            }
        }
    }

    /// On how many engines copies of a pool's containers are to be; 1 at least.
    pub(super) async fn copies_wanted(&self, pool: PoolId) -> Result<usize> {
        let conts = self.conts_left(pool).await?;
        Ok(conts.iter().map(|cont| cont.record.props.rd_fac as usize + 1).max().unwrap_or(1))
    }

    /// Members of the widest groups that a pool's containers have where nobody names a class; 1 at least.
    pub(super) async fn members_wanted(&self, pool: PoolId) -> Result<usize> {
        let conts = self.conts_left(pool).await?;
        let widest = |props: &ContPropsDf| {
            let classes = [props.oclass, props.dir_oclass, props.file_oclass];
            classes.iter().map(|class| class.scheme.members()).max()
        };
        Ok(conts.iter().filter_map(|cont| widest(&cont.record.props)).max().unwrap_or(1))
    }

    /// `Busy` when those that are left cannot keep the copies apart that containers are to have, or, where nothing is to stay on
    /// those that go, are fewer than a group has members.
    pub(super) async fn check_rest(
        &self,
        pool: &PoolDf,
        targets: &[TargetId],
        aim: TargetAim,
    ) -> Result<()> {
        let stays = |target: &&TargetDf| {
            let is_there = target.state == TargetState::Up && target.aim == TargetAim::Serve;
            is_there && !targets.contains(&target.id)
        };
        let left: BTreeSet<Rank> =
            pool.targets.iter().filter(stays).map(|target| target.rank).collect();
        let wanted = self.copies_wanted(pool.id).await?;
        if left.len() < wanted {
            let text = format!(
                "pool '{}' would be left with targets that serve on {} engines, and its containers' copies are to be on {wanted}; \
                 take in others first: 'azekura pool extend'",
                pool.name(),
                left.len()
            );
            return Err(Error::new(Code::Busy, text));
        }
        let count = pool.targets.iter().filter(stays).count();
        let members = self.members_wanted(pool.id).await?;
        if aim == TargetAim::Drain && count < members {
            let text = format!(
                "pool '{}' would be left with {count} targets that serve, and groups of its containers have {members} members, each on \
                 another target; take in others first: 'azekura pool extend'",
                pool.name(),
            );
            return Err(Error::new(Code::Busy, text));
        }
        Ok(())
    }

    /// Has targets that were added come to take over their share. `by_hand`: an administrator wants it, so it is not stopped any more.
    pub(super) async fn balance(&self, name: &Name, by_hand: bool) -> Result<ControlReply> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let mut pool = self.ready_pool(name).await?;
            let newest = pool.record.placements.last().map_or(0, |set| set.epoch);
            let is_stopped = pool.record.balance.is_stopped;
            if (is_stopped && !by_hand) || (!is_stopped && pool.record.balance_wanted == newest) {
                return Ok(ControlReply::Done);
            }
            pool.record.balance.is_stopped = false;
            pool.record.balance_wanted = newest;
            if self.store.commit(Tx::new().replace(&pool)).await? {
                return Ok(ControlReply::Done);
            }
        }
    }

    /// Stops or starts that others come to stand in, or back.
    pub(super) async fn rebuild(&self, name: &Name, runs: bool) -> Result<ControlReply> {
        let mut attempts = Attempts::new();
        loop {
            attempts.next()?;
            let mut pool = self.ready_pool(name).await?;
            if pool.record.is_rebuild_stopped != runs {
                return Ok(ControlReply::Done);
            }
            pool.record.is_rebuild_stopped = !runs;
            pool.record.tries_spares_again = runs && !pool.record.passed.is_empty();
            if self.store.commit(Tx::new().replace(&pool)).await? {
                return Ok(ControlReply::Done);
            }
        }
    }
}
