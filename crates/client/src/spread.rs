//! Objects that spread: which of their dkeys are in which group, as far as is known here ([`wire::spread`]).
//!
//! What is not known is taken for small: its dkeys are looked for in the first unit. A unit that is asked for what it does not have answers
//! `Moved`; then the first unit tells how far the dkeys have moved, that is remembered, and the batch goes where they are. So
//! who knows nothing asks twice more, once for each object, and who knows asks once.
//!
//! Invariant: what is known may be old. No answer depends on it, for units look at what they are asked for.

use crate::cont::Container;
use crate::target::Ask;
use std::collections::VecDeque;
use types::map::HashMap;
use types::{Code, Error, Oid, Result, Unit, hash};
use wire::obj::{Cond, FetchIod, FetchWant, Fetched, Op, OpReply, Request};
use wire::spread::{MARKER, REACHED, Spread};

/// Objects remembered; the one that was learnt first goes for a new one.
const OBJECTS_KNOWN: usize = 1024;

/// How far the dkeys of objects have moved: all with this hash or a lesser one are in their groups.
///
/// Invariant: what was learnt last of some objects is known of all of them, whichever they are, up to [`OBJECTS_KNOWN`]: a batch of two
/// objects that can be known by turns only is sent to the wrong group of one of them for ever.
#[derive(Default)]
pub(crate) struct KnownSpreads {
    reached: HashMap<Oid, u64>,
    /// As they were learnt.
    order: VecDeque<Oid>,
}

impl KnownSpreads {
    fn reached(&self, oid: Oid) -> Option<u64> {
        self.reached.get(&oid).copied()
    }

    /// A container may be rolled back to when less had moved.
    fn note(&mut self, oid: Oid, reached: Option<u64>) {
        if self.reached.contains_key(&oid) && self.order.back() != Some(&oid) {
            self.order.retain(|known| *known != oid);
            self.reached.remove(&oid);
        }
        let Some(reached) = reached else {
            if self.reached.remove(&oid).is_some() {
                self.order.pop_back();
            }
            return;
        };
        if self.reached.insert(oid, reached).is_some() {
            return;
        }
        self.order.push_back(oid);
        if self.order.len() > OBJECTS_KNOWN
            && let Some(first) = self.order.pop_front()
        {
            self.reached.remove(&first);
        }
    }
}

impl Container {
    /// Where the dkeys with a hash are now, and those that follow it in the order of hashes: the unit, and the last hash for which
    /// that holds. For objects that spread; as far as is known ([`Container::learn_spread`]).
    ///
    /// Errors: `Stale` when the map does not know when the object was made ([`Container::learn`]).
    pub fn unit_of_hash(&self, oid: Oid, hash: u64) -> Result<(Unit, u64)> {
        let reached = self.spreads_known().borrow().reached(oid);
        match reached.filter(|reached| hash <= *reached) {
            Some(reached) => {
                let layout = self.layout(oid)?;
                let group = layout.group_of_hash(hash);
                Ok((oid.unit(group as u32), reached.min(layout.hashes_of(group).1)))
            }
            None => Ok((oid.first_unit(), u64::MAX)),
        }
    }

    /// How many groups an object that spreads has; `None` while all its dkeys are in the first one, as far as is known.
    pub fn groups_of_spread(&self, oid: Oid) -> Option<usize> {
        let has_begun = oid.spreads() && self.spreads_known().borrow().reached(oid).is_some();
        if has_begun { Some(self.layout(oid).ok()?.group_count()) } else { None }
    }

    /// The unit that holds a dkey of an object that spreads, likewise.
    pub(crate) fn known_unit_of_spreading(&self, oid: Oid, dkey: &[u8]) -> Result<Unit> {
        match dkey == MARKER {
            true => Ok(oid.first_unit()),
            false => Ok(self.unit_of_hash(oid, hash::bytes(dkey))?.0),
        }
    }

