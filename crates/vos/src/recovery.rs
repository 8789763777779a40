//! Opening a durable shard: the table of the last checkpoint, then the log since.
//!
//! The table brings every page as absent. Records are replayed in groups: what a group touches is
//! loaded at once, so that the device works at depth, then its records are applied one by one;
//! what an earlier record of the group has made large or moved is looked for again before each.
//! A page that is damaged costs its objects, not the shard: changes of it are left out, and it is never
//! read again, so that what it was before them does not come back.
//! Clean pages are forgotten between groups.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::stream::{self, StreamExt};
use types::{Code, Error, Result};
use wire::obj::TxOutcome;

use crate::Lsn;
use crate::blocks::Run;
use crate::contents::Contents;
use crate::index::page::{PageId, PagePlace};
use crate::index::{Container, rollback, touch};
use crate::log::wal::{HeadDf, Replayed};
use crate::pages::{PageStore, decode};
use crate::record::{ChangeDf, InstallDf, RecordDf, decode_first};
use crate::space::Space;
use crate::table;
use wire::versions::ALL_IS_HERE;

/// Log bytes of a group, about.
const GROUP_BYTES: usize = 2 << 20;
/// Pages read at a time.
const READS_MAX: usize = 64;
/// Pages to look at between groups.
const LOOK_MAX: usize = 1 << 20;

/// A group that needs more pages than this, and this share of those not in memory, has all of them
/// loaded if there is room.
const ALL_MIN: u64 = 16;
const ALL_SHARE: u64 = 8;

/// A state on its way to what it was.
pub(crate) struct Recovery {
    pub state: Contents,
    pub space: Rc<RefCell<Space>>,
    pages: Rc<PageStore>,
    /// Where the table lies.
    pub table_runs: Vec<Run>,
    /// Runs of the data area that the index has on loan.
    pub loans: Vec<Run>,
    applied: Lsn,
    limit_bytes: u64,
    pub record_count: u64,
}

impl Recovery {
    /// Reads the table that a head names. `nvme_bytes` is the size of the data area.
    pub(crate) async fn begin(
        pages: &Rc<PageStore>,
        head: &HeadDf,
        nvme_bytes: u64,
        limit_bytes: u64,
    ) -> Result<Recovery> {
        let mut recovery = Recovery {
            state: Contents::default(),
            space: Rc::new(RefCell::new(Space::new(nvme_bytes))),
            pages: pages.clone(),
            table_runs: Vec::new(),
            loans: Vec::new(),
            applied: Lsn(head.applied),
            limit_bytes,
            record_count: 0,
        };
        recovery.state.index.ledger.paged = true;
        if let Some(at) = &head.table {
            let (table, runs) = table::read(pages, at).await?;
            let (state, space, loans) = table::restore(&table, &mut |place| pages.claim(place))?;
            drop(table);
            if space.bytes() != recovery.space.borrow().bytes() {
                return Err(Error::new(Code::Csum, "the table is of a data area of another size"));
            }
            recovery.state = state;
            recovery.space.replace(space);
            recovery.table_runs = runs;
            recovery.loans = loans;
            // The pasts of large objects are in memory always.
            let pasts = recovery.state.index.absent_pasts();
            recovery.load(pasts).await?;
        }
        Ok(recovery)
    }

