//! Object classes with copies as C programs choose and see them, and their objects while an engine is away.

use crate::harness::{Language, System, check, compile};
use types::Durability;

#[test]
fn classes_and_factors() {
    System::start_of(3, 1, Durability::Memory).run("copies", &["classes"]);
}

#[test]
fn objects_outlive_an_engine() {
    let mut system = System::start_of(3, 1, Durability::Memory);
    let program = compile("copies", Language::C, system.scratch.path());
    let run = |system: &System, role: &str| {
        let mut command = system.command(&program);
        command.args(["tank", "away", role]);
        check(role, Language::C, command.output().unwrap());
    };
    run(&system, "make");
    // The first one holds the catalog.
    system.engines().stop_engine(2).unwrap();
    run(&system, "look");
}
