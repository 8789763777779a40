//! What is moved by itself: rules, fill levels, cache limits, pins; and fsync that waits for the tier.

use super::*;
use std::io::Write;

/// What `policy apply` says.
fn apply(system: &System, options: &[&str]) -> serde_json::Value {
    system.json(&[&["fs", "tier", "policy", "apply", HOME], options].concat())
}

fn set(system: &System, path: &str, options: &[&str]) {
    let url = format!("{HOME}{path}");
    system.ok(&[&["fs", "tier", "policy", "set", &url], options].concat());
}

fn mkdir(system: &System, path: &str) {
    system.ok(&["fs", "mkdir", &format!("{HOME}{path}")]);
}

#[test]
fn rules_move_what_fits_and_pins_hold_it() {
    let system = system();
    for dir in ["/raw", "/raw/deep", "/other"] {
        mkdir(&system, dir);
    }
    for name in ["raw/a.bam", "raw/deep/b.bam", "raw/c.idx", "raw/d.txt", "other/e.bam"] {
        put(&system, name, &noise(8, 3 * MIB));
    }
    put(&system, "raw/small.bam", &noise(9, 100));
    let rules = ["--rule", "keep path=c.*", "--rule", "evict unused=0s size=1MiB.. path=*.bam"];
    set(&system, "/raw", &rules);
    set(&system, "/raw/deep", &["--rule", "copy unchanged=0s", "--cache-max", "none"]);
    system.ok(&["fs", "tier", "pin", &format!("{HOME}/other")]);

    let dry = apply(&system, &["--dry-run"]);
    assert_eq!(dry["files"], 6);
    assert_eq!((&dry["evicted_files"], &dry["evicted_bytes"]), (&1.into(), &(2 * MIB).into()));
    assert_eq!((&dry["copied_files"], &dry["copied_bytes"]), (&2.into(), &(6 * MIB).into()));
    assert_eq!(dry["kept_files"], 1, "{dry}");
    assert_eq!(dry["moves"][0]["why"], "rule");
    assert_eq!(state(&system, "raw/a.bam"), "local");
    let done = apply(&system, &[]);
    for same in ["evicted_files", "evicted_bytes", "copied_files", "copied_bytes", "kept_files"] {
        assert_eq!(done[same], dry[same], "{same}: {done}");
    }
    let states = || {
        ["raw/a.bam", "raw/deep/b.bam", "raw/c.idx", "raw/small.bam", "other/e.bam"]
            .map(|name| state(&system, name))
    };
    assert_eq!(states(), ["cloud", "both", "local", "local", "local"]);
    assert_eq!(apply(&system, &[])["copied_files"], 0);

    // Without its own policy the directory has that of the one above.
    let deep = format!("{HOME}/raw/deep");
    let got = system.json(&["fs", "tier", "policy", "get", &deep]);
    assert_eq!(got["counts"]["policy"][0], "copy unchanged=0s");
    system.ok(&["fs", "tier", "policy", "clear", &deep]);
    let got = system.json(&["fs", "tier", "policy", "get", &format!("{HOME}/raw/deep/b.bam")]);
    assert_eq!(got["own"]["policy"].as_array().unwrap().len(), 0);
    assert_eq!(got["counts"]["policy"][1], "evict unused=0s size=1MiB.. path=*.bam");
    assert_eq!(got["counts"]["policy"][2], "cache max=300GiB");
    // A pin brings back, and holds, also below a directory.
    let raw = format!("{HOME}/raw");
    system.ok(&["fs", "tier", "pin", &raw]);
    assert_eq!(states()[0], "both");
    let pinned = apply(&system, &[]);
    assert_eq!(
        (&pinned["evicted_files"], &pinned["kept_files"]),
        (&0.into(), &5.into()),
        "{pinned}"
    );
    system.fails(7, &["pinned", "unpin"], &["fs", "tier", "evict", &format!("{raw}/a.bam")]);
    assert_eq!(system.json(&["fs", "tier", "evict", &raw])["pinned_files"], 5);
    let file = format!("{raw}/a.bam");
    system.fails(7, &["below a directory that is pinned"], &["fs", "tier", "unpin", &file]);
    system.ok(&["fs", "tier", "pin", &file]);
    let listed = system.ok(&["fs", "tier", "policy", "list", HOME]);
    for told in ["keep path=c.*", "raw/a.bam", "other", "pinned"] {
        assert!(listed.contains(told), "{told}: {listed}");
    }
    system.ok(&["fs", "tier", "unpin", &raw]);
    assert_eq!(apply(&system, &[])["evicted_files"], 2);
    assert_eq!(states(), ["cloud", "cloud", "local", "local", "local"]);
    assert_eq!(cat(&system, "raw/a.bam"), noise(8, 3 * MIB));
    system.fails(2, &["begins with none"], &["fs", "tier", "policy", "set", &raw, "--rule", "x"]);
    system.fails(
        2,
        &["says nothing"],
        &["fs", "tier", "policy", "set", &raw, "--cache-max", "none"],
    );
    let text = ["fs", "tier", "policy", "apply", &raw];
    system.fails(2, &["a whole container"], &text);
}

