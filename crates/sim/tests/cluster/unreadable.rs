//! Sectors that a device does not give, met by who is not a reader: they are damage like any other, and other members have what was in them. All
//! of this waited for the scrubber, which comes by once a day.

use client::{ArrayObj, Client, Container, KvObj};
use engine::StoreConfig;
use env::Decay;
use sim::{Cluster, ClusterSpec, members};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use types::{ContLayout, Durability, ObjType, TargetId};
use wire::control::{Name, OpenMode};
use wire::obj::{Cond, Recx};

const AREA: &str = "/target0/pool.1/data";
const STRIPES: u64 = 4;
const CELL_BYTES: u64 = 64 << 10;
const BYTES: u64 = STRIPES * 2 * CELL_BYTES;

fn cluster(seed: u64) -> Cluster {
    let spec = ClusterSpec { seed, engines: 5, targets: 1 };
    // What was just written is in no cache.
    let store = StoreConfig { data_cache_percent: Some(0), ..StoreConfig::default() };
    Cluster::start_healing(spec, store, Some(0)).unwrap()
}

fn data(seed: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| types::hash::mix2(seed, at / 8).to_le_bytes()[at as usize % 8]).collect()
}

/// Pages of a target that hold something.
fn used(cluster: &Cluster, target: TargetId) -> BTreeSet<u64> {
    let disk = cluster.world().disk(&Cluster::engine_name(target.0 as usize));
    disk.filled_pages(Path::new(AREA)).into_iter().collect()
}

fn let_decay(cluster: &Cluster, target: TargetId, pages: impl IntoIterator<Item = u64>) {
    let disk = cluster.world().disk(&Cluster::engine_name(target.0 as usize));
    pages.into_iter().for_each(|page| disk.decay(Path::new(AREA), page, Decay::Unreadable));
}

/// Keys that were put right, on all targets.
async fn mended(cont: &Container) -> u64 {
    let stats = cont.pool().scrub_stat().await.unwrap();
    stats.into_iter().filter_map(|(_, stat)| stat).map(|stat| stat.mended_count).sum()
}

/// Data bytes in use over all targets.
async fn used_bytes(client: &Client) -> u64 {
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await;
    let total = pool.unwrap().query().await.unwrap().total;
    total.nvme_bytes - total.nvme_free_bytes
}

async fn rest(client: &Client, seconds: u64) {
    client.env().sleep(Duration::from_secs(seconds)).await;
}

/// An array with stripes of two cells and one of parity, none of whose cells are on the first engine, which has the catalog.
fn array(cont: &Container) -> ArrayObj {
    let map = cont.pool().map();
    let class = "EC_2P1G1".parse().unwrap();
    let make = |number| cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap();
    let is_elsewhere = |oid: &types::Oid| {
        !placement::cell_layout(*oid, &map).unwrap().members(0).contains(&TargetId(0))
    };
    let oid = (1..).map(make).find(is_elsewhere).unwrap();
    assert_eq!(u64::from(oid.cell_bytes()), CELL_BYTES);
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: 1 << 20 }
}

async fn check(array: &ArrayObj, known: &[u8], context: &str) {
    let mut found = vec![0xee; known.len()];
    let all = [Recx { index: 0, count: known.len() as u64 }];
    array.read(&all, &mut [&mut found]).await.unwrap();
    assert!(found == known, "{context}: the bytes differ");
}

