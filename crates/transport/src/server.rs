//! The serving side of a connection: requests in, answers out.
//!
//! Invariants: one `recv` at a time; the next frame is read only after the bulk of the one before
//! was read or given up, because both are in the same stream. Answers are independent of each
//! other and of `recv`. Deferred bulk comes through `recv`, so who reads one must not keep `recv`
//! waiting.

use crate::answers::{AnswerRoom, Answers};
use crate::deferred::{Deferred, DeferredTable, Stage};
use crate::frame::{Frame, FrameReader, streamed_bulk_bytes};
use crate::ledger::{Account, Charge};
use crate::outbox::Outbox;
use crate::peer::Process;
use crate::remote::{REMOTE_BYTES_MIN, RemoteBulk, split_trailer};
use crate::stream::Stream;
use env::Env;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use types::{ClientId, Code, Error, Result, limits};
use wire::header::{FLAG_DEFERRED_BULK, FLAG_JOB, FLAG_REMOTE_BULK, FLAG_SHORT, FLAG_USERS};
use wire::{Header, Kind};

pub(crate) struct Serving {
    stream: Rc<Stream>,
    outbox: Rc<Outbox>,
    reader: RefCell<FrameReader>,
    /// The bulk of the last frame is still being read by its holder.
    bulk_lent: Cell<bool>,
    receiver: RefCell<Option<Waker>>,
    deferred: DeferredTable,
    answers: Rc<Answers>,
    process: Option<Rc<Process>>,
    client: ClientId,
    job: String,
    closed: Cell<bool>,
}

/// A connection being served. Clones are the same one; it closes when the last is dropped.
#[derive(Clone)]
pub struct ServerConn(Rc<Handle>);

