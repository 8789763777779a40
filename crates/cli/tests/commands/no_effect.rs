//! Orders that change nothing say so, and what a command has said it has done is done.

use crate::harness::System;

/// A pool had excluded an engine's targets; its health named 'system clear-exclude', which answered that the engine is not excluded any more,
/// and changed nothing. 'drain --undo' of an engine that was not drained said that it will serve again.
#[test]
fn what_takes_nothing_back_says_so_and_health_names_what_does() {
    let system = System::up(3, 1);
    system.ok(&["pool", "create", "tank", "--size", "256MiB"]);
    system.ok(&["cont", "create", "tank", "home", "--rd-fac", "1"]);
    // Else others are there for it after a moment.
    system.ok(&["pool", "rebuild", "stop", "tank"]);
    let told = system.ok(&["system", "clear-exclude", "1"]);
    assert_eq!(told, "Engine 1 was not excluded; nothing is changed.\n");
    let told = system.ok(&["system", "drain", "1", "--undo"]);
    assert_eq!(told, "Engine 1 is not being emptied; nothing is changed.\n");

    let told = system.ok(&["pool", "reintegrate", "tank", "--rank", "1"]);
    assert_eq!(told, "Pool 'tank' is served by target 1 already; nothing is changed.\n");

    system.ok(&["pool", "exclude", "tank", "--rank", "1"]);
    let health = || system.json_of(&["pool", "health", "tank"])[0]["summary"].to_string();
    let told = health();
    assert!(told.contains("excluded in this pool"), "{told}");
    // It was said that all members are in their places.
    let moves = system.ok(&["pool", "rebuild", "status", "tank"]);
    assert!(moves.contains("target 1 is away: nobody comes to stand in until"), "{moves}");
    let moves = system.json(&["pool", "rebuild", "status", "tank"]);
    assert_eq!((&moves["away"][0]["target"], &moves["state"]), (&1.into(), &"idle".into()));
    assert!(told.contains("'azekura pool reintegrate tank --target 1'"), "{told}");
    let told = system.ok(&["system", "clear-exclude", "1"]);
    assert!(told.starts_with("Engine 1 was not excluded; nothing is changed.\n"), "{told}");
    assert!(told.contains("'azekura pool reintegrate tank --rank 1'"), "{told}");
    let told = system.ok(&["pool", "reintegrate", "tank", "--target", "1"]);
    assert!(told.contains("by target 1 again when it has what it missed"), "{told}");
    assert!(!health().contains("excluded"), "{}", health());

    system.ok(&["system", "exclude", "1"]);
    assert!(health().contains("'azekura system clear-exclude 1'"), "{}", health());
    let told = system.ok(&["system", "clear-exclude", "1"]);
    assert_eq!(told, "Engine 1 is not excluded any more.\n");
    system.fails(3, &["no engine 9"], &["system", "clear-exclude", "9"]);
    system.fails(3, &["no engine 9"], &["system", "drain", "9", "--undo"]);
}
