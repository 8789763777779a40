//! The layout of an object: its redundancy groups and their members.
//!
//! Targets draw lots by the object's placement key. Group 0 of a striped object is the best
//! draw, group 1 the next, and so on: a permutation of the targets, so no target serves two
//! groups. Redundant objects take the members of each group from the same order, kept apart by
//! fault domain.

use crate::spare::Changed;
use crate::{domain, draw};
use smallvec::SmallVec;
use std::cmp::Ordering;
use types::{Code, DkeyKind, Error, GroupCount, ObjClass, Oid, Result, Scheme, TargetId, hash};
use wire::map::{DownReason, PlacementSet, PoolMap, TargetInfo, TargetState};

/// The groups of one object; every group has the same number of members. Those of erasure codes are the ones
/// that hold copies of what is not coded ([`types::Scheme::copies`]); [`cell_layout`] tells where the cells are.
///
/// Up to eight members in all cost no allocation while no target is out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// As drawn, group by group.
    placed: SmallVec<[TargetId; 8]>,
    width: usize,
    /// Where other targets have or are to have the places of some.
    changed: Option<Box<Changed>>,
}

/// Places an object.
///
/// Classes with more groups than the targets allow are clamped to what they allow.
///
/// Fails with `Inval` for an id whose class bits mean nothing, `Stale` when the map does not know
/// the object's placement epoch (a newer map will; an id that was not made here never does, so
/// callers retry a bounded number of times), `Redundancy` when there are fewer targets than a
/// group has members, `NonExist` when no target has weight.
pub fn layout(oid: Oid, map: &PoolMap) -> Result<Layout> {
    let class = oid.class()?;
    layout_of(oid, class, class.scheme.copies(), map)
}

/// Where the cells of an object with an erasure code are: member `i` of a group holds cell `i` of each of its
/// stripes, data cells first. The first members are drawn for copies, too, but others may stand in for them there than here.
///
/// Fails as [`layout`], and with `Inval` for other classes.
pub fn cell_layout(oid: Oid, map: &PoolMap) -> Result<Layout> {
    let class = oid.class()?;
    if !matches!(class.scheme, Scheme::ErasureCoded { .. }) {
        return Err(Error::inval(format!("object {oid} of class {class} has no cells")));
    }
    layout_of(oid, class, class.scheme.members(), map)
}

/// A layout with the first `kept` members that are drawn for each group.
fn layout_of(oid: Oid, class: ObjClass, kept: usize, map: &PoolMap) -> Result<Layout> {
    let set = placement_set(oid.placement_epoch(), map)?;
    let width = class.scheme.members();
    if class.groups == GroupCount::Count(1) && width == 1 {
        let target = draw::winner(oid.placement_key(), set).ok_or_else(|| no_weight(map))?;
        let changed = Changed::of(oid, &[target], width, false, map);
        return Ok(Layout { placed: SmallVec::from_slice(&[target]), width, changed });
    }
    let mut lots: SmallVec<[draw::Lot; 32]> = draw::lots(oid.placement_key(), set).collect();
    if lots.is_empty() {
        return Err(no_weight(map));
    }
    if lots.len() < width {
        return Err(Error::new(
            Code::Redundancy,
            format!(
                "object {oid} of class {class} needs {width} targets, pool {} has {}",
                map.pool,
                lots.len()
            ),
        ));
    }
    let groups_max = lots.len() / width;
    let group_count = match class.groups {
        GroupCount::All | GroupCount::AllBeyond { .. } | GroupCount::AllPast { .. } => groups_max,
        GroupCount::Count(count) => groups_max.min(count as usize),
    };
    if width == 1 && group_count < lots.len() {
        lots.select_nth_unstable(group_count - 1);
        lots.truncate(group_count);
    }
    lots.sort_unstable();
    if width == 1 {
        let mut placed: SmallVec<[TargetId; 8]> = lots.iter().map(|lot| lot.target).collect();
        if oid.first_part_bytes().is_some() {
            // All such files go round the targets in the same order, each from another one on: see `beyond`.
            placed[1..].sort_unstable();
        }
        let changed = Changed::of(oid, &placed, width, false, map);
        return Ok(Layout { placed, width, changed });
    }
    let mut placed = SmallVec::with_capacity(kept * group_count);
    let mut drawn = 0;
    domain::spread(&lots, width, group_count, map, |target| {
        if drawn % width < kept {
            placed.push(target);
        }
        drawn += 1;
    })?;
    let are_cells = kept > class.scheme.copies();
    let changed = Changed::of(oid, &placed, kept, are_cells, map);
    Ok(Layout { placed, width: kept, changed })
}

