//! How a pool does: which targets are missing, and what that means for the objects of its containers.
//!
//! It is told from the pool map, the engines' states and the containers' properties, not from the objects: what is said holds
//! for the worst of them that these allow.

use crate::client::{Client, unexpected};
use async_recursion::async_recursion as boxed;
use placement::Losses;
use std::collections::BTreeSet;
use types::{ContLayout, ContProps, ObjClass, Rank, Result, TargetId};
use wire::control::{ContInfo, ControlReply, ControlRequest, Name, PoolInfo, SystemInfo};
use wire::map::{DownReason, PoolMap, TargetInfo, TargetState};

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
    /// Its engine answers all the same: a device takes no writes, or the pool's part cannot be served.
    pub engine_answers: bool,
}

/// What losses mean for a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContHealth {
    /// Its label, or its UUID when it has none.
    pub name: String,
    pub rd_fac: u8,
    /// Copies of objects of its default classes: of the one that has lost most, or else the weakest. Of a code this is how many members may be lost, and
    /// one. Its users may have made some of weaker classes, not weaker than `rd_fac`.
    pub copies: usize,
    /// Copies of the worst of these objects that are whole and answer.
    pub copies_left: usize,
    /// Some objects cannot be reached.
    pub is_unavailable: bool,
}

/// How a pool does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolHealth {
    pub state: HealthState,
    pub missing: Vec<MissingTarget>,
    /// Targets that are away, too, and missed by nobody: they were drained.
    pub drained_count: usize,
    pub conts: Vec<ContHealth>,
    /// An engine holds the catalog, and acts on losses.
    pub is_led: bool,
    /// Targets that are there and not whole, and wait for others that are away: these left later, and may have what nobody else has.
    pub waits_for: Vec<(TargetId, Rank)>,
    /// Members of the widest groups that its containers have where nobody names a class; 1 at least.
    pub members: usize,
}

impl PoolHealth {
    /// Some of its containers have copies, or codes, where nobody names another class: what is lost of these can be made anew.
    pub fn has_copies(&self) -> bool {
        self.conts.iter().any(|cont| cont.copies > 1)
    }

