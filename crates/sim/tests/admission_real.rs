//! Admission on real engines, over shared memory and TCP, on real files.

use client::{ArrayObj, Client, ConnectOptions, Container};
use sim::LocalSystem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use types::{ContLayout, Durability, ObjType, Result};
use wire::admission::AdmissionStat;
use wire::control::{Name, OpenMode};
use wire::obj::Recx;

async fn open(client: &Client) -> Result<Container> {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await?;
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await
}

fn array(cont: &Container, number: u64) -> ArrayObj {
    let class = "SX".parse().unwrap();
    let oid = cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
}

fn set(cont: &Container, props: &[(&str, &str)]) {
    let props = props.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    cont.pool().client().block_on(cont.pool().set_props(props)).unwrap();
}

fn stats(cont: &Container) -> Vec<AdmissionStat> {
    let asked = cont.pool().client().block_on(cont.pool().admission()).unwrap();
    asked.into_iter().map(|(_, stat)| stat.unwrap()).collect()
}

fn settled(cont: &Container) -> Vec<AdmissionStat> {
    for _ in 0..2_000 {
        let now = stats(cont);
        let busy = |gate: &wire::admission::GateStat| gate.waiting + gate.at_work as u64;
        if now.iter().all(|stat| busy(&stat.writers) + busy(&stat.readers) == 0) {
            return now;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("transfers never end: {:?}", stats(cont));
}

/// Writes and reads back until told to stop, at least some rounds.
fn worker(mut options: ConnectOptions, number: u64, stop: &AtomicBool, rounds: &AtomicU64) {
    options.job = format!("job{}", number % 2);
    let client = Client::connect(options).unwrap();
    client.block_on(async {
        let cont = open(&client).await.unwrap();
        for round in 0u64.. {
            if round >= 5 && stop.load(Ordering::Relaxed) {
                break;
            }
            let data: Vec<u8> =
                (0..3_000_000u64).map(|at| (at * 7 / 3 + number + round) as u8).collect();
            let range = [Recx { index: 0, count: data.len() as u64 }];
            let file = array(&cont, number);
            file.write(&range, &[&data]).await.unwrap();
            let mut room = vec![0; data.len()];
            file.read(&range, &mut [&mut room]).await.unwrap();
            assert!(room == data, "client {number}, round {round}");
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    });
}

#[test]
fn limits_hold_over_shared_memory_and_tcp_and_change_under_load() {
    for durability in [Durability::Wal, Durability::Memory] {
        let system = LocalSystem::start(1, 2).unwrap();
        let client = system.client(false).unwrap();
        let cont = system.container(&client, durability, ContLayout::Plain).unwrap();
        set(&cont, &[("ioc_max_writers", "1"), ("ioc_max_readers", "1")]);
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|threads| {
            for number in 0..6 {
                // Half of them on this host, half as if elsewhere.
                let options = system.options(number % 2 == 0);
                let (stop, rounds) = (&stop, &rounds);
                threads.spawn(move || worker(options, number, stop, rounds));
            }
            while rounds.load(Ordering::Relaxed) < 6 {
                std::thread::sleep(Duration::from_millis(5));
            }
            for stat in stats(&cont) {
                assert_eq!(stat.writers.at_work_max, 1, "{stat:?}");
                assert_eq!(stat.readers.at_work_max, 1, "{stat:?}");
                assert!(stat.writers.granted > 0 && stat.readers.granted > 0, "{stat:?}");
            }
            for value in ["auto", "off", "2"] {
                set(&cont, &[("ioc_max_writers", value), ("ioc_max_readers", value)]);
                let before = rounds.load(Ordering::Relaxed);
                while rounds.load(Ordering::Relaxed) < before + 6 {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let now = settled(&cont);
        for stat in &now {
            assert_eq!(stat.writers.limit_now, 2);
            let jobs: Vec<&str> = stat.writers.jobs.iter().map(|job| job.job.as_str()).collect();
            assert!(jobs.contains(&"job0") && jobs.contains(&"job1"), "{jobs:?}");
            assert_eq!(stat.writers.lapsed + stat.readers.lapsed, 0, "{stat:?}");
        }
    }
}

/// Clients that vanish while they wait leave nothing behind; the engine stops at once though
/// others still wait, and they go on when it is back.
#[test]
fn vanished_clients_and_a_restart_under_a_queue() {
    let mut system = LocalSystem::start(1, 1).unwrap();
    let client = system.client(false).unwrap();
    let cont = system.container(&client, Durability::Wal, ContLayout::Plain).unwrap();
    set(&cont, &[("ioc_max_writers", "1"), ("ioc_max_readers", "1")]);
    let data = vec![7u8; 8 << 20];
    let range = [Recx { index: 0, count: data.len() as u64 }];
    for tcp_only in [false, true] {
        let doomed = system.client(tcp_only).unwrap();
        let doomed_cont = doomed.block_on(open(&doomed)).unwrap();
        let files: Vec<ArrayObj> = (0..20).map(|number| array(&doomed_cont, number)).collect();
        let parts = [&data[..]];
        let writes = files.iter().map(|file| file.write(&range, &parts));
        let limited = doomed.env().timeout(Duration::from_millis(3), async {
            futures_util::future::join_all(writes).await;
        });
        // Ended or not: what is still under way is given up here.
        doomed.block_on(limited);
        drop(files);
        drop(doomed_cont);
        drop(doomed);
        settled(&cont);
    }
    let options = system.options(true);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for number in 0..4 {
            let (mut options, stop, rounds) = (options.clone(), &stop, &rounds);
            options.timeout = Duration::from_secs(60);
            // The port changes with the restart; the socket's path does not.
            options.tcp_only = false;
            threads.spawn(move || worker(options, 100 + number, stop, rounds));
        }
        while rounds.load(Ordering::Relaxed) < 4 {
            std::thread::sleep(Duration::from_millis(5));
        }
        system.stop_engine(0).unwrap();
        system.start_engine(0).unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    assert!(rounds.load(Ordering::Relaxed) >= 20);
    // The engine is told again soon after its start.
    while settled(&cont)[0].writers.limit_now != 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
}
