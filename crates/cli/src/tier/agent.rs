//! `azekura tier agent`: reaches tiers for others, and moves files as policies say.

use super::figures::Figures;
use super::{attached, of_cont};
use crate::engine::BlockedSignals;
use crate::exit::Outcome;
use crate::props;
use crate::session::{Session, absolute};
use crate::url::Url;
use clap::Args;
use coordinate::rules::settings::parse_duration;
use dfs::tier::agent::SyncAsk;
use dfs::tier::{TierNotice, TierSource};
use dfs::{Credentials, Dfs, MountFlags};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tier::{Agent, Caller, Moved, Mover, Syncs, keep_moving};
use types::{Code, Error, Result, size};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest, Name, OpenMode, Subject};

/// Pause before containers are looked for again.
const SEARCH_PAUSE: Duration = Duration::from_secs(10);

/// Read tiers for programs of this machine that cannot
///
/// Programs with the preloaded library or the C library know no object stores. What they read and is in a tier only comes through an
/// agent, which has the credentials: one for each machine, in the foreground until TERM or INT.
///
/// With --move it also applies the policies of all containers that have a tier ('azekura fs tier policy'), as often as --every says and
/// at once when a pool fills: one agent of the system suffices for that.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura tier agent
  azekura tier agent --move --every 5m
  azekura tier agent --socket $XDG_RUNTIME_DIR/tier.sock --mode 600   # programs: AZEKURA_TIER_AGENT=$XDG_RUNTIME_DIR/tier.sock")]
pub struct AgentArgs {
    /// Where programs find it; another place than the default is named to them by AZEKURA_TIER_AGENT
    #[arg(long, value_name = "PATH", default_value = dfs::tier::agent::SOCKET_DEFAULT)]
    socket: PathBuf,
    /// Who may use it, as an octal mode: 666 is every user of the machine
    #[arg(long, value_parser = octal, default_value = "666")]
    mode: u32,
    /// Apply policies
    #[arg(long = "move")]
    moves: bool,
    /// How often, with --move
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration, requires = "moves")]
    every: Duration,
    /// Tell Prometheus, at /metrics of this address of the machine itself, what was moved and is dirty
    #[arg(long, value_name = "ADDRESS:PORT", requires = "moves", value_parser = own_address)]
    metrics: Option<SocketAddr>,
}

/// An address that only this machine reaches.
fn own_address(text: &str) -> std::result::Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "not like 127.0.0.1:7712".to_string())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err("figures are told to this machine only".into()),
    }
}

/// Read and write bits in octal.
fn octal(text: &str) -> std::result::Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("not an octal mode such as 660".into()),
    }
}

pub fn run(session: &Session, args: &AgentArgs) -> Outcome {
    let signals = BlockedSignals::block()?;
    let socket = absolute(&args.socket)?;
    let agent = Arc::new(Agent::bind(&socket, args.mode)?);
    session.out.done(&format!("Tiers are read at {}.", socket.display()))?;
    let serving = agent.clone();
    let source: Arc<dyn TierSource> = Arc::new(super::source(session));
    let syncing = session.clone();
    let syncs: Syncs = Arc::new(move |ask, caller| sync_for(&syncing, ask, caller));
    let server = std::thread::Builder::new()
        .name("azk-agent".into())
        .spawn(move || serving.serve(&source, &syncs))
        .map_err(|error| Error::io("starting a thread", error))?;
    let figures = Figures::default();
    let door = args.metrics.map(|address| figures.serve(address)).transpose()?;
    if args.moves {
        let (session, every) = (session.clone(), args.every);
        std::thread::Builder::new()
            .name("azk-movers".into())
            .spawn(move || move_all(&session, every, &figures))
            .map_err(|error| Error::io("starting a thread", error))?;
    }
    let Some(signal) = signals.wait_while(|| !server.is_finished())? else {
        agent.hide();
        // It ends by failing only.
        return match server.join() {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(Error::new(Code::Io, "the agent's thread panicked").into()),
        };
    };
    tracing::info!("signal {signal}: stopping");
    agent.hide();
    drop(door);
    Ok(())
}

