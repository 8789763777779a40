//! A whole cluster from one seed: its shape and settings, trouble, clients that note what they are
//! told; then a time of peace in which everybody must come to an end, and a judgement.
//!
//! What is demanded: no client is told what one copy of the data could not have told
//! ([`linearizable`](crate::linearizable), by key), transactions are
//! [`serializable`](crate::serializable), nothing is lost that the pool's durability promises to
//! keep, no byte is wrong, once the trouble is over everybody finishes, and the stores on the disks
//! are whole by their own check. Where arrays have an erasure code, blocks of them are keys like others, and parity fits the data in the end; where there
//! are names, one tree explains what all clients are told of them.

mod classes;
mod clients;
mod contents;
mod faults;
mod files;
mod losses;
mod names;
mod run;
mod settings;
mod shares;
mod snapshots;
mod wishes;

pub use clients::Place;
pub use files::Files;
pub use names::{NameAnswer, NameCall, Spot};
pub use run::{Report, run};
pub use settings::{FAULTS, FURTHER_FAULTS, Fault, Settings};
