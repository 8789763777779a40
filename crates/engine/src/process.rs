//! The engine process: its threads, its sockets, its start and stop.
//!
//! The control thread accepts connections, holds (or finds) the catalog and hands connections
//! to target threads through channels. Nothing else is shared between threads.

use crate::client_secret;
use crate::config::EngineConfig;
use crate::control_host::ControlHost;
use crate::doors::accept_all;
use crate::events::{Book, Teller};
use crate::figures::TargetFigures;
use crate::gossip::KnownMaps;
use crate::grants::{Granted, StatedMaps};
use crate::growth::Growth;
use crate::measure;
use crate::metrics;
use crate::metrics_door::{Limits, MetricsDoor};
use crate::rights;
use crate::summed_line;
use crate::target_start::{Starter, TargetThread, refuser};
use async_recursion::async_recursion as boxed;
use env::Env;
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use futures_util::future::{Either, select, select_all};
use futures_util::stream;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::Duration;
use transport::{Acceptor, Handoff};
use types::{Code, Error, PoolId, Rank, Result, TargetId};
use uuid::Uuid;
use wire::event::{EventCode, Happened};
use wire::job::TargetJobs;
use wire::map::{EngineInfo, PoolMap};
use wire::measure::{MeasureAsk, Standing};
use wire::obj::{AdminOp, AdminReply};

/// What the control thread tells a target thread.
pub(crate) enum Order {
    /// Serve this connection.
    Adopt(Handoff),
    /// Carry out an order of the control service.
    /// The first is its term.
    Admin(u64, AdminOp, oneshot::Sender<Result<AdminReply>>),
    /// Measure the devices.
    Measure(MeasureAsk, oneshot::Sender<Result<Standing>>),
    /// Tell figures.
    Figures(oneshot::Sender<TargetFigures>),
    /// Tell who does what, with true also of clients.
    Jobs(bool, oneshot::Sender<TargetJobs>),
    /// Tell what maps are known, and in each round another engine.
    KnownMaps(u64, oneshot::Sender<KnownMaps>),
    /// Tell maps in newer versions than these.
    NewerMaps(Arc<Vec<(PoolId, u32)>>, oneshot::Sender<Vec<PoolMap>>),
    /// Tell what maps are known, for a grant that is asked for in this round.
    StateMaps(u64, oneshot::Sender<StatedMaps>),
    /// What is led may be shown.
    Granted(Arc<Granted>),
    /// Take maps that another engine has told.
    TakeMaps(Arc<Vec<PoolMap>>),
    /// So many targets have parts of each of its data devices from now on.
    ShareDevices(Vec<u32>),
    /// Finish what is in progress, flush, stop.
    Drain(oneshot::Sender<Result<()>>),
}

/// The way to a target thread.
pub(crate) type Inbox = mpsc::UnboundedSender<Order>;

/// Pause between two looks whether an engine serves; when it does that is seen at once.
const START_PAUSE: Duration = Duration::from_secs(60);

/// Starts engines.
pub struct Engine;

/// A running engine, stopped when this is dropped.
pub struct EngineHandle {
    /// Its number in the system.
    pub rank: Rank,
    /// The TCP address it listens on.
    pub tcp: SocketAddr,
    pub unix: PathBuf,
    /// The TCP address of its figures, if it tells them.
    pub metrics: Option<SocketAddr>,
    stop: Option<oneshot::Sender<bool>>,
    grow: mpsc::UnboundedSender<EngineConfig>,
    control: Option<JoinHandle<Result<()>>>,
}

impl Engine {
    /// Starts an engine in threads of this process, without rights that it does not need; returns
    /// when it serves.
    pub fn start(config: EngineConfig) -> Result<EngineHandle> {
        let mut starting = Engine::begin(config)?;
        loop {
            starting = match starting.wait(START_PAUSE) {
                Begun::Done(outcome) => return *outcome,
                Begun::Waits(starting) => starting,
            };
        }
    }

