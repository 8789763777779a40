//! Chunks shared out over threads.

use super::index::Entry;
use crate::fs::copy::report::Progress;
use crate::fs::copy::side::{Side, SideSpec};
use dfs::FileKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use tier::s2_chunks::Sum;
use types::{Code, Error, Result};

/// Data of each chunk but the last of a file, bytes: a multiple of chunks of files, less than 64 MB. Others may use others.
pub const DATA_BYTES: u64 = 32 << 20;

/// A file and what is known of its chunks.
pub struct File<'a> {
    pub entry: &'a Entry,
    /// Of its chunks, in order.
    pub sums: Mutex<Vec<Sum>>,
    left: AtomicU64,
    failed: AtomicBool,
    done: AtomicBool,
}

impl<'a> File<'a> {
    pub fn new(entry: &'a Entry, sums: Vec<Sum>) -> File<'a> {
        let left = AtomicU64::new(sums.len() as u64);
        File {
            entry,
            sums: Mutex::new(sums),
            left,
            failed: AtomicBool::new(false),
            done: AtomicBool::new(false),
        }
    }

    /// The sum of a chunk.
    pub fn sum(&self, chunk: u64) -> Sum {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)[chunk as usize]
    }

    /// Sets the sum of a chunk.
    pub fn set_sum(&self, chunk: u64, sum: Sum) {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)[chunk as usize] = sum;
    }

    pub fn sums(&self) -> Vec<Sum> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn chunk_count(&self) -> u64 {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// All of it was done.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn complete(&self, side: &dyn Side, work: &dyn Work) -> Result<()> {
        work.complete(side, self)?;
        self.done.store(true, Ordering::Release);
        Ok(())
    }
}

/// What a thread does with a chunk of a file; returns bytes done.
pub trait Work: Sync {
    fn chunk(&self, side: &dyn Side, file: &File<'_>, chunk: u64) -> Result<u64>;
    /// All chunks of a file are done.
    fn complete(&self, side: &dyn Side, file: &File<'_>) -> Result<()>;
    /// Nothing of a file that failed may be left that could be taken for it.
    fn give_up(&self, side: &dyn Side, file: &File<'_>);
}

/// Has all chunks of all files dealt with by some threads. The result: what went wrong.
pub fn share_out(
    spec: &SideSpec,
    files: &[File<'_>],
    jobs: usize,
    progress: &Progress,
    work: &dyn Work,
) -> Vec<Error> {
    // A file without chunks has one step all the same: its end.
    let steps: Vec<(&File<'_>, Option<u64>)> = files
        .iter()
        .flat_map(|file| {
            let none = (file.chunk_count() == 0).then_some((file, None));
            none.into_iter().chain((0..file.chunk_count()).map(move |at| (file, Some(at))))
        })
        .collect();
    let (next, errors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let fail = |error| errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(steps.len()) {
            scope.spawn(|| {
                let side = match spec.open() {
                    Ok(side) => side,
                    Err(error) => return fail(error),
                };
                while let Some((file, chunk)) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = step(&*side, file, *chunk, progress, work) {
                        fail(error);
                    }
                }
            });
        }
    });
    let mut errors = errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    if errors.is_empty() && next.load(Ordering::Relaxed) < steps.len() {
        errors.push(Error::new(Code::Io, "a thread ended before its work was done"));
    }
    errors
}

fn step(
    side: &dyn Side,
    file: &File<'_>,
    chunk: Option<u64>,
    progress: &Progress,
    work: &dyn Work,
) -> Result<()> {
    let Some(chunk) = chunk else { return file.complete(side, work) };
    let done = match file.has_failed() {
        true => Ok(0),
        false => work.chunk(side, file, chunk),
    };
    match &done {
        Ok(bytes) => progress.advance(*bytes),
        Err(_) => file.failed.store(true, Ordering::Release),
    }
    if file.left.fetch_sub(1, Ordering::AcqRel) == 1 {
        match file.has_failed() {
            true => work.give_up(side, file),
            false => file.complete(side, work)?,
        }
    }
    done.map(|_| ())
}

/// A local file's whole content; the error names it. More than `bytes_max` is refused unread.
pub fn read_whole(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let named = |error| crate::fs::copy::local_error(path.as_os_str().as_bytes(), error);
    let bytes = std::fs::metadata(path).map_err(named)?.len();
    if bytes > bytes_max {
        let text = format!("{}: {bytes} bytes, more than can be", path.display());
        return Err(Error::new(Code::Csum, text));
    }
    std::fs::read(path).map_err(named)
}

/// Files of a list.
pub fn regular(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| entry.meta.kind == FileKind::Regular)
}
