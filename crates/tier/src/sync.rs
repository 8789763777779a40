//! Taking a copy of a file.
//!
//! What is read between two looks at the file that are equal is the file as it was in between. Parts that the copy of before
//! has as they are now are named again, not sent again. Of parts in which there is nothing one is sent, and named for all.
//!
//! A file whose copy is in another tier has none in this one: all of it is sent, what the pool has given up from the other tier, and then the file's record
//! names this one. The other copy stays until it is collected.

use crate::copy::{
    copy_in, manifest_key, manifest_of, parallel, part_key, require_attached, upload_prefix,
};
use crate::manifest::{FileManifest, PartName, to_hex};
use crate::store::Store;
use async_recursion::async_recursion as boxed;
use dfs::tier::{Survey, TierRecord, Upload};
use dfs::{Dfs, Obj};
use futures_util::stream::{FuturesUnordered, StreamExt};
use types::{Code, Error, Result};

/// Times that a file which changes meanwhile is begun anew.
const TRIES_MAX: usize = 3;
/// How often an upload says how far it is, nanoseconds.
const TOLD_EVERY_NS: u64 = 2_000_000_000;

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Synced {
    /// False when the copy had everything.
    pub changed: bool,
    /// Bytes of the file that were sent.
    pub sent_bytes: u64,
    /// Bytes of the file that the copy had.
    pub kept_bytes: u64,
}

/// Takes a copy of a file, or brings the one that there is up to date. `progress` is told bytes as they are done.
///
/// Errors: `Busy` for a file that is written all the time; those of the store; as for extended attributes (the file's record
/// is one).
#[boxed(?Send)]
pub async fn sync_file(
    fs: &Dfs,
    file: &Obj,
    store: &Store,
    tier: &str,
    progress: &dyn Fn(u64),
) -> Result<Synced> {
    let mut total = Synced::default();
    for _ in 0..TRIES_MAX {
        let record = fs.tier_record(file).await?;
        let record = record.filter(|record| record.version > 0);
        let version = record.as_ref().map_or(0, |record| record.version);
        let before = fs.tier_survey(file).await?;
        let in_tier = copy_in(tier, record.clone());
        let is_elsewhere = record.is_some() && in_tier.is_none();
        if is_elsewhere {
            require_attached(fs, tier).await?;
        }
        if let Some(old) = in_tier.as_ref().filter(|old| before.is_all_clean(old)) {
            if old.upload.is_some() {
                fs.set_tier_record(file, &TierRecord { upload: None, ..old.clone() }).await?;
            }
            return Ok(total);
        }
        let mut upload = Uploading::begin(fs, file, store, tier, record, &before).await?;
        let sent = upload.send(&before, progress).await?;
        total.sent_bytes += sent.sent_bytes;
        total.kept_bytes = sent.kept_bytes;
        total.changed = true;
        let after = fs.tier_survey(file).await?;
        // Another copy may have been made meanwhile, and chunks been given up for it.
        let now = fs.tier_record(file).await?.map_or(0, |record| record.version);
        if now == version && before.is_same_content(&after) {
            if is_elsewhere {
                require_attached(fs, tier).await?;
            }
            upload.finish(&after).await?;
            return Ok(total);
        }
    }
    Err(Error::new(Code::Busy, "the file is being written; sync it again later"))
}

/// The same for a file of a mount that shows a snapshot: nothing is noted there, so what the copy does not have is sent each time. Returns
/// the record that names the copy.
pub(crate) async fn copy_shown(
    fs: &Dfs,
    file: &Obj,
    store: &Store,
    tier: &str,
    progress: &dyn Fn(u64),
) -> Result<(TierRecord, Synced)> {
    let old = copy_in(tier, fs.tier_record(file).await?);
    let survey = fs.tier_survey(file).await?;
    if let Some(old) = old.as_ref().filter(|old| survey.is_all_clean(old)) {
        return Ok((old.clone(), Synced::default()));
    }
    let mut upload = Uploading::begin(fs, file, store, tier, old, &survey).await?;
    upload.is_noted = false;
    let sent = upload.send(&survey, progress).await?;
    Ok((upload.put_manifest(&survey).await?, sent))
}

/// True when there is nothing in a range of the file.
fn is_hole(survey: &Survey, at: u64, count: u64) -> bool {
    let first = (at / survey.chunk_bytes) as usize;
    let end = (at + count).div_ceil(survey.chunk_bytes) as usize;
    (first..end.min(survey.chunks.len())).all(|chunk| survey.is_absent(chunk))
}

struct Uploading<'a> {
    fs: &'a Dfs,
    file: &'a Obj,
    store: &'a Store,
    tier: &'a str,
    /// The record as it is told to be.
    record: TierRecord,
    /// What there is in this tier.
    old: Option<(TierRecord, FileManifest)>,
    part_bytes: u64,
    prefix: String,
    /// The file's record tells how far it is.
    is_noted: bool,
    /// Those that are on their way are missing.
    parts: Vec<Option<PartName>>,
}

