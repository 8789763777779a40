//! `azekura fs tier policy`, `pin` and `unpin`: what is moved by itself, what fsync waits for, what stays.

use super::{Remote, each};
use crate::exit::{Failure, Outcome};
use crate::output::{Table, warn_line};
use crate::session::Session;
use crate::tier::of_cont;
use crate::url::{self, Url};
use clap::{Args, Subcommand};
use dfs::find::Query;
use dfs::tier::{Mark, Marks, SyncPolicy, TierNotice};
use dfs::{FileKind, Obj};
use serde::Serialize;
use std::path::PathBuf;
use tier::{Action, CacheMax, Move, Moved, Mover, Policy, Why, room};
use types::{Code, Error, Result, size};
use wire::control::OpenMode;

/// Limit of a policy that names none: what the pool keeps of its files.
const CACHE_DEFAULT: &str = "300GiB";

/// Say what of a directory is moved to the tier by itself, and what fsync waits for
///
/// A policy is for a directory and all below it, up to directories with their own. 'azekura tier agent --move' applies policies
/// all the time, 'apply' once.
#[derive(Args, Debug)]
pub struct PolicyArgs {
    #[command(subcommand)]
    verb: PolicyVerb,
}

#[derive(Subcommand, Debug)]
enum PolicyVerb {
    Set(SetArgs),
    /// Tell what counts for a directory or file, and what it has itself
    #[command(after_help = "Example:\n  azekura fs tier policy get azk://tank/home/data")]
    Get {
        #[arg(value_name = "URL", value_parser = crate::fs::url_parser())]
        url: Url,
    },
    /// List all directories below one that have a policy, and all that is pinned
    #[command(after_help = "Example:\n  azekura fs tier policy list azk://tank/home")]
    List {
        #[arg(value_name = "URL", value_parser = crate::fs::url_parser())]
        url: Url,
    },
    /// Take a directory's policy away; that of a directory above it counts then
    #[command(after_help = "Example:\n  azekura fs tier policy clear azk://tank/home/data")]
    Clear {
        #[arg(value_name = "URL", value_parser = crate::fs::url_parser())]
        url: Url,
    },
    Apply(ApplyArgs),
}

/// Give a directory a policy, in place of the one it has
///
/// The first rule that fits a file decides. A rule is a word and conditions, which must all hold:
///
///   evict   the tier takes a copy, and the pool gives its own up
///   copy    the tier takes a copy
///   keep    nothing; not for fill level and cache limit either
///
///   unused=AGE      not read, written or brought back for so long (90s, 10m, 12h, 30d, 8w)
///   uses=MIN..MAX/AGE  used on so many of the last days (10../30d, ..2/8w; at most 64 days)
///   unchanged=AGE   not written for so long
///   size=MIN..MAX   either may be left out
///   path=PATTERN    of the name, or with a '/' of the path from the directory on; '*' stands for '/', too
///
/// When the pool is --high full, the files least recently used go until it is --low full; and when it has more than --cache-max of the
/// policy's files, until it has not.
#[derive(Args, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:
  azekura fs tier policy set azk://tank/home --rule 'keep path=*.idx' --rule 'evict unused=30d size=64MiB..'
  azekura fs tier policy set azk://tank/home/scratch --high 85% --low 70% --cache-max 20%
  azekura fs tier policy set azk://tank/home/results --sync posix"
)]
struct SetArgs {
    #[arg(value_name = "URL", value_parser = crate::fs::url_parser())]
    url: Url,
    /// A rule; may be given several times, the order matters
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<String>,
    /// All of it from a file, a line each: rules, 'fill high=85% low=70%', 'cache max=300GiB'; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rules", "high", "low", "cache_max"])]
    file: Option<PathBuf>,
    /// How full the pool must be for files to go
    #[arg(long, value_name = "PERCENT", requires = "low")]
    high: Option<String>,
    /// How full it may be when they have gone
    #[arg(long, value_name = "PERCENT", requires = "high")]
    low: Option<String>,
    /// Most that the pool keeps of the files, a size or a share of the pool; none: all [default: 300GiB]
    #[arg(long, value_name = "SIZE|PERCENT")]
    cache_max: Option<String>,
    /// When fsync returns: when the tier has the data (posix), or the pool (async)
    #[arg(long, value_name = "WHEN", value_parser = ["posix", "async"])]
    sync: Option<String>,
}

