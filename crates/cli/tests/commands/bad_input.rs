//! Input that makes no sense, or asks for what is not there: the message names it, the exit
//! code tells its kind, and `--json` says the same.

use crate::harness::{self, System, all_text, azekura};

#[test]
fn wrong_usage_is_refused_before_anything_happens() {
    let system = System::none();
    for (words, args) in [
        (&["--size"][..], &["pool", "create", "tank"][..]),
        (&["4Q", "not a size", "4KiB"], &["pool", "create", "tank", "--size", "4Q"]),
        (&["durability", "wal"], &["pool", "create", "t", "--size", "1g", "--durability", "ssd"]),
        (&["100"], &["pool", "create", "t", "--size", "1g", "--scm-percent", "100"]),
        (&["label", "a/b"], &["pool", "create", "a/b", "--size", "1g"]),
        (&["RP_9G1", "object class"], &["cont", "create", "t", "h", "--oclass", "RP_9G1"]),
        (&["5000", "4 KiB"], &["cont", "create", "t", "h", "--chunk-size", "5000"]),
        (&["checksum", "md5"], &["cont", "create", "t", "h", "--csum", "md5"]),
        (&["rd-fac"], &["cont", "create", "t", "h", "--rd-fac", "9"]),
        (&["layout"], &["cont", "create", "t", "h", "--type", "hdf5"]),
        (&["NAME=VALUE"], &["pool", "set-prop", "tank", "label"]),
        (&["azk://POOL/CONTAINER"], &["fs", "ls", "azk://tank"]),
        (&["azk://POOL/CONTAINER"], &["fs", "ls", "/etc"]),
        (&["octal"], &["fs", "mkdir", "azk://t/h/x", "-m", "999"]),
        (&["not a size"], &["fs", "find", "azk://t/h", "--size", "+much"]),
        (&["one of f, d"], &["fs", "find", "azk://t/h", "--type", "x"]),
        (&["both sides are local"], &["fs", "cp", "/etc/hostname", "/tmp/x"]),
        (&["explode"], &["fs", "explode"]),
        (&["engines"], &["up", "--engines", "0"]),
        (&["POOL"], &["pool", "reset-target", "--lose-data"]),
        (&["--rank"], &["pool", "reset-target", "tank", "1", "--rank", "2", "--lose-data"]),
    ] {
        system.fails(2, words, args);
    }
    assert!(!system.dir().exists(), "nothing was made");
    // The system itself: an address that is none, one that nobody is at.
    let run = |system: &str| {
        let output = azekura().args(["--system", system, "pool", "list"]).output().unwrap();
        (output.status.code(), all_text(&output))
    };
    let (code, text) = run("tcp://127.0.0.1:1");
    assert_eq!(code, Some(6), "{text}");
    // Of several the last alone was named, whichever was meant.
    let (code, text) = run("tcp://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
    assert_eq!(code, Some(6), "{text}");
    assert!((1..=3).all(|port| text.contains(&format!("127.0.0.1:{port}"))), "{text}");
    let (code, text) = run("/nonexistent/azekura");
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("azekura up"), "{text}");
}

