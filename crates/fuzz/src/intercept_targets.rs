//! What the interception library reads: lists of mounts, what another process says of an open
//! file; and access control lists.
//!
//! The decoders' files are taken in by their paths: linked as a library, the crate would stand in
//! for the calls of this program.

use crate::corpus;
use crate::target::Target;

#[allow(dead_code, reason = "the library uses it; here it is only decoded")]
#[path = "../../intercept/src/about.rs"]
mod about;
#[allow(dead_code, reason = "as above")]
#[path = "../../intercept/src/mountinfo.rs"]
mod mountinfo;

const AMPLIFICATION: usize = 64;

/// All targets of the interception library.
pub fn all() -> Vec<Target> {
    let target = |name, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>| Target {
        name,
        run,
        seeds,
        amplification_max: AMPLIFICATION,
    };
    vec![
        target("intercept-about", about, || {
            let about = about::About {
                url: b"azk://p/c".to_vec(),
                path: b"/a/b".to_vec(),
                cont: [7; 16],
                object: vec![1, 2, 3],
            };
            vec![about.encode()]
        }),
        target("posix-acl", acl, acl_seeds),
        target("mountinfo", mountinfo, || {
            corpus::texts(&[
                "36 35 98:0 / /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue",
                "36 35 0:51 / /mnt/my\\040azk rw - fuse.azekura azk://tank/home rw,user_id=0",
                "1 1 0:1 /a\\134 /b ro - x y",
            ])
        }),
    ]
}

/// One that says no more than permission bits, and one that does.
fn acl_seeds() -> Vec<Vec<u8>> {
    let acl = |entries: &[(u8, u8)]| {
        let mut raw = vec![2, 0, 0, 0];
        for (tag, bits) in entries {
            raw.extend([*tag, 0, *bits, 0, 255, 255, 255, 255]);
        }
        raw
    };
    vec![acl(&[(1, 6), (4, 4), (32, 0)]), acl(&[(1, 7), (2, 7), (4, 5), (16, 1), (32, 4)])]
}

fn about(bytes: &[u8]) {
    if let Some(about) = about::About::decode(bytes) {
        assert_eq!(about::About::decode(&about.encode()), Some(about));
    }
}

fn acl(bytes: &[u8]) {
    if let Some(meaning) = dfs::acl::meaning(bytes) {
        assert!(meaning.mode <= 0o777);
        assert!(!meaning.is_plain || bytes.len() == 4 + 3 * 8);
        // The mode it is made with, or changed to, is as good as any.
        let mode = bytes.iter().fold(0, |mode, byte| mode * 31 % 0o10000 + u32::from(*byte));
        let new = dfs::acl::inherited(bytes, mode).expect("a valid ACL is inherited");
        assert_eq!(new.permissions & !(mode & meaning.mode), 0, "more than asked for or granted");
        assert_eq!(new.permissions_alone & !new.permissions, 0);
        let changed = dfs::acl::with_mode(bytes, mode).expect("a valid ACL follows");
        assert_eq!(dfs::acl::meaning(&changed).map(|meaning| meaning.mode), Some(mode & 0o777));
    }
}

fn mountinfo(bytes: &[u8]) {
    if let Some(mount) = mountinfo::parse(bytes) {
        assert!(mount.point.len() + mount.source.len() + mount.root.len() <= bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_understood() {
        let seeds = |name: &str| {
            let target = all().into_iter().find(|target| target.name == name);
            (target.unwrap().seeds)()
        };
        assert!(about::About::decode(&seeds("intercept-about")[0]).is_some());
        assert!(acl_seeds().iter().all(|raw| dfs::acl::meaning(raw).is_some()));
        assert!(seeds("mountinfo").iter().all(|line| mountinfo::parse(line).is_some()));
    }
}
