//! Others stand in for targets that stay away.

use client::{ArrayObj, Client, Container, KvObj, RebuildState};
use engine::StoreConfig;
use env::DiskFaults;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{
    ContLayout, ContProps, Durability, ObjClass, ObjType, Oid, PlacementRule, Rank, Result,
};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest, Name, OpenMode, Subject, TargetAim};
use wire::map::PoolMap;
use wire::obj::{Cond, Recx};

async fn open(client: &Client) -> Result<Container> {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await?;
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await
}

fn kv(cont: &Container, class: &str, number: u64) -> KvObj {
    let oid = cont.generate_oid(ObjType::KvHashed, class.parse().unwrap(), 0, number).unwrap();
    KvObj { object: cont.object(oid) }
}

fn array(cont: &Container, class: &str, number: u64) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 65_536 }
}

fn cluster(seed: u64, engines: usize, targets: usize, rebuild_after_s: u32) -> Cluster {
    let spec = ClusterSpec { seed, engines, targets };
    Cluster::start_healing(spec, StoreConfig::default(), Some(rebuild_after_s)).unwrap()
}

/// Others stand in for all targets of these engines, and for no others; nothing moves.
fn are_out(ranks: &[u32]) -> impl Fn(&PoolMap) -> bool {
    move |map| {
        let is_out = |id| map.outs.iter().any(|out| out.target == id);
        let is_meant = |rank: Rank| ranks.contains(&rank.0);
        map.next.is_none()
            && map.targets.iter().all(|target| is_out(target.id) == is_meant(target.rank))
    }
}

/// Objects with copies, and what is in them.
struct Work {
    kvs: Vec<KvObj>,
    arrays: Vec<ArrayObj>,
    known: BTreeMap<(usize, u64), Vec<u8>>,
}

impl Work {
    fn new(cont: &Container) -> Work {
        Work {
            kvs: vec![kv(cont, "RP_2GX", 1), kv(cont, "RP_3G1", 2), kv(cont, "RP_2G1", 3)],
            arrays: vec![array(cont, "RP_2GX", 4), array(cont, "RP_3GX", 5)],
            known: BTreeMap::new(),
        }
    }

    /// Of objects without copies, too, some on each target.
    fn with_single(cont: &Container) -> Work {
        let mut work = Work::new(cont);
        work.kvs.extend((10..22).map(|number| kv(cont, "S1", number)));
        work.kvs.extend([kv(cont, "SX", 22), kv(cont, "S2", 23)]);
        work.arrays.extend([array(cont, "SX", 24), array(cont, "S1", 25), array(cont, "S1", 26)]);
        work
    }

    async fn go_on(&mut self, round: u64) {
        for (at, kv) in self.kvs.iter().enumerate() {
            for step in 0..30u64 {
                let key = (round * 7 + step * 5) % 60;
                if step % 6 == 5 {
                    kv.remove(None, Cond::NONE, &key.to_le_bytes()).await.unwrap();
                    self.known.remove(&(at, key));
                    continue;
                }
                let bytes = if step % 4 == 0 { 9_000 } else { 40 };
                let value = vec![(round * 31 + step) as u8; bytes];
                kv.put(None, Cond::NONE, &key.to_le_bytes(), &value).await.unwrap();
                self.known.insert((at, key), value);
            }
        }
        for (at, array) in self.arrays.iter().enumerate() {
            let data = vec![(round * 13 + at as u64) as u8; 150_000];
            let all = [Recx { index: round * 60_000, count: data.len() as u64 }];
            array.write(&all, &[&data]).await.unwrap();
        }
    }

    fn oids(&self) -> Vec<Oid> {
        let of_kvs = self.kvs.iter().map(|kv| kv.object.oid());
        of_kvs.chain(self.arrays.iter().map(|array| array.oid)).collect()
    }

    async fn check(&self, context: &str) {
        for ((at, key), value) in &self.known {
            let found = self.kvs[*at].get(None, &key.to_le_bytes()).await.unwrap();
            assert!(found.as_ref() == Some(value), "{context}: {at} {key}");
        }
    }

    async fn compare(&self, client: &Client, cont: &Container, context: &str) {
        for oid in self.oids() {
            let differs = members::difference(client, cont, oid).await.unwrap();
            assert_eq!(differs, None, "{context}");
        }
    }
}

