//! Admission of bulk transfers on simulated clusters: limits hold, nothing is lost or stuck
//! whoever dies, jobs share, transactions go through, and off is off.

use client::{ArrayObj, Client, Container, Pool, Tx};
use futures_util::future::{join, join_all};
use sim::{Cluster, ClusterSpec, seeds};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, Durability, ObjType, Result, TargetId};
use wire::admission::{AdmissionStat, GateStat};
use wire::control::{Name, OpenMode};
use wire::job::JobFigures;
use wire::obj::Recx;

async fn open(client: &Client) -> Result<Container> {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await?;
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await
}

fn array(cont: &Container, class: &str, number: u64) -> ArrayObj {
    let class = class.parse().unwrap();
    let oid = cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 18 }
}

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    (0..bytes).map(|at| (at as u64).wrapping_mul(31).wrapping_add(seed * 7) as u8).collect()
}

fn whole(bytes: usize) -> [Recx; 1] {
    [Recx { index: 0, count: bytes as u64 }]
}

async fn set(pool: &Pool, props: &[(&str, &str)]) {
    let props = props.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    pool.set_props(props).await.unwrap();
}

/// What all targets report; those that are down are left out.
async fn stats(pool: &Pool) -> Vec<AdmissionStat> {
    pool.admission().await.unwrap().into_iter().filter_map(|(_, stat)| stat).collect()
}

/// Sums a figure over targets and directions.
fn sum(stats: &[AdmissionStat], of: impl Fn(&GateStat) -> u64) -> u64 {
    stats.iter().map(|stat| of(&stat.writers) + of(&stat.readers)).sum()
}

/// Waits until nobody waits or works at any target.
async fn settled(cluster: &Cluster, pool: &Pool) -> Vec<AdmissionStat> {
    let env = cluster.world().node("watch");
    for _ in 0..10_000 {
        let now = stats(pool).await;
        if sum(&now, |gate| gate.waiting + gate.at_work as u64) == 0 {
            return now;
        }
        env.sleep(Duration::from_millis(5)).await;
    }
    panic!("transfers never end: {:?}", stats(pool).await);
}

/// What targets tell of jobs against what their gates tell: the same waits at each target, and all of the data.
async fn check_jobs(client: &Client, told: &[(TargetId, Option<AdmissionStat>)], seed: u64) {
    let engines = client.system_query().await.unwrap().engines;
    for (target, stat) in told {
        let stat = stat.as_ref().unwrap();
        let (engine, ..) = engines.iter().find(|(_, held, _)| held.contains(target)).unwrap();
        let at = client.engine_jobs(engine, *target, true).await.unwrap();
        let named: Vec<&JobFigures> = at.jobs.iter().filter(|job| !job.job.is_empty()).collect();
        let names: Vec<&str> = named.iter().map(|job| job.job.as_str()).collect();
        assert_eq!(names, ["j0", "j1", "j2"], "seed {seed}");
        let sum = |of: &dyn Fn(&JobFigures) -> u64| named.iter().map(|job| of(job)).sum::<u64>();
        let held = stat.writers.held + stat.readers.held;
        // One that was let in at the same moment has not waited.
        let waited = sum(&|job| job.waits_us.count);
        assert!(waited <= held && (waited > 0 || held == 0), "seed {seed}: {waited} of {held}");
        let by_gates = stat.writers.wait_us + stat.readers.wait_us;
        let by_jobs = sum(&|job| job.waits_us.sum);
        assert!(
            by_jobs.abs_diff(by_gates) <= held,
            "seed {seed}: {by_jobs} us, {by_gates} at gates"
        );
        // Small transfers pass no gate.
        assert!(sum(&|job| job.in_bytes) >= stat.writers.bytes, "seed {seed}");
        assert!(sum(&|job| job.out_bytes) >= stat.readers.bytes, "seed {seed}");
        assert_eq!(sum(&|job| job.failed_count), 0, "seed {seed}");
        for job in named {
            assert!(job.time_us >= job.waits_us.sum && job.seen_ns > 0, "seed {seed}: {job:?}");
            let clients = at.clients.iter().filter(|client| client.job == job.job);
            let ops: u64 = clients.map(|client| client.op_count).sum();
            assert_eq!(job.op_count, ops, "seed {seed}");
            assert!((1..=2).contains(&job.client_count), "seed {seed}: {job:?}");
        }
    }
}

