//! Binary heap whose places are inside the user's records: the least one is the first.
//!
//! A node knows its place, so that it can be taken out wherever it is. Interface: DAOS's
//! `gurt/heap.h`.
//!
//! Invariants:
//! - Node `n` of the array says `n`, and is not less than node `(n - 1) / 2`.
//! - A node that was taken out says [`NOWHERE`].
//! - The user's functions run under the heap's lock.

use crate::ctypes::d_hash_lock;
use crate::errno::{DER_INVAL, DER_NOMEM};
use crate::gurt::{alloc, log};
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

/// No lock: the user sees to it.
const DBH_FT_NOLOCK: u32 = 1;
/// A lock that many may hold to read (default: a mutex).
const DBH_FT_RWLOCK: u32 = 1 << 1;
/// The place of a node that is in no heap (`DBH_POISON`).
const NOWHERE: u32 = 0xdead_beef;
/// Room of a heap that was made for no number of nodes.
const ROOM_MIN: u32 = 16;

/// A place in a heap; inside the user's record.
#[repr(C)]
#[derive(Debug)]
pub struct d_binheap_node {
    /// Number of the place.
    pub chn_idx: u32,
}

type Node = *mut d_binheap_node;
type Heap = *mut d_binheap;
type Hook = unsafe extern "C" fn(Heap, Node) -> c_int;

/// What a heap asks of its user.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct d_binheap_ops {
    /// Before a node is inserted, which an error forbids; may be NULL.
    pub hop_enter: Option<Hook>,
    /// After a node was taken out; may be NULL.
    pub hop_exit: Option<Hook>,
    /// True when the first node is less.
    pub hop_compare: Option<unsafe extern "C" fn(Node, Node) -> bool>,
}

/// A binary heap of the caller's nodes, laid out as in C.
#[repr(C)]
pub struct d_binheap {
    /// Its lock, of the kind that the features say.
    pub d_bh_lock: d_hash_lock,
    /// Features.
    pub d_bh_feats: u32,
    /// Nodes in it.
    pub d_bh_nodes_cnt: u32,
    /// Nodes there is room for.
    pub d_bh_hwm: u32,
    d_bh_pad32: u32,
    pub d_bh_nodes: *mut Node,
    /// The user's functions.
    pub d_bh_ops: *mut d_binheap_ops,
    /// The user's.
    pub d_bh_priv: *mut c_void,
}

/// A heap whose lock is held.
struct Locked(Heap);

impl Locked {
    /// # Safety
    /// `heap` is NULL or a heap.
    unsafe fn enter(heap: Heap, writing: bool) -> Option<Locked> {
        // SAFETY: the caller's promise.
        unsafe {
            if heap.is_null() || (*heap).d_bh_nodes.is_null() {
                return None;
            }
            let lock = &raw mut (*heap).d_bh_lock;
            match (*heap).d_bh_feats {
                feats if feats & DBH_FT_NOLOCK != 0 => 0,
                feats if feats & DBH_FT_RWLOCK == 0 => {
                    libc::pthread_mutex_lock(&raw mut (*lock).mutex)
                }
                _ if writing => libc::pthread_rwlock_wrlock(&raw mut (*lock).rwlock),
                _ => libc::pthread_rwlock_rdlock(&raw mut (*lock).rwlock),
            };
        }
        Some(Locked(heap))
    }

    fn count(&self) -> u32 {
        // SAFETY: a heap, whose lock is held.
        unsafe { (*self.0).d_bh_nodes_cnt }
    }

    fn get(&self, at: u32) -> Option<Node> {
        // SAFETY: a heap, whose lock is held, has as many nodes as it says.
        (at < self.count()).then(|| unsafe { *(*self.0).d_bh_nodes.add(at as usize) })
    }

    /// # Safety
    /// There is room at `at`, and `node` is a node.
    unsafe fn put(&self, at: u32, node: Node) {
        // SAFETY: the caller's promise.
        unsafe {
            (*self.0).d_bh_nodes.add(at as usize).write(node);
            (*node).chn_idx = at;
        }
    }

    /// # Safety
    /// Both are nodes.
    unsafe fn less(&self, a: Node, b: Node) -> bool {
        // SAFETY: a heap is not made without the function.
        unsafe { (*(*self.0).d_bh_ops).hop_compare.is_some_and(|less| less(a, b)) }
    }

