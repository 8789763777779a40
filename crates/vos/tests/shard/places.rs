//! Which places of a run are tried, where each would be the right one; and how many runs.

/// Places of a run that are all tried; after them it goes round among what it did before.
const EACH: u64 = 16;
/// Of those after that one in so many is tried, each residue by some seed; all of them with `AZEKURA_ALL_PLACES` set.
const STRIDE: u64 = 11;

fn are_all_tried() -> bool {
    std::env::var_os("AZEKURA_ALL_PLACES").is_some()
}

/// Seeds of a test that needs `all` to be thorough, and is a test of its kind with `some`.
pub fn seeds(some: u64, all: u64) -> std::ops::Range<u64> {
    0..if are_all_tried() { all } else { some }
}

/// The place to be tried after `place`.
pub fn next(place: u64, seed: u64) -> u64 {
    if place < EACH || are_all_tried() {
        return place + 1;
    }
    if place == EACH { EACH + 1 + seed % STRIDE } else { place + STRIDE }
}

#[test]
fn seeds_one_after_the_other_try_all_places() {
    let mut tried = [0; 200];
    for seed in 5..5 + STRIDE {
        let mut place = 0;
        while place < tried.len() as u64 {
            tried[place as usize] += 1;
            place = next(place, seed);
        }
    }
    assert!(tried.iter().all(|times| *times > 0), "{tried:?}");
}