/// An engine dies for good: others get its copies while everybody goes on writing, so that a second one may die, and a third.
/// When they come back after all, everything goes back to its place, and nothing is left elsewhere.
#[test]
fn copies_are_made_anew_elsewhere_and_go_back() {
    for seed in seeds(6) {
        let durability = if seed % 2 == 0 { Durability::Wal } else { Durability::Memory };
        let targets = 1 + (seed % 3 / 2) as usize;
        let cluster = cluster(seed, 5, targets, 3);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont = cluster.container(&client, durability, ContLayout::Plain).await.unwrap();
            let mut work = Work::new(&cont);
            work.go_on(0).await;
            let mut away = Vec::new();
            for (round, engine) in [(1, 1), (2, 3), (3, 2)] {
                cluster.kill_engine(engine);
                away.push(engine as u32);
                let context = format!("seed {seed}, without engines {away:?}");
                work.go_on(round * 3).await;
                // Three copies need three engines, two need two: the last ones find nobody for all of theirs.
                let lacking = members::await_map(&client, are_out(&away)).await.unwrap();
                assert_eq!(lacking, None, "{context}");
                work.check(&context).await;
                if round < 3 {
                    work.compare(&client, &cont, &context).await;
                }
                work.go_on(round * 3 + 1).await;
            }
            // Six copies might all be on six targets of three engines: who left last comes first then.
            let order = if targets == 1 { [3, 1, 2] } else { [2, 3, 1] };
            for engine in order {
                cluster.start_engine(engine).await.unwrap();
                away.retain(|one| *one != engine as u32);
                work.go_on(20 + engine as u64).await;
                let context = format!("seed {seed}, without engines {away:?} again");
                let lacking = members::await_map(&client, are_out(&away)).await.unwrap();
                assert_eq!(lacking, None, "{context}");
                work.check(&context).await;
            }
            let context = format!("seed {seed}, at the end");
            let lacking = members::await_whole(&client).await.unwrap();
            assert_eq!(lacking, None, "{context}");
            work.check(&context).await;
            work.compare(&client, &cont, &context).await;
            // What is dropped is dropped in the background.
            client.env().sleep(Duration::from_secs(5)).await;
            for oid in work.oids() {
                assert_eq!(
                    members::leftover(&client, &cont, oid).await.unwrap(),
                    None,
                    "{context}"
                );
            }
        });
    }
}

/// What targets of an engine are to do in the pool.
async fn aim(client: &Client, map: &PoolMap, rank: u32, aim: TargetAim) {
    let of = map.targets.iter().filter(|target| target.rank == Rank(rank));
    let targets = of.map(|target| target.id).collect();
    let pool = Name::Label("p".into());
    client.control(&ControlRequest::PoolAim { pool, targets, aim }).await.unwrap();
}

/// Who waits for moves right after they were asked for waits for their end: between a wish and its plan, and between a target's return and that of what
/// stood in for it, nothing moved, and that was taken for the end.
#[test]
fn what_was_asked_for_is_waited_for_before_it_is_planned() {
    use TargetAim::{Drain, Exclude, Serve};
    let cluster = cluster(1, 4, 1, 60);
    cluster.block_on(async {
        let client = cluster.client("c");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let mut work = Work::new(&cont);
        work.go_on(0).await;
        let map = members::newest_map(&client).await.unwrap();
        for (wish, out) in [(Exclude, &[1][..]), (Serve, &[]), (Drain, &[1]), (Serve, &[])] {
            aim(&client, &map, 1, wish).await;
            let query = ControlRequest::PoolQuery(Name::Label("p".into()));
            let found = loop {
                match client.control(&query).await.unwrap() {
                    ControlReply::Pool(pool) if RebuildState::of(&pool) != RebuildState::Busy => {
                        break pool;
                    }
                    _ => client.env().sleep(Duration::from_millis(1)).await,
                }
            };
            assert!(are_out(out)(&found.map), "{wish:?}: {:?}", found.map);
        }
        work.check("at the end").await;
    });
}

