//! A coordinator's transactions: what [`twophase::Coordinator`] says is carried out, and what comes of it is told it.

use super::{PAUSES, Premise};
use crate::follow::as_order_origin;
use crate::streams::Sent;
use crate::target::{Target, TargetPool};
use futures_util::future::join_all;
use std::cell::RefCell;
use std::rc::Rc;
use twophase::{Action, Actions, Coordinator, Event, Firmness, Refusal};
use types::{Code, Epoch, Error, PoolId, Result, TargetId, Unit};
use vos::{Lsn, Origin};
use wire::map::PoolMap;
use wire::obj::{Batch, Prepared, Request, TxId, TxOutcome, TxReply};
use wire::order::Order;

/// A transaction on its way, and what its machine does not look at.
struct Run {
    target: Rc<Target>,
    pool: PoolId,
    ctx: Rc<TargetPool>,
    tx: TxId,
    /// A unit of each part's group, the coordinator's first.
    units: Vec<Unit>,
    machine: Coordinator,
    /// What is to be done, next first.
    todo: Actions,
    /// See [`Transactions::begin`](super::Transactions::begin).
    is_noted: bool,
    /// The decision on its way.
    lsn: Lsn,
    sent: Sent,
    /// What [`Refusal::Decision`] is about.
    error: Option<Error>,
}

/// What came of asking for each part: its least epoch, and its encoded reply.
type Outcomes = Vec<Result<(Epoch, Vec<u8>)>>;

impl Target {
    /// Coordinates a transaction, a client's or one of this target; returns the encoded answer. `premise` is looked at when the
    /// first part is held.
    pub(crate) async fn coordinate(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        client_tx: Option<TxId>,
        parts: &[(Unit, &serde_bytes::Bytes, u32)],
        data: &[u8],
        premise: Option<&Premise<'_>>,
    ) -> Result<Vec<u8>> {
        if parts.len() as u64 >= TxId::PARTS_MAX {
            return Err(Error::inval("a transaction over too many groups"));
        }
        let tx = self.tx_ids.next();
        let units: Vec<Unit> = parts.iter().map(|(unit, ..)| *unit).collect();
        let coordinator = units[0];
        let mut todo = Actions::new();
        let machine = Coordinator::begin(parts.len(), PAUSES, &mut todo);

        let mut rest = data;
        let mut asked = Vec::with_capacity(parts.len());
        for ((at, (unit, batch, bytes)), action) in parts.iter().enumerate().zip(todo.drain(..)) {
            debug_assert_eq!(action, Action::Prepare { at });
            let Some((mine, others)) = rest.split_at_checked(*bytes as usize) else {
                return Err(Error::new(Code::Proto, "a transaction lacks bulk data"));
            };
            rest = others;
            let premise = premise.filter(|_| at == 0);
            let part = (*unit, &batch[..], mine);
            asked.push(self.prepare_at(ctx, tx.part(at), coordinator, part, premise));
        }
        let mut run = Run::new(self, pool, ctx, tx, units, machine, todo);
        ctx.transactions.begin(tx);
        run.is_noted = true;
        let prepared: Outcomes = join_all(asked).await;
        for (at, outcome) in prepared.iter().enumerate() {
            run.step(match outcome {
                Ok((epoch_min, _)) => Event::Prepared { at, epoch_min: *epoch_min },
                Err(error) => Event::Refused { at, code: error.code },
            });
        }
        let mut answer = Vec::new();
        let answered = loop {
            let event = match run.next() {
                Some(Action::WriteDecision { epoch }) => {
                    answer = answer_of(epoch, &prepared);
                    run.write_decision(epoch, client_tx, &answer)
                }
                Some(Action::Answer) => break Ok(answer),
                Some(Action::Refuse(Refusal::Part(at))) => {
                    break Err(prepared.into_iter().nth(at).and_then(Result::err));
                }
                Some(Action::Refuse(Refusal::Decision)) => break Err(run.error.take()),
                Some(action) => match run.carry_out(action).await {
                    Some(event) => event,
                    None => continue,
                },
                None => break Err(None),
            };
            run.step(event);
        };
        run.go_on();
        // There is one, wherever the machine says so.
        answered.map_err(|error| error.unwrap_or_else(|| Error::bare(Code::Closed)))
    }

