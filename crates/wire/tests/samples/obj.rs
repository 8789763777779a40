//! Samples of requests to targets and of their replies.

use super::ops::{RANGE, UNIT, ops};
use super::{Reply, Visitor, control};
use serde_bytes::Bytes;
use types::Histogram;
use types::sums::SumRun;
use types::{ClientId, ContId, CsumKind, Durability, Epoch, PoolId, TargetId, Unit};
use wire::admission::{Admission, AdmissionStat, GateStat, JobStat, Limit, Weights};
use wire::cache::{CacheStat, DataCache};
use wire::cell::{
    CellAsk, CellRequest, Dkeys, NamedPart, Stripe, StripeList, StripeOf, UnnamedCells,
};
use wire::lock::{
    LockHolder, LockKind, LockMode, LockOp, LockOwner, LockRange, LockReply, LockRequest,
};
use wire::measure::{MeasureAsk, Measures, Network, Past, Speed, Standing};
use wire::member::{
    Decided, KeyList, ListedUnit, MemberAsk, MemberRequest, Notes, SettledOrders, UnitList,
};
use wire::obj::*;
use wire::order::{Order, OrderAt, OrderOrigin, Orders, OrdersDone};
use wire::scrub::{BadHolder, BadPlace, FoundBy, HealShare, Scrub, ScrubRate, ScrubStat};
use wire::store::{
    AggregationStat, CatchUpStat, DeviceRole, DeviceStat, GroupStat, LogStat, PageWait, StoreStat,
    StreamStat,
};
use wire::versions::{ContStage, ContVersions};

const POOL: PoolId = PoolId(5);
const CONT: ContId = ContId(7);
const TX: TxId = TxId { client: ClientId(0xabcd), seq: 21 };
const STRIPE: Stripe = Stripe { first: 300, version: Epoch(88), cell_bytes: 65_536 };

fn batch<'a>(ops: Vec<Op<'a>>) -> Batch<'a> {
    Batch { pool: POOL, cont: CONT, at: Epoch(7), checks: vec![], ops, sums: Sums::NONE }
}

pub fn visit(visitor: &mut impl Visitor) {
    for (name, op) in ops() {
        visitor.message(&format!("request.batch.{name}"), Request::Batch(batch(vec![op])));
    }
    checks(visitor);
    requests(visitor);
    admin(visitor);
    for (name, reply) in op_replies() {
        let message =
            BatchReply { epoch: Epoch(0x1_0000_0001), ops: vec![reply], sums: BulkSums::NONE };
        visitor.message(&format!("batch_reply.{name}"), message);
    }
    sums(visitor);
    replies(visitor);
}

fn sums(visitor: &mut impl Visitor) {
    for (name, kind) in CsumKind::ALL.map(|kind| (kind.to_string(), kind)) {
        let bytes = &[7; 64][..2 * kind.width()];
        let message = Batch { sums: Sums { kind, bytes }, ..batch(vec![]) };
        visitor.message(&format!("request.batch.sums.{name}"), Request::Batch(message));
    }
    let runs = vec![
        SumRun::Summed { bytes: 5_000, first: 904 },
        SumRun::Zeros { bytes: 4_096 },
        SumRun::Bare { bytes: 1 },
    ];
    let stripe = Stripe { first: 131_072, version: wire::cell::coined(5), cell_bytes: 65_536 };
    let cells = vec![NamedPart { stripe, at: 4_096, bytes: 70_000 }];
    let sums = BulkSums { kind: CsumKind::Crc32c, runs, sums: &[1, 2, 3, 4, 5, 6, 7, 8], cells };
    let message = BatchReply { epoch: Epoch(88), ops: vec![], sums };
    visitor.message("batch_reply.sums", message);
}

fn checks(visitor: &mut impl Visitor) {
    let check = |of, seen| ReadCheck { unit: UNIT, of, seen: Epoch(seen) };
    let message = Batch {
        pool: POOL,
        cont: CONT,
        at: Epoch::ZERO,
        checks: vec![
            check(ReadScope::Keys, 1),
            check(ReadScope::Object, 2),
            check(ReadScope::Dkey(b"d"), 3),
            check(ReadScope::Akey(b"d", b"a"), 0),
        ],
        ops: vec![],
        sums: Sums::NONE,
    };
    visitor.message("request.batch.checks", Request::Batch(message));
}

