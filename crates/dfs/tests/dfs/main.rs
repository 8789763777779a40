//! File systems in containers, a module for each thing they do. One program: what is below would be compiled into
//! each of many, for minutes.

mod against_model;
mod by_object;
mod concurrent;
mod data_beside_inode;
mod directory_times;
mod even;
#[path = "../harness/mod.rs"]
mod harness;
mod layouts;
mod migrate;
mod posix_rules;
mod progressive;
mod shared_use;
mod spreading;
mod tree_tools;
