//! Experiments of the coordination paper.
pub mod device;
