//! Classes with copies, chosen for a container, a directory and a file, by command and through a mount.

use crate::harness::{self, System, all_text, azekura};
use std::os::unix::fs::symlink;
use std::process::Command;

const CLASS: &str = "user.azekura.oclass";

fn url(name: &str) -> String {
    format!("azk://tank/home/{name}")
}

/// Three engines, and a container whose files survive the loss of one.
fn system() -> System {
    let system = System::up(3, 1);
    system.ok(&["pool", "create", "tank", "--size", "900MiB"]);
    system.ok(&["cont", "create", "tank", "home", "--rd-fac", "1"]);
    std::fs::write(system.path("file"), "data").unwrap();
    system
}

fn class_of(system: &System, name: &str) -> String {
    let stat = system.json(&["fs", "stat", &url(name)]);
    stat[0]["oclass"].as_str().unwrap().to_string()
}

fn put(system: &System, name: &str) -> String {
    system.ok(&["fs", "put", system.path("file").to_str().unwrap(), &url(name)]);
    class_of(system, name)
}

#[test]
fn a_directory_has_a_class_of_its_own() {
    let system = system();
    system.ok(&["fs", "mkdir", &url("d")]);
    assert_eq!(put(&system, "d/a"), "RP_2GX+1MiB");
    let set = |options: &[&str]| system.ok(&[&["fs", "set-attr", &url("d")], options].concat());
    set(&["--oclass", "RP_3G1"]);
    // What is not named stays.
    set(&["--chunk-size", "64KiB", "--dir-oclass", "RP_3GX"]);
    set(&["-z", "128KiB"]);
    assert_eq!(put(&system, "d/b"), "RP_3G1");
    system.ok(&["fs", "mkdir", &url("d/e")]);
    assert_eq!(class_of(&system, "d/e"), "RP_3GX");
    assert_eq!(put(&system, "d/e/f"), "RP_3G1");
    assert_eq!(class_of(&system, "d/a"), "RP_2GX+1MiB");

    let attrs = system.json(&["fs", "get-attr", &url("d")]);
    assert_eq!((&attrs[CLASS], attrs.as_object().unwrap().len()), (&"RP_3G1".into(), 4), "{attrs}");
    assert_eq!(attrs["user.azekura.dir_oclass"], "RP_3GX", "{attrs}");
    assert_eq!(attrs["user.azekura.chunk_size"], "131072", "{attrs}");
    let layout = attrs["user.azekura.layout"].as_str().unwrap();
    assert!(layout.contains(" oclass=RP_2GX@8192 "), "{layout}");
    let attrs = system.json(&["fs", "get-attr", &url("d/e/f")]);
    assert_eq!((&attrs[CLASS], attrs.as_object().unwrap().len()), (&"RP_3G1".into(), 3), "{attrs}");
    assert_eq!(system.ok(&["fs", "get-attr", &url("d/a"), "azekura.oclass"]), "RP_2GX+1MiB\n");
    // As an attribute like any other.
    set(&["azekura.oclass=RP_2GX"]);
    assert_eq!(put(&system, "d/g"), "RP_2GX");

    for (words, options) in [
        (&["SX", "rd_fac", "RP_2GX"], "--oclass=SX"),
        (&["S1", "rd_fac", "RP_2G1"], "azekura.oclass=S1"),
        (&["RP_4G1", "needs 4 targets", "fewer copies"], "--dir-oclass=RP_4G1"),
        (&["EC_4P2G1", "needs 6 targets", "cells"], "--oclass=EC_4P2G1"),
        (&["RP_9G1", "not an object class", "RP_3GX"], "--oclass=RP_9G1"),
        (&["5000", "multiple of 4 KiB", "chunk"], "--chunk-size=5000"),
    ] {
        let output = system.run(&["fs", "set-attr", &url("d"), options]);
        let text = all_text(&output);
        assert!(!output.status.success() && words.iter().all(|word| text.contains(word)), "{text}");
    }
    let file = ["not a directory", "azekura fs cp"];
    system.fails(2, &file, &["fs", "set-attr", &url("d/a"), "--oclass", "RP_3G1"]);
    system.fails(2, &file, &["fs", "reset-attr", &url("d/a")]);
    assert_eq!(put(&system, "d/h"), "RP_2GX");

    system.ok(&["fs", "reset-attr", &url("d"), "--chunk-size"]);
    let attrs = system.json(&["fs", "get-attr", &url("d")]);
    assert_eq!(
        (&attrs[CLASS], &attrs["user.azekura.chunk_size"]),
        (&"RP_2GX".into(), &"1048576".into())
    );
    system.ok(&["fs", "reset-attr", &url("d")]);
    let attrs = system.json(&["fs", "get-attr", &url("d")]);
    assert_eq!(
        (&attrs[CLASS], &attrs["user.azekura.dir_oclass"]),
        (&"RP_2GX+1MiB".into(), &"RP_2GX@8192".into())
    );
    assert_eq!(put(&system, "d/i"), "RP_2GX+1MiB");

    // The container's defaults, for what is made from now on.
    system.ok(&["cont", "set-prop", "tank", "home", "file-oclass=RP_3GX"]);
    assert_eq!(put(&system, "d/j"), "RP_3GX");
    let weaker = ["cont", "set-prop", "tank", "home", "file-oclass=S1"];
    system.fails(2, &["S1", "rd_fac", "RP_2G1"], &weaker);
    let check = system.json(&["fs", "check", "azk://tank/home"]);
    assert_eq!(check["clean"], true, "{check}");
}

