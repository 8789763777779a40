//! The chance that data are lost.
//!
//! A group is lost when more of its members are gone at the same time than its class can do without. What goes is a target, an
//! engine or a rack with all that it holds; each fails by itself, at a yearly rate `λ` of its kind, and what was on it is whole again `W = D + R`
//! later: `D` until the rebuild begins, `R` for the rebuild itself, during which groups become whole one after the other.
//!
//! A *fatal set* is a smallest set of units that takes a group with it. With `F(a, b, c)` fatal sets of `a` targets, `b` engines, `c` racks in all groups
//! together, and `n(a, b, c)` the number of sets of so many units at all,
//!
//! ```text
//! losses a year = Σ over (a, b, c), over the unit that goes last:
//!                 n(a, b, c) · m · λ_last · Π (λ_other · W_other) · p(F / n)
//! ```
//!
//! where `m` is how many of the set are of the kind of the last one, and `p(e)` the chance that a set that takes `e` groups on
//! average takes at least one of those that are not whole yet: `1 - exp(-e · Π v)`, on average over the parts `v` of the
//! rebuilds of the others that are still to be done. A unit that is down when the last one goes is as likely at each point of its
//! `W`: `v` is 1 with probability `D / W`, else anything between 0 and 1.
//!
//! Where no two members of a group share a rack, sets within a rack take nothing, and the others all the more. Nothing is in a fatal set beside
//! what it is a part of.
//!
//! It holds while losses of one kind seldom overlap more than they must (`λ · W · count` well below 1); [`super::events`] checks it
//! against failures that are drawn one by one.

use super::pool::{Groups, KINDS, Kind, Shape};
use std::collections::BTreeMap;

/// How one kind of unit fails and comes back.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Failing {
    /// A unit's losses a year.
    pub per_year: f64,
    /// From the loss until its rebuild begins, years.
    pub delay_years: f64,
    /// From when the rebuild begins until the last of what it held is whole again, years.
    pub rebuild_years: f64,
}

impl Failing {
    fn window_years(self) -> f64 {
        self.delay_years + self.rebuild_years
    }
}

/// How many targets, engines and racks.
pub type Mix = [usize; 3];

/// Fatal sets of each mix, in all groups together.
pub type FatalSets = BTreeMap<Mix, f64>;

/// Groups that are looked at for their fatal sets, at most: all are alike but for who shares an engine or a rack.
const SAMPLE: usize = 500;
/// Points of a rebuild that stand for all.
const POINTS: usize = 24;

/// Counts the fatal sets of all groups, from a sample of them.
pub fn fatal_sets(groups: &Groups, shape: Shape) -> FatalSets {
    let survives = usize::from(groups.class.scheme.redundancy_factor());
    let step = (groups.len() / SAMPLE).max(1);
    let mut sets = FatalSets::new();
    let mut looked_at = 0_usize;
    for members in groups.iter().step_by(step) {
        looked_at += 1;
        let units = units_of(members, shape);
        let mut chosen = Vec::new();
        each_fatal(&units, survives, &mut chosen, &mut |mix| {
            *sets.entry(mix).or_insert(0.0) += 1.0
        });
    }
    let scale = groups.len() as f64 / looked_at.max(1) as f64;
    sets.values_mut().for_each(|count| *count *= scale);
    sets
}

/// All units that hold a member of a group: kind (index in [`KINDS`]) and the members they hold, one bit each.
fn units_of(members: &[types::TargetId], shape: Shape) -> Vec<(usize, u32)> {
    let mut units = Vec::new();
    for (kind_at, kind) in KINDS.into_iter().enumerate() {
        let mut held: BTreeMap<u32, u32> = BTreeMap::new();
        for (at, target) in members.iter().enumerate() {
            *held.entry(shape.unit_of(kind, *target)).or_default() |= 1 << at;
        }
        units.extend(held.into_values().map(|bits| (kind_at, bits)));
    }
    units
}

/// Calls `found` for each smallest set of units, beyond those chosen, that holds more members than may go.
fn each_fatal(
    units: &[(usize, u32)],
    survives: usize,
    chosen: &mut Vec<(usize, u32)>,
    found: &mut impl FnMut(Mix),
) {
    for (at, unit) in units.iter().enumerate() {
        chosen.push(*unit);
        let without = |skip: usize| {
            let others = chosen.iter().enumerate().filter(|(at, _)| *at != skip);
            others.fold(0, |bits, (_, unit)| bits | unit.1)
        };
        let all = without(usize::MAX);
        // Each must hold what no other one holds.
        let needs_each = (0..chosen.len()).all(|skip| without(skip) != all);
        let is_fatal = |bits: u32| bits.count_ones() as usize > survives;
        if needs_each && is_fatal(all) {
            if (0..chosen.len()).all(|skip| !is_fatal(without(skip))) {
                let mut mix = [0; 3];
                chosen.iter().for_each(|unit| mix[unit.0] += 1);
                found(mix);
            }
        } else if needs_each {
            each_fatal(&units[at + 1..], survives, chosen, found);
        }
        chosen.pop();
    }
}

