//! `azekura fs import`: headers, chunks and a list become a tree in a container.
//!
//! Chunks are read once to learn where each begins in its file: the format lets them have any size. Files appear under
//! their names when they are whole only in that their attributes come last; one that fails is removed.

use super::export::{below, named, read_chunk, read_header, report};
use super::index::{self, Entry};
use super::work::{File, Work, read_whole, regular, share_out};
use super::{Format, ImportArgs};
use crate::exit::Outcome;
use crate::fs::copy::report::Progress;
use crate::fs::copy::side::{Side, SideSpec};
use crate::session::Session;
use crate::url::Place;
use dfs::{CreateOptions, FileKind};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tier::s2_chunks::{CHUNK_BYTES_MAX, HEAD_BYTES, chunk_head, chunk_name, header_name, uuid_of};
use types::{Code, Error, Result};
use wire::control::OpenMode;

/// Most bytes of a list.
const INDEX_BYTES_MAX: u64 = 4 << 30;

pub fn run(session: &Session, args: &ImportArgs) -> Outcome {
    let Format::S2Chunks = args.format;
    let began = Instant::now();
    let dir = &args.source;
    let raw = read_whole(&dir.join(index::NAME), INDEX_BYTES_MAX)
        .map_err(|error| error.context("this is no export, or one that did not come to its end"))?;
    let entries = index::decode(&raw)?;
    let root = args.target.path.clone();
    let place = Place::Remote(args.target.clone());
    let spec = SideSpec::of(session, &place, OpenMode::ReadWrite, CreateOptions::default());
    let side = spec.open()?;
    let progress = Progress::new(session.out.shows_progress());
    let mut failures = Vec::new();
    make_dirs(&*side, &root, &entries, &mut failures);
    let mut files = Vec::new();
    let mut starts: HashMap<&[u8], Vec<u64>> = HashMap::new();
    for entry in regular(&entries) {
        match plan(&*side, &root, dir, entry) {
            Ok((file, start)) => {
                files.push(file);
                starts.insert(&entry.path, start);
            }
            Err(error) => failures.push(error),
        }
    }
    let bytes = files.iter().map(|file| file.entry.meta.size).sum();
    progress.expect(bytes);
    progress.phase("importing");
    let work = Importing { root: &root, dir, starts: &starts };
    failures.extend(share_out(&spec, &files, args.jobs.into(), &progress, &work));
    let whole: Vec<&File<'_>> = files.iter().filter(|file| file.is_done()).collect();
    let mut verified = None;
    if args.verify {
        let again: Vec<File<'_>> =
            whole.iter().map(|file| File::new(file.entry, file.sums())).collect();
        progress.expect(again.iter().map(|file| file.entry.meta.size).sum());
        progress.phase("comparing");
        let work = Comparing { root: &root, starts: &starts };
        failures.extend(share_out(&spec, &again, args.jobs.into(), &progress, &work));
        verified = Some(again.iter().filter(|file| file.is_done()).count() as u64);
    }
    // Directories last, those below first: making entries changes their times.
    for entry in entries.iter().rev().filter(|entry| entry.meta.kind == FileKind::Directory) {
        if let Err(error) = give_attrs(&*side, &root, entry) {
            failures.push(error);
        }
    }
    progress.finish();
    let done = whole.len() as u64;
    let bytes = whole.iter().map(|file| file.entry.meta.size).sum();
    report(session, &entries, done, bytes, verified, failures, began)
}

/// Makes directories and symbolic links.
fn make_dirs(side: &dyn Side, root: &[u8], entries: &[Entry], failures: &mut Vec<Error>) {
    for entry in entries {
        let at = below(root, &entry.path);
        let made = match entry.meta.kind {
            FileKind::Directory => match side.meta(&at, true) {
                Ok(Some(there)) if there.kind == FileKind::Directory => Ok(()),
                Ok(_) => side.mkdir(&at),
                Err(error) => Err(error),
            },
            FileKind::Symlink => {
                side.symlink(&entry.target, &at).and_then(|()| side.set_meta(&at, &entry.meta))
            }
            _ => Ok(()),
        };
        if let Err(error) = made {
            failures.push(error);
        }
    }
}

