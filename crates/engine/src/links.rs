//! Planning a batch: what its ops answer, and what they come down to in the store.
//!
//! Links, open handles and orphans are the engine's; the store knows updates and punches only.
//! A plan is made in one go, against the state before the batch, and carried out right after.

use crate::opens::Handle;
use crate::reply::{Answer, Answers};
use crate::target::{Target, TargetPool};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, DkeyKind, Epoch, Error, PoolId, Result, TargetId, Unit};
use vos::{Lsn, OrphanChange, Payload, Segments, Summary, View};
use wire::link::{Link, LinkKind};
use wire::map::TargetInfo;
use wire::obj::{
    Batch, BatchReply, BulkSums, Cond, Linked, ListScope, Listed, Op, Request, Sums, Tail,
};
use wire::order::Order;

/// First pause before freeing an orphan is tried again; doubles up to the second.
const REAP_PAUSE_MIN: Duration = Duration::from_millis(100);
const REAP_PAUSE_MAX: Duration = Duration::from_secs(10);

/// An object that another one has taken the place of is freed after this long.
const LINGER_TIME: Duration = Duration::from_secs(10);

/// Most ranges in one answer to [`Op::ListRuns`].
const RUNS_MAX: u32 = 8192;

/// What a batch answers and does.
pub(crate) struct Plan<'a> {
    answers: Vec<Answer>,
    /// Data of fetches.
    pub segments: Segments,
    /// The newest record not on stable storage yet that the answers show of objects linked to.
    pub seen: Lsn,
    /// The newest order not settled yet that they show, likewise.
    pub unsettled: u64,
    /// Units of objects linked to of which they show something, where that is not granted ([`crate::lead`]), or this target does not lead them.
    pub linked: Vec<Unit>,
    by: By,
    is_lead_granted: Option<bool>,
    /// Ops in the store's own terms; `None` when the batch's ops are.
    pub writes: Option<Vec<Op<'a>>>,
    /// Objects that become orphans with the batch, or cease to be.
    pub orphans: Vec<OrphanChange>,
    /// Those that cease to be.
    pub adopted: Vec<Unit>,
    /// Objects that are freed though they hold nothing: there is nothing to do, but in a transaction whoever opens one meanwhile is to wait for the decision, as for
    /// any other, or it would get data and have no name.
    pub freed_of_nothing: Vec<Unit>,
    /// What follows when the batch has taken effect.
    pub after: After,
}

/// As what a target answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    Leader,
    /// One that follows, and shows what it has ([`crate::member_reads`]).
    Member,
}

/// Effects outside the store.
#[derive(Default)]
pub(crate) struct After {
    /// Handles to register, for this client.
    pub opens: Vec<Handle>,
    pub client: types::ClientId,
    /// Orphans to free unless they are held open.
    pub reap: Vec<Handle>,
    /// Of these, those that are not freed at once.
    pub linger: Vec<Handle>,
}

impl Plan<'_> {
    /// The encoded [`BatchReply`] (without `Ok` tag) of a batch without bulk.
    pub fn encode(&self, epoch: Epoch) -> Vec<u8> {
        let mut body = Vec::with_capacity(96);
        self.encode_after(epoch, &mut body);
        wire::encode_into(&BulkSums::NONE, &mut body);
        body
    }

    /// Appends the encoded [`BatchReply`] without the sums of its bulk, which end it.
    pub fn encode_after(&self, epoch: Epoch, body: &mut Vec<u8>) {
        wire::encode_into(&(epoch, Answers(&self.answers)), body);
    }
}

