//! Everything a shard knows beside its data area and log, and the replay of records into it.
//!
//! Live operations and replay go through the same methods, so the state after a restart is the
//! state before it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use smallvec::SmallVec;
use types::{ClientId, Code, ContId, Epoch, Error, HostProcess, Result, Unit};
use wire::HeldBatch;
use wire::cell::Stripe;
use wire::obj::{Batch, Op, TxId, TxOutcome};
use wire::walk::walk;

use crate::Lsn;
use crate::blocks::Run;
use crate::change_df::{check_change, each_fresh_run};
use crate::changes;
use crate::fragments::Fragments;
use crate::index::extent::Place;
use crate::index::fragment::ArrayName;
use crate::index::install::Timeline;
use crate::index::lost::LostPlace;
use crate::index::past::{Facts, SweepAt};
use crate::index::versions::Versions;
use crate::index::{Effects, Index, new_value};
use crate::keys::check_keys;
use crate::locks::{self, Claim, LockTable};
use crate::payload::{BlockSums, Piece};
use crate::record::{
    self, BlockSumsDf, InstallDf, OriginDf, OrphanChange, PieceDf, RecordDf, RunDf,
};
use crate::retry::RetryWindow;
use crate::scrub_progress::ScrubProgress;
use crate::space::Space;
use crate::summary::Summary;
use crate::sums::{SumPolicy, SumTable};

/// A held part of a transaction.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub coordinator: Unit,
    pub cont: ContId,
    /// What is to take effect, with its conditions.
    pub batch: Rc<HeldBatch>,
    pub pieces: SmallVec<[Piece; 1]>,
    /// It is about an object of a class with an erasure code.
    pub has_code: bool,
    /// Objects that are freed with it unless they are open, and those that are so no more.
    freed: Vec<OrphanChange>,
    claims: Vec<Claim>,
}

/// What is known of a client that holds objects open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// The record that notes it.
    pub lsn: Lsn,
    pub process: Option<HostProcess>,
    /// See [`crate::Opener::awaited_s`].
    pub awaited_s: u32,
}

/// A coordinator's decision to commit.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub epoch: Epoch,
    pub participants: Vec<Unit>,
    /// The request that it answers.
    pub answers: Option<TxId>,
}

#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub index: Index,
    pub retry: RetryWindow,
    pub locks: LockTable,
    pub prepared: BTreeMap<TxId, Prepared>,
    pub decisions: BTreeMap<TxId, Decision>,
    pub orphans: BTreeSet<(ContId, Unit)>,
    /// Clients that hold objects open.
    pub openers: BTreeMap<ClientId, Noted>,
    pub last_epoch: Epoch,
    /// There is, or was, a unit of a group of several members.
    pub holds_copies: bool,
    /// See [`crate::PoolShard::moves_singles`].
    pub moves_singles: bool,
    /// See [`crate::PoolShard::lacks_since`].
    pub lacks_since: Option<Epoch>,
    /// See [`crate::PoolShard::note_map`].
    pub map_version: u32,
    /// Arrays to be looked at by aggregation.
    pub fragments: Fragments,
    /// Where sweeps of objects that need several slices go on; from the start after a restart.
    pub sweeping: BTreeMap<(ContId, Unit), SweepAt>,
    /// Where the scrubber is.
    pub scrub: ScrubProgress,
    /// Sums as replay finds them; the allocator has them from then on.
    pub replayed_sums: SumTable,
}

/// What becomes of an object with an operation of a part, when it takes effect.
fn freed_by(op: &Op<'_>) -> Option<OrphanChange> {
    match op {
        Op::PunchUnlessOpen { unit } => Some(OrphanChange::Add(*unit)),
        Op::Adopt { unit } => Some(OrphanChange::Remove(*unit)),
        Op::Update { .. }
        | Op::Fetch { .. }
        | Op::PunchObj { .. }
        | Op::PunchDkeys { .. }
        | Op::PunchDkeysFrom { .. }
        | Op::PunchAkeys { .. }
        | Op::List { .. }
        | Op::Query { .. }
        | Op::Stat { .. }
        | Op::FetchLink { .. }
        | Op::RemoveLink { .. }
        | Op::Open { .. }
        | Op::Append { .. }
        | Op::ListRuns { .. }
        | Op::FreeClosed { .. } => None,
    }
}

