//! Parts of transactions: checked and held, and decided when the coordinator says how.

use super::{Premise, Step};
use crate::admission::PREPARE_WAIT_MAX;
use crate::batch::check_map;
use crate::links::By;
use crate::streams::Sent;
use crate::target::{Target, TargetPool};
use std::rc::Rc;
use std::time::Duration;
use transport::Incoming;
use twophase::{Participant, Told};
use types::{Code, Epoch, Error, PoolId, Result, Unit};
use vos::Summary;
use wire::Header;
use wire::obj::{Batch, Op, Prepared, Request, Sums, TxId, TxOutcome};
use wire::order::{Order, encode_prepare};
use wire::walk::walk;

/// A participant asks after this long without a decision; after a restart, at once.
const DOUBT_TIME: Duration = Duration::from_millis(500);

impl Target {
    /// Serves a coordinator's request to prepare, beside its connection: others that it coordinates go on.
    pub(crate) async fn receive_prepare(self: &Rc<Self>, incoming: Incoming) {
        let Incoming { header, body, mut bulk, responder, .. } = incoming;
        let data = match bulk.read_to_vec().await {
            Ok(data) => data,
            Err(error) => return self.answer_error(responder, 0, error).await,
        };
        drop(bulk);
        let target = self.clone();
        self.spawn_counted(async move {
            let outcome = target.prepare_asked(&header, &body, &data).await;
            let answer = match &outcome {
                Ok((epoch_min, reply)) => {
                    wire::encode(&Ok::<_, Error>(Prepared { epoch_min: *epoch_min, reply }))
                }
                Err(error) => wire::encode(&Err::<(), _>(error)),
            };
            target.send(responder, 0, &answer, &[]).await;
        });
    }

