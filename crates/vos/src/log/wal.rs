//! The log of a shard: appended to in memory at once, written by one task in batches.
//!
//! Group commit: while a batch is being written, records gather for the next one. One write is
//! in flight at a time, so at most the last batch of a log can be torn, which its sectors tell from
//! damage (see `sectors`): replay refuses to guess what a damaged one held.
//!
//! Segments are files `wal.NNNNNNNN` of at least 16 MiB, written with zeros before use (a
//! durable write into space that was never written costs a file system transaction) and
//! recycled after a checkpoint; one is ready ahead (see `reserve`). The file `head` says with which
//! segment the log begins, and names the table of pages that holds what was before.
//!
//! A new head is written to `head.new`. Then the names are moved: `head` to `head.old`, `head.new` to
//! `head`, `head.old` to `head.new`, so that the space of both is kept. After a crash in between
//! there may be no `head`; then `head.old` is it.
//!
//! Where there is no room for a segment the log waits, and asks for a checkpoint, which makes some.
//! After a failed write nothing is known about the device: the log refuses everything from then
//! on, and the target must be restarted or replaced.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use env::{AlignedBuf, Disk, Env, File, OpenOptions};
use serde::{Deserialize, Serialize};
use types::{Code, Error, Histogram, Result};
use wire::store::LogStat;

use crate::Lsn;
use crate::log::batch::BatchHeader;
use crate::log::sectors::{self, Expected, Next};
use crate::log::spares::{SPARES_KEPT, Spares};
use crate::log::table_ref::TableRefDf;
use crate::sealed;
use crate::space::Space;
use crate::unsynced::Unsynced;

/// Least size of a segment, bytes.
pub(crate) const SEGMENT_BYTES: u64 = 16 << 20;
/// Number of the segment that a new log begins with.
const FIRST_SEGMENT: u64 = 1;
/// A batch is closed when it has this much, so that it fits into a segment with the largest record there
/// is, bytes.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Between two looks for room when there is none for a segment: a checkpoint may have made some, or
/// somebody else.
const STUCK_PAUSE: Duration = Duration::from_millis(20);
/// How long a relaxed log gathers.
const RELAXED_DELAY: Duration = Duration::from_millis(5);
const HEAD_MAGIC: [u8; 8] = *b"AZKWHEAD";
/// Version of `head`. 1: release 0.1. 2: names a table of pages.
const HEAD_VERSION: u16 = 2;

/// Where the log begins; the body of `head`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct HeadDf {
    /// First segment.
    pub segment: u64,
    /// Sequence of its first batch.
    pub sequence: u64,
    /// Chain value its first batch carries.
    pub chain: u32,
    /// Lsn of its first record.
    pub lsn: u64,
    /// Lsn of the last record whose effect is in the table.
    pub applied: u64,
    /// The state at that record; `None`: empty.
    pub table: Option<TableRefDf>,
}

/// The records of one batch, as replay gets them.
pub(crate) struct Replayed<'a> {
    pub first_lsn: Lsn,
    pub record_count: u32,
    pub body: &'a [u8],
}

/// Where a rotated log begins.
#[derive(Clone, Copy)]
struct Rotation {
    segment: u64,
    sequence: u64,
    chain: u32,
    lsn: u64,
}

struct Segment {
    number: u64,
    file: Rc<dyn File>,
    bytes: u64,
}

#[derive(Default)]
struct LogTail {
    pending: Vec<u8>,
    pending_records: u32,
    /// Batches before that, each with its number of records.
    full: VecDeque<(Vec<u8>, u32)>,
    /// Lsn of the last record appended.
    last: Lsn,
    durable: Lsn,
    sequence: u64,
    chain: u32,
    segment: Option<Segment>,
    offset: u64,
    /// Bytes of each segment of the log.
    segments: BTreeMap<u64, u64>,
    /// Begin a new segment with the next batch and say where it begins.
    rotate: bool,
    /// A segment that the log may begin with from the next checkpoint on.
    rotated: Option<Rotation>,
    writing: bool,
    /// Somebody waits for what a relaxed log gathers.
    urgent: bool,
    gatherer: Option<Waker>,
    failed: Option<Error>,
    wakers: Vec<Waker>,
    /// When the first of the pending records was appended.
    pending_since: Duration,
    figures: Figures,
}

