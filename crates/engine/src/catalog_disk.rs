//! The catalog's files on the disk of a simulated node: a crash takes from them what it takes from
//! everything else there.

use control::CatalogFiles;
use env::SimDisk;
use std::io;
use std::path::PathBuf;
use types::{Code, Error};

pub(crate) struct CatalogDisk {
    disk: SimDisk,
}

impl CatalogDisk {
    /// The files `/catalog.0` and `/catalog.1`.
    pub(crate) fn new(disk: SimDisk) -> CatalogDisk {
        CatalogDisk { disk }
    }
}

fn path(copy: usize) -> PathBuf {
    PathBuf::from(format!("/catalog.{copy}"))
}

fn failed(error: Error) -> io::Error {
    let kind = match error.code {
        Code::NoSpace => io::ErrorKind::StorageFull,
        Code::NonExist => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

impl CatalogFiles for CatalogDisk {
    fn name(&self, copy: usize) -> String {
        path(copy).display().to_string()
    }

    fn read(&self, copy: usize) -> io::Result<Option<Vec<u8>>> {
        match self.disk.read_at_once(&path(copy)) {
            Ok(raw) => Ok(Some(raw)),
            Err(error) if error.code == Code::NonExist => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn write(&self, copy: usize, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at_once(&path(copy), offset, bytes).map_err(failed)
    }

    fn sync(&self, copy: usize) -> io::Result<()> {
        self.disk.sync_at_once(&path(copy)).map_err(failed)
    }

    fn replace(&self, copy: usize, bytes: &[u8]) -> io::Result<()> {
        self.disk.replace_at_once(&path(copy), bytes).map_err(failed)
    }
}
