//! What a directory with many files costs: CPU per operation in it, and memory per file.
//!
//! Invariant: this is the first thing a fresh system does.

use super::collect::Collector;
use super::{Options, bed::Bed, say};
use crate::clock;
use crate::md;
use crate::place::Where;
use std::io::Write;
use std::time::Duration;
use types::{ObjClass, Result};

/// Files of the full directory.
const FILES: u64 = 1_000_000;
/// Files made, looked at and removed to see what an operation costs.
const PROBE_FILES: u64 = 20_000;
const POOL_BYTES: u64 = 8 << 30;
/// Engines whose memory did not move for so long have made themselves ready.
const SETTLE_TIME: Duration = Duration::from_millis(250);
const SETTLE_LOOKS_MAX: u32 = 40;

/// Measures operations in one directory, empty and full, and what filling it took.
pub fn measure(
    options: &Options,
    bed: &Bed,
    all: &mut Collector,
    out: &mut dyn Write,
) -> Result<()> {
    let files = options.scaled(FILES, 200);
    say(out, &format!("a directory with {files} files"))?;
    if let Err(error) = fill_and_probe(options, files, bed, all) {
        say(out, &format!("  {error}"))?;
        all.fail("growth of a directory", &error);
    }
    Ok(())
}

fn fill_and_probe(options: &Options, files: u64, bed: &Bed, all: &mut Collector) -> Result<()> {
    let place = bed.make_files("growth", POOL_BYTES, false)?;
    let per_process = files.div_ceil(u64::from(options.processes));
    let probe_files = options.scaled(PROBE_FILES, 40) / u64::from(options.processes);
    let probe = md::Options {
        unique_dir: false,
        dir_class: Some(ObjClass::SX),
        iterations: options.rounds,
        ..md::Options::easy(options.processes, probe_files.max(1))
    };
    let stay = md::Options {
        files_per_process: per_process,
        first_file: probe.files_per_process,
        stat: false,
        read: false,
        remove: false,
        iterations: 1,
        ..probe.clone()
    };
    // Counted from before the first file: nothing the engines have freed can hide growth.
    let pids = bed.engine_pids()?;
    let resident = || pids.iter().map(|&pid| clock::resident_bytes(pid)).sum::<Result<u64>>();
    let mut before = resident()?;
    // A pool in memory touches in the background what it will use first.
    for _ in 0..SETTLE_LOOKS_MAX {
        std::thread::sleep(SETTLE_TIME);
        let now = resident()?;
        if now == before {
            break;
        }
        before = now;
    }
    probe_cpu(&probe, &place, "empty", all)?;
    let filled = md::run(&stay, &place, &mut std::io::sink())?;
    let after = resident()?;
    let made = per_process * u64::from(options.processes);
    all.put("memory per file", "bytes", after.saturating_sub(before) as f64 / made as f64);
    if let Some(create) = filled.summary.first() {
        all.put("filling a directory", "op/s", create.ops_per_s.median);
    }
    probe_cpu(&probe, &place, "full", all)
}

/// CPU time of clients and engines per operation, by phase.
fn probe_cpu(probe: &md::Options, place: &Where, state: &str, all: &mut Collector) -> Result<()> {
    let report = md::run(probe, place, &mut std::io::sink())?;
    for phase in &report.phases {
        all.put(&format!("cpu {} {state}", phase.phase.name()), "µs/op", phase.cpu_us_per_op());
    }
    Ok(())
}

/// Names of the figures that goals may rely on.
#[cfg(test)]
pub fn figure_names() -> Vec<String> {
    let mut names = vec!["memory per file".to_string()];
    for phase in ["create", "stat", "read", "remove"] {
        names.push(format!("cpu {phase} empty"));
        names.push(format!("cpu {phase} full"));
    }
    names
}