/// What the log has done since it was opened.
#[derive(Clone, Default)]
struct Figures {
    batch_records: Histogram,
    batch_bytes: Histogram,
    commit_latency_us: Histogram,
    replay_records: u64,
    replay_time: Duration,
}

/// The data area, as the log sees it: synced before a batch that may name what is unsynced in it.
/// One sync serves all that has been written since the last one.
pub(crate) struct DataSync {
    pub file: Rc<dyn File>,
    pub unsynced: Unsynced,
}

pub(crate) struct Wal {
    env: Env,
    disk: Rc<dyn Disk>,
    dir: PathBuf,
    shard: [u8; 16],
    /// It answers at once and gathers longer.
    relaxed: bool,
    data: DataSync,
    space: Rc<RefCell<Space>>,
    state: RefCell<LogTail>,
    pub(crate) spares: Spares,
    /// Room is kept ahead.
    keeps: bool,
    /// There is no room for a segment.
    stuck: Cell<bool>,
    /// Asks for a checkpoint; false when there will be none.
    ask_checkpoint: RefCell<Option<Box<dyn Fn() -> bool>>>,
    /// What cannot be written is given up.
    closing: Cell<bool>,
    closed: Cell<bool>,
}

pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("wal.{number:08}"))
}

pub(crate) fn segment_options() -> OpenOptions {
    OpenOptions { create: true, direct: true, dsync: true, ..OpenOptions::default() }
}

/// Head of a log that has had no checkpoint.
const FIRST_HEAD: HeadDf =
    HeadDf { segment: FIRST_SEGMENT, sequence: 1, chain: 0, lsn: 1, applied: 0, table: None };

/// Reads the head of a log; that of an empty one if there is none.
pub(crate) async fn read_head(disk: &Rc<dyn Disk>, dir: &Path) -> Result<HeadDf> {
    let found = match sealed::read_sealed(disk, &dir.join("head")).await {
        Err(error) if error.code == Code::NonExist => {
            sealed::read_sealed(disk, &dir.join("head.old")).await
        }
        found => found,
    };
    match found {
        Ok(raw) => decode_head(&raw),
        Err(error) if error.code == Code::NonExist => Ok(FIRST_HEAD),
        Err(error) => Err(error),
    }
}

pub(crate) fn decode_head(raw: &[u8]) -> Result<HeadDf> {
    let head: HeadDf = sealed::unseal(HEAD_MAGIC, HEAD_VERSION, raw)?;
    if head.lsn == 0 || head.segment == 0 {
        return Err(Error::new(Code::Csum, "the head of the log makes no sense"));
    }
    Ok(head)
}

impl LogTail {
    /// Where segment `number` begins when it is begun now.
    fn place(&self, number: u64) -> Rotation {
        let (sequence, chain) = (self.sequence, self.chain);
        Rotation { segment: number, sequence, chain, lsn: self.durable.0 + 1 }
    }
}

