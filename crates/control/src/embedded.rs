//! The catalog in memory, and in two files of one machine (see `copies` and `frame`).
//!
//! A commit is one frame appended to both files. When they have grown to several times what they
//! hold, they are replaced by the whole. They keep some room ahead, so that what makes room on a
//! full file system (removing a pool) can be committed.
//!
//! Assumed of the disk: what was synced stays, and a write that was not synced may be lost or
//! torn but touches nothing else.

use crate::catalog::{Catalog, Change, Compare, Revision, Versioned};
use crate::copies::{CatalogFiles, RealFiles, choose};
use crate::frame::{self, Entries};
use futures_util::future::{LocalBoxFuture, ready};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::Path;
use types::{Code, Error, Result};

/// Zeros kept behind the last commit, at least this; files grow by twice as much, bytes.
const ROOM_BYTES: u64 = 32 << 10;
/// Files larger than this and than so many times what they hold are written anew, bytes.
const GARBAGE_BYTES_MIN: u64 = 256 << 10;
const GARBAGE_FACTOR: u64 = 4;

/// A catalog in two files, or in memory. One process opens it at a time.
pub struct EmbeddedCatalog {
    files: Option<Box<dyn CatalogFiles>>,
    state: RefCell<Contents>,
}

#[derive(Default)]
struct Contents {
    entries: Entries,
    revision: u64,
    copies: [Place; 2],
    /// Bytes of a whole catalog when one was last written.
    whole_bytes: u64,
    /// Why nothing more is committed.
    failed: Option<Error>,
}

/// How far a file is written.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Where the next commit goes, bytes.
    end: u64,
    /// Length with the zeros behind, bytes.
    bytes: u64,
}

impl EmbeddedCatalog {
    /// Opens the files `PATH.0` and `PATH.1`, or makes a new catalog if there are none.
    ///
    /// Fails with `Busy` when it is open already (here or in another process), `Version` when
    /// another version of this program wrote it, `Csum` when both files are damaged, `Io` or
    /// `NoSpace` otherwise. One damaged file is written anew from the other.
    pub fn open(path: &Path) -> Result<EmbeddedCatalog> {
        EmbeddedCatalog::on_files(Box::new(RealFiles::open(path)?))
    }

    /// A catalog that lives in memory and ends with this value, for simulations.
    pub fn in_memory() -> Result<EmbeddedCatalog> {
        Ok(EmbeddedCatalog { files: None, state: RefCell::default() })
    }

    /// A catalog on files of the caller's making, for simulations and fault injection. Errors as
    /// [`EmbeddedCatalog::open`].
    pub fn on_files(files: Box<dyn CatalogFiles>) -> Result<EmbeddedCatalog> {
        let names = [files.name(0), files.name(1)];
        let names = [names[0].as_str(), names[1].as_str()];
        let mut raw = [None, None];
        for (copy, raw) in raw.iter_mut().enumerate() {
            *raw = files.read(copy).map_err(|error| failed(names[copy], error))?;
        }
        let chosen = choose(names, [raw[0].as_deref(), raw[1].as_deref()])?;
        for note in &chosen.notes {
            tracing::warn!("catalog: {note}");
        }
        let mut state = Contents {
            entries: chosen.found.entries,
            revision: chosen.found.revision.unwrap_or(0),
            ..Contents::default()
        };
        let catalog = EmbeddedCatalog { files: Some(files), state: RefCell::default() };
        let Some(best) = chosen.copy else {
            for copy in [0, 1] {
                catalog.rewrite(&mut state, copy)?;
            }
            catalog.state.replace(state);
            return Ok(catalog);
        };
        state.whole_bytes = frame::encode_whole(state.revision, &state.entries)?.len() as u64;
        let good = raw[best].take().unwrap_or_default();
        for copy in [best, 1 - best] {
            let content = if copy == best { Some(&good) } else { raw[copy].as_ref() };
            match (content, chosen.ends[copy]) {
                (Some(content), Some(end)) => {
                    let (missing, whole_end) = match chosen.complete[copy] {
                        true => (&good[..0], end),
                        false => (&good[end..chosen.found.end], chosen.found.end),
                    };
                    // Over what was cut off or damaged, in place: it takes no room.
                    if !chosen.complete[copy] && content[..end] != good[..end] {
                        catalog.rewrite(&mut state, copy)?;
                        continue;
                    }
                    let rest = content.get(whole_end..).unwrap_or_default();
                    if !missing.is_empty() || rest.iter().any(|byte| *byte != 0) {
                        let tail = [missing, &vec![0; rest.len()]].concat();
                        catalog.write(copy, end as u64, &tail)?;
                    }
                    let bytes = content.len().max(whole_end) as u64;
                    state.copies[copy] = Place { end: whole_end as u64, bytes };
                }
                _ => catalog.rewrite(&mut state, copy)?,
            }
        }
        catalog.state.replace(state);
        Ok(catalog)
    }

    fn write(&self, copy: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some(files) = &self.files else { return Ok(()) };
        files
            .write(copy, offset, bytes)
            .and_then(|()| files.sync(copy))
            .map_err(|error| failed(&files.name(copy), error))
    }

    /// Replaces a file by the whole catalog.
    fn rewrite(&self, state: &mut Contents, copy: usize) -> Result<()> {
        let Some(files) = &self.files else { return Ok(()) };
        let mut raw = frame::encode_whole(state.revision, &state.entries)?;
        let end = raw.len() as u64;
        raw.resize(raw.len() + 2 * ROOM_BYTES as usize, 0);
        files.replace(copy, &raw).map_err(|error| failed(&files.name(copy), error))?;
        state.copies[copy] = Place { end, bytes: raw.len() as u64 };
        state.whole_bytes = end;
        Ok(())
    }

