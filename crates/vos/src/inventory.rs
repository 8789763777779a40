//! What is here, for members of a group to compare: units and dkeys with the newest epoch of anything in them, and a
//! digest of what readers are shown.
//!
//! A member that was away asks the leader for both lists, and has what differs sent again
//! ([`crate::image`]). What only snapshots see is listed, too.

use types::{Code, ContId, CsumKind, Epoch, Error, Result, Unit, hash};
use wire::obj::ObjectList;

use crate::blocks::Run;
use crate::index::at::{ArrayRef, ObjectAt};
use crate::index::bucket;
use crate::index::extent::Place;
use crate::index::slot::{AkeyRef, DkeyRef};
use crate::record::RecordDf;
use crate::segments::Segments;
use crate::shard::PoolShard;

/// Dkeys that a digest looks at in one go.
const PAGE_DKEYS: usize = 256;

impl PoolShard {
    /// True when there may be units of groups of several members: there was one at some time. So who looks for such
    /// units need not go through millions of others.
    pub fn holds_copies(&self) -> bool {
        let state = self.state.borrow();
        state.holds_copies || state.moves_singles
    }

    /// True once [`PoolShard::begin_moving_singles`] was called.
    pub fn moves_singles(&self) -> bool {
        self.state.borrow().moves_singles
    }

    /// Notes that units may have come here, or gone, of which there is one copy: from now on, also after a restart with an
    /// old pool map, nobody may take what is here of them for the truth before that is known.
    ///
    /// Errors: `Io` when nothing can be written any more.
    pub fn begin_moving_singles(&self) -> Result<()> {
        if !self.moves_singles() {
            self.writable()?;
            self.log_record(&RecordDf::MovesSingles);
            self.state.borrow_mut().moves_singles = true;
        }
        Ok(())
    }

    /// Up to `max` objects that hold something at the snapshot `at` (zero: now), after `after`, in
    /// [`Unit::list_order`]. `after` need not be there. Loads what it looks at. Errors: as
    /// [`PoolShard::view_at`].
    pub async fn list_objects(
        &self,
        cont: ContId,
        at: Epoch,
        after: Option<Unit>,
        max: usize,
    ) -> Result<ObjectList> {
        let (max, at_epoch) = (max.max(1), at);
        self.view_at(cont, at)?;
        let mut units: Vec<Unit> = Vec::new();
        let order = |unit: Unit| (bucket::hash_of(unit), unit);
        let mut from = after.map(order);
        let mut at = Some(from.map_or(0, |(hash, _)| hash));
        while let Some(hash) = at {
            self.ready_bucket(cont, hash).await?;
            let view = self.view_at(cont, at_epoch)?;
            let (bucket, next) = view.cont.bucket_at(hash);
            let inside = |unit: &Unit| next.is_none_or(|next| bucket::hash_of(*unit) < next);
            let large = view.cont.large_from(bucket.prefix).take_while(inside);
            let small = bucket.objects.keys().copied();
            let after =
                |unit: &Unit| from.is_none_or(|from| order(*unit) > from) && view.has_object(*unit);
            let mut found: Vec<Unit> = small.chain(large).filter(after).collect();
            found.sort_unstable_by_key(|&unit| order(unit));
            let room = max - units.len();
            if found.len() > room {
                found.truncate(room);
                units.extend(found);
                return Ok(ObjectList { units, complete: false });
            }
            units.extend(found);
            from = None;
            at = next;
        }
        Ok(ObjectList { units, complete: true })
    }

    /// Up to `max` units of a container after `after` that hold something, now or in a snapshot (or that one may be made of), in
    /// [`Unit::list_order`], each with the newest epoch of anything in it; whether these are all. `after` need not be there. Two members with the same
    /// snapshots that have made the same changes tell the same.
    ///
    /// `NonExist` for an unknown container, `Busy` while it is rolled back, `Csum` or `Io` when its index cannot be read.
    pub async fn list_units(
        &self,
        cont: ContId,
        after: Option<Unit>,
        max: usize,
    ) -> Result<(Vec<(Unit, Epoch)>, bool)> {
        self.require_open(cont)?;
        let max = max.max(1);
        let mut out: Vec<(Unit, Epoch)> = Vec::new();
        let from = after.map(|unit| unit.list_order());
        let mut at = Some(from.map_or(0, |(hash, _)| hash));
        while let Some(hash) = at {
            let (mut units, next) = self.units_at(cont, hash).await?;
            units.retain(|unit| from.is_none_or(|from| unit.list_order() > from));
            units.sort_unstable_by_key(|unit| unit.list_order());
            let view = self.view(cont)?;
            let newest = |unit: Unit| Some((unit, view.cont.newest(unit)?));
            out.extend(units.into_iter().filter_map(newest).take(max + 1 - out.len()));
            if out.len() > max {
                out.truncate(max);
                return Ok((out, false));
            }
            at = next;
        }
        Ok((out, true))
    }

