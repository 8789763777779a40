//! C programs that make each call and check what they get.

use crate::harness::{Place, job, run_c};

#[test]
fn files_are_read_written_and_examined_by_every_form_of_a_call() {
    run_c("files");
}

#[test]
fn directories_are_listed_by_every_form_of_a_call() {
    run_c("directories");
}

#[test]
fn layouts_are_told_and_set_as_attributes() {
    run_c("layouts");
}

#[test]
fn names_are_made_moved_and_removed() {
    run_c("names");
}

#[test]
fn streams_work_on_files() {
    run_c("streams");
}

#[test]
fn descriptors_are_the_kernels() {
    run_c("descriptors");
}

#[test]
fn sixteen_threads_and_signals() {
    run_c("threads");
}

#[test]
fn a_program_belongs_to_the_job_of_its_environment() {
    let place = Place::new("job");
    let script = "head -c 100000 /dev/zero > $D/file; cat $D/file > $T/back";
    let mut command = place.command("bash");
    place.run(command.args(["-e", "-u", "-c", script]).env("AZEKURA_JOB", "preloaded"));
    let [operations, received, sent] = job("preloaded");
    assert!(operations > 2, "{operations}");
    assert!(received >= 100_000 && sent >= 100_000, "{received} {sent}");
}
