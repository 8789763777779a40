//! Requests of the control service and of operators: shards, containers, space, listings.

use crate::batch::check_map;
use crate::target::{Target, TargetPool};
use crate::tokens::not_for_clients;
use std::cell::Cell;
use std::rc::Rc;
use transport::{Incoming, Responder};
use types::{ClientId, Code, Error, PoolId, Result, Unit};
use wire::event::{EventCode, Happened};
use wire::map::PoolMap;
use wire::measure::Standing;
use wire::obj::{AdminOp, AdminReply, ObjectList, Request};
use wire::store::{PageWait, StoreStat};

/// Units in one answer at most, however many are asked for.
const LIST_COUNT_MAX: usize = 64 << 10;
/// What a unit takes in an answer, encoded and before, bytes, about.
const LISTED_BYTES: usize = 2 * size_of::<Unit>();
/// The same for each target and engine of a map, and for the rest of it.
const MAPPED_BYTES: usize = 256;

/// Waits for room for an answer before it is put together: a request for one is short, so many may come at once.
async fn take_room(responder: &Responder, bytes: usize) -> Result<()> {
    match responder.room_for_answer(bytes).await {
        true => Ok(()),
        false => Err(Error::bare(Code::Canceled)),
    }
}

/// The latest term of a control service that has given an order.
#[derive(Default)]
pub(crate) struct Term(Cell<u64>);

impl Term {
    /// Refuses orders of an earlier one.
    fn follow(&self, term: u64) -> Result<()> {
        if term < self.0.get() {
            return Err(Error::new(
                Code::Busy,
                "the order is of an engine that holds the control service no more",
            ));
        }
        self.0.set(term);
        Ok(())
    }
}