/// Do once what the policies of a container want
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura fs tier policy apply azk://tank/home --dry-run
  azekura fs tier policy apply azk://tank/home")]
struct ApplyArgs {
    /// The container
    #[arg(value_name = "URL", value_parser = crate::fs::url_parser())]
    url: Url,
    /// Only say which files would move, and how many bytes
    #[arg(long)]
    dry_run: bool,
}

impl PolicyArgs {
    /// True for what changes directories or files.
    pub fn changes(&self) -> bool {
        match &self.verb {
            PolicyVerb::Get { .. } | PolicyVerb::List { .. } => false,
            PolicyVerb::Set(_) | PolicyVerb::Clear { .. } => true,
            PolicyVerb::Apply(args) => !args.dry_run,
        }
    }
}

pub fn run(session: &Session, args: &PolicyArgs) -> Outcome {
    match &args.verb {
        PolicyVerb::Set(args) => set(session, args),
        PolicyVerb::Get { url } => get(session, url),
        PolicyVerb::List { url } => list(session, url),
        PolicyVerb::Clear { url } => clear(session, url),
        PolicyVerb::Apply(args) => apply(session, args),
    }
}

/// The policy that the options describe; `None` when they say nothing of rules and limits.
fn described(args: &SetArgs) -> Result<Option<Policy>> {
    if let Some(file) = &args.file {
        let text = match file.as_os_str() == "-" {
            true => std::io::read_to_string(std::io::stdin()),
            false => std::fs::read_to_string(file),
        };
        let text = text.map_err(|error| Error::io(format!("'{}'", file.display()), error))?;
        return text.parse().map(Some);
    }
    let mut policy: Policy = args.rules.join("\n").parse()?;
    if let (Some(high), Some(low)) = (&args.high, &args.low) {
        policy.fill = format!("fill high={high} low={low}").parse::<Policy>()?.fill;
    }
    if policy.is_empty() && args.cache_max.is_none() && args.sync.is_some() {
        return Ok(None);
    }
    policy.cache = match args.cache_max.as_deref() {
        Some("none") => None,
        given => Some(given.unwrap_or(CACHE_DEFAULT).parse::<CacheMax>()?),
    };
    Ok(Some(policy))
}

fn set(session: &Session, args: &SetArgs) -> Outcome {
    let url = &args.url;
    let policy = described(args)?;
    if policy.as_ref().is_some_and(Policy::is_empty) {
        return Err(Error::inval("this policy says nothing; 'policy clear' takes one away").into());
    }
    let (tier, ..) = of_cont(session, &url.pool, &url.cont)?;
    let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
    let dir = directory(&remote, url)?;
    let fs = remote.dfs();
    remote.wait(&url.path, async {
        if let Some(policy) = &policy {
            fs.set_tier_mark(&dir, Mark::Policy, Some(policy.to_string().as_bytes())).await?;
        }
        let known = fs.tier_notice().await?;
        let is_posix = args.sync.as_deref() == Some(SyncPolicy::Posix.word());
        let has_posix = is_posix || known.as_ref().is_some_and(|notice| notice.has_posix);
        let notice = TierNotice { tier, has_posix };
        if known.as_ref() != Some(&notice) {
            fs.set_tier_notice(&notice).await?;
        }
        if let Some(word) = &args.sync {
            fs.set_tier_mark(&dir, Mark::Sync, Some(word.as_bytes())).await?;
        }
        Ok(())
    })?;
    session.out.done(&format!("{url} has its policy."))
}

fn directory(remote: &Remote, url: &Url) -> Result<Obj> {
    let dir = remote.lookup(&url.path, true)?;
    match dir.is_dir() {
        true => Ok(dir),
        false => Err(Error::new(Code::NotDir, format!("{url}: policies are given to directories"))),
    }
}