    /// Asks how far the dkeys of an object have moved: an op for its first unit.
    pub fn fetch_spread(oid: Oid) -> Op<'static> {
        let want = FetchWant::Single {
            bytes_max: Spread::BYTES as u64,
            inline_bytes_max: Spread::BYTES as u32,
        };
        let iods = vec![FetchIod { akey: REACHED, want }];
        Op::Fetch { unit: oid.first_unit(), dkey: MARKER, cond: Cond::NONE, iods }
    }

    /// Remembers the answer to that; `None` when none have moved.
    ///
    /// Errors: `Proto` for an answer to something else.
    pub fn note_spread(&self, oid: Oid, reply: Option<&OpReply<'_>>) -> Result<Option<Spread>> {
        let Some(OpReply::Fetched(iods)) = reply else {
            return Err(Error::new(Code::Proto, "a fetch got an answer of another kind"));
        };
        let spread = iods.first().and_then(|iod| match iod.value {
            Fetched::Inline(raw) => Spread::decode(raw),
            _ => None,
        });
        let reached = spread.map(|spread| spread.reached);
        self.spreads_known().borrow_mut().note(oid, reached);
        Ok(spread)
    }

    /// Asks how far the dkeys of an object have moved, and remembers it.
    pub async fn learn_spread(&self, oid: Oid) -> Result<()> {
        let mut batch = self.batch();
        batch.op_of_unit(Container::fetch_spread(oid));
        let result = batch.run().await?;
        self.note_spread(oid, result.replies()?.first()).map(|_| ())
    }

    /// Has dkeys that are in a unit, and belong in others, put there: a defect. Returns how many there were.
    pub async fn put_in_place(&self, unit: Unit) -> Result<u64> {
        let (pool, target) = (self.pool(), self.target_of(unit)?);
        let request = Request::PutInPlace { pool: pool.info().id, cont: self.id(), unit };
        let body = wire::encode(&request);
        let ask = Ask { body: &body, bulk_out: &[], bulk_in: &mut [] };
        let answer = self.client().target(target).ask(self.client(), &pool.0.state, ask).await?;
        wire::decode(&answer.body[1..])
    }

    /// The units that may hold dkeys of an object: all of them, or of one that has not spread, as far as is known, the first alone.
    ///
    /// Errors: as [`Container::unit_of`].
    pub async fn units_in_use(&self, oid: Oid) -> Result<Vec<Unit>> {
        match oid.spreads() && self.spreads_known().borrow().reached(oid).is_none() {
            true => Ok(vec![oid.first_unit()]),
            false => self.units(oid).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two directories that shared a slot of a table were known by turns only, and a rename from one to the other never ended.
    #[test]
    fn all_that_was_learnt_last_is_known() {
        let mut known = KnownSpreads::default();
        let oid = |lo| Oid { hi: 1, lo };
        assert_eq!(known.reached(oid(1)), None);
        for lo in 0..2 * OBJECTS_KNOWN as u64 {
            known.note(oid(lo), Some(lo));
        }
        for lo in 0..OBJECTS_KNOWN as u64 {
            assert_eq!(known.reached(oid(lo)), None, "{lo} was learnt before as many others");
            let later = lo + OBJECTS_KNOWN as u64;
            assert_eq!(known.reached(oid(later)), Some(later));
        }
        // The oldest one is learnt again, and with it another one.
        known.note(oid(OBJECTS_KNOWN as u64), Some(1));
        known.note(oid(1), Some(2));
        assert_eq!(known.reached(oid(OBJECTS_KNOWN as u64)), Some(1));
        assert_eq!(known.reached(oid(1)), Some(2));
        let last = 2 * OBJECTS_KNOWN as u64 - 1;
        known.note(oid(last), Some(9));
        assert_eq!(known.reached(oid(last)), Some(9));
        known.note(oid(last), None);
        known.note(oid(last), None);
        assert_eq!(known.reached(oid(last)), None);
        assert_eq!(
            (known.reached.len(), known.order.len()),
            (OBJECTS_KNOWN - 1, OBJECTS_KNOWN - 1)
        );
    }
}
