//! Objects: dkeys and akeys from the user's side.
//!
//! Reads take an optional [`Tx`]: what they saw is then checked when the transaction commits.
//! Writes with a transaction wait for the commit; they are not visible to its own reads, as in
//! DAOS.

use crate::cont::Container;
use crate::tx::Tx;
use async_recursion::async_recursion as boxed;
use futures_util::future::LocalBoxFuture;
use types::{Code, Epoch, Error, Key, Oid, Result, Unit};
use wire::obj::{
    Cond, FetchIod, Fetched, ListScope, Listed, ObjectStat, Op, OpReply, QueryFlags, ReadScope,
    Recx, UpdateIod,
};

/// An object of an open container.
#[derive(Clone)]
pub struct Object {
    cont: Container,
    oid: Oid,
}

/// What was found at one akey; data went to the caller's memory unless it is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchedValue {
    /// No such akey.
    Absent,
    /// A single value that came with the answer.
    Inline(Vec<u8>),
    /// A single value of this size; in the caller's memory if it fitted.
    Single {
        bytes: u64,
        /// False when it was longer than the room for it.
        fitted: bool,
    },
    /// Records; all asked-for ones are in the caller's memory.
    Array {
        /// Size of a record.
        record_bytes: u32,
        /// One past the last written record under this akey and dkey.
        end: u64,
    },
    /// Records that were asked for by [`FetchWant::Sparse`](wire::obj::FetchWant::Sparse).
    Sparse {
        /// Size of a record.
        record_bytes: u32,
        /// One past the last written record under this akey and dkey.
        end: u64,
        /// What of the asked-for ranges was never written, in their order.
        holes: Vec<Recx>,
    },
}

/// Where a listing stands. Starts at [`Anchor::start`] or one of [`Object::split`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Group being listed.
    group: u32,
    /// Groups end here (exclusive).
    group_end: u32,
    /// Position in the shard; empty at its start.
    position: Vec<u8>,
    /// Hash range to list.
    hashes: (u64, u64),
    done: bool,
}

impl Anchor {
    /// The whole listing, from its start.
    pub fn start() -> Anchor {
        Anchor {
            group: 0,
            group_end: u32::MAX,
            position: Vec::new(),
            hashes: (0, u64::MAX),
            done: false,
        }
    }

    /// True when nothing is left.
    pub fn is_end(&self) -> bool {
        self.done
    }

    /// Plain bytes, for handing to another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        let position = serde_bytes::Bytes::new(&self.position);
        wire::encode(&(self.group, self.group_end, position, self.hashes, self.done))
    }

    /// The inverse of [`Anchor::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Anchor> {
        type Parts<'a> = (u32, u32, &'a serde_bytes::Bytes, (u64, u64), bool);
        let (group, group_end, position, hashes, done): Parts<'_> = wire::decode(bytes)?;
        Ok(Anchor { group, group_end, position: position.to_vec(), hashes, done })
    }
}

/// Answer to a key query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The dkey found or given.
    pub dkey: Key,
    /// The akey found or given.
    pub akey: Key,
    pub recx: Option<Recx>,
    /// Size of its records.
    pub record_bytes: u32,
}

/// Items in one answer of a listing.
const LIST_COUNT_MAX: u32 = 8192;
/// Bytes in one answer of a listing.
const LIST_BYTES_MAX: u32 = 1 << 20;

fn wrong_answer() -> Error {
    Error::new(Code::Proto, "a target gave an answer of the wrong kind")
}

impl Object {
    pub(crate) fn new(cont: Container, oid: Oid) -> Object {
        Object { cont, oid }
    }

    pub fn oid(&self) -> Oid {
        self.oid
    }

    pub fn cont(&self) -> &Container {
        &self.cont
    }

