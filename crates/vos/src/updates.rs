//! Updates of a shard: checked, staged and applied, each an index change and a log record in one step; and what is
//! noted of each beside it.

use smallvec::SmallVec;
use types::{ContId, Epoch, Error, Result, Unit};
use wire::obj::{Op, ReadCheck, Sums};

use crate::contents::sums_df;
use crate::payload::{BlockSums, Payload, Piece};
use crate::record::{self, ApplyDf, ChangeDf, OrphanChange, RecordDf};
use crate::retry::Origin;
use crate::shard::PoolShard;
use crate::summary::Summary;
use crate::sums::SumPolicy;
use crate::{Lsn, changes};

impl PoolShard {
    /// Makes a container known; no effect when it is. Its data have no sums.
    pub fn create_cont(&self, cont: ContId) -> Result<Lsn> {
        self.create_summed_cont(cont, SumPolicy::OFF)
    }

    /// Makes a container known whose data have sums; no effect when it is known.
    pub fn create_summed_cont(&self, cont: ContId, sums: SumPolicy) -> Result<Lsn> {
        self.writable()?;
        let (lsn, ()) = self.change(|state, _| {
            state.create_cont(cont, sums);
            Ok((self.log_record(&RecordDf::CreateCont { cont, sums }), ()))
        })?;
        Ok(lsn)
    }

    /// Removes a container and all it holds; no effect when it is not there. Its space comes
    /// back in the background, in slices.
    pub fn destroy_cont(&self, cont: ContId) -> Result<Lsn> {
        self.writable()?;
        let (lsn, ()) = self.change(|state, _| {
            state.destroy_cont(cont);
            Ok((self.log_record(&RecordDf::DestroyCont { cont }), ()))
        })?;
        Ok(lsn)
    }

    /// Checks sizes, keys and limits of `ops` and reserves all the space their updates need.
    /// `NoSpace` when a tier is full; punches need none and always pass.
    pub fn stage(&self, ops: &[Op<'_>]) -> Result<Payload> {
        self.stage_for(&Summary::of(&[], ops))
    }

    /// The same for operations that a summary is known of.
    pub fn stage_for(&self, batch: &Summary) -> Result<Payload> {
        match batch.writes {
            true => self.writable()?,
            // What was there before its log failed a shard shows all the same.
            false => self.still_open()?,
        }
        self.core.activity.note();
        let needs = batch.needs()?;
        self.check_room(batch.takes_room)?;
        Payload::reserve(&self.core, self.state.borrow().index.scm_bytes, needs)
    }

    /// Takes the sums that came with an update's bulk, which has been received into the payload;
    /// before it is written.
    ///
    /// `Inval` when they are not those the container wants; `Csum` when the bulk was damaged on its
    /// way, as far as that is looked at here (see [`SumPolicy::verify`]).
    pub fn take_sums(&self, cont: ContId, sums: &Sums<'_>, payload: &mut Payload) -> Result<()> {
        self.require_not_rolled(cont)?;
        payload.take_sums(self.look(cont)?.sums, sums)
    }

    /// Evaluates read checks, conditions and kinds of values against the present state.
    ///
    /// `Moved` for a dkey that is to be looked for in another unit; `TxRestart` for a read check; `Exist`, `NonExist`, `NotEmpty` for conditions; `Inval` for a
    /// value of another kind or record size. Nothing is changed.
    pub fn check(&self, cont: ContId, checks: &[ReadCheck<'_>], ops: &[Op<'_>]) -> Result<()> {
        self.view(cont)?.check_each(checks, ops, |_| Ok(()))
    }

    /// Applies the updates and punches among `ops` at `epoch`, with one log record. To be called
    /// right after [`PoolShard::check`], without an await between, or for what a leader has checked. Other ops are ignored.
    ///
    /// `Inval` when the payload is not that of the ops or was not written; `Io` once the log has
    /// failed. Nothing is changed then.
    pub fn apply(
        &self,
        cont: ContId,
        epoch: Epoch,
        ops: &[Op<'_>],
        payload: Payload,
        origin: Option<Origin<'_>>,
        orphans: &[OrphanChange],
    ) -> Result<Lsn> {
        self.writable()?;
        self.require_cont(cont)?;
        self.require_not_rolled(cont)?;
        self.check_payload(cont, &payload)?;
        let (pieces, sums) = (payload.pieces(), &payload.sums);
        let mut changes: SmallVec<[ChangeDf<'_>; 1]> = SmallVec::new();
        changes::walk(ops, pieces, &mut |change| changes.push(change))?;
        changes.iter().for_each(|change| self.note_change(cont, change));
        payload.hand_over();
        let origin = origin.map(Origin::durable);
        let (lsn, ()) = self.change(|state, effects| {
            for change in &changes {
                state.fragments.note(cont, change);
                state.index.apply(cont, epoch, change, effects);
                if std::mem::take(&mut effects.unnames) {
                    self.unnamed.note_change(cont, change);
                }
            }
            let lsn = self.log(|out| {
                let (changes, sums) = (&changes[..], sums_df(pieces, sums));
                let apply = ApplyDf { cont, epoch, changes, origin, orphans, sums };
                record::encode_apply_into(&apply, out);
            });
            state.saw_epoch(epoch);
            state.note(cont, origin, orphans);
            self.fill_sums(pieces, sums);
            Ok((lsn, ()))
        })?;
        self.note_changes(lsn, cont, &changes);
        // A big object that was punched.
        if self.is_unswept(cont) {
            self.sweep_in_background();
        }
        Ok(lsn)
    }

    /// Blocks that pieces fill have these sums from now on; in the step that logs them.
    pub(crate) fn fill_sums(&self, pieces: &[Piece], sums: &BlockSums) {
        let table = &mut self.core.space.borrow_mut().sums;
        sums.each_run(pieces, |first, run| table.set(sums.kind, first, run));
    }

    pub(crate) fn check_payload(&self, cont: ContId, payload: &Payload) -> Result<()> {
        if payload.is_unwritten() {
            return Err(Error::inval(
                "the payload must be written to the device before it is applied",
            ));
        }
        if payload.lacks_sums(self.look(cont)?.sums) {
            return Err(Error::inval(
                "the update's data carry no checksums, but the container's do",
            ));
        }
        Ok(())
    }

    /// Notes that a unit is of a group of several members, if it is, before what changes it is logged.
    pub(crate) fn note_copies(&self, unit: Unit) {
        if !unit.object.is_alone() && !self.holds_copies() {
            self.log_record(&RecordDf::HoldsCopies);
            self.state.borrow_mut().holds_copies = true;
        }
    }

    /// Notes what follows from a change beside it, before it is logged: that its unit is of a group of several members, and what may be
    /// folded.
    pub(crate) fn note_change(&self, cont: ContId, change: &ChangeDf<'_>) {
        let (unit, _) = change.place();
        if unit.object.is_alone() {
            return;
        }
        self.note_copies(unit);
        self.fold_notes.note_change(cont, change);
    }
}
