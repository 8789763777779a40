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
    let mut text = Vec::new();
    let printed = match args.man {
        true => clap_mangen::Man::new(command.clone()).render(&mut text),
        false => write!(text, "{}", command.render_long_help()),
    };
    printed.and_then(|()| std::io::stdout().lock().write_all(&text)).map_err(write_failure)
}

/// A file for each command: `azekura.1`, `azekura-pool-create.1`, …
fn write_pages(command: Command, dir: &Path) -> Result<(), Failure> {
    let failed = |error| {
        Failure::Error(Error::io(format!("writing manual pages into {}", dir.display()), error))
    };
    std::fs::create_dir_all(dir).map_err(failed)?;
    // The pages of `help` itself would be one for each command again.
    clap_mangen::generate_to(command.disable_help_subcommand(true), dir).map_err(failed)
}
