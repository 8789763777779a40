//! Log lines, counters and the summary.
//!
//! Counters are per family of calls: how many were taken, and how many that concerned files of
//! ours were passed on or refused, and why.

use crate::{config, inside};
use rustix::fd::IntoRawFd;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Off,
    /// What was refused.
    Warn,
    /// What was passed on as well.
    Info,
    /// Every error that a program got.
    Debug,
}

impl Level {
    /// By its name.
    pub fn parse(text: &[u8]) -> Option<Level> {
        match text {
            b"off" => Some(Level::Off),
            b"warn" => Some(Level::Warn),
            b"info" => Some(Level::Info),
            b"debug" => Some(Level::Debug),
            _ => None,
        }
    }
}

macro_rules! families {
    ($($name:ident $text:literal;)*) => {
        /// Families of calls.
        #[derive(Clone, Copy, Debug)]
        pub enum Family {
            $(#[doc = $text] $name,)*
        }

        const FAMILIES: &[&str] = &[$($text,)*];
    };
}

families! {
    Open "open";
    Read "read";
    Write "write";
    Seek "seek";
    Stat "stat";
    Dir "directory";
    Names "names";
    Attr "attributes";
    Xattr "xattr";
    Cwd "cwd";
    Descriptor "descriptor";
    Lock "lock";
    Space "space";
    Map "mmap";
    Stream "stdio";
    Exec "exec";
}

/// Why a call on a file of ours was not taken.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    /// A symbolic link led out of the file system.
    LeftPrefix,
    /// The kernel did it on the mount.
    Mount,
    /// Nobody can do it without a mount.
    Refused,
}

const WHYS: [&str; 3] = ["left the prefix", "done by the mount", "refused"];

static TAKEN: [AtomicU64; FAMILIES.len()] = [const { AtomicU64::new(0) }; FAMILIES.len()];
static PASSED: [[AtomicU64; WHYS.len()]; FAMILIES.len()] =
    [const { [const { AtomicU64::new(0) }; WHYS.len()] }; FAMILIES.len()];

/// A call was taken.
#[inline]
pub fn taken(family: Family) {
    TAKEN[family as usize].fetch_add(1, Relaxed);
}

/// A call was not.
pub fn passed(family: Family, why: Why, what: fmt::Arguments<'_>) {
    PASSED[family as usize][why as usize].fetch_add(1, Relaxed);
    let level = if matches!(why, Why::Refused) { Level::Warn } else { Level::Info };
    log(level, format_args!("{} {}: {what}", FAMILIES[family as usize], WHYS[why as usize]));
}

/// Starts from zero, in a child made by `fork`.
pub fn reset() {
    TAKEN.iter().chain(PASSED.iter().flatten()).for_each(|counter| counter.store(0, Relaxed));
}

/// A line in the log.
pub fn log(level: Level, what: fmt::Arguments<'_>) {
    let Some(config) = config::get().filter(|config| level <= config.level) else { return };
    write(config, &format!("azekura_intercept[{}]: {what}\n", std::process::id()));
}

fn write(config: &config::Config, line: &str) {
    let put = || {
        let opened = config
            .log
            .as_ref()
            .and_then(|path| std::fs::OpenOptions::new().append(true).create(true).open(path).ok());
        let _ = match opened {
            Some(mut file) => file.write_all(line.as_bytes()),
            None => raw_stderr(line),
        };
    };
    // A log below a prefix is none: it would log its own making.
    if inside::is_inside() {
        put();
    } else {
        let _ = inside::run(|| {
            put();
            Ok(())
        });
    }
}

/// A duplicate of the standard error output; -1: none. Many programs close theirs before they end.
static STDERR: AtomicI32 = AtomicI32::new(-1);

/// Keeps the standard error output for lines to come, if there may be any.
pub fn keep_stderr(config: &config::Config) {
    if config.log.is_some() || (config.level == Level::Off && !config.summary) {
        return;
    }
    // SAFETY: only borrowed; when nothing is open there the call fails.
    let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
    if let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(stderr, 3) {
        STDERR.store(crate::table::keep(copy).into_raw_fd(), Relaxed);
    }
}

/// In a child, which has the duplicate no more.
pub fn in_child() {
    STDERR.store(-1, Relaxed);
    if let Some(config) = config::get() {
        keep_stderr(config);
    }
}

/// Not through streams: those may be ours.
fn raw_stderr(line: &str) -> std::io::Result<()> {
    let kept = STDERR.load(Relaxed);
    let number = if kept >= 0 { kept } else { 2 };
    // SAFETY: only borrowed; when nothing is open there the write fails.
    let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(number) };
    rustix::io::write(stderr, line.as_bytes()).map(|_| ()).map_err(Into::into)
}

/// A setting that makes no sense: reported whatever the log level is.
pub fn complain(what: fmt::Arguments<'_>) {
    let _ = raw_stderr(&format!("azekura_intercept: {what}; nothing is intercepted there\n"));
}

/// The summary, if it is wanted.
pub fn summary() {
    let Some(config) = config::get().filter(|config| config.summary) else { return };
    let program = std::fs::read("/proc/self/comm").unwrap_or_default();
    let program = String::from_utf8_lossy(program.trim_ascii_end()).into_owned();
    let mut text = format!("azekura_intercept[{}]: {program}: ", std::process::id());
    let mut none = true;
    for (at, family) in FAMILIES.iter().enumerate() {
        let taken = TAKEN[at].load(Relaxed);
        let passed: Vec<u64> = PASSED[at].iter().map(|counter| counter.load(Relaxed)).collect();
        if taken == 0 && passed.iter().all(|count| *count == 0) {
            continue;
        }
        text += &format!("{}{family} {taken}", if none { "" } else { ", " });
        for (why, count) in WHYS.iter().zip(passed).filter(|(_, count)| *count > 0) {
            text += &format!(" ({count} {why})");
        }
        none = false;
    }
    if none {
        text += "no call concerned a file of Azekura";
    }
    text.push('\n');
    write(config, &text);
}
