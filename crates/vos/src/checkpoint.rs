//! Checkpoints: the state of one moment goes to pages and a table, so that the log before it can
//! go.
//!
//! At the moment itself nothing is written. The table is described with every page that has an
//! image of that moment; dirty pages are *frozen* and listed as work. A frozen page is encoded when
//! its turn comes, or right before it changes, whichever is first. When all images are written,
//! the table is; when that is durable, `head` names it and the log's place of the moment, and
//! what only the old table named is free. A crash before that leaves the old table and the
//! whole log; a crash after it the new table and the log from the moment on. Replay needs no rule
//! for checkpoints.
//!
//! What the moment costs is a walk over the list of pages, not their content: about a
//! microsecond for ten pages. The rest goes in slices between updates.
//!
//! Fuzzy checkpoints (ARIES) would need no early encoding, but replay would have to tell for each
//! page from where on the log applies, and counters over several pages could not be trusted in
//! between.

use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use types::{Code, Error, Result};

use crate::Lsn;
use crate::blocks::Run;
use crate::index::page::{Image, PageId, PagePlace};
use crate::loans::{self, Named};
use crate::log::wal::Wal;
use crate::pages::{PageIdDf, PageStore, encode};
use crate::record::{RecordDf, encode_into};
use crate::shard::{PoolShard, RECLAIM_COUNT};
use crate::table::{self, TableDf};

/// Images being written at a time.
const WRITES_MAX: usize = 8;
/// Regions of sums of blocks taken between two looks at other work.
const SUM_REGIONS: usize = 64;
/// Slices of burial before the moment; what is left is released at once.
const RECLAIM_SLICES_MAX: usize = 10_000;

type Written = LocalBoxFuture<'static, (u32, PageId, Result<PagePlace>)>;

/// A checkpoint under way.
struct Work {
    /// Its last record.
    applied: Lsn,
    table: TableDf,
    todo: Vec<(PageId, u32)>,
    loans: Named,
    /// Runs that the new table does not name and no page in memory needs.
    freed: Vec<Run>,
}

impl PoolShard {
    /// Writes a checkpoint now, however short the log is; returns when the old part of the log is
    /// gone. One that runs already ends first. No effect for `memory`. `Closed` after the end.
    pub async fn checkpoint(&self) -> Result<()> {
        let (Some(_), Some(me)) = (&self.wal, self.me.upgrade()) else { return Ok(()) };
        let may_begin = || self.is_closed() || self.checkpointing.begin();
        self.progress.until(may_begin).await;
        // Whoever opens it again has the log to itself.
        self.still_open()?;
        let result = checkpoint(&me).await;
        self.checkpoint_ended();
        result
    }
}

/// Runs in the background; clears the shard's flag at the end.
pub(crate) async fn run_beside(shard: Rc<PoolShard>) {
    let result = checkpoint(&shard).await;
    shard.room.note_end(result.is_err().then(|| shard.core.env.now()));
    shard.checkpoint_ended();
    shard.return_if_due();
    if let Err(error) = result {
        tracing::warn!(pool = %shard.pool, %error, "checkpoint stopped; the log stays long");
    }
}

/// Writes a checkpoint; see the module.
pub(crate) async fn checkpoint(shard: &Rc<PoolShard>) -> Result<()> {
    let (Some(wal), Some(pages)) = (&shard.wal, &shard.pages) else { return Ok(()) };
    let began = shard.core.env.now();
    for _ in 0..RECLAIM_SLICES_MAX {
        if !shard.reclaim_slice(RECLAIM_COUNT) {
            break;
        }
        pages.env().yield_now().await;
    }
    shard.reclaim_slice(usize::MAX);
    shard.begin_returns().await;
    wal.ready_to_rotate().await?;
    let mut work = begin(shard, wal);
    let written = write(shard, wal, pages, &mut work).await;
    shard.room.note_checkpoint(0);
    match written {
        Ok(table_runs) => {
            work.freed.extend(shard.replace_table(table_runs));
            pages.free(&work.freed);
            shard.loans_durable(work.loans).await;
            shard.figures.count_checkpoint(&shard.core.env, began);
            shard.make_room();
            Ok(())
        }
        Err(error) => {
            // The old table still names them.
            let ledger = &mut shard.state.borrow_mut().index.ledger;
            ledger.retired.append(&mut work.freed);
            Err(error)
        }
    }
}

/// Begins a checkpoint of this moment: the log goes on in a new segment.
fn begin(shard: &PoolShard, wal: &Rc<Wal>) -> Work {
    wal.rotate();
    let mut state = shard.state.borrow_mut();
    shard.room.note_checkpoint(state.index.ledger.image_bytes_max());
    // A record of its own, so that the new segment comes to be.
    let epoch = state.last_epoch;
    let applied = wal.append(|out| encode_into(&RecordDf::LastEpoch { epoch }, out));
    let mut table = TableDf { space: shard.core.space.borrow().encode(), ..TableDf::default() };
    (table.records, table.record_count) = state.encode_rest();
    let loans = shard.core.loans.named();
    table.sections.push((loans::SECTION, loans::encode(&loans).into()));
    let todo = table::describe(&mut state.index, &mut table);
    let freed = std::mem::take(&mut state.index.ledger.retired);
    Work { applied, table, todo, loans, freed }
}

