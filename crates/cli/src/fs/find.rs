//! `azekura fs find`.

use super::entry::{EntryReport, kind_letter};
use super::remote::Remote;
use crate::exit::{Failure, Outcome};
use crate::output::warn_line;
use crate::session::Session;
use crate::url::{self, Place, Url};
use dfs::Stat;
use dfs::find::Query;
use std::cmp::Ordering;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use types::{Error, Result, size};
use wire::control::OpenMode;

/// Find files
///
/// Prints what meets all the conditions, each directory before what is in it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs find azk://tank/home --name '*.h5' --size +1GiB
  azekura fs find azk://tank/home/data --type d --max-depth 1
  azekura fs find azk://tank/home --newer ./last-run -0 | xargs -0 ...")]
pub struct FindArgs {
    /// Where to begin
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    urls: Vec<Url>,
    /// The name matches a pattern of *, ?, [a-z]
    #[arg(long, value_name = "PATTERN")]
    name: Option<std::ffi::OsString>,
    /// Over (+1MiB), under (-4KiB) or exactly (512) this size
    #[arg(long, value_name = "[+|-]SIZE", allow_hyphen_values = true)]
    size: Option<SizeTest>,
    /// Modified after this file (local path or URL)
    #[arg(long, value_name = "FILE", value_parser = super::place_parser())]
    newer: Option<Place>,
    /// Kinds: f file, d directory, l symbolic link, p fifo, s socket, c and b devices
    #[arg(long = "type", value_name = "KIND,...", value_delimiter = ',')]
    kinds: Vec<KindLetter>,
    /// Go down at most this many levels
    #[arg(long, value_name = "LEVELS")]
    max_depth: Option<u32>,
    /// End each path with a NUL instead of a new line
    #[arg(short = '0', long)]
    print0: bool,
    /// Print only how many were found of how many
    #[arg(long, conflicts_with = "print0")]
    count: bool,
}

/// What `--count` prints.
#[derive(serde::Serialize)]
struct Counts {
    found_count: u64,
    /// What was looked at, where the search began included.
    seen_count: u64,
}

/// A condition on sizes.
#[derive(Clone, Copy, Debug)]
struct SizeTest {
    order: Ordering,
    bytes: u64,
}

impl std::str::FromStr for SizeTest {
    type Err = Error;
    fn from_str(text: &str) -> Result<SizeTest> {
        let (order, number) = match text.as_bytes().first() {
            Some(b'+') => (Ordering::Greater, &text[1..]),
            Some(b'-') => (Ordering::Less, &text[1..]),
            _ => (Ordering::Equal, text),
        };
        Ok(SizeTest { order, bytes: size::parse(number)? })
    }
}

/// A letter of `--type`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct KindLetter(char);

impl std::str::FromStr for KindLetter {
    type Err = Error;
    fn from_str(text: &str) -> Result<KindLetter> {
        let mut letters = text.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) if "fdlpscb".contains(letter) => Ok(KindLetter(letter)),
            _ => Err(Error::inval(format!("'{text}' is not one of f, d, l, p, s, c, b"))),
        }
    }
}

pub fn run(session: &Session, args: &FindArgs) -> Outcome {
    let newer_ns = args.newer.as_ref().map(|place| mtime_ns(session, place)).transpose()?;
    let mut found: Vec<(Vec<u8>, EntryReport)> = Vec::new();
    let mut denied = 0;
    let (mut found_count, mut seen_count) = (0, 0);
    for url in &args.urls {
        let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
        let mut keep = |path: &[u8], stat: &Stat| {
            if args.meets(stat, newer_ns) {
                found_count += 1;
                if args.count {
                    return;
                }
                let mut full = remote.name(b"").into_bytes();
                full.extend_from_slice(path);
                let report = EntryReport::of(&full, stat, None);
                found.push((full, report));
            }
        };
        seen_count += 1;
        if args.matches_start(&url.path) {
            keep(&url.path, &remote.stat(&url.path, false)?);
        }
        let start = remote.lookup(&url.path, false)?;
        if !start.is_dir() || args.max_depth == Some(0) {
            continue;
        }
        let query = Query {
            name: args.name.as_ref().map(|pattern| pattern.as_bytes().to_vec()),
            newer_than_ns: newer_ns,
            depth_max: args.max_depth.map_or(usize::MAX, |levels| levels as usize),
            with_stat: true,
            ..Query::default()
        };
        let totals = remote.wait(
            &url.path,
            remote.dfs().find(&start, &query, |found| {
                if let Some(stat) = &found.stat {
                    keep(&url::join(&url.path, &found.path), stat);
                }
                Ok(())
            }),
        )?;
        denied += totals.denied;
        seen_count += totals.seen;
    }
    if args.count {
        let counts = Counts { found_count, seen_count };
        session.out.show(&counts, |out| writeln!(out, "{found_count} of {seen_count}"))?;
    } else {
        show(session, args, found)?;
    }
    if denied > 0 {
        warn_line(format_args!(
            "azekura: {denied} directories could not be read: permission denied"
        ));
        return Err(Failure::Reported(1));
    }
    Ok(())
}

fn show(session: &Session, args: &FindArgs, mut found: Vec<(Vec<u8>, EntryReport)>) -> Outcome {
    // A directory sorts before what is in it, because `/` follows its name.
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let reports: Vec<&EntryReport> = found.iter().map(|(_, report)| report).collect();
    session.out.show(&reports, |out| {
        for (path, _) in &found {
            out.write_all(path)?;
            out.write_all(if args.print0 { b"\0" } else { b"\n" })?;
        }
        Ok(())
    })
}

impl FindArgs {
    /// The conditions on attributes.
    fn meets(&self, stat: &Stat, newer_ns: Option<i64>) -> bool {
        self.size.is_none_or(|test| stat.size.cmp(&test.bytes) == test.order)
            && newer_ns.is_none_or(|than| stat.mtime_ns > than)
            && (self.kinds.is_empty() || self.kinds.contains(&KindLetter(kind_letter(stat.kind()))))
    }

    /// The condition on the name, for the place where the search begins.
    fn matches_start(&self, path: &[u8]) -> bool {
        let Some(pattern) = &self.name else { return true };
        let name = url::last_name(path).unwrap_or(b"/");
        let (Ok(pattern), Ok(name)) = (CString::new(pattern.as_bytes()), CString::new(name)) else {
            return false;
        };
        // SAFETY: both are strings that end in NUL and live until the call returns.
        unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), 0) == 0 }
    }
}

fn mtime_ns(session: &Session, place: &Place) -> Result<i64> {
    match place {
        Place::Remote(url) => {
            Ok(Remote::open(session, url, OpenMode::ReadOnly)?.stat(&url.path, true)?.mtime_ns)
        }
        Place::Local(path) => {
            use std::os::unix::fs::MetadataExt;
            let meta = std::fs::metadata(path)
                .map_err(|error| super::copy::local_error(path.as_bytes(), error))?;
            Ok(meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_tested_as_find_does() {
        let test: SizeTest = "+1KiB".parse().unwrap();
        assert_eq!((test.order, test.bytes), (Ordering::Greater, 1024));
        let test: SizeTest = "-4".parse().unwrap();
        assert_eq!((test.order, test.bytes), (Ordering::Less, 4));
        let test: SizeTest = "0".parse().unwrap();
        assert_eq!((test.order, test.bytes), (Ordering::Equal, 0));
        assert!("+x".parse::<SizeTest>().is_err());
        assert!("ff".parse::<KindLetter>().is_err());
        assert!("q".parse::<KindLetter>().is_err());
    }
}
