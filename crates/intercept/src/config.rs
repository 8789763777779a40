//! What the environment says, read when the library is loaded.
//!
//! | variable | meaning |
//! |---|---|
//! | `AZEKURA_INTERCEPT` | `azk://POOL/CONT[/DIR]=/PREFIX`, several with commas; `off`: do nothing |
//! | `AZEKURA_INTERCEPT_LOG` | a file, or `stderr`, or a level (`warn`, `info`, `debug`), or level and file with a colon |
//! | `AZEKURA_INTERCEPT_SUMMARY` | `1`: at exit, say what was taken and what was not |
//!
//! Mounts of type `fuse.azekura` in `/proc/self/mountinfo` that can be written are prefixes too.

use crate::mountinfo;
use crate::report::Level;
use client::SystemAddress;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use types::{Error, Result, hash};
use wire::control::Name;

/// A file system and where its files appear.
#[derive(Debug)]
pub struct Prefix {
    /// Place in [`Config::prefixes`].
    pub index: usize,
    pub pool: Name,
    pub cont: Name,
    /// Directory in the container that appears at the prefix; empty: its root.
    pub sub: Vec<u8>,
    /// Absolute path without a slash at the end; empty for `/`.
    pub path: Vec<u8>,
    /// It is a mount as well: whatever is not done here the kernel can do.
    pub is_mount: bool,
    /// `st_dev`.
    pub device: u64,
}

impl Prefix {
    /// `azk://POOL/CONT`.
    pub fn base_url(&self) -> Vec<u8> {
        format!("azk://{}/{}", self.pool, self.cont).into_bytes()
    }

    /// `azk://POOL/CONT/DIR`.
    pub fn url(&self) -> Vec<u8> {
        [self.base_url(), self.sub.clone()].concat()
    }
}

/// What the library was told: where files are, and what it logs.
pub struct Config {
    /// Where files of ours are.
    pub prefixes: Vec<Prefix>,
    /// What is logged.
    pub level: Level,
    /// Log file; none: standard error.
    pub log: Option<std::path::PathBuf>,
    /// A summary at exit.
    pub summary: bool,
}

static CONFIG: AtomicPtr<Config> = AtomicPtr::new(std::ptr::null_mut());

/// The settings; none when nothing is to be done.
#[inline]
pub fn get() -> Option<&'static Config> {
    // SAFETY: set once to something that is never freed or changed.
    unsafe { CONFIG.load(Ordering::Acquire).as_ref() }
}

/// Reads the settings. Called once, when the library is loaded.
pub fn load() {
    let text = std::env::var_os("AZEKURA_INTERCEPT").unwrap_or_default();
    // SAFETY: asks for a number.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if privileged || text == "off" {
        return;
    }
    let (level, log) = log_of(&std::env::var_os("AZEKURA_INTERCEPT_LOG").unwrap_or_default());
    let mut config = Config {
        prefixes: Vec::new(),
        level,
        log,
        summary: std::env::var_os("AZEKURA_INTERCEPT_SUMMARY")
            .is_some_and(|v| !v.is_empty() && v != "0"),
    };
    for one in text.as_bytes().split(|byte| *byte == b',').filter(|one| !one.is_empty()) {
        match parse(one) {
            Ok(prefix) => config.add(prefix),
            Err(error) => crate::report::complain(format_args!("AZEKURA_INTERCEPT: {error}")),
        }
    }
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    for line in mounts.split(|byte| *byte == b'\n') {
        if let Some(prefix) = mount_of(line) {
            config.add(prefix);
        }
    }
    // The longest first: a prefix may be below another.
    config.prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.path.len()));
    for (index, prefix) in config.prefixes.iter_mut().enumerate() {
        prefix.index = index;
    }
    if !config.prefixes.is_empty() {
        SYSTEM.get_or_init(find_system);
        CONFIG.store(Box::into_raw(Box::new(config)), Ordering::Release);
    }
}