    /// Replays batches of the log, in order.
    pub(crate) async fn replay(&mut self, batches: &[Replayed<'_>]) -> Result<()> {
        let mut group: Vec<RecordDf<'_>> = Vec::new();
        let mut bytes = 0;
        for batch in batches {
            let mut body = batch.body;
            for n in 0..batch.record_count as u64 {
                let before = body.len();
                let record = decode_first(&mut body)?;
                if Lsn(batch.first_lsn.0 + n) > self.applied {
                    bytes += before - body.len();
                    group.push(record);
                }
            }
            if !body.is_empty() {
                return Err(Error::new(Code::Csum, "stray bytes after the records of a log batch"));
            }
            if bytes >= GROUP_BYTES {
                self.replay_group(std::mem::take(&mut group)).await?;
                bytes = 0;
            }
        }
        self.replay_group(group).await
    }

    async fn replay_group(&mut self, group: Vec<RecordDf<'_>>) -> Result<()> {
        if self.state.index.ledger.absent_count > 0 {
            let mut wanted = BTreeSet::new();
            for record in &group {
                wanted.extend(self.missing(record)?);
            }
            let count = wanted.len() as u64;
            self.load(wanted).await?;
            // Most will be needed, and looking for them before each record costs more than they do.
            if count > ALL_MIN && count * ALL_SHARE > self.state.index.ledger.absent_count {
                let (all, bytes) = self.state.index.absent_pages();
                if bytes + self.state.index.ledger.resident_bytes <= self.limit_bytes {
                    self.load(all).await?;
                }
            }
        }
        for record in group {
            while self.state.index.ledger.absent_count > 0 {
                let missing = self.missing(&record)?;
                if missing.is_empty() {
                    break;
                }
                self.load(missing).await?;
            }
            self.record_count += 1;
            // Changes of what is lost are left out one by one; these records are one change each.
            let is_one = matches!(
                record,
                RecordDf::Sweep { .. }
                    | RecordDf::RollBack { .. }
                    | RecordDf::Join { .. }
                    | RecordDf::Fold { .. }
                    | RecordDf::Install(_)
                    | RecordDf::InstallFacts { .. }
            );
            if is_one && !self.state.index.lost.is_empty() && !self.touched(&record)?.is_empty() {
                continue;
            }
            // It has not ended there after all.
            if self.state.map_version == ALL_IS_HERE {
                self.state.map_version = 0;
            }
            self.state.replay(record, &mut self.space.borrow_mut())?;
        }
        let (index, limit) = (&mut self.state.index, self.limit_bytes);
        index.evict(limit, u64::MAX, LOOK_MAX);
        Ok(())
    }

    /// Absent pages that a record touches and that are not lost.
    fn missing(&self, record: &RecordDf<'_>) -> Result<BTreeSet<PageId>> {
        let mut touched = self.touched(record)?;
        if !self.state.index.lost.is_empty() {
            touched.retain(|id| !self.state.index.lost.contains(id));
        }
        Ok(touched)
    }

    /// Absent pages that a record touches.
    fn touched(&self, record: &RecordDf<'_>) -> Result<BTreeSet<PageId>> {
        let index = &self.state.index;
        let probe = &index.probe;
        let cont = match record {
            RecordDf::Apply { cont, .. }
            | RecordDf::Join { cont, .. }
            | RecordDf::Fold { cont, .. }
            | RecordDf::Sweep { cont, .. }
            | RecordDf::RollBack { cont, .. }
            | RecordDf::InstallFacts { cont, .. } => *cont,
            RecordDf::Install(install) => install.cont,
            RecordDf::Decide { tx, outcome: TxOutcome::Committed(_), .. } => {
                match self.state.prepared.get(tx) {
                    Some(part) => part.cont,
                    None => return Ok(BTreeSet::new()),
                }
            }
            _ => return Ok(BTreeSet::new()),
        };
        let Some(container) = index.conts.get(&cont) else { return Ok(BTreeSet::new()) };
        probe.begin(0);
        let outcome = match record {
            RecordDf::Apply { changes, .. } => {
                changes.iter().for_each(|change| touch(container, change));
                Ok(())
            }
            RecordDf::Join { unit, dkey, akey, .. } | RecordDf::Fold { unit, dkey, akey, .. } => {
                touch(container, &ChangeDf::PunchAkey { unit: *unit, dkey, akey });
                Ok(())
            }
            RecordDf::Install(InstallDf { unit, dkey, .. }) => {
                touch(container, &ChangeDf::PunchDkey { unit: *unit, dkey });
                Ok(())
            }
            RecordDf::Sweep { unit, .. } | RecordDf::InstallFacts { unit, .. } => {
                container.touch_home(*unit);
                Ok(())
            }
            RecordDf::RollBack { unit, to, after, count, .. } => {
                rollback::touch(container, *unit, *to, *after, *count as usize);
                Ok(())
            }
            RecordDf::Decide { tx, .. } => self.touch_part(container, *tx),
            _ => Ok(()),
        };
        let (missed, _) = probe.end();
        outcome.map(|()| missed.into_iter().collect())
    }

    fn touch_part(&self, container: &Container, tx: wire::obj::TxId) -> Result<()> {
        let Some(part) = self.state.prepared.get(&tx) else { return Ok(()) };
        let ops = &part.batch.batch().ops;
        crate::changes::walk(ops, &part.pieces, &mut |change| touch(container, &change))
    }

    async fn load(&mut self, wanted: BTreeSet<PageId>) -> Result<()> {
        let index = &mut self.state.index;
        let found: Vec<(PageId, PagePlace)> = wanted
            .into_iter()
            .filter_map(|id| index.place_of(&id).map(|place| (id, place)))
            .collect();
        let pages = self.pages.clone();
        let mut reads = stream::iter(found)
            .map(|(id, place)| {
                let pages = pages.clone();
                async move {
                    let image = pages.read(&place).await;
                    (id, place, image)
                }
            })
            .buffer_unordered(READS_MAX);
        while let Some((id, place, image)) = reads.next().await {
            let taken = match &image {
                Ok(image) => decode(&pages.shard, image).and_then(|(of, body)| {
                    if of != (&id).into() {
                        return Err(Error::new(Code::Csum, "another page is in its place"));
                    }
                    self.state.index.take_in(&id, &place, body)
                }),
                Err(error) => Err(error.clone()),
            };
            match taken {
                Err(error) if error.code == Code::Csum && !matches!(id, PageId::Past { .. }) => {
                    tracing::error!("{id}: {error}: what it holds is lost, the rest is served");
                    self.state.index.lose(&id);
                }
                taken => taken.map_err(|error| error.context(id.to_string()))?,
            }
        }
        Ok(())
    }
}
