//! Keys of values: how long they may be.

use types::{Code, DkeyKind, Error, Result, Unit, limits};

/// Checks a dkey of an object: its length, and eight bytes for an integer.
pub(crate) fn check_dkey(unit: Unit, dkey: &[u8]) -> Result<()> {
    check_key(dkey)?;
    if unit.dkey_kind() == DkeyKind::U64 && dkey.len() != 8 {
        return Err(Error::inval(format!(
            "object {unit} has integer dkeys of 8 bytes; this one has {}",
            dkey.len()
        )));
    }
    Ok(())
}

pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > limits::KEY_BYTES_MAX {
        return Err(Error::new(
            Code::KeyTooBig,
            format!("key of {} bytes is over the limit of {}", key.len(), limits::KEY_BYTES_MAX),
        ));
    }
    Ok(())
}

/// Checks both keys of a value.
pub(crate) fn check_keys(unit: Unit, dkey: &[u8], akey: &[u8]) -> Result<()> {
    check_dkey(unit, dkey)?;
    if akey.len() > limits::KEY_BYTES_MAX {
        return Err(Error::bare(Code::KeyTooBig));
    }
    Ok(())
}
