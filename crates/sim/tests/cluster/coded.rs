//! Arrays with erasure codes: stripes are folded into cells, read while members are away, put together again elsewhere, and nothing
//! of what is overwritten or removed stays.

use client::{ArrayObj, Client, Container, Pool};
use engine::StoreConfig;
use sim::{Cluster, ClusterSpec, members, seeds};
use std::time::Duration;
use transport::SimNet;
use types::{Code, ContLayout, ContProps, Durability, ObjType, Oid, Rank, TargetId};
use wire::cell::{Stripe, cell_akey, cell_unit, coined};
use wire::control::{ControlRequest, Name, OpenMode, SnapName, TargetAim};
use wire::map::PoolMap;
use wire::obj::{Cond, Op, Recx, UpdateIod, UpdateValue};

const CHUNK: u64 = 1 << 20;

fn array(cont: &Container, class: &str, number: u64) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: CHUNK }
}

fn cluster(seed: u64, engines: usize, rebuild_after_s: u32) -> Cluster {
    let spec = ClusterSpec { seed, engines, targets: 1 };
    Cluster::start_healing(spec, StoreConfig::default(), Some(rebuild_after_s)).unwrap()
}

/// An array and what must be in it.
struct File {
    array: ArrayObj,
    known: Vec<u8>,
    draw: u64,
}

impl File {
    fn new(cont: &Container, class: &str, number: u64) -> File {
        File { array: array(cont, class, number), known: Vec::new(), draw: number }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.draw = types::hash::mix2(self.draw, 7);
        self.draw % below.max(1)
    }

    async fn write(&mut self, at: u64, bytes: u64) {
        let seed = self.next(u64::MAX);
        let data: Vec<u8> = (0..bytes)
            .map(|i| types::hash::mix2(seed, i / 8).to_le_bytes()[(i % 8) as usize])
            .collect();
        self.array.write(&[Recx { index: at, count: bytes }], &[&data]).await.unwrap();
        let end = (at + bytes) as usize;
        if self.known.len() < end {
            self.known.resize(end, 0);
        }
        self.known[at as usize..end].copy_from_slice(&data);
    }

    /// Writes here and there, and sometimes cuts.
    async fn go_on(&mut self, steps: u64) {
        for _ in 0..steps {
            let (at, bytes) = match self.next(4) {
                0 => (self.next(8) * (CHUNK / 4), CHUNK / 2),
                1 => (self.next(2 * CHUNK), 1 + self.next(200_000)),
                2 => (self.next(2 * CHUNK), 1 + self.next(3_000)),
                _ => (self.next(4) * 131_072, 131_072),
            };
            self.write(at, bytes).await;
            if self.next(12) == 0 {
                let size = self.next(self.known.len() as u64 + 1);
                self.array.set_size(size).await.unwrap();
                self.known.resize(size as usize, 0);
            }
        }
    }

    async fn check(&self, context: &str) {
        let mut found = vec![0xee; self.known.len()];
        let all = [Recx { index: 0, count: found.len() as u64 }];
        self.array.read(&all, &mut [&mut found]).await.unwrap();
        let differs = sim::first_difference(&found, &self.known);
        assert_eq!(differs, None, "{context}: {}", self.array.oid);
        assert_eq!(self.array.size().await.unwrap(), self.known.len() as u64, "{context}");
    }
}

/// Data bytes in use over all targets.
async fn used(client: &Client) -> u64 {
    let pool = client.pool_open(&Name::Label("p".into()), wire::control::OpenMode::ReadWrite).await;
    let total = pool.unwrap().query().await.unwrap().total;
    total.nvme_bytes - total.nvme_free_bytes
}

/// A container whose stripes have cells of this size.
async fn container_of(cluster: &Cluster, client: &Client, cell_bytes: u32) -> Container {
    let first = cluster.container(client, Durability::Wal, ContLayout::Plain).await.unwrap();
    let props = ContProps { cell_bytes, ..ContProps::default() };
    let pool = first.pool();
    pool.cont_create("cells", uuid::Uuid::nil(), props, Default::default()).await.unwrap();
    let cont = pool.cont_open(&Name::Label("cells".into()), OpenMode::ReadWrite).await.unwrap();
    assert_eq!(array(&cont, "EC_2P1G1", 1).oid.cell_bytes(), cell_bytes);
    cont
}

