//! `azekura completion`: scripts for shells.

use crate::exit::Outcome;
use crate::output::write_failure;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Print a completion script for a shell.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  azekura completion bash > ~/.local/share/bash-completion/completions/azekura
  azekura completion zsh > ~/.zfunc/_azekura")]
pub struct CompletionArgs {
    /// Which shell
    shell: Shell,
}

/// Runs the command for the parser `Cli`.
pub fn run<Cli: CommandFactory>(args: &CompletionArgs) -> Outcome {
    // The generator panics when it cannot write: let it write to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "azekura", &mut script);
    std::io::stdout().lock().write_all(&script).map_err(write_failure)
}
