//! Transactions over several groups: two-phase commit, coordinated by the leader of the first.
//!
//! Coordinator and participants are groups: who leads one now acts for it, and has its members keep parts and
//! decisions likewise ([`crate::streams`]). The client sends the whole transaction to the leader of the first group. That target has every
//! participant check, log and hold its part (*prepare*), logs the decision (the commit point),
//! answers, and tells the participants. A participant that is told nothing asks the coordinator;
//! a coordinator that knows nothing of a transaction says "aborted" (presumed abort), which is
//! safe because each attempt has an id of its own.
//!
//! All of that is decided in [`twophase`]: what is here tells its machines what has happened, and carries
//! out what they say. A coordinator's is driven in [`coordinate`], parts are held and decided in [`part`], and who is in
//! doubt asks and is answered in [`doubt`].
//!
//! A lost conflict never waits: it aborts with `TxRestart`, so there is no deadlock. Single
//! requests that meet a held key wait for the decision instead ([`crate::batch`]).

mod coordinate;
mod doubt;
mod over;
mod part;

pub(crate) use part::{part_unit, part_units};

use crate::batch::{check_map, patience};
use crate::jobs::Answered;
use crate::session::Session;
use crate::streams::Sent;
use crate::target::{Target, TargetPool};
use crate::told_again::Told;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use transport::Incoming;
use twophase::{Firmness, Pauses};
use types::map::HashSet;
use types::{ClientId, Code, Error, PoolId, Result, TargetId, Unit};
use vos::Lsn;
use wire::Header;
use wire::obj::{Batch, Request, TxId};

/// What a transaction of this target relies on beside its checks.
pub(crate) type Premise<'a> = dyn Fn() -> Result<()> + 'a;

/// Pauses between attempts to ask for or to tell a decision.
const PAUSES: Pauses = Pauses { min: Duration::from_millis(5), max: Duration::from_secs(1) };

/// Transactions of a pool's part that something is being done about right now.
#[derive(Default)]
pub(crate) struct Transactions {
    /// Those coordinated here that are not decided yet, by their own ids.
    coordinating: RefCell<HashSet<TxId>>,
    /// Parts in doubt whose coordinators are being asked.
    asking: RefCell<HashSet<TxId>>,
    over: over::Over,
}

impl Transactions {
    /// One begins: who asks for its outcome is told that it is pending, until [`Transactions::end`].
    fn begin(&self, tx: TxId) {
        self.coordinating.borrow_mut().insert(tx);
    }

    fn end(&self, tx: &TxId) {
        self.coordinating.borrow_mut().remove(tx);
    }

    fn is_coordinated(&self, tx: &TxId) -> bool {
        self.coordinating.borrow().contains(tx)
    }

    /// False when somebody asks about the part already.
    fn begin_to_ask(&self, part: TxId) -> bool {
        self.asking.borrow_mut().insert(part)
    }

    fn end_asking(&self, part: &TxId) {
        self.asking.borrow_mut().remove(part);
    }
}

/// A target as a maker of transaction ids, anew at each start. Targets of one engine must
/// differ: a participant takes a second part with the same id for a repetition.
pub(crate) struct TxIds {
    maker: ClientId,
    next: Cell<u64>,
}

impl TxIds {
    pub fn of(target: TargetId, incarnation: u64) -> TxIds {
        let maker = ClientId(types::hash::mix2(incarnation, target.0 as u64));
        TxIds { maker, next: Cell::new(TxId::PARTS_MAX) }
    }

    /// With room for the ids of its parts.
    fn next(&self) -> TxId {
        let seq = self.next.get();
        self.next.set(seq + TxId::PARTS_MAX);
        TxId { client: self.maker, seq }
    }
}

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
        let pool = pool_of(batch)?;
        let ctx = self.asked_shard(pool).await?;
        self.know_map_of(&ctx, header).await?;
        self.committing.over(tx).await;
        let patience = patience(header);
        if let Some(answer) = self.replay(&ctx, tx, Some(*first), None, patience).await? {
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
        self.committing.begin(tx);
        let outcome = self.coordinate(pool, &ctx, Some(tx), &parts, data, None).await;
        self.committing.end(tx);
        let units = parts.iter().map(|(unit, ..)| *unit);
        outcome.map_err(|error| self.without_failed_device(&ctx, (units, true), error))
    }

    /// The answer to an earlier try of a request that has changed `unit`, once all members of the unit's group have it. `batch`: the request, if
    /// it is of one group.
    ///
    /// Errors: `Stale` when another target leads that group; `TimedOut` after `patience`.
    pub(crate) async fn replay(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        tx: TxId,
        unit: Option<Unit>,
        batch: Option<&Batch<'_>>,
        patience: Duration,
    ) -> Result<Option<Vec<u8>>> {
        let Some(answer) = ctx.shard.replayed(tx)? else { return Ok(None) };
        let Some(unit) = unit.filter(|unit| !ctx.is_of_one(*unit)) else {
            return Ok(Some(answer));
        };
        let told = Told { tx, of: unit, answer: &answer, batch };
        let until = self.env.now() + patience;
        // Rare and large.
        Box::pin(self.share_before_telling(ctx, &told, until)).await?;
        ctx.streams.wait_for(ctx.streams.last()).await?;
        self.led_group(ctx, unit)?;
        // It may have been taken back meanwhile.
        ctx.shard.replayed(tx)
    }
}

/// The pool of a transaction that was refused; the number that no pool has when it is none.
fn pool_of_commit(body: &[u8]) -> PoolId {
    let pool = || {
        let Request::Commit { parts, .. } = wire::decode::<Request<'_>>(body).ok()? else {
            return None;
        };
        pool_of(parts.first()?.1).ok()
    };
    pool().unwrap_or(PoolId(0))
}

/// The pool of an encoded batch, which begins with it.
fn pool_of(batch: &[u8]) -> Result<PoolId> {
    wire::decode_prefix(batch)
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

    /// Waits for as much as has to stand.
    async fn firm(self, ctx: &TargetPool, firmness: Firmness) -> Result<()> {
        match firmness {
            Firmness::Promised => self.durable(ctx).await,
            Firmness::Written => self.written(ctx).await,
        }
    }

    async fn settled(self, ctx: &TargetPool) -> Result<()> {
        self.sent.settled().await?;
        match self.after {
            0 => Ok(()),
            number => ctx.streams.wait_for(number).await,
        }
    }
}
