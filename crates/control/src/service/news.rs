//! What the service tells whoever keeps the events of its engine: engines and targets with other states, moves of data.
//!
//! Told is what has been committed, once; a change that is made and pushed again says nothing.

use super::Service;
use crate::records::PoolDf;
use std::collections::BTreeMap;
use std::rc::Rc;
use types::{Rank, TargetId};
use wire::control::MemberState;
use wire::event::{EventCode, Happened};
use wire::map::{DownReason, TargetState};

/// Who is told.
pub type Teller = Rc<dyn Fn(Happened)>;

impl Service {
    /// Tells `teller` from now on.
    pub fn tell_to(&self, teller: Teller) {
        self.teller.replace(Some(teller));
    }

    pub(super) fn tell(&self, happened: Happened) {
        let teller = self.teller.borrow().clone();
        if let Some(teller) = teller {
            teller(happened);
        }
    }

    /// An engine has another state now.
    pub(super) fn tell_member(&self, rank: Rank, state: MemberState, why: &str) {
        let code = match state {
            // It is told of when it is up.
            MemberState::Joining => return,
            MemberState::Up => EventCode::EngineUp,
            MemberState::Down => EventCode::EngineDown,
            MemberState::Stopped => EventCode::EngineStopped,
            MemberState::Excluded => EventCode::EngineExcluded,
        };
        let said = match state {
            MemberState::Up => "up",
            MemberState::Down => "down",
            MemberState::Stopped => "stopped",
            MemberState::Excluded => "excluded",
            MemberState::Joining => "joining",
        };
        let what = format!("engine {rank} is {said}: {why}");
        self.tell(Happened::new(code, what).of_engine(rank));
    }

    /// The targets that have another state with the newest map of a pool, those with the same one together.
    pub(super) fn tell_targets(&self, pool: &PoolDf) {
        let mut changed: BTreeMap<(EventCode, &str), Vec<TargetId>> = BTreeMap::new();
        for target in pool.targets.iter().filter(|target| target.since == pool.map_version) {
            if let Some(said) = said(target.state, target.reason) {
                changed.entry(said).or_default().push(target.id);
            }
        }
        for ((code, why), targets) in changed {
            let ids: Vec<String> = targets.iter().map(|id| id.to_string()).collect();
            let (noun, verb) =
                if targets.len() == 1 { ("target", "is") } else { ("targets", "are") };
            let what = format!("{noun} {} of pool '{}' {verb} {why}", ids.join(", "), pool.name());
            let happened = Happened::new(code, what).of_pool(pool.id);
            self.tell(match targets[..] {
                [one] => happened.of_target(one),
                _ => happened,
            });
        }
    }
}

/// What there is to say of a target that has come to a state.
fn said(state: TargetState, reason: Option<DownReason>) -> Option<(EventCode, &'static str)> {
    match (state, reason) {
        (TargetState::Up, _) => Some((EventCode::TargetUp, "up")),
        // It serves as it did; what becomes of it is told when it is through.
        (TargetState::Drain | TargetState::New, _) => None,
        (_, Some(DownReason::Behind)) => Some((EventCode::TargetBehind, "behind, and catching up")),
        // The engine may be there, and refuse for this target.
        (_, Some(DownReason::Silent)) => {
            Some((EventCode::TargetDown, "down: no answer from there"))
        }
        (_, Some(DownReason::Stopped)) => {
            Some((EventCode::TargetDown, "down: the engine has stopped"))
        }
        (_, Some(DownReason::Excluded)) => Some((EventCode::TargetDown, "down: excluded")),
        (_, Some(DownReason::Lost)) => {
            Some((EventCode::TargetDown, "down: the store was wiped or exchanged"))
        }
        (TargetState::Down | TargetState::DownOut, None) => Some((EventCode::TargetDown, "down")),
    }
}
