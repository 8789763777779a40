//! Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), of which 2 is a generator.
//!
//! Addition is XOR. Products go through logarithms, in tables made at compile time; nothing here is
//! for bulk data.

/// The polynomial without its highest term.
const POLYNOMIAL: u8 = 0x1d;
/// Powers of 2, twice over, so that a sum of two logarithms needs no remainder.
const POWERS: [u8; 510] = powers();
/// `POWERS[LOGARITHMS[x]] == x`; of 0, which has none, 0.
const LOGARITHMS: [u8; 256] = logarithms();

const fn powers() -> [u8; 510] {
    let mut powers = [0; 510];
    let (mut at, mut power) = (0, 1);
    while at < powers.len() {
        powers[at] = power;
        power = (power << 1) ^ if power & 0x80 != 0 { POLYNOMIAL } else { 0 };
        at += 1;
    }
    powers
}

const fn logarithms() -> [u8; 256] {
    let mut logarithms = [0; 256];
    let mut at = 0;
    while at < 255 {
        logarithms[POWERS[at] as usize] = at as u8;
        at += 1;
    }
    logarithms
}

/// The product of `a` and `b`.
pub fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[usize::from(LOGARITHMS[usize::from(a)]) + usize::from(LOGARITHMS[usize::from(b)])]
}

/// What `a`, which is not 0, gives 1 with.
pub fn inverse(a: u8) -> u8 {
    debug_assert_ne!(a, 0, "0 has no inverse");
    POWERS[255 - usize::from(LOGARITHMS[usize::from(a)])]
}

/// 2 to the power of `exponent`.
pub fn power_of_two(exponent: usize) -> u8 {
    POWERS[exponent % 255]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shift and add, as on paper.
    fn slow_product(a: u8, b: u8) -> u8 {
        (0..8).rev().fold(0, |sum: u8, bit| {
            let doubled = (sum << 1) ^ if sum & 0x80 != 0 { POLYNOMIAL } else { 0 };
            doubled ^ if b >> bit & 1 == 1 { a } else { 0 }
        })
    }

    #[test]
    fn products_are_those_of_shift_and_add() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(product(a, b), slow_product(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn what_has_an_inverse_gives_one_with_it() {
        for a in 1..=255 {
            assert_eq!(product(a, inverse(a)), 1, "{a}");
        }
    }

    #[test]
    fn powers_of_two_run_through_all_but_zero() {
        let mut all: Vec<u8> = (0..255).map(power_of_two).collect();
        assert_eq!((all[0], all[1], power_of_two(255), power_of_two(256)), (1, 2, 1, 2));
        all.sort_unstable();
        assert_eq!(all, (1..=255).collect::<Vec<u8>>());
    }
}
