//! Advisory locks on files and directories, as `flock(2)` and `fcntl(2)` have them.
//!
//! They hold between all clients of the file system, and end with the client that took them. Who
//! the owner of a lock is, the caller says: a process, an open file description. Nothing is
//! unlocked by closing a handle here: callers know what their closing means.

use crate::flags::OpenFlags;
use crate::fs::Dfs;
use crate::node::Obj;
use async_recursion::async_recursion as boxed;
use client::{LockAsk, LockHolder, LockInterrupt, LockKind, LockMode, LockRange};
use types::{Code, Error, Result};

impl Dfs {
    /// Locks, in place of what the owner holds of the range.
    ///
    /// Errors: `WouldBlock` unless the request waits; `Deadlock`; `NoLocks`; `Canceled` after an
    /// interrupt; `Io`, once, when what the owner held was lost while its engine was away;
    /// `BadHandle` for a range lock of a kind the file is not open for.
    #[boxed(?Send)]
    pub async fn lock(
        &self,
        obj: &Obj,
        ask: &LockAsk,
        interrupt: Option<&LockInterrupt>,
    ) -> Result<()> {
        if ask.range.first > ask.range.last {
            return Err(Error::inval("a range of locks ends before it begins"));
        }
        let needed = match (ask.kind, ask.mode) {
            (LockKind::Posix | LockKind::Ofd, LockMode::Shared) => OpenFlags::READ,
            (LockKind::Posix | LockKind::Ofd, LockMode::Exclusive) => OpenFlags::WRITE,
            _ => OpenFlags::NONE,
        };
        if obj.flags.has(OpenFlags::PATH) || !obj.flags.has(needed) {
            return Err(Error::bare(Code::BadHandle));
        }
        self.shared.cont.lock(obj.oid(), ask, interrupt).await
    }

    /// Unlocks. Asks nobody when the owner holds nothing on the object.
    #[boxed(?Send)]
    pub async fn unlock(
        &self,
        obj: &Obj,
        kind: LockKind,
        owner: u64,
        range: LockRange,
    ) -> Result<()> {
        self.shared.cont.unlock(obj.oid(), kind, owner, range).await
    }

    /// Unlocks all that an owner holds on an object, of whatever kind, and forgets what was lost.
    #[boxed(?Send)]
    pub async fn unlock_owner(&self, obj: &Obj, owner: u64) -> Result<()> {
        for kind in [LockKind::Flock, LockKind::Posix] {
            match self.unlock(obj, kind, owner, LockRange::WHOLE).await {
                Err(error) if error.code != Code::Io => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Says that an owner is one that other processes have, too, as an open file description that was
    /// inherited: a random number. What it holds lasts until the last client that holds it has
    /// gone; see [`Dfs::join_lock`].
    pub fn share_lock_owner(&self, owner: u64) {
        self.shared.cont.client().options().locks.share(owner);
    }

    /// Forgets a shared owner.
    pub fn unshare_lock_owner(&self, owner: u64) {
        self.shared.cont.client().options().locks.unshare(owner);
    }

    /// Holds what a shared owner holds, too; of `ask` kind, owner and process count. `NonExist` when that
    /// is nothing.
    #[boxed(?Send)]
    pub async fn join_lock(&self, obj: &Obj, ask: &LockAsk) -> Result<()> {
        self.shared.cont.join_lock(obj.oid(), ask).await
    }

    /// Holds no more what a shared owner holds; other processes may.
    #[boxed(?Send)]
    pub async fn part_lock(&self, obj: &Obj, kind: LockKind, owner: u64) -> Result<()> {
        self.shared.cont.part_lock(obj.oid(), kind, owner).await
    }

    /// Who would be in the way of a lock; `None`: nobody.
    #[boxed(?Send)]
    pub async fn test_lock(&self, obj: &Obj, ask: &LockAsk) -> Result<Option<LockHolder>> {
        self.shared.cont.test_lock(obj.oid(), ask).await
    }
}
