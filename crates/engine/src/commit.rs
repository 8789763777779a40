//! Transactions over several groups: two-phase commit, coordinated by the leader of the first.
//!
//! Coordinator and participants are groups: who leads one now acts for it, and has its members keep parts and
//! decisions likewise ([`crate::streams`]). The client sends the whole transaction to the leader of the first group. That target has every
//! participant check, log and hold its part (*prepare*), logs the decision (the commit point),
//! answers, and tells the participants. A participant that is told nothing asks the coordinator;
//! a coordinator that knows nothing of a transaction says "aborted" (presumed abort), which is
//! safe because each attempt has an id of its own.
//!
//! A lost conflict never waits: it aborts with `TxRestart`, so there is no deadlock. Single
//! requests that meet a held key wait for the decision instead ([`crate::batch`]).

use crate::admission::PREPARE_WAIT_MAX;
use crate::batch::check_map;
use crate::client_cells::names_stripes;
use crate::follow::as_order_origin;
use crate::group::Group;
use crate::jobs::Answered;
use crate::session::Session;
use crate::streams::Sent;
use crate::target::{Target, TargetPool};
use futures_util::future::join_all;
use std::rc::Rc;
use std::time::Duration;
use transport::Incoming;
use types::{Code, Epoch, Error, PoolId, Result, TargetId, Unit};
use vos::{Lsn, Origin};
use wire::Header;
use wire::obj::{Batch, Op, Prepared, Request, Sums, TxId, TxOutcome, TxReply};
use wire::order::Order;

