//! The naive model and what it shares with all tests: owned acts, their translation to ops, and
//! a dump of a shard through its public API that is compared with the model's.

use std::collections::BTreeMap;
use std::rc::Rc;

use env::{Env, Rng};
use types::sums::SumRun;
use types::{
    Code, ContId, CsumKind, Durability, Epoch, ObjClass, ObjType, Oid, PoolId, Result, Unit,
};
use vos::{FetchedValue, Lsn, Payload, PoolShard, PoolShardConfig, Segments, SumPolicy};
use wire::obj::*;

pub const POOL: PoolId = PoolId(3);
pub const CONT: ContId = ContId(7);

pub fn config(durability: Durability) -> PoolShardConfig {
    PoolShardConfig { durability, scm_bytes: 4 << 20, nvme_bytes: 8 << 20 }
}

/// The units of tests: two of each object, which have as little to do with each other as with those
/// of others.
pub fn unit(kind: ObjType, n: u64) -> Unit {
    Oid::generate(0, n / 2, kind, ObjClass::S1, 0).unit((n % 2) as u32)
}

/// One write with its data.
#[derive(Clone, Debug)]
pub enum Act {
    Single { bulk: bool, bytes: usize, fill: u8 },
    Array { record_bytes: u32, recx: Recx, fill: u8 },
    Zero { record_bytes: u32, recx: Recx },
    PunchRecords(Recx),
    PunchObj,
    PunchDkey,
    PunchFrom(u64),
    PunchAkey,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub unit: Unit,
    pub dkey: Vec<u8>,
    pub akey: Vec<u8>,
    pub cond: Cond,
    pub act: Act,
}

/// Bytes of record `index` of an array written with `fill`.
fn record(fill: u8, index: u64, record_bytes: u32) -> Vec<u8> {
    (0..record_bytes).map(|n| fill.wrapping_add((index * 3 + n as u64) as u8)).collect()
}

/// A single value written with `fill`: some are links, some of these are counted.
fn single(fill: u8, bytes: usize) -> Vec<u8> {
    let mut value = vec![fill; bytes];
    if fill.is_multiple_of(3) && bytes >= wire::link::LINK_BYTES {
        (value[1], value[2]) = (fill % 2, fill & 4);
    }
    value
}

impl Step {
    pub fn random(rng: &Rng) -> Step {
        let kinds = [ObjType::MultiHashed, ObjType::ArrayByte, ObjType::DkeyLexical];
        let kind = kinds[rng.below(3) as usize];
        let number = rng.below(20);
        let dkey = match kind {
            ObjType::ArrayByte => number.to_le_bytes().to_vec(),
            _ => format!("dkey-{number}").repeat(1 + number as usize % 3).into_bytes(),
        };
        let akey = [&b""[..], b"a", b"xattr"][rng.below(3) as usize].to_vec();
        let large = rng.below(4) == 0;
        let index = rng.below(if large { 9000 } else { 40 });
        let count = 1 + rng.below(if large { 12_000 } else { 30 });
        let recx = Recx { index, count };
        let record_bytes = if rng.below(8) == 0 { 3 } else { 1 };
        let fill = rng.below(250) as u8;
        let act = match rng.below(20) {
            0..=4 => Act::Single {
                bulk: rng.below(2) == 0,
                bytes: rng.below(if large { 20_000 } else { 200 }) as usize,
                fill,
            },
            5..=11 => Act::Array { record_bytes, recx, fill },
            12 => Act::Zero { record_bytes, recx },
            13 | 14 => Act::PunchRecords(recx),
            15 => Act::PunchObj,
            16 => Act::PunchDkey,
            17 if kind == ObjType::ArrayByte => Act::PunchFrom(number),
            _ => Act::PunchAkey,
        };
        let conds = [
            Cond::DKEY_INSERT,
            Cond::DKEY_UPDATE,
            Cond::AKEY_INSERT,
            Cond::AKEY_UPDATE,
            Cond::OBJ_EXISTS,
            Cond::PUNCH,
        ];
        let cond = if rng.below(4) == 0 { conds[rng.below(6) as usize] } else { Cond::NONE };
        // A value sent inline is small.
        let act = match act {
            Act::Single { bulk: false, bytes, fill } => {
                Act::Single { bulk: false, bytes: bytes % 4000, fill }
            }
            act => act,
        };
        Step { unit: unit(kind, rng.below(2)), dkey, akey, cond, act }
    }

