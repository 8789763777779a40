//! `azekura cont`: containers of a pool.

use crate::exit::Outcome;
use crate::output::{Table, plural, utc, write_pairs};
use crate::props::{self, Assignment, wrong_reply};
use crate::session::{Session, root_for_caller};
use crate::snapshot::{self, SnapshotArgs};
use clap::{Args, Subcommand};
use dfs::Dfs;
use serde::Serialize;
use types::{ContLayout, ContProps, CsumKind, Error, ObjClass, Result, Scheme, limits, size};
use uuid::Uuid;
use wire::control::{ContInfo, ControlReply, ControlRequest, Name, OpenMode, Subject};

/// Create, list and change containers.
#[derive(Args, Debug)]
pub struct ContArgs {
    #[command(subcommand)]
    verb: ContVerb,
}

/// A container of a pool.
#[derive(Args, Debug)]
struct Which {
    /// Pool: label or UUID
    pool: String,
    /// Container: label or UUID
    cont: String,
}

#[derive(Subcommand, Debug)]
enum ContVerb {
    Create(Box<CreateArgs>),
    /// List the containers of a pool
    #[command(visible_alias = "ls")]
    #[command(after_help = "Example:\n  azekura cont list tank")]
    List {
        /// Pool: label or UUID
        pool: String,
    },
    /// Show a container
    #[command(after_help = "Example:\n  azekura cont query tank home")]
    Query(Which),
    /// Remove a container and all it holds
    #[command(after_help = "Example:\n  azekura cont destroy tank home --force")]
    Destroy {
        #[command(flatten)]
        which: Which,
        /// Even if it is in use
        #[arg(long, short)]
        force: bool,
    },
    /// Print properties
    #[command(after_help = "Example:\n  azekura cont get-prop tank home chunk-size")]
    GetProp {
        #[command(flatten)]
        which: Which,
        /// Properties to print; all when none is given
        names: Vec<String>,
    },
    /// Change properties
    #[command(
        after_help = "Example:\n  azekura cont set-prop tank home file-oclass=SX chunk-size=4MiB"
    )]
    SetProp {
        #[command(flatten)]
        which: Which,
        /// New values
        #[arg(required = true, value_name = "NAME=VALUE")]
        changes: Vec<Assignment>,
    },
    Snapshot(SnapshotArgs),
    /// The same as 'snapshot create'
    CreateSnap(snapshot::CreateArgs),
    /// The same as 'snapshot list'
    #[command(after_help = "Example:\n  azekura cont list-snaps tank home")]
    ListSnaps(snapshot::Which),
    /// The same as 'snapshot destroy'
    #[command(after_help = "Example:\n  azekura cont destroy-snap tank home monday")]
    DestroySnap(snapshot::One),
    /// Print user attributes
    #[command(after_help = "Example:\n  azekura cont get-attr tank home owner")]
    GetAttr {
        #[command(flatten)]
        which: Which,
        /// Attributes to print; all when none is given
        names: Vec<String>,
    },
    /// Set user attributes
    #[command(after_help = "Example:\n  azekura cont set-attr tank home owner=climate")]
    SetAttr {
        #[command(flatten)]
        which: Which,
        /// New values
        #[arg(required = true, value_name = "NAME=VALUE")]
        changes: Vec<Assignment>,
    },
    /// Remove user attributes
    #[command(after_help = "Example:\n  azekura cont del-attr tank home owner")]
    DelAttr {
        #[command(flatten)]
        which: Which,
        /// Attributes to remove
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// Create a container
///
/// A container of type 'posix' is formatted at once: its root belongs to the caller.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura cont create tank home
  azekura cont create tank results --file-oclass SX --chunk-size 4MiB
  azekura cont create tank images --first-part 8MiB
  azekura cont create tank objects --type plain --csum crc64
  azekura cont create tank archive --properties cksum:sha256,srv_cksum:on")]
struct CreateArgs {
    /// Pool: label or UUID
    pool: String,
    /// Its name: letters, digits, '_', '-', '.' and ':'
    label: String,
    /// What it holds: posix (a file system) or plain (objects)
    #[arg(long = "type", default_value = "posix")]
    layout: ContLayout,
    /// Class of objects whose creator names none (S1, SX, RP_2G1, RP_3GX, ...) [default: S1, or with
    /// --rd-fac as many copies as that takes]
    #[arg(long)]
    oclass: Option<ObjClass>,
    /// Class of directories [default: that of --oclass; where that is not given SX@8192, which is on one target up to so many names
    /// and on all of them beyond, or with --rd-fac as many copies of that]
    #[arg(long)]
    dir_oclass: Option<ObjClass>,
    /// Class of files [default: that of --oclass; where that is not given SX+1MiB, whose first MiB is with the directory entry and
    /// the rest over all targets, or with --rd-fac as many copies of that]
    #[arg(long)]
    file_oclass: Option<ObjClass>,
    /// Files: so much of each is with its directory entry, all beyond over all targets; 4KiB to 1GiB, a power
    /// of two, or 0 for files on one target [default: 1MiB, or as --oclass says]
    #[arg(long, value_parser = size::parse, value_name = "SIZE", conflicts_with = "file_oclass")]
    first_part: Option<u64>,
    /// Chunk of files: a multiple of 4KiB, at most 1GiB [default: 1MiB]
    #[arg(long, value_parser = chunk_bytes)]
    chunk_size: Option<u64>,
    /// How many losses every object must survive, 0 to 5
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=5))]
    rd_fac: u8,
    /// Checksum over stored data: off, crc32c, crc64, xxh3 or sha256 [default: crc32c]
    #[arg(long)]
    csum: Option<CsumKind>,
    /// Targets compare data with their checksum when they arrive, not only readers
    #[arg(long)]
    server_verify: bool,
    /// Cell of erasure-coded classes: 64KiB, 128KiB, 256KiB, 512KiB or 1MiB; a stripe of as many as the class has data cells
    /// must fit into a chunk [default: 64KiB]
    #[arg(long, value_parser = cell_bytes, value_name = "SIZE")]
    cell_size: Option<u32>,
    /// Properties by the names they have in DAOS: cksum, srv_cksum (on, off), rd_fac, ec_cell_sz
    #[arg(long, value_delimiter = ',', value_name = "NAME:VALUE,...")]
    properties: Vec<DaosProperty>,
    /// Tier for copies of its files ('azekura tier add')
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,
}

