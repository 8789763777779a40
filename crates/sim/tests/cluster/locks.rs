//! Advisory locks between clients: order, interrupts, clients that die, engines that restart.

use client::{Client, Code, Container, LockAsk, LockInterrupt, LockKind, LockMode, LockRange};
use futures_util::future::{join, join_all};
use sim::{Cluster, ClusterSpec};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use transport::SimNet;
use types::{ContLayout, Durability, ObjType, Oid, Result};
use wire::control::{Name, OpenMode};

const WHOLE: LockRange = LockRange::WHOLE;

async fn open(client: &Client) -> Container {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
}

fn ask(owner: u64, first: u64, last: u64, mode: LockMode, wait: bool) -> LockAsk {
    let range = LockRange { first, last };
    LockAsk { kind: LockKind::Posix, owner, range, mode, pid: owner as u32, wait }
}

fn whole(owner: u64, wait: bool) -> LockAsk {
    ask(owner, 0, u64::MAX, LockMode::Exclusive, wait)
}

fn object(cont: &Container, number: u64) -> Oid {
    cont.generate_oid(ObjType::ArrayByte, "S1".parse().unwrap(), 0, number).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    result.expect_err("must fail").code
}

/// Runs a test with a cluster and two clients' containers.
fn with_two(seed: u64, durability: Durability, test: impl AsyncFn(&Cluster, Container, Container)) {
    let cluster = Cluster::start(ClusterSpec { seed, engines: 1, targets: 2 }).unwrap();
    cluster.block_on(async {
        let setup = cluster.client("setup");
        cluster.container(&setup, durability, ContLayout::Plain).await.unwrap();
        let (a, b) = (open(&cluster.client("a")).await, open(&cluster.client("b")).await);
        test(&cluster, a, b).await;
    });
}

#[test]
fn owners_exclude_each_other_and_are_told_who_is_in_the_way() {
    with_two(1, Durability::Memory, async |_, a, b| {
        let oid = object(&a, 1);
        use LockMode::{Exclusive, Shared};
        a.lock(oid, &ask(1, 0, 9, Exclusive, false), None).await.unwrap();
        // The owner itself is never in its way; part of it may become shared.
        a.lock(oid, &ask(1, 5, 9, Shared, false), None).await.unwrap();
        b.lock(oid, &ask(1, 7, 20, Shared, false), None).await.unwrap();
        let refused = b.lock(oid, &ask(1, 0, 0, Shared, false), None).await;
        assert_eq!(code(refused), Code::WouldBlock);
        let holder = b.test_lock(oid, &ask(1, 3, 8, Shared, false)).await.unwrap().unwrap();
        assert_eq!((holder.pid, holder.range), (1, LockRange { first: 0, last: 4 }));
        assert_eq!((holder.mode, holder.client), (Exclusive, a.client().id()));
        assert_eq!(b.test_lock(oid, &ask(1, 5, 5, Shared, false)).await.unwrap(), None);
        // Another kind, another object: another world.
        let flock = LockAsk { kind: LockKind::Flock, ..whole(1, false) };
        b.lock(oid, &flock, None).await.unwrap();
        b.lock(object(&b, 2), &whole(1, false), None).await.unwrap();
        let ofd = LockAsk { kind: LockKind::Ofd, ..ask(1, 0, 0, Shared, false) };
        assert_eq!(code(b.lock(oid, &ofd, None).await), Code::WouldBlock);
        a.unlock(oid, LockKind::Posix, 1, LockRange { first: 0, last: 0 }).await.unwrap();
        b.lock(oid, &ofd, None).await.unwrap();
        let before = a.client().request_count();
        a.unlock(oid, LockKind::Posix, 99, WHOLE).await.unwrap();
        assert_eq!(a.client().request_count(), before, "who holds nothing asks nobody");
    });
}

#[test]
fn waits_are_served_in_order_and_go_on_past_every_timeout() {
    with_two(2, Durability::Memory, async |cluster, a, b| {
        let (oid, env) = (object(&a, 1), cluster.world().node("watch"));
        let order = Rc::new(RefCell::new(Vec::new()));
        a.lock(oid, &whole(0, false), None).await.unwrap();
        let waits = (1..6u64).map(|owner| {
            let (cont, order) = (if owner % 2 == 0 { &a } else { &b }, order.clone());
            let env = env.clone();
            async move {
                env.sleep(Duration::from_millis(owner)).await;
                cont.lock(oid, &whole(owner, true), None).await.unwrap();
                order.borrow_mut().push(owner);
                cont.unlock(oid, LockKind::Posix, owner, WHOLE).await.unwrap();
            }
        });
        let release = async {
            // Longer than a client waits for any answer.
            env.sleep(Duration::from_secs(200)).await;
            assert!(order.borrow().is_empty());
            a.unlock(oid, LockKind::Posix, 0, WHOLE).await.unwrap();
        };
        join(join_all(waits), release).await;
        assert_eq!(order.take(), [1, 2, 3, 4, 5]);
    });
}

