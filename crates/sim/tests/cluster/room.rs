//! Pools that are 95 % full: what has no room is told, users go on, and it begins by itself when there is room.

use client::{ArrayObj, Client, Container, KvObj};
use engine::StoreConfig;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ContProps, Durability, ObjType, PlacementRule, TargetId};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode, TargetAim};
use wire::event::EventCode;
use wire::map::PoolMap;
use wire::obj::{Cond, Recx};

/// Of the pool on each target, and of that the index and log tier, percent.
const TARGET_BYTES: u64 = 60 << 20;
const SCM_PERCENT: u64 = 20;
/// Free on a target of which the data tier is 95 % full.
const FREE_BYTES: u64 = TARGET_BYTES * (100 - SCM_PERCENT) / 100 / 20;
const ARRAY_BYTES: usize = 512 << 10;

fn pool() -> Name {
    Name::Label("p".into())
}

/// What users have: objects with copies, and such as fill targets.
struct Users {
    client: Client,
    copies: Container,
    alone: Container,
    arrays: Vec<ArrayObj>,
    kvs: Vec<KvObj>,
    fillers: Vec<ArrayObj>,
    round: u8,
    context: String,
}

impl Users {
    /// In a pool on the first four engines, which is full then, but for what is on nobody but one that is to be lost.
    async fn of_full_pool(cluster: &Cluster, seed: u64, lost: Option<TargetId>) -> Users {
        let client = cluster.client("c");
        let system = client.system_query().await.unwrap();
        let first = system.engines.iter().filter(|(info, ..)| info.rank.0 < 4);
        let targets: Vec<TargetId> = first.flat_map(|(_, targets, _)| targets.clone()).collect();
        let create = ControlRequest::PoolCreate {
            label: "p".into(),
            bytes: targets.len() as u64 * TARGET_BYTES,
            scm_percent: SCM_PERCENT as u8,
            durability: Durability::Wal,
            placement: PlacementRule::Equal,
            targets: targets.clone(),
        };
        client.pool_create(create).await.unwrap();
        let pool = client.pool_open(&pool(), OpenMode::ReadWrite).await.unwrap();
        let class = "RP_2G1".parse().unwrap();
        let (oclass, dir_oclass, file_oclass) = (class, class, class);
        let with_copies =
            ContProps { rd_fac: 1, oclass, dir_oclass, file_oclass, ..ContProps::default() };
        let mut conts = Vec::new();
        for (label, props) in [("copies", with_copies), ("alone", ContProps::default())] {
            pool.cont_create(label, Uuid::nil(), props, BTreeMap::new()).await.unwrap();
            let label = Name::Label(label.into());
            conts.push(pool.cont_open(&label, OpenMode::ReadWrite).await.unwrap());
        }
        let (alone, copies) = (conts.remove(1), conts.remove(0));
        let kv = |number: u64| {
            let class = "RP_2G1".parse().unwrap();
            let oid = copies.generate_oid(ObjType::KvHashed, class, 0, 500 + number).unwrap();
            KvObj { object: copies.object(oid) }
        };
        let kvs = (0..12).map(kv).collect();
        let arrays = (0..40).map(|number| array(&copies, "RP_2G1", number)).collect();
        let (fillers, round, context) = (Vec::new(), 0, format!("seed {seed}"));
        let mut users = Users { client, copies, alone, arrays, kvs, fillers, round, context };
        users.write().await;
        for (number, array) in users.arrays.iter().enumerate() {
            put(array, number).await;
        }
        for target in targets.into_iter().filter(|target| Some(*target) != lost) {
            users.fill(target).await;
        }
        users
    }

    /// Fills a target up to 95 % with objects that are nowhere else.
    async fn fill(&mut self, target: TargetId) {
        let map = self.alone.pool().map();
        let mut numbers = 1_000 * (1 + u64::from(target.0))..;
        loop {
            let stat = self.alone.pool().query_one(target).await.unwrap();
            if stat.nvme_free_bytes <= FREE_BYTES {
                return;
            }
            let is_there = |array: &ArrayObj| {
                placement::layout(array.oid, &map).unwrap().targets()[0] == target
            };
            let mut next = numbers.by_ref().map(|number| array(&self.alone, "S1", number));
            let filler = next.find(is_there).unwrap();
            put(&filler, 0).await;
            self.fillers.push(filler);
        }
    }