#[test]
fn what_is_not_there_or_there_already_is_named() {
    let system = System::with_home();
    let file = system.path("file");
    std::fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    system.ok(&["fs", "put", file, "azk://tank/home/a"]);
    system.ok(&["fs", "mkdir", "azk://tank/home/d", "azk://tank/home/e"]);
    system.ok(&["fs", "put", file, "azk://tank/home/d/b"]);
    for (exit, words, args) in [
        (3, &["nosuch"][..], &["pool", "query", "nosuch"][..]),
        (3, &["nosuch"], &["pool", "destroy", "nosuch"]),
        (3, &["nosuch"], &["cont", "list", "nosuch"]),
        (3, &["nosuch"], &["cont", "query", "tank", "nosuch"]),
        (3, &["nosuch"], &["fs", "ls", "azk://nosuch/home"]),
        (3, &["nosuch"], &["fs", "ls", "azk://tank/nosuch"]),
        (3, &["azk://tank/home/nosuch"], &["fs", "ls", "azk://tank/home/nosuch"]),
        (3, &["nosuch"], &["fs", "cat", "azk://tank/home/nosuch"]),
        (3, &["nosuch"], &["fs", "stat", "azk://tank/home/nosuch"]),
        (3, &["nosuch"], &["fs", "rm", "azk://tank/home/nosuch"]),
        (
            3,
            &["home/nosuch: does not"],
            &["fs", "mv", "azk://tank/home/nosuch", "azk://tank/home/x"],
        ),
        (
            3,
            &["home/nosuch: does not"],
            &["fs", "ln", "azk://tank/home/nosuch", "azk://tank/home/x"],
        ),
        (3, &["home/nosuch does not exist"], &["fs", "mkdir", "azk://tank/home/nosuch/x/y"]),
        (3, &["nosuch"], &["fs", "get", "azk://tank/home/nosuch", "x"]),
        (3, &["/nonexistent"], &["fs", "put", "/nonexistent", "azk://tank/home/x"]),
        (3, &["color"], &["fs", "get-attr", "azk://tank/home/a", "color"]),
        (4, &["tank"], &["pool", "create", "tank", "--size", "256MiB"]),
        (4, &["home"], &["cont", "create", "tank", "home"]),
        (4, &["azk://tank/home/d"], &["fs", "mkdir", "azk://tank/home/d"]),
        (
            4,
            &["azk://tank/home/a"],
            &["fs", "mv", "-n", "azk://tank/home/d/b", "azk://tank/home/a"],
        ),
        (4, &["azk://tank/home/a"], &["fs", "ln", "-s", "x", "azk://tank/home/a"]),
        (7, &["azk://tank/home/d"], &["fs", "mv", "-T", "azk://tank/home/e", "azk://tank/home/d"]),
        (1, &["use -r"], &["fs", "rm", "azk://tank/home/d"]),
        (1, &["use -r"], &["fs", "cp", "azk://tank/home/d", "x"]),
        (1, &["not a directory"], &["fs", "ls", "azk://tank/home/a/b"]),
        (1, &["is a directory"], &["fs", "cat", "azk://tank/home/d"]),
        (2, &["into itself"], &["fs", "cp", "-r", "azk://tank/home/d", "azk://tank/home/d/x"]),
        (2, &["flavour", "there are"], &["pool", "get-prop", "tank", "flavour"]),
        (2, &["flavour", "label"], &["pool", "set-prop", "tank", "flavour=mint"]),
        (2, &["flavour"], &["cont", "set-prop", "tank", "home", "flavour=mint"]),
        (2, &["RP_2G1"], &["cont", "set-prop", "tank", "home", "file-oclass=RP2"]),
        (2, &["18 targets"], &["cont", "create", "tank", "two", "--oclass", "EC_16P2G1"]),
        (2, &["RP_6G1", "targets"], &["cont", "create", "tank", "two", "--rd-fac", "5"]),
        (2, &["rd_fac"], &["cont", "create", "tank", "two", "--rd-fac", "1", "--oclass", "S1"]),
    ] {
        system.fails(exit, words, args);
    }
    // What failed has left nothing.
    assert_eq!(system.json(&["cont", "list", "tank"]).as_array().unwrap().len(), 1);

    // Names and paths at their limits.
    let longest = format!("azk://tank/home/{}", "n".repeat(255));
    system.ok(&["fs", "put", file, &longest]);
    system.fails(2, &["255"], &["fs", "put", file, &format!("{longest}n")]);
    system.fails(2, &["255"], &["fs", "mkdir", &format!("{longest}n")]);
    let long_path = format!("azk://tank/home{}", "/d".repeat(2100));
    system.fails(2, &["path of 4200 bytes"], &["fs", "stat", &long_path]);
    system.fails(2, &["path of 4200 bytes"], &["fs", "mkdir", "-p", &long_path]);
}

#[test]
fn a_full_pool_says_so_and_lives_on() {
    let system = System::up(1, 1);
    system.ok(&["pool", "create", "tank", "--size", "64MiB"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let big = system.path("big");
    std::fs::write(&big, harness::noise(1, 100 << 20)).unwrap();
    let big = big.to_str().unwrap();
    let output = system.run(&["fs", "put", big, "azk://tank/home/big"]);
    let text = all_text(&output);
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("azk://tank/home/big"), "{text}");
    let output = system.run(&["fs", "put", big, "azk://tank/home/big", "--json"]);
    assert_eq!(output.status.code(), Some(5), "{}", all_text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["errors"][0]["code"], "NoSpace", "{report}");
    // Nothing is left that looks like it: not of a pipe either, but what was there before, cut.
    system.fails(3, &["big"], &["fs", "stat", "azk://tank/home/big"]);
    let pipe = || {
        let mut command = system.command(&["fs", "put", "-", "azk://tank/home/piped"]);
        let output = command.stdin(std::fs::File::open(big).unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{}", all_text(&output));
        all_text(&output)
    };
    pipe();
    system.fails(3, &["piped"], &["fs", "stat", "azk://tank/home/piped"]);
    let empty = system.path("empty");
    std::fs::write(&empty, "").unwrap();
    system.ok(&["fs", "put", empty.to_str().unwrap(), "azk://tank/home/piped"]);
    let told = pipe();
    let stat = system.json(&["fs", "stat", "azk://tank/home/piped"]);
    let size = stat["size"].as_u64().or(stat[0]["size"].as_u64()).unwrap();
    assert!(told.contains(&format!("only {size} bytes are written")), "{size}: {told}");
    // There is room to remove it, and then room for something else.
    system.ok(&["fs", "rm", "azk://tank/home/piped"]);
    let small = system.path("small");
    std::fs::write(&small, harness::noise(2, 1 << 20)).unwrap();
    system.ok(&["fs", "put", "--verify", small.to_str().unwrap(), "azk://tank/home/small"]);
    // A pool smaller than its targets can have is refused.
    system.fails(2, &["16"], &["pool", "create", "tiny", "--size", "1MiB"]);
}