/// Closes the connection when the last [`ServerConn`] goes, while responders keep the rest.
struct Handle(Rc<Serving>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A request (or notice) from the client.
pub struct Incoming {
    /// Its header; the body length covers what travelled with the body.
    pub header: Header,
    /// The encoded message.
    pub body: Vec<u8>,
    /// The number of the job that is asked for; 0: the connection's own.
    pub job: u8,
    /// Data that belongs to it.
    pub bulk: IncomingBulk,
    pub responder: Responder,
}

impl ServerConn {
    pub(crate) fn new(
        env: &Env,
        stream: Stream,
        process: Option<Process>,
        account: Option<Arc<Account>>,
        client: ClientId,
        job: String,
    ) -> ServerConn {
        let stream = Rc::new(stream);
        ServerConn(Rc::new(Handle(Rc::new(Serving {
            outbox: Outbox::new(env, stream.clone()),
            stream,
            reader: RefCell::new(FrameReader::new(account)),
            bulk_lent: Cell::new(false),
            receiver: RefCell::default(),
            deferred: DeferredTable::default(),
            answers: Rc::default(),
            process: process.map(Rc::new),
            client,
            job,
            closed: Cell::new(false),
        }))))
    }

    pub(crate) fn outbox(&self) -> &Rc<Outbox> {
        &self.0.0.outbox
    }

    /// The next request; `None` when the client has closed or is gone. An error means that the
    /// client sent what is not understood, or that the connection broke; it is closed then. Pings
    /// are answered here. The future may be dropped without losing anything.
    pub async fn recv(&self) -> Result<Option<Incoming>> {
        let serving = &self.0.0;
        loop {
            let frame = std::future::poll_fn(|cx| serving.poll_frame(cx)).await;
            let incoming = match frame {
                Ok(Some((header, body))) => serving.take_in(header, body),
                Ok(None) => {
                    serving.close();
                    return Ok(None);
                }
                Err(error) => Err(error),
            };
            match incoming {
                Ok(Some(incoming)) => return Ok(Some(incoming)),
                Ok(None) => {}
                Err(error) => {
                    serving.close();
                    return Err(error);
                }
            }
        }
    }

    pub fn client(&self) -> ClientId {
        self.0.0.client
    }

    /// Name of the caller's job; may be empty.
    pub fn job(&self) -> &str {
        &self.0.0.job
    }

    /// The engine reads and writes this client's memory in place.
    pub fn has_remote_bulk(&self) -> bool {
        self.0.0.process.is_some()
    }

    /// Ends the connection: a waiting `recv` gives `None`, answers fail with `Closed`.
    pub fn close(&self) {
        self.0.0.close();
    }
}

impl Serving {
    fn close(&self) {
        if !self.closed.replace(true) {
            self.stream.close();
            self.outbox.fail(Error::new(Code::Closed, "the connection is closed"));
            self.deferred.close();
            self.wake_receiver();
        }
    }

    fn wake_receiver(&self) {
        let waker = self.receiver.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>>> {
        if self.closed.get() {
            return Poll::Ready(Ok(None));
        }
        if self.bulk_lent.get() {
            self.receiver.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        self.reader.borrow_mut().poll_frame(&self.stream, cx)
    }

    fn take_in(self: &Rc<Self>, header: Header, mut body: Vec<u8>) -> Result<Option<Incoming>> {
        let charge = Rc::new(self.reader.borrow_mut().take_charge());
        let answer_kind = match header.kind {
            Kind::Request => Some(Kind::Reply),
            Kind::Control => Some(Kind::ControlReply),
            Kind::Notice => None,
            Kind::Ping => {
                self.reader.borrow_mut().discard(streamed_bulk_bytes(&header));
                let pong = Header::new(Kind::Pong, header.request_id, &[], 0);
                self.outbox.post(&[&pong.encode()])?;
                return Ok(None);
            }
            Kind::Data => return self.take_data(&header).map(|()| None),
            Kind::Cancel => {
                self.reader.borrow_mut().discard(streamed_bulk_bytes(&header));
                self.deferred.cancel(header.request_id);
                return Ok(None);
            }
            Kind::Hello
            | Kind::HelloReply
            | Kind::Reply
            | Kind::ControlReply
            | Kind::Pong
            | Kind::Go
            | Kind::Challenge => {
                return Err(Error::new(
                    Code::Proto,
                    format!("the client sent a frame of kind {:?}", header.kind),
                ));
            }
        };
        let mut remote = None;
        if header.flags & FLAG_REMOTE_BULK != 0 {
            let (Some(process), Some(shm)) = (&self.process, self.stream.shm()) else {
                return Err(Error::new(Code::Proto, "remote bulk was not agreed on"));
            };
            let trailer = split_trailer(&mut body, header.bulk_bytes)?;
            let (region, bells) = (shm.region().clone(), shm.bells().clone());
            remote = Some(Rc::new(RemoteBulk::new(process.clone(), region, bells, trailer)));
        }
        let mut job = 0;
        if header.flags & FLAG_JOB != 0 {
            job = body.pop().ok_or_else(|| Error::new(Code::Proto, "a request without a job"))?;
        }
        let mut deferred = None;
        if header.flags & FLAG_DEFERRED_BULK != 0 {
            if header.kind != Kind::Request || remote.is_some() || header.bulk_bytes == 0 {
                return Err(Error::new(Code::Proto, "only the bulk of a request can be deferred"));
            }
            deferred = Some(self.deferred.add(header.request_id, header.bulk_bytes)?);
        }
        let streamed = streamed_bulk_bytes(&header);
        self.bulk_lent.set(streamed > 0);
        let bulk = IncomingBulk {
            serving: self.clone(),
            remaining: header.bulk_bytes as usize,
            streamed,
            remote: remote.clone(),
            deferred: deferred.clone(),
            charge: charge.clone(),
        };
        let request_id = header.request_id;
        let responder = Responder {
            serving: self.clone(),
            request_id,
            answer_kind,
            remote,
            deferred,
            bulk_credit: None,
            is_short: false,
            has_users: false,
            room: RefCell::default(),
            charge,
        };
        Ok(Some(Incoming { header, body, job, bulk, responder }))
    }

    /// Hands data that was asked for to whom it is for.
    fn take_data(&self, header: &Header) -> Result<()> {
        let elsewhere = FLAG_REMOTE_BULK | FLAG_DEFERRED_BULK;
        if header.body_bytes != 0 || header.flags & elsewhere != 0 {
            return Err(Error::new(Code::Proto, "a data frame has nothing but data"));
        }
        match self.deferred.arrived(header.request_id, header.bulk_bytes)? {
            true => self.bulk_lent.set(true),
            false => self.reader.borrow_mut().discard(header.bulk_bytes as usize),
        }
        Ok(())
    }
}

/// Data that came with a request. Dropping it unread throws the rest away.
pub struct IncomingBulk {
    serving: Rc<Serving>,
    remaining: usize,
    /// Of these, bytes that are in the stream.
    streamed: usize,
    remote: Option<Rc<RemoteBulk>>,
    /// Set while it is not in the stream yet.
    deferred: Option<Rc<Deferred>>,
    charge: Rc<Charge>,
}

impl IncomingBulk {
    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// It is still at the client and comes when it is read. `recv` must go on meanwhile: read it
    /// beside the task that receives.
    pub fn is_deferred(&self) -> bool {
        self.deferred.is_some()
    }

    /// It is next in the stream: until it is read or dropped, nothing behind it is received.
    pub fn blocks_stream(&self) -> bool {
        self.streamed > 0
    }

    /// Has the client send deferred bulk, and waits for it.
    async fn fetch(&mut self, deferred: &Rc<Deferred>) -> Result<()> {
        if deferred.stage() == Stage::Kept {
            let go = Header::new(Kind::Go, deferred.request_id, &[], 0);
            self.serving.outbox.post(&[&go.encode()])?;
            deferred.set_going();
        }
        let serving = &self.serving;
        std::future::poll_fn(|cx| match deferred.stage() {
            Stage::Arrived => Poll::Ready(Ok(())),
            _ if serving.closed.get() => {
                Poll::Ready(Err(Error::new(Code::Closed, "the client closed inside a request")))
            }
            Stage::Canceled => {
                Poll::Ready(Err(Error::new(Code::Canceled, "the caller has given up")))
            }
            Stage::Kept | Stage::Going => {
                deferred.note_reader(cx.waker());
                Poll::Pending
            }
        })
        .await?;
        self.deferred = None;
        self.streamed = self.remaining;
        Ok(())
    }

    /// Reads the next bytes, all of `buf`. `Proto` when fewer remain, `Canceled` when the caller
    /// has given up, `Closed` when it is gone.
    pub async fn read_into(&mut self, buf: &mut [u8]) -> Result<()> {
        self.read_all_into(&mut [buf]).await
    }

    /// [`IncomingBulk::read_into`] for several, one after the other: where it is another process's memory, in one call of
    /// the kernel.
    pub async fn read_all_into(&mut self, rooms: &mut [&mut [u8]]) -> Result<()> {
        let bytes: usize = rooms.iter().map(|room| room.len()).sum();
        if bytes > self.remaining {
            return Err(Error::new(
                Code::Proto,
                format!("the request has {} more bytes, not {bytes}", self.remaining),
            ));
        }
        if bytes == 0 {
            return Ok(());
        }
        if let Some(remote) = &self.remote {
            return match remote.read_into(rooms) {
                Ok(()) => {
                    self.remaining -= bytes;
                    Ok(())
                }
                // Its memory can be reached no more: it comes back and sends its data.
                Err(error) if matches!(error.code, Code::NoPerm | Code::Closed) => {
                    self.serving.close();
                    Err(Error::new(Code::Closed, error.to_string()))
                }
                Err(error) => Err(error),
            };
        }
        if let Some(deferred) = self.deferred.clone() {
            self.fetch(&deferred).await?;
        }
        for room in rooms {
            let mut done = 0;
            while done < room.len() {
                let (serving, rest) = (&self.serving, &mut room[done..]);
                let count = std::future::poll_fn(|cx| serving.stream.poll_read(cx, rest)).await?;
                if count == 0 {
                    return Err(Error::new(Code::Closed, "the client closed inside a request"));
                }
                done += count;
                self.charge.add(count);
                self.remaining -= count;
                self.streamed -= count;
            }
        }
        self.give_back_if_read();
        Ok(())
    }

    /// Reads all that remains into a new buffer.
    pub async fn read_to_vec(&mut self) -> Result<Vec<u8>> {
        let mut out = vec![0; self.remaining];
        self.read_into(&mut out).await?;
        Ok(out)
    }

    fn give_back_if_read(&mut self) {
        if self.streamed == 0 && self.serving.bulk_lent.replace(false) {
            self.serving.wake_receiver();
        }
    }
}

impl Drop for IncomingBulk {
    fn drop(&mut self) {
        if let Some(deferred) = self.deferred.take() {
            self.serving.deferred.forget(&deferred);
            if deferred.stage() == Stage::Arrived {
                self.streamed = self.remaining;
            }
        }
        if self.streamed > 0 {
            self.serving.reader.borrow_mut().discard(self.streamed);
            self.streamed = 0;
            self.give_back_if_read();
        }
    }
}

/// Answers one request. Dropped without an answer, it sends the error `Closed`: the engine has given
/// the request up, and whether it took effect is not known.
pub struct Responder {
    serving: Rc<Serving>,
    request_id: u64,
    answer_kind: Option<Kind>,
    remote: Option<Rc<RemoteBulk>>,
    deferred: Option<Rc<Deferred>>,
    bulk_credit: Option<u32>,
    is_short: bool,
    has_users: bool,
    /// For the answer, and the bytes that are counted of it.
    room: RefCell<Option<(AnswerRoom, usize)>>,
    charge: Rc<Charge>,
}

/// A place among the tasks that are woken when a client gives up.
struct Watch<'a>(&'a DeferredTable, u64);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.unwatch(self.1);
    }
}

