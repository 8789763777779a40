//! Who asks: the context of one request.

use super::NodeId;
use super::abi::{self, InHeader};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Whether a request was interrupted, and who waits for that.
#[derive(Default)]
pub(crate) struct Interruption {
    happened: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Interruption {
    pub fn happen(&self) {
        self.happened.set(true);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }
}

/// The caller of an operation. Lives as long as the request.
pub struct Request {
    header: InHeader,
    groups: SmallVec<[u32; 2]>,
    interruption: Rc<Interruption>,
}

impl Request {
    pub(crate) fn new(
        header: InHeader,
        groups: SmallVec<[u32; 2]>,
        interruption: Rc<Interruption>,
    ) -> Request {
        Request { header, groups, interruption }
    }

    /// Number of the request; no two of a session are equal.
    pub fn unique(&self) -> u64 {
        self.header.unique & !abi::UNIQUE_RESEND
    }

    /// The node it is about.
    pub fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    /// User of the caller (the file system user id).
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// Group of the caller.
    pub fn gid(&self) -> u32 {
        self.header.gid
    }

    /// The thread that asks; 0 when it is the kernel itself (writeback) or lives in a foreign pid
    /// name space.
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    /// Supplementary groups that came with the request: when a file is made, the one that equals
    /// the parent directory's group, if the caller has it.
    pub fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Whether the caller got a signal, or the file system is being unmounted by force. An
    /// operation that waits for others (locks) should give up with [`super::Errno::INTR`]; one
    /// that is nearly done may finish.
    pub fn is_interrupted(&self) -> bool {
        self.interruption.happened.get()
    }

    /// Ready when the request is interrupted. One waits at a time.
    pub async fn interrupted(&self) {
        poll_fn(|cx| {
            if self.is_interrupted() {
                return Poll::Ready(());
            }
            *self.interruption.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let InHeader { unique, nodeid, uid, gid, pid, .. } = self.header;
        write!(f, "request {unique} on node {nodeid} of {uid}:{gid}, thread {pid}")
    }
}
