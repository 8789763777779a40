//! Members of a group that follow answer reads: what is acknowledged, and nothing that not all of them show.

use client::{Client, Container, KvObj, ReadFrom};
use futures_util::future::{Either, join, select};
use sim::{Cluster, ClusterSpec, members, seeds};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, Durability, Epoch, ObjType, Result, TargetId};
use wire::control::{ControlRequest, Name, OpenMode};
use wire::map::{DownReason, PoolMap};
use wire::obj::{
    Batch, BatchReply, Cond, FetchIod, FetchWant, Fetched, Op, OpReply, Request, Sums, TxId,
    UpdateIod, UpdateValue,
};
use wire::order::{Order, OrderAt, Orders, OrdersDone};

/// The engine that leads the object, and the one beside the client, which has it, too; the first one holds the catalog.
const LEADS: usize = 1;
const FOLLOWS: usize = 2;
const ENGINES: usize = 4;
/// Longer than anything lasts that was granted.
const RUN_OUT: Duration = Duration::from_secs(4);
const LOOK_PAUSE: Duration = Duration::from_millis(5);

fn name(at: usize) -> String {
    Cluster::engine_name(at)
}

async fn open(client: &Client) -> Container {
    let label = |text: &str| Name::Label(text.into());
    let pool = client.pool_open(&label("p"), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&label("c"), OpenMode::ReadWrite).await.unwrap()
}

/// An object of a class that engine `LEADS` leads and `FOLLOWS` has, too, and the other engine of a third member.
fn object(cont: &Container, class: &str) -> KvObj {
    let map = cont.pool().map();
    let class = class.parse().unwrap();
    let engine = |target: TargetId| map.target(target).unwrap().rank.0 as usize;
    let oids = (0..).map(|number| cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap());
    let is_meant = |oid: &_| {
        let layout = cont.layout(*oid).unwrap();
        let members: Vec<usize> = layout.members(0).iter().map(|target| engine(*target)).collect();
        members[0] == LEADS && members[1..].contains(&FOLLOWS) && !members.contains(&0)
    };
    KvObj { object: cont.object(oids.into_iter().find(is_meant).unwrap()) }
}

async fn put(kv: &KvObj, value: &[u8]) {
    kv.put(None, Cond::NONE, b"k", value).await.unwrap();
}

/// A cluster in which an object has an old value, a client on the machine of an engine that follows, and one elsewhere.
struct Scene {
    cluster: Cluster,
    seed: u64,
    near: KvObj,
    far: KvObj,
    admin: Client,
}

impl Scene {
    fn begin(seed: u64, class: &str) -> Scene {
        Scene::begin_reading_from(seed, class, ReadFrom::Members)
    }

    fn begin_reading_from(seed: u64, class: &str, read_from: ReadFrom) -> Scene {
        let cluster = Cluster::start(ClusterSpec { seed, engines: ENGINES, targets: 1 }).unwrap();
        let (near, far, admin) = cluster.block_on(async {
            let setup = cluster.client("setup");
            cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            let near = cluster.client_beside("near", FOLLOWS, |options| {
                // It finds out soon that nobody answers.
                options.timeout = Duration::from_millis(300);
                options.read_from = read_from;
            });
            let (near, far) = (open(&near).await, open(&cluster.client("far")).await);
            let near = object(&near, class);
            let far = KvObj { object: far.object(near.object.oid()) };
            put(&far, b"old").await;
            // What was granted first may have been so by chance.
            far.object.cont().client().env().sleep(Duration::from_secs(10)).await;
            (near, far, cluster.client("admin"))
        });
        Scene { cluster, seed, near, far, admin }
    }

    fn net(&self) -> Rc<SimNet> {
        SimNet::of(self.cluster.world())
    }

    async fn sleep(&self, ms: u64) {
        self.admin.env().sleep(Duration::from_millis(ms)).await;
    }

    /// The client has the engine beside it, and nobody else.
    fn leave_near_alone(&self) {
        for other in (0..ENGINES).filter(|at| *at != FOLLOWS) {
            self.net().cut("near", &name(other));
        }
    }

