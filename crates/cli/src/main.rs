//! The `azekura` command: parses the arguments, dispatches to one module per noun, turns
//! failures into messages and exit codes.
//!
//! It holds no logic of its own: what commands do is in the crates below, how they print is in
//! [`output`], what they return to the shell in [`exit`].

mod bench;
mod completion;
mod config;
mod cont;
mod damaged;
mod doctor;
mod engine;
mod engine_settings;
mod exit;
mod fs;
mod help;
mod ioc;
mod job;
mod measures;
mod metrics;
mod mount;
mod names;
mod output;
mod pool;
mod props;
mod scrub;
mod session;
mod snapshot;
mod support;
mod system;
mod tier;
mod top;
mod url;
mod version;
mod vos;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use names::shape::Shape;
use output::{ErrorReport, Output};
use session::Session;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use types::Error;

const AFTER_HELP: &str = "\
The system is the one --system names, else the one of the environment variable AZEKURA_SYSTEM,
else the default directory of 'azekura up' ($XDG_STATE_HOME/azekura/default).
Forms: a directory, tcp://HOST:PORT, unix:/PATH/TO/SOCKET.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 exists already, 5 no space,
6 no answer, 7 in use or not empty, 8 not permitted.

Examples:
  azekura up
  azekura pool create tank --size 4GiB
  azekura cont create tank home
  azekura fs cp -r ~/data azk://tank/home/
  azekura fs ls -l azk://tank/home/data
  azekura down";

/// Azekura: a parallel file system and object store.
#[derive(Parser, Debug)]
#[command(name = "azekura", version, after_help = AFTER_HELP, max_term_width = 100,
          disable_help_subcommand = true)]
struct Cli {
    /// The system: a directory, tcp://HOST:PORT or unix:/PATH
    #[arg(long, visible_alias = "dir", global = true, value_name = "SYSTEM")]
    system: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// No progress bars, no closing remarks
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Seconds one operation may take, retries included, or 'hard': until the engines answer
    /// [default: AZEKURA_PATIENCE, or 60]
    #[arg(long, global = true, value_name = "SECONDS|hard")]
    timeout: Option<client::Patience>,
    /// Whose JSON it is; for the names of `names`
    #[arg(long, global = true, hide = true, default_value = "own",
        value_parser = |name: &str| <Shape as clap::ValueEnum>::from_str(name, false))]
    answer_as: Shape,
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand, Debug)]
enum Noun {
    Up(system::up::UpArgs),
    Down(system::down::DownArgs),
    Status(system::status::StatusArgs),
    System(system::members::SystemArgs),
    /// The same as `system support`
    #[command(hide = true)]
    Support(support::SupportArgs),
    Engine(engine::EngineArgs),
    Metrics(metrics::MetricsArgs),
    Top(top::TopArgs),
    Job(job::JobArgs),
    Config(config::ConfigArgs),
    Pool(pool::PoolArgs),
    #[command(visible_alias = "container")]
    Cont(cont::ContArgs),
    Fs(fs::FsArgs),
    Tier(tier::TierArgs),
    Ioc(ioc::IocArgs),
    Mount(mount::MountArgs),
    Umount(mount::UmountArgs),
    Bench(bench::BenchArgs),
    Vos(vos::VosArgs),
    Doctor(doctor::DoctorArgs),
    Completion(completion::CompletionArgs),
    Version(version::VersionArgs),
    Help(help::HelpArgs),
}

impl Noun {
    /// It runs until it is told to stop, and logs.
    fn is_server(&self) -> bool {
        match self {
            Noun::Engine(_) => true,
            Noun::Ioc(args) => args.is_server(),
            Noun::Mount(args) => args.is_server(),
            Noun::Tier(args) => args.is_server(),
            _ => false,
        }
    }

    /// Whoever started it waits on its standard output for a report.
    fn is_reporting(&self) -> bool {
        match self {
            Noun::Mount(args) => args.is_reporting(),
            Noun::Tier(args) => args.is_reporting(),
            _ => false,
        }
    }
}

