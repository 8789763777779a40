//! `azekura fs export`: a tree of a container becomes headers, chunks and a list in a local directory.

use super::index::{self, Entry};
use super::work::{DATA_BYTES, File, Work, read_whole, regular, share_out};
use super::{ExportArgs, Format};
use crate::exit::Outcome;
use crate::fs::copy::report::{CopyReport, Progress, Ran, Tally};
use crate::fs::copy::side::{Side, SideSpec};
use crate::session::Session;
use crate::url;
use dfs::{CreateOptions, FileKind};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;
use tier::s2_chunks::{
    CHUNK_BYTES_MAX, chunk_head, chunk_name, decode_chunk, decode_header, encode_header,
    header_name, uuid_of,
};
use types::{Code, Error, Result};
use wire::control::OpenMode;

pub fn run(session: &Session, args: &ExportArgs) -> Outcome {
    let Format::S2Chunks = args.format;
    let began = Instant::now();
    make_empty(&args.target)?;
    let place = url::Place::Remote(args.source.clone());
    let spec = SideSpec::of(session, &place, OpenMode::ReadOnly, CreateOptions::default());
    let root = &args.source.path;
    let progress = Progress::new(session.out.shows_progress());
    progress.phase("looking");
    let entries = entries(&*spec.open()?, root)?;
    let files: Vec<File<'_>> = regular(&entries)
        .map(|entry| File::new(entry, vec![[0; 32]; entry.meta.size.div_ceil(DATA_BYTES) as usize]))
        .collect();
    let bytes: u64 = files.iter().map(|file| file.entry.meta.size).sum();
    progress.expect(bytes);
    progress.phase("exporting");
    let work = Exporting { root, dir: &args.target };
    let mut failures = share_out(&spec, &files, args.jobs.into(), &progress, &work);
    let written = files.iter().filter(|file| file.is_done()).count() as u64;
    if failures.is_empty() {
        sync_all(&args.target)?;
    }
    let mut verified = None;
    if failures.is_empty() && args.verify {
        progress.expect(bytes);
        progress.phase("comparing");
        let again: Vec<File<'_>> =
            files.iter().map(|file| File::new(file.entry, file.sums())).collect();
        let work = Comparing { dir: &args.target };
        let found = share_out(&SideSpec::Local, &again, args.jobs.into(), &progress, &work);
        failures.extend(found);
        verified = Some(again.iter().filter(|file| file.is_done()).count() as u64);
    }
    if failures.is_empty() {
        // Last: a directory without it is no export.
        write_new(&args.target.join(index::NAME), &[&index::encode(&entries)?])?;
        sync_all(&args.target)?;
    }
    progress.finish();
    report(session, &entries, written, bytes, verified, failures, began)
}

/// Says what became of it.
pub fn report(
    session: &Session,
    entries: &[Entry],
    files: u64,
    bytes: u64,
    verified: Option<u64>,
    failures: Vec<Error>,
    began: Instant,
) -> Outcome {
    let count = |kind| entries.iter().filter(|entry| entry.meta.kind == kind).count() as u64;
    let tally = Tally::default();
    tally.files.store(files, std::sync::atomic::Ordering::Relaxed);
    tally.bytes.store(bytes, std::sync::atomic::Ordering::Relaxed);
    let (directories, symlinks) = (count(FileKind::Directory), count(FileKind::Symlink));
    tally.directories.store(directories, std::sync::atomic::Ordering::Relaxed);
    tally.symlinks.store(symlinks, std::sync::atomic::Ordering::Relaxed);
    let code = failures.first().map(|error| error.code);
    let several = failures.len() > 1;
    let mut report = CopyReport::default();
    report.add(Ran { tally, failures, fatal: None });
    if let Some(verified) = verified {
        let tally = Tally::default();
        tally.files.store(verified, std::sync::atomic::Ordering::Relaxed);
        report.add_verified(Ran { tally, ..Ran::default() });
    }
    report.seconds = began.elapsed().as_secs_f64();
    report.show(session.out)?;
    match code {
        None => Ok(()),
        Some(_) if several => Err(crate::exit::Failure::Reported(1)),
        Some(code) => Err(crate::exit::Failure::Reported(crate::exit::exit_code(code))),
    }
}

fn local(path: &Path, error: io::Error) -> Error {
    crate::fs::copy::local_error(path.as_os_str().as_bytes(), error)
}

fn make_empty(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|error| local(dir, error))?;
    let mut found = std::fs::read_dir(dir).map_err(|error| local(dir, error))?;
    match found.next() {
        None => Ok(()),
        Some(_) => Err(Error::new(
            Code::NotEmpty,
            format!("{} is not empty; an export needs a directory of its own", dir.display()),
        )),
    }
}

