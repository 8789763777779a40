//! An object as a snapshot sees it: the head's values that were there already, overlaid with what
//! the past has of the others.
//!
//! [`ObjectAt`] is the present when its epoch is [`Epoch::ZERO`], at no cost. Everything that is
//! read goes through it and the `Old` forms of [`DkeyRef`] and [`AkeyRef`], so that reading the
//! past is the same code as reading the present.
//!
//! Invariant: `at` is a snapshot of the container, so all that it sees is in head or past.

use std::cmp::Ordering;
use std::ops::Bound;

use types::{Epoch, Key, Unit};

use super::Container;
use super::extent::{ArrayValue, Place, ReadPart, read_parts};
use super::object::{DkeyIter, DkeyName, Object, Position};
use super::past::{Facts, Order, PastAkey, PastDkey};
use super::slot::{AkeyRef, Dkey, DkeyRef, OneValue, Single};

/// An object, at an epoch; see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectAt<'a> {
    object: &'a Object,
    at: Epoch,
}

impl Container {
    /// The object as of `at` (zero: now), if it holds anything then.
    pub(crate) fn object_at(&self, unit: Unit, at: Epoch) -> Option<ObjectAt<'_>> {
        if at == Epoch::ZERO {
            return self.object(unit).map(|object| ObjectAt { object, at });
        }
        let object = self.whole(unit)?.life_at(at);
        let found = ObjectAt { object, at };
        (found.facts().dkey_count > 0).then_some(found)
    }
}

impl Object {
    /// The life of the object that an epoch falls into.
    fn life_at(&self, at: Epoch) -> &Object {
        let lives = self.past.iter().flat_map(|past| &past.lives);
        lives.into_iter().find(|life| life.until > at).map_or(self, |life| &life.object)
    }
}

impl<'a> ObjectAt<'a> {
    /// True when what is seen is this life of the object, not an earlier one.
    pub(crate) fn is_life(&self, object: &Object) -> bool {
        std::ptr::eq(self.object, object)
    }

    /// Numbers about the object.
    pub(crate) fn facts(&self) -> Facts {
        let object = self.object;
        let now = Facts {
            until: Epoch::MAX,
            epoch: object.epoch,
            keys_epoch: object.keys_epoch,
            bytes_used: object.bytes_used,
            dkey_count: object.dkey_count,
            counted_links: object.counted_links,
        };
        if self.at == Epoch::ZERO {
            return now;
        }
        if self.at < object.born {
            return Facts { bytes_used: 0, dkey_count: 0, counted_links: 0, ..now };
        }
        let noted = object.past.iter().flat_map(|past| &past.facts);
        noted.into_iter().find(|facts| facts.until > self.at).copied().unwrap_or(now)
    }

