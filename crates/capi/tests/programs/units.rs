//! What needs no system, as C and C++ programs see it, also with sanitizers: gurt, property lists,
//! access control lists, object classes.

use crate::harness;
#[test]
fn memory_tables_ranks_environment_errors_log() {
    harness::run_alone("gurt");
}

#[test]
fn heaps_handle_tables_and_descriptors() {
    harness::run_alone("structures");
}

#[test]
fn property_lists() {
    harness::run_alone("prop");
}

#[test]
fn access_control_lists() {
    harness::run_alone("acl");
}

#[test]
fn object_classes() {
    harness::run_alone("oclass");
}

/// The number alone was all that a user of IOR saw: "95: dfs_open() Failed".
#[test]
fn errors_say_why_once() {
    let dir = tempfile::tempdir().unwrap();
    let program = harness::compile("complaints", harness::Language::C, dir.path());
    let said = |mask: Option<&str>| {
        let mut command = std::process::Command::new(&program);
        for name in ["AZEKURA_SYSTEM", "AZEKURA_LOG", "D_LOG_MASK", "D_LOG_FILE"] {
            command.env_remove(name);
        }
        command.envs(mask.map(|mask| ("D_LOG_MASK", mask)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", harness::text(&output));
        String::from_utf8(output.stderr).unwrap()
    };
    let text = said(None);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert_eq!(text.matches("the handle was never given out").count(), 3, "{text}");
    assert_eq!(text.matches("the name is empty").count(), 1, "{text}");
    assert_eq!(said(Some("CRIT")), "");
}
