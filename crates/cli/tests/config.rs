//! Configuration files: what is generated is right, what is wrong is named.

mod harness;

use harness::System;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const HOSTS: [&str; 4] = ["127.0.0.1", "127.0.0.2", "localhost", "::1"];

#[test]
fn what_is_generated_passes_the_check() {
    let scratch = System::none();
    for (name, etcd) in [("joined", &[][..]), ("etcd", &["--etcd"][..])] {
        let out = scratch.path(name);
        let out = out.to_str().unwrap();
        let token = format!("{out}/token");
        let hosts = HOSTS.join(",");
        let mut args = vec!["config", "generate", "--hosts", &hosts, "--out", out];
        args.extend(["--token-file", &token, "--device", "/a \"b\"", "--device", "/c"]);
        args.extend(etcd);
        let told = scratch.ok(&args);
        assert!(
            told.contains("tcp://127.0.0.1:7710,127.0.0.2:7710,localhost:7710,[::1]:7710"),
            "{told}"
        );
        for host in HOSTS {
            let file = format!("{out}/{host}/engine.toml");
            scratch.ok(&["config", "check", &file]);
            assert!(fs::read_to_string(format!("{out}/{host}/azekura-engine.service")).is_ok());
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(text.contains("\njoin = "), etcd.is_empty() && host != HOSTS[0], "{text}");
            assert_eq!(text.contains("http://[::1]:2379"), !etcd.is_empty(), "{text}");
        }
        let mode = fs::metadata(&token).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Nothing is written over.
        let before = fs::read(&token).unwrap();
        scratch.fails(4, &["exists"], &args);
        assert_eq!(fs::read(&token).unwrap(), before);
    }
}

#[test]
fn bad_hosts_are_refused_and_nothing_is_written() {
    let scratch = System::none();
    let out = scratch.path("files");
    for (hosts, word) in [("a,a", "twice"), ("a,../b", "../b"), ("a,,b", "''"), ("a b", "a b")] {
        let args = ["config", "generate", "--hosts", hosts, "--out", out.to_str().unwrap()];
        scratch.fails(2, &[word], &args);
        assert!(!out.exists());
    }
}

#[test]
fn mistakes_are_named_with_their_line() {
    let scratch = System::none();
    let file = scratch.path("engine.toml");
    let path = file.to_str().unwrap();
    for (text, words) in [
        ("dir = '/a'\nlitsen = 'x'\n[[target]]\ndevice = '/d'\n", ["litsen", "line 2"]),
        ("dir = '/a'\ndown_after_s = 'x'\n[[target]]\ndevice = '/d'\n", ["down_after_s", "line 2"]),
        ("dir = '/a'\ndown_after_s = 1\n[[target]]\ndevice = '/d'\n", ["down_after_s", "86400"]),
        (
            "dir = '/a'\ntoken_file = '/not/there'\n[[target]]\ndevice = '/d'\n",
            ["/not/there", path],
        ),
    ] {
        fs::write(&file, text).unwrap();
        let output = scratch.run(&["config", "check", path]);
        let said = harness::all_text(&output);
        assert!(!output.status.success(), "{text}: {said}");
        for word in words {
            assert!(said.contains(word), "{text}: {said}");
        }
    }
    scratch.fails(3, &["not/there"], &["config", "check", "/not/there"]);
    let keys: Value = scratch.json(&["config", "keys"]);
    assert!(keys.as_array().unwrap().iter().any(|key| key["key"] == "down_after_s"));
}
