//! What the processes of an experiment write: files of their own, in large calls, in steps that all
//! processes begin together.
//!
//! Only calls of the operating system are used, one `write` for each call of the load, because
//! those are what the preload library sees.

use crate::crew::{Phase, Step};
use crate::verify;
use crate::worker::{Task, Work};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use types::{Code, Error, Result};

/// All sizes are multiples of this, so that they also suit direct I/O.
pub const BLOCK_BYTES: u64 = 4096;

/// What every process writes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Processes are dealt out to so many directories `t0`, `t1`, …
    pub targets: u32,
    /// Steps of output, in order.
    pub outputs: Vec<Output>,
    /// Bypass the page cache.
    pub direct: bool,
    /// Wait at the end of each step until the data are on the device.
    pub fsync: bool,
    /// Decides the data.
    pub seed: u64,
}

/// A step: calls that append to one of the process's files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Which file, from 0.
    pub file: u32,
    /// Begin the file anew.
    pub fresh: bool,
    /// Bytes of each call, multiples of [`BLOCK_BYTES`].
    pub calls: Vec<u64>,
}

impl Output {
    /// Bytes of a step and process.
    pub fn bytes(&self) -> u64 {
        self.calls.iter().sum()
    }
}

impl Load {
    /// Bytes of all steps of a process.
    pub fn bytes(&self) -> u64 {
        self.outputs.iter().map(Output::bytes).sum()
    }

    /// The directory a process writes to.
    pub fn target(&self, rank: u32) -> u32 {
        rank % self.targets.max(1)
    }

    fn call_bytes_max(&self) -> u64 {
        self.outputs.iter().flat_map(|output| &output.calls).copied().max().unwrap_or(0)
    }

    fn call_count(&self) -> u64 {
        self.outputs.iter().map(|output| output.calls.len() as u64).sum()
    }
}

/// An amount of bytes scaled and rounded to whole blocks, at least one.
pub fn scaled(bytes: u64, scale: f64) -> u64 {
    ((bytes as f64 * scale / BLOCK_BYTES as f64).round() as u64).max(1) * BLOCK_BYTES
}

/// The part of one process.
pub struct LoadTask {
    load: Load,
    rank: u32,
    dir: PathBuf,
    /// The data of all calls: each begins a block after the one before it, so that no two calls
    /// write the same.
    buf: Vec<u8>,
    /// Where the aligned part of `buf` begins.
    start: usize,
}

impl LoadTask {
    /// The part of process `rank` below `dir`.
    pub fn new(load: Load, rank: u32, dir: &str) -> LoadTask {
        let dir = Path::new(dir).join(format!("t{}", load.target(rank)));
        LoadTask { load, rank, dir, buf: Vec::new(), start: 0 }
    }

    fn path(&self, file: u32) -> PathBuf {
        self.dir.join(format!("out.{:08}.{file}", self.rank))
    }

    /// Makes the data. Not part of what is measured.
    fn prepare(&mut self) -> Result<()> {
        let bytes = self.load.call_bytes_max() + self.load.call_count() * BLOCK_BYTES;
        let count = usize::try_from(bytes + BLOCK_BYTES)
            .map_err(|_| Error::new(Code::NoMem, "the calls do not fit this machine's memory"))?;
        let mut buf: Vec<u8> = Vec::new();
        buf.try_reserve_exact(count).map_err(|_| {
            let text = format!("no memory for calls of {}", types::size::format(bytes));
            Error::new(Code::NoMem, text)
        })?;
        buf.resize(count, 0);
        let start = buf.as_ptr().align_offset(BLOCK_BYTES as usize).min(BLOCK_BYTES as usize);
        let seed = verify::file_seed(self.load.seed, u64::from(self.rank));
        verify::fill(seed, 0, &mut buf[start..]);
        (self.buf, self.start) = (buf, start);
        Ok(())
    }

    /// Carries out a step, from opening its file to closing it.
    fn write(&mut self, at: usize) -> Result<Work> {
        let Some(output) = self.load.outputs.get(at) else {
            return Err(Error::new(Code::Proto, "a step that the load does not have"));
        };
        let path = self.path(output.file);
        let failed = |doing: &str, error| Error::io(format!("{doing} {}", path.display()), error);
        let mut options = File::options();
        options.append(true).create(true);
        if output.fresh {
            // Not `truncate`, which does not go with appending: the file is another one.
            remove_if_there(&path)?;
        }
        if self.load.direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let mut file = options.open(&path).map_err(|error| failed("opening", error))?;
        let first: usize = self.load.outputs[..at].iter().map(|output| output.calls.len()).sum();
        let mut ops = 0;
        for (call, &bytes) in output.calls.iter().enumerate() {
            let begin = self.start + (first + call) * BLOCK_BYTES as usize;
            let mut data = &self.buf[begin..begin + bytes as usize];
            while !data.is_empty() {
                match file.write(data) {
                    Ok(0) => {
                        let error = std::io::Error::from(std::io::ErrorKind::WriteZero);
                        return Err(failed("writing", error));
                    }
                    Ok(count) => data = &data[count..],
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(failed("writing", error)),
                }
            }
            ops += 1;
        }
        if self.load.fsync {
            file.sync_all().map_err(|error| failed("syncing", error))?;
        }
        Ok(Work { ops, bytes: output.bytes() })
    }

