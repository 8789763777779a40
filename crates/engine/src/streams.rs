//! What a leader has done, on its way to the other members of its groups.
//!
//! One stream goes to each member, over a connection of its own: orders in the order in which they were carried out
//! here, some of them in one message, one message at a time. A member answers when they are as durable with it
//! as the pool promises. Only then is an update acknowledged, and shown to anybody: a leader that is lost takes
//! nothing with it that somebody knew (PacificA, Lin et al., MSR-TR-2008-25, section 3).
//!
//! Invariants:
//! - An order is queued in the step that carries it out here, so all streams agree with the log about what came first.
//! - An order leaves a queue when its member has answered, or is out of the map: then nobody waits for it any more.
//! - A target that is out of the map itself acknowledges nothing: it does not know what others do meanwhile.

use crate::group::Group;
use crate::peers::Peers;
use crate::suspects::{Place, changed_by};
use crate::target::{Target, TargetPool};
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;
use types::{Code, ContId, Error, PoolId, Result, TargetId, Unit};
use vos::{Lsn, PoolShard, Segments, Summary, Unsettled};
use wire::header::FLAG_USERS;
use wire::map::PoolMap;
use wire::member::SettledOrders;
use wire::obj::{Cond, Op, Request};
use wire::order::{Order, OrderAt, Orders, OrdersDone};
use wire::store::StreamStat;

/// Pauses before a message is sent again: the first, and where doubling ends.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The streams of a target in a pool, and what waits for them.
#[derive(Default)]
pub(crate) struct Streams {
    /// Orders given so far, over all streams.
    last: Cell<u64>,
    /// Those that not all their members have, oldest first, without gaps.
    open: RefCell<VecDeque<OpenOrder>>,
    out: RefCell<BTreeMap<TargetId, Rc<Stream>>>,
    /// What the open ones change.
    unsettled: RefCell<Unsettled>,
    /// What orders change while somebody watches, and how many do.
    watched: RefCell<Unsettled>,
    watcher_count: Cell<usize>,
    /// Who waits until all up to a number are settled.
    waiting: RefCell<Vec<(u64, oneshot::Sender<()>)>>,
    /// See [`Streams::end`].
    has_ended: Cell<bool>,
    safe: Safe,
}

/// Up to which order all members have them, this one among them.
#[derive(Default)]
struct Safe {
    number: Cell<u64>,
    /// The next one, and the record here that has to be on stable storage before.
    next: Cell<Option<(u64, Lsn)>>,
}

impl Safe {
    /// Goes on as far as it can: orders are `settled` up to a number, records here may be `shown` up to one and are written up to `last`.
    fn look(&self, settled: u64, shown: Lsn, last: Lsn) -> u64 {
        match self.next.get() {
            // What is settled now was logged before.
            _ if shown >= last => {
                self.number.set(settled);
                self.next.set(None);
            }
            None => self.next.set(Some((settled, last))),
            Some((number, lsn)) if lsn <= shown => {
                self.number.set(number);
                self.next.set(Some((settled, last)));
            }
            Some(_) => {}
        }
        self.number.get()
    }
}

/// An order that some members have not answered.
struct OpenOrder {
    left: SmallVec<[TargetId; 5]>,
    /// Who waits for this one.
    waiting: Option<oneshot::Sender<()>>,
    /// `None`: see [`Streams::hold`].
    given: Option<Given>,
}

/// What became of an order that was given up is not known.
pub(crate) struct Given {
    /// A unit of its group.
    pub of: Unit,
    /// Encoded.
    pub order: Rc<Vec<u8>>,
    /// What it changes, where the order does not say so.
    pub places: Vec<Place>,
}

/// The stream to one member.
struct Stream {
    /// See [`Orders::stream`].
    id: u64,
    queue: RefCell<VecDeque<Queued>>,
    /// Orders answered so far.
    done: Cell<u64>,
    wake: RefCell<Option<oneshot::Sender<()>>>,
    is_closed: Cell<bool>,
    /// The member is nearly full.
    is_short: Cell<bool>,
    /// Who waits until so many orders are answered.
    fences: RefCell<Vec<(u64, oneshot::Sender<()>)>>,
}

