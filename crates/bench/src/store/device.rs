//! The yardsticks: the same device without a store. Files are preallocated, so that no file system
//! allocates meanwhile; those of the appender and of random reads are written once before.

use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use types::{Error, Result};

/// Alignment of direct I/O, bytes.
const ALIGN_BYTES: usize = 4096;

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Each write is on stable storage when it returns.
    Each,
    /// Not before the end.
    Late,
}

/// A buffer for direct I/O.
fn aligned(bytes: usize) -> env::AlignedBuf {
    let mut buf = env::AlignedBuf::zeroed(bytes);
    for (at, byte) in buf.iter_mut().enumerate() {
        *byte = (at * 7 + 1) as u8;
    }
    buf
}

/// Opens a preallocated file for direct I/O.
pub fn open(path: &Path, bytes: u64, sync: Sync) -> Result<File> {
    let doing = || format!("making {}", path.display());
    let mut flags = OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    if sync == Sync::Each {
        flags |= OFlags::DSYNC;
    }
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))
        .map_err(|error| Error::io(doing(), error.into()))?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)
        .map_err(|error| Error::io(doing(), error.into()))?;
    Ok(file.into())
}

/// Overwrites the first `bytes` of a file once, so that its blocks are written ones.
pub fn fill(file: &File, bytes: u64) -> Result<()> {
    let buf = aligned(1 << 20);
    let mut at = 0;
    while at < bytes {
        let count = (bytes - at).min(buf.len() as u64) as usize;
        file.write_all_at(&buf[..count.next_multiple_of(ALIGN_BYTES)], at)
            .map_err(|error| Error::io("filling a file", error))?;
        at += count as u64;
    }
    file.sync_data().map_err(|error| Error::io("filling a file", error))
}

/// Writes `count` pieces of `piece_bytes` one after the other, in a ring over the file's
/// `file_bytes`. Returns seconds.
pub fn append(file: &File, file_bytes: u64, piece_bytes: u64, count: u64) -> Result<f64> {
    let piece = (piece_bytes as usize).next_multiple_of(ALIGN_BYTES);
    let buf = aligned(piece);
    let slots = (file_bytes / piece as u64).max(1);
    let begun = Instant::now();
    for number in 0..count {
        file.write_all_at(&buf, (number % slots) * piece as u64)
            .map_err(|error| Error::io("writing the yardstick", error))?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Takes part in writing or reading the first `count` pieces of `piece_bytes` in sequence, with
/// others that share `cursor`. Returns seconds.
pub fn transfer(
    file: &File,
    cursor: &AtomicU64,
    piece_bytes: u64,
    count: u64,
    write: bool,
) -> Result<f64> {
    let mut buf = aligned(piece_bytes as usize);
    let begun = Instant::now();
    loop {
        let at = cursor.fetch_add(1, Ordering::Relaxed);
        if at >= count {
            return Ok(begun.elapsed().as_secs_f64());
        }
        match write {
            true => file.write_all_at(&buf, at * piece_bytes),
            false => file.read_exact_at(&mut buf, at * piece_bytes),
        }
        .map_err(|error| Error::io("moving the yardstick", error))?;
    }
}

/// Reads `count` pieces of `piece_bytes`; in sequence, or anywhere. Returns seconds.
pub fn read(
    file: &File,
    file_bytes: u64,
    piece_bytes: u64,
    count: u64,
    random_seed: Option<u64>,
) -> Result<f64> {
    let mut buf = aligned(piece_bytes as usize);
    let slots = (file_bytes / piece_bytes).max(1);
    let mut state = random_seed.unwrap_or(0) | 1;
    let begun = Instant::now();
    for number in 0..count {
        let slot = match random_seed {
            None => number % slots,
            Some(_) => {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % slots
            }
        };
        file.read_exact_at(&mut buf, slot * piece_bytes)
            .map_err(|error| Error::io("reading the yardstick", error))?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Runs `work` for each index on a thread of its own; the longest time, seconds.
pub fn together(
    threads: u32,
    work: impl Fn(u32) -> Result<f64> + std::marker::Sync,
) -> Result<f64> {
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|index| {
                let work = &work;
                scope.spawn(move || work(index))
            })
            .collect();
        let mut longest: f64 = 0.0;
        for thread in all {
            let seconds = thread.join().map_err(|_| {
                Error::new(types::Code::Io, "a yardstick's thread has ended badly")
            })??;
            longest = longest.max(seconds);
        }
        Ok(longest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not on tmpfs, which may know no direct I/O.
    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    #[test]
    fn pieces_go_round_a_file_and_are_read_back() {
        let dir = scratch();
        let file = open(&dir.path().join("f"), 64 << 10, Sync::Each).unwrap();
        fill(&file, 64 << 10).unwrap();
        assert!(append(&file, 64 << 10, 5_000, 40).unwrap() > 0.0);
        assert_eq!(file.metadata().unwrap().len(), 64 << 10);
        assert!(read(&file, 64 << 10, 4096, 50, Some(3)).unwrap() > 0.0);
        assert!(read(&file, 64 << 10, 4096, 50, None).unwrap() > 0.0);
        let cursor = AtomicU64::new(0);
        for write in [true, false] {
            cursor.store(0, Ordering::Relaxed);
            let part = |_| transfer(&file, &cursor, 4096, 16, write);
            assert!(together(2, part).unwrap() > 0.0);
            assert_eq!(cursor.load(Ordering::Relaxed), 18, "each looks once too often");
        }
        // Beyond its end there is nothing to read.
        assert!(read(&file, 1 << 20, 4096, 200, None).is_err());
    }

    #[test]
    fn the_slowest_of_several_counts_and_errors_are_kept() {
        let seconds = together(3, |index| Ok(f64::from(index))).unwrap();
        assert_eq!(seconds, 2.0);
        let one_fails = |index| match index {
            1 => Err(Error::inval("no")),
            _ => Ok(0.0),
        };
        assert!(together(3, one_fails).is_err());
    }
}
