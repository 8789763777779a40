//! `dmg`: pools and engines as their administrators name them.
//!
//! Options and their spelling as in the manual of DAOS 2.x ("dmg" utility).

use super::{Common, Words, assignments};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use types::{Error, Result};

/// The commands of DAOS's 'dmg', carried out by Azekura.
#[derive(Parser, Debug)]
#[command(name = "dmg", version, max_term_width = 100)]
pub struct Dmg {
    #[command(flatten)]
    common: Common,
    /// Accepted for scripts; there are no certificates
    #[arg(long, short, global = true, hide = true)]
    insecure: bool,
    /// Accepted for scripts; the system is chosen with --system or AZEKURA_SYSTEM
    #[arg(long, short = 'o', global = true, value_name = "FILE", hide = true)]
    config_path: Option<OsString>,
    /// Accepted for scripts; the system is chosen with --system or AZEKURA_SYSTEM
    #[arg(long, short = 'l', global = true, value_name = "HOSTS", hide = true)]
    host_list: Option<String>,
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand, Debug)]
enum Noun {
    /// Pools
    #[command(subcommand)]
    Pool(Pool),
    /// Engines
    #[command(subcommand)]
    System(System),
    /// Support
    #[command(subcommand)]
    Support(Support),
    /// Print the version
    Version,
}

#[derive(Subcommand, Debug)]
enum Pool {
    /// Create a pool
    Create(Create),
    /// List pools
    #[command(visible_alias = "ls")]
    List,
    /// Show a pool
    Query {
        /// Pool: label or UUID
        pool: String,
    },
    /// Remove a pool and all it holds
    Destroy {
        /// Pool: label or UUID
        pool: String,
        /// Even if it is in use
        #[arg(long, short)]
        force: bool,
        /// Even if it has containers
        #[arg(long, short)]
        recursive: bool,
    },
    /// Have others take all that the targets of engines hold
    Drain {
        /// Pool: label or UUID
        pool: String,
        /// Ranks of the engines, separated by commas
        #[arg(long, visible_alias = "ranks")]
        rank: String,
    },
    /// Use no more what the targets of engines hold
    Exclude {
        /// Pool: label or UUID
        pool: String,
        /// Ranks of the engines, separated by commas
        #[arg(long, visible_alias = "ranks")]
        rank: String,
    },
    /// Have targets of engines serve again
    Reintegrate {
        /// Pool: label or UUID
        pool: String,
        /// Ranks of the engines, separated by commas
        #[arg(long, visible_alias = "ranks")]
        rank: String,
    },
    /// Take the targets of further engines into a pool
    Extend {
        /// Pool: label or UUID
        pool: String,
        /// Ranks of the engines, separated by commas
        #[arg(long, visible_alias = "rank")]
        ranks: String,
    },
    /// Print properties
    GetProp {
        /// Pool: label or UUID
        pool: String,
        /// Properties to print, separated by commas
        #[arg(value_delimiter = ',')]
        names: Vec<String>,
    },
    /// Change properties
    SetProp {
        /// Pool: label or UUID
        pool: String,
        /// NAME:VALUE, separated by commas
        #[arg(value_delimiter = ',', required = true)]
        values: Vec<String>,
    },
}

#[derive(Args, Debug)]
struct Create {
    /// Its name
    #[arg(required_unless_present = "label_option")]
    label: Option<String>,
    /// The same
    #[arg(long = "label", id = "label_option", hide = true)]
    label_option: Option<String>,
    /// Space over all targets: 10GB (decimal), 10GiB (binary)
    #[arg(long, short = 'z', value_parser = decimal_size, required_unless_present = "nvme_size")]
    size: Option<u64>,
    /// Space of the index and log tier of one engine, with --nvme-size
    #[arg(long, short = 's', value_parser = decimal_size, requires = "nvme_size")]
    scm_size: Option<u64>,
    /// Space of the data tier, with --scm-size
    #[arg(long, short = 'n', value_parser = decimal_size, requires = "scm_size",
          conflicts_with = "size")]
    nvme_size: Option<u64>,
    /// Part of the space for the index and log tier, percent
    #[arg(long, short = 't', value_name = "PERCENT")]
    tier_ratio: Option<u8>,
}

