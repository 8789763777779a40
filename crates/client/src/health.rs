//! How a pool does: which targets are missing, and what that means for the objects of its containers.
//!
//! It is told from the pool map, the engines' states and the containers' properties, not from the objects: what is said holds
//! for the worst of them that these allow.

use crate::client::{Client, unexpected};
use async_recursion::async_recursion as boxed;
use std::collections::BTreeSet;
use types::{ContLayout, Rank, Result, TargetId};
use wire::control::{ContInfo, ControlReply, ControlRequest, Name, PoolInfo, SystemInfo};
use wire::map::{DownReason, PoolMap, TargetState};

/// From good to bad.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HealthState {
    /// All targets are there, or others stand in for those that are not, and no object lacks a copy.
    Healthy,
    /// Some are not; all objects can be reached, and survive a further loss.
    Degraded,
    /// Some objects with copies have one left.
    AtRisk,
    /// Some objects cannot be reached.
    Unavailable,
}

/// A target that is not whole, or does not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingTarget {
    pub target: TargetId,
    pub rank: Rank,
    /// `Silent` also when nobody has called it down yet.
    pub reason: DownReason,
}

/// What losses mean for a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContHealth {
    /// Its label, or its UUID when it has none.
    pub name: String,
    pub rd_fac: u8,
    /// Copies of objects of its weakest default class. Its users may have made some of weaker classes, not weaker than `rd_fac`.
    pub copies: usize,
    /// Copies of the worst object that are whole and answer.
    pub copies_left: usize,
    /// Some objects cannot be reached.
    pub is_unavailable: bool,
}

/// How a pool does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolHealth {
    pub state: HealthState,
    pub missing: Vec<MissingTarget>,
    pub conts: Vec<ContHealth>,
}

impl PoolHealth {
    /// How a pool with these containers does in a system that is like this.
    pub fn of(map: &PoolMap, conts: &[ContInfo], system: &SystemInfo) -> PoolHealth {
        let silent: BTreeSet<Rank> =
            system.engines.iter().filter(|(.., ok)| !ok).map(|(engine, ..)| engine.rank).collect();
        let answers = |rank: Rank| !silent.contains(&rank);
        let missing: Vec<MissingTarget> = map
            .targets
            .iter()
            .filter_map(|target| {
                let reason = match target.state {
                    TargetState::Up | TargetState::Drain | TargetState::New => {
                        (!answers(target.rank)).then_some(DownReason::Silent)?
                    }
                    TargetState::Down => target.reason.unwrap_or(DownReason::Silent),
                    TargetState::DownOut => DownReason::Lost,
                };
                Some(MissingTarget { target: target.id, rank: target.rank, reason })
            })
            .collect();
        let conts: Vec<ContHealth> = conts
            .iter()
            .map(|cont| {
                let copies = copies_of(cont);
                let losses = placement::losses(copies, map, answers);
                ContHealth {
                    name: match cont.label.is_empty() {
                        true => cont.uuid.to_string(),
                        false => cont.label.clone(),
                    },
                    rd_fac: cont.props.rd_fac,
                    copies,
                    copies_left: losses.copies_left,
                    is_unavailable: losses.is_unavailable,
                }
            })
            .collect();
        let stood_in = |target| map.outs.iter().any(|out| out.target == target);
        let state = if conts.iter().any(|cont| cont.is_unavailable) {
            HealthState::Unavailable
        } else if conts.iter().any(|cont| cont.copies > 1 && cont.copies_left <= 1) {
            HealthState::AtRisk
        } else if !missing.iter().all(|missing| stood_in(missing.target))
            || conts.iter().any(|cont| cont.copies_left < cont.copies)
        {
            HealthState::Degraded
        } else {
            HealthState::Healthy
        };
        PoolHealth { state, missing, conts }
    }
}

/// Copies of the objects of a container's weakest class.
fn copies_of(cont: &ContInfo) -> usize {
    let props = &cont.props;
    let classes = match props.layout {
        ContLayout::Plain => vec![props.oclass],
        ContLayout::Posix => vec![props.dir_oclass, props.file_oclass],
    };
    let weakest = classes.iter().map(|class| class.scheme.redundancy_factor()).min();
    1 + usize::from(weakest.unwrap_or(0).max(props.rd_fac))
}

impl Client {
    /// How a pool does.
    ///
    /// Errors: those of asking the control service.
    #[boxed(?Send)]
    pub async fn pool_health(&self, pool: &PoolInfo) -> Result<PoolHealth> {
        let request = ControlRequest::ContList(Name::Uuid(pool.uuid));
        let conts = match self.control(&request).await? {
            ControlReply::Conts(conts) => conts,
            _ => return Err(unexpected()),
        };
        let system = self.system_query().await?;
        Ok(PoolHealth::of(&pool.map, &conts, &system))
    }
}
