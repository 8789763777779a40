//! A member that was away catches up with the leaders of its groups.
//!
//! From the map on that says that it is *behind*, a target follows like any other member; what it missed before, it
//! asks for: units and keys whose newest epochs differ from its leader's, and those that orders have touched
//! since, for on what was missing before they built on sand. When all of it is the same, the control service hears
//! of it, and the target is a whole member with the next map. Groups with one copy left go before all others. Any other change of the map meanwhile begins it anew:
//! another leader may have taken over in between.
//!
//! A target that is to stand in for another one ([`wire::map::PoolMap::next`]) comes to its new groups in the same way. One that is
//! behind has its own places first: what it is to have for others may have to wait for room, and meanwhile its groups have a copy less.

use crate::give_way;
use crate::lost_pages;
use crate::mend::TURNS_TIME_MAX;
use crate::target::{Target, TargetPool};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use types::map::HashMap;
use types::{Code, ContId, Epoch, Error, PoolId, Result, TargetId, Unit};
use wire::Kind;
use wire::control::{ControlReply, ControlRequest};
use wire::hello::Service;
use wire::map::{DownReason, OutTarget, PoolMap, TargetInfo};
use wire::member::{KeyList, ListedUnit, MemberAsk, MemberRequest, Notes, UnitList};
use wire::obj::{Request, TxId};

/// Units whose keys are compared at the same time. A leader has images of so many times [`Portions::mended`] dkeys in memory for each
/// member that catches up.
const UNITS_AT_ONCE: usize = 16;
/// Pauses before another try: the first, and where doubling ends.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Who is drained, and keeps something for want of others, or cannot be told all, looks again after so long, or under another map.
const KEEP_PAUSE: Duration = Duration::from_secs(30);

/// How long members are waited for that are asked when somebody wanted something of what moves.
const USE_TIME_MAX: Duration = Duration::from_secs(1);

/// A unit that differs from its leader's.
struct Differing {
    /// Members that have all of it; as many as can be, if all have that are to have it.
    copies_left: usize,
    /// When it was last used, if it only moves, seconds since 1970.
    used_s: u32,
    cont: ContId,
    unit: Unit,
    leader: TargetId,
}

impl Target {
    /// After a change of the map: begins to catch up if this target is behind, or targets come to stand in for others.
    pub(crate) fn join_groups(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        let joining = &ctx.joining;
        let joins = |map: &PoolMap| {
            let is_behind = |info: &TargetInfo| info.reason == Some(DownReason::Behind);
            map.target(self.id).is_some_and(is_behind)
                || (map.next.is_some() && placement::is_live(self.id, map))
        };
        if !ctx.map().is_ok_and(|map| joins(&map)) {
            if !ctx.is_unsure() {
                if joining.is_behind() {
                    ctx.mending.has_caught_up();
                }
                joining.end(self.env.now());
            }
            return;
        }
        joining.begin(&ctx.shard);
        if !joining.begin_to_run() {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            let mut pause = PAUSE_MIN;
            while !target.is_done_with(&ctx) && ctx.joining.is_behind() {
                if !ctx.joining.has_told(ctx.map_version())
                    && let Err(error) = target.catch_up(pool, &ctx).await
                {
                    tracing::info!("target {}: pool {pool}: catching up: {error}", target.id);
                    match error.code {
                        Code::NoSpace => target.tell_that_it_is_full(pool, &ctx).await,
                        Code::Redundancy => target.await_map_after(&ctx, KEEP_PAUSE).await,
                        _ => {}
                    }
                }
                if !ctx.joining.is_behind() {
                    break;
                }
                // timer: a pause before another try.
                target.env.sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            ctx.joining.end_running();
        });
    }

