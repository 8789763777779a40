//! Having the cells that a target is to have, and no others.
//!
//! Who leads a group knows the stripes that arrays name. A target that was away, or is to stand in for another one, puts together the cells
//! that it lacks from those of the others, before it counts as a member. And every target does so from time to time, and drops cells of
//! stripes that nothing names any more: what somebody wrote who never came to name it, and what was overwritten or removed, as far as
//! word of that got lost ([`crate::unnamed`]).
//!
//! A cell is dropped only when it is older than any fold that may still name it takes, and its leader, under the newest
//! map that this target knows, does not name it. Who keeps a cell for somebody with a newer map takes that first.

use crate::cells::{StripeAt, cells_of};
use crate::give_way;
use crate::mend::TURNS_TIME_MAX;
use crate::target::{Target, TargetPool};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Epoch, Error, Result, TargetId, Unit};
use wire::cell::{Stripe, StripeList, cell_unit, of_cell_akey};
use wire::map::PoolMap;
use wire::member::{ListedUnit, MemberAsk, UnitList};
use wire::obj::{Cond, Op};

/// Units or dkeys asked for at once.
const LIST_COUNT: u32 = 1024;
/// Pause between two looks for cells that nothing names.
const PAUSE: Duration = Duration::from_secs(30);
/// Younger cells may still be named.
pub(crate) const AGE_MIN: Duration = Duration::from_secs(60);

/// Units whose cells were looked at: with what epoch of theirs, under which map. `None`: they are being looked at. Whoever keeps
/// a cell takes its unit out: folds change what is named, and no epoch.
type Audited = BTreeMap<(ContId, Unit), Option<(Epoch, u32)>>;

/// The audit of a pool's cells.
#[derive(Default)]
pub(crate) struct CellAudit {
    is_running: Cell<bool>,
    audited: RefCell<Audited>,
}

impl CellAudit {
    /// A cell of a unit is kept: it is to be looked at again.
    pub fn forget(&self, cont: ContId, unit: Unit) {
        self.audited.borrow_mut().remove(&(cont, unit));
    }

    /// True when a unit was looked at in this state.
    fn has_seen(&self, cont: ContId, unit: Unit, state: (Epoch, u32)) -> bool {
        self.audited.borrow().get(&(cont, unit)) == Some(&Some(state))
    }

    fn begin(&self, cont: ContId, unit: Unit) {
        self.audited.borrow_mut().insert((cont, unit), None);
    }

    /// All of a unit was looked at, unless it was forgotten meanwhile.
    fn end(&self, cont: ContId, unit: Unit, state: (Epoch, u32)) {
        if let Some(looked) = self.audited.borrow_mut().get_mut(&(cont, unit)) {
            *looked = Some(state);
        }
    }
}

/// Stripes by dkey and akey.
pub(crate) type Named = BTreeMap<Vec<u8>, BTreeSet<(Vec<u8>, Stripe)>>;

impl Target {
    /// The cell of a unit that this target has, or is to have.
    fn own_cells(&self, map: &PoolMap, unit: Unit) -> Vec<usize> {
        own_cells(self.id, map, unit)
    }

    /// The cells of a unit that this target puts together while it catches up: as [`Target::catches_up_with`].
    fn cells_to_mend(&self, map: &PoolMap, unit: Unit) -> Vec<usize> {
        let mut own = self.own_cells(map, unit);
        if !placement::is_live(self.id, map) {
            own.retain(|cell| {
                let layout = placement::cell_layout(unit.object, map);
                layout
                    .is_ok_and(|all| all.members(unit.group as usize).get(*cell) == Some(&self.id))
            });
        }
        own
    }

    /// True when this target is not to have this cell.
    pub(crate) fn is_strange_cell(&self, map: &PoolMap, unit: Unit) -> bool {
        let of = Unit { cell: 0, ..unit };
        !self.own_cells(map, of).contains(&(unit.cell as usize - 1))
    }

