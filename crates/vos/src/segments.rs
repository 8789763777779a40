//! Fetched array data on its way out, without copying it.
//!
//! Data in the data area stays where it is; a guard keeps it from being reused until the
//! segments are dropped, however long sending takes and whatever is written meanwhile. Small
//! pieces that live in the index are copied, for the index may change.
//!
//! Whole blocks go out with the sums they are stored with: nothing but the sender that made them
//! and the reader that compares them looks at the data in between. Of a block that goes out in part, the
//! whole is compared here and the part gets a sum of its own.

use std::ops::Range;
use std::rc::Rc;

use env::AlignedBuf;
use futures_util::future::join_all;
use types::sums::{SUM_CHUNK_BYTES, SumRun};
use types::{Code, ContId, CsumKind, Error, Result, Unit};
use wire::cell::{NamedPart, Stripe};
use wire::obj::BulkSums;

use crate::blocks::{BLOCK_BYTES, Run};
use crate::data_area::{Core, Medium};
use crate::data_cache::{DataCache, ENTRY_BYTES_MAX, Loaded, Owner};
use crate::space::{ReadGuard, Space};
use crate::sums::differing;

/// Zeros to send where nothing was written.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

enum Segment {
    /// Part of the copied bytes.
    Copied(Range<usize>),
    /// Part of the arena.
    Arena(Run),
    /// Part of the device, once loaded with the blocks it touches.
    Disk(DiskPart),
    Zero(u64),
    /// Bytes of a stripe, once they are gathered.
    Coded(Box<CodedPart>, Option<Vec<u8>>),
}

struct DiskPart {
    run: Run,
    /// Whose it is, if it may come from the cache, and stay there.
    owner: Option<Owner>,
    loaded: Option<Loaded>,
}

/// Bytes of a stripe that are in cells of other targets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodedPart {
    pub cont: ContId,
    pub unit: Unit,
    pub dkey: Vec<u8>,
    pub akey: Vec<u8>,
    pub stripe: Stripe,
    /// First byte in the stripe.
    pub at: u64,
    pub bytes: u64,
}

/// Pieces of fetched data, in bulk order.
pub struct Segments {
    copied: Vec<u8>,
    segments: Vec<Segment>,
    bytes: u64,
    /// Of the container.
    pub(crate) kind: CsumKind,
    /// Data of devices may come from memory, and stay there.
    is_cached: bool,
    hold: Option<(Rc<Core>, ReadGuard)>,
}

impl Default for Segments {
    fn default() -> Segments {
        Segments {
            copied: Vec::new(),
            segments: Vec::new(),
            bytes: 0,
            kind: CsumKind::Off,
            is_cached: false,
            hold: None,
        }
    }
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segments({} bytes in {} pieces)", self.bytes, self.segments.len())
    }
}

/// Sums of the bulk of a reply; the owned form of [`BulkSums`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkSumsOwned {
    kind: CsumKind,
    runs: Vec<SumRun>,
    sums: Vec<u8>,
}

impl BulkSumsOwned {
    /// The form that goes on the wire.
    pub fn as_wire(&self) -> BulkSums<'_> {
        BulkSums { kind: self.kind, runs: self.runs.clone(), sums: &self.sums, cells: Vec::new() }
    }

    /// Adds a chunk, or several neighbouring ones of whole blocks, with their sums.
    fn push(&mut self, bytes: u64, first: usize, sums: &[u8]) {
        if let Some(SumRun::Summed { bytes: before, first: head }) = self.runs.last_mut()
            && (*before as usize) >= *head as usize
            && (*before as usize - *head as usize).is_multiple_of(SUM_CHUNK_BYTES)
            && first == SUM_CHUNK_BYTES.min(bytes as usize)
        {
            *before += bytes as u32;
        } else {
            self.runs.push(SumRun::Summed { bytes: bytes as u32, first: first as u16 });
        }
        self.sums.extend_from_slice(sums);
    }

    /// Adds one chunk, summed here.
    fn push_made(&mut self, chunk: &[u8]) {
        let mut sum = [0; types::sums::SUM_BYTES_MAX];
        let sum = &mut sum[..self.kind.width()];
        codec::sum(self.kind, chunk, sum);
        self.push(chunk.len() as u64, chunk.len(), sum);
    }

    fn push_bare(&mut self, more: u64) {
        match self.runs.last_mut() {
            Some(SumRun::Bare { bytes }) => *bytes += more as u32,
            _ => self.runs.push(SumRun::Bare { bytes: more as u32 }),
        }
    }
}

impl Segments {
    /// Nothing yet; what is on a device comes from there.
    pub fn new() -> Segments {
        Segments::default()
    }

    /// Nothing yet; what is on a device comes from the data cache if it is there, and stays there for the next reader.
    pub fn cached() -> Segments {
        Segments { is_cached: true, ..Segments::default() }
    }

