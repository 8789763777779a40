//! Parts that their leader does not hold, found by a member that compares itself with it.
//!
//! The leader has decided them while the member was away, or was opened again, or came to lead, without having had them. A member that is known to lack something, and one
//! that was there all the time and heard of no decision, drops them: it gets what they have changed with the keys, or nobody was told that they are held. A member that was opened again,
//! and that all count on to have what anybody was told of, may lead before it gets anything. It has such a part decided as its coordinator says, which forgets that it was committed only
//! when all members that are not lost have what it has changed.

use crate::target::{Target, TargetPool};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::map::HashMap;
use types::{Code, ContId, Error, Result, Unit};
use vos::Summary;
use wire::map::{LEFT_UNSURE, PoolMap};
use wire::obj::{Cond, Op, Request, TxId, TxOutcome};
use wire::order::Order;

/// So long the word of a coordinator is waited for: longer than it takes until another one leads its group.
const WORD_TIME_MAX: Duration = Duration::from_secs(5);

/// Parts that their leaders do not hold.
#[derive(Default)]
pub(super) struct Over(RefCell<HashMap<TxId, Awaited>>);

/// A part whose coordinator is to say how it ends.
struct Awaited {
    since: Duration,
    /// It is being asked for an order that waits.
    is_asked: bool,
}

impl Target {
    /// Decides parts that their leader does not hold.
    ///
    /// Errors: `Busy` while a coordinator says nothing, or all have to hear first that this target may lack something; `Stale`.
    pub(crate) async fn end_parts(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        parts: Vec<TxId>,
    ) -> Result<()> {
        for tx in parts {
            if !ctx.shard.is_prepared(tx) {
                continue;
            }
            let outcome = match is_trusted(self, map) {
                true => self.word_on(ctx, map, tx).await?,
                false => TxOutcome::Aborted,
            };
            if ctx.map_version() != map.version {
                return Err(Error::new(Code::Stale, "the pool map has changed meanwhile"));
            }
            tracing::debug!("target {}: ends part {tx:?}: {outcome:?}", self.id);
            if let TxOutcome::Committed(epoch) = outcome {
                ctx.clock.observe(epoch);
                ctx.joining.note(ctx, &Order::Decide { tx, outcome })?;
            }
            ctx.shard.decide(tx, outcome, None, &[])?;
            ctx.undecided.wake(&tx);
        }
        Ok(())
    }

    /// To be asked before an order changes what a part here holds, which its leader does not hold, then.
    ///
    /// Errors: `Busy` until the part is decided, or all have heard that this target may lack something.
    pub(crate) fn end_holder(self: &Rc<Self>, ctx: &Rc<TargetPool>, tx: TxId) -> Result<()> {
        let map = ctx.map()?;
        if !is_trusted(self, &map) {
            return Ok(());
        }
        if !self.is_waited_for(ctx, tx) {
            return self.end_trust(map.pool, ctx);
        }
        if ctx.transactions.over.begin_to_ask(tx) {
            let (target, ctx) = (self.clone(), ctx.clone());
            self.env.spawn(async move {
                if let Err(error) = target.end_parts(&ctx, &map, vec![tx]).await {
                    tracing::debug!("target {}: a part that holds up orders: {error}", target.id);
                }
                ctx.transactions.over.end_asking(tx);
            });
        }
        Err(Error::new(Code::Busy, "a part of a transaction that others have decided is in doubt"))
    }

    /// To be asked before a leader's image replaces a key that a part here holds: it may have what the part has changed, which must not take effect after it.
    ///
    /// Errors: `Busy` until all have heard that this target may lack something, where they count on it.
    pub(crate) fn end_trust_of_holder(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        (cont, unit, dkey): (ContId, Unit, &[u8]),
    ) -> Result<()> {
        let map = ctx.map()?;
        let dkeys = || vec![serde_bytes::Bytes::new(dkey)];
        let replaced =
            || Summary::of(&[], &[Op::PunchDkeys { unit, cond: Cond::NONE, dkeys: dkeys() }]);
        match is_trusted(self, &map) && ctx.shard.is_held(cont, &replaced()) {
            true => self.end_trust(map.pool, ctx),
            false => Ok(()),
        }
    }

    /// How a part ends, as its coordinator says; `Aborted` where that says nothing for long, and all have heard that this target may lack something.
    async fn word_on(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        tx: TxId,
    ) -> Result<TxOutcome> {
        let parts = ctx.shard.prepared();
        let Some((_, coordinator)) = parts.into_iter().find(|(part, _)| *part == tx) else {
            // It was decided meanwhile.
            return Ok(TxOutcome::Aborted);
        };
        let is_waited_for = self.is_waited_for(ctx, tx);
        let body = wire::encode(&Request::AskOutcome { pool: map.pool, tx, coordinator });
        let asked = self.ask_outcome(ctx, tx, coordinator, &body);
        let told = self.env.timeout(WORD_TIME_MAX, asked).await;
        match told.unwrap_or_else(|| Err(Error::bare(Code::TimedOut))) {
            Ok(outcome @ TxOutcome::Committed(_)) => {
                ctx.shard.ready_to_decide(tx).await?;
                Ok(outcome)
            }
            Ok(TxOutcome::Aborted) => Ok(TxOutcome::Aborted),
            Ok(TxOutcome::Pending) if is_waited_for => {
                Err(Error::new(Code::Busy, "a part of a transaction is to be decided"))
            }
            Err(error) if is_waited_for => Err(Error { code: Code::Busy, ..error }),
            Ok(TxOutcome::Pending) | Err(_) => {
                self.end_trust(map.pool, ctx)?;
                Ok(TxOutcome::Aborted)
            }
        }
    }

    /// False when the word on a part was waited for long enough.
    fn is_waited_for(&self, ctx: &TargetPool, tx: TxId) -> bool {
        let now = self.env.now();
        let since = ctx.transactions.over.since(tx, now, |tx| ctx.shard.is_prepared(tx));
        now.saturating_sub(since) < WORD_TIME_MAX
    }
}

impl Over {
    /// Since when the word on a part is waited for; from now on, if it was not. `is_held`: of parts that are not decided yet.
    fn since(&self, tx: TxId, now: Duration, is_held: impl Fn(TxId) -> bool) -> Duration {
        let mut all = self.0.borrow_mut();
        all.retain(|tx, _| is_held(*tx));
        all.entry(tx).or_insert(Awaited { since: now, is_asked: false }).since
    }

    /// False when its coordinator is being asked already.
    fn begin_to_ask(&self, tx: TxId) -> bool {
        let mut all = self.0.borrow_mut();
        all.get_mut(&tx).is_some_and(|part| !std::mem::replace(&mut part.is_asked, true))
    }

    fn end_asking(&self, tx: TxId) {
        if let Some(part) = self.0.borrow_mut().get_mut(&tx) {
            part.is_asked = false;
        }
    }
}

/// True when all count on a target that was opened again to have what anybody was told of.
fn is_trusted(target: &Target, map: &PoolMap) -> bool {
    map.target(target.id).is_some_and(|own| own.left == LEFT_UNSURE)
}
