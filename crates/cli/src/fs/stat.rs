//! `azekura fs stat`.

use super::copies::ObjectCopies;
use super::entry::{EntryReport, kind_name, mode_text};
use super::remote::Remote;
use crate::exit::Outcome;
use crate::output::{utc, write_pairs};
use crate::session::Session;
use crate::url::Url;
use dfs::{FileKind, Obj};
use serde::Serialize;
use types::{Result, size};
use wire::control::OpenMode;

/// Show everything about a file
///
/// A symbolic link itself is shown, unless -L is given.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  azekura fs stat azk://tank/home/data/a.bin\n  azekura fs stat --verbose azk://tank/home/data"
)]
pub struct StatArgs {
    /// Files or directories
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    urls: Vec<Url>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
    /// Where each copy is, of objects of many groups too
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Serialize)]
struct StatReport {
    #[serde(flatten)]
    entry: EntryReport,
    ino: u64,
    oid: String,
    oclass: String,
    /// Of files made in this directory from now on, if it was set on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_oclass: Option<String>,
    chunk_bytes: u64,
    #[serde(flatten)]
    first_part: Option<FirstPart>,
    /// Where its own object is; not that of its name, which is with the directory.
    #[serde(flatten)]
    copies: Option<ObjectCopies>,
    atime_ns: i64,
    ctime_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<Copied>,
}

/// The copy that a tier has of a file, or that is on its way there.
#[derive(Serialize)]
struct Copied {
    name: String,
    /// Where the data are.
    state: String,
    /// Of the copy; 0: there is none yet.
    version: u64,
}

impl Copied {
    fn of(remote: &Remote, path: &[u8], file: &Obj) -> Result<Option<Copied>> {
        let fs = remote.dfs();
        let Some(record) = remote.wait(path, fs.tier_record(file))? else { return Ok(None) };
        let state = remote.wait(path, fs.tier_state(file))?.to_string();
        Ok(Some(Copied { name: record.tier, state, version: record.version }))
    }

    fn text(&self) -> String {
        let Copied { name, state, version } = self;
        match version {
            0 => format!("{state}; tier '{name}' has nothing yet"),
            _ => format!("{state}; version {version} is in tier '{name}'"),
        }
    }
}

/// Of a progressive file.
#[derive(Serialize)]
struct FirstPart {
    first_part_bytes: u64,
    /// It has grown beyond its first part.
    beyond: bool,
}

impl FirstPart {
    fn text(&self) -> String {
        let size = size::format(self.first_part_bytes);
        match self.beyond {
            true => format!("{size}, grown beyond it"),
            false => format!("{size}, nothing beyond it"),
        }
    }
}

pub fn run(session: &Session, args: &StatArgs) -> Outcome {
    let mut reports = Vec::new();
    for url in &args.urls {
        let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
        let obj = remote.lookup(&url.path, args.dereference)?;
        let stat = remote.wait(&url.path, remote.dfs().ostat(&obj))?;
        let target = match stat.kind() {
            FileKind::Symlink => Some(remote.readlink(&url.path)?),
            _ => None,
        };
        let copies = match stat.kind() {
            // It is all in its name's entry.
            FileKind::Symlink => None,
            _ => {
                let cont = remote.dfs().container();
                let copies = cont.copies(stat.oid).map_err(|error| error.context(url))?;
                let cells = cont.cells(stat.oid).map_err(|error| error.context(url))?;
                Some(ObjectCopies::of(&copies, cells.as_deref()))
            }
        };
        let beyond = remote.wait(&url.path, remote.dfs().reaches_beyond(&obj))?;
        let first_part =
            beyond.map(|(first_part_bytes, beyond)| FirstPart { first_part_bytes, beyond });
        let tier = match stat.kind() {
            FileKind::Regular => Copied::of(&remote, &url.path, &obj)?,
            _ => None,
        };
        let report = StatReport {
            entry: EntryReport::of(url.to_string().as_bytes(), &stat, target.as_deref()),
            ino: stat.ino,
            oid: stat.oid.to_string(),
            oclass: obj.class().map_err(|error| error.context(url))?.to_string(),
            file_oclass: obj.file_class().map(|class| class.to_string()),
            chunk_bytes: obj.chunk_bytes(),
            first_part,
            copies,
            atime_ns: stat.atime_ns,
            ctime_ns: stat.ctime_ns,
            tier,
        };
        reports.push((report, stat));
    }
    let json: Vec<&StatReport> = reports.iter().map(|(report, _)| report).collect();
    session.out.show(&json, |out| {
        for (at, (report, stat)) in reports.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            let entry = &report.entry;
            let mut pairs = vec![
                ("URL", entry.path.clone()),
                ("Type", kind_name(stat.kind()).to_string()),
                ("Size", format!("{} ({})", stat.size, size::format(stat.size))),
                ("Stored", size::format(stat.stored_bytes)),
                ("Mode", format!("{} ({})", entry.mode, mode_text(stat.mode))),
                ("Owner", format!("{}:{}", stat.uid, stat.gid)),
                ("Links", stat.nlink.to_string()),
                ("Object", report.oid.clone()),
                ("Class", report.oclass.clone()),
                ("Chunk size", size::format(report.chunk_bytes)),
                ("Accessed", utc(stat.atime_ns)),
                ("Modified", utc(stat.mtime_ns)),
                ("Changed", utc(stat.ctime_ns)),
            ];
            pairs.extend(report.first_part.as_ref().map(|first| ("First part", first.text())));
            pairs.extend(report.tier.as_ref().map(|copied| ("Tier", copied.text())));
            pairs.extend(report.copies.as_ref().map(|copies| ("Copies", copies.summary())));
            pairs.extend(report.file_oclass.clone().map(|class| ("Class of new files", class)));
            pairs.extend(entry.target.clone().map(|target| ("Leads to", target)));
            write_pairs(out, &pairs)?;
            if let Some(copies) = &report.copies {
                copies.show(args.verbose, out)?;
            }
        }
        Ok(())
    })
}
