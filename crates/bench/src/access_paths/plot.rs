//! The figure of the experiment: bandwidth against transfer size, a line per way.

use super::{MIB, Report, figure_name};
use crate::Phase;
use crate::report::{write_json, write_text};
use crate::svg::{Lines, Series};
use std::path::{Path, PathBuf};
use types::Result;

/// Writes the plots of writing (`path`) and reading (`-read` at the end of the name), and the
/// report beside them as JSON.
pub fn write(report: &Report, path: &Path) -> Result<()> {
    write_text(path, &lines(report, Phase::Write).svg())?;
    write_text(&beside(path, "-read", "svg"), &lines(report, Phase::Read).svg())?;
    write_json(&beside(path, "", "json"), report)
}

/// The plot of writing.
#[cfg(test)]
pub fn svg(report: &Report) -> String {
    lines(report, Phase::Write).svg()
}

fn lines(report: &Report, phase: Phase) -> Lines {
    let series = report.options.ways().map(|way| Series {
        name: way.to_string(),
        points: report
            .options
            .transfers
            .iter()
            .filter_map(|&transfer| {
                let median = report.median(&figure_name(way, transfer, phase))?;
                Some((transfer as f64 / MIB as f64, median))
            })
            .collect(),
    });
    Lines {
        title: format!("{} through library, mount, and both", phase.name()),
        x_label: "MiB per call".to_string(),
        y_label: "MiB/s".to_string(),
        series: series.collect(),
    }
}

fn beside(path: &Path, ending: &str, extension: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}{ending}.{extension}"))
}
