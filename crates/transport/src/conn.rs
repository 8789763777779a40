//! The calling side of a connection.
//!
//! Invariants: answers are matched by request id. One task per connection reads frames; the bulk of
//! an answer is read by the call it belongs to, straight into the caller's buffers, while the task
//! waits. One task checks deadlines with a single timer, so a call sets none. When the connection
//! ends, every pending call fails at once.

use crate::for_job::Numbers;
use crate::frame::{FrameReader, streamed_bulk_bytes};
use crate::outbox::Outbox;
use crate::remote::{RANGE_COUNT_MAX, REMOTE_BYTES_MIN, Slots, Ticket, append_trailer};
use crate::stream::Stream;
use env::{Env, Signal, Sleep};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use types::map::HashMap;
use types::{Code, Error, Result, limits};
use wire::admission::BULK_BYTES_MIN;
use wire::header::{FLAG_DEFERRED_BULK, FLAG_JOB, FLAG_REMOTE_BULK, FLAG_SHORT, FLAG_USERS};
use wire::hello::{HelloReply, RemoteRange};
use wire::obj::Notice;
use wire::{Header, Kind};

/// Data of which [`Arrivals`] are told, and how much more has come when they are told again.
const TOLD_BYTES_MIN: usize = 256 << 10;
const TOLD_BYTES: usize = 64 << 10;

/// A request.
///
/// The future of the call must be dropped or awaited, not leaked: the engine may be writing into
/// `bulk_in` until then.
pub struct Call<'a, 'b> {
    /// [`Kind::Request`], [`Kind::Control`] or [`Kind::Ping`].
    pub kind: Kind,
    /// Chosen by the caller; no two calls in flight on a connection may share it.
    pub request_id: u64,
    /// `FLAG_RETRY` or 0.
    pub flags: u8,
    /// Pool map version the caller knows; 0 for none.
    pub map_version: u32,
    /// How long to wait for the answer; at most 49 days are told to the engine.
    pub deadline: Duration,
    /// The encoded message.
    pub body: &'a [u8],
    pub bulk_out: &'a [&'a [u8]],
    /// Where data of the answer goes, in order.
    pub bulk_in: &'a mut [&'b mut [u8]],
}

/// Is told of data of an answer that come through the stream, while they do.
pub trait Arrivals {
    /// A request is sent, perhaps once more: what was told of an earlier answer is void.
    fn void(&self);
    /// An answer is here, and its data follow.
    fn begin(&self, body: &[u8]);
    /// The first `bytes` of the data are in `rooms`.
    fn arrived(&self, rooms: &[&mut [u8]], bytes: usize);
}

/// The answer to a [`Call`].
#[derive(Debug)]
pub struct Answer {
    /// The encoded message: `Result<M, Error>`.
    pub body: Vec<u8>,
    /// Pool map version the engine knows; 0 for none.
    pub map_version: u32,
    /// The engine says that new files are better off elsewhere; see [`wire::header::FLAG_SHORT`].
    pub is_short: bool,
    /// The engine says that others should go first; see [`wire::header::FLAG_USERS`].
    pub has_users: bool,
    /// Bytes placed into `bulk_in`.
    pub bulk_bytes: usize,
}

enum Progress {
    Waiting,
    /// The answer is here, but for bulk that is still in the stream.
    Arrived {
        header: Header,
        body: Vec<u8>,
    },
    Failed(Error),
}

struct Pending {
    /// Tells calls with the same request id apart.
    serial: u64,
    deadline: Duration,
    state: Progress,
    /// The engine has asked for the deferred bulk.
    go: bool,
    waker: Option<Waker>,
}

/// Who reads bulk from the stream at the moment.
struct Turn {
    serial: u64,
    remaining: usize,
}

