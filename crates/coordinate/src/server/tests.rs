//! A real coordinator on real sockets. Nothing is expected within a time; what should happen is
//! waited for, and a watchdog of a minute ends what hangs.

mod hostile;
mod many;

use super::snapshot::Snapshot;
use super::trace::{Line, What};
use super::*;
use crate::message::{
    CLIENT_FRAME_BYTES_MAX, ClientMessage, CoordinatorMessage, Hello, IoKind, Reason, Request,
    TargetList,
};
use crate::monitor::Monitor;
use crate::queue::Limit;
use crate::rules::choice::Endpoint;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Ends a test that hangs; no test should come near.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A coordinator in a directory of its own.
struct Site {
    dir: tempfile::TempDir,
    server: Option<Server>,
    config: ServerConfig,
}

impl Site {
    fn start(change: impl FnOnce(&mut ServerConfig, &std::path::Path)) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let mut config = ServerConfig {
            listen: vec![Listen::Unix(dir.path().join("s"))],
            max_writers: Some(Limit::Fixed(2)),
            ..ServerConfig::default()
        };
        change(&mut config, dir.path());
        let server = Some(Server::start(&config).unwrap());
        Site { dir, server, config }
    }

    /// Listens on TCP, too, with the token `secret`.
    fn with_tcp() -> Site {
        Site::start(|config, dir| {
            let token = dir.join("token");
            std::fs::write(&token, "secret\n").unwrap();
            config.token_file = Some(token);
            config.listen.push(Listen::Tcp("127.0.0.1:0".into()));
        })
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn tcp(&self) -> String {
        match &self.server.as_ref().unwrap().listening[1] {
            Listen::Tcp(address) => address.clone(),
            Listen::Unix(_) => panic!("the second place is TCP"),
        }
    }

    fn connect(&self) -> Raw {
        Raw::unix(UnixStream::connect(self.path()).unwrap())
    }

    /// A welcomed client.
    fn client(&self, job: &str) -> Raw {
        let mut raw = self.connect();
        raw.send(&hello(b"", "", job));
        assert!(matches!(raw.receive(), Some(Received::Welcome(..))));
        raw
    }

    fn snapshot(&self) -> Snapshot {
        let endpoint = Endpoint::Unix(self.path().to_str().unwrap().into());
        Monitor::connect(&endpoint, b"", WATCHDOG).unwrap().ask().unwrap()
    }

    /// Looks until the snapshot is as wanted.
    fn wait_for(&self, what: &str, wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let begin = std::time::Instant::now();
        loop {
            let snapshot = self.snapshot();
            if wanted(&snapshot) {
                return snapshot;
            }
            assert!(begin.elapsed() < WATCHDOG, "waited in vain for: {what}; {snapshot:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the coordinator and starts another at the same place.
    fn restart(&mut self) {
        self.server.take().unwrap().stop().unwrap();
        self.server = Some(Server::start(&self.config).unwrap());
    }
}

/// What a coordinator said, owned.
#[derive(Debug, PartialEq, Eq)]
enum Received {
    Welcome(Option<u64>, Option<u64>),
    Refused(Reason, String),
    Ack(u64),
    Pong,
    Stats,
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A client that does just what the test says.
struct Raw {
    stream: Box<dyn Stream>,
    input: Vec<u8>,
}

impl Raw {
    fn unix(stream: UnixStream) -> Raw {
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        Raw { stream: Box::new(stream), input: Vec::new() }
    }

    fn tcp(address: &str) -> Raw {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        Raw { stream: Box::new(stream), input: Vec::new() }
    }

    fn send(&mut self, message: &ClientMessage<'_>) {
        let mut room = [0; CLIENT_FRAME_BYTES_MAX];
        let bytes = message.encode(&mut room).unwrap();
        self.stream.write_all(&room[..bytes]).unwrap();
    }

    fn ask(&mut self, id: u64, kind: IoKind, targets: &[&str]) {
        let list = TargetList::new(targets).unwrap();
        let targets = list.as_targets();
        self.send(&ClientMessage::Request(Request { id, kind, bytes: 1 << 20, targets }));
    }

    fn complete(&mut self, id: u64) {
        self.send(&ClientMessage::Completion { id, bytes: 1 << 20, io_us: 7 });
    }

    /// The next message; `None` at the end of the connection.
    fn receive(&mut self) -> Option<Received> {
        loop {
            if let Some((message, taken)) = CoordinatorMessage::decode(&self.input).unwrap() {
                let heard = match message {
                    CoordinatorMessage::HelloAck { write_bytes_min, read_bytes_min } => {
                        Received::Welcome(write_bytes_min, read_bytes_min)
                    }
                    CoordinatorMessage::Refused { reason, text } => {
                        Received::Refused(reason, text.to_string())
                    }
                    CoordinatorMessage::Ack { id } => Received::Ack(id),
                    CoordinatorMessage::Pong => Received::Pong,
                    CoordinatorMessage::StatsPart { .. } => Received::Stats,
                };
                self.input.drain(..taken);
                return Some(heard);
            }
            let mut room = [0; 4096];
            match self.stream.read(&mut room) {
                Ok(0) => return None,
                Ok(bytes) => self.input.extend_from_slice(&room[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    fn refused(&mut self) -> Reason {
        match self.receive() {
            Some(Received::Refused(reason, _)) => reason,
            other => panic!("{other:?} instead of a refusal"),
        }
    }
}

fn hello<'a>(token: &'a [u8], group: &'a str, job: &'a str) -> ClientMessage<'a> {
    ClientMessage::Hello(Hello {
        token,
        group,
        job,
        host: "node1",
        pid: 77,
        rank: Some(5),
        weight: 1,
        priority: 0,
    })
}

#[test]
fn two_write_and_the_third_waits() {
    let site = Site::start(|config, _| config.min_write_size = Some(4096));
    let mut clients: Vec<Raw> = (0..3).map(|_| site.connect()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        // Hello and request at once.
        client.send(&hello(b"", "", "j"));
        client.ask(7, IoKind::Write, &["ost0"]);
        assert_eq!(client.receive(), Some(Received::Welcome(Some(4096), None)));
        if at < 2 {
            assert_eq!(client.receive(), Some(Received::Ack(7)));
        }
    }
    // Reads are free, and a ping is answered while one waits.
    clients[2].ask(8, IoKind::Read, &["ost0"]);
    assert_eq!(clients[2].receive(), Some(Received::Ack(8)));
    clients[2].send(&ClientMessage::Ping);
    assert_eq!(clients[2].receive(), Some(Received::Pong));
    let stats = site.wait_for("one waits", |now| now.groups[0].queue.waiting == 1);
    assert_eq!((stats.groups[0].queue.active, stats.groups[0].queue.clients), (3, 4));
    clients[1].complete(7);
    assert_eq!(clients[2].receive(), Some(Received::Ack(7)));
    site.wait_for("bytes are counted", |now| {
        now.groups[0].queue.targets[0].write.totals.bytes == 1 << 20
    });
}

#[test]
fn the_slot_of_a_client_that_dies_is_given_on_at_once() {
    let site = Site::start(|_, _| {});
    let mut first = site.client("a");
    let mut second = site.client("a");
    let mut third = site.client("b");
    for client in [&mut first, &mut second, &mut third] {
        client.ask(1, IoKind::Write, &["ost0", "ost1"]);
        if site.snapshot().groups[0].queue.waiting == 0 {
            assert_eq!(client.receive(), Some(Received::Ack(1)));
        }
    }
    drop(first);
    assert_eq!(third.receive(), Some(Received::Ack(1)));
    let jobs = site.wait_for("it is gone", |now| now.groups[0].queue.active == 2).groups[0]
        .queue
        .jobs
        .clone();
    let clients = |name: &str| jobs.iter().find(|job| job.name == name).unwrap().clients;
    assert_eq!((clients("a"), clients("b")), (1, 1));
}

#[test]
fn over_tcp_only_who_knows_the_token() {
    let site = Site::with_tcp();
    for (token, welcome) in [
        (&b"secret"[..], true),
        (b"", false),
        (b"secreT", false),
        (b"secret2", false),
        (b"s", false),
    ] {
        let mut client = Raw::tcp(&site.tcp());
        client.send(&hello(token, "", "j"));
        client.ask(1, IoKind::Write, &["ost0"]);
        if welcome {
            assert!(matches!(client.receive(), Some(Received::Welcome(..))));
            assert_eq!(client.receive(), Some(Received::Ack(1)));
            client.complete(1);
        } else {
            assert_eq!(client.refused(), Reason::Token);
            assert_eq!(client.receive(), None);
        }
    }
    // The Unix socket is guarded by its mode instead.
    site.client("j");
    let stats = site.snapshot();
    assert_eq!(stats.server.refused_token, 4);
    assert_eq!(stats.groups[0].queue.targets[0].write.totals.granted, 1);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(site.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn groups_have_their_own_queues() {
    let site = Site::start(|config, _| {
        let more =
            ServerConfig::parse("[[group]]\nname = 'x'\n[[group]]\nname = 'y'\nmax_writers = 1\n");
        config.groups = more.unwrap().groups;
    });
    let of = |group| {
        let mut client = site.connect();
        client.send(&hello(b"", group, "j"));
        client.ask(1, IoKind::Write, &["ost0"]);
        client
    };
    // The first group is for those who name none.
    let mut clients = [of("y"), of("x"), of("")];
    for client in &mut clients {
        assert!(matches!(client.receive(), Some(Received::Welcome(..))));
        assert_eq!(client.receive(), Some(Received::Ack(1)));
    }
    assert_eq!(of("z").refused(), Reason::Group);
    let stats = site.wait_for("a third in y waits", |now| now.groups[1].queue.active == 1);
    assert_eq!(stats.groups[0].queue.active, 2);
}

#[test]
fn after_a_restart_clients_come_back() {
    let mut site = Site::start(|config, _| config.max_writers = Some(Limit::Fixed(1)));
    let mut inside = site.client("j");
    inside.ask(1, IoKind::Write, &["ost0"]);
    assert_eq!(inside.receive(), Some(Received::Ack(1)));
    let mut waiting = site.client("j");
    waiting.ask(1, IoKind::Write, &["ost0"]);
    site.wait_for("one waits", |now| now.groups[0].queue.waiting == 1);
    site.restart();
    assert_eq!(inside.receive(), None);
    assert_eq!(waiting.receive(), None);
    let mut again = site.client("j");
    again.ask(1, IoKind::Write, &["ost0"]);
    assert_eq!(again.receive(), Some(Received::Ack(1)));
}

#[test]
fn a_file_left_by_one_who_was_killed_is_no_hindrance() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "dropping a listener leaves its file");
    let config =
        ServerConfig { listen: vec![Listen::Unix(path.clone())], ..ServerConfig::default() };
    let server = Server::start(&config).unwrap();
    // One that is in use, or no socket, is left alone.
    let error = Server::start(&config).map(|_| ()).unwrap_err();
    assert_eq!(error.code, types::Code::Busy, "{error}");
    server.stop().unwrap();
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    assert!(Server::start(&config).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn the_trace_tells_it_all() {
    let site = Site::start(|config, dir| {
        config.trace = Some(dir.join("trace"));
        config.max_writers = Some(Limit::Fixed(1));
    });
    let mut first = site.client("j\"1");
    first.ask(1, IoKind::Write, &["ost0", "ost1"]);
    assert_eq!(first.receive(), Some(Received::Ack(1)));
    let mut second = site.client("j2");
    second.ask(5, IoKind::Write, &["ost1"]);
    second.ask(6, IoKind::Write, &["ost1"]);
    site.wait_for("two wait", |now| now.groups[0].queue.waiting == 2);
    first.complete(1);
    assert_eq!(second.receive(), Some(Received::Ack(5)));
    second.send(&ClientMessage::Cancel { id: 6 });
    site.wait_for("none waits", |now| now.groups[0].queue.waiting == 0);
    drop(second);
    site.wait_for("nobody is in", |now| now.groups[0].queue.active == 0);
    let Site { dir, server, .. } = site;
    server.unwrap().stop().unwrap();
    let text = std::fs::read_to_string(dir.path().join("trace")).unwrap();
    let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let whats: Vec<_> = lines.iter().map(|line| (line.what, line.id)).collect();
    use What::{Cancelled, Completed, Gone, Grant};
    assert_eq!(whats, [(Grant, 1), (Completed, 1), (Grant, 5), (Cancelled, 6), (Gone, 5)]);
    assert_eq!((lines[0].job.as_str(), lines[0].host.as_str()), ("j\"1", "node1"));
    assert_eq!((lines[0].pid, lines[0].rank, lines[0].held_us), (77, Some(5), None));
    assert_eq!(
        (&lines[1].targets[..], lines[1].io_us),
        (&["ost0".into(), "ost1".into()][..], Some(7))
    );
    assert!(lines[2].wait_us > 0 && lines[4].held_us.is_some() && lines[3].held_us.is_none());
}

#[test]
fn metrics_are_those_of_the_snapshot() {
    let site = Site::start(|config, _| {
        config.metrics = Some("127.0.0.1:0".into());
        config.max_writers = Some(Limit::Fixed(1));
    });
    let mut clients = [site.client("j"), site.client("j")];
    for client in &mut clients {
        client.ask(1, IoKind::Write, &["o\"st"]);
    }
    site.wait_for("one waits", |now| now.groups[0].queue.waiting == 1);
    let address = site.server.as_ref().unwrap().metrics.unwrap().to_string();
    let get = |request: &str| {
        let mut raw = Raw::tcp(&address);
        raw.stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        raw.stream.read_to_string(&mut text).unwrap();
        text
    };
    let text = get("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"));
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
    let lane = r#"{group="",target="o\"st",direction="write"}"#;
    for line in [
        format!("azekura_ioc_limit{lane} 1"),
        format!("azekura_ioc_active{lane} 1"),
        format!("azekura_ioc_waiting{lane} 1"),
        format!("azekura_ioc_granted_total{lane} 1"),
        r#"azekura_ioc_wait_seconds_bucket{group="",target="o\"st",direction="write",le="+Inf"} 1"#
            .into(),
        r#"azekura_ioc_job_waiting{group="",job="j"} 1"#.into(),
        r#"azekura_ioc_clients{group=""} 2"#.into(),
    ] {
        assert!(body.lines().any(|one| one == line), "{line} is missing in\n{body}");
    }
    assert!(!body.contains("azekura_ioc_limit{group=\"\",target=\"o\\\"st\",direction=\"read\"}"));
    assert!(get("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(get("nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
}

#[test]
fn a_slot_held_for_too_long_comes_back() {
    let site = Site::start(|config, _| {
        config.max_writers = Some(Limit::Fixed(1));
        config.hold_max = Some(Duration::from_millis(30));
    });
    let mut stuck = site.client("j");
    stuck.ask(1, IoKind::Write, &["a"]);
    assert_eq!(stuck.receive(), Some(Received::Ack(1)));
    let mut next = site.client("j");
    next.ask(1, IoKind::Write, &["a"]);
    assert_eq!(next.receive(), Some(Received::Ack(1)));
    // It wakes up, and is still a client.
    stuck.complete(1);
    stuck.send(&ClientMessage::Ping);
    assert_eq!(stuck.receive(), Some(Received::Pong));
}

#[test]
fn idle_means_idle() {
    let site = Site::start(|_, _| {});
    let mut waiting = [site.client("j"), site.client("j"), site.client("j")];
    for client in &mut waiting {
        client.ask(1, IoKind::Write, &["a"]);
    }
    let before = site.wait_for("one waits", |now| now.groups[0].queue.waiting == 1);
    std::thread::sleep(Duration::from_millis(300));
    let after = site.snapshot();
    // A connection, its hello, its question, and the end of the one before.
    let turns = after.server.turns - before.server.turns;
    assert!(turns <= 8, "{turns} turns without a reason");
}