    /// Has one participant prepare its part.
    async fn prepare_at(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        coordinator: Unit,
        (unit, batch, data): (Unit, &[u8], &[u8]),
        premise: Option<&Premise<'_>>,
    ) -> Result<(Epoch, Vec<u8>)> {
        let took_no_part = |target: TargetId, error: Error| {
            Error::new(Code::Unreach, format!("target {target} took no part: {error}"))
        };
        let target = self.leader_of(ctx, unit)?;
        if target == self.id {
            let batch: Batch<'_> = wire::decode(batch)?;
            let prepared = self.prepare_here(ctx, tx, coordinator, &batch, data, premise).await;
            return prepared.map_err(|error| match error.code {
                Code::Stale | Code::Closed => took_no_part(target, error),
                _ => error,
            });
        }
        let map = ctx.map()?;
        let engine = map.engine_of(target).ok_or_else(|| {
            Error::new(Code::NonExist, format!("target {target} is not in the pool map"))
        })?;
        // Who takes part decodes it.
        let body = Request::prepare_encoded(tx, coordinator, batch);
        let asked = self.peers.ask_by(&map, engine, target, &body, &[data]).await;
        // Whatever became of the participant, the transaction is aborted: it can be run again.
        let answer = asked.map_err(|error| took_no_part(target, error))?;
        let prepared = match wire::decode::<Result<Prepared<'_>>>(&answer.body)? {
            Err(error) if matches!(error.code, Code::Stale | Code::Closed) => {
                self.learn_from(ctx, &map, target, &error).await;
                return Err(took_no_part(target, error));
            }
            prepared => prepared?,
        };
        Ok((prepared.epoch_min, prepared.reply.to_vec()))
    }

    /// Goes on with a transaction whose decision was made before this target led the coordinator's group, or before a restart.
    pub(super) fn repeat_decision(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        epoch: Epoch,
        units: Vec<Unit>,
    ) {
        let mut todo = Actions::new();
        let machine = Coordinator::found(units.len(), epoch, PAUSES, &mut todo);
        let mut run = Run::new(self, pool, ctx, tx, units, machine, todo);
        // In this step: what is asked from now on is answered after it.
        run.repeat_if_next();
        run.go_on();
    }

    /// Tells a participant elsewhere the outcome.
    async fn tell_remote(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        leader: TargetId,
        body: &[u8],
    ) -> Result<()> {
        let map = ctx.map()?;
        let engine = map.engine_of(leader).ok_or_else(|| Error::bare(Code::NonExist))?;
        let answer = self.peers.ask_by(&map, engine, leader, body, &[]).await?;
        let told = wire::decode::<Result<TxOutcome>>(&answer.body)?;
        if let Err(error) = &told {
            self.learn_from(ctx, &map, leader, error).await;
        }
        told.map(|_| ())
    }

    /// Takes the map of one that has refused what was asked by this one, if it did so for having a newer one.
    pub(super) async fn learn_from(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        other: TargetId,
        error: &Error,
    ) {
        if error.code == Code::Stale
            && ctx.map_version() == map.version
            && let Err(error) = self.take_map_of(ctx, map.pool, other).await
        {
            tracing::debug!("target {}: map of target {other}: {error}", self.id);
        }
    }
}

impl Run {
    fn new(
        target: &Rc<Target>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        units: Vec<Unit>,
        machine: Coordinator,
        todo: Actions,
    ) -> Run {
        let (target, ctx, error) = (target.clone(), ctx.clone(), None);
        let (lsn, sent, is_noted) = (Lsn(0), Sent::NOWHERE, false);
        Run { target, pool, ctx, tx, units, machine, todo, is_noted, lsn, sent, error }
    }

    fn next(&mut self) -> Option<Action> {
        (!self.todo.is_empty()).then(|| self.todo.remove(0))
    }

