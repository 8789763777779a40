//! Running a batch on one target: receive, check, apply, make durable, answer.

use crate::target::{PoolShard, Target};
use std::rc::Rc;
use std::time::Duration;
use transport::{Incoming, IncomingBulk, Responder};
use types::{ClientId, Code, Error, Result};
use vos::{Origin, Payload};
use wire::Header;
use wire::header::FLAG_RETRY;
use wire::obj::{Batch, Request, TxId};

/// A request without a deadline waits this long for a held key.
const HOLD_TIME_MAX: Duration = Duration::from_secs(60);
/// A retry looks this often whether its first try is over.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// A batch with its data received.
struct Received {
    ctx: Rc<PoolShard>,
    payload: Payload,
}

impl Target {
    /// Takes a batch and its data off a connection and runs it; here if no device is involved,
    /// else beside what comes next.
    pub(crate) async fn receive_batch(self: &Rc<Self>, client: ClientId, incoming: Incoming) {
        let Incoming { header, body, bulk, responder } = incoming;
        let batch = match decode_batch(&body) {
            Ok(batch) => batch,
            Err(error) => return self.answer_error(responder, 0, error).await,
        };
        let Received { ctx, payload } = match self.stage_batch(client, &header, &batch, bulk).await
        {
            Ok(Stage::Received(received)) => received,
            Ok(Stage::Replayed(answer)) => return self.send(responder, 0, &answer, &[]).await,
            Err(error) => return self.answer_error(responder, 0, error).await,
        };
        let waits = ctx.shard.conflicts(batch.cont, &batch.checks, &batch.ops);
        if ctx.is_memory() && !waits {
            let outcome = self.run_batch(client, &header, &batch, &ctx, payload).await;
            return self.finish_batch(&ctx, outcome, responder).await;
        }
        let target = self.clone();
        let tx = TxId { client, seq: header.request_id };
        self.running.borrow_mut().insert(tx);
        self.spawn_counted(async move {
            let outcome = match decode_batch(&body) {
                Ok(batch) => target.run_batch(client, &header, &batch, &ctx, payload).await,
                Err(error) => Err(error),
            };
            target.running.borrow_mut().remove(&tx);
            target.finish_batch(&ctx, outcome, responder).await;
        });
    }

    async fn stage_batch(
        self: &Rc<Self>,
        client: ClientId,
        header: &Header,
        batch: &Batch<'_>,
        mut bulk: IncomingBulk,
    ) -> Result<Stage> {
        let ctx = self.mapped_shard(batch.pool).await?;
        self.known_cont(&ctx, batch.cont).await?;
        if header.map_version != 0 && header.map_version < ctx.map_version() {
            return Err(Error::bare(Code::Stale));
        }
        if header.flags & FLAG_RETRY != 0 {
            let tx = TxId { client, seq: header.request_id };
            while self.running.borrow().contains(&tx) {
                self.env.sleep(RETRY_PAUSE).await;
            }
            if let Some(answer) = ctx.shard.replayed(tx) {
                return Ok(Stage::Replayed(answer));
            }
        }
        let mut payload = ctx.shard.stage(&batch.ops)?;
        for room in payload.buffers() {
            bulk.read_into(room).await?;
        }
        Ok(Stage::Received(Received { ctx, payload }))
    }

    async fn finish_batch(
        self: &Rc<Self>,
        ctx: &PoolShard,
        outcome: Result<(Vec<u8>, vos::Segments)>,
        responder: Responder,
    ) {
        let version = ctx.map_version();
        match outcome {
            Ok((answer, segments)) => {
                self.send(responder, version, &answer, &segments.slices()).await;
            }
            Err(error) => self.answer_error(responder, version, error).await,
        }
    }

    async fn run_batch(
        self: &Rc<Self>,
        client: ClientId,
        header: &Header,
        batch: &Batch<'_>,
        ctx: &Rc<PoolShard>,
        mut payload: Payload,
    ) -> Result<(Vec<u8>, vos::Segments)> {
        payload.write().await?;
        if ctx.shard.conflicts(batch.cont, &batch.checks, &batch.ops) {
            self.wait_for_decisions(ctx, header, batch).await?;
        }
        // From here to `apply` no await: what is checked still holds when it takes effect.
        ctx.shard.check(batch.cont, &batch.checks, &batch.ops)?;
        let mut plan = self.plan(ctx, batch)?;
        plan.after.client = client;
        let mut answer = Vec::with_capacity(160);
        answer.push(0);
        let writes = batch.ops.iter().any(|op| op.is_write());
        let epoch = if writes { self.tick(ctx) } else { ctx.clock.borrow().last() };
        plan.encode_after(epoch, &mut answer);
        let mut segments = std::mem::take(&mut plan.segments);
        if writes {
            let tx = TxId { client, seq: header.request_id };
            let origin = Some(Origin { tx, reply: &answer });
            let lsn = self.apply(ctx, batch, &plan, epoch, payload, origin)?;
            self.carry_out(plan.after);
            ctx.shard.durable(lsn).await?;
        } else {
            self.carry_out(plan.after);
        }
        segments.load().await?;
        Ok((answer, segments))
    }

    /// Waits until no prepared transaction holds a key of the batch.
    async fn wait_for_decisions(
        &self,
        ctx: &Rc<PoolShard>,
        header: &Header,
        batch: &Batch<'_>,
    ) -> Result<()> {
        let patience = match header.deadline_ms {
            0 => HOLD_TIME_MAX,
            given => Duration::from_millis(given as u64),
        };
        let deadline = self.env.now() + patience;
        while ctx.shard.conflicts(batch.cont, &batch.checks, &batch.ops) {
            let left = deadline.saturating_sub(self.env.now());
            if left.is_zero() {
                return Err(Error::new(
                    Code::TimedOut,
                    "a transaction in doubt holds a key of this request",
                ));
            }
            let (sender, decided) = futures_channel::oneshot::channel();
            ctx.parked.borrow_mut().push(sender);
            // Woken or not, the loop looks again.
            let _ = self.env.timeout(left, decided).await;
        }
        Ok(())
    }
}

enum Stage {
    Received(Received),
    Replayed(Vec<u8>),
}

fn decode_batch(body: &[u8]) -> Result<Batch<'_>> {
    match wire::decode::<Request<'_>>(body)? {
        Request::Batch(batch) => Ok(batch),
        _ => Err(Error::new(Code::Proto, "not a batch")),
    }
}
