//! Running a batch on one target: receive, check, apply, make durable, answer.
//!
//! A bulk transfer that admission holds ([`crate::admission`]) waits beside its connection with
//! its data still at the client, so that what comes behind it is served. Only data that a client
//! has sent without credit is taken into memory first.

use crate::admission::{Slot, Staged, at_clients_pace};
use crate::append::Append;
use crate::client_cells::names_for;
use crate::figures::Begun;
use crate::follow::as_order_origin;
use crate::give_way::Turn;
use crate::group::Group;
use crate::jobs::{Answered, Waited, wait};
use crate::links::{By, Plan};
use crate::session::Session;
use crate::streams::{Bulk, Sent};
use crate::target::{Target, TargetPool};
use smallvec::SmallVec;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use transport::{Incoming, IncomingBulk, Responder};
use types::{ClientId, Code, Epoch, Error, Result, Unit, limits};
use vos::{Lsn, Origin, OrphanChange, Payload, Segments, Summary};
use wire::footprint::Opens;
use wire::obj::{Batch, BulkSums, Op, TxId};
use wire::order::ApplyOrder;
use wire::scrub::FoundBy;
use wire::walk::walk;
use wire::{Header, HeldBatch};

/// A request without a deadline waits this long for a held key, or to be let in.
const HOLD_TIME_MAX: Duration = Duration::from_secs(60);
/// What a batch may read beside lists, for which room was taken before it was known what it reads, bytes.
const BESIDE_LIST_BYTES_MAX: u64 = 64 << 10;

/// A batch on its way, without its data.
pub(crate) struct Ask {
    pub caller: Rc<Session>,
    pub header: Header,
    pub ctx: Rc<TargetPool>,
    pub responder: Responder,
    /// When nobody waits for the answer any more, by the target's clock.
    pub deadline: Duration,
    /// For its figures.
    pub begun: Begun,
    /// Time in which it could not go on because of others.
    pub waited: Waited,
    pub held: HeldBatch,
    pub summary: Summary,
}

impl Ask {
    pub fn tx(&self) -> TxId {
        TxId { client: self.caller.client, seq: self.header.request_id }
    }

    /// What it is about.
    fn units(&self) -> impl Iterator<Item = Unit> {
        self.summary.units.iter().map(|named| named.unit)
    }
}

/// The data of a batch.
enum Data {
    /// Still at the client, or on its way.
    There(IncomingBulk),
    /// Received, and its transfer let in or too small to be held.
    Here(Payload, Option<Slot>),
    /// Received before its transfer was let in.
    Staged(Payload, Staged),
}

/// The answer without the sums of its bulk, which lie at its end, and the bulk.
pub(crate) type Outcome = Result<(Vec<u8>, Segments)>;

