//! Cells of erasure codes that move give way to clients: to those of the target that has them, while they are read, and to those of the one that
//! comes to have them, while they are written. Who comes to have some gets those, too, that are written meanwhile.

use client::{ArrayObj, Container, KvObj};
use engine::StoreConfig;
use env::DiskFaults;
use sim::{Cluster, ClusterSpec, members, parity, seeds};
use std::time::Duration;
use transport::SimNet;
use types::{ContLayout, ContProps, Durability, ObjType, Oid, TargetId};
use wire::control::{ControlRequest, Name, OpenMode, Subject, TargetAim};
use wire::map::PoolMap;
use wire::obj::{Cond, Recx};

const CELL_BYTES: u32 = 64 << 10;
/// Of the class, two cells of data.
const STRIPE_BYTES: usize = 2 * CELL_BYTES as usize;
const STRIPES: u64 = 12;
const ARRAYS: usize = 3;
/// What an operation of a device takes: a share of no time would be none.
const TAKES: Duration = Duration::from_millis(4);
/// The target that is drained.
const LEAVING: TargetId = TargetId(3);

/// Whose clients work meanwhile.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Asked {
    Nobody,
    Everybody,
    /// The target that has the cells.
    Source,
    /// All others: those that come to have them are among them.
    Others,
}

impl Asked {
    fn has(self, target: TargetId) -> bool {
        match self {
            Asked::Nobody => false,
            Asked::Everybody => true,
            Asked::Source => target == LEAVING,
            Asked::Others => target != LEAVING,
        }
    }
}

fn data(number: usize, stripe: u64) -> Vec<u8> {
    let seed = types::hash::mix2(number as u64, stripe);
    (0..STRIPE_BYTES as u64)
        .map(|at| types::hash::mix2(seed, at / 8).to_le_bytes()[(at % 8) as usize])
        .collect()
}

fn range(stripe: u64) -> [Recx; 1] {
    let count = STRIPE_BYTES as u64;
    [Recx { index: stripe * count, count }]
}

/// Arrays of which the target that leaves has a cell of each stripe.
fn arrays(cont: &Container, map: &PoolMap) -> Vec<ArrayObj> {
    let oid = |number| {
        cont.generate_oid(ObjType::ArrayByte, "EC_2P1G1".parse().unwrap(), 0, number).unwrap()
    };
    let has_it = |oid: &Oid| {
        let layout = placement::cell_layout(*oid, map).unwrap();
        layout.members(0).contains(&LEAVING)
    };
    let chosen = (10..).map(oid).filter(has_it).take(ARRAYS);
    let array = |oid| ArrayObj {
        cont: cont.clone(),
        oid,
        record_bytes: 1,
        // All under one key: next to nothing but cells moves.
        chunk_records: STRIPES * STRIPE_BYTES as u64,
    };
    chosen.map(array).collect()
}

/// A key of one copy on each target that is asked.
fn keys(cont: &Container, map: &PoolMap, asked: Asked) -> Vec<KvObj> {
    let oid =
        |number| cont.generate_oid(ObjType::KvHashed, "S1".parse().unwrap(), 0, number).unwrap();
    let on = |target: TargetId| {
        let is_there = |oid: &Oid| placement::layout(*oid, map).unwrap().targets()[0] == target;
        KvObj { object: cont.object((1_000..).map(oid).find(is_there).unwrap()) }
    };
    map.targets.iter().map(|held| held.id).filter(|id| asked.has(*id)).map(on).collect()
}

/// How long a drain takes.
fn time_of(seed: u64, share: &str, asked: Asked) -> Duration {
    let spec = ClusterSpec { seed, engines: 5, targets: 1 };
    // What is read comes from devices.
    let store = StoreConfig { data_cache_percent: Some(0), ..StoreConfig::default() };
    let cluster = Cluster::start_healing(spec, store, Some(3600)).unwrap();
    cluster.block_on(async {
        let client = cluster.client("c");
        let first = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let props = ContProps { cell_bytes: CELL_BYTES, ..ContProps::default() };
        let pool = first.pool();
        pool.cont_create("cells", uuid::Uuid::nil(), props, Default::default()).await.unwrap();
        let name = Name::Label("cells".into());
        let cont = pool.cont_open(&name, OpenMode::ReadWrite).await.unwrap();
        let map = members::newest_map(&client).await.unwrap();
        let arrays = arrays(&cont, &map);
        for (number, array) in arrays.iter().enumerate() {
            for stripe in 0..STRIPES {
                array.write(&range(stripe), &[&data(number, stripe)]).await.unwrap();
            }
        }
        let keys = keys(&cont, &map, asked);
        for key in &keys {
            key.put(None, Cond::NONE, b"key", b"value").await.unwrap();
        }
        let named = || Name::Label("p".into());
        let props = [("heal_share".to_string(), share.to_string())].into();
        let subject = Subject::Pool(named());
        client.control(&ControlRequest::SetProps { subject, props }).await.unwrap();
        let faults = DiskFaults { latency_min: TAKES, latency_max: TAKES, ..DiskFaults::default() };
        for at in 0..5 {
            cluster.world().disk(&Cluster::engine_name(at)).set_faults(faults.clone());
        }
        let (targets, aim) = (vec![LEAVING], TargetAim::Drain);
        client.control(&ControlRequest::PoolAim { pool: named(), targets, aim }).await.unwrap();
        let newest = async || members::newest_map(&client).await.unwrap();
        while newest().await.next.is_none() {
            client.env().sleep(Duration::from_millis(1)).await;
        }
        let begun = client.env().now();
        while newest().await.next.is_some() {
            for key in &keys {
                let found = key.get(None, b"key").await.unwrap();
                assert_eq!(found.as_deref(), Some(&b"value"[..]), "seed {seed}, {asked:?}");
            }
            client.env().sleep(Duration::from_millis(5)).await;
        }
        let took = client.env().now() - begun;
        assert!(newest().await.outs.iter().any(|out| out.target == LEAVING && out.is_drained));
        for (number, array) in arrays.iter().enumerate() {
            for stripe in 0..STRIPES {
                let mut found = vec![0xee; STRIPE_BYTES];
                array.read(&range(stripe), &mut [&mut found]).await.unwrap();
                assert!(found == data(number, stripe), "seed {seed}, {asked:?}: {number} {stripe}");
            }
        }
        took
    })
}

