//! Checksums end to end: bits that flip on a device or on the way are found and never read as data; the
//! scrubber finds what nobody reads.

use client::{ArrayObj, Client, Code, Container, Pool};
use env::{AlignedBuf, OpenOptions};
use sim::{Cluster, ClusterSpec};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use transport::SimNet;
use types::{ContProps, CsumKind, Durability, ObjType};
use uuid::Uuid;
use wire::control::{Name, OpenMode};
use wire::obj::{Cond, FetchIod, FetchWant, Recx, UpdateIod, UpdateValue};
use wire::scrub::ScrubStat;

fn cluster(seed: u64, engines: usize, targets: usize) -> Cluster {
    Cluster::start(ClusterSpec { seed, engines, targets }).unwrap()
}

/// A pool `p` and in it a container with these checksums.
async fn container(
    cluster: &Cluster,
    client: &Client,
    durability: Durability,
    csum: CsumKind,
    server_verify: bool,
) -> Container {
    let layout = types::ContLayout::Plain;
    // Makes the pool; its container is not used.
    let pool = cluster.container(client, durability, layout).await.unwrap().pool().clone();
    let props = ContProps { csum, server_verify, ..ContProps::default() };
    pool.cont_create("summed", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
    pool.cont_open(&Name::Label("summed".into()), OpenMode::ReadWrite).await.unwrap()
}

fn array(cont: &Container, class: &str) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, 77).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 64 << 10 }
}

fn bytes(seed: u64, count: usize) -> Vec<u8> {
    (0..count).map(|n| types::hash::mix(seed << 32 ^ n as u64) as u8).collect()
}

fn range(at: usize, count: usize) -> [Recx; 1] {
    [Recx { index: at as u64, count: count as u64 }]
}

async fn read(array: &ArrayObj, at: usize, count: usize) -> Result<Vec<u8>, Code> {
    let mut room = vec![0xaa; count];
    let (front, back) = room.split_at_mut(count / 3);
    array.read(&range(at, count), &mut [front, back]).await.map_err(|error| error.code)?;
    Ok(room)
}

/// Data files of an engine's targets for the pool, with the blocks that hold something.
async fn written_blocks(cluster: &Cluster, engine: usize, targets: usize) -> Vec<(PathBuf, u64)> {
    let env = cluster.world().node(&Cluster::engine_name(engine));
    let mut found = Vec::new();
    for target in 0..targets {
        let path = PathBuf::from(format!("/target{target}/pool.1/data"));
        let options = OpenOptions { read_only: true, direct: true, ..OpenOptions::default() };
        let file = env.disk().open(&path, options).await.unwrap();
        // Space is taken from the start of the area.
        let (buf, read) = file.read_at(0, AlignedBuf::try_zeroed(2 << 20).unwrap()).await;
        read.unwrap();
        for (block, data) in buf.chunks(4096).enumerate() {
            if data.iter().any(|byte| *byte != 0) {
                found.push((path.clone(), block as u64));
            }
        }
    }
    found
}

async fn flip(cluster: &Cluster, engine: usize, path: &Path, block: u64, bit: u64) {
    let env = cluster.world().node(&Cluster::engine_name(engine));
    let options = OpenOptions { direct: true, dsync: true, ..OpenOptions::default() };
    let file = env.disk().open(path, options).await.unwrap();
    let (mut buf, read) = file.read_at(block * 4096, AlignedBuf::try_zeroed(4096).unwrap()).await;
    read.unwrap();
    buf[(bit / 8) as usize % 4096] ^= 1 << (bit % 8);
    file.write_at(block * 4096, buf).await.1.unwrap();
}

async fn stats(pool: &Pool) -> Vec<ScrubStat> {
    pool.scrub_stat().await.unwrap().into_iter().map(|(_, stat)| stat.unwrap()).collect()
}

async fn bad_bytes(pool: &Pool) -> u64 {
    stats(pool).await.iter().map(|stat| stat.bad_bytes).sum()
}

