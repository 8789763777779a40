//! Parts of transactions that a shard holds until they are decided, and what it has decided itself.

use std::rc::Rc;

use smallvec::SmallVec;
use types::{ContId, Epoch, Error, Result, Unit};
use wire::HeldBatch;
use wire::obj::{Op, ReadCheck, TxId, TxOutcome};
use wire::walk::walk;

use crate::contents::{Decision, pieces_df, sums_df};
use crate::payload::Payload;
use crate::record::{ChangeDf, OrphanChange, RecordDf};
use crate::retry::Origin;
use crate::shard::PoolShard;
use crate::summary::Summary;
use crate::{Lsn, changes};

impl PoolShard {
    /// True when a check or op touches what a prepared transaction has locked.
    pub fn conflicts(&self, cont: ContId, checks: &[ReadCheck<'_>], ops: &[Op<'_>]) -> bool {
        let state = self.state.borrow();
        if state.locks.is_empty() {
            return false;
        }
        state.is_held_by(&state.locks, cont, &Summary::of(checks, ops))
    }

    /// The same for what a summary is known of.
    pub fn is_held(&self, cont: ContId, batch: &Summary) -> bool {
        let state = self.state.borrow();
        !state.locks.is_empty() && state.is_held_by(&state.locks, cont, batch)
    }

    /// A prepared transaction that has locked something of what a batch touches: one of those whose decisions have to come first.
    pub fn holder_of(&self, cont: ContId, batch: &Summary) -> Option<TxId> {
        if !self.is_held(cont, batch) {
            return None;
        }
        self.state.borrow().holder_of(cont, batch)
    }