/// A participant asks after this long without a decision; after a restart, at once.
const DOUBT_TIME: Duration = Duration::from_millis(500);
/// Pauses between attempts to ask for or to tell a decision: the first, and where doubling ends.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl Target {
    /// Takes a whole transaction off a connection and coordinates it.
    pub(crate) async fn receive_commit(self: &Rc<Self>, caller: &Rc<Session>, incoming: Incoming) {
        let Incoming { header, body, mut bulk, responder, .. } = incoming;
        let (begun, in_bytes) = (self.env.now(), bulk.remaining() as u64);
        let mut data = vec![0; bulk.remaining()];
        if let Err(error) = bulk.read_into(&mut data).await {
            return self.answer_error(responder, 0, error).await;
        }
        drop(bulk);
        let (target, caller) = (self.clone(), caller.clone());
        self.spawn_counted(async move {
            let outcome = target.commit_once(&caller, &header, &body, &data).await;
            let out_bytes = outcome.is_ok().then_some(0);
            let answer = outcome
                .unwrap_or_else(|error| target.refusal(pool_of_commit(&body), &header, &error));
            target.send(responder, 0, &answer, &[]).await;
            let at = target.env.now();
            let (time, waited) = (at.saturating_sub(begun), Duration::ZERO);
            caller.count(&Answered { at, time, waited, in_bytes, out_bytes });
        });
    }

    /// Commits a transaction unless it was committed before; returns the encoded answer.
    async fn commit_once(
        self: &Rc<Self>,
        caller: &Session,
        header: &Header,
        body: &[u8],
        data: &[u8],
    ) -> Result<Vec<u8>> {
        let Request::Commit { tx, parts } = wire::decode::<Request<'_>>(body)? else {
            return Err(Error::bare(Code::Proto));
        };
        if tx.client != caller.client {
            return Err(Error::new(Code::Proto, "a transaction of another client"));
        }
        let Some((first, batch, _)) = parts.first() else {
            return Err(Error::new(Code::Proto, "a transaction without parts"));
        };
        let pool = wire::decode::<Batch<'_>>(batch)?.pool;
        let ctx = self.asked_shard(pool).await?;
        loop {
            let (sender, over) = futures_channel::oneshot::channel();
            match self.committing.borrow_mut().get_mut(&tx) {
                Some(waiting) => waiting.push(sender),
                None => break,
            }
            // An error means the sender is gone: the other try is over.
            let _ = over.await;
        }
        if let Some(answer) = self.replay(&ctx, tx, Some(*first)).await? {
            return Ok(answer);
        }
        // Its parts may belong elsewhere by now.
        check_map(header, &ctx)?;
        if self.leader_of(&ctx, *first)? != self.id {
            return Err(Error::bare(Code::Stale));
        }
        // In the same step as this: from here on another try waits for this one, and before, who has come
        // again may have been answered.
        if caller.is_over() {
            return Err(Error::new(Code::Closed, "its client has come again"));
        }
        self.committing.borrow_mut().insert(tx, Vec::new());
        let outcome = self.coordinate(pool, &ctx, tx, &parts, data).await;
        let waiting = self.committing.borrow_mut().remove(&tx).unwrap_or_default();
        for waiting in waiting {
            let _ = waiting.send(());
        }
        outcome
    }

    async fn coordinate(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        client_tx: TxId,
        parts: &[(Unit, &serde_bytes::Bytes, u32)],
        data: &[u8],
    ) -> Result<Vec<u8>> {
        if parts.len() as u64 >= TxId::PARTS_MAX {
            return Err(Error::inval("a transaction over too many groups"));
        }
        let tx = TxId { client: self.coordinator, seq: self.next_tx.get() };
        self.next_tx.set(tx.seq + TxId::PARTS_MAX);
        self.coordinating.borrow_mut().insert(tx);
        let participants: Vec<Unit> = parts.iter().map(|(unit, ..)| *unit).collect();
        let coordinator = participants[0];

        let mut rest = data;
        let mut asked = Vec::with_capacity(parts.len());
        for (at, (unit, batch, bytes)) in parts.iter().enumerate() {
            let Some((mine, others)) = rest.split_at_checked(*bytes as usize) else {
                self.coordinating.borrow_mut().remove(&tx);
                return Err(Error::new(Code::Proto, "a transaction lacks bulk data"));
            };
            rest = others;
            asked.push(self.prepare_at(ctx, tx.part(at), coordinator, *unit, batch, mine));
        }
        let prepared = join_all(asked).await;

        let mut epoch = self.tick(ctx);
        let mut replies = Vec::with_capacity(prepared.len());
        let mut failure: Option<Error> = None;
        for outcome in prepared {
            match outcome {
                Ok((epoch_min, reply)) => {
                    epoch = epoch.max(epoch_min);
                    replies.push(reply);
                }
                // A definite error says more than a lost conflict.
                Err(error) if failure.as_ref().is_none_or(|f| f.code == Code::TxRestart) => {
                    failure = Some(error);
                }
                Err(_) => {}
            }
        }
        if let Some(error) = failure {
            self.coordinating.borrow_mut().remove(&tx);
            self.clone().tell_decision(pool, ctx.clone(), tx, TxOutcome::Aborted, participants);
            return Err(error);
        }
        let reply = TxReply {
            epoch,
            parts: replies.iter().map(|reply| serde_bytes::Bytes::new(reply)).collect(),
        };
        let answer = wire::encode(&Ok::<_, Error>(reply));
        let decided = self.log_decision(pool, ctx, tx, epoch, &participants, client_tx, &answer);
        match decided {
            // When the log fails, nobody knows what it and other members say until they are asked again: the
            // transaction stays pending until this engine is restarted. Also in a pool that
            // does not wait: the parts are on several devices, and lost together or not at all.
            Ok(step) => {
                ctx.shard.written(step.lsn).await?;
                if let Err(error) = step.sent.settled().await {
                    // Leaders have changed. Who comes again is answered when all members have it, if this one leads still.
                    self.coordinating.borrow_mut().remove(&tx);
                    self.clone().repeat_decision(pool, ctx.clone(), tx, epoch, participants);
                    return Err(error);
                }
            }
            Err(error) => {
                self.coordinating.borrow_mut().remove(&tx);
                return Err(error);
            }
        };
        self.coordinating.borrow_mut().remove(&tx);
        let outcome = TxOutcome::Committed(epoch);
        // Our own part takes effect before the answer leaves, so that a client which asks us
        // next meets no held key; the others follow.
        let decided = match self.decide(pool, ctx, tx.part(0), coordinator, outcome).await {
            // Behind the decision in the same log.
            Ok(step) => step.durable(ctx).await,
            Err(error) => Err(error),
        };
        if let Err(error) = decided {
            // It is committed, and the others must hear it; our part is tried again with theirs.
            tracing::warn!(
                "target {}: a committed part does not take effect yet: {error}",
                self.id
            );
        }
        self.clone().tell_decision(pool, ctx.clone(), tx, outcome, participants);
        Ok(answer)
    }

    /// Writes a decision down, and has the coordinator's group do so.
    #[expect(clippy::too_many_arguments, reason = "what a decision consists of")]
    fn log_decision(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        epoch: Epoch,
        participants: &[Unit],
        client_tx: TxId,
        answer: &[u8],
    ) -> Result<Step> {
        let group = self.led_group(ctx, participants[0])?;
        tracing::debug!("target {}: decides to commit {tx:?}", self.id);
        let origin = Origin { tx: client_tx, of: Some(participants[0]), reply: answer };
        let lsn = ctx.shard.log_decision(tx, epoch, participants, Some(origin))?;
        let origin = as_order_origin(origin);
        let order = Order::Decision { tx, epoch, participants: participants.to_vec(), origin };
        let sent = self.ship(pool, ctx, group.as_ref(), &order, Vec::new(), None);
        Ok(Step { lsn, sent, after: 0 })
    }

    /// Has one participant prepare its part.
    async fn prepare_at(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        coordinator: Unit,
        unit: Unit,
        batch: &[u8],
        data: &[u8],
    ) -> Result<(Epoch, Vec<u8>)> {
        let decoded: Batch<'_> = wire::decode(batch)?;
        let took_no_part = |target: TargetId, error: Error| {
            Error::new(Code::Unreach, format!("target {target} took no part: {error}"))
        };
        let target = self.leader_of(ctx, unit)?;
        if target == self.id {
            let prepared = self.prepare_here(ctx, tx, coordinator, &decoded, data).await;
            return prepared.map_err(|error| match error.code {
                Code::Stale | Code::Closed => took_no_part(target, error),
                _ => error,
            });
        }
        let map = ctx.map()?;
        let engine = map.engine_of(target).ok_or_else(|| {
            Error::new(Code::NonExist, format!("target {target} is not in the pool map"))
        })?;
        let request = Request::Prepare { tx, coordinator, batch: decoded };
        let asked = self.peers.ask(engine, target, &wire::encode(&request), &[data]).await;
        // Whatever became of the participant, the transaction is aborted: it can be run again.
        let answer = asked.map_err(|error| took_no_part(target, error))?;
        let prepared = match wire::decode::<Result<Prepared<'_>>>(&answer.body)? {
            Err(error) if matches!(error.code, Code::Stale | Code::Closed) => {
                return Err(took_no_part(target, error));
            }
            prepared => prepared?,
        };
        Ok((prepared.epoch_min, prepared.reply.to_vec()))
    }

    /// Serves a coordinator's request to prepare, beside its connection: others that it coordinates go on.
    pub(crate) async fn receive_prepare(self: &Rc<Self>, incoming: Incoming) {
        let Incoming { body, mut bulk, responder, .. } = incoming;
        let data = match bulk.read_to_vec().await {
            Ok(data) => data,
            Err(error) => return self.answer_error(responder, 0, error).await,
        };
        drop(bulk);
        let target = self.clone();
        self.spawn_counted(async move {
            let outcome = target.prepare_asked(&body, &data).await;
            let answer = match &outcome {
                Ok((epoch_min, reply)) => {
                    wire::encode(&Ok::<_, Error>(Prepared { epoch_min: *epoch_min, reply }))
                }
                Err(error) => wire::encode(&Err::<(), _>(error)),
            };
            target.send(responder, 0, &answer, &[]).await;
        });
    }

    async fn prepare_asked(self: &Rc<Self>, body: &[u8], data: &[u8]) -> Result<(Epoch, Vec<u8>)> {
        let Request::Prepare { tx, coordinator, batch } = wire::decode::<Request<'_>>(body)? else {
            return Err(Error::bare(Code::Proto));
        };
        let pool = batch.pool;
        let ctx = self.asked_shard(pool).await?;
        let prepared = self.prepare_here(&ctx, tx, coordinator, &batch, data).await;
        let prepared = prepared.map_err(|error| self.without_lost_pages(&ctx, error))?;
        let target = self.clone();
        self.env.spawn(async move {
            target.env.sleep(DOUBT_TIME).await;
            target.resolve(pool, ctx, tx, coordinator).await;
        });
        Ok(prepared)
    }

    /// Checks, logs and holds a part; returns the least epoch for it and its encoded reply.
    async fn prepare_here(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        coordinator: Unit,
        batch: &Batch<'_>,
        data: &[u8],
    ) -> Result<(Epoch, Vec<u8>)> {
        if batch.at != Epoch::ZERO {
            return Err(Error::inval(
                "a transaction over several targets works on the present only",
            ));
        }
        if names_stripes(batch) || batch.ops.iter().any(|op| op.unit().is_cell()) {
            return Err(Error::inval("stripes and cells are no matter of transactions"));
        }
        self.asked_cont(ctx, batch.cont).await?;
        let mut slot = None;
        if let Some(gate) = ctx.admission.writers.for_bulk(data.len() as u64) {
            slot = Some(gate.enter_first(data.len() as u64, PREPARE_WAIT_MAX).await);
        }
        let mut payload = self.stage(ctx, &batch.ops)?;
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
        loop {
            ctx.shard.ready(cont, checks, ops).await?;
            if self.is_settled_before_change(ctx, cont, checks, ops)? {
                break;
            }
            let settled = self.settled_before_change(ctx, cont, checks, ops, until).await;
            settled.map_err(|error| match error.code {
                Code::TimedOut => Error { code: Code::TxRestart, ..error },
                _ => error,
            })?;
        }
        // From here to the log no await: what is in memory stays, and what is checked still holds
        // when it is locked.
        let group = self.group_of_batch(ctx, batch)?;
        if ctx.shard.conflicts(batch.cont, &batch.checks, &batch.ops) {
            return Err(Error::new(Code::TxRestart, "another transaction holds a key"));
        }
        let looked = ctx.shard.check(batch.cont, &batch.checks, &batch.ops);
        let mut plan = match looked.and_then(|()| self.plan(ctx, batch)) {
            Ok(plan) => plan,
            Err(error) => {
                // What it fails for may be gone after a crash.
                let seen = ctx.shard.newest_seen(batch.cont, &batch.checks, &batch.ops);
                let unsettled = ctx.streams.newest_seen(batch.cont, &batch.checks, &batch.ops);
                ctx.shard.durable(seen).await?;
                ctx.streams.wait_for(unsettled).await?;
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
        self.linger(std::mem::take(&mut plan.after.linger));
        let epoch_min = self.tick(ctx);
        let reply = plan.encode(Epoch::ZERO);
        let mut ops = plan.writes.unwrap_or_else(|| batch.ops.clone());
        // Held open or not is known for sure only when the part takes effect.
        ops.extend(plan.after.reap.iter().map(|handle| Op::PunchUnlessOpen { unit: handle.2 }));
        ops.extend(plan.adopted.iter().map(|unit| Op::Adopt { unit: *unit }));
        let (pool, cont, checks) = (batch.pool, batch.cont, batch.checks.clone());
        let part = Batch { pool, cont, at: Epoch::ZERO, checks, ops, sums: Sums::NONE };
        let lsn = ctx.shard.prepare(tx, coordinator, cont, &wire::encode(&part), payload)?;
        let part = Batch { sums: batch.sums, ..part };
        let order = Order::Prepare { tx, coordinator, batch: part };
        let data = if group.is_some() { data.to_vec() } else { Vec::new() };
        let sent = self.ship(pool, ctx, group.as_ref(), &order, data, None);
        let step = Step { lsn, sent, after: 0 };
        if self.leader_of(ctx, coordinator).is_ok_and(|leader| leader == self.id) {
            // The decision comes behind it in the same log.
            step.durable(ctx).await?;
        } else {
            step.written(ctx).await?;
        }
        Ok((epoch_min, reply))
    }

    /// Applies or drops a prepared part, has its group do so, and lets those who waited for it go on; where the log
    /// says so. The acknowledgement to the coordinator waits until that is written.
    ///
    /// Errors: `Stale` when another target leads the part's group.
    pub(crate) async fn decide(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        unit: Unit,
        outcome: TxOutcome,
    ) -> Result<Step> {
        if let TxOutcome::Committed(epoch) = outcome {
            ctx.clock.borrow_mut().observe(epoch);
            ctx.shard.ready_to_decide(tx).await?;
        }
        let group = self.led_group(ctx, unit)?;
        tracing::debug!("target {}: part {tx:?} of unit {unit}: {outcome:?}", self.id);
        let part = match group {
            Some(_) => ctx.shard.prepared_batch(tx),
            None => None,
        };
        if part.is_none() && matches!(outcome, TxOutcome::Committed(_)) {
            self.none_in_doubt(ctx, group.as_ref())?;
        }
        let lsn = ctx.shard.decide(tx, outcome, None, &[])?;
        // An earlier word of it may still be on its way to the others.
        let (mut sent, mut after) =
            (Sent::NOWHERE, group.as_ref().map_or(0, |_| ctx.streams.last()));
        if let Some((cont, batch)) = part {
            after = 0;
            let batch: Batch<'_> = wire::decode(&batch)?;
            let (order, changed) = (Order::Decide { tx, outcome }, Some((cont, &batch.ops[..])));
            sent = self.ship(pool, ctx, group.as_ref(), &order, Vec::new(), changed);
        }
        ctx.unpark();
        if matches!(outcome, TxOutcome::Committed(_)) {
            self.reap_orphans(pool, ctx);
        }
        Ok(Step { lsn, sent, after })
    }

    /// A member that was opened again may hold a part still that the others have decided, and may lead later. Until it has caught
    /// up the coordinator is not to forget the outcome. To tell the member would be wrong by then: others may have changed the keys since.
    ///
    /// Errors: `Busy` as long as there is one.
    fn none_in_doubt(&self, ctx: &TargetPool, group: Option<&Group>) -> Result<()> {
        let Some(group) = group else { return Ok(()) };
        let map = ctx.map()?;
        match group.followers.iter().find(|member| !placement::is_live(**member, &map)) {
            Some(member) => {
                let text = format!("target {member} may be in doubt until it has caught up");
                Err(Error::new(Code::Busy, text))
            }
            None => Ok(()),
        }
    }

    /// The answer to an earlier try of a request that has changed `unit`, once all members of the unit's group have it.
    ///
    /// Errors: `Stale` when another target leads that group.
    pub(crate) async fn replay(
        &self,
        ctx: &TargetPool,
        tx: TxId,
        unit: Option<Unit>,
    ) -> Result<Option<Vec<u8>>> {
        let Some(answer) = ctx.shard.replayed(tx)? else { return Ok(None) };
        let Some(unit) = unit.filter(|unit| !ctx.is_of_one(*unit)) else {
            return Ok(Some(answer));
        };
        self.led_group(ctx, unit)?;
        ctx.streams.wait_for(ctx.streams.last()).await?;
        self.led_group(ctx, unit)?;
        // It may have been taken back meanwhile.
        ctx.shard.replayed(tx)
    }

    /// What this coordinator knows of a transaction, by the name of one of its parts.
    fn outcome_of(&self, ctx: &TargetPool, part: TxId) -> TxOutcome {
        let tx = part.whole();
        if self.coordinating.borrow().contains(&tx) {
            return TxOutcome::Pending;
        }
        match ctx.shard.decision(tx) {
            Some((epoch, _)) => TxOutcome::Committed(epoch),
            None => TxOutcome::Aborted,
        }
    }

    /// The same for a participant, once all members of the coordinator's group have it. What is not known is aborted, and no member of the coordinator's group may say anything else
    /// later: one may have a decision that its leader, now lost, was about to make.
    ///
    /// Errors: `Stale` when another target leads that group.
    pub(crate) async fn outcome_to_tell(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        part: TxId,
        coordinator: Unit,
    ) -> Result<TxOutcome> {
        let group = self.led_group(ctx, coordinator)?;
        let outcome = self.outcome_of(ctx, part);
        tracing::debug!("target {}: tells of part {part:?}: {outcome:?}", self.id);
        if outcome == TxOutcome::Aborted {
            let order = Order::ForgetDecision { tx: part.whole() };
            self.ship(pool, ctx, group.as_ref(), &order, Vec::new(), None).settled().await?;
        }
        if group.is_some() {
            ctx.streams.wait_for(ctx.streams.last()).await?;
        }
        Ok(outcome)
    }

    /// Tells participants the outcome until each has acknowledged it; then forgets the decision.
    fn tell_decision(
        self: Rc<Self>,
        pool: PoolId,
        ctx: Rc<TargetPool>,
        tx: TxId,
        outcome: TxOutcome,
        participants: Vec<Unit>,
    ) {
        let target = self.clone();
        self.spawn_counted(async move {
            let told = participants.iter().enumerate();
            let told =
                told.map(|(at, unit)| target.tell_one(pool, &ctx, tx.part(at), outcome, *unit));
            let all = join_all(told).await.into_iter().all(|acknowledged| acknowledged);
            if all
                && matches!(outcome, TxOutcome::Committed(_))
                && let Err(error) = target.forget_decision(pool, &ctx, tx, participants[0])
            {
                tracing::warn!("target {}: forgetting a decision: {error}", target.id);
            }
        });
    }

    /// The same for one that was made before this target led the coordinator's group, or before a restart: once all members
    /// of that have it.
    fn repeat_decision(
        self: Rc<Self>,
        pool: PoolId,
        ctx: Rc<TargetPool>,
        tx: TxId,
        epoch: Epoch,
        participants: Vec<Unit>,
    ) {
        let Ok(group) = self.led_group(&ctx, participants[0]) else { return };
        let order = Order::Decision { tx, epoch, participants: participants.clone(), origin: None };
        let sent = self.ship(pool, &ctx, group.as_ref(), &order, Vec::new(), None);
        let target = self.clone();
        self.spawn_counted(async move {
            // Another target leads the group else.
            if sent.settled().await.is_ok() {
                let outcome = TxOutcome::Committed(epoch);
                target.tell_decision(pool, ctx, tx, outcome, participants);
            }
        });
    }

    fn forget_decision(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        coordinator: Unit,
    ) -> Result<()> {
        let group = self.led_group(ctx, coordinator)?;
        ctx.shard.forget_decision(tx)?;
        let order = Order::ForgetDecision { tx };
        // Nobody waits for it: who comes to lead the group tells the participants once more.
        drop(self.ship(pool, ctx, group.as_ref(), &order, Vec::new(), None));
        Ok(())
    }

    /// Tells one participant; true when it has acknowledged it. An abort is told once: a participant that
    /// misses it asks. A commit is repeated until acknowledged or this engine stops (then told again
    /// after its restart).
    async fn tell_one(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        outcome: TxOutcome,
        participant: Unit,
    ) -> bool {
        let body = wire::encode(&Request::Decide { pool, tx, unit: participant, outcome });
        let mut pause = PAUSE_MIN;
        loop {
            let told = match self.leader_of(ctx, participant) {
                Ok(leader) if leader == self.id => {
                    match self.decide(pool, ctx, tx, participant, outcome).await {
                        Ok(step) => step.written(ctx).await,
                        Err(error) => Err(error),
                    }
                }
                Ok(leader) => self.tell_remote(ctx, leader, &body).await,
                Err(error) => Err(error),
            };
            match told {
                Ok(()) => return true,
                Err(error) => {
                    tracing::debug!("telling unit {participant} a decision: {error}");
                    if outcome == TxOutcome::Aborted || self.is_draining() {
                        return false;
                    }
                    self.env.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn tell_remote(&self, ctx: &TargetPool, leader: TargetId, body: &[u8]) -> Result<()> {
        let map = ctx.map()?;
        let engine = map.engine_of(leader).ok_or_else(|| Error::bare(Code::NonExist))?;
        let answer = self.peers.ask(engine, leader, body, &[]).await?;
        wire::decode::<Result<TxOutcome>>(&answer.body)?.map(|_| ())
    }

    /// Asks the coordinator about a prepared part until it is decided, or other targets lead all groups of the part: one that
    /// changes nothing may be of several, and no other member has it.
    async fn resolve(
        self: Rc<Self>,
        pool: PoolId,
        ctx: Rc<TargetPool>,
        tx: TxId,
        coordinator: Unit,
    ) {
        let units = part_units(&ctx, tx);
        if !self.resolving.borrow_mut().insert(tx) {
            return;
        }
        let body = wire::encode(&Request::AskOutcome { pool, tx, coordinator });
        let mut pause = PAUSE_MIN;
        while ctx.shard.is_prepared(tx) {
            let is_others = |error: Error| error.code == Code::Stale;
            let mut units = units.iter().copied();
            let Some(unit) = units.find(|unit| !self.led_group(&ctx, *unit).is_err_and(is_others))
            else {
                break;
            };
            match self.ask_outcome(pool, &ctx, tx, coordinator, &body).await {
                Ok(TxOutcome::Pending) => {}
                Ok(outcome) => match self.decide(pool, &ctx, tx, unit, outcome).await {
                    Ok(_) => break,
                    Err(error) => tracing::warn!("target {}: deciding: {error}", self.id),
                },
                Err(error) => {
                    tracing::info!("target {}: a transaction is in doubt: {error}", self.id);
                }
            }
            self.env.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        self.resolving.borrow_mut().remove(&tx);
    }

    async fn ask_outcome(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        coordinator: Unit,
        body: &[u8],
    ) -> Result<TxOutcome> {
        let leader = self.leader_of(ctx, coordinator)?;
        if leader == self.id {
            return self.outcome_to_tell(pool, ctx, tx, coordinator).await;
        }
        let map = ctx.map()?;
        let engine = map.engine_of(leader).ok_or_else(|| Error::bare(Code::NonExist))?;
        let answer = self.peers.ask(engine, leader, body, &[]).await?;
        wire::decode::<Result<TxOutcome>>(&answer.body)?
    }

    /// After a restart, and when groups have come to this target: repeats decisions that may not have been
    /// acknowledged, and asks about parts that wait for one.
    pub(crate) fn resume_transactions(self: Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        self.resume_those(pool, ctx, |_| true);
    }

    /// The same for those of groups of several members.
    pub(crate) fn take_over_transactions(self: Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        self.resume_those(pool, ctx, |unit| !ctx.is_alone(unit.object));
    }

    fn resume_those(
        self: Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        is_meant: impl Fn(Unit) -> bool,
    ) {
        for (tx, epoch, participants) in ctx.shard.decisions() {
            let is_led = |unit: &Unit| is_meant(*unit) && self.led_group(ctx, *unit).is_ok();
            if participants.first().is_some_and(is_led) {
                self.clone().repeat_decision(pool, ctx.clone(), tx, epoch, participants);
            }
        }
        for (tx, coordinator) in ctx.shard.prepared() {
            if !part_unit(ctx, tx).is_some_and(&is_meant) {
                continue;
            }
            let (target, ctx) = (self.clone(), ctx.clone());
            self.env.spawn(async move { target.resolve(pool, ctx, tx, coordinator).await });
        }
    }
}

/// The pool of a transaction that was refused; the number that no pool has when it is none.
fn pool_of_commit(body: &[u8]) -> PoolId {
    let pool = || {
        let Request::Commit { parts, .. } = wire::decode::<Request<'_>>(body).ok()? else {
            return None;
        };
        Some(wire::decode::<Batch<'_>>(parts.first()?.1).ok()?.pool)
    };
    pool().unwrap_or(PoolId(0))
}

/// A unit of the group of a prepared part.
pub(crate) fn part_unit(ctx: &TargetPool, tx: TxId) -> Option<Unit> {
    part_units(ctx, tx).into_iter().next()
}

/// What a prepared part changes, then what it checks. Groups that had one member each may have been in one part; they need not go
/// to the same targets.
pub(crate) fn part_units(ctx: &TargetPool, tx: TxId) -> Vec<Unit> {
    let Some((_, batch)) = ctx.shard.prepared_batch(tx) else { return Vec::new() };
    let Ok(batch) = wire::decode::<Batch<'_>>(&batch) else { return Vec::new() };
    let of_checks = batch.checks.iter().map(|check| check.unit);
    batch.ops.iter().map(Op::unit).chain(of_checks).collect()
}

/// Something done here, on its way to stable storage and to the other members of the group.
#[must_use]
pub(crate) struct Step {
    lsn: Lsn,
    sent: Sent,
    /// Waits for all orders up to this one, too.
    after: u64,
}

impl Step {
    /// Waits for as much as the pool promises.
    pub async fn durable(self, ctx: &TargetPool) -> Result<()> {
        ctx.shard.durable(self.lsn).await?;
        self.settled(ctx).await
    }

    /// Waits for stable storage whatever the pool promises.
    pub async fn written(self, ctx: &TargetPool) -> Result<()> {
        ctx.shard.written(self.lsn).await?;
        self.settled(ctx).await
    }

    async fn settled(self, ctx: &TargetPool) -> Result<()> {
        self.sent.settled().await?;
        match self.after {
            0 => Ok(()),
            number => ctx.streams.wait_for(number).await,
        }
    }
}
