//! Filling a new object with what an old one holds, while that may change.
//!
//! Of a chunk that is in a tier only the new object gets the stub: what is there stays there.

use crate::fs::Dfs;
use crate::node::Obj;
use crate::transfers::all_begun;
use async_recursion::async_recursion as boxed;
use client::{ArrayObj, ChunkPart};
use std::cell::Cell;
use std::collections::BTreeMap;
use types::{Epoch, Result, Unit};
use wire::obj::{Recx, Tail};

/// Bytes of the old object that are looked at together.
const WINDOW_BYTES: u64 = 64 << 20;
/// Most bytes in one transfer, and transfers at the same time.
const TRANSFER_BYTES: u64 = 4 << 20;
const TRANSFERS: usize = 4;

/// What of the old object the new one has.
pub(crate) struct Copy {
    pub source: ArrayObj,
    pub sink: ArrayObj,
    /// By where they begin: parts that were copied.
    parts: BTreeMap<u64, Part>,
    /// The old object's units before the last pass: what the new one has is this, unless they have changed.
    pub seen: Vec<(Unit, Tail)>,
    /// The new object's units after it.
    pub made: Vec<(Unit, Tail)>,
    passes: u64,
    /// Bytes copied, over all passes.
    pub bytes: Cell<u64>,
}

struct Part {
    count: u64,
    /// Of the old object, before it was read.
    epoch: Epoch,
    /// The last pass in which it was there.
    pass: u64,
}

impl Copy {
    pub fn new(source: ArrayObj, sink: ArrayObj) -> Copy {
        let (parts, bytes) = (BTreeMap::new(), Cell::new(0));
        Copy { source, sink, parts, seen: Vec::new(), made: Vec::new(), passes: 0, bytes }
    }

    /// Newest change of the old object before the last pass.
    pub fn seen_epoch(&self) -> Epoch {
        self.seen.iter().map(|(_, tail)| tail.epoch).max().unwrap_or(Epoch::ZERO)
    }

    /// Newest change of the new object after the last pass.
    pub fn made_epoch(&self) -> Epoch {
        self.made.iter().map(|(_, tail)| tail.epoch).max().unwrap_or(Epoch::ZERO)
    }

    /// Forgets all that was copied.
    pub async fn begin_anew(&mut self) -> Result<()> {
        let of_part = |(index, part): (&u64, &Part)| Recx { index: *index, count: part.count };
        let copied: Vec<Recx> = self.parts.iter().map(of_part).collect();
        self.sink.punch(&copied).await?;
        self.parts.clear();
        (self.seen, self.made, self.passes) = (Vec::new(), Vec::new(), 0);
        Ok(())
    }

    /// Brings the new object up to date. When none of the old one's units has changed since [`Copy::seen`], they are equal: what
    /// is read is read after the units were looked at, and a unit that was empty then is not read. `tiered`: the file of the old one, some of which may be
    /// in a tier only.
    ///
    /// After an error it is to begin anew. Errors: `Inval` where a chunk was given up meanwhile, or without `tiered` is a stub.
    #[boxed(?Send)]
    pub async fn pass(
        &mut self,
        tiered: Option<(&Dfs, &Obj)>,
        on_bytes: &dyn Fn(u64),
    ) -> Result<()> {
        let now = self.source.stat_shards().await?;
        let is_same = |(a, b): (&(Unit, Tail), &(Unit, Tail))| a.0 == b.0 && a.1.epoch == b.1.epoch;
        if self.passes > 0
            && now.len() == self.seen.len()
            && now.iter().zip(&self.seen).all(is_same)
        {
            return Ok(());
        }
        let ends = now.iter().map(|(_, tail)| self.source.size_from_tail(tail));
        let size = ends.max().unwrap_or(0);
        self.passes += 1;
        self.seen = now;
        let chunk = self.source.chunk_records;
        let window = (WINDOW_BYTES / chunk).max(1).saturating_mul(chunk);
        let mut at = 0;
        while at < size {
            let end = at.saturating_add(window).min(size);
            if self.copy_window(at, end, tiered, on_bytes).await? {
                at = end;
                continue;
            }
            // A hole, perhaps a very large one.
            let Some(run) = self.source.next_run(end).await? else { break };
            at = run.index - run.index % chunk;
        }
        self.drop_what_went().await?;
        if self.sink.size().await? != size {
            self.sink.set_size(size).await?;
        }
        self.made = self.sink.stat_shards().await?;
        Ok(())
    }

