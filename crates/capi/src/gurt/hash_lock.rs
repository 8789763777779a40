//! The locks of a hash table: none, or a spin lock, mutex or reader-writer lock, either one for the
//! table or one for each chain. They are the C library's locks, because the table's struct is
//! public and has room for them.

use crate::ctypes::{d_hash_lock, d_hash_table};
use crate::gurt::alloc;
use crate::gurt::hash::{D_HASH_FT_GLOCK, D_HASH_FT_MUTEX, D_HASH_FT_NOLOCK, D_HASH_FT_RWLOCK};
use std::ffi::c_int;
use std::ptr::{null, null_mut};

/// What a critical section does with the chain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Only looks; readers may be several at a time.
    Read,
    /// Changes links.
    Write,
}

/// # Safety
/// The caller gives memory for a lock.
unsafe fn init(lock: *mut d_hash_lock, feats: u32) -> c_int {
    // SAFETY: the caller gives memory for a lock.
    unsafe {
        if feats & D_HASH_FT_MUTEX != 0 {
            libc::pthread_mutex_init(&raw mut (*lock).mutex, null())
        } else if feats & D_HASH_FT_RWLOCK != 0 {
            libc::pthread_rwlock_init(&raw mut (*lock).rwlock, null())
        } else {
            libc::pthread_spin_init(&raw mut (*lock).spin, libc::PTHREAD_PROCESS_PRIVATE)
        }
    }
}

/// # Safety
/// The caller gives a lock that was made with the same features.
unsafe fn fini(lock: *mut d_hash_lock, feats: u32) {
    // SAFETY: the caller gives a lock that was made with the same features.
    unsafe {
        if feats & D_HASH_FT_MUTEX != 0 {
            libc::pthread_mutex_destroy(&raw mut (*lock).mutex);
        } else if feats & D_HASH_FT_RWLOCK != 0 {
            libc::pthread_rwlock_destroy(&raw mut (*lock).rwlock);
        } else {
            libc::pthread_spin_destroy(&raw mut (*lock).spin);
        }
    }
}

/// Makes the locks of a table whose features and size are set. False when there is no memory.
///
/// # Safety
/// `table` is a table that nobody else sees yet.
pub(super) unsafe fn make(table: *mut d_hash_table) -> bool {
    // SAFETY: the caller's promise; the array has as many locks as chains.
    unsafe {
        let feats = (*table).ht_feats;
        if feats & D_HASH_FT_NOLOCK != 0 {
            return true;
        }
        if feats & D_HASH_FT_GLOCK != 0 {
            return init(&raw mut (*table).ht_lock, feats) == 0;
        }
        let count = 1usize << (*table).ht_bits;
        let locks: *mut d_hash_lock = alloc::array(count);
        if locks.is_null() {
            return false;
        }
        for at in 0..count {
            if init(locks.add(at), feats) != 0 {
                (0..at).for_each(|made| fini(locks.add(made), feats));
                alloc::free(locks);
                return false;
            }
        }
        (*table).ht_locks = locks;
        true
    }
}

/// Gives the locks back.
///
/// # Safety
/// The locks were made by [`make`] and nobody holds or wants one.
pub(super) unsafe fn unmake(table: *mut d_hash_table) {
    // SAFETY: the caller's promise.
    unsafe {
        let feats = (*table).ht_feats;
        if feats & D_HASH_FT_NOLOCK != 0 {
            return;
        }
        if feats & D_HASH_FT_GLOCK != 0 {
            return fini(&raw mut (*table).ht_lock, feats);
        }
        for at in 0..1usize << (*table).ht_bits {
            fini((*table).ht_locks.add(at), feats);
        }
        alloc::free((*table).ht_locks);
        (*table).ht_locks = null_mut();
    }
}

/// # Safety
/// The caller gives a chain of the table.
unsafe fn lock_of(table: *mut d_hash_table, chain: u32) -> *mut d_hash_lock {
    // SAFETY: the caller gives a chain of the table.
    unsafe {
        if (*table).ht_feats & D_HASH_FT_GLOCK != 0 {
            &raw mut (*table).ht_lock
        } else {
            (*table).ht_locks.add(chain as usize)
        }
    }
}

/// Enters a chain.
///
/// # Safety
/// `chain` is one of the table's.
pub(super) unsafe fn lock(table: *mut d_hash_table, chain: u32, access: Access) {
    // SAFETY: the caller's promise; the lock is of the kind that the features say.
    unsafe {
        let feats = (*table).ht_feats;
        if feats & D_HASH_FT_NOLOCK != 0 {
            return;
        }
        let lock = lock_of(table, chain);
        if feats & D_HASH_FT_MUTEX != 0 {
            libc::pthread_mutex_lock(&raw mut (*lock).mutex);
        } else if feats & D_HASH_FT_RWLOCK == 0 {
            libc::pthread_spin_lock(&raw mut (*lock).spin);
        } else if access == Access::Read {
            libc::pthread_rwlock_rdlock(&raw mut (*lock).rwlock);
        } else {
            libc::pthread_rwlock_wrlock(&raw mut (*lock).rwlock);
        }
    }
}

/// Leaves a chain.
///
/// # Safety
/// This thread entered it.
pub(super) unsafe fn unlock(table: *mut d_hash_table, chain: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let feats = (*table).ht_feats;
        if feats & D_HASH_FT_NOLOCK != 0 {
            return;
        }
        let lock = lock_of(table, chain);
        if feats & D_HASH_FT_MUTEX != 0 {
            libc::pthread_mutex_unlock(&raw mut (*lock).mutex);
        } else if feats & D_HASH_FT_RWLOCK != 0 {
            libc::pthread_rwlock_unlock(&raw mut (*lock).rwlock);
        } else {
            libc::pthread_spin_unlock(&raw mut (*lock).spin);
        }
    }
}
