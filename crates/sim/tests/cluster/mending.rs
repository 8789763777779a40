//! Damaged data of objects with copies and codes: readers get what other members have, and all members are whole again soon.

use client::{ArrayObj, Client, Container, Object, Pool};
use engine::StoreConfig;
use env::{AlignedBuf, Decay, DiskFaults, OpenOptions};
use sim::{Cluster, ClusterSpec, members, seeds};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, Durability, ObjType, TargetId};
use wire::control::{Name, OpenMode, SnapName};
use wire::obj::{Cond, FetchIod, FetchWant, Recx, UpdateIod, UpdateValue};
use wire::scrub::ScrubStat;

const CHUNK: u64 = 1 << 20;
const BLOCK: usize = 4096;
const DATA: &str = "/target0/pool.1/data";

fn cluster(seed: u64) -> Cluster {
    let spec = ClusterSpec { seed, engines: 4, targets: 1 };
    Cluster::start_healing(spec, StoreConfig::default(), Some(0)).unwrap()
}

/// Numbers that repeat.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = types::hash::mix2(self.0, 11);
        self.0 % below.max(1)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let seed = self.next(u64::MAX);
        let of = |at: usize| types::hash::mix2(seed, at as u64 / 8).to_le_bytes()[at % 8];
        (0..count).map(of).collect()
    }
}

/// An array and an object of keys, and what must be in them.
struct Things {
    array: ArrayObj,
    file: Vec<u8>,
    object: Object,
    values: Vec<Vec<u8>>,
    draw: Draw,
}

impl Things {
    fn new(cont: &Container, class: &str, seed: u64) -> Things {
        let class = class.parse().unwrap();
        let oid = |kind, number| cont.generate_oid(kind, class, 0, number).unwrap();
        Things {
            array: ArrayObj {
                cont: cont.clone(),
                oid: oid(ObjType::ArrayByte, seed),
                record_bytes: 1,
                chunk_records: CHUNK,
            },
            file: vec![0; 3 * CHUNK as usize],
            object: cont.object(oid(ObjType::MultiHashed, seed + 1000)),
            values: vec![Vec::new(); 6],
            draw: Draw(seed),
        }
    }

    async fn write(&mut self, steps: u64) {
        for _ in 0..steps {
            let (at, count) = match self.draw.next(3) {
                0 => (self.draw.next(5) * (CHUNK / 2), CHUNK / 2),
                1 => (self.draw.next(2 * CHUNK), 1 + self.draw.next(200_000)),
                _ => (self.draw.next(2 * CHUNK), 1 + self.draw.next(9_000)),
            };
            let data = self.draw.bytes(count as usize);
            self.array.write(&[Recx { index: at, count }], &[&data]).await.unwrap();
            self.file[at as usize..][..data.len()].copy_from_slice(&data);
            let at = self.draw.next(self.values.len() as u64);
            let count = 5_000 + self.draw.next(40_000);
            let data = self.draw.bytes(count as usize);
            let value = UpdateValue::Single { bytes: count };
            let iods = vec![UpdateIod { akey: b"v", cond: Cond::NONE, value }];
            self.object.update(None, Cond::NONE, &[at as u8], iods, &[&data]).await.unwrap();
            self.values[at as usize] = data;
        }
    }

    async fn check(&self, context: &str) {
        let mut found = vec![0xee; self.file.len()];
        let all = [Recx { index: 0, count: found.len() as u64 }];
        self.array.read(&all, &mut [&mut found]).await.unwrap();
        let differs = sim::first_difference(&found, &self.file);
        assert_eq!(differs, None, "{context}: {}", self.array.oid);
        for (at, value) in self.values.iter().enumerate() {
            if value.is_empty() {
                continue;
            }
            let mut room = vec![0; value.len()];
            let want = FetchWant::Single { bytes_max: 1 << 20, inline_bytes_max: 0 };
            let iods = vec![FetchIod { akey: b"v", want }];
            let fetched =
                self.object.fetch(None, Cond::NONE, &[at as u8], iods, &mut [&mut room]).await;
            fetched.unwrap();
            assert!(room == *value, "{context}: value {at}");
        }
    }
}

