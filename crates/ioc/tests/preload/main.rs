//! Programs with the library loaded: their data is right whatever happens, and their large calls
//! are coordinated. What is compared: files with what the programs should have written, and the
//! coordinator's book with the calls they made.

mod calls;
mod coordinator;
mod harness;
mod processes;
mod real;
mod settings;
mod signals;
mod tools;