/// Has the tier take a file for a caller, with the rights of that caller: who may not write the file may not have it synced.
fn sync_for(session: &Session, ask: &SyncAsk, caller: Caller) -> Result<()> {
    let (pool, cont) = (Uuid::from_bytes(ask.pool), Uuid::from_bytes(ask.cont));
    let (pool, cont) = (Name::Uuid(pool), Name::Uuid(cont));
    let (tier, _, store) = of_cont(session, &pool, &cont)?;
    let cont = session.open_cont(&pool, &cont, OpenMode::ReadWrite)?;
    let who = Credentials { uid: caller.uid, gid: caller.gid, groups: Vec::new(), umask: 0 };
    let client = cont.client().clone();
    client.block_on(async {
        let fs = Dfs::mount(&cont, MountFlags::NONE, who).await?;
        let file = ask.file(&fs).await?;
        tier::sync_file(&fs, &file, &store, &tier, &|_| {}).await.map(|_| ())
    })
}

/// A container by the UUIDs of its pool and itself.
type Which = (Uuid, Uuid);

/// Has a thread move the files of each container with a tier; for ever.
fn move_all(session: &Session, every: Duration, figures: &Figures) {
    let mut movers: HashMap<Which, JoinHandle<()>> = HashMap::new();
    loop {
        match with_tiers(session) {
            Ok(found) => {
                movers.retain(|_, mover| !mover.is_finished());
                for which in found {
                    if movers.contains_key(&which) {
                        continue;
                    }
                    let (session, figures) = (session.clone(), figures.clone());
                    let started =
                        std::thread::Builder::new().name("azk-mover".into()).spawn(move || {
                            if let Err(error) = move_one(&session, which, every, &figures) {
                                tracing::warn!("policies of a container: {error}");
                            }
                        });
                    match started {
                        Ok(mover) => drop(movers.insert(which, mover)),
                        Err(error) => {
                            tracing::warn!("no thread for a container's policies: {error}")
                        }
                    }
                }
            }
            Err(error) => tracing::warn!("looking for containers with tiers: {error}"),
        }
        std::thread::sleep(SEARCH_PAUSE.min(every));
    }
}

/// All containers that have a tier.
fn with_tiers(session: &Session) -> Result<Vec<Which>> {
    let client = session.connect()?;
    let mut found = Vec::new();
    for pool in client.block_on(client.pool_list())? {
        let name = Name::Uuid(pool.uuid);
        let reply = props::run(session, ControlRequest::ContList(name.clone()))?;
        let ControlReply::Conts(conts) = reply else { return Err(props::wrong_reply()) };
        for cont in conts {
            let subject = Subject::Cont(name.clone(), Name::Uuid(cont.uuid));
            let reply = props::run(session, ControlRequest::GetAttrs { subject })?;
            let ControlReply::Attrs(mut attrs) = reply else { return Err(props::wrong_reply()) };
            if attached(&mut attrs).is_some() {
                found.push((pool.uuid, cont.uuid));
            }
        }
    }
    Ok(found)
}

/// Moves the files of one container until that fails.
fn move_one(
    session: &Session,
    (pool, cont): Which,
    every: Duration,
    figures: &Figures,
) -> Result<()> {
    let url = Url { pool: Name::Uuid(pool), cont: Name::Uuid(cont), path: b"/".to_vec() };
    let (tier, _, store) = of_cont(session, &url.pool, &url.cont)?;
    let mount = session.mount(&url, OpenMode::ReadWrite)?;
    let fs = &mount.dfs;
    mount.client.block_on(async {
        let known = fs.tier_notice().await?;
        let has_posix = known.as_ref().is_some_and(|notice| notice.has_posix);
        let notice = TierNotice { tier: tier.clone(), has_posix };
        if known.as_ref() != Some(&notice) {
            fs.set_tier_notice(&notice).await?;
        }
        let mover = Mover::new(fs, &store, &tier);
        keep_moving(mover, fs, every, &mut |moved| {
            figures.add(&mount.dfs, moved);
            tell(&mount.dfs, moved);
        })
        .await
    })
}

fn tell(fs: &dfs::Dfs, moved: Moved) {
    let Moved { copied_files, copied_bytes, evicted_files, evicted_bytes, .. } = moved;
    if copied_files + evicted_files + moved.failed_files > 0 {
        tracing::info!(
            "container '{}': {copied_files} files copied ({}), {evicted_files} evicted ({}), {} failed",
            fs.container().info().label,
            size::format(copied_bytes),
            size::format(evicted_bytes),
            moved.failed_files
        );
    }
}