/// An engine is emptied while everybody goes on writing, what has no copies moves, too, and nothing needs it any more: it may be
/// taken away for good. Or it serves again, and gets everything back.
#[test]
fn a_drained_engine_holds_nothing_that_others_lack() {
    for seed in seeds(6) {
        let durability = if seed % 2 == 0 { Durability::Wal } else { Durability::Memory };
        let targets = 1 + (seed % 3 / 2) as usize;
        // Three copies need three of them while two are away.
        let cluster = cluster(seed, 5, targets, 3);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont = cluster.container(&client, durability, ContLayout::Plain).await.unwrap();
            let mut work = Work::with_single(&cont);
            work.go_on(0).await;
            let map = members::newest_map(&client).await.unwrap();
            for (round, away) in [(1, vec![1]), (2, vec![1, 2])] {
                aim(&client, &map, round as u32, TargetAim::Drain).await;
                let context = format!("seed {seed}, without engines {away:?}");
                // A drain that has nobody to talk to is no test.
                while !are_out(&away)(&members::newest_map(&client).await.unwrap()) {
                    work.go_on(round).await;
                    client.env().sleep(Duration::from_millis(100)).await;
                }
                work.go_on(round + 5).await;
                work.check(&context).await;
                work.compare(&client, &cont, &context).await;
            }
            // Nothing is asked of the first one any more, not even for a moment.
            cluster.kill_engine(1);
            work.go_on(8).await;
            work.check("without the first").await;
            cluster.start_engine(1).await.unwrap();
            for (round, away) in [(2, vec![1]), (1, vec![])] {
                aim(&client, &map, round as u32, TargetAim::Serve).await;
                let context = format!("seed {seed}, with engine {round} again");
                let lacking = members::await_map(&client, are_out(&away)).await.unwrap();
                assert_eq!(lacking, None, "{context}");
                work.check(&context).await;
                work.go_on(10 + round).await;
            }
            let context = format!("seed {seed}, at the end");
            assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
            work.check(&context).await;
            work.compare(&client, &cont, &context).await;
            client.env().sleep(Duration::from_secs(5)).await;
            for oid in work.oids() {
                let leftover = members::leftover(&client, &cont, oid).await.unwrap();
                assert_eq!(leftover, None, "{context}");
            }
        });
    }
}

/// The only engine of a rack is emptied, of which each group has a member: others get its places, though they share a rack with another
/// member then. It used to keep them all, and the drain was said to be over.
#[test]
fn the_only_engine_of_a_rack_is_emptied() {
    for seed in seeds(3) {
        let spec = ClusterSpec { seed, engines: 5, targets: 1 };
        let in_racks = |at| vec![format!("rack{}", at / 2), Cluster::engine_name(at)];
        let cluster =
            Cluster::start_in_domains(spec, StoreConfig::default(), Some(3), in_racks).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let mut work = Work::with_single(&cont);
            work.go_on(0).await;
            let map = members::newest_map(&client).await.unwrap();
            let on_it = |map: &PoolMap| {
                let is_on = |target: &types::TargetId| map.target(*target).unwrap().rank == Rank(4);
                let of = |oid| placement::layout(oid, map).unwrap();
                work.oids().into_iter().filter(|oid| of(*oid).targets().iter().any(is_on)).count()
            };
            assert!(on_it(&map) >= 3, "seed {seed}: each group of three copies has one there");
            aim(&client, &map, 4, TargetAim::Drain).await;
            let lacking = members::await_map(&client, are_out(&[4])).await.unwrap();
            assert_eq!(lacking, None, "seed {seed}");
            let after = members::newest_map(&client).await.unwrap();
            assert_eq!(on_it(&after), 0, "seed {seed}");
            // It may be taken away for good.
            cluster.kill_engine(4);
            work.go_on(1).await;
            work.check(&format!("seed {seed}, it is gone")).await;
            work.compare(&client, &cont, &format!("seed {seed}, it is gone")).await;
            cluster.start_engine(4).await.unwrap();
            aim(&client, &map, 4, TargetAim::Serve).await;
            assert_eq!(members::await_whole(&client).await.unwrap(), None, "seed {seed}");
            work.go_on(2).await;
            work.check(&format!("seed {seed}, it is back")).await;
            work.compare(&client, &cont, &format!("seed {seed}, it is back")).await;
        });
    }
}

