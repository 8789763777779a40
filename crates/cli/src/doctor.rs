//! `azekura doctor`: what this machine lacks for full speed, and the command that mends it.

mod machine;

use crate::exit::{Failure, Outcome};
use crate::output::Table;
use crate::session::Session;
use machine::{Finding, Verdict};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Say what this machine lacks for full speed, with the command that mends it.
///
/// Changes nothing. Exit code 0 unless something keeps Azekura from working; what only makes it
/// slower is 0.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura doctor
  azekura doctor --data /mnt/nvme0 --json | jq '.findings[] | select(.state != \"ok\")'")]
pub struct DoctorArgs {
    /// A directory that targets are to use [default: where the system is]
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    /// `ok`, `slow` or `broken`: the worst of the findings.
    state: Verdict,
    findings: Vec<Finding>,
}

pub fn run(session: &Session, args: &DoctorArgs) -> Outcome {
    let mut dirs = args.data.clone();
    if dirs.is_empty() {
        dirs.extend(session.system_dir().ok());
    }
    let findings = machine::examine(Path::new("/"), &dirs);
    let state = findings.iter().map(|finding| finding.state).max().unwrap_or(Verdict::Ok);
    let report = Report { state, findings };
    session.out.show(&report, |out| {
        let mut table = Table::new(&["", "WHAT", "FOUND"]);
        for finding in &report.findings {
            table.row(vec![
                finding.state.to_string(),
                finding.what.to_string(),
                finding.found.clone(),
            ]);
        }
        table.write(out)?;
        let mut first = true;
        for finding in &report.findings {
            let Some(mend) = &finding.mend else { continue };
            if first {
                writeln!(out)?;
                first = false;
            }
            writeln!(out, "{}: {}", finding.what, finding.effect)?;
            writeln!(out, "    {mend}")?;
        }
        writeln!(out)?;
        match report.state {
            Verdict::Ok => writeln!(out, "Nothing to mend."),
            Verdict::Slow => writeln!(out, "It works; what is above makes it faster or safer."),
            Verdict::Broken => writeln!(out, "It will not work before this is mended."),
        }
    })?;
    match state {
        Verdict::Broken => Err(Failure::Reported(1)),
        _ => Ok(()),
    }
}
