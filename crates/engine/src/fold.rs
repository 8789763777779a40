//! Folding stripes: the leader of a group with an erasure code gives its members cells of what is written whole, and copies give
//! way to them ([`wire::cell`]).
//!
//! Nobody waits for it: what is not folded yet is as safe as copies are. While members are away nothing is folded, for what
//! is left of copies is better than fewer cells than there are to be.

use crate::cells::{StripeAt, cells_of, coding_of};
use crate::damage::{Spot, is_damage};
use crate::target::{Target, TargetPool};
use crate::unnamed::FoldMark;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Error, PoolId, Result, Unit};
use vos::{Foldable, Segments};
use wire::obj::{ARRAY_RECORD, BEYOND, Cond, FetchIod, FetchWant, Op, Recx};
use wire::order::Order;

/// What is written is looked at after this long: more of the same stripes may come meanwhile.
const DELAY: Duration = Duration::from_millis(50);
/// Pauses before what could not be folded is looked at again: the first, and where doubling ends.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// A stripe is folded within this time from its first cell on, or not: cells that nothing names are dropped later than that.
const FOLD_TIME_MAX: Duration = Duration::from_secs(20);
/// Dkeys whose stripes are folded at the same time, and stripes of each: so many are in memory.
const DKEYS_AT_ONCE: usize = 4;
const STRIPES_AT_ONCE: usize = 4;

type Place = (ContId, Unit, Vec<u8>);

/// Who is at it in a pool: each of both is done by one task at a time.
#[derive(Default)]
pub(crate) struct Folding {
    /// Stripes are being folded.
    is_folding: Cell<bool>,
    /// Stripes to fold are looked for.
    is_looking: Cell<bool>,
}

impl Folding {
    fn begin(&self) -> bool {
        !self.is_folding.replace(true)
    }

    fn end(&self) {
        self.is_folding.set(false);
    }

    fn begin_to_look(&self) -> bool {
        !self.is_looking.replace(true)
    }

    fn end_looking(&self) {
        self.is_looking.set(false);
    }
}

