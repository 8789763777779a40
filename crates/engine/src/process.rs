//! The engine process: its threads, its sockets, its start and stop.
//!
//! The control thread accepts connections, holds (or finds) the catalog and hands connections
//! to target threads through channels. Nothing else is shared between threads.

use crate::config::EngineConfig;
use crate::control_host::ControlHost;
use crate::cores;
use crate::decay::Habit;
use crate::doors::{Doors, accept_all};
use crate::events::{Book, Teller};
use crate::figures::TargetFigures;
use crate::gossip::KnownMaps;
use crate::measure;
use crate::metrics;
use crate::metrics_door::{Limits, MetricsDoor};
use crate::rights;
use crate::summed_line;
use crate::target::Target;
use env::Env;
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use futures_util::future::{Either, select, select_all};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
    /// Take maps that another engine has told.
    TakeMaps(Arc<Vec<PoolMap>>),
    /// Finish what is in progress, flush, stop.
    Drain(oneshot::Sender<Result<()>>),
}

/// The way to a target thread.
pub(crate) type Inbox = mpsc::UnboundedSender<Order>;

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
    control: Option<JoinHandle<Result<()>>>,
}

impl Engine {
    /// Starts an engine in threads of this process, without rights that it does not need; returns
    /// when it serves.
    pub fn start(config: EngineConfig) -> Result<EngineHandle> {
        let (ready_sender, ready) = std::sync::mpsc::channel();
        let (stop_sender, stop) = oneshot::channel();
        let control = std::thread::Builder::new()
            .name("azk-control".into())
            .spawn(move || {
                if let Some(path) = rights::give_up(&config)? {
                    rights::tell_kept(&path);
                }
                let env = Env::real()?;
                let outcome = env.block_on(run(env.clone(), config, &ready_sender, stop));
                // Tasks that still wait hold the catalog and connections.
                env.clear();
                if let Err(error) = &outcome {
                    // A failed start is told to the starter; later failures come with the join.
                    let _ = ready_sender.send(Err(error.clone()));
                }
                outcome
            })
            .map_err(|error| Error::io("starting the control thread", error))?;
        let (rank, tcp, unix, metrics) = match ready.recv() {
            Ok(started) => started?,
            Err(_) => {
                return match control.join() {
                    Ok(Err(error)) => Err(error),
                    _ => Err(Error::new(Code::Io, "the engine ended while starting; see its log")),
                };
            }
        };
        Ok(EngineHandle {
            rank,
            tcp,
            unix,
            metrics,
            stop: Some(stop_sender),
            control: Some(control),
        })
    }
}