/// A client that codes whole stripes itself, or does not.
fn client(cluster: &Cluster, draw: u64) -> Client {
    match draw % 2 {
        0 => cluster.client("c"),
        _ => cluster.client_without_codes("c"),
    }
}

/// A difference between members that stays: folds tell them one after the other.
async fn difference(client: &Client, cont: &Container, oid: Oid) -> Option<String> {
    for _ in 0..10 {
        members::difference(client, cont, oid).await.unwrap()?;
        rest(client, 2).await;
    }
    members::difference(client, cont, oid).await.unwrap()
}

async fn rest(client: &Client, seconds: u64) {
    client.env().sleep(Duration::from_secs(seconds)).await;
}

/// Others stand in for all targets of these, and for no others.
fn are_out(away: &[u32]) -> impl Fn(&PoolMap) -> bool {
    move |map| {
        map.next.is_none()
            && map.targets.iter().all(|target| {
                map.outs.iter().any(|out| out.target == target.id) == away.contains(&target.rank.0)
            })
    }
}

#[test]
fn what_is_written_whole_takes_the_room_of_its_cells() {
    // By folds, that is: see `whole_stripes_go_to_cells_at_once` for the other way.
    for (class, data, all, cell_bytes) in
        [("EC_2P1G1", 2, 3, 64 << 10), ("EC_4P2G1", 4, 6, 256 << 10), ("EC_2P1GX", 2, 3, 512 << 10)]
    {
        let cluster = cluster(1, 6, 60);
        cluster.block_on(async {
            let client = cluster.client_without_codes("c");
            let cont = container_of(&cluster, &client, cell_bytes).await;
            let before = used(&client).await;
            let mut file = File::new(&cont, class, 1);
            file.write(0, 4 * CHUNK).await;
            file.check(class).await;
            rest(&client, 5).await;
            let room = used(&client).await - before;
            assert_eq!(room, 4 * CHUNK * all / data, "{class}");
            file.check(class).await;
            // What is written into a stripe lies over it, and is folded with it when that is whole again.
            file.write(100_000, 70_000).await;
            file.check(class).await;
            rest(&client, 5).await;
            file.check(class).await;
            // Old cells go.
            rest(&client, 200).await;
            assert_eq!(used(&client).await - before, 4 * CHUNK * all / data, "{class}");
            file.array.set_size(0).await.unwrap();
            rest(&client, 200).await;
            assert_eq!(used(&client).await, before, "{class}: cells of what was removed stay");
        });
    }
}

/// What a small file needs is with few targets, and no code has to be undone to read it; what is beyond takes the room of cells. In
/// a pool of one group and of several, and whoever codes.
#[test]
fn a_first_part_stays_copies_and_the_rest_is_coded() {
    for (seed, class) in (0..).zip(["EC_2P1GX+1MiB", "EC_4P2GX+1MiB", "EC_2P1GX+1MiB"]) {
        let cluster = cluster(seed, 6, 60);
        cluster.block_on(async {
            let client = client(&cluster, seed);
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let scheme = class.parse::<types::ObjClass>().unwrap().scheme;
            let types::Scheme::ErasureCoded { data, parity } = scheme else { unreachable!() };
            let (all, data, copies) = ((data + parity) as u64, data as u64, parity as u64 + 1);
            let before = used(&client).await;
            let mut small = File::new(&cont, class, 1);
            small.write(0, CHUNK).await;
            rest(&client, 5).await;
            assert_eq!(used(&client).await - before, CHUNK * copies, "{class}: a first part");
            let mut large = File::new(&cont, class, 2);
            large.write(0, 7 * CHUNK).await;
            rest(&client, 200).await;
            let room = CHUNK * 2 * copies + 6 * CHUNK * all / data;
            assert_eq!(used(&client).await - before, room, "{class}");
            for engine in 1..6 {
                cluster.kill_engine(engine);
                small.check(&format!("{class} without engine {engine}")).await;
                large.check(&format!("{class} without engine {engine}")).await;
                cluster.start_engine(engine).await.unwrap();
                assert_eq!(members::await_whole(&client).await.unwrap(), None);
            }
            large.write(CHUNK / 2, CHUNK).await;
            large.check(class).await;
        });
    }
}

