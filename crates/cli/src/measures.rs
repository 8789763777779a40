//! What was measured of targets, as `azekura system measure` and `azekura pool query` show it.

use crate::output::{Table, utc};
use placement::{Measured, score};
use serde::Serialize;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::TargetId;
use wire::measure::{Measures, Network, Past, Speed, Standing};

/// What is known of a target.
#[derive(Serialize)]
pub struct TargetMeasures {
    target: u32,
    rank: u32,
    /// Room on its data devices, bytes; `null`: no answer.
    free_bytes: Option<u64>,
    /// `null`: not measured yet.
    measures: Option<MeasuresReport>,
    /// How fast it and other engines reach each other; `null`: not known, and it does not count in the score.
    network: Option<NetworkReport>,
    /// How fast clients reach it, as they have seen it; `null`: none has told.
    clients: Option<NetworkReport>,
    /// `free * min((read * 1.02 + write) / 2.01, network)`, KB²/s; `null`: not measured yet.
    score: Option<u64>,
    /// Why there is nothing, where a target gave no answer or could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct MeasuresReport {
    /// UTC.
    at: String,
    age_s: u64,
    bytes: u64,
    /// `false`: what was read may have come out of memory.
    is_direct: bool,
    read: Speed,
    write: Speed,
    random_reads_s: u64,
    random_writes_s: u64,
    memory: Speed,
    /// What the devices did before they became slow, KB/s; `null`: they did not.
    past: Option<Past>,
}

#[derive(Serialize)]
struct NetworkReport {
    /// UTC, of the oldest link.
    at: String,
    age_s: u64,
    /// Engines, or clients, at the other end.
    links: u32,
    /// Of the link in the middle; least and most of all.
    speed: Speed,
}

impl NetworkReport {
    fn of(network: Network) -> NetworkReport {
        NetworkReport {
            at: utc(network.at_ns as i64),
            age_s: age_of(network.at_ns).as_secs(),
            links: network.link_count,
            speed: network.speed,
        }
    }
}

/// How long ago that was; clocks of machines differ.
fn age_of(at_ns: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_nanos(at_ns))
}

impl TargetMeasures {
    pub fn of(target: TargetId, rank: u32, standing: &Standing) -> TargetMeasures {
        let Standing { free_bytes, measures, network, clients, .. } = *standing;
        let score_of = |of: Measures| {
            score(Measured {
                free_kb: free_bytes / 1000,
                read_kb_s: of.read.kb_s,
                write_kb_s: of.write.kb_s,
                network_kb_s: network.map(|network| network.speed.kb_s),
            })
        };
        TargetMeasures {
            target: target.0,
            rank,
            free_bytes: Some(free_bytes),
            measures: measures.map(MeasuresReport::of),
            network: network.map(NetworkReport::of),
            clients: clients.map(NetworkReport::of),
            score: measures.map(score_of),
            error: None,
        }
    }

    pub fn failed(target: TargetId, rank: u32, error: String) -> TargetMeasures {
        let error = Some(error);
        TargetMeasures {
            target: target.0,
            rank,
            free_bytes: None,
            measures: None,
            network: None,
            clients: None,
            score: None,
            error,
        }
    }

    /// The target's number.
    pub fn number(&self) -> u32 {
        self.target
    }

    /// What it is worth; `None`: not measured.
    pub fn score(&self) -> Option<u64> {
        self.score
    }

    /// Why there is nothing.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

impl MeasuresReport {
    fn of(measures: Measures) -> MeasuresReport {
        MeasuresReport {
            at: utc(measures.at_ns as i64),
            age_s: age_of(measures.at_ns).as_secs(),
            bytes: measures.bytes,
            is_direct: measures.is_direct,
            read: measures.read,
            write: measures.write,
            random_reads_s: measures.random_reads_s,
            random_writes_s: measures.random_writes_s,
            memory: measures.memory,
            past: measures.past,
        }
    }
}

/// The link in the middle, with the spread of all.
fn links(of: Option<&NetworkReport>) -> String {
    let text = |of: &NetworkReport| format!("{}, {} old", mb_s(of.speed), age(of.age_s));
    of.map_or_else(|| "-".into(), text)
}

/// A speed with its spread, MB/s.
fn mb_s(speed: Speed) -> String {
    format!("{} ({} to {})", speed.kb_s / 1000, speed.kb_s_min / 1000, speed.kb_s_max / 1000)
}

fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Writes the table, and what to know about it.
pub fn show(all: &[TargetMeasures], out: &mut dyn Write) -> std::io::Result<()> {
    let mut table = Table::new(&[
        ">TARGET",
        ">READ MB/s",
        ">WRITE MB/s",
        ">4K READS/s",
        ">4K WRITES/s",
        ">MEMORY MB/s",
        ">NETWORK MB/s",
        ">CLIENTS MB/s",
        ">AGE",
        ">SCORE",
    ]);
    for target in all {
        let mut row = vec![target.target.to_string()];
        row.extend(match &target.measures {
            Some(of) => [
                mb_s(of.read),
                mb_s(of.write),
                of.random_reads_s.to_string(),
                of.random_writes_s.to_string(),
                mb_s(of.memory),
                links(target.network.as_ref()),
                links(target.clients.as_ref()),
                age(of.age_s),
                target.score.map_or_else(|| "-".into(), |score| format!("{:.3e}", score as f64)),
            ],
            None => {
                let why = if target.error.is_some() { "failed" } else { "not measured" };
                [why, "-", "-", "-", "-", "-", "-", "-", "-"].map(String::from)
            }
        });
        table.row(row);
    }
    table.write(out)?;
    let cached = all.iter().filter(|of| of.measures.as_ref().is_some_and(|of| !of.is_direct));
    let cached: Vec<String> = cached.map(|of| of.target.to_string()).collect();
    if !cached.is_empty() {
        let which = if cached.len() == 1 { "target" } else { "targets" };
        writeln!(
            out,
            "\nThe file system of {which} {} has no direct I/O: what was read may have come out of memory.",
            cached.join(", ")
        )?;
    }
    for target in all {
        if let Some(past) = target.measures.as_ref().and_then(|of| of.past) {
            writeln!(
                out,
                "\nThe devices of target {} have become slow: they read {} and wrote {} MB/s before. Look at them; if they stay so, 'azekura pool \
                 drain' takes what is there to others.",
                target.target,
                past.read / 1000,
                past.write / 1000
            )?;
        }
    }
    if all.iter().any(|of| of.score.is_some() && of.network.is_none()) {
        let text = "Where no speed of the network is known (there is no other engine, or no pool over it) it does not count in the score.";
        writeln!(out, "\n{text}")?;
    }
    Ok(())
}
