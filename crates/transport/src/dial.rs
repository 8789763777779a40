//! Connecting: sockets, the first exchange, the switch to shared memory.

use crate::accept::watch_for_death;
use crate::address::Address;
use crate::bell::BellPair;
use crate::conn::Conn;
use crate::fdpass::Introducer;
use crate::pacing::Unpaced;
use crate::ring::{Region, Side};
use crate::shm::ShmStream;
use crate::sim;
use crate::socket::SocketStream;
use crate::stream::Stream;
use env::Env;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use types::{ClientId, Code, Error, Result};
use wire::hello::{Challenge, Hello, HelloReply, Nonce, ProvenHello, Service};
use wire::{HEADER_BYTES, Header, Kind, proof};

/// Longest body of a first message, bytes.
pub(crate) const HELLO_BYTES_MAX: usize = 16 << 10;

/// Who calls, and whom.
#[derive(Clone, Copy, Debug)]
pub struct Dial<'a> {
    /// The caller; the same over reconnects.
    pub client: ClientId,
    pub service: Service,
    /// Shared secret of the system, which is proved and not sent; empty where none is set.
    pub token: &'a [u8],
    /// Name of the caller's job; may be empty.
    pub job: &'a str,
    /// Most time for all of it.
    pub timeout: Duration,
}

/// Connects to an engine and introduces the caller. `Unreach` when nobody is there, `TimedOut` when
/// there is no answer in time, `NoPerm` when it does not know the secret, or what it refuses with. A host name in a TCP address is
/// resolved by the C library, which blocks the thread.
pub async fn connect(env: &Env, addr: &Address, dial: &Dial<'_>) -> Result<Conn> {
    let connected = env.timeout(dial.timeout, async {
        match addr {
            Address::Unix(path) => connect_unix(env, path, dial).await,
            Address::Tcp(text) => connect_tcp(env, text, dial).await,
            Address::Sim(name) => connect_sim(env, name, dial).await,
        }
    });
    match connected.await {
        Some(Ok(conn)) => Ok(conn),
        Some(Err(error)) if error.code == Code::Closed => {
            Err(Error::new(Code::Unreach, format!("connecting to {addr}: {error}")))
        }
        Some(Err(error)) => Err(error.context(format!("connecting to {addr}"))),
        None => Err(Error::new(
            Code::TimedOut,
            format!("connecting to {addr}: no answer within {:?}", dial.timeout),
        )),
    }
}

/// True when the machine behind an address can be heard: it takes connections, or refuses them. Whether an engine there would
/// answer is not asked. Machines that can hear this one only, or that only this one can hear, are not heard.
///
/// The engine's own machine (a Unix socket) always is.
pub async fn is_heard(env: &Env, addr: &Address, limit: Duration) -> bool {
    let heard = env.timeout(limit, async {
        match addr {
            Address::Unix(_) => true,
            Address::Tcp(text) => is_heard_tcp(env, text).await,
            // A node that is not listening refuses; one that is cut off says nothing.
            Address::Sim(name) => match sim::connect(env, name).await {
                Ok(_) => true,
                Err(error) => error.code == Code::Unreach,
            },
        }
    });
    heard.await.unwrap_or(false)
}

/// True when the machine behind an address says that nobody listens there. One that says nothing may be cut off, and one that takes
/// connections may be slow. What is at a Unix socket is not asked.
pub async fn is_refused(env: &Env, addr: &Address, limit: Duration) -> bool {
    let refused = env.timeout(limit, async {
        match addr {
            Address::Unix(_) => false,
            Address::Tcp(text) => is_refused_tcp(env, text).await,
            Address::Sim(name) => {
                sim::connect(env, name).await.is_err_and(|error| error.code == Code::Unreach)
            }
        }
    });
    refused.await.unwrap_or(false)
}

/// By all addresses that a name stands for.
async fn is_refused_tcp(env: &Env, text: &str) -> bool {
    let Ok(addresses) = text.to_socket_addrs() else { return false };
    let mut is_any = false;
    for address in addresses {
        if !open_tcp(env, address).await.is_err_and(|error| error.code == Code::Closed) {
            return false;
        }
        is_any = true;
    }
    is_any
}

async fn is_heard_tcp(env: &Env, text: &str) -> bool {
    let Ok(addresses) = text.to_socket_addrs() else { return false };
    for address in addresses {
        match open_tcp(env, address).await {
            Ok(_) => return true,
            Err(error) if error.code == Code::Closed => return true,
            Err(_) => {}
        }
    }
    false
}

