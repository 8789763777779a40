//! Reading a log without replaying it: where it ends, and whether that is its end.

use std::path::Path;
use std::rc::Rc;

use env::{AlignedBuf, Disk, OpenOptions};
use serde::Serialize;
use types::Result;

use crate::log::sectors::{self, Expected, Next};
use crate::log::wal;

/// What a log looks like.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LogScan {
    /// Whole batches.
    pub batches: u64,
    pub records: u64,
    /// Bytes of them, with padding.
    pub bytes: u64,
    /// Number of the first segment.
    pub segment_first: u64,
    /// Number of the segment that the log ends in.
    pub segment_last: u64,
    /// Where it ends there, bytes.
    pub end: u64,
    /// Number of the batch that would come next.
    pub next_batch: u64,
    /// A batch begins there but is not whole.
    pub torn: bool,
    /// What is wrong with the log there, when that is not its end.
    pub damage: Option<String>,
}

/// Scans the log of a shard in `dir`.
pub(crate) async fn scan(disk: &Rc<dyn Disk>, dir: &Path, shard: &[u8; 16]) -> Result<LogScan> {
    let head = wal::read_head(disk, dir).await?;
    let mut log = LogScan {
        segment_first: head.segment,
        segment_last: head.segment,
        next_batch: head.sequence,
        ..LogScan::default()
    };
    let (mut chain, mut number, mut lsn) = (head.chain, head.segment, head.lsn);
    let mut ended = false;
    while log.damage.is_none()
        && let Some(mut raw) = segment(disk, dir, number).await?
    {
        let mut at = 0;
        let damaged = loop {
            if ended {
                break None;
            }
            let expected = Expected { shard, sequence: log.next_batch, chain, lsn };
            match sectors::next(&mut raw, at, expected)? {
                Next::Batch { header, sum, end, .. } => {
                    log.batches += 1;
                    log.records += header.record_count as u64;
                    log.bytes += header.padded_bytes();
                    log.next_batch += 1;
                    lsn = lsn.saturating_add(header.record_count as u64);
                    (chain, at) = (sum, end);
                    (log.segment_last, log.end) = (number, end as u64);
                }
                Next::End { torn } => {
                    log.torn |= torn;
                    break None;
                }
                Next::Damaged { at } => break Some(at),
            }
        };
        // The next segment may go on where this one ends; once one does not, the log has ended.
        ended |= at == 0 && number > head.segment;
        let later = sectors::later_batch(&raw, at, shard, log.next_batch)?;
        if damaged.is_some() || later.is_some() {
            let at = damaged.unwrap_or(at) as u64;
            let text = wal::damage_text(log.next_batch, at, later);
            log.damage = Some(format!("{}: {text}", wal::segment_path(dir, number).display()));
        }
        number += 1;
    }
    Ok(log)
}

/// The content of a segment, `None` when there is no such one.
async fn segment(disk: &Rc<dyn Disk>, dir: &Path, number: u64) -> Result<Option<AlignedBuf>> {
    let path = wal::segment_path(dir, number);
    let options = OpenOptions { read_only: true, direct: true, ..OpenOptions::default() };
    match disk.open(&path, options).await {
        Ok(file) => wal::read_whole(&file).await.map(Some),
        Err(error) if error.code == types::Code::NonExist => Ok(None),
        Err(error) => Err(error),
    }
}

/// Cuts a log at its end, so that nothing after it counts; returns the bytes given up.
pub(crate) async fn cut(disk: &Rc<dyn Disk>, dir: &Path, log: &LogScan) -> Result<u64> {
    let mut given_up = 0;
    let path = wal::segment_path(dir, log.segment_last);
    let file = disk.open(&path, OpenOptions { direct: true, ..OpenOptions::default() }).await?;
    let bytes = file.len()?;
    let mut at = log.end;
    while at < bytes {
        let part = (bytes - at).min(1 << 20);
        let zeros = AlignedBuf::try_zeroed(part.next_multiple_of(4096) as usize)?;
        file.write_at(at, zeros).await.1?;
        at += part;
        given_up += part;
    }
    file.sync().await?;
    for entry in disk.list(dir).await? {
        let number = entry.name.strip_prefix("wal.").and_then(|number| number.parse::<u64>().ok());
        if number.is_some_and(|number| number > log.segment_last) {
            disk.remove(&dir.join(&entry.name)).await?;
        }
    }
    disk.sync_dir(dir).await?;
    Ok(given_up)
}
