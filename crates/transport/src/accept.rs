//! Accepting: listeners, the first exchange, the hand-over to the thread that serves.
//!
//! Invariants: a first message is limited in size and time, and read beside others, so that no
//! caller holds up another; how many are read at once is limited as `greetings.rs` says. Anything else than a well-formed one costs its sender the connection
//! and nobody else anything.

use crate::bell::{BellPair, BellSet};
use crate::dial::HELLO_BYTES_MAX;
use crate::fdpass::{Introducer, send};
use crate::greetings::{Greetings, Origin, Place};
use crate::ledger::{Account, Ledger};
use crate::pacing::Unpaced;
use crate::peer::{Mark, Process};
use crate::ring::{Region, Side};
use crate::server::ServerConn;
use crate::shm::ShmStream;
use crate::sim::{Listener, SimNet, SimStream};
use crate::socket::SocketStream;
use crate::stream::Stream;
use env::{Env, FdWatch};
use futures_util::future::{Either, select};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, UCred, sockopt,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use types::{ClientId, Code, Error, Result};
use wire::hello::{Challenge, Hello, HelloReply, Nonce, Proof, ProvenHello, Service};
use wire::{HEADER_BYTES, Header, Kind, proof};

/// Most time for the first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Callers that wait in the kernel's queue.
const BACKLOG: i32 = 1024;
/// Pause after the kernel refuses a connection for lack of descriptors or memory.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(20);
/// A TCP peer that says nothing is asked after this long, then this often, and given up
/// when it does not answer this many times: what a machine without power held is free then.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const PROBE_PAUSE: Duration = Duration::from_secs(5);
const PROBE_COUNT: u32 = 3;

/// What a caller said first, owned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HelloInfo {
    pub client: ClientId,
    pub service: Service,
    /// Name of its job; may be empty.
    pub job: String,
    /// Its process id: from the kernel on one host, else what it says.
    pub pid: u32,
    /// The same, if the kernel knows it.
    pub local_pid: Option<u32>,
    /// The host it comes from, over TCP.
    pub host: Option<IpAddr>,
    /// Whoever accepts found that it is an engine or an administrator.
    pub is_admin: bool,
    claim: Claim,
}

/// What a caller has said, word for word, and its proof that it knows a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Claim {
    challenge: Nonce,
    said: Vec<u8>,
    proof: Proof,
}

impl HelloInfo {
    /// True when it has shown that it knows this secret.
    pub fn knows(&self, secret: &[u8]) -> bool {
        let Claim { challenge, said, proof } = &self.claim;
        proof::is_of_caller(proof, secret, challenge, said)
    }
}

#[derive(Default)]
struct Arrivals {
    ready: RefCell<VecDeque<Incomer>>,
    waiting: RefCell<Option<Waker>>,
    stopped: Cell<bool>,
    listeners: RefCell<Vec<Waker>>,
    ledger: Arc<Ledger>,
}

impl Arrivals {
    /// Makes the listening tasks look again.
    fn wake_listeners(&self) {
        for waker in self.listeners.take() {
            waker.wake();
        }
    }

    /// Notes a listening task that waits.
    fn note_listener(&self, waker: &Waker) {
        let mut listeners = self.listeners.borrow_mut();
        if !listeners.iter().any(|other| other.will_wake(waker)) {
            listeners.push(waker.clone());
        }
    }

    fn deliver(&self, incomer: Incomer) {
        self.ready.borrow_mut().push_back(incomer);
        wake(&self.waiting);
    }
}