#[test]
fn the_limit_holds_and_all_data_is_right() {
    for seed in seeds(12) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 2, targets: 1 }).unwrap();
        let durability = [Durability::Wal, Durability::Memory][seed as usize % 2];
        cluster.block_on(async {
            let setup = cluster.client("setup");
            let cont = cluster.container(&setup, durability, ContLayout::Plain).await.unwrap();
            let limits = [("ioc_max_writers", "2"), ("ioc_max_readers", "1")];
            set(cont.pool(), &limits).await;
            let work = (0..6u64).map(|number| {
                let client =
                    cluster.client_in_job(&format!("c{number}"), &format!("j{}", number % 3));
                async move {
                    let cont = open(&client).await.unwrap();
                    for round in 0..4u64 {
                        let bytes =
                            [5_000, 100_000, 600_000, 16_384][(number + round) as usize % 4];
                        let data = pattern(bytes, number + round);
                        let file = array(&cont, "SX", number);
                        // Two at once, so that a client is over its credit.
                        let other = array(&cont, "SX", number + 100);
                        let range = whole(bytes);
                        let parts = [&data[..]];
                        let (a, b) =
                            join(file.write(&range, &parts), other.write(&range, &parts)).await;
                        a.and(b).unwrap();
                        for file in [&file, &other] {
                            let mut room = vec![0; bytes];
                            file.read(&range, &mut [&mut room]).await.unwrap();
                            assert!(room == data, "seed {seed}");
                        }
                    }
                    client
                }
            });
            let _connected = join_all(work).await;
            let now = settled(&cluster, cont.pool()).await;
            for stat in &now {
                assert!(stat.writers.at_work_max <= 2, "seed {seed}: {stat:?}");
                assert!(stat.readers.at_work_max <= 1, "seed {seed}: {stat:?}");
                let by_job: u64 = stat.writers.jobs.iter().map(|job| job.bytes).sum();
                assert_eq!(by_job, stat.writers.bytes);
                assert!(stat.writers.jobs.len() <= 3, "small requests belong to nobody");
            }
            assert_eq!(sum(&now, |gate| gate.forced + gate.lapsed + gate.left), 0, "seed {seed}");
            assert!(sum(&now, |gate| gate.held) > 0, "seed {seed}: nobody had to wait");
            let told = cont.pool().admission().await.unwrap();
            check_jobs(&setup, &told, seed).await;
        });
    }
}

/// One client asks for several jobs, as a mount does for those who use it: each has its share and its figures. All was the client's own
/// job's.
#[test]
fn what_a_client_asks_for_others_is_theirs() {
    for seed in seeds(4) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 1, targets: 1 }).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            let cont = cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            set(cont.pool(), &[("ioc_max_writers", "1")]).await;
            let client = cluster.client_in_job("mount", "mounted");
            let cont = open(&client).await.unwrap();
            let all = [("a", 3), ("b", 5), ("mounted", 2)];
            let work = all.map(|(job, rounds)| {
                let file = array(&cont, "S1", rounds);
                let work = async move {
                    for _ in 0..rounds {
                        file.write(&whole(100_000), &[&pattern(100_000, rounds)]).await.unwrap();
                    }
                };
                client::for_job((job != "mounted").then(|| job.into()), work)
            });
            join_all(work).await;
            let gate = &settled(&cluster, cont.pool()).await[0].writers;
            let engines = setup.system_query().await.unwrap().engines;
            let (engine, targets, _) = &engines[0];
            let at = setup.engine_jobs(engine, targets[0], true).await.unwrap();
            for (job, rounds) in all {
                let own = at.jobs.iter().find(|own| own.job == job).unwrap();
                assert_eq!(own.in_bytes, rounds * 100_000, "seed {seed}: {own:?}");
                assert_eq!(own.client_count, 1, "seed {seed}: {own:?}");
                let let_in = gate.jobs.iter().find(|own| own.job == job).unwrap();
                assert_eq!(let_in.bytes, rounds * 100_000, "seed {seed}");
            }
            let told: Vec<_> =
                at.clients.iter().filter(|told| told.client == client.id()).collect();
            assert_eq!((told.len(), &told[0].job[..]), (1, "mounted"), "seed {seed}");
            assert_eq!(told[0].in_bytes, 1_000_000, "seed {seed}");
        });
    }
}

