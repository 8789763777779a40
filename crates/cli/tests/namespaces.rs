//! Three engines that only a network connects: each in a namespace of its own, over TCP, as on three machines. They are killed,
//! stopped, and cut off in one direction while files are copied and compared in containers with copies.

mod harness;

use harness::{all_text, azekura, noise};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const ENGINES: usize = 3;
/// The namespace of the client, behind those of the engines.
const CLIENT: usize = ENGINES;
/// How long a link is cut: longer than the five seconds after which an engine is down.
const CUT: Duration = Duration::from_secs(7);
/// How long an engine stands still.
const STOPPED: Duration = Duration::from_secs(10);
/// How long a copier waits before its next round.
const PAUSE: Duration = Duration::from_millis(200);

fn ip(args: &[&str]) -> Output {
    Command::new("ip").args(args).output().unwrap()
}

#[track_caller]
fn ip_ok(args: &[&str]) {
    let output = ip(args);
    assert!(output.status.success(), "ip {args:?}: {}", all_text(&output));
}

/// Hosts at a switch. They end with the value, and what runs in them.
struct Hosts {
    scratch: tempfile::TempDir,
    engines: Mutex<Vec<Option<Child>>>,
}

impl Hosts {
    /// `None`, and a word to whoever reads the tests' output, where there can be none.
    fn start() -> Option<Hosts> {
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
        let hosts = Hosts {
            scratch: tempfile::tempdir().unwrap(),
            engines: Mutex::new((0..ENGINES).map(|_| None).collect()),
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
        for at in 0..=CLIENT {
            let (host, port) = (&hosts.name(at), &format!("port{at}"));
            ip_ok(&["netns", "add", host]);
            let peer = ["type", "veth", "peer", "name", "eth0", "netns", host];
            ip_ok(&[&["-n", switch, "link", "add", port][..], &peer].concat());
            ip_ok(&["-n", switch, "link", "set", port, "master", "br0", "up"]);
            ip_ok(&["-n", host, "addr", "add", &format!("{}/24", address(at)), "dev", "eth0"]);
            ip_ok(&["-n", host, "link", "set", "eth0", "up"]);
            ip_ok(&["-n", host, "link", "set", "lo", "up"]);
            // Who is on the same host is reached past the network: each is on another one.
            let host_id = format!("00000000-0000-0000-0000-00000000000{at}\n");
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
        for at in 0..ENGINES {
            let dir = hosts.dir(at);
            fs::create_dir_all(dir.join("t")).unwrap();
            let join = match at {
                0 => String::new(),
                _ => format!("join = ['{}:7710']\n", address(0)),
            };
            let text = format!(
                "dir = '{0}'\nlisten = '{1}:7710'\ndomain = ['host{at}']\ntoken_file = '{2}'\n\
                 admin_token_file = '{3}'\n{join}[[target]]\ndevice = '{0}/t'\n",
                dir.display(),
                address(at),
                hosts.path("token").display(),
                hosts.path("admin-token").display(),
            );
            fs::write(dir.join("engine.toml"), text).unwrap();
            hosts.spawn(at);
        }
        Some(hosts)
    }

    fn switch(&self) -> String {
        format!("azk{}s", std::process::id())
    }

    fn name(&self, at: usize) -> String {
        format!("azk{}h{at}", std::process::id())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn dir(&self, at: usize) -> PathBuf {
        self.path(&format!("engine{at}"))
    }

    fn log(&self, at: usize) -> String {
        fs::read_to_string(self.dir(at).join("log")).unwrap_or_default()
    }

    /// The same command on a host. Its process is the command's.
    fn run_at(&self, at: usize, command: Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.name(at), "sh", "-c"]);
        inside.arg("mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"");
        inside.arg(self.path(&format!("boot-id{at}")));
        inside.arg(command.get_program()).args(command.get_args());
        for name in ["AZEKURA_SYSTEM", "AZEKURA_LOG"] {
            inside.env_remove(name);
        }
        inside.env("AZEKURA_TOKEN_FILE", self.path("admin-token")).stdin(Stdio::null());
        inside
    }

    fn spawn(&self, at: usize) {
        let dir = self.dir(at);
        let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let mut command = azekura();
        command.args(["engine", "--config"]).arg(dir.join("engine.toml"));
        let mut inside = self.run_at(at, command);
        let child = inside.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.engines.lock().unwrap()[at] = Some(child);
    }

    fn signal(&self, at: usize, signal: Signal) {
        let pid = self.engines.lock().unwrap()[at].as_ref().unwrap().id();
        kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
    }

    fn kill(&self, at: usize) {
        let child = self.engines.lock().unwrap()[at].take();
        if let Some(mut child) = child {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// What one host sends to another arrives no more; the other way it does.
    fn cut(&self, from: usize, to: usize) {
        let nobody = ["lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent"];
        ip_ok(&[&["-n", &self.name(from), "neigh", "replace", &address(to)][..], &nobody].concat());
    }

    fn mend(&self, from: usize, to: usize) {
        ip_ok(&["-n", &self.name(from), "neigh", "del", &address(to), "dev", "eth0"]);
    }

    /// A command of a client that waits for the system as long as it takes.
    fn client(&self, args: &[&str]) -> Output {
        let all: Vec<String> = (0..ENGINES).map(|at| format!("{}:7710", address(at))).collect();
        let mut command = azekura();
        command.args(["--timeout", "hard", "--system", &format!("tcp://{}", all.join(","))]);
        command.args(args);
        self.run_at(CLIENT, command).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.client(args);
        assert!(output.status.success(), "{args:?}: {}", all_text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    /// Waits until all targets of the pool are whole.
    fn until_whole(&self) {
        loop {
            let pool = self.json(&["pool", "list"]);
            if pool[0]["targets"].as_array().unwrap().iter().all(|target| target["state"] == "up") {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until a target of an engine is not up: it has been called down.
    fn until_down(&self) {
        loop {
            let pool = self.json(&["pool", "list"]);
            if pool[0]["targets"].as_array().unwrap().iter().any(|target| target["state"] != "up") {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Compares what a container has with a directory.
    fn compare(&self, url: &str, expected: &Path) {
        let back = self.path("back");
        self.ok(&["fs", "cp", "-rT", url, back.to_str().unwrap()]);
        let diff = Command::new("diff").arg("-r").args([&back, expected]).output().unwrap();
        assert!(diff.status.success(), "{url}: {}", all_text(&diff));
        fs::remove_dir_all(back).unwrap();
    }
}

fn address(at: usize) -> String {
    format!("10.77.0.{}", at + 1)
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if thread::panicking() {
            for at in 0..ENGINES {
                let log = self.log(at);
                let lines: Vec<&str> = log.lines().collect();
                let tail = &lines[lines.len().saturating_sub(40)..];
                eprintln!("--- engine {at}:\n{}", tail.join("\n"));
            }
        }
        for at in 0..ENGINES {
            if let Some(child) = &mut self.engines.lock().unwrap()[at] {
                // A stopped one ends all the same.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        for at in 0..=CLIENT {
            ip(&["netns", "del", &self.name(at)]);
        }
        ip(&["netns", "del", &self.switch()]);
    }
}

fn tree(dir: &Path) {
    for below in ["a", "a/b", "c"] {
        fs::create_dir_all(dir.join(below)).unwrap();
        for number in 0..8u64 {
            let large = if below == "c" { 1_300_000 } else { 130_000 };
            let bytes = [0, 10, 700, 5_000, 70_000, large][number as usize % 6];
            let name = dir.join(below).join(format!("f{number}"));
            fs::write(name, noise(number, bytes)).unwrap();
        }
    }
}

/// Somebody who copies a tree into a container again and again, and compares it there.
struct Copier<'a> {
    hosts: &'a Hosts,
    cont: &'static str,
    tree: &'a Path,
    rounds: AtomicU64,
}

impl Copier<'_> {
    fn url(&self, round: u64) -> String {
        format!("azk://tank/{}/round{round}", self.cont)
    }

    fn run(&self, enough: &AtomicBool) {
        for round in 0.. {
            let tree = self.tree.to_str().unwrap();
            self.hosts.ok(&["fs", "cp", "-rT", "--verify", tree, &self.url(round)]);
            if round > 0 {
                self.hosts.ok(&["fs", "rm", "-r", &self.url(round - 1)]);
            }
            self.rounds.store(round + 1, Ordering::Relaxed);
            // While leaders change, nothing that is removed is freed: a machine that is fast enough
            // would fill the pool with what it has removed.
            thread::sleep(PAUSE);
            if enough.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Waits until it has begun a round after now, and ended it.
    fn until_further(&self, has_failed: impl Fn() -> bool) {
        let known = self.rounds.load(Ordering::Relaxed);
        while self.rounds.load(Ordering::Relaxed) < known + 2 {
            assert!(!has_failed(), "a copier has failed");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn copies_survive_engines_that_are_killed_stopped_and_cut_off() {
    let Some(hosts) = Hosts::start() else { return };
    let hosts = &hosts;
    // A first connection is not waited for: nobody may listen yet.
    let joined = || {
        let output = hosts.client(&["system", "list-engines", "--json"]);
        let engines: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        engines.as_array().map_or(0, Vec::len)
    };
    while joined() < ENGINES {
        thread::sleep(Duration::from_millis(100));
    }
    hosts.ok(&["pool", "create", "tank", "--size", "9GiB"]);
    hosts.ok(&["cont", "create", "tank", "one", "--rd-fac", "1"]);
    hosts.ok(&["cont", "create", "tank", "two", "--rd-fac", "2"]);
    let tree_dir = &hosts.path("tree");
    tree(tree_dir);
    let copier = |cont| Copier { hosts, cont, tree: tree_dir, rounds: AtomicU64::new(0) };
    let copiers = &[copier("one"), copier("two")];
    let enough = &AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> =
            copiers.iter().map(|copier| scope.spawn(|| copier.run(enough))).collect();
        let has_failed = || {
            let has_failed = threads.iter().any(|thread| thread.is_finished());
            if has_failed {
                // So that the other one ends.
                enough.store(true, Ordering::Relaxed);
            }
            has_failed
        };
        let further = || copiers.iter().for_each(|copier| copier.until_further(has_failed));
        further();
        eprintln!("engine 2 is killed");
        hosts.kill(2);
        hosts.until_down();
        further();
        hosts.spawn(2);
        hosts.until_whole();
        further();
        eprintln!("engine 1 stands still");
        hosts.signal(1, Signal::STOP);
        thread::sleep(STOPPED);
        hosts.signal(1, Signal::CONT);
        hosts.until_whole();
        further();
        for (from, to) in [(0, 2), (2, 0), (1, 2), (CLIENT, 1)] {
            eprintln!("{from} cannot send to {to}");
            hosts.cut(from, to);
            thread::sleep(CUT);
            hosts.mend(from, to);
            hosts.until_whole();
            further();
        }
        enough.store(true, Ordering::Relaxed);
    });
    let compare = || {
        for copier in copiers {
            hosts.compare(&copier.url(copier.rounds.load(Ordering::Relaxed) - 1), tree_dir);
            let check = hosts.json(&["fs", "check", &format!("azk://tank/{}", copier.cont)]);
            assert_eq!(check["clean"], true, "{check}");
        }
    };
    compare();
    // Each copy is whole.
    for lost in [1, 2] {
        hosts.kill(lost);
        hosts.until_down();
        compare();
        hosts.spawn(lost);
        hosts.until_whole();
    }
    compare();
    // What was removed meanwhile is freed, on all members.
    for copier in copiers {
        let url = format!("azk://tank/{}", copier.cont);
        while hosts.json(&["fs", "check", &url])["waiting"] != 0 {
            thread::sleep(Duration::from_secs(1));
        }
    }
}