#[test]
fn arrays_are_read_and_written_while_members_are_away() {
    for seed in seeds(4) {
        let durability = if seed % 2 == 0 { Durability::Wal } else { Durability::Memory };
        let cluster = cluster(seed, 7, 3);
        cluster.block_on(async {
            let client = client(&cluster, seed / 2);
            let cont = cluster.container(&client, durability, ContLayout::Plain).await.unwrap();
            let classes = ["EC_2P1G1", "EC_2P1GX", "EC_4P2G1", "EC_2P2G1", "EC_2P1GX+512KiB"];
            let mut files: Vec<File> =
                (1..).zip(classes).map(|(number, class)| File::new(&cont, class, number)).collect();
            for file in &mut files {
                // A container's property decides it; here there are all sizes at once.
                let cell_bytes = (64 << 10) << file.next(5);
                file.array.oid = file.array.oid.with_cell_bytes(cell_bytes);
                file.write(0, 2 * CHUNK).await;
                file.go_on(20).await;
            }
            rest(&client, 3).await;
            // The first engine holds the catalog.
            let first = 1 + (seed % 6) as usize;
            let mut away = Vec::new();
            for (round, engine) in [first, 1 + (first + 2) % 6].into_iter().enumerate() {
                cluster.kill_engine(engine);
                away.push(engine as u32);
                let context = format!("seed {seed}, without engines {away:?}");
                for file in &mut files {
                    file.check(&context).await;
                    file.go_on(6).await;
                    file.check(&context).await;
                }
                let lacking = members::await_map(&client, are_out(&away)).await.unwrap();
                assert_eq!(lacking, None, "{context}");
                let context = format!("{context}, with others in their place (round {round})");
                for file in &mut files {
                    file.check(&context).await;
                    file.go_on(6).await;
                }
                rest(&client, 3).await;
                for file in &files {
                    file.check(&context).await;
                }
            }
            while let Some(engine) = away.pop() {
                cluster.start_engine(engine as usize).await.unwrap();
                let context = format!("seed {seed}, engine {engine} is back");
                let lacking = members::await_map(&client, are_out(&away)).await.unwrap();
                assert_eq!(lacking, None, "{context}");
                for file in &mut files {
                    file.check(&context).await;
                    file.go_on(4).await;
                }
            }
            assert_eq!(members::await_whole(&client).await.unwrap(), None, "seed {seed}");
            // Cells that nothing names are dropped, others are not.
            rest(&client, 200).await;
            for file in &files {
                let context = format!("seed {seed}, at the end");
                file.check(&context).await;
                let oid = file.array.oid;
                assert_eq!(difference(&client, &cont, oid).await, None, "{context}");
            }
            // Any one engine may be lost now.
            for engine in 1..7 {
                cluster.kill_engine(engine);
                for file in &files {
                    file.check(&format!("seed {seed}, at the end without engine {engine}")).await;
                }
                // So long that all know that it was away: in memory it has nothing when it is back.
                rest(&client, 8).await;
                cluster.start_engine(engine).await.unwrap();
                assert_eq!(members::await_whole(&client).await.unwrap(), None, "seed {seed}");
            }
        });
    }
}

/// What targets of an engine are to do in the pool.
async fn aim(client: &Client, rank: u32, aim: TargetAim) {
    let map = members::newest_map(client).await.unwrap();
    let of = map.targets.iter().filter(|target| target.rank == Rank(rank));
    let targets = of.map(|target| target.id).collect();
    let pool = Name::Label("p".into());
    client.control(&ControlRequest::PoolAim { pool, targets, aim }).await.unwrap();
}

