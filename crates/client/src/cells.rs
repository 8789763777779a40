//! Cells of arrays with erasure codes, put and read by the client itself ([`wire::cell`]).
//!
//! Stripes that are written whole are coded here: all members of the group, and those who come to be some, keep their cells, and then the leader names them.
//! What is read, and all in cells, comes from those who have them. Whatever goes wrong with this, there is another way: the
//! leader takes and gives all data, and puts together what is missing.

use crate::array::{ArrayObj, DATA, Load};
use crate::batch::Batch;
use env::AlignedBuf;
use erasure::Code as Coding;
use futures_util::future::try_join_all;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use types::sums::SUM_CHUNK_BYTES;
use types::{Code, CsumKind, Epoch, Error, Result, TargetId, Unit};
use wire::cell::{NamedPart, Stripe, cell_akey, cell_unit, coined};
use wire::obj::{Cond, FetchIod, FetchWant, Fetched, Op, OpReply, Recx, UpdateIod, UpdateValue};

/// Who keeps or has a cell is waited for so long, for there is another way.
const CELL_TIME_MAX: Duration = Duration::from_secs(3);
/// All cells of a stripe are kept within this time, or they are not named: those that nothing names are dropped a
/// minute later.
const KEEPING_TIME_MAX: Duration = Duration::from_secs(15);
/// After something went wrong the other way is taken for this long at least, and twice as long as it took to find out.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Cells of what was removed just before are dropped a moment later: who finds no room for data to be coded waits for that so long at most, looking again
/// after twice as long each time, ...
const ROOM_TIME_MAX: Duration = Duration::from_secs(2);
const ROOM_PAUSE_MIN: Duration = Duration::from_millis(30);
/// ... trying so often, for what members keep of a try in vain is in the way of the next one for a minute, ...
const ROOM_TRIES_MAX: u32 = 2;
/// ... and not at all for so long after he has waited in vain.
const NO_ROOM_TIME: Duration = Duration::from_secs(10);
/// What a member is to have free beside the data, bytes.
const BESIDE_BYTES: u64 = 1 << 20;

/// What a container's users know of reaching cells.
#[derive(Default)]
pub(crate) struct CellsKnown {
    /// The other way is taken until then.
    paused_until: Cell<Duration>,
    /// Room is not waited for until then.
    no_room_until: Cell<Duration>,
    traffic: Cell<CellTraffic>,
}

/// How often this client reached cells of a container itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CellTraffic {
    /// Requests to write whose stripes were named.
    pub written: u64,
    /// Requests to read that were served from cells.
    pub read: u64,
    /// Requests that went the other way after all.
    pub given_up: u64,
}

impl CellsKnown {
    /// How often cells were reached.
    pub(crate) fn traffic(&self) -> CellTraffic {
        self.traffic.get()
    }

    /// Counts something.
    pub(crate) fn count(&self, change: impl FnOnce(&mut CellTraffic)) {
        let mut traffic = self.traffic.get();
        change(&mut traffic);
        self.traffic.set(traffic);
    }
}

/// Whole stripes within the pieces of a load.
pub(crate) struct Whole {
    data: usize,
    parity: usize,
    cell_bytes: usize,
    /// Records of a stripe.
    count: u64,
    /// For each piece, its first record that is in one, and how many are.
    of_pieces: SmallVec<[(u64, u64); 2]>,
    /// The map by which those who keep them are found.
    map_version: u32,
    version: Epoch,
}

impl Whole {
    fn stripe(&self, first: u64) -> Stripe {
        Stripe { first, version: self.version, cell_bytes: self.cell_bytes as u32 }
    }

    /// First records of the stripes in a piece.
    fn firsts(&self, piece: usize) -> impl Iterator<Item = u64> + use<> {
        let (first, count) = self.of_pieces[piece];
        (first..first + count).step_by(self.count as usize)
    }

    /// What names the stripes of a piece.
    pub(crate) fn value(&self, piece: usize, record_bytes: u32) -> Option<UpdateValue<'static>> {
        let stripes: Vec<Stripe> = self.firsts(piece).map(|first| self.stripe(first)).collect();
        let (count, map_version) = (self.count, self.map_version);
        let is_any = !stripes.is_empty();
        is_any.then_some(UpdateValue::Coded { record_bytes, count, map_version, stripes })
    }

    /// What of a piece is in no stripe: before them, and behind.
    pub(crate) fn rest(&self, piece: usize, of: Recx) -> [Recx; 2] {
        let (first, count) = self.of_pieces[piece];
        if count == 0 {
            return [of, Recx { index: of.index + of.count, count: 0 }];
        }
        let end = first + count;
        let before = Recx { index: of.index, count: first - of.index };
        [before, Recx { index: end, count: of.index + of.count - end }]
    }
}

