//! `azekura system upgrade`: all engines start again, one after the other, and where there are copies nobody notices.

mod harness;

use harness::{System, all_text, azekura_at, noise};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Pause between two looks at something.
const PAUSE: Duration = Duration::from_millis(20);

/// A build of another commit, from which engines are upgraded to this one.
const BEFORE: &str = "AZEKURA_UPGRADE_FROM";

/// The program of the engines before: another build where there is one, else a copy of this one.
fn program_before(system: &System) -> PathBuf {
    if let Some(other) = std::env::var_os(BEFORE) {
        return PathBuf::from(other);
    }
    println!("SKIPPED: another build: {BEFORE} is not set; a copy of this one is upgraded");
    let copy = system.path("azekura-before");
    fs::copy(env!("CARGO_BIN_EXE_azekura"), &copy).unwrap();
    copy
}

/// What the engines run.
fn programs(system: &System) -> BTreeSet<PathBuf> {
    system.pids().iter().map(|pid| fs::read_link(format!("/proc/{pid}/exe")).unwrap()).collect()
}

/// A program of another wire version cannot work beside the engines that still run: nothing stops. It used to be found out when the first engine had been started
/// with it, and looked at in vain for ten minutes.
fn other_messages_are_refused(system: &System) {
    assert!(system.ok(&["version"]).contains(&format!("wire version {}", wire::WIRE_VERSION)));
    let later = system.path("azekura-later");
    let says = format!(r#"{{"version":"9.0.0","wire_version":{}}}"#, wire::WIRE_VERSION + 1);
    fs::write(&later, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
    fs::set_permissions(&later, fs::Permissions::from_mode(0o755)).unwrap();
    let later = later.to_str().unwrap();
    let with = ["system", "upgrade", "--program", later];
    system.fails(1, &["nothing was stopped", "wire version", "system stop --all"], &with);
    let ran = system.path("ran");
    let touch = format!("touch {}", ran.display());
    system.fails(1, &["nothing was stopped"], &[&with[..], &["--restart", &touch]].concat());
    assert!(!ran.exists());
    let plan = system.ok(&[&with[..], &["--plan"]].concat());
    assert!(plan.contains("It cannot be done") && plan.contains("9.0.0"), "{plan}");
    // One that does not say what it speaks is of before it could.
    fs::write(later, "#!/bin/sh\nexit 2\n").unwrap();
    system.fails(2, &["does not say which wire version"], &with);
}

/// An engine that its command has started with other messages ends the work at once, however long it may wait.
fn one_that_speaks_otherwise_ends_the_work(system: &System, rank: u32, address: &str) {
    let (stopped, listens) = (system.path("stopped"), system.path("listens"));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stopped.exists() {
                thread::sleep(PAUSE);
            }
            let listener = TcpListener::bind(address);
            fs::write(&listens, "").unwrap();
            let listener = listener.unwrap();
            let mut frame = wire::Header::new(wire::Kind::Challenge, 0, &[], 0).encode();
            frame[4..6].copy_from_slice(&(wire::WIRE_VERSION + 1).to_le_bytes());
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // Who has called may have gone meanwhile.
                let _ = stream.unwrap().write_all(&frame);
            }
        });
        let restart = format!(
            "'{}' --system '{}' system stop --engine $AZEKURA_RANK && touch '{}' && while ! test -e '{}'; do sleep 0.05; done",
            env!("CARGO_BIN_EXE_azekura"),
            system.dir().display(),
            stopped.display(),
            listens.display()
        );
        let rank = rank.to_string();
        let args = ["system", "upgrade", "--engine", &rank, "--wait", "60", "--restart", &restart];
        let done = system.run(&args);
        is_over.store(true, Ordering::Relaxed);
        // Wakes the one that listens, if it came so far.
        fs::write(&stopped, "").unwrap();
        while !listens.exists() {
            thread::sleep(PAUSE);
        }
        let _ = TcpStream::connect(address);
        assert_eq!(done.status.code(), Some(1), "{}", all_text(&done));
        let text = all_text(&done);
        assert!(text.contains("another wire version") && text.contains("--engine 2"), "{text}");
    });
}

/// No engine has begun to stop while a target of another one was not whole again, by what the engines have noticed.
fn each_step_began_with_all_whole(system: &System) {
    let events = system.json(&["system", "events"]);
    let (mut out, mut was_out, mut stops) = (BTreeSet::new(), BTreeSet::new(), 0);
    for event in events.as_array().unwrap() {
        match (event["code"].as_str().unwrap(), event["target"].as_u64()) {
            ("target-down" | "target-behind", Some(target)) => {
                out.insert(target);
                was_out.insert(target);
            }
            ("target-up", Some(target)) => drop(out.remove(&target)),
            ("engine-stopping", _) => {
                // One target each: its own may be down by then, for it has said that it goes.
                let own = event["by"].as_u64();
                let is_whole = out.iter().all(|target| Some(*target) == own);
                assert!(is_whole, "targets {out:?} at {event}: {events}");
                stops += 1;
            }
            _ => {}
        }
    }
    assert!(out.is_empty(), "{out:?}: {events}");
    assert_eq!((stops, was_out), (3, BTreeSet::from([0, 1, 2])), "{events}");
}

