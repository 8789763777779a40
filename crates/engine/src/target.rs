//! A target: one thread's share of the system's data, and the requests for it.
//!
//! Invariants:
//! - Everything here runs on one thread; no `RefCell` borrow is held over an `await`.
//! - A request is checked and applied without an `await` in between, so checks hold when their
//!   effects happen.
//! - A reply leaves after its effects are as durable as the pool promises.
//! - A client has one session here, that of its latest connection. Its earlier ones end before that is served:
//!   no request of theirs takes effect afterwards.

use crate::admin::Term;
use crate::commit::TxIds;
use crate::events::Teller;
use crate::figures::RequestCounts;
use crate::give_way::Lines;
use crate::in_progress::InProgress;
use crate::jobs::Jobs;
use crate::link_speed::{ClientLinks, Links};
use crate::locks::Locks;
use crate::measure::Measuring;
use crate::openers::Leaving;
use crate::peers::Peers;
use crate::pools::Pools;
use crate::portions::Portions;
use crate::seats::Seats;
use crate::session::{Caller, Session};
pub(crate) use crate::target_pool::TargetPool;
use crate::tokens::not_for_clients;
use crate::tries::Tries;
use env::Env;
use futures_util::FutureExt;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use transport::{Handoff, Incoming, ServerConn};
use types::map::HashMap;
use types::{ClientId, Code, ContId, Durability, Epoch, Error, PoolId, Result, TargetId};
use vos::{Payload, Store, Summary};
use wire::event::{EventCode, Happened};
use wire::hello::HelloReply;
use wire::obj::{Notice, Op, RequestKind};
use wire::{Header, Kind};

/// An engine that stops waits so long for other members of its groups.
const ORDER_TIME_MAX: Duration = Duration::from_secs(3);
/// A client that has lost its connection keeps its open handles this long.
const RECONNECT_GRACE: Duration = Duration::from_secs(2);
/// How long after the end of a connection it is looked for the first time whether the process has
/// ended; from then on each time twice as long.
const ENDED_PAUSE: Duration = Duration::from_millis(1);
/// A client that has gone may come back with a retry this long.
const RETRY_GRACE: Duration = Duration::from_secs(600);

