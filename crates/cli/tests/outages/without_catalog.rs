//! etcd is away: who works with what is there goes on, engines start, and only making waits.

use crate::etcd_server::EtcdServer;
use crate::harness::all_text;
use crate::trio::{ENGINES, Trio};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Waits until an engine's copy of the catalog, which is text inside, has a container of this name.
fn wait_for_copy(trio: &Trio, at: usize, label: &str) {
    let path = trio.scratch.path().join(format!("e{at}/catalog-copy.0"));
    let wanted = format!("\"label\":\"{label}\"");
    loop {
        let raw = fs::read(&path).unwrap_or_default();
        if raw.windows(wanted.len()).any(|part| part == wanted.as_bytes()) {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn run(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", all_text(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn url(round: usize) -> String {
    format!("azk://tank/home/{round}")
}

fn text(round: usize) -> String {
    format!("round {round}\n").repeat(1000)
}

/// Makes a file and reads it; each command opens pool and container anew.
fn work(trio: &Trio, round: usize) {
    let file = trio.scratch.path().join("file");
    fs::write(&file, text(round)).unwrap();
    let patient = ["--timeout", "3600"];
    let put = ["fs", "put", file.to_str().unwrap(), &url(round)];
    run(trio.command(&[&patient[..], &put].concat()));
    assert_eq!(
        run(trio.command(&[&patient[..], &["fs", "cat", &url(round)]].concat())),
        text(round)
    );
}

/// All of etcd and all engines start again, one after the other, while files are made, looked at, read and removed where there
/// are copies: nobody notices.
#[test]
fn everything_starts_again_under_a_load_of_metadata() {
    let Some(members) = EtcdServer::start_three() else { return };
    let endpoints: Vec<String> = members.iter().map(EtcdServer::endpoint).collect();
    let trio = Trio::start_on(&endpoints);
    trio.make(|| trio.command(&["pool", "create", "tank", "--size", "768MiB"]));
    trio.make(|| trio.command(&["cont", "create", "tank", "home", "--rd-fac", "1"]));
    (0..ENGINES).for_each(|at| wait_for_copy(&trio, at, "home"));
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let place = format!("azk://tank/home/md{}", rounds.load(Ordering::SeqCst));
                let bench = ["bench", "md", &place, "-n", "100", "-w", "100", "-e", "100"];
                run(trio.command(&[&bench[..], &["--json", "--timeout", "3600"]].concat()));
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        let go_on = || {
            let from = rounds.load(Ordering::SeqCst);
            while rounds.load(Ordering::SeqCst) < from + 2 && !load.is_finished() {
                thread::sleep(Duration::from_millis(50));
            }
        };
        go_on();
        for (at, member) in members.iter().enumerate() {
            member.kill();
            go_on();
            member.restart();
            trio.stop(at);
            trio.spawn(at);
            trio.wait(at);
            trio.until_whole();
            go_on();
        }
        is_over.store(true, Ordering::SeqCst);
    });
    // Making works, too, and what was made before is known.
    trio.make(|| trio.command(&["cont", "create", "tank", "more"]));
    let check: serde_json::Value =
        serde_json::from_str(&trio.ok(&["fs", "check", "azk://tank/home", "--json"])).unwrap();
    assert_eq!(check["clean"], true, "{check}");
}

/// With the catalog away an engine did not start, nobody could open what was there, and a connection
/// that broke waited for the catalog.
#[test]
fn etcd_is_away_and_work_goes_on() {
    let Some(etcd) = EtcdServer::start() else { return };
    let trio = Trio::start(&etcd);
    trio.make(|| trio.command(&["pool", "create", "tank", "--size", "384MiB"]));
    trio.make(|| trio.command(&["cont", "create", "tank", "home", "--file-oclass", "SX"]));
    (0..ENGINES).for_each(|at| wait_for_copy(&trio, at, "home"));
    let leader = trio.leader_at(0);
    etcd.kill();

    let create = ["pool", "create", "new", "--size", "192MiB"];
    let refused = || {
        let output = trio.output(&create);
        let text = all_text(&output);
        assert_eq!(output.status.code(), Some(6), "{text}");
        assert!(text.contains("etcd at http"), "{text}");
    };
    refused();
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                work(&trio, rounds.load(Ordering::SeqCst));
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        // One round that has begun after this and is over.
        let go_on = || {
            let from = rounds.load(Ordering::SeqCst);
            while rounds.load(Ordering::SeqCst) < from + 2 && !writer.is_finished() {
                thread::sleep(Duration::from_millis(50));
            }
        };
        go_on();
        for at in [(leader + 1) % ENGINES, leader] {
            trio.kill(at);
            trio.spawn(at);
            trio.wait(at);
            go_on();
        }
        refused();
        is_over.store(true, Ordering::SeqCst);
    });
    // Nobody is there any more who has seen the catalog.
    (0..ENGINES).for_each(|at| trio.kill(at));
    (0..ENGINES).for_each(|at| trio.spawn(at));
    (0..ENGINES).for_each(|at| trio.wait(at));
    refused();
    work(&trio, rounds.fetch_add(1, Ordering::SeqCst));
    etcd.restart();
    trio.make(|| trio.command(&create));
    work(&trio, rounds.fetch_add(1, Ordering::SeqCst));
    trio.make(|| trio.command(&["cont", "create", "new", "home"]));
    for code in ["catalog-away", "catalog-back"] {
        let told = run(trio.command(&["system", "events", "--code", code]));
        assert!(told.contains(code), "{told}");
    }
    for round in 0..rounds.load(Ordering::SeqCst) {
        assert_eq!(run(trio.command(&["fs", "cat", &url(round)])), text(round));
    }
}

