//! Damaged pages of the index: what they held comes back from other members.
//!
//! A page that is damaged says nothing of what it held, so nobody can be asked for that alone. The target gives the page up,
//! leads nothing from that moment on, and tells the control service, which calls it *behind*, as after a restart: others lead,
//! and the target compares itself with them and gets what it lacks ([`crate::catch_up`]). Until then nobody may take its word for
//! what was in that page. Where it leads for want of anybody else it tells members what it has beside, so that it is not the only one; they stay behind like it.
//!
//! Where all who are there wait for such pages, and the other members left earlier, an administrator can have these lead all the same
//! (`pool reset-target`): what was in the pages is then as they have it.
//!
//! Objects of one copy that may have been in the page stay refused: see [`vos::PoolShard::give_up_pages`].

use crate::target::{Target, TargetPool};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Error, PoolId, Result, TargetId, Unit, limits};
use wire::control::ControlRequest;
use wire::event::{EventCode, Happened};
use wire::map::PoolMap;
use wire::member::{MemberAsk, UnitList};
use wire::obj::{Batch, Op};
use wire::walk::walk;

/// Pause before another try.
const PAUSE: Duration = Duration::from_millis(200);

/// Whose damaged pages a target waits for that lacks nothing else.
#[derive(Default)]
pub(crate) struct PageWaits {
    /// With the map under which that was found.
    now: Cell<Option<(u32, TargetId)>>,
    /// Of which of them people were told, since it lacks something.
    told: Cell<Option<TargetId>>,
}

impl PageWaits {
    /// True when that is news.
    fn note(&self, map_version: u32, of: TargetId) -> bool {
        self.now.set(Some((map_version, of)));
        self.told.replace(Some(of)) != Some(of)
    }

    /// Under this map; what was found under an older one may have changed with it.
    pub(crate) fn of(&self, map_version: u32) -> Option<TargetId> {
        self.now.get().filter(|(version, _)| *version == map_version).map(|(_, of)| of)
    }

    /// Something else is missing.
    pub(crate) fn interrupt(&self) {
        self.now.set(None);
    }

    /// Nothing is missing any more.
    pub(crate) fn end(&self) {
        self.now.set(None);
        self.told.set(None);
    }
}

/// What is under way about the damaged pages of a pool's part.
#[derive(Default)]
pub(crate) struct LosingPages {
    /// Some are being given up.
    is_running: Cell<bool>,
    /// The control service is to hear of some.
    is_to_tell: Cell<bool>,
    /// Blocks that only such pages named are to be found.
    has_unnamed_blocks: Cell<bool>,
    /// Somebody is at it.
    is_counting_blocks: Cell<bool>,
}

impl LosingPages {
    fn is_looking_for_blocks(&self) -> bool {
        self.has_unnamed_blocks.get() || self.is_counting_blocks.get()
    }
}

impl Target {
    /// Looks after damaged pages of a pool's part from now on.
    pub(crate) fn watch_pages(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        if ctx.shard.conts().into_iter().any(|cont| ctx.shard.lacks_pages_of(cont)) {
            // It may have ended before it could tell.
            ctx.losing_pages.is_to_tell.set(true);
            ctx.losing_pages.has_unnamed_blocks.set(true);
            self.lose_pages_soon(pool, ctx);
        }
        let (target, of) = (Rc::downgrade(self), Rc::downgrade(ctx));
        ctx.shard.on_damaged_page(move || {
            if let (Some(target), Some(ctx)) = (target.upgrade(), of.upgrade()) {
                target.lose_pages_soon(pool, &ctx);
            }
        });
    }

