//! Fetched array data on its way out, without copying it.
//!
//! Data in the data area stays where it is; a guard keeps it from being reused until the
//! segments are dropped, however long sending takes and whatever is written meanwhile. Small
//! pieces that live in the index are copied, for the index may change.

use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

use env::AlignedBuf;
use futures_util::future::join_all;
use types::{Code, Error, Result};

use crate::payload::{Core, Medium};
use crate::space::{BLOCK_BYTES, ReadGuard, Run};

/// Zeros to send where nothing was written.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

enum Segment {
    /// Part of the copied bytes.
    Copied(Range<usize>),
    /// Part of the arena.
    Arena(NonNull<u8>, usize),
    /// Part of the device, once loaded with this many bytes to skip.
    Disk(Run, Option<(AlignedBuf, usize)>),
    /// This many zeros.
    Zero(u64),
}

/// Pieces of fetched data, in bulk order.
#[derive(Default)]
pub struct Segments {
    copied: Vec<u8>,
    segments: Vec<Segment>,
    bytes: u64,
    hold: Option<(Rc<Core>, ReadGuard)>,
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segments({} bytes in {} pieces)", self.bytes, self.segments.len())
    }
}

impl Segments {
    /// None yet.
    pub fn new() -> Segments {
        Segments::default()
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True when [`Segments::load`] must run before [`Segments::slices`].
    pub fn needs_load(&self) -> bool {
        self.segments.iter().any(|segment| matches!(segment, Segment::Disk(_, None)))
    }

    /// The bytes, in order. Panics when something is still on the device: call
    /// [`Segments::load`] first.
    pub fn slices(&self) -> Vec<&[u8]> {
        let mut out = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            match segment {
                Segment::Copied(range) => out.push(&self.copied[range.clone()]),
                Segment::Arena(start, bytes) => {
                    // SAFETY: the run is inside the arena that `hold` keeps mapped, and `hold`
                    // keeps it from being handed out and written (see `arena`).
                    out.push(unsafe { std::slice::from_raw_parts(start.as_ptr(), *bytes) });
                }
                Segment::Disk(run, Some((buf, skip))) => {
                    out.push(&buf[*skip..*skip + run.bytes as usize]);
                }
                Segment::Disk(_, None) => panic!("segments on the device must be loaded first"),
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

    /// Reads from the device what is there. `Io` when it fails or ends too early.
    pub async fn load(&mut self) -> Result<()> {
        let Some((core, _)) = &self.hold else { return Ok(()) };
        let Medium::File(file) = &core.medium else { return Ok(()) };
        let mut reads = Vec::new();
        for (at, segment) in self.segments.iter().enumerate() {
            if let Segment::Disk(run, None) = segment {
                let start = run.first_block() * BLOCK_BYTES;
                let bytes = run.end_block() * BLOCK_BYTES - start;
                let buf = AlignedBuf::try_zeroed(bytes as usize)?;
                let read = file.read_at(start, buf);
                reads.push(async move { (at, (run.at - start) as usize, bytes, read.await) });
            }
        }
        for (at, skip, bytes, (buf, result)) in join_all(reads).await {
            let count = result.map_err(|error| error.context("reading data"))?;
            if (count as u64) < bytes {
                return Err(Error::new(Code::Io, "the data file is shorter than its index says"));
            }
            if let Segment::Disk(_, loaded) = &mut self.segments[at] {
                *loaded = Some((buf, skip));
            }
        }
        Ok(())
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.copied.len();
        self.copied.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        self.segments.push(Segment::Copied(start..self.copied.len()));
    }

    pub(crate) fn push_zeros(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.segments.push(Segment::Zero(bytes));
    }

    pub(crate) fn push_run(&mut self, core: &Rc<Core>, run: Run) {
        self.hold.get_or_insert_with(|| (core.clone(), ReadGuard::new(&core.space)));
        self.bytes += run.bytes;
        match &core.medium {
            Medium::Arena(arena) => {
                self.segments.push(Segment::Arena(arena.address(run), run.bytes as usize));
            }
            Medium::File(_) => match self.segments.last_mut() {
                Some(Segment::Disk(last, None)) if last.at + last.bytes == run.at => {
                    last.bytes += run.bytes;
                }
                _ => self.segments.push(Segment::Disk(run, None)),
            },
        }
    }
}
