//! Targets that are added, emptied, left out and taken back, with real engines: data without copies, too, are where somebody serves them.

use crate::harness::{System, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;

fn tree(dir: &Path, seed: u64) {
    for below in ["a", "a/b", "c"] {
        std::fs::create_dir_all(dir.join(below)).unwrap();
        for number in 0..8u64 {
            let bytes = [0, 10, 700, 5_000, 70_000, 1_300_000][number as usize % 6];
            std::fs::write(dir.join(below).join(format!("f{number}")), noise(seed + number, bytes))
                .unwrap();
        }
    }
}

/// Waits until others stand in for so many targets, and nothing moves; the report.
fn until_out(system: &System, count: usize) -> serde_json::Value {
    loop {
        let report = system.json(&["pool", "rebuild", "status", "tank"]);
        if report["state"] != "busy" && report["out"].as_array().unwrap().len() == count {
            return report;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn targets_come_and_go_with_all_they_hold() {
    let system = System::up(3, 1);
    system.ok(&["pool", "create", "tank", "--size", "1GiB", "--targets", "0,1"]);
    system.ok(&["cont", "create", "tank", "single"]);
    system.ok(&["cont", "create", "tank", "double", "--rd-fac", "1"]);
    let mut trees = Vec::new();
    let mut put = |name: &str, seed| {
        let dir = system.path(name);
        tree(&dir, seed);
        for cont in ["single", "double"] {
            let url = format!("azk://tank/{cont}/{name}");
            system.ok(&["fs", "cp", "-rT", "--verify", dir.to_str().unwrap(), &url]);
            trees.push((dir.clone(), url));
        }
        trees.clone()
    };
    let check = |trees: &[(std::path::PathBuf, String)], only: &str| {
        for (dir, url) in trees.iter().filter(|(_, url)| url.contains(only)) {
            let back = system.path("got");
            system.ok(&["fs", "cp", "-rT", url, back.to_str().unwrap()]);
            let diff =
                std::process::Command::new("diff").arg("-r").args([dir, &back]).output().unwrap();
            assert!(diff.status.success(), "{url}: {}", String::from_utf8_lossy(&diff.stdout));
            std::fs::remove_dir_all(back).unwrap();
        }
    };
    let trees = put("one", 1);
    check(&trees, "");
    // Two engines, two copies: none may go.
    system.fails(7, &["take in others"], &["pool", "drain", "tank", "--rank", "1"]);

    // Said, and not done.
    let trial = system.json(&["pool", "extend", "tank", "--rank", "2", "--dry-run"]);
    assert_eq!(trial["added"], serde_json::json!([2]), "{trial}");
    let would_move = trial["estimate"]["move_bytes"].as_u64().unwrap();
    let held = |rank: &str| {
        let plan = system.json(&["pool", "drain", "tank", "--rank", rank, "--dry-run"]);
        plan["estimate"]["move_bytes"].as_u64().unwrap()
    };
    // What is held changes with every checkpoint.
    let third = (held("0") + held("1")) / 3;
    assert!(would_move.abs_diff(third) * 10 < third, "{third} is a third of all: {trial}");
    let report = system.json(&["pool", "extend", "tank", "--rank", "2"]);
    assert_eq!((&report["added"][0], &report["target_count"]), (&2.into(), &3.into()), "{report}");
    system.fails(4, &["already"], &["pool", "extend", "tank", "--rank", "2"]);
    system.fails(3, &["no engine 9"], &["pool", "extend", "tank", "--rank", "9"]);
    let mut trees = put("two", 100);
    check(&trees, "");
    let used = |system: &System| {
        system.json(&["pool", "drain", "tank", "--rank", "2", "--dry-run"])["used_bytes"]
            .as_u64()
            .unwrap()
    };
    // Files are where their directories are: of a few, all may be elsewhere (one run in a hundred had that).
    for at in (0..5).take_while(|_| used(&system) <= 1 << 20) {
        trees = put(&format!("more{at}"), 300 + at);
    }
    assert!(used(&system) > 1 << 20, "nothing new is on the new target");
    assert_eq!(system.json(&["pool", "rebuild", "status", "tank"])["state"], "idle");

    system.ok(&["pool", "drain", "tank", "--rank", "1"]);
    let report = system.json(&["pool", "rebuild", "status", "tank", "--wait"]);
    let parts = (&report["state"], &report["out"][0], &report["drained"][0]);
    assert_eq!(parts, (&"done".into(), &1.into(), &1.into()), "{report}");
    system.fails(7, &["on 2", "extend"], &["pool", "drain", "tank", "--rank", "2"]);
    check(&trees, "");
    // It is needed no more: nobody waits for it, whatever they ask.
    let status = system.json(&["status"]);
    let mut engines = status["engines"].as_array().unwrap().iter();
    let engine = engines.find(|engine| engine["rank"] == 1).unwrap();
    let pid = engine["pid"].as_u64().unwrap() as i32;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    check(&trees, "");
    let trees = put("three", 200);
    system.ok(&["up"]);

    system.ok(&["pool", "reintegrate", "tank", "--rank", "1"]);
    assert_eq!(system.json(&["pool", "rebuild", "status", "tank", "--wait"])["state"], "idle");
    check(&trees, "");

    system.ok(&["pool", "exclude", "tank", "--target", "2"]);
    let report = until_out(&system, 1);
    let parts = (&report["out"][0], report["drained"].as_array().unwrap().len());
    assert_eq!(parts, (&2.into(), 0), "{report}");
    check(&trees, "double");
    system.ok(&["pool", "reintegrate", "tank", "--target", "2"]);
    assert_eq!(until_out(&system, 0)["state"], "idle");
    check(&trees, "");
    for cont in ["single", "double"] {
        system.ok(&["fs", "check", &format!("azk://tank/{cont}/")]);
    }

    system.ok(&["pool", "rebuild", "stop", "tank"]);
    assert_eq!(system.json(&["pool", "rebuild", "status", "tank"])["is_stopped"], true);
    system.ok(&["pool", "rebuild", "start", "tank"]);
}

/// One more engine is one more number: pools take it in, and another one may go.
#[test]
fn a_system_gets_more_engines() {
    let system = System::up(2, 1);
    system.ok(&["pool", "create", "tank", "--size", "512MiB"]);
    system.ok(&["cont", "create", "tank", "double", "--rd-fac", "1"]);
    let (dir, url) = (system.path("tree"), "azk://tank/double/tree");
    tree(&dir, 7);
    system.ok(&["fs", "cp", "-rT", "--verify", dir.to_str().unwrap(), url]);
    system.fails(2, &["has 2 engines", "drain"], &["up", "--engines", "1"]);
    let report = system.json(&["up", "--engines", "3"]);
    let known = (&report["engines"], &report["already_running"]);
    assert_eq!(known, (&3.into(), &2.into()), "{report}");
    assert_eq!(system.json(&["up"])["engines"], 3);
    let status = system.json(&["status"]);
    assert_eq!(status["engines"].as_array().unwrap().len(), 3, "{status}");
    let report = system.json(&["pool", "extend", "tank", "--rank", "2"]);
    assert_eq!(report["target_count"], 3, "{report}");
    // What is there is shared out, then: as much of it as if the third had been there.
    let objects = || {
        let report = system.json(&["pool", "query", "tank"]);
        let targets = report["space"]["targets"].as_array().unwrap().clone();
        let of = |at: usize| targets[at]["objects"].as_u64().unwrap();
        (of(2), of(0) + of(1) + of(2))
    };
    let (new, before) = objects();
    assert_eq!(new, 0);
    // It is said what is to come; it is begun, and stopped before anything moves.
    let balance = |verb: &[&str]| system.json(&[&["pool", "balance"], verb].concat());
    let status = || balance(&["status", "tank"]);
    let due = status();
    let state = (&due["state"], &due["is_stopped"], &due["is_auto"], &due["newest_epoch"]);
    assert_eq!(state, (&"due".into(), &false.into(), &false.into(), &1.into()), "{due}");
    let number = |of: &serde_json::Value, name: &str| of[name].as_f64().unwrap();
    let part = &due["targets"][2];
    assert_eq!((number(part, "used_bytes"), number(part, "share_percent")), (0.0, 0.0), "{due}");
    assert!(number(&due, "bytes_left") > 0.0 && number(part, "share_percent_then") > 33.0, "{due}");
    assert!(number(&due["fill"], "spread") > number(&due["fill_then"], "spread"), "{due}");
    let of_share = [number(&due["of_share"], "least"), number(&due["of_share_then"], "spread")];
    assert!(of_share[0] == 0.0 && of_share[1] < 1.0, "{due}");
    system.ok(&["pool", "rebuild", "stop", "tank"]);
    let begun = balance(&["start", "tank", "--keep-weights"]);
    assert_eq!((&begun["moves"], &begun["waits_for_rebuild"]), (&true.into(), &true.into()));
    let wanted = status();
    assert_eq!((&wanted["state"], &wanted["wanted_epoch"]), (&"wanted".into(), &1.into()));
    assert!(wanted["waits"].as_str().unwrap().contains("rebuild start"), "{wanted}");
    system.ok(&["pool", "balance", "stop", "tank"]);
    system.ok(&["pool", "rebuild", "start", "tank"]);
    assert_eq!(system.json(&["pool", "rebuild", "status", "tank", "--wait"])["state"], "idle");
    let stopped = status();
    let state = (&stopped["state"], &stopped["is_stopped"], &stopped["balanced_epoch"]);
    assert_eq!(state, (&"due".into(), &true.into(), &0.into()), "{stopped}");
    assert_eq!(system.ok(&["pool", "get-prop", "tank", "balance_stopped"]), "yes\n");
    let text = system.ok(&["pool", "balance", "status", "tank"]);
    assert!(text.contains("due, stopped") && text.contains("SHARE"), "{text}");
    system.fails(3, &["'away'"], &["pool", "balance", "status", "away"]);
    system.fails(2, &["POOL"], &["pool", "balance"]);
    assert_eq!(objects().0, 0);
    system.ok(&["pool", "balance", "tank"]);
    assert_eq!(system.ok(&["pool", "get-prop", "tank", "balance_stopped"]), "no\n");
    let even = balance(&["status", "tank", "--wait"]);
    let state = (&even["state"], &even["is_stopped"], &even["balanced_epoch"], &even["bytes_left"]);
    assert_eq!(state, (&"even".into(), &false.into(), &1.into(), &0.into()), "{even}");
    let report = system.json(&["pool", "rebuild", "status", "tank", "--wait"]);
    assert_eq!(report["is_balancing"], false, "{report}");
    let mut count = 0;
    // Who has given something drops it soon.
    let (new, all) = loop {
        let found = objects();
        count += 1;
        if found.1 == before || count > 200 {
            break found;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert_eq!(all, before);
    assert!(new > 0, "{new} of {all}");
    assert!(system.ok(&["pool", "balance", "tank"]).contains("have their share"));
    // A whole engine goes with one command, and comes back with another.
    let plan = system.json(&["system", "drain", "1", "--dry-run"]);
    let part = &plan["pools"][0];
    assert_eq!((&part["pool"], &part["targets"][0]), (&"tank".into(), &1.into()), "{plan}");
    assert!(part["used_bytes"].as_u64().unwrap() > 0, "{plan}");
    let state = || system.json(&["system", "list-engines"])[1]["state"].clone();
    assert_eq!(state(), "up");
    system.fails(3, &["no engine 9"], &["system", "drain", "9"]);
    system.ok(&["system", "drain", "1"]);
    assert_eq!(state(), "draining");
    let report = system.json(&["pool", "rebuild", "status", "tank", "--wait"]);
    assert_eq!(report["drained"][0], 1, "{report}");
    let back = system.path("got");
    system.ok(&["fs", "cp", "-rT", url, back.to_str().unwrap()]);
    let diff = std::process::Command::new("diff").arg("-r").args([&dir, &back]).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    system.ok(&["system", "drain", "1", "--undo"]);
    assert_eq!(state(), "up");
    let report = system.json(&["pool", "rebuild", "status", "tank", "--wait"]);
    assert_eq!(report["drained"].as_array().unwrap().len(), 0, "{report}");
}

/// Targets of different speed, with real engines: shares follow what is measured, when an administrator says so, and data follow the shares.
#[test]
fn shares_follow_speeds() {
    let system = System::none();
    let up = ["up", "--engines", "2", "--targets", "2", "--rate-max", "400MiB,20MiB"];
    system.ok(&up);
    system.fails(2, &["--rate-max"], &["up", "--rate-max", "1GiB"]);
    system.ok(&["pool", "create", "tank", "--size", "1GiB"]);
    system.ok(&["cont", "create", "tank", "double", "--rd-fac", "1"]);
    let (dir, url) = (system.path("tree"), "azk://tank/double/tree");
    tree(&dir, 11);
    system.ok(&["fs", "cp", "-rT", "--verify", dir.to_str().unwrap(), url]);
    let report = system.json(&["pool", "balance", "tank", "--dry-run"]);
    assert_eq!(report["moves"], false, "equal shares, and that is what is there: {report}");
    system.fails(2, &["'fast'", "placement"], &["pool", "set-prop", "tank", "placement=fast"]);
    system.ok(&["pool", "set-prop", "tank", "placement=score"]);
    let trial = system.json(&["pool", "balance", "tank", "--dry-run"]);
    assert_eq!(
        (&trial["moves"], &trial["has_new_shares"]),
        (&true.into(), &true.into()),
        "{trial}"
    );
    // In time, too: all were measured.
    let estimate = &trial["estimate"];
    let [bytes, idle, busy] = ["move_bytes", "idle_s", "busy_s"].map(|of| estimate[of].as_u64());
    assert!(
        bytes.unwrap() > 0 && busy.unwrap() >= idle.unwrap() * 4,
        "25 % of the time: {estimate}"
    );
    let share = |report: &serde_json::Value, at: usize| {
        let share = &report["shares"][at];
        (share["now_percent"].as_f64().unwrap(), share["then_percent"].as_f64().unwrap())
    };
    for (fast, slow) in [(0, 1), (2, 3)] {
        assert_eq!((share(&trial, fast).0, share(&trial, slow).0), (25.0, 25.0));
        let (fast, slow) = (share(&trial, fast).1, share(&trial, slow).1);
        assert!(fast > 4.0 * slow, "{fast} % and {slow} %");
    }
    let text = system.ok(&["pool", "balance", "tank"]);
    assert!(text.contains("THEN") && text.contains("Begun"), "{text}");
    let report = system.json(&["pool", "rebuild", "status", "tank", "--wait"]);
    assert_eq!((&report["state"], &report["is_balancing"]), (&"idle".into(), &false.into()));
    let again = system.json(&["pool", "balance", "tank", "--keep-weights"]);
    assert_eq!(again["moves"], false, "{again}");
    let back = system.path("got");
    system.ok(&["fs", "cp", "-rT", url, back.to_str().unwrap()]);
    let diff = std::process::Command::new("diff").arg("-r").args([&dir, &back]).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    let props = system.json(&["pool", "get-prop", "tank"]);
    assert_eq!((&props["placement"], &props["balance"]), (&"score".into(), &"manual".into()));
}

/// A device comes to an engine that runs: its configuration is read again, the new target is measured, pools take it in, and data come by
/// themselves. It had to be made anew, with an empty directory, before.
#[test]
fn a_running_engine_gets_a_device() {
    let system = System::up(2, 1);
    system.ok(&["pool", "create", "tank", "--size", "512MiB"]);
    system.ok(&["pool", "set-prop", "tank", "balance=auto"]);
    system.ok(&["cont", "create", "tank", "double", "--rd-fac", "1"]);
    system.ok(&["cont", "create", "tank", "single"]);
    let dir = system.path("tree");
    tree(&dir, 13);
    let urls = ["azk://tank/double/tree", "azk://tank/single/tree"];
    for url in urls {
        system.ok(&["fs", "cp", "-rT", "--verify", dir.to_str().unwrap(), url]);
    }
    let pids = system.pids();
    let config = system.dir().join("engine0/engine.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    let write = |device: &Path| {
        let text = format!("{before}\n[[target]]\ndevice = \"{}\"\n", device.display());
        std::fs::write(&config, text).unwrap();
    };
    let reload = ["system", "reload", "--config", config.to_str().unwrap()];
    assert!(system.ok(&reload).contains("already"));
    // What another engine uses is refused, and nothing has changed by that.
    write(&system.dir().join("engine1/target0"));
    system.fails(2, &["in use"], &reload);
    let targets = || system.json(&["system", "list-engines"])[0]["targets"].clone();
    assert_eq!(targets(), serde_json::json!([0]));
    write(&system.dir().join("engine0/added"));
    let report = system.json(&reload);
    assert_eq!((&report["rank"], &report["added"]), (&0.into(), &serde_json::json!([2])));
    assert_eq!(targets(), serde_json::json!([0, 2]));
    assert_eq!(system.pids(), pids, "nobody was started again");
    // What the engine is worth has grown.
    let measured = system.json(&["system", "measure", "--rank", "0", "--size", "8MiB"]);
    assert_eq!(measured[1]["target"], 2, "{measured}");
    assert!(measured.as_array().unwrap().iter().all(|of| of["score"].as_u64().unwrap() > 0));

    let extended = system.json(&["pool", "extend", "tank", "--rank", "0"]);
    assert_eq!(extended["added"], serde_json::json!([2]), "{extended}");
    let even = system.json(&["pool", "balance", "status", "tank", "--wait"]);
    assert_eq!((&even["state"], &even["balanced_epoch"]), (&"even".into(), &1.into()), "{even}");
    // All of them have something, and it is told how that and their scores differ.
    assert!(even["of_share"]["least"].as_f64().unwrap() > 0.0, "{even}");
    assert_eq!(even["of_share"], even["of_share_then"], "{even}");
    assert!(even["scores"]["least"].as_f64().unwrap() > 0.0, "{even}");
    let query = system.json(&["pool", "query", "tank"]);
    assert!(query["space"]["targets"][2]["objects"].as_u64().unwrap() > 0, "{query}");
    let check = || {
        for url in urls {
            let back = system.path("got");
            system.ok(&["fs", "cp", "-rT", url, back.to_str().unwrap()]);
            let diff = std::process::Command::new("diff").arg("-r").args([&dir, &back]).output();
            let diff = diff.unwrap();
            assert!(diff.status.success(), "{url}: {}", String::from_utf8_lossy(&diff.stdout));
            std::fs::remove_dir_all(back).unwrap();
        }
    };
    check();
    // It is the engine's, also when that starts again; none may go.
    system.ok(&["down"]);
    system.ok(&["up"]);
    assert_eq!(targets(), serde_json::json!([0, 2]));
    check();
    std::fs::write(&config, &before).unwrap();
    system.fails(2, &["none may go"], &reload);
}

/// An engine is retired as `docs/operate.md` says: drained, stopped, excluded. Of what has one copy the pool then said that it cannot be reached, checks of names asked the engine that was
/// gone for objects, and snapshots waited for it.
#[test]
fn who_is_drained_and_stopped_is_missed_by_nobody() {
    let system = System::up(3, 1);
    system.ok(&["pool", "create", "tank", "--size", "600MiB"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let dir = system.path("dir");
    tree(&dir, 5);
    let url = "azk://tank/home/dir";
    system.ok(&["fs", "cp", "-rT", "--verify", dir.to_str().unwrap(), url]);
    system.ok(&["system", "drain", "2"]);
    system.ok(&["pool", "rebuild", "status", "tank", "--wait"]);
    system.ok(&["system", "stop", "--engine", "2"]);
    system.ok(&["system", "exclude", "2", "--why", "retired"]);
    // The control service finds out by and by that nobody is there: it said so after two or three seconds.
    for _ in 0..50 {
        let output = system.run(&["pool", "health", "tank", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let said = system.ok(&["pool", "health", "tank"]);
    assert!(said.contains("HEALTHY: all 2 targets are up; 1 more, drained and away"), "{said}");
    // Its share is that of the others.
    let balance = system.json(&["pool", "balance", "status", "tank"]);
    let share = |of: &serde_json::Value| of["share_percent"].as_f64().unwrap();
    let shares: f64 = balance["targets"].as_array().unwrap().iter().map(share).sum();
    assert!((shares - 100.0).abs() < 0.1, "{balance}");
    let quick = |args: &[&str]| system.ok(&[&["--timeout", "20"], args].concat());
    quick(&["fs", "check", "azk://tank/home"]);
    quick(&["cont", "snapshot", "create", "tank", "home", "monday"]);
    quick(&["fs", "rm", "-r", url]);
    quick(&["cont", "snapshot", "rollback", "tank", "home", "monday"]);
    // Back again it serves what it gets, and knows of the snapshot.
    system.ok(&["system", "clear-exclude", "2"]);
    system.ok(&["up"]);
    system.ok(&["pool", "reintegrate", "tank", "--rank", "2"]);
    system.ok(&["pool", "rebuild", "status", "tank", "--wait"]);
    let back = system.path("back");
    for from in [&["--snapshot", "monday"][..], &[]] {
        system.ok(&[&["fs", "cp", "-rT", url, back.to_str().unwrap()], from].concat());
        let diff = std::process::Command::new("diff").arg("-r").args([&dir, &back]).output();
        let diff = diff.unwrap();
        assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
        std::fs::remove_dir_all(&back).unwrap();
    }
    system.ok(&["cont", "snapshot", "destroy", "tank", "home", "monday"]);
    system.ok(&["fs", "check", "azk://tank/home"]);
}
