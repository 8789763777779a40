//! Who is in doubt asks, and is answered: [`twophase::Participant`] and [`twophase::Question`] carried out, and what is taken up after restarts
//! and changes of leaders.

use super::{PAUSES, part_unit, part_units};
use crate::group::Group;
use crate::target::{Target, TargetPool};
use futures_util::future::{Either, select, try_join_all};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use twophase::{DoubtAction, DoubtEvent, Participant, Question, QuestionAction};
use types::{Code, Error, PoolId, Result, Unit};
use wire::member::{Decided, MemberAsk};
use wire::obj::{Request, TxId, TxOutcome};

/// So long members are waited for that are to note how a transaction ends; then who asks does so again.
const NOTE_TIME_MAX: Duration = Duration::from_secs(10);

impl Target {
    /// What this target knows of a transaction, by the name of one of its parts, for a participant that asks.
    ///
    /// Errors: `Stale` when another target leads the coordinator's group.
    pub(crate) async fn outcome_to_tell(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        part: TxId,
        coordinator: Unit,
    ) -> Result<TxOutcome> {
        let group = self.led_group(ctx, coordinator)?;
        let tx = part.whole();
        let decision = ctx.shard.decision(tx).map(|(epoch, _)| epoch);
        let mut question = Question::asked(ctx.transactions.is_coordinated(&tx), decision);
        loop {
            match question.step() {
                QuestionAction::HaveMembersForget => {
                    self.have_members_note(ctx, group.as_ref(), tx, None).await?;
                }
                QuestionAction::AwaitLog => ctx.shard.written(ctx.shard.last_lsn()).await?,
                QuestionAction::HaveMembersKnow => {
                    // Else it is forgotten, for all participants know it.
                    if let Some((epoch, participants)) = ctx.shard.decision(tx) {
                        let decided = Some(Decided { epoch, participants });
                        self.have_members_note(ctx, group.as_ref(), tx, decided).await?;
                    }
                }
                QuestionAction::Answer(outcome) => {
                    tracing::debug!("target {}: tells of part {part:?}: {outcome:?}", self.id);
                    return Ok(outcome);
                }
            }
        }
    }

    /// Has all other members of the coordinator's group note how a transaction ends. They are told by themselves: one of them may ask because a part holds up
    /// the orders of this target, and do none before it is answered.
    ///
    /// Errors: of who asks once more; `Stale` when the map has changed meanwhile.
    async fn have_members_note(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        group: Option<&Group>,
        tx: TxId,
        decision: Option<Decided>,
    ) -> Result<()> {
        let Some(group) = group else { return Ok(()) };
        let map = ctx.map()?;
        let told = group.followers.iter().map(|member| {
            let ask = MemberAsk::Outcome { tx, decision: decision.clone() };
            self.ask_member::<()>(ctx, &map, *member, ask)
        });
        let is_over = || ctx.map_version() != map.version;
        let (told, changed) = (try_join_all(told), self.await_map(ctx, NOTE_TIME_MAX, is_over));
        match select(pin!(told), pin!(changed)).await {
            Either::Left((told, _)) => told.map(|_| ()),
            Either::Right(_) => Err(Error::new(Code::Stale, "members have not noted an outcome")),
        }
    }

    /// A leader is about to tell how a transaction ends.
    pub(crate) async fn note_outcome(
        &self,
        ctx: &TargetPool,
        tx: TxId,
        decision: Option<Decided>,
    ) -> Result<()> {
        let lsn = match decision {
            Some(Decided { epoch, participants }) => {
                ctx.shard.log_decision(tx, epoch, &participants, None)?
            }
            None => ctx.shard.undo_decision(tx)?,
        };
        ctx.shard.written(lsn).await
    }

    /// Asks the coordinator about a prepared part until it is decided, or other targets lead all groups of the part: one that
    /// changes nothing may be of several, and no other member has it.
    pub(super) async fn resolve(
        self: Rc<Self>,
        pool: PoolId,
        ctx: Rc<TargetPool>,
        tx: TxId,
        coordinator: Unit,
    ) {
        let units = part_units(&ctx, tx);
        if !ctx.transactions.begin_to_ask(tx) {
            return;
        }
        let body = wire::encode(&Request::AskOutcome { pool, tx, coordinator });
        // Of those of the part that this target may lead.
        let mut unit = None;
        let (mut participant, mut action) = Participant::in_doubt(PAUSES);
        loop {
            let event = match action {
                DoubtAction::Look { after } => {
                    if !after.is_zero() {
                        // timer: a growing pause between two questions.
                        self.env.sleep(after).await;
                    }
                    let is_others = |unit: &Unit| {
                        self.led_group(&ctx, *unit).is_err_and(|error| error.code == Code::Stale)
                    };
                    unit = units.iter().copied().find(|unit| !is_others(unit));
                    // Of a part of a pool that was let go whoever has it open again asks anew.
                    let is_held = self.pools.serves(&ctx) && ctx.shard.is_prepared(tx);
                    DoubtEvent::Looked { is_held, is_others: unit.is_none() }
                }
                DoubtAction::Ask => match self.ask_outcome(&ctx, tx, coordinator, &body).await {
                    Ok(outcome) => DoubtEvent::Answered(outcome),
                    Err(error) => {
                        tracing::info!("target {}: a transaction is in doubt: {error}", self.id);
                        DoubtEvent::Unanswered
                    }
                },
                DoubtAction::Decide(outcome) => {
                    let Some(unit) = unit else { break };
                    match self.decide(pool, &ctx, tx, unit, outcome).await {
                        // Nobody is told of it: the coordinator waits for its own word.
                        Ok(_) => DoubtEvent::Decided,
                        Err(error) => {
                            tracing::warn!("target {}: deciding: {error}", self.id);
                            DoubtEvent::NotDecided
                        }
                    }
                }
                DoubtAction::End => break,
            };
            action = participant.step(event);
        }
        ctx.transactions.end_asking(&tx);
    }

    pub(super) async fn ask_outcome(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        coordinator: Unit,
        body: &[u8],
    ) -> Result<TxOutcome> {
        let leader = self.leader_of(ctx, coordinator)?;
        if leader == self.id {
            return self.outcome_to_tell(ctx, tx, coordinator).await;
        }
        let map = ctx.map()?;
        let engine = map.engine_of(leader).ok_or_else(|| Error::bare(Code::NonExist))?;
        let answer = self.peers.ask_by(&map, engine, leader, body, &[]).await?;
        let told = wire::decode::<Result<TxOutcome>>(&answer.body)?;
        if let Err(error) = &told {
            self.learn_from(ctx, &map, leader, error).await;
        }
        told
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
                self.repeat_decision(pool, ctx, tx, epoch, participants);
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
