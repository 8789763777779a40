//! Groups of several members: who leads one, and who follows.
//!
//! The leader is the first live member under the pool map. It checks, plans and applies, and has the others do
//! likewise ([`crate::streams`]). Groups of one member have nothing to do with any of this.

use crate::target::{Target, TargetPool};
use placement::Layout;
use smallvec::SmallVec;
use types::{Code, Error, Oid, Result, TargetId, Unit};
use vos::{Named, Summary};
use wire::map::PoolMap;
use wire::obj::{Batch, ReadCheck};

/// The members and joiners of a group that this target leads, but itself, that are not lost. One that is behind follows, too.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// A unit of the group.
    pub of: Unit,
    pub followers: SmallVec<[TargetId; 5]>,
}

/// A layout in which the unit's group is that of the unit's object, if that has the group.
fn layout_with(unit: Unit, map: &PoolMap) -> Result<Layout> {
    let layout = placement::layout(unit.placed_as(), map)?;
    if (unit.group as usize) < layout.group_count() {
        return Ok(layout);
    }
    Err(Error::inval(format!("object {} has no group {}", unit.object, unit.group)))
}

/// Who leads a unit's group by a map; nobody where the map knows nothing of it, or no member serves.
pub(crate) fn leader_by(unit: Unit, map: &PoolMap) -> Option<TargetId> {
    layout_with(unit, map).ok()?.leader(unit.group as usize, map)
}

impl Target {
    /// The target that leads a unit's group now.
    ///
    /// Errors: `Unreach` when no member serves.
    pub(crate) fn leader_of(&self, ctx: &TargetPool, unit: Unit) -> Result<TargetId> {
        let map = ctx.map()?;
        let leader = layout_with(unit, &map)?.leader(unit.group as usize, &map);
        let is_unsure = ctx.is_unsure_of(unit.object);
        leader.filter(|leader| *leader != self.id || !is_unsure).ok_or_else(|| {
            Error::new(Code::Unreach, format!("no member of the group of unit {unit} serves"))
        })
    }

    /// The group of a unit that this target leads; `None` when that has one member.
    ///
    /// Errors: `Stale` when another target leads it.
    pub(crate) fn led_group(&self, ctx: &TargetPool, unit: Unit) -> Result<Option<Group>> {
        if ctx.is_unsure_of(unit.object) {
            return Err(Error::bare(Code::Stale));
        }
        if ctx.is_alone(unit.object) {
            return Ok(None);
        }
        let map = ctx.map()?;
        let layout = layout_with(unit, &map)?;
        let group = unit.group as usize;
        if layout.leader(group, &map) != Some(self.id) {
            return Err(Error::bare(Code::Stale));
        }
        let others = layout.followers(group, &map).filter(|target| *target != self.id);
        Ok(Some(Group { of: unit, followers: others.collect() }))
    }

    /// The group that a batch changes; `None` when it has one member, or nothing is changed.
    ///
    /// Errors: `Stale` when another target leads one of the groups that it reads or changes, or it changes several: their
    /// members differ, so that this is a transaction. `Csum` when what it is about was in a damaged page, and others are away.
    pub(crate) fn group_of_batch(
        &self,
        ctx: &TargetPool,
        batch: &Batch<'_>,
        summary: &Summary,
    ) -> Result<Option<Group>> {
        let group = self.group_of_units(ctx, &batch.checks, &summary.units)?;
        self.require_pages(ctx, batch)?;
        Ok(group)
    }

