//! What images of dkeys and facts of units look like on their way to another member, and what is refused of them.
//!
//! The first byte is the version, then comes a sum over all that follows. See [`crate::image`].

use serde::{Deserialize, Serialize};
use types::sums::SUM_CHUNK_BYTES;
use types::{Code, ContId, CsumKind, Epoch, Error, Key, Result, Unit, limits};
use wire::cell::Stripe;
use wire::obj::{Cond, Op, Recx, UpdateIod, UpdateValue};

use crate::index::extent::Place;
use crate::index::install::DkeyContents;
use crate::index::past::{Kept, PastValue};
use crate::index::slot::Single;
use crate::index::versions::Versions;
use crate::likeness::{Kind, Told};
use crate::payload::Piece;
use crate::record::{ChangeDf, FactsDf, InstallDf, PlaceDf, TouchDf};
use crate::{changes, keys};

/// Version of images and of facts, their first byte.
const IMAGE_VERSION: u8 = 1;
/// The version, and CRC-32C of what follows.
const HEAD_BYTES: usize = 5;

/// All of a dkey.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ImageDf<'a> {
    pub unit: Unit,
    #[serde(with = "serde_bytes", borrow)]
    pub dkey: &'a [u8],
    /// Its last change; zero: it is not there now.
    pub epoch: Epoch,
    #[serde(borrow)]
    pub values: Vec<ValueDf<'a>>,
    /// Last changes of arrays that are there now.
    #[serde(borrow)]
    pub arrays: Vec<ArrayDf<'a>>,
    /// Of the data of values, chunk by chunk.
    pub csum: CsumKind,
    #[serde(with = "serde_bytes", borrow)]
    pub sums: &'a [u8],
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ArrayDf<'a> {
    #[serde(with = "serde_bytes", borrow)]
    pub akey: &'a [u8],
    pub epoch: Epoch,
}

