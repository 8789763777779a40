//! Sums of stored data: kept over restarts and compactions, found to differ when a bit flips, made
//! anew where a value had to be cut.

use super::model::*;
use env::{AlignedBuf, Decay, DiskFaults, Env, OpenOptions, Rng, SimWorld};
use std::path::Path;
use types::{Code, CsumKind, Durability, Epoch, ObjType, Unit};
use vos::{BadMark, PoolShard, PoolShardConfig, Segments, Store, SumPolicy};
use wire::obj::*;

const DATA: &str = "/target/pool.3/data";
const MARK: BadMark = BadMark { found_ns: 77, by_scrubber: true };

/// Flips a bit of the data area behind the store's back.
pub async fn flip(env: &Env, bit: u64) {
    let options = OpenOptions { direct: true, dsync: true, ..OpenOptions::default() };
    let file = env.disk().open(Path::new(DATA), options).await.unwrap();
    let at = bit / 8 / 4096 * 4096;
    let (mut buf, read) = file.read_at(at, AlignedBuf::try_zeroed(4096).unwrap()).await;
    read.unwrap();
    buf[(bit / 8 % 4096) as usize] ^= 1 << (bit % 8);
    file.write_at(at, buf).await.1.unwrap();
}

/// Reads one range as an engine does for a client; the client's view of it.
pub async fn read(shard: &PoolShard, unit: Unit, at: u64, bytes: u64) -> Result<Vec<u8>, Code> {
    let want = FetchWant::Array { record_bytes: 1, recxs: vec![Recx { index: at, count: bytes }] };
    let iods = [FetchIod { akey: b"a", want }];
    let mut segments = Segments::new();
    let touched = [Op::Fetch { unit, dkey: b"d", cond: Cond::NONE, iods: iods.to_vec() }];
    shard.ready(CONT, &[], &touched).await.unwrap();
    let fetched = shard.view(CONT).unwrap().fetch(unit, b"d", Cond::NONE, &iods, &mut segments);
    fetched.map_err(|error| error.code)?;
    segments.load().await.unwrap();
    let Ok(sums) = segments.sums() else { return Err(Code::Csum) };
    let (sums, data) = (sums.as_wire(), segments.slices().concat());
    codec::check(sums.kind, &sums.runs, sums.sums, &[&data]).map_err(|_| Code::Csum)?;
    Ok(data)
}

pub async fn put(shard: &PoolShard, epoch: u64, unit: Unit, at: u64, data: &[u8]) {
    let recxs = vec![Recx { index: at, count: data.len() as u64 }];
    let value = UpdateValue::Array { record_bytes: 1, recxs };
    let iods = vec![UpdateIod { akey: b"a", cond: Cond::NONE, value }];
    let ops = [Op::Update { unit, dkey: b"d", cond: Cond::NONE, iods }];
    let lsn = write(shard, epoch, &ops, data, None).await.unwrap();
    shard.durable(lsn).await.unwrap();
}

pub fn bytes(seed: u64, count: usize) -> Vec<u8> {
    (0..count).map(|n| types::hash::mix(seed << 32 ^ n as u64) as u8).collect()
}

/// All blocks that differ from their sums, as the scrubber finds them.
pub async fn scrub(shard: &PoolShard) -> Vec<u64> {
    let mut bad = Vec::new();
    let mut from = 0;
    let mut checked = 0;
    while let Some(found) = shard.scrub(from, 3).await.unwrap() {
        bad.extend(found.bad);
        checked += found.bytes;
        from = found.next_block;
    }
    assert_eq!(checked, shard.summed_bytes(0));
    bad
}

