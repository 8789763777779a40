//! A pool's part on a target: its shard in the store, and what the target knows of the pool beside it.

use crate::admission::Admission;
use crate::alike::Alike;
use crate::append::Turns;
use crate::cell_audit::CellAudit;
use crate::census::Census;
use crate::clock::Clock;
use crate::commit::Transactions;
use crate::condition::Condition;
use crate::damage::Mending;
use crate::failed_device::WritesSeen;
use crate::figures::OpCounts;
use crate::first_parts::FirstParts;
use crate::fold::Folding;
use crate::follow::Followed;
use crate::inherited::Inherited;
use crate::joining::Joining;
use crate::known_map::KnownMap;
use crate::last_asked::LastAsked;
use crate::lead::Lead;
use crate::left::Left;
use crate::lost_pages::LosingPages;
use crate::member_reads::MemberReads;
use crate::nameless::Nameless;
use crate::newer_map::NewerMap;
use crate::old_parts::OldParts;
use crate::openers::Awaited;
use crate::opens::Handles;
use crate::scrub::Scrubber;
use crate::spread::Spreading;
use crate::streams::Streams;
use crate::suspects::Suspects;
use crate::takeover::Takeover;
use crate::unnamed::UnnamedStripes;
use crate::versions::Rollbacks;
use crate::waiters::Waiters;
use env::Env;
use std::cell::Cell;
use std::rc::Rc;
use types::{Code, Durability, Error, Oid, Result, Unit};
use vos::PoolShard;
use wire::map::PoolMap;
use wire::obj::TxId;
use wire::stale::NewerMap as Newer;

/// A pool's shard with what the target knows about the pool.
pub(crate) struct TargetPool {
    pub shard: Rc<PoolShard>,
    map: KnownMap,
    pub newer_map: NewerMap,
    /// Whether what it leads may be shown.
    pub lead: Lead,
    pub clock: Clock,
    /// What is open.
    pub handles: Rc<Handles>,
    /// Objects that are being appended to.
    pub appends: Turns,
    pub rollbacks: Rollbacks,
    pub transactions: Transactions,
    /// Those who wait for a prepared transaction to be decided.
    pub undecided: Waiters<TxId>,
    pub admission: Admission,
    /// Operations that are over.
    pub ops: OpCounts,
    /// What was seen of it last.
    pub condition: Condition,
    pub writes_seen: WritesSeen,
    pub scrubber: Scrubber,
    /// Damaged data that are being put right.
    pub mending: Mending,
    /// What it leads, on its way to others.
    pub streams: Streams,
    /// What it follows.
    pub followed: Followed,
    pub member_reads: MemberReads,
    /// What leaders that are lost have left.
    pub suspects: Suspects,
    pub takeover: Takeover,
    pub alike: Alike,
    pub old_parts: OldParts,
    /// What clients have left by maps that are not here yet.
    pub left: Left,
    /// While it catches up.
    pub joining: Joining,
    pub nameless: Nameless,
    /// Groups that lack members.
    pub census: Census,
    /// What clients have used of what this target leads.
    pub last_asked: LastAsked,
    /// Who may still tell what it holds open.
    pub awaited: Awaited,
    /// Of which groups others may know who has something open.
    pub inherited: Inherited,
    /// It was opened again, and the map does not say so yet: of groups of several members it leads none, for it may have or lack
    /// what nobody was told of, or what a pool that does not wait for its log has promised.
    is_unsure: Cell<bool>,
    /// Version of the map that it had followed in what was kept of it when it was opened, where the end of its log may be lost;
    /// zero: not known, or the map has counted it as behind since.
    kept_map_version: Cell<u32>,
    pub spreading: Spreading,
    pub first_parts: FirstParts,
    pub folding: Folding,
    /// Cells that nothing names are looked for.
    pub cell_audit: CellAudit,
    /// Stripes that have lost their names.
    pub unnamed: UnnamedStripes,
    /// Damaged pages of the index are given up.
    pub losing_pages: LosingPages,
}

