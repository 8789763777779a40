//! `azekura help`: help of a command on the terminal, or manual pages.

use crate::exit::{Failure, Outcome};
use crate::output::write_failure;
use clap::{Command, CommandFactory};
use std::io::Write;
use std::path::{Path, PathBuf};
use types::Error;

/// Print help of a command, or its manual page.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura help pool create
  azekura help --man pool create | man -l -
  azekura help --man --out ~/.local/share/man/man1")]
pub struct HelpArgs {
    /// The command, word by word; the whole program if none is given
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// As a manual page (roff)
    #[arg(long)]
    man: bool,
    /// Write the manual pages of all commands into this directory
    #[arg(long, value_name = "DIR", requires = "man", conflicts_with = "command")]
    out: Option<PathBuf>,
}

/// Runs the command for the parser `Cli`.
pub fn run<Cli: CommandFactory>(args: &HelpArgs) -> Outcome {
    if let Some(dir) = &args.out {
        return write_pages(Cli::command(), dir);
    }
    let mut whole = Cli::command();
    // Gives subcommands their full names and the options they inherit.
    whole.build();
    let mut command = &mut whole;
    for word in &args.command {
        let within = command.get_bin_name().unwrap_or(command.get_name()).to_string();
        command = command.find_subcommand_mut(word).ok_or_else(|| {
            Error::inval(format!("'{within}' has no command '{word}'; see '{within} --help'"))
        })?;
    }
    let text = match args.man {
        true => page(command.clone()).map_err(write_failure)?,
        false => command.render_long_help().to_string(),
    };
    std::io::stdout().lock().write_all(text.as_bytes()).map_err(write_failure)
}

/// The manual page of a command.
fn page(command: Command) -> std::io::Result<String> {
    let man = clap_mangen::Man::new(command)
        .source(concat!("Azekura ", env!("CARGO_PKG_VERSION")))
        .manual("Azekura");
    let mut text = Vec::new();
    man.render(&mut text)?;
    // What follows the options has a heading that says nothing.
    Ok(String::from_utf8_lossy(&text)
        .replace("\n.SH EXTRA\nExamples:\n", "\n.SH EXAMPLES\n")
        .replace("\n.SH EXTRA\n", "\n.SH NOTES\n")
        .replace("\nExamples:\n", "\n.SH EXAMPLES\n"))
}

/// A file for each command: `azekura.1`, `azekura-pool-create.1`, …
fn write_pages(command: Command, dir: &Path) -> Result<(), Failure> {
    let failed = |error| {
        Failure::Error(Error::io(format!("writing manual pages into {}", dir.display()), error))
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    // The pages of `help` itself would be one for each command again.
    let mut whole = command.disable_help_subcommand(true);
    whole.build();
    let mut left = vec![whole];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|one| !one.is_hide_set()).cloned());
        let name = command.get_display_name().unwrap_or(command.get_name()).to_string();
        let text = page(command).map_err(failed)?;
        std::fs::write(dir.join(name + ".1"), text).map_err(failed)?;
    }
    Ok(())
}
