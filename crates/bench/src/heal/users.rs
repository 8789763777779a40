//! Who works meanwhile: one user reads small pieces anywhere, another one writes large ones in a file of his own.

use super::{CLASS, FILE_BYTES, PIECE_BYTES, path};
use crate::backend::{Backend, DfsBackend, NewFile};
use crate::place::Where;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;
use types::{Code, Error, Result, hash};

const READ_BYTES: u64 = 4096;

/// A call: when it ended, and how long it took, microseconds.
type Call = (Instant, f64);

/// Users at work.
pub struct Users {
    enough: Arc<AtomicBool>,
    reader: JoinHandle<Result<Vec<Call>>>,
    writer: JoinHandle<Result<Vec<Call>>>,
}

/// What they did.
pub struct Seen {
    reads: Vec<Call>,
    writes: Vec<Call>,
}

/// What they did in some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Reads of 4 KiB a second, and what 99 of 100 took at most, microseconds.
    pub reads_s: f64,
    pub read_p99_us: f64,
    /// Writes of 1 MiB a second.
    pub writes_s: f64,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window { reads_s, read_p99_us, writes_s } = self;
        write!(f, "{reads_s:.0} reads/s (p99 {read_p99_us:.0} us), {writes_s:.0} MiB/s written")
    }
}

impl Users {
    /// Has them begin, on `count` files that are there; each has a connection of his own.
    ///
    /// Errors: those of connecting.
    pub fn start(place: &Where, dir: &str, count: u64) -> Result<Users> {
        let enough = Arc::new(AtomicBool::new(false));
        let user = |work: fn(&Where, &str, u64, &AtomicBool) -> Result<Vec<Call>>| {
            let (place, dir, enough) = (place.clone(), dir.to_string(), enough.clone());
            std::thread::spawn(move || work(&place, &dir, count, &enough))
        };
        let (reader, writer) = (user(read), user(write));
        Ok(Users { enough, reader, writer })
    }

    /// Ends them.
    ///
    /// Errors: theirs.
    pub fn stop(self) -> Result<Seen> {
        self.enough.store(true, Ordering::Relaxed);
        let died = |_| Error::new(Code::Io, "a user has died");
        let reads = self.reader.join().map_err(died)??;
        Ok(Seen { reads, writes: self.writer.join().map_err(died)?? })
    }
}

impl Seen {
    /// What they did between two moments.
    pub fn window(&self, from: Instant, to: Instant) -> Window {
        let seconds = to.saturating_duration_since(from).as_secs_f64().max(1e-9);
        let of = |calls: &[Call]| -> Vec<f64> {
            let inside = calls.iter().filter(|(at, _)| (from..=to).contains(at));
            inside.map(|(_, took_us)| *took_us).collect()
        };
        let mut reads = of(&self.reads);
        reads.sort_by(f64::total_cmp);
        Window {
            reads_s: reads.len() as f64 / seconds,
            read_p99_us: reads.get(reads.len() * 99 / 100).copied().unwrap_or(f64::INFINITY),
            writes_s: of(&self.writes).len() as f64 / seconds,
        }
    }
}

fn timed(calls: &mut Vec<Call>, call: impl FnOnce() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    call()?;
    let ended = Instant::now();
    calls.push((ended, (ended - begun).as_secs_f64() * 1e6));
    Ok(())
}

fn read(place: &Where, dir: &str, count: u64, enough: &AtomicBool) -> Result<Vec<Call>> {
    let mut files = DfsBackend::connect(place)?;
    let open: Vec<_> =
        (0..count).map(|number| files.open(&path(dir, number))).collect::<Result<_>>()?;
    let (mut calls, mut piece) = (Vec::new(), vec![0; READ_BYTES as usize]);
    for step in 0.. {
        if enough.load(Ordering::Relaxed) {
            break;
        }
        let file = &open[(hash::mix2(step, 1) % count) as usize];
        let at = hash::mix2(step, 2) % (FILE_BYTES / READ_BYTES) * READ_BYTES;
        timed(&mut calls, || match files.read_at(file, at, &mut piece)? {
            bytes if bytes == piece.len() => Ok(()),
            bytes => Err(Error::new(Code::Io, format!("{bytes} bytes were read, not 4096"))),
        })?;
    }
    Ok(calls)
}

fn write(place: &Where, dir: &str, _: u64, enough: &AtomicBool) -> Result<Vec<Call>> {
    let mut files = DfsBackend::connect(place)?;
    let new = NewFile { class: Some(CLASS.parse()?), ..NewFile::default() };
    let file = files.create(&format!("{dir}/written"), &new)?;
    let (mut calls, piece) = (Vec::new(), vec![7; PIECE_BYTES]);
    for step in 0u64.. {
        if enough.load(Ordering::Relaxed) {
            break;
        }
        // Round and round in a few files' worth.
        let at = step % 64 * PIECE_BYTES as u64;
        timed(&mut calls, || files.write_at(&file, at, &piece))?;
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_window_has_what_ended_in_it() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let reads = (0..200).map(|step| (at(step * 10), if step == 199 { 900.0 } else { 50.0 }));
        let seen = Seen { reads: reads.collect(), writes: vec![(at(5), 1.0), (at(1_500), 1.0)] };
        let first = seen.window(at(0), at(1_000));
        assert_eq!((first.reads_s, first.read_p99_us, first.writes_s), (101.0, 50.0, 1.0));
        let none = seen.window(at(5_000), at(6_000));
        assert!(none.reads_s == 0.0 && none.read_p99_us.is_infinite());
    }
}
