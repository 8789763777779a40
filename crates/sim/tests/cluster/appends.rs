//! Appends from many writers to one array: every line whole, none lost, none twice, no gaps.

use client::{ArrayObj, Client, Container};
use futures_util::future::{join, join_all};
use sim::{Cluster, ClusterSpec};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;
use types::{ContLayout, Durability, ObjType};
use wire::control::{Name, OpenMode};
use wire::obj::Recx;

const WRITERS: u64 = 8;
const LINES: u64 = 12;
/// Small, so that lines cross chunk borders, and of a striped array targets.
const CHUNK: u64 = 64;

async fn open(client: &Client) -> Container {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await.unwrap();
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await.unwrap()
}

fn array(cont: &Container, class: &str) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, 1).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: CHUNK }
}

/// A line that tells its own length; every tenth is long enough for the data area.
fn line(writer: u64, number: u64) -> Vec<u8> {
    let bytes = if number % 10 == 9 { 6000 } else { 5 + (writer * 7 + number * 13) % 90 };
    let mut line = format!("{writer}.{number}:").into_bytes();
    line.resize(line.len() + bytes as usize, b'a' + writer as u8);
    line.push(b'\n');
    line
}

/// Kills and restarts engines until told to stop.
async fn trouble(cluster: &Cluster, engines: u64, stop: &Cell<bool>) {
    let env = cluster.world().node("trouble");
    while !stop.get() {
        env.sleep(Duration::from_micros(500 + env.random_u64() % 40_000)).await;
        let at = (env.random_u64() % engines) as usize;
        cluster.kill_engine(at);
        env.sleep(Duration::from_micros(env.random_u64() % 20_000)).await;
        cluster.start_engine(at).await.unwrap();
    }
}

fn run(seed: u64, class: &str, durability: Durability, with_trouble: bool) {
    let cluster = Cluster::start(ClusterSpec { seed, engines: 2, targets: 2 }).unwrap();
    cluster.block_on(async {
        let setup = cluster.client("setup");
        cluster.container(&setup, durability, ContLayout::Plain).await.unwrap();
        let clients = [cluster.client("a"), cluster.client("b")];
        let conts = [open(&clients[0]).await, open(&clients[1]).await];
        let stop = Cell::new(!with_trouble);
        let writers = (0..WRITERS).map(|writer| {
            let array = array(&conts[writer as usize % 2], class);
            async move {
                let mut places = Vec::new();
                for number in 0..LINES {
                    let line = line(writer, number);
                    let (head, tail) = line.split_at(3);
                    let at = array.append(&[head, tail]).await.unwrap();
                    places.push((at, line));
                }
                places
            }
        });
        let work = async {
            let places = join_all(writers).await;
            stop.set(true);
            places
        };
        let (places, ()) = join(work, trouble(&cluster, 2, &stop)).await;
        let array = array(&conts[0], class);
        let size = array.size().await.unwrap();
        let mut data = vec![0; size as usize];
        array.read(&[Recx { index: 0, count: size }], &mut [&mut data]).await.unwrap();
        let mut seen = BTreeSet::new();
        let mut total = 0;
        for (at, line) in places.into_iter().flatten() {
            let found = &data[at as usize..at as usize + line.len()];
            assert!(found == line, "seed {seed} {class}: the line at {at} is not whole");
            assert!(seen.insert(at), "seed {seed} {class}: two lines at {at}");
            total += line.len() as u64;
        }
        assert_eq!(total, size, "seed {seed} {class}: gaps, or something twice");
    });
}

#[test]
fn appends_of_many_writers_neither_overlap_nor_leave_gaps() {
    for class in ["S1", "SX", "SX+4KiB"] {
        run(1, class, Durability::Memory, false);
        run(2, class, Durability::Wal, false);
    }
}

#[test]
fn nor_when_engines_die() {
    let count = std::env::var("AZEKURA_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..count.unwrap_or(4) {
        run(seed, "S1", Durability::Wal, true);
        run(seed, "SX", Durability::Wal, true);
        run(seed, "SX+4KiB", Durability::Wal, true);
    }
}

#[test]
fn an_append_to_an_unstriped_array_is_one_request() {
    let cluster = Cluster::start(ClusterSpec { seed: 3, engines: 1, targets: 1 }).unwrap();
    cluster.block_on(async {
        let client = cluster.client("a");
        let cont = cluster.container(&client, Durability::Memory, ContLayout::Plain).await.unwrap();
        let array = array(&cont, "S1");
        assert_eq!(array.append(&[b"one"]).await.unwrap(), 0);
        let before = client.request_count();
        assert_eq!(array.append(&[b"two"]).await.unwrap(), 3);
        assert_eq!(client.request_count() - before, 1);
        assert_eq!(array.append(&[]).await.unwrap(), 6);
    });
}