/// Engines die at any moment of a drain, the drained one, too: what it had is served again when it is back, and given away then.
#[test]
fn engines_come_and_go_while_one_is_drained() {
    for seed in seeds(5) {
        let cluster = cluster(seed, 4, 1, 2);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let mut work = Work::with_single(&cont);
            work.go_on(0).await;
            let env = cluster.world().node("trouble");
            let map = members::newest_map(&client).await.unwrap();
            for round in 0..4u64 {
                let wanted = if round % 2 == 0 { TargetAim::Drain } else { TargetAim::Serve };
                aim(&client, &map, 1, wanted).await;
                env.sleep(Duration::from_millis(env.random_u64() % 3_000)).await;
                let lost = 1 + (env.random_u64() % 3) as usize;
                cluster.kill_engine(lost);
                env.sleep(Duration::from_millis(env.random_u64() % 9_000)).await;
                cluster.start_engine(lost).await.unwrap();
                let context = format!("seed {seed}, round {round}, engine {lost} was lost");
                work.check(&context).await;
                work.go_on(round).await;
                let away: &[u32] = if wanted == TargetAim::Drain { &[1] } else { &[] };
                let lacking = members::await_map(&client, are_out(away)).await.unwrap();
                assert_eq!(lacking, None, "{context}");
                work.check(&context).await;
                work.compare(&client, &cont, &context).await;
            }
            client.env().sleep(Duration::from_secs(5)).await;
            for oid in work.oids() {
                let leftover = members::leftover(&client, &cont, oid).await.unwrap();
                assert_eq!(leftover, None, "seed {seed}");
            }
        });
    }
}

/// Two engines die at the same moment. What had both its copies there is not given to others, who would have nothing: it
/// is there again when one of them is.
#[test]
fn what_was_lost_as_a_whole_waits_for_who_has_it() {
    for seed in seeds(3) {
        let cluster = cluster(seed, 5, 1, 3);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let kv = kv(&cont, "RP_2GX", 1);
            let many: Vec<KvObj> =
                (10..200).map(|number| self::kv(&cont, "RP_2G1", number)).collect();
            for one in many.iter().chain([&kv]) {
                one.put(None, Cond::NONE, b"key", b"value").await.unwrap();
            }
            cluster.kill_engine(1);
            cluster.kill_engine(2);
            let lacking = members::await_map(&client, are_out(&[1, 2])).await.unwrap();
            assert_eq!(lacking, None, "seed {seed}");
            let map = members::newest_map(&client).await.unwrap();
            let is_lost = |one: &KvObj| {
                let layout = placement::layout(one.object.oid(), &map).unwrap();
                layout.members(0).iter().all(|target| matches!(target.0, 1 | 2))
            };
            assert!(many.iter().any(&is_lost), "seed {seed}: nothing was only there: {map:?}");
            for one in many.iter().filter(|one| !is_lost(one)) {
                let found = one.get(None, b"key").await.unwrap();
                assert_eq!(found.as_deref(), Some(&b"value"[..]), "seed {seed}");
            }
            cluster.start_engine(2).await.unwrap();
            let lacking = members::await_map(&client, are_out(&[1])).await.unwrap();
            assert_eq!(lacking, None, "seed {seed}");
            for one in &many {
                let found = one.get(None, b"key").await.unwrap();
                assert_eq!(found.as_deref(), Some(&b"value"[..]), "seed {seed}");
            }
        });
    }
}

