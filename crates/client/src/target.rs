//! The link to one target: its connection, reconnects, retries, closed handles to tell it of.

use crate::attempt::Attempt;
use crate::client::Client;
use crate::link_speed::SeenTransfers;
use crate::pool::{Pool, PoolState};
use futures_util::future::{Either, select};
use futures_util::lock::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use transport::{Answer, Arrivals, Call, Conn};
use types::map::HashMap;
use types::{Code, ContId, Epoch, Error, PoolId, Result, TargetId, Unit};
use wire::Kind;
use wire::hello::Service;
use wire::lock::LockReply;
use wire::map::{PoolMap, TargetState};
use wire::obj::{Batch, BatchReply, Notice, Op, Request, Sums};

/// Closed handles are told together with the next request, or when this many wait.
const RELEASES_HELD_MAX: usize = 64;
/// Units of one notice that others lead now.
const LEFT_TOLD_MAX: usize = 1000;
/// Where doubling pauses before a reconnect ends.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(500);

/// How often who waits for a target of several looks whether others lead in its place.
const OUT_PAUSE: Duration = Duration::from_secs(1);

/// How often a client that holds locks looks whether it is still connected.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Who holds something of several copies asks for the newest map once in so many looks: an engine that stands still breaks no
/// connection, and others lead in its place.
const MAP_LOOKS: u32 = 6;

type Handle = (PoolId, ContId, Unit);

/// One target as this client sees it.
pub(crate) struct TargetLink {
    id: TargetId,
    conn: RefCell<Option<Conn>>,
    dialing: Mutex<()>,
    /// The session, as the target named it, in which our open handles are registered.
    session: Cell<u64>,
    session_count: Cell<u32>,
    /// Batches under way that open what they make, begun in this session and in earlier ones.
    opening: Cell<(u32, u32)>,
    /// The target is to be told that all open handles are registered.
    owes_registered: Cell<bool>,
    /// Open handles registered at this target, to register again in a new session.
    opens: RefCell<HashMap<Handle, u32>>,
    /// Handles among them that another target led before, to be registered in this session; locks, too.
    moved: RefCell<Vec<(Handle, u32)>>,
    owes_moved: Cell<bool>,
    /// Closed handles not yet told.
    releases: RefCell<Vec<Handle>>,
    /// Other notices not yet told.
    notices: RefCell<Vec<Vec<u8>>>,
    /// What this target led, and this client has since gone elsewhere with, by the version of the map that said so. Told again on each
    /// connection of a session: the target keeps what it knows over connections, and a notice may be lost with one.
    left: RefCell<BTreeMap<Handle, u32>>,
    /// The target is nearly full, as far as is known.
    is_short: Cell<bool>,
    /// What tells how fast it is reached.
    seen: SeenTransfers,
    /// A task looks after the connection while locks are held.
    is_kept: Cell<bool>,
}

/// A batch under way that opens what it makes, until it is dropped: its answer may have been lost with the
/// engine that ran it, and what it opened is registered again with its retry.
pub(crate) struct Opening<'a> {
    link: &'a TargetLink,
    session: u32,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let (now, earlier) = self.link.opening.get();
        if self.session == self.link.session_count.get() {
            self.link.opening.set((now - 1, earlier));
        } else {
            self.link.opening.set((now, earlier - 1));
            self.link.tell_registered();
        }
    }
}

/// A request to a target, kept for retries.
pub(crate) struct Ask<'a, 'b> {
    pub body: &'a [u8],
    pub bulk_out: &'a [&'a [u8]],
    pub bulk_in: &'a mut [&'b mut [u8]],
}

impl TargetLink {
    pub fn new(id: TargetId) -> TargetLink {
        TargetLink {
            id,
            conn: RefCell::new(None),
            dialing: Mutex::new(()),
            session: Cell::new(0),
            session_count: Cell::new(0),
            opening: Cell::default(),
            owes_registered: Cell::new(false),
            opens: RefCell::new(HashMap::default()),
            moved: RefCell::default(),
            owes_moved: Cell::new(false),
            releases: RefCell::new(Vec::new()),
            notices: RefCell::new(Vec::new()),
            left: RefCell::default(),
            is_short: Cell::new(false),
            seen: SeenTransfers::default(),
            is_kept: Cell::new(false),
        }
    }