fn requests(visitor: &mut impl Visitor) {
    let mut request = |name: &str, message| visitor.message(&format!("request.{name}"), message);
    let part = wire::encode(&batch(vec![Op::Stat { unit: UNIT }]));
    request(
        "commit",
        Request::Commit {
            tx: TX,
            parts: vec![(UNIT, Bytes::new(&part), 4096), (Unit::NIL, Bytes::new(&part), 0)],
        },
    );
    let prepared = batch(vec![Op::PunchUnlessOpen { unit: UNIT }]);
    request("prepare", Request::Prepare { tx: TX, coordinator: UNIT, batch: prepared });
    for (name, outcome) in outcomes() {
        request(
            &format!("decide.{name}"),
            Request::Decide { pool: POOL, tx: TX, unit: UNIT, outcome },
        );
    }
    request("ask_outcome", Request::AskOutcome { pool: POOL, tx: TX, coordinator: UNIT });
    request("shard_stat", Request::PoolShardStat { pool: POOL });
    request(
        "list_objects",
        Request::ListObjects {
            pool: POOL,
            cont: CONT,
            at: Epoch(7),
            after: Some(UNIT),
            count_max: 100,
        },
    );
    for (name, after) in [("list_orphans", None), ("list_orphans.after", Some(UNIT))] {
        request(name, Request::ListOrphans { pool: POOL, cont: CONT, after, count_max: 1000 });
    }
    request("put_in_place", Request::PutInPlace { pool: POOL, cont: CONT, unit: UNIT });
    request("admission_stat", Request::AdmissionStat { pool: POOL });
    request("store_stat", Request::StoreStat { pool: POOL });
    request("pool_map", Request::PoolMap { pool: POOL });
    request("verify", Request::Verify(batch(vec![])));
    request("probe", Request::Probe { seen: None });
    let seen = wire::measure::SeenSpeed { speed: network().speed, is_probed: true };
    request("probe.seen", Request::Probe { seen: Some(seen) });
    request("cache_stat", Request::CacheStat { pool: POOL });
    request("page_wait", Request::PageWait { pool: POOL });
    request("scrub_stat", Request::ScrubStat { pool: POOL });
    request("scrub", Request::Scrub { pool: POOL });
    orders(visitor);
    let released = Notice::Release { pool: POOL, cont: CONT, units: vec![UNIT, Unit::NIL] };
    visitor.message("notice.release", released);
    visitor.message("notice.registered", Notice::Registered);
    let left = Notice::Left { pool: POOL, map_version: 300, units: vec![(CONT, UNIT)] };
    visitor.message("notice.left", left);
    visitor.message("notice.job", Notice::Job { number: 7, name: "4711".into() });
    locks(visitor);
}

/// What the samples of orders are called.
const ORDERS: [&str; 10] = [
    "apply",
    "prepare",
    "decide",
    "decision",
    "forget_decision",
    "install",
    "install_part",
    "install_facts",
    "answers",
    "fold",
];

