//! The `azekura` binary.
fn main() {}
