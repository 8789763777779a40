//! Appending to an array: where its end is, is decided when the data take effect.
//!
//! Appends to one object take turns: each finds the end, writes its data behind it and takes
//! effect before the next looks for the end; so there are neither overlaps nor gaps, whoever
//! appends. Their data are in memory before the turn, so that no client holds up others. A plain
//! write may move the end in the middle of a turn; then the data are written once more.

use crate::admission::{Slot, Staged, at_clients_pace};
use crate::batch::Ask;
use crate::follow::as_order_origin;
use crate::jobs::wait;
use crate::opens::Handle;
use crate::streams::Sent;
use crate::target::{Target, TargetPool};
use futures_util::lock::Mutex;
use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use transport::IncomingBulk;
use types::map::HashMap;
use types::{Code, Epoch, Error, Result, Unit};
use vos::{Origin, Segments, Summary};
use wire::obj::{Batch, BulkSums, Cond, Op, OpReply, Recx, Sums, UpdateIod, UpdateValue};
use wire::order::Order;

/// Largest array, records: what a signed 64-bit offset reaches.
const RECORDS_MAX: u64 = i64::MAX as u64;

/// What a batch with an append asks for.
#[derive(Clone, Copy)]
pub(crate) struct Append {
    unit: Unit,
    chunk_records: u64,
    count: u64,
}

impl Append {
    /// The append in a batch; `Inval` when something is beside it.
    pub fn of(batch: &Batch<'_>, summary: &Summary) -> Result<Option<Append>> {
        let found = summary.append.map(|(unit, chunk_records, count)| Append {
            unit,
            chunk_records,
            count,
        });
        if found.is_some() && batch.at != Epoch::ZERO {
            return Err(Error::new(Code::ReadOnly, "a snapshot cannot be changed"));
        }
        if found.is_some() && (batch.ops.len() > 1 || !batch.checks.is_empty()) {
            return Err(Error::inval("an append is the only op of its batch"));
        }
        Ok(found)
    }

    /// The end of the array now.
    fn end(&self, ctx: &TargetPool, batch: &Batch<'_>) -> Result<u64> {
        let tail = ctx.shard.view(batch.cont)?.tail(self.unit).unwrap_or_default();
        Ok(match tail.dkey_max {
            Some(dkey) if dkey > 0 => {
                (dkey - 1).saturating_mul(self.chunk_records).saturating_add(tail.end)
            }
            _ => 0,
        })
    }

    /// Refuses an append that is none of the first unit alone: the array reaches beyond its first part, or would.
    fn check_first_part(&self, ctx: &TargetPool, batch: &Batch<'_>, end: u64) -> Result<()> {
        let Some(first) = self.unit.object.first_part_bytes() else { return Ok(()) };
        let object = self.unit.object;
        let would_reach = end.saturating_add(self.count) > first
            && placement::layout(object, &*ctx.map()?)?.group_count() > 1;
        if !would_reach && !ctx.shard.view(batch.cont)?.reaches_beyond(self.unit) {
            return Ok(());
        }
        Err(Error::new(Code::TxRestart, "the array is, or will be, on several targets"))
    }

    /// The array's records from `end` on, cut at chunk borders: dkey and range.
    fn pieces(&self, end: u64) -> Result<Vec<([u8; 8], Recx)>> {
        let to = end.checked_add(self.count).filter(|to| *to <= RECORDS_MAX).ok_or_else(|| {
            Error::new(Code::FileTooBig, "an append would go beyond the largest offset")
        })?;
        let mut pieces = Vec::new();
        let mut at = end;
        while at < to {
            let (chunk, index) = (at / self.chunk_records, at % self.chunk_records);
            let count = (to - at).min(self.chunk_records - index);
            pieces.push(((chunk + 1).to_le_bytes(), Recx { index, count }));
            at += count;
        }
        Ok(pieces)
    }
}

