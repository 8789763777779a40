//! The alternating part of a suite: each round runs every pattern once on each side.

use super::collect::Collector;
use super::pattern::{Pattern, put_sides};
use super::{Options, bed::Bed, hop, say, stream};
use crate::crew::{Crew, Job, Phase, Step};
use crate::place::Where;
use crate::report::PhaseResult;
use crate::store::{Kind, Load};
use crate::{io, md, servers};
use std::io::Write;
use types::{ObjClass, Result};

/// Bytes of each pool.
const POOL_BYTES: u64 = 8 << 30;
const MIB: u64 = 1 << 20;
/// Clients of the run that shows how many are served beside each other.
const MANY: u32 = 8;
/// Operations in flight on one connection.
const DEPTHS: [u32; 3] = [1, 16, 64];
/// Bytes of their values.
const VALUE_BYTES: u64 = 150;

/// One run of a round.
struct Run {
    /// What its figures' names begin and end with.
    pattern: &'static str,
    side: &'static str,
    place: Side,
    what: Pattern,
}

/// Where a run happens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Dfs,
    Tmpfs,
    Tcp,
    OneTarget,
    /// One target, over TCP.
    TcpOneTarget,
}

/// The runs of a round, in order: the sides of a ratio stand next to each other, so that both
/// see the same state of a shared machine.
fn plan(options: &Options) -> Vec<Run> {
    let processes = options.processes;
    let md_easy = |processes: u32| {
        let files = options.scaled(100_000, 20);
        Pattern::Md(md::Options {
            dir_class: Some(ObjClass::SX),
            ..md::Options::easy(processes, files)
        })
    };
    let md_hard = || {
        let files = options.scaled(30_000, 20);
        Pattern::Md(md::Options {
            dir_class: Some(ObjClass::SX),
            ..md::Options::hard(processes, files)
        })
    };
    let total_bytes = options.scaled(1024 * MIB, 2 * MIB);
    let io_easy = |processes: u32, file_per_process: bool, transfer_bytes: u64| {
        let transfers = (total_bytes / u64::from(processes) / transfer_bytes).max(1);
        let easy = io::Options::easy(processes, transfers * transfer_bytes);
        Pattern::Io(io::Options {
            transfer_bytes,
            file_per_process,
            class: Some(ObjClass::SX),
            ..easy
        })
    };
    let io_hard = || {
        let segments = (total_bytes / u64::from(processes) / 47_008).max(2);
        Pattern::Io(io::Options {
            class: Some(ObjClass::SX),
            ..io::Options::hard(processes, segments)
        })
    };
    let md_tcp = |processes: u32| {
        let files = options.scaled(40_000 / u64::from(processes), 20);
        Pattern::Md(md::Options {
            dir_class: Some(ObjClass::SX),
            ..md::Options::easy(processes, files)
        })
    };
    let io_tcp = |bytes: u64| {
        let transfers = (total_bytes / 2 / bytes).max(2);
        Pattern::Io(io::Options {
            processes: 1,
            transfer_bytes: bytes,
            block_bytes: transfers * bytes,
            class: Some(ObjClass::SX),
            ..io::Options::default()
        })
    };
    let run = |pattern, side, place, what| Run { pattern, side, place, what };
    vec![
        run("md easy", "dfs", Side::Dfs, md_easy(processes)),
        run("md easy", "tmpfs", Side::Tmpfs, md_easy(processes)),
        run("md easy", "one target", Side::OneTarget, md_easy(1)),
        run("md hard", "dfs", Side::Dfs, md_hard()),
        run("md hard", "tmpfs", Side::Tmpfs, md_hard()),
        run("io 1m", "tmpfs", Side::Tmpfs, io_easy(processes, true, MIB)),
        run("io 1m", "dfs", Side::Dfs, io_easy(processes, true, MIB)),
        run("io 1m shared", "dfs", Side::Dfs, io_easy(processes, false, MIB)),
        run("io 1m", "one target", Side::OneTarget, io_easy(1, true, MIB)),
        run("io hard", "dfs", Side::Dfs, io_hard()),
        run("io 64k", "dfs", Side::Dfs, io_easy(processes, false, 64 << 10)),
        run("io hard", "tmpfs", Side::Tmpfs, io_hard()),
        run("io 1m", "tcp", Side::Tcp, io_easy(processes, true, MIB)),
        run("md", "tcp x1", Side::TcpOneTarget, md_tcp(1)),
        run("md", "tcp x8", Side::Tcp, md_tcp(MANY)),
        run("io 47008", "tcp x1", Side::TcpOneTarget, io_tcp(47_008)),
        run("io 64k", "tcp x1", Side::TcpOneTarget, io_tcp(64 << 10)),
        run("io 1m", "tcp x1", Side::TcpOneTarget, io_tcp(MIB)),
    ]
}

