//! `up`, `down`, `status`, `engine`: systems of real processes come, go and come back.

use crate::harness::{self, System, all_text, azekura};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};

/// Engines began all at once, and got their ranks in the order in which they happened to join: rank 5 was in `engine4`.
#[test]
fn ranks_are_those_of_the_directories() {
    let system = System::none();
    for engines in ["4", "8"] {
        let up = system.json(&["up", "--engines", engines, "--targets", "1"]);
        let known = system.json(&["system", "list-engines"]);
        let addresses: Vec<_> =
            known.as_array().unwrap().iter().map(|engine| engine["tcp"].clone()).collect();
        assert_eq!(&addresses, up["tcp"].as_array().unwrap(), "{known}");
    }
}

#[test]
fn a_system_comes_goes_and_comes_back_with_what_it_had() {
    let system = System::none();
    system.fails(3, &["no system", "azekura up"], &["status"]);
    system.fails(3, &["no system"], &["down"]);
    let up = system.json(&["up", "--engines", "2", "--targets", "2"]);
    assert_eq!(up["engines"], 2);
    assert_eq!(up["already_running"], 0);
    let status = system.json(&["status"]);
    assert_eq!(status["state"], "running");
    assert_eq!(status["engines"].as_array().unwrap().len(), 2);
    for engine in status["engines"].as_array().unwrap() {
        assert_eq!(engine["targets"].as_array().unwrap().len(), 2, "{status}");
        assert!(engine["tcp"].as_str().unwrap().starts_with("127.0.0.1:"), "{status}");
    }

    // A second `up` finds it running, and changes nothing.
    let again = system.json(&["up"]);
    assert_eq!(again["already_running"], 2);
    assert_eq!(again["pids"], up["pids"]);
    assert!(system.ok(&["up"]).contains("already running"));

    // What it was made with cannot be changed by asking for something else: engines can be added only (`drain.rs`).
    system.fails(2, &["has 2 engines"], &["up", "--engines", "1"]);
    system.fails(2, &["--engines 2 --targets 2"], &["up", "--targets", "1"]);

    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let hello = system.path("hello");
    fs::write(&hello, "hello").unwrap();
    system.ok(&["fs", "put", hello.to_str().unwrap(), "azk://tank/home/hello"]);

    system.ok(&["down"]);
    assert!(system.ok(&["down"]).contains("was not running"));
    let output = system.run(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(6), "{}", all_text(&output));
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["state"], "stopped");
    system.fails(6, &["does not answer", "azekura up"], &["pool", "list"]);

    let back = system.json(&["up"]);
    assert_eq!(back["tcp"], up["tcp"], "engines keep their addresses");
    assert_eq!(system.ok(&["fs", "cat", "azk://tank/home/hello"]), "hello");
}

/// An engine of root keeps the one right that it needs for files of others; it ended as it set the mode of its catalog, which was what it should be.
#[test]
fn what_belongs_to_another_user_is_served_by_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let system = System::up(1, 1);
    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    system.ok(&["down"]);
    let dir = system.dir();
    let chown = std::process::Command::new("chown").args(["-R", "65534:65534"]).arg(&dir).status();
    assert!(chown.unwrap().success());
    system.ok(&["up"]);
    assert!(system.ok(&["pool", "list"]).contains("tank"));
}

#[test]
fn one_directory_takes_one_system_at_a_time() {
    let system = System::up(1, 1);
    // Two at once: whoever comes second is refused, or finds it running.
    system.ok(&["down"]);
    let both: Vec<_> = (0..2)
        .map(|_| {
            let mut command = system.command(&["up"]);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for child in both {
        let output = child.wait_with_output().unwrap();
        let text = all_text(&output);
        match output.status.code() {
            Some(0) => {}
            Some(7) => assert!(text.contains("at work on"), "{text}"),
            _ => panic!("{text}"),
        }
    }
    assert_eq!(system.pids().len(), 1);

    // An engine of somebody's own on a directory in use is refused.
    let config = system.dir().join("engine0/engine.toml");
    let output = azekura().arg("engine").arg("--config").arg(&config).output().unwrap();
    let text = all_text(&output);
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("another engine runs in"), "{text}");
    // Also where its figures are told at an address that is in use, too: that alone was told.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let told = format!("\n[metrics]\nlisten = \"{}\"\n", taken.local_addr().unwrap());
    let with_metrics = system.path("with-metrics.toml");
    fs::write(&with_metrics, fs::read_to_string(&config).unwrap() + &told).unwrap();
    let output = azekura().arg("engine").arg("--config").arg(&with_metrics).output().unwrap();
    let text = all_text(&output);
    assert!(text.contains("another engine runs in"), "{text}");

    // So is another user's directory with other things in it.
    let other = system.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.tex"), "x").unwrap();
    let output = azekura().arg("up").arg("--dir").arg(&other).output().unwrap();
    let text = all_text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("thesis.tex"), "{text}");
}

