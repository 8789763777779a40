//! Conditions of operations and read checks of transactions, against the present state.
//!
//! All are evaluated before anything of a batch takes effect, as the wire promises. Only whether a value
//! is of the kind that is there heeds what the ops before it punch: so an akey changes its kind in one batch, and nobody
//! sees it gone in between.

use types::{Code, Epoch, Error, Result, Unit};
use wire::footprint::Changes;
use wire::obj::{Cond, FetchWant, Op, ReadCheck, ReadScope, UpdateValue};

use crate::index::Container;
use crate::index::slot::{AkeyRef, DkeyRef};
use crate::spread;

/// When what a check has read was changed last.
pub(crate) fn epoch_of(cont: &Container, check: &ReadCheck<'_>) -> Epoch {
    let Some(object) = cont.object(check.unit) else { return Epoch::ZERO };
    match check.of {
        ReadScope::Keys => object.keys_epoch.max(spread::moved_at(cont, check.unit, Epoch::ZERO)),
        ReadScope::Object => object.epoch,
        ReadScope::Dkey(dkey) => object.dkey(dkey).map_or(Epoch::ZERO, |dkey| dkey.epoch()),
        ReadScope::Akey(dkey, akey) => object
            .dkey(dkey)
            .and_then(|dkey| dkey.akey(akey))
            .map_or(Epoch::ZERO, |value| value.epoch()),
    }
}

fn require(holds: bool, code: Code) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::bare(code)) }
}

/// Checks an op; `before` are those of its batch that come first.
pub(crate) fn check_op(cont: &Container, op: &Op<'_>, before: &[Op<'_>]) -> Result<()> {
    let object = cont.object(op.unit());
    let find = |dkey: &[u8]| object.and_then(|object| object.dkey(dkey));
    match op {
        Op::Update { unit, dkey: key, cond, iods } => {
            let dkey = find(key);
            check_common(object.is_some(), dkey, *cond)?;
            for iod in iods {
                let value = dkey.and_then(|dkey| dkey.akey(iod.akey));
                let cond = cond.and(iod.cond);
                check_akey(value, cond)?;
                let fits = check_kind(value, &iod.value);
                if fits.is_err() && !before.iter().any(|op| punches(op, *unit, key, iod.akey)) {
                    return fits;
                }
            }
        }
        Op::Fetch { dkey, cond, iods, .. } => {
            let dkey = find(dkey);
            check_common(object.is_some(), dkey, *cond)?;
            for iod in iods {
                let value = dkey.and_then(|dkey| dkey.akey(iod.akey));
                check_akey(value, *cond)?;
                check_want(value, &iod.want)?;
            }
        }
        Op::PunchObj { cond, besides, .. } => {
            check_common(object.is_some(), None, Cond(cond.0 & Cond::OBJ_EXISTS.0))?;
            require(!cond.has(Cond::PUNCH) || object.is_some(), Code::NonExist)?;
            if cond.has(Cond::OBJ_EMPTY)
                && let Some(object) = object
            {
                let beside = object.dkey(besides).is_some() as u64;
                require(object.dkey_count == beside, Code::NotEmpty)?;
            }
            let of_all = !cond.has(Cond::OBJ_EMPTY) || cond.has(Cond::ALL_GROUPS);
            require(of_all || !spread::has_begun(cont, op.unit()), Code::Moved)?;
        }
        Op::PunchDkeys { cond, dkeys, .. } => {
            check_common(object.is_some(), None, Cond(cond.0 & Cond::OBJ_EXISTS.0))?;
            let all = !cond.has(Cond::PUNCH) || dkeys.iter().all(|dkey| find(dkey).is_some());
            require(all, Code::NonExist)?;
        }
        Op::PunchAkeys { dkey, cond, akeys, .. } => {
            check_common(object.is_some(), None, Cond(cond.0 & Cond::OBJ_EXISTS.0))?;
            if cond.has(Cond::PUNCH) {
                let dkey = find(dkey);
                let there = |akey: &[u8]| dkey.and_then(|dkey| dkey.akey(akey)).is_some();
                require(akeys.iter().all(|akey| there(akey)), Code::NonExist)?;
            }
        }
        // Without conditions.
        Op::PunchDkeysFrom { .. }
        | Op::List { .. }
        | Op::Query { .. }
        | Op::Stat { .. }
        | Op::FetchLink { .. }
        | Op::RemoveLink { .. }
        | Op::Open { .. }
        | Op::PunchUnlessOpen { .. }
        | Op::Append { .. }
        | Op::ListRuns { .. }
        | Op::Adopt { .. }
        | Op::FreeClosed { .. } => {}
    }
    Ok(())
}

