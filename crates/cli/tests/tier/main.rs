//! Files in a tier, by command: copied, freed, read, changed, restored from the store alone; programs killed at every step.

mod another_tier;
mod encoded;
mod faults;
#[path = "../harness/mod.rs"]
mod harness;
mod migrated;
mod mounted;
mod policies;
mod progress;
#[path = "../harness/s3.rs"]
mod s3;
mod snapshots;
mod stores;

use harness::{System, all_text, noise};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const HOME: &str = "azk://tank/home";
const MIB: usize = 1 << 20;

/// A system whose container `home` has its tier in a directory of the scratch space.
fn system() -> System {
    let system = System::with_home();
    let url = format!("fs://{}", store(&system).display());
    system.ok(&["tier", "add", "cold", "--url", &url, "--part-size", "8MiB"]);
    system.ok(&["tier", "attach", "cold", HOME]);
    system
}

fn store(system: &System) -> PathBuf {
    system.path("cold")
}

fn put(system: &System, name: &str, data: &[u8]) {
    let path = system.path("data");
    std::fs::write(&path, data).unwrap();
    let url = format!("{HOME}/{name}");
    system.ok(&["fs", "put", path.to_str().unwrap(), &url]);
}

fn cat(system: &System, name: &str) -> Vec<u8> {
    let output = system.run(&["fs", "cat", &format!("{HOME}/{name}")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn state(system: &System, name: &str) -> String {
    let url = format!("{HOME}/{name}");
    let status = system.json(&["fs", "tier", "status", &url]);
    status[0]["state"].as_str().unwrap().to_string()
}

/// Objects of the store whose keys end so.
fn objects(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => todo.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    let is_mark = |path: &PathBuf| path.file_name().unwrap() == ".azekura-tier";
    found.retain(|path| path.to_str().unwrap().ends_with(ending) && !is_mark(path));
    found.sort();
    found
}

#[test]
fn a_file_goes_to_the_tier_and_comes_back() {
    let system = system();
    let mut data = noise(1, 19 * MIB + 5);
    put(&system, "a", &data);
    let url = format!("{HOME}/a");
    assert_eq!(state(&system, "a"), "local");
    assert!(!system.ok(&["fs", "stat", &url]).contains("Tier"));
    let dry = system.json(&["fs", "tier", "evict", "--dry-run", &url]);
    assert_eq!((&dry["bytes"], &dry["dirty_bytes"]), (&0.into(), &(19 * MIB + 5).into()));

    let synced = system.json(&["fs", "tier", "sync", &url]);
    assert_eq!((&synced["changed"], &synced["bytes"]), (&1.into(), &(19 * MIB + 5).into()));
    assert_eq!(state(&system, "a"), "both");
    assert_eq!(objects(&store(&system), ".part").len(), 3);
    assert_eq!(system.json(&["fs", "tier", "sync", &url])["changed"], 0);
    system.ok(&["fs", "tier", "wait", &url]);

    let before = system.json(&["fs", "stat", &url]);
    let evicted = system.json(&["fs", "tier", "evict", &url]);
    assert_eq!((&evicted["bytes"], &evicted["dirty_bytes"]), (&(19 * MIB).into(), &0.into()));
    assert_eq!(state(&system, "a"), "cloud");
    let after = system.json(&["fs", "stat", &url]);
    assert_eq!(
        (&after[0]["size"], &after[0]["mtime_ns"]),
        (&before[0]["size"], &before[0]["mtime_ns"])
    );
    assert_eq!(system.ok(&["fs", "get-attr", &url, "user.azekura.tier"]), "cloud\n");
    assert_eq!(before[0]["tier"]["state"], "both");
    let copied = serde_json::json!({ "name": "cold", "state": "cloud", "version": 1 });
    assert_eq!(after[0]["tier"], copied);
    let shown = system.ok(&["fs", "stat", &url]);
    assert!(shown.contains("cloud; version 1 is in tier 'cold'"), "{shown}");

    // A reader that may not write gets the bytes and brings nothing back.
    assert_eq!(cat(&system, "a"), data);
    assert_eq!(state(&system, "a"), "cloud");
    let fetched = system.json(&["fs", "tier", "fetch", &url]);
    assert_eq!(fetched["bytes"], 19 * MIB);
    assert_eq!(state(&system, "a"), "both");
    assert_eq!(cat(&system, "a"), data);

    // Another content is another version.
    system.ok(&["fs", "tier", "evict", &url]);
    data[100..107].copy_from_slice(b"changed");
    put(&system, "a", &data);
    assert_eq!(state(&system, "a"), "dirty");
    system.ok(&["fs", "tier", "sync", &url]);
    system.ok(&["fs", "tier", "evict", &url]);
    assert_eq!(state(&system, "a"), "cloud");
    assert_eq!(cat(&system, "a"), data);

    // What is left over goes, when it is old enough.
    assert_eq!(objects(&store(&system), ".part").len(), 6);
    assert_eq!(system.json(&["tier", "gc", HOME])["removed_objects"], 0);
    let collected = system.json(&["tier", "gc", "--older-than", "0", HOME]);
    assert_eq!(collected["removed_objects"], 4, "parts and their manifest: {collected}");
    assert_eq!(cat(&system, "a"), data);
    system.ok(&["fs", "rm", &url]);
    system.ok(&["tier", "gc", "--older-than", "0", HOME]);
    assert_eq!(objects(&store(&system), ""), Vec::<PathBuf>::new());
}

#[test]
fn a_damaged_or_lost_part_is_an_error_and_never_other_bytes() {
    let system = system();
    let data = noise(2, 9 * MIB);
    put(&system, "a", &data);
    let url = format!("{HOME}/a");
    system.ok(&["fs", "tier", "sync", &url]);
    let part = objects(&store(&system), ".part")[0].clone();
    let whole = std::fs::read(&part).unwrap();
    let mut damaged = whole.clone();
    damaged[5 * MIB] ^= 1;
    std::fs::write(&part, &damaged).unwrap();
    // Nothing is given up for a copy that is damaged.
    system.fails(1, &["other bytes"], &["fs", "tier", "evict", &url]);
    assert_eq!(cat(&system, "a"), data);
    std::fs::write(&part, &whole).unwrap();
    system.ok(&["fs", "tier", "evict", &url]);
    for wrong in [Some(&damaged[..]), Some(&whole[..whole.len() - 1]), None] {
        match wrong {
            Some(bytes) => std::fs::write(&part, bytes).unwrap(),
            None => std::fs::remove_file(&part).unwrap(),
        }
        let output = system.run(&["fs", "cat", &url]);
        assert!(!output.status.success(), "{}", all_text(&output));
        let output = system.run(&["fs", "tier", "fetch", &url]);
        assert!(!output.status.success(), "{}", all_text(&output));
        // With all that is below a directory a lost part once was taken for a file that somebody had removed just then.
        let output = system.run(&["fs", "tier", "fetch", HOME]);
        assert_eq!(output.status.code(), Some(1), "{}", all_text(&output));
    }
    std::fs::write(&part, &whole).unwrap();
    system.ok(&["fs", "tier", "fetch", &url]);
    assert_eq!(cat(&system, "a"), data);
}

/// A program that syncs, evicts and fetches is killed again and again: the file is what it was, whatever was half done.
#[test]
fn killed_at_any_step_nothing_is_lost() {
    let system = system();
    let data = noise(3, 20 * MIB + 77);
    put(&system, "a", &data);
    let url = format!("{HOME}/a");
    let mut killed = 0;
    for verb in ["sync", "evict", "fetch", "evict"] {
        // Later and later, until it gets to its end.
        for step in 0.. {
            let mut child = system
                .command(&["fs", "tier", verb, &url])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5 + 15 * step));
            child.kill().unwrap();
            let is_done = child.wait().unwrap().success();
            if is_done {
                break;
            }
            killed += 1;
            if step % 4 == 3 {
                assert_eq!(cat(&system, "a"), data, "after a kill in {verb}");
            }
        }
        assert_eq!(cat(&system, "a"), data, "after {verb}");
    }
    assert!(killed > 4, "{killed} kills");
    assert_eq!(state(&system, "a"), "cloud");
    system.ok(&["tier", "gc", "--older-than", "0", HOME]);
    // Three parts, a manifest, and nothing of what was half done.
    assert_eq!(objects(&store(&system), "").len(), 4, "{:?}", objects(&store(&system), ""));
    assert_eq!(cat(&system, "a"), data);
    let check = system.json(&["fs", "check", HOME]);
    assert_eq!(check["clean"], true, "{check}");
}

#[test]
fn the_store_alone_makes_the_container_again() {
    let system = system();
    let tree = system.path("tree");
    std::fs::create_dir_all(tree.join("d/e")).unwrap();
    std::fs::write(tree.join("d/small"), "small").unwrap();
    std::fs::write(tree.join("d/e/large"), noise(4, 10 * MIB + 1)).unwrap();
    std::fs::write(tree.join("empty"), "").unwrap();
    std::fs::hard_link(tree.join("d/small"), tree.join("second")).unwrap();
    std::os::unix::fs::symlink("d/small", tree.join("link")).unwrap();
    let from = format!("{}/.", tree.display());
    system.ok(&["fs", "cp", "-r", &from, &format!("{HOME}/")]);
    let want = harness::tree(&tree);
    let synced = system.json(&["fs", "tier", "sync", HOME]);
    assert!(synced["description"].is_string(), "{synced}");
    system.ok(&["fs", "tier", "evict", HOME]);

    // Another system, which has the store and nothing else.
    let other = System::up(1, 1);
    other.ok(&["pool", "create", "pond", "--size", "512MiB"]);
    let url = format!("fs://{}", store(&system).display());
    other.ok(&["tier", "add", "found", "--url", &url]);
    let restored = other.json(&["tier", "restore", "--from", "found", "--pool", "pond"]);
    assert_eq!((&restored[0]["cont"], &restored[0]["files"]), (&"home".into(), &3.into()));
    let back = other.path("back");
    other.ok(&["fs", "cp", "-r", "azk://pond/home", back.to_str().unwrap()]);
    let mut got = harness::tree(&back);
    let mut want = want;
    // The root's time is that of the last change in it, here and there.
    got.remove(&b""[..]);
    want.remove(&b""[..]);
    assert_eq!(got, want);
    other.fails(4, &["home"], &["tier", "restore", "--from", "found", "--pool", "pond"]);
    let again =
        ["tier", "restore", "--from", "found", "--pool", "pond", "--cont", "home", "--as", "two"];
    other.ok(&again);
    // One damaged part once ended all: the other files are restored, and the exit code tells.
    let part = objects(&store(&system), ".000001.part")[0].clone();
    let mut damaged = std::fs::read(&part).unwrap();
    damaged[100] ^= 1;
    std::fs::write(&part, damaged).unwrap();
    let output = other.run(&[&again[..9], &["three"]].concat());
    let text = all_text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("missing: /d/e/large") && text.contains("2 files"), "{text}");
    assert_eq!(other.run(&["fs", "cat", "azk://pond/three/second"]).stdout, b"small");
    other.fails(3, &["large"], &["fs", "cat", "azk://pond/three/d/e/large"]);
}

