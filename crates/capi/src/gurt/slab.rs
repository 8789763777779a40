//! Descriptors that are used again instead of being made anew.
//!
//! A descriptor is *free*, in use, or *pending*: given back, and to be reset before it is free. What
//! was given back is reset when somebody restocks, so that the paths that take and give back are
//! short. Interface: DAOS's `gurt/slab.h`.
//!
//! The user's functions run under the lock of the descriptors' type.

use crate::ctypes::d_list_t;
use crate::errno::{DER_INVAL, DER_NOMEM};
use crate::gurt::{alloc, log};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

/// What a kind of descriptors is like.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct d_slab_reg {
    /// Called once for each: descriptor, the user's argument. May be NULL, as those that follow.
    pub sr_init: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    /// Makes one ready for use; false when it cannot be.
    pub sr_reset: Option<unsafe extern "C" fn(*mut c_void) -> bool>,
    /// Called once, before its memory goes.
    pub sr_release: Option<unsafe extern "C" fn(*mut c_void)>,
    pub sr_name: *mut c_char,
    /// Bytes of a descriptor.
    pub sr_size: c_int,
    /// Where in it a `d_list_t` is.
    pub sr_offset: c_int,
    /// Most that exist; 0 for no limit.
    pub sr_max_desc: c_int,
    /// Most that are free; 0 for no limit.
    pub sr_max_free_desc: c_int,
}

/// Descriptors of one kind. C knows the pointer only.
#[repr(C)]
pub struct d_slab_type {
    lock: libc::pthread_mutex_t,
    reg: d_slab_reg,
    argument: *mut c_void,
    next: *mut d_slab_type,
    free: Vec<*mut c_void>,
    pending: Vec<*mut c_void>,
    /// Descriptors that exist.
    count: usize,
    /// Taken since somebody restocked, and the most there were.
    taken: usize,
    taken_max: usize,
}

/// Kinds of descriptors; in C's memory.
#[repr(C)]
pub struct d_slab {
    /// The last kind that was registered.
    pub slab_types: *mut d_slab_type,
    /// The user's.
    pub slab_arg: *mut c_void,
    pub slab_lock: libc::pthread_mutex_t,
    /// It was made and not destroyed.
    pub slab_init: bool,
}

type Type = *mut d_slab_type;
type Slab = *mut d_slab;

/// Runs `act` under a lock.
///
/// # Safety
/// `lock` is a mutex that was made.
unsafe fn locked<T>(lock: *mut libc::pthread_mutex_t, act: impl FnOnce() -> T) -> T {
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_mutex_lock(lock) };
    let result = act();
    // SAFETY: as before.
    unsafe { libc::pthread_mutex_unlock(lock) };
    result
}

impl d_slab_type {
    fn most_free(&self) -> usize {
        match self.reg.sr_max_free_desc {
            0 => usize::MAX,
            most => most as usize,
        }
    }

    fn may_make(&self) -> bool {
        self.reg.sr_max_desc == 0 || self.count < self.reg.sr_max_desc as usize
    }

    /// A new descriptor that is ready, or NULL.
    fn make(&mut self) -> *mut c_void {
        let made: *mut u8 = alloc::array(self.reg.sr_size as usize);
        let made: *mut c_void = made.cast();
        if made.is_null() {
            return made;
        }
        self.count += 1;
        if let Some(init) = self.reg.sr_init {
            // SAFETY: the user's function for such memory.
            unsafe { init(made, self.argument) };
        }
        if self.reset(made) { made } else { null_mut() }
    }

    /// Makes a descriptor ready; its memory goes when that cannot be.
    fn reset(&mut self, descriptor: *mut c_void) -> bool {
        // SAFETY: the user's function for such a descriptor.
        let ready = self.reg.sr_reset.is_none_or(|reset| unsafe { reset(descriptor) });
        if !ready {
            self.count -= 1;
            // SAFETY: from the C allocator, and in no list.
            unsafe { alloc::free(descriptor) };
        }
        ready
    }

    /// Makes what was given back ready, until so many are free.
    fn recycle(&mut self, wanted: usize) {
        while self.free.len() < wanted.min(self.most_free()) {
            let Some(descriptor) = self.pending.pop() else { return };
            if self.reset(descriptor) {
                self.free.push(descriptor);
            }
        }
    }

    /// Makes new ones, until as many are free as were taken between two restockings, and one.
    fn stock(&mut self) {
        while self.free.len() < (self.taken_max + 1).min(self.most_free()) && self.may_make() {
            let made = self.make();
            if made.is_null() {
                return;
            }
            self.free.push(made);
        }
    }

    fn acquire(&mut self) -> *mut c_void {
        self.taken += 1;
        if self.free.is_empty() {
            self.recycle(1);
        }
        let descriptor = match self.free.pop() {
            Some(descriptor) => descriptor,
            None if self.may_make() => self.make(),
            None => null_mut(),
        };
        if !descriptor.is_null() {
            // SAFETY: registered as a link in each descriptor.
            unsafe {
                let link = descriptor.byte_add(self.reg.sr_offset as usize).cast::<d_list_t>();
                link.write_unaligned(d_list_t { next: null_mut(), prev: null_mut() });
            }
        }
        descriptor
    }

