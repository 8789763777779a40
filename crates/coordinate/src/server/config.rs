//! Settings of a coordinator: a TOML file, or the same by flags.
//!
//! ```toml
//! listen = ["unix:/run/azekura/ioc.sock", "tcp:0.0.0.0:7720"]
//! token_file = "/etc/azekura/ioc.token"   # what TCP clients must know
//! socket_mode = "0666"                    # who may use the Unix socket
//! metrics = "127.0.0.1:9720"
//! max_writers = 2                         # a number, "auto", "auto:32", "off"
//! max_readers = "off"
//! min_write_size = "8MiB"                 # overrides what clients have set
//!
//! [[target]]                              # the first pattern that matches a target counts
//! pattern = "flash*"
//! max_writers = 16
//!
//! [[job]]
//! pattern = "urgent-*"
//! weight = 4
//!
//! [[group]]                               # none: one group without a name
//! name = "z7"
//! max_writers = "auto"
//! ```
//!
//! A misspelt key is an error that names its line.

use crate::message::NAME_BYTES_MAX;
use crate::pattern::Pattern;
use crate::queue::{Limit, Limits, Settings};
use crate::rules::settings::parse_duration;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use types::{Code, Error, Result, size};

/// `auto` without a bound searches up to this limit.
const AUTO_MAX: u32 = 64;
/// Longest path of a Unix socket.
const UNIX_PATH_MAX: usize = 107;

/// Where a coordinator listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Unix(PathBuf),
    /// A TCP address and port; port 0 chooses one.
    Tcp(String),
}

impl FromStr for Listen {
    type Err = Error;

    fn from_str(text: &str) -> Result<Listen> {
        match text.split_once(':') {
            Some(("unix", path)) if (1..=UNIX_PATH_MAX).contains(&path.len()) => {
                Ok(Listen::Unix(path.into()))
            }
            Some(("tcp", address)) if address.contains(':') => Ok(Listen::Tcp(address.into())),
            _ => Err(Error::inval(format!(
                "'{text}' is no place to listen (tcp:ADDRESS:PORT or unix:PATH, a path of at most \
                 {UNIX_PATH_MAX} bytes)"
            ))),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
            Listen::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// A limit as people write it: a number, `off`, `auto`, `auto:MAX`.
pub fn parse_limit(text: &str) -> Result<Limit> {
    let number =
        |text: &str| text.parse::<u32>().ok().filter(|number| (1..=65_535).contains(number));
    match text.trim() {
        "off" => Ok(Limit::Off),
        "auto" => Ok(Limit::Auto { max: AUTO_MAX }),
        other => match other.strip_prefix("auto:") {
            Some(max) => number(max).map(|max| Limit::Auto { max }),
            None => number(other).map(Limit::Fixed),
        }
        .ok_or_else(|| {
            Error::inval(format!("'{text}' is no limit (1 to 65535, auto, auto:MAX, off)"))
        }),
    }
}

/// A size as people write it.
fn parse_size(text: &str) -> Result<u64> {
    size::parse(text).map_err(|error| Error::inval(error.to_string()))
}

/// Reads a value with its parser; numbers may stand without quotes.
fn parsed<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Result<T>,
) -> std::result::Result<Option<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Raw {
        Number(u64),
        Text(String),
    }
    let text = match Raw::deserialize(from)? {
        Raw::Number(number) => number.to_string(),
        Raw::Text(text) => text,
    };
    parse(&text).map(Some).map_err(serde::de::Error::custom)
}

fn limit_value<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Limit>, D::Error> {
    parsed(from, parse_limit)
}

fn size_value<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<u64>, D::Error> {
    parsed(from, parse_size)
}

fn duration_value<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<Duration>, D::Error> {
    parsed(from, parse_duration)
}

fn listen_values<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Vec<Listen>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let places: Result<Vec<Listen>> = texts.iter().map(|text| text.parse()).collect();
    places.map_err(serde::de::Error::custom)
}

fn mode_value<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<u32>, D::Error> {
    let text = String::deserialize(from)?;
    parse_mode(&text).map(Some).map_err(serde::de::Error::custom)
}

/// A file mode in octal digits.
pub fn parse_mode(text: &str) -> Result<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| Error::inval(format!("'{text}' is no file mode (example: 0660)")))
}

/// Limits of the targets a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRule {
    pub pattern: String,
    /// Instead of the group's.
    #[serde(default, deserialize_with = "limit_value")]
    pub max_writers: Option<Limit>,
    /// Instead of the group's.
    #[serde(default, deserialize_with = "limit_value")]
    pub max_readers: Option<Limit>,
}

/// Weight of the jobs a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRule {
    pub pattern: String,
    /// Share of the jobs that match.
    pub weight: u16,
}

/// A group of clients and targets; what it does not set is as for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// Its name, told by clients.
    pub name: String,
    /// Writers per target.
    #[serde(default, deserialize_with = "limit_value")]
    pub max_writers: Option<Limit>,
    /// Readers per target.
    #[serde(default, deserialize_with = "limit_value")]
    pub max_readers: Option<Limit>,
    /// Looked at before those for all.
    #[serde(default, rename = "target")]
    pub targets: Vec<TargetRule>,
    /// Looked at before those for all.
    #[serde(default, rename = "job")]
    pub jobs: Vec<JobRule>,
}