impl Target {
    /// Takes an append's data off its connection where they are in the way of what comes behind,
    /// and runs it beside the connection. The batch is known not to have run before.
    pub(crate) async fn receive_append(
        self: &Rc<Self>,
        ask: Box<Ask>,
        append: Append,
        bulk: IncomingBulk,
    ) {
        let bytes = bulk.remaining() as u64;
        if append.chunk_records == 0 || append.count == 0 || append.count != bytes {
            let error = Error::inval("an append's data are not as long as it says");
            return self.answer_error(ask.responder, 0, error).await;
        }
        let data = if bulk.is_deferred() || !bulk.blocks_stream() {
            Data::There(bulk)
        } else {
            match self.take_off_stream(&ask, bulk).await {
                Ok((data, staged)) => Data::Here(data, staged),
                Err(error) => {
                    let refusal = self.refusal(ask.ctx.shard.pool(), &ask.header, &error);
                    return self.send(ask.responder, 0, &refusal, &[]).await;
                }
            }
        };
        let (target, tx) = (self.clone(), ask.tx());
        self.running.begin(tx);
        self.spawn_counted(async move {
            let outcome = target.run_append(&ask, append, data).await;
            target.running.end(tx);
            target.finish_batch(ask, outcome.map(|body| (body, Segments::new()))).await;
        });
    }

    /// Data that a client has sent without being asked to: into memory, as much as there is room
    /// for; beyond that the connection waits.
    async fn take_off_stream(
        &self,
        ask: &Ask,
        mut bulk: IncomingBulk,
    ) -> Result<(Vec<u8>, Option<Staged>)> {
        let bytes = bulk.remaining() as u64;
        let Some(gate) = ask.ctx.admission.writers.for_bulk(bytes) else {
            return Ok((bulk.read_to_vec().await?, None));
        };
        if let Some(staged) = gate.try_stage(bytes) {
            return Ok((bulk.read_to_vec().await?, Some(staged)));
        }
        let mut slot = Some(self.enter(ask, bytes).await?.ok_or_else(|| Error::bare(Code::Busy))?);
        let data = at_clients_pace(&self.env, &mut slot, pin!(bulk.read_to_vec())).await?;
        if let Some(slot) = slot {
            slot.finish();
        }
        Ok((data, None))
    }

    /// A slot for a bulk transfer; `None` when they are not limited.
    async fn enter(&self, ask: &Ask, bytes: u64) -> Result<Option<Slot>> {
        let Some(gate) = ask.ctx.admission.writers.for_bulk(bytes) else { return Ok(None) };
        let left = ask.deadline.saturating_sub(self.env.now());
        let entered = gate.enter(&ask.caller.job, bytes, left, ask.responder.abandoned());
        wait(&self.env, &ask.waited, entered).await.map(Some)
    }

    async fn run_append(self: &Rc<Self>, ask: &Ask, append: Append, data: Data) -> Result<Vec<u8>> {
        let batch = ask.held.batch();
        let ctx = &ask.ctx;
        let is_progressive = append.unit.object.first_part_bytes().is_some();
        if !is_progressive && !self.is_whole_here(ctx, &ctx.shard.view(batch.cont)?, append.unit) {
            return Err(Error::inval(format!(
                "object {} is on several targets, none of which knows its end",
                append.unit.object
            )));
        }
        let (data, _staged) = match data {
            Data::Here(data, staged) => (data, staged),
            Data::There(mut bulk) => {
                let mut slot = self.enter(ask, append.count).await?;
                let data = at_clients_pace(&self.env, &mut slot, pin!(bulk.read_to_vec())).await?;
                if let Some(slot) = slot {
                    slot.finish();
                }
                (data, None)
            }
        };
        let handle: Handle = (batch.cont, append.unit);
        let turn = ctx.appends.of(handle);
        let outcome = {
            let _turn = wait(&self.env, &ask.waited, turn.lock()).await;
            self.append_in_turn(ask, batch, append, &data).await
        };
        ctx.appends.leave(handle, turn);
        match outcome {
            Ok((answer, lsn, sent)) => {
                ctx.shard.durable(lsn).await?;
                sent.settled().await?;
                Ok(answer)
            }
            Err(error) => {
                let unsettled = ctx.streams.newest_seen(batch.cont, &ask.summary);
                let doubt = self.doubt_of_batch(ctx, &[], &ask.summary, &[]);
                ctx.shard.durable(ctx.shard.newest_seen(batch.cont, &ask.summary)).await?;
                ctx.streams.wait_for(unsettled).await?;
                self.settle_doubt(batch.pool, ctx, doubt).await?;
                Err(error)
            }
        }
    }