/// Cells were moved at full speed once, whatever those who have and get them had to do for clients.
#[test]
fn cells_that_move_give_way_to_clients() {
    for seed in seeds(1) {
        let alone = time_of(seed, "2", Asked::Nobody);
        let all = time_of(seed, "100", Asked::Everybody);
        for asked in [Asked::Source, Asked::Others] {
            let little = time_of(seed, "2", asked);
            println!("seed {seed}, {asked:?}: {little:?}; {alone:?} alone, {all:?} with all of it");
            assert!(
                little > all * 3,
                "seed {seed}, {asked:?}: {little:?} with 2 %, {all:?} with all"
            );
            assert!(little > alone * 3, "seed {seed}, {asked:?}: {little:?}, {alone:?} alone");
        }
    }
}

/// Who came to have cells looked for them once, and said that it had all. Until all others had said so, too, which may take hours, stripes went on being
/// coded, and it got none of their cells. Where two members of a group were drained, too few cells of such stripes were left when they had gone.
#[test]
fn stripes_that_are_coded_while_targets_move_have_all_their_cells() {
    for seed in seeds(4) {
        let spec = ClusterSpec { seed, engines: 9, targets: 1 };
        let cluster = Cluster::start_healing(spec, StoreConfig::default(), Some(3600)).unwrap();
        cluster.block_on(async {
            let client = match seed % 2 {
                0 => cluster.client("c"),
                _ => cluster.client_without_codes("c"),
            };
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let newest = async || members::newest_map(&client).await.unwrap();
            let rest = async |seconds| client.env().sleep(Duration::from_secs(seconds)).await;
            // One who has nothing to do with the array cannot say yet that it has all.
            let net = SimNet::of(cluster.world());
            net.cut("e1", "e2");
            let leaving = [TargetId(3), TargetId(4)];
            let (pool, targets) = (Name::Label("p".into()), leaving.to_vec());
            let aim = TargetAim::Drain;
            client.control(&ControlRequest::PoolAim { pool, targets, aim }).await.unwrap();
            rest(10).await;
            let map = newest().await;
            assert!(map.next.is_some(), "seed {seed}: it is over");
            let oid = |number| {
                let class = "EC_2P1G1".parse().unwrap();
                cont.generate_oid(ObjType::ArrayByte, class, 0, number).unwrap()
            };
            let is_meant = |oid: &Oid| {
                let layout = placement::cell_layout(*oid, &map).unwrap();
                let (all, now) = (layout.everyone(0), layout.members(0));
                leaving.iter().all(|target| now.contains(target))
                    && (0..=2).all(|other| !all.contains(&TargetId(other)))
            };
            let oid = (10..).map(oid).find(is_meant).unwrap();
            let chunk_records = 1 << 20;
            let array = ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records };
            // It hears of the newest map.
            array.write(&range(0), &[&data(7, 0)]).await.unwrap();
            rest(5).await;
            for stripe in 0..STRIPES {
                array.write(&range(stripe), &[&data(7, stripe)]).await.unwrap();
            }
            assert_eq!(cont.cell_traffic().written > 0, seed % 2 == 0, "seed {seed}");
            rest(5).await;
            assert!(newest().await.next.is_some(), "seed {seed}: it is over");
            net.heal("e1", "e2");
            let is_over = |map: &PoolMap| map.next.is_none();
            let lacking = members::await_map(&client, is_over).await.unwrap();
            assert_eq!(lacking, None, "seed {seed}");
            let compared = parity::compare(&client, &cont, oid).await.unwrap();
            assert_eq!(compared, Ok(STRIPES), "seed {seed}");
            for stripe in 0..STRIPES {
                let mut found = vec![0xee; STRIPE_BYTES];
                array.read(&range(stripe), &mut [&mut found]).await.unwrap();
                assert!(found == data(7, stripe), "seed {seed}: stripe {stripe}");
            }
        });
    }
}
