//! The threads of a copy, and what they do with one file.

use super::PIECE_BYTES;
use super::queue::Queue;
use super::report::{Progress, Ran, Tally, count};
use super::side::{Meta, OpenFile, Side, SideSpec};
use super::tree::{Root, Walk, Walker};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use types::{Code, Error, Result};

/// What is done with each file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    Copy,
    /// Compare the copy with the original.
    Compare,
}

/// A file to copy or compare.
pub struct FileJob {
    /// Path on the source side.
    pub from: Vec<u8>,
    /// Path on the target side.
    pub to: Vec<u8>,
    pub meta: Meta,
    /// There was nothing at `to`.
    pub is_new: bool,
}

/// Work for a thread.
pub enum Job {
    File(FileJob),
    /// A piece of a large one, from this offset on.
    Piece(Arc<LargeFile>, u64),
}

/// A file of several pieces.
pub struct LargeFile {
    file: FileJob,
    pieces_left: AtomicU64,
    failed: AtomicBool,
}

/// What the threads of a copy share.
pub struct Shared<'a> {
    pub queue: Queue<Job>,
    pub tally: Tally,
    pub progress: &'a Progress,
    /// What is done with each file.
    pub task: Task,
    /// Copies that were begun and are not whole, and whether the file was new.
    begun: Mutex<BTreeMap<Vec<u8>, bool>>,
    failures: Mutex<Vec<Error>>,
    fatal: Mutex<Option<Code>>,
}

impl Shared<'_> {
    /// Notes that a copy is begun.
    fn begin(&self, file: &FileJob) {
        self.lock_begun().insert(file.to.clone(), file.is_new);
    }

    /// Notes that the content of a copy is whole.
    fn end(&self, file: &FileJob) {
        self.lock_begun().remove(&file.to);
    }

    fn lock_begun(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, bool>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes away what was begun and is not whole, since it has the size of what is, and tells what had been there before. Once
    /// the target side gives no answer the rest is named only.
    fn clear(&self, to: &dyn Side) {
        let mut is_away = false;
        for (path, is_new) in std::mem::take(&mut *self.lock_begun()) {
            let cleared = match is_away {
                true => Err(Error::bare(Code::Unreach)),
                false => clear_away(to, &path, is_new),
            };
            let name = to.name(&path);
            let told = match cleared {
                Ok(()) if is_new => continue,
                Ok(()) => Error::new(
                    Code::Io,
                    format!("{name} was there before and could not be replaced: it is empty now"),
                ),
                Err(error) => {
                    is_away |= is_unanswered(error.code);
                    let text = format!("{name} is not whole, and could not be removed");
                    error.context(text)
                }
            };
            self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(told);
        }
    }

    /// Notes an error; one that every further file would meet stops everything.
    pub fn fail(&self, error: Error) {
        let hopeless = error.code == Code::NoSpace || is_unanswered(error.code);
        if hopeless {
            let mut fatal = self.fatal.lock().unwrap_or_else(PoisonError::into_inner);
            // The others will meet it, too; once is enough to tell.
            if fatal.replace(error.code).is_some() {
                return;
            }
            self.queue.stop();
        }
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }
}

/// Threads that copy from one side to the other.
pub struct Crew<'a> {
    from: SideSpec,
    to: SideSpec,
    threads: usize,
    progress: &'a Progress,
}

/// Marks the end of a thread's part, however it ends.
struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Crew<'_> {
    /// A crew of `threads` threads beside the calling one.
    pub fn new(from: SideSpec, to: SideSpec, threads: usize, progress: &Progress) -> Crew<'_> {
        Crew { from, to, threads, progress }
    }

    /// Walks over the sources and has each file dealt with.
    ///
    /// Errors on single entries are in the result; an error that this returns is one that kept
    /// the walk from beginning.
    pub fn run(&self, walk: &Walk, roots: &[Root]) -> Result<Ran> {
        self.progress.phase(match walk.task {
            Task::Copy => "copying",
            Task::Compare => "comparing",
        });
        let shared = Shared {
            queue: Queue::new(),
            tally: Tally::default(),
            progress: self.progress,
            task: walk.task,
            begun: Mutex::default(),
            failures: Mutex::default(),
            fatal: Mutex::default(),
        };
        let mut walker = Walker::new(self.from.open()?, self.to.open()?, walk, &shared);
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| self.work(&shared));
            }
            // The threads must be told the end even if the walk panics.
            let _end = AtEnd(|| shared.queue.complete());
            for root in roots {
                walker.walk(root);
            }
        });
        shared.clear(walker.to());
        walker.finish();
        drop(walker);
        Ok(Ran {
            tally: shared.tally,
            failures: shared.failures.into_inner().unwrap_or_else(PoisonError::into_inner),
            fatal: shared.fatal.into_inner().unwrap_or_else(PoisonError::into_inner),
        })
    }

    /// A thread's life.
    fn work(&self, shared: &Shared<'_>) {
        let (from, to) = match self.from.open().and_then(|from| Ok((from, self.to.open()?))) {
            Ok(sides) => sides,
            Err(error) => {
                // Without this thread the others go on; without any nothing would ever end.
                shared.fail(error);
                shared.queue.stop();
                return;
            }
        };
        let mut hands =
            Hands { from: &*from, to: &*to, shared, memory: Vec::new(), other: Vec::new() };
        while let Some(job) = shared.queue.take() {
            let _end = AtEnd(|| {
                if std::thread::panicking() {
                    shared.queue.stop();
                }
                shared.queue.done();
            });
            let done = match job {
                Job::File(file) => hands.file(file),
                Job::Piece(file, offset) => hands.piece(&file, offset),
            };
            if let Err(error) = done {
                shared.fail(error);
            }
        }
    }
}

