//! Requests about locks: `flock(2)` and `fcntl(2)`, between all clients of the file system.
//!
//! The engine that has a file's first part decides; what this mount holds is in a book that all
//! its threads share, so that any of them gives back what another has locked. A wait is a task
//! like any other: it holds up nobody, and ends when the program gets a signal.
//!
//! Locks of an open file (`flock`, `F_OFD_SETLK`) end with its last close, of which the kernel tells without
//! waiting (RELEASE): another thread of ours may have that in hand, or the kernel still hold it
//! back, when the program's next request comes here. It does wait for each `close` (FLUSH),
//! though, so it is known which open files may be about to end. A lock that is refused is asked
//! for once more when those have ended, or after a while ([`LAST_CLOSE`]).

use super::fault::{Answer, Fault};
use super::files::OpenFile;
use super::serve::PATIENCE;
use super::worker::{Worker, version_of};
use dfs::{LockAsk, LockInterrupt, LockKind, LockMode, LockRange, Obj, OpenFlags};
use fuselow::{Fh, Lock, LockKind as Kind, LockOwner, LockRequest, NodeId, Request};
use futures_util::future::{Either, select};
use std::pin::pin;
use std::time::Duration;
use types::Code;

/// How long the kernel may take at most to tell of the last close of a file after the program went
/// on. A lock that is refused waits that long once after a descriptor was closed that was not the
/// last of its open file, unless that was used for a lock since.
const LAST_CLOSE: Duration = Duration::from_millis(500);

impl Worker {
    fn lock_obj(&self, file: &OpenFile) -> Obj {
        // The kernel has checked what the file is open for.
        self.dfs.attach(&file.inode.shared().with_flags(OpenFlags::READ_WRITE))
    }

