//! `azekura fs export` and `import`: a tree as files of the chunk format of S2 ([`tier::s2_chunks`]), and back.
//!
//! The format names files by UUIDs that tell no path, so a list of what there is stands beside: `index.jsonl`
//! ([`index`]). It is written last, when all it names is on stable storage: a directory without it is no export.

pub mod export;
pub mod import;
mod index;
mod work;

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How files are written.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A header and chunks with SHA-256 for each file
    S2Chunks,
}

/// Write a tree as files of another format
///
/// s2-chunks: for each file a header and chunks of less than 64 MB, named by a UUID made of its path below the tree, with SHA-256 of
/// all; and a list, index.jsonl, of paths, modes, owners, times, links and user attributes. Files with several names come out
/// once for each name. Nothing may change the tree meanwhile; export from a snapshot where something might.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  azekura fs export --format s2-chunks azk://tank/home ./out
  azekura fs --snapshot monday export --format s2-chunks --verify azk://tank/home ./out")]
pub struct ExportArgs {
    #[arg(long, value_enum)]
    format: Format,
    /// Tree to write
    #[arg(value_parser = super::url_parser())]
    source: crate::url::Url,
    /// Directory for it; made if it is missing, else it must be empty
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Read all that was written again and compare the sums
    #[arg(long)]
    verify: bool,
    /// Chunks at a time; each takes its size in memory
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
}

/// Make a tree of what 'azekura fs export' wrote
///
/// Sums of headers and chunks are compared. What is damaged is named, and its file is not made; all others are, and the
/// exit code is 1.
#[derive(Args, Debug)]
#[command(after_help = "Example:
  azekura fs import --format s2-chunks ./out azk://tank/home/back --verify")]
pub struct ImportArgs {
    #[arg(long, value_enum)]
    format: Format,
    /// Directory that an export was written to
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// Directory to make it in; made if it is missing. What has the same name there stays, and is an error
    #[arg(value_parser = super::url_parser())]
    target: crate::url::Url,
    /// Read all that was written again and compare the sums
    #[arg(long)]
    verify: bool,
    /// Chunks at a time; each takes its size in memory
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
}