struct Calling {
    env: Env,
    stream: Rc<Stream>,
    outbox: Rc<Outbox>,
    pending: RefCell<HashMap<u64, Pending>>,
    serial_last: Cell<u64>,
    broken: RefCell<Option<Error>>,
    ended: Signal,
    turn: RefCell<Option<Turn>>,
    /// Bytes of bulk that nobody wants.
    leftover: Cell<usize>,
    reader: RefCell<Option<Waker>>,
    /// When the deadline task looks next; `MAX` while nothing is pending.
    next_check: Cell<Duration>,
    checker: RefCell<Option<Waker>>,
    slots: Option<Slots>,
    /// What the engine looks at whenever it reaches into our memory: it must stay where it is.
    _word: Option<Box<u64>>,
    hello: HelloReply,
    /// Jobs that are asked for.
    jobs: Numbers,
    /// What the engine last said; see [`Header::bulk_credit`].
    bulk_credit: Cell<Option<u32>>,
    /// Bulk writes under way with their data in the stream.
    bulk_at_work: Cell<u32>,
}

/// A connection to an engine. Clones are the same one; it closes when the last is dropped.
#[derive(Clone)]
pub struct Conn(Rc<Handle>);

/// Of a connection: whether it has ended.
#[derive(Clone)]
pub struct Ending(Rc<Calling>);

impl Ending {
    /// Ends when the connection has.
    pub async fn over(&self) {
        self.0.ended.until(|| self.0.broken.borrow().is_some()).await;
    }
}

/// Closes the connection when the last [`Conn`] goes, while its tasks keep the rest.
struct Handle(Rc<Calling>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.fail(Error::new(Code::Closed, "the connection was closed"));
    }
}

impl Conn {
    /// A connection over `stream`; `word` is kept as long as it lives.
    pub(crate) fn new(
        env: &Env,
        stream: Stream,
        hello: HelloReply,
        word: Option<Box<u64>>,
    ) -> Conn {
        let stream = Rc::new(stream);
        let remote = hello.remote_bulk && stream.shm().is_some();
        let calling = Rc::new(Calling {
            env: env.clone(),
            outbox: Outbox::new(env, stream.clone()),
            stream,
            pending: RefCell::default(),
            serial_last: Cell::new(0),
            broken: RefCell::default(),
            ended: Signal::default(),
            turn: RefCell::default(),
            leftover: Cell::new(0),
            reader: RefCell::default(),
            next_check: Cell::new(Duration::MAX),
            checker: RefCell::default(),
            slots: remote.then(Slots::new),
            _word: word,
            hello,
            jobs: Numbers::default(),
            bulk_credit: Cell::new(None),
            bulk_at_work: Cell::new(0),
        });
        env.spawn(read_frames(calling.clone()));
        env.spawn(check_deadlines(calling.clone()));
        Conn(Rc::new(Handle(calling)))
    }

    /// What the engine said of itself.
    pub fn hello(&self) -> &HelloReply {
        &self.0.0.hello
    }

    /// The connection has ended; every call on it fails.
    pub fn is_broken(&self) -> bool {
        self.0.0.broken.borrow().is_some()
    }

    /// True when both are the same connection.
    pub fn is_same(&self, other: &Conn) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Tells when the connection ends, without keeping it from that.
    pub fn ending(&self) -> Ending {
        Ending(self.0.0.clone())
    }

    /// Ends the connection; pending calls fail with `Closed`.
    pub fn close(&self) {
        self.0.0.fail(Error::new(Code::Closed, "the connection was closed"));
    }

    /// Sends a message that has no answer. It is kept when the stream is full; `NoMem` when too much
    /// is kept already.
    pub fn notify(&self, kind: Kind, body: &[u8]) -> Result<()> {
        if body.len() > limits::BODY_BYTES_MAX {
            return Err(Error::inval("a message is over the size limit"));
        }
        let header = Header::new(kind, 0, body, 0);
        self.0.0.outbox.post(&[&header.encode(), body])
    }

    /// Sends a request and waits for its answer. `TimedOut` when the deadline passes: the request
    /// may or may not take effect. `Closed` when the connection ends first. Bytes of `bulk_in` that
    /// the answer does not fill are left alone, unless the call fails; then any may have changed.
    ///
    /// Data of an answer that travels in the stream is read by its own call, and others behind it
    /// wait: do not hold the future unpolled while awaiting another call.
    pub async fn call(&self, call: Call<'_, '_>) -> Result<Answer> {
        self.call_telling(call, None).await
    }

