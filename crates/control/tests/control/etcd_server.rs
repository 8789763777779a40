//! A real etcd on this machine, for tests, and a way to it that can be disturbed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use uuid::Uuid;

/// A member of a cluster; ends with the value.
pub struct EtcdServer {
    dir: tempfile::TempDir,
    ports: [u16; 2],
    child: Mutex<Option<Child>>,
    scheme: &'static str,
    more: Vec<String>,
    /// Its name in the cluster, and all members' names and peers' addresses; empty: it is alone.
    member: (String, String),
}

/// True when there is an etcd here; else a word to whoever reads the tests' output.
fn is_here() -> bool {
    let found = Command::new("etcd").arg("--version").output();
    let is_here = found.is_ok_and(|output| output.status.success());
    if !is_here {
        println!("SKIPPED: no etcd here (Debian: etcd-server)");
    }
    is_here
}

/// A directory for a member. What it writes is synced over and over: that is not what is tested.
fn new_dir() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match free_bytes(memory) > ROOM_BYTES {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
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
        if !is_here() {
            return None;
        }
        let dir = new_dir();
        let more = more(dir.path());
        let (ports, child) = (free_ports(), Mutex::default());
        let member = (String::new(), String::new());
        let mut server = EtcdServer { dir, ports, child, scheme, more, member };
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

    /// Starts three that are members of one cluster; `None` as in [`EtcdServer::start`].
    pub fn start_three() -> Option<[EtcdServer; 3]> {
        if !is_here() {
            return None;
        }
        loop {
            let ports = [0; 3].map(|_| free_ports());
            let name = |at: usize| format!("m{at}");
            let peer = |at: usize| format!("{}=http://127.0.0.1:{}", name(at), ports[at][1]);
            let cluster = [0, 1, 2].map(peer).join(",");
            let servers = [0, 1, 2].map(|at| EtcdServer {
                dir: new_dir(),
                ports: ports[at],
                child: Mutex::default(),
                scheme: "http",
                more: Vec::new(),
                member: (name(at), cluster.clone()),
            });
            // One that ends at once has lost its port to somebody.
            if servers.iter().all(EtcdServer::run) {
                return Some(servers);
            }
        }
    }

    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.ports[0])
    }

    /// Its number in the cluster that `header` of an answer gives, as text.
    pub fn member_id(&self) -> String {
        let answer = self.post("/v3/maintenance/status", &serde_json::json!({}));
        answer["header"]["member_id"].as_str().unwrap().to_string()
    }

    /// Starts again after [`EtcdServer::kill`], as soon as its ports are free.
    pub fn restart(&self) {
        while !self.run() {
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Posts a request and answers what etcd says, in whatever state.
    pub fn post(&self, path: &str, body: &serde_json::Value) -> serde_json::Value {
        post_to(self.ports[0], path, body)
    }

    /// Directory of its files; ends with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the process and waits until it takes connections; false when it ends before.
    fn run(&self) -> bool {
        let peer = format!("http://127.0.0.1:{}", self.ports[1]);
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let alone = ("one".to_string(), format!("one={peer}"));
        let (name, cluster) = if self.member.0.is_empty() { &alone } else { &self.member };
        let mut child = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.dir.path().join("data"))
            .args(["--name", name, "--logger", "zap", "--log-level", "error"])
            .args(["--listen-client-urls", &self.endpoint()])
            .args(["--advertise-client-urls", &self.endpoint()])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", cluster])
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

    /// Sends the process a signal, by its name without `SIG`.
    #[allow(dead_code)] // not every test file needs it
    pub fn signal(&self, name: &str) {
        let pid = self.child.lock().unwrap().as_ref().map(|child| child.id().to_string());
        let pid = pid.expect("it runs");
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
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
    /// All answers come late by what [`Proxy::set_delay`] says.
    Slow,
    /// After the next answer to a question etcd forgets all revisions up to then; then as before.
    CompactOnce,
}

/// How late a slow member's answers come.
pub const SLOW: Duration = Duration::from_secs(5);

/// Connections to etcd, one request at a time.
pub struct Proxy {
    port: u16,
    way: Arc<AtomicU8>,
    delay_ms: Arc<AtomicU64>,
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

fn post_to(port: u16, path: &str, body: &serde_json::Value) -> serde_json::Value {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = String::from_utf8(ask(port, request.as_bytes()).unwrap()).unwrap();
    let (from, to) = (answer.find('{').unwrap(), answer.rfind('}').unwrap());
    serde_json::from_str(&answer[from..=to]).unwrap()
}

impl Proxy {
    pub fn new(server: &EtcdServer) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy {
            port: listener.local_addr().unwrap().port(),
            way: Arc::default(),
            delay_ms: Arc::default(),
            held: Arc::default(),
            server_port: server.ports[0],
        };
        let (way, held, port) = (proxy.way.clone(), proxy.held.clone(), proxy.server_port);
        let delay_ms = proxy.delay_ms.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (way, held, delay_ms) = (way.clone(), held.clone(), delay_ms.clone());
                thread::spawn(move || pass(client, port, &way, &held, &delay_ms));
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

    pub fn is(&self, way: Way) -> bool {
        self.way.load(Ordering::SeqCst) == way as u8
    }

    /// How late answers come with [`Way::Slow`].
    pub fn set_delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// What is on the way arrives; how much that was.
    pub fn let_go(&self) -> usize {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        held.iter().for_each(|request| assert!(ask(self.server_port, request).is_some()));
        held.len()
    }
}

/// Has etcd forget all revisions but the newest, which is one that somebody else makes.
fn compact(port: u16) {
    // "other", and nothing.
    let put = serde_json::json!({ "key": "b3RoZXI=", "value": "" });
    let revision = post_to(port, "/v3/kv/put", &put)["header"]["revision"].clone();
    let done = post_to(port, "/v3/kv/compaction", &serde_json::json!({ "revision": revision }));
    assert!(done["error"].is_null(), "{done}");
}

fn pass(
    mut client: TcpStream,
    port: u16,
    way: &AtomicU8,
    held: &Mutex<Vec<Vec<u8>>>,
    delay_ms: &AtomicU64,
) {
    while let Some(request) = message(&mut client) {
        let is_tx = request.starts_with(b"POST /v3/kv/txn");
        let is = |kind: Way| is_tx && way.load(Ordering::SeqCst) == kind as u8;
        if is(Way::Hold) {
            held.lock().unwrap().push(request);
            break;
        }
        let (lose_one, lose) = (is(Way::LoseOneAnswer), is(Way::LoseAnswers));
        let now = way.load(Ordering::SeqCst);
        let Some(answer) = ask(port, &request) else { break };
        if now == Way::Slow as u8 {
            thread::sleep(Duration::from_millis(delay_ms.load(Ordering::SeqCst)));
        }
        if now == Way::CompactOnce as u8 && request.starts_with(b"POST /v3/kv/range") {
            way.store(Way::Open as u8, Ordering::SeqCst);
            compact(port);
        }
        if lose_one {
            way.store(Way::Open as u8, Ordering::SeqCst);
        }
        if lose || lose_one || client.write_all(&answer).is_err() {
            break;
        }
    }
    client.shutdown(Shutdown::Both).ok();
}
