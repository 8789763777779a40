//! Folding: copies of a stripe's bytes give way to its name, once its cells are kept elsewhere ([`wire::cell`]).
//!
//! To readers nothing changes, so no epoch does: the records stay what they were, in another place. That is why a member
//! that was away cannot tell by epochs what was folded meanwhile, and gets keys with cells whole.

use std::collections::BTreeSet;

use types::{ContId, Epoch, Result, Unit, limits};
use wire::cell::{CELL_NAME_BYTES, Dkeys, Stripe, StripeOf};
use wire::obj::{Cond, Op};

use crate::Lsn;
use crate::index::extent::{ArrayValue, Place};
use crate::index::fragment::ArrayName;
use crate::index::past::PastValue;
use crate::index::slot::AkeyRef;
use crate::index::versions::Versions;
use crate::payload::Payload;
use crate::record::RecordDf;
use crate::shard::PoolShard;

/// A stripe that can be folded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foldable {
    pub akey: Vec<u8>,
    /// Its name.
    pub stripe: Stripe,
    /// Size of a record.
    pub record_bytes: u32,
    /// Records of the stripe.
    pub count: u64,
}

impl ArrayValue {
    /// Stripes that can be folded, with their versions.
    fn stripes_to_fold(&self, count: u64, versions: &Versions) -> Vec<(u64, Epoch)> {
        let mut found = Vec::new();
        let mut next = 0;
        for (index, extent) in self.iter() {
            if matches!(extent.place, Place::Zero | Place::Coded(_)) {
                continue;
            }
            let last = (index + extent.count - 1) / count;
            for number in next.max(index / count)..=last {
                let first = number * count;
                if let Some((version, false)) = self.foldable(first, count, versions) {
                    found.push((first, version));
                }
            }
            next = next.max(last + 1);
        }
        found
    }
}

impl PoolShard {
    /// Notes a dkey under which something may be folded.
    pub fn note_fold_of(&self, cont: ContId, unit: Unit, dkey: &[u8]) {
        self.fold_notes.note(cont, unit, dkey);
    }

    /// True when something is noted.
    pub fn has_fold_notes(&self) -> bool {
        !self.fold_notes.is_empty()
    }

    /// Takes all that is noted: containers, units and dkeys.
    pub fn take_fold_notes(&self) -> BTreeSet<(ContId, Unit, Vec<u8>)> {
        self.fold_notes.take()
    }

    /// Notes dkeys of a unit under which stripes may have lost their names.
    pub fn note_unnamed(&self, cont: ContId, unit: Unit, dkeys: Dkeys) {
        self.unnamed.note(cont, unit, dkeys);
    }

    /// True when stripes have lost their names, as far as it was noted.
    pub fn has_unnamed(&self) -> bool {
        !self.unnamed.is_empty()
    }

    /// Takes all that is noted of that.
    pub fn take_unnamed(&self) -> Vec<(ContId, Unit, Dkeys)> {
        self.unnamed.take()
    }

    /// Stripes of `cells` data cells under a dkey that can be folded: written whole, and not folded since.
    ///
    /// `NonExist` for an unknown container, `Busy` while that is rolled back, `Inval` for an impossible key.
    pub async fn stripes_to_fold(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        cells: u8,
        cell_bytes: u32,
    ) -> Result<Vec<Foldable>> {
        crate::keys::check_dkey(unit, dkey)?;
        self.require_open(cont)?;
        self.ready(cont, &[], &[touched(unit, dkey)]).await?;
        let view = self.view(cont)?;
        let versions = &view.cont.versions;
        let Some(found) = view.cont.object(unit).and_then(|object| object.dkey(dkey)) else {
            return Ok(Vec::new());
        };
        let stripe_bytes = cells as u64 * cell_bytes as u64;
        let mut out = Vec::new();
        for (akey, value) in found.akeys() {
            let AkeyRef::Array(array) = value else { continue };
            let record_bytes = array.record_bytes;
            let fits = cell_bytes.is_multiple_of(record_bytes)
                && akey.len() + CELL_NAME_BYTES <= limits::KEY_BYTES_MAX;
            if !fits {
                continue;
            }
            let count = stripe_bytes / record_bytes as u64;
            let stripes = array.stripes_to_fold(count, versions).into_iter();
            out.extend(stripes.map(|(first, version)| Foldable {
                akey: akey.to_vec(),
                stripe: Stripe { first, version, cell_bytes },
                record_bytes,
                count,
            }));
        }
        Ok(out)
    }