    /// One try. Ends well once the control service has heard of it.
    async fn catch_up(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) -> Result<()> {
        let map = ctx.map()?;
        if ctx.joining.is_clearing() {
            return Err(Error::new(Code::Busy, "what is of groups of others is being dropped"));
        }
        ctx.joining.begin_try(self.env.now());
        let is_lacking = |unit: Unit| self.catches_up_with(&map, unit);
        // Nobody else leads.
        let leads = |target: &TargetId| *target != self.id && self.may_tell(ctx, &map, *target);
        let others: Vec<TargetId> = map.targets.iter().map(|info| info.id).filter(leads).collect();
        ctx.joining.count(|stat| {
            stat.tries += 1;
            (stat.targets_left, stat.units_left) = (others.len() as u64, 0);
            stat.units_done = 0;
        });
        let (mut differ, mut unknown_decisions) = (Vec::new(), Vec::new());
        // The notes of all leaders first: a container that is being rolled back is not compared before that is over, and that waits for parts which
        // are held here and end with what a leader notes.
        for &other in &others {
            let (conts, decisions) = self.take_notes_of(ctx, &map, other, &is_lacking).await?;
            unknown_decisions.push((other, decisions));
            if let Some(cont) = conts.iter().find(|cont| !ctx.shard.has_cont(**cont)) {
                // Made or destroyed meanwhile; the control service will tell.
                let text = format!("it has not been told yet of container {cont}");
                return Err(Error::new(Code::Busy, text));
            }
        }
        for &other in &others {
            if !placement::is_live(self.id, &map) {
                // They go with what they are about.
                let unknown = self.answers_unknown_to(ctx, &map, other, true, &is_lacking).await?;
                ctx.suspects.note_unknown(other, unknown);
            }
            for cont in ctx.shard.conts() {
                differ.extend(self.differing_units(ctx, &map, other, cont).await?);
            }
            ctx.joining.count(|stat| stat.targets_left = stat.targets_left.saturating_sub(1));
        }
        self.add_use_at_members(ctx, &map, &mut differ).await;
        let mut mended = self.compare_units(ctx, &map, differ).await?;
        if let Some(leader) = ctx.joining.untold_by() {
            self.note_page_wait(pool, ctx, &map, leader);
            return Err(lost_pages::untold(leader));
        }
        mended += self.mend_cells(ctx, &map).await?;
        if ctx.joining.is_full() {
            return Err(no_room());
        }
        // Should this target lead next: with answers of others before what they are about it would tell of what is not here; without its own, before that is
        // replaced, who asks again would change a second time what is here still.
        for (other, decisions) in unknown_decisions {
            self.take_answers_of(ctx, &map, other, &decisions, &is_lacking).await?;
        }
        if !placement::is_live(self.id, &map) {
            // Of leaders of earlier tries, too: this target may lead soon.
            ctx.suspects.forget_unknown();
        }
        let kept = match placement::is_live(self.id, &map) {
            true => self.units_kept(ctx, &map).await?,
            false => 0,
        };
        if kept > 0 {
            ctx.joining.count(|stat| stat.units_left = kept);
            let text = format!(
                "{kept} groups of what is drained have nobody else who could have them: the pool has too few other targets; take in \
                 further ones ('azekura pool extend')"
            );
            return Err(Error::new(Code::Redundancy, text));
        }
        if ctx.map_version() != map.version {
            return Err(Error::new(Code::Stale, "the pool map has changed meanwhile"));
        }
        if self.is_done_with(ctx) {
            return Err(Error::new(Code::Closed, "this part of the pool is not served any more"));
        }
        // From here to the claim no await: what finds no room later holds up others, and who rolls back after it does so as the others do.
        if ctx.joining.has_rolled_alone() {
            return Err(Error::new(Code::Busy, "a container was rolled back meanwhile"));
        }
        if ctx.joining.misses_something(self.env.now()) {
            return Err(no_room());
        }
        self.end_lacking_pages(pool, ctx, &map)?;
        ctx.joining.claim_under(map.version);
        tracing::info!("target {}: pool {pool}: caught up, {mended} keys mended", self.id);
        let (target, map_version) = (self.id, map.version);
        let told = match placement::is_live(self.id, &map) {
            true => ControlRequest::TargetJoined { pool, target, map_version },
            false => ControlRequest::TargetCaughtUp { pool, target, map_version },
        };
        let outcome = self.tell_control(&map, &told).await;
        match &outcome {
            Ok(()) => ctx.joining.note_told(map_version),
            // It may have been heard.
            Err(error) if matches!(error.code, Code::Unreach | Code::Closed | Code::TimedOut) => {}
            Err(_) => ctx.joining.claim_under(0),
        }
        outcome
    }