    /// Lets a node go up from a place as far as it is less than what is above.
    ///
    /// # Safety
    /// `at` is a place of the heap, `node` a node.
    unsafe fn rise(&self, mut at: u32, node: Node) {
        while at > 0 {
            let above = (at - 1) / 2;
            let Some(other) = self.get(above) else { break };
            // SAFETY: nodes, and a place below another one.
            unsafe {
                if !self.less(node, other) {
                    break;
                }
                self.put(at, other);
            }
            at = above;
        }
        // SAFETY: the caller's promise.
        unsafe { self.put(at, node) };
    }

    /// Lets a node go down from a place as far as something below is less.
    ///
    /// # Safety
    /// As for `rise`.
    unsafe fn sink(&self, mut at: u32, node: Node) {
        // SAFETY: nodes, and places of the heap.
        unsafe {
            while let Some(left) = self.get(2 * at + 1) {
                let (mut below, mut other) = (2 * at + 1, left);
                if let Some(right) = self.get(2 * at + 2)
                    && self.less(right, left)
                {
                    (below, other) = (2 * at + 2, right);
                }
                if !self.less(other, node) {
                    break;
                }
                self.put(at, other);
                at = below;
            }
            self.put(at, node);
        }
    }

    /// Makes room for one more node.
    fn reserve(&self) -> bool {
        // SAFETY: a heap, whose lock is held; the array came from the C allocator.
        unsafe {
            let heap = self.0;
            if (*heap).d_bh_nodes_cnt < (*heap).d_bh_hwm {
                return true;
            }
            let Some(room) = (*heap).d_bh_hwm.checked_mul(2) else { return false };
            let bytes = room as usize * size_of::<Node>();
            let grown = libc::realloc((*heap).d_bh_nodes.cast(), bytes);
            if grown.is_null() {
                return false;
            }
            (*heap).d_bh_nodes = grown.cast();
            (*heap).d_bh_hwm = room;
            true
        }
    }

    /// Takes the node at a place out.
    ///
    /// # Safety
    /// `at` is a place of the heap.
    unsafe fn take(&self, at: u32, node: Node) {
        // SAFETY: the caller's promise; the last node fills the gap.
        unsafe {
            let heap = self.0;
            let last = *(*heap).d_bh_nodes.add((*heap).d_bh_nodes_cnt as usize - 1);
            (*heap).d_bh_nodes_cnt -= 1;
            if last != node {
                let goes_up =
                    at > 0 && self.get((at - 1) / 2).is_some_and(|up| self.less(last, up));
                if goes_up { self.rise(at, last) } else { self.sink(at, last) }
            }
            (*node).chn_idx = NOWHERE;
            if let Some(exit) = (*(*heap).d_bh_ops).hop_exit {
                exit(heap, node);
            }
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: the lock was taken by `enter`, as the features say.
        unsafe {
            let lock = &raw mut (*self.0).d_bh_lock;
            match (*self.0).d_bh_feats {
                feats if feats & DBH_FT_NOLOCK != 0 => 0,
                feats if feats & DBH_FT_RWLOCK != 0 => {
                    libc::pthread_rwlock_unlock(&raw mut (*lock).rwlock)
                }
                _ => libc::pthread_mutex_unlock(&raw mut (*lock).mutex),
            };
        }
    }
}

/// Makes a heap in memory of the caller, with room for `count` nodes at first. `-DER_INVAL` without a
/// function that compares.
///
/// # Safety
/// The caller gives NULL, or functions that stay and memory for a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_binheap_create_inplace(
    feats: u32,
    count: u32,
    private: *mut c_void,
    ops: *mut d_binheap_ops,
    h: Heap,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if h.is_null() || ops.is_null() || (*ops).hop_compare.is_none() {
            return -DER_INVAL;
        }
        h.write_bytes(0, 1);
        let room = count.max(ROOM_MIN);
        let nodes: *mut Node = alloc::array(room as usize);
        if nodes.is_null() {
            return -DER_NOMEM;
        }
        let lock = &raw mut (*h).d_bh_lock;
        let made = if feats & DBH_FT_NOLOCK != 0 {
            0
        } else if feats & DBH_FT_RWLOCK != 0 {
            libc::pthread_rwlock_init(&raw mut (*lock).rwlock, null())
        } else {
            libc::pthread_mutex_init(&raw mut (*lock).mutex, null())
        };
        if made != 0 {
            alloc::free(nodes);
            return -DER_NOMEM;
        }
        (*h).d_bh_feats = feats;
        (*h).d_bh_hwm = room;
        (*h).d_bh_ops = ops;
        (*h).d_bh_priv = private;
        (*h).d_bh_nodes = nodes;
        0
    }
}

