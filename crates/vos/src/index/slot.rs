//! What one dkey holds.
//!
//! The common case, one akey with one small single value (a directory entry), is one
//! allocation and sixteen bytes in the tree ([`OneValue`]). Everything else is a [`Dkey`].
//! Two hashed dkeys of equal hash share a [`Slot`] as a bucket ordered by key.
//!
//! Invariants: a `Dkey` has at least one akey; an array has at least one extent; a bucket has
//! at least two slots, none itself a bucket. The dkey epoch of a `OneValue` is its value's.

use types::{Epoch, Key};
use wire::link;

use super::at::{ArrayRef, OldArray, OldDkey};
use super::extent::{ArrayValue, Place};
use super::past::PastValue;
use super::{Effects, cost};
use crate::blocks::Run;
use crate::index::ordered::{OrdMap, Range};

/// Largest value of the packed form, bytes: above, copying on change costs more than it saves.
const ONE_VALUE_BYTES_MAX: usize = 4096;
const HEAD_BYTES: usize = 12;

/// A dkey in the tree.
#[derive(Debug)]
pub(crate) enum Slot {
    /// One akey with one small single value.
    One(OneValue),
    Rest(Box<Rest>),
}

/// The forms of a dkey that need more room.
#[derive(Debug)]
pub(crate) enum Rest {
    /// A dkey of any content.
    Dkey(Dkey),
    /// Dkeys of equal hash.
    Bucket(Vec<Slot>),
}

/// A dkey of any content.
#[derive(Debug)]
pub(crate) struct Dkey {
    /// Last change.
    pub epoch: Epoch,
    /// Its bytes; empty where the tree's key says all.
    pub key: Box<[u8]>,
    pub akeys: OrdMap<Key, Akey>,
}

/// The value of an akey.
#[derive(Debug)]
pub(crate) enum Akey {
    Single { epoch: Epoch, value: Single<Box<[u8]>> },
    Array(Box<ArrayValue>),
}

/// Where a single value is; `B` holds or borrows inline bytes.
#[derive(Clone, Debug)]
pub(crate) enum Single<B> {
    Inline(B),
    /// In the data area.
    Runs(Box<[Run]>),
}

/// A value to be set.
#[derive(Debug)]
pub(crate) enum NewValue<'a> {
    Single(Single<&'a [u8]>),
    /// Records of an array; at least one.
    Records {
        record_bytes: u32,
        index: u64,
        count: u64,
        place: Place,
    },
}

