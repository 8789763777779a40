//! Which target a file belongs to, whom to ask about it, and the settings that say so.
//!
//! | module | what it is |
//! |---|---|
//! | [`settings`] | the configuration file and the environment, read once when a process starts |
//! | [`choice`] | which coordinator a process asks, by its rank or host |
//! | this one | which targets a file belongs to, by rule |
//! | [`lustre`], [`azekura`], [`mount`] | what rules look at |
//! | [`glob`], [`text`] | patterns; strings and lists in place |
//!
//! Rules are tried in order. A rule that does not fit the file (`path`, `fstype`) or whose target
//! is not known for it (no Lustre layout, no mount found) leaves the decision to the next one;
//! after the last comes the mount point, then the device. Every process of a group must come to
//! the same name for the same target, so names are made of what is the same on all nodes, as far
//! as the rule's author chose well: device numbers and mount points are each node's own.
//!
//! Invariant: [`targets_of`] allocates nothing; it runs inside signal handlers of other programs.

pub mod azekura;
pub mod choice;
pub mod glob;
pub mod lustre;
pub mod mount;
pub mod settings;
pub mod text;

use mount::Mount;
use std::num::NonZeroU32;
use text::{Names, Text};
use types::{Error, Result, hash};

/// What a rule may look at. Each answer may cost a system call, so they are asked for one by one.
pub trait File {
    /// The path it was opened by, if it still has one.
    fn path(&mut self) -> Option<&[u8]>;
    /// The mount it is on.
    fn mount(&mut self) -> Option<&Mount>;
    fn xattr(&mut self, name: &str) -> Option<&[u8]>;
    /// Major and minor number of its device.
    fn device(&self) -> (u32, u32);
    fn inode(&self) -> u64;
}

/// How a rule names the target of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assign {
    /// The object storage target of the first stripe: `lustre:work-OST000a`.
    LustreFirst,
    /// Those of all stripes, at most 16.
    LustreAll,
    /// What an Azekura mount answers: `azekura:tank/3`.
    Azekura,
    /// The mount point: `mount:/scratch`.
    Mount,
    /// What is mounted: `source:server:/export`.
    Source,
    /// The device: `device:8:1`.
    Device,
    /// One of `count` targets by the hash of the inode number: `label:5`.
    Hash {
        count: NonZeroU32,
        /// First part of their names.
        label: String,
    },
    /// Always this one.
    Named(String),
    /// None: such files are not coordinated.
    Never,
}

impl std::str::FromStr for Assign {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::inval(format!(
                "'{text}' is not a way to name targets (lustre-first, lustre-all, azekura, mount, \
                 source, device, hash:COUNT, hash:COUNT:LABEL, name:TEXT, none)"
            ))
        };
        let (kind, rest) = text.split_once(':').map_or((text, None), |(a, b)| (a, Some(b)));
        Ok(match (kind, rest) {
            ("lustre-first", None) => Self::LustreFirst,
            ("lustre-all", None) => Self::LustreAll,
            ("azekura", None) => Self::Azekura,
            ("mount", None) => Self::Mount,
            ("source", None) => Self::Source,
            ("device", None) => Self::Device,
            ("none", None) => Self::Never,
            ("hash", Some(rest)) => {
                let (count, label) = rest.split_once(':').unwrap_or((rest, "hash"));
                let count = count.parse().map_err(|_| bad())?;
                Self::Hash { count, label: label.to_string() }
            }
            ("name", Some(name)) if !name.is_empty() => Self::Named(name.to_string()),
            _ => return Err(bad()),
        })
    }
}

/// How the targets of some files are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Pattern of paths it is for; all when missing.
    pub path: Option<String>,
    /// Pattern of file system types it is for; all when missing.
    pub fstype: Option<String>,
    /// How targets are named.
    pub assign: Assign,
}

impl Rule {
    /// A rule for all files.
    pub fn always(assign: Assign) -> Self {
        Self { path: None, fstype: None, assign }
    }

    /// What holds when nothing is configured: the first stripe on Lustre, what an Azekura mount
    /// answers, else the mount point.
    pub fn usual() -> Vec<Self> {
        let on = |fstype: &str, assign| Self { path: None, fstype: Some(fstype.into()), assign };
        let azekura = on("fuse.azekura*", Assign::Azekura);
        vec![on("lustre", Assign::LustreFirst), azekura, Self::always(Assign::Mount)]
    }

