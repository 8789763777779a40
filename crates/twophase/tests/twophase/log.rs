//! The log of a target in the small world: what is known of the transaction in memory, and how much of that a crash leaves.

use smallvec::SmallVec;

/// How a part ended. A commit with its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fate {
    Committed(u8),
    Aborted,
}

/// One record; orders to members are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Record {
    Prepare,
    Decision(u8),
    Decide(Fate),
    Forget,
}

/// Records in memory, the first of them on stable storage.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Log {
    records: SmallVec<[Record; 8]>,
    written: u8,
    pub has_failed: bool,
}

impl Log {
    /// Records that change nothing are left out: what is asked twice would make ever new states.
    pub fn append(&mut self, record: Record) {
        let changes = match record {
            Record::Prepare => !self.is_held(),
            Record::Decide(_) => self.is_held(),
            Record::Decision(_) => self.decision().is_none(),
            Record::Forget => self.decision().is_some(),
        };
        if changes {
            self.records.push(record);
        }
    }

    pub fn is_held(&self) -> bool {
        let of_part = |record: &&Record| matches!(record, Record::Prepare | Record::Decide(_));
        self.records.iter().rfind(of_part) == Some(&Record::Prepare)
    }

    /// The epoch of the decision that is kept.
    pub fn decision(&self) -> Option<u8> {
        let last = self.records.iter().rev().find_map(|record| match record {
            Record::Decision(epoch) => Some(Some(*epoch)),
            Record::Forget => Some(None),
            _ => None,
        });
        last.flatten()
    }

    pub fn fate(&self) -> Option<Fate> {
        fate_in(&self.records)
    }

    /// What a crash cannot take back.
    pub fn written_fate(&self) -> Option<Fate> {
        fate_in(&self.records[..self.written as usize])
    }

    pub fn len(&self) -> u8 {
        self.records.len() as u8
    }

    pub fn is_written(&self) -> bool {
        self.written == self.len()
    }

    pub fn has_written(&self, len: u8) -> bool {
        self.written >= len
    }

    pub fn write(&mut self) {
        self.written = self.len();
    }

    /// How many records a crash may leave.
    pub fn left_by_crash(&self) -> std::ops::RangeInclusive<u8> {
        self.written..=self.len()
    }

    pub fn open_again(&mut self, left: u8) {
        self.records.truncate(left as usize);
        self.write();
        self.has_failed = false;
    }
}

/// One that took effect did, whatever became of a late second message to prepare it.
fn fate_in(records: &[Record]) -> Option<Fate> {
    let fates = records.iter().filter_map(|record| match record {
        Record::Decide(fate) => Some(*fate),
        _ => None,
    });
    fates.reduce(|first, next| if matches!(first, Fate::Committed(_)) { first } else { next })
}
