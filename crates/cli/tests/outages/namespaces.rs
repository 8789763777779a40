//! Three engines that only a network connects: each in a namespace of its own, over TCP, as on three machines. They are killed,
//! stopped, and cut off in one direction while files are copied and compared in containers with copies; and so is the one that holds the
//! control service.

use crate::harness::{all_text, azekura, noise};
use crate::hosts::{Hosts, HostsSpec};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const ENGINES: usize = 3;
/// The namespace of the client, behind those of the engines.
const CLIENT: usize = ENGINES;
/// Who is silent for two seconds is down.
const SETTINGS: &str = "down_after_s = 2\n";
/// How long a link is cut: longer than that.
const CUT: Duration = Duration::from_millis(3_500);
/// How long an engine stands still.
const STOPPED: Duration = Duration::from_secs(5);
/// How long a copier waits before its next round.
const PAUSE: Duration = Duration::from_millis(400);

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
    let (settings, has_etcd) = (SETTINGS.to_string(), false);
    let spec = HostsSpec { engines: ENGINES, clients: 1, settings, has_etcd };
    let Some(hosts) = Hosts::start(spec) else { return };
    let hosts = &hosts;
    hosts.until_joined();
    hosts.ok(&["pool", "create", "tank", "--size", "4GiB"]);
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

fn start(settings: &str, has_etcd: bool) -> Option<Hosts> {
    let settings = settings.to_string();
    let hosts = Hosts::start(HostsSpec { engines: ENGINES, clients: 1, settings, has_etcd })?;
    hosts.until_joined();
    hosts.ok(&["pool", "create", "tank", "--size", "768MiB"]);
    Some(hosts)
}

/// An engine does not reach the one that holds the catalog, has a newer map from another one, and starts again where it reaches
/// nobody: it began with the map that its copy of the catalog has.
#[test]
fn an_engine_starts_with_the_maps_that_others_have_told_it() {
    let Some(hosts) = start(SETTINGS, false) else { return };
    let asked_at_two = || {
        let mut command = azekura();
        let system = format!("tcp://{}", hosts.reach(2));
        command.args(["--timeout", "hard", "--system", &system]);
        command.args(["pool", "rebuild", "status", "tank", "--json"]);
        let output = hosts.run_at(CLIENT, command).output().unwrap();
        assert!(output.status.success(), "{}", all_text(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["map_version"].as_u64().unwrap()
    };
    let kept = |name: &str| fs::read(hosts.dir(2).join(name)).unwrap_or_default();
    let is_copied = || kept("catalog-copy.0").windows(4).any(|bytes| bytes == b"tank");
    while !is_copied() || !kept("pool-maps.0").windows(6).any(|bytes| bytes == b"pool/1") {
        thread::sleep(PAUSE);
    }
    let (before, old) = (kept("pool-maps.0"), asked_at_two());
    let cut = |other| {
        hosts.cut(other, 2);
        hosts.cut(2, other);
    };
    cut(0);
    hosts.until_down();
    while asked_at_two() == old || kept("pool-maps.0") == before {
        thread::sleep(PAUSE);
    }
    let newer = asked_at_two();
    hosts.kill(2);
    cut(1);
    hosts.spawn(2);
    hosts.until_serves(2);
    assert_eq!(asked_at_two(), newer);
}

/// The host of the engine that holds the control service, as soon as one does.
fn leader(hosts: &Hosts) -> usize {
    loop {
        let engines = hosts.json(&["system", "list-engines"]);
        let leads = |at: &usize| {
            let mut engines = engines.as_array().unwrap().iter();
            engines.any(|engine| engine["leads"] == true && engine["tcp"] == hosts.reach(*at))
        };
        if let Some(at) = (0..ENGINES).find(leads) {
            return at;
        }
        thread::sleep(PAUSE);
    }
}

/// No other engine hears the one that holds the control service; etcd and clients do. It went on holding it, and called all others
/// down. Then it gave it up, but a client that asked this one for maps got none that was new, and waited for ever for what it led.
#[test]
fn who_hears_no_engine_gives_the_control_service_to_another() {
    let Some(hosts) = start(SETTINGS, true) else { return };
    hosts.ok(&["cont", "create", "tank", "home", "--rd-fac", "1"]);
    let tree_dir = &hosts.path("tree");
    tree(tree_dir);
    let muted = leader(&hosts);
    hosts.ask_first(muted);
    let others: Vec<usize> = (0..ENGINES).filter(|at| *at != muted).collect();
    others.iter().for_each(|other| hosts.cut(muted, *other));
    let url = "azk://tank/home/tree";
    hosts.ok(&["fs", "cp", "-rT", "--verify", tree_dir.to_str().unwrap(), url]);
    hosts.until_down();
    assert_ne!(leader(&hosts), muted);
    let engines = hosts.json(&["system", "list-engines"]);
    for at in 0..ENGINES {
        let mut engines = engines.as_array().unwrap().iter();
        let engine = engines.find(|engine| engine["tcp"] == hosts.reach(at)).unwrap();
        assert_eq!(engine["state"], if at == muted { "down" } else { "up" }, "{engines:?}");
    }
    let told = hosts.json(&["system", "events", "--code", "service-deaf"]);
    assert!(!told.as_array().unwrap().is_empty(), "{told}");
    others.iter().for_each(|other| hosts.mend(muted, *other));
    hosts.until_whole();
    hosts.compare(url, tree_dir);
}
