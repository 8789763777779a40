//! `azekura mount` and `umount` with processes of their own: what users type, and what goes wrong.

use crate::harness::{self, System, all_text, assert_same_tree, make_tree};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn can_mount() -> bool {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        eprintln!("SKIPPED: nothing is mounted in this test: /dev/fuse: {error}");
    }
    device.is_ok()
}

/// A mounted directory, unmounted at the end, whatever happens.
struct Point(PathBuf);

impl Point {
    fn make(system: &System, name: &str) -> Point {
        let dir = system.path(name);
        fs::create_dir(&dir).unwrap();
        Point(dir)
    }

    fn str(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // Fails when it is not mounted any more, which is how most tests end.
        let mut command = Command::new("umount");
        let _ = command.arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}

#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_mounted(dir: &Path) -> bool {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == dir.to_str())
}

fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// True when nothing is wrong with the file system; false also while others use it.
fn is_clean(system: &System) -> bool {
    let output = system.run(&["fs", "check", "azk://tank/home", "--json"]);
    let check: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    check["clean"] == true
}

#[test]
fn a_container_is_mounted_used_and_unmounted() {
    if !can_mount() {
        return;
    }
    let system = System::with_home();
    let point = Point::make(&system, "mnt");
    let mut mount = system.command(&["mount", "azk://tank/home", point.str(), "--json"]);
    let output = mount.env("AZEKURA_JOB", "mounted").output().unwrap();
    assert!(output.status.success(), "{}", harness::all_text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["source"], "azk://tank/home", "{report}");
    assert_eq!(report["cache"], "metadata");
    assert!(["uring", "dev"].contains(&report["io"].as_str().unwrap()));
    let pid = report["pid"].as_u64().unwrap();
    assert!(is_mounted(&point.0) && is_alive(pid));
    let line = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(line.contains("azk://tank/home") && line.contains("fuse.azekura"), "{line}");

    // A tree of all kinds of things goes in with tar, is seen by the library's tools, and comes
    // out the same.
    let source = system.path("source");
    make_tree(&source);
    let copied = Command::new("cp").arg("-a").arg(&source).arg(point.0.join("tree")).status();
    assert!(copied.unwrap().success());
    assert_same_tree(&source, &point.0.join("tree"));
    let back = system.path("back");
    system.ok(&["fs", "cp", "-r", "azk://tank/home/tree", back.to_str().unwrap()]);
    assert_same_tree(&source, &back);
    let job = system.json(&["job", "show", "mounted"]);
    assert!(job["received_bytes"].as_u64().unwrap() > 0, "{job}");
    // Who works in it is told apart where his processes say of which job they are.
    // Whose a thread is is found while it is at work: the first of many requests may be the mount's.
    let mut visitor = Command::new("dd");
    visitor.env("AZEKURA_JOB", "visitor").args(["if=/dev/zero", "bs=4096", "count=500"]);
    visitor.arg(format!("of={}", point.0.join("visited").display())).stderr(Stdio::null());
    assert!(visitor.status().unwrap().success());
    let job = system.json(&["job", "show", "visitor"]);
    assert!(job["operations"].as_u64().unwrap() > 0, "{job}");
    // The check must be alone.
    system.fails(7, &["must be alone"], &["fs", "check", "azk://tank/home"]);

    system.ok(&["umount", point.str()]);
    assert!(!is_mounted(&point.0));
    eventually("the server ends", || !is_alive(pid));
    eventually("the tree is whole", || is_clean(&system));
    // As fstab does it.
    let helper = system.path("mount.fuse.azekura");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_azekura"), &helper).unwrap();
    let options = format!("ro,_netdev,system={}", system.dir().display());
    let mounted = Command::new(&helper)
        .args(["azk://tank/home", point.str(), "-o", &options])
        .output()
        .unwrap();
    assert!(mounted.status.success(), "{mounted:?}");
    assert!(fs::metadata(point.0.join("tree/one")).unwrap().is_file());
    let refused = fs::write(point.0.join("new"), "").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert!(Command::new("umount").arg(&point.0).status().unwrap().success());
}