/// Who is drained has no cell that others lack: it may be lost together with as many others as a class survives.
#[test]
fn drained_engines_hold_no_cells_that_others_lack() {
    for seed in seeds(4) {
        let cluster = cluster(seed, 6, 3);
        cluster.block_on(async {
            let client = client(&cluster, seed / 2);
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let classes = ["EC_2P1G1", "EC_2P1GX", "EC_2P2G1"];
            let mut files: Vec<File> =
                (1..).zip(classes).map(|(number, class)| File::new(&cont, class, number)).collect();
            for file in &mut files {
                file.go_on(20).await;
            }
            rest(&client, 3).await;
            let drained = 1 + (seed % 5) as u32;
            aim(&client, drained, TargetAim::Drain).await;
            while !are_out(&[drained])(&members::newest_map(&client).await.unwrap()) {
                for file in &mut files {
                    file.go_on(1).await;
                }
                rest(&client, 1).await;
            }
            cluster.kill_engine(drained as usize);
            let lost = 1 + drained % 5;
            cluster.kill_engine(lost as usize);
            for file in &mut files {
                file.check(&format!("seed {seed}, without {drained} and {lost}")).await;
                file.go_on(4).await;
            }
            cluster.start_engine(lost as usize).await.unwrap();
            cluster.start_engine(drained as usize).await.unwrap();
            aim(&client, drained, TargetAim::Serve).await;
            let context = format!("seed {seed}, all are back");
            assert_eq!(members::await_map(&client, are_out(&[])).await.unwrap(), None, "{context}");
            assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
            rest(&client, 100).await;
            for file in &files {
                file.check(&context).await;
                let differs = difference(&client, &cont, file.array.oid).await;
                assert_eq!(differs, None, "{context}");
            }
        });
    }
}

/// Engines come and go at any moment of folds, while everybody writes. Those that are away at the same time are never more than the classes
/// survive.
#[test]
fn no_moment_of_a_fold_loses_anything() {
    for seed in seeds(5) {
        let durability = if seed % 2 == 0 { Durability::Wal } else { Durability::Memory };
        let cluster = cluster(seed, 6, 4);
        cluster.block_on(async {
            let client = client(&cluster, seed / 2);
            let cont = cluster.container(&client, durability, ContLayout::Plain).await.unwrap();
            let classes = ["EC_2P1G1", "EC_2P1GX", "EC_4P1G1", "EC_2P2G1"];
            let mut files: Vec<File> =
                (1..).zip(classes).map(|(number, class)| File::new(&cont, class, number)).collect();
            let env = cluster.world().node("trouble");
            for round in 0..10u64 {
                for file in &mut files {
                    file.go_on(3).await;
                }
                env.sleep(Duration::from_millis(env.random_u64() % 200)).await;
                let lost = 1 + (env.random_u64() % 5) as usize;
                cluster.kill_engine(lost);
                let context = format!("seed {seed}, round {round}, without engine {lost}");
                for file in &mut files {
                    file.go_on(2).await;
                    file.check(&context).await;
                }
                let away_ms = if durability == Durability::Memory { 8_000 } else { 0 };
                env.sleep(Duration::from_millis(away_ms + env.random_u64() % 9_000)).await;
                cluster.start_engine(lost).await.unwrap();
                let context = format!("seed {seed}, round {round}, engine {lost} is back");
                for file in &mut files {
                    file.check(&context).await;
                }
                assert_eq!(members::await_whole(&client).await.unwrap(), None, "{context}");
                for file in &mut files {
                    file.check(&context).await;
                    let differs = difference(&client, &cont, file.array.oid).await;
                    assert_eq!(differs, None, "{context}");
                }
            }
            rest(&client, 200).await;
            for file in &files {
                file.check("at the end").await;
                file.array.destroy().await.unwrap();
            }
        });
    }
}

