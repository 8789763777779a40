//! `azekura vos` on the target of a system that was stopped.

use crate::harness::{System, all_text};

#[test]
fn a_stopped_target_is_looked_into_and_its_damage_found() {
    let system = System::up(1, 1);
    system.ok(&["pool", "create", "tank", "--size", "256MiB", "--durability", "wal"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let file = system.path("file");
    std::fs::write(&file, vec![7u8; 100_000]).unwrap();
    system.ok(&["fs", "cp", file.to_str().unwrap(), "azk://tank/home/file"]);
    let verbose = system.json(&["pool", "query", "tank", "--verbose"]);
    assert_eq!(verbose["stores"][0]["devices"][0]["role"], "both", "{verbose}");
    assert!(verbose["stores"][0]["log"]["batch_records"]["count"].as_u64().unwrap() > 0);
    assert!(verbose["space"]["targets"][0]["nvme"]["used_bytes"].as_u64().unwrap() >= 100_000);
    assert!(system.ok(&["pool", "query", "tank", "--verbose"]).contains("COMMIT MEAN"));
    let target = system.dir().join("engine0/target0");
    let target = target.to_str().unwrap();
    system.fails(7, &["in use"], &["vos", "stat", target]);
    system.ok(&["down"]);
    let config = system.dir().join("engine0/engine.toml");
    let stat = system.json(&["vos", "stat", "--config", config.to_str().unwrap()]);
    assert_eq!(stat["pools"][0]["durability"], "wal", "{stat}");
    let pool = stat["pools"][0]["pool"].as_u64().unwrap();
    assert!(system.ok(&["vos", "stat", target]).contains("DURABILITY"));
    let dump = system.json(&["vos", "dump", target]);
    let items = dump.as_array().unwrap();
    let counts = items.iter().filter(|item| item["kind"] == "extent");
    let stored: u64 = counts.map(|extent| extent["count"].as_u64().unwrap()).sum();
    assert_eq!(stored, 100_000);
    assert!(system.ok(&["vos", "dump", target, "--objects"]).contains("object "));
    assert!(system.ok(&["vos", "check", target, "--data"]).contains("The target is whole."));
    system.fails(2, &["0/0"], &["vos", "stat", target, "--nvme", "/x:0/0"]);
    system.fails(3, &["is not there"], &["vos", "stat", "/nonexistent/target"]);
    // A byte of the settings of its only shard.
    let settings = std::path::Path::new(target).join(format!("pool.{pool}/shard"));
    let mut raw = std::fs::read(&settings).unwrap();
    raw[17] ^= 1;
    std::fs::write(&settings, raw).unwrap();
    let checked = system.run(&["vos", "check", target]);
    let text = all_text(&checked);
    assert_eq!(checked.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("DAMAGE: pool {pool}")), "{text}");
    // It used to end with 0, as if all were well.
    let repaired = system.run(&["vos", "repair", target]);
    let text = all_text(&repaired);
    assert_eq!(repaired.status.code(), Some(1), "{text}");
    assert!(text.contains("NOT REPAIRED") && text.contains("nothing can be done"), "{text}");
    let json = all_text(&system.run(&["vos", "repair", target, "--dry-run", "--json"]));
    assert!(json.contains("\"left\"") && !json.contains("replica"), "{json}");
}
