//! Placement hints: choosing an object id so that its first group lands on a given target.
//!
//! A hint is the 32-bit word of [`types::Oid::with_placement_hint`]. Layouts are one-way functions,
//! so hints are found by trying words in order; a table finds some for all targets in one pass.

use crate::draw;
use crate::layout::placement_set;
use types::{GroupCount, ObjClass, ObjType, Oid, TargetId, hash};
use wire::map::{PlacementSet, PoolMap};

/// Words tried for one target before it is given up: enough for any target that has one
/// hundred-thousandth of the weight, and a bound for one that has none to speak of.
const TRIES_MAX: u32 = 1 << 21;
/// Words tried for a group of several members.
const BESIDE_TRIES_MAX: usize = 1 << 14;
/// Hints kept per target, where the table stays small. Objects that share a hint also share
/// their further groups and move together, so there should be many.
const HINTS_PER_TARGET: usize = 32;
/// Hints kept over all targets, so that large pools do not search for long.
const HINTS_MAX: usize = 16_384;

fn lands_on(hint: u32, set: &PlacementSet) -> Option<TargetId> {
    let key = Oid::generate(0, 0, ObjType::ArrayByte, ObjClass::S1, set.epoch)
        .with_placement_hint(hint)
        .placement_key();
    draw::winner(key, set)
}

/// A hint with which objects of `class` have group 0 on `members` ([`crate::Layout::placed`]), in this order; the search begins
/// at `first`.
///
/// `None` when the map lacks its newest placement epoch, the class has other numbers of members, or the search gave
/// up: no such hint is likely among a few thousand words in very large pools.
pub fn hint_beside(
    members: &[TargetId],
    class: ObjClass,
    map: &PoolMap,
    first: u32,
) -> Option<u32> {
    if class.scheme.copies() != members.len() {
        return None;
    }
    // The first group is the same however many there are.
    let one = ObjClass { groups: GroupCount::Count(1), ..class };
    let oid = Oid::generate(0, 0, ObjType::ArrayByte, one, map.placement_epoch());
    let tries = 64 * map.targets.len().saturating_mul(map.targets.len()).max(4);
    let words = (0..tries.min(BESIDE_TRIES_MAX)).map(|at| first.wrapping_add(at as u32));
    words.into_iter().find(|word| {
        let placed = crate::layout(oid.with_placement_hint(*word), map);
        placed.is_ok_and(|layout| layout.placed(0) == members)
    })
}

/// The `nth` hint, counting from 0, with which objects of placement epoch `epoch` have group 0
/// on `target`.
///
/// `None` when the map lacks the epoch, the target has no weight in it, or so little that
/// the search gave up. The time grows with (`nth` + 1) x targets².
pub fn hint_for(target: TargetId, epoch: u8, map: &PoolMap, nth: u32) -> Option<u32> {
    let set = placement_set(epoch, map).ok()?;
    set.weights.iter().find(|(id, weight)| *id == target && *weight > 0)?;
    (0..TRIES_MAX).filter(|&hint| lands_on(hint, set) == Some(target)).nth(nth as usize)
}

/// Hints for all targets of a map's newest placement epoch.
#[derive(Clone, Debug)]
pub struct HintTable {
    epoch: u8,
    /// By target, ascending.
    hints: Vec<(TargetId, Vec<u32>)>,
}

impl HintTable {
    /// Finds hints for every target that new objects may be placed on.
    ///
    /// Takes about targets² x 1 µs up to a few hundred targets; keep it as long as
    /// [`HintTable::epoch`] is the map's newest placement epoch.
    pub fn new(map: &PoolMap) -> HintTable {
        let epoch = map.placement_epoch();
        let mut hints: Vec<(TargetId, Vec<u32>)> = Vec::new();
        let Ok(set) = placement_set(epoch, map) else {
            return HintTable { epoch, hints };
        };
        hints.extend(set.weights.iter().filter(|(_, w)| *w > 0).map(|&(id, _)| (id, Vec::new())));
        hints.sort_unstable_by_key(|(id, _)| *id);
        let per_target = (HINTS_MAX / hints.len().max(1)).clamp(1, HINTS_PER_TARGET);
        let mut wanting = hints.len();
        // Light targets fill slowly; they make do with what was found when all others are long full.
        let tries = (hints.len() * per_target * 64).min(TRIES_MAX as usize) as u32;
        for hint in 0..tries {
            if wanting == 0 {
                break;
            }
            let Some(target) = lands_on(hint, set) else { break };
            if let Ok(at) = hints.binary_search_by_key(&target, |(id, _)| *id)
                && hints[at].1.len() < per_target
            {
                hints[at].1.push(hint);
                wanting -= (hints[at].1.len() == per_target) as usize;
            }
        }
        for (target, found) in &mut hints {
            if found.is_empty() {
                found.extend(hint_for(*target, epoch, map, 0));
            }
        }
        HintTable { epoch, hints }
    }

    /// The placement epoch these hints are for.
    pub fn epoch(&self) -> u8 {
        self.epoch
    }

    /// True when there are hints with which objects land on `target`.
    pub fn takes(&self, target: TargetId) -> bool {
        let at = self.hints.binary_search_by_key(&target, |(id, _)| *id);
        at.is_ok_and(|at| !self.hints[at].1.is_empty())
    }

    /// A hint whose group 0 lands on `target`, chosen by `random`.
    ///
    /// A target that takes no new objects has no such hint; then the hint is as good as random
    /// and the object lands by weight, so callers never have to stop.
    pub fn pick(&self, target: TargetId, random: u64) -> u32 {
        let mixed = hash::mix(random);
        match self.hints.binary_search_by_key(&target, |(id, _)| *id) {
            Ok(at) if !self.hints[at].1.is_empty() => {
                let known = &self.hints[at].1;
                known[((mixed as u128 * known.len() as u128) >> 64) as usize]
            }
            _ => (mixed >> 32) as u32,
        }
    }
}
