//! The I/O seam: executor, clock, randomness, disk; real and simulated.
