//! Real engines over real sockets, shared memory and files: what simulation cannot show.

use client::{ArrayObj, Client, Code, ConnectOptions, Container, EventQueue, KvObj, SystemAddress};
use engine::{CatalogConfig, Engine, EngineConfig, StoreConfig, TargetConfig};
use sim::LocalSystem;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use types::{ContLayout, ContProps, Durability, Epoch, ObjType, TargetId};
use uuid::Uuid;
use wire::cell::{CellAsk, CellRequest, Stripe};
use wire::control::{ControlRequest, Name, OpenMode};
use wire::member::{MemberAsk, MemberRequest};
use wire::obj::Sums;
use wire::obj::{AdminOp, Batch, Cond, Op, Recx, Request, TxId, TxOutcome};
use wire::order::Orders;

fn kv(cont: &Container, number: u64) -> KvObj {
    let oid = cont.generate_oid(ObjType::KvHashed, "SX".parse().unwrap(), 0, number).unwrap();
    KvObj { object: cont.object(oid) }
}

fn array(cont: &Container, class: &str) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, 77).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
}

#[test]
fn data_over_shared_memory_and_tcp_for_each_durability() {
    for durability in [Durability::Memory, Durability::Relaxed, Durability::Wal] {
        let system = LocalSystem::start(2, 2).unwrap();
        let local = system.client(false).unwrap();
        let cont = system.container(&local, durability, ContLayout::Plain).unwrap();
        let data: Vec<u8> = (0..5_000_000u32).map(|n| (n * 7 / 3) as u8).collect();
        let whole = [Recx { index: 12_345, count: data.len() as u64 }];
        local.block_on(async {
            array(&cont, "SX").write(&whole, &[&data[..1_000], &data[1_000..]]).await.unwrap();
            for number in 0..200u64 {
                kv(&cont, 1).put(None, Cond::NONE, &number.to_le_bytes(), b"v").await.unwrap();
            }
        });
        let remote = system.client(true).unwrap();
        remote.block_on(async {
            let pool =
                remote.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
            let cont = pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap();
            let mut room = vec![0; data.len()];
            let (front, back) = room.split_at_mut(3_333_333);
            let known = array(&cont, "SX").read(&whole, &mut [front, back]).await.unwrap();
            assert_eq!(known, 12_345 + data.len() as u64);
            assert!(room == data);
            for number in 0..200u64 {
                let value = kv(&cont, 1).get(None, &number.to_le_bytes()).await.unwrap();
                assert_eq!(value.as_deref(), Some(&b"v"[..]));
            }
            assert_eq!(pool.query().await.unwrap().targets.len(), 4);
        });
    }
}

#[test]
fn event_queues_run_many_operations_at_once() {
    let system = LocalSystem::start(1, 2).unwrap();
    for tcp_only in [false, true] {
        let client = system.client(tcp_only).unwrap();
        let cont = match tcp_only {
            false => system.container(&client, Durability::Wal, ContLayout::Plain).unwrap(),
            true => client.block_on(async {
                let name = Name::Label("p".into());
                let pool = client.pool_open(&name, OpenMode::ReadWrite).await.unwrap();
                pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
            }),
        };
        let queue: EventQueue<u64> = EventQueue::new(&client);
        assert!(queue.poll(10, None).is_empty(), "nothing runs, so there is nothing to wait for");
        let mut launched = BTreeMap::new();
        for number in 0..100u64 {
            let kv = kv(&cont, 9);
            let event = queue.launch(async move {
                let value = vec![number as u8; 100 * number as usize];
                kv.put(None, Cond::NONE, &number.to_le_bytes(), &value).await?;
                let found = kv.get(None, &number.to_le_bytes()).await?;
                assert!(found == Some(value));
                Ok(number)
            });
            launched.insert(event.id(), number);
        }
        assert_eq!(queue.query(), (100, 0));
        let mut done = 0;
        while done < 100 {
            for (id, outcome) in queue.poll(7, Some(Duration::from_secs(20))) {
                assert_eq!(launched.remove(&id), Some(outcome.unwrap()));
                done += 1;
            }
        }
        assert_eq!(queue.query(), (0, 0));
        // One that would wait for ever is aborted; errors come with their event.
        let forever = queue.launch(std::future::pending());
        assert!(queue.poll(1, Some(Duration::from_millis(5))).is_empty());
        forever.abort();
        let aborted = queue.poll(1, None);
        assert_eq!(aborted[0].0, forever.id());
        assert_eq!(aborted[0].1.as_ref().unwrap_err().code, Code::Canceled);
        let kv = kv(&cont, 9);
        let failing = queue.launch(async move {
            kv.put(None, Cond::DKEY_INSERT, &1u64.to_le_bytes(), b"v").await.map(|()| 0)
        });
        let failed = queue.poll(1, None);
        assert_eq!(failed[0].0, failing.id());
        assert_eq!(failed[0].1.as_ref().unwrap_err().code, Code::Exist);
    }
}

