//! What a copy did, while it runs and when it is over.

use crate::exit::Outcome;
use crate::output::{Output, bar, warn_line};
use indicatif::ProgressBar;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use types::{Code, Error, size};

/// Errors listed for people; programs get all.
const ERRORS_SHOWN: usize = 50;

/// Counters that all threads of a copy share.
#[derive(Default)]
pub struct Tally {
    /// Files copied or compared.
    pub files: AtomicU64,
    pub directories: AtomicU64,
    pub symlinks: AtomicU64,
    /// Further names of files.
    pub hard_links: AtomicU64,
    /// Bytes of content.
    pub bytes: AtomicU64,
    /// Files left alone because they were the same.
    pub skipped: AtomicU64,
}

/// Adds to a counter.
pub fn count(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Result of one walk over the sources.
#[derive(Default)]
pub struct Ran {
    pub tally: Tally,
    /// What was not copied, and why.
    pub failures: Vec<Error>,
    /// An error that made going on pointless.
    pub fatal: Option<Code>,
}

/// What a copy did, in all.
#[derive(Serialize, Default)]
pub struct CopyReport {
    files: u64,
    directories: u64,
    symlinks: u64,
    hard_links: u64,
    bytes: u64,
    skipped: u64,
    /// Files compared afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified_files: Option<u64>,
    /// Wall clock time, seconds.
    pub seconds: f64,
    #[serde(rename = "errors", serialize_with = "as_texts")]
    pub failures: Vec<Error>,
    /// An error that made going on pointless.
    #[serde(skip)]
    pub fatal: Option<Code>,
}

fn as_texts<S: serde::Serializer>(
    errors: &[Error],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct One {
        code: String,
        message: String,
    }
    let one = |error: &Error| One { code: format!("{:?}", error.code), message: error.to_string() };
    serializer.collect_seq(errors.iter().map(one))
}

impl CopyReport {
    /// Takes in what a walk copied.
    pub fn add(&mut self, ran: Ran) {
        let tally = ran.tally;
        self.files += tally.files.into_inner();
        self.directories += tally.directories.into_inner();
        self.symlinks += tally.symlinks.into_inner();
        self.hard_links += tally.hard_links.into_inner();
        self.bytes += tally.bytes.into_inner();
        self.skipped += tally.skipped.into_inner();
        self.failures.extend(ran.failures);
        self.fatal = self.fatal.or(ran.fatal);
    }

    /// Takes in what a walk compared.
    pub fn add_verified(&mut self, ran: Ran) {
        let files = ran.tally.files.into_inner();
        self.verified_files = Some(self.verified_files.unwrap_or(0) + files);
        self.failures.extend(ran.failures);
        self.fatal = self.fatal.or(ran.fatal);
    }

    /// Prints it; for people, errors go to standard error.
    pub fn show(&self, out: Output) -> Outcome {
        if !out.json {
            for error in self.failures.iter().take(ERRORS_SHOWN) {
                warn_line(format_args!("azekura: {error}"));
            }
            if let Some(more) = self.failures.len().checked_sub(ERRORS_SHOWN + 1) {
                warn_line(format_args!("azekura: … and {} more errors", more + 1));
            }
        }
        out.show(self, |to| {
            if out.quiet {
                return Ok(());
            }
            let rate = (self.bytes as f64 / self.seconds.max(1e-6)) as u64;
            write!(
                to,
                "{} files, {} directories, {} symbolic links: {} in {:.1} s ({}/s)",
                self.files,
                self.directories,
                self.symlinks,
                size::format(self.bytes),
                self.seconds,
                size::format(rate)
            )?;
            if self.hard_links > 0 {
                write!(to, ", {} further names", self.hard_links)?;
            }
            if self.skipped > 0 {
                write!(to, ", {} files left alone", self.skipped)?;
            }
            if let Some(files) = self.verified_files {
                write!(to, ", {files} files compared")?;
            }
            match self.failures.len() {
                0 => writeln!(to),
                errors => writeln!(to, ", {errors} ERRORS"),
            }
        })
    }
}

/// The progress bar, if there is one.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar on standard error, or none.
    pub fn new(shown: bool) -> Progress {
        Progress(bar(shown))
    }

    /// Says what is being done.
    pub fn phase(&self, what: &'static str) {
        self.0.set_message(what);
    }

    /// More bytes to do.
    pub fn expect(&self, bytes: u64) {
        self.0.inc_length(bytes);
    }

    /// Bytes done.
    pub fn advance(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}