impl Target {
    /// Begins to fold what is noted, if that has not begun.
    pub(crate) fn fold_soon(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        if !ctx.shard.has_fold_notes() || !ctx.folding.begin() {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            let mut pause = RETRY_PAUSE;
            loop {
                // timer: more of a stripe may be written meanwhile.
                target.env.sleep(DELAY).await;
                let places = ctx.shard.take_fold_notes();
                if places.is_empty() || target.is_done_with(&ctx) {
                    break;
                }
                let count = places.len();
                let left = target.fold_all(pool, &ctx, places).await;
                if !left.is_empty() {
                    // A member may be away for long, or full.
                    pause = if left.len() < count { RETRY_PAUSE } else { pause * 2 };
                    pause = pause.min(RETRY_PAUSE_MAX);
                    // timer: a pause before another try.
                    target.env.sleep(pause).await;
                    for (cont, unit, dkey) in left {
                        ctx.shard.note_fold_of(cont, unit, &dkey);
                    }
                }
            }
            ctx.folding.end();
        });
    }

    /// Notes all that this target leads and may have to fold: another one led it before, or this one was started again.
    pub(crate) fn look_for_folds(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        if !ctx.shard.holds_copies() || !ctx.folding.begin_to_look() {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            loop {
                let version = ctx.map_version();
                let outcome = target.note_folds(&ctx).await;
                match outcome {
                    Ok(()) if ctx.map_version() == version => break,
                    Ok(()) => {}
                    Err(error) => {
                        tracing::info!("target {}: looking for stripes: {error}", target.id);
                        // timer: a pause before another try.
                        target.env.sleep(RETRY_PAUSE).await;
                    }
                }
                if target.is_done_with(&ctx) {
                    break;
                }
            }
            ctx.folding.end_looking();
            target.fold_soon(pool, &ctx);
        });
    }

    async fn note_folds(self: &Rc<Self>, ctx: &Rc<TargetPool>) -> Result<()> {
        ctx.every_unit(async |cont, unit| {
            if unit.is_cell() {
                self.audit_cells(ctx);
            }
            if unit.is_cell() || unit.object.cells().is_none() || !self.leads(ctx, unit) {
                return Ok(());
            }
            for dkey in self.keys_here(ctx, cont, unit).await?.into_keys() {
                ctx.shard.note_fold_of(cont, unit, &dkey);
            }
            Ok(())
        })
        .await
    }

    /// Folds what is led here; what is left could not be folded now.
    async fn fold_all(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        places: BTreeSet<Place>,
    ) -> Vec<Place> {
        let folded = places.into_iter().map(|(cont, unit, dkey)| async move {
            if self.is_done_with(ctx) {
                return None;
            }
            match self.fold_dkey(pool, ctx, cont, unit, &dkey).await {
                Ok(()) => None,
                // Who leads now does it; what is destroyed is not folded.
                Err(error) if matches!(error.code, Code::Stale | Code::NonExist) => None,
                Err(error) => {
                    tracing::debug!("target {}: folding {unit}: {error}", self.id);
                    Some((cont, unit, dkey))
                }
            }
        });
        let folded = stream::iter(folded).buffered(DKEYS_AT_ONCE);
        folded.filter_map(std::future::ready).collect().await
    }

    async fn fold_dkey(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
    ) -> Result<()> {
        // `Stale` when another one leads.
        self.led_group(ctx, unit)?;
        if !self.is_beyond(ctx, cont, unit, dkey).await? {
            return Ok(());
        }
        let (cells, _) = cells_of(unit)?;
        let cell_bytes = unit.object.cell_bytes();
        let found = ctx.shard.stripes_to_fold(cont, unit, dkey, cells, cell_bytes).await?;
        let of = (cont, unit, dkey);
        let folded = found.iter().map(|stripe| self.fold_stripe(pool, ctx, of, stripe));
        stream::iter(folded).buffered(STRIPES_AT_ONCE).try_collect().await
    }

    /// False for chunks of a progressive array that are, or may be, in its first part, which stays copies: those before the one
    /// that the mark tells. What is written before there is a mark is in the first part.
    async fn is_beyond(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
    ) -> Result<bool> {
        if unit.group > 0 || unit.object.first_part_bytes().is_none() {
            return Ok(true);
        }
        let want = FetchWant::Single { bytes_max: 8, inline_bytes_max: 8 };
        let iods = vec![FetchIod { akey: BEYOND, want }];
        let mark = Op::Fetch { unit, dkey: &ARRAY_RECORD, cond: Cond::NONE, iods };
        ctx.shard.ready(cont, &[], &[mark]).await?;
        let view = ctx.shard.view(cont)?;
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        let first = view.value(unit, &ARRAY_RECORD, BEYOND).and_then(|(_, mark)| number(mark));
        Ok(matches!((first, number(dkey)), (Some(first), Some(dkey)) if dkey >= first))
    }

    /// Gives cells of a stripe to all members and lets its records give way to its name.
    ///
    /// Errors: `Busy` while a member is away, or the stripe changes; `Stale` when another target leads; those of members.
    async fn fold_stripe(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        (cont, unit, dkey): (ContId, Unit, &[u8]),
        found: &Foldable,
    ) -> Result<()> {
        let began = self.env.now();
        let Foldable { ref akey, stripe, record_bytes, count } = *found;
        let (_, parity_cells) = cells_of(unit)?;
        let map = ctx.map()?;
        let layout = placement::cell_layout(unit.object, &map)?;
        let members = layout.members(unit.group as usize);
        if !members.iter().all(|member| placement::is_live(*member, &map)) {
            return Err(Error::new(Code::Busy, "a member that is to have a cell is away"));
        }
        let of = StripeAt { cont, unit, dkey, akey, stripe };
        // Those who drop what has no name leave alone what is to get one.
        let _mark = FoldMark::new(ctx, of);
        let data = self.read_records(ctx, of, record_bytes, count).await?;
        let cells: Vec<&[u8]> = data.chunks(stripe.cell_bytes as usize).collect();
        let mut parity = vec![vec![0; stripe.cell_bytes as usize]; parity_cells as usize];
        {
            let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|cell| &mut cell[..]).collect();
            coding_of(unit)?.encode(&cells, &mut parity);
        }
        let all = cells.iter().copied().chain(parity.iter().map(|cell| &cell[..]));
        let all: Vec<&[u8]> = all.collect();
        // Who joins looks for cells once. One that is away looks again, under another map.
        let joiners = layout.places_to_join(unit.group as usize);
        let joiners = joiners.filter(|(_, joiner)| placement::is_live(*joiner, &map));
        let keepers = members.iter().copied().enumerate().chain(joiners);
        let puts = keepers.map(|(at, keeper)| self.put_cell(ctx, keeper, of, at, all[at]));
        try_join_all(puts).await?;
        let touched =
            Op::PunchDkeys { unit, cond: Cond::NONE, dkeys: vec![serde_bytes::Bytes::new(dkey)] };
        ctx.shard.ready(cont, &[], &[touched]).await?;
        // From here on no await: what is found holds when the records give way.
        if ctx.map_version() != map.version || self.env.now() - began > FOLD_TIME_MAX {
            return Err(Error::new(Code::Busy, "it took too long, or members changed meanwhile"));
        }
        let group = self.led_group(ctx, unit)?;
        ctx.shard.require_open(cont)?;
        let version = ctx.shard.fold_version((cont, unit), dkey, akey, &stripe, count);
        if version != Some(stripe.version) {
            // Whoever changed it has noted it.
            return Ok(());
        }
        if ctx.shard.fold(cont, unit, dkey, akey, stripe, count)?.is_some() {
            let order = Order::Fold { cont, unit, dkey, akey, stripe, count };
            // To readers nothing changes: nobody waits.
            drop(self.ship(pool, ctx, group.as_ref(), &order, Vec::new(), None));
            self.tell_of_unnamed_soon(ctx);
        }
        Ok(())
    }

    /// All records of a stripe, as they are now.
    async fn read_records(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        of: StripeAt<'_>,
        record_bytes: u32,
        count: u64,
    ) -> Result<Vec<u8>> {
        let recxs = vec![Recx { index: of.stripe.first, count }];
        let iods = vec![FetchIod { akey: of.akey, want: FetchWant::Array { record_bytes, recxs } }];
        let (unit, dkey, cond) = (of.unit, of.dkey, Cond::NONE);
        let ops = [Op::Fetch { unit, dkey, cond, iods: iods.clone() }];
        ctx.shard.ready(of.cont, &[], &ops).await?;
        let mut segments = Segments::new();
        let seen = {
            // What is shown is what the name says, or its version differs later.
            let view = ctx.shard.view(of.cont)?;
            match view.fetch(unit, dkey, cond, &iods, &mut segments) {
                Err(error) if error.code == Code::Csum => {
                    self.mend_soon(ctx, Spot::new(of.cont, unit, dkey, b""));
                    return Err(error);
                }
                found => drop(found?),
            }
            ctx.streams.last()
        };
        self.gather(ctx, &mut segments).await?;
        let damage = match segments.load().await {
            Ok(()) if segments.damaged().is_empty() => None,
            Ok(()) => Some(Error::new(Code::Csum, "data of a stripe are damaged on this target")),
            Err(error) => Some(error),
        };
        if let Some(error) = damage {
            if is_damage(&error) {
                self.mend_soon(ctx, Spot::new(of.cont, unit, dkey, b""));
            }
            return Err(error);
        }
        // Not before all members have it: of what is folded nobody has more than cells.
        ctx.shard.durable(ctx.shard.last_lsn()).await?;
        ctx.streams.wait_for(seen).await?;
        Ok(segments.slices().concat())
    }
}