/// Flips a bit of so many blocks of an engine; none where nothing is held.
async fn flip_some(cluster: &Cluster, engine: usize, count: u64, draw: &mut Draw) -> u64 {
    let env = cluster.world().node(&Cluster::engine_name(engine));
    let options = OpenOptions { direct: true, dsync: true, ..OpenOptions::default() };
    let file = env.disk().open(Path::new(DATA), options).await.unwrap();
    // Space is taken from the start of the area.
    let (all, read) = file.read_at(0, AlignedBuf::try_zeroed(12 << 20).unwrap()).await;
    read.unwrap();
    let is_used = |at: &usize| all[at * BLOCK..][..BLOCK] != [0; BLOCK];
    let used: Vec<usize> = (0..all.len() / BLOCK).filter(is_used).collect();
    let count = if used.is_empty() { 0 } else { count };
    for _ in 0..count {
        let at = used[draw.next(used.len() as u64) as usize] * BLOCK;
        let mut block = AlignedBuf::try_zeroed(BLOCK).unwrap();
        block.copy_from_slice(&all[at..at + BLOCK]);
        block[draw.next(BLOCK as u64) as usize] ^= 1 << draw.next(8);
        file.write_at(at as u64, block).await.1.unwrap();
    }
    count
}

async fn stats(pool: &Pool) -> Vec<ScrubStat> {
    pool.scrub_stat().await.unwrap().into_iter().map(|(_, stat)| stat.unwrap()).collect()
}

/// Has everything compared now; what is damaged after it, and how many keys were put right.
async fn scrub(client: &Client, pool: &Pool) -> (u64, u64) {
    let passes = pool.scrub().await.unwrap();
    loop {
        let found = stats(pool).await;
        let is_over =
            |(stat, (_, pass)): (&ScrubStat, &(_, Option<u64>))| stat.passes >= pass.unwrap();
        if found.iter().zip(&passes).all(is_over) {
            let sum = |of: fn(&ScrubStat) -> u64| found.iter().map(of).sum();
            return (sum(|stat| stat.bad_bytes), sum(|stat| stat.mended_count));
        }
        client.env().sleep(Duration::from_millis(20)).await;
    }
}

async fn difference(client: &Client, cont: &Container, things: &Things) -> Option<String> {
    for oid in [things.array.oid, things.object.oid()] {
        let mut found = None;
        // Folds tell members one after the other.
        for _ in 0..10 {
            found = members::difference(client, cont, oid).await.unwrap();
            if found.is_none() {
                break;
            }
            client.env().sleep(Duration::from_secs(2)).await;
        }
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Whatever is damaged on one engine, leader or follower, copies or cells: nobody is told of it but the log, readers get what was
/// written, and after a pass of the scrubber nothing is damaged and all members are equal. A snapshot's data, too.
#[test]
fn what_is_damaged_on_one_engine_is_put_right() {
    let mut mended_by_readers = 0;
    for seed in seeds(8) {
        let class = ["RP_2GX", "RP_3GX", "EC_2P1GX"][seed as usize % 3];
        let cluster = cluster(seed);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let pool = cont.pool().clone();
            let mut things = Things::new(&cont, class, seed);
            things.write(6).await;
            let made = pool.snap_create(&Name::Label("c".into()), "first").await.unwrap();
            let old = cont.at_snapshot(&SnapName::Epoch(made.epoch)).await.unwrap();
            let then = Things {
                array: ArrayObj { cont: old.clone(), ..things.array.clone() },
                file: things.file.clone(),
                object: old.object(things.object.oid()),
                values: things.values.clone(),
                draw: Draw(0),
            };
            things.write(6).await;
            if seed % 2 == 0 {
                // Until stripes are cells.
                client.env().sleep(Duration::from_secs(90)).await;
            }
            let mut draw = Draw(seed + 77);
            for round in 0..4 {
                let context = format!("seed {seed}, {class}, round {round}");
                let engine = draw.next(4) as usize;
                if flip_some(&cluster, engine, 25, &mut draw).await == 0 {
                    continue;
                }
                if round % 2 == 0 {
                    things.check(&context).await;
                    then.check(&format!("{context}, then")).await;
                    let count = |stat: &ScrubStat| stat.mended_count;
                    mended_by_readers += stats(&pool).await.iter().map(count).sum::<u64>();
                }
                if round == 3 {
                    things.write(3).await;
                }
                let (bad_bytes, mended) = scrub(&client, &pool).await;
                assert_eq!(bad_bytes, 0, "{context}: {:?}", stats(&pool).await);
                assert!(mended > 0, "{context}: nothing was damaged");
                things.check(&format!("{context}, whole")).await;
                then.check(&format!("{context}, then, whole")).await;
                assert_eq!(difference(&client, &cont, &things).await, None, "{context}");
                things.write(2).await;
            }
        });
    }
    assert!(mended_by_readers > 0);
}

