//! Whether a pool has room for what is to move in it.
//!
//! What was lost is made anew as far as there is room, and people are told how much is lacking; it is tried again when there is some. A balance that
//! could not end does not begin: nobody lacks anything without it, and while it waits for room orders go to two places.

use super::Service;
use super::orders::{Targets, order_each};
use crate::records::{ContPropsDf, OutDf, PassedDf, PoolDf, StageDf, TargetDf};
use crate::store::Tx;
use async_recursion::async_recursion as boxed;
use placement::{
    Filled, Room, has_room_for_part, lost_for_want_of_room, room_for_shares, room_without,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use types::{Code, ContLayout, Error, PoolId, Result, TargetId, size};
use wire::control::Name;
use wire::event::{EventCode, Happened};
use wire::map::{PoolMap, TargetState};
use wire::obj::AdminOp;
use wire::reply::kept_when_joining;

/// What was seen of room.
#[derive(Default)]
pub(super) struct Looks {
    /// The newest placement epoch of pools that had no room for its shares, and people were told.
    told_shares: RefCell<BTreeMap<PoolId, u8>>,
    /// What targets held when they were last to stand in for those of a round, bytes: who had no room then has none before it holds less.
    tried_with: RefCell<BTreeMap<(PoolId, u32), BTreeMap<TargetId, u64>>>,
}

impl PoolDf {
    /// What there may be of the pool on a target, bytes.
    pub(super) fn shard_bytes(&self) -> u64 {
        self.shard_scm_bytes + self.shard_nvme_bytes
    }
}

impl Service {
    /// What targets of a pool hold that are up and answer.
    async fn filled(&self, pool: &PoolDf, orders: &dyn Targets) -> Vec<Filled> {
        let is_up = |target: &&TargetDf| target.state == TargetState::Up;
        let up = pool.targets.iter().filter(is_up).map(|target| target.id);
        let order = || AdminOp::Measure { ask: None, pool: Some(pool.id) };
        let (replies, _) = order_each(orders, up, order).await;
        let bytes = pool.shard_bytes();
        let filled = replies.into_iter().filter_map(|(target, reply)| {
            Some(Filled::of_sum(target, reply.standing?.used_bytes, bytes))
        });
        filled.collect()
    }

    /// Looks at the room for what has begun to move, and tells when it is too little for all that targets hold, or held, for which others come to stand
    /// in from now on.
    pub(super) async fn look_at_room(&self, pool: &PoolDf, orders: &dyn Targets) {
        let begins = |out: &&OutDf| !pool.outs.contains(out);
        let begin: Vec<&OutDf> = pool.next.iter().flatten().filter(begins).collect();
        if begin.is_empty() {
            return;
        }
        let filled = self.filled(pool, orders).await;
        for out in &begin {
            self.note_tried(pool, out.round, &filled, false);
        }
        let stood_in = |id: TargetId| pool.outs.iter().any(|out| out.target == id);
        let mut gone: Vec<TargetId> =
            begin.iter().map(|out| out.target).filter(|id| !stood_in(*id)).collect();
        let gives = |id: TargetId| {
            let is_up = |target: &TargetDf| target.id == id && target.state == TargetState::Up;
            pool.targets.iter().any(is_up)
        };
        // What has no copies is not made anew.
        let has_copies = self.has_copies(pool.id).await.unwrap_or(false);
        gone.retain(|id| has_copies || gives(*id));
        let Ok(map) = self.map(pool).await else { return };
        let room = room_without(&map, &gone, &filled);
        if room.lacking == 0 {
            return;
        }
        let ids: Vec<u32> = gone.iter().map(|id| id.0).collect();
        let name = pool.name();
        let what = format!(
            "pool '{name}' has too little room for all that others are to have in place of targets {ids:?}: {}",
            in_words(&room)
        );
        tracing::warn!(pool = %name, "{what}");
        self.tell(Happened::new(EventCode::RoomLacking, what).of_pool(pool.id));
    }

    /// Some container has copies, or codes, where nobody names another class.
    async fn has_copies(&self, pool: PoolId) -> Result<bool> {
        let conts = self.conts_left(pool).await?;
        let has = |props: &ContPropsDf| {
            let classes = match props.layout {
                ContLayout::Plain => vec![props.oclass],
                ContLayout::Posix => vec![props.dir_oclass, props.file_oclass],
            };
            let mut factors = classes.iter().map(|class| class.scheme.redundancy_factor());
            props.rd_fac > 0 || factors.all(|factor| factor > 0)
        };
        Ok(conts.iter().any(|cont| has(&cont.record.props)))
    }

    /// Notes what targets hold that are to stand in for those of a round. `anew`: they were asked before.
    fn note_tried(&self, pool: &PoolDf, round: u32, filled: &[Filled], anew: bool) {
        let mut tried = self.room.tried_with.borrow_mut();
        let lives = |round: u32| {
            pool.outs.iter().chain(pool.next.iter().flatten()).any(|out| out.round == round)
        };
        tried.retain(|(of, round), _| *of != pool.id || lives(*round));
        let held = filled.iter().map(|of| (of.target, of.used)).collect();
        if anew || !tried.contains_key(&(pool.id, round)) {
            tried.insert((pool.id, round), held);
        }
    }

    /// Has those tried once more that had no room to stand in and hold less now, where groups lack copies for that.
    ///
    /// Errors: those of the catalog.
    #[boxed(?Send)]
    pub async fn retry_spares(&self, orders: &dyn Targets) -> Result<()> {
        for mut pool in self.store.pools().await? {
            let at_rest = pool.record.next.is_none()
                && !pool.record.is_rebuild_stopped
                && !pool.record.tries_spares_again;
            if pool.record.stage != StageDf::Ready || !at_rest || pool.record.passed.is_empty() {
                continue;
            }
            let map = self.map(&pool.record).await?;
            let width = self.members_wanted(pool.record.id).await?;
            let width = width.max(self.copies_wanted(pool.record.id).await?);
            let lost = lost_for_want_of_room(width, &map);
            if lost.is_empty() {
                continue;
            }
            let filled = self.filled(&pool.record, orders).await;
            let has_room = |passed: &&PassedDf| {
                let of_round = pool.record.outs.iter().filter(|out| out.round == passed.round);
                let gone: Vec<TargetId> =
                    of_round.map(|out| out.target).filter(|id| lost.contains(id)).collect();
                !gone.is_empty()
                    && self.holds_less(&pool.record, passed, &filled)
                    && has_room_for_part(&map, &gone, &filled, passed.target)
            };
            let roomy: Vec<PassedDf> =
                pool.record.passed.iter().filter(has_room).copied().collect();
            if roomy.is_empty() {
                continue;
            }
            pool.record.tries_spares_again = true;
            if self.store.commit(Tx::new().replace(&pool)).await? {
                for round in pool.record.passed.iter().map(|passed| passed.round) {
                    self.note_tried(&pool.record, round, &filled, true);
                }
                let ids: Vec<u32> = roomy.iter().map(|passed| passed.target.0).collect();
                tracing::warn!(
                    pool = %pool.record.name(),
                    "targets {ids:?} have room again: they are tried once more in place of {lost:?}"
                );
            }
        }
        Ok(())
    }

    /// True when a target holds so much less than when it had no room that something may come of it; when that is not known, too.
    fn holds_less(&self, pool: &PoolDf, passed: &PassedDf, filled: &[Filled]) -> bool {
        let tried = self.room.tried_with.borrow();
        let then = tried.get(&(pool.id, passed.round)).and_then(|held| held.get(&passed.target));
        let now = filled.iter().find(|of| of.target == passed.target);
        match (then, now) {
            (Some(then), Some(now)) => now.used + kept_when_joining(pool.shard_bytes()) <= *then,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }

    /// Errors: `NoSpace` where targets have no room for their shares by the newest placement epoch. While something moves part of it is there
    /// twice, and a target may not tell what it holds: neither is a reason.
    async fn check_shares(&self, pool: &PoolDf, orders: &dyn Targets) -> Result<()> {
        if pool.next.is_some() {
            return Ok(());
        }
        let map: PoolMap = self.map(pool).await?;
        let filled = self.filled(pool, orders).await;
        match room_for_shares(&map, &filled) {
            Some(room) if room.lacking > 0 => {
                let text = format!(
                    "targets of pool '{}' have too little room for their shares: {}; take in further targets first: 'azekura pool extend'",
                    pool.name(),
                    in_words(&room)
                );
                Err(Error::new(Code::NoSpace, text))
            }
            _ => Ok(()),
        }
    }

    /// For an administrator who wants a balance.
    ///
    /// Errors: `NoSpace` where it could not end.
    pub(super) async fn require_room_for_shares(
        &self,
        name: &Name,
        orders: &dyn Targets,
    ) -> Result<()> {
        let pool = self.ready_pool(name).await?.record;
        let newest = pool.placements.last().map_or(0, |set| set.epoch);
        match pool.balance_wanted == newest && !pool.balance.is_stopped {
            // It is on its way, or over.
            true => Ok(()),
            false => self.check_shares(&pool, orders).await,
        }
    }

    /// For a balance that begins by itself: false where it could not end. People are told once of each placement epoch.
    pub(super) async fn has_room_for_shares(&self, pool: &PoolDf, orders: &dyn Targets) -> bool {
        let Err(error) = self.check_shares(pool, orders).await else {
            self.room.told_shares.borrow_mut().remove(&pool.id);
            return true;
        };
        let epoch = pool.placements.last().map_or(0, |set| set.epoch);
        if self.room.told_shares.borrow_mut().insert(pool.id, epoch) != Some(epoch) {
            tracing::warn!(pool = %pool.name(), "{error}");
            let told = Happened::new(EventCode::RoomLacking, error.to_string());
            self.tell(told.of_pool(pool.id));
        }
        false
    }
}

fn in_words(room: &Room) -> String {
    format!(
        "about {} are to move, those that get it have room for {}, {} are lacking",
        size::format(room.moving),
        size::format(room.free),
        size::format(room.lacking)
    )
}
