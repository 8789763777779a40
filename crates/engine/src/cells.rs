//! Cells of stripes: keeping them for others, and putting stripes together from them ([`wire::cell`]).
//!
//! Whoever reads a stripe asks for the data cells that it needs. Where one cannot be had (its target is away, lacks it, or
//! has it damaged), as many others as there are data cells tell what is in it.

use crate::catch_up::no_room;
use crate::damage::{Spot, is_damage};
use crate::mend::TURNS_TIME_MAX;
use crate::target::{Target, TargetPool};
use erasure::Code as Coding;
use futures_util::future::{join_all, try_join_all};
use std::rc::Rc;
use transport::Incoming;
use types::{Code, ContId, Epoch, Error, Result, TargetId, Unit};
use vos::{CodedPart, Segments};
use wire::cell::{CellAsk, CellRequest, Stripe, cell_akey, cell_unit};
use wire::map::PoolMap;
use wire::obj::{Cond, FetchIod, FetchWant, Op, Recx, Request, UpdateIod, UpdateValue};

/// Most bytes of a cell: what a container may choose.
pub(crate) const CELL_BYTES_MAX: u32 = 1 << 20;

/// A stripe of an array.
#[derive(Clone, Copy)]
pub(crate) struct StripeAt<'a> {
    pub cont: ContId,
    /// Cell 0.
    pub unit: Unit,
    pub dkey: &'a [u8],
    pub akey: &'a [u8],
    pub stripe: Stripe,
}

impl<'a> StripeAt<'a> {
    fn of(part: &'a CodedPart) -> StripeAt<'a> {
        let CodedPart { cont, unit, ref dkey, ref akey, stripe, .. } = *part;
        StripeAt { cont, unit, dkey, akey, stripe }
    }
}

impl Target {
    /// Serves a request about a cell.
    pub(crate) async fn serve_cell(self: Rc<Self>, incoming: Incoming) {
        let Incoming { body, mut bulk, responder, .. } = incoming;
        let outcome = async {
            let Request::Cell(request) = wire::decode::<Request<'_>>(&body)? else {
                return Err(Error::bare(Code::Proto));
            };
            let CellRequest { pool, map_version, from, cont, unit, dkey, akey, stripe, ask } =
                request;
            let is_possible = unit.is_cell()
                && unit.object.cells().is_some()
                && (1..=CELL_BYTES_MAX).contains(&stripe.cell_bytes);
            if !is_possible {
                return Err(Error::new(Code::Proto, "a request for no cell"));
            }
            let ctx = self.pools.mapped(pool).await?;
            if map_version > ctx.map_version() {
                self.take_map_of(&ctx, pool, from).await?;
            }
            let of = StripeAt { cont, unit, dkey, akey, stripe };
            match ask {
                CellAsk::Put => {
                    let data = bulk.read_to_vec().await?;
                    self.pools.known_cont(&ctx, cont).await?;
                    self.keep_cell_for_leader(&ctx, of, &data).await?;
                    Ok(None)
                }
                CellAsk::Get { at, bytes } if joins(&ctx, from, unit)? => {
                    let until = self.env.now() + TURNS_TIME_MAX;
                    let mut turn = self.wait_for_turn(&ctx, false, until).await;
                    let data = self.read_cell(&ctx, of, at, bytes).await;
                    if let Some(turn) = &mut turn {
                        turn.note(bytes as usize);
                    }
                    data.map(Some)
                }
                CellAsk::Get { at, bytes } => {
                    self.note_client();
                    self.read_cell(&ctx, of, at, bytes).await.map(Some)
                }
            }
        };
        let outcome = outcome.await;
        let answer = wire::encode(&outcome.as_ref().map(|_| ()));
        let data = outcome.ok().flatten();
        let bulk: Vec<&[u8]> = data.as_deref().into_iter().collect();
        self.send(responder, 0, &answer, &bulk).await;
    }