/// A sector that a device does not give was an error to whoever read it, though other members had what was in it, until the scrubber had come by.
#[test]
fn what_a_device_does_not_give_comes_from_others() {
    let mut mended_by_readers = 0;
    for seed in seeds(6) {
        let class = ["RP_2GX", "RP_3GX", "EC_2P1GX"][seed as usize % 3];
        let spec = ClusterSpec { seed, engines: 4, targets: 1 };
        // What is read comes from devices.
        let store = StoreConfig { data_cache_percent: Some(0), ..StoreConfig::default() };
        let cluster = Cluster::start_healing(spec, store, Some(0)).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let pool = cont.pool().clone();
            let mut things = Things::new(&cont, class, seed);
            things.write(8).await;
            let context = format!("seed {seed}, {class}");
            let leader = cont.layout(things.array.oid).unwrap().members(0)[0];
            let disk = cluster.world().disk(&Cluster::engine_name(leader.0 as usize));
            // Of one that gives nothing at all the scrubber says nothing.
            let mut draw = Draw(seed + 33);
            for at in disk.filled_pages(Path::new(DATA)).into_iter().filter(|_| draw.next(3) == 0) {
                disk.decay(Path::new(DATA), at, Decay::Unreadable);
            }
            things.check(&context).await;
            mended_by_readers +=
                stats(&pool).await.iter().map(|stat| stat.mended_count).sum::<u64>();
            assert_eq!(scrub(&client, &pool).await.0, 0, "{context}");
            things.check(&format!("{context}, whole")).await;
            assert_eq!(difference(&client, &cont, &things).await, None, "{context}");
        });
    }
    assert!(mended_by_readers > 0);
}

/// A leader is lost before it has said that all members have its last orders, and the next one has damage in the keys that these changed. What is settled with
/// the others is what it has, so it must not wait for that before it puts a key right: it did, for good, and whoever asked it anything about the pool waited, too.
#[test]
fn a_new_leader_puts_right_what_the_lost_one_has_changed() {
    for seed in seeds(4) {
        let cluster = cluster(seed + 900);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            // Whoever calls others lost is on the first engine.
            let led_elsewhere = |things: &Things| {
                cont.layout(things.array.oid).unwrap().members(0)[0] != TargetId(0)
            };
            let mut all = (100 * seed..).map(|number| Things::new(&cont, "RP_3G1", number));
            let mut things = all.find(led_elsewhere).unwrap();
            things.write(8).await;
            let layout = cont.layout(things.array.oid).unwrap();
            let [lost, next, _] = *layout.members(0) else { panic!("three members") };
            let mut draw = Draw(seed + 99);
            assert!(flip_some(&cluster, next.0 as usize, 300, &mut draw).await > 0);
            cluster.kill_engine(lost.0 as usize);
            // What could not be put right at once is tried again ten seconds later.
            let readable = async {
                let (mut found, all) = (vec![0; things.file.len()], things.file.len() as u64);
                let all = [Recx { index: 0, count: all }];
                while things.array.read(&all, &mut [&mut found]).await.is_err() {
                    client.env().sleep(Duration::from_secs(1)).await;
                }
            };
            let waited = client.env().timeout(Duration::from_secs(120), readable).await;
            assert!(waited.is_some(), "seed {seed}: not put right after two minutes");
            things.check(&format!("seed {seed}")).await;
            things.write(2).await;
            things.check(&format!("seed {seed}, later")).await;
        });
    }
}

