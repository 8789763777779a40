//! When targets left that have lost the end of their logs.
//!
//! Of those of a group none of which is whole, who left last leads: it has all that was done until then. [`TargetDf::left`] says when: it is the version of
//! the map with which a target was missed. Who lost the end of its log did less than that, and says by which map the last of what it has was done.
//!
//! Invariant: numbers are in the order of what targets have, and no two that are given here are equal, for one of two may go on without the other. So a number may have to be moved
//! up by those that come before it, and is no version of a map any more; [`TargetDf::moved`] says which one it stands for.

use crate::records::{LEFT_EMPTY, Moved, TargetDf};
use types::TargetId;
use wire::map::LEFT_UNSURE;

/// Notes that a target which is back, and may have lost the end of its log, did what others did as long as there was the map of this version, and
/// not under newer ones. It was in the map as one that serves until it was missed, and it may have died long before: those who left in between
/// have all that anybody was told of, and it has not. So it left just before them.
pub(super) fn note_lost_end(targets: &mut [TargetDf], id: TargetId, kept_map_version: u32) {
    let Some(own) = targets.iter().find(|target| target.id == id) else { return };
    let (version, missed) = (kept_map_version.saturating_add(1), own.left);
    if kept_map_version == 0 || missed == LEFT_UNSURE || own.left_with() <= version {
        return;
    }
    // Who came here later has a greater number: it stays there.
    let is_other = |other: &TargetDf| other.id != id && other.left > 0 && other.left < missed;
    let is_later = |other: &TargetDf| is_other(other) && other.left_with() >= version;
    let earlier = targets.iter().filter(|other| is_other(other) && !is_later(other));
    let below = earlier.map(|other| other.left).max().unwrap_or(0).max(LEFT_EMPTY);
    let mut later: Vec<&mut TargetDf> =
        targets.iter_mut().filter(|other| is_later(other)).collect();
    later.sort_by_key(|other| other.left);
    let left = match later.first().map_or(missed, |first| first.left) {
        first if first > below + 1 => version.max(below + 1).min(first - 1),
        _ => below + 1,
    };
    let (mut free, mut last) = (left + 1, None);
    for other in later {
        let to = match last {
            // Those with one number keep one.
            Some((number, to)) if number == other.left => to,
            _ => other.left.max(free),
        };
        last = Some((other.left, to));
        free = to + 1;
        other.move_left(to);
    }
    if let Some(own) = targets.iter_mut().find(|target| target.id == id) {
        (own.left, own.moved) = (version, None);
        own.move_left(left);
    }
}

impl TargetDf {
    /// The version of the map with which it left.
    fn left_with(&self) -> u32 {
        self.moved.filter(|moved| moved.to == self.left).map_or(self.left, |moved| moved.from)
    }

    /// Gives it another number for the same moment.
    fn move_left(&mut self, to: u32) {
        let from = self.left_with();
        self.left = to;
        self.moved = (from != to).then_some(Moved { from, to });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Rank;
    use wire::map::{DownReason, TargetState};

    fn target(id: u32, left: u32) -> TargetDf {
        let target = TargetDf::new(TargetId(id), Rank(id));
        TargetDf { state: TargetState::Down, reason: Some(DownReason::Behind), left, ..target }
    }

    fn numbers(targets: &[TargetDf]) -> Vec<u32> {
        targets.iter().map(|target| target.left).collect()
    }

    /// Three of a `relaxed` pool. The first was away when the third died unnoticed, and the second went on alone for as long as there was a second map. The third was put
    /// before the first, which moved up by one for it; then the second died and lost what it did by later maps. It was put before the first as well, which had left
    /// long before it and had less (seed 37137 of all trouble).
    #[test]
    fn who_was_moved_up_has_no_more_than_before() {
        let mut targets = vec![target(0, 2), TargetDf::new(TargetId(1), Rank(1)), target(2, 3)];
        note_lost_end(&mut targets, TargetId(2), 1);
        assert_eq!(numbers(&targets), [3, 0, 2]);
        targets[1] = target(1, 5);
        note_lost_end(&mut targets, TargetId(1), 2);
        assert_eq!(numbers(&targets), [3, 4, 2]);
        // It was noted already.
        note_lost_end(&mut targets, TargetId(1), 2);
        assert_eq!(numbers(&targets), [3, 4, 2]);
    }

    /// Targets of one engine leave together, and are as good as each other.
    #[test]
    fn those_who_left_together_stay_so() {
        let mut targets: Vec<TargetDf> =
            [2, 2, 3, 7, 7, 9].iter().zip(0..).map(|(left, id)| target(id, *left)).collect();
        note_lost_end(&mut targets, TargetId(5), 1);
        assert_eq!(numbers(&targets), [3, 3, 4, 7, 7, 2]);
    }

    #[test]
    fn who_serves_and_who_is_trusted_stay_as_they_are() {
        let mut targets = vec![target(0, LEFT_UNSURE), TargetDf::new(TargetId(1), Rank(1))];
        targets.push(target(2, 9));
        note_lost_end(&mut targets, TargetId(0), 1);
        note_lost_end(&mut targets, TargetId(2), 0);
        assert_eq!(numbers(&targets), [LEFT_UNSURE, 0, 9]);
        note_lost_end(&mut targets, TargetId(2), 3);
        assert_eq!(numbers(&targets), [LEFT_UNSURE, 0, 4]);
    }

    /// Beside a model that keeps what each target has, in an order of its own: whoever has less is in front, also after any number of them came back.
    #[test]
    fn numbers_are_in_the_order_of_what_targets_have() {
        for seed in 0..2_000 {
            let mut draw = draws(seed);
            let (mut version, mut targets) = (2, Vec::new());
            // What each has: whole maps, and whether it has part of the one after them.
            let mut has: Vec<(u32, u32)> = Vec::new();
            for id in 0..6 {
                version += draw(3);
                let kept = 1 + draw(version);
                targets.push(target(id, version));
                match draw(2) {
                    0 if kept + 1 < version => {
                        note_lost_end(&mut targets, TargetId(id), kept);
                        has.push((kept + 1, 0));
                    }
                    _ => has.push((version, 1)),
                }
                version += 1;
            }
            for (a, has_a) in targets.iter().zip(&has) {
                for (b, has_b) in targets.iter().zip(&has) {
                    assert!(a.id == b.id || a.left != b.left, "seed {seed}: {targets:?}");
                    if has_a < has_b {
                        assert!(a.left < b.left, "seed {seed}: {targets:?} {has:?}");
                    }
                }
                assert!(a.left < version, "seed {seed}: a number of what is to come");
            }
        }
    }

    /// Small numbers of a kind, the same for the same seed.
    fn draws(seed: u64) -> impl FnMut(u32) -> u32 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % u64::from(below.max(1))) as u32
        }
    }
}
