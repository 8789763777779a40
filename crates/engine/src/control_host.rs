//! The control side of an engine: its membership, its callers, and its work as the holder of the control
//! service if it is that (see `office`).

use crate::catalog_config::CatalogKind;
use crate::catalog_copy::Copy;
use crate::catalog_disk::CatalogDisk;
use crate::config::EngineConfig;
use crate::events::Book;
use crate::home::Home;
use crate::kept_maps::KeptMaps;
use crate::office::{Role, Seat};
use crate::owners::Owners;
use crate::peers::Peers;
use crate::process::{Inbox, Order};
use crate::standing::Standing;
use control::{
    Candidate, Catalog, CatalogImage, ElectionNews, EmbeddedCatalog, Service, SessionId, Targets,
};
use env::Env;
use futures_channel::mpsc::UnboundedReceiver;
use futures_channel::oneshot;
use futures_util::future::{Either, FutureExt, LocalBoxFuture, select};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use transport::{Address, Handoff, Incoming, Ledger, ServerConn};
use types::map::{HashMap, HashSet};
use types::{Code, Error, Rank, Result, TargetId};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest, EngineState, JoinInfo};
use wire::hello::{HelloReply, Service as WireService};
use wire::job::TargetJobs;
use wire::map::EngineInfo;
use wire::obj::{AdminOp, AdminReply, Request};

/// How long an engine tries to reach the system before it says again that it does.
const JOIN_TIME_MAX: Duration = Duration::from_secs(60);
/// How long one that has been in the system before tries, before it starts without.
const ALONE_AFTER: Duration = Duration::from_secs(3);
/// How long an engine that stops waits until others know.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(5);
/// How long it tries to tell the system of further targets.
const GROW_TIME_MAX: Duration = Duration::from_secs(10);
const JOIN_PAUSE: Duration = Duration::from_millis(100);
/// How long a target of another engine may take to take a new map before it is left to ask others for it.
const MAP_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a target may take to tell who does what.
const JOBS_TIME_MAX: Duration = Duration::from_secs(4);
/// How long the control service waits before it asks again about an order that is under way.
const ORDER_PAUSE: Duration = Duration::from_millis(20);
/// Pauses before an engine's targets are told again what they hold: the first, and where doubling ends.
const TELL_PAUSE_MIN: Duration = Duration::from_millis(200);
const TELL_PAUSE_MAX: Duration = Duration::from_secs(3);

/// The control side of one engine.
pub(crate) struct ControlHost {
    pub(crate) env: Env,
    pub(crate) standing: Standing,
    /// What is gone on with while the catalog is away.
    pub(crate) copy: Copy,
    /// The newest maps of its targets.
    pub(crate) kept_maps: KeptMaps,
    /// The system that the engine is in.
    pub(crate) home: Home,
    /// The targets can be given orders.
    is_introduced: Cell<bool>,
    pub(crate) peers: Peers,
    /// What this engine has noticed.
    pub(crate) events: Rc<Book>,
    join: JoinInfo,
    /// How many targets it has: more may come while it runs.
    target_count: Cell<u32>,
    rank: Cell<Rank>,
    targets: RefCell<Vec<TargetId>>,
    inboxes: RefCell<Vec<(TargetId, Inbox)>>,
    /// Those of its targets that cannot be served, and why.
    failed: RefCell<Vec<(TargetId, Error)>>,
    /// Engines that did not answer when last asked.
    silent: RefCell<HashSet<Rank>>,
    /// Whom orders to targets go to.
    owners: Owners,
    /// Which start of each engine was heard of last.
    running: RefCell<HashMap<Rank, u64>>,
    /// How often each engine has joined.
    joins: RefCell<HashMap<Rank, u64>>,
    next_session: Cell<u64>,
    incarnation: u64,
    ledger: Arc<Ledger>,
    is_exposed: bool,
    /// How long an engine may give no answer before it is down.
    pub(crate) down_after: Duration,
    /// Its targets are down then, too.
    pub(crate) fails_over: bool,
    /// How long a target may be down before others stand in for it; `None`: for ever.
    pub(crate) rebuild_after: Option<Duration>,
    /// Stops the engine; false when it is to tell others first.
    stop: RefCell<Option<oneshot::Sender<bool>>>,
}