/// A leader is lost when one member has its last order and the next leader has not, and that one has damage in the key. It could not take the member's data,
/// which have an update that is nobody's yet, and what the member had was to be settled with what it had itself: neither came to an end. Then others led, but the member had
/// dropped the answer by then, and carried the update out once more, over what others had written who had seen it.
#[test]
fn a_member_has_what_a_damaged_new_leader_never_got() {
    const LATE: std::ops::Range<usize> = 65_536..73_728;
    const HALF: usize = 69_632;
    /// What somebody who has seen it writes over.
    const OVER: std::ops::Range<usize> = 66_000..70_000;
    let mut seen = 0;
    for seed in seeds(4) {
        // What one has alone lies under what both have.
        let is_hidden = seed % 2 == 1;
        let cluster = cluster(seed + 950);
        seen += cluster.block_on(async {
            let context = format!("seed {seed}");
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            // Whoever calls others lost is on the first engine.
            let is_elsewhere = |things: &Things| {
                !cont.layout(things.array.oid).unwrap().members(0)[..2].contains(&TargetId(0))
            };
            let mut all = (100 * seed..).map(|number| Things::new(&cont, "RP_3G1", number));
            let mut things = all.find(is_elsewhere).unwrap();
            things.write(8).await;
            let layout = cont.layout(things.array.oid).unwrap();
            let [lost, next, _] = *layout.members(0) else { panic!("three members") };
            let mut draw = Draw(seed + 99);
            assert!(flip_some(&cluster, next.0 as usize, 300, &mut draw).await > 0);
            // Another client's update comes to the other member only.
            let name = |text: &str| Name::Label(text.into());
            let other = cluster.client("d");
            let pool = other.pool_open(&name("p"), OpenMode::ReadWrite).await.unwrap();
            let theirs = pool.cont_open(&name("c"), OpenMode::ReadWrite).await.unwrap();
            let array = ArrayObj { cont: theirs, ..things.array.clone() };
            let (net, node) = (SimNet::of(cluster.world()), Cluster::engine_name);
            net.cut(&node(lost.0 as usize), &node(next.0 as usize));
            let (late, done) = (draw.bytes(LATE.len()), Rc::new(Cell::new(false)));
            let (data, is_done) = (late.clone(), done.clone());
            other.env().spawn(async move {
                let at = Recx { index: LATE.start as u64, count: LATE.len() as u64 };
                array.write(&[at], &[&data]).await.unwrap();
                is_done.set(true);
            });
            client.env().sleep(Duration::from_millis(50)).await;
            assert!(!done.get(), "{context}: a member is left out");
            (0..4).for_each(|engine| net.cut("d", &node(engine)));
            cluster.kill_engine(lost.0 as usize);
            if is_hidden {
                let newer = draw.bytes(LATE.end - HALF);
                let at = Recx { index: HALF as u64, count: newer.len() as u64 };
                things.array.write(&[at], &[&newer]).await.unwrap();
                things.file[HALF..LATE.end].copy_from_slice(&newer);
            }
            let mut found = vec![0; things.file.len()];
            let all = [Recx { index: 0, count: found.len() as u64 }];
            let mut bulk = [&mut found[..]];
            let read = things.array.read(&all, &mut bulk);
            let read = client.env().timeout(Duration::from_secs(120), read).await;
            read.unwrap_or_else(|| panic!("{context}: not put right after two minutes")).unwrap();
            // Nobody was told of the update. Whoever has seen it does not see it come again.
            let is_there = found[LATE.start..HALF] == late[..HALF - LATE.start];
            if is_there {
                let end = if is_hidden { HALF } else { LATE.end };
                things.file[LATE.start..end].copy_from_slice(&late[..end - LATE.start]);
            }
            let differs = sim::first_difference(&found, &things.file);
            assert_eq!(differs, None, "{context}");
            if is_there {
                // Then its writer asks once more: it has been done, and is not done again.
                let over = draw.bytes(OVER.len());
                let at = Recx { index: OVER.start as u64, count: OVER.len() as u64 };
                things.array.write(&[at], &[&over]).await.unwrap();
                things.file[OVER].copy_from_slice(&over);
            }
            (0..4).for_each(|engine| net.heal("d", &node(engine)));
            while !done.get() {
                client.env().sleep(Duration::from_millis(10)).await;
            }
            if !is_there {
                things.file[LATE].copy_from_slice(&late);
            }
            things.check(&format!("{context}, done")).await;
            things.write(2).await;
            net.heal(&node(lost.0 as usize), &node(next.0 as usize));
            cluster.start_engine(lost.0 as usize).await.unwrap();
            assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
            things.check(&format!("{context}, whole")).await;
            // Keys that nobody has asked for since.
            assert_eq!(scrub(&client, cont.pool()).await.0, 0, "{context}");
            assert_eq!(difference(&client, &cont, &things).await, None, "{context}");
            u64::from(is_there)
        });
    }
    assert!(seen > 0, "no member had more than the leader");
}