impl Contents {
    pub(crate) fn create_cont(&mut self, cont: ContId, sums: SumPolicy) {
        self.index.create_cont(cont, sums);
    }

    /// Makes a container unreachable at once; [`Index::reclaim`] gives its space back.
    pub(crate) fn destroy_cont(&mut self, cont: ContId) {
        self.index.destroy_cont(cont);
        self.sweeping.retain(|(owner, _), _| *owner != cont);
        self.forget_orphans(cont);
    }

    /// A client holds objects open since this record, or none any more.
    pub(crate) fn note_opener(&mut self, client: ClientId, holds: bool, lsn: Lsn) {
        match holds {
            true => self.openers.insert(client, Noted { lsn, process: None, awaited_s: 0 }),
            false => self.openers.remove(&client),
        };
    }

    /// More of a client that holds objects open.
    pub(crate) fn trace_opener(
        &mut self,
        client: ClientId,
        process: Option<HostProcess>,
        awaited_s: u32,
    ) {
        if let Some(noted) = self.openers.get_mut(&client) {
            (noted.process, noted.awaited_s) = (process, awaited_s);
        }
    }

    pub(crate) fn forget_orphans(&mut self, cont: ContId) {
        self.orphans.retain(|(owner, _)| *owner != cont);
    }

    /// Takes the versions of a container; `unswept`: there may be more than they see.
    pub(crate) fn set_versions(&mut self, cont: ContId, versions: Versions, unswept: bool) {
        if let Some(last) = versions.snapshots.last() {
            self.saw_epoch(*last);
        }
        if let Some(container) = self.index.conts.get_mut(&cont) {
            container.set_versions(versions);
            if unswept {
                container.sweep_from = Some(Unit::NIL);
            }
        }
    }

    pub(crate) fn saw_epoch(&mut self, epoch: Epoch) {
        self.last_epoch = self.last_epoch.max(epoch);
    }

    pub(crate) fn note(
        &mut self,
        cont: ContId,
        origin: Option<OriginDf<'_>>,
        orphans: &[OrphanChange],
    ) {
        if let Some(origin) = origin {
            self.retry.remember(origin);
        }
        for change in orphans {
            match *change {
                OrphanChange::Add(unit) => self.orphans.insert((cont, unit)),
                OrphanChange::Remove(unit) => self.orphans.remove(&(cont, unit)),
            };
        }
    }

    /// Holds a part and locks what it touches.
    pub(crate) fn prepare(
        &mut self,
        tx: TxId,
        coordinator: Unit,
        cont: ContId,
        batch: HeldBatch,
        pieces: SmallVec<[Piece; 1]>,
    ) {
        let Batch { checks, ops, .. } = batch.batch();
        let mut claims: Vec<Claim> = checks.iter().map(locks::claim_of_check).collect();
        let (mut freed, mut has_code) = (Vec::new(), false);
        for op in walk(ops) {
            locks::claims_of_op(op, &op.footprint(), &mut |claim| claims.push(claim));
            has_code |= op.oid().cells().is_some();
            freed.extend(freed_by(op));
        }
        for claim in &claims {
            self.locks.lock(cont, claim);
        }
        let batch = Rc::new(batch);
        let part = Prepared { coordinator, cont, batch, pieces, has_code, freed, claims };
        self.prepared.insert(tx, part);
    }

    /// Container and batch of a held transaction.
    pub(crate) fn prepared_batch(&self, tx: TxId) -> Option<(ContId, Rc<HeldBatch>)> {
        self.prepared.get(&tx).map(|part| (part.cont, part.batch.clone()))
    }

