//! Which places of a run are tried, where each would be the right one.

/// Places of a run that are all tried; after them it goes round among what it did before.
const EACH: u64 = 60;
/// Of those after that one in so many is tried, each residue by some seed; all of them with `AZEKURA_ALL_PLACES` set.
const STRIDE: u64 = 3;

/// The place to be tried after `place`.
pub fn next(place: u64, seed: u64) -> u64 {
    if place < EACH || std::env::var_os("AZEKURA_ALL_PLACES").is_some() {
        return place + 1;
    }
    if place == EACH { EACH + 1 + seed % STRIDE } else { place + STRIDE }
}

#[test]
fn three_seeds_try_all_places() {
    let mut tried = [0; 200];
    for seed in 5..8 {
        let mut place = 0;
        while place < tried.len() as u64 {
            tried[place as usize] += 1;
            place = next(place, seed);
        }
    }
    assert!(tried.iter().all(|times| *times > 0), "{tried:?}");
}
