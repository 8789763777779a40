//! One pool's part in one target: what it consists of, how it changes and is looked at.
//!
//! Its operations are in files of their own further up, each with a piece of `impl PoolShard`. All of them change it by
//! [`PoolShard::change`], an index change and a log record in one synchronous step, and read it by [`PoolShard::view`].

use std::cell::{Cell, Ref, RefCell};
use std::rc::{Rc, Weak};

use env::Signal;
use futures_util::future::LocalBoxFuture;
use types::{Code, ContId, Durability, Epoch, Error, PoolId, Result};
use wire::versions::ContStage;

use crate::Lsn;
use crate::at_work::AtWork;
use crate::blocks::Run;
use crate::contents::Contents;
use crate::damaged_pages::DamagedPages;
use crate::data_area::Core;
use crate::end_of_log::EndOfLog;
use crate::figures::Figures;
use crate::fold_notes::FoldNotes;
use crate::index::versions::Versions;
use crate::index::{Container, Effects};
use crate::index_memory::{Cache, Loads};
use crate::log::wal::Wal;
use crate::pages::PageStore;
use crate::record::{self, RecordDf};
use crate::room::Room;
use crate::sums::SumPolicy;
use crate::unnamed::UnnamedNotes;
use crate::unsettled::Settling;
use crate::view::View;

/// Dkeys that are gone for good, released in one go.
pub(crate) const RECLAIM_COUNT: usize = 2000;

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
    pub(crate) cache: Rc<Cache<PoolShard>>,
    pub(crate) loads: Loads,
    pub(crate) damaged: DamagedPages,
    pub(crate) end_of_log: EndOfLog,
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
    pub(crate) beside: Beside,
    /// What reads must not show yet.
    pub(crate) unsettled: Settling,
    /// Where something may be folded.
    pub(crate) fold_notes: FoldNotes,
    /// Where stripes have lost their names.
    pub(crate) unnamed: UnnamedNotes,
    pub(crate) me: Weak<PoolShard>,
}

/// What goes on beside the operations of a shard, as whoever makes it says ([`crate::upkeep`]): it is all further up, and uses the shard.
#[derive(Clone, Copy)]
pub(crate) struct Beside {
    /// After each change: true when blocks came back. Never waits.
    pub after_change: fn(&PoolShard, bool),
    /// A checkpoint, to its end.
    pub checkpoint: fn(Rc<PoolShard>) -> LocalBoxFuture<'static, ()>,
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
        (cache, beside): (&Rc<Cache<PoolShard>>, Beside),
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
            end_of_log: EndOfLog::default(),
            abandoned: Cell::new(false),
            checkpointing: AtWork::default(),
            progress: Signal::default(),
            reclaiming: AtWork::default(),
            figures: Figures::default(),
            aggregating: AtWork::default(),
            discarding: AtWork::default(),
            sweeping: AtWork::default(),
            effects: RefCell::default(),
            beside,
            unsettled: Settling::default(),
            fold_notes: FoldNotes::default(),
            unnamed: UnnamedNotes::default(),
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

    /// The table of a checkpoint that is complete lies there. Where the one before lay.
    pub(crate) fn replace_table(&self, runs: Vec<Run>) -> Vec<Run> {
        self.room.note_table(&runs);
        self.table_runs.replace(runs)
    }

    /// Refuses further use; true when it did already.
    pub(crate) fn refuse(&self) -> bool {
        self.closed.replace(true)
    }