impl EngineHandle {
    /// True once the engine has ended, asked to or not. [`EngineHandle::stop`] tells why.
    pub fn is_finished(&self) -> bool {
        self.control.as_ref().is_none_or(JoinHandle::is_finished)
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

type Ready = std::sync::mpsc::Sender<Result<(Rank, SocketAddr, PathBuf, Option<SocketAddr>)>>;

/// The control thread's whole life.
async fn run(
    env: Env,
    config: EngineConfig,
    ready: &Ready,
    stop: oneshot::Receiver<bool>,
) -> Result<()> {
    if config.is_exposed()? {
        tracing::warn!(
            "INSECURE: whoever reaches {} may read and destroy everything; set token_file",
            config.listen
        );
    }
    let metrics = match &config.metrics {
        Some(metrics) => Some(MetricsDoor::bind(metrics.address()?)?),
        None => None,
    };
    let metrics_at = metrics.as_ref().and_then(|listener| listener.local_addr().ok());
    let identity = Identity::load(&config.dir, config.targets.len())?;
    let unix = config.unix_path();
    let acceptor = Acceptor::bind(&env, Some(&config.listen), Some(&unix)).await?;
    let tcp =
        acceptor.tcp_addr().ok_or_else(|| Error::new(Code::Io, "the engine has no TCP address"))?;
    let host = env::host_identity();
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
            let (ended, with_all) = {
                let ended = std::pin::pin!(serving.target_ended());
                // A handle that was dropped means: stop as well.
                let asked = std::pin::pin!(async {
                    match asked {
                        Some(asked) => match select(stop, asked).await {
                            Either::Left((with_all, _)) | Either::Right((with_all, _)) => with_all,
                        },
                        None => stop.await,
                    }
                });
                match select(asked, ended).await {
                    Either::Left((with_all, _)) => (None, with_all.unwrap_or(false)),
                    Either::Right((id, _)) => (Some(id), false),
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
    env.spawn(metrics::answer_all(control, serving.inboxes.clone(), asked));
    if let Ok(address) = listener.local_addr() {
        tracing::info!("metrics at http://{address}/metrics");
    }
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
    rank: Rank,
    inboxes: Vec<(TargetId, Inbox)>,
    threads: Vec<JoinHandle<()>>,
    /// Ends with the target's thread.
    alive: Vec<(TargetId, oneshot::Receiver<()>)>,
    /// `None` in tests that have no control service.
    control: Option<std::rc::Rc<ControlHost>>,
}

/// Starts an engine whose targets are tasks of a simulated environment. It listens at
/// `sim:NAME`; `engine` is its identity, which must be the same after a restart.
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
    let opened =
        ControlHost::open(&env, &config, &engine, info, token.clone(), ledger, events.clone());
    let control = opened.await?;
    let (rank, ids) = control.membership();
    tracing::info!("engine {rank} at {tcp}: targets {ids:?}");
    let incarnation = env.random_u64();
    let mut inboxes = Vec::new();
    let mut threads = Vec::new();
    let mut alive = Vec::new();
    let mut failed: Vec<(TargetId, Error)> = Vec::new();
    for (number, id) in ids.iter().enumerate().take(config.targets.len()) {
        let owner = vos::Owner { engine: *engine.as_bytes(), number: number as u32 };
        let start = TargetStart {
            id: *id,
            devices: config.devices(number),
            options: vos::StoreOptions {
                owner: Some(owner),
                inline_bytes_max: config.inline_bytes_max(),
                aggregate: config.store.aggregation.unwrap_or(true),
                discard: config.store.discard,
                metadata_cache: config.metadata_cache(),
                data_cache: config.data_cache() / config.targets.len() as u64,
                target_count: config.targets.len() as u32,
                bytes_per_s_max: config.targets[number].rate_max.map(|rate| rate.0),
            },
            host: host.clone(),
            token: token.clone(),
            incarnation,
            events: teller.clone(),
            cores: config.targets[number].cores.clone(),
            habit: config.measure_habit(),
        };
        let started = match in_threads {
            true => start.in_thread().await.map(|(inbox, thread, life)| {
                threads.push(thread);
                alive.push((*id, life));
                inbox
            }),
            false => start.in_task(&env).await,
        };
        match started {
            Ok(inbox) => inboxes.push((*id, inbox)),
            // Damage costs one target; what the configuration has wrong is for who wrote it.
            Err(error) if matches!(error.code, Code::Csum | Code::Io) => {
                tracing::error!("{error}; the other targets of this engine are served");
                let happened = Happened::new(EventCode::TargetUnserved, error.to_string());
                events.note(happened.of_target(*id));
                inboxes.push((*id, refuser(&env, error.clone())));
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
    control.attach(inboxes.clone());
    let accepting = (env.clone(), control.clone(), inboxes.clone());
    env.spawn(async move {
        let (env, control, inboxes) = accepting;
        accept_all(&env, acceptor, control, Doors { inboxes, failed }, tokens).await;
    });
    control.clone().introduce();
    let version = env!("CARGO_PKG_VERSION");
    let what =
        format!("engine {rank} at {tcp}, version {version}, serves {} targets", inboxes.len());
    events.note(Happened::new(EventCode::EngineStarted, what));
    ready(rank);
    Ok(Serving { rank, inboxes, threads, alive, control: Some(control) })
}

impl Serving {
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
    pub async fn stop(self) -> Result<()> {
        if let Some(control) = &self.control {
            control.say_farewell().await;
        }
        self.stop_with_all().await
    }

    /// The same where all engines stop, so that nobody could go on without this one.
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

/// What a target needs to start.
struct TargetStart {
    id: TargetId,
    devices: vos::Devices,
    options: vos::StoreOptions,
    host: String,
    token: Vec<u8>,
    incarnation: u64,
    events: Teller,
    /// Where its thread runs; empty: anywhere.
    cores: Vec<usize>,
    /// How it measures its devices by itself.
    habit: Option<Habit>,
}

type Opened = oneshot::Sender<Result<()>>;

impl TargetStart {
    /// Starts the target in a thread of its own; returns when it has opened its device.
    async fn in_thread(self) -> Result<(Inbox, JoinHandle<()>, oneshot::Receiver<()>)> {
        let (inbox, orders) = mpsc::unbounded();
        let (opened_sender, opened) = oneshot::channel();
        let (alive, life) = oneshot::channel::<()>();
        let id = self.id;
        // The environment's own threads, if it makes any, belong to the same cores.
        let real = |cores: &[usize]| cores::bind(cores).and_then(|()| Env::real());
        let body = move || match real(&self.cores) {
            Ok(env) => {
                env.block_on(self.live(env.clone(), opened_sender, orders));
                env.clear();
            }
            // The control thread gives up with us.
            Err(error) => drop(opened_sender.send(Err(error.context(format!("target {id}"))))),
        };
        let thread = std::thread::Builder::new()
            .name(format!("azk-target-{id}"))
            .spawn(move || {
                // Dropped when the thread ends, by a panic too.
                let _alive = alive;
                body();
            })
            .map_err(|error| Error::io("starting a target thread", error))?;
        Self::opened(id, opened.await)?;
        Ok((inbox, thread, life))
    }

    /// Starts the target as a task; returns when it has opened its device.
    async fn in_task(self, env: &Env) -> Result<Inbox> {
        let (inbox, orders) = mpsc::unbounded();
        let (opened_sender, opened) = oneshot::channel();
        let id = self.id;
        env.spawn(self.live(env.clone(), opened_sender, orders));
        Self::opened(id, opened.await)?;
        Ok(inbox)
    }

    fn opened(id: TargetId, outcome: Result<Result<()>, oneshot::Canceled>) -> Result<()> {
        outcome.unwrap_or_else(|_| {
            Err(Error::new(Code::Io, format!("target {id} ended while starting")))
        })
    }

    /// The target's whole life.
    async fn live(self, env: Env, opened: Opened, mut orders: mpsc::UnboundedReceiver<Order>) {
        let id = self.id;
        let opened_store = vos::Store::open_with(&env, &self.devices, self.options).await;
        let target = match opened_store {
            Ok(store) => {
                if let Err(error) = store.clear_measuring().await {
                    tracing::warn!("target {id}: {error}");
                }
                let (host, token, events) = (self.host, self.token, self.events.clone());
                Target::open(env.clone(), id, store, host, token, self.incarnation, events).await
            }
            Err(error) => Err(error),
        };
        let target = match target {
            Ok(target) => target,
            Err(error) => {
                let scm = self.devices.scm.display();
                let error = error.context(format!("target {id} on {scm}"));
                // If the control thread is gone, nobody waits for the reason.
                let _ = opened.send(Err(error));
                return;
            }
        };
        let _ = opened.send(Ok(()));
        if let Some(habit) = self.habit {
            let watched = std::rc::Rc::downgrade(&target);
            env.spawn(Target::watch_devices(env.clone(), watched, habit));
            let watched = std::rc::Rc::downgrade(&target);
            env.spawn(Target::watch_links(env.clone(), watched, habit.every));
        }
        if env.sim_node().is_none() {
            env.spawn(Target::watch_condition(env.clone(), std::rc::Rc::downgrade(&target)));
        }
        while let Some(order) = orders.next().await {
            match order {
                Order::Adopt(handoff) => target.adopt(handoff),
                Order::Admin(term, op, answer) => {
                    let target = target.clone();
                    env.spawn(async move {
                        // Whoever asked may have given up waiting.
                        let _ = answer.send(target.admin(term, op).await);
                    });
                }
                Order::Measure(ask, answer) => {
                    let target = target.clone();
                    env.spawn(async move {
                        // Whoever asked may have given up waiting.
                        let _ = answer.send(target.stand(Some(ask)).await);
                    });
                }
                Order::Figures(answer) => {
                    let target = target.clone();
                    env.spawn(async move {
                        // Whoever asked may have given up waiting.
                        let _ = answer.send(target.figures().await);
                    });
                }
                Order::Jobs(with_clients, answer) => {
                    // Whoever asked may have given up waiting.
                    let _ = answer.send(target.told_jobs(with_clients));
                }
                Order::KnownMaps(round, answer) => {
                    // Whoever asked may have given up waiting.
                    let _ = answer.send(target.known_maps(round));
                }
                Order::NewerMaps(known, answer) => {
                    // Whoever asked may have given up waiting.
                    let _ = answer.send(target.newer_maps(&known));
                }
                Order::TakeMaps(maps) => target.take_newer_maps(&maps),
                Order::Drain(answer) => {
                    let _ = answer.send(target.drain().await);
                    return;
                }
            }
        }
    }
}

/// Answers the control service for a target that cannot be served.
fn refuser(env: &Env, error: Error) -> Inbox {
    let (inbox, mut orders) = mpsc::unbounded();
    env.spawn(async move {
        while let Some(order) = orders.next().await {
            match order {
                Order::Adopt(handoff) => drop(handoff),
                Order::Figures(answer) => drop(answer),
                Order::Jobs(_, answer) => drop(answer),
                Order::KnownMaps(_, answer) => drop(answer),
                Order::NewerMaps(_, answer) => drop(answer),
                Order::TakeMaps(maps) => drop(maps),
                Order::Measure(_, answer) => drop(answer.send(Err(error.clone()))),
                // Whoever asked may have given up waiting.
                Order::Admin(.., answer) => drop(answer.send(Err(error.clone()))),
                Order::Drain(answer) => {
                    let _ = answer.send(Ok(()));
                    return;
                }
            }
        }
    });
    inbox
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
    if targets.parse() != Ok(target_count) {
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
        let changed = Identity::load(dir.path(), 3).err().unwrap();
        assert!(changed.to_string().contains("2 targets"), "{changed}");
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
        };
        let short = Duration::from_millis(1);
        assert_eq!(env.block_on(env.timeout(short, serving.target_ended())), None);
        senders.remove(1);
        assert_eq!(env.block_on(serving.target_ended()), TargetId(6));
    }
}
