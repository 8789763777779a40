//! Space of what was removed or overwritten comes back soon: who leads a group tells those who keep cells of it which stripes have lost
//! their names.
//!
//! The audit ([`crate::cell_audit`]) cannot tell a cell that lost its name from one that is about to get it, and waits until the latter
//! is impossible. The leader can:
//!
//! - a stripe that it was folding is named by itself or not at all: whatever it is not folding now, and does not name, goes;
//! - a stripe that a client coded has a version that nobody else has, and is named once: what was named and is not any more goes.
//!   The leader remembers versions for longer than a client may take to have them named. What it does not remember goes when it is old.
//!
//! Invariant: names are read after what is being folded and what was once named, so that nothing of these gets a name unseen; and
//! cells that are kept once more, by another fold of the same records, were kept later than at the epoch that their keeper told
//! before. All holds under one version of the map, when nothing of what earlier leaders left is unsettled: nothing that was kept under an older one is
//! named.
//!
//! Nobody waits for it, and nothing depends on it: notes and memories are bounded, messages may get lost, and the audit finds
//! what is left. Snapshots see what they name: those names stay, and so do their cells.

use crate::cell_audit::{CellsAt, Named, is_old, own_cells};
use crate::cells::StripeAt;
use crate::target::{Target, TargetPool};
use futures_util::future::join_all;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Epoch, Error, Result, TargetId, Unit};
use wire::cell::{Dkeys, StripeOf, UnnamedCells, cell_unit, is_coined};
use wire::map::PoolMap;
use wire::member::MemberAsk;
use wire::obj::{Batch, UpdateValue};

/// What loses its name is told after this long: more of the same may come meanwhile.
const DELAY: Duration = Duration::from_millis(100);
/// The same where room is short here or with a member: somebody may be about to be told that there is none.
const DELAY_SHORT: Duration = Duration::from_millis(10);
/// So long what is being swept is waited for.
const SWEEP_TIME_MAX: Duration = Duration::from_secs(20);
/// Most versions remembered: 40 s of 800 requests a second. They take some megabytes.
const VERSIONS_MAX: usize = 32_768;
/// Units that are told of together.
const UNITS_AT_ONCE: usize = 256;
/// Single dkeys of a unit that are told of together.
const KEYS_AT_ONCE: usize = 256;
/// Most stripes of such dkeys that stay. Where there are more it is left to the audit, which asks for them in parts.
const STAYING_MAX: usize = 4096;
/// A message is not made longer when it has this many bytes, about.
const MESSAGE_BYTES: usize = 256 << 10;
/// Dkeys listed at once.
const LIST_COUNT: usize = 256;

/// What a target knows of stripes that have lost their names, of a pool.
#[derive(Default)]
pub(crate) struct UnnamedStripes {
    /// Somebody is telling it.
    is_telling: Cell<bool>,
    once_named: RefCell<OnceNamed>,
    /// Stripes that this target is folding.
    folded: RefCell<BTreeSet<(ContId, Unit, StripeOf)>>,
}

/// Versions of stripes that were named for clients, the last ones.
#[derive(Default)]
struct OnceNamed {
    versions: BTreeSet<(ContId, Unit, Epoch)>,
    /// The same, oldest first.
    order: VecDeque<(ContId, Unit, Epoch)>,
}

impl OnceNamed {
    fn add(&mut self, of: (ContId, Unit, Epoch)) {
        if !self.versions.insert(of) {
            return;
        }
        self.order.push_back(of);
        if self.order.len() > VERSIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.versions.remove(&oldest);
        }
    }

    fn of(&self, cont: ContId, unit: Unit) -> Vec<Epoch> {
        let all = self.versions.range((cont, unit, Epoch::ZERO)..=(cont, unit, Epoch::MAX));
        all.map(|(_, _, version)| *version).collect()
    }
}

/// While it is there, a stripe is being folded: its cells get a name, or are dropped when it is gone.
pub(crate) struct FoldMark {
    ctx: Rc<TargetPool>,
    of: (ContId, Unit, StripeOf),
}

impl FoldMark {
    pub fn new(ctx: &Rc<TargetPool>, at: StripeAt<'_>) -> FoldMark {
        let StripeAt { cont, unit, dkey, akey, stripe } = at;
        let named = StripeOf { dkey: dkey.to_vec().into(), akey: akey.to_vec().into(), stripe };
        let of = (cont, unit, named);
        ctx.unnamed.folded.borrow_mut().insert(of.clone());
        FoldMark { ctx: ctx.clone(), of }
    }
}

