//! Engines ask one another for newer pool maps.
//!
//! The holder of the control service tells every target each new map itself, which is fastest and enough as long as it reaches them
//! all. Where it does not reach one, that one's engine has the map from others: each engine asks one other each second, a different
//! one each time. Maps are committed in the catalog before anybody is told of them, so that the one with the greatest version is the
//! pool's, whoever it comes from.
//!
//! Invariant: a target gets its first map after a start from the control service, which says with it what is meant to be there.

use crate::control_host::ControlHost;
use crate::process::{Inbox, Order};
use crate::target::Target;
use futures_channel::oneshot;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Code, Error, PoolId, Result};
use wire::Kind;
use wire::control::{ControlReply, ControlRequest};
use wire::hello::Service as WireService;
use wire::map::{EngineInfo, PoolMap};

/// Pause between two questions.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How long one may take: the next one goes to another engine.
const ASK_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a target of this engine may take to tell what it knows.
const OWN_TIME_MAX: Duration = Duration::from_millis(500);
/// Maps of an answer, bytes; others are in the next one.
const ANSWER_BYTES_MAX: usize = types::limits::BODY_BYTES_MAX / 2;

/// What a target knows of pool maps.
#[derive(Default)]
pub(crate) struct KnownMaps {
    /// Versions of those it has.
    versions: Vec<(PoolId, u32)>,
    /// Another engine, out of one of them.
    neighbour: Option<EngineInfo>,
}

impl Target {
    /// What maps it has, and in each round another engine.
    pub(crate) fn known_maps(&self, round: u64) -> KnownMaps {
        let pools = self.pools.all().into_iter();
        let maps: BTreeMap<PoolId, Rc<PoolMap>> =
            pools.filter_map(|(pool, ctx)| Some((pool, ctx.known_map()?))).collect();
        let neighbour = || {
            let map = maps.values().nth(round as usize % maps.len().max(1))?;
            map.asked_in_round(round, map.target(self.id)?.rank).cloned()
        };
        let neighbour = neighbour();
        KnownMaps { versions: maps.iter().map(|(id, map)| (*id, map.version)).collect(), neighbour }
    }

    /// The maps that it has in newer versions than these.
    pub(crate) fn newer_maps(&self, known: &[(PoolId, u32)]) -> Vec<PoolMap> {
        let newer = |(pool, version): &(PoolId, u32)| {
            let map = self.pools.served(*pool)?.known_map()?;
            (map.version > *version).then(|| (*map).clone())
        };
        known.iter().filter_map(newer).collect()
    }

    /// Takes those of these maps that are newer than what it has.
    pub(crate) fn take_newer_maps(self: &Rc<Self>, maps: &[PoolMap]) {
        for map in maps {
            let ctx = self.pools.served(map.pool);
            let Some(ctx) = ctx.filter(|ctx| (1..map.version).contains(&ctx.map_version())) else {
                continue;
            };
            match self.take_meant(&ctx, map.clone()) {
                Ok(()) => tracing::info!(
                    "target {}: pool {}: map {} from another engine",
                    self.id,
                    map.pool,
                    map.version
                ),
                Err(error) => tracing::debug!("target {}: map of another engine: {error}", self.id),
            }
        }
    }
}

impl ControlHost {
    /// Asks others for newer maps, as long as the engine runs.
    pub(crate) async fn ask_around(self: Rc<Self>) {
        for round in 0.. {
            // timer: others are asked at intervals.
            self.env.sleep(ASK_PAUSE).await;
            match self.env.timeout(ASK_TIME_MAX, self.ask_neighbour(round)).await {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::debug!("asking for newer maps: {error}"),
                None => tracing::debug!("asking for newer maps: no answer"),
            }
        }
    }

