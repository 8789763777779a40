//! `azekura fs cp`: copies trees between this machine and containers, several files at a time,
//! large files in pieces.
//!
//! Kept without being asked: modes, mtimes, symbolic and hard links, `user.` attributes, runs of
//! zeros as holes, and for the superuser owners. Invariants: an entry gets its mode and mtime
//! when its content is whole, directories last of all; nothing is readable by others before.

mod job;
mod local;
mod queue;
mod remote_side;
pub mod report;
pub mod side;
mod tree;

use crate::cont::chunk_bytes;
use crate::exit::{Failure, Outcome, exit_code};
use crate::session::Session;
use crate::url::{self, Place};
use clap::Args;
use dfs::{CreateOptions, FileKind};
use job::{Crew, Task};
pub use local::local_error;
use report::{CopyReport, Progress};
use side::SideSpec;
use std::os::unix::ffi::OsStringExt;
use std::time::Instant;
use tree::{Root, Walk};
use types::{Code, Error, ObjClass, Result};
use wire::control::OpenMode;

/// Large files are copied in pieces of this size, bytes; a multiple of the default chunk.
pub const PIECE_BYTES: u64 = 4 << 20;

/// Copy files and trees
///
/// One side at least is a container. Modes, times, symbolic and hard links and user attributes
/// are kept. Errors do not stop the copy; they are listed, and the exit code is 1 (or that of
/// the only error).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura fs cp -r ./data azk://tank/home/          # makes azk://tank/home/data
  azekura fs cp -r --verify azk://tank/home/data ./back
  azekura fs cp -r azk://tank/home azk://tank/copy/")]
pub struct CpArgs {
    /// Files and directories: URLs or local paths
    #[arg(required = true, value_name = "SOURCE", value_parser = super::place_parser())]
    sources: Vec<Place>,
    /// New name, or the directory to copy into
    #[arg(value_name = "TARGET", value_parser = super::place_parser())]
    target: Place,
    #[command(flatten)]
    options: TransferOptions,
}

/// Options of everything that copies.
#[derive(Args, Debug)]
pub struct TransferOptions {
    /// Directories and all below them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Read everything again and compare contents and attributes
    #[arg(long)]
    verify: bool,
    /// Leave alone files whose size and mtime are the same already
    #[arg(short, long)]
    update: bool,
    /// Take the target as a name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Files (or pieces of files) at a time [default: four per processor, 8 to 16]
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Class of new files in a container
    #[arg(long)]
    oclass: Option<ObjClass>,
    /// Chunk size of new files in a container
    #[arg(long, value_parser = chunk_bytes)]
    chunk_size: Option<u64>,
}

impl TransferOptions {
    /// What new files in a container shall be.
    pub fn create_options(&self) -> CreateOptions {
        CreateOptions { class: self.oclass, chunk_bytes: self.chunk_size.unwrap_or(0) }
    }

    fn job_count(&self) -> usize {
        match self.jobs {
            Some(jobs) => jobs.into(),
            // More than processors: most of the time goes into waiting for stable storage.
            None => {
                let processors =
                    std::thread::available_parallelism().map_or(2, |count| count.get());
                (4 * processors).clamp(8, 16)
            }
        }
    }
}

pub fn run(session: &Session, args: &CpArgs) -> Outcome {
    transfer(session, &args.sources, &args.target, &args.options)
}

