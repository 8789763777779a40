//! Where array values have just ceased to name stripes, so that whoever leads there can tell those who keep their cells.
//!
//! It is noted in the step in which it happens, of what no snapshot sees. Nothing depends on a note: what is not noted, because a
//! process was started again or there was no room for more, is found by those who look at all cells from time to time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use types::{ContId, Unit};
use wire::cell::Dkeys;
use wire::footprint::Changes;
use wire::obj::Op;

use crate::record::ChangeDf;

/// Most units noted, and most dkeys of all of them together: some megabytes.
const UNITS_MAX: usize = 4096;
const KEYS_MAX: usize = 16_384;

/// Dkeys of a unit under which a stripe may have lost its name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Noted {
    /// Whatever dkey.
    is_all: bool,
    /// Integer dkeys from this one upwards.
    from: Option<u64>,
    keys: BTreeSet<Vec<u8>>,
}

#[derive(Default)]
struct State {
    units: BTreeMap<(ContId, Unit), Noted>,
    /// Single dkeys noted in all units.
    key_count: usize,
}

/// Where stripes have lost their names.
#[derive(Default)]
pub(crate) struct UnnamedNotes(RefCell<State>);

impl UnnamedNotes {
    /// Notes where a change may have left stripes without a name.
    pub(crate) fn note_change(&self, cont: ContId, change: &ChangeDf<'_>) {
        let unit = change.unit();
        match *change {
            ChangeDf::PunchObj { .. } => self.note(cont, unit, Dkeys::All),
            ChangeDf::PunchDkeysFrom { from, .. } => self.note(cont, unit, Dkeys::From(from)),
            ChangeDf::Single { dkey, .. }
            | ChangeDf::SingleRuns { dkey, .. }
            | ChangeDf::Records { dkey, .. }
            | ChangeDf::PunchRecords { dkey, .. }
            | ChangeDf::PunchDkey { dkey, .. }
            | ChangeDf::PunchAkey { dkey, .. } => self.note(cont, unit, one(dkey)),
        }
    }

    /// The same of an op.
    pub(crate) fn note_op(&self, cont: ContId, op: &Op<'_>) {
        let unit = op.unit();
        match op.footprint().changes {
            Changes::Nothing | Changes::Unnamed => {}
            Changes::Dkey(dkey) | Changes::Akeys { dkey, .. } => self.note(cont, unit, one(dkey)),
            Changes::Dkeys(dkeys) => dkeys.iter().for_each(|dkey| self.note(cont, unit, one(dkey))),
            Changes::DkeysFrom(from) => self.note(cont, unit, Dkeys::From(from)),
            Changes::All => self.note(cont, unit, Dkeys::All),
        }
    }

    /// Notes dkeys of a unit, if it can have stripes and there is room.
    pub(crate) fn note(&self, cont: ContId, unit: Unit, dkeys: Dkeys) {
        if unit.is_cell() || unit.object.cells().is_none() {
            return;
        }
        let state = &mut *self.0.borrow_mut();
        let of = (cont, unit);
        if state.units.len() >= UNITS_MAX && !state.units.contains_key(&of) {
            return;
        }
        let noted = state.units.entry(of).or_default();
        match dkeys {
            Dkeys::All => {
                state.key_count -= noted.keys.len();
                *noted = Noted { is_all: true, ..Noted::default() };
            }
            _ if noted.is_all => {}
            Dkeys::From(from) => {
                noted.from = Some(noted.from.map_or(from, |known| known.min(from)));
            }
            Dkeys::These(keys) => {
                for key in keys {
                    if state.key_count >= KEYS_MAX {
                        break;
                    }
                    state.key_count += noted.keys.insert(key.into_vec()) as usize;
                }
            }
        }
    }

    /// True when nothing is noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().units.is_empty()
    }

    /// Takes all that is noted.
    pub(crate) fn take(&self) -> Vec<(ContId, Unit, Dkeys)> {
        let State { units, .. } = self.0.take();
        let mut all = Vec::with_capacity(units.len());
        for ((cont, unit), Noted { is_all, from, keys }) in units {
            if is_all {
                all.push((cont, unit, Dkeys::All));
                continue;
            }
            all.extend(from.map(|from| (cont, unit, Dkeys::From(from))));
            if !keys.is_empty() {
                let keys = keys.into_iter().map(Into::into).collect();
                all.push((cont, unit, Dkeys::These(keys)));
            }
        }
        all
    }
}

fn one(dkey: &[u8]) -> Dkeys {
    Dkeys::These(vec![dkey.to_vec().into()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ObjType, Oid};

    fn unit(number: u64) -> Unit {
        let class = "EC_2P1G1".parse().unwrap();
        Oid::generate(0, number, ObjType::ArrayByte, class, 0).unit(0)
    }

    #[test]
    fn what_is_noted_is_taken_once_and_never_grows_without_end() {
        let notes = UnnamedNotes::default();
        let cont = ContId(1);
        notes.note(cont, unit(1), one(b"a"));
        notes.note(cont, unit(1), one(b"a"));
        notes.note(cont, unit(1), Dkeys::From(9));
        notes.note(cont, unit(1), Dkeys::From(7));
        notes.note(cont, unit(2), one(b"b"));
        notes.note(cont, unit(2), Dkeys::All);
        notes.note(cont, unit(2), one(b"c"));
        let expected = vec![
            (cont, unit(1), Dkeys::From(7)),
            (cont, unit(1), one(b"a")),
            (cont, unit(2), Dkeys::All),
        ];
        let mut taken = notes.take();
        taken.sort_by_key(|(_, of, _)| *of != unit(1));
        assert_eq!(taken, expected);
        assert!(notes.is_empty());

        for number in 0..2 * UNITS_MAX as u64 {
            notes.note(cont, unit(number), Dkeys::All);
        }
        assert_eq!(notes.take().len(), UNITS_MAX);
        for number in 0..2 * KEYS_MAX as u64 {
            notes.note(cont, unit(1), one(&number.to_le_bytes()));
        }
        let taken = notes.take();
        assert!(matches!(&taken[..], [(_, _, Dkeys::These(keys))] if keys.len() == KEYS_MAX));
    }
}