    fn lose_pages_soon(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        if ctx.losing_pages.is_running.replace(true) {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            while !target.is_done_with(&ctx) {
                match target.lose_pages(pool, &ctx).await {
                    Ok(()) => break,
                    Err(error) => {
                        tracing::info!("target {}: a damaged page: {error}", target.id);
                        // timer: a pause before another try.
                        target.env.sleep(PAUSE).await;
                    }
                }
            }
            ctx.losing_pages.is_running.set(false);
            target.find_unnamed_blocks(&ctx).await;
        });
    }

    /// Gives back what only pages that were given up named: what they held comes again, and needs the room.
    async fn find_unnamed_blocks(self: &Rc<Self>, ctx: &Rc<TargetPool>) {
        let losing = &ctx.losing_pages;
        if !losing.has_unnamed_blocks.get() || losing.is_counting_blocks.replace(true) {
            return;
        }
        while losing.has_unnamed_blocks.replace(false) && !self.is_done_with(ctx) {
            match ctx.shard.reclaim_unnamed().await {
                Ok(0) => {}
                Ok(bytes) => {
                    tracing::info!("target {}: {bytes} bytes of damaged pages are free", self.id);
                }
                // Another page: when it is given up it is done once more.
                Err(error) if error.code == Code::Csum => {
                    tracing::warn!(
                        "target {}: blocks of damaged pages stay in use until 'azekura vos repair': {error}",
                        self.id
                    );
                }
                Err(error) => {
                    tracing::info!("target {}: blocks of damaged pages: {error}", self.id);
                    losing.has_unnamed_blocks.set(true);
                    // timer: a pause before another try.
                    self.env.sleep(PAUSE).await;
                }
            }
        }
        losing.is_counting_blocks.set(false);
    }

    async fn lose_pages(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) -> Result<()> {
        let losing = &ctx.losing_pages;
        if ctx.shard.pages_to_give_up() == 0 && !losing.is_to_tell.get() {
            self.tell_of_pages(
                pool,
                EventCode::DamageStays,
                "of a damaged page of the index others have nothing: what it holds is refused",
            );
            return Ok(());
        }
        // What was in the page looks from here on as if it had never been.
        if !losing.is_to_tell.replace(true) {
            ctx.be_unsure();
            ctx.joining.begin(&ctx.shard);
        }
        losing.has_unnamed_blocks.set(true);
        for page in ctx.shard.give_up_pages().await? {
            let what = format!(
                "a page of the index is damaged, others are asked for what it held: {page}"
            );
            self.tell_of_pages(pool, EventCode::DamageFound, &what);
        }
        let map = ctx.map()?;
        let (target, map_version) = (self.id, map.version);
        let damaged = ControlRequest::TargetDamaged { pool, target, map_version };
        self.tell_control(&map, &damaged).await?;
        losing.is_to_tell.set(ctx.shard.pages_to_give_up() > 0);
        match losing.is_to_tell.get() {
            false => Ok(()),
            true => Err(Error::new(Code::Busy, "there are more")),
        }
    }

    pub(crate) fn tell_of_pages(&self, pool: PoolId, code: EventCode, what: &str) {
        let what = format!("target {}: {what}", self.id);
        tracing::warn!("{what}");
        self.events.tell(Happened::new(code, what).of_target(self.id).of_pool(pool));
    }

    /// What a caller is told who has met a page that is being given up: others are asked in a moment.
    pub(crate) fn without_lost_pages(&self, ctx: &TargetPool, error: Error) -> Error {
        match error.code == Code::Csum && ctx.losing_pages.is_running.get() {
            true => Error::bare(Code::Stale),
            false => error,
        }
    }

    /// Refuses a batch of groups that this target leads for want of anybody else, where it may not have what they held.
    pub(crate) fn require_pages(&self, ctx: &TargetPool, batch: &Batch<'_>) -> Result<()> {
        if !ctx.shard.lacks_pages_of(batch.cont) {
            return Ok(());
        }
        let units = walk(&batch.ops).map(Op::unit).chain(batch.checks.iter().map(|of| of.unit));
        for unit in units.filter(|unit| !ctx.is_of_one(*unit)) {
            ctx.shard.require_pages_of(batch.cont, unit)?;
        }
        // These look at objects that they do not name.
        match walk(&batch.ops).any(|op| op.footprint().follows()) {
            true => Err(lacks_pages()),
            false => Ok(()),
        }
    }

    /// Refuses a question of another member about what this target cannot tell.
    pub(crate) fn require_pages_for(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        unit: Option<Unit>,
    ) -> Result<()> {
        match unit {
            Some(unit) => ctx.shard.require_pages_of(cont, unit),
            None if ctx.shard.lacks_pages_of(cont) => Err(lacks_pages()),
            None => Ok(()),
        }
    }

    /// True when this target asks another one for what it lacks. Of what was in its own damaged pages it does not know when that came.
    pub(crate) fn may_tell(&self, ctx: &TargetPool, map: &PoolMap, other: TargetId) -> bool {
        let lacks_pages = ctx.shard.conts().into_iter().any(|cont| ctx.shard.lacks_pages_of(cont));
        self.may_be_led_by(map, other) || (lacks_pages && placement::follows(other, map))
    }

    /// Asks a leader for the next of its units; one that lacks damaged pages for those that it has, which is noted.
    pub(crate) async fn ask_for_units(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        leader: TargetId,
        cont: ContId,
        after: Option<Unit>,
    ) -> Result<UnitList> {
        let count_max = self.portions().listed;
        if ctx.joining.untold_by() != Some(leader) {
            let ask = MemberAsk::Units { cont, after, count_max };
            match self.ask_member(ctx, map, leader, ask).await {
                Err(error) if error.code == Code::Csum => ctx.joining.note_untold(leader),
                page => return page,
            }
        }
        let ask = MemberAsk::UnitsAtHand { cont, after, count_max };
        self.ask_member(ctx, map, leader, ask).await
    }

    /// At the end of catching up under a map: nothing is missing any more of what was in damaged pages, unless there are groups
    /// that had nobody else to ask.
    pub(crate) fn end_lacking_pages(
        &self,
        pool: PoolId,
        ctx: &TargetPool,
        map: &PoolMap,
    ) -> Result<()> {
        if !ctx.shard.conts().into_iter().any(|cont| ctx.shard.lacks_pages_of(cont)) {
            return Ok(());
        }
        // Of codes, too, for so many members hold what is not coded, drawn first and as far apart as copies: whoever leads of them names all cells.
        let has_nobody_whole = |copies| placement::losses(copies, map, |_| true).copies_left == 0;
        let may_be_here = |copies: &usize| ctx.shard.may_have_groups_of(*copies);
        if (2..=limits::COPIES_MAX).filter(may_be_here).any(has_nobody_whole) {
            self.note_page_wait(pool, ctx, map, self.id);
            return Err(lacks_pages());
        }
        if ctx.losing_pages.is_looking_for_blocks() {
            // After a restart nothing else would tell that it has to be done.
            return Err(Error::new(Code::Busy, "blocks of damaged pages are still looked for"));
        }
        ctx.shard.close_lost_pages()
    }
}

