//! Joining of small extents in the background.
//!
//! Updates note which arrays they have written to in small pieces ([`crate::fragments`]). When nothing
//! has been written to one for some seconds, its groups of small extents are read, written to
//! one run and replaced by one extent with one log record ([`crate::index::fragment`]); groups
//! whose bytes lie one after the other already need the record only.
//!
//! Invariants:
//! - Nothing that can be read changes: neither bytes, nor epochs of values, dkeys and objects,
//!   nor what a snapshot sees.
//! - The extents are compared with what was read in the same step that replaces them; if
//!   anything was written meanwhile, the copy is thrown away.
//! - The copy is on the device before the record that names it, and the old blocks come back
//!   after that record is durable, as with every update.
//!
//! Foreground work goes first: while there is any, aggregation rests four times as long as
//! it works. A full data area is left alone.

use std::rc::{Rc, Weak};
use std::time::Duration;

use smallvec::SmallVec;
use types::Result;
use wire::obj::{Cond, Op};

use crate::contents::sums_df;
use crate::index::extent::ReadPart;
use crate::index::fragment::{ArrayName, Group, WINDOW_BYTES};
use crate::payload::{BlockSums, Payload};
use crate::record::{CopiedDf, RecordDf};
use crate::segments::Segments;
use crate::shard::PoolShard;

/// How often the task looks.
const TICK: Duration = Duration::from_secs(1);
/// An array is left alone until it was not written for this many ticks.
const AGE_TICKS: u64 = 5;
/// While others work, rest this many times as long as the last step took.
const REST_FACTOR: u32 = 4;
/// Below this share of free space nothing is copied.
const FREE_SHARE: u64 = 64;

impl PoolShard {
    /// Looks at small extents in the background, if there are any and there is room.
    pub(crate) fn aggregate_if_due(&self) {
        let due = self.core.aggregate
            && !self.room.is_short()
            && !self.state.borrow().fragments.is_empty();
        if due && !self.is_closed() && self.aggregating.begin() {
            self.core.env.spawn(run(self.me.clone()));
        }
    }

    /// Joins small extents of all arrays noted for it now, however young and whatever else goes
    /// on. `Io` when the device fails. For tests, tools and before measurements.
    pub async fn aggregate(&self) -> Result<()> {
        match self.me.upgrade() {
            Some(me) => pass(&me, 0, false).await,
            None => Ok(()),
        }
    }
}

/// The background task: lives while there is something to look at.
async fn run(shard: Weak<PoolShard>) {
    loop {
        let Some(env) = shard.upgrade().map(|shard| shard.core.env.clone()) else { return };
        // timer: extents are joined when they have been left alone for some ticks.
        env.sleep(TICK).await;
        let Some(shard) = shard.upgrade() else { return };
        shard.state.borrow_mut().fragments.tick();
        let outcome = pass(&shard, AGE_TICKS, true).await;
        if let Err(error) = &outcome {
            tracing::warn!(pool = %shard.pool, %error, "joining of small extents stopped");
        }
        if outcome.is_err() || shard.is_closed() || shard.state.borrow().fragments.is_empty() {
            shard.aggregating.end();
            return;
        }
    }
}

/// Looks at everything noted that is old enough.
async fn pass(shard: &Rc<PoolShard>, age: u64, gently: bool) -> Result<()> {
    let mut looked_at = 0;
    let mut extents = 0;
    loop {
        if shard.is_closed() {
            return Ok(());
        }
        let next = shard.state.borrow_mut().fragments.next(age, &mut looked_at);
        let Some(name) = next else { break };
        extents += join_array(shard, &name, gently).await?;
    }
    shard.figures.count(|stat| {
        stat.passes += 1;
        stat.extents = extents;
    });
    Ok(())
}

/// Joins the groups of one array; returns the number of extents it had.
async fn join_array(shard: &Rc<PoolShard>, name: &ArrayName, gently: bool) -> Result<u64> {
    let mut found = None;
    // Joining in place comes first and makes fewer groups to copy: then look again, once.
    for _ in 0..2 {
        load(shard, name).await?;
        let (groups, extents) = {
            let Ok(view) = shard.view(name.cont) else { return Ok(0) };
            match view.cont.array(name) {
                Some(array) => array.groups(&view.cont.versions),
                None => return Ok(0),
            }
        };
        found.get_or_insert(extents as u64);
        let again = groups.iter().any(|group| group.in_place.is_some());
        for group in &groups {
            let began = shard.core.env.now();
            let busy_before = shard.core.activity.count();
            match group.in_place {
                Some(at) => replace(shard, name, group, at, None).await?,
                None => copy(shard, name, group).await?,
            }
            if gently && shard.core.activity.count() != busy_before {
                let took = shard.core.env.now().saturating_sub(began);
                // timer: requests have the rest of the time.
                shard.core.env.sleep(took * REST_FACTOR).await;
            }
        }
        if !again {
            break;
        }
    }
    if gently {
        shard.core.env.yield_now().await;
    }
    Ok(found.unwrap_or(0))
}

