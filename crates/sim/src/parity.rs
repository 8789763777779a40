//! Whether cells make stripes: parity that is coded anew from the data cells is what parity cells hold, seen from outside.

use crate::members::{ask, newest_map_of};
use client::{Client, Container};
use types::{Code, Error, Oid, Result, Unit};
use wire::cell::{StripeList, StripeOf, cell_akey, cell_unit};
use wire::map::PoolMap;
use wire::member::{MemberAsk, MemberRequest};
use wire::obj::{Cond, FetchIod, FetchWant, Fetched, Op, OpReply, Recx, Request};

/// Dkeys that a leader looks at for one answer.
const DKEYS_AT_ONCE: u32 = 64;

/// All stripes that the leader of a unit names.
async fn stripes(
    client: &Client,
    cont: &Container,
    map: &PoolMap,
    unit: Unit,
) -> Result<Vec<StripeOf>> {
    let layout = placement::layout(unit.object, map)?;
    let leader = layout.leader(unit.group as usize, map);
    let leader = leader.ok_or_else(|| Error::new(Code::Unreach, format!("{unit}: no leader")))?;
    let (mut all, mut after): (Vec<StripeOf>, Option<Vec<u8>>) = (Vec::new(), None);
    loop {
        let (cont, after_key) = (cont.id(), after.as_deref());
        let ask_for = MemberAsk::Stripes { cont, unit, after: after_key, count_max: DKEYS_AT_ONCE };
        let (pool, map_version) = (map.pool, map.version);
        let (member, newest) = (leader, types::Epoch::ZERO);
        let asked = MemberRequest { pool, map_version, member, newest, ask: ask_for };
        let answer = ask(client, map, leader, &Request::Member(asked)).await?;
        let list = wire::decode::<Result<StripeList>>(&answer)??;
        all.extend(list.stripes);
        after = list.next.map(serde_bytes::ByteBuf::into_vec);
        if after.is_none() {
            return Ok(all);
        }
    }
}

/// A cell, from who is to have it; `None` when it is not there.
async fn cell(
    cont: &Container,
    unit: Unit,
    named: &StripeOf,
    number: usize,
) -> Result<Option<Vec<u8>>> {
    let (unit, akey) = (cell_unit(unit, number), cell_akey(&named.akey, &named.stripe));
    let mut room = vec![0; named.stripe.cell_bytes as usize];
    let recxs = vec![Recx { index: 0, count: room.len() as u64 }];
    let want = FetchWant::Array { record_bytes: 1, recxs };
    let iods = vec![FetchIod { akey: &akey, want }];
    let mut batch = cont.batch();
    batch.op_of_unit(Op::Fetch { unit, dkey: &named.dkey, cond: Cond::NONE, iods });
    batch.bulk_in(&mut room);
    let result = batch.run().await?;
    let is_whole = match result.replies()?.first() {
        Some(OpReply::Fetched(iods)) => matches!(
            iods.first().map(|iod| &iod.value),
            Some(Fetched::Array { end, .. }) if *end >= named.stripe.cell_bytes.into()
        ),
        _ => false,
    };
    Ok(is_whole.then_some(room))
}

/// Compares all cells of all stripes of an object; how many stripes that were, or what is wrong.
///
/// Errors: those of requests. Nobody may write meanwhile, and leaders must have nothing left to fold.
pub async fn compare(
    client: &Client,
    cont: &Container,
    oid: Oid,
) -> Result<std::result::Result<u64, String>> {
    let Some((data_cells, parity_cells)) = oid.cells() else { return Ok(Ok(0)) };
    let (data, all) = (data_cells as usize, (data_cells + parity_cells) as usize);
    let coding = erasure::Code::new(data_cells, parity_cells)
        .map_err(|error| Error::inval(format!("object {oid}: {error}")))?;
    let map = newest_map_of(client, &cont.pool().name()).await?;
    let groups = placement::layout(oid, &map)?.group_count();
    let mut compared = 0;
    for unit in (0..groups).map(|group| oid.unit(group as u32)) {
        for named in stripes(client, cont, &map, unit).await? {
            let mut cells = Vec::with_capacity(all);
            for number in 0..all {
                match cell(cont, unit, &named, number).await? {
                    Some(bytes) => cells.push(bytes),
                    None => {
                        return Ok(Err(format!("{unit}: cell {number} of {named:?} is lacking")));
                    }
                }
            }
            let mut parity = vec![vec![0; named.stripe.cell_bytes as usize]; all - data];
            let (of_data, of_parity) = cells.split_at(data);
            {
                let of_data: Vec<&[u8]> = of_data.iter().map(Vec::as_slice).collect();
                let mut rooms: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                coding.encode(&of_data, &mut rooms);
            }
            if parity != of_parity {
                return Ok(Err(format!("{unit}: parity of {named:?} is not that of its data")));
            }
            compared += 1;
        }
    }
    Ok(Ok(compared))
}