    /// Writes akeys of a dkey. `data` holds, in order, what the iods do not carry themselves.
    ///
    /// Errors: `Exist`, `NonExist` from conditions; `Inval` for a record size that differs from
    /// that of existing records; `NoSpace`; `KeyTooBig`.
    pub fn update<'a>(
        &'a self,
        tx: Option<&'a Tx>,
        cond: Cond,
        dkey: &'a [u8],
        iods: Vec<UpdateIod<'a>>,
        data: &'a [&'a [u8]],
    ) -> LocalBoxFuture<'a, Result<Epoch>> {
        Box::pin(async move {
            self.cont.learn(self.oid).await;
            let unit = self.cont.known_unit_of(self.oid, dkey)?;
            self.write(tx, Op::Update { unit, dkey, cond, iods }, data).await
        })
    }

    async fn write(&self, tx: Option<&Tx>, op: Op<'_>, data: &[&[u8]]) -> Result<Epoch> {
        if let Some(tx) = tx {
            tx.add(&op, data)?;
            return Ok(Epoch::ZERO);
        }
        let mut batch = self.cont.batch();
        batch.op_of_unit(op);
        for piece in data {
            batch.bulk_out(piece);
        }
        Ok(batch.run().await?.epoch)
    }

    /// Reads akeys of a dkey into `room`, which is filled in the order of iods and ranges.
    pub fn fetch<'a>(
        &'a self,
        tx: Option<&'a Tx>,
        cond: Cond,
        dkey: &'a [u8],
        iods: Vec<FetchIod<'a>>,
        room: &'a mut [&mut [u8]],
    ) -> LocalBoxFuture<'a, Result<Vec<FetchedValue>>> {
        Box::pin(async move {
            self.cont.learn(self.oid).await;
            let akeys: Vec<&[u8]> = iods.iter().map(|iod| iod.akey).collect();
            let unit = self.cont.known_unit_of(self.oid, dkey)?;
            let mut batch = self.cont.batch();
            batch.op_of_unit(Op::Fetch { unit, dkey, cond, iods });
            if tx.is_none() && cond == Cond::NONE {
                batch.may_ask_members();
            }
            for piece in room.iter_mut() {
                batch.bulk_in(piece);
            }
            let result = batch.run().await?;
            let replies = result.replies()?;
            let Some(OpReply::Fetched(found)) = replies.first() else {
                return Err(wrong_answer());
            };
            if found.len() != akeys.len() {
                return Err(wrong_answer());
            }
            if let Some(tx) = tx {
                for (akey, iod) in akeys.iter().zip(found) {
                    tx.saw(unit, ReadScope::Akey(dkey, akey), iod.epoch);
                }
            }
            Ok(found.iter().map(|iod| fetched_value(&iod.value)).collect())
        })
    }

    /// Removes the whole object. With conditions, atomically over all its shards.
    #[boxed(?Send)]
    pub async fn punch(&self, cond: Cond) -> Result<()> {
        self.punch_in(None, cond).await
    }

    /// The same inside a transaction.
    #[boxed(?Send)]
    pub async fn punch_in(&self, tx: Option<&Tx>, cond: Cond) -> Result<()> {
        self.cont.learn(self.oid).await;
        let op = |unit| Op::PunchObj { unit, cond, besides: b"" };
        let units = self.cont.known_units(self.oid)?;
        if let Some(tx) = tx {
            return units.into_iter().try_for_each(|unit| tx.add(&op(unit), &[]));
        }
        let mut batch = self.cont.batch();
        for unit in units {
            batch.op_of_unit(op(unit));
        }
        batch.run().await.map(|_| ())
    }

    /// Removes dkeys; together or not at all.
    #[boxed(?Send)]
    pub async fn punch_dkeys(&self, tx: Option<&Tx>, cond: Cond, dkeys: &[&[u8]]) -> Result<()> {
        self.cont.learn(self.oid).await;
        let mut by_unit: Vec<(Unit, Vec<&serde_bytes::Bytes>)> = Vec::new();
        for dkey in dkeys {
            let unit = self.cont.known_unit_of(self.oid, dkey)?;
            let key = serde_bytes::Bytes::new(dkey);
            match by_unit.iter_mut().find(|(known, _)| *known == unit) {
                Some((_, keys)) => keys.push(key),
                None => by_unit.push((unit, vec![key])),
            }
        }
        let mut batch = self.cont.batch();
        for (unit, dkeys) in by_unit {
            let op = Op::PunchDkeys { unit, cond, dkeys };
            match tx {
                Some(tx) => tx.add(&op, &[])?,
                None => {
                    batch.op_of_unit(op);
                }
            }
        }
        batch.run().await.map(|_| ())
    }

    /// Removes akeys of a dkey.
    #[boxed(?Send)]
    pub async fn punch_akeys(
        &self,
        tx: Option<&Tx>,
        cond: Cond,
        dkey: &[u8],
        akeys: &[&[u8]],
    ) -> Result<()> {
        self.cont.learn(self.oid).await;
        let akeys = akeys.iter().map(|akey| serde_bytes::Bytes::new(akey)).collect();
        let unit = self.cont.known_unit_of(self.oid, dkey)?;
        let op = Op::PunchAkeys { unit, dkey, cond, akeys };
        self.write(tx, op, &[]).await.map(|_| ())
    }

    /// Anchors that divide a listing of dkeys among `parts` readers: every key belongs to
    /// exactly one of them. By shard first, by hash inside shards where that is not enough.
    pub fn split(&self, parts: u32) -> Result<Vec<Anchor>> {
        let groups = self.cont.layout(self.oid)?.group_count() as u32;
        let parts = parts.max(1);
        if parts <= groups {
            return Ok((0..parts)
                .map(|part| Anchor {
                    group: part * groups / parts,
                    group_end: (part + 1) * groups / parts,
                    ..Anchor::start()
                })
                .collect());
        }
        if self.oid.dkey_kind() != types::DkeyKind::Hashed {
            let one = |group| Anchor { group, group_end: group + 1, ..Anchor::start() };
            return Ok((0..groups).map(one).collect());
        }
        let mut anchors = Vec::with_capacity(parts as usize);
        for group in 0..groups {
            let slices = (parts * (group + 1) / groups - parts * group / groups) as u128;
            let bound = |slice: u128| ((slice << 64) / slices) as u64;
            for slice in 0..slices {
                let to = if slice + 1 == slices { u64::MAX } else { bound(slice + 1) - 1 };
                let hashes = (bound(slice), to);
                anchors.push(Anchor { group, group_end: group + 1, hashes, ..Anchor::start() });
            }
        }
        Ok(anchors)
    }

    /// Lists dkeys from `anchor` on, moving it. An answer may be empty before the end.
    #[boxed(?Send)]
    pub async fn list_dkeys(
        &self,
        tx: Option<&Tx>,
        anchor: &mut Anchor,
        count_max: u32,
    ) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        self.list_entries(tx, anchor, count_max, None, false, |item| {
            if let Listed::Key { key } | Listed::Entry { key, .. } = item {
                keys.push(Key::new(key));
            }
        })
        .await?;
        Ok(keys)
    }

    /// Lists dkeys with the single value of one akey (and, with `follow`, the tails of linked
    /// objects held beside them), from `anchor` on, moving it.
    pub async fn list_entries(
        &self,
        tx: Option<&Tx>,
        anchor: &mut Anchor,
        count_max: u32,
        value_of: Option<&[u8]>,
        follow: bool,
        mut item: impl FnMut(&Listed<'_>),
    ) -> Result<()> {
        self.cont.learn(self.oid).await;
        let what = (value_of, follow);
        self.list_shard(tx, anchor, (count_max, LIST_BYTES_MAX), what, &mut item).await
    }

    /// Lists dkeys, or the akeys of `dkey` if one is given, from `anchor` on, moving it: up to
    /// `count_max` keys of `bytes_max` bytes together, at least one whatever its length if any
    /// is left in the shard. An answer may be empty before the end.
    pub async fn list_keys(
        &self,
        tx: Option<&Tx>,
        dkey: Option<&[u8]>,
        anchor: &mut Anchor,
        count_max: u32,
        bytes_max: u32,
        mut key: impl FnMut(&[u8]),
    ) -> Result<()> {
        self.cont.learn(self.oid).await;
        let mut item = |item: &Listed<'_>| {
            if let Listed::Key { key: found } = item {
                key(found);
            }
        };
        let room = (count_max, bytes_max);
        let Some(dkey) = dkey else {
            return self.list_shard(tx, anchor, room, (None, false), &mut item).await;
        };
        let unit = self.cont.known_unit_of(self.oid, dkey)?;
        let position = std::mem::take(&mut anchor.position);
        let scope = ListScope::Akeys { dkey };
        anchor.position = self.list(tx, unit, scope, &position, room, &mut item).await?;
        anchor.done = anchor.position.is_empty();
        Ok(())
    }

    async fn list_shard(
        &self,
        tx: Option<&Tx>,
        anchor: &mut Anchor,
        room: (u32, u32),
        (value_of, follow): (Option<&[u8]>, bool),
        item: &mut dyn FnMut(&Listed<'_>),
    ) -> Result<()> {
        let layout = self.cont.layout(self.oid)?;
        let end = anchor.group_end.min(layout.group_count() as u32);
        if anchor.done || anchor.group >= end {
            anchor.done = true;
            return Ok(());
        }
        let unit = self.oid.unit(anchor.group);
        let scope = ListScope::Dkeys { value_of, follow, hash_range: anchor.hashes };
        let position = std::mem::take(&mut anchor.position);
        let next = self.list(tx, unit, scope, &position, room, item).await?;
        if next.is_empty() {
            anchor.group += 1;
            anchor.done = anchor.group >= end;
        }
        anchor.position = next;
        Ok(())
    }

    async fn list(
        &self,
        tx: Option<&Tx>,
        unit: Unit,
        scope: ListScope<'_>,
        position: &[u8],
        room: (u32, u32),
        item: &mut dyn FnMut(&Listed<'_>),
    ) -> Result<Vec<u8>> {
        let (count_max, bytes_max) = room;
        let mut batch = self.cont.batch();
        batch.op_of_unit(Op::List {
            unit,
            scope,
            anchor: position,
            count_max: count_max.min(LIST_COUNT_MAX),
            bytes_max: bytes_max.min(LIST_BYTES_MAX),
        });
        if tx.is_none() {
            batch.may_ask_members();
        }
        let result = batch.run().await?;
        let replies = result.replies()?;
        let Some(OpReply::Listed { items, anchor, keys_epoch }) = replies.first() else {
            return Err(wrong_answer());
        };
        if let Some(tx) = tx {
            let scope = match scope {
                ListScope::Dkeys { .. } => ReadScope::Keys,
                ListScope::Akeys { dkey } | ListScope::Recxs { dkey, .. } => ReadScope::Dkey(dkey),
            };
            tx.saw(unit, scope, *keys_epoch);
        }
        items.iter().for_each(item);
        Ok(anchor.to_vec())
    }

    /// Lists akeys of a dkey.
    #[boxed(?Send)]
    pub async fn list_akeys(
        &self,
        tx: Option<&Tx>,
        dkey: &[u8],
        anchor: &mut Anchor,
        count_max: u32,
    ) -> Result<Vec<Key>> {
        self.cont.learn(self.oid).await;
        let mut keys = Vec::new();
        let take = |key: &[u8]| keys.push(Key::new(key));
        self.list_keys(tx, Some(dkey), anchor, count_max, LIST_BYTES_MAX, take).await?;
        Ok(keys)
    }

    /// Lists the written ranges of an array akey, with record size and epoch.
    #[boxed(?Send)]
    pub async fn list_recxs(
        &self,
        tx: Option<&Tx>,
        dkey: &[u8],
        akey: &[u8],
        descending: bool,
        anchor: &mut Anchor,
        count_max: u32,
    ) -> Result<Vec<(Recx, u32, Epoch)>> {
        self.cont.learn(self.oid).await;
        let mut ranges = Vec::new();
        let mut take = |item: &Listed<'_>| {
            if let Listed::Recx { recx, record_bytes, epoch } = *item {
                ranges.push((recx, record_bytes, epoch));
            }
        };
        let unit = self.cont.known_unit_of(self.oid, dkey)?;
        let position = std::mem::take(&mut anchor.position);
        let scope = ListScope::Recxs { dkey, akey, descending };
        let room = (count_max, LIST_BYTES_MAX);
        anchor.position = self.list(tx, unit, scope, &position, room, &mut take).await?;
        anchor.done = anchor.position.is_empty();
        Ok(ranges)
    }

    /// Finds the least or greatest dkey, akey, recx; what is not to be found is given.
    /// `None` when there is nothing. Integer keys only for `DKEY` and `AKEY` (`Inval` else).
    #[boxed(?Send)]
    pub async fn query(
        &self,
        tx: Option<&Tx>,
        flags: QueryFlags,
        dkey: &[u8],
        akey: &[u8],
    ) -> Result<Option<KeyRange>> {
        self.cont.learn(self.oid).await;
        let units = if flags.has(QueryFlags::DKEY) {
            self.cont.known_units(self.oid)?
        } else {
            vec![self.cont.known_unit_of(self.oid, dkey)?]
        };
        let mut best: Option<KeyRange> = None;
        for unit in units {
            let mut batch = self.cont.batch();
            batch.op_of_unit(Op::Query { unit, flags, dkey, akey });
            batch.op_of_unit(Op::Stat { unit });
            if tx.is_none() {
                batch.may_ask_members();
            }
            let result = batch.run().await?;
            let replies = result.replies()?;
            let [OpReply::Found(found), OpReply::Stat(stat)] = &replies[..] else {
                return Err(wrong_answer());
            };
            if let Some(tx) = tx {
                tx.saw(unit, ReadScope::Object, stat.tail.epoch);
            }
            let Some(found) = found else { continue };
            let found = KeyRange {
                dkey: Key::new(found.dkey),
                akey: Key::new(found.akey),
                recx: found.recx,
                record_bytes: found.record_bytes,
            };
            let better = best.as_ref().is_none_or(|best| {
                let (new, old) = (integer(&found.dkey), integer(&best.dkey));
                if flags.has(QueryFlags::MAX) { new > old } else { new < old }
            });
            if better {
                best = Some(found);
            }
        }
        Ok(best)
    }

    /// Facts about each unit of the object.
    #[boxed(?Send)]
    pub async fn stat(&self) -> Result<Vec<(Unit, ObjectStat)>> {
        self.cont.learn(self.oid).await;
        let mut stats = Vec::new();
        for unit in self.cont.known_units(self.oid)? {
            let mut batch = self.cont.batch();
            batch.op_of_unit(Op::Stat { unit });
            match batch.run().await?.replies()?.first() {
                Some(OpReply::Stat(stat)) => stats.push((unit, *stat)),
                _ => return Err(wrong_answer()),
            }
        }
        Ok(stats)
    }
}

fn integer(key: &[u8]) -> u64 {
    key.try_into().map_or(0, u64::from_le_bytes)
}

fn fetched_value(value: &Fetched<'_>) -> FetchedValue {
    match value {
        Fetched::Absent => FetchedValue::Absent,
        Fetched::Inline(bytes) => FetchedValue::Inline(bytes.to_vec()),
        Fetched::Single { bytes, in_bulk } => {
            FetchedValue::Single { bytes: *bytes, fitted: *in_bulk }
        }
        Fetched::Array { record_bytes, end } => {
            FetchedValue::Array { record_bytes: *record_bytes, end: *end }
        }
        Fetched::Sparse { record_bytes, end, holes } => {
            FetchedValue::Sparse { record_bytes: *record_bytes, end: *end, holes: holes.clone() }
        }
    }
}
