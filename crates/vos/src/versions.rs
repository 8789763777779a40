//! Versions of a container: which snapshots it has, and the work in the background that follows
//! from a change of them.
//!
//! While a container is *held* everything removed is kept, so that a snapshot can be made that
//! includes what other targets did at the same time: the control service has all targets hold,
//! chooses an epoch beyond what any of them has done, and tells it to all. What the new set of
//! snapshots does not see is then dropped by a *sweep*: in slices, each a record of its own, so
//! that replay frees the same blocks at the same place in the log.
//!
//! A rollback makes the head what a snapshot sees, as ordinary changes at one new epoch, in
//! slices likewise. Blocks are shared, not copied.

use types::{Code, ContId, Epoch, Error, Result, Unit};
use wire::cell::Dkeys;
use wire::versions::ContVersions;

use crate::Lsn;
use crate::index::past::SweepAt;
use crate::index::rollback;
use crate::index::versions::Versions;
use crate::record::RecordDf;
use crate::shard::PoolShard;

/// Dkeys that one slice of a sweep or of a rollback looks at.
const SLICE_DKEYS: usize = 256;
/// Objects that one slice of a sweep looks at.
const SLICE_OBJECTS: usize = 256;

impl PoolShard {
    /// Takes a container's snapshots and whether it may be changed; an order older than one
    /// carried out before changes nothing. Starts the work that follows: a sweep, a rollback.
    ///
    /// `Inval` for a rollback to what is no snapshot.
    pub fn set_versions(&self, cont: ContId, wanted: &ContVersions) -> Result<Lsn> {
        self.writable()?;
        self.require_cont(cont)?;
        let now = self.versions_of(cont)?;
        if wanted.revision < now.revision {
            return Ok(self.last_lsn());
        }
        let mut snapshots = wanted.snapshots.clone();
        snapshots.sort_unstable();
        snapshots.dedup();
        if let Some(to) = wanted.stage.rolls_to()
            && snapshots.binary_search(&to).is_err()
        {
            return Err(Error::inval(format!("a rollback to {to}, which is no snapshot")));
        }
        let versions = Versions {
            revision: wanted.revision,
            snapshots,
            held: wanted.held,
            stage: wanted.stage,
        };
        if versions == *now {
            return Ok(self.last_lsn());
        }
        let (lsn, ()) = self.change(|state, _| {
            let lsn = self.log_record(&RecordDf::Versions {
                cont,
                versions: versions.durable(),
                unswept: false,
            });
            state.set_versions(cont, versions, false);
            Ok((lsn, ()))
        })?;
        self.sweep_in_background();
        Ok(lsn)
    }

    /// The versions of a container that are kept; `NonExist` when it is not known.
    pub fn versions(&self, cont: ContId) -> Result<ContVersions> {
        let versions = self.versions_of(cont)?;
        Ok(ContVersions {
            revision: versions.revision,
            snapshots: versions.snapshots.clone(),
            held: versions.held,
            stage: versions.stage,
        })
    }

    /// True while space of the container is still to come back from what nobody sees any more.
    pub fn is_unswept(&self, cont: ContId) -> bool {
        let state = self.state.borrow();
        state.index.conts.get(&cont).is_some_and(|found| found.is_unswept())
    }

