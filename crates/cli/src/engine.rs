//! `azekura engine`: one engine in the foreground.
//!
//! Invariant: `TERM`, `INT` and `HUP` are blocked before any thread exists, so only the main thread
//! takes them, at a place of its choosing. The first `TERM` or `INT` drains and stops; a second one ends
//! the process at once. With `HUP` the configuration is read again.

use crate::engine_settings::{Settings, save};
use crate::exit::Outcome;
use crate::session::{Session, absolute};
use crate::system::process::PidFile;
use engine::{Begun, Engine, EngineConfig, EngineHandle};
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{Error, Result};

/// Pause between two looks for signals while an engine starts, ...
const START_LOOK_PAUSE: Duration = Duration::from_millis(100);
/// ... and between two looks whether it has ended.
const SIGNAL_LOOK_PAUSE: Duration = Duration::from_millis(500);

/// File in an engine's directory that says so.
pub const STOPS_WITH_ALL: &str = "stops-with-all";

/// Run one engine in the foreground.
///
/// Logs to standard error (filter: AZEKURA_LOG, as 'debug' or 'engine=trace,info'). TERM or INT
/// finish what is in progress and stop; a second one ends it at once. HUP has it read its configuration again and serve the targets that were
/// added ('azekura system reload').
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura engine --config /etc/azekura/engine.toml
  azekura engine --config engine.toml --check
  azekura engine --join tcp://host1:7710 --listen 10.0.0.4:7710 --engine-dir /var/lib/azekura/engine0 --device /mnt/disk1 \\
    --token-file token --admin-token-file admin-token")]
pub struct EngineArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", required_unless_present = "engine_dir")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// Only check the configuration
    #[arg(long)]
    check: bool,
    /// Only write what the settings say to a new configuration file
    #[arg(long, value_name = "FILE", requires = "engine_dir", conflicts_with = "check")]
    save: Option<PathBuf>,
}

/// Runs the command; returns when the engine has stopped.
pub fn run(session: &Session, args: &EngineArgs) -> Outcome {
    let (config, name) = match (&args.config, args.settings.config()?) {
        (_, Some(config)) => (config, "settings".to_string()),
        (Some(path), None) => (EngineConfig::read(path)?, path.display().to_string()),
        (None, None) => {
            return Err(Error::inval("neither --config nor --engine-dir is given").into());
        }
    };
    crate::config::check(&config)?;
    if args.check {
        return session.out.done(&format!("{name}: no mistakes found."));
    }
    if let Some(path) = &args.save {
        save(&config, path)?;
        return session.out.done(&format!("Written to {}.", path.display()));
    }
    let config = EngineConfig { dir: absolute(&config.dir)?, ..config };
    let signals = BlockedSignals::block_with(&[libc::SIGHUP])?;
    engine::rights::take_descriptors();
    // Of what is kept the engine's own threads tell.
    engine::rights::give_up(&config)?;
    let dir = config.dir.clone();
    // Of a stop that was cut off.
    stops_with_all(&dir);
    let Some(handle) = start(config, &signals)? else { return Ok(()) };
    let pid_file = PidFile::write(&dir)?;
    // Before the line that tells that all is there: whoever waits for that has read this.
    if let Some(address) = handle.metrics {
        tracing::info!("metrics at http://{address}/metrics");
    }
    tracing::info!("engine {} serves at {} and {}", handle.rank, handle.tcp, handle.unix.display());
    let signal = loop {
        match signals.wait_while(|| !handle.is_finished())? {
            None => {
                drop(pid_file);
                // It tells why, unless it was asked to.
                return Ok(handle.stop()?);
            }
            Some(libc::SIGHUP) => reread(args.config.as_deref(), &handle),
            Some(signal) => break signal,
        }
    };
    tracing::info!("signal {signal}: stopping");
    let second = std::thread::Builder::new().name("azk-signals".into()).spawn(move || {
        while let Ok(signal) = signals.wait() {
            if signal != libc::SIGHUP {
                tracing::warn!("signal {signal} again: ending at once");
                std::process::exit(1);
            }
        }
    });
    if let Err(error) = second {
        tracing::warn!("a second signal will not be seen: {error}");
    }
    let outcome = match stops_with_all(&dir) {
        true => handle.stop_with_all(),
        false => handle.stop(),
    };
    drop(pid_file);
    Ok(outcome?)
}