    /// All small objects get another value.
    async fn write(&mut self) {
        self.round = self.round.wrapping_add(1);
        for kv in &self.kvs {
            kv.put(None, Cond::NONE, b"key", &[self.round; 1_000]).await.unwrap();
        }
    }

    /// Everybody goes on until the map is as wanted.
    async fn go_on_until(&mut self, what: &str, is_wanted: impl Fn(&PoolMap) -> bool) {
        for _ in 0..1_000 {
            if is_wanted(&members::newest_map(&self.client).await.unwrap()) {
                self.check(what).await;
                return;
            }
            self.write().await;
            self.client.env().sleep(Duration::from_millis(200)).await;
        }
        let map = members::newest_map(&self.client).await.unwrap();
        panic!("{}: {what}: {:?}, {:?}, {:?}", self.context, map.outs, map.next, map.passed);
    }

    async fn check(&self, what: &str) {
        let context = format!("{}, {what}", self.context);
        for kv in &self.kvs {
            let found = kv.get(None, b"key").await.unwrap();
            assert_eq!(found.as_deref(), Some(&[self.round; 1_000][..]), "{context}");
        }
        for (number, array) in self.arrays.iter().enumerate() {
            let mut found = vec![0; ARRAY_BYTES];
            let all = [Recx { index: 0, count: ARRAY_BYTES as u64 }];
            array.read(&all, &mut [&mut found]).await.unwrap();
            assert!(found == vec![number as u8; ARRAY_BYTES], "{context}: array {number}");
        }
    }

    async fn are_whole(&self, what: &str) {
        for array in &self.arrays {
            let differs = members::difference(&self.client, &self.copies, array.oid).await.unwrap();
            assert_eq!(differs, None, "{}, {what}", self.context);
        }
    }

    /// Users remove what fills the targets.
    async fn remove_fillers(&mut self) {
        for filler in self.fillers.drain(..) {
            self.alone.object(filler.oid).punch(Cond::NONE).await.unwrap();
        }
    }

    async fn aim(&self, target: u32, aim: TargetAim) {
        let targets = vec![TargetId(target)];
        let request = ControlRequest::PoolAim { pool: pool(), targets, aim };
        self.client.control(&request).await.unwrap();
    }

    /// What was told of room.
    async fn told(&self) -> Vec<String> {
        let map = members::newest_map(&self.client).await.unwrap();
        let mut told = Vec::new();
        for engine in &map.engines {
            let events = self.client.engine_events(engine, 0, 0).await.unwrap().events;
            let of_room =
                |event: &wire::event::Event| event.known() == Some(EventCode::RoomLacking);
            told.extend(events.into_iter().filter(of_room).map(|event| event.what));
        }
        told
    }

    /// Some of the arrays have a place that nobody has taken over.
    fn lack_copies(&self, map: &PoolMap) -> bool {
        self.arrays.iter().any(|array| {
            let layout = placement::layout(array.oid, map).unwrap();
            layout.members(0).iter().any(|member| !placement::is_live(*member, map))
        })
    }
}

fn array(cont: &Container, class: &str, number: u64) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 65_536 }
}

async fn put(array: &ArrayObj, number: usize) {
    let data = vec![number as u8; ARRAY_BYTES];
    let all = [Recx { index: 0, count: data.len() as u64 }];
    array.write(&all, &[&data]).await.unwrap();
}