/// A snapshot shows what was folded, and what was folded since does not change that; its cells stay as long as it does, and a rollback
/// brings them back.
#[test]
fn snapshots_keep_their_cells() {
    for seed in seeds(4) {
        let cluster = cluster(seed, 5, 60);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let mut file = File::new(&cont, "EC_2P1GX", seed);
            file.write(0, 2 * CHUNK).await;
            file.go_on(6).await;
            rest(&client, 3).await;
            let name = Name::Label("c".into());
            let made = cont.pool().snap_create(&name, "first").await.unwrap();
            let which = SnapName::Epoch(made.epoch);
            let old = cont.at_snapshot(&which).await.unwrap();
            let then = File {
                array: ArrayObj { cont: old, ..file.array.clone() },
                known: file.known.clone(),
                draw: 0,
            };
            for round in 0..3 {
                file.go_on(8).await;
                rest(&client, 70).await;
                file.check(&format!("seed {seed}, round {round}")).await;
                then.check(&format!("seed {seed}, round {round}, then")).await;
            }
            cluster.kill_engine(2);
            then.check(&format!("seed {seed}, then, without an engine")).await;
            cluster.start_engine(2).await.unwrap();
            assert_eq!(members::await_whole(&client).await.unwrap(), None, "seed {seed}");
            cont.pool().roll_back(&name, &which, true).await.unwrap();
            file.known = then.known.clone();
            file.check(&format!("seed {seed}, rolled back")).await;
            rest(&client, 150).await;
            file.check(&format!("seed {seed}, rolled back, later")).await;
            cont.pool().snap_destroy(&name, &which).await.unwrap();
            rest(&client, 150).await;
            file.check(&format!("seed {seed}, at the end")).await;
            file.go_on(8).await;
            rest(&client, 100).await;
            file.check(&format!("seed {seed}, and on")).await;
        });
    }
}

/// Cells that had come to another target since the snapshot were not there at its time, by that target's clock: a rollback removed them, and what the
/// snapshot names was lost.
#[test]
fn a_rollback_leaves_cells_that_have_moved() {
    for seed in seeds(2) {
        let cluster = cluster(seed, 5, 60);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            // The first engine holds the catalog.
            let members = |file: &File| {
                let layout = placement::cell_layout(file.array.oid, &cont.pool().map()).unwrap();
                layout.members(0).iter().map(|member| member.0).collect::<Vec<u32>>()
            };
            let files = (10 * seed..).map(|number| File::new(&cont, "EC_2P1G1", number));
            let mut file = files.into_iter().find(|file| !members(file).contains(&0)).unwrap();
            let holders = members(&file);
            file.write(0, 4 * CHUNK).await;
            rest(&client, 3).await;
            let name = Name::Label("c".into());
            let made = cont.pool().snap_create(&name, "").await.unwrap();
            let gone = [holders[1]];
            aim(&client, gone[0], TargetAim::Drain).await;
            assert_eq!(members::await_map(&client, are_out(&gone)).await.unwrap(), None);
            let which = SnapName::Epoch(made.epoch);
            cont.pool().roll_back(&name, &which, true).await.unwrap();
            cluster.kill_engine(holders[2] as usize);
            file.check(&format!("seed {seed}, without {gone:?} and {}", holders[2])).await;
        });
    }
}

/// A client that writes whole stripes codes them itself, and reads them from those who have the cells.
#[test]
fn whole_stripes_go_to_cells_at_once() {
    for (class, data, all) in [("EC_2P1G1", 2, 3), ("EC_4P2G1", 4, 6), ("EC_2P1GX", 2, 3)] {
        let cluster = cluster(1, 6, 60);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let before = used(&client).await;
            let mut file = File::new(&cont, class, 1);
            file.write(0, 4 * CHUNK).await;
            assert_eq!(used(&client).await - before, 4 * CHUNK * all / data, "{class}");
            file.check(class).await;
            let traffic = cont.cell_traffic();
            assert!(traffic.written > 0 && traffic.read > 0, "{class}: {traffic:?}");
            assert_eq!(traffic.given_up, 0, "{class}");
            // Neither begins nor ends with a stripe.
            file.write(CHUNK + 100, 2 * CHUNK - 7_000).await;
            file.check(class).await;
            // One who has nothing from then on is read around.
            let read = cont.cell_traffic().read;
            cluster.kill_engine(1);
            file.check(class).await;
            file.write(CHUNK / 2, CHUNK).await;
            file.check(class).await;
            cluster.start_engine(1).await.unwrap();
            assert_eq!(members::await_whole(&client).await.unwrap(), None, "{class}");
            rest(&client, 200).await;
            file.check(class).await;
            assert!(cont.cell_traffic().read > read, "{class}");
            assert_eq!(used(&client).await - before, 4 * CHUNK * all / data, "{class}");
            file.array.set_size(0).await.unwrap();
            rest(&client, 200).await;
            assert_eq!(used(&client).await, before, "{class}: cells of what was removed stay");
        });
    }
}

