//! `azekura system recover`: the catalog is lost, and is made anew from the copies that engines keep.

use super::catalog::{hand_over_files, open, place};
use crate::exit::Outcome;
use crate::session::{Session, absolute};
use client::{Client, ConnectOptions, SystemAddress};
use control::{CatalogCounts, CatalogImage, make_catalog};
use engine::{CatalogKind, EngineConfig, StoppedEngine};
use env::Env;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use transport::Address;
use types::{Code, Error, Result};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest, MemberState};
use wire::map::{EngineInfo, PoolMap};

/// How long an engine is asked for its pool maps.
const ASK_TIME_MAX: Duration = Duration::from_secs(5);

/// Make a lost catalog anew from copies that engines keep
///
/// Give the directories of engines, or where their files catalog-copy.0 and .1 were copied to; the newest is taken. Let the other
/// engines run: they are asked for newer pool maps. The engine of --config must be stopped; its targets tell which engine it
/// was, or --rank does.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  scp host2:/var/lib/azekura/engine0/catalog-copy.* /tmp/copy/
  azekura system recover --config /etc/azekura/engine.toml --from /tmp/copy
  azekura system recover --config engine.toml --from copy1 --from copy2 --rank 0")]
pub struct RecoverArgs {
    /// Configuration of the engine that is to hold the catalog; if [catalog] names an etcd, it goes there
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A directory with a copy; may be repeated
    #[arg(long, value_name = "DIR", required = true)]
    from: Vec<PathBuf>,
    /// Which engine this one is, if neither its directory nor its targets tell
    #[arg(long)]
    rank: Option<u32>,
    /// Go on although engines do not answer: what went wrong just before the loss may be unknown then
    #[arg(long)]
    force: bool,
}

#[derive(Serialize)]
struct Report {
    /// The copy that was taken.
    from: String,
    to: String,
    #[serde(flatten)]
    counts: CatalogCounts,
    /// Rank of this engine; missing when it is a further one.
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    /// What is missing or doubtful.
    notes: Vec<String>,
}

/// Runs the command.
pub fn run(session: &Session, args: &RecoverArgs) -> Outcome {
    let config = EngineConfig::read(&args.config)?;
    let config = EngineConfig { dir: absolute(&config.dir)?, ..config };
    if !config.join.is_empty() {
        let text = "this engine joins others: remove 'join' from its configuration if it is to hold the catalog";
        return Err(Error::inval(text).into());
    }
    let mut engine = StoppedEngine::hold(&config)?;
    let mut names = Vec::new();
    let mut images = Vec::new();
    for dir in &args.from {
        let image = CatalogImage::read(&absolute(dir)?.join("catalog-copy"))?.ok_or_else(|| {
            let text = format!("there is no catalog-copy.0 or .1 in {}", dir.display());
            Error::new(Code::NonExist, text)
        })?;
        names.push(dir.display().to_string());
        images.push(image);
    }
    let best = control::newest(&images)?;
    let (name, image) = (names.remove(best), images.remove(best));
    let others: Vec<(String, CatalogImage)> = names.into_iter().zip(images).collect();
    let known = image.engines()?;
    let own = who(&config, engine.uuid(), &known, args.rank)?;
    let env = Env::real()?;
    let mut notes = Vec::new();
    let mut maps = Vec::new();
    let pools: Vec<_> = image.pools()?.iter().map(|pool| pool.id).collect();
    for (_, other) in known.iter().filter(|(uuid, _)| Some(*uuid) != own) {
        match ask(&config, &other.info(), &pools) {
            Ok(found) => maps.extend(found),
            // Its targets are out, or were: what they know is older than what others do.
            Err(error) if other.member.state == MemberState::Excluded => notes.push(format!(
                "engine {}, which is excluded, gave no answer ({error})",
                other.rank
            )),
            Err(error) if args.force => notes.push(format!(
                "engine {} gave no answer ({error}): what became of targets just before the loss it may know alone",
                other.rank
            )),
            Err(error) => {
                let text = format!(
                    "engine {} is to say what became of targets just before the loss: see that it can be reached if it runs; if it does not (without \
                     a catalog it does not start), go on with --force",
                    other.rank
                );
                return Err(error.context(text).into());
            }
        }
    }
    let made = control::recover(&image, &others, &maps)?;
    notes.extend(made.notes);
    notes.push(
        "what was made or changed within some seconds before the loss may be missing, and times of last use are".into(),
    );
    if let Some(uuid) = own {
        engine.become_engine(uuid)?;
    }
    let counts = env.block_on(async {
        let writer = own.unwrap_or_else(Uuid::new_v4);
        let opened = open(&config, &config.catalog, writer, &env).await?;
        let to = place(&config, &config.catalog, &*opened);
        Ok::<_, Error>((make_catalog(&to, &made.entries, &name).await?, to.name))
    });
    env.clear();
    let handed = match config.catalog.kind {
        CatalogKind::Embedded => hand_over_files(&config.dir),
        CatalogKind::Etcd => Ok(()),
    };
    let (counts, to) = counts?;
    handed?;
    let rank = known.iter().find(|(uuid, _)| Some(*uuid) == own).map(|(_, engine)| engine.rank.0);
    let report = Report { from: name, to, counts, rank, notes };
    let quiet = session.out.quiet;
    session.out.show(&report, |out| {
        if quiet {
            return Ok(());
        }
        let CatalogCounts { system, engines, pools, containers, .. } = &report.counts;
        writeln!(
            out,
            "The catalog of system {system} is made anew in {} from the copy in {}: {engines} engines, {pools} pools, \
             {containers} containers.",
            report.to, report.from
        )?;
        match report.rank {
            Some(rank) => writeln!(out, "This is engine {rank}; start it.")?,
            None => writeln!(out, "This is a further engine; start it.")?,
        }
        report.notes.iter().try_for_each(|note| writeln!(out, "Note: {note}."))
    })
}

