//! `azekura fs get-attr`, `set-attr`, `reset-attr`, `del-attr`: extended attributes, and what files
//! made in a directory shall be.

use super::remote::Remote;
use crate::cont::chunk_bytes;
use crate::exit::Outcome;
use crate::output::write_pairs;
use crate::props::{Assignment, attr_text};
use crate::session::Session;
use crate::url::Url;
use dfs::{Code, LayoutChange, Obj, XattrMode, layout_attr};
use serde_json::{Map, Value};
use types::{Error, ObjClass, Result};
use wire::control::OpenMode;

/// Namespaces of extended attributes on Linux; a name without one is the user's.
const NAMESPACES: [&str; 4] = ["user.", "trusted.", "security.", "system."];

/// Print class, chunk size and extended attributes
///
/// The classes and the chunk size of a directory are those of what is made in it; those of a file are
/// its own. A name without a namespace means 'user.NAME'. Values that are not text are shown in hex.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs get-attr azk://tank/home/a.bin
  azekura fs get-attr azk://tank/home/a.bin owner
  azekura fs get-attr azk://tank/home/striped azekura.oclass")]
pub struct GetAttrArgs {
    /// File or directory
    #[arg(value_name = "URL", value_parser = super::url_parser())]
    url: Url,
    /// Attributes to print; all when none is given
    names: Vec<String>,
}

/// Set extended attributes, or what files made in a directory shall be
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs set-attr azk://tank/home/a.bin owner=climate
  azekura fs set-attr azk://tank/home/striped --oclass SX --chunk-size 4MiB
  azekura fs set-attr azk://tank/home/precious --oclass RP_3G1 --dir-oclass RP_3G1")]
pub struct SetAttrArgs {
    /// File or directory
    #[arg(value_name = "URL", value_parser = super::url_parser())]
    url: Url,
    /// Attributes
    #[arg(value_name = "NAME=VALUE", required_unless_present_any = ["oclass", "dir_oclass", "chunk_size"])]
    changes: Vec<Assignment>,
    /// Class of files made in this directory, and in directories made in it, from now on
    #[arg(long, short)]
    oclass: Option<ObjClass>,
    /// Class of directories made in it
    #[arg(long, short = 'D')]
    dir_oclass: Option<ObjClass>,
    /// Chunk size of files made in it
    #[arg(long, short = 'z', value_parser = chunk_bytes)]
    chunk_size: Option<u64>,
}

/// Have files made in a directory be what its container says again
///
/// Without options all of class, class of directories and chunk size.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs reset-attr azk://tank/home/striped
  azekura fs reset-attr azk://tank/home/striped --chunk-size")]
pub struct ResetAttrArgs {
    /// Directory
    #[arg(value_name = "URL", value_parser = super::url_parser())]
    url: Url,
    /// The class of files
    #[arg(long, short)]
    oclass: bool,
    /// The class of directories
    #[arg(long, short = 'D')]
    dir_oclass: bool,
    /// The chunk size of files
    #[arg(long, short = 'z')]
    chunk_size: bool,
}

/// Remove extended attributes
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  azekura fs del-attr azk://tank/home/a.bin owner")]
pub struct DelAttrArgs {
    /// File or directory
    #[arg(value_name = "URL", value_parser = super::url_parser())]
    url: Url,
    /// Attributes to remove
    #[arg(required = true)]
    names: Vec<String>,
}

/// A name with its namespace.
fn full_name(name: &str) -> String {
    if NAMESPACES.iter().any(|space| name.starts_with(space)) {
        name.to_string()
    } else {
        format!("user.{name}")
    }
}

