//! How many groups lack members, by how many copies they have left: for whoever asks how near a pool is to losing something.
//!
//! Each target counts the groups that it leads. While all is whole there is nothing to count, and nothing is looked at; else all units
//! are walked when somebody asks, in the background, and who asks gets what was found last.

use crate::target::{Target, TargetPool};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Result, Unit};
use wire::map::PoolMap;
use wire::store::GroupStat;

/// Units looked at in one go.
const LIST_COUNT: usize = 256;
/// What was found is good for so long, while the map stays.
const AGE_MAX: Duration = Duration::from_secs(10);

/// What a target has found of a pool's groups.
#[derive(Default)]
pub(crate) struct Census {
    found: Cell<GroupStat>,
    /// Under which map, and when.
    of: Cell<Option<(u32, Duration)>>,
    is_counting: Cell<bool>,
}

impl Target {
    /// What is known of the groups that this target leads; begins to count them anew where that is old.
    pub(crate) fn groups_lacking(self: &Rc<Self>, ctx: &Rc<TargetPool>) -> GroupStat {
        let census = &ctx.census;
        let Ok(map) = ctx.map() else { return GroupStat::default() };
        if is_whole(&map) {
            return GroupStat { is_counted: true, ..GroupStat::default() };
        }
        let now = self.env.now();
        let is_new = |(version, at): (u32, Duration)| {
            version == map.version && now.saturating_sub(at) < AGE_MAX
        };
        if !census.of.get().is_some_and(is_new) && !census.is_counting.replace(true) {
            let (target, ctx, map) = (self.clone(), ctx.clone(), map.clone());
            self.env.spawn(async move {
                match target.count_groups(&ctx, &map).await {
                    Ok(found) => {
                        ctx.census.found.set(found);
                        ctx.census.of.set(Some((map.version, target.env.now())));
                    }
                    Err(error) => {
                        tracing::debug!("target {}: counting groups: {error}", target.id);
                    }
                }
                ctx.census.is_counting.set(false);
            });
        }
        let is_counted = census.of.get().is_some_and(|(version, _)| version == map.version);
        GroupStat { is_counted, ..census.found.get() }
    }

    async fn count_groups(&self, ctx: &TargetPool, map: &PoolMap) -> Result<GroupStat> {
        let mut found = GroupStat::default();
        for cont in ctx.shard.conts() {
            let mut after = None;
            loop {
                let listed = match ctx.shard.list_units(cont, after, LIST_COUNT).await {
                    // It is being destroyed.
                    Err(error) if error.code == Code::NonExist => break,
                    listed => listed?,
                };
                let (units, is_complete) = listed;
                after = units.last().map(|(unit, _)| *unit);
                for (unit, _) in units {
                    if !unit.is_cell() && self.leads(ctx, unit) {
                        self.count_group(map, unit, &mut found);
                    }
                }
                if is_complete || self.is_draining() {
                    break;
                }
                self.env.yield_now().await;
            }
        }
        Ok(found)
    }

    fn count_group(&self, map: &PoolMap, unit: Unit, found: &mut GroupStat) {
        let (left, wanted) = match crate::cells::cells_of(unit) {
            Ok((_, parity)) => {
                let spare = crate::cell_audit::cells_to_spare(map, unit);
                ((spare + 1).max(0) as usize, parity as usize + 1)
            }
            Err(_) => (self.copies_left(map, unit), self.group_width(map, unit)),
        };
        if left >= wanted {
            return;
        }
        match left {
            0 | 1 => found.one_left += 1,
            2 => found.two_left += 1,
            _ => found.more_left += 1,
        }
    }
}

/// True when no group lacks anybody: targets that others stand in for are in none, as far as there were others.
fn is_whole(map: &PoolMap) -> bool {
    map.targets.iter().all(|target| placement::is_live(target.id, map))
}
