//! `azekura fs`: files in POSIX containers, by `azk://POOL/CONT/PATH`.
//!
//! Options mean what they mean in the commands of the same name. What differs: `cp` keeps modes,
//! times, symbolic and hard links and extended attributes without being asked.

mod advise;
mod attr;
mod check;
mod chunks;
mod copies;
mod copy;
mod edit;
mod entry;
mod find;
mod ls;
mod migrate;
pub mod remote;
mod stat;
mod stream;
mod tier;
mod usage;

use crate::exit::Outcome;
use crate::session::Session;
use clap::{Args, Subcommand};
use types::{Code, Error};
use wire::control::SnapName;

/// Work with files in containers (azk://POOL/CONT/PATH).
#[derive(Args, Debug)]
pub struct FsArgs {
    /// Read what a snapshot shows (name or epoch); for 'cp' the sources are read from it
    #[arg(long, value_name = "NAME", global = true)]
    snapshot: Option<String>,
    #[command(subcommand)]
    verb: FsVerb,
}

#[derive(Subcommand, Debug)]
enum FsVerb {
    Ls(ls::LsArgs),
    Cp(copy::CpArgs),
    Export(chunks::ExportArgs),
    Import(chunks::ImportArgs),
    Put(stream::PutArgs),
    Get(stream::GetArgs),
    Cat(stream::CatArgs),
    Rm(edit::RmArgs),
    Mkdir(edit::MkdirArgs),
    Mv(edit::MvArgs),
    Ln(edit::LnArgs),
    Stat(stat::StatArgs),
    Du(usage::DuArgs),
    Df(usage::DfArgs),
    Advise(advise::AdviseArgs),
    Migrate(migrate::MigrateArgs),
    Find(find::FindArgs),
    GetAttr(attr::GetAttrArgs),
    SetAttr(attr::SetAttrArgs),
    ResetAttr(attr::ResetAttrArgs),
    DelAttr(attr::DelAttrArgs),
    Check(check::CheckArgs),
    Tier(tier::TierArgs),
}

impl FsVerb {
    /// True for what changes the tree it names.
    fn changes(&self) -> bool {
        if let FsVerb::Tier(args) = self {
            return args.changes();
        }
        matches!(
            self,
            FsVerb::Put(_)
                | FsVerb::Import(_)
                | FsVerb::Rm(_)
                | FsVerb::Mkdir(_)
                | FsVerb::Mv(_)
                | FsVerb::Ln(_)
                | FsVerb::SetAttr(_)
                | FsVerb::ResetAttr(_)
                | FsVerb::DelAttr(_)
                | FsVerb::Check(_)
                | FsVerb::Migrate(_)
        )
    }
}

pub fn run(session: &Session, args: &FsArgs) -> Outcome {
    let snapshot = args.snapshot.as_deref().map(SnapName::parse);
    if snapshot.is_some() && args.verb.changes() {
        return Err(Error::new(Code::ReadOnly, "a snapshot cannot be changed").into());
    }
    let session = &Session { snapshot, ..session.clone() };
    crate::tier::install_source(session);
    match &args.verb {
        FsVerb::Ls(args) => ls::run(session, args),
        FsVerb::Cp(args) => copy::run(session, args),
        FsVerb::Export(args) => chunks::export::run(session, args),
        FsVerb::Import(args) => chunks::import::run(session, args),
        FsVerb::Put(args) => stream::put(session, args),
        FsVerb::Get(args) => stream::get(session, args),
        FsVerb::Cat(args) => stream::cat(session, args),
        FsVerb::Rm(args) => edit::rm(session, args),
        FsVerb::Mkdir(args) => edit::mkdir(session, args),
        FsVerb::Mv(args) => edit::mv(session, args),
        FsVerb::Ln(args) => edit::ln(session, args),
        FsVerb::Stat(args) => stat::run(session, args),
        FsVerb::Du(args) => usage::du(session, args),
        FsVerb::Df(args) => usage::df(session, args),
        FsVerb::Advise(args) => advise::run(session, args),
        FsVerb::Migrate(args) => migrate::run(session, args),
        FsVerb::Find(args) => find::run(session, args),
        FsVerb::GetAttr(args) => attr::get(session, args),
        FsVerb::SetAttr(args) => attr::set(session, args),
        FsVerb::ResetAttr(args) => attr::reset(session, args),
        FsVerb::DelAttr(args) => attr::del(session, args),
        FsVerb::Check(args) => check::run(session, args),
        FsVerb::Tier(args) => tier::run(session, args),
    }
}

/// Parses a URL argument byte by byte, so that any file name can be given.
pub fn url_parser() -> impl clap::builder::TypedValueParser<Value = crate::url::Url> {
    use clap::builder::TypedValueParser;
    clap::builder::OsStringValueParser::new().try_map(|text| crate::url::Url::parse(&text))
}

/// Parses a URL or local path.
pub fn place_parser() -> impl clap::builder::TypedValueParser<Value = crate::url::Place> {
    use clap::builder::TypedValueParser;
    clap::builder::OsStringValueParser::new().try_map(|text| crate::url::Place::parse(&text))
}