impl Target {
    /// Takes a batch and its data off a connection and runs it; here if no device is involved and
    /// nothing holds it, else beside what comes next.
    pub(crate) async fn receive_batch(self: &Rc<Self>, caller: &Rc<Session>, incoming: Incoming) {
        let Incoming { header, body, bulk, responder, .. } = incoming;
        let held = match HeldBatch::of_request(body) {
            Ok(held) => held,
            Err(error) => return Box::pin(self.answer_error(responder, 0, error)).await,
        };
        let summary = Summary::of(&held.batch().checks, &held.batch().ops);
        let ctx = match self.look_at_batch(caller.client, &header, held.batch(), &summary).await {
            Ok(Seen::New(ctx)) => ctx,
            Ok(Seen::Before(answer)) => {
                return Box::pin(self.send(responder, 0, &answer, &[])).await;
            }
            Err(error) => {
                let refusal = self.refusal(held.batch().pool, &header, &error);
                return Box::pin(self.send(responder, 0, &refusal, &[])).await;
            }
        };
        let now = self.env.now();
        let gives_way = caller.gives_way();
        if !gives_way {
            self.note_client_at(now);
        }
        let now_s = self.env.wall_s();
        let cont = held.batch().cont;
        summary.units.iter().for_each(|named| ctx.last_asked.note(cont, named.unit, now_s));
        let deadline = now + patience(&header);
        let begun = Begun::new(summary.kind, now, bulk.remaining() as u64);
        let (caller, waited) = (caller.clone(), Waited::default());
        // It goes through many hands.
        let ask = Ask { caller, header, ctx, responder, deadline, begun, waited, held, summary };
        let ask = Box::new(ask);
        match Append::of(ask.held.batch(), &ask.summary) {
            Ok(None) => {}
            Ok(Some(append)) => {
                return Box::pin(self.receive_append(ask, append, bulk)).await;
            }
            Err(error) => return Box::pin(self.answer_error(ask.responder, 0, error)).await,
        }
        let received = match bulk.remaining() {
            0 => self.take_no_data(&ask),
            _ => Box::pin(self.receive_data(&ask, bulk)).await,
        };
        let data = match received {
            Ok(data) => data,
            Err(error) => {
                let error =
                    self.without_failed_device(&ask.ctx, (ask.units(), ask.summary.writes), error);
                let refusal = self.refusal(ask.ctx.shard.pool(), &ask.header, &error);
                return Box::pin(self.send(ask.responder, 0, &refusal, &[])).await;
            }
        };
        let (payload, slot) = match data {
            Data::Here(payload, slot) => (payload, slot),
            later => return self.run_beside(ask, later),
        };
        // What waits for others is beside the connection.
        let is_alone = ask.summary.units.iter().all(|named| ask.ctx.is_of_one(named.unit));
        let memory = ask.ctx.is_memory() && is_alone && !gives_way;
        if !memory || ask.ctx.shard.is_held(cont, &ask.summary) {
            return self.run_beside(ask, Data::Here(payload, slot));
        }
        let outcome = self.run_batch(&ask, payload, slot).await;
        if let Ok((_, segments)) = &outcome
            && ask.ctx.admission.readers.for_bulk(segments.bytes()).is_some()
        {
            let target = self.clone();
            self.spawn_counted(async move { target.finish_batch(ask, outcome).await });
            return;
        }
        self.finish_batch(ask, outcome).await;
    }

    /// Checks what does not need the data: whether pool, container and map are known, and whether
    /// the batch was run before.
    async fn look_at_batch(
        self: &Rc<Self>,
        client: ClientId,
        header: &Header,
        batch: &Batch<'_>,
        summary: &Summary,
    ) -> Result<Seen> {
        let ctx = self.asked_shard(batch.pool).await?;
        self.know_map_of(&ctx, header).await?;
        check_map(header, &ctx)?;
        self.asked_cont(&ctx, batch.cont).await?;
        if summary.touches_cells {
            self.check_cells(&ctx, batch)?;
        }
        if summary.writes {
            let tx = TxId { client, seq: header.request_id };
            self.running.over(tx).await;
            let (of, patience) = (summary.first_written, patience(header));
            if let Some(answer) = self.replay(&ctx, tx, of, Some(batch), patience).await? {
                if re_register(&ctx, client, batch) {
                    ctx.shard.noted(self.note_opener(&ctx, client)).await;
                }
                return Ok(Seen::Before(answer));
            }
        }
        Ok(Seen::New(ctx))
    }

    /// What a batch has that brings no data.
    fn take_no_data(&self, ask: &Ask) -> Result<Data> {
        let batch = ask.held.batch();
        let mut payload = self.stage_for(&ask.ctx, &ask.summary)?;
        let missing = payload.bulk_bytes();
        if missing > 0 {
            let text = format!("the request has 0 more bytes, not {missing}");
            return Err(Error::new(Code::Proto, text));
        }
        ask.ctx.shard.take_sums(batch.cont, &batch.sums, &mut payload)?;
        Ok(Data::Here(payload, None))
    }