#[test]
fn scripts_written_for_daos_set_classes() {
    let system = system();
    system.ok(&["fs", "mkdir", &url("d")]);
    let link = system.path("daos");
    symlink(env!("CARGO_BIN_EXE_azekura"), &link).unwrap();
    let run = |words: &str| {
        let mut command = Command::new(&link);
        command.args(words.split(' ')).env("AZEKURA_SYSTEM", system.dir());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words}: {}", all_text(&output));
        output.stdout
    };
    let json = |words: &str| -> serde_json::Value {
        let answer: serde_json::Value = serde_json::from_slice(&run(words)).unwrap();
        answer["response"].clone()
    };
    run("fs set-attr tank home --dfs-path /d --oclass RP_3GX --chunk-size 64KiB");
    let told = json("fs get-attr --path daos://tank/home/d -j");
    let expected = serde_json::json!(
        { "dir_oclass": "RP_3GX", "file_oclass": "RP_3GX", "chunk_size": 65536 }
    );
    assert_eq!(
        (&told["directory"], &told["object"]["oclass"]),
        (&expected, &"RP_2GX@8192".into()),
        "{told}"
    );
    assert_eq!(put(&system, "d/f"), "RP_3GX");
    let told = json("fs get-attr tank home --dfs-path d/f -j");
    assert_eq!((&told["oclass"], &told["chunk_size"]), (&"RP_3GX".into(), &65536.into()), "{told}");
    run("fs reset-oclass tank home --dfs-path /d");
    let told = json("fs get-attr tank home --dfs-path /d -j");
    assert_eq!(told["directory"]["file_oclass"], "RP_2GX+1MiB", "{told}");
    assert_eq!(told["directory"]["chunk_size"], 65536, "{told}");
    run("fs reset-attr tank home --dfs-path /d");
    assert_eq!(json("fs get-attr tank home --dfs-path /d -j")["directory"]["chunk_size"], 1048576);
}