    /// Holds an encoded [`Batch`](wire::obj::Batch) until [`PoolShard::decide`], with its payload, and locks what it
    /// touches. To be called after [`PoolShard::check`] and with no [`PoolShard::conflicts`]. A second
    /// call for the same transaction changes nothing. `RemoveLink` and `PunchUnlessOpen` are not
    /// applied at the decision: give the batch with the punches they amount to.
    pub fn prepare(
        &self,
        tx: TxId,
        coordinator: Unit,
        cont: ContId,
        batch: Vec<u8>,
        payload: Payload,
    ) -> Result<Lsn> {
        self.writable()?;
        self.require_cont(cont)?;
        self.require_not_rolled(cont)?;
        let batch = HeldBatch::of_batch(batch)?;
        self.check_payload(cont, &payload)?;
        {
            let ops = &batch.batch().ops;
            let mut changes: SmallVec<[ChangeDf<'_>; 1]> = SmallVec::new();
            changes::walk(ops, payload.pieces(), &mut |change| changes.push(change))?;
            if self.state.borrow().prepared.contains_key(&tx) {
                return Ok(self.last_lsn());
            }
            changes.iter().for_each(|change| self.note_change(cont, change));
        }
        let (pieces, sums) = payload.commit();
        let (lsn, ()) = self.change(|state, _| {
            self.fill_sums(&pieces, &sums);
            let lsn = self.log_record(&RecordDf::Prepare {
                tx,
                coordinator,
                cont,
                wire_version: wire::WIRE_VERSION,
                batch: batch.bytes(),
                pieces: pieces_df(&pieces),
                sums: sums_df(&pieces, &sums),
            });
            state.prepare(tx, coordinator, cont, batch, pieces);
            Ok((lsn, ()))
        })?;
        Ok(lsn)
    }

    /// Applies or drops a held part and unlocks; no effect when nothing is held (any more).
    /// `Inval` for `Pending`.
    pub fn decide(
        &self,
        tx: TxId,
        outcome: TxOutcome,
        origin: Option<Origin<'_>>,
        orphans: &[OrphanChange],
    ) -> Result<Lsn> {
        self.writable()?;
        if outcome == TxOutcome::Pending {
            return Err(Error::inval("a transaction cannot be decided to be pending"));
        }
        if !self.state.borrow().prepared.contains_key(&tx) {
            return Ok(self.last_lsn());
        }
        if let Some(part) = self.state.borrow().prepared.get(&tx).filter(|part| part.has_code) {
            let ops = walk(&part.batch.batch().ops);
            ops.for_each(|op| self.fold_notes.note_op(part.cont, op));
        }
        let part = self
            .state
            .borrow()
            .prepared
            .get(&tx)
            .filter(|part| part.has_code)
            .map(|part| (part.cont, part.batch.clone()));
        let origin = origin.map(Origin::durable);
        let (lsn, ()) = self.change(|state, effects| {
            state.decide(tx, outcome, origin, orphans, effects)?;
            if let Some((cont, batch)) = part.filter(|_| effects.unnames) {
                walk(&batch.batch().ops).for_each(|op| self.unnamed.note_op(cont, op));
            }
            let orphans = orphans.to_vec();
            Ok((self.log_record(&RecordDf::Decide { tx, outcome, origin, orphans }), ()))
        })?;
        self.sweep_in_background();
        Ok(lsn)
    }

    /// Transactions held, with the units whose groups coordinate them.
    pub fn prepared(&self) -> Vec<(TxId, Unit)> {
        self.state.borrow().prepared.iter().map(|(&tx, part)| (tx, part.coordinator)).collect()
    }

    /// True while a part of the transaction waits for its decision.
    pub fn is_prepared(&self, tx: TxId) -> bool {
        self.state.borrow().prepared.contains_key(&tx)
    }

    /// Container and batch of a held transaction.
    pub fn prepared_batch(&self, tx: TxId) -> Option<(ContId, Rc<HeldBatch>)> {
        self.state.borrow().prepared_batch(tx)
    }

    /// A coordinator's commit point: once durable, the transaction is committed.
    pub fn log_decision(
        &self,
        tx: TxId,
        epoch: Epoch,
        participants: &[Unit],
        origin: Option<Origin<'_>>,
    ) -> Result<Lsn> {
        self.writable()?;
        let origin = origin.map(Origin::durable);
        let (lsn, ()) = self.change(|state, _| {
            let answers = origin.map(|origin| origin.tx);
            // One that is repeated comes without it.
            let answers = answers.or(state.decisions.get(&tx).and_then(|known| known.answers));
            let decision = Decision { epoch, participants: participants.to_vec(), answers };
            state.decisions.insert(tx, decision);
            state.saw_epoch(epoch);
            if let Some(origin) = origin {
                state.retry.remember(origin);
            }
            let participants = participants.to_vec();
            let record = RecordDf::Decision { tx, epoch, participants, origin };
            Ok((self.log_record(&record), ()))
        })?;
        Ok(lsn)
    }

    /// The decision on a transaction, while it is kept.
    pub fn decision(&self, tx: TxId) -> Option<(Epoch, Vec<Unit>)> {
        let state = self.state.borrow();
        state.decisions.get(&tx).map(|known| (known.epoch, known.participants.clone()))
    }

    /// The request that a decision answers, as far as is known.
    pub fn answered_by(&self, tx: TxId) -> Option<TxId> {
        self.state.borrow().decisions.get(&tx)?.answers
    }

    /// All decisions kept: transaction, epoch, participants.
    pub fn decisions(&self) -> Vec<(TxId, Epoch, Vec<Unit>)> {
        let state = self.state.borrow();
        let decisions = state.decisions.iter();
        decisions.map(|(&tx, known)| (tx, known.epoch, known.participants.clone())).collect()
    }

    /// Nobody was told of the decision, and nobody will be: what was answered goes with it.
    pub fn undo_decision(&self, tx: TxId) -> Result<Lsn> {
        self.writable()?;
        let (lsn, ()) = self.change(|state, _| {
            if let Some(answers) = state.decisions.remove(&tx).and_then(|known| known.answers) {
                state.retry.forget_reply(answers);
                self.log_record(&RecordDf::ForgetReply { tx: answers });
            }
            Ok((self.log_record(&RecordDf::ForgetDecision { tx }), ()))
        })?;
        Ok(lsn)
    }

    /// All participants know the decision.
    pub fn forget_decision(&self, tx: TxId) -> Result<Lsn> {
        self.writable()?;
        let (lsn, ()) = self.change(|state, _| {
            state.decisions.remove(&tx);
            Ok((self.log_record(&RecordDf::ForgetDecision { tx }), ()))
        })?;
        Ok(lsn)
    }

    /// Parts of transactions on the container that wait for their decisions.
    pub fn prepared_of(&self, cont: ContId) -> Vec<TxId> {
        let state = self.state.borrow();
        let of_cont = state.prepared.iter().filter(|(_, part)| part.cont == cont);
        of_cont.map(|(tx, _)| *tx).collect()
    }
}
