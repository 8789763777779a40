//! Three engines, each a process with its own file, whose catalog is in an etcd.

#![allow(dead_code, reason = "each test file uses a part of this")]

use crate::etcd_server::EtcdServer;
use crate::harness::{all_text, azekura};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

pub const ENGINES: usize = 3;

/// Exit codes of what may go well a little later: no answer, busy.
const LATER: [i32; 2] = [6, 7];
const EXISTS: i32 = 4;

/// The configuration of an engine in a directory, whose catalog is below a prefix.
pub fn config(dir: &Path, endpoints: &[String], prefix: &str) -> String {
    format!(
        "dir = '{0}'\n[catalog]\nkind = 'etcd'\nprefix = '{prefix}'\nendpoints = {endpoints:?}\n\
         [[target]]\ndevice = '{0}/t'\n",
        dir.display(),
    )
}

/// The engines end with the value.
pub struct Trio {
    pub scratch: tempfile::TempDir,
    engines: Mutex<Vec<Option<Child>>>,
}

impl Trio {
    /// Three engines that serve, with one target each.
    pub fn start(etcd: &EtcdServer) -> Trio {
        Trio::start_on(&[etcd.endpoint()])
    }

    /// The same with the catalog at these members.
    pub fn start_on(endpoints: &[String]) -> Trio {
        let trio = Trio {
            scratch: tempfile::tempdir().unwrap(),
            engines: Mutex::new((0..ENGINES).map(|_| None).collect()),
        };
        let mut reach = Vec::new();
        for at in 0..ENGINES {
            let dir = trio.dir(at);
            fs::create_dir_all(dir.join("t")).unwrap();
            fs::write(dir.join("engine.toml"), config(&dir, endpoints, "azekura")).unwrap();
            // Nobody listens at the TCP address: engines choose theirs anew at each start.
            reach
                .push(serde_json::json!({ "unix": dir.join("engine.sock"), "tcp": "127.0.0.1:1" }));
        }
        let system = serde_json::json!({ "engines": reach }).to_string();
        fs::write(trio.scratch.path().join("system.json"), system).unwrap();
        (0..ENGINES).for_each(|at| trio.spawn(at));
        (0..ENGINES).for_each(|at| trio.wait(at));
        trio
    }

    pub fn dir(&self, at: usize) -> PathBuf {
        self.scratch.path().join(format!("e{at}"))
    }

    /// Starts an engine's process.
    pub fn spawn(&self, at: usize) {
        let dir = self.dir(at);
        let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let mut command = azekura();
        command.args(["engine", "--config"]).arg(dir.join("engine.toml"));
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.engines.lock().unwrap()[at] = Some(child);
    }

    /// Waits until an engine serves.
    pub fn wait(&self, at: usize) {
        let pid = self.pid(at).to_string();
        let is_up = || {
            let text = fs::read_to_string(self.dir(at).join("engine.pid")).unwrap_or_default();
            text.split_whitespace().next() == Some(&pid)
        };
        while !is_up() {
            let ended = self.engines.lock().unwrap()[at].as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "engine {at} ended: {}", self.log(at));
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn pid(&self, at: usize) -> u32 {
        self.engines.lock().unwrap()[at].as_ref().unwrap().id()
    }

    pub fn log(&self, at: usize) -> String {
        fs::read_to_string(self.dir(at).join("log")).unwrap_or_default()
    }

    /// Stops an engine in order.
    pub fn stop(&self, at: usize) {
        let mut child = self.engines.lock().unwrap()[at].take().unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "engine {at}: {status}: {}", self.log(at));
    }

    /// Waits until all targets of all pools are up and in their places.
    pub fn until_whole(&self) {
        loop {
            let output = self.output(&["pool", "list", "--json"]);
            let pools: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let is_up = |target: &Value| target["state"] == "up";
            let is_whole =
                |pool: &Value| pool["targets"].as_array().is_some_and(|all| all.iter().all(is_up));
            if pools.as_array().is_some_and(|pools| pools.iter().all(is_whole)) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends an engine as a crash does.
    pub fn kill(&self, at: usize) {
        let child = self.engines.lock().unwrap()[at].take();
        if let Some(mut child) = child {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// A command for the system, through whichever engine answers.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = azekura();
        command.arg("--system").arg(self.scratch.path()).args(args);
        command
    }

    /// A command through one engine.
    pub fn command_at(&self, at: usize, args: &[&str]) -> Command {
        let mut command = azekura();
        let address = format!("unix:{}", self.dir(at).join("engine.sock").display());
        command.args(["--system", &address]).args(args);
        command
    }

    /// Runs a command that must succeed; returns what it printed.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", all_text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command that makes something until that is there.
    #[track_caller]
    pub fn make(&self, command: impl Fn() -> Command) {
        loop {
            let output = command().output().unwrap();
            match output.status.code() {
                // One that was not answered may have been carried out.
                Some(0 | EXISTS) => return,
                Some(code) if LATER.contains(&code) => thread::sleep(Duration::from_millis(200)),
                _ => panic!("{:?}: {}", command(), all_text(&output)),
            }
        }
    }

    /// What one engine says of the system.
    pub fn status_at(&self, at: usize) -> Value {
        loop {
            let output = self.command_at(at, &["status", "--json"]).output().unwrap();
            let status: Value = serde_json::from_slice(&output.stdout).unwrap();
            // On its way from one to another.
            if status["leader"].is_number() {
                return status;
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Which engine holds the control service, as one of them says.
    pub fn leader_at(&self, at: usize) -> usize {
        let status = self.status_at(at);
        let tcp = |rank: &Value| {
            let engines = status["engines"].as_array().unwrap();
            engines.iter().find(|engine| engine["rank"] == *rank).unwrap()["tcp"].clone()
        };
        let address = tcp(&status["leader"]);
        let says = format!("serves at {}", address.as_str().unwrap());
        (0..ENGINES).find(|at| self.log(*at).contains(&says)).unwrap()
    }

    /// The target of each engine.
    pub fn targets(&self) -> Vec<String> {
        let status = self.status_at(0);
        let of = |at: usize| {
            let log = self.log(at);
            let engines = status["engines"].as_array().unwrap();
            let own = engines.iter().find(|engine| {
                log.contains(&format!("serves at {}", engine["tcp"].as_str().unwrap()))
            });
            own.unwrap()["targets"][0].to_string()
        };
        (0..ENGINES).map(of).collect()
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}

impl Drop for Trio {
    fn drop(&mut self) {
        if thread::panicking() {
            for at in 0..ENGINES {
                eprintln!("engine {at}:\n{}", self.log(at));
            }
        }
        (0..ENGINES).for_each(|at| self.kill(at));
    }
}
