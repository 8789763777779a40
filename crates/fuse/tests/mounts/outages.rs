//! Engines that go and come back under a mount, and mounts that go.

use crate::system::{eventually, systems};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::Durability;

#[test]
fn an_engine_that_restarts_in_time_is_not_noticed() {
    for mut system in systems(Durability::Wal) {
        // Without pages in the kernel what is read comes from the engine.
        let mounted = system.mount("timeout=60,cache=none");
        let source = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("sh")
        .args(["-euc", "for d in 1 2 3 4 5 6; do mkdir d$d; for f in 1 2 3 4 5 6 7 8 9 10; do seq $d$f 9000 > d$d/f$f; done; ln -s f1 d$d/link; done; tar cf all.tar d*"])
        .current_dir(source.path())
        .status()
        .unwrap();
        assert!(status.success());
        let archive = source.path().join("all.tar");
        // What is open and has no name survives, too.
        let mut nameless = File::create_new(mounted.path("nameless")).unwrap();
        nameless.write_all(b"still here").unwrap();
        fs::remove_file(mounted.path("nameless")).unwrap();
        let mut untar = mounted.shell(&format!("tar xf {}", archive.display())).spawn().unwrap();
        for _ in 0..2 {
            system.local.stop_engine(0).unwrap();
            system.local.start_engine(0).unwrap();
        }
        assert!(untar.wait().unwrap().success(), "tar met an error");
        mounted.sh(&format!(
            "diff -r --no-dereference --exclude=all.tar {} .",
            source.path().display()
        ));
        let mut back = vec![0; 10];
        nameless.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(back, b"still here");
        drop(nameless);
        mounted.unmount();
    }
}

#[test]
fn without_engines_operations_end_and_the_mount_recovers() {
    for mut system in systems(Durability::Wal) {
        // What has to succeed is made through a mount that waits: a slow disk takes seconds, too.
        let patient = system.mount("timeout=60,cache=none");
        let mounted = system.mount("timeout=1,cache=none");
        fs::write(patient.path("f"), "before").unwrap();
        let mut open = None;
        eventually("the file is opened", || {
            open = File::options().read(true).write(true).open(mounted.path("f")).ok();
            open.is_some()
        });
        let open = open.unwrap();
        system.local.stop_engine(0).unwrap();
        for failed in [
            fs::metadata(mounted.path("f")).map(|_| ()),
            open.write_at(b"x", 0).map(|_| ()),
            fs::create_dir(mounted.path("d")),
        ] {
            let error = failed.unwrap_err().raw_os_error().unwrap();
            assert!([libc::ETIMEDOUT, libc::EIO].contains(&error), "error {error}");
        }
        system.local.start_engine(0).unwrap();
        eventually("the mount works again", || fs::metadata(mounted.path("f")).is_ok());
        // An attempt whose answer came too late may have made it.
        eventually("a directory is made again", || {
            let made = fs::create_dir(mounted.path("d"));
            made.is_ok() || made.unwrap_err().kind() == ErrorKind::AlreadyExists
        });
        assert!(fs::metadata(patient.path("d")).unwrap().is_dir());
        eventually("the open file is written again", || open.write_at(b"after.", 0).is_ok());
        assert_eq!(fs::read(patient.path("f")).unwrap(), b"after.");
        patient.unmount();
        drop(open);
        // It can be unmounted while nobody answers.
        system.local.stop_engine(0).unwrap();
        mounted.unmount();
        system.local.start_engine(0).unwrap();
    }
}

/// A mount that waits for its engines for ever must not keep programs from being killed.
#[test]
fn who_waits_on_a_hard_mount_can_be_killed_and_others_go_on() {
    for mut system in systems(Durability::Wal) {
        let mounted = system.mount("patience=hard,cache=none");
        fs::write(mounted.path("f"), "before").unwrap();
        system.local.stop_engine(0).unwrap();
        // Not in the mounted directory: to go there would wait before the program begins.
        let run = |words: &str| {
            let script = words.replace('@', &mounted.path("").display().to_string());
            std::process::Command::new("sh").args(["-euc", &script]).spawn().unwrap()
        };
        let mut killed: Vec<_> =
            ["exec cat @/f", "exec 9> @/g", "exec mkdir @/d", "exec flock @/f true"]
                .map(run)
                .into();
        let mut waiting = run("cat @/f > /dev/null && echo after > @/f");
        // Whether they wait already or are about to does not matter.
        for child in &mut killed {
            child.kill().unwrap();
            assert!(!child.wait().unwrap().success());
        }
        system.local.start_engine(0).unwrap();
        assert!(waiting.wait().unwrap().success());
        assert_eq!(fs::read(mounted.path("f")).unwrap(), b"after\n");
        mounted.unmount();
    }
}

