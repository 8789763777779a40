//! A leader that was replaced and does not know it shows nobody what others have changed since.
//!
//! It used to: writes were fenced by those who follow, reads by nobody. A client that was cut off together with its leader read what it had before, for as long
//! as the cut lasted.

use crate::old_values::{RUN_OUT, look_at, look_while, name, object, open, put};
use client::{Client, Container, KvObj};
use futures_util::future::{Either, join, select};
use sim::{Cluster, ClusterSpec, members, seeds};
use std::pin::pin;
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, Durability, Result, TargetId};
use wire::control::{ControlRequest, MemberState, Name, TargetAim};
use wire::map::{PoolMap, TargetState};
use wire::obj::{AdminOp, AdminReply, Request};
use wire::order::{Order, OrderAt, Orders, OrdersDone};

/// The engine that leads the object, and the other one that has it; the first one holds the catalog.
const LEADS: usize = 1;
const FOLLOWS: usize = 2;
const ENGINES: usize = 4;
fn label(text: &str) -> Name {
    Name::Label(text.into())
}

/// True of objects that engine `LEADS` leads and `FOLLOWS` has, too.
fn is_meant(members: &[usize]) -> bool {
    members[0] == LEADS && members[1..].contains(&FOLLOWS) && !members.contains(&0)
}

/// The same object for another client.
fn of_other(cont: &Container, kv: &KvObj) -> KvObj {
    KvObj { object: cont.object(kv.object.oid()) }
}

/// A cluster in which an object has an old value, and three clients: one that stays with the old leader, one that does not, and one for control.
struct Scene {
    cluster: Cluster,
    seed: u64,
    near: KvObj,
    far: KvObj,
    admin: Client,
}

impl Scene {
    fn begin(seed: u64, class: &str) -> Scene {
        let cluster = Cluster::start(ClusterSpec { seed, engines: ENGINES, targets: 1 }).unwrap();
        let (near, far, admin) = cluster.block_on(async {
            let setup = cluster.client("setup");
            cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            // It finds out soon that nobody answers.
            let near = open(&cluster.client_within("near", Duration::from_millis(300))).await;
            let far = open(&cluster.client("far")).await;
            let near = object(&near, class, is_meant);
            let far = of_other(&far, &near);
            put(&near, b"old").await;
            // What was granted first may have been so by chance.
            far.object.cont().client().env().sleep(Duration::from_secs(10)).await;
            (near, far, cluster.client("admin"))
        });
        Scene { cluster, seed, near, far, admin }
    }

    fn net(&self) -> std::rc::Rc<SimNet> {
        SimNet::of(self.cluster.world())
    }

    async fn sleep(&self, ms: u64) {
        self.admin.env().sleep(Duration::from_millis(ms)).await;
    }

    /// The leader and the client near it, from all others.
    fn split_off(&self) {
        let others = (0..ENGINES).filter(|at| *at != LEADS).map(name);
        let others: Vec<String> = others.chain(["far", "admin"].map(String::from)).collect();
        for other in &others {
            self.net().cut(&name(LEADS), other);
            self.net().cut("near", other);
        }
    }

    async fn exclude(&self) {
        let why = String::new();
        let rank = types::Rank(LEADS as u32);
        self.admin.control(&ControlRequest::SystemExclude { rank, why }).await.unwrap();
    }

    /// The others go on without the old leader, and change something as soon as they can: while whoever gives no answer is still told of it.
    async fn replace(&self) {
        let changed = async {
            let begun = members::newest_map(&self.admin).await.unwrap().version;
            while members::newest_map(&self.admin).await.unwrap().version == begun {
                self.admin.env().sleep(Duration::from_millis(1)).await;
            }
            let cont = open(&self.cluster.client("newest")).await;
            put(&of_other(&cont, &self.far), b"new").await;
        };
        if let Either::Right(((), changed)) = select(pin!(changed), pin!(self.exclude())).await {
            changed.await;
        }
    }

    /// What the client at the old leader reads now; `None` without an answer.
    async fn look(&self) -> Option<Vec<u8>> {
        look_at(&self.near, b"k", self.seed).await
    }

    /// [`look_while`] of the client at the old leader.
    async fn look_while(&self, changed: impl Future<Output = ()>) -> u32 {
        look_while(&self.near, &self.admin, self.seed, changed).await
    }

