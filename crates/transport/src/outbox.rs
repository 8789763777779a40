//! The sending side of a connection, shared by everybody who sends frames on it.
//!
//! Invariants: frames are written whole, one after the other, in the order their senders began to
//! wait. A sender whose future is dropped in the middle of its frame leaves the rest behind as
//! owned bytes (the *backlog*), which a task writes before anybody else's turn.

use crate::stream::{Stream, rest_of};
use env::Env;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use types::{Code, Error, Result};

/// Most backlog bytes; beyond it [`Outbox::post`] refuses.
const BACKLOG_BYTES_MAX: usize = 8 << 20;
/// Parts handed to one vectored write.
const PART_COUNT_MAX: usize = 64;

#[derive(Default)]
struct SendQueue {
    /// Somebody is in the middle of a frame, or the backlog task is at work.
    busy: bool,
    backlog: Vec<u8>,
    backlog_start: usize,
    waiting: VecDeque<(u64, Waker)>,
    /// Tickets before this one have had their turn.
    ticket_last: u64,
    broken: Option<Error>,
}

/// The sending side of a connection.
pub(crate) struct Outbox {
    env: Env,
    stream: Rc<Stream>,
    state: RefCell<SendQueue>,
    flusher: RefCell<Option<Waker>>,
    flushing: Cell<bool>,
}

impl Outbox {
    pub fn new(env: &Env, stream: Rc<Stream>) -> Rc<Outbox> {
        Rc::new(Outbox {
            env: env.clone(),
            stream,
            state: RefCell::default(),
            flusher: RefCell::default(),
            flushing: Cell::new(false),
        })
    }

    /// Sends one frame: header, body, then bulk. Waits only while the stream is full or others
    /// are first.
    pub fn send<'a>(
        self: &'a Rc<Self>,
        header: &'a [u8],
        body: &'a [u8],
        bulk: &'a [&'a [u8]],
    ) -> Send<'a> {
        let bytes = header.len() + body.len() + bulk.iter().map(|part| part.len()).sum::<usize>();
        let front = [header, body];
        Send { outbox: self, front, bulk, bytes, sent: 0, turn: Turn::Before, ticket: None }
    }

    /// Sends one frame without waiting: what the stream does not take now is kept. `NoMem`
    /// when too much is kept already.
    pub fn post(self: &Rc<Self>, parts: &[&[u8]]) -> Result<()> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        if state.backlog.len() - state.backlog_start > BACKLOG_BYTES_MAX {
            return Err(Error::new(Code::NoMem, "the peer does not take what it is sent"));
        }
        for part in parts {
            state.backlog.extend_from_slice(part);
        }
        drop(state);
        self.flush();
        Ok(())
    }

    /// Fails everybody who waits and all who come.
    pub fn fail(&self, error: Error) {
        let waiting = {
            let mut state = self.state.borrow_mut();
            state.broken.get_or_insert(error);
            state.backlog = Vec::new();
            state.backlog_start = 0;
            std::mem::take(&mut state.waiting)
        };
        for (_, waker) in waiting {
            waker.wake();
        }
        if let Some(waker) = self.flusher.take() {
            waker.wake();
        }
    }

    /// Gives up the turn: the backlog first, else the first who waits.
    fn pass_on(self: &Rc<Self>) {
        self.state.borrow_mut().busy = false;
        self.flush();
    }

    /// Wakes the first who waits.
    fn offer(&self) {
        let next = self.state.borrow().waiting.front().map(|(_, waker)| waker.clone());
        if let Some(waker) = next {
            waker.wake();
        }
    }

    /// Writes backlog as far as the stream takes it; a task does the rest. Then it is the turn of
    /// the first who waits.
    fn flush(self: &Rc<Self>) {
        if self.state.borrow().busy {
            return;
        }
        let mut cx = Context::from_waker(Waker::noop());
        if self.poll_backlog(&mut cx).is_ready() {
            return self.offer();
        }
        // The task's waker must replace the blank one, so it looks once more.
        if !self.flushing.replace(true) {
            let outbox = self.clone();
            self.state.borrow_mut().busy = true;
            self.env.spawn(async move {
                std::future::poll_fn(|cx| {
                    outbox.flusher.replace(Some(cx.waker().clone()));
                    outbox.poll_backlog(cx)
                })
                .await;
                outbox.flusher.replace(None);
                outbox.flushing.set(false);
                outbox.pass_on();
            });
        }
    }

    fn poll_backlog(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        if state.backlog.is_empty() {
            return Poll::Ready(());
        }
        while state.backlog_start < state.backlog.len() {
            let rest = IoSlice::new(&state.backlog[state.backlog_start..]);
            match self.stream.poll_write(cx, &[rest]) {
                Poll::Ready(Ok(count)) => state.backlog_start += count,
                Poll::Ready(Err(error)) => {
                    state.broken.get_or_insert(error);
                    break;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        state.backlog.clear();
        state.backlog.shrink_to(1 << 16);
        state.backlog_start = 0;
        Poll::Ready(())
    }
}

#[derive(PartialEq)]
enum Turn {
    Before,
    Mine,
    Over,
}

/// A frame being sent.
pub(crate) struct Send<'a> {
    outbox: &'a Rc<Outbox>,
    front: [&'a [u8]; 2],
    bulk: &'a [&'a [u8]],
    bytes: usize,
    sent: usize,
    turn: Turn,
    ticket: Option<u64>,
}

impl Send<'_> {
    /// Takes the turn if it is ours; waits in line otherwise.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.outbox.state.borrow_mut();
        if let Some(error) = &state.broken {
            return Poll::Ready(Err(error.clone()));
        }
        let first = match self.ticket {
            None => state.waiting.is_empty(),
            Some(ticket) => state.waiting.front().is_some_and(|(front, _)| *front == ticket),
        };
        if first && !state.busy && state.backlog.is_empty() {
            if self.ticket.take().is_some() {
                state.waiting.pop_front();
            }
            state.busy = true;
            self.turn = Turn::Mine;
            return Poll::Ready(Ok(()));
        }
        match self.ticket {
            Some(ticket) => {
                if let Some(place) = state.waiting.iter_mut().find(|(other, _)| *other == ticket) {
                    place.1.clone_from(cx.waker());
                }
            }
            None => {
                state.ticket_last += 1;
                let ticket = state.ticket_last;
                state.waiting.push_back((ticket, cx.waker().clone()));
                self.ticket = Some(ticket);
            }
        }
        Poll::Pending
    }
}