impl ArrayObj {
    /// Writes what was refused for want of room, with `first`, if there is some in a moment.
    pub(crate) async fn write_when_there_is_room(
        &self,
        first: Error,
        ranges: &[Recx],
        memory: &[&[u8]],
    ) -> Result<()> {
        let env = self.cont.client().env();
        let no_room_until = &self.cont.cells_known().no_room_until;
        if env.now() < no_room_until.get() {
            return Err(first);
        }
        let (end, mut pause, mut tries) = (env.now() + ROOM_TIME_MAX, ROOM_PAUSE_MIN, 0);
        let mut refused = first;
        while env.now() < end && tries < ROOM_TRIES_MAX {
            // timer: nobody tells when there is room.
            env.sleep(pause).await;
            pause *= 2;
            // One that does not say has none.
            let left = end.saturating_sub(env.now());
            let has_room = env.timeout(left, self.has_room(ranges, memory)).await;
            if !matches!(has_room, Some(Ok(true))) {
                continue;
            }
            tries += 1;
            match self.write_in(None, ranges, memory).await {
                Err(error) if error.code == Code::NoSpace => refused = error,
                outcome => return outcome,
            }
        }
        no_room_until.set(env.now() + NO_ROOM_TIME);
        Err(refused)
    }

    /// All members that get something of a write have room for their cells, and are not nearly full.
    async fn has_room(&self, ranges: &[Recx], memory: &[&[u8]]) -> Result<bool> {
        let data = self.oid.cells().map_or(1, |(data, _)| u64::from(data));
        let mut wanted: BTreeMap<TargetId, u64> = BTreeMap::new();
        for (load, _) in &self.loads(ranges, memory.iter().copied(), usize::MAX)? {
            let of_cell = (load.bytes as u64 / data).next_multiple_of(self.oid.cell_bytes().into());
            for member in self.cont.keepers(load.unit)?.iter() {
                *wanted.entry(*member).or_insert(BESIDE_BYTES) += of_cell;
            }
        }
        let pool = self.cont.pool();
        let asked = wanted.into_iter().map(async |(member, bytes)| {
            let stat = pool.query_one(member).await?;
            Ok::<bool, Error>(!stat.is_short() && stat.nvme_free_bytes >= bytes)
        });
        Ok(try_join_all(asked).await?.into_iter().all(|has_room| has_room))
    }

    /// Data and parity cells of its stripes, if it has any and they can be reached as far as is known.
    fn cells_to_reach(&self) -> Option<(usize, usize)> {
        let (data, parity) = self.oid.cells()?;
        let is_paused = self.cont.client().env().now() < self.cont.cells_known().paused_until.get();
        let is_possible = !is_paused
            && self.cont.client().options().codes_stripes
            && self.cont.at() == Epoch::ZERO
            && self.oid.cell_bytes().is_multiple_of(self.record_bytes);
        is_possible.then_some((data as usize, parity as usize))
    }

    /// Something went wrong after `began`.
    fn pause_cells(&self, began: Duration, error: &Error) {
        let now = self.cont.client().env().now();
        let pause = PAUSE_MIN.max(2 * now.saturating_sub(began));
        tracing::debug!("object {}: cells out of reach: {error}", self.oid);
        self.cont.cells_known().paused_until.set(now + pause);
    }

    /// The whole stripes of a load, if all members of its group are there to keep cells; `None` also when there are none.
    pub(crate) fn whole_stripes(&self, load: &Load) -> Option<Whole> {
        let (data, parity) = self.cells_to_reach()?;
        let cell_bytes = self.oid.cell_bytes() as usize;
        let count = (data * cell_bytes) as u64 / self.record_bytes as u64;
        let of_pieces = load.pieces.iter().map(|piece| {
            let end = piece.recx.index + piece.recx.count;
            let first = piece.recx.index.next_multiple_of(count);
            // A first part stays copies.
            let begin = (piece.dkey - 1).saturating_mul(self.chunk_records) + piece.recx.index;
            let is_coded = begin >= self.first_records();
            (first, if is_coded { (end - end % count).saturating_sub(first) } else { 0 })
        });
        let of_pieces: SmallVec<[(u64, u64); 2]> = of_pieces.collect();
        if of_pieces.iter().all(|(_, count)| *count == 0) {
            return None;
        }
        let map = self.cont.pool().map();
        let keepers = self.cont.keepers(load.unit).ok()?;
        if !keepers.iter().all(|keeper: &TargetId| placement::is_live(*keeper, &map)) {
            return None;
        }
        let version = coined(self.cont.client().env().random_u64());
        let map_version = map.version;
        Some(Whole { data, parity, cell_bytes, count, of_pieces, map_version, version })
    }