    fn fits(&self, file: &mut impl File) -> bool {
        let fits = |pattern: &Option<String>, text: Option<&[u8]>| match pattern {
            None => true,
            Some(pattern) => text.is_some_and(|text| glob::matches(pattern.as_bytes(), text)),
        };
        // A pattern that is not there asks the system nothing.
        (self.path.is_none() || fits(&self.path, file.path()))
            && (self.fstype.is_none()
                || fits(&self.fstype, file.mount().map(|mount| mount.fstype.as_bytes())))
    }
}

/// Names the file's targets into `names`. False when it shall not be coordinated.
pub fn targets_of(rules: &[Rule], file: &mut impl File, names: &mut Names) -> bool {
    names.clear();
    for rule in rules {
        if !rule.fits(file) {
            continue;
        }
        if rule.assign == Assign::Never {
            return false;
        }
        name(&rule.assign, file, names);
        if !names.is_empty() {
            return true;
        }
    }
    name(&Assign::Mount, file, names);
    if names.is_empty() {
        name(&Assign::Device, file, names);
    }
    true
}

/// Adds what the way of naming yields, if anything.
fn name(assign: &Assign, file: &mut impl File, names: &mut Names) {
    match assign {
        Assign::LustreFirst => lustre_stripes(file, names, false),
        Assign::LustreAll => lustre_stripes(file, names, true),
        Assign::Azekura => {
            if let Some(value) = file.xattr(azekura::XATTR) {
                azekura::targets(value, |target| {
                    names.push(&[b"azekura:", target]);
                });
            }
        }
        Assign::Mount => {
            if let Some(mount) = file.mount() {
                names.push(&[b"mount:", mount.point.as_bytes()]);
            }
        }
        Assign::Source => {
            if let Some(mount) = file.mount() {
                names.push(&[b"source:", mount.source.as_bytes()]);
            }
        }
        Assign::Device => {
            let (major, minor) = file.device();
            let (major, minor) = (decimal(major.into()), decimal(minor.into()));
            names.push(&[b"device:", major.as_bytes(), b":", minor.as_bytes()]);
        }
        Assign::Hash { count, label } => {
            let bucket = decimal(hash::mix(file.inode()) % u64::from(count.get()));
            names.push(&[label.as_bytes(), b":", bucket.as_bytes()]);
        }
        Assign::Named(text) => {
            names.push(&[text.as_bytes()]);
        }
        Assign::Never => {}
    }
}

fn lustre_stripes(file: &mut impl File, names: &mut Names, all: bool) {
    // Names are those that Lustre gives its targets, so that they are known from its own tools.
    let fsname: Text<16> = file.mount().map_or(Text::EMPTY, |mount| Text::cut(mount.lustre_name()));
    let Some(layout) = file.xattr(lustre::XATTR) else { return };
    lustre::osts(layout, |ost| {
        let index = hexadecimal(ost);
        names.push(&[b"lustre:", fsname.as_bytes(), b"-OST", index.as_bytes()]);
        all
    });
}

/// A number as text.
fn decimal(number: u64) -> Text<20> {
    let mut text = Text::EMPTY;
    let digits = number.checked_ilog10().unwrap_or(0);
    (0..=digits).rev().for_each(|at| text.push(b'0' + (number / 10_u64.pow(at) % 10) as u8));
    text
}

