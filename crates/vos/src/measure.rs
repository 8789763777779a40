//! Measuring the data devices of a target: with a file of its own beside the pools' data, so that no data is touched.
//!
//! What is measured is what a target does with a device: transfers of 1 MiB, some at a time, past the page cache where the
//! file system allows it, and writes until they are on stable storage. The bytes are random, for devices that compress. Each
//! step has its time, so that a slow device takes no longer than a fast one, only fewer bytes. Between transfers whoever measures may let others go on;
//! that is part of the step's time, and of no speed.
//!
//! The result is a sealed fact on the device of index and log: it belongs to the devices and moves with them. One that is damaged
//! or of another version is forgotten: it can be measured again.

use crate::sealed::{self, read_sealed, write_sealed};
use crate::store::Store;
use crate::volume::tier::Place;
use env::{AlignedBuf, Disk, Env, File, OpenOptions};
use futures_util::future::{LocalBoxFuture, join_all};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Error, Result, hash, size};
use wire::measure::{MeasureAsk, Measures, Speed, Standing};

const FACT: &str = "measures";
const FACT_MAGIC: [u8; 8] = *b"AZKSPEED";
/// 1: the first. 2: what devices did before they became slow.
const FACT_VERSION: u16 = 2;
const SCRATCH: &str = "measure.tmp";
/// Names that measuring may leave on a device.
pub(crate) const NAMES: [&str; 3] = [FACT, "measures.new", SCRATCH];

/// Unit of transfers one after the other, bytes: that of raw devices, too.
const PIECE_BYTES: u64 = 1 << 20;
/// Such transfers at a time.
const PIECES_AT_ONCE: u64 = 4;
/// Unit of transfers at random places, bytes, and how many at a time.
const RANDOM_BYTES: u64 = 4096;
const RANDOM_AT_ONCE: u64 = 8;
/// Slices whose speeds tell the spread, about.
const SLICES: u64 = 16;
/// Measuring leaves this many times what it takes free: a full device is not the place for it.
const SPARE_TIMES: u64 = 16;
/// Fewer say nothing, bytes.
const BYTES_MIN: u64 = PIECE_BYTES * PIECES_AT_ONCE;
/// Part of a step's time for each of the steps at random places.
const RANDOM_PART: u32 = 4;
/// Copied in memory, bytes: more than caches of processors hold for one core.
const MEMORY_BYTES: usize = 16 << 20;

/// Lets others go on, after transfers that took so long.
pub(crate) type Rest<'a> = dyn Fn(Duration) -> LocalBoxFuture<'a, ()> + 'a;

/// Decodes what was measured before.
pub(crate) fn decode(raw: &[u8]) -> Result<Measures> {
    sealed::unseal(FACT_MAGIC, FACT_VERSION, raw)
}

impl Store {
    /// What is known of the data devices. Where several targets have the room of one directory each counts its part of it.
    pub async fn standing(&self) -> Result<Standing> {
        let mut free_bytes = 0;
        for place in self.data_places() {
            free_bytes += place.own_room().await?.free_bytes;
        }
        Ok(Standing { free_bytes, measures: self.measures().await, ..Standing::default() })
    }

    /// What was measured last; `None` when nothing was, or it cannot be read.
    pub async fn measures(&self) -> Option<Measures> {
        let place = self.index_place();
        let raw = read_sealed(&place.disk, &place.root.join(FACT)).await.ok()?;
        let decoded = decode(&raw);
        if let Err(error) = &decoded {
            tracing::warn!("{}: what was measured is forgotten: {error}", place.name);
        }
        decoded.ok()
    }

    /// Measures the data devices, one after the other. One call at a time.
    ///
    /// `NoSpace` when too little is free.
    pub async fn measure(&self, env: &Env, ask: MeasureAsk, rest: &Rest<'_>) -> Result<Measures> {
        let places: Vec<&Place> = self.data_places().collect();
        let count = places.len().max(1) as u32;
        let step = Duration::from_millis(ask.step_ms_max.max(1).into()) / count;
        let mut all = Measures { is_direct: true, ..Measures::default() };
        for place in places {
            let bytes = bytes_for(place, ask.bytes).await?;
            let path = &place.root.join(SCRATCH);
            let scratch = Scratch { env, disk: &place.disk, path, rest };
            let one = scratch.measure(bytes, step).await;
            let removed = scratch.remove().await;
            let one = one.map_err(|error| error.context(format!("measuring {}", place.name)))?;
            removed?;
            all.bytes += one.bytes;
            all.is_direct &= one.is_direct;
            add(&mut all.read, one.read);
            add(&mut all.write, one.write);
            all.random_reads_s += one.random_reads_s;
            all.random_writes_s += one.random_writes_s;
        }
        all.memory = memory(env).await?;
        all.at_ns = env.wall_ns();
        Ok(all)
    }

