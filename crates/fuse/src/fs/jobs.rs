//! Which job a caller is of: a mount serves whoever uses it.
//!
//! A process's environment tells, where this one may read it: of the same user, or as root. Else its control group does, which anybody may read
//! and no job changes: Slurm keeps each job's processes in one that is named by the job. Where neither says anything it is the job that
//! the mount was started in.
//!
//! What was found is kept by the thread that asks and when it began, which is looked at once a second at most: a request costs a look into a
//! table. A number that goes to another thread within this second is taken for the one before.

use std::cell::RefCell;
use std::io::Read;
use std::rc::Rc;
use std::time::Duration;
use types::map::HashMap;

/// How long a thread is believed to be the one that it was.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// Threads that are remembered; beyond that all are looked at again.
const KNOWN_MAX: usize = 4096;
/// Of an environment so much is read, bytes.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// Jobs of the threads that have asked for something.
#[derive(Default)]
pub(super) struct CallerJobs {
    by_thread: RefCell<HashMap<u32, Known>>,
}

struct Known {
    /// When it began, clock ticks since the boot; 0 when it could not be seen.
    began: u64,
    job: Option<Rc<str>>,
    looked: Duration,
}

impl CallerJobs {
    /// The job of a thread at a time of a clock that does not go back; `None`: that of the mount, also for 0, which is the kernel.
    pub fn of(&self, thread: u32, now: Duration) -> Option<Rc<str>> {
        if thread == 0 {
            return None;
        }
        let mut by_thread = self.by_thread.borrow_mut();
        if let Some(known) = by_thread.get_mut(&thread) {
            if now < known.looked + LOOK_PAUSE {
                return known.job.clone();
            }
            if client::began(thread) == Some(known.began) {
                known.looked = now;
                return known.job.clone();
            }
        }
        if by_thread.len() >= KNOWN_MAX {
            by_thread.clear();
        }
        let (began, job) = (client::began(thread).unwrap_or(0), job_of(thread));
        by_thread.insert(thread, Known { began, job: job.clone(), looked: now });
        job
    }
}

fn job_of(thread: u32) -> Option<Rc<str>> {
    let environment = read(&format!("/proc/{thread}/environ"));
    let job = environment.as_deref().and_then(job_of_environment);
    let job = job.or_else(|| {
        let groups = read(&format!("/proc/{thread}/cgroup"))?;
        job_of_groups(std::str::from_utf8(&groups).ok()?)
    });
    job.map(|job| types::job::short(job).into())
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

    /// A thread's number may be another's later: what was found goes with when it began.
    #[test]
    fn a_thread_is_looked_at_again_when_it_is_another_one() {
        let start = |job: &str| {
            let mut command = Command::new("sleep");
            command.arg("1000").env("AZEKURA_JOB", job).stdin(Stdio::null());
            command.spawn().unwrap()
        };
        let mut child = start("first");
        let (thread, jobs) = (child.id(), CallerJobs::default());
        // Until it executes the program its environment is this process's.
        while job_of(thread).as_deref() != Some("first") {
            std::thread::yield_now();
        }
        let at = |s: u64| jobs.of(thread, Duration::from_secs(s));
        assert_eq!(at(1).as_deref(), Some("first"));
        assert_eq!(at(5).as_deref(), Some("first"));
        jobs.by_thread.borrow_mut().get_mut(&thread).unwrap().job = Some("known".into());
        assert_eq!(at(9).as_deref(), Some("known"), "it is the same one");
        jobs.by_thread.borrow_mut().get_mut(&thread).unwrap().began += 1;
        assert_eq!(at(9).as_deref(), Some("known"), "it is not looked at yet");
        assert_eq!(at(10).as_deref(), Some("first"));
        assert_eq!(jobs.of(0, Duration::ZERO), None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(at(20), None);
    }
}