    /// The dkey, if it is there.
    pub(crate) fn dkey(&self, dkey: &[u8]) -> Option<DkeyRef<'a>> {
        let head = self.object.dkey(dkey);
        if self.at == Epoch::ZERO {
            return head;
        }
        let past = self.object.past.as_ref();
        let past = past.and_then(|past| past.dkeys.get(&self.object.order_key(dkey)));
        dkey_at(head, past, self.at)
    }

    /// Dkeys after a position, in order; see [`Object::dkeys_after`].
    pub(crate) fn dkeys_after(
        &self,
        position: Position<'_>,
        hash_range: (u64, u64),
    ) -> DkeyIter<'a> {
        let head = self.object.dkeys_after(position, hash_range);
        if self.at == Epoch::ZERO {
            return head;
        }
        let (object, at) = (self.object, self.at);
        let hashed = object.kind() == types::DkeyKind::Hashed;
        let lowest = (if hashed { hash_range.0 } else { 0 }, Key::default());
        let after = match position {
            Position::Start => None,
            Position::After(key) => Some(object.order_key(key)).filter(|order| *order >= lowest),
        };
        let past = object.past.iter().flat_map(move |past| {
            past.dkeys_from(after.as_ref().map_or(Bound::Included(&lowest), Bound::Excluded))
        });
        let past = past.take_while(move |(order, _)| !hashed || order.0 <= hash_range.1);
        merged(object, head, past, at, false)
    }

    /// All dkeys, in order.
    pub(crate) fn dkeys(&self) -> DkeyIter<'a> {
        self.dkeys_after(Position::Start, (0, u64::MAX))
    }

    /// All dkeys, from the greatest down; `None` for hashed dkeys.
    pub(crate) fn dkeys_down(&self) -> Option<DkeyIter<'a>> {
        let head = self.object.dkeys_down()?;
        if self.at == Epoch::ZERO {
            return Some(head);
        }
        let past = self.object.past.iter();
        let past = past.flat_map(|past| past.dkeys_from(Bound::Unbounded).rev());
        Some(merged(self.object, head, past, self.at, true))
    }

    /// See [`Object::tail`].
    pub(crate) fn tail(&self) -> Option<(u64, u64)> {
        if self.at == Epoch::ZERO {
            return self.object.tail();
        }
        if self.object.kind() != types::DkeyKind::U64 {
            return None;
        }
        self.dkeys_down()?.find_map(|(name, dkey)| match (name, dkey.akey(b"")) {
            (DkeyName::Number(number), Some(value)) => Some((number, value.array()?.end())),
            _ => None,
        })
    }
}

/// Joins dkeys of the head with those of the past, both in order (or both in reverse).
fn merged<'a>(
    object: &'a Object,
    head: DkeyIter<'a>,
    past: impl Iterator<Item = (&'a Order, &'a PastDkey)> + 'a,
    at: Epoch,
    is_down: bool,
) -> DkeyIter<'a> {
    let (mut head, mut past) = (head.peekable(), past.peekable());
    Box::new(std::iter::from_fn(move || {
        loop {
            let order = match (head.peek(), past.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((name, _)), Some((order, _))) => {
                    let order = object.order_of(*name).cmp(&(order.0, &order.1));
                    if is_down { order.reverse() } else { order }
                }
            };
            let now = if order.is_le() { head.next() } else { None };
            let old = if order.is_ge() { past.next() } else { None };
            let name = match (&now, &old) {
                (Some((name, _)), _) => *name,
                (None, Some((order, _))) => object.name_of(order),
                (None, None) => return None,
            };
            let found = dkey_at(now.map(|(_, dkey)| dkey), old.map(|(_, dkey)| dkey), at);
            if let Some(found) = found {
                return Some((name, found));
            }
        }
    }))
}

/// What is seen at `at` of a dkey.
fn dkey_at<'a>(
    head: Option<DkeyRef<'a>>,
    past: Option<&'a PastDkey>,
    at: Epoch,
) -> Option<DkeyRef<'a>> {
    if let Some(head) = head
        && head.epoch() <= at
    {
        return Some(head);
    }
    let (one, full) = match head {
        Some(DkeyRef::One(one)) => (Some(one), None),
        Some(DkeyRef::Full(full)) => (None, Some(full)),
        _ => (None, None),
    };
    let old = OldDkey { one, full, past, at };
    old.akeys().next().is_some().then_some(DkeyRef::Old(old))
}

/// A dkey as a snapshot sees it, when it has changed since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldDkey<'a> {
    one: Option<&'a OneValue>,
    full: Option<&'a Dkey>,
    past: Option<&'a PastDkey>,
    at: Epoch,
}

