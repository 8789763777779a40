//! Doing what the leader of a group has done.
//!
//! Orders of a leader are carried out one after the other, each once: a message that comes again is told by its
//! numbers. A leader that leads under an older map is refused, so what it does cannot be acknowledged any more.

use crate::member_reads::Dirty;
use crate::mend::IMAGE_BYTES_MAX;
use crate::suspects::{Recent, Suspects};
use crate::target::{Target, TargetPool};
use futures_util::lock::Mutex;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use transport::{Incoming, IncomingBulk};
use types::{Code, ContId, Error, PoolId, Result, TargetId, Unit};
use vos::{Lsn, Origin, OrphanChange, Payload, Summary};
use wire::header::FLAG_USERS;
use wire::map::{DownReason, LEFT_UNSURE, PoolMap, TargetInfo};
use wire::member::SettledOrders;
use wire::obj::{Batch, Cond, Op, Request, Sums};
use wire::order::{Order, OrderOrigin, Orders, OrdersDone};

/// Where a leader's stream is.
#[derive(Default)]
struct Place {
    stream: u64,
    /// The last order carried out.
    number: u64,
}

/// What comes from a leader.
#[derive(Default)]
struct Leader {
    /// Locked while orders are carried out.
    place: Rc<Mutex<Place>>,
    recent: RefCell<Recent>,
    dirty: Rc<Dirty>,
    parts: RefCell<Parts>,
}

/// What has come of an image that comes in parts.
#[derive(Default)]
struct Parts {
    of: Option<(ContId, Unit, Vec<u8>)>,
    bytes: Vec<u8>,
}

impl Parts {
    /// Takes a part; parts of another image before it are of none that will be installed.
    fn take(&mut self, of: (ContId, Unit, &[u8]), at: u64, part: Vec<u8>) -> Result<()> {
        if at == 0 {
            *self = Parts { of: Some((of.0, of.1, of.2.to_vec())), bytes: part };
            return Ok(());
        }
        if !self.is_of(of) || self.bytes.len() as u64 != at {
            // It began before this target was opened again, which compares anew.
            *self = Parts::default();
            return Ok(());
        }
        if self.bytes.len() + part.len() > IMAGE_BYTES_MAX {
            *self = Parts::default();
            return Err(Error::new(Code::Proto, "an image larger than any is"));
        }
        self.bytes.extend(part);
        Ok(())
    }

    /// The whole image; `None` when parts of it are not here.
    fn whole(&mut self, of: (ContId, Unit, &[u8]), before: u64, last: Vec<u8>) -> Option<Vec<u8>> {
        let parts = std::mem::take(self);
        if before == 0 {
            return Some(last);
        }
        if !parts.is_of(of) || parts.bytes.len() as u64 != before {
            return None;
        }
        let mut image = parts.bytes;
        image.extend(last);
        Some(image)
    }

    fn is_of(&self, (cont, unit, dkey): (ContId, Unit, &[u8])) -> bool {
        let of = self.of.as_ref();
        of.is_some_and(|of| (of.0, of.1, &of.2[..]) == (cont, unit, dkey))
    }
}

/// The streams that a target follows in a pool, by leader.
#[derive(Default)]
pub(crate) struct Followed(RefCell<BTreeMap<TargetId, Rc<Leader>>>);

impl Followed {
    fn of(&self, leader: TargetId) -> Rc<Leader> {
        self.0.borrow_mut().entry(leader).or_default().clone()
    }

    /// What orders of a leader have changed here that not all members may have; `None` when it gave none.
    pub fn dirty_of(&self, leader: TargetId) -> Option<Rc<Dirty>> {
        self.0.borrow().get(&leader).map(|told| told.dirty.clone())
    }

