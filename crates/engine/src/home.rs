//! Which system an engine is in, kept in its directory.
//!
//! An engine that was in a system joins no other one, and begins none: with another catalog before it, by a wrong address
//! or a wrong prefix, it would take part there with data that are of here.

use crate::summed_line;
use std::cell::Cell;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use types::{Code, Error, Result};
use uuid::Uuid;

/// The file's name in the engine's directory.
pub(crate) const FILE: &str = "engine.system";
/// What it is written as first.
pub(crate) const FILE_NEW: &str = "engine.system.new";

/// What an engine knows of its system.
pub(crate) struct Home {
    /// `None` in simulated worlds: known as long as the engine runs.
    dir: Option<PathBuf>,
    system: Cell<Option<Uuid>>,
}

impl Home {
    /// Errors: `Io`; `Inval` for a file that is something else.
    pub fn load(dir: Option<&Path>) -> Result<Home> {
        let system = match dir {
            Some(dir) => read(&dir.join(FILE))?,
            None => None,
        };
        Ok(Home { dir: dir.map(Path::to_path_buf), system: Cell::new(system) })
    }

    /// The system that it is in; `None` when it was in none.
    pub fn system(&self) -> Option<Uuid> {
        self.system.get()
    }

    /// It is in this one from now on.
    pub fn settle(&self, system: Uuid) -> Result<()> {
        if self.system.get() == Some(system) {
            return Ok(());
        }
        if let Some(dir) = &self.dir {
            write(dir, system).map_err(|error| {
                Error::io(format!("writing {}", dir.join(FILE).display()), error)
            })?;
        }
        self.system.set(Some(system));
        Ok(())
    }
}

fn write(dir: &Path, system: Uuid) -> std::io::Result<()> {
    let fresh = dir.join(FILE_NEW);
    let mut file = fs::File::create(&fresh)?;
    file.write_all(summed_line::line(&format!("azekura system 1 {system}")).as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, dir.join(FILE))?;
    fs::File::open(dir)?.sync_all()
}

fn read(path: &Path) -> Result<Option<Uuid>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(format!("reading {}", path.display()), error)),
    };
    let bad = |what: &str| Error::inval(format!("{}: {what}", path.display()));
    let line =
        summed_line::text(&text).map_err(|error| error.context(path.display().to_string()))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["azekura", "system", version, system] = words[..] else {
        return Err(bad("it does not name a system; the directory belongs to something else"));
    };
    if version != "1" {
        let text = format!("{}: written by a newer release; upgrade this one", path.display());
        return Err(Error::new(Code::Version, text));
    }
    system.parse().map(Some).map_err(|_| bad("the system's UUID is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_is_noticed_or_harmless() {
        let dir = tempfile::tempdir().unwrap();
        let system = Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0);
        write(dir.path(), system).unwrap();
        let path = dir.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut raw = whole.clone();
            raw[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, raw).unwrap();
            if let Ok(found) = read(&path) {
                assert_eq!(found, Some(system), "bit {bit}");
            }
        }
    }

    #[test]
    fn an_engine_stays_in_the_system_it_is_in() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::load(Some(dir.path())).unwrap();
        assert_eq!(home.system(), None);
        let system = Uuid::from_u128(7);
        home.settle(system).unwrap();
        home.settle(system).unwrap();
        assert_eq!(Home::load(Some(dir.path())).unwrap().system(), Some(system));
        for (text, code) in [
            ("", Code::Inval),
            ("azekura system 1 x", Code::Inval),
            ("azekura engine 1 00000000-0000-0000-0000-000000000007", Code::Inval),
            ("azekura system 2 00000000-0000-0000-0000-000000000007", Code::Version),
        ] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert_eq!(Home::load(Some(dir.path())).err().unwrap().code, code, "{text}");
        }
    }
}
