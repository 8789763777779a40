//! A day of a pool whose shares follow what its devices and links do.
//!
//! Five targets: devices of four speeds, and a fast one at the end of a slow link. Each operation takes a tenth more or less, and clients work for some
//! seconds of each hour. After a quarter of the day one device becomes slow, after half of it it is exchanged for a good one. Shares come to where
//! devices and links say, follow both changes, data follow the shares, and in between nothing changes at all.
//!
//! Some hours by default; `AZEKURA_SIM_HOURS` is how many. `AZEKURA_DAY_PLOT` names a file for the plot that `docs/operate.md` has.

use bench::svg::{Lines, Series};
use client::{ArrayObj, Client};
use engine::{Bytes, StoreConfig};
use env::DiskFaults;
use sim::{Cluster, ClusterSpec, members};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{ContProps, Durability, ObjType, PlacementRule, TargetId};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode, Subject};
use wire::map::PoolMap;
use wire::measure::MeasureAsk;
use wire::obj::Recx;

const HOURS: u64 = 4;
const HOUR: Duration = Duration::from_secs(3600);
const SAMPLE_EVERY: Duration = Duration::from_secs(600);
const ARRAYS: u64 = 48;
const BYTES: usize = 256 << 10;
/// What an operation of each engine's device takes, and how much longer the way to it is.
const DEVICES: [(Duration, Duration); 5] = [
    (Duration::from_millis(2), Duration::ZERO),
    (Duration::from_millis(2), Duration::from_millis(8)),
    (Duration::from_millis(4), Duration::ZERO),
    (Duration::from_millis(8), Duration::ZERO),
    (Duration::from_millis(20), Duration::ZERO),
];
const NAMES: [&str; 5] =
    ["fast", "fast, slow link", "half as fast, decays", "a quarter as fast", "a tenth as fast"];
/// The engine whose device decays, and what an operation takes then.
const DECAYS: usize = 2;
const DECAYED: Duration = Duration::from_millis(120);

fn set_device(cluster: &Cluster, at: usize, takes: Duration) {
    let faults = DiskFaults {
        latency_min: takes * 9 / 10,
        latency_max: takes * 11 / 10,
        space_bytes: 64 << 30,
        ..DiskFaults::default()
    };
    cluster.world().disk(&Cluster::engine_name(at)).set_faults(faults);
}

/// Shares of all targets, of one.
fn shares(map: &PoolMap) -> [f64; 5] {
    let set = map.placements.last().unwrap();
    let whole: f64 = set.weights.iter().map(|(_, weight)| f64::from(*weight)).sum();
    let mut shares = [0.0; 5];
    for (target, weight) in &set.weights {
        shares[map.target(*target).unwrap().rank.0 as usize] = f64::from(*weight) / whole;
    }
    shares
}

/// How it is at some time.
#[derive(Debug)]
struct Sample {
    hours: f64,
    epoch: u8,
    shares: [f64; 5],
    /// Parts of all arrays that are on each.
    held: [f64; 5],
}

async fn sample(client: &Client, arrays: &[ArrayObj]) -> Sample {
    let map = members::newest_map(client).await.unwrap();
    let mut held = [0.0; 5];
    for array in arrays {
        let on = placement::layout(array.oid, &map).unwrap().targets()[0];
        held[map.target(on).unwrap().rank.0 as usize] += 1.0 / arrays.len() as f64;
    }
    let hours = client.env().now().as_secs_f64() / HOUR.as_secs_f64();
    let epoch = map.placements.last().unwrap().epoch;
    Sample { hours, epoch, shares: shares(&map), held }
}

/// Writes and reads all arrays for some seconds.
async fn work(client: &Client, arrays: &[ArrayObj]) {
    let env = client.env().clone();
    let range = [Recx { index: 0, count: BYTES as u64 }];
    let begun = env.now();
    while env.now() - begun < Duration::from_secs(50) {
        for (number, array) in arrays.iter().enumerate() {
            array.write(&range, &[&vec![number as u8; BYTES]]).await.unwrap();
            let mut memory = vec![0; BYTES];
            array.read(&range, &mut [&mut memory]).await.unwrap();
            assert!(memory == vec![number as u8; BYTES], "{number}");
        }
        env.sleep(Duration::from_secs(4)).await;
    }
}

fn plot(samples: &[Sample]) -> String {
    let line = |at: usize| Series {
        name: NAMES[at].to_string(),
        points: samples.iter().map(|of| (of.hours, of.shares[at] * 100.0)).collect(),
    };
    Lines {
        title: "Shares of five targets over a simulated day".to_string(),
        x_label: "hours".to_string(),
        y_label: "percent of the pool".to_string(),
        series: (0..NAMES.len()).map(line).collect(),
    }
    .svg()
}

