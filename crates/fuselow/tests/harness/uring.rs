//! Turns FUSE over io_uring on for tests, and leaves the machine as it was.
//!
//! `enable_uring` is a switch of the whole machine, and several test programs run at once: the
//! first one turns it on, the last one turns it back. Who is last is known from locks on the
//! switch itself, which the kernel drops for programs that were killed; what the switch was is in
//! a file, so that the next program puts right what a killed one left. All of that is done by a
//! process when it ends, and a panic of a test does not end it.

use fuselow::Transport;
use std::fs::{self, File};
use std::sync::OnceLock;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
const DIR: &str = "/sys/module/fuse/parameters";
/// Is there while the switch is on because of tests.
const NOTE: &str = "/tmp/azekura-tests-turned-enable_uring-on";

/// This process uses the switch.
struct User {
    /// Locked, shared, as long as the process lives.
    switch: File,
    pid: u32,
}

static USER: OnceLock<Option<User>> = OnceLock::new();

/// The transports that can be tested here; says which cannot. Where `/dev/fuse` is missing too,
/// nothing can be mounted.
pub fn transports() -> Vec<Transport> {
    if USER.get_or_init(turn_on).is_none() {
        eprintln!("SKIPPED: FUSE over io_uring is off ({SWITCH}); only /dev/fuse is tested");
        return vec![Transport::Dev];
    }
    vec![Transport::Dev, Transport::Uring]
}

fn is_on() -> bool {
    fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y")
}

fn turn_on() -> Option<User> {
    // One program at a time looks and turns.
    let turn = File::open(DIR).ok()?;
    turn.lock().ok()?;
    let switch = File::open(SWITCH).ok()?;
    if !is_on() {
        fs::write(NOTE, "N").ok()?;
        if fs::write(SWITCH, "Y").is_err() || !is_on() {
            let _ = fs::remove_file(NOTE);
            return None;
        }
    }
    switch.lock_shared().ok()?;
    // SAFETY: a function of this program, which stays loaded until it ends.
    unsafe { libc::atexit(turn_back) };
    Some(User { switch, pid: std::process::id() })
}

extern "C" fn turn_back() {
    let Some(Some(user)) = USER.get() else { return };
    // A child that did not become another program shares the locks.
    if user.pid != std::process::id() {
        return;
    }
    let Ok(turn) = File::open(DIR) else { return };
    if turn.lock().is_err() || user.switch.unlock().is_err() {
        return;
    }
    let is_last = File::open(SWITCH).is_ok_and(|switch| switch.try_lock().is_ok());
    if is_last && fs::remove_file(NOTE).is_ok() {
        let _ = fs::write(SWITCH, "N");
    }
}
