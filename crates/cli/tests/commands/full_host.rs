//! The file system under a system filled by others: what is stored can be listed, read and removed,
//! also after a restart, and writing goes on when there is room again.
//!
//! It used to end a pool for good: the log could not grow, and refused everything from then on.

use crate::harness::{System, all_text, noise, until_event};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Write;
use std::process::Command;

/// A small file system of its own, unmounted at the end.
struct Small {
    at: tempfile::TempDir,
}

impl Small {
    /// `None` where nobody may mount.
    fn mount(options: &str) -> Option<Small> {
        let at = tempfile::tempdir().unwrap();
        let args = ["-t", "tmpfs", "-o", options, "none"];
        let mounted = Command::new("mount").args(args).arg(at.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Small { at }),
            other => {
                eprintln!("SKIPPED: a full file system: cannot mount a small one: {other:?}");
                None
            }
        }
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut file =
            File::options().create(true).append(true).open(self.at.path().join("ballast")).unwrap();
        for piece in [1 << 20, 4096, 1] {
            let bytes = vec![1; piece];
            while file.write_all(&bytes).is_ok() {}
        }
        assert_eq!(rustix::fs::statvfs(self.at.path()).unwrap().f_bavail, 0);
    }

    fn relieve(&self) {
        std::fs::remove_file(self.at.path().join("ballast")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at.path()).status();
    }
}

#[test]
fn a_full_host_file_system_stops_neither_reading_nor_removing_nor_a_restart() {
    let Some(small) = Small::mount("size=640m,mode=700") else { return };
    let system = System { scratch: tempfile::tempdir_in(small.at.path()).unwrap() };
    let elsewhere = tempfile::tempdir().unwrap();
    system.ok(&["up", "--engines", "1", "--targets", "2"]);
    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let local = elsewhere.path();
    for n in 0..300 {
        std::fs::write(local.join(format!("f{n:03}")), noise(n, 9000)).unwrap();
    }
    let home = "azk://tank/home";
    let copy = |to: &str| system.run(&["fs", "cp", "-r", local.to_str().unwrap(), to]);
    assert!(copy(&format!("{home}/a")).status.success());
    small.fill();
    let listed = |dir: &str| system.ok(&["fs", "ls", dir]).lines().count();
    assert_eq!(listed(&format!("{home}/a")), 300);
    // There is room in the pool itself, and so much of it that goes on for a while: or it is refused,
    // with the reason.
    for round in 0..12 {
        let to = format!("{home}/more{round}");
        let copied = copy(&to);
        if !copied.status.success() {
            let text = all_text(&copied);
            assert!(text.contains("full") || text.contains("space"), "{text}");
        }
        let removed = system.run(&["fs", "rm", "-r", &to]);
        if copied.status.success() {
            assert!(removed.status.success(), "{}", all_text(&removed));
        }
        small.fill();
    }
    for kill in [false, true] {
        if kill {
            for pid in system.pids() {
                kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
            }
        } else {
            system.ok(&["down"]);
        }
        small.fill();
        system.ok(&["up"]);
        assert_eq!(listed(&format!("{home}/a")), 300);
        let file = system.run(&["fs", "cat", &format!("{home}/a/f007")]);
        assert!(file.stdout == noise(7, 9000), "{}", String::from_utf8_lossy(&file.stderr));
        let gone = format!("{home}/a/f{}", if kill { "008" } else { "009" });
        system.ok(&["fs", "rm", &gone]);
        system.ok(&["fs", "cp", local.join("f008").to_str().unwrap(), &gone]);
    }
    system.ok(&["fs", "rm", "-r", &format!("{home}/a")]);
    small.relieve();
    assert!(copy(&format!("{home}/again")).status.success());
    assert_eq!(listed(&format!("{home}/again")), 300);
}

/// Three writers until the last byte: what was acknowledged is whole, what was refused says why, and
/// what is removed makes room.
#[test]
fn three_writers_at_the_last_byte_of_a_pool_lose_nothing() {
    let system = System::up(1, 1);
    system.ok(&["pool", "create", "tank", "--size", "128MiB"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let content = |writer: u64, number: u64| noise(1000 * writer + number, 3_000_000);
    let write = |writer: u64| {
        let mut written = Vec::new();
        let local = system.path(&format!("w{writer}"));
        for number in 0..60 {
            std::fs::write(&local, content(writer, number)).unwrap();
            let url = format!("azk://tank/home/w{writer}-{number}");
            let copied = system.run(&["fs", "cp", local.to_str().unwrap(), &url]);
            if !copied.status.success() {
                let text = all_text(&copied);
                assert!(text.contains("tier is full on this target"), "{text}");
                assert!(text.contains("target 0: "), "which one? {text}");
                return written;
            }
            written.push((url, number));
        }
        panic!("a pool of 128 MiB holds 180 MB per writer");
    };
    let written: Vec<_> = std::thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = (0..3).map(|n| scope.spawn(move || write(n))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert!(written.iter().map(Vec::len).sum::<usize>() > 20);
    let full = until_event(&system, "pool-full");
    assert_eq!((&full["target"], &full["severity"]), (&0.into(), &"error".into()), "{full}");
    for (writer, files) in written.iter().enumerate() {
        for (url, number) in files {
            let read = system.run(&["fs", "cat", url]);
            assert!(read.stdout == content(writer as u64, *number), "{url}");
        }
    }
    for (url, _) in written.iter().flatten() {
        system.ok(&["fs", "rm", url]);
    }
    let again = system.path("w0");
    system.ok(&["fs", "cp", again.to_str().unwrap(), "azk://tank/home/again"]);
}

/// Without room in the middle of a copy there was a file of full size with wrong content, of which nothing was said.
#[test]
fn a_copy_that_finds_no_room_leaves_no_file_that_looks_whole() {
    let Some(small) = Small::mount("size=8m,mode=700") else { return };
    let system = System::with_home();
    let local = system.path("local");
    std::fs::write(&local, noise(1, 20 << 20)).unwrap();
    let (large, little) = ("azk://tank/home/large", "azk://tank/home/little");
    system.ok(&["fs", "put", local.to_str().unwrap(), large]);
    std::fs::write(&local, noise(2, 3 << 20)).unwrap();
    system.ok(&["fs", "put", local.to_str().unwrap(), little]);

    let (to, was) = (small.at.path().join("to"), small.at.path().join("was"));
    let get = |from: &str, to: &std::path::Path| {
        let output = system.run(&["fs", "get", from, to.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(5), "{}", all_text(&output));
        all_text(&output)
    };
    get(large, &to);
    assert!(!to.exists());
    // What was there before is not removed, and said to be empty.
    std::fs::write(&was, "before").unwrap();
    let told = get(large, &was);
    assert!(told.contains("was there before") && told.contains("empty now"), "{told}");
    assert_eq!(std::fs::metadata(&was).unwrap().len(), 0);
    // The same for files of one piece.
    std::fs::write(small.at.path().join("ballast"), noise(3, 6 << 20)).unwrap();
    get(little, &to);
    assert!(!to.exists());
    get(little, &was);
    assert_eq!(std::fs::metadata(&was).unwrap().len(), 0);
    small.relieve();
    system.ok(&["fs", "get", little, to.to_str().unwrap()]);
    assert_eq!(std::fs::read(&to).unwrap(), noise(2, 3 << 20));
}
