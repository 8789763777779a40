//! A target: one thread's share of the system's data, and the requests for it.
//!
//! Invariants:
//! - Everything here runs on one thread; no `RefCell` borrow is held over an `await`.
//! - A request is checked and applied without an `await` in between, so checks hold when their
//!   effects happen.
//! - A reply leaves after its effects are as durable as the pool promises.
//! - A client has one session here, that of its latest connection. Its earlier ones end before that is served:
//!   no request of theirs takes effect afterwards.

use crate::events::Teller;
use crate::figures::RequestCounts;
use crate::give_way::Lines;
use crate::in_progress::InProgress;
use crate::jobs::Jobs;
use crate::link_speed::{ClientLinks, Links};
use crate::locks::Locks;
use crate::opens::{Handle, Opens};
use crate::peers::Peers;
use crate::portions::Portions;
use crate::session::Session;
pub(crate) use crate::target_pool::TargetPool;
use crate::tokens::not_for_clients;
use crate::tries::Tries;
use crate::versions::Rollback;
use env::{Env, Signal};
use futures_util::FutureExt;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use transport::{Handoff, Incoming, ServerConn};
use types::map::{HashMap, HashSet};
use types::{ClientId, Code, ContId, Epoch, Error, PoolId, Result, TargetId};
use vos::{Payload, Store, Summary};
use wire::event::{EventCode, Happened};
use wire::hello::HelloReply;
use wire::measure::Measures;
use wire::obj::{Notice, Op, RequestKind, TxId};
use wire::{Header, Kind};

/// After its start a target has those who ask for a pool or container that it does not know wait so long for the
/// control service to tell it of that; then they are to come again.
const INTRODUCTION_TIME_MAX: Duration = Duration::from_secs(10);
/// An engine that stops waits so long for other members of its groups.
const ORDER_TIME_MAX: Duration = Duration::from_secs(3);
/// A client that has lost its connection keeps its open handles this long.
const RECONNECT_GRACE: Duration = Duration::from_secs(2);
/// How long after the end of a connection it is looked for the first time whether the process has
/// ended; from then on each time twice as long.
const ENDED_PAUSE: Duration = Duration::from_millis(1);
/// A client that has gone may come back with a retry this long.
const RETRY_GRACE: Duration = Duration::from_secs(600);

/// A client's latest connection.
struct Seat {
    number: u64,
    /// The connection from which on the client was never given up: what it holds open is known.
    since: u64,
    session: Rc<Session>,
    /// Until it has ended.
    conn: Option<ServerConn>,
}

impl Seat {
    /// Ends the session: what is unread on its connection stays unread.
    fn end(self) {
        self.session.is_over.set(true);
        if let Some(conn) = self.conn {
            conn.close();
        }
    }
}

