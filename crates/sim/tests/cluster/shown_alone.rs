//! What one member of a group has alone after the power of all has gone and come back: whoever is shown something of it finds it again, and who is shown that it is not
//! there does not find it later, also when the leader is lost for good before anybody has compared all that it holds.

use crate::old_values::{look_at, name, object, open};
use client::{Anchor, ArrayObj, Client, Container, KvObj, ReadFrom};
use env::DiskFaults;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::rc::Rc;
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, Durability, ObjType, Oid, TargetId};
use wire::map::{PoolMap, TargetState};
use wire::obj::{Cond, Recx};

const ENGINES: usize = 5;
/// Where the members of a group are, the leader first; the catalog is elsewhere.
const GROUP: [usize; 3] = [1, 2, 3];
const KEY: &[u8] = b"key";

/// What only the leader has done.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Done {
    Made,
    Replaced,
    Removed,
}

/// How somebody hears of it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Seen {
    Fetched,
    Listed,
    /// By what becomes of a condition.
    Told,
}

struct Scene {
    cluster: Cluster,
    writer: Client,
    reader: Client,
    group: Vec<usize>,
    kv: KvObj,
}

impl Scene {
    fn begin(seed: u64, class: &str, done: Done) -> Scene {
        let cluster = Cluster::start(ClusterSpec { seed, engines: ENGINES, targets: 1 }).unwrap();
        let (writer, reader) = (cluster.client("w"), cluster.client("r"));
        let width = if class.starts_with("RP_2") { 2 } else { 3 };
        let group = GROUP[..width].to_vec();
        let kv = cluster.block_on(async {
            cluster.container(&writer, Durability::Wal, ContLayout::Plain).await.unwrap();
            let kv = object(&open(&writer).await, class, |members| members == group);
            kv.put(None, Cond::NONE, b"other", b"old").await.unwrap();
            if done != Done::Made {
                kv.put(None, Cond::NONE, KEY, b"old").await.unwrap();
            }
            kv
        });
        Scene { cluster, writer, reader, group, kv }
    }

    fn net(&self) -> Rc<SimNet> {
        SimNet::of(self.cluster.world())
    }

    /// Nobody asks again for what was changed.
    fn heal_all_but_writer(&self) {
        self.net().heal_all();
        (0..ENGINES).for_each(|engine| self.net().cut("w", &name(engine)));
    }

    /// The power of all members goes, and comes back. Those that are cut off from another engine cannot compare all, and stay behind.
    async fn power_goes(&self, stay_behind: &[usize]) {
        self.group.iter().for_each(|engine| self.cluster.kill_engine(*engine));
        self.cluster.world().disk(&name(self.group[0])).set_faults(DiskFaults::default());
        self.heal_all_but_writer();
        for engine in stay_behind {
            self.net().cut(&name(*engine), &name(ENGINES - 1));
        }
        for engine in &self.group {
            self.cluster.start_engine(*engine).await.unwrap();
        }
    }

    /// Engines are lost for good.
    fn lose(&self, engines: &[usize]) {
        engines.iter().for_each(|engine| self.cluster.kill_engine(*engine));
        self.heal_all_but_writer();
    }

    /// The leader alone does something, and the power of all goes.
    async fn do_alone(&self, done: Done, stay_behind: &[usize]) {
        for follower in &self.group[1..] {
            self.net().cut_one_way(&name(self.group[0]), &name(*follower));
        }
        let alone = async {
            match done {
                Done::Made | Done::Replaced => self.kv.put(None, Cond::NONE, KEY, b"new").await,
                Done::Removed => self.kv.remove(None, Cond::NONE, KEY).await,
            }
        };
        let answered = self.writer.env().timeout(Duration::from_millis(100), alone).await;
        assert!(answered.is_none(), "all members had it");
        self.power_goes(stay_behind).await;
    }
}

