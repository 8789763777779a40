//! `azekura fs tier`: copies of files in their container's tier.

use super::remote::Remote;
use crate::exit::{Failure, Outcome};
use crate::output::{Table, bar, warn_line};
use crate::session::Session;
use crate::tier::of_cont;
use crate::url::{self, Url};
use clap::{Args, Subcommand};
use dfs::find::Query;
use dfs::tier::TierState;
use dfs::{FileKind, Obj, OpenFlags};
use serde::Serialize;
use std::collections::HashSet;
use std::time::Duration;
use types::{Code, Error, Result, size};
use wire::control::OpenMode;

/// Pause between two looks while waiting.
const WAIT_PAUSE: Duration = Duration::from_millis(500);

/// Copy files to their container's tier, free their space, bring them back
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura fs tier sync azk://tank/home
  azekura fs tier status azk://tank/home/data
  azekura fs tier evict azk://tank/home/data
  azekura fs tier fetch azk://tank/home/data/a.bin")]
pub struct TierArgs {
    #[command(subcommand)]
    verb: TierVerb,
}

#[derive(Subcommand, Debug)]
enum TierVerb {
    /// Tell where the data of files are: local, dirty, uploading, both, cloud
    #[command(after_help = "local: in the pool; there is no copy
dirty: the pool has what the copy does not
uploading: the same, and a program is sending it
both: all in the pool and in the copy
cloud: all in the copy, and some of it there only; reading brings it back")]
    Status(Paths),
    /// Copy what is not in the tier yet; of a container's root also the description that restores it
    Sync(Paths),
    /// Free the space of what the tier has, after reading it back from there and comparing
    Evict(EvictArgs),
    /// Bring back what is in the tier only
    Fetch(Paths),
    /// Wait until the tier has everything; somebody else syncs
    Wait(Paths),
}

#[derive(Args, Debug)]
struct Paths {
    /// Files, or directories with all that is below them
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    urls: Vec<Url>,
}

#[derive(Args, Debug)]
struct EvictArgs {
    #[command(flatten)]
    paths: Paths,
    /// Only say what would be freed
    #[arg(long)]
    dry_run: bool,
}

impl TierArgs {
    /// True for what changes files.
    pub fn changes(&self) -> bool {
        !matches!(self.verb, TierVerb::Status(_) | TierVerb::Wait(_))
    }
}

/// A file and what is known of it.
#[derive(Serialize)]
struct FileReport {
    path: String,
    state: &'static str,
    /// Of an upload that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u8>,
    size: u64,
    /// Of it, what the pool has.
    pool_bytes: u64,
    #[serde(skip)]
    shown: String,
}

