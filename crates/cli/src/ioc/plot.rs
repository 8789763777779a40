//! `azekura ioc plot`: how long each process waited and wrote, drawn from traces.

use crate::exit::Outcome;
use crate::output::Table;
use crate::session::Session;
use bench::svg::{Bars, Panel};
use clap::{Args, ValueEnum};
use coordinate::figure::{Choice, Process, processes};
use serde::Serialize;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use types::{Error, Result, size};

/// Draw how long each process waited and wrote
///
/// For each trace a panel with a bar for each process, in the order in which they finished: time
/// waited below, time of the transfers above.
#[derive(Args, Debug)]
#[command(after_help = "\
A trace is written by 'azekura ioc serve --trace FILE'. One with '--max-writers off' shows the
uncoordinated case beside the coordinated one.

Examples:
  azekura ioc plot trace.jsonl -o waits.svg
  azekura ioc plot off.jsonl on.jsonl -o compared.svg --target ost0")]
pub struct PlotArgs {
    /// Traces
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The drawing (SVG); without it only the figures are shown
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Above the drawing
    #[arg(long, default_value = "Waiting and I/O of each process, by completion")]
    title: String,
    /// Only this group
    #[arg(long)]
    group: Option<String>,
    /// Only requests to this target
    #[arg(long)]
    target: Option<String>,
    /// Only this job
    #[arg(long)]
    job: Option<String>,
    /// Only writes, or only reads
    #[arg(long)]
    kind: Option<Kind>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Write,
    Read,
}

#[derive(Serialize)]
struct Drawn {
    trace: PathBuf,
    processes: Vec<Process>,
}

pub fn run(session: &Session, args: &PlotArgs) -> Outcome {
    let choice = Choice {
        group: args.group.clone(),
        target: args.target.clone(),
        job: args.job.clone(),
        kind: args
            .kind
            .map(|kind| if matches!(kind, Kind::Write) { "write" } else { "read" }.into()),
    };
    let drawn: Result<Vec<Drawn>> = args.traces.iter().map(|path| read(path, &choice)).collect();
    let drawn = drawn?;
    if drawn.iter().all(|one| one.processes.is_empty()) {
        return Err(Error::inval("no completed request in the trace is of this choice").into());
    }
    if let Some(path) = &args.out {
        let svg = bars(args, &drawn).svg();
        std::fs::write(path, svg).map_err(|error| Error::io(path.display(), error))?;
    }
    session.out.show(&drawn, |out| {
        let mut table =
            Table::new(&["TRACE", ">PROCESSES", ">BYTES", ">MEAN WAIT", ">MEAN I/O", ">LAST END"]);
        for one in &drawn {
            let count = one.processes.len().max(1) as f64;
            let mean = |part: fn(&Process) -> u64| {
                let sum: u64 = one.processes.iter().map(part).sum();
                format!("{:.2} s", sum as f64 / count / 1e6)
            };
            let bytes = one.processes.iter().map(|process| process.bytes).sum();
            let end_us = one.processes.iter().map(|process| process.end_us).max().unwrap_or(0);
            table.row(vec![
                one.trace.display().to_string(),
                one.processes.len().to_string(),
                size::format(bytes),
                mean(|process| process.wait_us),
                mean(|process| process.io_us),
                format!("{:.2} s", end_us as f64 / 1e6),
            ]);
        }
        table.write(out)
    })
}

fn read(path: &Path, choice: &Choice) -> Result<Drawn> {
    let file = File::open(path).map_err(|error| Error::io(path.display(), error))?;
    let processes =
        processes(BufReader::new(file), choice).map_err(|error| error.context(path.display()))?;
    Ok(Drawn { trace: path.to_path_buf(), processes })
}

fn bars(args: &PlotArgs, drawn: &[Drawn]) -> Bars {
    let seconds = |us: u64| us as f64 / 1e6;
    let panels = drawn.iter().map(|one| {
        let name = one.trace.file_stem().map(|name| name.to_string_lossy().into_owned());
        let bars = one.processes.iter().map(|p| vec![seconds(p.wait_us), seconds(p.io_us)]);
        Panel { title: name.unwrap_or_default(), bars: bars.collect() }
    });
    Bars {
        title: args.title.clone(),
        x_label: "processes in the order of completion".into(),
        y_label: "seconds".into(),
        parts: vec!["waiting".into(), "I/O".into()],
        panels: panels.collect(),
    }
}
