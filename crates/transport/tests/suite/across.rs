//! Across threads and processes: doorbells, single copy, sudden death, garbage.

use crate::net::*;
use env::Env;
use std::cell::Cell;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use transport::{Acceptor, Address, Call, Dial, Handoff, Incomer, connect};
use types::{ClientId, Code};
use wire::hello::Service;
use wire::{Header, Kind};

/// Sends things that are not introductions; each time the engine must hang up.
pub fn send_garbage<S: Read + Write>(mut socket: S) {
    let mut noise = pattern(3000, 77);
    noise[..4].copy_from_slice(b"AZK1");
    let _ = socket.write_all(&noise);
}

fn expect_hangup(mut socket: std::os::unix::net::UnixStream, bytes: &[u8]) -> Vec<u8> {
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let _ = socket.write_all(bytes);
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the engine did not hang up: {error}"),
    }
    rest
}

const SERVE_VAR: &str = "TRANSPORT_TEST_SERVE";

/// Not a test of its own: the server process of the tests below.
#[test]
fn server_process() {
    let Some(path) = std::env::var_os(SERVE_VAR) else { return };
    give_up_rights();
    let env = Env::real().unwrap();
    let seen = Rc::<Seen>::default();
    env.block_on(async {
        let acceptor = Acceptor::bind(&env, None, Some(Path::new(&path))).await.unwrap();
        serve_all(env.clone(), acceptor, seen).await;
    });
}

pub struct ServerProcess(Child);

impl ServerProcess {
    /// A process that serves at `path`.
    pub fn start(path: &Path) -> ServerProcess {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["across::server_process", "--exact", "--nocapture"])
            .env(SERVE_VAR, path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let process = ServerProcess(child);
        for _ in 0..1000 {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return process;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server process does not listen");
    }
}

impl ServerProcess {
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn net_to(env: &Env, path: &Path) -> Rc<Net> {
    Net::new(NetKind::Shm, env.clone(), Address::Unix(path.into()))
}

#[test]
fn another_process_echoes_and_copies_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _server = ServerProcess::start(&path);
    let env = Env::real().unwrap();
    let net = net_to(&env, &path);
    env.block_on(async {
        let conn = net.dial().await;
        for number in 0..2000usize {
            net.echo(&conn, &pattern(number % 300, number as u8)).await;
            if number % 100 == 0 {
                // Long enough for both to fall asleep: the doorbells are used.
                env.sleep(Duration::from_millis(2)).await;
                net.echo(&conn, &pattern(2 << 20, number as u8)).await;
                net.give(&conn, 3 << 20).await;
            }
        }
        crate::scenarios::bulk_of_many_sizes_both_ways(net.clone()).await;
        crate::scenarios::many_concurrent_calls(net.clone()).await;
        crate::scenarios::a_cancelled_call_leaves_the_stream_in_order(net.clone()).await;
        crate::scenarios::a_slow_reader_is_waited_for(net.clone()).await;
    });
    env.clear();
}

#[test]
fn a_killed_server_process_fails_calls_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let mut server = ServerProcess::start(&path);
    let env = Env::real().unwrap();
    let net = net_to(&env, &path);
    env.block_on(async {
        let conn = net.dial().await;
        net.echo(&conn, b"hello").await;
        let data = pattern(1 << 20, 1);
        let parts = [&data[..]];
        let pending = net.call(&conn, &[SILENCE], &parts, &mut [], LONG);
        let kill = async {
            env.sleep(Duration::from_millis(10)).await;
            server.0.kill().unwrap();
        };
        let (outcome, ()) = futures_util::join!(pending, kill);
        assert_eq!(outcome.unwrap_err().code, Code::Closed);
        assert!(conn.is_broken());
        assert_eq!(net.dial_with(b"").await.err().unwrap().code, Code::Unreach);
        // Its socket file is stale now, and may be taken over.
        drop(Acceptor::bind(&env, None, Some(&path)).await.unwrap());
    });
    env.clear();
}

/// Not a test of its own: a client process that dies in the middle of its work.
#[test]
fn client_process() {
    let Some(path) = std::env::var_os("TRANSPORT_TEST_CALL") else { return };
    let env = Env::real().unwrap();
    let net = net_to(&env, Path::new(&path));
    env.block_on(async {
        let conn = net.dial().await;
        loop {
            net.echo(&conn, &pattern(4 << 20, 1)).await;
        }
    });
}

#[test]
fn a_killed_client_process_is_noticed_and_harms_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let env = Env::real().unwrap();
    let seen = Rc::<Seen>::default();
    // Else the clients would not have the single copy that they are killed in.
    give_up_rights();
    env.block_on(async {
        let acceptor = Acceptor::bind(&env, None, Some(&path)).await.unwrap();
        env.spawn(serve_all(env.clone(), acceptor, seen.clone()));
        for round in 1..=3 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["across::client_process", "--exact"])
                .env("TRANSPORT_TEST_CALL", &path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            while seen.conns.borrow().len() < round {
                env.sleep(Duration::from_millis(1)).await;
            }
            env.sleep(Duration::from_millis(20)).await;
            child.kill().unwrap();
            child.wait().unwrap();
            while seen.conns_ended.get() < round as u32 {
                env.sleep(Duration::from_millis(1)).await;
            }
        }
        let net = net_to(&env, &path);
        net.echo(&net.dial().await, &pattern(1 << 20, 1)).await;
    });
    env.clear();
}