/// A property as DAOS's own command takes it.
#[derive(Clone, Debug)]
enum DaosProperty {
    Cksum(CsumKind),
    ServerVerify(bool),
    RdFac(u8),
    CellBytes(u32),
}

impl std::str::FromStr for DaosProperty {
    type Err = Error;
    fn from_str(text: &str) -> Result<DaosProperty> {
        let (name, value) = text
            .split_once(':')
            .ok_or_else(|| Error::inval(format!("'{text}' is not NAME:VALUE")))?;
        match name {
            // Both are CRC-32C there.
            "cksum" if value == "crc32" => Ok(DaosProperty::Cksum(CsumKind::Crc32c)),
            "cksum" => value.parse().map(DaosProperty::Cksum),
            "srv_cksum" => match value {
                "on" => Ok(DaosProperty::ServerVerify(true)),
                "off" => Ok(DaosProperty::ServerVerify(false)),
                _ => Err(Error::inval(format!("srv_cksum is on or off, not '{value}'"))),
            },
            "rd_fac" | "rf" => {
                let factor = value.parse().ok().filter(|factor| *factor <= 5);
                factor.map(DaosProperty::RdFac).ok_or_else(|| {
                    Error::inval(format!("{name} is a number from 0 to 5, not '{value}'"))
                })
            }
            "ec_cell_sz" | "cell_size" | "ec_cell" => {
                cell_bytes(value).map(DaosProperty::CellBytes)
            }
            _ => Err(Error::inval(format!(
                "'{name}' is no property here (there are: cksum, srv_cksum, rd_fac, ec_cell_sz; others have \
                 options of their own)"
            ))),
        }
    }
}