/// Clients that die while they wait or send give their places back; engines that die forget
/// theirs, and are told the settings again.
#[test]
fn whoever_dies_the_others_go_on() {
    for seed in seeds(12) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 2, targets: 1 }).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            let cont = cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            set(cont.pool(), &[("ioc_max_writers", "1"), ("ioc_max_readers", "1")]).await;
            let doomed = (0..4u64).map(|number| {
                let name = format!("d{number}");
                let client = cluster.client_in_job(&name, "doomed");
                let env = cluster.world().node(&name);
                (name, client, env, number)
            });
            for (_, client, env, number) in doomed {
                env.spawn(async move {
                    let Ok(cont) = open(&client).await else { return };
                    loop {
                        let data = pattern(800_000, number);
                        let range = whole(data.len());
                        let files = [1_000, 2_000].map(|base| array(&cont, "SX", base + number));
                        let parts = [&data[..]];
                        let writes = files.iter().map(|file| file.write(&range, &parts));
                        join_all(writes).await;
                        let mut room = vec![0; data.len()];
                        let _ = files[0].read(&range, &mut [&mut room]).await;
                    }
                });
            }
            let stop = Cell::new(false);
            let work = async {
                let clients = (0..4u64).map(|number| {
                    let client = cluster.client_in_job(&format!("c{number}"), "healthy");
                    async move {
                        let cont = open(&client).await.unwrap();
                        let file = array(&cont, "SX", number);
                        for round in 0..6u64 {
                            let data = pattern(300_000, number * 10 + round);
                            let range = whole(data.len());
                            file.write(&range, &[&data]).await.unwrap();
                            let mut room = vec![0; data.len()];
                            file.read(&range, &mut [&mut room]).await.unwrap();
                            assert!(room == data, "seed {seed}");
                        }
                    }
                });
                join_all(clients).await;
                stop.set(true);
            };
            let trouble = async {
                let env = cluster.world().node("trouble");
                let mut alive = vec!["d0", "d1", "d2", "d3"];
                while !stop.get() {
                    env.sleep(Duration::from_micros(500 + env.random_u64() % 30_000)).await;
                    if let Some(name) = alive.pop() {
                        cluster.world().kill(name);
                    } else if env.random_u64().is_multiple_of(4) {
                        cluster.kill_engine(1);
                        env.sleep(Duration::from_micros(env.random_u64() % 20_000)).await;
                        cluster.start_engine(1).await.unwrap();
                    }
                }
                alive.iter().for_each(|name| cluster.world().kill(name));
            };
            join(work, trouble).await;
            let now = settled(&cluster, cont.pool()).await;
            assert_eq!(now.len(), 2);
            for stat in &now {
                assert!(stat.writers.at_work_max <= 1, "seed {seed}: {stat:?}");
                assert!(stat.readers.at_work_max <= 1, "seed {seed}: {stat:?}");
            }
            // A target that came back was told again: not off.
            let env = cluster.world().node("watch");
            while stats(cont.pool()).await.iter().any(|stat| stat.writers.limit_now != 1) {
                env.sleep(Duration::from_millis(5)).await;
            }
        });
    }
}

/// Both jobs always have more to write than is let in; one has four times the processes.
async fn share(cluster: &Cluster, weights: &str) -> (f64, u64) {
    let setup = cluster.client("setup");
    let cont = cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
    set(cont.pool(), &[("ioc_max_writers", "1"), ("ioc_weights", weights)]).await;
    let stop = Cell::new(false);
    let count = Cell::new(0u64);
    let work = (0..20u64).map(|number| {
        let job = if number < 16 { "many" } else { "few" };
        let client = cluster.client_in_job(&format!("c{number}"), job);
        let (stop, count) = (&stop, &count);
        async move {
            let cont = open(&client).await.unwrap();
            let file = array(&cont, "S1", number);
            let data = pattern(65_536, number);
            while !stop.get() {
                file.write(&whole(data.len()), &[&data]).await.unwrap();
                count.set(count.get() + 1);
                stop.set(count.get() >= 600);
            }
        }
    });
    join_all(work).await;
    let now = settled(cluster, cont.pool()).await;
    let jobs = &now[0].writers.jobs;
    let bytes =
        |name: &str| jobs.iter().find(|job| job.job == name).map_or(0, |job| job.bytes) as f64;
    (bytes("few") / (bytes("few") + bytes("many")), now[0].writers.at_work_max.into())
}