/// Which engine the configuration is of; `None`: a further one.
fn who(
    config: &EngineConfig,
    kept: Option<Uuid>,
    known: &[(Uuid, control::EngineDf)],
    rank: Option<u32>,
) -> Result<Option<Uuid>> {
    let is_known = |uuid: &Uuid| known.iter().any(|(of, _)| of == uuid);
    let by_rank = match rank {
        Some(rank) => {
            let found = known.iter().find(|(_, engine)| engine.rank.0 == rank);
            let missing = || Error::new(Code::NonExist, format!("the copy knows no engine {rank}"));
            Some(found.ok_or_else(missing)?.0)
        }
        None => None,
    };
    let by_targets = owner(config)?.filter(is_known);
    let found = kept.filter(is_known).or(by_targets).or(by_rank);
    if let (Some(found), Some(by_rank)) = (found, by_rank)
        && found != by_rank
    {
        let at =
            known.iter().find(|(uuid, _)| *uuid == found).map_or(0, |(_, engine)| engine.rank.0);
        return Err(Error::inval(format!("this is engine {at} by its directory or its targets")));
    }
    if let Some((_, engine)) = known.iter().find(|(uuid, _)| Some(*uuid) == found)
        // Further ones may have come after the copy was made: they get other numbers.
        && engine.targets.len() > config.targets.len()
    {
        return Err(Error::inval(format!(
            "engine {} has {} targets, the configuration has {}",
            engine.rank,
            engine.targets.len(),
            config.targets.len()
        )));
    }
    Ok(found)
}

/// Whose the configured targets are; `None`: nobody's yet. A target that is damaged does not tell.
fn owner(config: &EngineConfig) -> Result<Option<Uuid>> {
    let env = Env::real()?;
    let mut owners = Vec::new();
    env.block_on(async {
        for number in 0..config.targets.len() {
            let opened = vos::offline::Offline::open(&env, &config.devices(number), false).await;
            match opened {
                Ok(target) => owners.extend(target.engine().map(Uuid::from_bytes)),
                Err(error) if error.code == Code::Busy => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    })?;
    env.clear();
    owners.sort_unstable();
    owners.dedup();
    match owners[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => Err(Error::inval("the configured targets are of different engines")),
    }
}

/// The pool maps that an engine has.
fn ask(
    config: &EngineConfig,
    engine: &EngineInfo,
    pools: &[types::PoolId],
) -> Result<Vec<PoolMap>> {
    let mut engines = vec![Address::Tcp(engine.tcp.clone())];
    if super::process::directory_here(engine).is_some() && Path::new(&engine.unix).exists() {
        engines.insert(0, Address::Unix(engine.unix.clone().into()));
    }
    let mut options = ConnectOptions::new(SystemAddress { engines, token: config.token()? });
    options.timeout = ASK_TIME_MAX;
    let client = Client::connect(options)?;
    let mut maps = Vec::new();
    for pool in pools {
        match client.block_on(client.control(&ControlRequest::PoolMap(*pool))) {
            Ok(ControlReply::Map(map)) => maps.push(map),
            // Its copy is older, or newer, than the pool.
            Err(error) if error.code == Code::NonExist => {}
            Ok(_) => return Err(Error::new(Code::Proto, "not a pool map")),
            Err(error) => return Err(error),
        }
    }
    Ok(maps)
}
