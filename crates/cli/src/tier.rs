//! `azekura tier`: object stores that files are copied to.

mod agent;
mod browse;
mod describe;
mod figures;
mod held;
mod mount;
mod snapshot;

use crate::exit::{Failure, Outcome};
use crate::fs::url_parser;
use crate::output::{Table, bar, write_pairs};
use crate::props;
use crate::session::{Session, absolute, root_for_caller};
use crate::url::Url;
use clap::{Args, Subcommand};
use dfs::{Credentials, Dfs, MountFlags};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use tier::part::Encoding;
use tier::{
    Definition, Key, PART_BYTES_DEFAULT, Store, ZSTD_LEVEL_DEFAULT, attr_name, name_of_attr,
};
use types::{Code, ContProps, Error, Result, size};
use uuid::Uuid;
use wire::control::{ContInfo, ControlReply, ControlRequest, Name, OpenMode, Subject};

/// Keep copies of files in object stores (S3, Swift, a directory, ...).
#[derive(Args, Debug)]
pub struct TierArgs {
    #[command(subcommand)]
    verb: TierVerb,
}

#[derive(Subcommand, Debug)]
enum TierVerb {
    Add(AddArgs),
    /// Make a key for 'tier add --key-file'; without it nothing that was encrypted with it can be read any more
    #[command(after_help = "Example:\n  azekura tier make-key /etc/azekura/cold.key")]
    MakeKey {
        /// Where it goes; must not be there
        file: PathBuf,
    },
    /// List the tiers of the system
    #[command(visible_alias = "ls")]
    #[command(after_help = "Example:\n  azekura tier list")]
    List,
    /// Put, get, list and remove an object, and measure that
    #[command(after_help = "Example:\n  azekura tier test cold")]
    Test {
        /// Its name
        name: String,
    },
    /// Forget a tier; what is in the store stays there
    ///
    /// What containers have there only cannot be read then, until a tier of that name is there again.
    #[command(after_help = "Example:\n  azekura tier remove cold")]
    Remove {
        /// Its name
        name: String,
        /// Though containers have their copies there
        #[arg(long)]
        force: bool,
    },
    /// Say in which tier the files of a container have their copies
    ///
    /// What has copies in the tier of before stays there, and is read there, until 'azekura fs tier sync' brings it.
    #[command(after_help = "Examples:
  azekura tier attach cold azk://tank/home
  azekura tier attach colder azk://tank/home && azekura fs tier sync azk://tank/home")]
    Attach {
        /// The tier
        name: String,
        /// Container
        #[arg(value_name = "URL", value_parser = url_parser())]
        url: Url,
    },
    Gc(GcArgs),
    Agent(agent::AgentArgs),
    Mount(mount::TierMountArgs),
    Restore(RestoreArgs),
    RestoreFile(snapshot::RestoreFileArgs),
    Snapshot(snapshot::SnapshotArgs),
}

/// Name an object store or directory as a tier
///
/// Secrets are not kept: --credentials names a file that every machine which uses the tier has at that path, readable
/// for its owner only (chmod 600). Without it the environment is asked (AWS_ACCESS_KEY_ID and the like).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura tier add cold --url fs:///srv/cold
  azekura tier add s3 --url s3://bucket/azekura --endpoint https://s3.example.org --credentials /etc/azekura/s3.toml
  azekura tier make-key /etc/azekura/cold.key
  azekura tier add cold --url fs:///srv/cold --zstd --key-file /etc/azekura/cold.key
  azekura tier add swift --url swift://container/azekura --endpoint https://swift.example.org/v1/AUTH_x")]
struct AddArgs {
    /// Its name: letters, digits, '_', '-', '.' and ':'
    name: String,
    /// fs:///DIR, s3://BUCKET/PREFIX, swift://CONTAINER/PREFIX, azblob://CONTAINER/PREFIX, gcs://BUCKET/PREFIX or webdav://HOST/PATH
    #[arg(long)]
    url: String,
    /// Where the store answers, a URL
    #[arg(long)]
    endpoint: Option<String>,
    /// Region, for S3 [default: us-east-1]
    #[arg(long)]
    region: Option<String>,
    /// S3: the bucket is part of the host name
    #[arg(long)]
    virtual_host: bool,
    /// File with access_key_id = "..." and secret_access_key = "..." (swift: token = "..."; gcs: a service account's key, JSON)
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Size of the parts that files are cut in: 8MiB to 64MiB
    #[arg(long, default_value = "16MiB", value_parser = |text: &str| size::parse(text))]
    part_size: u64,
    /// Compress parts with zstd, at this level: 1 to 19
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, default_missing_value = "3")]
    zstd: Option<i32>,
    /// Encrypt parts (AES-256-GCM) with the key in this file; names and attributes are not encrypted
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// Remove from a store what no file of a container needs any more
///
/// That are parts of uploads that never ended, of versions of before, and of files that were removed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura tier gc azk://tank/home --dry-run
  azekura tier gc azk://tank/home --older-than 3600
  azekura tier gc azk://tank/home --tier before")]
