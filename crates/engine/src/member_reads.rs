//! Reads of groups that this target follows in: it shows what it has where it knows that all other members show the same.
//!
//! A member that is whole has all that is acknowledged in its groups, as long as no map is committed by which it is whole no more: so long it is granted to show
//! something, as it is to leaders ([`crate::lead`]). What it has beyond that, by orders of which it does not know yet that all members carried them out, may be
//! taken back, and others may not have it: keys that those change are *dirty* (the clean and dirty versions of CRAQ: Terrace and Freedman, USENIX ATC 2009). So are those that a part
//! of a transaction holds: it may be decided, and this target not be told yet. Whoever asks for what is dirty, or asks a target that is not sure of itself, is refused, and asks the leader.
//!
//! Leaders say with their orders up to which one all have them ([`wire::order::Orders::settled`]). After the last one they say nothing more; they are asked
//! when somebody wants to see a dirty key.
//!
//! Invariants:
//! - What an order changes is noted before it takes effect here.
//! - That something may be shown is found out in the step that looks at it.

use crate::batch::{Ask, Outcome};
use crate::links::By;
use crate::suspects::{Place, What};
use crate::target::{Target, TargetPool};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Epoch, Error, Result, Scheme, TargetId, Unit};
use vos::{Lsn, Summary, Unsettled};
use wire::footprint::Opens;
use wire::header::FLAG_MEMBER;
use wire::map::PoolMap;
use wire::member::MemberAsk;
use wire::obj::Op;
use wire::walk::walk;

/// Pause before a leader is asked again how far its orders are.
const ASK_PAUSE: Duration = Duration::from_millis(2);
/// How long its answer may take.
const ASK_TIME_MAX: Duration = Duration::from_secs(1);

/// What orders of one leader have changed here that not all members may have.
#[derive(Default)]
pub(crate) struct Dirty {
    /// By the numbers that the leader gives its orders.
    changed: RefCell<Unsettled>,
    /// Which stream these come by.
    stream: Cell<u64>,
    is_asking: Cell<bool>,
}

impl Dirty {
    /// A stream begins. What came by the one before is settled by others, or suspected ([`crate::suspects`]).
    pub fn begin(&self, stream: u64) {
        self.stream.set(stream);
        self.changed.take();
    }

    /// The leader is lost: the same.
    pub fn clear(&self) {
        self.changed.take();
    }

    /// Notes something that an order changes which is about to be carried out.
    pub fn note(&self, number: u64, (cont, unit, what): &Place) {
        let dkey = match what {
            What::Dkey(dkey) => Some(&dkey[..]),
            What::Whole | What::Facts => None,
            // Nobody is shown anything else by these.
            What::Answer(_) | What::Decided(..) | What::Notes => return,
        };
        self.changed.borrow_mut().note_place(Lsn(number), *cont, *unit, dkey);
    }

    /// All members have what was ordered up to a number.
    pub fn settle(&self, number: u64) {
        self.changed.borrow_mut().settle(Lsn(number));
    }

    /// True when what is noted came by a stream.
    pub fn is_of(&self, stream: u64) -> bool {
        self.stream.get() == stream
    }

    /// True when a batch looks at something that not all members may have.
    fn has_seen_of(&self, cont: ContId, batch: &Summary) -> bool {
        let changed = self.changed.borrow();
        !changed.is_empty() && changed.seen(Lsn::default(), cont, batch) > Lsn::default()
    }

    fn has_any_of(&self, cont: ContId, unit: Unit) -> bool {
        self.changed.borrow().newest_of(cont, unit) > Lsn::default()
    }
}

/// Requests that asked this target as a member, of a pool.
#[derive(Default)]
pub(crate) struct MemberReads {
    shown: Cell<u64>,
    dirty: Cell<u64>,
    refused: Cell<u64>,
}

impl MemberReads {
    fn count(&self, outcome: &Outcome) {
        let count = match outcome {
            Ok(_) => &self.shown,
            Err(error) if error.code == Code::Busy => &self.dirty,
            Err(_) => &self.refused,
        };
        count.set(count.get() + 1);
    }

    /// Those answered, those refused for what they asked for, and those for another reason.
    pub fn counts(&self) -> [u64; 3] {
        [&self.shown, &self.dirty, &self.refused].map(Cell::get)
    }
}

impl Target {
    /// True when a batch asks this target for what another one leads.
    pub(crate) fn is_for_member(&self, ask: &Ask) -> bool {
        ask.header.flags & FLAG_MEMBER != 0
            && !ask.summary.writes
            && self.group_of_units(&ask.ctx, &ask.held.batch().checks, &ask.summary.units).is_err()
    }

    /// Answers a batch that only looks at something, by what this target has as a member.
    ///
    /// Errors: `Busy` when not all members may have what it asks for; `Unreach` when this target is not sure to have all that is acknowledged. Those of the batch
    /// itself the leader finds, too.
    pub(crate) async fn show_as_member(self: &Rc<Self>, ask: &Ask) -> Outcome {
        let outcome = self.look_as_member(ask).await;
        ask.ctx.member_reads.count(&outcome);
        outcome
    }

