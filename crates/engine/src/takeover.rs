//! A new leader changes nothing before its followers have settled what the one before has left them.
//!
//! Of a lost leader's last orders a member may have one that the new leader never got ([`crate::suspects`]). It compares such keys with the new leader at once. Were
//! one of them changed before that, the member would have the change over what it has alone; and if it led next, before it had compared the key, what nobody
//! was told of would come up under what others had seen alone. So before the first change of a group, after leaders may have
//! changed, each follower that has all of the group says that nothing is left. What this target has itself of a lost leader is with all members before anything of its
//! unit is changed, too: that a change was made can tell of it. A new primary of PacificA reconciles its secondaries first in the same way (Lin et al.,
//! MSR-TR-2008-25).
//!
//! Reads do not wait for this: what only a member has was acknowledged to nobody, and may take effect after them. What they do wait for, as changes do, is that those who are
//! behind have what a leader has that does not know of it whether they do ([`crate::alike`]).

use crate::target::{Target, TargetPool};
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Error, Result, TargetId, Unit};
use vos::Summary;
use wire::member::MemberAsk;
use wire::obj::ReadCheck;

/// A follower that has something left keeps the question so long; then it is asked again.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Pause before a follower that gave no answer is asked again.
const PAUSE: Duration = Duration::from_millis(20);

/// Whose word a target waits for, in a pool.
#[derive(Default)]
pub(crate) struct Takeover {
    /// The map by which leaders may have changed last.
    version: Cell<u32>,
    /// Who may have something left since. Each is asked when a group that it follows in is to be changed.
    awaited: RefCell<BTreeSet<TargetId>>,
    /// Who is being asked, with those that wait for the answer.
    asking: RefCell<BTreeMap<TargetId, Vec<oneshot::Sender<()>>>>,
}

/// What is not settled of a group.
enum Left {
    /// This target has something itself.
    Here,
    /// A follower has not said that it has nothing.
    With(TargetId),
    /// Those who may lead next may have a unit otherwise.
    Otherwise(Unit),
}

impl Takeover {
    /// Leaders may have changed with a map: what `others` have of groups, who have all of them, may not be settled.
    pub fn begin(&self, map_version: u32, others: impl Iterator<Item = TargetId>) {
        self.version.set(map_version);
        self.awaited.replace(others.collect());
    }

    fn awaits(&self, member: TargetId) -> bool {
        self.awaited.borrow().contains(&member)
    }

    /// A follower with this map has nothing left.
    fn note_settled(&self, member: TargetId, map_version: u32) {
        if map_version >= self.version.get() {
            self.awaited.borrow_mut().remove(&member);
        }
    }
}