/// Engines die and come back at any moment, before, while and after others stand in for them; what was acknowledged stays.
#[test]
fn engines_come_and_go_while_copies_move() {
    for seed in seeds(3) {
        let cluster = cluster(seed, 5, 1, 2);
        cluster.block_on(async {
            let setup = cluster.client("setup");
            cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            let stop = Cell::new(false);
            let known: RefCell<BTreeMap<Vec<u8>, Vec<u8>>> = RefCell::default();
            let class = |number: u64| ["RP_3GX", "RP_3G1", "RP_4G1"][number as usize];
            let writer = async |number: u64| {
                let client = cluster.client(&format!("w{number}"));
                let cont = open(&client).await.unwrap();
                let kv = kv(&cont, class(number), number);
                let mut round = 0u64;
                while !stop.get() {
                    let key = format!("w{number}-{}", round % 90).into_bytes();
                    let mut value = format!("{number}.{round}.").into_bytes();
                    value.resize(if round.is_multiple_of(5) { 10_000 } else { 50 }, b'v');
                    kv.put(None, Cond::NONE, &key, &value).await.unwrap();
                    known.borrow_mut().insert(key, value);
                    round += 1;
                    client.env().sleep(Duration::from_millis(20)).await;
                }
            };
            let trouble = async {
                let env = cluster.world().node("trouble");
                for _ in 0..6 {
                    // Two at most are away; the one with the catalog comes back soon.
                    let first = 1 + (env.random_u64() % 4) as usize;
                    cluster.kill_engine(first);
                    env.sleep(Duration::from_millis(env.random_u64() % 12_000)).await;
                    let second = (env.random_u64() % 5) as usize;
                    if second != first {
                        cluster.kill_engine(second);
                        let longest = if second == 0 { 2_000 } else { 12_000 };
                        env.sleep(Duration::from_millis(env.random_u64() % longest)).await;
                        cluster.start_engine(second).await.unwrap();
                    }
                    env.sleep(Duration::from_millis(env.random_u64() % 4_000)).await;
                    cluster.start_engine(first).await.unwrap();
                    env.sleep(Duration::from_millis(env.random_u64() % 10_000)).await;
                }
                stop.set(true);
            };
            let writers = futures_util::future::join3(writer(0), writer(1), writer(2));
            futures_util::future::join(writers, trouble).await;
            let reader = cluster.client("reader");
            let cont = open(&reader).await.unwrap();
            assert_eq!(members::await_whole(&reader).await.unwrap(), None, "seed {seed}");
            for (key, value) in &known.take() {
                let number = u64::from(key[1] - b'0');
                let found = kv(&cont, class(number), number).get(None, key).await.unwrap();
                let key = key.escape_ascii();
                assert!(found.as_deref() == Some(&value[..]), "seed {seed}: {key}");
            }
            reader.env().sleep(Duration::from_secs(5)).await;
            for number in 0..3 {
                let oid = kv(&cont, class(number), number).object.oid();
                let differs = members::difference(&reader, &cont, oid).await.unwrap();
                assert_eq!(differs, None, "seed {seed}");
                assert_eq!(
                    members::leftover(&reader, &cont, oid).await.unwrap(),
                    None,
                    "seed {seed}"
                );
            }
        });
    }
}