/// Names of all figures of a round.
#[cfg(test)]
pub fn figure_names() -> Vec<String> {
    let mut names = vec!["bare tcp stream".to_string()];
    names.extend(hop::figure_names());
    names.extend(DEPTHS.map(depth_name));
    for run in plan(&Options::default()) {
        for phase in run.what.phases() {
            let figure = format!("{} {phase} {}", run.pattern, run.side);
            if matches!(run.place, Side::Tcp | Side::TcpOneTarget) {
                names.push(format!("{figure} evenness"));
            }
            names.push(figure);
        }
    }
    names
}

/// Measures all rounds.
pub fn measure(
    options: &Options,
    bed: &Bed,
    all: &mut Collector,
    out: &mut dyn Write,
) -> Result<()> {
    let dfs = bed.make_files("rounds", POOL_BYTES, false)?;
    let one_target = bed.make_files("one-target", POOL_BYTES, true)?;
    let tcp = over_tcp(&dfs);
    let tcp_one_target = over_tcp(&one_target);
    let tmpfs = bed.yardstick();
    for round in 1..=options.rounds {
        say(out, &format!("round {round} of {}", options.rounds))?;
        for run in plan(options) {
            let place = match run.place {
                Side::Dfs => &dfs,
                Side::Tmpfs => &tmpfs,
                Side::Tcp => &tcp,
                Side::OneTarget => &one_target,
                Side::TcpOneTarget => &tcp_one_target,
            };
            let over_tcp = matches!(run.place, Side::Tcp | Side::TcpOneTarget);
            run.what.run((run.pattern, run.side), place, all, out, |figure, phase, all| {
                all.put(&format!("{figure} cpu"), "µs/op", phase.cpu_us_per_op());
                if over_tcp {
                    put_sides(figure, phase, all);
                    all.put(&format!("{figure} evenness"), "x", phase.evenness);
                }
            })?;
        }
        let pieces = options.scaled(1024, 4);
        match stream::bytes_per_s(MIB as usize, pieces) {
            Ok(rate) => all.put("bare tcp stream", "MiB/s", rate / MIB as f64),
            Err(error) => all.fail("bare tcp stream", &error),
        }
        say(out, "  bare exchanges")?;
        hop::measure(bed, options.processes, &|amount, min| options.scaled(amount, min), all);
        say(out, "  operations in flight over tcp")?;
        for depth in DEPTHS {
            if let Err(error) = in_flight(options, &tcp_one_target, (round, depth), all) {
                all.fail(&depth_name(depth), &error);
            }
        }
    }
    for label in ["rounds", "one-target"] {
        if let Err(error) = bed.remove_files(label) {
            all.fail(&format!("removing pool {label}"), &error);
        }
    }
    Ok(())
}

fn over_tcp(place: &Where) -> Where {
    let mut place = place.clone();
    if let Where::Dfs { tcp_only, .. } = &mut place {
        *tcp_only = true;
    }
    place
}

fn depth_name(depth: u32) -> String {
    format!("updates tcp, {depth} in flight")
}

/// Small updates of one process on one connection, so many at a time.
fn in_flight(
    options: &Options,
    place: &Where,
    (round, depth): (u32, u32),
    all: &mut Collector,
) -> Result<()> {
    let load = Load { kind: Kind::Updates, bytes: VALUE_BYTES, depth };
    let mut crew = Crew::start(&Job::Store(load), place, 1)?;
    // Tells the objects of all runs apart.
    let iteration = round * 1000 + depth;
    let item_count = options.scaled(40_000, 100);
    let step = Step { phase: Phase::Write, iteration, item_count, wall_ns: None };
    let done = crew.run(step, &servers::local_pids(place)?)?;
    crew.finish()?;
    let result = PhaseResult::from_samples(Phase::Write, 0, &done);
    put_sides(&depth_name(depth), &result, all);
    all.put(&depth_name(depth), "op/s", result.ops_per_s);
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
                for run in plan(&options) {
                    run.what.check().unwrap();
                }
            }
        }
    }

    #[test]
    fn no_two_figures_have_one_name() {
        let mut names = figure_names();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    /// [`figure_names`] lists all phases; a plan that leaves one out would feed no figure.
    #[test]
    fn the_phases_of_a_plan_are_those_its_options_run() {
        for run in plan(&Options::default()) {
            match &run.what {
                Pattern::Md(options) => {
                    assert!(options.create && options.stat && options.read && options.remove);
                }
                Pattern::Io(options) => assert!(options.write && options.read && !options.keep),
            }
        }
    }
}