    /// The bulk of the step.
    pub fn bulk(&self) -> Vec<u8> {
        match &self.act {
            Act::Single { bulk: true, bytes, fill } => single(*fill, *bytes),
            Act::Array { record_bytes, recx, fill } => {
                let each = |n| record(*fill, recx.index + n, *record_bytes);
                (0..recx.count).flat_map(each).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Bytes of an inline value.
    pub fn inline(&self) -> Vec<u8> {
        match &self.act {
            Act::Single { bulk: false, bytes, fill } => single(*fill, *bytes),
            _ => Vec::new(),
        }
    }

    /// The op; `inline` is [`Step::inline`].
    pub fn op<'a>(&'a self, inline: &'a [u8]) -> Op<'a> {
        let (unit, dkey, cond) = (self.unit, &self.dkey[..], self.cond);
        let update = |value: UpdateValue<'a>| Op::Update {
            unit,
            dkey,
            cond,
            iods: vec![UpdateIod { akey: &self.akey, cond: Cond::NONE, value }],
        };
        match &self.act {
            Act::Single { bulk: true, bytes, .. } => {
                update(UpdateValue::Single { bytes: *bytes as u64 })
            }
            Act::Single { .. } => update(UpdateValue::Inline(inline)),
            Act::Array { record_bytes, recx, .. } => {
                update(UpdateValue::Array { record_bytes: *record_bytes, recxs: vec![*recx] })
            }
            Act::Zero { record_bytes, recx } => {
                update(UpdateValue::Zero { record_bytes: *record_bytes, recxs: vec![*recx] })
            }
            Act::PunchRecords(recx) => update(UpdateValue::PunchRecords { recxs: vec![*recx] }),
            Act::PunchObj => Op::PunchObj { unit, cond, besides: b"" },
            Act::PunchDkey => {
                Op::PunchDkeys { unit, cond, dkeys: vec![serde_bytes::Bytes::new(dkey)] }
            }
            Act::PunchFrom(from) => Op::PunchDkeysFrom { unit, from: *from },
            Act::PunchAkey => Op::PunchAkeys {
                unit,
                dkey,
                cond,
                akeys: vec![serde_bytes::Bytes::new(&self.akey)],
            },
        }
    }
}

/// Sums over an update's bulk, as a client makes them.
pub fn sums_of(kind: CsumKind, ops: &[Op<'_>], bulk: &[u8]) -> Vec<u8> {
    let mut values = Vec::new();
    for op in ops {
        let Op::Update { iods, .. } = op else { continue };
        for iod in iods {
            match &iod.value {
                UpdateValue::Single { bytes } => values.push(*bytes),
                UpdateValue::Array { record_bytes, recxs } => {
                    values.extend(recxs.iter().map(|recx| recx.count * *record_bytes as u64));
                }
                _ => {}
            }
        }
    }
    codec::value_sums(kind, values.into_iter(), &[bulk]).unwrap()
}

/// What a reader would be sent, compared with its sums as a client does. No block may lack one.
pub fn checked_data(segments: &Segments) -> Vec<u8> {
    let data = segments.slices().concat();
    let sums = segments.sums().unwrap();
    let sums = sums.as_wire();
    if sums.kind != CsumKind::Off {
        assert!(!sums.runs.iter().any(|run| matches!(run, SumRun::Bare { .. })));
        let covered: u64 = sums.runs.iter().map(|run| run.bytes() as u64).sum();
        assert_eq!(covered, data.len() as u64);
        assert_eq!(codec::check(sums.kind, &sums.runs, sums.sums, &[&data]), Ok(()));
    }
    data
}

/// Stages, fills and writes the data of ops, as an engine does.
pub async fn stage(shard: &PoolShard, ops: &[Op<'_>], bulk: &[u8]) -> Result<Payload> {
    let mut payload = shard.stage(ops)?;
    assert_eq!(payload.bulk_bytes(), bulk.len() as u64);
    let mut rest = bulk;
    for buffer in payload.buffers() {
        let (now, later) = rest.split_at(buffer.len());
        buffer.copy_from_slice(now);
        rest = later;
    }
    let kind = shard.sum_policy(CONT)?.kind;
    let sums = sums_of(kind, ops, bulk);
    shard.take_sums(CONT, &Sums { kind, bytes: &sums }, &mut payload)?;
    payload.write().await?;
    Ok(payload)
}

/// Stages, checks and applies.
pub async fn write(
    shard: &PoolShard,
    epoch: u64,
    ops: &[Op<'_>],
    bulk: &[u8],
    origin: Option<vos::Origin<'_>>,
) -> Result<Lsn> {
    let payload = stage(shard, ops, bulk).await?;
    shard.ready(CONT, &[], ops).await?;
    assert!(shard.is_resident(CONT, &[], ops));
    shard.check(CONT, &[], ops)?;
    shard.apply(CONT, Epoch(epoch), ops, payload, origin, &[])
}

pub async fn run(shard: &PoolShard, epoch: u64, step: &Step) -> Result<Lsn> {
    let inline = step.inline();
    write(shard, epoch, &[step.op(&inline)], &step.bulk(), None).await
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Single(Vec<u8>),
    /// Record size, and the written records; `None` for one written as zero.
    Array(u32, BTreeMap<u64, Option<Vec<u8>>>),
}

impl Object {
    /// A step has changed something; `of_keys`: the set of dkeys. Of what is under dkey 0 of an array of bytes that dkey alone tells.
    fn note(&mut self, step: &Step, of_keys: bool, epoch: u64) {
        let of_one = !matches!(step.act, Act::PunchFrom(_) | Act::PunchObj);
        let is_array = step.unit.obj_type() == Some(ObjType::ArrayByte);
        if is_array && of_one && step.dkey == [0; 8] {
            return;
        }
        self.epoch = epoch;
        if of_keys {
            self.keys_epoch = epoch;
        }
    }
}

/// Epoch and value by akey.
pub type Akeys = BTreeMap<Vec<u8>, (u64, Value)>;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Object {
    pub epoch: u64,
    pub keys_epoch: u64,
    pub dkeys: BTreeMap<Vec<u8>, (u64, Akeys)>,
}

/// Objects with at least one dkey.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model(pub BTreeMap<Unit, Object>);

impl Model {
    /// What the step must answer, and its effect.
    pub fn run(&mut self, epoch: u64, step: &Step) -> Result<(), Code> {
        self.check(step)?;
        self.apply(epoch, step);
        Ok(())
    }

    /// What the step must answer.
    pub fn check(&self, step: &Step) -> Result<(), Code> {
        let object = self.0.get(&step.unit);
        let dkey = object.and_then(|object| object.dkeys.get(&step.dkey));
        let akey = dkey.and_then(|dkey| dkey.1.get(&step.akey));
        let fail = |yes: bool, code: Code| if yes { Err(code) } else { Ok(()) };
        if !matches!(step.act, Act::PunchFrom(_)) {
            fail(step.cond == Cond::OBJ_EXISTS && object.is_none(), Code::NonExist)?;
        }
        let kind = akey.map(|(_, value)| value);
        match &step.act {
            Act::Single { .. } | Act::Array { .. } | Act::Zero { .. } | Act::PunchRecords(_) => {
                fail(step.cond == Cond::DKEY_INSERT && dkey.is_some(), Code::Exist)?;
                fail(step.cond == Cond::DKEY_UPDATE && dkey.is_none(), Code::NonExist)?;
                fail(step.cond == Cond::AKEY_INSERT && akey.is_some(), Code::Exist)?;
                fail(step.cond == Cond::AKEY_UPDATE && akey.is_none(), Code::NonExist)?;
                let wrong = match (&step.act, kind) {
                    (_, None) => false,
                    (Act::Single { .. }, Some(value)) => matches!(value, Value::Array(..)),
                    (
                        Act::Array { record_bytes, .. } | Act::Zero { record_bytes, .. },
                        Some(value),
                    ) => !matches!(value, Value::Array(size, _) if size == record_bytes),
                    (_, Some(value)) => matches!(value, Value::Single(_)),
                };
                fail(wrong, Code::Inval)
            }
            Act::PunchObj => fail(step.cond == Cond::PUNCH && object.is_none(), Code::NonExist),
            Act::PunchDkey => fail(step.cond == Cond::PUNCH && dkey.is_none(), Code::NonExist),
            Act::PunchAkey => fail(step.cond == Cond::PUNCH && akey.is_none(), Code::NonExist),
            Act::PunchFrom(_) => Ok(()),
        }
    }

    fn apply(&mut self, epoch: u64, step: &Step) {
        let value = match &step.act {
            Act::Single { bytes, fill, .. } => Some(Value::Single(single(*fill, *bytes))),
            Act::Array { record_bytes, .. } | Act::Zero { record_bytes, .. } => {
                Some(Value::Array(*record_bytes, BTreeMap::new()))
            }
            _ => None,
        };
        if let Some(value) = value {
            let object = self.0.entry(step.unit).or_default();
            object.note(step, !object.dkeys.contains_key(&step.dkey), epoch);
            let dkey = object.dkeys.entry(step.dkey.clone()).or_default();
            dkey.0 = epoch;
            let akey = dkey.1.entry(step.akey.clone()).or_insert((epoch, value.clone()));
            akey.0 = epoch;
            match (&mut akey.1, &step.act) {
                (Value::Array(size, records), Act::Array { recx, fill, .. }) => {
                    for index in recx.index..recx.index + recx.count {
                        records.insert(index, Some(record(*fill, index, *size)));
                    }
                }
                (Value::Array(_, records), Act::Zero { recx, .. }) => {
                    for index in recx.index..recx.index + recx.count {
                        records.entry(index).or_insert(None);
                    }
                }
                (old, _) => *old = value,
            }
            return;
        }
        let Some(object) = self.0.get_mut(&step.unit) else { return };
        let before = object.dkeys.len();
        match &step.act {
            Act::PunchObj => object.dkeys.clear(),
            Act::PunchDkey => {
                object.dkeys.remove(&step.dkey);
            }
            Act::PunchFrom(from) => object.dkeys.retain(|dkey, _| {
                u64::from_le_bytes(dkey[..].try_into().expect("integer dkey")) < *from
            }),
            _ => {
                let Some(dkey) = object.dkeys.get_mut(&step.dkey) else { return };
                let Some(akey) = dkey.1.get_mut(&step.akey) else { return };
                akey.0 = epoch;
                let gone = match (&mut akey.1, &step.act) {
                    (Value::Array(_, records), Act::PunchRecords(recx)) => {
                        records.retain(|n, _| *n < recx.index || *n >= recx.index + recx.count);
                        records.is_empty()
                    }
                    _ => true,
                };
                if gone {
                    dkey.1.remove(&step.akey);
                }
                dkey.0 = epoch;
                if dkey.1.is_empty() {
                    object.dkeys.remove(&step.dkey);
                }
                object.note(step, false, epoch);
            }
        }
        if object.dkeys.len() != before {
            object.note(step, true, epoch);
        }
        if object.dkeys.is_empty() {
            self.0.remove(&step.unit);
        }
    }

    pub fn bytes_used(&self, unit: Unit) -> u64 {
        let values = self.0.get(&unit).into_iter().flat_map(|object| object.dkeys.values());
        values
            .flat_map(|dkey| dkey.1.values())
            .map(|(_, value)| match value {
                Value::Single(bytes) => bytes.len() as u64,
                Value::Array(size, records) => {
                    records.values().filter(|r| r.is_some()).count() as u64 * *size as u64
                }
            })
            .sum()
    }
}

/// All pages of a listing.
pub async fn list_all(
    shard: &PoolShard,
    at: u64,
    unit: Unit,
    scope: ListScope<'_>,
    page: u32,
    each: impl FnMut(Listed<'_>),
) {
    try_list_all(shard, at, unit, scope, page, each).await.unwrap();
}

/// The same; an error when the index cannot be read.
async fn try_list_all(
    shard: &PoolShard,
    at: u64,
    unit: Unit,
    scope: ListScope<'_>,
    page: u32,
    mut each: impl FnMut(Listed<'_>),
) -> Result<()> {
    let mut anchor = Vec::new();
    loop {
        let op = Op::List { unit, scope, anchor: &anchor, count_max: page, bytes_max: u32::MAX };
        shard.ready_at(CONT, Epoch(at), &[], &[op]).await?;
        let view = shard.view_at(CONT, Epoch(at)).unwrap();
        let listing = view.list(unit, scope, &anchor, page, u32::MAX).unwrap();
        assert!(listing.items().len() > 0 || listing.anchor.is_empty());
        listing.items().for_each(&mut each);
        anchor = listing.anchor;
        if anchor.is_empty() {
            return Ok(());
        }
    }
}

/// Reads everything a shard holds through its API.
pub async fn dump(shard: &PoolShard) -> Model {
    dump_at(shard, 0).await
}

/// The same of a snapshot.
pub async fn dump_at(shard: &PoolShard, at: u64) -> Model {
    try_dump_at(shard, at).await.unwrap()
}

/// The same; an error when the index cannot be read.
pub async fn try_dump_at(shard: &PoolShard, at: u64) -> Result<Model> {
    let mut out = Model::default();
    let mut units = Vec::new();
    loop {
        let after = units.last().copied();
        let page = shard.list_objects(CONT, Epoch(at), after, 3).await?;
        units.extend(page.units);
        if page.complete {
            break;
        }
    }
    for unit in units {
        shard.ready_at(CONT, Epoch(at), &[], &[Op::Stat { unit }]).await?;
        let stat = shard.view_at(CONT, Epoch(at)).unwrap().stat(unit);
        let mut object = Object {
            epoch: stat.tail.epoch.0,
            keys_epoch: stat.keys_epoch.0,
            dkeys: BTreeMap::new(),
        };
        let all = ListScope::Dkeys { value_of: None, follow: false, hash_range: (0, u64::MAX) };
        let mut dkeys = Vec::new();
        try_list_all(shard, at, unit, all, 3, |item| match item {
            Listed::Key { key } => dkeys.push(key.to_vec()),
            other => panic!("{other:?}"),
        })
        .await?;
        assert_eq!(dkeys.len() as u64, stat.dkey_count);
        let mut counted_links = 0;
        for dkey in dkeys {
            let mut akeys = Vec::new();
            let scope = ListScope::Akeys { dkey: &dkey };
            let anchor = {
                let op = Op::List { unit, scope, anchor: b"", count_max: 1, bytes_max: 0 };
                shard.ready_at(CONT, Epoch(at), &[], &[op]).await?;
                let view = shard.view_at(CONT, Epoch(at)).unwrap();
                view.list(unit, scope, b"", 1, 0).unwrap().keys_epoch
            };
            try_list_all(shard, at, unit, scope, 2, |item| match item {
                Listed::Key { key } => akeys.push(key.to_vec()),
                other => panic!("{other:?}"),
            })
            .await?;
            let mut values = BTreeMap::new();
            for akey in akeys {
                let value = read_value(shard, at, unit, &dkey, &akey).await?;
                if let (false, Value::Single(value)) = (akey.is_empty(), &value.1) {
                    counted_links += wire::link::is_counted(value) as u64;
                }
                values.insert(akey, value);
            }
            assert!(object.dkeys.insert(dkey, (anchor.0, values)).is_none(), "listed twice");
        }
        assert_eq!(counted_links, stat.counted_links);
        out.0.insert(unit, object);
    }
    Ok(out)
}

async fn read_value(
    shard: &PoolShard,
    at: u64,
    unit: Unit,
    dkey: &[u8],
    akey: &[u8],
) -> Result<(u64, Value)> {
    let touched = vec![FetchIod { akey, want: FetchWant::Probe }];
    let touched = [Op::Fetch { unit, dkey, cond: Cond::NONE, iods: touched }];
    shard.ready_at(CONT, Epoch(at), &[], &touched).await?;
    let fetch = |want: FetchWant, segments: &mut Segments| {
        let iods = [FetchIod { akey, want }];
        let view = shard.view_at(CONT, Epoch(at)).unwrap();
        view.fetch(unit, dkey, Cond::AKEY_FETCH, &iods, segments).unwrap().remove(0)
    };
    let probe = fetch(FetchWant::Probe, &mut Segments::new());
    let mut segments = Segments::cached();
    match probe.value {
        FetchedValue::Single { bytes, .. } => {
            let want = FetchWant::Single { bytes_max: bytes, inline_bytes_max: 64 };
            let found = fetch(want, &mut segments);
            segments.load().await?;
            let data = match found.value {
                FetchedValue::Inline(data) => data.to_vec(),
                FetchedValue::Single { in_bulk: true, .. } => checked_data(&segments),
                other => panic!("{other:?}"),
            };
            assert_eq!(data.len() as u64, bytes);
            Ok((probe.epoch.0, Value::Single(data)))
        }
        FetchedValue::Array { record_bytes, end } => {
            let recxs = vec![Recx { index: 0, count: end + 5 }];
            fetch(FetchWant::Array { record_bytes, recxs }, &mut segments);
            segments.load().await?;
            let data = checked_data(&segments);
            let size = record_bytes as usize;
            assert_eq!(data.len(), (end as usize + 5) * size);
            assert!(data[end as usize * size..].iter().all(|&b| b == 0));
            let recxs = vec![Recx { index: 0, count: end + 5 }];
            let want = FetchWant::Sparse { record_bytes, recxs: recxs.clone(), with_holes: true };
            let mut sparse = Segments::cached();
            // Pages may have been forgotten while the data were read.
            shard.ready_at(CONT, Epoch(at), &[], &touched).await?;
            let told = fetch(want, &mut sparse);
            sparse.load().await?;
            assert_eq!(checked_data(&sparse), data);
            let want = FetchWant::Sparse { record_bytes, recxs, with_holes: false };
            let mut whole = Segments::cached();
            shard.ready_at(CONT, Epoch(at), &[], &touched).await?;
            assert_eq!(fetch(want, &mut whole), told);
            let FetchedValue::Sparse { holes, .. } = told.value else { panic!("{told:?}") };
            // There is always one beyond the end.
            assert_eq!(whole.bytes(), 0);
            let mut records = BTreeMap::new();
            let scope = ListScope::Recxs { dkey, akey, descending: end % 2 == 0 };
            try_list_all(shard, at, unit, scope, 2, |item| match item {
                Listed::Recx { recx, .. } => {
                    for n in recx.index..recx.index + recx.count {
                        let bytes = data[n as usize * size..][..size].to_vec();
                        let zero = bytes.iter().all(|&b| b == 0);
                        assert!(records.insert(n, (!zero).then_some(bytes)).is_none());
                    }
                }
                other => panic!("{other:?}"),
            })
            .await?;
            for (n, bytes) in data.chunks(size).enumerate() {
                assert!(records.contains_key(&(n as u64)) || bytes.iter().all(|&b| b == 0));
                let n = n as u64;
                let hole =
                    holes.iter().any(|hole| (hole.index..hole.index + hole.count).contains(&n));
                assert_eq!(hole, !records.contains_key(&n), "record {n}, holes {holes:?}");
            }
            Ok((probe.epoch.0, Value::Array(record_bytes, records)))
        }
        other => panic!("{other:?}"),
    }
}

/// The model in the form of a dump: records whose bytes happen to be zero look like zeros.
pub fn as_dumped(model: &Model) -> Model {
    let mut out = model.clone();
    for object in out.0.values_mut() {
        for (_, value) in object.dkeys.values_mut().flat_map(|dkey| dkey.1.values_mut()) {
            if let Value::Array(_, records) = value {
                for record in records.values_mut() {
                    if record.as_ref().is_some_and(|bytes| bytes.iter().all(|&b| b == 0)) {
                        *record = None;
                    }
                }
            }
        }
    }
    out
}

/// Forgets epochs that a snapshot does not tell: those of dkeys and arrays; or all.
pub fn forget_epochs(model: &mut Model, all: bool) {
    for object in model.0.values_mut() {
        if all {
            (object.epoch, object.keys_epoch) = (0, 0);
        }
        for (epoch, akeys) in object.dkeys.values_mut() {
            *epoch = 0;
            for (epoch, value) in akeys.values_mut() {
                if all || matches!(value, Value::Array(..)) {
                    *epoch = 0;
                }
            }
        }
    }
}

/// Everything observable of a snapshot (0: of the present) agrees.
pub async fn compare_at(shard: &PoolShard, model: &Model, at: u64) {
    let (mut got, mut want) = (dump_at(shard, at).await, as_dumped(model));
    if at > 0 {
        forget_epochs(&mut got, false);
        forget_epochs(&mut want, false);
    }
    assert_eq!(got.0.keys().collect::<Vec<_>>(), want.0.keys().collect::<Vec<_>>());
    for (unit, object) in &want.0 {
        let found = &got.0[unit];
        assert!(found == object, "object {unit}\n got {found:?}\nwant {object:?}");
        let flags = QueryFlags::DKEY.and(QueryFlags::RECX).and(QueryFlags::MAX);
        let mut touched = vec![Op::Stat { unit: *unit }];
        if unit.obj_type() == Some(ObjType::ArrayByte) {
            touched.push(Op::Query { unit: *unit, flags, dkey: b"", akey: b"" });
        }
        shard.ready_at(CONT, Epoch(at), &[], &touched).await.unwrap();
        let view = shard.view_at(CONT, Epoch(at)).unwrap();
        assert_eq!(view.stat(*unit).tail.bytes_used, model.bytes_used(*unit));
        if unit.obj_type() == Some(ObjType::ArrayByte) {
            let tail = object
                .dkeys
                .iter()
                .filter_map(|(dkey, (_, akeys))| {
                    let dkey = u64::from_le_bytes(dkey[..].try_into().unwrap());
                    match akeys.get(&b""[..]) {
                        Some((_, Value::Array(_, records))) => {
                            Some((dkey, records.keys().next_back().map_or(0, |n| n + 1)))
                        }
                        _ => None,
                    }
                })
                .max();
            let found = view.tail(*unit).unwrap();
            let pair = found.dkey_max.map(|dkey| (dkey, found.end));
            assert_eq!(pair, tail);
            let queried = view.query(*unit, flags, b"", b"").unwrap().map(|found| {
                let recx = found.recx.unwrap();
                let dkey = u64::from_le_bytes(found.dkey[..].try_into().unwrap());
                (dkey, recx.index + recx.count)
            });
            assert_eq!(queried, tail);
        }
    }
}

/// Everything observable agrees.
pub async fn compare(shard: &PoolShard, model: &Model) {
    compare_at(shard, model, 0).await;
    let (counted, recounted) = shard.scm_audit();
    assert_eq!(counted, recounted);
    if let Some((followed, counted)) = shard.space_audit().unwrap() {
        assert_eq!(followed, counted);
    }
    let stat = shard.stat();
    assert_eq!(stat.object_count, model.0.len() as u64);
    let dkeys: usize = model.0.values().map(|object| object.dkeys.len()).sum();
    assert_eq!(stat.dkey_count, dkeys as u64);
}

/// A store with one shard and one container in a fresh directory of the node.
pub async fn fresh(env: &Env, config: &PoolShardConfig) -> Result<(Rc<vos::Store>, Rc<PoolShard>)> {
    fresh_with(env, config, u64::MAX).await
}

/// The store of a node, with this much memory for its index, and some for data: what is compared with the model may come from there.
pub async fn open(env: &Env, metadata_cache: u64) -> Result<Rc<vos::Store>> {
    let devices = vos::Devices::one(std::path::Path::new("/target"));
    let data_cache = 4 << 20;
    let options = vos::StoreOptions { metadata_cache, data_cache, ..vos::StoreOptions::default() };
    vos::Store::open_with(env, &devices, options).await
}

/// As [`fresh`], with this much memory for the index.
pub async fn fresh_with(
    env: &Env,
    config: &PoolShardConfig,
    metadata_cache: u64,
) -> Result<(Rc<vos::Store>, Rc<PoolShard>)> {
    let store = open(env, metadata_cache).await?;
    let shard = store.create_shard(POOL, config).await?;
    let sums = SumPolicy { kind: CsumKind::Crc32c, verify: false };
    let lsn = shard.create_summed_cont(CONT, sums)?;
    shard.durable(lsn).await?;
    Ok((store, shard))
}