    /// True when the target was nearly full when it last answered.
    pub fn is_short(&self) -> bool {
        self.is_short.get()
    }

    /// Sends a request and waits for its answer, over reconnects and map changes, until the
    /// client's timeout. The body of the answer begins after the `Ok` tag.
    pub async fn ask(&self, client: &Client, pool: &PoolState, ask: Ask<'_, '_>) -> Result<Answer> {
        self.ask_as(client, pool, ask, &mut Attempt::new(client)).await
    }

    /// [`TargetLink::ask_telling`], without telling anybody.
    pub async fn ask_as(
        &self,
        client: &Client,
        pool: &PoolState,
        ask: Ask<'_, '_>,
        attempt: &mut Attempt,
    ) -> Result<Answer> {
        self.ask_telling(client, pool, ask, attempt, None).await
    }

    /// The same as [`TargetLink::ask`], as a further attempt of a request that may go elsewhere under another map: then
    /// `Stale` is the answer as soon as there is one. Data that come through the stream are told of while they do.
    pub async fn ask_telling(
        &self,
        client: &Client,
        pool: &PoolState,
        ask: Ask<'_, '_>,
        attempt: &mut Attempt,
        arrivals: Option<&dyn Arrivals>,
    ) -> Result<Answer> {
        let env = client.env();
        let deadline = attempt.deadline;
        loop {
            pool.require_there()?;
            if attempt.routed_under.is_some_and(|version| version != pool.map_version()) {
                return Err(Error::bare(Code::Stale));
            }
            let used = RefCell::new(None);
            let sent_under = Cell::new(pool.map_version());
            let begun = env.now();
            let outcome = {
                let mut tried = pin!(async {
                    let (conn, now) = match self.known_conn() {
                        Some(conn) => (conn, begun),
                        None => (Box::pin(self.connect(client, pool)).await?, env.now()),
                    };
                    used.replace(Some(conn.clone()));
                    // Not a newer one that came meanwhile: the target would take it for its own.
                    sent_under.set(attempt.routed_under.unwrap_or_else(|| pool.map_version()));
                    self.flush_releases_on(&conn);
                    let left = deadline.saturating_sub(now);
                    let left = attempt.try_time.map_or(left, |time| time.min(left));
                    let call = Call {
                        kind: Kind::Request,
                        request_id: attempt.request_id,
                        flags: attempt.flags,
                        map_version: sent_under.get(),
                        deadline: left,
                        body: ask.body,
                        bulk_out: ask.bulk_out,
                        bulk_in: &mut *ask.bulk_in,
                    };
                    conn.call_telling(call, arrivals).await
                });
                match attempt.try_time {
                    None => Some(tried.as_mut().await),
                    Some(_) => {
                        let is_out = self.until_out(client, pool, sent_under.get());
                        match select(tried.as_mut(), pin!(is_out)).await {
                            Either::Left((outcome, _)) => Some(outcome),
                            Either::Right(_) => None,
                        }
                    }
                }
            };
            let Some(outcome) = outcome else {
                // Answers are known by what they are answers to: one to this try is not one to the next, should it refuse.
                self.give_up(used.take());
                attempt.flags |= wire::header::FLAG_RETRY;
                return Err(Error::bare(Code::Stale));
            };
            let (used, map_version) = (used.take(), sent_under.get());
            match outcome {
                Ok(answer) => match answer.body.first() {
                    Some(0) => {
                        self.is_short.set(answer.is_short);
                        client.note_users(answer.has_users);
                        if let Some(conn) = &used {
                            let sent: usize = ask.bulk_out.iter().map(|part| part.len()).sum();
                            let bytes = (sent + answer.bulk_bytes) as u64;
                            client.note_transfer(&self.seen, conn, bytes, begun);
                        }
                        return Ok(answer);
                    }
                    _ => {
                        let (error, newer) = wire::stale::decode_refusal(&answer.body)?;
                        if let Some(newer) = newer {
                            pool.take_newer(client, newer);
                        }
                        let has_newer = pool.map_version() > map_version;
                        if error.code == Code::NoSpace {
                            self.is_short.set(true);
                            pool.forget_rooms();
                        }
                        if attempt.is_only_try {
                            if error.code == Code::Stale && !has_newer {
                                pool.refresh_soon(client);
                            }
                            return Err(error);
                        }
                        if env.now() + attempt.pause >= deadline {
                            return Err(match error.code {
                                Code::Stale => Error::new(
                                    Code::TimedOut,
                                    format!(
                                        "target {} does not lead, and nobody else yet",
                                        self.id
                                    ),
                                ),
                                _ => error,
                            });
                        }
                        match error.code {
                            Code::Stale => {
                                if !has_newer && !Box::pin(self.take_newer_map(client, pool)).await
                                {
                                    pool.refresh_soon(client);
                                    env.sleep(attempt.pause).await;
                                    attempt.pause = (attempt.pause * 2).min(RECONNECT_PAUSE_MAX);
                                }
                            }
                            // The engine is stopping, perhaps it comes back; or it has given the
                            // request up, perhaps after its effect.
                            Code::Closed => {
                                self.give_up(used);
                                attempt.flags |= wire::header::FLAG_RETRY;
                                env.sleep(attempt.pause).await;
                                attempt.pause = (attempt.pause * 2).min(RECONNECT_PAUSE_MAX);
                            }
                            // Its clock runs faster than ours, or it began to count earlier: that was one try's time.
                            Code::TimedOut if attempt.try_time.is_some() => {
                                pool.refresh_soon(client);
                                attempt.try_time = attempt.try_time.map(|time| time * 2);
                                attempt.flags |= wire::header::FLAG_RETRY;
                                env.sleep(attempt.pause).await;
                                attempt.pause = (attempt.pause * 2).min(RECONNECT_PAUSE_MAX);
                            }
                            _ => return Err(error),
                        }
                    }
                },
                Err(error) if attempt.is_only_try => {
                    // A member has little time, and others may be waiting for its answers.
                    let is_at_member = attempt.flags & wire::header::FLAG_MEMBER != 0;
                    if !is_at_member || error.code != Code::TimedOut {
                        self.give_up(used);
                    }
                    return Err(error);
                }
                Err(error)
                    if matches!(error.code, Code::Unreach | Code::Closed | Code::Stale)
                        || (error.code == Code::TimedOut && attempt.try_time.is_some()) =>
                {
                    self.give_up(used);
                    if error.code == Code::TimedOut {
                        pool.refresh_soon(client);
                        attempt.try_time = attempt.try_time.map(|time| time * 2);
                    }
                    if env.now() + attempt.pause >= deadline {
                        return Err(Error::new(
                            Code::TimedOut,
                            format!("target {} gave no answer in time: {error}", self.id),
                        ));
                    }
                    attempt.flags |= wire::header::FLAG_RETRY;
                    env.sleep(attempt.pause).await;
                    attempt.pause = (attempt.pause * 2).min(RECONNECT_PAUSE_MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends when the target is not up under a newer map than this: others lead what it led, and it may not know. The map is
    /// looked for while this waits.
    async fn until_out(&self, client: &Client, pool: &PoolState, version: u32) {
        for look in 1u32.. {
            client.env().sleep(OUT_PAUSE).await;
            let is_up = || {
                let map = pool.map();
                map.target(self.id).is_some_and(|target| target.state == TargetState::Up)
            };
            if pool.map_version() != version && !is_up() {
                return;
            }
            // What only takes long is not asked about again and again.
            if look.is_power_of_two() {
                pool.refresh_soon(client);
            }
        }
    }

    /// Takes the target's map of a pool, if it is newer.
    pub async fn look_for_map(&self, client: &Client, pool: &PoolState) {
        match self.connect(client, pool).await {
            Ok(conn) => drop(self.take_newer_map_on(client, &conn, pool).await),
            Err(error) => tracing::debug!("target {}: its pool map: {error}", self.id),
        }
    }

    /// Gives up a connection, unless there is a later one already: with each new connection the target ends the one
    /// before, and whoever asked on that comes here, too.
    fn give_up(&self, used: Option<Conn>) {
        self.conn.borrow_mut().take_if(|conn| used.as_ref().is_some_and(|used| conn.is_same(used)));
    }

    /// Ends the connection: who waits for an answer on it asks again.
    pub fn hang_up(&self) {
        let conn = self.conn.borrow_mut().take();
        if let Some(conn) = conn {
            conn.close();
        }
    }

    /// The connection, if there is one and nothing has to be told on it first.
    fn known_conn(&self) -> Option<Conn> {
        let conn = self.conn.borrow();
        conn.as_ref().filter(|conn| !self.owes_moved.get() && !conn.is_broken()).cloned()
    }

    async fn connect(&self, client: &Client, pool: &PoolState) -> Result<Conn> {
        if let Some(conn) = self.known_conn() {
            return Ok(conn);
        }
        let _one_dial = self.dialing.lock().await;
        let known = self.conn.borrow().as_ref().filter(|conn| !conn.is_broken()).cloned();
        if let Some(conn) = known {
            if self.owes_moved.get() {
                let moved = self.moved.borrow().clone();
                self.register(client, &conn, &moved).await?;
                self.reclaim_locks(client, &conn).await?;
                self.moved.borrow_mut().drain(..moved.len());
                self.owes_moved.set(!self.moved.borrow().is_empty());
            }
            return Ok(conn);
        }
        let engine = pool.map().engine_of(self.id).cloned().ok_or_else(|| {
            Error::new(Code::NonExist, format!("target {} is not in the pool map", self.id))
        })?;
        let mut last = Error::bare(Code::Unreach);
        for address in client.addresses(&engine) {
            match client.dial(&address, Service::Target(self.id)).await {
                Ok(conn) => {
                    self.tell_left_on(&conn);
                    self.register_opens(client, &conn).await?;
                    self.reclaim_locks(client, &conn).await?;
                    self.moved.borrow_mut().clear();
                    self.owes_moved.set(false);
                    self.conn.replace(Some(conn.clone()));
                    self.owes_registered.set(self.session_count.get() > 1);
                    self.tell_registered();
                    return Ok(conn);
                }
                Err(error) => last = error,
            }
        }
        // The engine may have moved: one of the next tries uses what is heard of it.
        pool.refresh_soon(client);
        let code = if last.code == Code::TimedOut { Code::Unreach } else { last.code };
        Err(Error::new(code, format!("engine {} at {}: {last}", engine.rank, engine.tcp)))
    }

    /// In a new session, after an engine restart or when the target has given us up, tells it again
    /// which objects this client holds open.
    async fn register_opens(&self, client: &Client, conn: &Conn) -> Result<()> {
        let session = conn.hello().incarnation;
        if self.session.get() == session {
            return Ok(());
        }
        // It knows of no handle that it could release, and of none that was held before.
        self.releases.borrow_mut().clear();
        self.left.borrow_mut().clear();
        let mut opens: Vec<(Handle, u32)> =
            self.opens.borrow().iter().map(|(handle, count)| (*handle, *count)).collect();
        // In a fixed order, so that simulated runs repeat.
        opens.sort_unstable();
        self.register(client, conn, &opens).await?;
        self.session.set(session);
        self.session_count.set(self.session_count.get() + 1);
        let (now, earlier) = self.opening.get();
        self.opening.set((0, now + earlier));
        Ok(())
    }

    /// Registers open handles.
    async fn register(&self, client: &Client, conn: &Conn, opens: &[(Handle, u32)]) -> Result<()> {
        for &((pool, cont, unit), count) in opens {
            let ops = vec![Op::Open { unit }; count as usize];
            let request = Request::Batch(Batch {
                pool,
                cont,
                at: Epoch::ZERO,
                checks: Vec::new(),
                ops,
                sums: Sums::NONE,
            });
            let body = wire::encode(&request);
            let answer = self.call_once(client, conn, &body).await?;
            match wire::decode::<Result<BatchReply<'_>>>(&answer.body)? {
                Ok(_) => {}
                Err(error) if error.code == Code::Closed => return Err(error),
                Err(error) if is_of_leader(client, &error, pool, unit) => {
                    self.require_another_leads(client, conn, pool, unit).await?;
                }
                Err(error) => {
                    tracing::warn!(
                        "object {} was open but is gone after a restart: {error}",
                        unit.object
                    );
                }
            }
        }
        Ok(())
    }

    /// Gives up the handles of a pool that other targets lead under this map; says which.
    pub fn leave_behind(&self, pool: PoolId, map: &PoolMap) -> Vec<(TargetId, Handle, u32)> {
        let mut opens = self.opens.borrow_mut();
        let heir = |handle: &Handle| {
            let leader = crate::moved::leader_of(handle.2, map)?;
            (handle.0 == pool && leader != self.id).then_some(leader)
        };
        let mut gone: Vec<(TargetId, Handle, u32)> = opens
            .iter()
            .filter_map(|(handle, count)| Some((heir(handle)?, *handle, *count)))
            .collect();
        gone.sort_unstable();
        for (_, handle, _) in &gone {
            opens.remove(handle);
        }
        gone
    }

    /// This client has gone elsewhere with what it held of these units: by the map of this version others lead them. To be called before
    /// it comes back with any of them.
    pub fn leave(&self, handles: impl IntoIterator<Item = Handle>, map_version: u32) {
        self.left.borrow_mut().extend(handles.into_iter().map(|handle| (handle, map_version)));
        let conn = self.conn.borrow().clone();
        if let Some(conn) = conn {
            self.tell_left_on(&conn);
        }
    }

    /// It is here again.
    pub fn come_back(&self, handle: &Handle) {
        self.left.borrow_mut().remove(handle);
    }

    fn tell_left_on(&self, conn: &Conn) {
        let mut runs: BTreeMap<(PoolId, u32), Vec<(ContId, Unit)>> = BTreeMap::new();
        for (&(pool, cont, unit), &version) in &*self.left.borrow() {
            runs.entry((pool, version)).or_default().push((cont, unit));
        }
        for ((pool, map_version), all) in runs {
            for units in all.chunks(LEFT_TOLD_MAX) {
                let notice = Notice::Left { pool, map_version, units: units.to_vec() };
                if let Err(error) = conn.notify(Kind::Notice, &wire::encode(&notice)) {
                    tracing::debug!("telling target {} what it leads no more: {error}", self.id);
                    return;
                }
            }
        }
    }

    /// Takes over handles that another target led before.
    pub fn inherit(&self, handle: Handle, count: u32) {
        *self.opens.borrow_mut().entry(handle).or_insert(0) += count;
        self.moved.borrow_mut().push((handle, count));
    }

    /// What was taken over is registered before anything else is asked.
    pub fn owe_moved(&self) {
        self.owes_moved.set(true);
    }

    /// Notes a batch that opens what it makes.
    pub fn begin_opening(&self) -> Opening<'_> {
        let (now, earlier) = self.opening.get();
        self.opening.set((now + 1, earlier));
        Opening { link: self, session: self.session_count.get() }
    }

    /// Tells the target that all is registered, once that is so: it frees nothing until it knows.
    fn tell_registered(&self) {
        if self.opening.get().1 > 0 || !self.owes_registered.get() {
            return;
        }
        if let Some(conn) = self.conn.borrow().as_ref()
            && conn.notify(Kind::Notice, &wire::encode(&Notice::Registered)).is_ok()
        {
            self.owes_registered.set(false);
        }
    }

    /// On a new connection, locks again what this client holds here.
    async fn reclaim_locks(&self, client: &Client, conn: &Conn) -> Result<()> {
        let book = &client.options().locks;
        for request in book.reclaims(client.id(), self.id) {
            let body = wire::encode(&Request::Lock(request.clone()));
            let answer = self.call_once(client, conn, &body).await?;
            match wire::decode::<Result<LockReply>>(&answer.body)? {
                Ok(_) => {
                    for notice in book.given_back(&request) {
                        conn.notify(Kind::Notice, &wire::encode(&notice))?;
                    }
                }
                Err(error) if is_of_leader(client, &error, request.pool, request.unit) => {
                    self.require_another_leads(client, conn, request.pool, request.unit).await?;
                }
                // Its part of the pool was wiped: another member leads, or will before long.
                Err(error)
                    if error.code == Code::NonExist
                        && has_copies(client, request.pool, request.unit) =>
                {
                    tracing::debug!("object {}: {error}", request.unit.object);
                    self.take_map_of(client, conn, request.pool).await;
                }
                Err(error) => {
                    tracing::warn!("a lock on object {} is lost: {error}", request.unit.object);
                    book.note_lost(&request);
                }
            }
        }
        Ok(())
    }

    /// Gets a pool's newer map from the target if it has one, else from the control service in the background.
    async fn take_map_of(&self, client: &Client, conn: &Conn, pool: PoolId) {
        if let Some(state) = client.pool_state(pool)
            && !self.take_newer_map_on(client, conn, &state).await
        {
            state.refresh_soon(client);
        }
    }

    /// The target says that it does not lead the group of a unit, or has not what it had. It leads no more if the newest map says
    /// so, too: what is open and locked there is or will be taken to who leads. Else `Stale`: this target will hear of it.
    async fn require_another_leads(
        &self,
        client: &Client,
        conn: &Conn,
        pool: PoolId,
        unit: Unit,
    ) -> Result<()> {
        let Some(state) = client.pool_state(pool) else { return Ok(()) };
        let leads = || crate::moved::leader_of(unit, &state.map()) == Some(self.id);
        if leads() {
            self.take_newer_map_on(client, conn, &state).await;
        }
        if leads() { Err(Error::bare(Code::Stale)) } else { Ok(()) }
    }

    /// Gets the map from the target, which has said that it knows a newer one. False when that fails.
    async fn take_newer_map(&self, client: &Client, pool: &PoolState) -> bool {
        let conn = self.conn.borrow().clone();
        match conn {
            Some(conn) => self.take_newer_map_on(client, &conn, pool).await,
            None => false,
        }
    }

    /// The same on a connection.
    async fn take_newer_map_on(&self, client: &Client, conn: &Conn, pool: &PoolState) -> bool {
        let version = pool.map_version();
        let body = wire::encode(&Request::PoolMap { pool: pool.id });
        let answer = self.call_once(client, conn, &body).await;
        let map = answer.and_then(|answer| wire::decode::<Result<PoolMap>>(&answer.body)?);
        match map {
            Ok(map) => pool.take(client, map),
            Err(error) => tracing::debug!("target {}: its pool map: {error}", self.id),
        }
        pool.map_version() > version
    }

    async fn call_once(&self, client: &Client, conn: &Conn, body: &[u8]) -> Result<Answer> {
        let call = Call {
            kind: Kind::Request,
            request_id: client.next_request(),
            flags: 0,
            map_version: 0,
            deadline: client.options().timeout,
            body,
            bulk_out: &[],
            bulk_in: &mut [],
        };
        conn.call(call).await
    }

    /// As long as this client holds locks or open objects here, looks whether the connection is
    /// there, and makes it anew if it is not: who comes back late to a restarted engine may have
    /// lost its locks, and files that have no name any more.
    pub fn keep_connected(self: &Rc<Self>, client: &Client, pool: &Pool) {
        self.keep_connected_to(client, &pool.0.state);
    }

    /// The same.
    pub fn keep_connected_to(self: &Rc<Self>, client: &Client, pool: &PoolState) {
        if self.is_kept.replace(true) {
            return;
        }
        let (link, id, env) = (self.clone(), client.id(), client.env().clone());
        let book = client.options().locks.clone();
        // Neither the client nor its pool is kept from ending.
        let (client, state) = (client.downgrade(), pool.downgrade());
        env.clone().spawn(async move {
            for look in 1u32.. {
                env.sleep(LOOK_PAUSE).await;
                let (Some(client), Some(state)) = (client.upgrade(), state.upgrade()) else {
                    break;
                };
                // Nothing else may be asked for long, and somebody may wait for what was closed.
                link.flush_releases();
                if !book.is_needed(id, link.id) && link.opens.borrow().is_empty() {
                    break;
                }
                let broken = link.conn.borrow().as_ref().is_none_or(Conn::is_broken);
                let of_several = || {
                    let is_open =
                        link.opens.borrow().keys().any(|handle| !handle.2.object.is_alone());
                    is_open || book.is_needed_of_several(id, link.id)
                };
                if (broken || look % MAP_LOOKS == 0) && of_several() {
                    state.refresh_soon(&client);
                }
                if (broken || link.owes_moved.get())
                    && let Err(error) = link.connect(&client, &state).await
                {
                    tracing::debug!("target {}: {error}", link.id);
                }
            }
            link.is_kept.set(false);
        });
    }

    /// False while it is to be kept connected, and is not.
    pub fn is_connected_if_kept(&self) -> bool {
        !self.is_kept.get() || self.known_conn().is_some()
    }

    /// Sends a notice with the next request.
    pub fn tell(&self, notice: Vec<u8>) {
        self.notices.borrow_mut().push(notice);
        self.flush_releases();
    }

    /// Sends a notice if there is a connection; without one the target has forgotten, or will soon,
    /// what the notice is about.
    pub fn tell_now(&self, notice: &[u8]) {
        if let Some(conn) = self.conn.borrow().as_ref() {
            let _ = conn.notify(Kind::Notice, notice);
        }
    }

    /// Notes an open handle that a batch has registered.
    pub fn note_open(&self, handle: Handle) {
        *self.opens.borrow_mut().entry(handle).or_insert(0) += 1;
    }

    /// Notes a closed handle; the target is told with the next request.
    pub fn release(&self, handle: Handle) {
        let mut opens = self.opens.borrow_mut();
        match opens.get_mut(&handle) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => {
                opens.remove(&handle);
            }
            None => return,
        }
        drop(opens);
        let mut releases = self.releases.borrow_mut();
        releases.push(handle);
        if releases.len() >= RELEASES_HELD_MAX {
            drop(releases);
            self.flush_releases();
        }
    }

    /// Sends held-back releases if there is a connection.
    pub fn flush_releases(&self) {
        if let Some(conn) = self.conn.borrow().as_ref() {
            self.flush_releases_on(conn);
        }
    }

    fn flush_releases_on(&self, conn: &Conn) {
        for notice in self.notices.take() {
            if let Err(error) = conn.notify(Kind::Notice, &notice) {
                tracing::debug!("telling target {}: {error}", self.id);
            }
        }
        let mut releases = self.releases.borrow_mut();
        if releases.is_empty() {
            return;
        }
        releases.sort_unstable();
        let mut told = 0;
        for run in releases.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let units = run.iter().map(|(_, _, unit)| *unit).collect();
            let notice = Notice::Release { pool: run[0].0, cont: run[0].1, units };
            if let Err(error) = conn.notify(Kind::Notice, &wire::encode(&notice)) {
                // The next connection may be in the same session: it is told then.
                tracing::debug!("releasing handles at target {}: {error}", self.id);
                break;
            }
            told += run.len();
        }
        releases.drain(..told);
    }
}

/// Others have the object, too.
fn has_copies(client: &Client, pool: PoolId, unit: Unit) -> bool {
    let state = client.pool_state(pool);
    state.is_some_and(|state| !placement::is_alone(unit.object, &state.map()))
}

/// The error says that another target leads, or is going to: this one has not what it had.
fn is_of_leader(client: &Client, error: &Error, pool: PoolId, unit: Unit) -> bool {
    error.code == Code::Stale || error.code == Code::Unreach && has_copies(client, pool, unit)
}