    /// A leader was asked how far its orders are.
    pub fn settle_by(&self, leader: TargetId, told: &SettledOrders) {
        if let Some(leader) = self.0.borrow().get(&leader)
            && leader.dirty.is_of(told.stream)
        {
            leader.recent.borrow_mut().settle(told.number);
            leader.dirty.settle(told.number);
        }
    }

    /// Gives up leaders that a map calls lost, and takes what they may have told some members and others not. So it does of groups
    /// that one of them leads no more though it lives: what it gave up some members may have, and who leads now among them.
    fn lose(&self, map: &PoolMap, suspects: &Suspects, leads: impl Fn(TargetId, Unit) -> bool) {
        for (leader, told) in self.0.borrow().iter() {
            let mut recent = told.recent.borrow_mut();
            match placement::is_live(*leader, map) {
                true => suspects.add(recent.take_of(|unit| !leads(*leader, unit)).into_iter()),
                false => {
                    suspects.add(recent.take());
                    told.dirty.clear();
                }
            }
        }
    }
}

/// The bulk of an order, still on its way.
struct OrderBulk<'a> {
    bulk: &'a mut IncomingBulk,
    /// Bytes of it that were not read yet.
    left: usize,
}

impl OrderBulk<'_> {
    async fn read_into(&mut self, room: &mut [u8]) -> Result<()> {
        self.read_all_into(&mut [room]).await
    }

    async fn read_all_into(&mut self, rooms: &mut [&mut [u8]]) -> Result<()> {
        let left = self.left.checked_sub(rooms.iter().map(|room| room.len()).sum());
        self.left = left.ok_or_else(|| Error::new(Code::Proto, "an order lacks bulk data"))?;
        self.bulk.read_all_into(rooms).await
    }

    /// All that is left.
    async fn rest(&mut self) -> Result<Vec<u8>> {
        let mut data = vec![0; self.left.min(self.bulk.remaining())];
        self.read_into(&mut data).await?;
        match self.left {
            0 => Ok(data),
            _ => Err(Error::new(Code::Proto, "an order lacks bulk data")),
        }
    }
}

/// What must be on stable storage before orders are answered.
#[derive(Default)]
struct Wanted {
    /// Up to here whatever the pool promises: two-phase records.
    written: Lsn,
}

impl Target {
    /// Takes orders off a leader's connection and carries them out.
    pub(crate) async fn receive_orders(self: &Rc<Self>, incoming: Incoming) {
        let Incoming { header, body, bulk, responder, .. } = incoming;
        if header.flags & FLAG_USERS != 0 {
            self.note_client();
        }
        let body = match self.follow(&body, bulk).await {
            Ok(done) => wire::encode(&Ok::<_, Error>(done)),
            Err(error) => wire::encode(&Err::<(), Error>(error)),
        };
        self.send(responder, 0, &body, &[]).await;
    }

