//! The client: identity, connections, control requests.

use crate::cont::Container;
use crate::control::Ways;
use crate::in_doubt::Window;
use crate::lock::LockBook;
use crate::patience::Patience;
use crate::pool::{Pool, PoolState};
use crate::read_from::{Avoided, ReadFrom};
use crate::system::SystemAddress;
use crate::target::TargetLink;
use crate::users::Users;
use async_recursion::async_recursion as boxed;
use env::Env;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::time::Duration;
use transport::{Address, Call, Conn, Dial};
use types::map::HashMap;
use types::{ClientId, Code, Error, PoolId, Result, TargetId};
use wire::Kind;
use wire::control::{
    ControlReply, ControlRequest, EngineState, Name, OpenMode, PoolInfo, SystemInfo,
};
use wire::event::Events;
use wire::hello::Service;
use wire::job::TargetJobs;
use wire::map::{EngineInfo, PoolMap};
use wire::request_id::{self, UNANSWERED_MAX};

/// How long an operation may take when nobody says anything.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// How long a connection attempt may take; there may be others.
const DIAL_TIME_MAX: Duration = Duration::from_secs(10);
/// How long one engine may take to answer what asks no target, before another is asked.
pub(crate) const BRIEF_TIME_MAX: Duration = Duration::from_secs(20);

/// Which system to connect to, and how.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    pub system: SystemAddress,
    /// Name of the job, for fair sharing and accounting; may be empty.
    pub job: String,
    /// How long an operation may take, retries included; see [`Patience::limit`].
    pub timeout: Duration,
    /// Use TCP even where shared memory would do (for measurements).
    pub tcp_only: bool,
    /// Whole stripes of arrays with erasure codes are coded, and their cells put and read, by this client; false: by the leaders of
    /// their groups, as all else is (for measurements).
    pub codes_stripes: bool,
    /// Whom of the members of a group is asked for what is only looked at.
    pub read_from: ReadFrom,
    /// Updates of one of its lanes ([`wire::request_id`]) that may be without an answer at a time; 1 to [`UNANSWERED_MAX`].
    pub unanswered_max: usize,
    /// Locks of this process. Clients made from clones of these options share it.
    pub locks: LockBook,
}

impl ConnectOptions {
    /// Defaults for a system: job as [`types::job::name`] finds it in the environment, patience from `AZEKURA_PATIENCE`, else 60 s;
    /// reads from `AZEKURA_READ_FROM`, else from leaders.
    pub fn new(system: SystemAddress) -> ConnectOptions {
        ConnectOptions {
            system,
            job: types::job::name(&|variable| std::env::var(variable).ok()),
            timeout: Patience::from_env().map_or(TIMEOUT_DEFAULT, Patience::limit),
            tcp_only: false,
            codes_stripes: true,
            read_from: ReadFrom::from_env().unwrap_or(ReadFrom::Leaders),
            unanswered_max: UNANSWERED_MAX,
            locks: LockBook::default(),
        }
    }
}

/// One thread's way into a system. Cheap to clone; not `Send`.
#[derive(Clone)]
pub struct Client(Rc<Inner>);

pub(crate) struct Inner {
    env: Env,
    /// The environment was made for this client and ends with it.
    owns_env: bool,
    id: ClientId,
    options: ConnectOptions,
    host: String,
    next_count: Cell<u64>,
    /// Questions so far.
    asked: Cell<u64>,
    /// Updates in doubt, by lane.
    lanes: RefCell<HashMap<u16, Rc<Window>>>,
    ways: Ways,
    targets: RefCell<HashMap<TargetId, Rc<TargetLink>>>,
    /// What jobs in the background are told of users.
    users: Users,
    avoided: Avoided,
    /// Of open pools; some may be closed.
    pools: RefCell<Vec<Weak<PoolState>>>,
}

impl Client {
    /// Connects from this thread, with an environment of its own.
    pub fn connect(options: ConnectOptions) -> Result<Client> {
        let client = Client::make(Env::real()?, host_identity(), options, true);
        client.block_on(client.reach_control())?;
        Ok(client)
    }

    /// A client on a given environment; connects when first used. `host` is compared with
    /// [`EngineInfo::host`] to choose shared memory.
    pub fn new(env: Env, host: String, options: ConnectOptions) -> Client {
        Client::make(env, host, options, false)
    }

