//! Requests to the control service: which engine is asked, and whom else when it says nothing.
//!
//! Any engine passes requests on, so that one is enough, and the first that answers is kept. But one that serves its clients may not
//! reach who holds the control service, or stand still. What only looks is then asked of the next engine beside it, and who answers
//! is asked from then on.
//!
//! Invariants: a connection that has answered stays until it breaks, for handles that were given on it end with it. What changes
//! something, or gives a handle that could stand in the way of the same request, is with one engine at a time. Of two handles that two engines have
//! given for one request, one is closed.

use crate::client::{BRIEF_TIME_MAX, Client};
use async_recursion::async_recursion as boxed;
use futures_util::StreamExt;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use transport::{Address, Answer, Call, Conn, Ending};
use types::{Code, Error, Result};
use wire::Kind;
use wire::control::{ControlReply, ControlRequest, Evict, OpenMode};
use wire::hello::Service;

/// How long a connection attempt is waited for before the next engine is tried beside it.
const NEXT_DIAL_PAUSE: Duration = Duration::from_millis(300);
/// How long an engine may take over what only looks before another is asked beside it.
const BESIDE_PAUSE: Duration = Duration::from_secs(1);
/// How long an engine may take to close a handle that was given there, when another one is asked by now.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);
/// Pause before a request is sent again.
const AGAIN_PAUSE: Duration = Duration::from_millis(50);

/// A connection to the control service by way of an engine.
#[derive(Clone)]
struct Way {
    address: Address,
    conn: Conn,
    has_answered: Rc<Cell<bool>>,
}

impl Way {
    fn new(address: Address, conn: Conn) -> Way {
        Way { address, conn, has_answered: Rc::default() }
    }
}

/// The ways to the control service.
#[derive(Default)]
pub(crate) struct Ways {
    /// Those that are open; the first one is asked.
    open: RefCell<Vec<Way>>,
    /// One dial at a time: two would be one too many.
    dialing: futures_util::lock::Mutex<()>,
    /// With which of the engines the next dial begins.
    begins_at: Cell<usize>,
}

impl Ways {
    /// Ends all connections.
    pub fn clear(&self) {
        self.open.take();
    }

    fn first(&self) -> Option<Way> {
        let mut open = self.open.borrow_mut();
        open.retain(|way| !way.conn.is_broken());
        open.first().cloned()
    }

    fn others(&self) -> Vec<Way> {
        self.open.borrow().iter().skip(1).cloned().collect()
    }

    fn at(&self, address: &Address) -> Option<Way> {
        let open = self.open.borrow();
        open.iter().find(|way| way.address == *address && !way.conn.is_broken()).cloned()
    }

    /// From now on this one is asked.
    fn prefer(&self, way: &Way) {
        let mut open = self.open.borrow_mut();
        open.retain(|other| !other.conn.is_same(&way.conn));
        open.insert(0, way.clone());
    }

    fn give_up(&self, way: &Way) {
        self.open.borrow_mut().retain(|other| !other.conn.is_same(&way.conn));
        self.begins_at.set(self.begins_at.get().wrapping_add(1));
    }
}

/// True for what may be asked of several engines at once; with `is_first` the one that is silent has answered nothing yet, so that
/// nothing is lost with the connection to it.
fn may_go_beside(request: &ControlRequest, is_first: bool) -> bool {
    match request {
        ControlRequest::SystemQuery
        | ControlRequest::PoolList
        | ControlRequest::PoolQuery(_)
        | ControlRequest::PoolMap(_)
        | ControlRequest::ContList(_)
        | ControlRequest::ContQuery(..)
        | ControlRequest::AllocOids { .. }
        | ControlRequest::GetAttrs { .. }
        | ControlRequest::GetProps { .. }
        | ControlRequest::SnapList(..) => true,
        ControlRequest::PoolOpen { mode, .. } => is_first && *mode != OpenMode::Exclusive,
        ControlRequest::ContOpen { ask, .. } => {
            is_first && ask.mode != OpenMode::Exclusive && ask.evict == Evict::Nobody
        }
        _ => false,
    }
}

/// What closes the handle that an answer gives, if it gives one.
fn what_closes(request: &ControlRequest, answer: &Answer) -> Option<ControlRequest> {
    let is_open =
        matches!(request, ControlRequest::PoolOpen { .. } | ControlRequest::ContOpen { .. });
    let decoded = is_open.then(|| wire::decode::<Result<ControlReply>>(&answer.body));
    match decoded?.ok()?.ok()? {
        ControlReply::PoolOpened { handle, .. } => Some(ControlRequest::PoolClose { handle }),
        ControlReply::ContOpened { handle, .. } => Some(ControlRequest::ContClose { handle }),
        _ => None,
    }
}