/// Parses a cell size.
fn cell_bytes(text: &str) -> Result<u32> {
    types::props::check_cell_bytes(size::parse(text)?)
}

/// Parses a chunk size.
pub fn chunk_bytes(text: &str) -> Result<u64> {
    let bytes = size::parse(text)?;
    types::props::check_chunk_bytes(bytes)?;
    Ok(bytes)
}

#[derive(Serialize)]
struct ContReport {
    label: String,
    uuid: String,
    id: u64,
    #[serde(rename = "type")]
    layout: ContLayout,
    oclass: ObjClass,
    dir_oclass: ObjClass,
    file_oclass: ObjClass,
    /// Bytes of a file that are with its directory entry; 0: the class is not progressive.
    first_part_bytes: u64,
    chunk_bytes: u64,
    cell_bytes: u32,
    rd_fac: u8,
    csum: CsumKind,
    server_verify: bool,
    handles: u64,
    snapshots: u64,
    created_ns: u64,
    opened_ns: u64,
    changed_ns: u64,
    /// Where its files have their copies, as 'query' tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
}

impl ContReport {
    fn of(info: &ContInfo) -> ContReport {
        let props = &info.props;
        ContReport {
            label: info.label.clone(),
            uuid: info.uuid.to_string(),
            id: info.id.0,
            layout: props.layout,
            oclass: props.oclass,
            dir_oclass: props.dir_oclass,
            file_oclass: props.file_oclass,
            first_part_bytes: props.file_oclass.first_part_bytes().unwrap_or(0),
            chunk_bytes: props.chunk_bytes,
            cell_bytes: props.cell_bytes,
            rd_fac: props.rd_fac,
            csum: props.csum,
            server_verify: props.server_verify,
            handles: info.handle_count,
            snapshots: info.snapshot_count,
            created_ns: info.created_ns,
            opened_ns: info.opened_ns,
            changed_ns: info.changed_ns,
            tier: None,
        }
    }
}

pub fn run(session: &Session, args: &ContArgs) -> Outcome {
    let subject = |which: &Which| Subject::Cont(Name::parse(&which.pool), Name::parse(&which.cont));
    match &args.verb {
        ContVerb::Create(args) => create(session, args),
        ContVerb::List { pool } => list(session, pool),
        ContVerb::Query(which) => query(session, which),
        ContVerb::Destroy { which, force } => {
            let pool = Name::parse(&which.pool);
            let request =
                ControlRequest::ContDestroy { pool, cont: Name::parse(&which.cont), force: *force };
            props::run(session, request)?;
            session.out.done(&format!("Container '{}/{}' is removed.", which.pool, which.cont))
        }
        ContVerb::GetProp { which, names } => {
            let info = info(session, which)?;
            props::show_props(session.out, &properties(&info), names)
        }
        ContVerb::SetProp { which, changes } => props::set_props(session, subject(which), changes),
        ContVerb::Snapshot(args) => snapshot::run(session, args),
        ContVerb::CreateSnap(args) => snapshot::create(session, args),
        ContVerb::ListSnaps(which) => snapshot::list(session, which),
        ContVerb::DestroySnap(one) => snapshot::destroy(session, one),
        ContVerb::GetAttr { which, names } => props::show_attrs(session, subject(which), names),
        ContVerb::SetAttr { which, changes } => props::set_attrs(session, subject(which), changes),
        ContVerb::DelAttr { which, names } => props::del_attrs(session, subject(which), names),
    }
}