/// An array whose members are on these engines.
fn array_id(cont: &Container, class: &str, group: &[usize]) -> Oid {
    let class = class.parse().unwrap();
    let oid = |number| cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap();
    let is_meant = |oid: &Oid| {
        let layout = cont.layout(*oid).unwrap();
        layout.members(0).iter().map(|member| member.0 as usize).eq(group.iter().copied())
    };
    (0..).map(oid).find(is_meant).unwrap()
}

/// What somebody hears of the key.
async fn hear(kv: &KvObj, done: Done, seen: Seen) -> String {
    match (seen, done) {
        (Seen::Fetched, _) => format!("{:?}", kv.get(None, KEY).await.unwrap()),
        (Seen::Listed, _) => {
            let keys = kv.list(&mut Anchor::start(), 10).await.unwrap();
            format!("{:?}", keys.iter().any(|key| **key == *KEY))
        }
        (Seen::Told, Done::Removed) => told(kv, Cond::DKEY_UPDATE).await,
        (Seen::Told, Done::Made | Done::Replaced) => told(kv, Cond::DKEY_INSERT).await,
    }
}

async fn told(kv: &KvObj, cond: Cond) -> String {
    format!("{:?}", kv.put(None, cond, KEY, b"told").await.map_err(|error| error.code))
}

fn run(seed: u64, class: &str, done: Done, seen: Seen) {
    let scene = Scene::begin(seed, class, done);
    scene.cluster.block_on(async {
        scene.do_alone(done, &scene.group[1..]).await;
        let kv = KvObj { object: open(&scene.reader).await.object(scene.kv.object.oid()) };
        let first = hear(&kv, done, seen).await;
        let context = format!("seed {seed}, {class}, {done:?}, {seen:?}");
        let expected = match (seen, done) {
            (Seen::Fetched, Done::Removed) => "None".to_string(),
            (Seen::Fetched, Done::Made | Done::Replaced) => format!("{:?}", Some(b"new".to_vec())),
            (Seen::Listed, _) => format!("{:?}", done != Done::Removed),
            (Seen::Told, Done::Removed) => format!("{:?}", Err::<(), _>(Code::NonExist)),
            (Seen::Told, Done::Made | Done::Replaced) => format!("{:?}", Err::<(), _>(Code::Exist)),
        };
        assert_eq!(first, expected, "{context}: what the leader has is not lost");
        scene.lose(&scene.group[..1]);
        assert_eq!(hear(&kv, done, seen).await, first, "{context}: it was taken back");
    });
}

/// Power goes while a leader has done something that the others have not got. It comes back, and leads; somebody was shown what it had done, or told by what became of a condition, and then it was
/// lost for good: the next leader had the old.
#[test]
fn what_a_leader_shows_after_all_were_killed_is_with_others() {
    for seed in seeds(1) {
        for done in [Done::Made, Done::Replaced, Done::Removed] {
            for seen in [Seen::Fetched, Seen::Listed, Seen::Told] {
                run(seed, "RP_2G1", done, seen);
            }
        }
        run(seed, "RP_3G1", Done::Replaced, Seen::Fetched);
    }
}

/// One of three members has compared itself with such a leader, and the third not. A client that reads from members was shown by the second what the third lacks: when both were
/// lost for good it was gone.
#[test]
fn what_a_member_shows_after_all_were_killed_is_with_others() {
    for seed in seeds(2) {
        let scene = Scene::begin(seed, "RP_3G1", Done::Replaced);
        let near = scene.cluster.client_beside("near", GROUP[1], |options| {
            options.timeout = Duration::from_millis(300);
            options.read_from = ReadFrom::Members;
        });
        scene.cluster.block_on(async {
            let oid = scene.kv.object.oid();
            let near = KvObj { object: open(&near).await.object(oid) };
            scene.do_alone(Done::Replaced, &GROUP[2..]).await;
            let second = TargetId(GROUP[1] as u32);
            let is_whole = |map: &PoolMap| map.target(second).unwrap().state == TargetState::Up;
            assert_eq!(members::await_map(&scene.reader, is_whole).await.unwrap(), None);
            // What it was granted it has again.
            scene.reader.env().sleep(Duration::from_secs(5)).await;
            for other in (0..ENGINES).filter(|engine| *engine != GROUP[1]) {
                scene.net().cut("near", &name(other));
            }
            let shown = look_at(&near, KEY, seed).await;
            scene.lose(&GROUP[..2]);
            let kv = KvObj { object: open(&scene.reader).await.object(oid) };
            let found = kv.get(None, KEY).await.unwrap();
            assert!(shown.is_none() || shown == found, "seed {seed}: {shown:?}, then {found:?}");
        });
    }
}