/// A request as it is sent.
struct Sent<'a> {
    request: &'a ControlRequest,
    body: &'a [u8],
    request_id: u64,
    flags: u8,
    deadline: Duration,
}

impl Client {
    /// Asks the control service, trying the known engines in turn.
    pub async fn control(&self, request: &ControlRequest) -> Result<ControlReply> {
        self.control_by(request).await.map(|(reply, _)| reply)
    }

    /// The same, and of the connection that the answer came by, when it ends.
    #[boxed(?Send)]
    pub(crate) async fn control_by(
        &self,
        request: &ControlRequest,
    ) -> Result<(ControlReply, Ending)> {
        let body = wire::encode(request);
        let deadline = self.env().now() + self.options().timeout;
        let request_id = self.next_request();
        let mut sent = Sent { request, body: &body, request_id, flags: 0, deadline };
        loop {
            let error = match self.control_once(&sent).await {
                Ok((answer, on)) => match wire::decode::<Result<ControlReply>>(&answer.body)? {
                    // The engine is stopping, and has given the request up.
                    Err(error) if error.code == Code::Closed && request.is_repeatable() => {
                        if let Some(way) = self.ways().first() {
                            self.ways().give_up(&way);
                        }
                        error
                    }
                    Err(error) if error.code == Code::BadHandle => {
                        return self.control_elsewhere(&sent, error).await;
                    }
                    reply => return Ok((reply?, on)),
                },
                Err(error) => error,
            };
            // A control request may have been carried out before the connection broke;
            // only those that can be repeated without harm are.
            let is_passing = matches!(error.code, Code::Unreach | Code::Closed);
            if !is_passing || !request.is_repeatable() || self.env().now() >= deadline {
                return Err(error);
            }
            sent.flags = wire::header::FLAG_RETRY;
            self.env().sleep(AGAIN_PAUSE).await;
        }
    }

    /// One try: at the engine that is asked, and where that says nothing to what only looks, at others beside it.
    async fn control_once(&self, sent: &Sent<'_>) -> Result<(Answer, Ending)> {
        let way = match self.way().await {
            Ok(way) => way,
            // Nobody there yet; nothing was asked.
            Err(error) if error.code == Code::TimedOut => {
                return Err(Error::new(Code::Unreach, error.to_string()));
            }
            Err(error) => return Err(error),
        };
        if !may_go_beside(sent.request, !way.has_answered.get()) {
            return Ok((self.call(&way, sent).await?, way.conn.ending()));
        }
        let asked = async |way: Result<Way>| -> Result<(Way, Answer)> {
            let way = way?;
            let answer = self.call(&way, sent).await?;
            Ok((way, answer))
        };
        let mut others = self.addresses_in_turn().into_iter();
        let mut under_way = FuturesUnordered::new();
        let first = way.clone();
        under_way.push(Either::Left(asked(Ok(way))));
        let mut last = Error::bare(Code::Unreach);
        loop {
            let outcome = match others.len() {
                0 => under_way.next().await,
                _ => match self.env().timeout(BESIDE_PAUSE, under_way.next()).await {
                    Some(outcome) => outcome,
                    None => {
                        if let Some(address) = others.find(|address| *address != first.address) {
                            let asked = &asked;
                            let beside = async move { asked(self.way_to(address).await).await };
                            under_way.push(Either::Right(beside));
                        }
                        continue;
                    }
                },
            };
            match outcome {
                // The first has answered others meanwhile, and stays: a handle that it gives would be nobody's.
                Some(Ok((way, answer)))
                    if first.has_answered.get()
                        && !way.conn.is_same(&first.conn)
                        && let Some(close) = what_closes(sent.request, &answer) =>
                {
                    self.give_back(&way, &close).await;
                }
                Some(Ok((way, answer))) => {
                    self.ways().prefer(&way);
                    if !first.has_answered.get() {
                        // With a handle that it may still give.
                        self.ways().give_up(&first);
                        first.conn.close();
                    }
                    return Ok((answer, way.conn.ending()));
                }
                Some(Err(error)) => last = error,
                None => return Err(last),
            }
        }
    }

    /// Closes a handle that is not wanted. Where that fails it ends with the connection.
    async fn give_back(&self, way: &Way, close: &ControlRequest) {
        let (now, request_id) = (self.env().now(), self.next_request());
        let deadline = now + CLOSE_TIME_MAX;
        let sent =
            Sent { request: close, body: &wire::encode(close), request_id, flags: 0, deadline };
        if let Err(error) = self.call(way, &sent).await {
            tracing::debug!("closing what two engines have opened: {error}");
        }
    }

