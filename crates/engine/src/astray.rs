//! Dkeys of objects that spread ([`crate::spread`]) that are in a unit in which nobody looks for them: a defect, which a checker finds by
//! counting. They are put where they belong.

use crate::spread::{Entry, key_of, note};
use crate::target::{Target, TargetPool};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Error, Key, PoolId, Result, Unit, hash};
use wire::obj::{Batch, Cond, ListScope, Op, Sums};
use wire::spread::{MARKER, has_all};

/// Dkeys looked at in one step.
const DKEYS_AT_ONCE: u32 = 256;
/// Pauses before what an aborted transaction still holds is tried again: the first, which doubles, and where that ends.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(1);

impl Target {
    /// Moves the dkeys of a unit that belong elsewhere; of such as are there, too, nothing is left here. Returns how many these were.
    ///
    /// Errors: `Stale` when another target leads the unit's group.
    pub(crate) async fn put_in_place(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
    ) -> Result<u64> {
        self.led_group(ctx, unit)?;
        if !unit.object.spreads() || unit.is_cell() {
            return Ok(0);
        }
        let (mut anchor, mut count) = (Vec::new(), 0);
        loop {
            let scope =
                ListScope::Dkeys { value_of: None, follow: false, hash_range: (0, u64::MAX) };
            let (count_max, bytes_max) = (DKEYS_AT_ONCE, u32::MAX);
            let list = [Op::List { unit, scope, anchor: &anchor, count_max, bytes_max }];
            ctx.shard.ready(cont, &[], &list).await?;
            let found = ctx.shard.view(cont)?.list(unit, scope, &anchor, count_max, bytes_max)?;
            for dkey in found.items().filter_map(key_of) {
                count += self.put_dkey_in_place(pool, ctx, cont, unit, dkey).await? as u64;
            }
            anchor.clone_from(&found.anchor);
            if anchor.is_empty() {
                return Ok(count);
            }
        }
    }

    /// True when the dkey was not where it belongs.
    async fn put_dkey_in_place(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
    ) -> Result<bool> {
        let hash = hash::bytes(dkey);
        ctx.shard.ready(cont, &[], &[Op::Stat { unit }]).await?;
        let spread = ctx.shard.view(cont)?.spread(unit);
        if dkey == MARKER || has_all(spread, unit.group == 0, (hash, hash)) {
            return Ok(false);
        }
        let Some(spread) = spread else {
            // Only a unit that has got something has a dkey; this one has never been told so.
            return Err(Error::new(
                Code::Io,
                "a unit has dkeys and does not know which are its own",
            ));
        };
        let dkeys = [Key::new(dkey)];
        let (entries, _) = self.read_entries(ctx, cont, unit, &dkeys).await?;
        let note_raw = spread.encode();
        let own = placement::layout(unit.object, &*ctx.map()?)?.group_of_hash(hash) as u32;
        // It is in its group, or has not got there yet.
        for group in [own, 0].into_iter().filter(|group| *group != unit.group) {
            let to = unit.object.unit(group);
            let come = entries.iter().map(|entry: &Entry| entry.insert(to)).collect();
            match self.leave(pool, ctx, cont, unit, dkey, &note_raw, Some((to, come))).await {
                Err(error) if error.code == Code::Moved => {}
                Err(error) if error.code == Code::Exist => {
                    // The one that is seen is the true one. What was tried holds this one for a moment yet.
                    let mut pause = PAUSE;
                    loop {
                        // timer: what holds it is over in a moment, and tells nobody.
                        self.env.sleep(pause).await;
                        pause *= 2;
                        match self.leave(pool, ctx, cont, unit, dkey, &note_raw, None).await {
                            Err(error) if error.code == Code::TxRestart && pause < PAUSE_MAX => {}
                            outcome => return outcome.map(|()| true),
                        }
                    }
                }
                outcome => return outcome.map(|()| true),
            }
        }
        Err(Error::new(Code::TxRestart, "the dkeys of the object are on the move"))
    }

    /// Takes a dkey away that is not the unit's own, and has something come elsewhere in the same transaction.
    #[expect(clippy::too_many_arguments, reason = "what it is, and where")]
    async fn leave(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
        note_raw: &[u8],
        come: Option<(Unit, Vec<Op<'_>>)>,
    ) -> Result<()> {
        let part = |ops| {
            let (checks, at, sums) = (Vec::new(), types::Epoch::ZERO, Sums::NONE);
            wire::encode(&Batch { pool, cont, at, checks, ops, sums })
        };
        let dkeys = vec![serde_bytes::Bytes::new(dkey)];
        let gone = Op::PunchDkeys { unit, cond: Cond::PUNCH, dkeys };
        let gone = part(vec![note(unit, Cond::OBJ_EXISTS, note_raw), gone]);
        let come = come.map(|(to, ops)| (to, part(ops)));
        let mut parts = vec![(unit, serde_bytes::Bytes::new(&gone), 0)];
        parts.extend(come.iter().map(|(to, raw)| (*to, serde_bytes::Bytes::new(raw), 0)));
        self.coordinate(pool, ctx, None, &parts, &[], None).await.map(|_| ())
    }
}
