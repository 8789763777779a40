//! Codes against golden bytes, against each other, and against losses; with every kernel that the machine has.

use erasure::{Code, Kernel, NoSuchCode, PARITY_MAX, TooFew};
use proptest::prelude::*;
use std::fmt::Write;

/// The numbers of data cells of the object classes.
const DATA_CELLS: [u8; 4] = [2, 4, 8, 16];
/// Lengths around those of vectors, of pairs of them, and of blocks.
const LENGTHS: [usize; 16] = [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 4095, 4096, 4097];

/// Every kernel that can be tested here. Those that cannot are named, since a machine without them proves nothing.
fn kernels() -> Vec<Kernel> {
    for kernel in [Kernel::Isal, Kernel::Gfni, Kernel::Avx2, Kernel::Ssse3] {
        if !kernel.is_available() {
            eprintln!("SKIPPED: kernel {kernel}: this machine lacks it (isal: package libisal2)");
        }
    }
    Kernel::available()
}

fn code(data: u8, parity: u8, kernel: Kernel) -> Code {
    Code::with_kernel(data, parity, kernel).unwrap()
}

/// Data cells and their parity cells.
fn encoded(code: &Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0xee; data[0].len()]; code.parity_cells()];
    let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    code.encode(&sources, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    [data, &parity].concat()
}

/// What `code` makes of the cells `want` from the cells `have`.
fn restored(code: &Code, cells: &[Vec<u8>], have: &[usize], want: &[usize]) -> Vec<Vec<u8>> {
    let have: Vec<(usize, &[u8])> = have.iter().map(|&at| (at, &cells[at][..])).collect();
    let mut out = vec![vec![0xee; cells[0].len()]; want.len()];
    let mut wanted: Vec<(usize, &mut [u8])> =
        want.iter().zip(&mut out).map(|(&at, cell)| (at, &mut cell[..])).collect();
    code.restore(&have, &mut wanted).unwrap();
    out
}

/// Bytes without a pattern that a wrong table could fit.
fn noise(cells: u8, length: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut state = seed | 1;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..cells).map(|_| (0..length).map(|_| byte()).collect()).collect()
}

#[test]
fn parity_is_what_isa_l_printed_once() {
    // By ISA-L 2.30 (gf_gen_rs_matrix, ec_encode_data) and by shift and add in Python, which agreed; byte i of data
    // cell c is 37c + 11i + 5i² + c²i. Stored bytes depend on it: it may never change.
    let golden = "\
        2 0 25267b38d96ad72c5ddef3d0d1d2cf34\n2 1 4a7c88a22b15b49e0fb45dda43c03176\n\
        2 2 94c8738bd2eb72e7ab601cce7ae4d0f2\n4 0 00f0ac440028147410000c34304864a4\n\
        4 1 202d54862ce765d745986fde39fb340c\n4 2 82fc751dd46f9263a16fcf2f09672807\n\
        8 0 f0f0b87860b0081810206838e00058f8\n8 1 2ffad6838d5e58c16e3061dc79cc341d\n\
        8 2 ffcd74babdb33c1a91fe71b1f4797381\n16 0 00e0505080e030b0008090f060e0d0f0\n\
        16 1 2744280134c13baf2c6c7b987e166012\n16 2 03357c36fad96827753ee9161882f365\n";
    let byte = |c: usize, i: usize| (37 * c + 11 * i + 5 * i * i + c * c * i) as u8;
    for kernel in kernels() {
        let mut printed = String::new();
        for k in DATA_CELLS {
            let data: Vec<Vec<u8>> =
                (0..k.into()).map(|c| (0..16).map(|i| byte(c, i)).collect()).collect();
            let cells = encoded(&code(k, 3, kernel), &data);
            for (row, cell) in cells[k.into()..].iter().enumerate() {
                let hex = cell.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
                writeln!(printed, "{k} {row} {hex}").unwrap();
            }
        }
        assert_eq!(printed, golden, "kernel {kernel}");
    }
}

#[test]
fn all_kernels_give_the_same_bytes_at_every_length() {
    for (seed, &length) in LENGTHS.iter().enumerate() {
        for (k, p) in DATA_CELLS.into_iter().flat_map(|k| (1..=PARITY_MAX).map(move |p| (k, p))) {
            let data = noise(k, length, 77 + seed as u64);
            let by_scalar = encoded(&code(k, p, Kernel::Scalar), &data);
            for kernel in kernels() {
                let cells = encoded(&code(k, p, kernel), &data);
                assert_eq!(cells, by_scalar, "{k}+{p}, {length} bytes, kernel {kernel}");
            }
        }
    }
}

