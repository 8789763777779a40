//! Rules of POSIX that the kernel and the mount keep together: owners, permissions, modes, times.

use crate::system::{Mounted, systems};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use types::Durability;

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

/// True where tests may act as several users.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: users are switched as root only");
    }
    root
}

/// Whether a shell command of a user succeeds.
fn as_user(uid: u32, gid: u32, dir: &Path, script: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-euc", script]).current_dir(dir).uid(uid).gid(gid);
    command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    command.status().unwrap().success()
}

fn mode_of(mounted: &Mounted, name: &str) -> u32 {
    fs::symlink_metadata(mounted.path(name)).unwrap().mode() & 0o7777
}

#[test]
fn permissions_hold_for_several_users() {
    if !is_root() {
        return;
    }
    for system in systems(Durability::Memory) {
        for options in
            ["", "cache=none", "no_default_permissions", "no_default_permissions,cache=none"]
        {
            let mounted = system.mount(options);
            mounted.sh(
                "rm -rf *; chmod 755 .; mkdir -m 777 open; mkdir -m 700 mine; chown 1000:1000 mine",
            );
            // The directory that holds the mount is root's alone.
            fs::set_permissions(
                mounted.dir().parent().unwrap(),
                fs::Permissions::from_mode(0o1777),
            )
            .ok();
            let may = |uid: u32, script: &str| as_user(uid, uid, mounted.dir(), script);
            assert!(may(1000, "echo mine > mine/f; chmod 640 mine/f; cat mine/f"), "{options}");
            assert!(!may(1001, "cat mine/f"), "{options}");
            assert!(!may(1001, "ls mine"), "{options}");
            assert!(!may(1001, "touch new"), "{options}");
            assert!(may(1001, "echo hers > open/hers"), "{options}");
            let hers = fs::metadata(mounted.path("open/hers")).unwrap();
            assert_eq!((hers.uid(), hers.gid()), (1001, 1001), "{options}");
            assert!(may(1000, "cat open/hers"), "{options}");
            assert!(!may(1000, "echo x >> open/hers"), "{options}");
            assert!(!may(1000, "chmod 777 open/hers"), "{options}");
            assert!(!may(1000, "chown 1000 open/hers"), "{options}");
            // Who owns neither the file nor the directory removes nothing from a sticky one.
            mounted.sh("chmod 1777 open");
            assert!(!may(1000, "rm -f open/hers"), "{options}");
            assert!(!may(1000, "mv open/hers open/his"), "{options}");
            assert!(may(1001, "mv open/hers open/still && rm open/still"), "{options}");
            mounted.unmount();
        }
    }
}

#[test]
fn privileges_go_with_changes_and_groups_come_from_directories() {
    if !is_root() {
        return;
    }
    for system in systems(Durability::Memory) {
        for options in ["", "cache=none", "cache=full", "no_default_permissions"] {
            let mounted = system.mount(options);
            mounted
                .sh("rm -rf *; mkdir -m 2777 team; chown 0:500 team; chmod 2777 team; chmod 777 .");
            assert!(as_user(1000, 1000, &mounted.path("team"), "touch f; mkdir d"), "{options}");
            let file = fs::metadata(mounted.path("team/f")).unwrap();
            let dir = fs::metadata(mounted.path("team/d")).unwrap();
            assert_eq!((file.uid(), file.gid()), (1000, 500), "{options}");
            assert_eq!((dir.gid(), dir.mode() & 0o2000), (500, 0o2000), "{options}");
            // A write by one who is not root clears the bits; a change of the owner always does.
            mounted.sh("echo x > prog; chmod 6777 prog");
            assert_eq!(mode_of(&mounted, "prog"), 0o6777, "{options}");
            assert!(as_user(1000, 1000, mounted.dir(), "echo y >> prog"), "{options}");
            // Who asks for the mode alone, which the kernel may have kept, sees it, too.
            mounted.sh("test $(stat -c %a prog) = 777");
            assert_eq!(mode_of(&mounted, "prog"), 0o777, "{options}: write");
            mounted.sh("chmod 6777 prog");
            assert!(as_user(1000, 1000, mounted.dir(), "fallocate -l 5000 prog"), "{options}");
            assert_eq!(mode_of(&mounted, "prog"), 0o777, "{options}: fallocate");
            mounted.sh("chmod 6777 prog; fallocate -l 6000 prog");
            assert_eq!(mode_of(&mounted, "prog"), 0o6777, "{options}: by root");
            mounted.sh("chmod 6755 prog; chown 7:7 prog");
            assert_eq!(mode_of(&mounted, "prog"), 0o755, "{options}: chown");
            mounted.sh("chmod 6777 prog");
            assert!(as_user(1000, 1000, mounted.dir(), "truncate -s 1 prog"), "{options}");
            assert_eq!(mode_of(&mounted, "prog"), 0o777, "{options}: truncate");
            mounted.unmount();
        }
    }
}