/// Sectors that cannot be read are damage, also where the scrubber reads nothing beside them: it took one alone for a device that gives nothing,
/// went on behind it, and the other copies never came to put it right. A device that does give nothing has lost nothing.
#[test]
fn sectors_that_cannot_be_read_are_found_alone() {
    let world = SimWorld::new(1);
    let env = world.node("a");
    world.block_on(async {
        let store = Store::open(&env, Path::new("/target")).await.unwrap();
        let config = PoolShardConfig { scm_bytes: 4 << 20, ..config(Durability::Wal) };
        let shard = store.create_shard(POOL, &config).await.unwrap();
        let policy = SumPolicy { kind: CsumKind::Crc32c, verify: false };
        shard.create_summed_cont(CONT, policy).unwrap();
        let unit = unit(ObjType::MultiHashed, 1);
        put(&shard, 1, unit, 0, &bytes(1, 5 * 4096)).await;
        let disk = world.disk("a");
        disk.set_faults(DiskFaults { read_error_ppm: 1_000_000, ..DiskFaults::default() });
        assert_eq!(shard.scrub(0, 64).await.unwrap_err().code, Code::Io);
        disk.set_faults(DiskFaults::default());
        let used = disk.filled_pages(Path::new(DATA));
        assert!(used.len() >= 5, "{used:?}");
        used.iter().for_each(|at| disk.decay(Path::new(DATA), *at, Decay::Unreadable));
        let blocks: Vec<u64> = (0..used[used.len() - 1] / 4096 + 1).collect();
        let mut summed = Vec::new();
        for block in blocks {
            let found = shard.scrub(block, 1).await.unwrap();
            summed.extend(found.into_iter().flat_map(|found| found.bad));
        }
        summed.dedup();
        assert_eq!(summed.len() as u64 * 4096, shard.summed_bytes(0));
        assert_eq!(scrub(&shard).await, summed);
        assert_eq!(shard.differing_again(&summed).await, summed);
    });
    world.clear();
}

#[test]
fn a_flipped_bit_is_never_read_and_stays_known_until_it_is_overwritten() {
    for (seed, kind) in (1..).zip(CsumKind::ALL[1..].iter().copied().cycle().take(12)) {
        let world = SimWorld::new(seed);
        let env = world.node("a");
        world.block_on(async {
            let store = Store::open(&env, Path::new("/target")).await.unwrap();
            let config = PoolShardConfig { scm_bytes: 4 << 20, ..config(Durability::Wal) };
            let mut shard = store.create_shard(POOL, &config).await.unwrap();
            shard.create_summed_cont(CONT, SumPolicy { kind, verify: false }).unwrap();
            let rng = Rng::new(seed);
            let unit = unit(ObjType::MultiHashed, 1);
            let mut model = vec![0; 80_000];
            // Written whole, then cut by overwrites at odd places, small and large.
            for epoch in 1..12 {
                let at = if epoch == 1 { 0 } else { rng.next_u64() % 60_000 };
                let most = if epoch == 1 { 70_000 } else { 1 + rng.next_u64() % 20_000 };
                let data = bytes(epoch << 8 | seed, most as usize);
                put(&shard, epoch, unit, at, &data).await;
                model[at as usize..][..data.len()].copy_from_slice(&data);
            }
            assert_eq!(scrub(&shard).await, []);
            assert_eq!(read(&shard, unit, 0, 80_000).await.unwrap(), model);
            let blocks = shard.summed_bytes(0) / 4096;
            assert!(blocks >= 17);

            // A block that is in use, found by walking as the scrubber does.
            let victim = {
                let mut from = 0;
                let mut all = Vec::new();
                while let Some(found) = shard.scrub(from, 1).await.unwrap() {
                    all.push(found.next_block - 1);
                    from = found.next_block;
                }
                all[(rng.next_u64() % all.len() as u64) as usize]
            };
            let holders = shard.holders(&[victim]).await;
            assert!(!holders.is_empty() && holders.iter().all(|holder| holder.unit == unit));
            flip(&env, victim * 4096 * 8 + rng.next_u64() % (4096 * 8)).await;

            let touches = |at: u64, count: u64| {
                holders.iter().any(|h| h.offset < at + count && at < h.offset + h.bytes)
            };
            for _ in 0..60 {
                let at = rng.next_u64() % 79_000;
                let count = 1 + rng.next_u64() % (80_000 - at).min(9_000);
                let expected = match touches(at, count) {
                    true => Err(Code::Csum),
                    false => Ok(model[at as usize..(at + count) as usize].to_vec()),
                };
                assert!(read(&shard, unit, at, count).await == expected, "{kind} {at}+{count}");
            }
            assert_eq!(scrub(&shard).await, [victim]);
            assert_eq!(shard.differing_again(&[victim, victim + 1]).await, [victim]);
            assert_eq!(shard.mark_bad(&[victim], MARK), [victim]);
            assert_eq!(shard.mark_bad(&[victim], MARK), []);

            // Even if the bit flips back nobody gets it, also after a restart, with or without
            // a compaction before it.
            for compacts in [false, true, true] {
                if compacts {
                    shard.checkpoint().await.unwrap();
                }
                shard.close().await.unwrap();
                shard = store.open_shard(POOL).await.unwrap();
                assert_eq!(shard.bad_blocks(), [(victim, MARK)]);
                assert_eq!(shard.summed_bytes(0), blocks * 4096);
                let refused = read(&shard, unit, holders[0].offset, 1).await;
                assert_eq!(refused.unwrap_err(), Code::Csum);
                assert_eq!(scrub(&shard).await, [victim]);
            }
            for (epoch, holder) in (50..).zip(&holders) {
                let data = bytes(epoch, holder.bytes as usize);
                put(&shard, epoch, unit, holder.offset, &data).await;
                model[holder.offset as usize..][..data.len()].copy_from_slice(&data);
            }
            assert_eq!(shard.bad_blocks(), []);
            assert_eq!(scrub(&shard).await, []);
            assert_eq!(read(&shard, unit, 0, 80_000).await.unwrap(), model);
            // What is removed leaves no sums behind.
            let ops = [Op::PunchObj { unit, cond: Cond::NONE, besides: b"" }];
            let lsn = write(&shard, 99, &ops, b"", None).await.unwrap();
            shard.durable(lsn).await.unwrap();
            assert_eq!(shard.summed_bytes(0), 0);
            shard.close().await.unwrap();
            let shard = store.open_shard(POOL).await.unwrap();
            assert_eq!((shard.summed_bytes(0), shard.scrub(0, 9).await.unwrap()), (0, None));
        });
        world.clear();
    }
}