/// One target: its store, and all that its thread keeps. No other thread touches it.
pub struct Target {
    pub(crate) env: Env,
    pub(crate) id: TargetId,
    pub(crate) store: Rc<Store>,
    pub(crate) pools: Pools,
    pub(crate) seats: Seats,
    pub(crate) locks: Locks,
    pub(crate) peers: Peers,
    /// The same for streams of orders, which no request holds up.
    pub(crate) streaming: Peers,
    /// How fast other engines are reached.
    pub(crate) links: Rc<Links>,
    pub(crate) client_links: ClientLinks,
    /// Client transactions being coordinated, so that another try waits for the first.
    pub(crate) committing: Tries,
    /// Batches that run beside their connections, so that another try waits for the first.
    pub(crate) running: Tries,
    pub(crate) tx_ids: TxIds,
    pub(crate) incarnation: u64,
    pub(crate) leaving: Leaving,
    draining: Cell<bool>,
    in_progress: Rc<InProgress>,
    /// Messages received, for who wants to know whether the target is at work.
    request_count: Cell<u64>,
    /// Requests that have arrived, by kind.
    pub(crate) requests: RequestCounts,
    /// What jobs have done.
    pub(crate) jobs: Jobs,
    pub(crate) term: Term,
    /// Moves that give way to clients go one after the other.
    pub(crate) moving: Lines,
    pub(crate) measuring: Measuring,
    /// Who keeps what happens.
    pub(crate) events: Teller,
    portions: Cell<Portions>,
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
        let measuring = Measuring::known(store.measures().await);
        let links = Rc::new(Links::default());
        // A target without shards has had no clients.
        let locks = Locks::new(env.now(), !shards.is_empty());
        let target = Rc::new(Target {
            peers: Peers::new(env.clone(), host.clone(), token.clone()).watching(&links),
            streaming: Peers::new(env.clone(), host, token).watching(&links),
            links,
            client_links: ClientLinks::default(),
            id,
            store,
            pools: Pools::found(&env, id, shards, failed),
            seats: Seats::default(),
            locks,
            committing: Tries::default(),
            running: Tries::default(),
            tx_ids: TxIds::of(id, incarnation),
            incarnation,
            leaving: Leaving::default(),
            draining: Cell::new(false),
            in_progress: Rc::default(),
            request_count: Cell::new(0),
            requests: RequestCounts::default(),
            jobs: Jobs::default(),
            term: Term::default(),
            moving,
            measuring,
            events,
            portions: Cell::default(),
            env,
        });
        target.clone().resume();
        Ok(target)
    }

    /// After a restart: decides what was in doubt, frees what was unlinked while open.
    fn resume(self: Rc<Self>) {
        for (pool, ctx) in self.pools.all() {
            self.take_up(pool, &ctx);
        }
    }

    /// The same for one pool's part.
    pub(crate) fn take_up(self: &Rc<Self>, pool: PoolId, ctx: &Rc<TargetPool>) {
        self.start_scrubber(ctx);
        self.watch_pages(pool, ctx);
        self.clone().resume_transactions(pool, ctx);
        self.await_openers(pool, ctx);
        self.reap_orphans(ctx);
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
        let (number, since) = self.seats.next(client);
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
        let job: Rc<str> = types::job::short(conn.job().to_string()).into();
        let session = Rc::new(Session::begin(Caller {
            client,
            host,
            pid: told_pid,
            job_counts: self.jobs.of(&job),
            job,
            is_admin,
            local_pid: pid,
        }));
        self.seats.take((number, since), session.clone(), conn.clone());
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
        self.seats.leave(client, number);
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
            if !self.seats.is_latest(client, number) {
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
        // An engine that is stopping closes connections itself: its clients come back to the next
        // one, with what they hold open.
        if !self.seats.is_latest(client, number) || self.is_draining() {
            return;
        }
        self.seats.give_up(client);
        self.locks.drop_client(client);
        let closed = self.pools.give_up(client);
        // One that has not registered all it held before a restart may yet come back.
        if has_ended || !self.awaits(client) {
            self.await_no_more(client);
        }
        for (ctx, handle) in closed {
            self.closed(&ctx, handle);
        }
        // timer: so long a client may come back with a retry.
        self.env.sleep(RETRY_GRACE).await;
        if !self.seats.has(client) {
            for (_, ctx) in self.pools.all() {
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
                        if let Some(ctx) = self.pools.close(client, pool, (cont, unit)) {
                            self.closed(&ctx, (cont, unit));
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
                Box::pin(self.answer_error(incoming.responder, 0, error)).await;
            }
        }
    }

    async fn receive_request(self: &Rc<Self>, caller: &Rc<Session>, incoming: Incoming) {
        if self.draining.get() {
            let error = Error::new(Code::Closed, "the engine is shutting down");
            return Box::pin(self.answer_error(incoming.responder, 0, error)).await;
        }
        let kind = RequestKind::of(&incoming.body);
        if kind.is_for_engines() && !caller.is_admin {
            return Box::pin(self.answer_error(incoming.responder, 0, not_for_clients())).await;
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
                self.env.spawn(target.serve_lock(client, incoming));
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

    /// The part of a pool and its map, for what clients ask and for parts of their transactions. `Unreach` where there is no part of the pool: the store was
    /// wiped, and they ask others once they have a newer map, or the pool is destroyed, and the control service tells them that.
    pub(crate) async fn asked_shard(&self, pool: PoolId) -> Result<Rc<TargetPool>> {
        self.pools.mapped(pool).await.map_err(|error| match error.code {
            Code::NonExist => Error { code: Code::Unreach, ..error },
            _ => error,
        })
    }

    /// Makes sure that a container is known that a client asks for. `Stale` for one that is not known where others have what this target lacks: it may
    /// not have been told of it yet, and they ask others once they have a newer map.
    pub(crate) async fn asked_cont(&self, ctx: &TargetPool, cont: ContId) -> Result<()> {
        match self.pools.known_cont(ctx, cont).await {
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
            let ctx = self.pools.served(pool)?;
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

    /// True once all requests are answered and nothing more is sent.
    pub(crate) fn has_stopped(&self) -> bool {
        self.draining.get() && self.in_progress.count() == 0
    }

    /// Requests that run beside their connections now.
    pub(crate) fn in_progress_count(&self) -> usize {
        self.in_progress.count()
    }

    /// Messages received so far.
    pub(crate) fn request_count(&self) -> u64 {
        self.request_count.get()
    }

    /// How much goes into one message between targets.
    pub(crate) fn portions(&self) -> Portions {
        self.portions.get()
    }

    pub(crate) fn set_portions(&self, portions: Portions) {
        self.portions.set(portions);
    }

    /// True once the engine is stopping.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// True when nothing is begun, or tried again, in a pool's part any more: the engine stops, or has let go of the part. Another one may be
    /// served in its place, of which what is known here says nothing.
    pub(crate) fn is_done_with(&self, ctx: &Rc<TargetPool>) -> bool {
        self.is_draining() || !self.pools.serves(ctx)
    }

    /// What is told at once may lack its end when the machine goes. Where nothing of it is missing now, nothing will be when it is opened again.
    fn note_end(&self, ctx: &TargetPool) {
        let has_all = ctx.map().is_ok_and(|map| placement::is_live(self.id, &map));
        if ctx.shard.config().durability == Durability::Relaxed && has_all && !ctx.is_unsure() {
            ctx.shard.note_end();
        }
    }

    /// Refuses new requests, waits for those in progress, flushes and closes the shards.
    pub async fn drain(&self) -> Result<()> {
        self.draining.set(true);
        // Who waits to be let in has done nothing yet and goes elsewhere, or comes again.
        for (_, ctx) in self.pools.all() {
            ctx.admission.close();
            ctx.scrubber.stop();
            ctx.newer_map.wake();
        }
        if self.env.timeout(ORDER_TIME_MAX, self.in_progress.none()).await.is_none() {
            // Members may be stopping, too. Who waits comes again, and is answered by who leads then.
            for (_, ctx) in self.pools.all() {
                ctx.streams.end();
            }
            self.in_progress.none().await;
        }
        for (_, ctx) in self.pools.all() {
            ctx.streams.end();
            self.note_end(&ctx);
            ctx.shard.close().await?;
        }
        Ok(())
    }
}