/// All of a tree, directories before what is in them.
fn entries(side: &dyn Side, root: &[u8]) -> Result<Vec<Entry>> {
    let there = side.meta(root, true)?;
    let missing = || Error::new(Code::NonExist, format!("{}: does not exist", side.name(root)));
    let meta = there.ok_or_else(missing)?;
    if meta.kind != FileKind::Directory {
        let text = format!("{} is not a directory; trees are exported", side.name(root));
        return Err(Error::new(Code::NotDir, text));
    }
    let mut all = vec![entry(side, root, b"/".to_vec(), meta)?];
    let mut next = 0;
    while next < all.len() {
        if all[next].meta.kind == FileKind::Directory {
            let dir = all[next].path.clone();
            for (name, meta) in side.list(&below(root, &dir))? {
                let path = [dir.strip_suffix(b"/").unwrap_or(&dir), b"/", &name].concat();
                if matches!(meta.kind, FileKind::Directory | FileKind::Regular | FileKind::Symlink)
                {
                    all.push(entry(side, &below(root, &path), path, meta)?);
                    continue;
                }
                return Err(Error::new(
                    Code::NotSupported,
                    format!("{} is a special file, which has no chunks", side.name(&path)),
                ));
            }
        }
        next += 1;
    }
    Ok(all)
}

/// The path on the side of what a path below the tree's root stands for.
pub fn below(root: &[u8], path: &[u8]) -> Vec<u8> {
    match path.strip_prefix(b"/") {
        Some(b"") | None => root.to_vec(),
        Some(rest) => url::join(root, rest),
    }
}

fn entry(
    side: &dyn Side,
    at: &[u8],
    path: Vec<u8>,
    meta: crate::fs::copy::side::Meta,
) -> Result<Entry> {
    let target = match meta.kind {
        FileKind::Symlink => side.readlink(at)?,
        _ => Vec::new(),
    };
    let xattrs = if meta.kind == FileKind::Symlink { Vec::new() } else { side.xattrs(at)? };
    Ok(Entry { path, meta, target, xattrs })
}

/// Writes a new file of these parts.
fn write_new(path: &Path, parts: &[&[u8]]) -> Result<()> {
    let written = std::fs::File::create_new(path)
        .and_then(|mut file| parts.iter().try_for_each(|part| file.write_all(part)));
    written.map_err(|error| local(path, error))
}

/// Puts all that was written on stable storage.
fn sync_all(dir: &Path) -> Result<()> {
    let open = std::fs::File::open(dir).map_err(|error| local(dir, error))?;
    rustix::fs::syncfs(&open).map_err(|errno| local(dir, errno.into()))
}

struct Exporting<'a> {
    root: &'a [u8],
    dir: &'a Path,
}

impl Work for Exporting<'_> {
    fn chunk(&self, side: &dyn Side, file: &File<'_>, chunk: u64) -> Result<u64> {
        let at = below(self.root, &file.entry.path);
        let offset = chunk * DATA_BYTES;
        let wanted = (file.entry.meta.size - offset).min(DATA_BYTES);
        let mut data = vec![0; wanted as usize];
        if side.open(&at)?.read(offset, &mut data)? < data.len() {
            let text = format!("{} became shorter meanwhile", side.name(&at));
            return Err(Error::new(Code::Io, text));
        }
        let (head, sum) = chunk_head(&data);
        file.set_sum(chunk, sum);
        let name = chunk_name(uuid_of(&file.entry.path), chunk);
        write_new(&self.dir.join(name), &[&head, &data])?;
        Ok(wanted)
    }

    fn complete(&self, _: &dyn Side, file: &File<'_>) -> Result<()> {
        let name = header_name(uuid_of(&file.entry.path));
        write_new(&self.dir.join(name), &[&encode_header(&file.sums())])
    }

    fn give_up(&self, _: &dyn Side, _: &File<'_>) {
        // Without a header it is no file, and without a list no export.
    }
}

struct Comparing<'a> {
    dir: &'a Path,
}

impl Work for Comparing<'_> {
    fn chunk(&self, _: &dyn Side, file: &File<'_>, chunk: u64) -> Result<u64> {
        let path = self.dir.join(chunk_name(uuid_of(&file.entry.path), chunk));
        Ok(read_chunk(&path, &file.sum(chunk), file.entry)?.1)
    }

    fn complete(&self, _: &dyn Side, file: &File<'_>) -> Result<()> {
        let path = self.dir.join(header_name(uuid_of(&file.entry.path)));
        match read_header(&path, file.entry)? == file.sums() {
            true => Ok(()),
            false => Err(named(&path, file.entry, &Error::new(Code::Csum, "other sums"))),
        }
    }

    fn give_up(&self, _: &dyn Side, _: &File<'_>) {}
}

/// An error with the name of the file it is in, and of the one that this is part of.
pub fn named(path: &Path, entry: &Entry, error: &Error) -> Error {
    let of = String::from_utf8_lossy(&entry.path);
    Error::new(error.code, format!("{}, of {of}: {error}", path.display()))
}

/// A chunk as it is in its file, checked, and the number of its data bytes.
pub fn read_chunk(
    path: &Path,
    sum: &tier::s2_chunks::Sum,
    entry: &Entry,
) -> Result<(Vec<u8>, u64)> {
    let raw =
        read_whole(path, CHUNK_BYTES_MAX as u64).map_err(|error| named(path, entry, &error))?;
    let count = decode_chunk(&raw, sum).map_err(|error| named(path, entry, &error))?.len() as u64;
    Ok((raw, count))
}

/// The sums that a header has.
pub fn read_header(path: &Path, entry: &Entry) -> Result<Vec<tier::s2_chunks::Sum>> {
    // 32 bytes for each chunk of a byte at least.
    let bytes_max = entry.meta.size.saturating_mul(32).saturating_add(4096);
    read_whole(path, bytes_max)
        .and_then(|raw| decode_header(&raw))
        .map_err(|error| named(path, entry, &error))
}
