//! What was changed and is not on stable storage yet: a crash can take it back, so nobody is shown it.
//!
//! By dkey, so that reads of one do not wait for updates of another; listings, queries, sizes and conditions on an
//! object depend on all of its unit. Pools that acknowledge before they write (`relaxed`) or never write (`memory`)
//! promise less, and keep nothing here.
//!
//! Decisions of prepared transactions are not noted: part and decision are on stable storage before a part takes effect.

use std::cell::RefCell;
use std::collections::VecDeque;

use types::map::HashMap;
use types::{ContId, Unit};
use wire::obj::Op;

use crate::Lsn;
use crate::locks::{self, Part};
use crate::record::ChangeDf;
use crate::summary::Summary;

/// What a record has changed, or a read depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Scope {
    /// Something of the unit.
    Any,
    /// All of the unit.
    Whole,
    /// A dkey, by its hash. Two that share it wait for each other.
    Dkey(u64),
}

type Place = (ContId, Unit, Scope);

/// Places changed by records that are not on stable storage yet, or were not when it was last looked. What holds
/// of records and stable storage may hold of other counts and places that have to hear of a change.
#[derive(Debug, Default)]
pub struct Unsettled {
    /// The newest record of each.
    newest: HashMap<Place, Lsn>,
    /// All that was noted, in the order of the log.
    order: VecDeque<(Lsn, Place)>,
    /// The newest record that changed all of some unit.
    whole: Lsn,
}

impl Unsettled {
    /// True when nothing is noted.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Forgets what is durable; true when nothing is left.
    pub fn settle(&mut self, durable: Lsn) -> bool {
        if self.order.back().is_none_or(|(last, _)| *last <= durable) {
            self.newest.clear();
            self.order.clear();
            return true;
        }
        while let Some((lsn, place)) = self.order.front().copied()
            && lsn <= durable
        {
            if self.newest.get(&place) == Some(&lsn) {
                self.newest.remove(&place);
            }
            self.order.pop_front();
        }
        false
    }

    fn note(&mut self, lsn: Lsn, place: Place) {
        if self.newest.insert(place, lsn) != Some(lsn) {
            self.order.push_back((lsn, place));
        }
    }