#[test]
fn every_combination_of_losses_is_restored() {
    for kernel in kernels() {
        for (k, p) in DATA_CELLS.into_iter().flat_map(|k| (1..=PARITY_MAX).map(move |p| (k, p))) {
            let (code, all) = (code(k, p, kernel), usize::from(k + p));
            let cells = encoded(&code, &noise(k, 70, 5));
            for lost in 0u32..1 << all {
                if lost.count_ones() > p.into() {
                    continue;
                }
                let (want, have): (Vec<usize>, Vec<usize>) =
                    (0..all).partition(|cell| lost >> cell & 1 == 1);
                let got = restored(&code, &cells, &have, &want);
                for (cell, bytes) in want.iter().zip(got) {
                    assert_eq!(bytes, cells[*cell], "{k}+{p} {kernel}: {cell} of lost {want:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_there_may_be_wanted_and_anything_twice() {
    for kernel in kernels() {
        let code = code(4, 2, kernel);
        let cells = encoded(&code, &noise(4, 200, 9));
        let want = [5, 0, 1, 0, 2, 5, 4, 1];
        let got = restored(&code, &cells, &[2, 3, 4, 0], &want);
        for (cell, bytes) in want.iter().zip(got) {
            assert_eq!(bytes, cells[*cell], "{cell} by {kernel}");
        }
    }
}

#[test]
fn too_few_cells_are_an_error_and_nothing_is_written() {
    let code = Code::new(4, 2).unwrap();
    let cell = [7; 40];
    let mut out = [1; 40];
    // The same cell twice is one cell.
    let have: [(usize, &[u8]); 4] = [(0, &cell), (1, &cell), (5, &cell), (5, &cell)];
    let error = code.restore(&have, &mut [(2, &mut out)]).unwrap_err();
    assert_eq!(error, TooFew { have: 3, need: 4 });
    assert_eq!(error.to_string(), "3 cells are there, 4 are needed to restore others");
    assert_eq!(out, [1; 40]);
}

#[test]
fn codes_out_of_range_are_refused() {
    for (data, parity) in [(0, 1), (65, 1), (2, 0), (2, 4), (255, 255)] {
        assert_eq!(Code::new(data, parity).err(), Some(NoSuchCode { data, parity }));
    }
    assert!(Code::new(1, 1).is_ok() && Code::new(64, 3).is_ok());
    let said = NoSuchCode { data: 4, parity: 4 }.to_string();
    assert_eq!(said, "no code of 4 data and 4 parity cells: 1 to 64 and 1 to 3");
}

#[test]
#[should_panic(expected = "unequal length")]
fn cells_of_unequal_length_are_a_mistake_of_the_caller() {
    let mut parity = [0; 16];
    Code::new(2, 1).unwrap().encode(&[&[0; 16], &[0; 15]], &mut [&mut parity]);
}

/// A code, its data, and which of its cells are lost: any set of up to p, in any order.
fn codes_and_losses() -> impl Strategy<Value = (u8, u8, Vec<Vec<u8>>, Vec<usize>)> {
    (1u8..=20, 1..=PARITY_MAX, 0usize..3000, any::<u64>()).prop_flat_map(|(k, p, length, seed)| {
        let cells: Vec<usize> = (0..usize::from(k + p)).collect();
        let lost = proptest::sample::subsequence(cells, 0..=usize::from(p)).prop_shuffle();
        (Just(k), Just(p), Just(noise(k, length, seed)), lost)
    })
}

proptest! {
    #[test]
    fn any_losses_are_restored_whatever_is_at_hand(
        (k, p, data, lost) in codes_and_losses(),
        spare in any::<u32>(),
        skew in 0usize..64,
    ) {
        for kernel in kernels() {
            let code = code(k, p, kernel);
            let cells = encoded(&code, &data);
            // Cells anywhere in memory, in another order, and not always all that are there.
            let mut have: Vec<usize> = (0..cells.len()).rev().filter(|at| !lost.contains(at)).collect();
            have.truncate(usize::from(k) + spare as usize % 2);
            let padded: Vec<Vec<u8>> =
                cells.iter().map(|cell| [&[0xaa; 64][..skew], cell].concat()).collect();
            let given: Vec<(usize, &[u8])> =
                have.iter().map(|&at| (at, &padded[at][skew..])).collect();
            let mut out = vec![vec![0xee; data[0].len() + 1]; lost.len()];
            let mut want: Vec<(usize, &mut [u8])> =
                lost.iter().zip(&mut out).map(|(&at, cell)| (at, &mut cell[1..])).collect();
            code.restore(&given, &mut want).unwrap();
            for (at, bytes) in lost.iter().zip(&out) {
                prop_assert_eq!(&bytes[1..], &cells[*at][..], "{}+{} {}: cell {}", k, p, kernel, at);
                prop_assert_eq!(bytes[0], 0xee, "a byte before the cell was written");
            }
        }
    }
}
