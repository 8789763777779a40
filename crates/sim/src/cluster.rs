//! Simulated clusters: engines and clients as nodes of one [`SimWorld`].

use crate::local::make_container;
use client::{Client, ConnectOptions, Container, SystemAddress};
use engine::process::{Serving, serve_simulated};
use engine::{CatalogConfig, EngineConfig, StoreConfig, TargetConfig};
use env::SimWorld;
use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;
use transport::Address;
use types::{Code, ContLayout, Durability, Result};
use uuid::Uuid;

/// Shape of a simulated cluster.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// Everything random comes from it.
    pub seed: u64,
    /// Number of engines; the first holds the catalog.
    pub engines: usize,
    /// Targets of each engine.
    pub targets: usize,
}

/// A cluster of engines in one simulated world.
pub struct Cluster {
    world: SimWorld,
    spec: ClusterSpec,
    store: StoreConfig,
    serving: RefCell<Vec<Option<Serving>>>,
    /// Targets that each engine has got since it began.
    added: RefCell<Vec<usize>>,
    rebuild_after_s: Option<u32>,
    /// Fault domains of an engine, by its number.
    domain: fn(usize) -> Vec<String>,
}

impl Cluster {
    /// Starts all engines, one after the other.
    pub fn start(spec: ClusterSpec) -> Result<Cluster> {
        Cluster::start_with(spec, StoreConfig::default())
    }

    /// Starts all engines, their stores with these settings. Where there are data devices among them, targets share these.
    pub fn start_with(spec: ClusterSpec, store: StoreConfig) -> Result<Cluster> {
        Cluster::start_healing(spec, store, None)
    }

    /// The same, with others that stand in for targets that are down for so long.
    pub fn start_healing(
        spec: ClusterSpec,
        store: StoreConfig,
        rebuild_after_s: Option<u32>,
    ) -> Result<Cluster> {
        let domain = |at| vec![Cluster::engine_name(at)];
        Cluster::start_in_domains(spec, store, rebuild_after_s, domain)
    }

    /// The same, with these fault domains of engines, by their numbers, from the outside in.
    pub fn start_in_domains(
        spec: ClusterSpec,
        store: StoreConfig,
        rebuild_after_s: Option<u32>,
        domain: fn(usize) -> Vec<String>,
    ) -> Result<Cluster> {
        let world = SimWorld::new(spec.seed);
        let serving = RefCell::new((0..spec.engines).map(|_| None).collect());
        let added = RefCell::new(vec![0; spec.engines]);
        let cluster = Cluster { world, spec, store, serving, added, rebuild_after_s, domain };
        for at in 0..cluster.spec.engines {
            cluster.block_on(cluster.start_engine(at))?;
        }
        Ok(cluster)
    }

    /// The world: its clock, its network, its disks.
    pub fn world(&self) -> &SimWorld {
        &self.world
    }

    /// Its shape.
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// Name of an engine's node.
    pub fn engine_name(at: usize) -> String {
        format!("e{at}")
    }

    fn config(&self, at: usize) -> EngineConfig {
        let shares = !self.store.nvme.is_empty();
        let target = |number| {
            let path = format!("/target{number}");
            match shares {
                true => TargetConfig { scm: Some(path.into()), ..TargetConfig::default() },
                false => TargetConfig::on(path),
            }
        };
        let targets = (0..self.target_count(at)).map(target).collect();
        EngineConfig {
            // Only an engine in a process keeps something there.
            dir: "/".into(),
            listen: String::new(),
            advertise: None,
            join: if at == 0 { Vec::new() } else { vec!["sim:e0".into()] },
            domain: (self.domain)(at),
            token_file: None,
            admin_token_file: None,
            insecure: false,
            message_memory: None,
            down_after_s: None,
            failover: true,
            rebuild_after_s: self.rebuild_after_s,
            metrics: None,
            catalog: CatalogConfig::default(),
            store: self.store.clone(),
            targets,
        }
    }

    /// Targets of an engine, with those it has got since it began.
    pub fn target_count(&self, at: usize) -> usize {
        self.spec.targets + self.added.borrow()[at]
    }