    /// All are together again, and see the new value.
    async fn heal(&self) {
        self.net().heal_all();
        while self.look().await.as_deref() != Some(b"new") {
            self.sleep(50).await;
        }
    }
}

/// The leader is called down because nobody hears it, or is excluded at once, with clocks that run alike or apart: its own slower, that of who granted faster.
#[test]
fn a_leader_that_is_cut_off_and_replaced_shows_nothing_old() {
    for seed in seeds(2) {
        for class in ["RP_2G1", "RP_3G1", "EC_2P1G1"] {
            for (is_excluded, apart_ppm) in [(false, 0), (true, 0), (true, 15_000)] {
                let scene = Scene::begin(seed, class);
                let world = scene.cluster.world();
                world.set_monotonic_gain(&name(LEADS), -apart_ppm);
                world.set_monotonic_gain(&name(0), apart_ppm);
                scene.cluster.block_on(async {
                    // What is held now was granted with the clocks as they are.
                    scene.sleep(3_000).await;
                    let changed = async {
                        scene.sleep(100).await;
                        scene.split_off();
                        if is_excluded {
                            scene.replace().await;
                        } else {
                            put(&scene.far, b"new").await;
                        }
                    };
                    let old = scene.look_while(changed).await;
                    assert!(
                        old > 100,
                        "seed {seed}, {class}, {is_excluded}, {apart_ppm}: {old} looks, it was granted something"
                    );
                    scene.heal().await;
                });
            }
        }
    }
}

/// It stands still while others come to lead, and goes on with what it knew, when nobody can tell it.
#[test]
fn a_leader_that_stood_still_shows_nothing_old() {
    for seed in seeds(4) {
        for still_ms in [300, 20_000] {
            let scene = Scene::begin(seed, "RP_2G1");
            let world = scene.cluster.world();
            scene.cluster.block_on(async {
                scene.split_off();
                let changed = async {
                    scene.sleep(200).await;
                    world.pause(&name(LEADS));
                    let goes_on = async {
                        scene.sleep(still_ms).await;
                        world.resume(&name(LEADS));
                    };
                    join(goes_on, scene.replace()).await;
                };
                scene.look_while(changed).await;
                scene.heal().await;
            });
        }
    }
}

/// Those who follow are asked when nobody grants anything: reads go on while the control service is away, and whoever changes something is seen.
#[test]
fn reads_go_on_without_the_control_service() {
    for seed in seeds(3) {
        for class in ["RP_2G1", "RP_3G1", "EC_2P1G1"] {
            let scene = Scene::begin(seed, class);
            scene.cluster.block_on(async {
                scene.cluster.kill_engine(0);
                scene.sleep(RUN_OUT.as_millis() as u64).await;
                for round in 0..20_u8 {
                    put(&scene.far, &[round]).await;
                    assert_eq!(scene.look().await, Some(vec![round]), "seed {seed}, {class}");
                    scene.sleep(200).await;
                }
                scene.cluster.start_engine(0).await.unwrap();
                put(&scene.far, b"new").await;
                scene.heal().await;
            });
        }
    }
}

/// What is granted needs nobody's word: reads go on at once when one that follows is lost. When nobody grants anything either, they wait, and go on
/// with the control service.
#[test]
fn reads_go_on_without_those_who_follow_unless_nobody_grants_them() {
    for seed in seeds(4) {
        for class in ["RP_2G1", "RP_3G1", "EC_2P1G1"] {
            let scene = Scene::begin(seed, class);
            scene.cluster.block_on(async {
                scene.net().cut(&name(LEADS), &name(FOLLOWS));
                for _ in 0..30 {
                    assert_eq!(
                        scene.look().await.as_deref(),
                        Some(&b"old"[..]),
                        "seed {seed}, {class}"
                    );
                    scene.sleep(100).await;
                }
                scene.cluster.kill_engine(0);
                scene.sleep(RUN_OUT.as_millis() as u64).await;
                for _ in 0..10 {
                    assert_eq!(
                        scene.look().await,
                        None,
                        "seed {seed}, {class}: nobody has said so"
                    );
                }
                scene.cluster.start_engine(0).await.unwrap();
                while scene.look().await.as_deref() != Some(b"old") {
                    scene.sleep(50).await;
                }
                scene.net().heal_all();
                put(&scene.far, b"new").await;
                scene.heal().await;
            });
        }
    }
}