/// A value as it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AkeyRef<'a> {
    /// A single value kept in memory.
    Inline(Epoch, &'a [u8]),
    /// A single value in the data area.
    Runs(Epoch, &'a [Run]),
    Array(&'a ArrayValue),
    /// An array as a snapshot sees it.
    Old(OldArray<'a>),
}

impl<'a> AkeyRef<'a> {
    /// Last change.
    pub(crate) fn epoch(&self) -> Epoch {
        match self {
            AkeyRef::Inline(epoch, _) | AkeyRef::Runs(epoch, _) => *epoch,
            AkeyRef::Array(array) => array.epoch,
            AkeyRef::Old(array) => array.epoch(),
        }
    }

    /// The array, if it is one.
    pub(crate) fn array(&self) -> Option<ArrayRef<'a>> {
        match *self {
            AkeyRef::Array(array) => Some(ArrayRef::Head(array)),
            AkeyRef::Old(array) => Some(ArrayRef::Old(array)),
            _ => None,
        }
    }

    fn is_counted_link(&self) -> bool {
        matches!(self, AkeyRef::Inline(_, value) if link::is_counted(value))
    }

    /// Memory it counts for, beside the akey itself.
    fn scm_bytes(&self) -> u64 {
        match self {
            AkeyRef::Inline(_, value) => value.len() as u64,
            AkeyRef::Runs(_, runs) => cost::RUN * runs.len() as u64,
            AkeyRef::Array(array) => array.scm_bytes(),
            // Counted where it is.
            AkeyRef::Old(_) => 0,
        }
    }

    /// Bytes of user data.
    fn stored_bytes(&self) -> u64 {
        match self {
            AkeyRef::Inline(_, value) => value.len() as u64,
            AkeyRef::Runs(_, runs) => runs.iter().map(|run| run.bytes).sum(),
            AkeyRef::Array(array) => array.stored_bytes(),
            AkeyRef::Old(_) => 0,
        }
    }

    /// Reports the value as removed at `epoch`: it is freed, or kept for the snapshots that see it.
    fn remove(&self, akey: &[u8], epoch: Epoch, effects: &mut Effects) {
        effects.scm -= self.scm_bytes() as i64;
        effects.bytes -= self.stored_bytes() as i64;
        match *self {
            AkeyRef::Inline(created, bytes) => {
                if effects.sees(created, epoch) {
                    let value = PastValue::Single(Single::Inline(bytes.into()));
                    effects.keep(akey, created, epoch, value);
                }
            }
            AkeyRef::Runs(created, runs) => {
                if effects.sees(created, epoch) {
                    let value = PastValue::Single(Single::Runs(runs.into()));
                    effects.keep(akey, created, epoch, value);
                } else {
                    runs.iter().for_each(|&run| effects.release(run));
                }
            }
            AkeyRef::Array(array) => array.remove(akey, epoch, effects),
            AkeyRef::Old(_) => {}
        }
    }

    /// Every run of the data area it touches.
    pub(crate) fn runs(&self, mut each: impl FnMut(Run)) {
        match self {
            AkeyRef::Inline(..) => {}
            AkeyRef::Runs(_, runs) => runs.iter().for_each(|&run| each(run)),
            AkeyRef::Array(array) => array.runs().for_each(each),
            AkeyRef::Old(_) => {}
        }
    }

    /// Total bytes of a single value; 0 for an array.
    pub(crate) fn single_bytes(&self) -> u64 {
        match self {
            AkeyRef::Array(_) | AkeyRef::Old(_) => 0,
            _ => self.stored_bytes(),
        }
    }
}

/// A dkey as it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DkeyRef<'a> {
    /// The packed form.
    One(&'a OneValue),
    /// The general form.
    Full(&'a Dkey),
    /// A dkey as a snapshot sees it.
    Old(OldDkey<'a>),
}

impl<'a> DkeyRef<'a> {
    /// Last change.
    pub(crate) fn epoch(&self) -> Epoch {
        match self {
            DkeyRef::One(one) => one.epoch(),
            DkeyRef::Full(dkey) => dkey.epoch,
            DkeyRef::Old(dkey) => dkey.epoch(),
        }
    }

    /// Its stored bytes; empty where the tree's key says all.
    pub(crate) fn key(&self) -> &'a [u8] {
        match self {
            DkeyRef::One(one) => one.key(),
            DkeyRef::Full(dkey) => &dkey.key,
            DkeyRef::Old(_) => b"",
        }
    }

    /// The value of an akey.
    pub(crate) fn akey(&self, akey: &[u8]) -> Option<AkeyRef<'a>> {
        match self {
            DkeyRef::One(one) => {
                (one.akey() == akey).then(|| AkeyRef::Inline(one.epoch(), one.value()))
            }
            DkeyRef::Full(dkey) => dkey.akeys.get(akey).map(Akey::read),
            DkeyRef::Old(dkey) => dkey.akey(akey),
        }
    }

    /// Akeys and values, in order of bytes.
    pub(crate) fn akeys(&self) -> Akeys<'a> {
        match self {
            DkeyRef::One(one) => Akeys::One(Some(one)),
            DkeyRef::Full(dkey) => Akeys::Full(dkey.akeys.iter()),
            DkeyRef::Old(dkey) => Akeys::Old(Box::new(dkey.akeys())),
        }
    }

    /// True when the empty akey holds an array.
    pub(crate) fn has_array(&self) -> bool {
        !matches!(self, DkeyRef::One(_))
            && self.akey(b"").is_some_and(|value| value.array().is_some())
    }

    /// Links in it that ask to be counted; see [`wire::link`].
    pub(crate) fn counted_links(&self) -> u64 {
        match self {
            DkeyRef::One(one) => (!one.akey().is_empty() && link::is_counted(one.value())) as u64,
            _ => self.akeys().filter(|(akey, _)| self.counts_link(akey)).count() as u64,
        }
    }

    /// True when an akey holds a link that asks to be counted.
    pub(crate) fn counts_link(&self, akey: &[u8]) -> bool {
        !akey.is_empty() && self.akey(akey).is_some_and(|value| value.is_counted_link())
    }

    /// Reports the dkey and all in it as removed at `epoch`; `key_bytes` is the length of its key.
    pub(crate) fn remove(&self, key_bytes: usize, epoch: Epoch, effects: &mut Effects) {
        effects.scm -= (cost::DKEY + key_bytes as u64) as i64;
        for (akey, value) in self.akeys() {
            effects.scm -= (cost::AKEY + akey.len() as u64) as i64;
            value.remove(akey, epoch, effects);
        }
    }
}

/// Iterator over akeys.
pub(crate) enum Akeys<'a> {
    One(Option<&'a OneValue>),
    Full(Range<'a, Key, Akey>),
    Old(Box<dyn Iterator<Item = (&'a [u8], AkeyRef<'a>)> + 'a>),
}

impl<'a> Iterator for Akeys<'a> {
    type Item = (&'a [u8], AkeyRef<'a>);
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Akeys::One(one) => {
                let one = one.take()?;
                Some((one.akey(), AkeyRef::Inline(one.epoch(), one.value())))
            }
            Akeys::Full(range) => range.next().map(|(key, akey)| (&**key, akey.read())),
            Akeys::Old(akeys) => akeys.next(),
        }
    }
}

impl Akey {
    fn read(&self) -> AkeyRef<'_> {
        match self {
            Akey::Single { epoch, value: Single::Inline(bytes) } => AkeyRef::Inline(*epoch, bytes),
            Akey::Single { epoch, value: Single::Runs(runs) } => AkeyRef::Runs(*epoch, runs),
            Akey::Array(array) => AkeyRef::Array(array),
        }
    }

    fn new(value: NewValue<'_>, epoch: Epoch, effects: &mut Effects) -> Akey {
        match value {
            NewValue::Single(single) => {
                let value = match single {
                    Single::Inline(bytes) => Single::Inline(bytes.into()),
                    Single::Runs(runs) => Single::Runs(runs),
                };
                let akey = Akey::Single { epoch, value };
                effects.scm += akey.read().scm_bytes() as i64;
                effects.bytes += akey.read().stored_bytes() as i64;
                akey
            }
            NewValue::Records { record_bytes, index, count, place } => {
                let mut array = Box::new(ArrayValue::new(record_bytes));
                array.write(index, count, place, epoch, effects);
                Akey::Array(array)
            }
        }
    }
}