    /// Gives an engine that runs, and is not killed meanwhile, a further target.
    pub async fn grow_engine(&self, at: usize) -> Result<()> {
        self.added.borrow_mut()[at] += 1;
        let Some(mut serving) = self.serving.borrow_mut()[at].take() else { return Ok(()) };
        let env = self.world.node(&Self::engine_name(at));
        let grown = loop {
            match serving.grow(self.config(at)).await {
                // It has started a moment ago.
                Err(error) if error.code == Code::Busy => {
                    env.sleep(Duration::from_millis(100)).await;
                }
                grown => break grown,
            }
        };
        self.serving.borrow_mut()[at] = Some(serving);
        grown.map(|_| ())
    }

    /// Starts (again) an engine on its node and its node's disk.
    pub async fn start_engine(&self, at: usize) -> Result<()> {
        let name = Self::engine_name(at);
        let config = self.config(at);
        let env = self.world.node(&name);
        let serving = serve_simulated(env, &name, config, Uuid::from_u128(at as u128 + 1)).await?;
        self.serving.borrow_mut()[at] = Some(serving);
        Ok(())
    }

    /// Kills an engine: what its disks had not made durable is lost.
    pub fn kill_engine(&self, at: usize) {
        self.serving.borrow_mut()[at] = None;
        self.world.kill(&Self::engine_name(at));
    }

    /// Stops an engine in good order.
    pub async fn stop_engine(&self, at: usize) -> Result<()> {
        let serving = self.serving.borrow_mut()[at].take();
        match serving {
            Some(serving) => serving.stop().await,
            None => Ok(()),
        }
    }

    /// Stops all engines, as one does who knows that nobody is left to go on; that with the catalog last.
    pub async fn stop_all(&self) -> Result<()> {
        let count = self.serving.borrow().len();
        for at in (0..count).rev() {
            let serving = self.serving.borrow_mut()[at].take();
            if let Some(serving) = serving {
                serving.stop_with_all().await?;
            }
        }
        Ok(())
    }

    /// How often an engine has asked the catalog; `None` unless it holds the control service.
    pub fn catalog_call_count(&self, at: usize) -> Option<u64> {
        self.serving.borrow()[at].as_ref()?.catalog_call_count()
    }

    /// A client on a node of its own that waits so long for answers.
    pub fn client_within(&self, name: &str, timeout: Duration) -> Client {
        self.client_with(name, |options| options.timeout = timeout)
    }

    /// A client on a node of its own that leaves the coding of stripes to engines.
    pub fn client_without_codes(&self, name: &str) -> Client {
        self.client_with(name, |options| options.codes_stripes = false)
    }

    /// A client on a node of its own.
    pub fn client(&self, name: &str) -> Client {
        self.client_with(name, |_| ())
    }

    /// A client on a node of its own, with options that are changed from those that others have.
    pub fn client_with(&self, name: &str, change: impl FnOnce(&mut ConnectOptions)) -> Client {
        self.client_on(name, name.to_string(), change)
    }

    /// The same, as if on the machine of an engine.
    pub fn client_beside(
        &self,
        name: &str,
        engine: usize,
        change: impl FnOnce(&mut ConnectOptions),
    ) -> Client {
        self.client_on(name, Self::engine_name(engine), change)
    }

    fn client_on(
        &self,
        name: &str,
        host: String,
        change: impl FnOnce(&mut ConnectOptions),
    ) -> Client {
        let engines =
            (0..self.spec.engines).map(|at| Address::Sim(Self::engine_name(at))).collect();
        let mut options = ConnectOptions::new(SystemAddress { engines, token: Vec::new() });
        options.timeout = Duration::from_secs(60);
        change(&mut options);
        Client::new(self.world.node(name), host, options)
    }

    /// A client of a named job, on a node of its own.
    pub fn client_in_job(&self, name: &str, job: &str) -> Client {
        self.client_with(name, |options| options.job = job.to_string())
    }

    /// Makes a pool `p` and a container `c` in it, and opens the container.
    pub async fn container(
        &self,
        client: &Client,
        durability: Durability,
        layout: ContLayout,
    ) -> Result<Container> {
        make_container(client, durability, layout).await
    }

    /// Drives the world until a future is ready.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.world.block_on(future)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.serving.borrow_mut().clear();
        self.world.clear();
    }
}