#[test]
fn shares_follow_for_a_day_and_nothing_goes_to_and_fro() {
    let hours = std::env::var("AZEKURA_SIM_HOURS").map_or(HOURS, |hours| hours.parse().unwrap());
    let store = StoreConfig {
        measure: Some(Bytes(8 << 20)),
        measure_every_h: Some(1),
        ..StoreConfig::default()
    };
    let spec = ClusterSpec { seed: 1, engines: DEVICES.len(), targets: 1 };
    let cluster = Cluster::start_healing(spec, store, Some(60)).unwrap();
    // Far faster than devices, but for the one.
    let near = Duration::from_micros(5);
    transport::SimNet::of(cluster.world()).set_delay(near, near * 3);
    for (at, (takes, longer)) in DEVICES.into_iter().enumerate() {
        set_device(&cluster, at, takes);
        transport::SimNet::of(cluster.world()).set_far(&Cluster::engine_name(at), longer);
    }
    let samples = cluster.block_on(async {
        let client = cluster.client("c");
        let env = client.env().clone();
        let ask = MeasureAsk { bytes: 8 << 20, step_ms_max: 1_000, once: false };
        for target in 0..DEVICES.len() as u32 {
            let measure =
                ControlRequest::TargetMeasure { target: TargetId(target), ask: Some(ask) };
            client.control(&measure).await.unwrap();
        }
        let pool = || Name::Label("p".into());
        let create = ControlRequest::PoolCreate {
            label: "p".into(),
            bytes: 1 << 30,
            scm_percent: 20,
            durability: Durability::Wal,
            targets: Vec::new(),
            placement: PlacementRule::Score,
        };
        client.pool_create(create).await.unwrap();
        let props = BTreeMap::from([("balance".to_string(), "auto".to_string())]);
        let subject = Subject::Pool(pool());
        client.control(&ControlRequest::SetProps { subject, props }).await.unwrap();
        let opened = client.pool_open(&pool(), OpenMode::ReadWrite).await.unwrap();
        opened.cont_create("c", Uuid::nil(), ContProps::default(), BTreeMap::new()).await.unwrap();
        let name = Name::Label("c".into());
        let cont = opened.cont_open(&name, OpenMode::ReadWrite).await.unwrap();
        let array = |number: u64| {
            let class = "S1".parse().unwrap();
            let oid = cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap();
            ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
        };
        let arrays: Vec<ArrayObj> = (0..ARRAYS).map(array).collect();
        let begun = env.now();
        let hour = |of: u64| begun + HOUR * of as u32;
        let mut samples = Vec::new();
        for nth in 0..hours {
            if nth == hours / 4 {
                set_device(&cluster, DECAYS, DECAYED);
            }
            if nth == hours / 2 {
                set_device(&cluster, DECAYS, DEVICES[DECAYS].0);
            }
            work(&client, &arrays).await;
            while env.now() + SAMPLE_EVERY <= hour(nth + 1) {
                samples.push(sample(&client, &arrays).await);
                env.sleep(SAMPLE_EVERY).await;
            }
            env.sleep(hour(nth + 1).saturating_sub(env.now())).await;
        }
        samples.push(sample(&client, &arrays).await);
        work(&client, &arrays).await;
        samples
    });
    if let Ok(path) = std::env::var("AZEKURA_DAY_PLOT") {
        std::fs::write(path, plot(&samples)).unwrap();
    }
    for of in &samples {
        println!("{:5.2} h, epoch {}: {:.3?}, held {:.3?}", of.hours, of.epoch, of.shares, of.held);
    }
    check(&samples, hours);
}

fn check(samples: &[Sample], hours: u64) {
    let at = |hour: f64| samples.iter().rfind(|of| of.hours <= hour).unwrap();
    let (decays, exchanged, end) = ((hours / 4) as f64, (hours / 2) as f64, hours as f64);
    // Devices and the link say how much each has: the fast one at the end of a slow link has least.
    let before = at(decays);
    let [fast, far, half, quarter, tenth] = before.shares;
    assert!(fast > half * 1.5 && half > quarter * 1.5 && quarter > tenth * 1.5, "{before:?}");
    assert!(far < quarter, "{before:?}");
    // What decays loses its share at once, and most of its data.
    let decayed = at(decays + 0.5);
    assert!(decayed.shares[DECAYS] * 4.0 < half, "{decayed:?}");
    assert!(at(exchanged).held[DECAYS] * 3.0 < before.held[DECAYS], "{:?}", at(exchanged));
    // What is exchanged gets back what it had.
    let last = at(end);
    for (now, then) in last.shares.iter().zip(before.shares) {
        assert!((now / then - 1.0).abs() < 0.2, "{before:?} {last:?}");
    }
    for (held, share) in last.held.iter().zip(last.shares) {
        assert!((held - share).abs() < 0.15, "{last:?}");
    }
    // Nothing changes but in the hour after something has happened: the first, and those of decay and exchange.
    for pair in samples.windows(2) {
        let is_near = |of: f64| (of..of + 1.2).contains(&pair[1].hours);
        let may_change = is_near(0.0) || is_near(decays) || is_near(exchanged);
        assert!(may_change || pair[0].epoch == pair[1].epoch, "{:?} {:?}", pair[0], pair[1]);
    }
    assert!(last.epoch <= 5, "{last:?}");
}
