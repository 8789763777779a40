//! The data cache of engines: what is read is never older than what was acknowledged before, whatever is kept, dropped, written over and lost.

use client::{ArrayObj, Client, Container, Pool};
use engine::StoreConfig;
use env::Rng;
use sim::{Cluster, ClusterSpec, seeds};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use types::{ContLayout, Durability, ObjType};
use wire::cache::CacheStat;
use wire::control::{ControlRequest, Name, Subject};
use wire::obj::Recx;

/// Odd, and large enough not to be kept in the index.
const CELL_BYTES: usize = 5_003;
const CELLS: usize = 100;
const OBJECTS: usize = 8;

/// Versions of each cell: the last that was acknowledged, and the last that was sent.
type Known = Rc<RefCell<Vec<[(u64, u64); CELLS]>>>;

fn content(version: u64) -> Vec<u8> {
    let words = version.to_le_bytes().into_iter().cycle();
    if version == 0 { vec![0; CELL_BYTES] } else { words.take(CELL_BYTES).collect() }
}

fn array(cont: &Container, number: usize) -> ArrayObj {
    let class = ["S1", "RP_2G1", "SX", "EC_2P1G1"][number % 4].parse().unwrap();
    let oid = cont.generate_oid(ObjType::ArrayByte, class, 0, number as u64).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 64 << 10 }
}

fn range(first: usize, count: usize) -> [Recx; 1] {
    [Recx { index: (first * CELL_BYTES) as u64, count: (count * CELL_BYTES) as u64 }]
}

/// Reads cells and compares each with what it may be.
async fn read(array: &ArrayObj, known: &Known, object: usize, first: usize, count: usize) {
    let before: Vec<u64> =
        known.borrow()[object][first..first + count].iter().map(|(acked, _)| *acked).collect();
    let mut memory = vec![0xaa; count * CELL_BYTES];
    array.read(&range(first, count), &mut [&mut memory]).await.unwrap();
    for (at, cell) in memory.chunks(CELL_BYTES).enumerate() {
        let version = u64::from_le_bytes(cell[..8].try_into().unwrap());
        let (_, sent) = known.borrow()[object][first + at];
        assert!(cell == content(version), "object {object}: cell {} is torn", first + at);
        assert!(
            (before[at]..=sent).contains(&version),
            "object {object}: cell {} is {version}, written were {} to {sent}",
            first + at,
            before[at]
        );
    }
}

async fn set(client: &Client, pairs: &[(&str, &str)]) {
    let props: BTreeMap<String, String> =
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let subject = Subject::Pool(Name::Label("p".into()));
    client.control(&ControlRequest::SetProps { subject, props }).await.unwrap();
}

async fn stats(pool: &Pool) -> Vec<CacheStat> {
    pool.cache_stats().await.unwrap().into_iter().filter_map(|(_, stat)| stat).collect()
}

/// One writer for each cell, readers of all: what a reader gets was acknowledged before it asked, or is newer. The cache has room for a
/// part of it, of one object for less; its limits change, and engines are killed, meanwhile.
#[test]
fn readers_never_get_what_was_written_over() {
    for seed in seeds(3) {
        let spec = ClusterSpec { seed, engines: 3, targets: 1 };
        let cluster = Cluster::start_with(spec, StoreConfig::default()).unwrap();
        cluster.block_on(async {
            let client = cluster.client("c0");
            let env = client.env().clone();
            let layout = ContLayout::Plain;
            let cont = cluster.container(&client, Durability::Wal, layout).await.unwrap();
            set(&client, &[("cache_max", "2MiB"), ("cache_file_max", "256KiB")]).await;
            let known: Known = Rc::new(RefCell::new(vec![[(0, 0); CELLS]; OBJECTS]));
            let left = Rc::new(Cell::new(6));
            for worker in 0..6u64 {
                let client = cluster.client(&format!("w{worker}"));
                let (known, left) = (known.clone(), left.clone());
                let oids: Vec<_> = (0..OBJECTS).map(|number| array(&cont, number).oid).collect();
                let within = env.clone();
                env.spawn(async move {
                    let open = wire::control::OpenMode::ReadWrite;
                    let pool = client.pool_open(&Name::Label("p".into()), open).await.unwrap();
                    let cont = pool.cont_open(&Name::Label("c".into()), open).await.unwrap();
                    let arrays: Vec<ArrayObj> = oids
                        .iter()
                        .map(|&oid| ArrayObj {
                            cont: cont.clone(),
                            oid,
                            record_bytes: 1,
                            chunk_records: 64 << 10,
                        })
                        .collect();
                    let rng = Rng::new(types::hash::mix2(seed, worker));
                    for _ in 0..150 {
                        let object = rng.below(OBJECTS as u64) as usize;
                        let first = rng.below(CELLS as u64) as usize;
                        // Every other worker writes, each its own part of the cells.
                        if worker % 2 == 0 && rng.below(2) == 0 {
                            let cell = first - first % 3 + worker as usize / 2;
                            let cell = if cell < CELLS { cell } else { worker as usize / 2 };
                            let version = known.borrow()[object][cell].1 + 1;
                            known.borrow_mut()[object][cell].1 = version;
                            let data = content(version);
                            let range = range(cell, 1);
                            arrays[object].write(&range, &[&data]).await.unwrap();
                            known.borrow_mut()[object][cell].0 = version;
                        } else {
                            // A few objects are read often, and mostly at their beginning.
                            let object = if rng.below(3) == 0 { object } else { object % 2 };
                            let first = if rng.below(2) == 0 { first } else { first % 8 };
                            let most = (CELLS - first).min(30) as u64;
                            let count = 1 + rng.below(most) as usize;
                            read(&arrays[object], &known, object, first, count).await;
                        }
                        within.sleep(Duration::from_millis(rng.below(20))).await;
                    }
                    left.set(left.get() - 1);
                });
            }
            let rng = Rng::new(seed);
            let (mut most, mut was_killed) = (0, false);
            let mut sum = CacheStat::default();
            while left.get() > 0 {
                env.sleep(Duration::from_millis(100 + rng.below(200))).await;
                for stat in stats(cont.pool()).await {
                    assert!(stat.used_bytes <= stat.limit_bytes, "{stat:?}");
                    most = most.max(stat.used_bytes);
                    sum.hits = sum.hits.max(stat.hits);
                    sum.misses = sum.misses.max(stat.misses);
                }
                match rng.below(6) {
                    0 => set(&client, &[("cache_file_max", "off")]).await,
                    1 => set(&client, &[("cache_file_max", "1MiB"), ("cache_max", "4MiB")]).await,
                    2 => set(&client, &[("cache_max", "2MiB"), ("cache_file_max", "64KiB")]).await,
                    3 if !was_killed => {
                        was_killed = true;
                        let at = 1 + rng.below(2) as usize;
                        cluster.kill_engine(at);
                        cluster.start_engine(at).await.unwrap();
                    }
                    _ => {}
                }
            }
            assert!(sum.hits > 20 && sum.misses > 20 && most > 64 << 10, "seed {seed}: {sum:?}");
            // All at rest: the same from memory and from devices.
            set(&client, &[("cache_max", "1GiB"), ("cache_file_max", "1GiB")]).await;
            for _ in 0..2 {
                for object in 0..OBJECTS {
                    read(&array(&cont, object), &known, object, 0, CELLS).await;
                }
            }
            set(&client, &[("cache_max", "off")]).await;
            for object in 0..OBJECTS {
                read(&array(&cont, object), &known, object, 0, CELLS).await;
            }
            assert!(stats(cont.pool()).await.iter().all(|stat| stat.used_bytes == 0));
        });
    }
}
