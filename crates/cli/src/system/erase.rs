//! `azekura system erase`: an engine that does not run is taken off this machine, with what its targets hold.

use crate::exit::Outcome;
use crate::session::{Session, absolute};
use client::{Client, ConnectOptions, SystemAddress};
use control::{CatalogImage, Standing};
use engine::{EngineConfig, StoppedEngine};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use transport::Address;
use types::{Code, Error, Result, TargetId};
use vos::erase::ErasedDevice;
use wire::control::PoolInfo;
use wire::map::PoolMap;

/// How long the rest of the system is asked what it knows of the engine.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);

/// Remove a stopped engine from its directory and its targets from their devices
///
/// Refused while the engine runs, while pools have parts on its targets, while it holds the catalog of a system with pools or
/// other engines, and for devices that are not its own. What is removed is gone; blocks are not written over.
/// Configuration and logs stay.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura system erase --config /etc/azekura/engine.toml
  azekura system erase --config /etc/azekura/engine.toml --force")]
pub struct EraseArgs {
    /// The engine's configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Erase although the system knows its targets, or does not answer, or they are another engine's or damaged; the engine must
    /// not run all the same
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Report {
    /// The identity that is gone; missing when there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<String>,
    /// Rank under which the system goes on listing it; missing when it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    devices: Vec<ErasedDevice>,
}

/// Runs the command.
pub fn run(session: &Session, args: &EraseArgs) -> Outcome {
    let config = EngineConfig::read(&args.config)?;
    let config = EngineConfig { dir: absolute(&config.dir)?, ..config };
    let engine = StoppedEngine::hold(&config)?;
    let uuid = engine.uuid();
    let known = known(&config, uuid);
    let rank = match (&known, args.force) {
        (Ok(rank), _) => *rank,
        (Err(_), true) => None,
        (Err(error), false) => return Err(error.clone().into()),
    };
    let report = Report {
        engine: uuid.map(|uuid| uuid.to_string()),
        rank,
        devices: engine.erase(args.force)?,
    };
    let quiet = session.out.quiet;
    session.out.show(&report, |out| {
        if quiet {
            return Ok(());
        }
        for device in &report.devices {
            let pools = match &device.pools[..] {
                [] => String::new(),
                [one] => format!(", with a part of pool number {one}"),
                all => format!(", with parts of {} pools", all.len()),
            };
            match device.was_empty {
                true => writeln!(out, "{} held nothing.", device.device)?,
                false => writeln!(out, "{} is erased{pools}.", device.device)?,
            }
        }
        match &report.engine {
            None => writeln!(out, "There was no engine in {}.", config.dir.display())?,
            Some(uuid) => writeln!(out, "Engine {uuid} is erased from {}.", config.dir.display())?,
        }
        match report.rank {
            Some(rank) => writeln!(out, "The system goes on listing it as engine {rank}."),
            None => Ok(()),
        }
    })
}

/// The rank under which a system knows the engine; fails when it must not be erased.
fn known(config: &EngineConfig, uuid: Option<uuid::Uuid>) -> Result<Option<u32>> {
    let Some(uuid) = uuid else { return Ok(None) };
    let unsure = |error: Error| {
        error.context(
            "what the system knows of the engine cannot be told (--force erases all the same)",
        )
    };
    let refuse = |why: String| {
        let text =
            format!("the system still knows this engine: {why}; --force erases all the same");
        Err(Error::new(Code::Busy, text))
    };
    let own = CatalogImage::read(&config.dir.join("catalog")).map_err(unsure)?;
    if let Some(own) = own.filter(CatalogImage::is_open) {
        let engines = own.engines().map_err(unsure)?;
        let pools: Vec<String> =
            own.pools().map_err(unsure)?.iter().map(|pool| pool.name()).collect();
        let others = engines.iter().filter(|(of, _)| *of != uuid).count();
        if !pools.is_empty() {
            return refuse(format!("it holds the catalog, with the pools {}", pools.join(", ")));
        }
        if others > 0 {
            return refuse(format!("it holds the catalog that {others} other engines need"));
        }
        return Ok(None);
    }
    let Some(copy) = CatalogImage::read(&config.dir.join("catalog-copy")).map_err(unsure)? else {
        return Ok(None);
    };
    let Some(standing) = copy.standing(uuid).map_err(unsure)? else { return Ok(None) };
    let (pools, is_fresh) = match ask(config, &standing) {
        Ok(pools) => (pools, true),
        Err(_) => (standing.pools.clone(), false),
    };
    if !pools.is_empty() {
        let when =
            if is_fresh { "" } else { " (as far as is known here: no other engine answers)" };
        return refuse(format!("pools have parts on its targets: {}{when}", pools.join(", ")));
    }
    if !is_fresh && !standing.others.is_empty() {
        return refuse(
            "no other engine answers whether pools have parts on its targets by now".into(),
        );
    }
    Ok(Some(standing.rank.0))
}

/// Labels of the pools that have parts on the engine's targets, from another engine.
fn ask(config: &EngineConfig, standing: &Standing) -> Result<Vec<String>> {
    let others = standing.others.iter().map(|other| Address::Tcp(other.tcp.clone()));
    let system = SystemAddress { engines: others.collect(), token: config.token()? };
    let mut options = ConnectOptions::new(system);
    options.timeout = ASK_TIME_MAX;
    let client = Client::connect(options)?;
    let pools = client.block_on(client.pool_list())?;
    let is_here =
        |pool: &&PoolInfo| standing.targets.iter().any(|target| is_on(*target, &pool.map));
    Ok(pools.iter().filter(is_here).map(|pool| pool.label.clone()).collect())
}

/// True when a pool has, or may have, something on a target. What was drained has given all to others, for good.
fn is_on(target: TargetId, map: &PoolMap) -> bool {
    map.target(target).is_some() && !placement::has_given_all(target, map)
}
