//! Simulated clusters, a module for each thing they do. One program: the engine and the client would be compiled
//! into each of many, for minutes.

mod admission;
mod appends;
mod cached;
mod cell_moves;
mod checksums;
mod coded;
mod control_plane;
mod day;
mod failover;
mod faults;
mod full_spares;
mod give_way;
mod growing;
mod handles;
mod healing;
mod introductions;
mod late;
mod locks;
mod lost_pages;
mod members;
mod mending;
mod mutated;
mod names;
mod objects;
mod oldest_first;
mod patience;
mod progressive;
mod rebuild;
mod replicas;
mod room;
mod slow_devices;
mod snapshots;
mod stores;
mod tiers;
mod unsettled;
