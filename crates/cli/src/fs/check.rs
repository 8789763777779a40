//! `azekura fs check`: is the tree whole?

use super::remote::Remote;
use crate::exit::{Failure, Outcome};
use crate::session::Session;
use crate::url::Url;
use dfs::check::{CheckReport, Finding, Mend, Problem};
use dfs::{Code, MountFlags};
use serde::Serialize;
use types::size;
use wire::control::OpenMode;

/// Check a file system
///
/// Looks for objects that nothing names, entries that lead nowhere, wrong link counts and wrong
/// parents. Opens the container for itself alone: it fails with exit code 7 while others use
/// it. Exit code 1 when something is wrong and was not put right.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs check azk://tank/home
  azekura fs check azk://tank/home --repair=relink")]
pub struct CheckArgs {
    /// The container (any path in it)
    #[arg(value_name = "URL", value_parser = super::url_parser())]
    url: Url,
    /// Put right what can be; objects without a name are removed, or relinked in /lost+found
    #[arg(long, value_enum)]
    repair: Option<Repair>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Repair {
    /// Remove objects that nothing names
    Remove,
    /// Give them a name in /lost+found
    Relink,
}

#[derive(Serialize)]
struct Report {
    clean: bool,
    objects: u64,
    directories: u64,
    entries: u64,
    /// Removed, and freed when nobody holds them open any more.
    waiting: u64,
    waiting_bytes: u64,
    findings: Vec<FindingReport>,
}

#[derive(Serialize)]
struct FindingReport {
    problem: String,
    oid: String,
    path: String,
    mended: bool,
}

fn finding(found: &Finding) -> FindingReport {
    let problem = match &found.problem {
        Problem::Leaked => "nothing names this object".to_string(),
        Problem::Dangling => "the entry leads nowhere".to_string(),
        Problem::LinkCount { stored, seen } => {
            format!("link count is {stored}, should be {seen}")
        }
        Problem::Parent { stored } => format!("the directory says it is in {stored}"),
        Problem::Misplaced { stored, seen } => {
            format!("it has {stored} names, of which {seen} are where they are looked for")
        }
        Problem::Hidden => "its data beyond the first part are not shown".to_string(),
    };
    FindingReport {
        problem,
        oid: found.oid.to_string(),
        path: super::entry::text(&found.path),
        mended: found.mended,
    }
}

pub fn run(session: &Session, args: &CheckArgs) -> Outcome {
    let mend = match args.repair {
        None => Mend::Nothing,
        Some(Repair::Remove) => Mend::Remove,
        Some(Repair::Relink) => Mend::Relink,
    };
    // Whoever may open the container for itself may see all of it.
    let mount = session
        .mount_with(&args.url, OpenMode::Exclusive, MountFlags::NO_PERM_CHECK)
        .map_err(|error| match error.code {
            Code::Busy => error.context("the check must be alone"),
            _ => error,
        })?;
    let remote = Remote::new(mount, &args.url);
    let found: CheckReport = remote.wait(b"", remote.dfs().check(mend))?;
    let report = Report {
        clean: found.is_clean(),
        objects: found.object_count,
        directories: found.dir_count,
        entries: found.entry_count,
        waiting: found.waiting_count,
        waiting_bytes: found.waiting_bytes,
        findings: found.findings.iter().map(finding).collect(),
    };
    session.out.show(&report, |out| {
        for found in &report.findings {
            let place = if found.path.is_empty() { &found.oid } else { &found.path };
            let mended = if found.mended { " (put right)" } else { "" };
            writeln!(out, "{place}: {}{mended}", found.problem)?;
        }
        writeln!(
            out,
            "{} directories, {} entries, {} objects: {}",
            report.directories,
            report.entries,
            report.objects,
            match (report.findings.len(), report.clean) {
                (0, _) => "no problems.".to_string(),
                (count, true) => format!("{count} problems, all put right."),
                (count, false) => format!("{count} problems."),
            }
        )?;
        if report.waiting > 0 {
            writeln!(
                out,
                "{} removed files with {} are freed when nobody holds them open any more.",
                report.waiting,
                size::format(report.waiting_bytes)
            )?;
        }
        Ok(())
    })?;
    if report.clean { Ok(()) } else { Err(Failure::Reported(1)) }
}