    async fn call(&self, way: &Way, sent: &Sent<'_>) -> Result<Answer> {
        let left = sent.deadline.saturating_sub(self.env().now());
        let is_brief = sent.request.is_brief();
        let call = Call {
            kind: Kind::Control,
            request_id: sent.request_id,
            flags: sent.flags,
            map_version: 0,
            deadline: if is_brief { left.min(BRIEF_TIME_MAX) } else { left },
            body: sent.body,
            bulk_out: &[],
            bulk_in: &mut [],
        };
        let error = match way.conn.call(call).await {
            // An engine that stands still: another one may answer.
            Err(error) if error.code == Code::TimedOut && is_brief => {
                Error::new(Code::Unreach, error.to_string())
            }
            Ok(answer) => {
                way.has_answered.set(true);
                return Ok(answer);
            }
            Err(error) => error,
        };
        if matches!(error.code, Code::Unreach | Code::Closed) {
            self.ways().give_up(way);
        }
        Err(error)
    }

    /// The handle was not given on the connection that is asked now: it may have been on an earlier one.
    async fn control_elsewhere(
        &self,
        sent: &Sent<'_>,
        error: Error,
    ) -> Result<(ControlReply, Ending)> {
        for way in self.ways().others() {
            let answer = self.env().timeout(CLOSE_TIME_MAX, self.call(&way, sent)).await;
            let Some(Ok(answer)) = answer else { continue };
            match wire::decode::<Result<ControlReply>>(&answer.body)? {
                Err(error) if error.code == Code::BadHandle => {}
                reply => return Ok((reply?, way.conn.ending())),
            }
        }
        Err(error)
    }

    /// Makes sure that there is a way to the control service.
    pub(crate) async fn reach_control(&self) -> Result<()> {
        self.way().await.map(|_| ())
    }

    async fn way(&self) -> Result<Way> {
        let ways = self.ways();
        if let Some(way) = ways.first() {
            return Ok(way);
        }
        let _one_dial = ways.dialing.lock().await;
        if let Some(way) = ways.first() {
            return Ok(way);
        }
        let way = self.dial_first().await?;
        ways.prefer(&way);
        Ok(way)
    }

    async fn way_to(&self, address: Address) -> Result<Way> {
        if let Some(way) = self.ways().at(&address) {
            return Ok(way);
        }
        let conn = self.dial(&address, Service::Control).await?;
        Ok(Way::new(address, conn))
    }

    /// Connects to the first engine that answers. One that is slow to answer is waited for while the
    /// next ones are tried.
    async fn dial_first(&self) -> Result<Way> {
        let mut addresses = self.addresses_in_turn().into_iter();
        let mut under_way = FuturesUnordered::new();
        let mut failed = Vec::new();
        loop {
            let next = addresses.next();
            let is_last = next.is_none();
            under_way.extend(next.map(|address| self.way_to(address)));
            let outcome = match is_last {
                true => under_way.next().await,
                false => match self.env().timeout(NEXT_DIAL_PAUSE, under_way.next()).await {
                    Some(outcome) => outcome,
                    None => continue,
                },
            };
            match outcome {
                Some(Ok(way)) => return Ok(way),
                Some(Err(error)) => failed.push(error),
                None => return Err(all_failed(failed)),
            }
        }
    }

    /// The engines that are worth asking: those that were named, and behind them those that maps of open pools name.
    fn addresses_in_turn(&self) -> Vec<Address> {
        let is_usable =
            |address: &&Address| !(self.options().tcp_only && matches!(address, Address::Unix(_)));
        let named = &self.options().system.engines;
        let mut all: Vec<Address> = named.iter().filter(is_usable).cloned().collect();
        let begins_at = self.ways().begins_at.get() % all.len().max(1);
        all.rotate_left(begins_at);
        for state in self.open_pools() {
            for engine in &state.map().engines {
                let known = self.addresses(engine);
                // A second way to the same engine is none.
                if !known.iter().any(|address| all.contains(address)) {
                    all.extend(known.into_iter().next());
                }
            }
        }
        all
    }
}

/// Most engines that are named when none could be reached.
const FAILED_SHOWN_MAX: usize = 8;

/// Why no engine could be reached: what each said, as the first may be the one that is meant.
fn all_failed(mut failed: Vec<Error>) -> Error {
    let Some(last) = failed.pop() else {
        return Error::new(Code::Unreach, "the system has no engine addresses");
    };
    if failed.is_empty() {
        return last;
    }
    let code = last.code;
    failed.push(last);
    let shown = failed.iter().take(FAILED_SHOWN_MAX).map(Error::to_string);
    let mut text = shown.collect::<Vec<String>>().join("; ");
    if let Some(more) = failed.len().checked_sub(FAILED_SHOWN_MAX).filter(|more| *more > 0) {
        text += &format!("; and {more} more");
    }
    Error::new(code, text)
}
