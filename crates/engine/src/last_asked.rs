//! When clients last wanted something of the units that a target leads or follows, about, in little memory: what nobody has used for long moves first
//! when a pool is balanced.
//!
//! Each unit has one of a fixed number of places by its hash, and shares it with others. So something that nobody wants may look as if
//! somebody did, and move later than it could; never the other way round. Nothing of it is kept over a restart: then what was written last
//! counts, which the index tells.

use std::cell::{Cell, OnceCell};
use types::{ContId, Epoch, Unit, hash};
use wire::member::ListedUnit;

/// Places; so many units in use are told from all others. 256 KiB for each pool of a target that clients have used.
const PLACES: usize = 1 << 16;

/// The times.
#[derive(Default)]
pub(crate) struct LastAsked {
    /// Seconds since 1970; 0: never.
    places: OnceCell<Box<[Cell<u32>]>>,
}

impl LastAsked {
    /// Somebody wants something of a unit.
    pub fn note(&self, cont: ContId, unit: Unit, now_s: u64) {
        let places = self.places.get_or_init(|| vec![Cell::new(0); PLACES].into_boxed_slice());
        places[place(cont, unit)].set(u32::try_from(now_s).unwrap_or(u32::MAX));
    }

    /// When somebody did, about, seconds since 1970; 0: never.
    pub fn asked_s(&self, cont: ContId, unit: Unit) -> u32 {
        self.places.get().map_or(0, |places| places[place(cont, unit)].get())
    }

    /// What there is to tell of a unit.
    pub fn listed(&self, cont: ContId, unit: Unit, newest: Epoch) -> ListedUnit {
        ListedUnit { unit, newest, asked_s: self.asked_s(cont, unit) }
    }
}

fn place(cont: ContId, unit: Unit) -> usize {
    let of = hash::mix2(unit.list_order().0, hash::mix2(cont.0, unit.group.into()));
    of as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Oid;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_was_used_looks_used_and_most_of_the_rest_does_not() {
        let last = LastAsked::default();
        let unit = |number: u64| Oid { hi: 0, lo: number }.unit((number % 3) as u32);
        assert_eq!(last.listed(ContId(1), unit(5), Epoch(7)).used_s(), 0);
        for number in 0..1_000 {
            last.note(ContId(1), unit(number), 100 + number);
        }
        let asked = |cont: u64, number: u64| {
            last.listed(ContId(cont), unit(number), Epoch(number * SECOND)).asked_s
        };
        for number in 0..1_000 {
            assert!(u64::from(asked(1, number)) >= 100 + number, "{number}");
        }
        // One of 65 places is taken.
        let count = |cont, from| (from..from + 10_000).filter(|of| asked(cont, *of) > 0).count();
        assert!(count(1, 1_000) < 400, "{}", count(1, 1_000));
        assert!(count(2, 0) < 400, "{}", count(2, 0));
        // What was written later than it was read.
        assert_eq!(last.listed(ContId(1), unit(3), Epoch(9_000 * SECOND)).used_s(), 9_000);
    }
}