    /// True when this target has, or is to have, cells of a unit.
    pub(crate) fn has_cells(&self, map: &PoolMap, unit: Unit) -> bool {
        !self.own_cells(map, unit).is_empty()
    }

    /// For another target: units with cells that it has or is to have.
    pub(crate) async fn cell_units_for(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        member: TargetId,
        after: Option<Unit>,
        count_max: usize,
    ) -> Result<UnitList> {
        if !ctx.shard.holds_copies() {
            return Ok(UnitList::default());
        }
        let map = ctx.map()?;
        let (found, complete) = ctx.shard.list_units(cont, after, count_max).await?;
        let next = if complete { None } else { found.last().map(|(unit, _)| *unit) };
        let is_meant = |unit: &Unit| {
            !unit.is_cell()
                && unit.object.cells().is_some()
                && self.leads(ctx, *unit)
                && !own_cells(member, &map, *unit).is_empty()
        };
        let meant = found.into_iter().filter(|(unit, _)| is_meant(unit));
        let listed = |(unit, newest)| ctx.last_asked.listed(cont, unit, newest);
        Ok(UnitList { units: meant.map(listed).collect(), next })
    }

    /// Stripes of some dkeys of a unit.
    pub(crate) async fn stripes_of(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        unit: Unit,
        after: Option<&[u8]>,
        count_max: usize,
    ) -> Result<StripeList> {
        let (keys, complete) = ctx.shard.list_keys(cont, unit, after, count_max).await?;
        let mut list = StripeList::default();
        for (key, _) in &keys {
            list.stripes.extend(ctx.shard.stripes_of(cont, unit, key).await?);
        }
        if !complete {
            list.next = keys.last().map(|(key, _)| key.clone().into());
        }
        Ok(list)
    }

    /// Ends well when this target led under a map when it had done all that it has: its followers have heard it.
    pub(crate) async fn still_leads(&self, ctx: &TargetPool, map_version: u32) -> Result<()> {
        // Also in a pool that acknowledges before it writes: others drop what is not named here, and a crash may not bring its name back.
        ctx.shard.written(ctx.shard.last_lsn()).await?;
        ctx.streams.wait_for(ctx.streams.last()).await?;
        match ctx.map_version() == map_version {
            true => Ok(()),
            false => Err(Error::bare(Code::Stale)),
        }
    }

    /// Puts together all cells that this target is to have and lacks; how many.
    pub(crate) async fn mend_cells(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &Rc<PoolMap>,
    ) -> Result<u64> {
        let is_move = give_way::lacks_nothing(map);
        let mut all = Vec::new();
        // Stripes get cells while all members are whole: who was still whole when a leader left has those that it names.
        let may_tell = |leader: TargetId| self.may_tell(ctx, map, leader);
        for cont in ctx.shard.conts() {
            let units = self.units_with_cells_of(ctx, map, cont, &may_tell).await?.into_iter();
            all.extend(units.map(|(unit, (leader, listed))| {
                let used_s = if is_move { listed.used_s() } else { 0 };
                (cells_to_spare(map, unit), used_s, cont, unit, leader)
            }));
        }
        // What the next loss would take goes first; if nothing is lost, what nobody has used for the longest time.
        all.sort_unstable();
        let mut mended = 0;
        for (_, _, cont, unit, leader) in all {
            let named = self.stripes_at(ctx, map, leader, cont, unit).await?;
            for cell in self.cells_to_mend(map, unit) {
                mended += self.mend_cells_of(ctx, map, (cont, unit), cell, &named).await?;
            }
        }
        Ok(mended)
    }