    async fn follow(self: &Rc<Self>, body: &[u8], bulk: IncomingBulk) -> Result<OrdersDone> {
        let Request::Orders(orders) = wire::decode::<Request<'_>>(body)? else {
            return Err(Error::bare(Code::Proto));
        };
        let mut bulk = bulk;
        let ctx = self.pools.mapped(orders.pool).await?;
        let last = orders
            .first
            .checked_sub(1)
            .and_then(|before| before.checked_add(orders.orders.len() as u64));
        let last = last.ok_or_else(|| Error::new(Code::Proto, "orders are numbered from 1"))?;
        let leader = ctx.followed.of(orders.from);
        let mut place = leader.place.lock().await;
        if orders.map_version > ctx.map_version() {
            self.take_map_of(&ctx, orders.pool, orders.from).await?;
        }
        if place.stream != orders.stream {
            // It was out of the map, or is another one under its name.
            ctx.suspects.add(leader.recent.borrow_mut().take());
            leader.dirty.begin(orders.stream);
            self.settle_suspects(orders.pool, &ctx);
            *place = Place { stream: orders.stream, number: orders.first - 1 };
        }
        if orders.first - 1 > place.number {
            let text = format!("order {} comes after order {}", orders.first, place.number);
            return Err(Error::new(Code::Proto, text));
        }
        let mut wanted = Wanted::default();
        leader.recent.borrow_mut().settle(orders.settled);
        leader.dirty.settle(orders.settled);
        for (at, sent) in orders.orders.iter().enumerate() {
            let mut mine = OrderBulk { bulk: &mut bulk, left: sent.bulk_bytes as usize };
            let number = orders.first + at as u64;
            if number <= place.number {
                mine.rest().await?;
                continue;
            }
            let order: Order<'_> = wire::decode(sent.order)?;
            if self.is_of_others(&ctx, &order) {
                mine.rest().await?;
                place.number = number;
                continue;
            }
            ctx.joining.note(&ctx, &order)?;
            leader.recent.borrow_mut().note(&ctx, sent.number, &order, &leader.dirty);
            let carried_out = match self.is_too_full_to_join(&ctx, &order) {
                true => Err(crate::catch_up::no_room()),
                false => self.carry_out_one(&ctx, &orders, order, &mut mine, &mut wanted).await,
            };
            match carried_out {
                // Who catches up must not hold up the others; what it lacks is sent again.
                Err(error)
                    if error.code == Code::NoSpace
                        && self.may_miss(orders.pool, &ctx, sent.order)
                        && ctx.joining.note_full(&ctx, self.awaits_order(&ctx, sent.order)) =>
                {
                    // The control service is told of that once.
                    tracing::debug!(
                        "target {}: an order of target {}: {error}",
                        self.id,
                        orders.from
                    );
                }
                outcome => outcome?,
            }
            // What was not wanted.
            mine.rest().await?;
            place.number = number;
        }
        self.fold_soon(orders.pool, &ctx);
        self.tell_of_unnamed_soon(&ctx);
        ctx.shard.durable(ctx.shard.last_lsn()).await?;
        ctx.shard.written(wanted.written).await?;
        let (is_short, newest) = (ctx.shard.stat().is_short(), ctx.shard.last_epoch());
        Ok(OrdersDone { number: last, is_short, newest })
    }

    /// In the step in which an order takes effect: that its leader leads still, as far as is known here.
    pub(crate) fn may_lead(&self, ctx: &TargetPool, orders: &Orders<'_>) -> Result<()> {
        match orders.map_version < ctx.map_version() {
            true => Err(Error::bare(Code::Stale)),
            false => Ok(()),
        }
    }

    async fn carry_out_one(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        orders: &Orders<'_>,
        order: Order<'_>,
        bulk: &mut OrderBulk<'_>,
        wanted: &mut Wanted,
    ) -> Result<()> {
        let shard = &ctx.shard;
        match order {
            Order::Apply { cont, epoch, ops, sums, origin, orphaned, adopted } => {
                if !self.knows_cont(ctx, cont).await? {
                    return Ok(());
                }
                let payload = self.stage_order(ctx, cont, &ops, &sums, bulk).await?;
                shard.ready(cont, &[], &ops).await?;
                // From here to `apply` no await: what is in memory stays.
                self.may_lead(ctx, orders)?;
                // Its leader has decided the part that holds these keys, and not told here.
                // Nearly never is anything held.
                if shard.conflicts(cont, &[], &ops)
                    && let Some(held) = shard.holder_of(cont, &Summary::of(&[], &ops))
                {
                    self.end_holder(ctx, held)?;
                }
                ctx.clock.observe(epoch);
                ctx.nameless.are_told(cont, &orphaned);
                let orphaned = orphaned.into_iter().map(OrphanChange::Add);
                let adopted = adopted.into_iter().map(OrphanChange::Remove);
                let orphans: Vec<OrphanChange> = orphaned.chain(adopted).collect();
                let origin = origin.map(as_origin);
                shard.apply(cont, epoch, &ops, payload, origin, &orphans)?;
            }
            Order::Prepare { tx, coordinator, batch } => {
                let cont = batch.cont;
                if !self.knows_cont(ctx, cont).await? {
                    return Ok(());
                }
                let payload = self.stage_order(ctx, cont, &batch.ops, &batch.sums, bulk).await?;
                shard.ready(cont, &batch.checks, &batch.ops).await?;
                self.may_lead(ctx, orders)?;
                if shard.conflicts(cont, &batch.checks, &batch.ops)
                    && let Some(held) =
                        shard.holder_of(cont, &Summary::of(&batch.checks, &batch.ops))
                {
                    self.end_holder(ctx, held)?;
                }
                let encoded = wire::encode(&Batch { sums: Sums::NONE, ..batch });
                wanted.written = shard.prepare(tx, coordinator, cont, encoded, payload)?;
            }
            Order::Decide { tx, outcome } => {
                shard.ready_to_decide(tx).await?;
                self.may_lead(ctx, orders)?;
                if let wire::obj::TxOutcome::Committed(epoch) = outcome {
                    ctx.clock.observe(epoch);
                }
                wanted.written = shard.decide(tx, outcome, None, &[])?;
                ctx.undecided.wake(&tx);
            }
            Order::Decision { tx, epoch, participants, origin } => {
                self.may_lead(ctx, orders)?;
                let origin = origin.map(as_origin);
                wanted.written = shard.log_decision(tx, epoch, &participants, origin)?;
            }
            Order::ForgetDecision { tx } => {
                self.may_lead(ctx, orders)?;
                shard.forget_decision(tx)?;
            }
            Order::Install { cont, unit, dkey, before } => {
                let begun = self.env.now();
                let last = bulk.rest().await?;
                let parts = &ctx.followed.of(orders.from).parts;
                let image = parts.borrow_mut().whole((cont, unit, dkey), before, last);
                let Some(image) = image else {
                    tracing::info!("target {}: an image of {unit} came in part", self.id);
                    return Ok(());
                };
                if self.knows_cont(ctx, cont).await? {
                    self.end_trust_of_holder(ctx, (cont, unit, dkey))?;
                    let may = || self.may_lead(ctx, orders);
                    self.install_of(ctx, orders.from, (cont, unit, dkey), &image, &may).await?;
                    ctx.joining.count(|stat| stat.bytes_mended += image.len() as u64);
                }
                self.note_written(ctx, self.is_last_copy(ctx, unit), begun);
            }
            Order::InstallPart { cont, unit, dkey, at } => {
                let begun = self.env.now();
                let part = bulk.rest().await?;
                let parts = &ctx.followed.of(orders.from).parts;
                parts.borrow_mut().take((cont, unit, dkey), at, part)?;
                self.note_written(ctx, self.is_last_copy(ctx, unit), begun);
            }
            Order::Fold { cont, unit, dkey, akey, stripe, count } => {
                if !self.knows_cont(ctx, cont).await? {
                    return Ok(());
                }
                let (dkeys, cond) = (vec![serde_bytes::Bytes::new(dkey)], Cond::NONE);
                shard.ready(cont, &[], &[Op::PunchDkeys { unit, cond, dkeys }]).await?;
                self.may_lead(ctx, orders)?;
                shard.fold(cont, unit, dkey, akey, stripe, count)?;
            }
            Order::Answers { answers } => {
                self.may_lead(ctx, orders)?;
                for answer in answers {
                    shard.keep_reply(as_origin(answer))?;
                }
            }
            Order::InstallFacts { cont, unit } => {
                if self.knows_cont(ctx, cont).await? {
                    let facts = bulk.rest().await?;
                    let may = || {
                        self.may_lead(ctx, orders)?;
                        Ok(ctx.suspects.has_keys_of(cont, unit))
                    };
                    if shard.install_unit_facts_while(cont, unit, &facts, &may).await?.1 {
                        ctx.suspects.note_kept(cont, unit);
                    }
                }
            }
        }
        Ok(())
    }

    /// True when an order is of a group that this target lacks something of anyway, and all know it. Where they may still
    /// count on it to have what anybody was told of, it says that this ends.
    fn may_miss(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>, order: &[u8]) -> bool {
        let (Ok(map), Ok(order)) = (ctx.map(), wire::decode::<Order<'_>>(order)) else {
            return false;
        };
        let Some(unit) = unit_of(ctx, &order).filter(|unit| self.lacks(&map, *unit)) else {
            return false;
        };
        let is_trusted = self.is_member(&map, unit)
            && map.target(self.id).is_none_or(|own| own.left == LEFT_UNSURE);
        if is_trusted {
            self.tell_that_it_lacks(pool, ctx, map);
        }
        !is_trusted
    }

    /// To be asked by a target that is about to drop, or to leave out, something of what its groups have done. All may count on one that was opened
    /// again to have what anybody was told of, so that it leads where none is whole: then it says first that this ends.
    ///
    /// Errors: `Busy` until the map says so.
    pub(crate) fn end_trust(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) -> Result<()> {
        let map = ctx.map()?;
        if map.target(self.id).is_none_or(|own| own.left != LEFT_UNSURE) {
            return Ok(());
        }
        self.tell_that_it_lacks(pool, ctx, map);
        let text = "a part of a transaction that others have decided is here in doubt";
        Err(Error::new(Code::Busy, text))
    }

    /// True when an order is of a group that this target is catching up with now.
    fn awaits_order(&self, ctx: &TargetPool, order: &[u8]) -> bool {
        let (Ok(map), Ok(order)) = (ctx.map(), wire::decode::<Order<'_>>(order)) else {
            return true;
        };
        unit_of(ctx, &order).is_none_or(|unit| self.catches_up_with(&map, unit))
    }

    /// True when an order is of a group that this target is to join, and its last room is kept for those that it is a member of.
    fn is_too_full_to_join(&self, ctx: &TargetPool, order: &Order<'_>) -> bool {
        let takes_room =
            matches!(order, Order::Apply { .. } | Order::Prepare { .. } | Order::Install { .. });
        takes_room
            && ctx.joining.may_miss(ctx)
            && ctx.map().is_ok_and(|map| {
                map.next.is_some()
                    && ctx.shard.stat().is_too_full_to_join()
                    && unit_of(ctx, order).is_some_and(|unit| self.joins(&map, unit))
            })
    }

    /// True when an order is of a group that this target is no member of any more: it was on its way when the map came that
    /// says so, and what this target held of the group may be dropped by now.
    fn is_of_others(&self, ctx: &TargetPool, order: &Order<'_>) -> bool {
        ctx.joining.has_moved()
            && ctx.map().is_ok_and(|map| {
                unit_of(ctx, order).is_some_and(|unit| self.is_strange(&map, unit))
            })
    }

    /// False when a container was destroyed: what is ordered of it has no meaning any more.
    async fn knows_cont(&self, ctx: &TargetPool, cont: ContId) -> Result<bool> {
        match self.pools.known_cont(ctx, cont).await {
            Err(error) if error.code == Code::NonExist => Ok(false),
            known => known.map(|()| true),
        }
    }

    async fn stage_order(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        ops: &[Op<'_>],
        sums: &Sums<'_>,
        bulk: &mut OrderBulk<'_>,
    ) -> Result<Payload> {
        let mut payload = self.stage(ctx, ops)?;
        let mut rooms: SmallVec<[&mut [u8]; 8]> = payload.buffers().collect();
        bulk.read_all_into(&mut rooms).await?;
        drop(rooms);
        ctx.shard.take_sums(cont, sums, &mut payload)?;
        payload.write().await?;
        Ok(payload)
    }

    /// Takes the map of another target, which has said that it knows a newer one.
    pub(crate) async fn take_map_of(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        pool: PoolId,
        other: TargetId,
    ) -> Result<()> {
        let known = ctx.map()?;
        let map = self.peers.map_of(&known, other).await?;
        if map.pool != pool {
            return Err(Error::new(Code::Proto, "a target gave the map of another pool"));
        }
        self.take_map(pool, ctx, map)
    }

    /// Takes a map if it is newer, with all that follows.
    pub(crate) fn take_map(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        map: PoolMap,
    ) -> Result<()> {
        if map.version <= ctx.map_version() {
            return Ok(());
        }
        let map = Rc::new(map);
        let of = |info: &TargetInfo| (info.id.0, info.state, info.reason, info.left);
        let states: Vec<_> = map.targets.iter().map(of).collect();
        tracing::debug!("target {}: pool {pool}: map {}: {states:?}", self.id, map.version);
        let before = ctx.take_map(map.clone());
        self.forget_left(ctx);
        self.pools.note_told();
        let has_moved = before
            .as_ref()
            .is_some_and(|before| (&before.outs, before.balanced) != (&map.outs, map.balanced));
        if map.moves_single_members() {
            ctx.shard.begin_moving_singles()?;
        }
        if map.next.is_some() || !map.outs.is_empty() || map.balanced > 0 {
            ctx.joining.note_move();
        }
        let was_live = |target: &TargetInfo| {
            before.as_ref().is_some_and(|before| placement::is_live(target.id, before))
        };
        let is_lost =
            |target: &TargetInfo| was_live(target) && !placement::is_live(target.id, &map);
        self.hang_up_on_lost(before.as_deref(), &map);
        // Who left earlier leads before it now, by an administrator's word.
        let is_passed = |target: &TargetInfo| {
            let known = before.as_ref().and_then(|before| before.target(target.id));
            let left = known.map_or(0, |known| known.left);
            target.left > 0 && left > target.left && left != LEFT_UNSURE
        };
        let is_mine = |target: &&TargetInfo| target.id == self.id;
        let is_whole_again = map.targets.iter().find(is_mine).is_some_and(|target| {
            before.is_some() && !was_live(target) && placement::is_live(self.id, &map)
        });
        if !placement::is_live(self.id, &map) {
            // The map knows of it, and so do all who lead or follow by it.
            ctx.be_sure();
        }
        let is_told = |target: &&TargetInfo| {
            is_mine(target)
                && target.reason == Some(DownReason::Behind)
                && target.since > ctx.kept_map_version()
        };
        if is_whole_again || map.targets.iter().any(|target| is_told(&target)) {
            ctx.forget_kept_map();
        }
        let may_inherit = is_whole_again
            || has_moved
            || map.targets.iter().any(|target| is_lost(target) || is_passed(target));
        if may_inherit || before.is_none() {
            ctx.old_parts.begin(ctx);
        }
        if may_inherit {
            // Between maps that are not next to each other, and while this target was away, anybody may have led.
            let is_next = |before: &Rc<PoolMap>| before.version + 1 == map.version;
            self.inherit(ctx, before.clone().filter(|before| !is_whole_again && is_next(before)));
        }
        ctx.alike.follow_map(self.id, &map, has_moved || map.next.is_some());
        if may_inherit {
            let others = map.targets.iter().map(|target| target.id);
            let others = others.filter(|id| *id != self.id && placement::is_live(*id, &map));
            ctx.takeover.begin(map.version, others);
        }
        ctx.streams.follow_map(self.id, &map);
        let leads =
            |leader, unit| self.leader_of(ctx, unit).is_ok_and(|of_group| of_group == leader);
        ctx.followed.lose(&map, &ctx.suspects, leads);
        ctx.suspects.add_given(ctx.streams.give_up(|unit| self.leads(ctx, unit)));
        if !placement::is_live(self.id, &map) {
            ctx.suspects.clear();
        }
        self.settle_suspects(pool, ctx);
        self.join_groups(pool, ctx);
        self.clear_leftovers(pool, ctx, before.as_deref());
        self.end_lacking(ctx, &map);
        self.lead_what_is_ours(pool, ctx);
        Ok(())
    }
}