/// Holes went to the tier as zeros: all of an image that was nearly empty.
#[test]
fn of_holes_one_part_is_sent() {
    let system = system();
    let mut data = vec![0; 80 * MIB];
    data[33 * MIB..35 * MIB].copy_from_slice(&noise(8, 2 * MIB));
    data[79 * MIB + 5] = 1;
    put(&system, "image", &data);
    let synced = system.json(&["fs", "tier", "sync", &format!("{HOME}/image")]);
    // Zeros, the part with noise, and the last one, of 8 MiB each.
    assert_eq!(objects(&store(&system), ".part").len(), 3, "{synced}");
    system.ok(&["fs", "tier", "evict", HOME]);
    assert_eq!(state(&system, "image"), "cloud");
    assert!(cat(&system, "image") == data);
    // What is written into a hole is sent.
    data[17 * MIB] = 7;
    put(&system, "image", &data);
    system.ok(&["fs", "tier", "sync", HOME]);
    system.ok(&["tier", "gc", HOME, "--older-than", "0"]);
    system.ok(&["fs", "tier", "evict", HOME]);
    assert!(cat(&system, "image") == data);
}

/// The directory of a tier was made anew on the disk below while its own was not mounted: what was copied there, and evicted, was gone when that was back.
#[test]
fn a_tier_whose_disk_is_not_mounted_is_not_made_anew() {
    let system = system();
    let (dir, disk) = (store(&system), system.path("disk"));
    let first = noise(7, 2 * MIB);
    put(&system, "a", &first);
    system.ok(&["fs", "tier", "sync", HOME]);
    system.ok(&["fs", "tier", "evict", HOME]);
    std::fs::rename(&dir, &disk).unwrap();
    for mount_point in [false, true] {
        if mount_point {
            std::fs::create_dir(&dir).unwrap();
        }
        put(&system, "b", format!("second, {mount_point}").as_bytes());
        for what in [&["sync"][..], &["evict"]] {
            let output = system.run(&[&["fs", "tier"], what, &[HOME]].concat());
            let text = all_text(&output);
            assert!(!output.status.success() && text.contains("mounted"), "{text}");
        }
        assert!(!system.run(&["fs", "cat", &format!("{HOME}/a")]).status.success());
        assert_eq!(cat(&system, "b"), format!("second, {mount_point}").as_bytes());
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "nothing is put where a disk belongs");
    std::fs::remove_dir(&dir).unwrap();
    std::fs::rename(&disk, &dir).unwrap();
    system.ok(&["fs", "tier", "sync", HOME]);
    system.ok(&["fs", "tier", "evict", HOME]);
    assert!(cat(&system, "a") == first);
    assert_eq!(cat(&system, "b"), b"second, true");
}