    async fn mend_cells_of(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        (cont, unit): (ContId, Unit),
        cell: usize,
        named: &Named,
    ) -> Result<u64> {
        let too_many_lost = are_too_many_lost(map, unit);
        let mut mended = 0;
        for (dkey, stripes) in named {
            let here = ctx.shard.cells_under(cont, cell_unit(unit, cell), dkey).await?;
            let here: BTreeSet<Vec<u8>> = here.into_iter().map(|(akey, _)| akey).collect();
            for (akey, stripe) in stripes {
                if here.contains(&wire::cell::cell_akey(akey, stripe)) {
                    continue;
                }
                let of = StripeAt { cont, unit, dkey, akey, stripe: *stripe };
                // Where it only moves, whoever had it up to now has it whole: one is read, and not as many as make a stripe.
                let data = self.read_part(ctx, of, cell, (0, stripe.cell_bytes)).await;
                let data = match data {
                    // Named no more.
                    Err(error) if error.code == Code::Stale => continue,
                    // It is there again when one of them is: nobody else is to wait for that.
                    Err(error) if too_many_lost => {
                        tracing::warn!("target {}: cell {cell} of {unit}: {error}", self.id);
                        continue;
                    }
                    data => data?,
                };
                let of = StripeAt { unit: cell_unit(unit, cell), ..of };
                let joins = map.next.is_some() && placement::is_live(self.id, map);
                if joins && ctx.shard.stat().is_too_full_to_join() {
                    return Err(crate::catch_up::no_room());
                }
                let is_lost = !give_way::lacks_nothing(map);
                let until = self.env.now() + TURNS_TIME_MAX;
                let mut turn = self.wait_for_turn(ctx, is_lost, until).await;
                self.keep_cell(ctx, of, &data, None).await?;
                ctx.joining.count(|stat| stat.bytes_mended += data.len() as u64);
                if let Some(turn) = &mut turn {
                    turn.note(data.len());
                }
                mended += 1;
            }
        }
        Ok(mended)
    }

    /// Units of which this target has or is to have cells, with who leads them, and what that target tells of them.
    pub(crate) async fn units_with_cells(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &Rc<PoolMap>,
        cont: ContId,
    ) -> Result<BTreeMap<Unit, (TargetId, ListedUnit)>> {
        self.units_with_cells_of(ctx, map, cont, &|_| true).await
    }

