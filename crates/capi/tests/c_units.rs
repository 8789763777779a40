//! What needs no system, as C and C++ programs see it, also with sanitizers: gurt, property lists,
//! access control lists, object classes.

mod harness;

#[test]
fn memory_tables_ranks_environment_errors_log() {
    harness::run_alone("gurt");
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
