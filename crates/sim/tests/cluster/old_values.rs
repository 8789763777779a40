//! Somebody looks at a key while others change it: what is acknowledged is seen, and nothing old after it.

use client::{Client, Container, KvObj};
use futures_util::future::join;
use sim::Cluster;
use std::cell::Cell;
use std::time::Duration;
use types::{Code, ObjType, TargetId};
use wire::control::{Name, OpenMode};
use wire::obj::Cond;

/// Longer than anything lasts that was granted.
pub const RUN_OUT: Duration = Duration::from_secs(4);
const LOOK_PAUSE: Duration = Duration::from_millis(5);

pub fn name(engine: usize) -> String {
    Cluster::engine_name(engine)
}

/// The cluster's container.
pub async fn open(client: &Client) -> Container {
    let label = |text: &str| Name::Label(text.into());
    let pool = client.pool_open(&label("p"), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&label("c"), OpenMode::ReadWrite).await.unwrap()
}

/// An object of a class whose members, the leader first, are on engines as they are meant to be.
pub fn object(cont: &Container, class: &str, is_meant: impl Fn(&[usize]) -> bool) -> KvObj {
    let map = cont.pool().map();
    let class = class.parse().unwrap();
    let engine = |target: &TargetId| map.target(*target).unwrap().rank.0 as usize;
    let oids = (0..).map(|number| cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap());
    let is_found = |oid: &_| {
        let layout = cont.layout(*oid).unwrap();
        is_meant(&layout.members(0).iter().map(engine).collect::<Vec<usize>>())
    };
    KvObj { object: cont.object(oids.into_iter().find(is_found).unwrap()) }
}

pub async fn put(kv: &KvObj, value: &[u8]) {
    kv.put(None, Cond::NONE, b"k", value).await.unwrap();
}

/// What is read of a key now; `None` without an answer.
pub async fn look_at(kv: &KvObj, key: &[u8], seed: u64) -> Option<Vec<u8>> {
    match kv.get(None, key).await {
        Ok(found) => Some(found.unwrap_or_default()),
        Err(error) => {
            let is_passing = matches!(error.code, Code::TimedOut | Code::Unreach | Code::Closed);
            assert!(is_passing, "seed {seed}: {error}");
            None
        }
    }
}

/// Looks at "k" while `changed` goes on, which ends when there is a new value, and for a while after it. How often the old one was shown before; none after it.
pub async fn look_while(
    kv: &KvObj,
    admin: &Client,
    seed: u64,
    changed: impl Future<Output = ()>,
) -> u32 {
    let (is_changed, until) = (Cell::new(false), Cell::new(Duration::MAX));
    let changing = async {
        changed.await;
        is_changed.set(true);
        until.set(admin.env().now() + RUN_OUT);
    };
    let looking = async {
        let mut old = 0;
        while admin.env().now() < until.get() {
            let may_be_old = !is_changed.get();
            if look_at(kv, b"k", seed).await.as_deref() == Some(b"old") {
                assert!(may_be_old, "seed {seed}: an old value");
                old += 1;
            }
            kv.object.cont().client().env().sleep(LOOK_PAUSE).await;
        }
        old
    };
    join(changing, looking).await.1
}