/// What a command did to all files.
#[derive(Serialize, Default)]
struct Totals {
    files: u64,
    /// Of these, those that it changed something for.
    changed: u64,
    /// Sent, freed or brought back.
    bytes: u64,
    /// Could not be freed, for the tier does not have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    dirty_bytes: Option<u64>,
    failed: u64,
    /// Key of the description of the whole container, if one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

pub fn run(session: &Session, args: &TierArgs) -> Outcome {
    match &args.verb {
        TierVerb::Status(paths) => status(session, paths),
        TierVerb::Sync(paths) => sync(session, paths),
        TierVerb::Evict(args) => evict(session, args),
        TierVerb::Fetch(paths) => fetch(session, paths),
        TierVerb::Wait(paths) => wait(session, paths),
    }
}

/// The regular files that a URL names, each object once: path and size.
fn files(remote: &Remote, url: &Url) -> Result<Vec<(Vec<u8>, u64)>> {
    let start = remote.stat(&url.path, true)?;
    if start.kind() == FileKind::Regular {
        return Ok(vec![(url.path.clone(), start.size)]);
    }
    if !start.is_dir() {
        return Ok(Vec::new());
    }
    let dir = remote.lookup(&url.path, true)?;
    let query = Query { kind: Some(FileKind::Regular), with_stat: true, ..Query::default() };
    let mut found = Vec::new();
    let totals = remote.wait(
        &url.path,
        remote.dfs().find(&dir, &query, |one| {
            if let Some(stat) = &one.stat {
                found.push((url::join(&url.path, &one.path), stat.size, stat.oid));
            }
            Ok(())
        }),
    )?;
    if totals.denied > 0 {
        return Err(Error::new(
            Code::Access,
            format!("{url}: {} directories below it cannot be read", totals.denied),
        ));
    }
    found.sort();
    let mut seen = HashSet::new();
    found.retain(|(.., oid)| seen.insert(*oid));
    Ok(found.into_iter().map(|(path, size, _)| (path, size)).collect())
}

fn report(remote: &Remote, path: &[u8], file: &Obj) -> Result<FileReport> {
    let state = remote.wait(path, remote.dfs().tier_state(file))?;
    let stat = remote.wait(path, remote.dfs().ostat(file))?;
    let survey = match state {
        TierState::Local | TierState::Both => None,
        _ => Some(remote.wait(path, remote.dfs().tier_survey(file))?),
    };
    let away = survey.map_or(0, |survey| survey.stub_count() as u64 * survey.chunk_bytes);
    let percent = match state {
        TierState::Uploading { percent } => Some(percent),
        _ => None,
    };
    Ok(FileReport {
        path: remote.name(path),
        state: state.word(),
        percent,
        size: stat.size,
        pool_bytes: stat.size.saturating_sub(away),
        shown: state.to_string(),
    })
}

fn status(session: &Session, paths: &Paths) -> Outcome {
    let mut reports = Vec::new();
    for url in &paths.urls {
        let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
        for (path, _) in files(&remote, url)? {
            match remote.lookup(&path, true).and_then(|file| report(&remote, &path, &file)) {
                Err(error) if error.code == Code::NonExist && path != url.path => {}
                outcome => reports.push(outcome?),
            }
        }
    }
    session.out.show(&reports, |out| {
        let mut table = Table::new(&["STATE", ">SIZE", ">IN POOL", "FILE"]);
        for report in &reports {
            table.row(vec![
                report.shown.clone(),
                size::format(report.size),
                size::format(report.pool_bytes),
                report.path.clone(),
            ]);
        }
        table.write(out)
    })
}

/// Does something to all files; one that fails does not keep the others from it.
fn each(
    session: &Session,
    remote: &Remote,
    url: &Url,
    what: &'static str,
    totals: &mut Totals,
    mut act: impl FnMut(&[u8], &Obj, &indicatif::ProgressBar) -> Result<u64>,
) -> Result<()> {
    let files = files(remote, url)?;
    let shown = bar(session.out.shows_progress());
    shown.set_length(files.iter().map(|(_, bytes)| bytes).sum());
    shown.set_message(what);
    let mut done = 0;
    for (path, bytes) in files {
        let opened = remote.open_file(&path, OpenFlags::READ);
        match opened.and_then(|file| act(&path, &file, &shown)) {
            Ok(count) => {
                totals.files += 1;
                totals.changed += u64::from(count > 0);
                totals.bytes += count;
            }
            // Removed since it was listed.
            Err(error) if error.code == Code::NonExist && path != url.path => {}
            // There is nothing but this one.
            Err(error) if path == url.path => return Err(error),
            Err(error) => {
                totals.failed += 1;
                shown.suspend(|| warn_line(format_args!("azekura: {error}")));
            }
        }
        done += bytes;
        shown.set_position(done);
    }
    shown.finish_and_clear();
    Ok(())
}

fn show(session: &Session, totals: &Totals, done: &str) -> Outcome {
    session.out.show(totals, |out| {
        if session.out.quiet {
            return Ok(());
        }
        let Totals { files, changed, bytes, .. } = totals;
        writeln!(out, "{changed} of {files} files {done}: {}", size::format(*bytes))?;
        match totals.dirty_bytes {
            Some(bytes) if bytes > 0 => writeln!(
                out,
                "{} stay, for the tier does not have them: azekura fs tier sync",
                size::format(bytes)
            ),
            _ => Ok(()),
        }
    })?;
    if totals.failed > 0 { Err(Failure::Reported(1)) } else { Ok(()) }
}

fn sync(session: &Session, paths: &Paths) -> Outcome {
    let mut totals = Totals::default();
    for url in &paths.urls {
        let (name, definition, store) = of_cont(session, &url.pool, &url.cont)?;
        let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
        each(session, &remote, url, "sync", &mut totals, |path, file, shown| {
            let progress = |bytes| shown.inc(bytes);
            let part = definition.part_bytes;
            let synced = tier::sync_file(remote.dfs(), file, &store, &name, part, &progress);
            Ok(remote.wait(path, synced)?.sent_bytes)
        })?;
        if url.path == b"/" {
            let put = remote.wait(&url.path, tier::put_tree(remote.dfs(), &store))?;
            totals.description = Some(put.0);
        }
    }
    show(session, &totals, "sent")
}

fn evict(session: &Session, args: &EvictArgs) -> Outcome {
    let mut totals = Totals { dirty_bytes: Some(0), ..Totals::default() };
    for url in &args.paths.urls {
        let (.., store) = of_cont(session, &url.pool, &url.cont)?;
        let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
        let mut dirty_bytes = 0;
        each(session, &remote, url, "evict", &mut totals, |path, file, shown| {
            let fs = remote.dfs();
            let record = remote.wait(path, fs.tier_record(file))?;
            let Some(record) = record.filter(|record| record.version > 0) else {
                dirty_bytes += remote.wait(path, fs.size(file))?;
                return Ok(0);
            };
            if args.dry_run {
                let survey = remote.wait(path, fs.tier_survey(file))?;
                let (may, dirty) = survey.evictable(&record);
                dirty_bytes += dirty;
                return Ok(may);
            }
            let progress = |bytes| shown.inc(bytes);
            let eviction = remote.wait(path, tier::evict_file(fs, file, &store, &progress))?;
            dirty_bytes += eviction.dirty_bytes;
            Ok(eviction.evicted_bytes)
        })?;
        totals.dirty_bytes = totals.dirty_bytes.map(|bytes| bytes + dirty_bytes);
    }
    show(session, &totals, if args.dry_run { "would be freed" } else { "freed" })
}

fn fetch(session: &Session, paths: &Paths) -> Outcome {
    let mut totals = Totals::default();
    for url in &paths.urls {
        let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
        each(session, &remote, url, "fetch", &mut totals, |path, file, _| {
            remote.wait(path, remote.dfs().tier_fetch(file))
        })?;
    }
    show(session, &totals, "brought back")
}

fn wait(session: &Session, paths: &Paths) -> Outcome {
    for url in &paths.urls {
        let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
        loop {
            let mut unsafe_count = 0;
            for (path, _) in files(&remote, url)? {
                match remote.lookup(&path, true) {
                    Err(error) if error.code == Code::NonExist && path != url.path => continue,
                    file => {
                        let state = remote.wait(&path, remote.dfs().tier_state(&file?))?;
                        let is_safe = matches!(state, TierState::Both | TierState::Cloud);
                        unsafe_count += u64::from(!is_safe);
                    }
                }
            }
            if unsafe_count == 0 {
                break;
            }
            std::thread::sleep(WAIT_PAUSE);
        }
    }
    session.out.done("The tier has everything.")
}
