//! The pool map: which targets hold a pool, where they are, in what state.
//!
//! Plain data; what it means for objects is in the `placement` crate.

use serde::{Deserialize, Serialize};
use types::{PoolId, Rank, TargetId};

/// State of an engine or target in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetState {
    /// Serves reads and writes.
    Up,
    /// Lost, or what is there now is not what the pool's part was: its shards are degraded until rebuilt.
    Down,
    /// Lost and rebuilt elsewhere.
    DownOut,
    /// Being emptied on request.
    Drain,
    /// Added; holds nothing of older placement epochs yet.
    New,
}

/// [`TargetInfo::left`] of a target whose engine was started again, of a pool whose updates are on stable storage before they
/// are acknowledged: it may differ from the others in what nobody was told of only.
pub const LEFT_UNSURE: u32 = u32::MAX;

/// Why a target is [`TargetState::Down`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DownReason {
    /// Its engine gives no answer.
    Silent,
    /// Its engine has stopped in order.
    Stopped,
    /// It answers again and holds what it held, but has missed what others did meanwhile. It is up when it has
    /// caught up; what has no copy elsewhere nobody could change, and it serves that.
    Behind,
    /// It does not hold what it held: its store was wiped or exchanged.
    Lost,
    /// Its engine was excluded by an administrator.
    Excluded,
}

/// An engine, and how to reach it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EngineInfo {
    /// Its number in the system.
    pub rank: Rank,
    /// TCP address, `HOST:PORT`.
    pub tcp: String,
    /// Path of its Unix socket, for callers on the same host.
    pub unix: String,
    /// The host (boot id), and by device and inode the directory of the Unix socket there, to know whether that is usable (`env::is_here`). Engines of before say the host alone.
    pub host: String,
    /// Fault domain path from the root down, without the engine: `["rack1", "node7"]`.
    pub domain: Vec<String>,
}

/// A target of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Its number in the system.
    pub id: TargetId,
    /// The engine that owns it.
    pub rank: Rank,
    /// State in this pool.
    pub state: TargetState,
    /// Version of the map in which it got this state; 0: it has had it from the start.
    pub since: u32,
    /// Why it is down; `None` when it is not.
    pub reason: Option<DownReason>,
    /// Version of the map with which it ceased to have all that its groups have done; 0 while it has. Of those who have
    /// not, who has the greatest one left last, and has all that was done until then.
    /// [`LEFT_UNSURE`]: it has all that anybody was told of.
    pub left: u32,
    /// Which making of its part of the pool is meant (`vos::PoolShard::incarnation`); another one, an empty
    /// one made after a loss say, does not serve under this map. Zero: not known.
    pub incarnation: u64,
}

/// The targets and weights that objects of one placement epoch are placed over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlacementSet {
    /// The epoch's number, as in object ids.
    pub epoch: u8,
    /// Targets with their weights; a weight of 65,536 is the norm.
    pub weights: Vec<(TargetId, u32)>,
}

/// A target that other targets stand in for: in each group that it was placed in and that another one can be found for,
/// that one has its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutTarget {
    pub target: TargetId,
    /// Those with the same number went at the same time, those with a smaller one before. A group all of whose members went at
    /// the same time keeps them: nobody else has what it held.
    pub round: u32,
    /// The placement epoch among whose targets others are chosen.
    pub epoch: u8,
    /// It was drained: others get what it has from itself, also of groups of which nobody else has anything.
    pub is_drained: bool,
}

/// A target that had no room to stand in for those that went in a round: the next one does. When it is one of those itself,
/// it is drained, and keeps no place in its groups as long as there is anybody else: one nearer to the other members
/// stands in for it, where nobody is as far from them as it was.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct PassedSpare {
    /// See [`OutTarget::round`].
    pub round: u32,
    pub target: TargetId,
}