impl<'a> OldDkey<'a> {
    fn head(&self) -> Option<DkeyRef<'a>> {
        self.one.map(DkeyRef::One).or(self.full.map(DkeyRef::Full))
    }

    /// The newest of its values' epochs.
    pub(crate) fn epoch(&self) -> Epoch {
        self.akeys().map(|(_, value)| value.epoch()).max().unwrap_or(Epoch::ZERO)
    }

    /// The value of an akey.
    pub(crate) fn akey(&self, akey: &[u8]) -> Option<AkeyRef<'a>> {
        let head = self.head().and_then(|head| head.akey(akey));
        let past = self.past.and_then(|past| past.akeys.get(akey));
        value_at(head, past, self.at)
    }

    /// Akeys and values, in order of bytes.
    pub(crate) fn akeys(&self) -> impl Iterator<Item = (&'a [u8], AkeyRef<'a>)> + 'a {
        let at = self.at;
        let mut head = self.head().into_iter().flat_map(|head| head.akeys()).peekable();
        let mut past = self.past.into_iter().flat_map(|past| past.akeys.iter()).peekable();
        std::iter::from_fn(move || {
            loop {
                let order = match (head.peek(), past.peek()) {
                    (None, None) => return None,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((name, _)), Some((other, _))) => (*name).cmp(&other[..]),
                };
                let now = if order.is_le() { head.next() } else { None };
                let old = if order.is_ge() { past.next() } else { None };
                let name = match (&now, old) {
                    (Some((name, _)), _) => *name,
                    (None, Some((name, _))) => &name[..],
                    (None, None) => return None,
                };
                let found = value_at(now.map(|(_, v)| v), old.map(|(_, values)| values), at);
                if let Some(found) = found {
                    return Some((name, found));
                }
            }
        })
    }
}

/// What is seen at `at` of an akey.
fn value_at<'a>(
    head: Option<AkeyRef<'a>>,
    past: Option<&'a PastAkey>,
    at: Epoch,
) -> Option<AkeyRef<'a>> {
    if let Some(head) = head
        && head.epoch() <= at
    {
        return Some(head);
    }
    let single = past.and_then(|past| {
        past.singles.iter().find(|piece| piece.created <= at && at < piece.destroyed)
    });
    if let Some(piece) = single {
        return Some(match &piece.value {
            Single::Inline(bytes) => AkeyRef::Inline(piece.created, bytes),
            Single::Runs(runs) => AkeyRef::Runs(piece.created, runs),
        });
    }
    let head = match head {
        Some(AkeyRef::Array(array)) => Some(array),
        _ => None,
    };
    let old = OldArray { head, past, at };
    old.from(0).next().is_some().then_some(AkeyRef::Old(old))
}

/// An extent as it is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    /// First record.
    pub index: u64,
    pub count: u64,
    /// When they were written.
    pub epoch: Epoch,
    /// Size of a record.
    pub record_bytes: u32,
    pub place: &'a Place,
    /// The head has lost them.
    pub is_past: bool,
}

/// An array as a snapshot sees it, when it has changed since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldArray<'a> {
    head: Option<&'a ArrayValue>,
    past: Option<&'a PastAkey>,
    at: Epoch,
}

impl<'a> OldArray<'a> {
    /// No later than this it was changed: the snapshot. The very change is not looked for.
    pub(crate) fn epoch(&self) -> Epoch {
        self.at
    }

    /// Extents that end after `from`, upwards.
    fn from(&self, from: u64) -> impl Iterator<Item = Shown<'a>> + 'a {
        let at = self.at;
        let head = self.head.into_iter().flat_map(move |array| {
            let shown = array.from(from).filter(move |(_, extent)| extent.epoch <= at);
            shown.map(|(index, extent)| show(array, index, extent))
        });
        let past = self.past.into_iter().flat_map(move |past| past.extents_from(from));
        let past = past.filter_map(move |found| show_past(found, at));
        join(head, past.filter(move |shown| shown.index + shown.count > from), false)
    }

    /// Extents that begin before `to`, downwards.
    fn below(&self, to: u64) -> impl Iterator<Item = Shown<'a>> + 'a {
        let at = self.at;
        let head = self.head.into_iter().flat_map(move |array| {
            let shown = array.below(to).filter(move |(_, extent)| extent.epoch <= at);
            shown.map(|(index, extent)| show(array, index, extent))
        });
        let past = self.past.into_iter().flat_map(move |past| {
            let below = past.extents.range(..(to, Epoch::ZERO)).rev();
            below.map(|(&(index, created), piece)| (index, created, piece))
        });
        join(head, past.filter_map(move |found| show_past(found, at)), true)
    }
}

