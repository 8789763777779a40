//! Options of a mount, as `mount -o` and `/etc/fstab` write them.

use crate::fs::{CacheMode, CachePolicy};
use client::Patience;
use fuselow::{Config, MountOptions, Transport};
use std::time::Duration;
use types::{Error, Result};

/// How long an operation may take when nothing else is asked for.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// How a file system is to be mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// What the kernel may keep.
    pub cache: CacheMode,
    /// How long attributes are good; `None`: as the cache mode has it.
    pub attr_timeout: Option<Duration>,
    /// How long names are good; `None`: as the cache mode has it.
    pub entry_timeout: Option<Duration>,
    /// How long it is good that a name does not exist.
    pub negative_timeout: Duration,
    /// How long an operation may take, retries included, before it fails with `ETIMEDOUT`; `None`: as the environment says, else
    /// [`TIMEOUT_DEFAULT`].
    pub timeout: Option<Duration>,
    /// Threads; 0: one per CPU, at most eight.
    pub threads: usize,
    /// How requests come from the kernel.
    pub transport: Transport,
    pub read_only: bool,
    /// Let other users in. `None`: when root mounts.
    pub allow_other: Option<bool>,
    /// The kernel checks permissions; otherwise we do, by mode bits.
    pub default_permissions: bool,
    /// The kernel evaluates ACLs; it then checks permissions in any case.
    pub acl: bool,
    /// Mount over a directory that is not empty.
    pub nonempty: bool,
    /// Unmount when the server dies.
    pub auto_unmount: bool,
    /// Heed device files.
    pub dev: bool,
    /// Heed set-user-id.
    pub suid: bool,
    /// Refuse to run programs.
    pub noexec: bool,
    /// Do not keep access times.
    pub noatime: bool,
    pub max_read_bytes: Option<u32>,
    /// Read-ahead of the kernel, bytes.
    pub readahead_bytes: Option<u32>,
    /// Locks are good between programs of this machine only, and the kernel's business.
    pub local_locks: bool,
    /// Mount a snapshot of the container, read-only.
    pub snapshot: Option<String>,
    /// Which system; `None`: as the environment says.
    pub system: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cache: CacheMode::default(),
            attr_timeout: None,
            entry_timeout: None,
            negative_timeout: Duration::ZERO,
            timeout: None,
            threads: 0,
            transport: Transport::Auto,
            read_only: false,
            allow_other: None,
            default_permissions: true,
            acl: false,
            nonempty: false,
            auto_unmount: false,
            dev: false,
            suid: false,
            noexec: false,
            noatime: false,
            max_read_bytes: None,
            readahead_bytes: None,
            local_locks: false,
            snapshot: None,
            system: None,
        }
    }
}

impl Options {
    /// How long an operation may take.
    pub fn patience(&self) -> Duration {
        let limit = self.timeout.or_else(|| Patience::from_env().map(Patience::limit));
        limit.unwrap_or(TIMEOUT_DEFAULT)
    }

    /// Takes a list of options separated by commas; later ones win. Options of `mount(8)` that
    /// say nothing about the file system (`_netdev`, `nofail`, `x-systemd.…`) are passed over.
    ///
    /// Errors: `Inval`, naming the option that is not known or has no value that makes sense.
    pub fn apply(&mut self, list: &str) -> Result<()> {
        for item in list.split(',').filter(|item| !item.is_empty()) {
            match item.split_once('=') {
                Some((name, value)) => self.apply_value(name, value)?,
                None => self.apply_flag(item)?,
            }
        }
        Ok(())
    }