/// How long a coordinator waits for its peers. Not in the file: nobody should need to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a stranger's hello.
    pub hello: Duration,
    /// From the first byte of a frame to its last.
    pub frame: Duration,
    /// For a peer to take something of what is sent to it.
    pub stall: Duration,
    /// For a request for metrics and the reading of the answer.
    pub http: Duration,
    /// For the reading of a refusal.
    pub linger: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            hello: Duration::from_secs(5),
            frame: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            http: Duration::from_secs(10),
            linger: Duration::from_secs(2),
        }
    }
}

/// The file that a coordinator is configured by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    #[serde(default, deserialize_with = "listen_values")]
    pub listen: Vec<Listen>,
    /// What clients over TCP must know.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// Listen on TCP without a token.
    #[serde(default)]
    pub no_token: bool,
    /// File mode of Unix sockets; `None`: 0600.
    #[serde(default, deserialize_with = "mode_value")]
    pub socket_mode: Option<u32>,
    /// TCP address for Prometheus.
    #[serde(default)]
    pub metrics: Option<String>,
    /// File to append the trace to.
    #[serde(default)]
    pub trace: Option<PathBuf>,
    /// Writers per target; `None`: 2.
    #[serde(default, deserialize_with = "limit_value")]
    pub max_writers: Option<Limit>,
    /// Readers per target; `None`: off.
    #[serde(default, deserialize_with = "limit_value")]
    pub max_readers: Option<Limit>,
    /// Writes of fewer bytes need not ask; `None`: as clients like.
    #[serde(default, deserialize_with = "size_value")]
    pub min_write_size: Option<u64>,
    /// The same for reads.
    #[serde(default, deserialize_with = "size_value")]
    pub min_read_size: Option<u64>,
    /// See [`Settings::hold_us_max`].
    #[serde(default, deserialize_with = "duration_value")]
    pub hold_max: Option<Duration>,
    /// See [`Settings::passes_max`].
    #[serde(default)]
    pub passes_max: Option<u32>,
    /// See [`Settings::overtakes_max`].
    #[serde(default)]
    pub overtakes_max: Option<u32>,
    /// Most clients; `None`: as many as the system lets us have files.
    #[serde(default)]
    pub clients_max: Option<usize>,
    /// How long to wait for peers.
    #[serde(skip)]
    pub patience: Patience,
    /// For targets of all groups.
    #[serde(default, rename = "target")]
    pub targets: Vec<TargetRule>,
    /// For jobs of all groups.
    #[serde(default, rename = "job")]
    pub jobs: Vec<JobRule>,
    /// The groups; the first is for clients that name none. Empty: one without a name.
    #[serde(default, rename = "group")]
    pub groups: Vec<GroupConfig>,
}

