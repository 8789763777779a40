//! What a lost leader may have told some members of a group, and others not.
//!
//! A leader acknowledges an update when all members have it. Of what it had sent shortly before it was lost, or another one led in its place, one member may have
//! more than another, and nobody was told of any of it. The new leader goes on with what it has itself; nobody is shown
//! that before all members have it, and what others have beyond it they get replaced. Each member knows which
//! keys that may be: those of orders whose leader had not said yet that all have them.
//!
//! Members that were started again in between know no such thing, and compare everything ([`crate::catch_up`]).

use crate::damage::is_damage;
use crate::member_reads::Dirty;
use crate::mend::Keys;
use crate::streams::{Given, Sent};
use crate::target::{Target, TargetPool};
use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use types::{Code, ContId, Epoch, Error, PoolId, Result, TargetId, Unit};
use wire::map::PoolMap;
use wire::member::MemberAsk;
use wire::obj::{Cond, Op, TxId, TxOutcome};
use wire::order::{Order, OrderOrigin};
use wire::walk::walk;

/// Pauses before another try: the first, and where doubling ends.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What may differ of a unit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Dkey(Vec<u8>),
    Whole,
    /// What is known of it beside its keys.
    Facts,
    /// The answer to a transaction that has changed it.
    Answer(Answered),
    /// How a part of its group was decided: committed at an epoch, or not. Who leads next tells it once more before it gives others the keys: who holds the part still would
    /// have it take effect later, over what was changed since.
    Decided(TxId, Option<Epoch>),
    /// Parts and decisions of its group.
    Notes,
}

/// An answer, with what it is about where that came with the same order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Answered {
    tx: TxId,
    epoch: Epoch,
    changed: Vec<Place>,
}

impl Answered {
    /// The first of a transaction, by order.
    fn first_of(tx: TxId) -> Answered {
        Answered { tx, epoch: Epoch::ZERO, changed: Vec::new() }
    }
}

/// What may differ, and where.
pub(crate) type Place = (ContId, Unit, What);

/// Answers are not of one container.
const NO_CONT: ContId = ContId(0);

/// What orders of one leader have changed that not all members may have.
#[derive(Default)]
pub(crate) struct Recent(VecDeque<(u64, Place)>);

impl Recent {
    /// Notes what an order changes, by the number that its leader gives it. All of it is dirty, whoever has it. Of two members, too: a leader that was started again is behind, and
    /// may lead once more before it has compared itself with the other one.
    pub fn note(&mut self, ctx: &TargetPool, number: u64, order: &Order<'_>, dirty: &Dirty) {
        let mut note = |place: Place| {
            dirty.note(number, &place);
            if place.1.object.class().is_ok_and(|class| class.scheme.copies() > 1) {
                self.0.push_back((number, place));
            }
        };
        if let Order::Decide { tx, outcome } = order {
            if let Some((cont, part)) = ctx.shard.prepared_batch(*tx) {
                changed_by(cont, &part.batch().ops, &mut note);
                let unit = crate::commit::part_unit(ctx, *tx);
                let decided = What::Decided(*tx, committed_at(*outcome));
                unit.into_iter().for_each(|unit| note((NO_CONT, unit, decided.clone())));
            }
            return;
        }
        changed_by_order(order, &mut note);
    }

    /// Forgets what all members have.
    pub fn settle(&mut self, number: u64) {
        while self.0.front().is_some_and(|(first, _)| *first <= number) {
            self.0.pop_front();
        }
    }

    /// Takes what is left of some units.
    pub fn take_of(&mut self, is_meant: impl Fn(Unit) -> bool) -> Vec<Place> {
        let all = std::mem::take(&mut self.0);
        let (taken, kept): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, (_, unit, _))| is_meant(*unit));
        self.0 = kept.into();
        taken.into_iter().map(|(_, place)| place).collect()
    }

    /// Takes what is left of it.
    pub fn take(&mut self) -> impl Iterator<Item = Place> + use<> {
        std::mem::take(&mut self.0).into_iter().map(|(_, place)| place)
    }
}

