//! Whole engines are emptied, and taken back.
//!
//! The wish is written down with the engine, so that new pools leave it out, and with its targets in each pool (`aims`), where it
//! takes effect. It has nothing to do with the engine's state: what is emptied serves until others have what it holds.

use super::Service;
use super::orders::Targets;
use crate::records::{MemberDf, PoolDf, StageDf};
use crate::store::{Attempts, Tx};
use types::{Error, Rank, Result, TargetId};
use wire::control::{ControlReply, Name, TargetAim};

impl Service {
    /// Has others get all that an engine holds, in all pools; with `drains` false it is to serve again. What was begun and cut off is
    /// ended by the same request.
    ///
    /// Errors: `NonExist`; `Busy`, and nothing is changed, where a pool has too few others.
    pub(super) async fn drain(
        &self,
        rank: Rank,
        drains: bool,
        orders: &dyn Targets,
    ) -> Result<ControlReply> {
        let of_it = |pool: &PoolDf| -> Vec<TargetId> {
            pool.targets.iter().filter(|held| held.rank == rank).map(|held| held.id).collect()
        };
        let mut attempts = Attempts::new();
        let pools = loop {
            attempts.next()?;
            let mut system = self.system().await?;
            let mut engine = self.engine_of_rank(rank).await?;
            let mut pools = self.store.pools().await?;
            pools.retain(|pool| {
                pool.record.stage == StageDf::Ready && !of_it(&pool.record).is_empty()
            });
            if drains {
                for pool in &pools {
                    self.check_rest(&pool.record, &of_it(&pool.record), TargetAim::Drain).await?;
                }
            }
            if engine.record.member.drains != drains {
                system.record.members_version += 1;
                let now = MemberDf {
                    drains,
                    why: if drains { "is emptied" } else { "serves again" }.to_string(),
                    since: system.record.members_version,
                    changed_ns: (self.wall_ns)(),
                    state: engine.record.member.state,
                };
                engine.record.member = now;
                // The system is written so that a pool that is being made just now is made again, without it.
                if !self.store.commit(Tx::new().replace(&system).replace(&engine)).await? {
                    continue;
                }
                tracing::warn!(%rank, drains, "an engine is to be emptied, or not any more");
            }
            break pools;
        };
        let aim = if drains { TargetAim::Drain } else { TargetAim::Serve };
        for pool in pools {
            let (name, targets) = (Name::Uuid(pool.record.uuid), of_it(&pool.record));
            let told = self.aim(&name, &targets, aim, orders).await;
            told.map_err(|error| error.context(format!("pool '{}'", pool.record.name())))?;
        }
        Ok(ControlReply::Done)
    }

    /// The answer to who names a target of an engine that is emptied.
    pub(super) fn is_emptied(rank: Rank) -> Error {
        Error::new(
            types::Code::Busy,
            format!(
                "engine {rank} is being emptied; take it back with 'azekura system drain {rank} --undo', or choose \
                 other targets"
            ),
        )
    }
}