    async fn look_as_member(self: &Rc<Self>, ask: &Ask) -> Outcome {
        let Ask { ctx, summary, .. } = ask;
        let batch = ask.held.batch();
        let cont = batch.cont;
        let opens = |op: &Op<'_>| op.footprint().opens != Opens::Nothing;
        if !batch.checks.is_empty() || batch.at != Epoch::ZERO || walk(&batch.ops).any(opens) {
            return Err(Error::inval("members are asked for the present only, and open nothing"));
        }
        ctx.shard.ready_for_batch((cont, batch.at), &[], &batch.ops, summary).await?;
        // From here to the plan no await: what may be shown is what is looked at.
        self.may_take_effect(ask)?;
        let map = ctx.map()?;
        self.may_show_as_member(ctx, &map)?;
        self.require_pages(ctx, batch)?;
        for named in &summary.units {
            let leader = self.follower_of(named.unit, &map)?;
            self.require_clean(ctx, leader, |dirty| dirty.has_seen_of(cont, summary))?;
        }
        if ctx.shard.is_held(cont, summary) {
            return Err(is_dirty());
        }
        let mut plan = self.check_and_plan(ctx, batch, summary, By::Member)?;
        for unit in std::mem::take(&mut plan.linked) {
            let leader = self.follower_of(unit, &map)?;
            self.require_clean(ctx, leader, |dirty| dirty.has_any_of(cont, unit))?;
            if ctx.shard.conflicts(cont, &[], &[Op::Stat { unit }]) {
                return Err(is_dirty());
            }
        }
        let seen = ctx.shard.newest_seen(cont, summary).max(plan.seen);
        let mut answer = Vec::with_capacity(160);
        answer.push(0);
        plan.encode_after(ctx.clock.last(), &mut answer);
        ctx.shard.durable(seen).await?;
        Ok((answer, plan.segments))
    }

    /// That this target has all that is acknowledged in the groups that it is a member of.
    fn may_show_as_member(&self, ctx: &TargetPool, map: &PoolMap) -> Result<()> {
        let text = if ctx.is_unsure() || !placement::is_live(self.id, map) {
            "it may lack something"
        } else if !ctx.suspects.is_empty() {
            "it may have something of a lost leader that others do not have"
        } else if !ctx.alike.are_all() {
            "those who may lead next may lack what it has"
        } else if !self.is_lead_granted(ctx) {
            "nobody grants that it shows something"
        } else {
            return Ok(());
        };
        Err(Error::new(Code::Unreach, format!("target {} as a member: {text}", self.id)))
    }

    /// Whom this target follows in a unit's group, as a member with a copy of it.
    ///
    /// Errors: `Unreach` when it is none, or leads.
    pub(crate) fn follower_of(&self, unit: Unit, map: &PoolMap) -> Result<TargetId> {
        let is_copied = unit
            .object
            .class()
            .is_ok_and(|class| matches!(class.scheme, Scheme::Replicated { .. }));
        let layout = placement::layout(unit.placed_as(), map)?;
        let group = unit.group as usize;
        let is_member = is_copied
            && !unit.is_cell()
            && group < layout.group_count()
            && layout.members(group).contains(&self.id);
        let leader = is_member.then(|| layout.leader(group, map)).flatten();
        leader.filter(|leader| *leader != self.id).ok_or_else(|| {
            let text = format!("target {} does not follow in the group of unit {unit}", self.id);
            Error::new(Code::Unreach, text)
        })
    }

    /// That nothing is dirty of what a leader has ordered; else it is asked how far its orders are, for who comes next.
    fn require_clean(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        leader: TargetId,
        is_seen: impl FnOnce(&Dirty) -> bool,
    ) -> Result<()> {
        let Some(dirty) = ctx.followed.dirty_of(leader).filter(|dirty| is_seen(dirty)) else {
            return Ok(());
        };
        if !dirty.is_asking.replace(true) {
            let (target, ctx) = (self.clone(), ctx.clone());
            self.env.spawn(async move {
                target.ask_how_far(&ctx, leader).await;
                // timer: not for each read.
                target.env.sleep(ASK_PAUSE).await;
                dirty.is_asking.set(false);
            });
        }
        Err(is_dirty())
    }

    async fn ask_how_far(self: &Rc<Self>, ctx: &Rc<TargetPool>, leader: TargetId) {
        let Ok(map) = ctx.map() else { return };
        let asked = self.ask_member(ctx, &map, leader, MemberAsk::SettledOrders);
        match self.env.timeout(ASK_TIME_MAX, asked).await {
            Some(Ok(told)) => ctx.followed.settle_by(leader, &told),
            Some(Err(error)) => {
                tracing::debug!("target {}: how far target {leader} is: {error}", self.id);
            }
            None => {}
        }
    }
}

/// Not all members may have what is asked for.
fn is_dirty() -> Error {
    Error::bare(Code::Busy)
}