struct GcArgs {
    /// Container
    #[arg(value_name = "URL", value_parser = url_parser())]
    url: Url,
    /// Seconds: younger objects stay, an upload that runs may need them
    #[arg(long, default_value_t = 86_400)]
    older_than: u64,
    /// The tier, where it is one that the container had before
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,
    /// Descriptions of the whole container to keep, the newest; what they name stays, too [default: 1; of a tier of before: 0]
    #[arg(long, value_name = "COUNT")]
    keep: Option<usize>,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
}

/// Make containers again from what a store says of them
///
/// As they were when 'azekura fs tier sync' of their root was last run. Needs nothing but the store. Each becomes a new container.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura tier add cold --url fs:///srv/cold && azekura tier restore --from cold --pool tank
  azekura tier restore --from cold --pool tank --cont home --as home2")]
struct RestoreArgs {
    /// The tier
    #[arg(long, value_name = "NAME")]
    from: String,
    /// Pool for the new containers
    #[arg(long)]
    pool: String,
    /// Only the container of this name (or UUID)
    #[arg(long)]
    cont: Option<String>,
    /// Its new name; for one container
    #[arg(long = "as", value_name = "LABEL", requires = "cont")]
    new_label: Option<String>,
}

impl TierArgs {
    /// It serves in this process, and logs.
    pub fn is_server(&self) -> bool {
        matches!(&self.verb, TierVerb::Mount(args) if args.is_server())
    }

    /// Whoever started it waits on its standard output for a report, as JSON.
    pub fn is_reporting(&self) -> bool {
        matches!(&self.verb, TierVerb::Mount(args) if args.is_reporting())
    }
}

pub fn run(session: &Session, args: &TierArgs) -> Outcome {
    match &args.verb {
        TierVerb::Add(args) => add(session, args),
        TierVerb::MakeKey { file } => {
            Key::make(file)?;
            session.out.done(&format!(
                "{} is the key; every machine that uses the tier needs it, and so does who restores from it.",
                file.display()
            ))
        }
        TierVerb::List => list(session),
        TierVerb::Test { name } => test(session, name),
        TierVerb::Remove { name, force } => {
            definition(session, name)?;
            if !force {
                refuse_if_used(session, name)?;
            }
            let attrs = BTreeMap::from([(attr_name(name)?, None)]);
            props::run(session, ControlRequest::SetAttrs { subject: Subject::System, attrs })?;
            session.out.done(&format!("Tier '{name}' is forgotten; what is in the store stays."))
        }
        TierVerb::Attach { name, url } => {
            attach(session, name, &url.pool, &url.cont)?;
            session
                .out
                .done(&format!("Copies of azk://{}/{} go to tier '{name}'.", url.pool, url.cont))
        }
        TierVerb::Gc(args) => gc(session, args),
        TierVerb::Agent(args) => agent::run(session, args),
        TierVerb::Mount(args) => mount::run(session, args),
        TierVerb::Restore(args) => restore(session, args),
        TierVerb::RestoreFile(args) => snapshot::restore_file(session, args),
        TierVerb::Snapshot(args) => snapshot::run(session, args),
    }
}

/// The definitions of all tiers, by name.
fn definitions(session: &Session) -> Result<BTreeMap<String, Definition>> {
    let request = ControlRequest::GetAttrs { subject: Subject::System };
    let ControlReply::Attrs(attrs) = props::run(session, request)? else {
        return Err(props::wrong_reply());
    };
    let tiers = attrs.iter().filter_map(|(attr, raw)| Some((name_of_attr(attr)?, raw)));
    tiers.map(|(name, raw)| Ok((name.to_string(), Definition::decode(raw)?))).collect()
}