    /// Tells the machine. Who asks for the outcome hears by what it says from this step on.
    fn step(&mut self, event: Event) {
        self.machine.step(event, &mut self.todo);
        if self.is_noted && !self.machine.is_pending() {
            self.is_noted = false;
            self.ctx.transactions.end(&self.tx);
        }
        // In the same step, too: what is asked from now on is answered after it.
        self.repeat_if_next();
    }

    fn repeat_if_next(&mut self) {
        if let Some(Action::RepeatDecision { epoch }) = self.todo.first().copied() {
            self.todo.remove(0);
            let event = match self.repeat(epoch) {
                Ok(()) => Event::Begun,
                Err(_) => Event::NotBegun,
            };
            self.machine.step(event, &mut self.todo);
        }
    }

    /// Does what may take time or is of a moment; what came of it.
    async fn carry_out(&mut self, action: Action) -> Option<Event> {
        let event = match action {
            Action::Tick => Event::Ticked(self.target.tick(&self.ctx)),
            Action::AwaitLog => match self.ctx.shard.written(self.lsn).await {
                Ok(()) => Event::Logged,
                Err(error) => self.failed(error, Event::LogFailed),
            },
            Action::AwaitMembers => {
                match std::mem::replace(&mut self.sent, Sent::NOWHERE).settled().await {
                    Ok(()) => Event::Settled,
                    Err(error) => self.failed(error, Event::NotSettled),
                }
            }
            Action::TakeEffect { epoch } => {
                let tried = self.take_effect(epoch).await;
                if let Err(error) = &tried {
                    let id = self.target.id;
                    tracing::warn!(
                        "target {id}: a committed part does not take effect yet: {error}"
                    );
                }
                Event::OwnPart { took_effect: tried.is_ok() }
            }
            // Those that are begun elsewhere: by who has the client's request, and for all participants at a time.
            Action::Prepare { .. }
            | Action::WriteDecision { .. }
            | Action::RepeatDecision { .. }
            | Action::Answer
            | Action::Refuse(_)
            | Action::Tell { .. } => return None,
            Action::AskHere => {
                self.ask_here();
                return None;
            }
            Action::Forget => {
                self.forget();
                return None;
            }
        };
        Some(event)
    }

    fn failed(&mut self, error: Error, event: Event) -> Event {
        self.error = Some(error);
        event
    }

    fn write_decision(&mut self, epoch: Epoch, client_tx: Option<TxId>, answer: &[u8]) -> Event {
        match self.log_decision(epoch, client_tx, answer) {
            Ok(()) => Event::Begun,
            Err(error) => self.failed(error, Event::NotBegun),
        }
    }

    /// Writes a decision down, and has the coordinator's group do so.
    fn log_decision(&mut self, epoch: Epoch, client_tx: Option<TxId>, answer: &[u8]) -> Result<()> {
        let (target, tx) = (&self.target, self.tx);
        let group = target.led_group(&self.ctx, self.units[0])?;
        tracing::debug!("target {}: decides to commit {tx:?}", target.id);
        let of = Some(self.units[0]);
        let origin = client_tx.map(|tx| Origin { tx, of, reply: answer });
        self.lsn = self.ctx.shard.log_decision(tx, epoch, &self.units, origin)?;
        let (participants, origin) = (self.units.clone(), origin.and_then(as_order_origin));
        let order = Order::Decision { tx, epoch, participants, origin };
        self.sent = target.ship(self.pool, &self.ctx, group.as_ref(), &order, Vec::new(), None);
        Ok(())
    }

    /// Sends a decision that is known here to the group once more. It may be on its way to the log here, too: another leader's order.
    fn repeat(&mut self, epoch: Epoch) -> Result<()> {
        let (target, tx) = (&self.target, self.tx);
        let group = target.led_group(&self.ctx, self.units[0])?;
        self.lsn = self.ctx.shard.last_lsn();
        let order = Order::Decision { tx, epoch, participants: self.units.clone(), origin: None };
        self.sent = target.ship(self.pool, &self.ctx, group.as_ref(), &order, Vec::new(), None);
        Ok(())
    }

