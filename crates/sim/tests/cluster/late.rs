//! Messages that arrive after their sender has given their connection up and asked again.

use client::{Client, Container, KvObj, Tx};
use futures_util::future::join;
use sim::{Cluster, ClusterSpec};
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, Durability, ObjType};
use wire::control::{Name, OpenMode};
use wire::obj::Cond;

async fn open(client: &Client) -> Container {
    let name = |text: &str| Name::Label(text.into());
    let pool = client.pool_open(&name("p"), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&name("c"), OpenMode::ReadWrite).await.unwrap()
}

fn kv(cont: &Container, number: u64) -> KvObj {
    let oid = cont.generate_oid(ObjType::KvHashed, "S1".parse().unwrap(), 0, number).unwrap();
    KvObj { object: cont.object(oid) }
}

/// What a client does while its connection is given up.
#[derive(Clone, Copy)]
enum Doing {
    Put,
    Commit,
    /// Of a key that is there.
    Insert,
}

/// Has one client work while its connections are given up, and another write when the first has its
/// answer; what the first has sent on the old connection arrives last of all.
fn overtaken(doing: Doing) {
    for at in 0..40 {
        let cluster = Cluster::start(ClusterSpec { seed: at, engines: 1, targets: 1 }).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            let (first, second) = (cluster.client("first"), cluster.client("second"));
            let (one, other) = (open(&first).await, open(&second).await);
            kv(&one, 1).put(None, Cond::NONE, b"k", b"warm").await.unwrap();
            kv(&other, 1).put(None, Cond::NONE, b"k", b"warm").await.unwrap();
            let work = async {
                let kv = kv(&one, 1);
                match doing {
                    Doing::Put => {
                        kv.put(None, Cond::NONE, b"k", &vec![b'o'; 20_000]).await.unwrap();
                    }
                    Doing::Commit => {
                        let tx = Tx::open(&one, false);
                        kv.put(Some(&tx), Cond::NONE, b"k", b"old").await.unwrap();
                        tx.commit().await.unwrap();
                    }
                    Doing::Insert => {
                        let outcome = kv.put(None, Cond::DKEY_INSERT, b"k", b"old").await;
                        assert_eq!(outcome.unwrap_err().code, Code::Exist);
                    }
                }
            };
            let env = first.env().clone();
            let trouble = async {
                env.sleep(Duration::from_micros(at * 5)).await;
                let net = SimNet::of(cluster.world());
                net.abandon_connections("first", "e0", Duration::from_millis(100));
            };
            futures_util::future::join(work, trouble).await;
            kv(&other, 1).remove(None, Cond::NONE, b"k").await.unwrap();
            env.sleep(Duration::from_secs(1)).await;
            let found = kv(&other, 1).get(None, b"k").await.unwrap();
            assert_eq!(found, None, "given up after {} us: it is back", at * 5);
        });
    }
}

/// Only a request that said that it was sent again was looked up; the first try, arriving after
/// the second, was done once more, and took back what others had done meanwhile.
#[test]
fn an_update_that_arrives_late_is_not_done_again() {
    overtaken(Doing::Put);
    overtaken(Doing::Commit);
}

/// A failure is not kept as an answer is. Its client was told that a key is there; when it was there no more, the
/// first try came from the connection that the client had given up, and made it.
#[test]
fn what_was_refused_is_not_done_later() {
    overtaken(Doing::Insert);
}

/// An object of two copies on the targets of two engines, the first of which leads.
fn copied(cont: &Container, engines: [usize; 2]) -> KvObj {
    crate::old_values::object(cont, "RP_2G1", |members| members == engines)
}

/// A leader that was not whole kept a transaction waiting. A new map came, by which it was not whole either; its client asked it again, on the same connection, and took for the answer to that what
/// became of the first try: another transaction was in the way. The second try took effect.
#[test]
fn a_refusal_of_an_earlier_try_is_not_taken_for_one_of_the_next() {
    for seed in sim::seeds(2) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 5, targets: 1 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let both = [copied(&cont, [1, 2]), copied(&cont, [3, 0])];
            // Of the last engine, too, something is told under a new map when it is started again.
            for kv in both.iter().chain([&copied(&cont, [4, 0])]) {
                kv.put(None, Cond::NONE, b"k", b"before").await.unwrap();
            }
            let (net, env) = (SimNet::of(cluster.world()), cluster.world().node("trouble"));
            [1, 2].iter().for_each(|engine| cluster.kill_engine(*engine));
            // They cannot be whole, and the leader does not find out what the other one has.
            net.cut("e1", "e4");
            net.cut("e2", "e4");
            net.cut("e1", "e2");
            for engine in [1, 2] {
                cluster.start_engine(engine).await.unwrap();
            }
            env.sleep(Duration::from_secs(1)).await;
            let commit = async {
                let tx = Tx::open(&cont, false);
                for kv in &both {
                    kv.put(Some(&tx), Cond::NONE, b"k", b"after").await.unwrap();
                }
                tx.commit().await.map_err(|error| error.code)
            };
            let trouble = async {
                env.sleep(Duration::from_millis(300)).await;
                cluster.kill_engine(4);
                cluster.start_engine(4).await.unwrap();
                env.sleep(Duration::from_millis(300)).await;
                // The client hears of the new map by this.
                both[1].get(None, b"other").await.unwrap();
                env.sleep(Duration::from_millis(900)).await;
                net.heal_all();
            };
            let (told, ()) = join(commit, trouble).await;
            env.sleep(Duration::from_secs(30)).await;
            let expected = match told {
                Ok(_) => b"after".to_vec(),
                Err(Code::TxRestart) => b"before".to_vec(),
                Err(code) => panic!("seed {seed}: {code:?}"),
            };
            for kv in &both {
                let found = kv.get(None, b"k").await.unwrap();
                assert_eq!(found, Some(expected.clone()), "seed {seed}: it was told {told:?}");
            }
        });
    }
}
