//! States of engines, and what follows from them for their targets.
//!
//! An engine that gives no answer is *down* until it answers. One that stops in order says so before, and is *stopped*
//! until it joins with another start: then it is *joining*, and up when its targets have been told what they hold. Where groups are to go on without it, its targets
//! are down in all pool maps. One that an administrator has *excluded* is out, answer or not, until that is taken back,
//! and so are its targets. Targets that come back, and have shown that they hold what they held (`stores`), are *behind*:
//! what has copies was changed without them. They are up when they have caught up. Each change has a number of its own (`members_version`), and each target
//! has the version of the map that changed it.
//!
//! Invariant: the engine, and the maps of all pools it has targets in, change in one commit. All these pools are
//! written, changed or not, so that whoever weighs the state of one of its targets at the same time decides again.

use super::leads::who_may_lose;
use super::{Service, Targets};
use crate::keys;
use crate::records::{EngineDf, MemberDf, TargetDf};
use crate::store::{Attempts, Loaded, Tx};
use async_recursion::async_recursion as boxed;
use types::map::HashMap;
use types::{Code, Error, Rank, Result, TargetId};
use uuid::Uuid;
use wire::control::{ControlReply, MemberState, TargetAim};
use wire::map::{DownReason, EngineInfo, TargetState};

/// Why an engine is joining.
pub(super) const STARTED: &str = "it has started, and is told what it holds";

/// Which start of each engine has joined, and which has said that it leaves, since this service began.
#[derive(Default)]
pub(super) struct Starts {
    pub joined: HashMap<Uuid, u64>,
    pub has_left: HashMap<Uuid, u64>,
}

impl Starts {
    /// The start of the engine at this place of the catalog that has joined last, as far as is known.
    fn joined_at(&self, key: &str) -> Option<u64> {
        self.joined
            .iter()
            .find(|(engine, _)| keys::engine(**engine) == key)
            .map(|(_, start)| *start)
    }
}

impl Service {
    /// All engines with their targets and states, and since which change of the members they have these, by rank: whom orders may
    /// have to reach.
    #[boxed(?Send)]
    pub async fn members(&self) -> Result<Vec<(EngineInfo, Vec<TargetId>, MemberState, u32)>> {
        let engines = self.store.engines().await?.into_iter();
        let of = |engine: EngineDf| {
            (engine.info(), engine.targets, engine.member.state, engine.member.since)
        };
        Ok(engines.map(of).collect())
    }

    /// An engine has given no answer for long. With `fails_over` its targets are down, and all others are told.
    /// Nothing happens unless it is up or joining, nor when it has been started again before this is written: what it leads has to run out
    /// first, which takes longer than many a start.
    #[boxed(?Send)]
    pub async fn engine_is_silent(
        &self,
        rank: Rank,
        why: &str,
        fails_over: bool,
        orders: &dyn Targets,
    ) -> Result<()> {
        let mut change = Change::new(MemberState::Down, why, fails_over);
        change.unless_started = true;
        self.change_member(rank, &[MemberState::Up, MemberState::Joining], change, orders).await
    }

    /// An engine is about to stop: its targets are down in the maps of all pools where somebody could go on without
    /// them, and all are told. Nothing happens when no other engine is up, nor by a word of an earlier start.
    pub(super) async fn engine_leaves(
        &self,
        uuid: Uuid,
        start: u64,
        fails_over: bool,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let Some(engine) = self.store.engine(uuid).await? else {
            return Err(Error::new(Code::NonExist, "the engine is not in the system"));
        };
        let has_started_again =
            || self.starts.borrow().joined.get(&uuid).is_some_and(|joined| *joined != start);
        if has_started_again() {
            return Ok(ControlReply::Done);
        }
        self.starts.borrow_mut().has_left.insert(uuid, start);
        let rank = engine.record.rank;
        let from = [MemberState::Up, MemberState::Down, MemberState::Joining];
        let mut change = Change::new(MemberState::Stopped, "stopped", fails_over);
        change.others_stay = true;
        self.change_member(rank, &from, change, orders).await?;
        if has_started_again() {
            // It has not waited for this, and joined before it was written.
            let change = Change::new(MemberState::Joining, STARTED, false);
            self.change_member(rank, &[MemberState::Stopped], change, orders).await?;
        }
        Ok(ControlReply::Done)
    }

    /// One that has stopped stays away: its targets are down in all maps, also where nobody could go on without them
    /// at first.
    #[boxed(?Send)]
    pub async fn engine_stays_away(&self, rank: Rank, orders: &dyn Targets) -> Result<()> {
        let change = Change::new(MemberState::Stopped, "stopped", true);
        self.change_member(rank, &[MemberState::Stopped], change, orders).await
    }

    /// An engine that was down answers again.
    pub(super) async fn engine_is_back(&self, rank: Rank, orders: &dyn Targets) -> Result<()> {
        let change = Change::new(MemberState::Up, "it answers again", false);
        self.change_member(rank, &[MemberState::Down, MemberState::Joining], change, orders).await
    }

    pub(super) async fn exclude(
        &self,
        rank: Rank,
        why: &str,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let from = [MemberState::Up, MemberState::Down, MemberState::Stopped, MemberState::Joining];
        let why = if why.is_empty() { "by an administrator" } else { why };
        let change = Change::new(MemberState::Excluded, why, true);
        self.change_member(rank, &from, change, orders).await?;
        Ok(ControlReply::Done)
    }