/// Losses of data a year; the chance of one within a year is `1 - exp(-losses)`.
pub fn losses_per_year(
    sets: &FatalSets,
    survives: usize,
    shape: Shape,
    apart: Kind,
    failing: &[Failing; 3],
) -> f64 {
    let counts = KINDS.map(|kind| shape.count(kind) as usize);
    let mut losses = 0.0;
    for (mix, fatal) in sets {
        let all: f64 = (0..3).map(|kind| choose(counts[kind], mix[kind])).product();
        let size: usize = mix.iter().sum();
        // Smaller sets are fatal because members share units: those may be near each other.
        let is_one_each = size == survives + 1;
        let far =
            if is_one_each { share_apart(*mix, shape, apart) } else { share_outside(*mix, shape) };
        let hit = fatal / (all * far);
        for last in (0..3).filter(|kind| mix[*kind] > 0) {
            let mut others = *mix;
            others[last] -= 1;
            let each = (0..3).flat_map(|kind| std::iter::repeat_n(failing[kind], others[kind]));
            let others: Vec<Failing> = each.collect();
            let down: f64 =
                others.iter().map(|other| other.per_year * other.window_years()).product();
            let rate = mix[last] as f64 * failing[last].per_year * down;
            losses += all * far * rate * chance_of_hit(hit, &others);
        }
    }
    losses
}

/// How likely a set that takes `expected` groups on average takes one that the others' rebuilds have not reached.
fn chance_of_hit(expected: f64, others: &[Failing]) -> f64 {
    let Some((first, rest)) = others.split_first() else {
        return -(-expected).exp_m1();
    };
    let window = first.window_years();
    let waits = if window > 0.0 { first.delay_years / window } else { 1.0 };
    let points = (0..POINTS).map(|at| (at as f64 + 0.5) / POINTS as f64);
    let during: f64 = points.map(|left| chance_of_hit(expected * left, rest)).sum();
    waits * chance_of_hit(expected, rest) + (1.0 - waits) * during / POINTS as f64
}

/// The part of all sets of a mix in which no two share a unit of the kind `apart`.
fn share_apart(mix: Mix, shape: Shape, apart: Kind) -> f64 {
    if KINDS.iter().zip(mix).any(|(kind, count)| *kind > apart && count > 0) {
        return share_outside(mix, shape);
    }
    let mut share = 1.0;
    let mut taken = 0;
    // The largest first: each takes one of the kind `apart`, and all that is in it.
    for (kind, count) in KINDS.into_iter().zip(mix).rev() {
        let all = f64::from(shape.count(kind));
        let each = all / f64::from(shape.count(apart));
        for drawn in 0..count {
            share *= (all - each * f64::from(taken)).max(0.0) / (all - drawn as f64);
            taken += 1;
        }
    }
    share
}

/// The part of all sets of a mix in which none is inside another one: what is inside adds nothing.
fn share_outside(mix: Mix, shape: Shape) -> f64 {
    let mut share = 1.0;
    for (inner, kind) in KINDS.into_iter().enumerate() {
        let all = f64::from(shape.count(kind));
        let holds = |outer: usize| mix[outer] as f64 * all / f64::from(shape.count(KINDS[outer]));
        let taken: f64 = (inner + 1..3).map(holds).sum();
        for drawn in 0..mix[inner] {
            share *= (all - taken - drawn as f64).max(0.0) / (all - drawn as f64);
        }
    }
    share
}