/// What the holder before granted is not known to the next one: it waits for as long as that may hold.
#[test]
fn a_new_holder_waits_for_what_the_one_before_has_granted() {
    for seed in seeds(6) {
        let scene = Scene::begin(seed, "RP_2G1");
        scene.cluster.block_on(async {
            let changed = async {
                scene.split_off();
                scene.cluster.kill_engine(0);
                scene.cluster.start_engine(0).await.unwrap();
                scene.replace().await;
            };
            let old = scene.look_while(changed).await;
            assert!(old > 50, "seed {seed}: {old} looks, it was granted something");
            scene.heal().await;
        });
    }
}

/// Whoever answers gives back what it was granted, so that no change of a map waits; its clients notice nothing.
#[test]
fn who_answers_gives_back_what_it_was_granted() {
    /// A fraction of what is granted.
    const SOON: Duration = Duration::from_millis(200);
    for seed in seeds(4) {
        let scene = Scene::begin(seed, "RP_2G1");
        let env = scene.admin.env();
        scene.cluster.block_on(async {
            let target = TargetId(LEADS as u32);
            let state = async |wanted: TargetState| {
                let is_so = |map: &PoolMap| map.target(target).unwrap().state == wanted;
                assert_eq!(
                    members::await_map(&scene.admin, is_so).await.unwrap(),
                    None,
                    "seed {seed}"
                );
            };
            let aim = async |aim: TargetAim| {
                let (pool, targets) = (label("p"), vec![target]);
                let begun = env.now();
                let aimed = ControlRequest::PoolAim { pool, targets, aim };
                scene.admin.control(&aimed).await.unwrap();
                assert!(env.now() - begun < SOON, "seed {seed}: {:?}", env.now() - begun);
            };
            let changed = async {
                for round in 0..3_u8 {
                    aim(TargetAim::Exclude).await;
                    let begun = env.now();
                    put(&scene.far, &[round]).await;
                    assert!(env.now() - begun < SOON, "seed {seed}: {:?}", env.now() - begun);
                    aim(TargetAim::Serve).await;
                    state(TargetState::Up).await;
                }
                put(&scene.far, b"new").await;
            };
            scene.look_while(changed).await;
            scene.heal().await;
            let members = scene.admin.system_query().await.unwrap().members;
            assert!(members.iter().all(|member| member.state == MemberState::Up), "seed {seed}");
        });
    }
}

impl Scene {
    /// The old leader gives back what it was granted, as it is asked to before others lead.
    async fn have_given_back(&self) {
        let map = self.near.object.cont().pool().map();
        let op = AdminOp::GiveLeadBack { pool: map.pool };
        let request = Request::Admin { term: 0, op };
        let leader = TargetId(LEADS as u32);
        let answer = members::ask(&self.admin, &map, leader, &request).await.unwrap();
        wire::decode::<Result<AdminReply>>(&answer).unwrap().unwrap();
    }

    /// From the holder of the control service, until nothing is granted any more.
    async fn run_out(&self) {
        self.net().cut(&name(0), &name(LEADS));
        self.sleep(RUN_OUT.as_millis() as u64).await;
    }
}

/// It is not until it runs out that what was given back may be shown: others may lead at once.
#[test]
fn what_was_given_back_is_not_shown() {
    for seed in seeds(6) {
        let scene = Scene::begin(seed, "RP_2G1");
        scene.cluster.block_on(async {
            scene.net().cut(&name(0), &name(LEADS));
            scene.sleep(100).await;
            assert_eq!(scene.look().await.as_deref(), Some(&b"old"[..]), "seed {seed}");
            scene.have_given_back().await;
            scene.split_off();
            assert_eq!(scene.look().await, None, "seed {seed}: it was given back");
            put(&scene.far, b"new").await;
            scene.heal().await;
        });
    }
}

/// The answer to what was asked before something was given back may come after it: then others may lead.
#[test]
fn an_answer_that_comes_late_grants_nothing() {
    for seed in seeds(4) {
        let scene = Scene::begin(seed, "RP_2G1");
        scene.cluster.block_on(async {
            // A question and its answer are on their way for most of a second.
            scene.net().set_far(&name(0), Duration::from_millis(400));
            scene.net().cut(&name(LEADS), &name(FOLLOWS));
            for _ in 0..100 {
                scene.have_given_back().await;
                let env = scene.admin.env();
                let looked = env.timeout(Duration::from_millis(40), scene.look()).await.flatten();
                assert_eq!(looked, None, "seed {seed}: it was given back");
            }
            scene.net().set_far(&name(0), Duration::ZERO);
            scene.net().heal_all();
            put(&scene.far, b"new").await;
            scene.heal().await;
        });
    }
}

