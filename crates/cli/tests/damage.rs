//! Damage of one target costs what lies there: the engine starts, the other target is served, no wrong
//! byte is returned.
//!
//! One flipped bit in a superblock or in one pool's log used to keep the whole engine from starting.

mod harness;

use client::{Client, ConnectOptions, Container};
use harness::{System, all_text};
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::ObjType;
use wire::control::{Name, OpenMode};
use wire::obj::Cond;

const OBJECTS: u64 = 40;

fn open(dir: &Path) -> Container {
    let mut options = ConnectOptions::new(client::SystemAddress::from_dir(dir).unwrap());
    options.timeout = Duration::from_secs(5);
    let client = Client::connect(options).unwrap();
    client
        .block_on(async {
            let pool = client.pool_open(&Name::Label("tank".into()), OpenMode::ReadWrite).await?;
            pool.cont_open(&Name::Label("home".into()), OpenMode::ReadWrite).await
        })
        .unwrap()
}

fn object(cont: &Container, number: u64) -> client::KvObj {
    let oid = cont.generate_oid(ObjType::KvHashed, "S1".parse().unwrap(), 0, number).unwrap();
    client::KvObj { object: cont.object(oid) }
}

fn value(number: u64) -> Vec<u8> {
    format!("value {number}").into_bytes()
}

fn flip(path: &Path, at: usize) {
    let mut raw = std::fs::read(path).unwrap();
    raw[at] ^= 0x10;
    std::fs::write(path, raw).unwrap();
}

/// Reads everything; how many are there, and the texts of the errors.
fn read_all(dir: &Path) -> (usize, Vec<String>) {
    let cont = open(dir);
    let mut errors = Vec::new();
    let mut good = 0;
    for number in 0..OBJECTS {
        let kv = object(&cont, number);
        match cont.client().block_on(kv.get(None, b"key")) {
            Ok(found) => {
                assert_eq!(found, Some(value(number)), "object {number}");
                good += 1;
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    (good, errors)
}

#[test]
fn a_damaged_target_costs_what_lies_there() {
    let system = System::up(1, 2);
    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    system.ok(&["cont", "create", "tank", "home"]);
    {
        let cont = open(&system.dir());
        for number in 0..OBJECTS {
            let kv = object(&cont, number);
            cont.client().block_on(kv.put(None, Cond::NONE, b"key", &value(number))).unwrap();
        }
    }
    let (good, errors) = read_all(&system.dir());
    assert_eq!((good, errors), (OBJECTS as usize, Vec::new()));
    system.ok(&["down"]);
    let target = system.dir().join("engine0/target1");
    let pool: PathBuf = std::fs::read_dir(&target)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("pool."))
        .unwrap();
    for damaged in [target.join("superblock"), pool.join("head"), pool.join("shard")] {
        let whole = std::fs::read(&damaged).unwrap();
        flip(&damaged, 20);
        let up = system.run(&["up"]);
        assert!(up.status.success(), "{}: {}", damaged.display(), all_text(&up));
        let (good, errors) = read_all(&system.dir());
        assert!(good > 0 && good < OBJECTS as usize, "{}: {good}", damaged.display());
        assert_eq!(good + errors.len(), OBJECTS as usize);
        for error in &errors {
            assert!(error.contains("target 1"), "{}: {error}", damaged.display());
        }
        system.ok(&["down"]);
        std::fs::write(&damaged, whole).unwrap();
    }
    system.ok(&["up"]);
    assert_eq!(read_all(&system.dir()).0, OBJECTS as usize);
}

/// The state of target 1, and what a person is told.
fn target_state(system: &System) -> (String, String) {
    let state = system.json(&["pool", "query", "tank"])["targets"][1]["state"].clone();
    (state.as_str().unwrap().to_string(), system.ok(&["pool", "query", "tank"]))
}

/// A target whose directory was gone (a disk exchanged, a mount missing at boot) made its part of the pool anew
/// and served it: what had been there did not exist any more, without an error.
#[test]
fn a_wiped_target_is_down_and_never_served_as_empty() {
    let system = System::up(1, 2);
    system.ok(&["pool", "create", "tank", "--size", "256MiB", "--durability", "wal"]);
    system.ok(&["cont", "create", "tank", "home"]);
    {
        let cont = open(&system.dir());
        for number in 0..OBJECTS {
            let kv = object(&cont, number);
            cont.client().block_on(kv.put(None, Cond::NONE, b"key", &value(number))).unwrap();
        }
    }
    system.ok(&["down"]);
    let (target, aside) = (system.dir().join("engine0/target1"), system.path("aside"));
    std::fs::rename(&target, &aside).unwrap();
    system.ok(&["up"]);
    let (good, errors) = read_all(&system.dir());
    assert!(good > 0 && good < OBJECTS as usize, "{good}");
    for error in &errors {
        assert!(error.contains("is down"), "{error}");
    }
    let (state, told) = target_state(&system);
    assert_eq!(state, "down");
    assert!(told.contains("reset-target tank 1"), "{told}");

    // The disk is there again.
    system.ok(&["down"]);
    std::fs::remove_dir_all(&target).unwrap();
    std::fs::rename(&aside, &target).unwrap();
    system.ok(&["up"]);
    assert_eq!(read_all(&system.dir()).0, OBJECTS as usize);
    assert_eq!(target_state(&system).0, "up");
    system.fails(7, &["not down"], &["pool", "reset-target", "tank", "1", "--lose-data"]);

    // It is gone for good.
    system.ok(&["down"]);
    std::fs::remove_dir_all(&target).unwrap();
    system.ok(&["up"]);
    assert!(!system.run(&["pool", "reset-target", "tank", "1"]).status.success());
    assert_eq!(target_state(&system).0, "down");
    system.ok(&["pool", "reset-target", "tank", "1", "--lose-data"]);
    assert_eq!(target_state(&system).0, "up");
    let cont = open(&system.dir());
    let mut lost = 0;
    for number in 0..OBJECTS {
        let kv = object(&cont, number);
        match cont.client().block_on(kv.get(None, b"key")).unwrap() {
            Some(found) => assert_eq!(found, value(number)),
            None => {
                lost += 1;
                cont.client().block_on(kv.put(None, Cond::NONE, b"key", b"anew")).unwrap();
            }
        }
    }
    assert_eq!(lost, OBJECTS as usize - good);
}