#[test]
fn handed_to_another_thread_and_served_there() {
    fn is_send<T: Send>() {}
    is_send::<Handoff>();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (send, receive) = std::sync::mpsc::channel::<Handoff>();
    let server = std::thread::spawn(move || {
        let env = Env::real().unwrap();
        let handoff = receive.recv().unwrap();
        assert_eq!(handoff.hello().pid, std::process::id());
        let reply = wire::hello::HelloReply {
            incarnation: 42,
            remote_bulk: false,
            engine_version: String::new(),
            proof: Default::default(),
        };
        let conn = handoff.serve(&env, reply).unwrap();
        let mut served = 0;
        env.block_on(async {
            while let Some(mut incoming) = conn.recv().await.unwrap() {
                let data = incoming.bulk.read_to_vec().await.unwrap();
                incoming.responder.reply(6, &incoming.body, &[&data]).await.unwrap();
                served += 1;
            }
        });
        env.clear();
        served
    });
    let env = Env::real().unwrap();
    let accepting = env.clone();
    let bound = env.block_on(Acceptor::bind(&env, None, Some(&path))).unwrap();
    env.spawn(async move {
        let incomer: Incomer = bound.accept().await.unwrap();
        assert!(incomer.is_local());
        send.send(incomer.into_handoff()).unwrap();
        accepting.sleep(LONG).await;
        drop(bound);
    });
    let net = net_to(&env, &path);
    env.block_on(async {
        let conn = net.dial().await;
        for number in 0..500usize {
            net.echo(&conn, &pattern(number * 100, number as u8)).await;
        }
        conn.close();
    });
    assert_eq!(server.join().unwrap(), 500);
    env.clear();
}

#[test]
fn callers_that_speak_nonsense_or_another_version_are_turned_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _server = ServerProcess::start(&path);
    let dial = || std::os::unix::net::UnixStream::connect(&path).unwrap();
    expect_hangup(dial(), &pattern(100, 1));
    let mut huge = Header::new(Kind::Hello, 0, &[], 0);
    huge.body_bytes = 1 << 20;
    expect_hangup(dial(), &huge.encode());
    let mut wrong = Header::new(Kind::Hello, 0, b"wrong checksum", 0);
    wrong.body_crc ^= 1;
    let mut frame = wrong.encode().to_vec();
    frame.extend_from_slice(b"wrong checksum");
    expect_hangup(dial(), &frame);
    let mut not_hello = Header::new(Kind::Hello, 0, b"\xff\xff\xff", 0).encode().to_vec();
    not_hello.extend_from_slice(b"\xff\xff\xff");
    expect_hangup(dial(), &not_hello);
    expect_hangup(dial(), &Header::new(Kind::Request, 0, &[], 0).encode());
    // Another version is told which version this one is.
    let mut other = Header::new(Kind::Hello, 0, &[], 0).encode();
    other[4] ^= 0x7f;
    let answer = expect_hangup(dial(), &other);
    let header = |raw: &[u8]| Header::decode(raw[..40].try_into().unwrap()).unwrap();
    let challenge = header(&answer);
    assert_eq!(challenge.kind, Kind::Challenge);
    let answer = &answer[40 + challenge.body_bytes as usize..];
    assert_eq!(header(answer).kind, Kind::HelloReply);
    let told = wire::decode::<types::Result<()>>(&answer[40..]).unwrap().unwrap_err();
    assert_eq!(told.code, Code::Version);
    // All that did no harm.
    let env = Env::real().unwrap();
    let net = net_to(&env, &path);
    env.block_on(async { net.echo(&net.dial().await, b"fine").await });
    env.clear();
}

#[test]
fn nobody_there_is_told_at_once() {
    let env = Env::real().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let dial =
        Dial { client: ClientId(1), service: Service::Control, token: b"", job: "", timeout: LONG };
    // Bound and closed again: nobody listens on that port.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [
        Address::Unix(dir.path().join("missing")),
        Address::Unix("x".repeat(200).into()),
        Address::Tcp(port.to_string()),
        Address::Tcp("not an address".into()),
    ] {
        let outcome = env.block_on(connect(&env, &address, &dial));
        assert_eq!(outcome.err().unwrap().code, Code::Unreach, "{address}");
    }
    // A listener that never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = Address::Tcp(listener.local_addr().unwrap().to_string());
    let short = Dial { timeout: Duration::from_millis(30), ..dial };
    let outcome = env.block_on(connect(&env, &mute, &short));
    assert_eq!(outcome.err().unwrap().code, Code::TimedOut);
    env.clear();
}

/// An idle connection must cost nothing: both sides sleep in the kernel. The bound is on processor
/// time, not on elapsed time, and far above what sleeping costs: only spinning exceeds it.
#[test]
fn an_idle_pair_uses_almost_no_processor_time() {
    let cpu = || {
        let usage = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(usage.tv_sec as u64, usage.tv_nsec as u32)
    };
    let spent = Rc::new(Cell::new(Duration::ZERO));
    let inner = spent.clone();
    run(NetKind::Shm, |net| async move {
        let conn = net.dial().await;
        net.echo(&conn, b"hello").await;
        let before = cpu();
        net.env.sleep(Duration::from_millis(500)).await;
        inner.set(cpu() - before);
        net.echo(&conn, b"still there").await;
        let call = Call {
            kind: Kind::Ping,
            request_id: 1 << 40,
            flags: 0,
            map_version: 0,
            deadline: LONG,
            body: &[],
            bulk_out: &[],
            bulk_in: &mut [],
        };
        conn.call(call).await.unwrap();
    });
    assert!(spent.get() < Duration::from_millis(50), "{:?} of 500 ms", spent.get());
}
