//! Programs that sit idle with a lock while their server is started again.

use crate::harness::PREFIX;
use preload::harness::{command, finish, library, start};
use sim::LocalSystem;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use types::{ContLayout, Durability};

/// As long as servers give locks to those only who had them before a restart, and some more.
const LONGER_THAN_GRACE: Duration = Duration::from_secs(7);

/// `flock` on a file of a system, and its answer when it is tried.
struct Locker {
    socket: String,
}

impl Locker {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = command("flock", &library("libazekura_intercept.so"));
        command
            .env("AZEKURA_SYSTEM", format!("unix:{}", self.socket))
            .env("AZEKURA_INTERCEPT", format!("azk://p/c={PREFIX}"))
            .stdin(Stdio::null())
            .args(args);
        command
    }

    /// Who holds the lock and calls nothing; until it is killed.
    fn hold(&self, option: &str) -> Child {
        let file = format!("{PREFIX}/{option}");
        start(self.command(&[option, &file, "sleep", "600"]).process_group(0))
    }

    fn is_free(&self, option: &str) -> bool {
        let file = format!("{PREFIX}/{option}");
        let output = finish(start(&mut self.command(&["-n", "-E", "9", &file, "true"])));
        match output.status.code() {
            Some(0) => true,
            Some(9) => false,
            _ => panic!("{output:?}"),
        }
    }
}

/// `flock FILE -c 'long job'` sits in `waitpid`: five seconds after its server had been started again another one got the lock, and neither was told. With `-o`
/// the job does not have the file, and `flock` alone keeps it.
#[test]
fn who_sits_idle_with_a_lock_has_it_after_a_restart() {
    if !preload::harness::has("flock") {
        return;
    }
    let mut system = LocalSystem::start(1, 1).unwrap();
    {
        let client = system.client(false).unwrap();
        let cont = system.container(&client, Durability::Wal, ContLayout::Posix).unwrap();
        let options = dfs::FormatOptions { mode: 0o777, uid: 0, gid: 0 };
        client.block_on(dfs::Dfs::format(&cont, &options)).unwrap();
    }
    let engines = system.options(false).system.engines;
    let socket = engines.iter().find_map(|engine| match engine {
        transport::Address::Unix(path) => Some(path.display().to_string()),
        _ => None,
    });
    let locker = Locker { socket: socket.unwrap() };
    let options = ["-x", "-o"];
    let holders: Vec<Child> = options.iter().map(|option| locker.hold(option)).collect();
    for option in options {
        let deadline = Instant::now() + preload::harness::RUN_TIME_MAX;
        while locker.is_free(option) {
            assert!(Instant::now() < deadline, "flock {option} does not begin");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    system.stop_engine(0).unwrap();
    system.start_engine(0).unwrap();
    std::thread::sleep(LONGER_THAN_GRACE);
    let free: Vec<&str> = options.into_iter().filter(|option| locker.is_free(option)).collect();
    for mut holder in holders {
        // With its `sleep`.
        let group = rustix::process::Pid::from_child(&holder);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        holder.wait().unwrap();
    }
    assert_eq!(free, Vec::<&str>::new(), "others got the lock while it was held");
    for option in options {
        let file = format!("{PREFIX}/{option}");
        let output = finish(start(&mut locker.command(&["-w", "60", &file, "true"])));
        assert!(output.status.success(), "{option}: {output:?}");
    }
}