impl Wal {
    /// Opens the log of a shard and hands every batch to `replay`, in order, those of a segment
    /// at a time.
    #[expect(clippy::too_many_arguments, reason = "what a log is made of")]
    pub(crate) async fn open(
        env: &Env,
        disk: &Rc<dyn Disk>,
        dir: &Path,
        shard: [u8; 16],
        relaxed: bool,
        data: DataSync,
        space: Rc<RefCell<Space>>,
        head: &HeadDf,
        keeps: bool,
        mut replay: impl AsyncFnMut(&[Replayed<'_>]) -> Result<()>,
    ) -> Result<Rc<Wal>> {
        let began = env.now();
        let mut numbers: Vec<u64> = disk
            .list(dir)
            .await?
            .iter()
            .filter_map(|entry| entry.name.strip_prefix("wal.")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let mut state = LogTail {
            sequence: head.sequence,
            chain: head.chain,
            last: Lsn(head.lsn - 1),
            ..LogTail::default()
        };
        let mut number = head.segment;
        if !numbers.contains(&number) {
            return Err(Error::new(
                Code::Csum,
                format!("{} is missing: the log begins there", segment_path(dir, number).display()),
            ));
        }
        loop {
            if !numbers.contains(&number) {
                break;
            }
            let path = segment_path(dir, number);
            let file = disk.open(&path, segment_options()).await?;
            let mut raw = read_whole(&file).await?;
            state.durable = state.last;
            let begins = state.place(number);
            let mut offset = 0;
            let mut found = Vec::new();
            let damaged = loop {
                let expected = Expected {
                    shard: &shard,
                    sequence: state.sequence,
                    chain: state.chain,
                    lsn: state.last.0 + 1,
                };
                let (header, sum, records, end) = match sectors::next(&mut raw, offset, expected)? {
                    Next::Batch { header, sum, records, end } => (header, sum, records, end),
                    Next::End { .. } => break None,
                    Next::Damaged { at } => break Some(at),
                };
                let next = state.last.0.checked_add(header.record_count as u64);
                let next = next.ok_or_else(|| Error::new(Code::Csum, "impossible log batch"))?;
                found.push((header, records));
                state.sequence += 1;
                state.chain = sum;
                state.last = Lsn(next);
                offset = end;
            };
            let later = sectors::later_batch(&raw, offset, &shard, state.sequence)?;
            if damaged.is_some() || later.is_some() {
                let text = damage_text(state.sequence, damaged.unwrap_or(offset) as u64, later);
                return Err(Error::new(Code::Csum, format!("{}: {text}", path.display())));
            }
            let batches: Vec<Replayed<'_>> = found
                .into_iter()
                .map(|(header, records)| Replayed {
                    first_lsn: header.first_lsn,
                    record_count: header.record_count,
                    body: &raw[records],
                })
                .collect();
            replay(&batches).await.map_err(|error| error.context(path.display()))?;
            // A segment in which nothing continues the log is not part of it (yet).
            if offset == 0 && state.segment.is_some() {
                break;
            }
            state.segments.insert(number, raw.len() as u64);
            state.rotated = state.segment.is_some().then_some(begins);
            state.segment = Some(Segment { number, file, bytes: raw.len() as u64 });
            state.offset = offset as u64;
            number += 1;
        }
        state.durable = state.last;
        state.figures.replay_records = state.last.0 + 1 - head.lsn;
        state.figures.replay_time = env.now() - began;
        space.borrow_mut().set_durable(state.last);
        numbers.retain(|number| !state.segments.contains_key(number));
        let spares = Spares::open(disk, dir, &numbers, head.segment).await?;
        if keeps {
            keep_room_for_head(disk, dir).await;
        }
        Ok(Rc::new(Wal {
            env: env.clone(),
            disk: disk.clone(),
            dir: dir.to_path_buf(),
            shard,
            relaxed,
            data,
            space,
            state: RefCell::new(state),
            spares,
            keeps,
            stuck: Cell::new(false),
            ask_checkpoint: RefCell::default(),
            closing: Cell::new(false),
            closed: Cell::new(false),
        }))
    }

    /// Appends one record, encoded by `encode` with its length in front.
    pub(crate) fn append(self: &Rc<Self>, encode: impl FnOnce(&mut Vec<u8>)) -> Lsn {
        let mut state = self.state.borrow_mut();
        if state.failed.is_some() {
            // Nothing goes behind what was lost: it would take its place, and what was lost would pass for written.
            state.last = Lsn(state.last.0 + 1);
            return state.last;
        }
        if state.pending.len() >= BATCH_BYTES_MAX {
            let batch = (std::mem::take(&mut state.pending), state.pending_records);
            state.pending_records = 0;
            state.full.push_back(batch);
        }
        if state.pending_records == 0 {
            state.pending_since = self.env.now();
        }
        encode(&mut state.pending);
        state.pending_records += 1;
        state.last = Lsn(state.last.0 + 1);
        if !state.writing {
            state.writing = true;
            let wal = self.clone();
            self.env.spawn(async move { wal.write_all().await });
        }
        state.last
    }

    /// `Io` once a write has failed, `Closed` after the end.
    pub(crate) fn usable(&self) -> Result<()> {
        if self.closed.get() {
            return Err(Error::new(Code::Closed, "the shard is closed"));
        }
        match &self.state.borrow().failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Refuses everything from now on.
    pub(crate) fn close(&self) {
        self.closed.set(true);
    }

    /// Before the end: from now on what cannot be written for want of room is given up.
    pub(crate) fn begin_close(&self) {
        self.closing.set(true);
    }

    /// Lsn of the last record appended.
    pub(crate) fn last(&self) -> Lsn {
        self.state.borrow().last
    }

    /// Lsn of the last record that is on stable storage.
    pub(crate) fn durable_lsn(&self) -> Lsn {
        self.state.borrow().durable
    }

    /// Bytes the log takes on the device.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.state.borrow();
        let whole: u64 = state.segments.values().sum();
        let unused = state.segment.as_ref().map_or(0, |segment| segment.bytes - state.offset);
        whole - unused
    }

    /// Bytes that fit into the segment that is being written.
    pub(crate) fn room_left(&self) -> u64 {
        let state = self.state.borrow();
        state.segment.as_ref().map_or(0, |segment| segment.bytes - state.offset)
    }

    /// What the log has done since it was opened.
    pub(crate) fn stat(&self) -> LogStat {
        let bytes = self.bytes();
        let state = self.state.borrow();
        let figures = state.figures.clone();
        LogStat {
            bytes,
            failed: state.failed.is_some(),
            batch_records: figures.batch_records,
            batch_bytes: figures.batch_bytes,
            commit_latency_us: figures.commit_latency_us,
            replay_records: figures.replay_records,
            replay_time_us: figures.replay_time.as_micros() as u64,
            ..LogStat::default()
        }
    }

    /// Waits until a record is durable, also in a relaxed log.
    pub(crate) async fn written(&self, lsn: Lsn) -> Result<()> {
        std::future::poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if state.durable >= lsn {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = &state.failed {
                return Poll::Ready(Err(error.clone()));
            }
            if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.wakers.push(cx.waker().clone());
            }
            state.urgent = true;
            let gatherer = state.gatherer.take();
            drop(state);
            if let Some(gatherer) = gatherer {
                gatherer.wake();
            }
            Poll::Pending
        })
        .await
    }

    /// Waits as the durability of the pool demands.
    pub(crate) async fn durable(&self, lsn: Lsn) -> Result<()> {
        if self.relaxed && !self.stuck.get() {
            return self.usable();
        }
        self.written(lsn).await
    }

    /// Gives a relaxed log time to gather records, unless somebody waits for one.
    async fn gather(&self) {
        // timer: records gather, at most for this time.
        let mut enough = std::pin::pin!(self.env.sleep(RELAXED_DELAY));
        std::future::poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if std::mem::take(&mut state.urgent) {
                return Poll::Ready(());
            }
            state.gatherer = Some(cx.waker().clone());
            drop(state);
            enough.as_mut().poll(cx)
        })
        .await;
    }

    /// Writes until nothing is pending.
    async fn write_all(self: Rc<Self>) {
        loop {
            if self.relaxed && !self.closed.get() {
                self.gather().await;
            }
            let result = self.write_batch().await;
            let mut state = self.state.borrow_mut();
            let more = match result {
                Ok(()) => !state.pending.is_empty() || !state.full.is_empty(),
                Err(error) => {
                    let error = error.context(
                        "the log of this shard failed and takes no more writes; check the device \
                         and restart the target",
                    );
                    tracing::error!(dir = %self.dir.display(), %error, "log write failed");
                    state.failed = Some(Error::new(Code::Io, error.text));
                    false
                }
            };
            state.writing = more;
            let wakers = std::mem::take(&mut state.wakers);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
            if !more {
                return;
            }
        }
    }

    /// Writes what is pending now as one batch.
    async fn write_batch(&self) -> Result<()> {
        let (buf, padded, sum, last, since, unsynced) = {
            let mut state = self.state.borrow_mut();
            // Of a later batch at most: what this one names was written before its records.
            let unsynced = self.data.unsynced.take();
            let since = state.pending_since;
            let (body, record_count) = match state.full.pop_front() {
                Some(batch) => batch,
                None => {
                    let record_count = std::mem::take(&mut state.pending_records);
                    (std::mem::take(&mut state.pending), record_count)
                }
            };
            let last = Lsn(state.durable.0 + record_count as u64);
            let body_bytes = u32::try_from(body.len())
                .map_err(|_| Error::new(Code::Io, "a batch of the log is over 4 GiB"))?;
            let header = BatchHeader {
                shard: self.shard,
                sequence: state.sequence,
                first_lsn: Lsn(state.durable.0 + 1),
                record_count,
                body_bytes,
                chain: state.chain,
                body_crc: wire::header::crc(&body),
            };
            let padded = header.padded_bytes();
            state.figures.batch_records.record(record_count as u64);
            state.figures.batch_bytes.record(body_bytes as u64);
            let mut buf = AlignedBuf::try_scratch(padded as usize)?;
            let (raw, sum) = header.encode();
            sectors::spread(&raw, &body, sum, &mut buf);
            // Give the buffer back for the next records unless it grew beyond reason.
            if state.pending.is_empty() && body.capacity() <= 4 << 20 {
                let mut body = body;
                body.clear();
                state.pending = body;
            }
            (buf, padded, sum, last, since, unsynced)
        };
        if unsynced {
            self.data.file.sync().await?;
        }
        let (file, offset) = self.place(padded).await?;
        let (_, result) = file.write_at(offset, buf).await;
        result?;
        let mut state = self.state.borrow_mut();
        state.offset = offset + padded;
        state.sequence += 1;
        state.chain = sum;
        state.durable = last;
        let taken = self.env.now().saturating_sub(since);
        state.figures.commit_latency_us.record(taken.as_micros() as u64);
        drop(state);
        self.space.borrow_mut().set_durable(last);
        Ok(())
    }

    /// The place for a batch of `padded` bytes, in a new segment if need be.
    async fn place(&self, padded: u64) -> Result<(Rc<dyn File>, u64)> {
        let number = {
            let state = self.state.borrow();
            match &state.segment {
                Some(segment) if !state.rotate && state.offset + padded <= segment.bytes => {
                    return Ok((segment.file.clone(), state.offset));
                }
                Some(segment) => segment.number + 1,
                None => FIRST_SEGMENT,
            }
        };
        let bytes = SEGMENT_BYTES.max(padded);
        let path = segment_path(&self.dir, number);
        // What is ready has the usual size; a batch that needs more gets a segment of its own.
        let file = match bytes {
            SEGMENT_BYTES => self.next_segment(&path).await?,
            _ => make_segment(&self.disk, &path, bytes).await?,
        };
        self.disk.sync_dir(&self.dir).await?;
        let mut state = self.state.borrow_mut();
        if std::mem::take(&mut state.rotate) {
            state.rotated = Some(state.place(number));
        }
        if let Some(full) = &state.segment {
            let used = (full.number, state.offset);
            state.segments.insert(used.0, used.1);
        }
        state.segments.insert(number, bytes);
        state.segment = Some(Segment { number, file: file.clone(), bytes });
        state.offset = 0;
        Ok((file, 0))
    }

    /// Makes a segment of what is ready. The last one is for a checkpoint: who needs one otherwise
    /// and gets none waits for that, or for room. `NoSpace` when the log is closing and neither comes.
    async fn next_segment(&self, path: &Path) -> Result<Rc<dyn File>> {
        loop {
            let kept = if self.state.borrow().rotate { 0 } else { SPARES_KEPT };
            let ready = async {
                self.spares.set_aside(kept + 1).await?;
                self.spares.take(path).await
            };
            match ready.await {
                Err(error) if error.code == Code::NoSpace => {
                    if !self.stuck.replace(true) {
                        tracing::warn!(dir = %self.dir.display(), %error, "the log waits for room");
                    }
                    let asked = self.ask_checkpoint.borrow().as_ref().is_some_and(|ask| ask());
                    if self.closed.get() || self.closing.get() && !asked {
                        return Err(error);
                    }
                }
                other => {
                    self.stuck.set(false);
                    return other;
                }
            }
            // timer: room may come from other processes, too.
            self.env.sleep(STUCK_PAUSE).await;
        }
    }

    /// True while there is no room for a segment.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.get()
    }

    /// What to do when there is no room for a segment until a checkpoint has made some; `ask` says
    /// whether one is under way.
    pub(crate) fn when_stuck(&self, ask: Box<dyn Fn() -> bool>) {
        self.ask_checkpoint.replace(Some(ask));
    }

    /// Where the log lies.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes sure that a segment can be begun for a checkpoint. `NoSpace` when not.
    pub(crate) async fn ready_to_rotate(&self) -> Result<()> {
        if self.state.borrow().rotated.is_some() {
            return Ok(());
        }
        self.spares.set_aside(1).await
    }

    /// The next batch begins a new segment, from which a trimmed log will begin.
    pub(crate) fn rotate(&self) {
        let mut state = self.state.borrow_mut();
        // One that no checkpoint has come to use will do when there is nothing to begin another with:
        // replay leaves out what the table has.
        if state.rotated.is_none() || self.spares.count() > 0 {
            state.rotate = true;
            state.rotated = None;
        }
    }

    /// Lets the log begin at the last rotation, with the state in `table` at record `applied`.
    /// `Io` when it was not rotated.
    pub(crate) async fn trim(&self, applied: Lsn, table: TableRefDf) -> Result<()> {
        let rotated = self.state.borrow().rotated;
        let Rotation { segment, sequence, chain, lsn } =
            rotated.ok_or_else(|| Error::new(Code::Io, "the log has no new segment yet"))?;
        let table = Some(table);
        let head = HeadDf { segment, sequence, chain, lsn, applied: applied.0, table };
        self.write_head(&head).await?;
        let dead: Vec<u64> = {
            let mut state = self.state.borrow_mut();
            state.rotated = None;
            let live = state.segments.split_off(&head.segment);
            std::mem::replace(&mut state.segments, live).into_keys().collect()
        };
        for number in dead {
            self.spares.put_back(number).await?;
        }
        Ok(())
    }

    /// Replaces the head; see the module.
    async fn write_head(&self, head: &HeadDf) -> Result<()> {
        let raw = sealed::seal(HEAD_MAGIC, HEAD_VERSION, head);
        if !self.keeps {
            return sealed::write_sealed(&self.disk, &self.dir, "head", &raw).await;
        }
        let name = |name: &str| self.dir.join(name);
        let options = OpenOptions { create: true, ..OpenOptions::default() };
        let file = self.disk.open(&name("head.new"), options).await?;
        file.write_at(0, AlignedBuf::copy_of(&raw)).await.1?;
        file.sync().await?;
        unless_missing(self.disk.rename(&name("head"), &name("head.old")).await)?;
        self.disk.rename(&name("head.new"), &name("head")).await?;
        self.disk.sync_dir(&self.dir).await?;
        unless_missing(self.disk.rename(&name("head.old"), &name("head.new")).await)
    }
}