impl Target {
    /// Looks at a batch's conditions, at what it answers, and at what it comes down to, in one pass.
    ///
    /// Errors: those of [`View::check_each`]; `ReadOnly` or `Inval` for what is no matter of a snapshot.
    pub(crate) fn check_and_plan<'a>(
        &self,
        ctx: &TargetPool,
        batch: &Batch<'a>,
        summary: &Summary,
        by: By,
    ) -> Result<Plan<'a>> {
        if batch.at != Epoch::ZERO {
            require_reads_only(batch, summary)?;
        }
        let view = ctx.shard.view_at(batch.cont, batch.at)?;
        let mut plan = Plan {
            answers: Vec::with_capacity(batch.ops.len()),
            segments: Segments::cached(),
            seen: Lsn::default(),
            unsettled: 0,
            linked: Vec::new(),
            by,
            is_lead_granted: None,
            writes: summary.is_replaced.then(|| Vec::with_capacity(batch.ops.len())),
            orphans: Vec::new(),
            adopted: Vec::new(),
            freed_of_nothing: Vec::new(),
            after: After::default(),
        };
        view.check_each(&batch.checks, &batch.ops, |op| {
            let answer = self.plan_op(ctx, &view, batch, op, &mut plan)?;
            plan.answers.push(answer);
            Ok(())
        })?;
        Ok(plan)
    }

    /// What one op answers; what it comes down to is added to the plan.
    fn plan_op<'a>(
        &self,
        ctx: &TargetPool,
        view: &View<'_>,
        batch: &Batch<'a>,
        op: &Op<'a>,
        plan: &mut Plan<'a>,
    ) -> Result<Answer> {
        // What a snapshot shows does not go away: there is nothing to hold open.
        let registers = batch.at == Epoch::ZERO;
        let handle = |unit: Unit| (batch.cont, unit);
        Ok(match op {
            Op::Update { .. }
            | Op::PunchObj { .. }
            | Op::PunchDkeys { .. }
            | Op::PunchDkeysFrom { .. }
            | Op::PunchAkeys { .. } => {
                if let Some(writes) = &mut plan.writes {
                    writes.push(op.clone());
                }
                Answer::Done
            }
            Op::Fetch { unit, dkey, cond, iods } => {
                Answer::Fetched(view.fetch(*unit, dkey, *cond, iods, &mut plan.segments)?)
            }
            Op::List { unit, scope, anchor, count_max, bytes_max } => {
                let listing = view.list(*unit, *scope, anchor, *count_max, *bytes_max)?;
                let follows = matches!(scope, ListScope::Dkeys { follow: true, .. });
                let tails = follows.then(|| {
                    let items = listing.items();
                    items
                        .map(|item| {
                            let (unit, tail, seen, unsettled) =
                                self.tail_of_listed(ctx, view, batch.cont, &item, plan.by)?;
                            self.note_linked(ctx, plan, unit);
                            plan.seen = plan.seen.max(seen);
                            plan.unsettled = plan.unsettled.max(unsettled);
                            Some(tail)
                        })
                        .collect()
                });
                Answer::Listed(listing, tails)
            }
            Op::Query { unit, flags, dkey, akey } => {
                Answer::Found(view.query(*unit, *flags, dkey, akey)?)
            }
            Op::Stat { unit } => Answer::Stat(view.stat(*unit)),
            Op::Open { unit } => {
                if registers {
                    plan.after.opens.push(handle(*unit));
                }
                Answer::Done
            }
            Op::FetchLink { unit, dkey, akey, open } => match view.value(*unit, dkey, akey) {
                None => Answer::Link { value: None, epoch: Epoch::ZERO, tail: None, opened: false },
                Some((epoch, value)) => {
                    let linked = self.linked(ctx, view, value, plan.by);
                    // A transaction that frees what is closed may have looked just now whether this is: who opens waits
                    // for it, and then sees whether the link is still there.
                    let is_held = || {
                        let opens = [Op::Open { unit: linked.unit }];
                        ctx.shard.conflicts(batch.cont, &[], &opens)
                    };
                    let opened = *open && linked.home_here && registers && !is_held();
                    if opened {
                        plan.after.opens.push(handle(linked.unit));
                    }
                    let is_shown =
                        linked.all_here && !self.may_differ(ctx, batch.cont, linked.unit)?;
                    let tail = is_shown.then(|| {
                        let (seen, unsettled) = self.newest_of_array(ctx, batch.cont, linked.unit);
                        self.note_linked(ctx, plan, linked.unit);
                        plan.seen = plan.seen.max(seen);
                        plan.unsettled = plan.unsettled.max(unsettled);
                        view.tail(linked.unit).unwrap_or_default()
                    });
                    Answer::Link { value: Some(value.to_vec()), epoch, tail, opened }
                }
            },
            Op::RemoveLink { unit, dkey, akey } => {
                let writes = plan.writes.get_or_insert_default();
                match view.value(*unit, dkey, akey) {
                    None => Answer::Removed { value: None, removed: false, linked: Linked::None },
                    Some((_, value)) => {
                        let linked = self.linked(ctx, view, value, plan.by);
                        let value = Some(value.to_vec());
                        if linked.protected {
                            Answer::Removed { value, removed: false, linked: Linked::None }
                        } else {
                            let dkeys = vec![serde_bytes::Bytes::new(dkey)];
                            writes.push(Op::PunchDkeys { unit: *unit, cond: Cond::NONE, dkeys });
                            let linked = match () {
                                () if linked.unit.is_nil() => Linked::None,
                                () if !linked.home_here => Linked::Elsewhere,
                                // Its members are others: a transaction of both.
                                () if !self.may_free_with(ctx, *unit, linked.unit) => {
                                    Linked::Elsewhere
                                }
                                () => {
                                    let whole = linked.all_here;
                                    self.free(ctx, plan, view, handle(linked.unit), whole);
                                    Linked::Freed
                                }
                            };
                            Answer::Removed { value, removed: true, linked }
                        }
                    }
                }
            }
            Op::PunchUnlessOpen { unit } => {
                let whole = self.is_whole_here(ctx, view, *unit);
                self.free(ctx, plan, view, handle(*unit), whole);
                Answer::Done
            }
            Op::FreeClosed { unit } => {
                if ctx.handles.is_open(&handle(*unit)) {
                    return Err(Error::new(Code::Busy, "a client holds the object open"));
                }
                if self.awaits_openers(ctx, *unit) {
                    let text = "it is not known yet, after a restart, who holds the object open";
                    return Err(Error::new(Code::WouldBlock, text));
                }
                plan.orphans.push(OrphanChange::Add(*unit));
                plan.after.linger.push(handle(*unit));
                plan.after.reap.push(handle(*unit));
                Answer::Done
            }
            Op::ListRuns { unit, chunk_records, within, count_max } => {
                let count_max = (*count_max).min(RUNS_MAX) as usize;
                let (runs, to) = view.runs(*unit, *chunk_records, *within, count_max)?;
                Answer::Runs(runs, to)
            }
            Op::Adopt { unit } => {
                // What is being freed may have lost parts on other targets.
                let is_going = ctx.handles.is_being_freed(&handle(*unit));
                if is_going || !ctx.shard.is_orphan(batch.cont, *unit) {
                    return Err(Error::new(
                        Code::NonExist,
                        "the file without a name has been freed",
                    ));
                }
                plan.orphans.push(OrphanChange::Remove(*unit));
                plan.adopted.push(*unit);
                Answer::Done
            }
            Op::Append { .. } => {
                return Err(Error::inval("an append is in no transaction"));
            }
        })
    }

    /// Frees an object whose home is here: at once if nobody holds it open and all of it is
    /// here, else as an orphan. An object that holds nothing yet may still get its first byte
    /// through an open handle, so it becomes an orphan, too. So do all while clients are awaited
    /// after a restart.
    fn free(
        &self,
        ctx: &TargetPool,
        plan: &mut Plan<'_>,
        view: &View<'_>,
        handle: Handle,
        whole: bool,
    ) {
        let open = ctx.handles.is_open(&handle) || plan.after.opens.contains(&handle);
        if !whole || open || self.awaits_openers(ctx, handle.1) {
            plan.orphans.push(OrphanChange::Add(handle.1));
            plan.after.reap.push(handle);
        } else if view.has_object(handle.1) {
            let op = Op::PunchObj { unit: handle.1, cond: Cond::NONE, besides: b"" };
            plan.writes.get_or_insert_default().push(op);
        } else {
            plan.freed_of_nothing.push(handle.1);
        }
    }

    /// What the link at the start of a value leads to.
    fn linked(&self, ctx: &TargetPool, view: &View<'_>, value: &[u8], by: By) -> LinkedObject {
        let none =
            LinkedObject { unit: Unit::NIL, protected: false, home_here: false, all_here: false };
        let Some(link) = Link::decode(value) else { return none };
        if link.kind == LinkKind::None || link.oid.is_nil() {
            return LinkedObject { protected: link.protected, ..none };
        }
        let Ok(map) = ctx.map() else {
            return LinkedObject { unit: link.oid.first_unit(), protected: link.protected, ..none };
        };
        let unit = link.oid.first_unit();
        let (home_here, all_here) = match placement::layout(unit.placed_as(), &map) {
            Ok(layout) => {
                let home_here = match by {
                    By::Leader => layout.leader(0, &map) == Some(self.id),
                    By::Member => self.follower_of(unit, &map).is_ok(),
                };
                let is_one = layout.group_count() == 1 && !view.reaches_beyond(unit);
                (home_here, home_here && is_one)
            }
            Err(_) => (false, false),
        };
        LinkedObject { unit, protected: link.protected, home_here, all_here }
    }

    /// True when the removal of a name can free the object in the same step: the same members do both.
    fn may_free_with(&self, ctx: &TargetPool, entry: Unit, linked: Unit) -> bool {
        let are_alone = ctx.is_alone(entry.object) && ctx.is_alone(linked.object);
        are_alone || self.are_together(ctx, entry, linked)
    }

    /// True when nothing of an object is in other units than its first.
    pub(crate) fn is_whole_here(&self, ctx: &TargetPool, view: &View<'_>, unit: Unit) -> bool {
        if unit.object.first_part_bytes().is_some() && !view.reaches_beyond(unit) {
            return true;
        }
        ctx.map().is_ok_and(|map| {
            placement::layout(unit.object, &map).is_ok_and(|layout| layout.group_count() == 1)
        })
    }

    /// Something of a unit is shown that the batch does not name.
    fn note_linked(&self, ctx: &TargetPool, plan: &mut Plan<'_>, unit: Unit) {
        if ctx.is_of_one(unit) {
            return;
        }
        let is_lead_granted =
            *plan.is_lead_granted.get_or_insert_with(|| self.is_lead_granted(ctx));
        if plan.by == By::Member || !is_lead_granted {
            plan.linked.push(unit);
        }
    }

    /// Tail of the object that a listed value links to, when all of it is here: the store tells
    /// of objects that hold something, an empty one has the default tail.
    fn tail_of_listed(
        &self,
        ctx: &TargetPool,
        view: &View<'_>,
        cont: ContId,
        item: &Listed<'_>,
        by: By,
    ) -> Option<(Unit, Tail, Lsn, u64)> {
        let Listed::Entry { value, tail, .. } = item else { return None };
        let linked = self.linked(ctx, view, value, by);
        let is_shown = linked.all_here
            && (by == By::Member
                || self.may_differ(ctx, cont, linked.unit).is_ok_and(|may_differ| !may_differ));
        is_shown.then(|| {
            let (seen, unsettled) = self.newest_of_array(ctx, cont, linked.unit);
            (linked.unit, tail.unwrap_or_default(), seen, unsettled)
        })
    }

    /// The newest record of a unit whose tail tells the size of an array. Of other objects it tells when they
    /// were changed last, and that may be taken back: who walks through a busy directory does not wait for it.
    fn newest_of_array(&self, ctx: &TargetPool, cont: ContId, unit: Unit) -> (Lsn, u64) {
        match unit.dkey_kind() {
            DkeyKind::U64 => {
                (ctx.shard.newest_of_unit(cont, unit), ctx.streams.newest_of_unit(cont, unit))
            }
            DkeyKind::Hashed | DkeyKind::Lexical => (Lsn::default(), 0),
        }
    }

    /// Carries out a batch's plan in the store. The payload holds the data of its updates.
    pub(crate) fn apply(
        &self,
        ctx: &TargetPool,
        batch: &Batch<'_>,
        plan: &Plan<'_>,
        epoch: Epoch,
        payload: Payload,
        origin: Option<vos::Origin<'_>>,
    ) -> Result<vos::Lsn> {
        let ops = plan.writes.as_deref().unwrap_or(&batch.ops);
        ctx.shard.apply(batch.cont, epoch, ops, payload, origin, &plan.orphans)
    }

    /// Carries out what follows a batch outside the store.
    pub(crate) fn carry_out(self: &Rc<Self>, ctx: &Rc<TargetPool>, after: After) {
        for handle in after.opens {
            ctx.handles.open(after.client, handle);
        }
        self.linger(ctx, after.linger);
        for handle in after.reap {
            self.reap(ctx, handle);
        }
    }

    /// Keeps objects from being freed for [`LINGER_TIME`]: who has just read a link to one, and asks the object now, is
    /// to see what was there.
    pub(crate) fn linger(self: &Rc<Self>, ctx: &TargetPool, closed: Vec<Handle>) {
        for handle in closed {
            let until = self.env.now() + LINGER_TIME;
            ctx.handles.linger(handle, until);
            let (target, pool, handles) = (self.clone(), ctx.shard.pool(), ctx.handles.clone());
            self.env.spawn(async move {
                // timer: who has read a link may ask for the object within this time.
                target.env.sleep(LINGER_TIME).await;
                if handles.end_lingering(handle, until)
                    && !target.is_draining()
                    && let Some(ctx) = target.pools.served(pool)
                {
                    target.reap_if_orphan(&ctx, handle);
                }
            });
        }
    }

    /// Frees an object if it is an orphan that nobody holds open any more.
    pub(crate) fn reap_if_orphan(self: &Rc<Self>, ctx: &Rc<TargetPool>, handle: Handle) {
        if ctx.shard.is_orphan(handle.0, handle.1) {
            self.reap(ctx, handle);
        }
    }

    /// Frees every orphan of a shard that nobody holds open.
    pub(crate) fn reap_orphans(self: &Rc<Self>, ctx: &Rc<TargetPool>) {
        for handle in ctx.shard.orphans() {
            self.reap(ctx, handle);
        }
    }

    /// Frees an orphan in the background, on all targets that hold parts of it, unless a client
    /// holds it open (its last close comes here again) or may do so (then all orphans come here again
    /// when that is known).
    fn reap(self: &Rc<Self>, ctx: &Rc<TargetPool>, handle: Handle) {
        let is_awaited = || self.awaits_openers(ctx, handle.1);
        if !self.pools.serves(ctx) || is_awaited() || !ctx.handles.begin_to_free(handle) {
            return;
        }
        // Who leads the group frees it.
        if self.led_group(ctx, handle.1).is_err() {
            ctx.handles.end_freeing(&handle);
            return;
        }
        let (target, pool, handles) = (self.clone(), ctx.shard.pool(), ctx.handles.clone());
        self.spawn_counted(async move {
            let mut pause = REAP_PAUSE_MIN;
            // A rollback may have made it an object like others. The part may have been let go meanwhile, and opened again.
            while let Some(ctx) = target.pools.served(pool)
                && !target.awaits_openers(&ctx, handle.1)
                && ctx.shard.is_orphan(handle.0, handle.1)
                && let Err(error) = target.reap_once(&ctx, handle).await
            {
                tracing::debug!("target {}: freeing {}: {error}", target.id, handle.1);
                if target.is_draining() || error.code == Code::NonExist {
                    break;
                }
                // timer: a growing pause before another try.
                target.env.sleep(pause).await;
                pause = (pause * 2).min(REAP_PAUSE_MAX);
            }
            handles.end_freeing(&handle);
        });
    }

    async fn reap_once(self: &Rc<Self>, ctx: &Rc<TargetPool>, (cont, unit): Handle) -> Result<()> {
        let pool = ctx.shard.pool();
        let map = ctx.map()?;
        let layout = placement::layout(unit.object, &map)?;
        let op = |unit| Op::PunchObj { unit, cond: Cond::NONE, besides: b"" };
        let of_group = |group: usize| unit.object.unit(group as u32);
        let leader = |group| layout.leader(group, &map);
        // Nobody has it open, so what is in the first unit alone stays there.
        ctx.shard.ready(cont, &[], &[Op::PunchUnlessOpen { unit }]).await?;
        let is_whole = self.is_whole_here(ctx, &ctx.shard.view(cont)?, unit);
        let group_count = if is_whole { 1 } else { layout.group_count() };
        // What this target has of it: its first unit, and those of groups that came here.
        let here = (1..group_count)
            .filter(|group| ctx.is_alone(unit.object) && leader(*group) == Some(self.id));
        let ops: Vec<Op<'_>> = std::iter::once(unit).chain(here.map(of_group)).map(op).collect();
        let is_wanted = || {
            // It may have been given a name, or been opened.
            !ctx.shard.is_orphan(cont, unit) || ctx.handles.is_open(&(cont, unit))
        };
        let is_held = || match ctx.shard.conflicts(cont, &[], &ops) {
            true => Err(Error::new(Code::Busy, "a transaction in doubt has to do with it")),
            false => Ok(()),
        };
        is_held()?;
        if is_wanted() {
            return Ok(());
        }
        for group in 1..group_count {
            let Some(other) = leader(group) else {
                let holds = |of: &TargetId| map.target(*of).is_some_and(TargetInfo::holds_its_part);
                if layout.members(group).iter().any(holds) {
                    let text = format!("nobody leads group {group} of object {}", unit.object);
                    return Err(Error::new(Code::Unreach, text));
                }
                // It is lost, and so is what it had.
                continue;
            };
            if other == self.id {
                if !ctx.is_alone(unit.object) {
                    self.punch_in_group(pool, ctx, cont, of_group(group), &[]).await?;
                }
                continue;
            }
            let engine = map
                .engine_of(other)
                .ok_or_else(|| Error::new(Code::Unreach, "no engine for a target"))?;
            let batch = Batch {
                pool,
                cont,
                at: Epoch::ZERO,
                checks: Vec::new(),
                ops: vec![op(of_group(group))],
                sums: Sums::NONE,
            };
            let body = wire::encode(&Request::Batch(batch));
            let answer = self.peers.ask(engine, other, &body, &[]).await?;
            wire::decode::<Result<BatchReply<'_>>>(&answer.body)??;
        }
        ctx.shard.ready(cont, &[], &ops).await?;
        is_held()?;
        if is_wanted() {
            return Ok(());
        }
        if !ctx.is_alone(unit.object) {
            return self.punch_in_group(pool, ctx, cont, unit, &[unit]).await;
        }
        let payload = self.stage(ctx, &ops)?;
        ctx.shard.require_open(cont)?;
        let epoch = self.tick(ctx);
        let lsn =
            ctx.shard.apply(cont, epoch, &ops, payload, None, &[OrphanChange::Remove(unit)])?;
        ctx.shard.durable(lsn).await
    }

    /// Removes a unit of a group of several members that this target leads; `adopted` cease to be orphans.
    async fn punch_in_group(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
        adopted: &[Unit],
    ) -> Result<()> {
        let ops = vec![Op::PunchObj { unit, cond: Cond::NONE, besides: b"" }];
        ctx.shard.ready(cont, &[], &ops).await?;
        let group = self.led_group(ctx, unit)?;
        let payload = self.stage(ctx, &ops)?;
        ctx.shard.require_open(cont)?;
        let epoch = self.tick(ctx);
        let orphans: Vec<OrphanChange> =
            adopted.iter().copied().map(OrphanChange::Remove).collect();
        let lsn = ctx.shard.apply(cont, epoch, &ops, payload, None, &orphans)?;
        let (orphaned, adopted, changed) = (Vec::new(), adopted.to_vec(), ops.clone());
        let order =
            Order::Apply { cont, epoch, ops, sums: Sums::NONE, origin: None, orphaned, adopted };
        let changed = Some((cont, &changed[..]));
        let sent = self.ship(pool, ctx, group.as_ref(), &order, Vec::new(), changed);
        self.tell_of_unnamed_soon(ctx);
        ctx.shard.durable(lsn).await?;
        sent.settled().await
    }
}

fn require_reads_only(batch: &Batch<'_>, summary: &Summary) -> Result<()> {
    if summary.writes {
        return Err(Error::new(Code::ReadOnly, "a snapshot cannot be changed"));
    }
    if !batch.checks.is_empty() {
        return Err(Error::inval("a snapshot does not change: there is nothing to check"));
    }
    Ok(())
}

struct LinkedObject {
    unit: Unit,
    protected: bool,
    home_here: bool,
    all_here: bool,
}
