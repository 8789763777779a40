//! Batches: ops that take effect together.
//!
//! A batch whose ops fall on one group is one request and one round trip. Otherwise it goes
//! whole to the leader of its first op's group, which coordinates a two-phase commit. Leaders are looked up when it
//! runs. Of groups of one member, those on one target count as one.

use crate::attempt::Attempt;
use crate::cont::Container;
use crate::read_from::{LEADER_TIME_MAX, MEMBER_TIME_MAX};
use crate::route::{Asked, Route, Told};
use crate::sums::{self, Comparison};
use crate::target::Ask;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::time::Duration;
use transport::{Answer, Arrivals};
use types::{Code, CsumKind, Epoch, Error, Oid, Result, TargetId};
use wire::cell::NamedPart;
use wire::footprint::Opens;
use wire::link::Link;
use wire::obj::{
    self, BatchReply, Op, OpReply, ReadCheck, ReadScope, Request, RequestKind, Sums, TxId, TxReply,
};
use wire::spread::MARKER;

/// Pause before a transaction is tried again because a participant could not be reached.
const ABSENCE_PAUSE: Duration = Duration::from_millis(20);

/// Longest pause before what is held is looked at again.
const HELD_PAUSE_US_MAX: u64 = 5_000;

/// Pause before it is looked again whether a member of a group serves.
pub(crate) const LEADER_PAUSE: Duration = Duration::from_millis(200);

/// Times that a batch follows dkeys to other units.
const MOVES_MAX: u32 = 100;

/// Times that data are asked for again, or sent again, after they differed from their sums.
const MISMATCH_RETRIES: u32 = 2;

/// What a batch has brought, and the room for what it fetched.
type WithRoom<'a> = (BatchResult, Vec<&'a mut [u8]>);

/// By its place in the batch.
#[derive(Clone, Copy)]
enum Unplaced {
    Op(usize),
    Check(usize),
}

/// The sums of a batch's bulk.
fn of_kind(kind: CsumKind, bytes: &[u8]) -> Sums<'_> {
    if bytes.is_empty() { Sums::NONE } else { Sums { kind, bytes } }
}