    async fn ask_neighbour(&self, round: u64) -> Result<()> {
        let known = self.ask_own(|answer| Order::KnownMaps(round, answer)).await;
        self.keep_maps(&known).await;
        let neighbour = known.iter().find_map(|known| known.neighbour.clone());
        let Some(neighbour) = neighbour else { return Ok(()) };
        // What one of them has missed, all are told.
        let mut oldest: BTreeMap<PoolId, u32> = BTreeMap::new();
        for (pool, version) in known.iter().flat_map(|known| &known.versions) {
            let least = oldest.entry(*pool).or_insert(*version);
            *least = (*least).min(*version);
        }
        let request = ControlRequest::EngineMaps { known: oldest.into_iter().collect() };
        let conn = self.peers.connect(&neighbour, WireService::Control).await?;
        let body = wire::encode(&request);
        let answer = self.peers.call_within(&conn, Kind::Control, &body, &[], ASK_TIME_MAX).await;
        conn.close();
        let ControlReply::Maps(maps) = wire::decode::<Result<ControlReply>>(&answer?.body)?? else {
            return Err(Error::new(Code::Proto, "no maps, but something else"));
        };
        if !maps.is_empty() {
            let maps = Arc::new(maps);
            for inbox in self.own_inboxes() {
                // One that has stopped needs none.
                let _ = inbox.unbounded_send(Order::TakeMaps(maps.clone()));
            }
        }
        Ok(())
    }

    /// Keeps what the targets here have that is newer than what is kept.
    async fn keep_maps(&self, known: &[KnownMaps]) {
        let versions: Vec<(PoolId, u32)> =
            known.iter().flat_map(|known| known.versions.iter().copied()).collect();
        let kept = async {
            let older = self.kept_maps.older_than(&versions);
            if !older.is_empty()
                && let ControlReply::Maps(newer) = self.newer_maps(older).await
            {
                self.kept_maps.keep(&newer).await?;
            }
            // Targets that have not been told yet have none.
            if self.is_introduced() && !known.is_empty() {
                let pools: Vec<PoolId> = versions.iter().map(|(pool, _)| *pool).collect();
                self.kept_maps.retain(&pools).await?;
            }
            Ok::<(), Error>(())
        };
        if let Err(error) = kept.await {
            tracing::debug!("keeping pool maps: {error}");
        }
    }

    /// Tells the targets here the maps that are kept, where they are newer than what they have.
    pub(crate) async fn tell_kept_maps(&self) -> Result<()> {
        let maps = Arc::new(self.kept_maps.all().await?);
        if !maps.is_empty() {
            for inbox in self.own_inboxes() {
                // One that has stopped needs none.
                let _ = inbox.unbounded_send(Order::TakeMaps(maps.clone()));
            }
        }
        Ok(())
    }

    /// What the targets here know in newer versions than these.
    pub(crate) async fn newer_maps(&self, known: Vec<(PoolId, u32)>) -> ControlReply {
        let known = Arc::new(known);
        let told = self.ask_own(|answer| Order::NewerMaps(known.clone(), answer)).await;
        let mut newest: BTreeMap<PoolId, PoolMap> = BTreeMap::new();
        for map in told.into_iter().flatten() {
            if newest.get(&map.pool).is_none_or(|known| known.version < map.version) {
                newest.insert(map.pool, map);
            }
        }
        let mut bytes = 0;
        let fits = |map: &PoolMap| {
            let is_first = bytes == 0;
            bytes += wire::encode(map).len();
            is_first || bytes <= ANSWER_BYTES_MAX
        };
        ControlReply::Maps(newest.into_values().take_while(fits).collect())
    }

    /// Asks all targets of this engine; those that give no answer in time are left out.
    pub(crate) async fn ask_own<T>(&self, order: impl Fn(oneshot::Sender<T>) -> Order) -> Vec<T> {
        let answers = self.own_inboxes().into_iter().map(|inbox: Inbox| {
            let (sender, told) = oneshot::channel();
            let is_sent = inbox.unbounded_send(order(sender)).is_ok();
            async move {
                if !is_sent {
                    return None;
                }
                self.env.timeout(OWN_TIME_MAX, told).await?.ok()
            }
        });
        join_all(answers).await.into_iter().flatten().collect()
    }
}