    /// The same, and nothing more is written out.
    pub(crate) fn give_up(&self) {
        self.closed.set(true);
        self.abandoned.set(true);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Fails once the shard is closed.
    pub(crate) fn still_open(&self) -> Result<()> {
        match self.closed.get() {
            true => Err(Error::new(Code::Closed, "the shard is closed")),
            false => Ok(()),
        }
    }

    /// Fails when the shard takes no writes.
    pub(crate) fn writable(&self) -> Result<()> {
        self.still_open()?;
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

    /// Runs a change with the shard's own effects, then lets the allocator follow, and what goes on beside.
    pub(crate) fn change<R>(
        &self,
        run: impl FnOnce(&mut Contents, &mut Effects) -> Result<(Lsn, R)>,
    ) -> Result<(Lsn, R)> {
        let mut effects = self.effects.borrow_mut();
        effects.scm = 0;
        effects.bytes = 0;
        effects.blocks.clear();
        (effects.moving, effects.is_move, effects.is_record) = (None, false, false);
        effects.unnames = false;
        let (lsn, result) = {
            let mut state = self.state.borrow_mut();
            let (lsn, result) = run(&mut state, &mut effects)?;
            if !state.index.garbage.is_bare() {
                state.index.reclaim(RECLAIM_COUNT, &mut effects);
            }
            (lsn, result)
        };
        let freed = !effects.blocks.is_empty();
        if freed {
            let mut space = self.core.space.borrow_mut();
            for change in effects.blocks.drain(..) {
                space.follow(change, lsn);
            }
        }
        drop(effects);
        (self.beside.after_change)(self, freed);
        Ok((lsn, result))
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

    /// The greatest epoch applied or decided here.
    pub fn last_epoch(&self) -> Epoch {
        self.state.borrow().last_epoch
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

    /// A container, whatever its stage; `NonExist` when it is not known.
    pub(crate) fn look(&self, cont: ContId) -> Result<Ref<'_, Container>> {
        let found = Ref::filter_map(self.state.borrow(), |state| state.index.conts.get(&cont));
        found.map_err(|_| {
            Error::new(Code::NonExist, format!("container {cont} is not known to this target"))
        })
    }

    pub(crate) fn versions_of(&self, cont: ContId) -> Result<Rc<Versions>> {
        self.require_cont(cont)?;
        let state = self.state.borrow();
        Ok(state.index.conts.get(&cont).map(|found| found.versions.clone()).unwrap_or_default())
    }

    /// `Busy` while a container is frozen or rolled back: nothing of it is read, and nobody begins a change.
    pub fn require_open(&self, cont: ContId) -> Result<()> {
        self.require_stage(cont, |stage| stage == ContStage::Open)
    }

    /// `Busy` while a container is rolled back. What was begun before it was frozen may come until then: it is in a log of
    /// another member already.
    pub(crate) fn require_not_rolled(&self, cont: ContId) -> Result<()> {
        self.require_stage(cont, |stage| stage.rolls_to().is_none())
    }

    fn require_stage(&self, cont: ContId, is_right: impl Fn(ContStage) -> bool) -> Result<()> {
        let state = self.state.borrow();
        match state.index.conts.get(&cont) {
            Some(found) if !is_right(found.versions.stage) => Err(Error::new(
                Code::Busy,
                format!("container {cont} is being rolled back; try again when that is done"),
            )),
            _ => Ok(()),
        }
    }

    /// A look at a container; `NonExist` when it is not known, `Busy` while it is rolled back. No
    /// await while it lives.
    pub fn view(&self, cont: ContId) -> Result<View<'_>> {
        self.view_at(cont, Epoch::ZERO)
    }

    /// A look at a container as its snapshot at epoch `at` shows it (zero: the present).
    ///
    /// `NonExist` when the container is not known, `BadHandle` when it has no such snapshot; `Busy` for the present
    /// of one that is being rolled back.
    pub fn view_at(&self, cont: ContId, at: Epoch) -> Result<View<'_>> {
        if at == Epoch::ZERO {
            self.require_open(cont)?;
        } else if self.versions_of(cont)?.snapshots.binary_search(&at).is_err() {
            return Err(Error::new(
                // `NonExist` is what a name without an entry answers: who reads a snapshot that is gone would see an empty tree.
                Code::BadHandle,
                format!("container {cont} has no snapshot at epoch {at} any more"),
            ));
        }
        self.still_open()?;
        let found = Ref::filter_map(self.state.borrow(), |state| state.index.conts.get(&cont));
        match found {
            Ok(cont) => Ok(View { cont, at, core: &self.core }),
            Err(_) => Err(Error::new(
                Code::NonExist,
                format!("container {cont} is not known to this target"),
            )),
        }
    }

    /// The newest record.
    pub fn last_lsn(&self) -> Lsn {
        self.wal.as_ref().map_or(Lsn(0), |wal| wal.last())
    }
}