    async fn prepare_asked(
        self: &Rc<Self>,
        header: &Header,
        body: &[u8],
        data: &[u8],
    ) -> Result<(Epoch, Vec<u8>)> {
        let Request::Prepare { tx, coordinator, batch } = wire::decode::<Request<'_>>(body)? else {
            return Err(Error::bare(Code::Proto));
        };
        let pool = batch.pool;
        let ctx = self.asked_shard(pool).await?;
        // By an older map this target may have led what it has given away since.
        self.know_map_of(&ctx, header).await?;
        check_map(header, &ctx)?;
        let prepared = self.prepare_here(&ctx, tx, coordinator, &batch, data, None).await;
        let prepared = prepared.map_err(|error| {
            let units = walk(&batch.ops).map(Op::unit).chain(batch.checks.iter().map(|of| of.unit));
            let error = self.without_lost_pages(&ctx, error);
            self.without_failed_device(&ctx, (units, true), error)
        })?;
        let target = self.clone();
        self.env.spawn(async move {
            // timer: a coordinator that is there tells of its decision within this time.
            target.env.sleep(DOUBT_TIME).await;
            target.resolve(pool, ctx, tx, coordinator).await;
        });
        Ok(prepared)
    }

    /// Checks, logs and holds a part; returns the least epoch for it and its encoded reply. `premise` is looked at in the step that
    /// holds it.
    pub(super) async fn prepare_here(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        coordinator: Unit,
        batch: &Batch<'_>,
        data: &[u8],
        premise: Option<&Premise<'_>>,
    ) -> Result<(Epoch, Vec<u8>)> {
        if batch.at != Epoch::ZERO {
            return Err(Error::inval(
                "a transaction over several targets works on the present only",
            ));
        }
        let summary = Summary::of(&batch.checks, &batch.ops);
        if summary.names_stripes || summary.touches_cells {
            return Err(Error::inval("stripes and cells are no matter of transactions"));
        }
        self.asked_cont(ctx, batch.cont).await?;
        let mut slot = None;
        if let Some(gate) = ctx.admission.writers.for_bulk(data.len() as u64) {
            slot = Some(gate.enter_first(data.len() as u64, PREPARE_WAIT_MAX).await);
        }
        let mut payload = self.stage_for(ctx, &summary)?;
        let mut rest = data;
        for room in payload.buffers() {
            let (mine, others) = rest
                .split_at_checked(room.len())
                .ok_or_else(|| Error::new(Code::Proto, "a transaction lacks bulk data"))?;
            room.copy_from_slice(mine);
            rest = others;
        }
        ctx.shard.take_sums(batch.cont, &batch.sums, &mut payload)?;
        payload.write().await?;
        // Before any key is held: who holds a key must not keep others from their slots.
        if let Some(slot) = slot {
            slot.finish();
        }
        let Batch { cont, ref checks, ref ops, .. } = *batch;
        let until = self.env.now() + PREPARE_WAIT_MAX;
        let mut has_word = !self.has_premises_elsewhere(ctx, checks, &summary);
        loop {
            ctx.shard.ready_for_batch((cont, Epoch::ZERO), checks, ops, &summary).await?;
            if !self.is_settled_for_batch(ctx, cont, checks, &summary)? {
                let settled = self.settled_for_batch(ctx, cont, checks, &summary, until).await;
                settled.map_err(|error| match error.code {
                    Code::TimedOut => Error { code: Code::TxRestart, ..error },
                    _ => error,
                })?;
                continue;
            }
            // What is only looked at is told to no other member.
            let doubt = self.doubt_of_batch(ctx, checks, &summary, &[]);
            if has_word || doubt.is_none() {
                break;
            }
            self.settle_doubt(batch.pool, ctx, doubt).await?;
            has_word = true;
        }
        // From here to the log no await: what is in memory stays, and what is checked still holds
        // when it is locked.
        let group = self.group_of_batch(ctx, batch, &summary)?;
        if ctx.shard.is_held(batch.cont, &summary) {
            return Err(Error::new(Code::TxRestart, "another transaction holds a key"));
        }
        if let Some(premise) = premise {
            premise()?;
        }
        let mut plan = match self.check_and_plan(ctx, batch, &summary, By::Leader) {
            Ok(plan) => plan,
            Err(error) => {
                // What it fails for may be gone after a crash.
                let seen = ctx.shard.newest_seen(batch.cont, &summary);
                let unsettled = ctx.streams.newest_seen(batch.cont, &summary);
                let doubt = self.doubt_of_batch(ctx, checks, &summary, &[]);
                ctx.shard.durable(seen).await?;
                ctx.streams.wait_for(unsettled).await?;
                self.settle_doubt(batch.pool, ctx, doubt).await?;
                return Err(error);
            }
        };
        if plan.segments.bytes() > 0 {
            return Err(Error::inval("a transaction over several targets cannot fetch bulk data"));
        }
        if !plan.after.opens.is_empty() {
            // Whoever asks for it thought that it is all on one target, as it was a while ago.
            return Err(Error::new(
                Code::TxRestart,
                "a transaction over several targets cannot open handles: open them before",
            ));
        }
        self.linger(ctx, std::mem::take(&mut plan.after.linger));
        let epoch_min = self.tick(ctx);
        let reply = plan.encode(Epoch::ZERO);
        // Held open or not is known for sure only when the part takes effect.
        let reaped = plan.after.reap.iter().map(|handle| handle.1);
        let of_nothing = plan.freed_of_nothing.iter().copied();
        let freed = reaped.chain(of_nothing).map(|unit| Op::PunchUnlessOpen { unit });
        let adopted = plan.adopted.iter().map(|unit| Op::Adopt { unit: *unit });
        let beside: Vec<Op<'_>> = freed.chain(adopted).collect();
        let ops = plan.writes.as_deref().unwrap_or(&batch.ops);
        let mut ops: Vec<&Op<'_>> = walk(ops).chain(&beside).collect();
        if ops.is_empty() && checks.is_empty() {
            // It comes to nothing, and is a part all the same: by its units it is known who has it decided after a crash.
            ops.extend(walk(&batch.ops));
        }
        let (pool, cont) = (batch.pool, batch.cont);
        // An encoded `Batch`, of operations that stay where they are.
        let part = wire::encode(&(pool, cont, Epoch::ZERO, checks, &ops, Sums::NONE));
        let order = group.as_ref().map(|_| encode_prepare(tx, coordinator, &part, &batch.sums));
        let lsn = ctx.shard.prepare(tx, coordinator, cont, part, payload)?;
        self.spread_soon(pool, ctx, cont, &summary);
        let sent = match order {
            Some(order) => {
                let data = data.to_vec().into();
                self.ship_encoded(pool, ctx, group.as_ref(), order, data, None, false)
            }
            None => Sent::NOWHERE,
        };
        let is_same_log = self.leader_of(ctx, coordinator).is_ok_and(|leader| leader == self.id);
        let step = Step { lsn, sent, after: 0 };
        step.firm(ctx, Participant::held(is_same_log)).await?;
        Ok((epoch_min, reply))
    }

    /// Applies or drops a prepared part, has its group do so, and lets those who waited for it go on; where the log
    /// says so. The acknowledgement to the coordinator waits until that is written.
    ///
    /// Errors: `Stale` when another target leads the part's group; `Busy` when a member of it may be in doubt.
    pub(crate) async fn decide(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        unit: Unit,
        outcome: TxOutcome,
    ) -> Result<Step> {
        if let TxOutcome::Committed(epoch) = outcome {
            ctx.clock.observe(epoch);
            ctx.shard.ready_to_decide(tx).await?;
        }
        let group = self.led_group(ctx, unit)?;
        tracing::debug!("target {}: part {tx:?} of unit {unit}: {outcome:?}", self.id);
        let away = match &group {
            Some(group) => {
                let map = ctx.map()?;
                let mut followers = group.followers.iter();
                followers.find(|member| !placement::is_live(**member, &map)).copied()
            }
            None => None,
        };
        let told = Participant::told(outcome, ctx.shard.is_prepared(tx), away.is_some());
        if let (Told::Refuse, Some(member)) = (told, away) {
            let text = format!("target {member} may be in doubt until it has caught up");
            return Err(Error::new(Code::Busy, text));
        }
        let part = match &group {
            Some(_) => ctx.shard.prepared_batch(tx),
            None => None,
        };
        if let TxOutcome::Committed(epoch) = outcome {
            ctx.old_parts.note_commit(ctx, tx, epoch)?;
        }
        let lsn = ctx.shard.decide(tx, outcome, None, &[])?;
        let (mut sent, mut after) = (Sent::NOWHERE, 0);
        if let (Told::Await, Some(_)) = (told, &group) {
            after = ctx.streams.last();
        }
        if let Some((cont, part)) = part {
            let changed = Some((cont, &part.batch().ops[..]));
            let order = Order::Decide { tx, outcome };
            sent = self.ship(pool, ctx, group.as_ref(), &order, Vec::new(), changed);
        }
        ctx.undecided.wake(&tx);
        if matches!(outcome, TxOutcome::Committed(_)) {
            self.reap_orphans(ctx);
        }
        Ok(Step { lsn, sent, after })
    }
}

/// A unit of the group of a prepared part.
pub(crate) fn part_unit(ctx: &TargetPool, tx: TxId) -> Option<Unit> {
    part_units(ctx, tx).into_iter().next()
}

/// What a prepared part changes, then what it checks. Groups that had one member each may have been in one part; they need not go
/// to the same targets.
pub(crate) fn part_units(ctx: &TargetPool, tx: TxId) -> Vec<Unit> {
    let Some((_, part)) = ctx.shard.prepared_batch(tx) else { return Vec::new() };
    let batch = part.batch();
    let of_checks = batch.checks.iter().map(|check| check.unit);
    walk(&batch.ops).map(Op::unit).chain(of_checks).collect()
}
