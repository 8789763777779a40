//! Users beside measurements and moves: what they get meanwhile, as a part of what they get with nothing else going on.
//!
//! Files are in a pool whose targets have equal shares. One user reads any of them, another one writes some of his own over and over. First they are alone, then all
//! targets are measured one after the other, again and again, and at last the pool is placed by score: most of what slow devices have moves to fast
//! ones. The pool has no data cache, so that all that is read comes from devices.

use super::{CLASS, MIB, Options};
use crate::backend::{Backend, DfsBackend, NewFile};
use crate::place::Where;
use crate::suite::bed::Bed;
use client::Client;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use types::{Code, Error, Result, TargetId, hash};
use wire::control::{ControlRequest, Name, Subject};
use wire::map::PoolMap;
use wire::measure::MeasureAsk;

/// Directories with a file each: each lies where its name does.
const FILES: u64 = 48;
/// Bytes of a file, in units.
const FILE_UNITS: u64 = 4;
/// Those that the writer makes, and has for himself.
const WRITTEN: u64 = 8;
/// A call moves so much at most.
const CALL_BYTES: u64 = 1 << 20;
/// What is measured of a target: as an engine does by itself.
const ASK: MeasureAsk = MeasureAsk { bytes: 64 << 20, step_ms_max: 250, once: false };
/// Pause between two looks at the pool.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// What has not ended after so long never will.
const TIME_MAX: Duration = Duration::from_secs(300);

/// Users' bandwidth, reading and writing together, MiB/s.
pub(super) struct Beside {
    pub alone: f64,
    pub measuring: f64,
    /// And for how long, seconds. `None`: devices are of about one speed, and nothing moves.
    pub moving: Option<(f64, f64)>,
}

/// A call: when it ended, and its bytes.
type Call = (Instant, u64);

/// Runs it in a pool with a file system, which is not to be used before or afterwards.
///
/// Errors: those of the system and of the users.
pub(super) fn run(bed: &Bed, label: &str, place: &Where, options: &Options) -> Result<Beside> {
    let (file_bytes, watch_s) = (options.unit_bytes * FILE_UNITS, options.watch_s);
    let name = Name::Label(label.to_string());
    let props = |name: &str, value: &str| BTreeMap::from([(name.to_string(), value.to_string())]);
    let set = |changed: BTreeMap<String, String>| {
        let subject = Subject::Pool(name.clone());
        ask(bed, ControlRequest::SetProps { subject, props: changed })
    };
    set(props("cache_max", "off"))?;
    write_files(place, file_bytes)?;
    let client = bed.client()?;
    let info = client.block_on(client.system_query())?;
    let targets: Vec<TargetId> =
        info.engines.into_iter().flat_map(|(_, targets, _)| targets).collect();
    let users = Users::start(place, file_bytes);
    let phases = || -> Result<([Instant; 3], Option<[Instant; 2]>)> {
        // They are at full speed after the first few calls.
        std::thread::sleep(Duration::from_secs_f64(watch_s / 4.0));
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(watch_s));
        let alone = Instant::now();
        while alone.elapsed().as_secs_f64() < watch_s {
            for target in &targets {
                ask(bed, ControlRequest::TargetMeasure { target: *target, ask: Some(ASK) })?;
            }
        }
        let measured = Instant::now();
        if !options.has_moves() {
            return Ok(([begun, alone, measured], None));
        }
        set(props("placement", "score"))?;
        ask(bed, ControlRequest::PoolReweigh { pool: name.clone(), is_trial: false })?;
        ask(bed, ControlRequest::PoolBalance { pool: name.clone() })?;
        let moves = until(client, &name, |map| map.next.is_some() || map.balanced > 0)?;
        let moved = until(client, &name, |map| map.balanced > 0)?;
        Ok(([begun, alone, measured], Some([moves, moved])))
    };
    let times = phases();
    let seen = users.stop()?;
    let ([begun, alone, measured], moves) = times?;
    let rate = |from: Instant, to: Instant| {
        let bytes: u64 =
            seen.iter().filter(|(at, _)| (from..=to).contains(at)).map(|(_, bytes)| bytes).sum();
        bytes as f64 / MIB as f64 / (to - from).as_secs_f64().max(1e-9)
    };
    Ok(Beside {
        alone: rate(begun, alone),
        measuring: rate(alone, measured),
        moving: moves.map(|[from, to]| (rate(from, to), (to - from).as_secs_f64())),
    })
}

