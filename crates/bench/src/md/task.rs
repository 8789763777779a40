//! One process's part in `bench md`.

use super::Options;
use crate::backend::{Backend, NewFile};
use crate::clock::monotonic_ns;
use crate::crew::{Phase, Step};
use crate::verify;
use crate::worker::{Task, Work};
use std::fmt::Write as _;
use types::{Code, Error, Result};

/// A worker's state over all phases.
pub(crate) struct MdTask<B> {
    options: Options,
    rank: u32,
    base: String,
    backend: B,
    buf: Vec<u8>,
}

impl<B: Backend> MdTask<B> {
    pub fn new(options: Options, rank: u32, dir: String, backend: B) -> MdTask<B> {
        let mut buf = vec![0; options.write_bytes as usize];
        verify::fill(options.seed, 0, &mut buf);
        let base = format!("{dir}/mdtest");
        MdTask { options, rank, base, backend, buf }
    }

    /// The directory that process `rank` makes its files in.
    fn dir(&self, rank: u32) -> String {
        if self.options.unique_dir {
            format!("{}/tree.{rank}", self.base)
        } else {
            format!("{}/shared", self.base)
        }
    }

    /// The paths of process `rank`'s files up to their numbers.
    fn stem(&self, rank: u32) -> String {
        format!("{}/file.mdtest.{rank}.", self.dir(rank))
    }

    /// Calls `each` for a number of files of process `rank`, with their paths and numbers.
    fn for_each(
        &mut self,
        rank: u32,
        count: u64,
        mut each: impl FnMut(&mut Self, &str, u64) -> Result<()>,
    ) -> Result<()> {
        let mut path = self.stem(rank);
        let stem_bytes = path.len();
        let first = self.options.first_file;
        for number in first..first + count {
            path.truncate(stem_bytes);
            let _ = write!(path, "{number}");
            each(self, &path, number)?;
        }
        Ok(())
    }

    /// Seed of the data of one file.
    fn file_seed(&self, rank: u32, number: u64) -> u64 {
        verify::file_seed(verify::file_seed(self.options.seed, u64::from(rank)), number)
    }

    fn create_one(&mut self, path: &str, number: u64) -> Result<()> {
        let new = NewFile { exclusive: true, class: self.options.class, chunk_bytes: 0 };
        let file = self.backend.create(path, &new)?;
        if !self.buf.is_empty() {
            if self.options.verify {
                let seed = self.file_seed(self.rank, number);
                verify::fill(seed, 0, &mut self.buf);
            }
            self.backend.write_at(&file, 0, &self.buf).map_err(|error| error.context(path))?;
        }
        if self.options.fsync {
            self.backend.sync(&file)?;
        }
        Ok(())
    }

    fn create(&mut self, step: &Step, wall: &mut dyn FnMut(u64) -> Result<u64>) -> Result<u64> {
        let rank = self.rank;
        let Some(wall_ns) = step.wall_ns else {
            self.for_each(rank, step.item_count, |task, path, number| {
                task.create_one(path, number)
            })?;
            return Ok(step.item_count);
        };
        let deadline_ns = monotonic_ns().saturating_add(wall_ns);
        let first = self.options.first_file;
        let mut path = self.stem(rank);
        let stem_bytes = path.len();
        let mut count = step.item_count;
        let mut asked = false;
        let mut done = 0;
        loop {
            if !asked && (done == count || monotonic_ns() >= deadline_ns) {
                count = wall(done)?.min(step.item_count);
                asked = true;
            }
            if done >= count {
                return Ok(done);
            }
            path.truncate(stem_bytes);
            let _ = write!(path, "{}", first + done);
            self.create_one(&path, first + done)?;
            done += 1;
        }
    }

    fn stat(&mut self, count: u64) -> Result<()> {
        let rank = self.neighbour();
        let bytes = self.options.write_bytes;
        self.for_each(rank, count, |task, path, _| {
            let found = task.backend.stat(path)?;
            if found != bytes {
                return Err(Error::new(
                    Code::Csum,
                    format!("{path} has {found} bytes, {bytes} were written"),
                ));
            }
            Ok(())
        })
    }

