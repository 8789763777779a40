//! Groups of several members: who leads one, and who follows.
//!
//! The leader is the first live member under the pool map. It checks, plans and applies, and has the others do
//! likewise ([`crate::streams`]). Groups of one member have nothing to do with any of this.

use crate::target::{Target, TargetPool};
use placement::Layout;
use smallvec::SmallVec;
use types::{Code, Error, Oid, Result, TargetId, Unit};
use wire::map::PoolMap;
use wire::obj::{Batch, Op, ReadCheck};

/// The members of a group that this target leads, but itself, that are not lost. One that is behind follows, too.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// A unit of the group.
    pub of: Unit,
    pub followers: SmallVec<[TargetId; 5]>,
}

/// The layout of a unit's object, if that has the unit's group.
fn layout_with(unit: Unit, map: &PoolMap) -> Result<Layout> {
    let layout = placement::layout(unit.object, map)?;
    if (unit.group as usize) < layout.group_count() {
        return Ok(layout);
    }
    Err(Error::inval(format!("object {} has no group {}", unit.object, unit.group)))
}

impl Target {
    /// The target that leads a unit's group now.
    ///
    /// Errors: `Unreach` when no member serves.
    pub(crate) fn leader_of(&self, ctx: &TargetPool, unit: Unit) -> Result<TargetId> {
        let map = ctx.map()?;
        let leader = layout_with(unit, &map)?.leader(unit.group as usize, &map);
        let is_unsure = !unit.object.is_alone() && ctx.is_unsure.get();
        leader.filter(|leader| *leader != self.id || !is_unsure).ok_or_else(|| {
            Error::new(Code::Unreach, format!("no member of the group of unit {unit} serves"))
        })
    }

    /// The group of a unit that this target leads; `None` when that has one member.
    ///
    /// Errors: `Stale` when another target leads it.
    pub(crate) fn led_group(&self, ctx: &TargetPool, unit: Unit) -> Result<Option<Group>> {
        if unit.object.is_alone() {
            return Ok(None);
        }
        let map = ctx.map()?;
        let layout = layout_with(unit, &map)?;
        let group = unit.group as usize;
        if layout.leader(group, &map) != Some(self.id) || ctx.is_unsure.get() {
            return Err(Error::bare(Code::Stale));
        }
        let others = layout.followers(group, &map).filter(|target| *target != self.id);
        Ok(Some(Group { of: unit, followers: others.collect() }))
    }

    /// The group that a batch changes; `None` when it has one member, or nothing is changed.
    ///
    /// Errors: `Stale` when another target leads one of the groups that it reads or changes; `Inval` when it changes
    /// several: their members differ, so that this is a transaction.
    pub(crate) fn group_of_batch(
        &self,
        ctx: &TargetPool,
        batch: &Batch<'_>,
    ) -> Result<Option<Group>> {
        self.group_of_ops(ctx, &batch.checks, &batch.ops)
    }

    /// The same for some checks and ops.
    pub(crate) fn group_of_ops(
        &self,
        ctx: &TargetPool,
        checks: &[ReadCheck<'_>],
        ops: &[Op<'_>],
    ) -> Result<Option<Group>> {
        let of_ops = ops.iter().map(|op| (op.unit(), op.is_write()));
        let mut units = of_ops.chain(checks.iter().map(|check| (check.unit, false)));
        if units.clone().all(|(unit, _)| unit.object.is_alone()) {
            return Ok(None);
        }
        if ctx.is_unsure.get() {
            return Err(Error::bare(Code::Stale));
        }
        let map = ctx.map()?;
        // Members of what is changed; none: a unit that is alone.
        let mut changed: Option<(Unit, SmallVec<[TargetId; 6]>)> = None;
        let mut last: Option<(Oid, Layout)> = None;
        units.try_for_each(|(unit, writes)| {
            let mut members = SmallVec::new();
            if !unit.object.is_alone() {
                let layout = match last.take() {
                    Some((of, layout)) if of == unit.object => layout,
                    _ => placement::layout(unit.object, &map)?,
                };
                let group = unit.group as usize;
                if group >= layout.group_count() || layout.leader(group, &map) != Some(self.id) {
                    return Err(Error::bare(Code::Stale));
                }
                members.extend_from_slice(layout.members(group));
                last = Some((unit.object, layout));
            }
            if writes && changed.get_or_insert_with(|| (unit, members.clone())).1 != members {
                return Err(Error::inval("what is changed in several groups is a transaction"));
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

    /// True when two units have the same members in the same order.
    pub(crate) fn are_together(&self, ctx: &TargetPool, a: Unit, b: Unit) -> bool {
        let Ok(map) = ctx.map() else { return false };
        let (Ok(of_a), Ok(of_b)) = (layout_with(a, &map), layout_with(b, &map)) else {
            return false;
        };
        of_a.members(a.group as usize) == of_b.members(b.group as usize)
    }
}
