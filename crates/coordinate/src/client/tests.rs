//! The client against a coordinator that follows a script.

use super::*;
use crate::message::{FRAME_BYTES_MAX, TargetList};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

const LONG: Patience = Patience { silence: Duration::from_secs(60), wait: Duration::from_secs(60) };
const SHORT: Duration = Duration::from_millis(50);

/// What a script sees of a client: its messages, one by one, as text.
struct Peer {
    stream: UnixStream,
    input: Vec<u8>,
}

impl Peer {
    /// The next message; none when the client has closed.
    fn next(&mut self) -> Option<String> {
        loop {
            if let Some((message, taken)) = ClientMessage::decode(&self.input).unwrap() {
                let text = format!("{message:?}");
                self.input.drain(..taken);
                return Some(text);
            }
            let mut room = [0; 1024];
            match self.stream.read(&mut room) {
                Ok(0) | Err(_) => return None,
                Ok(got) => self.input.extend(&room[..got]),
            }
        }
    }

    fn send(&mut self, message: &CoordinatorMessage<'_>) {
        let mut room = vec![0; FRAME_BYTES_MAX];
        let bytes = message.encode(&mut room).unwrap();
        // The client may have left already.
        let _ = self.stream.write_all(&room[..bytes]);
    }

    fn welcome(&mut self) {
        assert!(self.next().unwrap().starts_with("Hello"));
        self.send(&CoordinatorMessage::HelloAck { write_bytes_min: Some(5), read_bytes_min: None });
    }
}

/// Runs the script for one connection on a thread.
struct Coordinator {
    dir: tempfile::TempDir,
    thread: JoinHandle<()>,
}

impl Coordinator {
    fn run(script: impl FnOnce(Peer) + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("c")).unwrap();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            script(Peer { stream, input: Vec::new() });
        });
        Self { dir, thread }
    }

    fn connect(&self) -> Client {
        let mut client = Client::new();
        client.connect(&self.remote(), &hello(), 200, LONG.silence).unwrap();
        client
    }

    fn remote(&self) -> Remote {
        let path = self.dir.path().join("c").display().to_string();
        Remote::resolve(&Endpoint::Unix(path)).unwrap()
    }

    fn end(self) {
        self.thread.join().unwrap();
    }
}

fn hello() -> Hello<'static> {
    Hello {
        token: b"",
        group: "g",
        job: "j",
        host: "h",
        pid: 1,
        rank: None,
        weight: 1,
        priority: 0,
    }
}

fn ask(client: &mut Client, patience: Patience) -> Result<Answer, Fault> {
    let targets = TargetList::new(&["t"]).unwrap();
    client.ask(IoKind::Write, 7, targets.as_targets(), patience)
}

#[test]
fn a_call_asks_goes_and_reports() {
    let coordinator = Coordinator::run(|mut peer| {
        peer.welcome();
        for id in 1..=2 {
            let request = peer.next().unwrap();
            assert!(request.contains(&format!("id: {id}")) && request.contains("[\"t\"]"));
            peer.send(&CoordinatorMessage::Ack { id: id + 100 });
            peer.send(&CoordinatorMessage::Ack { id });
            assert_eq!(
                peer.next().unwrap(),
                format!("Completion {{ id: {id}, bytes: 6, io_us: 3000 }}")
            );
        }
        assert_eq!(peer.next(), None);
    });
    let mut client = coordinator.connect();
    assert_eq!(client.minimums(), None);
    for _ in 0..2 {
        assert_eq!(ask(&mut client, LONG), Ok(Answer::Granted));
        assert_eq!(client.minimums(), Some(Minimums { write: Some(5), read: None }));
        client.done(6, Duration::from_millis(3)).unwrap();
    }
    client.close();
    assert!(!client.is_connected());
    coordinator.end();
}

#[test]
fn answers_may_come_byte_by_byte() {
    let coordinator = Coordinator::run(|mut peer| {
        peer.welcome();
        peer.next().unwrap();
        let mut room = [0; 64];
        let bytes = CoordinatorMessage::Ack { id: 1 }.encode(&mut room).unwrap();
        for byte in &room[..bytes] {
            peer.stream.write_all(&[*byte]).unwrap();
            std::thread::yield_now();
        }
        assert_eq!(peer.next(), None);
    });
    let mut client = coordinator.connect();
    assert_eq!(ask(&mut client, LONG), Ok(Answer::Granted));
    drop(client);
    coordinator.end();
}

#[test]
fn a_refusal_says_why() {
    let coordinator = Coordinator::run(|mut peer| {
        peer.next().unwrap();
        peer.send(&CoordinatorMessage::Refused { reason: Reason::Token, text: "wrong token" });
    });
    let mut client = coordinator.connect();
    // The request may meet a door already closed; the reason is received all the same.
    coordinator.end();
    assert_eq!(ask(&mut client, LONG), Err(Fault::Refused(Reason::Token)));
    assert!(!client.is_connected());
}

#[test]
fn a_coordinator_that_leaves_is_noticed() {
    let coordinator = Coordinator::run(|mut peer| {
        peer.welcome();
        peer.next().unwrap();
    });
    let mut client = coordinator.connect();
    assert_eq!(ask(&mut client, LONG), Err(Fault::Closed));
    assert!(!client.is_connected());
    let remote = coordinator.remote();
    let Coordinator { dir: _dir, thread } = coordinator;
    thread.join().unwrap();
    // The socket's file is still there, and nobody listens.
    let error = client.connect(&remote, &hello(), 200, LONG.silence).unwrap_err();
    assert!(matches!(error, Fault::System { errno: Errno::CONNREFUSED, .. }), "{error}");
}

