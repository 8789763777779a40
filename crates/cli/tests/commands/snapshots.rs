//! `cont snapshot` and `fs --snapshot`: what was is shown, copied back and gone back to.

use crate::harness::{System, assert_same_tree, make_tree, noise};
use std::fs;

#[test]
fn a_snapshot_shows_what_was_and_one_can_go_back_to_it() {
    let system = System::with_home();
    let source = system.path("source");
    make_tree(&source);
    fs::write(source.join("large"), noise(7, 3 << 20)).unwrap();
    let local = source.to_str().unwrap();
    let tree = "azk://tank/home/tree";
    system.ok(&["fs", "cp", "-r", local, tree]);
    let first = system.json(&["cont", "snapshot", "create", "tank", "home", "monday"]);
    assert_eq!(first["name"], "monday");
    system.fails(4, &["monday"], &["cont", "create-snap", "tank", "home", "monday"]);
    system.fails(2, &["letter"], &["cont", "create-snap", "tank", "home", "123"]);

    // Everything changes: contents, names, what is there at all.
    fs::write(system.path("other"), noise(8, 3 << 20)).unwrap();
    let other = system.path("other");
    system.ok(&["fs", "cp", other.to_str().unwrap(), "azk://tank/home/tree/large"]);
    system.ok(&["fs", "mv", "azk://tank/home/tree/chunk", "azk://tank/home/tree/moved"]);
    system.ok(&["fs", "mkdir", "azk://tank/home/later"]);
    let second = system.json(&["cont", "create-snap", "tank", "home"]);
    system.ok(&["fs", "rm", "-rf", tree]);

    // The old tree, by name and by epoch.
    let epoch = first["epoch"].to_string();
    for (at, name) in [("monday", "by-name"), (&epoch[..], "by-epoch")] {
        let back = system.path(name);
        system.ok(&["fs", "cp", "-r", "--snapshot", at, tree, back.to_str().unwrap()]);
        assert_same_tree(&source, &back);
    }
    let listed = system.ok(&["fs", "ls", "--snapshot", "monday", "azk://tank/home/"]);
    assert!(listed.contains("tree") && !listed.contains("later"), "{listed}");
    let listed = system.ok(&["fs", "ls", "azk://tank/home/"]);
    assert!(!listed.contains("tree") && listed.contains("later"), "{listed}");
    let one = ["fs", "stat", "--snapshot", "monday", "azk://tank/home/tree/large"];
    assert!(system.ok(&one).contains("large"));
    system.fails(3, &["no snapshot"], &["fs", "ls", "--snapshot", "sunday", "azk://tank/home/"]);
    let change = ["fs", "rm", "--snapshot", "monday", "azk://tank/home/tree/large"];
    system.fails(8, &["cannot be changed"], &change);
    // One file back to where it was, from the snapshot to the present.
    let (old, new) = ("azk://tank/home/tree/large", "azk://tank/home/large");
    system.ok(&["fs", "cp", "--snapshot", "monday", old, new]);
    let back = system.path("large");
    system.ok(&["fs", "get", new, back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == noise(7, 3 << 20));

    // What there is of them.
    let all = system.json(&["cont", "snapshot", "list", "tank", "home"]);
    assert_eq!(all["snapshots"].as_array().unwrap().len(), 2);
    assert_eq!(all["rolling_back"], serde_json::Value::Null);
    assert!(system.ok(&["cont", "list-snaps", "tank", "home"]).contains("monday"));
    assert_eq!(system.json(&["cont", "query", "tank", "home"])["snapshots"], 2);

    // Back, whole.
    let to = ["cont", "snapshot", "rollback", "tank", "home", "monday"];
    system.ok(&to);
    let back = system.path("rolled-back");
    system.ok(&["fs", "cp", "-r", tree, back.to_str().unwrap()]);
    // Times of contents are those of the rollback; everything else is as it was.
    assert!(fs::read(back.join("large")).unwrap() == noise(7, 3 << 20));
    assert_eq!(fs::read(back.join("chunk")).unwrap(), fs::read(source.join("chunk")).unwrap());
    assert!(system.ok(&["fs", "check", "azk://tank/home/"]).len() > 1);
    // The later snapshot is as it was, and goes by its epoch.
    let epoch = second["epoch"].to_string();
    let listed = system.ok(&["fs", "ls", "--snapshot", &epoch, tree]);
    assert!(listed.contains("moved"), "{listed}");
    system.ok(&["cont", "destroy-snap", "tank", "home", &epoch]);
    system.ok(&["cont", "snapshot", "destroy", "tank", "home", "monday"]);
    system.fails(3, &["monday"], &["cont", "snapshot", "destroy", "tank", "home", "monday"]);
    system.ok(&["fs", "ls", tree]);
}
