//! What a leader tells and sends a member that may differ from it.
//!
//! What is sent goes among the orders, so that it is true at its place in the stream: a later order finds with the member
//! what it found here.

use crate::damage::{Spot, is_damage};
use crate::give_way::TURN_BYTES;
use crate::group::{Group, has_all_of};
use crate::streams::Sent;
use crate::suspects::{What, changed_by};
use crate::target::{Target, TargetPool};
use std::rc::Rc;
use std::time::Duration;
use transport::Incoming;
use types::limits::BULK_BYTES_MAX;
use types::{Code, ContId, Epoch, Error, PoolId, Result, TargetId, Unit};
use wire::member::{KeyList, MemberAsk, MemberRequest, Notes, UnitList};
use wire::obj::{Cond, Op, Request, Sums, TxId};
use wire::order::{Order, OrderOrigin};

/// Who waits for a decision looks so often whether the engine is stopping.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// What is left of a lot after so long is sent without more waiting, for whoever asked waits for an answer.
pub(crate) const TURNS_TIME_MAX: Duration = Duration::from_secs(5);
/// Images with more bytes are sent in parts of so many.
const PART_BYTES: usize = 8 << 20;
/// Largest image of a key: both ends have it in memory.
pub(crate) const IMAGE_BYTES_MAX: usize = 1 << 30;
/// Most units or keys in an answer.
const LIST_MAX: usize = 4096;

/// Keys of a unit that are to be sent whole.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub cont: ContId,
    pub unit: Unit,
    pub dkeys: &'a [&'a serde_bytes::Bytes],
    /// With what is known of the unit itself, after the last key.
    pub with_facts: bool,
}

/// What a leader that is behind itself says instead of the newest epoch of what orders have touched since: that may be as new as a member's, and what is below it
/// not the same. It is no epoch that a member has, so that they are compared.
pub(crate) const NOT_KNOWN: Epoch = Epoch::MAX;

impl Target {
    /// Serves a question of another target.
    pub(crate) async fn serve_member(self: Rc<Self>, incoming: Incoming) {
        let mut bulk = Vec::new();
        let body = match self.answer_member(&incoming.body, &mut bulk).await {
            Ok(body) => body,
            Err(error) => wire::encode(&Err::<(), Error>(error)),
        };
        let pieces = [&bulk[..]];
        let pieces = if bulk.is_empty() { &pieces[..0] } else { &pieces[..] };
        self.send(incoming.responder, 0, &body, pieces).await;
    }

