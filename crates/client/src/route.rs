//! Where a batch goes: its parts, by the groups that its units are in.
//!
//! A batch keeps its id over its tries, whatever the map is meanwhile, and the answer is that of whichever try took effect: of the parts that were asked for then. By another
//! map groups may have come to have the same members, or have the same no longer. So while an id lasts parts are only ever divided further: what was asked for apart stays apart, though one target
//! could do it by now. Then no two forms of a batch have equally many parts, and the number of those that were answered tells which one it was.

use crate::cont::{Container, Members};
use smallvec::SmallVec;
use types::{Code, Error, Result, TargetId, Unit};
use wire::obj::{BatchReply, Op, ReadCheck, TxReply};

/// What of a batch one target carries out, and its whole group with it.
pub(crate) struct Part {
    /// Of the group.
    pub unit: Unit,
    pub leader: TargetId,
    /// All members of the group; none where that does not matter.
    members: Members,
    /// Its place in the form that was asked for before.
    was: u16,
}

/// Where a batch goes under one map: its parts, that of the first change first, then in the order in which its ops first name them.
pub(crate) struct Route {
    pub map_version: u32,
    pub parts: SmallVec<[Part; 1]>,
    /// For each op, the place of its part among them.
    pub of_ops: SmallVec<[u16; 4]>,
    /// For each check, likewise.
    pub of_checks: SmallVec<[u16; 4]>,
}

/// How a batch was divided.
struct Form {
    part_count: usize,
    of_ops: SmallVec<[u16; 4]>,
    of_checks: SmallVec<[u16; 4]>,
}

/// The forms in which a batch was asked for under its id, each with more parts than the one before.
#[derive(Default)]
pub(crate) struct Asked(SmallVec<[Form; 1]>);

/// What a batch of several parts was answered.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// A [`TxReply`], of parts that were divided so: for each op, the place of its part.
    Parts(SmallVec<[u16; 4]>),
    /// A [`BatchReply`]: it was done when all of it was one part.
    Whole,
}

