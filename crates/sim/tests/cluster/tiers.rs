//! Real engines whose targets have devices of two tiers.

use client::{ArrayObj, Client, ConnectOptions, SystemAddress};
use engine::{Engine, EngineConfig, EngineHandle, event_log};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use transport::Address;
use types::{Code, ContLayout, ContProps, Durability, ObjType};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode};
use wire::event::EventCode;
use wire::obj::Recx;

/// Two targets that share one raw data device, and a third with two directories of its own.
fn config(dir: &Path, swap: bool) -> EngineConfig {
    let (first, second) = if swap { ("s1", "s0") } else { ("s0", "s1") };
    let text = format!(
        "dir = '{0}/e'\n[store]\nnvme = ['{0}/raw']\ninline_bytes_max = '8KiB'\n\
         [[target]]\nscm = '{0}/{first}'\n[[target]]\nscm = '{0}/{second}'\n\
         [[target]]\nscm = '{0}/s2'\nnvme = ['{0}/n2', '{0}/n3']\n",
        dir.display()
    );
    EngineConfig::parse(&text, "test").unwrap()
}

fn connect(engine: &EngineHandle) -> Client {
    let engines = vec![Address::Unix(engine.unix.clone())];
    Client::connect(ConnectOptions::new(SystemAddress { engines, token: Vec::new() })).unwrap()
}

#[test]
fn an_engine_serves_from_several_devices_and_knows_them_again() {
    let dir = tempfile::tempdir().unwrap();
    let raw = std::fs::File::create(dir.path().join("raw")).unwrap();
    raw.set_len(256 << 20).unwrap();
    let engine = Engine::start(config(dir.path(), false)).unwrap();
    let client = connect(&engine);
    let data: Vec<u8> = (0..6_000_000u32).map(|n| (n * 7 / 3) as u8).collect();
    let whole = [Recx { index: 5000, count: data.len() as u64 }];
    let array = |cont: &client::Container| {
        let oid = cont.generate_oid(ObjType::ArrayByte, "SX".parse().unwrap(), 0, 77).unwrap();
        ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
    };
    client.block_on(async {
        let too_large = ControlRequest::PoolCreate {
            placement: types::PlacementRule::default(),
            label: "large".into(),
            bytes: 3 << 30,
            scm_percent: 20,
            durability: Durability::Wal,
            targets: Vec::new(),
        };
        let error = client.pool_create(too_large).await.unwrap_err();
        assert_eq!(error.code, Code::NoSpace, "{error}");
        assert!(error.to_string().contains("raw (part 0 of 2)"), "{error}");
        let request = ControlRequest::PoolCreate {
            placement: types::PlacementRule::default(),
            label: "p".into(),
            bytes: 300 << 20,
            scm_percent: 20,
            durability: Durability::Wal,
            targets: Vec::new(),
        };
        client.pool_create(request).await.unwrap();
        let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
        let props = ContProps { layout: ContLayout::Plain, ..ContProps::default() };
        pool.cont_create("c", Uuid::nil(), props, BTreeMap::new()).await.unwrap();
        let cont = pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap();
        array(&cont).write(&whole, &[&data]).await.unwrap();
    });
    drop(client);
    engine.stop().unwrap();
    let swapped = Engine::start(config(dir.path(), true)).err().expect("swapped targets started");
    assert_eq!(swapped.code, Code::Inval, "{swapped}");
    assert!(swapped.to_string().contains("given as number"), "{swapped}");
    let engine = Engine::start(config(dir.path(), false)).unwrap();
    let client = connect(&engine);
    client.block_on(async {
        let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadOnly).await.unwrap();
        let cont = pool.cont_open(&Name::Label("c".into()), OpenMode::ReadOnly).await.unwrap();
        let mut room = vec![0; data.len()];
        array(&cont).read(&whole, &mut [&mut room]).await.unwrap();
        assert!(room == data);
        let space = pool.query().await.unwrap().total;
        assert!(space.nvme_bytes - space.nvme_free_bytes >= data.len() as u64);
        let stats = pool.store_stats().await.unwrap();
        let devices: Vec<usize> =
            stats.iter().map(|(_, stat)| stat.as_ref().unwrap().devices.len()).collect();
        assert_eq!(devices, [2, 2, 3]);
        let log = stats[0].1.as_ref().unwrap().log.as_ref().unwrap();
        assert!(log.replay_records > 0 && !log.failed, "{log:?}");
    });
    drop(client);
    engine.stop().unwrap();
    std::fs::remove_dir_all(dir.path().join("n3")).unwrap();
    let missing = Engine::start(config(dir.path(), false)).err().expect("a device is gone");
    assert!(missing.to_string().contains("/n3 is not there"), "{missing}");
}

/// A device that is cut already has no part for a further target. It is said what to do, nothing has changed, and with that done the target comes.
#[test]
fn a_device_that_is_cut_takes_no_further_target() {
    let dir = tempfile::tempdir().unwrap();
    let raw = std::fs::File::create(dir.path().join("raw")).unwrap();
    raw.set_len(256 << 20).unwrap();
    let before = config(dir.path(), false);
    let with = |device: Option<&str>| {
        let nvme = device.map(|name| dir.path().join(name)).into_iter().collect();
        let scm = Some(dir.path().join("s3"));
        let mut config = before.clone();
        config.targets.push(engine::TargetConfig { scm, nvme, ..Default::default() });
        config
    };
    let engine = Engine::start(before.clone()).unwrap();
    let client = connect(&engine);
    let target_count = || {
        let info = client.block_on(client.system_query()).unwrap();
        info.engines.iter().map(|(_, targets, _)| targets.len()).sum::<usize>()
    };
    let pause = || std::thread::sleep(Duration::from_millis(20));
    engine.grow(with(None));
    let refused = loop {
        let events = event_log::read_dir(&dir.path().join("e")).unwrap();
        let found = events.into_iter().find(|of| of.known() == Some(EventCode::TargetUnserved));
        match found {
            Some(event) => break event.what,
            None => pause(),
        }
    };
    assert!(refused.contains("raw under [store] nvme is no directory"), "{refused}");
    assert!(refused.contains("'nvme' of their own"), "{refused}");
    assert_eq!(target_count(), 3);
    assert!(!dir.path().join("s3").exists(), "it was made before that was looked at");
    engine.grow(with(Some("n4")));
    while target_count() == 3 {
        pause();
    }
    drop(client);
    engine.stop().unwrap();
    // Nor when the engine starts.
    let refused = Engine::start(with(None)).err().expect("a device that is cut was cut anew");
    assert!(refused.to_string().contains("cut into 2 parts"), "{refused}");
    Engine::start(with(Some("n4"))).unwrap().stop().unwrap();
}