#[test]
fn data_that_arrive_damaged_are_refused_where_it_is_looked_at() {
    let world = SimWorld::new(5);
    let env = world.node("a");
    world.block_on(async {
        let store = Store::open(&env, Path::new("/target")).await.unwrap();
        for (durability, pool) in [(Durability::Memory, 11), (Durability::Wal, 12)] {
            let pool = types::PoolId(pool);
            let shard = store.create_shard(pool, &config(durability)).await.unwrap();
            for (bulk, verify, refused) in [
                (3_000, false, true),
                (3_000, true, true),
                (9_000, true, true),
                (9_000, false, false),
            ] {
                let kind = CsumKind::Crc64;
                let cont = types::ContId(bulk as u64 * 2 + verify as u64);
                shard.create_summed_cont(cont, SumPolicy { kind, verify }).unwrap();
                let value = UpdateValue::Single { bytes: bulk as u64 };
                let iods = vec![UpdateIod { akey: b"a", cond: Cond::NONE, value }];
                let unit = unit(ObjType::MultiHashed, 1);
                let ops = [Op::Update { unit, dkey: b"d", cond: Cond::NONE, iods }];
                let data = bytes(3, bulk);
                let sums = codec::value_sums(kind, [bulk as u64].into_iter(), &[&data]).unwrap();
                let mut payload = shard.stage(&ops).unwrap();
                let mut at = 0;
                for room in payload.buffers() {
                    room.copy_from_slice(&data[at..at + room.len()]);
                    at += room.len();
                    room[0] ^= 4;
                }
                // Sums of another kind, too few, none at all.
                for wrong in [
                    Sums { kind: CsumKind::Xxh3, bytes: &sums },
                    Sums { kind, bytes: &sums[1..] },
                    Sums::NONE,
                ] {
                    let error = shard.take_sums(cont, &wrong, &mut payload).unwrap_err();
                    assert_eq!(error.code, Code::Inval);
                }
                let outcome = shard.take_sums(cont, &Sums { kind, bytes: &sums }, &mut payload);
                assert_eq!(
                    outcome.map_err(|e| e.code),
                    if refused { Err(Code::Csum) } else { Ok(()) }
                );
                payload.write().await.unwrap();
                if bulk > 4096 && refused {
                    // Without sums such data do not get in.
                    let put = shard.apply(cont, Epoch(9), &ops, payload, None, &[]);
                    assert_eq!(put.unwrap_err().code, Code::Inval);
                }
            }
        }
    });
    world.clear();
}