/// The bulk of an order.
pub(crate) enum Bulk {
    Bytes(Vec<u8>),
    /// Where it stays here.
    Kept(Segments),
}

impl From<Vec<u8>> for Bulk {
    fn from(bytes: Vec<u8>) -> Bulk {
        Bulk::Bytes(bytes)
    }
}

impl Bulk {
    /// For orders without any.
    pub const NONE: Bulk = Bulk::Bytes(Vec::new());

    fn bytes(&self) -> usize {
        match self {
            Bulk::Bytes(bytes) => bytes.len(),
            Bulk::Kept(kept) => kept.bytes() as usize,
        }
    }

    fn slices(&self) -> Vec<&[u8]> {
        match self {
            Bulk::Bytes(bytes) if bytes.is_empty() => Vec::new(),
            Bulk::Bytes(bytes) => vec![bytes],
            Bulk::Kept(kept) => kept.slices(),
        }
    }
}

/// An order for one member.
#[derive(Clone)]
struct Queued {
    /// Over all streams.
    number: u64,
    order: Rc<Vec<u8>>,
    bulk: Rc<Bulk>,
    for_user: bool,
}

impl Queued {
    fn bytes(&self) -> usize {
        self.order.len() + self.bulk.bytes()
    }
}

impl Stream {
    fn new(id: u64) -> Stream {
        Stream {
            id,
            queue: RefCell::default(),
            done: Cell::new(0),
            wake: RefCell::default(),
            is_closed: Cell::new(false),
            is_short: Cell::new(false),
            fences: RefCell::default(),
        }
    }

    fn wake(&self) {
        if let Some(waiting) = self.wake.take() {
            let _ = waiting.send(());
        }
    }
}

/// An order on its way, for whoever waits for it.
#[must_use]
pub(crate) struct Sent(Option<oneshot::Receiver<()>>);

impl Sent {
    /// For groups of one member.
    pub const NOWHERE: Sent = Sent(None);

    /// Ends when all live members of the group have it.
    ///
    /// Errors: `Closed` when this target is out of the map meanwhile, or stops.
    pub async fn settled(self) -> Result<()> {
        match self.0 {
            None => Ok(()),
            Some(settled) => settled.await.map_err(|_| not_known()),
        }
    }
}

fn not_known() -> Error {
    Error::new(Code::Closed, "the target does not lead the group any more")
}