fn give_attrs(side: &dyn Side, root: &[u8], entry: &Entry) -> Result<()> {
    let at = below(root, &entry.path);
    for (name, value) in &entry.xattrs {
        side.set_xattr(&at, name, value)?;
    }
    side.set_meta(&at, &entry.meta)
}

/// A file of the list with the sums of its chunks, and where each begins. It is made, empty.
fn plan<'a>(
    side: &dyn Side,
    root: &[u8],
    dir: &Path,
    entry: &'a Entry,
) -> Result<(File<'a>, Vec<u64>)> {
    let uuid = uuid_of(&entry.path);
    let header = dir.join(header_name(uuid));
    let sums = read_header(&header, entry)?;
    let mut starts = Vec::with_capacity(sums.len());
    let mut at = 0u64;
    for index in 0..sums.len() as u64 {
        starts.push(at);
        let path = dir.join(chunk_name(uuid, index));
        let found = std::fs::metadata(&path).map_err(|error| {
            let name = path.as_os_str().as_bytes();
            named(&path, entry, &crate::fs::copy::local_error(name, error))
        })?;
        // What it says of itself is compared when it is read.
        let bytes = found.len().checked_sub(HEAD_BYTES as u64);
        at += bytes.filter(|_| found.len() <= CHUNK_BYTES_MAX as u64).ok_or_else(|| {
            let text = format!("{} bytes are none of a chunk", found.len());
            named(&path, entry, &Error::new(Code::Csum, text))
        })?;
    }
    if at != entry.meta.size {
        let text = format!("its chunks have {at} bytes, the list says {}", entry.meta.size);
        return Err(named(&header, entry, &Error::new(Code::Csum, text)));
    }
    let target = below(root, &entry.path);
    if side.meta(&target, false)?.is_some() {
        let text = format!("{} is there already: not replaced", side.name(&target));
        return Err(Error::new(Code::Exist, text));
    }
    side.create(&target)?.set_size(at)?;
    Ok((File::new(entry, sums), starts))
}

struct Importing<'a> {
    root: &'a [u8],
    dir: &'a Path,
    starts: &'a HashMap<&'a [u8], Vec<u64>>,
}

impl Work for Importing<'_> {
    fn chunk(&self, side: &dyn Side, file: &File<'_>, chunk: u64) -> Result<u64> {
        let path: PathBuf = self.dir.join(chunk_name(uuid_of(&file.entry.path), chunk));
        let (raw, count) = read_chunk(&path, &file.sum(chunk), file.entry)?;
        let start = self.starts[&*file.entry.path][chunk as usize];
        if start + count > file.entry.meta.size {
            let error = Error::new(Code::Csum, "it has changed meanwhile");
            return Err(named(&path, file.entry, &error));
        }
        let at = below(self.root, &file.entry.path);
        side.reopen(&at)?.write(start, &raw[HEAD_BYTES..])?;
        Ok(count)
    }

    fn complete(&self, side: &dyn Side, file: &File<'_>) -> Result<()> {
        give_attrs(side, self.root, file.entry)
    }

    fn give_up(&self, side: &dyn Side, file: &File<'_>) {
        // If this fails, too, what is left has no sums that fit, and the error before was told.
        let _ = side.unlink(&below(self.root, &file.entry.path));
    }
}

struct Comparing<'a> {
    root: &'a [u8],
    starts: &'a HashMap<&'a [u8], Vec<u64>>,
}

impl Work for Comparing<'_> {
    fn chunk(&self, side: &dyn Side, file: &File<'_>, chunk: u64) -> Result<u64> {
        let starts = &self.starts[&*file.entry.path];
        let start = starts[chunk as usize];
        let end = starts.get(chunk as usize + 1).copied().unwrap_or(file.entry.meta.size);
        let at = below(self.root, &file.entry.path);
        let mut data = vec![0; (end - start) as usize];
        let count = side.open(&at)?.read(start, &mut data)?;
        match count == data.len() && chunk_head(&data).1 == file.sum(chunk) {
            true => Ok(end - start),
            false => Err(Error::new(
                Code::Io,
                format!("{} differs from its chunk {chunk}", side.name(&at)),
            )),
        }
    }

    fn complete(&self, _: &dyn Side, _: &File<'_>) -> Result<()> {
        Ok(())
    }

    fn give_up(&self, _: &dyn Side, _: &File<'_>) {}
}