/// Leaders name only stripes whose cells were kept just before, by members that are all there; what a client has kept and never named is
/// dropped.
#[test]
fn cells_are_named_soon_or_never() {
    let cluster = cluster(1, 6, 60);
    cluster.block_on(async {
        let client = cluster.client("c");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let oid = cont.generate_oid(ObjType::ArrayByte, "EC_2P1G1".parse().unwrap(), 0, 9).unwrap();
        let (unit, dkey) = (oid.first_unit(), 1u64.to_le_bytes());
        let cell_bytes = 65_536;
        let stripe = |number| Stripe { first: 0, version: coined(number), cell_bytes };
        let keep = async |stripe: Stripe, cell: usize| {
            let data = vec![cell as u8; cell_bytes as usize];
            let akey = cell_akey(b"", &stripe);
            let recxs = vec![Recx { index: 0, count: cell_bytes as u64 }];
            let value = UpdateValue::Array { record_bytes: 1, recxs };
            let iods = vec![UpdateIod { akey: &akey, cond: Cond::NONE, value }];
            let mut batch = cont.batch();
            let unit = cell_unit(unit, cell);
            batch.op_of_unit(Op::Update { unit, dkey: &dkey, cond: Cond::NONE, iods });
            batch.bulk_out(&data);
            batch.run().await.map(|_| ())
        };
        let name = async |stripe: Stripe, map_version: u32, count: u64| {
            let stripes = vec![stripe];
            let value = UpdateValue::Coded { record_bytes: 1, count, map_version, stripes };
            let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
            let mut batch = cont.batch();
            batch.op_of_unit(Op::Update { unit, dkey: &dkey, cond: Cond::NONE, iods });
            batch.run().await.map(|_| ()).map_err(|error| error.code)
        };
        let count = 2 * cell_bytes as u64;
        let before = used(&client).await;
        let version = members::newest_map(&client).await.unwrap().version;
        assert_eq!(name(stripe(1), version, count).await, Err(Code::Busy), "no cells");
        for cell in 0..3 {
            keep(stripe(1), cell).await.unwrap();
        }
        assert_eq!(name(stripe(1), version - 1, count).await, Err(Code::Busy), "another map");
        assert_eq!(name(stripe(1), version, count / 2).await, Err(Code::Inval), "half of it");
        let shifted = Stripe { first: 7, ..stripe(1) };
        assert_eq!(name(shifted, version, count).await, Err(Code::Inval), "begins elsewhere");
        let folded = Stripe { version: types::Epoch(1), ..stripe(1) };
        assert_eq!(name(folded, version, count).await, Err(Code::Inval), "an epoch");
        rest(&client, 30).await;
        assert_eq!(name(stripe(1), version, count).await, Err(Code::Busy), "too late");
        rest(&client, 200).await;
        assert_eq!(used(&client).await, before, "cells that nobody named stay");
        for cell in 0..3 {
            keep(stripe(2), cell).await.unwrap();
        }
        assert_eq!(name(stripe(2), version, count).await, Ok(()));
        rest(&client, 200).await;
        let array = ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: CHUNK };
        let mut found = vec![9; count as usize];
        array.read(&[Recx { index: 0, count }], &mut [&mut found]).await.unwrap();
        let is_right = |(at, byte): (usize, &u8)| *byte == (at / cell_bytes as usize) as u8;
        assert!(found.iter().enumerate().all(is_right));
        // Cells are kept and read, and no more.
        let mut batch = cont.batch();
        batch.op_of_unit(Op::PunchObj { unit: cell_unit(unit, 0), cond: Cond::NONE, besides: b"" });
        assert_eq!(batch.run().await.map(|_| ()).unwrap_err().code, Code::Inval);
    });
}

