//! A small world around the machines: the members of a coordinator's group, participants elsewhere, what is on its way
//! between them, a client. It is the driver of the machines, as `crates/engine/src/commit.rs` is, and can have that one's defects.
//!
//! Nodes have a log, whose first records are written; a crash leaves these and any number of the others. Messages are there or not: two equal ones
//! are one. A reply comes to whoever has a call open. Members of the group lead one after the other: who is replaced may be alive and not know it, and comes
//! not back. The members' streams of orders are as in `crates/engine/src/streams.rs`: an order is settled when all members that
//! the leader knows of have written it, and one of an older leader is refused.

use crate::log::{Fate, Log};
use crate::member::Member;
use smallvec::SmallVec;
use std::time::Duration;
use twophase::{DoubtAction, DoubtEvent, Participant, Pauses};
use types::Epoch;
use wire::obj::TxOutcome;

/// One pause: longer ones decide nothing.
pub const PAUSES: Pauses = Pauses { min: Duration::from_millis(1), max: Duration::from_millis(1) };
/// What the leader's clock says.
pub const NOW: u8 = 6;
/// Least epochs of the group's own part and of the participants'.
pub const EPOCHS_MIN: [u8; 3] = [3, 5, 8];

/// What must not be.
pub type Wrong = &'static str;

/// A defect of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// A decision goes on before its log write is known.
    ToldBeforeWritten,
    /// And after it has failed.
    ToldAfterFailure,
    /// A decision goes on before the members have it.
    ToldBeforeSettled,
    /// A decision that was found goes on before it is written where it was found.
    RepeatedBeforeWritten,
    /// Who asks is told such a decision.
    AnsweredBeforeWritten,
    /// A participant that gives no answer counts as one that has acknowledged.
    ForgottenTooEarly,
    /// "Aborted" is told of what is not known, and members may know it.
    MembersNotToldToForget,
    /// "Committed" is told of what a leader has found, and members may not know it.
    MembersNotToldBefore,
    /// "Aborted" is told while a coordinator is at work.
    AbortedWhilePending,
    /// A participant says that it holds a part, which is not written.
    PreparedBeforeWritten,
    /// It acknowledges a decision, which is not written.
    AcknowledgedBeforeWritten,
    /// A commit is told once.
    ToldOnce,
    /// A participant that was opened again does not ask.
    NobodyAsks,
    /// A coordinator that cannot write its decision tells nobody.
    NothingToldUnwritten,
    /// A coordinator that is replaced does not ask about the parts that its target holds.
    NobodyAsksHere,
}

/// What a world consists of, and how it is carried on.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub member_count: usize,
    pub remote_count: usize,
    /// How many things may go wrong.
    pub fault_count: u8,
    /// The first participant's part is of an object that only the first member's target has: nothing is lost between them,
    /// and it does not ask because it hears nothing.
    pub is_first_local: bool,
    pub defect: Option<Defect>,
}

impl Rules {
    pub fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }
}

/// A participant elsewhere, and what is on its way to it and from it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Remote {
    pub is_up: bool,
    pub log: Log,
    /// Asks, when it has one.
    pub doubt: Option<Participant>,
    /// A call of its is open.
    pub is_asking: bool,
    /// It will ask, as it has heard nothing.
    pub may_doubt: bool,
    /// It says that it holds its part when that is written.
    pub owes_prepared: bool,
    /// Members to which it acknowledges when that is written, by bit.
    pub owes_acks: u8,
    pub prepare: bool,
    pub prepared: Option<bool>,
    /// Who has sent a decision: commits, aborts.
    pub decides: [u8; 2],
    pub acks: u8,
    pub ask: bool,
    /// By [`number_of`].
    pub answers: u8,
}

/// The state of all.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    pub members: SmallVec<[Member; 3]>,
    pub remotes: SmallVec<[Remote; 2]>,
    /// Who leads the group by the newest map.
    pub leader: usize,
    pub faults_left: u8,
    /// The client was told that it is committed.
    pub is_client_sure: bool,
    /// Of the decision that was made.
    pub epoch: Option<u8>,
    has_committed: bool,
    has_aborted: bool,
    was_told_aborted: bool,
}

/// Bit of a fate in [`Remote::decides`].
pub fn side_of(fate: Fate) -> usize {
    matches!(fate, Fate::Aborted) as usize
}

pub fn fate_of(outcome: TxOutcome) -> Option<Fate> {
    match outcome {
        TxOutcome::Committed(epoch) => Some(Fate::Committed(epoch.0 as u8)),
        TxOutcome::Aborted => Some(Fate::Aborted),
        TxOutcome::Pending => None,
    }
}

pub fn number_of(outcome: TxOutcome) -> usize {
    match outcome {
        TxOutcome::Pending => 0,
        TxOutcome::Aborted => 1,
        TxOutcome::Committed(_) => 2,
    }
}

impl World {
    pub fn new(rules: &Rules) -> Result<World, Wrong> {
        let remote = Remote { is_up: true, ..Remote::default() };
        let mut world = World {
            members: (0..rules.member_count)
                .map(|at| Member::new(at, rules.member_count))
                .collect(),
            remotes: SmallVec::from_elem(remote, rules.remote_count),
            leader: 0,
            faults_left: rules.fault_count,
            is_client_sure: false,
            epoch: None,
            has_committed: false,
            has_aborted: false,
            was_told_aborted: false,
        };
        world.begin(rules)?;
        Ok(world)
    }