    /// Begins to start one; it may take as long as the system that it joins is away.
    pub fn begin(config: EngineConfig) -> Result<StartingEngine> {
        let (ready_sender, ready) = std::sync::mpsc::channel();
        let (stop_sender, stop) = oneshot::channel();
        let (grow, grown) = mpsc::unbounded();
        let control = std::thread::Builder::new()
            .name("azk-control".into())
            .spawn(move || {
                if let Some(path) = rights::give_up(&config)? {
                    rights::tell_kept(&path);
                }
                let env = Env::real()?;
                let outcome = env.block_on(run(env.clone(), config, &ready_sender, stop, grown));
                // Tasks that still wait hold the catalog and connections.
                env.clear();
                if let Err(error) = &outcome {
                    // A failed start is told to the starter; later failures come with the join.
                    let _ = ready_sender.send(Err(error.clone()));
                }
                outcome
            })
            .map_err(|error| Error::io("starting the control thread", error))?;
        Ok(StartingEngine { ready, stop: stop_sender, grow, control })
    }
}

/// An engine that does not serve yet. When this is dropped it stops once it does, and ends with the process at the latest.
pub struct StartingEngine {
    ready: std::sync::mpsc::Receiver<Result<Served>>,
    stop: oneshot::Sender<bool>,
    grow: mpsc::UnboundedSender<EngineConfig>,
    control: JoinHandle<Result<()>>,
}

/// What has become of an engine's start.
pub enum Begun {
    /// It serves, or could not.
    Done(Box<Result<EngineHandle>>),
    Waits(StartingEngine),
}

impl StartingEngine {
    /// Waits until it serves, so long at most.
    pub fn wait(self, limit: Duration) -> Begun {
        let served = match self.ready.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => return Begun::Waits(self),
            Ok(served) => served,
            Err(RecvTimeoutError::Disconnected) => match self.control.join() {
                Ok(Err(error)) => return Begun::Done(Box::new(Err(error))),
                _ => {
                    let text = "the engine ended while starting; see its log";
                    return Begun::Done(Box::new(Err(Error::new(Code::Io, text))));
                }
            },
        };
        Begun::Done(Box::new(served.map(|(rank, tcp, unix, metrics)| EngineHandle {
            rank,
            tcp,
            unix,
            metrics,
            stop: Some(self.stop),
            grow: self.grow,
            control: Some(self.control),
        })))
    }
}

