//! `cargo xtask`: checks of this repository that the compiler does not make.
//!
//! `cargo xtask tidy` reads the sources and documents and reports what breaks the rules of the
//! house, one line each as `file:line: what: what to do`. It exits with 1 when there is anything
//! to report. `cargo xtask mutants` puts defects in, one at a time, and has tests find them. It needs the
//! standard library only, so that it builds in a second.

mod mutants;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str =
    "usage: cargo xtask tidy              check the sources and documents of the repository
       cargo xtask mutants [NAME…]   put defects in, one at a time: a test must find each
       cargo xtask mutants --list    which there are, and what finds them";

/// The manifest directory is the `xtask` folder; the repository is its parent.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => run_tidy(),
        ["mutants", "--list"] => {
            print!("{}", mutants::list());
            ExitCode::SUCCESS
        }
        ["mutants", ref names @ ..] => run_mutants(names),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_mutants(names: &[&str]) -> ExitCode {
    match mutants::run(Path::new(ROOT), names) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::from(2)
        }
    }
}

fn run_tidy() -> ExitCode {
    let root = PathBuf::from(ROOT);
    let repo = match tidy::Repo::read(&root) {
        Ok(repo) => repo,
        Err(error) => {
            eprintln!("tidy: cannot read the repository at {}: {error}", root.display());
            return ExitCode::from(2);
        }
    };
    let findings = tidy::check(&repo);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing to report", repo.files.len());
        ExitCode::SUCCESS
    } else {
        println!("tidy: {} findings in {} files read", findings.len(), repo.files.len());
        ExitCode::FAILURE
    }
}
