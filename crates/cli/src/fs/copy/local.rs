//! This machine's files as a side of a copy.

use super::side::{Meta, OpenFile, Side};
use dfs::FileKind;
use rustix::fs::{AtFlags, CWD, SeekFrom, Timespec, Timestamps, UTIME_OMIT, XattrFlags, seek};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use types::{Code, Error, Result};

/// Attributes that are copied: those that users make.
const USER_PREFIX: &[u8] = b"user.";

/// This machine.
pub struct Local {
    is_superuser: bool,
}

impl Local {
    /// As the calling user.
    pub fn new() -> Local {
        Local { is_superuser: rustix::process::geteuid().is_root() }
    }
}

/// An error of the operating system on `path`, in our codes.
pub fn local_error(path: &[u8], error: std::io::Error) -> Error {
    let number = error.raw_os_error().unwrap_or(0);
    let code = match number {
        libc::ENOENT => Code::NonExist,
        libc::EEXIST => Code::Exist,
        libc::EACCES => Code::Access,
        libc::EPERM => Code::NoPerm,
        libc::EROFS => Code::ReadOnly,
        libc::ENOTDIR => Code::NotDir,
        libc::EISDIR => Code::IsDir,
        libc::ENOTEMPTY => Code::NotEmpty,
        libc::ENAMETOOLONG => Code::NameTooLong,
        libc::ENOSPC | libc::EDQUOT => Code::NoSpace,
        libc::ELOOP => Code::TooManyLinks,
        libc::EINVAL => Code::Inval,
        libc::EXDEV => Code::CrossDevice,
        libc::EFBIG => Code::FileTooBig,
        libc::EMLINK => Code::LinkMax,
        libc::ENODATA => Code::NoAttr,
        libc::EOPNOTSUPP => Code::NotSupported,
        _ => Code::Io,
    };
    Error::new(code, format!("{}: {error}", String::from_utf8_lossy(path)))
}

fn at(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn meta_of(found: &fs::Metadata) -> Meta {
    Meta {
        // Linux knows no other kinds; were there one, it would be refused as special.
        kind: FileKind::from_mode(found.mode()).unwrap_or(FileKind::Socket),
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        size: found.size(),
        mtime_ns: found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec()),
        nlink: found.nlink(),
        identity: (found.dev(), found.ino()),
    }
}

struct LocalFile<'a> {
    file: File,
    path: &'a [u8],
}

