//! Numbers of clients' requests, and what they say of answers that need not be kept.
//!
//! | bits | |
//! |---|---|
//! | 0 to 11 | the *lane*: 0 none, else one that the target has to which an update was sent first |
//! | 12 to 19 | how many updates have been begun in the lane since the oldest without an answer, this one included; 0: 256, or not said |
//! | 20 to 63 | the client's count |
//!
//! An update keeps its number wherever it is sent. Answers are looked for and dropped by lane: those of a leader that is lost, which a
//! client may ask for again, do not go because it does more elsewhere. Of the updates before it in its lane a client asks
//! again for those at most that the number tells; the answers to all earlier ones have reached it.

use types::TargetId;

/// Updates of a lane, from the oldest without an answer on, at most.
pub const UNANSWERED_MAX: usize = 256;
/// Lanes of a client, at most; the one without a number excepted.
const LANES: u32 = 0xfff;
const LANE_BITS: u32 = 12;
const COUNT_SHIFT: u32 = 20;

/// The lane of updates that are sent to a target first. Targets with numbers far apart may share one.
pub fn lane_of(target: TargetId) -> u16 {
    (target.0 % LANES + 1) as u16
}

/// A request's number by the client's count, which changes nothing that is kept.
pub fn plain(count: u64) -> u64 {
    count << COUNT_SHIFT
}

/// An update's number. `begun`: how many have been begun in its lane since the oldest without an answer, this one included.
pub fn in_lane(count: u64, lane: u16, begun: usize) -> u64 {
    let begun = if begun < UNANSWERED_MAX { begun as u64 } else { 0 };
    plain(count) | begun << LANE_BITS | u64::from(lane)
}

/// The lane of a number.
pub fn lane(number: u64) -> u16 {
    (number & u64::from(LANES)) as u16
}

/// To how many of the updates of its lane before this one the answers are to be kept.
pub fn kept_before(number: u64) -> usize {
    match number >> LANE_BITS & 0xff {
        0 => UNANSWERED_MAX - 1,
        begun => begun as usize - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_what_they_were_made_of() {
        for target in [0, 1, 4094, 4095, u32::MAX] {
            let of = lane_of(TargetId(target));
            assert!((1..=4095).contains(&of), "{target}");
            for (begun, before) in [(1, 0), (2, 1), (255, 254), (256, 255), (300, 255)] {
                for count in [0, 1, (1 << 44) - 1] {
                    let number = in_lane(count, of, begun);
                    assert_eq!((lane(number), kept_before(number)), (of, before));
                    assert_eq!(number >> COUNT_SHIFT, count);
                }
            }
        }
        assert_eq!((lane(plain(9)), kept_before(plain(9))), (0, UNANSWERED_MAX - 1));
        assert!(in_lane(5, 4095, 255) < plain(6), "the count orders them");
    }
}
