//! Objects that spread: when one has many dkeys, the leader of its first group moves them to all groups ([`wire::spread`]).
//!
//! They move in the order of their hashes, some at a time, each lot in a transaction of the first group and the one that gets them. It takes
//! all that is under the dkeys, and writes down in both units how far it has come. Who asks for a dkey meanwhile is told where
//! it is, or waits for the transaction; who makes one that is to move with it waits, too. While a lot is looked for nothing is held: a lot
//! that changes until it is to be held is looked for again.
//!
//! A crash leaves what is written down. Whoever leads the first group then goes on when it is asked for anything in it; until then some
//! dkeys are here and some there, which is as good as any other state. Few dkeys move, too, where much is beside them ([`crate::first_parts`]).

use crate::damage::is_damage;
use crate::target::{Target, TargetPool};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Epoch, Error, Key, PoolId, Result, Unit, hash, limits};
use vos::{FetchedValue, Segments, Summary};
use wire::link;
use wire::obj::{
    Batch, Cond, FetchIod, FetchWant, ListScope, Listed, Op, ReadCheck, ReadScope, Sums, UpdateIod,
    UpdateValue,
};
use wire::spread::{LINK, MARKER, REACHED, Spread};

/// What has become large is looked at after this long: whoever has made it so is still at it.
const DELAY: Duration = Duration::from_millis(5);
/// Dkeys of a transaction: requests for others that go to the same units wait only for locks, but those for these wait for the end.
const DKEYS_AT_ONCE: u32 = 64;
/// Bytes under the dkeys of a transaction, after which no further dkey is added.
const BYTES_AT_ONCE: u64 = 512 << 10;
/// Pauses before a lost conflict is run again: the first, and where doubling ends.
const CONFLICT_PAUSE: Duration = Duration::from_millis(1);
const CONFLICT_PAUSE_MAX: Duration = Duration::from_millis(100);
/// Pauses before an object is looked at again that could not be spread: the first, and where doubling ends.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Objects to spread of a pool.
#[derive(Default)]
pub(crate) struct Spreading {
    /// First units that this target leads, or led.
    noted: RefCell<BTreeSet<(ContId, Unit)>>,
    is_at_it: Cell<bool>,
}

/// A dkey and all that is under it.
pub(crate) struct Entry {
    pub dkey: Key,
    /// Of its newest change.
    pub epoch: Epoch,
    values: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Entry {
    /// Makes it in another unit.
    pub fn insert(&self, unit: Unit) -> Op<'_> {
        let iods = self.values.iter().map(|(akey, value)| iod(akey, value)).collect();
        Op::Update { unit, dkey: &self.dkey, cond: Cond::DKEY_INSERT, iods }
    }
}

/// What a transaction moves: all dkeys with hashes in a range.
struct Lot {
    from: u64,
    to: u64,
    entries: Vec<Entry>,
}

impl Target {
    /// Begins to spread what has become too large with a batch, or was left half spread, if that has not begun. In the step in which it
    /// takes effect or is held, or is answered.
    pub(crate) fn spread_soon(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        batch: &Summary,
    ) {
        if !batch.spreads {
            return;
        }
        let units = batch.units.iter().map(|named| named.unit);
        let mut grown = units.filter(|unit| unit.group == 0 && unit.object.spreads()).peekable();
        if grown.peek().is_none() {
            return;
        }
        let Ok(view) = ctx.shard.view(cont) else { return };
        let grown = grown.filter(|unit| view.wants_to_spread(*unit)).map(|unit| (cont, unit));
        self.spread_noting(pool, ctx, grown);
    }