/// Two leaders are lost within a second. The first had told one member of an update, and the second not; that showed a later one alone while the member was about
/// to compare the key. The member led next, and what nobody had been told of came up under what everybody had seen.
#[test]
fn what_a_second_leader_never_got_does_not_come_up_under_its_own() {
    const LATE: std::ops::Range<usize> = 65_536..73_728;
    const HALF: usize = 69_632;
    for seed in seeds(3) {
        let cluster = cluster(seed + 970);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            // Whoever calls others lost is on the first engine.
            let is_elsewhere = |things: &Things| {
                !cont.layout(things.array.oid).unwrap().members(0)[..2].contains(&TargetId(0))
            };
            let mut all = (100 * seed..).map(|number| Things::new(&cont, "RP_3G1", number));
            let mut things = all.find(is_elsewhere).unwrap();
            things.write(8).await;
            let layout = cont.layout(things.array.oid).unwrap();
            let [lost, next, last] = *layout.members(0) else { panic!("three members") };
            let mut draw = Draw(seed + 55);
            let name = |text: &str| Name::Label(text.into());
            let other = cluster.client("d");
            let pool = other.pool_open(&name("p"), OpenMode::ReadWrite).await.unwrap();
            let theirs = pool.cont_open(&name("c"), OpenMode::ReadWrite).await.unwrap();
            let array = ArrayObj { cont: theirs, ..things.array.clone() };
            let (net, node) = (SimNet::of(cluster.world()), Cluster::engine_name);
            net.cut(&node(lost.0 as usize), &node(next.0 as usize));
            let late = draw.bytes(LATE.len());
            other.env().spawn(async move {
                let at = Recx { index: LATE.start as u64, count: LATE.len() as u64 };
                // It hears nothing any more.
                drop(array.write(&[at], &[&late]).await);
            });
            client.env().sleep(Duration::from_millis(50)).await;
            (0..4).for_each(|engine| net.cut("d", &node(engine)));
            // Its answers take longer than one order.
            net.set_far(&node(last.0 as usize), Duration::from_millis(100));
            cluster.kill_engine(lost.0 as usize);
            let newer = draw.bytes(LATE.end - HALF);
            let at = Recx { index: HALF as u64, count: newer.len() as u64 };
            things.array.write(&[at], &[&newer]).await.unwrap();
            let all = [Recx { index: 0, count: things.file.len() as u64 }];
            let (mut seen, mut later) = (vec![0; things.file.len()], vec![0; things.file.len()]);
            things.array.read(&all, &mut [&mut seen[..]]).await.unwrap();
            assert_eq!(seen[HALF..LATE.end], newer[..], "seed {seed}");
            cluster.kill_engine(next.0 as usize);
            let mut bulk = [&mut later[..]];
            let read = things.array.read(&all, &mut bulk);
            let read = client.env().timeout(Duration::from_secs(120), read).await;
            read.unwrap_or_else(|| panic!("seed {seed}: nobody leads after two minutes")).unwrap();
            let differs = sim::first_difference(&seen, &later);
            assert_eq!(differs, None, "seed {seed}: what nobody was told of has come up");
        });
    }
}

