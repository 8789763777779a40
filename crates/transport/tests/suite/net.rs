//! A server that does what request bodies tell it, and ways to reach it.

use env::{Env, SimWorld};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use transport::{
    Acceptor, Address, Answer, Call, Conn, Dial, Incoming, Responder, ServerConn, connect,
};
use types::{ClientId, Code, Error, Result, TargetId};
use wire::Kind;
use wire::hello::{HelloReply, Service};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetKind {
    Shm,
    Tcp,
    Sim,
}

/// First byte of a request body.
pub const ECHO: u8 = b'e';
/// Answer with as many bytes as the next four bytes of the body say.
pub const GIVE: u8 = b'g';
pub const SILENCE: u8 = b's';
/// Forget the request.
pub const GIVE_UP: u8 = b'u';
/// Answer without reading the bulk.
pub const IGNORE: u8 = b'i';
pub const HANG_UP: u8 = b'h';
/// Answer with the notices so far.
pub const NOTICES: u8 = b'n';

/// Answer with the next four bytes of the body as bulk credit; `u32::MAX` for none.
pub const CREDIT: u8 = b'c';
/// Read nothing, and note when the caller gives up.
pub const WATCH: u8 = b'w';

pub const LONG: Duration = Duration::from_secs(60);
pub const WRONG_TOKEN: &[u8] = b"wrong";

/// What the server has seen.
#[derive(Default)]
pub struct Seen {
    pub notices: RefCell<Vec<u8>>,
    pub conns_ended: Cell<u32>,
    pub unanswered: RefCell<Vec<Responder>>,
    pub deferred_count: Cell<u32>,
    pub watching: Cell<u32>,
    pub abandoned: Cell<u32>,
    pub conns: RefCell<Vec<ServerConn>>,
}

pub struct Net {
    pub kind: NetKind,
    pub env: Env,
    pub address: Address,
    pub seen: Rc<Seen>,
    request_last: Cell<u64>,
}

pub fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed))
        .collect()
}

/// Takes this thread's right to reach the memory of every process, as engines do: without it the
/// kernel decides, with it there is no single copy.
pub fn give_up_rights() {
    let mut sets = rustix::thread::capabilities(None).unwrap();
    sets.effective = rustix::thread::CapabilitySet::empty();
    rustix::thread::set_capabilities(None, sets).unwrap();
}

/// Runs a scenario against a server in the same process.
pub fn run<F: Future<Output = ()>>(kind: NetKind, scenario: impl FnOnce(Rc<Net>) -> F) {
    let dir = tempfile::tempdir().unwrap();
    let world = SimWorld::new(1);
    let (client, server) = match kind {
        NetKind::Sim => (world.node("client"), world.node("server")),
        _ => {
            let env = Env::real().unwrap();
            (env.clone(), env)
        }
    };
    let path = dir.path().join("engine.sock");
    let seen = Rc::<Seen>::default();
    let acceptor =
        client.block_on(Acceptor::bind(&server, Some("127.0.0.1:0"), Some(&path))).unwrap();
    let address = match kind {
        NetKind::Shm => Address::Unix(path),
        NetKind::Tcp => Address::Tcp(acceptor.tcp_addr().unwrap().to_string()),
        NetKind::Sim => Address::Sim("server".into()),
    };
    server.spawn(serve_all(server.clone(), acceptor, seen.clone()));
    let net = Rc::new(Net { kind, env: client.clone(), address, seen, request_last: Cell::new(0) });
    let limited = client.timeout(Duration::from_secs(120), scenario(net));
    client.block_on(limited).expect("the scenario hangs");
    server.clear();
    client.clear();
    world.clear();
}

pub async fn serve_all(env: Env, acceptor: Acceptor, seen: Rc<Seen>) {
    loop {
        let incomer = acceptor.accept().await.unwrap();
        if incomer.hello().knows(WRONG_TOKEN) {
            incomer.refuse(Error::new(Code::NoPerm, "the token is wrong"));
            continue;
        }
        let reply = HelloReply {
            incarnation: 42,
            remote_bulk: false,
            engine_version: "test".into(),
            proof: Default::default(),
        };
        let Ok(conn) = incomer.into_handoff().serve(&env, reply) else { continue };
        seen.conns.borrow_mut().push(conn.clone());
        let (inner, seen) = (env.clone(), seen.clone());
        env.spawn(async move {
            while let Ok(Some(incoming)) = conn.recv().await {
                if incoming.bulk.is_deferred() {
                    seen.deferred_count.set(seen.deferred_count.get() + 1);
                    let (env, conn, seen) = (inner.clone(), conn.clone(), seen.clone());
                    inner.spawn(async move { handle(&env, &conn, incoming, &seen).await });
                } else {
                    handle(&inner, &conn, incoming, &seen).await;
                }
            }
            seen.conns_ended.set(seen.conns_ended.get() + 1);
        });
    }
}