impl Target {
    /// This target has compared all with all who are there: what was in damaged pages of `of` is all that is missing.
    pub(crate) fn note_page_wait(
        &self,
        pool: PoolId,
        ctx: &TargetPool,
        map: &PoolMap,
        of: TargetId,
    ) {
        let joining = &ctx.joining;
        let is_all = ctx.map_version() == map.version && !joining.is_full();
        if !is_all || !joining.page_waits.note(map.version, of) {
            return;
        }
        let what = match of == self.id {
            true => "it has all but what was in damaged pages of its index, and nobody who is there and whole has that".into(),
            false => format!(
                "it has all that target {of} can tell, and waits for what was in damaged pages of the index there"
            ),
        };
        self.tell_of_pages(pool, EventCode::PagesAwaited, &what);
    }

    /// Answers the control service whether this target has all that `of` can tell; see [`wire::obj::AdminOp::HasAllOf`].
    pub(crate) fn require_all_of(
        &self,
        ctx: &TargetPool,
        of: TargetId,
        map_version: u32,
    ) -> Result<()> {
        let lacks_pages = ctx.shard.conts().into_iter().any(|cont| ctx.shard.lacks_pages_of(cont));
        let busy = |text: &str| Err(Error::new(Code::Busy, text));
        if ctx.map_version() != map_version {
            return busy("it has another map");
        }
        match (ctx.joining.page_waits.of(map_version) == Some(of), lacks_pages == (of == self.id)) {
            (true, true) => {
                ctx.joining.claim(ctx);
                Ok(())
            }
            (true, false) => busy("pages of its own index are damaged, too"),
            (false, true) if of == self.id => busy("it still compares itself with others"),
            (false, false) if of == self.id => busy("no page of its index is damaged"),
            (false, _) => busy("it still compares itself with that target"),
        }
    }
}

/// What catching up ends with when a leader has told what it has, and cannot tell what it had: all else was compared.
pub(crate) fn untold(leader: TargetId) -> Error {
    let text = format!(
        "pages of the index are damaged on target {leader}, which leads what this target is in: what was in them nobody else can tell who is there"
    );
    Error::new(Code::Redundancy, text)
}

fn lacks_pages() -> Error {
    let text = "a page of the index is damaged on this target, and others who may have what it held are away";
    Error::new(Code::Csum, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_damaged_pages_is_news_once() {
        let (waits, two, three) = (PageWaits::default(), TargetId(2), TargetId(3));
        assert!(waits.note(4, two));
        assert_eq!((waits.of(4), waits.of(5)), (Some(two), None));
        assert!(!waits.note(5, two), "under another map it is the same");
        waits.interrupt();
        assert_eq!(waits.of(5), None);
        assert!(!waits.note(5, two));
        assert!(waits.note(5, three));
        waits.end();
        assert_eq!(waits.of(5), None);
        assert!(waits.note(6, three));
    }
}
