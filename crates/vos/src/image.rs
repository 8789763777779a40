//! Images of dkeys: how a member of a group that was away catches up, key by key.
//!
//! An image says all that a reader could be shown of one dkey of one unit, now and in every snapshot, with the
//! bytes themselves: blocks of one data area mean nothing in another. It carries sums of its data, made when they
//! had just been compared with those of the blocks they came from, and one over all of it. Whoever installs it compares both and replaces,
//! in one record of the log, what is there of that dkey.
//!
//! What only the whole unit knows (its last change, sizes that snapshots show) are *facts*; they are installed
//! when all of its dkeys are.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use types::sums::SUM_CHUNK_BYTES;
use types::{Code, ContId, CsumKind, Epoch, Error, Key, Result, Unit, limits};
use wire::cell::Stripe;
use wire::obj::{Cond, Op, Recx, Sums, UpdateIod, UpdateValue};

use crate::Lsn;
use crate::changes;
use crate::contents::sums_df;
use crate::index::extent::Place;
use crate::index::install::{DkeyContents, Timeline, each_run};
use crate::index::past::{Facts, Kept, PastValue};
use crate::index::slot::Single;
use crate::index::versions::Versions;
use crate::keys;
use crate::likeness::{Kind, Told};
use crate::needs::Needs;
use crate::payload::{Payload, Piece};
use crate::record::{ChangeDf, FactsDf, InstallDf, PlaceDf, RecordDf, TouchDf};
use crate::segments::Segments;
use crate::shard::PoolShard;
use crate::unit_facts::{UnitDf, decode_facts};

/// Version of images and of facts, their first byte.
const IMAGE_VERSION: u8 = 1;
/// The version, and CRC-32C of what follows.
const HEAD_BYTES: usize = 5;
/// Who sums or copies so much lets others go on before the next step: clients of the target wait for a part of the way only.
const STEP_BYTES: usize = 256 << 10;

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
    csum: CsumKind,
    #[serde(with = "serde_bytes", borrow)]
    sums: &'a [u8],
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

pub(crate) fn bad(why: &str) -> Error {
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

fn set_sum(unsealed: &mut [u8]) {
    let (head, body) = unsealed.split_at_mut(HEAD_BYTES);
    codec::sum(CsumKind::Crc32c, body, &mut head[1..]);
}

/// The sum that it has, and what that is of. `Version` for another version, `Csum` when it is damaged.
pub(crate) fn open(raw: &[u8]) -> Result<(&[u8], &[u8])> {
    let (head, body) = raw.split_at_checked(HEAD_BYTES).ok_or_else(|| bad("cut short"))?;
    if head[0] != IMAGE_VERSION {
        let why = format!("image of a key of version {}; this is {IMAGE_VERSION}", head[0]);
        return Err(Error::new(Code::Version, why));
    }
    Ok((&head[1..], body))
}

/// Of what was encoded, or has come.
pub(crate) fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    wire::decode(body).map_err(|error| bad(&error.to_string()))
}

pub(crate) fn require_sum(sum: &[u8], of_body: [u8; 4]) -> Result<()> {
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
    fn data(&self) -> &'a [u8] {
        match self.what {
            WhatDf::Single(data) | WhatDf::Records { data, .. } => data,
            WhatDf::Inline(_) | WhatDf::Zero { .. } | WhatDf::Coded { .. } => b"",
        }
    }

    /// What sets it; `None` where no op does.
    fn update(&self) -> Option<UpdateIod<'a>> {
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
fn encode(
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

/// The image of a dkey that is not there.
pub fn image_of_nothing(unit: Unit, dkey: &[u8]) -> Vec<u8> {
    let (mut image, _) = encode(unit, dkey, &DkeyContents::default(), CsumKind::Off, &[]);
    set_sum(&mut image);
    image
}

/// What names a dkey to those who look for what is not in memory or not settled.
fn touched<'a>(unit: Unit, dkey: &'a [u8]) -> Op<'a> {
    let dkeys = vec![serde_bytes::Bytes::new(dkey)];
    Op::PunchDkeys { unit, cond: Cond::NONE, dkeys }
}