/// `fusermount3` says of what others have mounted that it is not there, and so did `azekura`.
#[test]
fn what_another_user_has_mounted_is_said_to_be_his() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let system = System::with_home();
    let point = Point::make(&system, "mnt");
    system.ok(&["mount", "azk://tank/home", point.str()]);
    // Where anybody can get at it.
    let tool = system.path("tool");
    fs::copy(env!("CARGO_BIN_EXE_azekura"), &tool).unwrap();
    fs::set_permissions(tool.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(&tool);
    let told = command.args(["umount", point.str()]).uid(65534).gid(65534).output().unwrap();
    let text = all_text(&told);
    assert_eq!(told.status.code(), Some(8), "{text}");
    assert!(text.contains("by another user"), "{text}");
    system.ok(&["umount", point.str()]);
}

#[test]
fn what_cannot_be_mounted_is_said_with_what_to_do() {
    if !can_mount() {
        return;
    }
    let system = System::with_home();
    let point = Point::make(&system, "mnt");
    let mount = |url: &str, dir: &str| ["mount".to_string(), url.to_string(), dir.to_string()];
    system.fails(3, &["pool 'none'"], &mount("azk://none/home", point.str()));
    system.fails(3, &["container 'tank/none'"], &mount("azk://tank/none", point.str()));
    system.fails(2, &["a path in the container"], &mount("azk://tank/home/a", point.str()));
    system.fails(2, &["not an azk:// URL"], &mount("tank/home", point.str()));
    let missing = system.path("missing");
    system.fails(3, &["make the directory"], &mount("azk://tank/home", missing.to_str().unwrap()));
    system.fails(3, &["does not exist"], &["umount", missing.to_str().unwrap()]);
    system.fails(3, &["nothing is mounted"], &["umount", point.str()]);
    let file = system.path("file");
    fs::write(&file, "").unwrap();
    system.fails(1, &["not a directory"], &mount("azk://tank/home", file.to_str().unwrap()));
    let full = system.path("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("x"), "").unwrap();
    let full = full.to_str().unwrap();
    system.fails(7, &["not empty", "nonempty"], &mount("azk://tank/home", full));
    system.fails(2, &["'cached'"], &["mount", "azk://tank/home", point.str(), "-o", "ro,cached"]);
    system.fails(
        2,
        &["none, metadata or full"],
        &["mount", "azk://tank/home", point.str(), "--cache", "all"],
    );
    system.ok(&["cont", "create", "tank", "plain", "--type", "plain"]);
    system.fails(2, &["posix"], &mount("azk://tank/plain", point.str()));
    assert!(!is_mounted(&point.0));
    // Over files, when that is wanted.
    system.ok(&["mount", "azk://tank/home", full, "-o", "nonempty"]);
    assert!(!Path::new(full).join("x").exists());
    system.ok(&["umount", full]);
    assert!(Path::new(full).join("x").exists());
}

/// The engine with the catalog keeps who has what open in memory. After it was killed, a container was destroyed under a mount, and checked as if nobody used it.
#[test]
fn a_mounted_container_is_known_after_restarts() {
    if !can_mount() {
        return;
    }
    let system = System::up(2, 1);
    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let point = Point::make(&system, "mnt");
    system.ok(&["mount", "azk://tank/home", point.str()]);
    let handles = || system.json(&["cont", "query", "tank", "home"])["handles"].as_u64().unwrap();
    assert_eq!(handles(), 1);
    for engine in ["engine0", "engine1"] {
        let file = system.dir().join(engine).join("engine.pid");
        let text = fs::read_to_string(file).unwrap();
        let pid: i32 = text.split_whitespace().next().unwrap().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        system.ok(&["up", "--engines", "2", "--targets", "1"]);
        system.fails(7, &["open handle"], &["cont", "destroy", "tank", "home"]);
        system.fails(7, &["alone"], &["fs", "check", "azk://tank/home"]);
        eventually("its handle is counted, once", || handles() == 1);
        fs::write(point.0.join(engine), "goes on").unwrap();
    }
    system.ok(&["umount", point.str()]);
    // `umount` is over before the process behind it has ended.
    system.ok(&["cont", "destroy", "tank", "home"]);
}

/// What an etcd answers by its gateway.
fn ask_etcd(endpoint: &str, path: &str, body: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(endpoint).unwrap();
    let head = format!("POST /v3/kv/{path} HTTP/1.0\r\nContent-Type: application/json");
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Removes all keys of an etcd.
fn empty_etcd(endpoint: &str) {
    let answer = ask_etcd(endpoint, "deleterange", r#"{"key":"AA==","range_end":"AA=="}"#);
    assert!(answer.contains("\"deleted\""), "{answer}");
}

/// An etcd that had lost its data was worse than one that is away: nothing was told from copies, programs on mounts were told that their arguments are invalid, engines refused to tell
/// what the recovery asks them for, and mounts gave their handles up for ever, so that a container was destroyed under them without `--force`. Who had recovered the catalog held it for ten seconds more, for it
/// was over before it had told etcd that it goes.
#[test]
fn an_etcd_that_lost_all_is_one_that_is_away_and_mounts_are_known_afterwards() {
    let found = Command::new("etcd").arg("--version").output();
    if !can_mount() || !found.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: nothing to mount with, or no etcd here (Debian: etcd-server)");
        return;
    }
    let system = System::none();
    system.ok(&["up", "--engines", "2", "--targets", "1", "--etcd", "--wait", "600"]);
    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    system.ok(&["cont", "create", "tank", "home", "--rd-fac", "1"]);
    let point = Point::make(&system, "mnt");
    system.ok(&["mount", "azk://tank/home", point.str()]);
    let dirs = [0, 1].map(|at| system.dir().join(format!("engine{at}")));
    let has_copy = |dir: &Path| {
        let raw = fs::read(dir.join("catalog-copy.0")).unwrap_or_default();
        let wanted = br#""label":"home""#;
        raw.windows(wanted.len()).any(|part| part == wanted)
    };
    eventually("the copies have it", || dirs.iter().all(|dir| has_copy(dir)));
    let config = |dir: &Path| fs::read_to_string(dir.join("engine.toml")).unwrap();
    let first = config(&dirs[0]);
    let endpoint = first.split("http://").nth(1).unwrap().split('"').next().unwrap();
    empty_etcd(endpoint);
    let known = || {
        let output = system.run(&["--timeout", "5", "cont", "list", "tank"]);
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("home")
    };
    eventually("copies tell", known);
    fs::write(point.0.join("meanwhile"), "goes on").unwrap();
    let away = ["--timeout", "5", "cont", "create", "tank", "more"];
    system.fails(6, &["the catalog is empty", "system recover"], &away);

    let stop = |dir: &Path| {
        let text = fs::read_to_string(dir.join("engine.pid")).unwrap();
        let pid: i32 = text.split_whitespace().next().unwrap().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        eventually("it has stopped", || rustix::process::test_kill_process(pid).is_err());
    };
    stop(&dirs[0]);
    for dir in &dirs {
        let text = config(dir).replace("[catalog]\n", "[catalog]\nprefix = \"anew\"\n");
        fs::write(dir.join("engine.toml"), text).unwrap();
    }
    let toml = dirs[0].join("engine.toml");
    let from = dirs[1].to_str().unwrap();
    system.ok(&["system", "recover", "--config", toml.to_str().unwrap(), "--from", from]);
    // "anew:leader", and "anew:fence", which stays.
    let key = |encoded: &str| ask_etcd(endpoint, "range", &format!(r#"{{"key":"{encoded}"}}"#));
    let (leader, fence) = (key("YW5ldzpsZWFkZXI="), key("YW5ldzpmZW5jZQ=="));
    assert!(!leader.contains("\"kvs\"") && fence.contains("\"kvs\""), "{leader} {fence}");
    system.ok(&["up", "--wait", "600"]);
    stop(&dirs[1]);
    system.ok(&["up", "--wait", "600"]);
    let handles = || system.json(&["cont", "query", "tank", "home"])["handles"].as_u64();
    eventually("the mount's handle is counted again, once", || handles() == Some(1));
    system.fails(7, &["open handle"], &["cont", "destroy", "tank", "home"]);
    assert_eq!(fs::read_to_string(point.0.join("meanwhile")).unwrap(), "goes on");
    system.ok(&["umount", point.str()]);
    system.ok(&["cont", "destroy", "tank", "home"]);
}

#[test]
fn a_killed_server_leaves_what_umount_clears_and_holds_nothing() {
    if !can_mount() {
        return;
    }
    let system = System::with_home();
    let (dead, other) = (Point::make(&system, "dead"), Point::make(&system, "other"));
    let report = system.json(&["mount", "azk://tank/home", dead.str()]);
    system.ok(&["mount", "azk://tank/home", other.str(), "--cache", "none"]);
    // A file that is open and has no name, kept by a program that outlives the server.
    let nameless = fs::File::create_new(dead.0.join("nameless")).unwrap();
    nameless.set_len(1000).unwrap();
    fs::remove_file(dead.0.join("nameless")).unwrap();
    // A lock that it holds.
    use rustix::fs::{FlockOperation, flock};
    let locked = fs::File::create(dead.0.join("locked")).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    let wanted = fs::File::open(other.0.join("locked")).unwrap();
    let refused = flock(&wanted, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    let pid = rustix::process::Pid::from_raw(report["pid"].as_u64().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("the mount is dead", || {
        fs::metadata(&dead.0).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
    });
    system.fails(7, &["server is gone", "umount"], &["mount", "azk://tank/home", dead.str()]);
    eventually("the lock is free", || {
        flock(&wanted, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    drop((nameless, locked, wanted));
    system.ok(&["umount", dead.str()]);
    assert!(!is_mounted(&dead.0));
    system.ok(&["mount", "azk://tank/home", dead.str()]);
    fs::write(dead.0.join("again"), "x").unwrap();
    assert_eq!(fs::read(other.0.join("again")).unwrap(), b"x");
    system.ok(&["umount", dead.str()]);
    system.ok(&["umount", other.str()]);
    eventually("the file without a name is gone", || is_clean(&system));
}

/// Closes a file, and tells how that went.
fn close(file: fs::File) -> std::io::Result<()> {
    // SAFETY: the descriptor is ours, and given up.
    let done = unsafe { libc::close(std::os::fd::IntoRawFd::into_raw_fd(file)) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn a_full_pool_is_no_space_and_leaves_room_to_remove() {
    if !can_mount() {
        return;
    }
    let system = System::up(1, 1);
    system.ok(&["pool", "create", "small", "--size", "64MiB"]);
    system.ok(&["cont", "create", "small", "c"]);
    for mode in ["metadata", "full"] {
        let point = Point::make(&system, mode);
        system.ok(&["mount", "azk://small/c", point.str(), "--cache", mode]);
        let late = fs::File::create(point.0.join("late")).unwrap();
        let mut file = fs::File::create(point.0.join("big")).unwrap();
        let piece = vec![7u8; 1 << 20];
        let written = (0..200).try_for_each(|_| std::io::Write::write_all(&mut file, &piece));
        // With write-back the error comes with fsync at the latest; here, because of so much.
        let outcome = written.and_then(|()| file.sync_all());
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::ENOSPC), "{mode}");
        // A write that the kernel keeps for later fails when the file is closed.
        let written = std::io::Write::write_all(&mut &late, &piece);
        let closed = close(late);
        assert_eq!(written.and(closed).unwrap_err().raw_os_error(), Some(libc::ENOSPC), "{mode}");
        drop(file);
        fs::remove_file(point.0.join("late")).unwrap();
        fs::remove_file(point.0.join("big")).unwrap();
        fs::write(point.0.join("small"), "fits again").unwrap();
        assert_eq!(fs::read(point.0.join("small")).unwrap(), b"fits again");
        fs::remove_file(point.0.join("small")).unwrap();
        system.ok(&["umount", point.str()]);
    }
}

/// `--timeout` is for every command; a mount waited as long as its options or the environment said.
#[test]
fn a_mount_waits_as_long_as_the_command_says() {
    if !can_mount() {
        return;
    }
    let system = System::with_home();
    let point = Point::make(&system, "mnt");
    let mut mount = system.command(&["--timeout", "2", "mount", "azk://tank/home", point.str()]);
    let output = mount.args(["--cache", "none"]).env("AZEKURA_PATIENCE", "hard").output().unwrap();
    assert!(output.status.success(), "{}", harness::all_text(&output));
    fs::write(point.0.join("f"), "data").unwrap();
    system.ok(&["down"]);
    let error = fs::metadata(point.0.join("f")).unwrap_err().raw_os_error().unwrap();
    assert!([libc::ETIMEDOUT, libc::EIO].contains(&error), "error {error}");
}