    /// True when these locks keep a batch from being carried out.
    pub(crate) fn is_held_by(&self, locks: &LockTable, cont: ContId, batch: &Summary) -> bool {
        batch.claims.iter().any(|claim| {
            // An object that is about to be made is neither there nor absent.
            let is_unborn = || {
                claim.wants_existence()
                    && locks.writes_dkeys(cont, claim.unit)
                    && self.index.conts.get(&cont).and_then(|all| all.object(claim.unit)).is_none()
            };
            locks.conflicts(cont, claim) || is_unborn()
        })
    }

    /// The first prepared transaction whose locks do so.
    pub(crate) fn holder_of(&self, cont: ContId, batch: &Summary) -> Option<TxId> {
        let holds = |part: &Prepared| {
            let mut locks = LockTable::default();
            part.claims.iter().for_each(|claim| locks.lock(part.cont, claim));
            self.is_held_by(&locks, cont, batch)
        };
        self.prepared.iter().find(|(_, part)| holds(part)).map(|(tx, _)| *tx)
    }

    /// Applies or drops a held part; no effect when there is none. Objects that its ops free
    /// unless they are open become orphans.
    pub(crate) fn decide(
        &mut self,
        tx: TxId,
        outcome: TxOutcome,
        origin: Option<OriginDf<'_>>,
        orphans: &[OrphanChange],
        effects: &mut Effects,
    ) -> Result<()> {
        let Some(part) = self.prepared.get(&tx) else { return Ok(()) };
        let cont = part.cont;
        match outcome {
            TxOutcome::Committed(epoch) => {
                let (index, fragments) = (&mut self.index, &mut self.fragments);
                let ops = &part.batch.batch().ops;
                changes::walk(ops, &part.pieces, &mut |change| {
                    fragments.note(cont, &change);
                    index.apply(cont, epoch, &change, effects);
                })?;
                let freed = part.freed.clone();
                self.saw_epoch(epoch);
                self.note(cont, None, &freed);
                self.note(cont, origin, orphans);
            }
            TxOutcome::Aborted => {
                for piece in &part.pieces {
                    if let Piece::Run { run, .. } = piece {
                        effects.release(*run);
                    }
                }
            }
            TxOutcome::Pending => {
                return Err(Error::inval("a transaction cannot be decided to be pending"));
            }
        }
        if let Some(part) = self.prepared.remove(&tx) {
            for claim in &part.claims {
                self.locks.unlock(cont, claim);
            }
        }
        Ok(())
    }