fn unless_missing(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.code == Code::NonExist => Ok(()),
        other => other,
    }
}

/// Sees to it that there are two heads, so that the next one is written over space that is there. Before
/// the log is in use.
async fn keep_room_for_head(disk: &Rc<dyn Disk>, dir: &Path) {
    let kept = async {
        let names = disk.list(dir).await?;
        let has = |name: &str| names.iter().any(|entry| entry.name == name);
        let new = dir.join("head.new");
        if !has("head") && !has("head.old") {
            let raw = sealed::seal(HEAD_MAGIC, HEAD_VERSION, &FIRST_HEAD);
            sealed::write_sealed(disk, dir, "head", &raw).await?;
        } else if has("head.new") || !has("head") {
            return Ok(());
        } else if has("head.old") {
            return disk.rename(&dir.join("head.old"), &new).await;
        }
        let file = disk.open(&new, OpenOptions { create: true, ..OpenOptions::default() }).await?;
        file.write_at(0, AlignedBuf::try_zeroed(sealed::SEALED_BYTES)?).await.1?;
        file.sync().await
    };
    if let Err(error) = kept.await {
        tracing::debug!(dir = %dir.display(), %error, "no room for the next head");
    }
}

/// Makes the first segment of a log, before there is a shard: one without it has lost its log.
pub(crate) async fn make(disk: &Rc<dyn Disk>, dir: &Path) -> Result<()> {
    make_segment(disk, &segment_path(dir, FIRST_SEGMENT), SEGMENT_BYTES).await?;
    disk.sync_dir(dir).await
}