/// What lost leaders have left in a pool.
#[derive(Default)]
pub(crate) struct Suspects {
    places: RefCell<BTreeSet<Place>>,
    /// What this target leads of it is shown to nobody until these are released ([`crate::streams::Streams::hold`]).
    holds: RefCell<Vec<u64>>,
    is_running: Cell<bool>,
    /// Answers of this target that leaders who were asked do not have. They are dropped when what they are about has been replaced: dropped before,
    /// who asks again would change it a second time; kept, he would be told of what is not there any more.
    unknown: RefCell<BTreeMap<TargetId, BTreeSet<TxId>>>,
    /// Units that are newer than their leader's for keys that were suspected when what is known of them came: it is asked for again.
    kept: RefCell<BTreeSet<(ContId, Unit)>>,
    /// Who waits for places to be settled.
    waiting: RefCell<Vec<oneshot::Sender<()>>>,
}

fn committed_at(outcome: TxOutcome) -> Option<Epoch> {
    match outcome {
        TxOutcome::Committed(epoch) => Some(epoch),
        TxOutcome::Aborted | TxOutcome::Pending => None,
    }
}

/// What ops change.
pub(crate) fn changed_by(cont: ContId, ops: &[Op<'_>], note: &mut dyn FnMut(Place)) {
    vos::changed_places(ops, &mut |unit, dkey| {
        let what = dkey.map_or(What::Whole, |dkey| What::Dkey(dkey.to_vec()));
        note((cont, unit, what));
    });
}

/// What an order changes, but for decisions of parts.
fn changed_by_order(order: &Order<'_>, note: &mut dyn FnMut(Place)) {
    match order {
        Order::Apply { cont, epoch, ops, origin, .. } => {
            let mut changed = Vec::new();
            changed_by(*cont, ops, &mut |place| changed.push(place));
            changed.iter().cloned().for_each(&mut *note);
            if let Some(OrderOrigin { tx, of, .. }) = *origin {
                note((NO_CONT, of, What::Answer(Answered { tx, epoch: *epoch, changed })));
            }
        }
        Order::Decision { origin, .. } => {
            if let Some(OrderOrigin { tx, of, .. }) = *origin {
                note((NO_CONT, of, What::Answer(Answered::first_of(tx))));
            }
        }
        // Readers are shown the same, but cells are kept only while who leads names them.
        Order::Fold { cont, unit, dkey, .. } => note((*cont, *unit, What::Dkey(dkey.to_vec()))),
        // Who sends these may have them of another leader that was lost before all members had them.
        Order::Install { cont, unit, dkey, .. } => {
            note((*cont, *unit, What::Dkey(dkey.to_vec())));
        }
        Order::InstallFacts { cont, unit } => note((*cont, *unit, What::Facts)),
        Order::Answers { answers } => {
            let of = |answer: &OrderOrigin<'_>| {
                (NO_CONT, answer.of, What::Answer(Answered::first_of(answer.tx)))
            };
            answers.iter().map(of).for_each(note);
        }
        // Of a part that the next leader never got nobody tells how it is decided: whoever holds it compares parts with that one.
        Order::Prepare { batch, .. } => {
            let checked = batch.checks.iter().map(|check| check.unit);
            let unit = walk(&batch.ops).map(Op::unit).chain(checked).next();
            unit.into_iter().for_each(|unit| note((NO_CONT, unit, What::Notes)));
        }
        // The last part of an image stands for all.
        Order::Decide { .. } | Order::ForgetDecision { .. } | Order::InstallPart { .. } => {}
    }
}

