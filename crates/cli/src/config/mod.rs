//! `azekura config`: the engines' configuration files.

mod generate;
mod keys;

use crate::exit::Outcome;
use crate::output::Table;
use crate::session::Session;
use engine::EngineConfig;
use std::path::PathBuf;
use types::Result;

/// Make, check and explain configuration files of engines.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura config generate --hosts host1,host2,host3 --etcd --device /dev/nvme0n1 --out files
  azekura config check /etc/azekura/engine.toml
  azekura config keys")]
pub struct ConfigArgs {
    #[command(subcommand)]
    verb: ConfigVerb,
}

#[derive(clap::Subcommand, Debug)]
enum ConfigVerb {
    Generate(generate::GenerateArgs),
    /// Check files, and that the secrets they name can be used; starts nothing
    #[command(after_help = "Example:\n  azekura config check /etc/azekura/engine.toml")]
    Check {
        /// Configuration files (TOML)
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Show every key with unit, default and range
    #[command(after_help = "Example:\n  azekura config keys")]
    Keys,
}

pub fn run(session: &Session, args: &ConfigArgs) -> Outcome {
    match &args.verb {
        ConfigVerb::Generate(args) => generate::run(session, args),
        ConfigVerb::Check { files } => {
            for file in files {
                check(&EngineConfig::read(file)?)
                    .map_err(|error| error.context(file.display().to_string()))?;
                session.out.done(&format!("{}: no mistakes found.", file.display()))?;
            }
            Ok(())
        }
        ConfigVerb::Keys => session.out.show(&keys::KEYS, |out| {
            let mut table = Table::new(&["SECTION", "KEY", "VALUE", "DEFAULT", "MEANING"]);
            for key in keys::KEYS {
                let all = [key.section, key.key, key.value, key.default, key.meaning];
                table.row(all.map(String::from).to_vec());
            }
            table.write(out)
        }),
    }
}

/// What of a configuration shows only when it is used.
pub fn check(config: &EngineConfig) -> Result<()> {
    config.check_addresses()?;
    config.token()?;
    config.catalog.access()?;
    config.is_exposed()?;
    if let Some(metrics) = &config.metrics {
        metrics.address()?;
    }
    Ok(())
}