    /// Notes what the ops of a record change.
    pub fn note_ops(&mut self, lsn: Lsn, cont: ContId, ops: &[Op<'_>]) {
        locks::claims(&[], ops, &mut |claim| {
            match &claim.of {
                Part::DkeyExclusive(dkey) => self.note_place(lsn, cont, claim.unit, Some(dkey)),
                Part::AllExclusive => self.note_place(lsn, cont, claim.unit, None),
                // What moves is named beside.
                Part::Exists | Part::AllShared | Part::DkeyShared(_) | Part::Moving(..) => {}
            }
        });
    }

    /// Notes that a record changes a dkey of a unit, or all of it.
    pub fn note_place(&mut self, lsn: Lsn, cont: ContId, unit: Unit, dkey: Option<&[u8]>) {
        let changed = match dkey {
            Some(dkey) => Scope::Dkey(types::hash::bytes(dkey)),
            None => {
                self.whole = lsn;
                Scope::Whole
            }
        };
        self.note(lsn, (cont, unit, changed));
        self.note(lsn, (cont, unit, Scope::Any));
    }

    /// The newest record that has changed anything of a unit; zero when none is noted.
    pub fn newest_of(&self, cont: ContId, unit: Unit) -> Lsn {
        self.newest(cont, unit, Scope::Any)
    }

    fn newest(&self, cont: ContId, unit: Unit, scope: Scope) -> Lsn {
        self.newest.get(&(cont, unit, scope)).copied().unwrap_or_default()
    }

    /// The newest record that a batch can see; zero when all of them are durable.
    pub fn seen(&self, durable: Lsn, cont: ContId, batch: &Summary) -> Lsn {
        let mut seen = Lsn::default();
        for claim in &batch.claims {
            let newest = match &claim.of {
                Part::DkeyShared(dkey) | Part::DkeyExclusive(dkey) => {
                    let of_key =
                        self.newest(cont, claim.unit, Scope::Dkey(types::hash::bytes(dkey)));
                    match self.whole > durable {
                        true => of_key.max(self.newest(cont, claim.unit, Scope::Whole)),
                        false => of_key,
                    }
                }
                Part::Exists | Part::AllShared | Part::AllExclusive | Part::Moving(..) => {
                    self.newest(cont, claim.unit, Scope::Any)
                }
            };
            seen = seen.max(newest);
        }
        seen
    }
}

/// What ops change: dkeys of units, and whole units (`None`).
pub fn changed_places(ops: &[Op<'_>], each: &mut dyn FnMut(Unit, Option<&[u8]>)) {
    locks::claims(&[], ops, &mut |claim| match &claim.of {
        Part::DkeyExclusive(dkey) => each(claim.unit, Some(dkey)),
        Part::AllExclusive => each(claim.unit, None),
        Part::Exists | Part::AllShared | Part::DkeyShared(_) | Part::Moving(..) => {}
    });
}

/// What reads of a shard must not show yet.
#[derive(Default)]
pub(crate) struct Settling(RefCell<Unsettled>);

impl Settling {
    /// Notes what a record changes, in the step that logs it; so much is `durable`.
    pub(crate) fn note_ops(&self, durable: Lsn, lsn: Lsn, cont: ContId, ops: &[Op<'_>]) {
        let mut unsettled = self.0.borrow_mut();
        unsettled.settle(durable);
        unsettled.note_ops(lsn, cont, ops);
    }

    /// The same, by its changes.
    pub(crate) fn note_changes(
        &self,
        durable: Lsn,
        lsn: Lsn,
        cont: ContId,
        changes: &[ChangeDf<'_>],
    ) {
        let mut unsettled = self.0.borrow_mut();
        unsettled.settle(durable);
        let mut last = None;
        for change in changes {
            let place = change.place();
            // Several akeys of one dkey.
            if last != Some(place) {
                unsettled.note_place(lsn, cont, place.0, place.1);
                last = Some(place);
            }
        }
    }

    /// The newest record that `newest` finds among what is noted and not durable; zero when there is none.
    fn newest(
        &self,
        durable: impl Fn() -> Lsn,
        newest: impl FnOnce(&Unsettled, Lsn) -> Lsn,
    ) -> Lsn {
        if self.0.borrow().order.is_empty() {
            return Lsn::default();
        }
        let (mut unsettled, durable) = (self.0.borrow_mut(), durable());
        match unsettled.settle(durable) {
            true => Lsn::default(),
            false => newest(&unsettled, durable),
        }
    }

    /// The newest record that a batch can see.
    pub(crate) fn seen(&self, durable: impl Fn() -> Lsn, cont: ContId, batch: &Summary) -> Lsn {
        self.newest(durable, |unsettled, durable| unsettled.seen(durable, cont, batch))
    }

    /// The newest record that has changed anything of a unit.
    pub(crate) fn newest_of(&self, durable: impl Fn() -> Lsn, cont: ContId, unit: Unit) -> Lsn {
        self.newest(durable, |unsettled, _| unsettled.newest(cont, unit, Scope::Any))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Oid;
    use wire::obj::{Cond, ListScope};

    const CONT: ContId = ContId(1);

    fn unit(lo: u64) -> Unit {
        Unit { object: Oid { hi: 0, lo }, group: 0, cell: 0 }
    }

    fn remove(lo: u64, dkey: &'static [u8]) -> Op<'static> {
        let dkeys = vec![serde_bytes::Bytes::new(dkey)];
        Op::PunchDkeys { unit: unit(lo), cond: Cond::NONE, dkeys }
    }

    fn punch(lo: u64) -> Op<'static> {
        Op::PunchObj { unit: unit(lo), cond: Cond::NONE, besides: b"" }
    }

    fn get(lo: u64, dkey: &'static [u8]) -> Op<'static> {
        Op::Fetch { unit: unit(lo), dkey, cond: Cond::NONE, iods: Vec::new() }
    }

    fn stat(lo: u64) -> Op<'static> {
        Op::Stat { unit: unit(lo) }
    }

    fn list(lo: u64) -> Op<'static> {
        let scope = ListScope::Dkeys { value_of: None, follow: false, hash_range: (0, u64::MAX) };
        Op::List { unit: unit(lo), scope, anchor: b"", count_max: 1, bytes_max: 1 }
    }

    fn exists(lo: u64) -> Op<'static> {
        Op::Fetch { unit: unit(lo), dkey: b"x", cond: Cond::OBJ_EXISTS, iods: Vec::new() }
    }

    #[test]
    fn reads_wait_for_what_they_can_see_and_for_nothing_else() {
        let mut all = Unsettled::default();
        let seen = |all: &Unsettled, op: Op<'_>| all.seen(Lsn(0), CONT, &Summary::of(&[], &[op])).0;
        all.note_ops(Lsn(1), CONT, &[remove(1, b"a"), remove(2, b"a")]);
        all.note_ops(Lsn(2), CONT, &[remove(1, b"b")]);
        all.note_ops(Lsn(3), CONT, &[punch(3)]);
        assert_eq!([seen(&all, get(1, b"a")), seen(&all, get(1, b"b"))], [1, 2]);
        assert_eq!([seen(&all, get(1, b"c")), seen(&all, get(4, b"a"))], [0, 0]);
        assert_eq!([seen(&all, list(1)), seen(&all, stat(1)), seen(&all, exists(1))], [2, 2, 2]);
        assert_eq!([seen(&all, list(2)), seen(&all, get(2, b"a"))], [1, 1]);
        assert_eq!([seen(&all, get(3, b"a")), seen(&all, list(3))], [3, 3]);
        assert_eq!([seen(&all, list(4)), seen(&all, remove(1, b"a"))], [0, 1]);
        let other = Summary::of(&[], &[get(1, b"a")]);
        assert_eq!(all.seen(Lsn(0), ContId(2), &other), Lsn(0));
        // The newest counts, and what is durable is forgotten.
        all.note_ops(Lsn(4), CONT, &[remove(1, b"a")]);
        assert_eq!(seen(&all, get(1, b"a")), 4);
        assert!(!all.settle(Lsn(2)));
        assert_eq!([seen(&all, get(1, b"a")), seen(&all, get(1, b"b"))], [4, 0]);
        assert_eq!([seen(&all, list(1)), seen(&all, list(2)), seen(&all, list(3))], [4, 0, 3]);
        assert!(all.settle(Lsn(4)));
        assert!(all.newest.is_empty() && all.order.is_empty());
    }
}
