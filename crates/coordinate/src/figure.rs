//! From a trace to the paper's figure 10: how long each process waited and wrote, in the order in
//! which they finished.

use crate::server::trace::{Line, What};
use serde::Serialize;
use std::collections::HashMap;
use std::io::BufRead;
use types::{Error, Result};

/// Longest line of a trace, bytes: 16 targets and other names of 255 bytes, every byte escaped.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Which lines count.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub group: Option<String>,
    /// Only requests to this target.
    pub target: Option<String>,
    pub job: Option<String>,
    /// `write` or `read` only.
    pub kind: Option<String>,
}

impl Choice {
    fn takes(&self, line: &Line) -> bool {
        let same =
            |wanted: &Option<String>, is: &String| wanted.as_ref().is_none_or(|one| one == is);
        same(&self.group, &line.group)
            && same(&self.job, &line.job)
            && same(&self.kind, &line.kind)
            && self.target.as_ref().is_none_or(|one| line.targets.contains(one))
    }
}

/// What a process did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    pub host: String,
    pub pid: u32,
    /// Its MPI rank.
    pub rank: Option<u32>,
    /// Completed requests.
    pub requests: u64,
    pub bytes: u64,
    /// Time they waited, microseconds.
    pub wait_us: u64,
    /// Time their transfers took, microseconds.
    pub io_us: u64,
    /// From the first request of all processes to the last completion of this one, microseconds.
    pub end_us: u64,
}

/// Reads a trace; processes come in the order in which they finished. Errors: a line that is none
/// (its number is told); reading.
pub fn processes(mut trace: impl BufRead, choice: &Choice) -> Result<Vec<Process>> {
    let mut found: HashMap<(String, u32, Option<u32>), Process> = HashMap::new();
    let mut begin_us = u64::MAX;
    let mut text = Vec::new();
    for number in 1_u64.. {
        text.clear();
        let mut limited = std::io::Read::take(&mut trace, LINE_BYTES_MAX as u64);
        let read = limited.read_until(b'\n', &mut text);
        if read.map_err(|error| Error::io("reading the trace", error))? == 0 {
            break;
        }
        let Some(whole) = text.strip_suffix(b"\n") else {
            if text.len() < LINE_BYTES_MAX {
                // The coordinator was killed while it wrote this one.
                break;
            }
            return Err(Error::inval(format!("line {number} is too long for a trace")));
        };
        let line: Line = serde_json::from_slice(whole)
            .map_err(|error| Error::inval(format!("line {number} is not of a trace: {error}")))?;
        if !choice.takes(&line) || !matches!(line.what, What::Completed | What::Unasked) {
            continue;
        }
        let io_us = line.io_us.unwrap_or(0);
        let held_us = line.held_us.unwrap_or(io_us);
        let asked_us = line.time_us.saturating_sub(held_us).saturating_sub(line.wait_us);
        begin_us = begin_us.min(asked_us);
        let key = (line.host.clone(), line.pid, line.rank);
        let process = found.entry(key).or_insert_with(|| Process {
            host: line.host.clone(),
            pid: line.pid,
            rank: line.rank,
            requests: 0,
            bytes: 0,
            wait_us: 0,
            io_us: 0,
            end_us: 0,
        });
        process.requests += 1;
        process.bytes = process.bytes.saturating_add(line.bytes);
        process.wait_us = process.wait_us.saturating_add(line.wait_us);
        process.io_us = process.io_us.saturating_add(io_us);
        process.end_us = process.end_us.max(line.time_us);
    }
    let mut processes: Vec<Process> = found.into_values().collect();
    for process in &mut processes {
        process.end_us = process.end_us.saturating_sub(begin_us);
    }
    let key = |process: &Process| (process.end_us, process.rank, process.host.clone(), process.pid);
    processes.sort_by_key(key);
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(what: What, pid: u32, time_us: u64, wait_us: u64, io_us: Option<u64>) -> String {
        let line = Line {
            what,
            time_us,
            group: "g".into(),
            job: "j".into(),
            host: "h".into(),
            pid,
            rank: Some(pid),
            client: 1,
            id: 1,
            kind: "write".into(),
            bytes: 10,
            targets: vec!["a".into(), "b".into()],
            wait_us,
            held_us: io_us.map(|io_us| io_us + 1),
            io_us,
        };
        serde_json::to_string(&line).unwrap() + "\n"
    }

    #[test]
    fn processes_are_summed_up_and_sorted_by_their_end() {
        let trace = [
            line(What::Grant, 2, 1000, 0, None),
            line(What::Completed, 2, 1101, 0, Some(100)),
            line(What::Completed, 1, 1401, 300, Some(100)),
            line(What::Completed, 2, 1601, 200, Some(50)),
            line(What::Gone, 3, 9000, 0, None),
        ]
        .concat();
        let found = processes(trace.as_bytes(), &Choice::default()).unwrap();
        let brief: Vec<_> = found
            .iter()
            .map(|p| (p.pid, p.requests, p.bytes, p.wait_us, p.io_us, p.end_us))
            .collect();
        assert_eq!(brief, [(1, 1, 10, 300, 100, 401), (2, 2, 20, 200, 150, 601)]);
        for (choice, count) in [
            (Choice { group: Some("x".into()), ..Choice::default() }, 0),
            (Choice { target: Some("b".into()), ..Choice::default() }, 2),
            (Choice { target: Some("c".into()), ..Choice::default() }, 0),
            (Choice { kind: Some("read".into()), ..Choice::default() }, 0),
        ] {
            assert_eq!(processes(trace.as_bytes(), &choice).unwrap().len(), count);
        }
        // The last line was cut off.
        assert_eq!(
            processes(&trace.as_bytes()[..trace.len() - 5], &Choice::default()).unwrap(),
            found
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        let trace = line(What::Grant, 2, 1000, 0, None) + "{}\n";
        let error = processes(trace.as_bytes(), &Choice::default()).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
        let long = vec![b'a'; LINE_BYTES_MAX + 1];
        assert!(
            processes(&long[..], &Choice::default()).unwrap_err().to_string().contains("too long")
        );
    }
}