    /// The engine that follows and the client beside it, from all others.
    fn split_off(&self) {
        self.leave_near_alone();
        let others = (0..ENGINES).filter(|at| *at != FOLLOWS).map(name);
        for other in others.chain(["far", "admin"].map(String::from)) {
            self.net().cut(&name(FOLLOWS), &other);
        }
    }

    /// What the client beside the engine that follows reads of a key now; `None` without an answer.
    async fn look_at(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.near.get(None, key).await {
            Ok(found) => Some(found.unwrap_or_default()),
            Err(error) => {
                let is_passing =
                    matches!(error.code, Code::TimedOut | Code::Unreach | Code::Closed);
                assert!(is_passing, "seed {}: {error}", self.seed);
                None
            }
        }
    }

    async fn look(&self) -> Option<Vec<u8>> {
        self.look_at(b"k").await
    }

    /// The others go on without the engine that follows, and change something as soon as they can.
    async fn leave_out(&self) {
        let changed = async {
            let begun = members::newest_map(&self.admin).await.unwrap().version;
            while members::newest_map(&self.admin).await.unwrap().version == begun {
                self.sleep(1).await;
            }
            put(&self.far, b"new").await;
        };
        let rank = types::Rank(FOLLOWS as u32);
        let exclude = ControlRequest::SystemExclude { rank, why: String::new() };
        let excluded = self.admin.control(&exclude);
        if let Either::Right((excluded, changed)) = select(pin!(changed), pin!(excluded)).await {
            excluded.unwrap();
            changed.await;
        }
    }

    /// Has the client read while `changed` goes on, which ends when there is a new value, and for a while after it. How often it was shown the
    /// old value before; none after it.
    async fn look_while(&self, changed: impl Future<Output = ()>) -> u32 {
        let (is_changed, until) = (Cell::new(false), Cell::new(Duration::MAX));
        let changing = async {
            changed.await;
            is_changed.set(true);
            until.set(self.admin.env().now() + RUN_OUT);
        };
        let looking = async {
            let mut old = 0;
            while self.admin.env().now() < until.get() {
                let may_be_old = !is_changed.get();
                if self.look().await.as_deref() == Some(b"old") {
                    assert!(may_be_old, "seed {}: an old value", self.seed);
                    old += 1;
                }
                self.near.object.cont().client().env().sleep(LOOK_PAUSE).await;
            }
            old
        };
        join(changing, looking).await.1
    }

    /// All are together again, and see the new value.
    async fn heal(&self) {
        self.net().heal_all();
        while self.look().await.as_deref() != Some(b"new") {
            self.sleep(50).await;
        }
    }

    /// What the engine that follows has of the key, if it says so.
    async fn ask_follower(&self, map: &PoolMap) -> Result<Option<Vec<u8>>, Code> {
        let unit = self.near.object.oid().first_unit();
        let want = FetchWant::Single { bytes_max: 100, inline_bytes_max: 100 };
        let iods = vec![FetchIod { akey: b"", want }];
        let batch = Batch {
            pool: map.pool,
            cont: self.near.object.cont().id(),
            at: Epoch::ZERO,
            checks: Vec::new(),
            ops: vec![Op::Fetch { unit, dkey: b"k", cond: Cond::NONE, iods }],
            sums: Sums::NONE,
        };
        let to = TargetId(FOLLOWS as u32);
        let request = Request::Batch(batch);
        let answer = members::ask_as_member(&self.admin, map, to, &request).await.unwrap();
        if answer.first() != Some(&0) {
            return Err(wire::stale::decode_refusal(&answer).unwrap().0.code);
        }
        let reply: BatchReply<'_> = wire::decode(&answer[1..]).unwrap();
        match &reply.ops[..] {
            [OpReply::Fetched(found)] => Ok(match found[0].value {
                Fetched::Inline(bytes) => Some(bytes.to_vec()),
                _ => None,
            }),
            other => panic!("seed {}: {other:?}", self.seed),
        }
    }

