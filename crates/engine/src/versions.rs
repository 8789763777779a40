//! Snapshots and rollbacks, as the control service orders them (see `control`).

use crate::target::{Target, TargetPool};
use std::cell::RefCell;
use std::rc::Rc;
use types::map::HashMap;
use types::{ContId, Epoch, PoolId, Result};
use wire::obj::AdminReply;
use wire::versions::{ContStage, ContVersions};

/// A rollback that was ordered.
struct Rollback {
    /// The order's revision; a repeated order asks how far it is.
    revision: u64,
    /// `None` while it runs.
    outcome: Option<Result<()>>,
}

/// Those of a pool's part, by container.
#[derive(Default)]
pub(crate) struct Rollbacks(RefCell<HashMap<ContId, Rollback>>);

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
        let lsn = ctx.shard.set_versions(cont, &versions)?;
        // In the same step: no change comes between the snapshot and the clock.
        if let Some(last) = versions.snapshots.last() {
            ctx.clock.observe(*last);
        }
        let epoch = ctx.clock.last().max(ctx.shard.last_epoch());
        ctx.shard.durable(lsn).await?;
        self.tell_when_swept(&ctx, cont);
        let under_way = match ctx.shard.versions(cont)? {
            now if now.revision != versions.revision => false,
            now => match now.stage {
                ContStage::Open => {
                    ctx.rollbacks.0.borrow_mut().remove(&cont);
                    false
                }
                ContStage::Frozen => ctx.shard.has_prepared(cont),
                ContStage::RollingBack(to) => self.roll_back(&ctx, cont, to, versions.revision)?,
            },
        };
        Ok(AdminReply { epoch, under_way, ..AdminReply::default() })
    }

    /// Starts a rollback unless it runs; true while it does. A failed one is started again by the
    /// next order.
    fn roll_back(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        to: Epoch,
        revision: u64,
    ) -> Result<bool> {
        let mut rollbacks = ctx.rollbacks.0.borrow_mut();
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
            let epoch = target.tick(&ctx);
            let outcome = match ctx.shard.roll_back(cont, to, epoch).await {
                Ok(lsn) => ctx.shard.durable(lsn).await,
                Err(error) => Err(error),
            };
            if let Err(error) = &outcome {
                tracing::warn!("target {}: rolling back container {cont}: {error}", target.id);
            }
            let mut rollbacks = ctx.rollbacks.0.borrow_mut();
            if let Some(known) = rollbacks.get_mut(&cont) {
                known.outcome = Some(outcome);
            }
        });
        Ok(true)
    }
}
