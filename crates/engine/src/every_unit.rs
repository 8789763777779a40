//! A walk over all units that a target holds of a pool, for what looks at each of them from time to time.

use crate::target::TargetPool;
use types::{Code, ContId, Result, Unit};

/// Units listed at once.
const LIST_COUNT: usize = 256;

impl TargetPool {
    /// Calls `each` with every unit of every container, one after the other, in the order in which they are listed.
    /// Containers that are being destroyed meanwhile are passed over.
    ///
    /// Errors: those of listing, and of `each`, which end the walk.
    pub(crate) async fn every_unit(
        &self,
        mut each: impl AsyncFnMut(ContId, Unit) -> Result<()>,
    ) -> Result<()> {
        for cont in self.shard.conts() {
            let mut after = None;
            loop {
                let listed = match self.shard.list_units(cont, after, LIST_COUNT).await {
                    Err(error) if error.code == Code::NonExist => break,
                    listed => listed?,
                };
                let (units, is_complete) = listed;
                after = units.last().map(|(unit, _)| *unit);
                for (unit, _) in units {
                    each(cont, unit).await?;
                }
                if is_complete {
                    break;
                }
            }
        }
        Ok(())
    }
}
