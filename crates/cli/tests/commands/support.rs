//! The support bundle: what is in it, and what must not be.

use crate::harness::{System, all_text, azekura};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Unpacks an archive with the tar of this machine; false when there is none.
fn unpack(archive: &Path, to: &Path) -> bool {
    fs::create_dir_all(to).unwrap();
    match Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(to).output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", all_text(&output));
            true
        }
        Err(_) => {
            println!("SKIPPED: no tar here");
            false
        }
    }
}

#[test]
fn a_bundle_tells_much_and_no_secrets() {
    let system = System::up(2, 1);
    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    system.ok(&["cont", "create", "tank", "home"]);
    let token = fs::read_to_string(system.dir().join("token")).unwrap().trim().to_string();
    assert!(token.len() > 10);
    let log = system.dir().join("engine1/engine.log");
    let mut log = fs::File::options().append(true).open(log).unwrap();
    for n in 0..50 {
        writeln!(log, "line {n}, somebody's token is {token}, from http://me:hunter2@host/")
            .unwrap();
    }
    let archive = system.path("bundle.tar");
    let args =
        ["system", "support", "collect", "--lines", "20", "--out", archive.to_str().unwrap()];
    let report = system.json(&args);
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let raw = fs::read(&archive).unwrap();
    for secret in [&token[..], "hunter2"] {
        assert!(!raw.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret}");
    }
    let collected = report["collected"].to_string();
    for name in [
        "config/engine1.toml",
        "state/pool-tank.json",
        "machine/doctor.json",
        "version.txt",
        "state/jobs.json",
    ] {
        assert!(collected.contains(name), "{name}: {report}");
    }
    system.fails(4, &["bundle.tar"], &args);
    let dir = system.path("unpacked");
    if unpack(&archive, &dir) {
        let read = |name: &str| {
            let path = dir.join("azekura-support").join(name);
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        for name in collected.trim_matches(['[', ']']).split(',') {
            assert!(!read(name.trim_matches('"')).is_empty(), "{name}");
        }
        let status: serde_json::Value = serde_json::from_str(&read("state/status.json")).unwrap();
        assert_eq!(status["state"], "running");
        let events = read("state/events.json");
        assert!(events.contains("\"engine-joined\"") && events.contains("\"to_do\""), "{events}");
        let log = read("logs/engine1.log");
        assert_eq!(log.lines().count(), 20);
        assert!(
            log.ends_with("line 49, somebody's token is ***, from http://***@host/\n"),
            "{log}"
        );
        assert!(read("contents.txt").contains("state/status.json"));
        assert!(read("machine/proc-version").contains("Linux"));
    }

    // Of a system that does not answer there is what is there.
    system.ok(&["down"]);
    let secret = wire::event::Event {
        number: 1000,
        time_ns: 1,
        count: 1,
        code: "engine-down".into(),
        engine: None,
        target: None,
        pool: None,
        object: String::new(),
        what: format!("somebody's token is {token}, from http://me:hunter2@host/"),
    };
    let kept = system.dir().join("engine0/events.log");
    let mut kept = fs::File::options().append(true).open(kept).unwrap();
    kept.write_all(engine::event_log::line(&secret).as_bytes()).unwrap();
    let folder = system.path("folder");
    fs::create_dir(&folder).unwrap();
    let link = system.path("dmg");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_azekura"), &link).unwrap();
    let mut dmg = Command::new(&link);
    dmg.env("AZEKURA_SYSTEM", system.dir()).args(["support", "collect-log", "--target-folder"]);
    let output = dmg.arg(&folder).output().unwrap();
    assert!(output.status.success(), "{}", all_text(&output));
    let archive = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let dir = system.path("stopped");
    if unpack(&archive, &dir) {
        let dir = dir.join("azekura-support");
        assert!(dir.join("logs/engine0.log").exists());
        let events = fs::read_to_string(dir.join("events/engine0.json")).unwrap();
        assert!(events.contains("\"engine-stopping\""), "{events}");
        assert!(events.contains("token is ***, from http://***@host/"), "{events}");
        let status = fs::read_to_string(dir.join("state/status.json")).unwrap();
        assert!(status.contains("\"stopped\""), "{status}");
        let contents = fs::read_to_string(dir.join("contents.txt")).unwrap();
        let (_, missing) = contents.split_once("Missing:").unwrap();
        assert!(!missing.contains(&token), "{missing}");
    }
    let mut alone = azekura();
    alone.args(["support", "collect", "--config", "/nonexistent.toml", "--out"]);
    let output =
        alone.arg(system.path("alone.tar")).env("HOME", system.scratch.path()).output().unwrap();
    assert!(output.status.success(), "{}", all_text(&output));
    assert!(all_text(&output).contains("/nonexistent.toml"), "{}", all_text(&output));
}
