//! Conditions of operations and checks of what was read.

use super::ContShard;
use crate::kinds::{fits, punches};
use types::{Code, Epoch, Error, Result, Unit};
use wire::obj::{Cond, Op, ReadCheck, ReadScope};

impl ContShard {
    /// Evaluates all conditions and checks of a batch.
    pub fn check(&self, checks: &[ReadCheck<'_>], ops: &[Op<'_>]) -> Result<()> {
        for check in checks {
            if self.epoch_of(check.unit, check.of) != check.seen {
                return Err(Code::TxRestart.into());
            }
        }
        ops.iter().enumerate().try_for_each(|(at, op)| self.check_op(op, &ops[..at]))
    }

    fn epoch_of(&self, unit: Unit, of: ReadScope<'_>) -> Epoch {
        let object = self.objects.get(&unit);
        match of {
            ReadScope::Keys => object.map(|object| object.keys_epoch),
            ReadScope::Object => object.map(|object| object.epoch),
            ReadScope::Dkey(dkey) => self.dkey(unit, dkey).map(|found| found.epoch),
            ReadScope::Akey(dkey, akey) => self.akey(unit, dkey, akey).map(|found| found.epoch),
        }
        .unwrap_or(Epoch::ZERO)
    }

    fn check_op(&self, op: &Op<'_>, before: &[Op<'_>]) -> Result<()> {
        let must = |holds: bool, code: Code| if holds { Ok(()) } else { Err(Error::bare(code)) };
        let exists = self.objects.contains_key(&op.unit());
        let object = |cond: Cond| must(!cond.has(Cond::OBJ_EXISTS) || exists, Code::NonExist);
        match op {
            Op::Update { unit, dkey, cond, iods } => {
                object(*cond)?;
                let there = self.dkey(*unit, dkey).is_some();
                must(!cond.has(Cond::DKEY_INSERT) || !there, Code::Exist)?;
                must(!cond.has(Cond::DKEY_UPDATE) || there, Code::NonExist)?;
                for iod in iods {
                    let cond = cond.and(iod.cond);
                    let old = self.akey(*unit, dkey, iod.akey);
                    must(!cond.has(Cond::AKEY_INSERT) || old.is_none(), Code::Exist)?;
                    must(!cond.has(Cond::AKEY_UPDATE) || old.is_some(), Code::NonExist)?;
                    let is_punched = before.iter().any(|op| punches(op, *unit, dkey, iod.akey));
                    let fits = old.is_none_or(|old| fits(&old.value, &iod.value));
                    must(fits || is_punched, Code::Inval)?;
                }
                Ok(())
            }
            Op::Fetch { unit, dkey, cond, iods } => {
                object(*cond)?;
                must(
                    !cond.has(Cond::DKEY_FETCH) || self.dkey(*unit, dkey).is_some(),
                    Code::NonExist,
                )?;
                let all = iods.iter().all(|iod| self.akey(*unit, dkey, iod.akey).is_some());
                must(!cond.has(Cond::AKEY_FETCH) || all, Code::NonExist)
            }
            Op::PunchObj { unit, cond, besides } => {
                object(*cond)?;
                must(!cond.has(Cond::PUNCH) || exists, Code::NonExist)?;
                let others = self
                    .objects
                    .get(unit)
                    .is_some_and(|object| object.dkeys.keys().any(|dkey| dkey != besides));
                must(!cond.has(Cond::OBJ_EMPTY) || !others, Code::NotEmpty)
            }
            Op::PunchDkeys { unit, cond, dkeys } => {
                object(*cond)?;
                let all = dkeys.iter().all(|dkey| self.dkey(*unit, dkey).is_some());
                must(!cond.has(Cond::PUNCH) || all, Code::NonExist)
            }
            Op::PunchAkeys { unit, dkey, cond, akeys } => {
                object(*cond)?;
                let all = akeys.iter().all(|akey| self.akey(*unit, dkey, akey).is_some());
                must(!cond.has(Cond::PUNCH) || all, Code::NonExist)
            }
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
            | Op::FreeClosed { .. } => Ok(()),
        }
    }
}
