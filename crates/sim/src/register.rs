//! One key of a key-value object, as one copy of it would answer.

use crate::linearizable::Spec;

/// What a key can be asked. Values are unique: no two writes of a run write the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The value.
    Get,
    /// Whether there is one.
    Exists,
    /// To take a value.
    Put(u64),
    /// To take a value if there is none.
    Insert(u64),
    /// To take a value if there is one.
    Replace(u64),
    /// To be gone.
    Remove,
    /// To be gone, if there is a value.
    RemoveExisting,
    /// The part of a transaction: it saw `from`, and writes `to`.
    Swap {
        /// The value read.
        from: Option<u64>,
        /// The value written; `None` when it only reads.
        to: Option<u64>,
        /// Once answered it survives crashes, whatever others do.
        is_kept: bool,
    },
}

/// What a key answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is so.
    Done,
    /// There is a value already.
    Exist,
    /// There is none.
    NonExist,
    /// The value.
    Found(Option<u64>),
    /// Whether there is one.
    Is(bool),
    /// A transaction lost a conflict, and nothing is changed.
    Lost,
}

/// A key: a value, or none.
pub struct Register;

impl Spec for Register {
    type State = Option<u64>;
    type Op = Asked;
    type Ret = Said;

    fn step(&self, state: &Option<u64>, op: &Asked, ret: Option<&Said>) -> Option<Option<u64>> {
        let (said, after) = match *op {
            Asked::Get => (Said::Found(*state), *state),
            Asked::Exists => (Said::Is(state.is_some()), *state),
            Asked::Put(value) => (Said::Done, Some(value)),
            Asked::Insert(value) if state.is_none() => (Said::Done, Some(value)),
            Asked::Insert(_) => (Said::Exist, *state),
            Asked::Replace(value) if state.is_some() => (Said::Done, Some(value)),
            Asked::RemoveExisting if state.is_some() => (Said::Done, None),
            Asked::Replace(_) | Asked::RemoveExisting => (Said::NonExist, *state),
            Asked::Remove => (Said::Done, None),
            // Conflicts may be with what is not seen of this key.
            Asked::Swap { .. } if ret == Some(&Said::Lost) => (Said::Lost, *state),
            Asked::Swap { from, to, .. } if *state == from => (Said::Done, to.or(*state)),
            Asked::Swap { .. } => (Said::Lost, *state),
        };
        ret.is_none_or(|ret| *ret == said).then_some(after)
    }

    fn is_kept(&self, op: &Asked) -> bool {
        matches!(op, Asked::Swap { is_kept: true, .. })
    }

    fn is_read(&self, op: &Asked, ret: &Said) -> bool {
        let is_question = matches!(op, Asked::Get | Asked::Exists | Asked::Swap { to: None, .. });
        is_question || matches!(ret, Said::Exist | Said::NonExist | Said::Lost)
    }
}
