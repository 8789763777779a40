//! What C programs are told of a rebuild, from before it until others stand in, and back.

use crate::harness::{Language, System, check, compile};
use client::KvObj;
use std::collections::BTreeMap;
use types::{ContProps, Durability, ObjType, Result};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode, TargetAim};
use wire::obj::Cond;

/// Gives an order to the control service.
fn order(system: &mut System, request: ControlRequest) -> Result<()> {
    let client = system.engines().client(false)?;
    client.block_on(client.control(&request)).map(|_| ())
}

#[test]
fn states_are_those_of_daos() {
    let mut system = System::start_of(3, 1, Durability::Memory);
    let program = compile("rebuild", Language::C, system.scratch.path());
    let expect = |system: &System, role: &str| {
        let mut command = system.command(&program);
        check(role, Language::C, command.args(["tank", "-", role]).output().unwrap());
    };
    let pool = || Name::Label("tank".into());
    let runs = |runs| ControlRequest::PoolRebuild { pool: pool(), runs };
    let client = system.engines().client(false).unwrap();
    let info = client.block_on(client.pool_query(&pool())).unwrap();
    // Some of these are on the one that is drained: they are counted.
    client.block_on(async {
        let pool = client.pool_open(&pool(), OpenMode::ReadWrite).await.unwrap();
        let props = ContProps::default();
        pool.cont_create("things", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
        let name = Name::Label("things".into());
        let cont = pool.cont_open(&name, OpenMode::ReadWrite).await.unwrap();
        for number in 1..40 {
            let class = "S1".parse().unwrap();
            let oid = cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap();
            let kv = KvObj { object: cont.object(oid) };
            kv.put(None, Cond::NONE, b"key", &[7; 500]).await.unwrap();
        }
    });
    drop(client);
    let drained = vec![info.map.targets[1].id];
    let aim = |aim| ControlRequest::PoolAim { pool: pool(), targets: drained.clone(), aim };

    expect(&system, "idle");
    order(&mut system, runs(false)).unwrap();
    order(&mut system, aim(TargetAim::Drain)).unwrap();
    expect(&system, "stopped");
    // A drain does not end while somebody else is away, whose objects may be anywhere.
    system.engines().stop_engine(2).unwrap();
    order(&mut system, runs(true)).unwrap();
    expect(&system, "busy");
    system.engines().start_engine(2).unwrap();
    expect(&system, "ends");
    expect(&system, "done");
}
