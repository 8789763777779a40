//! `azekura ioc`: real coordinator processes, asked by clients of this test.

use crate::harness::azekura;
use coordinate::load::Load;
use coordinate::rules::choice::Endpoint;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A coordinator at `s` in a directory; killed when dropped.
struct Coordinator(Child);

impl Coordinator {
    fn start(dir: &Path, more: &[&str]) -> Coordinator {
        let place = format!("unix:{}", dir.join("s").display());
        let mut command = azekura();
        command.args(["ioc", "serve", "--listen", &place, "--max-writers", "2"]).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), format!("Coordinating at {place}"));
        Coordinator(child)
    }

    /// TERM; returns the exit code.
    fn stop(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn endpoint(dir: &Path) -> Endpoint {
    Endpoint::Unix(dir.join("s").to_str().unwrap().into())
}

fn json(args: &[&str]) -> Value {
    let output = azekura().args(args).arg("--json").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn from_serving_to_the_drawing() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace.jsonl");
    let trace = trace.to_str().unwrap();
    let coordinator = Coordinator::start(dir.path(), &["--trace", trace]);
    let mut load = Load::start(&endpoint(dir.path()), b"", 8, 2).unwrap();
    load.run(200, PATIENCE).unwrap();
    let place = endpoint(dir.path()).to_string();
    let top = json(&["ioc", "top", &place]);
    let group = &top["groups"][0];
    assert_eq!((group["clients"].as_u64(), group["active"].as_u64()), (Some(9), Some(4)));
    let granted = |at: usize| group["targets"][at]["write"]["granted"].as_u64().unwrap();
    assert!(granted(0) + granted(1) >= 200);
    assert_eq!(group["targets"][0]["write"]["limit"].as_u64(), Some(2));
    let output =
        azekura().args(["ioc", "top", "--once"]).env("AZEKURA_IOC", &place).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["9 clients", "target0", "target1", "write", "load"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    drop(load);
    assert_eq!(coordinator.stop(), Some(0));
    assert!(!dir.path().join("s").exists());
    let svg = dir.path().join("waits.svg");
    let drawn =
        json(&["ioc", "plot", trace, trace, "-o", svg.to_str().unwrap(), "--target", "target1"]);
    assert_eq!(drawn[1]["processes"].as_array().unwrap().len(), 4);
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("<svg") && svg.contains("waiting"));
}

#[test]
fn a_killed_coordinator_is_followed_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = Coordinator::start(dir.path(), &[]);
    let mut load = Load::start(&endpoint(dir.path()), b"", 4, 1).unwrap();
    load.run(20, PATIENCE).unwrap();
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    assert!(load.run(1000, PATIENCE).is_err(), "clients see the end");
    let _second = Coordinator::start(dir.path(), &[]);
    let mut load = Load::start(&endpoint(dir.path()), b"", 4, 1).unwrap();
    load.run(20, PATIENCE).unwrap();
}

#[test]
fn mistakes_have_their_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    std::fs::write(dir.path().join("bad.toml"), "max_writers = 'many'\n").unwrap();
    std::fs::write(dir.path().join("bad.jsonl"), "{}\n").unwrap();
    let nobody = format!("unix:{}", path("nobody"));
    for (args, code, part) in [
        (vec!["serve"], 2, "nowhere to listen"),
        (vec!["serve", "--listen", "tcp:127.0.0.1:0"], 2, "token"),
        (vec!["serve", "--listen", "here"], 2, "place to listen"),
        (vec!["serve", "--config", &path("bad.toml")], 2, "bad.toml"),
        (vec!["serve", "--config", &path("none.toml")], 1, "none.toml"),
        (vec!["top"], 2, "AZEKURA_IOC"),
        (vec!["top", &nobody], 6, "no coordinator"),
        (vec!["plot", &path("bad.jsonl")], 2, "line 1"),
        (vec!["plot", &path("none.jsonl")], 1, "none.jsonl"),
    ] {
        let output = azekura().arg("ioc").args(&args).env_remove("AZEKURA_IOC").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
    }
    let config = dir.path().join("good.toml");
    std::fs::write(&config, "listen = ['unix:/nowhere/s']\n[[group]]\nname = 'a'\n").unwrap();
    let config = config.to_str().unwrap();
    let checked = azekura().args(["ioc", "serve", "--check", "--config", config]).output().unwrap();
    assert!(checked.status.success());
}