fn ask(bed: &Bed, request: ControlRequest) -> Result<()> {
    let client = bed.client()?;
    client.block_on(client.control(&request)).map(|_| ())
}

/// When the pool's map is so.
fn until(client: &Client, pool: &Name, is_so: impl Fn(&PoolMap) -> bool) -> Result<Instant> {
    let begun = Instant::now();
    while !is_so(&client.block_on(client.pool_query(pool))?.map) {
        if begun.elapsed() > TIME_MAX {
            return Err(Error::new(Code::TimedOut, "a move of a pool's data has no end"));
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    Ok(Instant::now())
}

fn home(place: &Where) -> Result<&str> {
    match place {
        Where::Dfs { dir, .. } => Ok(dir),
        Where::Posix(_) | Where::PosixWith { .. } => Err(Error::inval("no file system")),
    }
}

fn path(dir: &str, number: u64) -> String {
    format!("{dir}/d{number}/file")
}

fn write_files(place: &Where, bytes: u64) -> Result<()> {
    let dir = home(place)?;
    let mut files = DfsBackend::connect(place)?;
    let class = Some(CLASS.parse()?);
    files.make_dir(dir, class)?;
    let data = vec![0x5a_u8; CALL_BYTES as usize];
    for number in 0..FILES {
        files.make_dir(&format!("{dir}/d{number}"), class)?;
        if number < WRITTEN {
            continue;
        }
        let file = files.create(&path(dir, number), &NewFile { class, ..NewFile::default() })?;
        for offset in (0..bytes).step_by(CALL_BYTES as usize) {
            let length = (bytes - offset).min(CALL_BYTES) as usize;
            files.write_at(&file, offset, &data[..length])?;
        }
    }
    Ok(())
}

/// Users at work.
struct Users {
    enough: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Vec<Call>>>>,
}

impl Users {
    fn start(place: &Where, file_bytes: u64) -> Users {
        let enough = Arc::new(AtomicBool::new(false));
        let user = |writes: bool| {
            let (place, enough) = (place.clone(), enough.clone());
            std::thread::spawn(move || work(&place, file_bytes, writes, &enough))
        };
        let threads = vec![user(false), user(true)];
        Users { enough, threads }
    }

    /// Ends them; all their calls.
    fn stop(self) -> Result<Vec<Call>> {
        self.enough.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in self.threads {
            all.extend(thread.join().map_err(|_| Error::new(Code::Io, "a user has died"))??);
        }
        Ok(all)
    }
}

/// Reads any file of others, or makes and writes those at the front, until it is enough.
fn work(place: &Where, file_bytes: u64, writes: bool, enough: &AtomicBool) -> Result<Vec<Call>> {
    let dir = home(place)?;
    let mut files = DfsBackend::connect(place)?;
    let class = Some(CLASS.parse()?);
    let open: Vec<_> = match writes {
        true => (0..WRITTEN)
            .map(|number| {
                files.create(&path(dir, number), &NewFile { class, ..NewFile::default() })
            })
            .collect::<Result<_>>()?,
        false => {
            (WRITTEN..FILES).map(|number| files.open(&path(dir, number))).collect::<Result<_>>()?
        }
    };
    let pieces = file_bytes.div_ceil(CALL_BYTES);
    let mut memory = vec![0xa5_u8; CALL_BYTES as usize];
    let mut calls = Vec::new();
    for step in 0_u64.. {
        if enough.load(Ordering::Relaxed) {
            break;
        }
        let file = &open[(hash::mix2(step, 1) % open.len() as u64) as usize];
        let offset = hash::mix2(step, 2) % pieces * CALL_BYTES;
        let length = (file_bytes - offset).min(CALL_BYTES);
        let piece = &mut memory[..length as usize];
        if writes {
            files.write_at(file, offset, piece)?;
        } else if files.read_at(file, offset, piece)? != piece.len() {
            return Err(Error::new(Code::Io, "a file of the users is shorter than it was"));
        }
        calls.push((Instant::now(), length));
    }
    Ok(calls)
}
