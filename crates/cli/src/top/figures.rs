//! Figures of an engine as Prometheus gets them, and what happened between two looks at them.

use serde::Serialize;
use std::collections::BTreeMap;

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

/// What a target did between two looks, per second.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TargetRates {
    pub target: u32,
    /// It has told its figures.
    pub answers: bool,
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

    fn of<'a>(&'a self, name: &'a str, target: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| {
            sample.name == name && sample.labels.get("target").is_some_and(|of| of == target)
        })
    }

    fn sum(&self, name: &str, target: &str) -> f64 {
        self.of(name, target).map(|sample| sample.value).sum()
    }

    /// A figure of the engine itself.
    pub fn one(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|sample| sample.name == name).map(|sample| sample.value)
    }

    /// Ends of the steps of the latency's histogram with the counts up to them, over all pools and operations.
    fn steps(&self, target: &str) -> Vec<(f64, f64)> {
        let mut steps: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for sample in self.of("azekura_operation_seconds_bucket", target) {
            let end = match sample.labels.get("le").map(String::as_str) {
                Some("+Inf") => f64::INFINITY,
                Some(end) => end.parse().unwrap_or(f64::INFINITY),
                None => continue,
            };
            // Positive numbers are ordered as their bits.
            steps.entry(end.to_bits()).or_insert((end, 0.0)).1 += sample.value;
        }
        steps.into_values().collect()
    }

    /// What each target did since `before`, `seconds` ago.
    pub fn rates(&self, before: &Figures, seconds: f64) -> Vec<TargetRates> {
        let targets = self.0.iter().filter(|sample| sample.name == "azekura_target_answers");
        let rates = targets.filter_map(|sample| {
            let target = sample.labels.get("target")?;
            let grown = |name: &str| {
                let (now, then) = (self.sum(name, target), before.sum(name, target));
                // One that was started again counts from nothing.
                if now >= then { now - then } else { now }
            };
            let count = grown("azekura_operation_seconds_count");
            let waiting = self.sum("azekura_admission_waiting", target);
            Some(TargetRates {
                target: target.parse().ok()?,
                answers: sample.value == 1.0,
                ops_per_s: count / seconds,
                failed_per_s: grown("azekura_operations_failed_total") / seconds,
                received_bytes_per_s: grown("azekura_received_bytes_total") / seconds,
                sent_bytes_per_s: grown("azekura_sent_bytes_total") / seconds,
                running: self.sum("azekura_target_requests_running", target) as u64,
                waiting: waiting as u64,
                clients: self.sum("azekura_target_clients", target) as u64,
                latency_mean_s: (count > 0.0)
                    .then(|| grown("azekura_operation_seconds_sum") / count),
                latency_p99_s: p99(&before.steps(target), &self.steps(target)),
            })
        });
        let mut rates: Vec<TargetRates> = rates.collect();
        rates.sort_by_key(|rates| rates.target);
        rates
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
        let rates = now.rates(&before, 2.0);
        assert_eq!((rates[0].target, rates[0].answers, rates[0].latency_mean_s), (0, false, None));
        let one = &rates[1];
        assert_eq!((one.target, one.answers, one.running), (1, true, 2));
        assert_eq!((one.ops_per_s, one.received_bytes_per_s), (100.0, 95_000.0));
        assert_eq!((one.latency_mean_s, one.latency_p99_s), (Some(0.5), Some(0.1)));
        // All within the first step.
        let quick = Figures::parse(&text(300, 0)).rates(&before, 1.0);
        assert_eq!(quick[1].latency_p99_s, Some(0.001));
        // The engine was started again.
        let again = Figures::parse(&text(20, 0)).rates(&now, 1.0);
        assert_eq!((again[1].ops_per_s, again[1].latency_p99_s), (20.0, Some(0.001)));
        // Nothing happened.
        assert_eq!(now.rates(&now, 1.0)[1].latency_p99_s, None);
    }
}