fn orders(visitor: &mut impl Visitor) {
    let origin = Some(OrderOrigin { tx: TX, of: UNIT, reply: b"reply" });
    let ops = vec![Op::PunchObj { unit: UNIT, cond: Cond::NONE, besides: b"" }];
    let (sums, epoch) = (Sums { kind: CsumKind::Crc32c, bytes: b"sums" }, Epoch(7));
    let (orphaned, adopted) = (vec![UNIT], vec![Unit::NIL]);
    let orders: [Order<'_>; ORDERS.len()] = [
        Order::Apply { cont: CONT, epoch, ops: ops.clone(), sums, origin, orphaned, adopted },
        Order::Prepare { tx: TX.part(1), coordinator: UNIT, batch: batch(ops) },
        Order::Decide { tx: TX, outcome: TxOutcome::Committed(epoch) },
        Order::Decision { tx: TX, epoch, participants: vec![UNIT, Unit::NIL], origin },
        Order::ForgetDecision { tx: TX },
        Order::Install { cont: CONT, unit: UNIT, dkey: b"d", before: 31 },
        Order::InstallPart { cont: CONT, unit: UNIT, dkey: b"d", at: 32 },
        Order::InstallFacts { cont: CONT, unit: UNIT },
        Order::Answers { answers: origin.into_iter().collect() },
        Order::Fold { cont: CONT, unit: UNIT, dkey: b"d", akey: b"a", stripe: STRIPE, count: 300 },
    ];
    let encoded: Vec<Vec<u8>> = orders.iter().map(wire::encode).collect();
    for (name, order) in ORDERS.iter().zip(orders) {
        visitor.message(&format!("order.{name}"), order);
    }
    let at = |order| OrderAt { number: 9, order: Bytes::new(order), bulk_bytes: 5 };
    let orders = encoded.iter().map(|order| at(order)).collect();
    let (pool, from) = (POOL, TargetId(3));
    let orders = Orders { pool, from, map_version: 4, stream: 5, first: 6, settled: 8, orders };
    visitor.message("request.orders", Request::Orders(orders));
    let dkeys = vec![Bytes::new(b"d")];
    let asks = [
        ("units", MemberAsk::Units { cont: CONT, after: Some(UNIT), count_max: 300 }),
        ("keys", MemberAsk::Keys { cont: CONT, unit: UNIT, after: Some(b"d"), count_max: 300 }),
        ("mend", MemberAsk::Mend { cont: CONT, unit: UNIT, dkeys, with_facts: true }),
        ("notes", MemberAsk::Notes),
        ("answers", MemberAsk::Answers { after: Some(TX), count_max: 300, is_list: true }),
        ("digest", MemberAsk::Digest { cont: CONT, unit: UNIT }),
        ("cell_units", MemberAsk::CellUnits { cont: CONT, after: Some(UNIT), count_max: 300 }),
        (
            "stripes",
            MemberAsk::Stripes { cont: CONT, unit: UNIT, after: Some(b"d"), count_max: 300 },
        ),
        ("image", MemberAsk::Image { cont: CONT, unit: UNIT, dkey: b"d", bytes_max: 70_000 }),
        ("image_part", {
            let (at, bytes_max) = (5, 70_000);
            MemberAsk::ImagePart { cont: CONT, unit: UNIT, dkey: b"d", at, bytes_max }
        }),
        ("settled", MemberAsk::Settled),
        ("drop_cells", {
            let of =
                StripeOf { dkey: b"d".to_vec().into(), akey: b"a".to_vec().into(), stripe: STRIPE };
            let every = [Dkeys::All, Dkeys::From(300), Dkeys::These(vec![b"d".to_vec().into()])];
            let units = every.into_iter().map(|dkeys| {
                let (stay, once_named) = (vec![of.clone()], vec![epoch]);
                UnnamedCells { cont: CONT, unit: UNIT, dkeys, stay, once_named }
            });
            MemberAsk::DropCells { until: epoch, units: units.collect() }
        }),
        ("follows", MemberAsk::Follows),
        ("settled_orders", MemberAsk::SettledOrders),
        ("last_asked", MemberAsk::LastAsked { cont: CONT, units: vec![UNIT, Unit::NIL] }),
        ("aborted", MemberAsk::Outcome { tx: TX, decision: None }),
        ("committed", {
            let decision = Some(Decided { epoch, participants: vec![UNIT, Unit::NIL] });
            MemberAsk::Outcome { tx: TX, decision }
        }),
        ("compare", MemberAsk::Compare { cont: CONT, unit: UNIT, newest: epoch }),
        ("units_at_hand", MemberAsk::UnitsAtHand { cont: CONT, after: Some(UNIT), count_max: 300 }),
    ];
    for (name, ask) in asks {
        let asked = MemberRequest { pool, map_version: 4, member: from, newest: epoch, ask };
        visitor.message(&format!("request.member.{name}"), Request::Member(asked));
    }
    let listed = ListedUnit { unit: UNIT, newest: epoch, asked_s: 300 };
    let units = UnitList { units: vec![listed], next: Some(UNIT) };
    visitor.message("reply.member.units", units);
    visitor.message("reply.member.settled_orders", SettledOrders { stream: 300, number: 6 });
    let keys = vec![(serde_bytes::ByteBuf::from(b"d".to_vec()), epoch)];
    visitor.message("reply.member.keys", KeyList { keys, complete: true });
    visitor.message("reply.orders", OrdersDone { number: 6, is_short: true, newest: epoch });
    let txs = vec![TxId { client: types::ClientId(3), seq: 4 }];
    let notes = Notes { conts: vec![CONT], parts: txs.clone(), decisions: txs };
    visitor.message("reply.member.answers", notes.parts.clone());
    visitor.message("reply.member.notes", notes);
    visitor.message("reply.member.digest", Reply::Ok(1u64 << 40));
    visitor.message("reply.pool_map", Reply::Ok(control::map()));
    for (name, ask) in [("put", CellAsk::Put), ("get", CellAsk::Get { at: 5, bytes: 300 })] {
        let cell = CellRequest {
            pool,
            map_version: 4,
            from,
            cont: CONT,
            unit: UNIT,
            dkey: b"d",
            akey: b"a",
            stripe: STRIPE,
            ask,
        };
        visitor.message(&format!("request.cell.{name}"), Request::Cell(cell));
    }
    let stripe =
        StripeOf { dkey: b"d".to_vec().into(), akey: b"a".to_vec().into(), stripe: STRIPE };
    let stripes = StripeList { stripes: vec![stripe], next: Some(b"e".to_vec().into()) };
    visitor.message("reply.member.stripes", stripes);
}

