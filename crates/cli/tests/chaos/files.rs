//! Somebody who makes, reads, moves and removes files, and knows what must be there.

use crate::harness::noise;
use crate::work::{Outcome, Progress, Work, when};
use dfs::sys::Sys;
use dfs::{CreateOptions, OpenFlags, RenameFlags};
use env::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Code, Result};

/// Names that a file may have.
const NAMES: u64 = 40;
const DIRS: u64 = 6;

/// What must be there.
#[derive(Default)]
pub struct Model {
    dirs: BTreeSet<String>,
    /// File by name; several names may have the same.
    names: BTreeMap<String, u64>,
    /// Seed and length of what is in it.
    contents: BTreeMap<u64, (u64, usize)>,
    next: u64,
}

/// One user of a container.
pub struct Files<'a> {
    work: &'a Work<'a>,
    cont: &'a str,
    client: client::Client,
    sys: Sys,
    pub model: Model,
}

impl<'a> Files<'a> {
    pub fn new(work: &'a Work<'a>, cont: &'a str, model: Model) -> Outcome<Files<'a>> {
        let (client, sys) = work.mount(cont)?;
        Ok(Files { work, cont, client, sys, model })
    }

    /// Goes on until it is enough.
    pub fn run(&mut self, number: u64, progress: &Progress) -> Outcome {
        let rng = Rng::new(types::hash::mix2(self.work.plan.seed, number));
        self.expect("mkdir /files", None, async |sys| sys.mkdir(b"/files", 0o755).await)?;
        self.model.dirs.insert("/files".into());
        while !self.work.is_over() {
            self.step(&rng)?;
            progress.step();
            std::thread::sleep(Duration::from_millis(rng.below(40)));
        }
        Ok(())
    }

    /// Does a call that must end so: well, or with a code. False: there was no room, and nothing is done.
    fn expect(
        &self,
        what: &str,
        code: Option<Code>,
        call: impl AsyncFn(&Sys) -> Result<()>,
    ) -> Outcome<bool> {
        let outcome = self.client.block_on(call(&self.sys));
        match (outcome, code) {
            (Ok(()), None) => Ok(true),
            (Err(error), Some(code)) if error.code == code => Ok(true),
            (Err(error), _) if error.code == Code::NoSpace && self.work.was_full() => Ok(false),
            (outcome, code) => {
                Err(format!("{}: {what}: {outcome:?}, expected {code:?}", self.cont))
            }
        }
    }

    fn dir(&self, rng: &Rng) -> String {
        let at = rng.below(self.model.dirs.len() as u64) as usize;
        self.model.dirs.iter().nth(at).cloned().unwrap_or_default()
    }

    /// A name in a directory that is there; it may be taken by a file.
    fn name(&self, rng: &Rng) -> String {
        format!("{}/f{}", self.dir(rng), rng.below(NAMES))
    }

    /// The name of a file that is there.
    fn taken(&self, rng: &Rng) -> Option<String> {
        let count = self.model.names.len() as u64;
        let at = (count > 0).then(|| rng.below(count) as usize)?;
        self.model.names.keys().nth(at).cloned()
    }

    fn step(&mut self, rng: &Rng) -> Outcome {
        match rng.below(16) {
            0..5 => self.write(rng),
            5..8 => match self.taken(rng) {
                Some(name) => self.read(&name),
                None => Ok(()),
            },
            8 | 9 => self.rename(rng),
            10 => self.link(rng),
            11 | 12 => self.unlink(rng),
            13 => self.make_dir(rng),
            14 => self.list(&self.dir(rng)),
            _ => self.create_again(rng),
        }
    }

    fn write(&mut self, rng: &Rng) -> Outcome {
        let name = self.name(rng);
        let bytes = match rng.below(60) {
            0 if !self.work.plan.is_smoke => 5_300_000,
            1 | 2 => 1_300_000,
            _ => [0, 10, 700, 5_000, 70_000, 300_000][rng.below(6) as usize],
        };
        let (seed, path) = (rng.next_u64(), name.as_bytes());
        let data = noise(seed, bytes);
        let what = format!("writing {bytes} bytes to {name}");
        let written =
            self.expect(&what, None, async |sys| sys.write_file(path, &data, 0o644).await)?;
        if !written {
            // What is there is not known: it goes, under all its names, and there is always room for that.
            let file = self.model.names.get(&name).copied();
            let mut all: Vec<String> = vec![name];
            let same = self.model.names.iter().filter(|(_, other)| Some(**other) == file);
            all.extend(same.map(|(name, _)| name.clone()));
            return all.iter().try_for_each(|name| self.remove(name));
        }
        let file = match self.model.names.get(&name) {
            Some(file) => *file,
            None => {
                self.model.next += 1;
                self.model.next
            }
        };
        self.model.names.insert(name, file);
        self.model.contents.insert(file, (seed, bytes));
        Ok(())
    }

    /// Removes a name that may be there.
    fn remove(&mut self, name: &str) -> Outcome {
        self.model.names.remove(name);
        match self.client.block_on(self.sys.unlink(name.as_bytes())) {
            Err(error) if error.code != Code::NonExist => {
                Err(format!("{}: removing {name}, half written: {error}", self.cont))
            }
            _ => Ok(()),
        }
    }

    fn read(&self, name: &str) -> Outcome {
        let (seed, bytes) = self.model.contents[&self.model.names[name]];
        let found = self.client.block_on(self.sys.read_file(name.as_bytes()));
        let found = found.map_err(when(|| format!("{}: reading {name}", self.cont)))?;
        let wanted = noise(seed, bytes);
        if found == wanted {
            return Ok(());
        }
        let differs = found.iter().zip(&wanted).position(|(a, b)| a != b);
        Err(format!(
            "{}: {name} has {} bytes, written were {bytes}; the first that differs is {differs:?}",
            self.cont,
            found.len()
        ))
    }

    fn rename(&mut self, rng: &Rng) -> Outcome {
        let Some(from) = self.taken(rng) else { return Ok(()) };
        let to = self.name(rng);
        let (old, new) = (from.as_bytes(), to.as_bytes());
        let done = self.expect(&format!("renaming {from} to {to}"), None, async |sys| {
            sys.rename(old, new, RenameFlags::NONE).await
        })?;
        let file = self.model.names[&from];
        // Two names of one file stay both.
        if done && self.model.names.get(&to) != Some(&file) {
            self.model.names.remove(&from);
            self.model.names.insert(to, file);
        }
        Ok(())
    }

    fn link(&mut self, rng: &Rng) -> Outcome {
        let Some(from) = self.taken(rng) else { return Ok(()) };
        let to = self.name(rng);
        let code = self.model.names.contains_key(&to).then_some(Code::Exist);
        let (old, new) = (from.as_bytes(), to.as_bytes());
        let done = self.expect(&format!("linking {from} to {to}"), code, async |sys| {
            sys.link(old, new).await
        })?;
        if done && code.is_none() {
            let file = self.model.names[&from];
            self.model.names.insert(to, file);
        }
        Ok(())
    }

    fn unlink(&mut self, rng: &Rng) -> Outcome {
        let name = match rng.below(4) {
            0 => self.name(rng),
            _ => self.taken(rng).unwrap_or_else(|| self.name(rng)),
        };
        let code = (!self.model.names.contains_key(&name)).then_some(Code::NonExist);
        let path = name.as_bytes();
        if self.expect(&format!("removing {name}"), code, async |sys| sys.unlink(path).await)? {
            self.model.names.remove(&name);
        }
        Ok(())
    }

    fn make_dir(&mut self, rng: &Rng) -> Outcome {
        let name = format!("/files/d{}", rng.below(DIRS));
        let path = name.as_bytes();
        if !self.model.dirs.contains(&name) {
            let made = self
                .expect(&format!("mkdir {name}"), None, async |sys| sys.mkdir(path, 0o755).await)?;
            if made {
                self.model.dirs.insert(name);
            }
            return Ok(());
        }
        let below = format!("{name}/");
        let is_empty = !self.model.names.keys().any(|name| name.starts_with(&below));
        let code = (!is_empty).then_some(Code::NotEmpty);
        let done =
            self.expect(&format!("rmdir {name}"), code, async |sys| sys.rmdir(path).await)?;
        if done && is_empty {
            self.model.dirs.remove(&name);
        }
        Ok(())
    }

    /// Makes a file that must not be there.
    fn create_again(&mut self, rng: &Rng) -> Outcome {
        let name = self.name(rng);
        let code = self.model.names.contains_key(&name).then_some(Code::Exist);
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCL;
        let path = name.as_bytes();
        let done = self.expect(&format!("making {name}"), code, async |sys| {
            sys.open(path, flags, 0o644, &CreateOptions::default()).await.map(|_| ())
        })?;
        if done && code.is_none() {
            self.model.next += 1;
            self.model.names.insert(name, self.model.next);
            self.model.contents.insert(self.model.next, (0, 0));
        }
        Ok(())
    }

    fn list(&self, dir: &str) -> Outcome {
        let found = self.client.block_on(self.sys.list(dir.as_bytes()));
        let found = found.map_err(when(|| format!("{}: listing {dir}", self.cont)))?;
        let found: BTreeSet<String> =
            found.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
        let below = format!("{dir}/");
        let all = self.model.names.keys().chain(&self.model.dirs);
        let names = all.filter_map(|name| name.strip_prefix(&below));
        let wanted: BTreeSet<String> =
            names.filter(|name| !name.contains('/')).map(str::to_string).collect();
        if found == wanted {
            return Ok(());
        }
        let missing: Vec<_> = wanted.difference(&found).collect();
        let beyond: Vec<_> = found.difference(&wanted).collect();
        Err(format!("{}: {dir} lacks {missing:?}, and has {beyond:?} beyond", self.cont))
    }

    /// Compares all there is with what must be there.
    pub fn compare(&self) -> Outcome {
        self.model.dirs.iter().try_for_each(|dir| self.list(dir))?;
        self.model.names.keys().try_for_each(|name| self.read(name))
    }
}