#[test]
fn a_circle_of_waits_is_refused() {
    with_two(3, Durability::Memory, async |_, a, b| {
        let (one, two) = (object(&a, 1), object(&a, 1));
        a.lock(one, &ask(1, 0, 0, LockMode::Exclusive, false), None).await.unwrap();
        b.lock(two, &ask(2, 1, 1, LockMode::Exclusive, false), None).await.unwrap();
        let first = async {
            a.lock(two, &ask(1, 1, 1, LockMode::Exclusive, true), None).await.unwrap();
        };
        let second = async {
            b.client().env().sleep(Duration::from_millis(50)).await;
            let refused = b.lock(one, &ask(2, 0, 0, LockMode::Exclusive, true), None).await;
            assert_eq!(code(refused), Code::Deadlock);
            b.unlock(two, LockKind::Posix, 2, WHOLE).await.unwrap();
        };
        join(first, second).await;
    });
}

#[test]
fn an_interrupted_or_forgotten_wait_leaves_no_lock_behind() {
    with_two(4, Durability::Memory, async |_, a, b| {
        let (oid, env) = (object(&a, 1), b.client().env().clone());
        a.lock(oid, &whole(1, false), None).await.unwrap();
        let interrupt = LockInterrupt::default();
        let second = whole(2, true);
        let waits = b.lock(oid, &second, Some(&interrupt));
        let signal = async {
            env.sleep(Duration::from_millis(30)).await;
            interrupt.interrupt();
        };
        let (waited, ()) = join(waits, signal).await;
        assert_eq!(code(waited), Code::Canceled);
        // One that is dropped.
        let ask = whole(3, true);
        assert!(env.timeout(Duration::from_millis(30), b.lock(oid, &ask, None)).await.is_none());
        a.unlock(oid, LockKind::Posix, 1, WHOLE).await.unwrap();
        a.lock(oid, &whole(4, false), None).await.unwrap();
    });
}

#[test]
fn what_a_dead_client_held_is_free_again() {
    with_two(5, Durability::Memory, async |cluster, a, b| {
        let oid = object(&a, 1);
        a.lock(oid, &whole(1, false), None).await.unwrap();
        let second = whole(2, true);
        let waits = b.lock(oid, &second, None);
        let death = async {
            cluster.world().node("watch").sleep(Duration::from_millis(100)).await;
            cluster.world().kill("a");
        };
        let (waited, ()) = join(waits, death).await;
        waited.unwrap();
        // Its memory is not freed in the simulation of its death.
        std::mem::forget(a);
    });
}

#[test]
fn locks_survive_an_engine_that_restarts_and_lost_ones_are_told() {
    with_two(6, Durability::Wal, async |cluster, a, b| {
        let (oid, other) = (object(&a, 1), object(&a, 2));
        a.lock(oid, &ask(1, 0, 99, LockMode::Exclusive, false), None).await.unwrap();
        a.lock(other, &whole(1, false), None).await.unwrap();
        cluster.kill_engine(0);
        cluster.start_engine(0).await.unwrap();
        // Faster than the holder, but the holder's claim comes first.
        let refused = b.lock(oid, &ask(2, 50, 50, LockMode::Shared, false), None).await;
        assert_eq!(code(refused), Code::WouldBlock);
        // While its holder cannot come back a lock is given to somebody else.
        SimNet::of(cluster.world()).cut("a", "e0");
        cluster.kill_engine(0);
        cluster.start_engine(0).await.unwrap();
        b.lock(oid, &ask(2, 50, 50, LockMode::Shared, true), None).await.unwrap();
        SimNet::of(cluster.world()).heal("a", "e0");
        a.client().env().sleep(Duration::from_secs(5)).await;
        assert_eq!(code(a.unlock(oid, LockKind::Posix, 1, WHOLE).await), Code::Io);
        a.unlock(oid, LockKind::Posix, 1, WHOLE).await.unwrap();
        // What nobody took it has still.
        let refused = b.lock(other, &whole(2, false), None).await;
        assert_eq!(code(refused), Code::WouldBlock);
    });
}

