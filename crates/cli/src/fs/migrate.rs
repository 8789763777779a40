//! `azekura fs migrate`: existing files get another object class.

use super::remote::Remote;
use crate::exit::{Failure, Outcome};
use crate::output::{bar, warn_line};
use crate::session::Session;
use crate::url::{self, Url};
use dfs::migrate::{MigrateOptions, Migrated, Migrating};
use serde::Serialize;
use std::time::Duration;
use types::{Code, Error, ObjClass, size};
use wire::control::OpenMode;

/// Change the object class of existing files
///
/// Copies each file at or below the path into an object of the class and then puts that in its place, while programs read and
/// write the files. A file that is open is switched when it is closed; one that is open all the time stays as it
/// is and is named at the end. Data, holes, names, owners, attributes and times of access and modification stay; the change time
/// and the inode number are new. It may be interrupted at any time: when started again it goes on with what does not have the
/// class yet. New files get the class of their directory: 'fs set-attr --oclass'. Snapshots keep the old
/// data. Copies in a tier stay the files', and what is in the tier only stays there.
///
/// Exit code 7: some files were open all the time; 1: some could not be changed for another reason.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs migrate --oclass EC_4P2GX azk://tank/home/archive
  azekura fs migrate --oclass SX+1MiB --jobs 16 azk://tank/home
  azekura fs migrate --oclass RP_2GX --wait 60 --json azk://tank/home/db")]
pub struct MigrateArgs {
    /// The class that files get
    #[arg(long, value_name = "CLASS")]
    oclass: ObjClass,
    /// How long to wait for a file that is open or changes, after it was copied, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    wait: u64,
    /// Files at the same time
    #[arg(short, long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// A directory or file
    #[arg(value_name = "URL", value_parser = super::url_parser())]
    url: Url,
}

#[derive(Serialize, Default)]
struct Report {
    url: String,
    class: String,
    /// Files that have the class now and did not have it before.
    migrated: u64,
    /// Files that had it.
    had_it: u64,
    /// Copied, with what was copied again because it changed meanwhile.
    copied_bytes: u64,
    /// Files that were open or changed all the time.
    open: Vec<String>,
    failed: Vec<Failed>,
}

#[derive(Serialize)]
struct Failed {
    url: String,
    error: String,
}

pub fn run(session: &Session, args: &MigrateArgs) -> Outcome {
    let remote = Remote::open(session, &args.url, OpenMode::ReadWrite)?;
    let top = remote.lookup(&args.url.path, true)?;
    let options = MigrateOptions {
        class: args.oclass,
        wait: Duration::from_secs(args.wait),
        parallel: args.jobs.into(),
    };
    let mut report =
        Report { url: args.url.to_string(), class: args.oclass.to_string(), ..Report::default() };
    let shown = bar(session.out.shows_progress());
    shown.set_message("migrate");
    let copied = std::cell::Cell::new(0);
    let on_bytes = |bytes| {
        copied.set(copied.get() + bytes);
        shown.inc(bytes);
    };
    let tell = |news: Migrating| match news {
        Migrating::Found { bytes } => shown.inc_length(bytes),
        Migrating::File { outcome: Ok(Migrated::Done), .. } => report.migrated += 1,
        Migrating::File { outcome: Ok(Migrated::HadIt), .. } => report.had_it += 1,
        // Removed since it was listed.
        Migrating::File { path, outcome: Err(error) }
            if error.code == Code::NonExist && !path.is_empty() => {}
        Migrating::File { path, outcome: Err(error) } if error.code == Code::Busy => {
            report.open.push(named(&remote, args, &path));
        }
        Migrating::File { path, outcome: Err(error) } | Migrating::Dir { path, error } => {
            report.failed.push(Failed { url: named(&remote, args, &path), error: told(&error) });
        }
    };
    let outcome =
        remote.wait(&args.url.path, remote.dfs().migrate(&top, &options, &on_bytes, tell));
    shown.finish_and_clear();
    outcome?;
    report.copied_bytes = copied.get();
    for url in &report.open {
        warn_line(format_args!("azekura: {url}: open or changing all the time"));
    }
    for failed in &report.failed {
        warn_line(format_args!("azekura: {}: {}", failed.url, failed.error));
    }
    session.out.show(&report, |out| {
        if session.out.quiet {
            return Ok(());
        }
        let Report { class, migrated, had_it, copied_bytes, .. } = &report;
        writeln!(
            out,
            "{migrated} files have class {class} now, {had_it} had it; {} copied",
            size::format(*copied_bytes)
        )
    })?;
    match (report.failed.is_empty(), report.open.is_empty()) {
        (false, _) => Err(Failure::Reported(1)),
        (true, false) => Err(Failure::Reported(crate::exit::exit_code(Code::Busy))),
        (true, true) => Ok(()),
    }
}

fn named(remote: &Remote, args: &MigrateArgs, path: &[u8]) -> String {
    match path.is_empty() {
        true => args.url.to_string(),
        false => remote.name(&url::join(&args.url.path, path)),
    }
}

fn told(error: &Error) -> String {
    error.to_string()
}