#[test]
fn engines_are_upgraded_one_by_one_under_work() {
    let system = System::none();
    let old = program_before(&system);
    let mut up = azekura_at(&old);
    let up = up.arg("--system").arg(system.dir()).args(["up", "--engines", "3", "--targets", "1"]);
    let up = up.output().unwrap();
    assert!(up.status.success(), "{}", all_text(&up));
    let (old, new) = (old.canonicalize().unwrap(), Path::new(env!("CARGO_BIN_EXE_azekura")));
    assert_eq!(programs(&system), BTreeSet::from([old]));
    system.ok(&["pool", "create", "tank", "--size", "900MiB"]);
    system.ok(&["cont", "create", "tank", "home", "--rd-fac", "1"]);
    let plan = system.json(&["system", "upgrade", "--plan"]);
    let ranks: Vec<u64> = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["rank"].as_u64().unwrap())
        .collect();
    // Rank 0 holds the catalog: it leads.
    assert_eq!(ranks.len(), 3, "{plan}");
    assert_eq!(ranks[2], 0, "{plan}");
    assert_eq!(plan["steps"][2]["leads"], true, "{plan}");
    assert!(plan["waits"].as_array().unwrap().is_empty(), "{plan}");
    assert!(plan["not_whole"].as_array().unwrap().is_empty(), "{plan}");
    assert!(system.ok(&["system", "upgrade", "--plan"]).contains("All is whole"));
    let before: BTreeSet<u64> = system.pids().into_iter().collect();
    assert_eq!(plan["program"]["wire_version"], wire::WIRE_VERSION, "{plan}");
    other_messages_are_refused(&system);
    assert_eq!(system.pids().into_iter().collect::<BTreeSet<u64>>(), before);

    let is_over = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (file, mut rounds) = (system.path("file"), 0);
            while !is_over.load(Ordering::Relaxed) || rounds < 3 {
                fs::write(&file, noise(rounds, 200_000)).unwrap();
                let url = format!("azk://tank/home/{rounds}");
                let put = system.run(&["fs", "put", file.to_str().unwrap(), &url]);
                assert!(put.status.success(), "{}", all_text(&put));
                rounds += 1;
            }
            rounds
        });
        let done = system.run(&["system", "upgrade", "--wait", "300", "--json"]);
        is_over.store(true, Ordering::Relaxed);
        let rounds = writer.join().unwrap();
        assert!(done.status.success(), "{}", all_text(&done));
        rounds
    });
    let after: BTreeSet<u64> = system.pids().into_iter().collect();
    assert_eq!(after.len(), 3);
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
    assert_eq!(programs(&system), BTreeSet::from([new.canonicalize().unwrap()]));
    each_step_began_with_all_whole(&system);
    let back = system.path("back");
    system.ok(&["fs", "cp", "-rT", "azk://tank/home", back.to_str().unwrap()]);
    for round in 0..rounds {
        assert!(fs::read(back.join(round.to_string())).unwrap() == noise(round, 200_000));
    }
    let health = system.ok(&["pool", "health", "tank"]);
    assert!(health.contains("HEALTHY"), "{health}");
    system.ok(&["fs", "check", "azk://tank/home"]);

    // Files without copies wait: the plan names their container.
    system.ok(&["cont", "create", "tank", "alone"]);
    let plan = system.json(&["system", "upgrade", "--plan", "--engine", "1"]);
    assert_eq!(plan["waits"][0], "tank/alone", "{plan}");
    assert_eq!(plan["steps"].as_array().unwrap().len(), 1, "{plan}");
    system.fails(3, &["no engine 7"], &["system", "upgrade", "--engine", "7"]);
    // A command of the user's own: it runs for the engine, and its failure ends the work.
    let said = system.path("said");
    let tell = format!("echo $AZEKURA_RANK $AZEKURA_ADDRESS >>{}", said.display());
    system.ok(&["system", "upgrade", "--engine", "2", "--restart", &tell]);
    let told = fs::read_to_string(&said).unwrap();
    assert!(told.starts_with("2 127.0.0.1:"), "{told}");
    system.fails(
        1,
        &["--restart failed", "--engine 2"],
        &["system", "upgrade", "--engine", "2", "--restart", "exit 3"],
    );
    let address = told.split_whitespace().nth(1).unwrap();
    one_that_speaks_otherwise_ends_the_work(&system, 2, address);
    // That engine is away: nothing begins.
    while system.run(&["pool", "health", "tank"]).status.success() {
        thread::sleep(PAUSE);
    }
    system.fails(7, &["not all is whole"], &["system", "upgrade"]);
    let plan = system.json(&["system", "upgrade", "--plan"]);
    assert!(!plan["not_whole"].as_array().unwrap().is_empty(), "{plan}");
    assert_eq!(plan["steps"].as_array().unwrap().len(), 3, "{plan}");
    // One that is excluded is not among the steps, and said not to be.
    system.ok(&["system", "exclude", "2"]);
    let plan = system.ok(&["system", "upgrade", "--plan"]);
    assert!(plan.contains("Engine 2 is excluded, and left out: --engine 2"), "{plan}");
}