    fn make(env: Env, host: String, options: ConnectOptions, owns_env: bool) -> Client {
        let id = ClientId(env.random_u64());
        Client(Rc::new(Inner {
            env,
            owns_env,
            id,
            options,
            host,
            next_count: Cell::new(1),
            asked: Cell::new(0),
            lanes: RefCell::default(),
            ways: Ways::default(),
            targets: RefCell::new(HashMap::default()),
            users: Users::default(),
            avoided: Avoided::default(),
            pools: RefCell::default(),
        }))
    }

    /// The environment its futures run on.
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    pub(crate) fn users(&self) -> &Users {
        &self.0.users
    }

    pub(crate) fn avoided(&self) -> &Avoided {
        &self.0.avoided
    }

    /// The job that it asks for unless it says otherwise; may be empty.
    pub(crate) fn job(&self) -> &str {
        &self.0.options.job
    }

    /// Who this client is.
    pub fn id(&self) -> ClientId {
        self.0.id
    }

    /// How it was connected.
    pub fn options(&self) -> &ConnectOptions {
        &self.0.options
    }

    /// Runs a future to its end on this thread.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.env.block_on(future)
    }

    /// The client without keeping it from ending.
    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient(Rc::downgrade(&self.0))
    }

    /// A fresh request id; ids name updates for ever, over all targets.
    pub(crate) fn next_request(&self) -> u64 {
        self.0.asked.set(self.0.asked.get() + 1);
        request_id::plain(self.next_count())
    }

    /// The next of the client's count.
    pub(crate) fn next_count(&self) -> u64 {
        let count = self.0.next_count.get();
        self.0.next_count.set(count + 1);
        count
    }

    /// Questions asked so far, of targets and of the control service. A question asked again, and
    /// what is told along with the next question, do not count.
    pub fn request_count(&self) -> u64 {
        self.0.asked.get()
    }

    /// The ways to the control service.
    pub(crate) fn ways(&self) -> &Ways {
        &self.0.ways
    }

    /// Connects to a service of the engine at `address`.
    pub(crate) async fn dial(&self, address: &Address, service: Service) -> Result<Conn> {
        let dial = Dial {
            client: self.0.id,
            service,
            token: &self.0.options.system.token,
            job: &self.0.options.job,
            timeout: self.0.options.timeout.min(DIAL_TIME_MAX),
        };
        transport::connect(&self.0.env, address, &dial).await
    }

    /// The addresses worth trying for an engine, best first.
    pub(crate) fn addresses(&self, engine: &EngineInfo) -> Vec<Address> {
        if let Some(name) = engine.tcp.strip_prefix("sim:") {
            return vec![Address::Sim(name.to_string())];
        }
        let tcp = Address::Tcp(engine.tcp.clone());
        let is_usable = !self.0.options.tcp_only && !engine.unix.is_empty();
        if is_usable && env::is_here(&engine.host, &self.0.host, Path::new(&engine.unix)) {
            vec![Address::Unix(engine.unix.clone().into()), tcp]
        } else {
            vec![tcp]
        }
    }

    /// True when an engine is on this client's machine.
    pub(crate) fn is_near(&self, engine: &EngineInfo) -> bool {
        !engine.host.is_empty() && env::host_of(&engine.host) == self.0.host
    }

    /// The link to a target, made when first asked for.
    pub(crate) fn target(&self, target: TargetId) -> Rc<TargetLink> {
        let mut targets = self.0.targets.borrow_mut();
        targets.entry(target).or_insert_with(|| Rc::new(TargetLink::new(target))).clone()
    }

    /// Ends the connection to a target that gives no answer, if there is one. Over a link that was cut, and is whole again, the kernel would try it
    /// seconds later; another one is there at once.
    pub(crate) fn hang_up(&self, target: TargetId) {
        let link = self.0.targets.borrow().get(&target).cloned();
        if let Some(link) = link {
            link.hang_up();
        }
    }

    /// It holds locks, through whatever container.
    pub fn holds_locks(&self) -> bool {
        self.0.options.locks.is_held_by(self.id())
    }

    /// All targets that know of something that this client keeps (locks, open objects) are connected, and have been told.
    pub fn is_connected_to_kept(&self) -> bool {
        self.0.targets.borrow().values().all(|link| link.is_connected_if_kept())
    }

    /// What is in doubt of the updates of a lane.
    pub(crate) fn lane(&self, lane: u16) -> Rc<Window> {
        let mut lanes = self.0.lanes.borrow_mut();
        let new = || Rc::new(Window::new(self.0.options.unanswered_max));
        lanes.entry(lane).or_insert_with(new).clone()
    }

    /// The links to all targets asked for so far, by target.
    pub(crate) fn links(&self) -> Vec<Rc<TargetLink>> {
        let targets = self.0.targets.borrow();
        let mut links: Vec<_> = targets.iter().collect();
        links.sort_unstable_by_key(|(target, _)| **target);
        links.into_iter().map(|(_, link)| link.clone()).collect()
    }

    /// From now on the map of a pool is found by the pool's number.
    pub(crate) fn note_pool(&self, state: &PoolState) {
        let mut pools = self.0.pools.borrow_mut();
        pools.retain(|known| known.strong_count() > 0);
        pools.push(state.downgrade());
    }

    /// The newest map of a pool, if it is open.
    pub(crate) fn pool_state(&self, id: PoolId) -> Option<Rc<PoolState>> {
        let pools = self.0.pools.borrow();
        let open = pools.iter().filter_map(Weak::upgrade).filter(|state| state.id == id);
        open.max_by_key(|state| state.map_version())
    }

    /// The newest maps of the open pools.
    pub(crate) fn open_pools(&self) -> Vec<Rc<PoolState>> {
        self.0.pools.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Engines and versions of the system.
    #[boxed(?Send)]
    pub async fn system_query(&self) -> Result<SystemInfo> {
        match self.control(&ControlRequest::SystemQuery).await? {
            ControlReply::System(info) => Ok(info),
            _ => Err(unexpected()),
        }
    }

    /// How an engine does. One try.
    #[boxed(?Send)]
    pub async fn engine_query(&self, engine: &EngineInfo) -> Result<EngineState> {
        match self.ask_engine(engine, &ControlRequest::EngineQuery).await? {
            ControlReply::Engine(state) => Ok(state),
            _ => Err(unexpected()),
        }
    }

    /// Has an engine stop, and returns when it has begun to; `with_all`: all others do, too, so that nobody goes on
    /// without it. One try.
    #[boxed(?Send)]
    pub async fn engine_stop(&self, engine: &EngineInfo, with_all: bool) -> Result<()> {
        self.ask_engine(engine, &ControlRequest::EngineStop { with_all }).await.map(|_| ())
    }

    /// What jobs, and with `with_clients` also clients, do at a target of an engine. One try.
    ///
    /// Errors: `NoPerm` for clients that ask for clients; `NonExist`, `TimedOut`, those of reaching the engine.
    #[boxed(?Send)]
    pub async fn engine_jobs(
        &self,
        engine: &EngineInfo,
        target: TargetId,
        with_clients: bool,
    ) -> Result<TargetJobs> {
        let request = ControlRequest::EngineJobs { target, with_clients };
        match self.ask_engine(engine, &request).await? {
            ControlReply::Jobs(jobs) => Ok(jobs),
            _ => Err(unexpected()),
        }
    }

    /// What an engine has noticed: events with numbers after `after`, of a time from `since_ns` on, the oldest first; as many as
    /// fit into one answer. One try.
    ///
    /// Errors: `NoPerm` without the secret of administrators, and those of reaching the engine.
    #[boxed(?Send)]
    pub async fn engine_events(
        &self,
        engine: &EngineInfo,
        after: u64,
        since_ns: u64,
    ) -> Result<Events> {
        let request = ControlRequest::EngineEvents { after, since_ns };
        match self.ask_engine(engine, &request).await? {
            ControlReply::Events(events) => Ok(events),
            _ => Err(unexpected()),
        }
    }

    /// Asks one engine itself. One try.
    async fn ask_engine(
        &self,
        engine: &EngineInfo,
        request: &ControlRequest,
    ) -> Result<ControlReply> {
        let mut last = Error::bare(Code::Unreach);
        for address in self.addresses(engine) {
            match self.dial(&address, Service::Control).await {
                Ok(conn) => return self.ask_on(&conn, request).await,
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn ask_on(&self, conn: &Conn, request: &ControlRequest) -> Result<ControlReply> {
        let call = Call {
            kind: Kind::Control,
            request_id: self.next_request(),
            flags: 0,
            map_version: 0,
            deadline: self.0.options.timeout,
            body: &wire::encode(request),
            bulk_out: &[],
            bulk_in: &mut [],
        };
        let answer = conn.call(call).await?;
        wire::decode::<Result<ControlReply>>(&answer.body)?
    }

    /// True when whoever answers where an engine is says that it does not have this target of it: another one has its address.
    #[boxed(?Send)]
    pub async fn is_another(&self, engine: &EngineInfo, target: TargetId) -> bool {
        let request = ControlRequest::EngineJobs { target, with_clients: false };
        let mut is_another = false;
        for address in self.addresses(engine) {
            let Ok(conn) = self.dial(&address, Service::Control).await else { continue };
            match self.ask_on(&conn, &request).await {
                Err(error) if error.code == Code::NonExist => is_another = true,
                _ => return false,
            }
        }
        is_another
    }

    /// Makes a pool of `bytes` over all targets.
    #[boxed(?Send)]
    pub async fn pool_create(&self, request: ControlRequest) -> Result<PoolInfo> {
        match self.control(&request).await? {
            ControlReply::Pool(info) => Ok(info),
            _ => Err(unexpected()),
        }
    }

    #[boxed(?Send)]
    pub async fn pool_list(&self) -> Result<Vec<PoolInfo>> {
        match self.control(&ControlRequest::PoolList).await? {
            ControlReply::Pools(pools) => Ok(pools),
            _ => Err(unexpected()),
        }
    }

    /// A pool as the catalog knows it now.
    ///
    /// Errors: `NonExist`, and those of asking the control service.
    #[boxed(?Send)]
    pub async fn pool_query(&self, pool: &Name) -> Result<PoolInfo> {
        match self.control(&ControlRequest::PoolQuery(pool.clone())).await? {
            ControlReply::Pool(pool) => Ok(pool),
            _ => Err(unexpected()),
        }
    }

    /// Removes a pool; with `force` even one in use.
    #[boxed(?Send)]
    pub async fn pool_destroy(&self, pool: Name, force: bool) -> Result<()> {
        self.control(&ControlRequest::PoolDestroy { pool, force }).await.map(|_| ())
    }

    /// Opens a container of a pool in one round trip to one engine. To open the pool, too, it takes `pool_mode`.
    ///
    /// Errors as [`Client::pool_open`] and [`Pool::cont_open`]; they name which of the two could not be opened.
    #[boxed(?Send)]
    pub async fn open(
        &self,
        pool: &Name,
        pool_mode: OpenMode,
        cont: &Name,
        mode: OpenMode,
    ) -> Result<Container> {
        Pool::open_both(self, (pool, pool_mode), (cont, mode)).await
    }

    #[boxed(?Send)]
    pub async fn pool_open(&self, pool: &Name, mode: OpenMode) -> Result<Pool> {
        match self.control_by(&ControlRequest::PoolOpen { pool: pool.clone(), mode }).await? {
            (ControlReply::PoolOpened { handle, pool }, on) => {
                Ok(Pool::opened(self, (handle, on), pool, mode))
            }
            _ => Err(unexpected()),
        }
    }

    pub(crate) async fn pool_map(&self, pool: types::PoolId) -> Result<PoolMap> {
        match self.control(&ControlRequest::PoolMap(pool)).await? {
            ControlReply::Map(map) => Ok(map),
            _ => Err(unexpected()),
        }
    }

    /// Sends what is held back (closed handles). Called on drop of the last clone, too.
    pub fn flush(&self) {
        self.0.flush();
    }
}

/// A client that others keep, or not.
pub(crate) struct WeakClient(std::rc::Weak<Inner>);

impl WeakClient {
    /// The client, if it is still there.
    pub fn upgrade(&self) -> Option<Client> {
        self.0.upgrade().map(Client)
    }
}

impl Inner {
    fn flush(&self) {
        let mut links: Vec<_> =
            self.targets.borrow().iter().map(|(id, link)| (*id, link.clone())).collect();
        // In a fixed order, so that simulated runs repeat.
        links.sort_unstable_by_key(|(id, _)| *id);
        links.iter().for_each(|(_, link)| link.flush_releases());
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.flush();
        if self.owns_env {
            self.ways.clear();
            self.targets.take();
            self.env.clear();
        }
    }
}

pub(crate) fn unexpected() -> Error {
    Error::new(Code::Proto, "the control service gave an answer of the wrong kind")
}

/// What tells this host from others: the kernel's boot id.
pub fn host_identity() -> String {
    env::host_identity()
}
