//! Which dkeys have something that may be folded ([`crate::PoolShard::fold`]).

use std::cell::RefCell;
use std::collections::BTreeSet;

use types::{ContId, Unit};
use wire::footprint::{Brings, Changes};
use wire::obj::{Op, UpdateValue};

use crate::record::{ChangeDf, PlaceDf};

/// Dkeys of units of containers.
pub(crate) type Noted = BTreeSet<(ContId, Unit, Vec<u8>)>;

/// Dkeys under which something may be folded, in order.
#[derive(Default)]
pub(crate) struct FoldNotes(RefCell<Noted>);

impl FoldNotes {
    /// Notes a dkey under which something may be folded.
    pub(crate) fn note(&self, cont: ContId, unit: Unit, dkey: &[u8]) {
        self.0.borrow_mut().insert((cont, unit, dkey.to_vec()));
    }

    /// True when nothing is noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Takes all that is noted.
    pub(crate) fn take(&self) -> Noted {
        self.0.take()
    }

    /// Notes what an op writes, if that is of a class with an erasure code.
    pub(crate) fn note_op(&self, cont: ContId, op: &Op<'_>) {
        let unit = op.unit();
        if unit.is_cell() || unit.object.cells().is_none() {
            return;
        }
        let at = op.footprint();
        if let Brings::Values { dkey, iods } = at.brings
            && iods.iter().any(|iod| !matches!(iod.value, UpdateValue::Coded { .. }))
        {
            self.note(cont, unit, dkey);
        }
        // Of an image that was installed.
        if let Changes::Dkeys(dkeys) = at.changes {
            dkeys.iter().for_each(|dkey| self.note(cont, unit, dkey));
        }
    }

    /// The same of a change.
    pub(crate) fn note_change(&self, cont: ContId, change: &ChangeDf<'_>) {
        let may_be_folded = match change {
            ChangeDf::Records { place: PlaceDf::Coded(_), .. } => false,
            ChangeDf::Single { .. }
            | ChangeDf::SingleRuns { .. }
            | ChangeDf::Records { .. }
            | ChangeDf::PunchRecords { .. }
            // Of an image that was installed.
            | ChangeDf::PunchDkey { .. } => true,
            ChangeDf::PunchObj { .. }
            | ChangeDf::PunchDkeysFrom { .. }
            | ChangeDf::PunchAkey { .. } => false,
        };
        let (unit, dkey) = change.place();
        if let Some(dkey) = dkey.filter(|_| may_be_folded)
            && !unit.is_cell()
            && unit.object.cells().is_some()
        {
            self.note(cont, unit, dkey);
        }
    }
}