    /// Copies what of `from..end`, which begins with a chunk, the new object does not have as it is. False when there is
    /// nothing but a hole.
    async fn copy_window(
        &mut self,
        from: u64,
        end: u64,
        tiered: Option<(&Dfs, &Obj)>,
        on_bytes: &dyn Fn(u64),
    ) -> Result<bool> {
        let mut runs = Vec::new();
        let mut at = from;
        while at < end {
            let (some, to) = self.source.runs(Recx { index: at, count: end - at }).await?;
            runs.extend(some);
            // An answer that gets nowhere would be asked for again for ever.
            at = to.max(at + 1);
        }
        if runs.is_empty() {
            return Ok(false);
        }
        let seen: BTreeMap<Unit, Epoch> =
            self.seen.iter().map(|(unit, tail)| (*unit, tail.epoch)).collect();
        let mut wanted = Vec::new();
        let mut stale = Vec::new();
        for part in self.source.part_epochs(&chunks_of(&runs, self.source.chunk_records)).await? {
            let Recx { index, count } = part.range;
            // What is newer than the look at its unit is copied when that has been looked at again.
            let seen_epoch = seen.get(&part.unit).copied().unwrap_or(Epoch::ZERO);
            if part.epoch == Epoch::ZERO || part.epoch > seen_epoch {
                continue;
            }
            match self.parts.get_mut(&index) {
                Some(known) if known.epoch == part.epoch => {
                    known.pass = self.passes;
                    continue;
                }
                Some(_) => stale.push(part.range),
                None => {}
            }
            self.parts.insert(index, Part { count, epoch: part.epoch, pass: self.passes });
            wanted.push(part);
        }
        if !stale.is_empty() {
            self.sink.punch(&stale).await?;
        }
        if let Some((fs, file)) = tiered {
            let chunk = self.source.chunk_records;
            let mut chunks: Vec<u64> = wanted.iter().map(|part| part.range.index / chunk).collect();
            chunks.dedup();
            let stubs = fs.put_stubs_into(file, &chunks, &self.sink).await?;
            // What is a stub by now and was none is looked at again, for its unit has changed. Until then it is not what was copied.
            for (index, epoch) in stubs {
                // A chunk in which a first part ends is two parts of one unit where the rest has its place there too.
                let within = |at: u64| (index..index + chunk).contains(&at);
                let is_it = |part: &ChunkPart| within(part.range.index) && part.epoch == epoch;
                if !wanted.iter().any(is_it) {
                    self.parts.retain(|at, _| !within(*at));
                    self.sink.punch(&[Recx { index, count: chunk }]).await?;
                }
                wanted.retain(|part| !within(part.range.index));
            }
        }
        let transfers: Vec<Recx> =
            wanted.iter().flat_map(|part| overlaps(&runs, part.range)).collect();
        let (source, sink, bytes) = (&self.source, &self.sink, &self.bytes);
        let transfer = |run: Recx| async move {
            let mut room = vec![0; run.count as usize];
            source.read(&[run], &mut [&mut room]).await?;
            sink.write(&[run], &[&room]).await?;
            bytes.set(bytes.get() + run.count);
            on_bytes(run.count);
            Ok(())
        };
        all_begun(transfers, TRANSFERS, transfer).await?;
        Ok(true)
    }

    /// Takes away what was copied in an earlier pass and is not there any more.
    async fn drop_what_went(&mut self) -> Result<()> {
        let passes = self.passes;
        let gone = |(index, part): (&u64, &Part)| {
            (part.pass < passes).then_some(Recx { index: *index, count: part.count })
        };
        let gone: Vec<Recx> = self.parts.iter().filter_map(gone).collect();
        if !gone.is_empty() {
            self.sink.punch(&gone).await?;
        }
        self.parts.retain(|_, part| part.pass == passes);
        Ok(())
    }
}

/// The whole chunks that runs lie in, neighbours joined.
fn chunks_of(runs: &[Recx], chunk: u64) -> Vec<Recx> {
    let mut ranges: Vec<Recx> = Vec::new();
    for run in runs.iter().filter(|run| run.count > 0) {
        let from = run.index - run.index % chunk;
        let end = (run.index + run.count).div_ceil(chunk).saturating_mul(chunk);
        let end = end.min(i64::MAX as u64);
        match ranges.last_mut() {
            Some(last) if from <= last.index + last.count => {
                last.count = last.count.max(end - last.index);
            }
            _ => ranges.push(Recx { index: from, count: end - from }),
        }
    }
    ranges
}

/// What of the runs lies in a range, in pieces of a transfer.
fn overlaps(runs: &[Recx], range: Recx) -> Vec<Recx> {
    let range_end = range.index + range.count;
    let first = runs.partition_point(|run| run.index + run.count <= range.index);
    let mut pieces = Vec::new();
    for run in runs[first..].iter().take_while(|run| run.index < range_end) {
        let (mut at, end) = (run.index.max(range.index), (run.index + run.count).min(range_end));
        while at < end {
            let count = TRANSFER_BYTES.min(end - at);
            pieces.push(Recx { index: at, count });
            at += count;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_widened_to_chunks_and_cut_at_parts() {
        let run = |index, count| Recx { index, count };
        let runs = [run(5, 3), run(90, 30), run(350, 1)];
        assert_eq!(chunks_of(&runs, 100), [run(0, 200), run(300, 100)]);
        assert_eq!(overlaps(&runs, run(0, 100)), [run(5, 3), run(90, 10)]);
        assert_eq!(overlaps(&runs, run(100, 100)), [run(100, 20)]);
        assert_eq!(overlaps(&runs, run(200, 100)), []);
        let long = [run(0, 2 * TRANSFER_BYTES + 1)];
        let cut = overlaps(&long, long[0]);
        assert_eq!(cut.iter().map(|piece| piece.count).sum::<u64>(), long[0].count);
        assert_eq!(cut.len(), 3);
    }
}
