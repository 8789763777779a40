//! What is not on stable storage yet is shown to nobody.

use client::{Anchor, Client, Container, KvObj};
use env::Env;
use futures_util::FutureExt;
use sim::{Cluster, ClusterSpec};
use std::time::Duration;
use types::{Code, ContLayout, Durability, ObjType, Result};
use wire::control::{Name, OpenMode};
use wire::obj::Cond;

/// Longer than anything takes that does not wait for the disk, virtual time.
const LONG: Duration = Duration::from_millis(100);

async fn open(client: &Client) -> Container {
    let name = |text: &str| Name::Label(text.into());
    let pool = client.pool_open(&name("p"), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&name("c"), OpenMode::ReadWrite).await.unwrap()
}

fn kv(cont: &Container, number: u64) -> KvObj {
    let oid = cont.generate_oid(ObjType::KvHashed, "S1".parse().unwrap(), 0, number).unwrap();
    KvObj { object: cont.object(oid) }
}

async fn put(kv: &KvObj, key: &[u8], value: &[u8]) {
    kv.put(None, Cond::NONE, key, value).await.unwrap();
}

async fn list(kv: &KvObj) -> Result<usize> {
    kv.list(&mut Anchor::start(), 100).await.map(|keys| keys.len())
}

/// A cluster in which a writer has put, removed and made something just when the disk stopped; `look` looks
/// at it as somebody else. Then the engine is killed and started, and `look_again` looks.
fn in_between(
    durability: Durability,
    look: impl AsyncFn(&Env, &Container),
    look_again: impl AsyncFn(&Container),
) {
    let cluster = Cluster::start(ClusterSpec { seed: 7, engines: 1, targets: 1 }).unwrap();
    cluster.block_on(async {
        let setup = cluster.client("setup");
        cluster.container(&setup, durability, ContLayout::Plain).await.unwrap();
        let (writer, reader) = (cluster.client("writer"), cluster.client("reader"));
        let (mine, other) = (open(&writer).await, open(&reader).await);
        put(&kv(&mine, 1), b"changed", b"old").await;
        put(&kv(&mine, 1), b"removed", b"old").await;
        put(&kv(&mine, 1), b"clean", b"old").await;
        put(&kv(&mine, 2), b"clean", b"old").await;
        put(&kv(&other, 3), b"warm", b"old").await;
        let env = reader.env().clone();
        // What is acknowledged in a `relaxed` pool, too.
        env.sleep(LONG).await;
        let disk = cluster.world().disk(&Cluster::engine_name(0));
        {
            let mut hang = std::pin::pin!(disk.hang_at_sync(0, false));
            assert!(hang.as_mut().now_or_never().is_none());
            let work = async {
                let kv = kv(&mine, 1);
                let changed = kv.put(None, Cond::NONE, b"changed", b"new");
                let made = kv.put(None, Cond::NONE, b"made", b"new");
                let removed = kv.remove(None, Cond::NONE, b"removed");
                let _ = futures_util::future::join3(changed, made, removed).await;
            };
            let mut work = std::pin::pin!(work);
            let _ = env.timeout(LONG, work.as_mut()).await;
            assert!(env.timeout(LONG, hang.as_mut()).await.is_some(), "no sync");
            look(&env, &other).await;
        }
        cluster.kill_engine(0);
        cluster.start_engine(0).await.unwrap();
        look_again(&other).await;
    });
}

/// A reader saw a value, a name, or that there was none, and after a crash of the engine it was as before: the
/// update was not on stable storage when it was shown, and its writer had not been told that it was done.
#[test]
fn nobody_sees_what_a_crash_takes_back() {
    let look = async |env: &Env, cont: &Container| {
        let (one, two) = (kv(cont, 1), kv(cont, 2));
        let must_wait = async |what: &str, question: &mut (dyn Future<Output = ()> + Unpin)| {
            assert!(env.timeout(LONG, question).await.is_none(), "{what} is shown");
        };
        let mut get = Box::pin(one.get(None, b"changed").map(drop));
        must_wait("a value", &mut get).await;
        let mut gone = Box::pin(one.get(None, b"removed").map(drop));
        must_wait("nothing", &mut gone).await;
        let mut names = Box::pin(list(&one).map(drop));
        must_wait("a listing", &mut names).await;
        let mut refused = Box::pin(one.put(None, Cond::DKEY_INSERT, b"made", b"mine").map(drop));
        must_wait("a refusal", &mut refused).await;
        // What nobody has changed is shown at once.
        let clean = env.timeout(LONG, one.get(None, b"clean")).await.expect("another key waits");
        assert_eq!(clean.unwrap().as_deref(), Some(&b"old"[..]));
        let clean = env.timeout(LONG, list(&two)).await.expect("another object waits");
        assert_eq!(clean.unwrap(), 1);
    };
    let look_again = async |cont: &Container| {
        let one = kv(cont, 1);
        assert_eq!(one.get(None, b"changed").await.unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(one.get(None, b"removed").await.unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(list(&one).await.unwrap(), 3);
    };
    in_between(Durability::Wal, look, look_again);
}

/// A `relaxed` pool acknowledges before it writes, and shows what it has acknowledged.
#[test]
fn a_relaxed_pool_shows_all_there_is() {
    let look = async |env: &Env, cont: &Container| {
        let one = kv(cont, 1);
        let value = env.timeout(LONG, one.get(None, b"changed")).await.expect("it waits");
        assert_eq!(value.unwrap().as_deref(), Some(&b"new"[..]));
        let refused = one.put(None, Cond::DKEY_INSERT, b"made", b"mine").await;
        assert_eq!(refused.unwrap_err().code, Code::Exist);
    };
    in_between(Durability::Relaxed, look, async |_| {});
}
