//! Having in memory what is about to be used, and no more than may be.
//!
//! Everything that touches the index is synchronous, so what it touches must be there before.
//! [`PoolShard::ready`] goes the ways the operations will go, with the index noting what is absent, and
//! loads that, until nothing is. When it returns, everything is there until the caller awaits
//! something else. With nothing absent in the shard it costs one comparison.
//!
//! Memory is counted as the index tier counts it ([`crate::index::cost`]), over all shards of a
//! store ([`crate::index_memory`]). Clean pages are forgotten when there is too much; when too much is dirty, a
//! checkpoint begins; when that does not keep up, who wants to load waits for it.

use env::AlignedBuf;
use futures_util::stream::{self, StreamExt};
use types::{Code, ContId, Epoch, Error, Key, Result, Unit};
use wire::footprint::{Changes, Footprint, Reads};
use wire::link::{Link, LinkKind};
use wire::obj::{Op, ReadCheck, TxId};
use wire::walk::walk;

use crate::index::Container;
use crate::index::page::{PageId, PagePlace};
use crate::pages::decode;
use crate::shard::PoolShard;
use crate::summary::Summary;
use crate::view::View;
use crate::{check, spread};

/// A log of this length is worth a checkpoint, and of a small pool one of this share of it, but no
/// shorter one than that, bytes.
const LOG_BYTES_MAX: u64 = 256 << 20;
const LOG_SHARE: u64 = 8;
const LOG_BYTES_MIN: u64 = 32 << 20;
/// Over the limit by this share of it, and by this many bytes, who loads waits.
const OVERDRAFT_SHARE: u64 = 4;
const OVERDRAFT_BYTES: u64 = 4 << 20;
/// A checkpoint begins when this share of the limit is dirty, but not for less than this, bytes.
const DIRTY_SHARE: u64 = 3;
const DIRTY_BYTES_MIN: u64 = 64 << 10;
/// Pages looked at in one go for some that can go.
const LOOK_MAX: usize = 512;
/// Pages read at a time for one operation.
const READS_MAX: usize = 32;
/// Further pages loaded with one that a listing has come to.
const AHEAD_MAX: usize = 15;

impl PoolShard {
    /// True when everything that these checks and ops touch is in memory.
    pub fn is_resident(&self, cont: ContId, checks: &[ReadCheck<'_>], ops: &[Op<'_>]) -> bool {
        let touch = |container: &Container| self.touch(container, Epoch::ZERO, checks, ops);
        self.is_whole() || self.missing(cont, 0, &touch).is_ok_and(|missing| missing.is_empty())
    }

    /// True when all of the index is in memory, and nothing of it was lost.
    fn is_whole(&self) -> bool {
        let index = &self.state.borrow().index;
        index.ledger.absent_count == 0 && !index.has_lost()
    }

