//! The one 64-bit hash used where a hash is part of a format: dkey order, group choice,
//! placement draws.
//!
//! Invariant: these functions never change; stored listings and placements depend on them.
//! SplitMix64 finaliser over 8-byte words (Steele, Lea, Flood, "Fast splittable
//! pseudorandom number generators", OOPSLA 2014).

/// Mixes one 64-bit word so that every input bit affects every output bit.
#[inline]
pub const fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hashes two words in order.
#[inline]
pub const fn mix2(a: u64, b: u64) -> u64 {
    mix(mix(a) ^ b)
}

/// Hashes a byte string; the length is part of the hash.
#[inline]
pub fn bytes(data: &[u8]) -> u64 {
    let mut state = mix(data.len() as u64);
    let mut words = data.chunks_exact(8);
    for word in &mut words {
        let mut raw = [0; 8];
        raw.copy_from_slice(word);
        state = mix(state ^ u64::from_le_bytes(raw));
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let mut raw = [0; 8];
        raw[..rest.len()].copy_from_slice(rest);
        state = mix(state ^ u64::from_le_bytes(raw));
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_values_are_frozen() {
        // Stored formats depend on these: a change here is a change of format.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(bytes(b""), mix(0));
        assert_eq!(bytes(b"a"), mix(mix(1) ^ 0x61));
        assert_ne!(bytes(b"a\0"), bytes(b"a"));
    }
}
