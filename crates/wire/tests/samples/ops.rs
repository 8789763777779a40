//! One sample of every operation, and of every variant inside one. The tests of `vos` include this file, too.

use serde_bytes::Bytes;
use types::{Oid, Unit};
use wire::cell::{Stripe, coined};
use wire::obj::*;

pub const OID: Oid = Oid { hi: 0x0d00_0100_0000_0007, lo: 0x55 };
pub const UNIT: Unit = Unit { object: OID, group: 300, cell: 2 };
pub const RANGE: Recx = Recx { index: 4096, count: 300 };

pub fn ops() -> Vec<(&'static str, Op<'static>)> {
    let update = |value| Op::Update {
        unit: UNIT,
        dkey: b"dkey",
        cond: Cond::DKEY_INSERT.and(Cond::OBJ_EXISTS),
        iods: vec![UpdateIod { akey: b"akey", cond: Cond::AKEY_UPDATE, value }],
    };
    let fetch = |want| Op::Fetch {
        unit: UNIT,
        dkey: b"dkey",
        cond: Cond::DKEY_FETCH,
        iods: vec![FetchIod { akey: b"akey", want }],
    };
    let list =
        |scope| Op::List { unit: UNIT, scope, anchor: b"anchor", count_max: 9, bytes_max: 10 };
    let recxs = || vec![RANGE, Recx { index: 1 << 40, count: 1 }];
    vec![
        ("update.inline", update(UpdateValue::Inline(b"value"))),
        ("update.single", update(UpdateValue::Single { bytes: 70_000 })),
        ("update.array", update(UpdateValue::Array { record_bytes: 1, recxs: recxs() })),
        ("update.zero", update(UpdateValue::Zero { record_bytes: 8, recxs: recxs() })),
        ("update.punch_records", update(UpdateValue::PunchRecords { recxs: recxs() })),
        (
            "update.coded",
            update(UpdateValue::Coded {
                record_bytes: 1,
                count: 131_072,
                map_version: 7,
                stripes: vec![Stripe { first: 131_072, version: coined(5), cell_bytes: 65_536 }],
            }),
        ),
        ("fetch.single", fetch(FetchWant::Single { bytes_max: 70_000, inline_bytes_max: 512 })),
        ("fetch.array", fetch(FetchWant::Array { record_bytes: 1, recxs: recxs() })),
        ("fetch.probe", fetch(FetchWant::Probe)),
        (
            "fetch.sparse",
            fetch(FetchWant::Sparse { record_bytes: 1, recxs: recxs(), with_holes: true }),
        ),
        ("punch_obj", Op::PunchObj { unit: UNIT, cond: Cond::OBJ_EMPTY, besides: b"/" }),
        (
            "punch_dkeys",
            Op::PunchDkeys {
                unit: UNIT,
                cond: Cond::PUNCH,
                dkeys: vec![Bytes::new(b"one"), Bytes::new(b"")],
            },
        ),
        ("punch_dkeys_from", Op::PunchDkeysFrom { unit: UNIT, from: 17 }),
        (
            "punch_akeys",
            Op::PunchAkeys {
                unit: UNIT,
                dkey: b"dkey",
                cond: Cond::NONE,
                akeys: vec![Bytes::new(b"a"), Bytes::new(b"b")],
            },
        ),
        (
            "list.dkeys",
            list(ListScope::Dkeys {
                value_of: Some(b"i"),
                follow: true,
                hash_range: (3, u64::MAX),
            }),
        ),
        (
            "list.dkeys_bare",
            list(ListScope::Dkeys { value_of: None, follow: false, hash_range: (0, 1) }),
        ),
        ("list.akeys", list(ListScope::Akeys { dkey: b"dkey" })),
        ("list.recxs", list(ListScope::Recxs { dkey: b"dkey", akey: b"akey", descending: true })),
        (
            "query",
            Op::Query {
                unit: UNIT,
                flags: QueryFlags::DKEY.and(QueryFlags::MAX),
                dkey: b"d",
                akey: b"ak",
            },
        ),
        ("stat", Op::Stat { unit: UNIT }),
        ("fetch_link", Op::FetchLink { unit: UNIT, dkey: b"d", akey: b"i", open: true }),
        ("remove_link", Op::RemoveLink { unit: UNIT, dkey: b"d", akey: b"i" }),
        ("open", Op::Open { unit: UNIT }),
        ("punch_unless_open", Op::PunchUnlessOpen { unit: UNIT }),
        ("append", Op::Append { unit: UNIT, chunk_records: 1 << 20, count: 70_000 }),
        (
            "list_runs",
            Op::ListRuns { unit: UNIT, chunk_records: 4096, within: RANGE, count_max: 9 },
        ),
        ("adopt", Op::Adopt { unit: UNIT }),
        ("free_closed", Op::FreeClosed { unit: UNIT }),
    ]
}
