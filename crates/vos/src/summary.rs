//! What one pass over the checks and operations of a batch tells.
//!
//! Who lets a batch in, finds its group, gets pages for it, keeps it from what is held, and counts it, each wants to know something of its
//! operations. All of that is gathered once, when the batch comes, and handed on with it. What an operation touches is
//! told by [`Op::footprint`]; nothing here depends on what is stored.

use smallvec::SmallVec;
use types::{Error, Result, Unit, limits};
use wire::footprint::{Brings, OpKind};
use wire::obj::{Op, ReadCheck, UpdateValue};
use wire::walk::walk;

use crate::changes;
use crate::locks::{self, Claim};
use crate::needs::Needs;

/// What is known of a batch before anything that is stored is looked at.
#[derive(Debug)]
pub struct Summary {
    /// That of its first operation.
    pub kind: OpKind,
    pub op_count: usize,
    /// It can change stored state.
    pub writes: bool,
    /// The unit of the first operation that does.
    pub first_written: Option<Unit>,
    /// Units that operations name, in their order; each once for those that name it one after the other.
    pub units: SmallVec<[Named; 1]>,
    /// See [`Footprint::takes_room`](wire::footprint::Footprint::takes_room).
    pub takes_room: bool,
    /// See [`Footprint::walks`](wire::footprint::Footprint::walks).
    pub lists: bool,
    /// An operation has others in its place.
    pub is_replaced: bool,
    /// Values are stripes whose cells were kept before.
    pub names_stripes: bool,
    /// A unit is one of cells.
    pub touches_cells: bool,
    /// The object of a unit may let its dkeys move to others.
    pub spreads: bool,
    /// Most that its lists take in its answer, bytes.
    pub listed_bytes_max: usize,
    /// The first append: its unit, records of a chunk, and records.
    pub append: Option<(Unit, u64, u64)>,
    pub(crate) claims: SmallVec<[Claim; 1]>,
    /// What is stored with it takes, unless something is wrong with it.
    needs: Needs,
    wrong: Option<Error>,
}

/// A unit that operations name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    pub unit: Unit,
    /// One of them can change it.
    pub writes: bool,
}

impl Summary {
    /// Goes through checks and operations.
    pub fn of(checks: &[ReadCheck<'_>], ops: &[Op<'_>]) -> Summary {
        let mut all = Summary {
            kind: OpKind::Query,
            op_count: ops.len(),
            writes: false,
            first_written: None,
            units: SmallVec::new(),
            takes_room: false,
            lists: false,
            is_replaced: false,
            names_stripes: false,
            touches_cells: false,
            spreads: false,
            listed_bytes_max: 0,
            append: None,
            claims: SmallVec::new(),
            needs: Needs::default(),
            wrong: None,
        };
        for check in checks {
            all.claims.push(locks::claim_of_check(check));
        }
        let mut bulk_bytes: u64 = 0;
        for op in walk(ops) {
            all.add(op, &mut bulk_bytes);
        }
        if bulk_bytes > limits::BULK_BYTES_MAX as u64 && all.wrong.is_none() {
            all.wrong = Some(changes::too_much(bulk_bytes));
        }
        all
    }

    #[inline(always)]
    fn add(&mut self, op: &Op<'_>, bulk_bytes: &mut u64) {
        let at = op.footprint();
        let (unit, writes) = (at.unit, at.is_write());
        match self.units.last_mut() {
            Some(last) if last.unit == unit => last.writes |= writes,
            Some(_) => self.units.push(Named { unit, writes }),
            None => {
                self.kind = at.kind;
                self.units.push(Named { unit, writes });
            }
        }
        if writes && !self.writes {
            (self.writes, self.first_written) = (true, Some(unit));
        }
        self.takes_room |= at.takes_room();
        self.lists |= at.walks();
        self.is_replaced |= at.is_replaced;
        self.touches_cells |= unit.is_cell();
        self.spreads |= unit.object.spreads();
        self.listed_bytes_max =
            self.listed_bytes_max.saturating_add(at.listed_bytes_max() as usize);
        locks::claims_of_op(op, &at, &mut |claim| self.claims.push(claim));
        match at.brings {
            Brings::Nothing => {}
            Brings::Records { chunk_records, count } => {
                self.append.get_or_insert((unit, chunk_records, count));
            }
            Brings::Values { iods, .. } => {
                let is_name = |value: &UpdateValue<'_>| matches!(value, UpdateValue::Coded { .. });
                self.names_stripes |= iods.iter().any(|iod| is_name(&iod.value));
            }
        }
        if self.wrong.is_none() {
            match changes::check_shape(op) {
                Ok(bytes) => {
                    *bulk_bytes = bulk_bytes.saturating_add(bytes);
                    self.needs.add(&at.brings);
                }
                Err(error) => self.wrong = Some(error),
            }
        }
    }

    /// What is stored with the operations takes.
    ///
    /// Errors: `Inval` for what is wrong with them whatever is stored: lengths of keys, sizes, ranges.
    pub(crate) fn needs(&self) -> Result<&Needs> {
        match &self.wrong {
            Some(error) => Err(error.clone()),
            None => Ok(&self.needs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the fields say of each kind of operation is what its footprint says.
    #[test]
    fn a_summary_says_what_footprints_say() {
        for (name, op) in crate::op_samples::ops() {
            let at = op.footprint();
            let all = Summary::of(&[], std::slice::from_ref(&op));
            assert_eq!(all.kind, at.kind, "{name}");
            assert_eq!((all.op_count, all.writes), (1, at.is_write()), "{name}");
            assert_eq!(all.first_written, at.is_write().then_some(at.unit), "{name}");
            let named = Named { unit: at.unit, writes: at.is_write() };
            assert_eq!(all.units[..], [named], "{name}");
            assert_eq!((all.takes_room, all.lists), (at.takes_room(), at.walks()), "{name}");
            assert_eq!(all.is_replaced, at.is_replaced, "{name}");
            assert_eq!(all.names_stripes, name == "update.coded", "{name}");
            assert_eq!(all.append.is_some(), name == "append", "{name}");
            assert_eq!(all.listed_bytes_max, at.listed_bytes_max() as usize, "{name}");
        }
    }

    #[test]
    fn a_summary_of_several_has_what_any_has_in_their_order() {
        let ops: Vec<Op<'_>> = crate::op_samples::ops().into_iter().map(|(_, op)| op).collect();
        let all = Summary::of(&[], &ops);
        let first = ops.iter().find(|op| op.is_write()).map(Op::unit);
        assert_eq!((all.op_count, all.first_written), (ops.len(), first));
        assert!(all.writes && all.takes_room && all.lists && all.is_replaced);
        assert!(all.names_stripes && all.append.is_some());
        let mut claims = Vec::new();
        locks::claims(&[], &ops, &mut |claim| claims.push(claim));
        assert_eq!(all.claims[..], claims[..]);
        let mut units: Vec<Unit> = ops.iter().map(Op::unit).collect();
        units.dedup();
        assert!(all.units.iter().map(|named| named.unit).eq(units));
    }
}
