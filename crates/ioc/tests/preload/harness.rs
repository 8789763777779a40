//! Running programs with the library loaded, against a coordinator whose every move the test
//! decides and sees.

use coordinate::message::{ClientMessage, CoordinatorMessage, FRAME_BYTES_MAX, IoKind};
use preload::harness::RUN_TIME_MAX;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Bytes of a large call in the tests.
pub const BYTES: usize = 100_000;
/// Bytes from which calls ask in the tests.
pub const MIN_BYTES: usize = 65_536;
pub fn library() -> PathBuf {
    preload::harness::library("libazekura_ioc.so")
}

/// A request as the coordinator got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub kind: IoKind,
    /// Bytes it is about.
    pub bytes: u64,
    pub targets: Vec<String>,
    pub pid: u32,
}

/// What became of the requests.
#[derive(Default)]
pub struct Seen {
    /// All requests, in the order they came.
    pub asked: Vec<Asked>,
    /// Bytes of completions.
    pub done: Vec<u64>,
    /// Introductions: group, job, host, rank, weight, priority, token.
    pub hellos: Vec<String>,
    pub cancelled: usize,
    /// Connections that are open.
    pub open: usize,
    /// Permissions out.
    inside: usize,
    /// Most permissions out at a time.
    pub inside_max: usize,
    streams: Vec<UnixStream>,
}

/// Says whether the n-th request (from 0) may ever be granted; may take its time.
type Judge = Box<dyn Fn(usize) -> bool + Send + Sync>;

struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
    limit: usize,
    judge: Judge,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }
}

/// A coordinator in this process, in a directory of its own that programs work in.
pub struct Coordinator {
    shared: Arc<Shared>,
    dir: tempfile::TempDir,
}

impl Coordinator {
    /// Grants at most `limit` permissions at a time.
    pub fn granting(limit: usize) -> Self {
        Self::judging(limit, |_| true)
    }

    /// Grants requests that the judge lets pass.
    pub fn judging(limit: usize, judge: impl Fn(usize) -> bool + Send + Sync + 'static) -> Self {
        let coordinator = Self::absent_until_started(limit, judge);
        coordinator.start();
        coordinator
    }

    /// Does not listen before [`Coordinator::start`].
    pub fn absent_until_started(
        limit: usize,
        judge: impl Fn(usize) -> bool + Send + Sync + 'static,
    ) -> Self {
        let seen = Mutex::new(Seen::default());
        let judge = Box::new(judge);
        let shared = Arc::new(Shared { seen, changed: Condvar::new(), limit, judge });
        Self { shared, dir: tempfile::tempdir().unwrap() }
    }

    pub fn start(&self) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        let shared = Arc::clone(&self.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                // `stop` has taken the name away and knocks once.
                if listener.local_addr().is_ok_and(|a| !a.as_pathname().unwrap().exists()) {
                    return;
                }
                let shared = Arc::clone(&shared);
                {
                    let mut seen = shared.lock();
                    seen.open += 1;
                    seen.streams.push(stream.try_clone().unwrap());
                }
                std::thread::spawn(move || {
                    let held = serve(&shared, stream);
                    let mut seen = shared.lock();
                    seen.open -= 1;
                    seen.inside -= usize::from(held);
                    shared.changed.notify_all();
                });
            }
        });
    }

    /// Dies: all connections end, nobody listens.
    pub fn stop(&self) {
        let knock = UnixStream::connect(self.socket());
        std::fs::remove_file(self.socket()).unwrap();
        drop(knock);
        let streams = std::mem::take(&mut self.shared.lock().streams);
        for stream in streams {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("coordinator.sock")
    }

    /// Where programs work.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What has been seen so far.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.shared.lock()
    }

    /// Waits until this is so.
    pub fn wait_until(&self, what: &str, so: impl Fn(&Seen) -> bool) {
        let mut seen = self.shared.lock();
        let deadline = Instant::now() + RUN_TIME_MAX;
        while !so(&seen) {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            seen = self.shared.changed.wait_timeout(seen, Duration::from_millis(50)).unwrap().0;
        }
    }

    /// A program in the coordinator's directory, with the library loaded and this coordinator.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = preload::harness::command(program, &library());
        command
            .current_dir(self.dir())
            .env("AZEKURA_IOC", format!("unix:{}", self.socket().display()))
            .env("AZEKURA_IOC_CONFIG", "")
            .env("AZEKURA_IOC_MIN_SIZE", MIN_BYTES.to_string());
        command
    }

    /// Contents of a file in its directory.
    pub fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.dir().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Bytes of writes asked for, in order.
    pub fn writes(&self) -> Vec<u64> {
        let asked = &self.seen().asked;
        asked.iter().filter(|one| one.kind == IoKind::Write).map(|one| one.bytes).collect()
    }
}