    /// Units of this target that it would go on having when all that moves has moved, though it is drained: all others have
    /// a part of the same groups already.
    async fn units_kept(self: &Rc<Self>, ctx: &Rc<TargetPool>, map: &Rc<PoolMap>) -> Result<u64> {
        let gives =
            |out: &OutTarget| out.target == self.id && out.is_drained && !map.outs.contains(out);
        if !map.next.iter().flatten().any(gives) {
            return Ok(0);
        }
        let Some(after) = map.after_moves() else { return Ok(0) };
        if ctx.shard.refuses_objects() {
            let text = "objects of one copy may have been in damaged pages of the index of what is drained: nobody can get them; destroy \
                        their containers, or exclude the target ('azekura pool exclude')";
            return Err(Error::new(Code::Redundancy, text));
        }
        let mut kept = 0;
        ctx.every_unit(async |_, unit| {
            let is_counted = unit.is_cell() || self.has_cells(&after, unit);
            kept += u64::from(!is_counted && !self.is_strange(&after, unit));
            Ok(())
        })
        .await?;
        // Stripes that are folded later have cells here, too.
        for cont in ctx.shard.conts() {
            let units = self.units_with_cells(ctx, map, cont).await?;
            let keeps = |unit: &Unit| self.has_cells(&after, *unit);
            kept += units.keys().filter(|unit| keeps(unit)).count() as u64;
        }
        Ok(kept)
    }

    /// Waits for another map, or for so long.
    async fn await_map_after(&self, ctx: &TargetPool, pause: Duration) {
        let version = ctx.map_version();
        self.await_map(ctx, pause, || ctx.map_version() != version).await;
    }

    /// Tells the control service, once under a map, that there is no room for what is missing here.
    async fn tell_that_it_is_full(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        let Ok(map) = ctx.map() else { return };
        if ctx.joining.has_told_full(map.version) {
            return;
        }
        let (target, map_version) = (self.id, map.version);
        let full = ControlRequest::TargetFull { pool, target, map_version };
        match self.tell_control(&map, &full).await {
            Ok(()) => ctx.joining.note_told_full(map_version),
            Err(error) => {
                tracing::info!("target {target}: pool {pool}: telling that it is full: {error}");
            }
        }
    }

    /// Tells the control service, once at a time, that this target is about to miss something.
    pub(crate) fn tell_that_it_lacks(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        map: Rc<PoolMap>,
    ) {
        if !ctx.joining.begin_to_tell() {
            return;
        }
        let (target, ctx) = (self.clone(), ctx.clone());
        self.env.spawn(async move {
            let (id, map_version) = (target.id, map.version);
            let lacks = ControlRequest::TargetLacks { pool, target: id, map_version };
            if let Err(error) = target.tell_control(&map, &lacks).await {
                tracing::info!("target {id}: pool {pool}: telling that it has no room: {error}");
            }
            ctx.joining.end_telling();
        });
    }

