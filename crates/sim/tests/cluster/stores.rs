//! A target's part of a pool is served when it is the one that is meant, and only then.

use client::KvObj;
use engine::StoreConfig;
use sim::{Cluster, ClusterSpec, LocalSystem, members};
use std::path::Path;
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, Durability, Error, ObjType, TargetId};
use wire::control::{ControlRequest, Name};
use wire::map::DownReason;
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

/// What a target held was given up, and the word that it is to serve again was lost with a connection: nobody told it before its engine was started again
/// (seed 4319 of the swarm's arrays with codes).
#[test]
fn a_reset_target_is_told_until_it_has_heard() {
    const RESET: TargetId = TargetId(2);
    let mut unheard = 0;
    for step in 0..16 {
        let spec = ClusterSpec { seed: step, engines: 3, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), None).unwrap();
        unheard += cluster.block_on(async {
            let client = cluster.client("c");
            let env = client.env();
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let oid =
                cont.generate_oid(ObjType::KvHashed, "RP_2GX".parse().unwrap(), 0, 1).unwrap();
            let kv = KvObj { object: cont.object(oid) };
            for key in 0..20u8 {
                kv.put(None, Cond::NONE, &[key], b"value").await.unwrap();
            }
            cluster.kill_engine(2);
            cluster.world().disk(&Cluster::engine_name(2)).wipe(Path::new("/target0"));
            cluster.start_engine(2).await.unwrap();
            let is_known_lost = |map: &wire::map::PoolMap| {
                let target = map.target(RESET).unwrap();
                !target.holds_its_part() && target.reason != Some(DownReason::Behind)
            };
            members::await_map(&client, is_known_lost).await.unwrap();
            let net = SimNet::of(cluster.world());
            net.set_delay(Duration::from_millis(10), Duration::from_millis(10));
            let (breaking, world) = (net.clone(), cluster.world().node("breaks"));
            world.clone().spawn(async move {
                world.sleep(Duration::from_millis(20 * step)).await;
                breaking.break_connections(&Cluster::engine_name(0), &Cluster::engine_name(2));
            });
            let reset =
                || ControlRequest::PoolResetTarget { pool: Name::Label("p".into()), target: RESET };
            let is_unheard = loop {
                match client.control(&reset()).await {
                    Ok(_) => break false,
                    Err(error) if error.to_string().contains("not served yet") => break true,
                    Err(error) => assert!(error.to_string().contains("was not reset"), "{error}"),
                }
                env.sleep(Duration::from_millis(200)).await;
            };
            let whole = env.timeout(Duration::from_secs(60), members::await_whole(&client)).await;
            let whole = whole.unwrap_or_else(|| panic!("step {step}: not served for a minute"));
            assert_eq!(whole.unwrap(), None, "step {step}");
            u64::from(is_unheard)
        });
    }
    assert!(unheard > 0, "the last word was never lost");
}
