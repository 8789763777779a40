//! What a coordinator's trace says about each process: how often it was granted, how long it
//! waited. The format is that of `azekura ioc serve --trace`, one JSON object a line; fields that
//! are not needed here are passed over.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use types::{Code, Error, Result};

/// A line of the trace, as far as it matters here.
#[derive(Deserialize)]
struct Line {
    event: String,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    wait_us: u64,
}

/// The grants of a coordinator's life.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// By process id: grants, and microseconds waited for them.
    processes: BTreeMap<u32, (u64, u64)>,
}

impl Trace {
    /// Grants to all processes.
    pub fn granted(&self) -> u64 {
        self.processes.values().map(|(grants, _)| grants).sum()
    }

    /// How long a process has waited for its grants, seconds.
    pub fn waited_s(&self, pid: u32) -> f64 {
        self.processes.get(&pid).map_or(0.0, |(_, waited_us)| *waited_us as f64 / 1e6)
    }

    fn take(&mut self, text: &str) -> Result<(), serde_json::Error> {
        let line: Line = serde_json::from_str(text)?;
        if line.event == "grant" {
            let (grants, waited_us) = self.processes.entry(line.pid).or_default();
            *grants += 1;
            *waited_us = waited_us.saturating_add(line.wait_us);
        }
        Ok(())
    }
}

/// Reads a trace.
pub fn read_trace(path: &Path) -> Result<Trace> {
    let failed = |error| Error::io(format!("reading {}", path.display()), error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut trace = Trace::default();
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(failed)?;
        trace.take(&line).map_err(|error| {
            let place = format!("{}:{}", path.display(), number + 1);
            Error::new(Code::Proto, format!("{place}: not a line of a trace: {error}"))
        })?;
    }
    Ok(trace)
}