    /// The encoded answer, `Ok` tag included, and what goes with it.
    async fn answer_member(self: &Rc<Self>, body: &[u8], bulk: &mut Vec<u8>) -> Result<Vec<u8>> {
        let Request::Member(asked) = wire::decode::<Request<'_>>(body)? else {
            return Err(Error::bare(Code::Proto));
        };
        let MemberRequest { pool, map_version, member, newest, ask } = asked;
        let ctx = self.pools.mapped(pool).await?;
        if map_version > ctx.map_version() {
            self.take_map_of(&ctx, pool, member).await?;
        }
        if map_version < ctx.map_version() {
            return Err(Error::bare(Code::Stale));
        }
        ctx.clock.observe(newest);
        // What it has to settle it knows: nothing, as it was opened again, and is to compare everything. And bytes of one that is behind are compared with the sums of what is
        // damaged with whoever asks; not so whether it has them.
        let fills =
            matches!(ask, MemberAsk::Image { bytes_max: 1.., .. } | MemberAsk::ImagePart { .. })
                && !placement::is_live(self.id, &*ctx.map()?);
        if ctx.is_unsure() && ask != MemberAsk::Settled && !fills {
            let text =
                format!("target {} was opened again and does not know yet what it leads", self.id);
            return Err(Error::new(Code::Busy, text));
        }
        match ask {
            MemberAsk::Units { cont, .. } | MemberAsk::CellUnits { cont, .. } => {
                self.require_pages_for(&ctx, cont, None)?;
            }
            MemberAsk::Keys { cont, unit, .. }
            | MemberAsk::Mend { cont, unit, .. }
            | MemberAsk::Stripes { cont, unit, .. }
            | MemberAsk::Digest { cont, unit }
            | MemberAsk::Image { cont, unit, .. }
            | MemberAsk::ImagePart { cont, unit, .. } => {
                self.require_pages_for(&ctx, cont, Some(unit))?;
            }
            MemberAsk::Notes
            | MemberAsk::Answers { .. }
            | MemberAsk::UnitsAtHand { .. }
            | MemberAsk::Settled
            | MemberAsk::DropCells { .. }
            | MemberAsk::Follows
            | MemberAsk::SettledOrders
            | MemberAsk::LastAsked { .. }
            | MemberAsk::Outcome { .. }
            | MemberAsk::Compare { .. } => {}
        }
        match ask {
            MemberAsk::Units { cont, after, count_max }
            | MemberAsk::UnitsAtHand { cont, after, count_max } => {
                self.await_untold_parts(&ctx, member).await?;
                let count_max = (count_max as usize).clamp(1, LIST_MAX);
                let mut units = self.units_for(&ctx, cont, member, after, count_max).await?;
                units.units.retain(|of| !ctx.shard.lacks_page_of(cont, of.unit, None));
                Ok(wire::encode(&Ok::<_, Error>(units)))
            }
            MemberAsk::Keys { cont, unit, after, count_max } => {
                let count_max = (count_max as usize).clamp(1, LIST_MAX);
                let (keys, complete) = ctx.shard.list_keys(cont, unit, after, count_max).await?;
                let keys = keys.into_iter().map(|(key, newest)| {
                    let is_unsure =
                        ctx.joining.may_be_ordered_key(&ctx, (cont, unit), &key, newest);
                    let newest = if is_unsure { NOT_KNOWN } else { newest };
                    (serde_bytes::ByteBuf::from(key), newest)
                });
                Ok(wire::encode(&Ok::<_, Error>(KeyList { keys: keys.collect(), complete })))
            }
            MemberAsk::Mend { cont, unit, dkeys, with_facts } => {
                let to_member = Group { of: unit, followers: [member].into_iter().collect() };
                let what = Keys { cont, unit, dkeys: &dkeys, with_facts };
                self.mend_in_turns(pool, &ctx, &to_member, what).await?;
                Ok(wire::encode(&Ok::<(), Error>(())))
            }
            MemberAsk::Notes => {
                self.send_notes(pool, &ctx, member).await?;
                let notes = self.notes_for(&ctx, member);
                // What is not among them any more was decided; the member is to know how before it drops its own, and this
                // target must not forget it.
                ctx.shard.written(ctx.shard.last_lsn()).await?;
                ctx.streams.reach(member).await?;
                if ctx.map_version() != map_version {
                    return Err(Error::bare(Code::Stale));
                }
                Ok(wire::encode(&Ok::<_, Error>(notes)))
            }
            MemberAsk::Answers { after, count_max, is_list } => {
                let count_max = (count_max as usize).clamp(1, LIST_MAX);
                let kept = self.answers_for(&ctx, member, after, count_max);
                let sent = match is_list {
                    true => kept.into_iter().map(|(tx, _)| tx).collect(),
                    false => self.send_answers(pool, &ctx, member, kept).await?,
                };
                Ok(wire::encode(&Ok::<_, Error>(sent)))
            }
            MemberAsk::CellUnits { cont, after, count_max } => {
                let count_max = (count_max as usize).clamp(1, LIST_MAX);
                let units = self.cell_units_for(&ctx, cont, member, after, count_max).await?;
                self.still_leads(&ctx, map_version).await?;
                Ok(wire::encode(&Ok::<_, Error>(units)))
            }
            MemberAsk::Stripes { cont, unit, after, count_max } => {
                self.led_group(&ctx, unit)?;
                let count_max = (count_max as usize).clamp(1, LIST_MAX);
                let stripes = self.stripes_of(&ctx, cont, unit, after, count_max).await?;
                self.still_leads(&ctx, map_version).await?;
                Ok(wire::encode(&Ok::<_, Error>(stripes)))
            }
            MemberAsk::Digest { cont, unit } => {
                let digest = ctx.shard.digest(cont, unit).await?;
                Ok(wire::encode(&Ok::<u64, Error>(digest)))
            }
            MemberAsk::Image { cont, unit, dkey, bytes_max } => {
                let map = ctx.map()?;
                let may_tell = bytes_max > 0 || placement::is_live(self.id, &map);
                if !self.is_member(&map, unit) || !may_tell {
                    return Err(Error::bare(Code::Stale));
                }
                let image = ctx.shard.dkey_image(cont, unit, dkey).await;
                if image.as_ref().is_err_and(is_damage) && !unit.is_cell() && self.leads(&ctx, unit)
                {
                    // Whoever suspects the key waits for that, changes wait for the suspicion, and no reader may come.
                    self.mend_soon(&ctx, Spot::new(cont, unit, dkey, b""));
                }
                let image = image?;
                let bytes = image.len() as u64;
                if bytes <= bytes_max {
                    *bulk = image;
                }
                Ok(wire::encode(&Ok::<u64, Error>(bytes)))
            }
            MemberAsk::ImagePart { cont, unit, dkey, at, bytes_max } => {
                if !self.is_member(&*ctx.map()?, unit) {
                    return Err(Error::bare(Code::Stale));
                }
                let image = ctx.shard.dkey_image(cont, unit, dkey).await?;
                let bytes = image.len() as u64;
                let from = at.min(bytes) as usize;
                let part = (bytes_max.min(BULK_BYTES_MAX as u64) as usize).min(image.len() - from);
                bulk.extend_from_slice(&image[from..from + part]);
                Ok(wire::encode(&Ok::<u64, Error>(bytes)))
            }
            MemberAsk::Settled => {
                self.settle_for(&ctx, member, map_version).await?;
                Ok(wire::encode(&Ok::<(), Error>(())))
            }
            // That is what was looked at above.
            MemberAsk::Follows => Ok(wire::encode(&Ok::<(), Error>(()))),
            MemberAsk::SettledOrders => {
                let settled = ctx.streams.settled_for(member, &ctx.shard);
                Ok(wire::encode(&Ok::<_, Error>(settled)))
            }
            MemberAsk::LastAsked { cont, units } => {
                let asked_s = |unit: &Unit| ctx.last_asked.asked_s(cont, *unit);
                let all: Vec<u32> = units.iter().map(asked_s).collect();
                Ok(wire::encode(&Ok::<_, Error>(all)))
            }
            MemberAsk::Outcome { tx, decision } => {
                self.note_outcome(&ctx, tx, decision).await?;
                Ok(wire::encode(&Ok::<(), Error>(())))
            }
            MemberAsk::Compare { cont, unit, newest } => {
                self.compare_with(&ctx, member, (cont, unit), newest).await?;
                Ok(wire::encode(&Ok::<(), Error>(())))
            }
            MemberAsk::DropCells { until, units } => {
                let now = self.drop_cells_of(&ctx, member, until, units).await?;
                Ok(wire::encode(&Ok::<_, Error>(now)))
            }
        }
    }

    /// True when this target leads the group of a unit, and `member` is in it.
    pub(crate) fn leads_for(&self, ctx: &TargetPool, unit: Unit, member: TargetId) -> bool {
        let group = self.led_group(ctx, unit);
        group.is_ok_and(|group| group.is_some_and(|group| group.followers.contains(&member)))
    }

    /// Parts of transactions from before `member` was told of parts are decided without it: what they change is to be
    /// told from what it has.
    async fn await_untold_parts(&self, ctx: &Rc<TargetPool>, member: TargetId) -> Result<()> {
        let untold: Vec<_> = ctx.shard.prepared().into_iter().map(|(tx, _)| tx).collect();
        let is_untold = |tx| {
            ctx.shard.is_prepared(tx)
                && crate::commit::part_units(ctx, tx)
                    .into_iter()
                    .any(|unit| self.leads_for(ctx, unit, member))
        };
        while let Some(tx) = untold.iter().find(|tx| is_untold(**tx)) {
            tracing::debug!("target {}: part {tx:?} is to be decided for {member}", self.id);
            ctx.undecided.wait(&self.env, *tx, LOOK_PAUSE).await;
            if self.is_done_with(ctx) {
                return Err(Error::new(
                    Code::Closed,
                    "this part of the pool is not served any more",
                ));
            }
        }
        Ok(())
    }

    /// Parts of transactions that change a key are decided before its image goes anywhere. Who gets it may have seen one decided by an earlier leader: the image would take back
    /// what that has changed, and when it is decided here nobody has it take effect there once more. Of later parts every member is told.
    ///
    /// Errors: `Busy` when one is in doubt for long; at once where a member that has all of its groups is to get the key, for what else a lost leader left is not to wait.
    async fn await_older_parts(
        &self,
        ctx: &Rc<TargetPool>,
        to: &Group,
        cont: ContId,
        unit: Unit,
        dkey: &[u8],
    ) -> Result<()> {
        let held = ctx.shard.prepared();
        if held.is_empty() {
            return Ok(());
        }
        let map = ctx.map()?;
        let waits = !to.followers.iter().any(|member| has_all_of(*member, &map, unit));
        let until = self.env.now() + if waits { TURNS_TIME_MAX } else { Duration::ZERO };
        for (tx, _) in held {
            if !changes_key(ctx, tx, cont, unit, dkey) {
                continue;
            }
            while ctx.shard.is_prepared(tx) {
                if self.is_done_with(ctx) || self.env.now() >= until {
                    let text = format!("a transaction that changes a key of {unit} is in doubt");
                    return Err(Error::new(Code::Busy, text));
                }
                ctx.undecided.wait(&self.env, tx, LOOK_PAUSE).await;
            }
        }
        Ok(())
    }

    async fn units_for(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        member: TargetId,
        after: Option<Unit>,
        count_max: usize,
    ) -> Result<UnitList> {
        if !ctx.shard.holds_copies() {
            return Ok(UnitList::default());
        }
        let (found, complete) = ctx.shard.list_units(cont, after, count_max).await?;
        let next = if complete { None } else { found.last().map(|(unit, _)| *unit) };
        let is_meant = |unit: &Unit| !unit.is_cell() && self.leads_for(ctx, *unit, member);
        let meant = found.into_iter().filter(|(unit, _)| is_meant(unit));
        let listed = |(unit, newest)| {
            let newest = match ctx.joining.may_be_ordered(ctx, cont, unit) {
                true => NOT_KNOWN,
                false => newest,
            };
            ctx.last_asked.listed(cont, unit, newest)
        };
        Ok(UnitList { units: meant.map(listed).collect(), next })
    }

    /// Sends some keys to a follower that asks for them, and beside clients only a little at a time; what has one copy left goes first.
    async fn mend_in_turns(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        to: &Group,
        mut what: Keys<'_>,
    ) -> Result<()> {
        let is_last = self.is_last_copy(ctx, what.unit);
        let urgent = &ctx.joining.urgent;
        let _urgent = is_last.then(|| urgent.begin());
        if !is_last {
            self.wait_for_urgent(urgent).await;
        }
        let until = self.env.now() + TURNS_TIME_MAX;
        loop {
            let mut turn = self.wait_for_turn(ctx, is_last, until).await;
            let bytes_max = if turn.is_some() { TURN_BYTES } else { usize::MAX };
            let (count, bytes) = self.mend_up_to(pool, ctx, to, what, bytes_max).await?;
            if let Some(turn) = &mut turn {
                turn.note(bytes);
            }
            drop(turn);
            what.dkeys = &what.dkeys[count..];
            if what.dkeys.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends some keys whole to some followers of a group that this target leads; ends when they have them.
    pub(crate) async fn mend(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        to: &Group,
        what: Keys<'_>,
    ) -> Result<()> {
        self.mend_up_to(pool, ctx, to, what, usize::MAX).await.map(|_| ())
    }

    /// The same of as many of the keys as make up so many bytes, one at least; how many they are, and their bytes.
    async fn mend_up_to(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        to: &Group,
        what: Keys<'_>,
        bytes_max: usize,
    ) -> Result<(usize, usize)> {
        let Keys { cont, unit, dkeys, with_facts } = what;
        let mut sent = Vec::with_capacity(dkeys.len() + 1);
        let (mut count, mut bytes) = (0, 0);
        for dkey in dkeys {
            if bytes >= bytes_max {
                break;
            }
            self.await_older_parts(ctx, to, cont, unit, dkey).await?;
            let mut is_mended = false;
            let image = loop {
                let watch = ctx.streams.watch();
                let image = match ctx.shard.dkey_image(cont, unit, dkey).await {
                    // Another member may have what is damaged here.
                    Err(error) if is_damage(&error) && !is_mended => {
                        drop(watch);
                        is_mended = true;
                        match self.mend_spot(ctx, &Spot::new(cont, unit, dkey, b"")).await {
                            true => continue,
                            false => return Err(error),
                        }
                    }
                    image => image?,
                };
                let read = Op::Fetch { unit, dkey, cond: Cond::NONE, iods: Vec::new() };
                // The image would undo an order that came before it meanwhile.
                if !watch.has_changed(cont, read) {
                    break image;
                }
            };
            self.must_lead(ctx, unit, to)?;
            // What is frozen is told of nothing but what was ordered before.
            ctx.shard.require_open(cont)?;
            (count, bytes) = (count + 1, bytes + image.len());
            sent.extend(self.ship_image(pool, ctx, to, (cont, unit, dkey), image)?);
        }
        if with_facts && count == dkeys.len() {
            let facts = loop {
                let watch = ctx.streams.watch();
                let facts = ctx.shard.unit_facts(cont, unit).await?;
                if !watch.has_changed(cont, Op::Stat { unit }) {
                    break facts;
                }
            };
            self.must_lead(ctx, unit, to)?;
            ctx.shard.require_open(cont)?;
            let order = Order::InstallFacts { cont, unit };
            sent.push(self.ship(pool, ctx, Some(to), &order, facts, None));
        }
        for sent in sent {
            sent.settled().await?;
        }
        Ok((count, bytes))
    }

    /// Sends an image, in parts when it is large: in one step, so that nothing comes between them.
    fn ship_image(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        to: &Group,
        (cont, unit, dkey): (ContId, Unit, &[u8]),
        image: Vec<u8>,
    ) -> Result<Vec<Sent>> {
        if image.len() > IMAGE_BYTES_MAX {
            let text = format!("a key of object {} has {} bytes", unit.object, image.len());
            return Err(Error::new(Code::RecordTooBig, text));
        }
        if image.len() <= PART_BYTES {
            let order = Order::Install { cont, unit, dkey, before: 0 };
            return Ok(vec![self.ship(pool, ctx, Some(to), &order, image, None)]);
        }
        let last = (image.len() - 1) / PART_BYTES * PART_BYTES;
        let mut sent = Vec::new();
        for (at, part) in (0..last).step_by(PART_BYTES).zip(image.chunks(PART_BYTES)) {
            let order = Order::InstallPart { cont, unit, dkey, at: at as u64 };
            sent.push(self.ship(pool, ctx, Some(to), &order, part.to_vec(), None));
        }
        let order = Order::Install { cont, unit, dkey, before: last as u64 };
        sent.push(self.ship(pool, ctx, Some(to), &order, image[last..].to_vec(), None));
        Ok(sent)
    }

    fn must_lead(&self, ctx: &TargetPool, unit: Unit, members: &Group) -> Result<()> {
        match members.followers.iter().all(|member| self.leads_for(ctx, unit, *member)) {
            true => Ok(()),
            false => Err(Error::bare(Code::Stale)),
        }
    }

    fn notes_for(&self, ctx: &TargetPool, member: TargetId) -> Notes {
        let of_part = |tx: &TxId| crate::commit::part_unit(ctx, *tx);
        let is_meant =
            |unit: Option<Unit>| unit.is_some_and(|unit| self.leads_for(ctx, unit, member));
        let parts = ctx.shard.prepared().into_iter().map(|(tx, _)| tx);
        let decisions = ctx.shard.decisions().into_iter();
        Notes {
            conts: ctx.shard.conts(),
            parts: parts.filter(|tx| is_meant(of_part(tx))).collect(),
            decisions: decisions
                .filter(|(_, _, participants)| is_meant(participants.first().copied()))
                .map(|(tx, ..)| tx)
                .collect(),
        }
    }

    /// The answers that this target keeps of groups that it leads and a member is in.
    fn answers_for(
        &self,
        ctx: &TargetPool,
        member: TargetId,
        after: Option<TxId>,
        count_max: usize,
    ) -> Vec<(TxId, Unit)> {
        let kept = ctx.shard.shared_replies().into_iter();
        let kept = kept.filter(|(tx, of)| Some(*tx) > after && self.leads_for(ctx, *of, member));
        kept.take(count_max).collect()
    }

    async fn send_answers(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        member: TargetId,
        kept: Vec<(TxId, Unit)>,
    ) -> Result<Vec<TxId>> {
        let Some((_, of)) = kept.first().copied() else { return Ok(Vec::new()) };
        let to_member = Group { of, followers: [member].into_iter().collect() };
        // What a lost leader left goes after what it is about ([`crate::suspects`]).
        let is_settled = |(tx, of): &&(TxId, Unit)| !ctx.suspects.has_answer(*of, *tx);
        let settled: Vec<(TxId, Unit)> = kept.iter().filter(is_settled).copied().collect();
        self.ship_answers(pool, ctx, &to_member, &settled)?.settled().await?;
        Ok(kept.into_iter().map(|(tx, _)| tx).collect())
    }

    /// Sends what is kept of some answers.
    pub(crate) fn ship_answers(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        to: &Group,
        kept: &[(TxId, Unit)],
    ) -> Result<Sent> {
        if kept.is_empty() {
            return Ok(Sent::NOWHERE);
        }
        let mut replies = Vec::with_capacity(kept.len());
        for (tx, of) in kept {
            if let Some(reply) = ctx.shard.replayed(*tx)? {
                replies.push((*tx, *of, reply));
            }
        }
        let answers = replies.iter().map(|(tx, of, reply)| OrderOrigin { tx: *tx, of: *of, reply });
        let order = Order::Answers { answers: answers.collect() };
        Ok(self.ship(pool, ctx, Some(to), &order, Vec::new(), None))
    }

    pub(crate) async fn send_notes(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        member: TargetId,
    ) -> Result<()> {
        let to_member = |of: Unit| Group { of, followers: [member].into_iter().collect() };
        let mut sent = Vec::new();
        for (tx, epoch, participants) in ctx.shard.decisions() {
            let of = participants.first().copied();
            if let Some(of) = of.filter(|unit| self.leads_for(ctx, *unit, member)) {
                let order = Order::Decision { tx, epoch, participants, origin: None };
                let to = to_member(of);
                sent.push(self.ship(pool, ctx, Some(&to), &order, Vec::new(), None));
            }
        }
        for (cont, unit) in ctx.shard.orphans() {
            if self.leads_for(ctx, unit, member) {
                let order = Order::Apply {
                    cont,
                    epoch: Epoch::ZERO,
                    ops: Vec::new(),
                    sums: Sums::NONE,
                    origin: None,
                    orphaned: vec![unit],
                    adopted: Vec::new(),
                };
                let to = to_member(unit);
                sent.push(self.ship(pool, ctx, Some(&to), &order, Vec::new(), None));
            }
        }
        for sent in sent {
            sent.settled().await?;
        }
        Ok(())
    }
}

/// True when a part that is held here changes this key.
fn changes_key(ctx: &TargetPool, tx: TxId, cont: ContId, unit: Unit, dkey: &[u8]) -> bool {
    let Some((of, part)) = ctx.shard.prepared_batch(tx).filter(|(of, _)| *of == cont) else {
        return false;
    };
    let mut changes = false;
    changed_by(of, &part.batch().ops, &mut |(_, at, what)| {
        changes |= at == unit
            && match what {
                What::Dkey(changed) => changed == dkey,
                What::Whole => true,
                What::Facts | What::Answer(_) | What::Decided(..) | What::Notes => false,
            };
    });
    changes
}
