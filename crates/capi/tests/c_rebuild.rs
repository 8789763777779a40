//! What C programs are told of a rebuild, from before it until others stand in, and back.

mod harness;

use harness::{Language, System, check, compile};
use types::{Durability, Result};
use wire::control::{ControlRequest, Name, TargetAim};

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
