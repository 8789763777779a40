//! The real coordinator, in a process of its own that can be killed.

use crate::harness::{BYTES, Coordinator, c_program, data, finish, library, run, start};
use coordinate::server::trace::{Line, What};
use coordinate::server::{Listen, Server, ServerConfig};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set for the test below, which then is a coordinator: the file with its settings.
const SERVE: &str = "AZEKURA_TEST_IOC_SERVE";
const PATIENCE: Duration = Duration::from_secs(120);

/// Not a test: what [`Process::start`] runs as a process of its own.
#[test]
fn serve() {
    let Some(config) = std::env::var_os(SERVE).map(PathBuf::from) else { return };
    let server = Server::start(&ServerConfig::read(&config).unwrap()).unwrap();
    let listening: Vec<String> = server.listening.iter().map(Listen::to_string).collect();
    let ready = config.with_extension("ready");
    std::fs::write(ready.with_extension("new"), listening.join("\n")).unwrap();
    std::fs::rename(ready.with_extension("new"), ready).unwrap();
    server.join().unwrap();
}

/// A directory with a coordinator's files, in which programs work.
struct Site {
    dir: tempfile::TempDir,
}

/// A coordinator that runs. It is killed at the end.
struct Process {
    child: Child,
    endpoint: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Site {
    fn new(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display();
        let trace = format!("trace = \"{path}/trace\"\n");
        let unix = format!("listen = [\"unix:{path}/ioc.sock\"]\n");
        let listen = if settings.contains("listen =") { "" } else { &unix };
        std::fs::write(dir.path().join("config"), format!("{listen}{trace}{settings}")).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&self) -> Process {
        let ready = self.path("config.ready");
        let _ = std::fs::remove_file(&ready);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "real::serve", "--nocapture"])
            .env(SERVE, self.path("config"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut process = Process { child, endpoint: String::new() };
        wait_until("the coordinator listens", || ready.exists());
        process.endpoint = std::fs::read_to_string(&ready).unwrap();
        process
    }

    fn command(&self, program: impl AsRef<Path>, endpoint: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .current_dir(self.dir.path())
            .env("LD_PRELOAD", library())
            .env("AZEKURA_IOC", endpoint)
            .env("AZEKURA_IOC_CONFIG", "")
            .env("AZEKURA_IOC_MIN_SIZE", "64KiB");
        command
    }

    fn threads(&self, endpoint: &str) -> Command {
        let mut command = self.command(c_program("threads"), endpoint);
        command.arg("threads").arg(self.dir.path()).arg(BYTES.to_string());
        command
    }

    /// The trace as far as it has been written.
    fn trace(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.path("trace")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).expect("a line of a trace")).collect()
    }

    fn count(&self, what: What) -> usize {
        self.trace().iter().filter(|line| line.what == what).count()
    }

    fn wait_for(&self, what: What, count: usize) {
        wait_until(&format!("{count} lines {what:?}"), || self.count(what) >= count);
        assert_eq!(self.count(what), count, "{what:?}");
    }
}

