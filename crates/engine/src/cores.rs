//! Binding of target threads to cores.
//!
//! A target that may wander meets its clients' threads on one core while another is idle, and
//! waits for them. Bound, it stays where its data is cached, and the scheduler moves the clients
//! instead. Good where the engine has its cores to itself, bad where another program computes on
//! them; hence only on request.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use types::{Error, Result};

/// Cores that this process may use, ascending.
pub fn usable_cores() -> Vec<usize> {
    // A machine whose mask cannot be read has core 0 at least.
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// Refuses cores that this process may not use.
///
/// Errors: `Inval`, with those it may.
fn check(cores: &[usize]) -> Result<()> {
    let usable = usable_cores();
    match cores.iter().find(|core| !usable.contains(core)) {
        None => Ok(()),
        Some(core) => {
            Err(Error::inval(format!("core {core} is not one the engine may use: {usable:?}")))
        }
    }
}

/// Keeps the calling thread on `cores`; none: leaves it as it is.
pub(crate) fn bind(cores: &[usize]) -> Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    check(cores)?;
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    sched_setaffinity(None, &set)
        .map_err(|error| Error::io(format!("binding to cores {cores:?}"), error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_thread_stays_on_its_cores() {
        let core = *usable_cores().last().unwrap();
        let bound = std::thread::spawn(move || {
            bind(&[core]).unwrap();
            usable_cores()
        });
        assert_eq!(bound.join().unwrap(), [core]);
        let free = std::thread::spawn(|| {
            bind(&[]).unwrap();
            usable_cores()
        });
        assert_eq!(free.join().unwrap(), usable_cores());
    }

    #[test]
    fn a_core_that_is_not_there_is_named() {
        let error = check(&[CpuSet::MAX_CPU + 1]).unwrap_err().to_string();
        assert!(error.contains(&format!("core {}", CpuSet::MAX_CPU + 1)), "{error}");
    }
}
