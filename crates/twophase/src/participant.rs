//! A part at the target that holds it: what has to stand before the coordinator hears of it, what a word of the coordinator means, and
//! what is done when no word comes.
//!
//! A part is held until it is decided; only its coordinator's group knows how. A participant that misses the
//! word asks, for ever: keys of a part in doubt are held from others. It ends when the part is not
//! held any more, whoever decided it, or when others lead all groups of the part: they have it, and ask.

use crate::pause::{Pause, Pauses};
use std::time::Duration;
use wire::obj::TxOutcome;

/// How firmly something has to stand before others hear of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Firmness {
    /// As the pool promises.
    Promised,
    /// On stable storage, whatever the pool promises: the parts are on several devices, and lost together or not at all.
    Written,
}

/// What to do about a word of the coordinator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// Decide the part here, and have the members of its group do so; acknowledge when that is written and they have.
    Decide,
    /// It was decided before. Acknowledge when all is written that the log has, and the members have all that was
    /// sent to them: the earlier word may still be on its way.
    Await,
    /// Acknowledge nothing yet: a member that is away, or back and behind, may hold the part still, and may lead later. The coordinator
    /// must not forget the outcome until then. To tell that member would be wrong by now: others may have changed the keys since.
    Refuse,
}

/// What was learned of a part in doubt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoubtEvent {
    /// Whether the part waits for its decision still, and whether other targets lead all its groups.
    Looked {
        is_held: bool,
        is_others: bool,
    },
    /// What the coordinator says.
    Answered(TxOutcome),
    /// It says nothing, or cannot.
    Unanswered,
    Decided,
    NotDecided,
}

/// What to do about a part in doubt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DoubtAction {
    /// After this time: see what [`DoubtEvent::Looked`] wants to know.
    Look { after: Duration },
    /// Ask who leads the coordinator's group now.
    Ask,
    /// As the coordinator says; never `Pending`.
    Decide(TxOutcome),
    /// Ask no more.
    End,
}

/// A part in doubt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Participant {
    pauses: Pauses,
    pause: Pause,
}

impl Participant {
    /// What has to stand before the coordinator hears that the part is held. Where the decision comes behind it in the same log
    /// nothing more is needed than for any update: without the one there is not the other.
    pub fn held(is_in_coordinators_log: bool) -> Firmness {
        match is_in_coordinators_log {
            true => Firmness::Promised,
            false => Firmness::Written,
        }
    }

    /// What the coordinator's word means for a part that is held here, or not (any more); `is_member_away`: not all members of
    /// its group are live and whole.
    pub fn told(outcome: TxOutcome, is_held: bool, is_member_away: bool) -> Told {
        match outcome {
            _ if is_held => Told::Decide,
            TxOutcome::Committed(_) if is_member_away => Told::Refuse,
            _ => Told::Await,
        }
    }

    /// No word has come for a while, the engine was started again, or groups have come to it.
    pub fn in_doubt(pauses: Pauses) -> (Participant, DoubtAction) {
        let participant = Participant { pauses, pause: pauses.begin() };
        (participant, DoubtAction::Look { after: Duration::ZERO })
    }

    /// Takes in what has happened; what is to be done then.
    pub fn step(&mut self, event: DoubtEvent) -> DoubtAction {
        match event {
            DoubtEvent::Looked { is_held: true, is_others: false } => DoubtAction::Ask,
            DoubtEvent::Looked { .. } | DoubtEvent::Decided => DoubtAction::End,
            DoubtEvent::Answered(TxOutcome::Pending)
            | DoubtEvent::Unanswered
            | DoubtEvent::NotDecided => DoubtAction::Look { after: self.pause.take(self.pauses) },
            DoubtEvent::Answered(outcome) => DoubtAction::Decide(outcome),
        }
    }
}
