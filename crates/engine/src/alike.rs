//! A leader that was not whole itself shows nothing that those lack who may lead after it.
//!
//! Power goes in a whole cluster while something is with the leader of a group alone: nobody was told of it. All come back; nobody is whole, so the first one leads, compares itself with nobody, and is whole at once. The others compare
//! all that they hold with it in their own time. Were it lost for good before that, one of them would lead, which is trusted to have what anybody was told of: what readers had been shown in between would be gone. And what
//! that one has alone would come up beneath what others had seen changed.
//!
//! So before anything of a unit is shown or changed, those who are behind and trusted compare that unit with its leader, once: a question to each, with the newest epoch of anything in the unit, and mostly
//! the answer is that it is the same there. What is ordered afterwards goes to all. A leader that was whole all the time asks nobody: it knows what is on its way, and what lost leaders left it ([`crate::suspects`]).
//!
//! Invariant: a unit is noted as alike under the map by which it was compared. When this target is not whole by a newer one, or groups may have got other members, all are compared anew.

use crate::mend::NOT_KNOWN;
use crate::target::{Target, TargetPool};
use futures_channel::oneshot;
use futures_util::future::try_join_all;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Epoch, Error, Result, TargetId, Unit};
use wire::map::{DownReason, LEFT_UNSURE, PoolMap};
use wire::member::MemberAsk;

/// Pause before members that gave no answer are asked again.
const PAUSE: Duration = Duration::from_millis(20);
/// Most units that are remembered to have been compared; then that begins anew.
const UNITS_MAX: usize = 1 << 20;

/// A unit of a container.
type Place = (ContId, Unit);

/// What a target knows of what others may have otherwise, in a pool.
#[derive(Default)]
pub(crate) struct Alike {
    /// Those that may lead after this target, and may lack what it has.
    doubted: RefCell<BTreeSet<TargetId>>,
    /// What they have as it is here.
    units: RefCell<BTreeSet<Place>>,
    /// What is being compared, with those who wait for it.
    comparing: RefCell<BTreeMap<Place, Vec<oneshot::Sender<()>>>>,
    /// Leaders whose notes this target has heard since it is behind, and the map under which that was.
    heard: RefCell<(u32, BTreeSet<TargetId>)>,
}

impl Alike {
    /// Another map has come. `has_moved`: groups may have other members by it.
    pub fn follow_map(&self, me: TargetId, map: &PoolMap, has_moved: bool) {
        let is_whole = placement::is_live(me, map);
        let own_left = map.target(me).map_or(0, |own| own.left);
        // Of those who are not whole leads who left last. Whoever was whole and is lost left later than all that are not trusted.
        let least = if is_whole { LEFT_UNSURE } else { own_left };
        let behind = map.targets.iter().filter(|info| info.reason == Some(DownReason::Behind));
        let trusted = behind.filter(|info| info.id != me && info.left >= least);
        let trusted: BTreeSet<TargetId> = trusted.map(|info| info.id).collect();
        if is_whole && !has_moved {
            self.doubted.borrow_mut().retain(|target| trusted.contains(target));
        } else {
            self.doubted.replace(trusted);
            self.units.take();
        }
        if self.doubted.borrow().is_empty() {
            self.units.take();
        }
    }

    /// True when all who may lead after this target have what it has.
    pub fn are_all(&self) -> bool {
        self.doubted.borrow().is_empty()
    }

    fn doubts(&self, member: TargetId) -> bool {
        self.doubted.borrow().contains(&member)
    }

    fn has_heard(&self, leader: TargetId, map_version: u32) -> bool {
        let heard = self.heard.borrow();
        heard.0 == map_version && heard.1.contains(&leader)
    }

    fn note_heard(&self, leader: TargetId, map_version: u32) {
        let mut heard = self.heard.borrow_mut();
        if heard.0 != map_version {
            *heard = (map_version, BTreeSet::new());
        }
        heard.1.insert(leader);
    }
}

impl Target {
    /// True when those who may lead a unit's group after this target, which leads it, may have it otherwise.
    ///
    /// Errors: as [`Target::led_group`].
    pub(crate) fn may_differ(&self, ctx: &TargetPool, cont: ContId, unit: Unit) -> Result<bool> {
        if ctx.alike.are_all()
            || ctx.is_of_one(unit)
            || ctx.alike.units.borrow().contains(&(cont, unit))
        {
            return Ok(false);
        }
        Ok(!self.doubted_of(ctx, unit)?.is_empty())
    }

    /// Those who may lead a unit's group after this target, and may lack what it has. Who joins the group is no member yet.
    fn doubted_of(&self, ctx: &TargetPool, unit: Unit) -> Result<SmallVec<[TargetId; 5]>> {
        let Some(group) = self.led_group(ctx, unit)? else { return Ok(SmallVec::new()) };
        let layout = placement::layout(unit.placed_as(), &*ctx.map()?)?;
        let members = layout.members(unit.group as usize);
        let is_doubted = |member: &TargetId| ctx.alike.doubts(*member) && members.contains(member);
        Ok(group.followers.into_iter().filter(is_doubted).collect())
    }