#[test]
fn wrong_words_are_told_what_is_right() {
    let system = System::with_home();
    let url = format!("{HOME}/");
    system.fails(3, &["no tier", "azekura tier attach"], &["fs", "tier", "sync", &url]);
    system.fails(3, &["no tier 'x'", "none"], &["tier", "attach", "x", HOME]);
    system.fails(3, &["no tier 'x'"], &["cont", "create", "tank", "y", "--tier", "x"]);
    for url in ["/dir", "ftp://a/b", "fs://host/dir", "s3://u:p@b/x"] {
        system.fails(2, &[], &["tier", "add", "t", "--url", url]);
    }
    let add = ["tier", "add", "t", "--url", "s3://bucket/x", "--endpoint", "http://127.0.0.1:1"];
    let output = system.command(&add).env_remove("AWS_ACCESS_KEY_ID").output().unwrap();
    assert_eq!(output.status.code(), Some(8), "{}", all_text(&output));
    let keys = system.path("keys");
    std::fs::write(&keys, "access_key_id = \"id\"\nsecret_access_key = \"hush-hush\"\n").unwrap();
    let with_keys = [&add[..], &["--credentials", keys.to_str().unwrap()]].concat();
    system.fails(8, &["chmod 600"], &with_keys);
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).unwrap();
    system.ok(&with_keys);
    system.fails(4, &["exists already"], &with_keys);
    let listed = system.ok(&["tier", "list", "--json"]);
    assert!(listed.contains("s3://bucket/x") && !listed.contains("hush"), "{listed}");
    system.ok(&["tier", "remove", "t"]);
    system.fails(3, &["no tier 't'"], &["tier", "remove", "t"]);
    assert_eq!(system.json(&["tier", "list"]).as_array().unwrap().len(), 0);
    // One that a container has once was forgotten as easily, and with it what was there only.
    system.ok(&with_keys);
    system.ok(&["tier", "attach", "t", HOME]);
    system.fails(7, &["azk://tank/home", "--force"], &["tier", "remove", "t"]);
    assert_eq!(system.json(&["cont", "query", "tank", "home"])["tier"], "t");
    system.ok(&["tier", "remove", "t", "--force"]);
}

