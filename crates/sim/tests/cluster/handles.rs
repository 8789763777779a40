//! Open handles of objects that lose their last link: over restarts, lost connections, retries.

use client::{Anchor, ArrayObj, Client, Container};
use futures_util::future::join;
use sim::{Cluster, ClusterSpec, seeds};
use std::time::Duration;
use transport::SimNet;
use types::{ContLayout, Durability, ObjType, Oid};
use wire::control::{Name, OpenMode};
use wire::obj::{Cond, Op, Recx, UpdateIod, UpdateValue};

const SECOND: Duration = Duration::from_secs(1);

async fn open(client: &Client) -> Container {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
}

fn array(cont: &Container, number: u64) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, "S1".parse().unwrap(), 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
}

async fn fill(array: &ArrayObj) {
    array.write(&[Recx { index: 0, count: 5000 }], &[&[7; 5000]]).await.unwrap();
}

async fn hold(cont: &Container, oid: Oid) {
    let mut batch = cont.batch();
    batch.op(Op::Open { unit: oid.first_unit() });
    batch.run().await.unwrap();
}

/// Holds an object open and writes to it, in one request.
async fn hold_and_write(cont: &Container, oid: Oid) {
    let unit = oid.first_unit();
    let value = UpdateValue::Inline(b"x");
    let iods = vec![UpdateIod { akey: b"a", cond: Cond::NONE, value }];
    let mut batch = cont.batch();
    batch.op(Op::Open { unit });
    batch.op(Op::Update { unit, dkey: b"integers", cond: Cond::NONE, iods });
    batch.run().await.unwrap();
}

async fn unlink(cont: &Container, oid: Oid) {
    let mut batch = cont.batch();
    batch.op(Op::PunchUnlessOpen { unit: oid.first_unit() });
    batch.run().await.unwrap();
}

/// Runs a test with an engine, somebody who holds objects open and somebody else.
fn with_two(seed: u64, test: impl AsyncFn(&Cluster, Container, Container)) {
    with_two_in(seed, Durability::Wal, test);
}

fn with_two_in(
    seed: u64,
    durability: Durability,
    test: impl AsyncFn(&Cluster, Container, Container),
) {
    let cluster = Cluster::start(ClusterSpec { seed, engines: 1, targets: 2 }).unwrap();
    cluster.block_on(async {
        let setup = cluster.client("setup");
        cluster.container(&setup, durability, ContLayout::Plain).await.unwrap();
        let (a, b) = (open(&cluster.client("a")).await, open(&cluster.client("b")).await);
        test(&cluster, a, b).await;
    });
}

/// The holder asks nothing of this target, for longer than a restarted engine waits.
#[test]
fn who_holds_an_object_and_is_idle_keeps_it_over_a_restart() {
    with_two(1, async |cluster, a, b| {
        let array = array(&b, 1);
        fill(&array).await;
        hold(&a, array.oid).await;
        unlink(&b, array.oid).await;
        for _ in 0..2 {
            cluster.kill_engine(0);
            cluster.start_engine(0).await.unwrap();
        }
        b.client().env().sleep(60 * SECOND).await;
        assert_eq!(array.size().await.unwrap(), 5000);
        a.release(array.oid);
        ArrayObj { cont: a.clone(), ..array.clone() }.size().await.unwrap();
        b.client().env().sleep(SECOND).await;
        assert_eq!(array.size().await.unwrap(), 0, "released, but not freed");
    });
}

/// After any start nothing that was removed was freed for half a minute, whoever held what, so that an
/// engine that crashed again and again never got anything back.
#[test]
fn what_nobody_holds_is_freed_as_soon_as_all_who_hold_something_are_back() {
    with_two(3, async |cluster, a, b| {
        let held = array(&b, 100);
        fill(&held).await;
        for round in 0..6 {
            let (removed, early) = (array(&b, 2 * round), array(&b, 2 * round + 1));
            fill(&removed).await;
            fill(&early).await;
            // Nobody in the first rounds, then somebody who keeps a file without a name.
            if round == 3 {
                hold(&a, held.oid).await;
                unlink(&b, held.oid).await;
            }
            unlink(&b, early.oid).await;
            cluster.kill_engine(0);
            cluster.start_engine(0).await.unwrap();
            unlink(&b, removed.oid).await;
            if round >= 3 {
                b.client().env().sleep(2 * SECOND).await;
                assert_eq!(held.size().await.unwrap(), 5000, "round {round}: held, but freed");
            }
            for array in [&removed, &early] {
                assert_eq!(array.size().await.unwrap(), 0, "round {round}: not freed");
            }
        }
    });
}

