//! The settings of an engine that is started without a configuration file: what a first try and a script need.

use crate::session::absolute;
use crate::system::catalog::etcd_place;
use engine::{CatalogConfig, EngineConfig, TargetConfig};
use std::path::{Path, PathBuf};
use types::{Error, Result};

/// Where they come from, in messages.
const NAME: &str = "the settings of the command";

/// What `azekura engine` takes in the place of a file.
#[derive(clap::Args, Debug)]
#[group(id = "settings", multiple = true, conflicts_with = "config")]
pub struct Settings {
    /// Without a file: the engine's own directory
    #[arg(long, value_name = "DIR", requires = "device")]
    engine_dir: Option<PathBuf>,
    /// Without a file: a target's directory or device; once for each target
    #[arg(long, value_name = "PATH", requires = "engine_dir")]
    device: Vec<PathBuf>,
    /// Without a file: the system to join, tcp://HOST:PORT[,HOST:PORT…], or where it has its catalog,
    /// etcd://HOST:PORT[,HOST:PORT…][/PREFIX]; without this the engine begins a system
    #[arg(long, value_name = "PLACE", requires = "engine_dir")]
    join: Option<String>,
    /// Without a file: TCP address of this engine [default: 127.0.0.1:0]
    #[arg(long, value_name = "HOST:PORT", requires = "engine_dir")]
    listen: Option<String>,
    /// Without a file: where the engine is, from the outside in: rack1/node7 [default: the host name]
    #[arg(long, value_name = "/RACK/NODE", requires = "engine_dir")]
    domain: Option<String>,
    /// Without a file: file with the secret of clients
    #[arg(long, value_name = "FILE", requires = "engine_dir")]
    token_file: Option<PathBuf>,
    /// Without a file: file with the secret of engines and administrators
    #[arg(long, value_name = "FILE", requires = "engine_dir")]
    admin_token_file: Option<PathBuf>,
}

impl Settings {
    /// The configuration that they are; `None` when none is given.
    ///
    /// Errors: `Inval` for what a file with them could not say either.
    pub fn config(&self) -> Result<Option<EngineConfig>> {
        let Some(dir) = &self.engine_dir else { return Ok(None) };
        let file = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
        let (join, catalog) = match &self.join {
            Some(place) => joined(place)?,
            None => (Vec::new(), CatalogConfig::default()),
        };
        let mut table = toml::Table::new();
        table.insert("dir".into(), value(&absolute(dir)?)?);
        if let Some(listen) = &self.listen {
            table.insert("listen".into(), value(listen)?);
        }
        let domain: Vec<&str> = self.domain.iter().flat_map(|domain| domain.split('/')).collect();
        let domain: Vec<&str> = domain.into_iter().filter(|name| !name.is_empty()).collect();
        table.insert("domain".into(), value(&domain)?);
        table.insert("join".into(), value(&join)?);
        let secrets =
            [("token_file", &self.token_file), ("admin_token_file", &self.admin_token_file)];
        for (key, path) in secrets {
            if let Some(path) = file(path)? {
                table.insert(key.into(), value(&path)?);
            }
        }
        if catalog != CatalogConfig::default() {
            table.insert("catalog".into(), value(&catalog)?);
        }
        let devices = self.device.iter().map(|path| absolute(path).map(TargetConfig::on));
        table.insert("target".into(), value(&devices.collect::<Result<Vec<_>>>()?)?);
        // As a file would be, so that nothing is checked twice or less.
        EngineConfig::parse(&table.to_string(), NAME).map(Some)
    }
}

/// What `join` and `[catalog]` are for a place.
fn joined(place: &str) -> Result<(Vec<String>, CatalogConfig)> {
    if let Some(catalog) = etcd_place(place)? {
        return Ok((Vec::new(), catalog));
    }
    let hosts = place.strip_prefix("tcp://").ok_or_else(|| {
        Error::inval(format!("'{place}' is neither tcp://HOST:PORT nor etcd://HOST:PORT"))
    })?;
    let hosts: Vec<String> =
        hosts.split(',').filter(|host| !host.is_empty()).map(str::to_string).collect();
    match hosts.is_empty() {
        true => Err(Error::inval(format!("'{place}' names no host"))),
        false => Ok((hosts, CatalogConfig::default())),
    }
}

fn value<T: serde::Serialize + ?Sized>(of: &T) -> Result<toml::Value> {
    toml::Value::try_from(of).map_err(|error| Error::inval(format!("{NAME}: {error}")))
}

/// Writes a configuration to a new file.
pub fn save(config: &EngineConfig, path: &Path) -> Result<()> {
    let text = toml::to_string(config)
        .map_err(|error| Error::inval(format!("{NAME} as TOML: {error}")))?;
    let failed = |error| Error::io(format!("writing {}", path.display()), error);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Command {
        #[arg(long)]
        config: Option<PathBuf>,
        #[command(flatten)]
        settings: Settings,
    }

    fn settings(args: &str) -> Result<EngineConfig> {
        let args = ["x", "--engine-dir", "/e"].into_iter().chain(args.split_whitespace());
        Ok(Command::try_parse_from(args).unwrap().settings.config()?.unwrap())
    }

    #[test]
    fn settings_say_what_a_file_says() {
        let given = settings(
            "--device /a --device /b --listen h:1 --domain /rack1/node7 --token-file /t --admin-token-file /u \
             --join tcp://h1:7710,h2:7710",
        );
        let file = "dir = '/e'\nlisten = 'h:1'\njoin = ['h1:7710', 'h2:7710']\ndomain = ['rack1', 'node7']\n\
                    token_file = '/t'\nadmin_token_file = '/u'\n[[target]]\ndevice = '/a'\n[[target]]\ndevice = '/b'\n";
        assert_eq!(given.unwrap(), EngineConfig::parse(file, "x").unwrap());
        let given = settings("--device /a --join etcds://h1:2379,h2:2379/mine").unwrap();
        let file = "dir = '/e'\n[catalog]\nkind = 'etcd'\nprefix = 'mine'\n\
                    endpoints = ['https://h1:2379', 'https://h2:2379']\n[[target]]\ndevice = '/a'\n";
        assert_eq!(given, EngineConfig::parse(file, "x").unwrap());
    }

    #[test]
    fn what_a_file_could_not_say_is_refused() {
        for (args, word) in [
            ("--device /a --device /a", "/a"),
            ("--device /a --join h1:7710", "h1:7710"),
            ("--device /a --join tcp://", "no host"),
            ("--device /a --join etcd://", "no host"),
        ] {
            let error = settings(args).unwrap_err();
            assert!(error.to_string().contains(word), "{args}: {error}");
        }
        let both = ["x", "--config", "/c", "--engine-dir", "/e", "--device", "/a"];
        assert!(Command::try_parse_from(both).is_err());
        assert!(Command::try_parse_from(["x", "--listen", "h:1"]).is_err());
    }
}