/// What the reader in `docs/tier.md` makes of a file in the store of [`system`]; `None` without Python.
fn read_by_docs(system: &System, path: &str) -> Option<std::process::Output> {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: the reader of docs/tier.md is not run: there is no python3");
        return None;
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tier.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let reader = docs.split("<!-- tier reader -->").nth(1).unwrap();
    let reader = reader.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let script = system.path("read.py");
    std::fs::write(&script, reader).unwrap();
    Some(Command::new("python3").arg(&script).arg(store(system)).arg(path).output().unwrap())
}

/// The reader understands the format, with nothing of ours.
#[test]
fn the_reader_of_the_docs_reads() {
    let system = system();
    let data = noise(5, 9 * MIB + 3);
    put(&system, "a b", &data);
    system.ok(&["fs", "tier", "sync", HOME]);
    let Some(output) = read_by_docs(&system, "/a b") else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, data);
    let part = objects(&store(&system), ".part")[1].clone();
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    assert!(!read_by_docs(&system, "/a b").unwrap().status.success());
}

/// A system with a tier `s3` in a store of this process, and no container that has it.
fn with_s3() -> (System, s3::S3) {
    let system = System::with_home();
    let s3 = s3::S3::start();
    add_s3(&system, &s3);
    (system, s3)
}