/// A value, or records of an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ValueDf<'a> {
    #[serde(with = "serde_bytes", borrow)]
    akey: &'a [u8],
    created: Epoch,
    /// [`Epoch::MAX`]: it is there now.
    destroyed: Epoch,
    #[serde(borrow)]
    what: WhatDf<'a>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum WhatDf<'a> {
    /// A single value that belongs in the index, whatever its size.
    #[serde(borrow)]
    Inline(#[serde(with = "serde_bytes")] &'a [u8]),
    Single(#[serde(with = "serde_bytes", borrow)] &'a [u8]),
    Records {
        record_bytes: u32,
        index: u64,
        count: u64,
        #[serde(with = "serde_bytes", borrow)]
        data: &'a [u8],
    },
    /// Records that read as zero.
    Zero {
        record_bytes: u32,
        index: u64,
        count: u64,
    },
    /// Records that are in cells of other targets.
    Coded {
        record_bytes: u32,
        index: u64,
        count: u64,
        stripe: Stripe,
    },
}

fn bad(why: &str) -> Error {
    Error::new(Code::Csum, format!("image of a key: {why}"))
}

/// Puts version and sum in front.
pub(crate) fn seal(message: &impl Serialize) -> Vec<u8> {
    let mut out = unsealed(message);
    set_sum(&mut out);
    out
}

/// The same without its sum.
fn unsealed(message: &impl Serialize) -> Vec<u8> {
    // All of it at once: large ones would be copied while they grow, each time to memory that was never used.
    let mut out = Vec::with_capacity(HEAD_BYTES + wire::encoded_bytes(message));
    out.resize(HEAD_BYTES, IMAGE_VERSION);
    wire::encode_into(message, &mut out);
    out
}

/// Sums an image that was encoded, by the sums of its data, which must be right.
pub(crate) fn join_sum(unsealed: &mut [u8]) -> Result<()> {
    let (head, body) = unsealed.split_at_mut(HEAD_BYTES);
    let sum = sum_of_body(body, &decode::<ImageDf<'_>>(body)?);
    head[1..].copy_from_slice(&sum);
    Ok(())
}

fn set_sum(unsealed: &mut [u8]) {
    let (head, body) = unsealed.split_at_mut(HEAD_BYTES);
    codec::sum(CsumKind::Crc32c, body, &mut head[1..]);
}

/// The sum that it has, and what that is of. `Version` for another version, `Csum` when it is damaged.
fn open(raw: &[u8]) -> Result<(&[u8], &[u8])> {
    let (head, body) = raw.split_at_checked(HEAD_BYTES).ok_or_else(|| bad("cut short"))?;
    if head[0] != IMAGE_VERSION {
        let why = format!("image of a key of version {}; this is {IMAGE_VERSION}", head[0]);
        return Err(Error::new(Code::Version, why));
    }
    Ok((&head[1..], body))
}

/// Of what was encoded, or has come.
fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    wire::decode(body).map_err(|error| bad(&error.to_string()))
}

fn require_sum(sum: &[u8], of_body: [u8; 4]) -> Result<()> {
    if sum != of_body { Err(bad("it differs from its checksum")) } else { Ok(()) }
}

/// CRC-32C of an encoded image. Where the sums of its data are of that kind it is put together from these, which must be right, and
/// of all that lies between.
fn sum_of_body(body: &[u8], image: &ImageDf<'_>) -> [u8; 4] {
    let mut joined = codec::JoinedSum::default();
    let mut at = 0;
    let mut sums = image.sums.chunks_exact(4);
    let is_usable = image.csum == CsumKind::Crc32c;
    for data in image.summed().filter(|_| is_usable) {
        // Data borrow from the body, one after the other.
        let start = (data.as_ptr().addr()).saturating_sub(body.as_ptr().addr());
        joined.add(body.get(at..start).unwrap_or_default());
        for chunk in data.chunks(SUM_CHUNK_BYTES) {
            match sums.next().and_then(|sum| <[u8; 4]>::try_from(sum).ok()) {
                Some(sum) if chunk.len() == SUM_CHUNK_BYTES => joined.add_chunk(sum),
                _ => joined.add(chunk),
            }
        }
        at = start + data.len();
    }
    joined.add(body.get(at..).unwrap_or_default());
    joined.to_bytes()
}

impl<'a> ValueDf<'a> {
    /// Its data that have sums.
    pub(crate) fn data(&self) -> &'a [u8] {
        match self.what {
            WhatDf::Single(data) | WhatDf::Records { data, .. } => data,
            WhatDf::Inline(_) | WhatDf::Zero { .. } | WhatDf::Coded { .. } => b"",
        }
    }

    /// What sets it; `None` where no op does.
    pub(crate) fn update(&self) -> Option<UpdateIod<'a>> {
        let recxs = |index, count| vec![Recx { index, count }];
        let value = match self.what {
            WhatDf::Inline(data) => UpdateValue::Inline(data),
            WhatDf::Single(data) => UpdateValue::Single { bytes: data.len() as u64 },
            WhatDf::Records { record_bytes, index, count, .. } => {
                UpdateValue::Array { record_bytes, recxs: recxs(index, count) }
            }
            WhatDf::Zero { record_bytes, index, count } => {
                UpdateValue::Zero { record_bytes, recxs: recxs(index, count) }
            }
            WhatDf::Coded { .. } => return None,
        };
        Some(UpdateIod { akey: self.akey, cond: Cond::NONE, value })
    }

    /// What it tells of who wrote it.
    pub(crate) fn told(&self) -> Told<'a> {
        let (kind, record_bytes, start, count, data) = match self.what {
            WhatDf::Inline(data) | WhatDf::Single(data) => {
                (Kind::Single, 1, 0, data.len() as u64, Some(data))
            }
            WhatDf::Records { record_bytes, index, count, data } => {
                (Kind::Data, record_bytes, index, count, Some(data))
            }
            WhatDf::Zero { record_bytes, index, count } => {
                (Kind::Zero, record_bytes, index, count, None)
            }
            WhatDf::Coded { record_bytes, index, count, stripe } => {
                (Kind::Coded(stripe), record_bytes, index, count, None)
            }
        };
        let (akey, created, destroyed) = (self.akey, self.created, self.destroyed);
        let end = start.saturating_add(count);
        Told { akey, created, destroyed, kind, record_bytes, start, end, data }
    }

    /// First record and the one after the last; `None` for a single value.
    fn range(&self) -> Option<(u32, u64, u64)> {
        match self.what {
            WhatDf::Records { record_bytes, index, count, .. }
            | WhatDf::Zero { record_bytes, index, count }
            | WhatDf::Coded { record_bytes, index, count, .. } => {
                Some((record_bytes, index, index.saturating_add(count)))
            }
            _ => None,
        }
    }

    fn check(&self) -> Result<()> {
        if self.akey.len() > limits::KEY_BYTES_MAX || self.created >= self.destroyed {
            return Err(bad("an impossible value"));
        }
        let fits = match self.what {
            WhatDf::Inline(data) => data.len() <= limits::XATTR_BYTES_MAX,
            WhatDf::Single(_) => true,
            WhatDf::Records { record_bytes, index, count, data } => {
                let bytes = count.checked_mul(record_bytes as u64);
                let fits = index.checked_add(count).is_some() && bytes == Some(data.len() as u64);
                fits && count > 0 && record_bytes > 0
            }
            WhatDf::Zero { record_bytes, index, count } => {
                index.checked_add(count).is_some() && count > 0 && record_bytes > 0
            }
            WhatDf::Coded { record_bytes, index, count, stripe } => {
                let fits = index.checked_add(count).is_some() && stripe.first <= index;
                let is_finite = count.checked_mul(record_bytes as u64).is_some();
                fits && is_finite && count > 0 && record_bytes > 0
            }
        };
        if fits { Ok(()) } else { Err(bad("an impossible value")) }
    }
}

