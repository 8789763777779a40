//! The room of coded data comes back within seconds of their removal, and nothing that anybody needs goes with it.
//!
//! Cells of stripes that had lost their names were dropped by the audit only, which has to wait until nobody can be about to name
//! them: a pool that was filled, emptied and filled again ran full, with a minute's worth of cells of what was gone.

use client::{ArrayObj, Client, Container};
use sim::{Cluster, ClusterSpec, members, parity, seeds};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Code, ContLayout, ContProps, Durability, Epoch, ObjType, PlacementRule, TargetId};
use wire::cell::{Dkeys, UnnamedCells};
use wire::control::{ControlRequest, Name, OpenMode, SnapName};
use wire::map::PoolMap;
use wire::member::{MemberAsk, MemberRequest};
use wire::obj::{Cond, Recx, Request};

const CHUNK: u64 = 1 << 20;
/// Far less than the audit waits.
const SOON: Duration = Duration::from_secs(5);

fn file(cont: &Container, class: &str, number: u64) -> ArrayObj {
    let oid = cont.generate_oid(ObjType::ArrayByte, class.parse().unwrap(), 0, number).unwrap();
    ArrayObj { cont: cont.clone(), oid, record_bytes: 1, chunk_records: CHUNK }
}

async fn write(file: &ArrayObj, at: u64, bytes: u64, value: u8) {
    let data = vec![value; bytes as usize];
    file.write(&[Recx { index: at, count: bytes }], &[&data]).await.unwrap();
}

async fn check(file: &ArrayObj, at: u64, bytes: u64, value: u8, context: &str) {
    let mut found = vec![0xee; bytes as usize];
    file.read(&[Recx { index: at, count: bytes }], &mut [&mut found]).await.unwrap();
    assert!(found.iter().all(|byte| *byte == value), "{context}: not {value} but {}", found[0]);
}

/// Data bytes in use over all targets.
async fn used(client: &Client) -> u64 {
    let pool = client.pool_open(&Name::Label("p".into()), wire::control::OpenMode::ReadWrite).await;
    let total = pool.unwrap().query().await.unwrap().total;
    total.nvme_bytes - total.nvme_free_bytes
}

async fn soon(client: &Client) {
    client.env().sleep(SOON).await;
}

async fn compared(client: &Client, file: &ArrayObj, context: &str) -> u64 {
    let outcome = parity::compare(client, &file.cont, file.oid).await.unwrap();
    outcome.unwrap_or_else(|wrong| panic!("{context}: {wrong}"))
}

/// A cluster, with a client that codes stripes, or one that leaves it to folds.
fn cluster(seed: u64, engines: usize, codes: bool) -> (Cluster, Client) {
    let cluster = Cluster::start(ClusterSpec { seed, engines, targets: 1 }).unwrap();
    let client = match codes {
        true => cluster.client("c"),
        false => cluster.client_without_codes("c"),
    };
    (cluster, client)
}

/// Whatever takes the names: the object goes, is cut, holes are made, all is written anew.
#[test]
fn room_of_what_is_gone_is_there_in_seconds() {
    for (seed, class) in (0..).zip(["EC_2P1G1", "EC_2P1GX", "EC_2P1GX+1MiB"]) {
        for codes in [true, false] {
            let (cluster, client) = cluster(seed, 4, codes);
            cluster.block_on(async {
                let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
                let cont = cont.unwrap();
                let file = file(&cont, class, 1);
                let before = used(&client).await;
                write(&file, 0, 8 * CHUNK, 1).await;
                soon(&client).await;
                let whole = used(&client).await - before;
                let context = |what: &str| format!("{class}, {what}");
                let is_first_part = class.contains('+');
                let first = if is_first_part { 2 * CHUNK } else { CHUNK * 3 / 2 };
                assert_eq!(whole, first + 7 * CHUNK * 3 / 2, "{class}");

                write(&file, 0, 8 * CHUNK, 2).await;
                soon(&client).await;
                assert_eq!(used(&client).await - before, whole, "{}", context("written anew"));
                check(&file, 0, 8 * CHUNK, 2, &context("written anew")).await;
                assert!(compared(&client, &file, &context("written anew")).await > 0);

                file.punch(&[Recx { index: 2 * CHUNK, count: CHUNK }]).await.unwrap();
                soon(&client).await;
                let left = whole - CHUNK * 3 / 2;
                assert_eq!(used(&client).await - before, left, "{}", context("a hole"));
                check(&file, 2 * CHUNK, CHUNK, 0, &context("a hole")).await;
                check(&file, 3 * CHUNK, 5 * CHUNK, 2, &context("a hole")).await;

                file.set_size(5 * CHUNK).await.unwrap();
                soon(&client).await;
                let left = left - 3 * CHUNK * 3 / 2;
                assert_eq!(used(&client).await - before, left, "{}", context("cut"));
                check(&file, 3 * CHUNK, 2 * CHUNK, 2, &context("cut")).await;
                assert!(compared(&client, &file, &context("cut")).await > 0);

                cont.object(file.oid).punch(Cond::NONE).await.unwrap();
                soon(&client).await;
                assert_eq!(used(&client).await, before, "{}", context("removed"));
            });
        }
    }
}