fn create(session: &Session, args: &CreateArgs) -> Outcome {
    limits::check_label(&args.label)?;
    let mut named = args.properties.iter().filter_map(|property| match property {
        DaosProperty::RdFac(factor) => Some(*factor),
        _ => None,
    });
    let rd_fac = named.next_back().unwrap_or(args.rd_fac);
    let default = ContProps::posix(rd_fac);
    let oclass = args.oclass.unwrap_or(default.oclass);
    let (dir_oclass, file_oclass) = match args.layout {
        ContLayout::Posix => (default.dir_oclass, default.file_oclass),
        // Nothing has them unless it becomes a file system one day.
        ContLayout::Plain => (oclass, oclass),
    };
    let file_oclass = args.oclass.unwrap_or(file_oclass);
    let mut props = ContProps {
        layout: args.layout,
        oclass,
        dir_oclass: args.dir_oclass.or(args.oclass).unwrap_or(dir_oclass),
        file_oclass: file_class(args, file_oclass)?,
        chunk_bytes: args.chunk_size.unwrap_or(default.chunk_bytes),
        rd_fac,
        csum: args.csum.unwrap_or(default.csum),
        server_verify: args.server_verify,
        cell_bytes: args.cell_size.unwrap_or(default.cell_bytes),
    };
    for property in &args.properties {
        match *property {
            DaosProperty::Cksum(csum) => props.csum = csum,
            DaosProperty::ServerVerify(verify) => props.server_verify = verify,
            DaosProperty::CellBytes(bytes) => props.cell_bytes = bytes,
            DaosProperty::RdFac(_) => {}
        }
    }
    if let Some(tier) = &args.tier {
        crate::tier::definition(session, tier)?;
    }
    let pool = session.open_pool(&Name::parse(&args.pool), OpenMode::ReadWrite)?;
    let client = pool.client().clone();
    let info = client.block_on(async {
        let info = pool.cont_create(&args.label, Uuid::nil(), props, Default::default()).await?;
        if info.props.layout == ContLayout::Posix
            && let Err(error) = format(&pool, &info).await
        {
            // Half a container helps nobody; a failure to take it back says less than the first.
            let _ = pool.cont_destroy(Name::Uuid(info.uuid), true).await;
            return Err(error.context("formatting the new container"));
        }
        Ok::<_, Error>(info)
    })?;
    if let Some(tier) = &args.tier {
        crate::tier::attach(session, tier, &Name::parse(&args.pool), &Name::Uuid(info.uuid))?;
    }
    session.out.show(&ContReport::of(&info), |out| {
        let at = format!("{}/{}", args.pool, info.label);
        match info.props.layout {
            ContLayout::Posix => writeln!(out, "Container azk://{at} is ready."),
            ContLayout::Plain => writeln!(out, "Container {at} is ready."),
        }?;
        let files = info.props.file_oclass;
        if let Scheme::ErasureCoded { data, .. } = files.scheme
            && u64::from(data) * u64::from(info.props.cell_bytes) > info.props.chunk_bytes
        {
            writeln!(
                out,
                "A stripe of {data} cells of {} does not fit into a chunk of {}: nothing of its files is coded, all is kept in \
                 copies. Give it a larger --chunk-size.",
                size::format(info.props.cell_bytes.into()),
                size::format(info.props.chunk_bytes)
            )?;
        }
        let names = info.props.dir_oclass;
        let [survives, names_survive] = [files, names].map(|class| class.scheme.redundancy_factor());
        if info.props.layout == ContLayout::Posix && survives > names_survive {
            writeln!(
                out,
                "Its files (class {files}) outlive the loss of {}, their names (class {names}) of {}: create it with --rd-fac {survives}, \
                 or give it a --dir-oclass with as many copies.",
                plural(survives.into(), "engine"),
                if names_survive == 0 { "none".to_string() } else { names_survive.to_string() },
            )?;
        }
        let copies = info.props.file_oclass.scheme.members().max(info.props.oclass.scheme.members());
        let mut ranks: Vec<_> = pool.map().targets.iter().map(|target| target.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        if copies > ranks.len() {
            writeln!(
                out,
                "Its objects have {copies} copies or cells, but the pool has {}: those that share an engine are \
                 lost together.",
                plural(ranks.len(), "engine")
            )?;
        }
        Ok(())
    })
}

/// Class of a new container's files; `otherwise` with no class of files named.
fn file_class(args: &CreateArgs, otherwise: ObjClass) -> Result<ObjClass> {
    match (args.file_oclass, args.first_part) {
        (Some(class), _) => Ok(class),
        (None, Some(bytes)) => otherwise.with_first_part(bytes),
        (None, None) => Ok(otherwise),
    }
}

async fn format(pool: &client::Pool, info: &ContInfo) -> Result<()> {
    let cont = pool.cont_open(&Name::Uuid(info.uuid), OpenMode::ReadWrite).await?;
    Dfs::format(&cont, &root_for_caller()).await?;
    cont.close().await
}

fn list(session: &Session, pool: &str) -> Outcome {
    let reply = props::run(session, ControlRequest::ContList(Name::parse(pool)))?;
    let ControlReply::Conts(conts) = reply else { return Err(wrong_reply().into()) };
    let reports: Vec<ContReport> = conts.iter().map(ContReport::of).collect();
    session.out.show(&reports, |out| {
        let mut table =
            Table::new(&["LABEL", "UUID", "TYPE", "FILES", "DIRS", ">CHUNK", "CREATED"]);
        for cont in &reports {
            table.row(vec![
                cont.label.clone(),
                cont.uuid.clone(),
                cont.layout.to_string(),
                cont.file_oclass.to_string(),
                cont.dir_oclass.to_string(),
                size::format(cont.chunk_bytes),
                utc(cont.created_ns as i64),
            ]);
        }
        table.write(out)
    })
}

fn query(session: &Session, which: &Which) -> Outcome {
    let info = info(session, which)?;
    let tier = crate::tier::name_of_cont(session, &Name::parse(&which.pool), &info)?;
    let report = ContReport { tier, ..ContReport::of(&info) };
    session.out.show(&report, |out| {
        let last_opened = match report.opened_ns {
            0 => "never".to_string(),
            opened_ns => utc(opened_ns as i64),
        };
        write_pairs(
            out,
            &[
                ("Label", report.label.clone()),
                ("UUID", report.uuid.clone()),
                ("Type", report.layout.to_string()),
                ("Object class", report.oclass.to_string()),
                ("Directory class", report.dir_oclass.to_string()),
                ("File class", report.file_oclass.to_string()),
                ("First part", first_part_text(report.first_part_bytes)),
                ("Chunk size", size::format(report.chunk_bytes)),
                ("Cell size", size::format(report.cell_bytes.into())),
                ("Redundancy factor", report.rd_fac.to_string()),
                ("Checksum", report.csum.to_string()),
                ("Compared on arrival", if report.server_verify { "yes" } else { "no" }.into()),
                ("Open handles", report.handles.to_string()),
                ("Snapshots", report.snapshots.to_string()),
                ("Tier", report.tier.clone().unwrap_or_else(|| "none".into())),
                ("Created", utc(report.created_ns as i64)),
                ("Last opened", last_opened),
                ("Closed or changed", utc(report.changed_ns as i64)),
            ],
        )
    })
}

fn first_part_text(bytes: u64) -> String {
    if bytes == 0 { "none".to_string() } else { size::format(bytes) }
}

fn info(session: &Session, which: &Which) -> Result<ContInfo> {
    let request = ControlRequest::ContQuery(Name::parse(&which.pool), Name::parse(&which.cont));
    match props::run(session, request)? {
        ControlReply::Cont(info) => Ok(info),
        _ => Err(wrong_reply()),
    }
}

fn properties(info: &ContInfo) -> Vec<(&'static str, String)> {
    let props = &info.props;
    vec![
        ("label", info.label.clone()),
        ("uuid", info.uuid.to_string()),
        ("type", props.layout.to_string()),
        ("oclass", props.oclass.to_string()),
        ("dir_oclass", props.dir_oclass.to_string()),
        ("file_oclass", props.file_oclass.to_string()),
        ("first_part", props.file_oclass.first_part_bytes().unwrap_or(0).to_string()),
        ("chunk_size", props.chunk_bytes.to_string()),
        ("cell_size", props.cell_bytes.to_string()),
        ("rd_fac", props.rd_fac.to_string()),
        ("csum", props.csum.to_string()),
        ("server_verify", props.server_verify.to_string()),
    ]
}
