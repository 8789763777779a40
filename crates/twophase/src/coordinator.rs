//! One transaction at its coordinator, the leader of the first part's group.
//!
//! All parts are prepared; the decision is written here and kept by all members of the group (the commit point);
//! the part here takes effect; the client is answered; the others are told until all have acknowledged; the decision is forgotten. When a part is refused
//! nothing is written: what is not known is aborted.
//!
//! What a decision's failed write has left nobody knows before the log is read again. Until then nobody is told anything
//! ([`Coordinator::is_pending`]). What leaders that changed have left is sent to the members once more, by whoever leads
//! and has it: first it must be in the log of that one, too, for it may be its only member.
//!
//! A commit is told until it is acknowledged, for a decision is kept until then. An abort is told once: who misses it asks.
//!
//! An event that does not fit (of a part that has answered, or a second time) changes nothing.

use crate::pause::{Pause, Pauses};
use smallvec::SmallVec;
use std::time::Duration;
use types::{Code, Epoch};
use wire::obj::TxOutcome;

/// What is to be done, in this order. What follows is begun without waiting for what was begun before.
pub type Actions = SmallVec<[Action; 4]>;

/// What the coordinator's target has learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A part is held; it may take effect at this epoch or a later one.
    Prepared { at: usize, epoch_min: Epoch },
    /// A part is not held, or nobody knows whether it is.
    Refused { at: usize, code: Code },
    /// A new epoch of the target's clock.
    Ticked(Epoch),
    /// The decision is known here, and on its way to the log and to the members of the group.
    Begun,
    /// It is neither, and nothing was written: the log takes nothing more, or another target leads the group.
    NotBegun,
    /// It is on stable storage here.
    Logged,
    /// The log has failed. What is in it shows when the engine is started again.
    LogFailed,
    /// All live members of the group have it.
    Settled,
    /// Leaders have changed before that was known.
    NotSettled,
    /// The part here took effect, or did not.
    OwnPart { took_effect: bool },
    /// A participant knows the outcome for good, and so do all members of its group.
    Acknowledged { at: usize },
    /// It has not said so. `is_stopping`: this engine is about to end.
    NotAcknowledged { at: usize, is_stopping: bool },
}

/// Why a transaction is not committed, as far as its client hears.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// For what was said of this part ([`Event::Refused`]).
    Part(usize),
    /// For what was said of the decision, or of its way.
    Decision,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Have a participant check and hold its part.
    Prepare { at: usize },
    /// Take an epoch from the clock.
    Tick,
    /// If this target leads the group: write the decision to the log with the client's answer, and send it to the members.
    WriteDecision { epoch: Epoch },
    /// If this target leads the group: send the decision, which it has, to the members once more.
    RepeatDecision { epoch: Epoch },
    /// Wait until the decision is on stable storage here.
    AwaitLog,
    /// Wait until all live members of the group have it.
    AwaitMembers,
    /// Let the part here take effect, before the client is answered: one that asks here next meets no held key.
    TakeEffect { epoch: Epoch },
    /// Tell the client that it is committed.
    Answer,
    /// Tell the client that it is not, or that nobody knows.
    Refuse(Refusal),
    /// After this time, tell a participant.
    Tell { at: usize, outcome: TxOutcome, after: Duration },
    /// Others may decide it now: ask them about the parts that are held here. Participants elsewhere ask when they hear nothing; for these that is us.
    AskHere,
    /// All participants know: forget the decision, here and with all members. Nobody waits for it: who leads next tells once more.
    Forget,
}

