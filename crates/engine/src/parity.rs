//! The scrubber's second half: whether the parity of stripes is that of their data.
//!
//! Each cell has checksums of its own, which tell of damage on a device. They do not tell of a cell that was kept whole and
//! is another one's: a defect somewhere, or bytes that changed where no checksum is kept. At the end of a pass the leader of each
//! group gets all cells of each stripe that it names, codes the data once more, and compares.
//!
//! Where the cells do not fit together: if all others are one stripe without one of them, that one is wrong and is put right; only
//! two parity cells or more can tell. Else data are what readers have been given all the time, and parity follows.
//! Cells never change, so nothing of this races with writers; a stripe that is overwritten meanwhile has no name any more.

use crate::cells::{StripeAt, cells_of, coding_of};
use crate::target::{Target, TargetPool};
use erasure::Code as Coding;
use futures_util::future::join_all;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Error, Result, Unit};

/// Dkeys listed at once.
const LIST_COUNT: usize = 256;

/// What a comparison has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Compared {
    /// Stripes all of whose cells were there to be compared.
    pub stripes: u64,
    /// Cells that were put right.
    pub mended: u64,
}

impl Target {
    /// Compares the stripes of all groups that this target leads. `pace` waits for as long as so many bytes may take.
    pub(crate) async fn compare_parity(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        pace: impl AsyncFn(u64),
    ) -> Result<Compared> {
        let mut compared = Compared::default();
        if !ctx.shard.holds_copies() {
            return Ok(compared);
        }
        ctx.every_unit(async |cont, unit| {
            let has_stripes = !unit.is_cell() && unit.object.cells().is_some();
            match has_stripes && self.leads(ctx, unit) {
                true => self.compare_unit(ctx, cont, unit, &pace, &mut compared).await,
                false => Ok(()),
            }
        })
        .await?;
        Ok(compared)
    }