fn add_s3(system: &System, s3: &s3::S3) {
    let keys = system.path("keys");
    std::fs::write(&keys, "access_key_id = \"myid\"\nsecret_access_key = \"hush-hush\"\n").unwrap();
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).unwrap();
    let at = ["tier", "add", "s3", "--url", "s3://bucket/some/prefix", "--part-size", "8MiB"];
    let keys = ["--endpoint", &s3.endpoint, "--credentials", keys.to_str().unwrap()];
    system.ok(&[&at[..], &keys].concat());
}

#[test]
fn an_s3_store_with_faults() {
    let (system, s3) = with_s3();
    let checked = system.json(&["tier", "test", "s3"]);
    assert_eq!((&checked["lists"], &checked["tells_times"]), (&true.into(), &true.into()));
    assert!(s3.state().objects.is_empty() && s3.state().request_count >= 4);
    let signed = |text: &String| text.contains("Credential=myid/") && !text.contains("hush");
    assert!(s3.state().authorizations.iter().all(signed));
    // With credentials of the environment, in another region.
    let add = ["tier", "add", "env", "--url", "s3://bucket/env", "--endpoint", &s3.endpoint];
    for args in [&[&add[..], &["--region", "eu-test-1"]].concat()[..], &["tier", "test", "env"]] {
        let mut command = system.command(args);
        command.env("AWS_ACCESS_KEY_ID", "envid").env("AWS_SECRET_ACCESS_KEY", "envkey");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", all_text(&output));
    }
    let last = s3.state().authorizations.last().cloned().unwrap();
    assert!(last.contains("Credential=envid/") && last.contains("/eu-test-1/s3/"), "{last}");

    system.ok(&["tier", "attach", "s3", HOME]);
    let data = noise(6, 17 * MIB);
    put(&system, "a", &data);
    let url = format!("{HOME}/a");
    // Too much at once, and a server that falls over: tried again.
    s3.state().faults.extend([503, 429, 500]);
    system.ok(&["fs", "tier", "sync", &url]);
    assert!(s3.state().faults.is_empty());
    assert!(
        s3.state().objects.keys().all(|path| path.starts_with("/bucket/some/prefix/containers/"))
    );
    system.ok(&["fs", "tier", "evict", &url]);
    s3.state().faults.push_back(503);
    assert_eq!(cat(&system, "a"), data);

    // Credentials that are no good any more: an error at once, no loss.
    s3.state().faults.extend([403; 8]);
    let output = system.run(&["fs", "tier", "fetch", &url]);
    let text = all_text(&output);
    assert!(!output.status.success() && !text.contains("hush"), "{text}");
    s3.state().faults.clear();
    let part = s3.state().objects.keys().find(|path| path.ends_with(".part")).unwrap().clone();
    s3.state().objects.get_mut(&part).unwrap()[1000] ^= 1;
    let output = system.run(&["fs", "tier", "fetch", &url]);
    assert!(!output.status.success(), "{}", all_text(&output));
    s3.state().objects.get_mut(&part).unwrap()[1000] ^= 1;
    system.ok(&["fs", "tier", "fetch", &url]);
    assert_eq!((state(&system, "a"), cat(&system, "a")), ("both".into(), data));
    system.ok(&["fs", "rm", &url]);
    // By the store's clock, not by ours: what was put just now is not old because ours is years ahead.
    assert_eq!(system.json(&["tier", "gc", HOME])["removed_objects"], 0);
    s3.state().clock_s += 86_400;
    system.ok(&["tier", "gc", HOME]);
    assert!(s3.state().objects.is_empty());
}