/// Story: records of three bytes in fragmented space are cut inside a chunk, so that the sender's
/// sums fit no block.
#[test]
fn values_that_had_to_be_cut_get_sums_of_their_own() {
    for durability in [Durability::Memory, Durability::Wal] {
        let world = SimWorld::new(6);
        let env = world.node("a");
        world.block_on(async {
            let config = PoolShardConfig { nvme_bytes: 64 * 4096, ..config(durability) };
            let (store, shard) = fresh(&env, &config).await.unwrap();
            let unit = unit(ObjType::MultiHashed, 1);
            // All space full, then every other pair of blocks free.
            for n in 0..32u64 {
                put(&shard, n + 1, unit, n * 8192, &bytes(n, 8192)).await;
            }
            for n in (0..32u64).step_by(2) {
                let recxs = vec![Recx { index: n * 8192, count: 8192 }];
                let value = UpdateValue::PunchRecords { recxs };
                let iods = vec![UpdateIod { akey: b"a", cond: Cond::NONE, value }];
                let ops = [Op::Update { unit, dkey: b"d", cond: Cond::NONE, iods }];
                let lsn = write(&shard, n + 40, &ops, b"", None).await.unwrap();
                shard.durable(lsn).await.unwrap();
            }
            let data = bytes(99, 9_999 * 3);
            let value = UpdateValue::Array {
                record_bytes: 3,
                recxs: vec![Recx { index: 0, count: 9_999 }],
            };
            let iods = vec![UpdateIod { akey: b"odd", cond: Cond::NONE, value }];
            let ops = [Op::Update { unit, dkey: b"d", cond: Cond::NONE, iods }];
            let lsn = write(&shard, 90, &ops, &data, None).await.unwrap();
            shard.durable(lsn).await.unwrap();
            let shard = match durability {
                Durability::Memory => shard,
                _ => {
                    shard.close().await.unwrap();
                    store.open_shard(POOL).await.unwrap()
                }
            };
            assert_eq!(scrub(&shard).await, []);
            let recxs = vec![Recx { index: 0, count: 9_999 }];
            let iods =
                [FetchIod { akey: b"odd", want: FetchWant::Array { record_bytes: 3, recxs } }];
            let mut segments = Segments::new();
            let touched = [Op::Fetch { unit, dkey: b"d", cond: Cond::NONE, iods: iods.to_vec() }];
            shard.ready(CONT, &[], &touched).await.unwrap();
            shard.view(CONT).unwrap().fetch(unit, b"d", Cond::NONE, &iods, &mut segments).unwrap();
            segments.load().await.unwrap();
            assert_eq!(segments.damaged(), []);
            assert!(checked_data(&segments) == data);
        });
        world.clear();
    }
}

/// Story: damage in what only a snapshot shows was counted, but nobody could say whose it was.
#[test]
fn the_holder_of_a_block_is_found_in_the_past_too() {
    let world = SimWorld::new(7);
    let env = world.node("a");
    world.block_on(async {
        let (_store, shard) = fresh_with(&env, &config(Durability::Wal), 0).await.unwrap();
        let (kept, lived) = (unit(ObjType::MultiHashed, 1), unit(ObjType::MultiHashed, 2));
        put(&shard, 1, kept, 0, &[1; 4096]).await;
        put(&shard, 2, lived, 8192, &[2; 4096]).await;
        let block = async |unit| {
            let all: Vec<u64> = (0..64).collect();
            let found = shard.holders(&all).await;
            found.iter().find(|holder| holder.unit == unit).cloned().unwrap()
        };
        let before = [block(kept).await, block(lived).await];
        let snapshots = vec![Epoch(2)];
        let versions =
            wire::versions::ContVersions { revision: 1, snapshots, ..Default::default() };
        shard.set_versions(CONT, &versions).unwrap();
        put(&shard, 3, kept, 0, &[3; 4096]).await;
        let ops = [Op::PunchObj { unit: lived, cond: Cond::NONE, besides: b"" }];
        write(&shard, 4, &ops, b"", None).await.unwrap();
        shard.checkpoint().await.unwrap();
        for holder in before {
            let found = shard.holders(&[holder.block]).await;
            assert_eq!(found, [vos::Holder { is_past: true, ..holder }]);
        }
    });
    world.clear();
}