/// Everything after [`begin`]; returns where the table lies.
async fn write(
    shard: &Rc<PoolShard>,
    wal: &Rc<Wal>,
    pages: &Rc<PageStore>,
    work: &mut Work,
) -> Result<Vec<Run>> {
    let images = write_images(shard, wal, pages, work).await;
    if images.is_err() {
        thaw(shard);
    }
    images?;
    if work.table.pages.iter().any(|page| page.place.is_none() && page.counts != (0, 0, 0, 0, 0, 0))
    {
        return Err(Error::new(Code::Io, "a page was lost before it was written"));
    }
    add_sums(shard, pages, &mut work.table).await;
    let mut runs = Vec::new();
    let named = async {
        let named = table::write(pages, &work.table, &mut runs).await?;
        pages.sync().await?;
        wal.written(work.applied).await?;
        if shard.is_abandoned() {
            return Err(Error::bare(Code::Closed));
        }
        Ok(named)
    };
    match named.await {
        Ok(named) => match wal.trim(work.applied, named).await {
            Ok(()) => Ok(runs),
            Err(error) => {
                // The new head may be durable or not: what either names stays.
                shard.state.borrow_mut().index.ledger.retired.append(&mut runs);
                Err(error)
            }
        },
        Err(error) => {
            pages.free(&runs);
            Err(error)
        }
    }
}

/// Adds the sums of blocks, region by region, then what is known to be damaged: only blocks with
/// sums can be.
///
/// They are those of some moments after the one of the checkpoint, which is as good: the sum of a
/// block does not change while it is in use, and what came into use since is in the log.
async fn add_sums(shard: &PoolShard, pages: &PageStore, table: &mut TableDf) {
    let names = shard.core.space.borrow().sums.region_names();
    for slice in names.chunks(SUM_REGIONS) {
        for &(kind, number) in slice {
            let region = shard.core.space.borrow().sums.save(kind, number);
            encode_into(&RecordDf::SumRegion { region }, &mut table.records);
            table.record_count += 1;
        }
        pages.env().yield_now().await;
    }
    let blocks: Vec<_> = shard.core.space.borrow().sums.bad().collect();
    if !blocks.is_empty() {
        encode_into(&RecordDf::BadBlocks { blocks }, &mut table.records);
        table.record_count += 1;
    }
}

/// Writes what is frozen.
async fn write_images(
    shard: &Rc<PoolShard>,
    wal: &Rc<Wal>,
    pages: &Rc<PageStore>,
    work: &mut Work,
) -> Result<()> {
    let mut writes: FuturesUnordered<Written> = FuturesUnordered::new();
    let mut todo = std::mem::take(&mut work.todo).into_iter();
    let mut outcome = Ok(());
    loop {
        while outcome.is_ok() && writes.len() < WRITES_MAX {
            let Some(image) = next_image(shard, &mut todo) else { break };
            writes.push(start(pages, image));
        }
        let Some((slot, id, written)) = writes.next().await else { return outcome };
        match written {
            Ok(place) => install(shard, work, slot, &id, place),
            Err(error) => outcome = Err(error),
        }
        if outcome.is_ok() {
            outcome = wal.usable();
        }
        if outcome.is_ok() && shard.is_abandoned() {
            outcome = Err(Error::bare(Code::Closed));
        }
        shard.make_room();
        // The device may be faster than we are: others come first.
        pages.env().yield_now().await;
    }
}

/// The next page to write: one that had to be encoded early, or one whose turn it is.
fn next_image(shard: &PoolShard, todo: &mut std::vec::IntoIter<(PageId, u32)>) -> Option<Image> {
    let state = &mut *shard.state.borrow_mut();
    if let Some(image) = state.index.ledger.images.pop() {
        return Some(image);
    }
    todo.find_map(|(id, slot)| {
        let raw = state.index.encode_frozen(&id, slot)?;
        Some(Image { slot, id, raw })
    })
}

fn start(pages: &Rc<PageStore>, image: Image) -> Written {
    let pages = pages.clone();
    Box::pin(async move {
        let Image { slot, id, raw } = image;
        let written = match encode(&pages.shard, &PageIdDf::from(&id), &raw) {
            Ok(encoded) => {
                drop(raw);
                pages.write(encoded).await
            }
            Err(error) => Err(error),
        };
        (slot, id, written)
    })
}

/// An image is written: the table names it, and so does its page, if it is still there.
fn install(shard: &PoolShard, work: &mut Work, slot: u32, id: &PageId, place: PagePlace) {
    shard.room.wrote(place.runs.iter().map(|run| run.bytes).sum());
    if let Some(page) = work.table.pages.get_mut(slot as usize) {
        page.place = Some((&place).into());
    }
    let state = &mut *shard.state.borrow_mut();
    match state.index.page_mut(id) {
        // What holds the name now and was made since is dirty: it is not read from here.
        Some(page) if !page.absent => {
            let old = page.place.replace(place);
            page.writing = false;
            work.freed.extend(old.into_iter().flat_map(|old| old.runs));
            state.index.now_clean(id);
        }
        _ => state.index.ledger.retire(Some(place)),
    }
}

/// After a failure: what was frozen or on its way is dirty again.
fn thaw(shard: &PoolShard) {
    let index = &mut shard.state.borrow_mut().index;
    index.ledger.images.clear();
    index.thaw();
}