impl Drop for FoldMark {
    fn drop(&mut self) {
        self.ctx.unnamed.folded.borrow_mut().remove(&self.of);
    }
}

impl Target {
    /// After a batch has taken effect: the versions of stripes that it named are remembered.
    pub(crate) fn note_named(&self, ctx: &TargetPool, batch: &Batch<'_>) {
        let mut once = ctx.unnamed.once_named.borrow_mut();
        for (of, value) in crate::client_cells::stripes_named(batch) {
            debug_assert!(matches!(value, UpdateValue::Coded { .. }));
            once.add((of.cont, of.unit, of.stripe.version));
        }
    }

    /// Begins to tell what has lost its name, if anything has and that has not begun.
    pub(crate) fn tell_of_unnamed_soon(self: &Rc<Self>, ctx: &Rc<TargetPool>) {
        if !ctx.shard.has_unnamed() || ctx.unnamed.is_telling.replace(true) {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            let mut waited = Duration::ZERO;
            loop {
                let delay = target.delay_of_names(&ctx);
                // timer: more of the same may lose its name meanwhile.
                target.env.sleep(delay).await;
                let noted = ctx.shard.take_unnamed();
                if noted.is_empty() || target.is_done_with(&ctx) {
                    break;
                }
                // Of what is large names are gone when it is swept.
                let is_early = |cont: ContId| ctx.shard.is_unswept(cont);
                let any_early = noted.iter().any(|(cont, ..)| is_early(*cont));
                waited = if any_early { waited + delay } else { Duration::ZERO };
                let (early, due): (Vec<_>, Vec<_>) = noted
                    .into_iter()
                    .partition(|(cont, ..)| waited < SWEEP_TIME_MAX && is_early(*cont));
                for (cont, unit, dkeys) in early {
                    ctx.shard.note_unnamed(cont, unit, dkeys);
                }
                if let Err(error) = target.tell_of_unnamed(&ctx, due).await {
                    tracing::debug!("target {}: telling of old cells: {error}", target.id);
                }
            }
            ctx.unnamed.is_telling.set(false);
        });
    }

    /// How long to wait for more that loses its name.
    fn delay_of_names(&self, ctx: &TargetPool) -> Duration {
        let is_short = ctx.shard.stat().is_short() || ctx.streams.any_is_short();
        if is_short { DELAY_SHORT } else { DELAY }
    }

    /// Stripes that only a snapshot named lose their names when what only it saw is swept: that is told when it is done.
    pub(crate) fn tell_when_swept(self: &Rc<Self>, ctx: &Rc<TargetPool>, cont: ContId) {
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            let mut waited = Duration::ZERO;
            // What takes longer is told when the audit begins anew.
            while ctx.shard.is_unswept(cont)
                && waited < SWEEP_TIME_MAX
                && !target.is_done_with(&ctx)
            {
                // timer: nobody waits for it.
                target.env.sleep(DELAY).await;
                waited += DELAY;
            }
            target.tell_of_unnamed_soon(&ctx);
        });
    }

    /// Tells those who keep cells under these dkeys of units, where they are led here, what has lost its name.
    async fn tell_of_unnamed(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        noted: Vec<(ContId, Unit, Dkeys)>,
    ) -> Result<()> {
        let map = ctx.map()?;
        if !is_at_rest(self.id, ctx, &map) {
            return Ok(());
        }
        // Followers have noted it, too.
        let led = noted.into_iter().filter(|(_, unit, _)| self.leads(ctx, *unit));
        let led: Vec<_> = led.flat_map(in_portions).collect();
        for some in led.chunks(UNITS_AT_ONCE) {
            self.tell_some(ctx, &map, some).await?;
        }
        Ok(())
    }

    async fn tell_some(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &Rc<PoolMap>,
        some: &[(ContId, Unit, Dkeys)],
    ) -> Result<()> {
        let mut keepers: BTreeMap<TargetId, Vec<usize>> = BTreeMap::new();
        for (at, (_, unit, _)) in some.iter().enumerate() {
            let layout = placement::cell_layout(unit.object, map)?;
            for keeper in layout.members(unit.group as usize) {
                if placement::is_live(*keeper, map) {
                    keepers.entry(*keeper).or_default().push(at);
                }
            }
        }
        let asked = keepers.into_iter().map(|(keeper, of)| async move {
            let until = self.ask_to_drop(ctx, map, keeper, Epoch::ZERO, Vec::new()).await;
            until.ok().map(|until| (keeper, until, of))
        });
        let keepers: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        let mut all = Vec::with_capacity(some.len());
        for (cont, unit, dkeys) in some {
            all.push(match self.unnamed_cells(ctx, *cont, *unit, dkeys).await {
                Ok(cells) => cells,
                Err(error) => {
                    tracing::debug!("target {}: names of {unit}: {error}", self.id);
                    None
                }
            });
        }
        self.still_leads(ctx, map.version).await?;
        let all = &all;
        let told = keepers.into_iter().map(|(keeper, until, of)| async move {
            let mut cells = of.into_iter().filter_map(|at| all[at].clone()).peekable();
            while cells.peek().is_some() {
                let (mut units, mut bytes) = (Vec::new(), 0);
                while bytes < MESSAGE_BYTES
                    && let Some(next) = cells.next()
                {
                    bytes += bytes_of(&next);
                    units.push(next);
                }
                if let Err(error) = self.ask_to_drop(ctx, map, keeper, until, units).await {
                    tracing::debug!("target {}: old cells at {keeper}: {error}", self.id);
                    return;
                }
            }
        });
        join_all(told).await;
        Ok(())
    }

    async fn ask_to_drop(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        keeper: TargetId,
        until: Epoch,
        units: Vec<UnnamedCells>,
    ) -> Result<Epoch> {
        match keeper == self.id {
            true => self.drop_cells_of(ctx, self.id, until, units).await,
            false => self.ask_member(ctx, map, keeper, MemberAsk::DropCells { until, units }).await,
        }
    }

    /// What is to be told of some dkeys: when too much stays, that the audit is to look at the unit again. `None` when a lost
    /// leader's folds may still come to be known.
    async fn unnamed_cells(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        unit: Unit,
        dkeys: &Dkeys,
    ) -> Result<Option<UnnamedCells>> {
        if !self.is_settled(ctx, cont, unit)? {
            return Ok(None);
        }
        // In this order: see above.
        let mut stay: Vec<StripeOf> = {
            let folded = ctx.unnamed.folded.borrow();
            let of_unit = folded.iter().filter(|(of, at, _)| (*of, *at) == (cont, unit));
            of_unit.map(|(_, _, stripe)| stripe.clone()).collect()
        };
        let once_named = ctx.unnamed.once_named.borrow().of(cont, unit);
        let mut after = match dkeys {
            Dkeys::These(keys) => {
                for key in keys {
                    stay.extend(ctx.shard.stripes_of(cont, unit, key).await?);
                }
                if stay.len() > STAYING_MAX {
                    return Ok(Some(to_be_audited(cont, unit)));
                }
                let dkeys = dkeys.clone();
                return Ok(Some(UnnamedCells { cont, unit, dkeys, stay, once_named }));
            }
            Dkeys::All => None,
            Dkeys::From(from) => from.checked_sub(1).map(|before| before.to_le_bytes().to_vec()),
        };
        loop {
            let page = self.stripes_of(ctx, cont, unit, after.as_deref(), LIST_COUNT).await?;
            stay.extend(page.stripes);
            if stay.len() > STAYING_MAX {
                return Ok(Some(to_be_audited(cont, unit)));
            }
            after = page.next.map(serde_bytes::ByteBuf::into_vec);
            if after.is_none() {
                let dkeys = dkeys.clone();
                return Ok(Some(UnnamedCells { cont, unit, dkeys, stay, once_named }));
            }
        }
    }

    /// Drops cells as their leader says; the epoch when that began.
    ///
    /// Errors: `Busy` while targets come and go, `Stale` when they have.
    pub(crate) async fn drop_cells_of(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        leader: TargetId,
        until: Epoch,
        units: Vec<UnnamedCells>,
    ) -> Result<Epoch> {
        let began = self.tick(ctx);
        let map = ctx.map()?;
        if !is_at_rest(self.id, ctx, &map) {
            return Err(Error::new(Code::Busy, "targets come and go: cells are looked at later"));
        }
        let mut count = 0;
        for told in units {
            let UnnamedCells { cont, unit, dkeys, stay, once_named } = told;
            let is_meant = !unit.is_cell()
                && ctx.shard.has_cont(cont)
                && self.leader_of(ctx, unit).is_ok_and(|of_group| of_group == leader);
            if !is_meant {
                continue;
            }
            let mut named = Named::new();
            for StripeOf { dkey, akey, stripe } in stay {
                named.entry(dkey.into_vec()).or_default().insert((akey.into_vec(), stripe));
            }
            let once_named: BTreeSet<Epoch> = once_named.into_iter().collect();
            for cell in own_cells(self.id, &map, unit) {
                let unit = cell_unit(unit, cell);
                // What is left to the audit it has to look at, whatever it saw before.
                ctx.cell_audit.forget(cont, unit);
                for dkey in self.dkeys_here(ctx, cont, unit, &dkeys).await? {
                    let at = CellsAt { cont, unit, dkey: &dkey };
                    let dropped =
                        self.drop_unnamed_under(ctx, &map, at, &named, |stripe, kept_at, now| {
                            let was_named = stripe.is_some_and(|stripe| {
                                !is_coined(stripe.version) || once_named.contains(&stripe.version)
                            });
                            (was_named && kept_at <= until) || is_old(kept_at, now)
                        });
                    count += dropped.await?.0;
                    // Nobody waits for it.
                    self.env.yield_now().await;
                }
            }
        }
        if count > 0 {
            tracing::debug!("target {}: {count} cells dropped that lost their names", self.id);
        }
        Ok(began)
    }

    async fn dkeys_here(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        unit: Unit,
        dkeys: &Dkeys,
    ) -> Result<Vec<Vec<u8>>> {
        let from = match dkeys {
            Dkeys::These(keys) => return Ok(keys.iter().map(|key| key.to_vec()).collect()),
            Dkeys::From(from) => *from,
            Dkeys::All => 0,
        };
        let mut here: Vec<Vec<u8>> = self.keys_here(ctx, cont, unit).await?.into_keys().collect();
        if from > 0 {
            let number = |key: &[u8]| key.try_into().map(u64::from_le_bytes).ok();
            here.retain(|key| number(key).is_some_and(|number| number >= from));
        }
        Ok(here)
    }
}

