//! How often the engines are asked, and what a listing promises.

use crate::system::{self, Mounted, systems};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use types::Durability;

/// Questions asked while something is done.
fn asked<T>(mounted: &Mounted, work: impl FnOnce() -> T) -> u64 {
    let before = mounted.mount().volume().request_count();
    let done = work();
    drop(done);
    mounted.mount().volume().request_count() - before
}

/// Requests of the kernel while something is done, the releases of what was closed included. The
/// kernel has just looked at the root, as it has where programs are at work.
fn requested<T>(mounted: &Mounted, work: impl FnOnce() -> T) -> u64 {
    let count = || mounted.mount().session().request_count();
    fs::symlink_metadata(mounted.dir()).unwrap();
    let before = count();
    drop(work());
    system::eventually("what was closed is released", || {
        mounted.mount().volume().open_count() == 0
    });
    count() - before
}

/// The least of many counts: what the kernel keeps for a tick or two of its timer it asks for again
/// when the machine is busy with other things.
fn least(mut count: impl FnMut() -> u64) -> u64 {
    (0..300).map(|_| count()).min().unwrap()
}

/// Without caching the kernel used to ask for the attributes of everything on a path three times:
/// with the name, to check permissions, and to tell the program. A stat one directory deep took 5
/// requests, a create with its close 9, an open with its close 8, an unlink 6.
#[test]
fn an_operation_without_caching_takes_few_requests() {
    for system in systems(Durability::Memory) {
        // Where locks are this machine's alone `close` asks nothing; the release is waited for by
        // nobody.
        for (options, close) in
            [("cache=none,noatime", 2), ("cache=none,noatime,local_lock=all", 1)]
        {
            let mounted = system.mount(options);
            fs::create_dir_all(mounted.path("d")).unwrap();
            let (old, new) = (mounted.path("d/old"), mounted.path("d/new"));
            fs::write(&old, "data").unwrap();
            let stat = least(|| requested(&mounted, || fs::symlink_metadata(&old).unwrap()));
            assert_eq!(stat, 2, "stat: the directory's name, the file's");
            let open = least(|| requested(&mounted, || File::open(&old).unwrap()));
            assert_eq!(open, 3 + close, "open and close: two names, the file");
            let mut unlink = u64::MAX;
            let create = least(|| {
                let create = requested(&mounted, || File::create_new(&new).unwrap());
                unlink = unlink.min(requested(&mounted, || fs::remove_file(&new).unwrap()));
                create
            });
            assert_eq!(create, 3 + close, "create and close: two names, the file");
            assert_eq!(unlink, 3, "unlink: two names, the file");
            let open = File::open(&old).unwrap();
            // What was closed or removed before may be forgotten meanwhile, which is a request too.
            let fstat = least(|| {
                let before = mounted.mount().session().request_count();
                for _ in 0..10 {
                    open.metadata().unwrap();
                }
                mounted.mount().session().request_count() - before
            });
            assert_eq!(fstat, 10, "what is open is asked about each time");
            drop(open);
            mounted.unmount();
        }
    }
}

#[test]
fn one_question_for_a_stat_an_open_a_create() {
    for system in systems(Durability::Memory) {
        // A read that sets the time of access asks once more, beside it and some time later.
        let mounted = system.mount("cache=none,noatime");
        fs::write(mounted.path("f"), "data").unwrap();
        // The kernel checks the root's permissions first, by what it was told a moment ago.
        let path = mounted.path("f");
        let stat = least(|| asked(&mounted, || fs::symlink_metadata(&path).unwrap()));
        assert_eq!(stat, 1, "stat");
        let file = File::open(&path).unwrap();
        let fstat = asked(&mounted, || file.metadata().unwrap());
        assert_eq!(fstat, 1, "fstat");
        let mut byte = [0; 4];
        assert_eq!(asked(&mounted, || file.read_exact_at(&mut byte, 0).unwrap()), 1, "read");
        drop(file);
        mounted.unmount();

        let mounted = system.mount("cache=metadata,attr_timeout=1000,entry_timeout=1000,noatime");
        let path = mounted.path("f");
        fs::metadata(mounted.dir()).unwrap();
        assert_eq!(asked(&mounted, || fs::metadata(&path).unwrap()), 1, "lookup");
        assert_eq!(asked(&mounted, || fs::metadata(&path).unwrap()), 0, "stat again");
        let open = asked(&mounted, || File::open(&path).unwrap());
        assert_eq!(open, 1, "open of a known file");
        assert_eq!(asked(&mounted, || fs::read(&path).unwrap()), 2, "open and read");
        let read_again = || {
            let file = File::open(&path).unwrap();
            file.read_exact_at(&mut byte, 0).unwrap();
        };
        assert_eq!(asked(&mounted, read_again), 1, "pages are kept: only opened");
        // Numbers for new objects are fetched in ranges; the first create fetches one.
        fs::write(mounted.path("first"), "").unwrap();
        let made = asked(&mounted, || {
            for index in 0..20 {
                drop(File::create_new(mounted.path(&format!("new{index}"))).unwrap());
            }
        });
        // Each: the file; and the kernel, which checks permissions, asks for the directory's attributes
        // after each change: its inode, its two shards. The other thread fetches a range of numbers.
        assert!(made <= 82, "20 files took {made} questions");
    }
}

