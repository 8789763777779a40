//! Somebody who writes, cuts and reads one file here and there, and keeps a copy of what must be in it.

use crate::harness::noise;
use crate::work::{Outcome, Progress, Work, when};
use dfs::sys::Sys;
use dfs::{CreateOptions, Obj, OpenFlags};
use env::Rng;
use std::time::Duration;
use types::Code;

const NAME: &[u8] = b"/blocks";
const BYTES_MAX: u64 = 5 << 20;

/// One user of one file.
pub struct Blocks<'a> {
    work: &'a Work<'a>,
    cont: &'a str,
    client: client::Client,
    sys: Sys,
    file: Obj,
    /// What must be in it.
    pub known: Vec<u8>,
}

impl<'a> Blocks<'a> {
    pub fn new(work: &'a Work<'a>, cont: &'a str, known: Vec<u8>) -> Outcome<Blocks<'a>> {
        let (client, sys) = work.mount(cont)?;
        let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE;
        let opened = client.block_on(sys.open(NAME, flags, 0o644, &CreateOptions::default()));
        let file = opened.map_err(when(|| format!("{cont}: opening a file")))?;
        Ok(Blocks { work, cont, client, sys, file, known })
    }

    /// Goes on until it is enough.
    pub fn run(&mut self, number: u64, progress: &Progress) -> Outcome {
        let rng = Rng::new(types::hash::mix2(self.work.plan.seed, number));
        while !self.work.is_over() {
            self.step(&rng)?;
            progress.step();
            std::thread::sleep(Duration::from_millis(rng.below(50)));
        }
        Ok(())
    }

    fn step(&mut self, rng: &Rng) -> Outcome {
        let size = self.known.len() as u64;
        let (at, bytes) = match rng.below(4) {
            0 => (rng.below(BYTES_MAX >> 18) << 18, 1 << 18),
            1 => (rng.below(BYTES_MAX), 1 + rng.below(200_000)),
            2 => (rng.below(BYTES_MAX), 1 + rng.below(3_000)),
            _ => (rng.below(BYTES_MAX >> 12) << 12, 4096 * (1 + rng.below(8))),
        };
        match rng.below(20) {
            0..9 => self.write(at, noise(rng.next_u64(), bytes as usize)),
            9..17 => self.read(at.min(size), bytes * 4),
            17 => self.cut(rng.below(size + BYTES_MAX / 8)),
            _ => self.punch(at.min(size), bytes),
        }
    }

    fn failed(&self, what: String) -> impl FnOnce(types::Error) -> String {
        let cont = self.cont.to_string();
        move |error| format!("{cont}: {what}: {error}")
    }

    fn write(&mut self, at: u64, data: Vec<u8>) -> Outcome {
        let written = self.client.block_on(self.sys.fs().write(&self.file, at, &data));
        let (from, end) = (at as usize, at as usize + data.len());
        match written {
            Ok(count) if count == data.len() => {
                self.grow(end);
                self.known[from..end].copy_from_slice(&data);
                Ok(())
            }
            Ok(count) => Err(format!("{}: {count} of {} bytes written", self.cont, data.len())),
            Err(error) if error.code == Code::NoSpace && self.work.was_full() => {
                let found = self.all()?;
                self.partly_done("a write", found, from, &data)
            }
            Err(error) => {
                Err(format!("{}: writing {} bytes at {at}: {error}", self.cont, data.len()))
            }
        }
    }

    fn grow(&mut self, bytes: usize) {
        if self.known.len() < bytes {
            self.known.resize(bytes, 0);
        }
    }

    /// What is there after something for which there was no room: some of it may be done, and nothing else. The file is as long as it was.
    fn partly_done(&mut self, what: &str, found: Vec<u8>, from: usize, wanted: &[u8]) -> Outcome {
        let (cont, known) = (self.cont, &self.known);
        if found.len() != known.len() {
            let (found, known) = (found.len(), known.len());
            return Err(format!("{cont}: {what} without room leaves {found} bytes of {known}"));
        }
        let is_new = |at: usize| at >= from && wanted.get(at - from) == Some(&found[at]);
        let wrong = (0..found.len()).filter(|at| found[*at] != known[*at] && !is_new(*at));
        let wrong: Vec<usize> = wrong.collect();
        if let (Some(first), Some(last)) = (wrong.first(), wrong.last()) {
            let zeros = wrong.iter().filter(|at| found[**at] == 0).count();
            return Err(format!(
                "{cont}: after {what} of {} bytes at {from} without room {} bytes from {first} to {last} are wrong, \
                 {zeros} of them zero",
                wanted.len(),
                wrong.len()
            ));
        }
        self.known = found;
        Ok(())
    }

    fn all(&self) -> Outcome<Vec<u8>> {
        let size = self.client.block_on(self.sys.fs().size(&self.file));
        let size = size.map_err(self.failed("the size".into()))?;
        self.bytes(0, size)
    }

    fn bytes(&self, at: u64, bytes: u64) -> Outcome<Vec<u8>> {
        let mut found = vec![0xee; bytes as usize];
        let count = self.client.block_on(self.sys.fs().read(&self.file, at, &mut found));
        let count = count.map_err(self.failed(format!("reading {bytes} bytes at {at}")))?;
        found.truncate(count);
        Ok(found)
    }

    fn read(&self, at: u64, bytes: u64) -> Outcome {
        let found = self.bytes(at, bytes)?;
        let end = self.known.len().min((at + bytes) as usize);
        self.same(&found, &self.known[at as usize..end], at)
    }

    fn same(&self, found: &[u8], wanted: &[u8], at: u64) -> Outcome {
        if found == wanted {
            return Ok(());
        }
        let differs = found.iter().zip(wanted).position(|(a, b)| a != b);
        let differ = found.iter().zip(wanted).filter(|(a, b)| a != b).count();
        let differs = differs.map(|place| place as u64 + at);
        Err(format!(
            "{}: {} bytes at {at} where {} were written; {differ} differ, the first at {differs:?}",
            self.cont,
            found.len(),
            wanted.len()
        ))
    }

    fn cut(&mut self, size: u64) -> Outcome {
        match self.client.block_on(self.sys.fs().truncate(&self.file, size)) {
            Ok(()) => self.known.resize(size as usize, 0),
            // Done or not: the size first, and then the times, for which there may be no room.
            Err(error) if error.code == Code::NoSpace && self.work.was_full() => {
                let found = self.all()?;
                if found.len() == size as usize {
                    self.known.resize(size as usize, 0);
                }
                self.same(&found, &self.known, 0)?;
            }
            Err(error) => return Err(format!("{}: cutting to {size}: {error}", self.cont)),
        }
        Ok(())
    }

    fn punch(&mut self, at: u64, bytes: u64) -> Outcome {
        match self.client.block_on(self.sys.fs().punch_hole(&self.file, at, bytes)) {
            Ok(()) => {
                let end = self.known.len().min((at + bytes) as usize);
                self.known[at as usize..end].fill(0);
                Ok(())
            }
            Err(error) if error.code == Code::NoSpace && self.work.was_full() => {
                let found = self.all()?;
                let bytes = bytes.min(found.len() as u64 - at);
                self.partly_done("a hole", found, at as usize, &vec![0; bytes as usize])
            }
            Err(error) => Err(format!("{}: a hole of {bytes} at {at}: {error}", self.cont)),
        }
    }

    /// Compares all there is with what must be there.
    pub fn compare(&self) -> Outcome {
        self.same(&self.all()?, &self.known, 0)
    }
}
