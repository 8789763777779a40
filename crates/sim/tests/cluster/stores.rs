//! A target's part of a pool is served when it is the one that is meant, and only then.

use client::KvObj;
use sim::LocalSystem;
use std::time::Duration;
use types::{Code, ContLayout, Durability, Error, ObjType};
use wire::obj::{AdminOp, AdminReply, Cond, Request};

/// An engine that starts from an old copy of the catalog is told of a part that was there before a reset. It
/// stopped serving what it had, rightly, and did not begin again when it was told the truth.
#[test]
fn a_part_is_served_again_when_it_is_the_one_that_is_meant() {
    let system = LocalSystem::start(1, 1).unwrap();
    let client = system.client(false).unwrap();
    let cont = system.container(&client, Durability::Wal, ContLayout::Plain).unwrap();
    let oid = cont.generate_oid(ObjType::KvHashed, "S1".parse().unwrap(), 0, 1).unwrap();
    let kv = KvObj { object: cont.object(oid) };
    let info = client.block_on(client.system_query()).unwrap();
    let (engine, targets, _) = info.engines[0].clone();
    let dial = transport::Dial {
        client: types::ClientId(77),
        service: wire::hello::Service::Target(targets[0]),
        token: b"",
        job: "",
        timeout: Duration::from_secs(600),
    };
    client.block_on(async {
        kv.put(None, Cond::NONE, b"key", b"value").await.unwrap();
        let address = transport::Address::Tcp(engine.tcp);
        let conn = transport::connect(client.env(), &address, &dial).await.unwrap();
        let pool = cont.pool().map();
        let held = pool.targets[0].incarnation;
        assert_ne!(held, 0);
        let order = async |request_id: u64, op: AdminOp| {
            let call = transport::Call {
                kind: wire::Kind::Request,
                request_id,
                flags: 0,
                map_version: 0,
                deadline: Duration::from_secs(600),
                body: &wire::encode(&Request::Admin { term: 0, op }),
                bulk_out: &[],
                bulk_in: &mut [],
            };
            let answer = conn.call(call).await.unwrap();
            wire::decode::<Result<AdminReply, Error>>(&answer.body).unwrap().unwrap().incarnation
        };
        let serve = |incarnation: u64| AdminOp::ServeShard { pool: pool.pool, incarnation };
        // It says what is there, each time.
        for request_id in [1, 2] {
            assert_eq!(order(request_id, serve(held + 1)).await, held);
            let refused = kv.get(None, b"key").await.unwrap_err();
            assert_eq!(refused.code, Code::Unreach, "{refused}");
        }
        assert_eq!(order(3, serve(held)).await, held);
        // The map went with the part; the control service would send it.
        order(4, AdminOp::SetMap((*pool).clone())).await;
        assert_eq!(kv.get(None, b"key").await.unwrap().unwrap(), b"value");
    });
}
