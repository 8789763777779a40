//! What commands do, a module for each kind of them, on systems of real processes. One program: apart, the same code would be compiled and
//! linked into each of two dozen. Tests run beside each other here: whoever changes what is the process's (environment, limits, the working
//! directory), or starts a program that it has written, has a program of its own, as `upgrade` and `hostile`.

mod bad_input;
mod bench;
mod bench_ioc;
mod chunks;
mod classes;
mod config;
mod erase;
mod experiments;
mod files;
mod front_door;
mod full_host;
#[path = "../harness/mod.rs"]
mod harness;
mod ioc;
mod lifecycle;
mod measured;
mod metrics;
mod mount;
mod no_effect;
mod pools_and_containers;
mod snapshots;
mod support;
mod top;
mod vos;