impl Layout {
    /// Number of groups, at least one.
    pub fn group_count(&self) -> usize {
        self.placed.len() / self.width
    }

    /// The group that holds `dkey` of `oid`, which must be the object this layout is of.
    ///
    /// Integer dkeys go round: dkey 1, where arrays begin, is in group 0. Others, and integer
    /// dkeys that are not eight bytes long, go by hash.
    ///
    /// Of progressive arrays this is the group of what lies beyond the first part. Dkey 0, which is no chunk, is in
    /// group 0 with the first part. Of objects that spread it is the group that holds the dkey when they have.
    pub fn group_of(&self, oid: Oid, dkey: &[u8]) -> usize {
        let count = self.group_count() as u64;
        if count == 1 {
            return 0;
        }
        if oid.dkey_kind() == DkeyKind::U64
            && let Ok(raw) = <[u8; 8]>::try_from(dkey)
        {
            let number = u64::from_le_bytes(raw);
            return match oid.first_part_bytes() {
                Some(_) if number == 0 => 0,
                Some(_) => self.beyond((number.wrapping_add(oid.lo) % count) as usize),
                None => (number.wrapping_sub(1) % count) as usize,
            };
        }
        if oid.spreads() {
            return self.group_of_hash(hash::bytes(dkey));
        }
        // Mixed once more, so that the dkeys of one group still spread over all hash values
        // that a target orders them by.
        ((hash::mix(hash::bytes(dkey)) as u128 * count as u128) >> 64) as usize
    }

    /// The group that has the dkeys with a hash, of an object that has spread: the order of hashes is that of groups.
    pub fn group_of_hash(&self, hash: u64) -> usize {
        ((hash as u128 * self.group_count() as u128) >> 64) as usize
    }

    /// The least and the greatest hash of such a group.
    pub fn hashes_of(&self, group: usize) -> (u64, u64) {
        let first = |group: usize| ((group as u128) << 64).div_ceil(self.group_count() as u128);
        (first(group) as u64, (first(group + 1) - 1) as u64)
    }

    /// The group of the `turn`th place of a progressive array's round. Objects with ids one after the other begin at turns
    /// one after the other. Where groups have one member the turns are the targets in order, for all objects
    /// alike, so that many files take the same of each target, whatever their first groups are.
    fn beyond(&self, turn: usize) -> usize {
        if self.width > 1 {
            return turn;
        }
        let first = self.placed[1..].partition_point(|target| *target < self.placed[0]);
        match turn.cmp(&first) {
            Ordering::Less => turn + 1,
            Ordering::Equal => 0,
            Ordering::Greater => turn,
        }
    }

    /// The members of a group, in order.
    ///
    /// Panics when there is no such group.
    pub fn members(&self, group: usize) -> &[TargetId] {
        &self.targets()[group * self.width..][..self.width]
    }

    /// The members that a group has while no target is out. Groups for which this is the same have the same members
    /// whatever happens.
    ///
    /// Panics when there is no such group.
    pub fn placed(&self, group: usize) -> &[TargetId] {
        let placed = self.changed.as_ref().map_or(&self.placed, |changed| &changed.placed);
        &placed[group * self.width..][..self.width]
    }

