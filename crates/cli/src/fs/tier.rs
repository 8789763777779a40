//! `azekura fs tier`: copies of files in their container's tier.

mod policy;

use super::remote::Remote;
use crate::exit::{Failure, Outcome};
use crate::output::{Table, bar, plural, warn_line};
use crate::session::Session;
use crate::tier::{forget_earlier, name_of, of_cont};
use crate::url::{self, Url};
use clap::{Args, Subcommand};
use dfs::find::Query;
use dfs::tier::{TierRecord, TierState};
use dfs::{FileKind, Obj, OpenFlags};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
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
cloud: all in the copy, and some of it there only; reading brings it back

Dirty is what the tier does not have as it is, also of files without a copy.

Example:
  azekura fs tier status --summary azk://tank/home/data")]
    Status(StatusArgs),
    /// Copy what is not in the tier yet; of a container's root also the description that restores it
    #[command(after_help = "Example:\n  azekura fs tier sync azk://tank/home/")]
    Sync(Paths),
    /// Free the space of what the tier has, after reading it back from there and comparing
    #[command(
        after_help = "Examples:\n  azekura fs tier evict --dry-run azk://tank/home/old\n  azekura fs tier evict azk://tank/home/old"
    )]
    Evict(EvictArgs),
    /// Bring back what is in the tier only
    #[command(after_help = "Example:\n  azekura fs tier fetch azk://tank/home/data/a.bin")]
    Fetch(Paths),
    /// Wait until the tier has everything; somebody else syncs
    #[command(after_help = "Example:\n  azekura fs tier wait azk://tank/home/data")]
    Wait(Paths),
    Policy(policy::PolicyArgs),
    /// Have files stay in the pool, also those made later below a directory, and bring back what is in the tier only
    #[command(after_help = "Example:\n  azekura fs tier pin azk://tank/home/data/index")]
    Pin(Paths),
    /// Let files go again, with all that is pinned below a directory
    #[command(after_help = "Example:\n  azekura fs tier unpin azk://tank/home/data/index")]
    Unpin(Paths),
}

#[derive(Args, Debug)]
struct Paths {
    /// Files, or directories with all that is below them
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    urls: Vec<Url>,
}

#[derive(Args, Debug)]
struct StatusArgs {
    #[command(flatten)]
    paths: Paths,
    /// Only totals
    #[arg(long)]
    summary: bool,
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
        match &self.verb {
            TierVerb::Status(_) | TierVerb::Wait(_) => false,
            TierVerb::Policy(args) => args.changes(),
            _ => true,
        }
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
    /// What the tier does not have as it is.
    dirty_bytes: u64,
    /// When the oldest of that was written, nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    dirty_since_ns: Option<u64>,
    /// The tier that has its copy, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
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
    /// Were not freed, for they are pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_files: Option<u64>,
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
        TierVerb::Policy(args) => policy::run(session, args),
        TierVerb::Pin(paths) => policy::pin(session, &paths.urls),
        TierVerb::Unpin(paths) => policy::unpin(session, &paths.urls),
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

/// All files together.
#[derive(Serialize, Default)]
struct Summary {
    files: u64,
    size: u64,
    pool_bytes: u64,
    dirty_files: u64,
    dirty_bytes: u64,
    /// How long ago the oldest of that was written, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_dirty_age_s: Option<u64>,
}

impl Summary {
    fn of(reports: &[FileReport]) -> Summary {
        let sum = |of: fn(&FileReport) -> u64| reports.iter().map(of).sum();
        let now_ns =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_nanos() as u64);
        let oldest_ns = reports.iter().filter_map(|report| report.dirty_since_ns).min();
        Summary {
            files: reports.len() as u64,
            size: sum(|report| report.size),
            pool_bytes: sum(|report| report.pool_bytes),
            dirty_files: sum(|report| u64::from(report.dirty_since_ns.is_some())),
            dirty_bytes: sum(|report| report.dirty_bytes),
            oldest_dirty_age_s: oldest_ns.map(|at_ns| now_ns.saturating_sub(at_ns) / 1_000_000_000),
        }
    }
}

fn report(remote: &Remote, path: &[u8], file: &Obj) -> Result<FileReport> {
    let fs = remote.dfs();
    let state = remote.wait(path, fs.tier_state(file))?;
    let size = remote.wait(path, fs.size(file))?;
    let (mut away, mut dirty_bytes, mut dirty_since_ns) = (0, 0, None);
    if fs.tier_chunks(file, size).is_err() {
        // One such file once was all that was told of a directory: an error.
        let mtime_ns = remote.wait(path, fs.ostat(file))?.mtime_ns;
        (dirty_bytes, dirty_since_ns) = (size, u64::try_from(mtime_ns).ok());
    } else if state != TierState::Both {
        let survey = remote.wait(path, fs.tier_survey(file))?;
        let record = remote.wait(path, fs.tier_record(file))?;
        away = survey.stub_count() as u64 * survey.chunk_bytes;
        (dirty_bytes, dirty_since_ns) = survey.dirty(record.as_ref());
    }
    let tier = match state {
        TierState::Local => None,
        _ => remote.wait(path, fs.tier_record(file))?,
    };
    let tier = tier.filter(|record| record.version > 0).map(|record| record.tier);
    let percent = match state {
        TierState::Uploading { percent } => Some(percent),
        TierState::Local | TierState::Dirty | TierState::Both | TierState::Cloud => None,
    };
    Ok(FileReport {
        path: remote.name(path),
        state: state.word(),
        percent,
        size,
        pool_bytes: size.saturating_sub(away),
        dirty_bytes,
        dirty_since_ns,
        tier,
        shown: state.to_string(),
    })
}

