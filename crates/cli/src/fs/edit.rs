//! `azekura fs rm`, `mkdir`, `mv`, `ln`: changes of the tree.

use super::remote::Remote;
use crate::exit::Outcome;
use crate::session::Session;
use crate::url::{self, Url};
use dfs::RenameFlags;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use types::{Code, Error, Result};
use wire::control::OpenMode;

/// Remove files and directories
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs rm azk://tank/home/a.bin
  azekura fs rm -r azk://tank/home/old")]
pub struct RmArgs {
    /// What to remove
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    urls: Vec<Url>,
    /// Directories and all below them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// What is not there is no error
    #[arg(short, long)]
    force: bool,
}

pub fn rm(session: &Session, args: &RmArgs) -> Outcome {
    for url in &args.urls {
        let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
        let removed = (|| -> Result<()> {
            let stat = remote.stat(&url.path, false)?;
            if stat.is_dir() && !args.recursive {
                return Err(Error::new(
                    Code::IsDir,
                    format!("{url} is a directory (use -r to remove it and all below it)"),
                ));
            }
            remote.wait(&url.path, remote.sys.remove(&url.path, args.recursive))
        })();
        match removed {
            Err(error) if args.force && error.code == Code::NonExist => {}
            other => other?,
        }
    }
    session.out.done("Removed.")
}

/// Make directories
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs mkdir azk://tank/home/new
  azekura fs mkdir -p -m 0700 azk://tank/home/a/b/c")]
pub struct MkdirArgs {
    /// Directories to make
    #[arg(required = true, value_name = "URL", value_parser = super::url_parser())]
    urls: Vec<Url>,
    /// Also those above; one that is there is no error
    #[arg(short, long)]
    parents: bool,
    /// Permission bits, octal [default: 0777 less the umask]
    #[arg(short, long, value_parser = mode_bits)]
    mode: Option<u32>,
}

fn mode_bits(text: &str) -> Result<u32> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(Error::inval(format!("'{text}' is not an octal mode (examples: 755, 0700)"))),
    }
}

pub fn mkdir(session: &Session, args: &MkdirArgs) -> Outcome {
    for url in &args.urls {
        let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
        if args.parents {
            remote.wait(&url.path, remote.sys.mkdir_p(&url.path, 0o777))?;
        } else {
            remote.wait(&url.path, remote.sys.mkdir(&url.path, 0o777))?;
        }
        // Bits asked for are given whatever the umask says.
        if let Some(mode) = args.mode {
            remote.wait(&url.path, remote.sys.chmod(&url.path, mode))?;
        }
    }
    session.out.done("Made.")
}

/// Rename or move within a container
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs mv azk://tank/home/a azk://tank/home/b
  azekura fs mv -n azk://tank/home/a azk://tank/home/b    # fails if b is there
  azekura fs mv --exchange azk://tank/home/new azk://tank/home/current")]
pub struct MvArgs {
    /// What to move
    #[arg(required = true, value_name = "SOURCE", value_parser = super::url_parser())]
    sources: Vec<Url>,
    /// New name, or the directory to move into
    #[arg(value_name = "TARGET", value_parser = super::url_parser())]
    target: Url,
    /// Fail if the new name is taken
    #[arg(short, long)]
    no_clobber: bool,
    /// Swap the two, at once
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
    /// Take TARGET as a name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

pub fn mv(session: &Session, args: &MvArgs) -> Outcome {
    let target = &args.target;
    let remote = Remote::open(session, target, OpenMode::ReadWrite)?;
    let as_name = args.no_target_directory || args.exchange;
    let into = !as_name && remote.try_stat(&target.path, true)?.is_some_and(|stat| stat.is_dir());
    if args.sources.len() > 1 && !into {
        return Err(Error::new(Code::NotDir, format!("{target} is not a directory")).into());
    }
    for source in &args.sources {
        if !source.same_container(target) {
            return Err(Error::new(
                Code::CrossDevice,
                format!(
                    "{source} and {target} are in different containers; \
                     copy with 'azekura fs cp -r', then remove"
                ),
            )
            .into());
        }
        let path = if into {
            let name = url::last_name(&source.path)
                .ok_or_else(|| Error::inval(format!("{source} has no name to keep")))?;
            url::join(&target.path, name)
        } else {
            target.path.clone()
        };
        remote.stat(&source.path, false)?;
        let flags = match (args.no_clobber, args.exchange) {
            (true, _) => RenameFlags::NOREPLACE,
            (_, true) => RenameFlags::EXCHANGE,
            _ => RenameFlags::NONE,
        };
        remote
            .wait(&path, remote.sys.rename(&source.path, &path, flags))
            .map_err(|error| error.context(format!("moving {source}")))?;
    }
    session.out.done("Moved.")
}

/// Make links
///
/// Without -s, SOURCE is a URL and gets a further name. With -s it is the text of the link,
/// taken as it is.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs ln azk://tank/home/a azk://tank/home/b
  azekura fs ln -s ../data/a.bin azk://tank/home/latest")]
pub struct LnArgs {
    /// URL of a file, or with -s where the link leads
    #[arg(value_name = "SOURCE")]
    source: OsString,
    /// The new name
    #[arg(value_name = "URL", value_parser = super::url_parser())]
    link: Url,
    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Remove a file that has the name
    #[arg(short, long)]
    force: bool,
}

pub fn ln(session: &Session, args: &LnArgs) -> Outcome {
    let link = &args.link;
    let remote = Remote::open(session, link, OpenMode::ReadWrite)?;
    let source = match args.symbolic {
        true => None,
        false => {
            let source = Url::parse(&args.source)?;
            if !source.same_container(link) {
                return Err(Error::new(
                    Code::CrossDevice,
                    format!("{source} and {link} are in different containers"),
                )
                .into());
            }
            Some(source)
        }
    };
    if args.force {
        match remote.wait(&link.path, remote.sys.unlink(&link.path)) {
            Err(error) if error.code == Code::NonExist => {}
            other => other?,
        }
    }
    match source {
        None => {
            let target = args.source.as_bytes();
            remote.wait(&link.path, remote.sys.symlink(target, &link.path))?;
        }
        Some(source) => {
            remote.stat(&source.path, false)?;
            remote
                .wait(&link.path, remote.sys.link(&source.path, &link.path))
                .map_err(|error| error.context(format!("linking {source}")))?;
        }
    }
    session.out.done("Linked.")
}
