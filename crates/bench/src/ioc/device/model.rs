//! The queue discipline of one storage target, without clocks, threads or data.
//!
//! A write goes through four places, in this order:
//!
//! 1. *client*: it waits until the client's window has room, and is then accepted: its caller
//!    goes on while the client's link carries the bytes to the target, one piece after another;
//! 2. *lobby*: arrived, but the target's queue is full; clients enter in turn, a piece each;
//! 3. *queue*: may be merged with its neighbours in the same file;
//! 4. *device*: a run of adjacent pieces, up to the merge window, begins with the piece that has
//!    been longest in the queue and is served without a break. A run that does not begin where
//!    the last one ended costs a seek. Room in queue and window is free as soon as a piece is done.
//!
//! Many writers share the queue, so each has less of it, runs get shorter and seeks more
//! frequent: the explanation that Ohno, Hori and Ishikawa give for what they saw on Lustre and
//! FEFS. A single writer is limited by its link.
//!
//! A read takes the same way but is accepted at the end only, after its bytes have crossed the
//! link. There is no read-ahead, so one reader waits for each piece.
//!
//! Invariants: the device never rests while its queue holds something; bytes in the queue and
//! in each window are within their bounds (a single larger piece excepted, alone); each request
//! is answered exactly once. The caller's clock only moves the model on: what it computes for
//! a moment does not depend on when it was asked, so a late thread does not slow the device.

use super::params::Params;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// What is asked of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes to the device; answered when the client's window has room for them.
    Write,
    /// Bytes from the device; answered when they have reached the client.
    Read,
    /// Answered when the client has nothing on its way any more.
    Flush,
}

/// What a client asks of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Chosen by the caller, unique among the requests that are not yet answered.
    pub id: u64,
    /// The client: an open file.
    pub client: u64,
    pub kind: Kind,
    /// The file, by inode.
    pub file: u64,
    pub offset: u64,
    /// Number of bytes, at least 1 (but for a flush).
    pub bytes: u64,
}

/// A request that may be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    pub id: u64,
    pub at_ns: u64,
}

/// What a target has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// Runs served.
    pub runs: u64,
    /// Runs that began with a seek.
    pub seeks: u64,
    /// Bytes served.
    pub bytes: u64,
    /// Time spent serving or seeking, nanoseconds.
    pub busy_ns: u64,
}

/// A target and its one device, by the rules of the module.
#[derive(Debug)]
pub struct Model {
    params: Params,
    clients: BTreeMap<u64, Client>,
    /// On their way to the target, by time of arrival and order.
    arriving: BinaryHeap<Reverse<(u64, u64)>>,
    /// On their way back to a client, by time of arrival and order.
    leaving: BinaryHeap<Reverse<(u64, u64)>>,
    /// The requests in `arriving` and `leaving`, by order.
    travelling: BTreeMap<u64, Request>,
    lobby: BTreeMap<u64, VecDeque<Request>>,
    /// The clients that have something in the lobby, the next to enter first.
    turns: VecDeque<u64>,
    queue: VecDeque<Request>,
    /// Bytes in `queue` and `run`.
    queued_bytes: u64,
    /// What the device is serving, with the time each piece is done.
    run: VecDeque<(Request, u64)>,
    /// Where the last run ended: file and offset.
    position: Option<(u64, u64)>,
    now_ns: u64,
    order: u64,
    done: Done,
}

#[derive(Debug, Default)]
struct Client {
    link_free_ns: u64,
    /// Accepted and not yet on the device.
    outstanding_bytes: u64,
    /// Reads that are not yet answered.
    reads: u64,
    /// Writes without room in the window.
    waiting: VecDeque<Request>,
    flushes: Vec<u64>,
    closed: bool,
}

impl Client {
    fn is_idle(&self) -> bool {
        self.outstanding_bytes == 0 && self.reads == 0 && self.waiting.is_empty()
    }
}

impl Model {
    /// An idle target at time 0.
    pub fn new(params: Params) -> Model {
        Model {
            params,
            clients: BTreeMap::new(),
            arriving: BinaryHeap::new(),
            leaving: BinaryHeap::new(),
            travelling: BTreeMap::new(),
            lobby: BTreeMap::new(),
            turns: VecDeque::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            run: VecDeque::new(),
            position: None,
            now_ns: 0,
            order: 0,
            done: Done::default(),
        }
    }

