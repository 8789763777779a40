//! Programs with the library loaded, on a prefix without a mount, against a real engine: what they
//! get is what they would get from a file system of the kernel's.

mod calls;
mod harness;
mod limits;
mod locked;
mod mounts;
mod numbered;
mod posix;
mod processes;
mod restarts;
mod shells;
mod tools;
