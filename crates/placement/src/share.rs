//! What targets take over of objects that were placed before they were added, or weighed more.
//!
//! A pool is *balanced* up to a placement epoch ([`PoolMap::balanced`]) when objects of earlier epochs are placed as that
//! one says, by the fewest moves: from each epoch to the next a target whose share grows takes, and one whose share
//! falls gives. Each member of a group on a target that gives is given away with the chance that makes its share what it is to be; who gets
//! it is drawn among those that take, by how much they gain. Targets that were added gain all they have. Nothing else moves, groups keep their number, and keys
//! their groups.
//!
//! Which places are given depends on the members that were drawn: what shares all members goes on doing so, a name and its file above all.
//! Where nothing else shares them for a reason it depends on the object ([`Decides`]): groups of one member, and those of arrays behind the
//! first. In either case places are given at even distances, not by chance each for itself: of a few sets of members, or a few files, about as much
//! moves as is to.

use crate::domain::Place;
use crate::draw;
use smallvec::SmallVec;
use types::{TargetId, hash};
use wire::map::{PlacementSet, PoolMap};

/// What a placement epoch changes of the shares of the one before it.
pub(crate) struct Shift {
    /// Targets whose share falls, ascending, with the part of it that they give: as a fraction of 2^64.
    gives: Vec<(TargetId, u64)>,
    /// Targets whose share grows, weighed by how much.
    takes: PlacementSet,
}

/// What a pool that is balanced from `after` up to `until` changes, oldest first.
pub(crate) fn shifts(after: u8, until: u8, map: &PoolMap) -> SmallVec<[Shift; 2]> {
    let mut all = SmallVec::new();
    for pair in map.placements.windows(2) {
        let [older, newer] = pair else { continue };
        if newer.epoch > after && newer.epoch <= until {
            all.extend(shift(older, newer));
        }
    }
    all
}

/// `None` when all shares stay as they are.
fn shift(older: &PlacementSet, newer: &PlacementSet) -> Option<Shift> {
    let sum =
        |of: &PlacementSet| of.weights.iter().map(|(_, weight)| *weight as u128).sum::<u128>();
    let (whole_before, whole_now) = (sum(older), sum(newer));
    // Shares are compared as weights over the product of both wholes: whole numbers, below 2^80.
    let before = |target: TargetId| weight_in(older, target) * whole_now;
    let mut gives = Vec::new();
    let mut gains: Vec<(TargetId, u128)> = Vec::new();
    for &(target, weight) in &newer.weights {
        let (before, now) = (before(target), weight as u128 * whole_before);
        if now > before {
            gains.push((target, now - before));
        } else if now < before {
            gives.push((target, part(before - now, before)));
        }
    }
    // Targets that an epoch leaves out altogether.
    let is_left_out = |(target, weight): &&(TargetId, u32)| {
        *weight > 0 && newer.weights.binary_search_by_key(target, |(id, _)| *id).is_err()
    };
    gives.extend(older.weights.iter().filter(is_left_out).map(|(target, _)| (*target, u64::MAX)));
    gives.sort_unstable();
    let most = gains.iter().map(|(_, gain)| *gain).max()?;
    // Lots take weights of 28 bits.
    let cut = (u128::BITS - most.leading_zeros()).saturating_sub(28);
    let weights = gains.into_iter().map(|(target, gain)| (target, ((gain >> cut) as u32).max(1)));
    Some(Shift { gives, takes: PlacementSet { epoch: newer.epoch, weights: weights.collect() } })
}

fn weight_in(set: &PlacementSet, target: TargetId) -> u128 {
    // Sets are in the order of targets.
    let at = set.weights.binary_search_by_key(&target, |(id, _)| *id);
    at.map_or(0, |at| set.weights[at].1 as u128)
}

/// A part of a whole, as a fraction of 2^64. Both are below 2^80, so 40 bits of it are kept.
fn part(of: u128, whole: u128) -> u64 {
    (((of << 40) / whole.max(1)) << 24).min(u64::MAX as u128) as u64
}