impl ControlHost {
    /// Opens the catalog or joins the system that has one.
    pub async fn open(
        env: &Env,
        config: &EngineConfig,
        engine: &Uuid,
        info: EngineInfo,
        token: Vec<u8>,
        ledger: Arc<Ledger>,
        events: Rc<Book>,
    ) -> Result<Rc<ControlHost>> {
        let mut election = None;
        let home = Home::load(env.sim_node().is_none().then_some(config.dir.as_path()))?;
        let role = if !config.join.is_empty() {
            let address = |text: &String| match text.strip_prefix("sim:") {
                Some(name) => Address::Sim(name.to_string()),
                None => Address::Tcp(text.clone()),
            };
            // Where nobody answers, seconds go by until that is known.
            tracing::info!(
                "joining the system at {}; trying until it answers",
                config.join.join(", ")
            );
            Role::Member(config.join.iter().map(address).collect())
        } else if config.catalog.kind == CatalogKind::Etcd && env.sim_node().is_none() {
            election = Some(stand(env, config, engine, &info)?);
            Role::Follower(None)
        } else {
            let catalog = open_catalog(env, config)?;
            control::check_open(&catalog).await?;
            control::check_system(&catalog, home.system()).await?;
            Role::Holder(Rc::new(held_service(env, Box::new(catalog), &events)))
        };
        let target_count = config.targets.len() as u32;
        let incarnation = env.random_u64();
        let (candidate, news) = election.unzip();
        let host = Rc::new(ControlHost {
            peers: Peers::new(env.clone(), info.host.clone(), token),
            events,
            incarnation,
            env: env.clone(),
            standing: Standing::begin(role, candidate),
            copy: Copy::open(env, config)?,
            kept_maps: KeptMaps::open(env, config).await?,
            home,
            is_introduced: Cell::new(false),
            join: JoinInfo {
                engine: *engine,
                info,
                target_count,
                start: incarnation,
                // Added when it joins.
                system: None,
            },
            target_count: Cell::new(target_count),
            rank: Cell::new(Rank(0)),
            targets: RefCell::new(Vec::new()),
            inboxes: RefCell::new(Vec::new()),
            failed: RefCell::new(Vec::new()),
            silent: RefCell::new(HashSet::default()),
            owners: Owners::default(),
            running: RefCell::default(),
            joins: RefCell::new(HashMap::default()),
            next_session: Cell::new(1),
            ledger,
            // One that must not start has not; a simulated one has no address.
            is_exposed: config.is_exposed().unwrap_or(false),
            down_after: config.down_after(),
            fails_over: config.failover,
            rebuild_after: config.rebuild_after(),
            stop: RefCell::default(),
        });
        if let Some(news) = news {
            env.spawn(host.clone().follow_election(news));
        }
        host.join_or_start_alone().await?;
        Ok(host)
    }

    /// The targets can be given orders.
    pub(crate) fn is_introduced(&self) -> bool {
        self.is_introduced.get()
    }

    /// This engine's rank; 0 before it has joined.
    pub(crate) fn rank(&self) -> Rank {
        self.rank.get()
    }

    /// An engine has said which start of it this is.
    pub(crate) fn note_start(&self, rank: Rank, start: u64) {
        self.running.borrow_mut().insert(rank, start);
    }

    /// This engine's rank and targets, in the order of its configuration.
    pub fn membership(&self) -> (Rank, Vec<TargetId>) {
        (self.rank(), self.targets.borrow().clone())
    }

    /// Ends when somebody asks the engine to stop: with true when all engines do.
    pub fn asked_to_stop(&self) -> oneshot::Receiver<bool> {
        let (stop, stopped) = oneshot::channel();
        self.stop.replace(Some(stop));
        stopped
    }

    pub(crate) fn stop(&self, with_all: bool) {
        if let Some(stop) = self.stop.take() {
            tracing::info!("asked to stop");
            let _ = stop.send(with_all);
        }
    }