#[test]
fn names_links_and_kinds() {
    for system in systems(Durability::Memory) {
        let mounted = system.mount("");
        let at = |name: &str| mounted.path(name);
        fs::write(at(&"n".repeat(255)), "").unwrap();
        assert_eq!(errno(fs::write(at(&"n".repeat(256)), "")), libc::ENAMETOOLONG);
        symlink("loop", at("loop")).unwrap();
        assert_eq!(errno(fs::metadata(at("loop"))), libc::ELOOP);
        assert_eq!(fs::read_link(at("loop")).unwrap(), Path::new("loop"));
        symlink("x".repeat(4095), at("long")).unwrap();
        assert_eq!(fs::read_link(at("long")).unwrap().as_os_str().len(), 4095);
        fs::write(at("f"), "1").unwrap();
        fs::create_dir(at("dir")).unwrap();
        assert_eq!(errno(fs::hard_link(at("dir"), at("d"))), libc::EPERM);
        let outside = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        assert_eq!(errno(fs::hard_link(outside.path(), at("g"))), libc::EXDEV);
        fs::hard_link(at("f"), at("g")).unwrap();
        let (f, g) = (fs::metadata(at("f")).unwrap(), fs::metadata(at("g")).unwrap());
        assert_eq!((f.ino(), f.nlink()), (g.ino(), 2));
        // Through an open file, after its first name went.
        let open = File::open(at("f")).unwrap();
        fs::remove_file(at("f")).unwrap();
        assert_eq!(open.metadata().unwrap().nlink(), 1);
        fs::rename(at("g"), at("h")).unwrap();
        assert_eq!(open.metadata().unwrap().nlink(), 1);
        fs::set_permissions(at("h"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o777, 0o600);
        fs::remove_file(at("h")).unwrap();
        assert_eq!(open.metadata().unwrap().nlink(), 0);
        // Open once more through /proc although it has no name; change what nobody can name.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
        assert_eq!(fs::read(&path).unwrap(), b"1");
        open.set_permissions(fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o777, 0o400);

        // renameat2
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        fs::write(at("a"), "a").unwrap();
        fs::create_dir(at("b")).unwrap();
        let rename = |from: &str, to: &str, flags| renameat_with(CWD, at(from), CWD, at(to), flags);
        let refused = rename("a", "b", RenameFlags::NOREPLACE);
        assert_eq!(refused, Err(rustix::io::Errno::EXIST));
        rename("a", "b", RenameFlags::EXCHANGE).unwrap();
        assert!(fs::metadata(at("a")).unwrap().is_dir());
        assert_eq!(fs::read(at("b")).unwrap(), b"a");
        fs::write(at("a/in"), "").unwrap();
        assert_eq!(errno(fs::rename(at("a"), at("a/in/x"))), libc::ENOTDIR);
        fs::create_dir(at("a/sub")).unwrap();
        assert_eq!(errno(fs::rename(at("a"), at("a/sub/x"))), libc::EINVAL);
        assert_eq!(errno(fs::rename(at("b"), at("a"))), libc::EISDIR);

        // Special files.
        if is_root() {
            mounted.sh("mknod null c 1 3; mknod block b 7 200; mkfifo pipe");
            let null = fs::metadata(at("null")).unwrap();
            assert!(null.file_type().is_char_device());
            assert_eq!(null.rdev(), rustix::fs::makedev(1, 3));
            let block = fs::metadata(at("block")).unwrap();
            assert!(block.file_type().is_block_device());
            assert_eq!(block.rdev(), rustix::fs::makedev(7, 200));
            let socket = std::os::unix::net::UnixListener::bind(at("s")).unwrap();
            assert!(fs::metadata(at("s")).unwrap().file_type().is_socket());
            drop(socket);
        }
        let space = rustix::fs::statvfs(mounted.dir()).unwrap();
        assert!(space.f_blocks * space.f_frsize >= 1 << 29, "{} blocks", space.f_blocks);
        assert_eq!(space.f_namemax, 255);
    }
}

#[test]
fn extended_attributes_and_times() {
    for system in systems(Durability::Memory) {
        for options in ["", "cache=none"] {
            let mounted = system.mount(options);
            fs::write(mounted.path("f"), "").unwrap();
            use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
            let path = mounted.path("f");
            let mut room = [0u8; 100];
            let absent = getxattr(&path, "user.a", &mut room[..]);
            assert_eq!(absent, Err(rustix::io::Errno::NODATA), "{options}");
            setxattr(&path, "user.a", b"value", XattrFlags::CREATE).unwrap();
            let again = setxattr(&path, "user.a", b"", XattrFlags::CREATE);
            assert_eq!(again, Err(rustix::io::Errno::EXIST));
            assert_eq!(getxattr(&path, "user.a", &mut room[..]).unwrap(), 5, "{options}");
            assert_eq!(&room[..5], b"value");
            let short = getxattr(&path, "user.a", &mut room[..2]);
            assert_eq!(short, Err(rustix::io::Errno::RANGE));
            let count = listxattr(&path, &mut room[..]).unwrap();
            assert_eq!(&room[..count], b"user.a\0");
            // Under another name, and after the file was looked up anew.
            fs::rename(&path, mounted.path("g")).unwrap();
            assert_eq!(getxattr(mounted.path("g"), "user.a", &mut room[..]).unwrap(), 5);
            removexattr(mounted.path("g"), "user.a").unwrap();
            assert_eq!(listxattr(mounted.path("g"), &mut room[..]).unwrap(), 0);

            let file = File::open(mounted.path("g")).unwrap();
            let stamp =
                std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
            file.set_times(fs::FileTimes::new().set_accessed(stamp).set_modified(stamp)).unwrap();
            let meta = fs::metadata(mounted.path("g")).unwrap();
            assert_eq!(
                (meta.mtime(), meta.mtime_nsec()),
                (1_234_567_890, 123_456_789),
                "{options}"
            );
            assert_eq!(meta.atime_nsec(), 123_456_789);
            assert!(meta.ctime() > 1_234_567_890);
            OpenOptions::new().write(true).open(mounted.path("g")).unwrap().set_len(10).unwrap();
            assert!(fs::metadata(mounted.path("g")).unwrap().mtime() > 1_234_567_890, "{options}");
        }
    }
}

#[test]
fn layouts_are_extended_attributes() {
    use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
    use rustix::io::Errno;
    for system in systems(Durability::Memory) {
        for options in ["", "cache=none", "cache=full"] {
            let mounted = system.mount(options);
            let told = |name: &str, attr: &str| {
                let mut room = [0u8; 200];
                let attr = format!("user.azekura.{attr}");
                let count = getxattr(mounted.path(name), attr.as_str(), &mut room[..])?;
                Ok::<String, Errno>(String::from_utf8_lossy(&room[..count]).into_owned())
            };
            let set = |name: &str, attr: &str, value: &str| {
                let attr = format!("user.azekura.{attr}");
                setxattr(mounted.path(name), attr.as_str(), value.as_bytes(), XattrFlags::empty())
            };
            mounted.sh("rm -rf d; mkdir d; touch d/before");
            assert_eq!(told("d", "oclass").unwrap(), "SX+1MiB", "{options}");
            assert_eq!(told("d/before", "oclass").unwrap(), "SX+1MiB", "{options}");
            set("d", "oclass", "RP_2G1").unwrap();
            set("d", "dir_oclass", "RP_2GX").unwrap();
            set("d", "chunk_size", "64KiB").unwrap();
            assert_eq!(told("d", "oclass").unwrap(), "RP_2G1", "{options}");
            mounted.sh("echo data > d/after; mkdir d/e; echo data > d/e/f");
            assert_eq!(told("d/after", "oclass").unwrap(), "RP_2G1", "{options}");
            assert_eq!(told("d/e/f", "chunk_size").unwrap(), "65536", "{options}");
            let layout = told("d/e", "layout").unwrap();
            assert!(layout.contains(" oclass=RP_2GX groups=1 copies=2 "), "{layout}");
            assert_eq!(told("d/before", "oclass").unwrap(), "SX+1MiB", "{options}");
            assert_eq!(told("d/before", "dir_oclass"), Err(Errno::NODATA), "{options}");
            assert_eq!(listxattr(mounted.path("d"), &mut [0u8; 100][..]), Ok(0), "{options}");

            assert_eq!(set("d/before", "oclass", "RP_2G1"), Err(Errno::OPNOTSUPP), "{options}");
            assert_eq!(set("d", "layout", "RP_2G1"), Err(Errno::OPNOTSUPP), "{options}");
            for bad in ["RP_9G1", "RP_3G1", "", "two"] {
                assert_eq!(set("d", "oclass", bad), Err(Errno::INVAL), "{bad} {options}");
            }
            removexattr(mounted.path("d"), "user.azekura.oclass").unwrap();
            assert_eq!(told("d", "oclass").unwrap(), "SX+1MiB", "{options}");
            mounted.sh("touch d/last");
            assert_eq!(told("d/last", "oclass").unwrap(), "SX+1MiB", "{options}");
            assert_eq!(told("d/last", "chunk_size").unwrap(), "65536", "{options}");
            // Whatever copies all attributes takes none of these along.
            mounted.sh("cp -a d copy; rm -r copy");
        }
    }
}

#[test]
fn read_only_means_read_only() {
    for system in systems(Durability::Memory) {
        let writable = system.mount("cache=none");
        fs::write(writable.path("f"), "data").unwrap();
        let mounted = system.mount("ro,cache=none");
        assert_eq!(fs::read(mounted.path("f")).unwrap(), b"data");
        assert_eq!(errno(fs::write(mounted.path("f"), "x")), libc::EROFS);
        assert_eq!(errno(fs::remove_file(mounted.path("f"))), libc::EROFS);
        assert_eq!(errno(fs::create_dir(mounted.path("d"))), libc::EROFS);
        fs::write(writable.path("g"), "later").unwrap();
        assert_eq!(fs::read(mounted.path("g")).unwrap(), b"later");
        let opened = OpenOptions::new()
            .write(true)
            .mode(0o600)
            .create(true)
            .truncate(false)
            .open(mounted.path("h"));
        assert_eq!(errno(opened), libc::EROFS);
    }
}

#[test]
fn a_snapshot_shows_what_was() {
    for system in systems(Durability::Memory) {
        let present = system.mount("cache=none");
        present.sh("mkdir d; echo old > d/f; echo gone > gone; chmod 640 d/f");
        system.snapshot("monday");
        present.sh("echo newer > d/f; rm gone; touch d/later; mv d e");
        for mode in ["none", "metadata"] {
            let past = system.mount(&format!("snapshot=monday,cache={mode}"));
            past.sh("test \"$(cat d/f)\" = old; test \"$(cat gone)\" = gone; test ! -e e");
            past.sh("test \"$(ls d)\" = f; test \"$(stat -c '%a %s' d/f)\" = '640 4'");
            assert_eq!(errno(fs::write(past.path("d/f"), "x")), libc::EROFS);
            past.unmount();
        }
        present.sh("test \"$(cat e/f)\" = newer; test ! -e gone");
    }
}

/// A backup of a mounted snapshot that had been destroyed meanwhile was empty, without an error: reading the directory ended at once, and names were not there.
#[test]
fn a_snapshot_that_is_gone_is_an_error_and_no_empty_tree() {
    for system in systems(Durability::Memory) {
        let present = system.mount("cache=none");
        present.sh("mkdir d; echo old > d/f");
        system.snapshot("monday");
        for options in ["cache=none", "cache=metadata,attr_timeout=60,entry_timeout=60"] {
            let past = system.mount(&format!("snapshot=monday,{options}"));
            past.sh("test \"$(ls -R | wc -l)\" = 5");
            system.destroy_snapshot("monday");
            let listed = fs::read_dir(past.path("."))
                .and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>());
            assert_eq!(errno(listed.map(drop)), libc::ESTALE, "{options}");
            assert_eq!(errno(fs::metadata(past.path("other")).map(drop)), libc::ESTALE);
            past.unmount();
            system.snapshot("monday");
        }
    }
}
