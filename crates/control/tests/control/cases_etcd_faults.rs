//! A real etcd in trouble: slow, with a full disk, of three members with one killed, another one than before, and one
//! that has forgotten what a listing reads.

use crate::cases_etcd::Prefix;
use crate::contract::{Place, absent, commit, contents, put};
use crate::etcd_server::{EtcdServer, Proxy, SLOW, Way};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use control::{Catalog, Change, EtcdAccess, EtcdCatalog, EtcdConfig};
use futures_executor::block_on;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use types::Code;
use uuid::Uuid;

/// The usual times, at these members.
fn usual(endpoints: Vec<String>, prefix: &str, engine: u128) -> EtcdConfig {
    let access = EtcdAccess { endpoints, ..EtcdAccess::default() };
    EtcdConfig::new(access, prefix, Uuid::from_u128(engine), "here", 1)
}

fn open(config: EtcdConfig) -> EtcdCatalog {
    block_on(EtcdCatalog::open(config)).unwrap()
}

/// Waits until a member answers for its cluster.
fn await_member(server: &EtcdServer) {
    let question = json!({ "key": STANDARD.encode("any") });
    while !server.post("/v3/kv/range", &question)["error"].is_null() {
        thread::sleep(Duration::from_millis(50));
    }
}

/// Of three members each is killed in turn, the one that is asked and the one that leads among them. Nobody hears of it.
#[test]
fn of_three_members_one_is_killed_and_nobody_notices() {
    let Some(members) = EtcdServer::start_three() else { return };
    let endpoints: Vec<String> = members.iter().map(EtcdServer::endpoint).collect();
    members.iter().for_each(await_member);
    let catalog = open(usual(endpoints, "azekura", 1));
    let mut count = 0u32;
    let mut work = || {
        count += 1;
        let key = format!("k{count}");
        assert!(commit(&catalog, &[absent(&key)], &[put(&key, "1")]));
        assert_eq!(block_on(catalog.get(&key)).unwrap().unwrap().bytes, b"1");
    };
    for lost in &members {
        (0..5).for_each(|_| work());
        lost.kill();
        (0..15).for_each(|_| work());
        lost.restart();
        await_member(lost);
    }
    assert_eq!(contents(&catalog).len(), count as usize);
}

/// One of the endpoints is a member of another cluster. It was asked when the right one was away.
#[test]
fn a_member_of_another_cluster_is_refused_and_not_written_to() {
    let (Some(right), Some(wrong)) = (EtcdServer::start(), EtcdServer::start()) else { return };
    let catalog = open(usual(vec![right.endpoint(), wrong.endpoint()], "azekura", 1));
    assert!(commit(&catalog, &[], &[put("a", "1")]));
    right.kill();
    // The request that found the right one gone may have gone astray with it; all others reach the wrong one.
    let refused = |error: types::Error| {
        let is_known = [Code::Io, Code::Unreach, Code::TimedOut].contains(&error.code);
        assert!(is_known, "{error}");
        error.text.contains("is of cluster")
    };
    while !refused(block_on(catalog.get("a")).unwrap_err()) {}
    while !refused(block_on(catalog.commit(&[], &[put("a", "2")])).unwrap_err()) {}
    let first = STANDARD.encode("azekura:");
    let all = json!({ "key": first, "range_end": STANDARD.encode("azekura;") });
    assert!(wrong.post("/v3/kv/range", &all)["kvs"].is_null());
    right.restart();
    while block_on(catalog.commit(&[], &[put("a", "3")])).is_err() {}
    assert_eq!(contents(&catalog)["a"], "3");
}

