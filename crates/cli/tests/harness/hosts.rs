//! Hosts that only a network connects: each is a namespace of its own, and engines speak over TCP as on several machines. They can be
//! killed, stopped, and cut off, in one direction, too.

#![allow(dead_code, reason = "each test file uses a part of this")]

use crate::harness::{all_text, azekura};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Pause between two looks at something.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Counts the networks of this process: their names differ.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

fn ip(args: &[&str]) -> Output {
    Command::new("ip").args(args).output().unwrap()
}

#[track_caller]
fn ip_ok(args: &[&str]) {
    let output = ip(args);
    assert!(output.status.success(), "ip {args:?}: {}", all_text(&output));
}

fn address(at: usize) -> String {
    format!("10.77.0.{}", at + 1)
}

/// What hosts there are.
#[derive(Clone, Debug)]
pub struct HostsSpec {
    /// Hosts of an engine with one target.
    pub engines: usize,
    /// Hosts of clients, behind those of the engines.
    pub clients: usize,
    /// Lines for the engines' files.
    pub settings: String,
    /// The catalog is in an etcd on a host of its own, behind those of the clients; else the first engine holds it.
    pub has_etcd: bool,
}

/// Hosts at a switch. They end with the value, and what runs in them.
pub struct Hosts {
    scratch: tempfile::TempDir,
    spec: HostsSpec,
    asked_first: AtomicUsize,
    /// Begins the names of the namespaces.
    prefix: String,
    engines: Mutex<Vec<Option<Child>>>,
    etcd: Mutex<Option<Child>>,
    /// Files of etcd, in memory where there is room: it gives up where a disk is slow.
    etcd_dir: tempfile::TempDir,
}

impl Hosts {
    /// With all engines' processes started. `None`, and a word to whoever reads the tests' output, where there can be none.
    pub fn start(spec: HostsSpec) -> Option<Hosts> {
        let skipped = |why: &str| {
            println!("SKIPPED: {why}");
            None
        };
        if !geteuid().is_root() {
            return skipped("network namespaces need root");
        }
        if Command::new("ip").arg("-V").output().is_err() {
            return skipped("no 'ip' here (Debian: iproute2)");
        }
        if spec.has_etcd && Command::new("etcd").arg("--version").output().is_err() {
            return skipped("no etcd here (Debian: etcd-server)");
        }
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let hosts = Hosts {
            scratch: tempfile::tempdir().unwrap(),
            prefix: format!("azk{}n{number}", std::process::id()),
            engines: Mutex::new((0..spec.engines).map(|_| None).collect()),
            etcd: Mutex::default(),
            asked_first: AtomicUsize::new(0),
            etcd_dir: tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap(),
            spec,
        };
        let switch = &hosts.switch();
        let made = ip(&["netns", "add", switch]);
        let bridged = ip(&["-n", switch, "link", "add", "br0", "type", "bridge"]);
        if !made.status.success() || !bridged.status.success() {
            return skipped(&format!(
                "no network namespaces or bridges here: {}",
                all_text(&bridged)
            ));
        }
        let cable =
            ip(&["-n", switch, "link", "add", "end0", "type", "veth", "peer", "name", "end1"]);
        if !cable.status.success() {
            return skipped(&format!("no virtual links here: {}", all_text(&cable)));
        }
        ip_ok(&["-n", switch, "link", "set", "br0", "up"]);
        for at in 0..hosts.count() {
            let (host, port) = (&hosts.name(at), &format!("port{at}"));
            ip_ok(&["netns", "add", host]);
            let peer = ["type", "veth", "peer", "name", "eth0", "netns", host];
            ip_ok(&[&["-n", switch, "link", "add", port][..], &peer].concat());
            ip_ok(&["-n", switch, "link", "set", port, "master", "br0", "up"]);
            ip_ok(&["-n", host, "addr", "add", &format!("{}/24", address(at)), "dev", "eth0"]);
            ip_ok(&["-n", host, "link", "set", "eth0", "up"]);
            ip_ok(&["-n", host, "link", "set", "lo", "up"]);
            // Who is on the same host is reached past the network: each is on another one.
            let host_id = format!("00000000-0000-0000-0000-{at:012}\n");
            fs::write(hosts.path(&format!("boot-id{at}")), host_id).unwrap();
        }
        let inside = hosts.run_at(0, Command::new("true")).output().unwrap();
        if !inside.status.success() {
            return skipped(&format!("nothing runs in namespaces here: {}", all_text(&inside)));
        }
        for secret in ["token", "admin-token"] {
            fs::write(hosts.path(secret), format!("{secret} of more than twenty-four bytes"))
                .unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            fs::set_permissions(hosts.path(secret), mode).unwrap();
        }
        if hosts.spec.has_etcd {
            hosts.start_etcd();
        }
        for at in 0..hosts.spec.engines {
            hosts.configure(at);
            hosts.spawn(at);
        }
        Some(hosts)
    }