/// Serves one connection to its end; true when a permission is still out.
fn serve(shared: &Shared, mut stream: UnixStream) -> bool {
    let mut input = Vec::new();
    let mut pid = 0;
    let mut held = false;
    loop {
        let decoded = ClientMessage::decode(&input).expect("the library speaks the protocol");
        let Some((message, taken)) = decoded else {
            let mut room = [0; 4096];
            match stream.read(&mut room) {
                Ok(0) | Err(_) => return held,
                Ok(got) => input.extend(&room[..got]),
            }
            continue;
        };
        match message {
            ClientMessage::Hello(hello) => {
                pid = hello.pid;
                let text = format!(
                    "{} {} {:?} {} {} {:?}",
                    hello.group, hello.job, hello.rank, hello.weight, hello.priority, hello.token
                );
                shared.lock().hellos.push(text);
                let (write_bytes_min, read_bytes_min) = (None, None);
                send(
                    &mut stream,
                    &CoordinatorMessage::HelloAck { write_bytes_min, read_bytes_min },
                );
            }
            ClientMessage::Request(request) => {
                let id = request.id;
                let targets = request.targets.names().map(String::from).collect();
                let (kind, bytes) = (request.kind, request.bytes);
                let number = {
                    let mut seen = shared.lock();
                    seen.asked.push(Asked { kind, bytes, targets, pid });
                    seen.asked.len() - 1
                };
                shared.changed.notify_all();
                if (shared.judge)(number) {
                    let mut seen = shared.lock();
                    while seen.inside == shared.limit {
                        seen = shared.changed.wait(seen).unwrap();
                    }
                    seen.inside += 1;
                    seen.inside_max = seen.inside_max.max(seen.inside);
                    held = true;
                    drop(seen);
                    send(&mut stream, &CoordinatorMessage::Ack { id });
                }
            }
            ClientMessage::Completion { bytes, .. } => {
                let mut seen = shared.lock();
                seen.done.push(bytes);
                seen.inside -= usize::from(held);
                held = false;
            }
            ClientMessage::Cancel { .. } => {
                let mut seen = shared.lock();
                seen.cancelled += 1;
                seen.inside -= usize::from(held);
                held = false;
            }
            ClientMessage::Ping => send(&mut stream, &CoordinatorMessage::Pong),
            ClientMessage::Stats => panic!("the library asks for no statistics"),
        }
        shared.changed.notify_all();
        input.drain(..taken);
    }
}

fn send(stream: &mut UnixStream, message: &CoordinatorMessage<'_>) {
    let mut room = vec![0; FRAME_BYTES_MAX];
    let bytes = message.encode(&mut room).unwrap();
    // The client may have left.
    let _ = stream.write_all(&room[..bytes]);
}

/// What the C programs write: bytes that follow from their position.
pub fn data(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Compiles a program of this directory's `c/`, once per test process.
pub fn c_program(name: &str) -> PathBuf {
    preload::c_program!(name, &["-O1"])
}

/// Runs a program of `c/` in a mode on [`BYTES`] bytes.
pub fn run_c(coordinator: &Coordinator, name: &str, mode: &str) -> Output {
    run(c_command(coordinator, name, mode))
}

/// The same, not started yet.
pub fn c_command(coordinator: &Coordinator, name: &str, mode: &str) -> Command {
    let mut command = coordinator.command(c_program(name));
    command.arg(mode).arg(coordinator.dir()).arg(BYTES.to_string());
    command
}

/// Starts a command with its output kept.
pub fn start(mut command: Command) -> Child {
    preload::harness::start(command.stdin(Stdio::piped()))
}

/// Runs a command to its end, which must be a success.
pub fn run(command: Command) -> Output {
    finish(start(command))
}

/// Waits for the end of a program, which must be a success.
pub fn finish(child: Child) -> Output {
    let output = preload::harness::finish(child);
    preload::harness::succeeded(&output);
    output
}