/// One target: its store, and all that its thread keeps. No other thread touches it.
pub struct Target {
    pub(crate) env: Env,
    pub(crate) id: TargetId,
    pub(crate) store: Rc<Store>,
    pub(crate) shards: RefCell<HashMap<PoolId, Rc<TargetPool>>>,
    /// Pools whose part here cannot be opened, and why.
    pub(crate) failed: RefCell<HashMap<PoolId, Error>>,
    /// Pools whose part here is not the one that is meant, with its incarnation; they are in `failed`, too.
    pub(crate) replaced: RefCell<HashMap<PoolId, u64>>,
    pub(crate) opens: RefCell<Opens>,
    pub(crate) locks: Locks,
    /// Objects that are being appended to.
    pub(crate) appends: RefCell<crate::append::Turns>,
    pub(crate) peers: Peers,
    /// The same for streams of orders, which no request holds up.
    pub(crate) streaming: Peers,
    /// How fast other engines are reached.
    pub(crate) links: Rc<Links>,
    pub(crate) client_links: ClientLinks,
    /// Parts in doubt whose coordinators are being asked, and decisions that participants are being told.
    pub(crate) resolving: RefCell<HashSet<TxId>>,
    /// Transactions this target coordinates right now, by its own ids.
    pub(crate) coordinating: RefCell<HashSet<TxId>>,
    /// Client transactions being coordinated, so that another try waits for the first.
    pub(crate) committing: Tries,
    /// Batches that run beside their connections, so that another try waits for the first.
    pub(crate) running: Tries,
    /// This target as a maker of transaction ids, anew at each start. Targets of one engine must
    /// differ: a participant takes a second part with the same id for a repetition.
    pub(crate) coordinator: ClientId,
    pub(crate) next_tx: Cell<u64>,
    pub(crate) incarnation: u64,
    /// Clients that may soon have nothing open any more.
    pub(crate) leaving: RefCell<HashSet<ClientId>>,
    /// Orphans that are not freed yet though nobody holds them open, and until when.
    pub(crate) lingering: RefCell<HashMap<Handle, Duration>>,
    /// Orphans being reaped.
    pub(crate) reaping: RefCell<HashSet<Handle>>,
    /// Rollbacks ordered, by container.
    pub(crate) rollbacks: RefCell<HashMap<(PoolId, ContId), Rollback>>,
    sessions: RefCell<HashMap<ClientId, Seat>>,
    next_session: Cell<u64>,
    started: Duration,
    pub(crate) draining: Cell<bool>,
    in_progress: Rc<InProgress>,
    /// Messages received, for who wants to know whether the target is at work.
    pub(crate) request_count: Cell<u64>,
    /// Requests that have arrived, by kind.
    pub(crate) requests: RequestCounts,
    /// What jobs have done.
    pub(crate) jobs: Jobs,
    /// The latest term of a control service that has given an order.
    pub(crate) term: Cell<u64>,
    /// It has been told of all it holds.
    pub(crate) is_introduced: Cell<bool>,
    /// An order, or another target, has told it something: of a part of a pool, of a map, of a container.
    pub(crate) told: Signal,
    /// When clients last wanted something of objects.
    pub(crate) last_batch: Cell<Option<Duration>>,
    /// Moves that give way to clients go one after the other.
    pub(crate) moving: Lines,
    /// Its devices are being measured.
    pub(crate) is_measuring: Cell<bool>,
    /// What was measured of them last.
    pub(crate) measures: Cell<Option<Measures>>,
    /// Who keeps what happens.
    pub(crate) events: Teller,
    pub(crate) portions: Cell<Portions>,
}

impl Target {
    /// Opens every shard of a store. One that is damaged costs its pool's part here, not the target.
    #[expect(clippy::too_many_arguments, reason = "what a target consists of")]
    pub(crate) async fn open(
        env: Env,
        id: TargetId,
        store: Rc<Store>,
        host: String,
        token: Vec<u8>,
        incarnation: u64,
        events: Teller,
        moving: Lines,
    ) -> Result<Rc<Target>> {
        let mut shards = HashMap::default();
        let mut failed = HashMap::default();
        for pool in store.shards() {
            match store.open_shard(pool).await {
                Ok(shard) => {
                    shards.insert(pool, Rc::new(TargetPool::opened_again(&env, shard)));
                }
                Err(error) => {
                    let error = error.context(format!("target {id}: pool {pool} cannot be served"));
                    tracing::error!("{error}");
                    let happened = Happened::new(EventCode::TargetUnserved, error.to_string());
                    events.tell(happened.of_target(id).of_pool(pool));
                    failed.insert(pool, error);
                }
            }
        }
        let measures = Cell::new(store.measures().await);
        let links = Rc::new(Links::default());
        // A target without shards has had no clients.
        let locks = Locks::new(env.now(), !shards.is_empty());
        let target = Rc::new(Target {
            peers: Peers::new(env.clone(), host.clone(), token.clone()).watching(&links),
            streaming: Peers::new(env.clone(), host, token).watching(&links),
            links,
            client_links: ClientLinks::default(),
            resolving: RefCell::default(),
            started: env.now(),
            id,
            store,
            shards: RefCell::new(shards),
            failed: RefCell::new(failed),
            replaced: RefCell::default(),
            opens: RefCell::new(Opens::default()),
            locks,
            appends: RefCell::default(),
            coordinating: RefCell::new(HashSet::default()),
            committing: Tries::default(),
            running: Tries::default(),
            coordinator: ClientId(types::hash::mix2(incarnation, id.0 as u64)),
            next_tx: Cell::new(TxId::PARTS_MAX),
            incarnation,
            leaving: RefCell::new(HashSet::default()),
            lingering: RefCell::new(HashMap::default()),
            reaping: RefCell::new(HashSet::default()),
            rollbacks: RefCell::new(HashMap::default()),
            sessions: RefCell::new(HashMap::default()),
            next_session: Cell::new(1),
            draining: Cell::new(false),
            in_progress: Rc::default(),
            request_count: Cell::new(0),
            requests: RequestCounts::default(),
            jobs: Jobs::default(),
            term: Cell::new(0),
            is_introduced: Cell::new(false),
            told: Signal::default(),
            last_batch: Cell::default(),
            moving,
            is_measuring: Cell::new(false),
            measures,
            events,
            portions: Cell::default(),
            env,
        });
        target.clone().resume();
        Ok(target)
    }