    /// Tells the control service that this engine stops, so that others lead at once what it led. One that gives
    /// no answer finds out by itself.
    pub async fn say_farewell(self: &Rc<Self>) {
        let JoinInfo { engine, start, .. } = self.join;
        let farewell = ControlRequest::Leave { engine, start, fails_over: self.fails_over };
        match self.env.timeout(FAREWELL_TIME_MAX, self.ask_holder(&farewell)).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                tracing::warn!("others are not told that the engine stops: {error}")
            }
            None => tracing::warn!("no answer to the word that the engine stops"),
        }
    }

    /// Learns the way to further target threads, and which of them cannot be served.
    pub fn attach(&self, inboxes: Vec<(TargetId, Inbox)>, failed: Vec<(TargetId, Error)>) {
        self.inboxes.borrow_mut().extend(inboxes);
        self.failed.borrow_mut().extend(failed);
    }

    /// Has the system know more targets of this engine than before; all their numbers, in the order of its configuration. Those that it
    /// had keep theirs.
    ///
    /// Errors: `Busy` while the engine's targets are not announced yet, those of the control service; then it has as many as before.
    pub async fn grow(self: &Rc<Self>, target_count: u32) -> Result<Vec<TargetId>> {
        if !self.is_introduced() {
            let text = "the engine has not told the system of its targets yet; try again";
            return Err(Error::new(Code::Busy, text));
        }
        let before = self.target_count.replace(target_count);
        if let Err(error) = self.join_system(GROW_TIME_MAX).await {
            self.target_count.set(before);
            return Err(error);
        }
        Ok(self.targets.borrow().clone())
    }

    /// Tells the system that the targets serve now, so that they are told their pools.
    pub fn introduce(self: Rc<Self>) {
        let host = self.clone();
        self.env.spawn(self.clone().keep_copy());
        self.env.spawn(self.clone().ask_around());
        self.env.spawn(self.clone().ask_for_grants());
        self.env.spawn(async move {
            host.introduce_alone().await;
            while let Err(error) = host.join_system(JOIN_TIME_MAX).await {
                tracing::error!("announcing the engine's targets: {error}");
                if !is_passing(&error) {
                    break;
                }
            }
            host.is_introduced.set(true);
            if let Role::Holder(service) = host.role() {
                host.hold_office(service).await;
            }
        });
    }

    /// Does what the holder of the control service does unasked, as long as it is that.
    pub(crate) async fn hold_office(self: Rc<Self>, service: Rc<Service>) {
        let orders = Orders { host: self.clone(), service: service.clone() };
        // With a catalog of its own engine nobody else was holder meanwhile: what there is to finish is told at once. Whoever did
        // not hear it, or knows another holder's word only, is told until it has heard.
        let unheard = match service.term() {
            0 => service.resume(&orders).await.map(|failures| {
                Some(failures.into_iter().map(|(target, _)| target).collect::<Vec<_>>())
            }),
            _ => Ok(None),
        };
        let told = async {
            let (unheard, engines) = (unheard?, service.engines().await?);
            let is_meant = |targets: &[TargetId]| match &unheard {
                Some(unheard) => targets.iter().any(|target| unheard.contains(target)),
                None => true,
            };
            for (engine, targets) in &engines {
                if is_meant(targets) {
                    let orders = Orders { host: self.clone(), service: service.clone() };
                    self.env.spawn(self.clone().tell_pools(engine.rank, orders));
                }
            }
            Ok::<(), Error>(())
        };
        if let Err(error) = told.await {
            tracing::error!("finishing what a restart cut off: {error}");
        }
        self.env.spawn(self.clone().follow_worth(service.clone()));
        self.watch_engines(&service).await;
    }

    /// Brings the times of containers to the catalog, if it is here.
    pub async fn save_times(&self) {
        if let Role::Holder(service) = self.role()
            && let Err(error) = service.save_times().await
        {
            tracing::warn!("writing the times of containers to the catalog: {error}");
        }
    }

    /// Who does what at a target of this engine.
    ///
    /// Errors: `NonExist` when it is another engine's, `TimedOut` when its thread does not answer.
    pub(crate) async fn jobs_at(&self, target: TargetId, with_clients: bool) -> Result<TargetJobs> {
        let inbox =
            self.inbox_of(target).ok_or_else(|| match self.targets.borrow().contains(&target) {
                true => Error::new(Code::Unreach, format!("target {target} is not served yet")),
                false => {
                    Error::new(Code::NonExist, format!("target {target} is not on this engine"))
                }
            })?;
        let gone = || Error::new(Code::Closed, format!("target {target} cannot be served"));
        let (sender, told) = oneshot::channel();
        inbox.unbounded_send(Order::Jobs(with_clients, sender)).map_err(|_| gone())?;
        match self.env.timeout(JOBS_TIME_MAX, told).await {
            Some(told) => told.map_err(|_| gone()),
            None => Err(Error::new(Code::TimedOut, format!("target {target} does not answer"))),
        }
    }

    /// The way to a target for who comes to it; `None` when it is not here.
    ///
    /// Errors: why it cannot be served.
    pub(crate) fn door_of(&self, target: TargetId) -> Result<Option<Inbox>> {
        match self.failed.borrow().iter().find(|(failed, _)| *failed == target) {
            Some((_, error)) => Err(error.clone()),
            None => Ok(self.inbox_of(target)),
        }
    }

    fn inbox_of(&self, target: TargetId) -> Option<Inbox> {
        let inboxes = self.inboxes.borrow();
        inboxes.iter().find(|(id, _)| *id == target).map(|(_, inbox)| inbox.clone())
    }

    pub(crate) fn own_inboxes(&self) -> Vec<Inbox> {
        self.inboxes.borrow().iter().map(|(_, inbox)| inbox.clone()).collect()
    }

    /// The same with their targets.
    pub(crate) fn own_targets(&self) -> Vec<(TargetId, Inbox)> {
        self.inboxes.borrow().clone()
    }

    pub(crate) fn note_liveness(&self, rank: Rank, answers: bool) {
        let mut silent = self.silent.borrow_mut();
        if answers {
            silent.remove(&rank);
        } else {
            silent.insert(rank);
        }
    }

    /// The engine's record in the copy of the catalog, if it is there as the configuration has it.
    pub(crate) async fn own_record(&self) -> Option<(Rank, Vec<TargetId>)> {
        let (info, targets) = self.copy.service.engine(self.join.engine).await.ok()??;
        (targets.len() == self.target_count.get() as usize).then_some((info.rank, targets))
    }

    /// Joins the system. One that has been in it does without when nobody answers; another one tries until somebody does.
    async fn join_or_start_alone(self: &Rc<Self>) -> Result<()> {
        let own = self.own_record().await;
        let limit = if own.is_some() { ALONE_AFTER } else { JOIN_TIME_MAX };
        let mut outcome = self.join_system(limit).await;
        while own.is_none()
            && let Err(error) = &outcome
            && is_passing(error)
        {
            tracing::warn!("{error}; still trying");
            outcome = self.join_system(limit).await;
        }
        match (outcome, own) {
            (Err(error), Some((rank, targets))) if is_passing(&error) => {
                tracing::warn!(
                    "{error}; starting with the copy of the catalog in this engine's directory"
                );
                self.rank.set(rank);
                self.targets.replace(targets);
                self.copy.be_alone();
                Ok(())
            }
            (outcome, _) => outcome,
        }
    }

    /// Has the targets of an engine that started without the catalog serve what they hold.
    async fn introduce_alone(self: &Rc<Self>) {
        if !self.copy.is_alone() {
            return;
        }
        let service = self.copy.service.clone();
        let orders = Orders { host: self.clone(), service: service.clone() };
        let targets = self.targets.borrow().clone();
        if let Err(error) = service.introduce(&targets, &orders).await {
            tracing::error!("reading the copy of the catalog: {error}");
        }
        if let Err(error) = self.tell_kept_maps().await {
            tracing::error!("reading the pool maps that are kept: {error}");
        }
    }

    async fn join_system(self: &Rc<Self>, limit: Duration) -> Result<()> {
        let (system, target_count) = (self.home.system(), self.target_count.get());
        let join = JoinInfo { system, target_count, ..self.join.clone() };
        let request = ControlRequest::Join(join);
        let deadline = self.env.now() + limit;
        let reply = loop {
            match self.ask_holder(&request).await {
                Err(error) if is_passing(&error) && self.env.now() < deadline => {
                    // timer: a pause before others are asked again.
                    self.env.sleep(JOIN_PAUSE).await;
                }
                outcome => break outcome.map_err(|error| error.context("joining the system"))?,
            }
        };
        let ControlReply::Joined { rank, targets, system } = reply else {
            return Err(Error::new(Code::Proto, "joining got an answer of another kind"));
        };
        self.home.settle(system)?;
        self.rank.set(rank);
        self.targets.replace(targets);
        Ok(())
    }

    /// Serves a caller until it closes its connection.
    pub fn adopt(self: Rc<Self>, handoff: Handoff) {
        let reply = HelloReply {
            incarnation: self.incarnation,
            remote_bulk: false,
            engine_version: env!("CARGO_PKG_VERSION").to_string(),
            proof: Default::default(),
        };
        let env = self.env.clone();
        let hello = handoff.hello();
        let seat = Seat::new(hello.service == WireService::Leader, hello.is_admin);
        match handoff.serve(&env, reply) {
            Ok(conn) => env.spawn(async move { self.serve(conn, Rc::new(seat)).await }),
            Err(error) => tracing::debug!("a control connection was lost at its start: {error}"),
        }
    }

    async fn serve(self: Rc<Self>, conn: ServerConn, seat: Rc<Seat>) {
        let session = SessionId(self.next_session.get());
        self.next_session.set(session.0 + 1);
        let mut forgotten = pin!(self.until_forgotten(seat.given()));
        loop {
            let received = match select(pin!(conn.recv()), &mut forgotten).await {
                Either::Left((received, _)) => received,
                Either::Right(_) => break,
            };
            match received {
                Ok(Some(incoming)) => {
                    let (host, seat) = (self.clone(), seat.clone());
                    let under_way = seat.given().begin();
                    self.env.spawn(async move {
                        host.answer(session, &seat, incoming).await;
                        drop(under_way);
                    });
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!("control session {}: {error}", session.0);
                    break;
                }
            }
        }
        conn.close();
        self.copy.service.session_closed(session);
        if let Role::Holder(service) = self.role() {
            service.session_closed(session);
        }
    }

    async fn answer(self: Rc<Self>, session: SessionId, seat: &Seat, incoming: Incoming) {
        let outcome = self.respond(session, seat, &incoming).await;
        let body = match outcome {
            Ok(body) => body,
            Err(error) => wire::encode(&Err::<ControlReply, _>(error)),
        };
        if let Err(error) = incoming.responder.reply(0, &body, &[]).await {
            tracing::debug!("control session {}: answer not delivered: {error}", session.0);
        }
    }

    /// How this engine does.
    pub(crate) fn state(&self) -> EngineState {
        EngineState {
            message_bytes: self.ledger.used(),
            message_bytes_max: self.ledger.limit(),
            is_exposed: self.is_exposed,
        }
    }

    /// Answers from the catalog.
    pub(crate) async fn handle(
        self: &Rc<Self>,
        service: &Rc<Service>,
        session: SessionId,
        request: ControlRequest,
    ) -> Result<ControlReply> {
        let orders = Orders { host: self.clone(), service: service.clone() };
        let mut start = None;
        if let ControlRequest::Join(join) = &request {
            self.check_is_single(service, join).await?;
            start = Some(join.start);
        }
        let reply = service.handle(session, request, &orders).await?;
        if let ControlReply::Joined { rank, .. } = reply {
            self.note_start(rank, start.unwrap_or_default());
            // After the answer: the engine's targets may not serve before it.
            self.note_liveness(rank, true);
            self.env.spawn(self.clone().tell_pools(rank, orders));
        }
        Ok(reply)
    }

    /// An engine whose directory was copied would take the place of the one that it is a copy of: both would have one rank, and
    /// the same targets with data that drift apart. `Busy` while the other one runs.
    async fn check_is_single(&self, service: &Service, join: &JoinInfo) -> Result<()> {
        let Some((known, _)) = service.engine(join.engine).await? else { return Ok(()) };
        let running = self.running.borrow().get(&known.rank).copied();
        // Where it listens itself nobody else does.
        let Some(running) = running.filter(|start| *start != join.start) else { return Ok(()) };
        if known.tcp == join.info.tcp {
            return Ok(());
        }
        match self.peers.ping_at(&known.tcp).await {
            Some(start) if start == running => Err(Error::new(
                Code::Busy,
                format!(
                    "engine {} ({}) runs already, at {}: its directory seems to have been copied; give each engine \
                     a directory and devices of its own, or stop the other one",
                    known.rank, join.engine, known.tcp
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Tells an engine's targets what they hold, until all of them know or the engine joins again.
    pub(crate) async fn tell_pools(self: Rc<Self>, rank: Rank, orders: Orders) {
        let join = {
            let mut joins = self.joins.borrow_mut();
            let count = joins.entry(rank).or_insert(0);
            *count += 1;
            *count
        };
        let mut pause = TELL_PAUSE_MIN;
        while self.holds(&orders.service) {
            match orders.service.resume_engine(rank, &orders).await {
                Ok(failures) if failures.is_empty() => return,
                Ok(failures) => {
                    for (target, error) in failures {
                        tracing::debug!("target {target} was not told of its pools: {error}");
                    }
                }
                Err(error) => tracing::error!("resuming engine {rank}: {error}"),
            }
            // timer: a growing pause before another try.
            self.env.sleep(pause).await;
            pause = (pause * 2).min(TELL_PAUSE_MAX);
            if self.joins.borrow().get(&rank) != Some(&join) {
                return;
            }
        }
    }
}

/// True for what may be otherwise in a moment.
pub(crate) fn is_passing(error: &Error) -> bool {
    matches!(error.code, Code::Unreach | Code::Closed | Code::TimedOut | Code::Stale)
}

fn open_catalog(env: &Env, config: &EngineConfig) -> Result<EmbeddedCatalog> {
    match env.sim_node() {
        Some(node) => EmbeddedCatalog::on_files(Box::new(CatalogDisk::new(node.disk().clone()))),
        None => EmbeddedCatalog::open(&config.dir.join("catalog")),
    }
}

/// A control service over a catalog.
pub(crate) fn service_on(env: &Env, catalog: Box<dyn Catalog>) -> Service {
    let (wall, random) = (env.clone(), env.clone());
    Service::new(catalog, Rc::new(move || wall.wall_ns()), Rc::new(move || random.random_u64()))
}

/// The control service itself: what it changes is noted.
pub(crate) fn held_service(env: &Env, catalog: Box<dyn Catalog>, events: &Rc<Book>) -> Service {
    let service = service_on(env, catalog);
    let events = events.clone();
    service.tell_to(Rc::new(move |happened| events.note(happened)));
    service.begins(env.boot_now());
    service
}

/// Stands for election as the one that writes the catalog in etcd.
fn stand(
    env: &Env,
    config: &EngineConfig,
    engine: &Uuid,
    info: &EngineInfo,
) -> Result<(Candidate, UnboundedReceiver<ElectionNews>)> {
    let path = config.dir.join("catalog");
    let own = CatalogImage::read(&path)?;
    if own.is_some_and(|own| own.is_open()) {
        return Err(Error::inval(format!(
            "the engine has a catalog of its own at {}, and [catalog] names one in etcd: move it there \
             with 'azekura system migrate-catalog', or use another directory for a new system in etcd",
            path.display()
        )));
    }
    let mut etcd = config.catalog.etcd(*engine, &info.tcp, env.random_u64())?;
    etcd.at = Some(info.clone());
    Candidate::stand(etcd)
}

/// The way from the control service to targets, here or on other engines.
pub(crate) struct Orders {
    pub host: Rc<ControlHost>,
    pub service: Rc<Service>,
}

impl Orders {
    async fn send(&self, target: TargetId, op: AdminOp) -> Result<AdminReply> {
        if let Some(inbox) = self.host.inbox_of(target) {
            let gone = || Error::new(Code::Closed, format!("target {target} has stopped"));
            let (sender, done) = oneshot::channel();
            inbox
                .unbounded_send(Order::Admin(self.service.term(), op, sender))
                .map_err(|_| gone())?;
            return done.await.map_err(|_| gone())?;
        }
        let now = self.host.env.now();
        let engine = self.host.owners.find(&self.service, target, now).await?;
        if engine.rank == self.host.rank() {
            return Err(Error::new(Code::Unreach, format!("target {target} has not started yet")));
        }
        let is_map =
            matches!(op, AdminOp::SetMap(_) | AdminOp::ChangeMap(_) | AdminOp::GiveLeadBack { .. });
        let body = wire::encode(&Request::Admin { term: self.service.term(), op });
        let answer = match is_map {
            true => self.host.peers.ask_within(&engine, target, &body, MAP_TIME_MAX).await,
            false => self.host.peers.ask(&engine, target, &body, &[]).await,
        };
        // One that takes a map late may be busy only.
        if answer.is_ok() || !is_map {
            self.host.note_liveness(engine.rank, answer.is_ok());
        }
        wire::decode::<Result<AdminReply>>(&answer?.body)?
    }
}

impl Targets for Orders {
    fn order(&self, target: TargetId, op: AdminOp) -> LocalBoxFuture<'_, Result<AdminReply>> {
        self.send(target, op).boxed_local()
    }

    fn pause(&self) -> LocalBoxFuture<'_, ()> {
        // timer: a pause before an order is given again.
        self.host.env.sleep(ORDER_PAUSE).boxed_local()
    }

    fn now(&self) -> Duration {
        self.host.env.boot_now()
    }

    fn until(&self, at: Duration) -> LocalBoxFuture<'_, ()> {
        async move {
            loop {
                let left = at.saturating_sub(self.now());
                if left.is_zero() {
                    return;
                }
                // timer: what was granted runs out by itself.
                self.host.env.sleep(left).await;
            }
        }
        .boxed_local()
    }

    fn here(&self) -> Option<Rank> {
        Some(self.host.rank())
    }

    fn reachable(&self, rank: Rank) -> bool {
        rank == self.host.rank() || !self.host.silent.borrow().contains(&rank)
    }
}
