//! `pool` and `cont`: every verb, for people and for programs.

use crate::harness::{self, System};

#[test]
fn pools_are_made_shown_changed_and_removed() {
    let system = System::up(1, 2);
    assert_eq!(system.json(&["pool", "list"]), serde_json::json!([]));
    let made = system.json(&["pool", "create", "tank", "--size", "256MiB"]);
    assert_eq!(made["label"], "tank");
    assert_eq!(made["durability"], "wal");
    let total = made["total_bytes"].as_u64().unwrap();
    assert!(total.abs_diff(256 << 20) <= 1 << 20, "{made}");
    system.ok(&[
        "pool",
        "create",
        "fast",
        "--size",
        "128MiB",
        "--durability",
        "memory",
        "--scm-percent",
        "50",
        "--targets",
        "1",
    ]);
    let listed = system.json(&["pool", "list"]);
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    let table = system.ok(&["pool", "list"]);
    assert!(table.contains("tank") && table.contains("memory"), "{table}");

    let fast = system.json(&["pool", "query", "fast"]);
    assert_eq!(fast["targets"].as_array().unwrap().len(), 1, "{fast}");
    assert_eq!(fast["scm_bytes"], fast["nvme_bytes"], "{fast}");
    assert_eq!(fast["space"]["silent"], serde_json::json!([]), "{fast}");
    // A UUID is as good as a label.
    let uuid = fast["uuid"].as_str().unwrap();
    assert_eq!(system.json(&["pool", "query", uuid])["label"], "fast");
    assert!(system.ok(&["pool", "query", "tank"]).contains("Data tier"));

    assert_eq!(system.ok(&["pool", "get-prop", "tank", "durability"]), "wal\n");
    system.ok(&["pool", "set-prop", "fast", "label=quick"]);
    system.fails(3, &["fast"], &["pool", "query", "fast"]);
    assert_eq!(system.json(&["pool", "get-prop", "quick"])["label"], "quick");

    assert_eq!(system.ok(&["pool", "get-prop", "tank", "ioc_max_writers"]), "off\n");
    assert_eq!(system.json(&["pool", "query", "tank"]).get("admission"), None);
    system.ok(&["pool", "set-prop", "tank", "ioc-max-writers=4", "ioc_max_readers=auto"]);
    system.ok(&["pool", "set-prop", "tank", "ioc_weights=climate:3,test:1"]);
    system.fails(
        2,
        &["ioc_max_writers", "auto"],
        &["pool", "set-prop", "tank", "ioc_max_writers=0"],
    );
    assert_eq!(system.ok(&["pool", "get-prop", "tank", "ioc_weights"]), "climate:3,test:1\n");
    let admission = system.json(&["pool", "query", "tank"])["admission"].clone();
    for target in admission.as_array().unwrap() {
        assert_eq!(target["writers"]["limit"], "4", "{admission}");
        assert_eq!(target["readers"]["limit"], "auto", "{admission}");
        assert_eq!(target["writers"]["limit_now"], 4, "{admission}");
    }
    assert!(system.ok(&["pool", "query", "tank"]).contains("MEAN WAIT"));

    system.ok(&["pool", "set-attr", "tank", "owner=climate", "note=a=b"]);
    assert_eq!(system.ok(&["pool", "get-attr", "tank", "note"]), "a=b\n");
    assert_eq!(system.json(&["pool", "get-attr", "tank"])["owner"], "climate");
    system.ok(&["pool", "del-attr", "tank", "note"]);
    system.fails(3, &["note"], &["pool", "get-attr", "tank", "note"]);

    system.ok(&["cont", "create", "tank", "home"]);
    system.fails(7, &["tank"], &["pool", "destroy", "tank"]);
    system.ok(&["pool", "destroy", "tank", "--force"]);
    system.ok(&["pool", "destroy", "quick"]);
    assert_eq!(system.json(&["pool", "list"]), serde_json::json!([]));
}