    /// Has a unit compared, unless that is under way; the end of it.
    pub(crate) fn have_compared(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
    ) -> oneshot::Receiver<()> {
        let (sender, over) = oneshot::channel();
        let mut comparing = ctx.alike.comparing.borrow_mut();
        if let Some(waiting) = comparing.get_mut(&(cont, unit)) {
            waiting.push(sender);
            return over;
        }
        comparing.insert((cont, unit), vec![sender]);
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            if let Err(error) = target.have_compared_once(&ctx, cont, unit).await {
                tracing::debug!("target {}: whether others have {unit}: {error}", target.id);
                // timer: a member that did not answer is asked again, not at once.
                target.env.sleep(PAUSE).await;
            }
            let waiting = ctx.alike.comparing.borrow_mut().remove(&(cont, unit));
            for waiting in waiting.into_iter().flatten() {
                // A receiver that is gone gave up waiting.
                let _ = waiting.send(());
            }
        });
        over
    }

    async fn have_compared_once(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        cont: ContId,
        unit: Unit,
    ) -> Result<()> {
        let map = ctx.map()?;
        let members = self.doubted_of(ctx, unit)?;
        let newest = match ctx.joining.may_be_ordered(ctx, cont, unit) {
            true => NOT_KNOWN,
            false => ctx.shard.newest_of_all(cont, unit).await?,
        };
        let asked = members.iter().map(|member| {
            let ask = MemberAsk::Compare { cont, unit, newest };
            self.ask_member::<()>(ctx, &map, *member, ask)
        });
        try_join_all(asked).await?;
        if ctx.map_version() != map.version {
            return Err(Error::bare(Code::Stale));
        }
        let mut units = ctx.alike.units.borrow_mut();
        if units.len() >= UNITS_MAX {
            units.clear();
        }
        units.insert((cont, unit));
        Ok(())
    }

    /// For a leader that asks: has a unit here as it is there, where the newest epoch of anything in it is `newest`.
    ///
    /// Errors: `Stale` when the map is another one meanwhile; those of the leader's answers.
    pub(crate) async fn compare_with(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        leader: TargetId,
        (cont, unit): (ContId, Unit),
        newest: Epoch,
    ) -> Result<()> {
        let map = ctx.map()?;
        if self.leader_of(ctx, unit)? != leader || !self.catches_up_with(&map, unit) {
            return Err(Error::bare(Code::Stale));
        }
        if !ctx.shard.has_cont(cont) {
            let text = format!("it has not been told yet of container {cont}");
            return Err(Error::new(Code::Busy, text));
        }
        let here = ctx.shard.newest_of_all(cont, unit).await?;
        if here == newest && !ctx.joining.has_touched(ctx, cont, unit) {
            return Ok(());
        }
        if !ctx.alike.has_heard(leader, map.version) {
            // As when all is compared: see [`crate::catch_up`].
            let is_meant = |of: Unit| {
                self.catches_up_with(&map, of)
                    && self.leader_of(ctx, of).is_ok_and(|of_group| of_group == leader)
            };
            self.take_notes_of(ctx, &map, leader, &is_meant).await?;
            let unknown = self.answers_unknown_to(ctx, &map, leader, true, &is_meant).await?;
            ctx.suspects.note_unknown(leader, unknown);
            ctx.alike.note_heard(leader, map.version);
        }
        let mended = self.compare_keys(ctx, &map, leader, (cont, unit), false).await?;
        tracing::debug!("target {}: {unit} as target {leader} has it: {mended} keys", self.id);
        match ctx.map_version() == map.version {
            true => Ok(()),
            false => Err(Error::bare(Code::Stale)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{PoolId, Rank};
    use wire::map::{TargetInfo, TargetState};

    const ME: TargetId = TargetId(0);

    /// A map by which targets, this one first, are whole (`None`), or are behind and left so.
    fn map(left: &[Option<u32>]) -> PoolMap {
        let info = |(at, left): (usize, &Option<u32>)| TargetInfo {
            id: TargetId(at as u32),
            rank: Rank(at as u32),
            state: if left.is_some() { TargetState::Down } else { TargetState::Up },
            since: 0,
            reason: left.map(|_| DownReason::Behind),
            left: left.unwrap_or(0),
            incarnation: 7,
        };
        let targets = left.iter().enumerate().map(info).collect();
        PoolMap {
            pool: PoolId(1),
            version: 1,
            engines: Vec::new(),
            targets,
            placements: Vec::new(),
            outs: Vec::new(),
            next: None,
            balanced: 0,
            next_balanced: 0,
            passed: Vec::new(),
            next_passed: Vec::new(),
        }
    }

    fn doubted(alike: &Alike, map: &PoolMap, has_moved: bool) -> Vec<u32> {
        alike.follow_map(ME, map, has_moved);
        alike.doubted.borrow().iter().map(|target| target.0).collect()
    }

    /// Whoever was behind together with this target is doubted until it is whole, also when this one is whole long before; one that came to be behind later is not.
    #[test]
    fn those_are_doubted_that_were_behind_when_this_target_was() {
        let (unsure, alike) = (Some(LEFT_UNSURE), Alike::default());
        assert!(doubted(&alike, &map(&[None, unsure, None]), false).is_empty());
        assert_eq!(doubted(&alike, &map(&[unsure, unsure, None]), false), [1]);
        alike.units.borrow_mut().insert((ContId(1), types::Oid { hi: 1, lo: 2 }.unit(0)));
        assert_eq!(doubted(&alike, &map(&[None, unsure, unsure]), false), [1]);
        assert_eq!(alike.units.borrow().len(), 1, "it was compared under an earlier map");
        // Whoever left before this one, or is called lost, does not lead after it.
        assert!(doubted(&alike, &map(&[None, Some(5), unsure]), false).is_empty());
        assert!(alike.units.borrow().is_empty());
        assert_eq!(doubted(&alike, &map(&[None, Some(5), unsure]), true), [2]);
        assert_eq!(doubted(&alike, &map(&[Some(6), Some(5), Some(6), Some(9)]), false), [2, 3]);
    }
}