/// How long one operation may take when nobody says anything.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    allocator::set_up();
    // A benchmark's workers are this program again; their streams and arguments are not ours.
    if ::bench::is_worker() {
        return ::bench::worker_main();
    }
    let cli = match names::arguments().and_then(Cli::try_parse_from) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(refuse(&error)),
    };
    start_log(cli.noun.is_server());
    let reporting = cli.noun.is_reporting();
    // What a mount reports to the one who started it is between the two.
    let shape = if reporting { Shape::Own } else { cli.answer_as };
    let patience = cli.timeout.or_else(client::Patience::from_env);
    let patience = patience.unwrap_or(client::Patience::Soft(TIMEOUT_DEFAULT));
    let session = Session {
        out: Output { json: cli.json || reporting, quiet: cli.quiet, shape },
        system: cli.system,
        timeout: patience.limit(),
        timeout_said: cli.timeout.map(client::Patience::limit),
        snapshot: None,
    };
    let outcome = match &cli.noun {
        Noun::Up(args) => system::up::run(&session, args),
        Noun::Down(args) => system::down::run(&session, args),
        Noun::Status(args) => system::status::run(&session, args),
        Noun::System(args) => system::members::run(&session, args),
        Noun::Support(args) => support::run(&session, args),
        Noun::Engine(args) => engine::run(&session, args),
        Noun::Metrics(args) => metrics::run(&session, args),
        Noun::Top(args) => top::run(&session, args),
        Noun::Job(args) => job::run(&session, args),
        Noun::Config(args) => config::run(&session, args),
        Noun::Pool(args) => pool::run(&session, args),
        Noun::Cont(args) => cont::run(&session, args),
        Noun::Fs(args) => fs::run(&session, args),
        Noun::Tier(args) => tier::run(&session, args),
        Noun::Ioc(args) => ioc::run(&session, args),
        Noun::Mount(args) => mount::run(&session, args),
        Noun::Umount(args) => mount::unmount(&session, args),
        Noun::Bench(args) => bench::run(&session, args),
        Noun::Vos(args) => vos::run(&session, args),
        Noun::Doctor(args) => doctor::run(&session, args),
        Noun::Completion(args) => completion::run::<Cli>(args),
        Noun::Version(args) => version::run(&session, args),
        Noun::Help(args) => help::run::<Cli>(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(session.out.fail(&failure)),
    }
}

/// Help, version, or what is wrong with the arguments; returns the exit code.
fn refuse(error: &clap::Error) -> u8 {
    let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let wants_json = std::env::args_os().any(|arg| arg == "--json");
    if asked_for || !wants_json {
        // A closed stream is no reason to say more.
        let _ = error.print();
    } else {
        let text = error.render().to_string();
        let text = text.trim().strip_prefix("error: ").unwrap_or(text.trim());
        let report = ErrorReport::of(&Error::inval(text));
        let _ = Output { json: true, quiet: true, shape: Shape::Own }.show(&report, |_| Ok(()));
    }
    if asked_for { 0 } else { exit::USAGE }
}

/// Events go to standard error: of a server from `info` on, else warnings only.
fn start_log(is_server: bool) {
    let default = if is_server { "info" } else { "warn" };
    let filter = EnvFilter::try_from_env("AZEKURA_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Complaints about a standard error that nobody reads any more would go there too, and
        // end the thread that wanted to log.
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_argument_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    /// The names of all commands below one that show no example.
    fn without_example(command: &clap::Command, path: &str) -> Vec<String> {
        let below = command.get_subcommands();
        let below: Vec<String> = below
            .flat_map(|sub| without_example(sub, &format!("{path} {}", sub.get_name())))
            .collect();
        let help = command.clone().render_long_help().to_string();
        match command.has_subcommands() || help.contains("Example") {
            true => below,
            false => vec![path.to_string()],
        }
    }

    #[test]
    fn each_command_shows_an_example() {
        assert_eq!(without_example(&Cli::command(), "azekura"), Vec::<String>::new());
    }
}