#[test]
fn jobs_share_by_weight_and_not_by_processes() {
    for (seed, weights, expected) in
        [(1, "", 0.5), (2, "few:3", 0.75), (3, "many:3", 0.25), (4, "few:2,many:2", 0.5)]
    {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 1, targets: 1 }).unwrap();
        let (share, at_work_max) = cluster.block_on(share(&cluster, weights));
        assert_eq!(at_work_max, 1);
        assert!((share - expected).abs() < 0.08, "weights '{weights}': {share}");
    }
}

/// A holder of a slot that waited for a key held by a transaction whose part waited for the slot
/// would be a deadlock. Slots end before keys are looked at, so there is none.
#[test]
fn transactions_with_bulk_go_through_the_narrowest_gate() {
    for seed in seeds(10) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 2, targets: 2 }).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            let cont = cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            set(cont.pool(), &[("ioc_max_writers", "1"), ("ioc_max_readers", "1")]).await;
            let work = (0..6u64).map(|number| {
                let client = cluster.client_in_job(&format!("c{number}"), "");
                async move {
                    let cont = open(&client).await.unwrap();
                    // All write the same chunks of the same objects.
                    let files = [1, 2].map(|object| array(&cont, "SX", object));
                    let data = pattern(600_000, number);
                    let range = whole(data.len());
                    let mut done = 0;
                    while done < 4 {
                        if number % 3 == 0 {
                            files[0].write(&range, &[&data]).await.unwrap();
                            done += 1;
                            continue;
                        }
                        let tx = Tx::open(&cont, false);
                        for file in &files {
                            file.write_in(Some(&tx), &range, &[&data]).await.unwrap();
                        }
                        match tx.commit().await {
                            Ok(_) => done += 1,
                            Err(error) => {
                                assert_eq!(error.code, Code::TxRestart, "seed {seed}: {error}");
                            }
                        }
                    }
                    let mut room = vec![0; data.len()];
                    files[1].read(&range, &mut [&mut room]).await.unwrap();
                }
            });
            join_all(work).await;
            let now = settled(&cluster, cont.pool()).await;
            for stat in &now {
                let forced = stat.writers.forced as u32;
                assert!(stat.writers.at_work_max <= 1 + forced, "seed {seed}: {stat:?}");
            }
        });
    }
}

#[test]
fn settings_change_under_load() {
    for seed in seeds(6) {
        let cluster = Cluster::start(ClusterSpec { seed, engines: 1, targets: 2 }).unwrap();
        cluster.block_on(async {
            let setup = cluster.client("setup");
            let cont = cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
            let stop = Cell::new(false);
            let work = (0..6u64).map(|number| {
                let client = cluster.client_in_job(&format!("c{number}"), "j");
                let stop = &stop;
                async move {
                    let cont = open(&client).await.unwrap();
                    let file = array(&cont, "SX", number);
                    let data = pattern(700_000, number);
                    while !stop.get() {
                        file.write(&whole(data.len()), &[&data]).await.unwrap();
                        let mut room = vec![0; data.len()];
                        file.read(&whole(data.len()), &mut [&mut room]).await.unwrap();
                        assert!(room == data, "seed {seed}");
                    }
                }
            });
            let pool = cont.pool();
            let operator = async {
                let env = cluster.world().node("operator");
                let now = stats(pool).await;
                assert_eq!(sum(&now, |gate| gate.granted + u64::from(gate.limit_now)), 0);
                for value in ["1", "auto", "off", "3", "1", "off"] {
                    set(pool, &[("ioc_max_writers", value), ("ioc_max_readers", value)]).await;
                    let before = sum(&stats(pool).await, |gate| gate.granted);
                    let fixed = value.parse::<u32>().ok();
                    for _ in 0..200 {
                        env.sleep(Duration::from_millis(1)).await;
                        let now = stats(pool).await;
                        if sum(&now, |gate| gate.granted) > before + 20 || value == "off" {
                            break;
                        }
                    }
                    let now = stats(pool).await;
                    match fixed {
                        Some(limit) => assert!(now.iter().all(|s| s.writers.limit_now == limit)),
                        None if value == "off" => {
                            assert_eq!(sum(&now, |gate| gate.waiting), 0, "off holds nobody");
                        }
                        None => assert!(now.iter().all(|s| s.writers.limit_now >= 1)),
                    }
                    let granted = sum(&now, |gate| gate.granted);
                    assert!(value == "off" || granted > before, "seed {seed}: {value}");
                }
                let props: BTreeMap<String, String> = pool.props().await.unwrap();
                assert_eq!(props["ioc_max_writers"], "off");
                stop.set(true);
            };
            join(join_all(work), operator).await;
            settled(&cluster, cont.pool()).await;
        });
    }
}