    /// How a pool with these containers does in a system that is like this.
    pub fn of(map: &PoolMap, conts: &[ContInfo], system: &SystemInfo) -> PoolHealth {
        let silent: BTreeSet<Rank> =
            system.engines.iter().filter(|(.., ok)| !ok).map(|(engine, ..)| engine.rank).collect();
        let answers = |rank: Rank| !silent.contains(&rank);
        let has_nothing = |target: &&TargetInfo| {
            let is_away = target.state == TargetState::Down || !answers(target.rank);
            is_away && placement::has_given_all(target.id, map)
        };
        let (drained, in_use): (Vec<&TargetInfo>, Vec<_>) =
            map.targets.iter().partition(has_nothing);
        let missing: Vec<MissingTarget> = in_use
            .into_iter()
            .filter_map(|target| {
                let reason = match target.state {
                    TargetState::Up | TargetState::Drain | TargetState::New => {
                        (!answers(target.rank)).then_some(DownReason::Silent)?
                    }
                    TargetState::Down => target.reason.unwrap_or(DownReason::Silent),
                    TargetState::DownOut => DownReason::Lost,
                };
                let engine_answers = answers(target.rank);
                Some(MissingTarget { target: target.id, rank: target.rank, reason, engine_answers })
            })
            .collect();
        let members = conts.iter().map(members_of).max().unwrap_or(1);
        let healths: Vec<ContHealth> = conts
            .iter()
            .map(|cont| {
                let (copies, losses) = worst_of(&cont.props, map, &answers);
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
        let state = if healths.iter().any(|cont| cont.is_unavailable) {
            HealthState::Unavailable
        } else if healths.iter().any(|cont| cont.copies > 1 && cont.copies_left <= 1) {
            HealthState::AtRisk
        } else if !missing.iter().all(|missing| stood_in(missing.target))
            || healths.iter().any(|cont| cont.copies_left < cont.copies)
        {
            HealthState::Degraded
        } else {
            HealthState::Healthy
        };
        let is_led = system.leader.is_some();
        let is_unavailable = state == HealthState::Unavailable;
        let waits_for = if is_unavailable { later_ones_away(map) } else { Vec::new() };
        let drained_count = drained.len();
        PoolHealth { state, missing, drained_count, conts: healths, is_led, waits_for, members }
    }
}

/// Targets that are away, and left later than any that is there and behind.
fn later_ones_away(map: &PoolMap) -> Vec<(TargetId, Rank)> {
    let behind = map.targets.iter().filter(|target| target.reason == Some(DownReason::Behind));
    let Some(last) = behind.map(|target| target.left).max() else { return Vec::new() };
    let is_later = |target: &&TargetInfo| {
        let away = [DownReason::Silent, DownReason::Stopped, DownReason::Excluded];
        target.reason.is_some_and(|reason| away.contains(&reason)) && target.left > last
    };
    map.targets.iter().filter(is_later).map(|target| (target.id, target.rank)).collect()
}

/// Classes of the objects of a container whose creators name none.
fn classes_of(props: &ContProps) -> Vec<ObjClass> {
    match props.layout {
        ContLayout::Plain => vec![props.oclass],
        ContLayout::Posix => vec![props.dir_oclass, props.file_oclass],
    }
}

/// Copies of objects of the class of a container that is worst off, and what is left of them.
fn worst_of(props: &ContProps, map: &PoolMap, answers: &impl Fn(Rank) -> bool) -> (usize, Losses) {
    let of = |class: &ObjClass| {
        let copies = 1 + usize::from(class.scheme.redundancy_factor().max(props.rd_fac));
        let losses = placement::losses(copies, map, answers);
        let members = class.scheme.members();
        if members <= copies {
            return (copies, losses);
        }
        // All members of a code have something of their own, and each must be somewhere else. Keys are with as many as there are copies.
        let lost = members - placement::losses(members, map, answers).copies_left;
        let copies_left = copies.saturating_sub(lost);
        let is_unavailable = losses.is_unavailable || copies_left == 0;
        (copies, Losses { copies_left, is_unavailable })
    };
    let all = classes_of(props).into_iter().map(|class| of(&class));
    let none = (1, placement::losses(1, map, answers));
    all.min_by_key(|(copies, left)| {
        (left.copies_left, !left.is_unavailable, left.copies_left == *copies)
    })
    .unwrap_or(none)
}

/// Members of the widest groups of a container.
fn members_of(cont: &ContInfo) -> usize {
    let classes = classes_of(&cont.props);
    let widest = classes.iter().map(|class| class.scheme.members()).max();
    widest.unwrap_or(1).max(1 + usize::from(cont.props.rd_fac))
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

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ContId, Epoch, PoolId};
    use uuid::Uuid;
    use wire::map::{EngineInfo, OutTarget, PlacementSet, TargetInfo};

    /// Engines of one target each.
    fn map_of(count: u32) -> PoolMap {
        let engine = |at: u32| EngineInfo {
            rank: Rank(at),
            tcp: format!("node{at}:1"),
            unix: String::new(),
            host: String::new(),
            domain: vec![format!("node{at}")],
        };
        let target = |at| TargetInfo {
            id: TargetId(at),
            rank: Rank(at),
            state: TargetState::Up,
            since: 1,
            reason: None,
            left: 0,
            incarnation: 1,
        };
        PoolMap {
            pool: PoolId(1),
            version: 1,
            engines: (0..count).map(engine).collect(),
            targets: (0..count).map(target).collect(),
            placements: vec![PlacementSet {
                epoch: 0,
                weights: (0..count).map(|at| (TargetId(at), 1)).collect(),
            }],
            outs: Vec::new(),
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        }
    }

    fn lose(map: &mut PoolMap, target: usize, is_out: bool) {
        map.targets[target].state = TargetState::Down;
        map.targets[target].reason = Some(DownReason::Lost);
        if is_out {
            let target = TargetId(target as u32);
            map.outs.push(OutTarget { target, round: 2, epoch: 0, is_drained: false });
        }
    }

    fn health(map: &PoolMap, classes: [&str; 2]) -> (HealthState, usize, usize) {
        let [dir_oclass, file_oclass] = classes.map(|class| class.parse().unwrap());
        let layout = ContLayout::Posix;
        let cont = ContInfo {
            id: ContId(1),
            uuid: Uuid::nil(),
            label: "home".into(),
            props: ContProps { layout, dir_oclass, file_oclass, ..ContProps::default() },
            handle_count: 0,
            created_ns: 0,
            placement_epoch: 0,
            opened_ns: 0,
            changed_ns: 0,
            snapshot_count: 0,
            snapshot_last: Epoch::ZERO,
        };
        let engines = map.engines.iter().map(|engine| (engine.clone(), Vec::new(), true));
        let system = SystemInfo {
            uuid: Uuid::nil(),
            version: String::new(),
            engines: engines.collect(),
            members: Vec::new(),
            members_version: 0,
            pool_count: 1,
            leader: None,
        };
        let health = PoolHealth::of(map, &[cont], &system);
        (health.state, health.conts[0].copies, health.conts[0].copies_left)
    }

    /// Six engines had all six members of a group with a code, and one is lost for good: its cell is nowhere, though three others could stand in for one of
    /// three copies. That pool was said to be healthy.
    #[test]
    fn cells_that_nobody_can_have_are_missing() {
        let mut map = map_of(6);
        let class = ["RP_3G1", "EC_4P2G1"];
        assert_eq!(health(&map, class), (HealthState::Healthy, 3, 3));
        lose(&mut map, 1, true);
        assert_eq!(health(&map, class), (HealthState::Degraded, 3, 2));
        assert_eq!(health(&map, ["RP_3G1"; 2]), (HealthState::Healthy, 3, 3));
        // With a seventh engine somebody has it.
        let mut larger = map_of(7);
        lose(&mut larger, 1, true);
        assert_eq!(health(&larger, class), (HealthState::Healthy, 3, 3));
        lose(&mut map, 2, false);
        assert_eq!(health(&map, class), (HealthState::AtRisk, 3, 1));
        lose(&mut map, 3, false);
        assert_eq!(health(&map, class).0, HealthState::Unavailable);
        assert_eq!(health(&map, class).2, 0);
    }

    #[test]
    fn the_class_that_is_worst_off_counts() {
        let mut map = map_of(5);
        assert_eq!(health(&map, ["RP_2G1", "S1"]), (HealthState::Healthy, 1, 1));
        assert_eq!(health(&map, ["RP_2G1", "EC_2P2G1"]), (HealthState::Healthy, 2, 2));
        lose(&mut map, 4, false);
        assert_eq!(health(&map, ["RP_2G1", "EC_2P2G1"]), (HealthState::AtRisk, 2, 1));
        assert_eq!(health(&map, ["RP_2G1", "S1"]), (HealthState::Unavailable, 1, 0));
    }
}
