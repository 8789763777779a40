//! The program as `mount(8)` calls it: `mount.fuse.azekura SPEC DIR [-sfnv] [-o OPTIONS]`.
//!
//! A link of that name in `/sbin` makes `mount -t fuse.azekura` and lines of `/etc/fstab` work.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Arguments in our own words; those of another name are left as they are.
pub fn translate(args: Vec<OsString>) -> Vec<OsString> {
    let name = args.first().and_then(|program| Path::new(program).file_name());
    if !name.is_some_and(|name| name.as_bytes().starts_with(b"mount.")) {
        return args;
    }
    let mut ours: Vec<OsString> = vec!["azekura".into(), "mount".into()];
    let mut rest = args.into_iter().skip(1);
    while let Some(arg) = rest.next() {
        match arg.as_bytes() {
            // What follows says nothing to us: the type, the name space (we are in it).
            b"-t" | b"-N" => drop(rest.next()),
            b"-o" => {
                ours.push(arg);
                ours.extend(rest.next());
            }
            b"-r" => ours.push("--read-only".into()),
            b"-w" => {}
            flags if is_short_flags(flags) => {
                // A dry run: only the arguments are looked at.
                if flags.contains(&b'f') {
                    ours.splice(1.., ["--version".into()]);
                    return ours;
                }
            }
            _ => ours.push(arg),
        }
    }
    ours
}

/// Sloppy, fake, no mtab, verbose.
fn is_short_flags(arg: &[u8]) -> bool {
    arg.len() > 1 && arg[0] == b'-' && arg[1..].iter().all(|flag| b"sfnv".contains(flag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(|word| OsStr::new(word).to_os_string()).collect()
    }

    #[test]
    fn what_mount_says_becomes_what_we_understand() {
        for (theirs, ours) in [
            (
                "/sbin/mount.fuse.azekura azk://p/c /mnt -o rw,cache=none",
                "azekura mount azk://p/c /mnt -o rw,cache=none",
            ),
            (
                "mount.azekura azk://p/c /mnt -n -s -v -t fuse.azekura -o ro",
                "azekura mount azk://p/c /mnt -o ro",
            ),
            (
                "mount.fuse.azekura azk://p/c /mnt -sn -r",
                "azekura mount azk://p/c /mnt --read-only",
            ),
            ("mount.fuse.azekura azk://p/c /mnt -f", "azekura --version"),
            ("azekura mount azk://p/c /mnt -f", "azekura mount azk://p/c /mnt -f"),
        ] {
            assert_eq!(translate(words(theirs)), words(ours), "{theirs}");
        }
    }
}