#[test]
fn containers_are_made_shown_changed_and_removed() {
    let system = System::up(1, 2);
    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    let made = system.json(&[
        "cont",
        "create",
        "tank",
        "home",
        "--file-oclass",
        "SX",
        "--chunk-size",
        "64KiB",
        "--csum",
        "crc64",
    ]);
    assert_eq!(made["type"], "posix");
    assert_eq!(made["file_oclass"], "SX");
    assert_eq!(made["dir_oclass"], "SX@8192");
    assert_eq!(made["chunk_bytes"], 65536);
    assert_eq!(made["csum"], "crc64");
    system.ok(&["cont", "create", "tank", "objects", "--type", "plain", "--oclass", "s2"]);
    let listed = system.json(&["cont", "list", "tank"]);
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    assert!(system.ok(&["cont", "list", "tank"]).contains("objects"));
    assert!(system.ok(&["cont", "query", "tank", "home"]).contains("Chunk size"));
    assert_eq!(system.json(&["cont", "query", "tank", "objects"])["oclass"], "S2");
    // Files and directories are progressive where nobody names a class.
    let made = system.json(&["cont", "create", "tank", "plainly"]);
    assert_eq!((&made["file_oclass"], &made["dir_oclass"]), (&"SX+1MiB".into(), &"SX@8192".into()));
    assert_eq!(made["oclass"], "S1");
    assert_eq!(made["first_part_bytes"], 1 << 20, "{made}");
    for (options, class) in [
        (&["--first-part", "64KiB"][..], "SX+64KiB"),
        (&["--first-part", "0"], "S1"),
        (&["--oclass", "S2"], "S2"),
        (&["--file-oclass", "sx+8m"], "SX+8MiB"),
        (&["--rd-fac", "1"], "RP_2GX+1MiB"),
        (&["--oclass", "S2", "--first-part", "2MiB"], "SX+2MiB"),
        (&["--rd-fac", "1", "--first-part", "1MiB"], "RP_2GX+1MiB"),
    ] {
        let made = system.json(&[&["cont", "create", "tank", "other"], options].concat());
        assert_eq!(made["file_oclass"], class, "{options:?}");
        system.ok(&["cont", "destroy", "tank", "other"]);
    }
    for size in ["3MiB", "2KiB", "2GiB", "much"] {
        let words = ["cont", "create", "tank", "other", "--first-part", size];
        system.fails(2, &[size.trim_end_matches(char::is_alphabetic)], &words);
    }
    assert_eq!(system.ok(&["cont", "get-prop", "tank", "plainly", "first_part"]), "1048576\n");
    system.ok(&["cont", "destroy", "tank", "plainly"]);

    // Directories that spread when they are large. Files cannot.
    let words = ["cont", "create", "tank", "wide", "--dir-oclass", "sx@8192", "--first-part", "1m"];
    let made = system.json(&words);
    assert_eq!((&made["dir_oclass"], &made["file_oclass"]), (&"SX@8192".into(), &"SX+1MiB".into()));
    for class in ["--file-oclass", "--oclass"] {
        let words = ["cont", "create", "tank", "other", class, "SX@8192"];
        system.fails(2, &["SX@8192", "directories only"], &words);
    }
    system.fails(2, &["SX@1000"], &["cont", "create", "tank", "other", "--dir-oclass", "SX@1000"]);
    // Files with copies in directories without any are lost with their names.
    let copied = ["cont", "create", "tank", "copied", "--file-oclass", "RP_2GX"];
    let told = system.ok(&copied);
    assert!(told.contains("(class SX@8192) of none") && told.contains("--rd-fac 1"), "{told}");
    system.ok(&["cont", "destroy", "tank", "copied"]);
    let told = system.ok(&[&copied[..], &["--rd-fac", "1"]].concat());
    assert!(!told.contains("outlive"), "{told}");
    system.ok(&["cont", "destroy", "tank", "copied"]);
    let words = ["cont", "set-prop", "tank", "wide", "file-oclass=SX@8192"];
    system.fails(2, &["directories only"], &words);
    system.ok(&["cont", "set-prop", "tank", "wide", "dir-oclass=SX@1024"]);
    assert_eq!(system.ok(&["cont", "get-prop", "tank", "wide", "dir-oclass"]), "SX@1024\n");
    system.ok(&["cont", "destroy", "tank", "wide"]);

    // Cells of erasure-coded classes.
    assert_eq!(system.ok(&["cont", "get-prop", "tank", "home", "cell-size"]), "65536\n");
    for options in [["--cell-size", "512KiB"], ["--properties", "ec_cell_sz:512KiB"]] {
        let made = system.json(&[&["cont", "create", "tank", "cells"][..], &options].concat());
        assert_eq!(made["cell_bytes"], 512 << 10, "{options:?}");
        system.fails(2, &["fixed"], &["cont", "set-prop", "tank", "cells", "cell-size=64KiB"]);
        system.ok(&["cont", "destroy", "tank", "cells"]);
    }
    for size in ["96KiB", "32KiB", "2MiB"] {
        let words = ["cont", "create", "tank", "cells", "--cell-size", size];
        system.fails(2, &["64 KiB to 1 MiB"], &words);
    }

    assert_eq!(system.ok(&["cont", "get-prop", "tank", "home", "chunk-size"]), "65536\n");
    system.ok(&["cont", "set-prop", "tank", "home", "label=house", "file-oclass=S1"]);
    assert_eq!(system.ok(&["cont", "get-prop", "tank", "house", "file_oclass"]), "S1\n");
    system.ok(&["cont", "set-attr", "tank", "house", "project=x"]);
    assert_eq!(system.ok(&["cont", "get-attr", "tank", "house", "project"]), "x\n");
    system.ok(&["cont", "del-attr", "tank", "house", "project"]);
    assert_eq!(system.json(&["cont", "get-attr", "tank", "house"]), serde_json::json!({}));

    // A file system is there at once; none is in a plain container.
    assert_eq!(system.json(&["fs", "ls", "azk://tank/house"])[0]["entries"], serde_json::json!([]));
    system.fails(2, &["posix"], &["fs", "ls", "azk://tank/objects"]);

    system.ok(&["cont", "destroy", "tank", "objects"]);
    system.ok(&["cont", "destroy", "tank", "house", "--force"]);
    system.fails(3, &["house"], &["cont", "query", "tank", "house"]);
}

