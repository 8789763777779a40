//! A client's session at a target, and its siblings for the jobs that it asks for.
//!
//! Most clients ask for one job. A mount asks for those of who uses it: for each the session has a sibling, which is the same but for
//! the job, so that figures and admission ask whichever a request came with and know nothing of this.

use crate::jobs::{ClientCounts, JobCounts};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use types::ClientId;

/// Who is at the other end of a connection.
pub(crate) struct Session {
    pub client: ClientId,
    /// Name of the client's job; may be empty.
    pub job: Rc<str>,
    /// Where it comes from: an address, `local` on this host, or empty.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// What the job has done here.
    pub job_counts: Rc<JobCounts>,
    /// What this session has done.
    pub counts: Rc<ClientCounts>,
    /// It showed the secret of engines and administrators.
    pub is_admin: bool,
    /// Its process, if the kernel tells.
    pub local_pid: Option<u32>,
    /// See [`Session::is_over`].
    is_over: Rc<Cell<bool>>,
    /// The same session where it asks for other jobs, by the number that it has given them, from 1 on.
    for_jobs: RefCell<Vec<Option<Rc<Session>>>>,
}

/// What a session begins with.
pub(crate) struct Caller {
    pub client: ClientId,
    pub job: Rc<str>,
    pub host: String,
    pub pid: u32,
    pub job_counts: Rc<JobCounts>,
    pub is_admin: bool,
    pub local_pid: Option<u32>,
}

impl Session {
    pub fn begin(caller: Caller) -> Session {
        let Caller { client, job, host, pid, job_counts, is_admin, local_pid } = caller;
        Session {
            client,
            job,
            host,
            pid,
            job_counts,
            counts: Rc::default(),
            is_admin,
            local_pid,
            is_over: Rc::default(),
            for_jobs: RefCell::default(),
        }
    }

    /// See [`Session::is_over`].
    pub fn end(&self) {
        self.is_over.set(true);
    }

    /// The session as it asks for a job of this number; itself for 0 and for numbers that it has not named.
    pub fn asking_for(self: &Rc<Self>, number: u8) -> Rc<Session> {
        let asking = || {
            let at = (number as usize).checked_sub(1)?;
            self.for_jobs.borrow().get(at)?.clone()
        };
        asking().unwrap_or_else(|| self.clone())
    }

    /// A number stands for a job from now on.
    pub fn name_job(&self, number: u8, job: Rc<str>, job_counts: Rc<JobCounts>) {
        let Some(at) = (number as usize).checked_sub(1) else { return };
        let mut for_jobs = self.for_jobs.borrow_mut();
        if for_jobs.len() <= at {
            for_jobs.resize_with(at + 1, || None);
        }
        for_jobs[at] = Some(Rc::new(Session {
            client: self.client,
            host: self.host.clone(),
            pid: self.pid,
            job_counts,
            counts: self.counts.clone(),
            job,
            is_admin: self.is_admin,
            local_pid: self.local_pid,
            is_over: self.is_over.clone(),
            for_jobs: RefCell::default(),
        }));
    }

    /// Jobs that it asks for, beside its own.
    pub fn other_jobs(&self) -> Vec<Rc<str>> {
        let for_jobs = self.for_jobs.borrow();
        for_jobs.iter().flatten().map(|session| session.job.clone()).collect()
    }

    /// True when what it wants gives way to what others want.
    pub fn gives_way(&self) -> bool {
        types::job::is_background(&self.job)
    }

    /// True once the client has come again on another connection, or was given up: it may have been told what
    /// became of its requests, so that none of them may take effect any more.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }
}