/// A client that stalls in the middle of its data keeps its slot for some seconds. Meanwhile small
/// requests pass, and who waits longer than he may is told and leaves the queue.
#[test]
fn a_client_that_stalls_loses_its_slot_and_who_waits_too_long_leaves() {
    let cluster = Cluster::start(ClusterSpec { seed: 5, engines: 1, targets: 1 }).unwrap();
    cluster.block_on(async {
        let setup = cluster.client("setup");
        let cont = cluster.container(&setup, Durability::Wal, ContLayout::Plain).await.unwrap();
        set(cont.pool(), &[("ioc_max_writers", "1")]).await;
        let mut options = cluster.client("hasty").options().clone();
        options.timeout = Duration::from_millis(30);
        let hasty = Client::new(cluster.world().node("hasty"), "hasty".into(), options);
        let hasty = open(&hasty).await.unwrap();
        let stalled = open(&cluster.client("stalled")).await.unwrap();
        let net = SimNet::of(cluster.world());
        let data = pattern(8 << 20, 1);
        let stall = async {
            let file = array(&stalled, "S1", 1);
            file.write(&whole(data.len()), &[&data]).await.unwrap();
            let mut room = vec![0; data.len()];
            file.read(&whole(data.len()), &mut [&mut room]).await.unwrap();
            assert!(room == data);
        };
        let others = async {
            while stats(cont.pool()).await[0].writers.at_work == 0 {}
            net.cut("stalled", "e0");
            let bulk = &data[..1 << 18];
            let error = array(&hasty, "S1", 2).write(&whole(bulk.len()), &[bulk]).await;
            assert_eq!(error.unwrap_err().code, Code::TimedOut);
            array(&cont, "S1", 3).write(&whole(100), &[&data[..100]]).await.unwrap();
            let now = stats(cont.pool()).await;
            let gate = &now[0].writers;
            assert_eq!((gate.at_work, gate.waiting, gate.left, gate.lapsed), (1, 0, 1, 0));
            // A patient one is let in when the slot lapses.
            array(&cont, "S1", 4).write(&whole(bulk.len()), &[bulk]).await.unwrap();
            assert_eq!(stats(cont.pool()).await[0].writers.lapsed, 1);
            net.heal_all();
        };
        join(stall, others).await;
        let now = settled(&cluster, cont.pool()).await;
        assert_eq!(now[0].writers.at_work_max, 1, "{now:?}");
    });
}

/// Off is the default, and then nothing is counted, timed or queued.
#[test]
fn off_leaves_no_trace() {
    let run = |touch: bool| {
        let cluster = Cluster::start(ClusterSpec { seed: 9, engines: 1, targets: 2 }).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            // Setting what is so already changes nothing anywhere.
            let same: &[_] = if touch { &[("ioc_max_writers", "off")] } else { &[("label", "p")] };
            set(cont.pool(), same).await;
            let file = array(&cont, "SX", 1);
            let data = pattern(2_000_000, 1);
            file.write(&whole(data.len()), &[&data]).await.unwrap();
            let mut room = vec![0; data.len()];
            file.read(&whole(data.len()), &mut [&mut room]).await.unwrap();
            assert!(room == data);
            let now = stats(cont.pool()).await;
            assert_eq!(now, vec![AdmissionStat::default(); 2]);
        });
        cluster.world().trace_hash()
    };
    assert_eq!(run(true), run(true));
    assert_eq!(run(false), run(false));
}