impl ServerConfig {
    /// Reads and checks a file; errors name it.
    pub fn read(path: &Path) -> Result<ServerConfig> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path.display(), e))?;
        ServerConfig::parse(&text).map_err(|error| error.context(path.display()))
    }

    /// Takes the text of a file apart.
    pub fn parse(text: &str) -> Result<ServerConfig> {
        let config: ServerConfig =
            toml::from_str(text).map_err(|error| Error::inval(error.to_string()))?;
        config.groups()?;
        Ok(config)
    }

    /// Each group's name and settings. Errors: a name twice or too long, a number out of range.
    pub fn groups(&self) -> Result<Vec<(String, Settings)>> {
        let nameless = [GroupConfig::default()];
        let groups = if self.groups.is_empty() { &nameless[..] } else { &self.groups };
        let usual = Settings::default();
        let mut made: Vec<(String, Settings)> = Vec::new();
        for group in groups {
            let name = &group.name;
            if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
                return Err(Error::inval(format!(
                    "a group's name has at most {NAME_BYTES_MAX} bytes and no control characters"
                )));
            }
            if made.iter().any(|(other, _)| other == name) {
                return Err(Error::new(Code::Inval, format!("two groups are named '{name}'")));
            }
            let limits = Limits {
                write: group.max_writers.or(self.max_writers).unwrap_or(usual.limits.write),
                read: group.max_readers.or(self.max_readers).unwrap_or(usual.limits.read),
            };
            let targets = group.targets.iter().chain(&self.targets).map(|rule| {
                let write = rule.max_writers.unwrap_or(limits.write);
                let read = rule.max_readers.unwrap_or(limits.read);
                (Pattern::new(&rule.pattern), Limits { write, read })
            });
            let mut weights = Vec::new();
            for rule in group.jobs.iter().chain(&self.jobs) {
                if rule.weight == 0 {
                    return Err(Error::inval(format!("job '{}': weight 0", rule.pattern)));
                }
                weights.push((Pattern::new(&rule.pattern), rule.weight));
            }
            let hold_us = self.hold_max.map(|time| time.as_micros() as u64);
            let settings = Settings {
                targets: targets.collect(),
                limits,
                weights,
                passes_max: self.passes_max.unwrap_or(usual.passes_max),
                overtakes_max: self.overtakes_max.unwrap_or(usual.overtakes_max),
                hold_us_max: hold_us.unwrap_or(usual.hold_us_max),
            };
            made.push((name.clone(), settings));
        }
        Ok(made)
    }

    /// Least bytes of a coordinated write and read, to tell clients.
    pub fn minimums(&self) -> (Option<u64>, Option<u64>) {
        (self.min_write_size, self.min_read_size)
    }

    /// The token clients over TCP must know: the first line of the file. `None`: none is
    /// needed. Errors: TCP without a token and without `no_token`; a file without a
    /// usable line.
    pub fn token(&self) -> Result<Option<Vec<u8>>> {
        let Some(path) = &self.token_file else {
            let tcp = self.listen.iter().any(|place| matches!(place, Listen::Tcp(_)));
            if tcp && !self.no_token {
                return Err(Error::inval(
                    "listening on TCP needs a token file, or the explicit wish for none (no_token)",
                ));
            }
            return Ok(None);
        };
        let text = std::fs::read(path).map_err(|error| Error::io(path.display(), error))?;
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let line = line.trim_ascii();
        if line.is_empty() || line.len() > NAME_BYTES_MAX {
            return Err(Error::inval(format!(
                "{}: the first line is the token, 1 to {NAME_BYTES_MAX} bytes",
                path.display()
            )));
        }
        Ok(Some(line.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_file_means_what_it_says() {
        let source = include_str!("config.rs");
        let text: String = source
            .lines()
            .skip_while(|line| *line != "//! ```toml")
            .skip(1)
            .take_while(|line| *line != "//! ```")
            .map(|line| line.trim_start_matches("//!").to_string() + "\n")
            .collect();
        let config = ServerConfig::parse(&text).unwrap();
        assert_eq!(config.listen.len(), 2);
        assert_eq!((config.socket_mode, config.min_write_size), (Some(0o666), Some(8 << 20)));
        let groups = config.groups().unwrap();
        assert_eq!(groups.len(), 1);
        let (name, settings) = &groups[0];
        assert_eq!(name, "z7");
        assert_eq!(settings.limits, Limits { write: Limit::Auto { max: 64 }, read: Limit::Off });
        assert_eq!(settings.targets[0].1, Limits { write: Limit::Fixed(16), read: Limit::Off });
        assert_eq!(settings.weights[0].1, 4);
    }

    /// The file in the manual is one that can be used.
    #[test]
    fn the_manual_s_file_is_valid() {
        let manual = include_str!("../../../../docs/coordination.md");
        let (_, rest) = manual.split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let config = ServerConfig::parse(text).unwrap();
        assert_eq!(config.hold_max, Some(Duration::from_secs(600)));
        let groups = config.groups().unwrap();
        let usual = Settings::default();
        let bounds = (groups[0].1.passes_max, groups[0].1.overtakes_max, groups[0].1.hold_us_max);
        assert_eq!(bounds, (usual.passes_max, usual.overtakes_max, usual.hold_us_max));
    }

    #[test]
    fn without_anything_it_is_the_paper_s() {
        let groups = ServerConfig::parse("").unwrap().groups().unwrap();
        assert_eq!((groups[0].0.as_str(), groups[0].1.limits), ("", Limits::default()));
    }

    #[test]
    fn mistakes_are_told() {
        for (text, part) in [
            ("max_writers = 0", "no limit"),
            ("max_writers = 'some'", "no limit"),
            ("max_writers = 'auto:0'", "no limit"),
            ("max_writer = 2", "unknown field"),
            ("listen = ['udp:1:2']", "no place to listen"),
            ("listen = ['unix:']", "no place to listen"),
            ("socket_mode = '0999'", "no file mode"),
            ("hold_max = 'long'", "no duration"),
            ("min_write_size = 'big'", "big"),
            ("[[group]]\nname = 'a'\n[[group]]\nname = 'a'", "two groups"),
            ("[[job]]\npattern = 'a'\nweight = 0", "weight 0"),
            ("[[target]]\nmax_writers = 1", "pattern"),
        ] {
            let error = ServerConfig::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn tcp_needs_a_token_or_the_wish_for_none() {
        let parse = |text: &str| ServerConfig::parse(text).unwrap().token();
        assert!(parse("listen = ['tcp:127.0.0.1:0']").is_err());
        assert_eq!(parse("listen = ['tcp:127.0.0.1:0']\nno_token = true").unwrap(), None);
        assert_eq!(parse("listen = ['unix:/a']").unwrap(), None);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let config = ServerConfig { token_file: Some(file.clone()), ..ServerConfig::default() };
        std::fs::write(&file, " secret \nmore\n").unwrap();
        assert_eq!(config.token().unwrap(), Some(b"secret".to_vec()));
        std::fs::write(&file, "\n").unwrap();
        assert!(config.token().is_err());
    }
}