/// Whatever is damaged behind the engine's back is shown, and the exit code says so.
#[test]
fn a_pool_is_scrubbed_and_damage_is_shown() {
    use std::io::{Read, Seek, SeekFrom, Write};
    let system = System::up(1, 1);
    system.ok(&["pool", "create", "tank", "--size", "256MiB", "--durability", "wal"]);
    let properties = "cksum:xxh3,srv_cksum:on";
    let made = system.json(&["cont", "create", "tank", "home", "--properties", properties]);
    assert_eq!(
        (made["csum"].as_str(), made["server_verify"].as_bool()),
        (Some("xxh3"), Some(true))
    );
    system.fails(2, &["md5"], &["cont", "create", "tank", "x", "--properties", "cksum:md5"]);
    system.fails(2, &["cksum"], &["cont", "create", "tank", "x", "--properties", "colour:red"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![0x5a; 100_000]).unwrap();
    let file = file.path().to_str().unwrap();
    system.ok(&["fs", "cp", file, "azk://tank/home/f"]);
    let told = system.json(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(
        (told["bad_bytes"].as_u64(), told["summed_bytes"].as_u64()),
        (Some(0), Some(102_400))
    );
    system.ok(&["pool", "set-prop", "tank", "scrub=64MiB/s"]);
    assert_eq!(system.ok(&["pool", "get-prop", "tank", "scrub"]), "64MiB/s\n");
    system.fails(2, &["scrub"], &["pool", "set-prop", "tank", "scrub=quick"]);

    let data = system.dir().join("engine0/target0/pool.1/data");
    let mut data = std::fs::OpenOptions::new().read(true).write(true).open(data).unwrap();
    let mut all = vec![0; 1 << 20];
    data.read_exact(&mut all).unwrap();
    let at = all.iter().position(|byte| *byte == 0x5a).unwrap();
    data.seek(SeekFrom::Start(at as u64 + 5_000)).unwrap();
    data.write_all(&[0x5b]).unwrap();
    data.sync_all().unwrap();
    let output = system.run(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("damaged on target 0") && told.contains("4096 bytes at"), "{told}");
    assert!(told.contains("azk://tank/home/f, container"), "{told}");
    let queried = system.json(&["pool", "query", "tank", "--verbose"]);
    assert_eq!(queried["scrub"][0]["bad_bytes"], 4096);
    assert_eq!(queried["damaged"][0]["paths"][0], "azk://tank/home/f");
    assert!(system.ok(&["pool", "query", "tank"]).contains("damaged on target 0"));
    for code in ["damage-found", "damage-stays"] {
        let event = harness::until_event(&system, code);
        assert_eq!((&event["target"], &event["pool"]), (&0.into(), &1.into()), "{event}");
    }
}

/// With a second copy nobody but the log is told of damage: a reader gets its data, and the scrubber puts right what nobody reads.
#[test]
fn damage_is_put_right_from_other_copies() {
    use std::io::{Read, Seek, SeekFrom, Write};
    let system = System::up(3, 1);
    system.ok(&["pool", "create", "tank", "--size", "512MiB", "--durability", "wal"]);
    system.ok(&["cont", "create", "tank", "home", "--rd-fac", "1"]);
    let dir = tempfile::tempdir().unwrap();
    for (name, byte) in [("read", 0x5a), ("left", 0xa5)] {
        let file = dir.path().join(name);
        std::fs::write(&file, vec![byte; 100_000]).unwrap();
        system.ok(&["fs", "put", file.to_str().unwrap(), &format!("azk://tank/home/{name}")]);
    }
    let flip = |engine: usize, byte: u8| {
        let data = system.dir().join(format!("engine{engine}/target0/pool.1/data"));
        let mut data = std::fs::OpenOptions::new().read(true).write(true).open(data).unwrap();
        let mut all = vec![0; 4 << 20];
        let read = data.read(&mut all).unwrap();
        let at = all[..read].windows(8).position(|window| window == [byte; 8]);
        let Some(at) = at else { return 0 };
        data.seek(SeekFrom::Start(at as u64 + 50_000)).unwrap();
        data.write_all(&[byte ^ 8]).unwrap();
        data.sync_all().unwrap();
        1
    };
    // One copy of each, the first that is found and the last.
    assert!((0..3).any(|engine| flip(engine, 0x5a) == 1));
    assert!((0..3).rev().any(|engine| flip(engine, 0xa5) == 1));
    let back = dir.path().join("back");
    system.ok(&["fs", "get", "azk://tank/home/read", back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == vec![0x5a; 100_000]);
    let told = system.json(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!((&told["bad_bytes"], &told["mended_count"]), (&0.into(), &2.into()), "{told}");
    let event = harness::until_event(&system, "damage-mended");
    assert_eq!(event["severity"], "info", "{event}");
    let back = dir.path().join("left back");
    system.ok(&["fs", "get", "azk://tank/home/left", back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == vec![0xa5; 100_000]);
}

/// Nobody names a class. With files and directories on one target each, seven of eight had nothing of 160 files of 1 MiB in a directory, and a
/// large file ended where its target was full.
#[test]
fn files_lie_over_all_targets_though_nobody_asks_for_it() {
    let system = System::up(1, 8);
    system.ok(&["pool", "create", "tank", "--size", "1GiB", "--durability", "memory"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let tree = system.path("tree");
    std::fs::create_dir(&tree).unwrap();
    for number in 0..160 {
        std::fs::write(tree.join(format!("f{number}")), vec![number as u8; 1 << 20]).unwrap();
    }
    std::fs::write(tree.join("large"), vec![7; 240 << 20]).unwrap();
    let tree = tree.to_str().unwrap();
    system.ok(&["fs", "cp", "-r", tree, "azk://tank/home/tree"]);
    let told = system.json(&["pool", "query", "tank"]);
    let used = |target: &serde_json::Value| target["nvme"]["used_bytes"].as_u64().unwrap() >> 20;
    let used: Vec<u64> = told["space"]["targets"].as_array().unwrap().iter().map(used).collect();
    // About 50 MiB each: some files are made before the directory has spread, and more where that is slow. The large one alone is more
    // than a target has.
    assert!(used.len() == 8 && used.iter().all(|mib| (25..=110).contains(mib)), "{used:?}");
    let back = system.path("back");
    system.ok(&["fs", "cp", "-r", "azk://tank/home/tree", back.to_str().unwrap()]);
    assert_eq!(std::fs::read(back.join("f77")).unwrap(), vec![77; 1 << 20]);
    assert_eq!(std::fs::read(back.join("large")).unwrap(), vec![7; 240 << 20]);
    assert_eq!(system.json(&["fs", "check", "azk://tank/home"])["clean"], true);
}

/// After an exchange of an engine's disks each target was to be reset by an order of its own, in each pool.
#[test]
fn what_an_engine_lost_is_reset_by_one_order() {
    let system = System::up(1, 2);
    for pool in ["one", "two"] {
        system.ok(&["pool", "create", pool, "--size", "256MiB"]);
    }
    let nothing = "No target of engine 0 has lost what it held; nothing is changed.\n";
    let reset = ["pool", "reset-target", "--rank", "0", "--lose-data"];
    assert_eq!(system.ok(&reset), nothing);
    system.fails(3, &["no engine 7"], &["pool", "reset-target", "--rank", "7", "--lose-data"]);
    system.ok(&["down"]);
    for target in ["target0", "target1"] {
        std::fs::remove_dir_all(system.dir().join("engine0").join(target)).unwrap();
    }
    system.ok(&["up"]);
    let are = |pool: &str, key: &str, value: &str| {
        let pool = system.json(&["pool", "query", pool]);
        pool["targets"].as_array().unwrap().iter().all(|target| target[key] == value)
    };
    while !are("one", "reason", "lost") || !are("two", "reason", "lost") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let told = system.ok(&["pool", "reset-target", "one", "--rank", "0", "--lose-data"]);
    assert_eq!(told, "Pool 'one': targets 0, 1 of engine 0 made anew, empty.\n");
    let told = system.json(&reset);
    assert_eq!(told["pools"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(told["pools"][0]["pool"], "two", "{told}");
    assert_eq!(told["pools"][0]["targets"], serde_json::json!([0, 1]), "{told}");
    assert_eq!(system.ok(&reset), nothing);
    for pool in ["one", "two"] {
        assert!(are(pool, "state", "up"), "{pool}");
    }
}
