//! One process's part in `bench io`.

use super::Options;
use super::layout::{Layout, shuffled};
use crate::backend::{Backend, NewFile};
use crate::clock::monotonic_ns;
use crate::crew::{Phase, Step};
use crate::verify;
use crate::worker::{Task, Work};
use types::{Code, Error, Result, hash};

/// A worker's state over all phases.
pub(crate) struct IoTask<B> {
    options: Options,
    layout: Layout,
    rank: u32,
    dir: String,
    backend: B,
    buf: Vec<u8>,
}

impl<B: Backend> IoTask<B> {
    pub fn new(options: Options, rank: u32, dir: String, backend: B) -> IoTask<B> {
        let mut buf = vec![0; options.transfer_bytes as usize];
        // Without verification the same bytes are written all over; they are not zeros, which a
        // store might treat in a special way.
        verify::fill(options.seed, 0, &mut buf);
        IoTask { layout: options.layout(), options, rank, dir, backend, buf }
    }

    /// The file that process `rank` works in.
    fn path(&self, rank: u32) -> String {
        if self.options.file_per_process {
            format!("{}/ior.{rank:08}", self.dir)
        } else {
            format!("{}/ior", self.dir)
        }
    }

    /// Seed of the data in process `rank`'s file.
    fn file_seed(&self, rank: u32) -> u64 {
        verify::file_seed(
            self.options.seed,
            if self.options.file_per_process { u64::from(rank) } else { 0 },
        )
    }

    /// Transfers of process `rank`, in the order they are made.
    fn order(&self, rank: u32, phase: Phase, count: u64) -> Option<Vec<u64>> {
        let salt = u64::from(rank) << 8 | phase as u64;
        self.options.random.then(|| shuffled(count, hash::mix2(self.options.seed, salt)))
    }

    fn write(&mut self, step: &Step, wall: &mut dyn FnMut(u64) -> Result<u64>) -> Result<Work> {
        let order = self.order(self.rank, step.phase, step.item_count);
        let seed = self.file_seed(self.rank);
        let verifies = self.options.verify_write || self.options.verify_read || self.options.keep;
        let new = NewFile {
            exclusive: false,
            class: self.options.class,
            chunk_bytes: self.options.chunk_bytes,
        };
        let path = self.path(self.rank);
        let file = self.backend.create(&path, &new)?;
        let mut deadline_ns = step.wall_ns.map(|wall_ns| monotonic_ns() + wall_ns);
        let mut count = step.item_count;
        let mut transfer = 0;
        loop {
            if let Some(deadline) = deadline_ns
                && (transfer == count || monotonic_ns() >= deadline)
            {
                count = wall(transfer)?.min(step.item_count);
                deadline_ns = None;
            }
            if transfer >= count {
                break;
            }
            let place = order.as_ref().map_or(transfer, |order| order[transfer as usize]);
            let offset = self.layout.offset(self.rank, place);
            if verifies {
                verify::fill(seed, offset, &mut self.buf);
            }
            self.backend
                .write_at(&file, offset, &self.buf)
                .map_err(|error| error.context(format!("{path} at {offset}")))?;
            transfer += 1;
        }
        if self.options.fsync {
            self.backend.sync(&file)?;
        }
        drop(file);
        Ok(Work { ops: count, bytes: count * self.options.transfer_bytes })
    }

    fn read(&mut self, step: &Step, rank: u32, compares: bool) -> Result<Work> {
        // Of a random order cut short by a time limit, the same transfers must be read: take the
        // writer's order, cut it, and only then bring it into one of its own.
        let total = self.layout.transfers_per_process();
        let count = step.item_count;
        let order = self.order(rank, Phase::Write, total).map(|written| {
            let salt = hash::mix2(self.options.seed, step.phase as u64);
            let again = shuffled(count, salt);
            again.into_iter().map(|at| written[at as usize]).collect::<Vec<u64>>()
        });
        let seed = self.file_seed(rank);
        let path = self.path(rank);
        let file = self.backend.open(&path)?;
        let mut wrong_count = 0u64;
        let mut first = None;
        for transfer in 0..count {
            let place = order.as_ref().map_or(transfer, |order| order[transfer as usize]);
            let offset = self.layout.offset(rank, place);
            let got = self
                .backend
                .read_at(&file, offset, &mut self.buf)
                .map_err(|error| error.context(format!("{path} at {offset}")))?;
            if got != self.buf.len() {
                return Err(Error::new(
                    Code::Io,
                    format!("{path} at {offset}: {got} bytes read of {}", self.buf.len()),
                ));
            }
            if compares && let Some(mismatch) = verify::check(seed, offset, &self.buf) {
                wrong_count += 1;
                first.get_or_insert(mismatch);
            }
        }
        if let Some(mismatch) = first {
            return Err(Error::new(
                Code::Csum,
                format!(
                    "{path}: {wrong_count} of {count} transfers differ from what was written; \
                     first at {}: found {:#018x}, expected {:#018x}",
                    mismatch.offset, mismatch.found, mismatch.expected
                ),
            ));
        }
        drop(file);
        Ok(Work { ops: count, bytes: count * self.options.transfer_bytes })
    }

    /// Removes a file that may not be there.
    fn remove_if_there(&mut self, path: &str) -> Result<()> {
        match self.backend.remove(path) {
            Err(error) if error.code != Code::NonExist => Err(error),
            _ => Ok(()),
        }
    }
}