impl<'a> ImageDf<'a> {
    /// The image, if it is one that can be installed.
    pub(crate) fn decode(raw: &'a [u8]) -> Result<ImageDf<'a>> {
        let (sum, body) = open(raw)?;
        let image: ImageDf<'a> = decode(body)?;
        image.check()?;
        require_sum(sum, sum_of_body(body, &image))?;
        Ok(image)
    }

    /// Drops values that no snapshot here sees, and the sums of their data.
    pub(crate) fn keep_seen(&mut self, versions: &Versions) {
        let seen = |value: &ValueDf<'_>| {
            value.destroyed == Epoch::MAX || versions.sees(value.created, value.destroyed)
        };
        if self.values.iter().all(seen) {
            return;
        }
        self.values.retain(seen);
        // Those of the rest are not what is left of these.
        (self.csum, self.sums) = (CsumKind::Off, b"");
    }

    /// Pieces of each value; `of_values`: those of values with data, and how many bytes these have.
    pub(crate) fn piece_counts(&self, of_values: &[(usize, u64)]) -> Vec<usize> {
        let mut counts = of_values.iter().map(|(count, _)| *count);
        let of = |value: &ValueDf<'_>| match value.data() {
            b"" => 0,
            _ => counts.next().unwrap_or(0),
        };
        self.values.iter().map(of).collect()
    }

    /// The record that installs it when its data lie in `pieces`.
    pub(crate) fn installed(
        &self,
        mut pieces: &'a [Piece],
        counts: &[usize],
        cont: ContId,
    ) -> Result<InstallDf<'a>> {
        let (unit, dkey) = (self.unit, self.dkey);
        let mut changes = Vec::new();
        let mut past = Vec::new();
        for (value, count) in self.values.iter().zip(counts) {
            let (mine, rest) =
                pieces.split_at_checked(*count).ok_or_else(|| bad("too few pieces"))?;
            pieces = rest;
            let (created, destroyed) = (value.created, value.destroyed);
            let mut each = |change: ChangeDf<'a>| match destroyed {
                Epoch::MAX => changes.push((created, change)),
                destroyed => past.push((created, destroyed, change)),
            };
            if let WhatDf::Coded { record_bytes, index, count, stripe } = value.what {
                let (akey, place) = (value.akey, PlaceDf::Coded(stripe));
                each(ChangeDf::Records { unit, dkey, akey, record_bytes, index, count, place });
            }
            let ops: Option<_> = value.update().map(|iod| Op::Update {
                unit,
                dkey,
                cond: Cond::NONE,
                iods: vec![iod],
            });
            changes::walk(ops.as_slice(), mine, &mut each)?;
        }
        let touch = |array: &ArrayDf<'a>| TouchDf::Akey(dkey, array.akey, array.epoch);
        let touches = self.arrays.iter().map(touch).collect();
        let (epoch, sums) = (self.epoch, Vec::new());
        Ok(InstallDf { cont, unit, dkey, epoch, changes, touches, past, sums })
    }

    /// Data that have sums, in the order of these.
    fn summed(&self) -> impl Iterator<Item = &'a [u8]> {
        self.values.iter().map(ValueDf::data).filter(|data| !data.is_empty())
    }

    /// That it can be installed, and its data are what their sums say.
    fn check(&self) -> Result<()> {
        let image = self;
        keys::check_dkey(image.unit, image.dkey).map_err(|_| bad("an impossible key"))?;
        image.values.iter().try_for_each(ValueDf::check)?;
        // What is there now is in order, and nothing of it replaces something else.
        let mut last: Option<&ValueDf<'_>> = None;
        for value in image.values.iter().filter(|value| value.destroyed == Epoch::MAX) {
            let follows = last.is_none_or(|last| match (last.range(), value.range()) {
                _ if last.akey != value.akey => last.akey < value.akey,
                (Some((size, _, end)), Some((same, start, _))) => size == same && end <= start,
                _ => false,
            });
            if !follows {
                return Err(bad("values out of order"));
            }
            last = Some(value);
        }
        if last.is_none() != (image.epoch == Epoch::ZERO) {
            return Err(bad("a key without values"));
        }
        let lengths = image.summed().map(|data| data.len() as u64);
        let made = codec::value_sums(image.csum, lengths, &image.summed().collect::<Vec<_>>());
        if made.as_deref() != Some(image.sums) {
            return Err(bad("data differ from their checksum; nothing was installed"));
        }
        Ok(())
    }
}

