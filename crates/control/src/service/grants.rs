//! Who may show what it leads without asking those who follow.
//!
//! A leader that is cut off and replaced must show nobody what others have changed since. So a target shows what it leads only while that is
//! granted to it, by the holder of the control service, for a term; else it asks those who follow. An engine asks for its targets, and counts the term from before it
//! asked; here it is counted from the answer, and a little longer. Whoever may lose a group by a change of the map ([`super::leads`]) gives its grant
//! back before the change is committed; for one that gives no answer it is waited until its grant has run out.
//!
//! Invariants:
//! - A grant is of a map. None is given for one after which a change was committed, or may have been, by which somebody loses a group.
//! - What an earlier holder has granted is not known here. It granted nothing after this one took over, so it has run out a term after that.

use super::{Service, Targets, leads};
use crate::records::PoolDf;
use crate::store::Tx;
use futures_util::future::{Either, join_all, select};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::time::Duration;
use types::map::HashMap;
use types::{Code, Error, PoolId, Result, TargetId};
use wire::control::ControlReply;
use wire::obj::AdminOp;

/// How long a grant holds, by the clock of who has it, counted from when it was asked for. Four questions go into it; a change of the map waits
/// no longer for one that is silent than it takes to find that out.
pub const LEAD_TERM: Duration = Duration::from_secs(2);
/// So much longer it is taken to hold by the clock of who has given it: two clocks run apart by a few hundred millionths, and
/// the term of a holder, by which it knows that it is one, is five times as long.
const MARGIN: Duration = Duration::from_millis(100);

/// What a service has granted.
#[derive(Default)]
pub(super) struct Grants {
    /// When the service began, at the latest, by the clock of its engine that goes on in sleep.
    begun: Cell<Option<Duration>>,
    /// Until when what was granted to a target may hold.
    until: RefCell<HashMap<TargetId, Duration>>,
    least: RefCell<HashMap<PoolId, Least>>,
}

/// Which maps of a pool grants are given for.
#[derive(Default)]
struct Least {
    /// With the newest one by which somebody has lost a group, or may have.
    committed: u32,
    /// Those that are being committed.
    pending: Vec<u32>,
}

impl Grants {
    /// Until when anything that a target was granted may hold.
    fn until_of(&self, target: TargetId, now: Duration) -> Duration {
        let begun = self.begun.get().unwrap_or(now);
        self.begun.set(Some(begun));
        let of_earlier = begun + LEAD_TERM + MARGIN;
        self.until.borrow().get(&target).map_or(of_earlier, |until| of_earlier.max(*until))
    }

    /// When the service began, if that is known.
    pub fn begun(&self) -> Option<Duration> {
        self.begun.get()
    }

    fn least_of(&self, pool: PoolId) -> u32 {
        self.least
            .borrow()
            .get(&pool)
            .map_or(0, |least| least.pending.iter().copied().fold(least.committed, u32::max))
    }

    fn begin(&self, pool: PoolId, version: u32) {
        self.least.borrow_mut().entry(pool).or_default().pending.push(version);
    }

    /// What was begun is over; `may_be_committed`: unless nothing has come of it.
    fn end(&self, pool: PoolId, version: u32, may_be_committed: bool) {
        let mut all = self.least.borrow_mut();
        let least = all.entry(pool).or_default();
        if let Some(at) = least.pending.iter().position(|pending| *pending == version) {
            least.pending.swap_remove(at);
        }
        if may_be_committed {
            least.committed = least.committed.max(version);
        }
    }
}

/// No grants are given for maps before these, as long as this lives.
struct Withheld<'a> {
    grants: &'a Grants,
    maps: Vec<(PoolId, u32)>,
    may_be_committed: bool,
}

impl Drop for Withheld<'_> {
    fn drop(&mut self) {
        for (pool, version) in &self.maps {
            self.grants.end(*pool, *version, self.may_be_committed);
        }
    }
}

impl Service {
    /// The service begins, or has begun, by its engine's clock that goes on in sleep.
    pub fn begins(&self, now: Duration) {
        self.grants.begun.set(Some(now));
    }

    /// An engine asks for its targets, which have these maps.
    ///
    /// Errors: `Busy` when another may hold the control service by now.
    pub(super) fn lead_grant(
        &self,
        targets: &[TargetId],
        known: Vec<(PoolId, u32)>,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        if !self.store.is_held() {
            return Err(Error::new(Code::Busy, "another engine may hold the control service"));
        }
        let is_newest = |(pool, version): &(PoolId, u32)| {
            // Of a pool whose targets were told nothing yet it is not known here which map that is.
            let told = self.told_last.borrow().get(pool).map(|map| map.version);
            told.is_some_and(|told| *version >= told.max(self.grants.least_of(*pool)))
        };
        let granted: Vec<PoolId> =
            known.into_iter().filter(is_newest).map(|(pool, _)| pool).collect();
        if !granted.is_empty() {
            let until = orders.now() + LEAD_TERM + MARGIN;
            self.grants.until.borrow_mut().extend(targets.iter().map(|target| (*target, until)));
        }
        Ok(ControlReply::Granted(granted))
    }

    /// Commits what changes the map of a pool, or of none: see [`Service::commit_maps`].
    pub(super) async fn commit_map(
        &self,
        tx: Tx,
        (before, after): (&PoolDf, &PoolDf),
        orders: &dyn Targets,
    ) -> Result<bool> {
        let losing = leads::who_may_lose(before, after);
        self.commit_maps(tx, vec![(after.id, after.map_version, losing)], orders).await
    }

    /// Commits changes of the maps of pools, once those targets have given back what they were granted that may lose a group by them.
    pub(super) async fn commit_maps(
        &self,
        tx: Tx,
        losing: Vec<(PoolId, u32, Vec<TargetId>)>,
        orders: &dyn Targets,
    ) -> Result<bool> {
        self.commit_maps_while(tx, losing, orders, &|| true).await
    }

    /// The same, if that is still to be when they have: it takes seconds where one of them gives no answer. False when not.
    pub(super) async fn commit_maps_while(
        &self,
        tx: Tx,
        mut losing: Vec<(PoolId, u32, Vec<TargetId>)>,
        orders: &dyn Targets,
        is_still_to_be: &dyn Fn() -> bool,
    ) -> Result<bool> {
        losing.retain(|(.., targets)| !targets.is_empty());
        let maps: Vec<(PoolId, u32)> =
            losing.iter().map(|(pool, version, _)| (*pool, *version)).collect();
        maps.iter().for_each(|(pool, version)| self.grants.begin(*pool, *version));
        let mut withheld = Withheld { grants: &self.grants, maps, may_be_committed: false };
        let each = losing.iter().flat_map(|(pool, _, targets)| {
            targets.iter().map(|target| self.take_back(*pool, *target, orders))
        });
        join_all(each).await;
        if !is_still_to_be() {
            return Ok(false);
        }
        withheld.may_be_committed = true;
        let outcome = self.store.commit(tx).await;
        withheld.may_be_committed = outcome != Ok(false);
        outcome
    }

    /// Ends when a target shows nothing of a pool without asking others.
    async fn take_back(&self, pool: PoolId, target: TargetId, orders: &dyn Targets) {
        let until = self.grants.until_of(target, orders.now());
        if until <= orders.now() {
            return;
        }
        let given = pin!(orders.order(target, AdminOp::GiveLeadBack { pool }));
        let over = pin!(orders.until(until));
        if let Either::Left((Err(error), over)) = select(given, over).await {
            tracing::debug!(%target, "its grant has to run out: {error}");
            over.await;
        }
    }
}
