//! `azekura fs ls`.

use super::entry::{EntryReport, mode_text, size_text};
use super::remote::Remote;
use crate::exit::Outcome;
use crate::output::{Table, utc};
use crate::session::Session;
use crate::url::{self, Url};
use dfs::{FileKind, Stat};
use serde::Serialize;
use std::io::{self, Write};
use types::Result;
use wire::control::OpenMode;

/// List files
// '-h' is taken by sizes, as in ls.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "Examples:
  azekura fs ls azk://tank/home
  azekura fs ls -lR azk://tank/home/data
  azekura fs ls --json azk://tank/home | jq '.[0].entries'")]
pub struct LsArgs {
    /// Directories or files
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    urls: Vec<Url>,
    /// Modes, owners, sizes, times
    #[arg(short, long)]
    long: bool,
    /// Also names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// Directories and all below them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Directories themselves, not what is in them
    #[arg(short, long)]
    directory: bool,
    /// Sizes as 4 KiB, 1.5 GiB
    #[arg(short = 'h', long)]
    human: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// What one argument, or one directory below it, lists.
#[derive(Serialize)]
struct Listing {
    /// The directory, or the file itself.
    url: String,
    entries: Vec<EntryReport>,
    #[serde(skip)]
    stats: Vec<Stat>,
    #[serde(skip)]
    is_dir: bool,
}

pub fn run(session: &Session, args: &LsArgs) -> Outcome {
    let mut listings = Vec::new();
    for url in &args.urls {
        let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
        list(&remote, args, url, &mut listings)?;
    }
    let titled = listings.len() > 1;
    session.out.show(&listings, |out| {
        for (at, listing) in listings.iter().enumerate() {
            if titled && listing.is_dir {
                writeln!(out, "{}{}:", if at == 0 { "" } else { "\n" }, listing.url)?;
            }
            write_entries(out, args, listing)?;
        }
        Ok(())
    })
}

fn list(remote: &Remote, args: &LsArgs, url: &Url, listings: &mut Vec<Listing>) -> Result<()> {
    // A link given on the command line is followed unless it is to be shown.
    let follow = !args.long && !args.directory;
    let stat = remote.stat(&url.path, follow)?;
    if !stat.is_dir() || args.directory {
        let target = match stat.kind() {
            FileKind::Symlink => Some(remote.readlink(&url.path)?),
            _ => None,
        };
        let entry = EntryReport::of(url.to_string().as_bytes(), &stat, target.as_deref());
        let (entries, stats) = (vec![entry], vec![stat]);
        listings.push(Listing { url: url.to_string(), entries, stats, is_dir: false });
        return Ok(());
    }
    let mut todo = vec![url.path.clone()];
    while let Some(dir) = todo.pop() {
        let mut listing = Listing {
            url: remote.name(&dir),
            entries: Vec::new(),
            stats: Vec::new(),
            is_dir: true,
        };
        let mut below = Vec::new();
        for (name, stat) in remote.list(&dir)? {
            if !args.all && name.starts_with(b".") {
                continue;
            }
            let path = url::join(&dir, &name);
            let target = match stat.kind() {
                FileKind::Symlink => Some(remote.readlink(&path)?),
                _ => None,
            };
            listing.entries.push(EntryReport::of(&name, &stat, target.as_deref()));
            if args.recursive && stat.is_dir() {
                below.push(path);
            }
            listing.stats.push(stat);
        }
        todo.extend(below.into_iter().rev());
        listings.push(listing);
    }
    Ok(())
}

fn write_entries(out: &mut dyn Write, args: &LsArgs, listing: &Listing) -> io::Result<()> {
    if !args.long {
        for entry in &listing.entries {
            writeln!(out, "{}", entry.path)?;
        }
        return Ok(());
    }
    if listing.entries.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["MODE", ">LINKS", ">UID", ">GID", ">SIZE", "MODIFIED", "NAME"]);
    for (entry, stat) in listing.entries.iter().zip(&listing.stats) {
        let name = match &entry.target {
            Some(target) => format!("{} -> {target}", entry.path),
            None => entry.path.clone(),
        };
        table.row(vec![
            mode_text(stat.mode),
            stat.nlink.to_string(),
            stat.uid.to_string(),
            stat.gid.to_string(),
            size_text(stat.size, args.human),
            utc(stat.mtime_ns),
            name,
        ]);
    }
    table.write(out)
}