/// Ops in the making. Data of an op is attached right after the op itself.
///
/// Ops name units. Which targets that are is found when the batch runs, and again, for all of it and under
/// the same transaction id, when the map turns out to be stale or a target cannot be reached.
pub struct Batch<'a> {
    cont: Container,
    ops: Vec<Op<'a>>,
    checks: Vec<ReadCheck<'a>>,
    /// Data, with the op that they belong to.
    bulk_out: SmallVec<[(usize, &'a [u8]); 2]>,
    /// Sums of these data, where they are known.
    sums_out: Option<&'a [u8]>,
    bulk_in: Vec<&'a mut [u8]>,
    failed: Option<Error>,
    /// Ops and checks whose units were not found: the map did not know the placement epoch of their objects.
    unplaced: SmallVec<[Unplaced; 1]>,
    /// Cells may be named instead of data.
    takes_cells: bool,
    /// A member may answer in the leader's place.
    asks_members: bool,
}

impl<'a> Batch<'a> {
    pub fn new(cont: &Container) -> Batch<'a> {
        Batch {
            cont: cont.clone(),
            ops: Vec::with_capacity(2),
            checks: Vec::new(),
            bulk_out: SmallVec::new(),
            sums_out: None,
            bulk_in: Vec::new(),
            failed: None,
            unplaced: SmallVec::new(),
            takes_cells: false,
            asks_members: false,
        }
    }

    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.checks.is_empty()
    }

    /// Fails the batch with `TxRestart` if what was read has changed. A check on a dkey is made of
    /// the unit that holds it, whatever group it names; one on keys or the object is made of the
    /// unit it names, and belongs to every unit that was read.
    pub fn check(&mut self, mut check: ReadCheck<'a>) {
        if let ReadScope::Dkey(dkey) | ReadScope::Akey(dkey, _) = check.of {
            match self.cont.known_unit_of(check.unit.object, dkey) {
                Ok(unit) => check.unit = unit,
                Err(error) => self.not_placed(error, Unplaced::Check(self.checks.len())),
            }
        }
        self.check_of_unit(check);
    }

    /// The same of the unit that the check names, whatever it is on.
    pub fn check_of_unit(&mut self, check: ReadCheck<'a>) {
        self.checks.push(check);
    }

    /// Adds an op. One on a dkey is for the unit that holds it, whatever group it names; another one
    /// is for the unit it names. Returns its index among the replies.
    pub fn op(&mut self, mut op: Op<'a>) -> usize {
        if let Some(dkey) = op.footprint().dkey() {
            match self.cont.known_unit_of(op.oid(), dkey) {
                Ok(unit) => op.set_unit(unit),
                Err(error) => self.not_placed(error, Unplaced::Op(self.ops.len())),
            }
        }
        self.op_of_unit(op)
    }

    /// A newer map may know where it belongs; anything else fails the batch.
    fn not_placed(&mut self, error: Error, what: Unplaced) {
        match error.code {
            Code::Stale => self.unplaced.push(what),
            _ => self.failed = Some(error),
        }
    }

    /// Gets a newer map for what was not placed, and places it.
    async fn place_late(&mut self) -> Result<()> {
        for what in std::mem::take(&mut self.unplaced) {
            match what {
                Unplaced::Op(at) => {
                    let op = &self.ops[at];
                    let dkey = op.footprint().dkey();
                    let dkey = dkey.ok_or_else(|| Error::inval("an op without a dkey"))?;
                    let unit = self.cont.unit_of(op.oid(), dkey).await?;
                    self.ops[at].set_unit(unit);
                }
                Unplaced::Check(at) => {
                    let check = &mut self.checks[at];
                    if let ReadScope::Dkey(dkey) | ReadScope::Akey(dkey, _) = check.of {
                        check.unit = self.cont.unit_of(check.unit.object, dkey).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds out how far dkeys of objects that spread have moved; true when some of what is here goes to other units now.
    async fn follow_moves(&mut self) -> Result<bool> {
        let of_ops = self.ops.iter().map(Op::oid);
        let of_checks = self.checks.iter().map(|check| check.unit.object);
        let mut oids: Vec<Oid> = of_ops.chain(of_checks).filter(|oid| oid.spreads()).collect();
        oids.sort_unstable();
        oids.dedup();
        for oid in oids {
            self.cont.learn_spread(oid).await?;
        }
        let mut has_moved = false;
        for op in self.ops.iter_mut().filter(|op| op.oid().spreads()) {
            let Some(dkey) = op.footprint().dkey().filter(|dkey| *dkey != MARKER) else { continue };
            let unit = self.cont.known_unit_of(op.oid(), dkey)?;
            has_moved |= unit != op.unit();
            op.set_unit(unit);
        }
        for check in self.checks.iter_mut().filter(|check| check.unit.object.spreads()) {
            let (ReadScope::Dkey(dkey) | ReadScope::Akey(dkey, _)) = check.of else { continue };
            if dkey != MARKER {
                let unit = self.cont.known_unit_of(check.unit.object, dkey)?;
                has_moved |= unit != check.unit;
                check.unit = unit;
            }
        }
        Ok(has_moved)
    }

    /// Gets a newer map if one of the units is of an object that this one does not know the placement epoch of; true if it knows
    /// all of them now.
    async fn learn(&self) -> bool {
        let of_ops = self.ops.iter().map(Op::oid);
        for oid in of_ops.chain(self.checks.iter().map(|check| check.unit.object)) {
            if !self.cont.learn(oid).await {
                return false;
            }
        }
        true
    }

    /// Adds an op for the unit that it names, whatever it is on.
    pub fn op_of_unit(&mut self, op: Op<'a>) -> usize {
        if op.is_write() && self.cont.is_read_only() {
            self.failed = Some(Error::new(Code::ReadOnly, "the container is open read-only"));
        }
        self.ops.push(op);
        self.ops.len() - 1
    }

    /// Data of the update just added.
    pub fn bulk_out(&mut self, data: &'a [u8]) {
        if let Some(op) = self.ops.len().checked_sub(1)
            && !data.is_empty()
        {
            self.bulk_out.push((op, data));
        }
    }

    /// The sums of all data that were attached, for a batch that goes to one target: they need not be made again.
    pub(crate) fn sums_out(&mut self, sums: &'a [u8]) {
        self.sums_out = Some(sums);
    }

    /// Room for the data of the fetch just added. Only batches on one target can fetch data.
    pub fn bulk_in(&mut self, room: &'a mut [u8]) {
        if !room.is_empty() {
            self.bulk_in.push(room);
        }
    }

    /// Runs the batch. All or nothing.
    ///
    /// Errors: those of the conditions (`Exist`, `NonExist`, `NotEmpty`); `TxRestart` when a
    /// check failed or a two-phase commit lost a conflict: read again and build a new batch; `Moved` when an op that is for a unit by its
    /// own word asks for what is elsewhere.
    ///
    /// Boxed, so that it is compiled here once: as part of a future of others it would be made again in each crate and program
    /// that calls one of these.
    pub fn run(mut self) -> LocalBoxFuture<'a, Result<BatchResult>> {
        async move { self.run_until_done().await }.boxed_local()
    }

    /// The same; gives back the room for what was fetched, too.
    pub(crate) fn run_with_room(mut self) -> LocalBoxFuture<'a, Result<WithRoom<'a>>> {
        async move {
            let result = self.run_until_done().await?;
            Ok((result, self.bulk_in))
        }
        .boxed_local()
    }

    // What is rare is boxed here and below: a future is as large as the largest thing it may do, and is moved as it is made.
    async fn run_until_done(&mut self) -> Result<BatchResult> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if !self.unplaced.is_empty() {
            Box::pin(self.place_late()).await?;
        }
        let mut attempt = Attempt::new(self.cont.client());
        if self.takes_cells {
            attempt.may_be_told_cells();
        }
        let (mut has_asked, mut has_learned, mut moves) = (false, false, 0);
        let mut member_tries = self.member_tries();
        let mut asked = Asked::default();
        loop {
            let route = match self.route(&asked) {
                // Somebody with a newer map made one of the objects.
                Err(error) if error.code == Code::Stale && !has_learned => {
                    has_learned = true;
                    if !Box::pin(self.learn()).await {
                        return Err(error);
                    }
                    continue;
                }
                // None of several members serves at the moment: one may soon.
                Err(error) if error.code == Code::Unreach && self.may_wait(&attempt) => {
                    self.cont.pool().0.state.refresh_briefly(self.cont.client()).await;
                    self.cont.client().env().sleep(LEADER_PAUSE).await;
                    continue;
                }
                route => route?,
            };
            attempt.route(route.map_version);
            if let [part] = &route.parts[..]
                && member_tries > 0
                && let Some(member) = self.cont.member_to_ask(part.unit)
            {
                let (unit, leads) = (part.unit, member == part.leader);
                match Box::pin(self.run_on_member(member, leads, route.map_version)).await {
                    Ok(found) => return Ok(found),
                    Err(error) => self.cont.client().note_refused(member, leads, unit, &error),
                }
                // Nothing has taken effect.
                member_tries -= 1;
                continue;
            }
            let map = self.cont.pool().map();
            if route.parts.iter().any(|part| !placement::is_alone(part.unit.object, &map)) {
                attempt.may_go_elsewhere();
            }
            if self.writes() {
                asked.note(&route);
            } else if route.parts.len() > 1 {
                // What it was told before says nothing.
                asked.begin_anew();
                asked.note(&route);
            }
            let outcome = match &route.parts[..] {
                [] => return Ok(BatchResult::nothing()),
                [part] => self.run_on_one(part.leader, &mut attempt).await,
                _ => Box::pin(self.run_on_several(&route, &asked, &mut attempt)).await,
            };
            match outcome {
                // Nothing has taken effect. While dkeys move it may happen again.
                Err(error) if error.code == Code::Moved && moves < MOVES_MAX => {
                    moves += 1;
                    if !Box::pin(self.follow_moves()).await? {
                        return Err(error);
                    }
                    attempt.begin_anew(self.cont.client());
                    asked.begin_anew();
                }
                // A key is held. Who only looks, at what several targets have at one time, has nothing to read again.
                Err(error)
                    if error.code == Code::TxRestart
                        && self.only_looks()
                        && !attempt.is_over(self.cont.client()) =>
                {
                    let env = self.cont.client().env();
                    env.sleep(Duration::from_micros(env.random_u64() % HELD_PAUSE_US_MAX)).await;
                    attempt.begin_anew(self.cont.client());
                    asked.begin_anew();
                }
                Err(error) if self.map_version() == route.map_version => {
                    // A target that does not hold what it held may be out of the newest map. Where others have that, too, it will
                    // be as soon as the control service has heard of it.
                    let others_have_it = self.may_wait(&attempt);
                    if error.code != Code::Unreach || has_asked && !others_have_it {
                        return Err(error);
                    }
                    has_asked = true;
                    self.cont.pool().0.state.refresh_briefly(self.cont.client()).await;
                    self.cont.pool().0.state.require_there()?;
                    if self.map_version() == route.map_version {
                        if !others_have_it {
                            return Err(error);
                        }
                        self.cont.client().env().sleep(LEADER_PAUSE).await;
                    }
                }
                Err(error) if matches!(error.code, Code::Stale | Code::Unreach) => {
                    if !self.writes() {
                        // It may have other parts now, and an earlier answer would be about those of before.
                        attempt.begin_anew(self.cont.client());
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Runs a batch on one target that is the only one to be asked, once: what goes wrong is an error at once, for there is
    /// another way. `on`: it goes there, whoever answers for its units.
    pub(crate) fn run_once(
        self,
        on: Option<TargetId>,
        time_max: Duration,
    ) -> LocalBoxFuture<'a, Result<BatchResult>> {
        self.run_at_once(on, time_max).boxed_local()
    }

    async fn run_at_once(
        mut self,
        on: Option<TargetId>,
        time_max: Duration,
    ) -> Result<BatchResult> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let route = self.route(&Asked::default())?;
        let mut attempt = Attempt::only_try(self.cont.client(), time_max);
        attempt.route(route.map_version);
        match &route.parts[..] {
            [part] => self.run_on_one(on.unwrap_or(part.leader), &mut attempt).await,
            _ => Err(Error::inval("a batch for several targets where one was to be asked")),
        }
    }

    /// It only looks at something, of the present, and opens nothing: whoever has it may be asked ([`crate::ReadFrom`]).
    pub fn may_ask_members(&mut self) {
        self.asks_members = true;
    }

    /// How many members are asked before the leader is waited for: another one, should the first give no answer.
    fn member_tries(&self) -> u32 {
        let may_ask = self.asks_members
            && self.cont.at() == Epoch::ZERO
            && self.ops.windows(2).all(|ops| ops[0].unit() == ops[1].unit());
        if may_ask { 2 } else { 0 }
    }

    /// One try at a member of the group, or at its leader in turn.
    async fn run_on_member(
        &mut self,
        member: TargetId,
        leads: bool,
        map_version: u32,
    ) -> Result<BatchResult> {
        let client = self.cont.client().clone();
        let time_max = if leads { LEADER_TIME_MAX } else { MEMBER_TIME_MAX };
        let mut attempt = Attempt::at_member(&client, map_version, time_max);
        let asked = self.ask_one(member, &mut attempt);
        // It may have to be connected to first.
        let answer = client.env().timeout(time_max, asked).await;
        let answer = answer.ok_or_else(|| Error::bare(Code::TimedOut))??;
        if !leads {
            client.note_shown();
        }
        self.result_of(member, answer)
    }

    /// The answer may name cells instead of what is fetched ([`BatchResult::cells`]).
    pub(crate) fn may_be_told_cells(&mut self) {
        self.takes_cells = true;
    }

    /// True when it is of objects with copies, and somebody still waits.
    fn may_wait(&self, attempt: &Attempt) -> bool {
        let of_ops = self.ops.iter().map(Op::unit);
        let mut units = of_ops.chain(self.checks.iter().map(|check| check.unit));
        let map = self.cont.pool().map();
        units.all(|unit| !placement::is_alone(unit.object, &map))
            && !attempt.is_over(self.cont.client())
    }

    fn map_version(&self) -> u32 {
        self.cont.pool().0.state.map_version()
    }

    /// Where everything goes under the newest map that is known; `asked`: as what it was asked for before.
    fn route(&self, asked: &Asked) -> Result<Route> {
        Route::find(&self.cont, self.map_version(), &self.ops, &self.checks, asked)
    }

    async fn run_on_one(&mut self, target: TargetId, attempt: &mut Attempt) -> Result<BatchResult> {
        let answer = match self.ask_one(target, attempt).await {
            Err(error) if error.code == Code::Csum => {
                Box::pin(self.ask_again(target, attempt, error)).await?
            }
            outcome => outcome?,
        };
        self.result_of(target, answer)
    }

    /// What the one target that was asked has answered.
    fn result_of(&self, target: TargetId, answer: Answer) -> Result<BatchResult> {
        let mut bodies: SmallVec<[Body; 1]> = SmallVec::new();
        bodies.push(Body { bytes: answer.body, from: 1 });
        let epoch = bodies[0].epoch()?;
        let result =
            BatchResult { epoch, bodies, op_count: self.ops.len(), places: SmallVec::new() };
        self.note_opens(|_| target, &result)?;
        Ok(result)
    }

    /// Sends all of the batch to one target; compares what comes back with its sums.
    async fn ask_one(&mut self, target: TargetId, attempt: &mut Attempt) -> Result<Answer> {
        let kind = self.cont.info().props.csum;
        let bulk_out: SmallVec<[&[u8]; 2]> = self.bulk_out.iter().map(|(_, data)| *data).collect();
        let bytes = match self.sums_out {
            Some(known) => Cow::Borrowed(known),
            None => Cow::Owned(sums::of_update(kind, &self.ops, &bulk_out)?),
        };
        let pool = &self.cont.pool().0;
        let mut body = Vec::with_capacity(192 + bytes.len());
        // As `Request::Batch` with these sums, without copying the ops.
        let (cont, at) = (self.cont.id(), self.cont.at());
        let sums = of_kind(kind, &bytes);
        wire::encode_into(
            &(RequestKind::BATCH_TAG, pool.state.id, cont, at, &self.checks, &self.ops, sums),
            &mut body,
        );
        let link = pool.client.target(target);
        let writes = self.writes();
        let opens = self.ops.iter().any(|op| op.footprint().opens == Opens::Own);
        if writes {
            attempt.begin_update(&pool.client, target).await;
        }
        let _opening = (writes && opens).then(|| link.begin_opening());
        let ask = Ask { body: &body, bulk_out: &bulk_out, bulk_in: &mut self.bulk_in };
        let comparison = (kind != CsumKind::Off).then(|| Comparison::new(kind));
        let arrivals = comparison.as_ref().map(|comparison| comparison as &dyn Arrivals);
        let asked = link.ask_telling(&pool.client, &pool.state, ask, attempt, arrivals);
        let answer = asked.await?;
        if let Some(comparison) = comparison.filter(|_| answer.bulk_bytes > 0) {
            comparison.finish(&answer.body[1..], &self.bulk_in, answer.bulk_bytes)?;
        }
        Ok(answer)
    }

    fn writes(&self) -> bool {
        self.ops.iter().any(Op::is_write)
    }

    fn only_looks(&self) -> bool {
        !self.writes() && self.checks.is_empty()
    }

    /// After a mismatch: tries again, for it may have happened on the way; then has the target look
    /// at what it holds, and tries a last time, for others may have had it whole. A batch that writes and reads data is not repeated.
    async fn ask_again(
        &mut self,
        target: TargetId,
        attempt: &mut Attempt,
        first: Error,
    ) -> Result<Answer> {
        let writes = self.writes();
        if writes && !self.bulk_in.is_empty() {
            return Err(first);
        }
        let mut last = first;
        for _ in 0..MISMATCH_RETRIES {
            tracing::warn!("target {target}: {last}; trying again");
            attempt.begin_anew(self.cont.client());
            match self.ask_one(target, attempt).await {
                Err(error) if error.code == Code::Csum => last = error,
                outcome => return outcome,
            }
        }
        if writes {
            return Err(last);
        }
        let pool = &self.cont.pool().0;
        let batch = self.part(self.ops.clone(), self.checks.clone(), Sums::NONE);
        let body = wire::encode(&Request::Verify(batch));
        let ask = Ask { body: &body, bulk_out: &[], bulk_in: &mut [] };
        let asked = pool.client.target(target).ask(&pool.client, &pool.state, ask).await;
        let said = asked.and_then(|answer| wire::decode::<u64>(&answer.body[1..]));
        // Also when it finds nothing: somebody else may have had it put right between the last try and this look.
        if said.is_ok() {
            attempt.begin_anew(self.cont.client());
            match self.ask_one(target, attempt).await {
                Err(error) if error.code == Code::Csum => last = error,
                outcome => return outcome,
            }
        }
        Err(match said {
            Ok(0) => last.context(format!(
                "target {target} holds the data whole; they are damaged on their way"
            )),
            Ok(_) => last.context(format!("the data are damaged on target {target}")),
            Err(error) => {
                tracing::warn!("target {target} could not look at its data: {error}");
                last
            }
        })
    }

    /// Some of the ops and checks, as a target gets them.
    fn part<'b>(
        &self,
        ops: Vec<Op<'b>>,
        checks: Vec<ReadCheck<'b>>,
        sums: Sums<'b>,
    ) -> obj::Batch<'b> {
        let pool = self.cont.pool().0.state.id;
        obj::Batch { pool, cont: self.cont.id(), at: self.cont.at(), checks, ops, sums }
    }

    async fn run_on_several(
        &mut self,
        route: &Route,
        asked: &Asked,
        attempt: &mut Attempt,
    ) -> Result<BatchResult> {
        if !self.bulk_in.is_empty() {
            return Err(Error::inval("a batch over several targets cannot fetch bulk data"));
        }
        let kind = self.cont.info().props.csum;
        let mut encoded: Vec<(Vec<u8>, u32)> = Vec::with_capacity(route.parts.len());
        let mut bulk_out: Vec<&[u8]> = Vec::with_capacity(self.bulk_out.len());
        for place in 0..route.parts.len() as u16 {
            let is_here = |op: usize| route.of_ops[op] == place;
            let ops = self.ops.iter().enumerate().filter(|(at, _)| is_here(*at));
            let ops: Vec<Op<'_>> = ops.map(|(_, op)| op.clone()).collect();
            let checks = self.checks.iter().zip(&route.of_checks).filter(|(_, of)| **of == place);
            let checks: Vec<ReadCheck<'_>> = checks.map(|(check, _)| check.clone()).collect();
            let from = bulk_out.len();
            bulk_out.extend(self.bulk_out.iter().filter(|(op, _)| is_here(*op)).map(|(_, d)| *d));
            let bytes: usize = bulk_out[from..].iter().map(|piece| piece.len()).sum();
            let sums = sums::of_update(kind, &ops, &bulk_out[from..])?;
            let part = self.part(ops, checks, of_kind(kind, &sums));
            encoded.push((wire::encode(&part), bytes as u32));
        }
        let parts: Vec<_> = route
            .parts
            .iter()
            .zip(&encoded)
            .map(|(part, (encoded, bytes))| (part.unit, serde_bytes::Bytes::new(encoded), *bytes))
            .collect();
        let client = self.cont.client();
        let leader = route.parts[0].leader;
        let link = client.target(leader);
        let answer = loop {
            attempt.begin_update(client, leader).await;
            let tx = TxId { client: client.id(), seq: attempt.request_id };
            let body = wire::encode(&Request::Commit { tx, parts: parts.clone() });
            let ask = Ask { body: &body, bulk_out: &bulk_out, bulk_in: &mut [] };
            match link.ask_as(client, &self.cont.pool().0.state, ask, attempt).await {
                // A participant was away and the transaction is aborted: try again. Or the target does not serve what it held, and knows nothing of an earlier try that
                // nobody has heard the answer to: under the same id who leads next tells how that ended.
                Err(error) if error.code == Code::Unreach && !attempt.is_over(client) => {
                    attempt.flags |= wire::header::FLAG_RETRY;
                    self.cont.pool().0.state.refresh_soon(client);
                    client.env().sleep(ABSENCE_PAUSE).await;
                }
                outcome => break outcome?,
            }
        };
        let result = self.result_of_several(asked, answer)?;
        self.note_opens(|op| route.of_op(op), &result)?;
        Ok(result)
    }

    /// What a coordinator has answered, of the parts that were asked for when the batch took effect.
    fn result_of_several(&self, asked: &Asked, answer: Answer) -> Result<BatchResult> {
        let body = &answer.body[1..];
        let of_ops = match asked.form_of(body)? {
            Told::Parts(of_ops) => of_ops,
            Told::Whole => {
                let bodies: SmallVec<[Body; 1]> =
                    SmallVec::from_iter([Body { bytes: answer.body, from: 1 }]);
                let epoch = bodies[0].epoch()?;
                let (op_count, places) = (self.ops.len(), SmallVec::new());
                return Ok(BatchResult { epoch, bodies, op_count, places });
            }
        };
        let reply: TxReply<'_> = wire::decode(body)?;
        let bodies: SmallVec<[Body; 1]> =
            reply.parts.iter().map(|part| Body { bytes: part.to_vec(), from: 0 }).collect();
        let mut counts = vec![0u16; bodies.len()];
        let places = of_ops.iter().map(|&part| {
            counts[part as usize] += 1;
            (part, counts[part as usize] - 1)
        });
        let (places, op_count) = (places.collect(), self.ops.len());
        Ok(BatchResult { epoch: reply.epoch, bodies, op_count, places })
    }

    /// Remembers the handles that the batch registered, for restarts of the engine.
    fn note_opens(
        &self,
        target_of: impl Fn(usize) -> TargetId,
        result: &BatchResult,
    ) -> Result<()> {
        for (at, op) in self.ops.iter().enumerate() {
            if op.footprint().opens == Opens::Own {
                self.cont.note_open(target_of(at), op.unit());
            }
        }
        if !self.ops.iter().any(|op| op.footprint().opens == Opens::Linked) {
            return Ok(());
        }
        let replies = result.replies()?;
        for (at, (op, reply)) in self.ops.iter().zip(&replies).enumerate() {
            if op.footprint().opens == Opens::Linked
                && let OpReply::Link { value: Some(value), opened: true, .. } = reply
                && let Some(link) = Link::decode(value)
            {
                self.cont.note_open(target_of(at), link.oid.first_unit());
            }
        }
        Ok(())
    }
}

/// An encoded [`BatchReply`] and where it begins.
struct Body {
    bytes: Vec<u8>,
    from: usize,
}

impl Body {
    /// The epoch, which leads the encoding; spares decoding the rest where nobody asks for it.
    fn epoch(&self) -> Result<Epoch> {
        let bytes = self.bytes.get(self.from..).ok_or_else(|| Error::bare(Code::Proto))?;
        wire::decode_prefix(bytes)
    }

    fn reply(&self) -> Result<BatchReply<'_>> {
        let bytes = self.bytes.get(self.from..).ok_or_else(|| Error::bare(Code::Proto))?;
        wire::decode(bytes)
    }
}

/// What a batch did and found.
pub struct BatchResult {
    /// Epoch at which its writes took effect (or its reads looked).
    pub epoch: Epoch,
    bodies: SmallVec<[Body; 1]>,
    op_count: usize,
    /// For each op, its part and its place there; empty when there is one part.
    places: SmallVec<[(u16, u16); 4]>,
}

impl BatchResult {
    fn nothing() -> BatchResult {
        let (bodies, places) = (SmallVec::new(), SmallVec::new());
        BatchResult { epoch: Epoch::ZERO, bodies, op_count: 0, places }
    }

    /// The cells that were named instead of the data that were to be fetched, in their order; none: the data came.
    pub(crate) fn cells(&self) -> Result<Vec<NamedPart>> {
        match &self.bodies[..] {
            [body] => Ok(body.reply()?.sums.cells),
            _ => Ok(Vec::new()),
        }
    }

    /// The replies, in the order of the ops.
    pub fn replies(&self) -> Result<Vec<OpReply<'_>>> {
        let mut parts = Vec::with_capacity(self.bodies.len());
        for body in &self.bodies {
            parts.push(body.reply()?.ops);
        }
        if let [ops] = &mut parts[..] {
            let ops = std::mem::take(ops);
            if ops.len() != self.op_count {
                return Err(Error::new(Code::Proto, "an answer lacks replies"));
            }
            return Ok(ops);
        }
        self.places
            .iter()
            .map(|&(part, at)| {
                let reply = parts.get(part as usize).and_then(|ops| ops.get(at as usize));
                reply.cloned().ok_or_else(|| Error::new(Code::Proto, "an answer lacks replies"))
            })
            .collect()
    }
}