fn locks(visitor: &mut impl Visitor) {
    let (range, owner) = (LockRange { first: 1, last: 300 }, LockOwner { holder: 7, id: 8 });
    let request = |kind, op| {
        Request::Lock(LockRequest { pool: POOL, cont: CONT, unit: UNIT, kind, owner, op })
    };
    let set = |wait| LockOp::Set { range, mode: LockMode::Exclusive, pid: 99, wait };
    visitor.message("request.lock.try", request(LockKind::Flock, set(None)));
    visitor.message("request.lock.wait", request(LockKind::Posix, set(Some(5))));
    visitor.message("request.lock.clear", request(LockKind::Ofd, LockOp::Clear { range }));
    let test = LockOp::Test { range, mode: LockMode::Shared };
    visitor.message("request.lock.test", request(LockKind::Append, test));
    let locks = vec![(range, LockMode::Shared), (LockRange::WHOLE, LockMode::Exclusive)];
    visitor.message(
        "request.lock.reclaim",
        request(LockKind::Posix, LockOp::Reclaim { locks, pid: 99 }),
    );
    visitor.message("request.lock.join", request(LockKind::Flock, LockOp::Join));
    visitor.message("request.lock.part", request(LockKind::Ofd, LockOp::Part));
    let leave = Notice::LockLeave {
        pool: POOL,
        cont: CONT,
        unit: UNIT,
        kind: LockKind::Posix,
        owner,
        range,
        wait: Some(5),
        release: true,
    };
    visitor.message("notice.lock_leave", leave);
    let holder =
        LockHolder { owner, client: ClientId(3), pid: 99, range, mode: LockMode::Exclusive };
    for (name, reply) in [
        ("done", LockReply::Done),
        ("held", LockReply::Held(holder)),
        ("waiting", LockReply::Waiting),
        (
            "joined",
            LockReply::Joined(vec![(LockRange { first: 3, last: u64::MAX }, LockMode::Shared)]),
        ),
    ] {
        visitor.message(&format!("lock_reply.{name}"), Reply::Ok(reply));
    }
}