    /// Keeps a cell of a stripe that is about to get its name. One for which there is no room where this target comes to have cells is missed, as orders
    /// are: who catches up does not hold up others, and looks for cells again.
    async fn keep_cell_for_leader(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        of: StripeAt<'_>,
        data: &[u8],
    ) -> Result<()> {
        let map = ctx.map()?;
        let kept = match self.is_too_full_for_cells(ctx, &map, of.unit) {
            true => Err(no_room()),
            false => self.keep_cell(ctx, of, data, None).await,
        };
        match kept {
            Err(error)
                if error.code == Code::NoSpace
                    && self.joins_cells(&map, of.unit)
                    && ctx.joining.note_missed_cell(ctx, self.env.now()) =>
            {
                tracing::warn!("target {}: a cell of {}: {error}", self.id, of.unit);
                Ok(())
            }
            kept => kept,
        }
    }

    /// True when the last room of this target is kept for other cells than those of a unit, which it comes to have.
    pub(crate) fn is_too_full_for_cells(
        &self,
        ctx: &TargetPool,
        map: &PoolMap,
        unit: Unit,
    ) -> bool {
        ctx.joining.may_miss(ctx)
            && ctx.shard.stat().is_too_full_to_join()
            && self.joins_cells(map, unit)
    }

    /// Keeps a cell; `of.unit` names it. `epoch`: that of the one that it replaces.
    pub(crate) async fn keep_cell(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        of: StripeAt<'_>,
        data: &[u8],
        epoch: Option<Epoch>,
    ) -> Result<()> {
        if data.len() != of.stripe.cell_bytes as usize {
            return Err(Error::new(Code::Proto, "a cell of another size than its stripe says"));
        }
        let akey = cell_akey(of.akey, &of.stripe);
        let recxs = vec![Recx { index: 0, count: data.len() as u64 }];
        let value = UpdateValue::Array { record_bytes: 1, recxs };
        let iods = vec![UpdateIod { akey: &akey, cond: Cond::NONE, value }];
        let ops = [Op::Update { unit: of.unit, dkey: of.dkey, cond: Cond::NONE, iods }];
        let mut payload = self.stage(ctx, &ops)?;
        let mut rest = data;
        for room in payload.buffers() {
            let (mine, others) = rest.split_at(room.len());
            room.copy_from_slice(mine);
            rest = others;
        }
        ctx.shard.sum_cell(of.cont, &mut payload)?;
        payload.write().await?;
        ctx.shard.ready(of.cont, &[], &ops).await?;
        ctx.shard.check(of.cont, &[], &ops)?;
        let epoch = epoch.unwrap_or_else(|| self.tick(ctx));
        let lsn = ctx.shard.apply(of.cont, epoch, &ops, payload, None, &[])?;
        ctx.cell_audit.forget(of.cont, of.unit);
        self.audit_cells(ctx);
        // Also in a pool that acknowledges before it writes: what gives way to cells, or names them, may be on stable storage long before.
        ctx.shard.written(lsn).await
    }

    /// Bytes of a cell that is kept here; `of.unit` names it.
    async fn read_cell(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        of: StripeAt<'_>,
        at: u32,
        bytes: u32,
    ) -> Result<Vec<u8>> {
        let is_within = at.checked_add(bytes).is_some_and(|end| end <= of.stripe.cell_bytes);
        if !is_within {
            return Err(Error::new(Code::Proto, "a read beyond a cell"));
        }
        let missing = || Error::new(Code::NonExist, format!("target {} has no such cell", self.id));
        if !ctx.shard.has_cont(of.cont) {
            return Err(missing());
        }
        let akey = cell_akey(of.akey, &of.stripe);
        let recxs = vec![Recx { index: at as u64, count: bytes as u64 }];
        let want = FetchWant::Array { record_bytes: 1, recxs };
        let iods = vec![FetchIod { akey: &akey, want }];
        let op = Op::Fetch { unit: of.unit, dkey: of.dkey, cond: Cond::NONE, iods };
        let ops = [op];
        ctx.shard.ready(of.cont, &[], &ops).await?;
        let mut segments = Segments::cached();
        {
            let Op::Fetch { unit, dkey, cond, iods } = &ops[0] else { return Err(missing()) };
            let view = ctx.shard.view(of.cont)?;
            let found = match view.fetch(*unit, dkey, *cond, iods, &mut segments) {
                Err(error) if error.code == Code::Csum => {
                    self.mend_soon(ctx, Spot::new(of.cont, of.unit, of.dkey, &akey));
                    return Err(error);
                }
                found => found?,
            };
            if found.iter().any(|found| found.value == vos::FetchedValue::Absent) {
                return Err(missing());
            }
        }
        let damage = match segments.load().await {
            Ok(()) if segments.damaged().is_empty() => return Ok(segments.slices().concat()),
            Ok(()) => {
                segments.forget_cached();
                Error::new(Code::Csum, format!("a cell on target {} is damaged", self.id))
            }
            Err(error) => error,
        };
        if is_damage(&damage) {
            self.mend_soon(ctx, Spot::new(of.cont, of.unit, of.dkey, &akey));
        }
        Err(damage)
    }