    /// Replays one record; what it touches must be in memory. `space` follows.
    pub(crate) fn replay(&mut self, record: RecordDf<'_>, space: &mut Space) -> Result<()> {
        let mut effects = Effects::default();
        match record {
            RecordDf::CreateCont { cont, sums } => self.create_cont(cont, sums),
            RecordDf::DestroyCont { cont } => self.destroy_cont(cont),
            RecordDf::Apply { cont, epoch, changes, origin, orphans, sums } => {
                changes.iter().try_for_each(check_change)?;
                if self.index.conts.contains_key(&cont) {
                    let mut kept =
                        changes.iter().filter(|change| !self.index.is_lost(cont, change));
                    kept.try_for_each(|change| claim_change(change, space))?;
                }
                for change in &changes {
                    each_fresh_run(change, |run| self.replayed_sums.clear_run(run));
                }
                self.replay_sums(&sums)?;
                for change in &changes {
                    self.fragments.note(cont, change);
                    self.index.apply(cont, epoch, change, &mut effects);
                }
                self.saw_epoch(epoch);
                self.note(cont, origin, &orphans);
            }
            RecordDf::Prepare { tx, coordinator, cont, wire_version, batch, pieces, sums } => {
                if !self.prepared.contains_key(&tx) {
                    let pieces = pieces_from(&pieces);
                    for piece in &pieces {
                        if let Piece::Run { run, .. } = piece {
                            space.claim(*run)?;
                            self.replayed_sums.clear_run(*run);
                        }
                    }
                    self.replay_sums(&sums)?;
                    self.hold(tx, coordinator, cont, wire_version, batch, pieces)?;
                }
            }
            RecordDf::Decide { tx, outcome, origin, orphans } => {
                if let Some(part) = self.prepared.get(&tx) {
                    let ops = &part.batch.batch().ops;
                    Summary::of(&[], ops).needs()?;
                    changes::check_pieces(ops, &part.pieces)?;
                }
                self.decide(tx, outcome, origin, &orphans, &mut effects)?;
            }
            RecordDf::Decision { tx, epoch, participants, origin } => {
                self.saw_epoch(epoch);
                let answers = origin.map(|origin| origin.tx);
                let answers = answers.or(self.decisions.get(&tx).and_then(|known| known.answers));
                if let Some(origin) = origin {
                    self.retry.remember(origin);
                }
                self.decisions.insert(tx, Decision { epoch, participants, answers });
            }
            RecordDf::ForgetDecision { tx } => {
                self.decisions.remove(&tx);
            }
            RecordDf::Reply { origin } => self.retry.remember(origin),
            RecordDf::ForgetReply { tx } => self.retry.forget_reply(tx),
            RecordDf::Orphan { cont, unit } => {
                self.orphans.insert((cont, unit));
            }
            RecordDf::LastEpoch { epoch } => self.saw_epoch(epoch),
            RecordDf::Part(_) => {
                return Err(Error::new(Code::Csum, "log record: it belongs in a page"));
            }
            RecordDf::Versions { cont, versions, unswept } => {
                self.set_versions(cont, Versions::from_durable(versions)?, unswept);
            }
            RecordDf::Sweep { cont, unit, at, count } => {
                let at = SweepAt::from_durable(&at);
                if let Some(after) = &at.after {
                    check_keys(unit, after, b"")?;
                }
                self.index.sweep(cont, unit, &at, count as usize, &mut effects);
            }
            RecordDf::RollBack { cont, unit, to, epoch, after, count } => {
                if let Some(after) = after {
                    check_keys(unit, after, b"")?;
                }
                let count = count as usize;
                self.index.roll_back(cont, unit, (to, epoch), after, count, &mut effects);
                self.saw_epoch(epoch);
            }
            RecordDf::ForgetOrphans { cont } => self.forget_orphans(cont),
            RecordDf::Join { cont, unit, dkey, akey, index, count, at, copied } => {
                check_keys(unit, dkey, akey)?;
                let end = at.checked_add(count.saturating_mul(u32::MAX as u64));
                if index.checked_add(count).is_none() || end.is_none() {
                    return Err(Error::new(Code::Csum, "log record: impossible range of records"));
                }
                if let Some(copied) = copied {
                    if at.checked_add(copied.bytes).is_none() {
                        return Err(Error::new(Code::Csum, "log record: impossible run"));
                    }
                    self.replayed_sums.clear_run(Run { at, bytes: copied.bytes });
                    self.replay_sums(copied.sums.as_slice())?;
                }
                let name = ArrayName { cont, unit, dkey: dkey.into(), akey: akey.into() };
                let copied = copied.map(|copied| copied.bytes);
                self.replay_join(&name, (index, count), at, copied, &mut effects, space)?;
            }
            RecordDf::Fold { cont, unit, dkey, akey, stripe, count } => {
                check_keys(unit, dkey, akey)?;
                let name = ArrayName { cont, unit, dkey: dkey.into(), akey: akey.into() };
                self.replay_fold(&name, stripe, count, &mut effects)?;
            }
            RecordDf::SumRegion { region } => {
                if !self.replayed_sums.restore(&region) {
                    return Err(Error::new(Code::Csum, "log record: impossible sums of a region"));
                }
            }
            RecordDf::BadBlocks { blocks } => {
                for (block, mark) in blocks {
                    self.replayed_sums.mark_bad(block, mark);
                }
            }
            RecordDf::Scrub { progress } => self.scrub = progress,
            RecordDf::Opener { client, holds } => self.note_opener(client, holds, Lsn(0)),
            RecordDf::OpenerTrace { client, process, awaited_s } => {
                self.trace_opener(client, process, awaited_s);
            }
            RecordDf::GiveUp { cont, place } => {
                self.index.give_up(cont, LostPlace::from_durable(&place), &mut effects);
            }
            RecordDf::Lost { cont, place } => {
                self.index.note_lost(cont, LostPlace::from_durable(&place));
            }
            RecordDf::CloseLost => self.index.close_lost(),
            RecordDf::CopiesSeen { bits } => self.index.copies_seen = bits,
            RecordDf::Reclaim { runs } => {
                runs.iter().for_each(|&(first, count)| space.release(first, count));
            }
            RecordDf::HoldsCopies => self.holds_copies = true,
            RecordDf::MovesSingles => self.moves_singles = true,
            RecordDf::Lacks { since } => self.lacks_since = since,
            RecordDf::FollowsMap { version } => self.map_version = version,
            RecordDf::Install(install) => self.replay_install(&install, &mut effects, space)?,
            RecordDf::InstallFacts { cont, unit, epochs, facts } => {
                let facts = facts.iter().map(Facts::from_durable).collect();
                let timeline = Timeline { epochs, facts };
                self.index.install_timeline(cont, unit, &timeline, &mut effects);
                self.saw_epoch(timeline.epochs.0);
            }
        }
        self.index.reclaim(usize::MAX, &mut effects);
        effects.blocks.drain(..).try_for_each(|change| space.replay(change))
    }

