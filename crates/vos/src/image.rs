//! Images of dkeys ([`crate::image_df`]): how a member of a group that was away catches up, key by key.
//!
//! An image says all that a reader could be shown of one dkey of one unit, now and in every snapshot, with the
//! bytes themselves: blocks of one data area mean nothing in another. It carries sums of its data, made when they
//! had just been compared with those of the blocks they came from, and one over all of it. Whoever installs it compares both and replaces,
//! in one record of the log, what is there of that dkey.
//!
//! What only the whole unit knows (its last change, sizes that snapshots show) are *facts*; they are installed
//! when all of its dkeys are.

use std::borrow::Cow;

use types::{Code, ContId, CsumKind, Epoch, Error, Result, Unit};
use wire::obj::{Cond, Op, Sums, UpdateIod};

use crate::contents::sums_df;
use crate::image_df::{self, ImageDf, ValueDf};
use crate::index::install::{DkeyContents, Timeline, each_run};
use crate::index::past::Facts;
use crate::likeness::{Closeness, Told, tell_the_same};
use crate::needs::Needs;
use crate::payload::Payload;
use crate::record::{InstallDf, RecordDf};
use crate::segments::Segments;
use crate::shard::PoolShard;
use crate::sums::SumPolicy;
use crate::{Lsn, keys};

/// Who sums or copies so much lets others go on before the next step: clients of the target wait for a part of the way only.
const STEP_BYTES: usize = 256 << 10;

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
        let (mut image, sums) = image_df::encode(unit, dkey, &contents, csum, &data);
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
        image_df::join_sum(&mut image)?;
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
        self.install_dkey_while(cont, unit, dkey, image, &|| Ok(())).await
    }

    /// The same unless `may` has something against it, which is asked in the step that installs.
    pub async fn install_dkey_while(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        image: &[u8],
        may: &dyn Fn() -> Result<()>,
    ) -> Result<Lsn> {
        self.install_image(cont, unit, dkey, image, may, None).await
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
        self.install_image(cont, unit, dkey, image, &|| Ok(()), Some(is_same)).await
    }

    async fn install_image(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        image: &[u8],
        may: &dyn Fn() -> Result<()>,
        is_same: Option<&dyn Fn() -> bool>,
    ) -> Result<Lsn> {
        self.writable()?;
        self.require_cont(cont)?;
        let bytes = image.len();
        let mut image = ImageDf::decode(image)?;
        self.let_others_go_on(bytes).await;
        if image.unit != unit || image.dkey != dkey {
            return Err(Error::inval(format!("the image is not of this key of object {unit}")));
        }
        let versions = self.versions_of(cont)?;
        image.keep_seen(&versions);
        let iods: Vec<UpdateIod<'_>> = image.values.iter().filter_map(ValueDf::update).collect();
        // What only removes needs no room and is not refused for want of it.
        let ops = [match iods.is_empty() {
            true => touched(unit, dkey),
            false => Op::Update { unit, dkey, cond: Cond::NONE, iods },
        }];
        self.ready(cont, &[], &ops).await?;
        let policy = self.look(cont)?.sums;
        let payload = self.fill(&image, &ops[0], policy)?;
        self.let_others_go_on(bytes).await;
        let payload = write(payload).await?;
        // Loading may have to wait; what is loaded stays until the next await.
        self.ready(cont, &[], &ops).await?;
        self.writable()?;
        self.require_cont(cont)?;
        self.require_not_rolled(cont)?;
        if self.look(cont)?.sums != policy {
            return Err(Error::new(Code::Busy, "the container was made anew meanwhile"));
        }
        may()?;
        let timeline = match is_same {
            None => None,
            Some(is_same) => Some(self.timeline_of_same(cont, &image, is_same)?),
        };
        let counts = image.piece_counts(&payload.values);
        self.note_copies(unit);
        self.fold_notes.note_op(cont, &ops[0]);
        let (pieces, sums) = payload.commit();
        let mut install = image.installed(&pieces, &counts, cont)?;
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

    /// Sets what is known of a unit as a whole.
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
    fn fill(&self, image: &ImageDf<'_>, op: &Op<'_>, policy: SumPolicy) -> Result<Payload> {
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

    /// True when an image from another member tells of the same changes as are known here, whatever has become of the data here. Two of which one has an update that the
    /// other has not differ, also where a later one has made them equally new. Reads the data of the key.
    ///
    /// Errors: as for [`PoolShard::dkey_image`], but for damage, and `Csum`, `Version` for what is no image.
    pub async fn tells_the_same(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        image: &[u8],
        closeness: Closeness,
    ) -> Result<bool> {
        keys::check_dkey(unit, dkey)?;
        let image = ImageDf::decode(image)?;
        let here = self.contents_of(cont, unit, dkey).await?;
        let arrays = here.arrays.iter().map(|(akey, epoch)| (&akey[..], *epoch));
        if (image.unit, image.dkey, image.epoch) != (unit, dkey, here.epoch)
            || !image.arrays.iter().map(|array| (array.akey, array.epoch)).eq(arrays)
        {
            return Ok(false);
        }
        let read = self.readable_of(cont, &here).await?;
        let ours = here.values.iter().zip(&read);
        let ours = ours.map(|(kept, read)| Told::of(kept, read.as_deref())).collect();
        let theirs = image.values.iter().map(ValueDf::told).collect();
        Ok(tell_the_same(ours, theirs, closeness))
    }

    /// The bytes that each of some values, which were just found, has in the data area; `None` where these are damaged or cannot be read.
    async fn readable_of(
        &self,
        cont: ContId,
        found: &DkeyContents,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let kind = self.view(cont)?.cont.sums.kind;
        let mut all: Vec<Option<Segments>> = Vec::with_capacity(found.values.len());
        for kept in &found.values {
            let mut segments = Segments::new();
            segments.kind = kind;
            let mut pushed = Ok(());
            each_run(&kept.value, |run| {
                if pushed.is_ok() {
                    pushed = segments.push_run(&self.core, run);
                }
            });
            all.push(pushed.is_ok().then_some(segments));
        }
        let mut read = Vec::with_capacity(all.len());
        for segments in all {
            let Some(mut segments) = segments else {
                read.push(None);
                continue;
            };
            let is_whole = segments.load().await.is_ok() && segments.damaged().is_empty();
            read.push(is_whole.then(|| segments.slices().concat()));
        }
        Ok(read)
    }
}

async fn write(mut payload: Payload) -> Result<Payload> {
    payload.write().await?;
    Ok(payload)
}

fn encode_install(install: InstallDf<'_>, out: &mut Vec<u8>) {
    crate::record::encode_into(&RecordDf::Install(install), out);
}
