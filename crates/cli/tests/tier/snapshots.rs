//! Snapshots in the store, and one file out of them.

use super::*;

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
