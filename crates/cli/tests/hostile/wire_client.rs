//! A client made by hand: it says what it likes, and writes what it likes into shared memory.

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use types::{ClientId, TargetId};
use wire::hello::{Challenge, Hello, ProvenHello, Service};
use wire::{HEADER_BYTES, Header, Kind};

/// Places in the shared memory, as the engine has them.
pub const SERVER_SLEEPS: usize = 0;
pub const CLIENT_SLEEPS: usize = 64;
const WRITTEN: usize = 128;
pub const SLOTS: usize = 4096;
const RING: usize = 8192;
const RING_BYTES: usize = 256 << 10;
pub const REGION_BYTES: usize = RING + 2 * RING_BYTES;

/// An engine to be tried.
pub struct Goal {
    pub unix: String,
    pub tcp: String,
    pub token: Vec<u8>,
}

/// A frame of a header and a body, with no bulk whatever the header says.
pub fn frame(mut header: Header, body: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
    header.body_bytes = body.len() as u32;
    header.body_crc = wire::header::crc(body);
    change(&mut header);
    let mut out = header.encode().to_vec();
    out.extend_from_slice(body);
    out
}

/// Reads the engine's challenge.
pub fn challenge(socket: &mut impl Read) -> std::io::Result<[u8; 32]> {
    let mut raw = [0; HEADER_BYTES];
    socket.read_exact(&mut raw)?;
    let mut body = vec![0; Header::decode(&raw).unwrap().body_bytes as usize];
    socket.read_exact(&mut body)?;
    Ok(wire::decode::<Challenge>(&body).unwrap().nonce)
}

/// A caller's first message, as an answer to this challenge.
pub fn hello(challenge: [u8; 32], token: &[u8], service: Service, word_at: u64) -> Vec<u8> {
    // A client of its own each time: the engine ends a client's earlier connection.
    static CLIENTS: AtomicU64 = AtomicU64::new(0x1057);
    let hello = Hello {
        client: ClientId(CLIENTS.fetch_add(1, Ordering::Relaxed)),
        service,
        nonce: [3; 32],
        job: "",
        pid: 1,
        memory_word_address: word_at,
        memory_word: 0,
    };
    let hello = wire::encode(&hello);
    let proof = wire::proof::of_caller(token, &challenge, &hello);
    let body = wire::encode(&ProvenHello { hello: &hello, proof });
    frame(Header::new(Kind::Hello, 0, &body, 0), &body, |_| {})
}

/// A good client's first message, sent again by somebody who knows the secret.
pub fn prove_again(first: &[u8], challenge: [u8; 32], token: &[u8]) -> Vec<u8> {
    let earlier: ProvenHello<'_> = wire::decode(&first[HEADER_BYTES..]).unwrap();
    let proof = wire::proof::of_caller(token, &challenge, earlier.hello);
    let body = wire::encode(&ProvenHello { hello: earlier.hello, proof });
    frame(Header::new(Kind::Hello, 0, &body, 0), &body, |_| {})
}

impl Goal {
    /// Connects over TCP and says hello; the answer is read.
    pub fn dial_tcp(&self) -> std::io::Result<TcpStream> {
        let mut socket = TcpStream::connect(&self.tcp)?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        let challenge = challenge(&mut socket)?;
        socket.write_all(&hello(challenge, &self.token, Service::Target(TargetId(0)), 0))?;
        let mut raw = [0; HEADER_BYTES];
        socket.read_exact(&mut raw)?;
        let mut body = vec![0; Header::decode(&raw).unwrap().body_bytes as usize];
        socket.read_exact(&mut body)?;
        Ok(socket)
    }

    /// Connects over the Unix socket and gets the shared memory.
    pub fn dial_shm(&self) -> std::io::Result<Shm> {
        let mut socket = UnixStream::connect(&self.unix)?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        let challenge = challenge(&mut socket)?;
        socket.write_all(&hello(challenge, &self.token, Service::Target(TargetId(0)), 0))?;
        let mut raw = [0; 4096];
        let mut fds = Vec::new();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut raw)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = rustix::net::recvmsg(&socket, &mut parts, &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        assert!(got.bytes > HEADER_BYTES, "an answer to hello");
        let [memory, bell, seen]: [OwnedFd; 3] = fds.try_into().expect("three descriptors");
        Shm::new(socket, memory, bell, seen)
    }
}

/// A shared-memory connection.
pub struct Shm {
    pub socket: UnixStream,
    pub memory: OwnedFd,
    /// The engine's bell.
    pub bell: OwnedFd,
    /// What our own bell is seen by.
    pub seen: OwnedFd,
    start: *mut u8,
    written: u64,
}

impl Shm {
    fn new(
        socket: UnixStream,
        memory: OwnedFd,
        bell: OwnedFd,
        seen: OwnedFd,
    ) -> std::io::Result<Shm> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping where the kernel likes.
        let start =
            unsafe { mmap(none, REGION_BYTES, rights, MapFlags::SHARED, memory.as_fd(), 0)? };
        Ok(Shm { socket, memory, bell, seen, start: start.cast(), written: 0 })
    }

    /// Writes bytes anywhere into the shared memory.
    pub fn poke(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= REGION_BYTES);
        // SAFETY: within the mapping. The engine reads and writes there, too, which is the point.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Sends bytes through the ring, as a good client does; what has no room is left out.
    pub fn send(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(4096) {
            let at = self.written as usize % RING_BYTES;
            let first = piece.len().min(RING_BYTES - at);
            self.poke(RING + at, &piece[..first]);
            self.poke(RING, &piece[first..]);
            self.written += piece.len() as u64;
            self.poke(WRITTEN, &self.written.to_ne_bytes());
            self.ring();
        }
    }

    /// Rings the engine's bell.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// True when the engine has ended the connection.
    pub fn is_over(&mut self) -> bool {
        let _ = self.socket.set_nonblocking(true);
        let read = self.socket.read(&mut [0]);
        !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nobody refers into it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), REGION_BYTES) };
    }
}