    /// The newest epoch of anything in a unit, as [`PoolShard::list_units`] has it; zero when it holds nothing. Errors: as there.
    pub async fn newest_of_all(&self, cont: ContId, unit: Unit) -> Result<Epoch> {
        self.require_open(cont)?;
        self.ready_for(cont, |container| {
            container.newest(unit);
        })
        .await?;
        Ok(self.view(cont)?.cont.newest(unit).unwrap_or_default())
    }

    /// Up to `max` dkeys of a unit after `after` that are there, now or in a snapshot, in the unit's order, each with the
    /// newest epoch of anything under it; whether these are all. As for [`PoolShard::list_units`]; `Inval` for an impossible key.
    pub async fn list_keys(
        &self,
        cont: ContId,
        unit: Unit,
        after: Option<&[u8]>,
        max: usize,
    ) -> Result<(Vec<(Vec<u8>, Epoch)>, bool)> {
        self.require_open(cont)?;
        if let Some(after) = after {
            crate::keys::check_dkey(unit, after)?;
        }
        let max = max.max(1);
        self.ready_for(cont, |container| {
            if let Some(object) = container.whole(unit) {
                object.keys_after(after, max, &container.versions);
            }
        })
        .await?;
        let view = self.view(cont)?;
        let Some(object) = view.cont.whole(unit) else { return Ok((Vec::new(), true)) };
        Ok(object.keys_after(after, max, &view.cont.versions))
    }

    /// A number that is the same on two members whenever readers are shown the same of a unit: keys, values, sizes and epochs,
    /// now and in every snapshot, as far as a snapshot tells epochs. Where data lie and how they are cut makes no difference. Records
    /// filled as zeros are told from written zeros, as the bytes in use tell them.
    ///
    /// The unit must not change meanwhile. Holds the data of one dkey in memory. Errors: as for [`PoolShard::dkey_image`].
    pub async fn digest(&self, cont: ContId, unit: Unit) -> Result<u64> {
        self.require_open(cont)?;
        self.ready_for(cont, |container| {
            container.whole(unit);
        })
        .await?;
        let times: Vec<Epoch> = {
            let snapshots = &self.versions_of(cont)?.snapshots;
            [Epoch::ZERO].into_iter().chain(snapshots.iter().copied()).collect()
        };
        let mut digest = 0;
        {
            let view = self.view(cont)?;
            for &at in &times {
                digest = hash::mix2(digest, at.0);
                let Some(object) = view.cont.object_at(unit, at) else { continue };
                let facts = object.facts();
                let (epochs, bytes) = ([facts.epoch.0, facts.keys_epoch.0], facts.bytes_used);
                for word in [epochs[0], epochs[1], bytes, facts.dkey_count, facts.counted_links] {
                    digest = hash::mix2(digest, word);
                }
            }
        }
        let mut after: Option<Vec<u8>> = None;
        loop {
            let (keys, complete) = self.list_keys(cont, unit, after.as_deref(), PAGE_DKEYS).await?;
            for (dkey, _) in &keys {
                // What is kept for a snapshot that is still to be made is shown to nobody.
                if let Some(shown) = self.dkey_digest(cont, unit, dkey, &times).await? {
                    digest = hash::mix2(hash::mix2(digest, hash::bytes(dkey)), shown);
                }
            }
            after = keys.into_iter().next_back().map(|(dkey, _)| dkey);
            if complete || after.is_none() {
                return Ok(digest);
            }
        }
    }