    /// Who is to be a member of a group and gets what its members have: see [`PoolMap::next`].
    pub fn joiners(&self, group: usize) -> impl Iterator<Item = TargetId> + '_ {
        self.places_to_join(group).map(|(_, target)| target)
    }

    /// The same, with the places that they are to have: of cells.
    pub fn places_to_join(&self, group: usize) -> impl Iterator<Item = (usize, TargetId)> + '_ {
        let all = self.changed.iter().flat_map(|changed| &changed.joiners);
        let of_group = all.filter(move |(of, ..)| *of as usize == group);
        of_group.map(|(_, place, target)| (*place as usize, *target))
    }

    /// All that a group's updates go to while they are there: its members, then those that join it.
    ///
    /// Panics when there is no such group.
    pub fn everyone(&self, group: usize) -> SmallVec<[TargetId; 6]> {
        self.members(group).iter().copied().chain(self.joiners(group)).collect()
    }

    /// Those who do what a group's leader does, itself among them: members and joiners that are not lost.
    ///
    /// Panics when there is no such group.
    pub fn followers<'a>(
        &'a self,
        group: usize,
        map: &'a PoolMap,
    ) -> impl Iterator<Item = TargetId> + 'a {
        let all = self.members(group).iter().copied().chain(self.joiners(group));
        all.filter(|&target| follows(target, map))
    }

    /// All members of all groups, group by group; a target may occur in several groups of a
    /// redundant object.
    pub fn targets(&self) -> &[TargetId] {
        self.changed.as_ref().map_or(&self.placed, |changed| &changed.members)
    }

    /// The first member of group 0: where an object's own facts are kept.
    pub fn home(&self) -> TargetId {
        self.targets()[0]
    }

    /// The leader of a group: its first member that serves requests; `None` when none does. An only member is the one
    /// to ask as long as it is not lost, though it may be away: nobody could answer in its place.
    ///
    /// Panics when there is no such group.
    pub fn leader(&self, group: usize, map: &PoolMap) -> Option<TargetId> {
        if let [only] = *self.members(group) {
            return map.target(only).is_some_and(TargetInfo::holds_its_part).then_some(only);
        }
        let mut members = self.members(group).iter().copied();
        members.clone().find(|&target| is_live(target, map)).or_else(|| {
            // None is whole. Who left last has all: whoever left before left while it was there.
            let of = |target: TargetId| map.target(target).filter(|info| info.holds_its_part());
            let last = members.clone().filter_map(of).map(|info| info.left).max()?;
            members.find(|&target| {
                of(target).is_some_and(|info| info.left == last) && follows(target, map)
            })
        })
    }
}

/// True when what is done in an object's groups is the matter of one target each: they have one member, and had it always.
pub fn is_alone(oid: Oid, map: &PoolMap) -> bool {
    oid.is_alone() && !map.moves_single_members()
}

/// True when a target has all that its groups have done, as far as is known, and takes part in what they do.
pub fn is_live(target: TargetId, map: &PoolMap) -> bool {
    // A draining target serves until it is empty; a new one holds what was placed on it.
    map.target(target).is_some_and(|info| {
        matches!(info.state, TargetState::Up | TargetState::Drain | TargetState::New)
    })
}

/// True when a target does what leaders of its groups do, though it may lack what they did before.
pub fn follows(target: TargetId, map: &PoolMap) -> bool {
    let is_behind = |info: &TargetInfo| info.reason == Some(DownReason::Behind);
    is_live(target, map) || map.target(target).is_some_and(is_behind)
}

/// True when a map knows the placement epoch in which an object was made.
pub fn knows_epoch(oid: Oid, map: &PoolMap) -> bool {
    placement_set(oid.placement_epoch(), map).is_ok()
}

pub(crate) fn placement_set(epoch: u8, map: &PoolMap) -> Result<&PlacementSet> {
    map.placements.iter().rev().find(|set| set.epoch == epoch).ok_or_else(|| {
        Error::new(
            Code::Stale,
            format!(
                "map version {} of pool {} knows no placement epoch {epoch}; get a newer map",
                map.version, map.pool
            ),
        )
    })
}

pub(crate) fn no_weight(map: &PoolMap) -> Error {
    Error::new(
        Code::NonExist,
        format!("pool {} has no target that objects may be placed on", map.pool),
    )
}