#[test]
fn existing_files_get_another_class() {
    let system = system();
    let big = harness::noise(1, 24 << 20);
    std::fs::write(system.path("big"), &big).unwrap();
    system.ok(&["fs", "mkdir", "-p", &url("d/e")]);
    system.ok(&["fs", "put", system.path("big").to_str().unwrap(), &url("d/big")]);
    put(&system, "d/e/one");
    system.ok(&["fs", "ln", &url("d/e/one"), &url("d/two")]);
    put(&system, "other");
    let migrate = |class: &str, at: &str| {
        let url = url(at);
        let report = system.json(&["fs", "migrate", "--oclass", class, &url]);
        for list in ["open", "failed"] {
            assert_eq!(report[list].as_array().unwrap().len(), 0, "{report}");
        }
        (report["migrated"].as_u64().unwrap(), report["had_it"].as_u64().unwrap())
    };
    // One of them has two names.
    assert_eq!(migrate("RP_3G1", "d"), (2, 0));
    assert_eq!(migrate("RP_3G1", "d"), (0, 2));
    for (name, class) in [("d/big", "RP_3G1"), ("d/two", "RP_3G1"), ("other", "RP_2GX+1MiB")] {
        assert_eq!(class_of(&system, name), class, "{name}");
    }
    assert_eq!(migrate("RP_2GX", "d/big"), (1, 0));
    let back = system.run(&["fs", "cat", &url("d/big")]);
    assert!(back.status.success() && back.stdout == big, "other bytes");
    assert_eq!(system.ok(&["fs", "cat", &url("d/two")]), "data");
    system.ok(&["fs", "check", "azk://tank/home"]);

    system.fails(2, &["S1", "rd_fac"], &["fs", "migrate", "--oclass", "S1", &url("d")]);
    system.fails(3, &["nothing"], &["fs", "migrate", "--oclass", "RP_3G1", &url("nothing")]);
    // Only one of the names.
    let output = system.run(&["fs", "migrate", "--oclass", "RP_2G1", &url("d/e")]);
    assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
    assert!(all_text(&output).contains("1 of the file's 2 names"), "{}", all_text(&output));

    // Killed in the middle of it, it goes on when it is started again.
    let class = ["fs", "migrate", "--oclass", "RP_2G2", &url("d")];
    let mut child = system.command(&class).spawn().unwrap();
    let has_begun = || {
        let report = system.json(&["cont", "query", "tank", "home"]);
        report["handles"].as_u64().unwrap() > 0
    };
    while child.try_wait().unwrap().is_none() && !has_begun() {}
    let _ = child.kill();
    child.wait().unwrap();
    let (done, before) = migrate("RP_2G2", "d");
    assert_eq!(done + before, 2);
    let back = system.run(&["fs", "cat", &url("d/big")]);
    assert!(back.status.success() && back.stdout == big, "other bytes");
}

#[test]
fn a_mount_shows_and_sets_classes() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        eprintln!("SKIPPED: nothing is mounted in this test: /dev/fuse: {error}");
        return;
    }
    let system = system();
    let dir = system.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    let at = dir.to_str().unwrap();
    system.ok(&["mount", "azk://tank/home", at]);
    let done = std::panic::catch_unwind(|| {
        let told = |name: &str| {
            let mut room = [0u8; 64];
            let count = getxattr(dir.join(name), CLASS, &mut room[..]).unwrap();
            String::from_utf8_lossy(&room[..count]).into_owned()
        };
        std::fs::create_dir(dir.join("d")).unwrap();
        assert_eq!(told("d"), "RP_2GX+1MiB");
        setxattr(dir.join("d"), CLASS, b"RP_3G1", XattrFlags::empty()).unwrap();
        std::fs::write(dir.join("d/f"), "data").unwrap();
        assert_eq!(told("d/f"), "RP_3G1");
        assert_eq!(class_of(&system, "d/f"), "RP_3G1");
        let weaker = setxattr(dir.join("d"), CLASS, b"SX", XattrFlags::empty());
        assert_eq!(weaker, Err(rustix::io::Errno::INVAL));
        system.ok(&["fs", "reset-attr", &url("d")]);
        assert_eq!(told("d"), "RP_2GX+1MiB");

        // A program has it open: it keeps its object until then.
        let held = std::fs::File::options().append(true).open(dir.join("d/f")).unwrap();
        let migrate = ["fs", "migrate", "--oclass", "RP_2GX", "--json", &url("d")];
        let output = system.run(&[&migrate[..], &["--wait", "0"]].concat());
        assert_eq!(output.status.code(), Some(7), "{}", all_text(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["open"], serde_json::json!([url("d/f")]), "{report}");
        std::io::Write::write_all(&mut &held, b" and more").unwrap();
        drop(held);
        let output = system.run(&[&migrate[..], &["--wait", "60"]].concat());
        assert!(output.status.success(), "{}", all_text(&output));
        assert_eq!(std::fs::read(dir.join("d/f")).unwrap(), b"data and more");
        assert_eq!(told("d/f"), "RP_2GX");
    });
    let output = azekura().args(["umount", "--lazy", at]).output().unwrap();
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
    assert!(output.status.success(), "{}", all_text(&output));
}
