//! The alternating part of a suite: each round runs every pattern once on each side.

use super::collect::Collector;
use super::{Options, bed::Bed, say, stream};
use crate::place::Where;
use crate::{io, md};
use std::io::Write;
use types::{ObjClass, Result};

/// Bytes of each pool.
const POOL_BYTES: u64 = 8 << 30;
const MIB: u64 = 1 << 20;

/// One run of a round.
struct Run {
    /// What its figures' names begin and end with.
    pattern: &'static str,
    side: &'static str,
    place: Side,
    what: What,
}

/// Where a run happens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Dfs,
    Tmpfs,
    Tcp,
    OneTarget,
}

enum What {
    Md(md::Options),
    Io(io::Options),
}

/// The runs of a round, in order: the sides of a ratio stand next to each other, so that both
/// see the same state of a shared machine.
fn plan(options: &Options) -> Vec<Run> {
    let processes = options.processes;
    let md_easy = |processes: u32| {
        let files = options.scaled(100_000, 20);
        What::Md(md::Options {
            dir_class: Some(ObjClass::SX),
            ..md::Options::easy(processes, files)
        })
    };
    let md_hard = || {
        let files = options.scaled(30_000, 20);
        What::Md(md::Options {
            dir_class: Some(ObjClass::SX),
            ..md::Options::hard(processes, files)
        })
    };
    let total_bytes = options.scaled(1024 * MIB, 2 * MIB);
    let io_easy = |processes: u32, file_per_process: bool, transfer_bytes: u64| {
        let transfers = (total_bytes / u64::from(processes) / transfer_bytes).max(1);
        let easy = io::Options::easy(processes, transfers * transfer_bytes);
        What::Io(io::Options {
            transfer_bytes,
            file_per_process,
            class: Some(ObjClass::SX),
            ..easy
        })
    };
    let io_hard = || {
        let segments = (total_bytes / u64::from(processes) / 47_008).max(2);
        What::Io(io::Options {
            class: Some(ObjClass::SX),
            ..io::Options::hard(processes, segments)
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
    ]
}

/// Names of all figures of a round.
#[cfg(test)]
pub fn figure_names() -> Vec<String> {
    let mut names = vec!["bare tcp stream".to_string()];
    for run in plan(&Options::default()) {
        let phases: &[&str] = match &run.what {
            What::Md(_) => &["create", "stat", "read", "remove"],
            What::Io(_) => &["write", "read"],
        };
        for phase in phases {
            names.push(format!("{} {phase} {}", run.pattern, run.side));
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
    let tcp = match &dfs {
        Where::Dfs { system, pool, cont, dir, .. } => Where::Dfs {
            system: system.clone(),
            pool: pool.clone(),
            cont: cont.clone(),
            dir: dir.clone(),
            tcp_only: true,
        },
        Where::Posix(_) | Where::PosixWith { .. } => dfs.clone(),
    };
    let tmpfs = bed.yardstick();
    for round in 1..=options.rounds {
        say(out, &format!("round {round} of {}", options.rounds))?;
        for run in plan(options) {
            let place = match run.place {
                Side::Dfs => &dfs,
                Side::Tmpfs => &tmpfs,
                Side::Tcp => &tcp,
                Side::OneTarget => &one_target,
            };
            one(&run, place, all, out)?;
        }
        let pieces = options.scaled(1024, 4);
        match stream::bytes_per_s(MIB as usize, pieces) {
            Ok(rate) => all.put("bare tcp stream", "MiB/s", rate / MIB as f64),
            Err(error) => all.fail("bare tcp stream", &error),
        }
    }
    for label in ["rounds", "one-target"] {
        if let Err(error) = bed.remove_files(label) {
            all.fail(&format!("removing pool {label}"), &error);
        }
    }
    Ok(())
}

/// One run; its rates and CPU times become figures.
fn one(run: &Run, place: &Where, all: &mut Collector, out: &mut dyn Write) -> Result<()> {
    let name = format!("{} {}", run.pattern, run.side);
    let mut quiet = std::io::sink();
    let (summary, is_io) = match &run.what {
        What::Md(options) => {
            (md::run(options, place, &mut quiet).map(|report| report.summary), false)
        }
        What::Io(options) => {
            (io::run(options, place, &mut quiet).map(|report| report.summary), true)
        }
    };
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => {
            say(out, &format!("  {name}: {error}"))?;
            all.fail(&name, &error);
            return Ok(());
        }
    };
    let mut line = format!("  {name}:");
    for phase in summary {
        let (rate, unit) = match is_io {
            true => (phase.bytes_per_s.median / MIB as f64, "MiB/s"),
            false => (phase.ops_per_s.median, "op/s"),
        };
        let figure = format!("{} {} {}", run.pattern, phase.phase.name(), run.side);
        all.put(&figure, unit, rate);
        all.put(&format!("{figure} cpu"), "µs/op", phase.cpu_us_per_op.median);
        line.push_str(&format!(" {} {}", phase.phase.name(), crate::table::rate(rate)));
    }
    say(out, &line)
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
                    match &run.what {
                        What::Md(options) => options.check().unwrap(),
                        What::Io(options) => options.check().unwrap(),
                    }
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
                What::Md(options) => {
                    assert!(options.create && options.stat && options.read && options.remove);
                }
                What::Io(options) => assert!(options.write && options.read && !options.keep),
            }
        }
    }
}
