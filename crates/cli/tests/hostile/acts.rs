//! What a hostile client does, in a process (and, for the superuser, a user) of its own.

use crate::harness::noise;
use crate::wire_client::{
    CLIENT_SLEEPS, Goal, REGION_BYTES, SERVER_SLEEPS, SLOTS, challenge, frame, hello, prove_again,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use types::{TargetId, limits};
use wire::header::{FLAG_DEFERRED_BULK, FLAG_REMOTE_BULK};
use wire::hello::Service;
use wire::{HEADER_BYTES, Header, Kind};

/// One thing after another; `hold` says that the engine is to be tried now.
pub fn run(act: &str, goal: &Goal, captured: &[Vec<u8>], hold: impl Fn()) {
    let (conversations, asks) = captured.split_at(captured.len() - ASKS);
    match act {
        "descriptors" => descriptors(goal),
        "bells" => bells(goal, hold),
        "rings" => rings(goal),
        "sizes" => sizes(goal, hold),
        "frames" => frames(goal, conversations),
        "half-open" => half_open(goal, hold),
        "idle" => idle(goal, hold),
        "short" => short(goal),
        "unread" => unread(goal, &asks[0], (UNREAD_BYTES, 200), hold),
        "lists" => unread(goal, &asks[1], (0, 100), hold),
        other => panic!("no act {other}"),
    }
}

pub const ACTS: [&str; 10] = [
    "descriptors",
    "bells",
    "rings",
    "sizes",
    "half-open",
    "idle",
    "short",
    "unread",
    "lists",
    // The last, for a changed request may be one that removes what others need.
    "frames",
];

/// Behind the conversations that were captured come so many requests: one that reads [`UNREAD_BYTES`], and one that lists
/// [`LISTED`] objects.
pub const ASKS: usize = 2;
/// Connections whose answers nobody takes.
const UNREAD: usize = 4;
/// Objects that the act `lists` has listed again and again.
pub const LISTED: u64 = 30_000;

/// Descriptors of every type with the introduction, and in the middle of a connection.
fn descriptors(goal: &Goal) {
    let send = |socket: &UnixStream, bytes: &[u8], fds: &[OwnedFd]| {
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&borrowed)));
        let parts = [std::io::IoSlice::new(bytes)];
        let flags = rustix::net::SendFlags::NOSIGNAL;
        // The engine may have hung up.
        let _ = rustix::net::sendmsg(socket, &parts, &mut control, flags);
    };
    for _ in 0..20 {
        for fds in every_kind() {
            let mut socket = UnixStream::connect(&goal.unix).unwrap();
            let asked = challenge(&mut socket).unwrap();
            send(&socket, &hello(asked, &goal.token, Service::Target(TargetId(0)), 0), &fds);
            drop(socket);
            let mut shm = goal.dial_shm().unwrap();
            send(&shm.socket, b"surprise", &fds);
            // Who had mapped it would die of its next look.
            for fd in &fds {
                let _ = rustix::fs::ftruncate(fd, 0);
            }
            while !shm.is_over() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn every_kind() -> Vec<Vec<OwnedFd>> {
    let file = || OwnedFd::from(tempfile::tempfile().unwrap());
    let (out, full) = rustix::pipe::pipe().unwrap();
    rustix::fs::fcntl_setfl(&full, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&full, &[0; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&full, OFlags::empty()).unwrap();
    let bell = eventfd(0, EventfdFlags::empty()).unwrap();
    rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memory, REGION_BYTES as u64).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    vec![
        vec![memory, full],
        vec![file(), bell],
        vec![out],
        vec![OwnedFd::from(ours), OwnedFd::from(theirs)],
        vec![OwnedFd::from(std::fs::File::open("/").unwrap())],
        vec![OwnedFd::from(std::fs::File::open("/dev/null").unwrap()), file(), file(), file()],
    ]
}

/// Bells emptied, filled, and made to wait; then the engine has reasons to ring them.
fn bells(goal: &Goal, hold: impl Fn()) {
    let mut all: Vec<_> = (0..20).map(|_| goal.dial_shm().unwrap()).collect();
    for shm in &mut all {
        for fd in [&shm.bell, &shm.seen] {
            let _ = rustix::fs::fcntl_setfl(fd, OFlags::empty());
        }
        // From full to overflowing: the second would wait, so it must not.
        let _ = rustix::io::write(&shm.bell, &(u64::MAX - 1).to_ne_bytes());
        let _ = rustix::fs::fcntl_setfl(&shm.bell, OFlags::NONBLOCK);
        let _ = rustix::io::write(&shm.seen, &[1; 8]);
        let _ = rustix::fs::fcntl_setfl(&shm.bell, OFlags::empty());
        let ping = frame(Header::new(Kind::Ping, 1, &[], 0), &[], |_| {});
        for _ in 0..200 {
            shm.poke(CLIENT_SLEEPS, &1u32.to_ne_bytes());
            shm.poke(SERVER_SLEEPS, &0u32.to_ne_bytes());
            let _ = rustix::fs::fcntl_setfl(&shm.bell, OFlags::NONBLOCK);
            shm.send(&ping);
            let _ = rustix::fs::fcntl_setfl(&shm.bell, OFlags::empty());
        }
    }
    hold();
}

/// Nonsense in every word that the engine reads, and everywhere else.
fn rings(goal: &Goal) {
    for round in 0..150u64 {
        let mut shm = goal.dial_shm().unwrap();
        let words = noise(round, 4096);
        for at in [0usize, 64, 128, 136, 192, 256, 264, 320, SLOTS, SLOTS + 2040] {
            let value = match round % 5 {
                0 => u64::MAX,
                1 => 1 << 63,
                2 => 256 << 10,
                3 => (256 << 10) + 1,
                _ => u64::from_ne_bytes(words[at % 4000..][..8].try_into().unwrap()),
            };
            shm.poke(at, &value.to_ne_bytes());
            shm.ring();
        }
        if round % 3 == 0 {
            shm.poke(0, &noise(round, REGION_BYTES));
            shm.ring();
        }
        // The file cannot shrink under the engine, and what is cut out of it comes back as zeros.
        assert!(rustix::fs::ftruncate(&shm.memory, 4096).is_err(), "the memory is sealed");
        let holes = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&shm.memory, holes, 0, REGION_BYTES as u64);
        shm.ring();
        let _ = shm.is_over();
    }
}

/// Headers that promise much, and lists of memory that is not there.
fn sizes(goal: &Goal, hold: impl Fn()) {
    let most = |header: &mut Header| {
        header.body_bytes = limits::BODY_BYTES_MAX as u32;
        header.bulk_bytes = limits::BULK_BYTES_MAX as u32;
    };
    let request = |id| Header::new(Kind::Request, id, &[], 0);
    let mut tcp: Vec<_> = (0..200).map(|_| goal.dial_tcp().unwrap()).collect();
    for socket in &mut tcp {
        socket.write_all(&frame(request(1), &[], most)).unwrap();
        socket.write_all(&[0; 100]).unwrap();
    }
    let mut shm: Vec<_> = (0..100).map(|_| goal.dial_shm().unwrap()).collect();
    for conn in &mut shm {
        conn.send(&frame(request(1), &[], most));
    }
    hold();
    drop((tcp, shm));
    for round in 0..100u64 {
        let mut conn = goal.dial_shm().unwrap();
        let mut body = noise(round, 100);
        // A list of one range: its footer is well-formed, its place is not.
        let footer = body.len() - 24;
        body[footer..footer + 8].copy_from_slice(&(round << 2 | 1).to_le_bytes());
        for (at, value) in [(8, round as u32 % 300), (12, 1), (16, round as u32 % 3), (20, 0)] {
            body[footer + at..footer + at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let flags = if round % 2 == 0 { FLAG_REMOTE_BULK } else { FLAG_DEFERRED_BULK };
        conn.send(&frame(request(round), &body, |header| {
            header.flags = flags | (round as u8 & 0x80);
            header.bulk_bytes = if round % 4 < 2 { 100 } else { u32::MAX };
        }));
        conn.send(&frame(Header::new(Kind::Data, round, &[], 0), &[], |header| {
            header.bulk_bytes = 1 << 20;
        }));
        let _ = conn.is_over();
    }
}

/// Many small requests that ask for much, whose answers nobody takes; then they are taken, all of them. `bulk_bytes`: what each
/// answer has behind its body.
fn unread(goal: &Goal, ask: &[u8], (bulk_bytes, requests): (usize, u64), hold: impl Fn()) {
    let mut tcp: Vec<_> = (0..UNREAD).map(|_| goal.dial_tcp().unwrap()).collect();
    for socket in &mut tcp {
        socket.set_read_timeout(None).unwrap();
        for id in 1..=requests {
            let header = Header::new(Kind::Request, id, ask, 0);
            socket.write_all(&frame(header, ask, |_| {})).unwrap();
        }
    }
    hold();
    // Some go away without; the others get all that they asked for.
    tcp.truncate(UNREAD / 2);
    let mut bulk = vec![0; bulk_bytes];
    for mut socket in tcp {
        for _ in 0..requests {
            let mut raw = [0; HEADER_BYTES];
            socket.read_exact(&mut raw).unwrap();
            let header = Header::decode(&raw).unwrap();
            let mut body = vec![0; header.body_bytes as usize];
            socket.read_exact(&mut body).unwrap();
            assert_eq!((body.first(), header.bulk_bytes as usize), (Some(&0), bulk_bytes));
            assert!(bulk_bytes > 0 || body.len() as u64 > LISTED, "{} bytes", body.len());
            socket.read_exact(&mut bulk).unwrap();
        }
    }
}

/// What each request of the act `unread` asks for, bytes.
pub const UNREAD_BYTES: usize = 4 << 20;

/// Frames that a good client has sent, with a change in one of them.
fn frames(goal: &Goal, captured: &[Vec<u8>]) {
    for round in 0..400u64 {
        let conversation = &captured[round as usize % captured.len()];
        let mut frames = split(conversation);
        let Ok(mut socket) = TcpStream::connect(&goal.tcp) else { panic!("nobody listens") };
        // What was heard is of no use to who does not know the secret; this one does.
        frames[0] = prove_again(&frames[0], challenge(&mut socket).unwrap(), &goal.token);
        let random = noise(round, 64);
        let number =
            |at: usize| u32::from_le_bytes(random[at..at + 4].try_into().unwrap()) as usize;
        let which = number(0) % frames.len();
        // The first message is changed seldom: nothing comes after it.
        let which = if which == 0 && round % 10 != 0 { frames.len() - 1 } else { which };
        let changed = &mut frames[which];
        let at = match round % 4 {
            0 => number(4) % HEADER_BYTES,
            _ => number(4) % changed.len(),
        };
        match round % 7 {
            0 => changed.truncate(at),
            1 => changed.extend_from_slice(&random),
            _ => changed[at] ^= random[8] | 1,
        }
        // With sums made to fit: they keep out accidents, nobody else.
        if changed.len() >= HEADER_BYTES && round % 8 != 0 {
            let body_bytes = u32::from_le_bytes(changed[24..28].try_into().unwrap()) as usize;
            let end = (HEADER_BYTES + body_bytes).min(changed.len());
            let body = wire::header::crc(&changed[HEADER_BYTES..end]).to_le_bytes();
            changed[32..36].copy_from_slice(&body);
            let header = wire::header::crc(&changed[..36]).to_le_bytes();
            changed[36..40].copy_from_slice(&header);
        }
        for frame in frames {
            if socket.write_all(&frame).is_err() {
                break;
            }
        }
        let _ = socket.shutdown(std::net::Shutdown::Write);
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The engine ends it when it has read all.
        if let Err(error) = socket.read_to_end(&mut Vec::new()) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "round {round}");
        }
    }
}

/// Cuts what went one way over a connection into frames.
fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(raw) = bytes.first_chunk::<HEADER_BYTES>() {
        let header = Header::decode(raw).expect("a good client's header");
        let long = HEADER_BYTES + header.body_bytes as usize + header.bulk_bytes as usize;
        let (frame, rest) = bytes.split_at(long.min(bytes.len()));
        frames.push(frame.to_vec());
        bytes = rest;
    }
    frames
}

