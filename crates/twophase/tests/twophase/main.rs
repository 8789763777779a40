//! The machines by themselves, and all histories of small worlds around them.

mod log;
mod member;
mod moves;
mod search;
mod steps;
mod world;
