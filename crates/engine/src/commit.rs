//! Transactions over several targets: two-phase commit, coordinated by the first target.
//!
//! The client sends the whole transaction to the target of its first op. That target has every
//! participant check, log and hold its part (*prepare*), logs the decision (the commit point),
//! answers, and tells the participants. A participant that is told nothing asks the coordinator;
//! a coordinator that knows nothing of a transaction says "aborted" (presumed abort), which is
//! safe because each attempt has an id of its own.
//!
//! A lost conflict never waits: it aborts with `TxRestart`, so there is no deadlock. Single
//! requests that meet a held key wait for the decision instead ([`crate::batch`]).

use crate::admission::{PREPARE_WAIT_MAX, at_clients_pace};
use crate::batch::check_map;
use crate::target::{Session, Target, TargetPool};
use futures_util::future::join_all;
use std::rc::Rc;
use std::time::Duration;
use transport::{Incoming, IncomingBulk};
use types::{Code, Epoch, Error, PoolId, Result, TargetId};
use vos::{Lsn, Origin};
use wire::Header;
use wire::obj::{Batch, Op, Prepared, Request, Sums, TxId, TxOutcome, TxReply};

/// A participant asks after this long without a decision; after a restart, at once.
const DOUBT_TIME: Duration = Duration::from_millis(500);
/// Pauses between attempts to ask for or to tell a decision: the first, and where doubling ends.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Bulk data of a part: still on the connection, or in memory.
enum Bulk<'a> {
    Incoming(IncomingBulk),
    Here(&'a [u8]),
}