/// Any program on a mount: what it reads comes back, what it changes is sent alone.
#[test]
fn a_mount_brings_back_what_is_read() {
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        eprintln!("SKIPPED: nothing is mounted in this test: /dev/fuse: {error}");
        return;
    }
    let system = system();
    let mut data = noise(7, 19 * MIB);
    put(&system, "a", &data);
    let url = format!("{HOME}/a");
    system.ok(&["fs", "tier", "sync", &url]);
    let dir = system.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    system.ok(&["mount", HOME, dir.to_str().unwrap(), "--cache", "none"]);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(dir.join("a")).unwrap();
    // The handle is older than the eviction.
    system.ok(&["fs", "tier", "evict", &url]);
    let mut some = vec![0; 3 * MIB];
    file.read_exact_at(&mut some, 7 * MIB as u64).unwrap();
    assert_eq!(some, data[7 * MIB..10 * MIB]);
    file.write_all_at(b"changed", 100).unwrap();
    data[100..107].copy_from_slice(b"changed");
    assert_eq!(state(&system, "a"), "dirty");
    let synced = system.json(&["fs", "tier", "sync", &url]);
    assert_eq!(synced["bytes"], 8 * MIB);
    system.ok(&["fs", "tier", "evict", &url]);
    assert_eq!(std::fs::read(dir.join("a")).unwrap(), data);
    drop(file);
    // One that is larger than a copy can be once was all that was told of a directory, and waited for for ever.
    let size = (4 << 40) + 1;
    std::fs::File::create(dir.join("huge")).unwrap().set_len(size).unwrap();
    std::fs::write(dir.join("small"), "small").unwrap();
    system.ok(&["umount", dir.to_str().unwrap()]);
    let output = system.run(&["fs", "tier", "sync", HOME]);
    let text = all_text(&output);
    assert!(output.status.code() == Some(1) && text.contains("larger chunks"), "{text}");
    let status = system.json(&["fs", "tier", "status", HOME]);
    let states = [1, 2].map(|at| status[at]["state"].as_str().unwrap());
    assert_eq!(states, ["local", "both"], "{status}");
    assert_eq!(status[1]["dirty_bytes"], size);
    let output = system.run(&["fs", "tier", "wait", HOME]);
    assert!(!output.status.success(), "{}", all_text(&output));
    assert!(all_text(&output).contains("larger chunks"), "{}", all_text(&output));
}