#[test]
fn a_configuration_with_a_typo_is_named_with_its_line() {
    let system = System::up(1, 1);
    system.ok(&["down"]);
    let config = system.dir().join("engine0/engine.toml");
    let good = fs::read_to_string(&config).unwrap();
    let check = |wanted: i32| {
        let mut command = azekura();
        let output = command.args(["engine", "--check", "--config"]).arg(&config).output().unwrap();
        assert_eq!(output.status.code(), Some(wanted), "{}", all_text(&output));
        all_text(&output)
    };
    check(0);
    fs::write(&config, good.replace("listen", "lisen")).unwrap();
    let text = check(2);
    assert!(text.contains("lisen") && text.contains("line 2"), "{text}");
    system.fails(2, &["lisen", "line 2"], &["up"]);
    fs::write(&config, good).unwrap();
    system.ok(&["up"]);
}

#[test]
fn an_engine_that_cannot_start_says_why_and_leaves_nothing_running() {
    let system = System::up(2, 1);
    system.ok(&["down"]);
    // Somebody else has taken the second engine's port.
    let config = fs::read_to_string(system.dir().join("engine1/engine.toml")).unwrap();
    let address = config.lines().find_map(|line| line.strip_prefix("listen = ")).unwrap();
    let taken = std::net::TcpListener::bind(address.trim_matches(['"', '\''])).unwrap();
    system.fails(1, &["engine 1 ended while starting", "engine.log"], &["up", "--wait", "20"]);
    assert!(system.pids().is_empty());
    drop(taken);
    system.ok(&["up"]);
    assert_eq!(system.pids().len(), 2);
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let system = System::with_home();
    let source = system.path("source");
    harness::make_tree(&source);
    system.ok(&["fs", "cp", "-r", source.to_str().unwrap(), "azk://tank/home/tree"]);
    // Both kinds of engine, the one with the catalog and the other, one at a time and together.
    for victims in [&[1][..], &[0], &[0, 1]] {
        let pids = system.pids();
        assert_eq!(pids.len(), 2);
        for &victim in victims {
            let pid = Pid::from_raw(pids[victim] as i32).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        }
        let up = system.json(&["up"]);
        assert_eq!(up["already_running"], 2 - victims.len(), "{victims:?}");
        let back = system.path(&format!("back{victims:?}"));
        system.ok(&["fs", "cp", "-r", "azk://tank/home/tree", back.to_str().unwrap()]);
        harness::assert_same_tree(&source, &back);
    }
    let check = system.json(&["fs", "check", "azk://tank/home"]);
    assert_eq!(check["clean"], true, "{check}");
}

#[test]
fn an_engine_in_the_foreground_stops_when_told() {
    let system = System::up(1, 1);
    system.ok(&["down"]);
    let config = system.dir().join("engine0/engine.toml");
    for signal in [Signal::TERM, Signal::INT] {
        let mut child = azekura()
            .arg("engine")
            .arg("--config")
            .arg(&config)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // It is up when it has said who it is.
        while !system.dir().join("engine0/engine.pid").exists() {
            assert!(child.try_wait().unwrap().is_none(), "the engine ended by itself");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        system.ok(&["pool", "list"]);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(child.wait().unwrap().success());
        assert!(!system.dir().join("engine0/engine.pid").exists());
    }
}

/// Cores a thread of a process may run on, as the kernel lists them, by the thread's name.
fn cores_of(pid: u64, thread: &str) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let paths = tasks.map(|task| task.unwrap().path());
    let named = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == thread)
    };
    let path = paths.into_iter().find(named).unwrap_or_else(|| panic!("no thread {thread}"));
    let status = std::fs::read_to_string(path.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_string()
}

#[test]
fn targets_are_bound_to_cores_on_request() {
    let system = System::none();
    let cores = engine::usable_cores();
    system.ok(&["up", "--targets", "2", "--pin-targets"]);
    let bound = || {
        let pid = system.pids()[0];
        ["azk-target-0", "azk-target-1"].map(|thread| cores_of(pid, thread))
    };
    let want = [0, 1].map(|at| cores[at % cores.len()].to_string());
    assert_eq!(bound(), want);
    // As made, also without saying it again.
    system.ok(&["down"]);
    system.ok(&["up"]);
    assert_eq!(bound(), want);
    system.ok(&["down"]);
    // A core that is not there is refused by name, and nothing is left running.
    let config = system.dir().join("engine0/engine.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let wrong = text.replace(&format!("cores = [{}]", want[1]), "cores = [1023]");
    assert_ne!(wrong, text);
    std::fs::write(&config, wrong).unwrap();
    system.fails(1, &["core 1023", "target"], &["up"]);

    let plain = System::up(1, 1);
    plain.fails(2, &["--targets 1", "engine.toml"], &["up", "--pin-targets"]);
}

/// One that could not reach the system said nothing for a minute, noticed no signal, and ended.
#[test]
fn an_engine_that_reaches_nobody_says_what_it_tries_and_can_be_stopped() {
    let system = System::none();
    let path = |name: &str| system.path(name).to_str().unwrap().to_string();
    // Nobody listens there, and nobody will.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut engine = azekura()
        .args(["engine", "--engine-dir", &path("e"), "--device", &path("t")])
        .args(["--join", &format!("tcp://{gone}")])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(engine.stderr.take().unwrap());
    while !said.contains(&format!("joining the system at {gone}; trying until it answers")) {
        assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let pid = Pid::from_raw(engine.id() as i32).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let ended = engine.wait().unwrap();
    lines.read_to_string(&mut said).unwrap();
    assert!(ended.success() && said.contains("stopping before"), "{ended}: {said}");
}
