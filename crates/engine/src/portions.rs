//! How much goes into one message between targets: sizes that only speed needs. Nothing may depend on them, so simulated clusters make
//! them small and come to their ends.

/// How much goes into one message between targets. No part of the configuration file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portions {
    /// Orders of a leader to one member, at most; at least 1.
    pub orders: usize,
    /// Bytes of these; one order is sent whatever its size.
    pub order_bytes: usize,
    /// Units, keys or answers that are listed when targets compare what they have; at least 1.
    pub listed: u32,
    /// Dkeys of a unit whose data are sent to who lacks them, at most; at least 1.
    pub mended: usize,
    /// Fewer where these would have more bytes, by those that have come: beside clients a leader sends little at a time, and is to answer before nobody waits for it.
    pub mended_bytes: u64,
}

impl Default for Portions {
    fn default() -> Portions {
        Portions {
            orders: 256,
            order_bytes: 8 << 20,
            listed: 1024,
            mended: 8,
            mended_bytes: 1 << 20,
        }
    }
}