    fn read(&mut self, count: u64) -> Result<()> {
        let rank = self.neighbour();
        let bytes = self.options.read_bytes as usize;
        self.for_each(rank, count, |task, path, number| {
            let file = task.backend.open(path)?;
            if bytes == 0 {
                return Ok(());
            }
            let got = task
                .backend
                .read_at(&file, 0, &mut task.buf[..bytes])
                .map_err(|error| error.context(path))?;
            if got != bytes {
                return Err(Error::new(Code::Io, format!("{path}: {got} bytes read of {bytes}")));
            }
            if task.options.verify {
                let seed = task.file_seed(rank, number);
                // Bytes of a last, cut word agree with the whole word's first bytes.
                if let Some(mismatch) = verify::check(seed, 0, &task.buf[..bytes]) {
                    return Err(Error::new(
                        Code::Csum,
                        format!(
                            "{path} at {}: found {:#018x}, expected {:#018x}",
                            mismatch.offset, mismatch.found, mismatch.expected
                        ),
                    ));
                }
            }
            Ok(())
        })
    }

    /// Whose files this process looks at.
    fn neighbour(&self) -> u32 {
        let processes = u64::from(self.options.processes);
        ((u64::from(self.rank) + u64::from(self.options.stride)) % processes) as u32
    }

    /// Removes a directory unless other files are still in it.
    fn remove_dir_if_empty(&mut self, path: &str) -> Result<()> {
        match self.backend.remove_dir(path) {
            Err(error) if !matches!(error.code, Code::NotEmpty | Code::NonExist) => Err(error),
            _ => Ok(()),
        }
    }
}

