//! A container that gets another tier: another store, or the same one with another key.

use super::*;

/// Whoever wanted another key, or left a provider, had files that could be read, and neither copied nor freed nor collected any more.
#[test]
fn a_container_moves_to_another_tier() {
    let system = system();
    let (cold, keyed) = (store(&system), system.path("keyed"));
    let evicted = noise(70, 19 * MIB + 5);
    let changed = noise(71, 9 * MIB);
    put(&system, "evicted", &evicted);
    put(&system, "changed", &changed);
    put(&system, "small", b"small");
    system.ok(&["fs", "tier", "sync", HOME]);
    let url = |name: &str| format!("{HOME}/{name}");
    system.ok(&["fs", "tier", "evict", &url("evicted")]);

    let (key, to) = (system.path("key"), format!("fs://{}", keyed.display()));
    let key = key.to_str().unwrap();
    system.ok(&["tier", "make-key", key]);
    system.ok(&["tier", "add", "keyed", "--url", &to, "--zstd", "--key-file", key]);
    system.ok(&["tier", "attach", "keyed", HOME]);
    // What is in the tier of before is read there, is not taken for a copy in the new one, and keeps it from being forgotten.
    assert_eq!(cat(&system, "evicted"), evicted);
    let told = system.ok(&["fs", "tier", "status", HOME]);
    assert!(told.contains("3 files in tier 'cold', not in 'keyed'"), "{told}");
    let freed = system.json(&["fs", "tier", "evict", &url("changed")]);
    assert_eq!((&freed["bytes"], &freed["dirty_bytes"]), (&0.into(), &(9 * MIB).into()));
    assert_eq!(system.json(&["tier", "gc", "--older-than", "0", HOME])["removed_objects"], 0);
    system.fails(7, &[HOME, "azekura fs tier sync"], &["tier", "remove", "cold"]);

    // One by itself, which has changed since.
    let mut half = changed.clone();
    half.truncate(5 * MIB);
    put(&system, "changed", &half);
    let synced = system.json(&["fs", "tier", "sync", &url("changed")]);
    assert_eq!(synced["bytes"], 5 * MIB);
    system.fails(7, &[HOME], &["tier", "remove", "cold"]);

    // All others; what the pool has given up goes from one tier to the other, and not into the pool.
    let synced = system.json(&["fs", "tier", "sync", HOME]);
    assert_eq!((&synced["changed"], &synced["failed"]), (&2.into(), &0.into()), "{synced}");
    let status = system.json(&["fs", "tier", "status", HOME]);
    for one in status.as_array().unwrap() {
        assert_eq!(one["tier"], "keyed", "{one}");
        let state = if one["path"] == url("evicted") { "cloud" } else { "both" };
        assert_eq!(one["state"], state, "{one}");
    }
    assert_eq!(system.json(&["fs", "tier", "sync", HOME])["changed"], 0);

    // Nothing needs the first one.
    let collected = system.json(&["tier", "gc", "--older-than", "0", "--tier", "cold", HOME]);
    assert!(collected["removed_objects"].as_u64().unwrap() >= 9, "{collected}");
    assert_eq!(objects(&cold, ""), Vec::<PathBuf>::new());
    system.ok(&["tier", "remove", "cold"]);
    std::fs::remove_dir_all(&cold).unwrap();
    system.ok(&["fs", "tier", "evict", HOME]);
    for (name, data) in [("evicted", &evicted[..]), ("changed", &half), ("small", b"small")] {
        assert!(cat(&system, name) == data, "{name}");
    }
    system.fails(7, &[HOME], &["tier", "remove", "keyed"]);
    let restored = system.json(&[
        "tier", "restore", "--from", "keyed", "--pool", "tank", "--as", "again", "--cont", "home",
    ]);
    assert_eq!((&restored[0]["files"], &restored[0]["missing"]), (&3.into(), &0.into()));
    assert!(system.run(&["fs", "cat", "azk://tank/again/evicted"]).stdout == evicted);
}

/// A description names what is in its own store only: that of a container whose files are in another one would be of files that are missing.
#[test]
fn a_description_names_what_is_in_its_tier() {
    let system = system();
    put(&system, "a", b"in the first one");
    system.ok(&["fs", "tier", "sync", HOME]);
    let to = format!("fs://{}", system.path("next").display());
    system.ok(&["tier", "add", "next", "--url", &to]);
    system.ok(&["tier", "attach", "next", HOME]);
    // A snapshot of the pool shows the file as it was, with its copy in the first tier.
    system.ok(&["cont", "snapshot", "create", "tank", "home", "monday"]);
    system.ok(&["fs", "tier", "sync", HOME]);
    system.fails(7, &[HOME], &["tier", "remove", "cold"]);
    system.ok(&["cont", "snapshot", "destroy", "tank", "home", "monday"]);
    system.ok(&["fs", "tier", "sync", HOME]);
    system.ok(&["tier", "remove", "cold"]);
    // Back again: it is the one of before now.
    let to = format!("fs://{}", store(&system).display());
    system.ok(&["tier", "add", "cold", "--url", &to]);
    system.ok(&["tier", "attach", "cold", HOME]);
    put(&system, "b", b"in neither");
    system.ok(&["fs", "tier", "sync", &format!("{HOME}/b")]);
    system.fails(7, &[HOME], &["tier", "remove", "next"]);
    let restore =
        ["tier", "restore", "--pool", "tank", "--as", "again", "--cont", "home", "--from"];
    let restored = system.json(&[&restore[..], &["next"]].concat());
    assert_eq!((&restored[0]["files"], &restored[0]["missing"]), (&1.into(), &0.into()));
}

/// An agent went on with the tier that the container had when it began, and would have brought back there what was moved on.
#[test]
fn an_agent_that_runs_goes_on_with_the_new_tier() {
    let system = system();
    let data = noise(72, 3 * MIB);
    system.ok(&["fs", "tier", "policy", "set", HOME, "--rule", "evict"]);
    put(&system, "a", &data);
    let socket = system.path("tier.sock");
    let agent = system
        .command(&["tier", "agent", "--socket", socket.to_str().unwrap()])
        .args(["--move", "--every", "1s"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut agent = Running(agent);
    let mut until = |name: &str, tier: &str| loop {
        let status = system.json(&["fs", "tier", "status", &format!("{HOME}/{name}")]);
        if status[0]["tier"] == tier && status[0]["state"] == "cloud" {
            break;
        }
        assert!(agent.0.try_wait().unwrap().is_none(), "the agent has ended: {status}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    until("a", "cold");
    let next = format!("fs://{}", system.path("next").display());
    system.ok(&["tier", "add", "next", "--url", &next]);
    system.ok(&["tier", "attach", "next", HOME]);
    put(&system, "b", &data);
    until("b", "next");
    // What the pool has nothing of is nothing to a rule; it is brought by command, and the agent leaves it there.
    system.ok(&["fs", "tier", "sync", HOME]);
    std::thread::sleep(std::time::Duration::from_secs(3));
    until("a", "next");
    // It has the whole of it, without anybody else.
    std::fs::remove_dir_all(store(&system)).unwrap();
    assert!(cat(&system, "a") == data && cat(&system, "b") == data);
}
