//! Real engines in threads of the test process.

use client::{Client, ConnectOptions, Container, SystemAddress};
use engine::{CatalogConfig, Engine, EngineConfig, EngineHandle, StoreConfig, TargetConfig};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use transport::Address;
use types::{ContLayout, ContProps, Durability, Result};
use uuid::Uuid;
use wire::control::{ControlRequest, Name, OpenMode};

/// Engines on this machine, gone with the value.
pub struct LocalSystem {
    dir: TempDir,
    engines: Vec<Option<EngineHandle>>,
    target_count: usize,
}

impl LocalSystem {
    /// Starts `engine_count` engines with `target_count` targets each, in a new directory.
    pub fn start(engine_count: usize, target_count: usize) -> Result<LocalSystem> {
        let dir = tempfile::tempdir()
            .map_err(|error| types::Error::io("making a directory for a test system", error))?;
        let mut system = LocalSystem { dir, engines: Vec::new(), target_count };
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
        let config = EngineConfig {
            listen: "127.0.0.1:0".into(),
            advertise: None,
            join,
            domain: vec![format!("node{at}")],
            token_file: None,
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

    /// How to connect, over shared memory or TCP.
    pub fn options(&self, tcp_only: bool) -> ConnectOptions {
        let engines = self.engines.iter().flatten();
        let engines = engines
            .flat_map(|engine| {
                [Address::Unix(engine.unix.clone()), Address::Tcp(engine.tcp.to_string())]
            })
            .collect();
        let mut options = ConnectOptions::new(SystemAddress { engines, token: Vec::new() });
        options.tcp_only = tcp_only;
        options.timeout = Duration::from_secs(20);
        options
    }

    pub fn client(&self, tcp_only: bool) -> Result<Client> {
        Client::connect(self.options(tcp_only))
    }

    /// Makes a pool `p` of 1 GiB and a container `c` in it, and opens the container.
    pub fn container(
        &self,
        client: &Client,
        durability: Durability,
        layout: ContLayout,
    ) -> Result<Container> {
        client.block_on(make_container(client, durability, layout))
    }
}

/// Makes a pool `p` of 1 GiB and a container `c` in it, and opens the container.
pub(crate) async fn make_container(
    client: &Client,
    durability: Durability,
    layout: ContLayout,
) -> Result<Container> {
    let request = ControlRequest::PoolCreate {
        placement: types::PlacementRule::default(),
        label: "p".into(),
        bytes: 1 << 30,
        scm_percent: 20,
        durability,
        targets: Vec::new(),
    };
    client.pool_create(request).await?;
    let pool = client.pool_open(&Name::Label("p".into()), OpenMode::ReadWrite).await?;
    let props = ContProps { layout, ..ContProps::default() };
    pool.cont_create("c", Uuid::nil(), props, BTreeMap::new()).await?;
    pool.cont_open(&Name::Label("c".into()), OpenMode::ReadWrite).await
}
