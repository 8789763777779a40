//! `azekura system migrate-catalog`: the catalog goes from an engine's files to etcd, or back, while nobody serves it.

use crate::exit::Outcome;
use crate::output::write_pairs;
use crate::session::{Session, absolute};
use control::{Catalog, CatalogCounts, EmbeddedCatalog, EtcdCatalog, Named, move_catalog};
use engine::{CatalogConfig, CatalogKind, EngineConfig, StoppedEngine, catalog_files, hand_over};
use env::Env;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{Code, Error, Result};
use uuid::Uuid;

/// How long an engine that served the catalog in etcd is waited for: longer than the lease of one that was killed.
const WAIT: Duration = Duration::from_secs(15);

/// Move the catalog from an engine's files to etcd, or back, offline
///
/// With a catalog in files the engine that holds it must be stopped, with one in etcd all engines. Everything is compared
/// before the old place is closed. A place that holds another system is refused. Afterwards engines start with the new place in
/// [catalog] of their configuration; with the old one they say where it has gone.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura system migrate-catalog --config /etc/azekura/engine.toml --to etcd://host1:2379,host2:2379,host3:2379
  azekura system migrate-catalog --config engine.toml --to etcds://host1:2379/mine --ca etcd-ca.pem
  azekura system migrate-catalog --config engine.toml --to embedded")]
pub struct MigrateArgs {
    /// Configuration of the engine that holds the catalog now; with --to embedded, of the one that is to hold it
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// etcd://HOST:PORT[,HOST:PORT…][/PREFIX], the same with etcds:// for TLS, or embedded
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// PEM file with the authorities that sign etcd's certificates
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file with a certificate for etcd
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// PEM file with its key
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Name at etcd
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// File with its password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    from: String,
    to: String,
    #[serde(flatten)]
    counts: CatalogCounts,
    /// For the engine's configuration; empty: leave `[catalog]` out.
    catalog: String,
}

/// Runs the command.
pub fn run(session: &Session, args: &MigrateArgs) -> Outcome {
    let config = EngineConfig::read(&args.config)?;
    let config = EngineConfig { dir: absolute(&config.dir)?, ..config };
    if !config.join.is_empty() && args.to != "embedded" {
        let text =
            "this engine joins others: give the configuration of the one that holds the catalog";
        return Err(Error::inval(text).into());
    }
    let etcd = target(args)?;
    let engine = StoppedEngine::hold(&config)?;
    let uuid = engine.uuid().unwrap_or_else(Uuid::new_v4);
    let (from, to) = match (&etcd, config.catalog.kind) {
        (Some(etcd), CatalogKind::Embedded) => (CatalogConfig::default(), etcd.clone()),
        (None, CatalogKind::Etcd) => (config.catalog.clone(), CatalogConfig::default()),
        (Some(_), CatalogKind::Etcd) => {
            let text = "[catalog] of this engine names an etcd already; from one etcd to another go by files: --to embedded first";
            return Err(Error::inval(text).into());
        }
        (None, CatalogKind::Embedded) => {
            let text = "[catalog] of this engine names no etcd: the catalog is in files already";
            return Err(Error::inval(text).into());
        }
    };
    if from.kind == CatalogKind::Embedded && !has_files(&config.dir) {
        let text = format!("there is no catalog in {}", config.dir.display());
        return Err(Error::new(Code::NonExist, text).into());
    }
    let env = Env::real()?;
    let moved = env.block_on(async {
        let old = open(&config, &from, uuid, &env).await?;
        let new = open(&config, &to, uuid, &env).await?;
        let (old, new) = (place(&config, &from, &*old), place(&config, &to, &*new));
        Ok::<_, Error>((move_catalog(&old, &new).await?, old.name, new.name))
    });
    env.clear();
    let handed = hand_over_files(&config.dir);
    let (counts, from, to_name) = moved?;
    handed?;
    let report = Report { from, to: to_name, counts, catalog: section(&to)? };
    let quiet = session.out.quiet;
    session.out.show(&report, |out| {
        if quiet {
            return Ok(());
        }
        writeln!(out, "The catalog has moved from {} to {}, and is the same there:", report.from, report.to)?;
        let counts = &report.counts;
        write_pairs(
            out,
            &[
                ("System", counts.system.clone()),
                ("Engines", counts.engines.to_string()),
                ("Pools", counts.pools.to_string()),
                ("Containers", counts.containers.to_string()),
                ("Entries", counts.entries.to_string()),
            ],
        )?;
        match report.catalog.is_empty() {
            true => writeln!(
                out,
                "\nRemove [catalog] from the configuration of this engine; the others need its address in 'join'. \
                 Then start this engine first."
            ),
            false => writeln!(
                out,
                "\nFor the configuration of this engine, and of all others that may hold the control service (in the \
                 place of their 'join'):\n\n[catalog]\n{}",
                report.catalog
            ),
        }
    })
}

