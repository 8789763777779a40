//! Where the dkeys are of an object that spreads once they are many ([`types::Oid::spreads`]).
//!
//! All begin in the first unit. When there are too many, those of the other groups move there, in the order of their hashes:
//! group 0 keeps those with the least hashes, group 1 gets the next, and so on. So the order of hashes is the order of groups,
//! too, and one hash tells how far that has come. Each unit that has a part in it has a [`Spread`] of its own, which changes in the
//! transaction that moves dkeys to or from it; so a unit knows without asking which dkeys are to be looked for in it.
//!
//! [`MARKER`] is under no such rule: it is a dkey of each unit for itself.

/// Dkey of such an object that does not move: facts about the object, in its first unit, or about the unit.
pub const MARKER: &[u8] = b"/";
/// Akey under it with an encoded [`Spread`]. It is there in the first unit when dkeys have begun to move, and in another one
/// when it has got its first.
pub const REACHED: &[u8] = b"+";
/// Akey of other dkeys with a value that may begin with a [link](crate::link): moved, it tells when it was written.
pub const LINK: &[u8] = b"i";

/// How far the dkeys of an object have moved, as one of its units knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    /// Least hash of the unit's group.
    pub own_first: u64,
    /// Greatest hash of the unit's group.
    pub own_last: u64,
    /// All dkeys with this hash or a lesser one are in their groups; of others, the first unit has them.
    pub reached: u64,
}

impl Spread {
    /// Bytes of [`Spread::encode`].
    pub const BYTES: usize = 24;

    /// True when nothing is left to move.
    pub fn is_over(&self) -> bool {
        self.reached == u64::MAX
    }

    /// As it is kept and sent: three words, the lowest byte first.
    pub fn encode(&self) -> [u8; Spread::BYTES] {
        let mut raw = [0; Spread::BYTES];
        let words = [self.own_first, self.own_last, self.reached];
        for (room, word) in raw.chunks_exact_mut(8).zip(words) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        raw
    }

    /// The inverse; `None` for other bytes.
    pub fn decode(raw: &[u8]) -> Option<Spread> {
        let raw: &[u8; Spread::BYTES] = raw.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| raw[8 * at + byte]));
        Some(Spread { own_first: word(0), own_last: word(1), reached: word(2) })
    }

    /// The hashes whose dkeys it says have left the first unit, or have come to another one.
    pub fn moved(&self, is_first: bool) -> Option<(u64, u64)> {
        let (from, to) = match is_first {
            true => (self.own_last.checked_add(1)?, self.reached),
            false => (self.own_first, self.reached.min(self.own_last)),
        };
        (from <= to).then_some((from, to))
    }
}

/// True when all dkeys that there are with hashes from `from` to `to` are in a unit in which this is what is known.
pub fn has_all(spread: Option<Spread>, is_first: bool, (from, to): (u64, u64)) -> bool {
    match (spread, is_first) {
        (None, is_first) => is_first,
        (Some(spread), true) => to <= spread.own_last || from > spread.reached,
        (Some(spread), false) => {
            from >= spread.own_first && to <= spread.reached.min(spread.own_last)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Spread = Spread { own_first: 0, own_last: 99, reached: 149 };
    const SECOND: Spread = Spread { own_first: 100, own_last: 199, reached: 149 };
    const THIRD: Spread = Spread { own_first: 200, own_last: 299, reached: 149 };

    #[test]
    fn golden_bytes() {
        // Kept on devices: a change needs a reader of this form.
        let spread = Spread { own_first: 1, own_last: 0x0203, reached: u64::MAX };
        let raw = b"\x01\0\0\0\0\0\0\0\x03\x02\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff";
        assert_eq!(&spread.encode(), raw);
        assert_eq!(Spread::decode(raw), Some(spread));
        assert_eq!(Spread::decode(&raw[1..]), None);
        assert!(spread.is_over() && !FIRST.is_over());
    }

    #[test]
    fn each_hash_is_in_one_unit_at_any_time() {
        for hash in 0..300 {
            let here = |spread, is_first| has_all(Some(spread), is_first, (hash, hash)) as u32;
            let units = here(FIRST, true) + here(SECOND, false) + here(THIRD, false);
            assert_eq!(units, 1, "{hash}");
        }
        assert!(has_all(None, true, (0, u64::MAX)) && !has_all(None, false, (7, 7)));
    }

    #[test]
    fn a_range_is_in_a_unit_if_all_of_it_is() {
        for (range, is_here) in [
            ((0, 99), true),
            ((0, 100), false),
            ((100, 149), false),
            ((150, 299), true),
            ((99, 150), false),
        ] {
            assert_eq!(has_all(Some(FIRST), true, range), is_here, "{range:?}");
        }
        for (range, is_here) in [((100, 149), true), ((100, 150), false), ((99, 120), false)] {
            assert_eq!(has_all(Some(SECOND), false, range), is_here, "{range:?}");
        }
    }

    #[test]
    fn what_has_moved_left_the_first_unit_for_others() {
        assert_eq!(FIRST.moved(true), Some((100, 149)));
        assert_eq!(Spread { reached: 99, ..FIRST }.moved(true), None);
        assert_eq!(SECOND.moved(false), Some((100, 149)));
        assert_eq!(Spread { reached: 250, ..SECOND }.moved(false), Some((100, 199)));
        assert_eq!(THIRD.moved(false), None);
        let alone = Spread { own_first: 0, own_last: u64::MAX, reached: u64::MAX };
        assert_eq!(alone.moved(true), None);
    }
}
