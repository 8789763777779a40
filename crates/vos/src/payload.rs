//! The bulk of an update between its reservation and its record in the log.
//!
//! Staging reserves everything an update can need before any of its bytes arrive, so that an
//! update that has been taken cannot run out of space half-way. Bytes then go to where they
//! stay: the arena, or aligned buffers that are written to the device as they are.
//!
//! A run begins with a block of its own and what is behind it in its last block is zeros: the sum of a
//! block covers all of it.
//!
//! Invariants: the pieces are in bulk order and their lengths add up to the bulk; a payload
//! that is dropped gives everything back; blocks whose write is in flight are not given back
//! before the write has ended, even if nobody waits for it any more.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Poll, Waker};

use env::AlignedBuf;
use futures_util::future::join_all;
use smallvec::SmallVec;
use types::{Code, CsumKind, Error, Result};

use crate::blocks::{BLOCK_BYTES, Run};
use crate::data_area::{Core, Medium};
use crate::needs::Needs;
use crate::segments::Segments;

/// A piece of the bulk.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Goes into the index and the log.
    Inline(Box<[u8]>),
    /// Goes to the data area; `buf` holds it until it is written, if that is on a device.
    Run { run: Run, buf: Option<AlignedBuf> },
}

impl Piece {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Piece::Inline(bytes) => bytes.len() as u64,
            Piece::Run { run, .. } => run.bytes,
        }
    }
}

/// Blocks that return to the allocator unless a record takes them over.
struct Reservation {
    core: Rc<Core>,
    runs: RefCell<SmallVec<[Run; 2]>>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut space = self.core.space.borrow_mut();
        for run in self.runs.get_mut().drain(..) {
            space.give_back(run);
        }
    }
}

/// The bulk of an update; see the module.
pub struct Payload {
    core: Rc<Core>,
    pieces: SmallVec<[Piece; 1]>,
    /// Number of pieces and bytes of each value of the bulk that has any.
    pub(crate) values: SmallVec<[(usize, u64); 1]>,
    pub(crate) sums: BlockSums,
    reservation: Option<Rc<Reservation>>,
    scm_reserved: Cell<u64>,
    /// What was written stays in memory, too, for [`Payload::kept`].
    keeps: bool,
    written: Vec<AlignedBuf>,
}

/// Sums of the blocks that pieces of a bulk fill, block after block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct BlockSums {
    pub kind: CsumKind,
    pub bytes: Vec<u8>,
}

impl BlockSums {
    pub(crate) const NONE: BlockSums = BlockSums { kind: CsumKind::Off, bytes: Vec::new() };

    /// Calls `each` with the first block of every run of `pieces` and the sums of its blocks.
    pub(crate) fn each_run<'a>(&'a self, pieces: &[Piece], mut each: impl FnMut(u64, &'a [u8])) {
        if self.kind == CsumKind::Off {
            return;
        }
        let mut rest = &self.bytes[..];
        for piece in pieces {
            if let Piece::Run { run, .. } = piece {
                let blocks = (run.end_block() - run.first_block()) as usize;
                let (mine, more) = rest.split_at(blocks * self.kind.width());
                rest = more;
                each(run.first_block(), mine);
            }
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("pieces", &self.pieces).finish_non_exhaustive()
    }
}

impl Payload {
    /// Reserves what updates need. `scm_used` is what the index counts now.
    pub(crate) fn reserve(core: &Rc<Core>, scm_used: u64, needs: &Needs) -> Result<Payload> {
        let mut payload = Payload {
            core: core.clone(),
            pieces: SmallVec::new(),
            values: SmallVec::new(),
            sums: BlockSums::NONE,
            reservation: None,
            scm_reserved: Cell::new(0),
            keeps: false,
            written: Vec::new(),
        };
        let scm = needs.scm_bytes(core.inline_bytes_max);
        if scm > 0 {
            let promised = scm_used.saturating_add(core.promised.bytes()).saturating_add(scm);
            let missing = promised.saturating_sub(core.scm_limit());
            if missing > 0 {
                core.borrow_room(missing)?;
            }
            core.promised.add(scm);
            payload.scm_reserved.set(scm);
        }
        for value in &needs.values {
            payload.reserve_value(value.bytes, value.record_bytes)?;
        }
        Ok(payload)
    }