    async fn append_in_turn(
        self: &Rc<Self>,
        ask: &Ask,
        batch: &Batch<'_>,
        append: Append,
        data: &[u8],
    ) -> Result<(Vec<u8>, vos::Lsn, Sent)> {
        let ctx = &ask.ctx;
        loop {
            // The world may have changed meanwhile.
            crate::batch::check_map(&ask.header, ctx)?;
            ctx.shard.ready(batch.cont, &[], &batch.ops).await?;
            let end = append.end(ctx, batch)?;
            append.check_first_part(ctx, batch, end)?;
            let pieces = append.pieces(end)?;
            let ops: Vec<Op<'_>> =
                pieces.iter().map(|(dkey, recx)| update(append.unit, dkey, *recx)).collect();
            let slot = self.enter(ask, append.count).await?;
            let summary = Summary::of(&[], &ops);
            let mut payload = self.stage_for(ctx, &summary)?;
            let mut rest = data;
            for room in payload.buffers() {
                let (mine, others) = rest
                    .split_at_checked(room.len())
                    .ok_or_else(|| Error::new(Code::Proto, "an append lacks data"))?;
                room.copy_from_slice(mine);
                rest = others;
            }
            let lengths: Vec<u64> = pieces.iter().map(|(_, recx)| recx.count).collect();
            let sums = ctx.shard.cut_sums(batch.cont, &batch.sums, data, &lengths)?;
            let sums = Sums { bytes: &sums, ..batch.sums };
            ctx.shard.take_sums(batch.cont, &sums, &mut payload)?;
            payload.write().await?;
            if let Some(slot) = slot {
                slot.finish();
            }
            let (pool, cont, at) = (batch.pool, batch.cont, batch.at);
            let translated = Batch { pool, cont, at, checks: Vec::new(), ops, sums };
            loop {
                self.wait_for_decisions(ask, &translated, &summary).await?;
                if ctx.shard.is_resident(batch.cont, &[], &batch.ops) {
                    break;
                }
                ctx.shard.ready(batch.cont, &[], &batch.ops).await?;
            }
            // From here to `apply` no await: the end stays where it is.
            if append.end(ctx, batch)? != end {
                continue;
            }
            append.check_first_part(ctx, batch, end)?;
            self.may_take_effect(ask)?;
            let group = self.group_of_batch(ctx, &translated, &summary)?;
            ctx.shard.check(batch.cont, &[], &translated.ops)?;
            let epoch = self.tick(ctx);
            let reply = (epoch, vec![OpReply::Appended { index: end }]);
            let mut answer = vec![0];
            wire::encode_into(&reply, &mut answer);
            let sums_at = answer.len();
            wire::encode_into(&BulkSums::NONE, &mut answer);
            let of = summary.first_written;
            let origin = Some(Origin { tx: ask.tx(), of, reply: &answer });
            let lsn = ctx.shard.apply(batch.cont, epoch, &translated.ops, payload, origin, &[])?;
            let bulk = if group.is_some() { data.to_vec() } else { Vec::new() };
            let origin = origin.and_then(as_order_origin);
            let (cont, ops) = (batch.cont, translated.ops.clone());
            let (orphaned, adopted) = (Vec::new(), Vec::new());
            let order = Order::Apply { cont, epoch, ops, sums, origin, orphaned, adopted };
            let changed = Some((cont, &translated.ops[..]));
            let (order, for_user) = (wire::encode(&order), !ask.caller.gives_way());
            let (pool, bulk, group) = (batch.pool, bulk.into(), group.as_ref());
            let sent = self.ship_encoded(pool, ctx, group, order, bulk, changed, for_user);
            answer.truncate(sums_at);
            return Ok((answer, lsn, sent));
        }
    }
}

/// An append's data.
enum Data {
    /// Still at the client.
    There(IncomingBulk),
    /// In memory, with its share of the room there.
    Here(Vec<u8>, Option<Staged>),
}

/// Turns of appends, by object.
#[derive(Default)]
pub(crate) struct Turns(RefCell<HashMap<Handle, Rc<Mutex<()>>>>);

impl Turns {
    /// Where who appends to an object takes turns.
    fn of(&self, handle: Handle) -> Rc<Mutex<()>> {
        self.0.borrow_mut().entry(handle).or_default().clone()
    }

    /// The turn is over.
    fn leave(&self, handle: Handle, turn: Rc<Mutex<()>>) {
        // The table and this: nobody else waits for a turn.
        if Rc::strong_count(&turn) == 2 {
            self.0.borrow_mut().remove(&handle);
        }
    }
}

fn update(unit: Unit, dkey: &[u8], recx: Recx) -> Op<'_> {
    let value = UpdateValue::Array { record_bytes: 1, recxs: vec![recx] };
    let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
    Op::Update { unit, dkey, cond: Cond::NONE, iods }
}
