//! Cells that clients put and read themselves ([`wire::cell`]).
//!
//! A client that writes whole stripes has the members, and those who come to be some, keep their cells, by batches on the units of these, and then has the leader
//! of the group name them, by [`UpdateValue::Coded`]: what a fold does, in the same order, without copies before. The leader
//! names cells only while all members are there under the very map by which the client found them, and soon after its own cell was kept:
//! those that nothing names are dropped when they are older ([`crate::cell_audit`]).
//!
//! A client that reads is told which cells have its data, if all are in cells, and asks who has them.

use crate::cells::{StripeAt, cells_of};
use crate::target::{Target, TargetPool};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Error, Result, TargetId, Unit};
use vos::Segments;
use wire::Header;
use wire::cell::{NamedPart, cell_akey, cell_unit, is_coined};
use wire::footprint::{Brings, Changes, Reads};
use wire::header::FLAG_CELLS;
use wire::map::PoolMap;
use wire::obj::{Batch, Cond, Op, UpdateIod, UpdateValue};
use wire::walk::walk;

/// The leader's own cell of a stripe that it is to name is no older. The writer has had all cells kept within as long a time, so that none of them is
/// old enough to be dropped.
const NAMING_TIME_MAX: Duration = Duration::from_secs(20);

impl Target {
    /// Checks that a batch does with cells only what clients may.
    ///
    /// Errors: `Inval`; `NoSpace` when they are to be kept here from some time on, and its last room is for others.
    pub(crate) fn check_cells(&self, ctx: &TargetPool, batch: &Batch<'_>) -> Result<()> {
        let map = ctx.map()?;
        for op in walk(&batch.ops) {
            let unit = op.unit();
            if !unit.is_cell() {
                continue;
            }
            let is_array = |iod: &UpdateIod<'_>| {
                matches!(iod.value, UpdateValue::Array { record_bytes: 1, .. })
            };
            let at = op.footprint();
            let is_possible = match (at.brings, at.changes, at.reads) {
                (Brings::Values { iods, .. }, Changes::Dkey(_), Reads::Nothing) => {
                    iods.iter().all(is_array)
                }
                (Brings::Nothing, Changes::Nothing, Reads::Dkey(_)) => true,
                _ => false,
            };
            if !is_possible || unit.object.cells().is_none() {
                return Err(Error::inval("cells are kept and read, nothing else"));
            }
            if op.is_write() && self.is_too_full_for_cells(ctx, &map, unit) {
                return Err(crate::catch_up::no_room());
            }
        }
        Ok(())
    }

    /// Gets into memory what tells of the own cells of stripes that a batch names.
    pub(crate) async fn ready_to_name(&self, ctx: &TargetPool, batch: &Batch<'_>) -> Result<()> {
        let map = ctx.map()?;
        for (of, _) in stripes_named(batch) {
            let Some(cell) = cell_of(self.id, &map, of.unit) else { continue };
            let name = cell_akey(of.akey, &of.stripe);
            let akeys = vec![serde_bytes::Bytes::new(&name)];
            let (unit, cond) = (cell_unit(of.unit, cell), Cond::NONE);
            let op = Op::PunchAkeys { unit, dkey: of.dkey, cond, akeys };
            // Rare and large.
            Box::pin(ctx.shard.ready(batch.cont, &[], &[op])).await?;
        }
        Ok(())
    }

    /// In the step in which a batch takes effect: that the stripes which it names are kept, as far as this target can tell.
    ///
    /// Errors: `Busy` when the writer has to write otherwise, `Inval` for what is no stripe of the object.
    pub(crate) fn may_name(&self, ctx: &TargetPool, batch: &Batch<'_>) -> Result<()> {
        let map = ctx.map()?;
        let now = self.tick(ctx);
        for (of, value) in stripes_named(batch) {
            let UpdateValue::Coded { record_bytes, count, map_version, .. } = *value else {
                continue;
            };
            let (data, _) = cells_of(of.unit)?;
            let bytes = count.checked_mul(record_bytes.into());
            let is_stripe = !of.unit.is_cell()
                && is_coined(of.stripe.version)
                && of.stripe.cell_bytes == of.unit.object.cell_bytes()
                && of.stripe.cell_bytes.is_multiple_of(record_bytes.max(1))
                && bytes == Some(data as u64 * of.stripe.cell_bytes as u64)
                && of.stripe.first.is_multiple_of(count);
            if !is_stripe {
                return Err(Error::inval(format!("no stripe of object {}", of.unit.object)));
            }
            let layout = placement::cell_layout(of.unit.object, &map)?;
            let group = of.unit.group as usize;
            if group >= layout.group_count() {
                return Err(Error::inval("a stripe of a group that is not there"));
            }
            let members = layout.members(group);
            let are_there = map_version == map.version
                && members.iter().all(|member| placement::is_live(*member, &map));
            if !are_there {
                return Err(Error::new(Code::Busy, "a member that is to have a cell is away"));
            }
            let kept_at = cell_of(self.id, &map, of.unit).and_then(|cell| {
                let name = cell_akey(of.akey, &of.stripe);
                ctx.shard.epoch_if_here(batch.cont, cell_unit(of.unit, cell), of.dkey, &name)
            });
            let is_new = kept_at.is_some_and(|kept_at| {
                now.0.saturating_sub(kept_at.0) < NAMING_TIME_MAX.as_nanos() as u64
            });
            if !is_new {
                return Err(Error::new(Code::Busy, "cells of a stripe are not there, or old"));
            }
        }
        Ok(())
    }

    /// After a batch has taken effect: cells that it kept are to be looked after.
    pub(crate) fn note_cells(self: &Rc<Self>, ctx: &Rc<TargetPool>, batch: &Batch<'_>) {
        let mut kept =
            walk(&batch.ops).filter(|op| op.is_write() && op.unit().is_cell()).peekable();
        if kept.peek().is_none() {
            return;
        }
        for op in kept {
            ctx.cell_audit.forget(batch.cont, op.unit());
        }
        self.audit_cells(ctx);
    }

    /// True when this target comes to have cells of a unit, and has none yet.
    pub(crate) fn joins_cells(&self, map: &PoolMap, unit: Unit) -> bool {
        let is_members = cell_of(self.id, map, unit) == Some(unit.cell as usize - 1);
        !is_members && !self.is_strange_cell(map, unit)
    }
}