impl<B: Backend> Task for IoTask<B> {
    fn run(&mut self, step: &Step, wall: &mut dyn FnMut(u64) -> Result<u64>) -> Result<Work> {
        let owns_file = self.options.file_per_process || self.rank == 0;
        match step.phase {
            Phase::Prepare => {
                self.backend.forget_dirs();
                if self.rank == 0 {
                    self.backend.make_dir(&self.dir, None)?;
                    if self.options.write {
                        let files =
                            if self.options.file_per_process { self.options.processes } else { 1 };
                        for rank in 0..files {
                            self.remove_if_there(&self.path(rank))?;
                        }
                    }
                }
                Ok(Work::default())
            }
            Phase::Write => self.write(step, wall),
            Phase::CheckWrite => self.read(step, self.rank, true),
            Phase::Read => {
                let shift = u32::from(self.options.reorder);
                let rank = (self.rank + shift) % self.options.processes;
                self.read(step, rank, self.options.verify_read)
            }
            Phase::CleanOwn => {
                if owns_file {
                    let path = self.path(self.rank);
                    self.remove_if_there(&path)?;
                }
                Ok(Work::default())
            }
            Phase::Clean => Ok(Work::default()),
            _ => {
                Err(Error::new(Code::Proto, format!("bench io has no phase {}", step.phase.name())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::PosixBackend;

    fn task(options: &Options, rank: u32, dir: &std::path::Path) -> IoTask<PosixBackend> {
        let dir = dir.to_str().unwrap().to_string();
        IoTask::new(options.clone(), rank, dir, PosixBackend)
    }

    fn step(options: &Options, phase: Phase) -> Step {
        let item_count = options.layout().transfers_per_process();
        Step { phase, iteration: 0, item_count, wall_ns: None }
    }

    /// Runs a phase on all ranks, one after the other.
    fn run_all(options: &Options, dir: &std::path::Path, phase: Phase) -> Result<()> {
        for rank in 0..options.processes {
            task(options, rank, dir).run(&step(options, phase), &mut |_| unreachable!())?;
        }
        Ok(())
    }

    fn small() -> Options {
        Options {
            processes: 3,
            transfer_bytes: 40,
            block_bytes: 120,
            segments: 4,
            verify_read: true,
            ..Options::default()
        }
    }

    #[test]
    fn all_variants_write_what_they_read() {
        for bits in 0..8 {
            let options = Options {
                file_per_process: bits & 1 != 0,
                random: bits & 2 != 0,
                reorder: bits & 4 != 0,
                verify_write: true,
                ..small()
            };
            let dir = tempfile::tempdir().unwrap();
            for phase in
                [Phase::Prepare, Phase::Write, Phase::CheckWrite, Phase::Read, Phase::CleanOwn]
            {
                run_all(&options, dir.path(), phase).unwrap();
            }
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_flipped_byte_is_reported_with_its_place() {
        let options = small();
        let dir = tempfile::tempdir().unwrap();
        run_all(&options, dir.path(), Phase::Prepare).unwrap();
        run_all(&options, dir.path(), Phase::Write).unwrap();
        let path = dir.path().join("ior");
        let mut data = std::fs::read(&path).unwrap();
        assert_eq!(data.len() as u64, options.layout().bytes_in_all());
        data[1001] ^= 0x10;
        std::fs::write(&path, data).unwrap();
        let error = run_all(&options, dir.path(), Phase::Read).unwrap_err();
        assert_eq!(error.code, Code::Csum);
        assert!(error.to_string().contains("1000"), "{error}");
    }

    #[test]
    fn a_short_file_is_an_error_even_without_comparing() {
        let options = Options { verify_read: false, ..small() };
        let dir = tempfile::tempdir().unwrap();
        run_all(&options, dir.path(), Phase::Write).unwrap();
        let path = dir.path().join("ior");
        let data = std::fs::read(&path).unwrap();
        std::fs::write(&path, &data[..data.len() - 1]).unwrap();
        assert_eq!(run_all(&options, dir.path(), Phase::Read).unwrap_err().code, Code::Io);
    }

    /// Writers stopped by a time limit go on to the count of the fastest; readers then read just
    /// those transfers, also when the order is random.
    #[test]
    fn after_a_time_limit_readers_find_what_was_written() {
        for random in [false, true] {
            let options = Options { random, reorder: false, file_per_process: true, ..small() };
            let dir = tempfile::tempdir().unwrap();
            let mut task = task(&options, 1, dir.path());
            let limited = Step { wall_ns: Some(0), ..step(&options, Phase::Write) };
            let work = task.run(&limited, &mut |done| Ok(done + 5)).unwrap();
            assert_eq!(work.ops, 5);
            let read = Step { item_count: 5, ..step(&options, Phase::Read) };
            assert_eq!(task.run(&read, &mut |_| unreachable!()).unwrap().bytes, 200);
        }
    }

    #[test]
    fn a_writer_that_is_done_before_its_time_asks_once() {
        let options = small();
        let dir = tempfile::tempdir().unwrap();
        let limited = Step { wall_ns: Some(u64::MAX / 2), ..step(&options, Phase::Write) };
        let mut asked = Vec::new();
        let mut wall = |done| {
            asked.push(done);
            Ok(done)
        };
        task(&options, 0, dir.path()).run(&limited, &mut wall).unwrap();
        assert_eq!(asked, [options.layout().transfers_per_process()]);
    }
}
