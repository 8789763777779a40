//! Experiments of the evaluation of DAOS with the patterns of IO500 ("Scalability of DAOS storage performance"), section by section: bandwidth by
//! devices (5.1), by tasks and transfer size (5.2), of IOR-hard by engines (5.3), by object class (5.4, [`classes`]); metadata rates by targets of an
//! engine (6.1), and by engines (6.2).
//!
//! What counts is how a figure grows from the first point of its curve within a round; the published growth stands beside it. Where more engines or
//! targets are started than there are processors, they share these, and the report says so.

pub mod classes;
mod plan;
mod report;

pub use plan::{Experiment, Options};
pub use report::{Point, Report};

use crate::report::{write_json, write_text};
use crate::suite::bed::Bed;
use crate::suite::collect::Collector;
use crate::suite::say;
use crate::table::rate;
use crate::{Phase, Where, io, md};
use plan::{Run, Setup, Work};
use std::io::Write;
use std::path::Path;
use types::Result;

/// Runs an experiment. `binary` is the `azekura` command, expected to be this very program.
///
/// Errors: when no system can be started, or the results cannot be written. Failed measurements are in the report.
pub fn run(options: &Options, binary: &Path, out: &mut dyn Write) -> Result<Report> {
    options.check()?;
    let mut all = Collector::default();
    for round in 1..=options.rounds {
        say(out, &format!("round {round} of {}", options.rounds))?;
        for setup in options.setups() {
            measure(options, &setup, binary, &mut all, out)?;
        }
    }
    let report = Report::new(options, all);
    say(out, &report.table().to_string())?;
    for sentence in report.sentences() {
        say(out, &sentence)?;
    }
    for (name, error) in &report.failures {
        say(out, &format!("failed: {name}: {error}"))?;
    }
    if let Some(path) = &options.plot {
        write_text(path, &report.svg())?;
        write_json(&path.with_extension("json"), &report)?;
    }
    Ok(report)
}

/// Starts a system and makes all that is measured on it.
fn measure(
    options: &Options,
    setup: &Setup,
    binary: &Path,
    all: &mut Collector,
    out: &mut dyn Write,
) -> Result<()> {
    let rates: Vec<u64> = setup.rate_max.into_iter().collect();
    let bed = Bed::start_held(setup.size, &rates, &options.dir, binary, setup.durability())?;
    let place = bed.make_files("s4", options.pool_bytes(setup.size), false)?;
    // One run before all others is not counted: whoever comes first pays for memory that was never used.
    if let Some(first) = setup.runs.first() {
        let _ = figures(first, &place);
    }
    for run in &setup.runs {
        let what = run.name();
        if setup.rate_max.is_some() {
            let writers = if run.one_writer { "1" } else { "off" };
            bed.set_prop("s4", "ioc_max_writers", writers)?;
        }
        match figures(run, &place) {
            Ok(found) => {
                let mut line = format!("  {what}:");
                for (phase, unit, value) in found {
                    all.put(&run.figure_name(phase), unit, value);
                    line.push_str(&format!(" {phase} {} {unit}", rate(value)));
                }
                say(out, &line)?;
            }
            Err(error) => {
                all.fail(&what, &error);
                say(out, &format!("  {what}: {error}"))?;
            }
        }
    }
    Ok(())
}

/// What a run comes to: what it is, unit, value.
fn figures(run: &Run, place: &Where) -> Result<Vec<(&'static str, &'static str, f64)>> {
    let mut place = place.clone();
    if let Where::Dfs { tcp_only, .. } = &mut place {
        *tcp_only = run.tcp_only;
    }
    match &run.work {
        Work::Io(options) => {
            let report = io::run(options, &place, &mut std::io::sink())?;
            let bandwidth = |phase: Phase| {
                let summary = report.phase(phase)?;
                Some((phase.name(), "MiB/s", summary.bytes_per_s.median / (1 << 20) as f64))
            };
            Ok([Phase::Write, Phase::Read].into_iter().filter_map(bandwidth).collect())
        }
        Work::Md { easy, hard } => {
            let mut rates = Vec::new();
            for (options, phases) in [(easy, plan::EASY_PHASES), (hard, plan::HARD_PHASES)] {
                let report = md::run(options, &place, &mut std::io::sink())?;
                let of = |phase: &Phase| report.phase(*phase).map(|s| s.ops_per_s.median);
                rates.extend(phases.iter().filter_map(of));
            }
            Ok(vec![("score", "K/s", plan::score(&rates) / 1000.0)])
        }
    }
}