    fn replay_install(
        &mut self,
        install: &InstallDf<'_>,
        effects: &mut Effects,
        space: &mut Space,
    ) -> Result<()> {
        let &InstallDf { cont, unit, dkey, .. } = install;
        check_keys(unit, dkey, b"")?;
        install.values().try_for_each(check_change)?;
        let is_own = |change: &record::ChangeDf<'_>| {
            new_value(change).is_some_and(|(of, key, ..)| of == unit && key == dkey)
        };
        if !install.values().all(is_own) {
            return Err(Error::new(Code::Csum, "log record: values of another dkey are installed"));
        }
        let touched = record::ChangeDf::PunchDkey { unit, dkey };
        if !self.index.conts.contains_key(&cont) || self.index.is_lost(cont, &touched) {
            return Ok(());
        }
        for change in install.values() {
            claim_change(change, space)?;
            each_fresh_run(change, |run| self.replayed_sums.clear_run(run));
        }
        self.replay_sums(&install.sums)?;
        install.changes.iter().for_each(|(_, change)| self.fragments.note(cont, change));
        self.index.install(install, effects);
        self.saw_epoch(install.newest());
        Ok(())
    }

    fn replay_join(
        &mut self,
        name: &ArrayName,
        (index, count): (u64, u64),
        at: u64,
        copied_bytes: Option<u64>,
        effects: &mut Effects,
        space: &mut Space,
    ) -> Result<()> {
        let in_place = |state: &Contents| -> Option<bool> {
            let array = state.index.conts.get(&name.cont)?.array(name)?;
            let first = array.from(index).next().map(|(start, extent)| (start, &extent.place));
            Some(first == Some((index, &Place::Blocks(at))))
        };
        match (in_place(self), copied_bytes) {
            (None, _) => return Ok(()),
            (Some(false), Some(bytes)) => space.claim(Run { at, bytes })?,
            (Some(true), None) => {}
            _ => {
                let why = "log record: extents are joined that are not there";
                return Err(Error::new(Code::Csum, why));
            }
        }
        self.index.join(name, index, count, at, effects);
        match in_place(self) {
            Some(true) => Ok(()),
            _ => Err(Error::new(Code::Csum, "log record: extents are joined that are not there")),
        }
    }

    fn replay_fold(
        &mut self,
        name: &ArrayName,
        stripe: Stripe,
        count: u64,
        effects: &mut Effects,
    ) -> Result<()> {
        let Some(container) = self.index.conts.get(&name.cont) else { return Ok(()) };
        let is_there = container.array(name).is_some_and(|array| {
            array.foldable(stripe.first, count, &container.versions).is_some()
        });
        if !is_there {
            let why = "log record: a stripe is folded that is not there";
            return Err(Error::new(Code::Csum, why));
        }
        self.index.fold(name, stripe, count, effects);
        Ok(())
    }

    /// Takes a record of a table. Blocks are not followed: the table has them.
    pub(crate) fn restore(&mut self, record: RecordDf<'_>) -> Result<()> {
        match record {
            RecordDf::Prepare { tx, coordinator, cont, wire_version, batch, pieces, .. } => {
                self.hold(tx, coordinator, cont, wire_version, batch, pieces_from(&pieces))
            }
            RecordDf::Decision { .. }
            | RecordDf::Reply { .. }
            | RecordDf::ForgetReply { .. }
            | RecordDf::Orphan { .. }
            | RecordDf::LastEpoch { .. }
            | RecordDf::SumRegion { .. }
            | RecordDf::BadBlocks { .. }
            | RecordDf::Scrub { .. }
            | RecordDf::Opener { .. }
            | RecordDf::OpenerTrace { .. }
            | RecordDf::HoldsCopies
            | RecordDf::Lost { .. }
            | RecordDf::CopiesSeen { .. }
            | RecordDf::MovesSingles
            | RecordDf::FollowsMap { .. }
            | RecordDf::Lacks { .. } => self.replay(record, &mut Space::default()),
            _ => Err(Error::new(Code::Csum, "a table holds a record of the log")),
        }
    }

    fn hold(
        &mut self,
        tx: TxId,
        coordinator: Unit,
        cont: ContId,
        wire_version: u16,
        batch: &[u8],
        pieces: SmallVec<[Piece; 1]>,
    ) -> Result<()> {
        if wire_version != wire::WIRE_VERSION {
            return Err(Error::new(
                Code::Version,
                format!(
                    "a transaction prepared by wire version {wire_version} is in doubt; resolve it \
                     with that version first"
                ),
            ));
        }
        let batch = HeldBatch::of_batch(batch.to_vec())?;
        self.prepare(tx, coordinator, cont, batch, pieces);
        Ok(())
    }

    /// Everything but containers, as records of a table, and how many.
    pub(crate) fn encode_rest(&self) -> (Vec<u8>, u32) {
        let mut out = Vec::new();
        let mut count = 0;
        let mut add = |record: &RecordDf<'_>| {
            record::encode_into(record, &mut out);
            count += 1;
        };
        add(&RecordDf::LastEpoch { epoch: self.last_epoch });
        for (tx, part) in &self.prepared {
            add(&RecordDf::Prepare {
                tx: *tx,
                coordinator: part.coordinator,
                cont: part.cont,
                wire_version: wire::WIRE_VERSION,
                batch: part.batch.bytes(),
                pieces: pieces_df(&part.pieces),
                // They come with their regions.
                sums: Vec::new(),
            });
        }
        add(&RecordDf::Scrub { progress: self.scrub });
        for (tx, Decision { epoch, participants, answers }) in &self.decisions {
            let (epoch, participants) = (*epoch, participants.clone());
            let origin = answers.and_then(|of| self.retry.origin_of(of));
            add(&RecordDf::Decision { tx: *tx, epoch, participants, origin });
        }
        for origin in self.retry.iter() {
            add(&RecordDf::Reply { origin });
        }
        for &(cont, unit) in &self.orphans {
            add(&RecordDf::Orphan { cont, unit });
        }
        for (&client, &Noted { process, awaited_s, .. }) in &self.openers {
            add(&RecordDf::Opener { client, holds: true });
            if process.is_some() || awaited_s > 0 {
                add(&RecordDf::OpenerTrace { client, process, awaited_s });
            }
        }
        for (&cont, container) in &self.index.conts {
            for place in &container.lost {
                add(&RecordDf::Lost { cont, place: place.durable() });
            }
        }
        add(&RecordDf::CopiesSeen { bits: self.index.copies_seen });
        if self.holds_copies {
            add(&RecordDf::HoldsCopies);
        }
        if self.moves_singles {
            add(&RecordDf::MovesSingles);
        }
        if self.lacks_since.is_some() {
            add(&RecordDf::Lacks { since: self.lacks_since });
        }
        if self.map_version > 0 {
            add(&RecordDf::FollowsMap { version: self.map_version });
        }
        (out, count)
    }

    /// Marks what the index in memory uses in a fresh allocator; for audits.
    pub(crate) fn claim_space(&self, space: &mut Space) -> Result<()> {
        for (_, object) in self.index.conts.values().flat_map(|cont| cont.objects()) {
            object.claim_all(space)?;
        }
        self.claim_prepared(space)
    }

    /// Marks what prepared transactions hold.
    pub(crate) fn claim_prepared(&self, space: &mut Space) -> Result<()> {
        for piece in self.prepared.values().flat_map(|part| &part.pieces) {
            if let Piece::Run { run, .. } = piece {
                space.claim(*run)?;
            }
        }
        Ok(())
    }

    fn replay_sums(&mut self, sums: &[BlockSumsDf<'_>]) -> Result<()> {
        for run in sums {
            let width = run.kind.width();
            let fits = width > 0 && run.sums.len().is_multiple_of(width);
            let last = u64::MAX / crate::blocks::BLOCK_BYTES - run.sums.len() as u64;
            if !fits || run.first > last {
                return Err(Error::new(Code::Csum, "log record: impossible sums of blocks"));
            }
            self.replayed_sums.set(run.kind, run.first, run.sums);
        }
        Ok(())
    }

    /// Hands the sums that replay has found to the allocator, which knows by now what is in use.
    pub(crate) fn hand_over_sums(&mut self, space: &mut Space) {
        space.sums = std::mem::take(&mut self.replayed_sums);
        space.clear_free_sums();
    }
}