/// Who has connected before a pool was extended is told an object that was made afterwards: by another process, not by the pool.
/// Ids that programs make again of their own numbers stay what they are.
#[test]
fn objects_made_after_an_extension_are_found_by_who_was_there_before() {
    for seed in seeds(3) {
        let cluster = cluster(seed, 3, 1, 60);
        cluster.block_on(async {
            let client = cluster.client("first");
            let system = client.system_query().await.unwrap();
            let first = system.engines.iter().filter(|(info, ..)| info.rank.0 < 2);
            let targets = first.flat_map(|(_, targets, _)| targets.clone()).collect();
            let (label, durability) = ("p".to_string(), Durability::Wal);
            let create = ControlRequest::PoolCreate {
                label,
                bytes: 1 << 30,
                scm_percent: 20,
                durability,
                targets,
                placement: PlacementRule::Equal,
            };
            client.pool_create(create).await.unwrap();
            let label = Name::Label("p".into());
            let pool = client.pool_open(&label, OpenMode::ReadWrite).await.unwrap();
            let props = ContProps::default();
            pool.cont_create("c", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
            let third = open(&cluster.client("third")).await.unwrap();
            let before = open(&client).await.unwrap();
            kv(&before, "SX", 1).put(None, Cond::NONE, b"key", b"old").await.unwrap();
            let extend =
                ControlRequest::PoolExtend { pool: Name::Label("p".into()), targets: Vec::new() };
            client.control(&extend).await.unwrap();
            let after = open(&cluster.client("second")).await.unwrap();
            for number in 10..20 {
                let class = "SX".parse().unwrap();
                let oid = after.new_oid(ObjType::KvHashed, class, number).unwrap();
                let made = KvObj { object: after.object(oid) };
                made.put(None, Cond::NONE, b"key", b"value").await.unwrap();
                assert_eq!(oid.placement_epoch(), 1, "seed {seed}");
                let found = KvObj { object: before.object(oid) }.get(None, b"key").await.unwrap();
                assert_eq!(found.as_deref(), Some(&b"value"[..]), "seed {seed}");
            }
            let oid = after.new_oid(ObjType::ArrayByte, "SX".parse().unwrap(), 30).unwrap();
            let array = ArrayObj { cont: after.clone(), oid, ..array(&after, "SX", 30) };
            array.write(&[Recx { index: 0, count: 5 }], &[b"array"]).await.unwrap();
            let told = ArrayObj { cont: third, ..array };
            let mut memory = [0; 5];
            told.read(&[Recx { index: 0, count: 5 }], &mut [&mut memory]).await.unwrap();
            assert_eq!(&memory, b"array", "seed {seed}");
            let learned = before.new_oid(ObjType::KvHashed, "SX".parse().unwrap(), 1).unwrap();
            assert_eq!(learned.placement_epoch(), 1, "seed {seed}: it has not learned");
            for cont in [&before, &after] {
                let old = kv(cont, "SX", 1).get(None, b"key").await.unwrap();
                assert_eq!(old.as_deref(), Some(&b"old"[..]), "seed {seed}");
            }
        });
    }
}

/// A pool on the first engines of a system, with a container.
async fn on_first(client: &Client, engines: u32, durability: Durability) -> Container {
    let system = client.system_query().await.unwrap();
    let first = system.engines.iter().filter(|(info, ..)| info.rank.0 < engines);
    let targets = first.flat_map(|(_, targets, _)| targets.clone()).collect();
    let (bytes, scm_percent, placement) = (1 << 30, 20, PlacementRule::Equal);
    let label = "p".to_string();
    let create =
        ControlRequest::PoolCreate { label, bytes, scm_percent, durability, targets, placement };
    client.pool_create(create).await.unwrap();
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_create("c", Uuid::nil(), ContProps::default(), BTreeMap::new()).await.unwrap();
    open(client).await.unwrap()
}

async fn extend_and_balance(client: &Client) {
    let pool = || Name::Label("p".into());
    client.control(&ControlRequest::PoolExtend { pool: pool(), targets: vec![] }).await.unwrap();
    client.control(&ControlRequest::PoolBalance { pool: pool() }).await.unwrap();
}

/// How many members of groups are on engines from a rank on, and how many there are.
fn share_of(work: &Work, map: &PoolMap, rank: u32) -> (usize, usize) {
    let layouts = work.oids().into_iter().map(|oid| placement::layout(oid, map).unwrap());
    let members: Vec<_> = layouts.flat_map(|layout| layout.targets().to_vec()).collect();
    let is_new = |id: &&types::TargetId| map.target(**id).unwrap().rank.0 >= rank;
    (members.iter().filter(is_new).count(), members.len())
}

/// Targets that were added take over their share of what is there while everybody goes on writing: with copies, codes, or neither.
/// Who gave it has nothing left of it; the same goes for more of them later, and for those that are drained or lost then.
#[test]
fn added_targets_get_their_share() {
    for seed in seeds(6) {
        let durability = if seed % 2 == 0 { Durability::Wal } else { Durability::Memory };
        let targets = 1 + (seed % 3 / 2) as usize;
        let cluster = cluster(seed, 5, targets, 3);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont = on_first(&client, 3, durability).await;
            let mut work = Work::with_single(&cont);
            work.kvs.extend((30..50).map(|number| kv(&cont, "RP_2G1", number)));
            work.arrays.push(array(&cont, "EC_2P1GX", 50));
            work.go_on(0).await;
            extend_and_balance(&client).await;
            let mut round = 1;
            while members::newest_map(&client).await.unwrap().balanced == 0 {
                work.go_on(round).await;
                work.check(&format!("seed {seed}, while it moves")).await;
                client.env().sleep(Duration::from_millis(100)).await;
                round += 1;
                assert!(round < 500, "seed {seed}: it does not end");
            }
            let context = format!("seed {seed}, shared out");
            work.go_on(round).await;
            work.check(&context).await;
            work.compare(&client, &cont, &context).await;
            let map = members::newest_map(&client).await.unwrap();
            let (new, all) = share_of(&work, &map, 3);
            assert!(new * 5 > all && new * 5 < all * 3, "{context}: {new} of {all}");
            client.env().sleep(Duration::from_secs(5)).await;
            for oid in work.oids() {
                let leftover = members::leftover(&client, &cont, oid).await.unwrap();
                assert_eq!(leftover, None, "{context}");
            }
            // Drained, and back.
            for (wanted, away) in [(TargetAim::Drain, &[4][..]), (TargetAim::Serve, &[])] {
                aim(&client, &map, 4, wanted).await;
                let lacking = members::await_map(&client, are_out(away)).await.unwrap();
                assert_eq!(lacking, None, "{context}, then {wanted:?}");
                round += 1;
                work.go_on(round).await;
                work.check(&format!("{context}, then {wanted:?}")).await;
                work.compare(&client, &cont, &context).await;
            }
            // A client that has seen nothing of all this finds everything.
            let late = open(&cluster.client("late")).await.unwrap();
            for (at, kv) in work.kvs.iter().enumerate() {
                let late = KvObj { object: late.object(kv.object.oid()) };
                for ((_, key), value) in work.known.range((at, 0)..(at + 1, 0)) {
                    let found = late.get(None, &key.to_le_bytes()).await.unwrap();
                    assert!(found.as_ref() == Some(value), "{context}, late: {at} {key}");
                }
            }
        });
    }
}

