//! `azekura fs get-attr`, `set-attr`, `del-attr`: extended attributes, and what files made in a
//! directory shall be.

use super::remote::Remote;
use crate::cont::chunk_bytes;
use crate::exit::Outcome;
use crate::output::write_pairs;
use crate::props::{Assignment, attr_text};
use crate::session::Session;
use crate::url::Url;
use dfs::XattrMode;
use serde_json::{Map, Value};
use types::{Error, ObjClass};
use wire::control::OpenMode;

/// Namespaces of extended attributes on Linux; a name without one is the user's.
const NAMESPACES: [&str; 4] = ["user.", "trusted.", "security.", "system."];

/// Print extended attributes
///
/// A name without a namespace means 'user.NAME'. Values that are not text are shown in hex.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura fs get-attr azk://tank/home/a.bin
  azekura fs get-attr azk://tank/home/a.bin owner")]
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
  azekura fs set-attr azk://tank/home/striped --oclass SX --chunk-size 4MiB")]
pub struct SetAttrArgs {
    /// File or directory
    #[arg(value_name = "URL", value_parser = super::url_parser())]
    url: Url,
    /// Attributes
    #[arg(value_name = "NAME=VALUE", required_unless_present_any = ["oclass", "dir_oclass", "chunk_size"])]
    changes: Vec<Assignment>,
    /// Class of files made in this directory from now on
    #[arg(long)]
    oclass: Option<ObjClass>,
    /// Class of directories made in it [default: that of the container]
    #[arg(long)]
    dir_oclass: Option<ObjClass>,
    /// Chunk size of files made in it
    #[arg(long, value_parser = chunk_bytes)]
    chunk_size: Option<u64>,
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
    }
    let mut found = Vec::new();
    for name in &names {
        let shown = String::from_utf8_lossy(name).into_owned();
        let value = remote
            .wait(&url.path, remote.dfs().getxattr(&obj, name))
            .map_err(|error| error.context(format!("attribute '{shown}'")))?;
        found.push((shown, attr_text(&value)));
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
    if args.oclass.is_some() || args.dir_oclass.is_some() || args.chunk_size.is_some() {
        if !obj.is_dir() {
            return Err(Error::inval(format!(
                "{url} is not a directory; class and chunk size of a file are fixed when it is made"
            ))
            .into());
        }
        // A class or chunk size that is set and not named stays as it is.
        let file_class = args.oclass.or(obj.file_class());
        let inherited = u64::from(remote.dfs().superblock().chunk_bytes);
        let chunk = match (args.chunk_size, obj.chunk_bytes()) {
            (Some(chunk), _) => chunk,
            (None, chunk) if chunk == inherited => 0,
            (None, chunk) => chunk,
        };
        remote
            .wait(&url.path, remote.dfs().set_layout(&obj, file_class, args.dir_oclass, chunk))?;
    }
    session.out.done("Changed.")
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