/// What an asker who reads cells itself is told instead of the data.
pub(crate) fn names_for(header: &Header, segments: &Segments) -> Option<Vec<NamedPart>> {
    (header.flags & FLAG_CELLS != 0).then(|| segments.all_coded()).flatten()
}

/// Which cell of a unit's stripes a member has.
fn cell_of(target: TargetId, map: &PoolMap, unit: Unit) -> Option<usize> {
    let layout = placement::cell_layout(unit.object, map).ok()?;
    let group = unit.group as usize;
    let is_there = group < layout.group_count();
    is_there.then(|| layout.members(group).iter().position(|member| *member == target)).flatten()
}

/// The stripes that a batch names, with the values that do.
pub(crate) fn stripes_named<'b>(
    batch: &'b Batch<'b>,
) -> impl Iterator<Item = (StripeAt<'b>, &'b UpdateValue<'b>)> {
    let cont = batch.cont;
    walk(&batch.ops).flat_map(move |op| {
        let at = op.footprint();
        let unit = at.unit;
        let (dkey, iods) = match at.brings {
            Brings::Values { dkey, iods } => (dkey, iods),
            Brings::Nothing | Brings::Records { .. } => (&b""[..], &[][..]),
        };
        iods.iter().flat_map(move |iod| {
            let stripes = match &iod.value {
                UpdateValue::Coded { stripes, .. } => &stripes[..],
                _ => &[],
            };
            let at = move |stripe| StripeAt { cont, unit, dkey, akey: iod.akey, stripe };
            stripes.iter().map(move |stripe| (at(*stripe), &iod.value))
        })
    })
}
