//! Locks that are held over `fork`, so that the child finds what they guard whole.
//!
//! They are the standard library's, whose unlocking lets go and wakes somebody: locks that hand over to whoever waits would, in the
//! child, hand over to a thread that is not there. What a panicking thread has left is taken as it is.

use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A value behind such a lock; for statics.
pub struct ForkLock<T: 'static> {
    value: Mutex<T>,
    /// The forking thread's, from before the fork until after it. Only who holds the lock touches it.
    over_fork: UnsafeCell<Option<MutexGuard<'static, T>>>,
}

// SAFETY: the value is behind a mutex; the guard is touched by the thread that holds that mutex only.
unsafe impl<T: Send> Sync for ForkLock<T> {}

impl<T> ForkLock<T> {
    pub const fn new(value: T) -> ForkLock<T> {
        ForkLock { value: Mutex::new(value), over_fork: UnsafeCell::new(None) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before `fork`: waits for the lock and keeps it until [`ForkLock::release`].
    pub fn hold(&'static self) {
        let guard = self.lock();
        // SAFETY: this thread holds the lock.
        unsafe { *self.over_fork.get() = Some(guard) };
    }

    /// After `fork`, in parent and child.
    ///
    /// # Safety
    ///
    /// This is the thread that called [`ForkLock::hold`], or its copy in the child.
    pub unsafe fn release(&'static self) {
        // SAFETY: this thread holds the lock, as the caller says; the guard has left its place when it is dropped.
        let guard = unsafe { (*self.over_fork.get()).take() };
        drop(guard);
    }
}

/// The same with many readers or one writer at a time.
pub struct ForkRwLock<T: 'static> {
    value: RwLock<T>,
    /// The forking thread's, as a writer. Only who writes touches it.
    over_fork: UnsafeCell<Option<RwLockWriteGuard<'static, T>>>,
}

// SAFETY: the value is behind a lock; the guard is touched by the thread that holds that lock alone.
unsafe impl<T: Send + Sync> Sync for ForkRwLock<T> {}

impl<T> ForkRwLock<T> {
    pub const fn new(value: T) -> ForkRwLock<T> {
        ForkRwLock { value: RwLock::new(value), over_fork: UnsafeCell::new(None) }
    }

    /// Waits while somebody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.value.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before `fork`: waits as [`ForkRwLock::write`] does and keeps the lock until [`ForkRwLock::release`].
    pub fn hold(&'static self) {
        let guard = self.write();
        // SAFETY: this thread holds the lock alone.
        unsafe { *self.over_fork.get() = Some(guard) };
    }

    /// After `fork`, in parent and child.
    ///
    /// # Safety
    ///
    /// This is the thread that called [`ForkRwLock::hold`], or its copy in the child.
    pub unsafe fn release(&'static self) {
        // SAFETY: this thread holds the lock alone, as the caller says; the guard has left its place when it is dropped.
        let guard = unsafe { (*self.over_fork.get()).take() };
        drop(guard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Locks that are fair hung in the child when somebody had waited at the moment of the fork.
    #[test]
    fn children_get_the_lock_though_others_waited_for_it() {
        static LOCK: ForkLock<u64> = ForkLock::new(0);
        static MANY: ForkRwLock<u64> = ForkRwLock::new(0);
        static DONE: AtomicBool = AtomicBool::new(false);
        let count = || {
            while !DONE.load(Ordering::Relaxed) {
                *LOCK.lock() += 1;
                let seen = *MANY.read();
                *MANY.write() = seen + 1;
            }
        };
        let waiting: Vec<_> = (0..3).map(|_| std::thread::spawn(count)).collect();
        for _ in 0..200 {
            LOCK.hold();
            MANY.hold();
            // SAFETY: the child calls nothing but the lock's own functions and `_exit`.
            let child = unsafe { libc::fork() };
            // SAFETY: this thread, or the one it is a copy of, called `hold`.
            unsafe {
                MANY.release();
                LOCK.release();
            }
            if child == 0 {
                *LOCK.lock() += 1;
                let seen = *MANY.read();
                *MANY.write() = seen + 1;
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(0) };
            }
            assert!(child > 0);
            let mut status = 0;
            // SAFETY: waits for the child just made.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
        DONE.store(true, Ordering::Relaxed);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
