//! Objects whose dkeys move to further groups once they are many: which of them are to be looked for in a unit.
//!
//! What a unit answers about a dkey that is not its own would be wrong, whatever it has under that name. So this is looked at
//! before anything else, in the step in which an op looks or takes effect. See [`wire::spread`].

use types::{Code, Epoch, Error, Result, Unit, hash};
use wire::footprint::{Extent, Reads};
use wire::obj::{ListScope, Op, ReadCheck, ReadScope, UpdateValue};
use wire::spread::{MARKER, REACHED, Spread, has_all};
use wire::walk::walk;

use crate::index::Container;
use crate::index::slot::AkeyRef;

/// A container as it is now (zero), or was at the epoch of a snapshot.
pub(crate) type Look<'a> = (&'a Container, Epoch);

/// `Moved` when a dkey that checks name is to be looked for in another unit; `ops` are those of the batch.
pub(crate) fn check_reads(look: Look<'_>, checks: &[ReadCheck<'_>], ops: &[Op<'_>]) -> Result<()> {
    for check in checks.iter().filter(|check| check.unit.object.spreads()) {
        if let ReadScope::Dkey(dkey) | ReadScope::Akey(dkey, _) = check.of {
            require_named(look, check.unit, dkey, ops)?;
        }
    }
    Ok(())
}

/// The same for what an op names, or lists.
#[inline]
pub(crate) fn check_op(look: Look<'_>, op: &Op<'_>, ops: &[Op<'_>]) -> Result<()> {
    match op.oid().spreads() {
        true => check_names(look, op, ops),
        false => Ok(()),
    }
}

fn check_names(look: Look<'_>, op: &Op<'_>, ops: &[Op<'_>]) -> Result<()> {
    let (unit, touched) = (op.unit(), op.footprint());
    if let Reads::List { scope: ListScope::Dkeys { hash_range, .. }, anchor, .. } = touched.reads {
        // An anchor is a byte and the name that was given last.
        let from = hash_range.0.max(anchor.get(1..).map_or(0, hash::bytes));
        return match from <= hash_range.1 {
            true => require(look, unit, (from, hash_range.1), ops),
            false => Ok(()),
        };
    }
    // What is in a unit and belongs elsewhere is taken away together with its note.
    if matches!(op, Op::PunchDkeys { .. }) && walk(ops).any(|op| note_in(op, unit).is_some()) {
        return Ok(());
    }
    match touched.extent() {
        Extent::Dkey(dkey) => require_named(look, unit, dkey, ops),
        Extent::Dkeys(dkeys) => {
            dkeys.iter().try_for_each(|dkey| require_named(look, unit, dkey, ops))
        }
        Extent::Nothing | Extent::Existence | Extent::All => Ok(()),
    }
}

fn require_named(look: Look<'_>, unit: Unit, dkey: &[u8], ops: &[Op<'_>]) -> Result<()> {
    match dkey == MARKER {
        true => Ok(()),
        false => require(look, unit, (hash::bytes(dkey), hash::bytes(dkey)), ops),
    }
}

fn require(look: Look<'_>, unit: Unit, range: (u64, u64), ops: &[Op<'_>]) -> Result<()> {
    // What comes to a unit comes with the note that it does.
    let brought = if unit.group > 0 { walk(ops).find_map(|op| note_in(op, unit)) } else { None };
    let spread = brought.or_else(|| spread_of(look.0, unit, look.1));
    match has_all(spread, unit.group == 0, range) {
        true => Ok(()),
        false => Err(Error::bare(Code::Moved)),
    }
}

/// Looks at all that [`check_op`] and [`View::wants_to_spread`](crate::View::wants_to_spread) look at.
pub(crate) fn touch(cont: &Container, at: Epoch, checks: &[ReadCheck<'_>], ops: &[Op<'_>]) {
    let of_ops = walk(ops).map(Op::unit);
    let units = of_ops.chain(checks.iter().map(|check| check.unit));
    for unit in units.filter(|unit| unit.object.spreads()) {
        let _ = spread_of(cont, unit, at);
    }
}

/// What an op writes down of how far the dkeys of `unit` have moved.
fn note_in(op: &Op<'_>, of: Unit) -> Option<Spread> {
    let Op::Update { unit, dkey, iods, .. } = op else { return None };
    if *unit != of || *dkey != MARKER {
        return None;
    }
    iods.iter().find(|iod| iod.akey == REACHED).and_then(|iod| match iod.value {
        UpdateValue::Inline(raw) => Spread::decode(raw),
        _ => None,
    })
}

/// The hashes whose dkeys an op lets go from a unit, or come to it: while that is not decided nobody can tell where they are.
pub(crate) fn moves(op: &Op<'_>) -> Option<(u64, u64)> {
    let unit = op.unit();
    if !unit.object.spreads() {
        return None;
    }
    note_in(op, unit)?.moved(unit.group == 0)
}

/// When dkeys of a unit have moved last. The object has the same ones as before, so it has not changed for who asks when it did; but who has
/// listed a unit has not seen what has come to it.
pub(crate) fn moved_at(cont: &Container, unit: Unit, at: Epoch) -> Epoch {
    if !unit.object.spreads() {
        return Epoch::ZERO;
    }
    let marker = cont.object_at(unit, at).and_then(|object| object.dkey(MARKER));
    marker.and_then(|marker| marker.akey(REACHED)).map_or(Epoch::ZERO, |value| value.epoch())
}

/// How far the dkeys of an object have moved, as a unit knows it.
pub(crate) fn spread_of(cont: &Container, unit: Unit, at: Epoch) -> Option<Spread> {
    match cont.object_at(unit, at)?.dkey(MARKER)?.akey(REACHED)? {
        AkeyRef::Inline(_, raw) => Spread::decode(raw),
        _ => None,
    }
}

/// True when dkeys have begun to move from a unit.
pub(crate) fn has_begun(cont: &Container, unit: Unit) -> bool {
    unit.object.spreads() && unit.group == 0 && spread_of(cont, unit, Epoch::ZERO).is_some()
}
