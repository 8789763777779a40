//! Lists of tasks: rings in C's memory, whose links are in the tasks.
//!
//! As with any `d_list_t`, one thread at a time changes a list, and a task leaves its list before its
//! memory goes.

use super::{TaskCallback, task_of, tse_task_complete, tse_task_schedule, tse_task_t};
use crate::ctypes::d_list_t;
use crate::errno::{DER_INVAL, DER_NO_PERM};
use crate::guard;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::null_mut;

type Link = *mut d_list_t;

/// # Safety
/// `link` is in a task.
unsafe fn task_around(link: Link) -> *mut tse_task_t {
    // SAFETY: the caller's promise.
    unsafe { link.byte_sub(offset_of!(tse_task_t, dt_list)).cast() }
}

/// # Safety
/// `task` is a task.
unsafe fn link_of(task: *mut tse_task_t) -> Link {
    // SAFETY: the caller's promise.
    unsafe { &raw mut (*task).dt_list }
}

/// # Safety
/// `link` is in a ring.
unsafe fn unlink(link: Link) {
    // SAFETY: the caller's promise; neighbours in a ring are links too.
    unsafe {
        (*(*link).prev).next = (*link).next;
        (*(*link).next).prev = (*link).prev;
        (*link).next = link;
        (*link).prev = link;
    }
}

/// Takes the first task out; NULL when there is none.
///
/// # Safety
/// `head` is NULL or a list of tasks.
unsafe fn pop(head: Link) -> *mut tse_task_t {
    // SAFETY: the caller's promise.
    unsafe {
        if head.is_null() || (*head).next == head {
            return null_mut();
        }
        let first = (*head).next;
        unlink(first);
        task_around(first)
    }
}

/// Adds a task that has not begun to the end of a list. `-DER_NO_PERM` for one that has, `-DER_INVAL`
/// for one that is in a list.
///
/// # Safety
/// `task` is a task, `head` a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_list_add(task: *mut tse_task_t, head: Link) -> c_int {
    let waits = guard::catch(|| Ok(task_of(task)?.waits()));
    if head.is_null() {
        return -DER_INVAL;
    }
    match waits {
        // SAFETY: the caller's promise, and `task` is one.
        Ok(true) => unsafe {
            let link = link_of(task);
            if (*link).next != link {
                return -DER_INVAL;
            }
            (*link).prev = (*head).prev;
            (*link).next = head;
            (*(*head).prev).next = link;
            (*head).prev = link;
            0
        },
        Ok(false) => -DER_NO_PERM,
        Err(_) => -DER_INVAL,
    }
}

/// Takes a task out of its list, if it is in one.
///
/// # Safety
/// `task` is a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_list_del(task: *mut tse_task_t) {
    if task_of(task).is_ok() {
        // SAFETY: it is a task, and the caller's promise.
        unsafe { unlink(link_of(task)) };
    }
}

/// The first task of a list, NULL when there is none.
///
/// # Safety
/// `head` is NULL or a list of tasks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_list_first(head: Link) -> *mut tse_task_t {
    // SAFETY: the caller's promise.
    unsafe {
        if head.is_null() || (*head).next == head {
            return null_mut();
        }
        task_around((*head).next)
    }
}

/// Schedules all tasks of a list, which is empty then.
///
/// # Safety
/// `head` is NULL or a list of tasks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_list_sched(head: Link, instant: bool) {
    loop {
        // SAFETY: the caller's promise.
        let task = unsafe { pop(head) };
        if task.is_null() {
            return;
        }
        // SAFETY: it was in the list.
        unsafe { tse_task_schedule(task, instant) };
    }
}

/// Completes all tasks of a list with a result; the list is empty then.
///
/// # Safety
/// `head` is NULL or a list of tasks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_list_abort(head: Link, rc: c_int) {
    loop {
        // SAFETY: the caller's promise.
        let task = unsafe { pop(head) };
        if task.is_null() {
            return;
        }
        // SAFETY: it was in the list.
        unsafe { tse_task_complete(task, rc) };
    }
}

/// Each task of a list waits for `task`. The first error ends it.
///
/// # Safety
/// `head` is NULL or a list of tasks, `task` a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_list_depend(head: Link, task: *mut tse_task_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { depend(head, task, |listed, task| (listed, task)) }
}

/// `task` waits for each task of a list. The first error ends it.
///
/// # Safety
/// `head` is NULL or a list of tasks, `task` a task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_depend_list(task: *mut tse_task_t, head: Link) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { depend(head, task, |listed, task| (task, listed)) }
}

type Pair = (*mut tse_task_t, *mut tse_task_t);

/// # Safety
/// As for the two above. `order` says which of the two waits for the other.
unsafe fn depend(
    head: Link,
    task: *mut tse_task_t,
    order: fn(*mut tse_task_t, *mut tse_task_t) -> Pair,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = if head.is_null() { head } else { (*head).next };
        while at != head {
            let (waits, mut first) = order(task_around(at), task);
            let rc = super::tse_task_register_deps(waits, 1, &mut first);
            if rc != 0 {
                return rc;
            }
            at = (*at).next;
        }
        0
    }
}

/// Calls `cb` with each task of a list and `arg`; the last result that was not 0. The callback may take
/// its task out of the list, or end it.
///
/// # Safety
/// `head` is NULL or a list of tasks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_list_traverse(
    head: Link,
    cb: Option<TaskCallback>,
    arg: *mut c_void,
) -> c_int {
    let Some(function) = cb else { return -DER_INVAL };
    let mut told = 0;
    // SAFETY: the caller's promise; the next link is read before the callback may end its task.
    unsafe {
        let mut at = if head.is_null() { head } else { (*head).next };
        while at != head {
            let next = (*at).next;
            let rc = function(task_around(at), arg);
            if rc != 0 {
                told = rc;
            }
            at = next;
        }
    }
    told
}

/// [`tse_task_list_traverse`] whose callback may also end the memory of the list's head, with the last
/// task.
///
/// # Safety
/// `head` is NULL or a list of tasks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tse_task_list_traverse_adv(
    head: Link,
    cb: Option<TaskCallback>,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise; the other one does not look at the head after the last task.
    unsafe { tse_task_list_traverse(head, cb, arg) }
}