    /// An order to the engine that follows, as if by the one that leads.
    async fn order(&self, order: &Order<'_>) -> Result<OrdersDone> {
        let map = members::newest_map(&self.admin).await.unwrap();
        let order = wire::encode(order);
        let order = OrderAt { number: 1, order: serde_bytes::Bytes::new(&order), bulk_bytes: 0 };
        let orders = Orders {
            pool: map.pool,
            from: TargetId(LEADS as u32),
            map_version: map.version,
            stream: 1,
            first: 1,
            settled: 0,
            orders: vec![order],
        };
        let to = TargetId(FOLLOWS as u32);
        let answer = members::ask(&self.admin, &map, to, &Request::Orders(orders)).await.unwrap();
        wire::decode(&answer).unwrap()
    }
}

/// Who has a member at hand is served by it though nobody else answers, and sees each change as soon as it is made. By leaders it is not.
#[test]
fn a_member_answers_while_its_leader_does_not() {
    for seed in seeds(4) {
        for (class, read_from) in [
            ("RP_2G1", ReadFrom::Members),
            ("RP_3G1", ReadFrom::Members),
            ("RP_2G1", ReadFrom::Leaders),
        ] {
            let scene = Scene::begin_reading_from(seed, class, read_from);
            let is_of_members = read_from == ReadFrom::Members;
            scene.cluster.block_on(async {
                scene.leave_near_alone();
                let mut shown = 0;
                for round in 0..20_u8 {
                    put(&scene.far, &[round]).await;
                    scene.sleep(50).await;
                    // The first who looks has the leader asked how far its orders are.
                    for _ in 0..3 {
                        if let Some(found) = scene.look().await {
                            assert_eq!(found, [round], "seed {seed}, {class}");
                            shown += 1;
                        }
                    }
                }
                let least = if is_of_members { 30 } else { 0 };
                assert!((least..=2 * least).contains(&shown), "seed {seed}, {class}: {shown}");
                // The leader stands still, and is not called down for it.
                scene.net().heal_all();
                put(&scene.far, b"new").await;
                scene.heal().await;
                scene.sleep(1_000).await;
                assert_eq!(scene.look().await.as_deref(), Some(&b"new"[..]), "seed {seed}");
                scene.cluster.world().pause(&name(LEADS));
                let env = scene.near.object.cont().client().env();
                for _ in 0..10 {
                    let looked = env.timeout(Duration::from_millis(50), scene.look()).await;
                    let found = looked.flatten();
                    assert_eq!(found.is_some(), is_of_members, "seed {seed}, {class}");
                    scene.sleep(100).await;
                }
                scene.cluster.world().resume(&name(LEADS));
            });
        }
    }
}

/// It is called down because nobody hears it, or is excluded at once, with clocks that run alike or apart: its own slower, that of who granted faster.
#[test]
fn a_member_that_is_cut_off_and_left_out_shows_nothing_old() {
    for seed in seeds(3) {
        for class in ["RP_2G1", "RP_3G1"] {
            for (is_excluded, apart_ppm) in [(false, 0), (true, 0), (true, 15_000)] {
                let scene = Scene::begin(seed, class);
                let world = scene.cluster.world();
                world.set_monotonic_gain(&name(FOLLOWS), -apart_ppm);
                world.set_monotonic_gain(&name(0), apart_ppm);
                scene.cluster.block_on(async {
                    // What is held now was granted with the clocks as they are.
                    scene.sleep(3_000).await;
                    let changed = async {
                        scene.sleep(100).await;
                        scene.split_off();
                        match is_excluded {
                            true => scene.leave_out().await,
                            false => put(&scene.far, b"new").await,
                        }
                    };
                    let old = scene.look_while(changed).await;
                    assert!(
                        old > 50,
                        "seed {seed}, {class}, {is_excluded}, {apart_ppm}: {old} looks, it was granted something"
                    );
                    scene.heal().await;
                });
            }
        }
    }
}