    /// The same, telling of data while they come, if they are many.
    pub async fn call_telling(
        &self,
        call: Call<'_, '_>,
        arrivals: Option<&dyn Arrivals>,
    ) -> Result<Answer> {
        if let Some(arrivals) = arrivals {
            arrivals.void();
        }
        let calling = &self.0.0;
        let out_bytes: usize = call.bulk_out.iter().map(|part| part.len()).sum();
        let in_bytes: usize = call.bulk_in.iter().map(|part| part.len()).sum();
        if out_bytes.max(in_bytes) > limits::BULK_BYTES_MAX
            || call.body.len() > limits::BODY_BYTES_MAX / 2
        {
            return Err(Error::inval(format!(
                "a request of {} + {out_bytes} bytes with room for {in_bytes} is over the limit",
                call.body.len()
            )));
        }
        let registered = calling.register(call.request_id, call.deadline)?;
        let job = if call.kind == Kind::Request { calling.number_of_job() } else { 0 };
        let with_job = (job != 0).then(|| [call.body, &[job]].concat());
        let call_body = with_job.as_deref().unwrap_or(call.body);
        let remote = calling.go_remote(&call, call_body, out_bytes.max(in_bytes));
        let bulk_write = match &remote {
            None if call.kind == Kind::Request && out_bytes >= BULK_BYTES_MIN => {
                Some(BulkWrite::new(calling, call.request_id))
            }
            _ => None,
        };
        let deferred = bulk_write.as_ref().filter(|bulk_write| bulk_write.deferred);
        let (body, streamed) = match &remote {
            Some(remote) => (&remote.body[..], &[][..]),
            None if deferred.is_some() => (call_body, &[][..]),
            None => (call_body, call.bulk_out),
        };
        let mut header = Header::new(call.kind, call.request_id, body, out_bytes);
        header.flags = call.flags;
        if job != 0 {
            header.flags |= FLAG_JOB;
        }
        if remote.is_some() {
            header.flags |= FLAG_REMOTE_BULK;
        }
        if deferred.is_some() {
            header.flags |= FLAG_DEFERRED_BULK;
        }
        header.map_version = call.map_version;
        header.deadline_ms = call.deadline.as_millis().clamp(1, u32::MAX as u128) as u32;
        registered.send(&header, body, streamed).await?;
        if deferred.is_some() && std::future::poll_fn(|cx| registered.poll_go(cx)).await? {
            let data = Header::new(Kind::Data, call.request_id, &[], out_bytes);
            registered.send(&data, &[], call.bulk_out).await?;
        }
        let (header, body) = std::future::poll_fn(|cx| registered.poll_arrival(cx)).await?;
        if let Some(bulk_write) = &bulk_write {
            bulk_write.answered.set(true);
        }
        let bulk_bytes = header.bulk_bytes as usize;
        if header.flags & FLAG_REMOTE_BULK != 0 {
            if remote.is_none() || bulk_bytes > in_bytes {
                return Err(Error::new(Code::Proto, "the engine wrote where it may not"));
            }
        } else {
            let arrivals = arrivals.filter(|_| bulk_bytes >= TOLD_BYTES_MIN);
            if let Some(arrivals) = arrivals {
                arrivals.begin(&body);
            }
            registered.read_bulk(bulk_bytes, call.bulk_in, arrivals).await?;
        }
        let is_short = header.flags & FLAG_SHORT != 0;
        let has_users = header.flags & FLAG_USERS != 0;
        Ok(Answer { body, map_version: header.map_version, is_short, has_users, bulk_bytes })
    }
}

/// A call's bulk in the stream, at once or deferred; ends with it.
struct BulkWrite<'a> {
    calling: &'a Calling,
    request_id: u64,
    deferred: bool,
    answered: Cell<bool>,
}

impl BulkWrite<'_> {
    fn new(calling: &Calling, request_id: u64) -> BulkWrite<'_> {
        let at_work = calling.bulk_at_work.get();
        let deferred = calling.bulk_credit.get().is_some_and(|credit| at_work >= credit);
        if !deferred {
            calling.bulk_at_work.set(at_work + 1);
        }
        BulkWrite { calling, request_id, deferred, answered: Cell::new(false) }
    }
}

