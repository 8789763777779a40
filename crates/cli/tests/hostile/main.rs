//! A hostile client against a real engine: what it does costs it its connections, and nobody else
//! anything. After each act a good client's work goes on, and the engine's descriptors and
//! memory are back.

mod acts;
#[path = "../harness/mod.rs"]
mod harness;
mod wire_client;

use client::{ArrayObj, Client, ConnectOptions, KvObj, SystemAddress};
use harness::{System, all_text};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use transport::Address;
use types::{Epoch, ObjType, TargetId};
use wire::control::{Name, OpenMode};
use wire::hello::Service;
use wire::obj::{
    Batch, Cond, FetchIod, FetchWant, Op, Recx, Request, Sums, UpdateIod, UpdateValue,
};
use wire::{Header, Kind};
use wire_client::Goal;

const ACT_VAR: &str = "AZEKURA_TEST_HOSTILE_ACT";
/// Descriptors that an engine may have more than before: files of its own. Each act would leave
/// hundreds.
const FD_SLACK: usize = 10;
/// What the engine may take for messages: an eighth of it for one host's answers.
const MESSAGE_MEMORY: &str = "256MiB";
/// Memory that it may have more: pages that the allocator keeps.
const MEMORY_SLACK_BYTES: u64 = 96 << 20;
/// The same while answers of some gigabytes are not taken.
const HELD_SLACK_BYTES: u64 = 192 << 20;