/// Who writes a file, removes it and begins anew, as fast as memory is, has the room of a few of them in a small pool. With half a second between
/// a loss of names and its telling such a pool ran full.
#[test]
fn room_is_back_before_the_next_file_is_written() {
    let (cluster, client) = cluster(3, 4, true);
    cluster.block_on(async {
        let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await.unwrap();
        let before = used(&client).await;
        for number in 1..=4 {
            let file = file(&cont, "EC_2P1GX", number);
            write(&file, 0, 8 * CHUNK, 1).await;
            assert_eq!(used(&client).await - before, 8 * CHUNK * 3 / 2, "file {number}");
            cont.object(file.oid).punch(Cond::NONE).await.unwrap();
            client.env().sleep(Duration::from_millis(300)).await;
            assert_eq!(used(&client).await, before, "file {number}");
        }
    });
}

/// Two thirds of a pool are one file, which is removed, and the next one begun at once: its writer waits for the room in place of being refused. In a pool that
/// is full indeed he is told so after seconds, and at once when he tries again.
#[test]
fn who_writes_anew_at_once_waits_for_the_room() {
    const TARGET_BYTES: u64 = 60 << 20;
    const BYTES: u64 = 4 << 20;
    let (cluster, client) = cluster(5, 3, true);
    cluster.block_on(async {
        let create = ControlRequest::PoolCreate {
            label: "p".into(),
            bytes: 3 * TARGET_BYTES,
            scm_percent: 20,
            durability: Durability::Wal,
            placement: PlacementRule::Equal,
            targets: Vec::new(),
        };
        client.pool_create(create).await.unwrap();
        let name = |label: &str| Name::Label(label.into());
        let pool = client.pool_open(&name("p"), OpenMode::ReadWrite).await.unwrap();
        let none = BTreeMap::new();
        pool.cont_create("c", uuid::Uuid::nil(), ContProps::default(), none).await.unwrap();
        let cont = pool.cont_open(&name("c"), OpenMode::ReadWrite).await.unwrap();
        let free = async || {
            let targets = (0..3).map(TargetId);
            let stats = targets.map(|target| cont.pool().query_one(target));
            let stats = futures_util::future::try_join_all(stats).await.unwrap();
            stats.iter().map(|stat| stat.nvme_free_bytes).min().unwrap()
        };
        // A member keeps half of what is written.
        let count = free().await * 4 / 3 / BYTES;
        for number in 1..=4 {
            let file = file(&cont, "EC_2P1G1", number);
            for at in 0..count {
                write(&file, at * BYTES, BYTES, number as u8).await;
            }
            check(&file, 0, BYTES, number as u8, "the beginning").await;
            cont.object(file.oid).punch(Cond::NONE).await.unwrap();
        }
        soon(&client).await;

        let file = file(&cont, "EC_2P1G1", 9);
        let data = vec![1; BYTES as usize];
        let fill = async |at: u64| {
            let begun = client.env().now();
            let range = [Recx { index: at * BYTES, count: BYTES }];
            let outcome = file.write(&range, &[&data]).await;
            (outcome.map_err(|error| error.code), client.env().now() - begun)
        };
        let mut at = 0;
        let (refused, took) = loop {
            match fill(at).await {
                (Ok(()), _) => at += 1,
                (Err(code), took) => break (code, took),
            }
        };
        assert_eq!(refused, Code::NoSpace);
        assert!(at > count && took >= Duration::from_secs(1), "{at} pieces, {took:?}");
        let (again, took) = fill(at).await;
        assert_eq!(again, Err(Code::NoSpace));
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

/// A snapshot sees what was removed since: its stripes keep their names, and their cells, until it goes.
#[test]
fn cells_that_a_snapshot_sees_stay() {
    for seed in seeds(2) {
        for codes in [true, false] {
            let (cluster, client) = cluster(seed, 4, codes);
            cluster.block_on(async {
                let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
                let cont = cont.unwrap();
                let file = file(&cont, "EC_2P1G1", 1);
                let before = used(&client).await;
                write(&file, 0, 4 * CHUNK, 1).await;
                soon(&client).await;
                let whole = used(&client).await - before;
                let name = Name::Label("c".into());
                let made = cont.pool().snap_create(&name, "then").await.unwrap();
                let which = SnapName::Epoch(made.epoch);
                let cont_then = cont.at_snapshot(&which).await.unwrap();
                let then = ArrayObj { cont: cont_then, ..file.clone() };

                // Half of it, and over that once more: what no snapshot sees goes.
                for value in [2, 3] {
                    write(&file, 0, 2 * CHUNK, value).await;
                    soon(&client).await;
                    let context = format!("seed {seed}, value {value}");
                    assert_eq!(used(&client).await - before, whole * 3 / 2, "{context}");
                    check(&then, 0, 4 * CHUNK, 1, &context).await;
                    assert!(compared(&client, &file, &context).await > 0);
                }
                cont.object(file.oid).punch(Cond::NONE).await.unwrap();
                soon(&client).await;
                let context = format!("seed {seed}, removed");
                assert_eq!(used(&client).await - before, whole, "{context}");
                check(&then, 0, 4 * CHUNK, 1, &context).await;
                cluster.kill_engine(1);
                check(&then, 0, 4 * CHUNK, 1, &format!("{context}, without an engine")).await;
                cluster.start_engine(1).await.unwrap();
                assert_eq!(members::await_whole(&client).await.unwrap(), None, "seed {seed}");
                cont.pool().snap_destroy(&name, &which).await.unwrap();
                // Who leads now may not remember what it named before it was killed, and leaves it until it is old.
                client.env().sleep(Duration::from_secs(70)).await;
                assert_eq!(used(&client).await, before, "seed {seed}, without the snapshot");
            });
        }
    }
}

/// A destroyed snapshot was the last to name the stripes that were written over since. No change of the array says so: the audit, which had
/// seen them named, never looked again, and their cells stayed for good.
#[test]
fn what_only_a_snapshot_named_goes_with_it() {
    for seed in seeds(2) {
        for codes in [true, false] {
            let (cluster, client) = cluster(seed, 4, codes);
            cluster.block_on(async {
                let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
                let cont = cont.unwrap();
                let file = file(&cont, "EC_2P1G1", 1);
                let before = used(&client).await;
                write(&file, 0, 4 * CHUNK, 1).await;
                soon(&client).await;
                let whole = used(&client).await - before;
                let name = Name::Label("c".into());
                let made = cont.pool().snap_create(&name, "then").await.unwrap();
                write(&file, 0, 2 * CHUNK, 2).await;
                // The audit has looked at all that is named now, more than once.
                client.env().sleep(Duration::from_secs(200)).await;
                let context = format!("seed {seed}, codes {codes}");
                assert_eq!(used(&client).await - before, whole * 3 / 2, "{context}");
                cont.pool().snap_destroy(&name, &SnapName::Epoch(made.epoch)).await.unwrap();
                soon(&client).await;
                assert_eq!(used(&client).await - before, whole, "{context}, without it");
                check(&file, 0, 2 * CHUNK, 2, &context).await;
                check(&file, 2 * CHUNK, 2 * CHUNK, 1, &context).await;
                assert!(compared(&client, &file, &context).await > 0);
            });
        }
    }
}

/// An array that is written while its cells of before are dropped, again and again, loses none of what it has now.
#[test]
fn what_is_written_again_at_once_keeps_its_cells() {
    for seed in seeds(3) {
        for codes in [true, false] {
            let (cluster, client) = cluster(seed, 5, codes);
            cluster.block_on(async {
                let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
                let file = file(&cont.unwrap(), "EC_2P1GX", 1);
                for round in 1..40u8 {
                    match round % 3 {
                        0 => file.cont.object(file.oid).punch(Cond::NONE).await.unwrap(),
                        1 => file.set_size(CHUNK / 2).await.unwrap(),
                        _ => {}
                    }
                    write(&file, 0, 2 * CHUNK, round).await;
                    let pause = client.env().random_u64() % 700;
                    client.env().sleep(Duration::from_millis(pause)).await;
                    check(&file, 0, 2 * CHUNK, round, &format!("seed {seed}, {round}")).await;
                }
                soon(&client).await;
                let context = format!("seed {seed}, at the end");
                check(&file, 0, 2 * CHUNK, 39, &context).await;
                assert!(compared(&client, &file, &context).await > 0);
            });
        }
    }
}

struct Asker<'a> {
    client: &'a Client,
    file: &'a ArrayObj,
    map: std::rc::Rc<PoolMap>,
}

impl Asker<'_> {
    /// Asks a target as another one would.
    async fn ask(
        &self,
        to: TargetId,
        by: TargetId,
        until: Epoch,
        units: Vec<UnnamedCells>,
    ) -> Epoch {
        let ask = MemberAsk::DropCells { until, units };
        let (pool, map_version) = (self.map.pool, self.map.version);
        let asked = MemberRequest { pool, map_version, member: by, newest: Epoch::ZERO, ask };
        let answer = members::ask(self.client, &self.map, to, &Request::Member(asked)).await;
        wire::decode::<types::Result<Epoch>>(&answer.unwrap()).unwrap().unwrap()
    }

    /// As if the leader had told everybody that nothing of the file has a name.
    async fn ask_all(&self, by: TargetId, until: &[Epoch], once_named: &[Epoch]) {
        for (target, until) in self.map.targets.iter().zip(until) {
            let told = UnnamedCells {
                cont: self.file.cont.id(),
                unit: self.file.oid.first_unit(),
                dkeys: Dkeys::All,
                stay: Vec::new(),
                once_named: once_named.to_vec(),
            };
            self.ask(target.id, by, *until, vec![told]).await;
        }
    }
}

/// What was asked before cells were kept (again) drops none of them, whenever it comes; nor does what somebody asks who does not lead the group,
/// or what says nothing of a stripe that a client may be about to have named.
#[test]
fn late_words_and_words_of_others_drop_nothing() {
    for codes in [true, false] {
        let (cluster, client) = cluster(1, 3, codes);
        cluster.block_on(async {
            let cont = cluster.container(&client, Durability::Wal, ContLayout::Plain).await;
            let file = file(&cont.unwrap(), "EC_2P1G1", 1);
            let map = members::newest_map(&client).await.unwrap();
            let layout = placement::layout(file.oid, &map).unwrap();
            let leader = layout.leader(0, &map).unwrap();
            let asker = Asker { client: &client, file: &file, map };
            let now = async || {
                let mut now = Vec::new();
                for target in &asker.map.targets {
                    now.push(asker.ask(target.id, leader, Epoch::ZERO, Vec::new()).await);
                }
                now
            };
            let before = now().await;
            write(&file, 0, CHUNK, 7).await;
            soon(&client).await;
            let stripes = compared(&client, &file, "at first").await;
            assert_eq!(stripes, 8);
            asker.ask_all(leader, &before, &[]).await;
            assert_eq!(compared(&client, &file, "a late word").await, stripes);
            let after = now().await;
            let other = asker.map.targets.iter().find(|target| target.id != leader).unwrap();
            asker.ask_all(other.id, &after, &[]).await;
            assert_eq!(compared(&client, &file, "a word of another").await, stripes);
            if codes {
                asker.ask_all(leader, &after, &[]).await;
                assert_eq!(compared(&client, &file, "what may be named").await, stripes);
            }
            // That it would have done something: cells that are folded are the leader's alone.
            if !codes {
                asker.ask_all(leader, &after, &[]).await;
                let outcome = parity::compare(&client, &file.cont, file.oid).await.unwrap();
                assert!(outcome.is_err_and(|wrong| wrong.contains("is lacking")));
            }
        });
    }
}