fn status(session: &Session, args: &StatusArgs) -> Outcome {
    let (mut reports, mut elsewhere) = (Vec::new(), BTreeMap::<_, u64>::new());
    for url in &args.paths.urls {
        let attached = name_of(session, &url.pool, &url.cont)?;
        let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
        for (path, _) in files(&remote, url)? {
            let one =
                match remote.lookup(&path, true).and_then(|file| report(&remote, &path, &file)) {
                    Err(error) if error.code == Code::NonExist && path != url.path => continue,
                    outcome => outcome?,
                };
            if let (Some(attached), Some(tier)) = (&attached, &one.tier)
                && attached != tier
            {
                *elsewhere.entry((tier.clone(), attached.clone())).or_default() += 1;
            }
            reports.push(one);
        }
    }
    let summary = Summary::of(&reports);
    let tell = |out: &mut dyn std::io::Write| {
        let Summary { files, size, pool_bytes, dirty_files, dirty_bytes, .. } = &summary;
        writeln!(
            out,
            "{files} files, {}; {} in the pool",
            size::format(*size),
            size::format(*pool_bytes)
        )?;
        match summary.oldest_dirty_age_s {
            Some(age_s) => writeln!(
                out,
                "{dirty_files} files with {} that the tier does not have, the oldest for {}",
                size::format(*dirty_bytes),
                tier::age(age_s)
            ),
            None => writeln!(out, "The tier has everything."),
        }?;
        for ((tier, attached), count) in &elsewhere {
            let files = plural(*count as usize, "file");
            writeln!(out, "{files} in tier '{tier}', not in '{attached}': azekura fs tier sync")?;
        }
        Ok(())
    };
    if args.summary {
        return session.out.show(&summary, |out| tell(out));
    }
    session.out.show(&reports, |out| {
        let mut table = Table::new(&["STATE", ">SIZE", ">IN POOL", ">DIRTY", "FILE"]);
        for report in &reports {
            table.row(vec![
                report.shown.clone(),
                size::format(report.size),
                size::format(report.pool_bytes),
                size::format(report.dirty_bytes),
                report.path.clone(),
            ]);
        }
        table.write(out)?;
        tell(out)
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
            // Removed since it was listed; or it is there, and the store has lost something of it.
            Err(error)
                if error.code == Code::NonExist
                    && path != url.path
                    && remote.try_stat(&path, true)?.is_none() => {}
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
        if let Some(count) = totals.pinned_files.filter(|count| *count > 0) {
            writeln!(out, "{count} stay, for they are pinned: azekura fs tier unpin")?;
        }
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
        let (name, _, store) = of_cont(session, &url.pool, &url.cont)?;
        let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
        each(session, &remote, url, "sync", &mut totals, |path, file, shown| {
            let progress = |bytes| shown.inc(bytes);
            let synced = tier::sync_file(remote.dfs(), file, &store, &name, &progress);
            Ok(remote.wait(path, synced)?.sent_bytes)
        })?;
        if url.path == b"/" {
            let put = remote.wait(&url.path, tier::put_tree(remote.dfs(), &store, &name))?;
            totals.description = Some(put.0);
            if totals.failed == 0 {
                forget_earlier(session, url)?;
            }
        }
    }
    show(session, &totals, "sent")
}

fn evict(session: &Session, args: &EvictArgs) -> Outcome {
    let mut totals = Totals { dirty_bytes: Some(0), pinned_files: Some(0), ..Totals::default() };
    for url in &args.paths.urls {
        let (name, _, store) = of_cont(session, &url.pool, &url.cont)?;
        let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
        let (mut dirty_bytes, mut pinned) = (0, 0);
        each(session, &remote, url, "evict", &mut totals, |path, file, shown| {
            let fs = remote.dfs();
            if remote.wait(path, fs.tier_marks_for(file))?.is_pinned {
                if path == url.path {
                    let text = "the file is pinned; azekura fs tier unpin lets it go";
                    return Err(Error::new(Code::Busy, format!("{url}: {text}")));
                }
                pinned += 1;
                return Ok(0);
            }
            let record = remote.wait(path, fs.tier_record(file))?;
            let is_there = |record: &TierRecord| record.version > 0 && record.tier == name;
            let Some(record) = record.filter(is_there) else {
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
            let eviction =
                remote.wait(path, tier::evict_file(fs, file, &store, &name, &progress))?;
            dirty_bytes += eviction.dirty_bytes;
            Ok(eviction.evicted_bytes)
        })?;
        totals.dirty_bytes = totals.dirty_bytes.map(|bytes| bytes + dirty_bytes);
        totals.pinned_files = totals.pinned_files.map(|files| files + pinned);
    }
    show(session, &totals, if args.dry_run { "would be freed" } else { "freed" })
}

fn fetch(session: &Session, paths: &Paths) -> Outcome {
    let mut totals = Totals::default();
    for url in &paths.urls {
        let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
        each(session, &remote, url, "fetch", &mut totals, |path, file, shown| {
            let progress = |bytes| shown.inc(bytes);
            remote.wait(path, remote.dfs().tier_fetch(file, &progress))
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
                        let (file, fs) = (file?, remote.dfs());
                        let state = remote.wait(&path, fs.tier_state(&file))?;
                        if matches!(state, TierState::Both | TierState::Cloud) {
                            continue;
                        }
                        // Nobody has to wait for what never comes.
                        let may_go = async { fs.tier_chunks(&file, fs.size(&file).await?) };
                        remote.wait(&path, may_go)?;
                        unsafe_count += 1;
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