    async fn compare_unit(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
        pace: &impl AsyncFn(u64),
        compared: &mut Compared,
    ) -> Result<()> {
        let (data, parity) = cells_of(unit)?;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.stripes_of(ctx, cont, unit, after.as_deref(), LIST_COUNT).await?;
            for named in page.stripes {
                let (dkey, akey) = (&named.dkey[..], &named.akey[..]);
                let of = StripeAt { cont, unit, dkey, akey, stripe: named.stripe };
                pace((data + parity) as u64 * named.stripe.cell_bytes as u64).await;
                let Some(cells) = self.all_cells(ctx, of).await? else { continue };
                compared.stripes += 1;
                let wrong = wrong_cells(&coding_of(unit)?, data as usize, &cells);
                // The same when they are read again: what a device gave once is left alone.
                if wrong.is_empty() || self.all_cells(ctx, of).await? != Some(cells) {
                    continue;
                }
                for (cell, right) in wrong {
                    tracing::error!(
                        target_id = %self.id, pool = %ctx.shard.pool(), %cont, oid = %unit.object, group = unit.group,
                        dkey = %dkey.escape_ascii(), cell,
                        "parity did not fit the data of a stripe: the cell is put right"
                    );
                    let map = ctx.map()?;
                    let layout = placement::cell_layout(unit.object, &map)?;
                    let keeper = layout.members(unit.group as usize)[cell];
                    self.put_cell(ctx, keeper, of, cell, &right).await?;
                    compared.mended += 1;
                }
            }
            after = page.next.map(serde_bytes::ByteBuf::into_vec);
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// All cells of a stripe; `None` when one cannot be had: it is away, or is put together by those who look for that.
    async fn all_cells(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        of: StripeAt<'_>,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let map = ctx.map()?;
        let layout = placement::cell_layout(of.unit.object, &map)?;
        let members = layout.members(of.unit.group as usize);
        if !members.iter().all(|member| placement::is_live(*member, &map)) {
            return Ok(None);
        }
        let range = (0, of.stripe.cell_bytes);
        let asked = members.iter().enumerate();
        let asked = asked.map(|(cell, member)| self.get_cell(ctx, *member, of, cell, range));
        let cells: Result<Vec<Vec<u8>>> = join_all(asked).await.into_iter().collect();
        match cells {
            Ok(cells) => Ok(Some(cells)),
            Err(error) if self.is_done_with(ctx) => Err(error),
            Err(error) => {
                tracing::debug!("target {}: comparing {}: {error}", self.id, of.unit);
                Ok(None)
            }
        }
    }

    /// Waits for as long as the scrubber may take for so many bytes.
    pub(crate) async fn scrub_pace(&self, ctx: &TargetPool, rate: u64, bytes: u64) {
        if rate == 0 || ctx.scrubber.is_hurried() {
            self.env.yield_now().await;
        } else {
            // timer: the scrubber reads no faster than this.
            self.env.sleep(Duration::from_secs_f64(bytes as f64 / rate as f64)).await;
        }
    }
}

/// The cells of a stripe that do not fit the others, with what they should be.
fn wrong_cells(coding: &Coding, data: usize, cells: &[Vec<u8>]) -> Vec<(usize, Vec<u8>)> {
    let parity = coded(coding, data, cells);
    let differing: Vec<usize> =
        (data..cells.len()).filter(|&cell| cells[cell] != parity[cell - data]).collect();
    if differing.is_empty() {
        return Vec::new();
    }
    if cells.len() - data > 1 {
        let mut told = (0..cells.len()).filter_map(|cell| {
            let right = restored(coding, data, cells, cell).ok()?;
            let mut all = cells.to_vec();
            all[cell] = right;
            let fits = coded(coding, data, &all)[..] == all[data..];
            fits.then(|| (cell, all.swap_remove(cell)))
        });
        if let (Some(one), None) = (told.next(), told.next()) {
            return vec![one];
        }
    }
    differing.into_iter().map(|cell| (cell, parity[cell - data].clone())).collect()
}

/// The parity of the data cells.
fn coded(coding: &Coding, data: usize, cells: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let bytes = cells[0].len();
    let mut parity = vec![vec![0; bytes]; cells.len() - data];
    {
        let data: Vec<&[u8]> = cells[..data].iter().map(|cell| &cell[..]).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(|cell| &mut cell[..]).collect();
        coding.encode(&data, &mut parity);
    }
    parity
}

/// A cell from the first of the others.
fn restored(coding: &Coding, data: usize, cells: &[Vec<u8>], cell: usize) -> Result<Vec<u8>> {
    let others = cells.iter().enumerate().filter(|(at, _)| *at != cell);
    let have: Vec<(usize, &[u8])> = others.map(|(at, bytes)| (at, &bytes[..])).take(data).collect();
    let mut out = vec![0; cells[0].len()];
    coding
        .restore(&have, &mut [(cell, &mut out[..])])
        .map_err(|_| Error::new(Code::Io, "cells that do not make a stripe"))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each cell in turn is another one's: with two parity cells it is found, with one parity follows data.
    #[test]
    fn the_cell_that_is_wrong_is_found_where_parity_can_tell() {
        for (data, parity) in [(2usize, 1usize), (2, 2), (4, 2), (8, 3)] {
            let coding = Coding::new(data as u8, parity as u8).unwrap();
            let cell = |n: usize| (0..64).map(|i| (i * 7 + n * 31) as u8).collect::<Vec<u8>>();
            let mut cells: Vec<Vec<u8>> = (0..data + parity).map(cell).collect();
            let right = coded(&coding, data, &cells);
            cells.splice(data.., right);
            assert_eq!(wrong_cells(&coding, data, &cells), vec![]);
            for wrong in 0..data + parity {
                let mut bad = cells.clone();
                bad[wrong][5] ^= 0x40;
                let found = wrong_cells(&coding, data, &bad);
                if parity > 1 {
                    assert_eq!(found, vec![(wrong, cells[wrong].clone())], "{data}+{parity}");
                } else {
                    assert_eq!(found, vec![(data, coded(&coding, data, &bad).remove(0))]);
                }
            }
        }
    }
}