    /// The same over the file itself, which takes no room. The other file holds everything until it
    /// is done.
    fn rewrite_in_place(&self, state: &mut Contents, copy: usize) -> Result<()> {
        let mut raw = frame::encode_whole(state.revision, &state.entries)?;
        let end = raw.len() as u64;
        let Place { bytes, .. } = state.copies[copy];
        if end + ROOM_BYTES > bytes {
            return Ok(());
        }
        raw.resize(bytes as usize, 0);
        self.write(copy, 0, &raw)?;
        state.copies[copy].end = end;
        state.whole_bytes = end;
        Ok(())
    }

    /// Appends a commit to both files.
    fn append(&self, state: &mut Contents, raw: &[u8]) -> Result<()> {
        let Some(files) = &self.files else { return Ok(()) };
        let bytes = raw.len() as u64;
        for copy in [0, 1] {
            // Room that is lacking is found before anything of the commit is written.
            let place = &mut state.copies[copy];
            if place.end + bytes > place.bytes {
                grow(&**files, copy, place, bytes)?;
            }
        }
        for copy in [0, 1] {
            let place = &mut state.copies[copy];
            if let Err(error) = self.write(copy, place.end, raw) {
                // What the files hold is not known any more.
                state.failed = Some(error.clone());
                return Err(error);
            }
            place.end += bytes;
        }
        Ok(())
    }

    /// After a commit: makes the files small again when they are mostly garbage, and keeps room.
    fn tidy(&self, state: &mut Contents) {
        let Some(files) = &self.files else { return };
        let grown = state.copies.iter().map(|place| place.end).max().unwrap_or(0);
        let due = grown > GARBAGE_BYTES_MIN && grown > GARBAGE_FACTOR * state.whole_bytes;
        for copy in [0, 1] {
            if due && let Err(error) = self.rewrite(state, copy) {
                tracing::warn!("catalog: {error}");
                if error.code != Code::NoSpace {
                    // It may have happened or not, and commits must go to the file that counts.
                    state.failed = Some(error);
                    return;
                }
            }
            let place = &mut state.copies[copy];
            // When there is no room there is still what was kept, and what is garbage in it.
            if place.end + ROOM_BYTES > place.bytes
                && grow(&**files, copy, place, ROOM_BYTES).is_err()
                && place.end > GARBAGE_FACTOR * state.whole_bytes
                && let Err(error) = self.rewrite_in_place(state, copy)
            {
                tracing::warn!("catalog: {error}");
                state.failed = Some(error);
                return;
            }
        }
    }

    fn commit_now(&self, compares: &[Compare], changes: &[Change]) -> Result<bool> {
        let state = &mut *self.state.borrow_mut();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        for compare in compares {
            let found = state.entries.get(&compare.key);
            if found.map_or(Revision::ABSENT, |entry| entry.revision) != compare.revision {
                return Ok(false);
            }
        }
        let revision = state.revision + 1;
        let changes = one_by_one(&state.entries, changes);
        if self.files.is_some() {
            let raw = frame::encode_changes(revision, &changes)?;
            self.append(state, &raw)?;
        }
        state.revision = revision;
        frame::apply(&mut state.entries, revision, changes);
        self.tidy(state);
        Ok(true)
    }

    fn list_now(&self, prefix: &str) -> Vec<(String, Versioned)> {
        let state = self.state.borrow();
        let found = beginning_with(&state.entries, prefix);
        found.map(|(key, stored)| (key.clone(), stored.clone())).collect()
    }
}

fn beginning_with<'a>(
    entries: &'a Entries,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Versioned)> {
    entries
        .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(prefix))
}

/// The changes as they are written: those of a prefix key by key.
fn one_by_one(entries: &Entries, changes: &[Change]) -> Vec<Change> {
    let mut all = Vec::with_capacity(changes.len());
    for change in changes {
        match change {
            Change::DeletePrefix(prefix) => {
                let found = beginning_with(entries, prefix);
                all.extend(found.map(|(key, _)| Change::Delete(key.clone())));
            }
            change => all.push(change.clone()),
        }
    }
    debug_assert!(is_once_each(&all), "a commit changes a key twice: {all:?}");
    all
}

fn is_once_each(changes: &[Change]) -> bool {
    let mut seen = BTreeSet::new();
    changes.iter().all(|change| match change {
        Change::Put(key, _) | Change::Delete(key) | Change::DeletePrefix(key) => seen.insert(key),
    })
}

/// Adds zeros behind a file: room for `bytes` more and some.
fn grow(files: &dyn CatalogFiles, copy: usize, place: &mut Place, bytes: u64) -> Result<()> {
    let zeros = vec![0; (bytes + 2 * ROOM_BYTES) as usize];
    files
        .write(copy, place.bytes, &zeros)
        .and_then(|()| files.sync(copy))
        .map_err(|error| failed(&files.name(copy), error))?;
    place.bytes += zeros.len() as u64;
    Ok(())
}

impl Catalog for EmbeddedCatalog {
    fn get<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Result<Option<Versioned>>> {
        Box::pin(ready(Ok(self.state.borrow().entries.get(key).cloned())))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> LocalBoxFuture<'a, Result<Vec<(String, Versioned)>>> {
        Box::pin(ready(Ok(self.list_now(prefix))))
    }

    fn commit<'a>(
        &'a self,
        compares: &'a [Compare],
        changes: &'a [Change],
    ) -> LocalBoxFuture<'a, Result<bool>> {
        Box::pin(ready(self.commit_now(compares, changes)))
    }
}

impl fmt::Debug for EmbeddedCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedCatalog").finish_non_exhaustive()
    }
}

fn failed(name: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::new(Code::NoSpace, format!("catalog {name}: the file system is full"))
        }
        _ => Error::io(format!("catalog {name}"), error),
    }
}