/// Marks what a change puts in the data area.
fn claim_change(change: &record::ChangeDf<'_>, space: &mut Space) -> Result<()> {
    let mut claimed = Ok(());
    each_fresh_run(change, |run| {
        if claimed.is_ok() {
            claimed = space.claim(run);
        }
    });
    claimed
}

/// Durable form of the sums of pieces.
pub(crate) fn sums_df<'a>(pieces: &[Piece], sums: &'a BlockSums) -> Vec<BlockSumsDf<'a>> {
    let mut out = Vec::new();
    sums.each_run(pieces, |first, run| {
        out.push(BlockSumsDf { first, kind: sums.kind, sums: run });
    });
    out
}

/// Durable form of pieces.
pub(crate) fn pieces_df(pieces: &[Piece]) -> Vec<PieceDf<'_>> {
    pieces
        .iter()
        .map(|piece| match piece {
            Piece::Inline(bytes) => PieceDf::Inline(bytes),
            Piece::Run { run, .. } => PieceDf::Run(RunDf { at: run.at, bytes: run.bytes }),
        })
        .collect()
}

fn pieces_from(pieces: &[PieceDf<'_>]) -> SmallVec<[Piece; 1]> {
    pieces
        .iter()
        .map(|piece| match piece {
            PieceDf::Inline(bytes) => Piece::Inline((*bytes).into()),
            PieceDf::Run(run) => {
                Piece::Run { run: Run { at: run.at, bytes: run.bytes }, buf: None }
            }
        })
        .collect()
}