/// One thread at work.
struct Hands<'a> {
    from: &'a dyn Side,
    to: &'a dyn Side,
    shared: &'a Shared<'a>,
    memory: Vec<u8>,
    other: Vec<u8>,
}

impl Hands<'_> {
    fn file(&mut self, file: FileJob) -> Result<()> {
        if file.meta.size > PIECE_BYTES {
            return self.cut(file);
        }
        match self.shared.task {
            Task::Copy => {
                self.copy_range(&file, 0, true)?;
            }
            Task::Compare => self.compare_range(&file, 0)?,
        }
        self.complete(&file)
    }

    /// Cuts a large file into pieces for whoever has time.
    fn cut(&mut self, file: FileJob) -> Result<()> {
        let size = file.meta.size;
        let mut pieces = pieces_with_data(&*self.from.open(&file.from)?, size)?;
        match self.shared.task {
            Task::Copy => {
                let to = self.to.create(&file.to)?;
                self.shared.begin(&file);
                // At its full length at once: pieces come in any order, and holes need no writing.
                to.set_size(size)?;
            }
            // What is a hole here is to be one, or zero, there.
            Task::Compare => pieces.extend(pieces_with_data(&*self.to.open(&file.to)?, size)?),
        }
        let bytes: u64 = pieces.iter().map(|offset| (size - offset).min(PIECE_BYTES)).sum();
        count(&self.shared.tally.bytes, size - bytes);
        self.shared.progress.advance(size - bytes);
        if pieces.is_empty() {
            return self.complete(&file);
        }
        let pieces_left = AtomicU64::new(pieces.len() as u64);
        let file = Arc::new(LargeFile { file, pieces_left, failed: AtomicBool::new(false) });
        let pieces = pieces.into_iter().map(|offset| Job::Piece(file.clone(), offset));
        self.shared.queue.add_pieces(pieces);
        Ok(())
    }

    fn piece(&mut self, large: &LargeFile, offset: u64) -> Result<()> {
        let file = &large.file;
        let done = match self.shared.task {
            // One error per file is enough: the pieces after a failed one are not tried.
            _ if large.failed.load(Ordering::Relaxed) => Ok(()),
            Task::Copy => self.copy_range(file, offset, false),
            Task::Compare => self.compare_range(file, offset),
        };
        if done.is_err() {
            large.failed.store(true, Ordering::Relaxed);
        }
        let is_last = large.pieces_left.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && !large.failed.load(Ordering::Relaxed) {
            self.complete(file)?;
        }
        done
    }

    /// Copies one piece. A whole file (`is_new`) is made first.
    fn copy_range(&mut self, file: &FileJob, offset: u64, is_new: bool) -> Result<()> {
        let want = (file.meta.size - offset).min(PIECE_BYTES);
        self.memory.resize(want as usize, 0);
        if want > 0 {
            let count = self.from.open(&file.from)?.read(offset, &mut self.memory)? as u64;
            if count < want {
                return Err(changed(self.from, &file.from));
            }
        }
        let to = match is_new {
            true => {
                let to = self.to.create(&file.to)?;
                self.shared.begin(file);
                to
            }
            false => self.to.reopen(&file.to)?,
        };
        let mut end = 0;
        for run in dfs::runs_of_data(&self.memory) {
            end = run.end;
            to.write(offset + run.start as u64, &self.memory[run])?;
        }
        if is_new && (end as u64) < want {
            to.set_size(want)?;
        }
        count(&self.shared.tally.bytes, want);
        self.shared.progress.advance(want);
        Ok(())
    }

    fn compare_range(&mut self, file: &FileJob, offset: u64) -> Result<()> {
        let want = (file.meta.size - offset).min(PIECE_BYTES);
        self.memory.resize(want as usize, 0);
        self.other.resize(want as usize, 0);
        if want > 0 {
            let count = self.from.open(&file.from)?.read(offset, &mut self.memory)? as u64;
            if count < want {
                return Err(changed(self.from, &file.from));
            }
            let count = self.to.open(&file.to)?.read(offset, &mut self.other)?;
            if let Some(at) = first_difference(&self.memory, &self.other[..count]) {
                return Err(Error::new(
                    Code::Io,
                    format!(
                        "{} differs from {} at byte {}",
                        self.to.name(&file.to),
                        self.from.name(&file.from),
                        offset + at as u64
                    ),
                ));
            }
        }
        count(&self.shared.tally.bytes, want);
        self.shared.progress.advance(want);
        Ok(())
    }

    /// The content is whole: now the rest.
    fn complete(&mut self, file: &FileJob) -> Result<()> {
        match self.shared.task {
            Task::Copy => {
                self.shared.end(file);
                copy_attrs(self.from, &file.from, self.to, &file.to, &file.meta)?;
            }
            Task::Compare => compare_xattrs(self.from, &file.from, self.to, &file.to)?,
        }
        count(&self.shared.tally.files, 1);
        Ok(())
    }
}