/// A leader that cannot read what a member missed asked nobody for it, so that the member stayed behind.
#[test]
fn a_member_gets_what_its_leader_cannot_read() {
    let cluster = cluster(1);
    let client = cluster.client("c");
    cluster.block_on(async {
        let made = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
        let cont = made.unwrap();
        let class = "RP_3G1".parse().unwrap();
        let make = |number| cont.generate_oid(ObjType::KvHashed, class, 0, number).unwrap();
        let members_of = |oid: &types::Oid| cont.layout(*oid).unwrap().members(0).to_vec();
        let is_elsewhere = |oid: &types::Oid| !members_of(oid).contains(&TargetId(0));
        let oid = (1..).map(make).find(is_elsewhere).unwrap();
        let kv = KvObj { object: cont.object(oid) };
        let [leader, other, away] = members_of(&oid)[..] else { panic!("three members") };
        let put = async |bytes: u64| {
            for key in 0..6u64 {
                let value = data(bytes + key, bytes);
                kv.put(None, Cond::NONE, &key.to_le_bytes(), &value).await.unwrap();
            }
        };
        // So little that it is in the index.
        put(100).await;
        cluster.kill_engine(away.0 as usize);
        let before = used(&cluster, leader);
        put(40_000).await;
        let new: Vec<u64> = used(&cluster, leader).difference(&before).copied().collect();
        assert!(new.len() >= 40, "{new:?}");
        let_decay(&cluster, leader, new.into_iter().step_by(7));
        cluster.start_engine(away.0 as usize).await.unwrap();
        assert_eq!(members::await_whole(&client).await.unwrap(), None);
        assert_eq!(mended(&cont).await, 6, "all keys of the leader");
        let map = members::newest_map(&client).await.unwrap();
        for two in [[leader, other], [leader, away]] {
            assert!(members::are_same(&client, &map, &cont, oid, two).await.unwrap(), "{two:?}");
        }
    });
}

/// A stripe with a sector that its leader cannot read stayed copies.
#[test]
fn a_stripe_is_folded_whose_leader_cannot_read_it() {
    let cluster = cluster(2);
    let client = cluster.client_without_codes("c");
    cluster.block_on(async {
        let made = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
        let cont = made.unwrap();
        let array = array(&cont);
        let map = cont.pool().map();
        let leader = cont.layout(array.oid).unwrap().leader(0, &map).unwrap();
        let before = used_bytes(&client).await;
        let known = data(7, BYTES);
        let old = used(&cluster, leader);
        array.write(&[Recx { index: 0, count: BYTES }], &[&known]).await.unwrap();
        let new: Vec<u64> = used(&cluster, leader).difference(&old).copied().collect();
        assert_eq!(new.len() as u64, BYTES / 4096);
        let_decay(&cluster, leader, new.into_iter().step_by(20));
        rest(&client, 60).await;
        assert_eq!(mended(&cont).await, 1);
        assert_eq!(used_bytes(&client).await - before, BYTES / 2 * 3, "not all is in cells");
        check(&array, &known, "folded").await;
    });
}

/// Who reads a cell with such a sector is given what the others tell of it, and the cell is put right: it was left as it was, and with
/// the next loss there were too few.
#[test]
fn a_cell_that_cannot_be_read_is_put_together_anew() {
    let cluster = cluster(3);
    let client = cluster.client("c");
    cluster.block_on(async {
        let made = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
        let cont = made.unwrap();
        let array = array(&cont);
        let known = data(8, BYTES);
        array.write(&[Recx { index: 0, count: BYTES }], &[&known]).await.unwrap();
        rest(&client, 5).await;
        let map = cont.pool().map();
        let cells = placement::cell_layout(array.oid, &map).unwrap().members(0).to_vec();
        let pages = used(&cluster, cells[0]);
        assert_eq!(pages.len() as u64, STRIPES * CELL_BYTES / 4096, "cells and nothing else");
        let_decay(&cluster, cells[0], pages.into_iter().step_by(5));
        // One that leaves cells to the leader.
        let reader = cluster.client_without_codes("r");
        let pool = Name::Label("p".into());
        let pool = reader.pool_open(&pool, OpenMode::ReadWrite).await.unwrap();
        let name = Name::Label("c".into());
        let cont = pool.cont_open(&name, OpenMode::ReadWrite).await.unwrap();
        let of_reader = ArrayObj { cont: cont.clone(), ..array.clone() };
        check(&of_reader, &known, "with a cell that cannot be read").await;
        rest(&client, 5).await;
        assert_eq!(mended(&cont).await, STRIPES);
        cluster.kill_engine(cells[1].0 as usize);
        check(&of_reader, &known, "without another cell").await;
    });
}