/// A transaction of some parts, the first one the coordinator's own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Coordinator {
    pauses: Pauses,
    parts: SmallVec<[Part; 4]>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Part {
    /// It has answered in this phase.
    is_done: bool,
    pause: Pause,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// So many parts have not answered. The least epoch for those that have, and which of them the client hears of.
    Preparing {
        left: usize,
        epoch_min: Epoch,
        failure: Option<(usize, Code)>,
    },
    /// All parts are held.
    Held {
        epoch_min: Epoch,
    },
    /// `is_first`: by who has made it.
    Deciding {
        epoch: Epoch,
        is_first: bool,
    },
    Logging {
        epoch: Epoch,
        is_first: bool,
    },
    Settling {
        epoch: Epoch,
        is_first: bool,
    },
    /// The log has failed meanwhile: pending until the engine is started again.
    Unknown,
    TakingEffect {
        epoch: Epoch,
    },
    /// So many participants are told still. Aborted without an epoch. `is_all`: no one was given up.
    Telling {
        epoch: Option<Epoch>,
        left: usize,
        is_all: bool,
    },
    Over,
}

impl Coordinator {
    /// A new transaction.
    pub fn begin(part_count: usize, pauses: Pauses, actions: &mut Actions) -> Coordinator {
        let epoch_min = Epoch::ZERO;
        let state = State::Preparing { left: part_count, epoch_min, failure: None };
        actions.extend((0..part_count).map(|at| Action::Prepare { at }));
        Coordinator::new(part_count, pauses, state)
    }

    /// One whose decision is known here, after a restart or a change of leaders: not all participants may know it.
    pub fn found(
        part_count: usize,
        epoch: Epoch,
        pauses: Pauses,
        actions: &mut Actions,
    ) -> Coordinator {
        actions.push(Action::RepeatDecision { epoch });
        Coordinator::new(part_count, pauses, State::Deciding { epoch, is_first: false })
    }

    fn new(part_count: usize, pauses: Pauses, state: State) -> Coordinator {
        let part = Part { is_done: false, pause: pauses.begin() };
        Coordinator { pauses, parts: SmallVec::from_elem(part, part_count), state }
    }

    /// True as long as it may become either: who asks for the outcome hears no more than that.
    pub fn is_pending(&self) -> bool {
        match self.state {
            State::Preparing { .. } | State::Held { .. } | State::Unknown => true,
            State::Deciding { is_first, .. }
            | State::Logging { is_first, .. }
            | State::Settling { is_first, .. } => is_first,
            State::TakingEffect { .. } | State::Telling { .. } | State::Over => false,
        }
    }

    /// True when nothing more is to be done.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Takes in what has happened, and appends what is to be done.
    pub fn step(&mut self, event: Event, actions: &mut Actions) {
        match (self.state, event) {
            (State::Preparing { .. }, Event::Prepared { at, .. } | Event::Refused { at, .. })
                if self.is_first_word(at) =>
            {
                self.answered(event, actions);
            }
            (State::Held { epoch_min }, Event::Ticked(now)) => {
                let epoch = epoch_min.max(now);
                self.state = State::Deciding { epoch, is_first: true };
                actions.push(Action::WriteDecision { epoch });
            }
            (State::Deciding { epoch, is_first }, Event::Begun) => {
                self.state = State::Logging { epoch, is_first };
                actions.push(Action::AwaitLog);
            }
            (State::Deciding { is_first: true, .. }, Event::NotBegun) => {
                // Nobody can decide otherwise any more.
                actions.push(Action::Refuse(Refusal::Decision));
                self.tell(None, actions);
            }
            // Who leads the group now does the rest, if it has the decision.
            (State::Deciding { is_first: false, .. }, Event::NotBegun)
            | (State::Settling { is_first: false, .. }, Event::NotSettled) => {
                self.state = State::Over;
                actions.push(Action::AskHere);
            }
            (State::Logging { epoch, is_first }, Event::Logged) => {
                self.state = State::Settling { epoch, is_first };
                actions.push(Action::AwaitMembers);
            }
            (State::Logging { is_first: true, .. }, Event::LogFailed) => {
                self.state = State::Unknown;
                actions.push(Action::Refuse(Refusal::Decision));
            }
            (State::Logging { is_first: false, .. }, Event::LogFailed) => self.state = State::Over,
            (State::Settling { epoch, is_first: true }, Event::Settled) => {
                self.state = State::TakingEffect { epoch };
                actions.push(Action::TakeEffect { epoch });
            }
            (State::Settling { epoch, is_first: true }, Event::NotSettled) => {
                // Who comes again is answered when all members have it, if this target leads still.
                self.state = State::Deciding { epoch, is_first: false };
                actions.push(Action::RepeatDecision { epoch });
                actions.push(Action::Refuse(Refusal::Decision));
            }
            (State::Settling { epoch, is_first: false }, Event::Settled) => {
                self.tell(Some(epoch), actions);
            }
            (State::TakingEffect { epoch }, Event::OwnPart { .. }) => {
                // Also when it has no effect yet: it is committed, and the others must hear it. Ours is tried again with theirs.
                actions.push(Action::Answer);
                self.tell(Some(epoch), actions);
            }
            (State::Telling { .. }, Event::Acknowledged { at }) if self.is_first_word(at) => {
                self.end_telling(true, actions);
            }
            (State::Telling { epoch, .. }, Event::NotAcknowledged { at, is_stopping }) => {
                let Some(part) = self.parts.get_mut(at).filter(|part| !part.is_done) else {
                    return;
                };
                match epoch {
                    // It is told again after the restart.
                    Some(epoch) if !is_stopping => {
                        let after = part.pause.take(self.pauses);
                        let outcome = TxOutcome::Committed(epoch);
                        actions.push(Action::Tell { at, outcome, after });
                    }
                    _ => {
                        part.is_done = true;
                        self.end_telling(false, actions);
                    }
                }
            }
            _ => {}
        }
    }

