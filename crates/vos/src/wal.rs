//! The log of a shard: appended to in memory at once, written by one task in batches.
//!
//! Group commit: while a batch is being written, records gather for the next one. One write is
//! in flight at a time, so at most the last batch of a log can be torn, which its sectors tell from
//! damage (see `sectors`): replay refuses to guess what a damaged one held.
//!
//! Segments are files `wal.NNNNNNNN` of at least 16 MiB, written with zeros before use (a
//! durable write into space that was never written costs a file system transaction) and
//! recycled after a checkpoint. The file `head` says with which segment the log begins, and names
//! the table of pages that holds what was before.
//!
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
use crate::batch::BatchHeader;
use crate::sealed;
use crate::sectors::{self, Expected, Next};
use crate::space::Space;
use crate::table::TableRefDf;

/// Least size of a segment, bytes.
const SEGMENT_BYTES: u64 = 16 << 20;
/// Number of the segment that a new log begins with.
const FIRST_SEGMENT: u64 = 1;
/// Emptied segments kept for use again.
const SPARE_COUNT_MAX: usize = 4;
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
struct State {
    pending: Vec<u8>,
    pending_records: u32,
    /// Lsn of the last record appended.
    last: Lsn,
    durable: Lsn,
    sequence: u64,
    chain: u32,
    segment: Option<Segment>,
    offset: u64,
    /// Bytes of each segment of the log.
    segments: BTreeMap<u64, u64>,
    spares: VecDeque<(u64, u64)>,
    /// Begin a new segment with the next batch and say where it begins.
    rotate: bool,
    rotated: Option<Rotation>,
    writing: bool,
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
    pub unsynced: Rc<Cell<bool>>,
}

/// See the module.
pub(crate) struct Wal {
    env: Env,
    disk: Rc<dyn Disk>,
    dir: PathBuf,
    shard: [u8; 16],
    /// It answers at once and gathers longer.
    relaxed: bool,
    data: DataSync,
    space: Rc<RefCell<Space>>,
    state: RefCell<State>,
    closed: Cell<bool>,
}

pub(crate) fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("wal.{number:08}"))
}

fn segment_options() -> OpenOptions {
    OpenOptions { create: true, direct: true, dsync: true, ..OpenOptions::default() }
}

/// Reads the head of a log; that of an empty one if there is none.
pub(crate) async fn read_head(disk: &Rc<dyn Disk>, dir: &Path) -> Result<HeadDf> {
    match crate::store::read_sealed(disk, &dir.join("head")).await {
        Ok(raw) => decode_head(&raw),
        Err(error) if error.code == Code::NonExist => Ok(HeadDf {
            segment: FIRST_SEGMENT,
            sequence: 1,
            chain: 0,
            lsn: 1,
            applied: 0,
            table: None,
        }),
        Err(error) => Err(error),
    }
}

