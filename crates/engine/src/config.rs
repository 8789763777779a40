//! The engine's configuration file (TOML).
//!
//! ```toml
//! dir = "/var/lib/azekura/engine0"      # identity, catalog, Unix socket
//! listen = "10.0.0.1:7710"              # TCP address; port 0 chooses one
//! join = ["10.0.0.1:7710"]              # engines of the system; empty: this one holds the catalog
//! domain = ["rack1", "node7"]           # fault domain, from the root down
//! token_file = "/etc/azekura/token"     # shared secret of the system
//! admin_token_file = "/etc/azekura/admin-token"   # one for engines and administrators alone (default: the same)
//! down_after_s = 5                      # silent for so long, another engine is down
//! failover = true                       # groups go on without the targets of one that is down
//! rebuild_after_s = 60                  # down for so long, others get its copies; 0 is never
//! insecure = false                      # true: listen beyond this machine without a token
//!
//! [metrics]
//! listen = "127.0.0.1:7711"             # where Prometheus finds figures (default: nowhere)
//!
//! [store]
//! nvme = ["/dev/nvme0n1"]               # data devices, shared out over the targets
//! inline_bytes_max = "4KiB"             # smaller values go to index and log
//! metadata_cache = "1GiB"               # memory for the index of each target
//! data_cache_percent = 10               # of the machine's memory, for data read from devices
//! write_queue_ms = 10                   # data devices get no more to write at a time than that takes; 0: no limit
//! measure = "64MiB"                     # written and read to measure devices; 0: not
//! measure_every_h = 24                  # again after so long, when nobody works; 0: not
//!
//! [[target]]
//! scm = "/mnt/pmem0/azekura"            # index and log
//! cores = [2]                           # its thread runs on these only (default: on any)
//! rate_max = "200MiB"                   # most that it reads and writes a second (default: no limit)
//!
//! [[target]]
//! scm = "/mnt/pmem1/azekura"
//! nvme = ["/dev/nvme1n1"]               # data devices of its own
//!
//! [[target]]
//! device = "/mnt/disk2"                 # all on one
//! ```
//!
//! `[catalog]` is told in `catalog_config`. Each device is a directory, a block device, or a file used as one. A misspelt key is an error
//! that names its line.

use crate::catalog_config::CatalogConfig;
use crate::metrics_config::MetricsConfig;
use crate::portions::Portions;
use crate::tokens::Tokens;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::time::Duration;
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
    /// File with the secret of engines and administrators: without it nobody speaks for an engine, nor changes pools
    /// or the system (default: whoever has the system's secret may).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_token_file: Option<PathBuf>,
    /// Listen beyond this machine even without a token: whoever reaches the address may do
    /// anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Memory for messages that are being received or answered (default: a quarter of the machine's,
    /// 4GiB at most; at least 64MiB). One user or one host may take a quarter of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_memory: Option<Bytes>,
    /// How long another engine may give no answer before it is down, seconds (default 5; 2 to 86400). Counts at the
    /// engine that holds the control service, as does `failover`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_after_s: Option<u32>,
    /// The targets of an engine that is down are down in the pool maps (default true): groups of objects with copies
    /// go on without them. When they are back they catch up.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub failover: bool,
    /// How long a target may be down before others stand in for it and its copies are made anew there, seconds (default 60; 0 is
    /// never, 31,536,000 the most). Those of excluded engines are not waited for. Counts where `down_after_s` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild_after_s: Option<u32>,
    /// Where figures are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsConfig>,
    /// Where the catalog is.
    #[serde(default, skip_serializing_if = "CatalogConfig::is_default")]
    pub catalog: CatalogConfig,
    /// What all targets share.
    #[serde(default, skip_serializing_if = "StoreConfig::is_default")]
    pub store: StoreConfig,
    #[serde(rename = "target")]
    pub targets: Vec<TargetConfig>,
}

fn yes() -> bool {
    true
}

