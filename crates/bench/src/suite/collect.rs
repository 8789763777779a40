//! The figures of a suite as they come in, by name and round.

use super::say;
use crate::place::Where;
use crate::report::Spread;
use crate::table::{Table, rate};
use crate::{Phase, io};
use serde::{Deserialize, Serialize};
use std::io::Write;
use types::{Error, Result};

/// One figure over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    /// Unit of the values.
    pub unit: String,
    /// One per round.
    pub values: Vec<f64>,
}

/// Figures and failures so far.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    figures: Vec<Figure>,
    failures: Vec<(String, String)>,
}

impl Collector {
    /// Adds a round's value.
    pub fn put(&mut self, name: &str, unit: &str, value: f64) {
        match self.figures.iter_mut().find(|figure| figure.name == name) {
            Some(figure) => figure.values.push(value),
            None => self.figures.push(Figure {
                name: name.to_string(),
                unit: unit.to_string(),
                values: vec![value],
            }),
        }
    }

    /// Notes that a measurement failed; of several failures of one name the first is kept.
    pub fn fail(&mut self, name: &str, error: &Error) {
        if !self.failures.iter().any(|(known, _)| known == name) {
            self.failures.push((name.to_string(), error.to_string()));
        }
    }

    /// Runs an I/O pattern, puts a bandwidth for each of its phases, MiB/s, and says what they are. A failure is noted under
    /// `what`.
    ///
    /// Errors: when nothing can be printed.
    pub(crate) fn bandwidths(
        &mut self,
        what: &str,
        figure_name: &dyn Fn(Phase) -> String,
        options: &io::Options,
        place: &Where,
        out: &mut dyn Write,
    ) -> Result<()> {
        let report = match io::run(options, place, &mut std::io::sink()) {
            Ok(report) => report,
            Err(error) => {
                self.fail(what, &error);
                return say(out, &format!("  {what}: {error}"));
            }
        };
        let mut line = format!("  {what}:");
        for phase in report.summary {
            let value = phase.bytes_per_s.median / (1 << 20) as f64;
            self.put(&figure_name(phase.phase), "MiB/s", value);
            line.push_str(&format!(" {} {} MiB/s", phase.phase.name(), rate(value)));
        }
        say(out, &line)
    }

    /// The values of a figure; empty when it was never measured.
    pub fn values(&self, name: &str) -> &[f64] {
        values(&self.figures, name)
    }

    /// Quotients of two figures, round by round; see [`ratios`].
    pub fn ratios(&self, over: &str, under: &str) -> Vec<f64> {
        ratios(&self.figures, over, under)
    }

    /// Figures, and failures.
    pub fn into_parts(self) -> (Vec<Figure>, Vec<(String, String)>) {
        (self.figures, self.failures)
    }
}

/// The values of a figure; empty when it was never measured.
pub fn values<'a>(figures: &'a [Figure], name: &str) -> &'a [f64] {
    figures.iter().find(|figure| figure.name == name).map_or(&[], |figure| &figure.values)
}

/// Quotients of two figures, round by round. Rounds that one of them lacks do not count: the sides
/// are only comparable within a round, so nothing is given when one side failed in some rounds.
pub fn ratios(figures: &[Figure], over: &str, under: &str) -> Vec<f64> {
    let (over, under) = (values(figures, over), values(figures, under));
    if over.len() != under.len() {
        return Vec::new();
    }
    over.iter().zip(under).map(|(over, under)| over / under).collect()
}

/// The median over the rounds; `None` when there is none.
pub fn median(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| Spread::of(values).median)
}

/// All figures, for people.
pub fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new(&["figure", "median", "min", "max", "unit"]);
    for figure in figures {
        let spread = Spread::of(&figure.values);
        table.row(vec![
            figure.name.clone(),
            rate(spread.median),
            rate(spread.min),
            rate(spread.max),
            figure.unit.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_pair_rounds() {
        let mut all = Collector::default();
        for (ours, theirs) in [(1.0, 2.0), (9.0, 3.0)] {
            all.put("ours", "op/s", ours);
            all.put("theirs", "op/s", theirs);
        }
        assert_eq!(all.ratios("ours", "theirs"), [0.5, 3.0]);
        assert!(all.ratios("ours", "nothing").is_empty());
        all.put("ours", "op/s", 1.0);
        assert!(all.ratios("ours", "theirs").is_empty());
    }

    #[test]
    fn the_first_failure_of_a_name_is_kept() {
        let mut all = Collector::default();
        all.fail("x", &Error::inval("first"));
        all.fail("x", &Error::inval("second"));
        assert_eq!(all.into_parts().1, [("x".to_string(), "first".to_string())]);
    }
}