impl Target {
    /// After a change of the map: ends connections to targets that are lost by it, and all of them where this target was.
    fn hang_up_on_lost(&self, before: Option<&PoolMap>, map: &PoolMap) {
        let Some(before) = before else { return };
        let was_cut_off = placement::is_live(self.id, before) && !placement::is_live(self.id, map);
        for target in map.targets.iter().filter(|target| target.id != self.id) {
            let is_lost =
                placement::follows(target.id, before) && !placement::follows(target.id, map);
            if was_cut_off || is_lost {
                self.peers.hang_up(target.id);
            }
        }
    }

    /// After a change of the map: goes on with what earlier leaders of groups have left, where those are led here now.
    fn lead_what_is_ours(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        self.clone().take_over_transactions(pool, ctx);
        self.look_for_folds(pool, ctx);
        self.reap_orphans(ctx);
    }
}

/// A unit of the group of an order, if it says so.
fn unit_of(ctx: &TargetPool, order: &Order<'_>) -> Option<Unit> {
    match order {
        Order::Apply { ops, orphaned, adopted, .. } => {
            let named = || orphaned.iter().chain(adopted).next().copied();
            ops.first().map(Op::unit).or_else(named)
        }
        Order::Prepare { batch, .. } => {
            let checked = || batch.checks.first().map(|check| check.unit);
            batch.ops.first().map(Op::unit).or_else(checked)
        }
        Order::Decide { tx, .. } => crate::commit::part_unit(ctx, *tx),
        Order::Decision { participants, .. } => participants.first().copied(),
        Order::Install { unit, .. }
        | Order::InstallPart { unit, .. }
        | Order::InstallFacts { unit, .. }
        | Order::Fold { unit, .. } => Some(*unit),
        Order::Answers { answers } => answers.first().map(|answer| answer.of),
        Order::ForgetDecision { .. } => None,
    }
}

