//! Whether two members know of the same changes of a dkey.
//!
//! What tells is who wrote which records when, and not where one extent ends and the next one begins: members cut what they write
//! by the room that they find, and join small extents whenever they come to it. Joined ones have the newest epoch of all of them, so what
//! one member says of each of its extents may be all that another says of several. Bytes tell what epochs do not, where they can be read.

use std::cmp::Ordering;

use types::Epoch;
use wire::cell::Stripe;

use crate::index::extent::Place;
use crate::index::past::{Kept, PastValue};
use crate::index::slot::Single;

/// How close two members' extents must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closeness {
    /// Each record was written by the same change. Two of which one has joined small extents meanwhile differ.
    Written,
    /// The newest change of each row of extents that may have been joined is the same; of what is there now only. An older change that
    /// one has alone, and that was joined with newer ones of both since, shows by its bytes only.
    Joined,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Single,
    Data,
    Zero,
    Coded(Stripe),
}

/// What a member tells of a value, or of a row of records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    pub akey: &'a [u8],
    pub created: Epoch,
    pub destroyed: Epoch,
    pub kind: Kind,
    /// Of a single value 1, and its bytes are its records.
    pub record_bytes: u32,
    pub start: u64,
    pub end: u64,
    /// Where they are at hand: all of it.
    pub data: Option<&'a [u8]>,
}

impl<'a> Told<'a> {
    /// What is known here; `read`: its bytes in the data area, if they could be read.
    pub(crate) fn of(kept: &'a Kept, read: Option<&'a [u8]>) -> Told<'a> {
        let (kind, record_bytes, start, count, data) = match &kept.value {
            PastValue::Single(Single::Inline(bytes)) => {
                (Kind::Single, 1, 0, bytes.len() as u64, Some(&bytes[..]))
            }
            PastValue::Single(Single::Runs(runs)) => {
                (Kind::Single, 1, 0, runs.iter().map(|run| run.bytes).sum(), read)
            }
            &PastValue::Extent { record_bytes, index, count, ref place } => match place {
                Place::Inline(bytes) => (Kind::Data, record_bytes, index, count, Some(&bytes[..])),
                Place::Blocks(_) => (Kind::Data, record_bytes, index, count, read),
                Place::Zero => (Kind::Zero, record_bytes, index, count, None),
                Place::Coded(stripe) => (Kind::Coded(*stripe), record_bytes, index, count, None),
            },
        };
        let (akey, created, destroyed) = (&kept.akey[..], kept.created, kept.destroyed);
        let end = start.saturating_add(count);
        Told { akey, created, destroyed, kind, record_bytes, start, end, data }
    }

    fn class(&self) -> (&[u8], Epoch, Kind, u32) {
        (self.akey, self.destroyed, self.kind, self.record_bytes)
    }

    /// True when the two may be pieces of one.
    fn goes_on_with(&self, next: &Told<'_>, closeness: Closeness) -> bool {
        let may_be_joined = closeness == Closeness::Joined && self.kind == Kind::Data;
        self.class() == next.class()
            && self.end == next.start
            && (self.created == next.created || may_be_joined)
    }

    /// Bytes of this value, from the `at`-th on, as others may have them: what was newest when this was written. `None` where they do not have all of them.
    /// `others`: the newest first. Small extents that were joined are as new as the newest of them, so only sums tell whether it is the same.
    pub(crate) fn bytes_of_others(
        &self,
        others: &[Told<'_>],
        at: u64,
        bytes: u64,
    ) -> Option<Vec<u8>> {
        let record_bytes = u64::from(self.record_bytes);
        let may_be_same = |other: &&Told<'_>| {
            (other.akey, other.kind, other.record_bytes)
                == (self.akey, self.kind, self.record_bytes)
                && match self.kind {
                    // Of one size, and never joined.
                    Kind::Single => (other.created, other.end) == (self.created, self.end),
                    _ => other.created <= self.created,
                }
        };
        let mut next = self.start.checked_mul(record_bytes)?.checked_add(at)?;
        let end = next.checked_add(bytes)?;
        let mut found = Vec::with_capacity(bytes as usize);
        while next < end {
            let from_next_on = |other: &Told<'_>| {
                let skip = next.checked_sub(other.start.checked_mul(record_bytes)?)?;
                let rest = other.data?.get(usize::try_from(skip).ok()?..)?;
                let count = rest.len().min((end - next) as usize);
                (count > 0).then(|| rest[..count].to_vec())
            };
            let piece = others.iter().filter(may_be_same).find_map(from_next_on)?;
            next += piece.len() as u64;
            found.extend_from_slice(&piece);
        }
        Some(found)
    }

    fn bytes(&self, start: u64, end: u64) -> Option<&'a [u8]> {
        let at = |record: u64| -> Option<usize> {
            let records = record.checked_sub(self.start)?;
            records.checked_mul(self.record_bytes.into())?.try_into().ok()
        };
        self.data?.get(at(start)?..at(end)?)
    }
}

/// True when two members tell of the same changes.
pub(crate) fn tell_the_same<'a>(
    mut ours: Vec<Told<'a>>,
    mut theirs: Vec<Told<'a>>,
    closeness: Closeness,
) -> bool {
    for all in [&mut ours, &mut theirs] {
        if closeness == Closeness::Joined {
            all.retain(|told| told.destroyed == Epoch::MAX);
        }
        // The past has no order that all members have.
        all.sort_by_key(|told| (told.akey, told.destroyed, told.start));
    }
    let (mut ours, mut theirs) = (&ours[..], &theirs[..]);
    while !ours.is_empty() && !theirs.is_empty() {
        let Some((mine, others)) = row(ours, theirs, closeness) else { return false };
        let (here, there) = (&ours[..mine], &theirs[..others]);
        let newest = |all: &[Told<'_>]| all.iter().map(|told| told.created).max();
        if newest(here) != newest(there) || !have_same_data(here, there) {
            return false;
        }
        (ours, theirs) = (&ours[mine..], &theirs[others..]);
    }
    ours.is_empty() && theirs.is_empty()
}

/// How many pieces of each, from the first ones on, are the same row of records; `None` when none are.
fn row(ours: &[Told<'_>], theirs: &[Told<'_>], closeness: Closeness) -> Option<(usize, usize)> {
    let (mut here, mut there) = (ours.first()?, theirs.first()?);
    if here.class() != there.class() || here.start != there.start {
        return None;
    }
    let (mut mine, mut others) = (1, 1);
    loop {
        let (last, pieces, count) = match here.end.cmp(&there.end) {
            Ordering::Equal => return Some((mine, others)),
            Ordering::Less => (&mut here, ours, &mut mine),
            Ordering::Greater => (&mut there, theirs, &mut others),
        };
        let next = pieces.get(*count).filter(|next| last.goes_on_with(next, closeness))?;
        (*last, *count) = (next, *count + 1);
    }
}

/// False when a byte of the same row that is at hand with both differs.
fn have_same_data(here: &[Told<'_>], there: &[Told<'_>]) -> bool {
    here.iter().all(|ours| {
        there.iter().all(|theirs| {
            let (start, end) = (ours.start.max(theirs.start), ours.end.min(theirs.end));
            let bytes = (ours.bytes(start, end), theirs.bytes(start, end));
            !matches!(bytes, (Some(mine), Some(others)) if start < end && mine != others)
        })
    })
}
