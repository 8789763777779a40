//! What a target that catches up knows of it: what orders have touched meanwhile, how far it has come, and what the control service has heard.
//!
//! Invariant: what orders have touched, or may have, is noted as long as the target is behind, and nobody takes it for less new than its leader's.

use crate::give_way::Urgent;
use crate::lost_pages::PageWaits;
use crate::target::TargetPool;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{ContId, Epoch, Result, TargetId, Unit};
use vos::{Lsn, PoolShard, Summary, Unsettled};
use wire::obj::{Cond, Op, TxOutcome};
use wire::order::Order;
use wire::store::CatchUpStat;

/// A target's catching up in a pool.
#[derive(Default)]
pub(crate) struct Joining {
    /// What orders have touched since it is behind; `None`: it is not.
    touched: RefCell<Option<Unsettled>>,
    /// Units with keys that were installed since then: they may look as new as the leader's for these alone.
    installed: RefCell<BTreeSet<(ContId, Unit)>>,
    /// What is as new as this, or newer, orders may have touched that are not noted in `touched`. Also when this target has caught up, until all are whole: what it leads it has compared with nobody.
    doubtful_since: Cell<Option<Epoch>>,
    /// An order found no room.
    is_full: Cell<bool>,
    /// When a cell found none last.
    missed_cell_at: Cell<Option<Duration>>,
    is_running: Cell<bool>,
    /// Groups have had, or were to have, other members since this target was opened.
    has_moved: Cell<bool>,
    /// The control service is being told that this target is about to miss something.
    is_telling: Cell<bool>,
    /// What is of groups of others is being dropped.
    is_clearing: Cell<bool>,
    /// The map under which the control service has heard that nothing is missing.
    told: Cell<u32>,
    /// The map under which it may have: from then on nothing must be missed.
    claimed: Cell<u32>,
    /// Since this try began a container was rolled back at an epoch of this target's own: what was compared before differs now.
    has_rolled_alone: Cell<bool>,
    stat: Cell<CatchUpStat>,
    /// When it began, and when this try began to compare keys.
    begun: Cell<Option<Duration>>,
    try_begun: Cell<Option<Duration>>,
    /// How it was when it ended last.
    last: Cell<Option<CatchUpStat>>,
    /// What it had got until then.
    healed: Cell<CatchUpStat>,
    /// The map under which the control service has heard that there is no room.
    told_full: Cell<u32>,
    /// A leader with damaged pages, which has told in this try what it has, and cannot tell what it had.
    untold_by: Cell<Option<TargetId>>,
    pub page_waits: PageWaits,
    /// What this target sends to others that have nobody else to get it from.
    pub urgent: Urgent,
}

impl Joining {
    /// True from [`Joining::begin`] to [`Joining::end`].
    pub fn is_behind(&self) -> bool {
        self.touched.borrow().is_some()
    }

    /// False when a task is at it.
    pub fn begin_to_run(&self) -> bool {
        !self.is_running.replace(true)
    }

    pub fn end_running(&self) {
        self.is_running.set(false);
    }

    /// Another try begins.
    pub fn begin_try(&self, now: Duration) {
        self.is_full.set(false);
        self.untold_by.set(None);
        self.has_rolled_alone.set(false);
        self.begun.set(self.begun.get().or(Some(now)));
        self.try_begun.set(None);
    }

    /// It has come to comparing keys.
    pub fn begin_to_compare(&self, now: Duration) {
        self.try_begun.set(Some(now));
    }

    /// True when the control service has heard under this map that nothing is missing.
    pub fn has_told(&self, map_version: u32) -> bool {
        self.told.get() == map_version
    }

    pub fn note_told(&self, map_version: u32) {
        self.told.set(map_version);
    }

    /// True when the control service has heard under this map that there is no room.
    pub fn has_told_full(&self, map_version: u32) -> bool {
        self.told_full.get() == map_version
    }

    pub fn note_told_full(&self, map_version: u32) {
        self.told_full.set(map_version);
    }

    /// Begins to tell the control service that something is about to be missed; false when somebody is at it.
    pub fn begin_to_tell(&self) -> bool {
        !self.is_telling.replace(true)
    }

    pub fn end_telling(&self) {
        self.is_telling.set(false);
    }

    /// From now on this target misses nothing under this map; 0: it may.
    pub fn claim_under(&self, map_version: u32) {
        self.claimed.set(map_version);
    }