    /// Takes, changes or lets go of a lock.
    pub async fn setlk(&self, req: &Request, fh: Fh, asked: LockRequest) -> Answer {
        let file = self.file(fh)?;
        file.inode.stays_open(&file.closing);
        let obj = self.lock_obj(&file);
        let kind = kind_of(&asked);
        let range = range_of(&asked.lock);
        let Some(mode) = mode_of(asked.lock.kind) else {
            return Ok(self.dfs.unlock(&obj, kind, asked.owner.0, range).await?);
        };
        if kind == LockKind::Posix {
            let mut lockers = file.lockers.lock();
            if !lockers.contains(&asked.owner) {
                lockers.push(asked.owner);
            }
        }
        let ask = LockAsk {
            kind,
            owner: asked.owner.0,
            range,
            mode,
            pid: asked.lock.pid,
            wait: asked.wait,
        };
        let done = match self.try_lock(req, &obj, &ask).await {
            Err(error) if error.code == Code::WouldBlock && !req.is_interrupted() => {
                select(pin!(self.earlier_releases(&file)), pin!(req.interrupted())).await;
                self.try_lock(req, &obj, &ask).await
            }
            other => other,
        };
        match done {
            // The program may have the lock after all; its next call says so.
            Err(error) if error.code == Code::Canceled => Err(Fault::Os(libc::EINTR)),
            Ok(()) => {
                self.see_anew(&file).await;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Who has got a lock sees what others wrote while they had it: the kernel forgets what it has of the file, unless that is as it was (as NFS does). Where the kernel writes
    /// back the file is this machine's alone.
    async fn see_anew(&self, file: &OpenFile) {
        let policy = &self.volume.options.policy;
        if policy.attr_ttl.is_zero() || policy.writes_back() {
            return;
        }
        let stat = self.stat(&file.inode).await;
        // With no answer nothing is known to be as it was.
        if !stat.is_ok_and(|stat| file.inode.tell(version_of(&stat))) {
            self.notifier.inval_inode(NodeId(file.inode.number()), 0, 0);
            self.notifier.flushed().await;
        }
    }

    /// Waits until those open files of a node are released that may have been closed before now.
    async fn earlier_releases(&self, file: &OpenFile) {
        let over = pin!(file.inode.releases_over());
        let too_long = pin!(self.env().sleep(LAST_CLOSE));
        if let Either::Right(_) = select(over, too_long).await {
            file.inode.all_stay_open();
        }
    }

    async fn try_lock(&self, req: &Request, obj: &Obj, ask: &LockAsk) -> types::Result<()> {
        let interrupt = LockInterrupt::default();
        let locked = pin!(self.dfs.lock(obj, ask, Some(&interrupt)));
        match select(locked, pin!(req.interrupted())).await {
            Either::Left((done, _)) => done,
            Either::Right(((), locked)) => {
                interrupt.interrupt();
                // The engine says which came first, the lock or the signal; if it is there.
                let given_up = pin!(self.env().sleep(PATIENCE));
                match select(locked, given_up).await {
                    Either::Left((done, _)) => done,
                    Either::Right(_) => Err(types::Error::bare(Code::Canceled)),
                }
            }
        }
    }

    /// A lock that would be in the way.
    pub async fn getlk(&self, fh: Fh, asked: LockRequest) -> Answer<Lock> {
        let file = self.file(fh)?;
        let free = Lock { kind: Kind::Unlock, ..asked.lock };
        let Some(mode) = mode_of(asked.lock.kind) else { return Ok(free) };
        let ask = LockAsk {
            kind: kind_of(&asked),
            owner: asked.owner.0,
            range: range_of(&asked.lock),
            mode,
            pid: asked.lock.pid,
            wait: false,
        };
        let Some(holder) = self.dfs.test_lock(&self.lock_obj(&file), &ask).await? else {
            return Ok(free);
        };
        Ok(Lock {
            start: holder.range.first,
            end: holder.range.last.min(END_MAX),
            kind: match holder.mode {
                LockMode::Shared => Kind::Read,
                LockMode::Exclusive => Kind::Write,
            },
            pid: holder.pid,
        })
    }

    /// A process has closed a descriptor of a file: its `fcntl` locks on the file are gone.
    pub async fn close_locks(&self, fh: Fh, owner: LockOwner) -> Answer {
        let file = self.file(fh)?;
        self.unlock_all(&file, LockKind::Posix, owner).await;
        file.inode.may_close(&file.closing);
        Ok(())
    }

    /// Lets go of what was locked through an open file that is closed for good. The kernel tells
    /// of processes that close (`flush`), but not of locks that belong to the open file itself
    /// (`F_OFD_SETLK`).
    pub(super) async fn unlock_closed(&self, file: &OpenFile, flock: Option<LockOwner>) {
        let lockers = std::mem::take(&mut *file.lockers.lock());
        for owner in lockers {
            self.unlock_all(file, LockKind::Posix, owner).await;
        }
        if let Some(owner) = flock {
            self.unlock_all(file, LockKind::Flock, owner).await;
        }
    }

    /// Lets go of what an owner holds on a file, if it holds anything.
    async fn unlock_all(&self, file: &OpenFile, kind: LockKind, owner: LockOwner) {
        let obj = self.lock_obj(file);
        if let Err(error) = self.dfs.unlock(&obj, kind, owner.0, LockRange::WHOLE).await {
            // The program is done with the file; the engine lets go when it misses us.
            tracing::warn!("locks of a closed file: {error}");
        }
    }
}

/// Last byte as the kernel says "to the end".
const END_MAX: u64 = i64::MAX as u64;

fn kind_of(asked: &LockRequest) -> LockKind {
    // The kernel does not tell `fcntl` locks of processes from those of open files; their owners
    // are different numbers.
    if asked.flock { LockKind::Flock } else { LockKind::Posix }
}

fn mode_of(kind: Kind) -> Option<LockMode> {
    match kind {
        Kind::Read => Some(LockMode::Shared),
        Kind::Write => Some(LockMode::Exclusive),
        Kind::Unlock => None,
    }
}

fn range_of(lock: &Lock) -> LockRange {
    let last = if lock.end >= END_MAX { u64::MAX } else { lock.end };
    LockRange { first: lock.start, last }
}
