//! `dfuse`: the mount of a container as its users start it.
//!
//! Options and their spelling as in the manual of DAOS 2.x ("DFUSE").

use super::Words;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use std::ffi::OsString;

/// DAOS's 'dfuse': mount a container, carried out by Azekura.
#[derive(Parser, Debug)]
#[command(name = "dfuse", version, max_term_width = 100)]
pub struct Dfuse {
    /// Where: an empty directory; then pool and container
    #[arg(value_name = "DIR POOL CONT", num_args = 0..=3)]
    words: Vec<OsString>,
    /// Where: an empty directory
    #[arg(long, short, value_name = "DIR")]
    mountpoint: Option<OsString>,
    /// Pool: label or UUID
    #[arg(long, visible_alias = "pool-label")]
    pool: Option<OsString>,
    /// Container: label or UUID
    #[arg(long, visible_alias = "cont", alias = "cont-label")]
    container: Option<OsString>,
    /// The system: a directory, tcp://HOST:PORT or unix:/PATH
    #[arg(long, value_name = "SYSTEM")]
    system: Option<OsString>,
    /// Serve in the foreground
    #[arg(long, short)]
    foreground: bool,
    /// Keep nothing in the kernel
    #[arg(long)]
    disable_caching: bool,
    /// No writing back
    #[arg(long, visible_alias = "disable-writeback")]
    disable_wb_cache: bool,
    /// Threads that serve
    #[arg(long, visible_alias = "thread-count", value_name = "N")]
    threads: Option<String>,
    /// One thread
    #[arg(long, short = 'S')]
    singlethread: bool,
    /// For all users of this machine
    #[arg(long)]
    multi_user: bool,
    /// Refuse changes
    #[arg(long, short)]
    read_only: bool,
    /// Options as in fstab, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<OsString>,
    /// Accepted for scripts; the system is chosen with --system or AZEKURA_SYSTEM
    #[arg(long, short = 'G', value_name = "NAME", hide = true)]
    sys_name: Option<String>,
}

impl Dfuse {
    /// Our own arguments for the same thing.
    ///
    /// Errors: `MissingRequiredArgument` when it names no directory, pool or container; they
    /// are not taken from a directory's attributes here.
    pub fn ours(&self) -> Result<Vec<OsString>, clap::Error> {
        let mut words = self.words.iter();
        let mut given = |option: &Option<OsString>, what: &str| {
            option.as_ref().or_else(|| words.next()).cloned().ok_or_else(|| {
                let missing = format!("dfuse: no {what} is named (usage: dfuse DIR POOL CONT)\n");
                Dfuse::command().error(ErrorKind::MissingRequiredArgument, missing)
            })
        };
        let dir = given(&self.mountpoint, "directory")?;
        let pool = given(&self.pool, "pool")?;
        let cont = given(&self.container, "container")?;
        if let Some(word) = words.next() {
            let more = format!("dfuse: '{}' is one word too many\n", word.display());
            return Err(Dfuse::command().error(ErrorKind::TooManyValues, more));
        }
        let mut url = OsString::from("azk://");
        url.push(&pool);
        url.push("/");
        url.push(&cont);
        let cache = match (self.disable_caching, self.disable_wb_cache) {
            (true, _) => Some("none"),
            (_, true) => Some("metadata"),
            _ => None,
        };
        let threads = if self.singlethread { Some("1") } else { self.threads.as_deref() };
        let mut ours = Words::default()
            .option("system", self.system.as_ref())
            .word("mount")
            .flag("foreground", self.foreground)
            .flag("read-only", self.read_only)
            .option("cache", cache)
            .option("threads", threads);
        if self.multi_user {
            ours = ours.words(["-o", "allow_other"]);
        }
        for options in &self.options {
            ours = ours.word("-o").word(options);
        }
        Ok(ours.word("--").word(url).word(dir).0)
    }
}