pub fn get(session: &Session, args: &GetAttrArgs) -> Outcome {
    let url = &args.url;
    let remote = Remote::open(session, url, OpenMode::ReadOnly)?;
    let obj = remote.lookup(&url.path, true)?;
    let mut names: Vec<Vec<u8>> =
        args.names.iter().map(|name| full_name(name).into_bytes()).collect();
    if names.is_empty() {
        names = remote.wait(&url.path, remote.dfs().listxattr(&obj))?;
        names.sort();
        // They are not listed.
        names.splice(0..0, layout_attr::NAMES.map(|name| name.as_bytes().to_vec()));
    }
    let mut found = Vec::new();
    for name in &names {
        let shown = String::from_utf8_lossy(name).into_owned();
        match remote.wait(&url.path, remote.dfs().getxattr(&obj, name)) {
            Ok(value) => found.push((shown, attr_text(&value))),
            // A file has no class of directories, and a pipe no layout.
            Err(error) if args.names.is_empty() && error.code == Code::NoAttr => {}
            Err(error) => return Err(error.context(format!("attribute '{shown}'")).into()),
        }
    }
    let json: Map<String, Value> =
        found.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    session.out.show(&json, |out| match (&found[..], args.names.len()) {
        // One value alone is what a script wants.
        ([(_, value)], 1) => writeln!(out, "{value}"),
        _ => {
            let pairs: Vec<(&str, String)> =
                found.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
            write_pairs(out, &pairs)
        }
    })
}

pub fn set(session: &Session, args: &SetAttrArgs) -> Outcome {
    let url = &args.url;
    let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
    let obj = remote.lookup(&url.path, true)?;
    for to in &args.changes {
        let (name, value) = (full_name(&to.name), to.value.as_bytes());
        let set = remote.dfs().setxattr(&obj, name.as_bytes(), value, XattrMode::Set);
        remote
            .wait(&url.path, set)
            .map_err(|error| error.context(format!("attribute '{name}'")))?;
    }
    let change = LayoutChange {
        file_class: args.oclass.map(Some),
        dir_class: args.dir_oclass.map(Some),
        chunk_bytes: args.chunk_size,
    };
    change_layout(&remote, url, &obj, change)?;
    session.out.done("Changed.")
}

pub fn reset(session: &Session, args: &ResetAttrArgs) -> Outcome {
    let url = &args.url;
    let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
    let obj = remote.lookup(&url.path, true)?;
    let change = match (args.oclass, args.dir_oclass, args.chunk_size) {
        (false, false, false) => LayoutChange::RESET,
        (class, dir_class, chunk) => LayoutChange {
            file_class: class.then_some(None),
            dir_class: dir_class.then_some(None),
            chunk_bytes: chunk.then_some(0),
        },
    };
    change_layout(&remote, url, &obj, change)?;
    session.out.done("Reset.")
}

fn change_layout(remote: &Remote, url: &Url, obj: &Obj, change: LayoutChange) -> Result<()> {
    if change == LayoutChange::default() {
        return Ok(());
    }
    if !obj.is_dir() {
        return Err(Error::inval(format!(
            "{url} is not a directory; the class of a file is changed by azekura fs migrate, its chunk size is fixed when \
             it is made: set it on a directory and copy the file into it (azekura fs cp)"
        )));
    }
    remote.wait(&url.path, remote.dfs().change_layout(obj, change))
}

pub fn del(session: &Session, args: &DelAttrArgs) -> Outcome {
    let url = &args.url;
    let remote = Remote::open(session, url, OpenMode::ReadWrite)?;
    let obj = remote.lookup(&url.path, true)?;
    for name in &args.names {
        let name = full_name(name);
        remote
            .wait(&url.path, remote.dfs().removexattr(&obj, name.as_bytes()))
            .map_err(|error| error.context(format!("attribute '{name}'")))?;
    }
    session.out.done("Removed.")
}

#[cfg(test)]
mod tests {
    use super::full_name;

    #[test]
    fn names_without_a_namespace_are_the_users() {
        assert_eq!(full_name("owner"), "user.owner");
        assert_eq!(full_name("user.owner"), "user.owner");
        assert_eq!(full_name("trusted.x"), "trusted.x");
    }
}
