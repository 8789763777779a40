//! Targets for what a store reads back from its device.
//!
//! Checksums on the device hide damage of random bits, so [`record`] goes in behind them: the
//! records of a log are replayed as they are. Its input is a list of records, each with its
//! length in two bytes; they are framed anew, so that a mutation inside a record does not end in
//! a wrong length every time.

use crate::target::Target;
use serde_bytes::Bytes;
use types::Oid;

/// Replay makes an index of what it reads: keys, trees, locks. A change takes a few bytes on
/// the device and up to this many per byte in memory.
const REPLAY_AMPLIFICATION: usize = 1024;

/// All targets of the `vos` crate.
pub fn all() -> Vec<Target> {
    let sealed = |name, run: fn(&[u8])| Target {
        name,
        run,
        seeds: || vec![vec![0; 64], [&b"AZKW\x03"[..], &[0; 59]].concat()],
        amplification_max: 64,
    };
    vec![
        Target { name: "vos-record", run: record, seeds, amplification_max: REPLAY_AMPLIFICATION },
        sealed("vos-wal-batch", vos::fuzz::wal_batch),
        sealed("vos-superblock", vos::fuzz::superblock),
        sealed("vos-shard-settings", vos::fuzz::shard_settings),
        sealed("vos-measures", vos::fuzz::measures),
        sealed("vos-log-head", vos::fuzz::log_head),
        sealed("vos-volume-table", vos::fuzz::volume_table),
        Target {
            name: "vos-dkey-image",
            run: vos::fuzz::dkey_image,
            seeds: vos::fuzz::image_seeds,
            amplification_max: 64,
        },
        Target {
            name: "vos-index-page",
            run: vos::fuzz::index_page,
            seeds: vos::fuzz::page_seeds,
            amplification_max: REPLAY_AMPLIFICATION,
        },
        Target {
            name: "vos-page-table",
            run: vos::fuzz::page_table,
            seeds: vos::fuzz::table_seeds,
            amplification_max: REPLAY_AMPLIFICATION,
        },
        Target {
            name: "vos-free-blocks",
            run: vos::fuzz::free_blocks,
            seeds: || vec![vec![16, 1, 2, 4, 0], vec![16, 2, 0, 1, 3, 2, 1, 1, 2]],
            amplification_max: REPLAY_AMPLIFICATION,
        },
    ]
}

/// Replays the records of the input, framed anew.
fn record(mut bytes: &[u8]) {
    let mut log = Vec::with_capacity(2 * bytes.len());
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = (u16::from_le_bytes(*length) as usize).min(rest.len());
        log.extend_from_slice(&(length as u32).to_le_bytes());
        log.extend_from_slice(&rest[..length]);
        bytes = &rest[length..];
    }
    vos::fuzz::record(&log);
}