/// The definition of a tier. `NonExist` with the names there are.
pub fn definition(session: &Session, name: &str) -> Result<Definition> {
    let mut all = definitions(session)?;
    all.remove(name).ok_or_else(|| {
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        let there = if names.is_empty() { "none".into() } else { names.join(", ") };
        Error::new(Code::NonExist, format!("no tier '{name}' (there are: {there})"))
    })
}

/// Errors: `Busy` when containers have the tier.
fn refuse_if_used(session: &Session, name: &str) -> Result<()> {
    let (mut users, mut earlier) = (Vec::new(), Vec::new());
    for ((pool, cont), url, tier) in agent::with_tiers(session)? {
        if tier == name {
            users.push(url);
        } else if earlier_of(session, &Name::Uuid(pool), &Name::Uuid(cont))?.contains(name) {
            earlier.push(url);
        }
    }
    if users.is_empty() && earlier.is_empty() {
        return Ok(());
    }
    let mut text = format!(
        "tier '{name}' has copies of files of {}, which could not be read without it; --force forgets it all the same",
        [&users[..], &earlier[..]].concat().join(", ")
    );
    if users.is_empty() {
        let all: Vec<String> =
            earlier.iter().map(|url| format!("azekura fs tier sync {url}")).collect();
        text.push_str(&format!("; what brings them to the tier they have now: {}", all.join("; ")));
    }
    Err(Error::new(Code::Busy, text))
}

/// Tiers that a container had before, and where it may still have copies.
fn earlier_of(session: &Session, pool: &Name, cont: &Name) -> Result<BTreeSet<String>> {
    let subject = Subject::Cont(pool.clone(), cont.clone());
    let reply = props::run(session, ControlRequest::GetAttrs { subject })?;
    let ControlReply::Attrs(mut attrs) = reply else { return Err(props::wrong_reply()) };
    let names = attrs.remove(tier::EARLIER).and_then(|raw| String::from_utf8(raw).ok());
    Ok(names.unwrap_or_default().split_whitespace().map(String::from).collect())
}

/// All files of a container are in the tier that it has now: those before are needed no more, unless snapshots show files as they were.
pub fn forget_earlier(session: &Session, url: &Url) -> Result<()> {
    if earlier_of(session, &url.pool, &url.cont)?.is_empty() {
        return Ok(());
    }
    let subject = Subject::Cont(url.pool.clone(), url.cont.clone());
    let which = ControlRequest::SnapList(url.pool.clone(), url.cont.clone());
    let ControlReply::Snaps { snaps, .. } = props::run(session, which)? else {
        return Err(props::wrong_reply());
    };
    if snaps.is_empty() {
        let attrs = BTreeMap::from([(tier::EARLIER.to_string(), None)]);
        props::run(session, ControlRequest::SetAttrs { subject, attrs })?;
    }
    Ok(())
}

/// Notes a container's tier.
pub fn attach(session: &Session, tier: &str, pool: &Name, cont: &Name) -> Result<()> {
    definition(session, tier)?;
    let subject = Subject::Cont(pool.clone(), cont.clone());
    let known = earlier_of(session, pool, cont)?;
    let mut earlier = known.clone();
    earlier.extend(name_of(session, pool, cont)?);
    earlier.remove(tier);
    let value = Some(tier.as_bytes().to_vec());
    let mut attrs = BTreeMap::from([(tier::ATTACHED.to_string(), value)]);
    if earlier != known {
        let names: Vec<String> = earlier.into_iter().collect();
        let names = Some(names.join(" ").into_bytes()).filter(|names| !names.is_empty());
        attrs.insert(tier::EARLIER.to_string(), names);
    }
    props::run(session, ControlRequest::SetAttrs { subject, attrs }).map(|_| ())
}

/// The name of a container's tier, if it has one.
pub fn name_of_cont(session: &Session, pool: &Name, cont: &ContInfo) -> Result<Option<String>> {
    name_of(session, pool, &Name::Uuid(cont.uuid))
}

/// The same by what it is called.
pub fn name_of(session: &Session, pool: &Name, cont: &Name) -> Result<Option<String>> {
    let subject = Subject::Cont(pool.clone(), cont.clone());
    let reply = props::run(session, ControlRequest::GetAttrs { subject })?;
    let ControlReply::Attrs(mut attrs) = reply else { return Err(props::wrong_reply()) };
    Ok(attrs.remove(tier::ATTACHED).and_then(|raw| String::from_utf8(raw).ok()))
}