/// Reads a group, writes it to one run and replaces it.
async fn copy(shard: &Rc<PoolShard>, name: &ArrayName, group: &Group) -> Result<()> {
    let free = {
        let space = shard.core.space.borrow();
        space.free_bytes() > (space.bytes() / FREE_SHARE).max(4 * WINDOW_BYTES)
    };
    if !free {
        return Ok(());
    }
    let Some(mut payload) = Payload::one_run(&shard.core, group.bytes)? else { return Ok(()) };
    let mut segments = Segments::new();
    let mut readable = Ok(());
    load(shard, name).await?;
    {
        let Ok(view) = shard.view(name.cont) else { return Ok(()) };
        let Some(array) = view.cont.array(name) else { return Ok(()) };
        if !array.still_has(group, &view.cont.versions) {
            return Ok(());
        }
        segments.kind = view.cont.sums.kind;
        array.read(group.index, group.count, |part| match part {
            ReadPart::Inline(bytes) => segments.push_bytes(bytes),
            ReadPart::Blocks(run) if readable.is_ok() => {
                readable = segments.push_run(&shard.core, run);
            }
            // The latter are in no group.
            ReadPart::Blocks(_) | ReadPart::Coded(..) => {}
            ReadPart::Zero(bytes) | ReadPart::Hole(bytes) => segments.push_zeros(bytes),
        });
    }
    if readable.is_err() {
        // Damage is left where it is.
        return Ok(());
    }
    if segments.load().await.is_err() || !segments.damaged().is_empty() {
        // Who reads them, or the scrubber, says so; a copy would hide it. Other arrays do not wait for that.
        return Ok(());
    }
    if let Some(room) = payload.buffers().next() {
        let mut at = 0;
        for slice in segments.slices() {
            room[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
    }
    payload.make_sums(segments.kind);
    payload.write().await?;
    let Some(at) = payload.first_run() else { return Ok(()) };
    replace(shard, name, group, at, Some(payload)).await
}

/// Loads what holds an array.
async fn load(shard: &Rc<PoolShard>, name: &ArrayName) -> Result<()> {
    let dkey = &name.dkey;
    let touched = Op::PunchAkeys { unit: name.unit, dkey, cond: Cond::NONE, akeys: Vec::new() };
    shard.ready(name.cont, &[], &[touched]).await
}

/// Replaces a group by one extent at `at`, if it is still as it was found: the record and the
/// change in one step.
async fn replace(
    shard: &Rc<PoolShard>,
    name: &ArrayName,
    group: &Group,
    at: u64,
    payload: Option<Payload>,
) -> Result<()> {
    load(shard, name).await?;
    let unchanged = match shard.view(name.cont) {
        Ok(view) => {
            let array = view.cont.array(name);
            array.is_some_and(|array| array.still_has(group, &view.cont.versions))
        }
        Err(_) => false,
    };
    if !unchanged || shard.writable().is_err() {
        return Ok(());
    }
    let moved = payload.as_ref().map_or(0, Payload::bulk_bytes);
    let (pieces, sums) = match payload {
        Some(payload) => payload.commit(),
        None => (SmallVec::new(), BlockSums::NONE),
    };
    let copied = pieces.first().map(|piece| CopiedDf {
        bytes: piece.bytes(),
        sums: sums_df(&pieces, &sums).first().copied(),
    });
    shard.change(|state, effects| {
        shard.fill_sums(&pieces, &sums);
        state.index.join(name, group.index, group.count, at, effects);
        let lsn = shard.log_record(&RecordDf::Join {
            cont: name.cont,
            unit: name.unit,
            dkey: &name.dkey,
            akey: &name.akey,
            index: group.index,
            count: group.count,
            at,
            copied,
        });
        Ok((lsn, ()))
    })?;
    shard.figures.count(|stat| {
        stat.joined += group.members.len() as u64;
        stat.made += 1;
        stat.moved_bytes += moved;
    });
    Ok(())
}
