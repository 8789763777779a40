//! Telling the kernel what to forget.
//!
//! A notification may have to wait for the very requests that a worker is answering (dirty pages
//! are written back first, locks of directories are waited for), so they are written by a thread of
//! their own, in order; but for attributes alone, which the kernel forgets without waiting.

use super::NodeId;
use super::abi::{DeleteOut, InvalEntryOut, InvalInodeOut, OutHeader, bytes_of, notify};
use parking_lot::RwLock;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

enum Note {
    /// The device to write to; none after the end.
    Device(Option<Arc<OwnedFd>>),
    Inode {
        node: NodeId,
        offset: i64,
        len: i64,
    },
    Entry {
        parent: NodeId,
        name: Box<[u8]>,
        expire: bool,
    },
    Delete {
        parent: NodeId,
        child: NodeId,
        name: Box<[u8]>,
    },
    /// Everything before has been written.
    Mark(Box<dyn FnOnce() + Send>),
}

/// Tells the kernel what to forget. Cheap to clone, usable from any thread; nothing here waits.
/// What the kernel does not know is passed over.
#[derive(Clone)]
pub struct Notifier {
    notes: Sender<Note>,
    /// For what is written by whoever says it.
    device: Arc<RwLock<Option<Arc<OwnedFd>>>>,
}

impl Notifier {
    /// Makes one, with its thread, which ends when all clones are gone.
    pub(crate) fn start() -> std::io::Result<Notifier> {
        let (sender, receiver) = channel();
        std::thread::Builder::new().name("azk-fuse-notify".into()).spawn(move || run(&receiver))?;
        Ok(Notifier { notes: sender, device: Arc::default() })
    }

    pub(crate) fn set_device(&self, device: Option<Arc<OwnedFd>>) {
        self.device.write().clone_from(&device);
        let _ = self.notes.send(Note::Device(device));
    }

    /// Cached attributes of a node, and its cached pages in `offset..offset+len` (`len` 0: to the
    /// end; a negative `offset`: no pages). Dirty pages are written first.
    pub fn inval_inode(&self, node: NodeId, offset: i64, len: i64) {
        let _ = self.notes.send(Note::Inode { node, offset, len });
    }

    /// Cached attributes of a node, before this returns. Only for a node that a request is being
    /// answered about: the kernel then has it in use, and takes the notification without waiting
    /// for anything.
    pub fn inval_attributes_now(&self, node: NodeId) {
        let device = self.device.read();
        if let Some(device) = device.as_ref() {
            let body = InvalInodeOut { ino: node.0, off: -1, len: 0 };
            send(device, notify::INVAL_INODE, &[bytes_of(&body)]);
        }
    }

    /// A name: the kernel asks for it again. Removed at once, also when it is in use there.
    pub fn inval_entry(&self, parent: NodeId, name: &[u8]) {
        let _ = self.notes.send(Note::Entry { parent, name: name.into(), expire: false });
    }

    /// A name: the kernel asks for it again the next time it is used, and mounts and working
    /// directories below stay. Before Linux 6.2 the same as [`Notifier::inval_entry`].
    pub fn expire_entry(&self, parent: NodeId, name: &[u8]) {
        let _ = self.notes.send(Note::Entry { parent, name: name.into(), expire: true });
    }

    /// Calls `then` when the kernel has taken all notifications made before: on the thread that writes them, which waits for it.
    pub fn taken(&self, then: impl FnOnce() + Send + 'static) {
        let _ = self.notes.send(Note::Mark(Box::new(then)));
    }

    /// A name was removed; watchers (`inotify`) get an event.
    pub fn delete(&self, parent: NodeId, child: NodeId, name: &[u8]) {
        let _ = self.notes.send(Note::Delete { parent, child, name: name.into() });
    }

    /// Waits until the kernel has taken all notifications made before. Not for a worker's thread:
    /// it may have to answer requests first.
    pub fn flush(&self) {
        let (sender, receiver) = channel();
        let mark = Box::new(move || {
            let _ = sender.send(());
        });
        if self.notes.send(Note::Mark(mark)).is_ok() {
            let _ = receiver.recv();
        }
    }

    /// The same for a task of a worker. Only where all notifications are of attributes
    /// ([`Notifier::inval_inode`] with a negative offset): the kernel takes these without waiting
    /// for a request.
    pub async fn flushed(&self) {
        let (sender, receiver) = futures_channel::oneshot::channel();
        let mark = Box::new(move || {
            let _ = sender.send(());
        });
        if self.notes.send(Note::Mark(mark)).is_ok() {
            let _ = receiver.await;
        }
    }
}

fn run(notes: &Receiver<Note>) {
    let mut device: Option<Arc<OwnedFd>> = None;
    while let Ok(note) = notes.recv() {
        match (note, &device) {
            (Note::Device(new), _) => device = new,
            (Note::Mark(mark), _) => mark(),
            (_, None) => {}
            (Note::Inode { node, offset, len }, Some(device)) => {
                let body = InvalInodeOut { ino: node.0, off: offset, len };
                send(device, notify::INVAL_INODE, &[bytes_of(&body)]);
            }
            (Note::Entry { parent, name, expire }, Some(device)) => {
                let flags = if expire { notify::EXPIRE_ONLY } else { 0 };
                let body = InvalEntryOut { parent: parent.0, namelen: name.len() as u32, flags };
                send(device, notify::INVAL_ENTRY, &[bytes_of(&body), &name, b"\0"]);
            }
            (Note::Delete { parent, child, name }, Some(device)) => {
                let body = DeleteOut {
                    parent: parent.0,
                    child: child.0,
                    namelen: name.len() as u32,
                    padding: 0,
                };
                send(device, notify::DELETE, &[bytes_of(&body), &name, b"\0"]);
            }
        }
    }
}

fn send(device: &OwnedFd, code: i32, parts: &[&[u8]]) {
    let len = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
    let header = OutHeader { len: len as u32, error: code, unique: 0 };
    let mut pieces = vec![IoSlice::new(bytes_of(&header))];
    pieces.extend(parts.iter().map(|part| IoSlice::new(part)));
    if let Err(error) = rustix::io::writev(device, &pieces) {
        // ENOENT: the kernel does not know the node or the name, so there is nothing to forget.
        tracing::trace!(code, "notification not taken: {error}");
    }
}