/// An image of what was found, with the bytes of all that lies in the data area one after the other in `data`; without its sum. And the sums of data.
pub(crate) fn encode(
    unit: Unit,
    dkey: &[u8],
    found: &DkeyContents,
    csum: CsumKind,
    mut data: &[u8],
) -> (Vec<u8>, Vec<u8>) {
    let mut values = Vec::with_capacity(found.values.len());
    for Kept { akey, created, destroyed, value } in &found.values {
        let mut take = |bytes: u64| {
            let (mine, rest) = data.split_at(bytes as usize);
            data = rest;
            mine
        };
        let what = match value {
            PastValue::Single(Single::Inline(bytes)) if bytes.len() <= limits::XATTR_BYTES_MAX => {
                WhatDf::Inline(bytes)
            }
            PastValue::Single(Single::Inline(bytes)) => WhatDf::Single(bytes),
            PastValue::Single(Single::Runs(runs)) => {
                WhatDf::Single(take(runs.iter().map(|run| run.bytes).sum()))
            }
            &PastValue::Extent { record_bytes, index, count, ref place } => match place {
                Place::Inline(bytes) => WhatDf::Records { record_bytes, index, count, data: bytes },
                Place::Blocks(_) => {
                    let data = take(count * record_bytes as u64);
                    WhatDf::Records { record_bytes, index, count, data }
                }
                Place::Zero => WhatDf::Zero { record_bytes, index, count },
                &Place::Coded(stripe) => WhatDf::Coded { record_bytes, index, count, stripe },
            },
        };
        values.push(ValueDf { akey, created: *created, destroyed: *destroyed, what });
    }
    let array = |(akey, epoch): &'_ (Key, Epoch)| (akey.clone(), *epoch);
    let arrays: Vec<(Key, Epoch)> = found.arrays.iter().map(array).collect();
    let summed = || values.iter().map(ValueDf::data).filter(|data| !data.is_empty());
    let lengths = summed().map(|data| data.len() as u64);
    let sums = codec::value_sums(csum, lengths, &summed().collect::<Vec<_>>()).unwrap_or_default();
    let image = unsealed(&ImageDf {
        unit,
        dkey,
        epoch: found.epoch,
        arrays: arrays.iter().map(|(akey, epoch)| ArrayDf { akey, epoch: *epoch }).collect(),
        values,
        csum,
        sums: &sums,
    });
    (image, sums)
}

/// The last change of a dkey by its image; zero: it is not there now.
pub fn image_epoch(image: &[u8]) -> Result<Epoch> {
    ImageDf::decode(image).map(|image| image.epoch)
}

/// The image of a dkey that is not there.
pub fn image_of_nothing(unit: Unit, dkey: &[u8]) -> Vec<u8> {
    let (mut image, _) = encode(unit, dkey, &DkeyContents::default(), CsumKind::Off, &[]);
    set_sum(&mut image);
    image
}

/// What is known of a unit as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct UnitDf {
    pub unit: Unit,
    pub epochs: (Epoch, Epoch, Epoch),
    pub facts: Vec<FactsDf>,
}

/// What is known of a unit, if it is what its checksum says.
pub(crate) fn decode_facts(raw: &[u8]) -> Result<UnitDf> {
    let (sum, body) = open(raw)?;
    let mut of_body = [0; 4];
    codec::sum(CsumKind::Crc32c, body, &mut of_body);
    require_sum(sum, of_body)?;
    let found: UnitDf = decode(body)?;
    if !found.facts.is_sorted_by(|a, b| a.until < b.until) {
        return Err(bad("facts out of order"));
    }
    Ok(found)
}

/// Images and facts, whole and behind their checksum; none may panic.
pub(crate) fn fuzz(bytes: &[u8]) {
    let _ = ImageDf::decode(bytes);
    let _ = decode_facts(bytes);
    if let Ok(image) = wire::decode::<ImageDf<'_>>(bytes) {
        let _ = image.check();
    }
    let _ = wire::decode::<UnitDf>(bytes);
}