/// The same while somebody writes all the time: what is put right is never older than what was written.
#[test]
fn writers_go_on_while_damage_is_put_right() {
    for seed in seeds(6) {
        let class = ["RP_2GX", "RP_3GX", "EC_2P1GX"][seed as usize % 3];
        let cluster = cluster(seed + 500);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let pool = cont.pool().clone();
            let mut things = Things::new(&cont, class, seed);
            things.write(8).await;
            let over = Rc::new(Cell::new(false));
            let written = Rc::new(RefCell::new(None));
            let (is_over, done, env) = (over.clone(), written.clone(), client.env().clone());
            client.env().spawn(async move {
                while !is_over.get() {
                    things.write(1).await;
                    things.check("while it is damaged").await;
                    env.sleep(Duration::from_millis(things.draw.next(20))).await;
                }
                done.replace(Some(things));
            });
            let mut draw = Draw(seed + 99);
            for round in 0..4 {
                let engine = draw.next(4) as usize;
                flip_some(&cluster, engine, 12, &mut draw).await;
                // An update that was on its way to a block may have been undone by the flip; it is put right as well.
                client.env().sleep(Duration::from_millis(draw.next(300))).await;
                for _ in 0..2 {
                    scrub(&client, &pool).await;
                }
                // What somebody wrote beside the pass is met by the next.
                let bad: u64 = stats(&pool).await.iter().map(|stat| stat.bad_bytes).sum();
                assert_eq!(bad, 0, "seed {seed}, {class}, round {round}: {:?}", stats(&pool).await);
            }
            over.set(true);
            while written.borrow().is_none() {
                client.env().sleep(Duration::from_millis(5)).await;
            }
            let things = written.take().unwrap();
            things.check(&format!("seed {seed}, {class}, at the end")).await;
            assert_eq!(difference(&client, &cont, &things).await, None, "seed {seed}");
        });
    }
}

/// A leader with damage takes another member's data of a key while somebody writes to it: what is written meanwhile is not undone by them.
#[test]
fn what_is_written_while_a_key_is_put_right_stays() {
    for seed in seeds(4) {
        let context = format!("seed {seed}");
        let spec = ClusterSpec { seed, engines: 3, targets: 1 };
        // What is read comes from devices, which take their time: others write meanwhile.
        let store = StoreConfig { data_cache_percent: Some(0), ..StoreConfig::default() };
        let cluster = Cluster::start_healing(spec, store, Some(0)).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let oid = cont.generate_oid(ObjType::MultiHashed, "RP_2G1".parse().unwrap(), 0, seed);
            let object = cont.object(oid.unwrap());
            let put = async |object: &Object, akey: &[u8], data: &[u8]| {
                let value = UpdateValue::Single { bytes: data.len() as u64 };
                let iods = vec![UpdateIod { akey, cond: Cond::NONE, value }];
                object.update(None, Cond::NONE, b"key", iods, &[data]).await.unwrap();
            };
            let get = async |akey: &[u8], bytes: usize| {
                let mut room = vec![0; bytes];
                let want = FetchWant::Single { bytes_max: 1 << 20, inline_bytes_max: 0 };
                let iods = vec![FetchIod { akey, want }];
                object.fetch(None, Cond::NONE, b"key", iods, &mut [&mut room]).await.unwrap();
                room
            };
            let mut draw = Draw(seed + 5);
            let old = draw.bytes(10 * BLOCK);
            put(&object, b"old", &old).await;
            let leader = cont.layout(object.oid()).unwrap().members(0)[0];
            let takes = Duration::from_millis(2);
            let faults =
                DiskFaults { latency_min: takes, latency_max: takes, ..DiskFaults::default() };
            cluster.world().disk(&Cluster::engine_name(leader.0 as usize)).set_faults(faults);
            let (over, written) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0u64)));
            let (is_over, count, env) = (over.clone(), written.clone(), client.env().clone());
            let (theirs, mut pauses) = (cont.object(object.oid()), Draw(seed + 6));
            client.env().spawn(async move {
                while !is_over.get() {
                    put(&theirs, &count.get().to_le_bytes(), b"new").await;
                    count.set(count.get() + 1);
                    env.sleep(Duration::from_millis(pauses.next(20))).await;
                }
                is_over.set(false);
            });
            for round in 0..4 {
                assert!(flip_some(&cluster, leader.0 as usize, 300, &mut draw).await > 0);
                assert!(get(b"old", old.len()).await == old, "{context}, round {round}");
            }
            over.set(true);
            while over.get() {
                client.env().sleep(Duration::from_millis(1)).await;
            }
            assert!(written.get() > 4, "{context}: nobody wrote");
            for at in 0..written.get() {
                assert_eq!(get(&at.to_le_bytes(), 3).await, b"new", "{context}: {at}");
            }
            let differs = members::difference(&client, &cont, object.oid()).await.unwrap();
            assert_eq!(differs, None, "{context}");
        });
    }
}