impl Drop for BulkWrite<'_> {
    fn drop(&mut self) {
        let calling = self.calling;
        if !self.deferred {
            calling.bulk_at_work.set(calling.bulk_at_work.get() - 1);
        } else if !self.answered.get() {
            // Lets the engine give the place to another. A connection that takes no more has
            // ended, and with it the request.
            let cancel = Header::new(Kind::Cancel, self.request_id, &[], 0);
            let _ = calling.outbox.post(&[&cancel.encode()]);
        }
    }
}

/// A call's use of remote bulk; ends with it.
struct Remote<'a> {
    calling: &'a Calling,
    ticket: Ticket,
    /// The message and the trailer.
    body: Vec<u8>,
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        if let (Some(slots), Some(shm)) = (&self.calling.slots, self.calling.stream.shm()) {
            slots.give_back(&self.ticket, shm);
        }
    }
}

impl Calling {
    /// The number of the job that is asked for now; 0: the connection's own. The engine is told what it stands for.
    fn number_of_job(&self) -> u8 {
        self.jobs.current(|number, name| {
            let body = wire::encode(&Notice::Job { number, name: name.to_string() });
            let header = Header::new(Kind::Notice, 0, &body, 0);
            self.outbox.post(&[&header.encode(), &body]).is_ok()
        })
    }

    /// Sets up remote bulk if it is agreed on, worth it and possible.
    fn go_remote<'a>(
        &'a self,
        call: &Call<'_, '_>,
        call_body: &[u8],
        bytes: usize,
    ) -> Option<Remote<'a>> {
        let slots = self.slots.as_ref()?;
        let range_count = call.bulk_out.len() + call.bulk_in.len();
        if bytes < REMOTE_BYTES_MIN || range_count > RANGE_COUNT_MAX {
            return None;
        }
        let ticket = slots.take(self.stream.shm()?.region())?;
        let mut body = Vec::with_capacity(call_body.len() + 24 + 16 * range_count);
        body.extend_from_slice(call_body);
        let range =
            |part: &[u8]| RemoteRange { address: part.as_ptr() as u64, bytes: part.len() as u64 };
        let read = call.bulk_out.iter().map(|part| range(part));
        let write = call.bulk_in.iter().map(|part| range(part));
        append_trailer(&mut body, &ticket, read, write);
        Some(Remote { calling: self, ticket, body })
    }

    fn register(&self, request_id: u64, deadline: Duration) -> Result<Registered<'_>> {
        if let Some(error) = &*self.broken.borrow() {
            return Err(error.clone());
        }
        let deadline = self.env.now().saturating_add(deadline);
        let serial = self.serial_last.get() + 1;
        self.serial_last.set(serial);
        let pending =
            Pending { serial, deadline, state: Progress::Waiting, go: false, waker: None };
        match self.pending.borrow_mut().entry(request_id) {
            std::collections::hash_map::Entry::Occupied(_) => {
                return Err(Error::inval(format!("request {request_id} is in flight already")));
            }
            std::collections::hash_map::Entry::Vacant(place) => place.insert(pending),
        };
        if deadline < self.next_check.get() {
            self.next_check.set(deadline);
            wake(&self.checker);
        }
        Ok(Registered { calling: self, request_id, serial })
    }

    /// Ends the connection and fails what is pending.
    fn fail(&self, error: Error) {
        if self.broken.borrow().is_some() {
            return;
        }
        self.broken.replace(Some(error.clone()));
        self.ended.notify();
        self.stream.close();
        self.outbox.fail(error.clone());
        let mut wakers = Vec::new();
        for pending in self.pending.borrow_mut().values_mut() {
            // An answer that is here, or whose bulk is already being waited for, is judged by
            // its own call.
            if matches!(pending.state, Progress::Waiting) {
                pending.state = Progress::Failed(error.clone());
            }
            wakers.extend(pending.waker.take().map(|waker| (pending.serial, waker)));
        }
        wake_in_order(wakers);
        wake(&self.reader);
        wake(&self.checker);
    }

    /// Takes a frame in; true when its bulk must be read before the next frame.
    fn dispatch(&self, header: Header, body: Vec<u8>) -> Result<bool> {
        if header.kind == Kind::Go && header.body_bytes == 0 && header.bulk_bytes == 0 {
            // A call that is not there any more has told the engine so.
            if let Some(call) = self.pending.borrow_mut().get_mut(&header.request_id) {
                call.go = true;
                if let Some(waker) = call.waker.take() {
                    waker.wake();
                }
            }
            return Ok(false);
        }
        if !matches!(header.kind, Kind::Reply | Kind::ControlReply | Kind::Pong) {
            return Err(Error::new(
                Code::Proto,
                format!("the engine sent a frame of kind {:?}", header.kind),
            ));
        }
        if header.kind == Kind::Reply {
            self.bulk_credit.set(header.bulk_credit());
        }
        let bulk = streamed_bulk_bytes(&header);
        let mut pending = self.pending.borrow_mut();
        let wanted = pending
            .get_mut(&header.request_id)
            .filter(|pending| matches!(pending.state, Progress::Waiting));
        let Some(call) = wanted else {
            // The caller has given up.
            self.leftover.set(bulk);
            return Ok(bulk > 0);
        };
        call.state = Progress::Arrived { header, body };
        if bulk > 0 {
            self.turn.replace(Some(Turn { serial: call.serial, remaining: bulk }));
        }
        if let Some(waker) = call.waker.take() {
            waker.wake();
        }
        Ok(bulk > 0)
    }

    /// Ready when the bulk of the last frame has been read or given up.
    fn poll_turn_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.turn.borrow().is_none() || self.broken.borrow().is_some() {
            return Poll::Ready(());
        }
        self.reader.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn end_turn(&self, serial: u64) {
        let mut turn = self.turn.borrow_mut();
        if let Some(current) = &*turn
            && current.serial == serial
        {
            self.leftover.set(current.remaining);
            *turn = None;
            drop(turn);
            wake(&self.reader);
        }
    }
}