#[test]
fn a_clean_restart_keeps_everything_and_open_clients_go_on() {
    let mut system = LocalSystem::start(1, 2).unwrap();
    let client = system.client(false).unwrap();
    let cont = system.container(&client, Durability::Wal, ContLayout::Plain).unwrap();
    let data = vec![0x5a; 3_000_000];
    let whole = [Recx { index: 0, count: data.len() as u64 }];
    client.block_on(async {
        array(&cont, "SX").write(&whole, &[&data]).await.unwrap();
        kv(&cont, 1).put(None, Cond::NONE, b"k", b"v").await.unwrap();
    });
    system.stop_engine(0).unwrap();
    system.start_engine(0).unwrap();
    client.block_on(async {
        let mut room = vec![0; data.len()];
        array(&cont, "SX").read(&whole, &mut [&mut room]).await.unwrap();
        assert!(room == data);
        assert_eq!(kv(&cont, 1).get(None, b"k").await.unwrap().as_deref(), Some(&b"v"[..]));
    });
}

#[test]
fn garbage_on_the_port_harms_nobody() {
    let system = LocalSystem::start(1, 1).unwrap();
    let client = system.client(true).unwrap();
    let cont = system.container(&client, Durability::Memory, ContLayout::Plain).unwrap();
    let tcp = match &system.options(true).system.engines[1] {
        transport::Address::Tcp(address) => address.clone(),
        other => panic!("{other:?}"),
    };
    let mut seed = 1u64;
    for bytes in [1usize, 39, 40, 41, 5_000, 300_000] {
        let garbage: Vec<u8> = (0..bytes)
            .map(|_| {
                seed = types::hash::mix(seed);
                seed as u8
            })
            .collect();
        let mut stream = TcpStream::connect(&tcp).unwrap();
        // The engine may close while we still write.
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut answer = Vec::new();
        // Closed in bounded time: an end or a reset, not a time-out.
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "{bytes} bytes: still open");
        }
    }
    client.block_on(async {
        kv(&cont, 1).put(None, Cond::NONE, b"k", b"v").await.unwrap();
    });
}

#[test]
fn another_wire_version_is_told_so() {
    let system = LocalSystem::start(1, 1).unwrap();
    let tcp = match &system.options(true).system.engines[1] {
        transport::Address::Tcp(address) => address.clone(),
        other => panic!("{other:?}"),
    };
    let hello = wire::hello::Hello {
        client: types::ClientId(1),
        service: wire::hello::Service::Control,
        nonce: [1; 32],
        job: "",
        pid: 0,
        memory_word_address: 0,
        memory_word: 0,
    };
    let body = wire::encode(&hello);
    let mut frame = wire::Header::new(wire::Kind::Hello, 1, &body, 0).encode();
    frame[4] = wire::WIRE_VERSION as u8 + 1;
    let crc = wire::header::crc(&frame[..36]).to_le_bytes();
    frame[36..40].copy_from_slice(&crc);
    let mut stream = TcpStream::connect(tcp).unwrap();
    stream.write_all(&frame).unwrap();
    stream.write_all(&body).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let header =
        |raw: &[u8]| wire::Header::decode(raw[..wire::HEADER_BYTES].try_into().unwrap()).unwrap();
    let challenge = header(&answer);
    assert_eq!(challenge.kind, wire::Kind::Challenge);
    let answer = &answer[wire::HEADER_BYTES + challenge.body_bytes as usize..];
    assert_eq!(header(answer).kind, wire::Kind::HelloReply);
    let refused: Result<wire::hello::HelloReply, types::Error> =
        wire::decode(&answer[wire::HEADER_BYTES..]).unwrap();
    let error = refused.unwrap_err();
    assert_eq!(error.code, Code::Version, "{error}");
    assert!(error.to_string().contains("version"), "{error}");
}