    /// One piece of `bytes` in one run of the data area; `None` when no free run is that long.
    pub(crate) fn one_run(core: &Rc<Core>, bytes: u64) -> Result<Option<Payload>> {
        let Ok(run) = core.space.borrow_mut().reserve(bytes) else { return Ok(None) };
        let runs = RefCell::new(SmallVec::from_slice(&[run]));
        let reservation = Rc::new(Reservation { core: core.clone(), runs });
        if run.bytes < bytes {
            return Ok(None);
        }
        let buf = room_for(core, run)?;
        let mut pieces = SmallVec::new();
        pieces.push(Piece::Run { run, buf });
        Ok(Some(Payload {
            core: core.clone(),
            pieces,
            values: SmallVec::from_slice(&[(1, bytes)]),
            sums: BlockSums::NONE,
            reservation: Some(reservation),
            scm_reserved: Cell::new(0),
            keeps: false,
            written: Vec::new(),
        }))
    }

    /// Exactly these blocks, with nothing to write; `None` when one of them is in use.
    pub(crate) fn exact(core: &Rc<Core>, run: Run) -> Option<Payload> {
        if !core.space.borrow_mut().take_exact(run) {
            return None;
        }
        let runs = RefCell::new(SmallVec::from_slice(&[run]));
        let reservation = Some(Rc::new(Reservation { core: core.clone(), runs }));
        let (core, pieces) = (core.clone(), SmallVec::new());
        Some(Payload {
            core,
            pieces,
            reservation,
            values: SmallVec::new(),
            sums: BlockSums::NONE,
            scm_reserved: Cell::new(0),
            keeps: false,
            written: Vec::new(),
        })
    }

    /// Where the first piece is in the data area, if it is there.
    pub(crate) fn first_run(&self) -> Option<u64> {
        match self.pieces.first() {
            Some(Piece::Run { run, .. }) => Some(run.at),
            _ => None,
        }
    }

    fn reserve_value(&mut self, bytes: u64, record_bytes: Option<u32>) -> Result<()> {
        let before = self.pieces.len();
        self.reserve_pieces(bytes, record_bytes)?;
        if bytes > 0 {
            self.values.push((self.pieces.len() - before, bytes));
        }
        Ok(())
    }

    /// Reserves the pieces of a value; records may be cut only between each other.
    fn reserve_pieces(&mut self, bytes: u64, record_bytes: Option<u32>) -> Result<()> {
        if bytes < self.core.inline_bytes_max {
            if bytes > 0 {
                self.pieces.push(Piece::Inline(vec![0; bytes as usize].into_boxed_slice()));
            }
            return Ok(());
        }
        let core = self.core.clone();
        let full = || {
            Error::new(
                Code::NoSpace,
                "the pool's data tier is full on this target; remove something or extend it",
            )
        };
        let reservation = self.reservation.get_or_insert_with(|| {
            Rc::new(Reservation { core: core.clone(), runs: RefCell::default() })
        });
        let mut left = bytes;
        while left > 0 {
            let mut run = core.space.borrow_mut().reserve(left).map_err(|_| full())?;
            if let Some(record) = record_bytes
                && run.bytes < left
            {
                let whole = Run { at: run.at, bytes: run.bytes - run.bytes % record as u64 };
                let (kept, all) = (whole.end_block(), run.end_block());
                if whole.bytes == 0 {
                    core.space.borrow_mut().give_back(run);
                    return Err(full());
                }
                if kept < all {
                    let rest = Run { at: kept * BLOCK_BYTES, bytes: (all - kept) * BLOCK_BYTES };
                    core.space.borrow_mut().give_back(rest);
                }
                run = whole;
            }
            reservation.runs.borrow_mut().push(run);
            let buf = room_for(&core, run)?;
            self.pieces.push(Piece::Run { run, buf });
            left -= run.bytes;
        }
        Ok(())
    }

    /// Where the bulk goes, in bulk order. In memory durability these are its final places.
    pub fn buffers(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let core = &self.core;
        self.pieces.iter_mut().map(|piece| match piece {
            Piece::Inline(bytes) => &mut bytes[..],
            Piece::Run { buf: Some(buf), run } => &mut buf[..run.bytes as usize],
            Piece::Run { run, buf: None } => match &core.medium {
                Medium::Arena(arena) => {
                    let start = arena.address(*run).as_ptr();
                    // SAFETY: this payload alone holds the run (see `arena`), runs of a payload
                    // do not overlap, and the slice borrows the payload mutably.
                    unsafe { std::slice::from_raw_parts_mut(start, run.bytes as usize) }
                }
                // Written already.
                Medium::File(_) => &mut [],
            },
        })
    }

    /// Bytes of bulk it was made for.
    pub fn bulk_bytes(&self) -> u64 {
        self.pieces.iter().map(Piece::bytes).sum()
    }