/// What a directory or file has, or what counts for it.
#[derive(Serialize)]
struct MarksReport {
    /// As it was set, a line each.
    policy: Vec<String>,
    sync: Option<&'static str>,
    pinned: bool,
}

impl MarksReport {
    fn of(marks: &Marks) -> MarksReport {
        let text = marks.policy.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        MarksReport {
            policy: text.lines().map(str::to_string).collect(),
            sync: marks.sync.map(SyncPolicy::word),
            pinned: marks.is_pinned,
        }
    }

    fn is_empty(&self) -> bool {
        self.policy.is_empty() && self.sync.is_none() && !self.pinned
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = self.policy.clone();
        lines.extend(self.sync.map(|word| format!("sync {word}")));
        lines.extend(self.pinned.then(|| "pinned".to_string()));
        lines
    }
}

#[derive(Serialize)]
struct GetReport {
    own: MarksReport,
    counts: MarksReport,
}

fn get(session: &Session, url: &Url) -> Outcome {
    let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
    let obj = remote.lookup(&url.path, true)?;
    let own = remote.wait(&url.path, remote.dfs().tier_marks(&obj))?;
    let counts = remote.wait(&url.path, remote.dfs().tier_marks_for(&obj))?;
    let report = GetReport { own: MarksReport::of(&own), counts: MarksReport::of(&counts) };
    session.out.show(&report, |out| {
        for line in report.counts.lines() {
            let from = if report.own.lines().contains(&line) { "" } else { "   # from above" };
            writeln!(out, "{line}{from}")?;
        }
        Ok(())
    })
}

#[derive(Serialize)]
struct ListReport {
    path: String,
    #[serde(flatten)]
    marks: MarksReport,
}

fn list(session: &Session, url: &Url) -> Outcome {
    let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
    let mut reports = Vec::new();
    for path in below(&remote, url)? {
        let marks = match remote.lookup(&path, false) {
            Err(error) if error.code == Code::NonExist && path != url.path => continue,
            obj => remote.wait(&path, remote.dfs().tier_marks(&obj?))?,
        };
        let marks = MarksReport::of(&marks);
        if !marks.is_empty() {
            reports.push(ListReport { path: remote.name(&path), marks });
        }
    }
    session.out.show(&reports, |out| {
        let mut table = Table::new(&["PATH", "POLICY"]);
        for report in &reports {
            let mut path = report.path.clone();
            for line in report.marks.lines() {
                table.row(vec![std::mem::take(&mut path), line]);
            }
        }
        table.write(out)
    })
}

/// A path, and directories and regular files below it.
fn below(remote: &Remote, url: &Url) -> Result<Vec<Vec<u8>>> {
    let start = remote.lookup(&url.path, true)?;
    let mut paths = vec![url.path.clone()];
    if start.is_dir() {
        let query = Query::default();
        let find = remote.dfs().find(&start, &query, |one| {
            if matches!(one.kind, FileKind::Directory | FileKind::Regular) {
                paths.push(url::join(&url.path, &one.path));
            }
            Ok(())
        });
        remote.wait(&url.path, find)?;
    }
    paths.sort();
    Ok(paths)
}

fn clear(session: &Session, url: &Url) -> Outcome {
    let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
    let dir = directory(&remote, url)?;
    for mark in [Mark::Policy, Mark::Sync] {
        remote.wait(&url.path, remote.dfs().set_tier_mark(&dir, mark, None))?;
    }
    session.out.done(&format!("{url} has no policy of its own."))
}

/// One file of a pass.
#[derive(Serialize)]
struct MoveReport {
    path: String,
    action: Action,
    why: Why,
    copied_bytes: u64,
    evicted_bytes: u64,
}

#[derive(Serialize)]
struct ApplyReport {
    dry_run: bool,
    #[serde(flatten)]
    moved: Moved,
    moves: Vec<MoveReport>,
}

