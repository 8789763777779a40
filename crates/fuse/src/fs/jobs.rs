//! Which job a caller is of: a mount serves whoever uses it.
//!
//! A process's environment tells, where this one may read it: of the same user, or as root. Else its control group does, which anybody may read
//! and no job changes: Slurm keeps each job's processes in one that is named by the job. Where neither says anything it is the job that
//! the mount was started in.
//!
//! No thread that serves requests looks itself: files of `/proc` wait for locks of the process that they are about, which it may hold while it waits
//! for this mount, as in a fault on a mapped file. One thread of this process looks for all, what was found is kept by the thread that asks, and it
//! is looked again after a second. Until the first answer is there, what a thread asks is the mount's job's; so is, for a second at most, what a thread asks
//! that has got the number of another one.

use parking_lot::Mutex;
use std::io::Read;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use types::map::HashMap;

/// How long what was found of a thread is good.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Threads that are remembered; beyond that all are looked at again.
const KNOWN_MAX: usize = 4096;
/// Of an environment so much is read, bytes.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// Jobs of the threads that have asked for something.
pub(super) struct CallerJobs {
    by_thread: Mutex<HashMap<u32, Known>>,
    /// To the thread that looks.
    looks: Sender<u32>,
}

struct Known {
    job: Option<Arc<str>>,
    /// When it was last asked to be looked at.
    asked: Instant,
    is_looked_at: bool,
}

/// Of all mounts of this process; nothing when the thread could not be started.
pub(super) fn of_callers() -> Option<&'static CallerJobs> {
    static JOBS: OnceLock<Option<CallerJobs>> = OnceLock::new();
    JOBS.get_or_init(|| {
        let (looks, asked) = channel();
        let builder = std::thread::Builder::new().name("azk-jobs".into());
        builder.spawn(move || look(&asked)).ok()?;
        Some(CallerJobs { by_thread: Mutex::default(), looks })
    })
    .as_ref()
}

fn look(asked: &Receiver<u32>) {
    while let Ok(thread) = asked.recv() {
        if let Some(jobs) = of_callers() {
            jobs.found(thread, job_of(thread).map(Arc::from));
        }
    }
}

impl CallerJobs {
    /// The job of a thread, as far as it is known; `None`: that of the mount, also for 0, which is the kernel.
    pub fn of(&self, thread: u32) -> Option<Arc<str>> {
        if thread == 0 {
            return None;
        }
        let now = Instant::now();
        let mut by_thread = self.by_thread.lock();
        if let Some(known) = by_thread.get_mut(&thread) {
            if !known.is_looked_at && now >= known.asked + LOOK_PAUSE {
                (known.asked, known.is_looked_at) = (now, self.looks.send(thread).is_ok());
            }
            return known.job.clone();
        }
        if by_thread.len() >= KNOWN_MAX {
            by_thread.clear();
        }
        let is_looked_at = self.looks.send(thread).is_ok();
        by_thread.insert(thread, Known { job: None, asked: now, is_looked_at });
        None
    }

    fn found(&self, thread: u32, job: Option<Arc<str>>) {
        if let Some(known) = self.by_thread.lock().get_mut(&thread) {
            (known.job, known.is_looked_at) = (job, false);
        }
    }
}

fn job_of(thread: u32) -> Option<String> {
    let environment = read(&format!("/proc/{thread}/environ"));
    let job = environment.as_deref().and_then(job_of_environment);
    let job = job.or_else(|| {
        let groups = read(&format!("/proc/{thread}/cgroup"))?;
        job_of_groups(std::str::from_utf8(&groups).ok()?)
    });
    job.map(types::job::short)
}

fn read(path: &str) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut raw).ok()?;
    Some(raw)
}

/// The job that an environment names: `NAME=VALUE`, each with a zero behind it.
fn job_of_environment(raw: &[u8]) -> Option<String> {
    let variable = |wanted: &str| {
        let value = |entry: &[u8]| -> Option<String> {
            let rest = entry.strip_prefix(wanted.as_bytes())?.strip_prefix(b"=")?;
            String::from_utf8(rest.to_vec()).ok()
        };
        raw.split(|byte| *byte == 0).find_map(value)
    };
    Some(types::job::name(&variable)).filter(|job| !job.is_empty())
}

/// The job of Slurm in whose control group a process is: `…/slurm/uid_1000/job_17/step_0`, or `…/slurmstepd.scope/job_17/step_0`, in any
/// of the lines `NUMBER:CONTROLLERS:PATH`.
fn job_of_groups(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        let mut parts = path.split('/').skip_while(|part| !part.starts_with("slurm"));
        let job = parts.find_map(|part| part.strip_prefix("job_"))?;
        let is_number = !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| job.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn jobs_are_found_in_environments_and_control_groups() {
        let environment = |text: &str| job_of_environment(text.as_bytes());
        assert_eq!(environment("A=b\0SLURM_JOB_ID=17\0C=d\0"), Some("17".into()));
        assert_eq!(environment("SLURM_JOB_ID=17\0AZEKURA_JOB=mine"), Some("mine".into()));
        assert_eq!(environment("XSLURM_JOB_ID=17\0SLURM_JOB_IDX=1\0SLURM_JOB_ID"), None);
        assert_eq!(environment(""), None);
        let first = "12:cpuset:/\n4:memory:/slurm/uid_1000/job_42/step_0/task_0\n0::/x\n";
        assert_eq!(job_of_groups(first), Some("42".into()));
        let second = "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n";
        assert_eq!(job_of_groups(second), Some("7".into()));
        let with_node = "1:name=x:/slurm_node3/uid_0/job_9/step_extern\n";
        assert_eq!(job_of_groups(with_node), Some("9".into()));
        for none in ["", "0::/", "0::/user.slice/job_3", "0::/slurm/uid_1/job_x", "slurm/job_3"] {
            assert_eq!(job_of_groups(none), None, "{none}");
        }
    }

    /// Whoever asks is answered at once, by what is known; a second later it is looked again.
    #[test]
    fn what_is_known_of_a_thread_is_told_at_once_and_looked_at_again() {
        let mut command = Command::new("sleep");
        command.arg("1000").env("AZEKURA_JOB", "first").stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let thread = child.id();
        // Until it executes the program its environment is this process's.
        while job_of(thread).as_deref() != Some("first") {
            std::thread::yield_now();
        }
        let (looks, asked) = channel();
        let jobs = CallerJobs { by_thread: Mutex::default(), looks };
        assert_eq!((jobs.of(thread), jobs.of(thread)), (None, None), "nobody has looked");
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [thread], "once is enough");
        jobs.found(thread, job_of(thread).map(Arc::from));
        assert_eq!(jobs.of(thread).as_deref(), Some("first"));
        assert_eq!(asked.try_iter().count(), 0);
        let long_ago = Instant::now().checked_sub(2 * LOOK_PAUSE).unwrap();
        jobs.by_thread.lock().get_mut(&thread).unwrap().asked = long_ago;
        assert_eq!(jobs.of(thread).as_deref(), Some("first"));
        assert_eq!(asked.try_iter().count(), 1, "it may be another thread by now");
        assert_eq!(jobs.of(0), None);
        child.kill().unwrap();
        child.wait().unwrap();
        jobs.found(thread, job_of(thread).map(Arc::from));
        assert_eq!(jobs.of(thread), None);
        // The thread of this process does look.
        let all = of_callers().unwrap();
        let this = std::process::id();
        all.of(this);
        while all.by_thread.lock().get(&this).unwrap().is_looked_at {
            std::thread::yield_now();
        }
        assert_eq!(all.of(this).map(|job| job.to_string()), job_of(this));
    }
}