/// The tier of a container, opened. `NoAttr` when it has none.
pub fn of_cont(session: &Session, pool: &Name, cont: &Name) -> Result<(String, Definition, Store)> {
    let name = name_of(session, pool, cont)?;
    let name = name.ok_or_else(|| {
        Error::new(
            Code::NoAttr,
            format!("azk://{pool}/{cont} has no tier; give it one: azekura tier attach NAME azk://{pool}/{cont}"),
        )
    })?;
    let definition = definition(session, &name)?;
    let store =
        Store::open(&definition).map_err(|error| error.context(format!("tier '{name}'")))?;
    Ok((name, definition, store))
}

/// Has all mounts of this process read chunks that are in tiers only; returns whoever does that.
pub fn install_source(session: &Session) -> tier::Source {
    let source = source(session);
    dfs::tier::set_tier_source(Arc::new(source.clone()));
    source
}

/// Reads the tiers of a system.
fn source(session: &Session) -> tier::Source {
    let session = Session { snapshot: None, ..session.clone() };
    let resolve = move |name: &str| definition(&session, name);
    tier::Source::new(Box::new(resolve))
}

fn add(session: &Session, args: &AddArgs) -> Outcome {
    let definition = Definition {
        url: args.url.clone(),
        endpoint: args.endpoint.clone(),
        region: args.region.clone(),
        virtual_host: args.virtual_host,
        credentials: args.credentials.as_deref().map(absolute).transpose()?,
        part_bytes: args.part_size,
        zstd_level: args.zstd,
        key_file: args.key_file.as_deref().map(absolute).transpose()?,
    };
    debug_assert_eq!(size::parse("16MiB"), Ok(PART_BYTES_DEFAULT));
    debug_assert_eq!(ZSTD_LEVEL_DEFAULT, 3);
    let attr = attr_name(&args.name)?;
    if definitions(session)?.contains_key(&args.name) {
        let text = format!("tier '{}' exists already; remove it first", args.name);
        return Err(Error::new(Code::Exist, text).into());
    }
    // What cannot be opened here is told here.
    Store::found(&definition)?;
    let attrs = BTreeMap::from([(attr, Some(definition.encode()))]);
    props::run(session, ControlRequest::SetAttrs { subject: Subject::System, attrs })?;
    session.out.done(&format!("Tier '{}' is at {}.", args.name, definition.url))
}

#[derive(Serialize)]
struct TierReport<'a> {
    name: &'a str,
    #[serde(flatten)]
    definition: &'a Definition,
}

fn list(session: &Session) -> Outcome {
    let all = definitions(session)?;
    let reports: Vec<TierReport<'_>> =
        all.iter().map(|(name, definition)| TierReport { name, definition }).collect();
    session.out.show(&reports, |out| {
        let mut table =
            Table::new(&["NAME", "URL", "ENDPOINT", ">PART", "ENCODING", "CREDENTIALS"]);
        for report in &reports {
            let Definition { url, endpoint, credentials, part_bytes, .. } = report.definition;
            let encoding = Encoding {
                is_compressed: report.definition.zstd_level.is_some(),
                is_encrypted: report.definition.key_file.is_some(),
            };
            table.row(vec![
                report.name.to_string(),
                url.clone(),
                endpoint.clone().unwrap_or_else(|| "-".into()),
                size::format(*part_bytes),
                encoding.word().unwrap_or("-").to_string(),
                credentials.as_ref().map_or("-".into(), |file| file.display().to_string()),
            ]);
        }
        table.write(out)
    })
}

fn test(session: &Session, name: &str) -> Outcome {
    let store = Store::open(&definition(session, name)?)?;
    let client = session.connect()?;
    let key = format!("test/{:016x}", client.env().random_u64());
    let checked = client.block_on(store.check(&key))?;
    session.out.show(&checked, |out| {
        let rate = |bytes: u64| format!("{}/s", size::format(bytes));
        let can =
            |it: bool, else_: &str| if it { "yes".to_string() } else { format!("no: {else_}") };
        write_pairs(
            out,
            &[
                ("Put", rate(checked.put_bytes_s)),
                ("Get", rate(checked.get_bytes_s)),
                ("Request", format!("{:.1} ms", checked.stat_us as f64 / 1000.0)),
                ("Lists", can(checked.lists, "nothing can be restored from it alone")),
                ("Tells times", can(checked.tells_times, "what is left over is never collected")),
            ],
        )
    })
}