/// A process that ends with the value.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Programs with the preloaded library once got "no route to host" for what was in a tier only.
#[test]
fn programs_that_know_no_stores_read_through_an_agent() {
    let library = std::env::current_exe().unwrap().with_file_name("libazekura_intercept.so");
    if !library.exists() {
        println!("SKIPPED: {} is not built; test the whole workspace", library.display());
        return;
    }
    let system = system();
    let data = noise(7, 19 * MIB + 5);
    let url = format!("{HOME}/a");
    let evicted = || {
        system.ok(&["fs", "tier", "sync", &url]);
        system.ok(&["fs", "tier", "evict", &url]);
        assert_eq!(state(&system, "a"), "cloud");
    };
    put(&system, "a", &data);
    evicted();
    let socket = system.path("tier.sock");
    let command = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("LD_PRELOAD", &library)
            .env("AZEKURA_SYSTEM", system.dir())
            .env("AZEKURA_INTERCEPT", format!("{HOME}=/azekura-tier-test"))
            .env("AZEKURA_TIER_AGENT", &socket);
        command
    };
    let preloaded = |program: &str, args: &[&str]| {
        command(program, args).stdin(Stdio::null()).output().unwrap()
    };
    let refused = preloaded("cat", &["/azekura-tier-test/a"]);
    assert!(!refused.status.success());
    assert!(all_text(&refused).contains("route"), "{}", all_text(&refused));
    let agent = system
        .command(&["tier", "agent", "--socket", socket.to_str().unwrap(), "--mode", "666"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut agent = Running(agent);
    while !socket.exists() {
        assert!(agent.0.try_wait().unwrap().is_none(), "the agent has ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Who asks for little does not wait for a part of 8 MiB, as all did once.
    let agent_read_bytes = || -> u64 {
        let told = std::fs::read_to_string(format!("/proc/{}/io", agent.0.id())).unwrap();
        told.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
    };
    let before = agent_read_bytes();
    let script = "import os,sys; f=os.open(sys.argv[1],os.O_RDONLY); sys.stdout.buffer.write(os.pread(f,10,9000000))";
    let some = preloaded("python3", &["-c", script, "/azekura-tier-test/a"]);
    assert!(some.stdout == data[9_000_000..9_000_010], "{}", all_text(&some));
    let read_bytes = agent_read_bytes() - before;
    assert!((1 << 20..4 << 20).contains(&read_bytes), "{read_bytes} bytes for ten");
    let read = preloaded("cat", &["/azekura-tier-test/a"]);
    assert!(read.stdout == data, "{}", String::from_utf8_lossy(&read.stderr));
    // It comes back into the pool behind a program that stays, as for every other reader.
    evicted();
    let script = "import os,select,sys\nf=os.open(sys.argv[1],os.O_RDONLY)\ndata=os.pread(f,1<<25,0)\n\
        while not select.select([0],[],[],0.05)[0]: os.pread(f,1<<25,0)\nsys.stdout.buffer.write(data)";
    let mut staying = command("python3", &["-c", script, "/azekura-tier-test/a"]);
    let mut staying = staying.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    while state(&system, "a") != "both" {
        assert!(staying.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    drop(staying.stdin.take());
    assert!(staying.wait_with_output().unwrap().stdout == data);
    evicted();
    // Writing into the middle of a chunk needs the rest of it.
    let script = "import os,sys; f=os.open(sys.argv[1],os.O_RDWR); os.pwrite(f,b'changed',9000000); os.close(f)";
    let written = preloaded("python3", &["-c", script, "/azekura-tier-test/a"]);
    assert!(written.status.success(), "{}", all_text(&written));
    let mut changed = data.clone();
    changed[9_000_000..9_000_007].copy_from_slice(b"changed");
    assert!(cat(&system, "a") == changed);
    // fsync that waits for the tier, which was refused in such programs; and for who may write the file only.
    system.ok(&["fs", "tier", "policy", "set", HOME, "--sync", "posix"]);
    let script = "import os,sys; f=os.open(sys.argv[1],os.O_RDWR); os.pwrite(f,b'Changed',9000000); os.fsync(f)";
    let synced = preloaded("python3", &["-c", script, "/azekura-tier-test/a"]);
    assert!(synced.status.success(), "{}", all_text(&synced));
    // All is in the copy, and what nobody touched still there only.
    assert_eq!(state(&system, "a"), "cloud");
    assert_eq!(cat(&system, "a")[9_000_000..9_000_007], *b"Changed");
    // Who may not write the file may not have it sent: the agent asks the kernel who that is.
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(system.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
        let script = "import os,sys; f=os.open(sys.argv[1],os.O_RDWR); os.pwrite(f,b'CHANGED',9000000); os.setuid(65534); os.fsync(f)";
        let refused = preloaded("python3", &["-c", script, "/azekura-tier-test/a"]);
        let text = all_text(&refused);
        assert!(!refused.status.success() && text.contains("PermissionError"), "{text}");
        assert_eq!(state(&system, "a"), "dirty");
        assert_eq!(cat(&system, "a")[9_000_000..9_000_007], *b"CHANGED");
    }
    // Another one at the same place is told so; one that is asked to end takes its socket along.
    system.fails(7, &["another agent"], &["tier", "agent", "--socket", socket.to_str().unwrap()]);
    let ended = Command::new("kill").arg(agent.0.id().to_string()).status().unwrap();
    assert!(ended.success());
    assert!(agent.0.wait().unwrap().success());
    assert!(!socket.exists());
}