fn wait_until(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn programs_side_by_side_keep_the_limit() {
    let site = Site::new("max_writers = 2\n");
    let coordinator = site.start();
    std::fs::write(site.path("input"), data(10 * BYTES)).unwrap();
    let copies = (0..3).map(|number| {
        let mut dd = site.command("dd", &coordinator.endpoint);
        dd.args(["if=input", &format!("of=copy{number}"), &format!("bs={BYTES}")]);
        dd
    });
    let running: Vec<Child> =
        copies.chain([site.threads(&coordinator.endpoint)]).map(start).collect();
    running.into_iter().for_each(|child| {
        finish(child);
    });
    for number in 0..3 {
        assert!(std::fs::read(site.path(&format!("copy{number}"))).unwrap() == data(10 * BYTES));
    }
    for thread in 0..8 {
        let file = std::fs::read(site.path(&format!("thread{thread}"))).unwrap();
        assert!(file == data(BYTES).repeat(5));
    }
    site.wait_for(What::Completed, 70);
    let (mut inside, mut inside_max) = (0, 0);
    for line in site.trace() {
        match line.what {
            What::Grant => inside += 1,
            What::Completed => inside -= 1,
            other => panic!("{other:?}"),
        }
        inside_max = inside_max.max(inside);
    }
    assert_eq!(inside, 0);
    assert!(inside_max <= 2, "{inside_max} writers at a time");
}

/// The coordinator is killed under a program's writes, and another one takes its place.
#[test]
fn a_killed_coordinator_loses_nothing() {
    let site = Site::new("max_writers = 1\n");
    let mut coordinator = site.start();
    let mut dd = site.command("dd", &coordinator.endpoint);
    dd.args(["of=output", &format!("bs={BYTES}"), "iflag=fullblock"]);
    dd.env("AZEKURA_IOC_BACKOFF", "1ms").env("AZEKURA_IOC_BACKOFF_MAX", "1ms");
    let mut child = start(dd);
    let mut stdin = child.stdin.take().unwrap();
    let block = data(BYTES);
    let mut put = || std::io::Write::write_all(&mut stdin, &block).unwrap();
    let mut blocks = 0;
    for _ in 0..3 {
        let before = site.count(What::Completed);
        // Until it is found, calls go by; then they ask.
        while site.count(What::Completed) == before {
            put();
            blocks += 1;
        }
        drop(coordinator);
        for _ in 0..3 {
            put();
            blocks += 1;
        }
        coordinator = site.start();
    }
    drop(stdin);
    finish(child);
    assert!(std::fs::read(site.path("output")).unwrap() == block.repeat(blocks));
}

#[test]
fn over_tcp_with_the_right_token_only() {
    let site = Site::new("listen = [\"tcp:127.0.0.1:0\"]\ntoken_file = \"token\"\n");
    let config = std::fs::read_to_string(site.path("config")).unwrap();
    let token = site.path("token");
    let config = config.replace("\"token\"", &format!("\"{}\"", token.display()));
    std::fs::write(site.path("config"), config).unwrap();
    std::fs::write(&token, "the shared secret\n").unwrap();
    std::fs::write(site.path("other"), "another\n").unwrap();
    let coordinator = site.start();
    for (file, writes) in [("other", 0), ("token", 40)] {
        let mut threads = site.threads(&coordinator.endpoint);
        threads.env("AZEKURA_IOC_TOKEN_FILE", site.path(file));
        threads.env("AZEKURA_IOC_LOG", site.path("log"));
        run(threads);
        site.wait_for(What::Completed, writes);
    }
    let log = std::fs::read_to_string(site.path("log")).unwrap();
    assert!(log.contains("the coordinator refuses: Token"), "{log}");
}

/// The coordinator wishes a smaller size than the clients have set; it holds from the first answer.
#[test]
fn the_coordinators_least_size_goes_over_the_clients() {
    let site = Site::new("min_write_size = 1000\n");
    let coordinator = site.start();
    std::fs::write(site.path("input"), data(70_000)).unwrap();
    let mut dd = site.command("dd", &coordinator.endpoint);
    // One block that asks by the client's setting, then smaller ones.
    dd.args(["if=input", "of=output", "ibs=70000", "obs=70000"]);
    run(dd);
    site.wait_for(What::Completed, 1);
    let mut python = site.command("python3", &coordinator.endpoint);
    python.args([
        "-c",
        "
import os
fd = os.open('small', os.O_WRONLY | os.O_CREAT)
for size in 900, 2000, 70000, 2000, 900, 1000:
    assert os.write(fd, bytes(size)) == size
",
    ]);
    if preload::harness::has("python3") {
        run(python);
        site.wait_for(What::Completed, 4);
    }
}

/// An MPI program, each process in its place by rank.
#[test]
fn an_mpi_program() {
    if !preload::harness::has("mpicc") || !preload::harness::has("mpirun") {
        return;
    }
    let coordinator = Coordinator::granting(1);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload/c/ranks.c");
    let program = coordinator.dir().join("ranks");
    let built = Command::new("mpicc").arg("-o").arg(&program).arg(source).status().unwrap();
    assert!(built.success());
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["-n", "3"]).arg("env").current_dir(coordinator.dir());
    mpirun.arg(format!("LD_PRELOAD={}", library().display()));
    mpirun.arg(format!("AZEKURA_IOC=unix:{}", coordinator.socket().display()));
    mpirun.args(["AZEKURA_IOC_CONFIG=", "AZEKURA_IOC_MIN_SIZE=64KiB"]);
    mpirun.arg(&program).arg(BYTES.to_string());
    for (name, value) in [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]
    {
        mpirun.env(name, value);
    }
    mpirun.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    run(mpirun);
    for rank in 0..3 {
        assert!(coordinator.file(&format!("rank{rank}")) == data(BYTES));
    }
    let ours = coordinator.writes().iter().filter(|bytes| **bytes == BYTES as u64).count();
    assert_eq!(ours, 3);
    let hellos = coordinator.seen().hellos.join("\n");
    for rank in 0..3 {
        assert!(hellos.contains(&format!("Some({rank})")), "{hellos}");
    }
}
