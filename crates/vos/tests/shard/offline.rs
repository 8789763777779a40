//! The tools for a stopped target: they change nothing unless asked to, find every kind of
//! damage, and repair what they say they repair.

use super::model::*;
use env::{AlignedBuf, Env, OpenOptions, Rng, SimDisk, SimWorld};
use std::path::Path;
use types::{Code, Durability};
use vos::offline::{Consent, DumpFilter, DumpItem, Offline, Place, Severity};
use vos::{DataDevice, Devices, Store, StoreOptions};

fn split() -> Devices {
    Devices { scm: "/s".into(), nvme: vec![DataDevice::whole(Path::new("/n"))] }
}

/// A target with random content, closed; its model.
async fn filled(env: &Env, devices: &Devices, seed: u64) -> Model {
    let store = Store::open_with(env, devices, StoreOptions::default()).await.unwrap();
    let shard = store.create_shard(POOL, &config(Durability::Wal)).await.unwrap();
    shard.durable(shard.create_cont(CONT).unwrap()).await.unwrap();
    let rng = Rng::new(seed);
    let mut model = Model::default();
    for n in 0..60 {
        let step = Step::random(&rng);
        let got = run(&shard, n + 1, &step).await;
        assert_eq!(got.clone().map(|_| ()).map_err(|e| e.code), model.run(n + 1, &step));
        if let Ok(lsn) = got {
            shard.durable(lsn).await.unwrap();
        }
    }
    model
}

async fn damages(env: &Env, devices: &Devices, data: bool) -> Vec<String> {
    let offline = Offline::open(env, devices, false).await.unwrap();
    let found = offline.check(data).await.unwrap();
    let bad = found.into_iter().filter(|finding| finding.severity == Severity::Damage);
    bad.map(|finding| finding.text).collect()
}

/// Runs `look` and demands that not one change reached the disk but those of locks.
async fn unchanged<R>(disk: &SimDisk, look: impl AsyncFnOnce() -> R) -> R {
    let before = disk.change_count();
    let result = look().await;
    assert_eq!(disk.change_count(), before, "looking has changed the disk");
    result
}

#[test]
fn looking_at_a_whole_target_finds_all_of_it_and_changes_nothing() {
    for devices in [Devices::one(Path::new("/s")), split()] {
        let world = SimWorld::new(7);
        let mut env = world.node("a");
        let model = world.block_on(filled(&env, &devices, 7));
        world.kill("a");
        world.disk("a").crash();
        env = world.node("a");
        let disk = world.disk("a");
        world.block_on(async {
            unchanged(&disk, async || {
                let offline = Offline::open(&env, &devices, false).await.unwrap();
                let refused = Offline::open(&env, &devices, false).await.err().unwrap();
                assert_eq!(refused.code, Code::Busy);
                let stat = offline.stat().await.unwrap();
                assert_eq!(stat.devices.len(), 1 + devices.nvme.len());
                let pool = &stat.pools[0];
                assert_eq!(pool.error, None);
                assert_eq!((pool.pool, pool.objects), (POOL.0, model.0.len() as u64));
                assert!(pool.log.as_ref().unwrap().records > 0);
                assert_eq!(offline.check(true).await.unwrap(), []);
                let mut objects = 0;
                let mut bytes = std::collections::BTreeMap::new();
                let mut each = |item: DumpItem| {
                    match item {
                        DumpItem::Object { .. } => objects += 1,
                        DumpItem::Single { oid, group, cell, bytes: more, .. } => {
                            *bytes.entry((oid, group, cell)).or_insert(0) += more;
                        }
                        DumpItem::Extent {
                            oid, group, cell, count, record_bytes, place, ..
                        } if place != Place::Zero => {
                            *bytes.entry((oid, group, cell)).or_insert(0) +=
                                count * record_bytes as u64;
                        }
                        _ => {}
                    }
                    Ok(())
                };
                offline.dump(&DumpFilter::default(), &mut each).await.unwrap();
                assert_eq!(objects, model.0.len());
                for unit in model.0.keys() {
                    let whose = (unit.object.to_string(), unit.group, unit.cell);
                    let found = bytes.get(&whose).copied().unwrap_or(0);
                    assert_eq!(found, model.bytes_used(*unit), "{unit}");
                }
            })
            .await;
            // An engine opens it as if nobody had been there.
            let store = Store::open_with(&env, &devices, StoreOptions::default()).await.unwrap();
            compare(&store.open_shard(POOL).await.unwrap(), &model).await;
            let refused = Offline::open(&env, &devices, false).await.err().unwrap();
            assert_eq!(refused.code, Code::Busy);
        });
        world.clear();
    }
}

async fn flip(env: &Env, path: &str, at: u64) {
    let file = env.disk().open(Path::new(path), OpenOptions::default()).await.unwrap();
    let (mut buf, _) = file.read_at(at, AlignedBuf::zeroed(1)).await;
    buf[0] ^= 0x40;
    file.write_at(at, buf).await.1.unwrap();
    file.sync().await.unwrap();
}