/// Connections by the thousand that say nothing, or half a hello.
fn half_open(goal: &Goal, hold: impl Fn()) {
    let half = &hello([0; 32], &goal.token, Service::Control, 0)[..50];
    let mut unix = Vec::new();
    let mut tcp = Vec::new();
    for number in 0..2000 {
        let mut local = UnixStream::connect(&goal.unix).unwrap();
        let mut remote = TcpStream::connect(&goal.tcp).unwrap();
        if number % 2 == 0 {
            let _ = local.write_all(half);
            let _ = remote.write_all(half);
        }
        unix.push(local);
        tcp.push(remote);
    }
    // The first of them had to go when the later ones came: nobody waits for them.
    tcp[0].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    unix[0].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let _ = tcp[0].read(&mut [0]);
    let _ = unix[0].read(&mut [0]);
    hold();
}

/// Two thousand clients that have said who they are, and then say nothing.
fn idle(goal: &Goal, hold: impl Fn()) {
    let shm: Vec<_> = (0..1000).map(|_| goal.dial_shm().unwrap()).collect();
    let tcp: Vec<_> = (0..1000).map(|_| goal.dial_tcp().unwrap()).collect();
    hold();
    drop((shm, tcp));
}

/// Many clients that come, and go at once: what each left behind for ten minutes once took all of the engine's
/// descriptors.
fn short(goal: &Goal) {
    for _ in 0..1600 {
        drop(goal.dial_shm().unwrap());
        drop(goal.dial_tcp().unwrap());
    }
}
