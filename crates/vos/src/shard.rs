//! One pool's part in one target: the operations of the crate, each an index change and a log
//! record in one synchronous step.

use std::cell::{Cell, Ref, RefCell};
use std::rc::{Rc, Weak};

use env::Signal;
use smallvec::SmallVec;
use types::{Code, ContId, Durability, Epoch, Error, PoolId, Result, Unit};
use wire::HeldBatch;
use wire::obj::{ObjectList, Op, PoolShardStat, ReadCheck, Sums, TxId, TxOutcome};

use crate::at_work::AtWork;
use crate::blocks::Run;
use crate::contents::{Contents, pieces_df, sums_df};
use crate::data_area::Core;
use crate::figures::Figures;
use crate::fold::FoldNotes;
use crate::index::{Effects, bucket};
use crate::log::wal::Wal;
use crate::lost::DamagedPages;
use crate::pages::PageStore;
use crate::payload::{BlockSums, Payload, Piece};
use crate::record::{self, ApplyDf, ChangeDf, OriginDf, OrphanChange, RecordDf};
use crate::reserve::Room;
use crate::residency::{Cache, Loads, RECLAIM_COUNT};
use crate::space::Space;
use crate::summary::Summary;
use crate::sums::SumPolicy;
use crate::unsettled::Settling;
use crate::view::View;
use crate::{Lsn, changes};

/// Settings of a shard, fixed when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolShardConfig {
    /// When updates are acknowledged.
    pub durability: Durability,
    /// Most memory the index may count, bytes.
    pub scm_bytes: u64,
    /// Size of the data area, bytes.
    pub nvme_bytes: u64,
}

/// What of an index is in memory; see [`PoolShard::index_stat`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexStat {
    /// Memory counted of what is in memory, bytes.
    pub resident_bytes: u64,
    /// Of that, what no page on the device holds yet, bytes.
    pub dirty_bytes: u64,
    /// Pages that are not in memory.
    pub absent_pages: u64,
    /// Pages read back since the shard was opened.
    pub loaded_pages: u64,
    /// Pages and tables on the device, bytes.
    pub area_bytes: u64,
    /// Memory of the sums of blocks, which are all in memory, bytes.
    pub sums_bytes: u64,
}

/// Which request an update answers, so that a retry finds the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin<'a> {
    pub tx: TxId,
    /// A unit that it has changed, of a group of several members, who keep the reply, too; `None` for others.
    pub of: Option<Unit>,
    pub reply: &'a [u8],
}

impl<'a> Origin<'a> {
    fn durable(self) -> OriginDf<'a> {
        OriginDf { tx: self.tx, of: self.of, reply: self.reply }
    }
}

/// The part of a pool that one target holds: its index, log and data area.
pub struct PoolShard {
    pub(crate) pool: PoolId,
    config: PoolShardConfig,
    incarnation: u64,
    pub(crate) core: Rc<Core>,
    pub(crate) state: RefCell<Contents>,
    /// `None`: durability `memory`.
    pub(crate) wal: Option<Rc<Wal>>,
    /// As `wal`.
    pub(crate) pages: Option<Rc<PageStore>>,
    /// Where the table of the last checkpoint lies.
    table_runs: RefCell<Vec<Run>>,
    pub(crate) room: Room,
    pub(crate) cache: Rc<Cache>,
    pub(crate) loads: Loads,
    pub(crate) damaged: DamagedPages,
    closed: Cell<bool>,
    abandoned: Cell<bool>,
    pub(crate) checkpointing: AtWork,
    /// Memory became free, a checkpoint or the setting aside of room has ended, or all is given up.
    pub(crate) progress: Signal,
    pub(crate) reclaiming: AtWork,
    pub(crate) figures: Figures,
    pub(crate) aggregating: AtWork,
    pub(crate) discarding: AtWork,
    /// A sweep runs in the background.
    pub(crate) sweeping: AtWork,
    effects: RefCell<Effects>,
    /// What reads must not show yet.
    pub(crate) unsettled: Settling,
    /// Where something may be folded.
    pub(crate) fold_notes: FoldNotes,
    pub(crate) me: Weak<PoolShard>,
}

