//! Bytes and descriptors over a socket during the introduction.

use env::{Env, FdWatch};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use types::{Code, Error, Result};

/// Most descriptors taken from a peer; the kernel closes what is beyond.
const FD_COUNT_MAX: usize = 4;

/// A nonblocking socket that can carry descriptors.
pub(crate) struct Introducer {
    fd: Rc<OwnedFd>,
    watch: Rc<FdWatch>,
    received: RefCell<Vec<OwnedFd>>,
}

impl Introducer {
    pub fn new(env: &Env, fd: OwnedFd) -> Result<Introducer> {
        let fd = Rc::new(fd);
        let watch = Rc::new(env.watch_fd(fd.clone())?);
        Ok(Introducer { fd, watch, received: RefCell::default() })
    }

    pub fn watch(&self) -> &Rc<FdWatch> {
        &self.watch
    }

    /// Descriptors received so far.
    pub fn take_fds(&self) -> Vec<OwnedFd> {
        self.received.take()
    }

    /// Gives the socket back, no longer watched. `None` when a part of it is still in use.
    pub fn into_fd(self) -> Option<OwnedFd> {
        let Introducer { fd, watch, .. } = self;
        drop(watch);
        Rc::try_unwrap(fd).ok()
    }

    /// Reads all of `out`, and descriptors that come with it.
    pub async fn read_exact(&self, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            match self.receive(&mut out[done..]) {
                Ok(0) => {
                    return Err(Error::new(Code::Closed, "the peer closed the connection"));
                }
                Ok(count) => done += count,
                Err(Errno::WOULDBLOCK) => {
                    self.watch.clear_readable();
                    self.watch.readable().await;
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(Error::new(Code::Closed, format!("the connection broke: {errno}")));
                }
            }
        }
        Ok(())
    }

    fn receive(&self, out: &mut [u8]) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FD_COUNT_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(out)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let got = rustix::net::recvmsg(self.watch.fd(), &mut parts, &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                let mut received = self.received.borrow_mut();
                for fd in fds {
                    if received.len() < FD_COUNT_MAX {
                        received.push(env::keep(fd));
                    }
                }
            }
        }
        Ok(got.bytes)
    }

    /// Writes all of `bytes`, with `fds` beside the first of them.
    pub async fn write_all(&self, bytes: &[u8], mut fds: &[BorrowedFd<'_>]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match send(self.watch.fd(), &bytes[done..], fds) {
                Ok(count) => {
                    done += count;
                    fds = &[];
                }
                Err(Errno::WOULDBLOCK) => {
                    self.watch.clear_writable();
                    self.watch.writable().await;
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(Error::new(Code::Closed, format!("the connection broke: {errno}")));
                }
            }
        }
        Ok(())
    }
}

/// One attempt to send bytes with descriptors.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FD_COUNT_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(fits, "at most {FD_COUNT_MAX} descriptors travel together");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}
