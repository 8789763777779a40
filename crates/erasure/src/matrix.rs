//! Which combination of the cells at hand each missing cell is.
//!
//! The generator matrix is that of ISA-L's `gf_gen_rs_matrix`: the identity for the data cells, then
//! one row per parity cell, row r of powers of 2^r: 1, 2^r, 4^r, … Row 0 is all ones, the XOR of the data; row 1
//! is the Q of RAID 6.
//!
//! Invariant: every square part of at most three parity rows can be inverted, so any k of the cells
//! give all others. One row has no zero. Two rows r < s at columns i and j have the determinant
//! 2^(ri+sj) + 2^(rj+si), which is 0 only where (s-r)(i-j) is a multiple of 255; that is impossible for
//! s-r ≤ 2 and columns below 255. Three rows are a Vandermonde matrix of different elements. With four
//! rows it would no longer hold, which is why [`crate::PARITY_MAX`] is 3.

use crate::field::{inverse, power_of_two, product};

/// The factor of data cell `column` in parity cell `row`.
pub fn parity_factor(row: usize, column: usize) -> u8 {
    power_of_two(row * column)
}

/// Cells to compute from, and the factors that each wanted cell has them with.
pub struct Recipe {
    /// Numbers of the cells, as many as there are data cells.
    pub sources: Vec<usize>,
    /// For each wanted cell the factor of each source.
    pub rows: Vec<Vec<u8>>,
}

/// How each of `wanted` follows from the cells that `have` says are there; `data` is how many data cells the
/// code has. Data cells are used before parity cells, and those in their order, so that one lost data
/// cell is an XOR where the first parity cell is there. `None` when too few are there.
pub fn recipe(data: usize, have: &[bool], wanted: &[usize]) -> Option<Recipe> {
    let lost: Vec<usize> = (0..data).filter(|&cell| !have[cell]).collect();
    let parity: Vec<usize> =
        (0..have.len() - data).filter(|&row| have[data + row]).take(lost.len()).collect();
    if parity.len() < lost.len() {
        return None;
    }
    let kept: Vec<usize> = (0..data).filter(|&cell| have[cell]).collect();
    // parity = part * lost + rest * kept, so lost = part⁻¹ * (parity + rest * kept).
    let part = parity
        .iter()
        .map(|&row| lost.iter().map(|&cell| parity_factor(row, cell)).collect())
        .collect();
    let inverted = inverted(part).expect("every square part of the parity rows can be inverted");
    let lost_rows: Vec<Vec<u8>> = inverted
        .iter()
        .map(|weights| {
            let of_kept = kept.iter().map(|&cell| {
                let terms = parity.iter().zip(weights);
                terms.fold(0, |sum, (&row, &w)| sum ^ product(w, parity_factor(row, cell)))
            });
            of_kept.chain(weights.iter().copied()).collect()
        })
        .collect();
    let sources: Vec<usize> =
        kept.iter().copied().chain(parity.iter().map(|row| data + row)).collect();
    let data_row = |cell: usize| match lost.iter().position(|&l| l == cell) {
        Some(at) => lost_rows[at].clone(),
        None => sources.iter().map(|&source| u8::from(source == cell)).collect(),
    };
    let row_of = |&cell: &usize| {
        if cell < data {
            return data_row(cell);
        }
        let mut sum = vec![0; sources.len()];
        for column in 0..data {
            let factor = parity_factor(cell - data, column);
            for (sum, term) in sum.iter_mut().zip(data_row(column)) {
                *sum ^= product(factor, term);
            }
        }
        sum
    };
    let rows = wanted.iter().map(row_of).collect();
    Some(Recipe { sources, rows })
}