/// `Closed` where a machine answers that nobody listens, else `Unreach`.
fn unreachable(errno: Errno) -> Error {
    let code = match errno {
        Errno::CONNREFUSED | Errno::CONNRESET => Code::Closed,
        _ => Code::Unreach,
    };
    Error::new(code, errno.to_string())
}

/// What a caller says to a challenge, and what the engine has to prove in its answer.
struct Introduction<'a> {
    dial: &'a Dial<'a>,
    challenge: Nonce,
    said: Vec<u8>,
}

impl Introduction<'_> {
    /// `word_at` and `word`: see [`Hello`].
    fn new<'a>(
        env: &Env,
        dial: &'a Dial<'a>,
        challenge: Nonce,
        word_at: u64,
        word: u64,
    ) -> Result<Introduction<'a>> {
        let hello = Hello {
            client: dial.client,
            service: dial.service,
            nonce: env.nonce()?,
            job: dial.job,
            pid: std::process::id(),
            memory_word_address: word_at,
            memory_word: word,
        };
        Ok(Introduction { dial, challenge, said: wire::encode(&hello) })
    }

    fn frame(&self) -> Vec<u8> {
        let proof = proof::of_caller(self.dial.token, &self.challenge, &self.said);
        let body = wire::encode(&ProvenHello { hello: &self.said, proof });
        let mut frame = Header::new(Kind::Hello, 0, &body, 0).encode().to_vec();
        frame.extend_from_slice(&body);
        frame
    }

    /// The engine's answer, if it knows the secret.
    fn check(&self, header: &Header, body: &[u8]) -> Result<HelloReply> {
        header.check_body(body)?;
        let reply = wire::decode::<Result<HelloReply>>(body)??;
        match proof::is_of_engine(&reply.proof, self.dial.token, &self.challenge, &self.said) {
            true => Ok(reply),
            false => Err(Error::new(
                Code::NoPerm,
                "who answers does not know the system's secret: it is no engine of this system",
            )),
        }
    }
}

fn check_header(raw: &[u8; HEADER_BYTES], kind: Kind) -> Result<Header> {
    let header = Header::decode(raw)?;
    if header.kind != kind || header.bulk_bytes != 0 || header.body_bytes as usize > HELLO_BYTES_MAX
    {
        return Err(Error::new(Code::Proto, "the engine does not introduce itself as engines do"));
    }
    Ok(header)
}

fn decode_challenge(header: &Header, body: &[u8]) -> Result<Nonce> {
    header.check_body(body)?;
    Ok(wire::decode::<Challenge>(body)?.nonce)
}

