//! The program under the names of others: what stands before the arguments decides what they mean.
//!
//! A link named `daos`, `dmg` or `dfuse` takes the commands that scripts written for DAOS use
//! (<https://docs.daos.io>, "Container Management", "Pool Operations", "File System") and turns
//! them into our own; `mount.fuse.azekura` is what `mount(8)` calls ([`crate::mount::fstab`]).
//! Options that have no meaning here are refused by name, never ignored, but for those that
//! choose a server or an agent: `AZEKURA_SYSTEM` and `--system` do.

mod daos;
mod dfuse;
mod dmg;
pub mod shape;

use crate::mount::fstab;
use clap::Parser;
use std::ffi::OsString;
use std::path::Path;

/// This program's arguments, in our own words.
///
/// Errors: those of the parser of the name the program was called by (help and version, too).
pub fn arguments() -> Result<Vec<OsString>, clap::Error> {
    translate(std::env::args_os().collect())
}

fn translate(args: Vec<OsString>) -> Result<Vec<OsString>, clap::Error> {
    let name = args.first().and_then(|program| Path::new(program).file_name());
    let ours = match name.and_then(|name| name.to_str()) {
        Some("daos") => daos::Daos::try_parse_from(args)?.ours(),
        Some("dmg") => dmg::Dmg::try_parse_from(args)?.ours(),
        Some("dfuse") => dfuse::Dfuse::try_parse_from(args)?.ours()?,
        _ => return Ok(fstab::translate(args)),
    };
    Ok(std::iter::once(OsString::from("azekura")).chain(ours).collect())
}

/// What `daos` and `dmg` take before and after each command.
#[derive(clap::Args, Debug)]
struct Common {
    /// Print JSON, in the envelope that DAOS uses
    #[arg(long, short, global = true)]
    json: bool,
    /// The system: a directory, tcp://HOST:PORT or unix:/PATH
    #[arg(long, global = true, value_name = "SYSTEM")]
    system: Option<String>,
}

impl Common {
    /// Our own arguments for a command; `answer` names the shape of its JSON ([`shape::Shape`]).
    fn ours(&self, answer: &str, command: Words) -> Vec<OsString> {
        Words::default()
            .option("system", self.system.as_ref())
            .flag("json", self.json)
            .option("answer-as", self.json.then_some(answer))
            .words(command.0)
            .0
    }
}

/// Arguments put together one after the other.
#[derive(Default)]
struct Words(Vec<OsString>);

impl Words {
    fn new(words: &[&str]) -> Words {
        Words(words.iter().map(OsString::from).collect())
    }

    fn word(mut self, word: impl Into<OsString>) -> Words {
        self.0.push(word.into());
        self
    }

    fn words<T: Into<OsString>>(mut self, words: impl IntoIterator<Item = T>) -> Words {
        self.0.extend(words.into_iter().map(Into::into));
        self
    }

    /// `--NAME VALUE`, if there is a value.
    fn option<T: Into<OsString>>(self, name: &str, value: Option<T>) -> Words {
        match value {
            // In one word: a value may begin with a dash.
            Some(value) => {
                let mut word = OsString::from(format!("--{name}="));
                word.push(value.into());
                self.word(word)
            }
            None => self,
        }
    }

    fn flag(self, name: &str, given: bool) -> Words {
        if given { self.word(format!("--{name}")) } else { self }
    }
}

