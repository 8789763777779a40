//! A real etcd on this machine, for tests, and a way to it that can be disturbed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use uuid::Uuid;

/// A member of its own cluster; ends with the value.
pub struct EtcdServer {
    dir: tempfile::TempDir,
    ports: [u16; 2],
    child: Mutex<Option<Child>>,
    scheme: &'static str,
    more: Vec<String>,
}

/// Two free ports, none of those that the kernel gives to connections: who asks again and again for a
/// port where nobody listens would at last be given it for his own end, and be connected to himself.
fn free_ports() -> [u16; 2] {
    [0, 1].map(|_| {
        loop {
            let port = 12_000 + (Uuid::new_v4().as_u128() % 20_000) as u16;
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return port;
            }
        }
    })
}

/// What a dozen members may need: each sets 64 MiB aside for its log, some twice.
const ROOM_BYTES: u64 = 4 << 30;

fn free_bytes(dir: &Path) -> u64 {
    let args = ["--output=avail", "--block-size=1"];
    let output = Command::new("df").args(args).arg(dir).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.ok().and_then(|text| text.lines().nth(1)?.trim().parse().ok()).unwrap_or(0)
}

impl EtcdServer {
    /// Starts one; `None`, and a word to whoever reads the tests' output, when there is no etcd here.
    pub fn start() -> Option<EtcdServer> {
        EtcdServer::start_with("http", |_| Vec::new())
    }

    /// The same with more arguments; `more` may put files into the directory it is given.
    pub fn start_with(
        scheme: &'static str,
        more: impl FnOnce(&Path) -> Vec<String>,
    ) -> Option<EtcdServer> {
        let found = Command::new("etcd").arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            println!("SKIPPED: no etcd here (Debian: etcd-server)");
            return None;
        }
        // What a member writes is synced over and over: that is not what is tested.
        let memory = Path::new("/dev/shm");
        let dir = match free_bytes(memory) > ROOM_BYTES {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let more = more(dir.path());
        let (ports, child) = (free_ports(), Mutex::default());
        let mut server = EtcdServer { dir, ports, child, scheme, more };
        let mut attempts = 0;
        while !server.run() {
            attempts += 1;
            let log = std::fs::read_to_string(server.dir.path().join("log"));
            assert!(attempts < 20, "etcd does not start: {log:?}");
            server.ports = free_ports();
            std::fs::remove_dir_all(server.dir.path().join("data")).ok();
        }
        Some(server)
    }

    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.ports[0])
    }

    /// Starts again after [`EtcdServer::kill`], as soon as its ports are free.
    pub fn restart(&self) {
        while !self.run() {
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Posts a request and answers what etcd says, in whatever state.
    pub fn post(&self, path: &str, body: &serde_json::Value) -> serde_json::Value {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = String::from_utf8(ask(self.ports[0], request.as_bytes()).unwrap()).unwrap();
        let (from, to) = (answer.find('{').unwrap(), answer.rfind('}').unwrap());
        serde_json::from_str(&answer[from..=to]).unwrap()
    }

    /// Directory of its files; ends with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the process and waits until it takes connections; false when it ends before.
    fn run(&self) -> bool {
        let peer = format!("http://127.0.0.1:{}", self.ports[1]);
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let mut child = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.dir.path().join("data"))
            .args(["--name", "one", "--logger", "zap", "--log-level", "error"])
            .args(["--listen-client-urls", &self.endpoint()])
            .args(["--advertise-client-urls", &self.endpoint()])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .arg("--initial-cluster")
            .arg(format!("one={peer}"))
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        loop {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[0])).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.child.lock().unwrap().replace(child);
        true
    }

    /// Ends the process as a crash does.
    pub fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What happens to requests on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Way {
    Open,
    /// The next transaction reaches etcd, its answer nobody; those after it fare well.
    LoseOneAnswer,
    /// So do all.
    LoseAnswers,
    /// Transactions stay on the way until they are let go.
    Hold,
}

/// Connections to etcd, one request at a time.
pub struct Proxy {
    port: u16,
    way: Arc<AtomicU8>,
    /// Requests that are on the way, and where to send them.
    held: Arc<Mutex<Vec<Vec<u8>>>>,
    server_port: u16,
}

/// Reads a line with its end.
fn line(stream: &mut TcpStream, raw: &mut Vec<u8>) -> Option<String> {
    let from = raw.len();
    let mut byte = [0];
    while !raw[from..].ends_with(b"\r\n") {
        stream.read_exact(&mut byte).ok()?;
        raw.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&raw[from..]).trim().to_lowercase())
}

fn bytes(stream: &mut TcpStream, raw: &mut Vec<u8>, count: usize) -> Option<()> {
    let from = raw.len();
    raw.resize(from + count, 0);
    stream.read_exact(&mut raw[from..]).ok()
}

/// One HTTP message with its whole body, by its length or in chunks; `None` at the end.
fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let line = line(stream, &mut raw)?;
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        is_chunked |= line == "transfer-encoding: chunked";
        if line.is_empty() {
            break;
        }
    }
    bytes(stream, &mut raw, length)?;
    // What follows the last chunk is headers again.
    let mut count = usize::from(is_chunked);
    while count > 0 {
        count = usize::from_str_radix(&line(stream, &mut raw)?, 16).unwrap();
        if count > 0 {
            bytes(stream, &mut raw, count + 2)?;
        }
    }
    while is_chunked && !line(stream, &mut raw)?.is_empty() {}
    Some(raw)
}

fn ask(port: u16, request: &[u8]) -> Option<Vec<u8>> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    server.write_all(request).ok()?;
    message(&mut server)
}

impl Proxy {
    pub fn new(server: &EtcdServer) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy {
            port: listener.local_addr().unwrap().port(),
            way: Arc::default(),
            held: Arc::default(),
            server_port: server.ports[0],
        };
        let (way, held, port) = (proxy.way.clone(), proxy.held.clone(), proxy.server_port);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (way, held) = (way.clone(), held.clone());
                thread::spawn(move || pass(client, port, &way, &held));
            }
        });
        proxy
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, way: Way) {
        self.way.store(way as u8, Ordering::SeqCst);
    }

    /// What is on the way arrives; how much that was.
    pub fn let_go(&self) -> usize {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        held.iter().for_each(|request| assert!(ask(self.server_port, request).is_some()));
        held.len()
    }
}

fn pass(mut client: TcpStream, port: u16, way: &AtomicU8, held: &Mutex<Vec<Vec<u8>>>) {
    while let Some(request) = message(&mut client) {
        let is_tx = request.starts_with(b"POST /v3/kv/txn");
        let is = |kind: Way| is_tx && way.load(Ordering::SeqCst) == kind as u8;
        if is(Way::Hold) {
            held.lock().unwrap().push(request);
            break;
        }
        let (lose_one, lose) = (is(Way::LoseOneAnswer), is(Way::LoseAnswers));
        let Some(answer) = ask(port, &request) else { break };
        if lose_one {
            way.store(Way::Open as u8, Ordering::SeqCst);
        }
        if lose || lose_one || client.write_all(&answer).is_err() {
            break;
        }
    }
    client.shutdown(Shutdown::Both).ok();
}
