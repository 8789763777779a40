//! What the library tells about itself: counters, lines in a log file, a summary at the end.
//!
//! Lines are JSON objects, made on the stack and written with one system call each to a file that
//! is opened for it: nothing is kept open that a program might close or write into, and lines of
//! several processes do not mix. Standard output is never written to; standard error gets the
//! summary (when there is no log file) and mistakes in the settings.

use coordinate::rules::settings::Settings;
use rustix::fd::BorrowedFd;
use rustix::fs::{Mode, OFlags};
use std::ffi::CString;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Why a call that could have asked went by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// The coordinator failed shortly before.
    Pausing,
    /// The coordinator failed at this call.
    Failed,
    /// It waited as long as the settings allow.
    WaitedTooLong,
    /// It came from a signal handler that interrupted this library.
    Interrupting,
    /// More calls at a time than the library has connections.
    NoSlot,
}

const PASSED: [(Passed, &str); 5] = [
    (Passed::Pausing, "pausing"),
    (Passed::Failed, "failed"),
    (Passed::WaitedTooLong, "waited_too_long"),
    (Passed::Interrupting, "interrupting"),
    (Passed::NoSlot, "no_slot"),
];

/// Counters of one process.
pub struct Counters {
    calls: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
    wait_us: AtomicU64,
    io_us: AtomicU64,
    passed: [AtomicU64; PASSED.len()],
    connections: AtomicU64,
}

pub static COUNTERS: Counters = Counters {
    calls: [const { AtomicU64::new(0) }; 2],
    bytes: [const { AtomicU64::new(0) }; 2],
    wait_us: AtomicU64::new(0),
    io_us: AtomicU64::new(0),
    passed: [const { AtomicU64::new(0) }; PASSED.len()],
    connections: AtomicU64::new(0),
};

impl Counters {
    /// A coordinated call has ended.
    pub fn coordinated(&self, call: &Coordinated) {
        let kind = usize::from(call.read);
        self.calls[kind].fetch_add(1, Relaxed);
        self.bytes[kind].fetch_add(call.bytes, Relaxed);
        self.wait_us.fetch_add(call.wait.as_micros() as u64, Relaxed);
        self.io_us.fetch_add(call.io.as_micros() as u64, Relaxed);
    }

    /// A call went by.
    pub fn passed(&self, why: Passed) {
        self.passed[why as usize].fetch_add(1, Relaxed);
    }

    /// A connection was made.
    pub fn connected(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// Starts from zero, in a child made by `fork`.
    pub fn reset(&self) {
        let all = self.calls.iter().chain(&self.bytes).chain(&self.passed);
        all.chain([&self.wait_us, &self.io_us, &self.connections])
            .for_each(|c| c.store(0, Relaxed));
    }
}

/// One coordinated call.
#[derive(Clone, Copy)]
pub struct Coordinated {
    /// A read, else a write.
    pub read: bool,
    pub bytes: u64,
    /// Time until the permission.
    pub wait: Duration,
    /// Time of the I/O.
    pub io: Duration,
}

/// Where lines go.
pub struct Log {
    /// The file; none: the standard error output, for the summary only.
    path: Option<CString>,
    /// Beginning of each line: host and rank.
    prefix: String,
}

impl Log {
    /// The log that the settings ask for.
    pub fn new(settings: &Settings) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let path = settings.log.as_ref();
        let path = path.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
        let host = settings.host.escape_default();
        let rank = settings.rank.map_or("null".to_string(), |rank| rank.to_string());
        Self { path, prefix: format!("\"host\":\"{host}\",\"rank\":{rank}") }
    }

    /// A line about something that happened, into the log file only.
    pub fn event(&self, name: &str, detail: fmt::Arguments<'_>) {
        if self.path.is_some() {
            self.line(name, format_args!("\"detail\":\"{detail}\""));
        }
    }

    /// A line about a coordinated call.
    pub fn call(&self, call: &Coordinated) {
        let kind = if call.read { "read" } else { "write" };
        let (wait_us, io_us) = (call.wait.as_micros(), call.io.as_micros());
        let bytes = call.bytes;
        if self.path.is_some() {
            self.line(
                "call",
                format_args!(
                    "\"kind\":\"{kind}\",\"bytes\":{bytes},\"wait_us\":{wait_us},\"io_us\":{io_us}"
                ),
            );
        }
    }

    /// A line with all counters.
    pub fn summary(&self, counters: &Counters) {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let mut passed = Line::new();
        for (at, (_, name)) in PASSED.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(passed, "{comma}\"{name}\":{}", get(&counters.passed[at]));
        }
        self.line(
            "summary",
            format_args!(
                "\"writes\":{},\"write_bytes\":{},\"reads\":{},\"read_bytes\":{},\"wait_us\":{},\
                 \"io_us\":{},\"connections\":{},\"uncoordinated\":{{{}}}",
                get(&counters.calls[0]),
                get(&counters.bytes[0]),
                get(&counters.calls[1]),
                get(&counters.bytes[1]),
                get(&counters.wait_us),
                get(&counters.io_us),
                get(&counters.connections),
                passed.text(),
            ),
        );
    }

    fn line(&self, name: &str, fields: fmt::Arguments<'_>) {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let (seconds, ms) = (time.tv_sec, time.tv_nsec / 1_000_000);
        let mut line = Line::new();
        let pid = std::process::id();
        let prefix = &self.prefix;
        let _ = write!(
            line,
            "{{\"time\":{seconds}.{ms:03},\"event\":\"{name}\",{prefix},\"pid\":{pid},{fields}}}"
        );
        match &self.path {
            None => write_to_stderr(line.ended()),
            Some(path) => {
                let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
                let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
                if let Ok(file) = rustix::fs::open(path.as_c_str(), flags, mode) {
                    let _ = rustix::io::write(&file, line.ended());
                }
            }
        }
    }
}

/// Says a mistake in the settings, once, when the library is loaded.
pub fn complain(what: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = write!(line, "libazekura_ioc: {what}; not coordinating");
    write_to_stderr(line.ended());
}

fn write_to_stderr(bytes: &[u8]) {
    // SAFETY: only written to; when the program has closed it the write fails.
    let _ = rustix::io::write(unsafe { BorrowedFd::borrow_raw(2) }, bytes);
}

/// A line in place; what does not fit is cut.
struct Line {
    bytes: [u8; 1024],
    len: usize,
}

impl Line {
    fn new() -> Self {
        Self { bytes: [0; 1024], len: 0 }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    /// The bytes with an end of line, for which there is always room.
    fn ended(&mut self) -> &[u8] {
        self.bytes[self.len] = b'\n';
        &self.bytes[..=self.len]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.len;
        let mut end = text.len().min(room);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes[self.len..self.len + end].copy_from_slice(&text.as_bytes()[..end]);
        self.len += end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter() {
        for (at, (why, _)) in PASSED.iter().enumerate() {
            assert_eq!(*why as usize, at);
        }
    }

    #[test]
    fn a_line_is_cut_between_characters() {
        let mut line = Line::new();
        for _ in 0..600 {
            line.write_str("é").unwrap();
        }
        let bytes = line.ended();
        assert_eq!(bytes.len(), 1023);
        let text = std::str::from_utf8(bytes).unwrap();
        assert!(text.ends_with("é\n"));
    }
}