/// True when an op takes an akey away, by its name.
fn punches(op: &Op<'_>, of: Unit, of_dkey: &[u8], of_akey: &[u8]) -> bool {
    let at = op.footprint();
    match at.changes {
        Changes::Akeys { dkey, akeys } => {
            at.unit == of && dkey == of_dkey && akeys.iter().any(|akey| akey.as_ref() == of_akey)
        }
        Changes::Nothing
        | Changes::Dkey(_)
        | Changes::Dkeys(_)
        | Changes::DkeysFrom(_)
        | Changes::All
        | Changes::Unnamed => false,
    }
}

/// Conditions on the object and the dkey.
pub(crate) fn check_common(object: bool, dkey: Option<DkeyRef<'_>>, cond: Cond) -> Result<()> {
    if cond == Cond::NONE {
        return Ok(());
    }
    require(!cond.has(Cond::OBJ_EXISTS) || object, Code::NonExist)?;
    require(!cond.has(Cond::DKEY_INSERT) || dkey.is_none(), Code::Exist)?;
    let wants = cond.has(Cond::DKEY_UPDATE) || cond.has(Cond::DKEY_FETCH);
    require(!wants || dkey.is_some(), Code::NonExist)
}

pub(crate) fn check_akey(value: Option<AkeyRef<'_>>, cond: Cond) -> Result<()> {
    if cond == Cond::NONE {
        return Ok(());
    }
    require(!cond.has(Cond::AKEY_INSERT) || value.is_none(), Code::Exist)?;
    let wants = cond.has(Cond::AKEY_UPDATE) || cond.has(Cond::AKEY_FETCH);
    require(!wants || value.is_some(), Code::NonExist)
}

/// A value keeps its kind, and an array its record size, until it is punched.
fn check_kind(old: Option<AkeyRef<'_>>, new: &UpdateValue<'_>) -> Result<()> {
    let Some(old) = old else { return Ok(()) };
    match (old, new) {
        (AkeyRef::Array(array), UpdateValue::Array { record_bytes, .. })
        | (AkeyRef::Array(array), UpdateValue::Zero { record_bytes, .. })
        | (AkeyRef::Array(array), UpdateValue::Coded { record_bytes, .. }) => {
            check_record_bytes(array.record_bytes, *record_bytes)
        }
        (AkeyRef::Array(_), UpdateValue::PunchRecords { .. }) => Ok(()),
        (AkeyRef::Array(_), _) => {
            Err(Error::inval("the akey holds an array; punch it before writing a single value"))
        }
        (_, UpdateValue::Inline(_) | UpdateValue::Single { .. }) => Ok(()),
        _ => Err(Error::inval("the akey holds a single value; punch it before writing records")),
    }
}

fn check_record_bytes(stored: u32, given: u32) -> Result<()> {
    if stored != given {
        return Err(Error::inval(format!("the array has records of {stored} bytes, not {given}")));
    }
    Ok(())
}

/// A fetch names the kind of value that is there.
pub(crate) fn check_want(value: Option<AkeyRef<'_>>, want: &FetchWant) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    match (value.array(), want) {
        (
            Some(array),
            FetchWant::Array { record_bytes, .. } | FetchWant::Sparse { record_bytes, .. },
        ) if *record_bytes != 0 => check_record_bytes(array.record_bytes(), *record_bytes),
        (Some(_), FetchWant::Single { .. }) => {
            Err(Error::inval("the akey holds an array, not a single value"))
        }
        (None, FetchWant::Array { .. } | FetchWant::Sparse { .. }) => {
            Err(Error::inval("the akey holds a single value, not an array"))
        }
        _ => Ok(()),
    }
}
