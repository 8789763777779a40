//! Compaction: writing the live state into the log, so that what came before can go.
//!
//! There is one log, not two generations: compaction appends parts of the state between the
//! records of live updates. Each part is exactly the state of its range at its place in the
//! log, so replay of the whole log and replay from where compaction began give the same. When
//! all parts are durable, `head` is moved to where it began and earlier segments are recycled.
//! A crash at any point leaves a log that replays from the old head.
//!
//! The work goes in slices: it waits for each slice to be durable, so updates flow between.

use std::rc::Rc;

use types::{ContId, Oid, Result};
use wire::WIRE_VERSION;

use crate::Lsn;
use crate::index::snapshot::PartAt;
use crate::record::{OriginDf, RecordDf, encode_into};
use crate::shard::Shard;
use crate::state::pieces_df;
use crate::wal::Wal;

/// No compaction below this log size, bytes.
const LOG_BYTES_MIN: u64 = 64 << 20;
/// A log this many times the live state is compacted.
const LIVE_FACTOR: u64 = 4;
/// Bytes appended before waiting.
const SLICE_BYTES: usize = 512 << 10;

/// True when a log is worth compacting.
pub(crate) fn is_due(log_bytes: u64, live_bytes: u64) -> bool {
    log_bytes > LOG_BYTES_MIN.max(live_bytes.saturating_mul(LIVE_FACTOR))
}

/// Compacts in the background; clears the shard's flag at the end.
pub(crate) async fn run(shard: Rc<Shard>) {
    let result = match shard.wal.clone() {
        Some(wal) => compact(&shard, &wal).await,
        None => Ok(()),
    };
    shard.compacting.set(false);
    if let Err(error) = result {
        tracing::warn!(pool = %shard.pool, %error, "log compaction stopped; the log stays long");
    }
}

/// Appends the state and trims the log.
pub(crate) async fn compact(shard: &Rc<Shard>, wal: &Rc<Wal>) -> Result<()> {
    let began = shard.core.env.now();
    // Nothing may be appended between the rotation and the small state: no await until then.
    wal.rotate();
    let objects = begin(shard, wal);
    let mut appended = 0;
    let mut last = wal.last();
    for (cont, oid) in objects {
        let mut at = PartAt::default();
        loop {
            if shard.is_closed() {
                return Ok(());
            }
            wal.usable()?;
            let part = {
                let state = shard.state.borrow();
                // A container destroyed meanwhile needs no parts.
                let Some(container) = state.index.conts.get(&cont) else { break };
                container.part(cont, oid, &at)
            };
            last = wal.append(|out| out.extend_from_slice(&part.record));
            appended += part.record.len();
            if appended >= SLICE_BYTES {
                appended = 0;
                wal.written(last).await?;
            }
            match part.next {
                Some(next) => at = next,
                None => break,
            }
        }
    }
    last = append_sums(shard, wal).await?.max(last);
    wal.written(last).await?;
    if shard.is_closed() {
        return Ok(());
    }
    wal.trim().await?;
    shard.count_checkpoint(began);
    Ok(())
}

/// Appends the sums of blocks, region by region, then what is known to be damaged: only blocks
/// with sums can be.
async fn append_sums(shard: &Rc<Shard>, wal: &Rc<Wal>) -> Result<Lsn> {
    let names = shard.core.space.borrow().sums.region_names();
    let mut last = Lsn(0);
    let mut appended = 0;
    for (kind, number) in names {
        if shard.is_closed() {
            return Ok(last);
        }
        wal.usable()?;
        let region = shard.core.space.borrow().sums.save(kind, number);
        appended += region.sums.len() + region.present.len();
        last = wal.append(|out| encode_into(&RecordDf::SumRegion { region }, out));
        if appended >= SLICE_BYTES {
            appended = 0;
            wal.written(last).await?;
        }
    }
    let blocks: Vec<_> = shard.core.space.borrow().sums.bad().collect();
    if !blocks.is_empty() {
        last = wal.append(|out| encode_into(&RecordDf::BadBlocks { blocks }, out));
    }
    Ok(last)
}

/// Appends everything but the objects, and lists those.
fn begin(shard: &Shard, wal: &Rc<Wal>) -> Vec<(ContId, Oid)> {
    let state = shard.state.borrow();
    let log = |record: &RecordDf<'_>| -> Lsn { wal.append(|out| encode_into(record, out)) };
    log(&RecordDf::LastEpoch { epoch: state.last_epoch });
    for (&cont, container) in &state.index.conts {
        log(&RecordDf::CreateCont { cont, sums: container.sums });
        if container.versions.revision > 0 {
            let (versions, unswept) = (container.versions.durable(), container.is_unswept());
            log(&RecordDf::Versions { cont, versions, unswept });
        }
    }
    log(&RecordDf::Scrub { progress: state.scrub });
    for (tx, part) in &state.prepared {
        log(&RecordDf::Prepare {
            tx: *tx,
            coordinator: part.coordinator,
            cont: part.cont,
            wire_version: WIRE_VERSION,
            batch: &part.batch,
            pieces: pieces_df(&part.pieces),
            // They come with their regions.
            sums: Vec::new(),
        });
    }
    for (tx, (epoch, participants)) in &state.decisions {
        let participants = participants.clone();
        log(&RecordDf::Decision { tx: *tx, epoch: *epoch, participants, origin: None });
    }
    for (tx, reply) in state.retry.iter() {
        log(&RecordDf::Reply { origin: OriginDf { tx, reply } });
    }
    for &(cont, oid) in &state.orphans {
        log(&RecordDf::Orphan { cont, oid });
    }
    let mut objects: Vec<(ContId, Oid)> = state
        .index
        .conts
        .iter()
        .flat_map(|(&cont, container)| container.objects.keys().map(move |&oid| (cont, oid)))
        .collect();
    objects.sort_unstable();
    objects
}
