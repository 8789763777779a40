//! Programs in C and C++, the headers that they include, and what they find in them, a module for each part of the interface. One program:
//! whole engines run in it, and would be compiled into each of a dozen. `round_trips` changes the environment of its process, and `install`
//! starts what it has written: they have programs of their own.

mod api_list;
mod copies;
mod events;
mod files;
mod handover;
#[path = "../harness/mod.rs"]
mod harness;
mod headers;
mod hostile;
mod layout;
mod rebuild;
mod store;
mod traps;
mod units;