impl Streams {
    /// Begins to note what orders change.
    pub fn watch(&self) -> Watch<'_> {
        self.watcher_count.set(self.watcher_count.get() + 1);
        Watch { streams: self, from: Lsn(self.last.get()) }
    }

    /// Notes something that is shown to nobody until it is released; its number, as that of an order. `changed` is told what
    /// to note it with.
    pub fn hold(&self, me: TargetId, changed: impl FnOnce(&mut dyn FnMut(ContId, Op<'_>))) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        let left = std::iter::once(me).collect();
        self.open.borrow_mut().push_back(OpenOrder { left, waiting: None, given: None });
        let mut unsettled = self.unsettled.borrow_mut();
        unsettled.settle(Lsn(self.settled()));
        changed(&mut |cont, op| unsettled.note_ops(Lsn(number), cont, &[op]));
        number
    }

    /// Ends [`Streams::hold`].
    pub fn release(&self, me: TargetId, number: u64) {
        if let Some(at) = number.checked_sub(self.settled() + 1)
            && let Some(held) = self.open.borrow_mut().get_mut(at as usize)
        {
            held.left.retain(|left| *left != me);
        }
        self.settle();
    }

    /// The newest order.
    pub fn last(&self) -> u64 {
        self.last.get()
    }

    /// Ends all streams if a group of an order that is not settled is led by another target now; returns such orders. Whoever
    /// waits comes again, and is answered by who leads.
    pub fn give_up(&self, is_led: impl Fn(Unit) -> bool) -> Vec<Given> {
        let is_anothers =
            |order: &OpenOrder| order.given.as_ref().is_some_and(|given| !is_led(given.of));
        if !self.open.borrow().iter().any(is_anothers) {
            return Vec::new();
        }
        let given =
            self.open.borrow_mut().iter_mut().filter_map(|order| order.given.take()).collect();
        self.close();
        given
    }

    /// True when members have all orders up to a number, whatever `me` holds back itself.
    pub fn has_told(&self, me: TargetId, number: u64) -> bool {
        let open = self.open.borrow();
        let mut asked = open.iter().zip(self.settled() + 1..).take_while(|(_, at)| *at <= number);
        asked.all(|(order, _)| order.left.iter().all(|left| *left == me))
    }

    /// The number up to which all orders are settled.
    fn settled(&self) -> u64 {
        self.last.get() - self.open.borrow().len() as u64
    }

    /// The number up to which all orders are settled, and nothing takes them back here either.
    fn safe(&self, shard: &PoolShard) -> u64 {
        self.safe.look(self.settled(), shard.shown_lsn(), shard.last_lsn())
    }

    /// What there is to tell a member of the orders that it has got.
    pub fn settled_for(&self, member: TargetId, shard: &PoolShard) -> SettledOrders {
        let stream = self.out.borrow().get(&member).map_or(0, |stream| stream.id);
        SettledOrders { stream, number: self.safe(shard) }
    }

    /// The newest order that is not settled and that a batch can see, whether it succeeds or fails; 0 when there is
    /// none. To be asked in the step that looks; the answer leaves after [`Streams::wait_for`].
    pub fn newest_seen(&self, cont: ContId, batch: &Summary) -> u64 {
        if self.unsettled.borrow().is_empty() {
            return 0;
        }
        let (mut unsettled, settled) = (self.unsettled.borrow_mut(), Lsn(self.settled()));
        match unsettled.settle(settled) {
            true => 0,
            false => unsettled.seen(settled, cont, batch).0,
        }
    }

    /// The same for what depends on all of a unit.
    pub fn newest_of_unit(&self, cont: ContId, unit: Unit) -> u64 {
        self.unsettled.borrow().newest_of(cont, unit).0
    }

    /// Ends when all orders up to a number are settled.
    ///
    /// Errors: as [`Sent::settled`].
    pub async fn wait_for(&self, number: u64) -> Result<()> {
        if number <= self.settled() {
            return Ok(());
        }
        if self.has_ended.get() {
            return Err(not_known());
        }
        let (sender, settled) = oneshot::channel();
        self.waiting.borrow_mut().push((number, sender));
        settled.await.map_err(|_| not_known())
    }

    /// Ends when a member has all that is queued for it now.
    ///
    /// Errors: as [`Sent::settled`].
    pub async fn reach(&self, member: TargetId) -> Result<()> {
        let reached = {
            let out = self.out.borrow();
            let Some(stream) = out.get(&member) else { return Ok(()) };
            let count = stream.queue.borrow().len() as u64;
            if count == 0 {
                return Ok(());
            }
            let (sender, reached) = oneshot::channel();
            stream.fences.borrow_mut().push((stream.done.get() + count, sender));
            reached
        };
        reached.await.map_err(|_| not_known())
    }

    /// What is on its way, by member.
    pub fn stat(&self) -> Vec<StreamStat> {
        let out = self.out.borrow();
        let of = |(member, stream): (&TargetId, &Rc<Stream>)| {
            let queue = stream.queue.borrow();
            let bytes = queue.iter().map(|queued| queued.bytes() as u64).sum();
            StreamStat { member: *member, orders: queue.len() as u64, bytes }
        };
        out.iter().map(of).collect()
    }

    /// True when a member has said that it is nearly full.
    pub fn is_short(&self, member: TargetId) -> bool {
        self.out.borrow().get(&member).is_some_and(|stream| stream.is_short.get())
    }

    /// True when one of the members has said that it is nearly full.
    pub fn any_is_short(&self) -> bool {
        self.out.borrow().values().any(|stream| stream.is_short.get())
    }

    /// Notes that a member has everything up to here, of those queued for it.
    fn answered(&self, member: TargetId, stream: &Stream, count: usize) {
        let numbers: Vec<u64> =
            stream.queue.borrow_mut().drain(..count).map(|queued| queued.number).collect();
        let done = stream.done.get() + count as u64;
        stream.done.set(done);
        for (_, reached) in stream.fences.borrow_mut().extract_if(.., |(at, _)| *at <= done) {
            let _ = reached.send(());
        }
        let base = self.settled() + 1;
        {
            let mut open = self.open.borrow_mut();
            for number in numbers {
                let Some(order) = open.get_mut((number - base) as usize) else { continue };
                order.left.retain(|left| *left != member);
                tell_if_settled(order);
            }
        }
        self.settle();
    }

    /// Forgets what is settled at the front, and tells who waited.
    fn settle(&self) {
        let mut open = self.open.borrow_mut();
        while open.front().is_some_and(|order| order.left.is_empty()) {
            open.pop_front();
        }
        drop(open);
        let settled = self.settled();
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            return;
        }
        let (over, left) = waiting.drain(..).partition(|(number, _)| *number <= settled);
        *waiting = left;
        drop(waiting);
        for (_, waiting) in over {
            // A receiver that is gone gave up waiting.
            let _ = waiting.send(());
        }
    }

    /// After a change of the map: members that take part no more are waited for no longer; one that is out of it
    /// itself gives everything up.
    pub fn follow_map(&self, me: TargetId, map: &PoolMap) {
        if !placement::follows(me, map) {
            self.close();
            return;
        }
        let gone: Vec<(TargetId, Rc<Stream>)> = {
            let mut out = self.out.borrow_mut();
            let gone: Vec<TargetId> =
                out.keys().copied().filter(|member| !placement::follows(*member, map)).collect();
            gone.into_iter().filter_map(|member| Some((member, out.remove(&member)?))).collect()
        };
        for (member, stream) in gone {
            stream.is_closed.set(true);
            stream.wake();
            let count = stream.queue.borrow().len();
            self.answered(member, &stream, count);
        }
    }

    /// Ends all streams for good: nothing is sent any more. What is not settled never is, and is shown to nobody; whoever waits, or comes
    /// to wait, is told that nothing is known.
    pub fn end(&self) {
        self.has_ended.set(true);
        self.end_streams();
        self.open.borrow_mut().iter_mut().for_each(|order| order.waiting = None);
        self.waiting.take();
    }

    fn end_streams(&self) {
        for stream in std::mem::take(&mut *self.out.borrow_mut()).into_values() {
            stream.is_closed.set(true);
            stream.queue.borrow_mut().clear();
            stream.fences.take();
            stream.wake();
        }
    }

    /// Ends all streams; whoever waits is told that nothing is known.
    pub fn close(&self) {
        self.end_streams();
        let dropped = (self.open.take(), self.waiting.take());
        drop(dropped);
        self.unsettled.replace(Unsettled::default());
    }
}