fn wake(slot: &RefCell<Option<Waker>>) {
    let waker = slot.borrow_mut().take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A call's place in the table of pending ones.
struct Registered<'a> {
    calling: &'a Calling,
    request_id: u64,
    serial: u64,
}

impl Registered<'_> {
    /// The error of a call that has failed.
    fn poll_failure(&self, cx: &mut Context<'_>) -> Poll<Error> {
        let mut pending = self.calling.pending.borrow_mut();
        let Some(call) = pending.get_mut(&self.request_id) else {
            return Poll::Ready(Error::bare(Code::Canceled));
        };
        if let Progress::Failed(error) = &call.state {
            return Poll::Ready(error.clone());
        }
        match &mut call.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Sends a frame unless the call fails meanwhile.
    async fn send(&self, header: &Header, body: &[u8], bulk: &[&[u8]]) -> Result<()> {
        let header = header.encode();
        let mut send = pin!(self.calling.outbox.send(&header, body, bulk));
        std::future::poll_fn(|cx| match send.as_mut().poll(cx) {
            Poll::Pending => self.poll_failure(cx).map(Err),
            ready => ready,
        })
        .await
    }

    /// True when the engine asks for the bulk, false when it has answered without.
    fn poll_go(&self, cx: &mut Context<'_>) -> Poll<Result<bool>> {
        if let Some(call) = self.calling.pending.borrow().get(&self.request_id) {
            if matches!(call.state, Progress::Arrived { .. }) {
                return Poll::Ready(Ok(false));
            }
            if call.go {
                return Poll::Ready(Ok(true));
            }
        }
        self.poll_failure(cx).map(Err)
    }

    fn poll_arrival(&self, cx: &mut Context<'_>) -> Poll<Result<(Header, Vec<u8>)>> {
        {
            let mut pending = self.calling.pending.borrow_mut();
            if let Some(call) = pending.get_mut(&self.request_id)
                && let Progress::Arrived { header, body } = &mut call.state
            {
                return Poll::Ready(Ok((*header, std::mem::take(body))));
            }
        }
        self.poll_failure(cx).map(Err)
    }

    /// Reads the answer's bulk from the stream into the caller's buffers.
    async fn read_bulk(
        &self,
        bytes: usize,
        rooms: &mut [&mut [u8]],
        arrivals: Option<&dyn Arrivals>,
    ) -> Result<()> {
        let (mut left, mut told) = (bytes, 0);
        for at in 0..rooms.len() {
            let mut done = 0;
            let wanted = rooms[at].len().min(left);
            while done < wanted {
                let rest = &mut rooms[at][done..wanted];
                let count = std::future::poll_fn(|cx| {
                    if let Poll::Ready(error) = self.poll_failure(cx) {
                        return Poll::Ready(Err(error));
                    }
                    self.calling.stream.poll_read(cx, rest)
                })
                .await?;
                if count == 0 {
                    return Err(Error::new(Code::Closed, "the connection broke inside an answer"));
                }
                done += count;
                if let Some(turn) = &mut *self.calling.turn.borrow_mut() {
                    turn.remaining -= count;
                }
                let here = bytes - left + done;
                if let Some(arrivals) = arrivals
                    && here < bytes
                    && here - told >= TOLD_BYTES
                {
                    told = here;
                    arrivals.arrived(rooms, here);
                }
            }
            left -= wanted;
        }
        if left > 0 {
            return Err(Error::new(Code::Proto, "the answer has more data than there is room for"));
        }
        Ok(())
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut pending = self.calling.pending.borrow_mut();
        if pending.get(&self.request_id).is_some_and(|call| call.serial == self.serial) {
            pending.remove(&self.request_id);
        }
        drop(pending);
        self.calling.end_turn(self.serial);
    }
}