/// The map of one pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolMap {
    pub pool: PoolId,
    /// Grows by one with every change.
    pub version: u32,
    /// Engines that hold targets of the pool, by rank.
    pub engines: Vec<EngineInfo>,
    /// Targets, by id.
    pub targets: Vec<TargetInfo>,
    /// Placement epochs, oldest first; the last is used for new objects.
    pub placements: Vec<PlacementSet>,
    /// Targets that others stand in for, ascending by round and id.
    pub outs: Vec<OutTarget>,
    /// What `outs` is to become. Who is a member of a group then, and is not now, *joins* it: it does what members do,
    /// gets what they have, and does not lead. `None` when nothing moves.
    pub next: Option<Vec<OutTarget>>,
    /// Objects of placement epochs before this one are placed as if targets added up to it had been there: each of these has taken over
    /// its share of them.
    pub balanced: u8,
    /// What `balanced` becomes together with `outs`.
    pub next_balanced: u8,
    /// Who stands in for nobody of a round of `outs`, for want of room or because it is drained; ascending.
    pub passed: Vec<PassedSpare>,
    /// The same of `next`: what `passed` becomes together with it.
    pub next_passed: Vec<PassedSpare>,
}

impl TargetInfo {
    /// True when what it holds is there, though it may not answer at the moment.
    pub fn holds_its_part(&self) -> bool {
        match self.state {
            TargetState::Up | TargetState::Drain | TargetState::New => true,
            TargetState::Down => {
                matches!(
                    self.reason,
                    Some(
                        DownReason::Silent
                            | DownReason::Stopped
                            | DownReason::Behind
                            | DownReason::Excluded
                    )
                )
            }
            TargetState::DownOut => false,
        }
    }
}

impl PoolMap {
    /// Whom the engine of this rank asks for newer maps in a round: by chance, as it were, but the same in each run of a simulation.
    /// `None` when there is nobody else, or the engine is not in the map.
    pub fn asked_in_round(&self, round: u64, rank: Rank) -> Option<&EngineInfo> {
        let own = self.engines.binary_search_by_key(&rank, |engine| engine.rank).ok()?;
        let others = (self.engines.len() as u64).checked_sub(1).filter(|count| *count > 0)?;
        let step = 1 + types::hash::mix2(round, rank.0.into()) % others;
        self.engines.get((own + step as usize) % self.engines.len())
    }

    /// The engine that owns `target`.
    pub fn engine_of(&self, target: TargetId) -> Option<&EngineInfo> {
        let at = self.targets.binary_search_by_key(&target, |info| info.id).ok()?;
        let rank = self.targets[at].rank;
        let at = self.engines.binary_search_by_key(&rank, |engine| engine.rank).ok()?;
        self.engines.get(at)
    }

    /// A target of the pool.
    pub fn target(&self, target: TargetId) -> Option<&TargetInfo> {
        let at = self.targets.binary_search_by_key(&target, |info| info.id).ok()?;
        self.targets.get(at)
    }

    /// True when groups of one member may have, or are to have, another one than was drawn for them.
    pub fn moves_single_members(&self) -> bool {
        let is_balanced = self.balanced.max(self.next_balanced) > 0;
        is_balanced || self.outs.iter().chain(self.next.iter().flatten()).any(|out| out.is_drained)
    }

    /// Targets that had no room to stand in for others, or have none for those that are about to go.
    pub fn passed_for_want_of_room(&self) -> impl Iterator<Item = TargetId> + '_ {
        let next = self.next.as_deref().unwrap_or_default();
        let of = |passed: &'_ [PassedSpare], outs: &'_ [OutTarget]| {
            let is_out = |id: TargetId| outs.iter().any(|out| out.target == id);
            let others = passed.iter().filter(move |passed| !is_out(passed.target));
            others.map(|passed| passed.target).collect::<Vec<_>>()
        };
        of(&self.passed, &self.outs).into_iter().chain(of(&self.next_passed, next))
    }

    /// The map that this one becomes when what moves has moved, as far as members of groups go.
    pub fn after_moves(&self) -> Option<PoolMap> {
        let next = self.next.clone()?;
        Some(PoolMap {
            outs: next,
            passed: self.next_passed.clone(),
            balanced: self.next_balanced,
            next: None,
            next_passed: Vec::new(),
            ..self.clone()
        })
    }

    /// The placement epoch for new objects.
    pub fn placement_epoch(&self) -> u8 {
        self.placements.last().map_or(0, |set| set.epoch)
    }
}