    /// Nothing yet; what is added from now on is not used again before it is dropped.
    pub(crate) fn of_payload(core: &Rc<Core>) -> Segments {
        let hold = Some((core.clone(), ReadGuard::new(&core.space)));
        Segments { hold, ..Segments::default() }
    }

    /// Adds a run of the data area that was filled; of a device, with what was written there.
    pub(crate) fn push_written(&mut self, run: Run, written: Option<AlignedBuf>) {
        self.bytes += run.bytes;
        self.segments.push(match written {
            None => Segment::Arena(run),
            Some(written) => {
                let loaded = Some(Loaded::new(written));
                Segment::Disk(DiskPart { run, owner: None, loaded })
            }
        });
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True when [`Segments::load`] must run before [`Segments::slices`].
    pub fn needs_load(&self) -> bool {
        self.segments
            .iter()
            .any(|segment| matches!(segment, Segment::Disk(DiskPart { loaded: None, .. })))
    }

    /// All blocks that a run touches, whole.
    fn blocks<'a>(&'a self, run: Run, loaded: Option<&'a Loaded>) -> &'a [u8] {
        let start = run.first_block() * BLOCK_BYTES;
        let whole = Run { at: start, bytes: run.end_block() * BLOCK_BYTES - start };
        if let Some(loaded) = loaded {
            // What was written may be without the rest of its last block.
            let bytes = loaded.bytes();
            return &bytes[..bytes.len().min(whole.bytes as usize)];
        }
        match &self.hold {
            Some((core, _)) if let Medium::Arena(arena) = &core.medium => {
                let start = arena.address(whole).as_ptr();
                // SAFETY: the blocks are inside the arena that `hold` keeps mapped, were written whole
                // when they were filled, and `hold` keeps them from being handed out (see `arena`).
                unsafe { std::slice::from_raw_parts(start, whole.bytes as usize) }
            }
            _ => panic!("segments on the device must be loaded first"),
        }
    }

    /// The bytes, in order. Panics when something is still on the device or in cells: call
    /// [`Segments::load`] first, and set what [`Segments::coded`] tells.
    pub fn slices(&self) -> Vec<&[u8]> {
        let mut out = Vec::with_capacity(self.segments.len());
        let part = |run: &Run, loaded| {
            let skip = (run.at % BLOCK_BYTES) as usize;
            &self.blocks(*run, loaded)[skip..skip + run.bytes as usize]
        };
        for segment in &self.segments {
            match segment {
                Segment::Copied(range) => out.push(&self.copied[range.clone()]),
                Segment::Arena(run) => out.push(part(run, None)),
                Segment::Disk(disk) => out.push(part(&disk.run, disk.loaded.as_ref())),
                Segment::Coded(_, gathered) => {
                    out.push(gathered.as_deref().expect("bytes of cells must be gathered first"));
                }
                Segment::Zero(bytes) => {
                    let mut left = *bytes as usize;
                    while left > 0 {
                        let part = left.min(ZEROS.len());
                        out.push(&ZEROS[..part]);
                        left -= part;
                    }
                }
            }
        }
        out
    }

    /// Reads from the device what is there, or takes it from the data cache. `Io` when it fails or ends too early.
    pub async fn load(&mut self) -> Result<()> {
        let Some((core, _)) = &self.hold else { return Ok(()) };
        let core = core.clone();
        let Medium::File(file) = &core.medium else { return Ok(()) };
        if self.is_cached {
            self.take_from(&core.cache);
        }
        let mut reads = Vec::new();
        for (at, segment) in self.segments.iter().enumerate() {
            if let Segment::Disk(DiskPart { run, loaded: None, .. }) = segment {
                let start = run.first_block() * BLOCK_BYTES;
                let bytes = run.end_block() * BLOCK_BYTES - start;
                let buf = AlignedBuf::try_scratch(bytes as usize)?;
                let (begun, read) = (core.env.now(), file.read_at(start, buf));
                let core = &core;
                reads.push(async move {
                    let read = read.await;
                    (at, bytes, read, core.env.now().saturating_sub(begun))
                });
            }
        }
        for (at, bytes, (buf, result), took) in join_all(reads).await {
            let count = result.map_err(|error| error.context("reading data"))?;
            if (count as u64) < bytes {
                return Err(Error::new(Code::Io, "the data file is shorter than its index says"));
            }
            if let Segment::Disk(disk) = &mut self.segments[at] {
                let loaded = Loaded::new(buf);
                if let Some(owner) = disk.owner {
                    // The guard in `hold` keeps the blocks what they are.
                    core.cache.keep(disk.run, &loaded, owner, took);
                }
                disk.loaded = Some(loaded);
            }
        }
        Ok(())
    }

    /// Takes what is in the cache, which may have it in several parts.
    fn take_from(&mut self, cache: &DataCache) {
        let is_asked = |segment: &Segment| match segment {
            Segment::Disk(DiskPart { owner: Some(_), loaded: None, .. }) => true,
            Segment::Disk(_)
            | Segment::Copied(_)
            | Segment::Arena(_)
            | Segment::Zero(_)
            | Segment::Coded(..) => false,
        };
        if !self.segments.iter().any(is_asked) {
            return;
        }
        for segment in std::mem::take(&mut self.segments) {
            let found = match &segment {
                Segment::Disk(disk) if is_asked(&segment) => cache.find(disk.run),
                _ => None,
            };
            let (Segment::Disk(DiskPart { run, owner, .. }), Some(parts)) = (&segment, found)
            else {
                self.segments.push(segment);
                continue;
            };
            let end = run.at + run.bytes;
            for (nth, (first, _)) in parts.iter().enumerate() {
                let at = run.at.max(first * BLOCK_BYTES);
                let stop = parts.get(nth + 1).map_or(end, |(next, _)| next * BLOCK_BYTES);
                let part = Run { at, bytes: stop - at };
                let loaded = Some(parts[nth].1.clone());
                self.segments.push(Segment::Disk(DiskPart { run: part, owner: *owner, loaded }));
            }
        }
    }

    /// Has the data cache forget the blocks that these touch: somebody was given something else than was written.
    pub fn forget_cached(&self) {
        let Some((core, _)) = &self.hold else { return };
        for segment in &self.segments {
            if let Segment::Disk(DiskPart { run, .. }) = segment {
                core.cache.forget(run.first_block(), run.end_block() - run.first_block());
            }
        }
    }

    /// Sums of the bytes, for the reader. The numbers of damaged blocks, if there are any among those
    /// that are looked at here. After [`Segments::load`].
    pub fn sums(&self) -> std::result::Result<BulkSumsOwned, Vec<u64>> {
        let mut out = BulkSumsOwned { kind: self.kind, runs: Vec::new(), sums: Vec::new() };
        if self.kind == CsumKind::Off {
            return Ok(out);
        }
        let chunks = self.bytes as usize / SUM_CHUNK_BYTES + 2 * self.segments.len();
        out.sums.reserve(chunks * self.kind.width());
        let mut bad = Vec::new();
        for segment in &self.segments {
            match segment {
                Segment::Copied(range) => {
                    for chunk in self.copied[range.clone()].chunks(SUM_CHUNK_BYTES) {
                        out.push_made(chunk);
                    }
                }
                Segment::Coded(_, gathered) => {
                    let bytes = gathered.as_deref().unwrap_or_default();
                    for chunk in bytes.chunks(SUM_CHUNK_BYTES) {
                        out.push_made(chunk);
                    }
                }
                Segment::Zero(bytes) => out.runs.push(SumRun::Zeros { bytes: *bytes as u32 }),
                Segment::Arena(run) => self.sum_run(*run, None, &mut out, &mut bad),
                Segment::Disk(disk) => {
                    self.sum_run(disk.run, disk.loaded.as_ref(), &mut out, &mut bad);
                }
            }
        }
        if bad.is_empty() { Ok(out) } else { Err(bad) }
    }

    fn sum_run(
        &self,
        run: Run,
        loaded: Option<&Loaded>,
        out: &mut BulkSumsOwned,
        bad: &mut Vec<u64>,
    ) {
        let Some((core, _)) = &self.hold else { return };
        let space = core.space.borrow();
        let end = run.at + run.bytes;
        let mut at = run.at;
        while at < end {
            let block = at / BLOCK_BYTES;
            let whole = if at.is_multiple_of(BLOCK_BYTES) { (end - at) / BLOCK_BYTES } else { 0 };
            if whole > 0 {
                space.sums.stretches(self.kind, block, whole, |count, sums| match sums {
                    Some(sums) => out.push(count * BLOCK_BYTES, SUM_CHUNK_BYTES, sums),
                    None => out.push_bare(count * BLOCK_BYTES),
                });
                at += whole * BLOCK_BYTES;
                continue;
            }
            let stop = end.min((block + 1) * BLOCK_BYTES);
            match space.sums.of(block) {
                None => out.push_bare(stop - at),
                Some((kind, sum)) => {
                    let start = (block - run.first_block()) * BLOCK_BYTES;
                    let data = &self.blocks(run, loaded)[start as usize..][..SUM_CHUNK_BYTES];
                    bad.extend(differing(kind, block, data, sum));
                    let skip = (at % BLOCK_BYTES) as usize;
                    out.push_made(&data[skip..skip + (stop - at) as usize]);
                }
            }
            at = stop;
        }
    }

    /// True when these sums, made of the data as one or several values, are those that all of it is stored with: then it is what was written. After
    /// [`Segments::load`].
    pub(crate) fn has_sums(&self, made: &[u8]) -> bool {
        let is_summed = |run: &SumRun| matches!(run, SumRun::Summed { .. });
        let stored = self.sums();
        self.kind != CsumKind::Off
            && stored.is_ok_and(|all| all.runs.iter().all(is_summed) && all.sums == made)
    }

    /// Compares every block touched with its sum; returns those that differ. After
    /// [`Segments::load`].
    pub fn damaged(&self) -> Vec<u64> {
        let Some((core, _)) = &self.hold else { return Vec::new() };
        let space = core.space.borrow();
        let mut bad = Vec::new();
        for segment in &self.segments {
            let (run, loaded) = match segment {
                Segment::Arena(run) => (run, None),
                Segment::Disk(disk) => (&disk.run, disk.loaded.as_ref()),
                _ => continue,
            };
            let data = self.blocks(*run, loaded).chunks(SUM_CHUNK_BYTES);
            for (block, data) in (run.first_block()..).zip(data) {
                if let Some((kind, sum)) = space.sums.of(block) {
                    bad.extend(differing(kind, block, data, sum));
                }
            }
        }
        bad.sort_unstable();
        bad.dedup();
        bad
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.copied.len();
        self.copied.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        self.segments.push(Segment::Copied(start..self.copied.len()));
    }

    pub(crate) fn push_coded(&mut self, part: CodedPart) {
        self.bytes += part.bytes;
        self.segments.push(Segment::Coded(Box::new(part), None));
    }

    /// What is in cells of other targets and was not gathered yet. To be set, with as many bytes, before [`Segments::slices`].
    pub fn coded(&mut self) -> impl Iterator<Item = (&CodedPart, &mut Option<Vec<u8>>)> {
        self.segments.iter_mut().filter_map(|segment| match segment {
            Segment::Coded(part, bytes @ None) => Some((&**part, bytes)),
            _ => None,
        })
    }

    /// The same if that is all there is; `None` when some of it is elsewhere, or there is nothing.
    pub fn all_coded(&self) -> Option<Vec<NamedPart>> {
        let parts = self.segments.iter().map(|segment| match segment {
            Segment::Coded(part, None) => {
                let CodedPart { stripe, at, bytes, .. } = **part;
                Some(NamedPart { stripe, at, bytes })
            }
            _ => None,
        });
        parts.collect::<Option<Vec<_>>>().filter(|parts| !parts.is_empty())
    }

    pub(crate) fn push_zeros(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.segments.push(Segment::Zero(bytes));
    }

    /// Adds a run; `Csum` when it touches a block that is known to be damaged.
    pub(crate) fn push_run(&mut self, core: &Rc<Core>, run: Run) -> Result<()> {
        self.push_part(core, run, None)
    }

    /// The same of somebody's data.
    pub(crate) fn push_owned(&mut self, core: &Rc<Core>, run: Run, owner: Owner) -> Result<()> {
        if !self.is_cached {
            return self.push_part(core, run, None);
        }
        // In parts that an entry of the cache may have.
        let (mut at, end) = (run.at, run.at + run.bytes);
        while at < end {
            let border = (at / ENTRY_BYTES_MAX + 1) * ENTRY_BYTES_MAX;
            let stop = end.min(border);
            self.push_part(core, Run { at, bytes: stop - at }, Some(owner))?;
            at = stop;
        }
        Ok(())
    }

    fn push_part(&mut self, core: &Rc<Core>, run: Run, owner: Option<Owner>) -> Result<()> {
        refuse_bad(&core.space.borrow(), run)?;
        self.hold.get_or_insert_with(|| (core.clone(), ReadGuard::new(&core.space)));
        self.bytes += run.bytes;
        let may_join = |last: &Run| {
            let border = owner.is_some() && run.at.is_multiple_of(ENTRY_BYTES_MAX);
            last.at + last.bytes == run.at && !border
        };
        match (&core.medium, self.segments.last_mut()) {
            (Medium::Arena(_), Some(Segment::Arena(last))) if may_join(last) => {
                last.bytes += run.bytes;
            }
            (Medium::File(_), Some(Segment::Disk(last)))
                if last.loaded.is_none() && last.owner == owner && may_join(&last.run) =>
            {
                last.run.bytes += run.bytes;
            }
            (Medium::Arena(_), _) => self.segments.push(Segment::Arena(run)),
            (Medium::File(_), _) => {
                self.segments.push(Segment::Disk(DiskPart { run, owner, loaded: None }));
            }
        }
        Ok(())
    }
}

fn refuse_bad(space: &Space, run: Run) -> Result<()> {
    if space.sums.is_bad(run.first_block(), run.end_block()) {
        return Err(Error::new(
            Code::Csum,
            "the data are damaged on this target; write or remove them anew",
        ));
    }
    Ok(())
}
