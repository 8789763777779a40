//! Real engines in threads of the test process.

use client::{Client, ConnectOptions, Container, SystemAddress};
use engine::{CatalogConfig, Engine, EngineConfig, EngineHandle, StoreConfig, TargetConfig};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use transport::Address;
use types::{ContLayout, ContProps, Durability, PlacementRule, Result};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode};

/// Where secrets are in a system's directory.
const SECRET_FILES: [&str; 2] = ["token", "admin-token"];

/// Engines on this machine, gone with the value.
pub struct LocalSystem {
    dir: TempDir,
    engines: Vec<Option<EngineHandle>>,
    target_count: usize,
    /// Secrets of clients, and of engines and administrators.
    secrets: Option<[&'static str; 2]>,
}

impl LocalSystem {
    /// Starts `engine_count` engines with `target_count` targets each, in a new directory.
    pub fn start(engine_count: usize, target_count: usize) -> Result<LocalSystem> {
        LocalSystem::start_with(engine_count, target_count, None)
    }

    /// The same, with a secret for clients and one for engines and administrators.
    pub fn start_guarded(
        engine_count: usize,
        target_count: usize,
        secrets: [&'static str; 2],
    ) -> Result<LocalSystem> {
        LocalSystem::start_with(engine_count, target_count, Some(secrets))
    }

    fn start_with(
        engine_count: usize,
        target_count: usize,
        secrets: Option<[&'static str; 2]>,
    ) -> Result<LocalSystem> {
        let failed = |error| types::Error::io("making a directory for a test system", error);
        let dir = tempfile::tempdir().map_err(failed)?;
        for (file, secret) in SECRET_FILES.iter().zip(secrets.iter().flatten()) {
            std::fs::write(dir.path().join(file), secret).map_err(failed)?;
        }
        let mut system = LocalSystem { dir, engines: Vec::new(), target_count, secrets };
        for at in 0..engine_count {
            system.engines.push(None);
            system.start_engine(at)?;
        }
        Ok(system)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts (again) the engine at a place.
    pub fn start_engine(&mut self, at: usize) -> Result<()> {
        let join = match at {
            0 => Vec::new(),
            _ => self.engines[0].iter().map(|engine| engine.tcp.to_string()).collect(),
        };
        let dir = self.dir.path().join(format!("engine{at}"));
        let targets = (0..self.target_count)
            .map(|target| TargetConfig::on(dir.join(format!("target{target}"))))
            .collect();
        let secret_file = |at: usize| self.secrets.map(|_| self.dir.path().join(SECRET_FILES[at]));
        let config = EngineConfig {
            listen: "127.0.0.1:0".into(),
            advertise: None,
            join,
            domain: vec![format!("node{at}")],
            token_file: secret_file(0),
            admin_token_file: secret_file(1),
            insecure: false,
            message_memory: None,
            down_after_s: None,
            failover: true,
            rebuild_after_s: None,
            metrics: None,
            catalog: CatalogConfig::default(),
            store: StoreConfig::default(),
            targets,
            dir,
        };
        self.engines[at] = Some(Engine::start(config)?);
        Ok(())
    }

    /// Stops the engine at a place cleanly.
    pub fn stop_engine(&mut self, at: usize) -> Result<()> {
        self.engines[at].take().map_or(Ok(()), EngineHandle::stop)
    }

    /// How to connect, over shared memory or TCP; with the secret of administrators where there is one.
    pub fn options(&self, tcp_only: bool) -> ConnectOptions {
        let engines = self.engines.iter().flatten();
        let engines = engines
            .flat_map(|engine| {
                [Address::Unix(engine.unix.clone()), Address::Tcp(engine.tcp.to_string())]
            })
            .collect();
        let token = self.secrets.map_or(Vec::new(), |[_, admin]| admin.into());
        let mut options = ConnectOptions::new(SystemAddress { engines, token });
        options.tcp_only = tcp_only;
        options.timeout = Duration::from_secs(20);
        options
    }

    pub fn client(&self, tcp_only: bool) -> Result<Client> {
        Client::connect(self.options(tcp_only))
    }

    /// Operations, and bytes that came and went, of a job at all targets.
    pub fn job(&self, name: &str) -> Result<[u64; 3]> {
        let client = self.client(false)?;
        client.block_on(async {
            let mut sum = [0; 3];
            for (engine, targets, _) in client.system_query().await?.engines {
                for target in targets {
                    let told = client.engine_jobs(&engine, target, false).await?;
                    for job in told.jobs.iter().filter(|job| job.job == name) {
                        let figures = [job.op_count, job.in_bytes, job.out_bytes];
                        sum.iter_mut().zip(figures).for_each(|(sum, more)| *sum += more);
                    }
                }
            }
            Ok(sum)
        })
    }

    /// Makes a pool `p` of 1 GiB and a container `c` with the classes that users get in it, and opens the container.
    pub fn container(
        &self,
        client: &Client,
        durability: Durability,
        layout: ContLayout,
    ) -> Result<Container> {
        let props = match layout {
            ContLayout::Posix => ContProps::posix(0),
            ContLayout::Plain => ContProps::default(),
        };
        client.block_on(make_container_with(client, durability, props))
    }
}

/// Makes a pool `p` of 1 GiB and a container `c` in it, and opens the container.
pub(crate) async fn make_container(
    client: &Client,
    durability: Durability,
    layout: ContLayout,
) -> Result<Container> {
    let props = ContProps { layout, ..ContProps::default() };
    make_container_with(client, durability, props).await
}

/// The same with these properties of the container.
pub async fn make_container_with(
    client: &Client,
    durability: Durability,
    props: ContProps,
) -> Result<Container> {
    make_placed_container(client, durability, PlacementRule::default(), props).await
}

/// The same where targets get shares of the pool by this rule.
pub(crate) async fn make_placed_container(
    client: &Client,
    durability: Durability,
    placement: PlacementRule,
    props: ContProps,
) -> Result<Container> {
    let request = ControlRequest::PoolCreate {
        placement,
        label: "p".into(),
        bytes: 1 << 30,
        scm_percent: 20,
        durability,
        targets: Vec::new(),
    };
    client.pool_create(request).await?;
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await?;
    pool.cont_create("c", Uuid::nil(), props, BTreeMap::new()).await?;
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await
}
