//! What can be said of a change as it is written down, before anything is done with it.

use types::{Code, Error, Result, Unit};
use wire::spread::{MARKER, REACHED};

use crate::blocks::Run;
use crate::keys::check_keys;
use crate::record::{ChangeDf, PlaceDf};

/// Runs that a change of the index brings.
pub(crate) fn each_fresh_run(change: &ChangeDf<'_>, mut each: impl FnMut(Run)) {
    match change {
        ChangeDf::SingleRuns { runs, .. } => {
            runs.iter().for_each(|run| each(Run { at: run.at, bytes: run.bytes }));
        }
        ChangeDf::Records { record_bytes, count, place, .. } => match place {
            PlaceDf::Blocks(at) => each(Run { at: *at, bytes: count * *record_bytes as u64 }),
            PlaceDf::Inline(_) | PlaceDf::Zero | PlaceDf::Coded(_) => {}
        },
        ChangeDf::Single { .. }
        | ChangeDf::PunchRecords { .. }
        | ChangeDf::PunchObj { .. }
        | ChangeDf::PunchDkey { .. }
        | ChangeDf::PunchDkeysFrom { .. }
        | ChangeDf::PunchAkey { .. } => {}
    }
}

impl ChangeDf<'_> {
    /// The unit that it changes.
    pub(crate) fn unit(&self) -> Unit {
        self.place().0
    }

    /// True for the change that says how far the dkeys of a unit have moved. It comes first in its record: dkeys of the unit that come or go
    /// after it are those that move.
    pub(crate) fn is_spread_note(&self) -> bool {
        match self {
            ChangeDf::Single { unit, dkey, akey, .. } => {
                *dkey == MARKER && *akey == REACHED && unit.object.spreads()
            }
            _ => false,
        }
    }

    /// What it changes: a dkey of a unit, or several of them, perhaps all (`None`).
    pub(crate) fn place(&self) -> (Unit, Option<&[u8]>) {
        match *self {
            ChangeDf::Single { unit, dkey, .. }
            | ChangeDf::SingleRuns { unit, dkey, .. }
            | ChangeDf::Records { unit, dkey, .. }
            | ChangeDf::PunchRecords { unit, dkey, .. }
            | ChangeDf::PunchDkey { unit, dkey }
            | ChangeDf::PunchAkey { unit, dkey, .. } => (unit, Some(dkey)),
            ChangeDf::PunchObj { unit } | ChangeDf::PunchDkeysFrom { unit, .. } => (unit, None),
        }
    }
}

/// A change from the log is one the index can take; damage must not become a panic.
pub(crate) fn check_change(change: &ChangeDf<'_>) -> Result<()> {
    let bad = |why: &str| Error::new(Code::Csum, format!("log record: {why}"));
    match change {
        ChangeDf::Single { unit, dkey, akey, .. }
        | ChangeDf::SingleRuns { unit, dkey, akey, .. } => {
            check_keys(*unit, dkey, akey)?;
        }
        ChangeDf::Records { unit, dkey, akey, record_bytes, index, count, place } => {
            check_keys(*unit, dkey, akey)?;
            let bytes = count.checked_mul(*record_bytes as u64);
            let fits = match (place, bytes) {
                (PlaceDf::Inline(data), Some(bytes)) => data.len() as u64 == bytes,
                (PlaceDf::Blocks(at), Some(bytes)) => at.checked_add(bytes).is_some(),
                // Zeros take no bytes, so their number may be beyond any size.
                (PlaceDf::Zero, _) => true,
                (PlaceDf::Coded(stripe), Some(_)) => stripe.first <= *index,
                _ => false,
            };
            if *record_bytes == 0 || !fits || index.checked_add(*count).is_none() {
                return Err(bad("impossible range of records"));
            }
        }
        ChangeDf::PunchRecords { unit, dkey, akey, index, count } => {
            check_keys(*unit, dkey, akey)?;
            if index.checked_add(*count).is_none() {
                return Err(bad("impossible range of records"));
            }
        }
        ChangeDf::PunchDkey { unit, dkey } => check_keys(*unit, dkey, b"")?,
        ChangeDf::PunchAkey { unit, dkey, akey } => check_keys(*unit, dkey, akey)?,
        ChangeDf::PunchObj { .. } | ChangeDf::PunchDkeysFrom { .. } => {}
    }
    if let ChangeDf::SingleRuns { runs, .. } = change
        && runs.iter().any(|run| run.at.checked_add(run.bytes).is_none())
    {
        return Err(bad("impossible place of a value"));
    }
    Ok(())
}