/// What all members have damaged is refused, as with one copy, and nothing else is; overwriting it heals it.
#[test]
fn what_all_members_have_damaged_is_refused() {
    let cluster = cluster(7);
    cluster.block_on(async {
        let client = cluster.client("c");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let pool = cont.pool().clone();
        let oid = cont.generate_oid(ObjType::MultiHashed, "RP_2G1".parse().unwrap(), 0, 5);
        let object = cont.object(oid.unwrap());
        let mut draw = Draw(3);
        let values: Vec<Vec<u8>> = (0..4).map(|_| draw.bytes(BLOCK)).collect();
        let put = async |at: usize| {
            let value = UpdateValue::Single { bytes: BLOCK as u64 };
            let iods = vec![UpdateIod { akey: b"v", cond: Cond::NONE, value }];
            object.update(None, Cond::NONE, &[at as u8], iods, &[&values[at]]).await.unwrap();
        };
        let get = async |at: usize| {
            let mut room = vec![0; BLOCK];
            let want = FetchWant::Single { bytes_max: 1 << 20, inline_bytes_max: 0 };
            let iods = vec![FetchIod { akey: b"v", want }];
            let found = object.fetch(None, Cond::NONE, &[at as u8], iods, &mut [&mut room]).await;
            found.map(|_| room).map_err(|error| error.code)
        };
        for at in 0..4 {
            put(at).await;
        }
        // The third value, wherever it lies.
        let mut flipped = 0;
        for engine in 0..4 {
            let env = cluster.world().node(&Cluster::engine_name(engine));
            let options = OpenOptions { direct: true, dsync: true, ..OpenOptions::default() };
            let file = env.disk().open(Path::new(DATA), options).await.unwrap();
            let (all, read) = file.read_at(0, AlignedBuf::try_zeroed(2 << 20).unwrap()).await;
            read.unwrap();
            for at in (0..all.len()).step_by(BLOCK) {
                if all[at..at + BLOCK] == values[2][..] {
                    let mut block = AlignedBuf::try_zeroed(BLOCK).unwrap();
                    block.copy_from_slice(&all[at..at + BLOCK]);
                    block[9] ^= 4;
                    file.write_at(at as u64, block).await.1.unwrap();
                    flipped += 1;
                }
            }
        }
        assert_eq!(flipped, 2);
        assert_eq!(get(2).await, Err(Code::Csum));
        let (bad_bytes, mended) = scrub(&client, &pool).await;
        assert_eq!((bad_bytes, mended), (2 * BLOCK as u64, 0));
        for at in [0, 1, 3] {
            assert_eq!(get(at).await.unwrap(), values[at]);
        }
        put(2).await;
        assert_eq!(get(2).await.unwrap(), values[2]);
        assert_eq!(scrub(&client, &pool).await.0, 0);
    });
}