/// Groups that found nobody with room went on with a copy less for as long as no administrator stopped and started the rebuild, and nobody said how much
/// room was lacking.
#[test]
fn what_a_full_pool_loses_is_made_anew_when_there_is_room() {
    for seed in seeds(1) {
        let spec = ClusterSpec { seed, engines: 4, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(3)).unwrap();
        cluster.block_on(async {
            let mut users = Users::of_full_pool(&cluster, seed, Some(TargetId(1))).await;
            users.aim(1, TargetAim::Exclude).await;
            let is_over = |map: &PoolMap| map.next.is_none() && !map.outs.is_empty();
            users.go_on_until("all are full", is_over).await;
            let map = members::newest_map(&users.client).await.unwrap();
            assert!(users.lack_copies(&map), "seed {seed}: there was room");
            assert_eq!(placement::lost_for_want_of_room(2, &map), [TargetId(1)], "seed {seed}");
            let told = users.told().await;
            assert!(
                matches!(&told[..], [one] if one.contains("targets [1]") && one.contains("are lacking")),
                "seed {seed}: {told:?}"
            );
            // For some looks nothing comes of it.
            users.client.env().sleep(Duration::from_secs(70)).await;
            let still = members::newest_map(&users.client).await.unwrap();
            assert_eq!(still.version, map.version, "seed {seed}");
            users.remove_fillers().await;
            let is_whole = |map: &PoolMap| {
                map.next.is_none() && placement::lost_for_want_of_room(2, map).is_empty()
            };
            users.go_on_until("there is room", is_whole).await;
            let map = members::newest_map(&users.client).await.unwrap();
            assert!(!users.lack_copies(&map), "seed {seed}");
            users.are_whole("there is room").await;
            users.aim(1, TargetAim::Serve).await;
            assert_eq!(members::await_whole(&users.client).await.unwrap(), None, "seed {seed}");
            users.check("at the end").await;
            users.are_whole("at the end").await;
        });
    }
}

/// What is drained serves as long as nobody has room for all of it.
#[test]
fn a_drain_in_a_full_pool_says_what_is_lacking_and_goes_on_by_itself() {
    for seed in seeds(1) {
        let spec = ClusterSpec { seed, engines: 4, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(3)).unwrap();
        cluster.block_on(async {
            let mut users = Users::of_full_pool(&cluster, seed, None).await;
            users.aim(1, TargetAim::Drain).await;
            let waits =
                |map: &PoolMap| map.next.is_some() && map.passed_for_want_of_room().count() > 0;
            users.go_on_until("it waits", waits).await;
            users.client.env().sleep(Duration::from_secs(30)).await;
            let map = members::newest_map(&users.client).await.unwrap();
            assert!(map.outs.is_empty() && map.next.is_some(), "seed {seed}: {:?}", map.outs);
            users.write().await;
            users.check("it still waits").await;
            let told = users.told().await;
            assert!(
                matches!(&told[..], [one] if one.contains("targets [1]") && one.contains("are lacking")),
                "seed {seed}: {told:?}"
            );
            users.remove_fillers().await;
            let is_over = |map: &PoolMap| map.next.is_none() && !map.outs.is_empty();
            users.go_on_until("it is drained", is_over).await;
            users.are_whole("it is drained").await;
            cluster.kill_engine(1);
            users.write().await;
            users.check("it is taken away").await;
        });
    }
}

/// A further target takes its share of a full pool beside those who write, and there is room again.
#[test]
fn a_full_pool_that_is_extended_has_room() {
    for seed in seeds(1) {
        let spec = ClusterSpec { seed, engines: 5, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(3)).unwrap();
        cluster.block_on(async {
            let mut users = Users::of_full_pool(&cluster, seed, None).await;
            let extend = ControlRequest::PoolExtend { pool: pool(), targets: Vec::new() };
            users.client.control(&extend).await.unwrap();
            users.client.control(&ControlRequest::PoolBalance { pool: pool() }).await.unwrap();
            let is_over = |map: &PoolMap| map.balanced == 1 && map.next.is_none();
            users.go_on_until("it has its share", is_over).await;
            users.are_whole("it has its share").await;
            assert_eq!(users.told().await, Vec::<String>::new(), "seed {seed}");
            users.client.env().sleep(Duration::from_secs(10)).await;
            let mut free = Vec::new();
            for target in 0..5 {
                let stat = users.alone.pool().query_one(TargetId(target)).await.unwrap();
                free.push(stat.nvme_free_bytes);
            }
            let whole = TARGET_BYTES * (100 - SCM_PERCENT) / 100;
            assert!(free[4] < whole * 9 / 10, "seed {seed}: nothing has come: {free:?}");
            assert!(free[..4].iter().sum::<u64>() > 4 * FREE_BYTES * 2, "seed {seed}: {free:?}");
            for filler in &users.fillers {
                let mut found = vec![1; ARRAY_BYTES];
                let all = [Recx { index: 0, count: ARRAY_BYTES as u64 }];
                filler.read(&all, &mut [&mut found]).await.unwrap();
                assert!(found == vec![0; ARRAY_BYTES], "seed {seed}");
            }
        });
    }
}