    /// The same for some checks and the units that operations name.
    pub(crate) fn group_of_units(
        &self,
        ctx: &TargetPool,
        checks: &[ReadCheck<'_>],
        units: &[Named],
    ) -> Result<Option<Group>> {
        let of_ops = units.iter().map(|named| (named.unit, named.writes));
        let mut units = of_ops.chain(checks.iter().map(|check| (check.unit, false)));
        if units.clone().any(|(unit, _)| ctx.is_unsure_of(unit.object)) {
            return Err(Error::bare(Code::Stale));
        }
        if units.clone().all(|(unit, _)| !unit.is_cell() && ctx.is_alone(unit.object)) {
            return Ok(None);
        }
        let map = ctx.map()?;
        if units.clone().any(|(unit, _)| unit.is_cell() && self.is_strange_cell(&map, unit)) {
            return Err(Error::bare(Code::Stale));
        }
        // Members of what is changed; none: a unit that is alone.
        let mut changed: Option<(Unit, SmallVec<[TargetId; 6]>)> = None;
        let mut last: Option<(Oid, Layout)> = None;
        units.try_for_each(|(unit, writes)| {
            let mut members = SmallVec::new();
            if !ctx.is_of_one(unit) {
                let layout = match last.take() {
                    Some((of, layout)) if of == unit.object => layout,
                    _ => placement::layout(unit.object, &map)?,
                };
                let group = unit.group as usize;
                if group >= layout.group_count() || layout.leader(group, &map) != Some(self.id) {
                    return Err(Error::bare(Code::Stale));
                }
                members = layout.everyone(group);
                last = Some((unit.object, layout));
            }
            if writes && changed.get_or_insert_with(|| (unit, members.clone())).1 != members {
                // They may have been one for a caller with another map.
                let text = "what is changed in several groups is a transaction";
                return Err(Error::new(Code::Stale, text));
            }
            Ok(())
        })?;
        let others = changed.filter(|(_, members)| !members.is_empty()).map(|(of, members)| {
            let follows =
                |target: &TargetId| *target != self.id && placement::follows(*target, &map);
            Group { of, followers: members.into_iter().filter(follows).collect() }
        });
        Ok(others)
    }

    /// A member of a group that is nearly full. One that joins it must not stop others from writing.
    pub(crate) fn short_member(&self, ctx: &TargetPool, group: &Group) -> Option<TargetId> {
        let mut short = group
            .followers
            .iter()
            .copied()
            .filter(|member| ctx.streams.is_short(*member))
            .peekable();
        short.peek()?;
        let map = ctx.map().ok()?;
        let layout = layout_with(group.of, &map).ok()?;
        let members = layout.members(group.of.group as usize);
        short.find(|member| members.contains(member))
    }

    /// True when two units have the same members and joiners in the same order.
    pub(crate) fn are_together(&self, ctx: &TargetPool, a: Unit, b: Unit) -> bool {
        let Ok(map) = ctx.map() else { return false };
        let (Ok(of_a), Ok(of_b)) = (layout_with(a, &map), layout_with(b, &map)) else {
            return false;
        };
        of_a.everyone(a.group as usize) == of_b.everyone(b.group as usize)
    }

    /// True when this target lacks, or may lack, what the other members of a unit's group have: it was away, or joins the group.
    pub(crate) fn lacks(&self, map: &PoolMap, unit: Unit) -> bool {
        let Ok(layout) = layout_with(unit, map) else { return false };
        let group = unit.group as usize;
        layout.joiners(group).any(|joiner| joiner == self.id)
            || (!placement::is_live(self.id, map) && layout.members(group).contains(&self.id))
    }

    /// True when this target gets now what it lacks of a unit's group: one that is behind has its own places first, and joins others when
    /// it is whole.
    pub(crate) fn catches_up_with(&self, map: &PoolMap, unit: Unit) -> bool {
        match placement::is_live(self.id, map) {
            true => self.joins(map, unit),
            false => self.is_member(map, unit),
        }
    }

    /// True when another target may have led groups of this one while it was away, or leads some: whoever is not whole leads only where nobody is, and of
    /// those who left last leads. One that left before this target did has nothing to tell it, and may be waiting for others itself.
    pub(crate) fn may_be_led_by(&self, map: &PoolMap, other: TargetId) -> bool {
        let left = |target| map.target(target).map_or(0, |info| info.left);
        placement::follows(other, map)
            && (placement::is_live(self.id, map)
                || placement::is_live(other, map)
                || left(other) >= left(self.id))
    }

    /// The other members of a unit's group that have all of it.
    pub(crate) fn whole_members(&self, map: &PoolMap, unit: Unit) -> SmallVec<[TargetId; 5]> {
        let Ok(layout) = layout_with(unit, map) else { return SmallVec::new() };
        let is_whole = |target: &TargetId| *target != self.id && placement::is_live(*target, map);
        layout.members(unit.group as usize).iter().copied().filter(is_whole).collect()
    }

    /// The other members of a unit's group that may lack some of it, and are there.
    pub(crate) fn members_behind(&self, map: &PoolMap, unit: Unit) -> SmallVec<[TargetId; 5]> {
        let Ok(layout) = layout_with(unit, map) else { return SmallVec::new() };
        let is_behind = |target: &TargetId| {
            *target != self.id
                && placement::follows(*target, map)
                && !placement::is_live(*target, map)
        };
        layout.members(unit.group as usize).iter().copied().filter(is_behind).collect()
    }

    /// How many members of a unit's group have all of it.
    pub(crate) fn copies_left(&self, map: &PoolMap, unit: Unit) -> usize {
        let Ok(layout) = layout_with(unit, map) else { return 0 };
        let members = layout.members(unit.group as usize);
        members.iter().filter(|target| placement::is_live(**target, map)).count()
    }

    /// How many members have all of a unit of which others lack something; `None`: nobody does, so that it only moves.
    pub(crate) fn copies_left_of_lacking(&self, map: &PoolMap, unit: Unit) -> Option<usize> {
        left_of_lacking(self.copies_left(map, unit), self.group_width(map, unit))
    }

    /// True when of a unit that others lack one member has all that there is.
    pub(crate) fn is_last_copy(&self, ctx: &TargetPool, unit: Unit) -> bool {
        let left = ctx.map().ok().and_then(|map| self.copies_left_of_lacking(&map, unit));
        left.is_some_and(|left| left <= 1)
    }

    /// How many members a unit's group is to have.
    pub(crate) fn group_width(&self, map: &PoolMap, unit: Unit) -> usize {
        layout_with(unit, map).map_or(0, |layout| layout.members(unit.group as usize).len())
    }

    /// True when this target is about to be a member of a unit's group, and is none.
    pub(crate) fn joins(&self, map: &PoolMap, unit: Unit) -> bool {
        let layout = layout_with(unit, map);
        layout.is_ok_and(|all| all.joiners(unit.group as usize).any(|joiner| joiner == self.id))
    }

    /// True when this target is a member of a unit's group.
    pub(crate) fn is_member(&self, map: &PoolMap, unit: Unit) -> bool {
        let layout = layout_with(unit, map);
        layout.is_ok_and(|all| all.members(unit.group as usize).contains(&self.id))
    }

    /// True when this target is no member of a unit's group, and does not join it.
    pub(crate) fn is_strange(&self, map: &PoolMap, unit: Unit) -> bool {
        let layout = layout_with(unit, map);
        layout.is_ok_and(|all| !all.everyone(unit.group as usize).contains(&self.id))
    }
}

/// True when a target is a member of a unit's group that lacks nothing of it; who is to join the group is none yet.
pub(crate) fn has_all_of(member: TargetId, map: &PoolMap, unit: Unit) -> bool {
    placement::is_live(member, map)
        && layout_with(unit, map)
            .is_ok_and(|all| all.members(unit.group as usize).contains(&member))
}

/// See [`Target::copies_left_of_lacking`].
fn left_of_lacking(left: usize, width: usize) -> Option<usize> {
    (left < width).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lives once only moves, and does not go before what has one copy left of several: it used to.
    #[test]
    fn a_group_lacks_something_when_a_member_is_not_whole() {
        assert_eq!(left_of_lacking(1, 1), None);
        assert_eq!(left_of_lacking(3, 3), None);
        assert_eq!(left_of_lacking(1, 2), Some(1));
        assert_eq!(left_of_lacking(0, 1), Some(0));
    }
}