/// Makes a heap.
///
/// # Safety
/// As for [`d_binheap_create_inplace`]; `h` is NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_binheap_create(
    feats: u32,
    count: u32,
    private: *mut c_void,
    ops: *mut d_binheap_ops,
    h: *mut Heap,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if h.is_null() {
            return -DER_INVAL;
        }
        *h = null_mut();
        let heap: Heap = alloc::array(1);
        if heap.is_null() {
            return -DER_NOMEM;
        }
        let rc = d_binheap_create_inplace(feats, count, private, ops, heap);
        if rc != 0 {
            alloc::free(heap);
            return rc;
        }
        *h = heap;
        0
    }
}

/// Forgets what a heap holds; its memory, zeros then, stays the caller's. The nodes are not touched.
///
/// # Safety
/// `h` is NULL or a heap that was made in place, and that nobody uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_binheap_destroy_inplace(h: Heap) {
    // SAFETY: the caller's promise.
    unsafe {
        if h.is_null() || (*h).d_bh_nodes.is_null() {
            return;
        }
        let lock = &raw mut (*h).d_bh_lock;
        match (*h).d_bh_feats {
            feats if feats & DBH_FT_NOLOCK != 0 => 0,
            feats if feats & DBH_FT_RWLOCK != 0 => {
                libc::pthread_rwlock_destroy(&raw mut (*lock).rwlock)
            }
            _ => libc::pthread_mutex_destroy(&raw mut (*lock).mutex),
        };
        alloc::free((*h).d_bh_nodes);
        h.write_bytes(0, 1);
    }
}

/// Frees a heap. The nodes are not touched.
///
/// # Safety
/// `h` is NULL or a heap of [`d_binheap_create`] that nobody uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_binheap_destroy(h: Heap) {
    // SAFETY: the caller's promise.
    unsafe {
        d_binheap_destroy_inplace(h);
        alloc::free(h);
    }
}

/// The node at a place, the least one at 0; NULL beyond the last.
///
/// # Safety
/// `h` is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_binheap_find(h: Heap, idx: u32) -> Node {
    // SAFETY: the caller's promise.
    let Some(heap) = (unsafe { Locked::enter(h, false) }) else { return null_mut() };
    heap.get(idx).unwrap_or(null_mut())
}

/// Inserts a node. `-DER_NOMEM`, or what `hop_enter` says.
///
/// # Safety
/// `h` is NULL or a heap, `e` NULL or a node that is in none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_binheap_insert(h: Heap, e: Node) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let heap = match Locked::enter(h, true) {
            Some(heap) if !e.is_null() => heap,
            _ => return -DER_INVAL,
        };
        if !heap.reserve() {
            return -DER_NOMEM;
        }
        if let Some(enter) = (*(*h).d_bh_ops).hop_enter {
            let rc = enter(h, e);
            if rc != 0 {
                return rc;
            }
        }
        let at = heap.count();
        (*h).d_bh_nodes_cnt += 1;
        heap.put(at, e);
        heap.rise(at, e);
        0
    }
}

/// Takes a node out. One that is not in the heap is left alone.
///
/// # Safety
/// `h` is NULL or a heap, `e` NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_binheap_remove(h: Heap, e: Node) {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(heap) = Locked::enter(h, true) else { return };
        if e.is_null() || heap.get((*e).chn_idx) != Some(e) {
            log::line(log::ERR, "binary heap: a node was to be removed that is not in it");
            return;
        }
        heap.take((*e).chn_idx, e);
    }
}

/// Takes the least node out; NULL when there is none.
///
/// # Safety
/// `h` is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn d_binheap_remove_root(h: Heap) -> Node {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(heap) = Locked::enter(h, true) else { return null_mut() };
        let Some(node) = heap.get(0) else { return null_mut() };
        heap.take(0, node);
        node
    }
}