impl Suspects {
    /// Adds what orders change that this target gave and that were given up.
    pub fn add_given(&self, all: Vec<Given>) {
        let mut places = self.places.borrow_mut();
        for given in all {
            // With what an order is about, parts and decisions of its group are compared.
            places.insert((NO_CONT, given.of, What::Notes));
            places.extend(given.places);
            if let Ok(order) = wire::decode::<Order<'_>>(&given.order) {
                changed_by_order(&order, &mut |place| {
                    places.insert(place);
                });
            }
        }
    }

    pub fn add(&self, places: impl Iterator<Item = Place>) {
        self.places.borrow_mut().extend(places);
    }

    /// True when members may have different changes of a key.
    pub fn may_differ(&self, cont: ContId, unit: Unit, dkey: &[u8]) -> bool {
        let places = self.places.borrow();
        places.contains(&(cont, unit, What::Whole))
            || places.contains(&(cont, unit, What::Dkey(dkey.to_vec())))
    }

    pub fn is_empty(&self) -> bool {
        self.places.borrow().is_empty()
    }

    /// True when members may have different changes of anything of a unit.
    pub fn has_any_of(&self, cont: ContId, unit: Unit) -> bool {
        let places = self.places.borrow();
        let first = (cont, unit, What::Dkey(Vec::new()));
        places.range(first..).next().is_some_and(|(of, at, _)| (*of, *at) == (cont, unit))
    }

    /// True when members may have different keys of a unit.
    pub fn has_keys_of(&self, cont: ContId, unit: Unit) -> bool {
        let places = self.places.borrow();
        let first = (cont, unit, What::Dkey(Vec::new()));
        let of_unit = places.range(first..).take_while(|(of, at, _)| (*of, *at) == (cont, unit));
        of_unit.into_iter().any(|(_, _, what)| matches!(what, What::Dkey(_) | What::Whole))
    }

    /// A unit stays newer than its leader's as long as some keys of it are suspected.
    pub fn note_kept(&self, cont: ContId, unit: Unit) {
        self.kept.borrow_mut().insert((cont, unit));
    }

    /// True when something is left of units that are meant.
    pub fn has_any(&self, is_meant: impl Fn(Unit) -> bool) -> bool {
        self.places.borrow().iter().any(|(_, unit, _)| is_meant(*unit))
    }

    /// True when members may not all have an answer.
    pub fn has_answer(&self, of: Unit, tx: TxId) -> bool {
        let first = (NO_CONT, of, What::Answer(Answered::first_of(tx)));
        let places = self.places.borrow();
        let next = places.range(first..).next();
        next.is_some_and(|(_, unit, what)| {
            *unit == of && matches!(what, What::Answer(answered) if answered.tx == tx)
        })
    }

    /// Answers to what has changed a key, if that may differ.
    pub fn answers_about(&self, cont: ContId, unit: Unit, dkey: &[u8]) -> Vec<(TxId, Epoch)> {
        let places = self.places.borrow();
        let is_key = |(of, at, what): &Place| {
            (*of, *at) == (cont, unit)
                && match what {
                    What::Dkey(changed) => changed == dkey,
                    What::Whole => true,
                    What::Facts | What::Answer(_) | What::Decided(..) | What::Notes => false,
                }
        };
        let answers = places.iter().take_while(|(cont, ..)| *cont == NO_CONT);
        let all = answers.filter_map(|(_, _, what)| match what {
            What::Answer(answered) if answered.changed.iter().any(is_key) => {
                Some((answered.tx, answered.epoch))
            }
            _ => None,
        });
        all.collect()
    }

    /// True when a leader does not have an answer; `None`: it has not been asked.
    fn is_unknown_to(&self, leader: TargetId, tx: TxId) -> Option<bool> {
        self.unknown.borrow().get(&leader).map(|unknown| unknown.contains(&tx))
    }

    /// Answers of this target that a leader does not have.
    pub fn note_unknown(&self, leader: TargetId, unknown: BTreeSet<TxId>) {
        self.unknown.borrow_mut().insert(leader, unknown);
    }

    /// What leaders did not have when they were asked says nothing any more.
    pub fn forget_unknown(&self) {
        self.unknown.borrow_mut().clear();
    }

    /// True when data are left of units that are meant.
    fn has_data_of(&self, is_meant: impl Fn(Unit) -> bool) -> bool {
        let places = self.places.borrow();
        places.iter().any(|(cont, unit, _)| *cont != NO_CONT && is_meant(*unit))
    }

    /// Ends when some places have been settled.
    pub fn changed(&self) -> oneshot::Receiver<()> {
        let (sender, changed) = oneshot::channel();
        self.waiting.borrow_mut().push(sender);
        changed
    }

    /// Tells who waits.
    fn tell(&self) {
        for waiting in self.waiting.take() {
            // A receiver that is gone gave up waiting.
            let _ = waiting.send(());
        }
    }

    /// A member that lacks something compares everything anyway.
    pub fn clear(&self) {
        self.places.borrow_mut().clear();
        self.unknown.borrow_mut().clear();
        self.kept.borrow_mut().clear();
        self.tell();
    }
}