/// With answers of 5 s, as from a member whose disk is overloaded, the lease was called lost after a third of it, and
/// nothing was read any more. With `AZEKURA_LONG` the times are the usual ones, else all half of that.
#[test]
fn a_slow_etcd_costs_time_only() {
    let Some(server) = EtcdServer::start() else { return };
    let proxy = Proxy::new(&server);
    let slow = usual(vec![proxy.endpoint()], "slow", 1);
    let config = match std::env::var_os("AZEKURA_LONG") {
        Some(_) => {
            proxy.set_delay(SLOW);
            slow
        }
        None => {
            proxy.set_delay(SLOW / 2);
            EtcdConfig {
                lease: slow.lease / 2,
                wait: slow.wait / 2,
                deadline: slow.deadline / 2,
                attempt_time: slow.attempt_time / 2,
                ..slow
            }
        }
    };
    let lease = config.lease;
    let catalog = open(config.clone());
    let leader = json!({ "key": STANDARD.encode("slow:leader") });
    let held = || server.post("/v3/kv/range", &leader)["kvs"][0]["lease"].clone();
    let first = held();
    assert!(first.is_string(), "{first}");
    proxy.set(Way::Slow);
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < lease * 3 / 2 {
        rounds += 1;
        let value = rounds.to_string();
        assert!(commit(&catalog, &[], &[put("a", &value)]));
        // Beside others' work an answer may come later still, now and then.
        let found = (0..3).find_map(|_| block_on(catalog.get("a")).ok()).expect("one in three");
        assert_eq!(found.unwrap().bytes, value.as_bytes());
    }
    assert_eq!(held(), first, "nobody could take over");
    drop(catalog);
    // Another engine comes to lead, too: it waits until the first has given up the lease.
    let next = EtcdConfig { engine: Uuid::from_u128(2), ..config };
    let next = loop {
        match block_on(EtcdCatalog::open(next.clone())) {
            Ok(next) => break next,
            Err(error) => assert!(matches!(error.code, Code::Busy | Code::Unreach), "{error}"),
        }
    };
    proxy.set(Way::Open);
    let read = || block_on(next.get("a")).ok().flatten();
    let found = (0..3).find_map(|_| read()).expect("one in three");
    assert_eq!(found.bytes, rounds.to_string().as_bytes());
}

/// What a listing of several pages reads is of one moment, and etcd may forget that moment between two of them. Nothing here
/// watches, so no watch can be left behind by it.
#[test]
fn what_is_compacted_away_under_a_listing_is_read_again() {
    let Some(server) = EtcdServer::start() else { return };
    let proxy = Proxy::new(&server);
    let catalog = open(usual(vec![proxy.endpoint()], "azekura", 1));
    let keys: Vec<String> = (0..2500).map(|number| format!("{number:04}")).collect();
    for part in keys.chunks(1000) {
        let changes: Vec<Change> = part.iter().map(|key| put(key, key)).collect();
        assert!(commit(&catalog, &[], &changes));
    }
    proxy.set(Way::CompactOnce);
    let listed = block_on(catalog.list("")).unwrap();
    assert!(proxy.is(Way::Open), "it was compacted");
    assert!(listed.iter().map(|(key, _)| key).eq(&keys));
    assert!(commit(&catalog, &[], &[put("0000", "again")]));
}

/// A file system in memory of its own; goes with the value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, and a word to whoever reads the tests' output, where nothing can be mounted.
    fn mount(at: &Path, bytes: u64) -> Option<SmallDisk> {
        std::fs::create_dir_all(at).unwrap();
        let size = format!("size={bytes}");
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        if !done.is_ok_and(|output| output.status.success()) {
            println!("SKIPPED: no file system can be mounted here");
            return None;
        }
        Some(SmallDisk(at.to_path_buf()))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        let zeros = vec![0; 64 << 10];
        while std::io::Write::write_all(&mut file, &zeros).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).output().ok();
    }
}