    /// Keeps what was measured, in the place of what was before.
    pub async fn keep_measures(&self, measures: &Measures) -> Result<()> {
        let place = self.index_place();
        self.limit_writes(Some(measures));
        let raw = sealed::seal(FACT_MAGIC, FACT_VERSION, measures);
        write_sealed(&place.disk, &place.root, FACT, &raw).await
    }

    /// Removes what a measurement has left that was cut off.
    pub async fn clear_measuring(&self) -> Result<()> {
        for place in self.data_places() {
            remove(&place.disk, &place.root.join(SCRATCH)).await?;
        }
        Ok(())
    }
}

/// How much is written to a device: what is asked for, or what leaves enough free.
async fn bytes_for(place: &Place, wanted: u64) -> Result<u64> {
    let free = place.room().await?.free_bytes;
    let bytes = wanted.max(BYTES_MIN).min(free / SPARE_TIMES) / BYTES_MIN * BYTES_MIN;
    if bytes == 0 {
        return Err(Error::new(
            Code::NoSpace,
            format!(
                "{} of {} is free, too little to measure it; {} are needed",
                size::format(free),
                place.name,
                size::format(BYTES_MIN * SPARE_TIMES)
            ),
        ));
    }
    Ok(bytes)
}

fn add(all: &mut Speed, one: Speed) {
    all.kb_s += one.kb_s;
    all.kb_s_min += one.kb_s_min;
    all.kb_s_max += one.kb_s_max;
}

async fn remove(disk: &Rc<dyn Disk>, path: &Path) -> Result<()> {
    match disk.remove(path).await {
        Err(error) if error.code != Code::NonExist => Err(error),
        _ => Ok(()),
    }
}

/// Bytes in a time, KB/s.
fn kb_s(bytes: u64, time: Duration) -> u64 {
    per_s(bytes, time) / 1000
}

/// Things in a time, a second. A clock that stood still counts as a microsecond.
fn per_s(count: u64, time: Duration) -> u64 {
    let us = time.as_micros().max(1);
    u64::try_from(count as u128 * 1_000_000 / us).unwrap_or(u64::MAX)
}

/// Bytes and time of slices, and what they make together.
#[derive(Default)]
struct Slices {
    bytes: u64,
    time: Duration,
    speed: Option<Speed>,
}

impl Slices {
    fn add(&mut self, bytes: u64, time: Duration) {
        self.bytes += bytes;
        self.time += time;
        let one = kb_s(bytes, time);
        let speed = self.speed.get_or_insert(Speed { kb_s: 0, kb_s_min: one, kb_s_max: one });
        speed.kb_s_min = speed.kb_s_min.min(one);
        speed.kb_s_max = speed.kb_s_max.max(one);
    }

    fn speed(&self) -> Speed {
        Speed { kb_s: kb_s(self.bytes, self.time), ..self.speed.unwrap_or_default() }
    }
}

/// The file that is written and read.
struct Scratch<'a, 'r> {
    env: &'a Env,
    disk: &'a Rc<dyn Disk>,
    path: &'a Path,
    rest: &'a Rest<'r>,
}

impl Scratch<'_, '_> {
    async fn remove(&self) -> Result<()> {
        remove(self.disk, self.path).await
    }

    async fn measure(&self, bytes: u64, step: Duration) -> Result<Measures> {
        self.remove().await?;
        let options = OpenOptions { create: true, direct: true, ..OpenOptions::default() };
        let file = self.disk.open(self.path, options).await?;
        file.allocate(0, bytes).await?;
        let mut writes = Slices::default();
        self.pieces(&file, true, bytes, step, &mut writes).await?;
        // What was not written would be read as zeros, without the device.
        let bytes = writes.bytes;
        let mut reads = Slices::default();
        self.pieces(&file, false, bytes, step, &mut reads).await?;
        let random_step = step / RANDOM_PART;
        let random_writes_s = self.random(&file, true, bytes, random_step).await?;
        let random_reads_s = self.random(&file, false, bytes, random_step).await?;
        Ok(Measures {
            bytes,
            is_direct: file.is_direct(),
            read: reads.speed(),
            write: writes.speed(),
            random_reads_s,
            random_writes_s,
            ..Measures::default()
        })
    }