/// What a leader has not got through to one of its members may be lost with it: another one shows it to nobody, though it has it. Other keys it shows.
#[test]
fn what_not_all_members_have_is_not_shown() {
    for seed in seeds(6) {
        let scene = Scene::begin(seed, "RP_3G1");
        scene.cluster.block_on(async {
            scene.far.put(None, Cond::NONE, b"other", b"old").await.unwrap();
            scene.sleep(500).await;
            // So that what came so far is not in doubt.
            scene.look_at(b"other").await;
            scene.sleep(500).await;
            scene.leave_near_alone();
            scene.net().cut(&name(LEADS), &name(3));
            let putting = put(&scene.far, b"new");
            let looking = async {
                scene.sleep(200).await;
                for _ in 0..4 {
                    assert_eq!(scene.look().await, None, "seed {seed}: not all members have it");
                }
                let other = scene.look_at(b"other").await;
                assert_eq!(other.as_deref(), Some(&b"old"[..]), "seed {seed}");
                scene.net().heal_all();
            };
            join(putting, looking).await;
            scene.heal().await;
        });
    }
}

/// The coordinator may have decided what a member holds a part of, and have told so, before the member hears of it.
#[test]
fn what_a_part_of_a_transaction_holds_is_not_shown() {
    for seed in seeds(3) {
        let scene = Scene::begin(seed, "RP_2G1");
        scene.cluster.block_on(async {
            scene.far.put(None, Cond::NONE, b"other", b"old").await.unwrap();
            scene.leave_near_alone();
            while scene.look_at(b"other").await.is_none() {}
            assert_eq!(scene.look().await.as_deref(), Some(&b"old"[..]), "seed {seed}");
            let cont = scene.near.object.cont();
            let unit = scene.near.object.oid().first_unit();
            let value = UpdateValue::Inline(b"new");
            let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
            let batch = Batch {
                pool: cont.pool().map().pool,
                cont: cont.id(),
                at: Epoch::ZERO,
                checks: Vec::new(),
                ops: vec![Op::Update { unit, dkey: b"k", cond: Cond::NONE, iods }],
                sums: Sums::NONE,
            };
            let tx = TxId { client: types::ClientId(77), seq: 1 };
            let prepare = Order::Prepare { tx, coordinator: unit, batch };
            scene.order(&prepare).await.unwrap();
            for _ in 0..4 {
                assert_eq!(scene.look().await, None, "seed {seed}: it may be decided");
                let other = scene.look_at(b"other").await;
                assert_eq!(other.as_deref(), Some(&b"old"[..]), "seed {seed}");
            }
        });
    }
}

/// One that was away lacks what others have changed, until it has caught up with them.
#[test]
fn a_member_that_is_behind_shows_nothing() {
    for seed in seeds(4) {
        let scene = Scene::begin(seed, "RP_2G1");
        scene.cluster.block_on(async {
            assert_eq!(scene.look().await.as_deref(), Some(&b"old"[..]), "seed {seed}");
            scene.cluster.kill_engine(FOLLOWS);
            put(&scene.far, b"new").await;
            scene.net().cut(&name(LEADS), &name(FOLLOWS));
            scene.leave_near_alone();
            scene.cluster.start_engine(FOLLOWS).await.unwrap();
            let is_behind = |map: &PoolMap| {
                let reason = map.target(TargetId(FOLLOWS as u32)).unwrap().reason;
                reason == Some(DownReason::Behind)
            };
            let mut times = 0;
            while times < 20 {
                assert_eq!(scene.look().await, None, "seed {seed}: it lacks something");
                // Clients do not even ask it.
                let map = members::newest_map(&scene.admin).await.unwrap();
                let asked = scene.ask_follower(&map).await;
                assert_ne!(asked, Ok(Some(b"old".to_vec())), "seed {seed}: it lacks something");
                times += u32::from(is_behind(&map));
            }
            scene.heal().await;
            // It gets there, and is granted something.
            loop {
                let map = members::newest_map(&scene.admin).await.unwrap();
                match scene.ask_follower(&map).await {
                    Ok(found) => {
                        break assert_eq!(found.as_deref(), Some(&b"new"[..]), "seed {seed}");
                    }
                    Err(_) => scene.sleep(50).await,
                }
            }
        });
    }
}
