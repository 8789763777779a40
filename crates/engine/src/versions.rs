//! Snapshots and rollbacks, as the control service orders them (see `control`).
//!
//! A container that is rolled back is frozen first: nobody begins a change, and what leaders have ordered gets to their members. Then each target makes
//! its own part what the snapshot shows, all at the same epoch, so that members of a group have the same afterwards. Who may lack something of
//! a group, of the snapshot or since, does so at an epoch of its own: it is compared with the others, and is to differ from them.

use crate::target::{Target, TargetPool};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::map::HashMap;
use types::{Code, ContId, Epoch, Error, PoolId, Result, Unit};
use wire::obj::AdminReply;
use wire::versions::{ContStage, ContVersions};

/// So long what was ordered before a snapshot may be on its way to members of groups.
const MEMBERS_TIME_MAX: Duration = Duration::from_secs(10);

/// A rollback that was ordered.
struct Rollback {
    /// The order's revision; a repeated order asks how far it is.
    revision: u64,
    /// `None` while it runs.
    outcome: Option<Result<()>>,
}

/// A container that was frozen: by which order, and the newest order of this target for its groups then.
#[derive(Clone, Copy)]
struct Frozen {
    revision: u64,
    ordered: u64,
}

/// Those of a pool's part, by container.
#[derive(Default)]
pub(crate) struct Rollbacks {
    rolled: RefCell<HashMap<ContId, Rollback>>,
    frozen: RefCell<HashMap<ContId, Frozen>>,
}

impl Rollbacks {
    /// Notes when a container was frozen; up to which order members are to have all.
    fn frozen(&self, cont: ContId, revision: u64, newest: u64) -> u64 {
        let mut frozen = self.frozen.borrow_mut();
        let known = frozen.get(&cont).copied().filter(|known| known.revision == revision);
        let now = known.unwrap_or(Frozen { revision, ordered: newest });
        frozen.insert(cont, now);
        now.ordered
    }

    fn forget(&self, cont: ContId) {
        self.rolled.borrow_mut().remove(&cont);
        self.frozen.borrow_mut().remove(&cont);
    }
}

impl Target {
    /// Takes the versions of a container that are to be kept, and gives epochs beyond its
    /// snapshots from then on.
    pub(crate) async fn set_versions(
        self: &Rc<Self>,
        pool: PoolId,
        cont: ContId,
        versions: ContVersions,
    ) -> Result<AdminReply> {
        let ctx = self.pools.of(pool).await?;
        let known = ctx.shard.versions(cont)?.snapshots.last().copied();
        let is_new = versions.snapshots.last().copied() > known;
        let lsn = ctx.shard.set_versions(cont, &versions)?;
        // In the same step: no change comes between the snapshot and the clock.
        if let Some(last) = versions.snapshots.last() {
            ctx.clock.observe(*last);
        }
        let epoch = ctx.clock.last().max(ctx.shard.last_epoch());
        let ordered = ctx.streams.last();
        ctx.shard.durable(lsn).await?;
        if is_new {
            self.have_members_settle(&ctx, ordered).await?;
        }
        self.tell_when_swept(&ctx, cont);
        let under_way = match ctx.shard.versions(cont)? {
            now if now.revision != versions.revision => false,
            // What is kept says nothing of epochs.
            _ => match versions.stage {
                ContStage::Open => {
                    ctx.rollbacks.forget(cont);
                    false
                }
                ContStage::Frozen => {
                    let newest = ctx.streams.last();
                    let ordered = ctx.rollbacks.frozen(cont, versions.revision, newest);
                    let prepared = ctx.shard.prepared_of(cont);
                    let waits = !prepared.is_empty() || !ctx.streams.has_told(self.id, ordered);
                    if waits {
                        let id = self.id;
                        tracing::debug!("target {id}: {cont} is frozen; parts: {prepared:?}");
                    }
                    waits
                }
                ContStage::RollingBack(to) => {
                    self.roll_back(&ctx, cont, (to, None), versions.revision)?
                }
                ContStage::RollingTo { to, epoch } => {
                    self.roll_back(&ctx, cont, (to, Some(epoch)), versions.revision)?
                }
            },
        };
        Ok(AdminReply { number: epoch.0, under_way, ..AdminReply::default() })
    }

    /// Ends when all members have what was ordered before a snapshot, which shows it: one that does not have it yet shows the present without it
    /// ([`crate::member_reads`]), and whoever looks there after the snapshot was made would see less than that.
    ///
    /// Errors: `Busy` when that takes long, or others lead meanwhile.
    async fn have_members_settle(&self, ctx: &TargetPool, ordered: u64) -> Result<()> {
        let settled = ctx.streams.wait_for(ordered);
        let settled = self.env.timeout(MEMBERS_TIME_MAX, settled).await;
        settled.unwrap_or_else(|| Err(Error::bare(Code::TimedOut))).map_err(|error| {
            let text = format!(
                "not all copies have what was written before the snapshot ({error}); try again when all engines reach each other, or one is \
                 called down"
            );
            Error::new(Code::Busy, text)
        })
    }

    /// Starts a rollback unless it runs; true while it does. A failed one is started again by the
    /// next order.
    fn roll_back(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        (to, epoch): (Epoch, Option<Epoch>),
        revision: u64,
    ) -> Result<bool> {
        let mut rollbacks = ctx.rollbacks.rolled.borrow_mut();
        if let Some(known) = rollbacks.get_mut(&cont)
            && known.revision == revision
        {
            match &known.outcome {
                None => return Ok(true),
                Some(Ok(())) => return Ok(false),
                Some(Err(error)) => {
                    let error = error.clone();
                    rollbacks.remove(&cont);
                    return Err(error);
                }
            }
        }
        rollbacks.insert(cont, Rollback { revision, outcome: None });
        drop(rollbacks);
        let (target, ctx) = (self.clone(), ctx.clone());
        // A stop does not wait for it: it is begun again after the start.
        self.env.spawn(async move {
            let outcome = match target.roll_back_units(&ctx, cont, to, epoch).await {
                Ok(lsn) => ctx.shard.durable(lsn).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &outcome {
                tracing::warn!("target {}: rolling back container {cont}: {error}", target.id);
            }
            let mut rollbacks = ctx.rollbacks.rolled.borrow_mut();
            if let Some(known) = rollbacks.get_mut(&cont) {
                known.outcome = Some(outcome);
            }
        });
        Ok(true)
    }

    async fn roll_back_units(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        to: Epoch,
        epoch: Option<Epoch>,
    ) -> Result<vos::Lsn> {
        if let Some(epoch) = epoch {
            ctx.clock.observe(epoch);
        }
        // Newer than that of the others.
        let own = self.tick(ctx);
        let map = ctx.map()?;
        let is_whole = placement::is_live(self.id, &map) && !ctx.is_unsure();
        // Nobody compares it any more: the control service may count it as whole already, by a map that is not here yet.
        let has_claimed = !ctx.joining.may_miss(ctx);
        if !has_claimed {
            ctx.joining.note_rolled_alone();
        }
        let has_all = |unit: Unit| {
            let is_whole_of = (is_whole && self.is_member(&map, unit))
                || (has_claimed && self.catches_up_with(&map, unit));
            is_whole_of && !ctx.suspects.has_any_of(cont, unit)
        };
        let epoch_of = |unit| epoch.filter(|_| has_all(unit)).unwrap_or(own);
        ctx.shard.roll_back(cont, to, &epoch_of).await
    }
}