fn apply(session: &Session, args: &ApplyArgs) -> Outcome {
    let url = &args.url;
    if url.path != b"/" {
        let text =
            format!("policies are applied to a whole container: azk://{}/{}", url.pool, url.cont);
        return Err(Error::inval(text).into());
    }
    let (name, _, store) = of_cont(session, &url.pool, &url.cont)?;
    let mode = if args.dry_run { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
    let remote = Remote::open(session, url, mode)?;
    let mut moves = Vec::new();
    let mut told = |one: &Move<'_>| match &one.outcome {
        Ok((copied_bytes, evicted_bytes)) => moves.push(MoveReport {
            path: remote.name(one.path),
            action: one.action,
            why: one.why,
            copied_bytes: *copied_bytes,
            evicted_bytes: *evicted_bytes,
        }),
        Err(error) => warn_line(format_args!("azekura: {}: {error}", remote.name(one.path))),
    };
    let moved = remote.wait(&url.path, async {
        let room = room(remote.dfs()).await?;
        Mover::new(remote.dfs(), &store, &name).pass(room, args.dry_run, &mut told).await
    })?;
    let report = ApplyReport { dry_run: args.dry_run, moved, moves };
    session.out.show(&report, |out| {
        let Moved { copied_files, copied_bytes, evicted_files, evicted_bytes, .. } = moved;
        if args.dry_run {
            let mut table = Table::new(&["WHY", ">COPY", ">EVICT", "FILE"]);
            for one in &report.moves {
                let why = match one.why {
                    Why::Rule => "rule",
                    Why::Fill => "fill",
                    Why::Cache => "cache",
                };
                table.row(vec![
                    why.to_string(),
                    size::format(one.copied_bytes),
                    size::format(one.evicted_bytes),
                    one.path.clone(),
                ]);
            }
            table.write(out)?;
        }
        let verb = if args.dry_run { "would be " } else { "" };
        writeln!(
            out,
            "{copied_files} files {verb}copied: {}; {evicted_files} {verb}evicted: {}; {} looked at, {} kept",
            size::format(copied_bytes),
            size::format(evicted_bytes),
            moved.files,
            moved.kept_files
        )?;
        match moved.excess_bytes {
            0 => Ok(()),
            bytes => writeln!(out, "{} more should go, and nothing else may", size::format(bytes)),
        }
    })?;
    if moved.failed_files > 0 { Err(Failure::Reported(1)) } else { Ok(()) }
}

/// Pins paths, and brings back what is in the tier only.
pub fn pin(session: &Session, urls: &[Url]) -> Outcome {
    let mut totals = super::Totals::default();
    for url in urls {
        let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
        let obj = remote.lookup(&url.path, true)?;
        remote.wait(&url.path, remote.dfs().set_tier_mark(&obj, Mark::Pin, Some(b"1")))?;
        each(session, &remote, url, "pin", &mut totals, |path, file, shown| {
            let progress = |bytes| shown.inc(bytes);
            remote.wait(path, remote.dfs().tier_fetch(file, &progress))
        })?;
    }
    super::show(session, &totals, "brought back")
}

/// Takes pins away, those below a directory, too.
pub fn unpin(session: &Session, urls: &[Url]) -> Outcome {
    for url in urls {
        let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
        for path in below(&remote, url)? {
            match remote.lookup(&path, path == url.path) {
                Err(error) if error.code == Code::NonExist && path != url.path => {}
                obj => {
                    let obj = obj?;
                    let marks = remote.wait(&path, remote.dfs().tier_marks(&obj))?;
                    if marks.is_pinned {
                        let set = remote.dfs().set_tier_mark(&obj, Mark::Pin, None);
                        remote.wait(&path, set)?;
                    }
                }
            }
        }
        let obj = remote.lookup(&url.path, true)?;
        if remote.wait(&url.path, remote.dfs().tier_marks_for(&obj))?.is_pinned {
            let text = format!(
                "{url} is below a directory that is pinned; 'policy list' of the container tells which"
            );
            return Err(Error::new(Code::Busy, text).into());
        }
    }
    session.out.done("Nothing there is pinned.")
}