    /// A container is rolled back here at an epoch of this target's own. This try does not end well: all of it is to be compared afterwards.
    pub fn note_rolled_alone(&self) {
        self.has_rolled_alone.set(true);
        self.page_waits.interrupt();
    }

    /// See [`Joining::note_rolled_alone`].
    pub fn has_rolled_alone(&self) -> bool {
        self.has_rolled_alone.get()
    }

    /// What it has got so far.
    pub fn mended(&self) -> CatchUpStat {
        self.stat.get()
    }

    /// True when an order found no room in this try.
    pub fn is_full(&self) -> bool {
        self.is_full.get()
    }

    /// True when groups have had, or were to have, other members since this target was opened.
    pub fn has_moved(&self) -> bool {
        self.has_moved.get()
    }

    /// The map says that groups have other members, or are to have.
    pub fn note_move(&self) {
        self.has_moved.set(true);
    }

    /// True while what is of groups of others is being dropped.
    pub fn is_clearing(&self) -> bool {
        self.is_clearing.get()
    }

    /// Begins to drop it; false when somebody is at it.
    pub fn begin_clearing(&self) -> bool {
        !self.is_clearing.replace(true)
    }

    pub fn end_clearing(&self) {
        self.is_clearing.set(false);
    }

    /// A leader with damaged pages tells what it has, and cannot tell what it had.
    pub fn note_untold(&self, leader: TargetId) {
        self.untold_by.set(Some(leader));
    }

    /// The last of which that was noted in this try.
    pub fn untold_by(&self) -> Option<TargetId> {
        self.untold_by.get()
    }

    /// Begins to note what orders touch.
    pub fn begin(&self, shard: &PoolShard) {
        self.touched.borrow_mut().get_or_insert_with(|| {
            // What was noted before is lost.
            self.doubtful_since.set(shard.lacks_since());
            Unsettled::default()
        });
    }

    /// Notes what an order touches, before it is carried out.
    pub fn note(&self, ctx: &TargetPool, order: &Order<'_>) -> Result<()> {
        let since = match order {
            Order::Apply { epoch, .. }
            | Order::Decide { outcome: TxOutcome::Committed(epoch), .. } => *epoch,
            _ => ctx.shard.last_epoch(),
        };
        if let Order::Decide { tx, outcome: TxOutcome::Committed(epoch) } = order {
            ctx.old_parts.note_commit(ctx, *tx, *epoch)?;
        }
        let mut touched = self.touched.borrow_mut();
        let Some(touched) = touched.as_mut() else { return Ok(()) };
        ctx.shard.begin_lacking(since)?;
        match order {
            Order::Apply { cont, ops, .. } => touched.note_ops(Lsn(1), *cont, ops),
            Order::Decide { tx, .. } => {
                if let Some((cont, part)) = ctx.shard.prepared_batch(*tx) {
                    touched.note_ops(Lsn(1), cont, &part.batch().ops);
                }
            }
            Order::Install { cont, unit, .. } | Order::InstallFacts { cont, unit } => {
                self.installed.borrow_mut().insert((*cont, *unit));
            }
            // A part changes nothing before its outcome; what may be folded is compared whatever orders touch.
            Order::Fold { .. }
            | Order::InstallPart { .. }
            | Order::Prepare { .. }
            | Order::Decision { .. }
            | Order::ForgetDecision { .. }
            | Order::Answers { .. } => {}
        }
        Ok(())
    }

    /// Notes that an order of a group that this target lacks something of found no room; false when that must not be, for the
    /// control service may have heard that nothing is missing. `is_awaited`: this target is catching up with that very group.
    pub fn note_full(&self, ctx: &TargetPool, is_awaited: bool) -> bool {
        let may_be = self.may_miss(ctx);
        if may_be && is_awaited {
            self.is_full.set(true);
        }
        if may_be {
            self.page_waits.interrupt();
        }
        may_be
    }

    /// The same of a cell of a group that this target comes to have cells of.
    pub fn note_missed_cell(&self, ctx: &TargetPool, now: Duration) -> bool {
        let may_be = self.note_full(ctx, true);
        if may_be {
            self.missed_cell_at.set(Some(now));
        }
        may_be
    }

    /// True when something found no room that this try to catch up has not got otherwise: cells get their names some time after they were to be kept.
    pub fn misses_something(&self, now: Duration) -> bool {
        let is_young = |at: Duration| now.saturating_sub(at) < crate::cell_audit::AGE_MIN;
        self.is_full.get() || self.missed_cell_at.get().is_some_and(is_young)
    }