impl Target {
    /// In the step in which leaders may have changed: has members agree on what lost leaders left.
    pub(crate) fn settle_suspects(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        let suspects = &ctx.suspects;
        if suspects.places.borrow().is_empty() {
            return;
        }
        let places = suspects.places.borrow();
        let led = places.iter().filter(|(_, unit, _)| self.leads(ctx, *unit));
        let led: Vec<&Place> = led.collect();
        if !led.is_empty() {
            let number = ctx.streams.hold(self.id, |note| {
                for (cont, unit, what) in &led {
                    match what {
                        What::Dkey(dkey) => note(*cont, punch_dkey(*unit, dkey)),
                        What::Whole => note(*cont, punch(*unit)),
                        What::Facts | What::Answer(_) | What::Decided(..) | What::Notes => {}
                    }
                }
            });
            suspects.holds.borrow_mut().push(number);
            for (_, unit, what) in &led {
                // In this step: before anything else comes to who holds the part still. What does not go now is told again with the rest.
                drop(self.tell_decided(pool, ctx, *unit, what));
            }
            self.take_over_answers(ctx);
        }
        if suspects.is_running.replace(true) {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            let mut pause = PAUSE_MIN;
            while !target.is_done_with(&ctx) && !ctx.suspects.places.borrow().is_empty() {
                if let Err(error) = target.settle_once(pool, &ctx).await {
                    tracing::debug!("target {}: what a lost leader left: {error}", target.id);
                    // timer: a growing pause before another try.
                    target.env.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            ctx.suspects.is_running.set(false);
            target.release_holds(&ctx);
            if let Ok(map) = ctx.map() {
                target.end_lacking(&ctx, &map);
            }
        });
    }

    /// Answers that an earlier leader did not have go with what they are about: that is here still, and others get it now, or it has been replaced.
    fn take_over_answers(&self, ctx: &TargetPool) {
        let mut unknown = ctx.suspects.unknown.borrow_mut();
        if unknown.is_empty() {
            return;
        }
        let is_replaced = !ctx.suspects.has_data_of(|unit| self.leads(ctx, unit));
        let all = ctx.shard.shared_replies().into_iter();
        for (tx, _) in all.filter(|(_, of)| self.leads(ctx, *of)) {
            let mut was_unknown = false;
            for of_leader in unknown.values_mut() {
                was_unknown |= of_leader.remove(&tx);
            }
            if was_unknown
                && is_replaced
                && let Err(error) = ctx.shard.forget_reply(tx)
            {
                tracing::warn!("target {}: the answer to {tx:?} is kept: {error}", self.id);
            }
        }
    }

    /// Installs what a leader has of a key, unless `may` says in that step that it leads no more. Answers of this target to what that takes back go in the same step: if this target leads next, before
    /// all is settled, it must not tell who asks again that it is done.
    pub(crate) async fn install_of(
        &self,
        ctx: &TargetPool,
        leader: TargetId,
        (cont, unit, dkey): (ContId, Unit, &[u8]),
        image: &[u8],
        may: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let mut about = ctx.suspects.answers_about(cont, unit, dkey);
        let undone = self.answers_undone(ctx, leader)?;
        let (mut is_same, mut newest) = (true, Epoch::MAX);
        if !about.is_empty() || !undone.is_empty() {
            // What is damaged here is replaced.
            let here = ctx.shard.dkey_image(cont, unit, dkey).await.unwrap_or_default();
            is_same = here == image;
            if !is_same {
                newest = vos::image_epoch(image)?;
            }
            // What was removed here has no epoch. Of what had changed something else in between some goes a moment too early.
            let newest_here = vos::image_epoch(&here).ok().filter(|epoch| *epoch > Epoch::ZERO);
            let newest_here = newest_here.unwrap_or(Epoch::MAX);
            let is_undone = |(_, epoch): &(TxId, Epoch)| newest < *epoch && *epoch <= newest_here;
            about.extend(undone.into_iter().filter(is_undone));
        }
        ctx.shard.install_dkey_while(cont, unit, dkey, image, may).await?;
        for (tx, epoch) in about {
            // A leader that was not asked yet gives its answers later; it changes nothing before all is settled, so by the epoch it has the change or not.
            let is_lost = || ctx.suspects.is_unknown_to(leader, tx).unwrap_or(newest < epoch);
            if !is_same && is_lost() {
                tracing::debug!("target {}: the answer to {tx:?} goes with what it did", self.id);
                ctx.shard.forget_reply(tx)?;
            }
        }
        Ok(())
    }

    /// For a target that is behind, and does not remember what its answers are about: those that a leader does not have, with their epochs.
    fn answers_undone(&self, ctx: &TargetPool, leader: TargetId) -> Result<Vec<(TxId, Epoch)>> {
        let unknown = ctx.suspects.unknown.borrow();
        let Some(unknown) = unknown.get(&leader).filter(|unknown| !unknown.is_empty()) else {
            return Ok(Vec::new());
        };
        if placement::is_live(self.id, &*ctx.map()?) {
            return Ok(Vec::new());
        }
        let mut undone = Vec::new();
        for tx in unknown {
            if let Some(answer) = ctx.shard.replayed(*tx)? {
                undone.push((*tx, wire::decode_prefix(answer.get(1..).unwrap_or_default())?));
            }
        }
        Ok(undone)
    }

    pub(crate) fn leads(&self, ctx: &TargetPool, unit: Unit) -> bool {
        self.leader_of(ctx, unit).is_ok_and(|leader| leader == self.id)
    }

    /// Has the members of a group that this target leads decide a part as it was decided here; nothing where it is about something else.
    fn tell_decided(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        unit: Unit,
        what: &What,
    ) -> Result<Sent> {
        let What::Decided(tx, committed) = what else { return Ok(Sent::NOWHERE) };
        let group = self.led_group(ctx, unit)?;
        let outcome = committed.map_or(TxOutcome::Aborted, TxOutcome::Committed);
        let order = Order::Decide { tx: *tx, outcome };
        Ok(self.ship(pool, ctx, group.as_ref(), &order, Vec::new(), None))
    }

    fn release_holds(&self, ctx: &TargetPool) {
        for number in ctx.suspects.holds.take() {
            ctx.streams.release(self.id, number);
        }
    }

    /// One try for each unit; the last error, when something is left.
    async fn settle_once(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) -> Result<()> {
        let (map, suspects) = (ctx.map()?, &ctx.suspects);
        // What has moved elsewhere nobody compares with this target any more.
        suspects.places.borrow_mut().retain(|(_, unit, _)| !self.is_strange(&map, *unit));
        let mut by_unit: BTreeMap<(ContId, Unit), Vec<What>> = BTreeMap::new();
        for (cont, unit, what) in ctx.suspects.places.borrow().iter() {
            by_unit.entry((*cont, *unit)).or_default().push(what.clone());
        }
        let damaged = self.damaged_leaders(ctx, &map, &by_unit).await;
        // Answers last: who has one has what it is about.
        let (answers, data): (Vec<_>, Vec<_>) =
            by_unit.into_iter().partition(|((cont, _), _)| *cont == NO_CONT);
        let (mut last, mut heard) = (Ok(()), BTreeSet::new());
        for ((cont, unit), all) in data.into_iter().chain(answers) {
            let settled = match self.leader_of(ctx, unit) {
                Ok(leader) if damaged.contains(&leader) => {
                    let text =
                        format!("target {leader} has damage in what is to be settled with it");
                    Err(Error::new(Code::Busy, text))
                }
                Ok(leader) if leader == self.id => {
                    self.spread(pool, ctx, &map, cont, unit, &all).await
                }
                Ok(leader) => {
                    let is_first = heard.insert(leader);
                    self.ask_for(ctx, &map, leader, is_first, cont, unit, &all).await
                }
                Err(error) => Err(error),
            };
            match settled {
                Ok(()) => {
                    let mut places = ctx.suspects.places.borrow_mut();
                    for what in all {
                        places.remove(&(cont, unit, what));
                    }
                    if suspects.kept.borrow_mut().remove(&(cont, unit)) {
                        places.insert((cont, unit, What::Facts));
                    }
                }
                // It is gone.
                Err(error)
                    if error.code == Code::NonExist
                        && cont != NO_CONT
                        && !ctx.shard.has_cont(cont) =>
                {
                    let mut places = ctx.suspects.places.borrow_mut();
                    places.retain(|(of, ..)| *of != cont);
                }
                Err(error) => last = last.and(Err(error)),
            }
        }
        let is_spread = !ctx.suspects.has_any(|unit| self.leads(ctx, unit));
        if is_spread {
            self.release_holds(ctx);
        }
        suspects.tell();
        last
    }

    /// Leaders that have damage in a key that this target suspects and has whole. They put it right from who tells of the same changes, or have
    /// others lead. Until then nothing is taken from them: who dropped the answer to an update that they never got, and then leads with the data of it, carries it out twice.
    async fn damaged_leaders(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        suspected: &BTreeMap<(ContId, Unit), Vec<What>>,
    ) -> BTreeSet<TargetId> {
        let mut damaged = BTreeSet::new();
        for ((cont, unit), all) in suspected {
            let Ok(leader) = self.leader_of(ctx, *unit) else { continue };
            if leader == self.id || damaged.contains(&leader) {
                continue;
            }
            for dkey in dkeys_of(all) {
                let ask = MemberAsk::Image { cont: *cont, unit: *unit, dkey, bytes_max: 0 };
                let told: Result<u64> = self.ask_member(ctx, map, leader, ask).await;
                let is_damaged = told.is_err_and(|error| is_damage(&error));
                if is_damaged && ctx.shard.dkey_image(*cont, *unit, dkey).await.is_ok() {
                    damaged.insert(leader);
                    break;
                }
            }
        }
        damaged
    }

    /// Gives all members what this leader has of some places.
    async fn spread(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        cont: ContId,
        unit: Unit,
        places: &[What],
    ) -> Result<()> {
        let Some(group) = self.led_group(ctx, unit)?.filter(|group| !group.followers.is_empty())
        else {
            return Ok(());
        };
        let answers = places.iter().filter_map(|what| match what {
            What::Answer(answered) => Some((answered.tx, unit)),
            What::Dkey(_) | What::Whole | What::Facts | What::Decided(..) | What::Notes => None,
        });
        let answers: Vec<(TxId, Unit)> = answers.collect();
        let told = self.ship_answers(pool, ctx, &group, &answers)?;
        if cont == NO_CONT {
            for what in places {
                self.tell_decided(pool, ctx, unit, what)?.settled().await?;
            }
            return told.settled().await;
        }
        let mut all: BTreeSet<Vec<u8>> = dkeys_of(places).map(<[u8]>::to_vec).collect();
        if places.contains(&What::Whole) {
            all.extend(self.keys_here(ctx, cont, unit).await?.into_keys());
            for member in &group.followers {
                all.extend(self.keys_at(ctx, map, *member, cont, unit).await?.into_keys());
            }
        }
        let all: Vec<&serde_bytes::Bytes> =
            all.iter().map(|key| serde_bytes::Bytes::new(key)).collect();
        let what = Keys { cont, unit, dkeys: &all, with_facts: true };
        self.mend(pool, ctx, &group, what).await
    }

    /// Gets what the leader has of some places, and the first time its notes and answers.
    #[expect(clippy::too_many_arguments, reason = "a place, and whom to ask")]
    async fn ask_for(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        leader: TargetId,
        is_first: bool,
        cont: ContId,
        unit: Unit,
        places: &[What],
    ) -> Result<()> {
        if is_first {
            let (_, decisions) = self.take_notes_of(ctx, map, leader, &|_| true).await?;
            let mut unknown = self.answers_unknown_to(ctx, map, leader, false, &|_| true).await?;
            self.drop_decisions(ctx, &decisions, &mut unknown)?;
            ctx.suspects.note_unknown(leader, unknown);
        }
        if cont == NO_CONT {
            let is_led = |unit| self.leader_of(ctx, unit).is_ok_and(|of| of == leader);
            if ctx.suspects.has_data_of(is_led) {
                return Err(Error::new(Code::Busy, "what an answer is about is not settled yet"));
            }
            return self.drop_unknown_answers(ctx, leader, map.version).await;
        }
        if places.contains(&What::Whole) {
            self.compare_keys(ctx, map, leader, (cont, unit), false).await?;
        }
        let dkeys = dkeys_of(places).map(serde_bytes::Bytes::new).collect();
        let ask = MemberAsk::Mend { cont, unit, dkeys, with_facts: true };
        self.ask_member(ctx, map, leader, ask).await
    }

    /// Gets the answers for retries that a leader keeps, and drops others of those of its groups that are meant: what those
    /// were about nobody else has done; and decisions that it does not have.
    pub(crate) async fn take_answers_of(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        leader: TargetId,
        decisions: &[(TxId, Epoch)],
        is_meant: &dyn Fn(Unit) -> bool,
    ) -> Result<()> {
        let mut unknown = self.answers_unknown_to(ctx, map, leader, false, is_meant).await?;
        self.drop_decisions(ctx, decisions, &mut unknown)?;
        for tx in unknown {
            ctx.shard.forget_reply(tx)?;
        }
        ctx.shard.written(ctx.shard.last_lsn()).await
    }

    async fn drop_unknown_answers(
        &self,
        ctx: &TargetPool,
        leader: TargetId,
        map_version: u32,
    ) -> Result<()> {
        if ctx.map_version() != map_version {
            return Err(Error::bare(Code::Stale));
        }
        let unknown = ctx.suspects.unknown.borrow_mut().remove(&leader);
        for tx in unknown.into_iter().flatten() {
            ctx.shard.forget_reply(tx)?;
        }
        ctx.shard.durable(ctx.shard.last_lsn()).await
    }
}

fn dkeys_of(places: &[What]) -> impl Iterator<Item = &[u8]> {
    places.iter().filter_map(|what| match what {
        What::Dkey(dkey) => Some(&dkey[..]),
        What::Whole | What::Facts | What::Answer(_) | What::Decided(..) | What::Notes => None,
    })
}

fn punch_dkey(unit: Unit, dkey: &[u8]) -> Op<'_> {
    Op::PunchDkeys { unit, cond: Cond::NONE, dkeys: vec![serde_bytes::Bytes::new(dkey)] }
}