    /// Gets data off the stream. Data that is elsewhere and must wait stays there.
    async fn receive_data(self: &Rc<Self>, ask: &Ask, bulk: IncomingBulk) -> Result<Data> {
        if bulk.is_deferred() {
            return Ok(Data::There(bulk));
        }
        let bytes = bulk.remaining() as u64;
        let Some(gate) = ask.ctx.admission.writers.for_bulk(bytes) else {
            return Ok(Data::Here(self.receive_payload(ask, bulk).await?, None));
        };
        let mut slot = gate.try_enter(&ask.caller.job, bytes);
        if slot.is_none() {
            if !bulk.blocks_stream() {
                return Ok(Data::There(bulk));
            }
            if let Some(staged) = gate.try_stage(bytes) {
                let payload = self.receive_payload(ask, bulk).await?;
                return Ok(Data::Staged(payload, staged));
            }
            // The client goes on without credit: its connection waits with it.
            let left = ask.deadline.saturating_sub(self.env.now());
            let abandoned = ask.responder.abandoned();
            let entered = gate.enter(&ask.caller.job, bytes, left, abandoned);
            slot = Some(wait(&self.env, &ask.waited, entered).await?);
        }
        let receive = pin!(self.receive_payload(ask, bulk));
        let payload = at_clients_pace(&self.env, &mut slot, receive).await?;
        Ok(Data::Here(payload, slot))
    }

    async fn receive_payload(&self, ask: &Ask, mut bulk: IncomingBulk) -> Result<Payload> {
        let (ctx, batch) = (&ask.ctx, ask.held.batch());
        let mut payload = self.stage_for(ctx, &ask.summary)?;
        let mut rooms: SmallVec<[&mut [u8]; 8]> = payload.buffers().collect();
        bulk.read_all_into(&mut rooms).await?;
        drop(rooms);
        ctx.shard.take_sums(batch.cont, &batch.sums, &mut payload)?;
        Ok(payload)
    }

    /// Runs a batch beside its connection.
    fn run_beside(self: &Rc<Self>, ask: Box<Ask>, data: Data) {
        let target = self.clone();
        let tx = ask.tx();
        self.running.begin(tx);
        self.spawn_counted(async move {
            let ctx = ask.ctx.clone();
            let mut turn = match ask.caller.gives_way() {
                true => Box::pin(target.wait_in_background(&ask, &ctx)).await,
                false => None,
            };
            let outcome = target.let_in_and_run(&ask, data).await;
            target.running.end(tx);
            if let (Some(turn), Ok((_, segments))) = (&mut turn, &outcome) {
                turn.note((ask.begun.in_bytes() + segments.bytes()) as usize);
            }
            // A turn is over when the answer is out: that takes what others want to have, too.
            target.finish_batch(ask, outcome).await;
            drop(turn);
        });
    }

