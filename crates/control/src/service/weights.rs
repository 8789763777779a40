//! Weights of a pool's targets, by what its property `placement` says. They are those of a placement epoch; what is measured
//! later makes another one (`reweigh`).

use super::orders::{Targets, failure, order_each};
use crate::records::PoolDf;
use placement::{Measured, WEIGHT_NORM, score, weights, weights_up_to};
use types::{Code, Durability, Error, PlacementRule, Result, TargetId};
use wire::control::ControlReply;
use wire::measure::{MeasureAsk, Standing};
use wire::obj::AdminOp;

/// How targets are measured that have not been when they are to be weighed: shortly, for somebody waits.
const SHORT: MeasureAsk = MeasureAsk { bytes: 64 << 20, step_ms_max: 250, once: true };
/// KB, bytes.
const KB: u64 = 1000;
/// Of its room in the pool a target is to get no more than this filled with what is there already, percent.
const ROOM_PERCENT: u64 = 85;

/// Has a target measure its devices.
pub(super) async fn measure(
    target: TargetId,
    ask: Option<MeasureAsk>,
    orders: &dyn Targets,
) -> Result<ControlReply> {
    let reply = orders.order(target, AdminOp::Measure { ask, pool: None }).await?;
    reply.standing.map(ControlReply::Standing).ok_or_else(unsaid)
}

fn unsaid() -> Error {
    Error::new(Code::Proto, "the target did not say how it stands")
}

/// The weights of these targets in a new placement epoch, in their order. What `pool` has there already counts as free, for
/// it may move; and none gets more of it than it has room for.
///
/// Errors: those of a target that does not tell, or cannot be measured; and `NoSpace` when nothing is free on any.
pub(super) async fn weigh(
    rule: PlacementRule,
    durability: Durability,
    targets: &[TargetId],
    pool: Option<&PoolDf>,
    orders: &dyn Targets,
) -> Result<Vec<(TargetId, u32)>> {
    let ask = match rule {
        PlacementRule::Equal => {
            return Ok(targets.iter().map(|target| (*target, WEIGHT_NORM)).collect());
        }
        PlacementRule::Capacity => None,
        PlacementRule::Score => Some(SHORT),
    };
    let order = || AdminOp::Measure { ask, pool: pool.map(|pool| pool.id) };
    let (replies, failures) = order_each(orders, targets.iter().copied(), order).await;
    if !failures.is_empty() {
        let advice = "mend that, leave those targets out, or use placement 'equal'";
        return Err(failure(&format!("placement '{rule}'"), &failures, advice));
    }
    let mut standings = Vec::with_capacity(replies.len());
    for (target, reply) in replies {
        standings.push((target, reply.standing.ok_or_else(unsaid)?));
    }
    let used: u64 = standings.iter().map(|(_, standing)| standing.used_bytes).sum();
    let usual = usual_network(&standings);
    let of = |(target, standing): &(TargetId, Standing)| {
        (*target, worth_of(rule, durability, standing, usual))
    };
    let worth: Vec<(TargetId, u64)> = standings.iter().map(of).collect();
    if worth.iter().all(|(_, worth)| *worth == 0) {
        let text = format!("placement '{rule}': no target has free room that counts");
        return Err(Error::new(Code::NoSpace, text));
    }
    let Some(pool) = pool.filter(|_| used > 0) else { return Ok(weights(&worth)) };
    let room = (pool.shard_scm_bytes + pool.shard_nvme_bytes) as u128;
    let share_max = room * ROOM_PERCENT as u128 * 65_536 / 100 / used as u128;
    Ok(weights_up_to(&worth, share_max.min(65_536) as u64))
}

/// The same for targets of a pool that is there.
pub(super) async fn weigh_again(
    pool: &PoolDf,
    targets: &[TargetId],
    orders: &dyn Targets,
) -> Result<Vec<(TargetId, u32)>> {
    weigh(pool.placement, pool.durability, targets, Some(pool), orders).await
}

/// The number of the next placement epoch of a pool. `NoSpace` when it has had all.
pub(super) fn next_epoch(pool: &PoolDf) -> Result<u8> {
    let last = pool.placements.last();
    last.map_or(Some(0), |set| set.epoch.checked_add(1)).ok_or_else(|| {
        let text = format!("pool '{}' has had all 256 placement epochs", pool.name());
        Error::new(Code::NoSpace, text)
    })
}

/// The speed of the network to the target in the middle, KB/s.
fn usual_network(standings: &[(TargetId, Standing)]) -> Option<u64> {
    let known = standings.iter().filter_map(|(_, standing)| standing.network);
    let mut known: Vec<u64> = known.map(|network| network.speed.kb_s).collect();
    known.sort_unstable();
    known.get(known.len() / 2).copied()
}

/// The speed of the network to a target, KB/s. Links are measured shortly, and what differs from the usual by less than half is
/// noise more often than not: shares are not to follow it.
fn network_of(standing: &Standing, usual: Option<u64>) -> Option<u64> {
    let (own, usual) = (standing.network.map(|network| network.speed.kb_s), usual?);
    Some(own.filter(|own| own.saturating_mul(2) < usual).unwrap_or(usual))
}

/// What a target is worth, where the network to the target in the middle is as fast as `usual`.
fn worth_of(
    rule: PlacementRule,
    durability: Durability,
    standing: &Standing,
    usual: Option<u64>,
) -> u64 {
    let is_memory = durability == Durability::Memory;
    // What a pool in memory takes of a target's device is nothing, and of memory the same of all.
    let free_bytes = standing.free_bytes.saturating_add(standing.used_bytes);
    let free_kb = if is_memory { 1 } else { free_bytes / KB };
    let (PlacementRule::Score, Some(measures)) = (rule, standing.measures) else { return free_kb };
    let (read, write) = match is_memory {
        true => (measures.memory, measures.memory),
        false => (measures.read, measures.write),
    };
    let network_kb_s = network_of(standing, usual);
    score(Measured { free_kb, read_kb_s: read.kb_s, write_kb_s: write.kb_s, network_kb_s })
}
