//! Failures drawn one by one: what the formula of [`super::loss`] is checked against.

use super::loss::Failing;
use super::pool::{Groups, KINDS, Shape};
use types::hash;

/// Numbers that look random; equal seeds give equal ones.
struct Lots {
    seed: u64,
    drawn: u64,
}

impl Lots {
    /// From above 0 to 1.
    fn part(&mut self) -> f64 {
        self.drawn += 1;
        ((hash::mix2(self.seed, self.drawn) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// A unit that is gone, until all it held is whole again.
struct Gone {
    kind: usize,
    at: u32,
    since: f64,
    /// Decides the order in which its groups become whole.
    order: u64,
}

/// Failures after which data were lost, a year, over so many years.
pub fn losses_per_year(
    groups: &Groups,
    shape: Shape,
    failing: &[Failing; 3],
    years: f64,
    seed: u64,
) -> f64 {
    let survives = usize::from(groups.class.scheme.redundancy_factor());
    let rates: Vec<f64> =
        (0..3).map(|kind| f64::from(shape.count(KINDS[kind])) * failing[kind].per_year).collect();
    let all: f64 = rates.iter().sum();
    let mut lots = Lots { seed, drawn: 0 };
    let (mut now, mut losses) = (0.0, 0_u64);
    let mut gone: Vec<Gone> = Vec::new();
    loop {
        now -= lots.part().ln() / all;
        if now > years {
            return losses as f64 / years;
        }
        let mut at = lots.part() * all;
        let mut kind = 0;
        while kind < 2 && at > rates[kind] {
            at -= rates[kind];
            kind += 1;
        }
        let at = (lots.part() * f64::from(shape.count(KINDS[kind]))) as u32;
        let at = at.min(shape.count(KINDS[kind]) - 1);
        gone.retain(|unit| {
            let failing = failing[unit.kind];
            let is_same = unit.kind == kind && unit.at == at;
            !is_same && now < unit.since + failing.delay_years + failing.rebuild_years
        });
        let order = lots.part().to_bits();
        gone.push(Gone { kind, at, since: now, order });
        losses += u64::from(is_lost(groups, shape, failing, &gone, survives, now));
    }
}

/// True when a group that the newest loss has touched is lost.
fn is_lost(
    groups: &Groups,
    shape: Shape,
    failing: &[Failing; 3],
    gone: &[Gone],
    survives: usize,
    now: f64,
) -> bool {
    groups.iter().enumerate().any(|(group, members)| {
        let is_missing = |target: &types::TargetId, unit: &Gone| {
            let failing = failing[unit.kind];
            let turn = (hash::mix2(unit.order, group as u64) >> 11) as f64 / (1_u64 << 53) as f64;
            let whole = unit.since + failing.delay_years + failing.rebuild_years * turn;
            shape.unit_of(KINDS[unit.kind], *target) == unit.at && now < whole
        };
        let Some(newest) = gone.last() else { return false };
        let held =
            |target: &types::TargetId| shape.unit_of(KINDS[newest.kind], *target) == newest.at;
        let missing = |target: &&types::TargetId| gone.iter().any(|unit| is_missing(target, unit));
        members.iter().any(held) && members.iter().filter(missing).count() > survives
    })
}

#[cfg(test)]
mod tests {
    use super::super::loss;
    use super::*;

    #[test]
    fn the_formula_agrees_with_failures_drawn_one_by_one() {
        let wide = Shape { racks: 6, engines_per_rack: 2, targets_per_engine: 2 };
        let narrow = Shape { racks: 3, engines_per_rack: 4, targets_per_engine: 2 };
        let fails =
            |per_year, delay_years, rebuild_years| Failing { per_year, delay_years, rebuild_years };
        let all = [fails(0.5, 0.002, 0.006), fails(0.3, 0.001, 0.01), fails(0.1, 0.004, 0.0)];
        let targets = [fails(1.0, 0.001, 0.009), fails(0.0, 0.0, 0.0), fails(0.0, 0.0, 0.0)];
        for (class, count, shape, failing, years) in [
            ("RP_2G1", 60, wide, targets, 20_000.0),
            ("RP_2GX", 400, wide, all, 10_000.0),
            ("RP_3G1", 40, wide, targets, 200_000.0),
            ("EC_2P1GX", 50, wide, all, 10_000.0),
            // Six members in three racks and on six of twelve engines: racks hold two members.
            ("EC_4P2G1", 30, narrow, all, 20_000.0),
            ("SX", 50, wide, all, 500.0),
        ] {
            let groups = Groups::place(class.parse().unwrap(), count, &shape.map()).unwrap();
            let survives = usize::from(groups.class.scheme.redundancy_factor());
            let sets = loss::fatal_sets(&groups, shape);
            let apart = groups.apart(shape);
            let formula = loss::losses_per_year(&sets, survives, shape, apart, &failing);
            let drawn = losses_per_year(&groups, shape, &failing, years, 7);
            let events = drawn * years;
            assert!(events > 100.0, "{class}: only {events} losses");
            let spread = 4.0 / events.sqrt();
            let ratio = formula / drawn;
            eprintln!("{class}: formula {formula:.4}, drawn {drawn:.4}, {events} losses");
            assert!((ratio - 1.0).abs() < 0.12 + spread, "{class}: {formula} but drawn {drawn}");
        }
    }
}
