//! Admission control: which waiting request goes next, and how many may be at work at a time.
//!
//! Pure: what has happened goes in as calls, with the time where it matters, and decisions come
//! out. Nothing here reads a clock, waits, or knows what a request is.
//!
//! - [`FairQueue`]: jobs share by weight, whatever the size and number of their requests.
//! - [`LimitFinder`]: the limit at which most bytes are moved, found by trying.

mod finder;
mod queue;

pub use finder::LimitFinder;
pub use queue::{FairQueue, Ticket, cost};
