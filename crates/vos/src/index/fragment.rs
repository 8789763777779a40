//! Small extents that could be one, and making them one.
//!
//! Writes that are small or not aligned (47,008 bytes after one another, as IOR's hard case
//! does) leave extents that share blocks and cost index memory each. A [`Group`] is a row of
//! extents without a hole between them inside one window of [`WINDOW_BYTES`], which no snapshot
//! tells apart. Joining a group changes nothing that can be read.

use types::{ContId, Epoch, Unit};
use wire::cell::Stripe;

use super::bucket::Scope;
use super::extent::{ArrayValue, Place};
use super::slot::{Akey, AkeyRef};
use super::{Container, Effects, Index};
use crate::blocks::BLOCK_BYTES;
use crate::index::versions::Versions;

/// Groups end at multiples of this, bytes: the chunk of a file, and what one I/O should be.
pub(crate) const WINDOW_BYTES: u64 = 1 << 20;
/// Extents of this size on average are large enough, bytes.
const LARGE_BYTES: u64 = 256 << 10;
/// Groups of less than this stay in the index, bytes.
const MOVED_BYTES_MIN: u64 = 4096;

/// An array value of a container.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ArrayName {
    pub cont: ContId,
    pub unit: Unit,
    pub dkey: Box<[u8]>,
    pub akey: Box<[u8]>,
}

/// What tells one extent from another that took its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    index: u64,
    count: u64,
    epoch: Epoch,
    /// `None`: in the index.
    at: Option<u64>,
}

/// Extents that could be one; see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub index: u64,
    pub count: u64,
    pub bytes: u64,
    pub members: Vec<Member>,
    /// Where the bytes are already, one after the other on whole blocks.
    pub in_place: Option<u64>,
}

impl Group {
    fn of(members: &[Member], record_bytes: u64) -> Group {
        let count: u64 = members.iter().map(|member| member.count).sum();
        Group {
            index: members[0].index,
            count,
            bytes: count * record_bytes,
            members: members.to_vec(),
            in_place: None,
        }
    }

    fn is_worth_moving(&self) -> bool {
        self.members.len() >= 2
            && self.bytes >= MOVED_BYTES_MIN
            && self.members.len() as u64 > self.bytes / LARGE_BYTES + 1
    }
}

/// True when a snapshot lies between an extent of this epoch and one of a row.
fn is_apart(row: &[Member], epoch: Epoch, versions: &Versions) -> bool {
    if versions.keeps_nothing() {
        return false;
    }
    let epochs = row.iter().map(|member| member.epoch).chain([epoch]);
    let (min, max) = epochs
        .fold((Epoch::MAX, Epoch::ZERO), |(min, max), epoch| (min.min(epoch), max.max(epoch)));
    versions.sees(min, max)
}

impl ArrayValue {
    /// Groups worth joining, those that need no copying first and alone; and the number of
    /// extents.
    pub(crate) fn groups(&self, versions: &Versions) -> (Vec<Group>, usize) {
        let record = self.record_bytes as u64;
        let rows = self.rows(record, versions);
        let mut in_place = Vec::new();
        for row in &rows {
            let follows = |pair: &[Member]| match (pair[0].at, pair[1].at) {
                (Some(a), Some(b)) => a + pair[0].count * record == b && b % BLOCK_BYTES == 0,
                _ => false,
            };
            let mut first = 0;
            for end in 1..=row.len() {
                if end < row.len() && follows(&row[end - 1..=end]) {
                    continue;
                }
                if end - first >= 2 {
                    let group = Group::of(&row[first..end], record);
                    in_place.push(Group { in_place: row[first].at, ..group });
                }
                first = end;
            }
        }
        if !in_place.is_empty() {
            return (in_place, self.iter().count());
        }
        let groups = rows.iter().map(|row| Group::of(row, record));
        (groups.filter(Group::is_worth_moving).collect(), self.iter().count())
    }