    /// After a restart: decides what was in doubt, frees what was unlinked while open.
    fn resume(self: Rc<Self>) {
        let pools: Vec<(PoolId, Rc<TargetPool>)> =
            self.shards.borrow().iter().map(|(pool, ctx)| (*pool, ctx.clone())).collect();
        for (pool, ctx) in pools {
            self.take_up(pool, &ctx);
        }
    }

    /// The same for one pool's part.
    pub(crate) fn take_up(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        self.start_scrubber(ctx);
        self.watch_pages(pool, ctx);
        self.clone().resume_transactions(pool, ctx);
        self.await_openers(pool, ctx);
        self.reap_orphans(pool, ctx);
    }

    /// Serves a connection that the control thread accepted, until it closes.
    pub fn adopt(self: &Rc<Self>, handoff: Handoff) {
        let hello = handoff.hello();
        let (client, pid) = (hello.client, hello.local_pid);
        let (is_admin, told_pid) = (hello.is_admin, hello.pid);
        let host = match (hello.host, pid) {
            (Some(host), _) => host.to_string(),
            (None, Some(_)) => "local".to_string(),
            (None, None) => String::new(),
        };
        let number = self.next_session.get();
        let since = self.sessions.borrow().get(&client).map_or(number, |seat| seat.since);
        let reply = HelloReply {
            // A client that was given up registers its handles again as after a restart.
            incarnation: types::hash::mix2(self.incarnation, since),
            remote_bulk: false,
            engine_version: env!("CARGO_PKG_VERSION").to_string(),
            proof: Default::default(),
        };
        let conn = match handoff.serve(&self.env, reply) {
            Ok(conn) => conn,
            Err(error) => {
                tracing::debug!("target {}: connection lost at its start: {error}", self.id);
                return;
            }
        };
        self.next_session.set(number + 1);
        let job: Rc<str> = types::job::short(conn.job().to_string()).into();
        let session = Rc::new(Session {
            client,
            host,
            pid: told_pid,
            job_counts: self.jobs.of(&job),
            counts: Rc::default(),
            job,
            is_admin,
            local_pid: pid,
            is_over: Rc::default(),
            for_jobs: RefCell::default(),
        });
        let seat = Seat { number, since, session: session.clone(), conn: Some(conn.clone()) };
        let earlier = self.sessions.borrow_mut().insert(client, seat);
        if let Some(earlier) = earlier {
            earlier.end();
        }
        let target = self.clone();
        self.env.spawn(async move { target.serve(conn, session, number, pid).await });
    }

