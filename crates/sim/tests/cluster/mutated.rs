//! Messages as clients send them, changed at random, against a whole engine.

use env::Rng;
use sim::hostile::Prey;
use sim::seeds;
use types::Durability;

/// Every message that there is, so that a new one is tried from the day it has a sample.
const MESSAGES: &str = include_str!("../../../wire/tests/golden/messages.hex");
/// Changed messages for each seed.
const COUNT: u64 = 5000;

/// Encoded messages whose names begin so.
fn samples(begin: &str) -> Vec<Vec<u8>> {
    let bytes = |hex: &str| {
        let digits: Vec<u8> =
            hex.trim().chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect::<Vec<u8>>()
    };
    let named = MESSAGES.lines().filter_map(|line| line.split_once(" = "));
    named.filter(|(name, _)| name.starts_with(begin)).map(|(_, hex)| bytes(hex)).collect()
}

/// Changes bytes: of lengths, tags, numbers, whatever is there.
fn change(bytes: &mut Vec<u8>, other: &[u8], rng: &Rng) {
    for _ in 0..1 + rng.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.next_u64() as u8),
            2 => drop(bytes.remove(at)),
            // The greatest number there is.
            3 => drop(bytes.splice(at..=at, [[0xff; 9].as_slice(), &[1]].concat())),
            4 => {
                let from = rng.below(other.len() as u64) as usize;
                let count = 1 + rng.below(12) as usize;
                bytes.splice(at.., other[from..].iter().take(count).copied());
            }
            5 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
            _ => bytes[at] ^= 1 << rng.below(8),
        }
    }
}

#[test]
fn no_changed_message_stops_an_engine() {
    let (requests, controls) = (samples("request."), samples("control."));
    assert!(requests.len() > 60 && controls.len() > 30, "{} {}", requests.len(), controls.len());
    for seed in seeds(6) {
        let durability = if seed % 2 == 0 { Durability::Wal } else { Durability::Memory };
        let prey = Prey::start(seed, durability).unwrap();
        let rng = Rng::new(seed);
        let pick = |list: &'_ [Vec<u8>]| list[rng.below(list.len() as u64) as usize].clone();
        for round in 0..COUNT {
            if round % 100 == 0 {
                prey.work(round).unwrap();
            }
            if round % 4 == 0 {
                let mut body = pick(&controls);
                change(&mut body, &pick(&controls), &rng);
                prey.send_to_control(&body).unwrap();
                continue;
            }
            let Some(mut body) = prey.aimed(&pick(&requests), &rng).unwrap() else { continue };
            if round % 8 != 1 {
                change(&mut body, &pick(&requests), &rng);
            }
            let bulk = vec![7; [0, 0, 1, 5000, 70_000, 4396][rng.below(6) as usize]];
            prey.send_to_target(rng.below(2) as u8, &body, &bulk).unwrap();
        }
        prey.work(COUNT).unwrap();
        println!("seed {seed}: {} of {COUNT} messages were not refused", prey.done());
        assert!(prey.done() > COUNT / 50, "{} of {COUNT}", prey.done());
    }
}