impl<B: Backend> Task for MdTask<B> {
    fn run(&mut self, step: &Step, wall: &mut dyn FnMut(u64) -> Result<u64>) -> Result<Work> {
        let owns_dir = self.options.unique_dir || self.rank == 0;
        let dir = self.dir(self.rank);
        let count = step.item_count;
        let each_bytes = |bytes: u64| Work { ops: count, bytes: count * bytes };
        match step.phase {
            Phase::Prepare => {
                self.backend.forget_dirs();
                if self.rank == 0 {
                    let base = self.base.clone();
                    self.backend.make_dir(&base, None)?;
                }
                Ok(Work::default())
            }
            Phase::PrepareOwn => {
                if owns_dir {
                    self.backend.make_dir(&dir, self.options.dir_class)?;
                }
                Ok(Work::default())
            }
            Phase::Create => {
                let done = self.create(step, wall)?;
                Ok(Work { ops: done, bytes: done * self.options.write_bytes })
            }
            Phase::Stat => self.stat(count).map(|()| each_bytes(0)),
            Phase::Read => self.read(count).map(|()| each_bytes(self.options.read_bytes)),
            Phase::Remove => {
                self.for_each(self.rank, count, |task, path, _| task.backend.remove(path))?;
                Ok(each_bytes(0))
            }
            Phase::CleanOwn => {
                if owns_dir {
                    self.remove_dir_if_empty(&dir)?;
                }
                Ok(Work::default())
            }
            Phase::Clean => {
                if self.rank == 0 {
                    let base = self.base.clone();
                    self.remove_dir_if_empty(&base)?;
                }
                Ok(Work::default())
            }
            _ => {
                Err(Error::new(Code::Proto, format!("bench md has no phase {}", step.phase.name())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::PosixBackend;
    use std::path::Path;

    fn task(options: &Options, rank: u32, dir: &Path) -> MdTask<PosixBackend> {
        MdTask::new(options.clone(), rank, dir.to_str().unwrap().to_string(), PosixBackend)
    }

    fn run_all(options: &Options, dir: &Path, phase: Phase) -> Result<()> {
        let item_count = options.files_per_process;
        let step = Step { phase, iteration: 0, item_count, wall_ns: None };
        for rank in 0..options.processes {
            task(options, rank, dir).run(&step, &mut |_| unreachable!())?;
        }
        Ok(())
    }

    fn make(options: &Options, dir: &Path) {
        for phase in [Phase::Prepare, Phase::PrepareOwn, Phase::Create] {
            run_all(options, dir, phase).unwrap();
        }
    }

    fn file_count(dir: &Path) -> usize {
        let count = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            if path.is_dir() { file_count(&path) } else { 1 }
        };
        std::fs::read_dir(dir).unwrap().map(count).sum()
    }

    #[test]
    fn all_variants_find_what_they_made_and_leave_nothing() {
        for bits in 0..8 {
            let options = Options {
                processes: 3,
                unique_dir: bits & 1 != 0,
                write_bytes: if bits & 2 != 0 { 3901 } else { 0 },
                read_bytes: if bits & 2 != 0 { 3901 } else { 0 },
                stride: bits >> 2,
                verify: true,
                ..Options::easy(3, 20)
            };
            let dir = tempfile::tempdir().unwrap();
            make(&options, dir.path());
            assert_eq!(file_count(dir.path()), 60);
            let rest = [Phase::Stat, Phase::Read, Phase::Remove, Phase::CleanOwn, Phase::Clean];
            for phase in rest {
                run_all(&options, dir.path(), phase).unwrap();
            }
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn damage_is_reported_with_the_file() {
        let options = Options { verify: true, ..Options::hard(2, 5) };
        let dir = tempfile::tempdir().unwrap();
        make(&options, dir.path());
        let path = dir.path().join("mdtest/shared/file.mdtest.1.3");
        let mut data = std::fs::read(&path).unwrap();
        data[3900] ^= 1;
        std::fs::write(&path, &data).unwrap();
        run_all(&options, dir.path(), Phase::Stat).unwrap();
        let error = run_all(&options, dir.path(), Phase::Read).unwrap_err();
        assert_eq!(error.code, Code::Csum);
        assert!(error.to_string().contains("file.mdtest.1.3 at 3896"), "{error}");
        std::fs::write(&path, &data[..10]).unwrap();
        assert_eq!(run_all(&options, dir.path(), Phase::Stat).unwrap_err().code, Code::Csum);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(run_all(&options, dir.path(), Phase::Stat).unwrap_err().code, Code::NonExist);
    }

    #[test]
    fn runs_share_a_directory_by_their_first_number() {
        let dir = tempfile::tempdir().unwrap();
        let stay = Options::hard(1, 7);
        make(&stay, dir.path());
        let guest = Options { first_file: 100, ..Options::hard(1, 4) };
        make(&guest, dir.path());
        for phase in [Phase::Remove, Phase::CleanOwn, Phase::Clean] {
            run_all(&guest, dir.path(), phase).unwrap();
        }
        assert_eq!(file_count(dir.path()), 7);
        run_all(&stay, dir.path(), Phase::Stat).unwrap();
    }

    #[test]
    fn a_time_limit_stops_all_at_one_count() {
        let options = Options::easy(1, 50);
        let dir = tempfile::tempdir().unwrap();
        for phase in [Phase::Prepare, Phase::PrepareOwn] {
            run_all(&options, dir.path(), phase).unwrap();
        }
        let mut asked = Vec::new();
        let mut wall = |done| {
            asked.push(done);
            Ok(12)
        };
        let step = Step { phase: Phase::Create, iteration: 0, item_count: 50, wall_ns: Some(0) };
        let work = task(&options, 0, dir.path()).run(&step, &mut wall).unwrap();
        assert_eq!((asked, work.ops, file_count(dir.path())), (vec![0], 12, 12));
    }

    #[test]
    fn the_neighbour_of_the_last_is_the_first() {
        let options = Options { processes: 4, ..Options::default() };
        let neighbours: Vec<u32> =
            (0..4).map(|rank| task(&options, rank, Path::new("/")).neighbour()).collect();
        assert_eq!(neighbours, [1, 2, 3, 0]);
    }
}
