//! Tiers whose parts are compressed and encrypted.

use super::*;

/// Text that can be told from other bytes, and gets smaller.
fn text(bytes: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|at| format!("line {at} of a secret letter\n").into_bytes());
    lines.take(bytes).collect()
}

/// A system whose container `home` has its tier in a directory, with these options.
fn encoded(options: &[&str]) -> System {
    let system = System::with_home();
    let url = format!("fs://{}", store(&system).display());
    let add = ["tier", "add", "cold", "--url", &url, "--part-size", "8MiB"];
    system.ok(&[&add, options].concat());
    system.ok(&["tier", "attach", "cold", HOME]);
    system
}

fn stored_bytes(system: &System) -> u64 {
    let parts = objects(&store(system), ".part");
    parts.iter().map(|path| std::fs::metadata(path).unwrap().len()).sum()
}

#[test]
fn compressed_parts_are_smaller_and_come_back() {
    let system = encoded(&["--zstd"]);
    let mut data = text(12 * MIB);
    // The second part does not get smaller.
    data.truncate(8 * MIB);
    data.extend(noise(1, 3 * MIB));
    put(&system, "a", &data);
    let url = format!("{HOME}/a");
    system.ok(&["fs", "tier", "sync", HOME]);
    let stored = stored_bytes(&system);
    assert!(stored > 3 << 20 && stored < 6 << 20, "{stored}");
    system.ok(&["fs", "tier", "evict", &url]);
    assert!(cat(&system, "a") == data);
    if let Some(output) = read_by_docs(&system, "/a") {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == data);
    }
    let part = objects(&store(&system), ".part")[0].clone();
    let whole = std::fs::read(&part).unwrap();
    for at in [30, 70, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&part, damaged).unwrap();
        let output = system.run(&["fs", "tier", "fetch", &url]);
        assert!(!output.status.success(), "byte {at}: {}", all_text(&output));
        assert!(!system.run(&["fs", "cat", &url]).status.success(), "byte {at}");
    }
    std::fs::write(&part, whole).unwrap();
    system.ok(&["fs", "tier", "fetch", &url]);
    assert!(cat(&system, "a") == data);
}