impl Config {
    fn add(&mut self, prefix: Prefix) {
        match self.prefixes.iter_mut().find(|known| known.path == prefix.path) {
            // Named by hand and mounted: what is not done here goes to the mount, unless
            // something else is mounted there.
            Some(known) if prefix.is_mount && known.url() == prefix.url() => {
                (known.is_mount, known.device) = (true, prefix.device);
            }
            Some(_) => {}
            None => self.prefixes.push(prefix),
        }
    }
}

/// How to reach the system; the same as for the `azekura` command, by the environment as it was
/// when the library was loaded: some programs empty theirs.
pub fn system() -> Result<SystemAddress> {
    match SYSTEM.get() {
        Some(Ok(System::Known(address))) => Ok(address.clone()),
        Some(Ok(System::Dir(dir))) => SystemAddress::from_dir(dir),
        Some(Err(error)) => Err(error.clone()),
        None => SystemAddress::discover(),
    }
}

/// Directory of the system if the environment does not name one, for programs to be executed.
pub fn default_dir() -> Option<&'static std::path::Path> {
    match SYSTEM.get() {
        Some(Ok(System::Dir(dir))) => Some(dir),
        _ => None,
    }
}

enum System {
    Known(SystemAddress),
    /// Read when it is needed.
    Dir(std::path::PathBuf),
}

static SYSTEM: OnceLock<Result<System>> = OnceLock::new();

fn find_system() -> Result<System> {
    let text = std::env::var("AZEKURA_SYSTEM").unwrap_or_default();
    match text.as_str() {
        "" => SystemAddress::default_dir().map(System::Dir),
        dir if dir.starts_with('/') => Ok(System::Dir(dir.into())),
        dir if dir.starts_with('.') => {
            let dir = std::path::absolute(dir);
            dir.map(System::Dir).map_err(|error| Error::io("AZEKURA_SYSTEM", error))
        }
        address => SystemAddress::parse(address).map(System::Known),
    }
}

/// `azk://POOL/CONT[/DIR]=/PREFIX`.
fn parse(text: &[u8]) -> Result<Prefix> {
    let bad = |what: &str| {
        Error::inval(format!("'{}' {what} (want azk://POOL/CONT=/PREFIX)", text.escape_ascii()))
    };
    let at = text.iter().position(|byte| *byte == b'=').ok_or_else(|| bad("has no '='"))?;
    let (url, path) = (&text[..at], &text[at + 1..]);
    if path.first() != Some(&b'/') {
        return Err(bad("names no absolute prefix"));
    }
    make(url, path, None).ok_or_else(|| bad("names no container"))
}

fn make(url: &[u8], path: &[u8], mount: Option<u64>) -> Option<Prefix> {
    let rest = url.strip_prefix(b"azk://")?;
    let mut parts = rest.splitn(3, |byte| *byte == b'/');
    let mut name = || std::str::from_utf8(parts.next()?).ok().filter(|name| !name.is_empty());
    let (pool, cont) = (Name::parse(name()?), Name::parse(name()?));
    let mut sub = Vec::new();
    for component in parts.next().unwrap_or_default().split(|byte| *byte == b'/') {
        if !component.is_empty() {
            sub.push(b'/');
            sub.extend_from_slice(component);
        }
    }
    // The kernel's own numbers of file systems without a device are small: 20 bits of a hash
    // with a major number that nobody has.
    let made = 0xa2f << 20 | hash::bytes(url) & 0xfffff;
    let mut clean = Vec::new();
    for component in path.split(|byte| *byte == b'/').filter(|c| !c.is_empty() && c != b".") {
        clean.push(b'/');
        clean.extend_from_slice(component);
    }
    let device = mount.unwrap_or_else(|| libc::makedev((made >> 20) as u32, made as u32 & 0xfffff));
    let is_mount = mount.is_some();
    Some(Prefix { index: 0, pool, cont, sub, path: clean, is_mount, device })
}