fn gc(session: &Session, args: &GcArgs) -> Outcome {
    let attached = name_of(session, &args.url.pool, &args.url.cont)?;
    let (tier, store, is_earlier) = match &args.tier {
        Some(tier) if attached.as_ref() != Some(tier) => {
            (tier.clone(), Store::open(&definition(session, tier)?)?, true)
        }
        _ => {
            let (tier, _, store) = of_cont(session, &args.url.pool, &args.url.cont)?;
            (tier, store, false)
        }
    };
    // What restores a container stays in its tier.
    let keep = args.keep.unwrap_or(usize::from(!is_earlier)).max(usize::from(!is_earlier));
    let mount = session.mount(&args.url, OpenMode::ReadOnly)?;
    let GcArgs { older_than, dry_run, .. } = *args;
    let gc = tier::gc(&mount.dfs, &store, &tier, older_than, keep, dry_run);
    let collected = mount.client.block_on(gc)?;
    session.out.show(&collected, |out| {
        let verb = if dry_run { "would go" } else { "are removed" };
        writeln!(
            out,
            "{} objects ({}) and {} descriptions {verb}; {} objects stay.",
            collected.removed_objects,
            size::format(collected.removed_bytes),
            collected.removed_trees,
            collected.kept_objects
        )
    })
}

#[derive(Serialize)]
struct RestoreReport {
    cont: String,
    from: String,
    #[serde(flatten)]
    restored: tier::Restored,
}

fn restore(session: &Session, args: &RestoreArgs) -> Outcome {
    let store = Store::open(&definition(session, &args.from)?)?;
    let pool = session.open_pool(&Name::parse(&args.pool), OpenMode::ReadWrite)?;
    let client = pool.client().clone();
    let trees = client.block_on(tier::trees(&store))?;
    let mut reports = Vec::new();
    for (uuid, keys) in trees {
        let Some(key) = keys.last() else { continue };
        let (head, entries) = client.block_on(async {
            tier::manifest::decode_tree(&store.get(key).await?).map_err(|error| error.context(key))
        })?;
        if args.cont.as_ref().is_some_and(|wanted| *wanted != head.label && *wanted != uuid) {
            continue;
        }
        let label = args.new_label.as_ref().unwrap_or(&head.label);
        let total: u64 = entries.iter().filter_map(|entry| entry.size).sum();
        let shown = bar(session.out.shows_progress());
        shown.set_length(total);
        shown.set_message(label.clone());
        let restored = client.block_on(async {
            let props = ContProps::posix(0);
            pool.cont_create(label, Uuid::nil(), props, BTreeMap::new()).await?;
            let cont = pool.cont_open(&Name::Label(label.clone()), OpenMode::ReadWrite).await?;
            Dfs::format(&cont, &root_for_caller()).await?;
            let who = Credentials { umask: 0, ..crate::session::caller() };
            let fs = Dfs::mount(&cont, MountFlags::NONE, who).await?;
            tier::restore(&fs, &store, &entries, &|bytes| shown.inc(bytes)).await
        });
        shown.finish_and_clear();
        let restored = restored
            .map_err(|error| error.context(format!("restoring azk://{}/{label}", args.pool)))?;
        reports.push(RestoreReport { cont: label.clone(), from: key.clone(), restored });
    }
    if reports.is_empty() {
        let text = "the tier describes no such container; 'azekura fs tier sync' of a container's root writes that";
        return Err(Error::new(Code::NonExist, text).into());
    }
    session.out.show(&reports, |out| {
        for RestoreReport { cont, restored, .. } in &reports {
            let pool = &args.pool;
            writeln!(
                out,
                "azk://{pool}/{cont}: {} files, {} directories, {} symbolic links, {}",
                restored.files,
                restored.directories,
                restored.links,
                size::format(restored.bytes)
            )?;
            if restored.missing > 0 {
                writeln!(out, "  {} files had no copy and are missing", restored.missing)?;
            }
            for damaged in &restored.damaged {
                writeln!(out, "  missing: {damaged}")?;
            }
        }
        Ok(())
    })?;
    let is_whole = reports.iter().all(|report| report.restored.damaged.is_empty());
    if is_whole { Ok(()) } else { Err(Failure::Reported(1)) }
}
