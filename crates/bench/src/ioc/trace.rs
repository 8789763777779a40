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
    what: String,
    pid: u32,
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
        if line.what == "grant" {
            let (grants, waited_us) = self.processes.entry(line.pid).or_default();
            *grants += 1;
            *waited_us = waited_us.saturating_add(line.wait_us);
        }
        Ok(())
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_counted_by_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let lines = [
            r#"{"what":"grant","time_us":5,"host":"h","pid":7,"wait_us":1500000,"targets":["t"]}"#,
            r#"{"what":"completed","time_us":6,"host":"h","pid":7,"wait_us":1500000,"io_us":1}"#,
            r#"{"what":"grant","time_us":7,"host":"h","pid":7,"wait_us":500000,"targets":["t"]}"#,
            r#"{"what":"grant","time_us":8,"host":"h","pid":8,"wait_us":0,"targets":["t"]}"#,
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let trace = read_trace(&path).unwrap();
        assert_eq!(trace.granted(), 3);
        assert_eq!((trace.waited_s(7), trace.waited_s(8), trace.waited_s(9)), (2.0, 0.0, 0.0));
        std::fs::write(&path, [lines[0], "half a li"].join("\n")).unwrap();
        let error = read_trace(&path).unwrap_err();
        assert!(error.to_string().contains("trace:2"), "{error}");
        assert!(read_trace(&dir.path().join("none")).is_err());
    }
}