/// The prefix of a mount of ours. Where nothing may be changed the kernel does all: what is shown
/// there may be a snapshot.
fn mount_of(line: &[u8]) -> Option<Prefix> {
    let mount = mountinfo::parse(line).filter(|mount| mount.kind == b"fuse.azekura")?;
    // Of a directory of a mount that is bound elsewhere the kernel knows what it leads to.
    if mount.root != b"/" || mount.is_read_only {
        return None;
    }
    make(&mount.source, &mount.point, Some(libc::makedev(mount.device.0, mount.device.1)))
}

fn log_of(text: &OsString) -> (Level, Option<std::path::PathBuf>) {
    let bytes = text.as_bytes();
    if bytes.is_empty() {
        return (Level::Off, None);
    }
    let (level, rest) = match bytes.iter().position(|byte| *byte == b':') {
        Some(at) if Level::parse(&bytes[..at]).is_some() => {
            (Level::parse(&bytes[..at]), &bytes[at + 1..])
        }
        _ => (Level::parse(bytes), if Level::parse(bytes).is_some() { &b""[..] } else { bytes }),
    };
    let file = !rest.is_empty() && rest != b"stderr";
    (level.unwrap_or(Level::Info), file.then(|| OsString::from_vec(rest.to_vec()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_parsed() {
        let one = parse(b"azk://tank/home=/azk/").unwrap();
        assert_eq!((&one.path[..], &one.sub[..], one.is_mount), (&b"/azk"[..], &b""[..], false));
        let two = parse(b"azk://tank/home/a//b/=/x/./y").unwrap();
        assert_eq!((&two.path[..], &two.sub[..]), (&b"/x/y"[..], &b"/a/b"[..]));
        for bad in ["azk://tank=/x", "azk://tank/home", "azk://tank/home=x", "tank/home=/x", "="] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn mounts_are_found_in_what_the_kernel_says() {
        let line =
            b"36 35 0:51 / /mnt/my\\040azk rw,nosuid - fuse.azekura azk://tank/home rw,user_id=0";
        let found = mount_of(line).unwrap();
        assert_eq!(found.path, b"/mnt/my azk");
        assert!(found.is_mount);
        assert_eq!(found.device, libc::makedev(0, 51));
        let bound = b"36 35 0:51 /sub /mnt/x rw - fuse.azekura azk://tank/home rw";
        assert!(mount_of(bound).is_none());
        let other = b"36 35 98:0 / /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert!(mount_of(other).is_none());
        let read_only = [
            &b"36 35 0:51 / /mnt/x ro,nosuid - fuse.azekura azk://tank/home rw,user_id=0"[..],
            b"36 35 0:51 / /mnt/x rw,nosuid - fuse.azekura azk://tank/home ro,user_id=0",
        ];
        assert!(read_only.iter().all(|line| mount_of(line).is_none()));
    }

    #[test]
    fn a_prefix_named_by_hand_is_a_mount_only_of_the_same() {
        let mounted = b"36 35 0:51 / /mnt/x rw,nosuid - fuse.azekura azk://tank/home rw";
        for (by_hand, is_mount) in
            [("azk://tank/home=/mnt/x", true), ("azk://tank/home/sub=/mnt/x", false)]
        {
            let (level, log) = (Level::Off, None);
            let mut config = Config { prefixes: Vec::new(), level, log, summary: false };
            config.add(parse(by_hand.as_bytes()).unwrap());
            config.add(mount_of(mounted).unwrap());
            assert_eq!(config.prefixes.len(), 1);
            let prefix = &config.prefixes[0];
            assert_eq!(prefix.is_mount, is_mount, "{by_hand}");
            assert_eq!(prefix.device == libc::makedev(0, 51), is_mount);
        }
    }

    #[test]
    fn logs_go_where_they_are_told() {
        let of = |text: &str| log_of(&OsString::from(text));
        assert_eq!(of(""), (Level::Off, None));
        assert_eq!(of("stderr"), (Level::Info, None));
        assert_eq!(of("debug"), (Level::Debug, None));
        assert_eq!(of("/tmp/x"), (Level::Info, Some("/tmp/x".into())));
        assert_eq!(of("debug:/tmp/x"), (Level::Debug, Some("/tmp/x".into())));
    }
}