    /// From now on this target misses nothing under the map that it knows.
    pub fn claim(&self, ctx: &TargetPool) {
        self.claimed.set(ctx.map_version());
    }

    /// True when an order of a group that this target is catching up with need not be carried out for want of room.
    pub fn may_miss(&self, ctx: &TargetPool) -> bool {
        self.claimed.get() != ctx.map_version()
    }

    /// How far it has come; `None`: it is not behind.
    pub fn stat(&self, now: Duration) -> Option<CatchUpStat> {
        let since = |begun: Option<Duration>| {
            begun.map_or(0, |begun| now.saturating_sub(begun).as_millis() as u64)
        };
        let (time_ms, try_ms) = (since(self.begun.get()), since(self.try_begun.get()));
        let is_full = self.is_full.get();
        let stat = CatchUpStat { time_ms, try_ms, is_full, ..self.stat.get() };
        self.touched.borrow().as_ref().map(|_| stat)
    }

    /// How it was when it ended last.
    pub fn last(&self) -> Option<CatchUpStat> {
        self.last.get()
    }

    /// What it has got in all, since the engine's start: keys, units and bytes.
    pub fn healed(&self) -> CatchUpStat {
        let (now, before) = (self.stat.get(), self.healed.get());
        CatchUpStat {
            keys_mended: before.keys_mended + now.keys_mended,
            units_mended: before.units_mended + now.units_mended,
            bytes_mended: before.bytes_mended + now.bytes_mended,
            ..before
        }
    }

    /// Nothing is lacking any more.
    pub fn end(&self, now: Duration) {
        self.healed.set(self.healed());
        if let Some(stat) = self.stat(now).filter(|stat| stat.tries > 0) {
            self.last.set(Some(stat));
        }
        self.touched.replace(None);
        self.page_waits.end();
        self.installed.take();
        self.stat.take();
        self.begun.take();
        self.try_begun.take();
        self.is_full.set(false);
    }

    /// Counts something while this target catches up.
    pub fn count(&self, change: impl FnOnce(&mut CatchUpStat)) {
        if self.touched.borrow().is_none() {
            return;
        }
        let mut stat = self.stat.get();
        change(&mut stat);
        self.stat.set(stat);
    }

    /// True when a unit may differ from its leader's that looks as new: orders may have changed it since this target is behind, or it is damaged.
    pub fn has_touched(&self, ctx: &TargetPool, cont: ContId, unit: Unit) -> bool {
        self.may_be_ordered(ctx, cont, unit)
            || ctx.shard.lacks_page_of(cont, unit, None)
            || ctx.mending.has_given_up(cont, unit, None)
    }

    /// True when orders may have changed a unit while this target had not what its leader had.
    pub fn may_be_ordered(&self, ctx: &TargetPool, cont: ContId, unit: Unit) -> bool {
        let is_noted = |touched: &Unsettled| {
            self.installed.borrow().contains(&(cont, unit))
                || touched.newest_of(cont, unit) != Lsn::default()
        };
        self.is_doubtful()
            || ctx.old_parts.since(cont, unit).is_some()
            || self.touched.borrow().as_ref().is_some_and(is_noted)
    }

    /// True when there may be such units, and it is not known which.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful_since.get().is_some()
    }

    /// There are none.
    pub fn forget_doubts(&self) {
        self.doubtful_since.set(None);
    }

    /// The same of a key; `epoch`: the newest one under it.
    pub fn has_touched_key(
        &self,
        ctx: &TargetPool,
        (cont, unit): (ContId, Unit),
        dkey: &[u8],
        epoch: Epoch,
    ) -> bool {
        self.may_be_ordered_key(ctx, (cont, unit), dkey, epoch)
            || ctx.shard.lacks_page_of(cont, unit, Some(dkey))
            || ctx.mending.has_given_up(cont, unit, Some(dkey))
    }

    /// The same as [`Joining::may_be_ordered`] of a key.
    pub fn may_be_ordered_key(
        &self,
        ctx: &TargetPool,
        (cont, unit): (ContId, Unit),
        dkey: &[u8],
        epoch: Epoch,
    ) -> bool {
        let since = ctx.old_parts.since(cont, unit);
        if self.doubtful_since.get().into_iter().chain(since).any(|since| epoch >= since) {
            return true;
        }
        let Some(touched) = &*self.touched.borrow() else { return false };
        let read = [Op::Fetch { unit, dkey, cond: Cond::NONE, iods: Vec::new() }];
        touched.seen(Lsn::default(), cont, &Summary::of(&[], &read)) != Lsn::default()
    }
}