async fn connect_tcp(env: &Env, text: &str, dial: &Dial<'_>) -> Result<Conn> {
    let addresses: Vec<SocketAddr> = text
        .to_socket_addrs()
        .map_err(|error| Error::new(Code::Unreach, format!("'{text}': {error}")))?
        .collect();
    let mut last = Error::new(Code::Unreach, format!("'{text}' has no address"));
    for address in addresses {
        match open_tcp(env, address).await {
            Ok(introducer) => return introduce(env, introducer, dial, None).await,
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn open_tcp(env: &Env, address: SocketAddr) -> Result<Introducer> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd =
        rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(unreachable)?;
    let fd = env::keep(fd);
    sockopt::set_tcp_nodelay(&fd, true).map_err(unreachable)?;
    watch_for_death(&fd);
    let unpaced = Unpaced::of(&fd);
    match rustix::net::connect(&fd, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(unreachable(errno)),
    }
    let introducer = Introducer::new(env, fd)?;
    // Right after the watch was set up the kernel's first report is still to come.
    introducer.watch().clear_writable();
    introducer.watch().writable().await;
    match sockopt::socket_error(introducer.watch().fd()) {
        Ok(Ok(())) => {
            unpaced.restore_if_far(introducer.watch().fd());
            Ok(introducer)
        }
        Ok(Err(errno)) | Err(errno) => Err(unreachable(errno)),
    }
}

async fn connect_unix(env: &Env, path: &Path, dial: &Dial<'_>) -> Result<Conn> {
    let address = rustix::net::SocketAddrUnix::new(path)
        .map_err(|errno| Error::new(Code::Unreach, format!("bad socket path: {errno}")))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map(env::keep)
        .map_err(unreachable)?;
    loop {
        match rustix::net::connect(&fd, &address) {
            Ok(()) => break,
            // The engine's queue of new connections is full.
            Err(Errno::AGAIN) => env.sleep(Duration::from_millis(1)).await,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(unreachable(errno)),
        }
    }
    let engine = sockopt::socket_peercred(&fd).map_err(unreachable)?;
    let introducer = Introducer::new(env, fd)?;
    // Only an engine of our own user may reach our memory; see `peer.rs`.
    let may_reach =
        engine.uid == rustix::process::geteuid() && allow_access(engine.pid.as_raw_nonzero().get());
    let word = may_reach.then(|| Box::new(env.random_u64()));
    introduce(env, introducer, dial, word).await
}

/// The one process that may reach our memory where the Yama security module limits it.
static TRACER: AtomicI32 = AtomicI32::new(0);

/// Lets the engine reach our memory where the kernel needs to be told. False when another engine
/// has that right: the kernel knows one at a time, and taking it away would break the other's
/// transfers.
fn allow_access(engine_pid: i32) -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    if !scope.is_ok_and(|scope| scope.trim() != "0") {
        return true;
    }
    let earlier = TRACER
        .compare_exchange(0, engine_pid, Ordering::SeqCst, Ordering::SeqCst)
        .unwrap_or_else(|pid| pid);
    if earlier != 0 && earlier != engine_pid && process_lives(earlier) {
        return false;
    }
    TRACER.store(engine_pid, Ordering::SeqCst);
    // SAFETY: sets an attribute of this process; no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, engine_pid as libc::c_ulong, 0, 0, 0) == 0 }
}

fn process_lives(pid: i32) -> bool {
    rustix::process::Pid::from_raw(pid)
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// The first exchange over a socket. With a `word` the engine may reach our memory, for as long as
/// the word is where it was.
async fn introduce(
    env: &Env,
    introducer: Introducer,
    dial: &Dial<'_>,
    word: Option<Box<u64>>,
) -> Result<Conn> {
    let (header, body) = receive(&introducer, Kind::Challenge).await?;
    let challenge = decode_challenge(&header, &body)?;
    let (word_at, known) = match &word {
        Some(word) => (&raw const **word as u64, std::hint::black_box(**word)),
        None => (0, 0),
    };
    let said = Introduction::new(env, dial, challenge, word_at, known)?;
    introducer.write_all(&said.frame(), &[]).await?;
    let (header, body) = receive(&introducer, Kind::HelloReply).await?;
    let reply = said.check(&header, &body)?;
    let fds: Result<[_; 3], _> = introducer.take_fds().try_into();
    let stream = match fds {
        Ok([memory, requests, answers]) => {
            let region = Region::open(&memory)?;
            let socket = introducer.watch().clone();
            let bells = BellPair { own: answers, peer: requests };
            Stream::Shm(ShmStream::new(env, Side::Client, region, bells, socket)?)
        }
        Err(_) => {
            let fd = introducer.into_fd().ok_or_else(|| Error::bare(Code::Closed))?;
            Stream::Socket(SocketStream::new(env, fd, &[])?)
        }
    };
    Ok(Conn::new(env, stream, reply, word))
}

/// One message of the engine's in the first exchange.
async fn receive(introducer: &Introducer, kind: Kind) -> Result<(Header, Vec<u8>)> {
    let mut raw = [0; HEADER_BYTES];
    introducer.read_exact(&mut raw).await?;
    let header = check_header(&raw, kind)?;
    let mut body = vec![0; header.body_bytes as usize];
    introducer.read_exact(&mut body).await?;
    Ok((header, body))
}

async fn connect_sim(env: &Env, name: &str, dial: &Dial<'_>) -> Result<Conn> {
    let stream = Stream::Sim(sim::connect(env, name).await?);
    let receive = async |kind| {
        let mut raw = [0; HEADER_BYTES];
        stream.read_exact(&mut raw).await?;
        let header = check_header(&raw, kind)?;
        let mut body = vec![0; header.body_bytes as usize];
        stream.read_exact(&mut body).await?;
        Ok::<_, Error>((header, body))
    };
    let (header, body) = receive(Kind::Challenge).await?;
    let said = Introduction::new(env, dial, decode_challenge(&header, &body)?, 0, 0)?;
    stream.write_all(&said.frame()).await?;
    let (header, body) = receive(Kind::HelloReply).await?;
    let reply = said.check(&header, &body)?;
    Ok(Conn::new(env, stream, reply, None))
}