/// Engines die at any moment of it, old and new ones, and come back.
#[test]
fn engines_come_and_go_while_shares_move() {
    for seed in seeds(5) {
        let cluster = cluster(seed, 5, 1, 4);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont = on_first(&client, 3, Durability::Wal).await;
            let mut work = Work::with_single(&cont);
            work.arrays.push(array(&cont, "EC_2P1GX", 50));
            work.go_on(0).await;
            let env = cluster.world().node("trouble");
            extend_and_balance(&client).await;
            for round in 1..4u64 {
                env.sleep(Duration::from_millis(env.random_u64() % 2_500)).await;
                let lost = 1 + (env.random_u64() % 4) as usize;
                cluster.kill_engine(lost);
                env.sleep(Duration::from_millis(env.random_u64() % 9_000)).await;
                cluster.start_engine(lost).await.unwrap();
                let context = format!("seed {seed}, round {round}, engine {lost} was lost");
                work.check(&context).await;
                work.go_on(round).await;
                work.check(&context).await;
            }
            let is_shared = |map: &PoolMap| map.balanced == 1 && map.next.is_none();
            let context = format!("seed {seed}, at the end");
            let lacking = members::await_map(&client, is_shared).await.unwrap();
            assert_eq!(lacking, None, "{context}");
            assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
            work.check(&context).await;
            work.compare(&client, &cont, &context).await;
            client.env().sleep(Duration::from_secs(5)).await;
            for oid in work.oids() {
                let leftover = members::leftover(&client, &cont, oid).await.unwrap();
                assert_eq!(leftover, None, "{context}");
            }
        });
    }
}