fn punch(unit: Unit) -> Op<'static> {
    Op::PunchObj { unit, cond: Cond::NONE, besides: b"" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::obj::Sums;

    /// An answer is found by each key that its update has changed, and by no other one: it goes when a leader's image takes that back.
    #[test]
    fn answers_are_found_by_what_they_are_about() {
        let unit = types::Oid { hi: 1, lo: 2 }.unit(0);
        let (cont, tx) = (ContId(7), TxId { client: types::ClientId(1), seq: 9 });
        let order = wire::encode(&Order::Apply {
            cont,
            epoch: Epoch(5),
            ops: vec![punch_dkey(unit, b"a"), punch_dkey(unit, b"b")],
            sums: Sums::NONE,
            origin: Some(OrderOrigin { tx, of: unit, reply: b"done" }),
            orphaned: Vec::new(),
            adopted: Vec::new(),
        });
        let suspects = Suspects::default();
        suspects.add_given(vec![Given { of: unit, order: Rc::new(order), places: Vec::new() }]);
        let about = |cont, dkey| suspects.answers_about(cont, unit, dkey);
        assert_eq!([about(cont, b"a"), about(cont, b"b")], [[(tx, Epoch(5))]; 2].map(Vec::from));
        assert_eq!([about(cont, b"c"), about(ContId(8), b"a")], [vec![], vec![]]);
        assert!(suspects.has_answer(unit, tx));
        assert!(!suspects.has_answer(unit, TxId { seq: 8, ..tx }));
    }
}
