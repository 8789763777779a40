//! Turns valid inputs into nearly valid ones.
//!
//! Mutations are the ones that break binary decoders: flipped bits, cut ends, pieces of other
//! messages, and numbers at the edges of their types where a length may stand.

use crate::rng::Rng;

/// Longest input made, bytes.
pub const INPUT_BYTES_MAX: usize = 4096;

/// Values at which arithmetic on lengths goes wrong.
const EDGES: [u64; 18] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x3fff,
    0x7fff,
    0x8000,
    0xffff,
    1 << 20,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// One input: a seed with one to four mutations, or now and then random bytes.
pub fn input(seeds: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    if seeds.is_empty() || rng.below(32) == 0 {
        let length = rng.below(96);
        return (0..length).map(|_| rng.next_u64() as u8).collect();
    }
    let mut bytes = rng.pick(seeds).clone();
    for _ in 0..1 + rng.below(4) {
        mutate(&mut bytes, seeds, rng);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.below(bytes.len());
    match rng.below(9) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
        1 if !bytes.is_empty() => bytes[at] = rng.next_u64() as u8,
        2 => bytes.truncate(at),
        3 => insert(bytes, at, &[rng.next_u64() as u8]),
        4 => {
            let end = at + rng.below(bytes.len() - at + 1).min(16);
            bytes.drain(at..end);
        }
        5 => {
            let other = rng.pick(seeds);
            let from = rng.below(other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        6 => {
            // A piece again and again: long lists of short elements.
            let end = (at + 1 + rng.below(8)).min(bytes.len());
            let piece = bytes[at..end].repeat(1 + rng.below(64));
            insert(bytes, at, &piece);
        }
        7 => {
            let edge = *rng.pick(&EDGES);
            let width = 1 << rng.below(4);
            overwrite(bytes, at, &edge.to_le_bytes()[..width]);
        }
        _ => {
            // A varint in the place of one byte: the serializer's lengths and tags.
            let varint = varint(*rng.pick(&EDGES));
            if at < bytes.len() {
                bytes.remove(at);
            }
            insert(bytes, at, &varint);
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

fn overwrite(bytes: &mut [u8], at: usize, piece: &[u8]) {
    for (to, from) in bytes[at..].iter_mut().zip(piece) {
        *to = *from;
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_bounded_varied_and_the_same_for_one_seed() {
        let seeds = vec![vec![1, 2, 3, 4, 5, 6, 7, 8], vec![9; 200], vec![]];
        let make = || {
            let mut rng = Rng::new(5);
            (0..2_000).map(|_| input(&seeds, &mut rng)).collect::<Vec<_>>()
        };
        let inputs = make();
        assert_eq!(inputs, make());
        assert!(inputs.iter().all(|bytes| bytes.len() <= INPUT_BYTES_MAX));
        let different: std::collections::BTreeSet<_> = inputs.iter().collect();
        // A third of the seeds is empty and gives few different inputs.
        assert!(different.len() > 1_200, "{}", different.len());
        assert!(inputs.iter().any(|bytes| bytes.len() > 300));
    }

    #[test]
    fn varints_are_those_of_the_serializer() {
        for value in EDGES {
            assert_eq!(varint(value), wire::encode(&value));
        }
    }
}