impl Dkey {
    /// Sets a value; another kind of value or record size that was there is replaced whole.
    pub(crate) fn set(
        &mut self,
        akey: &[u8],
        value: NewValue<'_>,
        epoch: Epoch,
        effects: &mut Effects,
    ) {
        self.epoch = epoch;
        match (self.akeys.get_mut(akey), value) {
            (Some(Akey::Array(array)), NewValue::Records { record_bytes, index, count, place })
                if array.record_bytes == record_bytes =>
            {
                let kept = effects.kept.len();
                array.write(index, count, place, epoch, effects);
                effects.name_kept(kept, akey);
            }
            (Some(old), value) => {
                old.read().remove(akey, epoch, effects);
                *old = Akey::new(value, epoch, effects);
            }
            (None, value) => {
                effects.scm += (cost::AKEY + akey.len() as u64) as i64;
                self.akeys.insert_new(Key::new(akey), Akey::new(value, epoch, effects));
            }
        }
    }

    /// Removes an akey; false when it was not there.
    pub(crate) fn remove_akey(&mut self, akey: &[u8], epoch: Epoch, effects: &mut Effects) -> bool {
        let Some(old) = self.akeys.remove(akey) else { return false };
        self.epoch = epoch;
        effects.scm -= (cost::AKEY + akey.len() as u64) as i64;
        old.read().remove(akey, epoch, effects);
        true
    }