/// The etcd that `--to` names; `None`: the engine's files.
fn target(args: &MigrateArgs) -> Result<Option<CatalogConfig>> {
    let of_etcd = [&args.ca, &args.cert, &args.key, &args.password_file];
    if args.to == "embedded" {
        return match args.user.is_none() && of_etcd.iter().all(|file| file.is_none()) {
            true => Ok(None),
            false => Err(Error::inval("how to reach etcd is in [catalog] of the configuration")),
        };
    }
    let place = etcd_place(&args.to)?.ok_or_else(|| {
        Error::inval(format!("'{}' is neither etcd://HOST:PORT nor embedded", args.to))
    })?;
    let file = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    let config = CatalogConfig {
        ca: file(&args.ca)?,
        cert: file(&args.cert)?,
        key: file(&args.key)?,
        user: args.user.clone(),
        password_file: file(&args.password_file)?,
        ..place
    };
    config.check(false)?;
    Ok(Some(config))
}

/// The section `[catalog]` for `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, or the same with `etcds://` for TLS; `None` for any other
/// kind of place.
pub fn etcd_place(place: &str) -> Result<Option<CatalogConfig>> {
    let (scheme, rest) = match (place.strip_prefix("etcd://"), place.strip_prefix("etcds://")) {
        (Some(rest), _) => ("http", rest),
        (_, Some(rest)) => ("https", rest),
        _ => return Ok(None),
    };
    let (hosts, prefix) = match rest.split_once('/') {
        Some((hosts, prefix)) => (hosts, Some(prefix.to_string())),
        None => (rest, None),
    };
    let hosts: Vec<&str> = hosts.split(',').filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() {
        return Err(Error::inval(format!("'{place}' names no host")));
    }
    Ok(Some(CatalogConfig {
        kind: CatalogKind::Etcd,
        endpoints: hosts.iter().map(|host| format!("{scheme}://{host}")).collect(),
        prefix: prefix.filter(|prefix| !prefix.is_empty()),
        ..CatalogConfig::default()
    }))
}

/// The body of `[catalog]`.
fn section(catalog: &CatalogConfig) -> Result<String> {
    if catalog.kind == CatalogKind::Embedded {
        return Ok(String::new());
    }
    toml::to_string(catalog).map_err(|error| Error::new(Code::Io, format!("writing TOML: {error}")))
}

/// True when an engine's directory has a catalog, or a part of one.
pub fn has_files(dir: &Path) -> bool {
    catalog_files(dir, "catalog").iter().any(|path| path.exists())
}

/// Gives the catalog's files to whom the directory belongs.
pub fn hand_over_files(dir: &Path) -> Result<()> {
    let lock = dir.join("catalog.lock");
    let files = catalog_files(dir, "catalog").into_iter().chain([lock]);
    files.filter(|path| path.exists()).try_for_each(|path| hand_over(dir, &path))
}

/// Opens a catalog as its only writer.
pub async fn open(
    config: &EngineConfig,
    catalog: &CatalogConfig,
    engine: Uuid,
    env: &Env,
) -> Result<Box<dyn Catalog>> {
    Ok(match catalog.kind {
        CatalogKind::Embedded => Box::new(EmbeddedCatalog::open(&config.dir.join("catalog"))?),
        CatalogKind::Etcd => {
            let mut etcd = catalog.etcd(engine, "this machine, moving it", env.random_u64())?;
            etcd.wait = WAIT;
            Box::new(EtcdCatalog::open(etcd).await?)
        }
    })
}

/// A catalog with its name: the same for the same place.
pub fn place<'a>(
    config: &EngineConfig,
    catalog: &CatalogConfig,
    opened: &'a dyn Catalog,
) -> Named<'a> {
    let name = match catalog.kind {
        CatalogKind::Embedded => format!("files in {}", config.dir.display()),
        CatalogKind::Etcd => {
            let hosts: Vec<&str> = catalog
                .endpoints
                .iter()
                .map(|endpoint| endpoint.split_once("://").map_or(&**endpoint, |(_, host)| host))
                .collect();
            let prefix = catalog.prefix.as_deref().unwrap_or("azekura");
            format!("etcd://{}/{prefix}", hosts.join(","))
        }
    };
    Named { catalog: opened, name }
}