impl Target {
    /// Ends when nothing that a lost leader left stands in the way of a batch, at `until` at the latest.
    ///
    /// Errors: as [`Target::group_of_units`]; `TimedOut`.
    pub(crate) async fn settled_for_batch(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        checks: &[ReadCheck<'_>],
        batch: &Summary,
        until: Duration,
    ) -> Result<()> {
        while let Some(left) = self.left_of_others(ctx, cont, checks, batch)? {
            let now = self.env.now();
            if now >= until {
                let text = match left {
                    Left::Here => "what a lost leader left is not with all members yet".to_owned(),
                    Left::With(member) => format!(
                        "target {member} has not said that it has nothing left of a lost leader"
                    ),
                    Left::Otherwise(unit) => {
                        format!("those who may lead next have not compared {unit} yet")
                    }
                };
                return Err(Error::new(Code::TimedOut, text));
            }
            let changed = match left {
                Left::Here => ctx.suspects.changed(),
                Left::With(member) => self.ask_to_settle(ctx, member),
                Left::Otherwise(unit) => self.have_compared(ctx, cont, unit),
            };
            // Whatever came of it, the loop looks again.
            let _ = self.env.timeout(until - now, changed).await;
        }
        Ok(())
    }

    /// True when nothing is in the way of a batch now; to be asked in the step that looks, or changes.
    pub(crate) fn is_settled_for_batch(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        checks: &[ReadCheck<'_>],
        batch: &Summary,
    ) -> Result<bool> {
        Ok(self.left_of_others(ctx, cont, checks, batch)?.is_none())
    }

    fn left_of_others(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        checks: &[ReadCheck<'_>],
        batch: &Summary,
    ) -> Result<Option<Left>> {
        if !ctx.alike.are_all() {
            let of_ops = batch.units.iter().map(|named| named.unit);
            for unit in of_ops.chain(checks.iter().map(|check| check.unit)) {
                if self.may_differ(ctx, cont, unit)? {
                    return Ok(Some(Left::Otherwise(unit)));
                }
            }
        }
        let is_settled = ctx.takeover.awaited.borrow().is_empty() && ctx.suspects.is_empty();
        if is_settled || !batch.writes {
            return Ok(None);
        }
        let Some(group) = self.group_of_units(ctx, checks, &batch.units)? else { return Ok(None) };
        let of_ops = batch.units.iter().map(|named| named.unit);
        let mut units = of_ops.chain(checks.iter().map(|check| check.unit));
        if units.any(|unit| ctx.suspects.has_any_of(cont, unit)) {
            return Ok(Some(Left::Here));
        }
        let map = ctx.map()?;
        let mut whole = group.followers.iter().filter(|member| placement::is_live(**member, &map));
        Ok(whole.find(|member| ctx.takeover.awaits(**member)).copied().map(Left::With))
    }

    /// True when nothing that a lost leader left of a group that this target leads can become part of a unit any more.
    ///
    /// Errors: as [`Target::led_group`].
    pub(crate) fn is_settled(&self, ctx: &TargetPool, cont: ContId, unit: Unit) -> Result<bool> {
        // What they have folded themselves they have otherwise, and it looks the same.
        if ctx.suspects.has_any_of(cont, unit) || !ctx.alike.are_all() {
            return Ok(false);
        }
        let map = ctx.map()?;
        let followers = self.led_group(ctx, unit)?.into_iter().flat_map(|group| group.followers);
        let mut whole = followers.filter(|member| placement::is_live(*member, &map));
        Ok(!whole.any(|member| ctx.takeover.awaits(member)))
    }

    /// Asks a follower, unless it is being asked; the end of that.
    fn ask_to_settle(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        member: TargetId,
    ) -> oneshot::Receiver<()> {
        let (sender, over) = oneshot::channel();
        let mut asking = ctx.takeover.asking.borrow_mut();
        if let Some(waiting) = asking.get_mut(&member) {
            waiting.push(sender);
            return over;
        }
        asking.insert(member, vec![sender]);
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            if let Err(error) = target.ask_once_to_settle(&ctx, member).await {
                tracing::debug!(
                    "target {}: what target {member} has of a lost leader: {error}",
                    target.id
                );
                // timer: a member that did not answer is asked again, not at once.
                target.env.sleep(PAUSE).await;
            }
            let waiting = ctx.takeover.asking.borrow_mut().remove(&member);
            for waiting in waiting.into_iter().flatten() {
                // A receiver that is gone gave up waiting.
                let _ = waiting.send(());
            }
        });
        over
    }

    async fn ask_once_to_settle(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        member: TargetId,
    ) -> Result<()> {
        let map = ctx.map()?;
        match self.ask_member::<()>(ctx, &map, member, MemberAsk::Settled).await {
            Ok(()) => {}
            // An engine of before this question.
            Err(error) if error.code == Code::Proto => {}
            Err(error) => return Err(error),
        }
        ctx.takeover.note_settled(member, map.version);
        Ok(())
    }

    /// For a leader that asks: ends when nothing is left here of groups that it leads.
    ///
    /// Errors: `Busy` when that takes long, `Stale` when the map is another one by then.
    pub(crate) async fn settle_for(
        &self,
        ctx: &TargetPool,
        leader: TargetId,
        map_version: u32,
    ) -> Result<()> {
        let until = self.env.now() + ANSWER_TIME_MAX;
        loop {
            if ctx.map_version() != map_version {
                return Err(Error::bare(Code::Stale));
            }
            let is_led = |unit: Unit| self.leader_of(ctx, unit).is_ok_and(|of| of == leader);
            if !ctx.suspects.has_any(is_led) {
                return Ok(());
            }
            let now = self.env.now();
            if now >= until || self.is_draining() {
                return Err(Error::new(Code::Busy, "what a lost leader left is being compared"));
            }
            // Woken or not, the loop looks again.
            let _ = self.env.timeout(until - now, ctx.suspects.changed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaders may change again while a follower is being asked: what it said by the map before says nothing of the leader that was lost meanwhile.
    #[test]
    fn an_answer_by_an_older_map_does_not_count() {
        let takeover = Takeover::default();
        let [a, b] = [TargetId(1), TargetId(2)];
        assert!(!takeover.awaits(a), "leaders never changed");
        takeover.begin(5, [a, b].into_iter());
        takeover.note_settled(a, 5);
        assert_eq!([takeover.awaits(a), takeover.awaits(b)], [false, true]);
        takeover.begin(7, [a, b].into_iter());
        takeover.note_settled(a, 6);
        assert_eq!([takeover.awaits(a), takeover.awaits(b)], [true, true]);
        takeover.note_settled(a, 7);
        takeover.note_settled(b, 8);
        assert_eq!([takeover.awaits(a), takeover.awaits(b)], [false, false]);
    }
}