/// A stripe that is folded again long after it was overwritten in part: a member that was reached meanwhile had looked through its cells
/// when the old name still stood, nothing that it goes by changes with the fold, and it kept the old cell for good.
#[test]
fn cells_of_a_stripe_that_is_folded_late_are_dropped() {
    let cluster = cluster(3, 4, 600);
    cluster.block_on(async {
        let client = cluster.client_without_codes("c");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let map = members::newest_map(&client).await.unwrap();
        let members_of = |file: &File| {
            let layout = placement::cell_layout(file.array.oid, &map).unwrap();
            layout.members(0).to_vec()
        };
        let files = (1..).map(|number| File::new(&cont, "EC_2P1G1", number));
        // The engine with the catalog is reached by all.
        let is_apart = |file: &File| !members_of(file).contains(&types::TargetId(0));
        let mut file = files.into_iter().find(is_apart).unwrap();
        let members = members_of(&file);
        let stripe_bytes = 2 * 65_536;
        file.write(0, stripe_bytes).await;
        rest(&client, 200).await;
        let before = used(&client).await;
        let name = |at: usize| Cluster::engine_name(members[at].0 as usize);
        let net = transport::SimNet::of(cluster.world());
        // Who leads does not reach a member that has a cell and no copy: it cannot fold.
        net.cut(&name(0), &name(2));
        file.write(0, stripe_bytes / 2 + 1000).await;
        rest(&client, 100).await;
        assert!(used(&client).await > before, "it was folded");
        net.heal(&name(0), &name(2));
        rest(&client, 300).await;
        file.check("folded late").await;
        assert_eq!(used(&client).await, before, "cells of the stripe of before stay");
    });
}

/// Where a part of a listing held nothing but cells it told nothing, and that there was more: who asked for few objects at a time
/// asked for the same ones for ever.
#[test]
fn listings_go_on_behind_cells() {
    let cluster = cluster(3, 4, 60);
    cluster.block_on(async {
        let client = cluster.client("c");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let mut made: Vec<Oid> = Vec::new();
        for number in 0..8 {
            let mut file = File::new(&cont, "EC_2P1G1", number);
            file.write(0, CHUNK).await;
            made.push(file.array.oid);
        }
        rest(&client, 5).await;
        let (mut listed, mut pages) = (Vec::new(), 0);
        loop {
            let page = cont.list_all_objects(listed.last().copied(), 1).await.unwrap();
            listed.extend(page.oids);
            if page.complete {
                break;
            }
            pages += 1;
            assert!(pages < 100, "{} of {} objects", listed.len(), made.len());
        }
        made.sort_unstable_by_key(|oid| oid.list_order());
        assert_eq!(listed, made);
    });
}

/// Waits until these passes of the scrubber are over; how many cells were put right so far.
async fn until_over(client: &Client, pool: &Pool, passes: &[(TargetId, Option<u64>)]) -> u64 {
    loop {
        rest(client, 1).await;
        let stats = pool.scrub_stat().await.unwrap();
        let stats: Vec<_> = stats.into_iter().map(|(_, stat)| stat.unwrap()).collect();
        let mut of_targets = stats.iter().zip(passes);
        if of_targets.all(|(stat, (_, pass))| stat.passes >= pass.unwrap()) {
            return stats.iter().map(|stat| stat.mended_count).sum();
        }
    }
}