#[test]
fn a_full_pool_and_a_cache_limit_let_the_least_recently_used_go() {
    let system = system();
    let names = ["a", "b", "c", "d"];
    for name in names {
        put(&system, name, &noise(10, 10 * MIB));
    }
    system.ok(&["fs", "tier", "pin", &format!("{HOME}/a")]);
    // Four times 10 MiB are there, 25 may be: one goes, whole but for its end, and another.
    set(&system, "/", &["--cache-max", "25MiB"]);
    let dry = apply(&system, &["--dry-run"]);
    assert_eq!((&dry["evicted_files"], &dry["excess_bytes"]), (&2.into(), &0.into()), "{dry}");
    assert_eq!(dry["moves"][0]["why"], "cache");
    assert!(dry["moves"][0]["path"].as_str().unwrap().ends_with("/b"), "{dry}");
    assert_eq!(apply(&system, &[])["evicted_files"], 2);
    let states = || names.map(|name| state(&system, name));
    assert_eq!(states(), ["local", "cloud", "cloud", "local"]);
    assert_eq!(apply(&system, &[])["evicted_files"], 0);
    // What somebody brought back was used: the other one goes.
    system.ok(&["fs", "tier", "fetch", &format!("{HOME}/b")]);
    assert_eq!(apply(&system, &[])["evicted_files"], 1);
    assert_eq!(states(), ["local", "both", "cloud", "cloud"]);

    // 20 MiB of 1 GiB is more than 1 %.
    set(&system, "/", &["--high", "2%", "--low", "1%", "--cache-max", "none"]);
    put(&system, "d", &noise(11, 10 * MIB));
    let filled = apply(&system, &[]);
    assert_eq!(filled["moves"][0]["why"], "fill", "{filled}");
    assert_eq!(states()[1], "cloud");
    let status = system.json(&["fs", "tier", "status", "--summary", HOME]);
    assert_eq!((&status["files"], &status["size"]), (&4.into(), &(40 * MIB).into()));
    let dirty = status["dirty_bytes"].as_u64().unwrap();
    assert!(dirty >= 10 << 20 && status["oldest_dirty_age_s"].is_u64(), "{status}");
    system.ok(&["fs", "tier", "sync", HOME]);
    let status = system.json(&["fs", "tier", "status", "--summary", HOME]);
    assert_eq!((&status["dirty_files"], &status["dirty_bytes"]), (&0.into(), &0.into()));
    for name in ["a", "b", "c"] {
        assert!(cat(&system, name) == noise(10, 10 * MIB), "{name}");
    }
    assert!(cat(&system, "d") == noise(11, 10 * MIB));
}