#[derive(Subcommand, Debug)]
enum System {
    /// Show engines, pools and space
    Query,
}

/// A size as DAOS reads it: `G` and `GB` are decimal, `GiB` is binary.
#[derive(Subcommand, Debug)]
enum Support {
    /// Collect logs, configuration and state in an archive
    CollectLog {
        /// Where the archive goes
        #[arg(long, short, value_name = "DIR")]
        target_folder: Option<OsString>,
        /// Accepted for scripts; it is one file anyway
        #[arg(long, short = 'z')]
        archive: bool,
    },
}

fn decimal_size(text: &str) -> Result<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let stem = lower.strip_suffix('b').unwrap_or(&lower);
    if stem.ends_with('%') {
        return Err(Error::inval(format!("'{text}': a pool's size is given in bytes here")));
    }
    let decimal = ["k", "m", "g", "t", "p"].iter().position(|unit| stem.ends_with(unit));
    let Some(unit) = decimal.filter(|_| !stem.ends_with('i')) else {
        return types::size::parse(text);
    };
    let bad = || Error::inval(format!("'{text}' is not a size (examples: 100GB, 4GiB)"));
    let number: f64 = stem[..stem.len() - 1].parse().map_err(|_| bad())?;
    let bytes = number * 1000f64.powi(unit as i32 + 1);
    if !(bytes.is_finite() && (0.0..1e18).contains(&bytes)) {
        return Err(bad());
    }
    Ok(bytes.round() as u64)
}

impl Dmg {
    /// Our own arguments for the same thing.
    pub fn ours(&self) -> Vec<OsString> {
        let (answer, words) = match &self.noun {
            Noun::Pool(verb) => verb.ours(),
            Noun::System(System::Query) => ("dmg-system", Words::new(&["status"])),
            Noun::Support(Support::CollectLog { target_folder, .. }) => {
                let words = Words::new(&["system", "support", "collect"]);
                ("plain", words.option("folder", target_folder.as_ref()))
            }
            Noun::Version => ("plain", Words::new(&["--version"])),
        };
        self.common.ours(answer, words)
    }
}

impl Pool {
    fn ours(&self) -> (&'static str, Words) {
        let verb = |name: &str| Words::new(&["pool", name]);
        let moved = |name: &str, pool: &str, ranks: &str| {
            verb(name).option("rank", Some(ranks)).words(["--", pool])
        };
        match self {
            Pool::Create(create) => ("dmg-pool-create", create.ours()),
            Pool::List => ("dmg-pool-list", verb("list")),
            Pool::Query { pool } => ("daos-pool", verb("query").words(["--", pool])),
            Pool::Destroy { pool, force, recursive } => {
                ("plain", verb("destroy").flag("force", *force || *recursive).words(["--", pool]))
            }
            Pool::Drain { pool, rank } => ("plain", moved("drain", pool, rank)),
            Pool::Exclude { pool, rank } => ("plain", moved("exclude", pool, rank)),
            Pool::Reintegrate { pool, rank } => ("plain", moved("reintegrate", pool, rank)),
            Pool::Extend { pool, ranks } => ("plain", moved("extend", pool, ranks)),
            Pool::GetProp { pool, names } => {
                ("plain", verb("get-prop").words(["--", pool]).words(names))
            }
            Pool::SetProp { pool, values } => {
                ("plain", verb("set-prop").words(["--", pool]).words(assignments(values)))
            }
        }
    }
}

impl Create {
    fn ours(&self) -> Words {
        let (bytes, percent) = match (self.size, self.scm_size, self.nvme_size) {
            (None, Some(scm), Some(nvme)) => {
                let bytes = scm.saturating_add(nvme);
                let percent = (scm as f64 * 100.0 / bytes.max(1) as f64).round();
                (bytes, Some(percent.clamp(1.0, 99.0) as u8))
            }
            (size, ..) => (size.unwrap_or_default(), self.tier_ratio),
        };
        Words::new(&["pool", "create"])
            .option("size", Some(bytes.to_string()))
            .option("scm-percent", percent.map(|percent| percent.to_string()))
            .word("--")
            .words(self.label_option.as_ref().or(self.label.as_ref()))
    }
}
