//! Snapshots in the store, and one file out of them.

use super::faults::{release, until_held};
use super::*;
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

#[test]
fn the_store_keeps_a_container_as_it_was_and_gives_one_file_back() {
    let system = system();
    let (first, second) = (noise(30, 9 * MIB), noise(31, 9 * MIB + 7));
    put(&system, "a", &first);
    put(&system, "never synced", b"small");
    system.ok(&["fs", "tier", "sync", &format!("{HOME}/a")]);
    let made = system.json(&["tier", "snapshot", "create", HOME]);
    // What the copy has is named; the other file is sent.
    assert_eq!((&made["files"], &made["sent_bytes"]), (&2.into(), &5.into()), "{made}");
    let old = made["snapshot"].as_str().unwrap().to_string();
    // The pool keeps no snapshot for it, and the file knows nothing of the copy.
    let kept = system.json(&["cont", "snapshot", "list", "tank", "home"]);
    assert_eq!(kept["snapshots"].as_array().unwrap().len(), 0);
    assert_eq!(state(&system, "never synced"), "local");

    // Changed, evicted, removed: the snapshot has it as it was, whatever is collected.
    put(&system, "a", &second);
    let mut half = second.clone();
    half[0] ^= 1;
    system.ok(&["fs", "tier", "sync", HOME]);
    system.ok(&["fs", "tier", "evict", HOME]);
    let made = system.json(&["tier", "snapshot", "create", HOME]);
    assert_eq!(made["sent_bytes"], 0, "what is in the tier only is named: {made}");
    put(&system, "a", &half);
    let made = system.json(&["tier", "snapshot", "create", HOME]);
    assert!(made["sent_bytes"].as_u64().unwrap() > 0, "{made}");
    system.ok(&["fs", "rm", &format!("{HOME}/a")]);
    system.ok(&["tier", "gc", HOME, "--older-than", "0"]);
    let listed = system.json(&["tier", "snapshot", "list", HOME]);
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|one| one["snapshot"].as_str().unwrap()).collect();
    assert_eq!((names.len(), names[0]), (3, &old[..]));
    for (at, want) in [&first, &second, &half].into_iter().enumerate() {
        let to = format!("{HOME}/from {at}");
        let from = ["tier", "restore-file", "--from", "cold", "--cont", "home", "--snapshot"];
        let restored = system.json(&[&from[..], &[names[at], "/a", &to]].concat());
        assert_eq!(restored["bytes"], want.len());
        assert!(cat(&system, &format!("from {at}")) == **want, "{at}");
    }
    let from = ["tier", "restore-file", "--from", "cold", "--cont", "home"];
    let to = format!("{HOME}/again");
    system.ok(&[&from[..], &["/a", &to]].concat());
    assert!(cat(&system, "again") == second, "as of the last sync of the root");
    system.fails(3, &["no file '/b'"], &[&from[..], &["/b", &format!("{HOME}/b")]].concat());
    let at = ["--snapshot", "1", "/a", &to];
    system.fails(3, &["in snapshot 1"], &[&from[..], &at].concat());

    // Retention.
    let made = system.json(&["tier", "snapshot", "create", HOME, "--keep", "1"]);
    assert_eq!(made["removed"], 3);
    let before = objects(&store(&system), ".part").len();
    system.ok(&["tier", "gc", HOME, "--older-than", "0"]);
    assert!(objects(&store(&system), ".part").len() < before);
    assert_eq!(system.json(&["tier", "snapshot", "list", HOME]).as_array().unwrap().len(), 1);
}

#[test]
fn a_snapshot_of_one_directory_has_nothing_else_and_is_thinned_by_itself() {
    let system = system();
    for dir in ["d", "d/e", "other"] {
        system.ok(&["fs", "mkdir", &format!("{HOME}/{dir}")]);
    }
    put(&system, "d/e/a", b"first");
    put(&system, "d/b", b"second");
    put(&system, "other/c", b"third");
    system.ok(&["fs", "ln", "-s", "d", &format!("{HOME}/link")]);
    let of = |dir: &str, keep: &str| {
        let url = format!("{HOME}/{dir}");
        system.json(&["tier", "snapshot", "create", &url, "--keep", keep])
    };
    let whole = system.json(&["tier", "snapshot", "create", HOME]);
    let one = of("d", "1");
    // Trailing slashes say nothing.
    let deeper = of("d/e/", "1");
    let files = [&whole["files"], &one["files"], &deeper["files"]];
    assert_eq!(files.map(|count| count.as_u64()), [3, 2, 1].map(Some));
    // Only that of the same directory goes.
    put(&system, "d/e/a", b"newer");
    let again = of("d", "1");
    assert_eq!((&again["removed"], &again["files"]), (&1.into(), &2.into()));
    let listed = system.json(&["tier", "snapshot", "list", HOME]);
    let of_what: Vec<(&str, Option<&str>)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["snapshot"].as_str().unwrap(), one["directory"].as_str()))
        .collect();
    let name = |made: &serde_json::Value| made["snapshot"].as_str().unwrap().to_string();
    let (whole, deeper, again) = (name(&whole), name(&deeper), name(&again));
    assert_eq!(of_what, [(&*whole, None), (&deeper, Some("/d/e")), (&again, Some("/d"))]);

    system.ok(&["fs", "rm", "-r", &format!("{HOME}/d"), &format!("{HOME}/other")]);
    system.ok(&["tier", "gc", HOME, "--older-than", "0"]);
    let back = |snapshot: &str, path: &str, to: &str| {
        let from = ["tier", "restore-file", "--from", "cold", "--cont", "home", "--snapshot"];
        let to = format!("{HOME}/{to}");
        system.run(&[&from[..], &[snapshot, path, &to]].concat())
    };
    for (at, (snapshot, path, want)) in [
        (&whole, "/other/c", Some("third")),
        (&again, "/other/c", None),
        (&deeper, "/d/e/a", Some("first")),
        (&deeper, "/d/b", None),
        (&again, "/d/e/a", Some("newer")),
        (&again, "/d/b", Some("second")),
    ]
    .into_iter()
    .enumerate()
    {
        let to = format!("back {at}");
        let output = back(snapshot, path, &to);
        assert_eq!(output.status.success(), want.is_some(), "{}", all_text(&output));
        if let Some(want) = want {
            assert_eq!(cat(&system, &to), want.as_bytes(), "{path} of {snapshot}");
        }
    }
    for wrong in ["link", "back 0", "none"] {
        let url = format!("{HOME}/{wrong}");
        let output = system.run(&["tier", "snapshot", "create", &url]);
        assert!(!output.status.success(), "{wrong}: {}", all_text(&output));
    }
    // Nothing is left of what was refused.
    let kept = system.json(&["cont", "snapshot", "list", "tank", "home"]);
    assert_eq!(kept["snapshots"].as_array().unwrap().len(), 0);
}

