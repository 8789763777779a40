//! The paper's figures from reports: 9 (throughput against writers), 10 (completion of each
//! process), 11 (output time of the simulation).

use super::limit::Limit;
use super::round::Run;
use super::{micro, nicam};
use crate::report::Spread;
use crate::svg::{Bars, Lines, Panel, Series};
use std::path::{Path, PathBuf};
use types::{Error, Result};

const MIB: f64 = (1 << 20) as f64;

/// Throughput against writers into `path`, and completion of the processes beside it, with
/// `-steps` at the end of the name.
pub fn micro(report: &micro::Report, path: &Path) -> Result<()> {
    let kept = report.options.setting.limit;
    let series = |name: &str, limit| Series {
        name: name.to_string(),
        points: report
            .options
            .writers
            .iter()
            .map(|&writers| {
                let median = Spread::of(&report.throughputs(writers, limit)).median;
                (f64::from(writers), median / MIB)
            })
            .collect(),
    };
    let lines = Lines {
        title: "Throughput of all writers".to_string(),
        x_label: "writers per target".to_string(),
        y_label: "MiB/s".to_string(),
        series: vec![series("uncoordinated", Limit::Off), series("coordinated", kept)],
    };
    write(path, &lines.svg())?;
    let panel = |title: &str, limit| Panel {
        title: title.to_string(),
        bars: report.last_run(limit).map(bars).unwrap_or_default(),
    };
    let steps = Bars {
        title: "Time of each process, in the order of completion".to_string(),
        x_label: String::new(),
        y_label: "s".to_string(),
        parts: vec!["wait".to_string(), "write".to_string()],
        panels: vec![panel("uncoordinated", Limit::Off), panel("coordinated", kept)],
    };
    write(&beside(path, "-steps"), &steps.svg())
}

/// Mean and longest output time of both sides.
pub fn nicam(report: &nicam::Report, path: &Path) -> Result<()> {
    let panel = |title: &str, limit| Panel {
        title: title.to_string(),
        bars: [Run::output_s_mean as fn(&Run) -> f64, Run::output_s_max]
            .map(|figure| vec![Spread::of(&report.figures(limit, figure)).median])
            .to_vec(),
    };
    let bars = Bars {
        title: "Time of a process in output: mean, maximum".to_string(),
        x_label: String::new(),
        y_label: "s".to_string(),
        parts: vec!["output".to_string()],
        panels: vec![
            panel("uncoordinated", Limit::Off),
            panel("coordinated", report.options.setting.limit),
        ],
    };
    write(path, &bars.svg())
}

/// Wait and write of each process.
fn bars(run: &Run) -> Vec<Vec<f64>> {
    let parts =
        |process: super::round::Process| vec![process.wait_s, process.output_s - process.wait_s];
    run.by_end().into_iter().map(parts).collect()
}

/// The same name with something before its extension.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(suffix);
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

fn write(path: &Path, svg: &str) -> Result<()> {
    std::fs::write(path, svg)
        .map_err(|error| Error::io(format!("writing {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_keep_their_extension() {
        assert_eq!(beside(Path::new("/x/a.b.svg"), "-steps"), Path::new("/x/a.b-steps.svg"));
        assert_eq!(beside(Path::new("plot"), "-steps"), Path::new("plot-steps"));
    }
}