    /// Gets the notes of a leader: decisions and objects without a name. Parts in doubt of those of its groups that are meant, which it does not have itself,
    /// are ended. Returns the containers that it knows, and the decisions, with their epochs, that it does not have.
    pub(crate) async fn take_notes_of(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        leader: TargetId,
        is_meant: &dyn Fn(Unit) -> bool,
    ) -> Result<(Vec<ContId>, Vec<(TxId, Epoch)>)> {
        let is_theirs =
            |unit: Unit| self.leader_of(ctx, unit).is_ok_and(|of| of == leader) && is_meant(unit);
        // What it tells later comes in orders.
        let parts = ctx.shard.prepared().into_iter().map(|(tx, _)| tx);
        let is_of_theirs = |tx: &TxId| crate::commit::part_unit(ctx, *tx).is_some_and(is_theirs);
        let parts: Vec<TxId> = parts.filter(is_of_theirs).collect();
        let mut decisions: Vec<(TxId, Epoch)> = {
            let all = ctx.shard.decisions().into_iter();
            let of_theirs =
                all.filter(|(_, _, units)| units.first().copied().is_some_and(is_theirs));
            of_theirs.map(|(tx, epoch, _)| (tx, epoch)).collect()
        };
        let untold = self.listen_for_nameless(ctx, is_theirs);
        let notes: Notes = self.ask_member(ctx, map, leader, MemberAsk::Notes).await?;
        if ctx.map_version() != map.version {
            return Err(Error::new(Code::Stale, "the pool map has changed meanwhile"));
        }
        self.drop_untold(ctx, &untold)?;
        let over = parts.into_iter().filter(|tx| !notes.parts.contains(tx)).collect();
        self.end_parts(ctx, map, over).await?;
        decisions.retain(|(tx, _)| !notes.decisions.contains(tx));
        ctx.shard.written(ctx.shard.last_lsn()).await?;
        Ok((notes.conts, decisions))
    }

    /// Drops decisions that a leader has no note of. It has told all who had to know, or never had them; then it does not have the answer either, and
    /// that goes in the same step: this target may lead next. One that has been made anew since, and ordered here, stays.
    pub(crate) fn drop_decisions(
        &self,
        ctx: &TargetPool,
        decisions: &[(TxId, Epoch)],
        unknown_answers: &mut BTreeSet<TxId>,
    ) -> Result<()> {
        let is_kept = |(tx, epoch): &&(TxId, Epoch)| {
            ctx.shard.decision(*tx).is_some_and(|(now, _)| now == *epoch)
        };
        for (tx, _) in decisions.iter().filter(is_kept) {
            let answer = ctx.shard.answered_by(*tx);
            let is_undone = answer.is_some_and(|answer| unknown_answers.remove(&answer));
            tracing::debug!("target {}: drops decision {tx:?}, undone: {is_undone}", self.id);
            match is_undone {
                true => ctx.shard.undo_decision(*tx)?,
                false => ctx.shard.forget_decision(*tx)?,
            };
        }
        Ok(())
    }

    /// Gets the answers for retries that a leader keeps, or with `is_list` hears which these are; those of its groups that are here beside them, of units that
    /// are meant.
    pub(crate) async fn answers_unknown_to(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        leader: TargetId,
        is_list: bool,
        is_meant: &dyn Fn(Unit) -> bool,
    ) -> Result<BTreeSet<TxId>> {
        let is_theirs = |unit: &Unit| {
            self.leader_of(ctx, *unit).is_ok_and(|of| of == leader) && is_meant(*unit)
        };
        // What it answers later comes with its orders.
        let own = ctx.shard.shared_replies().into_iter();
        let mut own: BTreeSet<TxId> =
            own.filter(|(_, of)| is_theirs(of)).map(|(tx, _)| tx).collect();
        let mut after = None;
        loop {
            let count_max = self.portions().listed;
            let ask = MemberAsk::Answers { after, count_max, is_list };
            let sent: Vec<TxId> = self.ask_member(ctx, map, leader, ask).await?;
            for tx in &sent {
                own.remove(tx);
            }
            after = sent.last().copied();
            if sent.len() < count_max as usize {
                break;
            }
        }
        if ctx.map_version() != map.version {
            return Err(Error::new(Code::Stale, "the pool map has changed meanwhile"));
        }
        Ok(own)
    }

