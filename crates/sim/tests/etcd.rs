//! A real engine whose catalog is in a real etcd.

#[path = "../../control/tests/control/etcd_server.rs"]
#[allow(dead_code)]
mod etcd_server;

use client::{Client, ConnectOptions, SystemAddress};
use engine::{Engine, EngineConfig};
use etcd_server::EtcdServer;
use types::{Code, Durability};
use wire::control::ControlRequest;

fn client_of(engine: &engine::EngineHandle) -> Client {
    let engines = vec![transport::Address::Tcp(engine.tcp.to_string())];
    Client::connect(ConnectOptions::new(SystemAddress { engines, token: Vec::new() })).unwrap()
}

fn create(client: &Client, label: &str) -> types::Result<()> {
    let request = ControlRequest::PoolCreate {
        placement: types::PlacementRule::default(),
        label: label.into(),
        bytes: 64 << 20,
        scm_percent: 20,
        durability: Durability::Memory,
        targets: Vec::new(),
    };
    client.block_on(client.pool_create(request)).map(|_| ())
}

#[test]
fn pools_are_in_etcd_and_wait_only_while_it_is_away() {
    let Some(server) = EtcdServer::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "dir = '{0}/e'\n[catalog]\nkind = 'etcd'\nendpoints = ['{1}']\nprefix = 'test'\n[[target]]\n\
         device = '{0}/t'\n",
        dir.path().display(),
        server.endpoint()
    );
    let config = EngineConfig::parse(&text, "test").unwrap();
    let first = Engine::start(config.clone()).unwrap();
    create(&client_of(&first), "tank").unwrap();
    first.stop().unwrap();

    let again = Engine::start(config).unwrap();
    let client = client_of(&again);
    let pools = client.block_on(client.pool_list()).unwrap();
    assert!(pools.iter().map(|pool| pool.label.as_str()).eq(["tank"]));
    server.kill();
    let error = create(&client, "other").unwrap_err();
    assert_eq!(error.code, Code::Unreach, "{error}");
    assert!(error.text.contains("etcd"), "{error}");
    server.restart();
    while let Err(error) = create(&client, "other") {
        assert!(matches!(error.code, Code::Unreach | Code::TimedOut | Code::Exist), "{error}");
        if error.code == Code::Exist {
            break;
        }
    }
    again.stop().unwrap();
    assert!(!dir.path().join("e/catalog.0").exists());
}