/// What a durable shard has beside its state.
pub(crate) struct Durables {
    pub wal: Rc<Wal>,
    pub pages: Rc<PageStore>,
    pub table_runs: Vec<Run>,
    /// Room is kept ahead.
    pub keeps: bool,
}

impl std::fmt::Debug for PoolShard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolShard").field("pool", &self.pool).field("config", &self.config).finish()
    }
}

impl PoolShard {
    pub(crate) fn new(
        pool: PoolId,
        config: PoolShardConfig,
        incarnation: u64,
        core: Rc<Core>,
        state: Contents,
        cache: &Rc<Cache>,
        durables: Option<Durables>,
    ) -> Rc<PoolShard> {
        let mut room = Room::default();
        let (wal, pages, table_runs) = match durables {
            Some(Durables { wal, pages, table_runs, keeps }) => {
                room.keeps = keeps;
                room.note_table(&table_runs);
                (Some(wal), Some(pages), table_runs)
            }
            None => (None, None, Vec::new()),
        };
        let damaged = DamagedPages::new(&state.index.lost);
        let shard = Rc::new_cyclic(|me| PoolShard {
            pool,
            config,
            incarnation,
            core,
            state: RefCell::new(state),
            wal,
            pages,
            table_runs: RefCell::new(table_runs),
            room,
            cache: cache.clone(),
            loads: Loads::default(),
            damaged,
            closed: Cell::new(false),
            abandoned: Cell::new(false),
            checkpointing: AtWork::default(),
            progress: Signal::default(),
            reclaiming: AtWork::default(),
            figures: Figures::default(),
            aggregating: AtWork::default(),
            discarding: AtWork::default(),
            sweeping: AtWork::default(),
            effects: RefCell::default(),
            unsettled: Settling::default(),
            fold_notes: FoldNotes::default(),
            me: me.clone(),
        });
        if shard.pages.is_some() {
            cache.add(&shard);
        }
        shard
    }

    pub fn config(&self) -> &PoolShardConfig {
        &self.config
    }