    /// Has a target, which may be this one, keep a cell.
    pub(crate) async fn put_cell(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        to: TargetId,
        of: StripeAt<'_>,
        cell: usize,
        data: &[u8],
    ) -> Result<()> {
        let of = StripeAt { unit: cell_unit(of.unit, cell), ..of };
        if to == self.id {
            return self.keep_cell(ctx, of, data, None).await;
        }
        self.ask_cell(ctx, to, of, CellAsk::Put, &[data], &mut []).await
    }

    /// Bytes of a cell that a target, which may be this one, has.
    pub(crate) async fn get_cell(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        from: TargetId,
        of: StripeAt<'_>,
        cell: usize,
        (at, bytes): (u32, u32),
    ) -> Result<Vec<u8>> {
        let of = StripeAt { unit: cell_unit(of.unit, cell), ..of };
        if from == self.id {
            return self.read_cell(ctx, of, at, bytes).await;
        }
        let mut data = vec![0; bytes as usize];
        self.ask_cell(ctx, from, of, CellAsk::Get { at, bytes }, &[], &mut [&mut data]).await?;
        Ok(data)
    }

    async fn ask_cell(
        &self,
        ctx: &TargetPool,
        target: TargetId,
        of: StripeAt<'_>,
        ask: CellAsk,
        bulk_out: &[&[u8]],
        bulk_in: &mut [&mut [u8]],
    ) -> Result<()> {
        let map = ctx.map()?;
        let engine = map.engine_of(target).ok_or_else(|| Error::bare(Code::NonExist))?;
        let StripeAt { cont, unit, dkey, akey, stripe } = of;
        let (pool, map_version, from) = (map.pool, map.version, self.id);
        let request = CellRequest { pool, map_version, from, cont, unit, dkey, akey, stripe, ask };
        let body = wire::encode(&Request::Cell(request));
        let wanted: usize = bulk_in.iter().map(|room| room.len()).sum();
        let answer = self.peers.ask_with_bulk(engine, target, &body, bulk_out, bulk_in).await?;
        wire::decode::<Result<()>>(&answer.body)??;
        if answer.bulk_bytes != wanted {
            return Err(Error::new(Code::Proto, "a target sent part of a cell"));
        }
        Ok(())
    }

    /// Gets what of an answer is in cells.
    pub(crate) async fn gather(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        segments: &mut Segments,
    ) -> Result<()> {
        let parts = segments.coded().map(|(part, bytes)| async move {
            *bytes = Some(self.read_stripe(ctx, StripeAt::of(part), part.at, part.bytes).await?);
            Ok::<(), Error>(())
        });
        try_join_all(parts).await.map(|_| ())
    }

    /// Bytes `[at, at + bytes)` of a stripe.
    ///
    /// Errors: `Stale` when the array does not name the stripe any more, `Unreach` when too few of those who have cells
    /// answer, `Io` when too few are left.
    pub(crate) async fn read_stripe(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        of: StripeAt<'_>,
        at: u64,
        bytes: u64,
    ) -> Result<Vec<u8>> {
        let (data, _) = cells_of(of.unit)?;
        let cell_bytes = of.stripe.cell_bytes as u64;
        let end = at.checked_add(bytes).filter(|end| *end <= data as u64 * cell_bytes);
        let end =
            end.ok_or_else(|| Error::new(Code::Io, "a stripe is shorter than its array says"))?;
        let cells = (at / cell_bytes)..end.div_ceil(cell_bytes);
        let read = cells.map(|cell| {
            let (from, to) = (at.max(cell * cell_bytes), end.min((cell + 1) * cell_bytes));
            let range = ((from - cell * cell_bytes) as u32, (to - from) as u32);
            self.read_part(ctx, of, cell as usize, range)
        });
        Ok(try_join_all(read).await?.concat())
    }

