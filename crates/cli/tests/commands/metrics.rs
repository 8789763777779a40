//! The figures of an engine: what Prometheus and `azekura metrics` get.

use crate::harness::{System, all_text, azekura};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// An engine's process with one target, killed at the end.
struct Engine(Child);

impl Drop for Engine {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_engine_tells_what_was_done() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    fs::create_dir_all(path("t")).unwrap();
    let text = format!(
        "dir = '{0}'\n[metrics]\nlisten = '127.0.0.1:0'\n[[target]]\ndevice = '{1}'\n",
        path("e"),
        path("t")
    );
    fs::write(path("engine.toml"), text).unwrap();
    let mut command = azekura();
    command.args(["engine", "--config", &path("engine.toml")]).env("AZEKURA_LOG", "info");
    let mut engine = Engine(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut log = BufReader::new(engine.0.stderr.take().unwrap()).lines();
    let mut address = None;
    for line in log.by_ref().map(Result::unwrap) {
        if let Some((_, rest)) = line.split_once("metrics at http://") {
            address = rest.strip_suffix("/metrics").map(str::to_string);
        }
        if line.contains(" serves at ") {
            break;
        }
    }
    let address = address.expect("the log tells where");
    // An engine whose log nobody reads would wait.
    std::thread::spawn(move || log.for_each(drop));
    let run = |args: &[&str]| {
        let system = format!("unix:{}", path("e/engine.sock"));
        let mut command = azekura();
        command.args(["--system", &system, "--timeout", "hard"]).args(args);
        let output = command.env("AZEKURA_JOB", "nightly").output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", all_text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["pool", "create", "tank", "--size", "256MiB"]);
    run(&["cont", "create", "tank", "home"]);
    fs::write(path("file"), vec![7; 100_000]).unwrap();
    run(&["fs", "put", &path("file"), "azk://tank/home/a"]);
    // The second time from the engine's memory.
    for _ in 0..2 {
        assert_eq!(run(&["fs", "cat", "azk://tank/home/a"]).len(), 100_000);
    }
    let query = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&run(&[&["--json", "pool", "query", "tank"], args].concat())).unwrap()
    };
    let cache = query(&[])["cache"][0].clone();
    assert_eq!((&cache["hit_bytes"], &cache["miss_bytes"]), (&100_000.into(), &100_000.into()));
    assert!(cache["used_bytes"].as_u64() >= Some(100_000), "{cache}");
    let table = run(&["pool", "query", "tank"]);
    assert!(table.contains("FROM MEMORY") && table.contains("50%"), "{table}");
    let text = loop {
        assert!(engine.0.try_wait().unwrap().is_none(), "the engine has ended");
        // On a machine that stands still the engine or its target may be late.
        let output = azekura().args(["metrics", &address]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        if text.contains("azekura_target_answers{target=\"0\"} 1\n") {
            break text;
        }
    };
    let sum = |name: &str, label: &str| -> f64 {
        let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    };
    assert_eq!(sum("azekura_control_service_held ", ""), 1.0);
    assert!(sum("azekura_received_bytes_total{", "op=\"update\"") >= 100_000.0, "{text}");
    assert!(sum("azekura_sent_bytes_total{", "op=\"fetch\"") >= 100_000.0, "{text}");
    assert!(sum("azekura_operation_seconds_count{", "op=\"update\"") >= 1.0, "{text}");
    assert!(sum("azekura_target_requests_total{", "kind=\"batch\"") >= 2.0, "{text}");
    assert!(sum("azekura_log_commit_seconds_count{", "") >= 1.0, "{text}");
    assert!(sum("azekura_pool_nvme_bytes{", "") > 0.0, "{text}");
    assert_eq!(sum("azekura_log_failed{", ""), 0.0);
    assert_eq!(sum("azekura_cache_hit_bytes_total{", ""), 100_000.0);
    assert_eq!(sum("azekura_cache_miss_bytes_total{", ""), 100_000.0);
    run(&["pool", "set-prop", "tank", "cache_max=off"]);
    assert_eq!(run(&["pool", "get-prop", "tank", "cache_max"]), "0\n");
    assert_eq!(run(&["fs", "cat", "azk://tank/home/a"]).len(), 100_000);
    assert_eq!(query(&[])["cache"], serde_json::Value::Null, "nothing is kept any more");
    let nightly = "application=\"nightly\"";
    assert!(sum("azekura_job_operations_total{", nightly) >= 2.0, "{text}");
    assert!(sum("azekura_job_received_bytes_total{", nightly) >= 100_000.0, "{text}");
    assert_eq!(sum("azekura_events_total{", "engine-started"), 1.0);

    // The same for people, at each target.
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_str(&run(&[args, &["--json"]].concat())).unwrap()
    };
    let list = json(&["job", "list"]);
    let job = list["jobs"].as_array().unwrap().iter().find(|job| job["job"] == "nightly").unwrap();
    assert!(job["received_bytes"].as_u64().unwrap() >= 100_000, "{list}");
    assert!(job["sent_bytes"].as_u64().unwrap() >= 100_000, "{list}");
    assert_eq!(list["silent"].as_array().unwrap().len(), 0, "{list}");
    let shown = json(&["job", "show", "nightly"]);
    assert_eq!(shown["targets"][0]["target"], 0, "{shown}");
    assert!(shown["targets"][0]["wait_mean_s"].is_number(), "{shown}");
    assert!(shown["targets"][0]["seen"].as_str().unwrap().starts_with("20"), "{shown}");
    let text = run(&["job", "list", "--sort", "wait"]);
    assert!(text.contains("nightly") && text.contains("P99 WAIT"), "{text}");
}

#[test]
fn who_tells_nothing_is_named() {
    let system = System::none();
    fs::create_dir_all(system.path("e")).unwrap();
    let file = system.path("engine.toml").display().to_string();
    let write = |more: &str| {
        let text = format!("dir = '/nonexistent'\n{more}[[target]]\ndevice = '/nonexistent/t'\n");
        fs::write(&file, text).unwrap();
    };
    write("");
    system.fails(2, &["[metrics]"], &["metrics", "--config", &file]);
    write("[metrics]\nlisten = '127.0.0.1:0'\n");
    system.fails(2, &["log"], &["metrics", "--config", &file]);
    write("[metrics]\nlisten = '0.0.0.0:7711'\n");
    system.fails(2, &["insecure = true"], &["engine", "--check", "--config", &file]);
    system.fails(2, &["HOST:PORT"], &["metrics", "nowhere"]);
    system.fails(6, &["127.0.0.1:1"], &["metrics", "127.0.0.1:1"]);
}