/// Not a test of its own: the process that is hostile.
#[test]
fn hostile_process() {
    let Ok(act) = std::env::var(ACT_VAR) else { return };
    let var = |name: &str| std::env::var(format!("{ACT_VAR}_{name}")).unwrap();
    let goal = Goal { unix: var("UNIX"), tcp: var("TCP"), token: var("TOKEN").into_bytes() };
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    if maximum.is_some_and(|most| most < 5000) {
        println!("SKIPPED: {act} with fewer connections than it wants: {maximum:?} descriptors");
    }
    let mut captured = Vec::new();
    std::io::stdin().read_to_end(&mut captured).unwrap();
    let captured: Vec<Vec<u8>> = wire::decode(&captured).unwrap();
    acts::run(&act, &goal, &captured, || {
        println!("holding");
        // Until the test has seen what it wanted, and removes the file.
        while Path::new(&var("HOLD")).exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// A user of this machine who has come for this test.
struct Guest {
    uid: u32,
    gid: u32,
    /// Whom to remove at the end.
    name: Option<String>,
}

impl Guest {
    /// A new user, or `nobody` where none can be made.
    fn new() -> Guest {
        let name = format!("azk-guest-{}", std::process::id());
        let said = |program: &str, args: &[&str]| match Command::new(program).args(args).output() {
            Ok(output) if output.status.success() => {
                Ok(String::from_utf8(output.stdout).unwrap().trim().to_string())
            }
            Ok(output) => Err(all_text(&output)),
            Err(error) => Err(error.to_string()),
        };
        let options = ["--system", "--no-create-home", "--shell", "/usr/sbin/nologin", &name];
        if let Err(error) = said("useradd", &options) {
            println!("SKIPPED: a user of its own for the hostile client, who is nobody: {error}");
            return Guest { uid: 65534, gid: 65534, name: None };
        }
        let id = |option: &str| said("id", &[option, &name]).unwrap().parse().unwrap();
        Guest { uid: id("-u"), gid: id("-g"), name: Some(name) }
    }

    /// Has a program run as this user.
    fn run_as<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.uid(self.uid).gid(self.gid)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && !Command::new("userdel").arg(name).status().is_ok_and(|status| status.success())
        {
            eprintln!("the user {name} could not be removed");
        }
    }
}

/// An engine and what is known of it.
struct Bench {
    system: System,
    goal: Goal,
    pid: u64,
    captured: Vec<u8>,
    /// The user who is hostile; `None`: ours.
    user: Option<Guest>,
}

impl Bench {
    fn new() -> Bench {
        let system = System::none();
        system.ok(&["up", "--engines", "1", "--targets", "2"]);
        for pool in ["tank", "bait"] {
            system.ok(&["pool", "create", pool, "--size", "256MiB"]);
        }
        system.ok(&["cont", "create", "tank", "home"]);
        system.ok(&["cont", "create", "tank", "keys", "--type", "plain"]);
        system.ok(&["cont", "create", "bait", "home", "--type", "plain"]);
        let file = client::SystemFile::read(&system.dir()).unwrap();
        let token = match &file.token_file {
            Some(path) => std::fs::read(system.dir().join(path)).unwrap().trim_ascii().to_vec(),
            None => Vec::new(),
        };
        let engine = &file.engines[0];
        let goal = Goal { unix: engine.unix.display().to_string(), tcp: engine.tcp.clone(), token };
        let mut bench = Bench { system, goal, pid: 0, captured: Vec::new(), user: None };
        let mut captured = bench.capture();
        captured.extend(bench.prepare_asks());
        bench.captured = wire::encode(&captured);
        // It was restarted meanwhile.
        bench.pid = bench.system.pids()[0];
        bench.user = bench.other_user();
        bench
    }

    /// What a good client says over TCP, connection by connection.
    fn capture(&self) -> Vec<Vec<u8>> {
        let heard = Arc::new(Mutex::new(Vec::<Vec<u8>>::new()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap().to_string();
        let (there, all) = (self.goal.tcp.clone(), heard.clone());
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (near, far) = (socket.unwrap(), TcpStream::connect(&there).unwrap());
                let index = {
                    let mut all = all.lock().unwrap();
                    all.push(Vec::new());
                    all.len() - 1
                };
                let (mut back_from, mut back_to) =
                    (far.try_clone().unwrap(), near.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
                let (all, mut near, mut far) = (all.clone(), near, far);
                std::thread::spawn(move || {
                    let mut piece = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = near.read(&mut piece) {
                        all.lock().unwrap()[index].extend_from_slice(&piece[..count]);
                        if far.write_all(&piece[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        // The engine says that it is where we listen, so that its targets are asked there, too.
        let config = self.system.dir().join("engine0/engine.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        let mut set: toml::Table = text.parse().unwrap();
        set.insert("advertise".into(), proxy.clone().into());
        self.system.ok(&["down"]);
        std::fs::write(&config, set.to_string()).unwrap();
        self.system.ok(&["up"]);
        let engines = vec![Address::Tcp(proxy)];
        let mut options =
            ConnectOptions::new(SystemAddress { engines, token: self.goal.token.clone() });
        options.tcp_only = true;
        let client = Client::connect(options).unwrap();
        client.block_on(async {
            let name = |text: &str| Name::Label(text.into());
            let pool = client.pool_open(&name("bait"), OpenMode::ReadWrite).await.unwrap();
            let cont = pool.cont_open(&name("home"), OpenMode::ReadWrite).await.unwrap();
            let oid = cont.generate_oid(ObjType::KvHashed, "SX".parse().unwrap(), 0, 7).unwrap();
            let kv = KvObj { object: cont.object(oid) };
            for key in 0..20u8 {
                let value = vec![key; key as usize * 700];
                kv.put(None, Cond::NONE, &[key], &value).await.unwrap();
                assert_eq!(kv.get(None, &[key]).await.unwrap().unwrap(), value);
            }
            kv.remove(None, Cond::NONE, &[3]).await.unwrap();
        });
        drop(client);
        self.system.ok(&["down"]);
        std::fs::write(&config, text).unwrap();
        self.system.ok(&["up"]);
        let mut heard = heard.lock().unwrap().clone();
        heard.retain(|bytes| !bytes.is_empty());
        assert!(heard.len() >= 3, "the control service and two targets were asked");
        heard
    }

    /// Writes something large to the first target, and many objects; returns a request that reads the one and one that lists
    /// the others.
    fn prepare_asks(&self) -> [Vec<u8>; acts::ASKS] {
        let config = self.system.dir().join("engine0/engine.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        self.system.ok(&["down"]);
        let mut set: toml::Table = text.parse().unwrap();
        set.insert("message_memory".into(), MESSAGE_MEMORY.into());
        std::fs::write(&config, set.to_string()).unwrap();
        self.system.ok(&["up"]);
        let engines = vec![Address::Tcp(self.goal.tcp.clone())];
        let options =
            ConnectOptions::new(SystemAddress { engines, token: self.goal.token.clone() });
        let client = Client::connect(options).unwrap();
        client.block_on(async {
            let name = |text: &str| Name::Label(text.into());
            let pool = client.pool_open(&name("bait"), OpenMode::ReadWrite).await.unwrap();
            let cont = pool.cont_open(&name("home"), OpenMode::ReadWrite).await.unwrap();
            let class = "S1".parse().unwrap();
            let oid = cont.generate_oid(ObjType::ArrayByte, class, 0, 8).unwrap();
            let oid = oid.with_placement_hint(cont.hint_for(TargetId(0)));
            let count = acts::UNREAD_BYTES as u64;
            let array = ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: count };
            let data = harness::noise(8, acts::UNREAD_BYTES);
            array.write(&[Recx { index: 0, count }], &[&data]).await.unwrap();
            let recxs = vec![Recx { index: 0, count }];
            let want = FetchWant::Array { record_bytes: 1, recxs };
            let (dkey, iods) = (1u64.to_le_bytes(), vec![FetchIod { akey: b"", want }]);
            let ops =
                vec![Op::Fetch { unit: oid.first_unit(), dkey: &dkey, cond: Cond::NONE, iods }];
            let (pool, checks) = (pool.info().id, Vec::new());
            let (at, sums) = (Epoch::ZERO, Sums::NONE);
            let numbers: Vec<u64> = (100..100 + acts::LISTED).collect();
            for numbers in numbers.chunks(500) {
                let mut batch = cont.batch();
                for &number in numbers {
                    let oid = cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap();
                    let oid = oid.with_placement_hint(cont.hint_for(TargetId(0)));
                    let value = UpdateValue::Inline(b"x");
                    let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
                    let unit = oid.first_unit();
                    batch.op(Op::Update { unit, dkey: b"k", cond: Cond::NONE, iods });
                }
                batch.run().await.unwrap();
            }
            let cont = cont.id();
            let list = Request::ListObjects { pool, cont, at, after: None, count_max: u32::MAX };
            let read = Request::Batch(Batch { pool, cont, at, checks, ops, sums });
            [wire::encode(&read), wire::encode(&list)]
        })
    }

    /// A second user to be hostile as, if we may.
    fn other_user(&self) -> Option<Guest> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: no second user without the superuser; the hostile client is ours");
            return None;
        }
        let guest = Guest::new();
        for dir in
            [self.system.scratch.path(), &self.system.dir(), &self.system.dir().join("engine0")]
        {
            std::fs::set_permissions(dir, PermissionsExt::from_mode(0o711)).unwrap();
        }
        let own = std::env::current_exe().unwrap();
        let mut tried = Command::new(own);
        guest.run_as(tried.args(["--list"]).current_dir("/")).stdout(Stdio::null());
        match tried.status() {
            Ok(status) if status.success() => Some(guest),
            other => {
                println!("SKIPPED: user {} cannot run this test's program ({other:?})", guest.uid);
                None
            }
        }
    }

    /// Descriptors of the engine.
    fn fd_count(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().count()
    }

    /// Memory of the engine, bytes.
    fn memory_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Answers challenges for whoever asks at the socket `hello`.
    fn prove_for_others(&self) {
        let path = self.system.path("hello");
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let token = self.goal.token.clone();
        std::thread::spawn(move || {
            for mut asker in listener.incoming().map_while(Result::ok) {
                let mut challenge = [0; 32];
                // An asker that is gone needs no answer.
                if asker.read_exact(&mut challenge).is_ok() {
                    let service = Service::Target(TargetId(0));
                    let _ = asker.write_all(&wire_client::hello(challenge, &token, service, 0));
                }
            }
        });
    }

    /// Compiles the hostile client that is in C. False, and loudly, where there is no compiler.
    fn has_c_client(&self) -> bool {
        let ping = wire_client::frame(Header::new(Kind::Ping, 1, &[], 0), &[], |_| {});
        std::fs::write(self.system.path("ping"), ping).unwrap();
        self.prove_for_others();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/hostile.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
        match compiler.arg(self.system.path("hostile")).arg(source).output() {
            Ok(output) => {
                assert!(output.status.success(), "{}", all_text(&output));
                true
            }
            Err(error) => {
                println!("SKIPPED: the hostile client in C: {error}");
                false
            }
        }
    }

    /// The process that does a hostile act.
    fn hostile(&self, act: &str, hold: &Path) -> Command {
        let Some(act) = act.strip_prefix("c:") else {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["hostile_process", "--exact", "--nocapture"]).env(ACT_VAR, act);
            let token = String::from_utf8(self.goal.token.clone()).unwrap();
            let hold = hold.display().to_string();
            let all = [&self.goal.unix, &self.goal.tcp, &token, &hold];
            for (name, value) in ["UNIX", "TCP", "TOKEN", "HOLD"].into_iter().zip(all) {
                command.env(format!("{ACT_VAR}_{name}"), value);
            }
            command.stdin(Stdio::piped());
            return command;
        };
        let mut command = Command::new(self.system.path("hostile"));
        command.arg(act).arg(&self.goal.unix);
        command.args(["hello", "ping"].map(|name| self.system.path(name))).arg(hold);
        command.stdin(Stdio::null());
        command
    }

    /// A good client's work.
    fn work(&self, round: usize) {
        let (path, back) = (self.system.path("data"), self.system.path("back"));
        let data = harness::noise(round as u64, 3 << 20);
        std::fs::write(&path, &data).unwrap();
        let url = format!("azk://tank/home/f{round}");
        self.system.ok(&["fs", "put", path.to_str().unwrap(), &url]);
        let _ = std::fs::remove_file(&back);
        self.system.ok(&["fs", "get", &url, back.to_str().unwrap()]);
        assert!(std::fs::read(&back).unwrap() == data);
        assert_eq!(self.system.pids(), [self.pid], "the engine is the one that was");
        // The same of one that has never been here and comes over the network.
        let engines = vec![Address::Tcp(self.goal.tcp.clone())];
        let mut options =
            ConnectOptions::new(SystemAddress { engines, token: self.goal.token.clone() });
        options.tcp_only = true;
        let begun = Instant::now();
        let client = Client::connect(options).unwrap();
        client.block_on(async {
            let name = |text: &str| Name::Label(text.into());
            let pool = client.pool_open(&name("tank"), OpenMode::ReadWrite).await.unwrap();
            let cont = pool.cont_open(&name("keys"), OpenMode::ReadWrite).await.unwrap();
            let oid = cont.generate_oid(ObjType::KvHashed, "SX".parse().unwrap(), 0, 9).unwrap();
            let kv = KvObj { object: cont.object(oid) };
            kv.put(None, Cond::NONE, b"round", &round.to_le_bytes()).await.unwrap();
            let found = kv.get(None, b"round").await.unwrap();
            assert_eq!(found.as_deref(), Some(&round.to_le_bytes()[..]));
        });
        println!("round {round}: a newcomer was served in {:?}", begun.elapsed());
    }

    /// Has the hostile process do something; while it holds what it has, and afterwards, a good
    /// client works.
    fn suffer(&self, round: usize, act: &str) {
        let memory = self.memory_bytes();
        let hold = self.system.path("hold");
        std::fs::write(&hold, "").unwrap();
        let mut command = self.hostile(act, &hold);
        command.current_dir("/").stdout(Stdio::piped());
        if let Some(user) = &self.user {
            user.run_as(&mut command);
        }
        let mut child = command.spawn().unwrap();
        if let Some(mut input) = child.stdin.take() {
            input.write_all(&self.captured).unwrap();
        }
        let mut said = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if line.contains("holding") {
                self.work(round);
                let now = self.memory_bytes();
                println!("{act}: {} KiB while it holds", now >> 10);
                let most = memory + HELD_SLACK_BYTES;
                let asks_much = ["unread", "lists"].contains(&act);
                assert!(!asks_much || now <= most, "{act}: {now} bytes, {memory} before");
                // What it holds is seen, and within what an eighth of all may be, or twice that for a connection.
                let engine = self.system.json(&["status"])["engines"][0].clone();
                let [held, held_max] = ["message_bytes", "message_bytes_max"]
                    .map(|key| engine[key].as_u64().expect("status tells it"));
                assert_eq!(held_max, 256 << 20);
                assert!(held < held_max / 2, "{act}: {held} bytes of messages");
                assert!(!asks_much || held > 0, "{act}: nothing is counted");
                std::fs::remove_file(&hold).unwrap();
            }
            said.push_str(&line);
            said.push('\n');
        }
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{act}: {said}{}", all_text(&output));
    }
}

#[test]
fn whatever_a_hostile_client_does_others_work_on_and_nothing_is_kept() {
    let bench = Bench::new();
    bench.work(1000);
    let in_c = if bench.has_c_client() { &["c:race", "c:loops", "c:orphans"][..] } else { &[] };
    for (round, act) in acts::ACTS.iter().chain(in_c).enumerate() {
        let (fds, memory) = (bench.fd_count(), bench.memory_bytes());
        bench.suffer(round, act);
        bench.work(round + 100);
        // The good client's own connections end a moment after it.
        let mut tries = 0;
        while bench.fd_count() > fds + FD_SLACK {
            std::thread::sleep(Duration::from_millis(50));
            tries += 1;
            assert!(tries < 1200, "{act}: {} descriptors, {fds} before", bench.fd_count());
        }
        let now = bench.memory_bytes();
        assert!(now <= memory + MEMORY_SLACK_BYTES, "{act}: {now} bytes, {memory} before");
        println!("{act}: {fds} descriptors, {} -> {} KiB", memory >> 10, now >> 10);
    }
}

/// Engines run by the superuser could reach every process; see `docs/security.md`.
#[test]
fn an_engine_has_no_capabilities() {
    let system = System::up(1, 2);
    let pid = system.pids()[0];
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let text = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        assert_eq!(value("CapEff:"), 0, "{text}");
        assert_eq!(value("CapInh:"), 0, "{text}");
        if rustix::process::geteuid().is_root() {
            assert_eq!(value("CapBnd:"), 0, "{text}");
        } else {
            assert_eq!(value("CapPrm:"), 0, "{text}");
        }
    }
}

/// An engine that everybody may reach and that asks nobody for a secret was served without a word. It runs in a network of
/// its own here, so that nobody is let in.
#[test]
fn an_engine_that_is_open_to_all_starts_only_if_that_is_meant_and_says_so() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a network of its own needs the superuser");
        return;
    }
    let system = System::up(1, 1);
    system.ok(&["down"]);
    let config = system.dir().join("engine0/engine.toml");
    let mut set: toml::Table = std::fs::read_to_string(&config).unwrap().parse().unwrap();
    set.remove("token_file").expect("a secret that is asked for");
    // Nor is one shown.
    std::fs::write(system.dir().join("token"), "").unwrap();
    set.insert("listen".into(), "0.0.0.0:0".into());
    let apart = |set: &toml::Table, args: &[&str]| {
        std::fs::write(&config, set.to_string()).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--net", env!("CARGO_BIN_EXE_azekura"), "--system"]).arg(system.dir());
        command.args(args).stdin(Stdio::null()).output().unwrap()
    };
    let refused = apart(&set, &["up"]);
    let said = all_text(&refused);
    assert!(!refused.status.success() && said.contains("insecure = true"), "{said}");
    set.insert("insecure".into(), true.into());
    let started = apart(&set, &["up"]);
    assert!(started.status.success(), "{}", all_text(&started));
    let status = all_text(&apart(&set, &["status"]));
    assert!(status.contains("INSECURE: engine 0"), "{status}");
    let log = std::fs::read_to_string(system.dir().join("engine0/engine.log")).unwrap();
    assert!(log.contains("INSECURE"), "{log}");
}
