//! Stores that fail, programs and engines that are killed at each step, a pool that is full: never is a copy lost that was the only one, and nothing is
//! left over.

use super::s3::{Hold, S3};
use super::*;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Child;
use std::time::Duration;

/// Exit code for what does not answer.
const UNREACHED: i32 = 6;
const GONE: &str = "NoSuchBucket";

/// A system whose container `home`, of progressive files, has its tier in a store of this process.
fn faulty() -> (System, S3) {
    let system = System::up(2, 2);
    system.ok(&["pool", "create", "tank", "--size", "1GiB"]);
    let s3 = S3::start();
    add_s3(&system, &s3);
    system.ok(&["cont", "create", "tank", "home", "--first-part", "1MiB", "--tier", "s3"]);
    (system, s3)
}

/// Starts a command of which the `step`th request is held; `None` when it gets to its end without so many.
pub fn until_held(
    system: &System,
    s3: &S3,
    step: u64,
    is_done: bool,
    args: &[&str],
) -> Option<Child> {
    {
        let mut state = s3.state();
        let request = state.request_count + step;
        (state.hold, state.is_held) = (Some(Hold { request, is_done }), false);
    }
    let mut command = system.command(args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    loop {
        if s3.state().is_held {
            return Some(child);
        }
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{args:?}: {status}");
            s3.state().hold = None;
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn release(s3: &S3) {
    let mut state = s3.state();
    (state.hold, state.is_held) = (None, false);
}

fn sum_of_objects(s3: &S3) -> usize {
    s3.state().objects.len()
}

/// Killed while a request is on its way, and when it was done but nobody has heard of it, at each request in turn.
#[test]
fn killed_at_each_request_nothing_is_lost_and_nothing_leaks() {
    let (system, s3) = faulty();
    let data = noise(30, 9 * MIB + 5);
    put(&system, "a", &data);
    let url = format!("{HOME}/a");
    let mut kills = 0;
    for verb in ["sync", "evict", "fetch"] {
        'verb: for step in 1.. {
            for is_done in [false, true] {
                let args = ["fs", "tier", verb, &url];
                let held = until_held(&system, &s3, step, is_done, &args);
                let Some(mut child) = held else { break 'verb };
                child.kill().unwrap();
                child.wait().unwrap();
                release(&s3);
                kills += 1;
                assert!(cat(&system, "a") == data, "{verb}, request {step}, done: {is_done}");
            }
        }
        assert!(cat(&system, "a") == data, "after {verb}");
    }
    // Two parts and a manifest, each one put and got.
    assert!(kills >= 12, "{kills} kills");
    assert_eq!(state(&system, "a"), "both");
    system.ok(&["fs", "tier", "evict", &url]);
    assert!(sum_of_objects(&s3) > 3, "uploads that were killed leave something over");
    system.ok(&["tier", "gc", "--older-than", "0", HOME]);
    assert_eq!(sum_of_objects(&s3), 3);
    assert!(cat(&system, "a") == data);
    let check = system.json(&["fs", "check", HOME]);
    assert_eq!(check["clean"], true, "{check}");
}

/// All engines die while a program copies, gives up, and fetches.
#[test]
fn engines_killed_at_each_step_lose_nothing() {
    let (system, s3) = faulty();
    let data = noise(31, 17 * MIB + 5);
    put(&system, "a", &data);
    let url = format!("{HOME}/a");
    for (verb, then) in [("sync", "both"), ("evict", "cloud"), ("fetch", "both")] {
        for step in [1, 3] {
            let args = ["fs", "tier", verb, &url];
            let Some(mut child) = until_held(&system, &s3, step, true, &args) else { break };
            for pid in system.pids() {
                kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
            }
            system.ok(&["up"]);
            release(&s3);
            // It goes on or fails; both are right.
            child.wait().unwrap();
            assert!(cat(&system, "a") == data, "{verb}, request {step}");
        }
        system.ok(&["fs", "tier", verb, &url]);
        assert_eq!(state(&system, "a"), then);
        assert!(cat(&system, "a") == data, "after {verb}");
    }
    system.ok(&["tier", "gc", "--older-than", "0", HOME]);
    assert_eq!(sum_of_objects(&s3), 4);
    let check = system.json(&["fs", "check", HOME]);
    assert_eq!(check["clean"], true, "{check}");
}

#[test]
fn a_bucket_that_is_deleted_under_us_costs_what_was_there_only() {
    let (system, s3) = faulty();
    let data = noise(32, 3 * MIB);
    for name in ["there", "both", "here"] {
        put(&system, name, &data);
    }
    let url = |name: &str| format!("{HOME}/{name}");
    system.ok(&["fs", "tier", "sync", &url("there"), &url("both")]);
    system.ok(&["fs", "tier", "evict", &url("there")]);
    s3.state().is_deleted = true;
    // Nothing goes for a copy that is no more, and what the pool has is read and written as ever.
    for (verb, name) in [("evict", "both"), ("sync", "here"), ("fetch", "there")] {
        system.fails(UNREACHED, &[GONE], &["fs", "tier", verb, &url(name)]);
    }
    system.fails(UNREACHED, &[GONE], &["fs", "cat", &url("there")]);
    for name in ["both", "here"] {
        assert!(cat(&system, name) == data, "{name}");
    }
    system.fails(UNREACHED, &[GONE], &["tier", "gc", HOME, "--older-than", "0"]);
    assert_eq!(state(&system, "there"), "cloud");
    // Somebody puts it back.
    s3.state().is_deleted = false;
    system.ok(&["fs", "tier", "sync", HOME]);
    assert!(cat(&system, "there") == data);
}

/// One that does not answer: given up after a while and tried again, and other files go on meanwhile.
#[test]
fn a_store_that_is_silent_is_asked_again() {
    let (system, s3) = faulty();
    let (large, small) = (noise(33, 5 * MIB), noise(34, 2 * MIB));
    put(&system, "large", &large);
    put(&system, "small", &small);
    s3.state().silent_puts = (u32::MAX, 4 * MIB);
    let url = |name: &str| format!("{HOME}/{name}");
    let mut command = system.command(&["fs", "tier", "sync", &url("large")]);
    command.env("AZEKURA_TIER_TIMEOUT", "1").stdout(Stdio::null());
    let mut child = Running(command.spawn().unwrap());
    while s3.state().silent_count < 2 {
        assert!(child.0.try_wait().unwrap().is_none(), "it waits for the store");
        std::thread::sleep(Duration::from_millis(20));
    }
    system.ok(&["fs", "tier", "sync", &url("small")]);
    assert_eq!((state(&system, "small"), state(&system, "large")), ("both".into(), uploading()));
    s3.state().silent_puts = (0, 0);
    assert!(child.0.wait().unwrap().success());
    assert_eq!(state(&system, "large"), "both");
    system.ok(&["fs", "tier", "evict", &url("large")]);
    assert!(cat(&system, "large") == large && cat(&system, "small") == small);
}

fn uploading() -> String {
    "uploading".into()
}

/// Peak of what a process has in memory, bytes.
fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The store takes nothing: the pool fills with what it does not have, writers get `ENOSPC`, and the agent keeps no data in memory.
/// Then a full pool has no room for what is fetched; what is in the tier is read all the same.
#[test]
fn a_pool_full_of_dirty_data_is_an_error_and_drains() {
    let system = System::up(1, 1);
    system.ok(&["pool", "create", "tank", "--size", "192MiB"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let s3 = S3::start();
    add_s3(&system, &s3);
    system.ok(&["tier", "attach", "s3", HOME]);
    let policy = ["fs", "tier", "policy", "set", HOME, "--high", "95%", "--low", "30%"];
    system.ok(&policy);
    s3.state().is_deleted = true;
    let socket = system.path("tier.sock");
    let mut agent = system.command(&["tier", "agent", "--socket", socket.to_str().unwrap()]);
    agent.args(["--move", "--every", "1s"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut agent = Running(agent.spawn().unwrap());
    let data = noise(35, 16 * MIB);
    let path = system.path("data");
    std::fs::write(&path, &data).unwrap();
    let try_put =
        |name: &str| system.run(&["fs", "put", path.to_str().unwrap(), &format!("{HOME}/{name}")]);
    // Fills the pool; returns how many files went in.
    let fill = |prefix: &str| {
        for count in 0.. {
            let output = try_put(&format!("{prefix}{count}"));
            if !output.status.success() {
                assert!(all_text(&output).contains("is full"), "{}", all_text(&output));
                return count;
            }
        }
        unreachable!()
    };
    let count = fill("a");
    assert!(count > 3, "{count} files");
    assert!(agent.0.try_wait().unwrap().is_none(), "the agent has ended");
    assert!(peak_bytes(agent.0.id()) < 200 << 20, "{}", peak_bytes(agent.0.id()));
    for at in 0..count {
        assert!(cat(&system, &format!("a{at}")) == data, "a{at}");
    }
    // The store is back: the agent makes room, and writers go on.
    s3.state().is_deleted = false;
    while !try_put("later").status.success() {
        assert!(agent.0.try_wait().unwrap().is_none(), "the agent has ended");
        std::thread::sleep(Duration::from_millis(100));
    }
    // Whichever that is: they need not go in their order.
    let names: Vec<String> = (0..count).map(|at| format!("a{at}")).collect();
    let cold = loop {
        if let Some(name) = names.iter().find(|name| state(&system, name) == "cloud") {
            break name.as_str();
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(peak_bytes(agent.0.id()) < 400 << 20, "{}", peak_bytes(agent.0.id()));
    agent.0.kill().unwrap();
    agent.0.wait().unwrap();

    fill("b");
    let url = format!("{HOME}/{cold}");
    let output = system.run(&["fs", "tier", "fetch", &url]);
    assert!(!output.status.success(), "{}", all_text(&output));
    assert!(all_text(&output).contains("is full"), "{}", all_text(&output));
    assert_eq!(state(&system, cold), "cloud");
    assert!(cat(&system, cold) == data);
    if std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        eprintln!("SKIPPED: nothing is mounted in this test: no /dev/fuse");
        return;
    }
    // A reader that might bring it back once got ENOSPC.
    let dir = system.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    system.ok(&["mount", HOME, dir.to_str().unwrap()]);
    assert!(std::fs::read(dir.join(cold)).unwrap() == data);
    system.ok(&["umount", dir.to_str().unwrap()]);
}

/// A description that was made by a clock a day ahead was the newest for a day: restores were as old as it, and `gc` kept it and no other.
#[test]
fn a_clock_that_was_ahead_makes_no_old_description_the_newest() {
    let system = system();
    put(&system, "old", b"old");
    system.ok(&["fs", "tier", "sync", HOME]);
    let tree = objects(&store(&system), ".jsonl")[0].clone();
    let made_ns: u64 = tree.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let ahead = format!("{:020}.jsonl", made_ns + 86_400_000_000_000);
    std::fs::rename(&tree, tree.with_file_name(ahead)).unwrap();
    put(&system, "new", b"new");
    system.ok(&["fs", "tier", "sync", HOME]);
    system.ok(&["tier", "gc", HOME, "--older-than", "0"]);
    let restore = ["tier", "restore", "--from", "cold", "--pool", "tank", "--cont", "home"];
    system.ok(&[&restore[..], &["--as", "again"]].concat());
    for name in ["old", "new"] {
        let url = format!("azk://tank/again/{name}");
        assert_eq!(system.run(&["fs", "cat", &url]).stdout, name.as_bytes());
    }
}