    /// Notes that a part has answered in this phase; false when it has before, or there is none.
    fn is_first_word(&mut self, at: usize) -> bool {
        let Some(part) = self.parts.get_mut(at) else { return false };
        !std::mem::replace(&mut part.is_done, true)
    }

    /// One more part has answered whether it is held.
    fn answered(&mut self, event: Event, actions: &mut Actions) {
        let State::Preparing { left, epoch_min, failure } = &mut self.state else { return };
        *left -= 1;
        match (event, *failure) {
            (Event::Prepared { epoch_min: of_part, .. }, _) => {
                *epoch_min = of_part.max(*epoch_min);
            }
            (Event::Refused { at, code }, before)
                if before.is_none_or(|(_, said)| weight(code) > weight(said)) =>
            {
                *failure = Some((at, code));
            }
            _ => {}
        }
        if *left > 0 {
            return;
        }
        match *failure {
            Some((at, _)) => {
                actions.push(Action::Refuse(Refusal::Part(at)));
                self.tell(None, actions);
            }
            None => {
                self.state = State::Held { epoch_min: *epoch_min };
                actions.push(Action::Tick);
            }
        }
    }

    fn tell(&mut self, epoch: Option<Epoch>, actions: &mut Actions) {
        self.parts.iter_mut().for_each(|part| part.is_done = false);
        self.state = State::Telling { epoch, left: self.parts.len(), is_all: true };
        let outcome = epoch.map_or(TxOutcome::Aborted, TxOutcome::Committed);
        let after = Duration::ZERO;
        actions.extend((0..self.parts.len()).map(|at| Action::Tell { at, outcome, after }));
    }

    /// One participant less is to be told.
    fn end_telling(&mut self, is_acknowledged: bool, actions: &mut Actions) {
        let State::Telling { epoch, left, is_all } = &mut self.state else { return };
        *left -= 1;
        *is_all &= is_acknowledged;
        if *left > 0 {
            return;
        }
        if epoch.is_some() && *is_all {
            actions.push(Action::Forget);
        }
        self.state = State::Over;
    }
}

/// How much a refusal says. A condition that does not hold at one part may be so because of what has changed at another one since the transaction read it: then that counts,
/// and the transaction is to look again. What is wrong otherwise says more than either.
fn weight(code: Code) -> u32 {
    match code {
        Code::Exist | Code::NonExist | Code::NotEmpty => 0,
        Code::TxRestart => 1,
        _ => 2,
    }
}
