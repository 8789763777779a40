//! Files with copies in the tier get another object class by command: nothing is brought back, and the copy is theirs as before.

use super::*;

#[test]
fn what_is_in_the_tier_only_stays_there_in_another_class() {
    let system = system();
    let mut data = noise(7, 19 * MIB + 5);
    put(&system, "a", &data);
    let url = format!("{HOME}/a");
    system.ok(&["fs", "tier", "sync", &url]);
    system.ok(&["fs", "tier", "evict", &url]);
    let before = system.json(&["fs", "stat", &url]);
    for class in ["SX+1MiB", "S1", "SX", "SX+1MiB"] {
        let had = system.json(&["fs", "stat", &url])[0]["oclass"] == class;
        let report = system.json(&["fs", "migrate", "--oclass", class, &url]);
        if had {
            assert_eq!(report["had_it"], 1, "{report}");
            continue;
        }
        assert_eq!((&report["migrated"], &report["failed"]), (&1.into(), &serde_json::json!([])));
        // The chunk with the end of the file is in the pool.
        assert_eq!(report["copied_bytes"], 5, "{report}");
        assert_eq!(state(&system, "a"), "cloud", "{class}");
        let after = system.json(&["fs", "stat", &url]);
        for same in ["size", "mtime_ns", "tier"] {
            assert_eq!(after[0][same], before[0][same], "{class}, {same}");
        }
        assert_eq!(after[0]["oclass"], class);
        assert_eq!(cat(&system, "a"), data, "{class}");
    }
    // Its parts are in use, though their keys begin with an object that is gone.
    let collected = system.json(&["tier", "gc", "--older-than", "0", HOME]);
    assert_eq!(collected["removed_objects"], 0, "{collected}");
    assert_eq!(system.json(&["fs", "tier", "sync", &url])["changed"], 0);
    assert_eq!(system.json(&["fs", "tier", "fetch", &url])["bytes"], 19 * MIB);
    assert_eq!(state(&system, "a"), "both");
    // A change of one part sends that one.
    data[9 * MIB..9 * MIB + 7].copy_from_slice(b"changed");
    put(&system, "a", &data);
    assert_eq!(state(&system, "a"), "dirty");
    system.ok(&["fs", "migrate", "--oclass", "S1", &url]);
    assert_eq!(state(&system, "a"), "dirty");
    system.ok(&["fs", "tier", "sync", &url]);
    system.ok(&["fs", "tier", "evict", &url]);
    assert_eq!((state(&system, "a"), cat(&system, "a") == data), ("cloud".into(), true));
    system.ok(&["tier", "gc", "--older-than", "0", HOME]);
    assert_eq!(cat(&system, "a"), data);
}