    fn apply_flag(&mut self, name: &str) -> Result<()> {
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = Some(true),
            "no_allow_other" => self.allow_other = Some(false),
            "default_permissions" => self.default_permissions = true,
            "no_default_permissions" => self.default_permissions = false,
            "acl" => self.acl = true,
            "noacl" => self.acl = false,
            "nonempty" => self.nonempty = true,
            "auto_unmount" => self.auto_unmount = true,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "exec" => self.noexec = false,
            "noexec" => self.noexec = true,
            "noatime" => self.noatime = true,
            "atime" | "relatime" => self.noatime = false,
            "defaults" | "_netdev" | "nofail" | "auto" | "noauto" | "user" | "nouser" | "users"
            | "owner" | "group" | "async" | "nodiratime" | "lazytime" => {}
            _ if name.starts_with("x-") || name.starts_with("X-") => {}
            "cache" | "attr_timeout" | "entry_timeout" | "negative_timeout" | "timeout"
            | "patience" | "threads" | "io" | "local_lock" | "snapshot" | "system" | "max_read"
            | "readahead" => {
                return Err(Error::inval(format!("option '{name}' wants a value: {name}=…")));
            }
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "cache" => self.cache = value.parse()?,
            "attr_timeout" => self.attr_timeout = Some(seconds(name, value)?),
            "entry_timeout" => self.entry_timeout = Some(seconds(name, value)?),
            "negative_timeout" => self.negative_timeout = seconds(name, value)?,
            "patience" => {
                let patience: Result<Patience> = value.parse();
                let wanted = "'hard' or a number of seconds";
                self.timeout = Some(patience.map_err(|_| bad(name, value, wanted))?.limit());
            }
            "timeout" => {
                let timeout = seconds(name, value)?;
                self.timeout = Some(timeout);
                if timeout.is_zero() {
                    return Err(Error::inval("option timeout: operations need some time"));
                }
            }
            "threads" => {
                let count = value.parse().ok().filter(|count| *count <= 256);
                self.threads = count.ok_or_else(|| bad(name, value, "a number up to 256"))?;
            }
            "io" => self.transport = parse_transport(value)?,
            "local_lock" => self.local_locks = parse_local_lock(value)?,
            "snapshot" => self.snapshot = Some(value.to_string()),
            "system" => self.system = Some(value.to_string()),
            "max_read" => self.max_read_bytes = Some(size(name, value)?),
            "readahead" => self.readahead_bytes = Some(size(name, value)?),
            // What mount(8) adds or keeps for itself.
            "fsname" | "subtype" | "comment" | "user" | "uhelper" | "helper" => {}
            _ if name.starts_with("x-") || name.starts_with("X-") => {}
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// What the kernel may keep.
    pub fn policy(&self) -> CachePolicy {
        let policy = CachePolicy::new(self.cache);
        // Who says a time means it.
        let operation_ttl = match self.attr_timeout {
            Some(_) => Duration::ZERO,
            None => policy.operation_ttl,
        };
        CachePolicy {
            operation_ttl,
            attr_ttl: self.attr_timeout.unwrap_or(policy.attr_ttl),
            entry_ttl: self.entry_timeout.unwrap_or(policy.entry_ttl),
            negative_ttl: self.negative_timeout,
            ..policy
        }
    }

    /// What the session with the kernel is asked for; `source` is what `df` shows.
    pub fn config(&self, source: String) -> Config {
        let is_root = rustix::process::geteuid().is_root();
        Config {
            mount: MountOptions {
                source,
                subtype: "azekura".into(),
                read_only: self.read_only || self.snapshot.is_some(),
                allow_other: self.allow_other.unwrap_or(is_root),
                default_permissions: self.default_permissions || self.acl,
                auto_unmount: self.auto_unmount,
                dev: self.dev,
                suid: self.suid,
                noexec: self.noexec,
                noatime: self.noatime,
                max_read_bytes: self.max_read_bytes,
                nonempty: self.nonempty,
            },
            threads: self.threads,
            transport: self.transport,
            writeback_cache: self.cache == CacheMode::Full,
            cache_symlinks: self.cache != CacheMode::None,
            locks: !self.local_locks,
            kill_privileges: true,
            posix_acl: self.acl,
            umask_by_file_system: self.acl,
            readahead_bytes: self.readahead_bytes,
            ..Config::default()
        }
    }
}

/// How requests come from the kernel, as a word.
pub fn parse_transport(text: &str) -> Result<Transport> {
    match text {
        "auto" => Ok(Transport::Auto),
        "dev" => Ok(Transport::Dev),
        "uring" => Ok(Transport::Uring),
        _ => Err(bad("io", text, "auto, uring or dev")),
    }
}

/// As the option of that name of NFS has it, which tells kinds of locks apart; here it is both.
fn parse_local_lock(text: &str) -> Result<bool> {
    match text {
        "all" => Ok(true),
        "none" => Ok(false),
        _ => Err(bad("local_lock", text, "all or none")),
    }
}

fn seconds(name: &str, value: &str) -> Result<Duration> {
    let seconds = value.parse::<f64>().ok();
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let span = span.filter(|span| *span <= Duration::from_secs(86_400));
    span.ok_or_else(|| bad(name, value, "seconds, at most a day"))
}

fn size(name: &str, value: &str) -> Result<u32> {
    let bytes =
        types::size::parse(value).map_err(|error| error.context(format!("option {name}")))?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes >= 4096);
    bytes.ok_or_else(|| bad(name, value, "a size from 4KiB on"))
}