    /// Removes records of an array; false when there is no such array.
    pub(crate) fn punch_records(
        &mut self,
        akey: &[u8],
        index: u64,
        count: u64,
        epoch: Epoch,
        effects: &mut Effects,
    ) -> bool {
        let Some(Akey::Array(array)) = self.akeys.get_mut(akey) else { return false };
        let kept = effects.kept.len();
        array.punch(index, count, epoch, effects);
        effects.name_kept(kept, akey);
        self.epoch = epoch;
        if array.is_empty() {
            self.remove_akey(akey, epoch, effects);
        }
        true
    }
}

impl Slot {
    /// A dkey with its first value.
    pub(crate) fn new(
        key: &[u8],
        akey: &[u8],
        value: NewValue<'_>,
        epoch: Epoch,
        effects: &mut Effects,
    ) -> Slot {
        effects.scm += (cost::DKEY + cost::AKEY + akey.len() as u64) as i64;
        if let NewValue::Single(Single::Inline(bytes)) = value
            && bytes.len() <= ONE_VALUE_BYTES_MAX
        {
            effects.scm += bytes.len() as i64;
            effects.bytes += bytes.len() as i64;
            return Slot::One(OneValue::new(key, akey, epoch, bytes));
        }
        let mut akeys = OrdMap::default();
        akeys.insert_new(Key::new(akey), Akey::new(value, epoch, effects));
        Slot::Rest(Box::new(Rest::Dkey(Dkey { epoch, key: key.into(), akeys })))
    }

    /// Sets a value; the slot is not a bucket.
    pub(crate) fn set(
        &mut self,
        akey: &[u8],
        value: NewValue<'_>,
        epoch: Epoch,
        effects: &mut Effects,
    ) {
        if let Slot::One(one) = self
            && one.akey() == akey
            && let NewValue::Single(Single::Inline(bytes)) = value
            && bytes.len() <= ONE_VALUE_BYTES_MAX
        {
            AkeyRef::Inline(one.epoch(), one.value()).remove(akey, epoch, effects);
            effects.scm += bytes.len() as i64;
            effects.bytes += bytes.len() as i64;
            one.replace(epoch, bytes);
            return;
        }
        self.full().set(akey, value, epoch, effects);
    }

    /// The general form, changed into it if need be; the slot is not a bucket.
    pub(crate) fn full(&mut self) -> &mut Dkey {
        if let Slot::One(one) = self {
            let mut akeys = OrdMap::default();
            let value = Single::Inline(one.value().into());
            akeys.insert_new(Key::new(one.akey()), Akey::Single { epoch: one.epoch(), value });
            let dkey = Dkey { epoch: one.epoch(), key: one.key().into(), akeys };
            *self = Slot::Rest(Box::new(Rest::Dkey(dkey)));
        }
        match self {
            Slot::Rest(rest) => match &mut **rest {
                Rest::Dkey(dkey) => dkey,
                Rest::Bucket(_) => unreachable!("a bucket is not a dkey"),
            },
            Slot::One(_) => unreachable!("changed above"),
        }
    }