    /// The outcome on its way from a coordinator.
    pub fn outcome(&self, number: usize) -> TxOutcome {
        match number {
            0 => TxOutcome::Pending,
            1 => TxOutcome::Aborted,
            _ => TxOutcome::Committed(Epoch(self.epoch.unwrap_or(0) as u64)),
        }
    }

    /// A part takes effect or is dropped. One that was prepared a second time by a late message had its effect before.
    pub fn note_fate(&mut self, before: Option<Fate>, fate: Fate) -> Result<(), Wrong> {
        match fate {
            Fate::Committed(epoch) => {
                self.has_committed = true;
                if self.epoch != Some(epoch)
                    || EPOCHS_MIN[..=self.remotes.len()].iter().any(|min| epoch < *min)
                {
                    return Err("a part takes effect at another epoch, or before it can");
                }
                if self.was_told_aborted {
                    return Err("a part takes effect after another one was told that it does not");
                }
            }
            Fate::Aborted if !matches!(before, Some(Fate::Committed(_))) => self.has_aborted = true,
            Fate::Aborted => {}
        }
        if self.has_committed && self.has_aborted {
            return Err("one part takes effect and another is dropped");
        }
        self.check_client()
    }

    pub fn check_client(&self) -> Result<(), Wrong> {
        match self.is_client_sure && (self.has_aborted || self.was_told_aborted) {
            true => Err("a client was told that it is committed, and it is not"),
            false => Ok(()),
        }
    }

    /// A participant is about to be told.
    pub fn note_told(&mut self, remote: usize, outcome: TxOutcome) -> Result<(), Wrong> {
        let is_done = matches!(self.remotes[remote].log.fate(), Some(Fate::Committed(_)));
        if outcome == TxOutcome::Aborted && !is_done {
            self.was_told_aborted = true;
            if self.has_committed {
                return Err(
                    "a participant is told that its part is dropped, and another took effect",
                );
            }
        }
        self.check_client()
    }

    /// A decision is about to be forgotten by a member.
    pub fn check_forgetting(&self, member: usize) -> Result<(), Wrong> {
        let took_effect = |log: &Log| matches!(log.written_fate(), Some(Fate::Committed(_)));
        let followers = self.members[member].followers();
        let in_group = followers.chain([member]).all(|at| took_effect(&self.members[at].log));
        match in_group && self.remotes.iter().all(|remote| took_effect(&remote.log)) {
            true => Ok(()),
            false => Err("a decision is forgotten, and a participant may ask for it"),
        }
    }

    /// True when nothing is left to do; then it must be well.
    pub fn is_over(&self) -> Result<bool, Wrong> {
        let leader = &self.members[self.leader];
        let is_over = leader.is_idle()
            && self
                .remotes
                .iter()
                .all(|remote| remote.is_up && !remote.log.is_held() && remote.doubt.is_none());
        if is_over && (self.has_committed || self.is_client_sure) {
            let logs = self.remotes.iter().map(|remote| &remote.log).chain([&leader.log]);
            let took_effect = |log: &Log| matches!(log.fate(), Some(Fate::Committed(_)));
            if !logs.into_iter().all(took_effect) {
                return Err("one part took effect, and another is lost");
            }
        }
        Ok(is_over)
    }

    pub fn decide_remote(&mut self, at: usize, fate: Fate) -> Result<(), Wrong> {
        let log = &mut self.remotes[at].log;
        if !log.is_held() {
            return Ok(());
        }
        let before = log.fate();
        log.append(crate::log::Record::Decide(fate));
        self.note_fate(before, fate)
    }

    /// It begins to ask, unless it does.
    pub fn doubt(&mut self, at: usize) -> Result<(), Wrong> {
        if self.remotes[at].doubt.is_some() {
            return Ok(());
        }
        let (participant, action) = Participant::in_doubt(PAUSES);
        self.remotes[at].doubt = Some(participant);
        self.carry_out_doubt(at, action)
    }

    pub fn step_doubt(&mut self, at: usize, event: DoubtEvent) -> Result<(), Wrong> {
        let Some(participant) = &mut self.remotes[at].doubt else { return Ok(()) };
        let action = participant.step(event);
        self.carry_out_doubt(at, action)
    }

    fn carry_out_doubt(&mut self, at: usize, mut action: DoubtAction) -> Result<(), Wrong> {
        loop {
            let event = match action {
                DoubtAction::Look { .. } => {
                    let is_held = self.remotes[at].log.is_held();
                    DoubtEvent::Looked { is_held, is_others: false }
                }
                DoubtAction::Ask => {
                    let remote = &mut self.remotes[at];
                    (remote.ask, remote.is_asking) = (true, true);
                    return Ok(());
                }
                DoubtAction::Decide(outcome) => {
                    if let Some(fate) = fate_of(outcome) {
                        self.decide_remote(at, fate)?;
                    }
                    DoubtEvent::Decided
                }
                DoubtAction::End => {
                    self.remotes[at].doubt = None;
                    return Ok(());
                }
            };
            let Some(participant) = &mut self.remotes[at].doubt else { return Ok(()) };
            action = participant.step(event);
        }
    }
}
