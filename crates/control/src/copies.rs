//! The two files that hold the catalog, and which of them to believe.
//!
//! A commit is written and synced to the first file, then to the second, then acknowledged. So of
//! what was acknowledged both hold all, and a crash leaves at most one commit more, or part of
//! one, at the end of one of them. That tells what a crash cut off from damage, as long as
//! only one of the files is damaged: a commit that the other file holds is taken from it, and
//! one that neither holds whole was acknowledged only if both are damaged there.

use crate::frame::{self, Found};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use types::{Code, Error, Result};

/// Two files, numbers 0 and 1.
pub trait CatalogFiles {
    /// How to call a file in messages.
    fn name(&self, copy: usize) -> String;
    /// All of a file; `None` when it is not there.
    fn read(&self, copy: usize) -> io::Result<Option<Vec<u8>>>;
    /// Writes at a byte offset; durable after [`CatalogFiles::sync`].
    fn write(&self, copy: usize, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes all that was written to a file durable.
    fn sync(&self, copy: usize) -> io::Result<()>;
    /// Replaces a file, durably; after a crash there is the old or the new one.
    fn replace(&self, copy: usize, bytes: &[u8]) -> io::Result<()>;
}

/// What two files together hold.
#[derive(Debug)]
pub struct Chosen {
    /// Which of them to believe; `None`: there is no catalog yet.
    pub copy: Option<usize>,
    pub found: Found,
    /// Where the last whole frame of each file ends, bytes; `None`: it has none.
    pub ends: [Option<usize>; 2],
    /// Each file holds all of it.
    pub complete: [bool; 2],
    /// What is wrong with the other one, or with both, though nothing is lost.
    pub notes: Vec<String>,
}

/// Chooses between the contents of two files.
///
/// `Csum` when something that was acknowledged may be in neither; `Version` when one is of another
/// version.
pub fn choose(names: [&str; 2], raw: [Option<&[u8]>; 2]) -> Result<Chosen> {
    let mut found = [None, None];
    for (copy, raw) in raw.into_iter().enumerate() {
        let named = |error: Error| error.context(names[copy]);
        found[copy] = raw.map(frame::read).transpose().map_err(named)?;
    }
    let mut notes = Vec::new();
    let [first, second] = &found;
    if first.is_none() && second.is_none() {
        return Ok(Chosen {
            copy: None,
            found: Found::default(),
            ends: [None; 2],
            complete: [false; 2],
            notes,
        });
    }
    let revision = |found: &Option<Found>| found.as_ref().and_then(|found| found.revision);
    let best = (revision(second) > revision(first)) as usize;
    let lost = |why: String| {
        let text = format!(
            "the catalog is damaged: {why}; nothing was changed: restore {} or {}",
            names[0], names[1]
        );
        Err(Error::new(Code::Csum, text))
    };
    let [chosen, other] = if best == 0 { [first, second] } else { [second, first] };
    let Some(chosen) = chosen else { return lost("it cannot be read".into()) };
    let Some(last) = chosen.revision else {
        return lost(format!("{} does not begin with a catalog", names[best]));
    };
    let at = |copy: usize, end: usize| format!("{}, byte {end}", names[copy]);
    match other {
        None if !chosen.clean => {
            return lost(format!("{}, and there is no other copy", at(best, chosen.end)));
        }
        None => notes.push(format!("{} is missing", names[1 - best])),
        Some(other) => {
            // Behind its last commit the chosen one holds what was cut off, or damage. It was
            // cut off if the other one, which is whole, does not know of it.
            let behind = other.revision.is_none_or(|revision| revision + 1 < last);
            if !chosen.clean && (!other.clean || behind) {
                return lost(format!("{} and {}", at(best, chosen.end), at(1 - best, other.end)));
            }
            if other.revision != Some(last) {
                let end = at(1 - best, other.end);
                notes.push(format!("{end}: cut off or damaged; taken from {}", names[best]));
            }
        }
    }
    let end = |found: &Option<Found>| {
        found.as_ref().filter(|found| found.revision.is_some()).map(|found| found.end)
    };
    let ends = [end(first), end(second)];
    let complete = [revision(first) == Some(last), revision(second) == Some(last)];
    let found = found.into_iter().nth(best).flatten().unwrap_or_default();
    Ok(Chosen { copy: Some(best), found, ends, complete, notes })
}

/// Two files of a directory.
#[derive(Debug)]
pub struct RealFiles {
    paths: [PathBuf; 2],
    open: Mutex<[Option<File>; 2]>,
    /// Held while they are open.
    _lock: File,
}

/// Nobody but the owner: attributes may say more than others should read.
const MODE: u32 = 0o600;

impl RealFiles {
    /// The files `PATH.0` and `PATH.1`. `Busy` when somebody has them open.
    pub fn open(path: &Path) -> Result<RealFiles> {
        let with = |end: &str| PathBuf::from(format!("{}.{end}", path.display()));
        let lock_path = with("lock");
        let failed = |path: &Path, error| Error::io(format!("catalog {}", path.display()), error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(MODE);
        let lock = options.open(&lock_path).map_err(|error| failed(&lock_path, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(Error::new(
                    Code::Busy,
                    format!(
                        "catalog {} is in use by another engine; stop that engine or use another \
                         directory",
                        path.display()
                    ),
                ));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(&lock_path, error)),
        }
        let paths = [with("0"), with("1")];
        let older = with("redb");
        if older.exists() && !paths.iter().any(|path| path.exists()) {
            return Err(Error::new(
                Code::Version,
                format!(
                    "catalog {} is of an earlier release, which reads it; this one has another \
                     format: copy the data out with that release",
                    older.display()
                ),
            ));
        }
        // Of another user's files this may not be changed, whoever may write them.
        let is_open = |path: &&PathBuf| {
            std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o777 != MODE)
        };
        for path in paths.iter().filter(is_open) {
            let private = std::fs::set_permissions(path, Permissions::from_mode(MODE));
            private.map_err(|error| failed(path, error))?;
        }
        Ok(RealFiles { paths, open: Mutex::default(), _lock: lock })
    }

    fn with<R>(&self, copy: usize, run: impl FnOnce(&File) -> io::Result<R>) -> io::Result<R> {
        let mut open = self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if open[copy].is_none() {
            open[copy] = Some(OpenOptions::new().write(true).open(&self.paths[copy])?);
        }
        match &open[copy] {
            Some(file) => run(file),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl CatalogFiles for RealFiles {
    fn name(&self, copy: usize) -> String {
        self.paths[copy].display().to_string()
    }

    fn read(&self, copy: usize) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(&self.paths[copy]) {
            Ok(raw) => Ok(Some(raw)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, copy: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(copy, |file| file.write_all_at(bytes, offset))
    }

    fn sync(&self, copy: usize) -> io::Result<()> {
        self.with(copy, File::sync_data)
    }

    fn replace(&self, copy: usize, bytes: &[u8]) -> io::Result<()> {
        let path = &self.paths[copy];
        let new = PathBuf::from(format!("{}.new", path.display()));
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&new)?;
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        let mut open = self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        open[copy] = Some(file);
        Ok(())
    }
}