    /// The dkeys in this slot: one, or several when it is a bucket, in order of bytes.
    pub(crate) fn dkeys(&self) -> impl DoubleEndedIterator<Item = DkeyRef<'_>> {
        let members: &[Slot] = match self {
            Slot::Rest(rest) => match &**rest {
                Rest::Bucket(members) => members,
                Rest::Dkey(_) => std::slice::from_ref(self),
            },
            Slot::One(_) => std::slice::from_ref(self),
        };
        members.iter().map(Slot::only)
    }

    /// The dkey of a slot that is not a bucket.
    pub(crate) fn only(&self) -> DkeyRef<'_> {
        match self {
            Slot::One(one) => DkeyRef::One(one),
            Slot::Rest(rest) => match &**rest {
                Rest::Dkey(dkey) => DkeyRef::Full(dkey),
                Rest::Bucket(_) => unreachable!("a bucket is not a dkey"),
            },
        }
    }

    /// The members of a bucket.
    pub(crate) fn bucket(&mut self) -> Option<&mut Vec<Slot>> {
        match self {
            Slot::Rest(rest) => match &mut **rest {
                Rest::Bucket(members) => Some(members),
                Rest::Dkey(_) => None,
            },
            Slot::One(_) => None,
        }
    }
}

/// Epoch, dkey, akey and value in one allocation: 8 bytes of epoch, 2 of dkey length, 2 of
/// akey length, then the three.
#[derive(Debug)]
pub(crate) struct OneValue(Box<[u8]>);

impl OneValue {
    fn new(key: &[u8], akey: &[u8], epoch: Epoch, value: &[u8]) -> OneValue {
        let mut raw = Vec::with_capacity(HEAD_BYTES + key.len() + akey.len() + value.len());
        raw.extend_from_slice(&epoch.0.to_ne_bytes());
        raw.extend_from_slice(&(key.len() as u16).to_ne_bytes());
        raw.extend_from_slice(&(akey.len() as u16).to_ne_bytes());
        raw.extend_from_slice(key);
        raw.extend_from_slice(akey);
        raw.extend_from_slice(value);
        OneValue(raw.into_boxed_slice())
    }

    fn replace(&mut self, epoch: Epoch, value: &[u8]) {
        let start = HEAD_BYTES + self.key_bytes() + self.akey_bytes();
        if self.0.len() - start == value.len() {
            self.0[..8].copy_from_slice(&epoch.0.to_ne_bytes());
            self.0[start..].copy_from_slice(value);
        } else {
            *self = OneValue::new(self.key(), self.akey(), epoch, value);
        }
    }

    fn key_bytes(&self) -> usize {
        u16::from_ne_bytes([self.0[8], self.0[9]]) as usize
    }

    fn akey_bytes(&self) -> usize {
        u16::from_ne_bytes([self.0[10], self.0[11]]) as usize
    }

    pub(crate) fn epoch(&self) -> Epoch {
        let mut raw = [0; 8];
        raw.copy_from_slice(&self.0[..8]);
        Epoch(u64::from_ne_bytes(raw))
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0[HEAD_BYTES..HEAD_BYTES + self.key_bytes()]
    }

    pub(crate) fn akey(&self) -> &[u8] {
        let start = HEAD_BYTES + self.key_bytes();
        &self.0[start..start + self.akey_bytes()]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.0[HEAD_BYTES + self.key_bytes() + self.akey_bytes()..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_two_words() {
        assert_eq!(std::mem::size_of::<Slot>(), 16);
    }

    #[test]
    fn the_packed_form_gives_back_its_parts() {
        let mut one = OneValue::new(b"name", b"i", Epoch(9), b"value");
        assert_eq!((one.key(), one.akey(), one.value()), (&b"name"[..], &b"i"[..], &b"value"[..]));
        one.replace(Epoch(10), b"VALUE");
        assert_eq!((one.epoch(), one.value()), (Epoch(10), &b"VALUE"[..]));
        one.replace(Epoch(11), b"");
        assert_eq!((one.epoch(), one.key(), one.value()), (Epoch(11), &b"name"[..], &b""[..]));
    }
}