    /// Takes a request at `now_ns` and appends what can be answered by then to `answers`.
    /// A time before that of an earlier call counts as the earlier one.
    pub fn submit(&mut self, now_ns: u64, request: Request, answers: &mut Vec<Answer>) {
        self.advance(now_ns, answers);
        let client = self.clients.entry(request.client).or_default();
        client.closed = false;
        match request.kind {
            Kind::Write => {
                client.waiting.push_back(request);
                self.accept(request.client, answers);
            }
            Kind::Read => {
                client.reads += 1;
                self.arrive(request);
            }
            Kind::Flush if client.is_idle() => {
                answers.push(Answer { id: request.id, at_ns: self.now_ns });
            }
            Kind::Flush => client.flushes.push(request.id),
        }
    }

    /// Forgets a client that will ask for nothing more, as soon as it has nothing on its way.
    pub fn close(&mut self, client: u64) {
        if let Some(found) = self.clients.get_mut(&client) {
            found.closed = true;
            self.forget_if_idle(client);
        }
    }

    /// Moves on to `now_ns` and appends what can be answered by then to `answers`, by time.
    pub fn advance(&mut self, now_ns: u64, answers: &mut Vec<Answer>) {
        while let Some(next_ns) = self.next_ns()
            && next_ns <= now_ns
        {
            self.now_ns = self.now_ns.max(next_ns);
            self.happen(next_ns, answers);
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    /// When something happens next; `None` while nothing is on its way.
    pub fn next_ns(&self) -> Option<u64> {
        let first = |heap: &BinaryHeap<Reverse<(u64, u64)>>| heap.peek().map(|next| next.0.0);
        let device = self.run.front().map(|(_, done_ns)| *done_ns);
        [device, first(&self.arriving), first(&self.leaving)].into_iter().flatten().min()
    }

    /// What was done so far.
    pub fn done(&self) -> Done {
        self.done
    }

    /// The one thing that happens at `at_ns`; when several do, the device comes first.
    fn happen(&mut self, at_ns: u64, answers: &mut Vec<Answer>) {
        if self.run.front().is_some_and(|(_, done_ns)| *done_ns == at_ns) {
            self.finish_piece(answers);
        } else if let Some(request) = take_due(&mut self.leaving, &mut self.travelling, at_ns) {
            answers.push(Answer { id: request.id, at_ns });
            if let Some(client) = self.clients.get_mut(&request.client) {
                client.reads -= 1;
            }
            self.flushed(request.client, answers);
        } else if let Some(request) = take_due(&mut self.arriving, &mut self.travelling, at_ns) {
            self.arrive(request);
        }
    }

    /// Lets a client's writes into its window while there is room.
    fn accept(&mut self, client_id: u64, answers: &mut Vec<Answer>) {
        let Some(client) = self.clients.get_mut(&client_id) else { return };
        while let Some(&request) = client.waiting.front() {
            let outstanding = client.outstanding_bytes;
            if outstanding > 0 && outstanding + request.bytes > self.params.window_bytes {
                break;
            }
            client.waiting.pop_front();
            client.outstanding_bytes += request.bytes;
            let carried_ns = time_ns(request.bytes, self.params.client_bytes_per_s);
            client.link_free_ns = client.link_free_ns.max(self.now_ns) + carried_ns;
            self.order += 1;
            self.arriving.push(Reverse((client.link_free_ns, self.order)));
            self.travelling.insert(self.order, request);
            answers.push(Answer { id: request.id, at_ns: self.now_ns });
        }
    }

    /// A request has reached the target.
    fn arrive(&mut self, request: Request) {
        let waiting = self.lobby.entry(request.client).or_default();
        if waiting.is_empty() {
            self.turns.push_back(request.client);
        }
        waiting.push_back(request);
        self.admit();
    }

    /// Lets arrived requests into the queue while there is room, and wakes the device.
    fn admit(&mut self) {
        while let Some(&client) = self.turns.front() {
            let Some(waiting) = self.lobby.get_mut(&client) else { break };
            let Some(&request) = waiting.front() else { break };
            let full = self.queued_bytes + request.bytes > self.params.queue_bytes;
            if self.queued_bytes > 0 && full {
                break;
            }
            waiting.pop_front();
            self.turns.pop_front();
            if waiting.is_empty() {
                self.lobby.remove(&client);
            } else {
                self.turns.push_back(client);
            }
            self.queued_bytes += request.bytes;
            self.queue.push_back(request);
        }
        if self.run.is_empty() {
            self.begin_run();
        }
    }

    /// Begins a run with the oldest request and all that follows it on the device.
    fn begin_run(&mut self) {
        let Some(first) = self.queue.pop_front() else { return };
        let seeks = self.position != Some((first.file, first.offset));
        let start_ns = self.now_ns + if seeks { self.params.seek_ns } else { 0 };
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(piece) = next {
            bytes += piece.bytes;
            let done_ns = start_ns + time_ns(bytes, self.params.rate_bytes_per_s);
            self.run.push_back((piece, done_ns));
            let follows = |other: &Request| {
                other.kind == piece.kind
                    && (other.file, other.offset) == (piece.file, piece.offset + piece.bytes)
                    && bytes + other.bytes <= self.params.merge_bytes
            };
            let at = self.queue.iter().position(follows);
            next = at.and_then(|at| self.queue.remove(at));
        }
        let end_ns = self.run.back().map_or(start_ns, |(_, done_ns)| *done_ns);
        self.done.runs += 1;
        self.done.seeks += u64::from(seeks);
        self.done.bytes += bytes;
        self.done.busy_ns += end_ns - self.now_ns;
    }

    /// The first piece of the run is done.
    fn finish_piece(&mut self, answers: &mut Vec<Answer>) {
        let Some((piece, done_ns)) = self.run.pop_front() else { return };
        self.position = Some((piece.file, piece.offset + piece.bytes));
        self.queued_bytes -= piece.bytes;
        if let Some(client) = self.clients.get_mut(&piece.client) {
            if piece.kind == Kind::Read {
                let carried_ns = time_ns(piece.bytes, self.params.client_bytes_per_s);
                client.link_free_ns = client.link_free_ns.max(done_ns) + carried_ns;
                self.order += 1;
                self.leaving.push(Reverse((client.link_free_ns, self.order)));
                self.travelling.insert(self.order, piece);
            } else {
                client.outstanding_bytes -= piece.bytes;
                self.accept(piece.client, answers);
                self.flushed(piece.client, answers);
            }
        }
        self.admit();
    }

    /// Answers a client's flushes if it has nothing on its way.
    fn flushed(&mut self, client_id: u64, answers: &mut Vec<Answer>) {
        let Some(client) = self.clients.get_mut(&client_id) else { return };
        if client.is_idle() {
            let flushes = client.flushes.drain(..);
            answers.extend(flushes.map(|id| Answer { id, at_ns: self.now_ns }));
        }
        self.forget_if_idle(client_id);
    }

    fn forget_if_idle(&mut self, client_id: u64) {
        let gone = |client: &Client| client.closed && client.is_idle();
        if self.clients.get(&client_id).is_some_and(gone) {
            self.clients.remove(&client_id);
        }
    }

    /// Checks the invariants, given that every request fits the window; for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let queued = self.queue.iter().map(|request| request.bytes);
        let served = self.run.iter().map(|(request, _)| request.bytes);
        let bytes: u64 = queued.chain(served).sum();
        assert_eq!(bytes, self.queued_bytes);
        let pieces = self.queue.len() + self.run.len();
        assert!(bytes <= self.params.queue_bytes || pieces == 1);
        assert!(self.queue.is_empty() || !self.run.is_empty(), "the device rests");
        assert!(self.lobby.is_empty() || bytes > 0, "a lobby before an empty queue");
        assert!(self.lobby.values().all(|waiting| !waiting.is_empty()));
        assert_eq!(self.lobby.len(), self.turns.len());
        for client in self.clients.values() {
            assert!(client.outstanding_bytes <= self.params.window_bytes);
            assert!(client.waiting.is_empty() || client.outstanding_bytes > 0);
        }
        let orders: std::collections::BTreeSet<u64> =
            self.arriving.iter().chain(&self.leaving).map(|entry| entry.0.1).collect();
        assert!(orders.iter().eq(self.travelling.keys()));
    }

    /// Clients that are remembered; for tests.
    #[cfg(test)]
    pub(super) fn client_count(&self) -> usize {
        self.clients.len()
    }
}

/// Takes the first request of a heap if it is due.
fn take_due(
    heap: &mut BinaryHeap<Reverse<(u64, u64)>>,
    travelling: &mut BTreeMap<u64, Request>,
    at_ns: u64,
) -> Option<Request> {
    let Reverse((due_ns, order)) = *heap.peek()?;
    if due_ns != at_ns {
        return None;
    }
    heap.pop();
    travelling.remove(&order)
}

/// Time to move so many bytes, nanoseconds.
fn time_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)) as u64
}
