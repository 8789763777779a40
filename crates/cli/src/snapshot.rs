//! `azekura cont snapshot`: snapshots of a container, and going back to one.

use crate::exit::Outcome;
use crate::output::{Table, utc};
use crate::props::{self, wrong_reply};
use crate::session::Session;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::time::{Duration, Instant};
use types::{Code, Result};
use wire::control::{ControlReply, ControlRequest, Name, SnapInfo, SnapName};

/// How long `rollback` waits before it looks again how far it is.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// A container of a pool.
#[derive(Args, Debug)]
pub struct Which {
    /// Pool: label or UUID
    pool: String,
    /// Container: label or UUID
    cont: String,
}

/// A snapshot of a container.
#[derive(Args, Debug)]
pub struct One {
    #[command(flatten)]
    which: Which,
    /// Name or epoch of the snapshot
    snapshot: String,
}

/// Make, list and destroy snapshots; go back to one
#[derive(Args, Debug)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    verb: SnapshotVerb,
}

/// What is made.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura cont snapshot create tank home monday
  azekura fs ls --snapshot monday azk://tank/home/")]
pub struct CreateArgs {
    #[command(flatten)]
    which: Which,
    /// Its name: letters, digits, '_', '-', '.' and ':'; without one it goes by its epoch
    name: Option<String>,
}

#[derive(Subcommand, Debug)]
enum SnapshotVerb {
    /// Keep what the container holds now; takes no space until it changes
    Create(CreateArgs),
    /// List the snapshots of a container
    #[command(visible_alias = "ls")]
    #[command(after_help = "Example:\n  azekura cont snapshot list tank home")]
    List(Which),
    /// Remove a snapshot; space that only it needs comes back in the background
    #[command(after_help = "Example:\n  azekura cont snapshot destroy tank home monday")]
    Destroy(One),
    /// Make the container what it was; what came after is lost except to later snapshots
    #[command(
        after_help = "Nobody can use the container meanwhile. If this is cut off, it goes on by itself.\n\nExample:\n  azekura cont snapshot rollback tank home monday"
    )]
    Rollback {
        #[command(flatten)]
        one: One,
        /// Even if the container is in use
        #[arg(long, short)]
        force: bool,
    },
}

#[derive(Serialize)]
struct SnapshotReport {
    epoch: u64,
    name: String,
    created_ns: u64,
}

impl SnapshotReport {
    fn of(snap: &SnapInfo) -> SnapshotReport {
        SnapshotReport { epoch: snap.epoch.0, name: snap.name.clone(), created_ns: snap.created_ns }
    }
}

#[derive(Serialize)]
struct ListReport {
    snapshots: Vec<SnapshotReport>,
    /// The snapshot that the container is being rolled back to.
    rolling_back: Option<u64>,
}

pub fn run(session: &Session, args: &SnapshotArgs) -> Outcome {
    match &args.verb {
        SnapshotVerb::Create(args) => create(session, args),
        SnapshotVerb::List(which) => list(session, which),
        SnapshotVerb::Destroy(one) => destroy(session, one),
        SnapshotVerb::Rollback { one, force } => rollback(session, one, *force),
    }
}

impl Which {
    fn names(&self) -> (Name, Name) {
        (Name::parse(&self.pool), Name::parse(&self.cont))
    }
}

pub fn create(session: &Session, args: &CreateArgs) -> Outcome {
    let (pool, cont) = args.which.names();
    let name = args.name.clone().unwrap_or_default();
    let reply = props::run(session, ControlRequest::SnapCreate { pool, cont, name })?;
    let ControlReply::Snap(snap) = reply else { return Err(wrong_reply().into()) };
    session.out.show(&SnapshotReport::of(&snap), |out| {
        let name = if snap.name.is_empty() { String::new() } else { format!(" '{}'", snap.name) };
        writeln!(out, "Snapshot{name} is made, epoch {}.", snap.epoch.0)
    })
}

fn snapshots(session: &Session, which: &Which) -> Result<ListReport> {
    let (pool, cont) = which.names();
    match props::run(session, ControlRequest::SnapList(pool, cont))? {
        ControlReply::Snaps { snaps, rolling_back } => Ok(ListReport {
            snapshots: snaps.iter().map(SnapshotReport::of).collect(),
            rolling_back: rolling_back.map(|epoch| epoch.0),
        }),
        _ => Err(wrong_reply()),
    }
}

pub fn list(session: &Session, which: &Which) -> Outcome {
    let report = snapshots(session, which)?;
    session.out.show(&report, |out| {
        let mut table = Table::new(&[">EPOCH", "NAME", "CREATED"]);
        for snap in &report.snapshots {
            let created = utc(snap.created_ns as i64);
            table.row(vec![snap.epoch.to_string(), snap.name.clone(), created]);
        }
        table.write(out)?;
        match report.rolling_back {
            Some(epoch) => writeln!(out, "The container is being rolled back to {epoch}."),
            None => Ok(()),
        }
    })
}

pub fn destroy(session: &Session, one: &One) -> Outcome {
    let (pool, cont) = one.which.names();
    let snap = SnapName::parse(&one.snapshot);
    props::run(session, ControlRequest::SnapDestroy { pool, cont, snap })?;
    session.out.done(&format!("Snapshot '{}' is removed.", one.snapshot))
}

fn rollback(session: &Session, one: &One, force: bool) -> Outcome {
    let (pool, cont) = one.which.names();
    let snap = SnapName::parse(&one.snapshot);
    let request = ControlRequest::Rollback { pool, cont, snap, force };
    let end = Instant::now() + session.timeout;
    let mut was_begun = false;
    while let Err(error) = props::run(session, request.clone()) {
        let may_go_on = match error.code {
            Code::TimedOut | Code::Closed | Code::Unreach => true,
            // By the request before.
            Code::Busy => was_begun,
            _ => false,
        };
        if !may_go_on {
            return Err(error.into());
        }
        let is_under_way = snapshots(session, &one.which)?.rolling_back.is_some();
        if was_begun && !is_under_way {
            break;
        }
        if !is_under_way || Instant::now() >= end {
            return Err(error.into());
        }
        // Given again it goes on, where it waited for who did not answer.
        was_begun = true;
        std::thread::sleep(LOOK_PAUSE);
    }
    session.out.done(&format!("The container is what snapshot '{}' shows.", one.snapshot))
}