    async fn serve(
        self: Rc<Self>,
        conn: ServerConn,
        caller: Rc<Session>,
        number: u64,
        pid: Option<u32>,
    ) {
        let client = caller.client;
        loop {
            match conn.recv().await {
                Ok(Some(incoming)) => self.receive(&caller, incoming).await,
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!("target {}: client {client}: {error}", self.id);
                    break;
                }
            }
        }
        conn.close();
        if let Some(seat) = self.sessions.borrow_mut().get_mut(&client)
            && seat.number == number
        {
            seat.conn = None;
        }
        // In a task of its own: nothing of the connection is kept meanwhile.
        self.env.clone().spawn(async move { self.outlive(client, number, pid).await });
    }

    /// After the end of a client's connection: forgets what is kept for its return, in time; at once what
    /// only a process has that has ended.
    async fn outlive(self: Rc<Self>, client: ClientId, number: u64, pid: Option<u32>) {
        let (mut waited, mut pause, mut has_ended) = (Duration::ZERO, ENDED_PAUSE, false);
        // A process that ends closes its sockets shortly before.
        while let Some(pid) = pid
            && waited + pause < RECONNECT_GRACE
        {
            if self.sessions.borrow().get(&client).is_none_or(|seat| seat.number != number) {
                return;
            }
            if transport::has_ended(pid) {
                self.locks.drop_process(client);
                has_ended = true;
                break;
            }
            // timer: of the end of another process nobody tells.
            self.env.sleep(pause).await;
            waited += pause;
            pause *= 2;
        }
        // timer: so long a client may come back.
        self.env.sleep(RECONNECT_GRACE - waited).await;
        let is_latest = self.sessions.borrow().get(&client).is_some_and(|s| s.number == number);
        // An engine that is stopping closes connections itself: its clients come back to the next
        // one, with what they hold open.
        if !is_latest || self.is_draining() {
            return;
        }
        let seat = self.sessions.borrow_mut().remove(&client);
        if let Some(seat) = seat {
            seat.end();
        }
        self.locks.drop_client(client);
        let freed = self.opens.borrow_mut().close_client(client);
        // One that has not registered all it held before a restart may yet come back.
        if has_ended || !self.awaits(client) {
            self.await_no_more(client);
        }
        for handle in freed {
            self.closed(handle);
        }
        // timer: so long a client may come back with a retry.
        self.env.sleep(RETRY_GRACE).await;
        if !self.sessions.borrow().contains_key(&client) {
            for ctx in self.shards.borrow().values() {
                ctx.shard.forget_client(client);
            }
        }
    }

    /// Takes one message off a connection. Returns when what is in the stream of its bulk is off
    /// it, too.
    async fn receive(self: &Rc<Self>, caller: &Rc<Session>, incoming: Incoming) {
        let client = caller.client;
        self.request_count.set(self.request_count.get() + 1);
        match incoming.header.kind {
            Kind::Request if incoming.job != 0 => {
                self.receive_request(&caller.asking_for(incoming.job), incoming).await;
            }
            Kind::Request => self.receive_request(caller, incoming).await,
            Kind::Notice => match wire::decode::<Notice>(&incoming.body) {
                Ok(Notice::Release { pool, cont, units }) => {
                    for unit in units {
                        if self.opens.borrow_mut().close(client, (pool, cont, unit)) {
                            self.closed((pool, cont, unit));
                        }
                    }
                    self.note_closed(client);
                }
                Ok(Notice::Registered) => self.await_no_more(client),
                Ok(Notice::Left { pool, map_version, units }) => {
                    self.client_left(client, pool, map_version, units);
                }
                Ok(Notice::Job { number, name }) => {
                    let job: Rc<str> = types::job::short(name).into();
                    let counts = self.jobs.of(&job);
                    caller.name_job(number, job, counts);
                }
                Ok(Notice::LockLeave { pool, cont, unit, kind, owner, range, wait, release }) => {
                    let key = ((pool, cont, unit), kind.space());
                    self.locks.leave(client, key, owner, range, wait, release);
                }
                Err(error) => tracing::debug!("client {client}: {error}"),
            },
            kind => {
                let error = Error::new(Code::Proto, format!("a target does not serve {kind:?}"));
                self.answer_error(incoming.responder, 0, error).await;
            }
        }
    }

    async fn receive_request(self: &Rc<Self>, caller: &Rc<Session>, incoming: Incoming) {
        if self.draining.get() {
            let error = Error::new(Code::Closed, "the engine is shutting down");
            return self.answer_error(incoming.responder, 0, error).await;
        }
        let kind = RequestKind::of(&incoming.body);
        if kind.is_for_engines() && !caller.is_admin {
            return self.answer_error(incoming.responder, 0, not_for_clients()).await;
        }
        self.requests.count(kind);
        if incoming.bulk.is_deferred() && kind != RequestKind::Batch {
            // Its data comes through this connection, so the connection must go on.
            let (target, caller) = (self.clone(), caller.clone());
            self.spawn_counted(async move { target.dispatch(kind, &caller, incoming).await });
            return;
        }
        self.dispatch(kind, caller, incoming).await;
    }

    async fn dispatch(
        self: &Rc<Self>,
        kind: RequestKind,
        caller: &Rc<Session>,
        incoming: Incoming,
    ) {
        // Boxed: all of them in one future would be copied with each layer above.
        match kind {
            RequestKind::Batch => Box::pin(self.receive_batch(caller, incoming)).await,
            RequestKind::Commit => Box::pin(self.receive_commit(caller, incoming)).await,
            RequestKind::Prepare => Box::pin(self.receive_prepare(incoming)).await,
            RequestKind::Orders => Box::pin(self.receive_orders(incoming)).await,
            RequestKind::Lock => {
                // A clean stop does not wait for those who wait.
                let (target, client) = (self.clone(), caller.client);
                self.env.spawn(async move { target.serve_lock(client, incoming).await });
            }
            RequestKind::Member => {
                let target = self.clone();
                self.spawn_counted(async move { target.serve_member(incoming).await });
            }
            RequestKind::Cell => {
                let target = self.clone();
                self.spawn_counted(async move { target.serve_cell(incoming).await });
            }
            RequestKind::Other => {
                let target = self.clone();
                let (client, is_admin) = (caller.client, caller.is_admin);
                self.spawn_counted(async move {
                    target.serve_admin(client, is_admin, incoming).await;
                });
            }
        }
    }

    /// Spawns work that a clean stop waits for.
    pub(crate) fn spawn_counted(self: &Rc<Self>, work: impl Future<Output = ()> + 'static) {
        let piece = self.in_progress.begin();
        // Not `work.await` in a block: that would hold the work twice.
        self.env.spawn(work.map(move |()| drop(piece)));
    }

    /// The shard of a pool; shortly after the start, waits to be told of it.
    pub(crate) async fn shard(&self, pool: PoolId) -> Result<Rc<TargetPool>> {
        let known = || {
            let served = self.shards.borrow().get(&pool).cloned().map(Ok);
            served.or_else(|| self.failed.borrow().get(&pool).cloned().map(Err))
        };
        let unknown = || format!("target {} holds no part of pool {pool}", self.id);
        self.await_orders(known, unknown).await?
    }

    /// Waits for what an order may yet tell. `NonExist` once the target has been told all:
    /// what is not known then does not exist. `Closed` when it has not been for long.
    async fn await_orders<T>(
        &self,
        known: impl Fn() -> Option<T>,
        unknown: impl Fn() -> String,
    ) -> Result<T> {
        if let Some(known) = known() {
            return Ok(known);
        }
        let limit = (self.started + INTRODUCTION_TIME_MAX).saturating_sub(self.env.now());
        let look = || match known() {
            None if self.is_introduced.get() => Some(None),
            known => known.map(Some),
        };
        // Boxed: nearly all that comes here knows what it asks for.
        match Box::pin(self.env.timeout(limit, self.told.until_some(look))).await {
            Some(Some(known)) => Ok(known),
            Some(None) => Err(Error::new(Code::NonExist, unknown())),
            None => {
                let text = format!("{}, as far as it has been told: try again", unknown());
                Err(Error::new(Code::Closed, text))
            }
        }
    }

    /// The shard of a pool and its map; shortly after the start, waits to be told of them.
    pub(crate) async fn mapped_shard(&self, pool: PoolId) -> Result<Rc<TargetPool>> {
        let ctx = self.shard(pool).await?;
        let known = || ctx.known_map().map(drop);
        let unknown = || format!("target {} has no map of pool {pool}", self.id);
        // Its part is there, so the map comes: it was made anew.
        self.await_orders(known, unknown).await.map_err(|error| match error.code {
            Code::NonExist => Error::bare(Code::Stale),
            _ => error,
        })?;
        Ok(ctx)
    }

    /// The same for what clients ask, and for parts of their transactions. `Unreach` where there is no part of the pool: the store was
    /// wiped, and they ask others once they have a newer map, or the pool is destroyed, and the control service tells them that.
    pub(crate) async fn asked_shard(&self, pool: PoolId) -> Result<Rc<TargetPool>> {
        self.mapped_shard(pool).await.map_err(|error| match error.code {
            Code::NonExist => Error { code: Code::Unreach, ..error },
            _ => error,
        })
    }

    /// Makes sure a container is known; shortly after the start, waits to be told of it.
    pub(crate) async fn known_cont(&self, ctx: &TargetPool, cont: ContId) -> Result<()> {
        let known = || ctx.shard.has_cont(cont).then_some(());
        let id = self.id;
        let unknown = || format!("target {id} knows no container {cont}; it may be destroyed");
        self.await_orders(known, unknown).await
    }

    /// The same for what clients ask. `Stale` for one that is not known where others have what this target lacks: it may
    /// not have been told of it yet, and they ask others once they have a newer map.
    pub(crate) async fn asked_cont(&self, ctx: &TargetPool, cont: ContId) -> Result<()> {
        match self.known_cont(ctx, cont).await {
            Err(error) if error.code == Code::NonExist => {
                let is_whole = ctx.map().is_ok_and(|map| placement::is_live(self.id, &map));
                Err(if is_whole { error } else { Error::bare(Code::Stale) })
            }
            known => known,
        }
    }

    /// As [`PoolShard::stage`]; one that is full says which target it is.
    pub(crate) fn stage(&self, ctx: &TargetPool, ops: &[Op<'_>]) -> Result<Payload> {
        self.stage_for(ctx, &Summary::of(&[], ops))
    }

    /// The same for what a summary is known of.
    pub(crate) fn stage_for(&self, ctx: &TargetPool, batch: &Summary) -> Result<Payload> {
        ctx.shard.stage_for(batch).map_err(|error| match error.code {
            Code::NoSpace => {
                ctx.condition.note_refusal();
                error.context(format!("target {}", self.id))
            }
            _ => error,
        })
    }

    /// A new epoch of a shard.
    pub(crate) fn tick(&self, ctx: &TargetPool) -> Epoch {
        ctx.clock.tick(self.env.wall_ns())
    }

    pub(crate) async fn answer_error(
        &self,
        responder: transport::Responder,
        map_version: u32,
        error: Error,
    ) {
        let body = wire::encode(&Err::<(), Error>(error));
        self.send(responder, map_version, &body, &[]).await;
    }

    /// Why a request is refused, encoded; with the newer map when it was sent with an older one.
    pub(crate) fn refusal(&self, pool: PoolId, header: &Header, error: &Error) -> Vec<u8> {
        let newer = || {
            let ctx = self.shards.borrow().get(&pool).cloned()?;
            ctx.maps_since(header.map_version)
        };
        let is_old = error.code == Code::Stale && header.map_version != 0;
        wire::stale::encode_refusal(error, is_old.then(newer).flatten().as_ref())
    }

    pub(crate) async fn send(
        &self,
        responder: transport::Responder,
        map_version: u32,
        body: &[u8],
        segments: &[&[u8]],
    ) {
        if let Err(error) = responder.reply(map_version, body, segments).await {
            tracing::debug!("target {}: an answer was not delivered: {error}", self.id);
        }
    }

    /// The process of a client that is connected on this host.
    pub(crate) fn pid_of(&self, client: ClientId) -> Option<u32> {
        self.sessions.borrow().get(&client).and_then(|seat| seat.session.local_pid)
    }

    /// True once all requests are answered and nothing more is sent.
    pub(crate) fn has_stopped(&self) -> bool {
        self.draining.get() && self.in_progress.count() == 0
    }

    /// Requests that run beside their connections now.
    pub(crate) fn in_progress_count(&self) -> usize {
        self.in_progress.count()
    }

    /// Sessions of those that are connected now.
    pub(crate) fn connected(&self) -> Vec<Rc<Session>> {
        let sessions = self.sessions.borrow();
        let seats = sessions.values().filter(|seat| seat.conn.is_some());
        seats.map(|seat| seat.session.clone()).collect()
    }

    /// Clients and other targets that are connected now.
    pub(crate) fn client_count(&self) -> usize {
        self.sessions.borrow().values().filter(|seat| seat.conn.is_some()).count()
    }

    /// True once the engine is stopping.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Refuses new requests, waits for those in progress, flushes and closes the shards.
    pub async fn drain(&self) -> Result<()> {
        self.draining.set(true);
        // Who waits to be let in has done nothing yet and goes elsewhere, or comes again.
        for ctx in self.shards.borrow().values() {
            ctx.admission.close();
            ctx.scrubber.stop();
            ctx.newer_map.wake();
        }
        if self.env.timeout(ORDER_TIME_MAX, self.in_progress.none()).await.is_none() {
            // Members may be stopping, too. Who waits comes again, and is answered by who leads then.
            for ctx in self.shards.borrow().values() {
                ctx.streams.end();
            }
            self.in_progress.none().await;
        }
        let shards: Vec<Rc<TargetPool>> = self.shards.borrow().values().cloned().collect();
        for ctx in shards {
            ctx.streams.end();
            ctx.shard.close().await?;
        }
        Ok(())
    }
}
