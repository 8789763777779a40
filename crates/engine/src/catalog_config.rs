//! Where the catalog is: the section `[catalog]` of an engine's configuration.
//!
//! ```toml
//! [catalog]
//! kind = "etcd"                                     # default "embedded": in the engine's own directory
//! endpoints = ["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"]
//! prefix = "azekura"                                # of all keys of this system
//! ca = "/etc/azekura/etcd-ca.pem"                   # who signs etcd's certificates
//! cert = "/etc/azekura/etcd.pem"                    # this engine's certificate and key
//! key = "/etc/azekura/etcd.key"
//! user = "azekura"
//! password_file = "/etc/azekura/etcd.password"      # for nobody but the engine's user and group
//! ```

use control::{EtcdAccess, EtcdConfig};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use types::{Error, Result};
use uuid::Uuid;

/// What keeps the catalog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CatalogKind {
    /// Two files in the engine's directory.
    #[default]
    Embedded,
    Etcd,
}

/// Settings of the catalog, for engines that may hold the control service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogConfig {
    #[serde(default)]
    pub kind: CatalogKind,
    /// Client addresses of etcd's members: `http://HOST:PORT` or `https://HOST:PORT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// Beginning of all keys of this system (default `azekura`): letters, digits and `-_./`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// PEM file with the authorities that sign etcd's certificates (default: those of Mozilla).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM files with this engine's certificate, if etcd asks for one, and with its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Name at etcd, if it asks for one, and the file with its password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

/// Reads a file that others must not read.
fn read_secret(path: &Path) -> Result<Vec<u8>> {
    let failed = |error| Error::io(format!("reading {}", path.display()), error);
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(Error::inval(format!(
            "{} has mode {:o}: everybody on this machine may use it; chmod o= it",
            path.display(),
            mode & 0o777
        )));
    }
    std::fs::read(path).map_err(failed)
}

impl CatalogConfig {
    pub(crate) fn is_default(&self) -> bool {
        *self == CatalogConfig::default()
    }

    /// Checks that settings go together. `Inval` when they do not. `joins`: the engine's configuration has `join`.
    pub fn check(&self, joins: bool) -> Result<()> {
        let bad = |why: &str| Err(Error::inval(format!("[catalog] {why}")));
        if self.kind == CatalogKind::Embedded {
            return match *self == CatalogConfig::default() {
                true => Ok(()),
                false => bad("has settings of etcd, but not kind = \"etcd\""),
            };
        }
        if joins {
            return bad("is for the engine that holds the catalog; this one has 'join'");
        }
        if self.endpoints.is_empty() {
            return bad("needs 'endpoints'");
        }
        if self.user.is_some() != self.password_file.is_some() {
            return bad("'user' and 'password_file' go together");
        }
        if self.cert.is_some() != self.key.is_some() {
            return bad("'cert' and 'key' go together");
        }
        Ok(())
    }

    /// Files that only the engine may read.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Path> {
        self.password_file.iter().chain(&self.key).map(|path| &**path)
    }

    /// How to reach etcd. Errors: `Inval` when everybody may read a secret, or certificate and key do not belong together; `Io`.
    pub fn access(&self) -> Result<EtcdAccess> {
        let mut login = None;
        if let (Some(user), Some(path)) = (&self.user, &self.password_file) {
            let text = String::from_utf8(read_secret(path)?.trim_ascii().to_vec());
            let text = text.map_err(|_| Error::inval(format!("{} is no text", path.display())))?;
            login = Some((user.clone(), text));
        }
        if let Some(key) = &self.key {
            read_secret(key)?;
        }
        let (ca, cert, key) = (self.ca.clone(), self.cert.clone(), self.key.clone());
        let access = EtcdAccess { endpoints: self.endpoints.clone(), ca, cert, key, login };
        if self.kind == CatalogKind::Etcd {
            control::check_access(&access)?;
        }
        Ok(access)
    }

    /// The catalog in etcd for this engine, which is at `host`; `run` is a random number. Errors as
    /// [`CatalogConfig::access`].
    pub fn etcd(&self, engine: Uuid, host: &str, run: u64) -> Result<EtcdConfig> {
        let prefix = self.prefix.as_deref().unwrap_or("azekura");
        Ok(EtcdConfig::new(self.access()?, prefix, engine, host, run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineConfig;
    use std::fs::Permissions;

    fn parse(section: &str) -> Result<EngineConfig> {
        let text = format!("dir = '/a'\n[[target]]\ndevice = '/b'\n[catalog]\n{section}");
        EngineConfig::parse(&text, "x.toml")
    }

    #[test]
    fn settings_of_etcd_go_together() {
        assert!(parse("kind = 'embedded'").unwrap().catalog.is_default());
        let good = "kind = 'etcd'\nendpoints = ['http://a:2379']\n";
        let config =
            parse(&format!("{good}prefix = 'p'\nuser = 'u'\npassword_file = '/p'")).unwrap();
        assert_eq!(config.catalog.kind, CatalogKind::Etcd);
        let text = toml::to_string(&config).unwrap();
        assert_eq!(EngineConfig::parse(&text, "x").unwrap(), config);
        for (bad, word) in [
            ("kind = 'zookeeper'", "embedded"),
            ("kind = 'etcd'", "endpoints"),
            ("endpoints = ['http://a']", "kind"),
            (&format!("{good}user = 'u'"), "password_file"),
            (&format!("{good}cert = '/c'"), "key"),
            (&format!("{good}pasword_file = '/c'"), "pasword_file"),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{bad}: {error}");
        }
        let joins =
            format!("dir = '/a'\njoin = ['b:1']\n[[target]]\ndevice = '/b'\n[catalog]\n{good}");
        assert!(EngineConfig::parse(&joins, "x").unwrap_err().to_string().contains("join"));
    }

    #[test]
    fn a_password_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        std::fs::write(&path, "secret\n").unwrap();
        let config = CatalogConfig {
            user: Some("u".into()),
            password_file: Some(path.clone()),
            ..CatalogConfig::default()
        };
        for mode in [0o600, 0o440] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let login = config.access().unwrap().login;
            assert_eq!(login, Some(("u".to_string(), "secret".to_string())));
        }
        for mode in [0o604, 0o666] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = config.access().err().unwrap().to_string();
            assert!(error.contains("password") && error.contains("chmod"), "{error}");
        }
    }
}
