//! A directory of the operating system, through plain POSIX calls.

use super::{Backend, NewFile};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use types::{Code, Error, ObjClass, Result};

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct PosixBackend;

impl Backend for PosixBackend {
    type File = File;

    fn forget_dirs(&mut self) {
        // The kernel sees to that.
    }

    fn make_dir(&mut self, path: &str, _class: Option<ObjClass>) -> Result<()> {
        std::fs::create_dir_all(path).map_err(|error| failed("making directory", path, error))
    }

    fn remove_dir(&mut self, path: &str) -> Result<()> {
        std::fs::remove_dir(path).map_err(|error| failed("removing directory", path, error))
    }

    fn create(&mut self, path: &str, new: &NewFile) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).create_new(new.exclusive);
        options.open(path).map_err(|error| failed("creating", path, error))
    }

    fn open(&mut self, path: &str) -> Result<File> {
        File::open(path).map_err(|error| failed("opening", path, error))
    }

    fn write_at(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<()> {
        file.write_all_at(data, offset).map_err(|error| coded("writing", error))
    }

    fn read_at(&mut self, file: &File, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(coded("reading", error)),
            }
        }
        Ok(done)
    }

    fn sync(&mut self, file: &File) -> Result<()> {
        file.sync_all().map_err(|error| coded("syncing", error))
    }

    fn stat(&mut self, path: &str) -> Result<u64> {
        std::fs::symlink_metadata(path)
            .map(|found| found.len())
            .map_err(|error| failed("reading the attributes of", path, error))
    }

    fn remove(&mut self, path: &str) -> Result<()> {
        std::fs::remove_file(path).map_err(|error| failed("removing", path, error))
    }
}

fn failed(doing: &str, path: &str, error: std::io::Error) -> Error {
    coded(&format!("{doing} {path}"), error)
}

fn coded(doing: &str, error: std::io::Error) -> Error {
    let code = match error.kind() {
        ErrorKind::NotFound => Code::NonExist,
        ErrorKind::AlreadyExists => Code::Exist,
        ErrorKind::DirectoryNotEmpty => Code::NotEmpty,
        ErrorKind::NotADirectory => Code::NotDir,
        ErrorKind::IsADirectory => Code::IsDir,
        ErrorKind::PermissionDenied => Code::Access,
        ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::NoSpace,
        _ => Code::Io,
    };
    Error::new(code, format!("{doing}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_written_read_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let sub = format!("{}/a/b", dir.path().display());
        let path = format!("{sub}/file");
        let mut posix = PosixBackend;
        posix.make_dir(&sub, None).unwrap();
        posix.make_dir(&sub, None).unwrap();
        let exclusive = NewFile { exclusive: true, ..NewFile::default() };
        let file = posix.create(&path, &exclusive).unwrap();
        assert_eq!(posix.create(&path, &exclusive).err().map(|e| e.code), Some(Code::Exist));
        posix.write_at(&file, 4, b"data").unwrap();
        posix.sync(&file).unwrap();
        // Opening to write again cuts nothing: processes share a file that each of them "makes".
        posix.create(&path, &NewFile::default()).unwrap();
        let mut buf = [9; 16];
        let file = posix.open(&path).unwrap();
        assert_eq!(posix.read_at(&file, 2, &mut buf).unwrap(), 6);
        assert_eq!(&buf[..6], b"\0\0data");
        assert_eq!(posix.stat(&path).unwrap(), 8);
        assert_eq!(posix.remove_dir(&sub).err().map(|e| e.code), Some(Code::NotEmpty));
        posix.remove(&path).unwrap();
        assert_eq!(posix.stat(&path).err().map(|e| e.code), Some(Code::NonExist));
        posix.remove_dir(&sub).unwrap();
    }
}
