//! `azekura tier snapshot`: containers as they were, in the store; and restoring one file.

use super::{definition, held, of_cont};
use crate::exit::Outcome;
use crate::fs::remote::Remote;
use crate::output::{Table, bar, utc};
use crate::session::{Mount, Session};
use crate::url::Url;
use clap::{Args, Subcommand};
use dfs::FileKind;
use dfs::sys::Sys;
use serde::Serialize;
use tier::manifest::{TreeEntry, TreeHead, decode_tree};
use tier::{Prepared, Snapshotted, Store, prepare_snapshot, snapshot_heads, thin_snapshots};
use types::{Code, Error, Result, size};
use wire::control::{OpenMode, SnapName};

/// Keep containers in the store as they are at one moment
#[derive(Args, Debug)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    verb: SnapshotVerb,
}

#[derive(Subcommand, Debug)]
enum SnapshotVerb {
    /// Write a container or directory down as it is now, and send what the tier does not have of that
    ///
    /// 'fs tier sync' before makes it quick: what a file's copy has is named, not sent again.
    #[command(after_help = "Examples:
  azekura tier snapshot create azk://tank/home
  azekura tier snapshot create azk://tank/home/data        # of one directory
  azekura tier snapshot create azk://tank/home --keep 30   # and remove the oldest beyond 30")]
    Create {
        /// Container, or a directory of it
        #[arg(value_name = "URL", value_parser = crate::fs::url_parser())]
        url: Url,
        /// Snapshots of the same that stay, the newest; what only others named goes with the next 'tier gc'
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
        keep: Option<u32>,
    },
    /// List the snapshots of a container in its tier
    #[command(
        visible_alias = "ls",
        after_help = "Example:\n  azekura tier snapshot list azk://tank/home"
    )]
    List {
        /// Container
        #[arg(value_name = "URL", value_parser = crate::fs::url_parser())]
        url: Url,
    },
}

/// Bring one file back from what a store says of a container
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura tier restore-file --from cold --cont home /data/a.bin azk://tank/home/a.old
  azekura tier restore-file --from cold --cont home --snapshot 01795593600000000000 /data/a.bin azk://tank/home/a.old")]
pub struct RestoreFileArgs {
    /// The tier
    #[arg(long, value_name = "NAME")]
    from: String,
    /// The container it was in: its name or UUID
    #[arg(long)]
    cont: String,
    /// As a snapshot in the store has it ('tier snapshot list'); else as when the container's root was last synced
    #[arg(long, value_name = "TIME")]
    snapshot: Option<String>,
    /// Its path there, from '/'
    path: String,
    /// Where it goes; must not be there
    #[arg(value_name = "URL", value_parser = crate::fs::url_parser())]
    to: Url,
}

pub fn run(session: &Session, args: &SnapshotArgs) -> Outcome {
    match &args.verb {
        SnapshotVerb::Create { url, keep } => create(session, url, *keep),
        SnapshotVerb::List { url } => list(session, url),
    }
}

/// What was made.
#[derive(Serialize)]
pub(super) struct CreateReport {
    pub snapshot: String,
    pub removed: u64,
    #[serde(flatten)]
    pub done: Snapshotted,
}

fn create(session: &Session, url: &Url, keep: Option<u32>) -> Outcome {
    let (tier, _, store) = of_cont(session, &url.pool, &url.cont)?;
    let report = make(session, url, (&tier, &store), keep, session.out.shows_progress())?;
    session.out.show(&report, |out| {
        let CreateReport { snapshot, removed, done } = &report;
        writeln!(
            out,
            "Snapshot {snapshot}: {} files, {} sent; {removed} older ones are removed.",
            done.files,
            size::format(done.sent_bytes)
        )
    })
}

/// Makes a snapshot of a container or directory in its tier.
///
/// Errors: `Exist` while another one is made of the same container; `Canceled` when that took this one for dead.
pub(super) fn make(
    session: &Session,
    url: &Url,
    (tier, store): (&str, &Store),
    keep: Option<u32>,
    shows: bool,
) -> Result<CreateReport> {
    super::install_source(session);
    let prepare = |at: &SnapName| prepare(session, url, at, (tier, store), shows);
    let (mount, directory, prepared) = held::with_snapshot(session, url, prepare)?;
    let done = mount.client.block_on(prepared.put(&mount.dfs, store))?;
    let removed = match keep {
        Some(keep) => {
            let container = mount.dfs.container().info().uuid.to_string();
            let thin = thin_snapshots(store, &container, directory.as_deref(), keep as usize);
            mount.client.block_on(thin)?
        }
        None => 0,
    };
    Ok(CreateReport { snapshot: name_of(&done.key), removed, done })
}

/// Sends what the tier does not have of what a snapshot of the pool shows; returns the mount that shows it, and the directory that it is of.
fn prepare(
    session: &Session,
    url: &Url,
    at: &SnapName,
    (tier, store): (&str, &Store),
    shows: bool,
) -> Result<(Mount, Option<Vec<u8>>, Prepared)> {
    let session = Session { snapshot: Some(at.clone()), ..session.clone() };
    let mount = session.mount(url, OpenMode::ReadOnly)?;
    let directory = directory_of(&mount, &url.path)?;
    let shown = bar(shows);
    let progress = |bytes| shown.inc(bytes);
    let prepare = prepare_snapshot(&mount.dfs, store, tier, directory.as_deref(), &progress);
    let prepared = mount.client.block_on(prepare);
    shown.finish_and_clear();
    Ok((mount, directory, prepared?))
}