#[test]
fn a_coordinator_that_says_nothing_is_given_up() {
    let coordinator = Coordinator::run(|mut peer| {
        assert!(peer.next().unwrap().starts_with("Hello"));
        assert!(peer.next().unwrap().starts_with("Request"));
        assert_eq!(peer.next().unwrap(), "Ping");
        assert_eq!(peer.next(), None, "the client leaves");
    });
    let mut client = coordinator.connect();
    let patience = Patience { silence: SHORT, ..LONG };
    assert_eq!(ask(&mut client, patience), Err(Fault::Silent));
    coordinator.end();
}

#[test]
fn a_coordinator_that_is_alive_may_take_its_time() {
    let coordinator = Coordinator::run(|mut peer| {
        peer.welcome();
        assert!(peer.next().unwrap().starts_with("Request"));
        for _ in 0..3 {
            assert_eq!(peer.next().unwrap(), "Ping");
            peer.send(&CoordinatorMessage::Pong);
        }
        peer.send(&CoordinatorMessage::Ack { id: 1 });
        assert_eq!(peer.next(), None);
    });
    let mut client = coordinator.connect();
    let patience = Patience { silence: Duration::from_secs(1), ..LONG };
    assert_eq!(ask(&mut client, patience), Ok(Answer::Granted));
    drop(client);
    coordinator.end();
}

#[test]
fn a_wait_that_is_too_long_is_called_off_and_a_late_grant_is_not_the_next_ones() {
    let coordinator = Coordinator::run(|mut peer| {
        peer.welcome();
        assert!(peer.next().unwrap().starts_with("Request"));
        assert_eq!(peer.next().unwrap(), "Cancel { id: 1 }");
        peer.send(&CoordinatorMessage::Ack { id: 1 });
        assert!(peer.next().unwrap().contains("id: 2"));
        assert_eq!(peer.next().unwrap(), "Cancel { id: 2 }", "the late grant granted nothing");
    });
    let mut client = coordinator.connect();
    let patience = Patience { wait: SHORT, ..LONG };
    assert_eq!(ask(&mut client, patience), Ok(Answer::WaitedTooLong));
    assert_eq!(ask(&mut client, patience), Ok(Answer::WaitedTooLong));
    coordinator.end();
}

#[test]
fn strangers_are_not_believed() {
    for words in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0; 600]] {
        let coordinator = Coordinator::run(move |mut peer| {
            peer.stream.write_all(words).unwrap();
            while peer.next().is_some() {}
        });
        let mut client = coordinator.connect();
        assert_eq!(ask(&mut client, LONG), Err(Fault::Protocol));
        coordinator.end();
    }
}

#[test]
fn a_socket_that_the_program_closed_is_left_alone_whatever_has_its_number() {
    let coordinator = Coordinator::run(|mut peer| {
        peer.welcome();
        assert_eq!(peer.next(), None);
    });
    let mut client = coordinator.connect();
    let number = client.socket.unwrap().number;
    assert!(number >= 200);
    let mut file = tempfile::tempfile().unwrap();
    // SAFETY: both numbers are open descriptors; the client expects to lose its own.
    assert_eq!(unsafe { libc_dup2(std::os::fd::AsRawFd::as_raw_fd(&file), number) }, number);
    assert_eq!(ask(&mut client, LONG), Err(Fault::Taken));
    assert_eq!(client.done(1, SHORT), Err(Fault::Taken));
    drop(client);
    coordinator.end();
    // SAFETY: the number stands for the file still; it is closed here and not used again.
    let duplicate = unsafe { <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(number) };
    assert_eq!(duplicate.metadata().unwrap().len(), 0);
    file.write_all(b"x").unwrap();
    assert_eq!(duplicate.metadata().unwrap().len(), 1);
}

unsafe extern "C" {
    #[link_name = "dup2"]
    fn libc_dup2(from: i32, to: i32) -> i32;
}

#[test]
fn over_tcp_a_later_address_counts_as_well() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    let closed = {
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        other.local_addr().unwrap()
    };
    let mut client = Client::new();
    let remote = Remote::Tcp(vec![closed, here]);
    client.connect(&remote, &hello(), 200, LONG.silence).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut room = [0; 256];
    let got = stream.read(&mut room).unwrap();
    let (message, _) = ClientMessage::decode(&room[..got]).unwrap().unwrap();
    assert_eq!(message, ClientMessage::Hello(hello()));
}

#[test]
fn names_resolve() {
    let remote = |text: &str| Remote::resolve(&text.parse().unwrap());
    for text in ["tcp:localhost:7", "tcp:127.0.0.1:7"] {
        let Remote::Tcp(found) = remote(text).unwrap() else { panic!("not TCP") };
        assert_eq!(found, ["127.0.0.1:7".parse().unwrap()]);
    }
    let Remote::Tcp(found) = remote("tcp:[::1]:7").unwrap() else { panic!("not TCP") };
    assert_eq!(found, ["[::1]:7".parse().unwrap()]);
}