fn bad(name: &str, value: &str, want: &str) -> Error {
    Error::inval(format!("option {name}: '{value}' is no value for it (want {want})"))
}

fn unknown(name: &str) -> Error {
    Error::inval(format!("'{name}' is no option of a mount; see 'azekura mount --help'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Result<Options> {
        let mut options = Options::default();
        options.apply(list).map(|()| options)
    }

    #[test]
    fn options_as_fstab_has_them() {
        let list = "ro,_netdev,nofail,x-systemd.automount,cache=none,timeout=5,io=dev,threads=3,\
                    attr_timeout=0.5,allow_other,nonempty,readahead=4MiB,system=/srv/azk";
        let mut options = parsed(list).unwrap();
        assert!(options.read_only && options.nonempty);
        assert_eq!(options.allow_other, Some(true));
        assert_eq!(options.patience(), Duration::from_secs(5));
        options.apply("patience=hard").unwrap();
        assert_eq!(Patience::of(options.patience()), Patience::Hard);
        options.apply("patience=2.5").unwrap();
        assert_eq!(options.patience(), Duration::from_millis(2500));
        assert!(options.apply("patience=soft").unwrap_err().to_string().contains("hard"));
        assert_eq!((options.transport, options.threads), (Transport::Dev, 3));
        assert_eq!(options.policy().attr_ttl, Duration::from_millis(500));
        assert_eq!(options.policy().entry_ttl, Duration::ZERO);
        assert_eq!(options.readahead_bytes, Some(4 << 20));
        assert_eq!(options.system.as_deref(), Some("/srv/azk"));
        assert_eq!(parsed("ro,rw,").unwrap(), Options::default());
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (list, word) in [
            ("cached", "'cached'"),
            ("cache", "cache=…"),
            ("cache=all", "'all'"),
            ("timeout=0", "timeout"),
            ("attr_timeout=-1", "attr_timeout"),
            ("attr_timeout=NaN", "attr_timeout"),
            ("threads=many", "threads"),
            ("io=fast", "io"),
            ("local_lock=flock", "local_lock"),
            ("readahead=1", "readahead"),
            ("colour=blue", "'colour'"),
        ] {
            let error = parsed(list).unwrap_err();
            assert!(error.to_string().contains(word), "{list}: {error}");
        }
    }

    #[test]
    fn a_snapshot_is_read_only() {
        let config = parsed("snapshot=monday").unwrap().config("azk://p/c".into());
        assert!(config.mount.read_only && config.mount.default_permissions);
        assert!(!config.writeback_cache);
        let config = parsed("acl,no_default_permissions").unwrap().config(String::new());
        assert!(config.posix_acl && config.umask_by_file_system);
        assert!(config.mount.default_permissions, "kernels check where they evaluate ACLs");
        assert!(!parsed("acl,noacl").unwrap().config(String::new()).posix_acl);
        assert!(parsed("cache=full").unwrap().config(String::new()).writeback_cache);
    }
}
