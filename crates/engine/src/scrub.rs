//! The scrubber, and damage that readers or it find.
//!
//! One task per shard reads all data that have checksums and compares them, in passes: one a day,
//! at the rate the pool wants, and only while the target has nothing better to do; or at once and
//! as fast as it goes when an operator asks. It goes on after a restart where it was.
//!
//! At the end of a pass the pages of the index are read and compared with their checksums ([`crate::lost_pages`]), and parity
//! with data ([`crate::parity`]).
//!
//! A block is called damaged when it differs twice in a row. From then on readers are refused
//! what touches it until it is overwritten; see [`vos::PoolShard::mark_bad`].

use crate::target::{Target, TargetPool};
use env::Signal;
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Error, Result};
use vos::{BadMark, Holder, ScrubProgress, Segments};
use wire::event::{EventCode, Happened};
use wire::obj::{Batch, Op};
use wire::scrub::{BadHolder, BadPlace, FoundBy, PLACE_COUNT_MAX, Scrub, ScrubStat};
use wire::walk::walk;

/// A pass begins this long after the one before began.
const PERIOD: Duration = Duration::from_secs(24 * 3600);
/// Blocks compared in one go: 256 KiB.
const STEP_BLOCKS: u64 = 64;
/// The place is remembered durably after this many steps: 256 MiB.
const STEPS_REMEMBERED: u64 = 1024;
/// A target is idle when no request comes for this long.
const IDLE_TIME: Duration = Duration::from_millis(50);
/// Under steady load a step is made this often all the same.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(1);
/// Pause after an error of the device.
const ERROR_PAUSE: Duration = Duration::from_secs(60);
/// Bytes of a block.
const BLOCK_BYTES: u64 = types::sums::SUM_CHUNK_BYTES as u64;

/// What the scrubber of a shard is told and has found.
#[derive(Default)]
pub(crate) struct Scrubber {
    settings: Cell<Scrub>,
    /// An operator waits: no pauses until the end of the pass.
    hurried: Cell<bool>,
    stopped: Cell<bool>,
    sleeper: RefCell<Option<oneshot::Sender<()>>>,
    found_count: Cell<u64>,
    /// Who holds the damaged blocks, as far as it was searched.
    holders: RefCell<BTreeMap<u64, Option<BadHolder>>>,
    /// Damaged blocks that are to be looked into, and whether they were not known before.
    found: RefCell<BTreeMap<u64, bool>>,
    is_looking: Cell<bool>,
    /// All that was found was looked into, or the task is to end.
    looked: Signal,
}

impl Scrubber {
    /// See [`wire::scrub::HealShare`], percent.
    pub fn heal_share(&self) -> u8 {
        self.settings.get().heal_share.0
    }

    /// True while an operator waits for the pass.
    pub fn is_hurried(&self) -> bool {
        self.hurried.get() || self.stopped.get()
    }

    pub fn set(&self, settings: Scrub) {
        if settings.version >= self.settings.get().version {
            self.settings.set(settings);
            self.wake();
        }
    }

    /// Ends the task; the shard goes away.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.looked.notify();
        self.wake();
    }

    fn wake(&self) {
        if let Some(sleeper) = self.sleeper.take() {
            // Nobody there: it is awake.
            let _ = sleeper.send(());
        }
    }
}

impl TargetPool {
    /// Begins a pass at full speed; returns its number.
    pub fn scrub_now(&self) -> u64 {
        let progress = self.shard.scrub_progress();
        self.shard.set_scrub_progress(ScrubProgress {
            under_way: true,
            next_block: 0,
            bad_count: 0,
            ..progress
        });
        self.scrubber.hurried.set(true);
        self.scrubber.wake();
        progress.passes + 1
    }

    /// What is known of the shard's data. Searches for holders of damage not searched for yet.
    pub async fn scrub_stat(&self) -> ScrubStat {
        ScrubStat { places: self.bad_places().await, ..self.scrub_figures() }
    }