/// Starts an engine; `None` when a signal ends that. Nothing is to be finished then, and what it was about to do ends with the process.
fn start(config: EngineConfig, signals: &BlockedSignals) -> Result<Option<EngineHandle>> {
    let mut starting = Engine::begin(config)?;
    loop {
        starting = match starting.wait(START_LOOK_PAUSE) {
            Begun::Done(outcome) => return outcome.map(Some),
            Begun::Waits(starting) => starting,
        };
        match signals.pending()? {
            None => {}
            Some(libc::SIGHUP) => tracing::warn!("signal HUP: the engine does not serve yet"),
            Some(signal) => {
                tracing::info!("signal {signal}: stopping before the engine served");
                return Ok(None);
            }
        }
    }
}

/// Reads an engine's configuration again, and has it serve the targets that were added. With a mistake in it, it goes on as before.
fn reread(path: Option<&Path>, handle: &EngineHandle) {
    let Some(path) = path else {
        tracing::warn!("signal HUP: there is no configuration file to read again");
        return;
    };
    let read = || {
        let config = EngineConfig::read(path)?;
        crate::config::check(&config)?;
        Ok::<_, Error>(EngineConfig { dir: absolute(&config.dir)?, ..config })
    };
    match read() {
        Ok(config) => {
            tracing::info!("signal HUP: {} is read again", path.display());
            handle.grow(config);
        }
        Err(error) => tracing::error!("signal HUP: {error}; the engine goes on as it was"),
    }
}

/// True when whoever stops the engine stops all others, too (`down`). Takes the note of it away.
fn stops_with_all(dir: &Path) -> bool {
    std::fs::remove_file(dir.join(STOPS_WITH_ALL)).is_ok()
}

/// `TERM`, `INT` and others if wanted, blocked in every thread made afterwards.
#[derive(Clone, Copy)]
pub struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    /// Blocks `TERM` and `INT`; call before there are other threads.
    pub fn block() -> Result<BlockedSignals> {
        BlockedSignals::block_with(&[])
    }

    /// The same with further signals.
    pub fn block_with(more: &[i32]) -> Result<BlockedSignals> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set it is given; the other calls get that set.
        let (set, result) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            let mut set = set.assume_init();
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigaddset(&mut set, libc::SIGINT);
            for signal in more {
                libc::sigaddset(&mut set, *signal);
            }
            (set, libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()))
        };
        match result {
            0 => Ok(BlockedSignals(set)),
            error => Err(Error::io("blocking signals", std::io::Error::from_raw_os_error(error))),
        }
    }

    /// One that has come, if one has.
    pub fn pending(&self) -> Result<Option<i32>> {
        self.wait_for(Duration::ZERO)
    }

    /// Waits for one of them, so long at most; an interruption counts as the end of it.
    fn wait_for(&self, limit: Duration) -> Result<Option<i32>> {
        let limit = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: the set was initialised by `block`; no details are asked for.
        let signal = unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &limit) };
        if signal > 0 {
            return Ok(Some(signal));
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(None),
            _ => Err(Error::io("waiting for signals", error)),
        }
    }

    /// Waits for one of them as long as `going_on` says so; returns its number. Looks twice a
    /// second.
    pub fn wait_while(&self, going_on: impl Fn() -> bool) -> Result<Option<i32>> {
        while going_on() {
            if let Some(signal) = self.wait_for(SIGNAL_LOOK_PAUSE)? {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }

    /// Waits for one of them; returns its number.
    pub fn wait(&self) -> Result<i32> {
        let mut signal = 0;
        // SAFETY: the set was initialised by `block`, `signal` is ours.
        match unsafe { libc::sigwait(&self.0, &mut signal) } {
            0 => Ok(signal),
            error => {
                Err(Error::io("waiting for signals", std::io::Error::from_raw_os_error(error)))
            }
        }
    }
}