    /// Units of a container that `leader` leads and that may not be here as they are there.
    async fn differing_units(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        leader: TargetId,
        cont: ContId,
    ) -> Result<Vec<Differing>> {
        let is_move = give_way::lacks_nothing(map);
        let mut theirs: BTreeMap<Unit, ListedUnit> = BTreeMap::new();
        let mut after = None;
        loop {
            let page: UnitList = match self.ask_for_units(ctx, map, leader, cont, after).await {
                // It is being destroyed.
                Err(error) if error.code == Code::NonExist => return Ok(Vec::new()),
                page => page?,
            };
            let wanted =
                page.units.into_iter().filter(|listed| self.catches_up_with(map, listed.unit));
            theirs.extend(wanted.map(|listed| (listed.unit, listed)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let used_s = |listed: ListedUnit| if is_move { listed.used_s() } else { 0 };
        let mut differ: BTreeMap<Unit, u32> = BTreeMap::new();
        let mut after = None;
        while ctx.shard.holds_copies() {
            let count_max = self.portions().listed as usize;
            let listed = ctx.shard.list_units(cont, after, count_max).await?;
            let (units, complete) = listed;
            for (unit, epoch) in units.iter().filter(|(unit, _)| !unit.is_cell()) {
                let is_of_leader = self.leader_of(ctx, *unit).is_ok_and(|of| of == leader)
                    && self.catches_up_with(map, *unit);
                if !is_of_leader {
                    continue;
                }
                let listed = theirs.remove(unit);
                if listed.is_none() && ctx.joining.untold_by() == Some(leader) {
                    continue;
                }
                let is_same = listed.is_some_and(|listed| listed.newest == *epoch);
                // Epochs do not tell what is folded.
                let may_differ = unit.object.cells().is_some();
                if !is_same || may_differ || ctx.joining.has_touched(ctx, cont, *unit) {
                    differ.insert(*unit, listed.map_or(0, used_s));
                }
            }
            after = units.last().map(|(unit, _)| *unit);
            if complete {
                break;
            }
        }
        // What is left is not here at all.
        differ.extend(theirs.into_iter().map(|(unit, listed)| (unit, used_s(listed))));
        ctx.joining.count(|stat| stat.units_left += differ.len() as u64);
        let with_copies = |(unit, used_s): (Unit, u32)| {
            let copies_left = self.copies_left_of_lacking(map, unit).unwrap_or(usize::MAX);
            Differing { copies_left, used_s, cont, unit, leader }
        };
        Ok(differ.into_iter().map(with_copies).collect())
    }

    /// What only moves is compared by last use: clients may have asked others of a group than its leader ([`crate::member_reads`]). Who does not say counts as one that nobody
    /// has asked.
    async fn add_use_at_members(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        differ: &mut [Differing],
    ) {
        if !give_way::lacks_nothing(map) {
            return;
        }
        let mut of_members: BTreeMap<(TargetId, ContId), Vec<usize>> = BTreeMap::new();
        for (at, of) in differ.iter().enumerate() {
            let others = self.whole_members(map, of.unit).into_iter();
            for member in others.filter(|member| *member != of.leader) {
                of_members.entry((member, of.cont)).or_default().push(at);
            }
        }
        let count_max = self.portions().listed as usize;
        let asked = of_members.iter().flat_map(|((member, cont), all)| {
            let differ = &*differ;
            all.chunks(count_max).map(async move |some| {
                let units = some.iter().map(|at| differ[*at].unit).collect();
                let ask = MemberAsk::LastAsked { cont: *cont, units };
                let told = self.ask_member::<Vec<u32>>(ctx, map, *member, ask);
                let told = self.env.timeout(USE_TIME_MAX, told).await;
                let told = told.unwrap_or_else(|| Err(Error::bare(Code::TimedOut)));
                told.map(|told| some.iter().copied().zip(told).collect::<Vec<_>>())
            })
        });
        let mut all = stream::iter(asked).buffer_unordered(UNITS_AT_ONCE);
        let mut told = Vec::new();
        while let Some(of_member) = all.next().await {
            match of_member {
                Ok(of_member) => told.extend(of_member),
                Err(error) => tracing::debug!("target {}: last use: {error}", self.id),
            }
        }
        drop(all);
        for (at, asked_s) in told {
            differ[at].used_s = differ[at].used_s.max(asked_s);
        }
    }

    /// Compares units key by key, those with the fewest copies left first, and of what only moves what nobody has used for the longest time; how many
    /// keys were mended.
    async fn compare_units(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        mut differ: Vec<Differing>,
    ) -> Result<u64> {
        differ.sort_unstable_by_key(|of| (of.copies_left, of.used_s, of.cont, of.unit));
        ctx.joining.begin_to_compare(self.env.now());
        let compared = differ.into_iter().map(|Differing { cont, unit, leader, .. }| async move {
            if ctx.joining.is_full() {
                return Err(no_room());
            }
            let mended = match self.compare_keys(ctx, map, leader, (cont, unit), true).await {
                // Its container is being destroyed.
                Err(error) if error.code == Code::NonExist && !ctx.shard.has_cont(cont) => 0,
                mended => mended?,
            };
            ctx.joining.count(|stat| {
                stat.units_left = stat.units_left.saturating_sub(1);
                stat.units_done += 1;
                stat.units_mended += 1;
            });
            Ok::<u64, Error>(mended)
        });
        let compared = stream::iter(compared).buffer_unordered(UNITS_AT_ONCE);
        compared.try_fold(0, |sum, mended| async move { Ok(sum + mended) }).await
    }

    /// The keys of a unit that a target has, with the newest epoch of anything under each.
    pub(crate) async fn keys_at(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        target: TargetId,
        cont: ContId,
        unit: Unit,
    ) -> Result<HashMap<Vec<u8>, Epoch>> {
        let mut all: HashMap<Vec<u8>, Epoch> = HashMap::default();
        let mut last: Option<Vec<u8>> = None;
        loop {
            let count_max = self.portions().listed;
            let ask = MemberAsk::Keys { cont, unit, after: last.as_deref(), count_max };
            let page: KeyList = self.ask_member(ctx, map, target, ask).await?;
            last = page.keys.last().map(|(key, _)| key.to_vec());
            all.extend(page.keys.into_iter().map(|(key, epoch)| (key.into_vec(), epoch)));
            if page.complete {
                return Ok(all);
            }
        }
    }

    /// The same of this target.
    pub(crate) async fn keys_here(
        &self,
        ctx: &TargetPool,
        cont: ContId,
        unit: Unit,
    ) -> Result<BTreeMap<Vec<u8>, Epoch>> {
        let mut all = BTreeMap::new();
        let mut last: Option<Vec<u8>> = None;
        loop {
            let count_max = self.portions().listed as usize;
            let (keys, complete) =
                ctx.shard.list_keys(cont, unit, last.as_deref(), count_max).await?;
            last = keys.last().map(|(key, _)| key.clone());
            all.extend(keys);
            if complete {
                return Ok(all);
            }
        }
    }

    /// Compares the keys of a unit with its leader's; how many were mended. `gives_way`: nobody waits for it, so clients of this target come first.
    pub(crate) async fn compare_keys(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        leader: TargetId,
        (cont, unit): (ContId, Unit),
        gives_way: bool,
    ) -> Result<u64> {
        let mut theirs = self.keys_at(ctx, map, leader, cont, unit).await?;
        let mut differ: Vec<Vec<u8>> = Vec::new();
        for (key, epoch) in self.keys_here(ctx, cont, unit).await? {
            let is_same = theirs.remove(&key) == Some(epoch) && unit.object.cells().is_none();
            if !is_same || ctx.joining.has_touched_key(ctx, (cont, unit), &key, epoch) {
                differ.push(key);
            }
        }
        differ.extend(theirs.into_keys());
        // In a fixed order, so that simulated runs repeat.
        differ.sort_unstable();
        let mut left = &differ[..];
        loop {
            let (lot, later) = left.split_at(self.mend_count(ctx).min(left.len()));
            let dkeys = lot.iter().map(|key| serde_bytes::Bytes::new(key)).collect();
            let ask = MemberAsk::Mend { cont, unit, dkeys, with_facts: later.is_empty() };
            let is_last = self.is_last_copy(ctx, unit);
            let until = self.env.now() + TURNS_TIME_MAX;
            let _asking = match gives_way && !lot.is_empty() {
                true => self.wait_to_ask(ctx, is_last, until).await,
                false => None,
            };
            let () = self.ask_member(ctx, map, leader, ask).await?;
            ctx.joining.count(|stat| stat.keys_mended += lot.len() as u64);
            if later.is_empty() {
                return Ok(differ.len() as u64);
            }
            left = later;
        }
    }

    /// Asks another target something as a member of its groups.
    pub(crate) async fn ask_member<T: serde::de::DeserializeOwned>(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        other: TargetId,
        ask: MemberAsk<'_>,
    ) -> Result<T> {
        Ok(self.ask_member_for_bulk(ctx, map, other, ask, &mut []).await?.0)
    }

    /// The same for an answer with bulk; how many bytes of it there are.
    pub(crate) async fn ask_member_for_bulk<T: serde::de::DeserializeOwned>(
        self: &Rc<Self>,
        ctx: &Rc<TargetPool>,
        map: &PoolMap,
        other: TargetId,
        ask: MemberAsk<'_>,
        room: &mut [u8],
    ) -> Result<(T, usize)> {
        let engine = map.engine_of(other).ok_or_else(|| Error::bare(Code::NonExist))?;
        let (pool, map_version, newest) = (map.pool, map.version, ctx.shard.last_epoch());
        let request = MemberRequest { pool, map_version, member: self.id, newest, ask };
        let body = wire::encode(&Request::Member(request));
        let mut rooms = [room];
        let bulk_in = if rooms[0].is_empty() { &mut [][..] } else { &mut rooms[..] };
        let answer = self.peers.ask_with_bulk(engine, other, &body, &[], bulk_in).await?;
        match wire::decode::<Result<T>>(&answer.body)? {
            Err(error) if error.code == Code::Stale => {
                self.take_map_of(ctx, map.pool, other).await?;
                Err(error)
            }
            outcome => Ok((outcome?, answer.bulk_bytes)),
        }
    }

    /// Keys that are asked for together, by how large those are that have come.
    fn mend_count(&self, ctx: &TargetPool) -> usize {
        let (stat, portions) = (ctx.joining.mended(), self.portions());
        let of_each = stat.bytes_mended / stat.keys_mended.max(1);
        let fit = portions.mended_bytes.checked_div(of_each);
        fit.map_or(portions.mended, |count| (count as usize).clamp(1, portions.mended))
    }

    /// Tells the control service something through any engine of the pool, its own first.
    pub(crate) async fn tell_control(&self, map: &PoolMap, request: &ControlRequest) -> Result<()> {
        let body = wire::encode(request);
        let own = map.target(self.id).map(|info| info.rank);
        let mut engines: Vec<_> = map.engines.iter().collect();
        engines.sort_by_key(|engine| Some(engine.rank) != own);
        let mut last = Error::bare(Code::Unreach);
        for engine in engines {
            let asked = async {
                let conn = self.peers.connect(engine, Service::Control).await?;
                let answer = self.peers.call(&conn, Kind::Control, &body, &[]).await;
                conn.close();
                wire::decode::<Result<ControlReply>>(&answer?.body)?.map(|_| ())
            };
            match asked.await {
                Ok(()) => return Ok(()),
                Err(error)
                    if matches!(error.code, Code::Unreach | Code::Closed | Code::TimedOut) =>
                {
                    last = error;
                }
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

/// What catching up ends with for want of room.
pub(crate) fn no_room() -> Error {
    Error::new(Code::NoSpace, "there is no room for what is missing here")
}
