//! Whether a target may show what it leads: a leader that was replaced, and does not know it yet, has old values.
//!
//! Changes need nothing: those who follow refuse the orders of one that leads by an older map than theirs ([`crate::follow`]). What is only looked at is shown
//! - while the holder of the control service has granted that: it commits no map by which others lead before the grant was given back, or has run
//!   out ([`crate::grants`]), as a holder of leases does (Gray and Cheriton, SOSP 1989);
//! - else when all who follow in the groups that were looked at say, asked after that, that they know no newer map. A new leader was among them, or is
//!   a target that was fed by this one, by the map that says so.
//!
//! So an outage of the control service stops no reads, nor does one of a follower. Both at once do.
//!
//! Invariants:
//! - A grant counts from before it was asked for, by a clock that goes on while the machine sleeps; so it ends here before it does for who has given it.
//! - What was asked for before a grant was given back grants nothing.
//! - A question whose answer counts was sent in the step that looked, or later.

use crate::target::{Target, TargetPool};
use env::Signal;
use futures_channel::oneshot;
use futures_util::future::{Either, select, try_join_all};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use types::{Code, Error, PoolId, Result, TargetId, Unit};
use vos::Summary;
use wire::map::PoolMap;
use wire::member::MemberAsk;
use wire::obj::ReadCheck;

/// How long a follower may take to give its word.
const WORD_TIME_MAX: Duration = Duration::from_secs(1);
/// Pause before one that gave none is asked again.
const WORD_PAUSE: Duration = Duration::from_millis(50);
/// Whoever has waited so long for a grant or for others' word comes again, by a newer map perhaps.
const WAIT_TIME_MAX: Duration = Duration::from_secs(2);

type Word = oneshot::Sender<Result<u32>>;

/// What lets a target show what it leads in a pool.
#[derive(Default)]
pub(crate) struct Lead {
    /// Until when that is granted; zero: it is not.
    until: Cell<Duration>,
    /// The round of questions in which the pool's map was told last; 0: given back since.
    stated: Cell<u64>,
    /// A grant has come, or a map.
    changed: Signal,
    /// Followers that are being asked, each with those who wait for the next question to it.
    asked: RefCell<BTreeMap<TargetId, Vec<Word>>>,
    /// Questions to followers so far.
    word_count: Cell<u64>,
}

impl Lead {
    fn is_granted(&self, now: Duration) -> bool {
        now < self.until.get()
    }

    /// The map of the pool is told, for a grant that is asked for in this round.
    pub fn state(&self, round: u64) {
        self.stated.set(round);
    }

    /// What was asked for in a round is granted until then, unless it was given back meanwhile.
    pub fn grant(&self, round: u64, until: Duration) {
        if self.stated.get() == round {
            self.until.set(self.until.get().max(until));
            self.changed.notify();
        }
    }

    pub fn give_back(&self) {
        self.stated.set(0);
        self.until.set(Duration::ZERO);
    }

    /// Another map has come.
    pub fn wake(&self) {
        self.changed.notify();
    }

    /// Questions to followers so far.
    pub fn word_count(&self) -> u64 {
        self.word_count.get()
    }
}

/// What was looked at may be old: who leads by this map asks those first that follow.
pub(crate) struct Doubt {
    map_version: u32,
    followers: SmallVec<[TargetId; 5]>,
}

impl Doubt {
    /// The same without those who say as much in that they carry out an order; `None` when there is nobody else.
    pub fn beside(mut self, followers: &[TargetId]) -> Option<Doubt> {
        self.followers.retain(|follower| !followers.contains(follower));
        (!self.followers.is_empty()).then_some(self)
    }
}

