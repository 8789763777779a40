//! Which value may take the place of which.

use crate::objects::Value;
use types::Unit;
use wire::obj::{Op, UpdateValue};

/// Whether a new value may take the place of an old one: arrays keep their record size, and
/// stay arrays.
pub(crate) fn fits(old: &Value, new: &UpdateValue<'_>) -> bool {
    match (old, new) {
        (
            Value::Array { record_bytes: old, .. },
            UpdateValue::Array { record_bytes, .. } | UpdateValue::Zero { record_bytes, .. },
        ) => old == record_bytes,
        (Value::Array { .. }, UpdateValue::PunchRecords { .. }) => true,
        (Value::Single(_), UpdateValue::Inline(_) | UpdateValue::Single { .. }) => true,
        _ => false,
    }
}

/// True when an op takes an akey away, by its name: then any kind may follow in the same batch.
pub(crate) fn punches(op: &Op<'_>, of: Unit, of_dkey: &[u8], of_akey: &[u8]) -> bool {
    match op {
        Op::PunchAkeys { unit, dkey, akeys, .. } => {
            *unit == of && *dkey == of_dkey && akeys.iter().any(|akey| akey[..] == *of_akey)
        }
        _ => false,
    }
}
