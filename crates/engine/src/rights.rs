//! What an engine may do: no more than its user.
//!
//! An engine reads and writes the memory of clients of its own user. The kernel checks each such copy, unless
//! `CAP_SYS_PTRACE` overrides the check; so the threads of an engine have no capability in effect but
//! the one that they are found to need. See `docs/security.md`.

use crate::config::EngineConfig;
use rustix::fs::{Access, AtFlags};
use rustix::thread::CapabilitySet;
use std::path::{Path, PathBuf};
use types::{Error, Result};

/// Capability numbers that are tried; the kernel has fewer.
const CAPABILITY_COUNT_MAX: u32 = 64;

/// Takes capabilities from this thread and those that it will start: all but the right to use what
/// belongs to others (`CAP_DAC_OVERRIDE`), and that one only if it has it and something in the
/// configuration needs it, which is the answer. What is executed later gets none.
///
/// The superuser's threads keep the others *permitted*, not effective: the kernel lets a process copy from
/// another only if it is permitted all that the other is, so without them an engine of the
/// superuser could not serve the superuser's programs by single copy.
pub fn give_up(config: &EngineConfig) -> Result<Option<PathBuf>> {
    let failed = |errno: rustix::io::Errno| Error::io("giving up capabilities", errno.into());
    let before = rustix::thread::capabilities(None).map_err(failed)?;
    if before.effective.contains(CapabilitySet::SETPCAP) {
        for number in 0..CAPABILITY_COUNT_MAX {
            let one = CapabilitySet::from_bits_retain(1 << number);
            // An error: the kernel does not know this one.
            let _ = rustix::thread::remove_capability_from_bounding_set(one);
        }
    }
    // Kernels without ambient capabilities have none to clear.
    let _ = rustix::thread::clear_ambient_capability_set();
    rustix::thread::set_no_new_privs(true).map_err(failed)?;
    let is_superuser = rustix::process::geteuid().is_root();
    let with = |effective: CapabilitySet| rustix::thread::CapabilitySets {
        effective,
        permitted: if is_superuser { before.permitted } else { effective },
        inheritable: CapabilitySet::empty(),
    };
    let none = CapabilitySet::empty();
    if before.effective.contains(CapabilitySet::DAC_OVERRIDE) {
        let mut trial = with(none);
        trial.permitted = before.permitted;
        rustix::thread::set_capabilities(None, trial).map_err(failed)?;
        let unreadable = |path: &&Path| allows(path, Access::READ_OK).is_err();
        let device = config.paths().find(|path| !is_usable(path));
        if let Some(path) = device.or(config.secrets().find(unreadable)) {
            let kept = with(CapabilitySet::DAC_OVERRIDE);
            rustix::thread::set_capabilities(None, kept).map_err(failed)?;
            return Ok(Some(path.into()));
        }
    }
    rustix::thread::set_capabilities(None, with(none)).map_err(failed)?;
    Ok(None)
}

/// Lets this process have as many descriptors as it may at all: each connection takes three.
pub fn take_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit { current: now.maximum, maximum: now.maximum };
    if let Err(errno) = setrlimit(Resource::Nofile, most) {
        tracing::warn!("the limit of descriptors stays at {:?}: {errno}", now.current);
    }
}

/// What to say of a right that was kept for `path`.
pub fn tell_kept(path: &Path) {
    tracing::warn!(
        "{} belongs to another user, so the engine keeps the right to use what is not its own \
         (CAP_DAC_OVERRIDE); give it to the engine's user, or run the engine as its owner",
        path.display()
    );
}

/// Whether the rights in effect give this thread `access` to what is at `path`.
fn allows(path: &Path, access: Access) -> Result<(), rustix::io::Errno> {
    rustix::fs::accessat(rustix::fs::CWD, path, access, AtFlags::EACCESS)
}

/// Whether this thread may use what is at `path`, or make it.
fn is_usable(path: &Path) -> bool {
    for place in path.ancestors().filter(|place| !place.as_os_str().is_empty()) {
        let access = match place.is_dir() {
            true => Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
            false => Access::READ_OK | Access::WRITE_OK,
        };
        match allows(place, access) {
            Err(rustix::io::Errno::NOENT) => {}
            outcome => return outcome.is_ok(),
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(dir: &Path) -> EngineConfig {
        let dir = dir.display();
        EngineConfig::parse(&format!("dir = '{dir}'\n[[target]]\ndevice = '{dir}'\n"), "x").unwrap()
    }

    /// The line `name` of this thread's status, as a number.
    fn status(name: &str) -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let base = if name.starts_with("Cap") { 16 } else { 10 };
        u64::from_str_radix(line.trim_start_matches(':').trim(), base).unwrap()
    }

    /// A client of any user once could read and write the memory of every process through an engine of the
    /// superuser: it connected, then executed a set-uid program, and the engine went on copying.
    #[test]
    fn a_thread_that_gives_up_its_rights_has_none_and_hands_none_on() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(&dir.path().join("not/there/yet"));
        let in_thread = std::thread::spawn(move || {
            assert_eq!(give_up(&config).unwrap(), None);
            let own = ["CapEff", "CapInh", "CapAmb", "CapBnd", "NoNewPrivs"].map(status);
            let later = std::thread::spawn(|| status("CapEff")).join().unwrap();
            (own, later)
        });
        let ([effective, inheritable, ambient, bounding, no_new], later) =
            in_thread.join().unwrap();
        assert_eq!((effective, inheritable, ambient, no_new, later), (0, 0, 0, 1, 0));
        if rustix::process::geteuid().is_root() {
            assert_eq!(bounding, 0, "what is executed gets nothing");
        }
    }

    #[test]
    fn a_directory_of_another_user_costs_one_right_and_no_more() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: needs the superuser");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().to_path_buf(), rustix::fs::Uid::from_raw(65534));
        rustix::fs::chown(&path, Some(other), None).unwrap();
        let in_thread = std::thread::spawn(move || {
            assert_eq!(give_up(&config(&path)).unwrap().as_ref(), Some(&path));
            std::fs::write(path.join("mine"), b"works").unwrap();
            status("CapEff")
        });
        assert_eq!(in_thread.join().unwrap(), CapabilitySet::DAC_OVERRIDE.bits());
    }
}