    /// Starts sweeping if there is anything to sweep and nobody does.
    pub(crate) fn sweep_in_background(&self) {
        let unswept = self.state.borrow().index.conts.values().any(|cont| cont.is_unswept());
        if !unswept || self.sweeping.is_on() {
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        let _ = self.sweeping.begin();
        self.core.env.spawn(async move {
            while !me.is_closed() {
                me.core.env.yield_now().await;
                match me.sweep_slice().await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        tracing::warn!(pool = %me.pool, %error, "space of old versions stays taken");
                        break;
                    }
                }
            }
            me.sweeping.end();
        });
    }

    /// Sweeps a few objects; false when nothing was left to do.
    async fn sweep_slice(&self) -> Result<bool> {
        self.writable()?;
        let slice = {
            let mut state = self.state.borrow_mut();
            let mut conts = state.index.conts.iter_mut();
            conts
                .find(|(_, container)| container.is_unswept())
                .map(|(&cont, container)| (cont, container.next_to_sweep(SLICE_OBJECTS)))
        };
        let Some((cont, units)) = slice else { return Ok(false) };
        for unit in units {
            // A container destroyed meanwhile has nothing to be swept.
            match self.ready_bucket(cont, unit.list_order().0).await {
                Ok(()) => self.sweep_object(cont, unit)?,
                Err(error) if error.code == Code::NonExist => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// One slice of one object. An object that needs more is put on the list.
    fn sweep_object(&self, cont: ContId, unit: Unit) -> Result<()> {
        self.change(|state, effects| {
            let at = state.sweeping.remove(&(cont, unit)).unwrap_or_else(SweepAt::start);
            let scm_before = effects.scm;
            let next = state.index.sweep(cont, unit, &at, SLICE_DKEYS, effects);
            let lsn = if effects.scm == scm_before && effects.blocks.is_empty() {
                self.last_lsn()
            } else {
                // What went may have been the last to name a stripe.
                self.unnamed.note(cont, unit, Dkeys::All);
                self.log_record(&RecordDf::Sweep {
                    cont,
                    unit,
                    at: at.durable(),
                    count: SLICE_DKEYS as u32,
                })
            };
            if let Some(next) = next {
                state.sweeping.insert((cont, unit), next);
                if let Some(container) = state.index.conts.get_mut(&cont) {
                    container.unswept.insert(unit);
                }
            }
            Ok((lsn, ()))
        })?;
        Ok(())
    }

    /// Makes the head of a container what its snapshot `to` sees, each unit at an epoch of its own, which is newer than
    /// all there is of it. To be called in stage [`wire::versions::ContStage::RollingTo`]; may be called again after it was cut off, with
    /// the same epochs or newer ones. Orphans of the container are forgotten: they were of the time after.
    ///
    /// Cells stay. They never change, arrays name them, and one that the snapshot names may have been put together again, or have come here, since:
    /// what nothing names any more goes as at other times.
    pub async fn roll_back(
        &self,
        cont: ContId,
        to: Epoch,
        epoch_of: &dyn Fn(Unit) -> Epoch,
    ) -> Result<Lsn> {
        let mut at = Some(0);
        while let Some(hash) = at {
            let (units, next) = self.units_at(cont, hash).await?;
            for unit in units.into_iter().filter(|unit| !unit.is_cell()) {
                self.roll_back_object(cont, unit, to, epoch_of(unit)).await?;
            }
            at = next;
        }
        let (lsn, ()) = self.change(|state, _| {
            state.forget_orphans(cont);
            Ok((self.log_record(&RecordDf::ForgetOrphans { cont }), ()))
        })?;
        self.sweep_in_background();
        Ok(lsn)
    }

    async fn roll_back_object(
        &self,
        cont: ContId,
        unit: Unit,
        to: Epoch,
        epoch: Epoch,
    ) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            self.writable()?;
            if self.versions_of(cont)?.stage.rolls_to() != Some(to) {
                return Err(Error::new(Code::Canceled, "the rollback was called off"));
            }
            self.ready_for(cont, |container| {
                rollback::touch(container, unit, to, after.as_deref(), SLICE_DKEYS);
            })
            .await?;
            let (_, next) = self.change(|state, effects| {
                let from = after.as_deref();
                let step =
                    state.index.roll_back(cont, unit, (to, epoch), from, SLICE_DKEYS, effects);
                if !step.is_change {
                    return Ok((self.last_lsn(), step.next));
                }
                state.saw_epoch(epoch);
                let lsn = self.log_record(&RecordDf::RollBack {
                    cont,
                    unit,
                    to,
                    epoch,
                    after: from,
                    count: SLICE_DKEYS as u32,
                });
                Ok((lsn, step.next))
            })?;
            self.core.env.yield_now().await;
            match next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }
}