impl Target {
    /// Takes a whole transaction off a connection and coordinates it.
    pub(crate) async fn receive_commit(self: &Rc<Self>, caller: &Rc<Session>, incoming: Incoming) {
        let Incoming { header, body, mut bulk, responder } = incoming;
        let mut data = vec![0; bulk.remaining()];
        if let Err(error) = bulk.read_into(&mut data).await {
            return self.answer_error(responder, 0, error).await;
        }
        drop(bulk);
        let (target, caller) = (self.clone(), caller.clone());
        self.spawn_counted(async move {
            let answer = match target.commit_once(&caller, &header, &body, &data).await {
                Ok(answer) => answer,
                Err(error) => wire::encode(&Err::<(), Error>(error)),
            };
            target.send(responder, 0, &answer, &[]).await;
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
        let local = parts.iter().find(|(target, ..)| *target == self.id);
        let (_, local, _) = local.ok_or_else(|| {
            Error::new(Code::Proto, "a coordinator must be one of the participants")
        })?;
        let pool = wire::decode::<Batch<'_>>(local)?.pool;
        let ctx = self.mapped_shard(pool).await?;
        loop {
            let (sender, over) = futures_channel::oneshot::channel();
            match self.committing.borrow_mut().get_mut(&tx) {
                Some(waiting) => waiting.push(sender),
                None => break,
            }
            // An error means the sender is gone: the other try is over.
            let _ = over.await;
        }
        if let Some(answer) = ctx.shard.replayed(tx)? {
            return Ok(answer);
        }
        // Its parts may belong elsewhere by now.
        check_map(header, &ctx)?;
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
        parts: &[(TargetId, &serde_bytes::Bytes, u32)],
        data: &[u8],
    ) -> Result<Vec<u8>> {
        let tx = TxId { client: self.coordinator, seq: self.next_tx.get() };
        self.next_tx.set(tx.seq + 1);
        self.coordinating.borrow_mut().insert(tx);
        let participants: Vec<TargetId> = parts.iter().map(|(target, ..)| *target).collect();

        let mut rest = data;
        let mut asked = Vec::with_capacity(parts.len());
        for (target, batch, bytes) in parts {
            let Some((mine, others)) = rest.split_at_checked(*bytes as usize) else {
                self.coordinating.borrow_mut().remove(&tx);
                return Err(Error::new(Code::Proto, "a transaction lacks bulk data"));
            };
            rest = others;
            asked.push(self.prepare_at(ctx, tx, *target, batch, mine));
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
        let origin = Origin { tx: client_tx, reply: &answer };
        let logged = ctx.shard.log_decision(tx, epoch, &participants, Some(origin));
        if let Ok(lsn) = logged {
            // When this fails, nobody knows what the log says until it is read again: the
            // transaction stays pending until this engine is restarted. Also in a pool that
            // does not wait: the parts are on several devices, and lost together or not at all.
            ctx.shard.written(lsn).await?;
        }
        self.coordinating.borrow_mut().remove(&tx);
        logged?;
        let outcome = TxOutcome::Committed(epoch);
        // Our own part takes effect before the answer leaves, so that a client which asks us
        // next meets no held key; the others follow.
        let decided = match self.decide(pool, ctx, tx, outcome).await {
            // Behind the decision in the same log.
            Ok(lsn) => ctx.shard.durable(lsn).await,
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

    /// Has one participant prepare its part.
    async fn prepare_at(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        target: TargetId,
        batch: &[u8],
        data: &[u8],
    ) -> Result<(Epoch, Vec<u8>)> {
        let decoded: Batch<'_> = wire::decode(batch)?;
        if target == self.id {
            return self.prepare_here(ctx, tx, self.id, &decoded, Bulk::Here(data)).await;
        }
        let map = ctx.map()?;
        let engine = map.engine_of(target).ok_or_else(|| {
            Error::new(Code::NonExist, format!("target {target} is not in the pool map"))
        })?;
        let request = Request::Prepare { tx, coordinator: self.id, batch: decoded };
        let asked = self.peers.ask(engine, target, &wire::encode(&request), &[data]).await;
        // Whatever became of the participant, the transaction is aborted: it can be run again.
        let answer = asked.map_err(|error| {
            Error::new(Code::Unreach, format!("target {target} took no part: {error}"))
        })?;
        let prepared = wire::decode::<Result<Prepared<'_>>>(&answer.body)??;
        Ok((prepared.epoch_min, prepared.reply.to_vec()))
    }

    /// Serves a coordinator's request to prepare.
    pub(crate) async fn receive_prepare(self: &Rc<Self>, incoming: Incoming) {
        let Incoming { body, bulk, responder, .. } = incoming;
        let outcome = self.prepare_asked(&body, bulk).await;
        let answer = match &outcome {
            Ok((epoch_min, reply)) => {
                wire::encode(&Ok::<_, Error>(Prepared { epoch_min: *epoch_min, reply }))
            }
            Err(error) => wire::encode(&Err::<(), _>(error)),
        };
        self.send(responder, 0, &answer, &[]).await;
    }

    async fn prepare_asked(
        self: &Rc<Self>,
        body: &[u8],
        bulk: IncomingBulk,
    ) -> Result<(Epoch, Vec<u8>)> {
        let Request::Prepare { tx, coordinator, batch } = wire::decode::<Request<'_>>(body)? else {
            return Err(Error::bare(Code::Proto));
        };
        let pool = batch.pool;
        let ctx = self.mapped_shard(pool).await?;
        let prepared =
            self.prepare_here(&ctx, tx, coordinator, &batch, Bulk::Incoming(bulk)).await?;
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
        coordinator: TargetId,
        batch: &Batch<'_>,
        bulk: Bulk<'_>,
    ) -> Result<(Epoch, Vec<u8>)> {
        if batch.at != Epoch::ZERO {
            return Err(Error::inval(
                "a transaction over several targets works on the present only",
            ));
        }
        self.known_cont(ctx, batch.cont).await?;
        let bytes = match &bulk {
            Bulk::Incoming(bulk) => bulk.remaining(),
            Bulk::Here(data) => data.len(),
        };
        let mut slot = None;
        if let Some(gate) = ctx.admission.writers.for_bulk(bytes as u64) {
            slot = Some(gate.enter_first(bytes as u64, PREPARE_WAIT_MAX).await);
        }
        let mut payload = self.stage(ctx, &batch.ops)?;
        match bulk {
            Bulk::Incoming(mut bulk) => {
                let read = async {
                    for room in payload.buffers() {
                        bulk.read_into(room).await?;
                    }
                    Ok::<(), Error>(())
                };
                at_clients_pace(&self.env, &mut slot, read).await?;
            }
            Bulk::Here(mut data) => {
                for room in payload.buffers() {
                    let (mine, rest) = data
                        .split_at_checked(room.len())
                        .ok_or_else(|| Error::new(Code::Proto, "a transaction lacks bulk data"))?;
                    room.copy_from_slice(mine);
                    data = rest;
                }
            }
        }
        ctx.shard.take_sums(batch.cont, &batch.sums, &mut payload)?;
        payload.write().await?;
        // Before any key is held: who holds a key must not keep others from their slots.
        if let Some(slot) = slot {
            slot.finish();
        }
        ctx.shard.ready(batch.cont, &batch.checks, &batch.ops).await?;
        // From here to the log no await: what is in memory stays, and what is checked still holds
        // when it is locked.
        if ctx.shard.conflicts(batch.cont, &batch.checks, &batch.ops) {
            return Err(Error::new(Code::TxRestart, "another transaction holds a key"));
        }
        let looked = ctx.shard.check(batch.cont, &batch.checks, &batch.ops);
        let plan = match looked.and_then(|()| self.plan(ctx, batch)) {
            Ok(plan) => plan,
            Err(error) => {
                // What it fails for may be gone after a crash.
                let seen = ctx.shard.newest_seen(batch.cont, &batch.checks, &batch.ops);
                ctx.shard.durable(seen).await?;
                return Err(error);
            }
        };
        if plan.segments.bytes() > 0 {
            return Err(Error::inval("a transaction over several targets cannot fetch bulk data"));
        }
        if !plan.after.opens.is_empty() {
            return Err(Error::inval("a transaction over several targets cannot open handles"));
        }
        let epoch_min = self.tick(ctx);
        let reply = plan.encode(Epoch::ZERO);
        let mut ops = plan.writes.unwrap_or_else(|| batch.ops.clone());
        // Held open or not is known for sure only when the part takes effect.
        ops.extend(plan.after.reap.iter().map(|handle| Op::PunchUnlessOpen { unit: handle.2 }));
        ops.extend(plan.adopted.iter().map(|unit| Op::Adopt { unit: *unit }));
        let (pool, cont, checks) = (batch.pool, batch.cont, batch.checks.clone());
        let encoded =
            wire::encode(&Batch { pool, cont, at: Epoch::ZERO, checks, ops, sums: Sums::NONE });
        let lsn = ctx.shard.prepare(tx, coordinator, cont, &encoded, payload)?;
        if coordinator == self.id {
            // The decision comes behind it in the same log.
            ctx.shard.durable(lsn).await?;
        } else {
            ctx.shard.written(lsn).await?;
        }
        Ok((epoch_min, reply))
    }

    /// Applies or drops a prepared part and lets those who waited for it go on; where the log says
    /// so. The acknowledgement to the coordinator waits until that is written.
    pub(crate) async fn decide(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        outcome: TxOutcome,
    ) -> Result<Lsn> {
        if let TxOutcome::Committed(epoch) = outcome {
            ctx.clock.borrow_mut().observe(epoch);
        }
        if matches!(outcome, TxOutcome::Committed(_)) {
            ctx.shard.ready_to_decide(tx).await?;
        }
        let lsn = ctx.shard.decide(tx, outcome, None, &[])?;
        ctx.unpark();
        if matches!(outcome, TxOutcome::Committed(_)) {
            self.reap_orphans(pool, ctx);
        }
        Ok(lsn)
    }

    /// What this coordinator knows of a transaction.
    pub(crate) fn outcome_of(&self, ctx: &TargetPool, tx: TxId) -> TxOutcome {
        if self.coordinating.borrow().contains(&tx) {
            return TxOutcome::Pending;
        }
        match ctx.shard.decision(tx) {
            Some((epoch, _)) => TxOutcome::Committed(epoch),
            None => TxOutcome::Aborted,
        }
    }

    /// Tells participants the outcome until each has acknowledged it; then forgets the decision.
    fn tell_decision(
        self: Rc<Self>,
        pool: PoolId,
        ctx: Rc<TargetPool>,
        tx: TxId,
        outcome: TxOutcome,
        participants: Vec<TargetId>,
    ) {
        let target = self.clone();
        self.spawn_counted(async move {
            let told = participants.iter().map(|id| target.tell_one(pool, &ctx, tx, outcome, *id));
            let all = join_all(told).await.into_iter().all(|acknowledged| acknowledged);
            if all
                && matches!(outcome, TxOutcome::Committed(_))
                && let Err(error) = ctx.shard.forget_decision(tx)
            {
                tracing::warn!("target {}: forgetting a decision: {error}", target.id);
            }
        });
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
        participant: TargetId,
    ) -> bool {
        let body = wire::encode(&Request::Decide { pool, tx, outcome });
        let mut pause = PAUSE_MIN;
        loop {
            let told = if participant == self.id {
                match self.decide(pool, ctx, tx, outcome).await {
                    Ok(lsn) => ctx.shard.written(lsn).await,
                    Err(error) => Err(error),
                }
            } else {
                self.tell_remote(ctx, participant, &body).await
            };
            match told {
                Ok(()) => return true,
                Err(error) => {
                    tracing::debug!("telling target {participant} a decision: {error}");
                    if outcome == TxOutcome::Aborted || self.is_draining() {
                        return false;
                    }
                    self.env.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn tell_remote(
        &self,
        ctx: &TargetPool,
        participant: TargetId,
        body: &[u8],
    ) -> Result<()> {
        let map = ctx.map()?;
        let engine = map.engine_of(participant).ok_or_else(|| Error::bare(Code::NonExist))?;
        let answer = self.peers.ask(engine, participant, body, &[]).await?;
        wire::decode::<Result<TxOutcome>>(&answer.body)?.map(|_| ())
    }

    /// Asks the coordinator about a prepared part until it is decided.
    async fn resolve(
        self: Rc<Self>,
        pool: PoolId,
        ctx: Rc<TargetPool>,
        tx: TxId,
        coordinator: TargetId,
    ) {
        let body = wire::encode(&Request::AskOutcome { pool, tx });
        let mut pause = PAUSE_MIN;
        while ctx.shard.is_prepared(tx) {
            match self.ask_outcome(&ctx, tx, coordinator, &body).await {
                Ok(TxOutcome::Pending) => {}
                Ok(outcome) => match self.decide(pool, &ctx, tx, outcome).await {
                    Ok(_) => return,
                    Err(error) => tracing::warn!("target {}: deciding: {error}", self.id),
                },
                Err(error) => {
                    tracing::info!("target {}: a transaction is in doubt: {error}", self.id);
                }
            }
            self.env.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn ask_outcome(
        &self,
        ctx: &TargetPool,
        tx: TxId,
        coordinator: TargetId,
        body: &[u8],
    ) -> Result<TxOutcome> {
        if coordinator == self.id {
            return Ok(self.outcome_of(ctx, tx));
        }
        let map = ctx.map()?;
        let engine = map.engine_of(coordinator).ok_or_else(|| Error::bare(Code::NonExist))?;
        let answer = self.peers.ask(engine, coordinator, body, &[]).await?;
        wire::decode::<Result<TxOutcome>>(&answer.body)?
    }

    /// After a restart: repeats decisions that may not have been acknowledged, and asks about parts
    /// that wait for one.
    pub(crate) fn resume_transactions(self: Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        for (tx, epoch, participants) in ctx.shard.decisions() {
            let outcome = TxOutcome::Committed(epoch);
            self.clone().tell_decision(pool, ctx.clone(), tx, outcome, participants);
        }
        for (tx, coordinator) in ctx.shard.prepared() {
            let (target, ctx) = (self.clone(), ctx.clone());
            self.env.spawn(async move { target.resolve(pool, ctx, tx, coordinator).await });
        }
    }
}