    /// Which making of the pool's part this is, drawn when it was made: one made anew after a loss has
    /// another. Never zero.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub fn pool(&self) -> PoolId {
        self.pool
    }

    pub fn stat(&self) -> PoolShardStat {
        let state = self.state.borrow();
        let space = self.core.space.borrow();
        let used = state.index.scm_bytes + self.core.promised.bytes();
        PoolShardStat {
            scm_bytes: self.core.scm_limit(),
            scm_free_bytes: self.core.scm_limit().saturating_sub(used),
            nvme_bytes: space.bytes() - self.core.loans.bytes(),
            nvme_free_bytes: space.free_bytes(),
            tiers_share_room: self.core.loans.are_possible(),
            object_count: state.index.object_count,
            dkey_count: state.index.dkey_count,
        }
    }

    /// Writes out everything and refuses further use. Ends with a checkpoint, so that the next
    /// start has no log to replay.
    pub async fn close(&self) -> Result<()> {
        let was_closed = self.closed.replace(true);
        let Some(wal) = &self.wal else { return Ok(()) };
        wal.begin_close();
        let mut flushed = wal.written(wal.last()).await;
        self.progress.until(|| self.is_quiet() || self.abandoned.get()).await;
        if flushed.is_ok()
            && !was_closed
            && !self.abandoned.get()
            && let Some(me) = self.me.upgrade()
        {
            let _ = self.checkpointing.begin();
            if let Err(error) = crate::checkpoint::checkpoint(&me).await {
                tracing::warn!(pool = %self.pool, %error, "no checkpoint at the end; the log will be replayed");
                flushed = wal.written(wal.last()).await;
            }
            self.checkpoint_ended();
        }
        wal.close();
        self.core.cache.close();
        flushed
    }

    /// Refuses further use without writing anything out.
    pub(crate) fn abandon(&self) {
        self.closed.set(true);
        self.abandoned.set(true);
        self.core.cache.close();
        if let Some(wal) = &self.wal {
            wal.close();
        }
    }

    /// The table of a checkpoint that is complete lies there. Where the one before lay.
    pub(crate) fn replace_table(&self, runs: Vec<Run>) -> Vec<Run> {
        self.room.note_table(&runs);
        self.table_runs.replace(runs)
    }

    /// Neither a checkpoint runs nor is room being set aside.
    fn is_quiet(&self) -> bool {
        !self.checkpointing.is_on() && !self.room.is_growing()
    }

    /// Ends what is under way on the devices and refuses further use; nothing is kept.
    pub(crate) async fn end(&self) -> Result<()> {
        self.closed.set(true);
        self.abandoned.set(true);
        self.progress.notify();
        if let Some(wal) = &self.wal {
            wal.begin_close();
        }
        self.progress.until(|| self.is_quiet()).await;
        let flushed = match &self.wal {
            Some(wal) => wal.written(wal.last()).await,
            None => Ok(()),
        };
        self.abandon();
        flushed
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Fails when the shard takes no writes.
    pub(crate) fn writable(&self) -> Result<()> {
        if self.closed.get() {
            return Err(Error::new(Code::Closed, "the shard is closed"));
        }
        self.wal.as_ref().map_or(Ok(()), |wal| wal.usable())
    }

    pub(crate) fn log(&self, record: impl FnOnce(&mut Vec<u8>)) -> Lsn {
        match &self.wal {
            Some(wal) => wal.append(record),
            None => Lsn(0),
        }
    }

    pub(crate) fn log_record(&self, record: &RecordDf<'_>) -> Lsn {
        self.log(|out| record::encode_into(record, out))
    }

    /// Runs a change with the shard's own effects, then lets the allocator follow.
    pub(crate) fn change<R>(
        &self,
        run: impl FnOnce(&mut Contents, &mut Effects) -> Result<(Lsn, R)>,
    ) -> Result<(Lsn, R)> {
        let mut effects = self.effects.borrow_mut();
        effects.scm = 0;
        effects.bytes = 0;
        effects.blocks.clear();
        effects.moving = None;
        let (lsn, result) = {
            let mut state = self.state.borrow_mut();
            let (lsn, result) = run(&mut state, &mut effects)?;
            if !state.index.garbage.is_bare() {
                state.index.reclaim(RECLAIM_COUNT, &mut effects);
            }
            (lsn, result)
        };
        if !effects.blocks.is_empty() {
            let mut space = self.core.space.borrow_mut();
            for change in effects.blocks.drain(..) {
                space.follow(change, lsn);
            }
            if space.collects_freed() && !self.closed.get() && self.discarding.begin() {
                self.core.env.spawn(crate::discard::run(self.me.clone()));
            }
            drop(space);
            self.give_back_in_background();
        }
        drop(effects);
        self.reclaim_in_background();
        self.make_room();
        self.return_if_due();
        self.aggregate_if_due();
        Ok((lsn, result))
    }

    fn aggregate_if_due(&self) {
        let due = self.core.aggregate
            && !self.room.is_short()
            && !self.state.borrow().fragments.is_empty();
        if due && !self.closed.get() && self.aggregating.begin() {
            self.core.env.spawn(crate::aggregate::run(self.me.clone()));
        }
    }

    /// Joins small extents of all arrays noted for it now, however young and whatever else goes
    /// on. `Io` when the device fails. For tests, tools and before measurements.
    pub async fn aggregate(&self) -> Result<()> {
        match self.me.upgrade() {
            Some(me) => crate::aggregate::pass(&me, 0, false).await,
            None => Ok(()),
        }
    }

    /// After opening: goes on with what a crash interrupted.
    pub(crate) fn opened(&self) {
        self.touch_ahead();
        self.watch_log();
        self.reclaim_in_background();
        self.make_room();
        self.return_if_due();
        self.aggregate_if_due();
        self.sweep_in_background();
    }

    /// Makes a container known; no effect when it is. Its data have no sums.
    pub fn create_cont(&self, cont: ContId) -> Result<Lsn> {
        self.create_summed_cont(cont, SumPolicy::OFF)
    }

    /// Makes a container known whose data have sums; no effect when it is known.
    pub fn create_summed_cont(&self, cont: ContId, sums: SumPolicy) -> Result<Lsn> {
        self.writable()?;
        let (lsn, ()) = self.change(|state, _| {
            state.create_cont(cont, sums);
            Ok((self.log_record(&RecordDf::CreateCont { cont, sums }), ()))
        })?;
        Ok(lsn)
    }

    /// Removes a container and all it holds; no effect when it is not there. Its space comes
    /// back in the background, in slices.
    pub fn destroy_cont(&self, cont: ContId) -> Result<Lsn> {
        self.writable()?;
        let (lsn, ()) = self.change(|state, _| {
            state.destroy_cont(cont);
            Ok((self.log_record(&RecordDf::DestroyCont { cont }), ()))
        })?;
        Ok(lsn)
    }

    /// Sums over the data of a container; `NonExist` when it is not known.
    pub fn sum_policy(&self, cont: ContId) -> Result<SumPolicy> {
        Ok(self.view(cont)?.cont.sums)
    }

    /// True when the container is known.
    pub fn has_cont(&self, cont: ContId) -> bool {
        self.state.borrow().index.conts.contains_key(&cont)
    }

    pub fn conts(&self) -> Vec<ContId> {
        self.state.borrow().index.conts.keys().copied().collect()
    }

    /// Up to `max` objects that hold something at the snapshot `at` (zero: now), after `after`, in
    /// [`Unit::list_order`]. `after` need not be there. Loads what it looks at. Errors: as
    /// [`PoolShard::view_at`].
    pub async fn list_objects(
        &self,
        cont: ContId,
        at: Epoch,
        after: Option<Unit>,
        max: usize,
    ) -> Result<ObjectList> {
        let (max, at_epoch) = (max.max(1), at);
        self.view_at(cont, at)?;
        let mut units: Vec<Unit> = Vec::new();
        let order = |unit: Unit| (bucket::hash_of(unit), unit);
        let mut from = after.map(order);
        let mut at = Some(from.map_or(0, |(hash, _)| hash));
        while let Some(hash) = at {
            self.ready_bucket(cont, hash).await?;
            let view = self.view_at(cont, at_epoch)?;
            let (bucket, next) = view.cont.bucket_at(hash);
            let inside = |unit: &Unit| next.is_none_or(|next| bucket::hash_of(*unit) < next);
            let large = view.cont.large_from(bucket.prefix).take_while(inside);
            let small = bucket.objects.keys().copied();
            let after =
                |unit: &Unit| from.is_none_or(|from| order(*unit) > from) && view.has_object(*unit);
            let mut found: Vec<Unit> = small.chain(large).filter(after).collect();
            found.sort_unstable_by_key(|&unit| order(unit));
            let room = max - units.len();
            if found.len() > room {
                found.truncate(room);
                units.extend(found);
                return Ok(ObjectList { units, complete: false });
            }
            units.extend(found);
            from = None;
            at = next;
        }
        Ok(ObjectList { units, complete: true })
    }

    /// The greatest epoch applied or decided here.
    pub fn last_epoch(&self) -> Epoch {
        self.state.borrow().last_epoch
    }

    /// Checks sizes, keys and limits of `ops` and reserves all the space their updates need.
    /// `NoSpace` when a tier is full; punches need none and always pass.
    pub fn stage(&self, ops: &[Op<'_>]) -> Result<Payload> {
        self.stage_for(&Summary::of(&[], ops))
    }

    /// The same for operations that a summary is known of.
    pub fn stage_for(&self, batch: &Summary) -> Result<Payload> {
        self.writable()?;
        self.core.activity.note();
        let needs = batch.needs()?;
        self.check_room(batch.takes_room)?;
        Payload::reserve(&self.core, self.state.borrow().index.scm_bytes, needs)
    }

    /// Takes the sums that came with an update's bulk, which has been received into the payload;
    /// before it is written.
    ///
    /// `Inval` when they are not those the container wants; `Csum` when the bulk was damaged on its
    /// way, as far as that is looked at here (see [`SumPolicy::verify`]).
    pub fn take_sums(&self, cont: ContId, sums: &Sums<'_>, payload: &mut Payload) -> Result<()> {
        payload.take_sums(self.view(cont)?.cont.sums, sums)
    }

    /// Evaluates read checks, conditions and kinds of values against the present state.
    ///
    /// `Moved` for a dkey that is to be looked for in another unit; `TxRestart` for a read check; `Exist`, `NonExist`, `NotEmpty` for conditions; `Inval` for a
    /// value of another kind or record size. Nothing is changed.
    pub fn check(&self, cont: ContId, checks: &[ReadCheck<'_>], ops: &[Op<'_>]) -> Result<()> {
        self.view(cont)?.check_each(checks, ops, |_| Ok(()))
    }

    /// Applies the updates and punches among `ops` at `epoch`, with one log record. To be called
    /// right after [`PoolShard::check`], without an await between. Other ops are ignored.
    ///
    /// `Inval` when the payload is not that of the ops or was not written; `Io` once the log has
    /// failed. Nothing is changed then.
    pub fn apply(
        &self,
        cont: ContId,
        epoch: Epoch,
        ops: &[Op<'_>],
        payload: Payload,
        origin: Option<Origin<'_>>,
        orphans: &[OrphanChange],
    ) -> Result<Lsn> {
        self.writable()?;
        self.require_cont(cont)?;
        self.require_open(cont)?;
        self.check_payload(cont, &payload)?;
        let (pieces, sums) = (payload.pieces(), &payload.sums);
        let mut changes: SmallVec<[ChangeDf<'_>; 1]> = SmallVec::new();
        changes::walk(ops, pieces, &mut |change| changes.push(change))?;
        changes.iter().for_each(|change| self.note_change(cont, change));
        payload.hand_over();
        let origin = origin.map(Origin::durable);
        let (lsn, ()) = self.change(|state, effects| {
            for change in &changes {
                state.fragments.note(cont, change);
                state.index.apply(cont, epoch, change, effects);
            }
            let lsn = self.log(|out| {
                let (changes, sums) = (&changes[..], sums_df(pieces, sums));
                let apply = ApplyDf { cont, epoch, changes, origin, orphans, sums };
                record::encode_apply_into(&apply, out);
            });
            state.saw_epoch(epoch);
            state.note(cont, origin, orphans);
            self.fill_sums(pieces, sums);
            Ok((lsn, ()))
        })?;
        self.note_changes(lsn, cont, &changes);
        // A big object that was punched.
        if self.is_unswept(cont) {
            self.sweep_in_background();
        }
        Ok(lsn)
    }

    /// Blocks that pieces fill have these sums from now on; in the step that logs them.
    pub(crate) fn fill_sums(&self, pieces: &[Piece], sums: &BlockSums) {
        let table = &mut self.core.space.borrow_mut().sums;
        sums.each_run(pieces, |first, run| table.set(sums.kind, first, run));
    }

    fn check_payload(&self, cont: ContId, payload: &Payload) -> Result<()> {
        if payload.is_unwritten() {
            return Err(Error::inval(
                "the payload must be written to the device before it is applied",
            ));
        }
        if payload.lacks_sums(self.view(cont)?.cont.sums) {
            return Err(Error::inval(
                "the update's data carry no checksums, but the container's do",
            ));
        }
        Ok(())
    }

    pub(crate) fn require_cont(&self, cont: ContId) -> Result<()> {
        if self.has_cont(cont) {
            return Ok(());
        }
        Err(Error::new(Code::NonExist, format!("container {cont} is not known to this target")))
    }

    /// Waits until a record is on stable storage; at once for `memory` and `relaxed`.
    /// `Io` when the log has failed.
    pub async fn durable(&self, lsn: Lsn) -> Result<()> {
        match &self.wal {
            Some(wal) => wal.durable(lsn).await,
            None => Ok(()),
        }
    }

    /// The same, also for `relaxed`.
    pub async fn written(&self, lsn: Lsn) -> Result<()> {
        match &self.wal {
            Some(wal) => wal.written(lsn).await,
            None => Ok(()),
        }
    }

    /// A look at a container; `NonExist` when it is not known, `Busy` while it is rolled back. No
    /// await while it lives.
    pub fn view(&self, cont: ContId) -> Result<View<'_>> {
        self.view_at(cont, Epoch::ZERO)
    }

    /// A look at a container as its snapshot at epoch `at` shows it (zero: the present).
    ///
    /// `NonExist` when the container is not known or has no such snapshot; `Busy` for the present
    /// of one that is being rolled back.
    pub fn view_at(&self, cont: ContId, at: Epoch) -> Result<View<'_>> {
        if at == Epoch::ZERO {
            self.require_open(cont)?;
        } else if self.versions_of(cont)?.snapshots.binary_search(&at).is_err() {
            return Err(Error::new(
                Code::NonExist,
                format!("container {cont} has no snapshot at epoch {at}"),
            ));
        }
        if self.closed.get() {
            return Err(Error::new(Code::Closed, "the shard is closed"));
        }
        let found = Ref::filter_map(self.state.borrow(), |state| state.index.conts.get(&cont));
        match found {
            Ok(cont) => Ok(View { cont, at, core: &self.core }),
            Err(_) => Err(Error::new(
                Code::NonExist,
                format!("container {cont} is not known to this target"),
            )),
        }
    }

    /// True when a check or op touches what a prepared transaction has locked.
    pub fn conflicts(&self, cont: ContId, checks: &[ReadCheck<'_>], ops: &[Op<'_>]) -> bool {
        let state = self.state.borrow();
        if state.locks.is_empty() {
            return false;
        }
        state.is_held_by(&state.locks, cont, &Summary::of(checks, ops))
    }

    /// The same for what a summary is known of.
    pub fn is_held(&self, cont: ContId, batch: &Summary) -> bool {
        let state = self.state.borrow();
        !state.locks.is_empty() && state.is_held_by(&state.locks, cont, batch)
    }

    /// A prepared transaction that has locked something of what a batch touches: one of those whose decisions have to come first.
    pub fn holder_of(&self, cont: ContId, batch: &Summary) -> Option<TxId> {
        if !self.is_held(cont, batch) {
            return None;
        }
        self.state.borrow().holder_of(cont, batch)
    }

    /// Holds an encoded [`Batch`](wire::obj::Batch) until [`PoolShard::decide`], with its payload, and locks what it
    /// touches. To be called after [`PoolShard::check`] and with no [`PoolShard::conflicts`]. A second
    /// call for the same transaction changes nothing. `RemoveLink` and `PunchUnlessOpen` are not
    /// applied at the decision: give the batch with the punches they amount to.
    pub fn prepare(
        &self,
        tx: TxId,
        coordinator: Unit,
        cont: ContId,
        batch: Vec<u8>,
        payload: Payload,
    ) -> Result<Lsn> {
        self.writable()?;
        self.require_cont(cont)?;
        self.require_open(cont)?;
        let batch = HeldBatch::of_batch(batch)?;
        self.check_payload(cont, &payload)?;
        {
            let ops = &batch.batch().ops;
            let mut changes: SmallVec<[ChangeDf<'_>; 1]> = SmallVec::new();
            changes::walk(ops, payload.pieces(), &mut |change| changes.push(change))?;
            if self.state.borrow().prepared.contains_key(&tx) {
                return Ok(self.last_lsn());
            }
            changes.iter().for_each(|change| self.note_change(cont, change));
        }
        let (pieces, sums) = payload.commit();
        let (lsn, ()) = self.change(|state, _| {
            self.fill_sums(&pieces, &sums);
            let lsn = self.log_record(&RecordDf::Prepare {
                tx,
                coordinator,
                cont,
                wire_version: wire::WIRE_VERSION,
                batch: batch.bytes(),
                pieces: pieces_df(&pieces),
                sums: sums_df(&pieces, &sums),
            });
            state.prepare(tx, coordinator, cont, batch, pieces);
            Ok((lsn, ()))
        })?;
        Ok(lsn)
    }

    /// The newest record.
    pub fn last_lsn(&self) -> Lsn {
        self.wal.as_ref().map_or(Lsn(0), |wal| wal.last())
    }

    /// Applies or drops a held part and unlocks; no effect when nothing is held (any more).
    /// `Inval` for `Pending`.
    pub fn decide(
        &self,
        tx: TxId,
        outcome: TxOutcome,
        origin: Option<Origin<'_>>,
        orphans: &[OrphanChange],
    ) -> Result<Lsn> {
        self.writable()?;
        if outcome == TxOutcome::Pending {
            return Err(Error::inval("a transaction cannot be decided to be pending"));
        }
        if !self.state.borrow().prepared.contains_key(&tx) {
            return Ok(self.last_lsn());
        }
        self.note_folds_of_part(tx);
        let origin = origin.map(Origin::durable);
        let (lsn, ()) = self.change(|state, effects| {
            state.decide(tx, outcome, origin, orphans, effects)?;
            let orphans = orphans.to_vec();
            Ok((self.log_record(&RecordDf::Decide { tx, outcome, origin, orphans }), ()))
        })?;
        self.sweep_in_background();
        Ok(lsn)
    }

    /// Transactions held, with the units whose groups coordinate them.
    pub fn prepared(&self) -> Vec<(TxId, Unit)> {
        self.state.borrow().prepared.iter().map(|(&tx, part)| (tx, part.coordinator)).collect()
    }

    /// True while a part of the transaction waits for its decision.
    pub fn is_prepared(&self, tx: TxId) -> bool {
        self.state.borrow().prepared.contains_key(&tx)
    }

    /// Container and batch of a held transaction.
    pub fn prepared_batch(&self, tx: TxId) -> Option<(ContId, Rc<HeldBatch>)> {
        let state = self.state.borrow();
        state.prepared.get(&tx).map(|part| (part.cont, part.batch.clone()))
    }

    /// A coordinator's commit point: once durable, the transaction is committed.
    pub fn log_decision(
        &self,
        tx: TxId,
        epoch: Epoch,
        participants: &[Unit],
        origin: Option<Origin<'_>>,
    ) -> Result<Lsn> {
        self.writable()?;
        let origin = origin.map(Origin::durable);
        let (lsn, ()) = self.change(|state, _| {
            state.decisions.insert(tx, (epoch, participants.to_vec()));
            state.saw_epoch(epoch);
            if let Some(origin) = origin {
                state.retry.remember(origin);
            }
            let participants = participants.to_vec();
            let record = RecordDf::Decision { tx, epoch, participants, origin };
            Ok((self.log_record(&record), ()))
        })?;
        Ok(lsn)
    }

    /// The decision on a transaction, while it is kept.
    pub fn decision(&self, tx: TxId) -> Option<(Epoch, Vec<Unit>)> {
        self.state.borrow().decisions.get(&tx).cloned()
    }

    /// All decisions kept: transaction, epoch, participants.
    pub fn decisions(&self) -> Vec<(TxId, Epoch, Vec<Unit>)> {
        let state = self.state.borrow();
        state.decisions.iter().map(|(&tx, (epoch, who))| (tx, *epoch, who.clone())).collect()
    }

    /// All participants know the decision.
    pub fn forget_decision(&self, tx: TxId) -> Result<Lsn> {
        self.writable()?;
        let (lsn, ()) = self.change(|state, _| {
            state.decisions.remove(&tx);
            Ok((self.log_record(&RecordDf::ForgetDecision { tx }), ()))
        })?;
        Ok(lsn)
    }

    /// Memory counted for the index now, and counted anew; they are equal. For tests and checkers.
    pub fn scm_audit(&self) -> (u64, u64) {
        let state = self.state.borrow();
        (state.index.scm_bytes, state.index.scm_bytes_recounted())
    }

    /// Bytes free in the data area, as followed and as counted anew; they are equal while no update
    /// is staged. `None` when not all of the index is in memory. For tests and checkers.
    pub fn space_audit(&self) -> Result<Option<(u64, u64)>> {
        let state = self.state.borrow();
        let garbage = &state.index.garbage;
        if state.index.ledger.absent_count > 0 || !garbage.is_bare() || !garbage.pages.is_empty() {
            return Ok(None);
        }
        let space = self.core.space.borrow();
        let mut counted = Space::new(space.bytes());
        state.claim_space(&mut counted)?;
        self.core.loans.claim(&mut counted)?;
        Ok(Some((space.free_bytes(), counted.free_bytes())))
    }

    /// Writes a checkpoint now, however short the log is; returns when the old part of the log is
    /// gone. One that runs already ends first. No effect for `memory`. `Closed` after the end.
    pub async fn checkpoint(&self) -> Result<()> {
        let (Some(_), Some(me)) = (&self.wal, self.me.upgrade()) else { return Ok(()) };
        let may_begin = || self.closed.get() || self.checkpointing.begin();
        self.progress.until(may_begin).await;
        // Whoever opens it again has the log to itself.
        if self.closed.get() {
            return Err(Error::new(Code::Closed, "the shard is closed"));
        }
        let result = crate::checkpoint::checkpoint(&me).await;
        self.checkpoint_ended();
        result
    }
}
