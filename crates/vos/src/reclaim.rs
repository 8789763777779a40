//! Giving back, in slices, what is gone for good.

use types::{Code, Error, Result};

use crate::Lsn;
use crate::pages::decode;
use crate::shard::{PoolShard, RECLAIM_COUNT};

impl PoolShard {
    /// Releases up to `dkeys_max` dkeys that are gone for good; true when there are more.
    pub(crate) fn reclaim_slice(&self, dkeys_max: usize) -> bool {
        let reclaim = self.change(|state, effects| {
            // The record that freed them is in the log already, whenever the blocks come back.
            Ok((
                self.wal.as_ref().map_or(Lsn(0), |wal| wal.last()),
                state.index.reclaim(dkeys_max, effects),
            ))
        });
        matches!(reclaim, Ok((_, true)))
    }

    /// Gives back in the background what is gone for good.
    pub(crate) fn reclaim_in_background(&self) {
        let index = &self.state.borrow().index;
        if index.garbage.is_bare() && index.garbage.pages.is_empty() || self.is_closed() {
            return;
        }
        let Some(me) = self.me.upgrade() else { return };
        if !self.reclaiming.begin() {
            return;
        }
        self.core.env.spawn(async move {
            let outcome = me.reclaim_all().await;
            me.reclaiming.end();
            if let Err(error) = outcome {
                tracing::warn!(pool = %me.pool, %error, "space of what was removed does not come back");
            }
        });
    }

    async fn reclaim_all(&self) -> Result<()> {
        loop {
            self.core.env.yield_now().await;
            if self.is_closed() {
                return Ok(());
            }
            if self.reclaim_slice(RECLAIM_COUNT) {
                continue;
            }
            let page = self.state.borrow().index.garbage.pages.last().cloned();
            let (Some((id, place)), Some(pages)) = (page, &self.pages) else { return Ok(()) };
            let image = pages.read(&place).await?;
            let (found, body) = decode(&pages.shard, &image)?;
            if found != (&id).into() {
                return Err(Error::new(Code::Csum, format!("{id}: another page is in its place")));
            }
            let lsn = self.wal.as_ref().map_or(Lsn(0), |wal| wal.last());
            self.change(|state, effects| {
                Ok((lsn, state.index.reclaim_page(&id, &place, body, effects)?))
            })?;
        }
    }
}