fn wake(slot: &RefCell<Option<Waker>>) {
    let waker = slot.borrow_mut().take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Listens for callers. Stops when dropped.
pub struct Acceptor {
    arrivals: Rc<Arrivals>,
    tcp_addr: Option<SocketAddr>,
    unix_path: Option<PathBuf>,
}

impl Acceptor {
    /// Listens on a TCP address (`HOST:PORT`, port 0 for any), a Unix socket, or both; a stale socket
    /// file is replaced, `Busy` when somebody serves it. In a simulated world it listens under the
    /// node's name and the addresses are not looked at.
    pub async fn bind(env: &Env, tcp: Option<&str>, unix: Option<&Path>) -> Result<Acceptor> {
        let arrivals = Rc::<Arrivals>::default();
        let mut acceptor = Acceptor { arrivals: arrivals.clone(), tcp_addr: None, unix_path: None };
        if env.sim_node().is_some() {
            let listener = Listener::bind(env)?;
            env.spawn(accept_sim(env.clone(), listener, arrivals));
            return Ok(acceptor);
        }
        if let Some(text) = tcp {
            let (fd, address) =
                listen_tcp(text).map_err(|error| error.context(format!("listening on {text}")))?;
            acceptor.tcp_addr = Some(address);
            let watch = env.watch_fd(Rc::new(fd))?;
            env.spawn(accept_sockets(env.clone(), watch, false, arrivals.clone()));
        }
        if let Some(path) = unix {
            let fd = listen_unix(path)
                .map_err(|error| error.context(format!("listening on {}", path.display())))?;
            acceptor.unix_path = Some(path.into());
            let watch = env.watch_fd(Rc::new(fd))?;
            env.spawn(accept_sockets(env.clone(), watch, true, arrivals));
        }
        Ok(acceptor)
    }

    /// Where it listens for TCP.
    pub fn tcp_addr(&self) -> Option<SocketAddr> {
        self.tcp_addr
    }

    /// Memory of the messages of all connections that are accepted here.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.arrivals.ledger
    }

    /// The next caller that has said who it is. One task may wait.
    pub async fn accept(&self) -> Result<Incomer> {
        std::future::poll_fn(|cx| match self.arrivals.ready.borrow_mut().pop_front() {
            Some(incomer) => Poll::Ready(Ok(incomer)),
            None => {
                self.arrivals.waiting.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.arrivals.stopped.set(true);
        self.arrivals.wake_listeners();
        if let Some(path) = &self.unix_path {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn listen_tcp(text: &str) -> Result<(OwnedFd, SocketAddr)> {
    let address = text
        .to_socket_addrs()
        .map_err(|error| Error::inval(error.to_string()))?
        .next()
        .ok_or_else(|| Error::inval("the name has no address"))?;
    let failed = |errno: Errno| match errno {
        Errno::ADDRINUSE => Error::new(Code::Busy, "the address is in use"),
        other => Error::io("binding", other.into()),
    };
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(failed)?;
    sockopt::set_socket_reuseaddr(&fd, true).map_err(failed)?;
    rustix::net::bind(&fd, &address).map_err(failed)?;
    rustix::net::listen(&fd, BACKLOG).map_err(failed)?;
    let bound = rustix::net::getsockname(&fd).map_err(failed)?;
    let bound = SocketAddr::try_from(bound).map_err(failed)?;
    Ok((fd, bound))
}

fn listen_unix(path: &Path) -> Result<OwnedFd> {
    let failed = |errno: Errno| Error::io("binding", errno.into());
    let address = SocketAddrUnix::new(path).map_err(|_| {
        Error::inval("the path of a Unix socket may have at most 107 bytes; choose a shorter one")
    })?;
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
    };
    let fd = socket().map_err(failed)?;
    match rustix::net::bind(&fd, &address) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => {
            let probe = socket().map_err(failed)?;
            match rustix::net::connect(&probe, &address) {
                Err(Errno::CONNREFUSED | Errno::NOENT) => {}
                _ => return Err(Error::new(Code::Busy, "another process listens there")),
            }
            match rustix::fs::unlink(path) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
            rustix::net::bind(&fd, &address).map_err(failed)?;
        }
        Err(errno) => return Err(failed(errno)),
    }
    // Whoever knows the token may call, whatever its user id, as over TCP.
    rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(0o666)).map_err(failed)?;
    rustix::net::listen(&fd, BACKLOG).map_err(failed)?;
    Ok(fd)
}

/// One accepted socket and where it comes from, or an error to report. `None` when the acceptor has
/// stopped.
async fn next_socket(
    watch: &FdWatch,
    arrivals: &Arrivals,
) -> Option<Result<(OwnedFd, Origin), Errno>> {
    std::future::poll_fn(|cx| {
        loop {
            if arrivals.stopped.get() {
                return Poll::Ready(None);
            }
            if watch.poll_readable(cx).is_pending() {
                arrivals.note_listener(cx.waker());
                return Poll::Pending;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::acceptfrom_with(watch.fd(), flags) {
                Ok((fd, address)) => {
                    let origin = origin(&fd, address);
                    return Poll::Ready(Some(Ok((fd, origin))));
                }
                Err(Errno::WOULDBLOCK) => watch.clear_readable(),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Poll::Ready(Some(Err(errno))),
            }
        }
    })
    .await
}

fn origin(fd: &OwnedFd, address: Option<SocketAddrAny>) -> Origin {
    match address.and_then(|address| SocketAddr::try_from(address).ok()) {
        Some(address) => Origin::Host(address.ip()),
        None => sockopt::socket_peercred(fd)
            .map_or(Origin::Unknown, |peer| Origin::User(peer.uid.as_raw())),
    }
}

async fn accept_sockets(env: Env, watch: FdWatch, is_unix: bool, arrivals: Rc<Arrivals>) {
    let greetings = Rc::<Greetings>::default();
    let unpaced = Unpaced::of(watch.fd());
    while let Some(accepted) = next_socket(&watch, &arrivals).await {
        let (fd, origin) = match accepted {
            Ok(accepted) => accepted,
            Err(errno) => {
                tracing::warn!("a caller could not be accepted: {errno}");
                // Who is silent gives way to who may not be.
                greetings.dismiss_one();
                env.sleep(SHORTAGE_PAUSE).await;
                continue;
            }
        };
        if !is_unix {
            // Fails only on a socket that is closed already; reading tells.
            let _ = sockopt::set_tcp_nodelay(&fd, true);
            watch_for_death(&fd);
            unpaced.restore_if_far(&fd);
        }
        let place = greetings.admit(origin);
        let account = arrivals.ledger.account(origin);
        let (inner, arrivals) = (env.clone(), arrivals.clone());
        env.spawn(async move {
            match greet_in_time(&inner, fd, is_unix, account, &place).await {
                Ok(mut incomer) => {
                    incomer.info.host = match origin {
                        Origin::Host(ip) => Some(ip),
                        Origin::User(_) | Origin::Unknown => None,
                    };
                    arrivals.deliver(incomer);
                }
                Err(error) => tracing::debug!("a caller from {origin:?} was turned away: {error}"),
            }
        });
        // Callers whose greeting has arrived are answered before the next one is accepted.
        let_others_run().await;
    }
}

async fn let_others_run() {
    let mut have_run = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut have_run, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Reads a first message, until its time is over or its place is needed.
async fn greet_in_time(
    env: &Env,
    fd: OwnedFd,
    is_unix: bool,
    account: Arc<Account>,
    place: &Place,
) -> Result<Incomer> {
    let greeted = pin!(env.timeout(HELLO_TIMEOUT, greet_socket(env, fd, is_unix, account)));
    match select(greeted, pin!(place.dismissed())).await {
        Either::Left((Some(greeted), _)) => greeted,
        Either::Left((None, _)) => {
            Err(Error::new(Code::TimedOut, "it did not say who it is in time"))
        }
        Either::Right(_) => Err(Error::new(Code::Busy, "too many say nothing")),
    }
}

async fn accept_sim(env: Env, listener: Rc<Listener>, arrivals: Rc<Arrivals>) {
    loop {
        let accepted = std::future::poll_fn(|cx| {
            if arrivals.stopped.get() {
                return Poll::Ready(None);
            }
            let polled = listener.poll_accept(cx).map(Some);
            if polled.is_pending() {
                arrivals.note_listener(cx.waker());
            }
            polled
        });
        let Some(stream) = accepted.await else { return };
        let (inner, arrivals) = (env.clone(), arrivals.clone());
        env.spawn(async move {
            match inner.timeout(HELLO_TIMEOUT, greet_sim(&inner, stream)).await {
                Some(Ok(incomer)) => arrivals.deliver(incomer),
                Some(Err(error)) => tracing::debug!("a caller was turned away: {error}"),
                None => tracing::debug!("a caller did not say who it is in time"),
            }
        });
    }
}

fn hello_header(raw: &[u8; HEADER_BYTES]) -> Result<Header> {
    let header = Header::decode(raw)?;
    if header.kind != Kind::Hello
        || header.bulk_bytes != 0
        || header.body_bytes as usize > HELLO_BYTES_MAX
    {
        return Err(Error::new(Code::Proto, "the first message is not an introduction"));
    }
    Ok(header)
}

/// What the engine says first.
fn challenge_frame(nonce: Nonce) -> Vec<u8> {
    let body = wire::encode(&Challenge { nonce });
    let mut frame = Header::new(Kind::Challenge, 0, &body, 0).encode().to_vec();
    frame.extend_from_slice(&body);
    frame
}

fn check_hello(header: &Header, body: &[u8], challenge: Nonce) -> Result<(HelloInfo, Mark)> {
    header.check_body(body)?;
    decode_hello(body, challenge)
}

/// What a caller says to this challenge.
pub(crate) fn decode_hello(body: &[u8], challenge: Nonce) -> Result<(HelloInfo, Mark)> {
    let proven: ProvenHello<'_> = wire::decode(body)?;
    let hello: Hello<'_> = wire::decode(proven.hello)?;
    let info = HelloInfo {
        client: hello.client,
        service: hello.service,
        job: hello.job.to_string(),
        pid: hello.pid,
        local_pid: None,
        host: None,
        is_admin: false,
        claim: Claim { challenge, said: proven.hello.to_vec(), proof: proven.proof },
    };
    Ok((info, Mark { address: hello.memory_word_address, word: hello.memory_word }))
}

async fn greet_socket(
    env: &Env,
    fd: OwnedFd,
    is_unix: bool,
    account: Arc<Account>,
) -> Result<Incomer> {
    let peer = match is_unix {
        true => sockopt::socket_peercred(&fd).ok(),
        false => None,
    };
    let introducer = Introducer::new(env, fd)?;
    let challenge = env.nonce()?;
    introducer.write_all(&challenge_frame(challenge), &[]).await?;
    let mut raw = [0; HEADER_BYTES];
    introducer.read_exact(&mut raw).await?;
    let header = match hello_header(&raw) {
        Ok(header) => header,
        Err(error) => {
            // The answer tells a caller of another version which one this is.
            if error.code == Code::Version {
                let _ = introducer.write_all(&reply_frame(&Err(error.clone())), &[]).await;
                // Closing with unread bytes would reset the connection and take the answer back.
                let _ = rustix::net::shutdown(introducer.watch().fd(), Shutdown::Write);
                for _ in 0..HELLO_BYTES_MAX {
                    if introducer.read_exact(&mut [0]).await.is_err() {
                        break;
                    }
                }
            }
            return Err(error);
        }
    };
    let mut body = vec![0; header.body_bytes as usize];
    introducer.read_exact(&mut body).await?;
    let (mut info, mark) = check_hello(&header, &body, challenge)?;
    if let Some(peer) = peer {
        info.pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        info.local_pid = Some(info.pid);
    }
    // Clients send none; what came is closed.
    if !introducer.take_fds().is_empty() {
        return Err(Error::new(Code::Proto, "unexpected descriptors"));
    }
    let fd = introducer.into_fd().ok_or_else(|| Error::bare(Code::Closed))?;
    // What the engine's own threads tell each other may finish what others wait for.
    let is_own = peer.is_some() && info.pid == std::process::id();
    let account = (!is_own).then_some(account);
    let local = match is_unix {
        true => Some(Local { peer, mark }),
        false => None,
    };
    let route = Route::Socket { fd, local, account };
    Ok(Incomer::new(env, info, is_unix, route))
}

async fn greet_sim(env: &Env, stream: SimStream) -> Result<Incomer> {
    let stream = Stream::Sim(stream);
    let challenge = env.nonce()?;
    stream.write_all(&challenge_frame(challenge)).await?;
    let mut raw = [0; HEADER_BYTES];
    stream.read_exact(&mut raw).await?;
    let header = hello_header(&raw)?;
    let mut body = vec![0; header.body_bytes as usize];
    stream.read_exact(&mut body).await?;
    let (info, _) = check_hello(&header, &body, challenge)?;
    let (Stream::Sim(stream), Some(node)) = (stream, env.sim_node()) else {
        return Err(Error::bare(Code::Closed));
    };
    let number = SimNet::of(node.world()).hand_off(stream);
    Ok(Incomer::new(env, info, false, Route::Sim(number)))
}

fn reply_frame(reply: &Result<HelloReply>) -> Vec<u8> {
    let body = wire::encode(reply);
    let mut frame = Header::new(Kind::HelloReply, 0, &body, 0).encode().to_vec();
    frame.extend_from_slice(&body);
    frame
}

/// A caller on this host.
struct Local {
    /// Its process when it connected; `None` when the kernel does not tell.
    peer: Option<UCred>,
    mark: Mark,
}

enum Route {
    Socket {
        fd: OwnedFd,
        local: Option<Local>,
        account: Option<Arc<Account>>,
    },
    /// Number of a stream kept in the simulated network.
    Sim(u64),
}

/// A caller that has said who it is and waits for an answer.
pub struct Incomer {
    env: Env,
    info: HelloInfo,
    /// What the answer proves.
    proof: Proof,
    is_local: bool,
    route: Route,
}

impl Incomer {
    fn new(env: &Env, info: HelloInfo, is_local: bool, route: Route) -> Incomer {
        let mut incomer =
            Incomer { env: env.clone(), info, proof: Proof::default(), is_local, route };
        incomer.prove(b"");
        incomer
    }

    /// Has the answer prove that its caller's secret, which is this one, is known here. Without this it proves that
    /// the empty one is.
    pub fn prove(&mut self, secret: &[u8]) {
        let Claim { challenge, said, .. } = &self.info.claim;
        self.proof = proof::of_engine(secret, challenge, said);
    }

    pub fn hello(&self) -> &HelloInfo {
        &self.info
    }

    /// It is on this host.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// Notes that what it showed is an engine's or an administrator's.
    pub fn trust(&mut self) {
        self.info.is_admin = true;
    }

    /// Tells it why not, and hangs up.
    pub fn refuse(self, error: Error) {
        let frame = reply_frame(&Err(error));
        match self.route {
            Route::Socket { fd, .. } => {
                // A fresh socket has room for so little; a caller that does not read may miss it.
                let _ = send(fd.as_fd(), &frame, &[]);
            }
            Route::Sim(number) => {
                if let Some(node) = self.env.sim_node()
                    && let Some(stream) = SimNet::of(node.world()).take(number)
                {
                    let mut cx = std::task::Context::from_waker(Waker::noop());
                    let _ = stream.poll_write(&mut cx, &[std::io::IoSlice::new(&frame)]);
                }
            }
        }
    }

    /// Takes it off this thread.
    pub fn into_handoff(self) -> Handoff {
        Handoff { info: self.info, proof: self.proof, route: self.route }
    }
}

/// A caller on its way to the thread that serves it.
pub struct Handoff {
    info: HelloInfo,
    proof: Proof,
    route: Route,
}

impl Handoff {
    /// What the caller said.
    pub fn hello(&self) -> &HelloInfo {
        &self.info
    }

    /// Sends the answer and begins to serve, on the thread of `env`. `remote_bulk` of the reply is
    /// set here, by trying it, and so is `proof`.
    pub fn serve(self, env: &Env, mut reply: HelloReply) -> Result<ServerConn> {
        reply.proof = self.proof;
        let HelloInfo { client, job, .. } = self.info;
        let (fd, local, account) = match self.route {
            Route::Socket { fd, local, account } => (fd, local, account),
            Route::Sim(number) => {
                let node = env.sim_node();
                let stream = node.and_then(|node| SimNet::of(node.world()).take(number));
                let stream = stream.ok_or_else(|| {
                    Error::inval("a simulated caller can be served in its own world only")
                })?;
                reply.remote_bulk = false;
                let conn = ServerConn::new(env, Stream::Sim(stream), None, None, client, job);
                conn.outbox().post(&[&reply_frame(&Ok(reply))])?;
                return Ok(conn);
            }
        };
        let Some(Local { peer, mark }) = local.filter(|_| Region::is_allowed()) else {
            reply.remote_bulk = false;
            let stream = Stream::Socket(SocketStream::new(env, fd, &[])?);
            let conn = ServerConn::new(env, stream, None, account, client, job);
            conn.outbox().post(&[&reply_frame(&Ok(reply))])?;
            return Ok(conn);
        };
        let process = peer.and_then(|peer| Process::of(&peer, mark));
        reply.remote_bulk = process.is_some();
        let frame = reply_frame(&Ok(reply));
        let (memory, region) = Region::create()?;
        let BellSet { requests, answers, answers_seen } = BellSet::make()?;
        let socket = Rc::new(env.watch_fd(Rc::new(fd))?);
        // In this order at the other end, too.
        let given = [memory.as_fd(), requests.as_fd(), answers_seen.as_fd()];
        match send(socket.fd(), &frame, &given) {
            Ok(count) if count == frame.len() => {}
            Ok(_) => return Err(Error::new(Code::Closed, "the caller does not read its answer")),
            Err(errno) => return Err(Error::new(Code::Closed, format!("answering: {errno}"))),
        }
        let bells = BellPair { own: requests, peer: answers };
        let stream = ShmStream::new(env, Side::Server, region, bells, socket)?;
        Ok(ServerConn::new(env, Stream::Shm(stream), process, account, client, job))
    }
}

/// Has the kernel end a TCP connection whose other end has vanished.
pub(crate) fn watch_for_death(fd: &OwnedFd) {
    // They fail only on a socket that is closed already; reading tells.
    let _ = sockopt::set_socket_keepalive(fd, true);
    let _ = sockopt::set_tcp_keepidle(fd, SILENCE_MAX);
    let _ = sockopt::set_tcp_keepintvl(fd, PROBE_PAUSE);
    let _ = sockopt::set_tcp_keepcnt(fd, PROBE_COUNT);
    // The same where something was sent that is not acknowledged: there are no probes then.
    let silence = SILENCE_MAX + PROBE_PAUSE * PROBE_COUNT;
    let _ = sockopt::set_tcp_user_timeout(fd, silence.as_millis() as u32);
}