    /// Writes to the device what belongs there; before [`crate::PoolShard::apply`] or
    /// [`crate::PoolShard::prepare`]. It is on stable storage when their record is. `Io` when the device fails; the payload is then to be dropped.
    pub async fn write(&mut self) -> Result<()> {
        let Medium::File(file) = &self.core.medium else { return Ok(()) };
        let Some(reservation) = &self.reservation else { return Ok(()) };
        let mut fulls = Vec::new();
        for piece in &mut self.pieces {
            if let Piece::Run { run, buf } = piece
                && let Some(mut full) = buf.take()
            {
                // Whole blocks: direct I/O takes nothing less; the rest of the last is zeros.
                full.set_len(full.capacity());
                fulls.push((run.at, full));
            }
        }
        if fulls.is_empty() {
            return Ok(());
        }
        // The task holds the reservation until the device is done, whoever waits.
        let done = Rc::new(RefCell::new((None::<Result<Vec<AlignedBuf>>>, None::<Waker>)));
        let (told, hold) = (done.clone(), reservation.clone());
        let (unsynced, keeps) = (self.core.unsynced.clone(), self.keeps);
        let (file, core) = (file.clone(), self.core.clone());
        self.core.env.spawn(async move {
            let turn =
                core.writes.turn(fulls.iter().map(|(_, full)| full.len() as u64).sum()).await;
            let writes = fulls.into_iter().map(|(at, full)| file.write_at(at, full));
            let mut outcome = Ok(Vec::new());
            for (buf, result) in join_all(writes).await {
                match (result, &mut outcome) {
                    (Err(error), _) => outcome = Err(error.context("writing data")),
                    (Ok(_), Ok(bufs)) if keeps => bufs.push(buf),
                    _ => {}
                }
            }
            drop((hold, turn));
            core.last_writes.note(&outcome);
            unsynced.note();
            let waker = {
                let mut state = told.borrow_mut();
                state.0 = Some(outcome);
                state.1.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        self.written = std::future::poll_fn(move |cx| {
            let mut state = done.borrow_mut();
            match state.0.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    state.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await?;
        Ok(())
    }

    /// Has what is written stay in memory until [`Payload::kept`]; before [`Payload::write`].
    pub fn keep(&mut self) {
        self.keeps = true;
    }

    /// The bulk, to be sent on without a copy: after [`Payload::write`] of what was to be kept, and to be used only when the
    /// payload has been applied. Its places are not used again before it is dropped.
    pub fn kept(&mut self) -> Segments {
        let mut written = std::mem::take(&mut self.written).into_iter();
        let mut kept = Segments::of_payload(&self.core);
        for piece in &self.pieces {
            match piece {
                Piece::Inline(bytes) => kept.push_bytes(bytes),
                Piece::Run { run, .. } => kept.push_written(*run, written.next()),
            }
        }
        kept
    }

    /// The pieces, while the payload still owns them.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// True when a piece that belongs on the device has not been written.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Run { buf: Some(_), .. }))
    }

    /// A record owns the blocks from now on, and the index counts its own.
    pub(crate) fn hand_over(&self) {
        if let Some(reservation) = &self.reservation {
            let mut space = self.core.space.borrow_mut();
            for run in reservation.runs.borrow_mut().drain(..) {
                space.keep(run);
            }
        }
        self.core.promised.end(self.scm_reserved.take());
    }

    /// The same; what is left are the pieces and sums.
    pub(crate) fn commit(mut self) -> (SmallVec<[Piece; 1]>, BlockSums) {
        self.hand_over();
        let sums = std::mem::replace(&mut self.sums, BlockSums::NONE);
        (std::mem::take(&mut self.pieces), sums)
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.core.promised.end(self.scm_reserved.get());
    }
}

/// What is behind a reserved run in its last block becomes zeros, here or in the buffer returned.
fn room_for(core: &Core, run: Run) -> Result<Option<AlignedBuf>> {
    match &core.medium {
        Medium::Arena(arena) => {
            arena.reserved(&core.env, run);
            let whole = run.end_block() * BLOCK_BYTES - run.at;
            let rest = (whole - run.bytes) as usize;
            let start = arena.address(Run { at: run.at, bytes: whole }).as_ptr();
            // SAFETY: the caller alone holds the run's blocks (see `arena`); what is behind the
            // run in its last block is inside the arena, as checked above.
            unsafe { start.add(run.bytes as usize).write_bytes(0, rest) };
            Ok(None)
        }
        Medium::File(_) => {
            let mut buf = AlignedBuf::try_scratch(run.bytes as usize)?;
            buf.set_len(buf.capacity());
            buf[run.bytes as usize..].fill(0);
            buf.set_len(run.bytes as usize);
            Ok(Some(buf))
        }
    }
}
