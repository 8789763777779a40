//! Finding a system: `AZEKURA_SYSTEM`, or the default directory of `azekura up`.
//!
//! | form | meaning |
//! |---|---|
//! | `tcp://HOST:PORT,HOST:PORT,…` | TCP addresses of engines: one is enough, more are for when it is down |
//! | `unix:/PATH` | an engine's Unix socket on this host |
//! | `/DIRECTORY` | a directory with a `system.json` as `azekura up` leaves it |
//!
//! This is the one module of the client that reads the environment and a file: it runs before
//! there is a connection, never on a request path.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use transport::Address;
use types::{Code, Error, Result};

/// Contents of `system.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemFile {
    /// Engines, the one with the catalog first.
    pub engines: Vec<SystemEngine>,
    /// File with the shared secret, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

/// How to reach one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemEngine {
    pub unix: PathBuf,
    /// `HOST:PORT`.
    pub tcp: String,
}

impl SystemFile {
    /// The file's name in a system directory.
    pub const NAME: &str = "system.json";

    /// Reads `DIR/system.json`.
    pub fn read(dir: &Path) -> Result<SystemFile> {
        let path = dir.join(Self::NAME);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                Error::new(
                    Code::NonExist,
                    format!("no system at {} (start one with 'azekura up')", dir.display()),
                )
            } else {
                Error::named_file(format!("reading {}", path.display()), error)
            }
        })?;
        serde_json::from_str(&text)
            .map_err(|error| Error::inval(format!("{}: {error}", path.display())))
    }

    /// Writes `DIR/system.json` so that readers see the old or the new file.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("plain data serializes");
        let path = dir.join(Self::NAME);
        let fresh = dir.join(format!("{}.new", Self::NAME));
        std::fs::write(&fresh, text + "\n")
            .and_then(|()| std::fs::rename(&fresh, &path))
            .map_err(|error| Error::io(format!("writing {}", path.display()), error))
    }
}

/// Where a system's engines can be asked, and the secret to show them.
#[derive(Clone, Debug)]
pub struct SystemAddress {
    /// Tried in order.
    pub engines: Vec<Address>,
    /// Shared secret; empty for none.
    pub token: Vec<u8>,
}

impl SystemAddress {
    /// `AZEKURA_SYSTEM` if set, else [`SystemAddress::default_dir`].
    pub fn discover() -> Result<SystemAddress> {
        match std::env::var("AZEKURA_SYSTEM") {
            Ok(text) if !text.is_empty() => Self::parse(&text),
            _ => Self::from_dir(&Self::default_dir()?),
        }
    }

    /// `$XDG_STATE_HOME/azekura/default`, or the same under `~/.local/state`.
    pub fn default_dir() -> Result<PathBuf> {
        let state = std::env::var_os("XDG_STATE_HOME").filter(|dir| !dir.is_empty());
        let base = match (state, std::env::var_os("HOME").filter(|dir| !dir.is_empty())) {
            (Some(state), _) => PathBuf::from(state),
            (None, Some(home)) => PathBuf::from(home).join(".local/state"),
            (None, None) => {
                return Err(Error::inval("neither XDG_STATE_HOME nor HOME is set; give --dir"));
            }
        };
        Ok(base.join("azekura/default"))
    }

    /// Parses one of the forms of the module header.
    pub fn parse(text: &str) -> Result<SystemAddress> {
        if let Some(addresses) = text.strip_prefix("tcp://") {
            let addresses = addresses.split(',').filter(|address| !address.is_empty());
            let has_port = |address: &str| {
                let cut = address.rsplit_once(':');
                cut.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
            };
            if let Some(wrong) = addresses.clone().find(|address| !has_port(address)) {
                return Err(Error::inval(format!("'{wrong}' in '{text}' is not HOST:PORT")));
            }
            return Ok(SystemAddress {
                engines: addresses.map(|address| Address::Tcp(address.to_string())).collect(),
                token: token_from_env()?,
            });
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(SystemAddress {
                engines: vec![Address::Unix(PathBuf::from(path))],
                token: token_from_env()?,
            });
        }
        if text.starts_with('/') || text.starts_with('.') {
            return Self::from_dir(Path::new(text));
        }
        Err(Error::inval(format!(
            "'{text}' does not name a system (want tcp://HOST:PORT, unix:/PATH or a directory)"
        )))
    }

    /// The system that `azekura up --dir DIR` started.
    pub fn from_dir(dir: &Path) -> Result<SystemAddress> {
        let file = SystemFile::read(dir)?;
        let token = match &file.token_file {
            Some(path) => read_token(&dir.join(path))?,
            None => Vec::new(),
        };
        let mut engines: Vec<Address> =
            file.engines.iter().map(|engine| Address::Unix(engine.unix.clone())).collect();
        engines.extend(file.engines.iter().map(|engine| Address::Tcp(engine.tcp.clone())));
        Ok(SystemAddress { engines, token })
    }
}

/// Secret from the file that `AZEKURA_TOKEN_FILE` names, if it is set.
fn token_from_env() -> Result<Vec<u8>> {
    match std::env::var_os("AZEKURA_TOKEN_FILE").filter(|path| !path.is_empty()) {
        Some(path) => read_token(Path::new(&path)),
        None => Ok(Vec::new()),
    }
}

fn read_token(path: &Path) -> Result<Vec<u8>> {
    let token = std::fs::read(path).map_err(|error| {
        Error::named_file(format!("reading the token file {}", path.display()), error)
    })?;
    Ok(token.trim_ascii().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_and_nonsense_is_named() {
        let tcp = SystemAddress::parse("tcp://10.0.0.1:7000").unwrap();
        assert!(matches!(&tcp.engines[..], [Address::Tcp(a)] if a == "10.0.0.1:7000"));
        for wrong in ["tcp://10.0.0.1", "tcp://a:1,b", "tcp://a:http", "tcp://:1"] {
            assert_eq!(SystemAddress::parse(wrong).unwrap_err().code, Code::Inval, "{wrong}");
        }
        assert!(SystemAddress::parse("tcp://[::1]:7000").is_ok());
        let three = SystemAddress::parse("tcp://a:1,b:2,c:3").unwrap();
        assert!(matches!(&three.engines[..], [_, Address::Tcp(b), _] if b == "b:2"));
        let unix = SystemAddress::parse("unix:/run/a.sock").unwrap();
        assert!(matches!(&unix.engines[..], [Address::Unix(p)] if p == Path::new("/run/a.sock")));
        assert!(SystemAddress::parse("bogus").unwrap_err().to_string().contains("bogus"));
        let missing = SystemAddress::parse("/nonexistent/azekura").unwrap_err();
        assert_eq!(missing.code, Code::NonExist);
        assert!(missing.to_string().contains("azekura up"));
    }

    #[test]
    fn the_system_file_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let file = SystemFile {
            engines: vec![SystemEngine { unix: "/a/b.sock".into(), tcp: "127.0.0.1:1".into() }],
            token_file: None,
        };
        file.write(dir.path()).unwrap();
        assert_eq!(SystemFile::read(dir.path()).unwrap(), file);
    }
}
