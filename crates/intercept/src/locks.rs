//! Locks of open file descriptions, which several processes have together.
//!
//! On Linux a lock of `flock` lasts as long as some process has the description. Servers tie it to
//! clients; each process that has the description joins those for whom the lock is held:
//!
//! - who takes it, at once;
//! - who inherits a description that is locked, when it starts;
//! - who had it all the time (a shell whose child ran `flock 9`), when a child has ended and the
//!   process makes its next call. The servers keep the lock for so long.
//!
//! A process that holds a lock and makes no call has a thread that keeps it ([`perthread::Ctx::keep_awake`]).
//!
//! What is locked stands in the page that the processes share ([`crate::head::LOCKED`]). The last one
//! that has the page unlocks when it closes the descriptor or ends; a process that is killed holds
//! on for two seconds.

use crate::act;
use crate::head::{FLOCK_EXCLUSIVE, FLOCK_SHARED, LOCKED, RANGES, TIMES};
use crate::open::Open;
use crate::report::Family;
use crate::{inside, table};
use dfs::{Dfs, LockAsk, LockKind, LockMode, LockRange, Obj};
use libc::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use types::{Code, Result};

/// Something was locked by this process.
static USED: AtomicBool = AtomicBool::new(false);
/// A child has ended since [`look`]: it may have locked what this process has, too.
static CHILD_ENDED: AtomicBool = AtomicBool::new(false);

/// A child has ended. May be called in a signal handler.
pub fn child_ended() {
    CHILD_ENDED.store(true, Relaxed);
}

/// The owner of locks of a kind.
pub fn owner(open: &Open, kind: LockKind) -> u64 {
    // Numbers of descriptions are above those of processes.
    if kind == LockKind::Posix { u64::from(std::process::id()) } else { open.head().owner() }
}

/// Marks in a description's page for a lock.
fn marks(kind: LockKind, mode: LockMode) -> u32 {
    match (kind, mode) {
        (LockKind::Flock, LockMode::Shared) => FLOCK_SHARED,
        (LockKind::Flock, LockMode::Exclusive) => FLOCK_EXCLUSIVE,
        (LockKind::Ofd, _) => RANGES,
        _ => 0,
    }
}

/// How often a description came to be locked. Not 0.
fn time(marks: u32) -> u32 {
    marks / TIMES + 1
}

/// Locks, once.
pub async fn set(open: &Open, fs: &Dfs, obj: &Obj, ask: &LockAsk) -> Result<()> {
    USED.store(true, Relaxed);
    let marks = marks(ask.kind, ask.mode);
    if marks != 0 {
        fs.share_lock_owner(ask.owner);
    }
    fs.lock(obj, ask, None).await?;
    keep_awake();
    if marks != 0 {
        let all = &open.head().marks;
        // Others that have joined may not have joined for these ranges.
        if all.load(SeqCst) & LOCKED == 0 || ask.kind == LockKind::Ofd {
            all.fetch_add(TIMES, SeqCst);
        }
        all.fetch_or(marks, SeqCst);
        if ask.kind == LockKind::Flock {
            all.fetch_and(!(FLOCK_SHARED | FLOCK_EXCLUSIVE) | marks, SeqCst);
        }
        open.joined.store(time(all.load(SeqCst)), SeqCst);
    }
    Ok(())
}

/// Unlocks, for all processes that have the description.
pub async fn unset(
    open: &Open,
    fs: &Dfs,
    obj: &Obj,
    kind: LockKind,
    range: LockRange,
) -> Result<()> {
    let owner = owner(open, kind);
    if kind != LockKind::Posix {
        let marks = marks(kind, LockMode::Shared) | marks(kind, LockMode::Exclusive);
        if open.head().marks.load(SeqCst) & marks == 0 {
            return Ok(());
        }
        if kind == LockKind::Flock {
            open.head().marks.fetch_and(!marks, SeqCst);
        }
        fs.share_lock_owner(owner);
    }
    fs.unlock(obj, kind, owner, range).await
}

