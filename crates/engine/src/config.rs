//! The engine's configuration file (TOML).
//!
//! ```toml
//! dir = "/var/lib/azekura/engine0"      # identity, catalog, Unix socket
//! listen = "10.0.0.1:7710"              # TCP address; port 0 chooses one
//! join = ["10.0.0.1:7710"]              # engines of the system; empty: this one holds the catalog
//! domain = ["rack1", "node7"]           # fault domain, from the root down
//! token_file = "/etc/azekura/token"     # shared secret of the system
//!
//! [[target]]
//! device = "/mnt/nvme0/azekura"         # a directory, or a raw block device
//! ```
//!
//! A misspelt key is an error that names its line.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use types::{Code, Error, Result};

/// Settings of one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineConfig {
    /// The engine's own directory: identity, catalog, Unix socket.
    pub dir: PathBuf,
    /// TCP address to listen on; port 0 chooses a free one.
    #[serde(default = "default_listen")]
    pub listen: String,
    /// TCP address other hosts should use, if not the one listened on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// Addresses of engines of the system to join; empty for the engine with the catalog.
    #[serde(default)]
    pub join: Vec<String>,
    /// Fault domain, from the root down; empty: the host name.
    #[serde(default)]
    pub domain: Vec<String>,
    /// File with the shared secret of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// The targets.
    #[serde(rename = "target")]
    pub targets: Vec<TargetConfig>,
}

/// Settings of one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// Where it keeps its data: a directory, or a raw block device (or a file used as one).
    pub device: PathBuf,
}

fn default_listen() -> String {
    "127.0.0.1:0".to_string()
}

/// Most targets of one engine.
const TARGETS_MAX: usize = 256;

impl EngineConfig {
    /// Parses the text of a configuration file; `name` is for error messages.
    pub fn parse(text: &str, name: &str) -> Result<EngineConfig> {
        let config: EngineConfig = toml::from_str(text)
            .map_err(|error| Error::inval(format!("{name}: {}", error.to_string().trim_end())))?;
        if config.targets.is_empty() || config.targets.len() > TARGETS_MAX {
            return Err(Error::inval(format!(
                "{name}: an engine has 1 to {TARGETS_MAX} [[target]] sections, not {}",
                config.targets.len()
            )));
        }
        for (at, target) in config.targets.iter().enumerate() {
            if config.targets[..at].iter().any(|other| other.device == target.device) {
                return Err(Error::inval(format!(
                    "{name}: device {} is given to two targets",
                    target.device.display()
                )));
            }
        }
        Ok(config)
    }

    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<EngineConfig> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => Code::NonExist,
                _ => Code::Io,
            };
            Error::new(code, format!("reading {}: {error}", path.display()))
        })?;
        EngineConfig::parse(&text, &path.display().to_string())
    }

    /// The shared secret; empty when none is set.
    pub fn token(&self) -> Result<Vec<u8>> {
        let Some(path) = &self.token_file else { return Ok(Vec::new()) };
        let token = std::fs::read(path)
            .map_err(|error| Error::io(format!("reading token file {}", path.display()), error))?;
        let token = token.trim_ascii().to_vec();
        if token.is_empty() {
            return Err(Error::inval(format!("token file {} is empty", path.display())));
        }
        Ok(token)
    }

    /// Path of the engine's Unix socket.
    pub fn unix_path(&self) -> PathBuf {
        self.dir.join("engine.sock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "dir = '/a'\nlisten = '127.0.0.1:0'\n[[target]]\ndevice = '/b'\n";

    #[test]
    fn a_good_file_parses() {
        let config = EngineConfig::parse(GOOD, "x.toml").unwrap();
        assert_eq!(config.targets.len(), 1);
        assert!(config.join.is_empty());
    }

    #[test]
    fn a_typo_is_named_with_its_line() {
        let text = GOOD.replace("listen", "lisen");
        let error = EngineConfig::parse(&text, "x.toml").unwrap_err().to_string();
        assert!(error.contains("lisen") && error.contains("line 2"), "{error}");
    }

    #[test]
    fn targets_must_be_there_and_differ() {
        assert!(EngineConfig::parse("dir = '/a'\ntarget = []\n", "x").is_err());
        let twice = format!("{GOOD}[[target]]\ndevice = '/b'\n");
        assert!(EngineConfig::parse(&twice, "x").unwrap_err().to_string().contains("/b"));
    }
}
