//! Files for the engines of several machines.

use crate::exit::Outcome;
use crate::session::Session;
use engine::EngineConfig;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::Ipv6Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use types::{Code, Error, Result};

/// Bytes of randomness in a new secret.
const SECRET_BYTES: usize = 24;

/// Write the files of engines on several machines
///
/// One directory for each host with engine.toml and the systemd unit, and a new secret for all. Copy each to
/// /etc/azekura on its host.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  azekura config generate --hosts host1,host2,host3 --out ./cluster"
)]
pub struct GenerateArgs {
    /// Names or addresses of the machines, separated by commas; by these they must reach each other
    #[arg(long, value_delimiter = ',', required = true, value_name = "HOST,HOST,…")]
    hosts: Vec<String>,
    /// Where the files go
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Keep the catalog in etcd: its members' URLs, or port 2379 of each host when none is given. Without this the
    /// first host holds it, and the others join that
    #[arg(long, value_delimiter = ',', num_args = 0.., value_name = "URL,URL,…")]
    etcd: Option<Vec<String>>,
    /// A target's directory or device, the same on all hosts; once for each target
    #[arg(long = "device", value_name = "PATH", default_value = "/var/lib/azekura/target0")]
    devices: Vec<PathBuf>,
    /// The engine's own directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/azekura/engine0")]
    engine_dir: PathBuf,
    /// TCP port of the engines
    #[arg(long, default_value_t = 7710)]
    port: u16,
    /// Where the secret of clients is on the hosts
    #[arg(long, value_name = "FILE", default_value = "/etc/azekura/token")]
    token_file: PathBuf,
    /// Where that of engines and administrators is on the hosts
    #[arg(long, value_name = "FILE", default_value = "/etc/azekura/admin-token")]
    admin_token_file: PathBuf,
}

#[derive(Serialize)]
struct Report {
    /// Files that were written.
    files: Vec<PathBuf>,
    /// How clients reach the system.
    system: String,
}

pub fn run(session: &Session, args: &GenerateArgs) -> Outcome {
    let mut seen = BTreeSet::new();
    for host in &args.hosts {
        check_host(host)?;
        if !seen.insert(host) {
            return Err(Error::inval(format!("host '{host}' is named twice")).into());
        }
    }
    let etcd = args.etcd.as_ref().map(|given| match given.is_empty() {
        false => given.clone(),
        true => args.hosts.iter().map(|host| format!("http://{}", at(host, 2379))).collect(),
    });
    // All or none: nothing is written before all is known to be right.
    let mut texts = Vec::new();
    for host in &args.hosts {
        let text = engine_file(args, host, etcd.as_deref());
        EngineConfig::parse(&text, &format!("the file for {host}"))?;
        let dir = args.out.join(host);
        texts.push((dir.join("engine.toml"), text));
        let unit = include_str!("../../../../packaging/azekura-engine.service");
        texts.push((dir.join("azekura-engine.service"), unit.to_string()));
    }
    let secrets = [args.out.join("token"), args.out.join("admin-token")];
    for path in &secrets {
        texts.push((path.clone(), secret()?));
    }
    if let Some((path, _)) = texts.iter().find(|(path, _)| path.exists()) {
        let text = format!("{} exists; choose another directory with --out", path.display());
        return Err(Error::new(Code::Exist, text).into());
    }
    for (path, text) in &texts {
        write(path, text, if secrets.contains(path) { 0o600 } else { 0o644 })?;
    }
    let system: Vec<String> = args.hosts.iter().map(|host| at(host, args.port)).collect();
    let report = Report {
        files: texts.into_iter().map(|(path, _)| path).collect(),
        system: format!("tcp://{}", system.join(",")),
    };
    session.out.show(&report, |out| {
        for path in &report.files {
            writeln!(out, "{}", path.display())?;
        }
        writeln!(
            out,
            "\nOn each host: its engine.toml to /etc/azekura/engine.toml, the secrets to {} and\n{} (mode 600, owned by the \
             engine's user), the unit to /etc/systemd/system unless the package brought it; then\n\n\
             \x20   azekura config check /etc/azekura/engine.toml\n\
             \x20   systemctl enable --now azekura-engine\n\n\
             Clients, with the contents of 'token' in a file of their own; administrators with those of 'admin-token':\n\n\
             \x20   export AZEKURA_SYSTEM={} AZEKURA_TOKEN_FILE=…",
            args.token_file.display(),
            args.admin_token_file.display(),
            report.system
        )?;
        if etcd.is_none() && args.hosts.len() > 1 {
            writeln!(
                out,
                "\nThe catalog is on {} alone: without that machine nothing can be made. '--etcd' keeps it on several.",
                args.hosts[0]
            )?;
        }
        Ok(())
    })?;
    Ok(())
}

/// A host with a port, as in addresses.
fn at(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A name that can be a directory and part of an address.
fn check_host(host: &str) -> Result<()> {
    let is_name = host.starts_with(|c: char| c.is_ascii_alphanumeric())
        && host.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if is_name || host.parse::<Ipv6Addr>().is_ok() {
        return Ok(());
    }
    Err(Error::inval(format!("'{host}' is no name or address of a host")))
}

/// A value as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

fn engine_file(args: &GenerateArgs, host: &str, etcd: Option<&[String]>) -> String {
    let path = |path: &Path| quoted(&path.to_string_lossy());
    let mut text = format!(
        "# Made by 'azekura config generate' for {host}. All keys: 'azekura config keys'.\n\
         dir = {}\nlisten = {}\ndomain = [{}]   # where it is, from the outside in: [\"rack1\", \"node7\"]\n\
         token_file = {}\nadmin_token_file = {}\n",
        path(&args.engine_dir),
        quoted(&at(host, args.port)),
        quoted(host),
        path(&args.token_file),
        path(&args.admin_token_file)
    );
    match etcd {
        Some(endpoints) => {
            let all: Vec<String> = endpoints.iter().map(|url| quoted(url)).collect();
            // Writing to a string cannot fail.
            let _ =
                write!(text, "\n[catalog]\nkind = \"etcd\"\nendpoints = [{}]\n", all.join(", "));
        }
        None if host != args.hosts[0] => {
            let _ = writeln!(text, "join = [{}]", quoted(&at(&args.hosts[0], args.port)));
        }
        None => {}
    }
    for device in &args.devices {
        let _ = write!(text, "\n[[target]]\ndevice = {}\n", path(device));
    }
    text
}

/// A new secret, as hexadecimal text.
fn secret() -> Result<String> {
    let mut raw = [0; SECRET_BYTES];
    let mut source =
        fs::File::open("/dev/urandom").map_err(|error| Error::io("opening /dev/urandom", error))?;
    std::io::Read::read_exact(&mut source, &mut raw)
        .map_err(|error| Error::io("reading /dev/urandom", error))?;
    Ok(raw.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let failed = |error| Error::io(format!("writing {}", path.display()), error);
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}