impl Responder {
    /// Tells the client how many bulk writes it may have under way with their data in the stream;
    /// `None` (as long as nothing is set): any number. See [`Header::bulk_credit`].
    pub fn set_bulk_credit(&mut self, credit: Option<u32>) {
        self.bulk_credit = credit;
    }

    /// Tells the client that new files are better off elsewhere.
    pub fn set_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    /// Tells a job in the background that users are there, too.
    pub fn set_users(&mut self, has_users: bool) {
        self.has_users = has_users;
    }

    /// Waits for room for an answer of `bytes`, before it is put together; false when nobody waits for
    /// the answer any more. Room is taken once: whoever has some gets no more.
    pub async fn room_for_answer(&self, bytes: usize) -> bool {
        let Some(account) = self.charge.account().filter(|_| bytes > 0) else { return true };
        if self.has_room() {
            return true;
        }
        let taken = {
            let take = pin!(self.serving.answers.take_room(account, bytes as u64));
            match select(take, pin!(self.abandoned())).await {
                Either::Left((room, _)) => room,
                Either::Right(_) => return false,
            }
        };
        self.charge.add(bytes);
        self.room.replace(Some((taken, bytes)));
        true
    }

    /// True when room for the answer was taken.
    pub fn has_room(&self) -> bool {
        self.room.borrow().is_some()
    }