/// Of two files that were made at the same time the one that is used on more days could not be told.
#[test]
fn how_often_files_are_used_decides() {
    let system = system();
    mkdir(&system, "/d");
    put(&system, "d/a", &noise(13, 3 * MIB));
    set(&system, "/d", &["--rule", "keep uses=1../1d", "--rule", "evict"]);
    let done = apply(&system, &[]);
    assert_eq!((&done["kept_files"], &done["evicted_files"]), (&1.into(), &0.into()), "{done}");
    // Used today, which is one day.
    set(&system, "/d", &["--rule", "evict uses=..0/64d"]);
    assert_eq!(apply(&system, &[])["evicted_files"], 0);
    set(&system, "/d", &["--rule", "evict uses=..1/64d"]);
    assert_eq!(apply(&system, &["--dry-run"])["evicted_files"], 1);
    assert_eq!(apply(&system, &[])["evicted_files"], 1);
    assert_eq!(state(&system, "d/a"), "cloud");
    assert!(cat(&system, "d/a") == noise(13, 3 * MIB));
    let wrong = ["fs", "tier", "policy", "set", HOME, "--rule", "evict uses=5/30d"];
    system.fails(2, &["MIN..MAX/AGE"], &wrong);
}

#[test]
fn an_agent_moves_by_itself() {
    let system = system();
    set(&system, "/", &["--rule", "evict"]);
    put(&system, "a", &noise(12, 3 * MIB));
    let socket = system.path("tier.sock");
    // Nobody else takes the port in between: those that are given out go round.
    let metrics = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let metrics = metrics.to_string();
    let outside = ["tier", "agent", "--move", "--metrics", "0.0.0.0:7712"];
    system.fails(2, &["this machine only"], &outside);
    let agent = system
        .command(&["tier", "agent", "--socket", socket.to_str().unwrap()])
        .args(["--move", "--every", "1s", "--metrics", &metrics])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut agent = Running(agent);
    while state(&system, "a") != "cloud" {
        assert!(agent.0.try_wait().unwrap().is_none(), "the agent has ended");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(cat(&system, "a") == noise(12, 3 * MIB));
    // The next pass finds nothing dirty, and says so.
    let is_told = |line: &str| {
        let mut stream = std::net::TcpStream::connect(&metrics).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut told = String::new();
        std::io::Read::read_to_string(&mut stream, &mut told).unwrap();
        told.lines().any(|told| told == line)
    };
    let of = "{pool=\"tank\",cont=\"home\"}";
    for figure in [("dirty_files", 0), ("dirty_bytes", 0), ("evicted_bytes_total", 2 * MIB)] {
        while !is_told(&format!("azekura_tier_{}{of} {}", figure.0, figure.1)) {
            assert!(agent.0.try_wait().unwrap().is_none(), "the agent has ended");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// fsync returned when the pool had the data, whatever the directory's policy; nobody could tell when the tier had them.
#[test]
fn fsync_waits_for_the_tier_where_the_policy_says_so() {
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        eprintln!("SKIPPED: nothing is mounted in this test: /dev/fuse: {error}");
        return;
    }
    let system = system();
    mkdir(&system, "/strict");
    mkdir(&system, "/strict/lax");
    set(&system, "/strict", &["--sync", "posix"]);
    set(&system, "/strict/lax", &["--sync", "async"]);
    let dir = system.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    system.ok(&["mount", HOME, dir.to_str().unwrap()]);
    let write = |name: &str, data: &[u8]| {
        let mut file = std::fs::File::create(dir.join(name)).unwrap();
        file.write_all(data).unwrap();
        file.sync_all()
    };
    write("strict/a", &noise(13, 2 * MIB)).unwrap();
    write("strict/lax/b", b"b").unwrap();
    write("c", b"c").unwrap();
    let states = || ["strict/a", "strict/lax/b", "c"].map(|name| state(&system, name));
    assert_eq!(states(), ["both", "local", "local"]);
    // Where the tier is no more fsync fails; the pool has the data all the same.
    let away = system.path("away");
    std::fs::rename(store(&system), &away).unwrap();
    std::fs::write(store(&system), "no directory").unwrap();
    assert!(write("strict/a", b"other").is_err());
    write("strict/lax/b", b"other").unwrap();
    assert_eq!(cat(&system, "strict/a"), b"other");
    assert_eq!(states()[0], "dirty");
    std::fs::remove_file(store(&system)).unwrap();
    std::fs::rename(&away, store(&system)).unwrap();
    write("strict/a", b"third").unwrap();
    assert_eq!(states()[0], "both");
    system.ok(&["umount", dir.to_str().unwrap()]);
}