/// The number of ways to choose so many of so many.
fn choose(of: usize, count: usize) -> f64 {
    (0..count).map(|at| (of.saturating_sub(at)) as f64 / (at + 1) as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::TargetId;

    const SHAPE: Shape = Shape { racks: 6, engines_per_rack: 2, targets_per_engine: 3 };

    fn fatal_of(members: &[u32], survives: usize) -> BTreeMap<Mix, u32> {
        let members: Vec<TargetId> = members.iter().map(|id| TargetId(*id)).collect();
        let mut sets = BTreeMap::new();
        let units = units_of(&members, SHAPE);
        each_fatal(&units, survives, &mut Vec::new(), &mut |mix| {
            *sets.entry(mix).or_default() += 1
        });
        sets
    }

    #[test]
    fn fatal_sets_are_all_smallest_ones() {
        // Two copies in two racks: each goes as target, engine or rack.
        let sets = fatal_of(&[0, 6], 1);
        let expected = [
            ([0, 0, 2], 1),
            ([0, 1, 1], 2),
            ([0, 2, 0], 1),
            ([1, 0, 1], 2),
            ([1, 1, 0], 2),
            ([2, 0, 0], 1),
        ];
        assert_eq!(sets, BTreeMap::from(expected));
        // Both on one engine: that engine, or its rack, is enough.
        let sets = fatal_of(&[0, 1], 1);
        assert_eq!(sets, BTreeMap::from([([0, 0, 1], 1), ([0, 1, 0], 1), ([2, 0, 0], 1)]));
        // Three of which one may go, two in one rack.
        let sets = fatal_of(&[0, 3, 6], 1);
        assert_eq!(sets[&[0, 0, 1]], 1);
        assert_eq!(sets[&[2, 0, 0]], 3);
        // The rack that holds two is fatal alone; the other rack needs a target or an engine beside it.
        assert_eq!(sets[&[1, 0, 1]], 2);
        assert!(!sets.contains_key(&[0, 0, 2]));
    }

    #[test]
    fn sets_apart_are_counted_by_enumeration_too() {
        let count = |kind: Kind| SHAPE.count(kind);
        for (mix, apart) in [
            ([2, 0, 0], Kind::Rack),
            ([1, 1, 0], Kind::Rack),
            ([3, 0, 0], Kind::Engine),
            ([1, 1, 1], Kind::Rack),
            ([2, 1, 0], Kind::Engine),
        ] {
            let place = |kind: Kind, at: u32| at / (count(kind) / count(apart));
            let units: Vec<Kind> = KINDS
                .into_iter()
                .zip(mix)
                .flat_map(|(kind, count)| std::iter::repeat_n(kind, count))
                .collect();
            let (mut all, mut far, mut outside) = (0_u64, 0_u64, 0_u64);
            // Ordered draws without putting back, by counting through them.
            let mut at = vec![0_u32; units.len()];
            loop {
                let drawn: Vec<(Kind, u32)> =
                    units.iter().copied().zip(at.iter().copied()).collect();
                let repeats = |a: usize| drawn[..a].contains(&drawn[a]);
                if !(0..drawn.len()).any(repeats) {
                    all += 1;
                    let mut places: Vec<u32> =
                        drawn.iter().map(|(kind, at)| place(*kind, *at)).collect();
                    places.sort_unstable();
                    far += u64::from(places.windows(2).all(|pair| pair[0] != pair[1]));
                    let is_inside = |(inner, at): &(Kind, u32)| {
                        drawn.iter().any(|(outer, of)| {
                            outer > inner && at / (count(*inner) / count(*outer)) == *of
                        })
                    };
                    outside += u64::from(!drawn.iter().any(is_inside));
                }
                let steps = at.iter_mut().zip(&units).find_map(|(value, kind)| {
                    *value = (*value + 1) % count(*kind);
                    (*value > 0).then_some(())
                });
                if steps.is_none() {
                    break;
                }
            }
            let (share, exact) = (share_apart(mix, SHAPE, apart), far as f64 / all as f64);
            assert!((share - exact).abs() < 1e-9, "{mix:?} {apart:?}: {share}, exactly {exact}");
            let (share, exact) = (share_outside(mix, SHAPE), outside as f64 / all as f64);
            let is_flat = mix.iter().filter(|count| **count > 0).count() == 1;
            assert!((share - exact).abs() < 1e-9, "{mix:?}: {share}, exactly {exact}");
            assert!(!is_flat || share == 1.0);
        }
        assert_eq!(choose(5, 2), 10.0);
        assert_eq!(choose(5, 0), 1.0);
        assert_eq!(choose(1, 2), 0.0);
    }

    #[test]
    fn what_is_whole_again_is_hit_no_more() {
        let failing =
            |delay_years, rebuild_years| Failing { per_year: 0.1, delay_years, rebuild_years };
        // All of it still to be done.
        assert!((chance_of_hit(0.01, &[failing(1.0, 0.0)]) - 0.00995).abs() < 1e-5);
        // Half of it on average: 1 - (1 - exp(-e)) / e.
        let half = chance_of_hit(3.0, &[failing(0.0, 1.0)]);
        let exact = 1.0 - (1.0 - (-3.0_f64).exp()) / 3.0;
        assert!((half - exact).abs() < 1e-3, "{half}, exactly {exact}");
        assert!(chance_of_hit(0.01, &[failing(0.0, 1.0); 2]) < 0.0026);
        assert!((chance_of_hit(1e9, &[failing(0.5, 0.5); 2]) - 1.0).abs() < 1e-6);
    }
}