    /// The same without places.
    pub fn scrub_figures(&self) -> ScrubStat {
        let progress = self.shard.scrub_progress();
        let (checked_bytes, left_bytes) = match progress.under_way {
            true => {
                let left = self.shard.summed_bytes(progress.next_block);
                (self.shard.summed_bytes(0) - left, left)
            }
            false => (0, 0),
        };
        let settings = self.scrubber.settings.get();
        ScrubStat {
            version: settings.version,
            rate: settings.rate,
            summed_bytes: self.shard.summed_bytes(0),
            bad_bytes: self.shard.bad_count() * BLOCK_BYTES,
            found_count: self.scrubber.found_count.get(),
            mended_count: self.mending.mended_count(),
            passes: progress.passes,
            pass_end_ns: progress.end_ns,
            pass_bad_count: progress.end_bad_count,
            checked_bytes,
            left_bytes,
            places: Vec::new(),
        }
    }

    async fn bad_places(&self) -> Vec<BadPlace> {
        let mut bad = self.shard.bad_blocks();
        bad.sort_by_key(|(block, mark)| (std::cmp::Reverse(mark.found_ns), *block));
        bad.truncate(PLACE_COUNT_MAX);
        let blocks: Vec<u64> = bad.iter().map(|(block, _)| *block).collect();
        self.find_holders(&blocks).await;
        let mut holders = self.scrubber.holders.borrow_mut();
        holders.retain(|block, _| blocks.contains(block));
        bad.iter()
            .map(|(block, mark)| BadPlace {
                found_ns: mark.found_ns,
                found_by: if mark.by_scrubber { FoundBy::Scrubber } else { FoundBy::Reader },
                device_offset: block * BLOCK_BYTES,
                holder: holders.get(block).cloned().flatten(),
            })
            .collect()
    }

    /// Searches for the holders of blocks, where that was not done before.
    async fn find_holders(&self, blocks: &[u64]) {
        let known = |block: &u64| self.scrubber.holders.borrow().contains_key(block);
        let unknown: Vec<u64> = blocks.iter().copied().filter(|block| !known(block)).collect();
        if unknown.is_empty() {
            return;
        }
        let found = self.shard.holders(&unknown).await;
        self.note_holders(&unknown, &found);
    }

    fn note_holders(&self, blocks: &[u64], found: &[Holder]) {
        let mut holders = self.scrubber.holders.borrow_mut();
        for &block in blocks {
            let of_block = found.iter().find(|holder| holder.block == block);
            let holder = of_block.map(|holder| BadHolder {
                cont: holder.cont,
                unit: holder.unit,
                dkey: holder.dkey.clone(),
                akey: holder.akey.clone(),
                offset: holder.offset,
                bytes: holder.bytes,
            });
            holders.insert(block, holder);
        }
    }
}

impl Target {
    /// Notes damage that was found, and makes the error for a reader. A block that is whole when it
    /// is read once more is left alone.
    pub(crate) async fn found_damage(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        blocks: &[u64],
        found_by: FoundBy,
    ) -> Error {
        let bad = ctx.shard.differing_again(blocks).await;
        if bad.is_empty() {
            return Error::new(Code::Csum, "the device gave damaged data once; read again");
        }
        let by_scrubber = found_by == FoundBy::Scrubber;
        let mark = BadMark { found_ns: self.env.wall_ns(), by_scrubber };
        let fresh = ctx.shard.mark_bad(&bad, mark);
        ctx.scrubber.found_count.set(ctx.scrubber.found_count.get() + fresh.len() as u64);
        if !fresh.is_empty() {
            let by = if by_scrubber { "the scrubber" } else { "a reader" };
            let count = fresh.len();
            let what = format!("target {}: {by} has found damage in {count} blocks", self.id);
            let happened = Happened::new(EventCode::DamageFound, what);
            self.events.tell(happened.of_target(self.id).of_pool(ctx.shard.pool()));
        }
        // What was found before may have become possible to put right.
        let again = if by_scrubber && ctx.shard.holds_copies() { &bad[..] } else { &[] };
        for block in again {
            ctx.scrubber.found.borrow_mut().entry(*block).or_insert(false);
        }
        ctx.scrubber.found.borrow_mut().extend(fresh.iter().map(|block| (*block, true)));
        self.look_into_damage(ctx);
        Error::new(
            Code::Csum,
            format!("data are damaged on target {}; write or remove them anew", self.id),
        )
    }