    /// Has the members keep the cells of whole stripes. False: the data are to go another way.
    pub(crate) async fn keep_cells(&self, load: &Load, whole: &Whole, memory: &[&[u8]]) -> bool {
        let began = self.cont.client().env().now();
        let outcome = self.try_keep_cells(load, whole, memory).await;
        let took = self.cont.client().env().now().saturating_sub(began);
        match outcome {
            Ok(()) => took < KEEPING_TIME_MAX,
            Err(error) => {
                self.cont.cells_known().count(|traffic| traffic.given_up += 1);
                // Copies need more room than cells.
                if error.code != Code::NoSpace {
                    self.pause_cells(began, &error);
                }
                false
            }
        }
    }

    async fn try_keep_cells(&self, load: &Load, whole: &Whole, memory: &[&[u8]]) -> Result<()> {
        let no_code = |error| Error::inval(format!("object {}: {error}", self.oid));
        let coding = Coding::new(whole.data as u8, whole.parity as u8).map_err(no_code)?;
        let cell_bytes = whole.cell_bytes;
        let mut stripes: Vec<Coded<'_>> = Vec::new();
        let mut before = 0;
        for (at, piece) in load.pieces.iter().enumerate() {
            for first in whole.firsts(at) {
                let within = (first - piece.recx.index) as usize * self.record_bytes as usize;
                let from = before + within;
                let cells = (0..whole.data).map(|cell| from + cell * cell_bytes);
                stripes.push(Coded {
                    dkey: piece.dkey.to_le_bytes(),
                    akey: cell_akey(DATA, &whole.stripe(first)),
                    data: cells.map(|at| part_of(memory, at, cell_bytes)).collect(),
                    parity: Vec::with_capacity(whole.parity),
                });
            }
            before += piece.bytes;
        }
        let mut sums = CellSums::new(self.cont.info().props.csum, whole.data + whole.parity);
        let mut room = AlignedBuf::try_scratch(stripes.len() * whole.parity * cell_bytes)?;
        let rooms = room.chunks_exact_mut(whole.parity * cell_bytes);
        for (stripe, room) in stripes.iter_mut().zip(rooms) {
            let data: SmallVec<[&[u8]; 16]> = stripe.data.iter().map(|cell| &cell[..]).collect();
            let mut parity: SmallVec<[&mut [u8]; 3]> = room.chunks_exact_mut(cell_bytes).collect();
            coding.encode(&data, &mut parity);
            stripe.parity.extend(parity.into_iter().map(|cell| &*cell));
            // Here, for the processor has them at hand.
            sums.add(&data, &stripe.parity);
        }
        let joiners = self.cont.joining_keepers(load.unit)?;
        let joiners = joiners.into_iter().map(|(cell, joiner)| (cell, Some(joiner)));
        let members = (0..whole.data + whole.parity).map(|cell| (cell, None));
        let kept = members.chain(joiners).map(|(cell, on)| {
            let mut batch = self.cont.batch();
            batch.sums_out(&sums.of_cells[cell]);
            let unit = cell_unit(load.unit, cell);
            for of_dkey in stripes.chunk_by(|a, b| a.dkey == b.dkey) {
                let iods = of_dkey.iter().map(|stripe| {
                    let recxs = vec![Recx { index: 0, count: cell_bytes as u64 }];
                    let value = UpdateValue::Array { record_bytes: 1, recxs };
                    UpdateIod { akey: &stripe.akey, cond: Cond::NONE, value }
                });
                let iods = iods.collect();
                let dkey = &of_dkey[0].dkey[..];
                batch.op_of_unit(Op::Update { unit, dkey, cond: Cond::NONE, iods });
                for stripe in of_dkey {
                    batch.bulk_out(match cell.checked_sub(whole.data) {
                        None => &stripe.data[cell],
                        Some(parity) => stripe.parity[parity],
                    });
                }
            }
            batch.run_once(on, CELL_TIME_MAX)
        });
        try_join_all(kept).await.map(|_| ())
    }

    /// True when it is worth being told which cells the data of a load are in.
    pub(crate) fn may_read_cells(&self, load: &Load) -> bool {
        load.bytes >= self.oid.cell_bytes() as usize && self.cells_to_reach().is_some()
    }