/// A new segment full of zeros.
async fn make_segment(disk: &Rc<dyn Disk>, path: &Path, bytes: u64) -> Result<Rc<dyn File>> {
    let making = path.with_file_name("wal.new");
    let plain = OpenOptions { dsync: false, ..segment_options() };
    let file = disk.open(&making, plain).await?;
    file.set_len(0).await?;
    file.allocate(0, bytes).await?;
    fill_segment(disk, &making, path, bytes).await
}

/// Makes a file with space for it a segment full of zeros. It gets its name when they are
/// durable: what lay on the device before would be taken for damage.
pub(crate) async fn fill_segment(
    disk: &Rc<dyn Disk>,
    from: &Path,
    path: &Path,
    bytes: u64,
) -> Result<Rc<dyn File>> {
    let plain = OpenOptions { dsync: false, ..segment_options() };
    let file = disk.open(from, plain).await?;
    let mut zeros = AlignedBuf::try_zeroed(1 << 20)?;
    let mut at = 0;
    while at < bytes {
        let part = (bytes - at).min(1 << 20);
        zeros.set_len(part as usize);
        let (back, result) = file.write_at(at, zeros).await;
        result?;
        zeros = back;
        at += part;
    }
    file.sync().await?;
    disk.rename(from, path).await?;
    disk.open(path, segment_options()).await
}

/// What is said of a log that is damaged at byte `at` of a segment, where batch `sequence` should be.
pub(crate) fn damage_text(sequence: u64, at: u64, later: Option<u64>) -> String {
    let later = match later {
        Some(later) => format!("; batch {later} after it is whole"),
        None => " (it was not cut off by a crash: what was written has changed since)".to_string(),
    };
    format!(
        "batch {sequence} is damaged, byte {at}{later}; azekura vos repair --drop-tail gives up \
         this batch and all after it"
    )
}

/// Reads a whole file.
pub(crate) async fn read_whole(file: &Rc<dyn File>) -> Result<AlignedBuf> {
    let bytes = file.len()?;
    let bytes = usize::try_from(bytes)
        .map_err(|_| Error::new(Code::Io, "a log segment is larger than memory"))?;
    // A crash while the segment was made can leave any length; only whole blocks count.
    let bytes = bytes - bytes % 4096;
    let (mut buf, result) = file.read_at(0, AlignedBuf::try_zeroed(bytes)?).await;
    let count = result?.min(bytes);
    buf.set_len(count - count % 4096);
    Ok(buf)
}
