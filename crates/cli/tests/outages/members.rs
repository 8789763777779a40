//! Engines that are killed, back, excluded: what the system says of them.

use crate::harness::{self, System};
use client::{Client, ConnectOptions, Container, KvObj, SystemAddress};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use types::ObjType;
use wire::control::{ControlReply, ControlRequest, Name, OpenMode};
use wire::obj::Cond;

/// Waits until engine 1 has this state; what the system says of it then.
fn until(system: &System, state: &str) -> Value {
    loop {
        let engine = system.json(&["system", "list-engines"])[1].clone();
        if engine["state"] == state {
            return engine;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// With one engine of two dead, no pool could be made without naming targets, and nothing but the silence said why.
#[test]
fn an_engine_that_is_killed_is_down_until_it_is_back() {
    let system = System::up(2, 1);
    system.ok(&["pool", "create", "tank", "--size", "128MiB"]);
    let joined = until(&system, "up");
    let text = std::fs::read_to_string(system.dir().join("engine1/engine.pid")).unwrap();
    let pid = text.split_whitespace().next().unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let down = until(&system, "down");
    assert!(down["why"].as_str().unwrap().contains("no answer for"), "{down}");
    assert!(down["since_version"].as_u64() > joined["since_version"].as_u64(), "{down}");
    let told = system.ok(&["pool", "create", "small", "--size", "128MiB"]);
    assert!(told.contains("over 1 target,") && told.contains("Engine 1 left out"), "{told}");
    assert!(system.ok(&["system", "query"]).contains("Engine 1 is down since change"));
    system.ok(&["up"]);
    until(&system, "up");
    let told = system.ok(&["pool", "create", "large", "--size", "128MiB"]);
    assert!(told.contains("over 2 targets") && !told.contains("left out"), "{told}");

    system.ok(&["system", "exclude", "1", "--why", "a bad fan"]);
    let excluded = until(&system, "excluded");
    assert_eq!(excluded["why"], "a bad fan");
    let pool = system.json(&["pool", "query", "large"]);
    assert_eq!(pool["targets"][1]["reason"], "excluded");
    assert_eq!(pool["targets"][1]["since_map_version"], pool["map_version"]);
    let target = || system.json(&["pool", "query", "large"])["targets"][1].clone();
    system.ok(&["system", "clear-exclude", "1"]);
    until(&system, "up");
    // By itself, once it has caught up.
    while target()["state"] != "up" {
        thread::sleep(Duration::from_millis(100));
    }
    system.fails(3, &["no engine 9"], &["system", "exclude", "9"]);

    // What happened is told afterwards, in its order, by the engine that noticed it.
    let events = |args: &[&str]| {
        let told = system.json(&[&["system", "events"], args].concat());
        told.as_array().unwrap().clone()
    };
    let all = events(&[]);
    let of_engine = |event: &&Value| event["engine"] == 1 && event["by"] == 0;
    let codes: Vec<&str> =
        all.iter().filter(of_engine).map(|event| event["code"].as_str().unwrap()).collect();
    let wanted = ["engine-joined", "engine-down", "engine-up", "engine-excluded", "engine-up"];
    let mut rest = codes.iter();
    assert!(wanted.iter().all(|code| rest.any(|told| told == code)), "{all:?}");
    let excluded = all.iter().find(|event| event["code"] == "engine-excluded").unwrap();
    assert!(excluded["what"].as_str().unwrap().contains("a bad fan"), "{excluded}");
    assert!(excluded["to_do"].as_str().unwrap().contains("clear-exclude"), "{excluded}");
    // One that was killed goes on with what it had noticed before.
    let own = events(&["--engine", "1", "--code", "engine-started"]);
    let numbers: Vec<u64> = own.iter().map(|event| event["number"].as_u64().unwrap()).collect();
    assert!(numbers.len() == 2 && numbers[0] < numbers[1], "{own:?}");
    let down = events(&["--severity", "error", "--since", "1h"]);
    assert!(down.iter().any(|event| event["code"] == "engine-down"), "{down:?}");
    assert!(down.iter().all(|event| event["severity"] == "error"), "{down:?}");
    assert_eq!(events(&["--since", "2099-01-01T00:00:00Z"]).len(), 0);
    // Who comes with a wrong secret is seen.
    let token = system.path("token");
    std::fs::write(&token, "guessed").unwrap();
    let address = system.json(&["system", "list-engines"])[0]["tcp"].as_str().unwrap().to_string();
    let mut stranger = harness::azekura();
    stranger.args(["--system", &format!("tcp://{address}"), "pool", "list"]);
    let output = stranger.env("AZEKURA_TOKEN_FILE", &token).output().unwrap();
    assert_eq!(output.status.code(), Some(8), "{}", harness::all_text(&output));
    let refused = events(&["--code", "caller-refused"]);
    assert_eq!(refused[0]["object"], "127.0.0.1", "{refused:?}");
    let text = system.ok(&["system", "events", "--code", "caller-refused"]);
    assert!(text.contains("warning") && text.contains("-> If it should be let in"), "{text}");
    system.fails(2, &["there are engine-started"], &["system", "events", "--code", "nonsense"]);
    system.fails(3, &["list-engines"], &["system", "events", "--engine", "9"]);

    // An engine that does not run has left them in its directory.
    system.ok(&["down"]);
    let dir = system.dir().join("engine0").display().to_string();
    let kept = events(&["--from-dir", &dir]);
    let last = kept.last().unwrap();
    assert_eq!(last["code"], "engine-stopping", "{last}");
    assert!(kept.iter().any(|event| event["code"] == "engine-down"), "{kept:?}");
}

fn client_of(system: &System) -> Client {
    let mut options = ConnectOptions::new(SystemAddress::from_dir(&system.dir()).unwrap());
    options.timeout = Duration::from_secs(120);
    Client::connect(options).unwrap()
}

async fn open(client: &Client) -> Container {
    let name = |text: &str| Name::Label(text.into());
    let pool = client.pool_open(&name("tank"), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&name("home"), OpenMode::ReadWrite).await.unwrap()
}

fn note(known: &Mutex<(u32, Instant)>, version: u32) {
    let mut known = known.lock().unwrap();
    if version > known.0 {
        *known = (version, Instant::now());
    }
}

/// Three processes and sixteen clients that write to all targets: each has each new map by the answer to what it does anyway. How
/// long that takes is printed, from the order to exclude an engine, or to take it back, to the last client.
#[test]
fn all_clients_that_work_have_each_new_map() {
    const CLIENTS: usize = 16;
    const CHANGES: usize = 8;
    let system = System::up(3, 1);
    system.ok(&["pool", "create", "tank", "--size", "384MiB", "--durability", "memory"]);
    system.ok(&["cont", "create", "tank", "home"]);
    // The version of the map that each client has, and since when.
    let known: Vec<_> = (0..CLIENTS).map(|_| Mutex::new((0, Instant::now()))).collect();
    let is_over = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        for (at, known) in known.iter().enumerate() {
            let (system, is_over) = (&system, &is_over);
            scope.spawn(move || {
                let client = client_of(system);
                client.block_on(async {
                    let cont = open(&client).await;
                    for number in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        let class = "S1".parse().unwrap();
                        let number = number % 64;
                        let oid =
                            cont.generate_oid(ObjType::KvHashed, class, at as u32, number).unwrap();
                        let kv = KvObj { object: cont.object(oid) };
                        kv.put(None, Cond::NONE, b"k", b"v").await.unwrap();
                        let version = cont.pool().map().version;
                        note(known, version);
                        client.env().sleep(Duration::from_millis(10)).await;
                    }
                });
            });
        }
        let client = client_of(&system);
        let all_have = |version: u32| loop {
            let states: Vec<_> = known.iter().map(|known| *known.lock().unwrap()).collect();
            if states.iter().all(|(known, _)| *known >= version) {
                return states.into_iter().map(|(_, at)| at).max().unwrap();
            }
            thread::sleep(Duration::from_millis(5));
        };
        let newest = || {
            let query = ControlRequest::PoolQuery(Name::Label("tank".into()));
            match client.block_on(client.control(&query)).unwrap() {
                ControlReply::Pool(pool) => pool.map.version,
                other => panic!("{other:?}"),
            }
        };
        all_have(newest());
        let mut longest = Duration::ZERO;
        for at in 0..CHANGES {
            let (rank, why) = (types::Rank(1 + at as u32 / 2 % 2), String::new());
            let request = match at % 2 {
                0 => ControlRequest::SystemExclude { rank, why },
                _ => ControlRequest::SystemClearExclude { rank },
            };
            let begun = Instant::now();
            client.block_on(client.control(&request)).unwrap();
            let took = all_have(newest()).saturating_duration_since(begun);
            println!("change {at}: with the last of {CLIENTS} clients after {took:?}");
            longest = longest.max(took);
            // Targets that are taken back catch up, which are changes, too.
            let mut version = 0;
            while at % 2 == 1 && version != newest() {
                version = newest();
                thread::sleep(Duration::from_millis(500));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        longest
    });
    println!("the longest: {longest:?}");
}
