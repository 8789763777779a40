//! Telling again what was done before this target was opened again.
//!
//! Nobody is told of an update before all members of its group have it ([`crate::streams`]). A target that was opened again does not know of which they all
//! had: power may have gone while one was with their leader alone. Members that were opened again with it are behind, and compare themselves with it in their own time; were
//! it lost before that, one of them would lead without what a client was told of. So before an answer is told again, members that are behind
//! get what it is about, and then the answer itself: who has an answer has what it tells of.

use crate::group::Group;
use crate::mend::Keys;
use crate::suspects::{What, changed_by};
use crate::target::{Target, TargetPool};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Epoch, Error, Result, TargetId, Unit};
use wire::obj::{Batch, TxId};

/// Pause before another try.
const PAUSE: Duration = Duration::from_millis(20);

/// What an answer tells of.
pub(crate) struct Told<'a> {
    pub tx: TxId,
    /// A unit that was changed.
    pub of: Unit,
    pub answer: &'a [u8],
    /// What was asked for, where that was of one group.
    pub batch: Option<&'a Batch<'a>>,
}

impl Target {
    /// Ends when members that are behind have what an answer tells of, too; at `until` at the latest.
    ///
    /// Errors: `Stale` when another target leads the group; `TimedOut`.
    pub(crate) async fn share_before_telling(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        told: &Told<'_>,
        until: Duration,
    ) -> Result<()> {
        loop {
            let Some(group) = self.led_group(ctx, told.of)? else { return Ok(()) };
            let map = ctx.map()?;
            let behind = group.followers.iter().filter(|of| !placement::is_live(**of, &map));
            let behind: Vec<TargetId> = behind.copied().collect();
            if behind.is_empty() {
                return Ok(());
            }
            let error = match self.share(ctx, &group, &behind, told).await {
                Ok(()) if ctx.map_version() == map.version => return Ok(()),
                Ok(()) => continue,
                Err(error) => error,
            };
            tracing::debug!("target {}: what is told again: {error}", self.id);
            if self.env.now() >= until {
                let text =
                    format!("targets {behind:?} do not have yet what is told again: {error}");
                return Err(Error::new(Code::TimedOut, text));
            }
            // timer: a pause before another try.
            self.env.sleep(PAUSE).await;
        }
    }

    async fn share(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        group: &Group,
        behind: &[TargetId],
        told: &Told<'_>,
    ) -> Result<()> {
        let pool = ctx.shard.pool();
        for member in behind {
            // Decisions, and objects that have lost their names.
            self.send_notes(pool, ctx, *member).await?;
        }
        let mut changed: BTreeMap<(ContId, Unit), Vec<What>> = BTreeMap::new();
        if let Some(batch) = told.batch {
            changed_by(batch.cont, &batch.ops, &mut |(cont, unit, what)| {
                changed.entry((cont, unit)).or_default().push(what);
            });
        }
        let since: Epoch = wire::decode_prefix(told.answer.get(1..).unwrap_or_default())?;
        for ((cont, unit), all) in changed {
            let Some(group) = self.led_group(ctx, unit)? else { continue };
            let keys = self.keys_changed(ctx, &group, (cont, unit), all, since).await?;
            let dkeys: Vec<_> = keys.iter().map(|key| serde_bytes::Bytes::new(key)).collect();
            let what = Keys { cont, unit, dkeys: &dkeys, with_facts: true };
            self.mend(pool, ctx, &group, what).await?;
        }
        self.ship_answers(pool, ctx, group, &[(told.tx, told.of)])?.settled().await
    }

    /// The keys of a unit that an update with an epoch may have changed: of one that has changed all of it those that are as new, and those that only
    /// others have.
    async fn keys_changed(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        group: &Group,
        (cont, unit): (ContId, Unit),
        all: Vec<What>,
        since: Epoch,
    ) -> Result<BTreeSet<Vec<u8>>> {
        let mut changed = BTreeSet::new();
        for what in all {
            match what {
                What::Dkey(dkey) => {
                    changed.insert(dkey);
                }
                What::Whole => {
                    let map = ctx.map()?;
                    let here = self.keys_here(ctx, cont, unit).await?;
                    for member in &group.followers {
                        let theirs = self.keys_at(ctx, &map, *member, cont, unit).await?;
                        changed.extend(theirs.into_keys().filter(|key| !here.contains_key(key)));
                    }
                    let new = here.into_iter().filter(|(_, newest)| *newest >= since);
                    changed.extend(new.map(|(key, _)| key));
                }
                What::Facts | What::Answer(_) | What::Decided(..) | What::Notes => {}
            }
        }
        Ok(changed)
    }
}