    async fn take_effect(&self, epoch: Epoch) -> Result<()> {
        let (part, outcome) = (self.tx.part(0), TxOutcome::Committed(epoch));
        let decided = self.target.decide(self.pool, &self.ctx, part, self.units[0], outcome);
        // Behind the decision in the same log.
        decided.await?.firm(&self.ctx, Firmness::Promised).await
    }

    fn ask_here(&self) {
        let parts = (0..self.units.len()).map(|at| self.tx.part(at));
        for part in parts.filter(|part| self.ctx.shard.is_prepared(*part)) {
            let (target, ctx) = (self.target.clone(), self.ctx.clone());
            let (pool, coordinator) = (self.pool, self.units[0]);
            self.target
                .env
                .spawn(async move { target.resolve(pool, ctx, part, coordinator).await });
        }
    }

    fn forget(&self) {
        let forgotten = || -> Result<()> {
            let group = self.target.led_group(&self.ctx, self.units[0])?;
            self.ctx.shard.forget_decision(self.tx)?;
            let order = Order::ForgetDecision { tx: self.tx };
            drop(self.target.ship(self.pool, &self.ctx, group.as_ref(), &order, Vec::new(), None));
            Ok(())
        };
        match forgotten() {
            Ok(()) => {}
            // Who leads now has it, and forgets it: there are thousands where a map has changed.
            Err(error) if error.code == Code::Stale => {}
            Err(error) => {
                tracing::warn!("target {}: forgetting a decision: {error}", self.target.id);
            }
        }
    }

    /// What is left when the client has its answer goes on beside what comes next.
    fn go_on(self) {
        if !self.todo.is_empty() {
            let target = self.target.clone();
            target.spawn_counted(self.finish());
        }
    }

    async fn finish(mut self) {
        let mut tells = Actions::new();
        while let Some(action) = self.next() {
            if let Action::Tell { .. } = action {
                tells.push(action);
            } else if let Some(event) = self.carry_out(action).await {
                self.step(event);
            }
        }
        let run = RefCell::new(self);
        join_all(tells.into_iter().map(|tell| tell_one(&run, tell))).await;
    }
}

/// Tells one participant, as often as the machine says.
async fn tell_one(run: &RefCell<Run>, tell: Action) {
    let (target, pool, ctx, tx) = {
        let run = run.borrow();
        (run.target.clone(), run.pool, run.ctx.clone(), run.tx)
    };
    let mut next = Some(tell);
    let mut body = Vec::new();
    while let Some(Action::Tell { at, outcome, after }) = next.take() {
        if !after.is_zero() {
            // timer: a growing pause between two tries.
            target.env.sleep(after).await;
        }
        let (tx, unit) = (tx.part(at), run.borrow().units[at]);
        let told = match target.leader_of(&ctx, unit) {
            Ok(leader) if leader == target.id => {
                match target.decide(pool, &ctx, tx, unit, outcome).await {
                    Ok(step) => step.firm(&ctx, Firmness::Written).await,
                    Err(error) => Err(error),
                }
            }
            Ok(leader) => {
                if body.is_empty() {
                    body = wire::encode(&Request::Decide { pool, tx, unit, outcome });
                }
                target.tell_remote(&ctx, leader, &body).await
            }
            Err(error) => Err(error),
        };
        let event = match told {
            Ok(()) => Event::Acknowledged { at },
            Err(error) => {
                tracing::debug!("telling unit {unit} a decision: {error}");
                Event::NotAcknowledged { at, is_stopping: target.is_done_with(&ctx) }
            }
        };
        let mut run = run.borrow_mut();
        run.step(event);
        while let Some(action) = run.next() {
            match action {
                Action::Forget => run.forget(),
                again => next = Some(again),
            }
        }
    }
}

/// What the client is answered when all parts are held.
fn answer_of(epoch: Epoch, prepared: &Outcomes) -> Vec<u8> {
    let replies = prepared.iter().flatten().map(|(_, reply)| serde_bytes::Bytes::new(reply));
    wire::encode(&Ok::<_, Error>(TxReply { epoch, parts: replies.collect() }))
}