impl Future for Send<'_> {
    type Output = Result<()>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        if this.turn == Turn::Before {
            match this.poll_turn(cx) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
        while this.sent < this.bytes {
            let mut slices = [IoSlice::new(&[]); PART_COUNT_MAX];
            let mut count = 0;
            rest_of(this.front.iter().chain(this.bulk), this.sent, |part| {
                if count < PART_COUNT_MAX {
                    slices[count] = IoSlice::new(part);
                    count += 1;
                }
                count < PART_COUNT_MAX
            });
            match this.outbox.stream.poll_write(cx, &slices[..count]) {
                Poll::Ready(Ok(count)) => this.sent += count,
                Poll::Ready(Err(error)) => {
                    this.turn = Turn::Over;
                    this.outbox.fail(error.clone());
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {
                    if let Some(error) = this.outbox.state.borrow().broken.clone() {
                        this.turn = Turn::Over;
                        return Poll::Ready(Err(error));
                    }
                    return Poll::Pending;
                }
            }
        }
        this.turn = Turn::Over;
        this.outbox.pass_on();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Send<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut state = self.outbox.state.borrow_mut();
            let was_first = state.waiting.front().is_some_and(|(front, _)| *front == ticket);
            state.waiting.retain(|(other, _)| *other != ticket);
            // The turn may have been offered to us just now; offer it to the next.
            if was_first
                && !state.busy
                && let Some((_, waker)) = state.waiting.front()
            {
                let waker = waker.clone();
                drop(state);
                waker.wake();
            }
        }
        if self.turn == Turn::Mine {
            if self.sent > 0 {
                let mut state = self.outbox.state.borrow_mut();
                let mut rest = Vec::with_capacity(self.bytes - self.sent);
                rest_of(self.front.iter().chain(self.bulk), self.sent, |part| {
                    rest.extend_from_slice(part);
                    true
                });
                // Before what others have posted meanwhile: the frame must be finished first.
                rest.extend_from_slice(&state.backlog[state.backlog_start..]);
                state.backlog = rest;
                state.backlog_start = 0;
            }
            self.outbox.pass_on();
        }
    }
}
