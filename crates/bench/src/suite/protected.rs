//! What copies and codes cost: the same patterns by object class, by turns, on three engines.
//!
//! What an engine without company writes once, others write twice or three times on the same processors: the goals are shares of what the class without
//! protection reaches in the same round.

use super::bed::{Bed, Size};
use super::collect::Collector;
use super::pattern::{Pattern, put_sides};
use super::{Options, say};
use crate::{io, md};
use std::io::Write;
use std::path::Path;
use types::{Durability, GroupCount, ObjClass, Result, Scheme};

/// One target each: members of a group lie on different engines.
const SIZE: Size = Size { engines: 3, targets: 1 };
/// Half of it is for data. What one class has removed comes back while the next writes, and what is coded is kept in copies first.
const POOL_BYTES: u64 = 14 << 30;
const MIB: u64 = 1 << 20;

const fn class(scheme: Scheme) -> ObjClass {
    ObjClass { scheme, groups: GroupCount::All }
}

const CODED: ObjClass = class(Scheme::ErasureCoded { data: 2, parity: 1 });
/// The one without protection comes first.
const CLASSES: [ObjClass; 4] = [
    ObjClass::SX,
    class(Scheme::Replicated { copies: 2 }),
    class(Scheme::Replicated { copies: 3 }),
    CODED,
];

/// A pattern with one class; names are of its figures.
struct Run {
    pattern: &'static str,
    class: ObjClass,
    what: Pattern,
}

/// The runs of a round: all classes of a pattern stand next to each other, and another one begins in each round.
fn plan(options: &Options, round: u32) -> Vec<Run> {
    let processes = options.processes;
    let total_bytes = options.scaled(192 * MIB, 2 * MIB);
    let per_process = |transfer_bytes: u64| {
        (total_bytes / u64::from(processes) / transfer_bytes).max(2) * transfer_bytes
    };
    let easy = io::Options::easy(processes, per_process(MIB));
    let hard = io::Options::hard(processes, per_process(47_008) / 47_008);
    let small = io::Options {
        transfer_bytes: 4096,
        block_bytes: options.scaled(10_000, 2) * 4096,
        random: true,
        ..io::Options::easy(processes, 4096)
    };
    let names = md::Options::easy(processes, options.scaled(20_000, 20));
    let mut runs = Vec::new();
    let mut add = |pattern, what_of: &dyn Fn(ObjClass) -> Option<Pattern>| {
        let first = (round.saturating_sub(1)) as usize % CLASSES.len();
        let turns = (0..CLASSES.len()).map(|at| CLASSES[(first + at) % CLASSES.len()]);
        for class in turns {
            runs.extend(what_of(class).map(|what| Run { pattern, class, what }));
        }
    };
    let of = |io: &io::Options| {
        let io = io.clone();
        move |class| Some(Pattern::Io(io::Options { class: Some(class), ..io.clone() }))
    };
    add("io 1m", &of(&easy));
    add("io hard", &of(&hard));
    add("io 4k", &of(&small));
    // Names are kept in copies wherever data are coded.
    add("md", &|class: ObjClass| {
        let one = ObjClass { groups: GroupCount::Count(1), ..class };
        let md = md::Options { dir_class: Some(class), class: Some(one), ..names.clone() };
        (class != CODED).then_some(Pattern::Md(md))
    });
    runs
}

/// Names of all figures of a round.
#[cfg(test)]
pub fn figure_names() -> Vec<String> {
    let mut names = Vec::new();
    for run in plan(&Options::default(), 1) {
        for phase in run.what.phases() {
            let figure = format!("{} {phase} {}", run.pattern, run.class);
            names.push(format!("{figure} engine cpu"));
            names.push(figure);
        }
    }
    names
}

/// Measures all rounds, on a system of its own.
///
/// Errors: when that cannot be started, or nothing printed.
pub fn measure(
    options: &Options,
    binary: &Path,
    all: &mut Collector,
    out: &mut dyn Write,
) -> Result<()> {
    let bed = Bed::start_of(SIZE, &options.dir, binary, Durability::Memory)?;
    let place = bed.make_files("protected", POOL_BYTES, false)?;
    // One before the first is not counted: whoever comes first would pay for memory that was never used.
    for round in 0..=options.rounds {
        match round {
            0 => say(out, "copies and codes: warming up")?,
            _ => say(out, &format!("copies and codes: round {round} of {}", options.rounds))?,
        }
        let mut uncounted = Collector::default();
        let all = if round == 0 { &mut uncounted } else { &mut *all };
        for run in plan(options, round) {
            run.what.run((run.pattern, &run.class.to_string()), &place, all, out, put_sides)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_sound_at_every_scale() {
        for scale in [1e-9, 1e-3, 1.0, 10.0] {
            for processes in [2, 3, 64] {
                let options = Options { scale, processes, ..Options::default() };
                for run in plan(&options, 3) {
                    run.what.check().unwrap();
                }
            }
        }
    }

    #[test]
    fn each_round_has_all_runs_and_another_class_first() {
        let options = Options::default();
        let runs = |round| {
            plan(&options, round).into_iter().map(|run| (run.pattern, run.class.to_string()))
        };
        let mut first: Vec<_> = runs(1).collect();
        let mut second: Vec<_> = runs(2).collect();
        assert_eq!(first[0].1, "SX");
        assert_eq!(second[0].1, "RP_2GX");
        first.sort();
        second.sort();
        assert_eq!(first, second);
        assert_eq!(first.len(), 15);
    }

    #[test]
    fn no_two_figures_have_one_name() {
        let mut names = figure_names();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