/// Power goes while a follower has written down what its leader, whose device is slow, has not. The leader leads again, and part of it was written anew; it was lost for good, and what the
/// follower had alone came up beneath.
#[test]
fn what_a_follower_has_alone_does_not_come_up_beneath_what_is_written_later() {
    for seed in seeds(2) {
        let scene = Scene::begin(seed, "RP_2G1", Done::Made);
        scene.cluster.block_on(async {
            let array_of = async |client: &Client| {
                let cont = open(client).await;
                let oid = array_id(&cont, "RP_2G1", &scene.group);
                ArrayObj { cont, oid, record_bytes: 1, chunk_records: 65_536 }
            };
            let array = array_of(&scene.writer).await;
            array.write(&[Recx { index: 0, count: 9 }], &[b"old-value"]).await.unwrap();
            let takes = Duration::from_millis(20);
            let slow =
                DiskFaults { latency_min: takes, latency_max: takes, ..DiskFaults::default() };
            scene.cluster.world().disk(&name(GROUP[0])).set_faults(slow);
            let alone = array.write(&[Recx { index: 0, count: 9 }], &[b"nobody-is"]);
            let within = Duration::from_millis(10);
            assert!(scene.writer.env().timeout(within, alone).await.is_none());
            scene.power_goes(&GROUP[1..2]).await;
            let array = array_of(&scene.reader).await;
            array.write(&[Recx { index: 3, count: 1 }], &[b"+"]).await.unwrap();
            let read = async || {
                let mut bytes = [0; 9];
                array.read(&[Recx { index: 0, count: 9 }], &mut [&mut bytes[..]]).await.unwrap();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            assert_eq!(read().await, "old+value", "seed {seed}: the leader had it");
            scene.lose(&GROUP[..1]);
            assert_eq!(read().await, "old+value", "seed {seed}: it came up beneath");
        });
    }
}

/// The leader of two dies when only the other one has written an update down, and is started again before anybody has called it down. The other one was whole all the time: it leads,
/// and shows that update; it was lost for good before the first had compared itself, which led again, without it.
#[test]
fn what_a_leader_left_the_other_of_two_is_with_it_when_it_is_back() {
    for seed in seeds(3) {
        let scene = Scene::begin(seed, "RP_2G1", Done::Replaced);
        scene.cluster.block_on(async {
            let first = GROUP[0];
            let takes = Duration::from_millis(20);
            let slow =
                DiskFaults { latency_min: takes, latency_max: takes, ..DiskFaults::default() };
            scene.cluster.world().disk(&name(first)).set_faults(slow);
            let alone = scene.kv.put(None, Cond::NONE, KEY, b"new");
            let within = Duration::from_millis(10);
            assert!(scene.writer.env().timeout(within, alone).await.is_none());
            scene.cluster.kill_engine(first);
            scene.cluster.world().disk(&name(first)).set_faults(DiskFaults::default());
            scene.heal_all_but_writer();
            // It cannot compare all, and stays behind.
            scene.net().cut(&name(first), &name(ENGINES - 1));
            scene.cluster.start_engine(first).await.unwrap();
            let kv = KvObj { object: open(&scene.reader).await.object(scene.kv.object.oid()) };
            let shown = kv.get(None, KEY).await.unwrap();
            assert_eq!(shown.as_deref(), Some(&b"new"[..]), "seed {seed}: the other one has it");
            scene.lose(&GROUP[1..2]);
            assert_eq!(kv.get(None, KEY).await.unwrap(), shown, "seed {seed}: it was taken back");
        });
    }
}