/// Settings of the stores of all targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// Data devices for the targets that give `scm` but no `nvme`. More devices than targets:
    /// each target gets several, in turn, and stripes over them. Fewer: each device is cut into
    /// equal parts, one for each target on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvme: Vec<PathBuf>,
    /// Values smaller than this go to index and log, larger ones to the data devices
    /// (default 4KiB; 512 to 64KiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_bytes_max: Option<Bytes>,
    /// Small extents are joined in the background (default true).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<bool>,
    /// The data devices are told of large freed runs (default: block devices are, files not).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard: Option<bool>,
    /// Memory for the index of each target (default 1GiB; at least 1MiB): what is more is read
    /// back when it is used. Pools of durability `memory` are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_cache: Option<Bytes>,
    /// Part of the machine's memory for data that were read from data devices, percent (default 10; 0 to 80). Pools say what of it they
    /// may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_cache_percent: Option<u32>,
    /// The data devices of a target are given no more to write at a time than they write in so long, milliseconds, by what was measured
    /// of them (default 10; 0: as much as there is).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_queue_ms: Option<u32>,
    /// What is written and read on each data device to measure it, ten seconds after the engine's first start there, for half a
    /// second at most (default 64MiB; 0: nothing is measured).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure: Option<Bytes>,
    /// Measured again when nobody works and it was so long ago, hours (default 24; 0: not by itself).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measure_every_h: Option<u32>,
    /// How much goes into one message between targets.
    #[serde(skip)]
    pub portions: Portions,
}

impl StoreConfig {
    fn is_default(&self) -> bool {
        *self == StoreConfig::default()
    }
}

/// A number of bytes; in the file a number or a text such as `4KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a size such as 4096 or \"4KiB\"")
            }
            fn visit_u64<E>(self, bytes: u64) -> Result<Bytes, E> {
                Ok(Bytes(bytes))
            }
            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<Bytes, E> {
                u64::try_from(bytes).map(Bytes).map_err(|_| E::custom("a size is not negative"))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
                types::size::parse(text).map(Bytes).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Settings of one target: `device`, or `scm` with data devices of its own or the engine's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// One device for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// The device for index and log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scm: Option<PathBuf>,
    /// The devices for data, striped over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvme: Vec<PathBuf>,
    /// Cores that the target's thread runs on; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<usize>,
    /// Most that it reads and writes of its devices, bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_max: Option<Bytes>,
}

impl TargetConfig {
    /// A target with everything on one device.
    pub fn on(device: impl Into<PathBuf>) -> TargetConfig {
        TargetConfig { device: Some(device.into()), ..TargetConfig::default() }
    }
}

/// Checks that an address is a host and a port, or, if one is to be listened on (`chooses`), port 0.
fn check_address(key: &str, address: &str, chooses: bool) -> Result<()> {
    let bad = |why: &str| {
        let text = format!(
            "{key}: \"{address}\" {why}; an address is HOST:PORT, as 10.0.0.1:7710, host1:7710 or [fd00::1]:7710"
        );
        Err(Error::inval(text))
    };
    if address.contains("://") {
        return bad("begins with what is no part of it");
    }
    let Some((host, port)) = address.rsplit_once(':') else { return bad("has no port") };
    let is_bare = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    match port.parse::<u16>() {
        _ if host.is_empty() => bad("has no host"),
        _ if is_bare => bad("needs brackets around the host"),
        Err(_) => bad("has no port"),
        Ok(0) if !chooses => bad("has port 0, which nobody can reach"),
        Ok(_) => Ok(()),
    }
}

fn default_listen() -> String {
    "127.0.0.1:0".to_string()
}