    fn configure(&self, at: usize) {
        let dir = self.dir(at);
        fs::create_dir_all(dir.join("t")).unwrap();
        let join = match at {
            _ if self.spec.has_etcd => {
                let etcd = address(self.etcd_host());
                format!("catalog = {{ kind = 'etcd', endpoints = ['http://{etcd}:2379'] }}\n")
            }
            0 => String::new(),
            _ => format!("join = ['{}']\n", self.reach(0)),
        };
        let text = format!(
            "dir = '{0}'\nlisten = '{1}'\ndomain = ['host{at}']\ntoken_file = '{2}'\n\
             admin_token_file = '{3}'\n{join}{4}\n[[target]]\ndevice = '{0}/t'\n",
            dir.display(),
            self.reach(at),
            self.path("token").display(),
            self.path("admin-token").display(),
            self.spec.settings,
        );
        fs::write(dir.join("engine.toml"), text).unwrap();
    }

    /// How many there are, of engines and of clients.
    pub fn count(&self) -> usize {
        self.spec.engines + self.spec.clients + usize::from(self.spec.has_etcd)
    }

    fn etcd_host(&self) -> usize {
        self.spec.engines + self.spec.clients
    }

    /// Starts etcd's process.
    pub fn start_etcd(&self) {
        let reach = format!("http://{}:2379", address(self.etcd_host()));
        let peer = "http://127.0.0.1:2380";
        let log = self.etcd_dir.path().join("log");
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        let mut etcd = Command::new("etcd");
        etcd.arg("--data-dir").arg(self.etcd_dir.path().join("data"));
        etcd.args(["--name", "one", "--logger", "zap", "--log-level", "error"]);
        etcd.args(["--listen-client-urls", &reach, "--advertise-client-urls", &reach]);
        etcd.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
        etcd.args(["--initial-cluster", &format!("one={peer}")]);
        let mut inside = self.run_at(self.etcd_host(), etcd);
        let child = inside.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        *self.etcd.lock().unwrap() = Some(child);
    }

    /// Ends etcd as a crash does.
    pub fn kill_etcd(&self) {
        if let Some(mut child) = self.etcd.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The first host of clients.
    pub fn client_host(&self) -> usize {
        self.spec.engines
    }

    fn switch(&self) -> String {
        format!("{}s", self.prefix)
    }

    fn name(&self, at: usize) -> String {
        format!("{}h{at}", self.prefix)
    }

    /// Address and port of an engine.
    pub fn reach(&self, at: usize) -> String {
        format!("{}:7710", address(at))
    }

    /// What is at a name in the scratch space.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The directory of an engine; its target is in `t` below it.
    pub fn dir(&self, at: usize) -> PathBuf {
        self.path(&format!("engine{at}"))
    }

    /// All that an engine has said.
    pub fn log(&self, at: usize) -> String {
        fs::read_to_string(self.dir(at).join("log")).unwrap_or_default()
    }

    /// The same command on a host. Its process is the command's.
    pub fn run_at(&self, at: usize, command: Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.name(at), "sh", "-c"]);
        inside.arg("mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"");
        inside.arg(self.path(&format!("boot-id{at}")));
        inside.arg(command.get_program()).args(command.get_args());
        inside.env_remove("AZEKURA_SYSTEM").env("AZEKURA_LOG", "info");
        inside.env("AZEKURA_TOKEN_FILE", self.path("admin-token")).stdin(Stdio::null());
        inside
    }

    /// From now on this thread, and those that it starts, are on the network of a host.
    pub fn enter(&self, at: usize) {
        let name = Path::new("/run/netns").join(self.name(at));
        let space = fs::File::open(name).unwrap();
        let kind = rustix::thread::LinkNameSpaceType::Network;
        let fd = std::os::fd::AsFd::as_fd(&space);
        rustix::thread::move_into_link_name_space(fd, Some(kind)).unwrap();
    }

    /// Starts an engine's process.
    pub fn spawn(&self, at: usize) {
        let dir = self.dir(at);
        let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let mut command = azekura();
        command.args(["engine", "--config"]).arg(dir.join("engine.toml"));
        let mut inside = self.run_at(at, command);
        let child = inside.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.engines.lock().unwrap()[at] = Some(child);
    }

