//! What one run of a suite does: names or data, by which options.

use super::collect::Collector;
use super::say;
use crate::place::Where;
use crate::report::PhaseResult;
use crate::{io, md};
use std::io::Write;
use types::Result;

const MIB: f64 = (1 << 20) as f64;

/// A pattern with its options.
pub enum Pattern {
    Md(md::Options),
    Io(io::Options),
}

impl Pattern {
    /// Names of its phases.
    #[cfg(test)]
    pub fn phases(&self) -> &'static [&'static str] {
        match self {
            Pattern::Md(_) => &["create", "stat", "read", "remove"],
            Pattern::Io(_) => &["write", "read"],
        }
    }

    /// Errors: `Inval` for options that cannot be run.
    #[cfg(test)]
    pub fn check(&self) -> Result<()> {
        match self {
            Pattern::Md(options) => options.check(),
            Pattern::Io(options) => options.check(),
        }
    }

    /// Runs it. The rate of each phase becomes the figure `NAME PHASE SIDE`, and `more` adds what else is told of it. A failure is
    /// noted.
    ///
    /// Errors: when nothing can be printed.
    pub fn run(
        &self,
        (name, side): (&str, &str),
        place: &Where,
        all: &mut Collector,
        out: &mut dyn Write,
        more: impl Fn(&str, &PhaseResult, &mut Collector),
    ) -> Result<()> {
        let mut quiet = std::io::sink();
        let phases = match self {
            Pattern::Md(options) => md::run(options, place, &mut quiet).map(|of| of.phases),
            Pattern::Io(options) => io::run(options, place, &mut quiet).map(|of| of.phases),
        };
        let phases = match phases {
            Ok(phases) => phases,
            Err(error) => {
                all.fail(&format!("{name} {side}"), &error);
                return say(out, &format!("  {name} {side}: {error}"));
            }
        };
        let mut line = format!("  {name} {side}:");
        for phase in phases {
            let (rate, unit) = match self {
                Pattern::Md(_) => (phase.ops_per_s, "op/s"),
                Pattern::Io(_) => (phase.bytes_per_s / MIB, "MiB/s"),
            };
            let figure = format!("{name} {} {side}", phase.phase.name());
            all.put(&figure, unit, rate);
            more(&figure, &phase, all);
            line.push_str(&format!(" {} {}", phase.phase.name(), crate::table::rate(rate)));
        }
        say(out, &line)
    }
}

/// What an operation costs each of the two sides.
pub fn put_sides(figure: &str, result: &PhaseResult, all: &mut Collector) {
    all.put(&format!("{figure} client cpu"), "µs/op", result.client_cpu_us_per_op);
    if let Some(cpu) = result.server_cpu_us_per_op {
        all.put(&format!("{figure} engine cpu"), "µs/op", cpu);
    }
}