/// Least memory for the index of a target, bytes.
const METADATA_CACHE_MIN: u64 = 1 << 20;
/// Least that the devices of a target may be held to, bytes a second.
const RATE_MAX_MIN: u64 = 1 << 20;
/// Least memory for messages, bytes: a quarter of it holds a few of the largest.
const MESSAGE_MEMORY_MIN: u64 = 64 << 20;
/// Part of the machine's memory for data read from devices, percent, ...
const DATA_CACHE_PERCENT_DEFAULT: u32 = 10;
/// ... and the most of it: the rest is for messages, the index, and whoever else is there.
const DATA_CACHE_PERCENT_MAX: u32 = 80;
/// More is no limit.
const WRITE_QUEUE_MS_MAX: u32 = 10_000;
/// Seconds without an answer after which an engine is down.
const DOWN_AFTER_S: std::ops::RangeInclusive<u32> = 2..=86_400;
const DOWN_AFTER_S_DEFAULT: u32 = 5;
const REBUILD_AFTER_S_MAX: u32 = 31_536_000;
const REBUILD_AFTER_S_DEFAULT: u32 = 60;
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
        config.check_devices().map_err(|error| error.context(name))?;
        config.catalog.check(!config.join.is_empty()).map_err(|error| error.context(name))?;
        Ok(config)
    }

    /// Checks that every target has its devices and no device has two uses.
    fn check_devices(&self) -> Result<()> {
        let inline = self.inline_bytes_max();
        if !(vos::INLINE_BYTES_MIN..=vos::INLINE_BYTES_LIMIT).contains(&inline) {
            return Err(Error::inval(format!(
                "inline_bytes_max is {inline}; it must be {} to {}",
                vos::INLINE_BYTES_MIN,
                vos::INLINE_BYTES_LIMIT
            )));
        }
        let mut rates = self.targets.iter().filter_map(|target| target.rate_max);
        if rates.any(|rate| rate.0 < RATE_MAX_MIN) {
            return Err(Error::inval("rate_max must be at least 1MiB"));
        }
        if self.metadata_cache() < METADATA_CACHE_MIN {
            return Err(Error::inval("metadata_cache must be at least 1MiB"));
        }
        let percent = self.store.data_cache_percent.unwrap_or(DATA_CACHE_PERCENT_DEFAULT);
        if percent > DATA_CACHE_PERCENT_MAX {
            return Err(Error::inval(format!(
                "data_cache_percent must be 0 to {DATA_CACHE_PERCENT_MAX}"
            )));
        }
        if self.store.write_queue_ms.is_some_and(|ms| ms > WRITE_QUEUE_MS_MAX) {
            return Err(Error::inval(format!("write_queue_ms must be 0 to {WRITE_QUEUE_MS_MAX}")));
        }
        if self.message_memory() < MESSAGE_MEMORY_MIN {
            return Err(Error::inval("message_memory must be at least 64MiB"));
        }
        if !DOWN_AFTER_S.contains(&self.down_after_s.unwrap_or(DOWN_AFTER_S_DEFAULT)) {
            return Err(Error::inval("down_after_s must be 2 to 86400"));
        }
        if self.rebuild_after_s.is_some_and(|seconds| seconds > REBUILD_AFTER_S_MAX) {
            return Err(Error::inval("rebuild_after_s must be 0 to 31536000"));
        }
        let mut seen: BTreeMap<&Path, String> = BTreeMap::new();
        let mut uses: Vec<(&Path, String)> = Vec::new();
        uses.extend(self.store.nvme.iter().map(|path| (&**path, "[store] nvme".to_string())));
        for (at, target) in self.targets.iter().enumerate() {
            let user = format!("target number {at}");
            let bad = |why: &str| Err(Error::inval(format!("{user}: {why}")));
            match (&target.device, &target.scm) {
                (Some(_), None) if target.nvme.is_empty() => {}
                (Some(_), _) => return bad("'device' is for everything; use 'scm' and 'nvme'"),
                (None, None) => return bad("it needs 'device', or 'scm' and data devices"),
                (None, Some(_)) if target.nvme.is_empty() && self.store.nvme.is_empty() => {
                    return bad("'scm' needs 'nvme' here or under [store]; or use 'device'");
                }
                (None, Some(_)) if target.nvme.len() > vos::DATA_DEVICES_MAX => {
                    return bad("it has too many data devices");
                }
                (None, Some(_)) => {}
            }
            let paths = target.device.iter().chain(&target.scm).chain(&target.nvme);
            uses.extend(paths.map(|path| (&**path, user.clone())));
        }
        for (path, user) in uses {
            if let Some(other) = seen.insert(path, user.clone()) {
                return Err(Error::inval(format!(
                    "device {} is given to {other} and to {user}; to share a data device, name \
                     it under [store] nvme only",
                    path.display()
                )));
            }
        }
        let sharing = self.sharing_targets().count();
        if sharing == 0 && !self.store.nvme.is_empty() {
            return Err(Error::inval("[store] nvme is given, but no target is left to use it"));
        }
        if self.store.nvme.len().div_ceil(sharing.max(1)) > vos::DATA_DEVICES_MAX {
            return Err(Error::inval(format!(
                "[store] nvme gives more than {} devices to a target",
                vos::DATA_DEVICES_MAX
            )));
        }
        Ok(())
    }

    /// Values smaller than this go to index and log, bytes.
    pub fn inline_bytes_max(&self) -> u32 {
        let default = Bytes(types::limits::INLINE_BYTES_MAX as u64);
        let bytes = self.store.inline_bytes_max.unwrap_or(default).0;
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Memory for the index of each target, bytes.
    pub fn metadata_cache(&self) -> u64 {
        self.store.metadata_cache.map_or(vos::METADATA_CACHE_DEFAULT, |bytes| bytes.0)
    }

    /// What data devices are given to write at a time takes them no longer than this; zero: there is no limit.
    pub fn write_queue(&self) -> Duration {
        let given = self.store.write_queue_ms.map(|ms| Duration::from_millis(ms.into()));
        given.unwrap_or(vos::WRITE_QUEUE_DEFAULT)
    }

    /// Memory for messages, bytes.
    pub fn message_memory(&self) -> u64 {
        let default = || {
            (machine_memory() / 4).clamp(MESSAGE_MEMORY_MIN, transport::MESSAGE_BYTES_MAX_DEFAULT)
        };
        self.message_memory.map_or_else(default, |bytes| bytes.0)
    }

    /// Memory for data read from devices, of all targets together, bytes.
    pub fn data_cache(&self) -> u64 {
        let percent = self.store.data_cache_percent.unwrap_or(DATA_CACHE_PERCENT_DEFAULT);
        machine_memory() / 100 * u64::from(percent)
    }

    /// How long another engine may give no answer before it is down.
    pub fn down_after(&self) -> Duration {
        Duration::from_secs(self.down_after_s.unwrap_or(DOWN_AFTER_S_DEFAULT).into())
    }

    /// How long a target may be down before others stand in for it; `None`: for ever.
    pub fn rebuild_after(&self) -> Option<Duration> {
        let seconds = self.rebuild_after_s.unwrap_or(REBUILD_AFTER_S_DEFAULT);
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Numbers of the targets that use the engine's data devices.
    fn sharing_targets(&self) -> impl Iterator<Item = usize> {
        let shares = |target: &TargetConfig| target.scm.is_some() && target.nvme.is_empty();
        self.targets.iter().enumerate().filter(move |(_, t)| shares(t)).map(|(at, _)| at)
    }

    /// The devices of a target, by its number from 0. The same configuration gives the same
    /// answer: the devices say whose they are.
    pub fn devices(&self, number: usize) -> vos::Devices {
        let target = &self.targets[number];
        if let Some(device) = &target.device {
            return vos::Devices::one(device);
        }
        let whole = |path: &PathBuf| vos::DataDevice::whole(path);
        let mut nvme: Vec<vos::DataDevice> = target.nvme.iter().map(whole).collect();
        if let Some(place) = self.sharing_targets().position(|at| at == number) {
            let (targets, shared) = (self.sharing_targets().count(), &self.store.nvme);
            nvme = if shared.len() >= targets {
                shared.iter().skip(place).step_by(targets).map(whole).collect()
            } else {
                let on = place % shared.len();
                let part_count = (targets - on).div_ceil(shared.len()) as u32;
                let part = (place / shared.len()) as u32;
                vec![vos::DataDevice { path: shared[on].clone(), part, part_count }]
            };
        }
        vos::Devices { scm: target.scm.clone().unwrap_or_default(), nvme }
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

    /// The secrets of the system.
    pub fn tokens(&self) -> Result<Tokens> {
        let read = |path: &PathBuf| {
            let token = std::fs::read(path).map_err(|error| {
                Error::io(format!("reading token file {}", path.display()), error)
            })?;
            let token = token.trim_ascii().to_vec();
            if token.is_empty() {
                return Err(Error::inval(format!("token file {} is empty", path.display())));
            }
            Ok(token)
        };
        let client = self.token_file.as_ref().map(read).transpose()?;
        let admin = self.admin_token_file.as_ref().map(read).transpose()?;
        Tokens::new(client.unwrap_or_default(), admin)
    }

    /// What this engine, and whoever administers it, shows; empty when no secret is set.
    pub fn token(&self) -> Result<Vec<u8>> {
        Ok(self.tokens()?.own().to_vec())
    }

    /// Checks that all TCP addresses have the form of one. Names are not looked up.
    ///
    /// Errors: `Inval` for the first that has not.
    pub fn check_addresses(&self) -> Result<()> {
        check_address("listen", &self.listen, true)?;
        if let Some(advertise) = &self.advertise {
            check_address("advertise", advertise, false)?;
        }
        if let Some(metrics) = &self.metrics {
            check_address("[metrics] listen", &metrics.listen, true)?;
        }
        self.join.iter().try_for_each(|join| check_address("join", join, false))
    }

    /// True when whoever reaches the TCP address may do anything: it is not of this machine alone, and
    /// no token is asked for. A name is resolved by the C library.
    ///
    /// Errors: `Inval` when that is so and `insecure` does not say that it is meant, or when the
    /// address has no meaning.
    pub fn is_exposed(&self) -> Result<bool> {
        if self.token_file.is_some() {
            return Ok(false);
        }
        let listen = &self.listen;
        let mut addresses = listen
            .to_socket_addrs()
            .map_err(|error| Error::inval(format!("listen = \"{listen}\": {error}")))?;
        let is_exposed = !addresses.all(|address| address.ip().is_loopback());
        if is_exposed && !self.insecure {
            return Err(Error::inval(format!(
                "listen = \"{listen}\" lets other machines in and no token is asked for: set \
                 token_file, or insecure = true if everybody who reaches it may do anything"
            )));
        }
        Ok(is_exposed)
    }

    /// Files with secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &Path> {
        let tokens = self.token_file.iter().chain(&self.admin_token_file);
        tokens.map(|path| &**path).chain(self.catalog.secrets())
    }

    /// Everything that the engine uses by name, but files with secrets.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let of_targets = self
            .targets
            .iter()
            .flat_map(|target| target.device.iter().chain(&target.scm).chain(&target.nvme));
        std::iter::once(&self.dir).chain(&self.store.nvme).chain(of_targets).map(|path| &**path)
    }

    /// Path of the engine's Unix socket.
    pub fn unix_path(&self) -> PathBuf {
        self.dir.join("engine.sock")
    }
}

