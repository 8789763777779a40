//! What several clients see of each other: two mounts of one container, and the library beside
//! them, in each cache mode.

use crate::system::{eventually, systems};
use dfs::sys::Sys;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::Durability;

/// Without caching every operation sees what others have completed, files that are open included.
#[test]
fn without_caching_everything_is_seen_at_once() {
    for system in systems(Durability::Memory) {
        let (a, b) = (system.mount("cache=none"), system.mount("cache=none"));
        // Names that did not exist a moment ago, and attributes.
        assert!(fs::metadata(b.path("f")).is_err());
        fs::write(a.path("f"), "one").unwrap();
        assert_eq!(fs::read(b.path("f")).unwrap(), b"one");
        let open = File::open(b.path("f")).unwrap();
        for round in 0..20u64 {
            let text = format!("round {round:03} {}", "x".repeat(round as usize * 700));
            fs::write(a.path("f"), &text).unwrap();
            assert_eq!(fs::metadata(b.path("f")).unwrap().len(), text.len() as u64);
            let mut back = vec![0; text.len()];
            open.read_exact_at(&mut back, 0).unwrap();
            assert_eq!(back, text.as_bytes());
            assert_eq!(open.metadata().unwrap().len(), text.len() as u64);
        }
        // Names.
        fs::rename(a.path("f"), a.path("g")).unwrap();
        assert!(fs::metadata(b.path("f")).is_err());
        assert_eq!(fs::metadata(b.path("g")).unwrap().ino(), open.metadata().unwrap().ino());
        fs::create_dir(b.path("d")).unwrap();
        fs::write(a.path("d/x"), "").unwrap();
        assert_eq!(fs::read_dir(b.path("d")).unwrap().count(), 1);
        assert_eq!(fs::remove_dir(b.path("d")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
        fs::remove_file(b.path("d/x")).unwrap();
        fs::remove_dir(a.path("d")).unwrap();
        assert!(fs::metadata(b.path("d")).is_err());
        // The library.
        let sys = Sys::new(system.dfs());
        system.block_on(sys.write_file(b"/l", b"library", 0o644)).unwrap();
        assert_eq!(fs::read(a.path("l")).unwrap(), b"library");
        fs::write(b.path("l"), "mount").unwrap();
        assert_eq!(system.block_on(sys.read_file(b"/l")).unwrap(), b"mount");
    }
}

/// Who has a file open sees where it ends now, although the kernel was told attributes when the file
/// was opened a moment ago, and again when another program looked at it by name.
#[test]
fn without_caching_an_open_file_shows_its_size_at_once() {
    for system in systems(Durability::Memory) {
        let (a, b) = (system.mount("cache=none"), system.mount("cache=none"));
        let writer = File::create(a.path("f")).unwrap();
        for round in 1..200u64 {
            let mut open = File::open(b.path("f")).unwrap();
            writer.write_all_at(b"x", round - 1).unwrap();
            assert_eq!(open.metadata().unwrap().len(), round);
            fs::metadata(b.path("f")).unwrap();
            writer.set_permissions(fs::Permissions::from_mode(0o600 + round as u32 % 8)).unwrap();
            assert_eq!(open.metadata().unwrap().mode() & 0o777, 0o600 + round as u32 % 8);
            writer.write_all_at(b"x", round).unwrap();
            assert_eq!(open.seek(SeekFrom::End(0)).unwrap(), round + 1);
        }
    }
}

/// With cached metadata a file that is opened shows what others wrote and closed before, although
/// its pages and attributes are in this kernel; what is open shows it before long.
#[test]
fn with_cached_metadata_who_opens_sees_what_was_closed() {
    for system in systems(Durability::Memory) {
        let (a, b) = (system.mount(""), system.mount(""));
        fs::write(a.path("f"), "one").unwrap();
        assert_eq!(fs::read(b.path("f")).unwrap(), b"one");
        for round in 0..20usize {
            // Longer, shorter, and of the same length.
            let text = format!("{round:03}{}", "x".repeat([5000, 10, 10, 20_000][round % 4]));
            fs::write(a.path("f"), &text).unwrap();
            let mut open = File::open(b.path("f")).unwrap();
            let mut back = Vec::new();
            open.read_to_end(&mut back).unwrap();
            assert_eq!(back.len(), text.len(), "round {round}");
            assert_eq!(back, text.as_bytes());
        }
        let mut open = File::open(b.path("f")).unwrap();
        let mut back = Vec::new();
        open.read_to_end(&mut back).unwrap();
        let mut grown = OpenOptions::new().append(true).open(a.path("f")).unwrap();
        grown.write_all(b"tail").unwrap();
        eventually("an open file shows what was appended elsewhere", || {
            let mut tail = Vec::new();
            open.read_to_end(&mut tail).unwrap();
            tail == b"tail"
        });
        // The library writes in the middle; pages that were read before go.
        let sys = Sys::new(system.dfs());
        let dfs = sys.fs().clone();
        system.block_on(async {
            let root = dfs.root().await.unwrap();
            let named = dfs.lookup_stat(&root, b"f").await.unwrap().0;
            let file = dfs
                .open_obj(&named, dfs::OpenFlags::READ_WRITE, dfs::Unnamed::Refused)
                .await
                .unwrap()
                .0;
            dfs.write(&file, 1, b"LIBRARY").await.unwrap();
        });
        let mut again = File::open(b.path("f")).unwrap();
        let mut head = [0; 9];
        again.read_exact(&mut head).unwrap();
        assert_eq!(&head[1..8], b"LIBRARY");
        eventually("the file that was open shows it too", || {
            open.seek(SeekFrom::Start(0)).unwrap();
            open.read_exact(&mut head).unwrap();
            &head[1..8] == b"LIBRARY"
        });
    }
}

/// With write-back the one that writes sees its own writes at once, others after close or fsync.
#[test]
fn with_write_back_others_see_what_was_flushed() {
    for system in systems(Durability::Memory) {
        let (writer, reader) = (system.mount("cache=full"), system.mount("cache=none"));
        let mut file = File::create(writer.path("f")).unwrap();
        for round in 0..2000u32 {
            file.write_all(&round.to_le_bytes()).unwrap();
        }
        assert_eq!(fs::metadata(writer.path("f")).unwrap().len(), 8000);
        file.sync_all().unwrap();
        assert_eq!(fs::read(reader.path("f")).unwrap().len(), 8000);
        file.write_all(b"end").unwrap();
        drop(file);
        assert!(fs::read(reader.path("f")).unwrap().ends_with(b"end"));
        let mut file = OpenOptions::new().append(true).open(writer.path("f")).unwrap();
        file.write_all(b"appended").unwrap();
        file.sync_data().unwrap();
        let back = fs::read(reader.path("f")).unwrap();
        assert_eq!(back.len(), 8011);
        assert!(back.ends_with(b"endappended"));
        // Times set explicitly stay although pages were written back before.
        let status = std::process::Command::new("touch")
            .args(["-d", "2001-01-01 00:00:00 UTC"])
            .arg(writer.path("f"))
            .status()
            .unwrap();
        assert!(status.success());
        drop(file);
        assert_eq!(fs::metadata(reader.path("f")).unwrap().mtime(), 978_307_200);
    }
}

/// Bytes that a mapping changed are in the file, for programs of the same machine at once, for
/// others after `msync`; in every mode.
#[test]
fn shared_mappings_reach_the_file() {
    for system in systems(Durability::Memory) {
        let reader = system.mount("cache=none");
        for mode in ["cache=none", "cache=metadata", "cache=full"] {
            let mounted = system.mount(mode);
            let name = mode.replace('=', "-");
            fs::write(mounted.path(&name), vec![b'.'; 10_000]).unwrap();
            let file = OpenOptions::new().read(true).write(true).open(mounted.path(&name)).unwrap();
            let length = 10_000;
            // SAFETY: a fresh mapping of a file of that length, unmapped below.
            unsafe {
                let flags = rustix::mm::MapFlags::SHARED;
                let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
                let at =
                    rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, &file, 0)
                        .unwrap_or_else(|error| panic!("{mode}: {error}"));
                let bytes = std::slice::from_raw_parts_mut(at.cast::<u8>(), length);
                assert_eq!(bytes[9_999], b'.');
                bytes[5000..5006].copy_from_slice(b"mapped");
                let mut seen = [0; 6];
                file.read_exact_at(&mut seen, 5000).unwrap();
                assert_eq!(&seen, b"mapped", "{mode}");
                rustix::mm::msync(at, length, rustix::mm::MsyncFlags::SYNC).unwrap();
                assert_eq!(&fs::read(reader.path(&name)).unwrap()[5000..5006], b"mapped", "{mode}");
                rustix::mm::munmap(at, length).unwrap();
            }
            drop(file);
            mounted.unmount();
        }
    }
}

/// `O_EXCL` has one winner, also across mounts.
#[test]
fn exclusive_creation_has_one_winner() {
    for system in systems(Durability::Memory) {
        let mounts = [system.mount("cache=none"), system.mount("cache=metadata")];
        for round in 0..20 {
            let made: Vec<bool> = std::thread::scope(|scope| {
                let tries: Vec<_> = (0..4)
                    .map(|who| {
                        let path = mounts[who % 2].path(&format!("lock{round}"));
                        scope.spawn(move || {
                            let made = OpenOptions::new()
                                .write(true)
                                .create_new(true)
                                .mode(0o600)
                                .open(path);
                            match made {
                                Ok(_) => true,
                                Err(error) => {
                                    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
                                    false
                                }
                            }
                        })
                    })
                    .collect();
                tries.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(made.iter().filter(|made| **made).count(), 1, "round {round}");
        }
    }
}
/// Appending programs on two mounts lose nothing and leave no holes.
#[test]
fn appends_from_two_mounts_are_whole() {
    for system in systems(Durability::Memory) {
        let mounts = [system.mount("cache=none"), system.mount("cache=metadata")];
        fs::write(mounts[0].path("log"), "").unwrap();
        let line = |who: usize, round: usize| {
            format!("{who} {round:04} {}\n", "=".repeat((round * 7 + who) % 120))
        };
        std::thread::scope(|scope| {
            for who in 0..4 {
                let path = mounts[who % 2].path("log");
                scope.spawn(move || {
                    let mut file = OpenOptions::new().append(true).open(path).unwrap();
                    for round in 0..50 {
                        file.write_all(line(who, round).as_bytes()).unwrap();
                    }
                });
            }
        });
        let text = String::from_utf8(fs::read(mounts[0].path("log")).unwrap()).unwrap();
        let mut next = [0; 4];
        for found in text.split_inclusive('\n') {
            let who = (found.as_bytes()[0] - b'0') as usize;
            assert_eq!(found, line(who, next[who]));
            next[who] += 1;
        }
        assert_eq!(next, [50; 4]);
    }
}

/// A file that is replaced while several programs open it is the old one or the new one. One that lost its name a moment ago was opened because another program had it open, which gave it
/// back meanwhile: it was empty.
#[test]
fn a_file_that_is_replaced_while_it_is_opened_is_never_empty() {
    for system in systems(Durability::Memory) {
        for cache in ["cache=metadata", "cache=none"] {
            let mount = system.mount(cache);
            let (new, at) = (mount.path("new"), mount.path("at"));
            let replace = |round: u8| {
                fs::write(&new, vec![round; 20_000]).unwrap();
                fs::rename(&new, &at).unwrap();
            };
            replace(0);
            let is_over = AtomicBool::new(false);
            let read = || {
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let bytes = fs::read(&at).unwrap();
                    assert_eq!(bytes.len(), 20_000, "{cache}");
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{cache}");
                    count += 1;
                }
                count
            };
            std::thread::scope(|scope| {
                let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
                for round in 1..120 {
                    replace(round);
                    std::thread::sleep(Duration::from_millis(10));
                }
                is_over.store(true, Ordering::Relaxed);
                for reader in readers {
                    assert!(reader.join().unwrap() > 0, "{cache}");
                }
            });
        }
    }
}

/// A path is looked up, and then what it led to is opened. Where the file is replaced without a pause it may be replaced in between, also the second time that the kernel tries; programs were told
/// `ESTALE`, about once in five hundred tries.
#[test]
fn a_file_that_is_replaced_without_a_pause_can_be_opened() {
    for system in systems(Durability::Memory) {
        for cache in ["cache=metadata", "cache=none"] {
            let mounts = [system.mount(cache), system.mount(cache)];
            fs::write(mounts[0].path("at"), [0]).unwrap();
            let is_over = AtomicBool::new(false);
            let [at, new] = ["at", "new"].map(|name| mounts[0].path(name));
            let seen_at = [at.clone(), mounts[1].path("at")];
            let read = |at: &Path| {
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) {
                    match fs::read(at) {
                        Ok(bytes) => assert_eq!(bytes.len(), 1, "{cache}"),
                        Err(error) => panic!("{cache}, after {count}: {error}"),
                    }
                    count += 1;
                }
                count
            };
            std::thread::scope(|scope| {
                let readers: Vec<_> = seen_at.iter().map(|at| scope.spawn(|| read(at))).collect();
                for round in 0..2500 {
                    fs::write(&new, [round as u8]).unwrap();
                    fs::rename(&new, &at).unwrap();
                }
                is_over.store(true, Ordering::Relaxed);
                for reader in readers {
                    assert!(reader.join().unwrap() > 0, "{cache}");
                }
            });
        }
    }
}

/// Programs on two nodes use a file through descriptors that they have open all the time, each while it has the lock. Who had not written itself read what was in its kernel's pages, up to a
/// second old: a database that both used with a rollback journal was destroyed within seconds.
#[test]
fn who_has_a_lock_sees_what_others_wrote_under_it() {
    for system in systems(Durability::Memory) {
        for kind in ["flock", "fcntl"] {
            let mounts = [system.mount("cache=metadata"), system.mount("cache=metadata")];
            // Of what it has seen before a kernel keeps pages.
            for mount in &mounts {
                fs::write(mount.path("f"), [0; 8]).unwrap();
                fs::read(mounts[1].path("f")).unwrap();
            }
            let open = |mount: usize| {
                File::options().read(true).write(true).open(mounts[mount].path("f")).unwrap()
            };
            let (changed, looked_at) = (open(0), open(1));
            for step in 1..200u64 {
                lock_whole(&changed, kind, libc::F_WRLCK);
                changed.write_all_at(&step.to_le_bytes(), 0).unwrap();
                changed.write_all_at(&step.to_le_bytes(), 8 * step).unwrap();
                lock_whole(&changed, kind, libc::F_UNLCK);
                lock_whole(&looked_at, kind, libc::F_RDLCK);
                let mut number = [0; 8];
                looked_at.read_exact_at(&mut number, 0).unwrap();
                assert_eq!(u64::from_le_bytes(number), step, "{kind}");
                assert_eq!(looked_at.metadata().unwrap().len(), 8 * (step + 1), "{kind}");
                lock_whole(&looked_at, kind, libc::F_UNLCK);
            }
        }
    }
}

/// Locks, or lets go of, a whole file for this open file alone; waits.
fn lock_whole(file: &File, kind: &str, how: i32) {
    let done = match kind {
        "flock" => {
            let how = match how {
                libc::F_UNLCK => libc::LOCK_UN,
                libc::F_RDLCK => libc::LOCK_SH,
                _ => libc::LOCK_EX,
            };
            // SAFETY: the descriptor is open.
            unsafe { libc::flock(file.as_raw_fd(), how) }
        }
        _ => {
            // SAFETY: zeros are a lock of all of a file.
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            (lock.l_type, lock.l_whence) = (how as i16, libc::SEEK_SET as i16);
            // SAFETY: the descriptor is open, and the lock is there for the call.
            unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &lock) }
        }
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// A kernel that writes back keeps the size and the times of a file itself. What others wrote and closed was never seen by one that had looked at the file before, at its old length, and what it
/// appended went over it.
#[test]
fn who_writes_back_sees_what_others_have_closed() {
    for system in systems(Durability::Memory) {
        for writer in ["cache=metadata", "cache=none", "cache=full"] {
            let mounts = [system.mount(writer), system.mount("cache=full")];
            let [here, there] = ["f", "f"]
                .iter()
                .zip(&mounts)
                .map(|(name, mount)| mount.path(name))
                .collect::<Vec<_>>()
                .try_into()
                .unwrap();
            let context = |what: &str| format!("{writer}, {what}");
            let read = |what: &str, want: &str| {
                assert_eq!(fs::read_to_string(&there).unwrap(), want, "{}", context(what));
                assert_eq!(
                    fs::metadata(&there).unwrap().len(),
                    want.len() as u64,
                    "{}",
                    context(what)
                );
            };
            fs::write(&here, "one").unwrap();
            read("first", "one");
            File::options().append(true).open(&here).unwrap().write_all(b" two").unwrap();
            read("longer", "one two");
            fs::write(&here, "three").unwrap();
            read("shorter", "three");
            fs::write(&here, "seven").unwrap();
            read("as long", "seven");
            // One that writes back has times of its own of what it has just written.
            if writer != "cache=full" {
                let times =
                    [&here, &there].map(|path| fs::metadata(path).unwrap().modified().unwrap());
                assert_eq!(times[0], times[1], "{}", context("times"));
            }
            // What it appends comes behind what others have, also while it has the file open.
            File::options().append(true).open(&here).unwrap().write_all(b" eight").unwrap();
            File::options().append(true).open(&there).unwrap().write_all(b" nine").unwrap();
            read("appended", "seven eight nine");
            let open = File::open(&there).unwrap();
            File::options().append(true).open(&here).unwrap().write_all(b" ten").unwrap();
            File::options().append(true).open(&there).unwrap().write_all(b" eleven").unwrap();
            drop(open);
            let text = fs::read_to_string(&here).unwrap();
            assert_eq!(text, "seven eight nine ten eleven", "{}", context("while it is open"));
            // Seen while it was being made.
            let made = mounts[0].path("made");
            let mut making = File::create(&made).unwrap();
            assert_eq!(fs::read_dir(mounts[1].path(".")).unwrap().count(), 2);
            assert_eq!(fs::metadata(mounts[1].path("made")).unwrap().len(), 0);
            making.write_all(b"whole").unwrap();
            drop(making);
            fs::rename(&made, &here).unwrap();
            eventually("the renamed file is seen", || fs::metadata(&there).unwrap().len() == 5);
            read("renamed", "whole");
            // Replaced again and again, opened by one thread that finds it so each time.
            for round in 0..20 {
                let (next, text) =
                    (mounts[0].path("next"), format!("{round} {}", "x".repeat(round)));
                fs::write(&next, &text).unwrap();
                fs::rename(&next, &here).unwrap();
                assert_eq!(fs::read_to_string(&there).unwrap(), text, "{}", context("replaced"));
            }
            // What it has written itself it keeps.
            fs::write(&there, "own").unwrap();
            read("own", "own");
            assert_eq!(fs::read_to_string(&here).unwrap(), "own", "{}", context("seen there"));
        }
    }
}

/// A file with two names whose one name others give to another file was opened by that name for up to a second: what was written for the new file went into the old
/// one, under its other name, or into one without any.
#[test]
fn who_opens_a_name_that_others_gave_away_gets_what_it_leads_to() {
    for system in systems(Durability::Memory) {
        for mode in ["cache=metadata", "cache=full", "cache=none"] {
            let (a, b) = (system.mount("cache=metadata"), system.mount(mode));
            let [f, keep, new] = ["f", "keep", "new"].map(|name| (a.path(name), b.path(name)));
            for round in 0..24 {
                let context = format!("{mode}, round {round}");
                let (is_held, is_alone, looks_at_both) =
                    (round % 2 == 1, round / 2 % 2 == 1, round / 4 % 3 == 1);
                fs::write(&f.1, "first").unwrap();
                // The kernel is told late what it is to ask for again.
                let (go_on, told) = std::sync::mpsc::channel::<()>();
                if round >= 12 {
                    let notifier = b.mount().session().notifier();
                    notifier.taken(move || {
                        let _ = told.recv_timeout(Duration::from_secs(1));
                    });
                }
                match round / 4 % 3 {
                    2 => fs::hard_link(&f.0, &keep.0).unwrap(),
                    _ => fs::hard_link(&f.1, &keep.1).unwrap(),
                }
                assert_eq!(fs::metadata(&f.1).unwrap().len(), 5, "{context}");
                if looks_at_both {
                    assert_eq!(fs::read(&keep.1).unwrap(), b"first", "{context}");
                }
                let held = is_held.then(|| File::open(&f.1).unwrap());
                if is_alone {
                    fs::remove_file(&keep.0).unwrap();
                }
                fs::write(&new.0, "second").unwrap();
                fs::rename(&new.0, &f.0).unwrap();
                assert_eq!(fs::read_to_string(&f.1).unwrap(), "second", "{context}");
                drop(go_on);
                fs::write(&f.1, "DATA").unwrap();
                assert_eq!(fs::read_to_string(&f.0).unwrap(), "DATA", "{context}");
                if !is_alone {
                    assert_eq!(fs::read_to_string(&keep.0).unwrap(), "first", "{context}");
                    fs::remove_file(&keep.0).unwrap();
                }
                drop(held);
                fs::remove_file(&f.0).unwrap();
            }
        }
    }
}

/// Programs that have a file open go on with it, and lose nothing, although others look it up and the kernel takes it anew. It was told so while
/// they opened it, and took what they had written for lost: `EIO`, or lines that were gone without a word.
#[test]
fn who_writes_back_goes_on_while_a_file_is_taken_anew() {
    const LINES: usize = 300;
    for system in systems(Durability::Memory) {
        let (a, b) = (system.mount("cache=metadata"), system.mount("cache=full"));
        let text = |count: usize| (0..count).map(|line| format!("{line}\n")).collect::<String>();
        let whole = text(LINES);
        fs::write(a.path("others"), "").unwrap();
        let (own_there, others_there) = (b.path("own"), b.path("others"));
        let append = |path: &Path, line: &str| {
            let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
            file.write_all(line.as_bytes()).unwrap();
            // What closing says is heard: data are written back then.
            file.sync_all().unwrap();
        };
        let done = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Programs here append to one file, and nobody else.
            let own: Vec<_> = (0..3)
                .map(|who| {
                    let (append, own) = (&append, &own_there);
                    scope.spawn(move || {
                        for line in 0..LINES {
                            append(own, &format!("{who} {line}\n"));
                        }
                    })
                })
                .collect();
            // Another node appends to one that programs here read.
            for _ in 0..2 {
                let (others, whole) = (&others_there, &whole);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let seen = fs::read_to_string(others).unwrap();
                        assert!(whole.starts_with(&seen), "{seen}");
                    }
                });
            }
            for line in 0..LINES {
                append(&a.path("others"), &format!("{line}\n"));
            }
            done.store(true, Ordering::Relaxed);
            for thread in own {
                thread.join().unwrap();
            }
        });
        assert_eq!(fs::read_to_string(b.path("others")).unwrap(), whole);
        for mount in [&a, &b] {
            let own = fs::read_to_string(mount.path("own")).unwrap();
            for who in 0..3 {
                let lines = own.lines().filter_map(|line| line.strip_prefix(&format!("{who} ")));
                assert!(lines.eq(whole.lines()), "of {who}:\n{own}");
            }
        }
        // Nodes that a file had before are forgotten with it.
        fs::remove_file(b.path("own")).unwrap();
        fs::remove_file(b.path("others")).unwrap();
        eventually("both files are forgotten", || b.mount().volume().node_count() == 0);
    }
}

/// The kernel knows a file by a name that another node has given to another file (or that was migrated to a new object): whoever links it gets
/// a link to what the name leads to, as with all other calls. It was told that there is no such file.
#[test]
fn a_file_that_another_mount_has_replaced_can_be_linked() {
    for system in systems(Durability::Memory) {
        let (mount, other) = (system.mount("cache=metadata"), system.mount("cache=metadata"));
        fs::write(mount.path("file"), b"before").unwrap();
        for round in 0..3 {
            let link = mount.path(&format!("link{round}"));
            assert!(fs::metadata(mount.path("file")).unwrap().is_file());
            let new = format!("new {round}");
            fs::write(other.path("new"), &new).unwrap();
            fs::rename(other.path("new"), other.path("file")).unwrap();
            fs::hard_link(mount.path("file"), &link).unwrap();
            assert_eq!(fs::read_to_string(&link).unwrap(), new);
            // Else the file lives on by this name, and may be linked for as long as the kernel takes it for the other one.
            fs::remove_file(link).unwrap();
        }
    }
}
