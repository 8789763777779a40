//! Engines, networks and etcds that are killed, stopped and come back, a module for each thing that must go on meanwhile. One program, as
//! `commands` is; most of it waits.

mod coded;
mod copies;
mod damage;
mod drain;
mod elected;
#[path = "../../../control/tests/control/etcd_server.rs"]
#[allow(dead_code, reason = "tests of the control service use the rest")]
mod etcd_server;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../harness/hosts.rs"]
mod hosts;
mod killed;
mod killed_names;
mod members;
mod moved_catalog;
mod namespaces;
mod own_etcd;
mod rebuild;
mod recover;
mod stops;
#[path = "../harness/trio.rs"]
mod trio;
mod without_catalog;