    /// Gives back the memory of what nobody uses. True when some are in use.
    fn reclaim(&mut self) -> bool {
        let mut idle = std::mem::take(&mut self.pending);
        idle.append(&mut self.free);
        for descriptor in idle {
            if let Some(release) = self.reg.sr_release {
                // SAFETY: the user's function for such a descriptor.
                unsafe { release(descriptor) };
            }
            // SAFETY: from the C allocator, and used by nobody.
            unsafe { alloc::free(descriptor) };
            self.count -= 1;
        }
        self.count > 0
    }
}

/// Makes a manager of descriptors in C's memory.
///
/// # Safety
/// `slab` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_slab_init(slab: Slab, arg: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if slab.is_null() {
            return -DER_INVAL;
        }
        slab.write_bytes(0, 1);
        if libc::pthread_mutex_init(&raw mut (*slab).slab_lock, null()) != 0 {
            return -DER_NOMEM;
        }
        (*slab).slab_arg = arg;
        (*slab).slab_init = true;
        0
    }
}

/// Frees all kinds with their idle descriptors. Those in use stay memory of their users.
///
/// # Safety
/// `slab` is NULL or a manager that nobody uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_slab_destroy(slab: Slab) {
    // SAFETY: the caller's promise; kinds are made by `d_slab_register`.
    unsafe {
        if slab.is_null() || !(*slab).slab_init {
            return;
        }
        if d_slab_reclaim(slab) {
            log::line(log::ERR, "slab: descriptors are in use at the end");
        }
        let mut at = std::mem::replace(&mut (*slab).slab_types, null_mut());
        while !at.is_null() {
            let mut kind = Box::from_raw(at);
            at = kind.next;
            libc::pthread_mutex_destroy(&mut kind.lock);
        }
        libc::pthread_mutex_destroy(&raw mut (*slab).slab_lock);
        (*slab).slab_init = false;
    }
}

/// Adds a kind of descriptors, and makes one. `-DER_INVAL` when that cannot be, or the registration
/// does not fit together.
///
/// # Safety
/// `slab` is NULL or a manager; `reg` is NULL or a registration; `type_` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_slab_register(
    slab: Slab,
    reg: *mut d_slab_reg,
    arg: *mut c_void,
    type_: *mut Type,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if slab.is_null() || !(*slab).slab_init || reg.is_null() || type_.is_null() {
            return -DER_INVAL;
        }
        let reg = *reg;
        let numbers = [reg.sr_size, reg.sr_offset, reg.sr_max_desc, reg.sr_max_free_desc];
        let room = i64::from(reg.sr_size) - i64::from(reg.sr_offset);
        let fits = numbers.iter().all(|&n| n >= 0) && room >= size_of::<d_list_t>() as i64;
        if reg.sr_name.is_null() || !fits {
            return -DER_INVAL;
        }
        let kind = Box::into_raw(Box::new(d_slab_type {
            lock: libc::PTHREAD_MUTEX_INITIALIZER,
            reg,
            argument: arg,
            next: null_mut(),
            free: Vec::new(),
            pending: Vec::new(),
            count: 0,
            taken: 0,
            taken_max: 0,
        }));
        (*kind).stock();
        if (*kind).free.is_empty() {
            drop(Box::from_raw(kind));
            return -DER_INVAL;
        }
        locked(&raw mut (*slab).slab_lock, || {
            (*kind).next = (*slab).slab_types;
            (*slab).slab_types = kind;
        });
        *type_ = kind;
        0
    }
}

/// Takes a descriptor; NULL when there are as many as may be, or there is no memory.
///
/// # Safety
/// `type_` is NULL or a kind of descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_slab_acquire(type_: Type) -> *mut c_void {
    if type_.is_null() {
        return null_mut();
    }
    // SAFETY: the caller's promise.
    unsafe { locked(&raw mut (*type_).lock, || (*type_).acquire()) }
}

/// Gives a descriptor back.
///
/// # Safety
/// `type_` is NULL or a kind of descriptors; `desc` is one of it, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_slab_release(type_: Type, desc: *mut c_void) {
    if type_.is_null() || desc.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { locked(&raw mut (*type_).lock, || (*type_).pending.push(desc)) }
}

/// Makes ready as many descriptors as were taken at once before. For when there is time.
///
/// # Safety
/// `type_` is NULL or a kind of descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_slab_restock(type_: Type) {
    if type_.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        locked(&raw mut (*type_).lock, || {
            let kind = &mut *type_;
            kind.taken_max = kind.taken_max.max(std::mem::take(&mut kind.taken));
            kind.recycle(kind.taken_max + 1);
            if kind.reg.sr_max_desc == 0 {
                kind.stock();
            }
        });
    }
}

/// Gives back the memory of all descriptors that nobody uses. True when some are in use.
///
/// # Safety
/// `slab` is NULL or a manager.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_slab_reclaim(slab: Slab) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if slab.is_null() || !(*slab).slab_init {
            return false;
        }
        locked(&raw mut (*slab).slab_lock, || {
            let (mut in_use, mut at) = (false, (*slab).slab_types);
            while !at.is_null() {
                in_use |= locked(&raw mut (*at).lock, || (*at).reclaim());
                at = (*at).next;
            }
            in_use
        })
    }
}