    /// Reads a load from the cells that were named for it into all of `memory`. False: the data are to come another way.
    pub(crate) async fn read_cells(
        &self,
        load: &Load,
        named: &[NamedPart],
        memory: &mut [&mut [u8]],
    ) -> bool {
        let began = self.cont.client().env().now();
        match self.try_read_cells(load, named, memory).await {
            Ok(()) => {
                self.cont.cells_known().count(|traffic| traffic.read += 1);
                true
            }
            Err(error) => {
                self.cont.cells_known().count(|traffic| traffic.given_up += 1);
                // What was overwritten meanwhile is nobody's fault.
                if error.code != Code::NonExist {
                    self.pause_cells(began, &error);
                }
                false
            }
        }
    }

    async fn try_read_cells(
        &self,
        load: &Load,
        named: &[NamedPart],
        memory: &mut [&mut [u8]],
    ) -> Result<()> {
        let foreign = || Error::new(Code::Proto, "an answer names cells of other data");
        let (data, _) = self.oid.cells().ok_or_else(foreign)?;
        let mut of_cells: BTreeMap<usize, Vec<Wanted<'_>>> = BTreeMap::new();
        let mut rooms = memory.iter_mut().map(|room| &mut **room);
        let mut room: &mut [u8] = &mut [];
        let mut parts = named.iter().copied().peekable();
        for piece in &load.pieces {
            let mut left = piece.bytes as u64;
            while left > 0 {
                let NamedPart { stripe, at, bytes } = parts.next().ok_or_else(foreign)?;
                let cell_bytes = stripe.cell_bytes as u64;
                let end = at.checked_add(bytes).ok_or_else(foreign)?;
                if bytes == 0 || bytes > left || end > data as u64 * cell_bytes {
                    return Err(foreign());
                }
                left -= bytes;
                let mut from = at;
                while from < end {
                    let cell = (from / cell_bytes) as usize;
                    let to = end.min((cell as u64 + 1) * cell_bytes);
                    let mut wanted = Wanted {
                        dkey: piece.dkey.to_le_bytes(),
                        akey: cell_akey(DATA, &stripe),
                        recx: Recx { index: from % cell_bytes, count: to - from },
                        rooms: SmallVec::new(),
                    };
                    let mut missing = (to - from) as usize;
                    while missing > 0 {
                        if room.is_empty() {
                            room = rooms.next().ok_or_else(foreign)?;
                            continue;
                        }
                        let here = missing.min(room.len());
                        let (taken, rest) = room.split_at_mut(here);
                        wanted.rooms.push(taken);
                        (room, missing) = (rest, missing - here);
                    }
                    of_cells.entry(cell).or_default().push(wanted);
                    from = to;
                }
            }
        }
        if parts.next().is_some() {
            return Err(foreign());
        }
        let read = of_cells
            .into_iter()
            .map(|(cell, wanted)| self.read_cell(cell_unit(load.unit, cell), wanted));
        try_join_all(read).await.map(|_| ())
    }

    /// Reads what is wanted of the cells of one unit.
    async fn read_cell(&self, unit: Unit, mut wanted: Vec<Wanted<'_>>) -> Result<()> {
        let names: Vec<([u8; 8], Vec<u8>, Recx)> = wanted
            .iter_mut()
            .map(|one| (one.dkey, std::mem::take(&mut one.akey), one.recx))
            .collect();
        let mut batch: Batch<'_> = self.cont.batch();
        for (dkey, akey, recx) in &names {
            let want = FetchWant::Array { record_bytes: 1, recxs: vec![*recx] };
            let iods = vec![FetchIod { akey, want }];
            batch.op_of_unit(Op::Fetch { unit, dkey, cond: Cond::NONE, iods });
        }
        wanted.into_iter().flat_map(|one| one.rooms).for_each(|room| batch.bulk_in(room));
        let result = batch.run_once(None, CELL_TIME_MAX).await?;
        let replies = result.replies()?;
        let are_there = replies.iter().zip(&names).all(|(reply, (_, _, recx))| match reply {
            OpReply::Fetched(iods) => matches!(iods.first().map(|iod| &iod.value),
                Some(Fetched::Array { end, .. }) if *end >= recx.index + recx.count),
            _ => false,
        });
        are_there.then_some(()).ok_or_else(|| Error::bare(Code::NonExist))
    }
}

/// A stripe, coded.
struct Coded<'a> {
    dkey: [u8; 8],
    /// Of its cells.
    akey: Vec<u8>,
    data: Vec<Cow<'a, [u8]>>,
    parity: Vec<&'a [u8]>,
}