#[test]
fn a_long_listing_takes_few_questions() {
    for system in systems(Durability::Memory) {
        let dfs = system.dfs();
        let sys = dfs::sys::Sys::new(dfs);
        system.block_on(async {
            sys.mkdir(b"/d", 0o755).await.unwrap();
            for index in 0..10_000u32 {
                let flags = dfs::OpenFlags::CREATE | dfs::OpenFlags::WRITE;
                let name = format!("/d/file{index:05}");
                let options = dfs::CreateOptions::default();
                drop(sys.open(name.as_bytes(), flags, 0o640, &options).await.unwrap());
            }
        });
        // The least of several: a kernel that needs memory lets go of what nobody has used yet, and asks
        // for it again.
        let (mut first, mut again) = (u64::MAX, u64::MAX);
        for _ in 0..10 {
            let mounted = system.mount("cache=metadata,attr_timeout=1000,entry_timeout=1000");
            let mut lines = String::new();
            first = first.min(asked(&mounted, || lines = mounted.sh("ls -l d")));
            assert_eq!(lines.lines().count(), 10_001);
            assert!(lines.lines().skip(1).all(|line| line.starts_with("-rw-r-----")));
            let find = || drop(mounted.sh("find d -type f -size 0 | wc -l"));
            again = again.min(asked(&mounted, find));
            mounted.unmount();
            if first < 60 && again < 60 {
                break;
            }
        }
        assert!(first < 60, "ls -l of 10,000 files took {first} questions");
        assert!(again < 60, "find took {again} questions");
    }
}

#[test]
fn a_listing_gives_each_entry_once_whatever_happens_meanwhile() {
    for system in systems(Durability::Memory) {
        for mode in ["cache=none", "cache=metadata"] {
            let mounted = system.mount(mode);
            fs::create_dir(mounted.path("d")).unwrap();
            let all: BTreeSet<String> = (0..3000).map(|index| format!("entry-{index}")).collect();
            for name in &all {
                File::create(mounted.path("d").join(name)).unwrap();
            }
            // What is removed while it is listed does not hide what stays.
            let mut seen = BTreeSet::new();
            for (index, entry) in fs::read_dir(mounted.path("d")).unwrap().enumerate() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                if index % 3 == 0 {
                    fs::remove_file(mounted.path("d").join(&name)).unwrap();
                    // A removed name is gone, although a page of the listing still has it.
                    assert!(fs::symlink_metadata(mounted.path("d").join(&name)).is_err());
                }
                assert!(seen.insert(name), "an entry came twice");
            }
            assert_eq!(seen, all);
            let left: Vec<_> = fs::read_dir(mounted.path("d")).unwrap().collect();
            assert_eq!(left.len(), 2000);
            // Attributes that changed after the page was read are not brought back by it.
            let mut listing = fs::read_dir(mounted.path("d")).unwrap();
            listing.next().unwrap().unwrap();
            for entry in left {
                let path = entry.unwrap().path();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            }
            for entry in listing {
                let mode = fs::symlink_metadata(entry.unwrap().path()).unwrap().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
            // rm -r lists and removes at once.
            mounted.sh("rm -r d");
            mounted.unmount();
        }
    }
}

#[test]
fn nodes_are_forgotten() {
    for system in systems(Durability::Memory) {
        let mounted = system.mount("cache=metadata");
        mounted.sh("mkdir d; cd d; seq 500 | xargs touch; ls -l > /dev/null");
        assert!(mounted.mount().volume().node_count() >= 500);
        mounted.sh("rm -r d");
        system::eventually("removed files are forgotten", || {
            mounted.mount().volume().node_count() < 10
        });
    }
}