/// Every kind of damage is found, by name, and never panics.
#[test]
fn damage_of_each_kind_is_found() {
    let home = format!("/s/pool.{POOL}");
    let (log, data) = (format!("{home}/wal.00000001"), format!("/n/pool.{POOL}/data"));
    for case in 0..7 {
        let world = SimWorld::new(case);
        let env = world.node("a");
        world.block_on(async {
            filled(&env, &split(), 3).await;
            let disk = env.disk();
            let settings = format!("{home}/shard");
            let word = match case {
                0 => {
                    flip(&env, &settings, 20).await;
                    "AZKSHARD"
                }
                1 => {
                    flip(&env, &log, 4096 + 70).await;
                    "is damaged"
                }
                2 => {
                    let file = disk.open(Path::new(&data), OpenOptions::default()).await.unwrap();
                    file.set_len(1 << 20).await.unwrap();
                    "shorter than it was made"
                }
                3 => {
                    disk.remove(Path::new(&data)).await.unwrap();
                    "data of pool 3 on /n"
                }
                // A log after a checkpoint, and one that never saw any.
                4 | 5 => {
                    if case == 4 {
                        let store = Store::open_with(&env, &split(), StoreOptions::default()).await;
                        let shard = store.unwrap().open_shard(POOL).await.unwrap();
                        shard.close().await.unwrap();
                    }
                    for entry in disk.list(Path::new(&home)).await.unwrap() {
                        if entry.name.starts_with("wal.") {
                            disk.remove(&Path::new(&home).join(entry.name)).await.unwrap();
                        }
                    }
                    "is missing"
                }
                _ => {
                    flip(&env, "/s/superblock", 30).await;
                    let error = Offline::open(&env, &split(), false).await.err().unwrap();
                    assert_eq!(error.code, Code::Csum);
                    assert!(error.to_string().contains("superblock of /s"), "{error}");
                    return;
                }
            };
            let found = damages(&env, &split(), true).await;
            assert!(found.iter().any(|text| text.contains(word)), "case {case}: {found:?}");
        });
        world.clear();
    }
}

#[test]
fn a_log_damaged_in_the_middle_is_cut_with_consent_only() {
    let world = SimWorld::new(3);
    let env = world.node("a");
    let disk = world.disk("a");
    let devices = split();
    world.block_on(async {
        filled(&env, &devices, 3).await;
        // Some batches in: what is before it stays.
        flip(&env, &format!("/s/pool.{POOL}/wal.00000001"), 20 * 4096 + 70).await;
        let refused = Store::open_with(&env, &devices, StoreOptions::default()).await.unwrap();
        assert_eq!(refused.open_shard(POOL).await.unwrap_err().code, Code::Csum);
        drop(refused);
        let with = |drop_tail| Consent { drop_tail, remove_remains: false };
        let without = unchanged(&disk, async || {
            let dry = Offline::open(&env, &devices, false).await.unwrap();
            assert!(!dry.writes());
            let would = dry.repair(with(true)).await.unwrap();
            let cut = |line: &String| line.contains("cut before batch");
            assert!(would.done.iter().any(cut), "{would:?}");
            drop(dry);
            let dry = Offline::open(&env, &devices, false).await.unwrap();
            dry.repair(with(false)).await.unwrap()
        })
        .await;
        assert!(without.done.is_empty(), "{without:?}");
        assert!(without.left[0].contains("--drop-tail gives up"), "{without:?}");
        let wet = Offline::open(&env, &devices, true).await.unwrap();
        let done = wet.repair(with(true)).await.unwrap();
        assert!(done.done.iter().any(|line| line.contains("opens")), "{done:?}");
        assert_eq!(done.left, Vec::<String>::new());
        drop(wet);
        assert_eq!(damages(&env, &devices, true).await, Vec::<String>::new());
        let store = Store::open_with(&env, &devices, StoreOptions::default()).await.unwrap();
        let shard = store.open_shard(POOL).await.unwrap();
        assert!(shard.stat().object_count > 0, "what was before the damage is there");
        run(&shard, 900, &Step::random(&Rng::new(5))).await.ok();
    });
    world.clear();
}

#[test]
fn what_a_cut_off_destruction_left_is_removed_with_consent_only() {
    let world = SimWorld::new(3);
    let env = world.node("a");
    let devices = split();
    world.block_on(async {
        filled(&env, &devices, 3).await;
        env.disk().remove(Path::new(&format!("/s/pool.{POOL}/shard"))).await.unwrap();
        let offline = Offline::open(&env, &devices, false).await.unwrap();
        assert_eq!(offline.stat().await.unwrap().remains.len(), 2);
        let notes = offline.check(false).await.unwrap();
        assert!(notes.len() == 2 && notes.iter().all(|note| note.severity == Severity::Note));
        drop(offline);
        let wet = Offline::open(&env, &devices, true).await.unwrap();
        wet.repair(Consent::default()).await.unwrap();
        assert_eq!(wet.stat().await.unwrap().remains.len(), 2);
        let consent = Consent { remove_remains: true, ..Consent::default() };
        wet.repair(consent).await.unwrap();
        assert_eq!(wet.stat().await.unwrap().remains, Vec::<String>::new());
    });
    world.clear();
}