    /// Loads what these checks and ops touch. When it returns they can be checked, planned,
    /// prepared and applied, until the caller awaits something else. Waits for room when the
    /// index takes far more memory than it may.
    ///
    /// `Csum` when a page is damaged, `Io` when it cannot be read, `NoSpace` when what the ops write
    /// has no room in the index. An unknown container is no error here.
    pub async fn ready(
        &self,
        cont: ContId,
        checks: &[ReadCheck<'_>],
        ops: &[Op<'_>],
    ) -> Result<()> {
        self.ready_at(cont, Epoch::ZERO, checks, ops).await
    }

    /// As [`PoolShard::ready`], for reads of the snapshot `at` (zero: the present).
    pub async fn ready_at(
        &self,
        cont: ContId,
        at: Epoch,
        checks: &[ReadCheck<'_>],
        ops: &[Op<'_>],
    ) -> Result<()> {
        if self.pages.is_none() {
            return Ok(());
        }
        self.ready_for_batch((cont, at), checks, ops, &Summary::of(checks, ops)).await
    }

    /// The same for what a summary is known of.
    pub async fn ready_for_batch(
        &self,
        (cont, at): (ContId, Epoch),
        checks: &[ReadCheck<'_>],
        ops: &[Op<'_>],
        summary: &Summary,
    ) -> Result<()> {
        if self.pages.is_none() {
            return Ok(());
        }
        // Large, and of no use to pools in memory.
        Box::pin(async {
            if summary.writes {
                self.wait_for_reserve(summary.op_count, summary.takes_room).await?;
                self.wait_for_room().await;
            }
            let touch = |container: &Container| self.touch(container, at, checks, ops);
            self.ready_with(cont, summary.lists, &touch).await
        })
        .await
    }

    /// Loads what `touch` touches.
    pub(crate) async fn ready_for(&self, cont: ContId, touch: impl Fn(&Container)) -> Result<()> {
        self.ready_with(cont, false, &touch).await
    }

    async fn ready_with(
        &self,
        cont: ContId,
        lists: bool,
        touch: &dyn Fn(&Container),
    ) -> Result<()> {
        if self.is_whole() {
            return Ok(());
        }
        let ticket = self.loads.begin();
        loop {
            let mut missing = self.missing(cont, ticket.number, touch)?;
            if missing.is_empty() {
                return Ok(());
            }
            if lists && let Ok(container) = self.look(cont) {
                look_ahead(&container, &mut missing);
            }
            self.load(missing).await?;
        }
    }

    /// As [`PoolShard::ready`], for the decision of a prepared transaction.
    pub async fn ready_to_decide(&self, tx: TxId) -> Result<()> {
        if self.is_whole() {
            return Ok(());
        }
        let part = self.state.borrow().prepared_batch(tx);
        match part {
            Some((cont, part)) => {
                let batch = part.batch();
                // It has its space, and must not fail any more.
                let takes_room = walk(&batch.ops).any(|op| op.footprint().takes_room());
                let _ = self.wait_for_reserve(batch.ops.len(), takes_room).await;
                self.wait_for_room().await;
                let touch = |all: &Container| self.touch(all, Epoch::ZERO, &[], &batch.ops);
                self.ready_with(cont, false, &touch).await
            }
            None => Ok(()),
        }
    }

    /// What is absent of what is touched; everything touched is pinned for the load `ticket`.
    ///
    /// `Csum` when it may have been in a page that was given up.
    fn missing(
        &self,
        cont: ContId,
        ticket: u64,
        touch: &dyn Fn(&Container),
    ) -> Result<Vec<PageId>> {
        let Ok(container) = self.look(cont) else { return Ok(Vec::new()) };
        let probe = container.probe.clone();
        probe.begin(ticket);
        touch(&container);
        let (mut missing, refused) = probe.end();
        if let Some(unit) = refused {
            return Err(Error::new(
                Code::Csum,
                format!(
                    "object {} may have been in a damaged page of the index of this target, and has no copies",
                    unit.object
                ),
            ));
        }
        missing.sort_unstable();
        missing.dedup();
        Ok(missing)
    }

    /// Goes the ways that checks and ops will go.
    fn touch(&self, container: &Container, at: Epoch, checks: &[ReadCheck<'_>], ops: &[Op<'_>]) {
        for check in checks {
            check::epoch_of(container, check);
        }
        spread::touch(container, at, checks, ops);
        let cont = container.id;
        for op in walk(ops) {
            // What this finds is of no interest; that it looked is.
            if at == Epoch::ZERO {
                let _ = check::check_op(container, op, &[]);
            }
            let touched = op.footprint();
            touch_writes(container, &touched);
            // Refused while it is rolled back, or when there is no such snapshot.
            if let Ok(view) = self.view_at(cont, at) {
                touch_reads(&view, &touched);
            }
        }
    }

    /// Loads the bucket of a container that holds a hash.
    pub(crate) async fn ready_bucket(&self, cont: ContId, hash: u64) -> Result<()> {
        let _ticket = self.loads.begin();
        loop {
            let id = {
                let container = self.look(cont)?;
                let (bucket, _) = container.bucket_at(hash);
                if !bucket.page.absent {
                    return Ok(());
                }
                bucket.page.needs.pin(self.loads.last());
                bucket.id(cont)
            };
            self.load(vec![id]).await?;
        }
    }

    /// All objects of a container whose hash is in the bucket that holds `hash`, also those that only
    /// snapshots see, and the first hash after it. Loads the bucket.
    pub(crate) async fn units_at(
        &self,
        cont: ContId,
        hash: u64,
    ) -> Result<(Vec<Unit>, Option<u64>)> {
        self.ready_bucket(cont, hash).await?;
        let container = self.look(cont)?;
        let (bucket, next) = container.bucket_at(hash);
        let inside = |unit: &Unit| next.is_none_or(|next| unit.list_order().0 < next);
        let large = container.large_from(bucket.prefix).take_while(inside);
        let mut units: Vec<Unit> = bucket.objects.keys().copied().chain(large).collect();
        units.sort_unstable();
        Ok((units, next))
    }

    /// Loads one part of an object, if it has parts.
    pub(crate) async fn ready_part(&self, cont: ContId, unit: Unit, start: &Key) -> Result<()> {
        let ticket = self.loads.begin();
        let id = PageId::Part { cont, unit, start: start.clone() };
        loop {
            {
                let index = &mut self.state.borrow_mut().index;
                match index.page_mut(&id) {
                    Some(page) if page.absent => page.needs.pin(ticket.number),
                    _ => return Ok(()),
                }
            }
            self.load(vec![id.clone()]).await?;
        }
    }

    /// Reads pages and takes them in.
    pub(crate) async fn load(&self, missing: Vec<PageId>) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        self.make_room();
        let wanted: Vec<_> = {
            let index = &mut self.state.borrow_mut().index;
            let of = |id: PageId| index.place_of(&id).map(|place| (id, place));
            missing.into_iter().filter_map(of).collect()
        };
        let mut reads = stream::iter(wanted)
            .map(|(id, place)| async move {
                let image = pages.read(&place).await;
                (id, place, image)
            })
            .buffer_unordered(READS_MAX);
        while let Some((id, place, image)) = reads.next().await {
            if self.is_closed() {
                return Err(Error::new(Code::Closed, "the shard is closed"));
            }
            let mut taken = self.take_in(&id, &place, image);
            if taken.as_ref().is_err_and(|error| error.code == Code::Csum) {
                // The device may have given it wrong once.
                taken = self.take_in(&id, &place, pages.read(&place).await);
            }
            if let Err(error) = taken {
                if self.state.borrow_mut().index.place_of(&id).as_ref() != Some(&place) {
                    // It is not there any more.
                    continue;
                }
                if error.code == Code::Csum {
                    self.damaged.note(self.pool, &id);
                }
                return Err(error.context(id.to_string()));
            }
            self.figures.count_page();
        }
        Ok(())
    }

    fn take_in(&self, id: &PageId, place: &PagePlace, image: Result<AlignedBuf>) -> Result<()> {
        let Some(pages) = &self.pages else { return Ok(()) };
        let image = image?;
        let (found, body) = decode(&pages.shard, &image)?;
        if found != id.into() {
            return Err(Error::new(Code::Csum, "another page is in its place"));
        }
        self.state.borrow_mut().index.take_in(id, place, body)
    }

    /// Counted bytes of the index that are in memory.
    pub fn resident_bytes(&self) -> u64 {
        self.state.borrow().index.ledger.resident_bytes
    }

    /// Forgets clean pages if there are too many in memory, and begins a checkpoint if too much
    /// is dirty. Never waits.
    pub(crate) fn make_room(&self) {
        if self.pages.is_none() {
            return;
        }
        let limit = self.cache.limit_bytes;
        self.keep_reserve();
        self.checkpoint_if_due();
        if self.resident_bytes() <= limit && !self.cache.has_several() {
            return;
        }
        let (sum, largest) = self.cache.usage(PoolShard::resident_bytes);
        if sum <= limit {
            return;
        }
        if let Some(shard) = largest {
            shard.forget_some(sum - limit);
        }
    }

    /// Forgets clean pages that count `bytes`, or some of them.
    fn forget_some(&self, bytes: u64) {
        let before = self.resident_bytes();
        let pinned = self.loads.oldest();
        let target = before.saturating_sub(bytes);
        self.state.borrow_mut().index.evict(target, pinned, LOOK_MAX);
        if self.resident_bytes() < before {
            self.progress.notify();
        }
    }

    /// Begins a checkpoint if the log is long or too much is dirty.
    pub(crate) fn checkpoint_if_due(&self) {
        let Some(wal) = &self.wal else { return };
        if self.checkpointing.is_on() || self.is_closed() {
            return;
        }
        let dirty = self.state.borrow().index.ledger.dirty_bytes;
        let dirty_max = (self.cache.limit_bytes / DIRTY_SHARE).max(DIRTY_BYTES_MIN);
        let config = self.config();
        let pool = config.scm_bytes.saturating_add(config.nvme_bytes);
        if dirty > dirty_max
            || is_worth_a_checkpoint(wal.bytes(), pool)
            || self.checkpoint_gives_room()
        {
            self.begin_checkpoint();
        }
    }

    /// Waits while far too much is in memory and a checkpoint is about to change that.
    async fn wait_for_room(&self) {
        let limit = self.cache.limit_bytes;
        let most = limit.saturating_add(limit / OVERDRAFT_SHARE).saturating_add(OVERDRAFT_BYTES);
        // One checkpoint may run already, and not hold what is dirty now.
        for _ in 0..2 {
            if self.resident_bytes() <= most {
                return;
            }
            self.make_room();
            self.wait_for_checkpoint(&|| self.resident_bytes() > most).await;
        }
    }
}

/// True when a log is worth a checkpoint, in a pool of `pool_bytes` on this target.
fn is_worth_a_checkpoint(log_bytes: u64, pool_bytes: u64) -> bool {
    log_bytes > (pool_bytes / LOG_SHARE).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX)
}

/// Goes the ways that an op will go to change something.
fn touch_writes(cont: &Container, at: &Footprint<'_>) {
    let unit = at.unit;
    let dkey = |dkey: &[u8]| {
        cont.touch_home(unit);
        if let Some(object) = cont.whole(unit) {
            object.dkey(dkey);
        }
    };
    match at.changes {
        Changes::Nothing => {}
        Changes::Dkey(key) | Changes::Akeys { dkey: key, .. } => dkey(key),
        Changes::Dkeys(keys) => {
            cont.touch_home(unit);
            keys.iter().for_each(|key| dkey(key));
        }
        Changes::DkeysFrom(from) => {
            cont.touch_punched(unit);
            dkey(&from.to_le_bytes());
        }
        Changes::All => cont.touch_punched(unit),
        Changes::Unnamed => cont.touch_home(unit),
    }
}

/// Goes the ways that an op will go to read something.
fn touch_reads(view: &View<'_>, at: &Footprint<'_>) {
    let unit = at.unit;
    match at.reads {
        Reads::Nothing => {}
        Reads::Dkey(dkey) => {
            if let Some(object) = view.object(unit) {
                object.dkey(dkey);
            }
        }
        Reads::List { scope, anchor, count_max, bytes_max } => {
            let _ = view.list(unit, *scope, anchor, count_max, bytes_max);
        }
        Reads::Runs { chunk_records, within, count_max } => {
            let _ = view.runs(unit, chunk_records, within, count_max as usize);
        }
        Reads::Query { flags, dkey, akey } => {
            let _ = view.query(unit, flags, dkey, akey);
        }
        Reads::Facts => {
            view.stat(unit);
        }
        Reads::Existence => {
            view.has_object(unit);
        }
        Reads::Reach => {
            view.has_object(unit);
            view.reaches_beyond(unit);
        }
        Reads::End => {
            view.tail(unit);
            view.reaches_beyond(unit);
        }
        Reads::Link { dkey, akey, frees } => {
            if let Some(linked) = linked(view, unit, dkey, akey) {
                if frees {
                    view.cont.touch_punched(linked);
                } else {
                    view.tail(linked);
                }
                view.reaches_beyond(linked);
            }
        }
    }
}

/// The object that a directory entry leads to.
fn linked(view: &View<'_>, unit: Unit, dkey: &[u8], akey: &[u8]) -> Option<Unit> {
    let (_, value) = view.value(unit, dkey, akey)?;
    let link = Link::decode(value)?;
    (link.kind != LinkKind::None && !link.oid.is_nil()).then(|| link.oid.first_unit())
}

/// A listing will go on after what it has come to.
fn look_ahead(cont: &Container, missing: &mut Vec<PageId>) {
    let mut more = Vec::new();
    for id in missing.iter() {
        let PageId::Part { unit, start, .. } = id else { continue };
        let parts = cont.large.get(&unit.list_order()).and_then(|object| object.parts.as_ref());
        let Some(parts) = parts else { continue };
        let after = std::ops::Bound::Excluded(&start[..]);
        let next = parts.pages.range::<[u8]>(after, std::ops::Bound::Unbounded).take(AHEAD_MAX);
        more.extend(next.filter(|(_, page)| page.absent).map(|(start, _)| parts.id(start)));
    }
    missing.extend(more);
    missing.sort_unstable();
    missing.dedup();
}