/// A leader's own key has more bytes than a message: it comes in parts. It used to be refused.
#[test]
fn a_large_key_of_the_leader_is_put_right_in_parts() {
    const BYTES: u64 = 36 << 20;
    const PIECE: u64 = 4 << 20;
    let cluster = cluster(12);
    cluster.block_on(async {
        let client = cluster.client("c");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let pool = cont.pool().clone();
        let oid = cont.generate_oid(ObjType::ArrayByte, "RP_2G1".parse().unwrap(), 0, 3).unwrap();
        let array = ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 2 * BYTES };
        let mut draw = Draw(21);
        let data = draw.bytes(BYTES as usize);
        for at in (0..BYTES).step_by(PIECE as usize) {
            let piece = &data[at as usize..(at + PIECE) as usize];
            array.write(&[Recx { index: at, count: PIECE }], &[piece]).await.unwrap();
        }
        let leader = placement::layout(oid, &pool.map()).unwrap().members(0)[0];
        flip_some(&cluster, leader.0 as usize, 3, &mut draw).await;
        scrub(&client, &pool).await;
        assert!(stats(&pool).await.iter().any(|stat| stat.mended_count > 0));
        let mut found = vec![0; BYTES as usize];
        let all = [Recx { index: 0, count: BYTES }];
        array.read(&all, &mut [&mut found]).await.unwrap();
        assert!(found == data, "the bytes differ");
        assert_eq!(scrub(&client, &pool).await.0, 0, "all is well after it");
        assert_eq!(members::difference(&client, &cont, oid).await.unwrap(), None);
    });
}

/// Of a group one member is left while the others are away: it has an update more, and damage in what they have. They could not catch up, as it could not send them the
/// key, and it asked nobody, as nobody else was whole: the key was lost to readers though all of it was there (seed 1710 of the swarm's arrays with codes).
#[test]
fn who_is_behind_fills_what_is_damaged_with_the_only_one_left() {
    for seed in seeds(4) {
        let class = ["RP_2G1", "RP_3G1"][seed as usize % 2];
        let cluster = cluster(seed + 1200);
        cluster.block_on(async {
            let context = format!("seed {seed}, {class}");
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            // Who is lost is never on the first engine, which calls others lost.
            let members_of =
                |things: &Things| cont.layout(things.array.oid).unwrap().members(0).to_vec();
            let left_of = |members: &[TargetId]| members[seed as usize % members.len()];
            let is_elsewhere = |things: &Things| {
                let members = members_of(things);
                let left = left_of(&members);
                members.iter().all(|member| *member == left || *member != TargetId(0))
            };
            let mut all = (100 * seed..).map(|number| Things::new(&cont, class, number));
            let mut things = all.find(is_elsewhere).unwrap();
            let members = members_of(&things);
            let left = left_of(&members);
            let mut draw = Draw(seed + 77);
            let mut write = async |things: &mut Things, at: u64, count: usize| {
                let data = draw.bytes(count);
                let recx = Recx { index: at, count: count as u64 };
                things.array.write(&[recx], &[&data]).await.unwrap();
                things.file[at as usize..][..count].copy_from_slice(&data);
            };
            for piece in 0..12 {
                write(&mut things, piece * 60_000, 50_000).await;
            }
            for away in members.iter().filter(|member| **member != left) {
                cluster.kill_engine(away.0 as usize);
            }
            // They have what was written so far, and not what is written now.
            let mut flips = Draw(seed + 99);
            assert!(flip_some(&cluster, left.0 as usize, 40, &mut flips).await > 0, "{context}");
            write(&mut things, 900_000, 20_000).await;
            for away in members.iter().filter(|member| **member != left) {
                cluster.start_engine(away.0 as usize).await.unwrap();
            }
            let whole = members::await_whole(&client);
            let whole = client.env().timeout(Duration::from_secs(120), whole).await;
            let whole = whole.unwrap_or_else(|| panic!("{context}: never whole again"));
            assert_eq!(whole.unwrap(), None, "{context}");
            things.check(&context).await;
            assert_eq!(scrub(&client, cont.pool()).await.0, 0, "{context}");
            assert_eq!(difference(&client, &cont, &things).await, None, "{context}");
        });
    }
}