/// A kernel does not tell of all programs that were killed: with requests over io_uring those stayed for ever that were killed
/// in the moment in which theirs was handed over, some of a hundred here.
#[test]
fn no_moment_to_be_killed_leaves_a_program_behind() {
    for mut system in systems(Durability::Memory) {
        let mounted = system.mount("patience=hard,cache=none");
        fs::write(mounted.path("f"), "before").unwrap();
        system.local.stop_engine(0).unwrap();
        let file = mounted.path("f");
        let mut killed = Vec::new();
        for round in 0..150 {
            let mut child = std::process::Command::new("cat")
                .arg(&file)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_micros(round * 37 % 3000));
            child.kill().unwrap();
            killed.push(child);
        }
        for mut child in killed {
            assert!(!child.wait().unwrap().success());
        }
        system.local.start_engine(0).unwrap();
        mounted.unmount();
    }
}

#[test]
fn what_a_mount_held_open_goes_with_it() {
    for system in systems(Durability::Memory) {
        let objects = || {
            let dfs = system.dfs();
            system.block_on(dfs.statfs()).unwrap().object_count
        };
        let mounted = system.mount("");
        fs::write(mounted.path("kept"), "kept").unwrap();
        let before = objects();
        let mut nameless = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(mounted.path("nameless"))
            .unwrap();
        nameless.write_all(&[7; 5000]).unwrap();
        fs::remove_file(mounted.path("nameless")).unwrap();
        assert_eq!(objects(), before + 1);
        nameless.seek(SeekFrom::Start(0)).unwrap();
        let mut back = Vec::new();
        nameless.read_to_end(&mut back).unwrap();
        assert_eq!(back, [7; 5000]);
        assert_eq!(nameless.metadata().unwrap().len(), 5000);
        // Closed by the program: freed soon, with no other request to take it along.
        drop(nameless);
        eventually("the file is freed when it is closed", || objects() == before);
        // Closed by nobody: freed when the mount is gone.
        let nameless = File::create_new(mounted.path("nameless")).unwrap();
        nameless.write_at(b"x", 0).unwrap();
        fs::remove_file(mounted.path("nameless")).unwrap();
        assert_eq!(objects(), before + 1);
        mounted.mount().session().unmount(true).unwrap();
        drop(nameless);
        drop(mounted);
        eventually("the file is freed when the mount is gone", || objects() == before);
    }
}

#[test]
fn a_thousand_threads_use_one_mount() {
    for system in systems(Durability::Memory) {
        let mounted = system.mount("cache=none");
        for index in 0..10 {
            fs::create_dir(mounted.path(&format!("d{index}"))).unwrap();
        }
        let go = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for who in 0..1000 {
                let (go, path) = (&go, mounted.path(&format!("d{}/f{who}", who % 10)));
                let work = move || {
                    while !go.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    fs::write(&path, format!("thread {who}")).unwrap();
                    assert_eq!(fs::read(&path).unwrap(), format!("thread {who}").as_bytes());
                    let moved = path.with_extension("moved");
                    fs::rename(&path, &moved).unwrap();
                    assert!(fs::metadata(&moved).unwrap().is_file());
                    if who % 2 == 0 {
                        fs::remove_file(&moved).unwrap();
                    }
                };
                std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, work).unwrap();
            }
            go.store(true, Ordering::Release);
        });
        let left: usize = (0..10)
            .map(|index| fs::read_dir(mounted.path(&format!("d{index}"))).unwrap().count())
            .sum();
        assert_eq!(left, 500);
        mounted.unmount();
    }
}