    /// Waits until an engine that was started serves.
    pub fn until_serves(&self, at: usize) {
        let pid = || self.engines.lock().unwrap()[at].as_ref().unwrap().id().to_string();
        let is_up = || {
            let text = fs::read_to_string(self.dir(at).join("engine.pid")).unwrap_or_default();
            text.split_whitespace().next() == Some(&pid())
        };
        while !is_up() {
            let ended = self.engines.lock().unwrap()[at].as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "engine {at} ended: {}", self.log(at));
            thread::sleep(LOOK_PAUSE);
        }
    }

    pub fn signal(&self, at: usize, signal: Signal) {
        let pid = self.engines.lock().unwrap()[at].as_ref().unwrap().id();
        kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
    }

    /// Ends an engine as a crash does.
    pub fn kill(&self, at: usize) {
        let child = self.engines.lock().unwrap()[at].take();
        if let Some(mut child) = child {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Ends all engines in order, the first one last.
    pub fn stop_all(&self) {
        for at in (0..self.spec.engines).rev() {
            self.signal(at, Signal::TERM);
            let child = self.engines.lock().unwrap()[at].take();
            child.unwrap().wait().unwrap();
        }
    }

    /// What one host sends to another arrives no more; the other way it does.
    pub fn cut(&self, from: usize, to: usize) {
        let nobody = ["lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent"];
        ip_ok(&[&["-n", &self.name(from), "neigh", "replace", &address(to)][..], &nobody].concat());
    }

    /// Takes a cut back, if there is one.
    pub fn mend(&self, from: usize, to: usize) {
        ip(&["-n", &self.name(from), "neigh", "del", &address(to), "dev", "eth0"]);
    }

    /// Addresses of all engines, the one that is asked first before the others.
    pub fn system(&self) -> String {
        let mut all: Vec<String> = (0..self.spec.engines).map(|at| self.reach(at)).collect();
        all.rotate_left(self.asked_first.load(Ordering::Relaxed));
        format!("tcp://{}", all.join(","))
    }

    /// From now on clients ask this engine first.
    pub fn ask_first(&self, at: usize) {
        self.asked_first.store(at, Ordering::Relaxed);
    }

    /// A command of a client that waits for the system as long as it takes.
    pub fn client(&self, args: &[&str]) -> Output {
        let mut command = azekura();
        command.args(["--timeout", "hard", "--system", &self.system()]).args(args);
        self.run_at(self.client_host(), command).output().unwrap()
    }

    /// The same, which must succeed; what it printed.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.client(args);
        assert!(output.status.success(), "{args:?}: {}", all_text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The same with `--json`.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    /// Waits until all engines are in the system.
    pub fn until_joined(&self) {
        // A first connection is not waited for: nobody may listen yet.
        let joined = || {
            let output = self.client(&["system", "list-engines", "--json"]);
            let engines: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            engines.as_array().map_or(0, Vec::len)
        };
        while joined() < self.spec.engines {
            thread::sleep(LOOK_PAUSE);
        }
    }

    /// Waits until all targets of the pool are whole.
    pub fn until_whole(&self) {
        self.until_targets(|states| states.iter().all(|state| state == "up"));
    }

    /// Waits until a target of the pool is not up: its engine has been called down.
    pub fn until_down(&self) {
        self.until_targets(|states| states.iter().any(|state| state != "up"));
    }

    fn until_targets(&self, is_so: impl Fn(&[String]) -> bool) {
        loop {
            let pool = self.json(&["pool", "list"]);
            let targets = pool[0]["targets"].as_array().unwrap().iter();
            let states: Vec<String> =
                targets.map(|target| target["state"].as_str().unwrap().into()).collect();
            if is_so(&states) {
                return;
            }
            thread::sleep(LOOK_PAUSE);
        }
    }

    /// Compares what a container has with a directory.
    pub fn compare(&self, url: &str, expected: &Path) {
        let back = self.path("back");
        self.ok(&["fs", "cp", "-rT", url, back.to_str().unwrap()]);
        let diff = Command::new("diff").arg("-r").args([&back, expected]).output().unwrap();
        assert!(diff.status.success(), "{url}: {}", all_text(&diff));
        fs::remove_dir_all(back).unwrap();
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if thread::panicking() {
            for at in 0..self.spec.engines {
                let log = self.log(at);
                let lines: Vec<&str> = log.lines().collect();
                let tail = &lines[lines.len().saturating_sub(40)..];
                eprintln!("--- engine {at}:\n{}", tail.join("\n"));
            }
        }
        for engine in self.engines.lock().unwrap().iter_mut().flatten() {
            // A stopped one ends all the same.
            let _ = engine.kill();
            let _ = engine.wait();
        }
        if let Some(etcd) = &mut *self.etcd.lock().unwrap() {
            let _ = etcd.kill();
            let _ = etcd.wait();
        }
        for at in 0..self.count() {
            ip(&["netns", "del", &self.name(at)]);
        }
        ip(&["netns", "del", &self.switch()]);
    }
}