impl Target {
    /// In the step that looks at what units of groups that this target leads have: what has to be settled before that is shown.
    pub(crate) fn doubt_of_batch(
        &self,
        ctx: &TargetPool,
        checks: &[ReadCheck<'_>],
        summary: &Summary,
        linked: &[Unit],
    ) -> Option<Doubt> {
        let of_ops = summary.units.iter().map(|named| named.unit);
        let units =
            of_ops.chain(checks.iter().map(|check| check.unit)).chain(linked.iter().copied());
        self.doubt_of(ctx, units)
    }

    /// The same for some units.
    pub(crate) fn doubt_of(
        &self,
        ctx: &TargetPool,
        units: impl Iterator<Item = Unit>,
    ) -> Option<Doubt> {
        let mut units = units.filter(|unit| !ctx.is_of_one(*unit)).peekable();
        units.peek()?;
        // Nearly always.
        if ctx.lead.is_granted(self.env.boot_now()) {
            return None;
        }
        let map = ctx.map().ok()?;
        let mut followers = SmallVec::new();
        units.for_each(|unit| add_followers(&mut followers, self.id, unit, &map));
        (!followers.is_empty()).then_some(Doubt { map_version: map.version, followers })
    }

    /// True when a batch that changes something, or a part, looks at what is in other groups: those who follow in these do not see its order.
    pub(crate) fn has_premises_elsewhere(
        &self,
        ctx: &TargetPool,
        checks: &[ReadCheck<'_>],
        summary: &Summary,
    ) -> bool {
        let read = summary.units.iter().filter(|named| !named.writes).map(|named| named.unit);
        let mut read = read.chain(checks.iter().map(|check| check.unit));
        let written = summary.first_written;
        read.any(|unit| {
            let is_with = |written: Unit| {
                written == unit
                    || (!ctx.is_of_one(written) && self.are_together(ctx, written, unit))
            };
            !ctx.is_of_one(unit) && !written.is_some_and(is_with)
        })
    }

    /// True when what is looked at is shown without asking others.
    pub(crate) fn is_lead_granted(&self, ctx: &TargetPool) -> bool {
        ctx.lead.is_granted(self.env.boot_now())
    }

    /// Ends when what was looked at may be shown.
    ///
    /// Errors: `Stale` when another map has come, or neither a grant nor the word of all followers in time; `Closed` when the engine stops.
    pub(crate) async fn settle_doubt(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        doubt: Option<Doubt>,
    ) -> Result<()> {
        match doubt {
            None => Ok(()),
            Some(doubt) => Box::pin(self.have_word(pool, ctx, &doubt)).await,
        }
    }

    async fn have_word(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        doubt: &Doubt,
    ) -> Result<()> {
        let until = self.env.now() + WAIT_TIME_MAX;
        let is_same_map = || ctx.map_version() == doubt.map_version;
        loop {
            if self.is_done_with(ctx) {
                return Err(Error::new(
                    Code::Closed,
                    "this part of the pool is not served any more",
                ));
            }
            if !is_same_map() {
                // It may have been another's meanwhile, and have come back.
                return Err(Error::bare(Code::Stale));
            }
            if self.is_lead_granted(ctx) {
                return Ok(());
            }
            let words = try_join_all(
                doubt.followers.iter().map(|follower| self.word_of(pool, ctx, *follower)),
            );
            let is_over = || !is_same_map() || self.is_lead_granted(ctx);
            let error = match select(pin!(words), pin!(ctx.lead.changed.until(is_over))).await {
                Either::Left((Ok(words), _)) => {
                    if words.iter().all(|version| *version == doubt.map_version) {
                        return Ok(());
                    }
                    continue;
                }
                Either::Left((Err(error), _)) => error,
                Either::Right(_) => continue,
            };
            if self.env.now() >= until {
                let text = format!(
                    "target {} cannot tell whether it leads still: {error}; try again",
                    self.id
                );
                return Err(Error::new(Code::Stale, text));
            }
            tracing::debug!("target {}: the word of those who follow: {error}", self.id);
            // timer: others are asked again: of what they do nobody tells.
            let pause = self.env.sleep(WORD_PAUSE);
            select(pin!(pause), pin!(ctx.lead.changed.until(is_over))).await;
        }
    }

    /// The map by which a follower follows, asked for from now on. One question serves all who came before it was sent.
    async fn word_of(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        follower: TargetId,
    ) -> Result<u32> {
        let (sender, told) = oneshot::channel();
        let is_first = {
            let mut asked = ctx.lead.asked.borrow_mut();
            let is_first = !asked.contains_key(&follower);
            asked.entry(follower).or_default().push(sender);
            is_first
        };
        if is_first {
            let (target, ctx) = (self.clone(), ctx.clone());
            self.env.spawn(async move { target.ask_follower(pool, &ctx, follower).await });
        }
        told.await.map_err(|_| Error::bare(Code::Closed))?
    }

    /// Asks a follower as long as somebody wants to know.
    async fn ask_follower(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>, follower: TargetId) {
        loop {
            let waiting = {
                let mut asked = ctx.lead.asked.borrow_mut();
                let waiting = asked.get_mut(&follower).map(std::mem::take).unwrap_or_default();
                if waiting.is_empty() {
                    asked.remove(&follower);
                    return;
                }
                waiting
            };
            ctx.lead.word_count.set(ctx.lead.word_count.get() + 1);
            let told = self.ask_for_word(pool, ctx, follower).await;
            for waiting in waiting {
                // Some have given up waiting.
                let _ = waiting.send(told.clone());
            }
        }
    }

    async fn ask_for_word(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        follower: TargetId,
    ) -> Result<u32> {
        let map = ctx.map()?;
        debug_assert_eq!(map.pool, pool);
        let asked = self.ask_member::<()>(ctx, &map, follower, MemberAsk::Follows);
        match self.env.timeout(WORD_TIME_MAX, asked).await {
            Some(answer) => answer.map(|()| map.version),
            None => Err(Error::new(Code::TimedOut, format!("target {follower} gives no answer"))),
        }
    }
}

/// Adds who follows this target in a unit's group.
fn add_followers(all: &mut SmallVec<[TargetId; 5]>, own: TargetId, unit: Unit, map: &PoolMap) {
    let Ok(layout) = placement::layout(unit.placed_as(), map) else { return };
    let group = unit.group as usize;
    if group >= layout.group_count() {
        return;
    }
    for follower in layout.followers(group, map) {
        if follower != own && !all.contains(&follower) {
            all.push(follower);
        }
    }
}