    /// True when nobody waits for the answer any more, as far as can be seen from here: the
    /// connection has ended, or the call has.
    pub fn is_abandoned(&self) -> bool {
        self.serving.closed.get()
            || self.deferred.as_ref().is_some_and(|deferred| deferred.stage() == Stage::Canceled)
            || self.remote.as_ref().is_some_and(|remote| !remote.is_wanted())
    }

    /// Waits until the connection has ended or the client says that it has given up a request
    /// whose bulk it deferred.
    pub async fn abandoned(&self) {
        let table = &self.serving.deferred;
        let watch = Watch(table, table.new_watcher());
        std::future::poll_fn(|cx| {
            if self.is_abandoned() {
                return Poll::Ready(());
            }
            table.watch(watch.1, cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// Room the caller has for data. Callers whose bulk travels in the stream do not say; then it
    /// is the limit for one request.
    pub fn bulk_room(&self) -> usize {
        self.remote.as_ref().map_or(limits::BULK_BYTES_MAX, |remote| remote.room())
    }

    /// True when the sender wants no answer ([`Kind::Notice`]); `reply` does nothing then.
    pub fn is_unwanted(&self) -> bool {
        self.answer_kind.is_none()
    }

    /// Sends the answer: body, then the bytes of `segments` in order. Waits only while the stream
    /// is full. `Canceled` when the caller has given up, `Closed` when it is gone; nothing is to
    /// be done about either.
    pub async fn reply(mut self, map_version: u32, body: &[u8], segments: &[&[u8]]) -> Result<()> {
        let Some(kind) = self.answer_kind else { return Ok(()) };
        let bytes: usize = segments.iter().map(|part| part.len()).sum();
        if bytes > limits::BULK_BYTES_MAX || body.len() > limits::BODY_BYTES_MAX {
            return Err(Error::inval("an answer is over the size limit"));
        }
        let mut header = Header::new(kind, self.request_id, body, bytes);
        header.map_version = map_version;
        header.set_bulk_credit(self.bulk_credit);
        if self.is_short {
            header.flags |= FLAG_SHORT;
        }
        if self.has_users {
            header.flags |= FLAG_USERS;
        }
        let mut in_stream = segments;
        if let Some(remote) = &self.remote
            && bytes >= REMOTE_BYTES_MIN
        {
            match remote.write_all(segments) {
                Ok(()) => {
                    header.flags |= FLAG_REMOTE_BULK;
                    in_stream = &[];
                }
                // The kernel has changed its mind about our access; the stream always works.
                Err(error) if error.code == Code::NoPerm => {}
                Err(error) => {
                    if error.code == Code::Closed {
                        self.serving.close();
                    }
                    return Err(error);
                }
            }
        }
        self.answer_kind = None;
        let bytes = body.len() + in_stream.iter().map(|part| part.len()).sum::<usize>();
        let counted = self.room.borrow().as_ref().map_or(0, |(_, bytes)| *bytes);
        self.charge.add(bytes.saturating_sub(counted));
        self.serving.outbox.send(&header.encode(), body, in_stream).await
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let Some(kind) = self.answer_kind.take() else { return };
        if self.is_abandoned() {
            return;
        }
        let error = Error::new(Code::Closed, "the engine has given up the request");
        let body = wire::encode(&Err::<(), Error>(error));
        let header = Header::new(kind, self.request_id, &body, 0);
        // A connection that takes no more has ended; that is an answer, too.
        let _ = self.serving.outbox.post(&[&header.encode(), &body]);
    }
}