/// Images to start from, whole and behind their checksum.
pub(crate) fn fuzz_seeds() -> Vec<Vec<u8>> {
    let unit = Unit { object: types::Oid { hi: 1, lo: 2 }, group: 3, cell: 4 };
    let value = |akey, created: u64, destroyed: Epoch, what| {
        let created = Epoch(created);
        ValueDf { akey, created, destroyed, what }
    };
    let records = |index, data: &'static [u8]| {
        let count = data.len() as u64;
        WhatDf::Records { record_bytes: 1, index, count, data }
    };
    let values = vec![
        value(b"a", 5, Epoch::MAX, WhatDf::Inline(b"in")),
        value(b"b", 6, Epoch::MAX, WhatDf::Single(b"single")),
        value(b"c", 7, Epoch::MAX, records(3, b"xyz")),
        value(b"c", 7, Epoch::MAX, WhatDf::Zero { record_bytes: 1, index: 8, count: 1 << 20 }),
        value(b"c", 3, Epoch(4), records(9, b"old")),
    ];
    let lengths = || values.iter().map(|value| value.data().len() as u64).filter(|n| *n > 0);
    let data: Vec<&[u8]> = values.iter().map(ValueDf::data).collect();
    let sums = codec::value_sums(CsumKind::Crc32c, lengths(), &data).unwrap_or_default();
    let image = ImageDf {
        unit,
        dkey: b"dkey",
        epoch: Epoch(8),
        values,
        arrays: vec![ArrayDf { akey: b"c", epoch: Epoch(8) }],
        csum: CsumKind::Crc32c,
        sums: &sums,
    };
    let (epoch, keys_epoch) = (Epoch(3), Epoch(2));
    let facts = FactsDf {
        until: Epoch(5),
        epoch,
        keys_epoch,
        bytes_used: 7,
        dkey_count: 1,
        counted_links: 9,
    };
    let of_unit = UnitDf { unit, epochs: (Epoch(6), Epoch(5), Epoch(4)), facts: vec![facts] };
    vec![seal(&image), wire::encode(&image), seal(&of_unit), wire::encode(&of_unit)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_images() {
        // A change here is a change of format: bump IMAGE_VERSION.
        let seeds = fuzz_seeds();
        let image = [
            &b"\x01\x02\x03\x04\x04dkey\x08\x05"[..],
            b"\x01a\x05\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\x02in",
            b"\x01b\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01\x06single",
            b"\x01c\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\x01\x03\x03\x03xyz",
            b"\x01c\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x03\x01\x08\x80\x80\x40",
            b"\x01c\x03\x04\x02\x01\x09\x03\x03old",
            b"\x01\x01c\x08\x01\x0c",
        ]
        .concat();
        assert_eq!(seeds[1][..image.len()], image);
        // Three values have sums of one chunk each.
        assert_eq!(seeds[1].len(), image.len() + 12);
        let facts = b"\x01\x02\x03\x04\x06\x05\x04\x01\x05\x03\x02\x07\x01\x09";
        assert_eq!(seeds[3], facts);
        for (whole, body) in [(0, 1), (2, 3)] {
            let mut sum = [0; 4];
            codec::sum(CsumKind::Crc32c, &seeds[body], &mut sum);
            assert_eq!(seeds[whole], [&[1], &sum[..], &seeds[body]].concat());
        }
        ImageDf::decode(&seeds[0]).unwrap();
        decode_facts(&seeds[2]).unwrap();
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let seeds = fuzz_seeds();
        let image: ImageDf<'_> = wire::decode(&seeds[1]).unwrap();
        let refused = |change: &dyn Fn(&mut ImageDf<'_>)| {
            let mut image = image.clone();
            change(&mut image);
            assert_eq!(image.check().unwrap_err().code, Code::Csum);
        };
        refused(&|image| image.values.swap(0, 1));
        refused(&|image| image.values.insert(1, image.values[0].clone()));
        refused(&|image| image.values[4].destroyed = Epoch(3));
        refused(&|image| image.epoch = Epoch::ZERO);
        refused(&|image| image.values.truncate(0));
        refused(&|image| image.csum = CsumKind::Xxh3);
        refused(&|image| image.sums = b"");
        for what in [
            WhatDf::Records { record_bytes: 1, index: u64::MAX, count: 3, data: b"xyz" },
            WhatDf::Records { record_bytes: 2, index: 3, count: 3, data: b"xyz" },
            WhatDf::Records { record_bytes: 0, index: 3, count: 0, data: b"" },
            WhatDf::Zero { record_bytes: 1, index: 9, count: 0 },
            WhatDf::Zero { record_bytes: 2, index: 9, count: 1 },
            WhatDf::Single(b"xyz"),
        ] {
            refused(&|image| image.values[3].what = what.clone());
        }
    }
}
