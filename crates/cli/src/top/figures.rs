//! Figures of an engine as Prometheus gets them, and what happened between two looks at them.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One line of the figures: name, labels, value.
#[derive(Clone, PartialEq, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// All figures of an engine at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figures(Vec<Sample>);

/// What was done between two looks, per second.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Rates {
    pub ops_per_s: f64,
    pub failed_per_s: f64,
    /// Data that came, and that went.
    pub received_bytes_per_s: f64,
    pub sent_bytes_per_s: f64,
    /// Requests under way, and transfers that wait to be let in.
    pub running: u64,
    pub waiting: u64,
    pub clients: u64,
    /// From the arrival of a batch until its answer has left, seconds; missing when there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_mean_s: Option<f64>,
    /// 99 of 100 took no longer than this; of a histogram, so it is the end of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p99_s: Option<f64>,
}

/// What a target did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TargetRates {
    pub target: u32,
    /// It has told its figures.
    pub answers: bool,
    #[serde(flatten)]
    pub rates: Rates,
}

/// A label with its value: whose figures are meant.
pub type By<'a> = (&'a str, &'a str);

/// Reads `{a="b",c="d"}`; `None` when it is something else.
fn labels(text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((found, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        loop {
            match chars.next()? {
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (at, '"') => {
                    rest = &after[at + 1..];
                    break;
                }
                (_, c) => value.push(c),
            }
        }
        found.insert(name.to_string(), value);
    }
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_string(), labels, value })
}

impl Figures {
    /// Reads the text; lines that make no sense are left out.
    pub fn parse(text: &str) -> Figures {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Figures(lines.filter_map(sample).collect())
    }

    fn of<'a>(&'a self, name: &'a str, by: Option<By<'a>>) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| {
            let is_meant =
                |(label, value): By<'_>| sample.labels.get(label).is_some_and(|of| of == value);
            sample.name == name && by.is_none_or(is_meant)
        })
    }

    /// Sum of a figure over all that have this label, or over all.
    pub fn sum(&self, name: &str, by: Option<By<'_>>) -> f64 {
        self.of(name, by).map(|sample| sample.value).sum()
    }

    /// The values that a label has in a figure.
    pub fn values(&self, name: &str, label: &str) -> BTreeSet<String> {
        let values = self.of(name, None).filter_map(|sample| sample.labels.get(label));
        values.cloned().collect()
    }

    /// A figure of the engine itself.
    pub fn one(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|sample| sample.name == name).map(|sample| sample.value)
    }

    /// Adds the counts up to the ends of the steps of the latency's histogram, over all pools and operations.
    fn add_steps(&self, by: Option<By<'_>>, steps: &mut BTreeMap<u64, (f64, f64)>) {
        for sample in self.of("azekura_operation_seconds_bucket", by) {
            let end = match sample.labels.get("le").map(String::as_str) {
                Some("+Inf") => f64::INFINITY,
                Some(end) => end.parse().unwrap_or(f64::INFINITY),
                None => continue,
            };
            // Positive numbers are ordered as their bits.
            steps.entry(end.to_bits()).or_insert((end, 0.0)).1 += sample.value;
        }
    }

    /// What each target did since `before`, `seconds` ago.
    pub fn target_rates(&self, before: &Figures, seconds: f64) -> Vec<TargetRates> {
        let targets = self.0.iter().filter(|sample| sample.name == "azekura_target_answers");
        let all = targets.filter_map(|sample| {
            let target = sample.labels.get("target")?;
            let rates = rates(&[(before, self)], seconds, Some(("target", target)));
            Some(TargetRates { target: target.parse().ok()?, answers: sample.value == 1.0, rates })
        });
        let mut all: Vec<TargetRates> = all.collect();
        all.sort_by_key(|rates| rates.target);
        all
    }
}

/// What was done between looks at some engines, `seconds` apart, by all that have a label.
pub fn rates(looks: &[(&Figures, &Figures)], seconds: f64, by: Option<By<'_>>) -> Rates {
    let grown = |name: &str| -> f64 {
        let of_engine = |(before, now): &(&Figures, &Figures)| {
            let (now, then) = (now.sum(name, by), before.sum(name, by));
            // One that was started again counts from nothing.
            if now >= then { now - then } else { now }
        };
        looks.iter().map(of_engine).sum()
    };
    let now = |name: &str| looks.iter().map(|(_, now)| now.sum(name, by)).sum::<f64>() as u64;
    let (mut then, mut steps) = (BTreeMap::new(), BTreeMap::new());
    for (before, now) in looks {
        before.add_steps(by, &mut then);
        now.add_steps(by, &mut steps);
    }
    let (then, steps): (Vec<_>, Vec<_>) =
        (then.into_values().collect(), steps.into_values().collect());
    let count = grown("azekura_operation_seconds_count");
    Rates {
        ops_per_s: count / seconds,
        failed_per_s: grown("azekura_operations_failed_total") / seconds,
        received_bytes_per_s: grown("azekura_received_bytes_total") / seconds,
        sent_bytes_per_s: grown("azekura_sent_bytes_total") / seconds,
        running: now("azekura_target_requests_running"),
        waiting: now("azekura_admission_waiting"),
        clients: now("azekura_target_clients"),
        latency_mean_s: (count > 0.0).then(|| grown("azekura_operation_seconds_sum") / count),
        latency_p99_s: p99(&then, &steps),
    }
}