impl OpenFile for LocalFile<'_> {
    fn read(&self, offset: u64, memory: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < memory.len() {
            match self.file.read_at(&mut memory[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(local_error(self.path, error)),
            }
        }
        Ok(done)
    }

    fn write(&self, offset: u64, memory: &[u8]) -> Result<()> {
        self.file.write_all_at(memory, offset).map_err(|error| local_error(self.path, error))
    }

    fn set_size(&self, size: u64) -> Result<()> {
        self.file.set_len(size).map_err(|error| local_error(self.path, error))
    }

    fn data_from(&self, offset: u64) -> Result<Option<Range<u64>>> {
        let failed = |error: Errno| local_error(self.path, error.into());
        let start = match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // Pipes, and file systems that do not know.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::SPIPE) => {
                return Ok(Some(offset..u64::MAX));
            }
            Err(error) => return Err(failed(error)),
        };
        match seek(&self.file, SeekFrom::Hole(start)) {
            Ok(end) => Ok(Some(start..end)),
            // It was cut in between.
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

impl Side for Local {
    fn name(&self, path: &[u8]) -> String {
        String::from_utf8_lossy(path).into_owned()
    }

    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        let found = if follow { fs::metadata(at(path)) } else { fs::symlink_metadata(at(path)) };
        match found {
            Ok(found) => Ok(Some(meta_of(&found))),
            Err(error) => match local_error(path, error) {
                error if error.code == Code::NonExist => Ok(None),
                error => Err(error),
            },
        }
    }

    fn list(&self, dir: &[u8]) -> Result<Vec<(Vec<u8>, Meta)>> {
        let failed = |error| local_error(dir, error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(at(dir)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            match entry.metadata() {
                Ok(found) => entries.push((entry.file_name().as_bytes().to_vec(), meta_of(&found))),
                // It went away while we looked.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    fn readlink(&self, path: &[u8]) -> Result<Vec<u8>> {
        match fs::read_link(at(path)) {
            Ok(target) => Ok(target.as_os_str().as_bytes().to_vec()),
            Err(error) => Err(local_error(path, error)),
        }
    }

    fn mkdir(&self, path: &[u8]) -> Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().mode(0o700).create(at(path)).map_err(|error| local_error(path, error))
    }

    fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        std::os::unix::fs::symlink(at(target), at(path)).map_err(|error| local_error(path, error))
    }

    fn link(&self, file: &[u8], path: &[u8]) -> Result<()> {
        fs::hard_link(at(file), at(path)).map_err(|error| local_error(path, error))
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        fs::remove_file(at(path)).map_err(|error| local_error(path, error))
    }

    fn open<'a>(&'a self, path: &'a [u8]) -> Result<Box<dyn OpenFile + 'a>> {
        let file = File::open(at(path)).map_err(|error| local_error(path, error))?;
        Ok(Box::new(LocalFile { file, path }))
    }

    fn create<'a>(&'a self, path: &'a [u8]) -> Result<Box<dyn OpenFile + 'a>> {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(at(path))
            .map_err(|error| local_error(path, error))?;
        Ok(Box::new(LocalFile { file, path }))
    }

    fn reopen<'a>(&'a self, path: &'a [u8]) -> Result<Box<dyn OpenFile + 'a>> {
        let file =
            File::options().write(true).open(at(path)).map_err(|error| local_error(path, error))?;
        Ok(Box::new(LocalFile { file, path }))
    }

    fn set_meta(&self, path: &[u8], meta: &Meta) -> Result<()> {
        let failed = |error: std::io::Error| local_error(path, error);
        // Owner first: changing it clears set-user-id bits.
        if self.is_superuser {
            std::os::unix::fs::lchown(at(path), Some(meta.uid), Some(meta.gid)).map_err(failed)?;
        }
        if meta.kind != FileKind::Symlink {
            fs::set_permissions(at(path), fs::Permissions::from_mode(meta.mode)).map_err(failed)?;
        }
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: meta.mtime_ns.div_euclid(1_000_000_000),
                tv_nsec: meta.mtime_ns.rem_euclid(1_000_000_000),
            },
        };
        rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| failed(error.into()))
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut names = vec![0; 4096];
        let listed = loop {
            match rustix::fs::llistxattr(at(path), &mut names[..]) {
                Ok(count) => break count,
                Err(rustix::io::Errno::RANGE) if names.len() < 1 << 20 => {
                    names.resize(names.len() * 4, 0);
                }
                // A file system without attributes has none to copy.
                Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
                Err(error) => return Err(local_error(path, error.into())),
            }
        };
        let mut found = Vec::new();
        for name in names[..listed].split(|&byte| byte == 0) {
            if !name.starts_with(USER_PREFIX) {
                continue;
            }
            let mut value = vec![0; types::limits::XATTR_BYTES_MAX];
            match rustix::fs::lgetxattr(at(path), OsStr::from_bytes(name), &mut value[..]) {
                Ok(count) => {
                    value.truncate(count);
                    found.push((name.to_vec(), value));
                }
                // Removed meanwhile.
                Err(rustix::io::Errno::NODATA) => {}
                Err(error) => return Err(local_error(path, error.into())),
            }
        }
        found.sort();
        Ok(found)
    }

    fn set_xattr(&self, path: &[u8], name: &[u8], value: &[u8]) -> Result<()> {
        rustix::fs::lsetxattr(at(path), OsStr::from_bytes(name), value, XattrFlags::empty())
            .map_err(|error| local_error(path, error.into()))
    }
}