/// etcd ends when its disk is full. What it has acknowledged is there when there is room again.
#[test]
fn a_full_disk_of_etcd_fails_commits_and_loses_none() {
    let mut disk = None;
    let Some(server) = EtcdServer::start_with("http", |dir| {
        disk = SmallDisk::mount(&dir.join("data"), 192 << 20);
        Vec::new()
    }) else {
        return;
    };
    let Some(disk) = disk else { return };
    let times = |config: EtcdConfig| EtcdConfig {
        deadline: Duration::from_secs(2),
        attempt_time: Duration::from_secs(1),
        ..config
    };
    let catalog = open(times(usual(vec![server.endpoint()], "azekura", 1)));
    assert!(commit(&catalog, &[], &[put("before", "1")]));
    disk.fill();
    let large = "x".repeat(1 << 20);
    let mut acknowledged = 0;
    let error = loop {
        let value = format!("{acknowledged} {large}");
        match block_on(catalog.commit(&[], &[put("large", &value)])) {
            Ok(done) => {
                assert!(done);
                acknowledged += 1;
                assert!(acknowledged < 500, "the disk never was full");
            }
            Err(error) => break error,
        }
    };
    println!("after {acknowledged} commits: {error}");
    assert!(matches!(error.code, Code::Unreach | Code::TimedOut | Code::NoSpace), "{error}");
    assert!(error.text.contains("etcd at http"), "{error}");
    server.kill();
    std::fs::remove_file(disk.filler()).unwrap();
    server.restart();
    while block_on(catalog.commit(&[], &[put("after", "1")])).is_err() {}
    let found = contents(&catalog);
    assert_eq!((&*found["before"], &*found["after"]), ("1", "1"));
    // One more than was acknowledged may have been made.
    let number: u32 = found.get("large").map_or(0, |value| {
        assert_eq!(value.len() - value.find(' ').unwrap() - 1, large.len());
        value[..value.find(' ').unwrap()].parse::<u32>().unwrap() + 1
    });
    assert!((acknowledged..=acknowledged + 1).contains(&number), "{number} of {acknowledged}");
    server.kill();
}

/// etcd's own limit: it takes nothing more until somebody makes room and says so. The error tells how.
#[test]
fn a_full_quota_of_etcd_is_named_and_ends() {
    let quota = |_: &Path| vec!["--quota-backend-bytes=4000000".to_string()];
    let Some(server) = EtcdServer::start_with("http", quota) else { return };
    let catalog = open(usual(vec![server.endpoint()], "azekura", 1));
    let large = "x".repeat(1 << 20);
    let error = loop {
        if let Err(error) = block_on(catalog.commit(&[], &[put("large", &large)])) {
            break error;
        }
    };
    assert_eq!(error.code, Code::NoSpace, "{error}");
    assert!(error.text.contains("defragment") && error.text.contains("quota"), "{error}");
    // What is there is still read.
    assert_eq!(block_on(catalog.get("large")).unwrap().unwrap().bytes.len(), large.len());
    let question = json!({ "key": STANDARD.encode("any") });
    let revision = server.post("/v3/kv/range", &question)["header"]["revision"].clone();
    server.post("/v3/kv/compaction", &json!({ "revision": revision, "physical": true }));
    server.post("/v3/maintenance/defragment", &json!({}));
    let disarm = json!({
        "action": "DEACTIVATE", "memberID": server.member_id(), "alarm": "NOSPACE",
    });
    server.post("/v3/maintenance/alarm", &disarm);
    assert!(commit(&catalog, &[], &[put("large", "small now")]));
}

/// Engines of two systems that were given one prefix by mistake: one of them leads, the other is told who does.
#[test]
fn of_two_systems_on_one_prefix_one_writes() {
    let Some(server) = EtcdServer::start() else { return };
    let config = |engine| EtcdConfig {
        wait: Duration::ZERO,
        ..usual(vec![server.endpoint()], "shared", engine)
    };
    let first = open(config(1));
    assert!(commit(&first, &[absent("system")], &[put("system", "first")]));
    let error = block_on(EtcdCatalog::open(config(2))).unwrap_err();
    assert_eq!(error.code, Code::Busy, "{error}");
    assert!(error.text.contains("use another prefix"), "{error}");
    // Nor does an engine whose directory was copied, at another address.
    let at = |tcp: &str| {
        let info = wire::map::EngineInfo {
            rank: types::Rank(0),
            tcp: tcp.into(),
            unix: String::new(),
            host: String::new(),
            domain: Vec::new(),
        };
        EtcdConfig { at: Some(info), run: 9, ..config(1) }
    };
    assert_eq!(block_on(EtcdCatalog::open(at("elsewhere:1"))).unwrap_err().code, Code::Busy);
    // Beside it, below a prefix of its own, it disturbs nobody.
    let second = Prefix::new(server.endpoint(), "shared/2").open(2).unwrap();
    assert!(commit(&*second, &[absent("system")], &[put("system", "second")]));
    assert_eq!(contents(&first)["system"], "first");
}
