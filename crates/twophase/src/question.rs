//! What the leader of a coordinator's group says to a participant that asks for the outcome.
//!
//! A transaction that it neither works on nor has a decision of is aborted: the decision was never made, or all participants know it. But
//! another member may have a decision that a leader, now lost, was about to make. So before anybody hears "aborted"
//! all members forget the transaction: whoever leads later says the same. And before anybody hears "committed" the decision stands: in the log here, and with all members.
//!
//! Members are told so by themselves, not among the orders: who asks may be one of them, and hold orders up until it is answered.

use types::Epoch;
use wire::obj::TxOutcome;

/// What is to be done before a participant is answered. Where it fails, the participant gets the error and asks again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuestionAction {
    /// Have all members of the group forget a decision of the transaction, and wait until they have.
    HaveMembersForget,
    /// Wait until all that is in the log so far is on stable storage.
    AwaitLog,
    /// Have all members of the group know the decision, and wait until they do.
    HaveMembersKnow,
    Answer(TxOutcome),
}

/// A participant's question, from when it is asked until it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Question {
    /// The epoch of the decision.
    committed: Option<Epoch>,
    is_pending: bool,
    next: Next,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Next {
    First,
    Members,
    Answer,
}

impl Question {
    /// By what is known when it is asked: whether a coordinator is at work on it here
    /// ([`crate::Coordinator::is_pending`]), and the epoch of its decision if one is kept.
    pub fn asked(is_pending: bool, decision: Option<Epoch>) -> Question {
        let committed = decision.filter(|_| !is_pending);
        Question { committed, is_pending, next: Next::First }
    }

    /// What is to be done next, the one before being done.
    pub fn step(&mut self) -> QuestionAction {
        let next = std::mem::replace(&mut self.next, Next::Answer);
        match (next, self.committed) {
            (_, None) if self.is_pending => QuestionAction::Answer(TxOutcome::Pending),
            (Next::First, Some(_)) => {
                self.next = Next::Members;
                QuestionAction::AwaitLog
            }
            (Next::Members, Some(_)) => QuestionAction::HaveMembersKnow,
            (Next::First | Next::Members, None) => QuestionAction::HaveMembersForget,
            (Next::Answer, Some(epoch)) => QuestionAction::Answer(TxOutcome::Committed(epoch)),
            (Next::Answer, None) => QuestionAction::Answer(TxOutcome::Aborted),
        }
    }
}