/// Who has closed all it held open is not waited for.
#[test]
fn who_has_closed_all_is_not_waited_for() {
    with_two(4, async |cluster, a, b| {
        let (closed, removed) = (array(&b, 1), array(&b, 2));
        fill(&closed).await;
        fill(&removed).await;
        hold(&a, closed.oid).await;
        a.release(closed.oid);
        ArrayObj { cont: a.clone(), ..closed.clone() }.size().await.unwrap();
        // It may open something again soon.
        b.client().env().sleep(10 * SECOND).await;
        SimNet::of(cluster.world()).cut("a", "e0");
        cluster.kill_engine(0);
        cluster.start_engine(0).await.unwrap();
        unlink(&b, removed.oid).await;
        assert_eq!(removed.size().await.unwrap(), 0, "not freed");
    });
}

/// Who died with the engine is waited for once.
#[test]
fn a_holder_that_does_not_come_back_is_waited_for_once() {
    with_two(5, async |cluster, a, b| {
        let (removed, other) = (array(&b, 1), array(&b, 2));
        fill(&removed).await;
        fill(&other).await;
        hold(&a, removed.oid).await;
        SimNet::of(cluster.world()).cut("a", "e0");
        cluster.kill_engine(0);
        cluster.start_engine(0).await.unwrap();
        unlink(&b, removed.oid).await;
        b.client().env().sleep(10 * SECOND).await;
        assert_eq!(removed.size().await.unwrap(), 5000, "perhaps held, but freed");
        b.client().env().sleep(30 * SECOND).await;
        assert_eq!(removed.size().await.unwrap(), 0, "not freed");
        cluster.kill_engine(0);
        cluster.start_engine(0).await.unwrap();
        unlink(&b, other.oid).await;
        assert_eq!(other.size().await.unwrap(), 0, "waited for it again");
    });
}

/// An engine that crashed again and again waited for a dead client anew each time, and never freed anything.
#[test]
fn a_holder_that_is_gone_does_not_stop_an_engine_that_crashes_again_and_again() {
    with_two(6, async |cluster, a, b| {
        let (left, held) = (array(&b, 1), array(&b, 2));
        for array in [&left, &held] {
            fill(array).await;
        }
        let gone = open(&cluster.client("gone")).await;
        hold(&gone, left.oid).await;
        hold(&a, held.oid).await;
        SimNet::of(cluster.world()).cut("gone", "e0");
        let mut rounds = 0;
        while left.size().await.unwrap() > 0 {
            assert!(rounds < 5, "not freed after {rounds} crashes, eight seconds apart");
            cluster.kill_engine(0);
            cluster.start_engine(0).await.unwrap();
            if rounds == 0 {
                unlink(&b, left.oid).await;
                unlink(&b, held.oid).await;
            }
            b.client().env().sleep(8 * SECOND).await;
            rounds += 1;
        }
        assert!(rounds > 3, "given up after {rounds} crashes");
        // Who comes back each time has all its time again.
        for _ in 0..6 {
            cluster.kill_engine(0);
            cluster.start_engine(0).await.unwrap();
            b.client().env().sleep(8 * SECOND).await;
        }
        assert_eq!(held.size().await.unwrap(), 5000, "held, but freed");
    });
}

/// The engine crashes right after it has answered a client's first open; the client comes back late.
#[test]
fn a_handle_that_was_answered_is_waited_for_however_soon_the_engine_crashes() {
    for (seed, durability) in seeds(10).zip([Durability::Wal, Durability::Relaxed].iter().cycle()) {
        with_two_in(seed, *durability, async |cluster, a, b| {
            let held = array(&b, 1);
            fill(&held).await;
            b.client().env().sleep(SECOND).await;
            hold(&a, held.oid).await;
            let net = SimNet::of(cluster.world());
            net.cut("a", "e0");
            net.break_connections("a", "e0");
            cluster.kill_engine(0);
            cluster.start_engine(0).await.unwrap();
            unlink(&b, held.oid).await;
            b.client().env().sleep(10 * SECOND).await;
            net.heal("a", "e0");
            b.client().env().sleep(60 * SECOND).await;
            assert_eq!(held.size().await.unwrap(), 5000, "{durability:?}: held, but freed");
            a.release(held.oid);
            ArrayObj { cont: a.clone(), ..held.clone() }.size().await.unwrap();
            b.client().env().sleep(SECOND).await;
            assert_eq!(held.size().await.unwrap(), 0, "{durability:?}: released, but not freed");
        });
    }
}