/// Nobody had to run a command for what a bucket says of a container: it was as old as the last `fs tier sync` of the root.
#[test]
fn an_agent_describes_and_keeps_snapshots_at_intervals() {
    let system = system();
    put(&system, "a", b"as it was");
    let policy = ["fs", "tier", "policy", "set", HOME, "--rule", "copy"];
    system.ok(&policy);
    let socket = system.path("tier.sock");
    let mut agent = system.command(&["tier", "agent", "--socket", socket.to_str().unwrap()]);
    agent.args(["--move", "--every", "1s", "--describe-every", "1s"]);
    agent.args(["--describe-keep", "2", "--snapshot-every", "1s", "--snapshot-keep", "2"]);
    let mut agent = Running(agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let mut until = |what: &str, is_there: &dyn Fn() -> bool| {
        while !is_there() {
            assert!(agent.0.try_wait().unwrap().is_none(), "{what}: the agent has ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let restored = |name: &str| {
        let to = format!("{HOME}/tmp");
        let output =
            system.run(&["tier", "restore-file", "--from", "cold", "--cont", "home", name, &to]);
        let is_there = output.status.success();
        if is_there {
            system.ok(&["fs", "rm", &to]);
        }
        is_there
    };
    until("a", &|| restored("/a"));
    put(&system, "b", b"later");
    until("b", &|| restored("/b"));
    let names = || -> Vec<String> {
        let listed = system.json(&["tier", "snapshot", "list", HOME]);
        let listed = listed.as_array().unwrap();
        listed.iter().map(|one| one["snapshot"].as_str().unwrap().to_string()).collect()
    };
    until("the first snapshot", &|| !names().is_empty());
    let first = names()[0].clone();
    until("another in its place", &|| !names().contains(&first) && names().len() == 2);
    // A description for each change, of which two stay.
    let trees = || {
        let all = objects(&store(&system), ".jsonl");
        let is_tree = |path: &&PathBuf| path.parent().unwrap().ends_with("trees");
        all.iter().filter(is_tree).cloned().collect::<Vec<PathBuf>>()
    };
    for name in ["c", "d"] {
        let before = trees();
        put(&system, name, b"one more");
        until(name, &|| trees().iter().any(|tree| !before.contains(tree)));
    }
    until("the older ones are removed", &|| trees().len() == 2);
}

/// A `tier snapshot create` that was killed left its snapshot of the pool behind, and every later one failed until somebody removed that by hand. One that was only slow wrote its
/// own down all the same, and removed it again: with `--keep 1` that of whoever had taken it for dead went before, and none was left.
#[test]
fn a_maker_that_looks_dead_gives_way_and_costs_no_snapshot() {
    let (system, s3) = with_s3();
    system.ok(&["tier", "attach", "s3", HOME]);
    put(&system, "a", &noise(9, 3 * MIB));
    let create = ["tier", "snapshot", "create", HOME, "--keep", "1"];
    // It waits for the store, and says that it lives.
    let mut slow = until_held(&system, &s3, 1, true, &create).unwrap();
    system.fails(4, &["runs"], &create);
    // From here on it looks as one that was killed.
    let pid = Pid::from_raw(slow.id() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let made = system.json(&create);
    assert_eq!(made["files"], 1);
    kill_process(pid, Signal::CONT).unwrap();
    release(&s3);
    assert!(!slow.wait().unwrap().success(), "its snapshot of the pool was gone");
    let listed = system.json(&["tier", "snapshot", "list", HOME]);
    let names: Vec<&serde_json::Value> =
        listed.as_array().unwrap().iter().map(|one| &one["snapshot"]).collect();
    assert_eq!(names, [&made["snapshot"]]);
    let kept = system.json(&["cont", "snapshot", "list", "tank", "home"]);
    assert_eq!(kept["snapshots"].as_array().unwrap().len(), 0);
    let attrs = system.ok(&["cont", "get-attr", "tank", "home"]);
    assert!(!attrs.contains("azekura.tier.snapshot"), "{attrs}");
}