/// The end of the step within which 99 of 100 of what was counted between two looks lie.
fn p99(before: &[(f64, f64)], now: &[(f64, f64)]) -> Option<f64> {
    let then = |end: f64| before.iter().find(|(of, _)| *of == end).map_or(0.0, |(_, count)| *count);
    let is_new = now.iter().any(|(end, count)| *count < then(*end));
    let grown =
        |(end, count): &(f64, f64)| (*end, if is_new { *count } else { count - then(*end) });
    let grown: Vec<(f64, f64)> = now.iter().map(grown).collect();
    let (_, all) = grown.last().filter(|(_, all)| *all > 0.0)?;
    let (end, _) = grown.iter().find(|(_, count)| *count >= 0.99 * all)?;
    end.is_finite().then_some(*end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(count: u64, slow: u64) -> String {
        format!(
            "# HELP x y\nazekura_engine_rank 3\nazekura_target_answers{{target=\"1\"}} 1\n\
             azekura_target_answers{{target=\"0\"}} 0\n\
             azekura_operation_seconds_bucket{{target=\"1\",pool=\"a\\\"}},b\",op=\"x\",le=\"0.001\"}} {count}\n\
             azekura_operation_seconds_bucket{{target=\"1\",pool=\"a\\\"}},b\",op=\"x\",le=\"0.1\"}} {all}\n\
             azekura_operation_seconds_bucket{{target=\"1\",pool=\"a\\\"}},b\",op=\"x\",le=\"+Inf\"}} {all}\n\
             azekura_operation_seconds_count{{target=\"1\",op=\"x\"}} {count}\n\
             azekura_operation_seconds_count{{target=\"1\",op=\"y\"}} {slow}\n\
             azekura_operation_seconds_sum{{target=\"1\",op=\"x\"}} {sum}\n\
             azekura_received_bytes_total{{target=\"1\",op=\"x\"}} {bytes}\n\
             azekura_target_requests_running{{target=\"1\"}} 2\nnonsense{{\nazekura_x{{a=\"\n",
            all = count + slow,
            sum = 0.5 * (count + slow) as f64,
            bytes = count * 1000,
        )
    }

    #[test]
    fn rates_are_what_has_grown() {
        let (before, now) = (Figures::parse(&text(100, 0)), Figures::parse(&text(290, 10)));
        assert_eq!(now.one("azekura_engine_rank"), Some(3.0));
        let told = now.target_rates(&before, 2.0);
        assert_eq!((told[0].target, told[0].answers), (0, false));
        assert_eq!(told[0].rates.latency_mean_s, None);
        let one = &told[1].rates;
        assert_eq!((told[1].target, told[1].answers, one.running), (1, true, 2));
        assert_eq!((one.ops_per_s, one.received_bytes_per_s), (100.0, 95_000.0));
        assert_eq!((one.latency_mean_s, one.latency_p99_s), (Some(0.5), Some(0.1)));
        // All within the first step.
        let quick = Figures::parse(&text(300, 0)).target_rates(&before, 1.0);
        assert_eq!(quick[1].rates.latency_p99_s, Some(0.001));
        // The engine was started again.
        let again = &Figures::parse(&text(20, 0)).target_rates(&now, 1.0)[1].rates;
        assert_eq!((again.ops_per_s, again.latency_p99_s), (20.0, Some(0.001)));
        // Nothing happened.
        assert_eq!(now.target_rates(&now, 1.0)[1].rates.latency_p99_s, None);
    }

    #[test]
    fn engines_are_added_by_label() {
        let (before, now) = (Figures::parse(&text(100, 0)), Figures::parse(&text(290, 10)));
        let values = now.values("azekura_operation_seconds_bucket", "pool");
        assert_eq!(values.iter().collect::<Vec<_>>(), ["a\"},b"]);
        let both = rates(&[(&before, &now), (&before, &now)], 2.0, None);
        assert_eq!((both.ops_per_s, both.running), (200.0, 4));
        assert_eq!((both.latency_mean_s, both.latency_p99_s), (Some(0.5), Some(0.1)));
        let none = rates(&[(&before, &now)], 2.0, Some(("pool", "b")));
        assert_eq!(none, Rates::default());
    }
}