    /// The name that a stripe's records would be given now; `None` when they cannot be folded. What it touches must be in
    /// memory ([`PoolShard::ready`], for punching the akey).
    pub fn fold_version(
        &self,
        of: (ContId, Unit),
        dkey: &[u8],
        akey: &[u8],
        stripe: &Stripe,
        count: u64,
    ) -> Option<Epoch> {
        let name = ArrayName { cont: of.0, unit: of.1, dkey: dkey.into(), akey: akey.into() };
        let view = self.view(of.0).ok()?;
        let found = view.cont.array(&name)?.foldable(stripe.first, count, &view.cont.versions)?;
        Some(found.0)
    }

    /// Lets a stripe's records give way to its name; `None`, and no effect, when not all of them are there. Its cells must be
    /// kept, and be of these records; on members, newest epochs may differ, for they join small extents on their own. What it
    /// touches must be in memory ([`PoolShard::ready`], for punching the akey).
    ///
    /// `Io` when the log has failed, `NonExist` for an unknown container, `Busy` while that is rolled back.
    pub fn fold(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        akey: &[u8],
        stripe: Stripe,
        count: u64,
    ) -> Result<Option<Lsn>> {
        self.writable()?;
        self.require_not_rolled(cont)?;
        if self.fold_version((cont, unit), dkey, akey, &stripe, count).is_none() {
            return Ok(None);
        }
        let name = ArrayName { cont, unit, dkey: dkey.into(), akey: akey.into() };
        let (lsn, ()) = self.change(|state, effects| {
            state.index.fold(&name, stripe, count, effects);
            if effects.unnames {
                // Of a stripe that was partly written anew.
                self.note_unnamed(cont, unit, Dkeys::These(vec![dkey.to_vec().into()]));
            }
            let lsn = self.log_record(&RecordDf::Fold { cont, unit, dkey, akey, stripe, count });
            Ok((lsn, ()))
        })?;
        Ok(Some(lsn))
    }

    /// Makes the sums of a cell's bytes, which are in the payload; before it is written. `NonExist` for an unknown container.
    pub fn sum_cell(&self, cont: ContId, payload: &mut Payload) -> Result<()> {
        payload.make_sums(self.view(cont)?.cont.sums.kind);
        Ok(())
    }

    /// Akeys under a dkey of a unit of cells, with the epochs of their last changes.
    ///
    /// Errors: as for [`PoolShard::stripes_to_fold`].
    pub async fn cells_under(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
    ) -> Result<Vec<(Vec<u8>, Epoch)>> {
        crate::keys::check_dkey(unit, dkey)?;
        self.require_open(cont)?;
        self.ready(cont, &[], &[touched(unit, dkey)]).await?;
        let view = self.view(cont)?;
        let found = view.cont.object(unit).and_then(|object| object.dkey(dkey));
        let akeys = found.iter().flat_map(|dkey| dkey.akeys());
        Ok(akeys.map(|(akey, value)| (akey.to_vec(), value.epoch())).collect())
    }

    /// When a unit's akey was changed last; `None` also for what is not in memory.
    pub fn epoch_if_here(
        &self,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        akey: &[u8],
    ) -> Option<Epoch> {
        let view = self.view(cont).ok()?;
        let found = view.cont.object(unit)?.dkey(dkey)?;
        found.akey(akey).map(|value| value.epoch())
    }

    /// The stripes that array values of a dkey name, now and in every snapshot. Ascending, each once.
    ///
    /// Errors: as for [`PoolShard::dkey_image`], but `Csum`.
    pub async fn stripes_of(&self, cont: ContId, unit: Unit, dkey: &[u8]) -> Result<Vec<StripeOf>> {
        crate::keys::check_dkey(unit, dkey)?;
        let contents = self.contents_of(cont, unit, dkey).await?;
        let named = contents.values.iter().filter_map(|kept| match &kept.value {
            PastValue::Extent { place: Place::Coded(stripe), .. } => Some(StripeOf {
                dkey: dkey.to_vec().into(),
                akey: kept.akey.to_vec().into(),
                stripe: *stripe,
            }),
            _ => None,
        });
        let mut named: Vec<StripeOf> = named.collect();
        named.sort_unstable();
        named.dedup();
        Ok(named)
    }
}

/// What names a dkey to those who look for what is not in memory.
fn touched(unit: Unit, dkey: &[u8]) -> Op<'_> {
    Op::PunchDkeys { unit, cond: Cond::NONE, dkeys: vec![serde_bytes::Bytes::new(dkey)] }
}
