//! Reed-Solomon codes: parity cells over data cells of equal length, and any of both from enough others.
//!
//! A code of k data and p parity cells restores what is lost as long as any k of the k+p are there. It is
//! systematic: data cells are the data. The field is GF(2^8) with the polynomial 0x11d, the matrix that of ISA-L's
//! `gf_gen_rs_matrix`: parity cell 0 is the XOR of the data, cell 1 the Q of RAID 6 (`matrix.rs` has the proof that
//! up to three parity cells are always enough). What is computed is the same on every machine, and bytes are stored
//! as they are computed, so neither field nor matrix may ever change.
//!
//! Pure functions over memory, apart from one look, when first used, at what the processor can and whether
//! the machine has ISA-L. Knows nothing of objects, stripes or checksums: a cell that is wrong
//! makes what is restored from it wrong.

mod factors;
mod field;
mod kernel;
mod matrix;

pub use kernel::{Kernel, UnknownKernel};

use factors::Factors;

/// Data cells of a code, at most; four times what the widest object class has.
pub const DATA_MAX: u8 = 64;
/// Parity cells of a code, at most: with four the matrix would have combinations of losses that cannot be restored.
pub const PARITY_MAX: u8 = 3;

/// A code of a number of data and of parity cells. Cells are counted data first: 0 to k-1 are data, k to
/// k+p-1 parity.
pub struct Code {
    data: usize,
    parity: usize,
    kernel: Kernel,
    parity_factors: Factors,
}

impl Code {
    /// A code of 1 to [`DATA_MAX`] data and 1 to [`PARITY_MAX`] parity cells, computed by
    /// [`Kernel::best`]. It can be kept and shared; making one takes microseconds.
    pub fn new(data: u8, parity: u8) -> Result<Code, NoSuchCode> {
        Code::with_kernel(data, parity, Kernel::best())
    }

    /// The same code, computed by a kernel of choice, which the machine has to have ([`Kernel::is_available`]).
    pub fn with_kernel(data: u8, parity: u8, kernel: Kernel) -> Result<Code, NoSuchCode> {
        if !(1..=DATA_MAX).contains(&data) || !(1..=PARITY_MAX).contains(&parity) {
            return Err(NoSuchCode { data, parity });
        }
        let (data, parity) = (usize::from(data), usize::from(parity));
        let row = |row| (0..data).map(|column| matrix::parity_factor(row, column)).collect();
        let rows: Vec<Vec<u8>> = (0..parity).map(row).collect();
        Ok(Code { data, parity, kernel, parity_factors: Factors::of(&rows) })
    }

    /// Number of data cells.
    pub fn data_cells(&self) -> usize {
        self.data
    }

    /// Number of parity cells.
    pub fn parity_cells(&self) -> usize {
        self.parity
    }

    /// Computes all parity cells. Panics unless `data` are k cells and `parity` p, all of one length.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        self.kernel.combine(&self.parity_factors, data, parity);
    }

    /// Computes the cells `want` from those in `have`, both with their numbers; what is wanted may be there, too. Of
    /// more than k cells the data cells are used, then the first parity cells. Fails, with nothing written, when
    /// fewer than k different cells are there. Panics when a number is not of this code, or lengths differ.
    pub fn restore(
        &self,
        have: &[(usize, &[u8])],
        want: &mut [(usize, &mut [u8])],
    ) -> Result<(), TooFew> {
        let all = self.data + self.parity;
        let mut cells: Vec<Option<&[u8]>> = vec![None; all];
        have.iter().for_each(|&(number, cell)| cells[number] = Some(cell));
        let there: Vec<bool> = cells.iter().map(Option::is_some).collect();
        assert!(want.iter().all(|(number, _)| *number < all), "a cell that the code has not");

        // What is there needs no arithmetic; what is not is at most p cells, and again when asked for again.
        let numbers: Vec<usize> = want.iter().map(|(number, _)| *number).collect();
        let missing: Vec<usize> = numbers.iter().copied().filter(|&cell| !there[cell]).collect();
        let too_few = || TooFew { have: there.iter().filter(|&&is| is).count(), need: self.data };
        let recipe = matrix::recipe(self.data, &there, &missing).ok_or_else(too_few)?;
        let mut outputs = Vec::with_capacity(missing.len());
        for (number, output) in want.iter_mut() {
            match cells[*number] {
                Some(cell) => output.copy_from_slice(cell),
                None => outputs.push(&mut **output),
            }
        }
        let sources: Vec<&[u8]> = recipe.sources.iter().filter_map(|&cell| cells[cell]).collect();
        let rows = recipe.rows.chunks(usize::from(PARITY_MAX));
        for (rows, outputs) in rows.zip(outputs.chunks_mut(usize::from(PARITY_MAX))) {
            self.kernel.combine(&Factors::of(rows), &sources, outputs);
        }
        Ok(())
    }
}

/// A number of cells for which there is no code.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no code of {data} data and {parity} parity cells: 1 to {DATA_MAX} and 1 to {PARITY_MAX}")]
pub struct NoSuchCode {
    pub data: u8,
    pub parity: u8,
}

/// Fewer cells than a code needs to restore others.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{have} cells are there, {need} are needed to restore others")]
pub struct TooFew {
    /// Different cells that were given.
    pub have: usize,
    /// Data cells of the code.
    pub need: usize,
}