/// Copies `sources` to `target` and reports.
pub fn transfer(
    session: &Session,
    sources: &[Place],
    target: &Place,
    options: &TransferOptions,
) -> Outcome {
    let began = Instant::now();
    let is_local = |place: &Place| matches!(place, Place::Local(_));
    if is_local(target) && sources.iter().any(is_local) {
        return Err(Error::inval(
            "both sides are local paths; one has to be a container (azk://POOL/CONT/PATH)",
        )
        .into());
    }
    let to = SideSpec::of(session, target, OpenMode::ReadWrite, options.create_options());
    let mut report = CopyReport::default();
    let progress = Progress::new(session.out.shows_progress());
    // Sources on one side are copied together.
    let mut from_specs: Vec<(SideSpec, Vec<&Place>)> = Vec::new();
    for source in sources {
        let spec = SideSpec::of(session, source, OpenMode::ReadOnly, CreateOptions::default());
        match from_specs.iter_mut().find(|(known, _)| known.is_same(&spec)) {
            Some((_, places)) => places.push(source),
            None => from_specs.push((spec, vec![source])),
        }
    }
    for (from, places) in from_specs {
        let roots = roots(&from, &to, &places, target, sources.len() > 1, options)?;
        let crew = Crew::new(from, to.clone(), options.job_count(), &progress);
        let walk = Walk { update: options.update, task: Task::Copy };
        let copied = crew.run(&walk, &roots)?;
        let stopped = copied.fatal.is_some();
        report.add(copied);
        if options.verify && !stopped {
            let walk = Walk { update: false, task: Task::Compare };
            report.add_verified(crew.run(&walk, &roots)?);
        }
    }
    progress.finish();
    report.seconds = began.elapsed().as_secs_f64();
    report.show(session.out)?;
    match (&report.fatal, &report.failures[..]) {
        (Some(code), _) => Err(Failure::Reported(exit_code(*code))),
        (None, []) => Ok(()),
        // A pipe somewhere in a tree is no wrong usage.
        (None, [only]) if only.code == Code::NotSupported => Err(Failure::Reported(1)),
        (None, [only]) => Err(Failure::Reported(exit_code(only.code))),
        (None, _) => Err(Failure::Reported(1)),
    }
}

/// What each source becomes.
fn roots(
    from: &SideSpec,
    to: &SideSpec,
    places: &[&Place],
    target: &Place,
    several: bool,
    options: &TransferOptions,
) -> Result<Vec<Root>> {
    let (source_side, target_side) = (from.open()?, to.open()?);
    let target_path = path_of(target);
    let found = target_side.meta(&target_path, true)?;
    let into = !options.no_target_directory
        && found.is_some_and(|found| found.kind == FileKind::Directory);
    if !into && several {
        return Err(Error::new(
            Code::NotDir,
            format!("{target} must be a directory to copy several things into"),
        ));
    }
    let mut roots = Vec::new();
    for place in places {
        let path = path_of(place);
        // Copying a tree keeps links; copying one file takes what it leads to.
        let meta = source_side
            .meta(&path, !options.recursive)?
            .ok_or_else(|| Error::new(Code::NonExist, format!("{place}: does not exist")))?;
        if meta.kind == FileKind::Directory && !options.recursive {
            return Err(Error::new(
                Code::IsDir,
                format!("{place} is a directory (use -r to copy it and all below it)"),
            ));
        }
        let to_path = match url::last_name(&path) {
            Some(name) if into => url::join(&target_path, name),
            _ => target_path.clone(),
        };
        if from.is_same(to) && meta.kind == FileKind::Directory && is_below(&path, &to_path) {
            return Err(Error::inval(format!("cannot copy {place} into itself")));
        }
        roots.push(Root { from: path, to: to_path, meta });
    }
    Ok(roots)
}

/// The path of a place on its side.
fn path_of(place: &Place) -> Vec<u8> {
    match place {
        Place::Remote(url) => url.path.clone(),
        Place::Local(path) => path.clone().into_vec(),
    }
}

/// True when `path` is `dir` or below it, as written.
fn is_below(dir: &[u8], path: &[u8]) -> bool {
    let parts = |path: &[u8]| -> Vec<Vec<u8>> {
        path.split(|&byte| byte == b'/')
            .filter(|part| !part.is_empty() && *part != b".")
            .map(<[u8]>::to_vec)
            .collect()
    };
    parts(path).starts_with(&parts(dir))
}

#[cfg(test)]
mod tests {
    use super::is_below;

    #[test]
    fn a_tree_is_not_copied_into_itself() {
        assert!(is_below(b"/a", b"/a/b"));
        assert!(is_below(b"/a/", b"//a"));
        assert!(is_below(b"/", b"/x"));
        assert!(!is_below(b"/a", b"/ab"));
        assert!(!is_below(b"/a/b", b"/a"));
    }
}