/// An engine that has stood still may still send orders when another has taken over the control service,
/// and would undo what that one did.
#[test]
fn orders_of_an_earlier_control_service_are_refused() {
    use wire::obj::{AdminOp, AdminReply, Request};
    let system = LocalSystem::start(1, 1).unwrap();
    let client = system.client(false).unwrap();
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
        let address = transport::Address::Tcp(engine.tcp);
        let conn = transport::connect(client.env(), &address, &dial).await.unwrap();
        for (request_id, term, is_obeyed) in
            [(1, 7, true), (2, 6, false), (3, 7, true), (4, 8, true)]
        {
            let op = AdminOp::DestroyShard { pool: types::PoolId(99) };
            let call = transport::Call {
                kind: wire::Kind::Request,
                request_id,
                flags: 0,
                map_version: 0,
                deadline: Duration::from_secs(600),
                body: &wire::encode(&Request::Admin { term, op }),
                bulk_out: &[],
                bulk_in: &mut [],
            };
            let answer = conn.call(call).await.unwrap();
            let outcome = wire::decode::<Result<AdminReply, types::Error>>(&answer.body).unwrap();
            assert_eq!(outcome.err().map(|error| error.code), (!is_obeyed).then_some(Code::Busy));
        }
    });
}

#[test]
fn a_full_pool_says_so_and_removing_still_works() {
    let system = LocalSystem::start(1, 1).unwrap();
    let client = system.client(false).unwrap();
    client.block_on(async {
        let request = ControlRequest::PoolCreate {
            placement: types::PlacementRule::default(),
            label: "small".into(),
            bytes: 32 << 20,
            scm_percent: 50,
            durability: Durability::Memory,
            targets: Vec::new(),
        };
        client.pool_create(request).await.unwrap();
        let name = Name::Label("small".into());
        let pool = client.pool_open(&name, OpenMode::ReadWrite).await.unwrap();
        pool.cont_create("c", Uuid::nil(), ContProps::default(), BTreeMap::new()).await.unwrap();
        let cont = pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap();
        let array = array(&cont, "S1");
        let piece = vec![1u8; 1 << 20];
        let mut written = 0u64;
        let full = loop {
            match array.write(&[Recx { index: written, count: 1 << 20 }], &[&piece]).await {
                Ok(()) => written += 1 << 20,
                Err(error) => break error,
            }
            assert!(written < 64 << 20, "the pool has no end");
        };
        assert_eq!(full.code, Code::NoSpace, "{full}");
        assert!(written >= 12 << 20, "only {written} bytes of 16 MiB fitted");
        let filled = pool.query().await.unwrap().total;
        array.destroy().await.unwrap();
        let emptied = pool.query().await.unwrap().total;
        assert!(emptied.nvme_free_bytes >= filled.nvme_free_bytes + written);
        array.write(&[Recx { index: 0, count: 1 << 20 }], &[&piece]).await.unwrap();
        // The same for the tier of small things.
        let kv = kv(&cont, 5);
        let value = vec![2u8; 3_000];
        let mut count = 0u64;
        let full = loop {
            match kv.put(None, Cond::NONE, &count.to_le_bytes(), &value).await {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
            assert!(count < 100_000, "the index tier has no end");
        };
        assert_eq!(full.code, Code::NoSpace, "{full}");
        for key in 0..count {
            kv.remove(None, Cond::PUNCH, &key.to_le_bytes()).await.unwrap();
        }
        kv.put(None, Cond::NONE, b"again", &value).await.unwrap();
        // Destroying the container gives everything back.
        drop(kv);
        pool.cont_destroy(Name::Label("c".into()), true).await.unwrap();
        let space = pool.query().await.unwrap().total;
        assert_eq!(space.nvme_free_bytes, space.nvme_bytes);
        assert_eq!(space.object_count, 0);
    });
}

#[test]
fn an_object_unlinked_while_open_lives_until_its_client_is_gone() {
    let system = LocalSystem::start(1, 1).unwrap();
    let owner = system.client(false).unwrap();
    let cont = system.container(&owner, Durability::Memory, ContLayout::Plain).unwrap();
    let data = vec![3u8; 100_000];
    let whole = [Recx { index: 0, count: data.len() as u64 }];
    let holder = system.client(false).unwrap();
    let oid = array(&cont, "S1").oid;
    owner.block_on(array(&cont, "S1").write(&whole, &[&data])).unwrap();
    holder.block_on(async {
        let pool = holder.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
        let cont = pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap();
        let mut batch = cont.batch();
        batch.op(Op::Open { unit: oid.first_unit() });
        batch.run().await.unwrap();
    });
    let size = || owner.block_on(array(&cont, "S1").size()).unwrap();
    owner.block_on(async {
        let mut batch = cont.batch();
        batch.op(Op::PunchUnlessOpen { unit: oid.first_unit() });
        batch.run().await.unwrap();
    });
    assert_eq!(size(), 100_000);
    // The holder ends without a word, as a killed process does.
    drop(holder);
    for _ in 0..200 {
        if size() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the object of a client that is gone was never freed");
}

const HOLDER_VAR: &str = "SIM_TEST_HOLDS_OPEN";

/// Not a test of its own: a client of another process that holds an object open until it is killed.
#[test]
fn holder_process() {
    let Ok(unix) = std::env::var(HOLDER_VAR) else { return };
    let engines = vec![transport::Address::Unix(unix.into())];
    let system = client::SystemAddress { engines, token: Vec::new() };
    let holder = client::Client::connect(client::ConnectOptions::new(system)).unwrap();
    holder.block_on(async {
        let pool = holder.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
        let cont = pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap();
        let mut batch = cont.batch();
        batch.op(Op::Open { unit: array(&cont, "S1").oid.first_unit() });
        batch.run().await.unwrap();
    });
    println!("holding");
    // The other end of it is closed, or this process is killed.
    let _ = std::io::stdin().read(&mut [0]);
}

/// What a process had open that died while there was no engine was kept for half a minute after each start.
#[test]
fn who_died_without_an_engine_is_not_waited_for() {
    let mut system = LocalSystem::start(1, 1).unwrap();
    let owner = system.client(false).unwrap();
    let cont = system.container(&owner, Durability::Wal, ContLayout::Plain).unwrap();
    let data = vec![3u8; 5000];
    let whole = [Recx { index: 0, count: data.len() as u64 }];
    let size = |cont: &Container| owner.block_on(array(cont, "S1").size()).unwrap();
    for dies in [false, true] {
        owner.block_on(array(&cont, "S1").write(&whole, &[&data])).unwrap();
        let unix = system.dir().join("engine0/engine.sock");
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["holder_process", "--exact", "--nocapture"])
            .env(HOLDER_VAR, unix)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("holding")));
        system.stop_engine(0).unwrap();
        if dies {
            holder.kill().unwrap();
            holder.wait().unwrap();
        }
        system.start_engine(0).unwrap();
        owner.block_on(async {
            let mut batch = cont.batch();
            batch.op(Op::PunchUnlessOpen { unit: array(&cont, "S1").oid.first_unit() });
            batch.run().await.unwrap();
        });
        let left = size(&cont);
        // The other one is alive, and has perhaps said so already.
        assert_eq!(left, if dies { 0 } else { 5000 }, "dies: {dies}");
        holder.kill().unwrap();
        holder.wait().unwrap();
        while size(&cont) > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn two_engines_on_one_directory_or_device_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = |name: &str, device: &str| EngineConfig {
        dir: dir.path().join(name),
        listen: "127.0.0.1:0".into(),
        advertise: None,
        join: Vec::new(),
        domain: Vec::new(),
        token_file: None,
        admin_token_file: None,
        insecure: false,
        message_memory: None,
        down_after_s: None,
        rebuild_after_s: None,
        failover: false,
        metrics: None,
        catalog: CatalogConfig::default(),
        store: StoreConfig::default(),
        targets: vec![TargetConfig::on(dir.path().join(device))],
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let first = EngineConfig { listen: free.to_string(), ..config("a", "t") };
    let first = Engine::start(first).unwrap();
    let same_dir = Engine::start(config("a", "u")).err().unwrap();
    assert_eq!(same_dir.code, Code::Busy, "{same_dir}");
    let same_device = Engine::start(config("b", "t")).err().unwrap();
    assert_eq!(same_device.code, Code::Busy, "{same_device}");
    // Nor does one that is to join come to be known to the system by such a start: it was a member that is down, for good.
    let joining = EngineConfig { join: vec![free.to_string()], ..config("c", "t") };
    let same_device = Engine::start(joining).err().unwrap();
    assert_eq!(same_device.code, Code::Busy, "{same_device}");
    assert!(same_device.text.contains("in use by another engine"), "{same_device}");
    let of_first = transport::Address::Tcp(free.to_string());
    let system = SystemAddress { engines: vec![of_first], token: Vec::new() };
    let client = Client::connect(ConnectOptions::new(system)).unwrap();
    let members = client.block_on(client.system_query()).unwrap().members;
    assert_eq!(members.len(), 1, "{members:?}");
    first.stop().unwrap();
    Engine::start(config("a", "t")).unwrap().stop().unwrap();
}

#[test]
fn a_token_keeps_strangers_out() {
    let dir = tempfile::tempdir().unwrap();
    let token_file = dir.path().join("token");
    std::fs::write(&token_file, "secret\n").unwrap();
    let engine = Engine::start(EngineConfig {
        dir: dir.path().join("e"),
        listen: "127.0.0.1:0".into(),
        advertise: None,
        join: Vec::new(),
        domain: Vec::new(),
        token_file: Some(token_file),
        admin_token_file: None,
        insecure: false,
        message_memory: None,
        down_after_s: None,
        rebuild_after_s: None,
        failover: false,
        metrics: None,
        catalog: CatalogConfig::default(),
        store: StoreConfig::default(),
        targets: vec![TargetConfig::on(dir.path().join("t"))],
    })
    .unwrap();
    let options = |token: &[u8]| {
        client::ConnectOptions::new(client::SystemAddress {
            engines: vec![transport::Address::Tcp(engine.tcp.to_string())],
            token: token.to_vec(),
        })
    };
    for wrong in [&b""[..], b"secre", b"secret2"] {
        let error = client::Client::connect(options(wrong)).err().unwrap();
        assert_eq!(error.code, Code::NoPerm, "{error}");
    }
    client::Client::connect(options(b"secret")).unwrap();
}

/// A member of a group takes what its leader orders as the truth, and a target what a coordinator says of a transaction's
/// outcome; any client once could say both.
#[test]
fn who_has_the_clients_secret_speaks_for_no_engine_and_changes_no_system() {
    let system = LocalSystem::start_guarded(2, 1, ["clients", "engines"]).unwrap();
    let admin = system.client(true).unwrap();
    let copies = system.container(&admin, Durability::Wal, ContLayout::Plain).unwrap();
    let mut options = system.options(true);
    options.system.token = b"clients".to_vec();
    for first in 0..2 {
        // Whichever engine it asks: one holds the control service, the other passes requests on.
        let mut options = options.clone();
        options.system.engines.rotate_left(first * 2);
        let user = client::Client::connect(options).unwrap();
        user.block_on(async {
            let pool = user.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
            let name = format!("own{first}");
            pool.cont_create(&name, Uuid::nil(), ContProps::default(), BTreeMap::new())
                .await
                .unwrap();
            let cont = pool.cont_open(&Name::Label(name), OpenMode::ReadWrite).await.unwrap();
            let oid =
                cont.generate_oid(ObjType::KvHashed, "RP_2G1".parse().unwrap(), 0, 5).unwrap();
            let both = KvObj { object: cont.object(oid) };
            both.put(None, Cond::NONE, b"k", b"v").await.unwrap();
            assert_eq!(both.get(None, b"k").await.unwrap().as_deref(), Some(&b"v"[..]));
            let pool = Name::Label("p".into());
            let refused = [
                ControlRequest::PoolDestroy { pool: pool.clone(), force: true },
                ControlRequest::PoolRebuild { pool: pool.clone(), runs: false },
                ControlRequest::SystemExclude { rank: types::Rank(1), why: String::new() },
                ControlRequest::EngineStop { with_all: true },
                ControlRequest::TargetCaughtUp {
                    pool: user.pool_open(&pool, OpenMode::ReadOnly).await.unwrap().map().pool,
                    target: types::TargetId(0),
                    map_version: 1,
                },
            ];
            for request in refused {
                let error = user.control(&request).await.unwrap_err();
                assert_eq!(error.code, Code::NoPerm, "{request:?}: {error}");
                assert!(error.to_string().contains("admin_token_file"), "{error}");
            }
        });
    }
    admin.block_on(async {
        let map = sim::members::newest_map(&admin).await.unwrap();
        let (pool, map_version, cont) = (map.pool, map.version, copies.id());
        let targets: Vec<TargetId> = map.targets.iter().map(|target| target.id).collect();
        assert_eq!(targets.len(), 2);
        let tx = TxId { client: types::ClientId(1), seq: 0 };
        let unit = copies
            .generate_oid(ObjType::KvHashed, "RP_2G1".parse().unwrap(), 0, 5)
            .unwrap()
            .first_unit();
        for (target, member) in [(targets[0], targets[1]), (targets[1], targets[0])] {
            let tcp = &map.engine_of(target).unwrap().tcp;
            let digest = Request::Member(MemberRequest {
                pool,
                map_version,
                member,
                newest: Epoch::ZERO,
                ask: MemberAsk::Digest { cont, unit },
            });
            let (checks, ops, sums) = (Vec::new(), Vec::new(), Sums::NONE);
            let batch = Batch { pool, cont, at: Epoch::ZERO, checks, ops, sums };
            let orders = Orders {
                pool,
                from: member,
                map_version,
                stream: 1,
                first: 1,
                settled: 0,
                orders: Vec::new(),
            };
            let cell = |ask| {
                Request::Cell(CellRequest {
                    pool,
                    map_version,
                    from: member,
                    cont,
                    unit,
                    dkey: b"d",
                    akey: b"a",
                    stripe: Stripe { first: 0, version: Epoch(1), cell_bytes: 64 << 10 },
                    ask,
                })
            };
            let requests = [
                &digest,
                &Request::Orders(orders),
                &cell(CellAsk::Put),
                &cell(CellAsk::Get { at: 0, bytes: 1 }),
                &Request::Prepare { tx, coordinator: unit, batch },
                &Request::Decide { pool, tx, unit, outcome: TxOutcome::Aborted },
                &Request::AskOutcome { pool, tx, coordinator: unit },
                &Request::Admin { term: u64::MAX, op: AdminOp::DestroyShard { pool } },
            ];
            for request in requests {
                let answer = told(&admin, tcp, target, b"clients", request).await;
                let error = wire::decode::<Result<(), types::Error>>(&answer).unwrap().unwrap_err();
                assert_eq!(error.code, Code::NoPerm, "{request:?}: {error}");
            }
            let answer = told(&admin, tcp, target, b"engines", &digest).await;
            wire::decode::<Result<u64, types::Error>>(&answer).unwrap().unwrap();
        }
    });
}

/// The body of a target's answer to who shows `token`.
async fn told(
    client: &client::Client,
    tcp: &str,
    target: TargetId,
    token: &[u8],
    request: &Request<'_>,
) -> Vec<u8> {
    let timeout = Duration::from_secs(20);
    let dial = transport::Dial {
        client: types::ClientId(client.env().random_u64()),
        service: wire::hello::Service::Target(target),
        token,
        job: "",
        timeout,
    };
    let address = transport::Address::Tcp(tcp.to_string());
    let conn = transport::connect(client.env(), &address, &dial).await.unwrap();
    let call = transport::Call {
        kind: wire::Kind::Request,
        request_id: 1,
        flags: 0,
        map_version: 0,
        deadline: timeout,
        body: &wire::encode(request),
        bulk_out: &[],
        bulk_in: &mut [],
    };
    conn.call(call).await.unwrap().body
}

#[test]
fn a_client_learns_of_an_engine_that_is_gone_in_bounded_time() {
    let mut system = LocalSystem::start(1, 1).unwrap();
    let mut options = system.options(false);
    options.timeout = Duration::from_millis(800);
    let patient = system.client(false).unwrap();
    system.container(&patient, Durability::Memory, ContLayout::Plain).unwrap();
    // While the engine is there a slow machine may still be slower than this client is patient.
    let (client, cont) = loop {
        let opened = client::Client::connect(options.clone()).and_then(|client| {
            let name = Name::Label("p".into());
            let cont = client.block_on(async {
                let pool = client.pool_open(&name, OpenMode::ReadWrite).await?;
                pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await
            })?;
            Ok((client, cont))
        });
        match opened {
            Err(error) if matches!(error.code, Code::TimedOut | Code::Unreach) => {}
            other => break other.unwrap(),
        }
    };
    system.stop_engine(0).unwrap();
    let error = client.block_on(kv(&cont, 1).put(None, Cond::NONE, b"k", b"v")).unwrap_err();
    assert!(matches!(error.code, Code::TimedOut | Code::Unreach), "{error}");
}
