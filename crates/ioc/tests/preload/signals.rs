//! Handlers that write.

use crate::harness::{BYTES, Coordinator, data, run_c};
use std::sync::OnceLock;

/// Grants the first request only when the program's signal handler has written its file.
fn granting_after_the_handler() -> Coordinator {
    let place = std::sync::Arc::new(OnceLock::<std::path::PathBuf>::new());
    let known = std::sync::Arc::clone(&place);
    let coordinator = Coordinator::judging(1, move |number| {
        if number == 0 {
            std::fs::write(known.wait().join("asked"), "").unwrap();
            while !known.wait().join("handled").exists() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        true
    });
    place.set(coordinator.dir().to_path_buf()).unwrap();
    coordinator
}

#[test]
fn a_handler_goes_by_while_its_thread_waits() {
    for mode in ["waiting", "waiting-on-stack"] {
        let coordinator = granting_after_the_handler();
        run_c(&coordinator, "signals", mode);
        for name in ["main", "main2", "handled"] {
            assert!(coordinator.file(name) == data(BYTES), "{mode}: {name} has other bytes");
        }
        assert_eq!(coordinator.writes().len(), 2, "{mode}: the handler's call did not ask");
        coordinator.wait_until("completions", |seen| seen.done.len() == 2);
    }
}

#[test]
fn a_call_that_a_handler_leaves_for_good_gives_its_place_back() {
    let place = std::sync::Arc::new(OnceLock::<std::path::PathBuf>::new());
    let known = std::sync::Arc::clone(&place);
    let coordinator = Coordinator::judging(1, move |number| {
        if number == 0 {
            std::fs::write(known.wait().join("asked"), "").unwrap();
        }
        number != 0
    });
    place.set(coordinator.dir().to_path_buf()).unwrap();
    run_c(&coordinator, "signals", "jumping");
    assert!(coordinator.file("main") == data(BYTES) && coordinator.file("main2") == data(BYTES));
    assert_eq!(coordinator.file("left"), b"");
    assert_eq!(coordinator.writes().len(), 3);
    coordinator.wait_until("completions", |seen| seen.done.len() == 2);
}

/// The program's `malloc` ends it when it is called within itself.
#[test]
fn a_handler_that_interrupted_the_allocator_is_coordinated() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "signals", "in-allocator");
    assert!(coordinator.file("main") == data(BYTES) && coordinator.file("handled") == data(BYTES));
    assert_eq!(coordinator.writes(), [BYTES as u64; 2]);
}

#[test]
fn a_small_stack_for_handlers_is_enough() {
    let coordinator = Coordinator::granting(1);
    run_c(&coordinator, "signals", "on-small-stack");
    assert!(coordinator.file("handled") == data(BYTES));
    assert_eq!(coordinator.writes(), [BYTES as u64]);
}