/// An etcd that takes connections and answers nothing was waited for by whatever only looks, for a minute and longer, and after two minutes files could not
/// be made.
#[test]
fn an_etcd_that_stands_still_is_one_that_is_away() {
    let Some(etcd) = EtcdServer::start() else { return };
    let trio = Trio::start(&etcd);
    trio.make(|| trio.command(&["pool", "create", "tank", "--size", "384MiB"]));
    trio.make(|| trio.command(&["cont", "create", "tank", "home", "--rd-fac", "1"]));
    (0..ENGINES).for_each(|at| wait_for_copy(&trio, at, "home"));
    work(&trio, 0);
    etcd.signal("STOP");
    // An engine that held the service until now notices within some seconds, the others when they are told.
    let until = Instant::now() + Duration::from_secs(60);
    let health = || {
        let output = trio.output(&["--timeout", "30", "pool", "health", "tank"]);
        (output.status.code(), all_text(&output))
    };
    loop {
        let (code, text) = health();
        if code == Some(1) && text.contains("AT RISK") && text.contains("no engine leads") {
            break;
        }
        assert!(Instant::now() < until, "{code:?}: {text}");
    }
    for round in 1..3 {
        let file = trio.scratch.path().join("file");
        fs::write(&file, text(round)).unwrap();
        run(trio.command(&["--timeout", "30", "fs", "put", file.to_str().unwrap(), &url(round)]));
        run(trio.command(&["--timeout", "30", "cont", "query", "tank", "home"]));
    }
    let told = run(trio.command(&["system", "events", "--code", "catalog-away"]));
    assert!(told.contains("catalog-away"), "{told}");
    etcd.signal("CONT");
    trio.make(|| trio.command(&["cont", "create", "tank", "more"]));
    let until = Instant::now() + Duration::from_secs(60);
    while health().0 != Some(0) {
        assert!(Instant::now() < until, "{:?}", health());
    }
    for round in 0..3 {
        assert_eq!(run(trio.command(&["fs", "cat", &url(round)])), text(round));
    }
}

/// A mounted directory, unmounted at the end, whatever happens.
struct Mounted<'a>(&'a str);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Fails when it is not mounted any more, which is how it ends well.
        let mut command = Command::new("umount");
        let _ = command.args(["-l", self.0]).stderr(std::process::Stdio::null()).status();
    }
}

/// Mounts what is known, works with a file there, and unmounts it.
fn mount_and_work(trio: &Trio, round: usize) {
    let dir = trio.scratch.path().join(format!("mnt{round}"));
    fs::create_dir(&dir).unwrap();
    let point = dir.to_str().unwrap();
    let mounted = Mounted(point);
    run(trio.command(&["mount", "azk://tank/home", point]));
    let file = dir.join(format!("mounted{round}"));
    fs::write(&file, text(round)).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), text(round));
    fs::rename(&file, dir.join(format!("kept{round}"))).unwrap();
    run(trio.command(&["umount", point]));
    drop(mounted);
}

/// etcd is away for `AZEKURA_AWAY_MINUTES`, or for as long as each kind of work takes twice. Whoever reads, writes, makes files,
/// opens, mounts: no error. Who makes a pool or a container is told at once that etcd is away; when it is back, both work.
#[test]
fn an_outage_of_etcd_is_no_error_for_anybody_but_who_makes_pools() {
    let Some(etcd) = EtcdServer::start() else { return };
    let can_mount = match fs::File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: nothing is mounted in this test: /dev/fuse: {error}");
            false
        }
    };
    let minutes = std::env::var("AZEKURA_AWAY_MINUTES").ok().map(|text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(60 * minutes.unwrap_or(0));
    let trio = Trio::start(&etcd);
    trio.make(|| trio.command(&["pool", "create", "tank", "--size", "768MiB"]));
    trio.make(|| trio.command(&["cont", "create", "tank", "home", "--rd-fac", "1"]));
    (0..ENGINES).for_each(|at| wait_for_copy(&trio, at, "home"));
    etcd.kill();
    let refused = || {
        for create in [
            &["pool", "create", "new", "--size", "192MiB"],
            &["cont", "create", "tank", "new", "--json"],
        ] {
            let output = trio.output(create);
            let text = all_text(&output);
            assert_eq!(output.status.code(), Some(6), "{create:?}: {text}");
            assert!(text.contains("etcd at http"), "{create:?}: {text}");
        }
    };
    let metadata = |round: usize| {
        let place = format!("azk://tank/home/md{round}");
        let bench = ["bench", "md", &place, "-n", "50", "-w", "100", "-e", "100", "--json"];
        run(trio.command(&bench));
    };
    let data = |round: usize| {
        let place = format!("azk://tank/home/io{round}");
        run(trio.command(&["bench", "io", &place, "-t", "1MiB", "-b", "8MiB", "--json"]));
    };
    let open = |round: usize| work(&trio, round);
    let mount = |round: usize| {
        if can_mount {
            mount_and_work(&trio, round);
        }
    };
    let kinds: [(&str, &(dyn Fn(usize) + Sync)); 4] =
        [("metadata", &metadata), ("data", &data), ("open", &open), ("mount", &mount)];
    thread::scope(|scope| {
        for (name, work) in kinds {
            scope.spawn(move || {
                let mut round = 0;
                while round < 2 || Instant::now() < end {
                    work(round);
                    round += 1;
                }
                println!("{name}: {round} rounds");
            });
        }
        refused();
        while Instant::now() < end {
            thread::sleep(Duration::from_secs(5));
            refused();
        }
    });
    refused();
    etcd.restart();
    trio.make(|| trio.command(&["pool", "create", "new", "--size", "192MiB"]));
    trio.make(|| trio.command(&["cont", "create", "tank", "new"]));
    work(&trio, 1000);
}