/// A number in hexadecimal, at least four digits.
fn hexadecimal(number: u32) -> Text<8> {
    let mut text = Text::EMPTY;
    let digits = (number.checked_ilog2().unwrap_or(0) / 4 + 1).max(4);
    (0..digits).rev().for_each(|at| text.push(text::hex((number >> (4 * at)) as u8)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Sample {
        path: Option<&'static str>,
        mount: Option<Mount>,
        xattrs: Vec<(&'static str, Vec<u8>)>,
        inode: u64,
    }

    impl File for Sample {
        fn path(&mut self) -> Option<&[u8]> {
            self.path.map(str::as_bytes)
        }
        fn mount(&mut self) -> Option<&Mount> {
            self.mount.as_ref()
        }
        fn xattr(&mut self, name: &str) -> Option<&[u8]> {
            self.xattrs.iter().find(|(known, _)| *known == name).map(|(_, value)| &value[..])
        }
        fn device(&self) -> (u32, u32) {
            (8, 17)
        }
        fn inode(&self) -> u64 {
            self.inode
        }
    }

    fn on(fstype: &str, point: &str, source: &str) -> Option<Mount> {
        let text = |text: &str| Text::cut(text.as_bytes());
        let (point, source) = (text(point), text(source));
        Some(Mount { point, source, fstype: Text::cut(fstype.as_bytes()) })
    }

    fn named(rules: &[Rule], file: &mut Sample) -> Option<Vec<String>> {
        let mut names = Names::new();
        targets_of(rules, file, &mut names).then(|| names.iter().map(String::from).collect())
    }

    fn by(text: &str) -> Vec<Rule> {
        vec![Rule::always(text.parse().unwrap())]
    }

    fn striped(osts: &[u32]) -> Sample {
        Sample {
            mount: on("lustre", "/work", "10.0.0.1@o2ib:/work"),
            xattrs: vec![(lustre::XATTR, lustre::sample::plain(1, osts, false))],
            ..Sample::default()
        }
    }

    #[test]
    fn lustre_targets_have_lustres_names() {
        let mut file = striped(&[10, 3, 10, 70_000]);
        assert_eq!(named(&Rule::usual(), &mut file).unwrap(), ["lustre:work-OST000a"]);
        assert_eq!(
            named(&by("lustre-all"), &mut file).unwrap(),
            ["lustre:work-OST000a", "lustre:work-OST0003", "lustre:work-OST11170"],
        );
        let many: Vec<u32> = (0..40).collect();
        assert_eq!(named(&by("lustre-all"), &mut striped(&many)).unwrap().len(), 16);
    }

    #[test]
    fn without_a_layout_the_mount_point_counts_and_without_a_mount_the_device() {
        let mut file = Sample { mount: on("lustre", "/work", "x:/work"), ..Sample::default() };
        assert_eq!(named(&Rule::usual(), &mut file).unwrap(), ["mount:/work"]);
        assert_eq!(named(&Rule::usual(), &mut Sample::default()).unwrap(), ["device:8:17"]);
        assert_eq!(named(&by("lustre-all"), &mut Sample::default()).unwrap(), ["device:8:17"]);
    }

    #[test]
    fn every_way_of_naming() {
        let file = |inode| Sample {
            path: Some("/data/a"),
            mount: on("nfs4", "/data", "server:/export"),
            inode,
            xattrs: vec![(azekura::XATTR, b"tank/1,tank/2".to_vec())],
        };
        for (text, expected) in [
            ("mount", &["mount:/data"][..]),
            ("source", &["source:server:/export"]),
            ("device", &["device:8:17"]),
            ("name:slow", &["slow"]),
            ("azekura", &["azekura:tank/1", "azekura:tank/2"]),
        ] {
            assert_eq!(named(&by(text), &mut file(1)).unwrap(), expected, "{text}");
        }
        assert_eq!(named(&by("none"), &mut file(1)), None);
        let used: std::collections::BTreeSet<_> =
            (0..200).map(|inode| named(&by("hash:4:disk"), &mut file(inode)).unwrap()).collect();
        let used: Vec<String> = used.into_iter().flatten().collect();
        assert_eq!(used, ["disk:0", "disk:1", "disk:2", "disk:3"]);
    }

    #[test]
    fn the_first_rule_that_fits_and_knows_decides() {
        let rule = |path: Option<&str>, fstype: Option<&str>, assign: &str| Rule {
            path: path.map(String::from),
            fstype: fstype.map(String::from),
            assign: assign.parse().unwrap(),
        };
        let rules = [
            rule(Some("/data/tmp/**"), None, "none"),
            rule(None, Some("lustre"), "lustre-first"),
            rule(Some("/data/**"), Some("nfs*"), "source"),
            rule(None, None, "name:rest"),
        ];
        let at =
            |path, fstype| Sample { path, mount: on(fstype, "/data", "s:/e"), ..Sample::default() };
        assert_eq!(named(&rules, &mut at(Some("/data/tmp/x"), "nfs4")), None);
        assert_eq!(named(&rules, &mut at(Some("/data/x"), "nfs4")).unwrap(), ["source:s:/e"]);
        assert_eq!(named(&rules, &mut at(Some("/data/x"), "xfs")).unwrap(), ["rest"]);
        assert_eq!(named(&rules, &mut at(None, "nfs4")).unwrap(), ["rest"], "no path, no match");
        assert_eq!(named(&rules, &mut at(None, "lustre")).unwrap(), ["rest"], "no layout");
    }

    #[test]
    fn mistakes_in_the_way_of_naming_are_told() {
        for bad in ["", "lustre", "hash", "hash:0", "hash:x", "name:", "mount:/x", "none:x"] {
            let error = bad.parse::<Assign>().unwrap_err().to_string();
            assert!(error.contains("is not a way to name targets"), "{error}");
        }
    }

    #[test]
    fn numbers_as_text() {
        for number in [0, 1, 9, 10, 99, 100, u64::MAX] {
            assert_eq!(decimal(number).as_bytes(), number.to_string().as_bytes());
        }
        for number in [0, 15, 16, 0xffff, 0x10000, u32::MAX] {
            assert_eq!(hexadecimal(number).as_bytes(), format!("{number:04x}").as_bytes());
        }
    }
}