    /// Transfers all bytes in order, some pieces at a time, until they or the time are over.
    async fn pieces(
        &self,
        file: &Rc<dyn File>,
        write: bool,
        bytes: u64,
        limit: Duration,
        slices: &mut Slices,
    ) -> Result<()> {
        let seed = self.env.random_u64();
        let mut bufs = buffers(PIECES_AT_ONCE, PIECE_BYTES, seed)?;
        let group = PIECES_AT_ONCE * PIECE_BYTES;
        let slice = (bytes / SLICES).max(group) / group * group;
        let mut at = 0;
        let until = self.env.now() + limit;
        let is_over = || self.env.now() >= until;
        while at < bytes && !is_over() {
            let end = (at + slice).min(bytes);
            let (from, mut took) = (at, Duration::ZERO);
            while at == from || at < end && !is_over() {
                let begun = self.env.now();
                let places = (0..PIECES_AT_ONCE).map(|nth| at + nth * PIECE_BYTES);
                bufs = transfer(file, write, places, bufs).await?;
                at += group;
                took += self.rested(begun).await;
            }
            if write {
                // Each slice for itself, so that the time holds where the page cache takes it all.
                let begun = self.env.now();
                file.sync().await?;
                took += self.rested(begun).await;
            }
            slices.add(at - from, took);
        }
        Ok(())
    }

    /// Lets others go on after transfers that began then; how long these took.
    async fn rested(&self, begun: Duration) -> Duration {
        let took = self.env.now().saturating_sub(begun);
        (self.rest)(took).await;
        took
    }

    /// Transfers at random places a second.
    async fn random(
        &self,
        file: &Rc<dyn File>,
        write: bool,
        bytes: u64,
        limit: Duration,
    ) -> Result<u64> {
        let mut seed = self.env.random_u64();
        let mut bufs = buffers(RANDOM_AT_ONCE, RANDOM_BYTES, seed)?;
        let blocks = bytes / RANDOM_BYTES;
        let until = self.env.now() + limit;
        let (mut count, mut time) = (0, Duration::ZERO);
        // By count, too: a clock may stand still.
        while (count == 0 || self.env.now() < until) && count < blocks {
            let begun = self.env.now();
            let places: Vec<u64> = (0..RANDOM_AT_ONCE)
                .map(|_| {
                    seed = hash::mix(seed.wrapping_add(1));
                    seed % blocks * RANDOM_BYTES
                })
                .collect();
            bufs = transfer(file, write, places.into_iter(), bufs).await?;
            if write {
                file.sync().await?;
            }
            count += RANDOM_AT_ONCE;
            time += self.rested(begun).await;
        }
        Ok(per_s(count, time))
    }
}

/// Buffers of random bytes.
fn buffers(count: u64, bytes: u64, mut seed: u64) -> Result<Vec<AlignedBuf>> {
    let mut bufs = Vec::new();
    for _ in 0..count {
        let mut buf = AlignedBuf::try_zeroed(bytes as usize)?;
        for word in buf.chunks_exact_mut(8) {
            seed = hash::mix(seed.wrapping_add(1));
            word.copy_from_slice(&seed.to_le_bytes());
        }
        bufs.push(buf);
    }
    Ok(bufs)
}

/// One transfer of each buffer, all at once; gives the buffers back.
async fn transfer(
    file: &Rc<dyn File>,
    write: bool,
    places: impl Iterator<Item = u64>,
    bufs: Vec<AlignedBuf>,
) -> Result<Vec<AlignedBuf>> {
    let transfers = places.zip(bufs).map(|(at, buf)| async move {
        if write {
            let (buf, result) = file.write_at(at, buf).await;
            return result.map(|()| buf);
        }
        let wanted = buf.len();
        let (buf, result) = file.read_at(at, buf).await;
        match result? {
            count if count == wanted => Ok(buf),
            _ => Err(Error::new(Code::Io, "the file is shorter than what was written")),
        }
    });
    join_all(transfers).await.into_iter().collect()
}

