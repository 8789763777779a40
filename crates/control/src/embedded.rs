//! The catalog in one file of one machine, kept by redb.
//!
//! redb is copy-on-write with two checksummed roots (its `design.md`): a commit is visible whole
//! or not at all after a crash. It is slow for small writes, which does not matter here.
//!
//! Assumed of the disk: what was synced stays, and a write that was not synced may be lost or
//! torn but touches no other page.

use crate::catalog::{Catalog, Change, Compare, Revision, Versioned};
use futures_util::future::{LocalBoxFuture, ready};
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, StorageError,
    TableDefinition,
};
use std::fmt;
use std::path::Path;
use types::{Code, Error, Result};

/// Version of the tables below. 1: first release.
const FORMAT: u64 = 1;

/// Key to (revision, value).
const ENTRIES: TableDefinition<&str, (u64, &[u8])> = TableDefinition::new("entries");
/// Facts of the file itself.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const META_FORMAT: &str = "format";
const META_REVISION: &str = "revision";

/// Pages kept in memory, bytes; the whole of most catalogs.
const CACHE_BYTES: usize = 16 << 20;

/// A catalog in one file. One process opens it at a time.
pub struct EmbeddedCatalog {
    database: Database,
}

impl EmbeddedCatalog {
    /// Opens the file, or makes a new catalog if there is none.
    ///
    /// Fails with `Busy` when it is open already (here or in another process), `Version` when a
    /// newer version of this program wrote it, `Io` or `NoSpace` otherwise.
    pub fn open(path: &Path) -> Result<EmbeddedCatalog> {
        let what = format!("catalog {}", path.display());
        let is_new = !path.exists();
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create(path)
            .map_err(|error| open_error(&what, error))?;
        let catalog = Self::checked(database).map_err(|error| error.context(&what))?;
        if is_new && let Some(parent) = path.parent() {
            // The file's name must be as durable as its contents.
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            std::fs::File::open(parent)
                .and_then(|directory| directory.sync_all())
                .map_err(|error| Error::io(format!("{what}: cannot sync its directory"), error))?;
        }
        Ok(catalog)
    }

    /// A catalog that lives in memory and ends with this value, for simulations.
    pub fn in_memory() -> Result<EmbeddedCatalog> {
        Self::on_backend(redb::backends::InMemoryBackend::new())
    }

    /// A catalog on storage of the caller's making, for simulations and fault injection.
    pub fn on_backend(backend: impl StorageBackend) -> Result<EmbeddedCatalog> {
        let database = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(backend)
            .map_err(|error| open_error("catalog", error))?;
        Self::checked(database)
    }

    fn checked(database: Database) -> Result<EmbeddedCatalog> {
        let catalog = EmbeddedCatalog { database };
        match catalog.format()? {
            Some(FORMAT) => {}
            Some(format) => {
                return Err(Error::new(
                    Code::Version,
                    format!(
                        "it has format {format}, this program knows up to {FORMAT}: \
                         use the version that wrote it or a newer one"
                    ),
                ));
            }
            None => catalog.initialize()?,
        }
        Ok(catalog)
    }

    fn format(&self) -> Result<Option<u64>> {
        let read = self.database.begin_read().map_err(failed)?;
        let meta = match read.open_table(META) {
            Ok(meta) => meta,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        Ok(meta.get(META_FORMAT).map_err(failed)?.map(|format| format.value()))
    }

    fn initialize(&self) -> Result<()> {
        let write = self.database.begin_write().map_err(failed)?;
        {
            let mut meta = write.open_table(META).map_err(failed)?;
            meta.insert(META_FORMAT, FORMAT).map_err(failed)?;
            meta.insert(META_REVISION, 0).map_err(failed)?;
            write.open_table(ENTRIES).map_err(failed)?;
        }
        write.commit().map_err(failed)
    }

    fn get_now(&self, key: &str) -> Result<Option<Versioned>> {
        let read = self.database.begin_read().map_err(failed)?;
        let entries = read.open_table(ENTRIES).map_err(failed)?;
        let found = entries.get(key).map_err(failed)?;
        Ok(found.map(|entry| versioned(entry.value())))
    }

    fn list_now(&self, prefix: &str) -> Result<Vec<(String, Versioned)>> {
        let read = self.database.begin_read().map_err(failed)?;
        let entries = read.open_table(ENTRIES).map_err(failed)?;
        let mut found = Vec::new();
        for entry in entries.range(prefix..).map_err(failed)? {
            let (key, value) = entry.map_err(failed)?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found.push((key.value().to_string(), versioned(value.value())));
        }
        Ok(found)
    }

    fn commit_now(&self, compares: &[Compare], changes: &[Change]) -> Result<bool> {
        let write = self.database.begin_write().map_err(failed)?;
        {
            let mut entries = write.open_table(ENTRIES).map_err(failed)?;
            for compare in compares {
                let found = entries.get(compare.key.as_str()).map_err(failed)?;
                if found.map_or(0, |entry| entry.value().0) != compare.revision.0 {
                    // Dropping the transaction undoes it.
                    return Ok(false);
                }
            }
            let mut meta = write.open_table(META).map_err(failed)?;
            let last = meta.get(META_REVISION).map_err(failed)?.map_or(0, |last| last.value());
            let revision = last + 1;
            meta.insert(META_REVISION, revision).map_err(failed)?;
            for change in changes {
                match change {
                    Change::Put(key, bytes) => {
                        entries
                            .insert(key.as_str(), (revision, bytes.as_slice()))
                            .map_err(failed)?;
                    }
                    Change::Delete(key) => {
                        entries.remove(key.as_str()).map_err(failed)?;
                    }
                }
            }
        }
        write.commit().map_err(failed)?;
        Ok(true)
    }
}

impl Catalog for EmbeddedCatalog {
    fn get<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Result<Option<Versioned>>> {
        Box::pin(ready(self.get_now(key)))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> LocalBoxFuture<'a, Result<Vec<(String, Versioned)>>> {
        Box::pin(ready(self.list_now(prefix)))
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

fn versioned((revision, bytes): (u64, &[u8])) -> Versioned {
    Versioned { revision: Revision(revision), bytes: bytes.to_vec() }
}

fn open_error(what: &str, error: DatabaseError) -> Error {
    match error {
        DatabaseError::DatabaseAlreadyOpen => Error::new(
            Code::Busy,
            format!(
                "{what} is in use by another engine; stop that engine or use another directory"
            ),
        ),
        DatabaseError::UpgradeRequired(version) => Error::new(
            Code::Version,
            format!(
                "{what} has the retired file format {version}; open it with the version that wrote it"
            ),
        ),
        DatabaseError::Storage(StorageError::Io(error)) => {
            Error::io(format!("cannot open {what}"), error)
        }
        other => Error::new(Code::Io, format!("cannot open {what}: {other}")),
    }
}

/// An error of the file behind an open catalog. redb refuses all further work after one.
fn failed(error: impl Into<redb::Error>) -> Error {
    match error.into() {
        redb::Error::Io(error) => Error::io("catalog", error),
        other => Error::new(Code::Io, format!("catalog: {other}")),
    }
}