fn show<'a>(array: &ArrayValue, index: u64, extent: &'a super::extent::Extent) -> Shown<'a> {
    Shown {
        index,
        count: extent.count,
        epoch: extent.epoch,
        record_bytes: array.record_bytes,
        place: &extent.place,
        is_past: false,
    }
}

fn show_past(
    (index, epoch, piece): (u64, Epoch, &super::past::PastExtent),
    at: Epoch,
) -> Option<Shown<'_>> {
    let seen = epoch <= at && at < piece.destroyed;
    seen.then_some(Shown {
        index,
        count: piece.count,
        epoch,
        record_bytes: piece.record_bytes,
        place: &piece.place,
        is_past: true,
    })
}

/// Joins extents that do not overlap, both in order (or both in reverse).
fn join<'a>(
    a: impl Iterator<Item = Shown<'a>> + 'a,
    b: impl Iterator<Item = Shown<'a>> + 'a,
    is_down: bool,
) -> impl Iterator<Item = Shown<'a>> + 'a {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(x), Some(y)) if (x.index < y.index) != is_down => a.next(),
        (Some(_), None) => a.next(),
        _ => b.next(),
    })
}

/// An array of the head, or as a snapshot sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArrayRef<'a> {
    Head(&'a ArrayValue),
    Old(OldArray<'a>),
}

impl<'a> ArrayRef<'a> {
    /// Size of a record.
    pub(crate) fn record_bytes(&self) -> u32 {
        match self {
            ArrayRef::Head(array) => array.record_bytes,
            ArrayRef::Old(array) => array.from(0).next().map_or(1, |shown| shown.record_bytes),
        }
    }

    /// Newest change, as far as it is known.
    pub(crate) fn epoch(&self) -> Epoch {
        match self {
            ArrayRef::Head(array) => array.epoch,
            ArrayRef::Old(array) => array.epoch(),
        }
    }

    /// One past the last record.
    pub(crate) fn end(&self) -> u64 {
        match self {
            ArrayRef::Head(array) => array.end(),
            ArrayRef::Old(_) => self.last().map_or(0, |shown| shown.index + shown.count),
        }
    }

    pub(crate) fn first(&self) -> Option<Shown<'a>> {
        match *self {
            ArrayRef::Head(array) => {
                array.first().map(|(index, extent)| show(array, index, extent))
            }
            ArrayRef::Old(array) => array.from(0).next(),
        }
    }

    pub(crate) fn last(&self) -> Option<Shown<'a>> {
        match *self {
            ArrayRef::Head(array) => array.last().map(|(index, extent)| show(array, index, extent)),
            ArrayRef::Old(array) => array.below(u64::MAX).next(),
        }
    }

    /// Extents that end after `from`, upwards.
    pub(crate) fn from(&self, from: u64) -> Box<dyn Iterator<Item = Shown<'a>> + 'a> {
        match *self {
            ArrayRef::Head(array) => {
                Box::new(array.from(from).map(move |(index, extent)| show(array, index, extent)))
            }
            ArrayRef::Old(array) => Box::new(array.from(from)),
        }
    }

    /// Extents that begin before `to`, downwards.
    pub(crate) fn below(&self, to: u64) -> Box<dyn Iterator<Item = Shown<'a>> + 'a> {
        match *self {
            ArrayRef::Head(array) => {
                Box::new(array.below(to).map(move |(index, extent)| show(array, index, extent)))
            }
            ArrayRef::Old(array) => Box::new(array.below(to)),
        }
    }

    /// See [`ArrayValue::read`].
    pub(crate) fn read(&self, index: u64, count: u64, part: impl FnMut(ReadPart<'a>)) {
        match *self {
            ArrayRef::Head(array) => array.read(index, count, part),
            ArrayRef::Old(array) => {
                let extents =
                    array.from(index).map(|shown| (shown.index, shown.count, shown.place));
                read_parts(extents, self.record_bytes(), index, count, part);
            }
        }
    }
}