    pub(super) async fn clear_exclude(
        &self,
        rank: Rank,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let from = [MemberState::Excluded];
        let why = "no longer excluded, but it has not answered yet";
        let change = Change::new(MemberState::Down, why, true);
        self.change_member(rank, &from, change, orders).await?;
        if orders.reachable(rank) {
            for (target, error) in self.resume_engine(rank, orders).await? {
                tracing::warn!(%target, "it is told again soon: {error}");
                self.note_untold(rank);
            }
        }
        Ok(ControlReply::Done)
    }

    /// Gives an engine a state if it has one of `from`, and all who answer the maps that follow.
    async fn change_member(
        &self,
        rank: Rank,
        from: &[MemberState],
        change: Change<'_>,
        orders: &dyn Targets,
    ) -> Result<()> {
        let Change { to, why, of_targets, others_stay, unless_started } = change;
        let mut attempts = Attempts::new();
        let mut begun_with = None;
        loop {
            attempts.next()?;
            let mut system = self.system().await?;
            let mut engine = self.engine_of_rank(rank).await?;
            if !from.contains(&engine.record.member.state) {
                return Ok(());
            }
            let start = || self.starts.borrow().joined_at(&engine.key);
            let begun_with = *begun_with.get_or_insert_with(start);
            let is_still_to_be = || !unless_started || start() == begun_with;
            if !is_still_to_be() {
                tracing::info!(%rank, "an engine was started again before it was called down");
                return Ok(());
            }
            let is_up =
                |engine: &EngineDf| engine.rank != rank && engine.member.state == MemberState::Up;
            let engines = self.store.engines().await?;
            if others_stay && !engines.iter().any(is_up) {
                return Ok(());
            }
            let was = engine.record.member.state;
            let is_known = was == to;
            let serves = |target: &TargetDf| {
                let is_there = |engine: &EngineDf| engine.rank == target.rank && is_up(engine);
                target.state == TargetState::Up && engines.iter().any(is_there)
            };
            system.record.members_version += 1;
            engine.record.member = MemberDf {
                state: to,
                why: why.to_string(),
                since: system.record.members_version,
                changed_ns: (self.wall_ns)(),
                drains: engine.record.member.drains,
            };
            let mut tx = Tx::new().replace(&system).replace(&engine);
            let (mut affected, mut losing) = (Vec::new(), Vec::new());
            let pools = if of_targets { self.pools_left().await? } else { Vec::new() };
            for mut pool in pools {
                let version = pool.record.map_version + 1;
                if others_stay && !pool.record.targets.iter().any(serves) {
                    tx = tx.replace(&pool);
                    continue;
                }
                let before = pool.record.clone();
                let mut own = pool.record.targets.iter_mut().filter(|t| t.rank == rank).peekable();
                if own.peek().is_none() {
                    continue;
                }
                if own.fold(false, |changed, target| follow(target, to, version) | changed) {
                    pool.record.map_version = version;
                    losing.push((pool.record.id, version, who_may_lose(&before, &pool.record)));
                    affected.push(pool.record.clone());
                }
                tx = tx.replace(&pool);
            }
            if is_known && affected.is_empty() {
                return Ok(());
            }
            if self.commit_maps_while(tx, losing, orders, &is_still_to_be).await? {
                tracing::warn!(%rank, state = ?to, "an engine has another state now: {why}");
                // One that is only about to be told what it holds is told of when it is up.
                let is_passing = to == MemberState::Joining
                    || to == MemberState::Down
                        && was == MemberState::Excluded
                        && orders.reachable(rank);
                if !is_known && !is_passing {
                    self.tell_member(rank, to, why);
                }
                self.push_maps(&affected, None, orders).await?;
                return Ok(());
            }
        }
    }

    pub(super) async fn engine_of_rank(&self, rank: Rank) -> Result<Loaded<EngineDf>> {
        let engines = self.store.loaded_engines().await?;
        engines.into_iter().find(|engine| engine.record.rank == rank).ok_or_else(|| {
            let text = format!("there is no engine {rank}; list the engines to see their ranks");
            Error::new(Code::NonExist, text)
        })
    }
}

/// A change of an engine's state.
struct Change<'a> {
    to: MemberState,
    /// For people.
    why: &'a str,
    /// Its targets change, too.
    of_targets: bool,
    /// Targets change only in pools that are served without them, and nothing does where no other engine is up.
    others_stay: bool,
    /// Nothing changes once the engine has joined with another start than when this began.
    unless_started: bool,
}

impl Change<'_> {
    fn new(to: MemberState, why: &str, of_targets: bool) -> Change<'_> {
        Change { to, why, of_targets, others_stay: false, unless_started: false }
    }
}

/// What the state of its engine does to a target, with the map of this version; true if it does anything.
/// Up it is only once it has shown what it holds.
fn follow(target: &mut TargetDf, engine: MemberState, version: u32) -> bool {
    if (target.aim, target.reason) == (TargetAim::Exclude, Some(DownReason::Excluded)) {
        return false;
    }
    let reason = match (engine, target.state, target.reason) {
        (MemberState::Down, TargetState::Up, _)
        | (MemberState::Down, TargetState::Down, Some(DownReason::Excluded | DownReason::Behind)) => {
            DownReason::Silent
        }
        (MemberState::Excluded, TargetState::Up, _)
        | (
            MemberState::Excluded,
            TargetState::Down,
            Some(DownReason::Silent | DownReason::Stopped | DownReason::Behind),
        ) => DownReason::Excluded,
        (MemberState::Stopped, TargetState::Up, _)
        | (
            MemberState::Stopped,
            TargetState::Down,
            Some(DownReason::Silent | DownReason::Behind),
        ) => DownReason::Stopped,
        _ => return false,
    };
    target.turn(TargetState::Down, Some(reason), version)
}