impl<'a> Uploading<'a> {
    async fn begin(
        fs: &'a Dfs,
        file: &'a Obj,
        store: &'a Store,
        tier: &'a str,
        known: Option<TierRecord>,
        survey: &Survey,
    ) -> Result<Uploading<'a>> {
        let cont = fs.container();
        let old = copy_in(tier, known.clone());
        let part_bytes = match &old {
            // So that parts of before can be named again.
            Some(old) => old.part_bytes,
            None => store.part_bytes().next_multiple_of(survey.chunk_bytes),
        };
        let version = known.as_ref().map_or(0, |known| known.version) + 1;
        let random = cont.client().env().random_u64();
        let container = cont.info().uuid.to_string();
        let prefix = upload_prefix(&container, file.oid(), version, random);
        let old = match old {
            Some(old) => {
                let manifest = cont.client().beside_users(manifest_of(store, &old)).await?;
                Some((old.clone(), manifest))
            }
            None => None,
        };
        // Until it ends the copy of before is the file's, wherever that is.
        let record = known.unwrap_or_else(|| TierRecord {
            oid: file.oid(),
            version: 0,
            size: 0,
            part_bytes,
            upload: None,
            manifest_sum: [0; 32],
            tier: tier.to_string(),
            manifest: String::new(),
            synced: Vec::new(),
        });
        Ok(Uploading {
            fs,
            file,
            store,
            tier,
            record,
            old,
            part_bytes,
            prefix,
            is_noted: true,
            parts: Vec::new(),
        })
    }

    /// Sends what the copy does not have.
    async fn send(&mut self, survey: &Survey, progress: &dyn Fn(u64)) -> Result<Synced> {
        let mut synced = Synced::default();
        let total_bytes = survey.size.max(1);
        // Twice these parts are what an upload has in memory.
        let parallel = parallel(self.part_bytes);
        let (mut done_bytes, mut told_ns) = (0, 0);
        let mut going = FuturesUnordered::new();
        // Parts of zeros behind the first one of their size, which is sent.
        let (mut zeros, mut like_zeros) = (None, Vec::new());
        let mut at = 0;
        while at < survey.size {
            let count = self.part_bytes.min(survey.size - at);
            let now = self.fs.container().client().env().wall_ns();
            if self.is_noted && now.saturating_sub(told_ns) >= TOLD_EVERY_NS {
                told_ns = now;
                self.record.upload = Some(Upload { done_bytes, total_bytes, at_ns: now });
                self.fs.set_tier_record(self.file, &self.record).await?;
            }
            if let Some(kept) = self.kept(survey, at, count) {
                self.parts.push(Some(kept));
                synced.kept_bytes += count;
                done_bytes += count;
                progress(count);
            } else if zeros.is_some() && count == self.part_bytes && is_hole(survey, at, count) {
                like_zeros.push(self.parts.len());
                self.parts.push(None);
                done_bytes += count;
                progress(count);
            } else {
                if count == self.part_bytes && is_hole(survey, at, count) {
                    zeros = Some(self.parts.len());
                }
                let mut bytes = vec![0; count as usize];
                if self.fs.read_past(self.file, at, &mut bytes).await? as u64 != count {
                    // It was cut: the next look will show it.
                    break;
                }
                let key = part_key(&self.prefix, self.parts.len());
                let (at, store) = (self.parts.len(), self.store.clone());
                self.parts.push(None);
                let client = self.fs.container().client();
                going.push(async move {
                    let sent = client.beside_users(store.put_part(key, bytes)).await;
                    Ok::<_, Error>((at, sent?))
                });
                synced.sent_bytes += count;
            }
            while going.len() >= parallel
                && let Some(sent) = going.next().await
            {
                done_bytes += self.has_sent(sent?, progress);
            }
            at += count;
        }
        while let Some(sent) = going.next().await {
            self.has_sent(sent?, progress);
        }
        for at in like_zeros {
            self.parts[at] = zeros.and_then(|zeros| self.parts[zeros].clone());
        }
        Ok(synced)
    }

    fn has_sent(&mut self, (at, name): (usize, PartName), progress: &dyn Fn(u64)) -> u64 {
        let bytes = name.bytes;
        progress(bytes);
        self.parts[at] = Some(name);
        bytes
    }

    /// The part of the copy of before, if the range is as it was then.
    fn kept(&self, survey: &Survey, at: u64, count: u64) -> Option<PartName> {
        let (record, manifest) = self.old.as_ref()?;
        let part = manifest.parts.get((at / self.part_bytes) as usize)?;
        let first = (at / survey.chunk_bytes) as usize;
        let end = (at + count).div_ceil(survey.chunk_bytes) as usize;
        let is_clean = (first..end).all(|chunk| survey.is_clean(record, chunk));
        (part.bytes == count && is_clean).then(|| part.clone())
    }

    /// Puts the manifest, and then says so.
    async fn finish(self, survey: &Survey) -> Result<()> {
        let (fs, file) = (self.fs, self.file);
        fs.set_tier_record(file, &self.put_manifest(survey).await?).await
    }

    /// Puts the manifest; returns the record that names it.
    async fn put_manifest(self, survey: &Survey) -> Result<TierRecord> {
        let parts: Vec<PartName> = self.parts.into_iter().flatten().collect();
        let manifest = FileManifest {
            format: FileManifest::format_of(&parts).into(),
            container: self.fs.container().info().uuid.to_string(),
            object: to_hex(&self.file.oid().to_bytes()),
            version: self.record.version + 1,
            size: survey.size,
            part_bytes: self.part_bytes,
            parts,
        };
        let (raw, manifest_sum) = manifest.encode();
        let key = manifest_key(&self.prefix);
        let client = self.fs.container().client();
        client.beside_users(self.store.put(key.clone(), raw)).await?;
        Ok(TierRecord {
            version: manifest.version,
            size: manifest.size,
            part_bytes: manifest.part_bytes,
            upload: None,
            manifest_sum,
            tier: self.tier.to_string(),
            manifest: key,
            synced: survey.group_epochs.clone(),
            ..self.record
        })
    }
}