/// By what it is told which places a group gives, and, with the key, who gets them.
#[derive(Clone, Copy)]
pub(crate) enum Decides {
    /// The set of them, in order; the key is of it.
    Members(u64),
    /// Its object, of which this is the number among its like.
    Object(u64, u64),
}

impl Decides {
    /// What decides who gets a place.
    fn lot(self) -> u64 {
        match self {
            Decides::Members(key) => key,
            Decides::Object(key, number) => hash::mix2(key, number),
        }
    }

    /// A place of a group gives when its word is below that part of all words which its target gives. Places of one group are as far apart as can
    /// be: several would give to the same target, and it can have one.
    fn word(self, members: &[TargetId], at: usize, epoch: u8) -> u64 {
        // Each epoch has steps of its own: those who have not given in one are not those who do not in the next.
        let step = |place: usize| STEPS[(epoch as usize * 5 + place) % STEPS.len()];
        let first = match self {
            // Objects with another key begin elsewhere.
            Decides::Object(key, number) => {
                hash::mix2(key, epoch.into()).wrapping_add(number.wrapping_mul(step(0)))
            }
            Decides::Members(_) => {
                members.iter().enumerate().fold(hash::mix(epoch.into()), |sum, (place, member)| {
                    sum.wrapping_add(u64::from(member.0).wrapping_mul(step(place)))
                })
            }
        };
        first.wrapping_add(u64::MAX / members.len() as u64 * at as u64)
    }
}

/// Multiples of each of these, and sums of multiples of several, spread evenly over all words from the first few on: as fractions of 2^64 they
/// are far from all fractions of small numbers.
///
/// Placement of stored objects depends on them.
const STEPS: [u64; 16] = [
    0x9e56_51b0_ef95_3637,
    0x3622_5990_4816_818d,
    0x4778_4b98_3a87_2ed7,
    0x9089_f05f_bf88_f8e7,
    0x6a0c_02bb_9152_575b,
    0xd04d_1b94_b2e3_3d31,
    0xc407_9edf_0591_a9f9,
    0x9651_9dd7_d49d_f4af,
    0xbb5f_e8e9_53e1_5117,
    0x8c4a_24f5_d94d_da5d,
    0x9486_6d05_9958_7e9f,
    0xbc77_ecd5_19de_60d3,
    0x69aa_8d70_d665_0dbf,
    0x9ea3_1916_dd7e_77f9,
    0x6b94_ce7b_49bf_eb8d,
    0xb3fc_2e96_0a56_f2cf,
];

/// The members of a group of which these were drawn, when the shares are as they are to be.
pub(crate) fn shared(
    drawn: &[TargetId],
    decides: Decides,
    shifts: &[Shift],
    map: &PoolMap,
) -> SmallVec<[TargetId; 8]> {
    let mut members: SmallVec<[TargetId; 8]> = SmallVec::from_slice(drawn);
    for Shift { gives, takes } in shifts {
        let before = members.clone();
        for at in 0..members.len() {
            let Ok(giver) = gives.binary_search_by_key(&members[at], |(id, _)| *id) else {
                continue;
            };
            if decides.word(&before, at, takes.epoch) >= gives[giver].1 {
                continue;
            }
            let lot = hash::mix2(decides.lot(), members[at].0.into());
            let lot = hash::mix2(lot, takes.epoch.into());
            let Some(winner) = draw::winner(hash::mix2(lot, 1), takes) else { continue };
            if !members.contains(&winner) && is_as_far(&members, at, winner, map) {
                members[at] = winner;
            }
        }
    }
    members
}

/// True when a target shares no more of the fault domains with the other members than the one at `at` does.
fn is_as_far(members: &[TargetId], at: usize, target: TargetId, map: &PoolMap) -> bool {
    if members.len() == 1 {
        return true;
    }
    let place = |target: TargetId| map.engine_of(target).map(Place::of);
    let depth = |target: TargetId| {
        let own = place(target)?;
        let others = members.iter().enumerate().filter(|(other, _)| *other != at);
        let others = others.filter_map(|(_, other)| Some(own.shared_depth(&place(*other)?)));
        Some(others.max().unwrap_or(0))
    };
    match (depth(target), depth(members[at])) {
        (Some(new), Some(old)) => new <= old,
        _ => false,
    }
}
