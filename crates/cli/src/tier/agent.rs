//! `azekura tier agent`: reaches tiers for others, and moves files as policies say.

use super::describe::{Intervals, keep_described};
use super::figures::Figures;
use super::{name_of_cont, of_cont};
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tier::{Agent, Caller, Moved, Mover, Syncs, keep_moving};
use types::{Code, Error, Result, size};
use uuid::Uuid;
use wire::control::{ControlReply, ControlRequest, Name, OpenMode};

/// Pause before containers are looked for again.
const SEARCH_PAUSE: Duration = Duration::from_secs(10);

/// Read tiers for programs of this machine that cannot
///
/// Programs with the preloaded library or the C library know no object stores. What they read and is in a tier only comes through an
/// agent, which has the credentials: one for each machine, in the foreground until TERM or INT.
///
/// With --move it also applies the policies of all containers that have a tier ('azekura fs tier policy'), as often as --every says and
/// at once when a pool fills, and describes these containers in their tiers, so that the tier alone restores them: one agent of the system suffices
/// for that.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura tier agent
  azekura tier agent --move --every 5m
  azekura tier agent --move --describe-every 10m --snapshot-every 1d --snapshot-keep 30
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
    /// With --move: describe each container in its tier so often, if it has changed
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration, requires = "moves")]
    describe_every: Duration,
    /// Descriptions of a container that stay when it is described, the newest
    #[arg(long, value_name = "COUNT", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..), requires = "moves")]
    describe_keep: u32,
    /// With --move: make a snapshot of each container in its tier so often
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "moves")]
    snapshot_every: Option<Duration>,
    /// Snapshots of all of a container that stay, the newest
    #[arg(long, value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..), requires = "snapshot_every")]
    snapshot_keep: u32,
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
    // Its own mounts read by it, too: a file of which only some is back is sent with the rest of its parts.
    let source: Arc<dyn TierSource> = Arc::new(super::install_source(session).for_others());
    let syncing = session.clone();
    let syncs: Syncs = Arc::new(move |ask, caller| sync_for(&syncing, ask, caller));
    let server = std::thread::Builder::new()
        .name("azk-agent".into())
        .spawn(move || serving.serve(&source, &syncs))
        .map_err(|error| Error::io("starting a thread", error))?;
    let figures = Figures::default();
    let door = args.metrics.map(|address| figures.serve(address)).transpose()?;
    if args.moves {
        let (of_moves, every) = (session.clone(), args.every);
        keep_for_all(session, "azk-mover", SEARCH_PAUSE.min(every), move |which, is_over| {
            move_one(&of_moves, which, every, is_over, &figures)
        })?;
        let intervals = Intervals {
            describe: args.describe_every,
            describe_keep: args.describe_keep,
            snapshot: args.snapshot_every,
            snapshot_keep: args.snapshot_keep,
        };
        let of_words = session.clone();
        keep_for_all(session, "azk-describer", SEARCH_PAUSE.min(every), move |which, is_over| {
            keep_described(&of_words, &url_of(which), intervals, is_over)
        })?;
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

/// A thread that does something for a container.
struct Keeper {
    /// The container's tier when it began.
    tier: String,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Has a thread do something for each container with a tier, for ever: those that fail begin again after a pause, and new containers are found
/// after that. Those of a container that has another tier since, or none, are told that they are over.
fn keep_for_all(
    session: &Session,
    name: &'static str,
    pause: Duration,
    work: impl Fn(Which, &AtomicBool) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let (session, work) = (session.clone(), Arc::new(work));
    let keep = move || {
        let mut threads: HashMap<Which, Keeper> = HashMap::new();
        loop {
            match with_tiers(&session) {
                Ok(found) => {
                    threads.retain(|_, keeper| !keeper.thread.is_finished());
                    let found: HashMap<Which, String> =
                        found.into_iter().map(|(which, _, tier)| (which, tier)).collect();
                    for (which, keeper) in &threads {
                        if found.get(which) != Some(&keeper.tier) {
                            keeper.is_over.store(true, Ordering::Relaxed);
                        }
                    }
                    for (which, tier) in found {
                        if threads.contains_key(&which) {
                            continue;
                        }
                        let (work, is_over) = (work.clone(), Arc::<AtomicBool>::default());
                        let told = is_over.clone();
                        let one = move || {
                            if let Err(error) = work(which, &told) {
                                tracing::warn!("{name} of container {}: {error}", which.1);
                            }
                        };
                        match std::thread::Builder::new().name(name.into()).spawn(one) {
                            Ok(thread) => {
                                threads.insert(which, Keeper { tier, is_over, thread });
                            }
                            Err(error) => tracing::warn!("no thread for a container: {error}"),
                        }
                    }
                }
                Err(error) => tracing::warn!("looking for containers with tiers: {error}"),
            }
            std::thread::sleep(pause);
        }
    };
    let started = std::thread::Builder::new().name(name.into()).spawn(keep);
    started.map(|_| ()).map_err(|error| Error::io("starting a thread", error))
}

fn url_of((pool, cont): Which) -> Url {
    Url { pool: Name::Uuid(pool), cont: Name::Uuid(cont), path: b"/".to_vec() }
}

/// All containers that have a tier, each with its URL for people and the tier's name.
pub(super) fn with_tiers(session: &Session) -> Result<Vec<(Which, String, String)>> {
    let client = session.connect()?;
    let mut found = Vec::new();
    for pool in client.block_on(client.pool_list())? {
        let name = Name::Uuid(pool.uuid);
        let reply = props::run(session, ControlRequest::ContList(name.clone()))?;
        let ControlReply::Conts(conts) = reply else { return Err(props::wrong_reply()) };
        for cont in conts {
            if let Some(tier) = name_of_cont(session, &name, &cont)? {
                let named = |label: &str, uuid: Uuid| match label {
                    "" => uuid.to_string(),
                    label => label.to_string(),
                };
                let (of, at) = (named(&pool.label, pool.uuid), named(&cont.label, cont.uuid));
                found.push(((pool.uuid, cont.uuid), format!("azk://{of}/{at}"), tier));
            }
        }
    }
    Ok(found)
}

/// Moves the files of one container until that fails, or is over.
fn move_one(
    session: &Session,
    which: Which,
    every: Duration,
    is_over: &AtomicBool,
    figures: &Figures,
) -> Result<()> {
    let url = url_of(which);
    // Nobody waits for it, and on the same machine there may be who works.
    tier::give_way();
    let (tier, _, store) = of_cont(session, &url.pool, &url.cont)?;
    let store = store.patient();
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
        keep_moving(mover, fs, every, is_over, &mut |moved| {
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
