//! Settings of the process, read when the library is loaded, before the program's `main`.

use crate::{gate, report, retry::Retry};
use coordinate::client::Remote;
use coordinate::message::{Hello, NAME_BYTES_MAX};
use coordinate::rules::settings::{Settings, Surroundings};
use report::Log;
use rustix::fd::RawFd;
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The connections' numbers begin at three quarters of what the process may have, or of this.
const NUMBERS_MAX: u64 = 4096;

/// What calls need to know; never changes.
pub struct Setup {
    pub settings: Settings,
    /// Where the coordinator is.
    pub remote: Remote,
    /// When it is tried again.
    pub retry: Retry,
    pub log: Log,
    token_file: Option<CString>,
}

static SETUP: AtomicPtr<Setup> = AtomicPtr::new(std::ptr::null_mut());

/// The state; none before loading is done and when nothing is coordinated.
pub fn get() -> Option<&'static Setup> {
    // SAFETY: set once by `load` to something that is never freed or changed.
    unsafe { SETUP.load(Ordering::Acquire).as_ref() }
}

/// Reads the settings and opens the gate if something shall be coordinated. Called once, by the
/// dynamic linker.
pub fn load() {
    let system = rustix::system::uname();
    let surroundings = Surroundings {
        variable: &|name| std::env::var(name).ok(),
        read: &read_text,
        host: system.nodename().to_str().unwrap_or_default(),
        user: rustix::process::getuid().as_raw(),
        // SAFETY: asks for a number.
        privileged: unsafe { libc::getauxval(libc::AT_SECURE) } != 0,
    };
    let settings = match Settings::load(&surroundings) {
        Ok(Some(settings)) => settings,
        Ok(None) => return,
        Err(error) => return report::complain(format_args!("{error}")),
    };
    let remote = match Remote::resolve(&settings.endpoint) {
        Ok(remote) => remote,
        Err(error) => return report::complain(format_args!("{error}")),
    };
    let (writes, reads) = (settings.min_bytes, settings.reads);
    let log = Log::new(&settings);
    let token_file = settings.token_file.as_ref().and_then(|path| {
        CString::new(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())).ok()
    });
    // The first look at the clock makes the system's library find it; not in a signal handler.
    let _ = coordinate::client::now();
    let state = Box::new(Setup { settings, remote, retry: Retry::new(), log, token_file });
    SETUP.store(Box::into_raw(state), Ordering::Release);
    gate::open_for_writes(writes);
    if reads {
        gate::open_for_reads(writes);
    }
}

fn read_text(path: &Path) -> std::io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        // A path through something that is no directory is no file either.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Setup {
    /// How the process introduces itself.
    pub fn hello<'a>(&'a self, token: &'a [u8], pid: u32) -> Hello<'a> {
        let settings = &self.settings;
        Hello {
            token,
            group: &settings.group,
            job: &settings.job,
            host: &settings.host,
            pid,
            rank: settings.rank,
            weight: settings.weight,
            priority: settings.priority,
        }
    }

    /// The token, the file's first line, read anew for each connection because it may have been changed; empty when there
    /// is none.
    pub fn token<'a>(&self, room: &'a mut [u8]) -> &'a [u8] {
        use rustix::fs::{Mode, OFlags};
        let Some(path) = &self.token_file else { return &[] };
        let file =
            rustix::fs::open(path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let Ok(file) = file else { return &[] };
        let room = room.get_mut(..NAME_BYTES_MAX + 2).unwrap_or_default();
        let got = rustix::io::read(&file, &mut *room).unwrap_or(0);
        let read = room.get(..got).unwrap_or_default();
        read.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii()
    }
}

/// Least number for a connection's descriptor.
pub fn number_min() -> RawFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    (limit.unwrap_or(NUMBERS_MAX).min(NUMBERS_MAX) * 3 / 4) as RawFd
}