impl Target {
    /// Serves requests that are neither batches nor parts of a transaction's first phase.
    pub(crate) async fn serve_admin(
        self: Rc<Self>,
        client: ClientId,
        is_admin: bool,
        incoming: Incoming,
    ) {
        let probe = match wire::decode::<Request<'_>>(&incoming.body) {
            Ok(Request::Probe { seen }) => Some(seen),
            _ => None,
        };
        if let Some(seen) = probe {
            return self.serve_probe(client, seen, incoming).await;
        }
        let body = match self.clone().admin_body(is_admin, &incoming).await {
            Ok(body) => body,
            Err(error) => wire::encode(&Err::<(), Error>(error)),
        };
        self.send(incoming.responder, 0, &body, &[]).await;
    }

    /// The encoded answer, `Ok` tag included.
    async fn admin_body(self: Rc<Self>, is_admin: bool, incoming: &Incoming) -> Result<Vec<u8>> {
        let Incoming { header, body, responder, .. } = incoming;
        let request = wire::decode::<Request<'_>>(body)?;
        if request.is_for_engines() && !is_admin {
            return Err(not_for_clients());
        }
        match request {
            Request::PoolShardStat { pool } => {
                let ctx = self.pools.of(pool).await?;
                Ok(wire::encode(&Ok::<_, Error>(ctx.shard.stat())))
            }
            Request::ListObjects { pool, cont, at, after, count_max } => {
                let ctx = self.pools.mapped(pool).await?;
                // What has come to this target by a map that it does not know would be left out.
                self.know_map_of(&ctx, header).await?;
                self.asked_cont(&ctx, cont).await?;
                let max = (count_max as usize).clamp(1, LIST_COUNT_MAX);
                take_room(responder, max * LISTED_BYTES).await?;
                let mut from = after;
                // Of some pages nothing is told. Who asks goes on behind the last unit, so there must be one.
                let list = loop {
                    let mut list = ctx.shard.list_objects(cont, at, from, max).await?;
                    from = list.units.last().copied();
                    let is_told =
                        |unit: &Unit| !unit.is_cell() && !self.holds_for_others(&ctx, *unit);
                    list.units.retain(is_told);
                    if list.complete || !list.units.is_empty() {
                        break list;
                    }
                };
                let doubt = self.doubt_of(&ctx, list.units.iter().copied());
                ctx.shard.settled().await?;
                self.settle_doubt(pool, &ctx, doubt).await?;
                Ok(wire::encode(&Ok::<_, Error>(list)))
            }
            Request::ListOrphans { pool, cont, after, count_max } => {
                let ctx = self.pools.mapped(pool).await?;
                self.know_map_of(&ctx, header).await?;
                let max = (count_max as usize).clamp(1, LIST_COUNT_MAX);
                take_room(responder, max.min(ctx.shard.orphan_count()) * LISTED_BYTES).await?;
                let is_told = |unit: &Unit| !self.holds_for_others(&ctx, *unit);
                let mut units = ctx.shard.orphans_after(cont, after, max + 1, is_told);
                let complete = units.len() <= max;
                units.truncate(max);
                ctx.shard.settled().await?;
                Ok(wire::encode(&Ok::<_, Error>(ObjectList { units, complete })))
            }
            Request::PutInPlace { pool, cont, unit } => {
                let ctx = self.pools.mapped(pool).await?;
                self.know_map_of(&ctx, header).await?;
                check_map(header, &ctx)?;
                self.asked_cont(&ctx, cont).await?;
                let moved = self.put_in_place(pool, &ctx, cont, unit).await?;
                Ok(wire::encode(&Ok::<_, Error>(moved)))
            }
            Request::Decide { pool, tx, unit, outcome } => {
                let ctx = self.pools.mapped(pool).await?;
                self.know_map_of(&ctx, header).await?;
                check_map(header, &ctx)?;
                self.decide(pool, &ctx, tx, unit, outcome).await?.written(&ctx).await?;
                Ok(wire::encode(&Ok::<_, Error>(outcome)))
            }
            Request::AskOutcome { pool, tx, coordinator } => {
                let ctx = self.pools.mapped(pool).await?;
                self.know_map_of(&ctx, header).await?;
                check_map(header, &ctx)?;
                let outcome = self.outcome_to_tell(&ctx, tx, coordinator).await?;
                Ok(wire::encode(&Ok::<_, Error>(outcome)))
            }
            Request::AdmissionStat { pool } => {
                let ctx = self.pools.of(pool).await?;
                Ok(wire::encode(&Ok::<_, Error>(ctx.admission.stat())))
            }
            Request::CacheStat { pool } => {
                let ctx = self.pools.of(pool).await?;
                Ok(wire::encode(&Ok::<_, Error>(ctx.shard.cache_stat())))
            }
            Request::StoreStat { pool } => {
                let ctx = self.pools.of(pool).await?;
                Ok(wire::encode(&Ok::<_, Error>(self.store_stat(&ctx).await?)))
            }
            Request::PageWait { pool } => {
                let ctx = self.pools.of(pool).await?;
                let wait = ctx.joining.page_waits.of(ctx.map_version());
                let wait = wait.map(|damaged| PageWait { damaged });
                Ok(wire::encode(&Ok::<_, Error>(wait)))
            }
            Request::Admin { term, op } => {
                Ok(wire::encode(&Ok::<_, Error>(self.admin(term, op).await?)))
            }
            Request::PoolMap { pool } => {
                let ctx = self.pools.of(pool).await?;
                let map = ctx.map()?;
                let parts = 1 + map.targets.len() + map.engines.len();
                take_room(responder, parts * MAPPED_BYTES).await?;
                Ok(wire::encode(&Ok::<_, Error>(map.as_ref().clone())))
            }
            Request::Verify(batch) => {
                let ctx = self.pools.of(batch.pool).await?;
                let bad_count = self.verify(&ctx, &batch).await?;
                Ok(wire::encode(&Ok::<u64, Error>(bad_count)))
            }
            Request::ScrubStat { pool } => {
                let ctx = self.pools.of(pool).await?;
                Ok(wire::encode(&Ok::<_, Error>(ctx.scrub_stat().await)))
            }
            Request::Scrub { pool } => {
                let ctx = self.pools.of(pool).await?;
                Ok(wire::encode(&Ok::<u64, Error>(ctx.scrub_now())))
            }
            Request::Batch(_)
            | Request::Commit { .. }
            | Request::Prepare { .. }
            | Request::Orders(_)
            | Request::Member(_)
            | Request::Cell(_)
            | Request::Probe { .. }
            | Request::Lock(_) => Err(Error::new(Code::Proto, "not an administrative request")),
        }
    }

    /// True when what is here of a unit is not the truth, or not yet: this target is no member of its group.
    fn holds_for_others(&self, ctx: &TargetPool, unit: Unit) -> bool {
        ctx.map().is_ok_and(|map| {
            let has_moves = !map.outs.is_empty() || map.next.is_some();
            (has_moves || ctx.joining.is_clearing()) && !self.is_member(&map, unit)
        })
    }

    async fn store_stat(self: &Rc<Self>, ctx: &Rc<TargetPool>) -> Result<StoreStat> {
        Ok(StoreStat {
            devices: self.store.device_stats().await?,
            log: ctx.shard.log_stat(),
            aggregation: ctx.shard.aggregation_stat(),
            streams: ctx.streams.stat(),
            catching_up: ctx.joining.stat(self.env.now()),
            caught_up: ctx.joining.last(),
            groups: self.groups_lacking(ctx),
            measures: self.store.measures().await,
            network: self.links.network(),
            clients: self.client_links.network(),
        })
    }

    /// Carries out an order of the control service, unless a later one has given orders already: an
    /// engine that does not know yet that another has taken over must not undo what that one did.
    pub async fn admin(self: &Rc<Self>, term: u64, op: AdminOp) -> Result<AdminReply> {
        self.term.follow(term)?;
        if let AdminOp::SetVersions { pool, cont, versions } = op {
            return self.set_versions(pool, cont, versions).await;
        }
        if let AdminOp::Measure { ask, pool } = op {
            let used_bytes = match pool {
                Some(pool) => self.pools.of(pool).await?.shard.stat().used_bytes(),
                None => 0,
            };
            if ask.is_some_and(|ask| !ask.once || self.links.network().is_none()) {
                self.probe_links().await;
            }
            let (network, clients) = (self.links.network(), self.client_links.network());
            let standing = self.stand(ask).await?;
            let standing = Some(Standing { used_bytes, network, clients, ..standing });
            return Ok(AdminReply { standing, ..AdminReply::default() });
        }
        let made = match op {
            AdminOp::CreateShard { pool, .. } | AdminOp::ServeShard { pool, .. } => Some(pool),
            _ => None,
        };
        self.carry_out_order(op).await?;
        let held = made.and_then(|pool| self.pools.incarnation_of(pool));
        let served = made.and_then(|pool| self.pools.served(pool));
        Ok(AdminReply {
            number: served.as_ref().map_or(0, |ctx| u64::from(ctx.kept_map_version())),
            incarnation: held.unwrap_or(0),
            is_unsure: served.is_some_and(|ctx| ctx.is_unsure()),
            ..AdminReply::default()
        })
    }

    fn not_what_was_made(&self, pool: PoolId) -> Error {
        Error::new(
            Code::Unreach,
            format!(
                "target {} does not hold what it held of pool {pool}: its store was wiped or \
                 exchanged; 'azekura pool query' says what to do",
                self.id
            ),
        )
    }

    /// Goes on serving a pool's part if it is the one that is meant; else stops, and says so to whoever
    /// asks for it. What cannot be opened fails with its own error.
    async fn serve_shard(self: &Rc<Self>, pool: PoolId, incarnation: u64) -> Result<()> {
        let known = self.pools.served(pool);
        if let Some(ctx) = &known
            && ctx.shard.incarnation() == incarnation
        {
            return Ok(());
        }
        let replaced = self.pools.replaced(pool);
        if let Some((known, handles)) = &replaced
            && *known == incarnation
        {
            // It was an older word that meant another one.
            let shard = self.store.open_shard(pool).await?;
            let ctx = TargetPool::opened_again(&self.env, shard).with_handles(handles);
            let ctx = Rc::new(ctx);
            self.pools.serve(pool, ctx.clone());
            self.take_up(pool, &ctx);
            return Ok(());
        }
        if known.is_none()
            && replaced.is_none()
            && let Some(error) = self.pools.refusal_of(pool)
            && error.code != Code::Unreach
        {
            return Err(error);
        }
        let error = self.not_what_was_made(pool);
        tracing::error!("{error}");
        let happened = Happened::new(EventCode::TargetUnserved, error.to_string());
        self.events.tell(happened.of_target(self.id).of_pool(pool));
        match self.pools.refuse(pool, error) {
            Some(ctx) => self.let_go(&ctx).await,
            None => Ok(()),
        }
    }

    /// Stops serving a pool's part.
    async fn let_go(&self, ctx: &TargetPool) -> Result<()> {
        ctx.undecided.wake_all();
        ctx.streams.end();
        ctx.scrubber.stop();
        ctx.admission.close();
        ctx.shard.close().await
    }

    /// Takes a map that the control service sends, if it means the part of the pool that is here.
    pub(crate) fn take_meant(self: &Rc<Self>, ctx: &Rc<TargetPool>, map: PoolMap) -> Result<()> {
        let held = ctx.shard.incarnation();
        let meant = map.target(self.id).map_or(0, |target| target.incarnation);
        if meant != 0 && meant != held {
            return Err(self.not_what_was_made(map.pool));
        }
        self.take_map(map.pool, ctx, map)
    }

    async fn carry_out_order(self: &Rc<Self>, op: AdminOp) -> Result<()> {
        match op {
            AdminOp::SetVersions { .. } | AdminOp::Measure { .. } => Err(Error::bare(Code::Proto)),
            AdminOp::CreateShard { pool, durability, scm_bytes, nvme_bytes } => {
                let config = vos::PoolShardConfig { durability, scm_bytes, nvme_bytes };
                if let Some(ctx) = self.pools.served(pool) {
                    if *ctx.shard.config() != config {
                        return Err(Error::new(
                            Code::Exist,
                            format!("target {} holds pool {pool} with other settings", self.id),
                        ));
                    }
                    return Ok(());
                }
                let shard = self.store.create_shard(pool, &config).await?;
                let ctx = Rc::new(TargetPool::new(&self.env, shard));
                self.start_scrubber(&ctx);
                self.watch_pages(pool, &ctx);
                self.pools.serve(pool, ctx);
                Ok(())
            }
            AdminOp::ServeShard { pool, incarnation } => self.serve_shard(pool, incarnation).await,
            AdminOp::HasAllOf { pool, target, map_version } => {
                let ctx = self.pools.of(pool).await?;
                self.require_all_of(&ctx, target, map_version)
            }
            AdminOp::GiveLeadBack { pool } => {
                if let Some(ctx) = self.pools.served(pool) {
                    ctx.lead.give_back();
                }
                Ok(())
            }
            AdminOp::Introduced => {
                self.pools.introduced();
                Ok(())
            }
            AdminOp::DestroyShard { pool } => {
                if let Some(ctx) = self.pools.take(pool) {
                    self.let_go(&ctx).await?;
                }
                self.store.destroy_shard(pool).await?;
                self.pools.forget(pool);
                Ok(())
            }
            AdminOp::CreateCont { pool, cont, csum, server_verify } => {
                let ctx = self.pools.of(pool).await?;
                let sums = vos::SumPolicy { kind: csum, verify: server_verify };
                let lsn = ctx.shard.create_summed_cont(cont, sums)?;
                self.pools.note_told();
                ctx.shard.durable(lsn).await
            }
            AdminOp::DestroyCont { pool, cont } => {
                let ctx = self.pools.of(pool).await?;
                let lsn = ctx.shard.destroy_cont(cont)?;
                ctx.shard.durable(lsn).await
            }
            AdminOp::SetMap(map) => {
                let ctx = self.pools.of(map.pool).await?;
                self.take_meant(&ctx, map)
            }
            AdminOp::ChangeMap(change) => {
                let ctx = self.pools.of(change.pool).await?;
                if change.version <= ctx.map_version() {
                    return Ok(());
                }
                let newer = ctx.known_map().and_then(|known| known.changed(&change));
                let newer = newer.ok_or_else(|| {
                    let known = ctx.map_version();
                    let text =
                        format!("map {known} is known, the change is of map {}", change.from);
                    Error::new(Code::Stale, text)
                })?;
                self.take_meant(&ctx, newer)
            }
            AdminOp::SetAdmission { pool, admission } => {
                let ctx = self.pools.of(pool).await?;
                tracing::info!(
                    "target {}: pool {pool}: bulk writers {}, readers {}",
                    self.id,
                    admission.max_writers,
                    admission.max_readers
                );
                ctx.admission.set(&admission);
                Ok(())
            }
            AdminOp::SetScrub { pool, scrub } => {
                let ctx = self.pools.of(pool).await?;
                tracing::info!("target {}: pool {pool}: scrubber {}", self.id, scrub.rate);
                ctx.scrubber.set(scrub);
                Ok(())
            }
            AdminOp::SetCache { pool, cache } => {
                let ctx = self.pools.of(pool).await?;
                tracing::info!(
                    "target {}: pool {pool}: data cache of {} bytes, {} of an object",
                    self.id,
                    cache.bytes_max,
                    cache.object_bytes_max
                );
                ctx.shard.set_cache(&cache);
                Ok(())
            }
        }
    }
}
