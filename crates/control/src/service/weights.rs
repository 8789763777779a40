//! Weights of a pool's targets, by what its property `placement` says. They are those of a placement epoch, and do not change
//! with what is measured later: that would place what is there elsewhere.

use super::orders::{Targets, failure, order_each};
use placement::{Measured, WEIGHT_NORM, score, weights};
use types::{Code, Durability, Error, PlacementRule, Result, TargetId};
use wire::control::ControlReply;
use wire::measure::{MeasureAsk, Standing};
use wire::obj::AdminOp;

/// How targets are measured that have not been when they are to be weighed: shortly, for somebody waits.
const SHORT: MeasureAsk = MeasureAsk { bytes: 64 << 20, step_ms_max: 250, once: true };
/// KB, bytes.
const KB: u64 = 1000;

/// Has a target measure its devices.
pub(super) async fn measure(
    target: TargetId,
    ask: Option<MeasureAsk>,
    orders: &dyn Targets,
) -> Result<ControlReply> {
    let reply = orders.order(target, AdminOp::Measure(ask)).await?;
    reply.standing.map(ControlReply::Standing).ok_or_else(unsaid)
}

fn unsaid() -> Error {
    Error::new(Code::Proto, "the target did not say how it stands")
}

/// The weights of these targets in a new placement epoch, in their order.
///
/// Errors: those of a target that does not tell, or cannot be measured; and `NoSpace` when nothing is free on any.
pub(super) async fn weigh(
    rule: PlacementRule,
    durability: Durability,
    targets: &[TargetId],
    orders: &dyn Targets,
) -> Result<Vec<(TargetId, u32)>> {
    let ask = match rule {
        PlacementRule::Equal => {
            return Ok(targets.iter().map(|target| (*target, WEIGHT_NORM)).collect());
        }
        PlacementRule::Capacity => None,
        PlacementRule::Score => Some(SHORT),
    };
    let (replies, failures) =
        order_each(orders, targets.iter().copied(), || AdminOp::Measure(ask)).await;
    if !failures.is_empty() {
        let advice = "mend that, leave those targets out, or use placement 'equal'";
        return Err(failure(&format!("placement '{rule}'"), &failures, advice));
    }
    let mut worth = Vec::with_capacity(replies.len());
    for (target, reply) in replies {
        let standing = reply.standing.ok_or_else(unsaid)?;
        worth.push((target, worth_of(rule, durability, &standing)));
    }
    if worth.iter().all(|(_, worth)| *worth == 0) {
        let text = format!("placement '{rule}': no target has free room that counts");
        return Err(Error::new(Code::NoSpace, text));
    }
    Ok(weights(&worth))
}

/// What a target is worth.
fn worth_of(rule: PlacementRule, durability: Durability, standing: &Standing) -> u64 {
    let is_memory = durability == Durability::Memory;
    // What a pool in memory takes of a target's device is nothing, and of memory the same of all.
    let free_kb = if is_memory { 1 } else { standing.free_bytes / KB };
    let (PlacementRule::Score, Some(measures)) = (rule, standing.measures) else { return free_kb };
    let (read, write) = match is_memory {
        true => (measures.memory, measures.memory),
        false => (measures.read, measures.write),
    };
    score(Measured { free_kb, read_kb_s: read.kb_s, write_kb_s: write.kb_s, network_kb_s: None })
}