    /// Searches for what the damaged blocks belong to, puts right what others have whole, and says what cannot be.
    fn look_into_damage(self: &Rc<Self>, ctx: &Rc<TargetPool>) {
        let scrubber = &ctx.scrubber;
        if scrubber.found.borrow().is_empty() || scrubber.is_looking.replace(true) {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            loop {
                let found = ctx.scrubber.found.take();
                if found.is_empty() || target.is_done_with(&ctx) {
                    break;
                }
                let blocks: Vec<u64> = found.keys().copied().collect();
                let holders = ctx.shard.holders(&blocks).await;
                target.mend_holders(&ctx, &holders).await;
                let is_bad = |block: &u64| ctx.shard.bad_blocks().iter().any(|(at, _)| at == block);
                let (left, mended): (Vec<u64>, Vec<u64>) = blocks.iter().partition(|at| is_bad(at));
                ctx.note_holders(&left, &holders);
                ctx.scrubber.holders.borrow_mut().retain(|block, _| !mended.contains(block));
                let fresh: Vec<u64> = left.into_iter().filter(|block| found[block]).collect();
                target.tell_damage(&ctx, &fresh);
            }
            ctx.scrubber.is_looking.set(false);
            ctx.scrubber.looked.notify();
        });
    }

    /// Writes to the log whose data are damaged.
    fn tell_damage(&self, ctx: &TargetPool, blocks: &[u64]) {
        let shown = &blocks[..blocks.len().min(PLACE_COUNT_MAX)];
        let pool = ctx.shard.pool();
        if !blocks.is_empty() {
            let what = format!(
                "target {}: {} damaged blocks cannot be put right; what they hold is not read until it is written anew",
                self.id,
                blocks.len()
            );
            let happened = Happened::new(EventCode::DamageStays, what);
            self.events.tell(happened.of_target(self.id).of_pool(pool));
        }
        for block in shown {
            let offset = block * BLOCK_BYTES;
            let holder = ctx.scrubber.holders.borrow().get(block).cloned().flatten();
            match holder {
                Some(BadHolder { cont, unit, dkey, akey, offset: at, bytes }) => tracing::error!(
                    target_id = %self.id, %pool, %cont, oid = %unit.object, group = unit.group,
                    dkey = %dkey.escape_ascii(), akey = %akey.escape_ascii(),
                    "checksum mismatch: {bytes} bytes at {at} of the value are damaged \
                     (byte {offset} of the data area); they cannot be read until they are overwritten"
                ),
                None => tracing::error!(
                    target_id = %self.id, %pool,
                    "checksum mismatch at byte {offset} of the data area; whose it is was not found"
                ),
            }
        }
        if blocks.len() > shown.len() {
            let more = blocks.len() - shown.len();
            tracing::error!(target_id = %self.id, %pool, "{more} more blocks are damaged");
        }
    }

    /// Compares what the fetches of a batch read with its sums, for a reader that got something
    /// else. Returns the number of blocks that were damaged; other members may have put them right when this ends.
    pub(crate) async fn verify(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        batch: &Batch<'_>,
    ) -> Result<u64> {
        self.asked_cont(ctx, batch.cont).await?;
        let mut segments = Segments::new();
        let mut is_known = false;
        ctx.shard.ready_at(batch.cont, batch.at, &[], &batch.ops).await?;
        {
            let view = ctx.shard.view_at(batch.cont, batch.at)?;
            for op in walk(&batch.ops) {
                let Op::Fetch { unit, dkey, cond, iods } = op else { continue };
                match view.fetch(*unit, dkey, *cond, iods, &mut segments) {
                    // It is known already.
                    Err(error) if error.code == Code::Csum => is_known = true,
                    outcome => drop(outcome?),
                }
            }
        }
        if is_known {
            self.mend_for_reader(ctx, batch).await;
            return Ok(1);
        }
        if let Err(error) = segments.load().await {
            return match self.mend_for_reader(ctx, batch).await {
                true => Ok(1),
                false => Err(error),
            };
        }
        // If the device has what was written, it was the memory that had not.
        segments.forget_cached();
        let bad = segments.damaged();
        if !bad.is_empty() {
            let error = self.found_damage(ctx, &bad, FoundBy::Reader).await;
            tracing::debug!("target {}: verifying for a reader: {error}", self.id);
            self.mend_for_reader(ctx, batch).await;
        }
        Ok(bad.len() as u64)
    }

    /// Starts the task of a shard.
    pub(crate) fn start_scrubber(self: &Rc<Self>, ctx: &Rc<TargetPool>) {
        let (target, ctx) = (self.clone(), ctx.clone());
        let progress = ctx.shard.scrub_progress();
        if progress.begin_ns == 0 {
            // The first period begins with the pool.
            let begin_ns = self.env.wall_ns();
            ctx.shard.set_scrub_progress(ScrubProgress { begin_ns, ..progress });
        }
        self.env.spawn(async move { target.scrub_shard(&ctx).await });
    }

    async fn scrub_shard(self: &Rc<Self>, ctx: &Rc<TargetPool>) {
        let scrubber = &ctx.scrubber;
        let mut steps = 0;
        while !scrubber.stopped.get() {
            let rate = scrubber.settings.get().rate.0;
            let hurried = scrubber.hurried.get();
            let progress = ctx.shard.scrub_progress();
            if rate == 0 && !hurried {
                self.doze(scrubber, Duration::MAX).await;
                continue;
            }
            if !progress.under_way {
                let now = self.env.wall_ns();
                let age = Duration::from_nanos(now.saturating_sub(progress.begin_ns));
                if age < PERIOD && now >= progress.begin_ns {
                    self.doze(scrubber, PERIOD - age).await;
                    continue;
                }
                let begun =
                    ScrubProgress { under_way: true, next_block: 0, bad_count: 0, ..progress };
                ctx.shard.set_scrub_progress(ScrubProgress { begin_ns: now, ..begun });
                continue;
            }
            if hurried {
                self.env.yield_now().await;
            } else {
                let bytes = STEP_BLOCKS * BLOCK_BYTES;
                self.doze(scrubber, Duration::from_secs_f64(bytes as f64 / rate as f64)).await;
                self.wait_until_idle(scrubber).await;
            }
            steps += 1;
            match self.scrub_step(ctx, steps % STEPS_REMEMBERED == 0).await {
                Ok(()) => {}
                // By its code alone it might be another target's connection that is closed.
                Err(_) if self.is_done_with(ctx) => return,
                Err(error) => {
                    tracing::warn!(target_id = %self.id, pool = %ctx.shard.pool(), "scrubber: {error}");
                    self.doze(scrubber, ERROR_PAUSE).await;
                }
            }
        }
    }

    /// One step of a pass under way.
    async fn scrub_step(self: &Rc<Self>, ctx: &Rc<TargetPool>, remember: bool) -> Result<()> {
        let before = ctx.shard.scrub_progress();
        let found = ctx.shard.scrub(before.next_block, STEP_BLOCKS).await;
        let bad = match &found {
            Ok(Some(found)) => &found.bad[..],
            _ => &[],
        };
        if !bad.is_empty() {
            self.found_damage(ctx, bad, FoundBy::Scrubber).await;
        }
        // A pass that an operator has begun meanwhile begins at its beginning.
        let mut progress = ctx.shard.scrub_progress();
        if (progress.next_block, progress.passes) != (before.next_block, before.passes) {
            return found.map(|_| ());
        }
        match found {
            Ok(Some(found)) => {
                progress.next_block = found.next_block;
                progress.bad_count += bad_still(ctx, &found.bad);
                match remember {
                    true => drop(ctx.shard.set_scrub_progress(progress)),
                    false => ctx.shard.note_scrub_progress(progress),
                }
                Ok(())
            }
            Ok(None) => {
                let rate = ctx.scrubber.settings.get().rate.0;
                let pace = async |bytes| self.scrub_pace(ctx, rate, bytes).await;
                match ctx.shard.scrub_pages(pace).await {
                    Ok(0) => {}
                    Ok(damaged) => {
                        let text = format!(
                            "the scrubber has found damage in {damaged} pages of the index"
                        );
                        self.tell_of_pages(ctx.shard.pool(), EventCode::DamageFound, &text);
                    }
                    Err(error) => {
                        tracing::warn!(target_id = %self.id, pool = %ctx.shard.pool(), "pages of the index: {error}");
                    }
                }
                match self.compare_parity(ctx, pace).await {
                    Ok(compared) if compared.stripes > 0 => {
                        ctx.mending.count(compared.mended);
                        tracing::info!(
                            target_id = %self.id, pool = %ctx.shard.pool(),
                            "parity of {} stripes was compared with their data; cells put right: {}",
                            compared.stripes, compared.mended
                        );
                    }
                    Ok(_) => {}
                    Err(error) if self.is_done_with(ctx) => return Err(error),
                    // What is named or kept elsewhere now is compared in the next pass.
                    Err(error) => {
                        tracing::warn!(target_id = %self.id, pool = %ctx.shard.pool(), "comparing parity: {error}");
                    }
                }
                let scrubber = &ctx.scrubber;
                let is_over = || !scrubber.is_looking.get() || scrubber.stopped.get();
                scrubber.looked.until(is_over).await;
                let again = ctx.shard.scrub_progress();
                if (again.next_block, again.passes) != (before.next_block, before.passes) {
                    return Ok(());
                }
                // What was put right meanwhile is not damaged.
                progress.bad_count = progress.bad_count.min(ctx.shard.bad_count());
                ctx.scrubber.hurried.set(false);
                ctx.shard.set_scrub_progress(ScrubProgress {
                    under_way: false,
                    next_block: 0,
                    bad_count: 0,
                    passes: progress.passes + 1,
                    end_ns: self.env.wall_ns(),
                    end_bad_count: progress.bad_count,
                    ..progress
                });
                tracing::info!(
                    target_id = %self.id, pool = %ctx.shard.pool(),
                    "all data were compared with their checksums; damaged blocks: {}",
                    progress.bad_count
                );
                Ok(())
            }
            Err(error) => {
                // What cannot be read at all is not compared; the pass goes on behind it.
                progress.next_block = before.next_block + STEP_BLOCKS;
                ctx.shard.note_scrub_progress(progress);
                Err(error)
            }
        }
    }

    /// Sleeps until something is to do.
    async fn doze(&self, scrubber: &Scrubber, time: Duration) {
        let (sender, woken) = oneshot::channel();
        scrubber.sleeper.replace(Some(sender));
        if scrubber.stopped.get() {
            return;
        }
        // Woken or not, the caller looks again.
        let _ = self.env.timeout(time.min(PERIOD), woken).await;
    }

    async fn wait_until_idle(&self, scrubber: &Scrubber) {
        let until = self.env.now() + BUSY_WAIT_MAX;
        while self.env.now() < until && !scrubber.hurried.get() && !scrubber.stopped.get() {
            let before = self.request_count();
            self.doze(scrubber, IDLE_TIME).await;
            if self.request_count() == before {
                return;
            }
        }
    }
}

fn bad_still(ctx: &TargetPool, blocks: &[u64]) -> u64 {
    let bad = ctx.shard.bad_blocks();
    blocks.iter().filter(|block| bad.iter().any(|(known, _)| known == *block)).count() as u64
}