/// A scrubber whose question another target's end cut short took its own part of the pool for closed, and was gone until the
/// engine was started again: nothing of the target was looked at any more.
#[test]
fn a_scrubber_outlives_the_connections_of_others() {
    let cluster = cluster(1, 3, 60);
    cluster.block_on(async {
        let client = cluster.client("c");
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let mut file = File::new(&cont, "EC_2P1G1", 4);
        file.write(0, 8 * CHUNK).await;
        rest(&client, 5).await;
        let net = SimNet::of(cluster.world());
        net.set_delay(Duration::from_millis(20), Duration::from_millis(20));
        let passes = cont.pool().scrub().await.unwrap();
        for _ in 0..12 {
            client.env().sleep(Duration::from_millis(210)).await;
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                net.break_connections(&Cluster::engine_name(a), &Cluster::engine_name(b));
            }
        }
        let over = until_over(&client, cont.pool(), &passes);
        let over = client.env().timeout(Duration::from_secs(120), over).await;
        assert_eq!(over, Some(0), "a pass does not end");
        file.check("after it").await;
    });
}

/// A cell that is whole and is another one's: no checksum tells, and who restores what is lost would get nonsense from it.
#[test]
fn the_scrubber_compares_parity_with_data() {
    for (class, data, wrong) in [("EC_2P1G1", 2, 2), ("EC_2P2G1", 2, 1), ("EC_4P2G1", 4, 5)] {
        let cluster = cluster(1, 6, 60);
        cluster.block_on(async {
            let client = cluster.client("c");
            let cont =
                cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
            let array = array(&cont, class, 9);
            let (unit, dkey) = (array.oid.first_unit(), 1u64.to_le_bytes());
            let (_, parity) = array.oid.cells().unwrap();
            let cell_bytes = 65_536u32;
            let stripe = Stripe { first: 0, version: coined(1), cell_bytes };
            let bytes = data * cell_bytes as usize;
            let known: Vec<u8> = (0..bytes).map(|i| types::hash::mix2(3, i as u64) as u8).collect();
            let keep = async |cell: usize, bytes: &[u8]| {
                let akey = cell_akey(b"", &stripe);
                let recxs = vec![Recx { index: 0, count: cell_bytes.into() }];
                let value = UpdateValue::Array { record_bytes: 1, recxs };
                let iods = vec![UpdateIod { akey: &akey, cond: Cond::NONE, value }];
                let mut batch = cont.batch();
                let unit = cell_unit(unit, cell);
                batch.op_of_unit(Op::Update { unit, dkey: &dkey, cond: Cond::NONE, iods });
                batch.bulk_out(bytes);
                batch.run().await.unwrap();
            };
            let garbage = vec![0xa5; cell_bytes as usize];
            for (cell, bytes) in known.chunks(cell_bytes as usize).enumerate() {
                keep(cell, bytes).await;
            }
            for cell in data..data + parity as usize {
                keep(cell, &garbage).await;
            }
            let map_version = members::newest_map(&client).await.unwrap().version;
            let (count, stripes) = (bytes as u64, vec![stripe]);
            let value = UpdateValue::Coded { record_bytes: 1, count, map_version, stripes };
            let iods = vec![UpdateIod { akey: b"", cond: Cond::NONE, value }];
            let mut batch = cont.batch();
            batch.op_of_unit(Op::Update { unit, dkey: &dkey, cond: Cond::NONE, iods });
            batch.run().await.unwrap();

            let pool = cont.pool();
            let scrub = async || {
                let passes = pool.scrub().await.unwrap();
                until_over(&client, pool, &passes).await
            };
            assert_eq!(scrub().await, parity as u64, "{class}: parity follows data");
            let mut cell = known.get(wrong * cell_bytes as usize..).unwrap_or_default().to_vec();
            cell.resize(cell_bytes as usize, 0x5a);
            cell[77] ^= 1;
            keep(wrong, &cell).await;
            assert_eq!(scrub().await, parity as u64 + 1, "{class}: one cell of {}", data + 1);
            assert_eq!(scrub().await, parity as u64 + 1, "{class}: all is right");
            // Whoever is lost now, the rest tells what was there.
            for engine in 1..6 {
                cluster.kill_engine(engine);
                rest(&client, 8).await;
                let mut found = vec![0; bytes];
                array.read(&[Recx { index: 0, count }], &mut [&mut found]).await.unwrap();
                assert!(found == known, "{class} without engine {engine}");
                cluster.start_engine(engine).await.unwrap();
                assert_eq!(members::await_whole(&client).await.unwrap(), None);
            }
        });
    }
}