    /// Begins to spread what is noted, and this.
    pub(crate) fn spread_noting(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        units: impl IntoIterator<Item = (ContId, Unit)>,
    ) {
        let mut noted = ctx.spreading.noted.borrow_mut();
        noted.extend(units);
        if noted.is_empty() || ctx.spreading.is_at_it.replace(true) {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            target.spread_noted(pool, &ctx).await;
            ctx.spreading.is_at_it.set(false);
        });
    }

    async fn spread_noted(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        let mut pause = RETRY_PAUSE;
        loop {
            // timer: more entries may be noted meanwhile.
            self.env.sleep(DELAY).await;
            let noted = ctx.spreading.noted.take();
            if noted.is_empty() || self.is_done_with(ctx) {
                return;
            }
            let count = noted.len();
            let mut left = Vec::new();
            for (cont, unit) in noted {
                match self.move_all(pool, ctx, cont, unit).await {
                    Ok(()) => {}
                    // Who leads now does it; what is removed is not spread.
                    Err(error) if is_of_others(error.code) => {}
                    Err(error) => {
                        tracing::info!("target {}: spreading {unit}: {error}", self.id);
                        left.push((cont, unit));
                    }
                }
            }
            if !left.is_empty() {
                // A target may be away for long, or full.
                pause = if left.len() < count { RETRY_PAUSE } else { pause * 2 };
                pause = pause.min(RETRY_PAUSE_MAX);
                // timer: a pause before another try.
                self.env.sleep(pause).await;
                ctx.spreading.noted.borrow_mut().extend(left);
            }
        }
    }

    /// Moves all that is to move from a first unit.
    async fn move_all(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
    ) -> Result<()> {
        let mut is_full = self.is_full(ctx, cont, unit).await?;
        let mut pause = CONFLICT_PAUSE;
        while !self.is_done_with(ctx) {
            let began = self.env.now();
            match self.move_lot(pool, ctx, cont, unit, is_full).await {
                Ok(true) => break,
                Ok(false) => {
                    // From now on it is known that it spreads.
                    is_full = false;
                    pause = CONFLICT_PAUSE;
                    // timer: half of the time is for those who wait meanwhile.
                    self.env.sleep(self.env.now().saturating_sub(began)).await;
                }
                Err(error) if error.code == Code::TxRestart => {
                    let micros = pause.as_micros() as u64;
                    let micros = micros / 2 + self.env.random_u64() % micros;
                    // timer: of two that disturb each other one goes first.
                    self.env.sleep(Duration::from_micros(micros)).await;
                    pause = (pause * 2).min(CONFLICT_PAUSE_MAX);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// True for what has too few dkeys to spread, and much beside them.
    async fn is_full(&self, ctx: &TargetPool, cont: ContId, unit: Unit) -> Result<bool> {
        self.led_group(ctx, unit)?;
        let group_count = placement::layout(unit.object, &*ctx.map()?)?.group_count();
        let marker = [Op::Stat { unit }];
        ctx.shard.ready(cont, &[], &marker).await?;
        let is_small = {
            let view = ctx.shard.view(cont)?;
            view.spread(unit).is_none() && !view.wants_to_spread(unit)
        };
        Ok(is_small && group_count > 1 && self.holds_much(ctx, cont, unit, group_count).await?)
    }

    /// Moves the next dkeys; true when there are none to move. `is_full`: they move even if they are few.
    ///
    /// Errors: `TxRestart` when somebody was quicker; `Stale` when another target leads; `NonExist` when the object is gone.
    async fn move_lot(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
        is_full: bool,
    ) -> Result<bool> {
        self.led_group(ctx, unit)?;
        let map = ctx.map()?;
        let layout = placement::layout(unit.object, &map)?;
        if layout.group_count() == 1 {
            return Ok(true);
        }
        let (own_first, own_last) = layout.hashes_of(0);
        let begin = Spread { own_first, own_last, reached: own_last };
        let want = FetchWant::Single {
            bytes_max: Spread::BYTES as u64,
            inline_bytes_max: Spread::BYTES as u32,
        };
        let iods = vec![FetchIod { akey: REACHED, want }];
        let marker = [Op::Fetch { unit, dkey: MARKER, cond: Cond::NONE, iods }];
        ctx.shard.ready(cont, &[], &marker).await?;
        if ctx.shard.conflicts(cont, &[], &marker) {
            return Err(Error::new(Code::TxRestart, "another transaction holds the marker"));
        }
        let (here, seen) = {
            let view = ctx.shard.view(cont)?;
            if !view.has_object(unit) {
                return Err(Error::bare(Code::NonExist));
            }
            if !is_full && !view.wants_to_spread(unit) {
                return Ok(true);
            }
            let seen = view.value(unit, MARKER, REACHED).map_or(Epoch::ZERO, |(epoch, _)| epoch);
            (view.spread(unit).unwrap_or(begin), seen)
        };
        let Some(from) = here.reached.checked_add(1) else { return Ok(true) };
        let group = layout.group_of_hash(from);
        let (own_first, own_last) = layout.hashes_of(group);
        let lot = match self.look_for_lot(ctx, cont, unit, (from, own_last)).await {
            Err(error) if is_damage(&error) => {
                // It is moved with the next try, if others have it whole.
                Box::pin(self.mend_dkeys(pool, ctx, cont, unit, (from, own_last))).await?;
                return Err(error);
            }
            found => found?,
        };
        let to = unit.object.unit(group as u32);
        let here = Spread { reached: lot.to, ..here };
        let there = Spread { own_first, own_last, reached: lot.to };
        self.move_to(pool, ctx, cont, (unit, here, seen), (to, there), &lot).await?;
        Ok(false)
    }

    /// Finds the first dkeys of a unit with hashes in a range.
    async fn look_for_lot(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        unit: Unit,
        range: (u64, u64),
    ) -> Result<Lot> {
        let list = [list_of(unit, range, DKEYS_AT_ONCE)];
        ctx.shard.ready(cont, &[], &list).await?;
        let (mut dkeys, is_cut) = dkeys_in(ctx, cont, unit, range, DKEYS_AT_ONCE)?;
        let mut to = range.1;
        if let Some(last) = dkeys.last().filter(|_| is_cut) {
            // Others may have the same hash.
            let end = hash::bytes(last);
            if end == range.0 {
                return Err(Error::new(Code::NotSupported, "too many dkeys have the same hash"));
            }
            to = end - 1;
            dkeys.retain(|dkey| hash::bytes(dkey) < end);
        }
        dkeys.retain(|dkey| &**dkey != MARKER);
        let (entries, cut) = self.read_entries(ctx, cont, unit, &dkeys).await?;
        Ok(Lot { from: range.0, to: cut.map_or(to, |hash| hash - 1), entries })
    }

    /// Puts the values of the next dkeys right, as far as others have them.
    async fn mend_dkeys(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
        range: (u64, u64),
    ) -> Result<()> {
        ctx.shard.ready(cont, &[], &[list_of(unit, range, DKEYS_AT_ONCE)]).await?;
        let (dkeys, _) = dkeys_in(ctx, cont, unit, range, DKEYS_AT_ONCE)?;
        for dkey in &dkeys {
            let scope = ListScope::Akeys { dkey };
            let (count_max, bytes_max) = (u32::MAX, u32::MAX);
            let list = [Op::List { unit, scope, anchor: b"", count_max, bytes_max }];
            ctx.shard.ready(cont, &[], &list).await?;
            let found = ctx.shard.view(cont)?.list(unit, scope, b"", count_max, bytes_max)?;
            let akeys: Vec<&[u8]> = found.items().filter_map(key_of).collect();
            let ops = vec![Op::Fetch { unit, dkey, cond: Cond::NONE, iods: fetch_whole(&akeys) }];
            let (at, checks, sums) = (Epoch::ZERO, Vec::new(), Sums::NONE);
            self.mend_for_reader(ctx, &Batch { pool, cont, at, checks, ops, sums }).await;
        }
        Ok(())
    }

    /// Reads all that is under dkeys, in order, until it is enough for a transaction; then the hash of the first one that was left out is given, too.
    pub(crate) async fn read_entries(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        unit: Unit,
        dkeys: &[Key],
    ) -> Result<(Vec<Entry>, Option<u64>)> {
        let mut cut = None;
        let scopes = dkeys.iter().map(|dkey| ListScope::Akeys { dkey });
        let all = (u32::MAX, u32::MAX);
        let lists: Vec<Op<'_>> = scopes
            .map(|scope| Op::List { unit, scope, anchor: b"", count_max: all.0, bytes_max: all.1 })
            .collect();
        ctx.shard.ready(cont, &[], &lists).await?;
        let mut segments = Segments::new();
        let mut entries: Vec<Entry> = Vec::with_capacity(dkeys.len());
        // Where values are in the segments, in their order: the entry and the akey.
        let mut in_bulk = Vec::new();
        {
            let view = ctx.shard.view(cont)?;
            let mut inline_bytes = 0;
            for dkey in dkeys {
                let hash = hash::bytes(dkey);
                let before = entries.last().map(|entry| hash::bytes(&entry.dkey));
                if inline_bytes + segments.bytes() > BYTES_AT_ONCE && before != Some(hash) {
                    cut = Some(hash);
                    break;
                }
                let found = view.list(unit, ListScope::Akeys { dkey }, b"", all.0, all.1)?;
                let akeys: Vec<&[u8]> = found.items().filter_map(key_of).collect();
                let iods = fetch_whole(&akeys);
                let fetched = view.fetch(unit, dkey, Cond::NONE, &iods, &mut segments)?;
                let mut values = Vec::with_capacity(akeys.len());
                for (akey, fetched) in akeys.iter().zip(fetched) {
                    let value = match fetched.value {
                        FetchedValue::Inline(value) => value.into_vec(),
                        FetchedValue::Single { bytes, in_bulk: true } => {
                            let at = (entries.len(), values.len());
                            in_bulk.push((at, bytes as usize, fetched.epoch));
                            Vec::new()
                        }
                        _ => {
                            return Err(Error::inval("a dkey to move has more than single values"));
                        }
                    };
                    inline_bytes += value.len() as u64;
                    values.push((akey.to_vec(), as_moved(akey, value, fetched.epoch)));
                }
                entries.push(Entry { dkey: dkey.clone(), epoch: found.keys_epoch, values });
            }
        }
        segments.load().await?;
        if !segments.damaged().is_empty() {
            return Err(Error::new(Code::Csum, "values of dkeys to move are damaged"));
        }
        let all = segments.slices().concat();
        let mut rest = &all[..];
        for ((entry, value), bytes, epoch) in in_bulk {
            let cut = rest.split_at_checked(bytes);
            let (mine, others) =
                cut.ok_or_else(|| Error::inval("a value is shorter than it was"))?;
            let (akey, value) = &mut entries[entry].values[value];
            *value = as_moved(akey, mine.to_vec(), epoch);
            rest = others;
        }
        Ok((entries, cut))
    }

    /// The transaction that moves a lot.
    async fn move_to(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        (unit, here, seen): (Unit, Spread, Epoch),
        (to, there): (Unit, Spread),
        lot: &Lot,
    ) -> Result<()> {
        let (here, there) = (here.encode(), there.encode());
        let mut checks = vec![ReadCheck { unit, of: ReadScope::Akey(MARKER, REACHED), seen }];
        let mut leave = vec![note(unit, Cond::OBJ_EXISTS, &here)];
        let mut come = vec![note(to, Cond::NONE, &there)];
        let mut dkeys: Vec<&serde_bytes::Bytes> = Vec::with_capacity(lot.entries.len());
        for entry in &lot.entries {
            let dkey = &*entry.dkey;
            checks.push(ReadCheck { unit, of: ReadScope::Dkey(dkey), seen: entry.epoch });
            dkeys.push(serde_bytes::Bytes::new(dkey));
            come.push(entry.insert(to));
        }
        if !dkeys.is_empty() {
            leave.push(Op::PunchDkeys { unit, cond: Cond::PUNCH, dkeys });
        }
        let part = |checks, ops| {
            let (at, sums) = (Epoch::ZERO, Sums::NONE);
            wire::encode(&Batch { pool, cont, at, checks, ops, sums })
        };
        let (leave, come) = (part(checks, leave), part(Vec::new(), come));
        let parts =
            [(unit, serde_bytes::Bytes::new(&leave), 0), (to, serde_bytes::Bytes::new(&come), 0)];
        let premise = || require_all(ctx, cont, unit, lot);
        self.coordinate(pool, ctx, None, &parts, &[], Some(&premise)).await?;
        tracing::debug!("target {}: moved {} dkeys to {to}", self.id, lot.entries.len());
        Ok(())
    }
}

/// True for errors that say that nothing is left to do here.
fn is_of_others(code: Code) -> bool {
    matches!(code, Code::Stale | Code::NonExist | Code::Closed)
}

/// `TxRestart` when there are other dkeys in the range of a lot than when it was found.
fn require_all(ctx: &TargetPool, cont: ContId, unit: Unit, lot: &Lot) -> Result<()> {
    let range = (lot.from, lot.to);
    // With room for the marker and one more.
    let count_max = lot.entries.len() as u32 + 2;
    if ctx.shard.is_resident(cont, &[], &[list_of(unit, range, count_max)]) {
        let (mut dkeys, is_cut) = dkeys_in(ctx, cont, unit, range, count_max)?;
        dkeys.retain(|dkey| &**dkey != MARKER);
        if !is_cut && dkeys.iter().eq(lot.entries.iter().map(|entry| &entry.dkey)) {
            return Ok(());
        }
    }
    Err(Error::new(Code::TxRestart, "dkeys have come or gone among those that were to move"))
}

/// The first dkeys with hashes in a range, which are in memory, and whether there are more.
fn dkeys_in(
    ctx: &TargetPool,
    cont: ContId,
    unit: Unit,
    hash_range: (u64, u64),
    count_max: u32,
) -> Result<(Vec<Key>, bool)> {
    let scope = ListScope::Dkeys { value_of: None, follow: false, hash_range };
    let found = ctx.shard.view(cont)?.list(unit, scope, b"", count_max, u32::MAX)?;
    let dkeys = found.items().filter_map(key_of).map(Key::new).collect();
    Ok((dkeys, !found.anchor.is_empty()))
}

/// Reads single values, whatever they are.
fn fetch_whole<'a>(akeys: &[&'a [u8]]) -> Vec<FetchIod<'a>> {
    let inline_bytes_max = limits::INLINE_BYTES_MAX as u32;
    let want = FetchWant::Single { bytes_max: u64::MAX, inline_bytes_max };
    akeys.iter().map(|akey| FetchIod { akey, want: want.clone() }).collect()
}

/// A value as it is where it comes to.
fn as_moved(akey: &[u8], value: Vec<u8>, epoch: Epoch) -> Vec<u8> {
    if akey == LINK { link::moved(value, epoch) } else { value }
}

/// Writes down how far a unit has come.
pub(crate) fn note(unit: Unit, cond: Cond, raw: &[u8]) -> Op<'_> {
    Op::Update { unit, dkey: MARKER, cond, iods: vec![iod(REACHED, raw)] }
}

fn iod<'a>(akey: &'a [u8], value: &'a [u8]) -> UpdateIod<'a> {
    UpdateIod { akey, cond: Cond::NONE, value: UpdateValue::Inline(value) }
}

fn list_of(unit: Unit, hash_range: (u64, u64), count_max: u32) -> Op<'static> {
    let scope = ListScope::Dkeys { value_of: None, follow: false, hash_range };
    Op::List { unit, scope, anchor: b"", count_max, bytes_max: u32::MAX }
}

pub(crate) fn key_of<'a>(item: Listed<'a>) -> Option<&'a [u8]> {
    match item {
        Listed::Key { key } => Some(key),
        Listed::Entry { .. } | Listed::Recx { .. } => None,
    }
}