    /// Has a job in the background wait for its turn, for half of what its client waits at most.
    async fn wait_in_background<'a>(&'a self, ask: &Ask, ctx: &TargetPool) -> Option<Turn<'a>> {
        let now = self.env.now();
        let until = now + ask.deadline.saturating_sub(now) / 2;
        wait(&self.env, &ask.waited, self.wait_for_turn_in_background(ctx, until)).await
    }

    async fn let_in_and_run(self: &Rc<Self>, ask: &Ask, data: Data) -> Outcome {
        if !ask.ctx.is_memory() {
            let list_bytes_max = ask.summary.listed_bytes_max.min(limits::BODY_BYTES_MAX);
            let room = ask.responder.room_for_answer(list_bytes_max);
            if !wait(&self.env, &ask.waited, room).await {
                return Err(Error::bare(Code::Canceled));
            }
        }
        let bytes = match &data {
            Data::There(bulk) => bulk.remaining() as u64,
            Data::Here(..) => 0,
            Data::Staged(payload, _) => payload.bulk_bytes(),
        };
        let mut slot = None;
        if let Some(gate) = ask.ctx.admission.writers.for_bulk(bytes) {
            let left = ask.deadline.saturating_sub(self.env.now());
            let abandoned = ask.responder.abandoned();
            let entered = gate.enter(&ask.caller.job, bytes, left, abandoned);
            slot = Some(wait(&self.env, &ask.waited, entered).await?);
            // The world may have changed meanwhile.
            check_map(&ask.header, &ask.ctx)?;
        }
        match data {
            Data::There(bulk) => {
                let receive = pin!(self.receive_payload(ask, bulk));
                let payload = at_clients_pace(&self.env, &mut slot, receive).await?;
                self.run_batch(ask, payload, slot).await
            }
            Data::Here(payload, slot) => self.run_batch(ask, payload, slot).await,
            Data::Staged(payload, staged) => {
                let outcome = self.run_batch(ask, payload, slot).await;
                drop(staged);
                outcome
            }
        }
    }

    /// Answers and counts.
    pub(crate) async fn finish_batch(self: &Rc<Self>, ask: Box<Ask>, outcome: Outcome) {
        let (ctx, begun, caller) = (ask.ctx.clone(), ask.begun, ask.caller.clone());
        let waited = ask.waited.clone();
        let out_bytes = self.answer_batch(ask, outcome, &waited).await;
        let at = self.env.now();
        let time = ctx.ops.count(begun, at, out_bytes);
        let (waited, in_bytes) = (waited.time(), begun.in_bytes());
        caller.count(&Answered { at, time, waited, in_bytes, out_bytes });
    }

    /// Answers. Bulk that is read goes out when it is let in, unless the batch writes: that
    /// has taken effect, and its answer must not fail any more. `None` without an answer, or when it is an error;
    /// else the bytes of its bulk.
    async fn answer_batch(
        self: &Rc<Self>,
        mut ask: Box<Ask>,
        outcome: Outcome,
        waited: &Waited,
    ) -> Option<u64> {
        let ctx = ask.ctx.clone();
        let writes = ask.summary.writes;
        let read = (!writes).then(|| ask.held.batch());
        let version = ctx.map_version();
        let (mut answer, mut segments) = match outcome {
            Ok(given) => given,
            Err(error) => {
                let error = self.without_lost_pages(&ctx, error);
                let error = self.without_failed_device(&ctx, (ask.units(), writes), error);
                if error.code == Code::Csum
                    && let Some(read) = read
                {
                    Box::pin(self.mend_for_reader(&ctx, read)).await;
                }
                let refusal = self.refusal(ctx.shard.pool(), &ask.header, &error);
                Box::pin(self.send(ask.responder, version, &refusal, &[])).await;
                return None;
            }
        };
        if let Some(cells) = names_for(&ask.header, &segments).filter(|_| !writes) {
            wire::encode_into(&BulkSums { cells, ..BulkSums::NONE }, &mut answer);
            Box::pin(self.send(ask.responder, version, &answer, &[])).await;
            return Some(0);
        }
        let bytes = segments.bytes();
        if !ctx.is_memory() && bytes > 0 {
            if ask.responder.has_room() && bytes > BESIDE_LIST_BYTES_MAX {
                let error = Error::inval("a batch that lists cannot read that much beside");
                return Box::pin(self.answer_failure(ask.responder, version, error)).await;
            }
            // Before the slot: whoever has one waits for devices and clients only.
            let room = ask.responder.room_for_answer(bytes as usize);
            if !Box::pin(wait(&self.env, waited, room)).await {
                return None;
            }
        }
        let mut slot = None;
        if let Some(gate) = ctx.admission.readers.for_bulk(bytes).filter(|_| !writes) {
            let left = ask.deadline.saturating_sub(self.env.now());
            let entered = gate.enter(&ask.caller.job, bytes, left, ask.responder.abandoned());
            match Box::pin(wait(&self.env, waited, entered)).await {
                Ok(entered) if !ask.responder.is_abandoned() => slot = Some(entered),
                // Nobody would take it.
                Ok(_) => return None,
                Err(error) => {
                    return Box::pin(self.answer_failure(ask.responder, version, error)).await;
                }
            }
        }
        if let Err(error) = self.gather(&ctx, &mut segments).await {
            return Box::pin(self.answer_failure(ask.responder, version, error)).await;
        }
        if let Err(error) = segments.load().await {
            let error = match read {
                Some(read) => Box::pin(self.mend_unreadable(&ctx, read, error)).await,
                None => error,
            };
            return Box::pin(self.answer_failure(ask.responder, version, error)).await;
        }
        match segments.sums() {
            Ok(sums) => wire::encode_into(&sums.as_wire(), &mut answer),
            Err(bad) => {
                let error = Box::pin(self.found_damage(&ctx, &bad, FoundBy::Reader)).await;
                if let Some(read) = read {
                    Box::pin(self.mend_for_reader(&ctx, read)).await;
                }
                return Box::pin(self.answer_failure(ask.responder, version, error)).await;
            }
        }
        ask.responder.set_bulk_credit(ctx.admission.writers.credit());
        ask.responder.set_short(ctx.shard.stat().is_short());
        ask.responder.set_users(ask.caller.gives_way() && self.has_users_near(&ctx));
        let slices = segments.slices();
        let send = pin!(self.send(ask.responder, version, &answer, &slices));
        at_clients_pace(&self.env, &mut slot, send).await;
        if let Some(slot) = slot {
            slot.finish();
        }
        Some(bytes)
    }

    async fn answer_failure(
        &self,
        responder: Responder,
        version: u32,
        error: Error,
    ) -> Option<u64> {
        self.answer_error(responder, version, error).await;
        None
    }

    async fn run_batch(
        self: &Rc<Self>,
        ask: &Ask,
        mut payload: Payload,
        slot: Option<Slot>,
    ) -> Outcome {
        let Ask { caller, ctx, summary, .. } = ask;
        let batch = ask.held.batch();
        if self.is_for_member(ask) {
            return Box::pin(self.show_as_member(ask)).await;
        }
        let bulk_bytes = payload.bulk_bytes();
        let goes_on = bulk_bytes > 0 && self.has_followers_with_room(ctx, batch, summary)?;
        if goes_on {
            payload.keep();
        }
        payload.write().await?;
        let bulk = if goes_on { Bulk::Kept(payload.kept()) } else { Bulk::NONE };
        // Before anything that waits for others: see `admission`.
        if let Some(slot) = slot {
            slot.finish();
        }
        if summary.names_stripes {
            Box::pin(self.ready_to_name(ctx, batch)).await?;
        }
        self.wait_for_decisions(ask, batch, summary).await?;
        if summary.writes && self.has_premises_elsewhere(ctx, &batch.checks, summary) {
            // They are to hold when it takes effect, and are looked at once more after that.
            let doubt = self.doubt_of_batch(ctx, &batch.checks, summary, &[]);
            self.settle_doubt(batch.pool, ctx, doubt).await?;
            self.wait_for_decisions(ask, batch, summary).await?;
        }
        // From here to `apply` no await: what is in memory stays, and what is checked still holds
        // when it takes effect.
        self.may_take_effect(ask)?;
        if summary.names_stripes {
            self.may_name(ctx, batch)?;
        }
        let group = self.group_of_batch(ctx, batch, summary)?;
        if group.is_some() && bulk_bytes > 0 && !goes_on {
            // It had one member when the data came, and others join it since: they are to get the data, too.
            return Err(Error::bare(Code::Stale));
        }
        let newest_seen = || ctx.shard.newest_seen(batch.cont, summary);
        let writes = summary.writes;
        let mut plan = match self.check_and_plan(ctx, batch, summary, By::Leader) {
            Ok(plan) => plan,
            Err(error) => {
                let unsettled = ctx.streams.newest_seen(batch.cont, summary);
                let doubt = self.doubt_of_batch(ctx, &batch.checks, summary, &[]);
                ctx.shard.durable(newest_seen()).await?;
                ctx.streams.wait_for(unsettled).await?;
                self.settle_doubt(batch.pool, ctx, doubt).await?;
                return Err(error);
            }
        };
        let mut doubt = self.doubt_of_batch(ctx, &batch.checks, summary, &plan.linked);
        if let Some(group) = group.as_ref().filter(|_| writes) {
            doubt = doubt.and_then(|doubt| doubt.beside(&group.followers));
        }
        // A change waits for its own record, which comes after all that it has seen.
        let seen = if writes { Lsn::default() } else { newest_seen().max(plan.seen) };
        let unsettled = match writes {
            true => plan.unsettled,
            false => {
                let of_batch = ctx.streams.newest_seen(batch.cont, summary);
                of_batch.max(plan.unsettled)
            }
        };
        plan.after.client = caller.client;
        let mut answer = Vec::with_capacity(160);
        answer.push(0);
        let epoch = if writes { self.tick(ctx) } else { ctx.clock.last() };
        plan.encode_after(epoch, &mut answer);
        let sums_at = answer.len();
        let segments = std::mem::take(&mut plan.segments);
        // Before what the batch changes: a retry finds its answer only where the note is found, too.
        let note = match plan.after.opens.is_empty() {
            true => None,
            false => Some(self.note_opener(ctx, caller.client)),
        };
        if writes {
            // What a retry gets has no bulk.
            wire::encode_into(&BulkSums::NONE, &mut answer);
            let origin = Some(Origin { tx: ask.tx(), of: summary.first_written, reply: &answer });
            let lsn = self.apply(ctx, batch, &plan, epoch, payload, origin)?;
            let sent = self.ship_batch(ask, &plan, epoch, group.as_ref(), bulk, origin);
            self.note_made(ctx, batch.cont, &batch.ops, &plan.after.opens);
            self.carry_out(ctx, plan.after);
            if summary.touches_cells {
                self.note_cells(ctx, batch);
            }
            if summary.names_stripes {
                self.note_named(ctx, batch);
            }
            self.fold_soon(batch.pool, ctx);
            self.tell_of_unnamed_soon(ctx);
            self.spread_soon(batch.pool, ctx, batch.cont, summary);
            match summary.units.iter().any(|named| named.writes && named.unit.is_cell()) {
                // As in [`Target::keep_cell`].
                true => ctx.shard.written(lsn).await?,
                false => ctx.shard.durable(lsn).await?,
            }
            sent.settled().await?;
            answer.truncate(sums_at);
        } else {
            self.carry_out(ctx, plan.after);
            if batch.at == Epoch::ZERO {
                // What a crash has left half spread is gone on with by whoever is asked for it.
                self.spread_soon(batch.pool, ctx, batch.cont, summary);
            }
            if seen != Lsn::default() {
                ctx.shard.durable(seen).await?;
            }
        }
        ctx.streams.wait_for(unsettled).await?;
        self.settle_doubt(batch.pool, ctx, doubt).await?;
        if let Some(note) = note {
            ctx.shard.noted(note).await;
        }
        Ok((answer, segments))
    }

    /// True when the data of a batch go to other members, too.
    ///
    /// Errors: `NoSpace` when one of them is nearly full: what is done here must find room with every member.
    fn has_followers_with_room(
        &self,
        ctx: &TargetPool,
        batch: &Batch<'_>,
        summary: &Summary,
    ) -> Result<bool> {
        let Some(group) = self.group_of_batch(ctx, batch, summary)? else { return Ok(false) };
        if let Some(member) = self.short_member(ctx, &group) {
            ctx.condition.note_refusal_for(member);
            let text = format!("target {member}, which keeps a copy, is nearly full");
            return Err(Error::new(Code::NoSpace, text));
        }
        Ok(true)
    }

    /// Has the group do what a batch has come down to.
    fn ship_batch(
        self: &Rc<Self>,
        ask: &Ask,
        plan: &Plan<'_>,
        epoch: Epoch,
        group: Option<&Group>,
        bulk: Bulk,
        origin: Option<Origin<'_>>,
    ) -> Sent {
        if group.is_none() {
            return Sent::NOWHERE;
        }
        let (ctx, batch) = (&ask.ctx, ask.held.batch());
        let all = plan.writes.as_deref().unwrap_or(&batch.ops);
        let ops: Vec<&Op<'_>> = walk(all).filter(|op| op.is_write()).collect();
        let (mut orphaned, mut adopted) = (Vec::new(), Vec::new());
        for change in &plan.orphans {
            match *change {
                OrphanChange::Add(unit) => orphaned.push(unit),
                OrphanChange::Remove(unit) => adopted.push(unit),
            }
        }
        let origin = origin.and_then(as_order_origin);
        let (cont, sums) = (batch.cont, batch.sums);
        let order = ApplyOrder { cont, epoch, ops: &ops, sums, origin, orphaned, adopted };
        let (changed, for_user) = (Some((cont, all)), !ask.caller.gives_way());
        self.ship_encoded(batch.pool, ctx, group, order.encode(), bulk, changed, for_user)
    }

    /// In the step in which a batch takes effect: that its client has not come again meanwhile, and no other
    /// try of it has taken effect.
    ///
    /// Errors: `Closed`; who still waits for the answer asks again, and gets that of the other try.
    pub(crate) fn may_take_effect(&self, ask: &Ask) -> Result<()> {
        if ask.caller.is_over() {
            return Err(Error::new(Code::Closed, "its client has come again"));
        }
        if ask.summary.writes && ask.ctx.shard.replayed(ask.tx())?.is_some() {
            return Err(Error::new(Code::Closed, "another try of this request was run"));
        }
        Ok(())
    }

    /// Waits until all that the batch touches is in memory, nothing that a lost leader left stands in its way, and no prepared
    /// transaction holds a key of it.
    pub(crate) async fn wait_for_decisions(
        self: &Rc<Self>,
        ask: &Ask,
        batch: &Batch<'_>,
        summary: &Summary,
    ) -> Result<()> {
        let ctx = &ask.ctx;
        let deadline = ask.deadline;
        let Batch { cont, at, checks, ops, .. } = batch;
        loop {
            ctx.shard.ready_for_batch((*cont, *at), checks, ops, summary).await?;
            if !self.is_settled_for_batch(ctx, *cont, checks, summary)? {
                let settled = self.settled_for_batch(ctx, *cont, checks, summary, deadline);
                Box::pin(wait(&self.env, &ask.waited, settled)).await?;
                continue;
            }
            let Some(holder) = ctx.shard.holder_of(*cont, summary) else { return Ok(()) };
            let left = deadline.saturating_sub(self.env.now());
            if left.is_zero() {
                return Err(Error::new(
                    Code::TimedOut,
                    "a transaction in doubt holds a key of this request",
                ));
            }
            let decided = ctx.undecided.wait(&self.env, holder, left);
            Box::pin(wait(&self.env, &ask.waited, decided)).await;
        }
    }
}

/// Registers the handles of a batch that was run by an engine that is no more: its answer tells
/// the client that it has them. True when there are any.
fn re_register(ctx: &TargetPool, client: ClientId, batch: &Batch<'_>) -> bool {
    let mut has_any = false;
    for op in walk(&batch.ops).filter(|op| op.footprint().opens == Opens::Own) {
        ctx.handles.register(client, (batch.cont, op.unit()));
        has_any = true;
    }
    has_any
}

/// A batch that is new, or the answer it got before.
enum Seen {
    New(Rc<TargetPool>),
    Before(Vec<u8>),
}

/// `Stale` for what was asked by an older map than this target has.
pub(crate) fn check_map(header: &Header, ctx: &TargetPool) -> Result<()> {
    match header.map_version {
        0 => Ok(()),
        version if version < ctx.map_version() => Err(Error::bare(Code::Stale)),
        _ => Ok(()),
    }
}

/// How long the caller waits.
pub(crate) fn patience(header: &Header) -> Duration {
    match header.deadline_ms {
        0 => HOLD_TIME_MAX,
        given => Duration::from_millis(given.into()),
    }
}
