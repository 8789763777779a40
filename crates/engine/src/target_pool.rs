//! A pool's part on a target: its shard in the store, and what the target knows of the pool beside it.

use crate::admission::Admission;
use crate::catch_up::Joining;
use crate::cell_audit::Audited;
use crate::census::Census;
use crate::condition::Condition;
use crate::damage::Mending;
use crate::figures::OpCounts;
use crate::follow::Followed;
use crate::last_asked::LastAsked;
use crate::map_changes::MapChanges;
use crate::newer_map::NewerMap;
use crate::scrub::Scrubber;
use crate::streams::Streams;
use crate::suspects::Suspects;
use crate::takeover::Takeover;
use crate::waiters::Waiters;
use env::Env;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use types::map::HashSet;
use types::{ClientId, Code, Durability, Error, Hlc, Oid, Result, Unit};
use vos::PoolShard;
use wire::map::PoolMap;
use wire::obj::TxId;

/// A pool's shard with what the target knows about the pool.
pub(crate) struct TargetPool {
    pub shard: Rc<PoolShard>,
    pub map: RefCell<Option<Rc<PoolMap>>>,
    pub map_changes: MapChanges,
    pub newer_map: NewerMap,
    pub clock: RefCell<Hlc>,
    /// Those who wait for a prepared transaction to be decided.
    pub undecided: Waiters<TxId>,
    pub admission: Admission,
    /// Operations that are over.
    pub ops: OpCounts,
    /// What was seen of it last.
    pub condition: Condition,
    pub scrubber: Scrubber,
    /// Damaged data that are being put right.
    pub mending: Mending,
    /// What it leads, on its way to others.
    pub streams: Streams,
    /// What it follows.
    pub followed: Followed,
    /// What leaders that are lost have left.
    pub suspects: Suspects,
    pub takeover: Takeover,
    /// While it catches up.
    pub left: crate::left::Left,
    pub joining: Joining,
    /// Groups that lack members.
    pub census: Census,
    /// What clients have used of what this target leads.
    pub last_asked: LastAsked,
    /// Clients of the engine before this one that may still tell what they hold open.
    pub awaited: RefCell<HashSet<ClientId>>,
    /// It was opened again, and the map does not say so yet: of groups of several members it leads none, for it may have or lack
    /// what nobody was told of, or what a pool that does not wait for its log has promised.
    pub is_unsure: Cell<bool>,
    /// The same of targets that are lost, until this time by the target's clock.
    pub inherits_until: Cell<Duration>,
    pub spreading: crate::spread::Spreading,
    pub first_parts: crate::first_parts::FirstParts,
    /// Stripes are being folded, and looked for.
    pub is_folding: Cell<bool>,
    pub is_looking_for_folds: Cell<bool>,
    /// Cells that nothing names are looked for, and where that was done.
    pub is_auditing_cells: Cell<bool>,
    pub audited: RefCell<Audited>,
    /// Damaged pages of the index are being given up, and whether the control service is to hear of some.
    pub is_losing_pages: Cell<bool>,
    pub is_to_tell_of_pages: Cell<bool>,
    /// Blocks that only such pages named are to be found, and somebody is at it.
    pub has_unnamed_blocks: Cell<bool>,
    pub is_counting_blocks: Cell<bool>,
}

impl TargetPool {
    pub fn new(env: &Env, shard: Rc<PoolShard>) -> TargetPool {
        let mut clock = Hlc::default();
        clock.observe(shard.last_epoch());
        TargetPool {
            shard,
            map: RefCell::new(None),
            map_changes: MapChanges::default(),
            newer_map: NewerMap::default(),
            clock: RefCell::new(clock),
            undecided: Waiters::default(),
            admission: Admission::new(env),
            ops: OpCounts::default(),
            condition: Condition::default(),
            scrubber: Scrubber::default(),
            mending: Mending::default(),
            streams: Streams::default(),
            followed: Followed::default(),
            suspects: Suspects::default(),
            takeover: Takeover::default(),
            left: Default::default(),
            joining: Joining::default(),
            census: Census::default(),
            last_asked: LastAsked::default(),
            awaited: RefCell::new(HashSet::default()),
            is_unsure: Cell::new(false),
            inherits_until: Cell::new(Duration::ZERO),
            spreading: Default::default(),
            first_parts: Default::default(),
            is_folding: Cell::new(false),
            is_looking_for_folds: Cell::new(false),
            is_auditing_cells: Cell::new(false),
            audited: RefCell::default(),
            is_losing_pages: Cell::new(false),
            is_to_tell_of_pages: Cell::new(false),
            has_unnamed_blocks: Cell::new(false),
            is_counting_blocks: Cell::new(false),
        }
    }

    /// A part that was here before: see `is_unsure`.
    pub fn opened_again(env: &Env, shard: Rc<PoolShard>) -> TargetPool {
        let ctx = TargetPool::new(env, shard);
        // What did not last may be all that had copies.
        if ctx.shard.holds_copies() || ctx.shard.config().durability != Durability::Wal {
            ctx.is_unsure.set(true);
            ctx.joining.begin(&ctx.shard);
        }
        ctx
    }

    /// True when what is done in an object's groups is the matter of one target each: see [`placement::is_alone`].
    pub fn is_alone(&self, object: Oid) -> bool {
        let may_move = || self.map.borrow().as_ref().is_some_and(|map| map.moves_single_members());
        object.is_alone() && !may_move()
    }

    /// True when what is done in a unit is the matter of one target: its object is alone, or it is a cell.
    pub fn is_of_one(&self, unit: Unit) -> bool {
        unit.is_cell() || self.is_alone(unit.object)
    }

    /// True when this target may have been deprived of an object's groups and does not know it yet.
    pub fn is_unsure_of(&self, object: Oid) -> bool {
        self.is_unsure.get() && (!object.is_alone() || self.shard.moves_singles())
    }

    /// True when updates need no device.
    pub fn is_memory(&self) -> bool {
        self.shard.config().durability == Durability::Memory
    }

    pub fn map(&self) -> Result<Rc<PoolMap>> {
        self.map.borrow().clone().ok_or_else(|| {
            Error::new(Code::Busy, "the engine has not been told the pool map yet; try again")
        })
    }

    pub fn map_version(&self) -> u32 {
        self.map.borrow().as_ref().map_or(0, |map| map.version)
    }
}