impl EngineHandle {
    /// True once the engine has ended, asked to or not. [`EngineHandle::stop`] tells why.
    pub fn is_finished(&self) -> bool {
        self.control.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Has the engine serve the targets that this configuration has more than the one that it was started with. What comes of it is in
    /// its log and among its events.
    pub fn grow(&self, config: EngineConfig) {
        // One that has ended serves none.
        let _ = self.grow.unbounded_send(config);
    }

    /// Tells the system that it leaves, refuses new requests, finishes those in progress, flushes and stops.
    pub fn stop(mut self) -> Result<()> {
        self.end(false)
    }

    /// The same where all engines stop, so that nobody could go on without this one.
    pub fn stop_with_all(mut self) -> Result<()> {
        self.end(true)
    }

    fn end(&mut self, with_all: bool) -> Result<()> {
        if let Some(stop) = self.stop.take() {
            // A control thread that is gone needs no word.
            let _ = stop.send(with_all);
        }
        match self.control.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(Error::new(Code::Io, "the control thread panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        if let Err(error) = self.end(false) {
            tracing::error!("stopping engine {}: {error}", self.rank);
        }
    }
}

/// An engine's rank, its addresses, and that of its figures.
type Served = (Rank, SocketAddr, PathBuf, Option<SocketAddr>);
type Ready = std::sync::mpsc::Sender<Result<Served>>;

/// The control thread's whole life.
async fn run(
    env: Env,
    config: EngineConfig,
    ready: &Ready,
    stop: oneshot::Receiver<bool>,
    grown: mpsc::UnboundedReceiver<EngineConfig>,
) -> Result<()> {
    if config.is_exposed()? {
        tracing::warn!(
            "INSECURE: whoever reaches {} may read and destroy everything; set token_file",
            config.listen
        );
    }
    let identity = Identity::load(&config.dir, config.targets.len())?;
    let unix = config.unix_path();
    let acceptor = Acceptor::bind(&env, Some(&config.listen), Some(&unix)).await?;
    let tcp =
        acceptor.tcp_addr().ok_or_else(|| Error::new(Code::Io, "the engine has no TCP address"))?;
    // After what tells that another engine is here: that one has this address, too.
    let metrics = config.metrics.as_ref().map(|metrics| MetricsDoor::bind(metrics.address()?));
    let metrics = metrics.transpose().inspect_err(|_| drop(std::fs::remove_file(&unix)))?;
    let metrics_at = metrics.as_ref().and_then(|listener| listener.local_addr().ok());
    let host = env::socket_place(&unix);
    let info = EngineInfo {
        rank: Rank(0),
        tcp: config.advertise.clone().unwrap_or_else(|| tcp.to_string()),
        unix: unix.display().to_string(),
        host,
        domain: if config.domain.is_empty() { vec![host_name()] } else { config.domain.clone() },
    };
    let measure_bytes = config.measure_bytes();
    let parts =
        Parts { env: env.clone(), config, engine: identity.uuid, info, acceptor, threads: true };
    // The starter may be gone already; then nobody needs to know.
    let outcome =
        serve(parts, |rank| drop(ready.send(Ok((rank, tcp, unix.clone(), metrics_at))))).await;
    let outcome = match outcome {
        Ok(mut serving) => {
            if measure_bytes > 0 {
                let inboxes = serving.inboxes.clone();
                env.spawn(measure::measure_first(env.clone(), measure_bytes, inboxes));
            }
            let _door = metrics.and_then(|listener| tell_figures(&env, listener, &serving));
            let asked = serving.control.as_ref().map(|control| control.asked_to_stop());
            // A handle that was dropped means: stop as well.
            let mut asked = std::pin::pin!(async {
                match asked {
                    Some(asked) => match select(stop, asked).await {
                        Either::Left((with_all, _)) | Either::Right((with_all, _)) => with_all,
                    },
                    None => stop.await,
                }
            });
            let mut grown = grown.chain(stream::pending());
            let (ended, with_all) = loop {
                let config = {
                    let ended = std::pin::pin!(serving.target_ended());
                    match select(asked.as_mut(), select(ended, grown.next())).await {
                        Either::Left((with_all, _)) => break (None, with_all.unwrap_or(false)),
                        Either::Right((Either::Left((id, _)), _)) => break (Some(id), false),
                        Either::Right((Either::Right((config, _)), _)) => config,
                    }
                };
                if let Some(config) = config {
                    serving.take_config(&env, config).await;
                }
            };
            if let (Some(id), Some(control)) = (ended, &serving.control) {
                let what = format!("target {id} has ended by itself; its engine stops");
                let happened = Happened::new(EventCode::TargetEnded, what);
                control.events.note(happened.of_target(id));
            }
            let stopped = match with_all {
                true => serving.stop_with_all().await,
                false => serving.stop().await,
            };
            match ended {
                Some(id) => Err(Error::new(
                    Code::Io,
                    format!("target {id} has ended by itself, so the engine stops; see the log"),
                )),
                None => stopped,
            }
        }
        Err(error) => Err(error),
    };
    // A socket file that cannot be removed is replaced at the next start.
    let _ = std::fs::remove_file(&unix);
    outcome
}

/// How long somebody who asks for figures waits for the control thread.
const FIGURES_TIME_MAX: Duration = Duration::from_secs(10);

/// Begins to answer who asks for metrics. An engine goes on without.
fn tell_figures(
    env: &Env,
    listener: std::net::TcpListener,
    serving: &Serving,
) -> Option<MetricsDoor> {
    let control = serving.control.clone()?;
    let (askers, asked) = mpsc::unbounded();
    env.spawn(metrics::answer_all(control, asked));
    let source = move || {
        let (asker, text) = std::sync::mpsc::channel();
        askers.unbounded_send(asker).ok()?;
        text.recv_timeout(FIGURES_TIME_MAX).ok()
    };
    MetricsDoor::serve(listener, std::sync::Arc::new(source), Limits::default())
        .inspect_err(|error| tracing::error!("{error}"))
        .ok()
}

/// What an engine is made of.
struct Parts {
    env: Env,
    config: EngineConfig,
    engine: Uuid,
    info: EngineInfo,
    acceptor: Acceptor,
    /// Targets get threads of their own; else they are tasks of `env`.
    threads: bool,
}

/// An engine that serves, from the inside.
pub struct Serving {
    pub(crate) rank: Rank,
    pub(crate) inboxes: Vec<(TargetId, Inbox)>,
    threads: Vec<JoinHandle<()>>,
    /// Ends with the target's thread.
    alive: Vec<(TargetId, oneshot::Receiver<()>)>,
    /// `None` in tests that have no control service.
    pub(crate) control: Option<std::rc::Rc<ControlHost>>,
    /// What further targets are started with; `None` in these tests.
    pub(crate) growth: Option<Growth>,
}

/// Starts an engine whose targets are tasks of a simulated environment. It listens at
/// `sim:NAME`; `engine` is its identity, which must be the same after a restart.
#[boxed(?Send)]
pub async fn serve_simulated(
    env: Env,
    name: &str,
    config: EngineConfig,
    engine: Uuid,
) -> Result<Serving> {
    let acceptor = Acceptor::bind(&env, None, None).await?;
    let info = EngineInfo {
        rank: Rank(0),
        tcp: format!("sim:{name}"),
        unix: String::new(),
        host: name.to_string(),
        domain: vec![name.to_string()],
    };
    serve(Parts { env, config, engine, info, acceptor, threads: false }, |_| {}).await
}

async fn serve(parts: Parts, ready: impl FnOnce(Rank)) -> Result<Serving> {
    let Parts { env, config, engine, info, acceptor, threads: in_threads } = parts;
    let tokens = config.tokens()?;
    let token = tokens.own().to_vec();
    let (host, tcp) = (info.host.clone(), info.tcp.clone());
    let ledger = acceptor.ledger().clone();
    ledger.set_limit(config.message_memory());
    let is_real = env.sim_node().is_none();
    let events = Book::open(&env, is_real.then_some(config.dir.as_path()));
    let teller = match is_real {
        true => {
            let (teller, told) = Teller::new();
            env.spawn(events.clone().listen(told));
            teller
        }
        // More tasks would make other runs of the same seeds.
        false => Teller::default(),
    };
    if is_real {
        // Who joins is known to the system from then on, whether it serves or not.
        for number in 0..config.targets.len() {
            vos::Store::may_open(&env, &config.devices(number)).await?;
        }
        if let Some(secret) = tokens.clients_own() {
            client_secret::check(&env, &config, &host, secret).await?;
        }
    }
    let opened =
        ControlHost::open(&env, &config, &engine, info, token.clone(), ledger, events.clone());
    let control = opened.await?;
    let (rank, ids) = control.membership();
    tracing::info!("engine {rank} at {tcp}: targets {ids:?}");
    let incarnation = env.random_u64();
    let starter = Starter {
        env: env.clone(),
        engine,
        host,
        token,
        incarnation,
        events: teller,
        clients_seen: Arc::default(),
        in_threads,
    };
    let mut serving = Serving {
        rank,
        inboxes: Vec::new(),
        threads: Vec::new(),
        alive: Vec::new(),
        control: Some(control.clone()),
        growth: None,
    };
    let mut failed: Vec<(TargetId, Error)> = Vec::new();
    for (number, id) in ids.iter().enumerate().take(config.targets.len()) {
        match starter.start(&config, number, *id).await {
            Ok(started) => serving.take_in(*id, started),
            // Damage costs one target; what the configuration has wrong is for who wrote it.
            Err(error) if matches!(error.code, Code::Csum | Code::Io) => {
                tracing::error!("{error}; the other targets of this engine are served");
                let happened = Happened::new(EventCode::TargetUnserved, error.to_string());
                events.note(happened.of_target(*id));
                serving.inboxes.push((*id, refuser(&env, error.clone())));
                failed.push((*id, error));
            }
            Err(error) => return Err(error),
        }
    }
    if failed.len() == ids.len().min(config.targets.len())
        && let Some((_, error)) = failed.pop()
    {
        return Err(error);
    }
    control.attach(serving.inboxes.clone(), failed);
    let accepting = (env.clone(), control.clone());
    env.spawn(async move {
        let (env, control) = accepting;
        accept_all(&env, acceptor, control, tokens).await;
    });
    control.clone().introduce();
    let version = env!("CARGO_PKG_VERSION");
    let count = serving.inboxes.len();
    let what = format!("engine {rank} at {tcp}, version {version}, serves {count} targets");
    events.note(Happened::new(EventCode::EngineStarted, what));
    serving.growth = Some(Growth::new(starter, config));
    ready(rank);
    Ok(serving)
}

impl Serving {
    /// Takes in a target that has been started.
    pub(crate) fn take_in(&mut self, id: TargetId, (inbox, thread): (Inbox, Option<TargetThread>)) {
        self.inboxes.push((id, inbox));
        if let Some(TargetThread { handle, life }) = thread {
            self.threads.push(handle);
            self.alive.push((id, life));
        }
    }

    /// Waits until a target's thread ends, which it does only by failing as long as nobody stops
    /// it.
    async fn target_ended(&mut self) -> TargetId {
        if self.alive.is_empty() {
            return std::future::pending().await;
        }
        let (_, at, _) = select_all(self.alive.iter_mut().map(|(_, life)| life)).await;
        self.alive[at].0
    }

    /// How often the catalog was asked from here; `None` while the control service is elsewhere.
    pub fn catalog_call_count(&self) -> Option<u64> {
        self.control.as_ref()?.catalog_call_count()
    }

    /// Tells the system that the engine leaves, refuses new requests, finishes those in progress, flushes and stops
    /// the targets.
    #[boxed(?Send)]
    pub async fn stop(self) -> Result<()> {
        if let Some(control) = &self.control {
            control.say_farewell().await;
        }
        self.stop_with_all().await
    }

    /// The same where all engines stop, so that nobody could go on without this one.
    #[boxed(?Send)]
    pub async fn stop_with_all(self) -> Result<()> {
        tracing::info!("engine {}: draining", self.rank);
        if let Some(control) = &self.control {
            let what = format!("engine {} stops", self.rank);
            control.events.note(Happened::new(EventCode::EngineStopping, what));
            control.save_times().await;
            control.leave().await;
        }
        let mut outcome = Ok(());
        for (id, inbox) in &self.inboxes {
            let (sender, drained) = oneshot::channel();
            if inbox.unbounded_send(Order::Drain(sender)).is_ok()
                && let Ok(Err(error)) = drained.await
            {
                outcome = Err(error.context(format!("closing target {id}")));
            }
        }
        for thread in self.threads {
            if thread.join().is_err() {
                outcome = Err(Error::new(Code::Io, "a target thread panicked; see the log"));
            }
        }
        if let Some(control) = &self.control {
            control.events.close();
        }
        tracing::info!("engine {}: stopped", self.rank);
        outcome
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// How long the kernel may take to end a killed engine and let go of its files.
const PREDECESSOR_GOES: Duration = Duration::from_secs(2);

/// Who this engine is, kept in its directory; also the lock against a second engine there.
struct Identity {
    uuid: Uuid,
    _lock: std::fs::File,
}

impl Identity {
    fn load(dir: &Path, target_count: usize) -> Result<Identity> {
        let doing = |what: &str| format!("{what} {}", dir.display());
        std::fs::create_dir_all(dir)
            .map_err(|error| Error::io(doing("creating the engine's directory"), error))?;
        let path = dir.join("engine.id");
        let lock = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| Error::io(doing("opening the identity in"), error))?;
        // One that was killed a moment ago may not be quite gone: wait a little.
        let patience = std::time::Instant::now() + PREDECESSOR_GOES;
        while lock.try_lock().is_err() {
            if std::time::Instant::now() < patience {
                // timer: another process has the lock; of its end nobody tells.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            return Err(Error::new(
                Code::Busy,
                format!(
                    "another engine runs in {}; stop it or use another directory",
                    dir.display()
                ),
            ));
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Error::io(doing("reading the identity in"), error))?;
        let uuid = if text.is_empty() {
            let uuid = Uuid::new_v4();
            let line = summed_line::line(&format!("azekura engine 1 {uuid} {target_count}"));
            std::fs::write(&path, line)
                .map_err(|error| Error::io(doing("writing the identity in"), error))?;
            uuid
        } else {
            parse_identity(&text, target_count)
                .map_err(|error| error.context(path.display().to_string()))?
        };
        Ok(Identity { uuid, _lock: lock })
    }
}

pub(crate) fn parse_identity(text: &str, target_count: usize) -> Result<Uuid> {
    let words: Vec<&str> = summed_line::text(text)?.split_whitespace().collect();
    let ["azekura", "engine", version, uuid, targets] = words[..] else {
        return Err(Error::inval(
            "not an engine identity; the directory belongs to something else",
        ));
    };
    if version != "1" {
        return Err(Error::new(
            Code::Version,
            format!("written by a newer release (format {version}); upgrade this one"),
        ));
    }
    // Further ones may have come since; how many there are now the catalog knows.
    if !targets.parse().is_ok_and(|made: usize| made <= target_count) {
        return Err(Error::inval(format!(
            "the engine was made with {targets} targets, the configuration has {target_count}"
        )));
    }
    uuid.parse().map_err(|_| Error::inval("the engine's UUID is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_kept_and_guarded() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::load(dir.path(), 2).unwrap();
        let uuid = first.uuid;
        let second = Identity::load(dir.path(), 2).err().unwrap();
        assert_eq!(second.code, Code::Busy);
        drop(first);
        assert_eq!(Identity::load(dir.path(), 2).unwrap().uuid, uuid);
        assert_eq!(Identity::load(dir.path(), 3).unwrap().uuid, uuid, "one was added");
        let fewer = Identity::load(dir.path(), 1).err().unwrap();
        assert!(fewer.to_string().contains("2 targets"), "{fewer}");
    }

    /// With a flipped bit in its UUID an engine once came back as another one, without its targets.
    #[test]
    fn any_flipped_bit_of_an_identity_is_noticed_or_harmless() {
        let uuid = Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0);
        let plain = format!("azekura engine 1 {uuid} 2");
        assert_eq!(parse_identity(&plain, 2).unwrap(), uuid);
        let whole = summed_line::line(&plain).into_bytes();
        for bit in 0..whole.len() * 8 {
            let mut raw = whole.clone();
            raw[bit / 8] ^= 1 << (bit % 8);
            let found = std::str::from_utf8(&raw).ok().map(|text| parse_identity(text, 2));
            if let Some(Ok(found)) = found {
                assert_eq!(found, uuid, "bit {bit}");
            }
        }
    }

    /// A target thread that had panicked was not noticed before its clients timed out.
    #[test]
    fn a_target_that_ends_by_itself_is_noticed() {
        let env = Env::real().unwrap();
        let channels: Vec<_> = (0..3).map(|_| oneshot::channel::<()>()).collect();
        let (mut senders, receivers): (Vec<_>, Vec<_>) = channels.into_iter().unzip();
        let alive = (5..).map(TargetId).zip(receivers).collect();
        let mut serving = Serving {
            rank: Rank(0),
            inboxes: Vec::new(),
            threads: Vec::new(),
            alive,
            control: None,
            growth: None,
        };
        let short = Duration::from_millis(1);
        assert_eq!(env.block_on(env.timeout(short, serving.target_ended())), None);
        senders.remove(1);
        assert_eq!(env.block_on(serving.target_ended()), TargetId(6));
    }
}
