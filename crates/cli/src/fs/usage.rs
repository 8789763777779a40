//! `azekura fs du` and `azekura fs df`: space.

use super::entry::size_text;
use super::remote::Remote;
use crate::exit::Outcome;
use crate::output::Table;
use crate::session::Session;
use crate::url::{self, Url};
use serde::Serialize;
use std::collections::HashSet;
use types::{Code, Oid, Result, size};
use wire::control::OpenMode;

/// Show the space directories take
///
/// Counts stored bytes; a file with several names counts once.
// '-h' is taken by sizes, as in du.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "Examples:
  azekura fs du -sh azk://tank/home
  azekura fs du --apparent-size azk://tank/home/data")]
pub struct DuArgs {
    /// Directories or files
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    urls: Vec<Url>,
    /// Only a sum for each argument
    #[arg(short, long)]
    summarize: bool,
    /// Sizes as 4 KiB, 1.5 GiB
    #[arg(short = 'h', long)]
    human: bool,
    /// Sizes of files, not stored bytes
    #[arg(long)]
    apparent_size: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Serialize)]
struct DuReport {
    url: String,
    bytes: u64,
    files: u64,
    directories: u64,
}

pub fn du(session: &Session, args: &DuArgs) -> Outcome {
    let mut reports = Vec::new();
    for url in &args.urls {
        let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
        let stat = remote.stat(&url.path, false)?;
        let mut count = Count { seen: HashSet::new(), reports: Vec::new() };
        let bytes = if args.apparent_size { stat.size } else { stat.stored_bytes };
        if stat.is_dir() {
            count.dir(&remote, args, url.path.clone())?;
        } else {
            count.reports.push(DuReport { url: url.to_string(), bytes, files: 1, directories: 0 });
        }
        if args.summarize {
            reports.extend(count.reports.pop());
        } else {
            reports.append(&mut count.reports);
        }
    }
    session.out.show(&reports, |out| {
        let texts: Vec<String> =
            reports.iter().map(|report| size_text(report.bytes, args.human)).collect();
        let width = texts.iter().map(String::len).max().unwrap_or(0);
        for (report, text) in reports.iter().zip(texts) {
            writeln!(out, "{text:>width$}  {}", report.url)?;
        }
        Ok(())
    })
}

struct Count {
    /// Files with several names that have been counted.
    seen: HashSet<Oid>,
    /// One per directory, what is below it first.
    reports: Vec<DuReport>,
}

/// A directory whose entries are being counted.
struct Open {
    report: DuReport,
    below: Vec<Vec<u8>>,
}

impl Count {
    /// Counts a tree without recursion: trees may be deeper than the stack.
    fn dir(&mut self, remote: &Remote, args: &DuArgs, path: Vec<u8>) -> Result<()> {
        let mut stack = vec![self.open(remote, args, path)?];
        while let Some(top) = stack.last_mut() {
            if let Some(path) = top.below.pop() {
                match self.open(remote, args, path) {
                    Ok(open) => stack.push(open),
                    // It went, or became something else, since its directory was listed.
                    Err(error) if matches!(error.code, Code::NonExist | Code::NotDir) => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            let Some(done) = stack.pop() else { break };
            if let Some(parent) = stack.last_mut() {
                parent.report.bytes += done.report.bytes;
                parent.report.files += done.report.files;
                parent.report.directories += done.report.directories;
            }
            self.reports.push(done.report);
        }
        Ok(())
    }

    fn open(&mut self, remote: &Remote, args: &DuArgs, path: Vec<u8>) -> Result<Open> {
        let url = remote.name(&path);
        let mut report = DuReport { url, bytes: 0, files: 0, directories: 1 };
        let mut below = Vec::new();
        for (name, stat) in remote.list(&path)? {
            if stat.is_dir() {
                below.push(url::join(&path, &name));
                continue;
            }
            report.files += 1;
            if stat.nlink < 2 || self.seen.insert(stat.oid) {
                report.bytes += if args.apparent_size { stat.size } else { stat.stored_bytes };
            }
        }
        below.reverse();
        Ok(Open { report, below })
    }
}

/// Show free space
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  azekura fs df azk://tank/home")]
pub struct DfArgs {
    /// Containers (any path in them)
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    urls: Vec<Url>,
    /// Plain numbers of bytes
    #[arg(short, long)]
    bytes: bool,
}

#[derive(Serialize)]
struct DfReport {
    url: String,
    total_bytes: u64,
    used_bytes: u64,
    /// What data of new files may take.
    free_bytes: u64,
    objects: u64,
}

pub fn df(session: &Session, args: &DfArgs) -> Outcome {
    let mut reports = Vec::new();
    for url in &args.urls {
        let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
        let space = remote.wait(b"", remote.sys.statfs())?;
        reports.push(DfReport {
            url: remote.name(b""),
            total_bytes: space.total_bytes,
            used_bytes: space.total_bytes.saturating_sub(space.free_bytes),
            free_bytes: space.available_bytes,
            objects: space.object_count,
        });
    }
    session.out.show(&reports, |out| {
        let number = |bytes| if args.bytes { format!("{bytes}") } else { size::format(bytes) };
        let mut table = Table::new(&["CONTAINER", ">SIZE", ">USED", ">FREE", ">USE%", ">OBJECTS"]);
        for report in &reports {
            let percent = report.used_bytes as f64 * 100.0 / report.total_bytes.max(1) as f64;
            table.row(vec![
                report.url.clone(),
                number(report.total_bytes),
                number(report.used_bytes),
                number(report.free_bytes),
                format!("{:.0}%", percent.ceil()),
                report.objects.to_string(),
            ]);
        }
        table.write(out)
    })
}