/// Logs with every kind of record and change, written field by field as the serializer would.
fn seeds() -> Vec<Vec<u8>> {
    let hashed = Oid { hi: 1, lo: 2 };
    let integers = Oid::generate(0, 3, types::ObjType::ArrayByte, types::ObjClass::S1, 0);
    let (name, value, chunk) = (Bytes::new(b"name"), Bytes::new(b"value"), 1u64.to_le_bytes());
    let (akey, empty, chunk) = (Bytes::new(b"i"), Bytes::new(b""), Bytes::new(&chunk));
    let origin = (1u8, (5u64, 6u64), value);
    let run = (8192u64, 4096u64);

    let single = wire::encode(&(0u8, hashed, name, akey, value));
    let runs = wire::encode(&(1u8, hashed, name, akey, vec![run]));
    let inline = wire::encode(&(2u8, integers, chunk, empty, 1u32, 0u64, 5u64, (0u8, value)));
    let blocks = wire::encode(&(2u8, integers, chunk, empty, 1u32, 4u64, 9u64, (1u8, 4096u64)));
    let zeros = wire::encode(&(2u8, integers, chunk, empty, 1u32, 7u64, 1u64 << 40, 2u8));
    let punch_records = wire::encode(&(3u8, integers, chunk, empty, 2u64, 6u64));
    let punch_obj = wire::encode(&(4u8, hashed));
    let punch_dkey = wire::encode(&(5u8, hashed, name));
    let punch_from = wire::encode(&(6u8, integers, 1u64));
    let punch_akey = wire::encode(&(7u8, hashed, name, akey));
    let apply = |epoch: u64, changes: &[&[u8]]| {
        let mut record = wire::encode(&(2u8, 7u64, epoch, changes.len()));
        record.extend(changes.concat());
        record.extend(wire::encode(&(origin, vec![(0u8, hashed), (1u8, hashed)])));
        record.extend(wire::encode(&vec![(2u64, 1u8, Bytes::new(b"sum_"))]));
        record
    };

    let create = wire::encode(&(0u8, 7u64, 1u8, false));
    let batch = wire::obj::Batch {
        pool: types::PoolId(1),
        cont: types::ContId(7),
        at: types::Epoch::ZERO,
        checks: vec![],
        ops: vec![wire::obj::Op::PunchDkeysFrom { unit: integers.first_unit(), from: 1 }],
        sums: wire::obj::Sums::NONE,
    };
    let batch = wire::encode(&batch);
    let version = wire::WIRE_VERSION;
    let tx = (5u64, 9u64);
    let prepare = wire::encode(&(3u8, tx, 1u32, 7u64, version, Bytes::new(&batch), (0u8, 0u8)));
    let commit = wire::encode(&(4u8, tx, (0u8, 99u64), origin, Vec::<(u8, Oid)>::new()));
    let decision = wire::encode(&(5u8, tx, 98u64, vec![1u32, 2]));
    let forget = wire::encode(&(6u8, tx));
    let reply = wire::encode(&(7u8, (5u64, 6u64), value));
    let orphan = wire::encode(&(8u8, 7u64, hashed));
    let last = wire::encode(&(9u8, 500u64));
    let mut snapshot = wire::encode(&(10u8, 7u64, hashed, empty, empty, 1usize, 50u64));
    snapshot.extend(&single);
    snapshot.extend(wire::encode(&(vec![(1u8, name, 51u64)], 52u64, 51u64)));

    let present = [1u8; 128];
    let sums = [9u8; 128 * 4];
    let region = wire::encode(&(12u8, 1u8, 3u64, Bytes::new(&present), Bytes::new(&sums)));
    let bad = wire::encode(&(13u8, vec![(2u64, 5u64, true), (3072u64, 5u64, false)]));
    let scrub = wire::encode(&(14u8, true, 5u64, 0u64, 1u64, 2u64, 3u64, 4u64));

    let all_changes: [&[u8]; 5] = [&single, &runs, &inline, &blocks, &zeros];
    let all_punches: [&[u8]; 5] =
        [&punch_records, &punch_akey, &punch_dkey, &punch_from, &punch_obj];
    let logs: [&[&[u8]]; 6] = [
        &[&create, &apply(10, &[&blocks]), &region, &bad, &scrub],
        &[&create, &apply(10, &all_changes), &apply(11, &all_punches)],
        &[&create, &apply(10, &[&inline]), &apply(11, &[&zeros]), &apply(12, &[&blocks])],
        &[&create, &apply(10, &[&inline, &zeros]), &prepare, &commit, &decision, &forget],
        &[&create, &apply(10, &[&single]), &snapshot, &reply, &orphan, &last],
        &[&create, &apply(10, &all_changes), &wire::encode(&(1u8, 7u64)), &create],
    ];
    let install = vos::fuzz::install_seed();
    let install: Vec<&[u8]> = install.iter().map(Vec::as_slice).collect();
    logs.iter().copied().chain([&install[..]]).map(framed).collect()
}

fn framed(records: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.extend_from_slice(&(record.len() as u16).to_le_bytes());
        out.extend_from_slice(record);
    }
    out
}