/// The directory of a path in a container, as descriptions name it; `None`: all of it.
///
/// Errors: `NotDir` when it, or something above it, is something else, a symbolic link also: entries are named by the directories they are in.
fn directory_of(mount: &Mount, path: &[u8]) -> Result<Option<Vec<u8>>> {
    let sys = Sys::new(mount.dfs.clone());
    let mut directory = Vec::new();
    for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        directory.extend_from_slice(b"/");
        directory.extend_from_slice(name);
        let named = |error: Error| error.context(String::from_utf8_lossy(&directory));
        let looked = async { mount.dfs.ostat(&sys.lookup(&directory, false).await?).await };
        let stat = mount.client.block_on(looked).map_err(named)?;
        if stat.kind() != FileKind::Directory || name == b"." || name == b".." {
            return Err(named(Error::new(
                Code::NotDir,
                "a snapshot is of a directory, by its own path",
            )));
        }
    }
    Ok(Some(directory).filter(|path| !path.is_empty()))
}

/// A snapshot's name: its key without what all have.
fn name_of(key: &str) -> String {
    let name = key.rsplit('/').next().unwrap_or(key);
    name.strip_suffix(".jsonl").unwrap_or(name).to_string()
}

#[derive(Serialize)]
struct ListReport {
    snapshot: String,
    made_ns: i64,
    /// It is of that directory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
}

fn list(session: &Session, url: &Url) -> Outcome {
    let (.., store) = of_cont(session, &url.pool, &url.cont)?;
    let mount = session.mount(url, OpenMode::ReadOnly)?;
    let container = mount.dfs.container().info().uuid.to_string();
    let heads = mount.client.block_on(snapshot_heads(&store, &container))?;
    let reports: Vec<ListReport> = heads
        .into_iter()
        .map(|(key, head)| {
            let snapshot = name_of(&key);
            let made_ns = snapshot.parse().unwrap_or(0);
            ListReport { snapshot, made_ns, directory: head.directory }
        })
        .collect();
    session.out.show(&reports, |out| {
        let mut table = Table::new(&["SNAPSHOT", "MADE", "OF"]);
        for report in &reports {
            let of = report.directory.clone().unwrap_or_else(|| "/".into());
            table.row(vec![report.snapshot.clone(), utc(report.made_ns), of]);
        }
        table.write(out)
    })
}

/// What a store says of a container, given by its name then or its UUID; of the only one there is, if none is given.
pub(super) async fn described(
    store: &Store,
    cont: Option<&str>,
    snapshot: Option<&str>,
) -> Result<(TreeHead, Vec<TreeEntry>)> {
    let mut found: Option<(TreeHead, Vec<TreeEntry>)> = None;
    let all = match snapshot {
        Some(_) => tier::all_snapshots(store).await?,
        None => tier::trees(store).await?,
    };
    for (uuid, keys) in all {
        let named = |key: &&String| snapshot.is_none_or(|snapshot| name_of(key) == snapshot);
        let Some(key) = keys.iter().rfind(named) else { continue };
        let read = decode_tree(&store.get(key).await?).map_err(|error| error.context(key))?;
        if cont.is_some_and(|cont| read.0.label != cont && uuid != cont) {
            continue;
        }
        if let (None, Some((other, _))) = (cont, &found) {
            let text = format!(
                "the tier describes several containers, '{}' and '{}' among them: say which with --cont",
                other.label, read.0.label
            );
            return Err(Error::inval(text));
        }
        // Of several that had the name, one after the other, the last one.
        if found.as_ref().is_none_or(|(head, _)| head.made_ns < read.0.made_ns) {
            found = Some(read);
        }
    }
    found.ok_or_else(|| {
        let of = cont.map_or(String::new(), |cont| format!(" '{cont}'"));
        let what = snapshot.map_or(String::new(), |snapshot| format!(" in snapshot {snapshot}"));
        Error::new(Code::NonExist, format!("the tier describes no container{of}{what}"))
    })
}

#[derive(Serialize)]
struct RestoreFileReport {
    path: String,
    to: String,
    bytes: u64,
}

pub fn restore_file(session: &Session, args: &RestoreFileArgs) -> Outcome {
    let store = Store::open(&definition(session, &args.from)?)?;
    let wanted = described(&store, Some(&args.cont), args.snapshot.as_deref());
    let (_, entries) = session.connect()?.block_on(wanted)?;
    let remote = Remote::open(session, &args.to, OpenMode::ReadWrite)?.without_umask();
    let shown = bar(session.out.shows_progress());
    let progress = |bytes| shown.inc(bytes);
    let (from, to) = (args.path.as_bytes(), &args.to.path[..]);
    let restored = tier::restore_file(remote.dfs(), &store, &entries, from, to, &progress);
    let bytes = remote.wait(to, restored);
    shown.finish_and_clear();
    let report =
        RestoreFileReport { path: args.path.clone(), to: args.to.to_string(), bytes: bytes? };
    session.out.show(&report, |out| writeln!(out, "{}: {}", report.to, size::format(report.bytes)))
}