    /// Reads all files back and compares. `Csum` when something differs.
    fn check(&self) -> Result<Work> {
        let mut work = Work::default();
        let mut call = 0;
        let mut files: Vec<(u32, File)> = Vec::new();
        let seed = verify::file_seed(self.load.seed, u64::from(self.rank));
        let mut buf = vec![0; 1 << 20];
        for (at, output) in self.load.outputs.iter().enumerate() {
            let later = &self.load.outputs[at + 1..];
            if later.iter().any(|other| other.fresh && other.file == output.file) {
                call += output.calls.len() as u64;
                continue;
            }
            let path = self.path(output.file);
            let failed = |error| Error::io(format!("reading {}", path.display()), error);
            if !files.iter().any(|(file, _)| *file == output.file) {
                files.push((output.file, File::open(&path).map_err(failed)?));
            }
            let Some((_, file)) = files.iter_mut().find(|(file, _)| *file == output.file) else {
                continue;
            };
            for &bytes in &output.calls {
                let mut done = 0;
                while done < bytes {
                    let count = (bytes - done).min(buf.len() as u64) as usize;
                    file.read_exact(&mut buf[..count]).map_err(failed)?;
                    let offset = call * BLOCK_BYTES + done;
                    if let Some(wrong) = verify::check(seed, offset, &buf[..count]) {
                        let text = format!(
                            "{}: data differ, first {} bytes into call {call}",
                            path.display(),
                            wrong.offset - call * BLOCK_BYTES,
                        );
                        return Err(Error::new(Code::Csum, text));
                    }
                    done += count as u64;
                }
                work.ops += 1;
                work.bytes += bytes;
                call += 1;
            }
        }
        for (number, mut file) in files {
            if file.read(&mut buf[..1]).map_err(|error| Error::io("reading", error))? != 0 {
                let text = format!("{}: longer than what was written", self.path(number).display());
                return Err(Error::new(Code::Csum, text));
            }
        }
        Ok(work)
    }

    fn remove(&self) -> Result<()> {
        let mut files: Vec<u32> = self.load.outputs.iter().map(|output| output.file).collect();
        files.sort_unstable();
        files.dedup();
        files.into_iter().try_for_each(|file| remove_if_there(&self.path(file)))
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(format!("removing {}", path.display()), error))
        }
        _ => Ok(()),
    }
}

impl Task for LoadTask {
    /// Of a step, `iteration` says which output.
    fn run(&mut self, step: &Step, _wall: &mut dyn FnMut(u64) -> Result<u64>) -> Result<Work> {
        match step.phase {
            Phase::Prepare => self.prepare().map(|()| Work::default()),
            Phase::Write => self.write(step.iteration as usize),
            Phase::CheckWrite => self.check(),
            Phase::CleanOwn => self.remove().map(|()| Work::default()),
            other => {
                let text = format!("a load has no phase {}", other.name());
                Err(Error::new(Code::Proto, text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        let outputs = vec![
            Output { file: 0, fresh: false, calls: vec![8192, 4096] },
            Output { file: 1, fresh: false, calls: vec![12_288] },
            Output { file: 0, fresh: false, calls: vec![4096] },
        ];
        Load { targets: 2, outputs, direct: false, fsync: true, seed: 5 }
    }

    fn run(task: &mut LoadTask, phase: Phase, iteration: u32) -> Result<Work> {
        let step = Step { phase, iteration, item_count: 0, wall_ns: None };
        task.run(&step, &mut |_| unreachable!("a load has no time limit"))
    }

    #[test]
    fn outputs_are_appended_checked_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("t1")).unwrap();
        let mut task = LoadTask::new(load(), 3, dir.path().to_str().unwrap());
        run(&mut task, Phase::Prepare, 0).unwrap();
        for output in 0..3 {
            let work = run(&mut task, Phase::Write, output).unwrap();
            assert_eq!(work.bytes, load().outputs[output as usize].bytes());
        }
        let path = dir.path().join("t1/out.00000003.0");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 16_384);
        let work = run(&mut task, Phase::CheckWrite, 0).unwrap();
        assert_eq!((work.ops, work.bytes), (4, load().bytes()));
        // Every kind of damage is found: a flipped bit, two calls exchanged, too little, too much.
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[9000] ^= 1;
        let mut exchanged = whole[8192..12_288].to_vec();
        exchanged.extend(&whole[..8192]);
        exchanged.extend(&whole[12_288..]);
        let longer = [&whole[..], b"x"].concat();
        for damaged in [&flipped, &exchanged, &whole[..16_383].to_vec(), &longer] {
            std::fs::write(&path, damaged).unwrap();
            assert!(run(&mut task, Phase::CheckWrite, 0).is_err());
        }
        run(&mut task, Phase::CleanOwn, 0).unwrap();
        run(&mut task, Phase::CleanOwn, 0).unwrap();
        // Begun anew, only what follows is there.
        task.load.outputs[2].fresh = true;
        for output in 0..3 {
            run(&mut task, Phase::Write, output).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
        assert_eq!(run(&mut task, Phase::CheckWrite, 0).unwrap().bytes, 4096 + 12_288);
        run(&mut task, Phase::CleanOwn, 0).unwrap();
        assert_eq!(std::fs::read_dir(dir.path().join("t1")).unwrap().count(), 0);
        assert_eq!(run(&mut task, Phase::Write, 9).err().map(|e| e.code), Some(Code::Proto));
    }

    #[test]
    fn scaled_sizes_are_whole_blocks() {
        assert_eq!(scaled(1_000_000_000, 1.0), 1_000_001_536);
        assert_eq!(scaled(132_000, 0.125), 16_384);
        assert_eq!(scaled(132_000, 1e-9), BLOCK_BYTES);
    }
}