    /// The same of a dkey at these times; `None` when it is shown at none of them.
    async fn dkey_digest(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        times: &[Epoch],
    ) -> Result<Option<u64>> {
        self.ready_for(cont, |container| {
            if let Some(object) = container.whole(unit) {
                object.dkey(dkey);
            }
        })
        .await?;
        let mut shown: Vec<Shown> = Vec::new();
        {
            let view = self.view(cont)?;
            for &at in times {
                let object = view.cont.object_at(unit, at);
                let found = object.and_then(|object: ObjectAt<'_>| object.dkey(dkey));
                let Some(found) = found else { continue };
                let mut now = Shown { at, ..Shown::default() };
                now.segments.kind = view.cont.sums.kind;
                if at == Epoch::ZERO {
                    now.epochs = hash::mix(found.epoch().0);
                }
                now.add(found, &mut |segments, run| segments.push_run(&self.core, run))?;
                shown.push(now);
            }
        }
        if shown.is_empty() {
            return Ok(None);
        }
        let mut digest = 0;
        for mut shown in shown {
            shown.segments.load().await?;
            if !shown.segments.damaged().is_empty() {
                return Err(Error::new(
                    Code::Csum,
                    format!("object {unit}: data of a key are damaged on this target"),
                ));
            }
            for word in [shown.at.0, shown.epochs, shown.hash()] {
                digest = hash::mix2(digest, word);
            }
        }
        Ok(Some(digest))
    }
}

/// What is shown of a dkey at a time.
#[derive(Default)]
struct Shown {
    at: Epoch,
    /// Of epochs that only the present tells.
    epochs: u64,
    /// What is there, in order, and how many bytes of data belong to it.
    items: Vec<(u64, u64)>,
    segments: Segments,
}

impl Shown {
    fn add(
        &mut self,
        dkey: DkeyRef<'_>,
        push: &mut dyn FnMut(&mut Segments, Run) -> Result<()>,
    ) -> Result<()> {
        for (akey, value) in dkey.akeys() {
            self.items.push((hash::bytes(akey), 0));
            let epoch = value.epoch().0;
            match value {
                AkeyRef::Inline(_, bytes) => {
                    self.items.push((epoch, bytes.len() as u64));
                    self.segments.push_bytes(bytes);
                }
                AkeyRef::Runs(_, runs) => {
                    self.items.push((epoch, runs.iter().map(|run| run.bytes).sum()));
                    runs.iter().try_for_each(|run| push(&mut self.segments, *run))?;
                }
                AkeyRef::Array(array) => {
                    if self.at == Epoch::ZERO {
                        self.epochs = hash::mix2(self.epochs, epoch);
                    }
                    self.add_array(ArrayRef::Head(array), push)?;
                }
                AkeyRef::Old(array) => self.add_array(ArrayRef::Old(array), push)?,
            }
        }
        Ok(())
    }

    /// Adds ranges of written records, joined where they follow each other, and apart from those filled as zeros.
    fn add_array(
        &mut self,
        array: ArrayRef<'_>,
        push: &mut dyn FnMut(&mut Segments, Run) -> Result<()>,
    ) -> Result<()> {
        let record_bytes = array.record_bytes() as u64;
        self.items.push((record_bytes, 0));
        // First record, one past the last, zeros.
        let mut range: Option<(u64, u64, bool)> = None;
        for shown in array.from(0) {
            let (zero, end) = (*shown.place == Place::Zero, shown.index + shown.count);
            if let Place::Coded(stripe) = shown.place {
                self.end_range(range.take(), record_bytes);
                let of = hash::mix2(stripe.first, stripe.version.0);
                self.items.push((hash::mix2(hash::mix2(shown.index, end), of), 0));
                continue;
            }
            match &mut range {
                Some((_, last, zeros)) if *last == shown.index && *zeros == zero => *last = end,
                _ => {
                    self.end_range(range.replace((shown.index, end, zero)), record_bytes);
                }
            }
            match shown.place {
                Place::Inline(bytes) => self.segments.push_bytes(bytes),
                Place::Blocks(at) => {
                    let run = Run { at: *at, bytes: shown.count * record_bytes };
                    push(&mut self.segments, run)?;
                }
                Place::Zero | Place::Coded(_) => {}
            }
        }
        self.end_range(range, record_bytes);
        Ok(())
    }

    fn end_range(&mut self, range: Option<(u64, u64, bool)>, record_bytes: u64) {
        let Some((start, end, zeros)) = range else { return };
        let bytes = if zeros { 0 } else { (end - start) * record_bytes };
        let name = hash::mix2(hash::mix2(start, end), zeros as u64);
        self.items.push((name, bytes));
    }

    /// Of all but the epochs that only the present tells.
    fn hash(&self) -> u64 {
        let data = self.segments.slices().concat();
        let mut rest = &data[..];
        let mut digest = 0;
        for &(name, bytes) in &self.items {
            digest = hash::mix2(digest, name);
            let (mine, more) = rest.split_at(bytes as usize);
            rest = more;
            let mut sum = [0; 8];
            codec::sum(CsumKind::Xxh3, mine, &mut sum);
            digest = hash::mix2(hash::mix2(digest, bytes), u64::from_le_bytes(sum));
        }
        digest
    }
}
