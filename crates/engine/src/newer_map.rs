//! Somebody asks with a newer pool map than this target has.
//!
//! Whoever is asked answers by its map. By an older one a target takes others for leaders than lead: it gives one that has given its groups away a part of a transaction, and
//! leaves out of a list what has come to itself. So it gets the newer map first. Mostly that is on its way, for everybody is told at once; else some other
//! engines are asked at the same time, since a map may be had from anybody ([`crate::gossip`]). If it is not here in time, the answer is `Stale` without a newer
//! map: who asks comes again, with growing pauses, until it gives up.
//!
//! Invariant: what is asked by a map is answered by that one or a newer one, or refused.

use crate::target::{Target, TargetPool};
use crate::waiters::Waiters;
use futures_util::future::join_all;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Error, Result, TargetId};
use wire::Header;
use wire::map::PoolMap;

/// A map that everybody is being told is waited for this long before others are asked.
const COMING_TIME_MAX: Duration = Duration::from_millis(50);
/// How long those who are asked may take.
const ASK_TIME_MAX: Duration = Duration::from_secs(1);
/// So many engines are asked at once.
const ASKED_AT_ONCE: u64 = 3;
/// Where none had it, nobody is asked again for so long: there may be no such map.
const MISSED_PAUSE: Duration = Duration::from_secs(1);

/// What a target knows of maps that it has not.
#[derive(Default)]
pub(crate) struct NewerMap {
    /// Those who wait for another map than they know.
    waiters: Waiters<()>,
    /// Others are being asked.
    is_asking: Cell<bool>,
    /// They are not asked before.
    not_before: Cell<Duration>,
    /// How many were asked so far: each time it is others' turn.
    asked: Cell<u64>,
}

impl NewerMap {
    /// Another map has come, or none will.
    pub fn wake(&self) {
        self.waiters.wake_all();
    }
}

impl Target {
    /// Makes sure that the map here is as new as that by which a request was made, or newer. `Stale` when it is not to be had.
    pub(crate) async fn know_map_of(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        header: &Header,
    ) -> Result<()> {
        // Nearly always.
        if header.map_version <= ctx.map_version() {
            return Ok(());
        }
        Box::pin(self.get_map(ctx, header.map_version)).await
    }

    async fn get_map(self: &Rc<Self>, ctx: &Rc<TargetPool>, version: u32) -> Result<()> {
        let newer = &ctx.newer_map;
        let is_known = || version <= ctx.map_version();
        if self.env.now() >= newer.not_before.get() {
            self.await_map(ctx, COMING_TIME_MAX, is_known).await;
            if !is_known() {
                self.ask_for_map(ctx);
                self.await_map(ctx, ASK_TIME_MAX, || is_known() || !newer.is_asking.get()).await;
            }
        }
        if is_known() {
            return Ok(());
        }
        let text = format!("target {} has not heard of map {version} of the pool yet", self.id);
        Err(Error::new(Code::Stale, text))
    }

    /// Waits for something that comes with a map, or for so long.
    pub(crate) async fn await_map(
        &self,
        ctx: &TargetPool,
        limit: Duration,
        is_over: impl Fn() -> bool,
    ) {
        let until = self.env.now() + limit;
        while !is_over() && !self.is_draining() {
            let left = until.saturating_sub(self.env.now());
            if left.is_zero() {
                return;
            }
            ctx.newer_map.waiters.wait(&self.env, (), left).await;
        }
    }

    /// Begins to ask others for the newest map that they have, if nobody is being asked.
    fn ask_for_map(self: &Rc<Self>, ctx: &Rc<TargetPool>) {
        let Ok(map) = ctx.map() else { return };
        if ctx.newer_map.is_asking.replace(true) {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            let others = target.others_with_maps(&ctx, &map).into_iter();
            let asked = others.map(|other| {
                let (target, ctx, map) = (&target, &ctx, &map);
                async move {
                    let asked = target.peers.map_of(map, other);
                    let Some(Ok(told)) = target.env.timeout(ASK_TIME_MAX, asked).await else {
                        return;
                    };
                    if told.pool == map.pool
                        && let Err(error) = target.take_meant(ctx, told)
                    {
                        tracing::debug!("target {}: map of target {other}: {error}", target.id);
                    }
                }
            });
            join_all(asked).await;
            let newer = &ctx.newer_map;
            if ctx.map_version() == map.version {
                newer.not_before.set(target.env.now() + MISSED_PAUSE);
            }
            newer.is_asking.set(false);
            newer.wake();
        });
    }

    /// A target on each of some other engines.
    fn others_with_maps(&self, ctx: &TargetPool, map: &PoolMap) -> BTreeSet<TargetId> {
        let Some(own) = map.target(self.id).map(|info| info.rank) else { return BTreeSet::new() };
        let first = ctx.newer_map.asked.get();
        ctx.newer_map.asked.set(first + ASKED_AT_ONCE);
        let engines = (first..first + ASKED_AT_ONCE).filter_map(|n| map.asked_in_round(n, own));
        let one_of = |rank| map.targets.iter().find(|info| info.rank == rank).map(|info| info.id);
        engines.filter_map(|engine| one_of(engine.rank)).collect()
    }
}