/// Joins those for whom the locks of a description are held, if it has some and the process is not
/// among them.
pub fn join(open: &Arc<Open>) {
    let marks = open.head().marks.load(SeqCst);
    let time = time(marks);
    if marks & LOCKED == 0 || open.joined.load(SeqCst) == time || !open.is_shared() {
        return;
    }
    let _ = act::run(Family::Lock, open, async |fs, obj| {
        let owner = open.head().owner();
        fs.share_lock_owner(owner);
        let (range, mode, pid) = (LockRange::WHOLE, LockMode::Shared, std::process::id());
        for (kind, wanted) in
            [(LockKind::Flock, FLOCK_SHARED | FLOCK_EXCLUSIVE), (LockKind::Ofd, RANGES)]
        {
            if marks & wanted == 0 {
                continue;
            }
            let ask = LockAsk { kind, owner, range, mode, pid, wait: false };
            match fs.join_lock(obj, &ask).await {
                // Marks of ranges stay when all have been unlocked.
                Err(error) if error.code == Code::NonExist && kind == LockKind::Ofd => {}
                outcome => outcome?,
            }
        }
        keep_awake();
        open.joined.store(time, SeqCst);
        Ok(())
    });
}

/// What this thread's context has locked is kept also while the program calls nothing.
fn keep_awake() {
    let kept = perthread::Ctx::of_thread().and_then(|ctx| ctx.keep_awake());
    if let Err(error) = kept {
        let text = format_args!("locks are kept only while the program makes calls: {error}");
        crate::report::log(crate::report::Level::Warn, text);
    }
}

/// Joins what children that have ended may have locked. Not in a signal handler.
#[inline]
pub fn look() {
    if CHILD_ENDED.load(Relaxed) && !inside::is_inside() {
        look_at_all();
    }
}

#[cold]
fn look_at_all() {
    CHILD_ENDED.store(false, Relaxed);
    for (_, open) in table::all() {
        join(&open);
    }
}

/// A descriptor of a file was closed: POSIX ends all record locks of the process on it then, and
/// with the last one of all processes those of the description.
pub fn closed(open: &Arc<Open>) {
    let is_name = open.head().status.load(Relaxed) & libc::O_PATH as u32 != 0;
    let is_locked = open.head().marks.load(SeqCst) & LOCKED != 0;
    if is_name || !(is_locked || USED.load(Relaxed)) {
        return;
    }
    let is_gone = is_locked && table::numbers_of(open).is_empty();
    end(open, is_gone, true);
}

/// In a child made by `fork`, which has locked nothing yet.
pub fn in_child() {
    USED.store(false, Relaxed);
    CHILD_ENDED.store(false, Relaxed);
}

/// True when the end of the process may end locks.
pub fn may_end() -> bool {
    let is_locked = |open: &Arc<Open>| open.head().marks.load(SeqCst) & LOCKED != 0;
    USED.load(Relaxed) || table::all().iter().any(|(_, open)| is_locked(open))
}

/// The process ends, and with it what only it holds. Servers would notice two seconds later.
pub fn ending() {
    for (_, open) in table::all() {
        let is_locked = open.head().marks.load(SeqCst) & LOCKED != 0;
        if is_locked || USED.load(Relaxed) {
            end(&open, is_locked, false);
        }
    }
}

/// Ends the record locks of the process on a file, and if its description goes (`is_gone`) its
/// part in those of the description. `stays`: the process goes on without it.
fn end(open: &Arc<Open>, is_gone: bool, stays: bool) {
    let is_last = is_gone && open.leave();
    let marks = open.head().marks.load(SeqCst);
    let parts = is_gone && stays && !is_last && open.joined.load(SeqCst) != 0;
    if !is_last && !parts && !USED.load(Relaxed) {
        return;
    }
    // Closing does not fail for it; the connection's end would do the same.
    let _: std::result::Result<(), c_int> = act::run(Family::Lock, open, async |fs, obj| {
        let process = owner(open, LockKind::Posix);
        fs.unlock(obj, LockKind::Posix, process, LockRange::WHOLE).await?;
        let owner = open.head().owner();
        if is_last {
            fs.share_lock_owner(owner);
            fs.unlock_owner(obj, owner).await?;
            open.head().marks.fetch_and(!LOCKED, SeqCst);
        } else if parts {
            if marks & (FLOCK_SHARED | FLOCK_EXCLUSIVE) != 0 {
                fs.part_lock(obj, LockKind::Flock, owner).await?;
            }
            if marks & RANGES != 0 {
                fs.part_lock(obj, LockKind::Ofd, owner).await?;
            }
        }
        if is_gone {
            fs.unshare_lock_owner(owner);
        }
        Ok(())
    });
}