    /// Rows of at least two extents with bytes, each inside one window, without holes, and seen by
    /// the same snapshots.
    fn rows(&self, record: u64, versions: &Versions) -> Vec<Vec<Member>> {
        let mut rows: Vec<Vec<Member>> = vec![Vec::new()];
        // The window of the row at work and the record after its last.
        let mut goes_on: Option<(u64, u64)> = None;
        for (index, extent) in self.iter() {
            let start = index.saturating_mul(record);
            let end = start.saturating_add(extent.count.saturating_mul(record));
            let window = start / WINDOW_BYTES;
            let at = match extent.place {
                Place::Inline(_) => None,
                Place::Blocks(at) => Some(at),
                Place::Zero | Place::Coded(_) => {
                    goes_on = None;
                    continue;
                }
            };
            if end.div_ceil(WINDOW_BYTES) != window + 1 {
                goes_on = None;
                continue;
            }
            let is_apart = rows.last().is_some_and(|row| is_apart(row, extent.epoch, versions));
            if goes_on != Some((window, index)) || is_apart {
                rows.push(Vec::new());
            }
            goes_on = Some((window, index + extent.count));
            let member = Member { index, count: extent.count, epoch: extent.epoch, at };
            if let Some(row) = rows.last_mut() {
                row.push(member);
            }
        }
        rows.retain(|row| row.len() >= 2);
        rows
    }

    /// True when the extents of a group are still as they were found, and no snapshot has come
    /// between them.
    pub(crate) fn still_has(&self, group: &Group, versions: &Versions) -> bool {
        if is_apart(&group.members, group.members[0].epoch, versions) {
            return false;
        }
        let end = group.index + group.count;
        let now = self.from(group.index).take_while(|(index, _)| *index < end);
        let now = now.map(|(index, extent)| {
            let at = match extent.place {
                Place::Blocks(at) => Some(at),
                _ => None,
            };
            let kept = !matches!(extent.place, Place::Zero | Place::Coded(_));
            kept.then_some(Member { index, count: extent.count, epoch: extent.epoch, at })
        });
        now.eq(group.members.iter().cloned().map(Some))
    }
}

impl Container {
    /// An array value, if there is one of this name.
    pub(crate) fn array(&self, name: &ArrayName) -> Option<&ArrayValue> {
        match self.object(name.unit)?.dkey(&name.dkey)?.akey(&name.akey)? {
            AkeyRef::Array(array) => Some(array),
            _ => None,
        }
    }
}

impl Index {
    /// Lets records give way to the name of their stripe; see [`ArrayValue::fold`]. No effect when there is no such array.
    pub(crate) fn fold(
        &mut self,
        name: &ArrayName,
        stripe: Stripe,
        count: u64,
        effects: &mut Effects,
    ) {
        self.replace(name, effects, |array, fx| array.fold(stripe, count, fx));
    }

    /// Makes one extent of those in a range; see [`ArrayValue::join_range`]. No effect when there
    /// is no such array.
    pub(crate) fn join(
        &mut self,
        name: &ArrayName,
        index: u64,
        count: u64,
        at: u64,
        effects: &mut Effects,
    ) {
        self.replace(name, effects, |array, fx| array.join_range(index, count, at, fx));
    }

    /// A change of where an array's records are.
    fn replace(
        &mut self,
        name: &ArrayName,
        effects: &mut Effects,
        change: impl FnOnce(&mut ArrayValue, &mut Effects),
    ) {
        let Some(container) = self.conts.get_mut(&name.cont) else { return };
        effects.places_blocks = true;
        effects.versions = container.versions.any();
        let (ledger, scope) = (&mut self.ledger, Scope::Dkey(&name.dkey));
        // To readers nothing changes: there is no epoch to note.
        let delta =
            container.change(name.unit, scope, false, None, ledger, effects, |object, fx| {
                let Some(slot) = object.slot_mut(&name.dkey) else { return };
                if !matches!(slot.only().akey(&name.akey), Some(AkeyRef::Array(_))) {
                    return;
                }
                if let Some(Akey::Array(array)) = slot.full().akeys.get_mut(&*name.akey) {
                    change(array, fx);
                }
            });
        self.count(&delta);
    }
}
