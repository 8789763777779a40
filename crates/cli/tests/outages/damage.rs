//! Damage of one target costs what lies there: the engine starts, the other target is served, no wrong
//! byte is returned.
//!
//! One flipped bit in a superblock or in one pool's log used to keep the whole engine from starting.

use crate::harness::{System, all_text};
use client::{Client, ConnectOptions, Container};
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::ObjType;
use wire::control::{Name, OpenMode};
use wire::obj::Cond;

const OBJECTS: u64 = 40;

fn open(dir: &Path) -> Container {
    open_for(dir, Duration::from_secs(5))
}

/// Operations take at most `timeout`.
fn open_for(dir: &Path, timeout: Duration) -> Container {
    let mut options = ConnectOptions::new(client::SystemAddress::from_dir(dir).unwrap());
    options.timeout = timeout;
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

/// Waits until target 1 is up, or known to be down because what it held is lost: engines answer before the
/// control service has looked at all they hold.
fn until_target_is(system: &System, state: &str) {
    let is_it = |target: &serde_json::Value| {
        target["state"] == state && (state != "down" || target["reason"] == "lost")
    };
    while !is_it(&system.json(&["pool", "query", "tank"])["targets"][1]) {
        std::thread::sleep(Duration::from_millis(50));
    }
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
    until_target_is(&system, "down");
    let (good, errors) = read_all(&system.dir());
    assert!(good > 0 && good < OBJECTS as usize, "{good}");
    for error in &errors {
        assert!(error.contains("is down"), "{error}");
    }
    let told = system.ok(&["pool", "query", "tank"]);
    assert!(told.contains("reset-target tank 1"), "{told}");

    // The disk is there again.
    system.ok(&["down"]);
    std::fs::remove_dir_all(&target).unwrap();
    std::fs::rename(&aside, &target).unwrap();
    system.ok(&["up"]);
    until_target_is(&system, "up");
    assert_eq!(read_all(&system.dir()).0, OBJECTS as usize);
    system.fails(7, &["not down"], &["pool", "reset-target", "tank", "1", "--lose-data"]);

    // It is gone for good.
    system.ok(&["down"]);
    std::fs::remove_dir_all(&target).unwrap();
    system.ok(&["up"]);
    until_target_is(&system, "down");
    assert!(!system.run(&["pool", "reset-target", "tank", "1"]).status.success());
    until_target_is(&system, "down");
    system.ok(&["pool", "reset-target", "tank", "1", "--lose-data"]);
    until_target_is(&system, "up");
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

/// A batch was bound to targets when its ops were added; one under way when the map changed went to a target that
/// had nothing to do with it any more, and a transaction was taken whatever map it had been made by. Objects
/// with a second copy (not written to yet) have somewhere to go when their first target is down.
#[test]
fn a_batch_goes_where_the_newest_map_has_its_units() {
    let system = System::up(2, 1);
    system.ok(&["pool", "create", "tank", "--size", "256MiB", "--durability", "wal"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let cont = open_for(&system.dir(), Duration::from_secs(120));
    let class = "RP_2G1".parse().unwrap();
    let mut objects: Vec<_> = (0..OBJECTS)
        .map(|number| types::Oid::generate(0, number, ObjType::KvHashed, class, 0))
        .map(|oid| client::KvObj { object: cont.object(oid) })
        .collect();
    // Those of target 0 first: it coordinates.
    objects.sort_by_key(|kv| cont.engines_of(kv.object.oid()).unwrap()[0]);
    let ranks = |at: usize| cont.engines_of(objects[at].object.oid()).unwrap()[0].0;
    assert_eq!((ranks(0), ranks(OBJECTS as usize - 1)), (0, 1));
    let put_all = |text: &[u8]| {
        let tx = client::Tx::open(&cont, false);
        cont.client().block_on(async {
            for kv in &objects {
                kv.put(Some(&tx), Cond::NONE, b"key", text).await.unwrap();
            }
            tx.commit().await.unwrap();
        });
    };
    put_all(b"old");
    let other = open_for(&system.dir(), Duration::from_secs(120));
    let last = client::KvObj { object: other.object(objects[OBJECTS as usize - 1].object.oid()) };
    assert_eq!(other.client().block_on(last.get(None, b"key")).unwrap().unwrap(), b"old");
    system.ok(&["down"]);
    for entry in std::fs::read_dir(system.dir().join("engine1")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("target") {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
    system.ok(&["up"]);
    until_target_is(&system, "down");
    // Both clients still have the old map: one asks the target that is down, one has it take part.
    other.client().block_on(last.put(None, Cond::NONE, b"key", b"one")).unwrap();
    assert_eq!(other.client().block_on(last.get(None, b"key")).unwrap().unwrap(), b"one");
    put_all(b"new");
    for kv in &objects {
        assert_eq!(cont.client().block_on(kv.get(None, b"key")).unwrap().unwrap(), b"new");
        assert_eq!(cont.engines_of(kv.object.oid()).unwrap()[0].0, 0);
    }
}
