//! Mounts of systems in this process, a module for each thing that they must do. One program: engines and a client would be compiled into
//! each of eight.

mod ahead;
mod calls;
mod coherence;
mod outages;
mod pjdfstest;
mod posix;
mod programs;
mod requests;
mod rules;
#[path = "../system/mod.rs"]
mod system;