fn outcomes() -> [(&'static str, TxOutcome); 3] {
    [
        ("committed", TxOutcome::Committed(Epoch(77))),
        ("aborted", TxOutcome::Aborted),
        ("pending", TxOutcome::Pending),
    ]
}

fn admin(visitor: &mut impl Visitor) {
    let mut order = |name: &str, op| {
        visitor.message(&format!("request.admin.{name}"), Request::Admin { term: 300, op });
    };
    let durability = Durability::Relaxed;
    let shard =
        AdminOp::CreateShard { pool: POOL, durability, scm_bytes: 1 << 26, nvme_bytes: 1 << 30 };
    order("create_shard", shard);
    order("serve_shard", AdminOp::ServeShard { pool: POOL, incarnation: 1 << 40 });
    order("introduced", AdminOp::Introduced);
    order("destroy_shard", AdminOp::DestroyShard { pool: POOL });
    order(
        "create_cont",
        AdminOp::CreateCont { pool: POOL, cont: CONT, csum: CsumKind::Crc32c, server_verify: true },
    );
    order("destroy_cont", AdminOp::DestroyCont { pool: POOL, cont: CONT });
    order("set_map", AdminOp::SetMap(control::map()));
    let (before, mut after) = (control::map(), control::map());
    after.version += 1;
    after.targets[0].since = after.version;
    order("change_map", AdminOp::ChangeMap(before.change_to(&after).expect("nothing has left")));
    let (engines, placements) = (Vec::new(), Vec::new());
    let before = wire::map::PoolMap { engines, placements, ..before };
    let change = before.change_to(&after).expect("nothing has left");
    order("change_map.engines", AdminOp::ChangeMap(change));
    let scrub = Scrub { version: 9, rate: ScrubRate(1 << 26), heal_share: HealShare(40) };
    order("set_scrub", AdminOp::SetScrub { pool: POOL, scrub });
    let cache = DataCache { version: 9, bytes_max: 1 << 34, object_bytes_max: 1 << 27 };
    order("set_cache", AdminOp::SetCache { pool: POOL, cache });
    let (target, map_version) = (TargetId(3), 300);
    order("has_all_of", AdminOp::HasAllOf { pool: POOL, target, map_version });
    order("give_lead_back", AdminOp::GiveLeadBack { pool: POOL });
    for (name, max_writers, max_readers) in
        [("fixed", Limit::Fixed(4), Limit::Auto), ("off", Limit::Off, Limit::Off)]
    {
        let weights = Weights(vec![("climate".into(), 3), ("test".into(), 2)]);
        let admission = Admission { version: 9, max_writers, max_readers, weights };
        let op = AdminOp::SetAdmission { pool: POOL, admission };
        order(&format!("set_admission.{name}"), op);
    }
    for (name, stage) in [
        ("open", ContStage::Open),
        ("frozen", ContStage::Frozen),
        ("rolling_back", ContStage::RollingBack(Epoch(4))),
        ("rolling_to", ContStage::RollingTo { to: Epoch(4), epoch: Epoch(9) }),
    ] {
        let snapshots = vec![Epoch(4), Epoch(6)];
        let versions = ContVersions { revision: 9, snapshots, held: true, stage };
        let op = AdminOp::SetVersions { pool: POOL, cont: CONT, versions };
        order(&format!("set_versions.{name}"), op);
    }
    order("measure", AdminOp::Measure { ask: Some(measure_ask()), pool: Some(POOL) });
    let reply = AdminReply {
        number: 78,
        under_way: true,
        incarnation: 79,
        is_unsure: true,
        standing: Some(Standing {
            free_bytes: 80,
            measures: Some(measures()),
            used_bytes: 81,
            network: Some(network()),
            clients: Some(network()),
        }),
    };
    visitor.message("admin_reply", Reply::Ok(reply));
}

pub fn measure_ask() -> MeasureAsk {
    MeasureAsk { bytes: 1 << 30, step_ms_max: 2000, once: true }
}

pub fn network() -> Network {
    let speed = Speed { kb_s: 1_250_000, kb_s_min: 9, kb_s_max: 2_500_000 };
    Network { at_ns: 1 << 61, link_count: 7, speed }
}

pub fn measures() -> Measures {
    let speed = |kb_s| Speed { kb_s, kb_s_min: kb_s - 1, kb_s_max: kb_s + 1 };
    Measures {
        at_ns: 1 << 60,
        bytes: 1 << 30,
        is_direct: true,
        read: speed(2_400_000),
        write: speed(200_000),
        random_reads_s: 9,
        random_writes_s: 10,
        memory: speed(10_000_000),
        past: Some(Past { read: 3_000_000, write: 4_000_000 }),
    }
}

fn tail() -> Tail {
    Tail { dkey_max: Some(9), end: 300, epoch: Epoch(78), bytes_used: 4096 }
}

fn op_replies() -> Vec<(&'static str, OpReply<'static>)> {
    let fetched = |value| OpReply::Fetched(vec![FetchedIod { epoch: Epoch(79), value }]);
    let item = |item| OpReply::Listed { items: vec![item], anchor: b"next", keys_epoch: Epoch(80) };
    let removed = |value, removed, linked| OpReply::Removed { value, removed, linked };
    let found = FoundKey { dkey: b"d", akey: b"a", recx: Some(RANGE), record_bytes: 1 };
    let stat = ObjectStat { tail: tail(), dkey_count: 12, counted_links: 5, keys_epoch: Epoch(81) };
    vec![
        ("done", OpReply::Done),
        ("fetched.absent", fetched(Fetched::Absent)),
        ("fetched.inline", fetched(Fetched::Inline(b"value"))),
        ("fetched.single", fetched(Fetched::Single { bytes: 70_000, in_bulk: true })),
        ("fetched.array", fetched(Fetched::Array { record_bytes: 1, end: 300 })),
        (
            "fetched.sparse",
            fetched(Fetched::Sparse { record_bytes: 1, end: 300, holes: vec![RANGE] }),
        ),
        ("listed.key", item(Listed::Key { key: b"name" })),
        (
            "listed.entry",
            item(Listed::Entry {
                key: b"name",
                value: b"inode",
                epoch: Epoch(82),
                tail: Some(tail()),
            }),
        ),
        ("listed.recx", item(Listed::Recx { recx: RANGE, record_bytes: 1, epoch: Epoch(83) })),
        ("found.some", OpReply::Found(Some(found))),
        ("found.none", OpReply::Found(None)),
        ("stat", OpReply::Stat(stat)),
        (
            "link",
            OpReply::Link { value: Some(b"i"), epoch: Epoch(84), tail: Some(tail()), opened: true },
        ),
        ("removed.freed", removed(Some(b"i"), true, Linked::Freed)),
        ("removed.elsewhere", removed(Some(b"i"), true, Linked::Elsewhere)),
        ("removed.none", removed(None, false, Linked::None)),
        ("appended", OpReply::Appended { index: 70_000 }),
        ("runs", OpReply::Runs { runs: vec![RANGE], to: 1 << 40 }),
    ]
}

fn replies(visitor: &mut impl Visitor) {
    let reply = wire::encode(&BatchReply {
        epoch: Epoch(85),
        ops: vec![OpReply::Done],
        sums: BulkSums::NONE,
    });
    let parts = vec![Bytes::new(&reply), Bytes::new(b"")];
    visitor.message("tx_reply", TxReply { epoch: Epoch(85), parts });
    visitor.message("prepared", Prepared { epoch_min: Epoch(86), reply: &reply });
    for (name, outcome) in outcomes() {
        visitor.message(&format!("outcome.{name}"), Reply::Ok(outcome));
    }
    let stat = PoolShardStat {
        scm_bytes: 1,
        scm_free_bytes: 2,
        nvme_bytes: 3,
        nvme_free_bytes: 4,
        tiers_share_room: true,
        object_count: 5,
        dkey_count: 6,
    };
    visitor.message("shard_stat", Reply::Ok(stat));
    visitor.message("object_list", Reply::Ok(ObjectList { units: vec![UNIT], complete: true }));
    visitor.message("unit", Reply::Ok(()));
    let gate = |n: u64| GateStat {
        limit: Limit::Auto,
        limit_now: n as u32,
        at_work: n as u32 + 1,
        at_work_max: n as u32 + 15,
        waiting: n + 2,
        granted: n + 3,
        held: n + 4,
        forced: n + 5,
        left: n + 6,
        lapsed: n + 7,
        bytes: n + 8,
        wait_us: n + 9,
        wait_us_max: n + 10,
        jobs: vec![JobStat {
            job: "climate".into(),
            waiting: n + 11,
            granted: n + 12,
            bytes: n + 13,
            wait_us: n + 14,
        }],
    };
    let stat = AdmissionStat { version: 9, writers: gate(20), readers: gate(40) };
    visitor.message("admission_stat", Reply::Ok(stat));
    let holder = BadHolder {
        cont: CONT,
        unit: UNIT,
        dkey: b"d".to_vec(),
        akey: b"a".to_vec(),
        offset: 8192,
        bytes: 4096,
    };
    let place = |found_by, holder| BadPlace { found_ns: 99, found_by, device_offset: 4096, holder };
    let stat = ScrubStat {
        version: 9,
        rate: ScrubRate(1 << 24),
        summed_bytes: 1,
        bad_bytes: 2,
        found_count: 3,
        mended_count: 4,
        passes: 4,
        pass_end_ns: 5,
        pass_bad_count: 6,
        checked_bytes: 7,
        left_bytes: 8,
        places: vec![place(FoundBy::Reader, Some(holder)), place(FoundBy::Scrubber, None)],
    };
    visitor.message("scrub_stat", Reply::Ok(stat));
    visitor.message("store_stat", Reply::Ok(store_stat()));
    let device = |role| DeviceStat { role, ..DeviceStat::default() };
    let devices = [DeviceRole::Both, DeviceRole::Scm].map(device).into();
    let stat = StoreStat { devices, clients: Some(network()), ..StoreStat::default() };
    visitor.message("store_stat.clients", Reply::Ok(stat));
    let stat = CacheStat {
        version: 9,
        limit_bytes: 1,
        object_bytes_max: 2,
        used_bytes: 3,
        hits: 4,
        hit_bytes: 5,
        misses: 6,
        miss_bytes: 7,
    };
    visitor.message("cache_stat", Reply::Ok(stat));
    visitor.message("page_wait", Reply::Ok(Some(PageWait { damaged: TargetId(3) })));
    visitor.message("page_wait.none", Reply::Ok(None::<PageWait>));
}

fn store_stat() -> StoreStat {
    let histogram = |value: u64| {
        let mut histogram = Histogram::default();
        histogram.record(value);
        histogram
    };
    StoreStat {
        devices: vec![DeviceStat {
            name: "/d".into(),
            role: DeviceRole::Nvme,
            total_bytes: 1,
            free_bytes: 2,
        }],
        log: Some(LogStat {
            bytes: 3,
            failed: true,
            batch_records: histogram(1),
            batch_bytes: histogram(2),
            commit_latency_us: histogram(3),
            replay_records: 4,
            replay_time_us: 5,
            checkpoints: 6,
            checkpoint_ns: 7,
            checkpoint_time_us: 8,
        }),
        aggregation: AggregationStat {
            passes: 9,
            extents: 10,
            joined: 11,
            made: 12,
            moved_bytes: 13,
            discarded_bytes: 14,
        },
        streams: vec![StreamStat { member: TargetId(15), orders: 16, bytes: 17 }],
        catching_up: Some(CatchUpStat {
            tries: 18,
            targets_left: 19,
            units_left: 20,
            keys_mended: 21,
            units_done: 22,
            try_ms: 23,
            units_mended: 24,
            bytes_mended: 25,
            time_ms: 26,
            is_full: true,
        }),
        groups: GroupStat { one_left: 28, two_left: 29, more_left: 30, is_counted: true },
        caught_up: Some(CatchUpStat { units_mended: 27, ..CatchUpStat::default() }),
        measures: Some(measures()),
        network: Some(network()),
        clients: None,
    }
}