impl PoolShard {
    /// All that readers could be shown of a dkey of a unit, now and in every snapshot, to be installed at
    /// another member ([`PoolShard::install_dkey`]). A dkey that is not there has an image, too.
    ///
    /// It may show what is not on stable storage yet (see [`PoolShard::newest_seen`]), and shows nothing of prepared transactions. It is
    /// made in memory as a whole. `Csum` when data of it are damaged here, `Io` when they cannot be read, `NonExist` for an
    /// unknown container, `Busy` while that is rolled back, `Inval` for an impossible key.
    pub async fn dkey_image(&self, cont: ContId, unit: Unit, dkey: &[u8]) -> Result<Vec<u8>> {
        keys::check_dkey(unit, dkey)?;
        let found = self.dkey_contents(cont, unit, dkey).await?;
        let (contents, csum, mut segments) = found;
        segments.load().await?;
        // What lies in one place, as most does, is copied once: into the image.
        let data = match segments.slices()[..] {
            [slice] => Cow::Borrowed(slice),
            ref slices => Cow::Owned(slices.concat()),
        };
        let (mut image, sums) = encode(unit, dkey, &contents, csum, &data);
        drop(data);
        self.let_others_go_on(image.len()).await;
        // Sums that were made are mostly those that are stored: then the data were compared with these.
        if !segments.has_sums(&sums) && !segments.damaged().is_empty() {
            return Err(Error::new(
                Code::Csum,
                format!("object {unit}: data of the key are damaged on this target"),
            ));
        }
        drop(segments);
        let (head, body) = image.split_at_mut(HEAD_BYTES);
        let sum = sum_of_body(body, &decode::<ImageDf<'_>>(body)?);
        head[1..].copy_from_slice(&sum);
        Ok(image)
    }

    async fn let_others_go_on(&self, bytes: usize) {
        if bytes >= STEP_BYTES {
            self.core.env.yield_now().await;
        }
    }

    /// What is there of a dkey and a snapshot sees of it.
    pub(crate) async fn contents_of(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
    ) -> Result<DkeyContents> {
        self.require_open(cont)?;
        self.ready_for(cont, |container| {
            if let Some(object) = container.whole(unit) {
                object.dkey(dkey);
            }
        })
        .await?;
        let view = self.view(cont)?;
        let object = view.cont.whole(unit);
        let contents = object.map(|object| object.contents_of(dkey, &view.cont.versions));
        Ok(contents.unwrap_or_default())
    }

    /// The same; its data are to be loaded.
    async fn dkey_contents(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
    ) -> Result<(DkeyContents, CsumKind, Segments)> {
        let contents = self.contents_of(cont, unit, dkey).await?;
        // In the step in which they were found.
        let view = self.view(cont)?;
        let mut segments = Segments::new();
        segments.kind = view.cont.sums.kind;
        let mut pushed = Ok(());
        for kept in &contents.values {
            each_run(&kept.value, |run| {
                if pushed.is_ok() {
                    pushed = segments.push_run(&self.core, run);
                }
            });
        }
        pushed?;
        Ok((contents, view.cont.sums.kind, segments))
    }

    /// Makes a dkey of a unit what its image from another member says: all that was here of it, its past included, is
    /// gone then. One record of the log. The container must have the snapshots it has there; what none sees is left
    /// out. The unit's epochs are right once [`PoolShard::install_unit_facts`] has set them, and what
    /// snapshots show of it, too. Installing it again changes nothing.
    ///
    /// `Csum` when the image is damaged, `Version` when it is of another version, `Inval` when it is of another dkey,
    /// `NoSpace` when it does not fit beside what is here; `NonExist` for an unknown container, `Busy` while that is
    /// rolled back, `Io` when the device fails. Nothing is changed then.
    pub async fn install_dkey(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        image: &[u8],
    ) -> Result<Lsn> {
        self.install_image(cont, unit, dkey, image, None).await
    }

    /// The same where the dkey is what the image says, but its data are damaged: nothing else about it or its unit changes.
    /// `is_same` is asked in the step that installs.
    ///
    /// Errors: as for [`PoolShard::install_dkey`], and `Busy` when it is not the same.
    pub async fn replace_damaged(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        image: &[u8],
        is_same: &dyn Fn() -> bool,
    ) -> Result<Lsn> {
        self.install_image(cont, unit, dkey, image, Some(is_same)).await
    }

    async fn install_image(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        image: &[u8],
        is_same: Option<&dyn Fn() -> bool>,
    ) -> Result<Lsn> {
        self.writable()?;
        self.require_cont(cont)?;
        let bytes = image.len();
        let (sum, body) = open(image)?;
        let mut image: ImageDf<'_> = decode(body)?;
        image.check()?;
        require_sum(sum, sum_of_body(body, &image))?;
        self.let_others_go_on(bytes).await;
        if image.unit != unit || image.dkey != dkey {
            return Err(Error::inval(format!("the image is not of this key of object {unit}")));
        }
        let versions = self.versions_of(cont)?;
        keep_seen(&mut image, &versions);
        let iods: Vec<UpdateIod<'_>> = image.values.iter().filter_map(ValueDf::update).collect();
        // What only removes needs no room and is not refused for want of it.
        let ops = [match iods.is_empty() {
            true => touched(unit, dkey),
            false => Op::Update { unit, dkey, cond: Cond::NONE, iods },
        }];
        self.ready(cont, &[], &ops).await?;
        let policy = self.view(cont)?.cont.sums;
        let payload = self.fill(&image, &ops[0], policy)?;
        self.let_others_go_on(bytes).await;
        let payload = write(payload).await?;
        // Loading may have to wait; what is loaded stays until the next await.
        self.ready(cont, &[], &ops).await?;
        self.writable()?;
        self.require_cont(cont)?;
        self.require_open(cont)?;
        if self.view(cont)?.cont.sums != policy {
            return Err(Error::new(Code::Busy, "the container was made anew meanwhile"));
        }
        let timeline = match is_same {
            None => None,
            Some(is_same) => Some(self.timeline_of_same(cont, &image, is_same)?),
        };
        let counts = piece_counts(&image, &payload);
        self.note_copies(unit);
        self.note_fold(cont, &ops[0]);
        let (pieces, sums) = payload.commit();
        let mut install = changes_of(&image, &pieces, &counts, cont)?;
        install.sums = sums_df(&pieces, &sums);
        let (lsn, ()) = self.change(|state, effects| {
            for (_, change) in &install.changes {
                state.fragments.note(cont, change);
            }
            self.fill_sums(&pieces, &sums);
            state.index.install(&install, effects);
            state.saw_epoch(install.newest());
            Ok((self.log(|out| encode_install(install, out)), ()))
        })?;
        let lsn = match timeline {
            None => lsn,
            Some(timeline) => self.set_timeline(cont, unit, &timeline)?,
        };
        self.note_unsettled(lsn, cont, &[touched(unit, dkey)]);
        Ok(lsn)
    }

    /// What is known of the unit as a whole, when its dkey here is as new as the image says.
    fn timeline_of_same(
        &self,
        cont: ContId,
        image: &ImageDf<'_>,
        is_same: &dyn Fn() -> bool,
    ) -> Result<Timeline> {
        let view = self.view(cont)?;
        let object = view.cont.whole(image.unit);
        let dkey = object.and_then(|object| object.dkey(image.dkey));
        let epoch = dkey.map_or(Epoch::ZERO, |dkey| dkey.epoch());
        match object {
            Some(object) if epoch == image.epoch && is_same() => Ok(object.timeline()),
            _ => Err(Error::new(Code::Busy, "the key has changed meanwhile")),
        }
    }

    pub(crate) fn set_timeline(
        &self,
        cont: ContId,
        unit: Unit,
        timeline: &Timeline,
    ) -> Result<Lsn> {
        let epochs = timeline.epochs;
        let facts = timeline.facts.iter().map(Facts::durable).collect();
        let (lsn, ()) = self.change(|state, effects| {
            state.index.install_timeline(cont, unit, timeline, effects);
            state.saw_epoch(epochs.0);
            Ok((self.log_record(&RecordDf::InstallFacts { cont, unit, epochs, facts }), ()))
        })?;
        Ok(lsn)
    }

    /// Reserves for the values of an image and takes their bytes.
    fn fill(
        &self,
        image: &ImageDf<'_>,
        op: &Op<'_>,
        policy: crate::sums::SumPolicy,
    ) -> Result<Payload> {
        let at = op.footprint();
        self.check_room(at.takes_room())?;
        let mut needs = Needs::default();
        needs.add(&at.brings);
        let used = self.state.borrow().index.scm_bytes;
        let mut payload = Payload::reserve(&self.core, used, &needs)?;
        let mut values = image.values.iter().map(ValueDf::data).filter(|data| !data.is_empty());
        let mut left: &[u8] = b"";
        // No buffer is of two values.
        for buffer in payload.buffers() {
            if left.is_empty() {
                left = values.next().unwrap_or_default();
            }
            let (mine, rest) = left.split_at(buffer.len());
            buffer.copy_from_slice(mine);
            left = rest;
        }
        if image.csum == policy.kind {
            payload.take_sums(policy, &Sums { kind: image.csum, bytes: image.sums })?;
        } else {
            payload.make_sums(policy.kind);
        }
        Ok(payload)
    }
}

async fn write(mut payload: Payload) -> Result<Payload> {
    payload.write().await?;
    Ok(payload)
}

/// Drops values that no snapshot here sees, and the sums of their data.
fn keep_seen(image: &mut ImageDf<'_>, versions: &Versions) {
    let seen = |value: &ValueDf<'_>| {
        value.destroyed == Epoch::MAX || versions.sees(value.created, value.destroyed)
    };
    if image.values.iter().all(seen) {
        return;
    }
    image.values.retain(seen);
    // Those of the rest are not what is left of these.
    (image.csum, image.sums) = (CsumKind::Off, b"");
}