/// What the members of a group compare their cells with, made while these are coded.
struct CellSums {
    kind: CsumKind,
    /// By number, those of all stripes one after the other.
    of_cells: Vec<Vec<u8>>,
}

impl CellSums {
    fn new(kind: CsumKind, cells: usize) -> CellSums {
        CellSums { kind, of_cells: vec![Vec::new(); cells] }
    }

    /// Adds those of a stripe. Cells are of whole chunks.
    fn add(&mut self, data: &[&[u8]], parity: &[&[u8]]) {
        let before = self.of_cells[0].len();
        for (cell, bytes) in data.iter().chain(parity).enumerate() {
            // Parity cell 0 is the XOR of the data ([`erasure`]).
            let xored = (cell == data.len()).then(|| {
                let lists: SmallVec<[&[u8]; 16]> =
                    self.of_cells[..data.len()].iter().map(|sums| &sums[before..]).collect();
                codec::xor_sums(self.kind, &lists)
            });
            match xored.flatten() {
                Some(sums) => self.of_cells[cell].extend(sums),
                None => bytes
                    .chunks(SUM_CHUNK_BYTES)
                    .for_each(|chunk| codec::push_sum(self.kind, chunk, &mut self.of_cells[cell])),
            }
        }
    }
}

/// Bytes of a cell, and where they go.
struct Wanted<'a> {
    dkey: [u8; 8],
    akey: Vec<u8>,
    recx: Recx,
    rooms: SmallVec<[&'a mut [u8]; 1]>,
}

/// Bytes of memory that is cut anywhere: as they lie there if they are together, else copied.
fn part_of<'a>(memory: &[&'a [u8]], from: usize, bytes: usize) -> Cow<'a, [u8]> {
    let mut parts = parts_of(memory, from, bytes);
    match &parts[..] {
        [_] => Cow::Borrowed(parts.swap_remove(0)),
        parts => Cow::Owned(parts.concat()),
    }
}

/// The pieces of memory that have these bytes.
pub(crate) fn parts_of<'a>(memory: &[&'a [u8]], from: usize, bytes: usize) -> Vec<&'a [u8]> {
    let (mut skip, mut left) = (from, bytes);
    let mut parts = Vec::new();
    for piece in memory {
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        if left == 0 {
            break;
        }
        let end = piece.len().min(skip + left);
        parts.push(&piece[skip..end]);
        left -= end - skip;
        skip = 0;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who keeps a cell compares it with sums that were made in another order, and some without looking at it.
    #[test]
    fn sums_of_cells_are_those_of_their_bytes() {
        let cell = |seed: usize| -> Vec<u8> {
            (0..2 * SUM_CHUNK_BYTES).map(|at| (at * (seed + 3) / 5 + seed) as u8).collect()
        };
        for (kind, (data, parity)) in
            CsumKind::ALL.into_iter().flat_map(|kind| [(kind, (2, 1)), (kind, (3, 2))])
        {
            let coding = Coding::new(data as u8, parity as u8).unwrap();
            let mut sums = CellSums::new(kind, data + parity);
            let mut wanted = vec![Vec::new(); data + parity];
            for stripe in 0..3 {
                let cells: Vec<Vec<u8>> = (0..data).map(|at| cell(stripe * 7 + at)).collect();
                let cells: Vec<&[u8]> = cells.iter().map(Vec::as_slice).collect();
                let mut made = vec![vec![0; cells[0].len()]; parity];
                let mut rooms: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
                coding.encode(&cells, &mut rooms);
                let made: Vec<&[u8]> = made.iter().map(Vec::as_slice).collect();
                sums.add(&cells, &made);
                for (bytes, wanted) in cells.iter().chain(&made).zip(&mut wanted) {
                    let length = std::iter::once(bytes.len() as u64);
                    wanted.extend(codec::value_sums(kind, length, &[bytes]).unwrap());
                }
            }
            assert_eq!(sums.of_cells, wanted, "{kind}");
        }
    }

    #[test]
    fn memory_is_cut_wherever_a_cell_lies() {
        let all: Vec<u8> = (0..100).collect();
        let memory = [&all[..10], &all[10..10], &all[10..11], &all[11..60], &all[60..]];
        for from in 0..100 {
            for bytes in 0..100 - from {
                assert_eq!(parts_of(&memory, from, bytes).concat(), &all[from..from + bytes]);
                assert_eq!(&part_of(&memory, from, bytes)[..], &all[from..from + bytes]);
            }
        }
        assert!(matches!(part_of(&memory, 61, 9), Cow::Borrowed(_)));
        assert!(matches!(part_of(&memory, 5, 9), Cow::Owned(_)));
    }
}