/// Memory of the machine, bytes.
fn machine_memory() -> u64 {
    let machine = rustix::system::sysinfo();
    machine.totalram as u64 * machine.mem_unit as u64
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

    /// Addresses without a port were found to be in order, and the engine ended with an "invalid socket address".
    #[test]
    fn addresses_without_a_port_are_named_with_the_form_they_need() {
        let check = |text: &str| EngineConfig::parse(text, "f").unwrap().check_addresses();
        let listen = |address: &str| check(&GOOD.replace("127.0.0.1:0", address));
        let join = |address: &str| check(&format!("join = ['h1:1', '{address}']\n{GOOD}"));
        let metrics = |address: &str| check(&format!("{GOOD}[metrics]\nlisten = '{address}'\n"));
        for good in ["127.0.0.1:7710", "host1:7710", "[::1]:7710"] {
            for check in [&listen as &dyn Fn(&str) -> Result<()>, &join, &metrics] {
                assert!(check(good).is_ok(), "{good}");
            }
        }
        assert!(listen("h:0").is_ok() && metrics("h:0").is_ok());
        for bad in ["127.0.0.1", "::1", "fd00::1:7710", "h:", "h:70000", ":7710", "tcp://h:7710"] {
            for (key, check) in [
                ("listen", &listen as &dyn Fn(&str) -> Result<()>),
                ("join", &join),
                ("[metrics]", &metrics),
            ] {
                let error = check(bad).unwrap_err().to_string();
                assert!(error.contains(key) && error.contains("HOST:PORT"), "{bad}: {error}");
            }
        }
        assert!(join("h:0").is_err());
    }

    /// An engine that listened beyond its machine without a token once said nothing about it.
    #[test]
    fn everybody_is_let_in_only_if_that_is_meant() {
        let exposed = |listen: &str, more: &str| {
            let text = format!("{more}\n{}", GOOD.replace("127.0.0.1:0", listen));
            EngineConfig::parse(&text, "x").unwrap().is_exposed()
        };
        for here in ["127.0.0.1:0", "127.1.2.3:7", "[::1]:7"] {
            assert!(!exposed(here, "").unwrap(), "{here}");
        }
        for open in ["0.0.0.0:7710", "[::]:7710", "10.0.0.1:7710"] {
            let error = exposed(open, "").unwrap_err().to_string();
            assert!(error.contains("token_file") && error.contains("insecure"), "{error}");
            assert!(exposed(open, "insecure = true").unwrap());
            assert!(!exposed(open, "token_file = '/t'").unwrap());
        }
        assert!(exposed("no port", "").is_err());
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

    #[test]
    fn a_device_has_one_use() {
        let bad = |text: &str, words: &[&str]| {
            let error = EngineConfig::parse(&format!("dir = '/a'\n{text}"), "x.toml").unwrap_err();
            let said = error.to_string();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        };
        bad("[[target]]\nscm = '/s'\n", &["target number 0", "nvme"]);
        bad("[[target]]\nnvme = ['/n']\n", &["target number 0", "'device'"]);
        bad("[[target]]\ndevice = '/d'\nnvme = ['/n']\n", &["'scm'"]);
        bad("[store]\nnvme = ['/n']\n[[target]]\ndevice = '/d'\n", &["no target"]);
        bad("[[target]]\nscm = '/s'\nnvme = ['/s']\n", &["/s", "target number 0"]);
        bad(
            "[[target]]\nscm = '/s'\nnvme = ['/n']\n[[target]]\nscm = '/t'\nnvme = ['/n']\n",
            &["/n", "number 0", "number 1", "[store]"],
        );
        bad("[store]\ninline_bytes_max = '1MiB'\n[[target]]\ndevice = '/d'\n", &["1048576"]);
        bad("message_memory = 4096\n[[target]]\ndevice = '/d'\n", &["64MiB"]);
        for seconds in ["1", "86401"] {
            bad(&format!("down_after_s = {seconds}\n[[target]]\ndevice = '/d'\n"), &["86400"]);
        }
        bad("rebuild_after_s = 31536001\n[[target]]\ndevice = '/d'\n", &["31536000"]);
        bad("[store]\ndata_cache_percent = 81\n[[target]]\ndevice = '/d'\n", &["0 to 80"]);
        bad("[store]\nwrite_queue_ms = 10001\n[[target]]\ndevice = '/d'\n", &["0 to 10000"]);
        bad("[store]\nmetadata_cache = 4096\n[[target]]\ndevice = '/d'\n", &["1MiB"]);
        bad("[store]\ninline_bytes_max = 'x'\n[[target]]\ndevice = '/d'\n", &["'x'", "line 3"]);
    }

    fn config(targets: usize, nvme: usize) -> EngineConfig {
        let mut text = "dir = '/a'\n[store]\ninline_bytes_max = '8KiB'\nnvme = [".to_string();
        (0..nvme).for_each(|n| text.push_str(&format!("'/n{n}',")));
        text.push_str("]\n");
        (0..targets).for_each(|n| text.push_str(&format!("[[target]]\nscm = '/s{n}'\n")));
        EngineConfig::parse(&text, "x.toml").unwrap()
    }

    #[test]
    fn data_devices_are_shared_out_evenly_and_without_overlap() {
        for targets in 1..9 {
            for nvme in 1..12 {
                let config = config(targets, nvme);
                let mut parts: BTreeMap<PathBuf, Vec<(u32, u32)>> = BTreeMap::new();
                let mut most = 0;
                let mut least = usize::MAX;
                for target in 0..targets {
                    let devices = config.devices(target);
                    assert_eq!(devices.scm, PathBuf::from(format!("/s{target}")));
                    most = most.max(devices.nvme.len());
                    least = least.min(devices.nvme.len());
                    for device in devices.nvme {
                        let part = (device.part, device.part_count);
                        parts.entry(device.path).or_default().push(part);
                    }
                }
                assert!(least > 0 && most - least <= 1);
                assert_eq!(parts.len(), nvme, "every device is used");
                for of in parts.values() {
                    let want: Vec<(u32, u32)> =
                        (0..of.len() as u32).map(|part| (part, of.len() as u32)).collect();
                    assert_eq!(*of, want);
                }
            }
        }
    }

    #[test]
    fn a_configuration_survives_its_own_text() {
        let mut config = config(3, 2);
        config.targets[1].cores = vec![0, 3];
        config.targets[1].rate_max = Some(Bytes(2 << 20));
        assert_eq!(config.write_queue(), Duration::from_millis(10));
        config.store.write_queue_ms = Some(0);
        assert_eq!(config.write_queue(), Duration::ZERO);
        assert_eq!(config.inline_bytes_max(), 8192);
        let text = toml::to_string(&config).unwrap();
        assert_eq!(EngineConfig::parse(&text, "x").unwrap(), config);
    }
}