    /// The same of those leaders that are meant.
    async fn units_with_cells_of(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &Rc<PoolMap>,
        cont: ContId,
        is_meant: &dyn Fn(TargetId) -> bool,
    ) -> Result<BTreeMap<Unit, (TargetId, ListedUnit)>> {
        let mut all = BTreeMap::new();
        let leaders = map.targets.iter().map(|info| info.id);
        let leads = |target: &TargetId| placement::follows(*target, map) && is_meant(*target);
        for leader in leaders.filter(leads) {
            let mut after = None;
            loop {
                let page = match leader == self.id {
                    true => {
                        self.cell_units_for(ctx, cont, leader, after, LIST_COUNT as usize).await
                    }
                    false => {
                        let ask = MemberAsk::CellUnits { cont, after, count_max: LIST_COUNT };
                        self.ask_member(ctx, map, leader, ask).await
                    }
                };
                let page: UnitList = match page {
                    // It is being destroyed.
                    Err(error) if error.code == Code::NonExist => UnitList::default(),
                    page => page?,
                };
                all.extend(page.units.into_iter().map(|listed| (listed.unit, (leader, listed))));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// All stripes of a unit, as its leader, who may be this target, names them.
    async fn stripes_at(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &Rc<PoolMap>,
        leader: TargetId,
        cont: ContId,
        unit: Unit,
    ) -> Result<Named> {
        let mut all = Named::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let from = after.as_deref();
            let page: StripeList = match leader == self.id {
                true => {
                    let page = self.stripes_of(ctx, cont, unit, from, LIST_COUNT as usize).await?;
                    self.still_leads(ctx, map.version).await?;
                    page
                }
                false => {
                    let ask = MemberAsk::Stripes { cont, unit, after: from, count_max: LIST_COUNT };
                    self.ask_member(ctx, map, leader, ask).await?
                }
            };
            for named in page.stripes {
                let of_dkey = all.entry(named.dkey.into_vec()).or_default();
                of_dkey.insert((named.akey.into_vec(), named.stripe));
            }
            after = page.next.map(serde_bytes::ByteBuf::into_vec);
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Begins to look at the cells that are here from time to time, if that has not begun.
    pub(crate) fn audit_cells(self: &Rc<Self>, ctx: &Rc<TargetPool>) {
        if ctx.cell_audit.is_running.replace(true) {
            return;
        }
        let (target, of) = (Rc::downgrade(self), Rc::downgrade(ctx));
        let env = self.env.clone();
        self.env.spawn(async move {
            loop {
                // timer: cells are looked at in intervals.
                env.sleep(PAUSE).await;
                let (Some(target), Some(ctx)) = (target.upgrade(), of.upgrade()) else { return };
                if target.is_done_with(&ctx) {
                    return;
                }
                target.tell_of_unnamed_soon(&ctx);
                match target.audit_once(&ctx).await {
                    Ok((0, 0)) => {}
                    Ok((dropped, mended)) => {
                        let id = target.id;
                        tracing::info!("target {id}: {dropped} old cells dropped, {mended} mended");
                    }
                    Err(error) => {
                        tracing::debug!("target {}: looking for old cells: {error}", target.id);
                    }
                }
            }
        });
    }

    /// Drops cells of stripes that nothing names, and puts together those that are missing; how many.
    async fn audit_once(self: &Rc<Self>, ctx: &Rc<TargetPool>) -> Result<(u64, u64)> {
        let map = ctx.map()?;
        if map.next.is_some() || !placement::is_live(self.id, &map) || ctx.is_unsure() {
            return Ok((0, 0));
        }
        let (mut dropped, mut mended) = (0, 0);
        for cont in ctx.shard.conts() {
            let mut units = self.units_of_cells(ctx, cont).await?;
            let led = self.units_with_cells(ctx, &map, cont).await?;
            for unit in led.keys() {
                units
                    .extend(self.own_cells(&map, *unit).into_iter().map(|at| cell_unit(*unit, at)));
            }
            for unit in units {
                let of = Unit { cell: 0, ..unit };
                let Some((leader, listed)) = led.get(&of).copied() else {
                    // Removed as a whole.
                    dropped += self.drop_unnamed(ctx, &map, cont, unit, &Named::new()).await?.0;
                    continue;
                };
                let state = (listed.newest, map.version);
                if ctx.cell_audit.has_seen(cont, unit, state) {
                    continue;
                }
                ctx.cell_audit.begin(cont, unit);
                let named = self.stripes_at(ctx, &map, leader, cont, of).await?;
                if !self.is_strange_cell(&map, unit) {
                    let cell = unit.cell as usize - 1;
                    mended += self.mend_cells_of(ctx, &map, (cont, of), cell, &named).await?;
                }
                let (count, is_all) = self.drop_unnamed(ctx, &map, cont, unit, &named).await?;
                dropped += count;
                if is_all {
                    ctx.cell_audit.end(cont, unit, state);
                }
            }
        }
        Ok((dropped, mended))
    }

    /// Units of cells that are here.
    async fn units_of_cells(&self, ctx: &TargetPool, cont: ContId) -> Result<BTreeSet<Unit>> {
        let mut all = BTreeSet::new();
        let mut after = None;
        loop {
            let listed = ctx.shard.list_units(cont, after, LIST_COUNT as usize).await;
            let (units, is_complete) = match listed {
                // It is being destroyed.
                Err(error) if error.code == Code::NonExist => return Ok(BTreeSet::new()),
                listed => listed?,
            };
            after = units.last().map(|(unit, _)| *unit);
            all.extend(units.iter().map(|(unit, _)| *unit).filter(|unit| unit.is_cell()));
            if is_complete {
                return Ok(all);
            }
        }
    }

    /// How many cells of a unit are dropped, and whether those that are left are all named.
    async fn drop_unnamed(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        cont: ContId,
        unit: Unit,
        named: &Named,
    ) -> Result<(u64, bool)> {
        let is_old = |_: Option<Stripe>, kept_at: Epoch, now: Epoch| is_old(kept_at, now);
        let (mut count, mut is_all) = (0, true);
        for (dkey, _) in self.keys_here(ctx, cont, unit).await? {
            let at = CellsAt { cont, unit, dkey: &dkey };
            let dropped = self.drop_unnamed_under(ctx, map, at, named, is_old).await?;
            (count, is_all) = (count + dropped.0, is_all && dropped.1);
        }
        Ok((count, is_all))
    }

    /// The same under a dkey, of cells that may go: by their stripe, when they were kept, and what time it is.
    pub(crate) async fn drop_unnamed_under(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        CellsAt { cont, unit, dkey }: CellsAt<'_>,
        named: &Named,
        may_go: impl Fn(Option<Stripe>, Epoch, Epoch) -> bool,
    ) -> Result<(u64, bool)> {
        let (mut count, mut is_all) = (0, true);
        let names = named.get(dkey);
        for (akey, _) in ctx.shard.cells_under(cont, unit, dkey).await? {
            let stripe = of_cell_akey(&akey);
            let is_named = stripe.is_some_and(|(of, stripe)| {
                names.is_some_and(|names| names.contains(&(of.to_vec(), stripe)))
            });
            if is_named {
                continue;
            }
            let akeys = vec![serde_bytes::Bytes::new(&akey)];
            let ops = [Op::PunchAkeys { unit, dkey, cond: Cond::NONE, akeys }];
            let payload = self.stage(ctx, &ops)?;
            let here = ctx.shard.cells_under(cont, unit, dkey).await?;
            // From here on no await: it may have been kept once more.
            if ctx.map_version() != map.version {
                return Err(Error::bare(Code::Stale));
            }
            let kept_at = here.iter().find(|(name, _)| *name == akey).map(|(_, epoch)| *epoch);
            let Some(kept_at) = kept_at else { continue };
            ctx.shard.require_open(cont)?;
            if !may_go(stripe.map(|(_, stripe)| stripe), kept_at, self.tick(ctx)) {
                is_all = false;
                continue;
            }
            // As of the time when it was kept: what no snapshot names, none needs.
            ctx.shard.apply(cont, kept_at, &ops, payload, None, &[])?;
            count += 1;
        }
        Ok((count, is_all))
    }
}

/// A dkey of a unit of cells.
#[derive(Clone, Copy)]
pub(crate) struct CellsAt<'a> {
    pub cont: ContId,
    pub unit: Unit,
    pub dkey: &'a [u8],
}

/// True for cells that nobody can be about to name any more.
pub(crate) fn is_old(kept_at: Epoch, now: Epoch) -> bool {
    now.0.saturating_sub(kept_at.0) >= AGE_MIN.as_nanos() as u64
}

/// True when more members of a group are lost than it has parity cells.
fn are_too_many_lost(map: &PoolMap, unit: Unit) -> bool {
    cells_to_spare(map, unit) < 0
}

/// How many more members of a group may be lost.
pub(crate) fn cells_to_spare(map: &PoolMap, unit: Unit) -> i32 {
    let (Ok((_, parity)), Ok(layout)) = (cells_of(unit), placement::cell_layout(unit.object, map))
    else {
        return 0;
    };
    let members = layout.members(unit.group as usize).iter();
    let lost = members.filter(|member| !placement::is_live(**member, map)).count();
    i32::from(parity) - lost as i32
}

/// The cells of a unit that a target has, or is to have.
pub(crate) fn own_cells(target: TargetId, map: &PoolMap, unit: Unit) -> Vec<usize> {
    if cells_of(unit).is_err() {
        return Vec::new();
    }
    let Ok(layout) = placement::cell_layout(unit.object, map) else { return Vec::new() };
    let group = unit.group as usize;
    if group >= layout.group_count() {
        return Vec::new();
    }
    let has = layout.members(group).iter().enumerate().map(|(at, member)| (at, *member));
    let all = has.chain(layout.places_to_join(group));
    all.filter(|(_, member)| *member == target).map(|(at, _)| at).collect()
}