/// The inverse of a square matrix by Gauss and Jordan; `None` where it has none.
fn inverted(mut matrix: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let order = matrix.len();
    for (at, row) in matrix.iter_mut().enumerate() {
        row.extend((0..order).map(|column| u8::from(column == at)));
    }
    for column in 0..order {
        let pivot = (column..order).find(|&row| matrix[row][column] != 0)?;
        matrix.swap(column, pivot);
        let scale = inverse(matrix[column][column]);
        matrix[column].iter_mut().for_each(|value| *value = product(*value, scale));
        let pivot = matrix[column].clone();
        for (at, row) in matrix.iter_mut().enumerate() {
            let factor = row[column];
            if at != column && factor != 0 {
                row.iter_mut().zip(&pivot).for_each(|(value, p)| *value ^= product(factor, *p));
            }
        }
    }
    Some(matrix.into_iter().map(|row| row[order..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DATA_MAX, PARITY_MAX};

    /// The whole generator matrix: identity, then parity rows.
    fn generator(data: usize, parity: usize) -> Vec<Vec<u8>> {
        let identity = (0..data).map(|row| (0..data).map(|c| u8::from(c == row)).collect());
        let below = (0..parity).map(|row| (0..data).map(|c| parity_factor(row, c)).collect());
        identity.chain(below).collect()
    }

    /// All ways to choose `count` of `0..of`.
    fn subsets(of: usize, count: usize) -> Vec<Vec<usize>> {
        if count == 0 {
            return vec![vec![]];
        }
        (count - 1..of)
            .flat_map(|last| {
                subsets(last, count - 1).into_iter().map(move |mut set| {
                    set.push(last);
                    set
                })
            })
            .collect()
    }

    #[test]
    fn every_k_rows_of_the_generator_can_be_inverted() {
        let mut checked = 0;
        for (data, parity) in [2, 4, 8, 16].into_iter().flat_map(|k| (1..=3).map(move |p| (k, p))) {
            let rows = generator(data, parity);
            for chosen in subsets(data + parity, data) {
                let part: Vec<Vec<u8>> = chosen.iter().map(|&row| rows[row].clone()).collect();
                assert!(inverted(part).is_some(), "{data}+{parity}: rows {chosen:?}");
                checked += 1;
            }
        }
        // (k+p choose k), summed over the twelve codes.
        assert_eq!(checked, 3 + 6 + 10 + 5 + 15 + 35 + 9 + 45 + 165 + 17 + 153 + 969);
    }

    #[test]
    fn every_square_part_of_three_rows_can_be_inverted_in_the_widest_code() {
        for order in 1..=3 {
            for rows in subsets(PARITY_MAX.into(), order) {
                for columns in subsets(DATA_MAX.into(), order) {
                    let part = rows
                        .iter()
                        .map(|&row| columns.iter().map(|&c| parity_factor(row, c)).collect())
                        .collect();
                    assert!(inverted(part).is_some(), "rows {rows:?} of columns {columns:?}");
                }
            }
        }
    }

    #[test]
    fn four_rows_have_parts_without_inverse() {
        // What the limit of three is for, and that the test above can fail.
        let found = (1..4).any(|order| {
            subsets(4, order).iter().any(|rows| {
                subsets(60, order).iter().any(|columns| {
                    let part = rows
                        .iter()
                        .map(|&row| columns.iter().map(|&c| parity_factor(row, c)).collect())
                        .collect();
                    inverted(part).is_none()
                })
            })
        });
        assert!(found);
    }

    #[test]
    fn one_lost_data_cell_is_an_xor_where_the_first_parity_cell_is_there() {
        let mut have = [true; 10];
        have[3] = false;
        let recipe = recipe(8, &have, &[3]).unwrap();
        assert_eq!(recipe.sources, [0, 1, 2, 4, 5, 6, 7, 8]);
        assert_eq!(recipe.rows, [[1; 8]]);
    }

    #[test]
    fn too_few_cells_have_no_recipe() {
        assert!(recipe(2, &[false, false, true], &[0]).is_none());
        assert!(recipe(2, &[true, false, false, false], &[1]).is_none());
    }
}
