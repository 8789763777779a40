//! What the settings do in a running program.

use crate::harness::{BYTES, Coordinator, c_command, run};

#[test]
fn introductions_and_targets_follow_the_environment() {
    let coordinator = Coordinator::granting(1);
    std::fs::write(coordinator.dir().join("token"), "secret\nnot this\n").unwrap();
    let mut command = c_command(&coordinator, "calls", "large");
    command
        .env("AZEKURA_IOC_GROUP", "z3")
        .env("AZEKURA_IOC_JOB", "nightly")
        .env("AZEKURA_IOC_WEIGHT", "5")
        .env("AZEKURA_IOC_PRIORITY", "2")
        .env("AZEKURA_IOC_TOKEN_FILE", coordinator.dir().join("token"))
        .env("PMI_RANK", "12")
        .env("AZEKURA_IOC_TARGET", "name:slow disk");
    run(command);
    let seen = coordinator.seen();
    assert_eq!(seen.hellos, [format!("z3 nightly Some(12) 5 2 {:?}", b"secret")]);
    assert!(seen.asked.iter().all(|one| one.targets == ["slow%20disk"]));
}

#[test]
fn a_file_with_rules() {
    let coordinator = Coordinator::granting(1);
    let dir = coordinator.dir().canonicalize().unwrap();
    let config = format!(
        "coordinator = \"unix:{}\"\nmin_size = \"64KiB\"\n\
         [[rule]]\npath = \"{dir}/pwrite*\"\ntarget = \"none\"\n\
         [[rule]]\npath = \"**/*range\"\ntarget = \"hash:1:disk\"\n\
         [[rule]]\ntarget = \"mount\"\n",
        coordinator.socket().display(),
        dir = dir.display(),
    );
    std::fs::write(coordinator.dir().join("ioc.toml"), config).unwrap();
    let mut command = c_command(&coordinator, "calls", "large");
    command.env_remove("AZEKURA_IOC").env_remove("AZEKURA_IOC_MIN_SIZE");
    command.env("AZEKURA_IOC_CONFIG", coordinator.dir().join("ioc.toml"));
    run(command);
    let seen = coordinator.seen();
    let targets: Vec<&str> = seen.asked.iter().map(|one| one.targets[0].as_str()).collect();
    // Of the ten calls six are on files whose names begin with "pwrite".
    assert_eq!(targets.len(), 4, "{targets:?}");
    assert_eq!(targets.iter().filter(|target| **target == "disk:0").count(), 1, "{targets:?}");
    let mount = targets[0].strip_prefix("mount:").expect("the mount point");
    assert!(dir.starts_with(mount), "{mount}");
}

#[test]
fn switched_off_and_mistaken() {
    let coordinator = Coordinator::granting(1);
    let mut command = c_command(&coordinator, "calls", "large");
    command.env("AZEKURA_IOC", "off");
    assert_eq!(run(command).stderr, b"");
    let mut command = c_command(&coordinator, "calls", "large");
    command.env("AZEKURA_IOC_MIN_SIZE", "much");
    let told = String::from_utf8(run(command).stderr).unwrap();
    assert!(told.contains("'much' is not a size"), "{told}");
    assert_eq!(told.lines().count(), 1);
    assert_eq!(coordinator.seen().hellos.len(), 0);
}

#[test]
fn the_log_has_calls_and_a_summary() {
    let coordinator = Coordinator::granting(1);
    let mut command = c_command(&coordinator, "calls", "large");
    command.env("AZEKURA_IOC_LOG", coordinator.dir().join("log"));
    command.env("AZEKURA_IOC_LOG_CALLS", "1").env("AZEKURA_IOC_SUMMARY", "1");
    assert_eq!(run(command).stderr, b"");
    let log = String::from_utf8(coordinator.file("log")).unwrap();
    let calls = log.lines().filter(|line| line.contains("\"event\":\"call\",")).count();
    assert_eq!(calls, 10, "{log}");
    let summary = log.lines().last().unwrap();
    assert!(summary.contains("\"writes\":10,"), "{summary}");
    assert!(summary.contains(&format!("\"write_bytes\":{},", 10 * BYTES)), "{summary}");

    let mut command = c_command(&coordinator, "calls", "large");
    command.env("AZEKURA_IOC_SUMMARY", "1");
    let told = String::from_utf8(run(command).stderr).unwrap();
    assert!(told.contains("\"event\":\"summary\"") && told.lines().count() == 1, "{told}");
}
