//! Factors in the forms that kernels want them in.

use crate::field::product;

/// Multiplies bytes by a constant.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Factor {
    /// Products with 0x00, 0x01, … 0x0f, then with 0x00, 0x10, … 0xf0: the product of a byte is the sum
    /// of those of its halves. Byte shuffles look up 16 or more at once.
    pub nibbles: [u8; 32],
    /// The map of bits as the affine instruction of GFNI takes it: byte 7-i says which bits of the source
    /// are summed into bit i of the product.
    pub bits: u64,
    pub value: u8,
}

impl Factor {
    pub fn of(value: u8) -> Factor {
        let nibbles = std::array::from_fn(|at| {
            let byte = if at < 16 { at } else { (at - 16) << 4 };
            product(value, byte as u8)
        });
        let bits = (0..8).fold(0, |bits, from| {
            let column = product(value, 1 << from);
            (0..8)
                .fold(bits, |bits, to| bits | u64::from(column >> to & 1) << (8 * (7 - to) + from))
        });
        Factor { nibbles, bits, value }
    }

    /// The product with one byte.
    pub fn times(&self, byte: u8) -> u8 {
        self.nibbles[usize::from(byte & 15)] ^ self.nibbles[16 + usize::from(byte >> 4)]
    }
}

/// Rows of factors of equal length, one row per output and one factor per source.
pub struct Factors {
    /// Row after row.
    all: Vec<Factor>,
    columns: usize,
    /// What ISA-L makes of these rows, once it was asked for.
    isal_tables: std::sync::OnceLock<Vec<u8>>,
}

impl Factors {
    /// Takes rows of equal length, at least one factor each.
    pub fn of(rows: &[Vec<u8>]) -> Factors {
        let columns = rows.first().map_or(0, Vec::len);
        assert!(rows.iter().all(|row| row.len() == columns), "rows of unequal length");
        let all = rows.iter().flatten().map(|&value| Factor::of(value)).collect();
        Factors { all, columns, isal_tables: Default::default() }
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    pub fn rows(&self) -> usize {
        self.all.len() / self.columns.max(1)
    }

    /// The factors of row `row`.
    pub fn row(&self, row: usize) -> &[Factor] {
        &self.all[row * self.columns..][..self.columns]
    }

    /// True when row `row` is the plain XOR of all sources.
    pub fn is_xor(&self, row: usize) -> bool {
        self.row(row).iter().all(|factor| factor.value == 1)
    }

    /// The values row after row, as ISA-L wants them.
    pub fn values(&self) -> Vec<u8> {
        self.all.iter().map(|factor| factor.value).collect()
    }

    /// What ISA-L makes of the values by `make`, once.
    pub fn isal_tables(&self, make: impl FnOnce(&Factors) -> Vec<u8>) -> &[u8] {
        self.isal_tables.get_or_init(|| make(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nibbles_and_bits_give_the_product_of_every_pair() {
        for value in 0..=255 {
            let factor = Factor::of(value);
            for byte in 0..=255u8 {
                let by_bits = (0..8).fold(0, |sum, to| {
                    let picked = (factor.bits >> (8 * (7 - to))) as u8 & byte;
                    sum | (picked.count_ones() as u8 & 1) << to
                });
                assert_eq!(factor.times(byte), product(value, byte), "{value} * {byte}");
                assert_eq!(by_bits, product(value, byte), "{value} * {byte} by bits");
            }
        }
    }
}