/// Decodes a head.
pub(crate) fn decode_head(raw: &[u8]) -> Result<HeadDf> {
    let head: HeadDf = sealed::unseal(HEAD_MAGIC, HEAD_VERSION, raw)?;
    if head.lsn == 0 || head.segment == 0 {
        return Err(Error::new(Code::Csum, "the head of the log makes no sense"));
    }
    Ok(head)
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
        let mut state = State {
            sequence: head.sequence,
            chain: head.chain,
            last: Lsn(head.lsn - 1),
            ..State::default()
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
            state.segment = Some(Segment { number, file, bytes: raw.len() as u64 });
            state.offset = offset as u64;
            number += 1;
        }
        state.durable = state.last;
        state.figures.replay_records = state.last.0 + 1 - head.lsn;
        state.figures.replay_time = env.now() - began;
        space.borrow_mut().set_durable(state.last);
        let in_log = |n: &u64| state.segments.contains_key(n);
        for stray in numbers.iter().filter(|n| !in_log(n)) {
            disk.remove(&segment_path(dir, *stray)).await?;
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
            closed: Cell::new(false),
        }))
    }

    /// Appends one record, encoded by `encode` with its length in front.
    pub(crate) fn append(self: &Rc<Self>, encode: impl FnOnce(&mut Vec<u8>)) -> Lsn {
        let mut state = self.state.borrow_mut();
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

    /// Lsn of the last record appended.
    pub(crate) fn last(&self) -> Lsn {
        self.state.borrow().last
    }

    /// Bytes the log takes on the device.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.state.borrow();
        let whole: u64 = state.segments.values().sum();
        let unused = state.segment.as_ref().map_or(0, |segment| segment.bytes - state.offset);
        whole - unused
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
            Poll::Pending
        })
        .await
    }

    /// Waits as the durability of the pool demands.
    pub(crate) async fn durable(&self, lsn: Lsn) -> Result<()> {
        if self.relaxed {
            return self.usable();
        }
        self.written(lsn).await
    }

    /// Writes until nothing is pending.
    async fn write_all(self: Rc<Self>) {
        loop {
            if self.relaxed && !self.closed.get() {
                self.env.sleep(RELAXED_DELAY).await;
            }
            let result = self.write_batch().await;
            let mut state = self.state.borrow_mut();
            let more = match result {
                Ok(()) => !state.pending.is_empty(),
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
            let body = std::mem::take(&mut state.pending);
            let record_count = std::mem::take(&mut state.pending_records);
            let body_bytes = u32::try_from(body.len())
                .map_err(|_| Error::new(Code::Io, "a batch of the log is over 4 GiB"))?;
            let header = BatchHeader {
                shard: self.shard,
                sequence: state.sequence,
                first_lsn: Lsn(state.last.0 + 1 - record_count as u64),
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
            (buf, padded, sum, state.last, since, unsynced)
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
            let mut state = self.state.borrow_mut();
            let rotate = std::mem::take(&mut state.rotate);
            let number = match &state.segment {
                Some(segment) if !rotate && state.offset + padded <= segment.bytes => {
                    return Ok((segment.file.clone(), state.offset));
                }
                Some(segment) => segment.number + 1,
                None => FIRST_SEGMENT,
            };
            if rotate {
                state.rotated = Some(Rotation {
                    segment: number,
                    sequence: state.sequence,
                    chain: state.chain,
                    lsn: state.durable.0 + 1,
                });
            }
            number
        };
        let bytes = SEGMENT_BYTES.max(padded);
        let path = segment_path(&self.dir, number);
        // Spares have the usual size; a batch that needs more gets a segment of its own.
        let spare = match bytes {
            SEGMENT_BYTES => self.state.borrow_mut().spares.pop_front(),
            _ => None,
        };
        let (file, bytes) = match spare {
            Some((old, bytes)) => {
                self.disk.rename(&segment_path(&self.dir, old), &path).await?;
                (self.disk.open(&path, segment_options()).await?, bytes)
            }
            None => (make_segment(&self.disk, &path, bytes).await?, bytes),
        };
        self.disk.sync_dir(&self.dir).await?;
        let mut state = self.state.borrow_mut();
        if let Some(full) = &state.segment {
            let used = (full.number, state.offset);
            state.segments.insert(used.0, used.1);
        }
        state.segments.insert(number, bytes);
        state.segment = Some(Segment { number, file: file.clone(), bytes });
        state.offset = 0;
        Ok((file, 0))
    }

    /// The next batch begins a new segment, from which a trimmed log will begin.
    pub(crate) fn rotate(&self) {
        let mut state = self.state.borrow_mut();
        state.rotate = true;
        state.rotated = None;
    }

    /// Lets the log begin at the last rotation, with the state in `table` at record `applied`.
    /// `Io` when it was not rotated.
    pub(crate) async fn trim(&self, applied: Lsn, table: TableRefDf) -> Result<()> {
        let rotated = self.state.borrow_mut().rotated.take();
        let Rotation { segment, sequence, chain, lsn } =
            rotated.ok_or_else(|| Error::new(Code::Io, "the log has no new segment yet"))?;
        let table = Some(table);
        let head = HeadDf { segment, sequence, chain, lsn, applied: applied.0, table };
        let raw = sealed::seal(HEAD_MAGIC, HEAD_VERSION, &head);
        crate::store::write_sealed(&self.disk, &self.dir, "head", &raw).await?;
        let dead: Vec<u64> = {
            let mut state = self.state.borrow_mut();
            let live = state.segments.split_off(&head.segment);
            std::mem::replace(&mut state.segments, live).into_keys().collect()
        };
        for number in dead {
            let path = segment_path(&self.dir, number);
            let bytes = self.disk.open(&path, segment_options()).await?.len()?;
            let keep = self.state.borrow().spares.len() < SPARE_COUNT_MAX && bytes == SEGMENT_BYTES;
            if keep {
                self.state.borrow_mut().spares.push_back((number, bytes));
            } else {
                self.disk.remove(&path).await?;
            }
        }
        Ok(())
    }
}

/// Makes the first segment of a log, before there is a shard: one without it has lost its log.
pub(crate) async fn make(disk: &Rc<dyn Disk>, dir: &Path) -> Result<()> {
    make_segment(disk, &segment_path(dir, FIRST_SEGMENT), SEGMENT_BYTES).await?;
    disk.sync_dir(dir).await
}

/// A new segment full of zeros. It gets its name when they are durable: what lay on the device
/// before would be taken for damage.
async fn make_segment(disk: &Rc<dyn Disk>, path: &Path, bytes: u64) -> Result<Rc<dyn File>> {
    let plain = OpenOptions { dsync: false, ..segment_options() };
    let making = path.with_file_name("wal.new");
    let file = disk.open(&making, plain).await?;
    file.set_len(0).await?;
    file.allocate(0, bytes).await?;
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
    disk.rename(&making, path).await?;
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
