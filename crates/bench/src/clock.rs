//! Clocks and memory of this process and of others, as the kernel counts them.
//!
//! CPU time comes from the per-process CPU clocks, which are exact to the nanosecond;
//! `/proc/PID/stat` counts ticks of 10 ms, too coarse for a phase of a second.

use types::{Error, Result};

/// The monotonic clock, nanoseconds; the same clock for all processes of a host.
pub fn monotonic_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// CPU time of this process so far, all its threads, user and system, nanoseconds.
pub fn own_cpu_ns() -> u64 {
    read_clock(libc::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// CPU time of a process so far, all its threads, user and system, nanoseconds.
pub fn process_cpu_ns(pid: u32) -> Result<u64> {
    let mut clock = 0;
    // SAFETY: `clock` is a valid place for the result.
    let failed = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) };
    if failed != 0 {
        let error = std::io::Error::from_raw_os_error(failed);
        return Err(Error::io(format!("finding the CPU clock of process {pid}"), error));
    }
    read_clock(clock)
        .map_err(|error| Error::io(format!("reading the CPU clock of process {pid}"), error))
}

/// Resident memory of a process, bytes.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/statm");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::io(format!("reading {path}"), error))?;
    // SAFETY: a query without pointers.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    text.split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .map(|pages| pages * page_bytes)
        .ok_or_else(|| Error::inval(format!("{path} has no resident size")))
}

fn read_clock(clock: libc::clockid_t) -> std::io::Result<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the result.
    if unsafe { libc::clock_gettime(clock, &mut now) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_its_own_clock_and_memory() {
        let before = own_cpu_ns();
        let mut word = 1u64;
        while own_cpu_ns() - before < 1_000_000 {
            word = std::hint::black_box(types::hash::mix(word));
        }
        let seen = process_cpu_ns(std::process::id()).unwrap();
        assert!(seen >= before + 1_000_000);
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        // Above the largest pid_max the kernel allows.
        assert!(process_cpu_ns(1 << 23).is_err());
        assert!(resident_bytes(1 << 23).is_err());
    }
}