/// The engine gives a client up that is away for some seconds; when it is back it counts again.
#[test]
fn who_comes_back_after_it_was_given_up_holds_its_objects_again() {
    with_two(2, async |cluster, a, b| {
        let (kept, left) = (array(&b, 1), array(&b, 2));
        for array in [&kept, &left] {
            fill(array).await;
            hold(&a, array.oid).await;
        }
        let net = SimNet::of(cluster.world());
        net.cut("a", "e0");
        net.break_connections("a", "e0");
        b.client().env().sleep(10 * SECOND).await;
        // Closed while nobody could be told: it must not count against the new handles.
        a.release(left.oid);
        hold_later(&a, left.oid);
        net.heal("a", "e0");
        b.client().env().sleep(5 * SECOND).await;
        for array in [&kept, &left] {
            unlink(&b, array.oid).await;
            b.client().env().sleep(10 * SECOND).await;
            assert_eq!(array.size().await.unwrap(), 5000, "held, but freed");
        }
        for array in [&kept, &left] {
            a.release(array.oid);
            ArrayObj { cont: a.clone(), ..array.clone() }.size().await.unwrap();
            b.client().env().sleep(SECOND).await;
            assert_eq!(array.size().await.unwrap(), 0, "released, but not freed");
        }
    });
}

/// Opens an object as soon as there is a connection.
fn hold_later(cont: &Container, oid: Oid) {
    let again = cont.clone();
    cont.client().env().spawn(async move { hold(&again, oid).await });
}

/// A batch that opens what it makes, whose answer is lost with the engine that ran it; and the
/// object is unlinked, perhaps before the next engine knows the handle.
#[test]
fn a_retried_batch_holds_what_its_first_try_opened() {
    for seed in seeds(40) {
        with_two(seed, async |cluster, a, b| {
            let oid = array(&a, 1).oid;
            // The first request of a client takes longer: it connects.
            hold(&a, array(&a, 2).oid).await;
            let trouble = async {
                let env = cluster.world().node("trouble");
                env.sleep(Duration::from_micros(env.random_u64() % 1_000)).await;
                let net = SimNet::of(cluster.world());
                net.cut("a", "e0");
                env.sleep(Duration::from_millis(5)).await;
                net.break_connections("a", "e0");
                cluster.kill_engine(0);
                net.heal("a", "e0");
                cluster.start_engine(0).await.unwrap();
            };
            let work = async {
                hold_and_write(&a, oid).await;
                unlink(&b, oid).await;
            };
            join(work, trouble).await;
            b.client().env().sleep(60 * SECOND).await;
            let keys = b.object(oid).list_dkeys(None, &mut Anchor::start(), 1).await.unwrap();
            assert_eq!(keys.len(), 1, "seed {seed}: the object was held, but freed");
        });
    }
}

/// The same, and the object loses its name while the answer is still being asked for again: a client that
/// has registered all it knows of may hold more.
#[test]
fn what_a_lost_answer_opened_is_waited_for() {
    for seed in seeds(40) {
        with_two(seed, async |cluster, a, b| {
            let oid = array(&a, 1).oid;
            // The first request of a client takes longer: it connects.
            hold(&a, array(&a, 2).oid).await;
            let trouble = async {
                let env = cluster.world().node("trouble");
                env.sleep(Duration::from_micros(env.random_u64() % 1_000)).await;
                cluster.kill_engine(0);
                cluster.start_engine(0).await.unwrap();
                for _ in 0..20 {
                    unlink(&b, oid).await;
                    env.sleep(Duration::from_micros(env.random_u64() % 5_000)).await;
                }
            };
            let work = async {
                hold_and_write(&a, oid).await;
            };
            join(work, trouble).await;
            b.client().env().sleep(60 * SECOND).await;
            let keys = b.object(oid).list_dkeys(None, &mut Anchor::start(), 1).await.unwrap();
            assert_eq!(keys.len(), 1, "seed {seed}: the object was held, but freed");
        });
    }
}