#[test]
fn clients_that_share_a_book_share_their_owners() {
    with_two(7, Durability::Memory, async |cluster, a, b| {
        let options = a.client().options().clone();
        let sibling = Client::new(cluster.world().node("a"), "a".into(), options);
        let sibling = open(&sibling).await;
        let oid = object(&a, 1);
        a.lock(oid, &whole(1, false), None).await.unwrap();
        sibling.lock(oid, &whole(1, false), None).await.unwrap();
        assert_eq!(code(b.lock(oid, &whole(1, false), None).await), Code::WouldBlock);
        sibling.unlock(oid, LockKind::Posix, 1, WHOLE).await.unwrap();
        b.lock(oid, &whole(1, false), None).await.unwrap();
    });
}

/// Processes that have one open file description have its locks together: one takes it, another
/// that goes on after its end has it still, and one unlock is for all.
#[test]
fn a_lock_of_a_shared_owner_outlives_the_client_that_took_it() {
    with_two(8, Durability::Memory, async |cluster, a, b| {
        let (oid, shared) = (object(&a, 1), 0x7777_1234);
        for cont in [&a, &b] {
            cont.client().options().locks.share(shared);
        }
        let flock = |owner, wait| LockAsk { kind: LockKind::Flock, ..whole(owner, wait) };
        assert_eq!(code(b.join_lock(oid, &flock(shared, false)).await), Code::NonExist);
        a.lock(oid, &flock(shared, false), None).await.unwrap();
        b.join_lock(oid, &flock(shared, false)).await.unwrap();
        cluster.world().kill("a");
        let c = open(&cluster.client("c")).await;
        c.client().env().sleep(Duration::from_secs(10)).await;
        assert_eq!(code(c.lock(oid, &flock(1, false), None).await), Code::WouldBlock);
        // The last one that parts leaves time for another to join.
        b.part_lock(oid, LockKind::Flock, shared).await.unwrap();
        assert_eq!(code(c.lock(oid, &flock(1, false), None).await), Code::WouldBlock);
        c.lock(oid, &flock(1, true), None).await.unwrap();
        c.unlock(oid, LockKind::Flock, 1, WHOLE).await.unwrap();
        // Another that shares it unlocks it for all.
        let d = open(&cluster.client("d")).await;
        d.client().options().locks.share(shared);
        b.lock(oid, &flock(shared, false), None).await.unwrap();
        d.unlock(oid, LockKind::Flock, shared, WHOLE).await.unwrap();
        c.lock(oid, &flock(1, false), None).await.unwrap();
        std::mem::forget(a);
    });
}

/// A program asked for a lock while its engine stood still, and was killed. When the engine went on it had first to be told that it still leads; the word that nobody wants the lock any
/// more overtook the request meanwhile, found nothing to give back, and the lock was held by nobody for as long as the mount was there.
#[test]
fn a_lock_that_nobody_wants_any_more_is_not_given_when_its_engine_goes_on() {
    for wait in [false, true] {
        let cluster = Cluster::start(ClusterSpec { seed: 3, engines: 3, targets: 1 }).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            let (a, b) = (open(&cluster.client("a")).await, open(&cluster.client("b")).await);
            let env = a.client().env();
            let class = "RP_2G1".parse().unwrap();
            let oid = |number| a.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap();
            for oid in (1..6).map(oid) {
                let led_by = a.layout(oid).unwrap().members(0)[0].0;
                let engine = Cluster::engine_name(led_by as usize);
                // Connected before.
                a.lock(oid, &whole(1, false), None).await.unwrap();
                a.unlock(oid, LockKind::Posix, 1, WHOLE).await.unwrap();
                cluster.world().pause(&engine);
                let wanted = whole(1, wait);
                let given_up = env.timeout(Duration::from_millis(1500), a.lock(oid, &wanted, None));
                assert!(given_up.await.is_none(), "it stands still");
                env.sleep(Duration::from_millis(1000)).await;
                cluster.world().resume(&engine);
                env.sleep(Duration::from_secs(10)).await;
                let locked = b.lock(oid, &whole(2, false), None).await;
                assert!(locked.is_ok(), "{oid}, wait {wait}: {locked:?}");
            }
        });
    }
}