impl TargetPool {
    pub fn new(env: &Env, shard: Rc<PoolShard>) -> TargetPool {
        TargetPool {
            clock: Clock::after(shard.last_epoch()),
            shard,
            map: KnownMap::default(),
            newer_map: NewerMap::default(),
            lead: Lead::default(),
            handles: Rc::default(),
            appends: Turns::default(),
            rollbacks: Rollbacks::default(),
            transactions: Transactions::default(),
            undecided: Waiters::default(),
            admission: Admission::new(env),
            ops: OpCounts::default(),
            condition: Condition::default(),
            writes_seen: WritesSeen::default(),
            scrubber: Scrubber::default(),
            mending: Mending::default(),
            streams: Streams::default(),
            followed: Followed::default(),
            member_reads: MemberReads::default(),
            suspects: Suspects::default(),
            takeover: Takeover::default(),
            alike: Alike::default(),
            old_parts: OldParts::default(),
            left: Left::default(),
            joining: Joining::default(),
            nameless: Nameless::default(),
            census: Census::default(),
            last_asked: LastAsked::default(),
            awaited: Awaited::default(),
            inherited: Inherited::default(),
            is_unsure: Cell::new(false),
            kept_map_version: Cell::new(0),
            spreading: Spreading::default(),
            first_parts: FirstParts::default(),
            folding: Folding::default(),
            cell_audit: CellAudit::default(),
            unnamed: UnnamedStripes::default(),
            losing_pages: LosingPages::default(),
        }
    }

    /// A part that was here before: see `is_unsure`.
    pub fn opened_again(env: &Env, shard: Rc<PoolShard>) -> TargetPool {
        let ctx = TargetPool::new(env, shard);
        // What did not last may be all that had copies.
        if ctx.shard.holds_copies() || ctx.shard.config().durability != Durability::Wal {
            ctx.be_unsure();
            ctx.joining.begin(&ctx.shard);
        }
        if ctx.shard.config().durability == Durability::Relaxed {
            ctx.kept_map_version.set(ctx.shard.kept_map_version());
        }
        ctx
    }

    /// The same with what is open in it.
    pub fn with_handles(self, handles: &Rc<Handles>) -> TargetPool {
        TargetPool { handles: handles.clone(), ..self }
    }

    /// True when what is done in an object's groups is the matter of one target each: see [`placement::is_alone`].
    pub fn is_alone(&self, object: Oid) -> bool {
        object.is_alone() && !self.map.moves_single_members()
    }

    /// True when what is done in a unit is the matter of one target: its object is alone, or it is a cell.
    pub fn is_of_one(&self, unit: Unit) -> bool {
        unit.is_cell() || self.is_alone(unit.object)
    }

    /// See `is_unsure`.
    pub fn is_unsure(&self) -> bool {
        self.is_unsure.get()
    }

    /// It may have, or lack, what nobody was told of.
    pub fn be_unsure(&self) {
        self.is_unsure.set(true);
    }

    /// The map says what this target is worth, and so do all who lead or follow by it.
    pub fn be_sure(&self) {
        self.is_unsure.set(false);
    }

    /// See `kept_map_version`.
    pub fn kept_map_version(&self) -> u32 {
        self.kept_map_version.get()
    }

    /// The map says when it left, or it has all that others had.
    pub fn forget_kept_map(&self) {
        self.kept_map_version.set(0);
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
        self.map.get().ok_or_else(|| {
            Error::new(Code::Busy, "the engine has not been told the pool map yet; try again")
        })
    }

    pub fn map_version(&self) -> u32 {
        self.map.version()
    }

    /// The newest map, if there is one.
    pub fn known_map(&self) -> Option<Rc<PoolMap>> {
        self.map.get()
    }

    /// Takes a newer map; that before it. Who has waited for it goes on.
    pub fn take_map(&self, map: Rc<PoolMap>) -> Option<Rc<PoolMap>> {
        if self.shard.config().durability == Durability::Relaxed {
            self.shard.note_map(map.version);
        }
        let before = self.map.take(map);
        self.newer_map.wake();
        self.lead.wake();
        before
    }

    /// The way from the map of a version to the newest, for who has asked by the other one.
    pub fn maps_since(&self, version: u32) -> Option<Newer> {
        self.map.since(version)
    }
}