/// Reads frames until the connection ends.
async fn read_frames(calling: Rc<Calling>) {
    let mut frames = FrameReader::new(None);
    loop {
        let frame = std::future::poll_fn(|cx| frames.poll_frame(&calling.stream, cx)).await;
        let dispatched = match frame {
            Ok(Some((header, body))) => calling.dispatch(header, body),
            Ok(None) => Err(Error::new(Code::Closed, "the engine closed the connection")),
            Err(error) => Err(error),
        };
        match dispatched {
            Ok(true) => {
                std::future::poll_fn(|cx| calling.poll_turn_over(cx)).await;
                frames.discard(calling.leftover.take());
            }
            Ok(false) => {}
            Err(error) => return calling.fail(error),
        }
        if calling.broken.borrow().is_some() {
            return;
        }
    }
}

/// Longest sleep of the task that looks for deadlines: some kernels cannot be told of longer ones.
const CHECK_PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Fails calls whose deadline has passed, until the connection ends.
async fn check_deadlines(calling: Rc<Calling>) {
    let mut sleep: Option<(Duration, Sleep)> = None;
    loop {
        let over = std::future::poll_fn(|cx| {
            if calling.broken.borrow().is_some() {
                return Poll::Ready(true);
            }
            calling.checker.replace(Some(cx.waker().clone()));
            let next = calling.next_check.get();
            if next == Duration::MAX {
                return Poll::Pending;
            }
            if sleep.as_ref().is_none_or(|(at, _)| *at != next) {
                let left = next.saturating_sub(calling.env.now());
                sleep = Some((next, calling.env.sleep(left.min(CHECK_PAUSE_MAX))));
            }
            match &mut sleep {
                Some((_, sleep)) => Pin::new(sleep).poll(cx).map(|()| false),
                None => Poll::Pending,
            }
        })
        .await;
        if over {
            return;
        }
        sleep = None;
        let now = calling.env.now();
        let mut next = Duration::MAX;
        let mut wakers = Vec::new();
        for (id, call) in calling.pending.borrow_mut().iter_mut() {
            if matches!(call.state, Progress::Failed(_)) {
                continue;
            }
            if call.deadline <= now {
                let text = format!("request {id:#x} had no answer before its deadline");
                call.state = Progress::Failed(Error::new(Code::TimedOut, text));
                wakers.extend(call.waker.take().map(|waker| (call.serial, waker)));
            } else {
                next = next.min(call.deadline);
            }
        }
        calling.next_check.set(next);
        wake_in_order(wakers);
    }
}

/// Wakes calls in the order in which they were made, so that simulated runs repeat.
fn wake_in_order(mut calls: Vec<(u64, Waker)>) {
    calls.sort_unstable_by_key(|(serial, _)| *serial);
    calls.into_iter().for_each(|(_, waker)| waker.wake());
}