/// Errors of a side that gives no answer.
fn is_unanswered(code: Code) -> bool {
    matches!(code, Code::Unreach | Code::TimedOut | Code::Closed)
}

/// Removes a file if it is new; else it is left with nothing in it.
fn clear_away(to: &dyn Side, path: &[u8], is_new: bool) -> Result<()> {
    let cleared = match is_new {
        true => to.unlink(path),
        false => to.reopen(path).and_then(|file| file.set_size(0)),
    };
    match cleared {
        // It was not even made.
        Err(error) if is_new && error.code == Code::NonExist => Ok(()),
        other => other,
    }
}

fn changed(side: &dyn Side, path: &[u8]) -> Error {
    Error::new(Code::Io, format!("{} became shorter meanwhile", side.name(path)))
}

/// Gives a copy its user attributes, then mode, owner and times.
pub fn copy_attrs(
    from: &dyn Side,
    from_path: &[u8],
    to: &dyn Side,
    to_path: &[u8],
    meta: &Meta,
) -> Result<()> {
    for (name, value) in from.xattrs(from_path)? {
        to.set_xattr(to_path, &name, &value)?;
    }
    to.set_meta(to_path, meta)
}

/// Compares user attributes; further ones of the copy do not count.
pub fn compare_xattrs(
    from: &dyn Side,
    from_path: &[u8],
    to: &dyn Side,
    to_path: &[u8],
) -> Result<()> {
    let wanted = from.xattrs(from_path)?;
    if wanted.is_empty() {
        return Ok(());
    }
    let found = to.xattrs(to_path)?;
    match wanted.iter().find(|pair| !found.contains(pair)) {
        Some((name, _)) => Err(Error::new(
            Code::Io,
            format!(
                "{}: attribute '{}' differs from that of {}",
                to.name(to_path),
                String::from_utf8_lossy(name),
                from.name(from_path)
            ),
        )),
        None => Ok(()),
    }
}

/// Offsets of the pieces of a file of `size` bytes that are not all hole.
fn pieces_with_data(file: &dyn OpenFile, size: u64) -> Result<BTreeSet<u64>> {
    let mut pieces = BTreeSet::new();
    let mut from = 0;
    while from < size {
        let Some(data) = file.data_from(from)? else { break };
        let (first, end) = (data.start / PIECE_BYTES, data.end.min(size).div_ceil(PIECE_BYTES));
        pieces.extend((first..end).map(|at| at * PIECE_BYTES));
        // What else is in the last of them does not matter.
        from = (end * PIECE_BYTES).max(from + 1);
    }
    Ok(pieces)
}

/// Where two pieces differ first, if they do; a shorter `b` differs at its end.
fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b {
        return None;
    }
    Some(a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// A file of which is known where its data are.
    struct Known(&'static [(u64, u64)]);

    impl OpenFile for Known {
        fn read(&self, _: u64, _: &mut [u8]) -> Result<usize> {
            unreachable!("it is not read")
        }

        fn write(&self, _: u64, _: &[u8]) -> Result<()> {
            unreachable!("it is not written")
        }

        fn set_size(&self, _: u64) -> Result<()> {
            unreachable!("it is not cut")
        }

        fn data_from(&self, offset: u64) -> Result<Option<Range<u64>>> {
            let found = self.0.iter().find(|(_, end)| *end > offset);
            Ok(found.map(|(start, end)| offset.max(*start)..*end))
        }
    }

    #[test]
    fn pieces_are_those_with_data() {
        const PIECE: u64 = PIECE_BYTES;
        let pieces = |data: &'static [(u64, u64)], size| -> Vec<u64> {
            let found = pieces_with_data(&Known(data), size).unwrap();
            found.into_iter().map(|offset| offset / PIECE).collect()
        };
        assert!(pieces(&[], 9 * PIECE).is_empty());
        assert_eq!(pieces(&[(0, u64::MAX)], 2 * PIECE + 1), [0, 1, 2]);
        let small = &[(5, 6), (9, 10), (3 * PIECE - 1, 3 * PIECE), (5 * PIECE, 5 * PIECE + 1)];
        assert_eq!(pieces(small, 9 * PIECE), [0, 2, 5]);
        assert_eq!(pieces(&[(PIECE - 1, 2 * PIECE + 1)], 9 * PIECE), [0, 1, 2]);
        // It has become shorter, or longer, meanwhile.
        assert_eq!(pieces(&[(4 * PIECE, 7 * PIECE)], 5 * PIECE), [4]);
    }

    #[test]
    fn differences_are_found_where_they_are() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        assert_eq!(first_difference(b"abc", b"abd"), Some(2));
        assert_eq!(first_difference(b"abc", b"ab"), Some(2));
    }
}