/// Those who follow know of the next leader, and of nothing else that the old one hears.
#[test]
fn a_word_is_of_the_newest_map() {
    for seed in seeds(6) {
        let scene = Scene::begin(seed, "RP_2G1");
        scene.cluster.block_on(async {
            scene.run_out().await;
            let changed = async {
                scene.split_off();
                scene.net().heal(&name(LEADS), &name(FOLLOWS));
                scene.sleep(100).await;
                scene.replace().await;
            };
            let old = scene.look_while(changed).await;
            assert!(old > 10, "seed {seed}: {old} looks, others have given their word");
            scene.heal().await;
        });
    }
}

/// One who follows says that it knows no other leader, and that is on its way while it comes to lead itself. Whoever comes to read meanwhile is not
/// told by it.
#[test]
fn a_word_is_asked_for_after_the_look() {
    for seed in seeds(6) {
        let scene = Scene::begin(seed, "RP_2G1");
        scene.cluster.block_on(async {
            let patient = open(&scene.cluster.client_within("near", Duration::from_secs(3))).await;
            let near = of_other(&patient, &scene.near);
            scene.run_out().await;
            assert_eq!(near.get(None, b"k").await.unwrap().unwrap(), b"old", "seed {seed}");
            scene.split_off();
            scene.net().heal(&name(LEADS), &name(FOLLOWS));
            scene.net().cut_one_way(&name(FOLLOWS), &name(LEADS));
            let first = near.get(None, b"k");
            let second = async {
                scene.sleep(50).await;
                scene.replace().await;
                let late = near.get(None, b"k");
                let healed = async {
                    scene.sleep(100).await;
                    scene.net().heal(&name(LEADS), &name(FOLLOWS));
                };
                join(late, healed).await.0
            };
            let (first, second) = join(first, second).await;
            assert_eq!(first.unwrap().unwrap(), b"old", "seed {seed}: it came before");
            assert_ne!(second.ok().flatten().as_deref(), Some(&b"old"[..]), "seed {seed}");
            scene.heal().await;
        });
    }
}

/// Images of keys were the only orders that were taken from a leader of an older map. One that was cut off had been asked for keys by a member that was behind; when the cut
/// was healed it sent them, before it heard of the newer map, and that member, which led meanwhile, lost what others had changed.
#[test]
fn a_replaced_leader_puts_back_no_key() {
    for seed in seeds(3) {
        let scene = Scene::begin(seed, "RP_2G1");
        scene.cluster.block_on(async {
            let (cont, unit) =
                (scene.near.object.cont().id(), scene.near.object.oid().first_unit());
            let before = scene.near.object.cont().pool().map();
            let (from, to) = (TargetId(LEADS as u32), TargetId(FOLLOWS as u32));
            put(&scene.far, b"new").await;
            // Nothing that concerns the group.
            let aimed = ControlRequest::PoolAim {
                pool: label("p"),
                targets: vec![TargetId(0)],
                aim: TargetAim::Exclude,
            };
            scene.admin.control(&aimed).await.unwrap();
            let image = vos::image_of_nothing(unit, b"k");
            let install = async |map_version: u32| {
                let order = wire::encode(&Order::Install { cont, unit, dkey: b"k", before: 0 });
                let order = serde_bytes::Bytes::new(&order);
                let at = OrderAt { number: 1, order, bulk_bytes: image.len() as u32 };
                let orders = Orders {
                    pool: before.pool,
                    from,
                    map_version,
                    stream: 1,
                    first: 1,
                    settled: 0,
                    orders: vec![at],
                };
                let request = Request::Orders(orders);
                let bulk = [&image[..]];
                let sent = members::ask_with_bulk(&scene.admin, &before, to, &request, &bulk);
                wire::decode::<Result<OrdersDone>>(&sent.await.unwrap()).unwrap()
            };
            let refused = install(before.version).await;
            assert_eq!(refused.unwrap_err().code, Code::Stale, "seed {seed}");
            scene.split_off();
            scene.exclude().await;
            let cont = open(&scene.cluster.client("newest")).await;
            let found = of_other(&cont, &scene.far).get(None, b"k").await.unwrap();
            assert_eq!(found.as_deref(), Some(&b"new"[..]), "seed {seed}");
        });
    }
}
