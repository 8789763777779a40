//! `azekura system support collect`: what somebody who helps needs to know, in one file without secrets.
//!
//! Commands are run as processes of their own, so that one that fails or hangs costs its own answer only.

mod secrets;
mod tar;

use crate::exit::Outcome;
use crate::output::utc;
use crate::session::Session;
use crate::system::dir::SystemDir;
use engine::EngineConfig;
use secrets::Secrets;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use types::{Code, Error, Result};

/// Files of the kernel that tell what the machine is and how it does.
const KERNEL: [&str; 15] = [
    "/etc/os-release",
    "/proc/version",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/mounts",
    "/proc/diskstats",
    "/proc/net/dev",
    "/proc/self/limits",
    "/proc/pressure/cpu",
    "/proc/pressure/io",
    "/proc/pressure/memory",
    "/proc/sys/fs/file-nr",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];
/// Bytes of a log that are looked at, from its end.
const LOG_BYTES_MAX: u64 = 8 << 20;
/// Seconds that each question to the system may take.
const ASK_TIME: &str = "10";

/// Collect what somebody who helps needs to know
#[derive(clap::Args, Debug)]
pub struct SupportArgs {
    #[command(subcommand)]
    verb: SupportVerb,
}

#[derive(clap::Subcommand, Debug)]
enum SupportVerb {
    /// Write an archive: configuration, state, figures, ends of logs, versions, facts of the machine
    ///
    /// Tokens and passwords are blanked. Names of pools and containers, addresses and paths are in it: look through it before it
    /// leaves your hands.
    #[command(
        visible_alias = "collect-log",
        after_help = "Examples:
  azekura system support collect
  azekura system support collect --config /etc/azekura/engine.toml --out /tmp/host1.tar"
    )]
    Collect(CollectArgs),
}

#[derive(clap::Args, Debug)]
struct CollectArgs {
    /// Configuration of an engine of this machine; may be repeated [default: those of the system's directory]
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// The archive, which must not be there yet [default: azekura-support-TIME.tar in the folder]
    #[arg(long, value_name = "FILE", conflicts_with = "folder")]
    out: Option<PathBuf>,
    /// Where the archive goes
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Last lines of each log
    #[arg(long, value_name = "LINES", default_value_t = 2000)]
    lines: usize,
}

#[derive(Serialize)]
struct Report {
    file: String,
    /// What is in it.
    collected: Vec<String>,
    /// What is not, and why.
    missing: Vec<String>,
}

/// What is collected so far.
struct Bundle {
    secrets: Secrets,
    files: Vec<(String, Vec<u8>)>,
    missing: Vec<String>,
}

impl Bundle {
    fn add(&mut self, name: impl Into<String>, text: &str) {
        self.files.push((name.into(), self.secrets.blank(text).into_bytes()));
    }

    fn miss(&mut self, name: &str, why: impl std::fmt::Display) {
        let line = self.secrets.blank(&format!("{name}: {why}"));
        self.missing.push(line.trim_end().to_string());
    }

    fn add_file(&mut self, name: String, path: &Path) {
        match std::fs::read(path) {
            Ok(content) => self.add(name, &String::from_utf8_lossy(&content)),
            Err(error) => self.miss(&name, format!("{}: {error}", path.display())),
        }
    }

    /// The last lines of a file.
    fn add_tail(&mut self, name: String, path: &Path, lines: usize) {
        match tail(path, lines) {
            Ok(text) => self.add(name, &text),
            Err(error) => self.miss(&name, format!("{}: {error}", path.display())),
        }
    }

    /// What a command prints; kept also when it fails, for then it says why.
    fn run(&mut self, name: &str, command: &mut Command) {
        match command.stdin(Stdio::null()).output() {
            Ok(output) => {
                let (out, err) = (&output.stdout, &output.stderr);
                let text = [String::from_utf8_lossy(out), String::from_utf8_lossy(err)].concat();
                if output.status.success() || !out.is_empty() {
                    self.add(name, &text);
                } else {
                    self.miss(name, text);
                }
            }
            Err(error) => self.miss(name, error),
        }
    }
}

fn tail(path: &Path, lines: usize) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(LOG_BYTES_MAX)))?;
    let mut content = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut content)?;
    let text = String::from_utf8_lossy(&content);
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    Ok(all[all.len().saturating_sub(lines)..].concat())
}

/// Runs the command.
pub fn run(session: &Session, args: &SupportArgs) -> Outcome {
    let SupportVerb::Collect(args) = &args.verb;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let stamp: String =
        utc(since_1970.as_nanos() as i64).chars().filter(char::is_ascii_alphanumeric).collect();
    let path = match &args.out {
        Some(path) => path.clone(),
        None => args.folder.join(format!("azekura-support-{stamp}.tar")),
    };
    let taken = || Error::new(Code::Exist, format!("{} is there already", path.display()));
    if path.exists() {
        return Err(taken().into());
    }
    let mut bundle = Bundle { secrets: Secrets::default(), files: Vec::new(), missing: Vec::new() };
    collect(session, args, &mut bundle)?;
    let told = [
        &["Collected:".to_string()],
        &names(&bundle)[..],
        &["".into(), "Missing:".into()],
        &bundle.missing,
    ]
    .concat();
    bundle.add("contents.txt", &(told.join("\n") + "\n"));
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => taken(),
        _ => Error::io(format!("writing {}", path.display()), error),
    };
    let mut options = File::options();
    let opened = options.write(true).create_new(true).mode(0o600).open(&path);
    let mut out = BufWriter::new(opened.map_err(failed)?);
    for (name, content) in &bundle.files {
        let name = format!("azekura-support/{name}");
        tar::add(&mut out, &name, since_1970.as_secs(), content).map_err(failed)?;
    }
    tar::end(&mut out).map_err(failed)?;
    let report = Report {
        file: path.display().to_string(),
        collected: names(&bundle),
        missing: bundle.missing,
    };
    let quiet = session.out.quiet;
    session.out.show(&report, |out| {
        if quiet {
            return Ok(());
        }
        for missing in &report.missing {
            writeln!(out, "Not in it: {missing}")?;
        }
        writeln!(
            out,
            "{} files are in {}, without tokens and passwords; look through it before you hand it on.",
            report.collected.len(),
            report.file
        )
    })
}