async fn handle(env: &Env, conn: &ServerConn, incoming: Incoming, seen: &Rc<Seen>) {
    let Incoming { header, body, mut bulk, mut responder, .. } = incoming;
    if header.kind == Kind::Notice {
        seen.notices.borrow_mut().extend(body);
        responder.reply(0, b"ignored", &[]).await.unwrap();
        return;
    }
    match body[0] {
        ECHO => {
            let mut data = vec![0; bulk.remaining()];
            // In two steps, to cross a piece's border.
            let (a, b) = data.split_at_mut(bulk.remaining() / 3);
            if bulk.read_into(a).await.is_err() || bulk.read_into(b).await.is_err() {
                return;
            }
            env.spawn(async move {
                let (a, b) = data.split_at(data.len() / 2);
                let _ = responder.reply(header.map_version + 1, &body, &[a, b]).await;
            });
        }
        GIVE => {
            let bytes = u32::from_le_bytes(body[1..5].try_into().unwrap()) as usize;
            env.spawn(async move {
                let data = pattern(bytes, 9);
                let _ = responder.reply(0, b"given", &[&data]).await;
            });
        }
        IGNORE => {
            let text = bulk.remaining().to_string();
            drop(bulk);
            let _ = responder.reply(0, text.as_bytes(), &[]).await;
        }
        NOTICES => {
            let notices = seen.notices.borrow().clone();
            let _ = responder.reply(0, &notices, &[]).await;
        }
        CREDIT => {
            let credit = u32::from_le_bytes(body[1..5].try_into().unwrap());
            responder.set_bulk_credit((credit != u32::MAX).then_some(credit));
            let _ = responder.reply(0, b"credit", &[]).await;
        }
        WATCH => {
            let seen = seen.clone();
            seen.watching.set(seen.watching.get() + 1);
            env.spawn(async move {
                responder.abandoned().await;
                assert!(responder.is_abandoned());
                seen.abandoned.set(seen.abandoned.get() + 1);
                drop(bulk);
            });
        }
        HANG_UP => conn.close(),
        SILENCE => seen.unanswered.borrow_mut().push(responder),
        GIVE_UP => drop(responder),
        other => panic!("unknown test request {other}"),
    }
}

impl Net {
    pub fn new(kind: NetKind, env: Env, address: Address) -> Rc<Net> {
        Rc::new(Net { kind, env, address, seen: Rc::default(), request_last: Cell::new(0) })
    }

    pub async fn dial_with(&self, token: &[u8]) -> Result<Conn> {
        let dial = Dial {
            client: ClientId(7),
            service: Service::Target(TargetId(3)),
            token,
            job: "job",
            timeout: LONG,
        };
        connect(&self.env, &self.address, &dial).await
    }

    pub async fn dial(&self) -> Conn {
        let conn = self.dial_with(b"").await.unwrap();
        assert_eq!(conn.hello().incarnation, 42);
        assert_eq!(conn.hello().remote_bulk, self.kind == NetKind::Shm);
        conn
    }

    pub fn next_request(&self) -> u64 {
        self.request_last.set(self.request_last.get() + 1);
        self.request_last.get()
    }

    pub async fn call(
        &self,
        conn: &Conn,
        body: &[u8],
        bulk_out: &[&[u8]],
        bulk_in: &mut [&mut [u8]],
        deadline: Duration,
    ) -> Result<Answer> {
        let request_id = self.next_request();
        let call = Call {
            kind: Kind::Request,
            request_id,
            flags: 0,
            map_version: 5,
            deadline,
            body,
            bulk_out,
            bulk_in,
        };
        conn.call(call).await
    }

    /// Sends `data` for echo and checks what comes back.
    pub async fn echo(&self, conn: &Conn, data: &[u8]) {
        let mut back = vec![0; data.len()];
        let (a, b) = data.split_at(data.len() / 5);
        let (x, y) = back.split_at_mut(data.len() / 7);
        let answer = self.call(conn, &[ECHO, 1, 2], &[a, b], &mut [x, y], LONG).await.unwrap();
        assert_eq!((answer.bulk_bytes, answer.map_version), (data.len(), 6));
        assert_eq!(answer.body, [ECHO, 1, 2]);
        assert!(back == data, "{} bytes came back changed", data.len());
    }

    /// Has the server give this connection a credit.
    pub async fn credit(&self, conn: &Conn, credit: Option<u32>) {
        let mut body = vec![CREDIT];
        body.extend_from_slice(&credit.unwrap_or(u32::MAX).to_le_bytes());
        self.call(conn, &body, &[], &mut [], LONG).await.unwrap();
    }

    /// Asks for `bytes` bytes and checks them.
    pub async fn give(&self, conn: &Conn, bytes: usize) {
        let mut room = vec![0; bytes];
        let mut body = vec![GIVE];
        body.extend_from_slice(&(bytes as u32).to_le_bytes());
        let answer = self.call(conn, &body, &[], &mut [&mut room], LONG).await.unwrap();
        assert_eq!(answer.bulk_bytes, bytes);
        assert!(room == pattern(bytes, 9));
    }

    /// Waits until `done` says so.
    pub async fn until(&self, done: impl Fn() -> bool) {
        while !done() {
            self.env.sleep(Duration::from_micros(200)).await;
        }
    }
}