/// True when nobody comes or goes, and this target knows what it is worth.
fn is_at_rest(target: TargetId, ctx: &TargetPool, map: &PoolMap) -> bool {
    map.next.is_none() && placement::is_live(target, map) && !ctx.is_unsure()
}

/// What is told of a unit of which too much stays to be listed: nothing goes by these words.
fn to_be_audited(cont: ContId, unit: Unit) -> UnnamedCells {
    let dkeys = Dkeys::These(Vec::new());
    UnnamedCells { cont, unit, dkeys, stay: Vec::new(), once_named: Vec::new() }
}

/// The same in pieces that fit a message.
fn in_portions((cont, unit, dkeys): (ContId, Unit, Dkeys)) -> Vec<(ContId, Unit, Dkeys)> {
    match dkeys {
        Dkeys::These(keys) => {
            let some = keys.chunks(KEYS_AT_ONCE).map(<[_]>::to_vec);
            some.map(|keys| (cont, unit, Dkeys::These(keys))).collect()
        }
        all => vec![(cont, unit, all)],
    }
}

/// About how long it is in a message.
fn bytes_of(told: &UnnamedCells) -> usize {
    let stay: usize = told.stay.iter().map(|of| of.dkey.len() + of.akey.len() + 32).sum();
    let keys: usize = match &told.dkeys {
        Dkeys::These(keys) => keys.iter().map(|key| key.len() + 2).sum(),
        Dkeys::All | Dkeys::From(_) => 0,
    };
    64 + stay + keys + 10 * told.once_named.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_versions_are_forgotten_first() {
        let mut once = OnceNamed::default();
        let unit = types::Oid { hi: 1, lo: 2 }.unit(0);
        let other = types::Oid { hi: 1, lo: 3 }.unit(0);
        once.add((ContId(1), other, Epoch(7)));
        for version in 0..VERSIONS_MAX as u64 {
            once.add((ContId(1), unit, Epoch(version)));
            once.add((ContId(1), unit, Epoch(version)));
        }
        assert_eq!(once.of(ContId(1), other), vec![]);
        assert_eq!(once.of(ContId(1), unit).len(), VERSIONS_MAX);
        assert_eq!(once.of(ContId(2), unit), vec![]);
        assert_eq!(once.versions.len(), once.order.len());
    }
}
