//! Starting targets: each in a thread of its own, or as a task of a simulated environment.

use crate::config::EngineConfig;
use crate::cores;
use crate::decay::Habit;
use crate::events::Teller;
use crate::give_way::Lines;
use crate::portions::Portions;
use crate::process::{Inbox, Order};
use crate::target::Target;
use env::Env;
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use types::{Code, Error, Result, TargetId};
use uuid::Uuid;

/// What all targets of an engine are started with.
pub(crate) struct Starter {
    pub env: Env,
    pub engine: Uuid,
    pub host: String,
    pub token: Vec<u8>,
    pub incarnation: u64,
    pub events: Teller,
    /// When some target had clients last, for those who give way.
    pub clients_seen: Arc<AtomicU64>,
    /// Targets get threads of their own; else they are tasks of `env`.
    pub in_threads: bool,
}

/// A target's thread, and what ends with it.
pub(crate) struct TargetThread {
    pub handle: JoinHandle<()>,
    pub life: oneshot::Receiver<()>,
}

impl Starter {
    /// How the store of a target is opened, by its number in the configuration.
    pub fn store_options(&self, config: &EngineConfig, number: usize) -> vos::StoreOptions {
        let owner = vos::Owner { engine: *self.engine.as_bytes(), number: number as u32 };
        vos::StoreOptions {
            owner: Some(owner),
            inline_bytes_max: config.inline_bytes_max(),
            aggregate: config.store.aggregation.unwrap_or(true),
            discard: config.store.discard,
            metadata_cache: config.metadata_cache(),
            data_cache: config.data_cache() / config.targets.len() as u64,
            target_count: config.targets.len() as u32,
            write_queue: config.write_queue(),
            bytes_per_s_max: config.targets[number].rate_max.map(|rate| rate.0),
        }
    }

    /// Starts a target, by its number in the configuration; returns when it has opened its devices. No thread: it is a task.
    ///
    /// Errors: those of [`vos::Store::open_with`].
    pub async fn start(
        &self,
        config: &EngineConfig,
        number: usize,
        id: TargetId,
    ) -> Result<(Inbox, Option<TargetThread>)> {
        let start = TargetStart {
            id,
            devices: config.devices(number),
            options: self.store_options(config, number),
            host: self.host.clone(),
            token: self.token.clone(),
            incarnation: self.incarnation,
            events: self.events.clone(),
            clients_seen: self.clients_seen.clone(),
            cores: config.targets[number].cores.clone(),
            habit: config.measure_habit(),
            portions: config.store.portions,
        };
        match self.in_threads {
            true => {
                let (inbox, handle, life) = start.in_thread().await?;
                Ok((inbox, Some(TargetThread { handle, life })))
            }
            false => Ok((start.in_task(&self.env).await?, None)),
        }
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
    clients_seen: Arc<AtomicU64>,
    /// Where its thread runs; empty: anywhere.
    cores: Vec<usize>,
    /// How it measures its devices by itself.
    habit: Option<Habit>,
    portions: Portions,
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
                let (incarnation, moving) = (self.incarnation, Lines::beside(self.clients_seen));
                Target::open(env.clone(), id, store, host, token, incarnation, events, moving).await
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
        target.set_portions(self.portions);
        let _ = opened.send(Ok(()));
        if let Some(habit) = self.habit {
            let watched = std::rc::Rc::downgrade(&target);
            env.spawn(Target::watch_devices(env.clone(), watched, habit));
            let watched = std::rc::Rc::downgrade(&target);
            env.spawn(Target::watch_links(env.clone(), watched, habit.every));
        }
        env.spawn(Target::watch_writes(env.clone(), std::rc::Rc::downgrade(&target)));
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
                Order::StateMaps(round, answer) => {
                    // Whoever asked may have given up waiting.
                    let _ = answer.send(target.state_maps(round));
                }
                Order::Granted(granted) => target.take_grant(&granted),
                Order::TakeMaps(maps) => target.take_newer_maps(&maps),
                Order::ShareDevices(counts) => target.store.share_data_devices(&counts),
                Order::Drain(answer) => {
                    let _ = answer.send(target.drain().await);
                    return;
                }
            }
        }
    }
}

/// Answers the control service for a target that cannot be served.
pub(crate) fn refuser(env: &Env, error: Error) -> Inbox {
    let (inbox, mut orders) = mpsc::unbounded();
    env.spawn(async move {
        while let Some(order) = orders.next().await {
            match order {
                Order::Adopt(handoff) => drop(handoff),
                Order::Figures(answer) => drop(answer),
                Order::Jobs(_, answer) => drop(answer),
                Order::KnownMaps(_, answer) => drop(answer),
                Order::NewerMaps(_, answer) => drop(answer),
                Order::StateMaps(_, answer) => drop(answer),
                Order::Granted(granted) => drop(granted),
                Order::TakeMaps(maps) => drop(maps),
                Order::ShareDevices(counts) => drop(counts),
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