impl Route {
    /// Finds where everything goes under the newest map that is known, without joining what was asked for apart.
    ///
    /// Errors: of the look-up of groups.
    pub fn find(
        cont: &Container,
        map_version: u32,
        ops: &[Op<'_>],
        checks: &[ReadCheck<'_>],
        asked: &Asked,
    ) -> Result<Route> {
        let mut route = Route {
            map_version,
            parts: SmallVec::new(),
            of_ops: SmallVec::with_capacity(ops.len()),
            of_checks: SmallVec::with_capacity(checks.len()),
        };
        let last = asked.0.last();
        // Groups that differ in a member take part for themselves: one may lose its leader and the other not.
        let first_change = ops.iter().position(Op::is_write);
        let is_apart = first_change.is_some();
        let part = |unit: Unit, was: Option<u16>| -> Result<Part> {
            let (leader, members) = cont.group_of(unit, is_apart)?;
            Ok(Part { unit, leader, members, was: was.unwrap_or(0) })
        };
        let was_of_op = |at: usize| last.and_then(|form| form.of_ops.get(at).copied());
        // Whoever leads it keeps the answer, in whatever form it is asked for. The first op comes first anyway.
        if let Some(at) = first_change.filter(|at| *at > 0) {
            route.place(part(ops[at].unit(), was_of_op(at))?);
        }
        for (at, op) in ops.iter().enumerate() {
            let place = route.place(part(op.unit(), was_of_op(at))?);
            route.of_ops.push(place);
        }
        for (at, check) in checks.iter().enumerate() {
            let was = last.and_then(|form| form.of_checks.get(at).copied());
            let place = route.place(part(check.unit, was)?);
            route.of_checks.push(place);
        }
        Ok(route)
    }

    fn place(&mut self, part: Part) -> u16 {
        let is_same = |known: &Part| {
            (known.leader, known.was, &known.members) == (part.leader, part.was, &part.members)
        };
        let known = self.parts.iter().position(is_same);
        known.unwrap_or_else(|| {
            self.parts.push(part);
            self.parts.len() - 1
        }) as u16
    }

    /// The target that an op goes to.
    pub fn of_op(&self, op: usize) -> TargetId {
        self.parts[self.of_ops[op] as usize].leader
    }
}

impl Asked {
    /// A batch is about to be sent in this form.
    pub fn note(&mut self, route: &Route) {
        let part_count = route.parts.len();
        if self.0.last().is_none_or(|form| form.part_count < part_count) {
            let (of_ops, of_checks) = (route.of_ops.clone(), route.of_checks.clone());
            self.0.push(Form { part_count, of_ops, of_checks });
        }
    }

    /// It goes on under another id.
    pub fn begin_anew(&mut self) {
        self.0.clear();
    }

    /// Which form an answer is of, after the batch was sent in several parts.
    ///
    /// Errors: `Proto` when it is of none, or could be of two.
    pub fn form_of(&self, body: &[u8]) -> Result<Told> {
        let parts = wire::decode::<TxReply<'_>>(body).map(|reply| reply.parts);
        if let Ok(parts) = &parts
            && let [form] = &self.0[..]
            && form.part_count == parts.len()
        {
            // Nearly always.
            return Ok(Told::Parts(form.of_ops.clone()));
        }
        let of_parts = parts.as_ref().ok().and_then(|parts| {
            let form = self.0.iter().find(|form| form.part_count == parts.len())?;
            let has = |(at, part): (usize, &&serde_bytes::Bytes)| {
                let ops = form.of_ops.iter().filter(|of| **of as usize == at).count();
                has_ops(part, ops)
            };
            let is_it = form.part_count > 1 && parts.iter().enumerate().all(has);
            is_it.then(|| form.of_ops.clone())
        });
        let whole = self.0.first().filter(|form| form.part_count == 1);
        match (of_parts, whole.is_some_and(|form| has_ops(body, form.of_ops.len()))) {
            (Some(of_ops), false) => Ok(Told::Parts(of_ops)),
            (None, true) => Ok(Told::Whole),
            (Some(_), true) => {
                let text = "a transaction's answer may be that of either of two tries";
                Err(Error::new(Code::Proto, text))
            }
            (None, false) => Err(Error::new(Code::Proto, "a transaction's answer lacks parts")),
        }
    }
}

/// True for an encoded [`BatchReply`] of so many ops.
fn has_ops(body: &[u8], count: usize) -> bool {
    wire::decode::<BatchReply<'_>>(body).is_ok_and(|reply| reply.ops.len() == count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, Oid};
    use wire::obj::{BulkSums, OpReply};

    /// A batch that falls into parts like this, by op.
    fn route(of_ops: &[u16]) -> Route {
        let unit = Oid { hi: 1, lo: 2 }.unit(0);
        let part = |_| Part { unit, leader: TargetId(0), members: Members::new(), was: 0 };
        let count = of_ops.iter().max().map_or(0, |last| last + 1);
        Route {
            map_version: 1,
            parts: (0..count).map(part).collect(),
            of_ops: of_ops.into(),
            of_checks: SmallVec::new(),
        }
    }

    fn asked(forms: &[&[u16]]) -> Asked {
        let mut asked = Asked::default();
        forms.iter().for_each(|form| asked.note(&route(form)));
        asked
    }

    /// The answer to so many ops.
    fn whole(count: usize) -> Vec<u8> {
        let (ops, sums) = (vec![OpReply::Done; count], BulkSums::NONE);
        wire::encode(&BatchReply { epoch: Epoch(7), ops, sums })
    }

    fn parts(counts: &[usize]) -> Vec<u8> {
        let parts: Vec<Vec<u8>> = counts.iter().map(|count| whole(*count)).collect();
        let parts = parts.iter().map(|part| serde_bytes::Bytes::new(part)).collect();
        wire::encode(&TxReply { epoch: Epoch(7), parts })
    }

    #[test]
    fn an_answer_is_of_the_form_with_as_many_parts() {
        let all = asked(&[&[0, 0, 0], &[0, 1, 0], &[0, 1, 2]]);
        let told = |of_ops: &[u16]| Told::Parts(of_ops.into());
        assert_eq!(all.form_of(&whole(3)).unwrap(), Told::Whole);
        assert_eq!(all.form_of(&parts(&[2, 1])).unwrap(), told(&[0, 1, 0]));
        assert_eq!(all.form_of(&parts(&[1, 1, 1])).unwrap(), told(&[0, 1, 2]));
        for other in [whole(2), parts(&[1, 2]), parts(&[1, 1]), parts(&[1, 1, 1, 0]), vec![9]] {
            assert_eq!(all.form_of(&other).unwrap_err().code, Code::Proto);
        }
        // The same form by another map is none of its own; under another id none is known.
        let mut again = asked(&[&[0, 1], &[0, 1]]);
        assert_eq!(again.0.len(), 1);
        assert!(again.form_of(&whole(2)).is_err(), "it never was one part");
        again.begin_anew();
        assert!(again.form_of(&parts(&[1, 1])).is_err());
    }
}