/// `NAME:VALUE,…` in our writing, `NAME=VALUE` each.
fn assignments(list: &[String]) -> Vec<String> {
    list.iter().map(|one| one.replacen(':', "=", 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(theirs: &str) -> String {
        let words = theirs.split(' ').map(OsString::from).collect();
        match translate(words) {
            Ok(ours) => ours.join(&OsString::from(" ")).into_string().unwrap(),
            Err(error) => format!("refused: {:?}", error.kind()),
        }
    }

    #[test]
    fn commands_of_scripts_become_ours() {
        for (theirs, expected) in [
            (
                "/opt/bin/daos container create tank home --type POSIX",
                "azekura cont create --type=posix -- tank home",
            ),
            (
                "daos cont create --pool=tank --label=home --type=POSIX --oclass=SX --chunk-size=4MiB",
                "azekura cont create --type=posix --oclass=SX --chunk-size=4MiB -- tank home",
            ),
            (
                "daos cont create tank --label home --properties rd_fac:0,cksum:crc32",
                "azekura cont create --type=plain --properties=rd_fac:0,cksum:crc32 -- tank home",
            ),
            ("daos -j cont ls tank", "azekura --json --answer-as=daos-cont-list cont list -- tank"),
            ("daos cont query tank home", "azekura cont query -- tank home"),
            (
                "daos cont query --json tank home --system unix:/s",
                "azekura --system=unix:/s --json --answer-as=daos-cont cont query -- tank home",
            ),
            ("dmg --system /tmp/x pool list", "azekura --system=/tmp/x pool list"),
            ("daos cont destroy tank home -f", "azekura cont destroy --force -- tank home"),
            ("daos cont get-prop tank home", "azekura cont get-prop -- tank home"),
            (
                "daos cont set-attr tank home owner:climate",
                "azekura cont set-attr -- tank home owner=climate",
            ),
            (
                "daos cont set-attr tank home --attr owner --value climate",
                "azekura cont set-attr -- tank home owner=climate",
            ),
            ("daos cont create-snap tank home", "azekura cont create-snap -- tank home"),
            ("daos pool query tank", "azekura pool query -- tank"),
            ("daos pool list", "azekura pool list"),
            ("daos pool list-cont tank", "azekura cont list -- tank"),
            (
                "daos fs copy --src /data --dst daos://tank/home/x",
                "azekura fs cp -r -- /data azk://tank/home/x",
            ),
            ("daos fs check tank home", "azekura fs check -- azk://tank/home"),
            (
                "daos fs get-attr tank home --dfs-path=/x",
                "azekura fs get-attr -- azk://tank/home/x",
            ),
            (
                "daos fs set-attr --path=daos://tank/home/x --oclass=RP_3GX -z 4MiB",
                "azekura fs set-attr --oclass=RP_3GX --dir-oclass=RP_3GX --chunk-size=4MiB -- \
                 azk://tank/home/x",
            ),
            (
                "daos -j fs get-attr --path daos://tank/home/x",
                "azekura --json --answer-as=daos-fs-attr fs get-attr -- azk://tank/home/x",
            ),
            (
                "daos fs reset-oclass --pool tank --cont home -H x",
                "azekura fs reset-attr --oclass --dir-oclass -- azk://tank/home/x",
            ),
            (
                "daos fs reset-chunk-size tank home -H x",
                "azekura fs reset-attr --chunk-size -- azk://tank/home/x",
            ),
            ("daos fs reset-attr tank home -H x", "azekura fs reset-attr -- azk://tank/home/x"),
            ("daos system query", "azekura status"),
            ("dmg pool create --size=10G tank", "azekura pool create --size=10000000000 -- tank"),
            (
                "dmg -i -o /etc/x.yml pool create --size 4GiB --label tank",
                "azekura pool create --size=4294967296 -- tank",
            ),
            ("dmg -j pool list", "azekura --json --answer-as=dmg-pool-list pool list"),
            ("dmg pool query tank", "azekura pool query -- tank"),
            ("dmg pool destroy tank --force", "azekura pool destroy --force -- tank"),
            ("dmg pool set-prop tank label:scratch", "azekura pool set-prop -- tank label=scratch"),
            ("dmg system query", "azekura status"),
            (
                "dfuse --mountpoint=/mnt/x --pool=tank --container=home --disable-caching",
                "azekura mount --cache=none -- azk://tank/home /mnt/x",
            ),
            (
                "dfuse /mnt/x tank home --foreground -o allow_other",
                "azekura mount --foreground -o allow_other -- azk://tank/home /mnt/x",
            ),
            ("dfuse -m /mnt/x tank home", "azekura mount -- azk://tank/home /mnt/x"),
        ] {
            assert_eq!(ours(theirs), expected, "{theirs}");
        }
    }

    #[test]
    fn what_has_no_meaning_here_is_refused() {
        for theirs in [
            "daos cont create tank home --acl-file x",
            "daos pool autotest tank",
            "daos fs get-attr tank home",
            "daos fs set-attr tank home --path daos://tank/home/x",
            "dmg pool create --size=50% tank",
            "dmg pool upgrade tank",
            "dmg storage format",
            "dfuse /mnt/x",
        ] {
            assert!(ours(theirs).starts_with("refused"), "{theirs}: {}", ours(theirs));
        }
    }

    #[test]
    fn our_own_name_changes_nothing() {
        assert_eq!(ours("azekura pool create tank"), "azekura pool create tank");
    }
}