    pub(crate) async fn read_part(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        of: StripeAt<'_>,
        cell: usize,
        range: (u32, u32),
    ) -> Result<Vec<u8>> {
        let map = ctx.map()?;
        let layout = placement::cell_layout(of.unit.object, &map)?;
        let target = layout.members(of.unit.group as usize)[cell];
        if placement::follows(target, &map) {
            match self.get_cell(ctx, target, of, cell, range).await {
                Ok(data) => return Ok(data),
                Err(error) => {
                    tracing::debug!("target {}: cell {cell} of {}: {error}", self.id, of.unit);
                }
            }
        }
        self.restore_cell(ctx, of, cell, range).await
    }

    /// Bytes of a cell, from the others of its stripe.
    ///
    /// Errors: as [`Target::read_stripe`].
    pub(crate) async fn restore_cell(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        of: StripeAt<'_>,
        cell: usize,
        range: (u32, u32),
    ) -> Result<Vec<u8>> {
        let (data, parity) = cells_of(of.unit)?;
        let map = ctx.map()?;
        let layout = placement::cell_layout(of.unit.object, &map)?;
        let members = layout.members(of.unit.group as usize);
        let others = (0..(data + parity) as usize).filter(|other| *other != cell);
        let asked = others.map(|other| async move {
            (other, self.get_cell(ctx, members[other], of, other, range).await)
        });
        let mut have: Vec<(usize, Vec<u8>)> = Vec::with_capacity(data as usize);
        let mut is_away = false;
        for (other, outcome) in join_all(asked).await {
            match outcome {
                Ok(bytes) => have.push((other, bytes)),
                Err(error) => {
                    tracing::debug!("target {}: cell {other} of {}: {error}", self.id, of.unit);
                    is_away |= !matches!(error.code, Code::NonExist | Code::Csum | Code::Io);
                }
            }
        }
        if have.len() < data as usize {
            return Err(self.why_too_few(ctx, of, is_away).await);
        }
        let have: Vec<(usize, &[u8])> = have.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        let mut out = vec![0; range.1 as usize];
        coding_of(of.unit)?
            .restore(&have[..data as usize], &mut [(cell, &mut out[..])])
            .map_err(|_| Error::new(Code::Io, "cells that do not make a stripe"))?;
        Ok(out)
    }

    async fn why_too_few(&self, ctx: &TargetPool, of: StripeAt<'_>, is_away: bool) -> Error {
        let named = ctx.shard.stripes_of(of.cont, of.unit, of.dkey).await;
        let is_named = named.is_ok_and(|named| named.iter().any(|named| named.stripe == of.stripe));
        if !is_named {
            // Overwritten meanwhile; who asks again finds what is there now.
            return Error::bare(Code::Stale);
        }
        let text = format!("too few cells of a stripe of object {}", of.unit.object);
        match is_away {
            true => Error::new(Code::Unreach, format!("{text} are on targets that answer")),
            false => Error::new(Code::Io, format!("{text} are left")),
        }
    }
}

/// True when a target asks for cells of a unit only because it comes to have some: nobody lacks what it gets. Whoever has a part of the group
/// already asks for somebody who reads, or mends.
fn joins(ctx: &TargetPool, asker: TargetId, unit: Unit) -> Result<bool> {
    let map = ctx.map()?;
    if map.next.is_none() {
        return Ok(false);
    }
    let layout = placement::cell_layout(unit.object, &map)?;
    let group = unit.group as usize;
    if group >= layout.group_count() || layout.members(group).contains(&asker) {
        return Ok(false);
    }
    Ok(layout.joiners(group).any(|joiner| joiner == asker))
}

/// The code of a unit's stripes.
pub(crate) fn coding_of(unit: Unit) -> Result<Coding> {
    let (data, parity) = cells_of(unit)?;
    Coding::new(data, parity)
        .map_err(|error| Error::inval(format!("object {}: {error}", unit.object)))
}

/// Data and parity cells of a unit's stripes.
pub(crate) fn cells_of(unit: Unit) -> Result<(u8, u8)> {
    unit.object
        .cells()
        .ok_or_else(|| Error::inval(format!("object {} has no erasure code", unit.object)))
}