/// Pieces of each value of an image.
fn piece_counts(image: &ImageDf<'_>, payload: &Payload) -> Vec<usize> {
    let mut counts = payload.values.iter().map(|(count, _)| *count);
    let of = |value: &ValueDf<'_>| match value.data() {
        b"" => 0,
        _ => counts.next().unwrap_or(0),
    };
    image.values.iter().map(of).collect()
}

/// The record that installs an image whose data lie in `pieces`.
fn changes_of<'a>(
    image: &ImageDf<'a>,
    mut pieces: &'a [Piece],
    counts: &[usize],
    cont: ContId,
) -> Result<InstallDf<'a>> {
    let (unit, dkey) = (image.unit, image.dkey);
    let mut changes = Vec::new();
    let mut past = Vec::new();
    for (value, count) in image.values.iter().zip(counts) {
        let (mine, rest) = pieces.split_at_checked(*count).ok_or_else(|| bad("too few pieces"))?;
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
        let ops: Option<_> =
            value.update().map(|iod| Op::Update { unit, dkey, cond: Cond::NONE, iods: vec![iod] });
        changes::walk(ops.as_slice(), mine, &mut each)?;
    }
    let touch = |array: &ArrayDf<'a>| TouchDf::Akey(dkey, array.akey, array.epoch);
    let touches = image.arrays.iter().map(touch).collect();
    let (epoch, sums) = (image.epoch, Vec::new());
    Ok(InstallDf { cont, unit, dkey, epoch, changes, touches, past, sums })
}

fn encode_install(install: InstallDf<'_>, out: &mut Vec<u8>) {
    crate::record::encode_into(&RecordDf::Install(install), out);
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
    let facts = FactsDf { until: Epoch(5), epoch, keys_epoch, bytes_used: 7, dkey_count: 1 };
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
        let facts = b"\x01\x02\x03\x04\x06\x05\x04\x01\x05\x03\x02\x07\x01";
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