#[test]
fn encrypted_parts_tell_nothing_and_another_key_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_string();
    let (key, other) = (path("key"), path("other"));
    let making = System::none();
    for file in [&key, &other] {
        making.ok(&["tier", "make-key", file]);
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(!making.run(&["tier", "make-key", &key]).status.success());
    let system = encoded(&["--zstd", "--key-file", &key]);
    let data = text(9 * MIB);
    put(&system, "a", &data);
    let url = format!("{HOME}/a");
    system.ok(&["fs", "tier", "sync", HOME]);
    assert!(stored_bytes(&system) < 4 << 20);
    for part in objects(&store(&system), ".part") {
        let raw = std::fs::read(part).unwrap();
        assert!(!raw.windows(6).any(|some| some == b"secret"));
    }
    system.ok(&["fs", "tier", "evict", &url]);
    assert!(cat(&system, "a") == data);
    let secret = std::fs::read_to_string(&key).unwrap();
    let listed = system.ok(&["tier", "list", "--json"]);
    assert!(listed.contains(&key) && !listed.contains(secret.trim()), "{listed}");

    // Another key, one that others may read, and none that there is: errors, and no other bytes.
    let right = std::fs::read(&key).unwrap();
    std::fs::copy(&other, &key).unwrap();
    system.fails(8, &["is encrypted with key", "has key"], &["fs", "cat", &url]);
    system.fails(8, &["is encrypted with key"], &["fs", "tier", "fetch", &url]);
    std::fs::write(&key, &right).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    system.fails(8, &["chmod 600"], &["fs", "cat", &url]);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let part = objects(&store(&system), ".part")[0].clone();
    let whole = std::fs::read(&part).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&part, damaged).unwrap();
    system.fails(1, &["other bytes"], &["fs", "cat", &url]);
    std::fs::write(&part, whole).unwrap();
    assert!(cat(&system, "a") == data);
    if let Some(output) = read_by_docs(&system, "/a") {
        let told = String::from_utf8_lossy(&output.stderr).to_string();
        assert!(!output.status.success() && told.contains("zstd+aes-256-gcm"), "{told}");
        assert!(output.stdout.is_empty());
    }

    // From the store alone, with the key, and not without.
    let at = format!("fs://{}", store(&system).display());
    let other = System::up(1, 1);
    other.ok(&["pool", "create", "pond", "--size", "512MiB"]);
    other.ok(&["tier", "add", "keyless", "--url", &at]);
    let restore = ["tier", "restore", "--from", "keyless", "--pool", "pond", "--cont", "home"];
    let output = other.run(&[&restore[..], &["--as", "none"]].concat());
    assert_eq!(output.status.code(), Some(8), "{}", all_text(&output));
    assert!(all_text(&output).contains("--key-file"), "{}", all_text(&output));
    other.ok(&["tier", "add", "found", "--url", &at, "--key-file", &key]);
    other.ok(&["tier", "restore", "--from", "found", "--pool", "pond"]);
    let output = other.run(&["fs", "cat", "azk://pond/home/a"]);
    assert!(output.stdout == data, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn reads_in_order_are_fetched_ahead_and_others_get_what_they_ask_for() {
    let system = system();
    let bench = ["bench", "tier", HOME, "--size", "33MiB", "--ahead", "16MiB", "--random", "4"];
    let rows = system.json(&bench);
    let row = |what: &str| {
        let found = rows.as_array().unwrap().iter().find(|row| row["what"] == what);
        found.unwrap_or_else(|| panic!("{what}: {rows}")).clone()
    };
    for what in ["read before it was copied", "read from the pool"] {
        let pool = row(what);
        assert_eq!((&pool["hits"], &pool["misses"]), (&0.into(), &0.into()));
    }
    let ahead = row("read in order");
    // The first block alone, then the rest of its piece; the others were fetched ahead, the last chunk for nothing: it stayed in the pool.
    let bytes = |value: &serde_json::Value| value.as_u64().unwrap();
    assert_eq!((bytes(&ahead["misses"]), bytes(&ahead["miss_bytes"])), (2, 4 << 20), "{ahead}");
    // Pieces of 4 MiB; a block may be asked for once more when its piece goes back into the pool just then.
    assert!(bytes(&ahead["hits"]) >= 7, "{ahead}");
    let used = [&ahead["ahead_bytes"], &ahead["ahead_used_bytes"]].map(bytes);
    assert_eq!(used, [29 << 20, 28 << 20], "{ahead}");
    let alone = row("read in order, nothing ahead");
    assert_eq!((&alone["ahead_bytes"], &alone["hits"]), (&0.into(), &0.into()), "{alone}");
    assert_eq!((bytes(&alone["misses"]), bytes(&alone["miss_bytes"])), (32, 32 << 20), "{alone}");
    let random = row("read at random");
    assert!(bytes(&random["miss_bytes"]) <= 4 << 20, "a chunk each: {random}");
    // In pieces of 1 MiB nothing comes that nobody asked for but what is ahead.
    let rows = system.json(&[&bench[..], &["--piece", "1MiB"]].concat());
    let small = rows.as_array().unwrap().iter().find(|row| row["what"] == "read in order").unwrap();
    assert_eq!((bytes(&small["misses"]), bytes(&small["miss_bytes"])), (2, 2 << 20), "{small}");
    assert!(system.ok(&["fs", "ls", HOME]).is_empty());
    system.ok(&["tier", "gc", HOME, "--older-than", "0"]);
    assert_eq!(objects(&store(&system), "").len(), 0);

    // Eight files of 2 MiB, of which the pool may keep 4 MiB; two threads with fsync of both kinds.
    let plot = system.path("plot.svg");
    let bench = ["bench", "tier", HOME, "--size", "16MiB", "--experiment"];
    let report = system.json(&[&bench[..], &["cache", "--plot", plot.to_str().unwrap()]].concat());
    assert_eq!(report["rows"].as_array().unwrap().len(), 9, "{report}");
    let drawn = std::fs::read_to_string(&plot).unwrap();
    assert!(drawn.contains("<svg") && drawn.contains("pool keeps a quarter"), "{drawn}");
    let report = system.json(&[&bench[..], &["threads"]].concat());
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 20);
    for row in rows {
        assert_eq!(row["safe_seconds"].is_f64(), row["kind"].as_str().unwrap().contains("write"));
        assert!(row["bytes_s"].as_u64().unwrap() > 0, "{row}");
    }
    // As many calls of each size as there was time for; blocks of 4 KiB once took minutes.
    let report = system.json(&[&bench[..], &["block", "--seconds", "1"]].concat());
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7 * 4);
    for row in rows {
        let [block, calls, bytes] = ["block", "operations", "bytes"].map(|of| bytes(&row[of]));
        assert!(calls > 0 && bytes == calls * block && bytes <= 16 << 20, "{row}");
    }
    // Alone, beside a mover, and beside a store that has as much to do.
    let report = system.json(&[&bench[..], &["foreground", "--seconds", "1"]].concat());
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 18);
    for row in rows {
        let is_beside = row["kind"].as_str().unwrap().contains("while");
        assert_eq!(row["moved_bytes"].is_u64(), is_beside, "{row}");
    }
    assert!(rows.iter().any(|row| row["moved_bytes"].as_u64() > Some(0)), "{report}");
    assert!(system.ok(&["fs", "ls", HOME]).is_empty());
    system.ok(&["tier", "gc", HOME, "--older-than", "0"]);
    assert_eq!(objects(&store(&system), "").len(), 0);
}