fn names(bundle: &Bundle) -> Vec<String> {
    bundle.files.iter().map(|(name, _)| name.clone()).collect()
}

fn collect(session: &Session, args: &CollectArgs, bundle: &mut Bundle) -> Result<()> {
    let local = session.system_dir().ok().map(SystemDir::at);
    let local = local.filter(|system| system.path.join("setup.toml").exists());
    let mut configs = args.config.clone();
    let mut logs = Vec::new();
    if let Some(system) = &local {
        let setup = system.require_setup()?;
        for index in 0..setup.engines {
            let dir = system.engine(index);
            if args.config.is_empty() {
                configs.push(dir.join("engine.toml"));
            }
            logs.push((format!("logs/engine{index}.log"), dir.join("engine.log")));
        }
        if setup.etcd.is_some() {
            logs.push(("logs/etcd.log".to_string(), system.etcd().join("etcd.log")));
        }
        bundle.secrets.learn_file(&system.path.join("token"));
    }
    if let Some(path) = std::env::var_os("AZEKURA_TOKEN_FILE") {
        bundle.secrets.learn_file(Path::new(&path));
    }
    // All secrets are known before anything is collected.
    let mut parsed = Vec::new();
    for path in &configs {
        match EngineConfig::read(path) {
            Ok(config) => {
                bundle.secrets.learn(&config);
                parsed.push((path, config));
            }
            Err(error) => bundle.miss(&path.display().to_string(), error),
        }
    }
    bundle.add("version.txt", &format!("azekura {}\n", env!("CARGO_PKG_VERSION")));
    for (at, path) in configs.iter().enumerate() {
        bundle.add_file(format!("config/engine{at}.toml"), path);
    }
    if let Some(system) = &local {
        for name in ["setup.toml", "system.json"] {
            bundle.add_file(format!("config/{name}"), &system.path.join(name));
        }
    }
    let mut ask = |name: &str, words: &[&str]| match std::env::current_exe() {
        Ok(program) => {
            let mut command = Command::new(program);
            command.args(["--timeout", ASK_TIME, "--json"]);
            if let Some(system) = &session.system {
                command.args(["--system", system]);
            }
            bundle.run(name, command.args(words));
        }
        Err(error) => bundle.miss(name, error),
    };
    ask("state/status.json", &["status"]);
    ask("state/system.json", &["system", "query"]);
    ask("state/pools.json", &["pool", "list"]);
    ask("state/health.json", &["pool", "health"]);
    for pool in pools(session) {
        // Labels may be long; names in archives may not.
        let name: String = pool.chars().take(60).collect();
        ask(&format!("state/pool-{name}.json"), &["pool", "query", &pool, "--verbose"]);
        ask(&format!("state/containers-{name}.json"), &["cont", "list", &pool]);
    }
    ask("state/events.json", &["system", "events"]);
    ask("state/jobs.json", &["job", "list"]);
    ask("machine/doctor.json", &["doctor"]);
    for (at, (path, config)) in parsed.iter().enumerate() {
        // Also of one that does not run.
        let dir = config.dir.display().to_string();
        ask(&format!("events/engine{at}.json"), &["system", "events", "--from-dir", &dir]);
        if config.metrics.is_some() {
            let words = ["metrics", "--config", &path.display().to_string()];
            ask(&format!("state/metrics{at}.json"), &words);
        }
    }
    for path in KERNEL {
        let name = path.trim_start_matches('/').replace('/', "-");
        bundle.add_file(format!("machine/{name}"), Path::new(path));
    }
    bundle.run("machine/uname.txt", Command::new("uname").arg("-a"));
    for (name, path) in logs {
        bundle.add_tail(name, &path, args.lines);
    }
    if local.is_none() {
        let mut journal = Command::new("journalctl");
        journal.args(["--no-pager", "--unit", "azekura-engine*", "--lines"]);
        bundle.run("logs/journal.log", journal.arg(args.lines.to_string()));
    }
    Ok(())
}

/// Labels of the pools; none when the system does not answer, which is told elsewhere.
fn pools(session: &Session) -> Vec<String> {
    let timeout = std::time::Duration::from_secs(10).min(session.timeout);
    let asked = Session { timeout, ..session.clone() }.connect().and_then(|client| {
        let pools = client.block_on(client.pool_list())?;
        Ok(pools.into_iter().map(|pool| pool.label).filter(|label| !label.is_empty()).collect())
    });
    asked.unwrap_or_default()
}