/// Has everything scrubbed now and waits for the end.
async fn scrub(client: &Client, pool: &Pool) {
    let passes = pool.scrub().await.unwrap();
    loop {
        let over = stats(pool)
            .await
            .iter()
            .zip(&passes)
            .all(|(stat, (_, pass))| stat.passes >= pass.unwrap());
        if over {
            return;
        }
        client.env().sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_flip_on_a_device_is_an_error_where_it_is_and_nowhere_else() {
    for (seed, kind) in (1..).zip(CsumKind::ALL[1..].iter().copied()) {
        let cluster = cluster(seed, 2, 2);
        cluster.block_on(async {
            let client = cluster.client("c0");
            let cont = container(&cluster, &client, Durability::Wal, kind, false).await;
            let pool = cont.pool().clone();
            let array = array(&cont, "SX");
            let object = cont.object(
                cont.generate_oid(ObjType::MultiHashed, "S1".parse().unwrap(), 0, 5).unwrap(),
            );
            let mut model = vec![0; 400_000];
            let random = |bound: usize| (cluster.world().random_u64() % bound as u64) as usize;
            for n in 0..6 {
                let (at, count) =
                    if n == 0 { (0, 350_000) } else { (random(300_000), random(90_000)) };
                let data = bytes(n, count + 1);
                array.write(&range(at, data.len()), &[&data[..5], &data[5..]]).await.unwrap();
                model[at..at + data.len()].copy_from_slice(&data);
            }
            let large = bytes(9, 60_001);
            let value = UpdateValue::Single { bytes: large.len() as u64 };
            let iods = vec![UpdateIod { akey: b"v", cond: Cond::NONE, value }];
            object.update(None, Cond::NONE, b"k", iods, &[&large]).await.unwrap();
            assert!(read(&array, 0, 400_000).await.unwrap() == model);

            // A live engine is flipped under, then one that is restarted after it.
            for restarts in [false, true] {
                let engine = random(2);
                let blocks = written_blocks(&cluster, engine, 2).await;
                let (path, block) = &blocks[random(blocks.len())];
                if restarts {
                    cluster.kill_engine(engine);
                }
                flip(&cluster, engine, path, *block, random(4096 * 8) as u64).await;
                if restarts {
                    cluster.start_engine(engine).await.unwrap();
                }
            }
            let single = async || {
                let want = FetchWant::Single { bytes_max: 1 << 20, inline_bytes_max: 0 };
                let mut room = vec![0; 60_001];
                let iods = vec![FetchIod { akey: b"v", want }];
                let found = object.fetch(None, Cond::NONE, b"k", iods, &mut [&mut room]).await;
                found.map(|_| room).map_err(|error| error.code)
            };
            let mut refused = 0;
            for _ in 0..80 {
                let (at, count) = (random(390_000), 1 + random(10_000));
                match read(&array, at, count).await {
                    Ok(data) => assert!(data == model[at..at + count], "{kind}: wrong bytes"),
                    Err(code) => {
                        assert_eq!(code, Code::Csum);
                        refused += 1;
                    }
                }
            }
            match single().await {
                Ok(data) => assert!(data == large),
                Err(code) => assert_eq!(code, Code::Csum),
            }
            // Whoever looks, the scrubber finds what is referenced, and says whose it is.
            scrub(&client, &pool).await;
            let bad = bad_bytes(&pool).await;
            assert!(bad <= 8192, "two flips damage at most two blocks");
            assert!(refused == 0 || bad > 0);
            for place in stats(&pool).await.iter().flat_map(|stat| &stat.places) {
                let holder = place.holder.as_ref().expect("a damaged block in use has a holder");
                assert!([array.oid, object.oid()].contains(&holder.unit.object));
                assert_eq!(holder.cont, cont.id());
                assert!(holder.bytes <= 4096);
            }
            // Overwriting heals.
            array.write(&range(0, 400_000), &[&bytes(50, 400_000)]).await.unwrap();
            let iods = vec![UpdateIod {
                akey: b"v",
                cond: Cond::NONE,
                value: UpdateValue::Single { bytes: large.len() as u64 },
            }];
            object.update(None, Cond::NONE, b"k", iods, &[&large]).await.unwrap();
            assert_eq!(bad_bytes(&pool).await, 0);
            assert!(read(&array, 0, 400_000).await.unwrap() == bytes(50, 400_000));
            assert!(single().await.unwrap() == large);
        });
    }
}

#[test]
fn damage_found_by_a_reader_is_refused_after_a_restart_too() {
    let cluster = cluster(11, 1, 1);
    cluster.block_on(async {
        let client = cluster.client("c0");
        let cont = container(&cluster, &client, Durability::Wal, CsumKind::Xxh3, false).await;
        let pool = cont.pool().clone();
        let array = array(&cont, "S1");
        let data = bytes(1, 40_960);
        array.write(&range(0, data.len()), &[&data]).await.unwrap();
        let blocks = written_blocks(&cluster, 0, 1).await;
        assert_eq!(blocks.len(), 10);
        let (path, block) = blocks[4].clone();
        flip(&cluster, 0, &path, block, 77).await;
        // A whole block: only the client sees it, and has the target look.
        assert_eq!(read(&array, 16_384, 4096).await, Err(Code::Csum));
        assert_eq!(bad_bytes(&pool).await, 4096);
        // The bit back: still nobody gets it, now or after a restart.
        flip(&cluster, 0, &path, block, 77).await;
        assert_eq!(read(&array, 16_384, 1).await, Err(Code::Csum));
        cluster.kill_engine(0);
        cluster.start_engine(0).await.unwrap();
        assert_eq!(read(&array, 0, 40_960).await, Err(Code::Csum));
        assert!(read(&array, 0, 16_384).await.unwrap() == data[..16_384]);
        assert!(read(&array, 20_480, 20_480).await.unwrap() == data[20_480..]);
        let stat = stats(&pool).await.remove(0);
        assert_eq!((stat.bad_bytes, stat.places.len()), (4096, 1));
        let holder = stat.places[0].holder.clone().unwrap();
        assert_eq!((holder.offset, holder.bytes), (16_384, 4096));
        array.write(&range(16_000, 5_000), &[&data[16_000..21_000]]).await.unwrap();
        assert!(read(&array, 0, 40_960).await.unwrap() == data);
        assert_eq!(bad_bytes(&pool).await, 0);
    });
}

#[test]
fn a_flip_on_the_way_is_read_again_or_refused() {
    for durability in [Durability::Memory, Durability::Wal] {
        let cluster = cluster(12, 1, 1);
        let net = SimNet::of(cluster.world());
        cluster.block_on(async {
            let client = cluster.client("c0");
            let cont = container(&cluster, &client, durability, CsumKind::Crc32c, false).await;
            let pool = cont.pool().clone();
            let array = array(&cont, "S1");
            let data = bytes(1, 64 << 10);
            array.write(&range(0, data.len()), &[&data]).await.unwrap();
            // Once or twice: nobody notices.
            for count in [1, 2] {
                net.flip_bulk("e0", "c0", count);
                assert!(read(&array, 0, data.len()).await.unwrap() == data);
                assert_eq!(net.flips_left("e0", "c0"), 0);
            }
            // Always: an error that says where it is not.
            net.flip_bulk("e0", "c0", 1_000_000);
            let mut room = vec![0; data.len()];
            let error = array.read(&range(0, data.len()), &mut [&mut room]).await.unwrap_err();
            assert_eq!(error.code, Code::Csum);
            assert!(error.to_string().contains("on their way"), "{error}");
            net.flip_bulk("e0", "c0", 0);
            assert_eq!(bad_bytes(&pool).await, 0);
            assert!(read(&array, 0, data.len()).await.unwrap() == data);

            // On the way there: found when it is read.
            net.flip_bulk("c0", "e0", 1);
            array.write(&range(0, data.len()), &[&data]).await.unwrap();
            assert_eq!(net.flips_left("c0", "e0"), 0);
            assert_eq!(read(&array, 0, data.len()).await, Err(Code::Csum));
            assert_eq!(bad_bytes(&pool).await, 4096);
            assert!(read(&array, 0, data.len() - 4096).await.unwrap() == data[..data.len() - 4096]);
        });
        // Or at once, where that is asked for: it is sent again.
        let cluster = self::cluster(13, 1, 1);
        let net = SimNet::of(cluster.world());
        cluster.block_on(async {
            let client = cluster.client("c0");
            let cont = container(&cluster, &client, durability, CsumKind::Crc32c, true).await;
            let array = array(&cont, "S1");
            let data = bytes(1, 64 << 10);
            net.flip_bulk("c0", "e0", 2);
            array.write(&range(0, data.len()), &[&data]).await.unwrap();
            assert_eq!(net.flips_left("c0", "e0"), 0);
            assert!(read(&array, 0, data.len()).await.unwrap() == data);
            net.flip_bulk("c0", "e0", 1_000_000);
            let error = array.write(&range(0, data.len()), &[&data]).await.unwrap_err();
            assert_eq!(error.code, Code::Csum);
            net.flip_bulk("c0", "e0", 0);
            assert!(read(&array, 0, data.len()).await.unwrap() == data, "nothing was written");
        });
    }
}

#[test]
fn transactions_over_several_targets_carry_sums() {
    let cluster = cluster(14, 2, 2);
    cluster.block_on(async {
        let client = cluster.client("c0");
        let cont = container(&cluster, &client, Durability::Wal, CsumKind::Sha256, true).await;
        let array = array(&cont, "SX");
        let data = bytes(1, 300_000);
        let tx = client::Tx::open(&cont, false);
        array.write_in(Some(&tx), &range(100, 200_000), &[&data[..200_000]]).await.unwrap();
        array.write_in(Some(&tx), &range(200_100, 100_000), &[&data[200_000..]]).await.unwrap();
        tx.commit().await.unwrap();
        assert!(read(&array, 100, 300_000).await.unwrap() == data);
        for at in 0..2 {
            cluster.kill_engine(at);
            cluster.start_engine(at).await.unwrap();
        }
        assert!(read(&array, 100, 300_000).await.unwrap() == data);
        scrub(&client, cont.pool()).await;
        let stats = stats(cont.pool()).await;
        assert!(stats.iter().map(|stat| stat.summed_bytes).sum::<u64>() >= 300_000);
        assert!(stats.iter().all(|stat| stat.bad_bytes == 0 && stat.passes == 1));
    });
}

#[test]
fn without_checksums_nothing_is_kept_or_found() {
    let cluster = cluster(15, 1, 1);
    cluster.block_on(async {
        let client = cluster.client("c0");
        let cont = container(&cluster, &client, Durability::Wal, CsumKind::Off, false).await;
        let array = array(&cont, "S1");
        let data = bytes(1, 40_960);
        array.write(&range(0, data.len()), &[&data]).await.unwrap();
        let (path, block) = written_blocks(&cluster, 0, 1).await[2].clone();
        flip(&cluster, 0, &path, block, 9).await;
        assert!(read(&array, 0, data.len()).await.unwrap() != data);
        scrub(&client, cont.pool()).await;
        let stat = stats(cont.pool()).await.remove(0);
        assert_eq!((stat.summed_bytes, stat.bad_bytes, stat.passes), (0, 0, 1));
    });
}

#[test]
fn the_daily_pass_survives_a_restart_and_finds_what_nobody_reads() {
    let cluster = cluster(16, 1, 1);
    let (client, cont) = cluster.block_on(async {
        let client = cluster.client("c0");
        let cont = container(&cluster, &client, Durability::Wal, CsumKind::Crc32c, false).await;
        let array = array(&cont, "S1");
        let data = bytes(1, 1 << 20);
        array.write(&range(0, data.len()), &[&data]).await.unwrap();
        let (path, block) = written_blocks(&cluster, 0, 1).await[200].clone();
        flip(&cluster, 0, &path, block, 9).await;
        // Slow enough that a restart comes in the middle.
        let props = BTreeMap::from([("scrub".to_string(), "64KiB/s".to_string())]);
        cont.pool().set_props(props).await.unwrap();
        (client, cont)
    });
    cluster.world().run_for(Duration::from_secs(23 * 3600));
    let pool = cont.pool().clone();
    cluster.block_on(async {
        let stat = stats(&pool).await.remove(0);
        assert_eq!((stat.passes, stat.checked_bytes, stat.bad_bytes), (0, 0, 0));
        assert_eq!(stat.rate.to_string(), "64KiB/s");
        client.env().sleep(Duration::from_secs(3600 + 6)).await;
        let stat = stats(&pool).await.remove(0);
        assert_eq!(stat.passes, 0);
        assert!(stat.checked_bytes > 0 && stat.left_bytes > 0, "{stat:?}");
        cluster.kill_engine(0);
        cluster.start_engine(0).await.unwrap();
        client.env().sleep(Duration::from_secs(60)).await;
        let stat = stats(&pool).await.remove(0);
        assert_eq!((stat.passes, stat.bad_bytes, stat.pass_bad_count), (1, 4096, 1), "{stat:?}");
        assert!(stat.pass_end_ns > 0 && stat.places[0].holder.is_some());
    });
}

#[test]
fn appends_over_chunk_borders_carry_sums() {
    for class in ["S1", "SX"] {
        let cluster = cluster(17, 2, 2);
        cluster.block_on(async {
            let client = cluster.client("c0");
            let cont = container(&cluster, &client, Durability::Wal, CsumKind::Crc32c, false).await;
            let array = array(&cont, class);
            let mut model = Vec::new();
            for (n, count) in [10, 5_000, 150_000, 1, 64 << 10, 4_096].into_iter().enumerate() {
                let data = bytes(n as u64, count);
                let at = array.append(&[&data[..count / 2], &data[count / 2..]]).await.unwrap();
                assert_eq!(at, model.len() as u64);
                model.extend_from_slice(&data);
            }
            assert!(read(&array, 0, model.len()).await.unwrap() == model);
            scrub(&client, cont.pool()).await;
            assert_eq!(bad_bytes(cont.pool()).await, 0);
        });
    }
}
