//! A shard against a naive model: random operations, reopening, crashes at every change of the
//! disk, full devices, transactions.

mod aggregate;
mod completing;
mod crash;
mod erase;
mod faults;
mod flips;
mod fold;
mod footprint;
mod full;
mod histories;
mod images;
mod kinds;
mod likeness;
mod listing;
mod loans;
mod log;
mod lost;
mod memory;
mod model;
mod offline;
mod pages;
mod places;
mod random;
mod raw;
mod space;
mod sums;
mod sweeps;
mod tiers;
mod tx;
mod units;
mod versions;
mod writes;