/// Copies in memory, in pieces between which others run.
async fn memory(env: &Env) -> Result<Speed> {
    let from = AlignedBuf::try_zeroed(MEMORY_BYTES)?;
    let mut to = AlignedBuf::try_zeroed(MEMORY_BYTES)?;
    let mut slices = Slices::default();
    let piece = MEMORY_BYTES / SLICES as usize;
    // The first time round the pages come into being, which is not counted.
    for is_counted in [false, true] {
        for (to, from) in to.chunks_mut(piece).zip(from.chunks(piece)) {
            let begun = env.now();
            to.copy_from_slice(std::hint::black_box(from));
            if is_counted {
                slices.add(piece as u64, env.now().saturating_sub(begun));
            }
            env.yield_now().await;
        }
    }
    std::hint::black_box(&to);
    Ok(slices.speed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::tier::{DataDevice, Devices};
    use crate::{Store, StoreOptions};
    use env::{DiskFaults, SimWorld};

    const ASK: MeasureAsk = MeasureAsk { bytes: 8 << 20, step_ms_max: 2000, once: false };

    #[test]
    fn what_is_measured_is_there_after_a_restart_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::real().unwrap();
        let open = || env.block_on(Store::open(&env, &dir.path().join("d"))).unwrap();
        let store = open();
        let before = env.block_on(store.standing()).unwrap();
        assert!(before.measures.is_none() && before.free_bytes > 0);
        let made = env.block_on(store.measure(&env, ASK, &|_| Box::pin(async {}))).unwrap();
        env.block_on(store.keep_measures(&made)).unwrap();
        assert_eq!(made.bytes, ASK.bytes);
        for speed in [made.read, made.write, made.memory] {
            assert!(speed.kb_s > 0 && speed.kb_s_min <= speed.kb_s, "{speed:?}");
            assert!(speed.kb_s <= speed.kb_s_max.max(1), "{speed:?}");
        }
        assert!(made.random_reads_s > 0 && made.random_writes_s > 0 && made.at_ns > 0);
        assert!(!dir.path().join("d").join(SCRATCH).exists());
        drop(store);
        let store = open();
        assert_eq!(env.block_on(store.measures()), Some(made));
        // A measurement that was cut off leaves its file; a damaged fact is forgotten.
        std::fs::write(dir.path().join("d").join(SCRATCH), b"half").unwrap();
        env.block_on(store.clear_measuring()).unwrap();
        assert!(!dir.path().join("d").join(SCRATCH).exists());
        std::fs::write(dir.path().join("d").join(FACT), b"nonsense").unwrap();
        assert_eq!(env.block_on(store.measures()), None);
        env.clear();
    }

    #[test]
    fn devices_used_raw_and_several_of_them_are_measured_together() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::real().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["a", "b"] {
            std::fs::File::create(path(name)).unwrap().set_len(256 << 20).unwrap();
        }
        let nvme = ["a", "b"].map(|name| DataDevice::whole(&path(name))).to_vec();
        let devices = Devices { scm: path("scm"), nvme };
        let store =
            env.block_on(Store::open_with(&env, &devices, StoreOptions::default())).unwrap();
        let made = env.block_on(store.measure(&env, ASK, &|_| Box::pin(async {}))).unwrap();
        env.block_on(store.keep_measures(&made)).unwrap();
        assert_eq!(made.bytes, 2 * ASK.bytes);
        let standing = env.block_on(store.standing()).unwrap();
        assert_eq!(standing.measures, Some(made));
        assert!(standing.free_bytes <= 512 << 20, "of the data devices only");
        env.clear();
    }

    #[test]
    fn a_device_with_little_room_is_not_filled_to_measure_it() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::real().unwrap();
        let path = dir.path().join("small");
        std::fs::File::create(&path).unwrap().set_len(48 << 20).unwrap();
        let store = env.block_on(Store::open(&env, &path)).unwrap();
        let error = env.block_on(store.measure(&env, ASK, &|_| Box::pin(async {}))).unwrap_err();
        assert_eq!(error.code, Code::NoSpace);
        assert!(error.text.contains("small"), "{error}");
        env.clear();
    }

    #[test]
    fn speeds_are_of_all_bytes_and_all_time() {
        let mut slices = Slices::default();
        slices.add(1_000_000, Duration::from_millis(1));
        slices.add(1_000_000, Duration::from_millis(3));
        let want = Speed { kb_s: 500_000, kb_s_min: 333_333, kb_s_max: 1_000_000 };
        assert_eq!(slices.speed(), want);
        assert_eq!(per_s(3, Duration::ZERO), 3_000_000);
    }

    /// Beside clients a measurement stops after each few transfers. It takes no longer for that, and what it finds is what the device does.
    #[test]
    fn others_go_on_between_transfers() {
        let measured = |part: u32| {
            let world = SimWorld::new(3);
            let env = world.node("n");
            let latency = Duration::from_millis(5);
            let faults = DiskFaults {
                latency_min: latency,
                latency_max: latency,
                space_bytes: 8 << 30,
                ..DiskFaults::default()
            };
            world.disk("n").set_faults(faults);
            world.block_on(async {
                let store = Store::open(&env, Path::new("/d")).await.unwrap();
                let begun = env.now();
                let ask = MeasureAsk { bytes: 128 << 20, step_ms_max: 300, once: false };
                let made = store.measure(&env, ask, &|took| Box::pin(env.sleep(took * part))).await;
                (made.unwrap(), env.now() - begun)
            })
        };
        let ((alone, alone_took), (beside, beside_took)) = (measured(0), measured(9));
        let about = |a: u64, b: u64| a * 10 < b * 11 && b * 10 < a * 11;
        assert!(about(alone.read.kb_s, beside.read.kb_s), "{alone:?} {beside:?}");
        assert!(about(alone.random_reads_s, beside.random_reads_s), "{alone:?} {beside:?}");
        assert!(beside.bytes * 4 < alone.bytes, "{alone:?} {beside:?}");
        assert!(beside_took < alone_took * 3, "{alone_took:?} {beside_took:?}");
    }
}