fn as_origin(origin: OrderOrigin<'_>) -> Origin<'_> {
    Origin { tx: origin.tx, of: Some(origin.of), reply: origin.reply }
}

/// For orders; `None` for what is of no group of several members.
pub(crate) fn as_order_origin(origin: Origin<'_>) -> Option<OrderOrigin<'_>> {
    Some(OrderOrigin { tx: origin.tx, of: origin.of?, reply: origin.reply })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_whole_when_all_its_parts_came() {
        let unit = types::Oid { hi: 1, lo: 2 }.unit(0);
        let of = (ContId(1), unit, &b"a"[..]);
        let other = (ContId(1), unit, &b"b"[..]);
        let mut parts = Parts::default();
        assert_eq!(parts.whole(of, 0, vec![1]), Some(vec![1]));
        parts.take(of, 0, vec![1, 2]).unwrap();
        parts.take(of, 2, vec![3]).unwrap();
        assert_eq!(parts.whole(of, 3, vec![4]), Some(vec![1, 2, 3, 4]));
        assert_eq!(parts.whole(of, 3, vec![4]), None, "it was taken");
        // What began before this target was opened again, and what another image came between.
        parts.take(of, 2, vec![3]).unwrap();
        assert_eq!(parts.whole(of, 3, vec![4]), None);
        parts.take(of, 0, vec![1, 2]).unwrap();
        parts.take(other, 0, vec![9]).unwrap();
        assert_eq!(parts.whole(of, 2, vec![3]), None);
        parts.take(other, 0, vec![9]).unwrap();
        parts.take(other, 0, vec![8, 8]).unwrap();
        assert_eq!(parts.whole(other, 2, vec![7]), Some(vec![8, 8, 7]));
    }
}