/// What orders change from its beginning on.
pub(crate) struct Watch<'a> {
    streams: &'a Streams,
    from: Lsn,
}

impl Watch<'_> {
    /// True when an order has changed what an op reads.
    pub fn has_changed(&self, cont: ContId, read: Op<'_>) -> bool {
        let read = Summary::of(&[], &[read]);
        self.streams.watched.borrow().seen(self.from, cont, &read) > self.from
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let left = self.streams.watcher_count.get() - 1;
        self.streams.watcher_count.set(left);
        if left == 0 {
            self.streams.watched.replace(Unsettled::default());
        }
    }
}

fn tell_if_settled(order: &mut OpenOrder) {
    if order.left.is_empty()
        && let Some(waiting) = order.waiting.take()
    {
        let _ = waiting.send(());
    }
}

impl Target {
    /// Sends an order to the followers of a group, in the step that carries it out here. `changed`: what it changes
    /// at once, by ops.
    pub(crate) fn ship(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        group: Option<&Group>,
        order: &Order<'_>,
        bulk: impl Into<Bulk>,
        changed: Option<(ContId, &[Op<'_>])>,
    ) -> Sent {
        let Some(group) = group.filter(|group| !group.followers.is_empty()) else {
            return Sent::NOWHERE;
        };
        let mut places = Vec::new();
        if let (Order::Decide { .. }, Some((cont, ops))) = (order, changed) {
            changed_by(cont, ops, &mut |place| places.push(place));
        }
        // Readers see no difference, but an image from before it is not what the member has after it.
        if let Order::Fold { cont, unit, dkey, .. } = order
            && ctx.streams.watcher_count.get() > 0
        {
            let dkeys = vec![serde_bytes::Bytes::new(dkey)];
            let op = Op::PunchDkeys { unit: *unit, cond: Cond::NONE, dkeys };
            let number = Lsn(ctx.streams.last.get() + 1);
            ctx.streams.watched.borrow_mut().note_ops(number, *cont, &[op]);
        }
        self.queue(pool, ctx, group, wire::encode(order), places, bulk.into(), changed, false)
    }

    /// The same for an [`Order::Apply`] or [`Order::Prepare`] that is encoded already. `for_user`: a client wants it that gives way to nobody.
    #[expect(clippy::too_many_arguments, reason = "what an order consists of")]
    pub(crate) fn ship_encoded(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        group: Option<&Group>,
        order: Vec<u8>,
        bulk: Bulk,
        changed: Option<(ContId, &[Op<'_>])>,
        for_user: bool,
    ) -> Sent {
        match group.filter(|group| !group.followers.is_empty()) {
            Some(group) => self.queue(pool, ctx, group, order, Vec::new(), bulk, changed, for_user),
            None => Sent::NOWHERE,
        }
    }

    /// Queues an order for all followers of a group. `places`: see [`Given::places`].
    #[expect(clippy::too_many_arguments, reason = "what an order consists of")]
    fn queue(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        group: &Group,
        order: Vec<u8>,
        places: Vec<Place>,
        bulk: Bulk,
        changed: Option<(ContId, &[Op<'_>])>,
        for_user: bool,
    ) -> Sent {
        let streams = &ctx.streams;
        let number = streams.last.get() + 1;
        streams.last.set(number);
        let (sender, settled) = oneshot::channel();
        let left = group.followers.clone();
        let (order, bulk) = (Rc::new(order), Rc::new(bulk));
        let given = Some(Given { of: group.of, order: order.clone(), places });
        // Without a sender whoever waits is told that nothing is known.
        let waiting = (!streams.has_ended.get()).then_some(sender);
        let open = OpenOrder { left, waiting, given };
        streams.open.borrow_mut().push_back(open);
        if let Some((cont, ops)) = changed {
            let mut unsettled = streams.unsettled.borrow_mut();
            unsettled.settle(Lsn(streams.settled()));
            unsettled.note_ops(Lsn(number), cont, ops);
            if streams.watcher_count.get() > 0 {
                streams.watched.borrow_mut().note_ops(Lsn(number), cont, ops);
            }
        }
        let followers = if streams.has_ended.get() { &[] } else { &group.followers[..] };
        for member in followers {
            let (order, bulk) = (order.clone(), bulk.clone());
            let stream = self.stream_to(pool, ctx, *member);
            stream.queue.borrow_mut().push_back(Queued { number, order, bulk, for_user });
            stream.wake();
        }
        Sent(Some(settled))
    }

    fn stream_to(
        self: &Rc<Self>,
        pool: PoolId,
        ctx: &Rc<TargetPool>,
        member: TargetId,
    ) -> Rc<Stream> {
        let mut out = ctx.streams.out.borrow_mut();
        let stream = out.entry(member).or_insert_with(|| {
            let stream = Rc::new(Stream::new(self.env.random_u64()));
            let (target, of, to) = (Rc::downgrade(self), Rc::downgrade(ctx), stream.clone());
            self.env.spawn(run(target, pool, of, member, to));
            stream
        });
        stream.clone()
    }

    /// Sends the next orders of a stream; how many the member has answered.
    async fn send_orders(
        &self,
        pool: PoolId,
        ctx: &TargetPool,
        member: TargetId,
        stream: &Stream,
    ) -> Result<usize> {
        let (mut bytes, portions) = (0, self.portions());
        let next: Vec<Queued> = {
            let queue = stream.queue.borrow();
            let fits = |queued: &&Queued| {
                let is_first = bytes == 0;
                bytes += queued.bytes();
                is_first || bytes <= portions.order_bytes
            };
            queue.iter().take(portions.orders).take_while(fits).cloned().collect()
        };
        let map = ctx.map()?;
        let engine = map.engine_of(member).ok_or_else(|| Error::bare(Code::NonExist))?;
        let body = wire::encode(&Request::Orders(Orders {
            pool,
            from: self.id,
            map_version: map.version,
            stream: stream.id,
            first: stream.done.get() + 1,
            settled: ctx.streams.safe(&ctx.shard),
            orders: next
                .iter()
                .map(|queued| OrderAt {
                    number: queued.number,
                    order: serde_bytes::Bytes::new(&queued.order),
                    bulk_bytes: queued.bulk.bytes() as u32,
                })
                .collect(),
        }));
        let bulk: Vec<&[u8]> = next.iter().flat_map(|queued| queued.bulk.slices()).collect();
        let for_users = next.iter().any(|queued| queued.for_user);
        let flags = if for_users { FLAG_USERS } else { 0 };
        let answer = self.streaming.ask_flagged(flags, engine, member, &body, &bulk).await?;
        let done = wire::decode::<Result<OrdersDone>>(&answer.body)??;
        stream.is_short.set(done.is_short);
        // What it has of an earlier leader, too, is older than what comes from here.
        ctx.clock.observe(done.newest);
        if done.number != stream.done.get() + next.len() as u64 {
            return Err(Error::new(Code::Proto, "a member has answered for other orders"));
        }
        Ok(next.len())
    }
}

/// Sends what is queued for a member, until it is out of the map.
async fn run(
    target: Weak<Target>,
    pool: PoolId,
    ctx: Weak<TargetPool>,
    member: TargetId,
    stream: Rc<Stream>,
) {
    let mut pause = PAUSE_MIN;
    while !stream.is_closed.get() {
        if stream.queue.borrow().is_empty() {
            let (sender, woken) = oneshot::channel();
            stream.wake.replace(Some(sender));
            let _ = woken.await;
            continue;
        }
        let (Some(target), Some(ctx)) = (target.upgrade(), ctx.upgrade()) else { return };
        if target.has_stopped() {
            return;
        }
        let error = match target.send_orders(pool, &ctx, member, &stream).await {
            Ok(count) => {
                pause = PAUSE_MIN;
                // It may have been given up meanwhile.
                if !stream.is_closed.get() {
                    ctx.streams.answered(member, &stream, count);
                    // Before newer records come, which have to be written, too.
                    ctx.streams.safe(&ctx.shard);
                }
                continue;
            }
            Err(error) => error,
        };
        tracing::debug!("target {}: orders to target {member}: {error}", target.id);
        if error.code == Code::Stale
            && let Err(error) = target.take_map_of(&ctx, pool, member).await
        {
            tracing::debug!("target {}: the map of target {member}: {error}", target.id);
        }
        // Woken when the member is out of the map.
        let (sender, woken) = oneshot::channel();
        stream.wake.replace(Some(sender));
        // timer: a growing pause before another try.
        let sleep = target.env.sleep(pause);
        if let Either::Left(_) = select(pin!(sleep), woken).await {
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl Peers {
    /// The pool map as a target knows it.
    pub(crate) async fn map_of(&self, map: &PoolMap, target: TargetId) -> Result<PoolMap> {
        let engine = map.engine_of(target).ok_or_else(|| Error::bare(Code::NonExist))?;
        let body = wire::encode(&Request::PoolMap { pool: map.pool });
        let answer = self.ask(engine, target, &body, &[]).await?;
        wire::decode::<Result<PoolMap>>(&answer.body)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A follower that shows what its leader has not written yet shows what is gone when both lose their power, and the leader leads again.
    #[test]
    fn members_are_told_of_what_nothing_takes_back() {
        let safe = Safe::default();
        let look = |settled, shown, last| safe.look(settled, Lsn(shown), Lsn(last));
        assert_eq!(look(3, 7, 7), 3);
        assert_eq!(look(5, 7, 9), 3, "it is not written yet here");
        assert_eq!(look(8, 8, 12), 3);
        assert_eq!(look(8, 9, 12), 5, "what was settled when that record was the last");
        assert_eq!(look(9, 11, 14), 5);
        assert_eq!(look(9, 12, 14), 8);
        assert_eq!(look(10, 15, 15), 10);
    }
}