/// Weights follow what targets are worth, and data the weights, by themselves: rooms of engines shrink and grow beside those that write,
/// and engines die.
#[test]
fn data_follow_what_targets_are_worth() {
    // 37: who led before leads again when it is back, while another one's order is on its way, which it has, and another member has not.
    // That one was never told of it.
    for seed in seeds(3).chain([37]) {
        let cluster = cluster(seed, 4, 1, 4);
        let room = |gib: [u64; 4]| {
            for (at, gib) in gib.into_iter().enumerate() {
                let disk = cluster.world().disk(&Cluster::engine_name(at));
                disk.set_faults(DiskFaults { space_bytes: gib << 30, ..DiskFaults::default() });
            }
        };
        room([64; 4]);
        cluster.block_on(async {
            let client = cluster.client("c");
            let create = ControlRequest::PoolCreate {
                label: "p".into(),
                bytes: 1 << 30,
                scm_percent: 20,
                durability: Durability::Wal,
                targets: Vec::new(),
                placement: PlacementRule::Capacity,
            };
            client.pool_create(create).await.unwrap();
            let name = || Name::Label("p".into());
            let props = [("balance", "auto"), ("balance_interval_s", "5")];
            let props = props.map(|(name, value)| (name.to_string(), value.to_string())).into();
            let subject = Subject::Pool(name());
            client.control(&ControlRequest::SetProps { subject, props }).await.unwrap();
            let pool = client.pool_open(&name(), OpenMode::ReadWrite).await.unwrap();
            let props = ContProps::default();
            pool.cont_create("c", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
            let cont = open(&client).await.unwrap();
            let mut work = Work::with_single(&cont);
            work.kvs.extend((30..90).map(|number| kv(&cont, "S1", number)));
            work.arrays.push(array(&cont, "EC_2P1GX", 90));
            work.go_on(0).await;
            let env = cluster.world().node("trouble");
            let mut round = 1;
            for (epoch, gib) in [(1, [64, 8, 64, 64]), (2, [64, 64, 192, 16])] {
                room(gib);
                let context = format!("seed {seed}, epoch {epoch}");
                let lost = (seed % 2 == 1).then(|| (env.random_u64() % 4) as usize);
                for _ in 0..3 {
                    env.sleep(Duration::from_millis(env.random_u64() % 20_000)).await;
                    if let Some(lost) = lost {
                        cluster.kill_engine(lost);
                        env.sleep(Duration::from_millis(env.random_u64() % 9_000)).await;
                        cluster.start_engine(lost).await.unwrap();
                    }
                    work.go_on(round).await;
                    work.check(&format!("{context}, round {round}")).await;
                    round += 1;
                }
                let is_done = |map: &PoolMap| map.balanced == epoch && map.next.is_none();
                let lacking = members::await_map(&client, is_done).await.unwrap();
                assert_eq!(lacking, None, "{context}");
                assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
                work.check(&context).await;
                work.compare(&client, &cont, &context).await;
                // Of single members, which go one by one, as many are on each as it has of all room.
                let map = members::newest_map(&client).await.unwrap();
                let s1: ObjClass = "S1".parse().unwrap();
                let single = work.oids().into_iter().filter(|oid| oid.class().unwrap() == s1);
                let mut count = [0u64; 4];
                for oid in single {
                    let layout = placement::layout(oid, &map).unwrap();
                    count[map.target(layout.targets()[0]).unwrap().rank.0 as usize] += 1;
                }
                let (all, whole) = (count.iter().sum::<u64>(), gib.iter().sum::<u64>());
                for (count, gib) in count.into_iter().zip(gib) {
                    let wanted = all * gib / whole;
                    assert!(
                        count.abs_diff(wanted) * 4 < all,
                        "{context}: {count} of {all} for {gib} of {whole}"
                    );
                }
            }
            env.sleep(Duration::from_secs(5)).await;
            for oid in work.oids() {
                let leftover = members::leftover(&client, &cont, oid).await.unwrap();
                assert_eq!(leftover, None, "seed {seed}");
            }
        });
    }
}

/// While clients want something, moves take the part of the time that the pool says; with nobody there they take all of it.
#[test]
fn moves_give_way_to_clients() {
    for seed in seeds(2) {
        let time_of = |share: &str, is_busy: bool| {
            let cluster = cluster(seed, 4, 1, 60);
            cluster.block_on(async {
                let client = cluster.client("c");
                let cont = on_first(&client, 3, Durability::Wal).await;
                let mut work = Work::with_single(&cont);
                work.kvs.extend((30..230).map(|number| kv(&cont, "S1", number)));
                work.go_on(0).await;
                let subject = Subject::Pool(Name::Label("p".into()));
                let props = BTreeMap::from([("heal_share".to_string(), share.to_string())]);
                client.control(&ControlRequest::SetProps { subject, props }).await.unwrap();
                let begun = client.env().now();
                extend_and_balance(&client).await;
                let is_done = || async { members::newest_map(&client).await.unwrap().balanced > 0 };
                let mut asked = 0u64;
                while !is_done().await {
                    let kv = &work.kvs[asked as usize % work.kvs.len()];
                    match is_busy {
                        true => drop(kv.get(None, b"key").await.unwrap()),
                        false => client.env().sleep(Duration::from_millis(1)).await,
                    }
                    asked += 1;
                }
                let took = client.env().now() - begun;
                work.check(&format!("seed {seed}, share {share}")).await;
                took
            })
        };
        let (alone, all, little) = (time_of("1", false), time_of("100", true), time_of("1", true));
        assert!(little * 2 > all * 3, "seed {seed}: {little:?} with 1 %, {all:?} with all of it");
        assert!(little * 2 > alone * 3, "seed {seed}: {little:?} beside clients, {alone:?} alone");
    }
}
