//! `azekura system upgrade`: all engines start again, one after the other, and where there are copies nobody notices.

mod harness;

use harness::{System, all_text, azekura_at, noise};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

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
    let back = system.path("back");
    system.ok(&["fs", "cp", "-rT", "azk://tank/home", back.to_str().unwrap()]);
    for round in 0..rounds {
        assert!(fs::read(back.join(round.to_string())).unwrap() == noise(round, 200_000));
    }
    let health = system.ok(&["pool", "health", "tank"]);
    assert!(health.contains("HEALTHY"), "{health}");

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
    // An engine is away: nothing begins.
    system.ok(&["system", "stop", "--engine", "2"]);
    while system.run(&["pool", "health", "tank"]).status.success() {
        thread::sleep(std::time::Duration::from_millis(50));
    }
    system.fails(7, &["not all is whole"], &["system", "upgrade"]);
    let plan = system.json(&["system", "upgrade", "--plan"]);
    assert!(!plan["not_whole"].as_array().unwrap().is_empty(), "{plan}");
}
